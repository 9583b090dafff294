//! A pool together with its external data devices: opening both, and the session that they share.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use vellum_layout::{DevicePaths, MediumHead};
use vellum_media::{DataFile, MappedPool, MediaError, MediaKind, Memory, OpenMode, Persistent};

use super::datasets::{self, PoolPath};
use super::lifecycle::settle_image;
use super::{boot_id, fill_random};
use crate::devices::medium::{find_data, find_media, name, places_of, tell_place};
use crate::devices::session::{self, Failed, Heads};
use crate::devices::superblock::read_superblock;
use crate::error::{Error, Location, MediumError, Result};
use crate::logs::changed::forget_replica;

/// The pool at `path`, before its image has begun, and its external data devices, if it has some,
/// are about to be used in a session of their own ([`session`]). The pool remembers where they are
/// now.
///
/// # Errors
/// The path of a medium is too long; what the operating system said.
pub(crate) fn begin_session(pool: &MappedPool, path: &Path) -> Result<()> {
    let superblock = read_superblock(pool)?;
    let geometry = superblock.geometry();
    let Some(external) = geometry.external.filter(|_| pool.data().next().is_some()) else {
        return Ok(());
    };
    let is_unordered = geometry.has_undo() && pool.kind() == MediaKind::File;
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
        pool.write_own(external.places_at + at, &value.to_le_bytes())?;
        // The kernel gives other memory for a page that cannot be read, and takes what is stored to
        // it.
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

/// What is to be done where no session could be drawn.
fn no_session(pool: &MappedPool, (medium, error): (usize, Failed)) -> Error {
    let (action, source) = match error {
        Failed::Pool(error) => {
            let unreadable = |at| Error::Unreadable(Location::Offset(at));
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

/// Has the pool at `path`, or the part that it names, take its external data devices as of its own
/// session, whenever they are from.
///
/// # Errors
/// In use, not a pool, one that has its data itself; the medium is missing, in use, cut short or
/// something else's; what the pool said.
pub(crate) fn accept(path: &Path, asked: &[PathBuf]) -> Result<()> {
    let pool = datasets::open_own(&PoolPath::of(path), OpenMode::default())?;
    let superblock = read_superblock(&pool)?;
    let places = places_of(&pool, &superblock);
    let several = !superblock.geometry().added.is_empty();
    let media = find_media(&superblock, &places, path, asked, !several)?;
    let (_, _, head) = media.first().ok_or(MediumError::NoExternalData)?;
    for (expected, file, other) in &media[1..] {
        // A session is one of all media.
        let heads = Heads::find(file, Some(expected)).filter(|_| other.session != head.session);
        let entered = heads.map_or(Ok(()), |heads| heads.enter(head.session));
        entered.map_err(Failed::into_io)?;
    }
    // What the medium carries of the pool's metadata is of another time, too.
    forget_replica(&pool, &superblock);
    // The old session is not the next one either.
    let both = [head.session.to_le_bytes(); 2].concat();
    let at = superblock.media_at + DevicePaths::SESSION;
    Ok(pool.write_own(at, &both)?)
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

/// The same pool, whose data pass the page cache.
///
/// # Errors
/// No calls read and write them; they lie where there is no direct I/O; what the operating system
/// said.
pub(crate) fn past_the_cache(pool: MappedPool) -> Result<MappedPool> {
    let geometry = read_superblock(&pool)?.geometry();
    if !geometry.is_logged() && geometry.external.is_none() {
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
