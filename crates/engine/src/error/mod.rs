//! Every error of the library, precise inside; [`Error::errno`] translates it at the edge.

mod copy;
mod dataset;
mod device;
mod resize;

use std::path::PathBuf;

use thiserror::Error;
use vellum_layout::{GeometryError, SuperblockError};
use vellum_media::MediaError;

pub use copy::CopyError;
pub use dataset::DatasetError;
pub use device::{MediumError, SegmentError};
pub use resize::ResizeError;

/// The result of an operation.
///
/// ```
/// fn lines(volume: &vellum::Volume, path: &str) -> vellum::Result<usize> {
///     Ok(volume.read_to_string(path)?.lines().count())
/// }
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// pool.volume().write("/f", "a\nb\n")?;
/// assert_eq!(lines(&pool.volume(), "/f")?, 2);
/// # Ok::<(), vellum::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// What has to happen outside the operation before it is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// A wait for the end of a move, during which the names of this directory must not change.
    Wait,
    /// A move of a directory together with all names below it.
    Move,
    /// A wait until changes may go on.
    Paused,
}

/// Why an operation failed. [`Error::errno`] is the errno that a POSIX call returns for it. The
/// conversion into [`std::io::Error`] keeps errno and kind.
///
/// ```
/// let pool = vellum::Pool::memory(16 << 20)?;
/// let error = pool.volume().open("/nowhere").unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// assert_eq!(std::io::Error::from(error).raw_os_error(), Some(libc::ENOENT));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No entry has that name.
    #[error("no such file or directory")]
    NotFound,
    /// An entry has that name already.
    #[error("the name exists already")]
    Exists,
    /// A component is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The operation does not work on directories.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The permission bits forbid it.
    #[error("permission denied")]
    Access,
    /// Only the owner or a privileged user may do this, or a file's flags forbid it.
    #[error("operation not permitted")]
    NotPermitted,
    /// The directory takes only names of files with its own project id.
    #[error("the directory takes only files of its own project")]
    OtherProject,
    /// A name is longer than 255 bytes, or a path longer than 4095.
    #[error("the name or path is too long")]
    NameTooLong,
    /// The path leads through more than 40 symbolic links.
    #[error("too many levels of symbolic links")]
    Loop,
    /// An argument is not valid.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The pool has no space left.
    #[error("no space left in the pool ({0})")]
    NoSpace(&'static str),
    /// The user, the group or the project of a file has used what it may.
    #[error("the quota of the file's user, group or project is used up")]
    QuotaExceeded,
    /// Quotas are off.
    #[error("the file system has no quotas; `vellum quota on` turns them on")]
    NoQuotas,
    /// The file would be too large.
    #[error("the file would be too large")]
    TooLarge,
    /// The link count is at its limit.
    #[error("too many links")]
    TooManyLinks,
    /// A symbolic link or special file, where a regular file is needed.
    #[error("the file is not of the kind this needs")]
    WrongKind,
    /// A pipe, socket or device is to be opened. Through a mount the kernel opens it.
    #[error("pipes, sockets and devices can be opened through a mount only")]
    SpecialFile,
    /// A seek for data or a hole found none before the end of the file.
    #[error("no data or hole at or after that offset")]
    NoData,
    /// The file has no such extended attribute.
    #[error("no such extended attribute")]
    NoAttribute,
    /// The name of an extended attribute is empty, or longer than 255 bytes.
    #[error("an extended attribute's name has 1 to 255 bytes")]
    AttributeName,
    /// The value of an extended attribute is longer than 64 KiB.
    #[error("an extended attribute's value has at most 65536 bytes")]
    AttributeTooLong,
    /// The extended attributes of a file would take more than 1 MiB, or their names more than 64
    /// KiB, or an access control list more than 4 KiB.
    #[error("a file has at most 1 MiB of extended attributes, and 64 KiB of their names")]
    AttributesFull,
    /// The content of a file is not text.
    #[error("the file's content is not UTF-8")]
    NotUtf8,
    /// The handle's inode was freed.
    #[error("the file no longer exists (stale handle)")]
    Stale,
    /// The file was not opened for this operation.
    #[error("the file is not open for that")]
    BadHandle,
    /// The file system was opened for reading only.
    #[error("the file system is open for reading only")]
    ReadOnly,
    /// In use: the root directory, a mount point, or a pool with unlinked open files.
    #[error("in use")]
    Busy,
    /// Another owner has a lock, and the request does not wait.
    #[error("locked by another owner")]
    WouldBlock,
    /// The time to wait for a lock is over.
    #[error("another owner kept its lock until the time was over")]
    TimedOut,
    /// The wait for a lock was cancelled.
    #[error("the wait for a lock was cancelled")]
    Interrupted,
    /// A process would wait for a lock of a process that waits for it.
    #[error("the process would wait for a lock of one that waits for it")]
    LockDeadlock,
    /// The table of locks is full.
    #[error("too many locks on files of this pool")]
    NoLocks,
    /// A number is beyond its limit.
    #[error("value too large: {0}")]
    Overflow(&'static str),
    /// The calling thread would wait for one of its own views.
    #[error("the calling thread has a view of these bytes")]
    Deadlock,
    /// The medium or this release does not support it.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// A table of the arena is full, and nothing can be evicted.
    #[error("out of shared memory for {0}")]
    OutOfMemory(&'static str),
    /// The pool's bytes contradict each other.
    #[error("damaged: {what} at {place}; run `vellum check`, then `vellum repair`")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where.
        place: Location,
    },
    /// The medium cannot read these bytes any more.
    #[error("{0} cannot be read from the medium; run `vellum check`")]
    Unreadable(Location),
    /// Damage was found since the pool was opened.
    #[error(
        "the pool is damaged: nothing more is written to it; close it, then `vellum check` shows \
         the damage and `vellum repair` mends it"
    )]
    ReadOnlyAfterDamage,
    /// This process is a fork of the one that opened the pool; only that one may use it.
    #[error(
        "the pool belongs to the process that this one was forked from: open pools after the fork"
    )]
    Forked,
    /// The pool was closed, and its volumes and files with it.
    #[error("the pool is closed")]
    Closed,
    /// The pool was closed, but views of its files still lend out its bytes.
    #[error(
        "the pool is closed; {}",
        match views {
            1 => "1 view of its files is still there: drop it to open the pool again".to_owned(),
            _ => format!("{views} views of its files are still there: drop them to open the pool \
                          again"),
        }
    )]
    Lent {
        /// How many views.
        views: u64,
    },
    /// The pool is damaged and cannot be opened for writing.
    #[error(
        "{path}: the pool is damaged ({first}); it can be read with `vellum mount -o ro` and \
         examined with `vellum check`; `vellum repair` mends it, or reports why it cannot"
    )]
    Refused {
        /// The pool.
        path: PathBuf,
        /// The first damage found.
        first: String,
    },
    /// A conversion to another namespace has begun and not ended.
    #[error("the pool is half converted to another namespace: `vellum convert` finishes that")]
    Converting,
    /// The operation has changed nothing yet and is tried again. No caller outside the crate sees
    /// this.
    #[doc(hidden)]
    #[error("the operation has to be tried again")]
    Retry(Retry),
    /// The superblock is not accepted.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The pool cannot be laid out.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The pool's data cannot be reached.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// The pool has no such dataset, or cannot get another one.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The pool cannot get another external data device.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The pool cannot get another size.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The pool could not be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The medium failed.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The operating system failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// A location in the pool, for messages.
