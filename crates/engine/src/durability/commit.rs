//! Commits of logged pools, and of those with versions: everything that was done so far becomes
//! durable as one epoch, or transaction.
//!
//! It is cut between operations: the *gate* keeps new ones from beginning, those that run are
//! waited for, and then the lines that were stored to are copied, or the next transaction begins.
//! Whoever cuts holds the background's lease, which works outside of operations, and is in none
//! itself. So the copy is what a power cut on persistent memory could have left at that instant,
//! and whatever recovers from one recovers from the other.
//!
//! Whoever wants to have something durable *leads* a commit, or sleeps while another thread does:
//! one commit answers all who came before its cut. Neither lease nor gate are held while the disk
//! is waited for, so that operations, and the background's work, go on beside it.
//!
//! A block that is given up is *held* until the epoch that gave it up is durable, or an earlier
//! epoch's file would show what its next owner wrote. Reclamation epochs tell: each cut begins a
//! new one, and [`header::SETTLED`] is the last of which everything is durable.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vellum_layout::LOG_LINE_BYTES;
use vellum_media::{Memories, Memory, Persistent};

use crate::core::background::Lease;
use crate::core::slots::GRACE;
use crate::core::{Clock, Core, header};
use crate::error::Result;
use crate::logs::redo::Epoch;
use crate::logs::{Commits, Cut};

/// How long a leader waits for those whom the last commit answered, too: such a part of what that
/// took, at most so long. Who slept meanwhile needs some 50 us to wake up, and a commit of his own
/// is saved.
const GIVE_WAY_PART: u64 = 2;
const GIVE_WAY_MAX: Duration = Duration::from_micros(200);
/// Where commits take less, those who wait for one are awake when it ends.
const AWAKE_MAX: Duration = Duration::from_micros(500);
/// So long before that they want to be woken up: the kernel lets timers be 50 us late, and a
/// processor that slept takes as long again to come back.
const AWAKE_BEFORE: Duration = Duration::from_micros(150);
/// Of so many commits in which nobody shares, and which take less than that, one tells what it
/// took: a clock that is read right behind a fence waits for it, too.
const TIMED_EVERY: u64 = 16;
const UNTIMED_BELOW: Duration = Duration::from_micros(10);
/// After so long whoever sleeps looks for itself whether it was forgotten.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// What is durable when an operation returns, on pools whose operations are made durable by
/// commits, and on ordinary files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// What the medium makes durable by itself; the rest from the next commit on.
    #[default]
    Async,
    /// Names, too: whatever was created, linked, removed or renamed.
    Dirsync,
    /// Every change.
    Sync,
}

impl Durability {
    /// As the options of mount(8) call it.
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
    /// Closes the gate and waits until no operation runs. Whoever begins one and does not see the
    /// gate is seen here: both store before they look, sequentially consistent.
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

/// Leads commits, until dropped; whoever sleeps until that wakes up then.
struct Leader<'a, M: Memories> {
    core: &'a Core<M>,
    turn: u64,
}

