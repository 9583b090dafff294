//! Saving the allocator state at a clean close, and loading it instead of reading the table
//! (`vellum_layout::SavedStatePlan` has the format, [`saved_state`] the part that all mappings
//! share).

use std::sync::atomic::Ordering;

use vellum_layout::{ChainLink, SavedStateHead};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent};
use zerocopy::IntoBytes;

use super::HashFs;
use crate::core::Core;
use crate::error::Result;
use crate::mapping::saved_state::{self, Writer, for_parts};
use crate::sites;

impl HashFs {
    /// Saves the allocator state of a segment on which no operation runs, so that no block is in
    /// limbo. Durable at the next fence, together with the FREE words that were not flushed when
    /// they were stored.
    ///
    /// # Errors
    /// Fails with [`crate::error::Error::Busy`] if blocks are in limbo, because an operation runs
    /// or broke off: the saved state would count them as used for ever.
    pub(super) fn save_state<M: Memories>(&self, core: &Core<M>) -> Result<()> {
        self.space.check_settled(core)?;
        self.flush_freed(core);
        if core.blocks() > self.home_blocks {
            // Only the state of segment 0 has a place on the pool: the next opening reads the
            // table.
            return Ok(());
        }
        let mut out = Writer::new(core, &self.saved_state, &self.bitmap);
        for index in 0..self.saved_state.count_words() {
            out.push(self.overflow.count_word(&core.arena, index));
        }
        let displaced = self.save_chains(core, &mut out);
        let used = core.blocks() - self.space.free(core);
        out.finish(used, displaced);
        Ok(())
    }

    /// Writes the chain map and the chains. Returns the number of blocks on chains.
    fn save_chains<M: Memories>(&self, core: &Core<M>, out: &mut Writer<'_, M>) -> u64 {
        let chains = self.saved_state.chains();
        for first in (0..chains).step_by(64) {
            let used = |chain: &u64| self.overflow.chain(&core.arena, *chain).next().is_some();
            let map = (first..chains.min(first + 64)).filter(used);
            out.push(map.fold(0, |map, chain| map | 1 << (chain % 64)));
        }
        let (mut displaced, mut half) = (0u64, 0);
        for chain in 0..chains {
            let mut blocks = self.overflow.chain(&core.arena, chain).peekable();
            while let Some(block) = blocks.next() {
                let link = ChainLink::new(block, blocks.peek().is_none());
                half |= u64::from(link.0) << (displaced % 2 * 32);
                displaced += 1;
                if displaced.is_multiple_of(2) {
                    out.push(std::mem::take(&mut half));
                }
            }
        }
        if displaced % 2 == 1 {
            out.push(half);
        }
        displaced
    }

    /// Flushes the lines with words that went from LIMBO to FREE by a plain store.
    fn flush_freed<M: Memories>(&self, core: &Core<M>) {
        for index in 0..self.lines(core).div_ceil(64) {
            let mut lines = core
                .arena
                .load(self.freed_at + index * 8, Ordering::Acquire);
            while lines != 0 {
                let line = index * 64 + u64::from(lines.trailing_zeros());
                let at = self.line_at(line);
                core.pool.flush(sites::CLOSE_FREED, at, LINE_BYTES);
                lines &= lines - 1;
            }
        }
    }

    /// Records that the line of `block` has a FREE word that is not flushed.
    pub(super) fn note_freed<M: Memories>(&self, core: &Core<M>, block: u32) {
        let line = u64::from(block) / vellum_layout::LINE_ENTRIES;
        let (at, bit) = (self.freed_at + line / 64 * 8, 1 << (line % 64));
        if core.arena.load(at, Ordering::Relaxed) & bit == 0 {
            core.arena.fetch_or(at, bit);
        }
    }

    /// Fills the arena's state, which is zero, from what the last close saved. Returns `false`,
    /// with nothing filled, if the saved state is not sound.
    pub(super) fn restore_state<M: Memories>(&self, core: &Core<M>) -> bool {
        let saved = self
            .read_saved(core)
            .filter(|_| core.blocks() == self.home_blocks);
        let Some(head) = saved else {
            return false;
        };
        let (arena, mut index) = (&core.arena, 0);
        saved_state::fill_bitmap(core, &self.saved_state, &self.bitmap);
        for_parts(
            core,
            self.saved_state.counts_at(),
            self.saved_state.count_words(),
            |part| {
                for &word in part {
                    self.overflow.set_count_word(arena, index, word);
                    index += 1;
                }
            },
        );
        self.walk_chains(core, head.displaced, |chain, before, block| {
            self.overflow.lay(arena, chain, before, block);
            true
        });
        self.bitmap.summarise(arena, core.blocks());
        self.space.set_free(core, core.blocks() - head.used);
        true
    }

    /// The head of the saved state, if all of it is sound and belongs to the last close.
    fn read_saved<M: Memories>(&self, core: &Core<M>) -> Option<SavedStateHead> {
        let head = saved_state::read_head(core, &self.saved_state)?;
        // No address, length or loop bound below may rely on a checksum, so the chains are checked
        // too.
        let mut seen = vec![0u64; self.saved_state.free_words() as usize];
        let once = self.walk_chains(core, head.displaced, |_, _, block| {
            let (index, bit) = ((block / 64) as usize, 1 << (block % 64));
            let new = u64::from(block) < core.blocks() && seen[index] & bit == 0;
            if new {
                seen[index] |= bit;
            }
            new
        });
        once.then_some(head)
    }

    /// Calls `each` for every saved block on a chain, chain by chain, with the chain and the block
    /// before it. Returns `false` if `each` does, or if map and chains contradict each other.
    fn walk_chains<M: Memories>(
        &self,
        core: &Core<M>,
        displaced: u64,
        mut each: impl FnMut(u64, Option<u32>, u32) -> bool,
    ) -> bool {
        let mut map = vec![0u64; self.saved_state.map_words() as usize];
        core.pool
            .read(self.saved_state.map_at(), map.as_mut_bytes());
        let mut chains = (0..self.saved_state.chains())
            .filter(|&chain| map[(chain / 64) as usize] >> (chain % 64) & 1 == 1);
        let (mut chain, mut before) = (chains.next(), None);
        let (mut left, mut sound) = (displaced, true);
        for_parts(
            core,
            self.saved_state.links_at(),
            displaced.div_ceil(2),
            |part| {
                let links = part
                    .iter()
                    .flat_map(|word| [*word as u32, (word >> 32) as u32]);
                for link in links
                    .map(ChainLink)
                    .take(left.min(2 * part.len() as u64) as usize)
                {
                    left -= 1;
                    let block = link.block();
                    sound = sound && chain.is_some_and(|chain| each(chain, before, block));
                    before = Some(block);
                    if link.is_last() {
                        (chain, before) = (chains.next(), None);
                    }
                }
            },
        );
        sound && chain.is_none() && before.is_none()
    }
}
