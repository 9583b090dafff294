//! Files whose blocks are looked up, and that get more blocks.

use vellum::File;

use super::sample::{Evict, Probe, Sample, Sweep, Times, repeat};
use super::setting::{BLOCK_BYTES, Setting, Subject, probe};
use crate::Result;
use crate::error::expect;
use crate::order::{Numbers, shuffled};

/// What operations find in the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caches {
    /// Nothing, because lines were flushed.
    Cold,
    /// Nothing, because other bytes were read.
    Swept,
    /// What the previous operations left.
    Hot,
}

/// The blocks that operations ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Sequential,
    Random,
}

/// The operations of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) caches: Caches,
    pub(super) order: Order,
    /// The number of operations.
    pub(super) ops: usize,
    /// The number of blocks in each.
    pub(super) blocks: u64,
    pub(super) round: usize,
}

impl Access {
    /// The number of single-block operations that the options request.
    pub(super) fn new(setting: &Setting<'_>, caches: Caches, order: Order, round: usize) -> Self {
        let options = setting.options;
        let ops = match caches {
            Caches::Cold => options.cold_ops,
            Caches::Swept => options.cold_ops.min(SWEPT_OPS),
            Caches::Hot => options.hot_ops,
        };
        Self {
            caches,
            order,
            ops,
            blocks: 1,
            round,
        }
    }

    /// The same, with this many blocks each.
    pub(super) fn of_blocks(self, blocks: u64) -> Self {
        Self { blocks, ..self }
    }

    /// The same, with this many operations.
    pub(super) fn with_ops(self, ops: usize) -> Self {
        Self {
            ops: ops.max(1),
            ..self
        }
    }

    /// The same, with at most this many operations.
    pub(super) fn with_ops_at_most(self, ops: usize) -> Self {
        self.with_ops(self.ops.min(ops))
    }

    /// The first blocks of `ops` requests below `blocks`, each completely within that. A block
    /// occurs twice only if there are fewer locations than requests.
    fn places(&self, blocks: u64, ops: usize) -> Vec<u64> {
        let places = (blocks / self.blocks).max(1);
        let salt = self.round as u64;
        let numbers: Vec<u64> = match self.order {
            Order::Sequential => {
                let start = Numbers::new(salt).below(places.saturating_sub(ops as u64).max(1));
                (0..ops as u64).map(|i| (start + i) % places).collect()
            }
            Order::Random => {
                let shuffled = shuffled(places as usize, salt).into_iter();
                shuffled
                    .cycle()
                    .take(ops)
                    .map(|place| place as u64)
                    .collect()
            }
        };
        numbers
            .into_iter()
            .map(|place| place * self.blocks)
            .collect()
    }

    fn run(
        &self,
        sweep: &mut Sweep,
        probe: Probe<'_>,
        places: &[u64],
        times: &mut Times,
        ask: impl FnMut(&mut Probe<'_>, u64) -> Result<()>,
    ) -> Result<()> {
        match self.caches {
            Caches::Cold => times.cold(probe, &mut Evict, places, ask),
            Caches::Swept => times.cold(probe, sweep, places, ask),
            Caches::Hot => times.hot(probe, places, ask),
        }
    }
}

/// The number of operations for which a sweep of all caches is acceptable.
pub(super) const SWEPT_OPS: usize = 8;
/// The least number of blocks in all files of a case together, so that the random placement of one
/// block does not determine the result.
const BLOCKS_MIN: u64 = 64;
/// The least number of free blocks behind those that a file has.
const ROOM_MIN: u64 = 64;

/// Files of one size with all their blocks, and with space for more.
pub(super) struct Case<'s> {
    subject: &'s Subject,
    files: Vec<File>,
    /// The blocks of each file.
    blocks: u64,
}

impl<'s> Case<'s> {
    pub(super) fn make(subject: &'s Subject, blocks: u64) -> Result<Self> {
        let files = (0..BLOCKS_MIN.div_ceil(blocks)).map(|number| {
            let file = subject.filled(&format!("{blocks}-{number}"), blocks)?;
            file.set_len((blocks + room(blocks)) * BLOCK_BYTES)?;
            Ok(file)
        });
        Ok(Self {
            subject,
            files: files.collect::<Result<_>>()?,
            blocks,
        })
    }

    /// A case for each subject.
    pub(super) fn all(subjects: &'s [Subject], blocks: u64) -> Result<Vec<Self>> {
        subjects
            .iter()
            .map(|subject| Self::make(subject, blocks))
            .collect()
    }

    /// A case with an existing file that has all its blocks.
    pub(super) fn over(subject: &'s Subject, file: File, blocks: u64) -> Self {
        Self {
            subject,
            files: vec![file],
            blocks,
        }
    }

    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    /// The number of blocks of a case with files of `blocks` blocks, including those that are
    /// inserted.
    pub(super) fn blocks_with_room(blocks: u64) -> u64 {
        (blocks + room(blocks)) * BLOCKS_MIN.div_ceil(blocks)
    }

    fn ops_of_file(&self, access: &Access) -> usize {
        access.ops.div_ceil(self.files.len())
    }

    /// Looks up existing blocks.
    pub(super) fn lookup(&self, access: &Access, sweep: &mut Sweep) -> Result<Sample> {
        let blocks = access.blocks as usize;
        self.ask_each(access, sweep, |probe, at| {
            expect("blocks looked up", probe.lookup(at, blocks)?, blocks)
        })
    }

    /// Asks for existing blocks.
    pub(super) fn ask_each(
        &self,
        access: &Access,
        sweep: &mut Sweep,
        mut ask: impl FnMut(&mut Probe<'_>, u64) -> Result<()>,
    ) -> Result<Sample> {
        let mut times = Times::default();
        let places = access.places(self.blocks, self.ops_of_file(access));
        for file in &self.files {
            access.run(sweep, probe(file)?, &places, &mut times, &mut ask)?;
        }
        Ok(times.sample())
    }

    /// Reads at each location; this is what is timed.
    pub(super) fn read_each(
        &self,
        access: &Access,
        mut read: impl FnMut(&File, u64) -> Result<()>,
    ) -> Result<Sample> {
        let places = access.places(self.blocks, self.ops_of_file(access));
        let samples = self
            .files
            .iter()
            .map(|file| repeat(&places, |at| read(file, at)));
        Ok(Sample::mean(&samples.collect::<Result<Vec<_>>>()?))
    }

    /// Inserts blocks behind the existing ones, sequentially or at random, and removes them again.
    pub(super) fn insert(&self, access: &Access, sweep: &mut Sweep) -> Result<Sample> {
        let (room, blocks) = (room(self.blocks), access.blocks as usize);
        // At most half of the space, so that holes are left in between.
        let most = (room / 2 / access.blocks).max(1) as usize;
        let ops = self.ops_of_file(access).min(most);
        let places = access.places(room, ops);
        let skip = match access.order {
            Order::Sequential => places.first().copied().unwrap_or(0),
            Order::Random => 0,
        };
        let first = self.blocks;
        let mut times = Times::default();
        for file in &self.files {
            access.run(sweep, probe(file)?, &places, &mut times, |probe, at| {
                Ok(probe.insert(first + at - skip, blocks)?)
            })?;
            let taken = probe(file)?.remove(first, first + room)?;
            expect("blocks taken away", taken, (ops * blocks) as u64)?;
            self.subject.settle();
        }
        Ok(times.sample())
    }
}

/// The number of blocks that fit behind those of a file of `blocks`.
fn room(blocks: u64) -> u64 {
    blocks.max(ROOM_MIN)
}
