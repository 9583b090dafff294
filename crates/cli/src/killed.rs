//! What a killed process left in memory of a pool with a log, and what was not committed of metadata whose data lie elsewhere: for commands
//! that look at the pool's bytes without opening it.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vellum::media::{ImageKey, LeftImage, left_image};
use vellum::{Pool, PoolOptions, boot_id};
use vellum_check::{Line, survey};
use vellum_terminal::{Failure, Outcome};

use crate::args::Opening;
use crate::bytes::Bytes;
use crate::place;

/// What is there of the pool, which is locked.
pub(crate) enum Left {
    /// Nothing, and nothing is missing.
    Nothing,
    /// It is gone, or of no use: the pool is as of its last commit.
    Gone,
    /// All that the process had done: lines of metadata that are newer than the pool's file.
    Alive(Vec<Line>),
}

/// Looks for it.
pub(crate) fn left(image: &Bytes, pool: &Path) -> Outcome<Left> {
    let log = survey::superblock(image)
        .filter(|superblock| superblock.geometry().is_logged())
        .and_then(|superblock| Some((superblock.uuid, survey::redo_log(image, &superblock)?)));
    let Some((uuid, log)) = log else {
        return Ok(Left::Nothing);
    };
    let Some(tag) = log.anchor.image().filter(|tag| tag.boot == boot_id()) else {
        return Ok(Left::Nothing);
    };
    let key = ImageKey {
        dir: Path::new(OsStr::from_bytes(&tag.dir)),
        uuid,
        boot: tag.boot,
    };
    let found = left_image(image.file().as_fd(), &key, tag.attach, log.end.0 - 1);
    match found.map_err(|error| refused(pool, &error.into()))? {
        LeftImage::Alive { lines, .. } => Ok(Left::Alive(lines)),
        LeftImage::Nothing | LeftImage::Poisoned => Ok(Left::Gone),
    }
}

/// Takes it into the pool's log, or gives it up, and takes back what has to be, before a command works on the pool's bytes.
pub(crate) fn settle(pool: &Path, opening: &Opening, last_epoch: bool) -> Outcome {
    let image = Bytes::open(pool, &opening.data)?;
    let has_versions =
        survey::superblock(&image).is_some_and(|superblock| superblock.geometry().has_versions());
    if !last_epoch && !has_versions && !matches!(left(&image, pool)?, Left::Alive(_)) {
        return Ok(());
    }
    drop(image);
    let options = PoolOptions {
        last_epoch,
        ..opening.options(false)
    };
    let settled = Pool::settle_image(pool, &options);
    settled.map(drop).map_err(|error| match has_versions {
        true => place::refused(pool, &error),
        false => refused(pool, &error),
    })
}

fn refused(pool: &Path, error: &vellum::Error) -> Failure {
    place::refused(pool, error).advise(format!(
        "a process that had {0} open was killed; `vellum repair --last-epoch {0}` gives up what it had not synced",
        pool.display()
    ))
}
