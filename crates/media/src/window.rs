//! Windows: ranges of addresses in which blocks of a pool are mapped side by side, in any order, so
//! that the processor's address translation replaces a search in software.
//!
//! All of a window can be read at any time: unmapped parts read as zeros.
//! [`FileBytes::lay`](crate::FileBytes::lay) maps blocks into it; they stay until the window is
//! cleared or dropped. They show the same bytes as the pool, because both map the same pages. The
//! caller keeps track of which blocks they are.
//!
//! A page of a window that cannot be read is a loss of the pool: it reads as zeros, and the pool's
//! [`condition`](crate::Memory::condition) changes before any thread can read them. Reading the
//! same bytes from the pool shows which ones are lost.
//!
//! The kernel limits how many separately mapped areas a process may have (`vm.max_map_count`). All
//! windows of the process together take at most three quarters of them.

use crate::fault::{self, Slot};
use crate::isa::Isa;
use crate::mapping::LARGE_PAGE_BYTES;
use crate::memory::BLOCK_BYTES;
use crate::reserved::Reserved;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The kernel's default limit of areas, if it reports none.
const AREAS_BY_DEFAULT: u64 = 65_530;

/// Addresses in which blocks lie side by side.
pub struct Window {
    bytes: u64,
    /// Areas charged to this window.
    areas: AtomicU64,
    backing: Backing,
}

enum Backing {
    Mapped(Mapped),
    /// In a simulated pool: the pool offset of each block plus one; 0: nothing is mapped there.
    Simulated(Box<[AtomicU64]>),
}

/// A reserved range of addresses, readable from first to last until dropped.
struct Mapped {
    base: *mut u8,
    bytes: usize,
    isa: Isa,
    slot: &'static Slot,
    /// A change failed: the state of the addresses is unknown, except that they were ours.
    broken: AtomicBool,
}

// SAFETY: the bytes are only read, by code that the compiler cannot see into; only system calls
// change the mappings, and these may run concurrently.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

/// Areas still available to windows. The first caller asks the kernel for the limit; concurrent
/// callers wait for no other.
fn areas_left() -> &'static AtomicU64 {
    const UNASKED: u64 = u64::MAX;
    static LEFT: AtomicU64 = AtomicU64::new(UNASKED);
    if LEFT.load(Ordering::Relaxed) == UNASKED {
        let told = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let most = told.and_then(|text| text.trim().parse::<u64>().ok());
        let most = most.unwrap_or(AREAS_BY_DEFAULT) / 4 * 3;
        let _or_another_has =
            LEFT.compare_exchange(UNASKED, most, Ordering::Relaxed, Ordering::Relaxed);
    }
    &LEFT
}

/// Whether `at` and `len` are whole blocks inside `bytes`.
fn fits(at: u64, len: u64, bytes: u64) -> bool {
    at.is_multiple_of(BLOCK_BYTES)
        && len.is_multiple_of(BLOCK_BYTES)
        && len > 0
        && at < bytes
        && len <= bytes - at
}

impl Window {
    /// A window of at least `bytes` over a mapped pool; `None` if no addresses are left.
    pub(crate) fn mapped(bytes: u64, isa: Isa, pool: &'static Slot) -> Option<Self> {
        let bytes = usize::try_from(bytes)
            .ok()?
            .checked_next_multiple_of(LARGE_PAGE_BYTES)?;
        let window = Self {
            bytes: bytes as u64,
            areas: AtomicU64::new(0),
            backing: Backing::Mapped(Mapped::new(bytes, isa, pool)?),
        };
        window.take_areas(1).then_some(window)
    }

    /// A window of a simulated pool.
    pub(crate) fn simulated(bytes: u64) -> Self {
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        Self {
            bytes: blocks * BLOCK_BYTES,
            areas: AtomicU64::new(0),
            backing: Backing::Simulated((0..blocks).map(|_| AtomicU64::new(0)).collect()),
        }
    }

