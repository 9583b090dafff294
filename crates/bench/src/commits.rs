//! Compares commits of logged pools with `fsync` of the underlying file system: several threads
//! create, write and sync files. Also measures operations while the log is checkpointed.

use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use vellum::media::MediaChoice;
use vellum::{CreateOptions, MappingKind, Pool, Volume};
use vellum_terminal::Printing;

use crate::Result;
use crate::error::{Error, doing};
use crate::figure::median;
use crate::interrupt::Interrupt;
use crate::machine::{Machine, load};
use crate::scratch::dir_in;
use crate::side::BLOCK;
use crate::workloads::FileTree;

/// The number of operations timed while nothing is checkpointed.
const QUIET_OPS: usize = 10_000;
/// The log is filled to this fraction before it is checkpointed: the pool starts to do so by itself
/// at that point.
const FILLED: u64 = 3;

/// The options.
#[derive(Clone, Debug, clap::Args)]
pub struct CommitsOptions {
    /// Directory on the disk to measure, for the pool and for the files of the comparison
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Threads that create files, write 4 KiB into each, and sync it
    #[arg(
        long,
        value_name = "N",
        num_args = 1..,
        value_delimiter = ',',
        default_values_t = [1, 2, 4, 8]
    )]
    pub threads: Vec<usize>,
    /// Files of each thread in a round
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub files: usize,
    /// Rounds that count; one more warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Size of the pool in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub pool_bytes: u64,
    /// JSON instead of a table
    #[command(flatten)]
    pub printing: Printing,
}

/// The results for one number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The number of threads.
    pub threads: usize,
    /// Files created, written and synced per second, on the pool.
    pub vellum_per_second: f64,
    /// The same on the underlying file system.
    pub peer_per_second: f64,
    /// Calls of `fsync` that a commit served.
    pub syncs_per_commit: f64,
    /// Bytes of the log per call.
    pub log_bytes_per_sync: f64,
}

/// Latencies of creating empty files, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// The number of creations.
    pub count: usize,
    /// The median.
    pub median_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The maximum.
    pub max_ns: u64,
}

/// The report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The results by number of threads.
    pub rows: Vec<Row>,
    /// Creations without checkpoints and commits.
    pub quiet: Latencies,
    /// Creations during consecutive checkpoints of parts of the log.
    pub beside_checkpoints: Latencies,
    /// Bytes of records that were checkpointed meanwhile.
    pub bytes_home: u64,
}

/// Measures, and prints the report.
///
/// # Errors
/// As [`run`], or writing to the standard output fails.
pub fn main_commits(options: &CommitsOptions) -> Result<()> {
    let report = run(options)?;
    crate::report::print(options.printing.json, &report, &report)
}

/// Measures, and removes everything that it created.
///
/// # Errors
/// An operation failed, or a signal came.
pub fn run(options: &CommitsOptions) -> Result<Report> {
    if options.rounds == 0 || options.files == 0 || options.threads.contains(&0) {
        return Err(Error::Option(
            "there must be threads, files and rounds".into(),
        ));
    }
    let interrupt = Interrupt::watch();
    let mut machine = Machine::look();
    let dir = dir_in(&options.dir)?;
    let create = CreateOptions::new(options.pool_bytes)
        .media(MediaChoice::Logged)
        .mapping(MappingKind::Extent);
    let pool = create.create(dir.path().join("pool"))?;
    machine.pool = options.dir.display().to_string();
    machine.pool_bytes = options.pool_bytes;
    machine.media = format!("{:?}", pool.fs().media_kind());
    (machine.files, machine.rounds) = (options.files, options.rounds);
    let mut rows = Vec::new();
    for &threads in &options.threads {
        rows.push(row(options, &pool, dir.path(), threads, &interrupt)?);
    }
    let (quiet, beside_checkpoints, bytes_home) = latencies(&pool)?;
    pool.close()?;
    machine.load_after = load();
    Ok(Report {
        machine,
        rows,
        quiet,
        beside_checkpoints,
        bytes_home,
    })
}

