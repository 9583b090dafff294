//! Shows progress on the standard error.

use indicatif::ProgressBar;
use vellum_terminal::{Printing, progress};

/// A progress bar of this many steps. It shows nothing if the standard error is not a terminal.
pub(crate) fn bar(printing: Printing, steps: usize) -> ProgressBar {
    let bar = progress::bar(printing.hides_progress(), "{bar:30} {pos}/{len} {msg}");
    bar.set_length(steps as u64);
    bar
}
