//! The HashFS mapping table of a segment: entry `i` describes data block `i`.

use vellum_media::{mix, place_among};

/// Entries in a line of the mapping table.
pub const LINE_ENTRIES: u64 = 8;

/// Blocks of a file that share a home line, at most and by default (`R` of the format; the paper
/// places blocks one by one).
pub const RUN_BLOCKS: u64 = LINE_ENTRIES;

/// Neighbouring lines that serve as home lines of consecutive runs of a file, by default.
pub const SPAN_LINES: u16 = 16;

/// Most lines of a span.
pub const SPAN_LINES_MAX: u16 = 256;

/// The state of a data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MapState {
    /// Belongs to no file.
    Free = 0,
    /// Reserved for the file, reads as zeros.
    Unwritten = 1,
    /// Holds the file's bytes.
    Mapped = 2,
    /// Freed; reusable once no reader can be in it. Recovery treats it as free.
    Limbo = 3,
}

/// An entry: logical block (bits 0..32), mapping id (32..62), state (62..64). Free is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapWord(pub u64);

impl MapWord {
    /// The word of a free block.
    pub const FREE: Self = Self(0);
    /// The word of a block of no file that is kept from all: metadata have it, or its space is
    /// being given away.
    pub const HELD: Self = Self((MapState::Limbo as u64) << 62);
    /// Selects mapping id and logical block.
    pub const KEY_MASK: u64 = (1 << 62) - 1;

    /// Packs the word; `id` keeps 30 bits.
    pub fn new(state: MapState, id: u32, logical: u32) -> Self {
        if state == MapState::Free {
            return Self::FREE;
        }
        Self((state as u64) << 62 | Self::key(id, logical))
    }

    /// Mapping id and logical block as they stand in a word.
    pub fn key(id: u32, logical: u32) -> u64 {
        u64::from(id & 0x3FFF_FFFF) << 32 | u64::from(logical)
    }

    /// The state.
    pub fn state(self) -> MapState {
        match self.0 >> 62 {
            0 => MapState::Free,
            1 => MapState::Unwritten,
            2 => MapState::Mapped,
            _ => MapState::Limbo,
        }
    }

    /// The mapping id.
    pub fn id(self) -> u32 {
        (self.0 >> 32) as u32 & 0x3FFF_FFFF
    }

    /// The logical block.
    pub fn logical(self) -> u32 {
        self.0 as u32
    }

    /// The same block in another state.
    pub fn with_state(self, state: MapState) -> Self {
        Self::new(state, self.id(), self.logical())
    }
}

/// The home line of a run of blocks: the line to search first in a table of `lines` lines. The home
/// lines of `span` consecutive runs are neighbours.
pub fn home_line(seed: u64, id: u32, run: u32, span: u32, lines: u64) -> u64 {
    let first = place_among(span_hash(seed, id, run / span), lines as u32);
    (first + u64::from(run % span)) % lines
}

/// The chain of the overflow index for those blocks of a run that lie outside their home line, in a
/// segment of this many blocks.
pub fn chain(seed: u64, id: u32, run: u32, span: u32, blocks: u64) -> u64 {
    let first = span_hash(seed, id, run / span);
    first.wrapping_add(u64::from(run % span)) & (chain_count(blocks) - 1)
}

/// Chains of the overflow index of a segment of this many blocks.
pub(crate) fn chain_count(blocks: u64) -> u64 {
    blocks.next_power_of_two()
}

fn span_hash(seed: u64, id: u32, span: u32) -> u64 {
    mix(seed ^ (u64::from(id) << 32 | u64::from(span)))
}

/// How a segment's blocks are placed: everything that determines where a block is searched first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homes {
    /// Seed of the hashes.
    pub seed: u64,
    /// Blocks of the segment.
    pub blocks: u64,
    /// Consecutive blocks of a file that share a home line: 1 or 8.
    pub run_blocks: u32,
    /// Lines of a span, where consecutive runs of a file have their home lines: a power of two.
    pub span_lines: u16,
}

impl Homes {
    /// Whether runs of this length are valid.
    pub fn is_run(run_blocks: u32) -> bool {
        run_blocks == 1 || u64::from(run_blocks) == RUN_BLOCKS
    }

    /// Whether runs of this length can have spans of this many lines. The paper's placement, one
    /// block at a time, only has spans of one line.
    pub fn is_span(span_lines: u16, run_blocks: u32) -> bool {
        let most = if run_blocks == 1 { 1 } else { SPAN_LINES_MAX };
        span_lines.is_power_of_two() && span_lines <= most
    }

    /// The home line of a logical block.
    pub fn line(&self, id: u32, logical: u32) -> u64 {
        let lines = self.blocks / LINE_ENTRIES;
        let span = u32::from(self.span_lines);
        home_line(self.seed, id, logical / self.run_blocks, span, lines)
    }

    /// The chain that a logical block is on if it lies outside its home line.
    pub fn chain(&self, id: u32, logical: u32) -> u64 {
        let span = u32::from(self.span_lines);
        chain(self.seed, id, logical / self.run_blocks, span, self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_give_back_what_was_packed() {
        let word = MapWord::new(MapState::Limbo, 0x3FFF_FFFF, u32::MAX);
        assert_eq!(word.state(), MapState::Limbo);
        assert_eq!((word.id(), word.logical()), (0x3FFF_FFFF, u32::MAX));
        assert_eq!(word.with_state(MapState::Free), MapWord::FREE);
    }

    #[test]
    fn home_lines_spread() {
        for span in [1, 16] {
            let mut load = [0u32; 64];
            for run in 0..6400 {
                load[home_line(1, 5, run, span, 64) as usize] += 1;
            }
            assert!(load.iter().all(|&n| (50..160).contains(&n)), "{load:?}");
        }
    }

    #[test]
    fn home_lines_and_chains_of_a_span_lie_side_by_side() {
        let (lines, blocks) = (100, 800);
        for span in [1, 2, 16, 256] {
            for run in (0..5000u32).filter(|run| !(run + 1).is_multiple_of(span)) {
                let line = |run| home_line(1, 5, run, span, lines);
                let chain = |run| chain(1, 5, run, span, blocks);
                assert_eq!(line(run + 1), (line(run) + 1) % lines);
                assert_eq!(chain(run + 1), (chain(run) + 1) % 1024);
            }
        }
    }
}
