//! Requests that wait: how they begin, how they end, and deadlocks among them.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vellum_media::{Memories, Memory};

use super::chain::Chain;
use super::table::{Owner, Record, Table, free, header, state_at};
use super::{LockCancel, LockWait};
use crate::core::cachelet::Cachelet;
use crate::error::{Error, Result};
use crate::fs::Fs;

/// A sleeping request looks at its state at least this often. Nothing depends on it.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// The state of a request in [`STATE`](super::table::word::STATE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    Waiting = 1,
    /// Its owner has the lock.
    Granted,
    /// The table was full when its turn came.
    NoLocks,
    Cancelled,
    /// The use of the pool has ended.
    Ended,
}

impl From<bool> for State {
    /// Whether a lock could be given.
    fn from(is_given: bool) -> Self {
        match is_given {
            true => Self::Granted,
            false => Self::NoLocks,
        }
    }
}

impl State {
    fn of(word: u64) -> Self {
        let all = [Self::Waiting, Self::Granted, Self::NoLocks, Self::Cancelled];
        let found = all.into_iter().find(|&state| state as u32 == word as u32);
        found.unwrap_or(Self::Ended)
    }
}

impl<M: Memories> Fs<M> {
    /// Acquires a lock, and waits for it if necessary.
    pub(super) fn acquire_lock(
        &self,
        file: Cachelet,
        request: &Record,
        wait: &LockWait<'_>,
    ) -> Result<()> {
        let waits = {
            let op = self.core.op_begin()?;
            Table::new(&op).acquire(file, request, wait)?
        };
        match waits {
            None => Ok(()),
            Some(index) => self.sleep_for_lock(index, wait),
        }
    }

    /// Sleeps, outside any operation, until a waiting request has its answer.
    fn sleep_for_lock(&self, index: u32, wait: &LockWait<'_>) -> Result<()> {
        let core = &self.core;
        let at = state_at(core, index);
        loop {
            let state = core.arena.load(at, Ordering::Acquire);
            if State::of(state) != State::Waiting {
                break;
            }
            let left = wait.deadline.map_or(SLEEP_MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                let op = core.op_begin()?;
                if Table::new(&op).withdraw(index) {
                    free(core, index);
                    return Err(Error::TimedOut);
                }
            } else {
                core.arena.wait(at, state, left.min(SLEEP_MAX));
            }
        }
        let state = State::of(core.arena.load(at, Ordering::Acquire));
        free(core, index);
        match state {
            State::NoLocks => Err(Error::NoLocks),
            State::Cancelled => Err(Error::Interrupted),
            State::Ended => Err(Error::Closed),
            State::Granted | State::Waiting => Ok(()),
        }
    }

    /// Ends all waits for locks that name `cancel`, and those that will: they fail with
    /// [`Error::Interrupted`]. A request that has its lock keeps it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (one, other) = (pool.volume().create("/f")?, pool.volume().open("/f")?);
    /// use vellum::{Error, LockCancel, LockKind, LockWait};
    ///
    /// one.lock()?;
    /// let (cancel, fs) = (LockCancel::new(), pool.fs());
    /// let wait = LockWait::FOREVER.cancelled_by(&cancel);
    /// let ended = std::thread::scope(|scope| {
    ///     let waiting = scope.spawn(|| other.handle().lock_file(LockKind::Exclusive, wait));
    ///     fs.cancel_lock_waits(&cancel);
    ///     waiting.join().unwrap()
    /// });
    /// assert!(matches!(ended, Err(Error::Interrupted)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn cancel_lock_waits(&self, cancel: &LockCancel) {
        // A request that begins to wait looks for this under the lock of waits.
        cancel.is_used.store(true, Ordering::SeqCst);
        if let Ok(op) = self.core.op_begin() {
            let (number, process) = (cancel.number, std::process::id());
            let is_named =
                |request: &Record| (request.cancel, request.process) == (number, process);
            Table::new(&op).end_waits(State::Cancelled, is_named);
        }
    }

    /// How many requests wait for locks now.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// let file = pool.volume().create("/f")?;
    /// file.lock()?;
    /// assert_eq!(pool.fs().lock_waits(), 0); // nobody had to wait
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn lock_waits(&self) -> usize {
        let Ok(op) = self.core.op_begin() else {
            return 0;
        };
        let table = Table::new(&op);
        let _waits = table.lock_waits();
        table.waiting().count()
    }

    /// Ends all waits for locks, once operations are refused.
    pub(crate) fn end_lock_waits(&self) {
        let op = self.core.op_step();
        Table::new(&op).end_waits(State::Ended, |_| true);
    }
}

