//! The image of a logged pool, in memory that outlives the process that changes it: a file on tmpfs
//! with a head, two maps of dirty lines, and the image itself.
//!
//! The next opening of the pool under the same boot finds the image, if the pool's log names it
//! (`attach`). The name of the file contains pool, file and boot, so that no other pool's image is
//! found. The process that holds the pool's lock is the only one that uses the image.

use crate::MediaError;
use crate::backing::{fs_type, is_memory};
use crate::dirty_lines::{Cells, bits_of, map_bytes};
use crate::handle::{self, FileHandle};
use crate::kept::images_of_gone;
use crate::logged::read_exact;
use crate::mapping::{Mapping, MappingError};
use crate::memory::{BLOCK_BYTES, LINE_BYTES};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mm::MapFlags;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"VELIMAGE");
/// Version of the format that this module describes.
const VERSION: u64 = 1;
/// Bytes of the head, before the maps.
const HEAD_BYTES: u64 = BLOCK_BYTES;
/// Alignment of the whole image, so that the kernel can map it with large pages.
const IMAGE_ALIGN: u64 = 2 << 20;
/// Most bytes of the pool's path in the head.
const PATH_MAX_BYTES: usize = (field::HANDLE - field::PATH) as usize;

/// Offsets in the head; words are in native byte order.
mod field {
    pub(super) const MAGIC: u64 = 0;
    pub(super) const VERSION: u64 = 8;
    /// Identity of the pool, of its file, and of the boot: 48 bytes.
    pub(super) const KEY: u64 = 16;
    pub(super) const ATTACH: u64 = 64;
    /// The last epoch that is durable in the log.
    pub(super) const DURABLE: u64 = 80;
    pub(super) const PHASE: u64 = 88;
    pub(super) const IMAGE_BYTES: u64 = 96;
    /// For people: the process, and the zero-padded path of the pool.
    pub(super) const PID: u64 = 104;
    pub(super) const PATH: u64 = 128;
    /// A handle that finds the pool's file, whatever its name is; zeros: none.
    pub(super) const HANDLE: u64 = super::HEAD_BYTES - crate::handle::BYTES as u64;
}

/// Why an image that knows of epochs missing in the log is not used ([`MediaError::Image`]).
pub const OLDER: &str = "is of a later time than the pool's file, which was put back from a copy: \
    restore the right file, or open the pool as of its last epoch, which discards the image";

/// Why a pool is not opened that has an image with epochs missing in its log, and whose own file is
/// gone ([`MediaError::Image`]).
pub const REPLACED: &str = "is of a later time than the pool's file, which is a copy in the place \
    of one that is gone: open it as of its last epoch, which discards the image";

/// Why an image is not used that the caller may not read ([`MediaError::Image`]).
pub const ANOTHERS: &str = "belongs to another user, who has to open the pool";

/// Prefix of the name of an image.
const PREFIX: &str = "vellum-";

/// The failed action, to be read after "cannot".
const MAKE: &str = "make an image in memory for";

/// The image can still be committed.
const ALIVE: u64 = 1;
/// A commit failed, or bytes of a file could not be written.
const POISONED: u64 = 2;

/// Identity of one life of an image, drawn when it is loaded and named by the log.
pub type Attach = [u8; 16];

/// Determines where the image of a pool lies.
#[derive(Clone, Copy, Debug)]
pub struct ImageKey<'a> {
    /// Its directory, in memory.
    pub dir: &'a Path,
    /// The uuid of the pool.
    pub uuid: [u8; 16],
    /// Identity of this boot.
    pub boot: [u8; 16],
}

impl ImageKey<'_> {
    /// The 48 bytes that identify the image of this pool in this file under this boot.
    fn bytes(&self, pool: BorrowedFd<'_>) -> io::Result<[u8; 48]> {
        let stat = rustix::fs::fstat(pool)?;
        let (device, inode) = Key::file_of(&stat);
        let mut bytes = [0; 48];
        bytes[..16].copy_from_slice(&self.uuid);
        bytes[16..24].copy_from_slice(&device.to_ne_bytes());
        bytes[24..32].copy_from_slice(&inode.to_ne_bytes());
        bytes[32..].copy_from_slice(&self.boot);
        Ok(bytes)
    }

    /// The file of the image of the pool that is open as `pool`.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn path(&self, pool: BorrowedFd<'_>) -> io::Result<PathBuf> {
        let hex: String = self
            .bytes(pool)?
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        Ok(self.dir.join(format!("{PREFIX}{hex}")))
    }
}

