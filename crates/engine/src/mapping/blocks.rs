//! The block allocator of mappings that do not allocate by themselves.
//!
//! The arena records which blocks are free, in a [bitmap](FreeBitmap): a set bit is a free block,
//! and clearing the bit allocates it. Each thread slot goes on after its last allocation, so slots
//! allocate from different words, and files get runs. Small files lie side by side, so that a disk
//! gets one request for many of them. A file that grows, and whose next block belongs to another
//! file, goes on in a word of its own. Freed blocks stay in [limbo](super::limbo) until no
//! operation can still be reading them.
//!
//! Large files lie on large pages: the first blocks of each 2 MiB of a file go to an aligned 2 MiB
//! of the pool that is entirely free, if one is near and the file appears to be large. The blocks
//! after them follow there, so a file may be written in pieces.
//!
//! Deviation from the study, whose allocator persists its bitmap with every change: here the
//! mappings themselves record which blocks are allocated, and recovery reads all of them to judge
//! them. A flushed bit would add nothing. A clean close saves the bitmap.

use std::ops::Range;
use std::sync::atomic::Ordering;

use vellum_layout::{BLOCK_BYTES, Geometry, SavedStatePlan, mix};
use vellum_media::{Disk, ImageMemory, LINE_BYTES, Memories, Memory, count};

use super::bitmap::FreeBitmap;
use super::first_writes::FirstWrites;
use super::limbo::{Batch, LinkWords};
use super::saved_state::{self, Writer};
use super::space::{Space, claimed, unclaimed};
use super::{Allocator, BlockNo, BlockUsage, Reservation};
use crate::core::Core;
use crate::core::slots::{Op, pause};
use crate::error::{Error, Location, Result};

/// Blocks of a bitmap word.
const WORD_BLOCKS: u64 = 64;
/// Blocks of a large page.
const LARGE_BLOCKS: u64 = 512;
/// A file whose first request is for this many blocks counts as large.
const LARGE_WANT: u64 = LARGE_BLOCKS / 2;
/// Words searched for a free run before any free block is allocated.
const LOOK_WORDS: u64 = 64;
/// Words searched for an entirely free one before a run in any word is allocated.
const LOOK_FREE_WORDS: u64 = 16;
/// A request for fewer blocks than these, without a predecessor, counts as a small file.
const SMALL_WANT: u64 = WORD_BLOCKS / 4;
/// Large pages searched for a free one.
const LOOK_LARGE: u64 = 64;
/// Blocks are written ahead only if this many times their number is free.
const MUCH_FREE: u64 = 4;
/// Fruitless searches of the bitmap after which the count of free blocks counts as damaged.
const TRIES: u32 = 1000;

/// A purpose of allocation, with a cursor after the last allocation of each slot. The value is the
/// cursor's index in the slot's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cursor {
    /// A few blocks without a predecessor: the beginnings of files, side by side.
    Begin = 0,
    /// Blocks of files that grow, and of large files.
    Grow = 1,
}

/// Offset after the cursors in a slot's line: see [`FirstWrites::due`].
const SETTLED_AT: u64 = 16;

/// The data blocks of all segments.
#[derive(Debug)]
pub(super) struct Blocks {
    data_at: u64,
    /// The first block at the beginning of a large page of the pool.
    first_large: u64,
    thread_slots: u64,
    space: Space,
    links: LinkWords,
    bitmap: FreeBitmap,
    /// Arena words, a line for each thread slot: its [`Cursor`]s and, at [`SETTLED_AT`], the epoch
    /// that was settled at its last allocation.
    cursors_at: u64,
    /// First arena offset after all this.
    end: u64,
    first_writes: FirstWrites,
    saved_state: SavedStatePlan,
    /// Deliberate fragmentation, per mille.
    fragmentation: u64,
}

impl Blocks {
    /// The allocator of a pool that may come to have `most` blocks while it is open. Its part of
    /// the arena, zero before a rebuild, is at `arena_at`.
    pub(super) fn new(arena_at: u64, geometry: &Geometry, most: u64) -> Self {
        let cursors_at = arena_at + Space::BYTES;
        let bitmap_at = cursors_at + u64::from(geometry.thread_slots) * LINE_BYTES;
        let bitmap = FreeBitmap::new(bitmap_at, most);
        let links = LinkWords { at: bitmap.end() };
        let first_writes_at = (links.at + most * 8).next_multiple_of(LINE_BYTES);
        let first_writes = FirstWrites::new(first_writes_at, geometry.blocks(), most);
        Self {
            data_at: geometry.data_at,
            first_large: (geometry.data_at / BLOCK_BYTES).wrapping_neg() % LARGE_BLOCKS,
            thread_slots: geometry.thread_slots.into(),
            space: Space::new(arena_at),
            cursors_at,
            bitmap,
            links,
            end: first_writes.end(),
            first_writes,
            saved_state: geometry.saved_state(),
            fragmentation: geometry.fragmentation.into(),
        }
    }

