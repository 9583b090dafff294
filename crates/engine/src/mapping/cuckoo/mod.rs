//! The global cuckoo table (the file-mapping study, 3.2.1): every block of every file has an entry
//! in one of two lines that its key determines, so a lookup reads two lines at most, however full
//! the table is.
//!
//! * An entry is two words of one [line](crate::mapping::keyed::lines): the key, which makes it
//!   valid, and the place, which is stored before it. A line has four entries; the first line is
//!   preferred, so most lookups read one.
//! * A new key whose lines are full makes others [move](insert) to their other lines, along a short
//!   path that is found before anything changes.
//! * Entries are [ranged](counts). Each counts the blocks after it that follow it on the medium, so
//!   one probe finds a contiguous range. It also counts the blocks before it that may count it, so
//!   that those are found when it is removed.
//! * The [block allocator](crate::mapping::blocks) records which blocks are free. Freed blocks are
//!   in its limbo; their entries are free at once.
//!
//! Capacity: with every block in use, four fifths of the entries are full. At this load no key of
//! any practical pool is expected to lack a path. A stash of 32 entries takes such keys. It is read
//! only while a counter shows that it is not empty. With the stash full a write fails for lack of
//! space, as with no block left, until something is deleted.
//!
//! Deviations from the paper, and why: (1) Four entries a line instead of one an address: reading
//! the second to fourth costs nothing, and the table can be four fifths full instead of half. (2)
//! Moves are ordered by fences and each leaves the table sound, instead of an undo log around a
//! chain of them: a crash leaves at most one entry twice. (3) A lock for moving entries, which only
//! their file's writer and the mover take, and a count of moves for readers, instead of hardware
//! transactions. (4) Counts are bounds instead of exact numbers: otherwise each append would update
//! every entry of its run. They end at 255, so that removing a block from a run changes at most
//! this many entries. (5) A change of a block's state also ends a run, because an entry answers for
//! the state of the blocks that it counts.

mod counts;
mod insert;
mod rebuild;
mod table;

#[cfg(test)]
mod tests;

use vellum_layout::{Geometry, MapState};
use vellum_media::Memories;

use self::counts::Run;
use self::table::Table;
use super::blocks::Blocks;
use super::keyed::blocks::{self, Taken};
use super::keyed::search::Keyed;
use super::{Allocator, BlockNo, Flush, Found, MapId, Mapping, Reservation, Seek, Step, Survey};
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::Result;

/// The mapping of segment 0.
#[derive(Debug)]
pub(crate) struct Cuckoo {
    table: Table,
    blocks: Blocks,
}

impl Cuckoo {
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
}

/// Splits blocks of consecutive logical blocks into runs that adjoin on the medium.
fn runs(id: MapId, first: u32, blocks: &[BlockNo], state: MapState) -> impl Iterator<Item = Run> {
    let mut next = first;
    blocks.chunk_by(|a, b| a.0 + 1 == b.0).map(move |part| {
        let run = Run {
            id,
            first: next,
            block: part[0],
            blocks: part.len() as u32,
            state,
        };
        next = next.wrapping_add(run.blocks);
        run
    })
}

impl<M: Memories> Mapping<M> for Cuckoo {
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
        blocks::claim(keyed, op, (id, first), from, out, |taken: Taken| {
            let run = Run {
                id,
                first: taken.logical,
                block: taken.block,
                blocks: taken.blocks as u32,
                state: step.to,
            };
            let refused = |(error, without): (_, u32)| (error, taken.block, without.into());
            self.table.insert_run(op, &run, step).map_err(refused)
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
        self.table.cut_before(op, id, first)?;
        runs(id, first, blocks, step.to).try_for_each(|run| self.table.change_run(op, &run, step))
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
        if first >= end {
            return Ok(0);
        }
        self.table.cut_before(op, id, first as u32)?;
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
            let held = self.table.find(core, &self.table.key(id, logical))?;
            Ok(held.map_or(0, |held| u64::from(held.place.following()) + 1))
        })
    }

    fn restore(&self, core: &Core<M>) -> bool {
        self.table.count_stash(core).is_ok() && self.blocks.restore(core)
    }

    fn rebuild(&self, core: &Core<M>, survey: &dyn Survey) -> Result<()> {
        self.rebuild_allocator_state(core, survey)
    }
}
