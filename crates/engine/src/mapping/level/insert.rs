//! Finding an entry for a new key: a free one in its four lines, or one that another key leaves for
//! another line of its own, or one of a larger table, or one of the stash.
//!
//! An operation puts a key into a line under the key's stripe, and reads under it which levels
//! exist. So once every stripe that was locked has been unlocked, no operation still puts anything
//! into the previous bottom level.

use vellum_layout::{KeyedWord, LevelRoot, MapWord, PAIRS_PER_LINE};
use vellum_media::{Memories, Memory, Site};

use super::table::{Key, Table};
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::{Error, Result};
use crate::mapping::keyed::lines::{ENTRY_BYTES, is_live};
use crate::mapping::keyed::moves::MoveSites;
use crate::sites;

/// Entries freed, or levels added, that other operations use up before this one takes the stash.
const TRIES_MAX: u32 = 16;

const SITES: MoveSites = MoveSites {
    copy: sites::LEVEL_COPY,
    copy_durable: sites::LEVEL_COPY_DURABLE,
    leave: sites::LEVEL_LEAVE,
    leave_durable: sites::LEVEL_LEAVE_DURABLE,
};

/// The two levels that new keys enter.
pub(super) fn open_levels(levels: LevelRoot) -> [u32; 2] {
    [levels.top(), levels.top() - 1]
}

impl Table {
    /// Inserts a key that is not there.
    ///
    /// # Errors
    /// Fails with [`Error::NoSpace`] if there is no room in the largest table and the stash is
    /// full. Fails if bytes were lost.
    pub(super) fn insert<M: Memories>(
        &self,
        op: &Op<'_, M>,
        word: MapWord,
        place: KeyedWord,
        flush: Option<Site>,
    ) -> Result<()> {
        let key = self.key_of(word);
        self.move_on(op)?;
        for _ in 0..TRIES_MAX {
            let levels = self.levels(op.core);
            if self.put(op, &key, word, place, flush) {
                return Ok(());
            }
            if !self.make_room(op, &key)? && !self.grow(op, levels)? {
                break;
            }
        }
        self.put_into_stash(op, &key, word, place, flush)
    }

    /// Puts a key into one of its lines: the top level first, and the emptier line first. Returns
    /// `false` if they are full.
    fn put<M: Memories>(
        &self,
        op: &Op<'_, M>,
        key: &Key,
        word: MapWord,
        place: KeyedWord,
        flush: Option<Site>,
    ) -> bool {
        let core = op.core;
        let _lock = self.moves.lock(op, key.hash());
        let claimed = open_levels(self.levels(core))
            .into_iter()
            .find_map(|level| {
                let mut homes = self.homes(key, level);
                homes.sort_by_key(|&line| self.lines.free_in(core, line).count_zeros());
                homes
                    .into_iter()
                    .find_map(|line| self.lines.claim_in(core, line, key.word))
            });
        if let Some(at) = claimed {
            self.fill(core, at, word, place, flush);
        }
        claimed.is_some()
    }

    #[cold]
    fn put_into_stash<M: Memories>(
        &self,
        op: &Op<'_, M>,
        key: &Key,
        word: MapWord,
        place: KeyedWord,
        flush: Option<Site>,
    ) -> Result<()> {
        let _lock = self.moves.lock(op, key.hash());
        let at = self.claim_in_stash(op, key);
        let at = at.ok_or(Error::NoSpace("mapping table"))?;
        self.fill(op.core, at, word, place, flush);
        Ok(())
    }

    /// Fills an entry that was claimed for a key, of a level or of the stash.
    fn fill<M: Memories>(
        &self,
        core: &Core<M>,
        at: u64,
        word: MapWord,
        place: KeyedWord,
        flush: Option<Site>,
    ) {
        self.lines.fill_entry(core, at, word, place, flush);
    }

