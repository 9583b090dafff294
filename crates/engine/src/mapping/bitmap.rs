//! The free bitmap: which data blocks are free. Summaries above it make the search for the next
//! free block a few loads, however full the segment is.
//!
//! While no operation runs:
//! * The level 0 bit of a FREE block is set. Under HashFS the table is authoritative: the bit of an
//!   allocated block may also be set (an operation overtook a reclaimer), and an operation that
//!   tries to allocate this block clears the bit. Where the bitmap itself is authoritative,
//!   clearing the bit allocates the block.
//! * A bit of level `k + 1` is set exactly if its word of level `k` is not zero.

use std::ops::Range;
use std::sync::atomic::Ordering;

use vellum_media::{Memory, count};

/// Maximum number of levels: 64^5 is the largest segment, 2^30 blocks.
const LEVELS: usize = 5;

/// The first block of each bitmap word with blocks of a range, and their bits in it.
fn words_of(blocks: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    let mut first = blocks.start;
    std::iter::from_fn(move || {
        let bits = (64 - first % 64).min(blocks.end.saturating_sub(first));
        let mask = u64::MAX.checked_shr(64 - bits as u32)? << (first % 64);
        first += bits;
        Some((first - bits, mask))
    })
}

/// Where the levels lie in the arena.
#[derive(Debug)]
pub(super) struct FreeBitmap {
    at: [u64; LEVELS],
    words: [u64; LEVELS],
    depth: usize,
}

impl FreeBitmap {
    /// A bitmap of `blocks` bits at arena offset `at`.
    pub(super) fn new(at: u64, blocks: u64) -> Self {
        let mut made = Self {
            at: [at; LEVELS],
            words: [0; LEVELS],
            depth: 0,
        };
        let (mut at, mut bits) = (at, blocks);
        while made.depth < LEVELS {
            let words = bits.div_ceil(64);
            made.at[made.depth] = at;
            made.words[made.depth] = words;
            made.depth += 1;
            if words <= 1 {
                break;
            }
            at += words.next_multiple_of(8) * 8;
            bits = words;
        }
        made
    }

    /// First arena offset after the bitmap.
    pub(super) fn end(&self) -> u64 {
        let top = self.depth - 1;
        self.at[top] + self.words[top].next_multiple_of(8) * 8
    }

    fn word_at(&self, level: usize, bit: u64) -> u64 {
        self.at[level] + bit / 64 * 8
    }

    /// Prefetches the word of a block.
    pub(super) fn prefetch<A: Memory>(&self, arena: &A, block: u64) {
        arena.prefetch(self.word_at(0, block));
    }

    /// Marks a block as free. Returns whether it was not free before.
    pub(super) fn set<A: Memory>(&self, arena: &A, block: u64) -> bool {
        self.set_from(arena, 0, block)
    }

    fn set_from<A: Memory>(&self, arena: &A, from: usize, bit: u64) -> bool {
        let (mut bit, mut was_taken) = (bit, false);
        for level in from..self.depth {
            let mask = 1 << (bit % 64);
            let before = arena.fetch_or(self.word_at(level, bit), mask);
            was_taken |= level == from && before & mask == 0;
            // The thread that makes the word nonzero sets the bit above it.
            if before != 0 {
                break;
            }
            bit /= 64;
        }
        was_taken
    }

    /// Marks the blocks of a range, which no operation can find as free now, as free.
    pub(super) fn set_all<A: Memory>(&self, arena: &A, blocks: Range<u64>) {
        for (first, mask) in words_of(blocks) {
            let before = arena.fetch_or(self.word_at(0, first), mask);
            if before == 0 && self.depth > 1 {
                self.set_from(arena, 1, first / 64);
            }
        }
    }

