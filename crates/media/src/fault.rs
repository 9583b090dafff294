//! Turns SIGBUS on a mapped page into zeros and a recorded offset, instead of the end of the
//! program.
//!
//! A mapped page can vanish: the file is truncated, its disk is full or fails, or a line of
//! persistent memory is poisoned. The kernel then sends SIGBUS. The handler here looks the address
//! up in a fixed table of registered mappings, marks the page as lost, maps a page of zeros in its
//! place, and returns, so that the access is repeated and reads zeros. Foreign addresses go to the
//! previous handler.
//!
//! Later accesses to a lost page raise no signal. Once the mapping is *watched*
//! ([`Memory::watch`](crate::Memory::watch)), they find the mark: each such access, and each one
//! outside the memory, is counted for its thread ([`faults`]). Accesses in flight when the page was
//! lost are covered by [`Memory::condition`](crate::Memory::condition), which changes before the
//! page of zeros appears.
//!
//! The handler uses only atomics and `mmap`; it takes no lock and allocates nothing.

use crate::MediaError;
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Most mappings of one process.
const SLOTS: usize = 4096;
/// [`Slot::damaged`] while nothing failed.
const UNHARMED: u64 = u64::MAX;

/// [`Slot::condition`]: an access failed.
const FAILED: u64 = 1;
/// [`Slot::condition`]: counts pages lost.
const LOST_ONE: u64 = 2;

/// Failed accesses of one thread: outside a memory, or to lost bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Their number, in all memories.
    pub count: u64,
    /// The offset of the last one.
    pub last: u64,
}

thread_local! {
    static FAULTS: Cell<Faults> = const { Cell::new(Faults { count: 0, last: 0 }) };
}

/// The number and last offset of the calling thread's failed accesses so far.
#[inline]
pub fn faults() -> Faults {
    FAULTS.get()
}

/// Counts a failed access of the calling thread.
#[cold]
pub(crate) fn note(at: u64) {
    let count = FAULTS.get().count + 1;
    FAULTS.set(Faults { count, last: at });
}

/// One registered mapping.
pub(crate) struct Slot {
    /// Whether a mapping uses the slot, or is about to.
    taken: AtomicBool,
    /// Odd while the slot is in use. Incremented at every change, so that the handler can check
    /// that it read the values of a single mapping.
    version: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Bytes that are replaced when an access fails: a power of two.
    page_bytes: AtomicUsize,
    /// A bit for each page, set when it is lost. Windows have none.
    lost: AtomicPtr<AtomicU64>,
    /// In a window: the slot of the pool whose bytes it shows.
    shows: AtomicPtr<Slot>,
    damaged: AtomicU64,
    /// [`FAILED`], and the number of losses.
    condition: AtomicU64,
    /// The offset of the last access that lost a page.
    last_lost: AtomicU64,
}

static TABLE: [Slot; SLOTS] = [const { Slot::unused() }; SLOTS];
/// No slot at or after this index was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The previous action of SIGBUS.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
/// Whether our action was once seen to be installed.
static INSTALLED: AtomicBool = AtomicBool::new(false);

impl Slot {
    const fn unused() -> Self {
        Self {
            taken: AtomicBool::new(false),
            version: AtomicU64::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            page_bytes: AtomicUsize::new(0),
            lost: AtomicPtr::new(ptr::null_mut()),
            shows: AtomicPtr::new(ptr::null_mut()),
            damaged: AtomicU64::new(UNHARMED),
            condition: AtomicU64::new(0),
            last_lost: AtomicU64::new(0),
        }
    }

    /// 0 while nothing failed; changes by [`LOST_ONE`] or more with each lost page.
    #[inline(always)]
    pub(crate) fn condition(&self) -> u64 {
        self.condition.load(Ordering::Relaxed)
    }

    /// The offset of the last access that lost a page.
    pub(crate) fn last_lost(&self) -> u64 {
        self.last_lost.load(Ordering::Relaxed)
    }

    /// The offset of the first access that failed.
    #[inline]
    pub(crate) fn damaged(&self) -> Option<u64> {
        Some(self.damaged.load(Ordering::Relaxed)).filter(|&at| at != UNHARMED)
    }

