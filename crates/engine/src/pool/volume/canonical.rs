//! Resolving a path to one without symbolic links.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use vellum_layout::FileKind;
use vellum_media::Real;

use super::Volume;
use crate::error::{Error, Result};
use crate::fs::Node;

/// Symbolic links that are followed for one path, as `open(2)` follows them.
const LINKS_MAX: usize = 40;

/// What a path has come to: the directories from the root on, each with its name.
struct Resolved {
    nodes: Vec<Node<Real>>,
    path: PathBuf,
}

/// See [`Volume::canonicalize`].
pub(super) fn canonicalize(volume: &Volume, path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(Error::NotFound);
    }
    let mut left = parts_of(path);
    let mut found = Resolved {
        nodes: vec![volume.fs.root()],
        path: PathBuf::from("/"),
    };
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            found.path.pop();
            found.nodes.truncate((found.nodes.len() - 1).max(1));
            continue;
        }
        let dir = found.nodes.last().ok_or(Error::NotFound)?;
        let node = volume.fs.lookup(&volume.cred, dir, name.as_bytes())?;
        if node.kind() != FileKind::Symlink {
            found.nodes.push(node);
            found.path.push(name);
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Error::Loop);
        }
        let target = PathBuf::from(OsString::from_vec(volume.fs.read_link(&node)?));
        if target.is_absolute() {
            found.nodes.truncate(1);
            found.path = PathBuf::from("/");
        }
        left.extend(parts_of(&target));
    }
    // A path that ends with a slash, or dots, names a directory.
    volume.metadata(path)?;
    Ok(found.path)
}

/// The names of a path, the first one last.
fn parts_of(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    });
    names.collect()
}
