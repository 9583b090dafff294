//! Metadata in memory, data on a disk: the figures of FSMAC. They compare pools with a log, and
//! pools with metadata in persistent memory, with ext4 on the same disk.
//!
//! A pool is a file on that disk; ext4 lies on a loop device over another file. In each round every
//! side does the same, one after the other; the first round does not count. Ratios compare values
//! of the same round. In addition to times, the requests to the disk are counted until all changes
//! were durable.

mod disk;
mod ffsb;
mod files;
mod fs_mark;
mod interval;
mod meter;
mod modes;
mod opening;
mod operations;
mod overhead;
mod personalities;
mod postmark;
mod streaming;
mod subjects;

use std::path::PathBuf;

use clap::ValueEnum;

use crate::Result;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
pub use crate::report::Report;
use crate::report::{About, Outcome, Output};
use crate::workloads::WorkloadOptions;
use subjects::Setting;

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Creating, renaming and removing files and directories, without `fsync`
    Operations,
    /// Filebench's personalities (Fig 6)
    Personalities,
    /// Small files created, then read, appended to, created and removed at random (Fig 8)
    Postmark,
    /// Ten kinds of operations on files of many sizes (Fig 9)
    Ffsb,
    /// Files created, written and synced by one thread and by several (Fig 10)
    FsMark,
    /// Names with mount's options `async`, `dirsync` and `sync` (Fig 11)
    MountModes,
    /// `fsync` after each of N appends (Fig 12)
    FsyncInterval,
    /// Pools with and without a log, and pools with and without an undo log (Fig 14)
    Overhead,
    /// A file larger than memory, written and read sequentially (superuser)
    Streaming,
    /// Opening a pool of many files after a clean close, a kill, and a power cut
    Opening,
}

impl Figure {
    fn measure(self, setting: &Setting<'_>) -> Result<Outcome> {
        match self {
            Self::Operations => operations::measure(setting),
            Self::Personalities => personalities::measure(setting),
            Self::Postmark => postmark::measure(setting),
            Self::Ffsb => ffsb::measure(setting),
            Self::FsMark => fs_mark::measure(setting),
            Self::MountModes => modes::measure(setting),
            Self::FsyncInterval => interval::measure(setting),
            Self::Overhead => overhead::measure(setting),
            Self::Streaming => streaming::measure(setting),
            Self::Opening => opening::measure(setting),
        }
    }
}

/// The options.
#[derive(Clone, Debug, clap::Args)]
pub struct FsmacOptions {
    /// Figures to measure [default: all]
    #[arg(long, value_name = "FIGURE", num_args = 1.., value_delimiter = ',', value_enum)]
    pub figure: Vec<Figure>,
    /// Directory on the disk to measure, for the pools and for the image of ext4
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub disk: PathBuf,
    /// Directory in memory, or on persistent memory, for the metadata of pools that have only their
    /// data on the disk
    #[arg(long, value_name = "DIR", default_value = crate::peer::MEMORY_DIR)]
    pub metadata: PathBuf,
    /// Directory of a file system to compare with, or `ext4-ram` [default: an ext4 on a loop device
    /// over a file on the disk (superuser)]
    #[arg(long, value_name = "DIR")]
    pub peer: Option<String>,
    /// The form of the report
    #[command(flatten)]
    pub output: Output,
    /// Rounds that count; one more warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Files created without `fsync` in a round; a tenth as many are synced
    #[arg(long, value_name = "N", default_value_t = 5000)]
    pub files: usize,
    /// Files of the pool whose opening is measured
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub tree_files: usize,
    /// Open this pool with such files, and end as if killed
    #[arg(long, hide = true)]
    pub leave: Option<PathBuf>,
    /// With its log full of synced records
    #[arg(long, hide = true, requires = "leave")]
    pub synced: bool,
    /// Size of a pool, and of the image of ext4, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub pool_bytes: u64,
    /// Personalities, the number of threads, and the number of loops; their sets of files are as
    /// large as `--names`
    #[command(flatten)]
    pub personalities: PersonalityOptions,
}

