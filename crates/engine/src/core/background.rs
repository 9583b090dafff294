//! The lease of background work: recycling, eviction, commits. One thread holds it, outside any
//! operation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use vellum_media::{Memories, Memory};

use crate::core::slots::pause;
use crate::core::{Core, header};
use crate::error::Result;

/// A sleeper looks after this time itself whether the lease is free.
const LEASE_WAIT_MAX: Duration = Duration::from_millis(100);

/// How often a low-priority taker looks whether another thread still waits for the lease.
const TURNS_GIVEN: u32 = 1000;

/// Holds the background lease.
pub(crate) struct Lease<'a, M: Memories>(&'a Core<M>);

impl<'a, M: Memories> Lease<'a, M> {
    /// Takes the lease, if it is free.
    pub(crate) fn try_take(core: &'a Core<M>) -> Option<Self> {
        core.arena
            .compare_exchange(header::LEASE, 0, 1)
            .is_ok()
            .then(|| Self(core))
    }

    /// Waits for the lease and takes it.
    pub(crate) fn take(core: &'a Core<M>) -> Self {
        loop {
            match Self::try_take(core) {
                Some(lease) => return lease,
                None => Self::wait(core),
            }
        }
    }

    /// Waits for the lease, for work on the pool.
    ///
    /// # Errors
    /// Fails if this process may not use the pool, or the pool's use ended: the thread that ends it
    /// holds the lease meanwhile.
    pub(crate) fn take_to_work(core: &'a Core<M>) -> Result<Self> {
        core.check_use()?;
        let lease = Self::take(core);
        core.check_use()?;
        Ok(lease)
    }

    /// The same for work that can wait: threads that already wait come first, but not forever.
    pub(crate) fn take_last(core: &'a Core<M>) -> Result<Self> {
        let mut tries = 0;
        while core.is_lease_wanted() && tries < TURNS_GIVEN {
            pause(&core.arena, &mut tries);
        }
        Self::take_to_work(core)
    }

    /// Sleeps while the lease is taken, for a limited time.
    pub(crate) fn wait(core: &Core<M>) {
        core.arena.fetch_add(header::LEASE_WANTED, 1);
        core.arena.wait(header::LEASE, 1, LEASE_WAIT_MAX);
        core.arena
            .fetch_add(header::LEASE_WANTED, 1u64.wrapping_neg());
    }
}

impl<M: Memories> Drop for Lease<'_, M> {
    fn drop(&mut self) {
        // A thread that is not counted as waiting yet will look whether the lease is free: both
        // sides store before they load.
        let arena = &self.0.arena;
        arena.store(header::LEASE, 0, Ordering::SeqCst);
        if arena.load(header::LEASE_WANTED, Ordering::SeqCst) > 0 {
            arena.wake(header::LEASE);
        }
    }
}
