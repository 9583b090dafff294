//! How far a run is, on the standard error.

use indicatif::ProgressBar;
use vellum_terminal::{Printing, progress};

/// A bar of that many steps. It shows nothing where the standard error is no terminal.
pub(crate) fn bar(printing: Printing, steps: usize) -> ProgressBar {
    let bar = progress::bar(printing.hides_progress(), "{bar:30} {pos}/{len} {msg}");
    bar.set_length(steps as u64);
    bar
}
