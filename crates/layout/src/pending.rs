//! The pending stores of a conversion between namespaces: decided, and perhaps not all done. There
//! are more of them than a journal record holds. They lie in a chain of otherwise unused metadata
//! blocks, which begins with the block in [`crate::PoolState::PENDING`]. They are valid while the
//! state word says so ([`crate::StateWord::converting`]).

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::checksum::Summing;
use crate::{BLOCK_BYTES, SLOTS_PER_BLOCK};

/// Stores in a block.
pub const PENDING_MAX: usize = (BLOCK_BYTES as usize - PendingBlock::STORES as usize) / 16;

/// A store: a word, or a range of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PendingStore {
    /// Pool offset. If bit 0 is set, the store is a range of zeros instead of a word.
    pub at: u64,
    /// The word, or the length of the range in bytes, a multiple of 8.
    pub value: u64,
}

impl PendingStore {
    /// The word `value` at pool offset `at`.
    pub const fn word(at: u64, value: u64) -> Self {
        Self { at, value }
    }

    /// Zeros over `bytes` from pool offset `at` on.
    pub const fn zeros(at: u64, bytes: u64) -> Self {
        let at = at | 1;
        Self { at, value: bytes }
    }

    /// Offset and length of the range of zeros, if this is not a word.
    pub fn as_zeros(self) -> Option<(u64, u64)> {
        (self.at & 1 == 1).then_some((self.at & !1, self.value))
    }
}

/// A block of stores. All of them are durable before the first store of the next block is done;
/// stores within a block have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PendingBlock {
    /// Metadata slot of the next block, or 0.
    pub next: u64,
    /// Stores in this one, 1 to 252.
    pub count: u32,
    /// CRC-32C of three words (the block's own slot, `next`, `count`), then of the stores.
    pub checksum: u32,
    /// Reserved, zero.
    pub reserved: [u64; 6],
    /// The stores; zeros behind them.
    pub stores: [PendingStore; PENDING_MAX],
}

const _: () = assert!(size_of::<PendingBlock>() == BLOCK_BYTES as usize);

impl PendingBlock {
    /// Offset of the first store.
    pub const STORES: u64 = 64;

    /// Seals a block at metadata slot `slot`, whose next block is at `next`.
    ///
    /// # Panics
    /// Panics if `stores` is empty or exceeds a block.
    pub fn new(slot: u64, next: u64, stores: &[PendingStore]) -> Self {
        assert!((1..=PENDING_MAX).contains(&stores.len()));
        let mut block = Self::new_zeroed();
        block.next = next;
        block.count = stores.len() as u32;
        block.stores[..stores.len()].copy_from_slice(stores);
        block.checksum = block.expected_checksum(slot, stores);
        block
    }

    /// The stores, if the block is sound for metadata slot `slot`.
    pub fn stores(&self, slot: u64) -> Option<&[PendingStore]> {
        let stores = self.stores.get(..self.count as usize)?;
        let is_sound = !stores.is_empty()
            && self.reserved == [0; 6]
            && self.next.is_multiple_of(SLOTS_PER_BLOCK)
            && self.checksum == self.expected_checksum(slot, stores);
        is_sound.then_some(stores)
    }

    fn expected_checksum(&self, slot: u64, stores: &[PendingStore]) -> u32 {
        let mut sum = Summing::default();
        sum.add_words(&[slot, self.next, self.count.into()]);
        sum.add(stores.as_bytes());
        sum.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_sound_at_its_own_place_only() {
        let stores = [PendingStore::word(64, 7), PendingStore::zeros(4096, 8192)];
        let block = PendingBlock::new(32, 64, &stores);
        assert_eq!(block.stores(32), Some(&stores[..]));
        assert_eq!(block.stores(64), None);
        let zeros = stores.map(PendingStore::as_zeros);
        assert_eq!(zeros, [None, Some((4096, 8192))]);
        for at in (0..BLOCK_BYTES as usize).step_by(5) {
            let mut bytes = [0; BLOCK_BYTES as usize];
            bytes.copy_from_slice(block.as_bytes());
            bytes[at] ^= 4;
            let changed = PendingBlock::read_from_bytes(&bytes).unwrap();
            let behind = at >= PendingBlock::STORES as usize + size_of_val(&stores);
            assert_eq!(changed.stores(32).is_some(), behind, "byte {at}");
        }
    }
}
