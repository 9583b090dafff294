//! A pool with its external data devices: opening both, and the session that they share.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use vellum_layout::{DevicePaths, MediumHead};
use vellum_media::{DataFile, MappedPool, MediaError, MediaKind, Medium, Memory, OpenMode};

use super::datasets::{self, PoolPath};
use super::lifecycle::settle_image;
use super::{boot_id, fill_random};
use crate::devices::medium::{find_data, find_media, name, places_of, tell_place};
use crate::devices::session::{self, Failed, Heads};
use crate::devices::superblock::read_superblock;
use crate::error::{Error, Location, MediumError, Result};
use crate::logs::changed::forget_replica;

/// Begins a new [`session`] of the pool at `path` with its external data devices, if it has any,
/// before the pool's image or undo log is read. The pool stores where the devices are now.
///
/// # Errors
/// Fails if the path of a device is too long, or on an I/O error.
pub(crate) fn begin_session(pool: &MappedPool, path: &Path) -> Result<()> {
    let superblock = read_superblock(pool)?;
    let geometry = superblock.geometry();
    let Some(external) = geometry.external.filter(|_| pool.data().next().is_some()) else {
        return Ok(());
    };
    let is_unordered = geometry.has_undo() && pool.kind() == MediaKind::File;
    if is_unordered || superblock.check_writable().is_err() {
        // The opening refuses the pool, and reports why.
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
        pool.write_own(external.places_at + at, &value.to_le_bytes())?;
        // For a page that cannot be read the kernel maps other memory, which accepts stores.
        pool.damaged().map_or(Ok(()), |_| Err(Errno::IO.into()))
    };
    let begun = session::begin(&places, &heads, u64::from_ne_bytes(new), &set);
    begun.map_err(|error| no_session(pool, error))?;
    let mut known = places;
    for (file, expected) in pool.data().zip(&expected) {
        let name = name(path, file.path())?;
        if DevicePaths::find(&known, expected.id).as_deref() != Some(&name[..]) {
            known = tell_place(pool, &superblock, &known, (expected.id, &name))?;
        }
    }
    Ok(())
}

/// Handles a session that could not be begun, and returns the error.
fn no_session(pool: &MappedPool, (medium, error): (usize, Failed)) -> Error {
    let (action, source) = match error {
        Failed::Pool(error) => {
            let unreadable = |at| Error::Unreadable(Location::Offset(at));
            return pool.damaged().map_or_else(|| error.into(), unreadable);
        }
        Failed::Write(error) => ("write the head of", error),
        Failed::Sync(error) => {
            // The failed sync may be about data that nobody synced, and the next opening will not
            // see the error again. So everything that leads to these data is discarded now.
            if let Err(error) = settle_image(pool, boot_id(), Some(&[])) {
                tracing::warn!(%error, "what was not committed could not be discarded");
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

/// Makes the pool at `path`, or the dataset that it names, accept its external data devices as
/// those of its own session, whatever their age.
///
/// # Errors
/// Fails if the pool is in use, is no pool or has no external data device; if a device is missing,
/// in use, truncated or another pool's; or if the pool cannot be written.
pub(crate) fn accept(path: &Path, asked: &[PathBuf]) -> Result<()> {
    let pool = datasets::open_own(&PoolPath::of(path), OpenMode::default())?;
    let superblock = read_superblock(&pool)?;
    let places = places_of(&pool, &superblock);
    let several = !superblock.geometry().added.is_empty();
    let media = find_media(&superblock, &places, path, asked, !several)?;
    let (_, _, head) = media.first().ok_or(MediumError::NoExternalData)?;
    for (expected, file, other) in &media[1..] {
        // All devices get one session.
        let heads = Heads::find(file, Some(expected)).filter(|_| other.session != head.session);
        let entered = heads.map_or(Ok(()), |heads| heads.enter(head.session));
        entered.map_err(Failed::into_io)?;
    }
    // The metadata replica on the device is of another time, too.
    forget_replica(&pool, &superblock);
    // The pool's next session must not be the old one either.
    let both = [head.session.to_le_bytes(); 2].concat();
    let at = superblock.media_at + DevicePaths::SESSION;
    Ok(pool.write_own(at, &both)?)
}

/// Maps the bytes of a pool, or of the dataset that `path` names as `POOL:NAME`, with its data
/// behind them, for tools that work on bytes. If the file is no pool, or its superblocks are
/// damaged, only the file itself is mapped.
///
/// # Errors
/// Fails if the pool is in use, or the dataset does not exist; or if a data device is missing, in
/// use, truncated, or another pool's.
pub fn open_bytes(path: &Path, mode: OpenMode, data: &[PathBuf]) -> Result<MappedPool> {
    let alone = OpenMode {
        populate: false,
        ..mode
    };
    let place = PoolPath::of(path);
    let pool = with_data(
        datasets::open_own(&place, alone)?,
        path,
        data,
        mode.read_only,
    )?;
    if mode.populate {
        pool.populate();
    }
    Ok(pool)
}

/// Returns the same pool, whose data pass the page cache.
///
/// # Errors
/// Fails if system calls do not read and write the data, if they lie where direct I/O is not
/// possible, or on an I/O error.
pub(crate) fn past_the_cache(pool: MappedPool) -> Result<MappedPool> {
    let geometry = read_superblock(&pool)?.geometry();
    if !geometry.is_logged() && geometry.external.is_none() {
        let path = pool.path().unwrap_or(Path::new("")).to_owned();
        return Err(MediumError::NoCalls { path }.into());
    }
    Ok(pool.with_direct(geometry.data_at)?)
}

/// Maps the data of the pool at `path` behind its bytes.
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