    /// First arena offset after the allocator.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether the pool has this block.
    pub(super) fn has<M: Memories>(&self, core: &Core<M>, block: u32) -> bool {
        u64::from(block) < core.blocks()
    }

    /// Allocates 1 to `want` adjoining reserved blocks, for a file's logical blocks from `logical`
    /// on. `goal` is the block after that of the preceding logical block, if that one has a block.
    /// Returns the first block and the count. The blocks do not leave the file's large page that
    /// contains `logical`.
    pub(super) fn take<M: Memories>(
        &self,
        op: &Op<'_, M>,
        from: &mut Reservation,
        logical: u64,
        goal: Option<BlockNo>,
        want: u64,
    ) -> Result<(BlockNo, u64)> {
        let most = match self.fragmentation {
            0 => want.min(LARGE_BLOCKS - logical % LARGE_BLOCKS),
            _ => want.min(1),
        };
        let most = most.min(from.blocks);
        if most == 0 {
            return Err(Error::NoSpace(Error::DATA_BLOCKS));
        }
        // A file that has grown to the end of a large page, block by block, is large.
        let on_large = self.fragmentation == 0
            && logical.is_multiple_of(LARGE_BLOCKS)
            && (goal.is_some() || want >= LARGE_WANT);
        let goal = goal
            .map(|goal| self.scatter(op.core, goal.0.into()))
            .filter(|&goal| goal < op.core.blocks());
        let large = on_large.then(|| self.find_large(op, goal)).flatten();
        let found = [large, goal]
            .into_iter()
            .flatten()
            .map(|first| (first, self.take_at(op.core, first, most)))
            .find(|&(_, taken)| taken > 0);
        let begins = match found {
            Some((first, _)) => large.is_none() && first == self.cursor(op, Cursor::Begin),
            None => goal.is_none() && most < SMALL_WANT,
        };
        let cursor = if begins { Cursor::Begin } else { Cursor::Grow };
        let (first, taken) = match found {
            Some(found) => found,
            None => self.take_somewhere(op, cursor, most)?,
        };
        if let Err(error) = op.core.provide(first, taken) {
            self.bitmap.set_all(&op.core.arena, first..first + taken);
            return Err(error);
        }
        let end = self.end_of_use(op.core, logical, (first, taken));
        self.set_cursor(op, cursor, end);
        claimed(op, from, taken);
        if op.core.commits.is_some() && op.core.sparse.is_none() {
            self.write_around(op, first);
        }
        Ok((BlockNo(first as u32), taken))
    }

    /// Writes the free blocks around a newly allocated one, if this is worthwhile and due.
    fn write_around<M: Memories>(&self, op: &Op<'_, M>, block: u64) {
        let seen_at = self.line_of(op) + SETTLED_AT;
        let Some(group) = self.first_writes.due(op.core, seen_at, block) else {
            return;
        };
        let (core, len) = (op.core, group.end - group.start);
        let Some(disk) = core.pool.disk() else {
            return;
        };
        // The blocks are unavailable while they are written, and must not make the segment appear
        // full.
        if self.space.free(core) < len * MUCH_FREE {
            return;
        }
        let Ok(kept) = self.space.reserve(op, len, || {}) else {
            return;
        };
        let mut at = group.start;
        while at < group.end {
            let run = self.bitmap.take_run(&core.arena, at, group.end - at);
            if run > 0 {
                self.write_ahead(disk, at, run);
                self.bitmap.set_all(&core.arena, at..at + run);
            }
            at += run.max(1);
        }
        self.space.unreserve(op, kept);
    }

    /// Writes to free blocks. If this fails, the later write to the blocks reports the error.
    fn write_ahead(&self, disk: &dyn Disk, first: u64, blocks: u64) {
        let (at, len) = (self.data_at + first * BLOCK_BYTES, blocks * BLOCK_BYTES);
        if let Err(error) = disk.write_ahead(at, len) {
            tracing::debug!(%error, at, "free blocks could not be written ahead");
        }
    }

