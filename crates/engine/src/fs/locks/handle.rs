//! The locks of an open file.

use std::sync::atomic::Ordering;

use vellum_media::Memories;

use super::table::{Class, FileId, Owner, Record, Table, number_handle};
use super::{HeldLock, LockKind, LockOwner, LockRange, LockWait};
use crate::core::cachelet::flag;
use crate::error::{Error, Result};
use crate::fs::Handle;

impl<M: Memories> Handle<M> {
    /// Locks the file for this handle alone (`flock(2)`, `LOCK_EX`). Waits for other handles,
    /// and gives up a shared lock of this handle before.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (one, other) = (pool.volume().create("/f")?, pool.volume().open("/f")?);
    /// one.handle().lock()?;
    /// assert!(matches!(other.handle().try_lock_shared(), Err(vellum::Error::WouldBlock)));
    /// drop(one); // a lock ends with its handle
    /// other.handle().try_lock()?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoLocks`] (`ENOLCK`) if the pool has too many locks.
    pub fn lock(&self) -> Result<()> {
        self.lock_file(LockKind::Exclusive, LockWait::FOREVER)
    }

    /// Locks the file for this handle and others that share it (`flock(2)`, `LOCK_SH`). Waits for
    /// an exclusive lock of another handle.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (one, other) = (pool.volume().create("/f")?, pool.volume().open("/f")?);
    /// one.handle().lock_shared()?;
    /// other.handle().lock_shared()?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_shared(&self) -> Result<()> {
        self.lock_file(LockKind::Shared, LockWait::FOREVER)
    }

    /// As [`Self::lock`], but does not wait.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (one, other) = (pool.volume().create("/f")?, pool.volume().open("/f")?);
    /// one.handle().try_lock()?;
    /// assert!(matches!(other.handle().try_lock(), Err(vellum::Error::WouldBlock)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WouldBlock`] (`EAGAIN`) if another handle has a lock: then this handle has none
    /// any more, not even the shared one that it had, as on Linux. Else as [`Self::lock`].
    pub fn try_lock(&self) -> Result<()> {
        self.lock_file(LockKind::Exclusive, LockWait::NO)
    }

    /// As [`Self::lock_shared`], but does not wait.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (one, other) = (pool.volume().create("/f")?, pool.volume().open("/f")?);
    /// one.handle().try_lock_shared()?;
    /// other.handle().try_lock_shared()?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::try_lock`].
    pub fn try_lock_shared(&self) -> Result<()> {
        self.lock_file(LockKind::Shared, LockWait::NO)
    }

    /// Locks the file for this handle (`flock(2)`). Converts a lock that the handle has, not
    /// atomically: gives that up before it waits.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// use std::time::{Duration, Instant};
    /// use vellum::{LockKind, LockWait};
    ///
    /// let second = LockWait::FOREVER.until(Instant::now() + Duration::from_secs(1));
    /// file.handle().lock_file(LockKind::Exclusive, second)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// What [`LockWait`] says if others are in the way; [`Error::NoLocks`] (`ENOLCK`) if the pool
    /// has too many locks.
    pub fn lock_file(&self, kind: LockKind, wait: LockWait<'_>) -> Result<()> {
        self.check_use()?;
        let request = self.lock_request(Class::Whole, LockOwner::Handle, kind, LockRange::ALL);
        self.fs()
            .acquire_lock(self.node().cachelet, &request, &wait)
    }

    /// Releases the lock of the file that this handle has, if any (`flock(2)`, `LOCK_UN`).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (one, other) = (pool.volume().create("/f")?, pool.volume().open("/f")?);
    /// one.handle().lock()?;
    /// one.handle().unlock()?;
    /// other.handle().try_lock()?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if this process may not use the pool.
    pub fn unlock(&self) -> Result<()> {
        let number = self.lock_number.load(Ordering::Acquire);
        self.release_locks(|lock| lock.class == Class::Whole && lock.owner == Owner::Handle(number))
    }

    /// Locks a range of bytes for `owner` (`fcntl(2)`, `F_SETLKW`, `F_OFD_SETLKW`). Where the owner
    /// has a lock already, that is converted, at the moment when all bytes of the range can be
    /// locked.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// # let other = pool.fs().open_node(&vellum::Cred::root(), file.handle().node(),
    /// #     &vellum::OpenOptions::new().read(true))?;
    /// use vellum::{LockKind, LockOwner, LockRange, LockWait};
    ///
    /// let (owner, head) = (LockOwner::Handle, LockRange::new(0..100)?);
    /// file.handle().lock_range(owner, LockKind::Exclusive, head, LockWait::NO)?;
    /// let tail = LockRange::new(100..)?;
    /// other.lock_range(owner, LockKind::Shared, tail, LockWait::FOREVER)?;
    /// assert!(other.lock_range(owner, LockKind::Shared, head, LockWait::NO).is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// What [`LockWait`] says if others are in the way; [`Error::LockDeadlock`] (`EDEADLK`) if a
    /// process would wait for itself, over processes that wait, in any file of the pool;
    /// [`Error::NoLocks`] (`ENOLCK`) if the pool has too many locks; [`Error::BadHandle`] (`EBADF`)
    /// if the handle does not read, for a shared lock, or write, for an exclusive one.
    pub fn lock_range(
        &self,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        wait: LockWait<'_>,
    ) -> Result<()> {
        self.check_use()?;
        let options = self.options();
        let is_permitted = match kind {
            LockKind::Shared => options.read,
            LockKind::Exclusive => options.write || options.append,
        };
        if !is_permitted {
            return Err(Error::BadHandle);
        }
        let request = self.lock_request(Class::Range, owner, kind, range);
        self.fs()
            .acquire_lock(self.node().cachelet, &request, &wait)
    }

    /// Releases all locks that `owner` has of these bytes (`fcntl(2)`, `F_UNLCK`), whole ones or
    /// parts.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// use vellum::{LockKind, LockOwner, LockRange, LockWait};
    ///
    /// let (owner, kind) = (LockOwner::Handle, LockKind::Exclusive);
    /// file.handle().lock_range(owner, kind, LockRange::ALL, LockWait::NO)?;
    /// file.handle().unlock_range(owner, LockRange::new(10..20)?)?;
    /// let me = LockOwner::this_process();
    /// file.handle().lock_range(me, kind, LockRange::new(10..20)?, LockWait::NO)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoLocks`] (`ENOLCK`) if a lock would become two, and the pool has too many.
    pub fn unlock_range(&self, owner: LockOwner, range: LockRange) -> Result<()> {
        self.check_use()?;
        if !self.may_have_locks() {
            return Ok(());
        }
        let request = self.lock_request(Class::Range, owner, LockKind::Shared, range);
        let op = self.fs().core.op_begin()?;
        Table::new(&op).change(request.file, |chain| chain.set_range(&request, None))
    }

    /// The first lock that keeps `owner` from locking these bytes (`fcntl(2)`, `F_GETLK`,
    /// `F_OFD_GETLK`).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// use vellum::{LockKind, LockOwner, LockRange, LockWait};
    ///
    /// let (shared, range) = (LockKind::Shared, LockRange::new(0..10)?);
    /// file.handle().lock_range(LockOwner::Process(7), shared, range, LockWait::NO)?;
    /// let found = |kind| file.handle().find_lock(LockOwner::Handle, kind, LockRange::ALL);
    /// assert_eq!(found(LockKind::Exclusive)?.map(|lock| lock.owner), Some(LockOwner::Process(7)));
    /// assert_eq!(found(LockKind::Shared)?, None);
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
        self.check_use()?;
        if !self.may_have_locks() {
            return Ok(None);
        }
        let request = self.lock_request(Class::Range, owner, kind, range);
        let op = self.fs().core.op_begin()?;
        let table = Table::new(&op);
        let found = table.chain(request.file).conflicts(&request).next();
        Ok(found.map(|lock| lock.held()))
    }

    /// Releases all locks of ranges that a process has on this file, as `close(2)` does. Programs
    /// that work for other processes call it when one of these closes a descriptor of the file.
    /// Dropping a handle does it for the calling process.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// use vellum::{LockKind, LockOwner, LockRange, LockWait};
    ///
    /// let (owner, kind) = (LockOwner::Process(7), LockKind::Exclusive);
    /// file.handle().lock_range(owner, kind, LockRange::ALL, LockWait::NO)?;
    /// file.handle().release_process_locks(7)?;
    /// file.handle().lock_range(LockOwner::Handle, kind, LockRange::ALL, LockWait::NO)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if this process may not use the pool.
    pub fn release_process_locks(&self, process: u64) -> Result<()> {
        self.release_locks(|lock| lock.owner == Owner::Process(process))
    }

    /// Releases the locks that end with this handle.
    pub(in crate::fs) fn end_locks(&self) {
        if !self.may_have_locks() {
            return;
        }
        let (number, process) = (self.lock_number.load(Ordering::Acquire), std::process::id());
        let _pool_may_be_closed_meanwhile = self.release_locks(|lock| match lock.owner {
            Owner::Handle(of) => of == number,
            Owner::Process(of) => of == u64::from(process),
        });
    }

    fn release_locks(&self, goes: impl Fn(&Record) -> bool) -> Result<()> {
        self.check_use()?;
        if !self.may_have_locks() {
            return Ok(());
        }
        let op = self.fs().core.op_begin()?;
        let file = self.node().cachelet;
        Table::new(&op).change(self.file_id(), |chain| chain.release(file, goes));
        Ok(())
    }

    /// Whether anybody may have a lock on the file: a load of a line that a close changes anyway.
    #[inline]
    fn may_have_locks(&self) -> bool {
        self.fs().core.has_flag(self.node().cachelet, flag::LOCKED)
    }

    fn file_id(&self) -> FileId {
        FileId {
            ino: self.node().ino(),
            generation: self.node().generation(),
        }
    }

    fn lock_request(
        &self,
        class: Class,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
    ) -> Record {
        Record {
            file: self.file_id(),
            class,
            kind,
            owner: match owner {
                LockOwner::Process(number) => Owner::Process(number),
                LockOwner::Handle => Owner::Handle(self.number_for_locks()),
            },
            range,
            process: std::process::id(),
            cancel: 0,
            is_waiting: false,
        }
    }

    /// The number by which locks name this handle.
    fn number_for_locks(&self) -> u64 {
        let number = &self.lock_number;
        let known = number.load(Ordering::Acquire);
        if known != 0 {
            return known;
        }
        let new = number_handle(&self.fs().core);
        match number.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(known) => known,
        }
    }
}
