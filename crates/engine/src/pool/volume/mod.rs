//! A file system used by paths, like `std::fs`.

mod canonical;
mod copy;
mod dir;
mod file;
mod flags;
mod locks;
mod metadata;
mod remove;
mod xattr;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use vellum_media::Real;

use crate::error::{Error, Result};
use crate::fs::{Access, Cred, Node, OpenOptions, RenameFlags, SetAttr};
use crate::pool::RealFs;
use copy::copy_data;
pub use dir::{DirEntry, ReadDir, Walk};
pub use file::File;
pub use metadata::{FileType, Metadata, Permissions};

/// A file system, used by paths as one user. Relative paths start at the root. Its methods are
/// those of `std::fs`, and fail with POSIX errors.
///
/// ```
/// let pool = vellum::Pool::memory(16 << 20)?;
/// let volume = pool.volume();
/// volume.create_dir_all("/mail/new")?;
/// volume.write("/mail/new/1", "Hello")?;
/// volume.rename("/mail/new/1", "/mail/1")?;
/// assert_eq!(volume.read_to_string("/mail/1")?, "Hello");
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Volume {
    fs: Arc<RealFs>,
    cred: Cred,
}

fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

impl Volume {
    pub(crate) fn new(fs: Arc<RealFs>, umask: u16) -> Self {
        Self {
            fs,
            cred: Cred {
                umask,
                ..Cred::current()
            },
        }
    }

    /// Returns the same file system, used as another user with the same umask.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use vellum::{Cred, Error, Permissions};
    ///
    /// volume.write("/secret", "42")?;
    /// volume.set_permissions("/secret", Permissions::from_mode(0o600))?;
    /// let other = volume.with_cred(Cred::user(54_321, 54_321));
    /// assert!(matches!(other.read("/secret"), Err(Error::Access)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    #[must_use]
    pub fn with_cred(&self, cred: Cred) -> Self {
        let umask = self.cred.umask;
        Self {
            fs: Arc::clone(&self.fs),
            cred: Cred { umask, ..cred },
        }
    }

    /// Returns the same file system with another file mode creation mask than the process had when
    /// it opened the pool.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.with_umask(0o077).write("/secret", "42")?;
    /// assert_eq!(volume.metadata("/secret")?.permissions().mode(), 0o600);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    #[must_use]
    pub fn with_umask(&self, umask: u16) -> Self {
        let mut masked = self.clone();
        masked.cred.umask = umask;
        masked
    }

    /// Returns the user as whom the file system is used, with the umask.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// let volume = pool.volume().with_umask(0o027);
    /// assert_eq!(volume.cred(), &vellum::Cred { umask: 0o027, ..vellum::Cred::current() });
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn cred(&self) -> &Cred {
        &self.cred
    }

