//! HashFS (the file-mapping study, 3.2.2), made safe: one table of 8-byte entries whose index is
//! the data block, so that inserting a mapping also allocates the block.
//!
//! * The *home line* of a run of 8 logical blocks is one cache line of the table. A block prefers
//!   the entry `logical % 8` in it, so a run is usually 32 KiB in one piece and is found by one
//!   comparison of one line. That is the format's R = 8. With R = 1, kept for the experiments, a
//!   run is one block, which prefers the entry that its hash points at: the paper's placement.
//! * The home lines of a *span*, 16 consecutive runs of a file, follow each other, so that half a
//!   megabyte usually lies in one piece. Spans of one line, whose runs lie apart, are kept for the
//!   experiments and for pools formatted before longer spans existed.
//! * A block whose home line is full gets a free entry nearby and is *displaced*: the [overflow
//!   index](overflow) in the arena records it. A miss ends at a home line without displaced blocks.
//!   FREE never ends a search, so there are no tombstones, and churn costs nothing.
//! * A compare-and-swap from FREE decides which operation gets a block. Entries never move.
//! * Space is reserved before the search for it. A [free bitmap](super::bitmap) bounds the search.
//! * A freed block is in [limbo](super::limbo) until no operation can still be reading it.
//!
//! The table alone is authoritative. The mapping's part of the arena only speeds up searches and
//! allocation; it is [saved](saved) at a clean close or [rebuilt](rebuild) from the table.
//!
//! Deviations from the paper, and why: (1) state bits in the entry, because an entry must be
//! durable before the data is, without exposing the block's previous contents; (2) lines with an
//! overflow index instead of linear probing, whose deletions need tombstones that lengthen every
//! later miss; (3) by default runs of 8 share a line and spans share a hash, so that large I/O
//! costs a line for 32 KiB, where the paper vectorises one hash for each block. With spans of one
//! line several runs are still hashed together, eight at a time, see [`search`].

mod overflow;
mod place;
mod rebuild;
mod saved;
mod scatter;
mod search;
mod words;

#[cfg(test)]
mod churn;
#[cfg(test)]
pub(crate) mod harness;
#[cfg(test)]
mod tests;

use std::ops::Range;

use vellum_layout::{
    BLOCK_BYTES, Geometry, LINE_ENTRIES, MapState, MapWord, SavedStatePlan, TablePlan,
};
use vellum_media::{Isa, LINE_BYTES, Memories, Memory, Persistent};

use self::overflow::Overflow;
use self::scatter::Scatter;
pub(crate) use self::scatter::WHOLE;
use self::words::AddedWords;
use super::bitmap::FreeBitmap;
use super::limbo::Batch;
use super::space::Space;
use super::{BlockNo, BlockUsage, Flush, Found, MapId, Mapping, Reservation, Seek, Step, Survey};
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::Result;
use crate::sites;

/// Lines of data prefetched before their address is certain.
const PREFETCH_LINES: u64 = 16;

/// The mapping of a pool.
#[derive(Debug)]
pub(crate) struct HashFs {
    table_at: u64,
    /// Locates the words of added segments.
    added: AddedWords,
    data_at: u64,
    /// Blocks of segment 0, which has the home lines. All blocks of other segments are displaced.
    home_blocks: u64,
    seed: u64,
    /// Logarithm of the blocks of a run.
    run_shift: u32,
    /// Logarithm of the lines of a span.
    span_shift: u32,
    scatter: Scatter,
    /// Computes the hashes of keys.
    isa: Isa,
    space: Space,
    overflow: Overflow,
    bitmap: FreeBitmap,
    /// Arena words: one bit for each line, set if the line has FREE words that are not flushed.
    freed_at: u64,
    /// Where a clean close saves the allocator state.
    saved_state: SavedStatePlan,
}

