//! An external data device of a pool: made, found, known by its head.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vellum_layout::{
    BLOCK_BYTES, DevicePaths, Geometry, LINE_ENTRIES, MEDIUM_DATA_AT, MEDIUM_HEAD_BYTES,
    MEDIUM_PATH_MAX, MediumHead, ReplicaPlan, Superblock, uuid_text,
};
use vellum_media::{DataFile, DataPart, MappedPool, MediaError, Memory};
use zerocopy::{FromZeros, IntoBytes};

use crate::devices::session::{self, Heads};
use crate::error::{Error, MediumError, Result};

/// Bytes of a medium beside its data: the head with what lies up to the data, and the head's copy.
const BESIDE_BYTES: u64 = MEDIUM_DATA_AT + BLOCK_BYTES;

/// An external data device of a new pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalData {
    /// Its identity.
    pub id: [u8; 16],
    /// Where on it the data begin.
    pub at: u64,
    /// How many bytes they have.
    pub data_bytes: u64,
    /// Bytes behind them for a copy of metadata that versions keep in order with the data; 0: the
    /// medium carries none.
    pub replica_bytes: u64,
}

/// What a medium of so many bytes has room for, with `replica_bytes` of it for a copy of the
/// metadata.
pub(crate) fn room(
    path: &Path,
    bytes: u64,
    id: [u8; 16],
    replica_bytes: u64,
) -> Result<ExternalData> {
    let line = LINE_ENTRIES * BLOCK_BYTES;
    let beside = BESIDE_BYTES.saturating_add(replica_bytes);
    let room = bytes.saturating_sub(beside) / line * line;
    if room < 1 << 20 {
        let path = path.to_owned();
        return Err(MediumError::TooSmall { path, bytes }.into());
    }
    Ok(ExternalData {
        id,
        at: MEDIUM_DATA_AT,
        data_bytes: room,
        replica_bytes,
    })
}

/// The same, where the medium is to carry a copy of the metadata of the pool that `plan` makes of
/// it: less data have no more metadata.
pub(crate) fn room_beside_copy(
    file: &DataFile,
    id: [u8; 16],
    plan: impl Fn(ExternalData) -> Result<Geometry>,
) -> Result<ExternalData> {
    // As if there were a copy: how large it is is not known yet.
    let mut replica_bytes = BLOCK_BYTES;
    loop {
        let external = room(file.path(), file.len(), id, replica_bytes)?;
        match ReplicaPlan::of(&plan(external)?).map(|plan| plan.bytes()) {
            Some(needed) if needed > replica_bytes => replica_bytes = needed,
            Some(_) => return Ok(external),
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
    let name = DevicePaths::find(places, id)?;
    Some(dir_of(path).join(OsStr::from_bytes(&name)))
}

/// Says in a new pool where its data are.
///
/// # Errors
/// What the operating system said.
pub(crate) fn say_place(pool: &MappedPool, superblock: &Superblock, name: &[u8]) -> Result<()> {
    if let Some(external) = superblock.geometry().external {
        let places = DevicePaths::of_data(external.id, name);
        pool.write_own(external.places_at, places.as_bytes())?;
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
    let mut told = DevicePaths::new_zeroed();
    told.seal();
    for head in MediumHead::all(superblock) {
        if let Some(name) = DevicePaths::find(places, head.id) {
            told = DevicePaths::with_data(told.as_bytes(), head.id, &name);
        }
    }
    let told = DevicePaths::with_data(told.as_bytes(), id, name);
    pool.write_own(
        superblock.media_at,
        &told.as_bytes()[..DevicePaths::TOLD_BYTES],
    )?;
    Ok(zerocopy::transmute!(told))
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

/// Finds the external data devices of the pool at `path`, in the order of their blocks: those that
/// are `asked` for, in any order, and the others where the pool says that they were last (in
/// `places`, the block at `media_at`). They are known by their heads, and that they are no old
/// copies by their session. None: the pool has its data itself.
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
            len: expected.blocks * BLOCK_BYTES + expected.replica_bytes,
        };
        at += part.len;
        Ok(part)
    });
    parts.collect()
}

/// A medium: the head that is expected of it, and the one that it has.
pub(crate) type FoundMedium = (MediumHead, DataFile, MediumHead);

/// The same, whatever their session.
pub(crate) fn find_media(
    superblock: &Superblock,
    places: &[u8],
    path: &Path,
    asked: &[PathBuf],
    read_only: bool,
) -> Result<Vec<FoundMedium>> {
    let expected = MediumHead::all(superblock);
    if expected.is_empty() && !asked.is_empty() {
        return Err(MediumError::NoExternalData.into());
    }
    let mut named: Vec<Option<(DataFile, MediumHead)>> = expected.iter().map(|_| None).collect();
    for place in asked {
        let file = open_medium(place, read_only)?;
        let (segment, head) = know_one(&file, &expected)?;
        named[segment] = Some((file, head));
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
    for (segment, expected) in expected.iter().enumerate() {
        match know(file, expected) {
            Ok(head) => return Ok((segment, head)),
            // What is wrong with the right one tells more than that it is none of the others.
            Err(error @ Error::Medium(MediumError::Foreign { .. })) => {
                why = why.or(Some(error));
            }
            Err(error) => return Err(error),
        }
    }
    Err(why.unwrap_or(MediumError::NoExternalData.into()))
}

/// Opens what is expected to be an external data device.
fn open_medium(place: &Path, read_only: bool) -> Result<DataFile> {
    DataFile::open(place, read_only).map_err(|error| match error {
        // It is no pool that could be made.
        MediaError::Empty { .. } => MediumError::Missing {
            path: place.to_owned(),
            source: Box::new(MediaError::Io {
                action: "use",
                path: place.to_owned(),
                source: std::io::Error::other("it has no bytes"),
            }),
        }
        .into(),
        MediaError::Io { .. } | MediaError::NotAPool { .. } => MediumError::Missing {
            path: place.to_owned(),
            source: error.into(),
        }
        .into(),
        other => Error::from(other),
    })
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
            found.segment,
            found.data_at,
            found.blocks,
        ) == (
            expected.id,
            expected.pool,
            expected.segment,
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
