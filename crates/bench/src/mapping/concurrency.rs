//! Fig 10: threads on files of their own, and on one file.

use std::sync::Barrier;

use vellum::File;

use super::grid::Grid;
use super::sample::{Probe, Sample, Times};
use super::setting::{BLOCK_BYTES, Setting, Subject, probe};
use crate::Result;
use crate::error::{Error, expect};
use crate::figure::{Axis, Scale};
use crate::order::Numbers;
use crate::report::Outcome;

/// The numbers of threads; the paper has up to 8, on more processors.
const THREADS: [usize; 2] = [1, 2];

/// The blocks of each file, as a fraction of `--file-bytes`, and the operations of each thread, as
/// a fraction of `--hot-ops`.
const FILE_PART: u64 = 16;
const OPS_PART: u64 = 4;

/// The work of each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Looks blocks up at random.
    Lookup,
    /// Appends blocks.
    Insert,
    /// Looks one up, then appends one, as in the paper.
    Both,
}

const WORKS: [(Work, &str, &str); 3] = [
    (Work::Lookup, "lookup", "lookups"),
    (Work::Insert, "insert", "appends"),
    (Work::Both, "both", "lookups and appends by turns"),
];

/// The files of a pool, one for each thread; for shared work all threads use the first.
struct Files<'s> {
    subject: &'s Subject,
    files: Vec<File>,
    /// The blocks that each file has at first.
    blocks: u64,
    /// The blocks that each thread may append.
    room: u64,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let (blocks, most) = (
        setting.file_blocks() / FILE_PART,
        THREADS[THREADS.len() - 1],
    );
    let room = (setting.options.hot_ops as u64 / OPS_PART).max(1);
    let all = (blocks + room * most as u64) * most as u64;
    let subjects = setting.subjects_with_much_metadata(all * 5 / 4 * BLOCK_BYTES)?;
    let files = subjects
        .iter()
        .map(|subject| Files::make(subject, most, blocks, room))
        .collect::<Result<Vec<_>>>()?;
    let mut figures = Vec::new();
    for (work, name, title) in WORKS {
        for shared in [false, true] {
            let (kind, whose) = match shared {
                false => ("private", "files of their own"),
                true => ("shared", "one file"),
            };
            let x = Axis::of("threads", "", Scale::Linear);
            let labels = THREADS.map(|threads| threads.to_string());
            let mut grid = Grid::lines(
                &format!("concurrency-{name}-{kind}"),
                &format!("Threads: {title}, {whose}"),
                x,
                labels.into(),
            )
            .sides(&subjects)
            .claim(
                "Fig 10: with more threads on one file, latency grows slightly (up to 13 % from \
                 one to eight), and the ranking of mappings stays.",
            )
            .note("Time per operation of each thread, without waits for a processor.");
            for round in setting.rounds() {
                for (label, &threads) in THREADS.iter().enumerate() {
                    for (side, files) in files.iter().enumerate() {
                        setting.check()?;
                        let sample = files.run(work, shared, threads, room, round)?;
                        grid.add(round, side, label, sample);
                    }
                }
            }
            figures.push(grid.figure());
        }
    }
    Ok(Outcome::new(figures, Vec::new()))
}

impl<'s> Files<'s> {
    fn make(subject: &'s Subject, threads: usize, blocks: u64, room: u64) -> Result<Self> {
        let files = (0..threads).map(|number| {
            let file = subject.filled(&format!("of-{number}"), blocks)?;
            file.set_len((blocks + room * threads as u64) * BLOCK_BYTES)?;
            Ok(file)
        });
        Ok(Self {
            subject,
            files: files.collect::<Result<_>>()?,
            blocks,
            room,
        })
    }

    /// Runs threads at the same time; returns the mean of their times.
    fn run(
        &self,
        work: Work,
        shared: bool,
        threads: usize,
        ops: u64,
        round: usize,
    ) -> Result<Sample> {
        let start = Barrier::new(threads);
        let samples: Vec<Sample> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..threads)
                .map(|thread| {
                    let file = &self.files[if shared { 0 } else { thread }];
                    let start = &start;
                    let turns = if shared { (thread, threads) } else { (0, 1) };
                    let salt = (round * THREADS.len() + thread) as u64;
                    scope.spawn(move || {
                        let mut numbers = Numbers::new(salt);
                        let places = (0..ops).map(|_| numbers.below(self.blocks)).collect();
                        start.wait();
                        self.work(work, file, turns, places)
                    })
                })
                .collect();
            started
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(Error::Interrupted)))
                .collect::<Result<_>>()
        })?;
        for file in &self.files {
            let end = self.blocks + self.room * self.files.len() as u64;
            probe(file)?.remove(self.blocks, end)?;
            self.subject.settle();
        }
        Ok(Sample::mean(&samples))
    }

    /// The work of one thread. Threads that share a file insert its blocks in turns, as concurrent
    /// appends do.
    fn work(
        &self,
        work: Work,
        file: &File,
        (turn, turns): (usize, usize),
        places: Vec<u64>,
    ) -> Result<Sample> {
        let mut next = self.blocks + turn as u64;
        let lookup = |probe: &mut Probe<'_>, at| expect("a block", probe.lookup(at, 1)?, 1);
        let mut insert = |probe: &mut Probe<'_>| {
            probe.insert(next, 1)?;
            next += turns as u64;
            Ok(())
        };
        let mut times = Times::default();
        times.hot(probe(file)?, &places, |probe, at| match work {
            Work::Lookup => lookup(probe, at),
            Work::Insert => insert(probe),
            Work::Both => {
                lookup(probe, at)?;
                insert(probe)
            }
        })?;
        Ok(times.sample())
    }
}
