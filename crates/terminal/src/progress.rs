//! Progress bars: on a terminal only.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(200);

/// Whether anybody would see a bar.
pub fn is_wanted(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

/// A bar in the form of `template`; hidden where nobody looks.
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

/// The same, which moves while nothing is counted.
pub fn ticking_bar(quiet: bool, template: &str) -> ProgressBar {
    let bar = bar(quiet, template);
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// Does `work` while a thread of its own tells `bar` now and then how far it is; then the bar goes.
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
