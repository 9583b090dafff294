//! What happens before the bytes of a mapped pool change: old bytes are kept for a copy, and for
//! undo records; dirty lines are recorded.

use super::MappedPool;
use crate::preserve::Preserver;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// An image or transactions have begun.
const BEGUN: u8 = 1;
/// The pool is being copied.
const COPIED: u8 = 2;

/// What changes have to do first. One load says that it is nothing.
#[derive(Default)]
pub(super) struct Before {
    which: AtomicU8,
    preserver: RwLock<Option<Arc<Preserver>>>,
}

impl Before {
    /// Whether there is anything to do.
    #[inline(always)]
    pub(super) fn is_any(&self) -> bool {
        self.which.load(Ordering::Relaxed) != 0
    }

    /// An image or transactions have begun, before any other thread stores.
    pub(super) fn begin(&self) {
        self.which.fetch_or(BEGUN, Ordering::Release);
    }
}

impl MappedPool {
    /// Keeps old bytes of `[at, at + len)`, which are about to change, for a copy of the pool.
    #[inline]
    pub(super) fn keep_for_copy(&self, at: u64, len: u64) {
        if self.before.which.load(Ordering::Relaxed) & COPIED != 0 {
            self.keep_old(at, len);
        }
    }

    #[cold]
    fn keep_old(&self, at: u64, len: u64) {
        let preserver = self.before.preserver.read();
        let preserver = preserver.unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(preserver) = preserver {
            preserver.before_change(self, at, len);
        }
    }

    /// See [`crate::Medium::preserve`].
    pub(super) fn begin_copy(&self, preserver: &Arc<Preserver>) -> bool {
        let slot = self.before.preserver.write();
        let mut slot = slot.unwrap_or_else(PoisonError::into_inner);
        if slot.is_some() {
            return false;
        }
        *slot = Some(Arc::clone(preserver));
        self.before.which.fetch_or(COPIED, Ordering::SeqCst);
        true
    }

    /// See [`crate::Medium::end_preserving`].
    pub(super) fn end_copy(&self) {
        let slot = self.before.preserver.write();
        let mut slot = slot.unwrap_or_else(PoisonError::into_inner);
        self.before.which.fetch_and(!COPIED, Ordering::SeqCst);
        *slot = None;
    }
}
