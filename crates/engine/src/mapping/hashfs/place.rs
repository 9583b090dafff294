//! Where a new block goes, in order of preference: its own entry in the home line, any entry in the
//! home line, beside its run, in a line near the home line, anywhere.

use vellum_layout::{LINE_ENTRIES, MapWord};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site, count};

use super::HashFs;
use super::search::Run;
use crate::core::Core;
use crate::core::slots::{Op, pause};
use crate::error::{Error, Location, Result};
use crate::mapping::space::claimed;
use crate::mapping::{BlockNo, MapId, Reservation, Step};

/// Bitmap words searched for a line with room.
const NEAR_WORDS: u64 = 16;
/// Cache lines of these bitmap words.
const NEAR_LINES: u64 = NEAR_WORDS * 8 / LINE_BYTES;
/// Blocks of one bitmap word.
const WORD_BLOCKS: u64 = 64;
/// Fruitless searches of the bitmap before the table is read instead.
const BITMAP_TRIES: u32 = 3;
/// Fruitless readings of the table before the count of free blocks is reported as damaged.
const TABLE_TRIES: u32 = 1000;

/// Counts the set bits of each byte of `word`: the free entries of each of its 8 lines.
fn ones_by_byte(word: u64) -> [u8; 8] {
    const PAIRS: u64 = 0x5555_5555_5555_5555;
    const FOURS: u64 = 0x3333_3333_3333_3333;
    const BYTES: u64 = 0x0F0F_0F0F_0F0F_0F0F;
    let pairs = word - ((word >> 1) & PAIRS);
    let fours = (pairs & FOURS) + ((pairs >> 2) & FOURS);
    ((fours + (fours >> 4)) & BYTES).to_le_bytes()
}

