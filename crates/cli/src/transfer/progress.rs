//! The progress bar: on a terminal only.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::Carried;
use crate::units::size;

/// Shows how far a transfer is.
pub(super) struct Progress {
    bar: ProgressBar,
    began: Instant,
    quiet: bool,
}

impl Progress {
    /// Whether counting what is to come would be seen by anybody.
    pub(super) fn is_wanted(quiet: bool) -> bool {
        !quiet && std::io::stderr().is_terminal()
    }

    /// A bar for `total_bytes`; hidden where nobody looks.
    pub(super) fn new(quiet: bool, total_bytes: u64) -> Self {
        let bar = if Self::is_wanted(quiet) {
            let bar = ProgressBar::new(total_bytes);
            let template = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        } else {
            ProgressBar::hidden()
        };
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
        println!(
            "{done} {} files, {} in {seconds:.1} s",
            carried.files,
            size(carried.bytes)
        );
    }
}
