//! The level table of a segment: level hashing's two levels of lines, of which the bottom one has
//! half as many as the top one. The table grows by a new top level.
//!
//! Every level that the table will ever have has a fixed range, one behind the other, each twice as
//! long as the one before. The *root*, one word at the beginning of the table, records which levels
//! are in use.

use vellum_media::mix;

use crate::keyed::{LINE_BYTES, PAIRS_PER_LINE, STASH_LINES, hashes, scale};

/// First line of the stash; the root's line lies before it.
const STASH_AT: u64 = 1;
/// Fewest lines of level 0. But for rounding, it has fewer than twice as many.
const FIRST_MIN: u64 = 4;
/// The largest table uses at most this percentage of its entries when every block is in use.
const LOAD_MAX_PERCENT: u64 = 80;

/// The layout of a level table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelPlan {
    /// Lines of level 0, an even number.
    pub first: u64,
    /// The highest level that can be the top one, 1 or more.
    pub last: u32,
}

impl LevelPlan {
    /// The table of a segment: at its largest it has an entry for every block.
    pub fn new(segment_blocks: u64) -> Self {
        // The top level has two of three entries.
        let entries = (segment_blocks * 100).div_ceil(LOAD_MAX_PERCENT);
        let top = (entries * 2)
            .div_ceil(3 * PAIRS_PER_LINE)
            .max(2 * FIRST_MIN);
        let last = (top / FIRST_MIN).ilog2();
        let first = top.div_ceil(1 << last).next_multiple_of(2);
        Self { first, last }
    }

    /// The lines of the stash.
    pub fn stash(&self) -> std::ops::Range<u64> {
        STASH_AT..STASH_AT + STASH_LINES
    }

    /// The lines of a level.
    pub fn lines_of(&self, level: u32) -> std::ops::Range<u64> {
        let begin = STASH_AT + STASH_LINES + self.first * ((1 << level) - 1);
        begin..begin + (self.first << level)
    }

    /// All lines, including those of levels that are not in use.
    pub fn all_lines(&self) -> u64 {
        self.lines_of(self.last).end
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> u64 {
        self.all_lines() * LINE_BYTES
    }

    /// The two lines of a level that a key may be in: one in each half, so that they differ. Two
    /// lines of the level above lead to the same line.
    pub fn homes(&self, seed: u64, key: u64, level: u32) -> [u64; 2] {
        self.homes_of(hashes(seed, key), level)
    }

    /// As [`Self::homes`], from the key's hashes.
    pub fn homes_of(&self, hashes: [u64; 2], level: u32) -> [u64; 2] {
        let lines = self.lines_of(level);
        let half = (lines.end - lines.start) / 2;
        let [first, second] = hashes.map(|hash| lines.start + scale(hash, half));
        [first, second + half]
    }

    /// The two hashes of a key.
    pub fn hashes(seed: u64, key: u64) -> [u64; 2] {
        hashes(seed, key)
    }
}

/// The levels in use: the top level (bits 0..8), whether the level two below it is being moved into
/// it (8), check (32..64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelRoot(pub u64);

const MOVING: u64 = 1 << 8;

impl LevelRoot {
    /// Offset of the root in the table.
    pub const WORD: u64 = 0;

    /// Packs the word.
    pub fn new(top: u32, is_moving: bool) -> Self {
        let word = u64::from(top) & 0xFF | if is_moving { MOVING } else { 0 };
        Self(word | Self::check(word) << 32)
    }

    /// The root of a new table.
    pub fn of_new() -> Self {
        Self::new(1, false)
    }

    /// Reconstructs the root from the levels in use.
    pub fn of_levels(plan: &LevelPlan, is_used: impl Fn(u32) -> bool) -> Self {
        let top = (1..=plan.last).rev().find(|&level| is_used(level));
        let top = top.unwrap_or(1);
        Self::new(top, top >= 2 && is_used(top - 2))
    }

    /// The top level.
    pub fn top(self) -> u32 {
        self.0 as u32 & 0xFF
    }

