//! `vellum import`, `vellum export` and `vellum cp`: files and whole trees, with owners, times,
//! extended attributes, links and holes.

mod copier;
mod cp;
mod export;
pub(crate) mod host;
mod import;
mod keeping;
pub(crate) mod pool;
mod progress;
pub(crate) mod tree;

use std::fmt;
use vellum_terminal::output::warn_line;
use vellum_terminal::{Failure, Outcome};

pub(crate) use cp::{End, run as cp};
pub(crate) use export::{Export, run as export};
pub(crate) use import::{Import, run as import};
use tree::Trouble;

/// Why a directory is not copied to a place in itself.
const INTO_ITSELF: Trouble = Trouble::Refused("a directory is not copied into itself");
/// The maximum number of lines in the final report.
const REPORT_LINES: usize = 20;

/// The files that could not be copied.
#[derive(Debug, Default)]
struct Losses {
    lines: Vec<String>,
    count: u64,
}

impl Losses {
    fn add(&mut self, place: impl fmt::Display, what: impl fmt::Display) {
        self.count += 1;
        if self.lines.len() < REPORT_LINES {
            self.lines.push(format!("{place}: {what}"));
        }
    }

    /// Reports the losses. Fails if there are any.
    fn report(self) -> Outcome {
        if self.count == 0 {
            return Ok(());
        }
        for line in &self.lines {
            warn_line!("vellum: {line}");
        }
        let more = self.count - self.lines.len() as u64;
        if more > 0 {
            warn_line!("vellum: and {more} more");
        }
        Err(Failure::new(format!(
            "{} things could not be copied",
            self.count
        )))
    }
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    files: u64,
    bytes: u64,
}
