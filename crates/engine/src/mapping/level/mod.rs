//! Level hashing (Zuo, Hua, Wu: OSDI 2018), one table for all files: what the file-mapping study
//! (4.9) compares its own structures with. A general hash table for persistent memory, used
//! unchanged: nothing in it relies on its keys being blocks of files.
//!
//! * A [table](table) has two levels of lines, the bottom one half as long as the top one. A key
//!   has two lines in each, so a lookup reads four. Two lines of the top level share one below.
//! * An insertion takes a free entry of the emptier of the two top lines, else of the bottom ones;
//!   else it lets one entry of these four, and only one, [move](insert) to another of its own
//!   lines.
//! * A full table [grows](grow) in place: a level twice as long becomes the top one, the top one
//!   becomes the bottom one, and only the entries of the old bottom one move. They do so line by
//!   line, one with each insertion; lookups read six lines meanwhile.
//! * An entry is valid by its first word, which is stored last and holds key and state; no step
//!   needs a log. The [block allocator](crate::mapping::blocks) records which blocks are free.
//!
//! Capacity: the largest table has five entries for four blocks, and level hashing is known to fill
//! nine in ten. Keys without room there go to a stash of 32 entries, which is read only while a
//! counter shows that it is not empty. With the stash full a write fails for lack of space, as with
//! no block left, until something is deleted. Tables do not shrink.
//!
//! Deviations from the paper, and why: (1) A line of 64 bytes has four entries of 16 bytes, each
//! with its token in its first word, instead of a bucket of 128 bytes with a word of tokens: an
//! insertion flushes one line once. (2) The space of all possible levels is set aside when the pool
//! is formatted, instead of being allocated: growing cannot fail, in a full pool or a fragmented
//! one, and needs no step that exchanges pointers. (3) Many insertions empty the old bottom level,
//! not only the one that found no room: none waits long for a larger table. (4) Lookups take no
//! lock, and writers only that of their key, against moves: see
//! [`moves`](crate::mapping::keyed::moves). (5) An entry of the bottom level that makes room may
//! move to the top level at any time, not only after a growth. (6) Lookups read top lines first,
//! whichever level has more entries: there is no count for that.

mod grow;
mod insert;
mod rebuild;
mod table;

#[cfg(test)]
mod tests;

use vellum_layout::{Geometry, KeyedWord, MapWord};
use vellum_media::{Memories, Persistent};

use self::table::Table;
use super::blocks::Blocks;
use super::keyed::blocks::{self, Refused, Taken};
use super::keyed::lines::Lines;
use super::keyed::search::Keyed;
use super::{Allocator, BlockNo, Flush, Found, MapId, Mapping, Reservation, Seek, Step, Survey};
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::Result;

/// The mapping of segment 0.
#[derive(Debug)]
pub(crate) struct Level {
    table: Table,
    blocks: Blocks,
}

impl Level {
    /// The mapping of a pool. Its part of the arena, zero at first, is at `arena_at`.
    pub(crate) fn new(arena_at: u64, geometry: &Geometry, seed: u64) -> Self {
        let table = Table::new(arena_at, geometry, seed);
        let blocks = Blocks::new(table.arena_end(), geometry, geometry.blocks());
        Self { table, blocks }
    }

    /// Bytes of the arena that [`Self::new`] needs.
    pub(crate) fn arena_bytes(geometry: &Geometry) -> u64 {
        Self::new(0, geometry, 0).blocks.end()
    }

    /// Creates entries for blocks that were allocated to logical blocks of a file, all of them
    /// holes.
    fn enter<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        taken: Taken,
        step: Step,
    ) -> std::result::Result<(), Refused> {
        let logical = u64::from(taken.logical)..u64::from(taken.logical) + taken.blocks;
        for (done, (logical, block)) in (0..).zip(logical.zip(taken.block.0..)) {
            let word = MapWord::new(step.to, id, logical as u32);
            let place = KeyedWord::new(word.0, block, 0, 0);
            self.table
                .insert(op, word, place, step.site())
                .map_err(|error| (error, BlockNo(block), taken.blocks - done))?;
        }
        Ok(())
    }
}

impl<M: Memories> Mapping<M> for Level {
    fn allocator(&self) -> &dyn Allocator<M> {
        &self.blocks
    }

    fn lookup(&self, op: &Op<'_, M>, id: MapId, first: u32, out: &mut [Found]) -> Result<()> {
        self.table.lookup(op.core, id, first, out)
    }

    fn prefetch(&self, core: &Core<M>, id: MapId, logical: u32, _: u64) {
        self.table.ask_for(core, id, logical);
    }

    fn claim(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        step: Step,
        from: &mut Reservation,
        out: &mut [BlockNo],
    ) -> Result<()> {
        let keyed = (&self.table, &self.blocks);
        blocks::claim(keyed, op, (id, first), from, out, |taken| {
            self.enter(op, id, taken, step)
        })
    }

    fn set_state(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        blocks: &[BlockNo],
        step: Step,
    ) -> Result<()> {
        let core = op.core;
        for logical in (u64::from(first)..).take(blocks.len()) {
            let key = self.table.key(id, logical as u32);
            let changed = self.table.change(op, &key, |held| {
                core.set_word(held.at, held.word.with_state(step.to).0);
                if let Some(site) = step.site() {
                    core.pool.flush(site, held.at, 8);
                }
            })?;
            if changed.is_none() {
                return Err(Lines::unsound(self.table.lines.at));
            }
        }
        Ok(())
    }

    fn release(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        in_use: u64,
    ) -> Result<u64> {
        let keyed = (&self.table, &self.blocks);
        blocks::release(keyed, op, id, (first, end), in_use, |logical| {
            let key = self.table.key(id, logical);
            self.table.change(op, &key, |held| {
                self.table.clear(flush.site, op.core, held);
                BlockNo(held.place.block())
            })
        })
    }

    fn seek(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        what: Seek,
    ) -> Result<Option<u64>> {
        self.table.seek(op.core, id, first, end, what)
    }

    fn count(&self, op: &Op<'_, M>, id: MapId, end: u64) -> Result<u64> {
        let core = op.core;
        self.table.search(core, id, 0, end, u64::MAX, |logical| {
            let held = self.table.find_block(core, id, logical)?;
            Ok(held.is_some().into())
        })
    }

    fn save(&self, core: &Core<M>) -> Result<()> {
        self.blocks.save(core)?;
        self.table.end_if_empty(core)
    }

    fn restore(&self, core: &Core<M>) -> bool {
        let root = self.table.read_root(core);
        root.is_ok_and(|root| self.table.begin_with(core, root).is_ok())
            && self.blocks.restore(core)
    }

    fn rebuild(&self, core: &Core<M>, survey: &dyn Survey) -> Result<()> {
        self.rebuild_allocator_state(core, survey)
    }
}
