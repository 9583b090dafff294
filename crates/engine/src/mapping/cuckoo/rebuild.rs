//! Reading the table when an opening finds no saved state, in an order in which each step can rely
//! on the one before:
//!
//! 1. Marks are cleared, and so are the entries that recovery frees. Every other entry must be
//!    sound and lie in a line of its key.
//! 2. If a crash left a key in both of its lines, the second entry is cleared.
//! 3. Blocks are counted as used, each by one entry. Following counts are cut where the next blocks
//!    do not adjoin, or do not record that they are counted.

use std::sync::atomic::Ordering;

use vellum_layout::{KeyedPlan, KeyedWord, RUN_COUNT_MAX};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent};

use super::Cuckoo;
use super::table::Table;
use crate::core::Core;
use crate::error::Result;
use crate::mapping::Survey;
use crate::mapping::keyed::lines::{Held, is_live};
use crate::mapping::keyed::rebuild::{Stored, drop_copies, each_live, judge, note_used};
use crate::sites;

/// Blocks whose owners are in memory at once (32 MiB).
const WINDOW_BLOCKS: u64 = 1 << 22;

impl Cuckoo {
    /// See [`crate::mapping::Mapping::rebuild`].
    pub(super) fn rebuild_allocator_state<M: Memories>(
        &self,
        core: &Core<M>,
        survey: &dyn Survey,
    ) -> Result<()> {
        let mut stored = Stored::new();
        let (lines, plan) = (&self.table.lines, KeyedPlan::Cuckoo(self.table.plan));
        judge(core, lines, &plan, survey, &mut stored)?;
        drop_copies(core, lines, &plan, &mut stored)?;
        self.blocks.begin_rebuild(core);
        let blocks = core.geometry.segment_blocks;
        for start in (0..blocks).step_by(WINDOW_BLOCKS as usize) {
            let len = WINDOW_BLOCKS.min(blocks - start);
            self.read_window(core, start, len, &mut stored)?;
        }
        self.blocks.end_rebuild(core);
        for line in stored {
            let at = lines.line_at(line);
            core.pool.flush(sites::RECOVER_CUCKOO, at, LINE_BYTES);
        }
        self.table.count_stash(core)
    }

    /// Does step 3 for the blocks from `start` on.
    fn read_window<M: Memories>(
        &self,
        core: &Core<M>,
        start: u64,
        len: u64,
        stored: &mut Stored,
    ) -> Result<()> {
        let (lines, plan) = (&self.table.lines, KeyedPlan::Cuckoo(self.table.plan));
        let mut owners = vec![0u64; len as usize];
        // How many blocks after each block it may count.
        let mut following = vec![u8::MAX; len as usize];
        let place = |held: &Held| {
            let place = u64::from(held.place.block()).checked_sub(start)?;
            (place < len && lines.is_sound(held)).then_some(place as usize)
        };
        each_live(core, lines, &plan, |_, held| {
            if let Some(place) = place(&held) {
                note_used(core, &self.blocks, &held)?;
                owners[place] = held.word.0;
                // The nearest block in front that this block does not know of; it may not count
                // this block, and neither may those before it.
                let preceding = held.place.preceding() as u8;
                if let Some(stranger) = place.checked_sub(usize::from(preceding) + 1) {
                    following[stranger] = following[stranger].min(preceding);
                }
            }
            Ok(())
        })?;
        following[owners.len() - 1] = 0;
        for i in (1..owners.len()).rev() {
            let is_followed = owners[i - 1] != 0 && owners[i - 1].wrapping_add(1) == owners[i];
            following[i - 1] = match is_followed {
                true => following[i - 1].min(following[i].saturating_add(1)),
                false => 0,
            };
        }
        each_live(core, lines, &plan, |line, held| {
            let Some(most) = place(&held).map(|place| following[place]) else {
                return Ok(());
            };
            if held.place.following() > most.into() {
                let (block, preceding) = (held.place.block(), held.place.preceding());
                let cut = KeyedWord::new(held.word.0, block, most.into(), preceding);
                core.set_word(held.at + 8, cut.0);
                stored.insert(line);
            }
            Ok(())
        })
    }
}

const _: () = assert!(RUN_COUNT_MAX == u8::MAX as u32);

impl Table {
    /// Counts the entries of the stash.
    pub(super) fn count_stash<M: Memories>(&self, core: &Core<M>) -> Result<()> {
        let mut stashed = 0;
        for line in self.stash() {
            self.lines.each_in(core, line, |held| {
                stashed += u64::from(is_live(held.word));
                Ok(())
            })?;
        }
        core.arena
            .store(self.stashed_at, stashed, Ordering::Release);
        Ok(())
    }
}
