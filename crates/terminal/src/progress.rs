//! Progress bars, on terminals only.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(200);

/// Whether a bar would be visible.
pub fn is_wanted(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

/// A bar with this `template`, hidden unless [`is_wanted`].
pub fn bar(quiet: bool, template: &str) -> ProgressBar {
    if !is_wanted(quiet) {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// The same, but it also moves between updates.
pub fn ticking_bar(quiet: bool, template: &str) -> ProgressBar {
    let bar = bar(quiet, template);
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// Runs `work` while another thread updates `bar` from time to time. Then removes the bar.
pub fn watched<T>(
    bar: &ProgressBar,
    tell: impl Fn(&ProgressBar) + Send,
    work: impl FnOnce() -> T,
) -> T {
    let (done, ended) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                tell(bar);
            }
            bar.finish_and_clear();
        });
        let result = work();
        drop(done);
        result
    })
}
