//! The cuckoo table of a segment. A block of a file is found in one of two lines. Behind the lines
//! lies the *stash*, for keys that fit into neither.

use crate::keyed::{LINE_BYTES, PAIRS_PER_LINE, STASH_LINES, hashes, scale};

/// The layout of a cuckoo table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooPlan {
    /// Lines that keys hash to; the stash lies behind them.
    pub lines: u64,
}

impl CuckooPlan {
    /// The table of a segment: if every block is in use, so are four of five entries.
    pub fn new(segment_blocks: u64) -> Self {
        let entries = segment_blocks * 5 / 4;
        Self {
            lines: entries.div_ceil(PAIRS_PER_LINE).max(2),
        }
    }

    /// All lines, including the stash.
    pub fn all_lines(&self) -> u64 {
        self.lines + STASH_LINES
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> u64 {
        self.all_lines() * LINE_BYTES
    }

    /// The two lines that a key may be in; they always differ.
    pub fn homes(&self, seed: u64, key: u64) -> [u64; 2] {
        let [first, second] = hashes(seed, key);
        let first = scale(first, self.lines);
        let second = scale(second, self.lines - 1);
        [first, second + u64::from(second >= first)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MapWord;

    #[test]
    fn homes_differ_and_spread() {
        for lines in [2, 5, 64, 1000] {
            let plan = CuckooPlan { lines };
            let mut load = vec![0u64; lines as usize];
            for logical in 0..lines as u32 * 50 {
                let [first, second] = plan.homes(1, MapWord::key(5, logical));
                assert!(first != second && first < lines && second < lines);
                load[first as usize] += 1;
                load[second as usize] += 1;
            }
            assert!(load.iter().all(|&n| (50..160).contains(&n)), "{load:?}");
        }
    }

    #[test]
    fn every_block_leaves_a_fifth_of_the_entries_free() {
        for blocks in [16u64, 184, 4096, 1 << 30] {
            let entries = CuckooPlan::new(blocks).lines * PAIRS_PER_LINE;
            assert!(entries * 4 >= blocks * 5 && entries < blocks * 5 / 4 + 4);
        }
    }
}
