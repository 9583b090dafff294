//! The traits of shared memory: everything that the file system may do to it.
//!
//! Two kinds of memory are addressed by byte offsets and never by pointers: the *pool* (persistent)
//! and the *arena* (shared, volatile). [`Memory`] has the operations of both; [`Persistent`] adds
//! those that make stores survive, and [`PoolMemory`] all else that a pool needs. The engine is
//! generic over both, so the code that ships is the code that is recorded, scheduled and
//! model-checked.
//!
//! Contract for every implementation:
//! * An access outside the memory never panics and never touches foreign bytes: loads return zeros,
//!   stores are dropped, comparisons (`bytes_equal`, `match_line`) find nothing, and
//!   [`Memory::damaged`] returns the offset from then on. A compare-and-swap outside finds zero, so
//!   that loops that retry with the found value end.
//! * Cells are 8 bytes, 8-byte aligned. A misaligned cell access counts as outside.
//! * `read` and `write` move bytes without a promise about tearing beyond aligned 8-byte words.

use crate::pool_memory::PoolMemory;
use crate::site::Site;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes in a cache line: the unit of flushing.
pub const LINE_BYTES: u64 = 64;
/// Bytes in a block: the unit of file data.
pub const BLOCK_BYTES: u64 = 4096;

/// Shared memory, addressed by byte offset. Methods that change it record their caller
/// ([`Caller`](crate::Caller)).
pub trait Memory: Send + Sync + 'static {
    /// Bytes of the memory.
    fn len(&self) -> u64;

    /// Whether the memory has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The offset of the first access that failed (out of bounds, or a poisoned line), if any did.
    fn damaged(&self) -> Option<u64>;

    /// 0 while no access failed. When bytes are lost, bits other than the lowest change before any
    /// thread can read the zeros that replace them. So a caller that sees the same value before and
    /// after an operation read none of these zeros.
    #[inline(always)]
    fn condition(&self) -> u64 {
        u64::from(self.damaged().is_some())
    }

    /// The offset of the last access that lost bytes, if any did.
    fn last_lost(&self) -> u64 {
        0
    }

    /// Whether the calling process may use the memory: it created the memory itself, rather than
    /// being forked off the creator, and has not [ended its use](Self::end). Makes no system call.
    #[inline(always)]
    fn is_at_work(&self) -> bool {
        true
    }

    /// Whether the calling process was forked off the one that created the memory.
    #[inline(always)]
    fn is_of_parent(&self) -> bool {
        false
    }

    /// Ends the use of the memory, although it stays mapped until it is dropped. Sequentially
    /// consistent.
    fn end(&self) {}

    /// Counts every later access to lost bytes for its thread, see [`faults`](crate::faults).
    /// Accesses outside the memory are always counted.
    fn watch(&self) {}

    /// Loads the cell at `at`.
    fn load(&self, at: u64, order: Ordering) -> u64;

    /// Stores `value` into the cell at `at`.
    #[track_caller]
    fn store(&self, at: u64, value: u64, order: Ordering);

    /// Stores `new` if the cell holds `current`; returns what the cell held.
    ///
    /// # Errors
    /// Returns the value found, if it is not `current`.
    #[track_caller]
    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64>;

    /// Adds to the cell, wrapping; returns the value before. Sequentially consistent.
    #[track_caller]
    fn fetch_add(&self, at: u64, value: u64) -> u64;

    /// Sets bits of the cell; returns the value before. Sequentially consistent.
    #[track_caller]
    fn fetch_or(&self, at: u64, bits: u64) -> u64;

    /// Keeps only `bits` of the cell; returns the value before. Sequentially consistent.
    #[track_caller]
    fn fetch_and(&self, at: u64, bits: u64) -> u64;

    /// Raises the cell to `value` if it is lower (unsigned); returns the value before.
    #[track_caller]
    fn fetch_max(&self, at: u64, value: u64) -> u64 {
        let mut seen = self.load(at, Ordering::Relaxed);
        while seen < value {
            match self.compare_exchange(at, seen, value) {
                Ok(before) => return before,
                Err(now) => seen = now,
            }
        }
        seen
    }

    /// Copies bytes out.
    fn read(&self, at: u64, out: &mut [u8]);

    /// Copies bytes in with ordinary stores.
    #[track_caller]
    fn write(&self, at: u64, data: &[u8]);

    /// Whether the bytes at `at` equal `expected`.
    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool;

    /// Compares the eight cells of the line at `at` (64-byte aligned): bit `i` of the result is set
    /// if `cell[i] & mask == want`.
    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8;

    /// The eight cells of the line at `at` (64-byte aligned), each loaded atomically.
    fn load_line(&self, at: u64) -> [u64; 8];

    /// Prefetches the line of `at` into the processor's caches.
    fn prefetch(&self, at: u64);

    /// Evicts the lines of `[at, at + len)` from the processor's caches and writes changed ones
    /// back, for experiments that begin with cold caches. It does not count as a flush and promises
    /// nothing.
    fn evict(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Waits a little for a short step of another thread; `tries` is how often the caller has
    /// already waited for it. Under model checkers it lets another thread run.
    fn relax(&self, tries: u32) {
        if tries > 100 {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Waits while the low half of the cell equals that of `seen`, at most for `limit` and possibly
    /// less: the caller checks the cell again. For waits that are too long for
    /// [`relax`](Self::relax): mapped memory sleeps, others let another thread run.
    fn wait(&self, at: u64, seen: u64, limit: Duration) {
        let _ = (at, seen, limit);
        self.relax(u32::MAX);
    }

    /// Wakes all waiters of the cell. The caller changed the cell before.
    fn wake(&self, at: u64) {
        let _ = at;
    }

    /// A full barrier: no access of this thread, to any memory, is reordered across it.
    fn barrier(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Keeps later accesses of this thread, to any memory, behind its earlier loads.
    fn load_barrier(&self) {
        std::sync::atomic::fence(Ordering::Acquire);
    }

    /// Whether every successful compare-and-swap is itself a [`barrier`](Self::barrier).
    fn swaps_are_barriers(&self) -> bool {
        cfg!(target_arch = "x86_64")
    }
}

/// Memory whose stores survive a power cut once flushed and fenced. Every step names its [`Site`]
/// in the source.
pub trait Persistent: Memory {
    /// Starts writing back every line that `[at, at + len)` touches.
    #[track_caller]
    fn flush(&self, site: Site, at: u64, len: u64);

    /// Waits until everything flushed or written through by this thread is durable.
    #[track_caller]
    fn fence(&self, site: Site);

    /// States that this thread's next store to the cell at `at` must not reach the medium before
    /// the present contents of `cells`. It needs no action: the stores to one line persist in
    /// program order, and the caller has made cells in other lines durable. Simulated pools record
    /// it in their logs, so that tests can swap the order and see whether the loss is noticed.
    #[inline(always)]
    #[track_caller]
    fn behind(&self, site: Site, at: u64, cells: &[u64]) {
        let _ = (site, at, cells);
    }

    /// States that the freed bytes `[at, at + len)` of a file may be overwritten from here on,
    /// because no power cut brings back a reference to them. It needs no action: simulated disks
    /// record it in their logs, so that tests can overwrite the bytes earlier and see whether that
    /// is noticed.
    #[inline(always)]
    #[track_caller]
    fn release(&self, site: Site, at: u64, len: u64) {
        let _ = (site, at, len);
    }

    /// Stores `value` into the cell at `at` past the cache (a non-temporal store): durable at the
    /// next fence. It is faster than a store and a flush for a word that is not read again soon.
    /// Other threads see it at the latest after that fence or a locked instruction, and possibly
    /// before stores that precede it.
    #[track_caller]
    fn store_through(&self, site: Site, at: u64, value: u64) {
        self.store(at, value, Ordering::Release);
        self.flush(site, at, 8);
    }

    /// Copies bytes in past the cache (non-temporal stores): durable at the next fence.
    /// Partial lines at either end are stored and flushed.
    #[track_caller]
    fn write_through(&self, site: Site, at: u64, data: &[u8]);

    /// Copies `data` past the cache, as [`write_through`](Self::write_through), over free bytes. If
    /// they were free at the last commit, no undo record is needed: after a rollback to that commit
    /// they hold any part of `data`, and nothing refers to them. Later stores there need undo
    /// records as usual.
    #[track_caller]
    fn write_fresh(&self, site: Site, at: u64, data: &[u8]) {
        self.write_through(site, at, data);
    }

    /// Zeroes bytes past the cache: durable at the next fence.
    #[track_caller]
    fn zero_through(&self, site: Site, at: u64, len: u64);
}

/// The two memories of an attached pool.
pub trait Memories: Send + Sync + 'static {
    /// Persistent bytes.
    type Pool: PoolMemory;
    /// Shared volatile bytes.
    type Arena: Memory;
}

/// What the bytes of a pool lie on, which determines what survives what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// Persistent memory mapped with `MAP_SYNC`, or a device-DAX node.
    Dax,
    /// An ordinary file through the page cache.
    File,
    /// Memory that a redo log in an ordinary file makes durable.
    Logged,
    /// Anonymous memory or a tmpfs file: lost at reboot.
    Memory,
    /// Simulated: every store, flush and fence recorded.
    Sim,
}

impl MediaKind {
    /// The name used on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dax => "dax",
            Self::File => "file",
            Self::Logged => "logged",
            Self::Memory => "memory",
            Self::Sim => "sim",
        }
    }
}
