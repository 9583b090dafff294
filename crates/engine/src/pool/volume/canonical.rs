//! Resolving a path to one without symbolic links.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use vellum_layout::FileKind;
use vellum_media::Real;

use super::Volume;
use crate::error::{Error, Result};
use crate::fs::Node;

/// Symbolic links that are followed in one path, as by `open(2)`.
const LINKS_MAX: usize = 40;

/// See [`Volume::canonicalize`].
pub(super) fn canonicalize(volume: &Volume, path: &Path) -> Result<PathBuf> {
    let fs = &volume.fs;
    let path_of = |dir: &Node<Real>| Ok(PathBuf::from(OsString::from_vec(fs.path_of(dir)?)));
    let found = volume.node(path, true)?;
    if found.kind() == FileKind::Directory {
        return path_of(&found);
    }
    // Only the path names the directory of a file, so the links at its end are followed one by one.
    let (mut start, mut path) = (fs.root(), path.to_owned());
    for _ in 0..=LINKS_MAX {
        let (dir, name) = volume.parent_and_name_from(&start, &path)?;
        let node = fs.lookup(&volume.cred, &dir, name)?;
        if node.kind() != FileKind::Symlink {
            return Ok(path_of(&dir)?.join(OsStr::from_bytes(name)));
        }
        path = OsString::from_vec(fs.read_link(&node)?).into();
        start = dir;
    }
    Err(Error::Loop)
}
