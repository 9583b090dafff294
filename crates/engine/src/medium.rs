//! The data medium of a pool: made, found, known by its head.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;
use vellum_layout::{
    BLOCK_BYTES, CarriedPlan, Geometry, LINE_ENTRIES, MEDIUM_DATA_AT, MEDIUM_HEAD_BYTES,
    MEDIUM_PATH_MAX, MediumHead, MediumPlaces, Superblock, uuid_text,
};
use vellum_media::{
    DataFile, DataPart, MappedPool, MediaError, MediaKind, Memory, OpenMode, Persistent,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::carried;
use crate::error::{Place, Result};
use crate::mount::{DataApart, read_superblock, settle_image};
use crate::parts::{self, PoolPath};
use crate::pool::{boot_id, fill_random};
use crate::session::{self, Failed, Heads};

/// Bytes of a medium beside its data: the head with what lies up to the data, and the head's copy.
const BESIDE_BYTES: u64 = MEDIUM_DATA_AT + BLOCK_BYTES;

/// Why the data of a pool are not to be had. The message begins with the path that was tried.
#[derive(Debug, Error)]
pub enum MediumError {
    /// The pool does not say where it is, nor does the caller.
    #[error(
        "the pool's data lie in another file or device, and it does not say where: name it with --data"
    )]
    Unknown,
    /// It is not where it was last found.
    #[error("{}: the data of the pool are not there ({source}); if they have been moved, name the place with --data", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
        /// What the system said.
        source: Box<MediaError>,
    },
    /// It has another size.
    #[error("{}: the data of the pool need {expected} bytes, and this has {actual}: it was cut short; nothing was changed", path.display())]
    Short {
        /// What was found.
        path: PathBuf,
        /// Bytes that there should be.
        expected: u64,
        /// Bytes that there are.
        actual: u64,
    },
    /// It is something else.
    #[error("{}: {found}, not the data of {expected}; name the right one with --data; nothing was changed", path.display())]
    Foreign {
        /// What was found.
        path: PathBuf,
        /// What it is.
        found: Box<str>,
        /// What it should be.
        expected: Box<str>,
    },
    /// A copy of it from another time, or the pool is one.
    #[error(
        "{}: these are the data of the pool as they were in another session than the one in which \
         the pool was last used: one of the two is an old copy; use those that belong together; \
         nothing was changed",
        path.display()
    )]
    OtherSession {
        /// The medium.
        path: PathBuf,
    },
    /// A path for which the pool has no room.
    #[error("{}: the path of a data medium has at most {MEDIUM_PATH_MAX} bytes", path.display())]
    LongPath {
        /// The path.
        path: PathBuf,
    },
    /// Less than a pool can do with.
    #[error("{}: a data medium of {bytes} bytes is too small; it needs 3 MiB and more", path.display())]
    TooSmall {
        /// The medium.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
    },
    /// The pool's own medium writes back in any order.
    #[error(
        "{}: metadata in an ordinary file cannot be kept in order with data elsewhere: put the pool into persistent memory, or make it with a log (logged)", path.display()
    )]
    Unordered {
        /// The pool.
        path: PathBuf,
    },
    /// The data medium has no room for a copy of the metadata.
    #[error(
        "the data medium of the pool carries no copy of its metadata: mkfs reserves room for one \
         where metadata lie in memory (`--media dax --data FILE`), unless it is told `--no-copy`"
    )]
    CarriesNone,
    /// Something else than the data of a pool.
    #[error("{}: this holds no data of any pool; nothing was changed", path.display())]
    NoMedium {
        /// What was found.
        path: PathBuf,
    },
    /// A medium without a copy of the metadata.
    #[error("{}: this has the data of a pool, and no copy of its metadata: only that pool can use it; nothing was changed", path.display())]
    NotCarried {
        /// The medium.
        path: PathBuf,
    },
    /// A medium whose copy of the metadata is not as new as its data.
    #[error("{}: the copy of the metadata on it is stale: the pool has been used since it was flushed, or never was; nothing was changed", path.display())]
    Stale {
        /// The medium.
        path: PathBuf,
    },
    /// A medium whose copy of the metadata is not what was written.
    #[error("{}: {what} of the copy on it is not what was written, or cannot be read; the medium was not changed", path.display())]
    CarriedDamaged {
        /// The medium.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// Data that nobody reads or writes by calls.
    #[error(
        "{}: there is nothing that --direct could pass by: the data of this pool are reached in memory; it is for pools with a log (`vellum mkfs --media logged`) and for those whose data lie on another file or device (`vellum mkfs --data`)", path.display()
    )]
    NoCalls {
        /// The pool.
        path: PathBuf,
    },
    /// A data medium of a pool that has none.
    #[error(
        "the pool has its data itself, not on a medium of their own: do not name one with --data"
    )]
    NotApart,
}

