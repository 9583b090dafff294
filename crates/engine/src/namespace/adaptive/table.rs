//! The area table, which shows which areas exist.
//!
//! A line belongs to an area if its word says so; the inode of the area's root says the same. Both
//! change by one record. Lines are changed under the background's lease. The blocks are chained.
//! Once the chain was followed, the arena finds a block by its number.

use std::sync::atomic::Ordering;

use vellum_layout::{
    AREA_LIMIT, AREA_TABLE_LINES, AreaLife, AreaLine, AreaPhase, AreaTableHead, BLOCK_BYTES,
    ChunkKind, DirLocation, FileKind, Formed, Geometry, InodeState, Merged, ROOT_AREA, ROOT_SLOT,
    SLOTS_PER_BLOCK,
};
use vellum_media::{Memories, Memory, Persistent};
use zerocopy::IntoBytes;

use super::states;
use crate::core::Core;
use crate::core::alloc::SPARE_BLOCKS;
use crate::core::cachelet::Cachelet;
use crate::core::slots::Op;
use crate::durability::journal::Record;
use crate::error::{Error, Location, Result};
use crate::namespace::{Mender, MergedArea};
use crate::sites;

/// Adds to `record` the stores of these words of a line at pool offset `at`.
fn record_line(record: &mut Record, at: u64, line: &AreaLine, fields: &[u64]) {
    let (words, _) = line.as_bytes().as_chunks::<8>();
    for &field in fields {
        let word = u64::from_le_bytes(words[field as usize / 8]);
        record.store(at + field, word);
    }
}

/// Limit of the blocks of the table: each area has a directory.
pub(super) fn blocks_max(geometry: &Geometry) -> u64 {
    let areas = geometry.region_slots().min(AREA_LIMIT.into());
    areas.div_ceil(AREA_TABLE_LINES - 1)
}

/// A free line, prepared for a new area.
pub(super) struct Taken {
    pub(super) area: AreaLife,
    /// A further block of the table that contains it, if one is needed.
    pub(super) block: Option<u64>,
    /// The reason and numbers of the area's forming.
    pub(super) formed: Formed,
}

impl<M: Memories> Core<M> {
    /// Arena offset of the slot of a block of the table, which is 0 until it is known.
    fn table_cell(&self, number: u64) -> u64 {
        self.map.namespace + states::cell_bytes(&self.geometry) + number * 8
    }

    /// Metadata slot of a block of the table, if a sound block with this number exists.
    fn table_block(&self, number: u64) -> Option<u64> {
        if number >= blocks_max(&self.geometry) {
            return None;
        }
        let cell = |number| self.arena.load(self.table_cell(number), Ordering::Relaxed);
        if number == 0 || cell(number) != 0 {
            return Some(if number == 0 {
                self.geometry.areas.table
            } else {
                cell(number)
            });
        }
        let known = (1..number).rev().find(|&number| cell(number) != 0);
        let known = known.unwrap_or(0);
        (known..number).try_fold(self.table_block(known)?, |slot, at| {
            let next = self.word(self.geometry.slot_at(slot) + AreaTableHead::NEXT);
            let is_placed = next != 0 && self.kind_of_slot(next) == Some(ChunkKind::Blocks);
            let is_sound = is_placed && self.table_head(next).is_sound(next, at as u32 + 1);
            is_sound.then_some(())?;
            let cell = self.table_cell(at + 1);
            self.arena.store(cell, next, Ordering::Relaxed);
            Some(next)
        })
    }

    fn table_head(&self, slot: u64) -> AreaTableHead {
        let mut head = AreaTableHead::default();
        let at = self.geometry.slot_at(slot);
        self.pool.read(at, head.as_mut_bytes());
        head
    }

    /// Pool offset of the word that leads to the list of an unfinished move.
    pub(super) fn moving_at(&self) -> u64 {
        self.geometry.slot_at(self.geometry.areas.table) + AreaTableHead::MOVING
    }

    /// Pool offset of the line of an area, if the table is long enough.
    #[inline]
    fn area_line_at(&self, number: u32) -> Option<u64> {
        let (block, line) = (
            u64::from(number) / AREA_TABLE_LINES,
            u64::from(number) % AREA_TABLE_LINES,
        );
        let slot = (line != 0).then(|| self.table_block(block))??;
        Some(self.geometry.slot_at(slot) + line * size_of::<AreaLine>() as u64)
    }

    fn area_line(&self, at: u64) -> AreaLine {
        let mut line = AreaLine::default();
        self.pool.read(at, line.as_mut_bytes());
        line
    }

    /// An area with the generation that its line records, whether or not it is still live.
    #[inline]
    pub(super) fn area_life(&self, number: u32) -> Option<AreaLife> {
        let at = self.area_line_at(number)?;
        Some(AreaLife {
            number,
            generation: self.word(at + AreaLine::LIVES) as u32,
        })
    }