    /// The block to try for one that would follow its predecessor at `goal`: that one or, as often
    /// as the pool's fragmentation asks for it, an unrelated one (H7). Depends on `goal` alone, so
    /// that simulations are repeatable.
    fn scatter<M: Memories>(&self, core: &Core<M>, goal: u64) -> u64 {
        const SALT: u64 = 0x5CA7_7E4E_D000_0001;
        let draw = mix(goal ^ SALT);
        if draw % 1000 < self.fragmentation {
            mix(draw) % core.blocks()
        } else {
            goal
        }
    }

    /// Allocates as many adjoining free blocks from `first` on as there are, `most` at most.
    fn take_at<M: Memories>(&self, core: &Core<M>, first: u64, most: u64) -> u64 {
        let mut taken = 0;
        while taken < most && first + taken < core.blocks() {
            count::probe();
            let got = self
                .bitmap
                .take_run(&core.arena, first + taken, most - taken);
            taken += got;
            if got == 0 || !(first + taken).is_multiple_of(WORD_BLOCKS) {
                break;
            }
        }
        taken
    }

    /// The line of the operation's slot.
    fn line_of<M: Memories>(&self, op: &Op<'_, M>) -> u64 {
        self.cursors_at + u64::from(op.slot) * LINE_BYTES
    }

    fn cursor_at<M: Memories>(&self, op: &Op<'_, M>, cursor: Cursor) -> u64 {
        self.line_of(op) + cursor as u64 * 8
    }

    /// Where the operation's slot allocates if the caller has no goal.
    fn cursor<M: Memories>(&self, op: &Op<'_, M>, cursor: Cursor) -> u64 {
        let at = self.cursor_at(op, cursor);
        match op.core.arena.load(at, Ordering::Relaxed) {
            0 => op.core.blocks() / self.thread_slots * u64::from(op.slot),
            at => at % op.core.blocks(),
        }
    }

    fn set_cursor<M: Memories>(&self, op: &Op<'_, M>, cursor: Cursor, to: u64) {
        let at = self.cursor_at(op, cursor);
        op.core.arena.store(at, to, Ordering::Relaxed);
    }

    /// Where the next allocation of this kind begins, after blocks just allocated to a file. If the
    /// file is large and lies on large pages, that is after the whole large page, because the
    /// file's next blocks belong there.
    fn end_of_use<M: Memories>(
        &self,
        core: &Core<M>,
        logical: u64,
        (first, taken): (u64, u64),
    ) -> u64 {
        match first.checked_sub(logical % LARGE_BLOCKS) {
            Some(page) if self.is_large(core, page) && logical + taken >= LARGE_WANT => {
                page + LARGE_BLOCKS
            }
            _ => first + taken,
        }
    }

    /// Whether a large page of the pool begins with a block, and lies among the blocks.
    fn is_large<M: Memories>(&self, core: &Core<M>, block: u64) -> bool {
        let begins = block.checked_sub(self.first_large);
        begins.is_some_and(|behind| behind.is_multiple_of(LARGE_BLOCKS))
            && block + LARGE_BLOCKS <= core.blocks()
    }

    /// The first block of a free large page: at `goal`, or not far after the slot's last
    /// allocation.
    fn find_large<M: Memories>(&self, op: &Op<'_, M>, goal: Option<u64>) -> Option<u64> {
        let pages = op.core.blocks().saturating_sub(self.first_large) / LARGE_BLOCKS;
        let behind = self.cursor(op, Cursor::Grow);
        let behind = behind.saturating_sub(self.first_large);
        let from = behind.div_ceil(LARGE_BLOCKS);
        let near = (from..from + pages.min(LOOK_LARGE))
            .map(|page| self.first_large + page % pages * LARGE_BLOCKS);
        goal.filter(|&goal| self.is_large(op.core, goal))
            .into_iter()
            .chain(near)
            .find(|&first| self.is_free(op.core, first, LARGE_BLOCKS))
    }

    /// Whether all the blocks of a range are free.
    fn is_free<M: Memories>(&self, core: &Core<M>, first: u64, blocks: u64) -> bool {
        self.bitmap.has_all(&core.arena, first..first + blocks)
    }

    /// Allocates blocks from a run of `most` if one is near, else from the next free block. Ends,
    /// because the caller's reservation guarantees a free block.
    fn take_somewhere<M: Memories>(
        &self,
        op: &Op<'_, M>,
        cursor: Cursor,
        most: u64,
    ) -> Result<(u64, u64)> {
        let core = op.core;
        let begun = match cursor {
            Cursor::Begin => self.find_in_word(core, self.cursor(op, cursor), most),
            Cursor::Grow => None,
        };
        // Failing that, beginnings also go to a word after those in which files grow.
        let mut from = self.cursor(op, Cursor::Grow);
        if let Some(first) = begun.or_else(|| self.find_run(core, from, most)) {
            let taken = self.take_at(core, first, most);
            if taken > 0 {
                return Ok((first, taken));
            }
        }
        let mut tries = 0;
        for _ in 0..TRIES {
            count::probe();
            let Some(first) = self.bitmap.next(&core.arena, from) else {
                pause(&core.arena, &mut tries);
                continue;
            };
            let taken = self.take_at(core, first, most);
            if taken > 0 {
                return Ok((first, taken));
            }
            from = first + 1;
        }
        let place = Location::Offset(self.data_at);
        Err(Error::damaged("count of free blocks", place))
    }

