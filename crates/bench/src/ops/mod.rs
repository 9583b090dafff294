//! Single operations: counts and times beside their budgets and beside peers.
//!
//! One thread (rows with `threads: 2` aside), directories of 10 000 files, a pool whose pages are all
//! present. Each round lets every side do the same, one after the other; the first round is not
//! counted. Counts run from before an operation's loop until no background work is left over from
//! it, so that refills, frees and recycling are part of them; times are those of the loop, without the time in which other programs
//! had the processor.

mod budget;
mod cache;
mod collect;
mod names;
mod reading;
mod report;
mod threads;
mod workload;
mod writing;

use std::io::Write as _;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};

pub use report::{CacheReport, Report, Row};

use crate::Result;
use crate::error::{Error, doing};
use crate::interrupt::Interrupt;
use crate::library::Library;
use crate::machine::{Machine, load};
use crate::order::SEED;
use crate::peer::{EXT4_RAM, Peer};
use crate::side::BLOCK;
use collect::Collected;
use workload::{AnyWorkload, Laps};

/// Times that the pool is reopened for the figures of first accesses.
const COLD_ROUNDS: usize = 3;
/// Bytes of an ext4 in memory beside the large file.
const IMAGE_SPARE_BYTES: u64 = 1 << 30;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct OpsOptions {
    /// Directories of file systems to compare with; `ext4-ram` makes an ext4 in memory for the run
    /// (superuser)
    #[arg(long, value_name = "DIR", num_args = 1.., required = true)]
    pub peer: Vec<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Measure these operations only
    #[arg(long, value_name = "OP", num_args = 1.., value_delimiter = ',')]
    pub only: Vec<String>,
    /// Rounds that count, beside the one that warms up
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub rounds: usize,
    /// Files in a directory
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub files: usize,
    /// Bytes of the file that is read at random
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub large_file_bytes: u64,
    /// Directory for the pool
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
}

impl OpsOptions {
    fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::Option(text));
        if self.rounds == 0 {
            return refuse("--rounds must be at least 1".into());
        }
        if !(2..=99_999).contains(&self.files) {
            return refuse("--files must be from 2 to 99999".into());
        }
        if self.large_file_bytes < BLOCK as u64 {
            return refuse(format!("--large-file-bytes must be at least {BLOCK}"));
        }
        let known: Vec<&str> = budget::BUDGETS.iter().map(|budget| budget.op).collect();
        match self.only.iter().find(|op| !known.contains(&op.as_str())) {
            Some(op) => refuse(format!("--only {op}: it is one of {}", known.join(", "))),
            None => Ok(()),
        }
    }

    fn wants(&self, op: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == op)
    }

    /// Room for the large file, and a hundredfold for blocks and metadata of everything else.
    fn pool_bytes(&self) -> u64 {
        let small = self.files as u64 * 64 * 1024;
        (2 * (self.large_file_bytes + small)).next_multiple_of(64 << 20)
    }
}

/// Measures, and prints the report.
///
/// # Errors
/// As for [`run`]; writing to the standard output.
pub fn main_ops(options: OpsOptions) -> Result<()> {
    let report = run(&options)?;
    let mut out = std::io::stdout().lock();
    let written = if options.json {
        serde_json::to_writer_pretty(&mut out, &report)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        write!(out, "{}", report.table())
    };
    written.map_err(doing("write the report"))
}

