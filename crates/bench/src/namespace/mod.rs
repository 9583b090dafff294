//! Names and directories: the figures of ADAM, for every namespace there is, beside file systems of the kernel.
//!
//! What is timed is what programs do through the library, and through system calls where a peer is of the kernel.
//! Each round lets every side do the same, one after the other; the first round is not counted. Ratios are of
//! values taken in one round, to the namespace *tree*, the baseline as NOVA has it.

mod changes;
mod depth;
mod listing;
mod rename;
mod report;
mod subjects;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

pub use report::Report;

use crate::Result;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::machine::{Machine, load};
use crate::mapping::Outcome;
use crate::report::{Page, Parts};
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
    /// Looking up whole paths of one component to 64
    Depth,
}

impl Figure {
    fn measure(self, setting: &Setting<'_>) -> Result<Outcome> {
        match self {
            Self::Ops => changes::measure(setting),
            Self::Listdirs => listing::measure(setting),
            Self::Rename => rename::measure(setting),
            Self::Depth => depth::measure(setting),
        }
    }
}

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct NamespaceOptions {
    /// The figures; all of them if none is named
    #[arg(long, value_name = "FIGURE", num_args = 1.., value_delimiter = ',', value_enum)]
    pub figure: Vec<Figure>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write a page with plots, beside what the paper says
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write plots (SVG) and tables (Markdown), a file each, and what was to be reached
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
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
    /// Directory for the pools
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
}

/// Most names of a directory, which file names have digits for.
const NAMES_MAX: usize = 1_000_000;

impl NamespaceOptions {
    fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::Option(text));
        if self.rounds == 0 || self.threads == 0 {
            return refuse("--rounds and --threads must be at least 1".into());
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
    let report = measure(options)?;
    if options.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&report).unwrap_or_default()
        );
    } else {
        print!("{report}");
    }
    if let Some(path) = &options.report {
        page(&report, path)?;
    }
    let parts = Parts {
        machine: &report.machine,
        figures: &report.figures,
        targets: &report.targets,
    };
    (options.plots.iter()).try_for_each(|dir| parts.write(dir))
}

fn page(report: &Report, path: &Path) -> Result<()> {
    let settings = report.settings.iter();
    let page = Page {
        title: "Vellum: names and directories",
        introduction: "The figures of ADAM, measured on this machine. Every namespace, and every peer, does the \
                       same in the same round; in brackets what the namespace tree takes over a value.",
        machine: &report.machine,
        settings: settings
            .map(|(name, value)| (*name, value.clone()))
            .collect(),
        figures: &report.figures,
    };
    page.write(path)
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
    let mut report = Report {
        machine,
        settings: vec![
            ("Files of a round", options.files.to_string()),
            (
                "Names in the largest directory",
                options.children.to_string(),
            ),
            ("Threads, at most", options.threads.to_string()),
            ("Peers", options.peer.join(", ")),
        ],
        figures: Vec::new(),
        targets: Vec::new(),
    };
    for figure in wanted {
        let outcome = figure.measure(&setting)?;
        report.figures.extend(outcome.figures);
        report.targets.extend(outcome.targets);
    }
    report.machine.load_after = load();
    Ok(report)
}
