//! State-maps, which show which entries exist.
//!
//! A word of a map belongs to a group of slots, which several thread slots may share; a line of a
//! map belongs to eight groups. An operation that changes a word holds its line until the change is
//! durable. Otherwise two processors could store past the cache, and the later store need not be
//! the one that a fence covers. A rename, whose record contains the whole word, holds the line
//! until the record is retired. A move stores in the cache and releases the line at once, because
//! its stores are repeated after a crash.
//!
//! A creation stores the whole line past the cache, because on the medium a partial line takes half
//! as long again. What was stored this way is not read back, because that would wait for the medium
//! (decision 0003). Instead a copy of the line stays in the arena as long as only creations change
//! it.

use std::sync::atomic::Ordering;

use vellum_layout::{ChunkKind, EntryState, Geometry, SLOTS_PER_BLOCK, StateMapWord};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::core::slots::{Op, pause};
use crate::sites;

/// Words of a line.
const LINE_WORDS: usize = (LINE_BYTES / 8) as usize;
/// Bytes of the arena for each line: its holder, or 0. The second half holds a copy, if [`COPIED`]
/// is set.
const CELL_BYTES: u64 = 2 * LINE_BYTES;
/// Offset of the copy in these.
const COPY: u64 = LINE_BYTES;
/// Flag in the first of these words: the copy equals the line as it was stored last.
const COPIED: u64 = 1 << 63;

/// Size of the cells for all lines of a pool, in bytes of the arena.
pub(super) fn cell_bytes(geometry: &Geometry) -> u64 {
    let lines = geometry.meta_slots() / geometry.areas.slots_per_states_line();
    lines * CELL_BYTES
}

/// Lines of state-maps that are held until this is dropped.
pub(crate) struct Held<'a, M: Memories> {
    core: &'a Core<M>,
    /// Arena offsets of their cells; 0: none.
    cells: [u64; 2],
    /// The value that their first words get when they are released.
    left: u64,
}

impl<M: Memories> Drop for Held<'_, M> {
    fn drop(&mut self) {
        for &cell in self.cells.iter().filter(|&&cell| cell != 0) {
            self.core.arena.store(cell, self.left, Ordering::Release);
        }
    }
}

/// The states in one line of a map.
struct StatesLine([u64; LINE_WORDS]);

impl StatesLine {
    /// The line with `state` for metadata slot `entry`, whose word is at pool offset `at`.
    fn with(mut self, at: u64, entry: u64, state: EntryState) -> Self {
        let word = &mut self.0[(at % LINE_BYTES / 8) as usize];
        *word = StateMapWord(*word).with(entry, state).0;
        self
    }
}

impl<M: Memories> Held<'_, M> {
    /// Reads the only held line, at pool offset `line_at`: from its copy, if there is one.
    #[inline]
    fn line(&self, line_at: u64, has_copy: bool) -> StatesLine {
        let core = self.core;
        let mut words = [0; LINE_WORDS];
        for (place, word) in (0..).step_by(8).zip(&mut words) {
            *word = match has_copy {
                true => core
                    .arena
                    .load(self.cells[0] + COPY + place, Ordering::Relaxed),
                false => core.word(line_at + place),
            };
        }
        StatesLine(words)
    }

    /// Leaves a copy of the only held line, which is durable as it was stored last.
    #[inline]
    fn leave_copy(mut self, line: StatesLine) {
        let copy = self.cells[0] + COPY;
        for (place, word) in (0..).step_by(8).zip(line.0) {
            self.core.arena.store(copy + place, word, Ordering::Relaxed);
        }
        self.left = COPIED;
    }
}

impl<M: Memories> Core<M> {
    /// Pool offset of the word with the state of metadata slot `slot`, which lies in an areas
    /// chunk.
    pub(super) fn states_at(&self, slot: u64) -> u64 {
        self.geometry.meta_at + self.geometry.areas.states_at(slot)
    }

    /// The word with the state of metadata slot `slot`, which lies in an areas chunk.
    pub(super) fn states(&self, slot: u64) -> StateMapWord {
        StateMapWord(self.word(self.states_at(slot)))
    }