/// Measures. Everything that is made for it is gone afterwards: also on errors, and on SIGINT,
/// SIGTERM and SIGHUP.
///
/// # Errors
/// A peer cannot be set up, an operation failed or had another effect than it should, a signal came.
pub fn run(options: &OpsOptions) -> Result<Report> {
    options.check()?;
    let interrupt = Interrupt::watch();
    let mut machine = Machine::look();
    let pool = tempfile::Builder::new()
        .prefix("vellum-bench-")
        .tempdir_in(&options.pool_dir)
        .map_err(doing(format!(
            "make a directory in {}",
            options.pool_dir.display()
        )))?;
    let workloads: Vec<Box<dyn AnyWorkload>> = all(options)
        .into_iter()
        .filter(|workload| workload.parts().iter().any(|part| options.wants(part.op)))
        .collect();

    let image_bytes = options.pool_bytes() + IMAGE_SPARE_BYTES;
    let peers: Vec<Peer> = options
        .peer
        .iter()
        .map(|name| Peer::new(name, image_bytes))
        .collect::<Result<_>>()?;
    let mut library = Library::create(pool.path().join("pool"), options.pool_bytes(), true)?;
    machine.pool = options.pool_dir.display().to_string();
    machine.pool_bytes = library.size_bytes()?;
    machine.media = format!("{:?}", library.fs().media_kind());
    machine.instructions = format!("{:?}", library.fs().pool().isa());
    machine.files = options.files;
    machine.rounds = options.rounds;
    machine.order = format!("shuffled: Fisher-Yates, SplitMix64, seed {SEED:#x}");

    let progress = progress(workloads.len(), options.rounds);
    let mut bench = Bench {
        library: &mut library,
        peers: &peers,
        interrupt: &interrupt,
        progress: &progress,
    };
    let mut collected: Vec<Collected> = Vec::new();
    for workload in &workloads {
        progress.set_message(format!("preparing {}", workload.parts()[0].op));
        bench.fill(&**workload)?;
        collected.push(Collected::new(workload.parts(), peers.len()));
    }
    bench.first_accesses(&workloads, &mut collected)?;
    for (workload, collected) in workloads.iter().zip(&mut collected) {
        progress.set_message(workload.parts()[0].op);
        bench.rounds(&**workload, options.rounds, collected)?;
    }
    drop(library);

    progress.set_message("memory of caches");
    let cache = options
        .only
        .is_empty()
        .then(|| cache::measure(pool.path(), options.files))
        .transpose()?;
    progress.finish_and_clear();
    interrupt.check()?;
    machine.load_after = load();
    let mut report = Report {
        machine,
        rows: collect::rows(&collected, &peers),
        cache,
    };
    report.rows.retain(|row| options.wants(&row.op));
    Ok(report)
}

/// Every workload, in the order of the report.
fn all(options: &OpsOptions) -> Vec<Box<dyn AnyWorkload>> {
    let files = options.files;
    vec![
        Box::new(reading::Stat::shallow(files)),
        Box::new(reading::Stat::deep(files)),
        Box::new(reading::OpenClose::new(files)),
        Box::new(names::Files::new(files)),
        Box::new(names::Directories::new(files)),
        Box::new(names::Rename::same(files)),
        Box::new(names::Rename::across(files)),
        Box::new(reading::List::new(files)),
        Box::new(reading::ReadRandom::new(files, options.large_file_bytes)),
        Box::new(writing::Append::new(files)),
        Box::new(writing::CreateWriteSync::new(files)),
        Box::new(threads::TwoThreads::new(files)),
    ]
}

