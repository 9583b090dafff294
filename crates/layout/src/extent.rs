//! Extent trees: each file's map from logical blocks to runs of data blocks.
//!
//! An *extent* is 16 bytes in one cache line: a body (the data blocks and their state) and a key
//! (the logical blocks, and whether the entry is valid). The body is stored before the key, and the
//! stores to a line persist in program order, so a valid key always has its body. Each word carries
//! its own check, because each changes by one store.
//!
//! A node is a metadata block: a head that never changes, then entries in the order of their keys,
//! with used entries first. Inner nodes have the same entries; their bodies name nodes. A file
//! whose only extent begins at its first block has no node, only the word in its inode.

use vellum_media::mix;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checksum::checksum_words;
use crate::{BLOCK_BYTES, MapState};

/// Entries of a node.
pub const EXTENT_ENTRIES: usize =
    (BLOCK_BYTES as usize - size_of::<ExtentNodeHead>()) / ExtentKey::ENTRY_BYTES as usize;
/// Most blocks of an extent: 256 MiB minus one block, which leaves 15 bits of the key for a check.
pub const EXTENT_MAX_BLOCKS: u32 = (1 << 16) - 1;
/// Highest level of a node; leaves have level 0.
pub const EXTENT_MAX_LEVEL: u32 = 7;

/// The seed of the checks of a file's words, so that another file's words never pass for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentSeal {
    key: u64,
    body: u64,
    root: u64,
}

impl ExtentSeal {
    /// The seal of the file with this mapping id.
    pub fn new(id: u32) -> Self {
        let salt = |word: u64| mix(u64::from(id) << 2 | word);
        Self {
            key: salt(1),
            body: salt(2),
            root: salt(3),
        }
    }
}

/// The first word of an entry: logical block (bits 0..32), length in blocks, or the child's level
/// in an inner node (32..48), check (48..63), valid (63). Zero: never used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentKey(pub u64);

impl ExtentKey {
    /// Offset of the key within its entry.
    pub const AT: u64 = 0;
    /// Bytes of an entry.
    pub const ENTRY_BYTES: u64 = 16;
    const VALID: u64 = 1 << 63;
    const CHECK: u64 = 0x7FFF << 48;

    /// A key of `len` (16 bits) blocks from `logical` on. An invalid key still keeps the order of
    /// its neighbours.
    pub fn new(seal: ExtentSeal, logical: u32, len: u32, valid: bool) -> Self {
        let valid = if valid { Self::VALID } else { 0 };
        let len = u64::from(len & EXTENT_MAX_BLOCKS);
        let word = u64::from(logical) | len << 32 | valid;
        Self(word | Self::check(seal, word))
    }

    fn check(seal: ExtentSeal, word: u64) -> u64 {
        mix(seal.key ^ (word & !Self::CHECK)) & Self::CHECK
    }

    /// Whether the check fits.
    pub fn is_sound(self, seal: ExtentSeal) -> bool {
        self.0 & Self::CHECK == Self::check(seal, self.0)
    }

    /// Whether the entry was ever used. If not, none behind it was.
    pub fn is_used(self) -> bool {
        self.0 != 0
    }

    /// Whether the entry is valid.
    pub fn is_valid(self) -> bool {
        self.0 & Self::VALID != 0
    }

    /// The first logical block.
    pub fn logical(self) -> u32 {
        self.0 as u32
    }

    /// Blocks of an extent; in inner nodes the level of the child.
    pub fn len(self) -> u32 {
        (self.0 >> 32) as u32 & EXTENT_MAX_BLOCKS
    }

    /// Whether the length is zero, which is never valid.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The target of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExtentKind {
    /// Blocks that are reserved and read as zeros.
    Unwritten = 1,
    /// Blocks that hold bytes.
    Mapped = 2,
    /// A node.
    Node = 3,
}

