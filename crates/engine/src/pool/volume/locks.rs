//! Locks on open files of a volume.

use super::File;
use crate::error::Result;
use crate::fs::{HeldLock, LockKind, LockOwner, LockRange, LockWait};

impl File {
    /// Locks the file for this `File` alone, as `std::fs::File::lock`. Waits for other `File`s,
    /// and gives up a shared lock of this one before.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let (one, other) = (volume.create("/f")?, volume.open("/f")?);
    /// one.lock()?;
    /// assert!(matches!(other.try_lock(), Err(vellum::Error::WouldBlock)));
    /// drop(one); // unlocks
    /// other.lock()?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoLocks`](crate::Error::NoLocks) if the pool has too many locks.
    pub fn lock(&self) -> Result<()> {
        self.handle().lock()
    }

    /// Locks the file for this `File` and others that share it, as `std::fs::File::lock_shared`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let (one, other) = (volume.create("/f")?, volume.open("/f")?);
    /// one.lock_shared()?;
    /// other.lock_shared()?;
    /// assert!(other.try_lock().is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_shared(&self) -> Result<()> {
        self.handle().lock_shared()
    }

    /// As [`Self::lock`], but does not wait.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.try_lock()?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WouldBlock`](crate::Error::WouldBlock) if another `File` has a lock: then this one
    /// has none any more, not even a shared one, as on Linux. Else as [`Self::lock`].
    pub fn try_lock(&self) -> Result<()> {
        self.handle().try_lock()
    }

    /// As [`Self::lock_shared`], but does not wait.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.try_lock_shared()?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::try_lock`].
    pub fn try_lock_shared(&self) -> Result<()> {
        self.handle().try_lock_shared()
    }

    /// Releases the lock of the file, if this `File` has it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let (one, other) = (volume.create("/f")?, volume.open("/f")?);
    /// one.lock()?;
    /// one.unlock()?;
    /// other.try_lock()?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if this process may not use the pool.
    pub fn unlock(&self) -> Result<()> {
        self.handle().unlock()
    }

    /// Locks a range of bytes, for this `File` or for the process: see
    /// [`Handle::lock_range`](crate::Handle::lock_range).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use vellum::{LockKind, LockOwner, LockRange, LockWait};
    ///
    /// let (one, other) = (volume.create("/f")?, volume.open("/f")?);
    /// let (owner, head) = (LockOwner::Handle, LockRange::new(0..100)?);
    /// one.lock_range(owner, LockKind::Exclusive, head, LockWait::FOREVER)?;
    /// other.lock_range(owner, LockKind::Shared, LockRange::new(100..)?, LockWait::NO)?;
    /// assert!(other.lock_range(owner, LockKind::Shared, head, LockWait::NO).is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Handle::lock_range`](crate::Handle::lock_range).
    pub fn lock_range(
        &self,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        wait: LockWait<'_>,
    ) -> Result<()> {
        self.handle().lock_range(owner, kind, range, wait)
    }

    /// Releases all locks of these bytes that this `File` or the process has.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// use vellum::{LockKind, LockOwner, LockRange, LockWait};
    ///
    /// let owner = LockOwner::this_process();
    /// file.lock_range(owner, LockKind::Shared, LockRange::ALL, LockWait::NO)?;
    /// file.unlock_range(owner, LockRange::new(10..)?)?; // bytes 0 to 9 stay locked
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Handle::unlock_range`](crate::Handle::unlock_range).
    pub fn unlock_range(&self, owner: LockOwner, range: LockRange) -> Result<()> {
        self.handle().unlock_range(owner, range)
    }

    /// The first lock that keeps this `File` or the process from locking these bytes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// use vellum::{LockKind, LockOwner, LockRange};
    ///
    /// let owner = LockOwner::this_process();
    /// assert_eq!(file.find_lock(owner, LockKind::Exclusive, LockRange::ALL)?, None);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if this process may not use the pool.
    pub fn find_lock(
        &self,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
    ) -> Result<Option<HeldLock>> {
        self.handle().find_lock(owner, kind, range)
    }
}
