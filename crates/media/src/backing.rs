//! What lies behind a pool: opening it, locking it, giving it its blocks, telling what it is.

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
/// Bytes written at once where blocks can only be had by writing.
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

/// The descriptor of a pool. The lock goes when this is [released](Self::release), at the latest
/// when it is dropped, and not only with the last duplicate: a child that another thread has just
/// forked has one, until it runs its program.
pub(crate) struct PoolFile {
    fd: OwnedFd,
    /// The process that may give the lock up: not a child that goes on without having opened
    /// anything.
    opened_by: Process,
    /// The descriptor that carries the lock, if this one does not.
    locked: Option<Arc<PoolFile>>,
    /// How many use the lock that this one carries, itself among them.
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

    /// The same file, opened once more, under the same lock. The kernel tells each opening of a
    /// file once that bytes could not be written back: of one that two pools share only one would
    /// hear of it.
    pub(crate) fn again(self: &Arc<Self>) -> Result<Self, Errno> {
        let fd = self.reopened(OFlags::empty())?;
        let carrier = self.locked.as_ref().unwrap_or(self);
        carrier.users.fetch_add(1, Ordering::AcqRel);
        let mut again = Self::new(fd);
        again.opened_by = self.opened_by;
        again.locked = Some(Arc::clone(carrier));
        Ok(again)
    }

    /// Gives up what this has locked, and the lock on the file, unless others use it.
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

    /// The same file, opened once more, with more flags and without a lock.
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
        // Closing the descriptor gives the locks up as well, if nobody else has it.
        self.release();
    }
}

/// The descriptor of a pool that is open, which releases it when it is dropped, though others may
/// need it for the lock that it carries.
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
    /// Whether all bytes were just made, as zeros.
    pub(crate) known_zero: bool,
}

/// Which files `create` accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// There must be none.
    Refused,
    /// A file is emptied, a device is taken as it is.
    Replaced,
}

/// What a file is locked for.
#[derive(Clone, Copy)]
enum Lock<'n> {
    /// To change it; nobody else has it open.
    Change,
    /// To read it, as others may.
    Read,
    /// To read the dataset of this name in it, whoever changes others.
    ReadOne(&'n str),
}

impl Lock<'_> {
    /// Takes it; `false`: somebody else is in the way.
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

    /// Opens an existing pool to read the dataset of this name in it, whoever changes others.
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
        // Opening some devices does things, and a path may be what a pool says.
        let stat = rustix::fs::stat(path).map_err(|e| failed("open", path, e))?;
        node_of(&stat, path)?;
        // NONBLOCK: a FIFO in the pool's place must not make us wait.
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

    /// Creates and locks a pool of `len` bytes, all of them allocated. A `len` of 0 takes all of a
    /// device.
    pub(crate) fn create(path: &Path, len: u64, existing: Existing) -> Result<Self, MediaError> {
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
            backing.sized(len)
        });
        if made.is_err() && is_new {
            // The file is ours and useless; whether it goes cannot change the answer.
            let _ = rustix::fs::unlink(path);
        }
        made
    }

    /// Takes the lock, then looks at what was opened.
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
        // Beside somebody who changes others and is there, nothing of a dead one is waited for:
        // what is read is nobody's.
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

    /// Makes the file `len` bytes long, with every block allocated: a store into a hole of a full
    /// disk would be a SIGBUS.
    fn sized(mut self, len: u64) -> Result<Self, MediaError> {
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
        let done = self.allocate(len);
        done.map_err(|errno| no_room(&self.path, len, errno))?;
        self.len = len;
        self.known_zero = true;
        self.make_name_durable()?;
        Ok(self)
    }

    fn allocate(&self, len: u64) -> Result<(), Errno> {
        rustix::fs::ftruncate(&self.fd, 0)?;
        rustix::fs::ftruncate(&self.fd, len)?;
        if fs_type(&self.fd) == Some(TMPFS_MAGIC) {
            self.take_large_pages(len);
        }
        allocate(self.fd.as_fd(), 0, len)
    }

    /// Lets a file on tmpfs begin its life on large pages, as far as the kernel has them.
    fn take_large_pages(&self, len: u64) {
        let mapped = Mapping::new(self.fd.as_fd(), len, MapFlags::SHARED, self.page_bytes);
        if let Ok(mapping) = mapped {
            mapping.gather_large_pages(self.page_bytes, len);
        }
    }

    /// A pool that was created is there after a power cut.
    fn make_name_durable(&self) -> Result<(), MediaError> {
        rustix::fs::fsync(&self.fd).map_err(|e| failed("write back", &self.path, e))?;
        let parent = self.path.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A directory that cannot be read, or a file system that cannot sync one, is no reason to
        // refuse the pool.
        if let Ok(directory) = rustix::fs::open(parent, flags, Mode::empty()) {
            let _ = rustix::fs::fsync(directory);
        }
        Ok(())
    }

    /// What the pool lies on, when it is not DAX.
    pub(crate) fn plain_kind(&self) -> MediaKind {
        if self.node == Node::File && is_memory(fs_type(&self.fd)) {
            MediaKind::Memory
        } else {
            MediaKind::File
        }
    }
}

/// Gives `len` bytes of a file from `at` on, which are zeros, all their blocks. The file grows if
/// it has to.
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

/// Why `len` bytes are not to be had.
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

/// Whether a file system of this number is memory.
pub(crate) fn is_memory(fs_type: Option<u64>) -> bool {
    matches!(fs_type, Some(TMPFS_MAGIC | RAMFS_MAGIC | HUGETLBFS_MAGIC))
}

pub(crate) fn fs_type(fd: impl AsFd) -> Option<u64> {
    // The kernel's magic numbers have 32 bits; a signed field may have extended them.
    rustix::fs::fstatfs(fd)
        .ok()
        .map(|stat| u64::from(stat.f_type as u32))
}

/// What there is at a path that a pool can lie on, if there is anything.
pub(crate) fn node_at(path: &Path) -> Option<Node> {
    let stat = rustix::fs::stat(path).ok()?;
    node_of(&stat, path).ok()
}

/// What a pool can lie on, of what is there.
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

/// Where sysfs describes a character device.
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
