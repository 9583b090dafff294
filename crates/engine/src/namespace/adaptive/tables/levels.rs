//! The location of words in an area's table.
//!
//! Level 0 is half a block of 32 lines, behind the roots of the other levels. Level *n* from 1 on
//! is 8^(*n* - 1) blocks of 64 lines. A block is created when the first word is put into it. A key
//! has one home line in each level, so a lookup probes one line of each. A word lies in its home
//! line of the smallest level that had space when it was inserted. This makes larger levels appear
//! early, but as names are added the lines of smaller levels fill up, too. A word never moves, and
//! its removal leaves space for another. Blocks are found by their numbers: a root leads to the
//! only block of a level, or to a block that holds the slots of 512 others.
//!
//! A lookup probes the levels one after the other, the largest first, because it holds most words.

use std::sync::atomic::Ordering;

use vellum_layout::{BLOCK_BYTES, SLOTS_PER_BLOCK};
use vellum_media::{LINE_BYTES, Memories, Memory, count};

use super::Word;
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::{Error, Result};
use crate::namespace::indexed::index::Key;

/// The largest level: it could hold all metadata blocks of the largest pool.
const LEVEL_MAX: u64 = 10;
/// Offset of the roots of levels in the first block, a word each. That of level 0 is unused.
const ROOTS: u64 = 64;
/// Offset of level 0 in the first block.
const FIRST: u64 = BLOCK_BYTES / 2;
/// Lines of a block.
const LINES: u64 = BLOCK_BYTES / LINE_BYTES;
/// Block numbers in a block of numbers, as a power of two.
const NUMBER_BITS: u64 = 9;
/// The factor by which a level has more blocks than the one before, as a power of two.
const LEVEL_BITS: u64 = 3;

/// The location of a table: slot of its first block (bits 0..32), the largest level that has words
/// (32..64). 0: there is no table.
#[derive(Clone, Copy)]
struct Table(u64);

impl Table {
    fn first(self) -> u64 {
        self.0 & 0xFFFF_FFFF
    }

    fn top(self) -> u64 {
        self.0 >> 32
    }
}

/// Number of blocks of a level.
fn blocks(level: u64) -> u64 {
    match level {
        0 => 0,
        _ => 1 << (LEVEL_BITS * (level - 1)),
    }
}

/// Number of blocks of numbers between a level's root and one of its blocks.
fn depth(level: u64) -> u64 {
    (LEVEL_BITS * level.saturating_sub(1)).div_ceil(NUMBER_BITS)
}

/// The home line of a key: number of the block in the level, and number of the line in the block.
fn home(key: Key, level: u64) -> (u64, u64) {
    match level {
        0 => (0, key.0 % (LINES / 2)),
        _ => (key.0 / LINES % blocks(level), key.0 % LINES),
    }
}

impl<M: Memories> Core<M> {
    #[inline]
    fn table(&self, area: u32) -> Option<Table> {
        let table = Table(
            self.arena
                .load(self.table_cell_of(area)?, Ordering::Acquire),
        );
        (table.0 != 0).then_some(table)
    }

    /// Pool offset of the lines of a key's block in a level, if the block exists.
    fn block_lines(&self, table: Table, level: u64, block: u64) -> Option<u64> {
        let first = self.geometry.slot_at(table.first());
        if level == 0 {
            return Some(first + FIRST);
        }
        let mut slot = self.word(first + ROOTS + 8 * level);
        for below in (0..depth(level)).rev() {
            let numbers = (slot != 0).then(|| self.geometry.slot_at(slot))?;
            slot = self.word(numbers + number_at(block, below));
        }
        (slot != 0).then(|| self.geometry.slot_at(slot))
    }

    /// Finds the first word in a key's lines that fits, with its pool offset.
    ///
    /// # Errors
    /// If there is none, the offset of free space in the smallest level that has any.
    pub(super) fn find_word(
        &self,
        area: u32,
        key: Key,
        fits: impl Fn(Word) -> bool,
    ) -> std::result::Result<(u64, Word), Option<u64>> {
        let table = self.table(area).ok_or(None)?;
        let mut place = None;
        for level in (0..=table.top()).rev() {
            let (block, line) = home(key, level);
            let Some(lines) = self.block_lines(table, level, block) else {
                continue;
            };
            count::probe();
            let line = lines + line * LINE_BYTES;
            for at in self.matches(line, Word::of(key)) {
                let word = Word(self.word(at));
                if fits(word) {
                    return Ok((at, word));
                }
            }
            place = self.matches(line, Word::none()).next().or(place);
        }
        Err(place)
    }

    /// Pool offsets of the words of a line that equal `want` in the bits of `mask`.
    fn matches(&self, line: u64, (mask, want): (u64, u64)) -> impl Iterator<Item = u64> {
        let mut found = self.pool.match_line(line, mask, want);
        std::iter::from_fn(move || {
            let first = (found != 0).then(|| found.trailing_zeros())?;
            found &= found - 1;
            Some(line + 8 * u64::from(first))
        })
    }

