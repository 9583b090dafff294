//! Thread slots and epochs: every operation runs between `op_begin` and `op_end`.
//!
//! Beginning an operation does three things with one compare-and-swap on a line of its own: it
//! gives the thread exclusive use of a slot (journal, preallocated inodes and entries), it pins the
//! reclamation epoch, and it marks the operation as running. A thread returns to the slot that it
//! used last; when all slots are taken it waits for one.
//!
//! Deviation from DirectFS, which preallocates for each core: a thread in user space cannot stay on
//! a core, so the unit is the slot, which an operation has to itself.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use vellum_media::{Memories, Memory, faults};

use crate::core::{Core, header};
use crate::error::Result;

/// Bytes of one thread slot in the arena.
pub(crate) const ARENA_SLOT_BYTES: u64 = 256;

/// How often a waiting thread looks whether an operation has ended before it sleeps, which is after
/// some milliseconds, and how long it sleeps before it looks again.
const AWAKE_TRIES: u32 = 5000;
const ASLEEP: Duration = Duration::from_micros(100);

/// Word offsets within a thread slot in the arena.
pub(crate) mod field {
    /// 0: idle; else epoch << 1 | 1.
    pub(crate) const STATE: u64 = 0;
    /// Sequence number of the last journal record.
    pub(crate) const SEQUENCE: u64 = 8;
    /// Lookups. Some of them are sampled where areas evolve.
    pub(crate) const LOOKUPS: u64 = 16;
    /// Preallocated inodes: group << 32 | mask of slots left.
    pub(crate) const INODES: u64 = 64;
    /// Preallocated entries: group << 32 | mask of slots left.
    pub(crate) const ENTRIES: u64 = 72;
    /// Fresh cachelets that this slot holds: next << 32 | count.
    pub(crate) const CACHELETS: u64 = 96;
    /// [`super::Tally::Inodes`].
    pub(crate) const TALLY_INODES: u64 = 104;
    /// [`super::Tally::Names`].
    pub(crate) const TALLY_NAMES: u64 = 112;
    /// The mapping's cursor: the key of the remembered leaf.
    pub(crate) const CURSOR_KEY: u64 = 128;
    /// The location of the leaf.
    pub(crate) const CURSOR_NODE: u64 = 136;
    /// The state that must not have changed since then.
    pub(crate) const CURSOR_TAG: u64 = 144;
    /// Preallocated slots for entries with paths, as [`ENTRIES`].
    pub(crate) const PATHS: u64 = 88;
    /// Data blocks reserved but not yet claimed.
    pub(crate) const RESERVED: u64 = 80;
}

/// Counts that are kept in thread slots, so that counting shares no line. The total is the sum over
/// all slots and the arena's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tally {
    /// Inodes in use.
    Inodes,
    /// Names in the index.
    Names,
}

impl Tally {
    fn places(self) -> (u64, u64) {
        match self {
            Self::Inodes => (header::INODES, field::TALLY_INODES),
            Self::Names => (header::NAMES, field::TALLY_NAMES),
        }
    }
}

/// Epochs that must pass before a retired object may be reused.
pub(crate) const GRACE: u64 = 2;

thread_local! {
    static HINT: Cell<u32> = const { Cell::new(u32::MAX) };
}
static NEXT_HINT: AtomicU32 = AtomicU32::new(0);

/// Makes this thread's next operation try thread slot `slot` first (modulo their number), for
/// simulations that must repeat exactly. Otherwise the slot depends on how many threads the process
/// had before.
pub fn prefer_thread_slot(slot: u32) {
    HINT.set(slot);
}

/// A running operation: exclusive use of a slot and a pinned epoch, until dropped.
pub(crate) struct Op<'a, M: Memories> {
    pub(crate) core: &'a Core<M>,
    pub(crate) slot: u32,
    /// The pool's condition when the operation began.
    condition: u64,
    /// How many accesses of this thread had failed by then.
    faults: Cell<u64>,
}

impl<M: Memories> Core<M> {
    pub(crate) fn slot_word(&self, slot: u32, field: u64) -> u64 {
        self.map.slots + u64::from(slot) * ARENA_SLOT_BYTES + field
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// Fails if this process may not use the pool: it was forked from the one that has it open
    /// ([`Error::Forked`]), or the pool was closed ([`Error::Closed`]).
    #[inline(always)]
    pub(crate) fn op_begin(&self) -> Result<Op<'_, M>> {
        // In a forked child no thread leaves a slot or opens the gate.
        self.check_use()?;
        let op = self.op_step();
        // The thread that ends the use of the pool waits for operations that are in a slot by then.
        self.check_use()?;
        Ok(op)
    }

