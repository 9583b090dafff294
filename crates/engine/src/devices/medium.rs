//! External data devices of a pool: how they are marked, found, and recognised by their heads.

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

/// Bytes of a device beside its data: the head, the space between it and the data, and the head's
/// copy.
const BESIDE_BYTES: u64 = MEDIUM_DATA_AT + BLOCK_BYTES;

/// An external data device of a new pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalData {
    /// Its identity.
    pub id: [u8; 16],
    /// Offset of the data on it.
    pub at: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes behind the data for a replica of metadata that has undo records; 0 means none.
    pub replica_bytes: u64,
}

/// Returns the space for data on a device of `bytes` bytes, of which `replica_bytes` are for a
/// metadata replica.
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

/// The same for a device that will have a replica of the metadata of the pool that `plan` lays out
/// on it. The loop ends, because less data never need more metadata.
pub(crate) fn room_beside_copy(
    file: &DataFile,
    id: [u8; 16],
    plan: impl Fn(ExternalData) -> Result<Geometry>,
) -> Result<ExternalData> {
    // Starts with the least replica: its size is not known yet.
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

/// The path by which a pool at `pool` stores the device at `path`: relative to the pool's
/// directory, if the device is there or below.
///
/// # Errors
/// Fails if the path is too long.
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

/// Marks a new device as that of the pool that is being formatted.
///
/// # Errors
/// Fails if the operating system does.
pub(crate) fn mark(pool: &MappedPool, superblock: &Superblock) -> Result<()> {
    match (pool.data().next(), MediumHead::of(superblock)) {
        (Some(file), Some(head)) => write_heads(file, &head),
        _ => Ok(()),
    }
}

/// Writes the head of a new device and the head's copy, durably.
///
/// # Errors
/// Fails if the operating system does.
pub(crate) fn write_heads(file: &DataFile, head: &MediumHead) -> Result<()> {
    let mut block = [0; BLOCK_BYTES as usize];
    block[..MEDIUM_HEAD_BYTES].copy_from_slice(head.as_bytes());
    for at in [head.copy_at(), 0] {
        file.write(at, &block)?;
    }
    Ok(file.sync()?)
}

/// Returns where, according to this block of the pool at `path`, the device of this identity was
/// last found.
pub(crate) fn last_place(places: &[u8], id: [u8; 16], path: &Path) -> Option<PathBuf> {
    let name = DevicePaths::find(places, id)?;
    Some(dir_of(path).join(OsStr::from_bytes(&name)))
}

/// Stores in a new pool where its data are.
///
/// # Errors
/// Fails if the operating system does.
pub(crate) fn say_place(pool: &MappedPool, superblock: &Superblock, name: &[u8]) -> Result<()> {
    if let Some(external) = superblock.geometry().external {
        let places = DevicePaths::of_data(external.id, name);
        pool.write_own(external.places_at, places.as_bytes())?;
    }
    Ok(())
}

/// Stores in the pool's block of device paths where one more device is, and drops the paths of
/// devices that are not the pool's. `places` are the block's present bytes; its sessions do not
/// change. Returns the block's new bytes.
///
/// # Errors
/// Fails if the operating system does.
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

/// Reads the block of device paths of a pool with external data devices.
pub(crate) fn places_of(pool: &MappedPool, superblock: &Superblock) -> [u8; BLOCK_BYTES as usize] {
    let mut places = [0; BLOCK_BYTES as usize];
    pool.read(superblock.media_at, &mut places);
    places
}

/// The identity of the pool whose data lie in the file or on the device at `path`, from the head
/// there.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let data = dir.path().join("data");
/// use vellum::{CreateOptions, DataOptions, pool_of_data};
///
/// let external = DataOptions::new(&data).size_bytes(16 << 20);
/// let pool = CreateOptions::new(0).data(Some(external)).create(&path)?;
/// assert_eq!(pool_of_data(&data), Some(pool.superblock().uuid));
/// assert_eq!(pool_of_data(&path), None);
/// # Ok::<(), vellum::Error>(())
/// ```
pub fn pool_of_data(path: &Path) -> Option<[u8; 16]> {
    let mut head = [0; MEDIUM_HEAD_BYTES];
    let mut file = std::fs::File::open(path).ok()?;
    std::io::Read::read_exact(&mut file, &mut head).ok()?;
    Some(MediumHead::unseal(&head)?.pool)
}

/// Finds the external data devices of the pool at `path`, in the order of their blocks: the `asked`
/// ones, which may be in any order, and the others at the paths that the pool stores (in `places`,
/// the block at `media_at`). Their heads identify them, and their sessions show that they are no
/// old copies. Returns none if the pool has its data itself.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # use std::os::unix::fs::FileExt;
/// # let external = vellum::DataOptions::new(dir.path().join("data")).size_bytes(16 << 20);
/// let pool = vellum::CreateOptions::new(0).data(Some(external)).create(&path)?;
/// let superblock = pool.superblock();
/// pool.close()?;
/// let mut places = [0; 4096];
/// std::fs::File::open(&path)?.read_exact_at(&mut places, superblock.media_at)?;
/// let found = vellum::find_data(&superblock, &places, &path, &[], true)?;
/// assert_eq!(found[0].file.len(), 16 << 20);
/// # Ok::<(), vellum::Error>(())
/// ```
///
/// # Errors
/// Fails if a device is missing, in use, truncated, of another pool or of another session.
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

/// A device: the head that it should have, its file, and the head that it has.
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

/// Returns which of the expected devices this is, and its head.
fn know_one(file: &DataFile, expected: &[MediumHead]) -> Result<(usize, MediumHead)> {
    let mut why = None;
    for (segment, expected) in expected.iter().enumerate() {
        match know(file, expected) {
            Ok(head) => return Ok((segment, head)),
            // An error of the right device says more than that it is none of the others.
            Err(error @ Error::Medium(MediumError::Foreign { .. })) => {
                why = why.or(Some(error));
            }
            Err(error) => return Err(error),
        }
    }
    Err(why.unwrap_or(MediumError::NoExternalData.into()))
}

/// Opens what should be an external data device.
fn open_medium(place: &Path, read_only: bool) -> Result<DataFile> {
    DataFile::open(place, read_only).map_err(|error| match error {
        // `MediaError::Empty` advises to create a pool, which is no help here.
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

/// Returns the head of the device, if it is the expected one. It is the first head, or its copy if
/// that cannot be read.
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

/// The error for a device that is not the expected one.
fn foreign(path: PathBuf, found: Option<MediumHead>, expected: &MediumHead) -> MediumError {
    let found = match found {
        None => "this holds no data of any pool".to_owned(),
        Some(other) if other.pool == expected.pool => {
            format!("this is device {} of the same pool", uuid_text(&other.id))
        }
        Some(other) => format!("this is the data of pool {}", uuid_text(&other.pool)),
    };
    let (pool, id) = (uuid_text(&expected.pool), uuid_text(&expected.id));
    MediumError::Foreign {
        path,
        found: found.into(),
        expected: format!("pool {pool} (device {id})").into(),
    }
}
