//! The bytes of a pool that is not open, for reading: the pool's own bytes, and behind them those
//! of its external data devices.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use vellum::media::{DataPart, lock_to_read};
use vellum::{PoolPath, Settings, find_data, own_bytes};
use vellum_check::{Image, survey};
use vellum_terminal::{Failure, Outcome};

use crate::info::MAGIC;
use crate::location;
use crate::served;

/// A pool or dataset and its external data devices, locked against writers as long as this exists.
/// Other datasets of the same pool may be written to meanwhile.
pub(crate) struct Bytes {
    file: File,
    /// Offset and length of the pool's own bytes in the file.
    own: (u64, u64),
    data: Vec<DataPart>,
}

impl Bytes {
    /// Opens the pool and its external data devices, at `data` or at the paths in the pool.
    pub(crate) fn open(pool: &Path, data: &[PathBuf]) -> Outcome<Self> {
        let place = PoolPath::of(pool);
        let file = served::once_closed(pool, || open(&place))?;
        let alone = Self::own(file, &place)?;
        // The caller reports damage.
        let Some(superblock) = survey::header(&alone) else {
            return Ok(alone);
        };
        let mut places = [0; 4096];
        let read = alone.read(superblock.media_at, &mut places);
        read.map_err(|error| Failure::io(pool.display(), &error))?;
        let found = find_data(&superblock, &places, pool, data, true);
        let found = found.map_err(|error| location::refused(pool, &error))?;
        Ok(Self {
            data: found,
            ..alone
        })
    }

    /// A pool's own bytes, without a lock. They may change while the caller reads.
    pub(crate) fn unlocked(place: &PoolPath) -> Option<Self> {
        Self::own(File::open(&place.pool).ok()?, place).ok()
    }

    /// The bytes of the dataset of a path, in the pool's file.
    fn own(file: File, place: &PoolPath) -> Outcome<Self> {
        let pool = &place.path();
        let whole = Self {
            own: (0, Image::len(&file)),
            file,
            data: Vec::new(),
        };
        let own = match survey::header(&whole) {
            Some(superblock) => own_bytes(&superblock, place),
            None if place.name.is_none() => match location::holds_none(pool, whole.own.1) {
                Some(failure) => return Err(failure),
                None => Ok(whole.own),
            },
            None => Err(vellum::SuperblockError::NotVellum.into()),
        };
        let (start, len) = own.map_err(|error| location::refused(pool, &error))?;
        // A truncated file has fewer bytes than the superblock says.
        let there = whole.own.1.saturating_sub(start);
        Ok(Self {
            own: (start, len.min(there)),
            ..whole
        })
    }

    /// The file of the pool itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

/// The format version and the settings of a pool or dataset, without a lock. `None`: there is no
/// pool, or no magic shows that the search for its superblock is worth its time.
pub(crate) fn settings(place: &PoolPath) -> Option<(u32, Settings)> {
    /// The first two copies of the pool's own.
    const COPIES: [u64; 2] = [0, 4096];
    let file = File::open(&place.pool).ok()?;
    let has_magic = |&at: &u64| {
        let mut found = [0; MAGIC.len()];
        file.read_exact_at(&mut found, at).is_ok() && found == MAGIC
    };
    COPIES.iter().find(|at| has_magic(at))?;
    let superblock = survey::header(&Bytes::unlocked(place)?)?;
    Some((superblock.version, superblock.settings()))
}

impl Image for Bytes {
    fn len(&self) -> u64 {
        let last = self.data.last();
        last.map_or_else(|| self.own_len(), |last| last.at + last.len)
    }

    fn own_len(&self) -> u64 {
        self.own.1
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let Some(data) = self.data.iter().rev().find(|data| at >= data.at) else {
            return Image::read(&self.file, at + self.own.0, out);
        };
        let there = (data.at + data.len)
            .saturating_sub(at)
            .min(out.len() as u64);
        if there == 0 && !out.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (now, rest) = out.split_at_mut(there as usize);
        data.file.read(at - data.at + data.from, now)?;
        match rest {
            [] => Ok(()),
            rest => Image::read(self, at + there, rest),
        }
    }
}

/// Opens a pool's file, and locks one dataset against writers as long as the file is open.
fn open(place: &PoolPath) -> Outcome<File> {
    let pool = &place.pool;
    let image = File::open(pool).map_err(|e| Failure::io(pool.display(), &e))?;
    let is_dir = image.metadata().is_ok_and(|found| found.is_dir());
    if is_dir {
        return Err(
            Failure::new(format!("{} is a directory, not a pool", pool.display()))
                .advise("name the pool's file; a mounted pool must be unmounted first"),
        );
    }
    match lock_to_read(&image, place.dataset()) {
        Ok(true) => Ok(image),
        Ok(false) => Err(location::busy(&place.path(), owner(place))),
        Err(error) => Err(Failure::io(pool.display(), &error)),
    }
}

/// The process that has the pool open, as the engine reports it.
fn owner(place: &PoolPath) -> Option<u32> {
    let options = vellum::PoolOptions::new().read_only(true);
    match options.open(place.path()) {
        Err(vellum::Error::Media(vellum::media::MediaError::Busy { owner_pid, .. })) => owner_pid,
        _ => None,
    }
}