    /// Begins an operation that is a step of an earlier one, or of background work. It may run
    /// while the pool is being closed. A process that may not use the pool never gets here.
    #[inline]
    pub(crate) fn op_step(&self) -> Op<'_, M> {
        self.begun(self.enter())
    }

    /// Enters a slot, once the gate is open.
    #[inline(always)]
    fn enter(&self) -> u32 {
        let slot = self.preferred_slot();
        if !self.try_enter(slot) {
            return self.enter_beside(slot, 1);
        }
        if self.is_gated() {
            self.leave_and_wait(slot);
            return self.enter_beside(slot, 0);
        }
        slot
    }

    /// The slot that this thread tries first.
    #[inline(always)]
    fn preferred_slot(&self) -> u32 {
        let count = self.geometry.thread_slots;
        match HINT.get() {
            hint if hint < count => hint,
            u32::MAX => {
                let hint = NEXT_HINT.fetch_add(1, Ordering::Relaxed);
                HINT.set(hint);
                hint % count
            }
            hint => hint % count,
        }
    }

    /// Enters a slot, once the gate is open: one of the slots from `first` on, of which the first
    /// `tried` were in use.
    #[cold]
    fn enter_beside(&self, first: u32, mut tried: u32) -> u32 {
        let count = self.geometry.thread_slots;
        loop {
            if tried > 0 && tried.is_multiple_of(count) {
                self.arena.relax(u32::MAX);
            }
            let slot = (first + tried % count) % count;
            if !self.try_enter(slot) {
                tried += 1;
                continue;
            }
            if self.is_gated() {
                self.leave_and_wait(slot);
                continue;
            }
            if tried > 0 {
                HINT.set(slot);
            }
            return slot;
        }
    }

    /// Begins an operation that changes something.
    ///
    /// # Errors
    /// Fails if nothing may be changed.
    #[inline(always)]
    pub(crate) fn op_to_change(&self) -> Result<Op<'_, M>> {
        loop {
            let op = self.op_begin()?;
            if self.is_changeable() {
                return Ok(op);
            }
            drop(op);
            self.wait_to_change()?;
        }
    }

    /// Whether the gate is closed. Checked after the slot is entered: a cut checks the slots after
    /// it has closed the gate.
    #[inline(always)]
    fn is_gated(&self) -> bool {
        self.commits.is_some() && self.arena.load(header::GATE, Ordering::SeqCst) != 0
    }

    #[cold]
    fn leave_and_wait(&self, slot: u32) {
        let at = self.slot_word(slot, field::STATE);
        self.arena.store(at, 0, Ordering::Release);
        let mut tries = 0;
        while self.is_gated() {
            pause(&self.arena, &mut tries);
        }
    }

    /// Waits until no operation runs on a slot. Sleeps if that takes long, because then the
    /// operation itself waits, perhaps for a disk.
    pub(crate) fn wait_for_operation(&self, slot: u32) {
        let at = self.slot_word(slot, field::STATE);
        let mut tries = 0;
        loop {
            let seen = self.arena.load(at, Ordering::SeqCst);
            if seen == 0 {
                return;
            }
            match tries {
                ..AWAKE_TRIES => pause(&self.arena, &mut tries),
                _ => self.arena.wait(at, seen, ASLEEP),
            }
        }
    }

    #[inline(always)]
    fn begun(&self, slot: u32) -> Op<'_, M> {
        let condition = self.pool.condition();
        if condition != 0 {
            self.pool.watch();
        }
        Op {
            core: self,
            slot,
            condition,
            faults: Cell::new(faults().count),
        }
    }

    /// A thread that looks behind a barrier at the slots in use, and does not see this one, comes
    /// before the operation that enters it: the slot is marked as used before it is entered, by a
    /// swap, or the mark was read from one.
    #[inline(always)]
    fn try_enter(&self, slot: u32) -> bool {
        if self.arena.load(header::SLOTS_USED, Ordering::Acquire) <= u64::from(slot) {
            self.use_slot(slot);
        }
        let epoch = self.arena.load(header::EPOCH, Ordering::Acquire);
        let at = self.slot_word(slot, field::STATE);
        let entered = self.arena.compare_exchange(at, 0, epoch << 1 | 1).is_ok();
        if !self.arena.swaps_are_barriers() {
            // Loads of the operation must not come before the epoch is visibly pinned.
            self.arena.barrier();
        }
        entered
    }

    #[cold]
    fn use_slot(&self, slot: u32) {
        self.arena
            .fetch_max(header::SLOTS_USED, u64::from(slot) + 1);
    }

    /// The slots that may ever have been entered; the others are idle, and hold nothing.
    pub(crate) fn slots_used(&self) -> Range<u32> {
        0..self.arena.load(header::SLOTS_USED, Ordering::SeqCst) as u32
    }

    /// Begins an operation on an idle slot of another thread, to take what it holds.
    pub(crate) fn enter_idle(&self, slot: u32) -> Option<Op<'_, M>> {
        self.try_enter(slot).then(|| self.begun(slot))
    }

    /// The total of a tally.
    pub(crate) fn total(&self, tally: Tally) -> u64 {
        let (base, field) = tally.places();
        let load = |at| self.arena.load(at, Ordering::Relaxed);
        let slots = (0..self.geometry.thread_slots).map(|slot| load(self.slot_word(slot, field)));
        slots.fold(load(base), u64::wrapping_add)
    }

    /// Sets a tally while slots have counted nothing yet.
    pub(crate) fn set_total(&self, tally: Tally, count: u64) {
        self.arena.store(tally.places().0, count, Ordering::Relaxed);
    }

    /// The present epoch: an object that is retired now may be reused [`GRACE`] epochs later.
    pub(crate) fn epoch(&self) -> u64 {
        self.arena.load(header::EPOCH, Ordering::SeqCst)
    }

    /// Advances the epoch if every running operation has pinned the present one. Returns the epoch.
    pub(crate) fn try_advance(&self) -> u64 {
        let epoch = self.epoch();
        for slot in self.slots_used() {
            let state = self
                .arena
                .load(self.slot_word(slot, field::STATE), Ordering::SeqCst);
            if state != 0 && state >> 1 != epoch {
                return epoch;
            }
        }
        match self.arena.compare_exchange(header::EPOCH, epoch, epoch + 1) {
            Ok(_) => epoch + 1,
            Err(now) => now,
        }
    }

    /// Advances the epoch from `epoch`, unless another thread does. No operation runs or begins:
    /// one that enters its slot meanwhile leaves it again before it loads anything, whatever epoch
    /// it pins.
    pub(crate) fn advance_past(&self, epoch: u64) {
        let _or_somebody_else = self.arena.compare_exchange(header::EPOCH, epoch, epoch + 1);
    }

    /// Waits until everything that ran at the time of the call has ended. The caller is in no
    /// operation.
    pub(crate) fn wait_for_readers(&self) {
        // Objects that the caller made unreachable are so before the epoch is read.
        self.arena.barrier();
        let until = self.epoch() + GRACE;
        let mut tries = 0u32;
        while self.try_advance() < until {
            pause(&self.arena, &mut tries);
        }
    }
}