/// The contents of an image's name.
pub(crate) struct Key {
    pub(crate) uuid: [u8; 16],
    pub(crate) device: u64,
    /// 0: the pool is on the device itself.
    pub(crate) inode: u64,
    pub(crate) boot: [u8; 16],
    pub(crate) bytes: [u8; 48],
}

impl Key {
    /// The device and inode of a pool's file.
    pub(crate) fn file_of(stat: &Stat) -> (u64, u64) {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => (stat.st_rdev, 0),
            _ => (stat.st_dev, stat.st_ino),
        }
    }
}

/// Parses the name of a file; `None` if it is not that of an image.
pub(crate) fn key_in_name(name: &OsStr) -> Option<Key> {
    let digits = name.to_str()?.strip_prefix(PREFIX)?;
    let mut bytes = [0; 48];
    if digits.len() != 2 * bytes.len() || !digits.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    let identity = |at: usize| {
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[at..at + 16]);
        identity
    };
    let number = |at: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(number)
    };
    Some(Key {
        uuid: identity(0),
        device: number(16),
        inode: number(24),
        boot: identity(32),
        bytes,
    })
}

/// The fields of an image's head for people and for finding its pool.
pub(crate) struct Head {
    pub(crate) pid: u32,
    pub(crate) pool: PathBuf,
    pub(crate) handle: Option<FileHandle>,
}

impl Head {
    /// The head of an open image, if it is one of ours with this key.
    pub(crate) fn read(image: &OwnedFd, key: &Key) -> Option<Self> {
        let mut head = vec![0; HEAD_BYTES as usize];
        read_exact(image.as_fd(), 0, &mut head).ok()?;
        let bytes = |at: u64, len: usize| &head[at as usize..at as usize + len];
        let word = |at| bytes(at, 8).try_into().map_or(0, u64::from_ne_bytes);
        let is_ours = word(field::MAGIC) == MAGIC
            && word(field::VERSION) == VERSION
            && bytes(field::KEY, key.bytes.len()) == key.bytes;
        let path = bytes(field::PATH, PATH_MAX_BYTES);
        let end = path.iter().position(|&byte| byte == 0);
        let path = &path[..end.unwrap_or(path.len())];
        let mut handle = [0; handle::BYTES];
        handle.copy_from_slice(bytes(field::HANDLE, handle::BYTES));
        is_ours.then(|| Self {
            pid: u32::try_from(word(field::PID)).unwrap_or(0),
            pool: PathBuf::from(OsStr::from_bytes(path)),
            handle: FileHandle::from_bytes(&handle),
        })
    }
}

/// What a process that did not close the pool left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftImage {
    /// No image, or one of another life of the pool, whose epochs are all in the log.
    Nothing,
    /// An image that cannot be committed.
    Poisoned,
    /// An image as the process left it.
    Alive {
        /// The last epoch that it knew to be durable.
        durable: u64,
        /// The lines that may be newer than the log, ascending, with their bytes.
        lines: Vec<(u64, [u8; LINE_BYTES as usize])>,
    },
}

/// The image of an open pool, in memory that outlives the process.
pub trait SharedImage: std::fmt::Debug + Send + Sync {
    /// Names the image, for an opening that finds `attach` in the log. It contains everything up to
    /// epoch `durable`, and nothing was stored since.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    fn name(&self, attach: Attach, durable: u64) -> io::Result<()>;

    /// Everything up to epoch `durable` is in the log: the lines of the last cut may be forgotten.
    fn settle(&self, durable: u64);

    /// Forbids commits from this image.
    fn poison(&self);

    /// Unlinks it, because the pool was closed.
    fn end(&self);

    /// The directory in which it can be found; `None` once its name was removed from outside.
    fn found_in(&self) -> Option<PathBuf>;

    /// The directory in which it was created.
    fn dir(&self) -> &Path;

    /// Bytes of memory that are still available for it, which others may take too; `None`: as many
    /// as the process can have.
    fn room_bytes(&self) -> Option<u64>;
}