    /// Records an access outside the memory, and counts it for the thread.
    #[cold]
    pub(crate) fn record_outside(&self, at: u64) {
        note(at);
        self.record(at);
        self.condition.fetch_or(FAILED, Ordering::SeqCst);
    }

    /// Records the loss of a page. Must be called before the page of zeros appears: then every
    /// thread that may have read it finds the condition changed.
    fn record_loss(&self, page: &Page) {
        // SAFETY: slots are never freed. In its present use, the slot of a pool outlives the
        // windows of the pool.
        if let Some(pool) = unsafe { page.shows.as_ref() } {
            pool.change_condition();
            return;
        }
        let number = (page.start - self.start.load(Ordering::Relaxed)) / page.bytes;
        // SAFETY: `lost` has a bit for every page of the mapping, and lives as long as the mapping,
        // which the faulting access keeps alive.
        unsafe { (*page.lost.add(number / 64)).fetch_or(1 << (number % 64), Ordering::SeqCst) };
        self.record_lost_page(page.offset);
    }

    /// Records the loss of the page of `at`, once it is marked as lost.
    pub(crate) fn record_lost_page(&self, at: u64) {
        self.record(at);
        self.last_lost.store(at, Ordering::Relaxed);
        self.change_condition();
    }

    /// Changes the condition because of a lost page.
    fn change_condition(&self) {
        self.condition.fetch_or(FAILED, Ordering::SeqCst);
        self.condition.fetch_add(LOST_ONE, Ordering::SeqCst);
    }

    /// Records the offset of a failed access, unless one is already recorded.
    fn record(&self, at: u64) {
        let at = at.min(UNHARMED - 1);
        let _ = self
            .damaged
            .compare_exchange(UNHARMED, at, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Ends the registration. Must be called before the mapping is removed.
    pub(crate) fn release(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.taken.store(false, Ordering::Release);
    }

    /// Takes the slot, unless it is in use.
    fn take(&self) -> bool {
        let (free, order) = (!self.taken.load(Ordering::Relaxed), Ordering::Acquire);
        free && (self.taken)
            .compare_exchange(false, true, order, Ordering::Relaxed)
            .is_ok()
    }

    /// The page that holds `address`, if it is in this slot's mapping.
    fn page_of(&self, address: usize) -> Option<Page> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let end = self.end.load(Ordering::Relaxed);
        let bytes = self.page_bytes.load(Ordering::Relaxed);
        let lost = self.lost.load(Ordering::Relaxed);
        let shows = self.shows.load(Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::Acquire);
        let unchanged = version % 2 == 1 && self.version.load(Ordering::Relaxed) == version;
        (unchanged && (start..end).contains(&address)).then(|| Page {
            start: address & !(bytes - 1),
            bytes,
            offset: (address - start) as u64,
            lost,
            shows,
        })
    }
}

struct Page {
    start: usize,
    bytes: usize,
    /// Offset of the access.
    offset: u64,
    /// [`Slot::lost`]
    lost: *mut AtomicU64,
    /// [`Slot::shows`]
    shows: *const Slot,
}

/// Registers the mapping `[start, start + len_bytes)` with pages of `page_bytes`; `lost` has a bit
/// for each page and lives until [`Slot::release`].
pub(crate) fn register(
    start: usize,
    len_bytes: usize,
    page_bytes: usize,
    lost: &[AtomicU64],
) -> Result<&'static Slot, MediaError> {
    let lost = lost.as_ptr().cast_mut();
    take_slot(start, len_bytes, page_bytes, lost, ptr::null_mut())
}

/// Registers a window that shows bytes of the pool with the slot `pool`, until [`Slot::release`].
pub(crate) fn register_window(
    start: usize,
    len_bytes: usize,
    page_bytes: usize,
    pool: &'static Slot,
) -> Result<&'static Slot, MediaError> {
    let pool = ptr::from_ref(pool).cast_mut();
    take_slot(start, len_bytes, page_bytes, ptr::null_mut(), pool)
}

