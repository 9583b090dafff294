//! Listing directories, and all that is below them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use smallvec::SmallVec;
use vellum_layout::FileKind;
use vellum_media::Real;

use super::Volume;
use super::metadata::{FileType, Metadata};
use crate::error::{Error, Result};
use crate::fs::{ListPosition, Node};

/// Entries read from a directory at once.
const LIST_BATCH: usize = 128;

/// Names of up to this many bytes are held in a [`DirEntry`] itself: most names are, and listing
/// them allocates nothing.
const NAME_IN_PLACE: usize = 24;

/// A directory that is listed.
#[derive(Debug)]
struct Listed {
    volume: Volume,
    node: Node<Real>,
    path: PathBuf,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    dir: Arc<Listed>,
    name: SmallVec<[u8; NAME_IN_PLACE]>,
    kind: FileKind,
    ino: u64,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> OsString {
        self.name().to_owned()
    }

    /// The name, without a copy of it.
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }

    /// The path that was listed, and the name behind it.
    pub fn path(&self) -> PathBuf {
        self.dir.path.join(self.name())
    }

    /// The kind of file, as the directory has it.
    ///
    /// # Errors
    /// None; the result is that of `std::fs`.
    pub fn file_type(&self) -> Result<FileType> {
        Ok(self.kind.into())
    }

    /// What is known of the file, of a symbolic link itself.
    ///
    /// # Errors
    /// The entry is gone, the user may not search the directory, damaged media.
    pub fn metadata(&self) -> Result<Metadata> {
        let Listed { volume, node, .. } = &*self.dir;
        let found = volume.fs.lookup(&volume.cred, node, &self.name)?;
        volume.fs.attr(&found).map(Metadata::new)
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.ino
    }
}

/// The entries of a directory, without `.` and `..`. Entries that exist throughout are given
/// exactly once, whatever else happens meanwhile; what is made or renamed since the listing began
/// is not given.
#[derive(Debug)]
pub struct ReadDir {
    dir: Arc<Listed>,
    position: ListPosition,
    after: u64,
    batch: std::vec::IntoIter<DirEntry>,
    done: bool,
}

impl ReadDir {
    pub(super) fn new(volume: &Volume, node: Node<Real>, path: &Path) -> Self {
        Self {
            dir: Arc::new(Listed {
                volume: volume.clone(),
                node,
                path: path.to_owned(),
            }),
            position: ListPosition::default(),
            after: 0,
            batch: Vec::new().into_iter(),
            done: false,
        }
    }

    /// The directory.
    pub(super) fn node(&self) -> &Node<Real> {
        &self.dir.node
    }

    /// Reads the next entries, as many as are held at once.
    fn read_on(&mut self) -> Result<Vec<DirEntry>> {
        let mut batch = Vec::with_capacity(LIST_BATCH);
        let (dir, mut after) = (&self.dir, self.after);
        let fs = &dir.volume.fs;
        let listed = fs.list(&dir.node, self.after, &mut self.position, &mut |entry| {
            if batch.len() == LIST_BATCH {
                return false;
            }
            after = entry.cookie;
            batch.push(DirEntry {
                dir: Arc::clone(dir),
                name: SmallVec::from_slice(entry.name),
                kind: entry.kind,
                ino: entry.ino,
            });
            true
        });
        self.done = batch.is_empty() || batch.len() < LIST_BATCH && !fs.is_damaged();
        self.after = after;
        // The end of a damaged directory is an error, which comes again behind the last names.
        match listed {
            Err(error) if batch.is_empty() => Err(error),
            _ => Ok(batch),
        }
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.batch.next() {
            return Some(Ok(entry));
        }
        if self.done {
            return None;
        }
        match self.read_on() {
            Ok(batch) => {
                self.batch = batch.into_iter();
                self.batch.next().map(Ok)
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// All that is below a directory: each directory before what is in it. Symbolic links are given,
/// not followed. A directory that cannot be listed gives an error, and the walk goes on behind it.
#[derive(Debug)]
pub struct Walk {
    /// Listings that are not over, from the top.
    open: Vec<ReadDir>,
    /// The directory that was given last, whose entries come next.
    next: Option<DirEntry>,
}

impl Walk {
    pub(super) fn new(top: ReadDir) -> Self {
        Self {
            open: vec![top],
            next: None,
        }
    }

    /// Does not go into the directory that was given last.
    pub fn skip_current_dir(&mut self) {
        self.next = None;
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.next.take() {
            let Listed { volume, node, .. } = &*entry.dir;
            let found = volume.fs.lookup(&volume.cred, node, &entry.name);
            match found.and_then(|found| volume.list(found, &entry.path())) {
                Ok(listing) => self.open.push(listing),
                // Somebody has removed it meanwhile.
                Err(Error::NotFound) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        loop {
            match self.open.last_mut()?.next() {
                Some(Ok(entry)) => {
                    self.next = (entry.kind == FileKind::Directory).then(|| entry.clone());
                    return Some(Ok(entry));
                }
                Some(error) => return Some(error),
                None => drop(self.open.pop()),
            }
        }
    }
}
