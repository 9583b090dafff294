//! Moves of entries from one line to another during lookups.
//!
//! A lookup may miss a moving key in all of its lines. So a key's *stripe*, a word of the arena,
//! counts each beginning and end of a move of one of its keys: it is odd during a move. A reader
//! that finds nothing accepts this only if the count is even and does not change. A reader that
//! finds the key compares too, so that the place it read belongs to the key that it saw.
//!
//! The stripe is also the lock for changes of its keys' entries; its lower bits name the thread
//! slot that holds it. Keys of one file have one writer, so the lock only excludes moves.
//!
//! A reader of the whole table goes through a *gate* that keeps moves out.

use std::sync::atomic::Ordering;

use vellum_layout::{KeyedWord, MapWord};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site};

use super::lines::{ENTRY_BYTES, Held, Lines};
use crate::core::Core;
use crate::core::slots::{Op, pause};
use crate::error::Result;

/// Maximum number of stripes.
const STRIPES_MAX: u64 = 1024;
/// Minimum number of a segment's blocks for each stripe.
const STRIPE_BLOCKS: u64 = 16;
/// The slot that holds a stripe; the count of moves is above it.
const HOLDER_MASK: u64 = 0xFFFF;
/// One beginning or end of a move.
const MOVE: u64 = HOLDER_MASK + 1;

/// One running move, in the lower half of the gate's word.
const MOVING: u64 = 1;
/// One reading of the whole table, which excludes moves, in the upper half.
const READING: u64 = 1 << 32;

/// Persistent steps of a move.
#[derive(Clone, Copy, Debug)]
pub(in crate::mapping) struct MoveSites {
    /// The store of the copy.
    pub(in crate::mapping) copy: Site,
    /// The fence before the old entry is cleared.
    pub(in crate::mapping) copy_durable: Site,
    /// The store to the first word of the old entry.
    pub(in crate::mapping) leave: Site,
    /// The fence before the key can change or be removed at its new entry.
    pub(in crate::mapping) leave_durable: Site,
}

/// The arena words for moves.
#[derive(Debug)]
pub(in crate::mapping) struct Moves {
    gate_at: u64,
    stripes_at: u64,
    /// Number of stripes, a power of two.
    stripes: u64,
}

impl Moves {
    /// The stripes and gate of a table of `blocks` blocks. Their part of the arena, zero at first,
    /// is at `arena_at`.
    pub(in crate::mapping) fn new(arena_at: u64, blocks: u64) -> Self {
        let stripes = (blocks / STRIPE_BLOCKS).next_power_of_two();
        Self {
            gate_at: arena_at,
            stripes_at: arena_at + LINE_BYTES,
            stripes: stripes.clamp(8, STRIPES_MAX),
        }
    }

    /// First arena offset after it.
    pub(in crate::mapping) fn end(&self) -> u64 {
        self.stripes_at + self.stripes * 8
    }

    /// The stripe of a key whose hash is `hash`.
    fn stripe_at(&self, hash: u64) -> u64 {
        self.stripes_at + hash % self.stripes * 8
    }

    /// Finds a key without a lock. `look` searches for it once.
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
                // The file's writer may have removed and reinserted the key between the two loads
                // of the first word. If the same happens again, it is damage.
                Some(held) if doubtful == found => return Err(Lines::unsound(held.at)),
                Some(_) => doubtful = found,
                None if before.is_multiple_of(2) => return Ok(None),
                None => {}
            }
            pause(&core.arena, &mut tries);
        }
    }

    /// Locks the stripe of a key, and waits for that if necessary.
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

    /// Waits until every stripe that is locked at the call has been unlocked. Later lockers see
    /// what the caller stored in the arena before.
    pub(in crate::mapping) fn wait_for_holders<M: Memories>(&self, op: &Op<'_, M>) {
        (0..self.stripes).for_each(|hash| drop(self.lock(op, hash)));
    }

    /// Waits until no operation reads the whole table, and keeps new readings out while `make`
    /// makes moves.
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

    /// Whether nothing moves and no operation reads the whole table.
    #[cfg(test)]
    pub(in crate::mapping) fn are_over<M: Memories>(&self, core: &Core<M>) -> bool {
        core.arena.load(self.gate_at, Ordering::Relaxed) == 0
    }
}

/// A stripe that an operation has locked.
pub(in crate::mapping) struct StripeLock<'a, A: Memory> {
    arena: &'a A,
    at: u64,
    word: u64,
}

impl<A: Memory> StripeLock<'_, A> {
    /// Counts the beginning or end of a move of a key of the stripe.
    fn count_move(&mut self) {
        self.word = self.word.wrapping_add(MOVE);
        self.arena.store(self.at, self.word, Ordering::Release);
    }

    /// Moves the entry at `from`, whose key belongs to this stripe, to `to`, which was claimed for
    /// it. The first word of the old entry becomes `left`. The copy is durable before the old entry
    /// changes, and both are durable at the return: a crash leaves the entry in one place or in
    /// both, and once the stripe is unlocked no old copy can reappear after later changes.
    ///
    /// # Errors
    /// Fails if bytes were lost, maybe those of the copy. Then the entry is where it was, and `to`
    /// is free.
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
