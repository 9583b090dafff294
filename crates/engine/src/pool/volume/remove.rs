//! Removing whole trees.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vellum_layout::FileKind;
use vellum_media::Real;

use super::{ReadDir, Volume};
use crate::error::{Error, Result};
use crate::fs::Node;

/// A directory that is being emptied.
struct Emptied {
    /// Its name in its parent.
    name: OsString,
    listing: ReadDir,
}

/// See [`Volume::remove_dir_all`]. Names that others remove meanwhile are not an error.
pub(super) fn remove_dir_all(volume: &Volume, path: &Path) -> Result<()> {
    let top = match volume.parent_and_name(path) {
        Err(Error::Busy) => None,
        found => Some(found?),
    };
    let Some((dir, name)) = top else {
        return empty(volume, volume.fs.root());
    };
    let found = volume.fs.lookup(&volume.cred, &dir, name)?;
    match found.kind() {
        FileKind::Directory => {
            empty(volume, found)?;
            volume.fs.rmdir(&volume.cred, &dir, name)
        }
        FileKind::Symlink => volume.fs.unlink(&volume.cred, &dir, name),
        _ => Err(Error::NotDirectory),
    }
}

/// Removes everything in a directory. Deep trees take memory, not stack.
fn empty(volume: &Volume, top: Node<Real>) -> Result<()> {
    let mut open = vec![enter(volume, top, OsString::new())?];
    while let Some(dir) = open.last_mut() {
        match dir.listing.next().transpose()? {
            Some(entry) if entry.file_type()?.is_dir() => {
                let name = entry.file_name();
                match volume
                    .fs
                    .lookup(&volume.cred, dir.listing.node(), name.as_bytes())
                {
                    Ok(node) => open.push(enter(volume, node, name)?),
                    Err(Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            Some(entry) => {
                let name = entry.name().as_bytes();
                gone(volume.fs.unlink(&volume.cred, dir.listing.node(), name))?;
            }
            None => {
                let done = open.pop().map(|dir| dir.name).unwrap_or_default();
                if let Some(above) = open.last() {
                    let removed =
                        volume
                            .fs
                            .rmdir(&volume.cred, above.listing.node(), done.as_bytes());
                    gone(removed)?;
                }
            }
        }
    }
    Ok(())
}

fn enter(volume: &Volume, dir: Node<Real>, name: OsString) -> Result<Emptied> {
    let listing = volume.list(dir, Path::new(""))?;
    Ok(Emptied { name, listing })
}

fn gone(removed: Result<()>) -> Result<()> {
    match removed {
        Err(Error::NotFound) => Ok(()),
        other => other,
    }
}