impl HashFs {
    /// The mapping of a pool, which may come to have `most` blocks while it is open. Its part of
    /// the arena, zero before [`Mapping::rebuild`], is at `arena_at`. `seed` is the seed of the
    /// hashes on the media. `layout_score`, per mille, is the intended share of a file's blocks
    /// that follow their predecessors; [`WHOLE`] means no deliberate fragmentation.
    pub(crate) fn new(
        arena_at: u64,
        (geometry, most): (&Geometry, u64),
        seed: u64,
        layout_score: u16,
    ) -> Self {
        let overflow_at = arena_at + Space::BYTES;
        let chains = geometry.blocks().next_power_of_two();
        let overflow = Overflow::new(overflow_at, most / LINE_ENTRIES, chains);
        let bitmap = FreeBitmap::new(overflow.end(), most);
        let freed_at = bitmap.end();
        Self {
            table_at: geometry.table_at,
            added: AddedWords::default(),
            data_at: geometry.data_at,
            home_blocks: geometry.segment_blocks,
            seed,
            run_shift: geometry.run_blocks.ilog2(),
            span_shift: geometry.span_lines.ilog2(),
            scatter: Scatter::new(layout_score, geometry.span_lines.into()),
            isa: Isa::chosen(),
            space: Space::new(arena_at),
            overflow,
            bitmap,
            freed_at,
            saved_state: geometry.saved_state(),
        }
    }

    /// Bytes of the arena that [`Self::new`] needs.
    pub(crate) fn arena_bytes(geometry: &Geometry, most: u64) -> u64 {
        let lines = most / LINE_ENTRIES;
        Self::new(0, (geometry, most), 0, WHOLE).freed_at + lines.div_ceil(64) * 8
    }

    /// This mapping with its words where `table` says.
    pub(super) fn with_table(self, table: TablePlan) -> Self {
        let added = AddedWords::at(table);
        Self { added, ..self }
    }

    /// Lines of the table, of all segments.
    fn lines<M: Memories>(&self, core: &Core<M>) -> u64 {
        core.blocks() / LINE_ENTRIES
    }

    #[inline]
    fn line_at(&self, line: u64) -> u64 {
        if line < self.home_blocks / LINE_ENTRIES {
            return self.table_at + line * LINE_BYTES;
        }
        self.added_line_at(line)
    }

    #[cold]
    fn added_line_at(&self, line: u64) -> u64 {
        let at = self.added.word_at(line * LINE_ENTRIES);
        at.expect("all blocks have words: the opening, or who let the pool grow, checked this")
    }

    #[inline]
    fn entry_at(&self, block: u32) -> u64 {
        let block = u64::from(block);
        self.line_at(block / LINE_ENTRIES) + block % LINE_ENTRIES * 8
    }

    /// The bits of an entry that hold the mapping id and the number of the run.
    fn run_mask(&self) -> u64 {
        MapWord::KEY_MASK & !((1 << self.run_shift) - 1)
    }

    /// The table entry of a block.
    fn entry<M: Memories>(&self, core: &Core<M>, block: u32) -> MapWord {
        MapWord(core.word(self.entry_at(block)))
    }

    /// Keeps a block from all, if it is free. Returns whether it was.
    fn hold<M: Memories>(&self, core: &Core<M>, block: u64) -> bool {
        let (at, held) = (self.entry_at(block as u32), MapWord::HELD.0);
        let swapped = core.pool.compare_exchange(at, MapWord::FREE.0, held);
        swapped.is_ok()
    }

    /// Frees a block that [`Self::hold`] took.
    fn let_go<M: Memories>(&self, core: &Core<M>, block: u64) {
        core.set_word(self.entry_at(block as u32), MapWord::FREE.0);
        self.note_freed(core, block as u32);
        // Others may have cleared it meanwhile.
        self.bitmap.set(&core.arena, block);
    }

    /// Holds these blocks for metadata, unless one of them is not free. Flushed, not fenced.
    /// Returns whether it did.
    fn hold_all<M: Memories>(&self, core: &Core<M>, blocks: &Range<u64>) -> bool {
        for block in blocks.clone() {
            if !self.hold(core, block) {
                self.free_all(core, &(blocks.start..block));
                return false;
            }
            self.bitmap.clear(&core.arena, block);
        }
        for block in blocks.clone().step_by(LINE_ENTRIES as usize) {
            let at = self.line_at(block / LINE_ENTRIES);
            core.pool.flush(sites::CHUNK_BLOCKS, at, LINE_BYTES);
        }
        true
    }

