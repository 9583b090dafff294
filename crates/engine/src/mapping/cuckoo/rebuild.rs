//! Reading the table at an opening that nothing saved precedes, in an order in which each step can
//! rely on the one before:
//!
//! 1. Marks are cleared, and so is what recovery frees. Every other entry must be sound and lie
//!    where its key leads.
//! 2. A key that a crash left in both of its lines goes from the second.
//! 3. Blocks are counted as taken, each by one entry, and following counts are cut where the blocks
//!    behind do not follow.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use vellum_layout::{MapWord, PlaceWord, RUN_COUNT_MAX};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent};

use super::Cuckoo;
use super::table::{Held, Table, is_live};
use crate::core::Core;
use crate::error::Result;
use crate::mapping::{BlockNo, Survey, Verdict};
use crate::sites;

/// Blocks whose owners are held in memory at once (32 MiB).
const WINDOW_BLOCKS: u64 = 1 << 22;

/// Lines with words that were stored; flushed at the end, each once.
type Stored = BTreeSet<u64>;

impl Cuckoo {
    /// See [`crate::mapping::Mapping::rebuild`].
    pub(super) fn rebuild_aids<M: Memories>(
        &self,
        core: &Core<M>,
        survey: &dyn Survey,
    ) -> Result<()> {
        let mut stored = Stored::new();
        self.table.judge(core, survey, &mut stored)?;
        self.table.drop_copies(core, &mut stored)?;
        self.blocks.begin_rebuild(core);
        let blocks = core.geometry.zone_blocks;
        for start in (0..blocks).step_by(WINDOW_BLOCKS as usize) {
            let len = WINDOW_BLOCKS.min(blocks - start);
            self.read_window(core, start, len, &mut stored)?;
        }
        self.blocks.end_rebuild(core);
        for line in stored {
            let at = self.table.line_at(line);
            core.pool.flush(sites::RECOVER_CUCKOO, at, LINE_BYTES);
        }
        self.table.count_stash(core)
    }

    /// Step 3 for the blocks from `start` on.
    fn read_window<M: Memories>(
        &self,
        core: &Core<M>,
        start: u64,
        len: u64,
        stored: &mut Stored,
    ) -> Result<()> {
        let table = &self.table;
        let mut owners = vec![0u64; len as usize];
        let place = |held: &Held| {
            let place = u64::from(held.place.block()).checked_sub(start)?;
            (place < len).then_some(place as usize)
        };
        table.each_live(core, |_, held| {
            if let Some(place) = place(&held) {
                self.blocks.note_used(core, BlockNo(held.place.block()))?;
                owners[place] = held.word.0;
            }
            Ok(())
        })?;
        let mut following = vec![0u8; len as usize];
        for i in (1..owners.len()).rev() {
            if owners[i - 1] != 0 && owners[i - 1].wrapping_add(1) == owners[i] {
                following[i - 1] = following[i].saturating_add(1);
            }
        }
        table.each_live(core, |line, held| {
            let Some(most) = place(&held).map(|place| following[place]) else {
                return Ok(());
            };
            if held.place.following() > most.into() {
                let (block, preceding) = (held.place.block(), held.place.preceding());
                let cut = PlaceWord::new(held.word.0, block, most.into(), preceding);
                core.set_word(held.at + 8, cut.0);
                stored.insert(line);
            }
            Ok(())
        })
    }
}

const _: () = assert!(RUN_COUNT_MAX == u8::MAX as u32);

impl Table {
    /// Calls `each` with every entry whose key is in the table, and its line.
    fn each_live<M: Memories>(
        &self,
        core: &Core<M>,
        mut each: impl FnMut(u64, Held) -> Result<()>,
    ) -> Result<()> {
        for line in 0..self.plan.all_lines() {
            self.each_in(core, line, |held| {
                if is_live(held.word) {
                    each(line, held)
                } else {
                    Ok(())
                }
            })?;
        }
        Ok(())
    }

    /// Step 1.
    fn judge<M: Memories>(
        &self,
        core: &Core<M>,
        survey: &dyn Survey,
        stored: &mut Stored,
    ) -> Result<()> {
        for line in 0..self.plan.all_lines() {
            self.each_in(core, line, |held| {
                let word = held.word;
                let stays = is_live(word)
                    && survey.judge(word.id(), word.logical(), word.state()) == Verdict::Keep;
                if !stays {
                    core.set_word(held.at, MapWord::FREE.0);
                    stored.insert(line);
                    return Ok(());
                }
                let at_home = line >= self.plan.lines || self.key_of(word).homes.contains(&line);
                if at_home && self.is_sound(word, held.place) {
                    Ok(())
                } else {
                    Err(Self::unsound(held.at))
                }
            })?;
        }
        Ok(())
    }

    /// Step 2. The copies may differ in what an operation that was under way had not made durable,
    /// and either will do; but they are of one block.
    fn drop_copies<M: Memories>(&self, core: &Core<M>, stored: &mut Stored) -> Result<()> {
        self.each_live(core, |line, held| {
            let key = self.key_of(held.word);
            if key.homes[0] == line {
                return Ok(());
            }
            // A key of the stash looks in both of its lines.
            let others = key.homes.into_iter().filter(|&other| other != line);
            for other in others.take(if line < self.plan.lines { 1 } else { 2 }) {
                let Some(first) = self.look_in(core, &key, other) else {
                    continue;
                };
                if first.place.block() != held.place.block() || line >= self.plan.lines {
                    return Err(Self::unsound(held.at));
                }
                core.set_word(held.at, MapWord::FREE.0);
                stored.insert(line);
            }
            Ok(())
        })
    }

    /// Counts what is in the stash.
    pub(super) fn count_stash<M: Memories>(&self, core: &Core<M>) -> Result<()> {
        let mut stashed = 0;
        for line in self.stash() {
            self.each_in(core, line, |held| {
                stashed += u64::from(is_live(held.word));
                Ok(())
            })?;
        }
        core.arena
            .store(self.stashed_at, stashed, Ordering::Release);
        Ok(())
    }
}