    /// Prefetches the line in which a key is most likely.
    pub(super) fn prefetch_word(&self, area: u32, key: Key) {
        let Some(table) = self.table(area) else {
            return;
        };
        let (block, line) = home(key, table.top());
        if let Some(lines) = self.block_lines(table, table.top(), block) {
            self.pool.prefetch(lines + line * LINE_BYTES);
        }
    }

    /// Calls `each` with the slot of every block of a table, including blocks of numbers.
    pub(super) fn for_each_of_table(&self, table: u64, each: &mut dyn FnMut(u64)) {
        let table = Table(table);
        if table.0 == 0 {
            return;
        }
        let first = self.geometry.slot_at(table.first());
        for level in 1..=LEVEL_MAX {
            let root = self.word(first + ROOTS + 8 * level);
            self.for_each_below(root, depth(level), each);
        }
        each(table.first());
    }

    fn for_each_below(&self, slot: u64, depth: u64, each: &mut dyn FnMut(u64)) {
        if slot == 0 {
            return;
        }
        if depth > 0 {
            let numbers = self.geometry.slot_at(slot);
            for at in (numbers..numbers + BLOCK_BYTES).step_by(8) {
                self.for_each_below(self.word(at), depth - 1, each);
            }
        }
        each(slot);
    }
}

/// Offset of the word that leads to a level's block, in a block of numbers above `below` further
/// ones.
fn number_at(block: u64, below: u64) -> u64 {
    (block >> (NUMBER_BITS * below)) % (1 << NUMBER_BITS) * 8
}

impl<M: Memories> Op<'_, M> {
    /// Puts a word into free space of an area's table: at `place`, which [`Core::find_word`]
    /// returned, if that is still free. Returns the word's pool offset. Not flushed.
    ///
    /// # Errors
    /// Fails if there is no free space, and no block for more.
    pub(super) fn insert_word(
        &self,
        area: u32,
        key: Key,
        word: Word,
        place: Option<u64>,
    ) -> Result<u64> {
        let core = self.core;
        if let Some(at) = place.filter(|&at| self.take_place(at, word)) {
            return Ok(at);
        }
        let full = || Error::NoSpace("hash table of an area");
        let cell = core.table_cell_of(area).ok_or_else(full)?;
        if core.arena.load(cell, Ordering::Acquire) == 0 {
            let slot = self.make_block()?;
            if core.arena.compare_exchange(cell, 0, slot).is_err() {
                core.free_slots(slot, SLOTS_PER_BLOCK);
            }
        }
        for level in 0..=LEVEL_MAX {
            let (block, line) = home(key, level);
            let line = self.make_lines(cell, level, block)? + line * LINE_BYTES;
            // Others may take the space meanwhile.
            while let Some(at) = core.matches(line, Word::none()).next() {
                if self.take_place(at, word) {
                    return Ok(at);
                }
            }
        }
        Err(full())
    }

    /// Puts a word at a pool offset, if it is free.
    fn take_place(&self, at: u64, word: Word) -> bool {
        let there = Word(self.core.word(at));
        let pool = &self.core.pool;
        there.is_none() && pool.compare_exchange(at, there.0, word.0).is_ok()
    }

    /// Pool offset of the lines of a block of a level. Creates the block if necessary.
    fn make_lines(&self, cell: u64, level: u64, block: u64) -> Result<u64> {
        let core = self.core;
        let table = Table(core.arena.load(cell, Ordering::Acquire));
        let first = core.geometry.slot_at(table.first());
        if level == 0 {
            return Ok(first + FIRST);
        }
        let mut at = first + ROOTS + 8 * level;
        for below in (0..depth(level)).rev() {
            at = core.geometry.slot_at(self.made_block(at)?) + number_at(block, below);
        }
        let lines = core.geometry.slot_at(self.made_block(at)?);
        // Lookups of what is put there probe this level from now on.
        core.arena.fetch_max(cell, table.first() | level << 32);
        Ok(lines)
    }

    /// The block whose slot is at this pool offset. Creates it if there is none.
    fn made_block(&self, at: u64) -> Result<u64> {
        let core = self.core;
        match core.word(at) {
            0 => {
                let slot = self.make_block()?;
                core.pool.compare_exchange(at, 0, slot).map_or_else(
                    |there| {
                        core.free_slots(slot, SLOTS_PER_BLOCK);
                        Ok(there)
                    },
                    |_| Ok(slot),
                )
            }
            there => Ok(there),
        }
    }

    /// Allocates a metadata block of zeros. Not flushed: nothing durable leads there.
    fn make_block(&self) -> Result<u64> {
        let core = self.core;
        let slot = self.alloc_block(core.blocks_for_logs())?;
        core.pool
            .write(core.geometry.slot_at(slot), &[0; BLOCK_BYTES as usize]);
        Ok(slot)
    }
}
