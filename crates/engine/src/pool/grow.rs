//! Adding an external data device to a pool, as one more data segment.
//!
//! A segment is added in three steps, each of which leaves a complete pool. First the opened pool
//! allocates chunks for the words of the segment's blocks, if its mapping has such words. After a
//! crash they wait for the next segment of that number. Then the device gets its head. Last, while
//! nobody has the pool open, its superblock is written with one more segment. That commits it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use vellum_layout::{
    AddedSegment, ChunkKind, DevicePaths, MediumHead, PoolPhase, SEGMENTS_MAX, Superblock,
    table_chunks,
};
use vellum_media::{DataFile, MappedPool, Memories, OpenMode};

use super::copies;
use super::datasets::{self, PoolPath};
use super::lifecycle::check_at_rest;
use super::{DataOptions, Pool, PoolOptions, fill_random};
use crate::devices::medium;
use crate::devices::superblock::read_superblock;
use crate::error::{Result, SegmentError};
use crate::fs::Fs;

/// Allocates chunks in a dataset for the words of a segment that will be added, one for each of
/// `parts`. Returns whether there are enough. If not, it allocates none, unless others take chunks
/// at the same time. It leaves one chunk free, which names may need.
///
/// # Errors
/// Fails if the pool is read only or damaged.
pub fn set_table_aside<M: Memories>(fs: &Fs<M>, segment: u32, parts: u64) -> Result<bool> {
    fs.with_op(|op| {
        let core = op.core;
        let has = core.table_parts(segment);
        let mut lacks = (0..parts).filter(|part| !has.contains(part));
        let is_room =
            lacks.clone().count() as u64 <= core.free_slots_of(ChunkKind::Free).saturating_sub(1);
        Ok(is_room && lacks.all(|part| core.take_table_chunk(segment, part)))
    })
}

/// A pool that gets one more segment.
struct Plan {
    pool: PathBuf,
    superblock: Superblock,
    number: u32,
}

impl Plan {
    /// # Errors
    /// Fails if the pool cannot have another segment.
    fn of(pool: &Path, superblock: Superblock) -> std::result::Result<Self, SegmentError> {
        let (pool, geometry) = (pool.to_owned(), superblock.geometry());
        if geometry.external.is_none() {
            return Err(SegmentError::NoExternalData { pool });
        }
        if !geometry.mapping.takes_segments() {
            let mapping = geometry.mapping.name();
            return Err(SegmentError::Mapping { pool, mapping });
        }
        if geometry.changed_at != 0 {
            return Err(SegmentError::HasReplica { pool });
        }
        let number = 1 + geometry.added.iter().count();
        if number >= SEGMENTS_MAX {
            return Err(SegmentError::Full { pool });
        }
        Ok(Self {
            pool,
            superblock,
            number: number as u32,
        })
    }

    /// Returns the superblock with this segment.
    fn with(&self, segment: AddedSegment) -> std::result::Result<Superblock, SegmentError> {
        let larger = self.superblock.with_segment(segment);
        let sound = larger.filter(|larger| larger.check_readable().is_ok());
        sound.ok_or_else(|| SegmentError::TooLarge {
            pool: self.pool.clone(),
        })
    }

    /// Opens the pool and allocates chunks for this segment.
    fn set_aside(&self, segment: &AddedSegment, options: &PoolOptions) -> Result<()> {
        let geometry = self.superblock.geometry();
        let chunks = table_chunks(geometry.mapping, segment.blocks, geometry.chunk_bytes);
        let pool = options.open(&self.pool)?;
        let has_room = set_table_aside(&pool.fs(), self.number, chunks);
        pool.close()?;
        match has_room? {
            true => Ok(()),
            false => Err(SegmentError::NoRoom {
                pool: self.pool.clone(),
                bytes: segment.blocks * vellum_layout::BLOCK_BYTES,
                chunks,
                chunk_bytes: geometry.chunk_bytes,
            }
            .into()),
        }
    }

