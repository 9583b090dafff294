//! Which blocks of files were written since the last cut: a few by their places, or many.

use crate::memory::BLOCK_BYTES;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks that are remembered by their places, at most.
const FEW: usize = 32;

/// Blocks of files that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// These, by their offsets, ascending.
    Few(Vec<u64>),
    /// More than are remembered.
    Many,
}

/// Remembers blocks. Whoever writes a block notes it, in an operation that a cut waits for.
pub(crate) struct WrittenBlocks(Mutex<Option<BTreeSet<u64>>>);

impl WrittenBlocks {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Some(BTreeSet::new())))
    }

    /// `None`: many.
    fn few(&self) -> MutexGuard<'_, Option<BTreeSet<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the blocks that `[at, at + len)` touches.
    pub(crate) fn note(&self, at: u64, len: u64) {
        let mut few = self.few();
        let blocks = at / BLOCK_BYTES..at.saturating_add(len).div_ceil(BLOCK_BYTES);
        for block in blocks {
            let Some(known) = &mut *few else {
                return;
            };
            known.insert(block * BLOCK_BYTES);
            if known.len() > FEW {
                *few = None;
            }
        }
    }

    /// Gives what was noted, and forgets it.
    pub(crate) fn take(&self) -> Written {
        match self.few().replace(BTreeSet::new()) {
            Some(few) => Written::Few(few.into_iter().collect()),
            None => Written::Many,
        }
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