/// Options of personalities.
#[derive(Clone, Debug, clap::Args)]
pub struct PersonalityOptions {
    /// Personalities: fileserver, webproxy, webserver, varmail, or files [default: these four]
    #[arg(long, value_name = "NAME|FILE", num_args = 1..)]
    pub workload: Vec<String>,
    /// Threads of personalities [default: one a processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Times that each thread executes a personality's steps in a round
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub loops: u64,
    /// Names in a personality's set of files, instead of its own number
    #[arg(long, value_name = "N")]
    pub names: Option<u32>,
}

impl PersonalityOptions {
    fn workloads(&self) -> WorkloadOptions {
        WorkloadOptions {
            workload: self.workload.clone(),
            threads: self.threads,
            loops: self.loops,
            files: self.names,
        }
    }
}

const ABOUT: About = About {
    title: "Vellum: metadata in memory, data on a disk",
    introduction: "The figures of FSMAC, measured on this machine. A pool with a log and ext4 on \
                   a loop device lie on the same disk and do the same work in the same round; in \
                   brackets the ratio of ext4 to a value.",
    baseline: "the peer",
};

/// The most files of a round, which fit into the smallest pool.
const FILES_MAX: usize = 100_000;
/// The most files of the pool that is opened.
const TREE_FILES_MAX: usize = 10_000_000;
/// The size of the smallest pool.
const POOL_MIN_BYTES: u64 = 256 << 20;

impl FsmacOptions {
    fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::Option(text));
        if self.rounds == 0 {
            return refuse("--rounds must be at least 1".into());
        }
        if !(10..=FILES_MAX).contains(&self.files) {
            return refuse(format!("--files must be from 10 to {FILES_MAX}"));
        }
        if !(10..=TREE_FILES_MAX).contains(&self.tree_files) {
            return refuse(format!("--tree-files must be from 10 to {TREE_FILES_MAX}"));
        }
        if self.pool_bytes < POOL_MIN_BYTES {
            return refuse(format!("--pool-bytes must be at least {POOL_MIN_BYTES}"));
        }
        let workloads = self.personalities.workloads();
        workloads.check()?;
        workloads.check_named(true, false)
    }

    /// The number of files of a round that are synced one by one.
    fn synced(&self) -> usize {
        self.files / 10
    }
}

/// Measures, and prints the report.
///
/// # Errors
/// An option makes no sense, there is not enough space, the user is not the superuser, or a signal
/// came.
pub fn main_fsmac(options: &FsmacOptions) -> Result<()> {
    if let Some(pool) = &options.leave {
        return opening::leave(pool, options.tree_files, options.synced);
    }
    measure(options)?.publish(&options.output)
}

/// Measures.
///
/// # Errors
/// As [`main_fsmac`].
pub fn measure(options: &FsmacOptions) -> Result<Report> {
    options.check()?;
    let interrupt = Interrupt::watch();
    let setting = Setting::new(options, &interrupt)?;
    let mut machine = Machine::look();
    machine.pool = options.disk.display().to_string();
    machine.pool_bytes = options.pool_bytes;
    machine.media = "Logged".into();
    (machine.files, machine.rounds) = (options.files, options.rounds);
    let wanted = match options.figure.as_slice() {
        [] => Figure::value_variants(),
        named => named,
    };
    let mut settings = vec![
        ("Disk", setting.disk_name()),
        (
            "Metadata of split pools",
            options.metadata.display().to_string(),
        ),
        ("Peer", setting.peer_name()),
        ("Files of a round", options.files.to_string()),
        ("Synced files of a round", options.synced().to_string()),
    ];
    settings.extend(options.personalities.workloads().settings());
    let report = Report::new(ABOUT, machine, settings);
    report.measure(wanted.iter().map(|figure| figure.measure(&setting)))
}
