//! Leases: who looks at bytes of a file in place, so that writers wait.
//!
//! A word of the file's cachelet counts its leases, so that a writer of a file without any pays one
//! load. Which bytes are lent, and to which thread, is private to the process.
//!
//! A lease is counted first, and then waits until the file's lock is free for a moment; a writer takes
//! the lock first, and then looks at the count. So of two that come at the same time at least one sees
//! the other: the writer gives the lock back and waits for the lease, never the other way round, and
//! never inside an operation.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use vellum_media::{Memories, Memory};

use crate::cachelet::{Cachelet, field};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::slots::pause;

/// Parts of the table of leases, so that threads seldom meet.
const SHARDS: usize = 64;

/// Bytes that are lent.
struct Lent {
    /// Address of the file system's core.
    core: usize,
    file: Cachelet,
    bytes: Range<u64>,
    thread: ThreadId,
}

struct Shard {
    lent: Mutex<Vec<Lent>>,
    returned: Condvar,
}

static LEASES: [Shard; SHARDS] = [const {
    Shard {
        lent: Mutex::new(Vec::new()),
        returned: Condvar::new(),
    }
}; SHARDS];

impl Shard {
    fn of(file: Cachelet) -> &'static Self {
        &LEASES[file.0 as usize % SHARDS]
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Lent>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address<M: Memories>(core: &Core<M>) -> usize {
    std::ptr::from_ref(core) as usize
}

/// Bytes of a file that nobody changes or gives up until it is dropped, in the thread that took it.
pub(crate) struct Lease<'a, M: Memories> {
    core: &'a Core<M>,
    file: Cachelet,
    bytes: Range<u64>,
}

impl<'a, M: Memories> Lease<'a, M> {
    /// Lends bytes; waits for a writer that is at work on the file. The caller is in no operation and
    /// holds a reference to the file.
    pub(crate) fn take(core: &'a Core<M>, file: Cachelet, bytes: Range<u64>) -> Self {
        Shard::of(file).lock().push(Lent {
            core: address(core),
            file,
            bytes: bytes.clone(),
            thread: std::thread::current().id(),
        });
        core.arena
            .fetch_add(core.cachelet_at(file, field::LEASES), 1);
        core.arena.barrier();
        let mut tries = 0;
        while core.get(file, field::LOCK) != 0 {
            pause(&core.arena, &mut tries);
        }
        Self { core, file, bytes }
    }
}

impl<M: Memories> Drop for Lease<'_, M> {
    fn drop(&mut self) {
        let (core, me) = (address(self.core), std::thread::current().id());
        let shard = Shard::of(self.file);
        let mut lent = shard.lock();
        let mine = |lent: &Lent| {
            (lent.core, lent.file, lent.thread) == (core, self.file, me) && lent.bytes == self.bytes
        };
        if let Some(place) = lent.iter().rposition(mine) {
            lent.swap_remove(place);
        }
        drop(lent);
        let count = self.core.cachelet_at(self.file, field::LEASES);
        self.core.arena.fetch_add(count, u64::MAX);
        shard.returned.notify_all();
    }
}

/// Whether any of `bytes` is lent. The caller holds the file's lock.
#[inline]
pub(crate) fn is_lent<M: Memories>(core: &Core<M>, file: Cachelet, bytes: &Range<u64>) -> bool {
    if !core.arena.swaps_are_barriers() {
        core.arena.barrier();
    }
    core.get(file, field::LEASES) != 0
        && holders(&Shard::of(file).lock(), address(core), file, bytes).count() > 0
}

/// Waits until none of `bytes` is lent. The caller is in no operation.
///
/// # Errors
/// [`Error::Deadlock`] if some are lent to the calling thread.
#[inline]
pub(crate) fn wait<M: Memories>(core: &Core<M>, file: Cachelet, bytes: &Range<u64>) -> Result<()> {
    match core.get(file, field::LEASES) {
        0 => Ok(()),
        _ => wait_for_return(core, file, bytes),
    }
}

#[cold]
fn wait_for_return<M: Memories>(core: &Core<M>, file: Cachelet, bytes: &Range<u64>) -> Result<()> {
    let (shard, me) = (Shard::of(file), std::thread::current().id());
    let mut lent = shard.lock();
    loop {
        let mut any = false;
        for thread in holders(&lent, address(core), file, bytes) {
            if thread == me {
                return Err(Error::Deadlock);
            }
            any = true;
        }
        if !any {
            return Ok(());
        }
        lent = shard
            .returned
            .wait(lent)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// The threads that any of `bytes` is lent to.
fn holders<'l>(
    lent: &'l [Lent],
    core: usize,
    file: Cachelet,
    bytes: &'l Range<u64>,
) -> impl Iterator<Item = ThreadId> + 'l {
    let of_file = lent
        .iter()
        .filter(move |lent| lent.core == core && lent.file == file);
    of_file
        .filter(|lent| lent.bytes.start < bytes.end && bytes.start < lent.bytes.end)
        .map(|lent| lent.thread)
}
