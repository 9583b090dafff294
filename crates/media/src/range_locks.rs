//! Locks on the datasets in one file: which of them are in use.
//!
//! A process that opens the file to change anything has the lock on the whole file (`Backing`). By
//! further locks, on open files and on bytes that need not exist, it declares which datasets it has
//! open. Each dataset has a byte, derived from its name, and one more byte declares that nothing
//! else of the file is touched. So a dataset that is not open can be read while another process
//! changes others. A reader locks the byte of its dataset too, shared with other readers: meanwhile
//! no process opens that dataset to change it, or changes the table of datasets.

use crate::MediaError;
use crate::backing::PoolFile;
use crate::holders::lock_when_they_end;
use crate::mapped::MappedPool;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// The byte that declares that used datasets are declared. The bytes of names lie in front of it,
/// those of [`crate::in_flight`] far behind it.
const TOLD: i64 = 1 << 62;

/// Locked bytes, shared with other processes or not.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    pub(crate) at: i64,
    /// Length; 0: all bytes that follow.
    pub(crate) len: i64,
    pub(crate) kind: libc::c_int,
}

impl Bytes {
    /// The byte of a name, by FNV-1a: the table of names cannot be read on every medium that is in
    /// use.
    fn of(name: &str, kind: libc::c_int) -> Self {
        let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
        });
        let at = (hash >> 2) as i64;
        Self { at, len: 1, kind }
    }

    const ALL: Self = Self {
        at: 0,
        len: TOLD,
        kind: libc::F_WRLCK,
    };

    const TOLD: Self = Self {
        at: TOLD,
        len: 1,
        kind: libc::F_RDLCK,
    };

    /// Locks the bytes, until the file is closed; `false` if another process has them.
    pub(crate) fn lock(self, file: &impl AsFd) -> Result<bool, Errno> {
        let mut asked = self.asked();
        match call(file, libc::F_OFD_SETLK, &mut asked) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                // On network file systems the lock on the whole file may be of this kind, and would
                // be in its own way.
                let found = self.in_the_way(file)?;
                match found.l_start == 0 && found.l_len == 0 && is_locked(&found) {
                    true => Err(Errno::NOLCK),
                    false => Ok(false),
                }
            }
            Err(errno) => Err(errno),
        }
    }

    /// Whether a process without the lock on the whole file has locked some of these bytes.
    pub(crate) fn are_locked(self, file: &impl AsFd) -> bool {
        let is_other =
            |found: libc::flock| is_locked(&found) && (found.l_start, found.l_len) != (0, 0);
        self.in_the_way(file).is_ok_and(is_other)
    }

    /// The lock that prevents locking these bytes, or an unlocked one.
    fn in_the_way(self, file: &impl AsFd) -> Result<libc::flock, Errno> {
        let mut found = self.asked();
        call(file, libc::F_OFD_GETLK, &mut found)?;
        Ok(found)
    }

    fn asked(self) -> libc::flock {
        libc::flock {
            l_type: self.kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: self.at,
            l_len: self.len,
            l_pid: 0,
        }
    }
}

fn is_locked(found: &libc::flock) -> bool {
    i32::from(found.l_type) != libc::F_UNLCK
}

fn call(file: &impl AsFd, command: libc::c_int, lock: &mut libc::flock) -> Result<(), Errno> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: both commands take a `flock` that is ours for the duration of the call, and `fd` is
    // borrowed for that long.
    match unsafe { libc::fcntl(fd, command, std::ptr::from_mut(lock)) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

/// Releases the range locks of an open file.
pub(crate) fn release(file: &PoolFile) {
    let all = Bytes {
        len: 0,
        kind: libc::F_UNLCK,
        ..Bytes::ALL
    };
    // A file system without such locks has none to release.
    let _ = call(file, libc::F_OFD_SETLK, &mut all.asked());
}

/// Excludes all other processes, including readers, from the datasets in a file whose whole-file
/// lock we have.
pub(crate) fn exclude_all(file: &PoolFile, path: &Path) -> Result<(), MediaError> {
    match Bytes::ALL.lock(file) {
        // Without such locks, all readers lock the whole file.
        Ok(true) | Err(_) => Ok(()),
        Ok(false) => Err(busy(path)),
    }
}

/// Takes a lock for reading: on the whole file, shared with other readers, or only on the dataset
/// of this name, while another process changes others and declares which. `Ok(false)`: neither is
/// possible, and the process in the way is not just ending.
///
/// # Errors
/// Returns the error of the operating system.
pub fn lock_to_read(file: &impl AsFd, name: &str) -> io::Result<bool> {
    lock_when_they_end(file, || try_to_read(file, name))
}

/// As [`lock_to_read`], with a single attempt.
pub(crate) fn try_to_read(file: &impl AsFd, name: &str) -> io::Result<bool> {
    let is_whole = match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => true,
        Err(Errno::WOULDBLOCK) => false,
        Err(errno) => return Err(errno.into()),
    };
    let own = Bytes::of(name, libc::F_RDLCK).lock(file);
    if is_whole {
        return Ok(own != Ok(false));
    }
    // Our own byte comes first: a process that declares from now on does not get it.
    Ok(own == Ok(true) && are_told(file))
}

