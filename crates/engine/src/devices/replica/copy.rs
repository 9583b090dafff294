//! Completing the replica after a pool was closed.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering;

use vellum_layout::{
    BLOCK_BYTES, CHANGED_HEAD_BYTES, ChangedMap, REPLICA_SUM_BYTES, ReplicaHead, ReplicaPlan,
    Superblock,
};
use vellum_media::{Disk, ImageMemory, Memories, PoolMemory};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::disk_sites;
use crate::error::{MediumError, Result};
use crate::logs::changed::{ChangedBlocks, head_of, set_since};

/// The results of completing a replica.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
/// # let external = vellum::DataOptions::new(&data).size_bytes(16 << 20);
/// # let options = vellum::CreateOptions::new(0).media(vellum::MediaChoice::Memory);
/// # options.data(Some(external)).create(&path)?.close_and_export(false, &|_, _| {})?;
/// let pool = vellum::Pool::open(&path)?;
/// let replica = pool.close_and_export(false, &|_, _| {})?;
/// assert_eq!(replica.number, 2); // exported before
/// assert!(replica.changed < replica.blocks);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedReplica {
    /// Blocks of metadata in all.
    pub blocks: u64,
    /// Blocks that had changed, or may have, including those of zeros.
    pub changed: u64,
    /// Blocks of metadata that were written.
    pub written: u64,
    /// Blocks of checksums that were written.
    pub sums_written: u64,
    /// How often the replica was completed.
    pub number: u64,
}

/// Completes the replica of a closed pool: copies the blocks that changed since it last was whole,
/// or, with `all`, all of them. `tell` is called with the numbers of blocks that are done, and of
/// all.
///
/// # Errors
/// Fails if the device has no replica, or fails: then the replica is stale.
pub(crate) fn make_whole<M: Memories>(
    core: &Core<M>,
    superblock: &Superblock,
    all: bool,
    tell: &dyn Fn(u64, u64),
) -> Result<ExportedReplica> {
    let plan = ReplicaPlan::of(&core.geometry).ok_or(MediumError::NoReplica)?;
    let disk = core.pool.disk().ok_or(MediumError::NoReplica)?;
    let number = head_of(disk, &plan, superblock).map_or(0, |head| head.number);
    let mut copy = Copy {
        pool: &core.pool,
        disk,
        plan,
        superblock,
        table: vec![0; plan.table_bytes() as usize],
        dirty: BTreeSet::new(),
        written: 0,
    };
    let listed = if all { None } else { copy.changed_blocks() };
    let changed = match &listed {
        Some(listed) => copy.put_all(listed.iter().copied(), listed.len() as u64, tell)?,
        None => {
            copy.dirty = (0..plan.table_bytes() / BLOCK_BYTES).collect();
            copy.put_all(0..plan.blocks, plan.blocks, tell)?
        }
    };
    core.check_media()?;
    copy.finish(number + 1)?;
    Ok(ExportedReplica {
        blocks: plan.blocks,
        changed,
        written: copy.written,
        sums_written: copy.dirty.len() as u64,
        number: number + 1,
    })
}

/// A replica that is being completed.
struct Copy<'a, P> {
    pool: &'a P,
    disk: &'a dyn Disk,
    plan: ReplicaPlan,
    superblock: &'a Superblock,
    /// The checksums of blocks.
    table: Vec<u8>,
    /// Blocks of the table that have to be written.
    dirty: BTreeSet<u64>,
    /// Blocks of metadata that were written.
    written: u64,
}

impl<P: PoolMemory> Copy<'_, P> {
    /// Returns the blocks that changed since the replica was last whole, and loads their checksums
    /// into the table. `None`: all may have changed, because the map is about another replica, or
    /// the checksums are not those of the last whole one.
    fn changed_blocks(&mut self) -> Option<Vec<u64>> {
        let changed_at = self.superblock.changed_at;
        let since = self
            .pool
            .load(changed_at + ChangedMap::SINCE, Ordering::Acquire);
        let head = head_of(self.disk, &self.plan, self.superblock)?;
        if since == 0 || head.number != since {
            return None;
        }
        let read = self.disk.read(self.plan.table_at(), &mut self.table);
        if read.is_err() || ReplicaPlan::table_sum(&self.superblock.uuid, &self.table) != head.sum {
            self.table.fill(0);
            return None;
        }
        let map = ChangedBlocks::new(changed_at, self.plan.blocks);
        // Tools rewrite superblocks without marking them.
        let superblocks = self.superblock.state_at / BLOCK_BYTES;
        let marked = map.marked(self.pool).into_iter();
        let others = marked.filter(|&number| number >= superblocks);
        Some((0..superblocks).chain(others).collect())
    }

    /// Copies blocks, and stores their checksums in the table. Returns how many.
    fn put_all(
        &mut self,
        numbers: impl Iterator<Item = u64>,
        of: u64,
        tell: &dyn Fn(u64, u64),
    ) -> io::Result<u64> {
        let mut done = 0;
        for number in numbers {
            self.put(number)?;
            done += 1;
            tell(done, of);
        }
        Ok(done)
    }

    /// Copies a block, unless it is all zeros.
    fn put(&mut self, number: u64) -> io::Result<()> {
        let mut block = [0; BLOCK_BYTES as usize];
        self.pool.read(number * BLOCK_BYTES, &mut block);
        let sum = ReplicaPlan::block_sum(&self.superblock.uuid, number, &block);
        if sum != 0 {
            self.disk.write(self.plan.block_at(number), &block)?;
            self.written += 1;
        }
        let at = number * REPLICA_SUM_BYTES;
        self.table[at as usize..][..REPLICA_SUM_BYTES as usize].copy_from_slice(&sum.to_le_bytes());
        self.dirty.insert(at / BLOCK_BYTES);
        Ok(())
    }

    /// Writes the checksums, then marks the replica as whole, then clears the map.
    fn finish(&self, number: u64) -> Result<()> {
        for &block in &self.dirty {
            let at = block * BLOCK_BYTES;
            let sums = &self.table[at as usize..][..BLOCK_BYTES as usize];
            self.disk.write(self.plan.table_at() + at, sums)?;
        }
        self.disk.sync_data(disk_sites::CARRIED_BLOCKS_DURABLE)?;
        let uuid = self.superblock.uuid;
        let sum = ReplicaPlan::table_sum(&uuid, &self.table);
        let head = ReplicaHead::whole(uuid, number, self.plan.blocks, sum);
        self.disk.write(self.plan.at, head.as_bytes())?;
        self.disk.sync_data(disk_sites::CARRIED_WHOLE_DURABLE)?;
        self.clear_map(number);
        Ok(())
    }

    /// Clears the map and makes it about this replica. After a power cut in between the map is
    /// about an older replica, and all blocks count as changed.
    fn clear_map(&self, number: u64) {
        let changed_at = self.superblock.changed_at;
        let bits = self.plan.map_bytes() - CHANGED_HEAD_BYTES;
        let at = changed_at + CHANGED_HEAD_BYTES;
        self.pool.zero_through(disk_sites::CARRIED_SINCE, at, bits);
        set_since(self.pool, changed_at, number);
    }
}
