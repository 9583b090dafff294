//! Where a new block goes: its place in the home line, any place in the home line, beside its run,
//! near the home line, anywhere.

use vellum_layout::{MapWord, RUN_BLOCKS};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site, count};

use super::search::Run;
use super::{HashFs, claimed};
use crate::core::Core;
use crate::error::{Error, Place, Result};
use crate::mapping::{BlockNo, MapId, Reservation, Step};
use crate::slots::{Op, pause};

/// Bitmap words looked at for a wholly free line: one cache line of the bitmap.
const NEAR_WORDS: u64 = 8;
/// Blocks of one bitmap word.
const WORD_BLOCKS: u64 = 64;
/// Searches of the bitmap without a result before the table is read instead.
const BITMAP_TRIES: u32 = 3;
/// Readings of the table without a result before the free count is called wrong.
const TABLE_TRIES: u32 = 1000;

/// A byte 0x80 for each byte of `word` that is 0xFF: the lines of 8 that are wholly free.
fn full_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    const ONE: u64 = 0x0101_0101_0101_0101;
    ((word & LOW) + ONE) & word & !LOW
}

impl HashFs {
    /// Claims `out.len()` consecutive logical blocks, all holes. On an error those claimed before
    /// stay claimed, and the caller releases them.
    pub(super) fn claim_blocks<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        step: Step,
        from: &mut Reservation,
        out: &mut [BlockNo],
    ) -> Result<()> {
        if from.blocks < out.len() as u64 {
            return Err(Error::NoSpace("data blocks"));
        }
        let start = u64::from(first);
        let mut result = Ok(());
        self.each_run(op.core, id, start, start + out.len() as u64, |run| {
            let mut unflushed = None;
            for logical in run.wanted() {
                let word = MapWord::new(step.to, id, logical as u32);
                match self.claim_one(op, run, word) {
                    Ok(block) => {
                        claimed(op, from);
                        out[(logical - start) as usize] = BlockNo(block);
                        if let Some(site) = step.flush {
                            self.flush_late(site, op.core, &mut unflushed, Some(block));
                        }
                    }
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
            if let Some(site) = step.flush {
                self.flush_late(site, op.core, &mut unflushed, None);
            }
            result.is_ok()
        });
        let next = start + out.len() as u64;
        if next.is_multiple_of(RUN_BLOCKS) {
            // Files mostly grow at their ends, a run after the other.
            let home = self.run_of(id, next as u32).home;
            op.core.pool.prefetch(self.line_at(home));
        }
        result
    }

    /// Flushes the line written before, unless `block` is in it too.
    pub(super) fn flush_late<M: Memories>(
        &self,
        site: Site,
        core: &Core<M>,
        unflushed: &mut Option<u64>,
        block: Option<u32>,
    ) {
        let line = block.map(|block| u64::from(block) / RUN_BLOCKS);
        if let Some(before) = *unflushed
            && line != *unflushed
        {
            core.pool.flush(site, self.line_at(before), LINE_BYTES);
        }
        *unflushed = line;
    }

    fn claim_one<M: Memories>(&self, op: &Op<'_, M>, run: &Run, word: MapWord) -> Result<u32> {
        let core = op.core;
        if let Some(block) = self.try_line(core, run.home, word) {
            return Ok(block);
        }
        // The count is up before the block can be looked for.
        self.overflow.raise(&core.arena, run.home);
        let placed = self
            .try_beside(core, run, word)
            .or_else(|| self.try_near(core, run.home, word))
            .map_or_else(|| self.try_anywhere(core, run.home, word), Ok);
        match placed {
            Ok(block) => {
                self.overflow
                    .link(&core.arena, op.holder(), run.hash, block);
            }
            Err(_) => self.overflow.lower(&core.arena, run.home),
        }
        placed
    }

    /// Takes a free entry of a line, the one at `logical % 8` if it is free.
    fn try_line<M: Memories>(&self, core: &Core<M>, line: u64, word: MapWord) -> Option<u32> {
        let prefer = word.logical() % RUN_BLOCKS as u32;
        loop {
            count::probe();
            let free = core
                .pool
                .match_line(self.line_at(line), u64::MAX, MapWord::FREE.0);
            if free == 0 {
                return None;
            }
            let place = (prefer + free.rotate_right(prefer).trailing_zeros()) % RUN_BLOCKS as u32;
            let block = (line * RUN_BLOCKS) as u32 + place;
            if self.try_block(core, block, word) {
                return Some(block);
            }
        }
    }

    fn try_block<M: Memories>(&self, core: &Core<M>, block: u32, word: MapWord) -> bool {
        let at = self.entry_at(block);
        let taken = core
            .pool
            .compare_exchange(at, MapWord::FREE.0, word.0)
            .is_ok();
        if taken {
            self.bitmap.clear(&core.arena, u64::from(block));
        }
        taken
    }

    /// Takes an entry in a line where the run has displaced blocks already.
    fn try_beside<M: Memories>(&self, core: &Core<M>, run: &Run, word: MapWord) -> Option<u32> {
        let mut tried = None;
        for block in self.overflow.chain(&core.arena, run.hash) {
            count::probe();
            let line = u64::from(block) / RUN_BLOCKS;
            let same_run = self.entry(core, block).0 & MapWord::RUN_MASK == run.key;
            if same_run && tried != Some(line) {
                tried = Some(line);
                if let Some(block) = self.try_line(core, line, word) {
                    return Some(block);
                }
            }
        }
        None
    }

    /// Takes an entry in a wholly free line near the home line, so that the rest of the run finds
    /// room beside it.
    fn try_near<M: Memories>(&self, core: &Core<M>, home: u64, word: MapWord) -> Option<u32> {
        let group = home * RUN_BLOCKS / WORD_BLOCKS / NEAR_WORDS * NEAR_WORDS;
        let last = self.blocks.div_ceil(WORD_BLOCKS);
        for index in group..(group + NEAR_WORDS).min(last) {
            let lines = full_bytes(self.bitmap.word(&core.arena, index * WORD_BLOCKS));
            if lines != 0 {
                let line = index * 8 + u64::from(lines.trailing_zeros()) / 8;
                if let Some(block) = self.try_line(core, line, word) {
                    return Some(block);
                }
            }
        }
        None
    }

    /// Takes the next free entry after the home line. The caller's reservation says that there is
    /// one, so this ends; a bitmap that another operation is changing, or that a dead process left
    /// wrong, sends the search to the table itself.
    #[cold]
    fn try_anywhere<M: Memories>(&self, core: &Core<M>, home: u64, word: MapWord) -> Result<u32> {
        let mut from = home * RUN_BLOCKS;
        let mut misses = 0;
        while misses < BITMAP_TRIES {
            count::probe();
            let Some(block) = self.bitmap.next(&core.arena, from) else {
                misses += 1;
                continue;
            };
            if self.try_block(core, block as u32, word) {
                return Ok(block as u32);
            }
            self.correct_bit(core, block as u32);
            from = block + 1;
        }
        let mut tries = 0;
        for _ in 0..TABLE_TRIES {
            for line in (home..self.lines).chain(0..home) {
                if let Some(block) = self.try_line(core, line, word) {
                    return Ok(block);
                }
            }
            pause(&core.arena, &mut tries);
        }
        Err(Error::damaged(
            "count of free blocks",
            Place::Offset(self.table_at),
        ))
    }

    /// Clears the bit of a block that is taken, unless it became free meanwhile.
    fn correct_bit<M: Memories>(&self, core: &Core<M>, block: u32) {
        self.bitmap.clear(&core.arena, u64::from(block));
        if self.entry(core, block) == MapWord::FREE {
            self.bitmap.set(&core.arena, u64::from(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::full_bytes;

    #[test]
    fn full_bytes_are_found_without_carries() {
        for byte in 0..=255u8 {
            for place in 0..8 {
                let word = u64::from(byte) << (place * 8) | 0xFE << ((place + 1) % 8 * 8);
                let expected = if byte == 255 { 0x80 << (place * 8) } else { 0 };
                assert_eq!(full_bytes(word), expected, "{word:#x}");
            }
        }
        assert_eq!(full_bytes(u64::MAX), 0x8080_8080_8080_8080);
    }
}
