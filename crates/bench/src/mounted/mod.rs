//! Programs, requests and transfers through a mount, by both doors to the kernel.
//!
//! * Single operations are compared with a file system that does nothing, by the same door: what
//!   remains is Vellum's share of a request.
//! * Programs run in mounted pools and in directories of other file systems. The mounts count the
//!   kernel's requests by kind.
//! * A large file is written, and read with and without the kernel's cache.
//!
//! In each round every subject does the same, one after the other; the first round does not count.

mod doors;
mod laps;
mod material;
mod programs;
mod report;
mod requests;
mod subjects;
mod table;
mod transfers;

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use tempfile::TempDir;
use vellum_terminal::Printing;
use vellum_transport::Door;

pub use report::{Operation, Ratio, Report, Row, Scaling};

use crate::Result;
use crate::checks::{check_counts, check_only};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::machine::{Machine, load};
use crate::order::SEED;
use crate::progress::bar;
use crate::scratch::dir_in;
use doors::Doors;

/// The parts of the report.
const REQUESTS: &str = "requests";
const PROGRAMS: &str = "programs";
const TRANSFERS: &str = "transfers";

/// The options.
#[derive(Clone, Debug, clap::Args)]
pub struct MountOptions {
    /// Directories of file systems to compare with; `ext4-ram` creates an ext4 in memory for the
    /// run (superuser)
    #[arg(long, value_name = "DIR", num_args = 1.., default_value = "/dev/shm")]
    pub peer: Vec<String>,
    /// JSON instead of tables
    #[command(flatten)]
    pub printing: Printing,
    /// Measure these only: `requests`, `programs`, `transfers`, or single rows of them
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub only: Vec<String>,
    /// Rounds that count; one more warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Files in the source tree, and in a directory of single operations
    #[arg(long, value_name = "N", default_value_t = 12_000)]
    pub files: usize,
    /// Size of the file that is transferred, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub bytes: u64,
    /// Directory for the pools, and for what the programs are given
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
}

impl MountOptions {
    fn check(&self) -> Result<()> {
        check_counts(self.rounds, self.files)?;
        if self.bytes < transfers::REQUEST as u64 {
            let text = format!("--bytes must be at least {}", transfers::REQUEST);
            return Err(Error::Option(text));
        }
        let known: Vec<&str> = [REQUESTS, PROGRAMS, TRANSFERS]
            .into_iter()
            .chain(programs::names())
            .chain(transfers::NAMES)
            .chain(requests::names())
            .collect();
        check_only(&self.only, &known)
    }

    /// Whether a row of a part is wanted.
    fn wants(&self, part: &str, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part || only == row)
    }
}

/// The options and tools of a run.
struct Setting<'a> {
    options: &'a MountOptions,
    interrupt: &'a Interrupt,
    doors: &'a [Door],
    progress: &'a ProgressBar,
    /// The directory for pools and for what programs are given.
    dir: &'a Path,
}

impl Setting<'_> {
    /// Makes the progress bar longer, by steps of each round.
    fn add_steps(&self, steps: usize) {
        let steps = steps * (self.options.rounds + 1);
        self.progress.inc_length(steps as u64);
    }

    fn make_dir(&self) -> Result<TempDir> {
        dir_in(self.dir)
    }

    /// What came of a program; a signal may have ended it too.
    fn unless_interrupted<T>(&self, result: Result<T>) -> Result<T> {
        self.interrupt.check()?;
        result
    }
}

/// Measures, and prints the report.
///
/// # Errors
/// As [`run`], or writing to the standard output fails.
pub fn main_mount(options: &MountOptions) -> Result<()> {
    let report = run(options)?;
    crate::report::print(options.printing.json, &report, &report)
}

/// Measures, and removes everything that it created: also after errors, and after SIGINT, SIGTERM
/// and SIGHUP.
///
/// # Errors
/// Nothing can be mounted, a program failed, an option makes no sense, or a signal came.
pub fn run(options: &MountOptions) -> Result<Report> {
    options.check()?;
    if let Some(why) = crate::mount::missing() {
        return Err(Error::Wrong(format!("nothing can be mounted: {why}")));
    }
    let interrupt = Interrupt::watch();
    let machine = machine(options);
    let dir = dir_in(&options.pool_dir)?;
    let doors = Doors::open();
    let progress = bar(options.printing, 0);
    let setting = Setting {
        options,
        interrupt: &interrupt,
        doors: &doors.list,
        progress: &progress,
        dir: dir.path(),
    };
    let mut report = Report::new(machine, &doors.list);
    report.notes.extend(doors.note.clone());
    requests::measure(&setting, &mut report)?;
    programs::measure(&setting, &mut report)?;
    transfers::measure(&setting, &mut report)?;
    progress.finish_and_clear();
    interrupt.check()?;
    report.machine.load_after = load();
    Ok(report)
}

fn machine(options: &MountOptions) -> Machine {
    Machine {
        pool: options.pool_dir.display().to_string(),
        instructions: format!("{:?}", vellum::media::Isa::chosen()),
        files: options.files,
        rounds: options.rounds,
        order: format!("shuffled: Fisher-Yates, SplitMix64, seed {SEED:#x}"),
        ..Machine::look()
    }
}