/// What a medium of so many bytes has room for, with `carried_bytes` of it for a copy of the
/// metadata.
pub(crate) fn room(path: &Path, bytes: u64, id: [u8; 16], carried_bytes: u64) -> Result<DataApart> {
    let line = LINE_ENTRIES * BLOCK_BYTES;
    let beside = BESIDE_BYTES.saturating_add(carried_bytes);
    let room = bytes.saturating_sub(beside) / line * line;
    if room < 1 << 20 {
        let path = path.to_owned();
        return Err(MediumError::TooSmall { path, bytes }.into());
    }
    Ok(DataApart {
        id,
        at: MEDIUM_DATA_AT,
        data_bytes: room,
        carried_bytes,
    })
}

/// The same, where the medium is to carry a copy of the metadata of the pool that `plan` makes of
/// it: less data have no more metadata.
pub(crate) fn room_beside_copy(
    file: &DataFile,
    id: [u8; 16],
    plan: impl Fn(DataApart) -> Result<Geometry>,
) -> Result<DataApart> {
    // As if there were a copy: how large it is is not known yet.
    let mut carried_bytes = BLOCK_BYTES;
    loop {
        let apart = room(file.path(), file.len(), id, carried_bytes)?;
        match CarriedPlan::of(&plan(apart)?).map(|plan| plan.bytes()) {
            Some(needed) if needed > carried_bytes => carried_bytes = needed,
            Some(_) => return Ok(apart),
            None => return room(file.path(), file.len(), id, 0),
        }
    }
}

/// How a pool at `pool` is to call the medium at `path`: from its own directory on, if the medium
/// lies there or below.
///
/// # Errors
/// Too long.
pub(crate) fn name(pool: &Path, path: &Path) -> Result<Vec<u8>> {
    let path = path.canonicalize()?;
    let dir = dir_of(pool).canonicalize()?;
    let name = path.strip_prefix(&dir).unwrap_or(&path);
    let bytes = name.as_os_str().as_bytes();
    if bytes.len() > MEDIUM_PATH_MAX {
        return Err(MediumError::LongPath { path }.into());
    }
    Ok(bytes.to_vec())
}

fn dir_of(pool: &Path) -> &Path {
    let dir = pool.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}

/// Marks a new medium as that of the pool that is being made.
///
/// # Errors
/// What the operating system said.
pub(crate) fn mark(pool: &MappedPool, superblock: &Superblock) -> Result<()> {
    match (pool.data().next(), MediumHead::of(superblock)) {
        (Some(file), Some(head)) => write_heads(file, &head),
        _ => Ok(()),
    }
}

/// Writes the head of a new medium and the copy of it, durably.
///
/// # Errors
/// What the operating system said.
pub(crate) fn write_heads(file: &DataFile, head: &MediumHead) -> Result<()> {
    let mut block = [0; BLOCK_BYTES as usize];
    block[..MEDIUM_HEAD_BYTES].copy_from_slice(head.as_bytes());
    for at in [head.copy_at(), 0] {
        file.write(at, &block)?;
    }
    Ok(file.sync()?)
}

/// Where the pool at `path` says, in this block, that the medium of this identity was last found.
pub(crate) fn last_place(places: &[u8], id: [u8; 16], path: &Path) -> Option<PathBuf> {
    let name = MediumPlaces::find(places, id)?;
    Some(dir_of(path).join(OsStr::from_bytes(&name)))
}

/// Says in a new pool where its data are.
///
/// # Errors
/// What the operating system said.
pub(crate) fn say_place(pool: &MappedPool, superblock: &Superblock, name: &[u8]) -> Result<()> {
    if let Some(apart) = superblock.geometry().apart {
        let places = MediumPlaces::of_data(apart.id, name);
        pool.write_own(apart.places_at, places.as_bytes())?;
    }
    Ok(())
}

