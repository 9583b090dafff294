//! Attributes of files, as in `std::fs`.

use std::time::{Duration, SystemTime};

use vellum_layout::FileKind;

use crate::error::Result;
use crate::fs::Attr;

/// A kind of file.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// let kind = volume.metadata("/")?.file_type();
/// assert!(kind.is_dir() && !kind.is_file());
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileType(FileKind);

impl FileType {
    /// Whether it is a directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// assert!(volume.metadata("/")?.file_type().is_dir());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn is_dir(&self) -> bool {
        self.0 == FileKind::Directory
    }

    /// Whether it is a regular file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// assert!(volume.metadata("/f")?.file_type().is_file());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn is_file(&self) -> bool {
        self.0 == FileKind::File
    }

    /// Whether it is a symbolic link.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.symlink("nowhere", "/link")?;
    /// assert!(volume.symlink_metadata("/link")?.file_type().is_symlink());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn is_symlink(&self) -> bool {
        self.0 == FileKind::Symlink
    }

    /// Whether it is a named pipe.
    ///
    /// ```
    /// use vellum::{FileKind, FileType};
    ///
    /// assert!(FileType::from(FileKind::Fifo).is_fifo());
    /// ```
    pub fn is_fifo(&self) -> bool {
        self.0 == FileKind::Fifo
    }

    /// Whether it is a local socket.
    ///
    /// ```
    /// use vellum::{FileKind, FileType};
    ///
    /// assert!(FileType::from(FileKind::Socket).is_socket());
    /// ```
    pub fn is_socket(&self) -> bool {
        self.0 == FileKind::Socket
    }

    /// Whether it is a block device.
    ///
    /// ```
    /// use vellum::{FileKind, FileType};
    ///
    /// assert!(FileType::from(FileKind::BlockDevice).is_block_device());
    /// ```
    pub fn is_block_device(&self) -> bool {
        self.0 == FileKind::BlockDevice
    }

    /// Whether it is a character device.
    ///
    /// ```
    /// use vellum::{FileKind, FileType};
    ///
    /// assert!(FileType::from(FileKind::CharDevice).is_char_device());
    /// ```
    pub fn is_char_device(&self) -> bool {
        self.0 == FileKind::CharDevice
    }

    /// Returns the kind, to match on.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use vellum::FileKind;
    ///
    /// let text = match volume.metadata("/")?.file_type().kind() {
    ///     FileKind::Directory => "a directory",
    ///     FileKind::File => "a file",
    ///     _ => "something else",
    /// };
    /// assert_eq!(text, "a directory");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn kind(&self) -> FileKind {
        self.0
    }
}

impl From<FileKind> for FileType {
    fn from(kind: FileKind) -> Self {
        Self(kind)
    }
}

/// The permissions of a file: permission bits, set-id bits and sticky bit.
///
/// ```
/// use vellum::{Permissions, Pool};
///
/// let pool = Pool::memory(16 << 20)?;
/// let volume = pool.volume();
/// volume.write("/secret", "42")?;
/// volume.set_permissions("/secret", Permissions::from_mode(0o600))?;
/// assert_eq!(volume.metadata("/secret")?.permissions().mode(), 0o600);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions(u16);

impl Permissions {
    const WRITE: u16 = 0o222;

    /// Permissions with these bits; bits above `0o7777` are ignored.
    ///
    /// ```
    /// use vellum::Permissions;
    ///
    /// // The kind of file in an `st_mode` is ignored.
    /// assert_eq!(Permissions::from_mode(0o100_640), Permissions::from_mode(0o640));
    /// ```
    pub fn from_mode(mode: u32) -> Self {
        Self((mode & 0o7777) as u16)
    }

    /// Returns the bits.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.with_umask(0o027).create_dir("/d")?;
    /// assert_eq!(volume.metadata("/d")?.permissions().mode(), 0o750);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn mode(&self) -> u32 {
        self.0.into()
    }

    /// Replaces the bits; those above `0o7777` are ignored.
    ///
    /// ```
    /// let mut permissions = vellum::Permissions::from_mode(0o644);
    /// permissions.set_mode(permissions.mode() | 0o111);
    /// assert_eq!(permissions.mode(), 0o755);
    /// ```
    pub fn set_mode(&mut self, mode: u32) {
        *self = Self::from_mode(mode);
    }

    /// Whether no write bit is set.
    ///
    /// ```
    /// use vellum::Permissions;
    ///
    /// assert!(Permissions::from_mode(0o444).readonly());
    /// assert!(!Permissions::from_mode(0o464).readonly()); // the group may write
    /// ```
    pub fn readonly(&self) -> bool {
        self.0 & Self::WRITE == 0
    }

    /// Clears or sets all write bits.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "final")?;
    /// let mut permissions = volume.metadata("/f")?.permissions();
    /// permissions.set_readonly(true);
    /// volume.set_permissions("/f", permissions)?;
    /// assert_eq!(volume.metadata("/f")?.permissions().mode() & 0o222, 0);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn set_readonly(&mut self, readonly: bool) {
        match readonly {
            true => self.0 &= !Self::WRITE,
            false => self.0 |= Self::WRITE,
        }
    }
}

/// The attributes of a file.
///
/// ```
/// let pool = vellum::Pool::memory(16 << 20)?;
/// let volume = pool.volume();
/// volume.write("/f", "twelve bytes")?;
/// let metadata = volume.metadata("/f")?;
/// assert!(metadata.is_file() && metadata.len() == 12);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(Attr);

impl Metadata {
    pub(crate) fn new(attr: Attr) -> Self {
        Self(attr)
    }

