//! How far a transfer is, and what it came to.

use std::time::Instant;

use indicatif::ProgressBar;
use serde::Serialize;
use vellum_terminal::output::{print_json, say};
use vellum_terminal::progress::ticking_bar;
use vellum_terminal::{Outcome, Printing};

use super::{Copied, Losses};
use crate::units::size;

/// Shows how far a transfer is.
pub(super) struct Progress {
    bar: ProgressBar,
    began: Instant,
    printing: Printing,
    /// What is done with files, in the past tense.
    done: &'static str,
}

/// What `--json` writes of a transfer.
#[derive(Serialize)]
struct Summary<'l> {
    files: u64,
    bytes: u64,
    seconds: f64,
    /// How many things could not be carried.
    lost: u64,
    /// Which and why, the first of them.
    losses: &'l [String],
}

impl Progress {
    /// A bar that is hidden where nobody looks.
    pub(super) fn new(printing: Printing, done: &'static str) -> Self {
        let template = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
        Self {
            bar: ticking_bar(printing.hides_progress(), template),
            began: Instant::now(),
            printing,
            done,
        }
    }

    /// So many bytes are to be carried.
    pub(super) fn begin(&self, total_bytes: u64) {
        self.bar.set_length(total_bytes);
    }

    pub(super) fn show(&self, copied: Copied) {
        self.bar.set_position(copied.bytes);
        if copied.files.is_multiple_of(64) {
            self.bar.set_message(format!("{} files", copied.files));
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints what was done; it is a failure if something was lost.
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
