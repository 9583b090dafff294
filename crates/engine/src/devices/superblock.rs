//! Reading the superblock of a pool.

use vellum_layout::{BLOCK_BYTES, Superblock, SuperblockError, last_copy_before_datasets};
use vellum_media::PoolMemory;

use crate::error::Result;

/// Reads the current superblock.
pub(crate) fn read_superblock<P: PoolMemory>(pool: &P) -> Result<Superblock> {
    superblock_in(pool.own_bytes(), |at, block| {
        pool.read(at, block);
        Ok(())
    })
}

/// Returns the current superblock of a pool of `own_bytes` bytes; `read` reads a block.
pub(crate) fn superblock_in(
    own_bytes: u64,
    read: impl Fn(u64, &mut [u8]) -> std::io::Result<()>,
) -> Result<Superblock> {
    let block = |at| {
        let mut bytes = [0; BLOCK_BYTES as usize];
        read(at, &mut bytes).ok().map(|()| bytes)
    };
    let copy = |at| {
        let copy = Superblock::unseal(&block(at).ok_or(SuperblockError::NotVellum)?)?;
        // A superblock of a dataset behind the pool is not a copy of this one.
        if at > BLOCK_BYTES && copy.last_copy_at != at {
            return Err(SuperblockError::NotVellum);
        }
        Ok(copy)
    };
    let first = Superblock::choose([0, BLOCK_BYTES].map(copy));
    let own_last = (own_bytes / BLOCK_BYTES).saturating_sub(1) * BLOCK_BYTES;
    let last = match &first {
        // The last block may belong to a file, or to another dataset.
        Ok(copy) => copy.last_copy_at.min(own_last),
        Err(_) => own_last,
    };
    let found = Superblock::choose([0, BLOCK_BYTES, last].map(copy))
        .or_else(|error| last_copy_before_datasets(own_bytes, block).ok_or(error))?;
    found.check_readable()?;
    if found.pool_bytes > own_bytes {
        let (expected, actual) = (found.pool_bytes, own_bytes);
        return Err(SuperblockError::Truncated { expected, actual }.into());
    }
    Ok(found)
}
