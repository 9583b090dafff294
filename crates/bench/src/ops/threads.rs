//! Two threads in one directory, compared with two threads in a directory each.

use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::workload::{Laps, Part, Workload};
use crate::Result;
use crate::error::Error;
use crate::order::{names, shuffled_names};
use crate::side::Side;
use crate::stopwatch::Stopwatch;

const THREADS: usize = 2;
/// The number of `stat` passes in a round.
const PASSES: usize = super::workload::VISITS;

const SHARED: [&str; THREADS] = ["two-shared"; THREADS];
const PRIVATE: [&str; THREADS] = ["two-first", "two-second"];
const STAT_SHARED: [&str; THREADS] = ["two-stat-shared"; THREADS];
const STAT_PRIVATE: [&str; THREADS] = ["two-stat-first", "two-stat-second"];

/// create, unlink and stat by two threads at the same time.
pub(crate) struct TwoThreads {
    created: [Vec<CString>; THREADS],
    unlinked: [Vec<CString>; THREADS],
    stated: [Vec<CString>; THREADS],
    all: Vec<CString>,
}

impl TwoThreads {
    /// Each thread works on `files` files; `stat` in a shared directory uses the same ones.
    pub(crate) fn new(files: usize) -> Self {
        Self {
            created: [names("a-", files), names("b-", files)],
            unlinked: [
                shuffled_names("a-", files, 21),
                shuffled_names("b-", files, 22),
            ],
            stated: [
                shuffled_names("file-", files, 23),
                shuffled_names("file-", files, 24),
            ],
            all: names("file-", files),
        }
    }
}

const fn part(op: &'static str, directories: &'static str, order: &'static str) -> Part {
    Part {
        op,
        threads: THREADS,
        directories: Some(directories),
        order,
    }
}

impl Workload for TwoThreads {
    fn parts(&self) -> &[Part] {
        const {
            &[
                part("create", "shared", "ascending"),
                part("create", "private", "ascending"),
                part("unlink", "shared", "shuffled"),
                part("unlink", "private", "shuffled"),
                part("stat", "shared", "shuffled"),
                part("stat", "private", "shuffled"),
            ]
        }
    }

    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        for path in [SHARED[0], PRIVATE[0], PRIVATE[1]] {
            side.make_dir(path)?;
        }
        for path in [STAT_SHARED[0], STAT_PRIVATE[0], STAT_PRIVATE[1]] {
            side.make_dir(path)?;
            let dir = side.dir(path)?;
            for name in &self.all {
                side.create(&dir, name)?;
            }
        }
        Ok(())
    }

    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()> {
        let count = self.all.len();
        for (number, paths) in [SHARED, PRIVATE].iter().enumerate() {
            both(side, laps, number, count, paths, |thread, dir| {
                let names = &self.created[thread];
                names.iter().try_for_each(|name| side.create(dir, name))
            })?;
            let listed = side.list(&side.dir(paths[1])?)?;
            let expected = if number == 0 { THREADS * count } else { count };
            side.expect("files of two threads", listed, expected as u64)?;
            both(side, laps, 2 + number, count, paths, |thread, dir| {
                let names = &self.unlinked[thread];
                names.iter().try_for_each(|name| side.unlink(dir, name))
            })?;
            side.expect("files left", side.list(&side.dir(paths[1])?)?, 0)?;
        }
        for (number, paths) in [STAT_SHARED, STAT_PRIVATE].iter().enumerate() {
            // As in other warm rounds, an untimed visit comes first.
            for (path, names) in paths.iter().zip(&self.stated) {
                let dir = side.dir(path)?;
                names
                    .iter()
                    .try_for_each(|name| side.stat(&dir, name).map(|_| ()))?;
            }
            both(
                side,
                laps,
                4 + number,
                PASSES * count,
                paths,
                |thread, dir| {
                    for _ in 0..PASSES {
                        for name in &self.stated[thread] {
                            std::hint::black_box(side.stat(dir, name)?);
                        }
                    }
                    Ok(())
                },
            )?;
        }
        Ok(())
    }
}

/// Keeps the calling thread, which has this number, on a processor of its own, if there is one.
fn keep_to_processor(thread: usize) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number));
    if let Some(number) = processors.nth(thread) {
        let mut own = CpuSet::new();
        own.set(number);
        // Where that is not allowed, the scheduler places the threads.
        let _ = sched_setaffinity(None, &own);
    }
}

/// Times `ops` operations of each thread. Every thread opens its directory and uses it once before
/// the clock starts.
fn both<S: Side>(
    side: &S,
    laps: &mut Laps,
    part: usize,
    ops: usize,
    paths: &[&str; THREADS],
    run: impl Fn(usize, &S::Dir) -> Result<()> + Sync,
) -> Result<()> {
    laps.time_threads(side, part, ops, THREADS, || {
        let ready = AtomicUsize::new(0);
        let work = |thread: usize| -> Result<Duration> {
            keep_to_processor(thread);
            let warmed = side
                .dir(paths[thread])
                .and_then(|dir| side.stat(&dir, c".").map(|_| dir));
            ready.fetch_add(1, Ordering::AcqRel);
            let dir = warmed?;
            while ready.load(Ordering::Acquire) < THREADS {
                std::hint::spin_loop();
            }
            let watch = Stopwatch::start();
            run(thread, &dir)?;
            Ok(watch.elapsed())
        };
        let times = std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || work(thread)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    let failed = |_| Err(Error::Wrong("a thread panicked".into()));
                    thread.join().unwrap_or_else(failed)
                })
                .collect::<Result<Vec<_>>>()
        })?;
        Ok(times.into_iter().max().unwrap_or_default())
    })
}