    /// The area with this number, if its line names the directory with inode `dir` as its root.
    pub(super) fn area_of_root(&self, number: u32, dir: u64) -> Option<AreaLife> {
        let line = self.area_line(self.area_line_at(number)?);
        let is_its = line.phase(number) == Some(AreaPhase::Live)
            && line.root == dir
            && line.root_generation == self.identity_on_pool(dir).generation();
        is_its.then(|| line.life(number))
    }

    /// Whether the line of this number is in use by an area.
    pub(super) fn is_live(&self, number: u32) -> bool {
        let phase = |at| self.area_line(at).phase(number);
        self.area_line_at(number).and_then(phase) == Some(AreaPhase::Live)
    }

    /// Inode of an area's root, from its line.
    pub(super) fn root_of_area(&self, number: u32) -> Option<u64> {
        Some(self.word(self.area_line_at(number)? + AreaLine::ROOT))
    }

    /// The blocks of the table, in order.
    fn table_blocks(&self) -> impl Iterator<Item = u64> {
        (0..).map_while(|number| self.table_block(number))
    }

    /// All lines: pool offset, number, line.
    fn all_lines(&self) -> impl Iterator<Item = (u64, u32, AreaLine)> {
        let lines = self.table_blocks().zip(0..).flat_map(|(_, block)| {
            let lines = 1..AREA_TABLE_LINES as u32;
            lines.map(move |line| block * AREA_TABLE_LINES as u32 + line)
        });
        lines.filter_map(|number| {
            let at = self.area_line_at(number)?;
            Some((at, number, self.area_line(at)))
        })
    }

    /// The lines that are not free.
    fn area_lines(&self) -> impl Iterator<Item = (u64, u32, AreaLine)> {
        self.all_lines().filter(|(.., line)| line.word != 0)
    }

    /// The live areas, ordered by number.
    pub(super) fn live_areas(&self) -> Vec<(u32, AreaLine)> {
        let lines = self.area_lines().map(|(_, number, line)| (number, line));
        let is_live = |(number, line): &(u32, AreaLine)| {
            line.phase(*number) == Some(AreaPhase::Live) && self.is_inode_slot(line.root)
        };
        lines.filter(is_live).collect()
    }

    /// Whether the directory that a line names as the root names this area as its own. `None`:
    /// there is no such directory of the line's generation.
    fn has_root(&self, number: u32, line: &AreaLine) -> Option<bool> {
        self.is_inode_slot(line.root).then_some(())?;
        let identity = self.identity_on_pool(line.root);
        let is_one = identity.state() != Some(InodeState::Free)
            && identity.kind() == Some(FileKind::Directory)
            && identity.generation() == line.root_generation;
        is_one.then(|| self.place_of_directory(line.root).area() == number)
    }

    /// Checks the table of a pool that is being opened.
    pub(super) fn check_table(&self, was_clean: bool) -> Result<()> {
        let table = self.geometry.areas.table;
        let damaged = |what| Err(Error::damaged(what, Location::Slot(table)));
        if self.kind_of_slot(table) != Some(ChunkKind::Blocks) {
            return damaged("area table in a wrong chunk");
        }
        let is_first = self.area_of_root(ROOT_AREA, ROOT_SLOT).is_some()
            && self.place_of_directory(ROOT_SLOT) == DirLocation::new(0, ROOT_AREA);
        if !self.table_head(table).is_sound(table, 0) || !is_first {
            return damaged("the root's area");
        }
        let last = self.table_blocks().last().unwrap_or(table);
        if self.table_head(last).next != 0 {
            return damaged("area table cut off");
        }
        if was_clean {
            if self.word(self.moving_at()) != 0 {
                return damaged("area table of a closed pool, with an unfinished move,");
            }
            self.check_lines(&|number, line| match line.phase(number) {
                Some(AreaPhase::Live) => self.has_root(number, line) == Some(true),
                phase => phase.is_none(),
            })?;
        }
        Ok(())
    }

    /// Checks the lines of a pool that was not closed cleanly. An area without its root will be
    /// removed.
    pub(super) fn check_recovered_lines(&self) -> Result<()> {
        self.check_lines(&|number, line| {
            let is_live = line.phase(number) == Some(AreaPhase::Live);
            !is_live || self.has_root(number, line) != Some(false)
        })
    }

    fn check_lines(&self, is_right: &dyn Fn(u32, &AreaLine) -> bool) -> Result<()> {
        match self
            .area_lines()
            .find(|(_, number, line)| !is_right(*number, line))
        {
            Some((at, ..)) => Err(Error::damaged("line of an area", Location::Offset(at))),
            None => Ok(()),
        }
    }

    /// Settles the table after a crash: frees the lines of areas whose roots have no name any more,
    /// and unsound lines.
    pub(super) fn settle_table(&self, mender: &dyn Mender) -> Result<()> {
        for block in self.table_blocks() {
            mender.claim(block, SLOTS_PER_BLOCK)?;
        }
        for (at, number, line) in self.area_lines() {
            let is_live = line.phase(number) == Some(AreaPhase::Live);
            // At this point inodes are in use if they have a name.
            let has_root = is_live && self.has_root(number, &line) == Some(true);
            if !(has_root && self.is_used(line.root)) {
                mender.store(sites::RECOVER_AREA, at + AreaLine::WORD, 0);
            }
        }
        Ok(())
    }

