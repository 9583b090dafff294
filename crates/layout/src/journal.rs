//! The journal of a thread slot: one redo record of 8-byte stores.
//!
//! A record is committed once its head is durable with a matching checksum *and* every witness pair
//! holds. A durable zero in word 0 retires it. Recovery of a slot whose record is committed stores
//! every pair, flushes, fences, and then retires the record.

use crate::checksum::checksum_words;

/// Most pairs in a record.
pub const JOURNAL_MAX_PAIRS: usize = 31;

/// Word 0 of a slot: sequence (bits 32..64), pair count (0..16), checksum in word 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHead(pub u64);

impl JournalHead {
    /// Offset of word 0 within the thread slot.
    pub const AT: u64 = 0;
    /// Offset of the checksum word.
    pub const CHECK: u64 = 8;
    /// Offset of the first pair.
    pub const PAIRS: u64 = 16;
    /// Word 0 of a slot without a record.
    pub const RETIRED: Self = Self(0);

    /// The head of a record with `count` pairs.
    pub fn new(sequence: u32, count: usize) -> Self {
        Self(u64::from(sequence) << 32 | count as u64 & 0xFFFF)
    }

    /// Pairs in the record; 0 when retired.
    pub fn count(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }

    /// The sequence number.
    pub fn sequence(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The checksum word that commits a record of these pairs in thread slot `slot`.
    pub fn seal(self, slot: u64, pairs: &[JournalPair]) -> u64 {
        let mut words = [0; 2 + 2 * JOURNAL_MAX_PAIRS];
        words[0] = slot;
        words[1] = self.0;
        for (to, pair) in words[2..].chunks_exact_mut(2).zip(pairs) {
            to[0] = pair.at;
            to[1] = pair.value;
        }
        u64::from(checksum_words(&words[..2 + 2 * pairs.len()])) | 1 << 32
    }
}

/// A pair of a record: a store of `value` at pool offset `at`. If bit 0 of `at` is set, it is a
/// *witness* instead: the entry at `at - 1` must have the checksum `value`, or the record never
/// committed (one fence makes entry and record durable).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPair {
    /// Pool offset, 8-byte aligned; bit 0 marks a witness.
    pub at: u64,
    /// The word to store, or the checksum expected.
    pub value: u64,
}

impl JournalPair {
    /// A store.
    pub fn store(at: u64, value: u64) -> Self {
        Self { at, value }
    }

    /// A witness of the entry at pool offset `entry_at`.
    pub fn witness(entry_at: u64, checksum: u32) -> Self {
        Self {
            at: entry_at | 1,
            value: u64::from(checksum),
        }
    }

    /// The entry's pool offset, if this is a witness.
    pub fn witnessed(self) -> Option<u64> {
        (self.at & 1 == 1).then_some(self.at & !1)
    }
}

const _: () = assert!(JournalHead::PAIRS + 16 * JOURNAL_MAX_PAIRS as u64 <= 512);
