//! The file or device of a pool: opening, locking, allocating its blocks, and finding out what it
//! is.

use crate::holders::{Locked, lock_when_they_end};
use crate::mapping::Mapping;
use crate::process::Process;
use crate::{MediaError, MediaKind, in_flight, range_locks};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mm::MapFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// File system numbers of memory, from `linux/magic.h`.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
/// Bytes per call where blocks can only be allocated by writing.
const ZEROS_BYTES: usize = 1 << 20;

/// What kind of file a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// A device-DAX node.
    Dax,
}

/// The descriptor of a pool. The lock ends when this is [released](Self::release), at the latest
/// when it is dropped, and does not wait for the last duplicate: a child that another thread has
/// just forked has one until it executes its program.
pub(crate) struct PoolFile {
    fd: OwnedFd,
    /// The process that may release the lock: not a child that continues without having opened
    /// anything.
    opened_by: Process,
    /// The descriptor that carries the lock, if it is not this one.
    locked: Option<Arc<PoolFile>>,
    /// Number of users of the lock that this descriptor carries, including itself.
    users: AtomicUsize,
    is_released: AtomicBool,
}

impl PoolFile {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            opened_by: Process::current(),
            locked: None,
            users: AtomicUsize::new(1),
            is_released: AtomicBool::new(false),
        }
    }

    /// Opens the same file once more, under the same lock. The kernel reports a writeback error
    /// once to each open file: of two pools that share one, only one would learn of it.
    pub(crate) fn again(self: &Arc<Self>) -> Result<Self, Errno> {
        let fd = self.reopened(OFlags::empty())?;
        let carrier = self.locked.as_ref().unwrap_or(self);
        carrier.users.fetch_add(1, Ordering::AcqRel);
        let mut again = Self::new(fd);
        again.opened_by = self.opened_by;
        again.locked = Some(Arc::clone(carrier));
        Ok(again)
    }

    /// Releases the range locks of this descriptor, and the lock on the file unless others use it.
    pub(crate) fn release(&self) {
        if self.opened_by != Process::current() || self.is_released.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.locked.is_some() {
            range_locks::release(self);
        }
        let carrier = self.locked.as_deref().unwrap_or(self);
        if carrier.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            range_locks::release(carrier);
            let _ = rustix::fs::flock(&carrier.fd, FlockOperation::Unlock);
        }
    }

    /// Opens the same file once more, with more flags and without a lock.
    pub(crate) fn reopened(&self, more: OFlags) -> Result<OwnedFd, Errno> {
        let flags = rustix::fs::fcntl_getfl(&self.fd)? & OFlags::RWMODE;
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        rustix::fs::open(path, flags | more | OFlags::CLOEXEC, Mode::empty())
    }
}

impl AsFd for PoolFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        // Closing the descriptor releases the locks as well, if there is no duplicate.
        self.release();
    }
}

/// The descriptor of an open pool. Dropping it releases the descriptor, even if others still need
/// it for the lock that it carries.
pub(crate) struct Held(Arc<PoolFile>);

impl Held {
    pub(crate) fn new(file: PoolFile) -> Self {
        Self(Arc::new(file))
    }
}

impl std::ops::Deref for Held {
    type Target = Arc<PoolFile>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// An open, locked pool file.
pub(crate) struct Backing {
    pub(crate) fd: PoolFile,
    pub(crate) path: PathBuf,
    pub(crate) node: Node,
    /// Bytes of the file or device.
    pub(crate) len: u64,
    /// Bytes that the kernel maps at once.
    pub(crate) page_bytes: usize,
    /// Whether all bytes were just created, as zeros.
    pub(crate) known_zero: bool,
}

/// Which files `create` accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// The file must not exist.
    Refused,
    /// A file is emptied; a device is used as it is.
    Replaced,
}

/// How much of a new file gets space at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewSpace {
    /// Every block.
    #[default]
    Whole,
    /// None: whoever stores to the file [provides](crate::Medium::provide) the space first.
    Sparse,
}

/// The purpose of a lock on a file.
#[derive(Clone, Copy)]
enum Lock<'n> {
    /// To change it; no other process has it open.
    Change,
    /// To read it, as others may.
    Read,
    /// To read the dataset of this name, while other processes may change other datasets.
    ReadOne(&'n str),
}

