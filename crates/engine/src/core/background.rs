//! The lease under which background work is done: recycling, eviction, commits. One thread holds
//! it, outside any operation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use vellum_media::{Memories, Memory};

use crate::core::slots::pause;
use crate::core::{Core, header};
use crate::error::Result;

/// After so long whoever sleeps looks for itself whether the lease is free.
const LEASE_WAIT_MAX: Duration = Duration::from_millis(100);

/// So many times whoever takes the lease last looks whether somebody still waits for it.
const TURNS_GIVEN: u32 = 1000;

/// Holds the background lease.
pub(crate) struct Lease<'a, M: Memories>(&'a Core<M>);

impl<'a, M: Memories> Lease<'a, M> {
    /// Takes the lease, if nobody has it.
    pub(crate) fn try_take(core: &'a Core<M>) -> Option<Self> {
        core.arena
            .compare_exchange(header::LEASE, 0, 1)
            .is_ok()
            .then(|| Self(core))
    }

    /// Waits for the lease.
    pub(crate) fn take(core: &'a Core<M>) -> Self {
        loop {
            match Self::try_take(core) {
                Some(lease) => return lease,
                None => Self::wait(core),
            }
        }
    }

    /// Waits for the lease, to work on the pool.
    ///
    /// # Errors
    /// This process may not use the pool, or no more: whoever ends the use of it has the lease
    /// meanwhile.
    pub(crate) fn take_to_work(core: &'a Core<M>) -> Result<Self> {
        core.check_use()?;
        let lease = Self::take(core);
        core.check_use()?;
        Ok(lease)
    }

    /// The same for what can wait: those who wait already come first, but not for ever.
    pub(crate) fn take_last(core: &'a Core<M>) -> Result<Self> {
        let mut tries = 0;
        while core.is_lease_wanted() && tries < TURNS_GIVEN {
            pause(&core.arena, &mut tries);
        }
        Self::take_to_work(core)
    }

    /// Sleeps while somebody has the lease, or for a little.
    pub(crate) fn wait(core: &Core<M>) {
        core.arena.fetch_add(header::LEASE_WANTED, 1);
        core.arena.wait(header::LEASE, 1, LEASE_WAIT_MAX);
        core.arena
            .fetch_add(header::LEASE_WANTED, 1u64.wrapping_neg());
    }
}

impl<M: Memories> Drop for Lease<'_, M> {
    fn drop(&mut self) {
        // Who is not seen to want it has yet to look whether it is free: both store before they
        // look.
        let arena = &self.0.arena;
        arena.store(header::LEASE, 0, Ordering::SeqCst);
        if arena.load(header::LEASE_WANTED, Ordering::SeqCst) > 0 {
            arena.wake(header::LEASE);
        }
    }
}
