//! Reading by search and by page table (AFPT): the paper's figures, each by one command.
//!
//! Each round reads the same places by each road and from a file of a peer, one after the other; the
//! first round is not counted. Ratios are of medians taken in one run.

mod competitive;
mod files;
mod report;

use std::path::PathBuf;

use clap::ValueEnum;

pub use report::{Report, Row};

use crate::Result;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::machine::{Machine, load};

/// A figure of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Time of a request against its size, one after the other and at random (Fig 6)
    BlockSize,
    /// Reading a whole file again and again against its size (Fig 10)
    FileSize,
    /// What the rules pay beside the best that can be done, by the costs of this machine and of the
    /// paper's
    Competitive,
    /// Looking at 32 KiB in place beside copying them
    View,
}

impl Figure {
    /// The name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::BlockSize => "block-size",
            Self::FileSize => "file-size",
            Self::Competitive => "competitive",
            Self::View => "view",
        }
    }
}

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct ReadingOptions {
    /// The figures; all of them if none is named
    #[arg(long, value_name = "FIGURE", num_args = 1.., value_delimiter = ',', value_enum)]
    pub figure: Vec<Figure>,
    /// Directory of the file system to compare with
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub peer: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Rounds that count, beside the one that warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Bytes of the file, for `block-size` and `view`; of the largest, for `file-size`
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub file_bytes: u64,
    /// Bytes that each road reads in a round
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub round_bytes: u64,
    /// Directory for the pool
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
}

impl ReadingOptions {
    fn check(&self) -> Result<()> {
        let refuse = |text: &str| Err(Error::Option(text.into()));
        if self.rounds == 0 {
            return refuse("--rounds must be at least 1");
        }
        if self.file_bytes < 4 << 20 {
            return refuse("--file-bytes must be at least 4194304");
        }
        if self.round_bytes == 0 {
            return refuse("--round-bytes must be at least 1");
        }
        Ok(())
    }

    fn wants(&self, figure: Figure) -> bool {
        self.figure.is_empty() || self.figure.contains(&figure)
    }
}

/// Measures, and prints the report.
///
/// # Errors
/// Options that make no sense, no room, a signal.
pub fn main_reading(options: &ReadingOptions) -> Result<()> {
    let report = measure(options)?;
    if options.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&report).unwrap_or_default()
        );
    } else {
        print!("{report}");
    }
    Ok(())
}

/// Measures.
///
/// # Errors
/// As [`main_reading`].
pub fn measure(options: &ReadingOptions) -> Result<Report> {
    options.check()?;
    let interrupt = Interrupt::watch();
    let mut bed = files::Bed::make(options, &interrupt)?;
    let costs = bed.costs();
    let mut report = Report::new(Machine::look(), costs);
    bed.describe(&mut report.machine);
    report.machine.rounds = options.rounds;
    if options.wants(Figure::BlockSize) {
        report.rows.extend(bed.block_sizes()?);
    }
    if options.wants(Figure::FileSize) {
        report.rows.extend(bed.file_sizes()?);
    }
    if options.wants(Figure::View) {
        report.rows.extend(bed.views()?);
    }
    if options.wants(Figure::Competitive) {
        report.competitive = competitive::play(costs.as_ref());
    }
    report.machine.load_after = load();
    Ok(report)
}