    fn free_all<M: Memories>(&self, core: &Core<M>, blocks: &Range<u64>) {
        for block in blocks.clone() {
            self.let_go(core, block);
        }
    }

    /// Sets a block of `id` to LIMBO and takes it off its chain. The caller flushes.
    fn give_up<M: Memories>(&self, op: &Op<'_, M>, run: &search::Run, block: u32, to: &mut Batch) {
        let core = op.core;
        let at = self.entry_at(block);
        let word = MapWord(core.word(at));
        core.set_word(at, word.with_state(MapState::Limbo).0);
        if u64::from(block) / LINE_ENTRIES != run.home {
            self.overflow
                .unlink(&core.arena, op.holder(), run.hash, block);
            self.overflow.lower(&core.arena, run.home);
        }
        to.add(&core.arena, &self.overflow, block);
    }
}

impl<M: Memories> super::Allocator<M> for HashFs {
    fn reserve(&self, op: &Op<'_, M>, blocks: u64) -> Result<Reservation> {
        self.space.reserve(op, blocks, || {
            _ = super::Allocator::<M>::reclaim(self, op.core)
        })
    }

    fn unreserve(&self, op: &Op<'_, M>, rest: Reservation) {
        self.space.unreserve(op, rest);
    }

    fn reclaim(&self, core: &Core<M>) -> u64 {
        self.space.reclaim(core, &self.overflow, |block| {
            // The bit follows the word: a set bit of an allocated block is harmless, as claims
            // correct it.
            core.set_word(self.entry_at(block), MapWord::FREE.0);
            self.note_freed(core, block);
            self.bitmap.set(&core.arena, u64::from(block));
            // A word of the table belongs to one file, so no block is freed twice.
            true
        })
    }

    fn data_at(&self, block: BlockNo) -> u64 {
        self.data_at + u64::from(block.0) * BLOCK_BYTES
    }

    fn usage(&self, core: &Core<M>) -> BlockUsage {
        self.space.usage(core)
    }

    /// The blocks are in LIMBO meanwhile, which no operation allocates and recovery frees.
    fn trim(&self, op: &Op<'_, M>, blocks: Range<u64>, least: u64) -> u64 {
        let core = op.core;
        let free = self.bitmap.count(&core.arena, blocks.clone());
        let Ok(kept) = self.space.reserve(op, free, || {}) else {
            return 0;
        };
        let take = |&block: &u64| self.hold(core, block);
        let taken: Vec<u64> = blocks.filter(take).take(free as usize).collect();
        let mut trimmed = 0;
        for run in taken.chunk_by(|before, block| before + 1 == *block) {
            let whole = run[0]..run[0] + run.len() as u64;
            if run.len() as u64 >= least && core.give_back(&whole) {
                trimmed += run.len() as u64;
            }
        }
        for block in taken {
            self.let_go(core, block);
        }
        self.space.unreserve(op, kept);
        trimmed
    }

    fn grow(&self, core: &Core<M>, to: &Geometry) {
        self.added.add(TablePlan::of(to, |at| core.word(at)));
        self.space.grow(core, &self.bitmap, to);
    }

    fn are_free(&self, core: &Core<M>, blocks: Range<u64>) -> bool {
        self.bitmap.has_all(&core.arena, blocks)
    }

    fn take_for_metadata(&self, op: &Op<'_, M>, blocks: Range<u64>) -> Result<bool> {
        let take = || self.hold_all(op.core, &blocks);
        let free = || self.free_all(op.core, &blocks);
        self.space.take_for_metadata(op, &blocks, take, free)
    }

    fn keep_for_metadata(&self, core: &Core<M>, blocks: Range<u64>) -> Result<()> {
        if !self.hold_all(core, &blocks) {
            return Err(super::of_file_and_metadata(&blocks));
        }
        self.space.note_all_used(core, &blocks);
        Ok(())
    }