impl<'a, M: Memories> Table<'a, M> {
    /// Gives the requested lock, or begins to wait for it. Returns the record that waits.
    fn acquire(
        &self,
        file: Cachelet,
        request: &Record,
        wait: &LockWait<'_>,
    ) -> Result<Option<u32>> {
        let chain = self.chain(request.file);
        self.note_locked(file);
        if !chain.is_awaited() {
            match chain.acquire(request) {
                Err(Error::WouldBlock) if wait.waits => {}
                done => return done.map(|()| None),
            }
        }
        drop(chain);
        let _waits = self.lock_waits();
        let chain = self.chain(request.file);
        self.note_locked(file);
        let done = match chain.acquire(request) {
            Err(Error::WouldBlock) if wait.waits => {
                self.begin_wait(&chain, request, wait.cancel).map(Some)
            }
            done => done.map(|()| None),
        };
        chain.grant();
        done
    }

    /// The caller holds the lock of waits, as in all that follows.
    fn begin_wait(
        &self,
        chain: &Chain<'_, 'a, M>,
        request: &Record,
        cancel: Option<&LockCancel>,
    ) -> Result<u32> {
        if cancel.is_some_and(|cancel| cancel.is_used.load(Ordering::SeqCst)) {
            return Err(Error::Interrupted);
        }
        if self.is_deadlock(chain, request) {
            return Err(Error::LockDeadlock);
        }
        let index = self.allocate().ok_or(Error::NoLocks)?;
        let waiting = Record {
            is_waiting: true,
            cancel: cancel.map_or(0, |cancel| cancel.number),
            ..*request
        };
        chain.append(index, &waiting);
        let first_at = self.header_at(header::FIRST_WAITING);
        let state = self.load(first_at) << 32 | State::Waiting as u64;
        self.store(state_at(self.core, index), state);
        self.store(first_at, index.into());
        Ok(index)
    }

    /// All waiting requests.
    fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        let some = |index: u64| (index != 0).then_some(index as u32);
        let first = some(self.load(self.header_at(header::FIRST_WAITING)));
        let next = move |&index: &u32| some(self.load(state_at(self.core, index)) >> 32);
        std::iter::successors(first, next)
    }

    /// Ends the wait of a request that is in no chain any more. The table's end wakes it.
    pub(super) fn end_wait(&self, index: u32, state: State) {
        let before = self.waiting().take_while(|&other| other != index).last();
        let at = state_at(self.core, index);
        let next = self.load(at) >> 32;
        match before {
            None => self.store(self.header_at(header::FIRST_WAITING), next),
            Some(before) => {
                let at = state_at(self.core, before);
                self.store(at, next << 32 | self.load(at) & 0xFFFF_FFFF);
            }
        }
        self.store(at, state as u64);
        self.woken.borrow_mut().push(index);
    }

    /// Takes a request that still waits out of its chain and out of the list.
    fn end_wait_early(&self, index: u32, state: State) {
        let chain = self.chain(self.record(index).file);
        let found = chain.iter().find(|found| found.index == index);
        if let Some(found) = found {
            chain.unlink(&found);
        }
        self.end_wait(index, state);
    }

    /// Gives up a request. Returns whether it was still waiting.
    fn withdraw(&self, index: u32) -> bool {
        let _waits = self.lock_waits();
        let is_waiting = State::of(self.load(state_at(self.core, index))) == State::Waiting;
        if is_waiting {
            self.end_wait_early(index, State::Cancelled);
        }
        is_waiting
    }

    fn end_waits(&self, state: State, ends: impl Fn(&Record) -> bool) {
        let _waits = self.lock_waits();
        let ending: Vec<u32> = self
            .waiting()
            .filter(|&index| ends(&self.record(index)))
            .collect();
        for index in ending {
            self.end_wait_early(index, state);
        }
    }

    /// Whether the request of a process would wait for itself: for a lock of a process that waits,
    /// in any file, and so on. As in the kernel, a process of several threads waits if one of them
    /// does, and the chain leads over no lock of a handle but the first.
    fn is_deadlock(&self, chain: &Chain<'_, 'a, M>, request: &Record) -> bool {
        if !matches!(request.owner, Owner::Process(_)) {
            return false;
        }
        let mut left: Vec<Owner> = chain.conflicts(request).map(|held| held.owner).collect();
        let mut seen = HashSet::new();
        while let Some(owner) = left.pop() {
            if owner == request.owner {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            for index in self.waiting() {
                let waiting = self.record(index);
                if waiting.owner == owner {
                    left.extend(self.processes_in_the_way(chain, &waiting));
                }
            }
        }
        false
    }

    /// The processes that a waiting request waits for. `chain` is locked already.
    fn processes_in_the_way(&self, chain: &Chain<'_, 'a, M>, waiting: &Record) -> Vec<Owner> {
        let processes = |held: Record| Some(held.owner).filter(|o| matches!(o, Owner::Process(_)));
        let beside = chain.beside(waiting.file);
        let of_file = beside.unwrap_or_else(|| self.chain(waiting.file));
        of_file.conflicts(waiting).filter_map(processes).collect()
    }
}