    /// Bytes of the window.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether the window has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Reserves areas before as many runs are mapped; `false` if the process already has too many.
    /// They are returned when the window is cleared or dropped.
    pub fn take_areas(&self, areas: u64) -> bool {
        if let Backing::Simulated(_) = self.backing {
            return true;
        }
        let taken = areas_left().fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(areas)
        });
        if taken.is_ok() {
            self.areas.fetch_add(areas, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Makes all of the window read as zeros.
    ///
    /// # Errors
    /// Returns the error of the operating system; the window is then unusable.
    pub fn clear(&self) -> io::Result<()> {
        match &self.backing {
            Backing::Mapped(mapped) => {
                mapped.clear()?;
                // The whole window is a single area again.
                let taken = self.areas.swap(1, Ordering::Relaxed);
                areas_left().fetch_add(taken - 1, Ordering::Relaxed);
            }
            Backing::Simulated(blocks) => {
                blocks.iter().for_each(|at| at.store(0, Ordering::Relaxed))
            }
        }
        Ok(())
    }

    /// Maps the bytes at `from` of `fd` at `at`.
    pub(crate) fn lay_file(
        &self,
        fd: BorrowedFd<'_>,
        at: u64,
        from: u64,
        len: u64,
    ) -> io::Result<()> {
        match &self.backing {
            Backing::Mapped(mapped) if fits(at, len, self.bytes) => mapped.lay(fd, at, from, len),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Records that the bytes at `from` of a simulated pool are mapped at `at`.
    pub(crate) fn lay_simulated(&self, at: u64, from: u64, len: u64) -> io::Result<()> {
        let Backing::Simulated(blocks) = &self.backing else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if !fits(at, len, self.bytes) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let first = (at / BLOCK_BYTES) as usize;
        for (i, block) in blocks[first..][..(len / BLOCK_BYTES) as usize]
            .iter()
            .enumerate()
        {
            block.store(from + i as u64 * BLOCK_BYTES + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The pool offset of the block at `at` of a simulated window.
    pub(crate) fn simulated_at(&self, at: u64) -> Option<u64> {
        let Backing::Simulated(blocks) = &self.backing else {
            return None;
        };
        let block = blocks.get((at / BLOCK_BYTES) as usize)?;
        block.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Makes the kernel fill in the translations of `[at, at + len)` now, so that no read waits for
    /// one. If it cannot, reads do it.
    pub fn fill_in(&self, at: u64, len: u64) {
        if let Backing::Mapped(mapped) = &self.backing
            && fits(at, len, self.bytes)
        {
            let start = mapped.base.wrapping_add(at as usize).cast();
            // SAFETY: populating changes no byte; the range lies in our own addresses.
            let _ = unsafe { rustix::mm::madvise(start, len as usize, Advice::LinuxPopulateRead) };
        }
    }

    /// Copies out bytes of a mapped window; returns `false` and copies nothing if it has no such
    /// bytes.
    #[inline]
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> bool {
        let Some((from, isa)) = self.run(at, out.len() as u64) else {
            return false;
        };
        // SAFETY: the range is readable, see `run`; `out` is exclusively ours and overlaps no
        // mapping that is only read.
        unsafe { isa.copy_out(from, out.as_mut_ptr(), out.len()) };
        true
    }

    /// The address of `[at, at + len)` of a mapped window, which can be read while the window
    /// lives.
    #[inline]
    pub(crate) fn run(&self, at: u64, len: u64) -> Option<(*const u8, Isa)> {
        match &self.backing {
            Backing::Mapped(mapped) if at <= self.bytes && len <= self.bytes - at => {
                Some((mapped.base.wrapping_add(at as usize), mapped.isa))
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let areas = self.areas.load(Ordering::Relaxed);
        write!(f, "Window({} bytes, {areas} areas)", self.bytes)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        areas_left().fetch_add(*self.areas.get_mut(), Ordering::Relaxed);
    }
}

impl Mapped {
    fn new(bytes: usize, isa: Isa, pool: &'static Slot) -> Option<Self> {
        let backing = Reserved::new(bytes, LARGE_PAGE_BYTES, ProtFlags::READ).ok()?;
        let page_bytes = rustix::param::page_size();
        let slot = fault::register_window(backing.start(), bytes, page_bytes, pool).ok()?;
        Some(Self {
            base: backing.into_base().cast(),
            bytes,
            isa,
            slot,
            broken: AtomicBool::new(false),
        })
    }

    fn lay(&self, fd: BorrowedFd<'_>, at: u64, from: u64, len: u64) -> io::Result<()> {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let start = self.base.wrapping_add(at as usize).cast();
        // SAFETY: replaces a part of our own addresses by other readable pages, in one step as
        // other threads see it. These pages are only read, either in ways that allow for changes of
        // the bytes, or by callers who guarantee that there are none.
        let laid =
            unsafe { rustix::mm::mmap(start, len as usize, ProtFlags::READ, flags, fd, from) };
        self.outcome(laid.map(drop))
    }

    fn clear(&self) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as in `lay`, for all of our addresses.
        let cleared = unsafe {
            rustix::mm::mmap_anonymous(self.base.cast(), self.bytes, ProtFlags::READ, flags)
        };
        self.outcome(cleared.map(drop))
    }

    fn outcome(&self, done: rustix::io::Result<()>) -> io::Result<()> {
        if done.is_err() {
            self.broken.store(true, Ordering::Relaxed);
        }
        Ok(done?)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.slot.release();
        if !*self.broken.get_mut() {
            // SAFETY: our own range, all of it, and no code reads it any more. If a change failed,
            // the kernel may have unmapped a part and given it to other code: then the range is
            // left alone.
            let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
        }
    }
}