impl Lock<'_> {
    /// Takes the lock; `false` if another process is in the way.
    fn take(self, fd: &OwnedFd) -> io::Result<bool> {
        let operation = match self {
            Self::Change => FlockOperation::NonBlockingLockExclusive,
            Self::Read => FlockOperation::NonBlockingLockShared,
            Self::ReadOne(name) => return range_locks::try_to_read(fd, name),
        };
        match rustix::fs::flock(fd, operation) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Backing {
    /// Opens and locks an existing pool.
    pub(crate) fn open(path: &Path, read_only: bool) -> Result<Self, MediaError> {
        let lock = match read_only {
            true => Lock::Read,
            false => Lock::Change,
        };
        Self::open_for(path, lock)
    }

    /// Opens an existing pool to read the dataset of this name, while other processes may change
    /// others.
    pub(crate) fn open_to_read(path: &Path, name: &str) -> Result<Self, MediaError> {
        Self::open_for(path, Lock::ReadOne(name))
    }

    fn open_for(path: &Path, lock: Lock<'_>) -> Result<Self, MediaError> {
        let read_only = !matches!(lock, Lock::Change);
        let access = if read_only {
            OFlags::RDONLY
        } else {
            OFlags::RDWR
        };
        // Opening some devices has side effects, and the path may come from a pool.
        let stat = rustix::fs::stat(path).map_err(|e| failed("open", path, e))?;
        node_of(&stat, path)?;
        // NONBLOCK: opening a FIFO in the place of a pool must not block.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed("open", path, e))?;
        let backing = Self::locked(fd, path, lock)?;
        if backing.len == 0 {
            return Err(MediaError::Empty { path: backing.path });
        }
        if read_only && backing.node == Node::Dax {
            return Err(MediaError::ReadOnlyDevice { path: backing.path });
        }
        Ok(backing)
    }

    /// Creates and locks a pool of `len` bytes, all of them allocated. A `len` of 0 uses the whole
    /// device.
    pub(crate) fn create(
        path: &Path,
        (len, space): (u64, NewSpace),
        existing: Existing,
    ) -> Result<Self, MediaError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let new = flags | OFlags::CREATE | OFlags::EXCL;
        let (fd, is_new) = match rustix::fs::open(path, new, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => (fd, true),
            Err(Errno::EXIST) if existing == Existing::Refused => {
                return Err(MediaError::Exists {
                    path: path.to_owned(),
                });
            }
            Err(Errno::EXIST) => {
                let fd = rustix::fs::open(path, flags, Mode::empty());
                (fd.map_err(|e| failed("open", path, e))?, false)
            }
            Err(errno) => return Err(failed("create", path, errno)),
        };
        let made = Self::locked(fd, path, Lock::Change).and_then(|backing| {
            range_locks::exclude_all(&backing.fd, path)?;
            backing.sized(len, space)
        });
        if made.is_err() && is_new {
            // The file is ours and useless; a failure to remove it changes nothing.
            let _ = rustix::fs::unlink(path);
        }
        made
    }

    /// Takes the lock, then examines the opened file.
    fn locked(fd: OwnedFd, path: &Path, lock: Lock<'_>) -> Result<Self, MediaError> {
        let stat = rustix::fs::fstat(&fd).map_err(|e| failed("examine", path, e))?;
        let node = node_of(&stat, path)?;
        match lock_when_they_end(&fd, || lock.take(&fd)) {
            Ok(true) => {}
            Ok(false) => {
                let (device, inode) = (stat.st_dev, stat.st_ino);
                let owner_pid = Locked { device, inode }.holders().first().copied();
                return Err(MediaError::Busy {
                    path: path.to_owned(),
                    owner_pid,
                });
            }
            Err(source) => {
                let (action, path) = ("lock", path.to_owned());
                return Err(MediaError::Io {
                    action,
                    path,
                    source,
                });
            }
        }
        // If a live process changes other datasets, writes in flight of a killed process need no
        // wait: the bytes that are read are not theirs.
        if !range_locks::are_told(&fd) {
            in_flight::wait(&fd, path)?;
        }
        let mut page_bytes = rustix::param::page_size();
        let len = match node {
            Node::File => {
                if fs_type(&fd) == Some(HUGETLBFS_MAGIC) {
                    page_bytes = usize::try_from(stat.st_blksize).unwrap_or(page_bytes);
                }
                // The size seen before the lock may be old.
                rustix::fs::fstat(&fd)
                    .map_err(|e| failed("examine", path, e))?
                    .st_size as u64
            }
            Node::Block => rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0))
                .map_err(|e| failed("find the size of", path, e))?,
            Node::Dax => {
                page_bytes = dax_attribute(stat.st_rdev, "align")
                    .and_then(|bytes| usize::try_from(bytes).ok())
                    .filter(|bytes| bytes.is_power_of_two())
                    .unwrap_or(2 << 20);
                dax_attribute(stat.st_rdev, "size").unwrap_or(0)
            }
        };
        Ok(Self {
            fd: PoolFile::new(fd),
            path: path.to_owned(),
            node,
            len,
            page_bytes,
            known_zero: false,
        })
    }

    /// Makes the file `len` bytes long. Unless somebody else provides the space, every block is
    /// allocated: a store into a hole of a full disk would raise SIGBUS.
    fn sized(mut self, len: u64, space: NewSpace) -> Result<Self, MediaError> {
        if self.node != Node::File {
            if len > self.len {
                let available_bytes = self.len;
                return Err(MediaError::TooLarge {
                    path: self.path,
                    len_bytes: len,
                    available_bytes,
                });
            }
            self.len = if len == 0 { self.len } else { len };
            return Ok(self);
        }
        if len == 0 {
            return Err(MediaError::Empty { path: self.path });
        }
        let done = self.allocate(len, space);
        done.map_err(|errno| no_room(&self.path, len, errno))?;
        self.len = len;
        self.known_zero = true;
        self.make_name_durable()?;
        Ok(self)
    }

    fn allocate(&self, len: u64, space: NewSpace) -> Result<(), Errno> {
        rustix::fs::ftruncate(&self.fd, 0)?;
        rustix::fs::ftruncate(&self.fd, len)?;
        if space == NewSpace::Sparse {
            return Ok(());
        }
        if fs_type(&self.fd) == Some(TMPFS_MAGIC) {
            self.take_large_pages(len);
        }
        allocate(self.fd.as_fd(), 0, len)
    }

    /// Puts a new file on tmpfs on large pages, as far as the kernel has them.
    fn take_large_pages(&self, len: u64) {
        let mapped = Mapping::new(self.fd.as_fd(), len, MapFlags::SHARED, self.page_bytes);
        if let Ok(mapping) = mapped {
            mapping.gather_large_pages(self.page_bytes, len);
        }
    }

    /// Makes the name of a new pool survive a power cut.
    fn make_name_durable(&self) -> Result<(), MediaError> {
        rustix::fs::fsync(&self.fd).map_err(|e| failed("write back", &self.path, e))?;
        let parent = self.path.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // An unreadable directory, or a file system that cannot sync one, is no reason to refuse
        // the pool.
        if let Ok(directory) = rustix::fs::open(parent, flags, Mode::empty()) {
            let _ = rustix::fs::fsync(directory);
        }
        Ok(())
    }

    /// The kind of medium, for a pool that is not on DAX.
    pub(crate) fn plain_kind(&self) -> MediaKind {
        if self.node == Node::File && is_memory(fs_type(&self.fd)) {
            MediaKind::Memory
        } else {
            MediaKind::File
        }
    }
}

