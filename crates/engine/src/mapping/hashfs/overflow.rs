//! The overflow index: blocks that lie outside their home line.
//!
//! A displaced block is on the chain of its run. Chains are read without locks: a block taken off
//! its chain keeps its link until it is claimed again, and a grace period separates that from every
//! operation that could still be at this block. Writers lock the chain's head with the number of
//! their slot.
//!
//! For each home line there is a count of the blocks displaced from it, raised before a block is
//! linked and lowered after it is unlinked. A miss ends at a home line whose count is zero. The
//! count saturates: once it has reached 255 it stays there until the next rebuild.

use std::sync::atomic::Ordering;

use vellum_media::{Memory, count};

use crate::core::slots::pause;
use crate::mapping::limbo::Links;

/// A chain's head: the first block plus one (0: none), and above it the slot that holds the lock.
const BLOCK_BITS: u32 = 32;
const BLOCK_MASK: u64 = (1 << BLOCK_BITS) - 1;
/// Links of a cache line of the arena.
const LINE_LINKS: u32 = 8;

/// Where the index lies in the arena.
#[derive(Debug)]
pub(super) struct Overflow {
    displaced: u64,
    heads: u64,
    head_mask: u64,
    links: u64,
    end: u64,
}

impl Overflow {
    /// The index of a table of `lines` lines at arena offset `at`. `chains` is a power of two.
    pub(super) fn new(at: u64, lines: u64, chains: u64) -> Self {
        let line_up = |at: u64| at.next_multiple_of(64);
        let heads = line_up(at + lines);
        let links = line_up(heads + chains * 8);
        let end = links + lines * 8 * 8;
        Self {
            displaced: at,
            heads,
            head_mask: chains - 1,
            links,
            end,
        }
    }

