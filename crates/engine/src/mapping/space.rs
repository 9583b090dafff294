//! How many blocks of a segment are free, reserved and in limbo: the counts, and the lists of
//! limbo, that every mapping has, however it finds out *which* blocks are free.

use std::sync::atomic::Ordering;

use vellum_media::{LINE_BYTES, Memories, Memory, count};

use super::limbo::{Batch, LIMBO_BYTES, Limbo, Links};
use super::{BlockUsage, Reservation};
use crate::core::Core;
use crate::core::slots::{Op, field};
use crate::error::{Error, Result};

/// Blocks in limbo from which on giving up more also looks whether some have become free.
const LIMBO_MANY: u64 = 4096;

/// The blocks of segment 0, counted.
#[derive(Debug)]
pub(super) struct Space {
    blocks: u64,
    /// Arena word: free blocks that are not reserved. What is free is this plus what is reserved,
    /// so a reservation can always be claimed.
    free_at: u64,
    /// Arena word: blocks in limbo.
    in_limbo_at: u64,
    limbo: Limbo,
}

impl Space {
    /// Bytes of the arena that it takes, whole lines.
    pub(super) const BYTES: u64 = 2 * LINE_BYTES + LIMBO_BYTES;

    /// The counts of a segment of `blocks`, at arena offset `at`.
    pub(super) fn new(at: u64, blocks: u64) -> Self {
        let limbo_at = at + 2 * LINE_BYTES;
        Self {
            blocks,
            free_at: at,
            in_limbo_at: at + LINE_BYTES,
            limbo: Limbo {
                at: limbo_at,
                is_held: true,
            },
        }
    }

    /// Asks the processor for the count of free blocks.
    pub(super) fn prefetch<M: Memories>(&self, core: &Core<M>) {
        core.arena.prefetch(self.free_at);
    }

    /// Takes `blocks` from the free count, if there are as many.
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
                return Err(Error::NoSpace("data blocks"));
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

    /// Puts what an operation gave up into limbo. `reclaim` frees what it can, if that has become
    /// much.
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

    /// Makes blocks free whose grace period is over, each by `free`, which says whether it was not
    /// before; gives how many. Those that are on a list behind one that was stay in limbo, so that
    /// the pool is not closed in order.
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
        // First limbo: what has left it since is counted as free, maybe twice, but never not at
        // all. In a damaged pool more blocks may be used than there are.
        let limbo = core.arena.load(self.in_limbo_at, Ordering::Acquire);
        let free = core.arena.load(self.free_at, Ordering::Relaxed);
        BlockUsage {
            total: self.blocks,
            free: free.saturating_add(limbo).min(self.blocks),
        }
    }

    /// Fails while blocks are in limbo: what a close saved then would call them used for ever.
    ///
    /// # Errors
    /// [`Error::Busy`].
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

    /// Says how many blocks are free, when a pool is opened.
    pub(super) fn set_free<M: Memories>(&self, core: &Core<M>, free: u64) {
        core.arena.store(self.free_at, free, Ordering::SeqCst);
    }

    /// Says, when a pool is opened, that a block that counted as free is a file's.
    pub(super) fn note_used<M: Memories>(&self, core: &Core<M>) {
        core.arena.fetch_add(self.free_at, u64::MAX);
    }
}

fn lower_reserved<M: Memories>(op: &Op<'_, M>, blocks: u64) {
    let left = op.own(field::RESERVED).saturating_sub(blocks);
    op.set_own(field::RESERVED, left);
}

/// Counts reserved blocks that were taken together.
pub(super) fn claimed<M: Memories>(op: &Op<'_, M>, from: &mut Reservation, blocks: u64) {
    from.blocks -= blocks;
    lower_reserved(op, blocks);
    count::allocation();
}

/// Takes back a [`claimed`].
pub(super) fn unclaimed<M: Memories>(op: &Op<'_, M>, to: &mut Reservation, blocks: u64) {
    to.blocks += blocks;
    op.set_own(field::RESERVED, op.own(field::RESERVED) + blocks);
}