    /// The first block of a free run of `most` blocks, fewer than 64, in the rest of the word of
    /// `from`. `None` if `from` is at the beginning of its word.
    fn find_in_word<M: Memories>(&self, core: &Core<M>, from: u64, most: u64) -> Option<u64> {
        let (first, behind) = (from / WORD_BLOCKS * WORD_BLOCKS, from % WORD_BLOCKS);
        if behind == 0 {
            return None;
        }
        count::probe();
        let word = self.bitmap.word(&core.arena, from) >> behind << behind;
        find_ones(word, most).map(|bit| first + bit)
    }

    /// The first block of a free run of `most` blocks (64 suffice) not far after `from`. Prefers an
    /// entirely free word if one is near.
    fn find_run<M: Memories>(&self, core: &Core<M>, from: u64, most: u64) -> Option<u64> {
        let words = core.blocks().div_ceil(WORD_BLOCKS);
        let start = from.div_ceil(WORD_BLOCKS);
        let mut found = None;
        for (looked, index) in (start..start + LOOK_WORDS).enumerate() {
            let first = index % words * WORD_BLOCKS;
            count::probe();
            let word = self.bitmap.word(&core.arena, first);
            if word == u64::MAX {
                return Some(first);
            }
            if most < WORD_BLOCKS && found.is_none() {
                found = find_ones(word, most).map(|bit| first + bit);
            }
            if looked as u64 >= LOOK_FREE_WORDS && found.is_some() {
                break;
            }
        }
        found
    }

    /// Frees blocks that were allocated but never published, and returns them to the reservation.
    pub(super) fn put_back<M: Memories>(
        &self,
        op: &Op<'_, M>,
        to: &mut Reservation,
        first: BlockNo,
        blocks: u64,
    ) {
        let first = u64::from(first.0);
        self.bitmap.set_all(&op.core.arena, first..first + blocks);
        unclaimed(op, to, blocks);
    }

    /// Adds a block that no later operation can find to the blocks that an operation frees.
    pub(super) fn add<M: Memories>(&self, core: &Core<M>, to: &mut Batch, block: BlockNo) {
        to.add(&core.arena, &self.links, block.0);
    }

    /// Puts the blocks that an operation freed into limbo.
    pub(super) fn give_up<M: Memories>(&self, core: &Core<M>, batch: &Batch) {
        self.space
            .give_up(core, &self.links, batch, || _ = self.reclaim(core));
    }

    /// Marks every block as free. [`Self::note_used`] and [`Self::end_rebuild`] follow.
    pub(super) fn begin_rebuild<M: Memories>(&self, core: &Core<M>) {
        let blocks = core.blocks();
        for first in (0..blocks).step_by(WORD_BLOCKS as usize) {
            let bits = (blocks - first).min(WORD_BLOCKS);
            let word = u64::MAX >> (WORD_BLOCKS - bits);
            self.bitmap.fill(&core.arena, first, word);
        }
        self.space.set_free(core, blocks);
    }

    /// Marks a block as a file's.
    ///
    /// # Errors
    /// Fails if the block is already another's, or does not exist.
    pub(super) fn note_used<M: Memories>(&self, core: &Core<M>, block: BlockNo) -> Result<()> {
        let place = Location::Block(block.0.into());
        if !self.has(core, block.0) {
            return Err(Error::damaged("a block that the pool does not have", place));
        }
        let (first, bit) = (
            u64::from(block.0) / WORD_BLOCKS * WORD_BLOCKS,
            block.0 % WORD_BLOCKS as u32,
        );
        let word = self.bitmap.word(&core.arena, first);
        if word >> bit & 1 == 0 {
            return Err(Error::damaged("a block of two files", place));
        }
        self.bitmap.fill(&core.arena, first, word & !(1 << bit));
        self.space.note_used(core);
        Ok(())
    }

    /// Makes the allocator usable.
    pub(super) fn end_rebuild<M: Memories>(&self, core: &Core<M>) {
        self.bitmap.summarise(&core.arena, core.blocks());
    }
}