/// The pool at `path`, before its image has begun, and its data media, if it has some, are about to
/// be used in a session of their own ([`session`]). The pool remembers where they are now.
///
/// # Errors
/// The path of a medium is too long; what the operating system said.
pub(crate) fn begin_session(pool: &MappedPool, path: &Path) -> Result<()> {
    let superblock = read_superblock(pool)?;
    let geometry = superblock.geometry();
    let Some(apart) = geometry.apart.filter(|_| pool.data().next().is_some()) else {
        return Ok(());
    };
    let is_unordered = geometry.has_versions() && pool.kind() == MediaKind::File;
    if is_unordered || superblock.check_writable().is_err() {
        // The opening refuses it, and says why.
        return Ok(());
    }
    let expected = MediumHead::all(&superblock);
    let heads = pool.data().zip(&expected).map(|(file, expected)| {
        let path = || file.path().to_owned();
        let heads = Heads::find(file, Some(expected));
        heads.ok_or_else(|| MediumError::NoMedium { path: path() })
    });
    let heads = heads.collect::<std::result::Result<Vec<_>, _>>()?;
    let places = places_of(pool, &superblock);
    let mut new = [0; 8];
    fill_random(&mut new)?;
    let set = |at, value: u64| {
        pool.write_own(apart.places_at + at, &value.to_le_bytes())?;
        // The kernel gives other memory for a page that cannot be read, and takes what is stored to
        // it.
        pool.damaged().map_or(Ok(()), |_| Err(Errno::IO.into()))
    };
    let begun = session::begin(&places, &heads, u64::from_ne_bytes(new), &set);
    begun.map_err(|error| no_session(pool, error))?;
    let mut known = places;
    for (file, expected) in pool.data().zip(&expected) {
        let name = name(path, file.path())?;
        if MediumPlaces::find(&known, expected.id).as_deref() != Some(&name[..]) {
            known = tell_place(pool, &superblock, &known, (expected.id, &name))?;
        }
    }
    Ok(())
}

/// Has the pool's block of places, which has the bytes `places` but for what it says of sessions,
/// tell where one more medium is, and of no others than the pool's own; gives its bytes then.
///
/// # Errors
/// What the operating system said.
pub(crate) fn tell_place(
    pool: &MappedPool,
    superblock: &Superblock,
    places: &[u8],
    (id, name): ([u8; 16], &[u8]),
) -> Result<[u8; BLOCK_BYTES as usize]> {
    let mut told = MediumPlaces::new_zeroed();
    told.seal();
    for head in MediumHead::all(superblock) {
        if let Some(name) = MediumPlaces::find(places, head.id) {
            told = MediumPlaces::with_data(told.as_bytes(), head.id, &name);
        }
    }
    let told = MediumPlaces::with_data(told.as_bytes(), id, name);
    pool.write_own(
        superblock.media_at,
        &told.as_bytes()[..MediumPlaces::TOLD_BYTES],
    )?;
    Ok(zerocopy::transmute!(told))
}

/// What is to be done where no session could be drawn.
fn no_session(pool: &MappedPool, (medium, error): (usize, Failed)) -> crate::Error {
    let (action, source) = match error {
        Failed::Pool(error) => {
            let unreadable = |at| crate::Error::Unreadable(Place::Offset(at));
            return pool.damaged().map_or_else(|| error.into(), unreadable);
        }
        Failed::Write(error) => ("write the head of", error),
        Failed::Sync(error) => {
            // It is about data that nobody synced, for all one knows, and not told to the next
            // opening: what leads to them is given up now.
            if let Err(error) = settle_image(pool, boot_id(), Some(&[])) {
                tracing::warn!(%error, "what was not committed could not be given up");
            }
            ("sync", error)
        }
    };
    let path = pool
        .data()
        .nth(medium)
        .map_or(Path::new(""), DataFile::path);
    let failed = MediaError::Io {
        action,
        path: path.to_owned(),
        source,
    };
    failed.into()
}

/// The block of places of a pool that has its data apart.
pub(crate) fn places_of(pool: &MappedPool, superblock: &Superblock) -> [u8; BLOCK_BYTES as usize] {
    let mut places = [0; BLOCK_BYTES as usize];
    pool.read(superblock.media_at, &mut places);
    places
}

