//! Workloads of whole programs: what they do is text that users edit, or drawn numbers, or a recorded
//! trace; where they run is a pool of any kind, or a directory of the kernel's file systems.
//!
//! * [`file`]: workload files, with those that are shipped (after Filebench's personalities).
//! * [`personality`]: the driver of workload files.
//! * [`place`]: the same calls on the library and on the kernel.
//! * [`sides`]: the pools and directories of a run, which take turns; the time that mappings take.
//! * [`ycsb`]: YCSB over a key-value store, with [`kv`] between the store and the place.
//! * [`traces`]: requests of block traces, drawn or read by [`msr`].
//! * [`rows`]: what came of it.

mod draw;
mod file;
pub(crate) mod filebench;
mod kv;
mod msr;
mod personality;
mod place;
mod rows;
mod sides;
pub(crate) mod traces;
pub(crate) mod ycsb;
mod zipf;

use std::path::Path;

pub use rows::WorkloadRow;
pub(crate) use rows::figure_of;
pub(crate) use sides::{RunOptions, Subject};
pub use traces::TraceOptions;
pub use ycsb::{Distribution, YcsbOptions};

use crate::Result;
use crate::error::Error;

/// Which workloads to run, as options of a command.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadOptions {
    /// Workloads of `filebench`: fileserver, webproxy, webserver, varmail, or a file; all four if none is
    /// named
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
            ("Workloads of filebench", workloads),
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

    /// Names and files, as they were given.
    pub(crate) fn filebench<'a>(
        &self,
        rounds: usize,
        pool_dir: &'a Path,
    ) -> Result<filebench::Plan<'a>> {
        let run = self.run(rounds, pool_dir);
        filebench::Plan::of(run, &self.workload, self.loops, self.files)
    }
}
