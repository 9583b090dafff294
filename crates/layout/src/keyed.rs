//! What cuckoo and level tables have in common: they find the blocks of all files by their keys.
//!
//! Their lines hold four entries of two words. The first word is the key, a
//! [`MapWord`](crate::MapWord), which also records whether the entry is in use. The second word, a
//! [`KeyedWord`], holds the data block. A *stash* of a few lines holds keys that fit into none of
//! their lines.

use vellum_media::mix;

use crate::{CuckooPlan, LevelPlan, LevelRoot, MapState, MapWord, MappingKind};

/// Entries in a line.
pub const PAIRS_PER_LINE: u64 = 4;
/// Lines of a stash.
pub const STASH_LINES: u64 = 8;
/// The largest count that an entry can hold.
pub const RUN_COUNT_MAX: u32 = 255;
/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = 64;
/// Factor that derives the second hash of a key from the first.
const SECOND: u64 = 0x9E37_79B9_7F4A_7C15;

/// The second word of an entry: data block (bits 0..30), following blocks of the file that also
/// follow on the medium (30..38), limit on how far back an entry counts this block as following
/// (38..46), check (46..64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedWord(pub u64);

impl KeyedWord {
    /// Packs the word of the entry with this key; `block` keeps 30 bits, counts are limited to
    /// [`RUN_COUNT_MAX`].
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

    /// A lower bound of the run behind this block: this many logical blocks behind it belong to the
    /// same file in the same state, each in the data block behind its predecessor's.
    pub fn following(self) -> u32 {
        (self.0 >> 30) as u32 & 0xFF
    }

    /// Entries more than this many logical blocks before this one never count it as following.
    pub fn preceding(self) -> u32 {
        (self.0 >> 38) as u32 & 0xFF
    }

    /// Whether this is the second word of an entry with this key.
    pub fn is_of(self, key: u64) -> bool {
        self.0 >> 46 == Self::check(key, self.0 & ((1 << 46) - 1))
    }

    /// Whether any count is not zero.
    pub fn has_counts(self) -> bool {
        self.following() > 0 || self.preceding() > 0
    }

    fn check(key: u64, word: u64) -> u64 {
        mix(mix(key & MapWord::KEY_MASK) ^ word) >> 46
    }
}

/// The two hashes of a key.
pub(crate) fn hashes(seed: u64, key: u64) -> [u64; 2] {
    let hash = mix(seed ^ key & MapWord::KEY_MASK);
    [hash, mix(hash ^ SECOND)]
}

/// The upper 64 bits of the 128-bit product.
pub(crate) fn scale(hash: u64, lines: u64) -> u64 {
    ((u128::from(hash) * u128::from(lines)) >> 64) as u64
}

/// The layout of a table, for code that reads all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedPlan {
    /// A cuckoo table.
    Cuckoo(CuckooPlan),
    /// A level table, as its root says it is.
    Level(LevelPlan, LevelRoot),
}

impl KeyedPlan {
    /// The layout of the table of a mapping with this many blocks; `None` if the mapping has no
    /// such table. `word` reads the table's words by offset. If the root of a level table is
    /// unsound, it is derived from the used levels.
    pub fn read(
        mapping: MappingKind,
        segment_blocks: u64,
        seed: u64,
        word: impl Fn(u64) -> u64,
    ) -> Option<Self> {
        match mapping {
            MappingKind::Cuckoo => Some(Self::Cuckoo(CuckooPlan::new(segment_blocks))),
            MappingKind::Level => {
                let plan = LevelPlan::new(segment_blocks);
                let root = LevelRoot(word(LevelRoot::WORD));
                let root = if root.is_sound(&plan) {
                    root
                } else {
                    LevelRoot::of_levels(&plan, |level| is_used(&plan, level, seed, &word))
                };
                Some(Self::Level(plan, root))
            }
            _ => None,
        }
    }

