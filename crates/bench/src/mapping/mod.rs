//! File mapping by itself: the figures of the study, each by one command, for every mapping there
//! is.
//!
//! What is timed is what operations on files ask of the mapping ([`MappingProbe`]), without
//! entering and leaving operations and without the bytes. Each round lets every mapping do the
//! same, one after the other; the first round is not counted. Ratios are of values taken in one
//! round.
//!
//! *Cold* means that the structure's lines were flushed out of the processor's caches before every
//! single operation, and that cursors, translations and page caches were emptied; *hot* that
//! operations follow each other.
//!
//! [`MappingProbe`]: vellum::experiments::MappingProbe

mod case;
mod concurrency;
mod file_size;
mod fragmentation;
mod grid;
mod io_size;
mod locality;
mod page_cache;
mod sample;
mod setting;
mod utilisation;
mod vectors;
mod workloads;

use std::path::PathBuf;

use clap::ValueEnum;

pub(crate) use grid::Grid;
pub(crate) use sample::Sample;

use crate::Result;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
pub use crate::report::Report;
use crate::report::{About, Outcome, Output};
use crate::workloads::{WorkloadOptions, YcsbOptions};
use setting::Setting;

/// A figure of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Lookups and inserts, cold and hot, one after the other and at random (Fig 5)
    Locality,
    /// Lookups and appends against the layout score of files (Fig 6)
    Fragmentation,
    /// Lookups and appends against the size of files (Fig 7)
    FileSize,
    /// Lookups and appends of many blocks, and their share of reads (Fig 8)
    IoSize,
    /// Lookups, inserts and probes in full pools, and in those that were full often (Fig 9)
    Utilisation,
    /// Threads on one file and on files of their own (Fig 10)
    Concurrency,
    /// Whether a page cache of the structure pays (Fig 11), and hot sequential reads
    PageCache,
    /// Filebench's personalities on whole file systems (Fig 12)
    Filebench,
    /// YCSB A to F over a key-value store on whole file systems (Figs 13 and 14)
    Ycsb,
    /// The steps of a lookup by each instruction set
    Vectors,
}

impl Figure {
    fn measure(self, setting: &Setting<'_>) -> Result<Outcome> {
        match self {
            Self::Locality => locality::measure(setting),
            Self::Fragmentation => fragmentation::measure(setting),
            Self::FileSize => file_size::measure(setting),
            Self::IoSize => io_size::measure(setting),
            Self::Utilisation => utilisation::measure(setting),
            Self::Concurrency => concurrency::measure(setting),
            Self::PageCache => page_cache::measure(setting),
            Self::Filebench => workloads::filebench(setting),
            Self::Ycsb => workloads::ycsb(setting),
            Self::Vectors => vectors::measure(setting),
        }
    }
}

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct MappingOptions {
    /// The figures; all of them if none is named
    #[arg(long, value_name = "FIGURE", num_args = 1.., value_delimiter = ',', value_enum)]
    pub figure: Vec<Figure>,
    /// How the report is given
    #[command(flatten)]
    pub output: Output,
    /// Directories of file systems that `filebench` and `ycsb` compare with; `ext4-ram` makes an
    /// ext4 in memory for the run (superuser)
    #[arg(long, value_name = "DIR", num_args = 1.., default_value = "/dev/shm")]
    pub peer: Vec<String>,
    /// What `filebench` runs
    #[command(flatten)]
    pub workloads: WorkloadOptions,
    /// What `ycsb` runs
    #[command(flatten)]
    pub ycsb: YcsbOptions,
    /// Rounds that count, beside the one that warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Bytes of the file that is looked into
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub file_bytes: u64,
    /// Operations of a round, each of which finds cold caches
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub cold_ops: usize,
    /// Operations of a round that follow each other
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub hot_ops: usize,
    /// Part of a file's blocks that follow their predecessors, from 0 to 1
    #[arg(long, value_name = "SCORE", default_value_t = 0.85)]
    pub layout_score: f64,
    /// Directory for pools whose bytes are read; the others are in memory of this process, and only
    /// their metadata takes any
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
}

const ABOUT: About = About {
    title: "Vellum: file mapping",
    introduction: "The figures of the file-mapping study (HashFS), measured on this machine. Every \
                   mapping does the same in the same round; in brackets what the extent tree takes \
                   over a value.",
    baseline: "the extent tree",
};

/// Smallest file that figures are about.
const FILE_MIN_BYTES: u64 = 1 << 20;

impl MappingOptions {
    fn wants(&self, figure: Figure) -> bool {
        self.figure.is_empty() || self.figure.contains(&figure)
    }

    fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::Option(text));
        if self.rounds == 0 || self.cold_ops == 0 || self.hot_ops == 0 {
            return refuse("--rounds, --cold-ops and --hot-ops must be at least 1".into());
        }
        if self.file_bytes < FILE_MIN_BYTES {
            return refuse(format!("--file-bytes must be at least {FILE_MIN_BYTES}"));
        }
        if !(0.0..=1.0).contains(&self.layout_score) {
            return refuse("--layout-score must be from 0 to 1".into());
        }
        self.workloads.check()?;
        self.workloads
            .check_named(self.wants(Figure::Filebench), self.wants(Figure::Ycsb))?;
        self.ycsb.check()
    }
}

/// Measures, and prints the report.
///
/// # Errors
/// Options that make no sense, no room, a signal.
pub fn main_mapping(options: &MappingOptions) -> Result<()> {
    measure(options)?.publish(&options.output)
}

/// Measures.
///
/// # Errors
/// As [`main_mapping`].
pub fn measure(options: &MappingOptions) -> Result<Report> {
    options.check()?;
    let interrupt = Interrupt::watch();
    let mut machine = Machine::look();
    machine.pool = options.pool_dir.display().to_string();
    machine.instructions = format!("{:?}", vellum::media::Isa::chosen());
    machine.rounds = options.rounds;
    let setting = Setting::new(options, &interrupt);
    let wanted = match options.figure.as_slice() {
        [] => Figure::value_variants(),
        named => named,
    };
    let report = Report::new(ABOUT, machine, settings(options));
    report.measure(wanted.iter().map(|figure| figure.measure(&setting)))
}

fn settings(options: &MappingOptions) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("File bytes", options.file_bytes.to_string()),
        ("Cold operations of a round", options.cold_ops.to_string()),
        ("Hot operations of a round", options.hot_ops.to_string()),
        ("Layout score", options.layout_score.to_string()),
        ("Peers", options.peer.join(", ")),
    ];
    settings.extend(options.workloads.settings());
    settings.extend(options.ycsb.settings());
    settings
}
