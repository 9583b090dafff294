//! File mapping by itself: the figures of the study, each by one command, for every mapping.
//!
//! What is timed is the part of file operations that the mapping executes ([`MappingProbe`]),
//! without entering and leaving operations and without the bytes. In each round every mapping does
//! the same, one after the other; the first round does not count. Ratios compare values of the same
//! round.
//!
//! *Cold* means that before every single operation the structure's lines were flushed out of the
//! processor's caches, and that cursors, translations and page caches were emptied. *Hot* means
//! that operations follow each other directly.
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
    /// Lookups and inserts, cold and hot, sequential and random (Fig 5)
    Locality,
    /// Lookups and appends against the layout score of files (Fig 6)
    Fragmentation,
    /// Lookups and appends against the size of files (Fig 7)
    FileSize,
    /// Lookups and appends of many blocks, and their share of reads (Fig 8)
    IoSize,
    /// Lookups, inserts and probes in full pools, and in pools that were full often (Fig 9)
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

/// The options.
#[derive(Clone, Debug, clap::Args)]
pub struct MappingOptions {
    /// Figures to measure [default: all]
    #[arg(long, value_name = "FIGURE", num_args = 1.., value_delimiter = ',', value_enum)]
    pub figure: Vec<Figure>,
    /// The form of the report
    #[command(flatten)]
    pub output: Output,
    /// Directories of file systems that `filebench` and `ycsb` compare with; `ext4-ram` creates an
    /// ext4 in memory for the run (superuser)
    #[arg(long, value_name = "DIR", num_args = 1.., default_value = "/dev/shm")]
    pub peer: Vec<String>,
    /// Options of `filebench`
    #[command(flatten)]
    pub workloads: WorkloadOptions,
    /// Options of `ycsb`
    #[command(flatten)]
    pub ycsb: YcsbOptions,
    /// Rounds that count; one more warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Size of the file whose blocks are looked up, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub file_bytes: u64,
    /// Operations of a round with cold caches
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub cold_ops: usize,
    /// Operations of a round that follow each other directly
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub hot_ops: usize,
    /// Share of a file's blocks that follow their predecessors, from 0 to 1
    #[arg(long, value_name = "SCORE", default_value_t = 0.85)]
    pub layout_score: f64,
    /// Directory for pools whose bytes are read; the others are in memory of this process, where
    /// only their metadata takes space
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
}

const ABOUT: About = About {
    title: "Vellum: file mapping",
    introduction: "The figures of the file-mapping study (HashFS), measured on this machine. \
                   Every mapping does the same work in the same round; in brackets the ratio of \
                   the extent tree to a value.",
    baseline: "the extent tree",
};

/// The smallest file that figures use.
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
/// An option makes no sense, there is not enough space, or a signal came.
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
