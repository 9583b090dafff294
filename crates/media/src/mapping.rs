//! A mapped range of bytes; every access is checked against its bounds.

use crate::fault::{self, Slot};
use crate::heap::{outside, zeroed_cells};
use crate::isa::Isa;
use crate::logged::write_all;
use crate::mapped::fdatasync;
use crate::memory::LINE_BYTES;
use crate::reserved::Reserved;
use crate::{MediaError, count};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of a cell.
const CELL: u64 = 8;

/// Bytes of a large page, on every architecture with 4 KiB pages that Linux supports.
pub(crate) const LARGE_PAGE_BYTES: usize = 2 << 20;
/// The advice `MADV_COLLAPSE` of the kernel (`linux/mman.h`), which not every C library names.
const MADV_COLLAPSE: libc::c_int = 25;

/// Why a mapping failed.
pub(crate) enum MappingError {
    /// The system call failed.
    System(io::Error),
    /// The table of mappings is full.
    Full(MediaError),
}

/// A range of a file.
pub(crate) struct Part<'f> {
    pub(crate) fd: BorrowedFd<'f>,
    /// Its offset in the file.
    pub(crate) from: u64,
    pub(crate) len: u64,
    pub(crate) flags: MapFlags,
}

/// Shared bytes at some address, until dropped.
pub(crate) struct Mapping {
    /// Start of `len` mapped, readable and writable bytes; page-aligned.
    base: *mut u8,
    /// Bytes that may be accessed; they only become more.
    len: AtomicU64,
    /// Bytes that may be accessed without a closer check: all of them, or none once the mapping is
    /// watched.
    unwatched: AtomicU64,
    /// Bytes of a page of `lost`.
    page_bytes: usize,
    /// A bit for each page, set when it is lost.
    lost: Box<[AtomicU64]>,
    /// The instructions to use.
    pub(crate) isa: Isa,
    /// Bytes of addresses: those of the mapped pages, and those kept for [`Self::grow`].
    reserved_bytes: usize,
    /// Where damage is recorded.
    slot: &'static Slot,
}

