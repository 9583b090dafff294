//! The blocks of files that were written since the last cut: a few offsets, or *many*.

use crate::memory::BLOCK_BYTES;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most blocks whose offsets are remembered.
const FEW: usize = 32;

/// The blocks of files that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Their offsets, ascending.
    Few(Vec<u64>),
    /// More than are remembered.
    Many,
}

/// Remembers written blocks. Each writer adds its blocks within an operation that a cut waits for.
pub(crate) struct WrittenBlocks(Mutex<Noted>);

/// Offsets of blocks, ascending, as long as they are few.
struct Noted {
    places: [u64; FEW],
    /// Number of blocks; more than the array holds means *many*.
    count: usize,
}

impl Noted {
    /// Adds a block, unless there are too many already.
    fn add(&mut self, at: u64) {
        let Some(few) = self.places.get(..self.count) else {
            return;
        };
        if let Err(place) = few.binary_search(&at) {
            if self.count < FEW {
                self.places.copy_within(place..self.count, place + 1);
                self.places[place] = at;
            }
            self.count += 1;
        }
    }
}

impl WrittenBlocks {
    /// An empty set.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Noted {
            places: [0; FEW],
            count: 0,
        }))
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the blocks that `[at, at + len)` touches.
    pub(crate) fn note(&self, at: u64, len: u64) {
        let mut noted = self.noted();
        for block in at / BLOCK_BYTES..at.saturating_add(len).div_ceil(BLOCK_BYTES) {
            if noted.count > FEW {
                return;
            }
            noted.add(block * BLOCK_BYTES);
        }
    }

    /// Returns the blocks, and forgets them.
    pub(crate) fn take(&self) -> Written {
        let mut noted = self.noted();
        let count = std::mem::take(&mut noted.count);
        let few = noted.places.get(..count);
        few.map_or(Written::Many, |few| Written::Few(few.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_blocks_are_remembered_once_each_and_many_as_many() {
        let written = WrittenBlocks::new();
        assert_eq!(written.take(), Written::Few(vec![]));
        written.note(8192, 100);
        written.note(4000, 200);
        written.note(8200, 1);
        assert_eq!(written.take(), Written::Few(vec![0, 4096, 8192]));
        assert_eq!(written.take(), Written::Few(vec![]));
        written.note(0, FEW as u64 * BLOCK_BYTES);
        written.note(0, 8);
        let few = Written::Few((0..FEW as u64).map(|block| block * BLOCK_BYTES).collect());
        assert_eq!(written.take(), few);
        written.note(0, FEW as u64 * BLOCK_BYTES + 1);
        assert_eq!(written.take(), Written::Many);
    }
}
