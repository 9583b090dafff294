//! First writes to blocks of a pool's file, ahead of time.
//!
//! On top of a file system, the first write to each block may cost a sync as much as all its other
//! work (see [`vellum_media::Disk::write_ahead`]). So once commits fall between the allocations of
//! a slot, the free blocks around a new block, a group of them, are filled with zeros in one write.
//! Each group is looked at once while the pool is open, so that few writes are in vain.

use std::ops::Range;
use std::sync::atomic::Ordering;

use vellum_media::{LINE_BYTES, Memories, Memory};

use crate::core::{Core, header};

/// Maximum size of a group in blocks: a MiB, for which a disk needs hardly longer than for its
/// first block.
const GROUP_MAX: u64 = 256;
/// A group is at most this fraction of the segment, so that a small pool is not written as a whole.
const GROUP_PART: u64 = 1024;
const GROUP_MIN: u64 = 8;

/// The groups of blocks that were looked at.
#[derive(Debug)]
pub(super) struct FirstWrites {
    /// Arena words: one bit a group, whole lines.
    at: u64,
    end: u64,
    group_blocks: u64,
}

impl FirstWrites {
    /// The groups of a pool of `blocks`, which may come to have `most`. Its part of the arena, zero
    /// at first, begins at `at`.
    pub(super) fn new(at: u64, blocks: u64, most: u64) -> Self {
        let part = (blocks / GROUP_PART).clamp(GROUP_MIN, GROUP_MAX);
        let group_blocks = 1 << part.ilog2();
        let words = most.div_ceil(group_blocks).div_ceil(64);
        Self {
            at,
            end: at + (words * 8).next_multiple_of(LINE_BYTES),
            group_blocks,
        }
    }

    /// First arena offset after the groups.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the group of a newly allocated block, if it is to be written now. The arena word at
    /// `seen_at` holds the epoch that was settled at the slot's last allocation, plus one.
    pub(super) fn due<M: Memories>(
        &self,
        core: &Core<M>,
        seen_at: u64,
        block: u64,
    ) -> Option<Range<u64>> {
        let arena = &core.arena;
        let settled = arena.load(header::SETTLED, Ordering::Relaxed) + 1;
        let before = arena.load(seen_at, Ordering::Relaxed);
        if settled == before {
            return None;
        }
        arena.store(seen_at, settled, Ordering::Relaxed);
        let group = block / self.group_blocks;
        let (word_at, bit) = (self.at + group / 64 * 8, 1 << (group % 64));
        if before == 0 || arena.load(word_at, Ordering::Relaxed) & bit != 0 {
            return None;
        }
        let is_first = arena.fetch_or(word_at, bit) & bit == 0;
        let first = group * self.group_blocks;
        is_first.then(|| first..core.blocks().min(first + self.group_blocks))
    }
}