/// An image file of this process.
pub(crate) struct ImageFile {
    fd: OwnedFd,
    dir: PathBuf,
    path: PathBuf,
    /// Mapping of the head and the maps.
    front: Arc<Mapping>,
    /// Bytes of a map.
    map_bytes: u64,
    /// A bit for each nonzero word of the second map.
    taken_words: Cells,
    /// Whether it has its name.
    is_named: AtomicBool,
}

/// Offset of a map, or of the image behind the maps.
fn map_at(number: u64, map_bytes: u64) -> u64 {
    HEAD_BYTES + number * map_bytes
}

fn image_at(map_bytes: u64) -> u64 {
    map_at(2, map_bytes).next_multiple_of(IMAGE_ALIGN)
}

impl ImageFile {
    /// Creates a file for an image of `bytes` zeros, without a name: if this process ends before
    /// naming it, nothing is left.
    ///
    /// # Errors
    /// Fails if the directory is not in memory or has no space for all of it, or on an error of the
    /// operating system.
    pub(crate) fn create(
        pool: BorrowedFd<'_>,
        pool_path: &Path,
        key: &ImageKey<'_>,
        bytes: u64,
    ) -> Result<Self, MediaError> {
        let path = key.path(pool).map_err(io_error("examine", pool_path))?;
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let fd = rustix::fs::open(key.dir, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| io_error(MAKE, &path)(errno.into()))?;
        // Held while a process uses the image; others can test the lock.
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| io_error(MAKE, &path)(errno.into()))?;
        let made = Self::filled(fd, key, path, bytes)?;
        let words = made.key_words(pool, pool_path, key, bytes);
        words.map_err(io_error("examine", pool_path))?;
        Ok(made)
    }

    fn filled(
        fd: OwnedFd,
        key: &ImageKey<'_>,
        path: PathBuf,
        bytes: u64,
    ) -> Result<Self, MediaError> {
        let map_bytes = map_bytes(bytes).next_multiple_of(BLOCK_BYTES);
        let front_bytes = map_at(2, map_bytes);
        let whole = image_at(map_bytes) + bytes;
        let refused = |source: io::Error| io_error(MAKE, &path)(source);
        if !is_memory(fs_type(&fd)) {
            let not_memory =
                io::Error::new(io::ErrorKind::Unsupported, "its directory is not in memory");
            return Err(refused(not_memory));
        }
        let room = room_bytes(fd.as_fd()).map_err(&refused)?;
        if room.is_some_and(|room| room < front_bytes + bytes) {
            return Err(refused(Errno::NOSPC.into()));
        }
        rustix::fs::ftruncate(&fd, whole).map_err(|e| refused(e.into()))?;
        allocate(fd.as_fd(), 0, front_bytes).map_err(refused)?;
        let page = rustix::param::page_size();
        let front = Mapping::new(fd.as_fd(), front_bytes, MapFlags::SHARED, page);
        let front = front.map_err(|error| match error {
            MappingError::Full(full) => full,
            MappingError::System(source) => refused(source),
        })?;
        Ok(Self {
            fd,
            dir: key.dir.to_owned(),
            path,
            front: Arc::new(front),
            map_bytes,
            taken_words: Cells::new((map_bytes / 8).div_ceil(64) as usize),
            is_named: AtomicBool::new(false),
        })
    }

    /// Writes the key and the fields for people into the head.
    fn key_words(
        &self,
        pool: BorrowedFd<'_>,
        pool_path: &Path,
        key: &ImageKey<'_>,
        bytes: u64,
    ) -> io::Result<()> {
        let path = pool_path
            .canonicalize()
            .unwrap_or_else(|_| pool_path.to_owned());
        let path = path.as_os_str().as_bytes();
        self.front
            .write(field::PATH, &path[..path.len().min(PATH_MAX_BYTES)]);
        self.front.write(field::KEY, &key.bytes(pool)?);
        if let Some(handle) = FileHandle::of(pool) {
            self.front.write(field::HANDLE, &handle.to_bytes());
        }
        for (at, word) in [
            (field::VERSION, VERSION),
            (field::IMAGE_BYTES, bytes),
            (field::PID, u64::from(std::process::id())),
            (field::MAGIC, MAGIC),
        ] {
            self.front.store(at, word, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The file, and the offset of the image in it.
    pub(crate) fn image(&self) -> (BorrowedFd<'_>, u64) {
        (self.fd.as_fd(), image_at(self.map_bytes))
    }

    /// The map of lines that were stored to since the last cut.
    pub(crate) fn running(&self, words: usize) -> Cells {
        Cells::mapped(&self.front, map_at(0, self.map_bytes), words)
    }

    /// Allocates memory for a part of the image.
    pub(crate) fn prepare(&self, at: u64, len: u64) -> io::Result<()> {
        allocate(self.fd.as_fd(), image_at(self.map_bytes) + at, len)
    }

    /// Saves a word of the map of lines for the cut. The caller clears the word only afterwards.
    pub(crate) fn take(&self, word: u64, lines: u64) {
        let at = map_at(1, self.map_bytes) + word * 8;
        self.front.fetch_or(at, lines);
        if let Some(cell) = self.taken_words.get((word / 64) as usize) {
            cell.fetch_or(1 << (word % 64), Ordering::Relaxed);
        }
    }

    /// Whether a page of the maps was lost.
    pub(crate) fn is_damaged(&self) -> bool {
        self.front.damaged().is_some()
    }

    /// Whether `path` names this file.
    fn is_at(&self, path: &Path) -> bool {
        let ours = rustix::fs::fstat(&self.fd);
        let named = rustix::fs::lstat(path);
        matches!((ours, named), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }
}

impl SharedImage for ImageFile {
    fn name(&self, attach: Attach, durable: u64) -> io::Result<()> {
        self.front.write(field::ATTACH, &attach);
        self.settle(durable);
        self.front.store(field::PHASE, ALIVE, Ordering::Release);
        // A file of this name is unused: we hold the pool's lock, and its log names no image.
        let _ = rustix::fs::unlink(&self.path);
        let own = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        rustix::fs::linkat(CWD, own, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
        self.is_named.store(true, Ordering::Release);
        Ok(())
    }

    fn settle(&self, durable: u64) {
        self.front.store(field::DURABLE, durable, Ordering::Release);
        for (number, words) in (0..).zip(&*self.taken_words) {
            for bit in bits_of(words.swap(0, Ordering::Relaxed)) {
                let word = number * 64 + bit;
                let at = map_at(1, self.map_bytes) + word * 8;
                self.front.store(at, 0, Ordering::Relaxed);
            }
        }
    }

    fn poison(&self) {
        self.front.store(field::PHASE, POISONED, Ordering::SeqCst);
    }

    fn end(&self) {
        if self.is_named.swap(false, Ordering::AcqRel) && self.is_at(&self.path) {
            // A remaining file is unused: the log names another one, or none.
            let _ = rustix::fs::unlink(&self.path);
        }
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn room_bytes(&self) -> Option<u64> {
        room_bytes(self.fd.as_fd()).ok().flatten()
    }

    fn found_in(&self) -> Option<PathBuf> {
        let is_named = self.is_named.load(Ordering::Acquire);
        (is_named && self.is_at(&self.path)).then(|| self.dir.clone())
    }
}

impl std::fmt::Debug for ImageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ImageFile").field(&self.path).finish()
    }
}

/// Looks for the image that a process left of the pool that is open as `pool`. The pool's log ends
/// with epoch `last` and names the image `attach`, or none. Changes nothing.
///
/// If the file of the image is gone and only a copy of the pool is left, the copy counts as that
/// file: it gets the image that its log names, and is refused if there is a later one.
///
/// An image that the log does not name and that knows of later epochs is newer than the pool's
/// file: when a life of the pool ends, all of its epochs are in the log before the log stops naming
/// the image.
///
/// # Errors
/// Fails if an image knows of later epochs, or if the named image cannot be read or has another
/// format.
pub fn left_image(
    pool: BorrowedFd<'_>,
    key: &ImageKey<'_>,
    attach: Option<Attach>,
    last: u64,
) -> Result<LeftImage, MediaError> {
    match left_of_file(pool, key, attach, last)? {
        LeftImage::Nothing => left_of_another(pool, key, attach, last),
        left => Ok(left),
    }
}

/// Looks for an image of this file.
fn left_of_file(
    pool: BorrowedFd<'_>,
    key: &ImageKey<'_>,
    attach: Option<Attach>,
    last: u64,
) -> Result<LeftImage, MediaError> {
    let path = key
        .path(pool)
        .map_err(io_error("look for images in", key.dir))?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(LeftImage::Nothing),
        // The caller may lack the rights to open the pool.
        Err(_) if attach.is_none() => return Ok(LeftImage::Nothing),
        Err(Errno::ACCESS) => {
            return Err(unusable(path, ANOTHERS));
        }
        Err(errno) => return Err(io_error("open", &path)(errno.into())),
    };
    if !is_trusted(fd.as_fd(), pool).map_err(io_error("examine", &path))? {
        return Ok(LeftImage::Nothing);
    }
    let left = Left { fd, path };
    let key = key.bytes(pool).map_err(io_error("examine", &left.path))?;
    left.read(&key, attach, last)
}

/// Looks for images of deleted files, of which this file is a copy.
fn left_of_another(
    pool: BorrowedFd<'_>,
    key: &ImageKey<'_>,
    attach: Option<Attach>,
    last: u64,
) -> Result<LeftImage, MediaError> {
    for (path, own) in images_of_gone(pool, key) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(fd) = rustix::fs::open(&path, flags, Mode::empty()) else {
            continue;
        };
        if !is_trusted(fd.as_fd(), pool).map_err(io_error("examine", &path))? {
            continue;
        }
        let left = Left { fd, path };
        match left.read(&own, attach, last) {
            Ok(left @ LeftImage::Alive { .. }) => return Ok(left),
            Err(MediaError::Image { why: OLDER, .. }) => return Err(left.unusable(REPLACED)),
            // Of no use.
            Ok(LeftImage::Nothing | LeftImage::Poisoned) | Err(_) => {}
        }
    }
    Ok(LeftImage::Nothing)
}

/// Unlinks an image that no log names any more.
pub fn forget_image(pool: BorrowedFd<'_>, key: &ImageKey<'_>) {
    if let Ok(path) = key.path(pool) {
        // There may be no such file, or it may belong to another user.
        let _ = rustix::fs::unlink(path);
    }
}

/// Whether the image's owner is trusted by the pool: the caller, the pool's owner, or root.
fn is_trusted(image: BorrowedFd<'_>, pool: BorrowedFd<'_>) -> io::Result<bool> {
    let (image, pool) = (rustix::fs::fstat(image)?, rustix::fs::fstat(pool)?);
    let is_file = FileType::from_raw_mode(image.st_mode) == FileType::RegularFile;
    let owners = [rustix::process::geteuid().as_raw(), pool.st_uid, 0];
    Ok(is_file && image.st_mode & 0o077 == 0 && owners.contains(&image.st_uid))
}

/// An existing image.
struct Left {
    fd: OwnedFd,
    path: PathBuf,
}

impl Left {
    fn read(
        &self,
        key: &[u8; 48],
        attach: Option<Attach>,
        last: u64,
    ) -> Result<LeftImage, MediaError> {
        let mut head = vec![0; HEAD_BYTES as usize];
        match (self.fill(0, &mut head), attach) {
            (Err(_), None) => return Ok(LeftImage::Nothing),
            (read, _) => read?,
        }
        let bytes = |at: u64, len: usize| &head[at as usize..at as usize + len];
        let word = |at| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes(at, 8));
            u64::from_ne_bytes(word)
        };
        let is_ours = word(field::MAGIC) == MAGIC && bytes(field::KEY, key.len()) == key;
        let is_known = is_ours && word(field::VERSION) == VERSION;
        if attach.is_none() && !is_known {
            return Ok(LeftImage::Nothing);
        }
        if !is_ours {
            return Err(self.unusable("is not an image of this pool: remove it"));
        }
        if !is_known {
            return Err(self.unusable(
                "was left by another release of Vellum, which has to open the pool; or remove it: \
                 what was not synced is lost then",
            ));
        }
        let is_alive = word(field::PHASE) == ALIVE;
        if is_alive && word(field::DURABLE) > last {
            return Err(self.unusable(OLDER));
        }
        if attach.is_none_or(|attach| bytes(field::ATTACH, attach.len()) != attach) {
            return Ok(LeftImage::Nothing);
        }
        if !is_alive {
            return Ok(LeftImage::Poisoned);
        }
        let lines = self.lines(word(field::IMAGE_BYTES))?;
        Ok(LeftImage::Alive {
            durable: word(field::DURABLE),
            lines,
        })
    }

    /// The lines of both maps.
    fn lines(&self, image_bytes: u64) -> Result<Vec<(u64, [u8; LINE_BYTES as usize])>, MediaError> {
        let whole = rustix::fs::fstat(&self.fd).map(|stat| stat.st_size as u64);
        let whole = whole.map_err(|errno| io_error("examine", &self.path)(errno.into()))?;
        let map_bytes = map_bytes(image_bytes.min(whole)).next_multiple_of(BLOCK_BYTES);
        if image_at(map_bytes).checked_add(image_bytes) != Some(whole) {
            return Err(self.unusable("does not have its recorded size: remove it"));
        }
        let mut maps = [vec![0; map_bytes as usize], vec![0; map_bytes as usize]];
        for (map, number) in maps.iter_mut().zip(0..) {
            self.fill(map_at(number, map_bytes), map)?;
        }
        let mut lines = Vec::new();
        let words = maps[0].chunks_exact(8).zip(maps[1].chunks_exact(8));
        for ((running, taken), number) in words.zip(0..) {
            let word = |of: &[u8]| of.try_into().map_or(0, u64::from_ne_bytes);
            for bit in bits_of(word(running) | word(taken)) {
                let at = (number * 64 + bit) * LINE_BYTES;
                let mut line = [0; LINE_BYTES as usize];
                self.fill(image_at(map_bytes) + at, &mut line)?;
                lines.push((at, line));
            }
        }
        Ok(lines)
    }

    fn fill(&self, at: u64, out: &mut [u8]) -> Result<(), MediaError> {
        read_exact(self.fd.as_fd(), at, out).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.unusable("is cut off: remove it"),
            _ => io_error("read", &self.path)(error),
        })
    }

    fn unusable(&self, why: &'static str) -> MediaError {
        unusable(self.path.clone(), why)
    }
}

