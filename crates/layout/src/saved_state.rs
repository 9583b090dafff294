//! The allocator state of a segment's mapping that a clean close saves behind the mapping table, so
//! that opening need not read the whole table. It is never a second truth: it is valid only while
//! the pool is closed, at the epoch in which it was saved, and only if the table agrees.
//!
//! A head of 64 bytes, then in whole words: the free bitmap, the displaced counters, the chain map,
//! the chains. A *displaced* block lies outside its home line; it is on the chain of its run.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::BLOCK_BYTES;
use crate::checksum::checksum_words;
use crate::segment::chain_count;

/// The head of the saved allocator state.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct SavedStateHead {
    /// The pool's epoch, as in the state word of the close that saved the state.
    pub epoch: u64,
    /// Blocks that are UNWRITTEN or MAPPED.
    pub used: u64,
    /// Displaced blocks: the number of links of all chains.
    pub displaced: u64,
    /// CRC-32C of the words behind the head.
    pub body_check: u32,
    /// CRC-32C of the four words `epoch`, `used`, `displaced`, `body_check`.
    pub checksum: u32,
    /// Reserved, zero.
    pub reserved: [u64; 4],
}

const _: () = assert!(size_of::<SavedStateHead>() == 64);

impl SavedStateHead {
    /// A sound head.
    pub fn new(epoch: u32, used: u64, displaced: u64, body_check: u32) -> Self {
        let mut new = Self {
            epoch: u64::from(epoch),
            used,
            displaced,
            body_check,
            ..Self::default()
        };
        new.checksum = new.expected_checksum();
        new
    }

    /// Whether the head is sound and from the close at `epoch`.
    pub fn is_sound(&self, epoch: u32) -> bool {
        self.checksum == self.expected_checksum() && self.epoch == u64::from(epoch)
    }

    fn expected_checksum(&self) -> u32 {
        let body = u64::from(self.body_check);
        checksum_words(&[self.epoch, self.used, self.displaced, body])
    }
}

/// One block of a chain: 32 bits, two to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLink(pub u32);

impl ChainLink {
    const LAST: u32 = 1 << 31;

    /// Packs the link of `block` (30 bits); `last` marks the end of its chain.
    pub fn new(block: u32, last: bool) -> Self {
        Self(block & 0x3FFF_FFFF | if last { Self::LAST } else { 0 })
    }

    /// The block.
    pub fn block(self) -> u32 {
        self.0 & 0x3FFF_FFFF
    }

    /// Whether the next link begins another chain.
    pub fn is_last(self) -> bool {
        self.0 & Self::LAST != 0
    }
}

/// The layout of the saved allocator state. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedStatePlan {
    /// Offset of the head.
    pub at: u64,
    /// Data blocks in the segment.
    pub blocks: u64,
    /// Home lines in its mapping table. Mappings without home lines have 0, and nothing behind the
    /// free bitmap.
    pub lines: u64,
}

impl SavedStatePlan {
    /// Number of chains.
    pub fn chains(&self) -> u64 {
        match self.lines {
            0 => 0,
            _ => chain_count(self.blocks),
        }
    }

    /// Offset of the free bitmap: one bit per block.
    pub fn free_at(&self) -> u64 {
        self.at + size_of::<SavedStateHead>() as u64
    }

    /// Words of the free bitmap.
    pub fn free_words(&self) -> u64 {
        self.blocks.div_ceil(64)
    }

    /// Offset of the displaced counters: one byte per line.
    pub fn counts_at(&self) -> u64 {
        self.free_at() + self.free_words() * 8
    }

    /// Words of the displaced counters.
    pub fn count_words(&self) -> u64 {
        self.lines.div_ceil(8)
    }

    /// Offset of the chain map: one bit per chain.
    pub fn map_at(&self) -> u64 {
        self.counts_at() + self.count_words() * 8
    }

    /// Words of the chain map.
    pub fn map_words(&self) -> u64 {
        self.chains().div_ceil(64)
    }

    /// Offset of the chains: two links per word.
    pub fn links_at(&self) -> u64 {
        self.map_at() + self.map_words() * 8
    }

    /// Words behind the head if `displaced` blocks are on chains.
    pub fn body_words(&self, displaced: u64) -> u64 {
        (self.links_at() - self.free_at()) / 8 + displaced.div_ceil(2)
    }

    /// Reserved bytes: enough for all blocks to be on chains.
    pub fn bytes(&self) -> u64 {
        let displaced_max = if self.lines == 0 { 0 } else { self.blocks };
        (self.free_at() + self.body_words(displaced_max) * 8 - self.at)
            .next_multiple_of(BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_in_whole_words() {
        for blocks in [8, 64, 72, 184, 4096, 1 << 30] {
            let lines = blocks / 8;
            let plan = SavedStatePlan {
                at: 4096,
                blocks,
                lines,
            };
            assert!(plan.free_words() * 64 >= blocks);
            assert!(plan.count_words() * 64 >= blocks);
            assert!(plan.map_words() * 64 >= plan.chains());
            let end = plan.free_at() + plan.body_words(blocks) * 8;
            assert_eq!(end, plan.links_at() + blocks * 4);
            assert!(plan.at + plan.bytes() >= end);
        }
    }

    #[test]
    fn a_head_is_of_its_epoch_only() {
        let head = SavedStateHead::new(5, 1, 2, 3);
        assert!(head.is_sound(5) && !head.is_sound(6));
        assert!(!SavedStateHead { used: 2, ..head }.is_sound(5));
        assert!(!SavedStateHead::default().is_sound(0), "zeros are no head");
    }
}
