//! Advisory locks on files: of byte ranges, as `fcntl(2)` has them, and of whole files, as
//! `flock(2)` has them. The two never meet, as on Linux's local file systems.
//!
//! All locks are records in one table in the arena, so owners are numbers: a process's, or a
//! handle's. Locks of ranges are split, merged, upgraded and downgraded as in Linux's `fs/locks.c`,
//! and found in the same order.
//!
//! Who must wait is a record, too, with a word that the waiting thread sleeps on, in no operation.
//! Whoever releases a lock gives it to waiters itself, in the order in which they came, and wakes
//! only them. A waiter conflicts with held locks only, not with earlier waiters, as in the kernel:
//! so shared locks may overtake a waiting exclusive one.

mod chain;
mod handle;
mod table;
#[cfg(test)]
mod tests;
mod waits;

use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

pub(crate) use table::arena_bytes;

use crate::error::{Error, Result};

/// The last byte that a lock can cover: offsets are signed in system calls.
const LAST: u64 = i64::MAX as u64;

/// What a lock excludes.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let (one, other) = (pool.volume().create("/f")?, pool.volume().open("/f")?);
/// use vellum::{LockKind, LockWait};
///
/// one.handle().lock_file(LockKind::Shared, LockWait::NO)?;
/// other.handle().lock_file(LockKind::Shared, LockWait::NO)?;
/// assert!(other.handle().lock_file(LockKind::Exclusive, LockWait::NO).is_err());
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Exclusive locks of other owners.
    Shared,
    /// All locks of other owners.
    Exclusive,
}

/// The bytes that a lock of a range covers: offsets from 0 to 2^63 - 1, in the file or beyond its
/// end.
///
/// ```
/// use vellum::LockRange;
///
/// let head = LockRange::new(0..100)?;
/// assert_eq!((head.start(), head.end()), (0, Some(100)));
/// assert_eq!(LockRange::new(..)?, LockRange::ALL);
/// assert_eq!(LockRange::new(7..)?.end(), None); // whatever the size of the file becomes
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockRange {
    first: u64,
    /// Inclusive.
    last: u64,
}

impl LockRange {
    /// Every byte that a file can have.
    ///
    /// ```
    /// assert_eq!(vellum::LockRange::ALL.start(), 0);
    /// ```
    pub const ALL: Self = Self {
        first: 0,
        last: LAST,
    };

    /// A range of bytes. Without an end it has no limit.
    ///
    /// ```
    /// use vellum::LockRange;
    ///
    /// assert_eq!(LockRange::new(10..=19)?, LockRange::new(10..20)?);
    /// assert!(LockRange::new(10..10).is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] (`EINVAL`) if it has no byte, or begins beyond 2^63 - 1;
    /// [`Error::Overflow`] (`EOVERFLOW`) if it ends beyond that.
    pub fn new(bytes: impl RangeBounds<u64>) -> Result<Self> {
        const EMPTY: Error = Error::Invalid("a lock covers at least one byte");
        let first = match bytes.start_bound() {
            Bound::Unbounded => 0,
            Bound::Included(&first) => first,
            Bound::Excluded(&before) => before.checked_add(1).ok_or(EMPTY)?,
        };
        let last = match bytes.end_bound() {
            Bound::Unbounded => LAST,
            Bound::Included(&last) => last,
            Bound::Excluded(&end) => end.checked_sub(1).ok_or(EMPTY)?,
        };
        if first > LAST {
            return Err(Error::Invalid("a lock that begins beyond 2^63 - 1"));
        }
        if last < first {
            return Err(EMPTY);
        }
        if last > LAST {
            return Err(Error::Overflow("a lock that ends beyond 2^63 - 1"));
        }
        Ok(Self { first, last })
    }

    /// The range that `fcntl(2)` locks for `l_start` (from the start of the file) and `l_len`: no
    /// limit for 0, and the bytes before the start for a negative number.
    ///
    /// ```
    /// use vellum::LockRange;
    ///
    /// assert_eq!(LockRange::of_fcntl(10, 5)?, LockRange::new(10..15)?);
    /// assert_eq!(LockRange::of_fcntl(10, -5)?, LockRange::new(5..10)?);
    /// assert_eq!(LockRange::of_fcntl(10, 0)?, LockRange::new(10..)?);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] (`EINVAL`) if it begins before the file; [`Error::Overflow`]
    /// (`EOVERFLOW`) if it ends beyond 2^63 - 1.
    pub fn of_fcntl(start: i64, len: i64) -> Result<Self> {
        const BEFORE: Error = Error::Invalid("a lock that begins before the file");
        let at = u64::try_from(start).map_err(|_| BEFORE)?;
        match len {
            0 => Self::new(at..),
            1.. => Self::new(at..=at + (len as u64 - 1)),
            _ => Self::new(at.checked_sub(len.unsigned_abs()).ok_or(BEFORE)?..at),
        }
    }

    /// The offset of the first byte.
    ///
    /// ```
    /// assert_eq!(vellum::LockRange::new(4..9)?.start(), 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn start(&self) -> u64 {
        self.first
    }

    /// The offset behind the last byte; `None` if the range has no limit.
    ///
    /// ```
    /// assert_eq!(vellum::LockRange::new(4..9)?.end(), Some(9));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn end(&self) -> Option<u64> {
        (self.last < LAST).then_some(self.last + 1)
    }
}

