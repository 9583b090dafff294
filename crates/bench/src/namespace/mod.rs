//! Names and directories: the figures of ADAM, for every namespace there is, beside file systems of
//! the kernel.
//!
//! What is timed is what programs do through the library, and through system calls where a peer is
//! of the kernel. Each round lets every side do the same, one after the other; the first round is
//! not counted. Ratios are of values taken in one round, to the namespace *tree*, the baseline as
//! NOVA has it.

mod changes;
mod depth;
mod evolve;
mod git;
mod latency;
mod listing;
mod memory;
mod rename;
mod source_tree;
mod subjects;
mod tree;

use std::path::PathBuf;

use clap::ValueEnum;

use crate::Result;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
pub use crate::report::Report;
use crate::report::{About, Outcome, Output};
use subjects::Setting;

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Making and removing files and directories (Fig 4)
    Ops,
    /// Listing directories, one thread to ten (Fig 5)
    Listdirs,
    /// Renaming a directory with one name to 100 000 in it (Fig 6)
    Rename,
    /// Making and removing where each flushed line takes 0 ns to 1000 ns longer (Fig 7)
    Latency,
    /// Looking up whole paths of one component to 64
    Depth,
    /// One directory after the other is filled, renamed and emptied, while areas evolve; and what
    /// evolving costs
    Evolve,
    /// A tree of sources: unpacked, searched, summed up, renamed at the top, removed
    SourceTree,
    /// Checking out one commit and another one with `git`, in mounted pools
    Git,
    /// DRAM after a stat of each file
    Memory,
}

impl Figure {
    fn measure(self, setting: &Setting<'_>) -> Result<Outcome> {
        match self {
            Self::Ops => changes::measure(setting),
            Self::Listdirs => listing::measure(setting),
            Self::Rename => rename::measure(setting),
            Self::Latency => latency::measure(setting),
            Self::Depth => depth::measure(setting),
            Self::Evolve => evolve::measure(setting),
            Self::SourceTree => source_tree::measure(setting),
            Self::Git => git::measure(setting),
            Self::Memory => memory::measure(setting),
        }
    }
}

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct NamespaceOptions {
    /// The figures; all of them if none is named
    #[arg(long, value_name = "FIGURE", num_args = 1.., value_delimiter = ',', value_enum)]
    pub figure: Vec<Figure>,
    /// How the report is given
    #[command(flatten)]
    pub output: Output,
    /// Directories of file systems to compare with; `ext4-ram` makes an ext4 in memory for the run
    /// (superuser)
    #[arg(long, value_name = "DIR", num_args = 1.., default_value = "/dev/shm")]
    pub peer: Vec<String>,
    /// Rounds that count, beside the one that warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Files, or directories, of a round
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub files: usize,
    /// Names in the largest directory that is renamed
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub children: usize,
    /// Threads that list, at most
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub threads: usize,
    /// Seconds that `evolve` takes of each file system in a round
    #[arg(long, value_name = "SECONDS", default_value_t = 12)]
    pub seconds: u32,
    /// A directory whose tree `source-tree` and `git` copy, names and sizes; without it one is
    /// drawn, with as many files as `--files` says
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// Directory for the pools
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
}

const ABOUT: About = About {
    title: "Vellum: names and directories",
    introduction: "The figures of ADAM, measured on this machine. Every namespace, and every peer, \
                   does the same in the same round; in brackets what the namespace tree takes over \
                   a value.",
    baseline: "the namespace tree",
};

/// Most names of a directory, which file names have digits for.
const NAMES_MAX: usize = 1_000_000;

impl NamespaceOptions {
    fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::Option(text));
        if self.rounds == 0 || self.threads == 0 || self.seconds == 0 {
            return refuse("--rounds, --threads and --seconds must be at least 1".into());
        }
        let counts = 1..=NAMES_MAX;
        if !counts.contains(&self.files) || !counts.contains(&self.children) {
            return refuse(format!(
                "--files and --children must be from 1 to {NAMES_MAX}"
            ));
        }
        Ok(())
    }
}

/// Measures, and prints the report.
///
/// # Errors
/// Options that make no sense, no room, a signal.
pub fn main_namespace(options: &NamespaceOptions) -> Result<()> {
    measure(options)?.publish(&options.output)
}

/// Measures.
///
/// # Errors
/// As [`main_namespace`].
pub fn measure(options: &NamespaceOptions) -> Result<Report> {
    options.check()?;
    let interrupt = Interrupt::watch();
    let mut machine = Machine::look();
    machine.pool = options.pool_dir.display().to_string();
    machine.instructions = format!("{:?}", vellum::media::Isa::chosen());
    machine.rounds = options.rounds;
    machine.files = options.files;
    let setting = Setting::new(options, &interrupt);
    let wanted = match options.figure.as_slice() {
        [] => Figure::value_variants(),
        named => named,
    };
    let report = Report::new(
        ABOUT,
        machine,
        vec![
            ("Files of a round", options.files.to_string()),
            (
                "Names in the largest directory",
                options.children.to_string(),
            ),
            ("Threads, at most", options.threads.to_string()),
            ("Peers", options.peer.join(", ")),
        ],
    );
    report.measure(wanted.iter().map(|figure| figure.measure(&setting)))
}
