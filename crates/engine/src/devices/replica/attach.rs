//! Making a pool of what an external data device carries.
//!
//! On the medium one thing changes, last and by one sector: its identity. Before that the pool that
//! it came from has it, and the new one is refused; from then on it is the other way round. The
//! copy stays whole until the new pool is opened for writing.

use std::io;
use std::path::{Path, PathBuf};

use vellum_layout::{
    BLOCK_BYTES, ChangedMap, CommittedWord, DevicePaths, Geometry, MEDIUM_HEAD_BYTES, MediumHead,
    PoolHeader, REPLICA_HEAD_BYTES, REPLICA_SUM_BYTES, ReplicaHead, ReplicaPlan, Superblock,
};
use vellum_media::{DataFile, Disk, MappedPool, MediaChoice, MediaError, MediaKind, Persistent};
use zerocopy::IntoBytes;

use crate::devices::medium;
use crate::disk_sites;
use crate::error::MediumError;
use crate::error::Result;

/// How a pool is to be made of a medium.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// The external data device.
    pub data: PathBuf,
    /// What the pool is to lie on: memory, or persistent memory.
    pub media: MediaChoice,
    /// Use a file or device that exists, whatever it holds.
    pub overwrite: bool,
}

/// Makes a pool at `path` of what a medium carries, which gets the identity `id`; gives its
/// superblock. `tell` is told how many blocks of how many are done. A file that was made is removed
/// if that fails.
///
/// # Errors
/// The path exists, or is no memory; the medium is in use, carries no copy, or one that is stale or
/// damaged; what either said.
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
        // The file is ours and useless; whether it goes cannot change the answer.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// A whole copy on a medium, which is reached by offsets of its own.
pub(crate) struct ReplicaSource<'a> {
    disk: &'a dyn Disk,
    /// Where the medium is, told to people.
    path: &'a Path,
    plan: ReplicaPlan,
    /// How often it was made whole.
    number: u64,
    /// The sums of blocks.
    table: Vec<u8>,
    /// That of the pool that it was made of.
    superblock: Superblock,
}

impl<'a> ReplicaSource<'a> {
    /// Finds the copy on a medium of `len` bytes.
    ///
    /// # Errors
    /// No medium of data, one that carries none, a stale or damaged one.
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
            return Err(damaged(path, "the sums of the metadata").into());
        }
        let first = read_block(disk, &plan, &table, &medium.pool, 0);
        let superblock = first.and_then(|block| Superblock::unseal(&block).ok());
        let superblock = superblock.ok_or_else(|| damaged(path, "the superblock"))?;
        superblock.check_readable()?;
        superblock.check_writable()?;
        // Its own medium may have had another identity when the copy was made.
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

    /// Makes the pool, then the medium its own, by the new identity `id`; `name` is what the pool
    /// is to call the medium. What the pool's bytes hold is gone.
    ///
    /// # Errors
    /// The copy is damaged: the medium was not changed. What the medium said.
    pub(crate) fn attach<P: Persistent>(
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

    /// Makes the pool, with this superblock.
    fn make_pool<P: Persistent>(
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
        // The copy has all but the superblocks, which no map is about.
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

    /// Copies the metadata behind the superblocks; what lies behind them is empty.
    fn fill<P: Persistent>(
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

    /// Gives the medium to whoever knows it by this head. The copy of the head counts only where
    /// the head cannot be read.
    fn hand_over(&self, head: &MediumHead) -> io::Result<()> {
        self.disk.write(0, head.as_bytes())?;
        self.disk.sync(disk_sites::ATTACH_MEDIUM_DURABLE)?;
        self.disk.write(head.copy_at(), head.as_bytes())?;
        self.disk.sync(disk_sites::ATTACH_MEDIUM_COPY_DURABLE)
    }
}

/// Makes a pool, in bytes that may be known to be zero, of what a medium of `len` bytes carries,
/// which gets the identity `id`: for experiments, in which neither has a path.
///
/// # Errors
/// As for [`crate::Pool::attach`].
pub fn attach_copy<P: Persistent>(
    disk: &dyn Disk,
    len: u64,
    (pool, known_zero): (&P, bool),
    id: [u8; 16],
) -> Result<Superblock> {
    let copy = ReplicaSource::find(disk, Path::new("the medium"), len)?;
    copy.attach(pool, id, b"data", known_zero, &|_, _| {})
}

/// Where the copy lies on a medium of `len` bytes with this head, and its own head, which says that
/// it is whole.
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

/// The superblock of the pool whose medium has this identity, and the head of that medium.
fn head_with(superblock: &Superblock, id: [u8; 16]) -> (Superblock, Option<MediumHead>) {
    // Other datasets of that pool are not on the medium.
    let mut superblock = superblock.without_datasets();
    superblock.segments[0].medium_id = id;
    superblock.seal();
    let head = MediumHead::of(&superblock);
    (superblock, head)
}

/// The head of a medium. Where its copy lies is known to whoever knows the medium only.
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

/// A block of the copy, if it is what was written.
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