    /// Returns the file system by inodes and names.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let found = volume.fs().stat_fs();
    /// assert!(found.blocks_free <= found.blocks);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn fs(&self) -> &Arc<RealFs> {
        &self.fs
    }

    fn parent_and_name<'p>(&self, path: &'p Path) -> Result<(Node<Real>, &'p [u8])> {
        self.parent_and_name_from(&self.fs.root(), path)
    }

    /// Returns the directory of a path's last name, and that name. The path begins in `start`.
    fn parent_and_name_from<'p>(
        &self,
        start: &Node<Real>,
        path: &'p Path,
    ) -> Result<(Node<Real>, &'p [u8])> {
        let bytes = bytes_of(path);
        let end = bytes
            .iter()
            .rposition(|&b| b != b'/')
            .map_or(0, |at| at + 1);
        let cut = bytes[..end]
            .iter()
            .rposition(|&b| b == b'/')
            .map_or(0, |at| at + 1);
        let dir = if cut == 0 { &b"."[..] } else { &bytes[..cut] };
        match &bytes[cut..end] {
            b"" if bytes.is_empty() => Err(Error::NotFound),
            b"" => Err(Error::Busy),
            name => Ok((self.fs.find(&self.cred, start, dir, true)?, name)),
        }
    }

    fn node(&self, path: &Path, follow: bool) -> Result<Node<Real>> {
        let path = bytes_of(path);
        self.fs.find(&self.cred, &self.fs.root(), path, follow)
    }

    /// Lists a directory, whose path is `path`.
    fn list(&self, dir: Node<Real>, path: &Path) -> Result<ReadDir> {
        self.fs.access(&self.cred, &dir, Access::READ)?;
        Ok(ReadDir::new(self, dir, path))
    }

    /// Opens a file with `options`; the umask masks the mode of a new file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use vellum::OpenOptions;
    ///
    /// let options = OpenOptions::new().write(true).create_new(true);
    /// volume.open_with("/log", &options)?;
    /// assert!(volume.open_with("/log", &options).is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let path = bytes_of(path.as_ref());
        let handle = self.fs.open(&self.cred, &self.fs.root(), path, options)?;
        Ok(File::new(handle))
    }

    /// Opens a file for reading.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use std::io::Read;
    ///
    /// volume.write("/f", "text")?;
    /// let mut text = String::new();
    /// volume.open("/f")?.read_to_string(&mut text)?;
    /// assert_eq!(text, "text");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, &OpenOptions::new().read(true))
    }

    /// Opens a file for writing and reading. Creates the file, or truncates an existing one.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use std::io::Write;
    ///
    /// let mut file = volume.create("/f")?;
    /// writeln!(file, "a line")?;
    /// file.sync_all()?;
    /// assert_eq!(volume.read_to_string("/f")?, "a line\n");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        let options = OpenOptions::new().read(true).write(true);
        self.open_with(path, &options.create(true).truncate(true))
    }

    /// Returns the whole content of a file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", [1, 2, 3])?;
    /// assert_eq!(volume.read("/f")?, [1, 2, 3]);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `open(2)` and `read(2)`.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        let size = usize::try_from(file.metadata()?.len()).map_err(|_| Error::TooLarge)?;
        let mut content = vec![0; size];
        let len = file.read_at(&mut content, 0)?;
        content.truncate(len);
        Ok(content)
    }

    /// Returns the whole content of a text file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// assert_eq!(volume.read_to_string("/f")?, "text");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::read`], and [`Error::NotUtf8`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(path)?).map_err(|_| Error::NotUtf8)
    }

    /// Replaces the whole content of a file. Creates the file if it does not exist.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// volume.write("/f", b"bytes")?;
    /// assert_eq!(volume.read("/f")?, b"bytes");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `open(2)` and `write(2)`.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create(path)?;
        file.write_all_at(content.as_ref(), 0)
    }

    /// Copies content and permission bits of a file; returns its size. Holes stay holes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/a", "text")?;
    /// assert_eq!(volume.copy("/a", "/b")?, 4);
    /// assert_eq!(volume.read_to_string("/b")?, "text");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the source is not a regular file, or is the target. As `open(2)`, `read(2)` and
    /// `write(2)`; the target may then have part of the content.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open(from)?;
        let found = source.metadata()?;
        if !found.is_file() {
            return Err(Error::WrongKind);
        }
        if self
            .metadata(&to)
            .is_ok_and(|target| target.ino() == found.ino())
        {
            return Err(Error::Invalid("a file cannot be copied onto itself"));
        }
        let mode = found.permissions().mode() as u16;
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let target = self.open_with(to, &options.mode(mode))?;
        target.set_permissions(found.permissions())?;
        copy_data(&source, &target)
    }

    /// Returns the attributes of the file that a path names, following symbolic links.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir("/d")?;
    /// assert!(volume.metadata("/d")?.is_dir());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `stat(2)`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), true)
    }

    /// Returns the attributes of the file that a path names, without following a symbolic link at
    /// its end.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.symlink("nowhere", "/link")?;
    /// assert!(volume.symlink_metadata("/link")?.is_symlink());
    /// assert!(volume.metadata("/link").is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `lstat(2)`.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), false)
    }

    fn stat(&self, path: &Path, follow: bool) -> Result<Metadata> {
        let attr = self.fs.stat_from_root(&self.cred, bytes_of(path), follow)?;
        Ok(Metadata::new(attr))
    }

    /// Whether a path names a file, following symbolic links.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// assert!(!volume.try_exists("/f")?);
    /// volume.write("/f", "")?;
    /// assert!(volume.try_exists("/f")?);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if that cannot be determined, for example if a directory of the path may not be
    /// searched.
    pub fn try_exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a path is known to name a file: [`Self::try_exists`], with errors as `false`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// assert!(volume.exists("/") && !volume.exists("/f"));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.try_exists(path).unwrap_or(false)
    }

    /// Returns the absolute path of a file, without symbolic links, `.` and `..`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir_all("/a/b")?;
    /// volume.symlink("a/b", "/link")?;
    /// assert_eq!(volume.canonicalize("link/../b")?.as_os_str(), "/a/b");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `stat(2)`.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        canonical::canonicalize(self, path.as_ref())
    }

    /// Changes permission bits, set-id bits and the sticky bit, following symbolic links.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use vellum::Permissions;
    ///
    /// volume.write("/f", "")?;
    /// volume.set_permissions("/f", Permissions::from_mode(0o600))?;
    /// assert_eq!(volume.metadata("/f")?.permissions().mode(), 0o600);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `chmod(2)`.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let set = SetAttr::new().mode(Some(permissions.mode() as u16));
        self.set_attr(path, &set).map(drop)
    }

    /// When a file was created, following symbolic links.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let before = std::time::SystemTime::now();
    /// volume.write("/f", "text")?;
    /// assert!(volume.created("/f")? >= before);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `statx(2)`.
    pub fn created(&self, path: impl AsRef<Path>) -> Result<SystemTime> {
        let node = self.node(path.as_ref(), true)?;
        self.fs.birth_time_ns(&node).map(metadata::time_of)
    }

    /// Changes attributes of a file, following symbolic links. Returns all its attributes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use vellum::{SetAttr, SetTime};
    ///
    /// volume.write("/f", "")?;
    /// let set = SetAttr::new().mtime(Some(SetTime::At(1_000_000_000)));
    /// assert_eq!(volume.set_attr("/f", &set)?.times_ns()[1], 1_000_000_000);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `chmod(2)`, `chown(2)`, `utimensat(2)` and `truncate(2)`.
    pub fn set_attr(&self, path: impl AsRef<Path>, set: &SetAttr) -> Result<Metadata> {
        let node = self.node(path.as_ref(), true)?;
        self.fs.set_attr(&self.cred, &node, set).map(Metadata::new)
    }

    /// Creates a directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir("/d")?;
    /// assert!(matches!(volume.create_dir("/d"), Err(vellum::Error::Exists)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.parent_and_name(path.as_ref())?;
        self.fs.mkdir(&self.cred, &dir, name, 0o777).map(drop)
    }

    /// Creates a directory and all missing directories above it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir_all("/a/b/c")?;
    /// volume.create_dir_all("/a/b/c")?;
    /// assert!(volume.metadata("/a/b/c")?.is_dir());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `mkdir(2)`; an existing directory is not an error.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut made = PathBuf::from("/");
        for part in path.as_ref().components() {
            made.push(part);
            match self.create_dir(&made) {
                Ok(()) | Err(Error::Busy) => {}
                Err(Error::Exists) if self.metadata(&made).is_ok_and(|found| found.is_dir()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes a name that is not a directory's. The file is freed with its last name.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "")?;
    /// volume.remove_file("/f")?;
    /// assert!(!volume.exists("/f"));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.parent_and_name(path.as_ref())?;
        self.fs.unlink(&self.cred, &dir, name)
    }

    /// Removes an empty directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir("/d")?;
    /// volume.remove_dir("/d")?;
    /// assert!(!volume.exists("/d"));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.parent_and_name(path.as_ref())?;
        self.fs.rmdir(&self.cred, &dir, name)
    }

    /// Removes a directory and everything in it. Symbolic links are removed, never followed. `/`
    /// itself stays, empty.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir_all("/a/b")?;
    /// volume.write("/a/b/f", "")?;
    /// volume.remove_dir_all("/a")?;
    /// assert!(!volume.exists("/a"));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `unlink(2)` and `rmdir(2)`; part of the tree may be gone then.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        remove::remove_dir_all(self, path.as_ref())
    }

    /// Renames a file or directory, and replaces what has the new name.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/a", "new")?;
    /// volume.write("/b", "old")?;
    /// volume.rename("/a", "/b")?;
    /// assert_eq!(volume.read("/b")?, b"new");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `rename(2)`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// Renames with `flags`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use vellum::RenameFlags;
    ///
    /// volume.write("/a", "a")?;
    /// volume.write("/b", "b")?;
    /// volume.rename_with("/a", "/b", RenameFlags::EXCHANGE)?;
    /// assert_eq!(volume.read("/a")?, b"b");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `renameat2(2)`.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from_dir, from_name) = self.parent_and_name(from.as_ref())?;
        let (to_dir, to_name) = self.parent_and_name(to.as_ref())?;
        self.fs
            .rename(&self.cred, &from_dir, from_name, &to_dir, to_name, flags)
    }

    /// Creates a file without a name in the file system of a directory, for reading and writing
    /// (`O_TMPFILE`). It is gone with its last user, unless [`Self::link_file`] gives it a name.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use std::io::Write;
    ///
    /// let mut file = volume.create_unnamed("/")?;
    /// file.write_all(b"scratch").unwrap();
    /// assert_eq!(volume.read_dir("/")?.count(), 0);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn create_unnamed(&self, dir: impl AsRef<Path>) -> Result<File> {
        let dir = self.node(dir.as_ref(), true)?;
        let options = OpenOptions::new().read(true).write(true);
        let handle = self.fs.create_unnamed(&self.cred, &dir, &options)?;
        Ok(File::new(handle))
    }

    /// Makes `link` a name of an open file, which may have none so far. A file that appears this
    /// way is complete from the first moment.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use std::io::Write;
    ///
    /// let mut file = volume.create_unnamed("/")?;
    /// file.write_all(b"complete").unwrap();
    /// volume.link_file(&file, "/report")?;
    /// assert_eq!(volume.read("/report")?, b"complete");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `link(2)`; [`Error::NotFound`] if all names of the file were removed.
    pub fn link_file(&self, file: &File, link: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.parent_and_name(link.as_ref())?;
        self.fs.link(&self.cred, file.handle().node(), &dir, name)
    }

    /// Makes `link` another name of the file `original`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/a", "")?;
    /// volume.hard_link("/a", "/b")?;
    /// assert_eq!(volume.metadata("/a")?.nlink(), 2);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `link(2)`.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let file = self.node(original.as_ref(), false)?;
        let (dir, name) = self.parent_and_name(link.as_ref())?;
        self.fs.link(&self.cred, &file, &dir, name)
    }

    /// Makes `link` a symbolic link to `target`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.symlink("target", "/link")?;
    /// assert!(volume.symlink_metadata("/link")?.is_symlink());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `symlink(2)`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.parent_and_name(link.as_ref())?;
        let target = bytes_of(target.as_ref());
        self.fs.symlink(&self.cred, &dir, name, target).map(drop)
    }

    /// Returns the target of a symbolic link.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.symlink("target", "/link")?;
    /// assert_eq!(volume.read_link("/link")?.as_os_str(), "target");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `readlink(2)`.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let node = self.node(path.as_ref(), false)?;
        Ok(OsString::from_vec(self.fs.read_link(&node)?).into())
    }

    /// Lists a directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "")?;
    /// let names: Result<Vec<_>, vellum::Error> =
    ///     volume.read_dir("/")?.map(|e| Ok(e?.file_name())).collect();
    /// assert_eq!(names?, ["f"]);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `opendir(3)`; later errors come from the iterator.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let options = OpenOptions::new().read(true).directory(true);
        let dir = self.open_with(path, &options)?;
        Ok(ReadDir::new(self, dir.handle().node().clone(), path))
    }

    /// Lists everything below a directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir_all("/a/b")?;
    /// volume.write("/a/b/f", "")?;
    /// let paths: Result<Vec<_>, vellum::Error> =
    ///     volume.walk("/a")?.map(|e| Ok(e?.path())).collect();
    /// assert_eq!(paths?.last().unwrap().as_os_str(), "/a/b/f");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `opendir(3)`; later errors come from the iterator.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        Ok(Walk::new(self.read_dir(path)?))
    }

    /// Makes everything done before durable, as far as the medium can.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "kept")?;
    /// volume.sync()?;
    /// assert_eq!(volume.read("/f")?, b"kept");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the medium fails.
    pub fn sync(&self) -> Result<()> {
        self.fs.sync()
    }
}
