//! Windows: addresses at which runs of a pool's blocks lie side by side, in any order, so that the
//! processor's address translation does what a search of software did before.
//!
//! A window is a range of addresses. All of it can be read at any time: what nothing was laid at
//! reads as zeros. Blocks are laid into it with [`Persistent::lay`](crate::Persistent::lay) and
//! stay until the window is cleared or dropped; they show the same bytes as the pool does, because
//! both are mappings of the same pages. Whose bytes they are is for the caller to know.
//!
//! A page of a window that cannot be had is a loss of the pool: it reads as zeros, and the pool's
//! [`condition`](crate::Memory::condition) has changed before anybody can meet them. Which bytes
//! are lost is found out by reading them from the pool.
//!
//! The kernel bounds how many differently mapped areas a process may have
//! (`vm.max_map_count`). Windows take at most three quarters of that, in all of the process.

use crate::fault::{self, Slot};
use crate::isa::Isa;
use crate::mapping::LARGE_PAGE_BYTES;
use crate::memory::BLOCK_BYTES;
use crate::reserved::Reserved;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Areas that the kernel allows where it does not say.
const AREAS_BY_DEFAULT: u64 = 65_530;

/// Addresses of blocks side by side.
pub struct Window {
    bytes: u64,
    /// Areas charged to this window.
    areas: AtomicU64,
    backing: Backing,
}

enum Backing {
    Mapped(Mapped),
    /// Of a simulated pool: the pool offset of each block plus one; 0: nothing was laid there.
    Simulated(Box<[AtomicU64]>),
}

/// Addresses of our own, readable from first to last until dropped.
struct Mapped {
    base: *mut u8,
    bytes: usize,
    isa: Isa,
    slot: &'static Slot,
    /// A change failed: nothing is known about the addresses but that they were ours.
    broken: AtomicBool,
}

// SAFETY: the bytes are only read, by code that the compiler cannot see into; what is mapped where
// is changed by system calls alone, which may run at the same time.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

/// Areas that are left to windows. Whoever comes first asks how many there are, and waits for
/// nobody who does the same.
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
    /// A window of a mapped pool, of at least `bytes`; `None` if there are no addresses left.
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

    /// Sets areas aside before as many runs are laid. `false`: the process has too many already.
    /// They come back when the window is cleared or dropped.
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
    /// What the operating system said; the window is then of no further use.
    pub fn clear(&self) -> io::Result<()> {
        match &self.backing {
            Backing::Mapped(mapped) => {
                mapped.clear()?;
                // All of it is one area again.
                let taken = self.areas.swap(1, Ordering::Relaxed);
                areas_left().fetch_add(taken - 1, Ordering::Relaxed);
            }
            Backing::Simulated(blocks) => {
                blocks.iter().for_each(|at| at.store(0, Ordering::Relaxed))
            }
        }
        Ok(())
    }

    /// Lays the bytes at `from` of `fd` at `at`.
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

    /// Remembers that the bytes at `from` of a simulated pool lie at `at`.
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

    /// Where the block at `at` of a simulated window lies in the pool.
    pub(crate) fn simulated_at(&self, at: u64) -> Option<u64> {
        let Backing::Simulated(blocks) = &self.backing else {
            return None;
        };
        let block = blocks.get((at / BLOCK_BYTES) as usize)?;
        block.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Has the kernel fill in the translations of `[at, at + len)` now, so that no read waits for
    /// one. If it cannot, reads do.
    pub fn fill_in(&self, at: u64, len: u64) {
        if let Backing::Mapped(mapped) = &self.backing
            && fits(at, len, self.bytes)
        {
            let start = mapped.base.wrapping_add(at as usize).cast();
            // SAFETY: populating changes no byte; the range lies in our own.
            let _ = unsafe { rustix::mm::madvise(start, len as usize, Advice::LinuxPopulateRead) };
        }
    }

    /// Copies out what a mapped window shows; `false`, with nothing copied, where it has no such
    /// bytes.
    #[inline]
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> bool {
        let Some((from, isa)) = self.run(at, out.len() as u64) else {
            return false;
        };
        // SAFETY: the run is readable, see `run`; `out` is exclusively ours and overlaps no mapping
        // that is only read.
        unsafe { isa.copy_out(from, out.as_mut_ptr(), out.len()) };
        true
    }

    /// The address of `[at, at + len)` of a mapped window, which can be read as long as the window
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
        // SAFETY: replaces, in one step as far as other threads see, a part of our own addresses by
        // other readable pages. These are only read, in ways that allow for changes of the bytes,
        // or by whoever vouches that nobody changes them.
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
            // SAFETY: our own range, all of it, and nobody reads it any more. Where a change failed
            // the kernel may have taken a part away and given it to somebody else: then the range
            // is left alone.
            let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
        }
    }
}
