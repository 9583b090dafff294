//! Listing directories and whole trees.

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

/// Entries that are read from a directory at once.
const LIST_BATCH: usize = 128;

/// Names of up to this many bytes are kept in the [`DirEntry`] itself. Most names are, and listing
/// them allocates nothing.
const NAME_IN_PLACE: usize = 24;

/// A directory that is being listed.
#[derive(Debug)]
struct Listed {
    volume: Volume,
    node: Node<Real>,
    path: PathBuf,
}

/// An entry of a directory.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// volume.create_dir_all("/mail/new")?;
/// for entry in volume.read_dir("/mail")? {
///     let entry = entry?;
///     assert!(entry.file_type()?.is_dir() && entry.path().as_os_str() == "/mail/new");
/// }
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DirEntry {
    dir: Arc<Listed>,
    name: SmallVec<[u8; NAME_IN_PLACE]>,
    kind: FileKind,
    ino: u64,
}

impl DirEntry {
    /// Returns the name.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.write("/f", "text")?;
    /// let entry = volume.read_dir("/")?.next().expect("there is a file")?;
    /// assert_eq!(entry.file_name(), "f");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn file_name(&self) -> OsString {
        self.name().to_owned()
    }

    /// Returns the name without copying it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.write("/notes.txt", "text")?;
    /// let is_text = |name: &std::ffi::OsStr| name.as_encoded_bytes().ends_with(b".txt");
    /// let texts = volume.read_dir("/")?.filter(|e| e.as_ref().is_ok_and(|e| is_text(e.name())));
    /// assert_eq!(texts.count(), 1);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }

    /// Returns the path that was listed, joined with the name.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.create_dir("/d")?;
    /// # volume.write("/d/f", "text")?;
    /// let entry = volume.read_dir("/d")?.next().expect("there is a file")?;
    /// assert_eq!(volume.read(entry.path())?, b"text");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn path(&self) -> PathBuf {
        self.dir.path.join(self.name())
    }

    /// Returns the kind of file, as the directory entry has it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.write("/f", "text")?;
    /// let entry = volume.read_dir("/")?.next().expect("there is a file")?;
    /// assert!(entry.file_type()?.is_file());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Never fails; returns a result as `std::fs` does.
    pub fn file_type(&self) -> Result<FileType> {
        Ok(self.kind.into())
    }

    /// Returns the attributes of the file, without following a symbolic link.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.write("/f", "text")?;
    /// let entry = volume.read_dir("/")?.next().expect("there is a file")?;
    /// assert_eq!(entry.metadata()?.len(), 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the entry is gone, the user may not search the directory, or the medium is damaged.
    pub fn metadata(&self) -> Result<Metadata> {
        let Listed { volume, node, .. } = &*self.dir;
        let found = volume.fs.lookup(&volume.cred, node, &self.name)?;
        volume.fs.attr(&found).map(Metadata::new)
    }

    /// Returns the inode number.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.write("/f", "text")?;
    /// let entry = volume.read_dir("/")?.next().expect("there is a file")?;
    /// assert_eq!(entry.ino(), volume.metadata("/f")?.ino());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn ino(&self) -> u64 {
        self.ino
    }
}

/// The entries of a directory, without `.` and `..`. Entries that exist throughout the listing are
/// returned exactly once, whatever else happens meanwhile. Names that were created, or made by a
/// rename, since the listing began are not returned.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// # volume.write("/a", "")?;
/// # volume.write("/b", "")?;
/// let mut listing = volume.read_dir("/")?;
/// assert!(listing.next().is_some());
/// volume.write("/later", "")?;
/// assert_eq!(listing.count(), 1); // without the name that is younger than the listing
/// # Ok::<(), vellum::Error>(())
/// ```
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

    /// Reads the next batch of entries.
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
        // The end of a damaged directory is an error, which is returned after the last names.
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

/// Everything below a directory, each directory before its entries. Symbolic links are returned,
/// not followed. A directory that cannot be listed yields an error, and the walk continues behind
/// it.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// volume.create_dir_all("/a/b")?;
/// volume.symlink("/a", "/a/b/link")?; // not followed
/// let names: Result<Vec<_>, vellum::Error> =
///     volume.walk("/")?.map(|entry| Ok(entry?.file_name())).collect();
/// assert_eq!(names?, ["a", "b", "link"]);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Debug)]
pub struct Walk {
    /// The listings in progress, from the top.
    open: Vec<ReadDir>,
    /// The directory that was returned last, whose entries come next.
    next: Option<DirEntry>,
}

impl Walk {
    pub(super) fn new(top: ReadDir) -> Self {
        Self {
            open: vec![top],
            next: None,
        }
    }

    /// Skips the entries of the directory that was returned last.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir_all("/src/.git/objects")?;
    /// let (mut walk, mut seen) = (volume.walk("/")?, 0);
    /// while let Some(entry) = walk.next().transpose()? {
    ///     seen += 1;
    ///     if entry.name() == ".git" {
    ///         walk.skip_current_dir();
    ///     }
    /// }
    /// assert_eq!(seen, 2); // `objects` was skipped
    /// # Ok::<(), vellum::Error>(())
    /// ```
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
                // It was removed meanwhile.
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
