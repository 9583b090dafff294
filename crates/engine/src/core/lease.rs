//! Leases: views of bytes of a file in place, for which writers wait.
//!
//! A word of the file's cachelet counts its leases, so that a writer of a file without any pays one
//! load. Which bytes are lent, and to which thread, is private to the process.
//!
//! A lease is counted first, and then waits until the file's lock is free for a moment. A writer
//! takes the lock first, and then looks at the count. So if both come at the same time, at least
//! one sees the other. The writer releases the lock and waits for the lease, never the other way
//! round, and never inside an operation.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use vellum_media::{Medium, Memories, Memory};

use crate::core::Core;
use crate::core::cachelet::{Cachelet, field};
use crate::core::slots::pause;
use crate::error::{Error, Result};

/// Parts of the table of leases, so that threads seldom contend.
const SHARDS: usize = 64;

/// Bytes that are lent.
struct Lent {
    file: Cachelet,
    bytes: Range<u64>,
    thread: u64,
    /// Nobody else may have any of these bytes.
    alone: bool,
}

/// All leases of a file system.
pub(crate) struct Leases {
    shards: [Shard; SHARDS],
    /// Views that lend bytes in place.
    views: AtomicU64,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Shard::default()),
            views: AtomicU64::new(0),
        }
    }
}

/// A part of the table.
#[derive(Default)]
struct Lents {
    lent: Vec<Lent>,
    /// Threads that wait for one of these leases.
    waiting: u64,
}

#[derive(Default)]
struct Shard {
    leases: Mutex<Lents>,
    returned: Condvar,
}

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Returns a number of the calling thread that is never used again. It is read twice for each view,
/// so it has to be cheaper than [`std::thread::current`].
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    match THREAD.get() {
        0 => {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            THREAD.set(number);
            number
        }
        known => known,
    }
}

impl Leases {
    fn shard(&self, file: Cachelet) -> &Shard {
        &self.shards[file.0 as usize % SHARDS]
    }

    /// How many views lend bytes in place.
    pub(crate) fn views(&self) -> u64 {
        self.views.load(Ordering::SeqCst)
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Lents> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until a lease is returned.
    fn sleep<'s>(&'s self, mut leases: MutexGuard<'s, Lents>) -> MutexGuard<'s, Lents> {
        leases.waiting += 1;
        let woken = self.returned.wait(leases);
        let mut leases = woken.unwrap_or_else(PoisonError::into_inner);
        leases.waiting -= 1;
        leases
    }

    /// Sleeps until none of `bytes` is lent to a lease that `counts`. Fails if one is of this
    /// thread.
    fn wait_until_free<'s>(
        &'s self,
        mut leases: MutexGuard<'s, Lents>,
        (file, bytes): (Cachelet, &Range<u64>),
        counts: impl Fn(&Lent) -> bool,
    ) -> Result<MutexGuard<'s, Lents>> {
        let me = this_thread();
        loop {
            let holders = holders(&leases.lent, file, bytes).filter(|lent| counts(lent));
            let threads: Vec<u64> = holders.map(|lent| lent.thread).collect();
            if threads.is_empty() {
                return Ok(leases);
            }
            if threads.contains(&me) {
                return Err(Error::Deadlock);
            }
            leases = self.sleep(leases);
        }
    }
}

/// Bytes of a file that must not be changed or freed until this is dropped. Any thread may drop it.
pub(crate) struct Lease<'a, M: Memories> {
    core: &'a Core<M>,
    file: Cachelet,
    bytes: Range<u64>,
    /// The thread that took it.
    thread: u64,
}

impl<'a, M: Memories> Lease<'a, M> {
    /// Lends bytes. Waits for a running writer of the file. The caller is in no operation and holds
    /// a reference to the file.
    ///
    /// # Errors
    /// As [`wait`].
    pub(crate) fn take(core: &'a Core<M>, file: Cachelet, bytes: Range<u64>) -> Result<Self> {
        Self::lend(core, file, bytes, false)
    }

    /// As [`Self::take`], and nobody else lends or writes any of `bytes` meanwhile. The caller
    /// holds no other lease of the file.
    pub(crate) fn take_alone(core: &'a Core<M>, file: Cachelet, bytes: Range<u64>) -> Result<Self> {
        Self::lend(core, file, bytes, true)
    }

