//! Uncommitted metadata of pools that are not closed cleanly: the image that a killed process left
//! in memory (logged pools), and changes that must be rolled back (split pools). Commands that work
//! on a pool's bytes without opening it need both.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vellum::media::{ImageKey, LeftImage, MediaError, OLDER, REPLACED, left_image};
use vellum::{Pool, boot_id};
use vellum_check::Line;
use vellum_check::survey::{self, RedoLog};
use vellum_terminal::{Failure, Outcome, quoted};

use crate::args::Opening;
use crate::bytes::Bytes;
use crate::images;
use crate::location;

/// The image of a locked pool.
pub(crate) enum Left {
    /// There is no image, and the pool needs none.
    Nothing,
    /// The image is gone or useless, so the pool is in the state of its last commit.
    Gone,
    /// The image has all changes of the process: the lines of metadata that are newer than the
    /// pool's file.
    Alive(Vec<Line>),
}

/// The UUID of a logged pool, and its log.
type Logged = ([u8; 16], RedoLog);

fn logged(image: &Bytes) -> Option<Logged> {
    let superblock = survey::header(image)?;
    let is_logged = superblock.geometry().is_logged();
    let log = is_logged.then(|| survey::redo_log(image, &superblock));
    Some((superblock.uuid, log??))
}

/// Returns the image of the pool in `dir`, and whether the log names an image there.
fn look(image: &Bytes, (uuid, log): &Logged, dir: &Path) -> (Result<LeftImage, MediaError>, bool) {
    // The paths may differ by symbolic links.
    let is_here = |tag_dir: &[u8]| {
        let named = Path::new(OsStr::from_bytes(tag_dir));
        named == dir
            || matches!((named.canonicalize(), dir.canonicalize()), (Ok(a), Ok(b)) if a == b)
    };
    let tag = log.anchor.image().filter(|tag| tag.boot == boot_id());
    let attach = tag.filter(|tag| is_here(&tag.dir)).map(|tag| tag.attach);
    let key = ImageKey {
        dir,
        uuid: *uuid,
        boot: boot_id(),
    };
    let found = left_image(image.file().as_fd(), &key, attach, log.end.0 - 1);
    (found, attach.is_some())
}

/// Looks for the image in the directory that the log names, and in the default one.
pub(crate) fn left(image: &Bytes, pool: &Path) -> Outcome<Left> {
    let Some(logged) = survey::superblock(image).and_then(|_| logged(image)) else {
        return Ok(Left::Nothing);
    };
    let mut left = Left::Nothing;
    let tag = logged.1.anchor.image();
    let named = tag
        .as_ref()
        .map(|tag| Path::new(OsStr::from_bytes(&tag.dir)));
    let usual = Some(Path::new(images::SHARED_DIR)).filter(|usual| Some(*usual) != named);
    for dir in named.into_iter().chain(usual) {
        let (found, is_named) = look(image, &logged, dir);
        match found.map_err(|error| refused(pool, &error.into()))? {
            LeftImage::Alive { lines, .. } => left = Left::Alive(lines),
            LeftImage::Nothing | LeftImage::Poisoned if is_named => left = Left::Gone,
            LeftImage::Nothing | LeftImage::Poisoned => {}
        }
    }
    Ok(left)
}

/// Whether a pool was closed cleanly, by its own word: nothing is checked.
pub(crate) fn is_closed_cleanly(pool: &Path, opening: &Opening) -> Outcome<bool> {
    let image = Bytes::open(pool, &opening.data)?;
    let is_clean = survey::superblock(&image)
        .is_some_and(|superblock| survey::is_closed_cleanly(&image, &superblock));
    Ok(is_clean && matches!(left(&image, pool)?, Left::Nothing))
}

/// What the next opening of a pool does with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It adopts the image.
    Taken,
    /// It removes the image, because the pool's file has everything or the image is unusable.
    Useless,
    /// It fails, because the image is newer than the pool's file.
    Later,
}

/// What the next opening of a pool does with its image in `dir`; `None` if that is unknown.
pub(crate) fn fit(image: &Bytes, dir: &Path) -> Option<Fit> {
    let logged = logged(image)?;
    match look(image, &logged, dir).0 {
        Ok(LeftImage::Alive { .. }) => Some(Fit::Taken),
        Ok(LeftImage::Nothing | LeftImage::Poisoned) => Some(Fit::Useless),
        Err(MediaError::Image {
            why: OLDER | REPLACED,
            ..
        }) => Some(Fit::Later),
        Err(_) => None,
    }
}

/// Prepares a pool for a command that works on its bytes: writes the image to the pool's log or
/// discards it, and rolls back uncommitted changes of a split pool.
pub(crate) fn settle(pool: &Path, opening: &Opening, discard_image: bool) -> Outcome {
    let image = Bytes::open(pool, &opening.data)?;
    let has_undo =
        survey::superblock(&image).is_some_and(|superblock| superblock.geometry().has_undo());
    if !discard_image && !has_undo && !matches!(left(&image, pool)?, Left::Alive(_)) {
        return Ok(());
    }
    drop(image);
    let options = opening.options(false).discard_image(discard_image);
    let settled = Pool::settle_image(pool, &options);
    settled.map(drop).map_err(|error| match has_undo {
        true => location::refused(pool, &error),
        // No advice to discard the image: the user is doing that.
        false if discard_image => location::refused(pool, &error),
        false => refused(pool, &error),
    })
}

fn refused(pool: &Path, error: &vellum::Error) -> Failure {
    let failure = location::refused(pool, error);
    if let vellum::Error::Media(MediaError::Image { .. }) = error {
        return failure;
    }
    failure.advise(format!(
        "a process that had {} open was killed; `vellum repair --discard-image {}` discards its \
         unsynced changes",
        pool.display(),
        quoted(pool)
    ))
}