    /// Claims a free entry of the stash for a key. The caller holds the key's stripe.
    fn claim_in_stash<M: Memories>(&self, op: &Op<'_, M>, key: &Key) -> Option<u64> {
        let core = op.core;
        // The count is raised before any lookup can need it.
        core.arena.fetch_add(self.stashed_at, 1);
        let mut stash = self.plan.stash();
        let claimed = stash.find_map(|line| self.lines.claim_in(core, line, key.word));
        if claimed.is_none() {
            core.arena.fetch_add(self.stashed_at, u64::MAX);
        }
        claimed
    }

    /// Moves one entry of a key's lines away. Returns `false` if none can move.
    fn make_room<M: Memories>(&self, op: &Op<'_, M>, key: &Key) -> Result<bool> {
        self.moves.moving(op.core, || {
            let levels = self.levels(op.core);
            let homes = |level| self.homes(key, level);
            let lines = open_levels(levels).into_iter().flat_map(homes);
            for at in lines.flat_map(|line| self.entries_of(line)) {
                if self.move_away(op, levels, at)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Offsets of the entries of a line.
    pub(super) fn entries_of(&self, line: u64) -> impl Iterator<Item = u64> + use<> {
        let line_at = self.lines.line_at(line);
        (0..PAIRS_PER_LINE).map(move |place| line_at + place * ENTRY_BYTES)
    }

    /// Moves the contents of an entry to another line of its key. Returns `false` if the entry is
    /// empty or those lines are full.
    pub(super) fn move_away<M: Memories>(
        &self,
        op: &Op<'_, M>,
        levels: LevelRoot,
        at: u64,
    ) -> Result<bool> {
        let word = MapWord(op.core.word(at));
        if !is_live(word) {
            return Ok(false);
        }
        let key = self.key_of(word);
        let homes = |level| self.homes(&key, level);
        let here = self.lines.line_of(at);
        let targets = open_levels(levels).into_iter().flat_map(homes);
        for line in targets.filter(|&line| line != here) {
            if self.move_to(op, levels, at, &key, line)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves a key from an entry to a line. Returns `false` if the line is full, the key is no
    /// longer there, or the table has grown.
    fn move_to<M: Memories>(
        &self,
        op: &Op<'_, M>,
        levels: LevelRoot,
        at: u64,
        key: &Key,
        line: u64,
    ) -> Result<bool> {
        let core = op.core;
        if self.lines.free_in(core, line) == 0 {
            return Ok(false);
        }
        let mut lock = self.moves.lock(op, key.hash());
        if !self.is_at(op, key, at) || self.levels(core) != levels {
            return Ok(false);
        }
        let Some(to) = self.lines.claim_in(core, line, key.word) else {
            return Ok(false);
        };
        lock.move_entry(op, &self.lines, (at, to), MapWord::FREE.0, &SITES)?;
        Ok(true)
    }

    /// Moves the contents of an entry to the stash. Returns `false` if the stash is full or the
    /// entry is empty.
    #[cold]
    pub(super) fn move_to_stash<M: Memories>(&self, op: &Op<'_, M>, at: u64) -> Result<bool> {
        let key = self.key_of(MapWord(op.core.word(at)));
        let mut lock = self.moves.lock(op, key.hash());
        if !self.is_at(op, &key, at) {
            return Ok(false);
        }
        let Some(to) = self.claim_in_stash(op, &key) else {
            return Ok(false);
        };
        let moved = lock.move_entry(op, &self.lines, (at, to), MapWord::FREE.0, &SITES);
        if moved.is_err() {
            op.core.arena.fetch_add(self.stashed_at, u64::MAX);
        }
        moved.map(|()| true)
    }

    /// Whether a key is in an entry. The caller holds the key's stripe.
    fn is_at<M: Memories>(&self, op: &Op<'_, M>, key: &Key, at: u64) -> bool {
        let word = MapWord(op.core.word(at));
        is_live(word) && word.0 & MapWord::KEY_MASK == key.word
    }
}
