//! Identifies the present process without a system call.
//!
//! A child of `fork` has copies of its parent's private memory, and shares what is mapped shared;
//! open resources there belong to the parent. So resources of one process remember its number. The
//! number lies in a page that the kernel gives a child as zeros (`MADV_WIPEONFORK`); a process that
//! finds zero there draws its own number.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A process, distinguishable from all processes that it was forked off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u64);

/// The page with this process's number; a word that is always zero until it is first needed.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const NOT_ASKED).cast_mut());
static NOT_ASKED: AtomicU64 = AtomicU64::new(0);
/// Replaces the page if the kernel cannot wipe pages: always zero.
static NO_PAGE: AtomicU64 = AtomicU64::new(0);
/// The number of the next process in this line of descent.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Set in numbers that are process ids.
const OF_SYSTEM: u64 = 1 << 63;
/// Set in the number of an [`Owner`] that ended its use.
const ENDED: u64 = 1 << 62;

impl Process {
    /// The calling process.
    #[inline(always)]
    pub(crate) fn current() -> Self {
        match known_number() {
            0 => Self::find_out(),
            number => Self(number),
        }
    }

    /// A process that differs from all others.
    #[cfg(test)]
    pub(crate) fn other() -> Self {
        Self(0)
    }

    #[cold]
    fn find_out() -> Self {
        let word = word();
        if std::ptr::eq(word, &raw const NO_PAGE) {
            return Self(u64::from(std::process::id()) | OF_SYSTEM);
        }
        let drawn = NEXT.fetch_add(1, Ordering::Relaxed);
        match word.compare_exchange(0, drawn, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Self(drawn),
            Err(by_another_thread) => Self(by_another_thread),
        }
    }
}

/// The number of the calling process; 0: not yet known.
#[inline(always)]
fn known_number() -> u64 {
    // SAFETY: the pointer leads to a word that is valid until the process ends: in a page that is
    // not unmapped, or a static.
    unsafe { &*PAGE.load(Ordering::Acquire) }.load(Ordering::Relaxed)
}

/// Where this process's number lies. There is no lock, which another thread could hold for ever
/// after a fork.
fn word() -> &'static AtomicU64 {
    let known = PAGE.load(Ordering::Acquire);
    let not_asked = (&raw const NOT_ASKED).cast_mut();
    let made = match known == not_asked {
        true => wiped_page().unwrap_or((&raw const NO_PAGE).cast_mut()),
        false => known,
    };
    let kept = match PAGE.compare_exchange(not_asked, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        // If another thread was faster, the second page stays unused.
        Err(before) => before,
    };
    // SAFETY: a word that is valid until the process ends, as in `known_number`.
    unsafe { &*kept }
}

/// A page of zeros of this process alone, which its children find as zeros again. `None`: the
/// kernel does not support that.
fn wiped_page() -> Option<*mut AtomicU64> {
    let bytes = rustix::param::page_size();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let anywhere = std::ptr::null_mut();
    // SAFETY: the kernel chooses a free address range, so no existing memory is touched. The advice
    // is for that range, which no other code has seen, and which is unmapped if the kernel refuses
    // the advice.
    unsafe {
        let page =
            rustix::mm::mmap_anonymous(anywhere, bytes, protection, MapFlags::PRIVATE).ok()?;
        if rustix::mm::madvise(page, bytes, Advice::LinuxWipeOnFork).is_err() {
            let _ = rustix::mm::munmap(page, bytes);
            return None;
        }
        Some(page.cast())
    }
}

/// Whether the calling process has this number, if it was not yet known.
#[cold]
#[inline(never)]
fn found_out_to_be(owner: u64) -> bool {
    Process::current().0 == owner
}

/// The process that may use a resource, until it ends that use; its children may not.
pub(crate) struct Owner(AtomicU64);

impl Owner {
    /// The calling process.
    pub(crate) fn current() -> Self {
        Self(AtomicU64::new(Process::current().0))
    }

    /// Whether the calling process is the owner and has not ended its use.
    #[inline(always)]
    pub(crate) fn is_at_work(&self) -> bool {
        let owner = self.0.load(Ordering::SeqCst);
        // No process has the number zero.
        known_number() == owner || found_out_to_be(owner)
    }

    /// Whether the calling process was forked off the owner.
    #[inline(always)]
    pub(crate) fn is_of_parent(&self) -> bool {
        !self.is_at_work() && self.is_of_another()
    }

    #[cold]
    #[inline(never)]
    fn is_of_another(&self) -> bool {
        Process::current().0 != self.0.load(Ordering::SeqCst) & !ENDED
    }

    /// Ends the owner's use.
    pub(crate) fn end(&self) {
        self.0.fetch_or(ENDED, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_stays_the_same() {
        let this = Process::current();
        let threads = std::thread::scope(|scope| {
            let others: Vec<_> = (0..4).map(|_| scope.spawn(Process::current)).collect();
            others
                .into_iter()
                .map(|other| other.join().expect("the thread ends"))
                .collect::<Vec<_>>()
        });
        assert_eq!(threads, [this; 4]);
        let owner = Owner::current();
        assert!(owner.is_at_work() && !owner.is_of_parent());
        owner.end();
        assert!(!owner.is_at_work() && !owner.is_of_parent());
    }
}