    fn return_from_metadata(&self, core: &Core<M>, blocks: Range<u64>) {
        self.free_all(core, &blocks);
        self.space.note_all_free(core, &blocks);
    }

    fn save(&self, core: &Core<M>) -> Result<()> {
        self.save_state(core)
    }

    fn restore(&self, core: &Core<M>) -> bool {
        self.restore_state(core)
    }
}

impl<M: Memories> Mapping<M> for HashFs {
    fn allocator(&self) -> &dyn super::Allocator<M> {
        self
    }

    fn lookup(&self, op: &Op<'_, M>, id: MapId, first: u32, out: &mut [Found]) -> Result<()> {
        out.fill(Found::Hole);
        let start = u64::from(first);
        let end = start + out.len() as u64;
        self.each_run(op.core, id, start, end, |run| {
            self.find_run(op.core, run, |logical, block, state| {
                if let Some(out) = out.get_mut((logical - start) as usize) {
                    *out = match state {
                        MapState::Mapped => Found::Mapped(block),
                        _ => Found::Unwritten(block),
                    };
                }
            });
            true
        });
        Ok(())
    }

    /// The hash alone determines the preferred entry, so the miss on the data overlaps the miss on
    /// the table.
    #[inline]
    fn prefetch(&self, core: &Core<M>, id: MapId, logical: u32, skip: u64) {
        let run = self.run_of(id, logical);
        core.pool.prefetch(self.line_at(run.home));
        let block = BlockNo((run.home * LINE_ENTRIES) as u32 + self.preferred(&run, logical));
        let at = Mapping::<M>::data_at(self, block) + skip;
        for line in 0..PREFETCH_LINES {
            core.pool.prefetch(at + line * LINE_BYTES);
        }
    }

    /// Prefetches the home line, the count of free blocks, and what a claim reads if the line is
    /// full. The hash determines all of these.
    #[inline]
    fn prefetch_claim(&self, core: &Core<M>, id: MapId, logical: u32) {
        let run = self.run_of(id, logical);
        core.pool.prefetch(self.line_at(run.home));
        self.space.prefetch(core);
        self.prefetch_near(core, run.home);
        self.overflow.prefetch(&core.arena, run.hash, run.home);
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
        self.claim_blocks(op, id, first, step, from, out)
    }

    fn set_state(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        blocks: &[BlockNo],
        step: Step,
    ) -> Result<()> {
        let mut unflushed = None;
        for (logical, block) in (u64::from(first)..).zip(blocks) {
            let word = MapWord::new(step.to, id, logical as u32);
            op.core.set_word(self.entry_at(block.0), word.0);
            if let Some(site) = step.site() {
                self.flush_late(site, op.core, &mut unflushed, Some(block.0));
            }
        }
        if let Some(site) = step.site() {
            self.flush_late(site, op.core, &mut unflushed, None);
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
        let core = op.core;
        let mut batch = Batch::default();
        self.search(core, id, first, end, in_use, |run, found| {
            let mut unflushed = None;
            // Backwards, because the latest block of a run is the first on its chain.
            for &(_, block, _) in found.iter().rev() {
                self.give_up(op, run, block.0, &mut batch);
                self.flush_late(flush.site, core, &mut unflushed, Some(block.0));
            }
            self.flush_late(flush.site, core, &mut unflushed, None);
        });
        self.space.give_up(core, &self.overflow, &batch, || {
            Mapping::<M>::reclaim(self, core);
        });
        Ok(batch.blocks)
    }

    fn seek(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        what: Seek,
    ) -> Result<Option<u64>> {
        Ok(match what {
            Seek::Data => self.seek_data(op.core, id, first, end),
            Seek::Hole => self.seek_hole(op.core, id, first, end),
        })
    }

    fn count(&self, op: &Op<'_, M>, id: MapId, end: u64) -> Result<u64> {
        Ok(self.search(op.core, id, 0, end, u64::MAX, |_, _| {}))
    }

    fn rebuild(&self, core: &Core<M>, survey: &dyn Survey) -> Result<()> {
        self.rebuild_allocator_state(core, &|id, logical, state| survey.judge(id, logical, state))
    }
}
