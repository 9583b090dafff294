//! Ranged entries: how many neighbours of a block adjoin it on the medium too.
//!
//! The *following* count is for lookups: the entry of block `n` answers for `n` to `n + following`.
//! It is a lower bound: a growing file updates only the first entry of its last run and writes the
//! new ones. The *preceding* count is for changes: entries that may count a block as following are
//! at most this many before it, so it is an upper bound.
//!
//! While files are in use no count ever claims too much: an operation that removes a block or
//! changes its state first cuts the counts that reach it, and new entries are written from the last
//! to the first. On the medium the lines of a range become durable in any order, between two
//! fences, and an entry may arrive with the counts of its next state, because its place is stored
//! first. So recovery compares every following count with the blocks after it. It cuts the count
//! where they are missing, or where their preceding counts do not reach back.
//! there, or where their preceding counts do not reach back.

use vellum_layout::{KeyedWord, MapState, MapWord, RUN_COUNT_MAX};
use vellum_media::{Memories, Persistent};

use super::table::Table;
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::keyed::lines::{Held, Lines};
use crate::mapping::{BlockNo, MapId, Step};
use crate::sites;

/// A run of blocks of a file that adjoin on the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) id: MapId,
    pub(super) first: u32,
    pub(super) block: BlockNo,
    pub(super) blocks: u32,
    pub(super) state: MapState,
}

impl Run {
    fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.blocks)
    }

    /// The words of the entry of block `i` of this run, which belongs to a longer run that begins
    /// at logical block `base`.
    fn entry(&self, i: u32, base: u32) -> (MapWord, KeyedWord) {
        let logical = self.first + i;
        let word = MapWord::new(self.state, self.id, logical);
        let (following, preceding) = (self.blocks - 1 - i, logical - base);
        let place = KeyedWord::new(word.0, self.block.0 + i, following, preceding);
        (word, place)
    }
}

impl Table {
    /// Stores counts into an entry. Flushes, and does not fence. The caller holds the key's lock.
    fn set_counts<M: Memories>(&self, op: &Op<'_, M>, held: &Held, following: u32, preceding: u32) {
        let place = KeyedWord::new(held.word.0, held.place.block(), following, preceding);
        op.core.set_word(held.at + 8, place.0);
        op.core.pool.flush(sites::CUCKOO_COUNTS, held.at + 8, 8);
    }

    /// Cuts the counts of entries before logical block `first` that reach it.
    pub(super) fn cut_before<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
    ) -> Result<()> {
        let Some(mut next) = self.find(op.core, &self.key(id, first))? else {
            return Ok(());
        };
        for back in 1..=next_preceding(&next, first) {
            let key = self.key(id, first - back);
            let before = self.change(op, &key, |held| {
                if held.place.following() >= back {
                    self.set_counts(op, held, back - 1, held.place.preceding());
                }
                *held
            })?;
            match before {
                Some(held) if held.is_before(&next) => next = held,
                // No entry before a gap counts a block after it.
                _ => break,
            }
        }
        Ok(())
    }

    /// The first logical block of the run that `run` continues, whose first entry shall count it.
    /// That of `run` itself if there is no such run.
    pub(super) fn base_of<M: Memories>(&self, op: &Op<'_, M>, run: &Run) -> Result<u32> {
        let find = |logical| self.find(op.core, &self.key(run.id, logical));
        let Some(last) = run.first.checked_sub(1) else {
            return Ok(run.first);
        };
        let begins = run.entry(0, run.first);
        let begins = Held {
            at: 0,
            word: begins.0,
            place: begins.1,
        };
        let Some(before) = find(last)?.filter(|held| held.is_before(&begins)) else {
            return Ok(run.first);
        };
        let back = next_preceding(&before, last);
        if back >= RUN_COUNT_MAX {
            // That run's first entry already has the maximum count.
            return Ok(run.first);
        }
        let head = find(last - back)?.filter(|head| {
            let same = head.word.0 + u64::from(back) == before.word.0
                && head.place.block() + back == before.place.block();
            same && head.place.following() >= back
        });
        Ok(if head.is_some() { last - back } else { last })
    }

    /// Inserts the entries of a new run, and updates the count of the run that it continues.
    ///
    /// # Errors
    /// On an error, also returns how many blocks, from the first on, have no entry.
    pub(super) fn insert_run<M: Memories>(
        &self,
        op: &Op<'_, M>,
        run: &Run,
        step: Step,
    ) -> std::result::Result<(), (crate::error::Error, u32)> {
        let base = self.base_of(op, run).map_err(|error| (error, run.blocks))?;
        for i in (0..run.blocks).rev() {
            let (word, place) = run.entry(i, base);
            let key = self.key_of(word);
            self.insert(op, &key, word, place, step.site())
                .map_err(|error| (error, i + 1))?;
        }
        self.tell_base(op, run, base).map_err(|error| (error, 0))
    }

    /// Changes the state of a run. All its entries exist, and no entry before it counts them.
    pub(super) fn change_run<M: Memories>(
        &self,
        op: &Op<'_, M>,
        run: &Run,
        step: Step,
    ) -> Result<()> {
        let base = self.base_of(op, run)?;
        for i in (0..run.blocks).rev() {
            let (word, place) = run.entry(i, base);
            let changed = self.change(op, &self.key_of(word), |held| {
                // A crash may undo the cut of an earlier entry's count, and with it this change of
                // state. So the larger preceding count stays.
                let preceding = place.preceding().max(held.place.preceding());
                let place = KeyedWord::new(word.0, place.block(), place.following(), preceding);
                self.lines
                    .fill_entry(op.core, held.at, word, place, step.site());
            })?;
            if changed.is_none() {
                return Err(Lines::unsound(self.lines.at));
            }
        }
        self.tell_base(op, run, base)
    }

    /// Makes the first entry of the run that `run` continues count it.
    fn tell_base<M: Memories>(&self, op: &Op<'_, M>, run: &Run, base: u32) -> Result<()> {
        if base == run.first {
            return Ok(());
        }
        let following = (run.end() - 1 - u64::from(base)).min(RUN_COUNT_MAX.into()) as u32;
        self.change(op, &self.key(run.id, base), |head| {
            self.set_counts(op, head, following, head.place.preceding());
        })?;
        Ok(())
    }
}

/// The maximum distance of entries before `logical` that may count it.
fn next_preceding(held: &Held, logical: u32) -> u32 {
    held.place.preceding().min(logical)
}
