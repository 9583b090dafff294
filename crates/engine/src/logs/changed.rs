//! The map of metadata blocks that changed since the replica on the external data device was last
//! whole, and the word on that device that says whether it is whole.

use std::sync::atomic::Ordering;

use vellum_layout::{
    BLOCK_BYTES, CHANGED_HEAD_BYTES, ChangedMap, REPLICA_HEAD_BYTES, ReplicaHead, ReplicaPlan,
    Superblock,
};
use vellum_media::{Disk, Persistent, PoolMemory};
use zerocopy::IntoBytes;

use crate::disk_sites;
use crate::error::Result;

/// The map of the blocks that the replica lacks.
pub(crate) struct ChangedBlocks {
    /// Pool offset of the bits.
    bits_at: u64,
    /// Blocks of metadata.
    blocks: u64,
}

impl ChangedBlocks {
    /// The map at pool offset `changed_at`.
    pub(crate) fn new(changed_at: u64, blocks: u64) -> Self {
        Self {
            bits_at: changed_at + CHANGED_HEAD_BYTES,
            blocks,
        }
    }

    /// Marks the blocks that `[at, at + len)` touches as changed. Returns whether one was not
    /// marked yet. Flushed, not fenced: a transaction is committed only when no operation is
    /// between this and a fence, and a change that is undone before that leaves the block as it was
    /// exported.
    #[inline]
    pub(crate) fn mark(&self, pool: &dyn Persistent, at: u64, len: u64) -> bool {
        let mut is_new = false;
        let end = (at + len).div_ceil(BLOCK_BYTES).min(self.blocks);
        for number in at / BLOCK_BYTES..end {
            let word = self.bits_at + number / 64 * 8;
            let bit = 1 << (number % 64);
            if pool.load(word, Ordering::Acquire) & bit == 0 {
                pool.fetch_or(word, bit);
                pool.flush(disk_sites::CARRIED_CHANGED, word, 8);
                is_new = true;
            }
        }
        is_new
    }

    /// Returns the blocks that are marked.
    pub(crate) fn marked<P: PoolMemory>(&self, pool: &P) -> Vec<u64> {
        let mut marked = Vec::new();
        for first in (0..self.blocks).step_by(64) {
            let bits = pool.load(self.bits_at + first / 8, Ordering::Acquire);
            let end = (first + 64).min(self.blocks);
            marked.extend((first..end).filter(|number| bits >> (number - first) & 1 == 1));
        }
        marked
    }
}

/// Returns the head of the replica of the pool with this superblock; `None` if it is not valid,
/// cannot be read, or belongs to another pool.
pub(crate) fn head_of(
    disk: &dyn Disk,
    plan: &ReplicaPlan,
    superblock: &Superblock,
) -> Option<ReplicaHead> {
    let mut sector = [0; REPLICA_HEAD_BYTES];
    disk.read(plan.at, &mut sector).ok()?;
    let head = ReplicaHead::unseal(&sector, superblock.uuid);
    head.filter(|head| head.blocks == plan.blocks)
}

/// Marks the replica on the device as stale, durably, before anything of the pool changes. Syncs
/// even if it is stale already, because that may have reached only the kernel.
///
/// # Errors
/// Fails if the device fails.
pub(crate) fn call_stale(disk: &dyn Disk, superblock: &Superblock) -> Result<()> {
    let Some(plan) = ReplicaPlan::of(&superblock.geometry()) else {
        return Ok(());
    };
    let head = head_of(disk, &plan, superblock);
    if head.as_ref().is_none_or(ReplicaHead::is_whole) {
        // An unreadable head is replaced by one with a number that no map has.
        let head = head.unwrap_or_else(|| ReplicaHead::whole(superblock.uuid, 0, plan.blocks, 0));
        disk.write(plan.at, head.stale().as_bytes())?;
    }
    Ok(disk.sync_data(disk_sites::CARRIED_STALE_DURABLE)?)
}

/// Makes all blocks count as changed, durably, for tools that change the pool's bytes without the
/// file system.
pub(crate) fn forget_replica<P: PoolMemory>(pool: &P, superblock: &Superblock) {
    if superblock.changed_at != 0 {
        set_since(pool, superblock.changed_at, 0);
    }
}

/// Stores which replica the map is about, durably.
pub(crate) fn set_since<P: PoolMemory>(pool: &P, changed_at: u64, number: u64) {
    let at = changed_at + ChangedMap::SINCE;
    pool.store(at, number, Ordering::Release);
    pool.flush(disk_sites::CARRIED_SINCE, at, 8);
    pool.fence(disk_sites::CARRIED_SINCE_DURABLE);
}
