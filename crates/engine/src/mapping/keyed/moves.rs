//! Entries that move from one line to another while others look for them.
//!
//! A reader of the lines of a key may miss it in all of them while it moves. So a key's *stripe*, a
//! word of the arena, counts how often a key of the stripe began or ended a move: odd while one is
//! on its way. A reader who found nothing believes it only if the count was even and is the same
//! afterwards. One who found the key compares too, so that what it read of the place belongs to the
//! key that it saw.
//!
//! The stripe is also the lock of those who change entries of its keys; its lower bits name the
//! thread slot that holds it. Keys of one file have one writer, so the lock is against moves only.
//!
//! Who reads the whole table goes through a *gate* that keeps moves out.

use std::sync::atomic::Ordering;

use vellum_layout::{KeyedWord, MapWord};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site};

use super::lines::{ENTRY_BYTES, Held, Lines};
use crate::core::Core;
use crate::core::slots::{Op, pause};
use crate::error::Result;

/// Stripes at most.
const STRIPES_MAX: u64 = 1024;
/// Blocks of a segment for each stripe, at least.
const STRIPE_BLOCKS: u64 = 16;
/// The slot that holds a stripe; above it the count of moves.
const HOLDER_MASK: u64 = 0xFFFF;
/// One more beginning or end of a move.
const MOVE: u64 = HOLDER_MASK + 1;

/// Moves at work, in the lower half of the gate's word.
const MOVING: u64 = 1;
/// Readings of the whole table that no move may disturb, in the upper half.
const READING: u64 = 1 << 32;

/// Persistent steps of a move.
#[derive(Clone, Copy, Debug)]
pub(in crate::mapping) struct MoveSites {
    /// The copy.
    pub(in crate::mapping) copy: Site,
    /// Before the entry is no longer where it was.
    pub(in crate::mapping) copy_durable: Site,
    /// What the first word of the entry says then that was left.
    pub(in crate::mapping) leave: Site,
    /// Before the key can change, or go, where it is now.
    pub(in crate::mapping) leave_durable: Site,
}

/// The arena's part in moves.
#[derive(Debug)]
pub(in crate::mapping) struct Moves {
    gate_at: u64,
    stripes_at: u64,
    /// A power of two.
    stripes: u64,
}

impl Moves {
    /// Those in a table of so many blocks, whose part of the arena (zero at first) is at
    /// `arena_at`.
    pub(in crate::mapping) fn new(arena_at: u64, blocks: u64) -> Self {
        let stripes = (blocks / STRIPE_BLOCKS).next_power_of_two();
        Self {
            gate_at: arena_at,
            stripes_at: arena_at + LINE_BYTES,
            stripes: stripes.clamp(8, STRIPES_MAX),
        }
    }

    /// First byte of the arena behind it.
    pub(in crate::mapping) fn end(&self) -> u64 {
        self.stripes_at + self.stripes * 8
    }

    /// The word of a key whose hash is `hash`.
    fn stripe_at(&self, hash: u64) -> u64 {
        self.stripes_at + hash % self.stripes * 8
    }

    /// Finds a key without a lock. `look` looks for it, once.
    pub(in crate::mapping) fn find<M: Memories>(
        &self,
        core: &Core<M>,
        lines: &Lines,
        hash: u64,
        look: impl Fn() -> Option<Held>,
    ) -> Result<Option<Held>> {
        let stripe_at = self.stripe_at(hash);
        let mut tries = 0;
        let mut doubtful = None;
        loop {
            let before = core.arena.load(stripe_at, Ordering::Acquire) / MOVE;
            let found = look();
            let after = core.arena.load(stripe_at, Ordering::Acquire) / MOVE;
            match found {
                _ if before != after => {}
                Some(held) if lines.is_sound(&held) => return Ok(found),
                // The file's writer may have taken the key out and put it back meanwhile, between
                // the two looks at the first word. It is damage if it is so again.
                Some(held) if doubtful == found => return Err(Lines::unsound(held.at)),
                Some(_) => doubtful = found,
                None if before.is_multiple_of(2) => return Ok(None),
                None => {}
            }
            pause(&core.arena, &mut tries);
        }
    }

