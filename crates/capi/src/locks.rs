//! Locks of whole files, and of ranges of bytes.

use libc::{c_int, c_short};
use vellum::{Error, HeldLock, LockKind, LockOwner, LockRange, LockWait};

use crate::borrowed::Out;
use crate::failure::{Failure, Result, call};
use crate::objects::OpenFile;
use crate::{table, vellum_handle};

/// A range of bytes, and its lock.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct vellum_lock_range {
    /// F_RDLCK (shared), F_WRLCK (exclusive) or F_UNLCK (none).
    pub kind: i16,
    /// What `start` counts from: SEEK_SET, SEEK_CUR or SEEK_END.
    pub whence: i16,
    /// The process that has the lock, from F_GETLK; -1 for the lock of a handle.
    pub pid: i32,
    /// The offset of the first byte.
    pub start: i64,
    /// The number of bytes; 0 for all from there on; negative for those before.
    pub length: i64,
}

/// Locks a whole file for this handle, as `flock(2)`: `operation` is LOCK_SH, LOCK_EX or LOCK_UN,
/// and LOCK_NB not to wait. Handles exclude each other within the process, too. Returns 0, or -1
/// with EWOULDBLOCK (another handle has a lock), EBADF, EINVAL, ENOLCK.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_flock(file: vellum_handle, operation: c_int) -> c_int {
    call("vellum_flock", &[], || {
        let held = table::get(file)?;
        let handle = &held.file()?.handle;
        let wait = match operation & libc::LOCK_NB {
            0 => LockWait::FOREVER,
            _ => LockWait::NO,
        };
        match operation & !libc::LOCK_NB {
            libc::LOCK_SH => handle.lock_file(LockKind::Shared, wait)?,
            libc::LOCK_EX => handle.lock_file(LockKind::Exclusive, wait)?,
            libc::LOCK_UN => handle.unlock()?,
            _ => return Err(Failure::invalid("an unknown operation of flock")),
        }
        Ok(0)
    })
}

/// Locks a range of bytes, as `fcntl(2)`. `command` is F_SETLK, F_SETLKW (which waits) or F_GETLK
/// for locks of the process; F_OFD_SETLK, F_OFD_SETLKW or F_OFD_GETLK for locks of this handle.
/// F_GETLK puts the first lock that is in the way into `*range`, or sets its `kind` to F_UNLCK.
/// Closing any handle of the file releases the process's locks. Returns 0, or -1 with EAGAIN
/// (another owner has a lock), EDEADLK (the process would wait for itself), EBADF (the handle is
/// not open for reading, which F_RDLCK needs, or writing, which F_WRLCK needs), EINVAL, EOVERFLOW,
/// ENOLCK, EFAULT.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_lock(
    file: vellum_handle,
    command: c_int,
    mut range: Out<vellum_lock_range>,
) -> c_int {
    call("vellum_lock", &[], || {
        let held = table::get(file)?;
        let file = held.file()?;
        let asked = range.get().ok_or(Failure::NULL)?;
        let (owner, wait) = match command {
            libc::F_SETLK | libc::F_GETLK => (LockOwner::this_process(), LockWait::NO),
            libc::F_SETLKW => (LockOwner::this_process(), LockWait::FOREVER),
            libc::F_OFD_SETLK | libc::F_OFD_GETLK => (LockOwner::Handle, LockWait::NO),
            libc::F_OFD_SETLKW => (LockOwner::Handle, LockWait::FOREVER),
            _ => return Err(Failure::invalid("an unknown command of a lock")),
        };
        let bytes = file.lock_range(&asked)?;
        let kind = match c_int::from(asked.kind) {
            libc::F_RDLCK => Some(LockKind::Shared),
            libc::F_WRLCK => Some(LockKind::Exclusive),
            libc::F_UNLCK => None,
            _ => return Err(Failure::invalid("an unknown kind of lock")),
        };
        if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
            let kind = kind.ok_or(Failure::invalid("no lock to ask for"))?;
            let found = file.handle.find_lock(owner, kind, bytes)?;
            range.set(told(found, asked));
            return Ok(0);
        }
        match kind {
            Some(kind) => file.handle.lock_range(owner, kind, bytes, wait)?,
            None => file.handle.unlock_range(owner, bytes)?,
        }
        Ok(0)
    })
}

impl OpenFile {
    fn lock_range(&self, asked: &vellum_lock_range) -> Result<LockRange> {
        let base = match c_int::from(asked.whence) {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => *self.turn()?,
            libc::SEEK_END => self.handle.attr()?.size,
            _ => return Err(Failure::invalid("an unknown start of a range")),
        };
        let start = i64::try_from(base).ok();
        let start = start.and_then(|base| base.checked_add(asked.start));
        let start = start.ok_or(Error::Overflow("a lock that begins beyond 2^63 - 1"))?;
        Ok(LockRange::of_fcntl(start, asked.length)?)
    }
}

fn told(found: Option<HeldLock>, asked: vellum_lock_range) -> vellum_lock_range {
    let Some(held) = found else {
        return vellum_lock_range {
            kind: libc::F_UNLCK as c_short,
            ..asked
        };
    };
    let kind = match held.kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    };
    let (start, end) = (held.range.start(), held.range.end());
    vellum_lock_range {
        kind: kind as c_short,
        whence: libc::SEEK_SET as c_short,
        pid: match held.owner {
            LockOwner::Process(process) => process as i32,
            LockOwner::Handle => -1,
        },
        start: start as i64,
        length: end.map_or(0, |end| (end - start) as i64),
    }
}