impl<'a, M: Memories> Leader<'a, M> {
    /// Begins a turn, if nobody else has begun one since `before` was read, when nobody led.
    fn begin(core: &'a Core<M>, before: u64) -> Option<Self> {
        let begun = core
            .arena
            .compare_exchange(header::LEADER, before, before + 1);
        // Not `then_some`: a leader that is made and dropped ends the turn of another.
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
    /// Makes everything that was done before survive what the medium can survive. The caller is in
    /// no operation; it may hold the background's lease.
    ///
    /// # Errors
    /// What the medium said. A pool that commits does so no more, and refuses changes.
    pub(crate) fn make_durable(&self, lease: Option<&Lease<'_, M>>) -> Result<()> {
        self.check_use()?;
        match &self.commits {
            None => Ok(self.pool.sync()?),
            Some(commits) => self.commit(commits, lease),
        }
    }

    /// Waits until nobody leads a commit.
    pub(crate) fn wait_for_leader(&self) {
        loop {
            let turn = self.arena.load(header::LEADER, Ordering::SeqCst);
            if turn.is_multiple_of(2) {
                return;
            }
            self.sleep_through(turn, SLEEP_MAX);
        }
    }

    /// Leads a commit, or waits for one whose cut comes behind this call.
    fn commit(&self, commits: &Commits, lease: Option<&Lease<'_, M>>) -> Result<()> {
        // A cut that takes what was done before this call finds this epoch, or a later one: the one
        // before it began another.
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

    /// Waits until a turn has ended, or a little less: asleep, but where commits are short awake
    /// for the last part of one, because the next one's leader would wait for whoever wakes up
    /// behind its end, or leave him behind.
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

    /// Sleeps until a turn ends, but no longer than `limit`. Whoever ends it looks for sleepers
    /// behind that, and who sleeps looks for its end behind being counted. (Those who die asleep
    /// stay counted: somebody is woken up in vain.)
    fn sleep_through(&self, turn: u64, limit: Duration) {
        self.arena.fetch_add(header::SLEEPERS, 1);
        self.arena.wait(header::LEADER, turn, limit);
        self.arena.fetch_add(header::SLEEPERS, 1u64.wrapping_neg());
    }

    /// Commits once. Where the background is at work, which may itself wait for a commit, it comes
    /// first, and nothing is done.
    fn lead(
        &self,
        commits: &Commits,
        leader: Leader<'_, M>,
        lease: Option<&Lease<'_, M>>,
    ) -> Result<()> {
        // Whoever ends the use of the pool says so before he waits for the leader's turn to end.
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

    /// Whether it is found out what this commit takes. Who comes alone does not need to know, and
    /// tells now and then whoever will come.
    fn is_timed(&self, leader: &Leader<'_, M>) -> bool {
        let of = |word| self.arena.load(word, Ordering::Relaxed);
        let is_short = Duration::from_nanos(of(header::COMMIT_TOOK)) < UNTIMED_BELOW;
        let is_alone = of(header::COMPANY) <= 1;
        !(is_short && is_alone) || (leader.turn / 2).is_multiple_of(TIMED_EVERY)
    }

    /// The time by which it is told how long commits take: none in simulations, which have a clock
    /// of their own, and repeat exactly.
    fn now(&self) -> Option<Instant> {
        matches!(self.clock, Clock::System).then(Instant::now)
    }

    /// Lets those come who shared the last commit, and do now what they will want to have
    /// committed: otherwise they would find this one under way, and each commit would serve every
    /// second thread.
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

    /// Cuts an epoch, or a transaction; gives it, and the last reclamation epoch that is all in it.
    fn cut(&self, commits: &Commits) -> Result<(Cut, u64)> {
        let _gate = Gate::close(self);
        let settled = self.epoch();
        // What is given up from here on is of a later one.
        self.advance_past(settled);
        // Behind the gate others come at once: they are of the next one's company.
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
        // A page of the image that was lost has zeros in its place.
        if let Some(at) = self.pool.damaged().filter(|&at| at < self.geometry.log_at) {
            return Err(self.unreadable(at));
        }
        Ok(Epoch { lines, written })
    }

    /// What counts as the present epoch for blocks whose grace period is to be over: those of an
    /// epoch that is not durable are held.
    pub(crate) fn settled_epoch(&self) -> u64 {
        let now = self.epoch();
        match &self.commits {
            None => now,
            Some(_) => now.min(self.arena.load(header::SETTLED, Ordering::Acquire) + GRACE),
        }
    }

    /// Set-id bits were just taken from a file, in an operation that is not over.
    pub(crate) fn note_set_ids_taken(&self) {
        if self.commits.is_some() {
            self.arena.fetch_max(header::SET_IDS_TAKEN, self.epoch());
        }
    }

    /// Makes durable that set-id bits were taken, before any bytes of files change: these may reach
    /// the medium without a commit, and are never to be found with bits of before. Whoever takes
    /// bits for a writer (the kernel, in front of a mount) need not be the writer. Outside any
    /// operation.
    ///
    /// # Errors
    /// What the medium said.
    pub(crate) fn settle_set_ids(&self) -> Result<()> {
        let of = |word| self.arena.load(word, Ordering::Acquire);
        if self.commits.is_some() && of(header::SET_IDS_TAKEN) > of(header::SETTLED) {
            self.make_durable(None)?;
        }
        Ok(())
    }

    /// Whether blocks may be held for want of a commit alone, the grace period of all that were
    /// given up being over.
    pub(crate) fn lacks_commit(&self) -> bool {
        self.settled_epoch() < self.epoch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::harness::Harness;

    #[test]
    fn who_does_not_become_the_leader_leaves_the_leader_alone() {
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