    /// Frees the line of the area whose root is a removed directory. Flushed, not fenced.
    pub(super) fn give_up_area(&self, dir: Cachelet) {
        let (ino, number) = (self.ino(dir), self.place_of_directory(self.ino(dir)).area());
        let is_its = self.area_of_root(number, ino).is_some();
        if let Some(at) = self.area_line_at(number).filter(|_| is_its) {
            self.set_word(at + AreaLine::WORD, 0);
            self.pool.flush(sites::AREA_GONE, at, 8);
        }
    }

    /// Whether the line of an area is free.
    pub(super) fn is_area_gone(&self, number: u32) -> bool {
        let line = self.area_line_at(number);
        line.is_some_and(|at| self.word(at + AreaLine::WORD) == 0)
    }

    /// Adds to `record` the stores that make a directory, of this inode and generation, the root of
    /// an area.
    pub(super) fn record_area(&self, record: &mut Record, taken: &Taken, root: (u64, u32)) {
        let AreaLife { number, .. } = taken.area;
        let line = AreaLine {
            formed: taken.formed,
            ..AreaLine::new(taken.area, AreaPhase::Live, root.0, root.1)
        };
        let slot = match taken.block {
            Some(block) => {
                let last = self.table_blocks().last();
                let last = last.unwrap_or(self.geometry.areas.table);
                record.store(self.geometry.slot_at(last) + AreaTableHead::NEXT, block);
                Some(block)
            }
            None => self.table_block(u64::from(number) / AREA_TABLE_LINES),
        };
        let Some(slot) = slot else { return };
        let at = self.geometry.slot_at(slot)
            + u64::from(number) % AREA_TABLE_LINES * size_of::<AreaLine>() as u64;
        // The saved and recorded values of the line belong to an earlier area.
        let fields = [
            AreaLine::ROOT,
            AreaLine::LIVES,
            AreaLine::FORMED,
            AreaLine::CHECK,
            AreaLine::WORD,
        ];
        record_line(record, at, &line, &fields);
    }

    /// Adds to `record` the stores that free an area's line, and that record in it what became of
    /// the area.
    pub(super) fn record_merged(&self, record: &mut Record, number: u32, merged: &Merged) {
        let Some(at) = self.area_line_at(number) else {
            return;
        };
        let line = self.area_line(at).merged_away(number, merged);
        let fields = [
            AreaLine::SAVED,
            AreaLine::SAVED_CHECK,
            AreaLine::FORMED,
            AreaLine::CHECK,
            AreaLine::WORD,
        ];
        record_line(record, at, &line, &fields);
    }

    /// The merged areas whose lines were not reused, ordered by number.
    pub(super) fn merged_areas(&self) -> Vec<MergedArea> {
        let merged = |(_, number, line): (u64, u32, AreaLine)| {
            Some(MergedArea {
                number,
                root: line.root,
                generation: line.root_generation,
                merged: line.merged(number)?,
            })
        };
        self.all_lines().filter_map(merged).collect()
    }

    /// Pool offset of the word of an area's line that shows its owner, if the table is long enough.
    pub(super) fn area_word_at(&self, number: u32) -> Option<u64> {
        Some(self.area_line_at(number)? + AreaLine::WORD)
    }
}

impl<M: Memories> Op<'_, M> {
    /// Returns a free line. If there is none, writes a further block for it, past the cache and not
    /// fenced.
    pub(super) fn take_line(&self, formed: Formed) -> Result<Taken> {
        let core = self.core;
        let blocks = core.table_blocks().count() as u32;
        let numbers = 1..blocks * AREA_TABLE_LINES as u32;
        let is_free = |number: &u32| {
            let at = core.area_word_at(*number);
            at.is_some_and(|at| core.word(at) == 0)
        };
        if let Some(number) = numbers.into_iter().find(is_free)
            && let Some(before) = core.area_life(number)
        {
            let area = AreaLife {
                number,
                generation: before.generation.wrapping_add(1),
            };
            return Ok(Taken {
                area,
                block: None,
                formed,
            });
        }
        if u64::from(blocks) >= blocks_max(&core.geometry) {
            return Err(Error::NoSpace("area table full"));
        }
        let slot = self.alloc_block(SPARE_BLOCKS)?;
        let mut block = [0; BLOCK_BYTES as usize];
        block[..size_of::<AreaTableHead>()]
            .copy_from_slice(AreaTableHead::new(slot, blocks).as_bytes());
        let at = core.geometry.slot_at(slot);
        core.pool.write_through(sites::AREA_TABLE, at, &block);
        let area = AreaLife {
            number: blocks * AREA_TABLE_LINES as u32 + 1,
            generation: 1,
        };
        Ok(Taken {
            area,
            block: Some(slot),
            formed,
        })
    }
}