///
/// ```
/// assert_eq!(vellum::Location::Inode(7).to_string(), "inode 7");
/// assert_eq!(vellum::Location::Offset(4096).to_string(), "pool offset 0x1000");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// An inode by number.
    Inode(u64),
    /// A metadata slot.
    Slot(u64),
    /// A metadata chunk.
    Chunk(u64),
    /// A data block.
    Block(u64),
    /// A pool offset.
    Offset(u64),
    /// A pool offset in a named region.
    Region(&'static str, u64),
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inode(n) => write!(f, "inode {n}"),
            Self::Slot(n) => write!(f, "metadata slot {n}"),
            Self::Chunk(n) => write!(f, "metadata chunk {n}"),
            Self::Block(n) => write!(f, "data block {n}"),
            Self::Offset(n) => write!(f, "pool offset {n:#x}"),
            Self::Region(name, n) => write!(f, "{name} at pool offset {n:#x}"),
        }
    }
}

impl Error {
    /// The reason in [`Error::NoSpace`] if too few data blocks are free.
    pub const DATA_BLOCKS: &str = "data blocks";
    /// The reason in [`Error::NoSpace`] if the pool has metadata slots left, but `/dev/shm` has no
    /// memory for them.
    pub const SHARED_MEMORY_FULL: &str =
        "/dev/shm, which holds its metadata while it is open, is full: free memory there";
    /// The same reason for an image in another directory.
    pub const IMAGE_MEMORY_FULL: &str = "the directory that holds its metadata while it is open, \
         which `vellum info` names, is full: free memory there";

