//! State-maps: which entries there are.
//!
//! A word of a map is of a group of slots, which several thread slots may have slots of. Who changes it holds the group, until the
//! change is durable: of stores past the cache by two processors the later one is the one behind a fence. A rename, whose
//! record names the whole word, holds it until the record is retired. A move stores in the cache, and holds it no longer: what it
//! does is done again after a crash.

use std::sync::atomic::Ordering;

use vellum_layout::{ChunkKind, EntryState, SLOTS_PER_BLOCK, StateMapWord};
use vellum_media::{Memories, Memory, Persistent, Site};

use crate::core::Core;
use crate::sites;
use crate::slots::{Op, pause};

/// Bytes of the arena for each group: who holds it, or 0.
pub(super) const GROUP_BYTES: u64 = 8;

/// Groups that are held, until this is dropped.
pub(crate) struct Held<'a, M: Memories> {
    core: &'a Core<M>,
    /// Arena offsets; 0: none.
    cells: [u64; 2],
}

impl<M: Memories> Drop for Held<'_, M> {
    fn drop(&mut self) {
        for &cell in self.cells.iter().filter(|&&cell| cell != 0) {
            self.core.arena.store(cell, 0, Ordering::Release);
        }
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
        let held = Held { core, cells };
        for &cell in held.cells.iter().filter(|&&cell| cell != 0) {
            let mut tries = 0;
            while core.arena.compare_exchange(cell, 0, self.holder()).is_err() {
                pause(&core.arena, &mut tries);
            }
        }
        held
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
