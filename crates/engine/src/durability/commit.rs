//! Commits of logged and split pools: everything that was done so far becomes durable together, as
//! one epoch or one transaction.
//!
//! A commit cuts between operations. The *gate* keeps new ones from beginning and running ones are
//! waited for; then the dirty lines are copied, or the next transaction begins. The cutting thread
//! is in no operation, and holds the lease of background work, which runs outside operations. So
//! the copy is what a power cut on persistent memory could have left at that instant, and the same
//! recovery handles both.
//!
//! A thread that wants something durable *leads* a commit, or sleeps while another thread leads:
//! one commit answers all calls from before its cut. Neither lease nor gate is held during waits
//! for the disk, so operations and background work go on meanwhile.
//!
//! A freed block is *held* until the epoch that freed it is durable. Otherwise a file of an earlier
//! epoch would show bytes of the block's next owner. This is decided by reclamation epochs: each
//! cut begins a new one, and everything up to [`header::SETTLED`] is durable.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vellum_layout::LOG_LINE_BYTES;
use vellum_media::{ImageMemory, Medium, Memories, Memory};

use crate::core::background::Lease;
use crate::core::slots::GRACE;
use crate::core::{Clock, Core, header};
use crate::error::Result;
use crate::logs::redo::Epoch;
use crate::logs::{Commits, Cut};

/// A leader also waits for the threads that the last commit answered: for this part of the time
/// that it took, but no longer than the maximum. A sleeper needs some 50 us to wake up, and saves a
/// commit of its own.
const GIVE_WAY_PART: u64 = 2;
const GIVE_WAY_MAX: Duration = Duration::from_micros(200);
/// If commits are shorter than this, waiting threads are awake when one ends.
const AWAKE_MAX: Duration = Duration::from_micros(500);
/// They wake up this long before: the kernel lets timers be 50 us late, and a sleeping processor
/// takes as long again to come back.
const AWAKE_BEFORE: Duration = Duration::from_micros(150);
/// Commits that take less than `UNTIMED_BELOW`, and that nobody shares, are timed once in this
/// many: a clock that is read right behind a fence waits for the fence.
const TIMED_EVERY: u64 = 16;
const UNTIMED_BELOW: Duration = Duration::from_micros(10);
/// A sleeper looks after this time whether its wake-up was lost.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// What is durable when an operation returns, on pools that become durable by commits, and on
/// ordinary files.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// use vellum::{Durability, PoolOptions};
///
/// let pool = PoolOptions::new().durability(Durability::Dirsync).open(&path)?;
/// pool.volume().create_dir("/d")?; // survives a power cut from here on
/// assert!(pool.fs().log_counts().is_some_and(|log| log.commits > 0));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Only what the medium makes durable by itself; everything else with the next commit.
    #[default]
    Async,
    /// Also names: creating, linking, removing and renaming.
    Dirsync,
    /// Every change.
    Sync,
}

impl Durability {
    /// The name of the mount(8) option.
    ///
    /// ```
    /// assert_eq!(vellum::Durability::default().name(), "async");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Async => "async",
            Self::Dirsync => "dirsync",
            Self::Sync => "sync",
        }
    }
}

/// Keeps operations from beginning, until dropped.
pub(crate) struct Gate<'a, M: Memories>(&'a Core<M>);

impl<'a, M: Memories> Gate<'a, M> {
    /// Closes the gate and waits until no operation runs. An operation that begins without seeing
    /// the gate is seen here: both sides store before they load, sequentially consistent.
    pub(crate) fn close(core: &'a Core<M>) -> Self {
        core.arena.store(header::GATE, 1, Ordering::SeqCst);
        core.arena.barrier();
        let gate = Self(core);
        core.slots_used()
            .for_each(|slot| core.wait_for_operation(slot));
        gate
    }
}

impl<M: Memories> Drop for Gate<'_, M> {
    fn drop(&mut self) {
        self.0.arena.store(header::GATE, 0, Ordering::SeqCst);
    }
}

/// Leads a commit until it is dropped, which wakes the sleepers.
struct Leader<'a, M: Memories> {
    core: &'a Core<M>,
    turn: u64,
}

impl<'a, M: Memories> Leader<'a, M> {
    /// Begins a turn, unless another thread has begun one since `before` was read, when nobody led.
    fn begin(core: &'a Core<M>, before: u64) -> Option<Self> {
        let begun = core
            .arena
            .compare_exchange(header::LEADER, before, before + 1);
        // Not `then_some`: dropping a leader that was built in vain would end another thread's
        // turn.
        begun.is_ok().then(|| Self {
            core,
            turn: before + 1,
        })
    }
}

