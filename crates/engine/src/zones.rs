//! Zones that a pool comes to have after it was made ([`vellum_layout::AddedZones`]): more data media.
//!
//! A zone is added in three steps, each of which leaves a whole pool. The pool, opened as ever, sets chunks aside for the words of the zone's blocks, if its
//! mapping has such; what a crash leaves of that waits for the zone to come. Then the medium is made, with its head. Then, while nobody has the pool
//! open, its superblock is written with one more zone: from there on there is one.

use std::path::{Path, PathBuf};

use thiserror::Error;
use vellum_layout::{
    AddedZone, ChunkKind, ChunkWord, MediumHead, MediumPlaces, PoolPhase, Superblock, TablePlan,
    ZONES_MAX, can_be_added_to, table_chunks,
};
use vellum_media::{DataFile, MappedPool, Memories, OpenMode};

use crate::core::Core;
use crate::error::{Error, Place, Result};
use crate::fs::Fs;
use crate::medium;
use crate::mount::{check_at_rest, read_superblock};
use crate::parts::{self, PoolPath};
use crate::pool::{DataOptions, Pool, PoolOptions, fill_random};
use crate::session::Heads;

/// Why a pool gets no further data medium.
#[derive(Debug, Error)]
pub enum ZoneError {
    /// Its data are not on media of their own.
    #[error("{}: its data lie in the pool itself; further data media are for pools whose data have one already (`vellum mkfs --data`)", pool.display())]
    NotApart {
        /// The pool.
        pool: PathBuf,
    },
    /// Its mapping has a table of one size.
    #[error("{}: the table of its file mapping, {mapping}, is made for the blocks that there are: data media can be added with hashfs, radix, extent and extent-cached", pool.display())]
    Mapping {
        /// The pool.
        pool: PathBuf,
        /// Its mapping.
        mapping: &'static str,
    },
    /// Its data medium carries a copy of its metadata.
    #[error("{}: its data medium carries a copy of its metadata, to be a file system alone, which it would not be with a second one: data media can be added to pools that were made with --no-copy", pool.display())]
    Carried {
        /// The pool.
        pool: PathBuf,
    },
    /// It has as many as it can.
    #[error("{}: a pool has at most {ZONES_MAX} data media", pool.display())]
    Full {
        /// The pool.
        pool: PathBuf,
    },
    /// More blocks than can be named.
    #[error("{}: the data media of a pool have at most 4 TiB together", pool.display())]
    TooLarge {
        /// The pool.
        pool: PathBuf,
    },
    /// The metadata are full.
    #[error("{}: the metadata have no room for the table of {bytes} bytes of data, which takes {chunks} free chunks of {chunk_bytes} bytes; remove files, or add a smaller medium", pool.display())]
    NoRoom {
        /// The pool.
        pool: PathBuf,
        /// Bytes of the medium's data.
        bytes: u64,
        /// Chunks.
        chunks: u64,
        /// Bytes of each.
        chunk_bytes: u64,
    },
    /// It has data of the pool already.
    #[error("{}: this has data of the pool already; nothing was changed", medium.display())]
    Taken {
        /// The medium.
        medium: PathBuf,
    },
    /// Somebody was quicker.
    #[error("{}: somebody used the pool meanwhile; nothing was added, try again", pool.display())]
    Used {
        /// The pool.
        pool: PathBuf,
    },
}

impl<M: Memories> Core<M> {
    /// The chunks with the words of added zone `number`.
    fn table_chunks_of(&self, number: u32) -> impl Iterator<Item = u64> {
        (0..self.geometry.meta_chunks).filter(move |&chunk| {
            let word = ChunkWord(self.word(self.geometry.chunk_table_at + chunk * 8));
            word.decode(chunk) == Some((ChunkKind::Table, number as u8))
        })
    }

    /// Where the words of the table of blocks lie, of a mapping that has one.
    ///
    /// # Errors
    /// An added zone has fewer chunks than its words take.
    pub(crate) fn table_plan(&self) -> Result<TablePlan> {
        let plan = TablePlan::of(&self.geometry, |at| self.word(at));
        let damaged = || {
            let place = Place::Offset(self.geometry.chunk_table_at);
            Error::damaged("table of an added zone", place)
        };
        plan.is_whole().then_some(plan).ok_or_else(damaged)
    }
}

/// Has a file system set chunks aside for the words of a zone that is to be added, so that it has `wanted` of them; whether there were as many.
///
/// # Errors
/// Read only, damaged.
pub fn set_table_aside<M: Memories>(fs: &Fs<M>, zone: u32, wanted: u64) -> Result<bool> {
    fs.with_op(|op| {
        let core = op.core;
        let mut has = core.table_chunks_of(zone).count() as u64;
        while has < wanted && core.take_table_chunk(zone) {
            has += 1;
        }
        Ok(has >= wanted)
    })
}

/// What a pool says that is to get one more zone.
struct Plan {
    pool: PathBuf,
    superblock: Superblock,
    number: u32,
}

impl Plan {
    /// # Errors
    /// It can have no further zone.
    fn of(pool: &Path, superblock: Superblock) -> std::result::Result<Self, ZoneError> {
        let (pool, geometry) = (pool.to_owned(), superblock.geometry());
        if geometry.apart.is_none() {
            return Err(ZoneError::NotApart { pool });
        }
        if !can_be_added_to(geometry.mapping) {
            let mapping = geometry.mapping.name();
            return Err(ZoneError::Mapping { pool, mapping });
        }
        if geometry.changed_at != 0 {
            return Err(ZoneError::Carried { pool });
        }
        let number = 1 + geometry.added.iter().count();
        if number >= ZONES_MAX {
            return Err(ZoneError::Full { pool });
        }
        Ok(Self {
            pool,
            superblock,
            number: number as u32,
        })
    }