fn take_slot(
    start: usize,
    len_bytes: usize,
    page_bytes: usize,
    lost: *mut AtomicU64,
    shows: *mut Slot,
) -> Result<&'static Slot, MediaError> {
    if !INSTALLED.load(Ordering::Acquire) {
        install();
    }
    let free = TABLE.iter().position(Slot::take);
    let index = free.ok_or(MediaError::TooManyMappings { limit: SLOTS })?;
    let slot = &TABLE[index];
    slot.start.store(start, Ordering::Relaxed);
    slot.end.store(start + len_bytes, Ordering::Relaxed);
    slot.page_bytes.store(page_bytes, Ordering::Relaxed);
    slot.lost.store(lost, Ordering::Relaxed);
    slot.shows.store(shows, Ordering::Relaxed);
    slot.damaged.store(UNHARMED, Ordering::Relaxed);
    slot.condition.store(0, Ordering::Relaxed);
    USED.fetch_max(index + 1, Ordering::Relaxed);
    slot.version.fetch_add(1, Ordering::Release);
    Ok(slot)
}

/// Makes [`on_sigbus`] the process's handler and remembers the previous one. Concurrent threads all
/// do it and wait for no other: a child of `fork` may lack the thread that was doing it.
fn install() {
    // SAFETY: a zeroed `sigaction` is valid (default action, empty mask); both calls get pointers
    // to live, initialised structures. The box stored in PREVIOUS is never freed, so the handler
    // may read it at any time; it is in place before the handler can run. A box that was not stored
    // there is freed here.
    unsafe {
        let ours = on_sigbus as *const () as usize;
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before);
        if before.sa_sigaction != ours {
            let (none, before) = (ptr::null_mut(), Box::into_raw(Box::new(before)));
            let (done, lost) = (Ordering::Release, Ordering::Relaxed);
            if PREVIOUS.compare_exchange(none, before, done, lost).is_err() {
                drop(Box::from_raw(before));
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ours;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    }
    INSTALLED.store(true, Ordering::Release);
}

extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel calls a SA_SIGINFO handler with a valid `info`; `si_code` is always set,
    // and `si_addr` is set if the code is positive (a fault, not a `kill`).
    let fault = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr() as usize) };
    if fault.is_some_and(replace_page) {
        return;
    }
    pass_on(signal, info, context);
}

/// Records the loss and maps a page of zeros at `address`, if the address is ours.
fn replace_page(address: usize) -> bool {
    let used = USED.load(Ordering::Relaxed);
    let Some((slot, page)) = TABLE[..used]
        .iter()
        .find_map(|slot| Some((slot, slot.page_of(address)?)))
    else {
        return false;
    };
    slot.record_loss(&page);
    // SAFETY: errno is this thread's own; it is put back so that interrupted code does not see
    // the change. The page lies in a registered mapping that the faulting access keeps alive, so
    // nothing but bytes of that mapping (lost ones) is replaced.
    unsafe {
        let errno = *libc::__errno_location();
        let fresh = libc::mmap(
            page.start as *mut libc::c_void,
            page.bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        );
        *libc::__errno_location() = errno;
        if fresh == libc::MAP_FAILED {
            return false;
        }
    }
    true
}

/// Does what SIGBUS did before our handler was installed.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: PREVIOUS holds a leaked, initialised `sigaction` since before the handler was
    // installed. The kernel accepted its function pointer with the flag that determines its type,
    // so calling it as that type is what the kernel would have done.
    unsafe {
        let previous = &*PREVIOUS.load(Ordering::Acquire);
        let function = previous.sa_sigaction;
        let sent = (*info).si_code <= 0;
        if function == libc::SIG_IGN && sent {
            return;
        }
        if function == libc::SIG_DFL || function == libc::SIG_IGN {
            // The default ends the process: at once for a signal that was sent, and when the
            // access is repeated for a fault.
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &raw const default, ptr::null_mut());
            if sent {
                libc::raise(signal);
            }
        } else if previous.sa_flags & libc::SA_SIGINFO != 0 {
            type Full = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Full>(function)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(c_int)>(function)(signal);
        }
    }
}