impl HashFs {
    /// Claims `out.len()` consecutive logical blocks, all of them holes. After an error the blocks
    /// claimed so far stay claimed, and the caller releases them.
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
            return Err(Error::NoSpace(Error::DATA_BLOCKS));
        }
        let start = u64::from(first);
        let mut result = Ok(());
        self.each_run(op.core, id, start, start + out.len() as u64, |run| {
            let mut unflushed = None;
            let mut room = self.room_for(run);
            for logical in run.wanted() {
                let word = MapWord::new(step.to, id, logical as u32);
                let placed = self.claim_one(op, run, room, word);
                room -= 1;
                match placed {
                    Ok(block) => {
                        claimed(op, from, 1);
                        out[(logical - start) as usize] = BlockNo(block);
                        if let Some(site) = step.site() {
                            self.flush_late(site, op.core, &mut unflushed, Some(block));
                        }
                        result = op.core.provide(block.into(), 1);
                        if result.is_err() {
                            break;
                        }
                    }
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
            if let Some(site) = step.site() {
                self.flush_late(site, op.core, &mut unflushed, None);
            }
            result.is_ok()
        });
        let next = start + out.len() as u64;
        if self.within(next) == 0 {
            // Files mostly grow at their ends, one run after the other.
            let home = self.run_of(id, next as u32).home;
            op.core.pool.prefetch(self.line_at(home));
        }
        result
    }

    /// Flushes the previously written line, unless `block` is in it too.
    #[inline]
    #[track_caller]
    pub(super) fn flush_late<M: Memories>(
        &self,
        site: Site,
        core: &Core<M>,
        unflushed: &mut Option<u64>,
        block: Option<u32>,
    ) {
        let line = block.map(|block| u64::from(block) / LINE_ENTRIES);
        if let Some(before) = *unflushed
            && line != *unflushed
        {
            core.pool.flush(site, self.line_at(before), LINE_BYTES);
        }
        *unflushed = line;
    }

    /// The number of the run's blocks that one line should have room for. A request for a single
    /// block is probably followed by one for the next.
    fn room_for(&self, run: &Run) -> u8 {
        let asked = run.wanted().count() as u8;
        let first = run.wanted().next().unwrap_or_default();
        if asked == 1 {
            (1u8 << self.run_shift) - self.within(first) as u8
        } else {
            asked
        }
    }

    /// Claims a block. `room` is the number of blocks, this one included, that one line should have
    /// room for.
    fn claim_one<M: Memories>(
        &self,
        op: &Op<'_, M>,
        run: &Run,
        room: u8,
        word: MapWord,
    ) -> Result<u32> {
        let prefer = self.preferred(run, word.logical());
        match self.try_line(op.core, run.home, prefer, word) {
            Some(block) => Ok(block),
            None => self.claim_away(op, run, room, word),
        }
    }

    /// Claims a block after its home line was full. By now there may be room there again.
    pub(super) fn claim_away<M: Memories>(
        &self,
        op: &Op<'_, M>,
        run: &Run,
        room: u8,
        word: MapWord,
    ) -> Result<u32> {
        let core = op.core;
        let prefer = self.preferred(run, word.logical());
        // The count is raised before any lookup can need it.
        self.overflow.raise(&core.arena, run.home);
        let placed = self
            .try_beside(core, run, prefer, word)
            .or_else(|| self.try_near(core, run.home, room, prefer, word))
            .map_or_else(|| self.try_anywhere(core, run.home, prefer, word), Ok);
        match placed {
            Ok(block) if u64::from(block) / LINE_ENTRIES != run.home => {
                self.overflow
                    .link(&core.arena, op.holder(), run.hash, block);
            }
            _ => self.overflow.lower(&core.arena, run.home),
        }
        placed
    }

    /// The entry of a line that a block of the run prefers.
    #[inline]
    pub(super) fn preferred(&self, run: &Run, logical: u32) -> u32 {
        if self.run_shift == 0 {
            run.entry
        } else {
            let number = self.within(u64::from(logical)) as u32;
            self.scatter.entry(run.hash, number)
        }
    }

    /// Claims a free entry of a line, `prefer` if that is free.
    fn try_line<M: Memories>(
        &self,
        core: &Core<M>,
        line: u64,
        prefer: u32,
        word: MapWord,
    ) -> Option<u32> {
        loop {
            count::probe();
            let free = core
                .pool
                .match_line(self.line_at(line), u64::MAX, MapWord::FREE.0);
            if free == 0 {
                return None;
            }
            let place = (prefer + free.rotate_right(prefer).trailing_zeros()) % LINE_ENTRIES as u32;
            let block = (line * LINE_ENTRIES) as u32 + place;
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
            count::probe();
            self.bitmap.clear(&core.arena, u64::from(block));
        }
        taken
    }

    /// Claims an entry in a line that already has displaced blocks of the run.
    fn try_beside<M: Memories>(
        &self,
        core: &Core<M>,
        run: &Run,
        prefer: u32,
        word: MapWord,
    ) -> Option<u32> {
        if self.run_shift == 0 {
            return None;
        }
        let mut tried = None;
        for block in self.overflow.chain(&core.arena, run.hash) {
            count::probe();
            let line = u64::from(block) / LINE_ENTRIES;
            let same_run = self.entry(core, block).0 & self.run_mask() == run.key;
            if same_run && tried != Some(line) {
                tried = Some(line);
                if let Some(block) = self.try_line(core, line, prefer, word) {
                    return Some(block);
                }
            }
        }
        None
    }

    /// Claims an entry in a line near the home line. For a run, this is the line with the least
    /// room that holds all of it, or else the line with the most room: runs stay together, and long
    /// free stretches are kept for long runs. For a single block it is the line with the most room:
    /// evenly full lines leave most blocks in their home lines. (The reverse choices cost 1.5 times
    /// as many probes.)
    fn try_near<M: Memories>(
        &self,
        core: &Core<M>,
        home: u64,
        room: u8,
        prefer: u32,
        word: MapWord,
    ) -> Option<u32> {
        // A line that fits scores above every line that does not, whose score is its count.
        const FITS: u8 = 2 * LINE_ENTRIES as u8;
        let group = home * LINE_ENTRIES / WORD_BLOCKS / NEAR_WORDS * NEAR_WORDS;
        let last = core.blocks().div_ceil(WORD_BLOCKS);
        let (mut best, mut line) = (0, 0);
        count::probes(NEAR_LINES);
        for index in group..(group + NEAR_WORDS).min(last) {
            let free = self.bitmap.word(&core.arena, index * WORD_BLOCKS);
            for (i, count) in ones_by_byte(free).into_iter().enumerate() {
                let fits = self.run_shift > 0 && count >= room;
                let score = if fits { FITS - count } else { count };
                if score > best {
                    (best, line) = (score, index * 8 + i as u64);
                }
            }
        }
        (best > 0)
            .then(|| self.try_line(core, line, prefer, word))
            .flatten()
    }

    /// Prefetches the part of the bitmap that [`Self::try_near`] reads, which includes the home
    /// line's bits.
    pub(super) fn prefetch_near<M: Memories>(&self, core: &Core<M>, home: u64) {
        let group = home * LINE_ENTRIES / WORD_BLOCKS / NEAR_WORDS * NEAR_WORDS;
        for line in 0..NEAR_LINES {
            let word = group + line * LINE_BYTES / 8;
            self.bitmap.prefetch(&core.arena, word * WORD_BLOCKS);
        }
    }

    /// Claims the next free entry after the home line. Ends, because the caller's reservation
    /// guarantees a free entry. If another operation is changing the bitmap, or if the bitmap is
    /// wrong, the search goes to the table itself.
    #[cold]
    fn try_anywhere<M: Memories>(
        &self,
        core: &Core<M>,
        home: u64,
        prefer: u32,
        word: MapWord,
    ) -> Result<u32> {
        let mut from = home * LINE_ENTRIES;
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
            for line in (home..self.lines(core)).chain(0..home) {
                if let Some(block) = self.try_line(core, line, prefer, word) {
                    return Ok(block);
                }
            }
            pause(&core.arena, &mut tries);
        }
        Err(Error::damaged(
            "count of free blocks",
            Location::Offset(self.table_at),
        ))
    }

    /// Clears the bit of an allocated block, unless the block has become free meanwhile.
    fn correct_bit<M: Memories>(&self, core: &Core<M>, block: u32) {
        self.bitmap.clear(&core.arena, u64::from(block));
        if self.entry(core, block) == MapWord::FREE {
            self.bitmap.set(&core.arena, u64::from(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ones_by_byte;

    #[test]
    fn ones_are_counted_byte_by_byte() {
        for byte in 0..=255u8 {
            let bytes = [byte, 0, !byte, 255, byte.rotate_left(1), 1, 0x80, byte];
            let expected = bytes.map(|byte| byte.count_ones() as u8);
            assert_eq!(ones_by_byte(u64::from_le_bytes(bytes)), expected);
        }
    }
}