/// The sides take turns in each round; the first round does not count.
fn row(
    options: &CommitsOptions,
    pool: &Pool,
    dir: &Path,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<Row> {
    let (mut vellum, mut peer) = (Vec::new(), Vec::new());
    let (mut syncs, mut commits, mut bytes) = (0, 0, 0);
    let all = (threads * options.files) as f64;
    for round in 0..=options.rounds {
        interrupt.check()?;
        let before = pool.fs().log_counts().unwrap_or_default();
        let on_pool = on_pool(&pool.volume(), threads, options.files)?;
        let after = pool.fs().log_counts().unwrap_or_default();
        remove_from_pool(&pool.volume(), threads, options.files)?;
        let on_peer = on_peer(dir, threads, options.files)?;
        if round > 0 {
            vellum.push(all / on_pool);
            peer.push(all / on_peer);
            syncs += after.answered - before.answered;
            commits += after.commits - before.commits;
            bytes += after.bytes - before.bytes;
        }
    }
    Ok(Row {
        threads,
        vellum_per_second: median(&vellum),
        peer_per_second: median(&peer),
        syncs_per_commit: syncs as f64 / commits.max(1) as f64,
        log_bytes_per_sync: bytes as f64 / syncs.max(1) as f64,
    })
}

/// Runs `work`, with its number, in several threads; returns the seconds from when all were ready
/// to when all were done.
pub(crate) fn together(threads: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<f64> {
    let ready = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let (ready, work) = (&ready, &work);
        let run = |thread| {
            scope.spawn(move || {
                ready.wait();
                work(thread)
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        ready.wait();
        let begin = Instant::now();
        let panicked = || Error::Wrong("a thread panicked".into());
        running
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| panicked())?)?;
        Ok(begin.elapsed().as_secs_f64())
    })
}

fn name(thread: usize, file: usize) -> String {
    format!("/{thread}-{file}")
}

fn on_pool(volume: &Volume, threads: usize, files: usize) -> Result<f64> {
    let data = [0xC3; BLOCK];
    together(threads, |thread| {
        for file in 0..files {
            let mut file = volume.create(name(thread, file))?;
            file.write_all(&data).map_err(doing("write"))?;
            file.sync_all()?;
        }
        Ok(())
    })
}

fn remove_from_pool(volume: &Volume, threads: usize, files: usize) -> Result<()> {
    for thread in 0..threads {
        (0..files).try_for_each(|file| volume.remove_file(name(thread, file)))?;
    }
    Ok(volume.sync()?)
}

fn on_peer(dir: &Path, threads: usize, files: usize) -> Result<f64> {
    let data = [0xC3; BLOCK];
    let dir = dir.join("peer");
    fs::create_dir(&dir).map_err(doing("make a directory"))?;
    let path = |thread, file| dir.join(&name(thread, file)[1..]);
    let seconds = together(threads, |thread| {
        for file in 0..files {
            let mut file = fs::File::create_new(path(thread, file)).map_err(doing("create"))?;
            file.write_all(&data).map_err(doing("write"))?;
            file.sync_all().map_err(doing("fsync"))?;
        }
        Ok(())
    })?;
    fs::remove_dir_all(&dir).map_err(doing("remove what was made"))?;
    Ok(seconds)
}

/// Creations without and during checkpoints, and the bytes of records that these checkpointed.
fn latencies(pool: &Pool) -> Result<(Latencies, Latencies, u64)> {
    let (volume, fs) = (pool.volume(), pool.fs());
    volume.create_dir("/beside")?;
    let create = || {
        let begin = Instant::now();
        volume.create("/beside/file")?;
        let ns = begin.elapsed().as_nanos() as u64;
        volume.remove_file("/beside/file")?;
        Ok::<_, Error>(ns)
    };
    let quiet = (0..QUIET_OPS)
        .map(|_| create())
        .collect::<Result<Vec<_>>>()?;
    // Fills the log with small records. Otherwise it would become more than half full, and be
    // checkpointed before anything is measured.
    volume.settle()?;
    let counts = || fs.log_counts().unwrap_or_default();
    while counts().used_bytes < pool.superblock().log_bytes / FILLED {
        (0..100).try_for_each(|_| create().map(drop))?;
        volume.sync()?;
    }
    // The log may get further records meanwhile.
    let home = || {
        let counts = counts();
        counts.bytes.saturating_sub(counts.used_bytes)
    };
    let before = home();
    let beside = std::thread::scope(|scope| {
        let background = scope.spawn(|| -> Result<()> {
            while fs.checkpoint()? > 0 {}
            Ok(())
        });
        let mut beside = Vec::new();
        while !background.is_finished() {
            beside.push(create()?);
        }
        let ended = background.join();
        ended.map_err(|_| Error::Wrong("a thread panicked".into()))??;
        Ok::<_, Error>(beside)
    })?;
    Ok((of(quiet), of(beside), home().saturating_sub(before)))
}

fn of(mut times: Vec<u64>) -> Latencies {
    times.sort_unstable();
    let at = |per_mille: usize| {
        let last = times.len().saturating_sub(1);
        times.get(last * per_mille / 1000).copied().unwrap_or(0)
    };
    Latencies {
        count: times.len(),
        median_ns: at(500),
        p99_ns: at(990),
        p999_ns: at(999),
        max_ns: at(1000),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(
            f,
            "{machine}; load {} to {}",
            machine.load_before, machine.load_after
        )?;
        writeln!(
            f,
            "files created, written (4 KiB) and synced, in {}\n",
            machine.pool
        )?;
        writeln!(
            f,
            "{:>7} {:>12} {:>12} {:>6} {:>16} {:>12}",
            "threads", "vellum /s", "beside it /s", "ratio", "syncs per commit", "log, bytes"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:>7} {:>12.0} {:>12.0} {:>6.2} {:>16.2} {:>12.0}",
                row.threads,
                row.vellum_per_second,
                row.peer_per_second,
                row.vellum_per_second / row.peer_per_second,
                row.syncs_per_commit,
                row.log_bytes_per_sync
            )?;
        }
        writeln!(
            f,
            "\n{:<34} {:>8} {:>8} {:>8} {:>9} {:>10}",
            "creations, ns", "count", "median", "99 %", "99.9 %", "longest"
        )?;
        let home = format!("beside checkpoints of {} KiB", self.bytes_home >> 10);
        for (what, times) in [("alone", &self.quiet), (&home, &self.beside_checkpoints)] {
            writeln!(
                f,
                "{what:<34} {:>8} {:>8} {:>8} {:>9} {:>10}",
                times.count, times.median_ns, times.p99_ns, times.p999_ns, times.max_ns
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_counts_what_it_does() {
        let options = CommitsOptions {
            dir: std::env::temp_dir(),
            threads: vec![1, 3],
            files: 5,
            rounds: 1,
            pool_bytes: 64 << 20,
            printing: Printing::default(),
        };
        let report = run(&options).expect("run");
        let threads: Vec<_> = report.rows.iter().map(|row| row.threads).collect();
        assert_eq!(threads, [1, 3]);
        for row in &report.rows {
            assert!(
                row.vellum_per_second > 0.0 && row.peer_per_second > 0.0,
                "{row:?}"
            );
            assert!(
                row.syncs_per_commit >= 1.0 && row.log_bytes_per_sync > 0.0,
                "{row:?}"
            );
        }
        assert!(report.bytes_home > 0);
        assert_eq!(report.quiet.count, QUIET_OPS);
        assert!(report.to_string().contains("syncs per commit"));
        let none = CommitsOptions {
            rounds: 0,
            ..options
        };
        assert!(matches!(run(&none), Err(Error::Option(_))));
    }

    #[test]
    fn latencies_are_ranks() {
        let times = of((1..=1001).rev().collect());
        let Latencies {
            count,
            median_ns,
            p99_ns,
            p999_ns,
            max_ns,
        } = times;
        let found = (count, median_ns, p99_ns, p999_ns, max_ns);
        assert_eq!(found, (1001, 501, 991, 1000, 1001));
    }
}
