//! Which of the datasets in one file are in use.
//!
//! Whoever opens the file to change anything in it has the lock on all of it (`Backing`). By
//! further locks, on open files and on bytes that need not be there, he tells which datasets he
//! has open: each on a byte that its name stands for, and one byte says that nothing else of the
//! file is touched. So one that nobody has open can be read while somebody else changes others. Who
//! reads it has its byte, too, shared with others who do: nobody opens it to change it meanwhile,
//! and nobody changes which datasets there are.

use crate::MediaError;
use crate::backing::PoolFile;
use crate::holders::lock_when_they_end;
use crate::mapped::MappedPool;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Bytes that names stand for are in front of this one, which says that what is used is told. Far
/// behind it are those of [`crate::in_flight`].
const TOLD: i64 = 1 << 62;

/// Bytes that are locked, in a way that others can have them locked, too, or not.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    pub(crate) at: i64,
    /// 0: all that follow.
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

    /// Locks them, until the file is closed. `false`: somebody else has them.
    pub(crate) fn lock(self, file: &impl AsFd) -> Result<bool, Errno> {
        let mut asked = self.asked();
        match call(file, libc::F_OFD_SETLK, &mut asked) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                // Over a network the lock on the whole file may be one of this kind, and would be
                // in its own way.
                let found = self.in_the_way(file)?;
                match found.l_start == 0 && found.l_len == 0 && is_locked(&found) {
                    true => Err(Errno::NOLCK),
                    false => Ok(false),
                }
            }
            Err(errno) => Err(errno),
        }
    }

    /// Whether somebody else has some of them, who has not the whole file.
    pub(crate) fn are_locked(self, file: &impl AsFd) -> bool {
        let is_other =
            |found: libc::flock| is_locked(&found) && (found.l_start, found.l_len) != (0, 0);
        self.in_the_way(file).is_ok_and(is_other)
    }

    /// The lock that keeps these bytes from being locked, or none.
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
    // SAFETY: both commands take a `flock` that is ours for as long as the call lasts, and `fd` is
    // borrowed for that long.
    match unsafe { libc::fcntl(fd, command, std::ptr::from_mut(lock)) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

/// Gives up what an open file has locked here.
pub(crate) fn release(file: &PoolFile) {
    let all = Bytes {
        len: 0,
        kind: libc::F_UNLCK,
        ..Bytes::ALL
    };
    // What has no such locks has none to give up.
    let _ = call(file, libc::F_OFD_SETLK, &mut all.asked());
}

/// Keeps everybody from the datasets in a file of which somebody has the lock on the whole;
/// also those who read.
pub(crate) fn exclude_all(file: &PoolFile, path: &Path) -> Result<(), MediaError> {
    match Bytes::ALL.lock(file) {
        // Where there are no such locks, nobody reads without that on the whole.
        Ok(true) | Err(_) => Ok(()),
        Ok(false) => Err(busy(path)),
    }
}

/// Locks what is to be read: the whole file, shared with others who read, or only the dataset
/// of this name, where somebody changes others and tells which. `Ok(false)`: neither can be had,
/// and who is in the way is not just ending.
///
/// # Errors
/// What the operating system said.
pub fn lock_to_read(file: &impl AsFd, name: &str) -> io::Result<bool> {
    lock_when_they_end(file, || try_to_read(file, name))
}

/// The same, once.
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
    // The own byte comes first: whoever tells from now on does not get it.
    Ok(own == Ok(true) && are_told(file))
}

/// Whether somebody who changes datasets in a file tells which.
pub(crate) fn are_told(file: &impl AsFd) -> bool {
    let told = Bytes {
        kind: libc::F_WRLCK,
        ..Bytes::TOLD
    };
    told.in_the_way(file).is_ok_and(|found| is_locked(&found))
}

/// Whether somebody has the dataset of this name open that lies in a file.
///
/// # Errors
/// What the operating system said: nobody can tell.
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
    /// Tells others that this is in use as the dataset of this name, of those in its file,
    /// until it is dropped. `false`: it cannot be told here.
    ///
    /// # Errors
    /// Somebody else has it open.
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

    /// Tells others that of the file, which was opened as this, only those datasets are used
    /// that [are told](Self::use_as).
    pub fn tell_uses(&self) {
        // Where that cannot be told, others are kept from all.
        let _ = Bytes::TOLD.lock(self.file());
    }

    /// Keeps others from all datasets in the file, which was opened as this: which there are is
    /// going to change.
    ///
    /// # Errors
    /// Somebody reads one of them.
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
    fn one_is_in_use_apart_from_the_others() {
        let pool = Pool::new();
        let whole = pool.whole();
        let looks = File::open(pool.path()).expect("there");
        let in_use = |name| is_in_use(&looks, name).expect("told");
        let (one, two) = (part(&whole, "one"), part(&whole, "two"));
        assert!(in_use("one") && in_use("two") && !in_use("main"));
        drop(one);
        assert!(!in_use("one") && in_use("two"));
        drop(two);
        assert!(!in_use("two"));
    }

    #[test]
    fn what_nobody_has_open_can_be_read_once_it_is_told() {
        let pool = Pool::new();
        let whole = pool.whole();
        let one = part(&whole, "one").expect("free");
        let is_busy = |name| matches!(pool.read(name), Err(MediaError::Busy { .. }));
        assert!(is_busy("one") && is_busy("two"));
        whole.tell_uses();
        assert!(is_busy("one"));
        let two = pool.read("two").expect("nobody has it");
        drop(pool.read("two").expect("two may read"));
        // Whoever reads it keeps others from changing it, also once the first user has gone.
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
    fn who_changes_which_there_are_keeps_everybody_from_all() {
        let pool = Pool::new();
        let whole = pool.whole();
        whole.exclude_all().expect("nobody is there");
        whole.tell_uses();
        assert!(pool.read("one").is_err());
        drop(whole);
        assert!(pool.read("one").is_ok());
    }
}
