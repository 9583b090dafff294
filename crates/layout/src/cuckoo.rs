//! The cuckoo table of a zone: a file's block is found in one of two lines.
//!
//! A line holds four entries of two words. The first is the key, a [`MapWord`](crate::MapWord),
//! which also says whether the entry is in use; the second, a [`PlaceWord`], says where the block
//! is and how many blocks beside it lie beside it on the medium too. Behind the lines lies the
//! *stash*, for keys that found no way into either of their lines.

use vellum_media::mix;

use crate::MapWord;

/// Entries in a line of the table.
pub const CUCKOO_LINE_ENTRIES: u64 = 4;
/// Lines of the stash.
pub const CUCKOO_STASH_LINES: u64 = 8;
/// Most blocks that an entry's counts can tell of.
pub const RUN_COUNT_MAX: u32 = 255;

const LINE_BYTES: u64 = 64;
/// Makes the second hash of a key from the first.
const SECOND: u64 = 0x9E37_79B9_7F4A_7C15;

/// The second word of an entry: block (bits 0..30), blocks of the file that follow it on the medium
/// (30..38), blocks from which on none before it counts it (38..46), check (46..64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceWord(pub u64);

impl PlaceWord {
    /// Packs the word of the entry with this key; `block` keeps 30 bits, counts above
    /// [`RUN_COUNT_MAX`] are cut to it.
    pub fn new(key: u64, block: u32, following: u32, preceding: u32) -> Self {
        let following = u64::from(following.min(RUN_COUNT_MAX));
        let preceding = u64::from(preceding.min(RUN_COUNT_MAX));
        let word = u64::from(block & 0x3FFF_FFFF) | following << 30 | preceding << 38;
        Self(word | Self::check(key, word) << 46)
    }

    /// The data block.
    pub fn block(self) -> u32 {
        self.0 as u32 & 0x3FFF_FFFF
    }

    /// At least so many logical blocks behind this one are of the same file and state, each at the
    /// data block behind that of the one before.
    pub fn following(self) -> u32 {
        (self.0 >> 30) as u32 & 0xFF
    }

    /// No entry counts this one as following that is more than so many logical blocks before it.
    pub fn preceding(self) -> u32 {
        (self.0 >> 38) as u32 & 0xFF
    }

    /// Whether this is the second word of an entry with that key.
    pub fn is_of(self, key: u64) -> bool {
        self.0 >> 46 == Self::check(key, self.0 & ((1 << 46) - 1))
    }

    fn check(key: u64, word: u64) -> u64 {
        mix(mix(key & MapWord::KEY_MASK) ^ word) >> 46
    }
}

/// Where a cuckoo table has its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooPlan {
    /// Lines that keys hash to; the stash lies behind them.
    pub lines: u64,
}

impl CuckooPlan {
    /// The table of a zone: with every block in use, four in five entries are.
    pub fn new(zone_blocks: u64) -> Self {
        let entries = zone_blocks * 5 / 4;
        Self {
            lines: entries.div_ceil(CUCKOO_LINE_ENTRIES).max(2),
        }
    }

    /// Lines, those of the stash included.
    pub fn all_lines(&self) -> u64 {
        self.lines + CUCKOO_STASH_LINES
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> u64 {
        self.all_lines() * LINE_BYTES
    }

    /// The two lines that a key may be in, which differ.
    pub fn homes(&self, seed: u64, key: u64) -> [u64; 2] {
        let hash = mix(seed ^ key & MapWord::KEY_MASK);
        let first = scale(hash, self.lines);
        let second = scale(mix(hash ^ SECOND), self.lines - 1);
        [first, second + u64::from(second >= first)]
    }
}

/// The upper 64 bits of the 128-bit product.
fn scale(hash: u64, lines: u64) -> u64 {
    ((u128::from(hash) * u128::from(lines)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MapState;

    #[test]
    fn places_give_back_what_was_packed() {
        let key = MapWord::new(MapState::Mapped, 7, 9).0;
        let word = PlaceWord::new(key, 0x3FFF_FFFF, 300, 254);
        assert_eq!(
            (word.block(), word.following(), word.preceding()),
            (0x3FFF_FFFF, 255, 254)
        );
        assert!(word.is_of(key));
        let unwritten = MapWord(key).with_state(MapState::Unwritten).0;
        assert!(word.is_of(unwritten), "the state is not under the check");
        assert!(!word.is_of(key + 1));
        assert!(!PlaceWord(word.0 ^ 1 << 30).is_of(key));
    }

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
            let entries = CuckooPlan::new(blocks).lines * CUCKOO_LINE_ENTRIES;
            assert!(entries * 4 >= blocks * 5 && entries < blocks * 5 / 4 + 4);
        }
    }
}