fn progress(workloads: usize, rounds: usize) -> ProgressBar {
    let bar = ProgressBar::new((workloads * (rounds + 1)) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// A run under way.
struct Bench<'a> {
    library: &'a mut Library,
    peers: &'a [Peer],
    interrupt: &'a Interrupt,
    progress: &'a ProgressBar,
}

impl Bench<'_> {
    fn fill(&mut self, workload: &dyn AnyWorkload) -> Result<()> {
        workload.fill_library(self.library)?;
        for peer in self.peers {
            self.interrupt.check()?;
            workload.fill_kernel(&peer.kernel)?;
        }
        self.interrupt.check()
    }

    /// Reopens the pool and visits everything once, several times.
    fn first_accesses(
        &mut self,
        workloads: &[Box<dyn AnyWorkload>],
        collected: &mut [Collected],
    ) -> Result<()> {
        self.progress.set_message("first accesses after reopening");
        for _ in 0..COLD_ROUNDS {
            self.library.reopen()?;
            for (workload, collected) in workloads.iter().zip(&mut *collected) {
                if workload.has_first_access() {
                    self.interrupt.check()?;
                    let mut laps = Laps::first_access(workload.parts().len());
                    workload.round_library(self.library, &mut laps)?;
                    collected.add_cold(&laps);
                }
            }
        }
        Ok(())
    }

    fn rounds(
        &mut self,
        workload: &dyn AnyWorkload,
        rounds: usize,
        collected: &mut Collected,
    ) -> Result<()> {
        for round in 0..=rounds {
            let counts = round > 0;
            let mut laps = Laps::warm(workload.parts().len());
            workload.round_library(self.library, &mut laps)?;
            if counts {
                collected.add_library(&laps);
            }
            for (number, peer) in self.peers.iter().enumerate() {
                self.interrupt.check()?;
                let mut laps = Laps::warm(workload.parts().len());
                workload.round_kernel(&peer.kernel, &mut laps)?;
                if counts {
                    collected.add_peer(number, &laps);
                }
            }
            self.progress.inc(1);
            self.interrupt.check()?;
        }
        Ok(())
    }
}

/// Whether a peer is made for the run.
impl OpsOptions {
    /// Whether the run needs the superuser: it makes a loop device and mounts it.
    pub fn needs_superuser(&self) -> bool {
        self.peer.iter().any(|peer| peer == EXT4_RAM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_has_every_row_in_the_shape_of_the_format() {
        let options = OpsOptions {
            peer: vec![
                "/dev/shm".into(),
                std::env::temp_dir().display().to_string(),
            ],
            json: true,
            only: Vec::new(),
            rounds: 1,
            files: 100,
            large_file_bytes: 1 << 20,
            pool_dir: "/dev/shm".into(),
        };
        let report = run(&options).expect("run");
        let json = serde_json::to_value(&report).expect("JSON");
        assert!(json["machine"]["cpu"].is_string());
        let rows = json["rows"].as_array().expect("rows");
        for peer in &options.peer {
            for budget in budget::BUDGETS {
                let found = rows.iter().filter(|row| {
                    row["op"] == budget.op && row["threads"] == 1 && row["peer"] == **peer
                });
                assert_eq!(found.count(), 1, "{} beside {peer}", budget.op);
            }
            for op in ["create", "unlink", "stat"] {
                for directories in ["shared", "private"] {
                    let found = rows.iter().filter(|row| {
                        row["op"] == op
                            && row["threads"] == 2
                            && row["directories"] == directories
                            && row["peer"] == **peer
                    });
                    assert_eq!(found.count(), 1, "{op} in {directories} beside {peer}");
                }
            }
        }
        for row in rows {
            assert!(row["path"] == "library", "{row}");
            for number in [
                "vellum_ns",
                "peer_ns",
                "ratio",
                "lines_flushed",
                "fences",
                "pool_bytes_written",
                "probes",
                "spread",
            ] {
                assert!(row[number].is_number(), "{number} of {row}");
            }
        }
        let table = report.table();
        assert!(table.contains("create_write4k_fsync") && table.contains("shuffled"));
        assert!(report.cache.expect("cache").files > 0);
    }

    #[test]
    fn only_what_was_asked_for() {
        let mut options = OpsOptions {
            peer: vec!["/dev/shm".into()],
            json: false,
            only: vec!["unlink".into()],
            rounds: 1,
            files: 10,
            large_file_bytes: 1 << 20,
            pool_dir: "/dev/shm".into(),
        };
        let report = run(&options).expect("run");
        assert!(!report.rows.is_empty());
        assert!(report.rows.iter().all(|row| row.op == "unlink"));
        options.only = vec!["fly".into()];
        assert!(matches!(run(&options), Err(Error::Option(_))));
    }
}