    /// The error for damaged `what` at `place`.
    pub(crate) fn damaged(what: &'static str, place: Location) -> Self {
        Self::Damaged { what, place }
    }

    /// The kind of the [`std::io::Error`] that this converts into.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use std::io::ErrorKind;
    ///
    /// let error = volume.create_dir("/").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn kind(&self) -> std::io::ErrorKind {
        match self {
            Self::NotUtf8 => std::io::ErrorKind::InvalidData,
            Self::Io(error) if error.raw_os_error().is_none() => error.kind(),
            _ => std::io::Error::from_raw_os_error(self.errno()).kind(),
        }
    }

    /// The location of the damage, or of the bytes that cannot be read.
    ///
    /// ```
    /// use vellum::{Error, Location};
    ///
    /// let error = Error::Unreadable(Location::Block(42));
    /// assert_eq!(error.place(), Some(Location::Block(42)));
    /// assert_eq!(Error::NotFound.place(), None);
    /// ```
    pub fn place(&self) -> Option<Location> {
        match self {
            Self::Damaged { place, .. } | Self::Unreadable(place) => Some(*place),
            _ => None,
        }
    }

    /// The errno a POSIX call returns for this.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir_all("/a/b")?;
    /// assert_eq!(volume.remove_dir("/a").unwrap_err().errno(), libc::ENOTEMPTY);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound => libc::ENOENT,
            Self::Exists => libc::EEXIST,
            Self::NotDirectory => libc::ENOTDIR,
            Self::IsDirectory => libc::EISDIR,
            Self::NotEmpty => libc::ENOTEMPTY,
            Self::Access => libc::EACCES,
            Self::NotPermitted => libc::EPERM,
            Self::OtherProject => libc::EXDEV,
            Self::NameTooLong => libc::ENAMETOOLONG,
            Self::Loop => libc::ELOOP,
            Self::Invalid(_) | Self::WrongKind => libc::EINVAL,
            Self::NoSpace(_) | Self::AttributesFull => libc::ENOSPC,
            Self::QuotaExceeded => libc::EDQUOT,
            Self::NoQuotas => libc::ESRCH,
            Self::TooLarge => libc::EFBIG,
            Self::TooManyLinks => libc::EMLINK,
            Self::NoData | Self::SpecialFile => libc::ENXIO,
            Self::NoAttribute => libc::ENODATA,
            Self::AttributeName => libc::ERANGE,
            Self::AttributeTooLong => libc::E2BIG,
            Self::NotUtf8 => libc::EILSEQ,
            Self::Stale => libc::ESTALE,
            Self::BadHandle => libc::EBADF,
            Self::ReadOnly | Self::ReadOnlyAfterDamage => libc::EROFS,
            Self::Unreadable(_) => libc::EIO,
            Self::Closed => libc::EBADF,
            Self::Busy | Self::Forked | Self::Lent { .. } => libc::EBUSY,
            Self::Deadlock | Self::LockDeadlock => libc::EDEADLK,
            Self::Retry(_) | Self::WouldBlock => libc::EAGAIN,
            Self::TimedOut => libc::ETIMEDOUT,
            Self::Interrupted => libc::EINTR,
            Self::NoLocks => libc::ENOLCK,
            Self::Overflow(_) => libc::EOVERFLOW,
            Self::Unsupported(_) => libc::EOPNOTSUPP,
            Self::OutOfMemory(_) => libc::ENOMEM,
            Self::Superblock(SuperblockError::Version(_) | SuperblockError::Features(_)) => {
                libc::EOPNOTSUPP
            }
            Self::Superblock(SuperblockError::ReadOnlyFeatures(_)) => libc::EROFS,
            Self::Damaged { .. }
            | Self::Refused { .. }
            | Self::Converting
            | Self::Superblock(_) => libc::EUCLEAN,
            Self::Geometry(_) => libc::EINVAL,
            Self::Medium(MediumError::Missing { source, .. }) => source.to_errno(),
            Self::Medium(_) => libc::EINVAL,
            Self::Dataset(error) => error.errno(),
            Self::Segment(SegmentError::NoRoom { .. }) => libc::ENOSPC,
            Self::Segment(_) => libc::EINVAL,
            Self::Resize(ResizeError::NoRoom { .. }) => libc::ENOSPC,
            Self::Resize(_) => libc::EINVAL,
            Self::Copy(error) => error.errno(),
            Self::Media(error) => error.to_errno(),
            Self::Io(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// Keeps the errno ([`Error::errno`]), which programs expect of file operations. An error of the
/// standard library has an errno or a text, not both. Where the pool or its medium is at fault, the
/// text is logged.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// fn first_line(volume: &vellum::Volume) -> std::io::Result<String> {
///     Ok(volume.read_to_string("/f")?.lines().next().unwrap_or_default().to_owned())
/// }
/// assert_eq!(first_line(&volume).unwrap_err().raw_os_error(), Some(libc::ENOENT));
/// # Ok::<(), vellum::Error>(())
/// ```
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let errno = error.errno();
        match error {
            Error::Io(error) if error.raw_os_error().is_none_or(|os| os == errno) => return error,
            Error::NotUtf8 => return Self::new(std::io::ErrorKind::InvalidData, error),
            Error::Damaged { .. }
            | Error::Unreadable(_)
            | Error::ReadOnlyAfterDamage
            | Error::Refused { .. }
            | Error::Converting
            | Error::Superblock(_)
            | Error::Geometry(_)
            | Error::Medium(_)
            | Error::Dataset(_)
            | Error::Segment(_)
            | Error::Resize(_)
            | Error::Media(_)
            | Error::Io(_) => tracing::warn!(%error, errno, "only the errno is returned"),
            _ => {}
        }
        Self::from_raw_os_error(errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_standard_library_keeps_the_errno() {
        for (error, errno) in [
            (Error::NotFound, libc::ENOENT),
            (Error::NoSpace(Error::DATA_BLOCKS), libc::ENOSPC),
            (Error::Forked, libc::EBUSY),
            (Error::Closed, libc::EBADF),
            (Error::damaged("a name", Location::Slot(1)), libc::EUCLEAN),
            (
                Error::Io(std::io::Error::from_raw_os_error(libc::EDQUOT)),
                libc::EDQUOT,
            ),
        ] {
            let text = error.to_string();
            let told = std::io::Error::from(error);
            assert_eq!(told.raw_os_error(), Some(errno), "{text}");
        }
    }

    #[test]
    fn an_error_without_an_errno_keeps_its_kind() {
        let short = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        for error in [Error::Io(short()), Error::NotUtf8] {
            let kind = error.kind();
            assert_eq!(std::io::Error::from(error).kind(), kind);
            assert_ne!(kind, std::io::ErrorKind::Other);
        }
    }

    #[test]
    fn damage_names_its_place() {
        let error = Error::damaged("a name", Location::Slot(7));
        assert_eq!(error.place(), Some(Location::Slot(7)));
        assert_eq!(Error::NotFound.place(), None);
    }
}