/// The identity of the pool whose data lie in the file or on the device at `path`, by the head of
/// it.
pub fn pool_of_data(path: &Path) -> Option<[u8; 16]> {
    let mut head = [0; MEDIUM_HEAD_BYTES];
    let mut file = std::fs::File::open(path).ok()?;
    std::io::Read::read_exact(&mut file, &mut head).ok()?;
    Some(MediumHead::unseal(&head)?.pool)
}

/// Finds the data media of the pool at `path`, in the order of their blocks: those that are `asked`
/// for, in any order, and the others where the pool says that they were last (in `places`, the
/// block at `media_at`). They are known by their heads, and that they are no old copies by their
/// session. None: the pool has its data itself.
///
/// # Errors
/// Missing, in use, cut short, something else's, of another session.
pub fn find_data(
    superblock: &Superblock,
    places: &[u8],
    path: &Path,
    asked: &[PathBuf],
    read_only: bool,
) -> Result<Vec<DataPart>> {
    let media = find_media(superblock, places, path, asked, read_only)?;
    let mut at = superblock.geometry().data_at;
    let parts = media.into_iter().map(|(expected, file, head)| {
        if !session::belongs(places, head.session) {
            let path = file.path().to_owned();
            return Err(MediumError::OtherSession { path }.into());
        }
        let part = DataPart {
            file,
            at,
            from: expected.data_at,
            len: expected.blocks * BLOCK_BYTES + expected.carried_bytes,
        };
        at += part.len;
        Ok(part)
    });
    parts.collect()
}

/// A medium: the head that is expected of it, and the one that it has.
type FoundMedium = (MediumHead, DataFile, MediumHead);

/// The same, whatever their session.
fn find_media(
    superblock: &Superblock,
    places: &[u8],
    path: &Path,
    asked: &[PathBuf],
    read_only: bool,
) -> Result<Vec<FoundMedium>> {
    let expected = MediumHead::all(superblock);
    if expected.is_empty() && !asked.is_empty() {
        return Err(MediumError::NotApart.into());
    }
    let mut named: Vec<Option<(DataFile, MediumHead)>> = expected.iter().map(|_| None).collect();
    for place in asked {
        let file = open_medium(place, read_only)?;
        let (zone, head) = know_one(&file, &expected)?;
        named[zone] = Some((file, head));
    }
    let found = expected.into_iter().zip(named).map(|(expected, named)| {
        let (file, head) = match named {
            Some(named) => named,
            None => {
                let place = last_place(places, expected.id, path).ok_or(MediumError::Unknown)?;
                let file = open_medium(&place, read_only)?;
                let head = know(&file, &expected)?;
                (file, head)
            }
        };
        Ok((expected, file, head))
    });
    found.collect()
}

/// Which of the media that are expected this is, and its head.
fn know_one(file: &DataFile, expected: &[MediumHead]) -> Result<(usize, MediumHead)> {
    let mut why = None;
    for (zone, expected) in expected.iter().enumerate() {
        match know(file, expected) {
            Ok(head) => return Ok((zone, head)),
            // What is wrong with the right one tells more than that it is none of the others.
            Err(error @ crate::Error::Medium(MediumError::Foreign { .. })) => {
                why = why.or(Some(error));
            }
            Err(error) => return Err(error),
        }
    }
    Err(why.unwrap_or(MediumError::NotApart.into()))
}

/// Opens what is expected to be a data medium.
fn open_medium(place: &Path, read_only: bool) -> Result<DataFile> {
    DataFile::open(place, read_only).map_err(|error| match error {
        MediaError::Io { .. } | MediaError::Empty { .. } | MediaError::NotAPool { .. } => {
            MediumError::Missing {
                path: place.to_owned(),
                source: error.into(),
            }
            .into()
        }
        other => crate::Error::from(other),
    })
}

