//! Background work: freeing removed files, recycling directories. It runs under a lease in the
//! arena, outside operations. So the holder of the lease may wait for grace periods.

use std::sync::atomic::Ordering;

use vellum_layout::{FileKind, Inode, InodeState, SLOT_BYTES, text_home};
use vellum_media::{Memories, Memory, Persistent, Transactions};

use crate::core::background::Lease;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::quotas::Space;
use crate::core::slots::Tally;
use crate::core::{Core, header};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::sites;

impl<M: Memories> Core<M> {
    /// Whether somebody waits for the background's lease. A holder whose work can wait gives way.
    pub(crate) fn is_lease_wanted(&self) -> bool {
        self.arena.load(header::LEASE_WANTED, Ordering::Relaxed) != 0
    }

    /// Pushes a cachelet onto the work stack, unless it is there already.
    pub(crate) fn queue_work(&self, cachelet: Cachelet) {
        if self.raise_flag(cachelet, flag::QUEUED) & flag::QUEUED != 0 {
            return;
        }
        let mut head = self.arena.load(header::WORK, Ordering::Acquire);
        loop {
            self.set(cachelet, field::NEXT, head);
            match self
                .arena
                .compare_exchange(header::WORK, head, u64::from(cachelet.0))
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Clears the mark of a cachelet that was popped from the work stack. If the cachelet has no
    /// name left, the mark stays, so that nobody queues it again. Returns whether the mark was
    /// cleared.
    fn unqueue(&self, cachelet: Cachelet) -> bool {
        let at = self.cachelet_at(cachelet, field::FLAGS);
        let mut flags = self.get(cachelet, field::FLAGS);
        while flags & flag::UNLINKED == 0 {
            match self
                .arena
                .compare_exchange(at, flags, flags & !flag::QUEUED)
            {
                Ok(_) => return true,
                Err(now) => flags = now,
            }
        }
        false
    }

    /// Pops everything from the work stack.
    pub(crate) fn take_work(&self) -> Vec<Cachelet> {
        let mut head = self.arena.load(header::WORK, Ordering::Acquire);
        while head != 0 {
            match self.arena.compare_exchange(header::WORK, head, 0) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        let mut taken = Vec::new();
        while head != 0 {
            let cachelet = Cachelet(head as u32);
            taken.push(cachelet);
            head = self.get(cachelet, field::NEXT);
        }
        taken
    }
}

impl<M: Memories> Fs<M> {
    /// Does the pending background work, unless another thread is doing it. Returns how many files
    /// and directories it processed. Production calls it from a thread; simulations call it where
    /// they want it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// fs.mknod(&cred, &root, b"f", vellum::FileKind::File, 0o644, 0)?;
    /// fs.unlink(&cred, &root, b"f")?;
    /// assert!(fs.maintain()? <= 1); // 0 if the background thread was faster
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Damaged media.
    pub fn maintain(&self) -> Result<usize> {
        self.core.check_use()?;
        self.write_deadlines()?;
        match Lease::try_take(&self.core) {
            Some(_lease) => {
                self.core.check_use()?;
                self.maintain_leased(false)
            }
            None => Ok(0),
        }
    }

    /// Does the work that frees space, before space is counted. Runs outside any operation.
    pub(crate) fn work_to_count(&self) -> Result<()> {
        let core = &self.core;
        // While there are free chunks, dead entries take no space from others.
        let is_short = !core.read_only && core.is_short_of_chunks() && self.chunks_possible() == 0;
        if is_short || core.arena.load(header::WORK, Ordering::Acquire) != 0 {
            let _lease = Lease::take_to_work(core)?;
            if is_short {
                self.namespace.queue_dead(core, false);
            }
            self.maintain_leased(is_short)?;
        }
        Ok(())
    }

    /// Frees removed files that nobody has open, so that they count for nobody. Also waits for
    /// those that another thread is freeing. Runs outside any operation.
    pub(crate) fn free_removed(&self) -> Result<()> {
        let _lease = Lease::take_to_work(&self.core)?;
        self.maintain_leased(false).map(drop)
    }

    /// Frees space: waits for the lease and does all pending work. Runs outside any operation.
    pub(crate) fn reclaim_now(&self) -> Result<()> {
        self.reclaim_leased(&Lease::take_to_work(&self.core)?)
    }

    /// Frees space for an operation that had none for `what`. If it did so before, for the same
    /// operation, free data space becomes metadata. Returns whether another try is worthwhile. Runs
    /// outside any operation.
    pub(crate) fn make_room(&self, what: &'static str, has_reclaimed: bool) -> Result<bool> {
        let is_data = what == Error::DATA_BLOCKS;
        if has_reclaimed {
            return Ok(!is_data && self.make_chunks()?);
        }
        let lease = Lease::take_to_work(&self.core)?;
        self.reclaim_leased(&lease)?;
        if is_data && self.core.is_changeable() {
            self.return_chunks(true);
        }
        Ok(true)
    }

    /// As [`Self::reclaim_now`], for a caller that holds the lease.
    pub(crate) fn reclaim_leased(&self, lease: &Lease<'_, M>) -> Result<()> {
        // The background reads a log only when it has many dead entries. Here every dead entry
        // counts, if entries can get no further chunk or only the last one.
        if self.core.is_short_of_chunks() {
            self.namespace.queue_dead(&self.core, true);
        }
        while self.maintain_leased(true)? > 0 {}
        self.namespace.evict(&self.core, true)?;
        self.core.wait_for_readers();
        if self.core.commits.is_some() {
            // Freed blocks are held until their freeing is durable.
            self.core.make_durable(Some(lease))?;
        }
        self.mapping.reclaim(&self.core);
        Ok(())
    }

    fn maintain_leased(&self, urgent: bool) -> Result<usize> {
        self.core.noting(self.work_off(urgent))
    }

    fn work_off(&self, urgent: bool) -> Result<usize> {
        let core = &self.core;
        // After damage, what would be written may depend on lost bytes.
        let damaged = core.is_damaged();
        let work = if damaged {
            Vec::new()
        } else {
            core.take_work()
        };
        let mut doomed = Vec::new();
        for &cachelet in &work {
            match core.unqueue(cachelet) {
                true if core.kind(cachelet) == FileKind::Directory => {
                    self.namespace.recycle(core, cachelet, urgent)?;
                }
                // A file that has got a name meanwhile.
                true => {}
                false => doomed.push(cachelet),
            }
        }
        if !doomed.is_empty() {
            self.bury_all(doomed)?;
        }
        let evicted = self.namespace.evict(core, false)?;
        core.try_advance();
        self.mapping.reclaim(core);
        if core.is_changeable() {
            self.return_chunks(false);
        }
        Ok(work.len() + evicted as usize)
    }

    /// Frees files that have no names and that nobody has open, all under the same few fences.
    fn bury_all(&self, mut doomed: Vec<Cachelet>) -> Result<()> {
        let core = &self.core;
        // An operation that found a file before its name was removed may still take a reference.
        core.wait_for_readers();
        doomed.retain(|&cachelet| {
            if core.get(cachelet, field::REFS) == 0 {
                return true;
            }
            core.clear_flag(cachelet, flag::QUEUED);
            if core.get(cachelet, field::REFS) == 0 {
                core.queue_work(cachelet);
            }
            false
        });
        self.kill_inodes(&doomed)?;
        for &cachelet in &doomed {
            self.free_contents(cachelet)?;
        }
        core.wait_for_readers();
        let op = core.op_step();
        for &cachelet in &doomed {
            op.count(Tally::Inodes, -1);
            if core.has_quotas() {
                let space = Space::of_new(core.kind(cachelet));
                core.discharge(core.owners(cachelet), space);
            }
            core.free_slots(core.ino(cachelet), 1);
            core.free_cachelet(cachelet);
        }
        Ok(())
    }

    /// Marks inodes as dead and puts their blocks in limbo, durably. The order does not matter:
    /// nothing names the inodes any more, so recovery frees both.
    fn kill_inodes(&self, doomed: &[Cachelet]) -> Result<()> {
        let op = self.core.op_step();
        let core = op.core;
        let inodes = doomed.iter().map(|&it| (core.inode_at(it), SLOT_BYTES));
        core.pool.about_to_store(&inodes.collect::<Vec<_>>());
        for &cachelet in doomed {
            let at = core.inode_at(cachelet);
            let dead = core
                .identity_on_pool(core.ino(cachelet))
                .with_state(InodeState::Free);
            core.set_word(at, dead.0);
            core.pool.flush(sites::FREE_INODE, at, 8);
            core.set_word(at + Inode::CACHELET, 0);
            if core.kind(cachelet) == FileKind::Directory {
                self.namespace.give_up(core, cachelet);
            }
        }
        for &cachelet in doomed {
            if core.kind(cachelet) == FileKind::File {
                self.files().release_all(&op, cachelet)?;
            }
        }
        core.pool.fence(sites::FREE_LIMBO_DURABLE);
        Ok(())
    }

    /// Frees the metadata slots that a dead inode still holds.
    fn free_contents(&self, cachelet: Cachelet) -> Result<()> {
        let core = &self.core;
        core.free_xattrs(&core.xattrs_locked(cachelet)?);
        match core.kind(cachelet) {
            FileKind::Directory => self.namespace.dissolve(core, cachelet)?,
            FileKind::Symlink => {
                let (size, text) = (
                    core.get(cachelet, field::SIZE),
                    core.get(cachelet, field::ROOT),
                );
                let generation = core.identity(cachelet).generation();
                // Only the text's own check shows whether the slot belongs to this inode.
                core.text(core.ino(cachelet), generation, size, text)?;
                core.free_slots(text, text_home(size as usize).1);
            }
            _ => {}
        }
        Ok(())
    }
}