    /// First arena offset after the index.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    fn head_at(&self, hash: u64) -> u64 {
        self.heads + (hash & self.head_mask) * 8
    }

    fn link_at(&self, block: u32) -> u64 {
        self.links + u64::from(block) * 8
    }

    /// The maximum length of a chain. Walks end there: a forged saved state on the pool may make a
    /// chain circular.
    fn blocks(&self) -> u64 {
        (self.end - self.links) / 8
    }

    /// The blocks on the chain of a run's `hash`, the latest first. Called inside an operation.
    pub(super) fn chain<'a, A: Memory>(
        &'a self,
        arena: &'a A,
        hash: u64,
    ) -> impl Iterator<Item = u32> + 'a {
        count::probe();
        let mut next = arena.load(self.head_at(hash), Ordering::Acquire) & BLOCK_MASK;
        let mut seen = None;
        (0..self.blocks()).map_while(move |_| {
            let block = (next as u32).checked_sub(1)?;
            // The links of a line's blocks share a cache line.
            let line = block / LINE_LINKS;
            if seen.replace(line) != Some(line) {
                count::probe();
            }
            next = arena.load(self.link_at(block), Ordering::Acquire) & BLOCK_MASK;
            Some(block)
        })
    }

    /// Prefetches the count of a line and the head of a chain.
    pub(super) fn prefetch<A: Memory>(&self, arena: &A, hash: u64, line: u64) {
        arena.prefetch(self.displaced + line / 8 * 8);
        arena.prefetch(self.head_at(hash));
    }

    fn lock<A: Memory>(&self, arena: &A, head_at: u64, holder: u64) -> u64 {
        let mut tries = 0;
        loop {
            let head = arena.load(head_at, Ordering::Relaxed);
            let locked = head | holder << BLOCK_BITS;
            if head >> BLOCK_BITS == 0 && arena.compare_exchange(head_at, head, locked).is_ok() {
                return head;
            }
            pause(arena, &mut tries);
        }
    }

    /// Puts a block on its run's chain. `holder` names the slot, and is not 0.
    pub(super) fn link<A: Memory>(&self, arena: &A, holder: u64, hash: u64, block: u32) {
        let head_at = self.head_at(hash);
        let first = self.lock(arena, head_at, holder);
        arena.store(self.link_at(block), first, Ordering::Release);
        arena.store(head_at, u64::from(block) + 1, Ordering::Release);
    }

    /// Takes a block off its run's chain. Its own link stays, for readers that are at this block.
    pub(super) fn unlink<A: Memory>(&self, arena: &A, holder: u64, hash: u64, block: u32) {
        let head_at = self.head_at(hash);
        let mut first = self.lock(arena, head_at, holder);
        let after = arena.load(self.link_at(block), Ordering::Acquire) & BLOCK_MASK;
        let mut link_at = None;
        let (mut here, wanted) = (first, u64::from(block) + 1);
        for _ in 0..self.blocks() {
            if here == 0 || here == wanted {
                break;
            }
            count::probe();
            let at = self.link_at(here as u32 - 1);
            link_at = Some(at);
            here = arena.load(at, Ordering::Acquire) & BLOCK_MASK;
        }
        match link_at {
            _ if here != wanted => {}
            None => first = after,
            Some(at) => arena.store(at, after, Ordering::Release),
        }
        arena.store(head_at, first, Ordering::Release);
    }

    /// Number of blocks displaced from a home line; 255 means 255 or more.
    pub(super) fn displaced<A: Memory>(&self, arena: &A, line: u64) -> u64 {
        count::probe();
        let word = arena.load(self.displaced + line / 8 * 8, Ordering::Acquire);
        word >> (line % 8 * 8) & 0xFF
    }

    /// The counts of lines `8 * index` and following, a byte each.
    pub(super) fn count_word<A: Memory>(&self, arena: &A, index: u64) -> u64 {
        arena.load(self.displaced + index * 8, Ordering::Acquire)
    }

    /// Stores what [`Self::count_word`] returned. Nothing else uses the index meanwhile.
    pub(super) fn set_count_word<A: Memory>(&self, arena: &A, index: u64, word: u64) {
        arena.store(self.displaced + index * 8, word, Ordering::Relaxed);
    }

    /// Appends `block` to a chain, after `before` or as its first. Nothing else uses the index
    /// meanwhile.
    pub(super) fn lay<A: Memory>(&self, arena: &A, chain: u64, before: Option<u32>, block: u32) {
        let to = before.map_or(self.head_at(chain), |before| self.link_at(before));
        arena.store(to, u64::from(block) + 1, Ordering::Relaxed);
        arena.store(self.link_at(block), 0, Ordering::Relaxed);
    }

    /// Counts a block as displaced from `line`, before it is linked.
    pub(super) fn raise<A: Memory>(&self, arena: &A, line: u64) {
        self.adjust(arena, line, |count| (count < 0xFF).then_some(count + 1));
    }

    /// Undoes [`Self::raise`], after the block was unlinked.
    pub(super) fn lower<A: Memory>(&self, arena: &A, line: u64) {
        self.adjust(arena, line, |count| {
            (1..0xFF).contains(&count).then(|| count - 1)
        });
    }

    fn adjust<A: Memory>(&self, arena: &A, line: u64, change: impl Fn(u64) -> Option<u64>) {
        let at = self.displaced + line / 8 * 8;
        let shift = line % 8 * 8;
        let mut seen = arena.load(at, Ordering::Relaxed);
        while let Some(count) = change(seen >> shift & 0xFF) {
            let new = seen & !(0xFF << shift) | count << shift;
            match arena.compare_exchange(at, seen, new) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

/// Limbo lists use the upper half of a link's word, because the lower half may still be read. A
/// block in limbo is on no chain.
impl Links for Overflow {
    fn set_limbo_link<A: Memory>(&self, arena: &A, block: u32, next: u32) {
        let at = self.link_at(block);
        let chain = arena.load(at, Ordering::Relaxed) & BLOCK_MASK;
        arena.store(at, u64::from(next) << BLOCK_BITS | chain, Ordering::Release);
    }

    fn limbo_link<A: Memory>(&self, arena: &A, block: u32) -> u32 {
        (arena.load(self.link_at(block), Ordering::Acquire) >> BLOCK_BITS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_media::HeapMemory;

    fn index() -> (Overflow, HeapMemory) {
        let overflow = Overflow::new(0, 16, 16);
        let arena = HeapMemory::new(overflow.end());
        (overflow, arena)
    }

    fn on_chain(overflow: &Overflow, arena: &HeapMemory, hash: u64) -> Vec<u32> {
        overflow.chain(arena, hash).collect()
    }

    #[test]
    fn links_and_unlinks_anywhere() {
        let (overflow, arena) = index();
        for block in [4, 0, 127] {
            overflow.link(&arena, 1, 3, block);
        }
        assert_eq!(on_chain(&overflow, &arena, 3), [127, 0, 4]);
        overflow.unlink(&arena, 1, 3, 0);
        assert_eq!(on_chain(&overflow, &arena, 3), [127, 4]);
        overflow.unlink(&arena, 1, 3, 127);
        overflow.unlink(&arena, 1, 3, 99);
        assert_eq!(on_chain(&overflow, &arena, 3), [4]);
        overflow.unlink(&arena, 1, 3, 4);
        assert_eq!(on_chain(&overflow, &arena, 3), [0; 0]);
        assert_eq!(arena.damaged(), None);
    }

    #[test]
    fn walks_end_on_a_circular_chain() {
        let (overflow, arena) = index();
        for block in [4, 0, 4] {
            overflow.link(&arena, 1, 3, block);
        }
        let walked = on_chain(&overflow, &arena, 3);
        assert_eq!(walked.len() as u64, overflow.blocks());
        overflow.unlink(&arena, 1, 3, 99);
        assert_eq!(on_chain(&overflow, &arena, 3), walked);
    }

    #[test]
    fn a_reader_at_an_unlinked_block_still_reaches_the_rest() {
        let (overflow, arena) = index();
        for block in [1, 2, 3] {
            overflow.link(&arena, 1, 0, block);
        }
        let mut reader = overflow.chain(&arena, 0);
        assert_eq!(reader.next(), Some(3));
        overflow.unlink(&arena, 1, 0, 2);
        overflow.set_limbo_link(&arena, 2, 77);
        assert_eq!(reader.collect::<Vec<_>>(), [2, 1]);
        assert_eq!(overflow.limbo_link(&arena, 2), 77);
    }

    #[test]
    fn counts_saturate_and_stay() {
        let (overflow, arena) = index();
        overflow.raise(&arena, 5);
        overflow.raise(&arena, 6);
        overflow.lower(&arena, 5);
        overflow.lower(&arena, 5);
        assert_eq!(
            (overflow.displaced(&arena, 5), overflow.displaced(&arena, 6)),
            (0, 1)
        );
        (0..300).for_each(|_| overflow.raise(&arena, 7));
        (0..300).for_each(|_| overflow.lower(&arena, 7));
        assert_eq!(overflow.displaced(&arena, 7), 255);
        assert_eq!(overflow.displaced(&arena, 6), 1);
    }
}
