//! Creating a pool from the replica on an external data device.
//!
//! The device changes only its identity, last, by one sector. Until then it belongs to the pool
//! that it came from, and the new one is refused; from then on it is the other way round. The
//! replica stays whole until the new pool is opened for writing.

use std::io;
use std::path::{Path, PathBuf};

use vellum_layout::{
    BLOCK_BYTES, ChangedMap, CommittedWord, DevicePaths, Geometry, MEDIUM_HEAD_BYTES, MediumHead,
    PoolHeader, REPLICA_HEAD_BYTES, REPLICA_SUM_BYTES, ReplicaHead, ReplicaPlan, Superblock,
};
use vellum_media::{
    DataFile, Disk, MappedPool, MediaChoice, MediaError, MediaKind, Medium, PoolMemory,
};
use zerocopy::IntoBytes;

use crate::devices::medium;
use crate::disk_sites;
use crate::error::MediumError;
use crate::error::Result;

/// Options of creating a pool from a device.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
/// use vellum::{AttachOptions, MediaChoice, Pool};
/// # let external = vellum::DataOptions::new(&data).size_bytes(16 << 20);
/// # let options = vellum::CreateOptions::new(0).media(MediaChoice::Memory);
/// # let options = options.data(Some(external));
/// # options.create(&path)?.close_and_export(false, &|_, _| {})?;
///
/// let options = AttachOptions { data, media: MediaChoice::Auto, overwrite: true };
/// Pool::attach(&path, &options, &|_, _| {})?; // replaces the pool that was exported
/// Pool::open(&path)?;
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// The external data device.
    pub data: PathBuf,
    /// The pool's medium: memory, or persistent memory.
    pub media: MediaChoice,
    /// Overwrites an existing file or device, whatever it holds.
    pub overwrite: bool,
}

