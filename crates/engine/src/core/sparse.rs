//! The space of the file system below for the data blocks of a sparse pool.
//!
//! A sparse pool's file has no space for most free blocks. A store to such a block through a
//! mapping would raise SIGBUS on a full disk, and a call would fail too late. So whoever allocates
//! blocks makes sure of their space first, by groups; the arena knows which groups have all of
//! theirs. Trimming gives the space of free blocks back.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vellum_layout::BLOCK_BYTES;
use vellum_media::{Medium, Memories, Memory};

use crate::core::Core;
use crate::error::{Error, Result};

/// Blocks of a group. HashFS begins runs of half a MiB anywhere, so larger ones would waste space.
const GROUP_BLOCKS: u64 = 64;

/// Which groups have their space.
#[derive(Debug)]
pub(crate) struct Sparse {
    /// Arena words: one bit a group, set if all its blocks have space. A bit changes, and the file
    /// with it, under the lock.
    at: u64,
    lock: Mutex<()>,
}

impl Sparse {
    /// For a pool whose bits are at arena offset `at`.
    pub(crate) fn new(at: u64) -> Self {
        Self {
            at,
            lock: Mutex::default(),
        }
    }

    /// Bytes of the arena for a pool that may come to have `blocks` blocks.
    pub(crate) fn arena_bytes(blocks: u64) -> u64 {
        blocks.div_ceil(GROUP_BLOCKS).div_ceil(64) * 8
    }

    fn bit(&self, group: u64) -> (u64, u64) {
        (self.at + group / 64 * 8, 1 << (group % 64))
    }

    fn locked(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Memories> Core<M> {
    /// Makes sure that blocks which were just allocated, and which nobody has stored to, have space
    /// in the file system below.
    ///
    /// # Errors
    /// Fails with [`Error::NoSpace`] if that is full, or with its error.
    #[inline]
    pub(crate) fn provide(&self, first: u64, blocks: u64) -> Result<()> {
        match &self.sparse {
            None => Ok(()),
            Some(sparse) => self.provide_groups(sparse, first..first + blocks),
        }
    }

    fn provide_groups(&self, sparse: &Sparse, blocks: Range<u64>) -> Result<()> {
        let groups = blocks.start / GROUP_BLOCKS..blocks.end.div_ceil(GROUP_BLOCKS);
        for group in groups {
            let (at, bit) = sparse.bit(group);
            if self.arena.load(at, Ordering::Acquire) & bit != 0 {
                continue;
            }
            let _locked = sparse.locked();
            let whole = group * GROUP_BLOCKS..((group + 1) * GROUP_BLOCKS).min(self.blocks());
            if self.provide_blocks(&whole).is_ok() {
                self.arena.fetch_or(at, bit);
                continue;
            }
            // Nearly full: there may be space for these alone.
            let part = blocks.start.max(whole.start)..blocks.end.min(whole.end);
            self.provide_blocks(&part)?;
        }
        Ok(())
    }

    fn provide_blocks(&self, blocks: &Range<u64>) -> Result<()> {
        let (at, len) = self.bytes_of(blocks);
        let provided = self.pool.provide(at, len);
        provided.map_err(|error| match Error::from(error) {
            error if error.errno() == libc::ENOSPC => Error::NoSpace("the file system below"),
            error => error,
        })
    }

    /// Gives the space of free blocks, which no operation can allocate now, back to the file system
    /// or device below. Returns whether it took it.
    pub(crate) fn give_back(&self, blocks: &Range<u64>) -> bool {
        let _locked = self.sparse.as_ref().map(Sparse::locked);
        let (at, len) = self.bytes_of(blocks);
        let given = self.pool.give_back(at, len).is_ok();
        if let Some(sparse) = &self.sparse {
            for group in blocks.start / GROUP_BLOCKS..blocks.end.div_ceil(GROUP_BLOCKS) {
                let (at, bit) = sparse.bit(group);
                self.arena.fetch_and(at, !bit);
            }
        }
        given
    }

    fn bytes_of(&self, blocks: &Range<u64>) -> (u64, u64) {
        let at = self.geometry.data_at + blocks.start * BLOCK_BYTES;
        (at, (blocks.end - blocks.start) * BLOCK_BYTES)
    }
}
