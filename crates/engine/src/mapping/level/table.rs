//! The table itself: its levels, the lines of a key, finding a key without a lock, changing it
//! under one.

use std::sync::atomic::Ordering;

use vellum_layout::{Geometry, KeyedPlan, LevelPlan, LevelRoot, MapWord, MappingKind};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site};

use crate::core::Core;
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};
use crate::mapping::MapId;
use crate::mapping::keyed::lines::{Held, Lines, is_live};
use crate::mapping::keyed::moves::Moves;
use crate::mapping::keyed::search::{Keyed, read_lines};

/// A table and its part of the arena.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) lines: Lines,
    pub(super) moves: Moves,
    pub(super) plan: LevelPlan,
    seed: u64,
    /// Arena word: the current root. The root on the pool names a new level, durably, before this
    /// one does; it may still name an emptied level after this one does not.
    pub(super) levels_at: u64,
    /// Arena word: the thread slot that changes the root or empties a level, plus one.
    pub(super) grower_at: u64,
    /// Arena word: number of leading lines of the level being emptied that are empty.
    pub(super) emptied_at: u64,
    /// Arena word: entries in the stash.
    pub(super) stashed_at: u64,
}

/// A key and the lines that may hold it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Mapping id and logical block.
    pub(super) word: u64,
    hashes: [u64; 2],
}

impl Key {
    /// The hash that determines the key's stripe.
    pub(super) fn hash(&self) -> u64 {
        self.hashes[0]
    }
}

impl Table {
    /// The table of a pool. Its part of the arena, zero at first, is at `arena_at`.
    pub(super) fn new(arena_at: u64, geometry: &Geometry, seed: u64) -> Self {
        Self {
            lines: Lines {
                at: geometry.table_at,
                blocks: geometry.segment_blocks,
                have_counts: false,
            },
            moves: Moves::new(arena_at + 2 * LINE_BYTES, geometry.segment_blocks),
            plan: LevelPlan::new(geometry.segment_blocks),
            seed,
            levels_at: arena_at,
            stashed_at: arena_at + 8,
            grower_at: arena_at + LINE_BYTES,
            emptied_at: arena_at + LINE_BYTES + 8,
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
            hashes: LevelPlan::hashes(self.seed, word),
        }
    }

    /// The lines of a level that may hold a key.
    pub(super) fn homes(&self, key: &Key, level: u32) -> [u64; 2] {
        self.plan.homes_of(key.hashes, level)
    }

    /// Pool offset of the root.
    pub(super) fn root_at(&self) -> u64 {
        self.lines.at + LevelRoot::WORD
    }

    /// Reads the root from the pool.
    ///
    /// # Errors
    /// Fails if the root is damaged. A read-only opening instead infers the levels from their
    /// contents.
    pub(super) fn read_root<M: Memories>(&self, core: &Core<M>) -> Result<LevelRoot> {
        let word = |at| core.word(self.lines.at + at);
        let read = KeyedPlan::read(MappingKind::Level, self.lines.blocks, self.seed, word);
        match read {
            Some(KeyedPlan::Level(_, root))
                if core.read_only || root.0 == word(LevelRoot::WORD) =>
            {
                Ok(root)
            }
            _ => {
                let place = Location::Region("mapping table", self.root_at());
                Err(Error::damaged("root of a level table", place))
            }
        }
    }

    /// The levels in use.
    pub(super) fn levels<M: Memories>(&self, core: &Core<M>) -> LevelRoot {
        LevelRoot(core.arena.load(self.levels_at, Ordering::Acquire))
    }

    /// Starts with a root that the opening read, and counts the entries of the stash.
    pub(super) fn begin_with<M: Memories>(&self, core: &Core<M>, root: LevelRoot) -> Result<()> {
        let mut stashed = 0;
        for line in self.plan.stash() {
            self.lines.each_in(core, line, |held| {
                stashed += u64::from(is_live(held.word));
                Ok(())
            })?;
        }
        core.arena
            .store(self.stashed_at, stashed, Ordering::Relaxed);
        core.arena.store(self.emptied_at, 0, Ordering::Relaxed);
        core.arena.store(self.levels_at, root.0, Ordering::Release);
        Ok(())
    }

    /// Finds a key, without a lock.
    fn find<M: Memories>(&self, core: &Core<M>, key: &Key) -> Result<Option<Held>> {
        let look = || self.look(core, key);
        self.moves.find(core, &self.lines, key.hash(), look)
    }

    /// Searches a key's lines, and the stash unless it is empty.
    fn look<M: Memories>(&self, core: &Core<M>, key: &Key) -> Option<Held> {
        let look_in = |line| self.lines.look_in(core, key.word, line);
        let homes = |level| self.homes(key, level);
        let levels = self.levels(core).levels();
        let found = levels.flat_map(homes).find_map(look_in);
        if found.is_none() && core.arena.load(self.stashed_at, Ordering::Acquire) != 0 {
            return self.plan.stash().find_map(look_in);
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
        let lock = self.moves.lock(op, key.hash());
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
        if self.plan.stash().contains(&self.lines.line_of(held.at)) {
            core.arena.fetch_add(self.stashed_at, u64::MAX);
        }
    }
}

impl<M: Memories> Keyed<M> for Table {
    fn find_block(&self, core: &Core<M>, id: MapId, logical: u32) -> Result<Option<Held>> {
        self.find(core, &self.key(id, logical))
    }

    fn ask_for(&self, core: &Core<M>, id: MapId, logical: u32) {
        let key = self.key(id, logical);
        for line in self
            .levels(core)
            .levels()
            .flat_map(|level| self.homes(&key, level))
        {
            core.pool.prefetch(self.lines.line_at(line));
        }
    }

    fn lines_to_read(&self, core: &Core<M>) -> u64 {
        let levels = self.levels(core).levels();
        levels.map(|level| self.plan.first << level).sum()
    }

    fn each_entry(&self, core: &Core<M>, each: &mut dyn FnMut(Held) -> Result<bool>) -> Result<()> {
        self.moves.unmoved(core, || {
            let levels = self.levels(core).levels();
            let all = levels.flat_map(|level| self.plan.lines_of(level));
            read_lines(core, &self.lines, all.chain(self.plan.stash()), each)
        })
    }
}