    /// Arena offset of the cell of the line with the state of metadata slot `slot`.
    fn states_cell(&self, slot: u64) -> u64 {
        self.map.namespace + slot / self.geometry.areas.slots_per_states_line() * CELL_BYTES
    }

    /// The first slots of the groups of all areas chunks.
    pub(super) fn groups(&self) -> impl Iterator<Item = u64> {
        let slots = |chunk| self.geometry.slots_of_chunk(chunk);
        let chunks = self.chunks_of(ChunkKind::Areas);
        chunks.flat_map(move |chunk| slots(chunk).step_by(SLOTS_PER_BLOCK as usize))
    }
}

impl<'a, M: Memories> Op<'a, M> {
    /// Holds the lines with the states of one or two entries. They are taken in ascending order, so
    /// that two operations cannot wait for each other; a holder waits for nothing else.
    pub(super) fn hold_states(&self, entries: &[u64]) -> Held<'a, M> {
        let core = self.core;
        let cells = || entries.iter().map(|&entry| core.states_cell(entry));
        let (low, high) = (cells().min().unwrap_or(0), cells().max().unwrap_or(0));
        let cells = [low, if high == low { 0 } else { high }];
        for cell in cells.into_iter().filter(|&cell| cell != 0) {
            self.hold_line(cell);
        }
        Held {
            core,
            cells,
            left: 0,
        }
    }

    /// Holds the line with this cell. Returns whether there is a copy of it.
    fn hold_line(&self, cell: u64) -> bool {
        let arena = &self.core.arena;
        let mut tries = 0;
        loop {
            let free = arena.load(cell, Ordering::Relaxed) & COPIED;
            if arena.compare_exchange(cell, free, self.holder()).is_ok() {
                return free == COPIED;
            }
            pause(arena, &mut tries);
        }
    }

    /// Stores the state of a written entry, durably.
    #[track_caller]
    pub(super) fn commit_state(&self, durable: Site, entry: u64) {
        let core = self.core;
        let cell = core.states_cell(entry);
        let has_copy = self.hold_line(cell);
        let held = Held {
            core,
            cells: [cell, 0],
            left: 0,
        };
        let at = core.states_at(entry);
        let line_at = at / LINE_BYTES * LINE_BYTES;
        let line = held.line(line_at, has_copy);
        let line = line.with(at, entry, EntryState::Cold);
        core.pool
            .write_through(sites::NAME_STATE, line_at, line.0.as_bytes());
        core.pool.fence(durable);
        held.leave_copy(line);
    }

    /// Stores a state for entries. Flushed, not fenced.
    #[track_caller]
    pub(super) fn give_states(&self, site: Site, mut entries: Vec<u64>, state: EntryState) {
        let core = self.core;
        entries.sort_unstable();
        for group in entries.chunk_by(|a, b| a / SLOTS_PER_BLOCK == b / SLOTS_PER_BLOCK) {
            let _held = self.hold_states(&group[..1]);
            let with = |word: StateMapWord, &slot: &u64| word.with(slot, state);
            let word = group.iter().fold(core.states(group[0]), with);
            let at = core.states_at(group[0]);
            core.set_word(at, word.0);
            core.pool.flush(site, at, 8);
        }
    }

    /// Clears the states of entries, durably.
    pub(super) fn clear_states(&self, entries: &[(u64, u64)]) {
        let core = self.core;
        let mut slots: Vec<u64> = entries.iter().map(|&(slot, _)| slot).collect();
        slots.sort_unstable();
        for group in slots.chunk_by(|a, b| a / SLOTS_PER_BLOCK == b / SLOTS_PER_BLOCK) {
            let _held = self.hold_states(&group[..1]);
            let none = |word: StateMapWord, &slot: &u64| word.with(slot, EntryState::None);
            let word = group.iter().fold(core.states(group[0]), none);
            let at = core.states_at(group[0]);
            core.pool.store_through(sites::RECYCLE_STATES, at, word.0);
            core.pool.fence(sites::RECYCLE_STATES_DURABLE);
        }
    }
}
