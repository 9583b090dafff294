//! Growing a pool that is open.
//!
//! The new bytes become blocks of a segment of the pool itself, directly behind segment 0, or more
//! blocks of that segment. Each step leaves a whole pool of the old or of the new size:
//!
//! 1. Chunks for the words of the new blocks are allocated, if the mapping has such words. After a
//!    crash they wait for the next growth.
//! 2. The file gets the bytes, durably. The pool knows nothing of them.
//! 3. All of this is made durable, and the copies of the superblock equal.
//! 4. The superblock of the new size goes over its copies: the last one, at its new place, the
//!    second, the first. The second one commits.
//! 5. The blocks become known, and free. The old place of the last copy is one of them.

use std::sync::PoisonError;

use vellum_layout::{BLOCK_BYTES, Geometry, LINE_ENTRIES, Superblock, TablePlan, table_chunks};
use vellum_media::{Medium, Memories};

use crate::error::{Error, Location, ResizeError, Result};
use crate::fs::Fs;
use crate::pool::{copies, grow};

/// The segment that a pool gets by growing.
const OWN_SEGMENT: u32 = 1;

impl<M: Memories> Fs<M> {
    /// Makes the pool as large as this many bytes, rounded down to whole blocks, while it is in
    /// use. A file grows with it, and takes space for its new blocks at once, unless the pool is
    /// sparse. Everything before is durable when this returns. Returns the new size, in bytes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// let fs = pool.fs();
    /// let before = fs.stat_fs().blocks;
    /// assert_eq!(fs.grow(64 << 20)?, 64 << 20);
    /// assert_eq!(fs.stat_fs().blocks, before + (48 << 20) / 4096);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails with [`Error::Resize`] if the pool cannot get this size; if it is read only, damaged
    /// or closed; if the file or device has no room; and if the medium fails. After a failure of
    /// the medium the pool has the old size or, after the next opening, the new one.
    ///
    /// A file that would become larger than `RLIMIT_FSIZE` permits is such a failure only if the
    /// process ignores or catches `SIGXFSZ`. Else that signal ends it, as at any other write.
    pub fn grow(&self, pool_bytes: u64) -> Result<u64> {
        let core = &self.core;
        // One growth at a time, and a close waits for it.
        let _growth = self.growth.lock();
        let superblock = self.superblock();
        core.check_use()?;
        core.check_changeable()?;
        let larger = self.larger(&superblock, pool_bytes)?;
        let geometry = larger.geometry();
        self.allocate_words(&geometry)?;
        let is_sparse = superblock.is_sparse();
        core.pool
            .extend(superblock.pool_bytes, larger.pool_bytes, is_sparse)?;
        if is_sparse {
            core.pool.provide(larger.last_copy_at, BLOCK_BYTES)?;
        }
        self.sync()?;
        copies::settle_table(&core.pool, &superblock)?;
        copies::move_table(&core.pool, &larger)?;
        self.mapping.grow(core, &geometry);
        let bytes = larger.pool_bytes;
        let known = self.superblock.write();
        *known.unwrap_or_else(PoisonError::into_inner) = larger;
        Ok(bytes)
    }

    /// The most bytes that the pool can [grow](Self::grow) to until it is closed.
    ///
    /// ```
    /// let pool = vellum::Pool::memory(16 << 20)?;
    /// assert!(pool.fs().grows_to() >= 64 << 30);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn grows_to(&self) -> u64 {
        let geometry = self.superblock().geometry();
        match self.most_blocks > geometry.blocks() {
            true => geometry.data_at + (self.most_blocks + 1) * BLOCK_BYTES,
            false => geometry.pool_bytes,
        }
    }

    /// The superblock of the larger pool.
    fn larger(&self, now: &Superblock, pool_bytes: u64) -> Result<Superblock> {
        let geometry = now.geometry();
        let refused = |why| Err(Error::Resize(why));
        if geometry.external.is_some() {
            return refused(ResizeError::ExternalData);
        }
        if !geometry.mapping.takes_segments() {
            return refused(ResizeError::Mapping(geometry.mapping.name()));
        }
        if pool_bytes <= now.pool_bytes {
            let bytes = now.pool_bytes;
            return refused(ResizeError::Smaller {
                bytes,
                wanted: pool_bytes,
            });
        }
        if now.datasets().any(|part| part.at < pool_bytes) {
            return refused(ResizeError::Followed);
        }
        let blocks = geometry.blocks() + LINE_ENTRIES;
        // The last copy of the superblock lies behind them.
        let least = geometry.data_at + (blocks + 1) * BLOCK_BYTES;
        if pool_bytes < least {
            return refused(ResizeError::TooLittle { least });
        }
        let Some(larger) = now.grown(pool_bytes) else {
            return refused(ResizeError::TooLarge);
        };
        if self.most_blocks <= geometry.blocks() {
            return refused(ResizeError::AsOpened);
        }
        if larger.geometry().blocks() > self.most_blocks {
            return refused(ResizeError::WhileOpen {
                most: self.grows_to(),
            });
        }
        Ok(larger)
    }

    /// Allocates chunks for the words of the blocks of the larger pool.
    fn allocate_words(&self, larger: &Geometry) -> Result<()> {
        let added = larger.added.blocks();
        let chunks = table_chunks(larger.mapping, added, larger.chunk_bytes);
        if !grow::set_table_aside(self, OWN_SEGMENT, chunks)? {
            let chunk_bytes = larger.chunk_bytes;
            return Err(ResizeError::NoRoom {
                chunks,
                chunk_bytes,
            }
            .into());
        }
        // Of two chunks for the same words neither would be trusted.
        let core = &self.core;
        match TablePlan::of(larger, |at| core.word(at)).missing() {
            [] => Ok(()),
            _ => {
                let place = Location::Offset(larger.chunk_table_at);
                Err(Error::damaged("table of an added segment", place))
            }
        }
    }
}