    fn lend(core: &'a Core<M>, file: Cachelet, bytes: Range<u64>, alone: bool) -> Result<Self> {
        let shard = core.leases.shard(file);
        let leases = shard.lock();
        let counts = |lent: &Lent| alone || lent.alone;
        let mut leases = shard.wait_until_free(leases, (file, &bytes), counts)?;
        let thread = this_thread();
        leases.lent.push(Lent {
            file,
            bytes: bytes.clone(),
            thread,
            alone,
        });
        drop(leases);
        core.arena
            .fetch_add(core.cachelet_at(file, field::LEASES), 1);
        core.arena.barrier();
        let mut tries = 0;
        while core.get(file, field::LOCK) != 0 {
            pause(&core.arena, &mut tries);
        }
        Ok(Self {
            core,
            file,
            bytes,
            thread,
        })
    }
}

impl<M: Memories> Drop for Lease<'_, M> {
    fn drop(&mut self) {
        let shard = self.core.leases.shard(self.file);
        let mut leases = shard.lock();
        let mine = |lent: &Lent| {
            (lent.file, lent.thread) == (self.file, self.thread) && lent.bytes == self.bytes
        };
        if let Some(place) = leases.lent.iter().rposition(mine) {
            leases.lent.swap_remove(place);
        }
        let is_awaited = leases.waiting > 0;
        drop(leases);
        let count = self.core.cachelet_at(self.file, field::LEASES);
        self.core.arena.fetch_add(count, u64::MAX);
        // This is a system call even if no thread waits.
        if is_awaited {
            shard.returned.notify_all();
        }
    }
}

/// Counts a view of bytes in place, until it is dropped. While there is one, no other process can
/// open the pool.
pub(crate) struct Shown<'a, M: Memories>(&'a Core<M>);

impl<'a, M: Memories> Shown<'a, M> {
    /// The caller is in the operation that lends the bytes. The thread that ends the use of the
    /// pool waits for that operation before it counts.
    pub(crate) fn new(core: &'a Core<M>) -> Self {
        core.leases.views.fetch_add(1, Ordering::SeqCst);
        Self(core)
    }
}

impl<M: Memories> Drop for Shown<'_, M> {
    fn drop(&mut self) {
        // The thread that ends the use of the pool announces that before it counts. So at least one
        // of the two unlocks the pool.
        let is_last = self.0.leases.views.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && !self.0.arena.is_at_work() {
            self.0.pool.unlock();
        }
    }
}

/// Whether any of `bytes` is lent. The caller holds the file's lock.
#[inline]
pub(crate) fn is_lent<M: Memories>(core: &Core<M>, file: Cachelet, bytes: &Range<u64>) -> bool {
    if !core.arena.swaps_are_barriers() {
        core.arena.barrier();
    }
    core.get(file, field::LEASES) != 0
        && holders(&core.leases.shard(file).lock().lent, file, bytes).count() > 0
}

/// Waits until none of `bytes` is lent. The caller is in no operation.
///
/// # Errors
/// Fails with [`Error::Deadlock`] if some are lent to the calling thread, and if this process may
/// not use the pool.
#[inline]
pub(crate) fn wait<M: Memories>(core: &Core<M>, file: Cachelet, bytes: &Range<u64>) -> Result<()> {
    match core.get(file, field::LEASES) {
        0 => Ok(()),
        _ => wait_for_return(core, file, bytes),
    }
}

#[cold]
fn wait_for_return<M: Memories>(core: &Core<M>, file: Cachelet, bytes: &Range<u64>) -> Result<()> {
    // In a forked child no thread returns what is lent.
    core.check_use()?;
    let shard = core.leases.shard(file);
    let free = shard.wait_until_free(shard.lock(), (file, bytes), |_| true);
    free.map(drop)
}

/// The leases of any of `bytes`.
fn holders<'l>(
    lent: &'l [Lent],
    file: Cachelet,
    bytes: &'l Range<u64>,
) -> impl Iterator<Item = &'l Lent> {
    let of_file = lent.iter().filter(move |lent| lent.file == file);
    of_file.filter(|lent| lent.bytes.start < bytes.end && bytes.start < lent.bytes.end)
}