impl ExtentKind {
    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Unwritten),
            2 => Some(Self::Mapped),
            3 => Some(Self::Node),
            _ => None,
        }
    }

    /// The kind of an extent in this state (UNWRITTEN or MAPPED).
    pub fn of_state(state: MapState) -> Self {
        match state {
            MapState::Mapped => Self::Mapped,
            _ => Self::Unwritten,
        }
    }

    /// The state of the blocks, if it is an extent.
    pub fn state(self) -> Option<MapState> {
        match self {
            Self::Unwritten => Some(MapState::Unwritten),
            Self::Mapped => Some(MapState::Mapped),
            Self::Node => None,
        }
    }
}

/// The second word of an entry: location (bits 0..32), kind (32..34), check (34..64). The location
/// of an extent is its first data block minus its first logical block, modulo 2^32, so that one
/// store of the key removes blocks from its front. The location of a node is its number: its
/// metadata slot / 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentBody(pub u64);

impl ExtentBody {
    /// Offset of the body within its entry.
    pub const AT: u64 = 8;
    const COVERED: u64 = (1 << 34) - 1;

    /// Packs the word.
    pub fn new(seal: ExtentSeal, place: u32, kind: ExtentKind) -> Self {
        let word = u64::from(place) | (kind as u64) << 32;
        Self(word | Self::check(seal, word))
    }

    fn check(seal: ExtentSeal, word: u64) -> u64 {
        mix(seal.body ^ (word & Self::COVERED)) & !Self::COVERED
    }

    /// Whether the check fits and the kind is known.
    pub fn is_sound(self, seal: ExtentSeal) -> bool {
        self.0 & !Self::COVERED == Self::check(seal, self.0) && self.kind().is_some()
    }

    /// The location.
    pub fn place(self) -> u32 {
        self.0 as u32
    }

    /// The kind of the target.
    pub fn kind(self) -> Option<ExtentKind> {
        ExtentKind::from_number((self.0 >> 32) as u8 & 3)
    }
}

/// The root of a file's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentRoot {
    /// No block is mapped.
    Empty,
    /// A single extent that begins at logical block 0.
    Extent {
        /// The first block.
        block: u32,
        /// Its length in blocks.
        len: u32,
        /// UNWRITTEN or MAPPED.
        state: MapState,
    },
    /// A node.
    Node {
        /// Its number.
        node: u32,
        /// Its level.
        level: u32,
    },
}

impl ExtentRoot {
    const CHECK: u64 = 0xFFFF << 48;

    /// The inode's word: block or node (bits 0..30), kind (30..32), length or level (32..48), check
    /// (48..64); zero if no block is mapped.
    pub fn word(self, seal: ExtentSeal) -> u64 {
        let (place, kind, len) = match self {
            Self::Empty => return 0,
            Self::Extent { block, len, state } => (block, ExtentKind::of_state(state), len),
            Self::Node { node, level } => (node, ExtentKind::Node, level),
        };
        let len = u64::from(len & EXTENT_MAX_BLOCKS);
        let word = u64::from(place & 0x3FFF_FFFF) | (kind as u64) << 30 | len << 32;
        word | Self::check(seal, word)
    }

    fn check(seal: ExtentSeal, word: u64) -> u64 {
        mix(seal.root ^ (word & !Self::CHECK)) & Self::CHECK
    }

    /// The root that a word describes, if it is sound.
    pub fn from_word(seal: ExtentSeal, word: u64) -> Option<Self> {
        if word == 0 {
            return Some(Self::Empty);
        }
        if word & Self::CHECK != Self::check(seal, word) {
            return None;
        }
        let place = word as u32 & 0x3FFF_FFFF;
        let len = (word >> 32) as u32 & EXTENT_MAX_BLOCKS;
        match ExtentKind::from_number((word >> 30) as u8 & 3)? {
            ExtentKind::Node if len <= EXTENT_MAX_LEVEL => Some(Self::Node {
                node: place,
                level: len,
            }),
            ExtentKind::Node => None,
            kind => kind.state().filter(|_| len > 0).map(|state| Self::Extent {
                block: place,
                len,
                state,
            }),
        }
    }
}

