//! The table itself: the lines of a key, finding a key without a lock, changing it under one.

use std::sync::atomic::Ordering;

use vellum_layout::{CuckooPlan, Geometry, MapWord, STASH_LINES};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site};

use crate::core::Core;
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::MapId;
use crate::mapping::keyed::lines::{Held, Lines};
use crate::mapping::keyed::moves::Moves;
use crate::mapping::keyed::search::{Keyed, read_lines};

/// A table and its part of the arena.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) lines: Lines,
    pub(super) moves: Moves,
    pub(super) plan: CuckooPlan,
    seed: u64,
    /// Arena word: entries in the stash.
    pub(super) stashed_at: u64,
}

/// A key and the lines that may hold it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Mapping id and logical block.
    pub(super) word: u64,
    pub(super) homes: [u64; 2],
}

impl Table {
    /// The table of a pool. Its part of the arena, zero at first, is at `arena_at`.
    pub(super) fn new(arena_at: u64, geometry: &Geometry, seed: u64) -> Self {
        Self {
            lines: Lines {
                at: geometry.table_at,
                blocks: geometry.segment_blocks,
                have_counts: true,
            },
            moves: Moves::new(arena_at + LINE_BYTES, geometry.segment_blocks),
            plan: CuckooPlan::new(geometry.segment_blocks),
            seed,
            stashed_at: arena_at,
        }
    }

    /// First arena offset after the table's part.
    pub(super) fn arena_end(&self) -> u64 {
        self.moves.end()
    }

    pub(super) fn key(&self, id: MapId, logical: u32) -> Key {
        self.key_of(MapWord(MapWord::key(id, logical)))
    }

    /// The key of an entry.
    pub(super) fn key_of(&self, word: MapWord) -> Key {
        let word = word.0 & MapWord::KEY_MASK;
        Key {
            word,
            homes: self.plan.homes(self.seed, word),
        }
    }

    /// The lines of the stash.
    pub(super) fn stash(&self) -> impl Iterator<Item = u64> + use<> {
        self.plan.lines..self.plan.lines + STASH_LINES
    }

    /// Finds a key, without a lock.
    pub(super) fn find<M: Memories>(&self, core: &Core<M>, key: &Key) -> Result<Option<Held>> {
        let look = || self.look(core, key);
        self.moves.find(core, &self.lines, key.homes[0], look)
    }

    /// Searches a key's lines, and the stash unless it is empty.
    fn look<M: Memories>(&self, core: &Core<M>, key: &Key) -> Option<Held> {
        let look_in = |line| self.lines.look_in(core, key.word, line);
        let found = key.homes.into_iter().find_map(look_in);
        if found.is_none() && core.arena.load(self.stashed_at, Ordering::Acquire) != 0 {
            return self.stash().find_map(look_in);
        }
        found
    }

    /// Calls `change` with the entry of a key, which does not move meanwhile. The caller is the
    /// file's writer.
    pub(super) fn change<M: Memories, T>(
        &self,
        op: &Op<'_, M>,
        key: &Key,
        change: impl FnOnce(&Held) -> T,
    ) -> Result<Option<T>> {
        let lock = self.moves.lock(op, key.homes[0]);
        let Some(held) = self.look(op.core, key) else {
            return Ok(None);
        };
        if !self.lines.is_sound(&held) {
            return Err(Lines::unsound(held.at));
        }
        let done = change(&held);
        drop(lock);
        Ok(Some(done))
    }

    /// Removes a key. Flushes, and does not fence. The caller holds the key's lock.
    pub(super) fn clear<M: Memories>(&self, site: Site, core: &Core<M>, held: &Held) {
        core.set_word(held.at, MapWord::FREE.0);
        core.pool.flush(site, held.at, 8);
        if self.lines.line_of(held.at) >= self.plan.lines {
            core.arena.fetch_add(self.stashed_at, u64::MAX);
        }
    }
}

impl<M: Memories> Keyed<M> for Table {
    fn find_block(&self, core: &Core<M>, id: MapId, logical: u32) -> Result<Option<Held>> {
        self.find(core, &self.key(id, logical))
    }

    fn ask_for(&self, core: &Core<M>, id: MapId, logical: u32) {
        let first = self.key(id, logical).homes[0];
        core.pool.prefetch(self.lines.line_at(first));
    }

    fn lines_to_read(&self, _: &Core<M>) -> u64 {
        self.plan.all_lines()
    }

    fn each_entry(&self, core: &Core<M>, each: &mut dyn FnMut(Held) -> Result<bool>) -> Result<()> {
        let all = 0..self.plan.all_lines();
        self.moves
            .unmoved(core, || read_lines(core, &self.lines, all, each))
    }
}