/// The lowest bit of a run of `count` (1 to 63) ones.
fn find_ones(word: u64, count: u64) -> Option<u64> {
    let mut runs = word;
    for shift in 1..count {
        runs &= word >> shift;
    }
    (runs != 0).then(|| u64::from(runs.trailing_zeros()))
}

impl<M: Memories> Allocator<M> for Blocks {
    fn reserve(&self, op: &Op<'_, M>, blocks: u64) -> Result<Reservation> {
        self.space.reserve(op, blocks, || _ = self.reclaim(op.core))
    }

    fn unreserve(&self, op: &Op<'_, M>, rest: Reservation) {
        self.space.unreserve(op, rest);
    }

    fn reclaim(&self, core: &Core<M>) -> u64 {
        self.space.reclaim(core, &self.links, |block| {
            self.bitmap.set(&core.arena, block.into())
        })
    }

    fn data_at(&self, block: BlockNo) -> u64 {
        self.data_at + u64::from(block.0) * BLOCK_BYTES
    }

    fn usage(&self, core: &Core<M>) -> BlockUsage {
        self.space.usage(core)
    }

    fn trim(&self, op: &Op<'_, M>, blocks: Range<u64>, least: u64) -> u64 {
        let arena = &op.core.arena;
        let free = self.bitmap.count(arena, blocks.clone());
        let Ok(kept) = self.space.reserve(op, free, || {}) else {
            return 0;
        };
        let runs = self.bitmap.take_runs(arena, (blocks, free), least);
        let given = |run: &&Range<u64>| op.core.give_back(run);
        let trimmed = runs
            .iter()
            .filter(given)
            .map(|run| run.end - run.start)
            .sum();
        let give_back = |run| self.bitmap.set_all(arena, run);
        runs.into_iter().for_each(give_back);
        self.space.unreserve(op, kept);
        trimmed
    }

    fn free_blocks(&self, core: &Core<M>, first: u64) -> u64 {
        self.bitmap.word(&core.arena, first)
    }

    fn grow(&self, core: &Core<M>, to: &Geometry) {
        self.space.grow(core, &self.bitmap, to);
    }

    fn are_free(&self, core: &Core<M>, blocks: Range<u64>) -> bool {
        self.bitmap.has_all(&core.arena, blocks)
    }

    fn take_for_metadata(&self, op: &Op<'_, M>, blocks: Range<u64>) -> Result<bool> {
        let take = || self.bitmap.take_all(&op.core.arena, blocks.clone());
        let free = || self.bitmap.set_all(&op.core.arena, blocks.clone());
        self.space.take_for_metadata(op, &blocks, take, free)
    }

    fn keep_for_metadata(&self, core: &Core<M>, blocks: Range<u64>) -> Result<()> {
        if !self.bitmap.take_all(&core.arena, blocks.clone()) {
            return Err(super::of_file_and_metadata(&blocks));
        }
        self.space.note_all_used(core, &blocks);
        Ok(())
    }

    fn return_from_metadata(&self, core: &Core<M>, blocks: Range<u64>) {
        self.bitmap.set_all(&core.arena, blocks.clone());
        self.space.note_all_free(core, &blocks);
    }

    fn save(&self, core: &Core<M>) -> Result<()> {
        self.space.check_settled(core)?;
        if core.blocks() > core.geometry.segment_blocks {
            // Only the bitmap of segment 0 has a place on the pool: the next opening reads the
            // trees.
            return Ok(());
        }
        let used = core.blocks() - self.space.free(core);
        Writer::new(core, &self.saved_state, &self.bitmap).finish(used, 0);
        Ok(())
    }

    fn restore(&self, core: &Core<M>) -> bool {
        let saved = saved_state::read_head(core, &self.saved_state);
        let Some(head) = saved.filter(|_| core.geometry.added.is_empty()) else {
            return false;
        };
        saved_state::fill_bitmap(core, &self.saved_state, &self.bitmap);
        self.bitmap.summarise(&core.arena, core.blocks());
        self.space.set_free(core, core.blocks() - head.used);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::find_ones;

    #[test]
    fn runs_of_ones_are_found() {
        assert_eq!(find_ones(0b1_0110_1110, 1), Some(1));
        assert_eq!(find_ones(0b1_0110_1110, 3), Some(1));
        assert_eq!(find_ones(0b1_1101_1011, 3), Some(6));
        assert_eq!(find_ones(u64::MAX, 63), Some(0));
        assert_eq!(find_ones(u64::MAX >> 2, 63), None);
        assert_eq!(find_ones(0, 1), None);
    }
}
