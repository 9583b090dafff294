//! The progress and the result of a transfer.

use std::time::Instant;

use indicatif::ProgressBar;
use serde::Serialize;
use vellum_terminal::output::{print_json, say};
use vellum_terminal::progress::ticking_bar;
use vellum_terminal::{Outcome, Printing};

use super::{Copied, Losses};
use crate::units::size;

/// Shows the progress of a transfer.
pub(super) struct Progress {
    bar: ProgressBar,
    began: Instant,
    printing: Printing,
    /// The verb of the command, in the past tense.
    done: &'static str,
}

/// The output of `--json` for a transfer.
#[derive(Serialize)]
struct Summary<'l> {
    files: u64,
    bytes: u64,
    seconds: f64,
    /// The number of things that could not be copied.
    lost: u64,
    /// The first of them, with the reason.
    losses: &'l [String],
}

impl Progress {
    /// Creates a progress bar, hidden if standard error is not a terminal.
    pub(super) fn new(printing: Printing, done: &'static str) -> Self {
        let template = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
        Self {
            bar: ticking_bar(printing.hides_progress(), template),
            began: Instant::now(),
            printing,
            done,
        }
    }

    /// Sets the number of bytes to copy.
    pub(super) fn begin(&self, total_bytes: u64) {
        self.bar.set_length(total_bytes);
    }

    pub(super) fn show(&self, copied: Copied) {
        self.bar.set_position(copied.bytes);
        if copied.files.is_multiple_of(64) {
            self.bar.set_message(format!("{} files", copied.files));
        }
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints the result. Fails if something was lost.
    pub(super) fn report(&self, copied: Copied, losses: Losses) -> Outcome {
        let Copied { files, bytes } = copied;
        let seconds = self.began.elapsed().as_secs_f64();
        if self.printing.json {
            print_json(&Summary {
                files,
                bytes,
                seconds,
                lost: losses.count,
                losses: &losses.lines,
            })?;
        } else if self.printing.has_summary() {
            say!(
                "{} {files} files, {} in {seconds:.1} s",
                self.done,
                size(bytes)
            );
        }
        losses.report()
    }
}
