//! Workloads of whole programs: what they do is text that users edit, or drawn numbers, or a
//! recorded trace; where they run is a pool of any kind, or a directory of the kernel's file
//! systems.
//!
//! * [`file`]: workload files, with those that are shipped (after Filebench's personalities).
//! * [`personality`]: the driver of workload files.
//! * [`place`]: the same calls on the library and on the kernel.
//! * [`sides`]: the pools and directories of a run, which take turns; the time that mappings take.
//! * [`ycsb`]: [mixes](mix) of operations, YCSB's A to F or a user's, over a key-value store, with
//!   [`kv`] between the store and the place.
//! * [`traces`]: requests of block traces, drawn or read by [`msr`].
//! * [`rows`]: what came of it.

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

/// Which workloads to run, as options of a command.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadOptions {
    /// Workloads: fileserver, webproxy, webserver and varmail of `filebench`, A to F of `ycsb`, or
    /// files; of a figure of which none is named, all of these
    #[arg(long, value_name = "NAME|FILE", num_args = 1..)]
    pub workload: Vec<String>,
    /// Threads of `filebench` and `ycsb`; as many as there are processors if not said
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Times that each thread does a workload's steps in a round
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub loops: u64,
    /// Names in a workload's set of files, instead of what the workload says
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

    /// Threads to run.
    pub(crate) fn threads(&self) -> usize {
        let cores = || {
            std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(64)
        };
        self.threads.unwrap_or_else(cores)
    }

    /// How workloads run, for reports.
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

    /// What all runs of workloads go by.
    pub(crate) fn run<'a>(&self, rounds: usize, pool_dir: &'a Path) -> RunOptions<'a> {
        RunOptions {
            rounds,
            threads: self.threads(),
            pool_dir,
        }
    }

    /// Personalities, those that were named or all that are shipped.
    ///
    /// # Errors
    /// A file cannot be read or says something that a workload does not have.
    pub(crate) fn filebench<'a>(
        &self,
        rounds: usize,
        pool_dir: &'a Path,
    ) -> Result<filebench::Plan<'a>> {
        let run = self.run(rounds, pool_dir);
        let named = self.named(Kind::Files)?;
        filebench::Plan::of(run, &named, self.loops, self.files)
    }

    /// Mixes, those that were named or all that are shipped.
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

    /// Which of the named ones are of a kind.
    fn named(&self, kind: Kind) -> Result<Vec<&str>> {
        let mut named = Vec::new();
        for name in &self.workload {
            if Kind::of(name)? == kind {
                named.push(name.as_str());
            }
        }
        Ok(named)
    }

    /// Fails if a workload is named that none of the figures runs.
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

/// What a workload works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A set of files: a personality.
    Files,
    /// A key-value store's records: a mix.
    Records,
}

impl Kind {
    /// The kind of a shipped workload, or of a file by what it speaks of: mixes have `operations`.
    fn of(name: &str) -> Result<Self> {
        if file::Workload::is_shipped(name) {
            return Ok(Self::Files);
        }
        if mix::Mix::is_shipped(name) {
            return Ok(Self::Records);
        }
        let text = file::read_named(name, &[])?;
        // What cannot be read at all is refused by the one as by the other.
        let table: toml::Table = toml::from_str(&text).unwrap_or_default();
        Ok(match table.contains_key("operations") {
            true => Self::Records,
            false => Self::Files,
        })
    }
}
