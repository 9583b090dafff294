//! Workloads of whole programs. They are text that users edit, random requests, or a recorded
//! trace. They run on a pool of any kind, or in a directory of the kernel's file systems.
//!
//! * [`file`]: workload files and the built-in ones (after Filebench's personalities).
//! * `personality`: the driver of workload files.
//! * `file_tree`: the same calls on the library and on the kernel.
//! * `sides`: the pools and directories of a run, which take turns; the time that mappings take.
//! * `ycsb`: mixes of operations, YCSB's A to F or a user's, over a key-value store;
//!   `kv` connects the store with the file system.
//! * `traces`: requests of block traces, random or parsed by `msr`.
//! * `rows`: the results.

mod draw;
mod file;
mod file_tree;
pub(crate) mod filebench;
mod kv;
mod mix;
mod msr;
mod personality;
mod rows;
mod sides;
pub(crate) mod traces;
pub(crate) mod ycsb;
mod zipf;

use std::path::Path;

pub(crate) use file_tree::{FileTree, KernelDir, Opened, Purpose};
pub use mix::Distribution;
pub use rows::WorkloadRow;
pub(crate) use rows::figure_of;
pub(crate) use sides::{RunOptions, Subject};
pub use traces::TraceOptions;
pub use ycsb::YcsbOptions;

use crate::Result;
use crate::error::Error;

/// The workloads to run, as options of a command.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadOptions {
    /// Workloads: fileserver, webproxy, webserver and varmail of `filebench`, A to F of `ycsb`, or
    /// files [default: all of the figure]
    #[arg(long, value_name = "NAME|FILE", num_args = 1..)]
    pub workload: Vec<String>,
    /// Threads of `filebench` and `ycsb` [default: one a processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Times that each thread executes a workload's steps in a round
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub loops: u64,
    /// Names in a workload's set of files, instead of its own number
    #[arg(long, value_name = "N")]
    pub files: Option<u32>,
}

impl WorkloadOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |text: &str| Err(Error::Option(text.into()));
        if self.loops == 0 {
            return refuse("--loops must be at least 1");
        }
        if !(1..=64).contains(&self.threads()) {
            return refuse("--threads must be from 1 to 64");
        }
        if self
            .files
            .is_some_and(|files| (files as usize) < 10 * self.threads())
        {
            return refuse("--files must be at least 10 for each thread");
        }
        Ok(())
    }

    /// The number of threads.
    pub(crate) fn threads(&self) -> usize {
        let cores = || {
            std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(64)
        };
        self.threads.unwrap_or_else(cores)
    }

    /// The options and their values, for reports.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let files = match self.files {
            Some(files) => files.to_string(),
            None => "as the workload says".into(),
        };
        let workloads = match self.workload.as_slice() {
            [] => "all that are shipped".into(),
            named => named.join(", "),
        };
        vec![
            ("Workloads", workloads),
            ("Files of filebench", files),
            ("Loops of each thread in a round", self.loops.to_string()),
            ("Threads of workloads", self.threads().to_string()),
        ]
    }

    /// The common options of all runs of workloads.
    pub(crate) fn run<'a>(&self, rounds: usize, pool_dir: &'a Path) -> RunOptions<'a> {
        RunOptions {
            rounds,
            threads: self.threads(),
            pool_dir,
        }
    }

    /// Personalities: those that were named, or all built-in ones.
    ///
    /// # Errors
    /// A file cannot be read, or has a field or value that no workload has.
    pub(crate) fn filebench<'a>(
        &self,
        rounds: usize,
        pool_dir: &'a Path,
    ) -> Result<filebench::Plan<'a>> {
        let run = self.run(rounds, pool_dir);
        let named = self.named(Kind::Files)?;
        filebench::Plan::of(run, &named, self.loops, self.files)
    }

    /// Mixes: those that were named, or all built-in ones.
    ///
    /// # Errors
    /// As [`Self::filebench`].
    pub(crate) fn ycsb<'a>(
        &self,
        options: &'a YcsbOptions,
        rounds: usize,
        pool_dir: &'a Path,
    ) -> Result<ycsb::Plan<'a>> {
        let run = self.run(rounds, pool_dir);
        ycsb::Plan::of(run, options, &self.named(Kind::Records)?)
    }

    /// The named workloads of a kind.
    fn named(&self, kind: Kind) -> Result<Vec<&str>> {
        let mut named = Vec::new();
        for name in &self.workload {
            if Kind::of(name)? == kind {
                named.push(name.as_str());
            }
        }
        Ok(named)
    }

    /// Fails if a named workload belongs to none of the figures.
    pub(crate) fn check_named(&self, files: bool, records: bool) -> Result<()> {
        for name in &self.workload {
            let runs = match Kind::of(name)? {
                Kind::Files => files,
                Kind::Records => records,
            };
            if !runs {
                let text = format!("--workload {name} is not of a figure that is measured");
                return Err(Error::Option(text));
            }
        }
        Ok(())
    }
}

/// The objects of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A set of files: a personality.
    Files,
    /// A key-value store's records: a mix.
    Records,
}

impl Kind {
    /// The kind of a built-in workload, or of a file by its content: mixes have `operations`.
    fn of(name: &str) -> Result<Self> {
        if file::Workload::is_shipped(name) {
            return Ok(Self::Files);
        }
        if mix::Mix::is_shipped(name) {
            return Ok(Self::Records);
        }
        let text = file::read_named(name, &[])?;
        // A file that cannot be parsed is refused as either kind.
        let table: toml::Table = toml::from_str(&text).unwrap_or_default();
        Ok(match table.contains_key("operations") {
            true => Self::Records,
            false => Self::Files,
        })
    }
}
