//! The threads that use handles, their places, and the fences between them (`users`).

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering, compiler_fence, fence,
};

use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier};

use crate::users::Threads;

/// Places of a thread: no call uses more handles at once.
const PLACES: usize = 4;

/// A thread. When it ends, another takes its record over.
#[repr(align(64))]
pub(crate) struct Thread {
    /// The slots that the thread is using; 0 where it uses none.
    places: [AtomicU64; PLACES],
    is_taken: AtomicBool,
    /// The record that was made before this one.
    next: AtomicPtr<Thread>,
}

/// The record that was made last.
static LAST: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());

/// How fences are made. Decided by the first thread, before it has a place.
static WAY: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
/// The kernel executes a fence in every thread, and calls need none.
const ASYMMETRIC: u8 = 1;
/// The kernel cannot, so each call executes one.
const FENCED: u8 = 2;

thread_local! {
    static THIS: Cell<Option<&'static Thread>> = const { Cell::new(None) };
    static AT_EXIT: Exit = const { Exit };
}

/// Gives the thread's record back when the thread ends.
struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        if let Some(thread) = THIS.take() {
            thread.is_taken.store(false, Ordering::Release);
        }
    }
}

/// All threads, as this one sees them.
#[derive(Clone, Copy)]
pub(crate) struct Here(&'static Thread);

impl Here {
    /// The calling thread.
    #[inline]
    pub(crate) fn get() -> Self {
        match THIS.get() {
            Some(thread) => Self(thread),
            None => Self::register(),
        }
    }

    #[cold]
    fn register() -> Self {
        if WAY.load(Ordering::Acquire) == UNKNOWN {
            let way = match membarrier(MembarrierCommand::RegisterPrivateExpedited) {
                Ok(()) => ASYMMETRIC,
                Err(_) => FENCED,
            };
            // If another thread decides at the same time, its way holds.
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            let _ = WAY.compare_exchange(UNKNOWN, way, success, failure);
        }
        let thread = Thread::take().unwrap_or_else(Thread::new);
        THIS.set(Some(thread));
        // A thread that is ending already keeps its record.
        let _ = AT_EXIT.try_with(|_| ());
        Self(thread)
    }

    /// The number of the thread: the address of its record.
    #[inline]
    pub(crate) fn number(self) -> u64 {
        ptr::from_ref(self.0).addr() as u64
    }

    /// A place that the thread does not use; `None` if it uses all.
    #[inline]
    pub(crate) fn free_place(self) -> Option<&'static AtomicU64> {
        let thread = self.0;
        let is_free = |place: &&AtomicU64| place.load(Ordering::Relaxed) == 0;
        thread.places.iter().find(is_free)
    }
}

impl Thread {
    /// Makes a record, and puts it before all others.
    fn new() -> &'static Self {
        let thread: &'static Self = Box::leak(Box::new(Self {
            places: Default::default(),
            is_taken: AtomicBool::new(true),
            next: AtomicPtr::default(),
        }));
        let address = ptr::from_ref(thread).cast_mut();
        let mut last = LAST.load(Ordering::Acquire);
        loop {
            thread.next.store(last, Ordering::Relaxed);
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match LAST.compare_exchange(last, address, success, failure) {
                Ok(_) => return thread,
                Err(found) => last = found,
            }
        }
    }

    /// The record at an address from [`LAST`] or `next`.
    #[expect(unsafe_code, reason = "records are never freed")]
    fn at(address: *mut Self) -> Option<&'static Self> {
        // SAFETY: it is null, or the address of a record, which is never freed and only shared.
        unsafe { address.as_ref() }
    }

    fn all() -> impl Iterator<Item = &'static Self> {
        let mut next = LAST.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let thread = Self::at(next)?;
            next = thread.next.load(Ordering::Relaxed);
            Some(thread)
        })
    }

    /// Takes the record of a thread that has ended.
    fn take() -> Option<&'static Self> {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let take = |thread: &&Self| {
            let taken = &thread.is_taken;
            let is_free = !taken.load(Ordering::Relaxed);
            is_free
                && taken
                    .compare_exchange(false, true, success, failure)
                    .is_ok()
        };
        Self::all().find(take)
    }
}

impl Threads for Here {
    type Word = AtomicU64;

    #[inline]
    fn light() {
        match WAY.load(Ordering::Relaxed) {
            ASYMMETRIC => compiler_fence(Ordering::SeqCst),
            _ => fence(Ordering::SeqCst),
        }
    }

    fn heavy() -> bool {
        fence(Ordering::SeqCst);
        if WAY.load(Ordering::Relaxed) != ASYMMETRIC {
            return true;
        }
        let asked = || membarrier(MembarrierCommand::PrivateExpedited);
        match asked() {
            // Not registered, after a fork on some kernels.
            Err(Errno::PERM) => {
                let again = membarrier(MembarrierCommand::RegisterPrivateExpedited);
                again.and_then(|()| asked()).is_ok()
            }
            result => result.is_ok(),
        }
    }

    fn is_named(&self, slot: u64) -> bool {
        let names = |place: &AtomicU64| place.load(Ordering::Acquire) == slot;
        Thread::all().any(|thread| thread.places.iter().any(names))
    }

    fn is_named_here(&self, slot: u64) -> bool {
        let names = |place: &AtomicU64| place.load(Ordering::Relaxed) == slot;
        self.0.places.iter().any(names)
    }
}
