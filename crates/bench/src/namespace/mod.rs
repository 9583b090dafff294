//! Names and directories: the figures of ADAM, for every namespace, compared with file systems of
//! the kernel.
//!
//! What is timed is what programs do: through the library, and through system calls for peers of
//! the kernel. In each round every side does the same, one after the other; the first round does
//! not count. Ratios compare values of the same round with the namespace *tree*, which is the
//! baseline after NOVA.

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
    /// Creating and removing files and directories (Fig 4)
    Ops,
    /// Listing directories, by one to ten threads (Fig 5)
    Listdirs,
    /// Renaming a directory with one to 100 000 names (Fig 6)
    Rename,
    /// Creating and removing where each flushed line takes 0 ns to 1000 ns longer (Fig 7)
    Latency,
    /// Looking up whole paths of one to 64 components
    Depth,
    /// One directory after the other is filled, renamed and emptied while areas evolve; and the
    /// cost of evolving
    Evolve,
    /// A source tree: unpacked, searched, summed up, renamed at the top, removed
    SourceTree,
    /// Checking out two commits in turn with `git`, in mounted pools
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

/// The options.
#[derive(Clone, Debug, clap::Args)]
pub struct NamespaceOptions {
    /// Figures to measure [default: all]
    #[arg(long, value_name = "FIGURE", num_args = 1.., value_delimiter = ',', value_enum)]
    pub figure: Vec<Figure>,
    /// The form of the report
    #[command(flatten)]
    pub output: Output,
    /// Directories of file systems to compare with; `ext4-ram` creates an ext4 in memory for the
    /// run (superuser)
    #[arg(long, value_name = "DIR", num_args = 1.., default_value = "/dev/shm")]
    pub peer: Vec<String>,
    /// Rounds that count; one more warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Files, or directories, in a round
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub files: usize,
    /// Names in the largest directory that is renamed
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub children: usize,
    /// The most threads that list
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub threads: usize,
    /// Seconds that `evolve` spends on each file system in a round
    #[arg(long, value_name = "SECONDS", default_value_t = 12)]
    pub seconds: u32,
    /// A directory whose tree `source-tree` and `git` copy, with names and sizes [default: a random
    /// tree with `--files` files]
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// Directory for the pools
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
}

const ABOUT: About = About {
    title: "Vellum: names and directories",
    introduction: "The figures of ADAM, measured on this machine. Every namespace and every peer \
                   does the same work in the same round; in brackets the ratio of the namespace \
                   tree to a value.",
    baseline: "the namespace tree",
};

/// The most names of a directory, as many as the digits in file names allow.
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
/// An option makes no sense, there is not enough space, or a signal came.
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