    /// Writes the heads of the new device. Returns the locked pool, which does not know the segment
    /// yet.
    fn make_medium(&self, file: &DataFile, larger: &Superblock) -> Result<MappedPool> {
        let pool = datasets::open_own(&PoolPath::of(&self.pool), OpenMode::default())?;
        let now = read_superblock(&pool)?;
        let page_bytes = pool.page_bytes() as u64;
        if !now.geometry().data_bytes().is_multiple_of(page_bytes) {
            let pool = self.pool.clone();
            return Err(SegmentError::Pages { pool, page_bytes }.into());
        }
        // The log or undo log is applied to the pool's bytes in private memory.
        let view = pool.to_read(now.pool_bytes)?;
        if now != self.superblock || check_at_rest(&view)? != Some(PoolPhase::Clean) {
            let pool = self.pool.clone();
            return Err(SegmentError::Used { pool }.into());
        }
        let places = medium::places_of(&pool, &now);
        let session = DevicePaths::sessions(&places).map_or(0, |[session, _]| session);
        let heads = MediumHead::all(larger);
        let head = heads[self.number as usize].in_session(session);
        if file.len() < head.bytes {
            let pool = self.pool.clone();
            return Err(SegmentError::Used { pool }.into());
        }
        medium::write_heads(file, &head)?;
        let name = medium::name(&self.pool, file.path())?;
        medium::tell_place(&pool, &now, &places, (head.id, &name))?;
        copies::settle_table(&pool, &now)?;
        Ok(pool)
    }
}

impl Pool {
    /// Adds an external data device to the pool at `path`, or to the dataset that it names, which
    /// nobody may use meanwhile. The pool gets as many more bytes for data. `options` are for the
    /// opening in which the pool allocates metadata for the device.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// use vellum::{CreateOptions, DataOptions, Pool, PoolOptions};
    ///
    /// let first = DataOptions::new(dir.path().join("first")).size_bytes(16 << 20);
    /// CreateOptions::new(0).data(Some(first)).has_replica(false).create(&path)?.close()?;
    /// let second = DataOptions::new(dir.path().join("second")).size_bytes(32 << 20);
    /// Pool::add_data(&path, &second, &PoolOptions::new())?;
    /// assert_eq!(Pool::open(&path)?.fs().data_devices().count(), 2);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the pool is in use, is damaged or can have no further device ([`SegmentError`]), or
    /// if the device exists or is too small. The pool does not change then. A device that was
    /// written stays if writing the pool failed.
    pub fn add_data(
        path: impl AsRef<Path>,
        data: &DataOptions,
        options: &PoolOptions,
    ) -> Result<AddedSegment> {
        let path = path.as_ref();
        let superblock = {
            let pool = datasets::open_own(&PoolPath::of(path), OpenMode::default())?;
            read_superblock(&pool)?
        };
        let plan = Plan::of(path, superblock)?;
        plan.refuse_own_medium(&data.path)?;
        // Checked before anything is overwritten.
        let segment = plan.segment_on(data)?;
        let larger = plan.with(segment)?;
        plan.set_aside(&segment, options)?;
        let file = DataFile::create(&data.path, data.size_bytes, data.overwrite)?;
        let prepared = plan.make_medium(&file, &larger).inspect_err(|_| {
            // An overwritten device has lost its old bytes; a new file belongs to no pool yet.
            let _ = (!data.overwrite).then(|| std::fs::remove_file(&data.path));
        });
        // From here on the device may be the pool's, even if this fails.
        copies::write_table(&prepared?, &larger)?;
        Ok(segment)
    }
}

impl Plan {
    /// Refuses a device that has data of a dataset of the pool: no lock protects it now.
    fn refuse_own_medium(&self, path: &Path) -> Result<()> {
        let node = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
        let pool = PoolPath::of(&self.pool).pool;
        let medium = path.to_owned();
        if node(path).is_ok_and(|medium| node(&pool).is_ok_and(|pool| pool == medium)) {
            return Err(SegmentError::Taken { medium }.into());
        }
        let Ok(file) = DataFile::open(path, true) else {
            // `DataFile::create` reports what is wrong.
            return Ok(());
        };
        let all = Pool::datasets(pool)?;
        match all.iter().any(|fs| fs.has_data_on(&file)) {
            true => Err(SegmentError::Taken { medium }.into()),
            false => Ok(()),
        }
    }

    /// Returns the segment for which the device has space.
    fn segment_on(&self, data: &DataOptions) -> Result<AddedSegment> {
        let bytes = match data.size_bytes {
            0 => DataFile::open(&data.path, true)?.len(),
            bytes => bytes,
        };
        let mut id = [0; 16];
        fill_random(&mut id)?;
        let room = medium::room(&data.path, bytes, id, 0)?;
        Ok(AddedSegment {
            id,
            at: room.at,
            blocks: room.data_bytes / vellum_layout::BLOCK_BYTES,
        })
    }
}