/// Whose lock of a range it is.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// use vellum::{LockKind, LockOwner, LockRange, LockWait};
///
/// let file = volume.create("/f")?;
/// let (all, exclusive) = (LockRange::ALL, LockKind::Exclusive);
/// file.lock_range(LockOwner::this_process(), exclusive, all, LockWait::NO)?;
/// drop(volume.open("/f")?); // the process closes the file: its locks are gone
/// assert_eq!(file.find_lock(LockOwner::Handle, exclusive, all)?, None);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockOwner {
    /// The open file (`F_OFD_SETLK`): the lock ends with it.
    Handle,
    /// The process with this number (`F_SETLK`), who may use several handles: its locks of a file
    /// end when it closes any of its handles of that file. Programs that work for other processes,
    /// such as a mount, choose the numbers, and report closes by
    /// [`Handle::release_process_locks`](crate::Handle::release_process_locks).
    Process(u64),
}

impl LockOwner {
    /// The calling process. Its number is the process id.
    ///
    /// ```
    /// use vellum::LockOwner;
    ///
    /// assert_eq!(LockOwner::this_process(), LockOwner::Process(std::process::id().into()));
    /// ```
    pub fn this_process() -> Self {
        Self::Process(std::process::id().into())
    }
}

/// A lock of a range that somebody holds.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let (one, other) = (pool.volume().create("/f")?, pool.volume().open("/f")?);
/// use vellum::{HeldLock, LockKind, LockOwner, LockRange, LockWait};
///
/// let (owner, range) = (LockOwner::this_process(), LockRange::new(0..10)?);
/// one.lock_range(owner, LockKind::Exclusive, range, LockWait::NO)?;
/// let found = other.find_lock(LockOwner::Handle, LockKind::Shared, LockRange::new(5..)?)?;
/// assert_eq!(found, Some(HeldLock { kind: LockKind::Exclusive, range, owner }));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldLock {
    /// Its kind.
    pub kind: LockKind,
    /// Its bytes.
    pub range: LockRange,
    /// Its owner. [`LockOwner::Handle`] is some handle, of this process or another.
    pub owner: LockOwner,
}

/// How long a request waits for locks of others.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let (one, other) = (pool.volume().create("/f")?, pool.volume().open("/f")?);
/// use std::time::{Duration, Instant};
/// use vellum::{Error, LockKind, LockWait};
///
/// one.lock()?;
/// let second = LockWait::FOREVER.until(Instant::now() + Duration::from_millis(1));
/// let refused = other.handle().lock_file(LockKind::Shared, second);
/// assert!(matches!(refused, Err(Error::TimedOut)));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LockWait<'c> {
    waits: bool,
    deadline: Option<Instant>,
    cancel: Option<&'c LockCancel>,
}

impl<'c> LockWait<'c> {
    /// Not at all: [`Error::WouldBlock`] (`EAGAIN`).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().lock_file(vellum::LockKind::Shared, vellum::LockWait::NO)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub const NO: Self = Self {
        waits: false,
        deadline: None,
        cancel: None,
    };

    /// Until it has the lock.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().lock_file(vellum::LockKind::Shared, vellum::LockWait::FOREVER)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub const FOREVER: Self = Self {
        waits: true,
        ..Self::NO
    };

    /// At most until `deadline`: then it fails with [`Error::TimedOut`] (`ETIMEDOUT`). The type has
    /// an [example](Self).
    #[must_use]
    pub const fn until(self, deadline: Instant) -> Self {
        Self {
            waits: true,
            deadline: Some(deadline),
            ..self
        }
    }

    /// At most until `cancel` is used: then it fails with [`Error::Interrupted`] (`EINTR`).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (one, other) = (pool.volume().create("/f")?, pool.volume().open("/f")?);
    /// use vellum::{Error, LockCancel, LockKind, LockWait};
    ///
    /// one.lock()?;
    /// let cancel = LockCancel::new();
    /// pool.fs().cancel_lock_waits(&cancel); // by another thread, as a rule
    /// let wait = LockWait::FOREVER.cancelled_by(&cancel);
    /// let refused = other.handle().lock_file(LockKind::Shared, wait);
    /// assert!(matches!(refused, Err(Error::Interrupted)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    #[must_use]
    pub const fn cancelled_by(self, cancel: &'c LockCancel) -> Self {
        Self {
            waits: true,
            cancel: Some(cancel),
            ..self
        }
    }
}

/// Ends waits for locks from another thread ([`Fs::cancel_lock_waits`](crate::Fs)): those that
/// name it now, and those that will. [`LockWait::cancelled_by`] has an example.
#[derive(Debug)]
pub struct LockCancel {
    /// Not 0, and unique among those of this process.
    number: u32,
    is_used: AtomicBool,
}

impl Default for LockCancel {
    fn default() -> Self {
        Self::new()
    }
}

impl LockCancel {
    /// One that was not used yet.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// use vellum::{LockCancel, LockKind, LockWait};
    ///
    /// let cancel = LockCancel::new();
    /// let wait = LockWait::FOREVER.cancelled_by(&cancel);
    /// file.handle().lock_file(LockKind::Shared, wait)?; // nobody was in the way
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed).max(1),
            is_used: AtomicBool::new(false),
        }
    }
}
