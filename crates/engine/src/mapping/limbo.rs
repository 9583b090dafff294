//! Limbo: freed blocks that operations may still read, because they found them before. These are
//! data blocks of a segment, or metadata blocks with tree nodes.
//!
//! There are four lists, chosen by the epoch in which a block is freed. A list's tag is the latest
//! epoch of any block on it: if an old list is reused, its blocks wait a little longer, and never
//! too short. Lists only grow at their head or are emptied as a whole, which needs no guard against
//! ABA.

use std::sync::atomic::Ordering;

use vellum_layout::BLOCK_BYTES;
use vellum_media::{Memories, Memory, Persistent};

use crate::core::Core;
use crate::core::slots::GRACE;

/// Number of lists; more than [`GRACE`], so that the current epoch's list has usually been emptied.
const LISTS: u64 = 4;
/// Bytes of the lists' heads: a line each, so that pushes and reclaiming do not share more than
/// needed.
pub(super) const LIMBO_BYTES: u64 = LISTS * 64;

/// Storage of the blocks' links.
pub(super) trait Links {
    /// Links `block`, which is in limbo, to `next`: the block before it on the list plus one (0:
    /// none).
    fn set_limbo_link<A: Memory>(&self, arena: &A, block: u32, next: u32);

    /// See [`Self::set_limbo_link`].
    fn limbo_link<A: Memory>(&self, arena: &A, block: u32) -> u32;
}

/// A word of the arena for each block's link.
#[derive(Debug)]
pub(super) struct LinkWords {
    pub(super) at: u64,
}

impl Links for LinkWords {
    fn set_limbo_link<A: Memory>(&self, arena: &A, block: u32, next: u32) {
        let at = self.at + u64::from(block) * 8;
        arena.store(at, u64::from(next), Ordering::Release);
    }

    fn limbo_link<A: Memory>(&self, arena: &A, block: u32) -> u32 {
        arena.load(self.at + u64::from(block) * 8, Ordering::Acquire) as u32
    }
}

/// A head: the first block plus one in the low 31 bits (a segment has 2^30 blocks), the tag above.
const BLOCK_BITS: u32 = 31;
const BLOCK_MASK: u64 = (1 << BLOCK_BITS) - 1;
const TAG_MASK: u64 = u64::MAX >> BLOCK_BITS;

/// Blocks that one operation frees, linked to each other, to be pushed at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    first: u32,
    last: u32,
    pub(super) blocks: u64,
}

impl Batch {
    /// Adds a block that no later operation can find.
    pub(super) fn add<A: Memory>(&mut self, arena: &A, links: &impl Links, block: u32) {
        links.set_limbo_link(arena, block, self.first);
        if self.blocks == 0 {
            self.last = block;
        }
        self.first = block + 1;
        self.blocks += 1;
    }
}

/// The heads of the lists.
#[derive(Debug)]
pub(super) struct Limbo {
    pub(super) at: u64,
    /// Whether blocks stay until the epoch that freed them is durable too: an older epoch still
    /// shows their contents, which no epoch records.
    pub(super) is_held: bool,
}

/// Whether blocks tagged `tag` may be reused at `epoch`. Tags wrap; one that is half the range old
/// counts as young, which only delays.
fn is_over(epoch: u64, tag: u64) -> bool {
    let age = epoch.wrapping_sub(tag) & TAG_MASK;
    (GRACE..=TAG_MASK / 2).contains(&age)
}

impl Limbo {
    /// Pushes a batch onto the current epoch's list. The epoch is read after the blocks became
    /// unfindable, so an operation that found them runs in this epoch or an earlier one.
    pub(super) fn push<M: Memories>(&self, core: &Core<M>, links: &impl Links, batch: &Batch) {
        if batch.blocks == 0 {
            return;
        }
        // The stores that made them unfindable come first, then the epoch: this load must not
        // overtake them.
        core.arena.barrier();
        let epoch = core.epoch();
        let at = self.at + epoch % LISTS * 64;
        let mut head = core.arena.load(at, Ordering::Acquire);
        loop {
            links.set_limbo_link(&core.arena, batch.last, (head & BLOCK_MASK) as u32);
            let new = (epoch & TAG_MASK) << BLOCK_BITS | u64::from(batch.first);
            // A list with blocks keeps a later tag, which another thread's later epoch left.
            let newer = head & BLOCK_MASK != 0
                && (head >> BLOCK_BITS).wrapping_sub(epoch) & TAG_MASK <= TAG_MASK / 2;
            let new = if newer {
                new & BLOCK_MASK | head & !BLOCK_MASK
            } else {
                new
            };
            match core.arena.compare_exchange(at, head, new) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Removes every block whose grace period is over and passes it to `each`, which returns
    /// whether the block was not free already. Stops at one that was: in a damaged pool a block of
    /// two files is freed twice, and a list that contains a block twice is endless.
    pub(super) fn take<M: Memories>(
        &self,
        core: &Core<M>,
        links: &impl Links,
        mut each: impl FnMut(u32) -> bool,
    ) {
        let epoch = if self.is_held {
            core.settled_epoch()
        } else {
            core.epoch()
        };
        for list in 0..LISTS {
            let at = self.at + list * 64;
            let head = core.arena.load(at, Ordering::Acquire);
            let mut next = (head & BLOCK_MASK) as u32;
            let due = next != 0 && is_over(epoch, head >> BLOCK_BITS);
            if !due
                || core
                    .arena
                    .compare_exchange(at, head, head & !BLOCK_MASK)
                    .is_err()
            {
                continue;
            }
            while let Some(block) = next.checked_sub(1) {
                next = links.limbo_link(&core.arena, block);
                if let Some(commits) = core.commits.as_ref().filter(|_| self.is_held) {
                    let at = core.geometry.data_at + u64::from(block) * BLOCK_BYTES;
                    core.pool.release(commits.block_free(), at, BLOCK_BYTES);
                }
                if !each(block) {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_is_two_epochs_and_survives_wrapping() {
        assert!(!is_over(5, 5));
        assert!(!is_over(6, 5));
        assert!(is_over(7, 5));
        assert!(!is_over(5, 6), "a tag of a later epoch is young");
        assert!(is_over(TAG_MASK + 2, TAG_MASK));
        assert!(!is_over(TAG_MASK + 1, TAG_MASK));
    }
}