    /// Waits for the stripe of a key.
    pub(in crate::mapping) fn lock<'a, M: Memories>(
        &self,
        op: &'a Op<'_, M>,
        hash: u64,
    ) -> StripeLock<'a, M::Arena> {
        let arena = &op.core.arena;
        let at = self.stripe_at(hash);
        let mut tries = 0;
        loop {
            let seen = arena.load(at, Ordering::Relaxed);
            let free = seen & HOLDER_MASK == 0;
            let locked = seen | op.holder();
            if free && arena.compare_exchange(at, seen, locked).is_ok() {
                let word = locked;
                return StripeLock { arena, at, word };
            }
            pause(arena, &mut tries);
        }
    }

    /// Returns when everybody who held a stripe at the call has let go of it: whoever takes one
    /// later sees what the caller stored in the arena before.
    pub(in crate::mapping) fn wait_for_holders<M: Memories>(&self, op: &Op<'_, M>) {
        (0..self.stripes).for_each(|hash| drop(self.lock(op, hash)));
    }

    /// Waits until nobody reads the whole table, and lets nobody begin while `make` makes moves.
    pub(in crate::mapping) fn moving<M: Memories, T>(
        &self,
        core: &Core<M>,
        make: impl FnOnce() -> T,
    ) -> T {
        let mut tries = 0;
        loop {
            let seen = core.arena.load(self.gate_at, Ordering::Relaxed);
            let swapped = seen < READING
                && core
                    .arena
                    .compare_exchange(self.gate_at, seen, seen + MOVING)
                    .is_ok();
            if swapped {
                break;
            }
            pause(&core.arena, &mut tries);
        }
        let made = make();
        core.arena
            .fetch_add(self.gate_at, 0u64.wrapping_sub(MOVING));
        made
    }

    /// Runs `read` while no entry moves.
    pub(in crate::mapping) fn unmoved<M: Memories, T>(
        &self,
        core: &Core<M>,
        read: impl FnOnce() -> T,
    ) -> T {
        core.arena.fetch_add(self.gate_at, READING);
        let mut tries = 0;
        while !core
            .arena
            .load(self.gate_at, Ordering::Acquire)
            .is_multiple_of(READING)
        {
            pause(&core.arena, &mut tries);
        }
        let done = read();
        core.arena
            .fetch_add(self.gate_at, 0u64.wrapping_sub(READING));
        done
    }

    /// Whether nobody moves anything or reads everything.
    #[cfg(test)]
    pub(in crate::mapping) fn are_over<M: Memories>(&self, core: &Core<M>) -> bool {
        core.arena.load(self.gate_at, Ordering::Relaxed) == 0
    }
}

/// A stripe that an operation holds.
pub(in crate::mapping) struct StripeLock<'a, A: Memory> {
    arena: &'a A,
    at: u64,
    word: u64,
}

impl<A: Memory> StripeLock<'_, A> {
    /// A key of the stripe begins or ends a move.
    fn count_move(&mut self) {
        self.word = self.word.wrapping_add(MOVE);
        self.arena.store(self.at, self.word, Ordering::Release);
    }

    /// Moves the entry at `from`, whose key's stripe this is, to `to`, which was claimed for it;
    /// what it leaves says `left`. Durable by itself, first the copy and then the leaving, so that
    /// a crash leaves it in one place or in both, and once the stripe is free no copy can come back
    /// that is older than later changes.
    ///
    /// # Errors
    /// Bytes were lost, maybe the copy's: the entry is where it was, and `to` is free.
    pub(in crate::mapping) fn move_entry<M: Memories<Arena = A>>(
        &mut self,
        op: &Op<'_, M>,
        lines: &Lines,
        (from, to): (u64, u64),
        left: u64,
        sites: &MoveSites,
    ) -> Result<()> {
        let core = op.core;
        let (word, place) = (MapWord(core.word(from)), KeyedWord(core.word(from + 8)));
        self.count_move();
        lines.fill_entry(core, to, word, place, Some(sites.copy));
        core.pool.fence(sites.copy_durable);
        let taken = op.check_media();
        let (gone, says) = match taken {
            Ok(()) => (from, left),
            Err(_) => (to, MapWord::FREE.0),
        };
        core.set_word(gone, says);
        core.pool.flush(sites.leave, gone, 8);
        core.pool.fence(sites.leave_durable);
        self.count_move();
        taken
    }
}

impl<A: Memory> Drop for StripeLock<'_, A> {
    fn drop(&mut self) {
        let free = self.word & !HOLDER_MASK;
        self.arena.store(self.at, free, Ordering::Release);
    }
}

const _: () = assert!(ENTRY_BYTES * 4 == LINE_BYTES);