/// Whether a process that changes datasets in a file declares which ones.
pub(crate) fn are_told(file: &impl AsFd) -> bool {
    let told = Bytes {
        kind: libc::F_WRLCK,
        ..Bytes::TOLD
    };
    told.in_the_way(file).is_ok_and(|found| is_locked(&found))
}

/// Whether any process has the dataset of this name in a file open.
///
/// # Errors
/// Returns the error of the operating system; the answer is then unknown.
pub fn is_in_use(file: &impl AsFd, name: &str) -> io::Result<bool> {
    let found = Bytes::of(name, libc::F_WRLCK).in_the_way(file)?;
    Ok(is_locked(&found))
}

fn busy(path: &Path) -> MediaError {
    MediaError::Busy {
        path: path.to_owned(),
        owner_pid: None,
    }
}

impl MappedPool {
    /// Declares that this pool is the open dataset of this name in its file, until it is dropped.
    /// `false`: the file system has no such locks.
    ///
    /// # Errors
    /// Fails if another process has it open.
    pub fn use_as(&self, name: &str) -> Result<bool, MediaError> {
        let kind = match self.is_read_only() {
            true => libc::F_RDLCK,
            false => libc::F_WRLCK,
        };
        match Bytes::of(name, kind).lock(self.file()) {
            Ok(true) => Ok(true),
            Ok(false) => Err(busy(self.path().unwrap_or(Path::new("")))),
            Err(_) => Ok(false),
        }
    }

    /// Declares that only those datasets of the file, which this pool has opened, are used that
    /// [were declared](Self::use_as).
    pub fn tell_uses(&self) {
        // Without such locks, other processes are excluded from all datasets.
        let _ = Bytes::TOLD.lock(self.file());
    }

    /// Excludes all other processes from the datasets in the file that this pool has opened,
    /// because the table of datasets is going to change.
    ///
    /// # Errors
    /// Fails if another process reads one of them.
    pub fn exclude_all(&self) -> Result<(), MediaError> {
        exclude_all(self.file(), self.path().unwrap_or(Path::new("")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MediaChoice, OpenMode};
    use std::fs::File;

    struct Pool {
        dir: tempfile::TempDir,
    }

    impl Pool {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let pool = Self { dir };
            MappedPool::create(&pool.path(), 1 << 20, MediaChoice::File).expect("made");
            pool
        }

        fn path(&self) -> std::path::PathBuf {
            self.dir.path().join("p.img")
        }

        fn whole(&self) -> MappedPool {
            MappedPool::open(&self.path(), OpenMode::default()).expect("opened")
        }

        fn read(&self, name: &str) -> Result<MappedPool, MediaError> {
            MappedPool::open_to_read(&self.path(), name, OpenMode::default())
        }
    }

    fn part(whole: &MappedPool, name: &str) -> Result<MappedPool, MediaError> {
        let part = whole.part((0, 4096), Path::new(name), false)?;
        part.use_as(name)?;
        Ok(part)
    }

    #[test]
    fn datasets_are_in_use_independently() {
        let pool = Pool::new();
        let whole = pool.whole();
        let looks = File::open(pool.path()).expect("there");
        let in_use = |name| is_in_use(&looks, name).expect("an answer");
        let (one, two) = (part(&whole, "one"), part(&whole, "two"));
        assert!(in_use("one") && in_use("two") && !in_use("main"));
        drop(one);
        assert!(!in_use("one") && in_use("two"));
        drop(two);
        assert!(!in_use("two"));
    }

    #[test]
    fn a_closed_dataset_can_be_read_once_uses_are_declared() {
        let pool = Pool::new();
        let whole = pool.whole();
        let one = part(&whole, "one").expect("free");
        let is_busy = |name| matches!(pool.read(name), Err(MediaError::Busy { .. }));
        assert!(is_busy("one") && is_busy("two"));
        whole.tell_uses();
        assert!(is_busy("one"));
        let two = pool.read("two").expect("it is not open");
        drop(pool.read("two").expect("two may read"));
        // A reader keeps others from changing it, even after the first user has closed.
        assert!(part(&whole, "two").is_err() && whole.exclude_all().is_err());
        drop((one, whole));
        let whole = pool.whole();
        assert!(part(&whole, "two").is_err() && whole.exclude_all().is_err());
        assert!(MappedPool::overwrite(&pool.path(), 1 << 20, MediaChoice::File).is_err());
        assert!(part(&whole, "one").is_ok());
        drop(two);
        assert!(part(&whole, "two").is_ok());
    }

    #[test]
    fn changing_the_table_excludes_all_readers() {
        let pool = Pool::new();
        let whole = pool.whole();
        whole.exclude_all().expect("there is no other user");
        whole.tell_uses();
        assert!(pool.read("one").is_err());
        drop(whole);
        assert!(pool.read("one").is_ok());
    }
}
