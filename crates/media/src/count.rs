//! Counters: the cost of an operation in units that do not depend on the machine.
//!
//! Every thread adds to its own block; [`snapshot`] sums all blocks. A block outlives its thread,
//! and a later thread gets it with its counts, so sums never fall. An event costs about a
//! nanosecond.

use std::cell::Cell;
use std::ops::{AddAssign, Sub};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

/// Counts of what the file system did to its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cache lines flushed; a line written past the cache counts as one.
    pub lines_flushed: u64,
    /// Fences.
    pub fences: u64,
    /// Bytes stored into pools.
    pub pool_bytes_written: u64,
    /// Steps of index searches, see [`probe`].
    pub probes: u64,
    /// Allocations in the pool or the arena, see [`allocation`].
    pub allocations: u64,
    /// Calls that made the operating system write, see
    /// [`Medium::sync`](crate::Medium::sync).
    pub syncs: u64,
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            lines_flushed: self.lines_flushed.wrapping_sub(before.lines_flushed),
            fences: self.fences.wrapping_sub(before.fences),
            pool_bytes_written: self
                .pool_bytes_written
                .wrapping_sub(before.pool_bytes_written),
            probes: self.probes.wrapping_sub(before.probes),
            allocations: self.allocations.wrapping_sub(before.allocations),
            syncs: self.syncs.wrapping_sub(before.syncs),
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.lines_flushed = self.lines_flushed.wrapping_add(more.lines_flushed);
        self.fences = self.fences.wrapping_add(more.fences);
        self.pool_bytes_written = self
            .pool_bytes_written
            .wrapping_add(more.pool_bytes_written);
        self.probes = self.probes.wrapping_add(more.probes);
        self.allocations = self.allocations.wrapping_add(more.allocations);
        self.syncs = self.syncs.wrapping_add(more.syncs);
    }
}

/// One thread's counts. Only its owner writes them, so a load and a store are enough to add.
struct Block {
    lines_flushed: AtomicU64,
    fences: AtomicU64,
    pool_bytes_written: AtomicU64,
    probes: AtomicU64,
    allocations: AtomicU64,
    syncs: AtomicU64,
    /// Whether a thread uses it.
    taken: AtomicBool,
    /// The block created before this one; it does not change once other threads can see this one.
    before: AtomicPtr<Block>,
}

impl Block {
    const fn new() -> Self {
        Self {
            taken: AtomicBool::new(true),
            before: AtomicPtr::new(std::ptr::null_mut()),
            lines_flushed: AtomicU64::new(0),
            fences: AtomicU64::new(0),
            pool_bytes_written: AtomicU64::new(0),
            probes: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            lines_flushed: self.lines_flushed.load(Relaxed),
            fences: self.fences.load(Relaxed),
            pool_bytes_written: self.pool_bytes_written.load(Relaxed),
            probes: self.probes.load(Relaxed),
            allocations: self.allocations.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
        }
    }
}

/// The block created last. There is no lock, which another thread could hold for ever after a fork.
static LAST: AtomicPtr<Block> = AtomicPtr::new(std::ptr::null_mut());

/// All blocks ever created.
fn blocks() -> impl Iterator<Item = &'static Block> {
    // SAFETY: both pointers are null, or point to a leaked block.
    let at = |pointer: &AtomicPtr<Block>| unsafe { pointer.load(Acquire).as_ref::<'static>() };
    std::iter::successors(at(&LAST), move |block| at(&block.before))
}

/// A block that no thread uses.
fn idle_block() -> Option<&'static Block> {
    let mut blocks = blocks().filter(|block| !block.taken.load(Relaxed));
    blocks.find(|block| !block.taken.swap(true, Acquire))
}

/// Creates a block.
fn new_block() -> &'static Block {
    let block: &'static Block = Box::leak(Box::new(Block::new()));
    let mut last = LAST.load(Relaxed);
    loop {
        block.before.store(last, Relaxed);
        let new = std::ptr::from_ref(block).cast_mut();
        match LAST.compare_exchange_weak(last, new, AcqRel, Relaxed) {
            Ok(_) => return block,
            Err(now) => last = now,
        }
    }
}

/// Counts of threads whose own block is gone already (in other destructors of the thread).
static LATE: Block = Block::new();

thread_local! {
    static MINE: Cell<Option<&'static Block>> = const { Cell::new(None) };
    static GUARD: Guard = const { Guard };
}

/// Returns the block when the thread ends.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(block) = MINE.replace(Some(&LATE)) {
            block.taken.store(false, Release);
        }
    }
}

#[inline(always)]
fn mine() -> &'static Block {
    MINE.get().unwrap_or_else(adopt)
}

#[cold]
fn adopt() -> &'static Block {
    let block = idle_block().unwrap_or_else(new_block);
    MINE.set(Some(block));
    if GUARD.try_with(|_| ()).is_err() {
        // The thread is ending: no other code would return the block.
        block.taken.store(false, Release);
        MINE.set(Some(&LATE));
        return &LATE;
    }
    block
}

#[inline(always)]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

#[inline(always)]
pub(crate) fn flushed(lines: u64) {
    add(&mine().lines_flushed, lines);
}

#[inline(always)]
pub(crate) fn fenced() {
    add(&mine().fences, 1);
}

#[inline(always)]
pub(crate) fn wrote(bytes: u64) {
    add(&mine().pool_bytes_written, bytes);
}

#[inline(always)]
pub(crate) fn wrote_through(bytes: u64, lines: u64) {
    let mine = mine();
    add(&mine.pool_bytes_written, bytes);
    add(&mine.lines_flushed, lines);
}

#[inline(always)]
pub(crate) fn synced() {
    add(&mine().syncs, 1);
}

/// Counts one step of an index search: one examined line.
#[inline(always)]
pub fn probe() {
    add(&mine().probes, 1);
}

/// Counts `n` steps of an index search.
#[inline(always)]
pub fn probes(n: u64) {
    add(&mine().probes, n);
}

/// Counts one block, inode, entry or slab cell allocated.
#[inline(always)]
pub fn allocation() {
    add(&mine().allocations, 1);
}

/// The sum over all threads of the process, including ended ones. Running threads are seen at some
/// moment of the call.
pub fn snapshot() -> Counts {
    let mut sum = LATE.counts();
    for block in blocks() {
        sum += block.counts();
    }
    sum
}

/// The calling thread's counts. Differences are exact, absolute values are not: a thread may
/// inherit the counts of an ended one.
pub fn of_this_thread() -> Counts {
    mine().counts()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_one_thread_are_exact() {
        let before = of_this_thread();
        probe();
        probes(2);
        allocation();
        flushed(4);
        fenced();
        wrote(8);
        wrote_through(128, 2);
        synced();
        assert_eq!(
            of_this_thread() - before,
            Counts {
                lines_flushed: 6,
                fences: 1,
                pool_bytes_written: 136,
                probes: 3,
                allocations: 1,
                syncs: 1
            }
        );
    }

    #[test]
    fn threads_that_ended_are_in_the_sum() {
        let before = snapshot();
        for _ in 0..4 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..1000).for_each(|_| probe()));
                }
            });
        }
        assert!((snapshot() - before).probes >= 16_000);
    }

    #[test]
    fn blocks_of_ended_threads_are_used_again() {
        let count = || blocks().count();
        std::thread::spawn(probe).join().expect("thread");
        let before = count();
        for _ in 0..200 {
            std::thread::spawn(probe).join().expect("thread");
        }
        // Other tests run concurrently and may add a few.
        assert!(count() < before + 150);
    }
}
