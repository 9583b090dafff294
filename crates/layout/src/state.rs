//! The state block: whether the pool was closed cleanly, which process has it open, and its epoch.

use crate::checksum::checksum_words;

/// Whether the pool was closed cleanly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolPhase {
    /// Closed cleanly: saved maps are valid.
    Clean,
    /// Open, or not closed cleanly.
    Dirty,
}

/// Word 0 of the state block: phase (bits 0..8: 1 clean, 2 dirty, 3 and 4 under repair, 5 under
/// conversion), epoch (8..32), check (32..64). The epoch grows by one with every opening for
/// writing and tags `nv_pointer`s. The check is in the same word because one store commits the
/// word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateWord(pub u64);

impl StateWord {
    /// Packs the word; the epoch keeps 24 bits.
    pub fn new(phase: PoolPhase, epoch: u32) -> Self {
        let phase = match phase {
            PoolPhase::Clean => 1,
            PoolPhase::Dirty => 2,
        };
        Self::pack(phase, epoch)
    }

    /// The word of a pool with an unfinished repair: phase 3 if it had been closed cleanly, 4
    /// otherwise. Everything but a repair treats it as unsound.
    pub fn repairing(was_clean: bool, epoch: u32) -> Self {
        Self::pack(if was_clean { 3 } else { 4 }, epoch)
    }

    /// The word of a cleanly closed pool whose conversion is decided: the stores that
    /// [`PoolState::PENDING`] leads to must be done before anything else.
    pub fn converting(epoch: u32) -> Self {
        Self::pack(5, epoch)
    }

    /// The epoch, if a conversion was decided and not finished.
    pub fn conversion(self) -> Option<u32> {
        let epoch = self.epoch();
        (Self::converting(epoch) == self).then_some(epoch)
    }

    fn pack(phase: u64, epoch: u32) -> Self {
        let low = phase | u64::from(epoch & 0xFF_FFFF) << 8;
        Self(low | u64::from(checksum_words(&[low])) << 32)
    }

    /// Whether the pool had been closed cleanly, and its epoch, if a repair was not finished.
    pub fn repair(self) -> Option<(bool, u32)> {
        let epoch = self.epoch();
        [true, false]
            .into_iter()
            .find(|&was_clean| Self::repairing(was_clean, epoch) == self)
            .map(|was_clean| (was_clean, epoch))
    }

    fn epoch(self) -> u32 {
        (self.0 >> 8) as u32 & 0xFF_FFFF
    }

    /// Phase and epoch, if the word is sound.
    pub fn get(self) -> Option<(PoolPhase, u32)> {
        let epoch = self.epoch();
        let phase = match self.0 & 0xFF {
            1 => PoolPhase::Clean,
            2 => PoolPhase::Dirty,
            _ => return None,
        };
        (Self::new(phase, epoch) == self).then_some((phase, epoch))
    }
}

/// Word offsets of the state block.
#[derive(Debug)]
pub struct PoolState;

impl PoolState {
    /// [`StateWord`].
    pub const WORD: u64 = 0;
    /// Boot id (16 bytes) of the last opening for writing.
    pub const BOOT_ID: u64 = 8;
    /// Process id of the last opening for writing.
    pub const PID: u64 = 24;
    /// Time of that opening, nanoseconds since 1970.
    pub const OPENED: u64 = 32;
    /// Second line, valid when clean: CRC-32C of the saved live map.
    pub const LIVE_MAP_CHECK: u64 = 64;
    /// Inodes in use, as of the last clean close.
    pub const INODES: u64 = 72;
    /// Data blocks in use, as of the last clean close.
    pub const BLOCKS: u64 = 80;
    /// CRC-32C of the two words before and the live map's check.
    pub const SAVED_CHECK: u64 = 88;
    /// Metadata slot of the first [`crate::PendingBlock`], while a conversion is not finished.
    pub const PENDING: u64 = 128;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_under_repair_is_in_no_phase() {
        for was_clean in [true, false] {
            let word = StateWord::repairing(was_clean, 9);
            assert_eq!((word.get(), word.repair()), (None, Some((was_clean, 9))));
            assert_eq!(StateWord(word.0 ^ 1 << 33).repair(), None);
        }
        let closed = StateWord::new(PoolPhase::Clean, 9);
        assert_eq!((closed.repair(), closed.conversion()), (None, None));
        let word = StateWord::converting(9);
        assert_eq!((word.get(), word.repair()), (None, None));
        assert_eq!(word.conversion(), Some(9));
    }
}
