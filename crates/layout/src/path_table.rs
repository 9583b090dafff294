//! The hash table of an area: finds an entry by the hash of its path. It is derived from the
//! entries, and exact in a clean pool.
//!
//! A table of *level* n is 2^n blocks of 64 lines. A line is a head and seven words. The word of an
//! entry lies in its home line or, if that was full, in its second line; the head of the home line
//! counts displaced words and keeps a filter of their tags.

use crate::checksum::checksum_words;
use crate::keyed::scale;
use crate::{AreaLife, BLOCK_BYTES, PathHash, SLOTS_PER_BLOCK, mix};

/// Lines of a block of a table.
pub const TABLE_BLOCK_LINES: u64 = 64;
/// Words of a line behind its head.
pub const TABLE_LINE_WORDS: usize = 7;
/// The largest level.
pub const TABLE_LEVEL_MAX: u32 = 18;

/// Block numbers in a block of numbers.
const NUMBERS: u64 = BLOCK_BYTES / 8;

/// A table: metadata slot of its only block, or of its top block of numbers (bits 0..48); level
/// (48..56). Zero: no table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableRoot(pub u64);

impl TableRoot {
    /// No table.
    pub const NONE: Self = Self(0);

    /// Packs the word.
    pub fn new(slot: u64, level: u32) -> Self {
        Self(slot & ((1 << 48) - 1) | u64::from(level & 0xFF) << 48)
    }

    /// Slot of the only or the top block, and the level, if the word is possible.
    pub fn get(self) -> Option<(u64, u32)> {
        let slot = self.0 & ((1 << 48) - 1);
        let level = (self.0 >> 48) as u32;
        let is_sound =
            slot != 0 && slot.is_multiple_of(SLOTS_PER_BLOCK) && level <= TABLE_LEVEL_MAX;
        is_sound.then_some((slot, level))
    }

    /// How many blocks of numbers lie on the path from the top block to a line.
    pub const fn depth(level: u32) -> u32 {
        level.div_ceil(9)
    }

    /// Index of the number that leads towards block `block` of the table, in a block of numbers
    /// with `below` more of them below it.
    pub const fn number_of(block: u64, below: u32) -> u64 {
        (block >> (9 * below)) % NUMBERS
    }

    /// Lines of a table of this level.
    pub const fn lines(level: u32) -> u64 {
        TABLE_BLOCK_LINES << level
    }

    /// The home line of an entry. Lines 2 *i* and 2 *i* + 1 of the next level share the entries of
    /// line *i*.
    #[inline]
    pub fn home(hash: PathHash, level: u32) -> u64 {
        hash.0 >> (64 - TABLE_BLOCK_LINES.ilog2() - level)
    }

    /// The second line of an entry, which differs from its home line.
    pub fn second(hash: PathHash, level: u32) -> u64 {
        let line = scale(mix(hash.0), Self::lines(level) - 1);
        line + u64::from(line >= Self::home(hash, level))
    }
}

/// The tag of an entry: 31 bits of its hash that do not follow from its home line.
#[inline]
pub fn path_tag(hash: PathHash) -> u32 {
    hash.0 as u32 & 0x7FFF_FFFF
}

/// A word of a line: metadata slot of an entry (bits 0..32), its tag (32..63), 1 (63). Zero is
/// free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableWord(pub u64);

impl TableWord {
    /// A free word.
    pub const FREE: Self = Self(0);
    const USED: u64 = 1 << 63;

    /// Packs the word; `slot` keeps 32 bits.
    pub fn new(slot: u64, tag: u32) -> Self {
        Self(Self::USED | u64::from(tag & 0x7FFF_FFFF) << 32 | slot & 0xFFFF_FFFF)
    }

    /// Whether the word holds an entry.
    pub fn is_used(self) -> bool {
        self.0 & Self::USED != 0
    }

    /// Metadata slot of the entry.
    pub fn slot(self) -> u64 {
        self.0 & 0xFFFF_FFFF
    }

    /// The entry's tag.
    pub fn tag(self) -> u32 {
        (self.0 >> 32) as u32 & 0x7FFF_FFFF
    }
}

/// The head of a line: how many entries of this home lie in their second lines (bits 0..8), a
/// filter of their tags (8..56), the line's check (56..64), which is sound on a clean pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableHead(pub u64);

impl TableHead {
    const COUNT: u64 = 0xFF;
    const FILTER: u64 = ((1 << 48) - 1) << 8;

    /// How many entries of this home lie in their second lines.
    pub fn displaced(self) -> u64 {
        self.0 & Self::COUNT
    }

    /// Whether an entry with this tag may be among those in second lines.
    #[inline]
    pub fn may_have(self, tag: u32) -> bool {
        self.displaced() != 0 && self.0 & Self::filter(tag) != 0
    }

    /// The head with one more entry in its second line; `None` if the counter is full. The check
    /// stays as it is.
    pub fn with_displaced(self, tag: u32) -> Option<Self> {
        (self.displaced() < Self::COUNT).then_some(Self((self.0 | Self::filter(tag)) + 1))
    }

