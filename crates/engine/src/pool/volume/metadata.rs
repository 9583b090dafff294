//! Attributes of files, as `std::fs` shows them.

use std::time::{Duration, SystemTime};

use vellum_layout::FileKind;

use crate::error::Result;
use crate::fs::Attr;

/// What kind of file something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileType(FileKind);

impl FileType {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0 == FileKind::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0 == FileKind::File
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0 == FileKind::Symlink
    }

    /// Whether it is a named pipe.
    pub fn is_fifo(&self) -> bool {
        self.0 == FileKind::Fifo
    }

    /// Whether it is a local socket.
    pub fn is_socket(&self) -> bool {
        self.0 == FileKind::Socket
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.0 == FileKind::BlockDevice
    }

    /// Whether it is a character device.
    pub fn is_char_device(&self) -> bool {
        self.0 == FileKind::CharDevice
    }

    /// The kind, to match on.
    pub fn kind(&self) -> FileKind {
        self.0
    }
}

impl From<FileKind> for FileType {
    fn from(kind: FileKind) -> Self {
        Self(kind)
    }
}

/// Who may do what with a file: its permission bits, set-id bits and sticky bit.
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

    /// These bits; those above `0o7777` are ignored.
    pub fn from_mode(mode: u32) -> Self {
        Self((mode & 0o7777) as u16)
    }

    /// The bits.
    pub fn mode(&self) -> u32 {
        self.0.into()
    }

    /// Replaces the bits; those above `0o7777` are ignored.
    pub fn set_mode(&mut self, mode: u32) {
        *self = Self::from_mode(mode);
    }

    /// Whether nobody may write.
    pub fn readonly(&self) -> bool {
        self.0 & Self::WRITE == 0
    }

    /// Takes everybody's permission to write, or gives it to everybody.
    pub fn set_readonly(&mut self, readonly: bool) {
        match readonly {
            true => self.0 &= !Self::WRITE,
            false => self.0 |= Self::WRITE,
        }
    }
}

/// What is known of a file beside its content.
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

    /// The kind of file.
    pub fn file_type(&self) -> FileType {
        FileType(self.0.kind)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "as std::fs::Metadata")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Permission bits.
    pub fn permissions(&self) -> Permissions {
        Permissions(self.0.mode)
    }

    /// When the content changed last.
    ///
    /// # Errors
    /// None; the result is that of `std::fs`.
    pub fn modified(&self) -> Result<SystemTime> {
        Ok(time_of(self.0.mtime_ns))
    }

    /// When the content was read last, as far as the pool keeps that
    /// ([`AccessTimes`](crate::core::access_times::AccessTimes)).
    ///
    /// # Errors
    /// None; the result is that of `std::fs`.
    pub fn accessed(&self) -> Result<SystemTime> {
        Ok(time_of(self.0.atime_ns))
    }

    /// When content or attributes changed last.
    ///
    /// # Errors
    /// None; the result is that of `std::fs`.
    pub fn changed(&self) -> Result<SystemTime> {
        Ok(time_of(self.0.ctime_ns))
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.0.ino
    }

    /// Generation of the inode: with the inode number it names a file for ever.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// Kind of file and permission bits, as `st_mode` of `stat(2)` has them.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.kind as u8) << 12 | u32::from(self.0.mode)
    }

    /// Hard links. A directory has 2, and one for each directory in it.
    pub fn nlink(&self) -> u64 {
        self.0.nlink.into()
    }

    /// User.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Device number, of a device file.
    pub fn rdev(&self) -> u64 {
        self.0.device
    }

    /// Space in use, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks_512
    }

    /// Times of the last access, modification and status change [ns since 1970].
    pub fn times_ns(&self) -> [i64; 3] {
        [self.0.atime_ns, self.0.mtime_ns, self.0.ctime_ns]
    }
}

/// The time of so many nanoseconds since 1970.
fn time_of(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    match ns {
        0.. => SystemTime::UNIX_EPOCH + distance,
        _ => SystemTime::UNIX_EPOCH - distance,
    }
}

/// Nanoseconds since 1970; times that do not fit are the first or the last one that does.
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
    fn permissions_to_write_go_and_come() {
        let mut permissions = Permissions::from_mode(0o100_644);
        assert_eq!(permissions.mode(), 0o644);
        permissions.set_readonly(true);
        assert!(permissions.readonly() && permissions.mode() == 0o444);
        permissions.set_readonly(false);
        assert_eq!(permissions.mode(), 0o666);
    }
}