    /// The number of free blocks of a range that begins with a word.
    pub(super) fn count<A: Memory>(&self, arena: &A, blocks: Range<u64>) -> u64 {
        let words = blocks.step_by(64).map(|first| self.word(arena, first));
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether all blocks of a range are free.
    pub(super) fn has_all<A: Memory>(&self, arena: &A, blocks: Range<u64>) -> bool {
        words_of(blocks).all(|(first, mask)| {
            count::probe();
            self.word(arena, first) & mask == mask
        })
    }

    /// Allocates all blocks of a range, if they are free. Returns whether they were.
    pub(super) fn take_all<A: Memory>(&self, arena: &A, blocks: Range<u64>) -> bool {
        let mut at = blocks.start;
        while at < blocks.end {
            let taken = self.take_run(arena, at, blocks.end - at);
            if taken == 0 {
                self.set_all(arena, blocks.start..at);
                return false;
            }
            at += taken;
        }
        true
    }

    /// Allocates the free runs of a range, `most` blocks at most. Gives back at once those shorter
    /// than `least`.
    pub(super) fn take_runs<A: Memory>(
        &self,
        arena: &A,
        (blocks, most): (Range<u64>, u64),
        least: u64,
    ) -> Vec<Range<u64>> {
        let (mut runs, mut left) = (Vec::<Range<u64>>::new(), most);
        let mut at = blocks.start;
        while at < blocks.end && left > 0 {
            let taken = self.take_run(arena, at, left);
            left -= taken;
            match runs.last_mut().filter(|last| taken > 0 && last.end == at) {
                Some(last) => last.end += taken,
                None if taken > 0 => runs.push(at..at + taken),
                None => {}
            }
            at += taken.max(1);
        }
        let is_long = |run: &Range<u64>| run.end - run.start >= least;
        let (long, short) = runs.into_iter().partition(is_long);
        let give_back = |run: Range<u64>| self.set_all(arena, run);
        Vec::into_iter(short).for_each(give_back);
        long
    }

    /// Marks a block as allocated.
    pub(super) fn clear<A: Memory>(&self, arena: &A, block: u64) {
        self.clear_from(arena, 0, block);
    }

    fn clear_from<A: Memory>(&self, arena: &A, level: usize, bit: u64) {
        let at = self.word_at(level, bit);
        let mask = 1 << (bit % 64);
        let before = arena.fetch_and(at, !mask);
        if before & mask != 0 {
            self.emptied(arena, level, bit, before & !mask);
        }
    }

    /// Updates the levels above the word of `bit` in `level`, after bits were cleared in it and
    /// `left` remained.
    fn emptied<A: Memory>(&self, arena: &A, level: usize, bit: u64, left: u64) {
        if left != 0 || level + 1 == self.depth {
            return;
        }
        self.clear_from(arena, level + 1, bit / 64);
        // A setter between the two clears found the bit above still set, or its set was lost.
        if arena.load(self.word_at(level, bit), Ordering::SeqCst) != 0 {
            self.set_from(arena, level + 1, bit / 64);
        }
    }

    /// Allocates the adjoining free blocks from `first` on, within one bitmap word, `most` at most.
    /// Returns their number.
    pub(super) fn take_run<A: Memory>(&self, arena: &A, first: u64, most: u64) -> u64 {
        let at = self.word_at(0, first);
        let shift = first % 64;
        let mut word = arena.load(at, Ordering::Relaxed);
        loop {
            let run = u64::from((word >> shift).trailing_ones()).min(most);
            if run == 0 {
                return 0;
            }
            let mask = u64::MAX >> (64 - run) << shift;
            match arena.compare_exchange(at, word, word & !mask) {
                Ok(_) => {
                    self.emptied(arena, 0, first, word & !mask);
                    return run;
                }
                Err(now) => word = now,
            }
        }
    }

    /// The bits of the 64 blocks around `block`; ones are free.
    pub(super) fn word<A: Memory>(&self, arena: &A, block: u64) -> u64 {
        arena.load(self.word_at(0, block), Ordering::Acquire)
    }

    /// Finds the first free block at or after `from`, and then from the start. Reads at most twice
    /// as many words as there are levels, unless summaries are changing.
    pub(super) fn next<A: Memory>(&self, arena: &A, from: u64) -> Option<u64> {
        self.at_or_after(arena, from)
            .or_else(|| self.at_or_after(arena, 0))
    }

    fn at_or_after<A: Memory>(&self, arena: &A, from: u64) -> Option<u64> {
        let (mut level, mut bit) = (0, from);
        loop {
            if bit / 64 >= self.words[level] {
                return None;
            }
            let word = arena.load(self.word_at(level, bit), Ordering::Acquire);
            let rest = word & (u64::MAX << (bit % 64));
            if rest == 0 {
                if level + 1 == self.depth {
                    return None;
                }
                level += 1;
                bit = bit / 64 + 1;
            } else {
                bit = bit / 64 * 64 + u64::from(rest.trailing_zeros());
                if level == 0 {
                    return Some(bit);
                }
                level -= 1;
                bit *= 64;
            }
        }
    }

    /// Stores 64 bits of level 0. [`Self::summarise`] must follow before any search.
    pub(super) fn fill<A: Memory>(&self, arena: &A, block: u64, word: u64) {
        arena.store(self.word_at(0, block), word, Ordering::Relaxed);
    }

    /// Rebuilds the upper levels from level 0, where only bits of these first blocks may be set.
    /// Nothing else uses the bitmap meanwhile.
    pub(super) fn summarise<A: Memory>(&self, arena: &A, blocks: u64) {
        let mut words = blocks.div_ceil(64);
        for level in 1..self.depth {
            words = words.div_ceil(64);
            for index in 0..words {
                let below = self.at[level - 1] + index * 64 * 8;
                let count = (self.words[level - 1] - index * 64).min(64);
                let word = (0..count).fold(0, |word, i| {
                    let nonzero = arena.load(below + i * 8, Ordering::Relaxed) != 0;
                    word | u64::from(nonzero) << i
                });
                arena.store(self.at[level] + index * 8, word, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checking::loom_memory::{LoomMemory, Part, Swaps, beside, check};
    use std::sync::Arc;
    use vellum_media::HeapMemory;

    #[test]
    fn finds_the_next_and_wraps() {
        for blocks in [1, 64, 65, 4096, 4097, 300_000] {
            let bitmap = FreeBitmap::new(64, blocks);
            let arena = HeapMemory::new(bitmap.end());
            assert_eq!(bitmap.next(&arena, 0), None);
            let last = blocks - 1;
            bitmap.set(&arena, last);
            assert_eq!(bitmap.next(&arena, 0), Some(last));
            bitmap.set(&arena, 0);
            assert_eq!(bitmap.next(&arena, 0), Some(0));
            assert_eq!(bitmap.next(&arena, blocks), Some(0), "wraps");
            bitmap.clear(&arena, 0);
            bitmap.clear(&arena, last);
            assert_eq!(bitmap.next(&arena, 0), None);
            assert_eq!(arena.damaged(), None);
        }
    }

    #[test]
    fn ranges_become_free_with_their_summaries() {
        for blocks in [1..2, 3..64, 60..130, 4000..9001, 64..4096] {
            let bitmap = FreeBitmap::new(0, 10_000);
            let arena = HeapMemory::new(bitmap.end());
            bitmap.set_all(&arena, blocks.clone());
            for block in blocks {
                assert_eq!(bitmap.next(&arena, 0), Some(block));
                bitmap.clear(&arena, block);
            }
            assert_eq!(bitmap.next(&arena, 0), None);
        }
    }

    #[test]
    fn summaries_follow_a_fill() {
        let bitmap = FreeBitmap::new(0, 100_000);
        let arena = HeapMemory::new(bitmap.end());
        bitmap.fill(&arena, 70_016, 1 << 5);
        bitmap.summarise(&arena, 100_000);
        assert_eq!(bitmap.next(&arena, 3), Some(70_016 + 5));
        bitmap.clear(&arena, 70_021);
        assert_eq!(bitmap.next(&arena, 0), None);
    }

    #[test]
    fn two_threads_leave_summaries_right() {
        let bitmap = FreeBitmap::new(0, 4096);
        let arena = HeapMemory::new(bitmap.end());
        std::thread::scope(|scope| {
            for bit in [7, 9] {
                let (bitmap, arena) = (&bitmap, &arena);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        bitmap.set(arena, bit);
                        bitmap.clear(arena, bit);
                    }
                    bitmap.set(arena, bit);
                });
            }
        });
        assert_eq!(bitmap.next(&arena, 0), Some(7));
        bitmap.clear(&arena, 7);
        assert_eq!(bitmap.next(&arena, 0), Some(9));
        bitmap.clear(&arena, 9);
        assert_eq!(bitmap.next(&arena, 0), None);
    }

    #[test]
    fn summaries_fit_whatever_comes_between() {
        check(3, Swaps::Plain, |known| {
            let bitmap = Arc::new(FreeBitmap::new(0, 4096));
            let arena = Arc::new(LoomMemory::new(known, Part::Arena, bitmap.end()));
            bitmap.set(&*arena, 7);
            let job = |job: fn(&FreeBitmap, &LoomMemory)| {
                let (bitmap, arena) = (Arc::clone(&bitmap), Arc::clone(&arena));
                Box::new(move || job(&bitmap, &arena)) as Box<dyn FnOnce() + Send>
            };
            let jobs = vec![
                job(|bitmap, arena| {
                    bitmap.clear(arena, 7);
                    bitmap.set(arena, 7);
                    bitmap.clear(arena, 7);
                }),
                job(|bitmap, arena| _ = bitmap.set(arena, 9)),
                job(|bitmap, arena| {
                    bitmap.set(arena, 11);
                    bitmap.clear(arena, 11);
                }),
            ];
            beside(&[&arena], jobs);
            assert_eq!(bitmap.next(&*arena, 0), Some(9));
            bitmap.clear(&*arena, 9);
            assert_eq!(bitmap.next(&*arena, 0), None);
        });
    }
}
