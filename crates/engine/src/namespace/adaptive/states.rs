//! State-maps: which entries there are.
//!
//! A word of a map is of a group of slots, which several thread slots may have slots of. Who changes it holds the group, until the
//! change is durable: of stores past the cache by two processors the later one is the one behind a fence. A rename, whose
//! record names the whole word, holds it until the record is retired. A move stores in the cache, and holds it no longer: what it
//! does is done again after a crash.
//!
//! A word that went past the cache is not read back, which would wait for the medium (decision 0003): while creations alone change a
//! group, a copy of its word stays in the arena.

use std::sync::atomic::Ordering;

use vellum_layout::{ChunkKind, EntryState, SLOTS_PER_BLOCK, StateMapWord};
use vellum_media::{Memories, Memory, Persistent, Site};

use crate::core::Core;
use crate::sites;
use crate::slots::{Op, pause};

/// Bytes of the arena for each group: who holds it, or 0; a copy of its word, if [`COPIED`] says so.
pub(super) const GROUP_BYTES: u64 = 16;
/// In the first of these words: the second one is the group's word as it was stored last.
const COPIED: u64 = 1 << 63;

/// Groups that are held, until this is dropped.
pub(crate) struct Held<'a, M: Memories> {
    core: &'a Core<M>,
    /// Arena offsets; 0: none.
    cells: [u64; 2],
    /// What their first words are to be.
    left: u64,
}

impl<M: Memories> Drop for Held<'_, M> {
    fn drop(&mut self) {
        for &cell in self.cells.iter().filter(|&&cell| cell != 0) {
            self.core.arena.store(cell, self.left, Ordering::Release);
        }
    }
}

impl<M: Memories> Held<'_, M> {
    /// Leaves a copy of the word of the only group that is held: as it was stored last, and durable.
    fn leave_copy(mut self, states: StateMapWord) {
        let copy = self.cells[0] + 8;
        self.core.arena.store(copy, states.0, Ordering::Relaxed);
        self.left = COPIED;
    }
}

impl<M: Memories> Core<M> {
    /// Pool offset of the word with the state of metadata slot `slot`, which lies in an areas chunk.
    pub(super) fn states_at(&self, slot: u64) -> u64 {
        self.geometry.meta_at + self.geometry.areas.states_at(slot)
    }

    /// The word with the state of metadata slot `slot`, which lies in an areas chunk.
    pub(super) fn states(&self, slot: u64) -> StateMapWord {
        StateMapWord(self.word(self.states_at(slot)))
    }

    /// The first slots of the groups of all areas chunks.
    pub(super) fn groups(&self) -> impl Iterator<Item = u64> {
        let groups = (0..self.geometry.meta_slots()).step_by(SLOTS_PER_BLOCK as usize);
        groups.filter(|&slot| self.kind_of_slot(slot.max(1)) == Some(ChunkKind::Areas))
    }
}

impl<'a, M: Memories> Op<'a, M> {
    /// Holds the groups of one or two entries. They come in the order of their numbers, so that two operations cannot wait for
    /// each other; who holds one waits for nothing else.
    pub(super) fn hold_groups(&self, entries: &[u64]) -> Held<'a, M> {
        let core = self.core;
        let cells = || {
            let cell = |entry| core.map.namespace + entry / SLOTS_PER_BLOCK * GROUP_BYTES;
            entries.iter().copied().map(cell)
        };
        let (low, high) = (cells().min().unwrap_or(0), cells().max().unwrap_or(0));
        let cells = [low, if high == low { 0 } else { high }];
        for cell in cells.into_iter().filter(|&cell| cell != 0) {
            self.hold_group(cell);
        }
        Held {
            core,
            cells,
            left: 0,
        }
    }

    /// Holds the group with this cell; gives the copy of its word, if there is one.
    fn hold_group(&self, cell: u64) -> Option<StateMapWord> {
        let arena = &self.core.arena;
        let mut tries = 0;
        loop {
            let free = arena.load(cell, Ordering::Relaxed) & COPIED;
            if arena.compare_exchange(cell, free, self.holder()).is_ok() {
                let copy = || StateMapWord(arena.load(cell + 8, Ordering::Relaxed));
                return (free == COPIED).then(copy);
            }
            pause(arena, &mut tries);
        }
    }

    /// Gives an entry that was written a state, durably.
    #[track_caller]
    pub(super) fn commit_state(&self, durable: Site, entry: u64) {
        let core = self.core;
        let cell = core.map.namespace + entry / SLOTS_PER_BLOCK * GROUP_BYTES;
        let copy = self.hold_group(cell);
        let held = Held {
            core,
            cells: [cell, 0],
            left: 0,
        };
        let states = copy.unwrap_or_else(|| core.states(entry));
        let states = states.with(entry, EntryState::Cold);
        let at = core.states_at(entry);
        core.pool.store_through(sites::NAME_STATE, at, states.0);
        core.pool.fence(durable);
        held.leave_copy(states);
    }

    /// Gives entries a state. Flushed, not fenced.
    #[track_caller]
    pub(super) fn give_states(&self, site: Site, mut entries: Vec<u64>, state: EntryState) {
        let core = self.core;
        entries.sort_unstable();
        for group in entries.chunk_by(|a, b| a / SLOTS_PER_BLOCK == b / SLOTS_PER_BLOCK) {
            let _held = self.hold_groups(&group[..1]);
            let with = |word: StateMapWord, &slot: &u64| word.with(slot, state);
            let word = group.iter().fold(core.states(group[0]), with);
            let at = core.states_at(group[0]);
            core.set_word(at, word.0);
            core.pool.flush(site, at, 8);
        }
    }

    /// Takes the states of entries away, durably.
    pub(super) fn clear_states(&self, entries: &[(u64, u64)]) {
        let core = self.core;
        let mut slots: Vec<u64> = entries.iter().map(|&(slot, _)| slot).collect();
        slots.sort_unstable();
        for group in slots.chunk_by(|a, b| a / SLOTS_PER_BLOCK == b / SLOTS_PER_BLOCK) {
            let _held = self.hold_groups(&group[..1]);
            let none = |word: StateMapWord, &slot: &u64| word.with(slot, EntryState::None);
            let word = group.iter().fold(core.states(group[0]), none);
            let at = core.states_at(group[0]);
            core.pool.store_through(sites::RECYCLE_STATES, at, word.0);
            core.pool.fence(sites::RECYCLE_STATES_DURABLE);
        }
    }
}