impl<M: Memories> Drop for Leader<'_, M> {
    fn drop(&mut self) {
        let arena = &self.core.arena;
        arena.store(header::LEADER, self.turn + 1, Ordering::SeqCst);
        if arena.load(header::SLEEPERS, Ordering::SeqCst) > 0 {
            arena.wake(header::LEADER);
        }
    }
}

impl<M: Memories> Core<M> {
    /// Makes everything done before durable, as far as the medium can. The caller is in no
    /// operation; it may hold the lease of background work.
    ///
    /// # Errors
    /// Fails if the medium fails. The pool then commits nothing more, and refuses changes.
    pub(crate) fn make_durable(&self, lease: Option<&Lease<'_, M>>) -> Result<()> {
        self.check_use()?;
        match &self.commits {
            None => Ok(self.pool.sync()?),
            Some(commits) => self.commit(commits, lease),
        }
    }

    /// Waits until no thread leads a commit.
    pub(crate) fn wait_for_leader(&self) {
        loop {
            let turn = self.arena.load(header::LEADER, Ordering::SeqCst);
            if turn.is_multiple_of(2) {
                return;
            }
            self.sleep_through(turn, SLEEP_MAX);
        }
    }

    /// Leads a commit, or waits for one whose cut comes after this call.
    fn commit(&self, commits: &Commits, lease: Option<&Lease<'_, M>>) -> Result<()> {
        // The cut that covers everything done before this call ends this epoch or a later one,
        // because the cut before it began a new epoch.
        let need = self.epoch();
        let mut has_come = false;
        loop {
            let turn = self.arena.load(header::LEADER, Ordering::SeqCst);
            if commits.is_over() || self.arena.load(header::SETTLED, Ordering::SeqCst) >= need {
                commits.note_answer();
                return Ok(());
            }
            commits.check()?;
            if !std::mem::replace(&mut has_come, true) {
                self.arena.fetch_add(header::COMERS, 1);
            }
            if turn % 2 == 1 {
                self.wait_for_turn(turn);
            } else if let Some(leader) = Leader::begin(self, turn) {
                self.lead(commits, leader, lease)?;
            }
        }
    }

    /// Waits until a turn has ended, or nearly. The thread sleeps, but if commits are short it is
    /// awake for the last part: otherwise the next leader would wait for it to wake up, or leave it
    /// behind.
    fn wait_for_turn(&self, turn: u64) {
        let of = |word| self.arena.load(word, Ordering::SeqCst);
        let took = Duration::from_nanos(of(header::COMMIT_TOOK));
        if let Some(begin) = self.now().filter(|_| took < AWAKE_MAX) {
            let asleep = took.saturating_sub(AWAKE_BEFORE);
            if !asleep.is_zero() {
                self.sleep_through(turn, asleep);
            }
            while of(header::LEADER) == turn && begin.elapsed() < 2 * took {
                self.arena.relax(u32::MAX);
            }
        }
        if of(header::LEADER) == turn {
            self.sleep_through(turn, SLEEP_MAX);
        }
    }

    /// Sleeps until a turn ends, but no longer than `limit`. The thread that ends a turn looks for
    /// sleepers afterwards, and a sleeper looks for the end after it is counted. (A thread that
    /// dies asleep stays counted, so later wake-ups may be in vain.)
    fn sleep_through(&self, turn: u64, limit: Duration) {
        self.arena.fetch_add(header::SLEEPERS, 1);
        self.arena.wait(header::LEADER, turn, limit);
        self.arena.fetch_add(header::SLEEPERS, 1u64.wrapping_neg());
    }

    /// Commits once. If background work runs, which may itself wait for a commit, it waits for that
    /// work and commits nothing.
    fn lead(
        &self,
        commits: &Commits,
        leader: Leader<'_, M>,
        lease: Option<&Lease<'_, M>>,
    ) -> Result<()> {
        // The thread that ends the use of the pool announces that before it waits for the leader's
        // turn.
        self.check_use()?;
        self.give_way();
        let mut own = None;
        if lease.is_none() {
            own = Lease::try_take(self);
            if own.is_none() {
                drop(leader);
                Lease::wait(self);
                return Ok(());
            }
        }
        let cut = self.cut(commits);
        let (cut, settled) = cut.inspect_err(|_| commits.fail(&self.pool))?;
        drop(own);
        let begin = self.is_timed(&leader).then(|| self.now()).flatten();
        let done = commits.settle(&self.pool, &cut);
        match &done {
            Ok(()) => {
                self.arena.store(header::SETTLED, settled, Ordering::SeqCst);
                if let Some(begin) = begin {
                    let took = begin.elapsed().as_nanos() as u64;
                    self.arena
                        .store(header::COMMIT_TOOK, took, Ordering::Relaxed);
                }
            }
            Err(error) => self.record_damage(error),
        }
        done
    }

