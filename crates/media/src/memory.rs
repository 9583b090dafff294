//! The doors: what the file system may do to shared memory, and nothing else.
//!
//! Two kinds of memory are addressed by byte offsets and never by pointers: the *pool* (persistent)
//! and the *arena* (shared, volatile). [`Memory`] is what both can do; [`Persistent`] adds what
//! makes stores survive. The engine is generic over both, so the code that ships is the code that
//! is recorded, scheduled and model-checked.
//!
//! Contract for every implementation:
//! * An access outside the memory never panics and never touches foreign bytes: loads give zeros,
//!   stores are dropped, comparisons (`bytes_equal`, `match_line`) find nothing, and
//!   [`Memory::damaged`] answers with the offset from then on. A compare-and-swap outside finds
//!   zero, so that loops retrying with the value found end.
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

/// Shared memory, addressed by byte offset. What changes it knows its caller's
/// [`Caller`](crate::Caller).
pub trait Memory: Send + Sync + 'static {
    /// Bytes of the memory.
    fn len(&self) -> u64;

    /// Whether the memory has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The offset of the first access that failed (out of bounds, or a poisoned line), if any did.
    fn damaged(&self) -> Option<u64>;

    /// 0 while no access failed. Changes in bits other than the lowest when bytes are lost, before
    /// anybody can meet the zeros that come in their place: whoever finds it as it was has met none
    /// that were lost meanwhile.
    #[inline(always)]
    fn condition(&self) -> u64 {
        u64::from(self.damaged().is_some())
    }

    /// The offset of the last access that lost bytes, if any did.
    fn last_lost(&self) -> u64 {
        0
    }

    /// Whether the process that calls may use the memory: it made it, rather than a process that it
    /// was forked off, and has not [done with it](Self::end). No system call is made for it.
    #[inline(always)]
    fn is_at_work(&self) -> bool {
        true
    }

    /// Whether the process that calls was forked off the one that made the memory.
    #[inline(always)]
    fn is_of_parent(&self) -> bool {
        false
    }

    /// Says that nobody is to use the memory any more, though it is there until it is dropped.
    /// Sequentially consistent.
    fn end(&self) {}

    /// From now on every access to lost bytes is counted for its thread, see
    /// [`faults`](crate::faults). Accesses outside the memory are in any case.
    fn watch(&self) {}

    /// Loads the cell at `at`.
    fn load(&self, at: u64, order: Ordering) -> u64;

    /// Stores `value` into the cell at `at`.
    #[track_caller]
    fn store(&self, at: u64, value: u64, order: Ordering);

    /// Stores `new` if the cell holds `current`; gives what the cell held.
    ///
    /// # Errors
    /// The value found, if it was another.
    #[track_caller]
    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64>;

    /// Adds to the cell, wrapping; gives the value before. Sequentially consistent.
    #[track_caller]
    fn fetch_add(&self, at: u64, value: u64) -> u64;

    /// Sets bits of the cell; gives the value before. Sequentially consistent.
    #[track_caller]
    fn fetch_or(&self, at: u64, bits: u64) -> u64;

    /// Keeps only `bits` of the cell; gives the value before. Sequentially consistent.
    #[track_caller]
    fn fetch_and(&self, at: u64, bits: u64) -> u64;

    /// Raises the cell to `value` if it is lower (unsigned); gives the value before.
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

    /// Compares the eight cells of the line at `at` (64-byte aligned): bit `i` of the answer says
    /// whether `cell[i] & mask == want`.
    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8;

    /// The eight cells of the line at `at` (64-byte aligned), each loaded atomically.
    fn load_line(&self, at: u64) -> [u64; 8];

    /// Asks the processor to bring the line of `at` near.
    fn prefetch(&self, at: u64);

    /// Drops the lines that `[at, at + len)` touches from the processor's caches, those that were
    /// changed after writing them back: for experiments that begin with cold caches. Counts as no
    /// flush, and promises nothing.
    fn evict(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Waits a little for a short step of another thread; `tries` is how often the caller has
    /// waited for it already. Model checkers let another thread run.
    fn relax(&self, tries: u32) {
        if tries > 100 {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Waits as long as the low half of the cell is that of `seen`, but no longer than `limit`, and
    /// perhaps less: whoever waits looks again. For what takes longer than [`relax`](Self::relax)
    /// is meant for; mapped memory sleeps, others let another thread run.
    fn wait(&self, at: u64, seen: u64, limit: Duration) {
        let _ = (at, seen, limit);
        self.relax(u32::MAX);
    }

    /// Ends the waiting of everybody who waits for the cell, which was changed before.
    fn wake(&self, at: u64) {
        let _ = at;
    }

    /// Lets no access of this thread, to any memory, pass this point in either direction.
    fn barrier(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Lets no later access of this thread, to any memory, come before an earlier load.
    fn load_barrier(&self) {
        std::sync::atomic::fence(Ordering::Acquire);
    }

    /// Whether every successful compare-and-swap is a [`barrier`](Self::barrier) by itself.
    fn swaps_are_barriers(&self) -> bool {
        cfg!(target_arch = "x86_64")
    }
}

/// Memory whose stores survive a power cut once flushed and fenced. Every step says which
/// [`Site`] of the source it is.
pub trait Persistent: Memory {
    /// Starts writing back every line that `[at, at + len)` touches.
    #[track_caller]
    fn flush(&self, site: Site, at: u64, len: u64);

    /// Waits until everything flushed or written through by this thread is durable.
    #[track_caller]
    fn fence(&self, site: Site);

    /// Says that this thread's next store to the cell at `at` must not reach the medium before what
    /// `cells` hold now. In one line it does not, because a line's stores persist in program order;
    /// what lies in other lines the caller has made durable. So nothing is done: simulated pools
    /// write it into their logs, for those who turn orders round to see whether anybody would miss
    /// them.
    #[inline(always)]
    #[track_caller]
    fn behind(&self, site: Site, at: u64, cells: &[u64]) {
        let _ = (site, at, cells);
    }

    /// Says that the bytes `[at, at + len)` of a file, which was given up, may be overwritten from
    /// here on, because no power cut brings back what leads to them. So nothing is done: disks of
    /// simulations write it into their logs, for those who overwrite them earlier to see whether
    /// anybody would notice.
    #[inline(always)]
    #[track_caller]
    fn release(&self, site: Site, at: u64, len: u64) {
        let _ = (site, at, len);
    }

    /// Stores `value` into the cell at `at` past the cache (a non-temporal store): durable at the
    /// next fence. Faster than a store and a flush for a word that is not read again soon. Other
    /// threads see it after that fence or a locked instruction at the latest, and maybe before
    /// stores that precede it.
    #[track_caller]
    fn store_through(&self, site: Site, at: u64, value: u64) {
        self.store(at, value, Ordering::Release);
        self.flush(site, at, 8);
    }

    /// Copies bytes in past the cache (non-temporal stores): durable at the next fence.
    /// Partial lines at either end are stored and flushed.
    #[track_caller]
    fn write_through(&self, site: Site, at: u64, data: &[u8]);

    /// Copies `data` past the cache, as [`write_through`](Self::write_through), over what is
    /// nobody's. If it was nobody's at the last commit, what it holds need not be kept: where that
    /// commit is gone back to, it holds `data`, or any part of it, and nothing leads there. What is
    /// stored there later is kept from as anything else.
    #[track_caller]
    fn write_fresh(&self, site: Site, at: u64, data: &[u8]) {
        self.write_through(site, at, data);
    }

    /// Zeroes bytes past the cache: durable at the next fence.
    #[track_caller]
    fn zero_through(&self, site: Site, at: u64, len: u64);

    /// Makes everything fenced so far survive what the medium can survive at all (a file's
    /// `fdatasync`; nothing to do on persistent memory).
    ///
    /// # Errors
    /// What the operating system said.
    fn sync(&self) -> io::Result<()>;

    /// Lets others open what lies under this. The caller has [done with it](Memory::end), and
    /// everybody who used it, too.
    fn unlock(&self) {}

    /// Bytes of the pool itself: those behind them, if there are any, lie on an external data
    /// device.
    fn own_bytes(&self) -> u64 {
        self.len()
    }

    /// Gives the block of 4 KiB at `at`, which cannot be read, zeros in place of what was there,
    /// durably, so that it can be used again; where pages are longer, the whole page. Nobody else
    /// may use the memory meanwhile.
    ///
    /// # Errors
    /// The medium cannot, or what the operating system said: the block is as lost as it was.
    fn renew(&self, at: u64) -> io::Result<()> {
        let _ = at;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// From now on the image is memory of its own, zero at first, whose stores are noted; blocks of
    /// files are written by calls, and [`disk`](Self::disk) reaches all that lies under this.
    /// Nobody else uses the pool meanwhile. With a key, the memory is such that it outlives this
    /// process, and [`shared_image`](Self::shared_image) gives it a name; of a pool that is only
    /// read it never is.
    ///
    /// # Errors
    /// The pool cannot be split so, there is no such memory, or what the operating system said.
    /// Nothing has changed.
    fn begin_image(&self, split: Split, shared: Option<&ImageKey<'_>>) -> Result<(), MediaError> {
        let _ = (split, shared);
        Err(MediaError::NoImage)
    }

    /// From now on blocks of files are written by calls, and [`disk`](Self::disk) reaches them; and
    /// once a transaction has begun, what pieces of the metadata hold is kept by `undo` before
    /// the transaction first stores to them. Nobody else uses the pool meanwhile.
    ///
    /// # Errors
    /// The pool cannot be split so.
    fn begin_transactions(
        &self,
        split: Split,
        undo: Arc<dyn UndoWriter>,
    ) -> Result<(), MediaError> {
        let _ = (split, undo);
        Err(MediaError::NoTransactions)
    }

    /// A transaction begins, with a higher number than all before. Nobody stores meanwhile.
    fn begin_transaction(&self, number: u64) {
        let _ = number;
    }

    /// Says that this thread is about to store to these places, `(at, len)` each. Where it is kept
    /// what they hold before, that is done for all of them with one fence.
    fn about_to_store(&self, places: &[(u64, u64)]) {
        let _ = places;
    }

    /// A transaction is durable, and all before: power cuts take nothing of them back.
    fn transaction_committed(&self, number: u64) {
        let _ = number;
    }

    /// Says that `[at, at + len)` is nobody's any more: nothing leads to it.
    fn freed(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Says that `[at, at + len)`, which is nobody's, is about to be stored to, and that whatever
    /// leads to it does so because of later stores of the same transaction. If it was nobody's at
    /// the last commit, what it holds need not be kept.
    fn allocated(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Takes memory for `[at, at + len)` of the image, whole blocks, so that stores there do not
    /// fail for want of it.
    ///
    /// # Errors
    /// There is none left.
    fn prepare(&self, at: u64, len: u64) -> io::Result<()> {
        let _ = (at, len);
        Ok(())
    }

    /// The image, if it outlives this process.
    fn shared_image(&self) -> Option<Arc<dyn SharedImage>> {
        None
    }

    /// What an earlier process left, see [`left_image`](crate::left_image).
    ///
    /// # Errors
    /// As there.
    fn left_image(
        &self,
        key: &ImageKey<'_>,
        attach: Option<Attach>,
        last: u64,
    ) -> Result<LeftImage, MediaError> {
        let _ = (key, attach, last);
        Ok(LeftImage::Nothing)
    }

    /// Takes the name of such an image away, which no log names any more.
    fn forget_image(&self, key: &ImageKey<'_>) {
        let _ = key;
    }

    /// What lies under the image, once that has begun: home, log and blocks of files, at the
    /// offsets that they have in the pool. Once transactions have begun, blocks of files.
    fn disk(&self) -> Option<&dyn Disk> {
        None
    }

    /// Calls `each` with the offset of every line of the image that was stored to since the last
    /// cut, ascending; gives the blocks of files that were written since. Nobody stores meanwhile.
    fn cut(&self, each: &mut dyn FnMut(u64)) -> Written {
        let _ = each;
        Written::Few(Vec::new())
    }

    /// What the bytes lie on.
    fn kind(&self) -> MediaKind;

    /// Whether so many bytes of a file, side by side, are read by a call, as of a disk, of which
    /// the kernel then reads ahead: the more at once the better, and better than through a
    /// [`Window`].
    fn pays_by_call(&self, bytes: usize) -> bool {
        let _ = bytes;
        false
    }

    /// Whether the page of `at` is in memory, as far as can be told; else whoever reads it waits
    /// for a disk.
    fn is_in_memory(&self, at: u64) -> bool {
        let _ = at;
        true
    }

    /// Whether blocks of files are read from a disk one by one, as they are touched: around them
    /// lie those of others. Who is going to read more says so ([`will_need`](Self::will_need)).
    fn reads_singly(&self) -> bool {
        false
    }

    /// Has the disk begin with these bytes of files, if blocks are read one by one and the first of
    /// these is not in memory.
    fn will_need(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Copies bytes of files out of several places of the pool, `(from, to)` each: where [that
    /// pays](Self::pays_by_call), all that are to be had of a disk are asked for at once.
    fn read_all(&self, pieces: &mut [(u64, &mut [u8])]) {
        for (at, out) in pieces {
            self.read(*at, out);
        }
    }

    /// As [`write_through`](Self::write_through), bytes of files to several places of the pool,
    /// `(to, from)` each, of which no two touch one block. In whatever order.
    #[track_caller]
    fn write_all_through(&self, site: Site, pieces: &[(u64, &[u8])]) {
        for (at, data) in pieces {
            self.write_through(site, *at, data);
        }
    }

    /// Addresses of at least `bytes`, to lay blocks of this memory side by side in; `None` if it
    /// has none. A window is dropped before its memory.
    fn window(&self, bytes: u64) -> Option<Window> {
        let _ = bytes;
        None
    }

    /// Lays the `len` bytes at `from` of this memory at `at` of a window: whole blocks. What was
    /// there is no longer. A read-only pool lays what its file holds, not what was stored since.
    ///
    /// # Errors
    /// Outside the window or the memory; what the operating system said. The window is then of no
    /// further use.
    fn lay(&self, window: &Window, at: u64, from: u64, len: u64) -> io::Result<()> {
        let _ = (window, at, from, len);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Copies out what a window of this memory shows; zeros where nothing was laid.
    fn read_window(&self, window: &Window, at: u64, out: &mut [u8]) {
        let _ = (window, at);
        out.fill(0);
    }

    /// The bytes `[at, at + len)` in place; `None` if this memory has none that can be lent, now or
    /// at all. Bytes that are lost meanwhile become zeros, as [`Memory::condition`] tells.
    ///
    /// # Safety
    /// Nobody stores to these bytes as long as the slice lives, but to lose them.
    unsafe fn in_place(&self, at: u64, len: u64) -> Option<&[u8]> {
        let _ = (at, len);
        None
    }

    /// The same of a window.
    ///
    /// # Safety
    /// As for [`Self::in_place`], and nothing else is laid there.
    unsafe fn in_window<'w>(&self, window: &'w Window, at: u64, len: u64) -> Option<&'w [u8]> {
        let _ = (window, at, len);
        None
    }
}

/// The two memories of one attached file system.
pub trait Memories: Send + Sync + 'static {
    /// Persistent bytes.
    type Pool: Persistent;
    /// Shared volatile bytes.
    type Arena: Memory;
}

/// What the bytes of a pool lie on, and therefore what survives what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// Persistent memory mapped with `MAP_SYNC`, or a device-DAX node.
    Dax,
    /// An ordinary file through the page cache.
    File,
    /// Memory that a log in an ordinary file makes durable.
    Logged,
    /// Anonymous memory or a tmpfs file: gone at reboot.
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