    /// The head with one entry less in its second line. Tags stay in the filter until no such entry
    /// is left.
    pub fn without_displaced(self) -> Self {
        match self.displaced() {
            0 => self,
            1 => Self(self.0 & !(Self::COUNT | Self::FILTER)),
            _ => Self(self.0 - 1),
        }
    }

    /// The head with the check of line `line` of an area's table of level `level`.
    pub fn sealed(
        self,
        words: &[u64; TABLE_LINE_WORDS],
        area: AreaLife,
        level: u32,
        line: u64,
    ) -> Self {
        let low = self.0 & (Self::COUNT | Self::FILTER);
        let mut summed = [0; 4 + TABLE_LINE_WORDS];
        summed[..4].copy_from_slice(&[
            u64::from(area.number) | u64::from(area.generation) << 32,
            level.into(),
            line,
            low,
        ]);
        summed[4..].copy_from_slice(words);
        let check = u64::from(checksum_words(&summed)) % 0xFF + 1;
        Self(low | check << 56)
    }

    /// Whether the head has the check of this line.
    pub fn is_sealed(
        self,
        words: &[u64; TABLE_LINE_WORDS],
        area: AreaLife,
        level: u32,
        line: u64,
    ) -> bool {
        self == self.sealed(words, area, level, line)
    }

    /// The filter bit of a tag, one of 48.
    fn filter(tag: u32) -> u64 {
        1 << (8 + ((u64::from(tag) * 48) >> 31))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_hash;

    const AREA: AreaLife = AreaLife {
        number: 65,
        generation: 3,
    };

    #[test]
    fn the_two_lines_of_an_entry_differ_and_spread() {
        for level in [0, 1, 4] {
            let lines = TableRoot::lines(level);
            let mut load = vec![0u64; lines as usize];
            for n in 0..lines * 50 {
                let hash = path_hash(1, format!("dir/{n}").as_bytes());
                let [home, second] = [TableRoot::home, TableRoot::second].map(|of| of(hash, level));
                assert!(home != second && home < lines && second < lines);
                assert_eq!(TableRoot::home(hash, level + 1) / 2, home);
                load[home as usize] += 1;
                load[second as usize] += 1;
            }
            assert!(load.iter().all(|&n| (50..160).contains(&n)), "{load:?}");
        }
    }

    #[test]
    fn roots_lead_to_blocks_only() {
        let root = TableRoot::new(64, TABLE_LEVEL_MAX);
        assert_eq!(root.get(), Some((64, TABLE_LEVEL_MAX)));
        for bad in [
            TableRoot::NONE,
            TableRoot::new(33, 0),
            TableRoot::new(64, TABLE_LEVEL_MAX + 1),
            TableRoot(1 << 56 | 64),
        ] {
            assert_eq!(bad.get(), None, "{bad:?}");
        }
        assert_eq!([0, 1, 9, 10, 18].map(TableRoot::depth), [0, 1, 1, 2, 2]);
        let block = 5 << 9 | 7;
        assert_eq!(
            [1, 0].map(|below| TableRoot::number_of(block, below)),
            [5, 7]
        );
    }

    #[test]
    fn words_give_back_what_was_packed() {
        let word = TableWord::new(u64::from(u32::MAX), u32::MAX);
        assert_eq!((word.slot(), word.tag()), (0xFFFF_FFFF, 0x7FFF_FFFF));
        assert!(word.is_used() && !TableWord::FREE.is_used());
        assert_eq!(path_tag(PathHash(u64::MAX)), 0x7FFF_FFFF);
    }

    #[test]
    fn a_head_knows_displaced_entries() {
        let tags = [0, 0x7FFF_FFFF];
        let mut head = TableHead::default();
        assert!(!tags.iter().any(|&tag| head.may_have(tag)));
        for tag in tags {
            head = head.with_displaced(tag).unwrap();
        }
        assert_eq!(head.displaced(), 2);
        assert!(tags.iter().all(|&tag| head.may_have(tag)) && !head.may_have(1 << 30));
        head = head.without_displaced();
        assert!(head.may_have(0) && head.displaced() == 1);
        assert_eq!(head.without_displaced(), TableHead::default());
        assert_eq!(TableHead::default().without_displaced().displaced(), 0);
        assert_eq!(TableHead(0xFF).with_displaced(5), None);
    }

    #[test]
    fn a_line_is_sealed_at_its_place_only() {
        let words = [1, 2, 3, 4, 5, 6, 7];
        let head = TableHead::default().with_displaced(9).unwrap();
        let sealed = head.sealed(&words, AREA, 2, 5);
        let check = sealed.0 >> 56;
        assert!(check != 0 && sealed.0 << 8 == head.0 << 8);
        assert!(sealed.is_sealed(&words, AREA, 2, 5));
        assert_eq!(sealed.sealed(&words, AREA, 2, 5), sealed);
        let later = AreaLife {
            generation: 4,
            ..AREA
        };
        assert!(!sealed.is_sealed(&words, later, 2, 5));
        assert!(!sealed.is_sealed(&words, AREA, 3, 5));
        assert!(!sealed.is_sealed(&words, AREA, 2, 6));
        assert!(!sealed.is_sealed(&[0; 7], AREA, 2, 5));
        assert!(
            !head.is_sealed(&words, AREA, 2, 5),
            "zero is never a valid check"
        );
    }
}