    /// Returns the kind of file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// assert!(volume.metadata("/")?.file_type().is_dir());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn file_type(&self) -> FileType {
        FileType(self.0.kind)
    }

    /// Whether it is a directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// assert!(volume.metadata("/")?.is_dir());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// assert!(volume.metadata("/f")?.is_file());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.symlink("nowhere", "/link")?;
    /// assert!(volume.symlink_metadata("/link")?.is_symlink());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Size in bytes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// assert_eq!(volume.metadata("/f")?.len(), 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    #[expect(clippy::len_without_is_empty, reason = "as std::fs::Metadata")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Permission bits.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.with_umask(0o022).write("/f", "text")?;
    /// assert_eq!(volume.metadata("/f")?.permissions().mode(), 0o644);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn permissions(&self) -> Permissions {
        Permissions(self.0.mode)
    }

    /// When the content was last changed.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// let age = volume.metadata("/f")?.modified()?.elapsed().unwrap_or_default();
    /// assert!(age.as_secs() < 60);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Never fails; returns a result as `std::fs` does.
    pub fn modified(&self) -> Result<SystemTime> {
        Ok(time_of(self.0.mtime_ns))
    }

    /// When the content was last read, as far as the pool records it
    /// ([`AccessTimes`](crate::core::access_times::AccessTimes)).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// volume.read("/f")?;
    /// let found = volume.metadata("/f")?;
    /// assert!(found.accessed()? >= found.modified()?);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Never fails; returns a result as `std::fs` does.
    pub fn accessed(&self) -> Result<SystemTime> {
        Ok(time_of(self.0.atime_ns))
    }

    /// When content or attributes were last changed.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// let before = volume.metadata("/f")?.changed()?;
    /// volume.set_permissions("/f", vellum::Permissions::from_mode(0o600))?;
    /// assert!(volume.metadata("/f")?.changed()? > before);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Never fails; returns a result as `std::fs` does.
    pub fn changed(&self) -> Result<SystemTime> {
        Ok(time_of(self.0.ctime_ns))
    }

    /// The inode number.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/a", "text")?;
    /// volume.hard_link("/a", "/b")?;
    /// assert_eq!(volume.metadata("/a")?.ino(), volume.metadata("/b")?.ino());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn ino(&self) -> u64 {
        self.0.ino
    }

    /// The generation of the inode. With the inode number it identifies a file forever.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// let found = volume.metadata("/f")?;
    /// assert!(pool.fs().node(found.ino(), found.generation()).is_ok());
    /// volume.remove_file("/f")?;
    /// assert!(pool.fs().node(found.ino(), found.generation()).is_err()); // whatever `ino` is now
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// The kind of file and permission bits, as in `st_mode` of `stat(2)`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// assert_eq!(volume.metadata("/")?.mode(), libc::S_IFDIR | 0o755);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn mode(&self) -> u32 {
        u32::from(self.0.kind as u8) << 12 | u32::from(self.0.mode)
    }

    /// The number of hard links. A directory has 2, and one more for each directory in it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir_all("/d/a")?;
    /// volume.create_dir_all("/d/b")?;
    /// assert_eq!(volume.metadata("/d")?.nlink(), 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn nlink(&self) -> u64 {
        self.0.nlink.into()
    }

    /// The owner.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let volume = volume.with_cred(vellum::Cred::root());
    /// volume.write("/f", "text")?;
    /// assert_eq!(volume.metadata("/f")?.uid(), 0);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// The group.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let volume = volume.with_cred(vellum::Cred::root());
    /// volume.write("/f", "text")?;
    /// assert_eq!(volume.set_attr("/f", &vellum::SetAttr::new().gid(Some(100)))?.gid(), 100);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// The device number of a device file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let (fs, cred) = (pool.fs(), vellum::Cred::root());
    /// fs.mknod(&cred, &fs.root(), b"null", vellum::FileKind::CharDevice, 0o666, 0x103)?;
    /// assert_eq!(volume.metadata("/null")?.rdev(), 0x103);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn rdev(&self) -> u64 {
        self.0.device
    }

    /// Allocated space, in units of 512 bytes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let file = volume.create("/f")?;
    /// file.set_len(1 << 20)?; // a hole
    /// assert_eq!(file.metadata()?.blocks(), 0);
    /// file.write_at(b"text", 0)?;
    /// assert_eq!(file.metadata()?.blocks(), 8);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn blocks(&self) -> u64 {
        self.0.blocks_512
    }

    /// Times of the last access, modification and status change [ns since 1970].
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// let [_, modified, changed] = volume.metadata("/f")?.times_ns();
    /// assert!(modified <= changed);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn times_ns(&self) -> [i64; 3] {
        [self.0.atime_ns, self.0.mtime_ns, self.0.ctime_ns]
    }
}

/// The time that is `ns` nanoseconds after 1970.
pub(super) fn time_of(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    match ns {
        0.. => SystemTime::UNIX_EPOCH + distance,
        _ => SystemTime::UNIX_EPOCH - distance,
    }
}

/// Nanoseconds since 1970. Times out of range become the first or last that fits.
pub(super) fn ns_of(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_beyond_64_bits_convert() {
        for ns in [0, 1, -1, 1_700_000_000_123_456_789, i64::MAX, -i64::MAX] {
            assert_eq!(ns_of(time_of(ns)), ns);
        }
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(ns_of(far), i64::MAX);
        let long_ago = SystemTime::UNIX_EPOCH - Duration::from_secs(1 << 40);
        assert_eq!(ns_of(long_ago), i64::MIN);
    }

    #[test]
    fn write_permissions_are_cleared_and_set() {
        let mut permissions = Permissions::from_mode(0o100_644);
        assert_eq!(permissions.mode(), 0o644);
        permissions.set_readonly(true);
        assert!(permissions.readonly() && permissions.mode() == 0o444);
        permissions.set_readonly(false);
        assert_eq!(permissions.mode(), 0o666);
    }
}