    /// Whether this commit is timed. A thread that commits alone does not need the time; it
    /// measures occasionally, for threads that may come.
    fn is_timed(&self, leader: &Leader<'_, M>) -> bool {
        let of = |word| self.arena.load(word, Ordering::Relaxed);
        let is_short = Duration::from_nanos(of(header::COMMIT_TOOK)) < UNTIMED_BELOW;
        let is_alone = of(header::COMPANY) <= 1;
        !(is_short && is_alone) || (leader.turn / 2).is_multiple_of(TIMED_EVERY)
    }

    /// The clock that times commits: none in simulations, which have a clock of their own and
    /// repeat exactly.
    fn now(&self) -> Option<Instant> {
        matches!(self.clock, Clock::System).then(Instant::now)
    }

    /// Waits a while for the threads that shared the last commit to ask for this one. Otherwise
    /// they would find this commit in flight, and each commit would serve every second thread.
    fn give_way(&self) {
        let of = |word| self.arena.load(word, Ordering::Relaxed);
        let company = of(header::COMPANY);
        if of(header::COMERS) >= company {
            return;
        }
        let Some(begin) = self.now() else {
            return;
        };
        let patience = Duration::from_nanos(of(header::COMMIT_TOOK) / GIVE_WAY_PART);
        let patience = patience.min(GIVE_WAY_MAX);
        while of(header::COMERS) < company && begin.elapsed() < patience {
            self.arena.relax(u32::MAX);
        }
    }

    /// Cuts an epoch or a transaction. Returns it, and the last reclamation epoch that it
    /// completely contains.
    fn cut(&self, commits: &Commits) -> Result<(Cut, u64)> {
        let _gate = Gate::close(self);
        let settled = self.epoch();
        // Blocks that are freed from here on belong to a later epoch.
        self.advance_past(settled);
        // Threads that call when the gate opens count for the next commit.
        let company = self.arena.load(header::COMERS, Ordering::SeqCst);
        self.arena.fetch_add(header::COMERS, company.wrapping_neg());
        self.arena
            .store(header::COMPANY, company, Ordering::Relaxed);
        let cut = match commits {
            Commits::Log(_) => Cut::Epoch(self.cut_epoch()?),
            Commits::UndoLog(undo) => Cut::Transaction(undo.cut(&self.pool)),
        };
        Ok((cut, settled))
    }

    fn cut_epoch(&self) -> Result<Epoch> {
        let mut lines = Vec::new();
        let written = self.pool.cut(&mut |at| {
            let mut line = [0; LOG_LINE_BYTES as usize];
            self.pool.read(at, &mut line);
            lines.push((at, line));
        });
        // A lost page of the image has zeros in its place.
        if let Some(at) = self.pool.damaged().filter(|&at| at < self.geometry.log_at) {
            return Err(self.unreadable(at));
        }
        Ok(Epoch { lines, written })
    }

    /// The epoch up to which grace periods of freed blocks are counted: blocks of an epoch that is
    /// not durable are held.
    pub(crate) fn settled_epoch(&self) -> u64 {
        let now = self.epoch();
        match &self.commits {
            None => now,
            Some(_) => now.min(self.arena.load(header::SETTLED, Ordering::Acquire) + GRACE),
        }
    }

    /// Records that set-id bits were dropped from a file, in an operation that still runs.
    pub(crate) fn note_set_ids_taken(&self) {
        if self.commits.is_some() {
            self.arena.fetch_max(header::SET_IDS_TAKEN, self.epoch());
        }
    }

    /// Makes dropped set-id bits durable before any bytes of files change: such bytes may reach the
    /// medium without a commit, and must never be found with the earlier bits. It covers all files,
    /// because the bits may be dropped on behalf of another writer, by the kernel above a mount.
    /// Called outside any operation.
    ///
    /// # Errors
    /// Fails if the medium fails.
    pub(crate) fn settle_set_ids(&self) -> Result<()> {
        let of = |word| self.arena.load(word, Ordering::Acquire);
        if self.commits.is_some() && of(header::SET_IDS_TAKEN) > of(header::SETTLED) {
            self.make_durable(None)?;
        }
        Ok(())
    }

    /// Whether only a pending commit still holds freed blocks.
    pub(crate) fn lacks_commit(&self) -> bool {
        self.settled_epoch() < self.epoch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::harness::Harness;

    #[test]
    fn a_failed_attempt_to_lead_leaves_the_leader_alone() {
        let h = Harness::new(1 << 20);
        let turn = || h.core.arena.load(header::LEADER, Ordering::SeqCst);
        let leader = Leader::begin(&h.core, 0);
        assert!(leader.is_some() && Leader::begin(&h.core, 0).is_none());
        assert_eq!(turn(), 1);
        drop(leader);
        assert!(Leader::begin(&h.core, 0).is_none());
        assert_eq!(turn(), 2);
    }
}