    /// Lines that can hold entries, as ranges.
    pub fn parts(&self) -> Vec<std::ops::Range<u64>> {
        match self {
            Self::Cuckoo(plan) => std::iter::once(0..plan.all_lines()).collect(),
            Self::Level(plan, root) => {
                let levels = root.levels().map(|level| plan.lines_of(level));
                std::iter::once(plan.stash()).chain(levels).collect()
            }
        }
    }

    /// The lines in which a key is searched before the stash, in this order.
    pub fn homes(&self, seed: u64, key: u64) -> impl Iterator<Item = u64> + use<> {
        let mut homes = [None; 3];
        match self {
            Self::Cuckoo(plan) => homes[0] = Some(plan.homes(seed, key)),
            Self::Level(plan, root) => {
                for (homes, level) in homes.iter_mut().zip(root.levels()) {
                    *homes = Some(plan.homes(seed, key, level));
                }
            }
        }
        homes.into_iter().flatten().flatten()
    }

    /// Whether a crash during a move may leave a key in line `copy` as well as in line `first`,
    /// which is searched earlier. Keys of a level table may move to the stash. No key moves within
    /// a line or out of the stash.
    pub fn may_leave_copy(&self, first: u64, copy: u64) -> bool {
        let may_come = matches!(self, Self::Level(..)) || !self.is_stash(copy);
        first != copy && may_come && !self.is_stash(first)
    }

    /// Whether entries count the blocks that follow on the medium; otherwise their counts are zero.
    pub fn has_counts(&self) -> bool {
        matches!(self, Self::Cuckoo(_))
    }

    /// The lines of the stash, in search order.
    pub fn stash(&self) -> std::ops::Range<u64> {
        match self {
            Self::Cuckoo(plan) => plan.lines..plan.all_lines(),
            Self::Level(plan, _) => plan.stash(),
        }
    }

    /// Whether a line belongs to the stash.
    pub fn is_stash(&self, line: u64) -> bool {
        self.stash().contains(&line)
    }
}

/// Whether any entry of a level could be valid.
fn is_used(plan: &LevelPlan, level: u32, seed: u64, word: &impl Fn(u64) -> u64) -> bool {
    let mut lines = plan.lines_of(level);
    lines.any(|line| {
        (0..PAIRS_PER_LINE).any(|place| {
            let at = line * LINE_BYTES + place * 16;
            let (key, place) = (MapWord(word(at)), KeyedWord(word(at + 8)));
            matches!(key.state(), MapState::Mapped | MapState::Unwritten)
                && place.is_of(key.0)
                && plan.homes(seed, key.0, level).contains(&line)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_left_by_moves_alone() {
        let level = LevelPlan::new(4096);
        let plans = [
            KeyedPlan::Cuckoo(CuckooPlan::new(4096)),
            KeyedPlan::Level(level, LevelRoot::new(3, true)),
        ];
        for (plan, to_stash) in plans.into_iter().zip([false, true]) {
            let homes: Vec<u64> = plan.homes(7, MapWord::key(5, 3)).collect();
            let stash = plan.stash();
            assert!(plan.may_leave_copy(homes[0], homes[1]));
            assert!(!plan.may_leave_copy(homes[1], homes[1]));
            assert_eq!(plan.may_leave_copy(homes[1], stash.start), to_stash);
            assert!(!plan.may_leave_copy(stash.start, stash.end - 1));
        }
    }

    #[test]
    fn places_give_back_what_was_packed() {
        let key = MapWord::new(MapState::Mapped, 7, 9).0;
        let word = KeyedWord::new(key, 0x3FFF_FFFF, 300, 254);
        assert_eq!(
            (word.block(), word.following(), word.preceding()),
            (0x3FFF_FFFF, 255, 254)
        );
        assert!(word.is_of(key));
        let unwritten = MapWord(key).with_state(MapState::Unwritten).0;
        assert!(word.is_of(unwritten), "the state is not under the check");
        assert!(!word.is_of(key + 1));
        assert!(!KeyedWord(word.0 ^ 1 << 30).is_of(key));
    }
}
