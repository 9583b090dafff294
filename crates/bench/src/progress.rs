//! How far a run is, on the standard error.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of that many steps. It shows nothing where the standard error is no terminal.
pub(crate) fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}
