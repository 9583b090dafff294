//! Tree words: the pointers of per-file mappings, from a file's inode and from node to node.
//!
//! A word vouches for itself: its check covers the file whose tree it is in, its position, and its
//! target. So a node needs no head, a word is one atomic store, and a node of another file, or one
//! that was reused, is recognised word by word.

use crate::checksum::checksum_words;

/// Words of a radix node, which is a metadata block.
pub const RADIX_WORDS: u64 = 512;

/// Most levels of a radix tree: 512^4 covers the logical blocks of the largest file.
pub const RADIX_LEVELS_MAX: u32 = 4;

/// The target of a tree word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeTarget {
    /// A data block that is reserved and reads as zeros.
    Unwritten(u32),
    /// A data block that holds bytes.
    Mapped(u32),
    /// A node: its metadata block (slot number / 32) and its level, 1 for one that points to data.
    Node {
        /// Slot number / 32.
        block: u32,
        /// 1 to 7.
        level: u32,
    },
}

/// A tree word: target (bits 0..30), kind of the target (30..32), level (32..35), check (35..64).
/// Zero: no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeWord(pub u64);

impl TreeWord {
    /// No target.
    pub const NONE: Self = Self(0);
    const CHECK_SHIFT: u32 = 35;
    const TARGET_MASK: u64 = (1 << 30) - 1;

    /// Packs a word in the tree of the file with mapping id `id`, for the range that begins at
    /// logical block `first`.
    pub fn new(target: TreeTarget, id: u32, first: u32) -> Self {
        let (target, what, level) = match target {
            TreeTarget::Unwritten(block) => (block, 1, 0),
            TreeTarget::Mapped(block) => (block, 2, 0),
            TreeTarget::Node { block, level } => (block, 3, level & 7),
        };
        let low = u64::from(target) & Self::TARGET_MASK | what << 30 | u64::from(level) << 32;
        Self(low | check(low, id, first) << Self::CHECK_SHIFT)
    }

    /// Decodes the target.
    ///
    /// # Errors
    /// Fails if the word does not belong to this file and position.
    pub fn decode(self, id: u32, first: u32) -> Result<Option<TreeTarget>, Unsound> {
        if self == Self::NONE {
            return Ok(None);
        }
        let low = self.0 & ((1 << Self::CHECK_SHIFT) - 1);
        if self.0 >> Self::CHECK_SHIFT != check(low, id, first) {
            return Err(Unsound);
        }
        let target = (low & Self::TARGET_MASK) as u32;
        match (low >> 30 & 3, (low >> 32) as u32) {
            (1, 0) => Ok(Some(TreeTarget::Unwritten(target))),
            (2, 0) => Ok(Some(TreeTarget::Mapped(target))),
            (3, level @ 1..) => Ok(Some(TreeTarget::Node {
                block: target,
                level,
            })),
            _ => Err(Unsound),
        }
    }
}

/// A tree word that does not belong where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsound;

fn check(low: u64, id: u32, first: u32) -> u64 {
    let place = u64::from(id) << 32 | u64::from(first);
    u64::from(checksum_words(&[low, place])) & 0x1FFF_FFFF
}

/// Logical blocks that a word in a radix node of this level covers.
pub fn radix_span(level: u32) -> u64 {
    RADIX_WORDS.pow(level.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_are_read_back_in_their_place_only(
            target in 0u32..1 << 30,
            what in 0u32..3,
            level in 1u32..8,
            id in 1u32..1 << 30,
            first: u32,
        ) {
            let target = match what {
                0 => TreeTarget::Unwritten(target),
                1 => TreeTarget::Mapped(target),
                _ => TreeTarget::Node { block: target, level },
            };
            let word = TreeWord::new(target, id, first);
            prop_assert_eq!(word.decode(id, first), Ok(Some(target)));
            prop_assert_eq!(word.decode(id ^ 1, first), Err(Unsound));
            prop_assert_eq!(word.decode(id, first ^ 1), Err(Unsound));
            prop_assert_eq!(TreeWord(word.0 ^ 1).decode(id, first), Err(Unsound));
        }
    }

    #[test]
    fn a_zero_word_has_no_target_anywhere() {
        assert_eq!(TreeWord::NONE.decode(1, 2), Ok(None));
        assert_eq!((radix_span(1), radix_span(3)), (1, 512 * 512));
    }
}