/// Has the pool at `path`, or the part that it names, take its data media as of its own session,
/// whenever they are from.
///
/// # Errors
/// In use, not a pool, one that has its data itself; the medium is missing, in use, cut short or
/// something else's; what the pool said.
pub(crate) fn accept(path: &Path, asked: &[PathBuf]) -> Result<()> {
    let pool = parts::open_own(&PoolPath::of(path), OpenMode::default())?;
    let superblock = read_superblock(&pool)?;
    let places = places_of(&pool, &superblock);
    let several = !superblock.geometry().added.is_empty();
    let media = find_media(&superblock, &places, path, asked, !several)?;
    let (_, _, head) = media.first().ok_or(MediumError::NotApart)?;
    for (expected, file, other) in &media[1..] {
        // A session is one of all media.
        let heads = Heads::find(file, Some(expected)).filter(|_| other.session != head.session);
        let entered = heads.map_or(Ok(()), |heads| heads.enter(head.session));
        entered.map_err(Failed::into_io)?;
    }
    // What the medium carries of the pool's metadata is of another time, too.
    carried::forget(&pool, &superblock);
    // The old session is not the next one either.
    let both = [head.session.to_le_bytes(); 2].concat();
    let at = superblock.media_at + MediumPlaces::SESSION;
    Ok(pool.write_own(at, &both)?)
}

/// The head of the medium, if it is the one that is expected: the first one says so, or the copy of
/// it where that cannot be read.
fn know(file: &DataFile, expected: &MediumHead) -> Result<MediumHead> {
    let found = Heads::find(file, Some(expected)).map(|heads| heads.counts);
    let path = || file.path().to_owned();
    let is_it = |found: &MediumHead| {
        (
            found.id,
            found.pool,
            found.zone,
            found.data_at,
            found.blocks,
        ) == (
            expected.id,
            expected.pool,
            expected.zone,
            expected.data_at,
            expected.blocks,
        )
    };
    let found = match found {
        Some(found) if is_it(&found) => found,
        other => return Err(foreign(path(), other, expected).into()),
    };
    if file.len() < expected.bytes {
        return Err(MediumError::Short {
            path: path(),
            expected: expected.bytes,
            actual: file.len(),
        }
        .into());
    }
    Ok(found)
}

/// What is not the medium that is expected.
fn foreign(path: PathBuf, found: Option<MediumHead>, expected: &MediumHead) -> MediumError {
    let found = match found {
        None => "this holds no data of any pool".to_owned(),
        Some(other) if other.pool == expected.pool => {
            format!("this is medium {} of the same pool", uuid_text(&other.id))
        }
        Some(other) => format!("this is the data of pool {}", uuid_text(&other.pool)),
    };
    let (pool, id) = (uuid_text(&expected.pool), uuid_text(&expected.id));
    MediumError::Foreign {
        path,
        found: found.into(),
        expected: format!("pool {pool} (medium {id})").into(),
    }
}

/// The bytes of a pool, or of the part that `path` names as `POOL:NAME`, with its data behind them
/// wherever they are, for whoever works on bytes. Of what is no pool, or a damaged one without any
/// superblock, there are those of the file alone.
///
/// # Errors
/// In use; no such part; the data are missing, in use, cut short, or something else's.
pub fn open_bytes(path: &Path, mode: OpenMode, data: &[PathBuf]) -> Result<MappedPool> {
    let alone = OpenMode {
        populate: false,
        ..mode
    };
    let place = PoolPath::of(path);
    let pool = with_data(parts::open_own(&place, alone)?, path, data, mode.read_only)?;
    if mode.populate {
        pool.populate();
    }
    Ok(pool)
}

/// The same pool, whose data pass the page cache.
///
/// # Errors
/// No calls read and write them; they lie where there is no direct I/O; what the operating system
/// said.
pub(crate) fn past_the_cache(pool: MappedPool) -> Result<MappedPool> {
    let geometry = read_superblock(&pool)?.geometry();
    if !geometry.is_logged() && geometry.apart.is_none() {
        let path = pool.path().unwrap_or(Path::new("")).to_owned();
        return Err(MediumError::NoCalls { path }.into());
    }
    Ok(pool.with_direct(geometry.data_at)?)
}

/// The pool at `path` with its data behind its bytes, wherever they are.
pub(crate) fn with_data(
    pool: MappedPool,
    path: &Path,
    data: &[PathBuf],
    read_only: bool,
) -> Result<MappedPool> {
    let Ok(superblock) = read_superblock(&pool) else {
        return Ok(pool);
    };
    let places = places_of(&pool, &superblock);
    match find_data(&superblock, &places, path, data, read_only)? {
        found if found.is_empty() => Ok(pool),
        found => Ok(pool.with_data(found)?),
    }
}