    /// The superblock with this zone.
    fn with(&self, zone: AddedZone) -> std::result::Result<Superblock, ZoneError> {
        let larger = self.superblock.with_zone(zone);
        let sound = larger.filter(|larger| larger.check_readable().is_ok());
        sound.ok_or_else(|| ZoneError::TooLarge {
            pool: self.pool.clone(),
        })
    }

    /// Has the pool set chunks aside for this zone.
    fn set_aside(&self, zone: &AddedZone, options: &PoolOptions) -> Result<()> {
        let geometry = self.superblock.geometry();
        let chunks = table_chunks(geometry.mapping, zone.blocks, geometry.chunk_bytes);
        let pool = Pool::open(&self.pool, options)?;
        let has_room = set_table_aside(&pool.fs(), self.number, chunks);
        pool.close()?;
        match has_room? {
            true => Ok(()),
            false => Err(ZoneError::NoRoom {
                pool: self.pool.clone(),
                bytes: zone.blocks * vellum_layout::BLOCK_BYTES,
                chunks,
                chunk_bytes: geometry.chunk_bytes,
            }
            .into()),
        }
    }

    /// Makes the medium the zone's; gives the pool, locked, in which nothing says so yet.
    fn make_medium(&self, file: &DataFile, larger: &Superblock) -> Result<MappedPool> {
        let pool = parts::open_own(&PoolPath::of(&self.pool), OpenMode::default())?;
        let now = read_superblock(&pool)?;
        // What commits left is laid over the pool's bytes, in memory of ours.
        let view = pool.to_read(now.pool_bytes)?;
        if now != self.superblock || check_at_rest(&view)? != Some(PoolPhase::Clean) {
            let pool = self.pool.clone();
            return Err(ZoneError::Used { pool }.into());
        }
        let places = medium::places_of(&pool, &now);
        let session = MediumPlaces::sessions(&places).map_or(0, |[session, _]| session);
        let heads = MediumHead::all(larger);
        let head = heads[self.number as usize].in_session(session);
        medium::write_heads(file, &head)?;
        let name = medium::name(&self.pool, file.path())?;
        medium::tell_place(&pool, now.media_at, &places, (head.id, &name))?;
        parts::settle_table(&pool, &now)?;
        Ok(pool)
    }
}

impl Pool {
    /// Adds a data medium to the pool at `path`, or to the part that it names, which nobody uses: as many more bytes for data. `options` are for the opening
    /// in which the pool sets room aside for it.
    ///
    /// # Errors
    /// The pool is in use, damaged, or can have no further medium ([`ZoneError`]); the medium exists, or is too small. The pool is as it was then. A medium that
    /// was made stays if it is the pool that could not be written.
    pub fn add_data(
        path: impl AsRef<Path>,
        data: &DataOptions,
        options: &PoolOptions,
    ) -> Result<AddedZone> {
        let path = path.as_ref();
        let superblock = {
            let pool = parts::open_own(&PoolPath::of(path), OpenMode::default())?;
            read_superblock(&pool)?
        };
        let plan = Plan::of(path, superblock)?;
        plan.refuse_own_medium(&data.path)?;
        let file = DataFile::create(&data.path, data.size_bytes, data.overwrite)?;
        let prepared = plan.prepare(&file, options).inspect_err(|_| {
            // What had its bytes before has lost them; a file that was made is nobody's.
            let _ = (!data.overwrite).then(|| std::fs::remove_file(&data.path));
        });
        let (pool, larger, zone) = prepared?;
        // From here on it may be the pool's, also where that fails.
        parts::write_table(&pool, &larger)?;
        Ok(zone)
    }
}

impl Plan {
    /// Refuses a medium that has data of a file system of the pool: nobody has that locked now.
    fn refuse_own_medium(&self, path: &Path) -> Result<()> {
        let Ok(file) = DataFile::open(path, true) else {
            // Who makes it says what is wrong.
            return Ok(());
        };
        let is_its = |expected: &MediumHead| {
            let heads = Heads::find(&file, Some(expected));
            heads.is_some_and(|heads| heads.counts.id == expected.id)
        };
        let medium = path.to_owned();
        let all = Pool::file_systems(PoolPath::of(&self.pool).pool)?;
        let superblocks = all.iter().filter_map(|fs| fs.superblock.as_ref().ok());
        match superblocks
            .flat_map(MediumHead::all)
            .any(|expected| is_its(&expected))
        {
            true => Err(ZoneError::Taken { medium }.into()),
            false => Ok(()),
        }
    }

    /// Does all but the last step: gives the pool, and the superblock that it is to have.
    fn prepare(
        &self,
        file: &DataFile,
        options: &PoolOptions,
    ) -> Result<(MappedPool, Superblock, AddedZone)> {
        let mut id = [0; 16];
        fill_random(&mut id)?;
        let room = medium::room(file, id, 0)?;
        let zone = AddedZone {
            id,
            at: room.at,
            blocks: room.data_bytes / vellum_layout::BLOCK_BYTES,
        };
        let larger = self.with(zone)?;
        self.set_aside(&zone, options)?;
        let pool = self.make_medium(file, &larger)?;
        Ok((pool, larger, zone))
    }
}
