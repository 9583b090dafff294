//! The progress bar: on a terminal only.

use std::time::Instant;

use indicatif::ProgressBar;
use vellum_terminal::output::say;
use vellum_terminal::progress::ticking_bar;

use super::Carried;
use crate::units::size;

/// Shows how far a transfer is.
pub(super) struct Progress {
    bar: ProgressBar,
    began: Instant,
    quiet: bool,
}

impl Progress {
    /// A bar for `total_bytes`; hidden where nobody looks.
    pub(super) fn new(quiet: bool, total_bytes: u64) -> Self {
        let template = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
        let bar = ticking_bar(quiet, template);
        bar.set_length(total_bytes);
        Self {
            bar,
            began: Instant::now(),
            quiet,
        }
    }

    pub(super) fn show(&self, carried: Carried) {
        self.bar.set_position(carried.bytes);
        if carried.files.is_multiple_of(64) {
            self.bar.set_message(format!("{} files", carried.files));
        }
    }

    /// Ends with a summary.
    pub(super) fn finish(&self, done: &str, carried: Carried) {
        self.bar.finish_and_clear();
        if self.quiet {
            return;
        }
        let seconds = self.began.elapsed().as_secs_f64();
        say!(
            "{done} {} files, {} in {seconds:.1} s",
            carried.files,
            size(carried.bytes)
        );
    }
}
