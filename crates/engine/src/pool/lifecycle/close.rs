//! Closing cleanly: everything is written back, the live map and the saved allocator state are
//! stored, and the state word becomes clean.

use std::sync::atomic::Ordering;

use vellum_layout::{PoolPhase, PoolState, StateWord};
use vellum_media::{Medium, Memories, Memory, Persistent};

use crate::core::background::Lease;
use crate::core::cachelet::{Cachelet, flag};
use crate::core::slots::Tally;
use crate::devices::replica::{ExportedReplica, make_whole};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::pool::lifecycle::open::{live_map_check, saved_check};
use crate::sites;

impl<M: Memories> Fs<M> {
    /// Closes the pool cleanly. Waits for running operations; from then on open files can only be
    /// read. If it fails, operations go on as before, except if only its last step failed: the
    /// medium may say by then that the pool is closed.
    ///
    /// # Errors
    /// Fails if unlinked files are open, or if damage was found: the pool is then as after a crash,
    /// which loses nothing. Fails if the medium fails.
    pub fn close(&self) -> Result<()> {
        let core = &self.core;
        core.check_use()?;
        if core.read_only {
            return Ok(());
        }
        let _no_growth = self.growth.lock();
        if core.is_damaged() {
            // Left dirty, so that the next opening scans everything.
            return Err(Error::ReadOnlyAfterDamage);
        }
        self.write_deadlines()?;
        core.refuse_changes();
        let lease = Lease::take(core);
        self.save(&lease).inspect_err(|_| core.allow_changes())?;
        self.mark_clean(&lease)?;
        if let Some(commits) = &core.commits {
            commits.finish(&core.pool)?;
        }
        core.closed_cleanly();
        Ok(())
    }

    /// Closes the pool cleanly and completes the metadata replica on its external data device:
    /// copies the blocks that changed since the last export, or, with `all`, all of them. From then
    /// on the device alone has the file system, until the pool is opened for writing again. `tell`
    /// is called with the numbers of blocks that are done, and of all.
    ///
    /// # Errors
    /// Fails as [`Self::close`]. Fails if the device has no replica, or fails itself: the pool is
    /// then closed, and the replica is stale.
    pub fn close_and_export(&self, all: bool, tell: &dyn Fn(u64, u64)) -> Result<ExportedReplica> {
        self.close()?;
        if self.core.read_only {
            return Err(Error::ReadOnly);
        }
        make_whole(&self.core, &self.superblock(), all, tell)
    }

    /// Ends the use of the pool, closed or not, even while files of it are open. Waits for running
    /// operations; later ones fail with [`Error::Closed`], and the pool can be opened again.
    /// Returns how many views still lend out bytes in place: the pool stays locked until they are
    /// dropped.
    pub fn end(&self) -> u64 {
        let core = &self.core;
        core.refuse_changes();
        drop(self.growth.lock());
        // Background work, and a rename of a directory with everything below it, takes several
        // operations.
        let lease = Lease::take(core);
        core.arena.end();
        core.arena.barrier();
        core.slots_used()
            .for_each(|slot| core.wait_for_operation(slot));
        self.end_lock_waits();
        drop(lease);
        core.wait_for_leader();
        let lent = core.leases.views();
        if lent == 0 {
            core.pool.unlock();
        }
        lent
    }

    /// Saves durably everything that an opening relies on.
    fn save(&self, lease: &Lease<'_, M>) -> Result<()> {
        let core = &self.core;
        self.reclaim_leased(lease)?;
        self.write_back_all()?;
        self.reclaim_leased(lease)?;
        core.return_all_held();
        self.return_chunks(true);
        self.save_live_map();
        self.mapping.save(core)?;
        core.pool.fence(sites::CLOSE_SAVED_DURABLE);
        core.check_media()?;
        if core.is_damaged() {
            return Err(Error::ReadOnlyAfterDamage);
        }
        core.make_durable(Some(lease))
    }

    /// Makes the state word clean, durably. If this fails, the medium may have the word or not, so
    /// nothing may change any more.
    fn mark_clean(&self, lease: &Lease<'_, M>) -> Result<()> {
        let core = &self.core;
        let at = core.geometry.state_at + PoolState::WORD;
        core.set_word(at, StateWord::new(PoolPhase::Clean, core.pool_epoch).0);
        core.pool.flush(sites::CLOSE_STATE, at, 8);
        core.pool.fence(sites::CLOSE_STATE_DURABLE);
        core.make_durable(Some(lease))
    }

    /// Writes back times and counts of all files. Flushed, not fenced.
    fn write_back_all(&self) -> Result<()> {
        let core = &self.core;
        let op = core.op_begin()?;
        let last = core.last_cachelet();
        for number in 1..=last {
            let cachelet = Cachelet(number as u32);
            if core.ino(cachelet) == 0 {
                continue;
            }
            if core.has_flag(cachelet, flag::UNLINKED) {
                // Still open: what recovery expects after a crash is left as it is.
                return Err(Error::Busy);
            }
            if core.has_flag(cachelet, flag::DIRTY) {
                op.write_back([sites::CLOSE_LINKS, sites::CLOSE_TIMES], cachelet);
            }
        }
        Ok(())
    }

    /// Saves the live map and the counters. Flushed, not fenced.
    fn save_live_map(&self) {
        let core = &self.core;
        let at = core.geometry.live_map_at;
        let saved = core.live_words();
        for index in saved.iter().cloned().flatten() {
            let word = core
                .arena
                .load(core.map.used + index * 8, Ordering::Acquire);
            core.set_word(at + index * 8, word);
        }
        self.namespace.scratch(core, &mut |slot| {
            let block = u64::from(u32::MAX) << (slot % 64);
            let at = at + slot / 64 * 8;
            core.set_word(at, core.word(at) & !block);
        });
        for words in saved {
            let (first, bytes) = (at + words.start * 8, (words.end - words.start) * 8);
            core.pool.flush(sites::CLOSE_LIVE_MAP, first, bytes);
        }
        let usage = self.mapping.usage(core);
        let inodes = core.total(Tally::Inodes);
        let blocks = usage.total - usage.free;
        let map_check = live_map_check(core);
        let at = core.geometry.state_at;
        core.set_word(at + PoolState::LIVE_MAP_CHECK, map_check);
        core.set_word(at + PoolState::INODES, inodes);
        core.set_word(at + PoolState::BLOCKS, blocks);
        core.set_word(
            at + PoolState::SAVED_CHECK,
            saved_check(core.pool_epoch, map_check, inodes, blocks),
        );
        core.pool.flush(sites::CLOSE_COUNTS, at + 64, 64);
    }
}
