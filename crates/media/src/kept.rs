//! Lists the images in a directory in memory, and finds out what became of their pools.

use crate::MediaError;
use crate::handle::Led;
use crate::image::{Head, ImageKey, Key, key_in_name};
use crate::mapped::MappedPool;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Longest time for examining an image.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// An image in memory.
#[derive(Clone, Debug)]
pub struct KeptImage {
    /// The file.
    pub path: PathBuf,
    /// The uuid of the pool whose metadata it holds.
    pub uuid: [u8; 16],
    /// The process that created it; 0: unknown.
    pub pid: u32,
    /// Where the pool was when it was opened; empty: unknown.
    pub pool: PathBuf,
    /// The user who owns the file.
    pub owner: u32,
    /// Memory that it takes.
    pub memory_bytes: u64,
    /// When it was last named, or its length or owner changed.
    pub since: SystemTime,
    /// What became of the pool.
    pub pool_is: PoolIs,
}

/// What became of the pool of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolIs {
    /// Open: a process uses the image.
    Open,
    /// Present: its next opening adopts the image. The path is its present name, if known.
    There(Option<PathBuf>),
    /// Gone for ever: no opening will adopt the image.
    Gone,
    /// Unknown: the image belongs to another user.
    Foreign,
    /// Unknown, with the reason.
    Unknown(&'static str),
}

/// The images in `dir` of this boot, ordered by name.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn images_in(dir: &Path, boot: [u8; 16]) -> io::Result<Vec<KeptImage>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let key = path.file_name().and_then(key_in_name);
        if let Some(kept) = key.and_then(|key| examine(&path, &key, boot)) {
            found.push(kept);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The images in `key.dir` of this pool in other files that are gone or were replaced by the one
/// open as `pool`, with the key of each.
pub(crate) fn images_of_gone(pool: BorrowedFd<'_>, key: &ImageKey<'_>) -> Vec<(PathBuf, [u8; 48])> {
    let own = key.path(pool).ok();
    let is_here = |path: &Path| {
        let (here, there) = (rustix::fs::fstat(pool), rustix::fs::stat(path));
        matches!((here, there), (Ok(a), Ok(b)) if Key::file_of(&a) == Key::file_of(&b))
    };
    let is_gone = |image: &KeptImage| match image.pool_is {
        PoolIs::Gone => true,
        PoolIs::Unknown(_) => is_here(&image.pool),
        PoolIs::Open | PoolIs::There(_) | PoolIs::Foreign => false,
    };
    let names = std::fs::read_dir(key.dir).into_iter().flatten();
    let paths = names.filter_map(|entry| Some(entry.ok()?.path()));
    let of = |path: PathBuf| {
        let found = key_in_name(path.file_name()?)?;
        let is_another = found.uuid == key.uuid && Some(&path) != own.as_ref();
        let image = examine(&path, &found, key.boot).filter(|_| is_another)?;
        is_gone(&image).then_some((path, found.bytes))
    };
    paths.filter_map(of).collect()
}

impl MappedPool {
    /// Removes the images of this pool in other files that are gone or were replaced by this one:
    /// no opening will adopt them.
    pub fn forget_images_of_gone(&self, key: &ImageKey<'_>) {
        for (path, _) in images_of_gone(self.file().as_fd(), key) {
            // It may belong to another user.
            let _ = rustix::fs::unlink(path);
        }
    }
}

/// Removes the file of an image, unless a process uses it.
///
/// # Errors
/// Fails if a process uses it, if it is not an image, or on an error of the operating system.
pub fn remove_image(image: &KeptImage) -> Result<(), MediaError> {
    let failed = |errno: Errno| MediaError::Io {
        action: "remove",
        path: image.path.clone(),
        source: errno.into(),
    };
    let file = open(&image.path).map_err(failed)?;
    lock_alone(&file).map_err(failed)?;
    rustix::fs::unlink(&image.path).map_err(failed)
}

/// Locks an image for removal. Other processes that only examine it lock it for a moment.
fn lock_alone(image: &OwnedFd) -> Result<(), Errno> {
    let begin = Instant::now();
    loop {
        match rustix::fs::flock(image, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begin.elapsed() < LOOK_MAX => {
                std::thread::sleep(Duration::from_millis(2));
            }
            locked => return locked,
        }
    }
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Examines a file with the name of an image; `None` if it vanished meanwhile or is not a regular
/// file.
fn examine(path: &Path, key: &Key, boot: [u8; 16]) -> Option<KeptImage> {
    let stat = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let file = open(path);
    let head = file.as_ref().ok().and_then(|file| Head::read(file, key));
    let pool_is = match (&file, &head) {
        (Err(Errno::ACCESS), _) => PoolIs::Foreign,
        (Err(_), _) => PoolIs::Unknown("it cannot be opened"),
        (Ok(file), _) if is_locked(file) => PoolIs::Open,
        (_, None) => PoolIs::Unknown("it is of another release, or damaged"),
        _ if key.boot != boot => PoolIs::Unknown("it is of another boot of the machine"),
        (_, Some(head)) => pool_of(key, head),
    };
    let since = Duration::new(
        u64::try_from(stat.st_ctime).unwrap_or(0),
        u32::try_from(stat.st_ctime_nsec).unwrap_or(0),
    );
    Some(KeptImage {
        path: path.to_owned(),
        uuid: key.uuid,
        pid: head.as_ref().map_or(0, |head| head.pid),
        pool: head.map(|head| head.pool).unwrap_or_default(),
        owner: stat.st_uid,
        memory_bytes: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
        since: SystemTime::UNIX_EPOCH + since,
        pool_is,
    })
}

/// Whether a process uses it: then it holds a lock, which ends with the process.
fn is_locked(image: &OwnedFd) -> bool {
    let lock = rustix::fs::flock(image, FlockOperation::NonBlockingLockShared);
    lock == Err(Errno::WOULDBLOCK)
}

fn pool_of(key: &Key, head: &Head) -> PoolIs {
    let is_at = |path: &Path| {
        rustix::fs::stat(path).is_ok_and(|stat| Key::file_of(&stat) == (key.device, key.inode))
    };
    let is_device = key.inode == 0;
    match &head.handle {
        // A path may lead to another file that has reused the inode number; a handle does not.
        Some(handle) if !is_device => match handle.follow(key.device) {
            Led::Here(path) => return PoolIs::There(path),
            Led::Nowhere => return PoolIs::Gone,
            Led::Unlinked => {
                return PoolIs::Unknown("its pool is deleted, and somebody has it open still");
            }
            Led::Unknown(_) if is_at(&head.pool) => {}
            Led::Unknown(why) => return PoolIs::Unknown(why),
        },
        _ if is_at(&head.pool) => {}
        _ => return PoolIs::Unknown("its pool is not where it was"),
    }
    PoolIs::There(Some(head.pool.clone()))
}