/// The head of a node. Written once.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ExtentNodeHead {
    /// Mapping id of the file.
    pub owner: u32,
    /// 0: a leaf, whose entries are extents.
    pub level: u32,
    /// Logical blocks below this are never searched here.
    pub first: u32,
    /// Generation of the file's inode.
    pub generation: u32,
    /// CRC-32C of five words: the node's number, `owner`, `level`, `first`, `generation`.
    pub checksum: u32,
    /// Reserved, zero.
    pub reserved: [u32; 3],
}

const _: () = assert!(size_of::<ExtentNodeHead>() == 32);
const _: () = assert!(EXTENT_ENTRIES == 254);

impl ExtentNodeHead {
    /// Offset of the first entry within a node.
    pub const ENTRIES_AT: u64 = size_of::<Self>() as u64;

    /// A sound head of a node.
    pub fn new(node: u32, owner: u32, level: u32, first: u32, generation: u32) -> Self {
        let mut new = Self {
            owner,
            level,
            first,
            generation,
            ..Self::default()
        };
        new.checksum = new.expected_checksum(node);
        new
    }

    /// Whether this is the sound head of the node with this number.
    pub fn is_sound(&self, node: u32) -> bool {
        self.checksum == self.expected_checksum(node) && self.reserved == [0; 3]
    }

    /// The first word: owner and level.
    pub fn identity(owner: u32, level: u32) -> u64 {
        u64::from(owner) | u64::from(level) << 32
    }

    fn expected_checksum(&self, node: u32) -> u32 {
        checksum_words(&[
            node.into(),
            self.owner.into(),
            self.level.into(),
            self.first.into(),
            self.generation.into(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAL: u32 = 77;

    #[test]
    fn words_give_back_what_was_packed() {
        let seal = ExtentSeal::new(SEAL);
        let key = ExtentKey::new(seal, u32::MAX, EXTENT_MAX_BLOCKS, true);
        assert!(key.is_valid() && key.is_used() && key.is_sound(seal));
        assert_eq!((key.logical(), key.len()), (u32::MAX, EXTENT_MAX_BLOCKS));
        let gone = ExtentKey::new(seal, 0, 1, false);
        assert!(gone.is_used() && !gone.is_valid() && gone.is_sound(seal));
        let body = ExtentBody::new(seal, u32::MAX, ExtentKind::Node);
        assert!(body.is_sound(seal));
        assert_eq!(
            (body.place(), body.kind()),
            (u32::MAX, Some(ExtentKind::Node))
        );
        for root in [
            ExtentRoot::Empty,
            ExtentRoot::Extent {
                block: 0x3FFF_FFFF,
                len: EXTENT_MAX_BLOCKS,
                state: MapState::Mapped,
            },
            ExtentRoot::Extent {
                block: 0,
                len: 1,
                state: MapState::Unwritten,
            },
            ExtentRoot::Node { node: 9, level: 2 },
        ] {
            assert_eq!(ExtentRoot::from_word(seal, root.word(seal)), Some(root));
        }
    }

    #[test]
    fn words_of_other_files_and_flipped_bits_are_found() {
        let (seal, other) = (ExtentSeal::new(SEAL), ExtentSeal::new(SEAL + 1));
        let body = ExtentBody::new(seal, 5, ExtentKind::Mapped);
        assert!(!body.is_sound(other));
        for bit in 0..64 {
            assert!(!ExtentBody(body.0 ^ 1 << bit).is_sound(seal), "bit {bit}");
        }
        let key = ExtentKey::new(seal, 1000, 8, true);
        let root = ExtentRoot::Node { node: 5, level: 0 }.word(seal);
        for bit in 0..64 {
            assert!(!ExtentKey(key.0 ^ 1 << bit).is_sound(seal), "bit {bit}");
            let flipped = ExtentRoot::from_word(seal, root ^ 1 << bit);
            assert_eq!(flipped, None, "bit {bit}");
        }
    }

    #[test]
    fn a_head_is_of_its_node_only() {
        let head = ExtentNodeHead::new(3, 5, 1, 0, 7);
        assert!(head.is_sound(3) && !head.is_sound(4));
        assert!(!ExtentNodeHead { level: 0, ..head }.is_sound(3));
    }
}
