//! The space of a segment: counts of free and reserved blocks and of blocks in limbo, and the lists
//! of limbo. Every mapping has these, however it records *which* blocks are free.

use std::ops::Range;
use std::sync::atomic::Ordering;

use vellum_layout::Geometry;
use vellum_media::{LINE_BYTES, Memories, Memory, count};

use super::bitmap::FreeBitmap;
use super::limbo::{Batch, LIMBO_BYTES, Limbo, Links};
use super::{BlockUsage, Reservation};
use crate::core::Core;
use crate::core::slots::{Op, field};
use crate::error::{Error, Result};

/// From this many blocks in limbo on, freeing more also reclaims.
const LIMBO_MANY: u64 = 4096;

/// The counts of all segments.
#[derive(Debug)]
pub(super) struct Space {
    /// Arena word: free blocks that are not reserved. The number of free blocks is this plus all
    /// reservations, so a reserved block can always be claimed.
    free_at: u64,
    /// Arena word: blocks in limbo.
    in_limbo_at: u64,
    limbo: Limbo,
}

impl Space {
    /// Arena bytes of the counts and lists, whole lines.
    pub(super) const BYTES: u64 = 2 * LINE_BYTES + LIMBO_BYTES;

    /// The counts at arena offset `at`.
    pub(super) fn new(at: u64) -> Self {
        let limbo_at = at + 2 * LINE_BYTES;
        Self {
            free_at: at,
            in_limbo_at: at + LINE_BYTES,
            limbo: Limbo {
                at: limbo_at,
                is_held: true,
            },
        }
    }

    /// Prefetches the count of free blocks.
    pub(super) fn prefetch<M: Memories>(&self, core: &Core<M>) {
        core.arena.prefetch(self.free_at);
    }

    /// Subtracts `blocks` from the free count, if that is large enough.
    fn take_free<M: Memories>(&self, core: &Core<M>, blocks: u64) -> bool {
        let mut free = core.arena.load(self.free_at, Ordering::Relaxed);
        while free >= blocks {
            match core
                .arena
                .compare_exchange(self.free_at, free, free - blocks)
            {
                Ok(_) => return true,
                Err(now) => free = now,
            }
        }
        false
    }

    /// See [`super::Mapping::reserve`]. `reclaim` frees what it can.
    pub(super) fn reserve<M: Memories>(
        &self,
        op: &Op<'_, M>,
        blocks: u64,
        reclaim: impl FnOnce(),
    ) -> Result<Reservation> {
        if blocks > 0 && !self.take_free(op.core, blocks) {
            op.core.try_advance();
            reclaim();
            if !self.take_free(op.core, blocks) {
                return Err(Error::NoSpace(Error::DATA_BLOCKS));
            }
        }
        op.set_own(field::RESERVED, op.own(field::RESERVED) + blocks);
        Ok(Reservation { blocks })
    }

    /// See [`super::Mapping::unreserve`].
    pub(super) fn unreserve<M: Memories>(&self, op: &Op<'_, M>, rest: Reservation) {
        if rest.blocks > 0 {
            lower_reserved(op, rest.blocks);
            op.core.arena.fetch_add(self.free_at, rest.blocks);
        }
    }

    /// Puts the blocks that an operation freed into limbo. Calls `reclaim`, which frees what it
    /// can, if limbo has become large.
    pub(super) fn give_up<M: Memories>(
        &self,
        core: &Core<M>,
        links: &impl Links,
        batch: &Batch,
        reclaim: impl FnOnce(),
    ) {
        core.arena.fetch_add(self.in_limbo_at, batch.blocks);
        self.limbo.push(core, links, batch);
        if core.arena.load(self.in_limbo_at, Ordering::Relaxed) > LIMBO_MANY {
            core.try_advance();
            reclaim();
        }
    }

    /// Frees the blocks whose grace period is over, each by `free`, which returns whether the block
    /// was not free before. Returns their number. If a block was already free, the blocks after it
    /// on its list stay in limbo, so that the pool is not closed cleanly.
    pub(super) fn reclaim<M: Memories>(
        &self,
        core: &Core<M>,
        links: &impl Links,
        mut free: impl FnMut(u32) -> bool,
    ) -> u64 {
        let mut freed = 0;
        self.limbo.take(core, links, |block| {
            let was_taken = free(block);
            freed += u64::from(was_taken);
            was_taken
        });
        if freed > 0 {
            // In this order, so that `usage` never misses a block on its way.
            core.arena.fetch_add(self.free_at, freed);
            core.arena
                .fetch_add(self.in_limbo_at, 0u64.wrapping_sub(freed));
        }
        freed
    }