fn unusable(path: PathBuf, why: &'static str) -> MediaError {
    MediaError::Image { path, why }
}

fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> MediaError {
    let path = path.to_owned();
    move |source| MediaError::Io {
        action,
        path: path.clone(),
        source,
    }
}

/// Bytes left in the file system of `fd`, which is in memory; `None`: it has no limit of its own.
fn room_bytes(fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    let room = rustix::fs::fstatvfs(fd)?;
    let left = room.f_bavail.saturating_mul(room.f_frsize);
    Ok((room.f_blocks > 0).then_some(left))
}

fn allocate(fd: BorrowedFd<'_>, at: u64, len: u64) -> io::Result<()> {
    loop {
        match rustix::fs::fallocate(fd, FallocateFlags::empty(), at, len) {
            Err(Errno::INTR) => {}
            done => return done.map_err(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is killed before it names its image leaves nothing.
    #[test]
    fn an_image_has_no_name_until_it_is_given_one() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let pool = tempfile::NamedTempFile::new().expect("a file");
        let key = ImageKey {
            dir: dir.path(),
            uuid: [1; 16],
            boot: [2; 16],
        };
        let made = || {
            let path = pool.path();
            ImageFile::create(pool.as_file().as_fd(), path, &key, 1 << 20).expect("made")
        };
        let names = || std::fs::read_dir(dir.path()).expect("read").count();
        let image = made();
        assert_eq!((names(), image.found_in()), (0, None));
        drop(image);
        let path = key.path(pool.as_file().as_fd()).expect("a path");
        std::fs::write(&path, "stale").expect("written");
        let image = made();
        assert_eq!(names(), 1);
        image.name([3; 16], 7).expect("named");
        assert!(image.is_at(&path) && names() == 1);
        assert_eq!(image.found_in().as_deref(), Some(dir.path()));
        let left = left_image(pool.as_file().as_fd(), &key, Some([3; 16]), 7).expect("found");
        let lines = Vec::new();
        assert_eq!(left, LeftImage::Alive { durable: 7, lines });
        // An image that the log does not name has nothing that the log lacks, or the log is that of
        // an older copy.
        for other in [None, Some([4; 16])] {
            let found = |last| left_image(pool.as_file().as_fd(), &key, other, last);
            assert_eq!(found(7).expect("an answer"), LeftImage::Nothing);
            let error = found(6).expect_err("older");
            assert!(matches!(error, MediaError::Image { why: OLDER, .. }));
        }
        image.end();
        assert_eq!(names(), 0);
    }
}
