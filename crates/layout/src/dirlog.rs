//! Directory logs: chains of extents whose words hold the addresses of entries (DirectFS III-F).
//!
//! An extent starts with a head of 32 bytes; words follow at [`LogExtentKind::words_at`]. A
//! directory's first extent is one metadata slot, further ones are blocks. A zero word was never
//! written or was recycled. In an extent that is not compacted, word `i` belongs to the entry with
//! cookie `base_cookie + i`; cookies ascend along the chain in every extent.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checksum::checksum_words;
use crate::{BLOCK_BYTES, LogOwner, SLOT_BYTES};

/// The two sizes of log extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogExtentKind {
    /// One metadata slot.
    Small,
    /// One metadata block.
    Large,
}

impl LogExtentKind {
    /// Bytes of the extent.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Small => SLOT_BYTES,
            Self::Large => BLOCK_BYTES,
        }
    }

    /// Offset of the first word within the extent.
    pub const fn words_at(self) -> u64 {
        match self {
            Self::Small => 32,
            Self::Large => 64,
        }
    }

    /// Words in the extent.
    pub const fn words(self) -> u64 {
        (self.bytes() - self.words_at()) / 8
    }

    /// Metadata slots the extent occupies.
    pub const fn slots(self) -> u64 {
        self.bytes() / SLOT_BYTES
    }
}

/// The head of a log extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LogExtentHead {
    /// Inode slot of the directory.
    pub owner: u64,
    /// Metadata slot of the next extent, or 0. Changed by one 8-byte store.
    pub next: u64,
    /// Cookie of word 0; cookies in this extent are at least this.
    pub base_cookie: u64,
    /// Bit 0: large. Bit 1: compacted (words do not follow `base_cookie + i`). Bit 2: a large
    /// extent that holds records instead of words ([`crate::NameRecord`]).
    pub flags: u32,
    /// CRC-32C of owner and its generation, base cookie, flags and the extent's own slot. `next` is
    /// left out: it changes by a single store.
    pub checksum: u32,
}

const _: () = assert!(size_of::<LogExtentHead>() == 32);
const _: () = assert!(LogExtentKind::Small.words() == 12);
const _: () = assert!(LogExtentKind::Large.words() == 504);

impl LogExtentHead {
    /// Offset of `next` within the head.
    pub const NEXT: u64 = 8;
    const LARGE: u32 = 1;
    const COMPACTED: u32 = 2;
    const RECORDS: u32 = 4;

    /// A sound head for an extent at metadata slot `at` of the directory `owner` with `generation`.
    pub fn new(
        at: u64,
        owner: u64,
        generation: u32,
        base_cookie: u64,
        kind: LogExtentKind,
        compacted: bool,
    ) -> Self {
        let mut head = Self {
            owner,
            next: 0,
            base_cookie,
            flags: if kind == LogExtentKind::Large {
                Self::LARGE
            } else {
                0
            } | if compacted { Self::COMPACTED } else { 0 },
            checksum: 0,
        };
        head.checksum = head.expected_checksum(at, generation);
        head
    }

    /// A sound head for a block of records at metadata slot `at` of the log of `owner`.
    pub fn of_records(at: u64, owner: LogOwner, base_cookie: u64) -> Self {
        let mut head = Self {
            owner: owner.slot,
            next: 0,
            base_cookie,
            flags: Self::LARGE | Self::RECORDS,
            checksum: 0,
        };
        head.checksum = head.expected_checksum(at, owner.generation);
        head
    }

    /// Whether the head is sound for a block of records of `owner` at metadata slot `at`.
    pub fn is_sound_of_records(&self, at: u64, owner: LogOwner) -> bool {
        self.owner == owner.slot
            && self.flags == Self::LARGE | Self::RECORDS
            && self.checksum == self.expected_checksum(at, owner.generation)
    }

    /// Whether the head is sound for an extent of words of the directory `owner` with `generation`,
    /// at metadata slot `at`. The head of an earlier directory with the same number is not.
    pub fn is_sound(&self, at: u64, owner: u64, generation: u32) -> bool {
        self.owner == owner
            && self.flags & !(Self::LARGE | Self::COMPACTED) == 0
            && self.checksum == self.expected_checksum(at, generation)
    }

    /// The size of the extent.
    pub fn kind(&self) -> LogExtentKind {
        if self.flags & Self::LARGE != 0 {
            LogExtentKind::Large
        } else {
            LogExtentKind::Small
        }
    }

    /// Whether the extent was written by compaction.
    pub fn is_compacted(&self) -> bool {
        self.flags & Self::COMPACTED != 0
    }

    fn expected_checksum(&self, at: u64, generation: u32) -> u32 {
        checksum_words(&[
            at,
            self.owner,
            u64::from(generation),
            self.base_cookie,
            u64::from(self.flags),
        ])
    }
}

/// A word of a directory log: the entry's slot in bits 0..48; the others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogWord(pub u64);

impl LogWord {
    const SLOT: u64 = (1 << 48) - 1;

    /// A word that names the entry at metadata slot `entry`.
    pub fn new(entry: u64) -> Self {
        Self(entry & Self::SLOT)
    }

    /// The entry's metadata slot; 0 if the word names none.
    pub fn entry(self) -> u64 {
        self.0 & Self::SLOT
    }

    /// Whether all reserved bits are zero.
    pub fn is_sound(self) -> bool {
        self.0 & !Self::SLOT == 0
    }
}