    /// The level whose entries are being moved to the two above it, if there is one.
    pub fn moving(self) -> Option<u32> {
        (self.0 & MOVING != 0).then(|| self.top() - 2)
    }

    /// The levels in use, from the top one down.
    pub fn levels(self) -> impl Iterator<Item = u32> {
        let top = self.top();
        [top, top - 1].into_iter().chain(self.moving())
    }

    /// Whether the check fits, and a table of this plan can have these levels.
    pub fn is_sound(self, plan: &LevelPlan) -> bool {
        let word = self.0 & (MOVING | 0xFF);
        let lowest = if self.0 & MOVING != 0 { 2 } else { 1 };
        self.0 == word | Self::check(word) << 32 && (lowest..=plan.last).contains(&self.top())
    }

    fn check(word: u64) -> u64 {
        const SALT: u64 = 0x1E7E_1200_7000_0001;
        mix(word ^ SALT) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MapWord;

    #[test]
    fn the_largest_table_has_room_for_every_block() {
        for blocks in [16u64, 48, 184, 4096, 100_000, 1 << 30] {
            let plan = LevelPlan::new(blocks);
            let lines = |level: u32| plan.first << level;
            let entries = (lines(plan.last) + lines(plan.last - 1)) * PAIRS_PER_LINE;
            assert!(entries * LOAD_MAX_PERCENT >= blocks * 100, "{blocks}");
            let spare = if blocks < 100 { 8 } else { 2 };
            assert!(entries < blocks * 5 / 4 * spare, "{blocks}: {entries}");
            assert!(plan.first.is_multiple_of(2) && (4..=8).contains(&plan.first));
            assert_eq!(plan.lines_of(plan.last).end * LINE_BYTES, plan.bytes());
        }
    }

    #[test]
    fn levels_lie_behind_each_other() {
        let plan = LevelPlan::new(4096);
        let mut end = plan.stash().end;
        for level in 0..=plan.last {
            let lines = plan.lines_of(level);
            assert_eq!(lines.start, end);
            assert_eq!(lines.end - lines.start, plan.first << level);
            end = lines.end;
        }
    }

    #[test]
    fn two_lines_share_one_below() {
        let plan = LevelPlan::new(4096);
        for logical in 0..1000 {
            let key = MapWord::key(5, logical);
            for level in 1..=plan.last {
                let [below, above] = [level - 1, level].map(|level| {
                    let start = plan.lines_of(level).start;
                    plan.homes(7, key, level).map(|line| line - start)
                });
                assert_eq!(above.map(|line| line / 2), below);
                assert!(above[0] < above[1] && above[1] < plan.first << level);
            }
        }
    }

    #[test]
    fn roots_record_the_levels_in_use() {
        let plan = LevelPlan::new(4096);
        let levels = |root: LevelRoot| root.levels().collect::<Vec<_>>();
        assert_eq!(levels(LevelRoot::of_new()), [1, 0]);
        assert_eq!(levels(LevelRoot::new(3, true)), [3, 2, 1]);
        assert!(LevelRoot::new(plan.last, true).is_sound(&plan));
        let of = |used: &[u32]| LevelRoot::of_levels(&plan, |level| used.contains(&level));
        assert_eq!(of(&[]), LevelRoot::of_new());
        assert_eq!(of(&[0]), LevelRoot::of_new());
        assert_eq!(of(&[3, 2]), LevelRoot::new(3, false));
        assert_eq!(of(&[3, 2, 1]), LevelRoot::new(3, true));
        let unsound = [
            LevelRoot(0),
            LevelRoot::new(0, false),
            LevelRoot::new(1, true),
            LevelRoot::new(plan.last + 1, false),
            LevelRoot(LevelRoot::new(2, false).0 ^ 1 << 9),
            LevelRoot(LevelRoot::new(2, false).0 ^ 1 << 40),
        ];
        for root in unsound {
            assert!(!root.is_sound(&plan), "{root:?}");
        }
    }
}
