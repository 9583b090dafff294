//! The undo log of a split pool: the old bytes of each granule of metadata, from before a
//! transaction first changed it. After a power cut the metadata are rolled back to the last
//! committed transaction, because the data of later ones may be missing.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::checksum::checksum_words;
use crate::{BLOCK_BYTES, Geometry};

/// Bytes of an undo granule, the unit in which metadata are rolled back.
pub const GRANULE_BYTES: u64 = 128;
/// Bytes of an undo record.
pub const UNDO_RECORD_BYTES: u64 = 192;
/// Bytes in front of the records; the pool header is the first line of them.
pub const POOL_HEADER_BYTES: u64 = BLOCK_BYTES;

/// Word offsets of the pool header.
#[derive(Debug)]
pub struct PoolHeader;

impl PoolHeader {
    /// [`CommittedWord`].
    pub const COMMITTED: u64 = 0;
    /// Boot id (16 bytes) of the last opening for writing, stored once nothing was left to roll
    /// back.
    pub const BOOT: u64 = 8;
    /// Not 0: some file data did not reach their device, so that the metadata are rolled back even
    /// under the same boot.
    pub const POISONED: u64 = 24;
}

/// The last committed transaction (bits 0..48), with a check (48..64). One store of it commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommittedWord(pub u64);

impl CommittedWord {
    /// The highest transaction number.
    pub const MAX: u64 = (1 << 48) - 1;

    /// Packs the word; the number keeps 48 bits.
    pub fn new(transaction: u64) -> Self {
        let low = transaction & Self::MAX;
        Self(low | u64::from(checksum_words(&[low])) << 48)
    }

    /// The transaction, if the word is sound.
    pub fn get(self) -> Option<u64> {
        let transaction = self.0 & Self::MAX;
        (Self::new(transaction) == self).then_some(transaction)
    }
}

/// The old bytes of a granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct UndoRecord {
    /// Pool offset of the granule.
    pub granule: u64,
    /// The transaction.
    pub transaction: u64,
    /// XXH3-64 of the old bytes, seeded by the pool's seed, the granule and the transaction.
    pub check: u64,
    /// Reserved, zero.
    pub reserved: [u64; 5],
    /// The granule's bytes.
    pub old: [u8; GRANULE_BYTES as usize],
}

const _: () = assert!(size_of::<UndoRecord>() as u64 == UNDO_RECORD_BYTES);

impl Default for UndoRecord {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl UndoRecord {
    /// Offset of the transaction.
    pub const TRANSACTION: u64 = std::mem::offset_of!(Self, transaction) as u64;

    /// Seals the record with the pool's hash seed, once all other fields are set.
    #[inline]
    pub fn seal(&mut self, seed: u64) {
        self.check = self.expected_check(seed);
    }

    /// Reads a record; `None` if it is not sound. A crash may leave such a record half written: its
    /// granule was not changed yet.
    pub fn unseal(seed: u64, bytes: &[u8]) -> Option<Self> {
        let (record, _) = Self::read_from_prefix(bytes).ok()?;
        (record.check == record.expected_check(seed)).then_some(record)
    }

    fn expected_check(&self, seed: u64) -> u64 {
        let seed = vellum_media::mix(vellum_media::mix(seed ^ self.granule) ^ self.transaction);
        xxhash_rust::xxh3::xxh3_64_with_seed(&self.old, seed)
    }
}

/// The location of the undo records and the range that they cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoPlan {
    /// Pool offset of the pool header.
    pub at: u64,
    /// How many records fit: enough for two transactions that change everything.
    pub count: u64,
    /// Pool offset of the first granule.
    pub first: u64,
    /// Where the granules end.
    pub end: u64,
}

impl UndoPlan {
    /// The plan of a split pool; `None` for other pools.
    pub fn of(geometry: &Geometry) -> Option<Self> {
        let room = geometry.undo_bytes.checked_sub(POOL_HEADER_BYTES)?;
        Some(Self {
            at: geometry.undo_at,
            count: room / UNDO_RECORD_BYTES,
            first: geometry.state_at,
            end: geometry.undo_at,
        })
    }

    /// Pool offset of a record; numbers wrap around.
    pub fn undo_record_at(&self, number: u64) -> u64 {
        self.at + POOL_HEADER_BYTES + number % self.count * UNDO_RECORD_BYTES
    }

    /// Offsets of this record and all that follow, wrapping around.
    pub fn records_from(&self, number: u64) -> impl Iterator<Item = u64> + use<> {
        let (begin, count) = (self.at + POOL_HEADER_BYTES, self.count);
        let slots = (number % count..count).chain((0..count).cycle());
        slots.map(move |slot| begin + slot * UNDO_RECORD_BYTES)
    }

    /// Whether a granule can lie at this offset.
    pub fn is_granule(&self, at: u64) -> bool {
        at.is_multiple_of(GRANULE_BYTES) && (self.first..self.end).contains(&at)
    }
}

/// Bytes of the undo log for metadata that end at `end`.
pub fn undo_bytes_for(end: u64) -> u64 {
    let records = 2 * end.div_ceil(GRANULE_BYTES);
    POOL_HEADER_BYTES + (records * UNDO_RECORD_BYTES).next_multiple_of(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExternalRequest, GeometryRequest};

    #[test]
    fn only_sealed_records_are_read() {
        let mut record = UndoRecord {
            granule: 8192,
            transaction: 3,
            old: [5; 128],
            ..UndoRecord::default()
        };
        record.seal(7);
        let bytes = record.as_bytes();
        assert_eq!(UndoRecord::unseal(7, bytes), Some(record));
        assert_eq!(UndoRecord::unseal(8, bytes), None);
        assert_eq!(UndoRecord::unseal(7, &[0; 192]), None);
        for at in (0..24).chain(64..192) {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1;
            assert_eq!(UndoRecord::unseal(7, &changed), None, "byte {at}");
        }
    }

    #[test]
    fn a_committed_word_knows_itself() {
        for transaction in [0, 1, 77, CommittedWord::MAX] {
            let word = CommittedWord::new(transaction);
            assert_eq!(word.get(), Some(transaction));
            for bit in 0..64 {
                assert_eq!(CommittedWord(word.0 ^ 1 << bit).get(), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn every_granule_has_space_for_two_undo_records() {
        let request = GeometryRequest {
            external: Some(ExternalRequest {
                id: [9; 16],
                at: 2 << 20,
                data_bytes: 8 << 20,
                has_replica: false,
            }),
            ..Default::default()
        };
        let geometry = Geometry::plan(&request).unwrap();
        let plan = UndoPlan::of(&geometry).unwrap();
        assert!(plan.count >= 2 * (plan.end - plan.first) / GRANULE_BYTES);
        assert!(
            plan.undo_record_at(plan.count - 1) + UNDO_RECORD_BYTES
                <= geometry.undo_at + geometry.undo_bytes
        );
        assert_eq!(plan.undo_record_at(plan.count), plan.undo_record_at(0));
        let from: Vec<u64> = plan.records_from(3 * plan.count - 2).take(4).collect();
        let expected =
            [plan.count - 2, plan.count - 1, 0, 1].map(|number| plan.undo_record_at(number));
        assert_eq!(from, expected);
        assert!(plan.is_granule(geometry.state_at) && !plan.is_granule(geometry.undo_at));
        assert!(!plan.is_granule(0) && !plan.is_granule(geometry.state_at + 64));
    }
}