// SAFETY: the bytes are accessed through atomics or code the compiler cannot see into, from any
// thread; everything else is immutable until the drop, which has the mapping to itself.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd`, readable and writable.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        len: u64,
        flags: MapFlags,
        page_bytes: usize,
    ) -> Result<Self, MappingError> {
        let whole = Part {
            fd,
            from: 0,
            len,
            flags,
        };
        Self::joined(&[whole], page_bytes, 0)
    }

    /// Maps ranges of files one behind the other, readable and writable. All but the last are whole
    /// pages. Keeps `spare_bytes` of addresses behind them for [`Self::grow`].
    pub(crate) fn joined(
        parts: &[Part<'_>],
        page_bytes: usize,
        spare_bytes: u64,
    ) -> Result<Self, MappingError> {
        let pages = |len: u64| {
            let len = usize::try_from(len).ok();
            len.and_then(|len| len.checked_next_multiple_of(page_bytes))
                .ok_or_else(|| MappingError::System(io::ErrorKind::OutOfMemory.into()))
        };
        let len = parts
            .iter()
            .map(|part| part.len)
            .fold(0, u64::saturating_add);
        let mapped_bytes = pages(len)?;
        let reserved_bytes = pages(len.saturating_add(spare_bytes))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let align = page_bytes.max(LARGE_PAGE_BYTES);
        let place = Reserved::new(reserved_bytes, align, ProtFlags::empty())
            .map_err(|errno| MappingError::System(errno.into()))?;
        let mut at = 0;
        for part in parts {
            let bytes = pages(part.len)?;
            let is_last = at + bytes == mapped_bytes;
            if at + bytes > mapped_bytes || (!is_last && part.len != bytes as u64) {
                return Err(MappingError::System(io::ErrorKind::InvalidInput.into()));
            }
            // SAFETY: replaces a part of our own reservation, which no other code has seen; the
            // check above ensures that it does not reach beyond. Other processes may change the
            // bytes, which are only accessed in ways that allow for that.
            unsafe {
                let start = place.base.cast::<u8>().add(at).cast();
                let flags = part.flags | MapFlags::FIXED;
                rustix::mm::mmap(start, bytes, protection, flags, part.fd, part.from)
            }
            .map_err(|errno| MappingError::System(errno.into()))?;
            at += bytes;
        }
        Self::registered(place.into_base(), len, reserved_bytes, page_bytes)
    }

    /// Maps a further range of a file behind the mapped bytes, which are whole pages. The caller
    /// excludes other growth.
    pub(crate) fn grow(&self, part: &Part<'_>) -> io::Result<()> {
        let len = self.len();
        let fits = part.len <= self.spare_bytes() && len.is_multiple_of(self.page_bytes as u64);
        if !fits {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = part.flags | MapFlags::FIXED;
        // SAFETY: replaces a part of our own reservation, which nothing was mapped in and nobody
        // has accessed. Other processes may change the bytes, which are only accessed in ways that
        // allow for that.
        unsafe {
            let start = self.base.add(len as usize).cast();
            rustix::mm::mmap(
                start,
                part.len as usize,
                protection,
                flags,
                part.fd,
                part.from,
            )?;
        }
        self.len.store(len + part.len, Ordering::Release);
        // A watched mapping stays watched.
        let (old, new) = (len, len + part.len);
        let _ = self
            .unwatched
            .compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes that [`Self::grow`] can still map.
    pub(crate) fn spare_bytes(&self) -> u64 {
        (self.reserved_bytes - self.mapped_bytes()) as u64
    }

    /// Bytes of the mapped pages.
    fn mapped_bytes(&self) -> usize {
        (self.len() as usize).next_multiple_of(self.page_bytes)
    }

    /// Maps `len` zero bytes that belong to this process alone, on large pages if the kernel has
    /// them.
    pub(crate) fn private(len: u64) -> Result<Self, MappingError> {
        let page_bytes = rustix::param::page_size();
        let mapped_bytes = usize::try_from(len)
            .ok()
            .and_then(|len| len.checked_next_multiple_of(page_bytes))
            .ok_or_else(|| MappingError::System(io::ErrorKind::OutOfMemory.into()))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses a free address range, so no existing memory is touched.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped_bytes, protection, flags)
        }
        .map_err(|errno| MappingError::System(errno.into()))?;
        let mapping = Self::registered(base, len, mapped_bytes, page_bytes)?;
        mapping.prefer_large_pages();
        Ok(mapping)
    }

    fn registered(
        base: *mut std::ffi::c_void,
        len: u64,
        reserved_bytes: usize,
        page_bytes: usize,
    ) -> Result<Self, MappingError> {
        let words = (reserved_bytes / page_bytes).div_ceil(64);
        let lost = zeroed_cells(words);
        match fault::register(base as usize, reserved_bytes, page_bytes, &lost) {
            Ok(slot) => Ok(Self {
                base: base.cast(),
                len: AtomicU64::new(len),
                unwatched: AtomicU64::new(len),
                page_bytes,
                lost,
                isa: Isa::chosen(),
                reserved_bytes,
                slot,
            }),
            Err(full) => {
                // SAFETY: just mapped, and no other code has seen the address.
                let _ = unsafe { rustix::mm::munmap(base, reserved_bytes) };
                Err(MappingError::Full(full))
            }
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    pub(crate) fn damaged(&self) -> Option<u64> {
        self.slot.damaged()
    }

    #[inline(always)]
    pub(crate) fn condition(&self) -> u64 {
        self.slot.condition()
    }

    pub(crate) fn last_lost(&self) -> u64 {
        self.slot.last_lost()
    }

    /// The granularity of the mapping: bytes of a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Where damage is recorded.
    pub(crate) fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// The bytes `[at, at + len)` in place. Returns `None` and records it if any of them is
    /// outside; returns `None` if the mapping is watched.
    ///
    /// # Safety
    /// No thread stores to these bytes while the slice lives.
    pub(crate) unsafe fn in_place(&self, at: u64, len: u64) -> Option<&[u8]> {
        if self.unwatched.load(Ordering::Relaxed) != self.len() {
            return None;
        }
        let start = self.run(at, len)?;
        // SAFETY: the range is mapped while `self` lives; the caller guarantees that it does not
        // change.
        Some(unsafe { std::slice::from_raw_parts(start, len as usize) })
    }

    /// Records that the page of `at` could not be read by another path than this mapping: its
    /// reader gets zeros. The access is counted for the thread.
    #[cold]
    pub(crate) fn lose(&self, at: u64) {
        let page = at as usize / self.page_bytes;
        let bit = 1 << (page % 64);
        if let Some(word) = self.lost.get(page / 64)
            && word.fetch_or(bit, Ordering::SeqCst) & bit == 0
        {
            self.slot.record_lost_page(at);
        }
        fault::note(at);
    }

    /// Counts every later access to lost pages for its thread.
    #[cold]
    pub(crate) fn watch(&self) {
        self.unwatched.store(0, Ordering::Relaxed);
    }

    /// Whether `[at, at + len)` is inside; records it if not, and counts an access to lost pages in
    /// it.
    #[cold]
    #[inline(never)]
    fn look_closer(&self, at: u64, len: u64) -> bool {
        if at > self.len() || len > self.len() - at {
            self.slot.record_outside(at);
            return false;
        }
        let page = |at: u64| at as usize / self.page_bytes;
        let is_lost = |page: usize| {
            let word = self.lost.get(page / 64);
            word.is_some_and(|word| word.load(Ordering::Relaxed) >> (page % 64) & 1 != 0)
        };
        if len > 0
            && let Some(lost) = (page(at)..=page(at + len - 1)).find(|&page| is_lost(page))
        {
            fault::note(at.max((lost * self.page_bytes) as u64));
        }
        true
    }

    /// Address and size for `madvise`.
    pub(crate) fn whole(&self) -> (*mut std::ffi::c_void, usize) {
        (self.base.cast(), self.mapped_bytes())
    }

    /// Removes the whole pages of a range from the page tables; the next access maps them again. No
    /// thread has stored to the range through this mapping.
    pub(crate) fn unload(&self, at: u64, len: u64) {
        let page = self.page_bytes as u64;
        let first = at.next_multiple_of(page);
        let end = at.saturating_add(len).min(self.len()) / page * page;
        if first < end {
            let (start, bytes) = (
                self.base.wrapping_add(first as usize),
                (end - first) as usize,
            );
            // SAFETY: the range lies in our mapping of a file. Whether its pages are in our page
            // tables or not, they are those of the file, since no thread has stored to one and made
            // it private: concurrent readers see no byte change.
            let _refusal_is_fine =
                unsafe { rustix::mm::madvise(start.cast(), bytes, Advice::LinuxDontNeed) };
        }
    }

    /// Disables read-ahead around pages from `at` on when they are touched.
    pub(crate) fn read_singly(&self, at: u64) {
        let from = at.min(self.len()) as usize / self.page_bytes * self.page_bytes;
        let (start, bytes) = (self.base.wrapping_add(from), self.mapped_bytes() - from);
        // SAFETY: changes no byte, only the kernel's read-ahead; the range lies in our mapping.
        let _refusal_is_fine = unsafe { rustix::mm::madvise(start.cast(), bytes, Advice::Random) };
    }

    /// Asks for large pages; the kernel may decline.
    pub(crate) fn prefer_large_pages(&self) {
        let (base, bytes) = self.whole();
        // SAFETY: changes no byte, only how the kernel backs them; the range is our mapping.
        let _refusal_is_fine = unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxHugepage) };
    }

    /// Moves a mapped file in memory to large pages, whatever the system's policy for such files: a
    /// random access then takes two thirds of the time. Pages that the file lacks are allocated.
    /// Stops after `len` bytes or where the kernel declines; the rest stays on small pages. Returns
    /// how many bytes are on large pages now.
    pub(crate) fn gather_large_pages(&self, page_bytes: usize, len: u64) -> u64 {
        let (base, bytes) = self.whole();
        let bytes = bytes.min(usize::try_from(len).unwrap_or(usize::MAX));
        let mut done = 0;
        for at in (0..bytes - bytes % LARGE_PAGE_BYTES).step_by(LARGE_PAGE_BYTES) {
            let chunk = base.wrapping_byte_add(at);
            // SAFETY: neither call changes a byte, and both stay inside our mapping. The first page
            // is faulted in because the kernel needs its page table before it collapses the pages.
            let gathered = unsafe {
                rustix::mm::madvise(chunk, page_bytes, Advice::LinuxPopulateWrite).is_ok()
                    && libc::madvise(chunk, LARGE_PAGE_BYTES, MADV_COLLAPSE) == 0
            };
            if !gathered {
                break;
            }
            done += LARGE_PAGE_BYTES as u64;
        }
        done
    }

    /// Replaces the page of `at` by an unreadable one.
    pub(crate) fn take_away(&self, at: u64) -> io::Result<()> {
        if self.run(at, 1).is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let nothing = rustix::fs::memfd_create("vellum-nothing", rustix::fs::MemfdFlags::CLOEXEC)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let start = at as usize / self.page_bytes * self.page_bytes;
        // SAFETY: a whole page of our own mapping, whose bytes are only accessed in ways that allow
        // for their loss. It is replaced by a page beyond the end of an empty file.
        unsafe {
            let page = self.base.add(start).cast();
            rustix::mm::mmap(
                page,
                self.page_bytes,
                protection,
                MapFlags::SHARED | MapFlags::FIXED,
                nothing,
                0,
            )?;
        }
        Ok(())
    }

    /// Replaces the first `len` bytes, whole pages, by other memory: that of `file` from the offset
    /// on, or zeroed memory of this process.
    pub(crate) fn replace(&self, len: u64, file: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()> {
        if len > self.len() || !len.is_multiple_of(self.page_bytes as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (base, bytes) = (self.base.cast(), len as usize);
        // SAFETY: whole pages of our own mapping, whose bytes are only accessed in ways that allow
        // for changes by others.
        unsafe {
            match file {
                Some((file, at)) => {
                    let flags = MapFlags::SHARED | MapFlags::FIXED;
                    rustix::mm::mmap(base, bytes, protection, flags, file, at)?;
                }
                None => {
                    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                    rustix::mm::mmap_anonymous(base, bytes, protection, flags)?;
                }
            }
            let _refusal_is_fine = rustix::mm::madvise(base, bytes, Advice::LinuxHugepage);
        }
        Ok(())
    }

    /// Writes zeros at `file_at` of the file, where the lost page of `at` lies, and maps it again
    /// with `flags`. When a bad range is written through the file, the file system relocates it or
    /// the device repairs it.
    pub(crate) fn renew(
        &self,
        (file, file_at): (BorrowedFd<'_>, u64),
        flags: MapFlags,
        at: u64,
    ) -> io::Result<()> {
        let number = at as usize / self.page_bytes;
        let bit = 1 << (number % 64);
        let word = self.lost.get(number / 64).filter(|_| at < self.len());
        let Some(word) = word.filter(|word| word.load(Ordering::SeqCst) & bit != 0) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let start = number * self.page_bytes;
        let file_start = file_at - file_at % self.page_bytes as u64;
        let zeros = vec![0; self.page_bytes.min(self.len() as usize - start)];
        write_all(file, file_start, &zeros)?;
        fdatasync(file)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a whole page of our own mapping, which the fault handler had replaced by a page
        // of zeros; its bytes are only accessed in ways that allow for changes by others. It is
        // replaced by the file's page that was mapped there first.
        unsafe {
            let page = self.base.add(start).cast();
            let flags = flags | MapFlags::FIXED;
            rustix::mm::mmap(page, self.page_bytes, protection, flags, file, file_start)?;
        }
        word.fetch_and(!bit, Ordering::SeqCst);
        Ok(())
    }

    /// The cell at `at`. Returns `None` and records it if the cell is outside or misaligned.
    #[inline(always)]
    fn cell(&self, at: u64) -> Option<&AtomicU64> {
        let unwatched = self.unwatched.load(Ordering::Relaxed) & !(CELL - 1);
        if at.is_multiple_of(CELL) && (at < unwatched || self.look_closer(at, CELL)) {
            // SAFETY: inside the mapping (a whole cell begins before the rounded end), aligned
            // because the base is page-aligned; only atomics and opaque code touch these bytes.
            return Some(unsafe { &*self.base.add(at as usize).cast::<AtomicU64>() });
        }
        self.slot.record_outside(at);
        None
    }

    /// The address of `[at, at + len)`. Returns `None` and records it if any of it is outside.
    #[inline(always)]
    fn run(&self, at: u64, len: u64) -> Option<*mut u8> {
        let unwatched = self.unwatched.load(Ordering::Relaxed);
        if at <= unwatched && len <= unwatched - at || self.look_closer(at, len) {
            // SAFETY: `at` is at most `len`, within the mapping or one past its end.
            return Some(unsafe { self.base.add(at as usize) });
        }
        None
    }

    /// The address of the line at `at`. Returns `None` and records it if the line is outside or
    /// misaligned.
    #[inline(always)]
    fn line(&self, at: u64) -> Option<*const u8> {
        let unwatched = self.unwatched.load(Ordering::Relaxed) & !(LINE_BYTES - 1);
        if at.is_multiple_of(LINE_BYTES) && (at < unwatched || self.look_closer(at, LINE_BYTES)) {
            // SAFETY: a whole line begins before the rounded end.
            return Some(unsafe { self.base.add(at as usize) });
        }
        self.slot.record_outside(at);
        None
    }

    /// `count` cells from `at` on. Returns `None` and records it if any of them is outside or
    /// misaligned.
    pub(crate) fn cells(&self, at: u64, count: usize) -> Option<&[AtomicU64]> {
        let first = self.cell(at)?;
        self.run(at, count as u64 * CELL)?;
        // SAFETY: the range is mapped while `self` lives and begins with an aligned cell; only
        // atomics and opaque code touch it.
        Some(unsafe { std::slice::from_raw_parts(first, count) })
    }

    /// The low half of the cell at `at`, as the kernel compares it.
    fn half(&self, at: u64) -> Option<&AtomicU32> {
        const LOW: usize = if cfg!(target_endian = "big") { 4 } else { 0 };
        let cell = self.cell(at)?;
        // SAFETY: four bytes within the cell, aligned, and valid as long as the cell. No code loads
        // or stores through this reference: only its address goes to the kernel, for which half of
        // a cell is as atomic as the whole.
        Some(unsafe { AtomicU32::from_ptr(cell.as_ptr().cast::<u8>().add(LOW).cast()) })
    }

    /// See [`crate::Memory::wait`].
    pub(crate) fn wait(&self, at: u64, seen: u64, limit: Duration) {
        if let (Some(half), Ok(limit)) = (self.half(at), Timespec::try_from(limit)) {
            // A change, a signal or the time limit ends the wait, and the caller checks the cell
            // again.
            let _ = futex::wait(half, futex::Flags::empty(), seen as u32, Some(&limit));
        }
    }

    /// See [`crate::Memory::wake`].
    pub(crate) fn wake(&self, at: u64) {
        if let Some(half) = self.half(at) {
            let _count_is_nothing_to_the_caller =
                futex::wake(half, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    #[inline(always)]
    pub(crate) fn load(&self, at: u64, order: Ordering) -> u64 {
        self.cell(at).map_or(0, |cell| cell.load(order))
    }

    #[inline(always)]
    pub(crate) fn store(&self, at: u64, value: u64, order: Ordering) {
        if let Some(cell) = self.cell(at) {
            cell.store(value, order);
        }
    }

    #[inline(always)]
    pub(crate) fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        match self.cell(at) {
            Some(cell) => cell.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst),
            None => outside(current),
        }
    }

    #[inline(always)]
    pub(crate) fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.cell(at)
            .map_or(0, |cell| cell.fetch_add(value, Ordering::SeqCst))
    }

    #[inline(always)]
    pub(crate) fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.cell(at)
            .map_or(0, |cell| cell.fetch_or(bits, Ordering::SeqCst))
    }

    #[inline(always)]
    pub(crate) fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        self.cell(at)
            .map_or(0, |cell| cell.fetch_and(bits, Ordering::SeqCst))
    }

    #[inline]
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) {
        match self.run(at, out.len() as u64) {
            // SAFETY: the range is mapped; `out` is exclusively ours and cannot overlap a mapping
            // that lends no references to its bytes.
            Some(from) => unsafe { self.isa.copy_out(from, out.as_mut_ptr(), out.len()) },
            None => out.fill(0),
        }
    }

    #[inline]
    pub(crate) fn write(&self, at: u64, data: &[u8]) {
        if let Some(to) = self.run(at, data.len() as u64) {
            // SAFETY: the range is mapped and writable; `data` cannot overlap it.
            unsafe { self.isa.copy_in(data.as_ptr(), to, data.len()) };
        }
    }

    pub(crate) fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        let Some(run) = self.run(at, expected.len() as u64) else {
            return false;
        };
        // SAFETY: the range is mapped for the length of `expected`.
        unsafe { crate::isa::bytes_equal(run, expected) }
    }

    #[inline(always)]
    pub(crate) fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        // SAFETY: `line` returns aligned, mapped lines only.
        self.line(at)
            .map_or(0, |line| unsafe { self.isa.match_line(line, mask, want) })
    }

    #[inline(always)]
    pub(crate) fn load_line(&self, at: u64) -> [u64; 8] {
        self.line(at).map_or([0; 8], |line| {
            let cells = line.cast::<AtomicU64>();
            // SAFETY: eight aligned cells of a mapped line.
            std::array::from_fn(|i| unsafe { (*cells.add(i)).load(Ordering::Acquire) })
        })
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, at: u64) {
        self.isa.prefetch(self.base.wrapping_add(at as usize));
    }

    /// See [`crate::Memory::evict`]. Pages that are not in memory have no lines in caches.
    pub(crate) fn evict(&self, at: u64, len: u64) {
        const PAGES: u64 = 512;
        let page = rustix::param::page_size() as u64;
        if len < page || self.run(at, len).is_none() {
            return self.evict_lines(at, len);
        }
        let end = at + len;
        for first in (at / page..end.div_ceil(page)).step_by(PAGES as usize) {
            let last = end.div_ceil(page).min(first + PAGES);
            let (start, bytes) = ((first * page) as usize, ((last - first) * page) as usize);
            let mut has = [1u8; PAGES as usize];
            // SAFETY: the pages lie in our mapping, which is whole pages, and the result has a byte
            // for each. If the kernel does not say, all count as present.
            let _ = unsafe {
                libc::mincore(
                    self.base.wrapping_add(start).cast(),
                    bytes,
                    has.as_mut_ptr(),
                )
            };
            for (number, _) in (first..last).zip(has).filter(|(_, has)| has & 1 != 0) {
                let (from, to) = (at.max(number * page), end.min((number + 1) * page));
                self.evict_lines(from, to - from);
            }
        }
    }

    fn evict_lines(&self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let Some(run) = self.run(at, len) else { return };
        let within = at % LINE_BYTES;
        let lines = (within + len).div_ceil(LINE_BYTES);
        // SAFETY: as for `flush`.
        unsafe {
            self.isa
                .evict_lines(run.sub(within as usize), lines as usize)
        };
    }

    #[inline(always)]
    pub(crate) fn flush(&self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let Some(run) = self.run(at, len) else { return };
        let within = at % LINE_BYTES;
        let lines = (within + len).div_ceil(LINE_BYTES);
        count::flushed(lines);
        // SAFETY: the base is page-aligned, so the line that holds `at` begins inside the mapping;
        // the last one lies in a mapped page.
        unsafe {
            self.isa
                .flush_lines(run.sub(within as usize), lines as usize)
        };
    }

    #[inline(always)]
    pub(crate) fn fence(&self) {
        count::fenced();
        self.isa.fence();
    }

    #[inline(always)]
    pub(crate) fn store_through(&self, at: u64, value: u64) {
        if let Some(cell) = self.cell(at) {
            // SAFETY: a whole, aligned cell of a mapped line.
            unsafe { self.isa.store_through(cell, value) };
            count::wrote_through(8, 1);
        }
    }

    #[inline]
    pub(crate) fn write_through(&self, at: u64, data: &[u8]) {
        let Some(to) = self.run(at, data.len() as u64) else {
            return;
        };
        let cut = Cut::new(at, data.len());
        let from = data.as_ptr();
        // SAFETY: the three parts make up the run and the data, one after the other; the middle
        // begins on a line.
        unsafe {
            if cut.head > 0 {
                self.isa.copy_in(from, to, cut.head);
                self.isa.flush_lines(line_of(to), 1);
            }
            self.isa
                .copy_through(from.add(cut.head), to.add(cut.head), cut.lines);
            if cut.tail > 0 {
                let done = cut.head + cut.lines * LINE_BYTES as usize;
                self.isa.copy_in(from.add(done), to.add(done), cut.tail);
                self.isa.flush_lines(to.add(done), 1);
            }
        }
        count::wrote_through(data.len() as u64, cut.touched());
    }

    pub(crate) fn zero_through(&self, at: u64, len: u64) {
        const ZEROS: [u8; LINE_BYTES as usize] = [0; LINE_BYTES as usize];
        let Some(to) = self.run(at, len) else { return };
        let cut = Cut::new(at, len as usize);
        let from = ZEROS.as_ptr();
        // SAFETY: as in `write_through`; head and tail are shorter than a line of zeros.
        unsafe {
            if cut.head > 0 {
                self.isa.copy_in(from, to, cut.head);
                self.isa.flush_lines(line_of(to), 1);
            }
            self.isa.zero_through(to.add(cut.head), cut.lines);
            if cut.tail > 0 {
                let done = cut.head + cut.lines * LINE_BYTES as usize;
                self.isa.copy_in(from, to.add(done), cut.tail);
                self.isa.flush_lines(to.add(done), 1);
            }
        }
        count::wrote_through(len, cut.touched());
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.slot.release();
        // SAFETY: this mapping's own range; no reference into it outlives a method call.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.reserved_bytes) };
    }
}

/// The start of the line that holds `address`.
fn line_of(address: *mut u8) -> *const u8 {
    address.wrapping_sub(address as usize % LINE_BYTES as usize)
}

/// A range of bytes, split at line boundaries.
struct Cut {
    /// Bytes before the first whole line, all in one line.
    head: usize,
    /// Whole lines.
    lines: usize,
    /// Bytes after the last whole line.
    tail: usize,
}

impl Cut {
    fn new(at: u64, len: usize) -> Self {
        let line = LINE_BYTES as usize;
        let head = (at.next_multiple_of(LINE_BYTES) - at) as usize;
        let head = head.min(len);
        Self {
            head,
            lines: (len - head) / line,
            tail: (len - head) % line,
        }
    }

    /// Lines that the range touches.
    fn touched(&self) -> u64 {
        self.lines as u64 + u64::from(self.head > 0) + u64::from(self.tail > 0)
    }
}