/// Creates a pool at `path` from the replica on a device, which gets the identity `id`. Returns the
/// pool's superblock. `tell` is called with the numbers of blocks that are done, and of all. A file
/// that was created is removed again on failure.
///
/// # Errors
/// Fails if the path exists or is not in memory; if the device is in use, or has no replica, or one
/// that is stale or damaged; or if either fails.
pub(crate) fn attach_medium(
    path: &Path,
    options: &AttachOptions,
    id: [u8; 16],
    tell: &dyn Fn(u64, u64),
) -> Result<Superblock> {
    let is_there = path.symlink_metadata().is_ok();
    let at_path = || path.to_owned();
    if is_there && !options.overwrite {
        return Err(MediaError::Exists { path: at_path() }.into());
    }
    let file = DataFile::open(&options.data, false)?;
    let name = medium::name(path, &options.data)?;
    let copy = ReplicaSource::find(&file, file.path(), file.len())?;
    let bytes = copy.superblock.pool_bytes;
    let make = if options.overwrite {
        MappedPool::overwrite
    } else {
        MappedPool::create
    };
    let made = make(path, bytes, options.media).map_err(crate::error::Error::from);
    let made = made.and_then(|pool| {
        if pool.kind() == MediaKind::File {
            return Err(MediumError::Unordered { path: at_path() }.into());
        }
        let known_zero = pool.known_zero();
        copy.attach(&pool, id, &name, known_zero, tell)
    });
    if made.is_err() && !is_there {
        // The new file is useless. An error of removing it does not matter.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// A whole replica on a device, which is read by its own offsets.
pub(crate) struct ReplicaSource<'a> {
    disk: &'a dyn Disk,
    /// The device's path, for messages.
    path: &'a Path,
    plan: ReplicaPlan,
    /// How often the replica was completed.
    number: u64,
    /// The checksums of blocks.
    table: Vec<u8>,
    /// The superblock of the pool that exported it.
    superblock: Superblock,
}

impl<'a> ReplicaSource<'a> {
    /// Finds the replica on a device of `len` bytes.
    ///
    /// # Errors
    /// Fails if this is no data device, or it has no replica, or one that is stale or damaged.
    pub(crate) fn find(disk: &'a dyn Disk, path: &'a Path, len: u64) -> Result<Self> {
        let medium = medium_head(disk).ok_or_else(|| MediumError::NoMedium {
            path: path.to_owned(),
        })?;
        if medium.replica_at == 0 {
            return Err(MediumError::NotAReplica {
                path: path.to_owned(),
            }
            .into());
        }
        let (plan, head) = whole_copy(disk, path, &medium, len)?;
        let mut table = vec![0; plan.table_bytes() as usize];
        let read = disk.read(plan.table_at(), &mut table);
        if read.is_err() || ReplicaPlan::table_sum(&medium.pool, &table) != head.sum {
            return Err(damaged(path, "the checksums of the metadata").into());
        }
        let first = read_block(disk, &plan, &table, &medium.pool, 0);
        let superblock = first.and_then(|block| Superblock::unseal(&block).ok());
        let superblock = superblock.ok_or_else(|| damaged(path, "the superblock"))?;
        superblock.check_readable()?;
        superblock.check_writable()?;
        // The pool's device may have had another identity when the replica was written.
        let expected = head_with(&superblock, medium.id).1;
        if expected.map(|head| head.in_session(medium.session)) != Some(medium) {
            return Err(damaged(path, "the superblock").into());
        }
        Ok(Self {
            disk,
            path,
            plan,
            number: head.number,
            table,
            superblock,
        })
    }

    /// Creates the pool, then makes the device its own by the new identity `id`. `name` is the path
    /// of the device that the pool stores. The earlier bytes of the pool are lost.
    ///
    /// # Errors
    /// Fails if the replica is damaged, which leaves the device unchanged, or if a medium fails.
    pub(crate) fn attach<P: PoolMemory>(
        &self,
        pool: &P,
        id: [u8; 16],
        name: &[u8],
        known_zero: bool,
        tell: &dyn Fn(u64, u64),
    ) -> Result<Superblock> {
        let (superblock, head) = head_with(&self.superblock, id);
        self.make_pool(pool, &superblock, name, known_zero, tell)?;
        if let Some(head) = head {
            self.hand_over(&head)?;
        }
        Ok(superblock)
    }

    /// Creates the pool, with this superblock.
    fn make_pool<P: PoolMemory>(
        &self,
        pool: &P,
        superblock: &Superblock,
        name: &[u8],
        known_zero: bool,
        tell: &dyn Fn(u64, u64),
    ) -> Result<()> {
        let geometry = superblock.geometry();
        pool.zero_through(disk_sites::ATTACH_WIPE, 0, 2 * BLOCK_BYTES);
        let last = geometry.last_copy_at;
        pool.zero_through(disk_sites::ATTACH_WIPE, last, BLOCK_BYTES);
        pool.fence(disk_sites::ATTACH_WIPE_DURABLE);
        self.fill(pool, &geometry, known_zero, tell)?;
        let site = disk_sites::ATTACH_POOL;
        let committed = CommittedWord::new(0).0.to_le_bytes();
        let header = geometry.undo_at + PoolHeader::COMMITTED;
        pool.write_through(site, header, &committed);
        // The replica has everything but the superblocks, which the map does not cover.
        let since = self.number.to_le_bytes();
        pool.write_through(site, superblock.changed_at + ChangedMap::SINCE, &since);
        let places = DevicePaths::of_data(superblock.segments[0].medium_id, name);
        pool.write_through(site, superblock.media_at, places.as_bytes());
        for at in [last, BLOCK_BYTES, 0] {
            pool.write_through(site, at, superblock.as_bytes());
        }
        pool.fence(disk_sites::ATTACH_POOL_DURABLE);
        Ok(pool.sync()?)
    }

    /// Copies the metadata behind the superblocks, and zeros behind the metadata.
    fn fill<P: PoolMemory>(
        &self,
        pool: &P,
        geometry: &Geometry,
        known_zero: bool,
        tell: &dyn Fn(u64, u64),
    ) -> Result<()> {
        let site = disk_sites::ATTACH_POOL;
        let first = geometry.state_at / BLOCK_BYTES;
        for number in first..self.plan.blocks {
            let at = number * BLOCK_BYTES;
            if sum_of(&self.table, number) != 0 {
                let pool_id = &self.superblock.uuid;
                let block = read_block(self.disk, &self.plan, &self.table, pool_id, number);
                let block = block.ok_or_else(|| damaged(self.path, "a block of metadata"))?;
                pool.write_through(site, at, &block);
            } else if !known_zero {
                pool.zero_through(site, at, BLOCK_BYTES);
            }
            tell(number + 1, self.plan.blocks);
        }
        if !known_zero {
            let behind = geometry.image_end();
            pool.zero_through(site, behind, geometry.last_copy_at - behind);
        }
        Ok(())
    }

    /// Makes the device belong to the pool with this head. The copy of the head is valid only if
    /// the head cannot be read.
    fn hand_over(&self, head: &MediumHead) -> io::Result<()> {
        self.disk.write(0, head.as_bytes())?;
        self.disk.sync(disk_sites::ATTACH_MEDIUM_DURABLE)?;
        self.disk.write(head.copy_at(), head.as_bytes())?;
        self.disk.sync(disk_sites::ATTACH_MEDIUM_COPY_DURABLE)
    }
}

/// Creates a pool in `pool`, whose bytes may be known to be zero, from the replica on a device of
/// `len` bytes, which gets the identity `id`: for experiments in which neither has a path.
///
/// # Errors
/// Fails as [`crate::Pool::attach`].
pub fn attach_copy<P: PoolMemory>(
    disk: &dyn Disk,
    len: u64,
    (pool, known_zero): (&P, bool),
    id: [u8; 16],
) -> Result<Superblock> {
    let copy = ReplicaSource::find(disk, Path::new("the medium"), len)?;
    copy.attach(pool, id, b"data", known_zero, &|_, _| {})
}

/// Returns the location of the replica on a device of `len` bytes with this head, and the replica's
/// own head, which marks it as whole.
fn whole_copy(
    disk: &dyn Disk,
    path: &Path,
    medium: &MediumHead,
    len: u64,
) -> Result<(ReplicaPlan, ReplicaHead)> {
    let mut sector = [0; REPLICA_HEAD_BYTES];
    let head = disk.read(medium.replica_at, &mut sector).ok();
    let head = head.and_then(|()| ReplicaHead::unseal(&sector, medium.pool));
    let head = head
        .filter(ReplicaHead::is_whole)
        .ok_or_else(|| MediumError::Stale {
            path: path.to_owned(),
        })?;
    let plan = ReplicaPlan {
        at: medium.replica_at,
        blocks: head.blocks,
    };
    let end = plan.at.checked_add(plan.bytes());
    if plan.bytes() != medium.replica_bytes || end.is_none_or(|end| end > len) {
        return Err(damaged(path, "the size").into());
    }
    Ok((plan, head))
}

fn damaged(path: &Path, what: &'static str) -> MediumError {
    MediumError::ReplicaDamaged {
        path: path.to_owned(),
        what,
    }
}

/// Returns the superblock of a pool whose device has this identity, and the head of that device.
fn head_with(superblock: &Superblock, id: [u8; 16]) -> (Superblock, Option<MediumHead>) {
    // Other datasets of that pool are not on the device.
    let mut superblock = superblock.without_datasets();
    superblock.segments[0].medium_id = id;
    superblock.seal();
    let head = MediumHead::of(&superblock);
    (superblock, head)
}

/// Returns the head of a device. Its copy cannot be located without the pool.
fn medium_head(disk: &dyn Disk) -> Option<MediumHead> {
    let mut sector = [0; MEDIUM_HEAD_BYTES];
    disk.read(0, &mut sector).ok()?;
    MediumHead::unseal(&sector)
}

fn sum_of(table: &[u8], number: u64) -> u64 {
    let at = (number * REPLICA_SUM_BYTES) as usize;
    let sum = table.get(at..).and_then(|rest| rest.first_chunk());
    sum.map_or(0, |&sum| u64::from_le_bytes(sum))
}

/// Returns a block of the replica, if its checksum is right.
fn read_block(
    disk: &dyn Disk,
    plan: &ReplicaPlan,
    table: &[u8],
    pool: &[u8; 16],
    number: u64,
) -> Option<[u8; BLOCK_BYTES as usize]> {
    let mut block = [0; BLOCK_BYTES as usize];
    disk.read(plan.block_at(number), &mut block).ok()?;
    (ReplicaPlan::block_sum(pool, number, &block) == sum_of(table, number)).then_some(block)
}