    /// See [`super::Mapping::usage`].
    pub(super) fn usage<M: Memories>(&self, core: &Core<M>) -> BlockUsage {
        // Limbo first: a block that leaves it meanwhile may be counted twice, but is never missed.
        // In a damaged pool more blocks may be counted than exist.
        let limbo = core.arena.load(self.in_limbo_at, Ordering::Acquire);
        let free = core.arena.load(self.free_at, Ordering::Relaxed);
        let total = core.blocks();
        BlockUsage {
            total,
            free: free.saturating_add(limbo).min(total),
        }
    }

    /// Checks that limbo is empty: a saved state would count its blocks as used for ever.
    ///
    /// # Errors
    /// Fails with [`Error::Busy`] if blocks are in limbo.
    pub(super) fn check_settled<M: Memories>(&self, core: &Core<M>) -> Result<()> {
        if core.arena.load(self.in_limbo_at, Ordering::Acquire) != 0 {
            return Err(Error::Busy);
        }
        Ok(())
    }

    /// Free blocks that are not reserved.
    pub(super) fn free<M: Memories>(&self, core: &Core<M>) -> u64 {
        core.arena.load(self.free_at, Ordering::Acquire)
    }

    /// Sets the number of free blocks, when a pool is opened.
    pub(super) fn set_free<M: Memories>(&self, core: &Core<M>, free: u64) {
        core.arena.store(self.free_at, free, Ordering::SeqCst);
    }

    /// See [`super::Mapping::grow`]. The blocks are known, then found in `bitmap`, then counted.
    pub(super) fn grow<M: Memories>(&self, core: &Core<M>, bitmap: &FreeBitmap, to: &Geometry) {
        let new = core.blocks()..to.blocks();
        core.note_growth(to);
        bitmap.set_all(&core.arena, new.clone());
        core.arena.fetch_add(self.free_at, new.end - new.start);
    }

    /// Counts a free block as a file's, when a pool is opened.
    pub(super) fn note_used<M: Memories>(&self, core: &Core<M>) {
        core.arena.fetch_add(self.free_at, u64::MAX);
    }

    /// See [`super::Allocator::take_for_metadata`]. `take` takes the blocks, if all are free;
    /// `free` frees them again.
    pub(super) fn take_for_metadata<M: Memories>(
        &self,
        op: &Op<'_, M>,
        blocks: &Range<u64>,
        take: impl FnOnce() -> bool,
        free: impl FnOnce(),
    ) -> Result<bool> {
        let len = blocks.end - blocks.start;
        let Ok(mut kept) = self.reserve(op, len, || {}) else {
            return Ok(false);
        };
        let taken = match take() {
            true => op.core.provide(blocks.start, len).map(|()| true),
            false => Ok(false),
        };
        match &taken {
            Ok(true) => claimed(op, &mut kept, len),
            Ok(false) => {}
            Err(_) => free(),
        }
        self.unreserve(op, kept);
        taken
    }

    /// Counts free blocks as metadata's, when a pool is opened.
    pub(super) fn note_all_used<M: Memories>(&self, core: &Core<M>, blocks: &Range<u64>) {
        let count = blocks.end - blocks.start;
        core.arena.fetch_add(self.free_at, count.wrapping_neg());
    }

    /// Counts blocks that were metadata as free.
    pub(super) fn note_all_free<M: Memories>(&self, core: &Core<M>, blocks: &Range<u64>) {
        core.arena
            .fetch_add(self.free_at, blocks.end - blocks.start);
    }
}

fn lower_reserved<M: Memories>(op: &Op<'_, M>, blocks: u64) {
    let left = op.own(field::RESERVED).saturating_sub(blocks);
    op.set_own(field::RESERVED, left);
}

/// Counts reserved blocks as claimed.
pub(super) fn claimed<M: Memories>(op: &Op<'_, M>, from: &mut Reservation, blocks: u64) {
    from.blocks -= blocks;
    lower_reserved(op, blocks);
    count::allocation();
}

/// Undoes [`claimed`].
pub(super) fn unclaimed<M: Memories>(op: &Op<'_, M>, to: &mut Reservation, blocks: u64) {
    to.blocks += blocks;
    op.set_own(field::RESERVED, op.own(field::RESERVED) + blocks);
}