impl<M: Memories> Op<'_, M> {
    /// Reads a word of this operation's slot.
    pub(crate) fn own(&self, field: u64) -> u64 {
        self.core
            .arena
            .load(self.core.slot_word(self.slot, field), Ordering::Relaxed)
    }

    /// Sets a word of this operation's slot.
    pub(crate) fn set_own(&self, field: u64, value: u64) {
        self.core.arena.store(
            self.core.slot_word(self.slot, field),
            value,
            Ordering::Relaxed,
        );
    }

    /// Adds to a tally.
    pub(crate) fn count(&self, tally: Tally, more: i64) {
        let (_, field) = tally.places();
        self.set_own(field, self.own(field).wrapping_add_signed(more));
    }

    /// Fails if this operation met lost bytes, or may have.
    #[inline]
    pub(crate) fn check_media(&self) -> Result<()> {
        match self.core.pool.condition() {
            0 => Ok(()),
            now => self.check_faults(now),
        }
    }

    #[cold]
    fn check_faults(&self, condition: u64) -> Result<()> {
        let faults = faults();
        if faults.count != self.faults.get() {
            Err(self.core.unreadable(faults.last))
        } else if self.met_a_loss(condition) {
            Err(self.core.unreadable(self.core.pool.last_lost()))
        } else {
            Ok(())
        }
    }

    /// Whether bytes were lost while this operation ran: it may have read the zeros in their place.
    /// An operation that begins now would notice them.
    fn met_a_loss(&self, condition: u64) -> bool {
        // The lowest bit means only that some access failed.
        condition >> 1 != self.condition >> 1
    }

    /// Whether no access to the pool had failed when this operation began.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.condition == 0
    }

    /// Continues after failed accesses, which the caller has handled.
    pub(crate) fn forgive_faults(&self) {
        self.faults.set(faults().count);
    }

    /// Fails if a block that was not found may be in a part of the mapping table that could not be
    /// read.
    #[inline]
    pub(crate) fn check_hole(&self) -> Result<()> {
        let core = self.core;
        if self.condition != 0 && core.arena.load(header::TABLE_LOST, Ordering::Relaxed) != 0 {
            return Err(core.unreadable(core.geometry.table_at));
        }
        Ok(())
    }

    /// Whether it is unknown if this operation met lost bytes.
    pub(crate) fn is_unsure(&self) -> bool {
        self.met_a_loss(self.core.pool.condition())
    }

    /// The name of this slot in locks and flags (never 0).
    pub(crate) fn holder(&self) -> u64 {
        u64::from(self.slot) + 1
    }
}

impl<M: Memories> Drop for Op<'_, M> {
    fn drop(&mut self) {
        let at = self.core.slot_word(self.slot, field::STATE);
        self.core.arena.store(at, 0, Ordering::Release);
    }
}

/// Waits briefly for another operation's short critical step.
pub(crate) fn pause<A: Memory>(arena: &A, tries: &mut u32) {
    *tries += 1;
    arena.relax(*tries);
}
