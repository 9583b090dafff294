//! Giving the space of free blocks back to the file system or device below.

use vellum_layout::BLOCK_BYTES;
use vellum_media::{Medium, Memories};

use super::Fs;
use crate::error::{Error, Result};

/// Blocks held back at a time: whole words of the bitmap of free blocks, and few, because others
/// wait for the end of an operation.
const HELD_BLOCKS: u64 = 256;

impl<M: Memories> Fs<M> {
    /// Gives the space of free data blocks back to the file system or device below, in runs of at
    /// least `least_bytes`, as fstrim(8) does. Operations go on meanwhile. Returns the bytes given
    /// back; those of an earlier call may be among them. `tell` is called with the number of blocks
    /// looked at, and of all.
    ///
    /// ```
    /// # use std::os::unix::fs::MetadataExt;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// let pool = vellum::CreateOptions::new(64 << 20).sparse(true).create(&path)?;
    /// let volume = pool.volume();
    /// volume.write("/f", vec![7; 8 << 20])?;
    /// volume.remove_file("/f")?;
    /// let before = std::fs::metadata(&path)?.blocks();
    /// assert!(pool.fs().trim(0, &|_, _| {})? >= 8 << 20);
    /// assert!(std::fs::metadata(&path)?.blocks() <= before - (7 << 20) / 512);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails with [`Error::Unsupported`] unless the pool is sparse or lies on a device, and if it
    /// is read only, damaged or closed.
    pub fn trim(&self, least_bytes: u64, tell: &dyn Fn(u64, u64)) -> Result<u64> {
        let core = &self.core;
        core.check_writable()?;
        if core.sparse.is_none() && !core.pool.is_on_device() {
            return Err(Error::Unsupported(
                "trimming a pool whose file has all its space: stores rely on that, unless it was \
                 made as a sparse one",
            ));
        }
        // Blocks of files removed so far become free, once that is durable.
        self.maintain()?;
        self.sync()?;
        self.maintain()?;
        let least = least_bytes.div_ceil(BLOCK_BYTES).max(1);
        let (all, mut trimmed) = (core.blocks(), 0);
        for first in (0..all).step_by(HELD_BLOCKS as usize) {
            let blocks = first..all.min(first + HELD_BLOCKS);
            trimmed += self.with_room(|op| Ok(self.mapping.trim(op, blocks.clone(), least)))?;
            tell(blocks.end, all);
        }
        Ok(trimmed * BLOCK_BYTES)
    }
}