/// Allocates all blocks of `len` bytes from `at` on, which are zeros. The file grows if necessary.
pub(crate) fn allocate(fd: BorrowedFd<'_>, at: u64, len: u64) -> Result<(), Errno> {
    loop {
        match rustix::fs::fallocate(fd, FallocateFlags::empty(), at, len) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return write_zeros(fd, at, len),
            done => return done,
        }
    }
}

fn write_zeros(fd: BorrowedFd<'_>, from: u64, len: u64) -> Result<(), Errno> {
    let zeros = vec![0; ZEROS_BYTES];
    let mut done = 0;
    while done < len {
        let bytes = (len - done).min(ZEROS_BYTES as u64) as usize;
        match rustix::io::pwrite(fd, &zeros[..bytes], from + done) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => done += written as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The error for `len` bytes that cannot be allocated.
pub(crate) fn no_room(path: &Path, len: u64, errno: Errno) -> MediaError {
    let path = path.to_owned();
    match errno {
        Errno::NOSPC | Errno::DQUOT => MediaError::NoSpace {
            path,
            len_bytes: len,
        },
        Errno::FBIG => MediaError::TooLarge {
            path,
            len_bytes: len,
            available_bytes: 0,
        },
        _ => failed("allocate", &path, errno),
    }
}

/// An [`MediaError::Io`].
pub(crate) fn failed(action: &'static str, path: &Path, errno: Errno) -> MediaError {
    MediaError::Io {
        action,
        path: path.to_owned(),
        source: io::Error::from(errno),
    }
}

/// Whether this number stands for a file system in memory.
pub(crate) fn is_memory(fs_type: Option<u64>) -> bool {
    matches!(fs_type, Some(TMPFS_MAGIC | RAMFS_MAGIC | HUGETLBFS_MAGIC))
}

pub(crate) fn fs_type(fd: impl AsFd) -> Option<u64> {
    // The kernel's magic numbers have 32 bits; a signed field may have extended them.
    rustix::fs::fstatfs(fd)
        .ok()
        .map(|stat| u64::from(stat.f_type as u32))
}

/// The node at a path, if there is one and a pool can lie on it.
pub(crate) fn node_at(path: &Path) -> Option<Node> {
    let stat = rustix::fs::stat(path).ok()?;
    node_of(&stat, path).ok()
}

/// The node, if a pool can lie on it.
pub(crate) fn node_of(stat: &Stat, path: &Path) -> Result<Node, MediaError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Node::File),
        FileType::BlockDevice => Ok(Node::Block),
        FileType::CharacterDevice if is_dax(stat.st_rdev) => Ok(Node::Dax),
        other => Err(MediaError::NotAPool {
            path: path.to_owned(),
            found: name_of(other),
        }),
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "directory",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::Symlink => "symbolic link",
        FileType::CharacterDevice => "character device",
        _ => "file of unknown type",
    }
}

/// The sysfs directory of a character device.
fn sysfs_of(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PathBuf::from(format!("/sys/dev/char/{major}:{minor}"))
}

fn is_dax(device: u64) -> bool {
    std::fs::canonicalize(sysfs_of(device).join("subsystem"))
        .is_ok_and(|subsystem| subsystem.file_name().is_some_and(|name| name == "dax"))
}

/// A number from sysfs, decimal or hexadecimal with `0x`.
fn dax_attribute(device: u64, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(sysfs_of(device).join(name)).ok()?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
