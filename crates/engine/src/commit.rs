//! Commits of logged pools: everything that was done so far becomes durable as one epoch.
//!
//! An epoch is cut between operations: the *gate* keeps new ones from beginning, those that run are waited for, and then the lines that
//! were stored to are copied. Whoever cuts holds the background's lease, which works outside of operations, and is in none itself. So the
//! copy is what a power cut on persistent memory could have left at that instant, and whatever recovers from one recovers from the other.
//!
//! A block that is given up is *held* until the epoch that gave it up is durable, or an earlier epoch's file would show what its next owner
//! wrote. Reclamation epochs tell: each cut begins a new one, and [`header::SETTLED`] is the last of which everything is durable.

use std::sync::atomic::Ordering;

use vellum_layout::LOG_LINE_BYTES;
use vellum_media::{Memories, Memory, Persistent};

use crate::core::{Core, header};
use crate::error::{Error, Result};
use crate::log::{Epoch, Log};
use crate::slots::{GRACE, pause};

/// Keeps operations from beginning, until dropped.
struct Gate<'a, M: Memories>(&'a Core<M>);

impl<'a, M: Memories> Gate<'a, M> {
    /// Closes the gate and waits until no operation runs. Whoever begins one and does not see the gate is seen here: both store before they
    /// look, sequentially consistent.
    fn close(core: &'a Core<M>) -> Self {
        core.arena.store(header::GATE, 1, Ordering::SeqCst);
        core.arena.barrier();
        let gate = Self(core);
        for slot in 0..core.geometry.thread_slots {
            let mut tries = 0;
            while core.is_in_operation(slot) {
                pause(&core.arena, &mut tries);
            }
        }
        gate
    }
}

impl<M: Memories> Drop for Gate<'_, M> {
    fn drop(&mut self) {
        self.0.arena.store(header::GATE, 0, Ordering::SeqCst);
    }
}

impl<M: Memories> Core<M> {
    /// Makes everything that was done before survive what the medium can survive. The caller is in no operation, and holds the background's
    /// lease where the pool is logged.
    ///
    /// # Errors
    /// What the medium said. A logged pool commits nothing any more, and refuses changes.
    pub(crate) fn make_durable(&self) -> Result<()> {
        match &self.log {
            None => Ok(self.pool.sync()?),
            Some(log) if log.is_over() => Ok(()),
            Some(log) => self.commit(log),
        }
    }

    fn commit(&self, log: &Log) -> Result<()> {
        log.check()?;
        let disk = self
            .pool
            .disk()
            .ok_or(Error::Unsupported("a log without a disk"))?;
        let (epoch, settled) = self.cut().inspect_err(|_| log.fail())?;
        let done = log.append(disk, &epoch);
        match &done {
            Ok(()) => self
                .arena
                .store(header::SETTLED, settled, Ordering::Release),
            Err(error) => self.note_harm(error),
        }
        done
    }

    /// Cuts an epoch; gives it, and the last reclamation epoch that is all in it.
    fn cut(&self) -> Result<(Epoch, u64)> {
        let _gate = Gate::close(self);
        let settled = self.epoch();
        // What is given up from here on is of a later one.
        while self.try_advance() == settled {}
        let mut epoch = Epoch::default();
        epoch.has_data = self.pool.cut(&mut |at| {
            let mut line = [0; LOG_LINE_BYTES as usize];
            self.pool.read(at, &mut line);
            epoch.lines.push((at, line));
        });
        // A page of the image that was lost has zeros in its place.
        if let Some(at) = self.pool.damaged().filter(|&at| at < self.geometry.log_at) {
            return Err(self.unreadable(at));
        }
        Ok((epoch, settled))
    }

    /// What counts as the present epoch for blocks whose grace period is to be over: those of an epoch that is not durable are held.
    pub(crate) fn settled_epoch(&self) -> u64 {
        let now = self.epoch();
        match &self.log {
            None => now,
            Some(_) => now.min(self.arena.load(header::SETTLED, Ordering::Acquire) + GRACE),
        }
    }
}
