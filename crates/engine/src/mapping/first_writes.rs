//! When the first write to blocks of a pool's file is done for those who come later.
//!
//! Where a file system lies below, the first write to each block may cost whoever syncs as much as
//! the sync itself (see [`vellum_media::Disk::write_ahead`]). So once commits come between the
//! blocks that a slot takes, those around them that are free, a group of them, are written with
//! zeros, as one. Each group is looked at once as long as the pool is open, so that little is
//! written in vain.

use std::ops::Range;
use std::sync::atomic::Ordering;

use vellum_media::{LINE_BYTES, Memories, Memory};

use crate::core::{Core, header};

/// Blocks of a group, at most: a MiB, for which a disk needs hardly longer than for its first
/// block.
const GROUP_MAX: u64 = 256;
/// A group is such a part of the segment at most, so that a small pool is not written as a whole.
const GROUP_PART: u64 = 1024;
const GROUP_MIN: u64 = 8;

/// Which groups of blocks were looked at.
#[derive(Debug)]
pub(super) struct FirstWrites {
    /// Arena words: a bit a group, whole lines.
    at: u64,
    end: u64,
    blocks: u64,
    group_blocks: u64,
}

impl FirstWrites {
    /// Of a segment of so many blocks; `at` is where its part of the arena, zeros at first, begins.
    pub(super) fn new(at: u64, blocks: u64) -> Self {
        let part = (blocks / GROUP_PART).clamp(GROUP_MIN, GROUP_MAX);
        let group_blocks = 1 << part.ilog2();
        let words = blocks.div_ceil(group_blocks).div_ceil(64);
        Self {
            at,
            end: at + (words * 8).next_multiple_of(LINE_BYTES),
            blocks,
            group_blocks,
        }
    }

    /// First byte of the arena behind it.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The group of a block that was just taken, if it is to be looked at now. At `seen_at` the
    /// arena has, for who took it, what was settled when it last took blocks, and one.
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
        is_first.then(|| first..self.blocks.min(first + self.group_blocks))
    }
}
