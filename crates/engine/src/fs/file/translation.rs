//! The translation cache of an open file (H2): the blocks of one run of eight.
//!
//! A sequence lock of atomics. A filler takes it by compare-and-swap and gives up if it is taken;
//! readers check it before and after. So nobody waits, and a hit writes nothing.
//!
//! Deviation from the paper, whose eight entries are indexed by hash: here the eight entries are
//! one run, because one probe finds a run.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use vellum_layout::RUN_BLOCKS;

use crate::core::cachelet::Cachelet;
use crate::mapping::{BlockNo, Found};

const PLACES: usize = RUN_BLOCKS as usize;

/// The blocks of one run, and the version of the file's mapping under which they were found. One
/// cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Translation {
    /// Odd while being filled.
    sequence: AtomicU64,
    /// Number of the run plus one; 0: empty. Flag [`NOATIME`].
    run: AtomicU64,
    version: AtomicU64,
    /// Block number plus one. 0: not known to hold bytes.
    blocks: [AtomicU32; PLACES],
    noatime: bool,
}

/// An open file as one reading sees it.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) cachelet: Cachelet,
    pub(super) translation: &'a Translation,
    /// Version of the file's mapping.
    pub(super) version: u64,
}

impl Translation {
    /// An empty cache. With `noatime`, reads through this handle leave the access time alone.
    pub(crate) fn new(noatime: bool) -> Self {
        Self {
            sequence: AtomicU64::new(0),
            run: AtomicU64::new(0),
            version: AtomicU64::new(0),
            blocks: [const { AtomicU32::new(0) }; PLACES],
            noatime,
        }
    }

    /// Whether reads leave the access time alone.
    pub(super) fn is_noatime(&self) -> bool {
        self.noatime
    }

    /// Whether `run` is cached, under any version.
    #[inline]
    pub(super) fn is_about(&self, run: u64) -> bool {
        self.run.load(Ordering::Relaxed) == run + 1
    }

    /// Fills `found` with the blocks of `run` from `place` on, if all of them are known under
    /// `version`.
    #[inline]
    pub(super) fn get(&self, version: u64, run: u64, place: usize, found: &mut [Found]) -> bool {
        let sequence = self.sequence.load(Ordering::Acquire);
        let fits = self.run.load(Ordering::Relaxed) == run + 1
            && self.version.load(Ordering::Relaxed) == version;
        if !fits || (sequence | version) & 1 != 0 {
            return false;
        }
        let mut all = true;
        for (block, found) in self.blocks[place..].iter().zip(found) {
            let block = block.load(Ordering::Relaxed);
            all &= block != 0;
            *found = Found::Mapped(BlockNo(block.wrapping_sub(1)));
        }
        fence(Ordering::Acquire);
        all && self.sequence.load(Ordering::Relaxed) == sequence
    }

    /// Whether a lookup of blocks from `place` on of `run` should look up and keep the whole run:
    /// when reading continues in this run, or comes from the run before. Random reads mostly do
    /// neither, so threads that share a handle do not write the cache all the time.
    #[inline]
    pub(super) fn wants(&self, run: u64, place: usize) -> bool {
        let kept = self.run.load(Ordering::Relaxed);
        place == 0 || kept == 0 || kept.abs_diff(run + 1) <= 1
    }

    /// Keeps the blocks of a run, found under `version`.
    pub(super) fn keep(&self, version: u64, run: u64, found: &[Found; PLACES]) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        if (sequence | version) & 1 != 0
            || self
                .sequence
                .compare_exchange(sequence, sequence + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        fence(Ordering::Release);
        self.run.store(run + 1, Ordering::Relaxed);
        self.version.store(version, Ordering::Relaxed);
        for (block, found) in self.blocks.iter().zip(found) {
            let known = match found {
                Found::Mapped(block) => block.0 + 1,
                _ => 0,
            };
            block.store(known, Ordering::Relaxed);
        }
        self.sequence.store(sequence + 2, Ordering::Release);
    }
}

const _: () = assert!(size_of::<Translation>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_one_run_of_one_even_version() {
        let cache = Translation::new(false);
        let mut run = [Found::Hole; PLACES];
        run[2] = Found::Mapped(BlockNo(0));
        run[3] = Found::Mapped(BlockNo(9));
        run[4] = Found::Unwritten(BlockNo(10));
        cache.keep(4, 7, &run);
        let mut found = [Found::Hole; 2];
        assert!(cache.get(4, 7, 2, &mut found));
        assert_eq!(
            found,
            [Found::Mapped(BlockNo(0)), Found::Mapped(BlockNo(9))]
        );
        assert!(
            !cache.get(4, 7, 3, &mut found),
            "unwritten blocks are not kept"
        );
        assert!(!cache.get(6, 7, 2, &mut found));
        assert!(!cache.get(4, 8, 2, &mut found));
        cache.keep(5, 1, &run);
        assert!(
            cache.get(4, 7, 2, &mut found),
            "nothing is kept under an odd version"
        );
        cache.keep(6, 7, &run);
        assert!(cache.get(6, 7, 2, &mut found));
    }

    #[test]
    fn readers_never_see_two_runs_mixed() {
        let cache = Translation::new(false);
        std::thread::scope(|scope| {
            for run in [0u64, 1] {
                let cache = &cache;
                scope.spawn(move || {
                    let blocks = std::array::from_fn(|i| {
                        Found::Mapped(BlockNo(run as u32 * 1000 + i as u32))
                    });
                    for _ in 0..50_000 {
                        cache.keep(0, run, &blocks);
                        let mut found = [Found::Hole; PLACES];
                        if cache.get(0, run, 0, &mut found) {
                            assert_eq!(found, blocks);
                        }
                    }
                });
            }
        });
    }
}
