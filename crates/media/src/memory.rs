//! The traits of shared memory: everything that the file system may do to it.
//!
//! Two kinds of memory are addressed by byte offsets and never by pointers: the *pool* (persistent)
//! and the *arena* (shared, volatile). [`Memory`] has the operations of both; [`Persistent`] adds
//! those that make stores survive. The engine is generic over both, so the code that ships is the
//! code that is recorded, scheduled and model-checked.
//!
//! Contract for every implementation:
//! * An access outside the memory never panics and never touches foreign bytes: loads return zeros,
//!   stores are dropped, comparisons (`bytes_equal`, `match_line`) find nothing, and
//!   [`Memory::damaged`] returns the offset from then on. A compare-and-swap outside finds zero, so
//!   that loops that retry with the found value end.
//! * Cells are 8 bytes, 8-byte aligned. A misaligned cell access counts as outside.
//! * `read` and `write` move bytes without a promise about tearing beyond aligned 8-byte words.

use crate::MediaError;
use crate::disk::{Disk, Split};
use crate::granules::UndoWriter;
use crate::image::{Attach, ImageKey, LeftImage, SharedImage};
use crate::site::Site;
use crate::window::Window;
use crate::written::Written;
use std::io;
use std::sync::Arc;
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

    /// Makes everything fenced so far survive whatever the medium can survive at all (`fdatasync`
    /// of a file; nothing to do on persistent memory).
    ///
    /// # Errors
    /// Returns the error of the operating system.
    fn sync(&self) -> io::Result<()>;

    /// Lets others open the file or device of this pool. The caller and all other users have [ended
    /// their use](Memory::end).
    fn unlock(&self) {}

    /// Bytes of the pool itself. Bytes behind them, if there are any, lie on an external data
    /// device.
    fn own_bytes(&self) -> u64 {
        self.len()
    }

    /// Durably replaces the unreadable block of 4 KiB at `at` by zeros, so that it can be used
    /// again; with larger pages, the whole page. Nothing else may use the memory meanwhile.
    ///
    /// # Errors
    /// Fails if the medium cannot do this, or on an error of the operating system. The block is
    /// then still lost.
    fn renew(&self, at: u64) -> io::Result<()> {
        let _ = at;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Begins an image: metadata in separate memory, zero at first, with their dirty lines
    /// recorded. From now on blocks of files are written by calls, and [`disk`](Self::disk) reaches
    /// the underlying file. Nothing else uses the pool meanwhile. With a key the memory outlives
    /// this process, and [`shared_image`](Self::shared_image) names it; the image of a read-only
    /// pool never does.
    ///
    /// # Errors
    /// Fails if the pool cannot be split this way, the memory is not available, or on an error of
    /// the operating system. Nothing has changed then.
    fn begin_image(&self, split: Split, shared: Option<&ImageKey<'_>>) -> Result<(), MediaError> {
        let _ = (split, shared);
        Err(MediaError::NoImage)
    }

    /// Begins transactions. From now on blocks of files are written by calls, and
    /// [`disk`](Self::disk) reaches them. Once a transaction has begun, `undo` saves the old bytes
    /// of a granule of the metadata before the transaction first stores to it. Nothing else uses
    /// the pool meanwhile.
    ///
    /// # Errors
    /// Fails if the pool cannot be split this way.
    fn begin_transactions(
        &self,
        split: Split,
        undo: Arc<dyn UndoWriter>,
    ) -> Result<(), MediaError> {
        let _ = (split, undo);
        Err(MediaError::NoTransactions)
    }

    /// Begins a transaction; `number` is higher than all before. No thread stores meanwhile.
    fn begin_transaction(&self, number: u64) {
        let _ = number;
    }

    /// States that this thread is about to store to these ranges, `(offset, len)` each. If undo
    /// records are needed, they are written for all ranges with one fence.
    fn about_to_store(&self, places: &[(u64, u64)]) {
        let _ = places;
    }

    /// States that this transaction and all before are durable: power cuts no longer roll them
    /// back.
    fn transaction_committed(&self, number: u64) {
        let _ = number;
    }

    /// States that `[at, at + len)` is free: nothing refers to it any more.
    fn freed(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// States that the free range `[at, at + len)` is about to be stored to, and that only later
    /// stores of the same transaction refer to it. If it was free at the last commit, it needs no
    /// undo record.
    fn allocated(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Allocates memory for the whole blocks `[at, at + len)` of the image, so that stores there
    /// cannot fail for lack of it.
    ///
    /// # Errors
    /// Fails if no memory is left.
    fn prepare(&self, at: u64, len: u64) -> io::Result<()> {
        let _ = (at, len);
        Ok(())
    }

    /// The image, if it outlives this process.
    fn shared_image(&self) -> Option<Arc<dyn SharedImage>> {
        None
    }

    /// Looks for the image that an earlier process left, see [`left_image`](crate::left_image).
    ///
    /// # Errors
    /// As [`left_image`](crate::left_image).
    fn left_image(
        &self,
        key: &ImageKey<'_>,
        attach: Option<Attach>,
        last: u64,
    ) -> Result<LeftImage, MediaError> {
        let _ = (key, attach, last);
        Ok(LeftImage::Nothing)
    }

    /// Unlinks an image that no log names any more.
    fn forget_image(&self, key: &ImageKey<'_>) {
        let _ = key;
    }

    /// The file or device under the image, once the image has begun: home, log and blocks of files,
    /// at their offsets in the pool. Under transactions, blocks of files only.
    fn disk(&self) -> Option<&dyn Disk> {
        None
    }

    /// Calls `each` with the offset of every line of the image that was stored to since the last
    /// cut, ascending; returns the blocks of files that were written since. No thread stores
    /// meanwhile.
    fn cut(&self, each: &mut dyn FnMut(u64)) -> Written {
        let _ = each;
        Written::Few(Vec::new())
    }

    /// What the bytes lie on.
    fn kind(&self) -> MediaKind;

    /// Whether this many contiguous bytes of a file are better read by one call than through a
    /// [`Window`], as from a disk: the kernel then reads ahead.
    fn pays_by_call(&self, bytes: usize) -> bool {
        let _ = bytes;
        false
    }

    /// Whether the page of `at` is in memory, as far as the kernel reports it. If not, reading it
    /// waits for a disk.
    fn is_in_memory(&self, at: u64) -> bool {
        let _ = at;
        true
    }

    /// Whether blocks of files are read from a disk one by one as they are touched, because blocks
    /// of other files surround them. A caller that is going to read more announces it by
    /// [`will_need`](Self::will_need).
    fn reads_singly(&self) -> bool {
        false
    }

    /// Starts reading these bytes of files from the disk, if blocks are read one by one and the
    /// first of these is not in memory.
    fn will_need(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Copies bytes of files from several ranges of the pool, `(from, to)` each. If [calls are
    /// better](Self::pays_by_call), all ranges are requested from the disk at once.
    fn read_all(&self, pieces: &mut [(u64, &mut [u8])]) {
        for (at, out) in pieces {
            self.read(*at, out);
        }
    }

    /// As [`write_through`](Self::write_through), for several ranges of files, `(to, from)` each,
    /// no two of which touch the same block. The order is unspecified.
    #[track_caller]
    fn write_all_through(&self, site: Site, pieces: &[(u64, &[u8])]) {
        for (at, data) in pieces {
            self.write_through(site, *at, data);
        }
    }

    /// Reserves at least `bytes` of addresses in which blocks of this memory can be mapped side by
    /// side; `None` if none are left. A window is dropped before its memory.
    fn window(&self, bytes: u64) -> Option<Window> {
        let _ = bytes;
        None
    }

    /// Maps the whole blocks `[from, from + len)` of this memory at `at` of a window, in place of
    /// what was there. A window of a read-only pool shows the bytes of its file, not what was
    /// stored since.
    ///
    /// # Errors
    /// Fails outside the window or the memory, or on an error of the operating system. The window
    /// is then unusable.
    fn lay(&self, window: &Window, at: u64, from: u64, len: u64) -> io::Result<()> {
        let _ = (window, at, from, len);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Copies out bytes of a window of this memory; zeros where nothing was mapped.
    fn read_window(&self, window: &Window, at: u64, out: &mut [u8]) {
        let _ = (window, at);
        out.fill(0);
    }

    /// The bytes `[at, at + len)` in place; `None` if this memory cannot lend them, now or ever.
    /// Bytes that are lost meanwhile become zeros, which [`Memory::condition`] reports.
    ///
    /// # Safety
    /// No thread stores to these bytes while the slice lives; only their loss may change them.
    unsafe fn in_place(&self, at: u64, len: u64) -> Option<&[u8]> {
        let _ = (at, len);
        None
    }

    /// As [`Self::in_place`], for bytes of a window.
    ///
    /// # Safety
    /// As for [`Self::in_place`], and nothing else is mapped there.
    unsafe fn in_window<'w>(&self, window: &'w Window, at: u64, len: u64) -> Option<&'w [u8]> {
        let _ = (window, at, len);
        None
    }
}

/// The two memories of an attached pool.
pub trait Memories: Send + Sync + 'static {
    /// Persistent bytes.
    type Pool: Persistent;
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
