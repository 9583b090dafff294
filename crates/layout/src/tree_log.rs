//! Directory logs of the namespace *tree*: a chain of metadata blocks with records of created and
//! removed names, up to a tail that the directory's inode holds. Bytes behind the tail are ignored.
//!
//! A block begins with a [`LogExtentHead`] of records. Records follow from [`NameRecord::FIRST`]
//! on, and none crosses [`NameRecord::LIMIT`]. If a block has a successor, its records end with a
//! zero word or at the limit. Cookies of records *came* ascend along the log. A name exists if
//! there is a record that it came and no later record that the name with this cookie went. The
//! record *came* of a removed name may be missing, because a log is copied from its beginning on.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checksum::Summing;
use crate::{BLOCK_BYTES, LifeWord, NAME_MAX, SLOTS_PER_BLOCK};

#[cfg(doc)]
use crate::LogExtentHead;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A name was created.
    Came = 1,
    /// The name with this cookie was removed.
    Went = 2,
    /// A name was created and removed: stored over its record *came* when there was no space for
    /// one more record.
    Gone = 3,
}

impl RecordKind {
    /// The kind with this number.
    pub fn from_u8(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Came),
            2 => Some(Self::Went),
            3 => Some(Self::Gone),
            _ => None,
        }
    }
}

/// A position in a log: byte in the block (bits 0..12), slot of the block (12..60). In
/// [`crate::Inode::detail`] of a directory it is the tail, behind which nothing counts. 0: nothing
/// was ever recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition(pub u64);

impl LogPosition {
    /// The tail of a log without records.
    pub const NONE: Self = Self(0);

    /// Byte `byte` of the block at metadata slot `slot`.
    pub fn new(slot: u64, byte: u64) -> Self {
        Self(slot << 12 | byte & 0xFFF)
    }

    /// The block's first metadata slot.
    pub fn slot(self) -> u64 {
        self.0 >> 12
    }

    /// The byte in the block.
    pub fn byte(self) -> u64 {
        self.0 & 0xFFF
    }

    /// Whether records of a log can begin or end here.
    pub fn is_sound(self) -> bool {
        self.0 >> 60 == 0
            && self.slot() != 0
            && self.slot().is_multiple_of(SLOTS_PER_BLOCK)
            && self.byte().is_multiple_of(8)
            && (NameRecord::FIRST..=NameRecord::LIMIT).contains(&self.byte())
    }
}

/// A record without its name. The name follows, padded with zeros to a multiple of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NameRecord {
    /// [`RecordKind`].
    pub kind: u8,
    /// Reserved, zero.
    pub reserved: u8,
    /// Bytes of the name, 1 to 255. A record *went* needs no name; one that it has is ignored.
    pub name_len: u16,
    /// CRC-32C of the record's position, its directory's slot and generation (each as a word), and
    /// the record up to the end of the name, with this field as zero.
    pub checksum: u32,
    /// [`crate::TargetWord`] of the inode that the name leads to or led to.
    pub target: u64,
    /// When the name came or went, nanoseconds since 1970; at least 0.
    pub time: i64,
    /// Cookie that the name got when it came.
    pub cookie: u64,
    /// Generation of the inode named.
    pub generation: u32,
    /// Low half of the seeded XXH3-64 of the name.
    pub name_hash: u32,
}

const _: () = assert!(size_of::<NameRecord>() == 40);

/// The directory that a record belongs to, in one life of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOwner {
    /// Slot of its inode.
    pub slot: u64,
    /// Generation of the inode.
    pub generation: u32,
}

/// Bytes of the longest record.
pub const RECORD_MAX_BYTES: usize = NameRecord::bytes_for(NAME_MAX) as usize;

impl NameRecord {
    /// Offset of kind, length and checksum.
    pub const HEAD: u64 = 0;
    /// Offset of the target word.
    pub const TARGET: u64 = 8;
    /// Offset of the time.
    pub const TIME: u64 = 16;
    /// Offset of the cookie.
    pub const COOKIE: u64 = 24;
    /// Offset of generation (low half) and name hash (high half).
    pub const NAME_WORD: u64 = 32;
    /// Offset of the name.
    pub const NAME: u64 = 40;
    /// Byte of a block at which its first record begins.
    pub const FIRST: u64 = 64;
    /// Byte of a block that no record crosses, so that a zero word always fits behind it.
    pub const LIMIT: u64 = BLOCK_BYTES - 8;

    /// Bytes of a record with a name of `len` bytes.
    pub const fn bytes_for(len: usize) -> u64 {
        (size_of::<Self>() + len).next_multiple_of(8) as u64
    }

    /// The record with its length and checksum, for its position in the log of `owner`.
    pub fn sealed(&self, name: &[u8], place: LogPosition, owner: LogOwner) -> Self {
        let mut sealed = *self;
        sealed.name_len = name.len() as u16;
        sealed.checksum = sealed.expected_checksum(name, place, owner);
        sealed
    }

    /// Writes the record, sealed for its position in the log of `owner`, into `buffer`; returns its
    /// length in bytes.
    pub fn encode(
        &self,
        name: &[u8],
        place: LogPosition,
        owner: LogOwner,
        buffer: &mut [u8; RECORD_MAX_BYTES],
    ) -> usize {
        let used = size_of::<Self>() + name.len();
        let total = Self::bytes_for(name.len()) as usize;
        let sealed = self.sealed(name, place, owner);
        buffer[..size_of::<Self>()].copy_from_slice(sealed.as_bytes());
        buffer[size_of::<Self>()..used].copy_from_slice(name);
        buffer[used..total].fill(0);
        total
    }

    /// The record at the start of `bytes` and its name, if it is sound for its position in the log
    /// of `owner`.
    pub fn decode(bytes: &[u8], place: LogPosition, owner: LogOwner) -> Option<(Self, &[u8])> {
        let found = Self::decode_unsealed(bytes, place);
        found.filter(|(record, name)| {
            record.checksum == record.expected_checksum(name, place, owner)
        })
    }

    /// As [`Self::decode`], without checking the checksum: for records that were verified before.
    pub fn decode_unsealed(bytes: &[u8], place: LogPosition) -> Option<(Self, &[u8])> {
        let (record, rest) = Self::read_from_prefix(bytes).ok()?;
        let len = usize::from(record.name_len);
        let name = rest.get(..len)?;
        let least = match record.kind()? {
            RecordKind::Came | RecordKind::Gone => 1..=NAME_MAX,
            RecordKind::Went => 0..=NAME_MAX,
        };
        let is_sound = least.contains(&len)
            && record.reserved == 0
            && record.time >= 0
            && place.byte() + Self::bytes_for(len) <= Self::LIMIT;
        is_sound.then_some((record, name))
    }

    fn expected_checksum(&self, name: &[u8], place: LogPosition, owner: LogOwner) -> u32 {
        let bare = Self {
            checksum: 0,
            ..*self
        };
        let mut sum = Summing::default();
        sum.add_words(&[place.0, owner.slot, owner.generation.into()]);
        sum.add(bare.as_bytes());
        sum.add(name);
        sum.finish()
    }

    /// When the name came or went, nanoseconds since 1970, limited to the latest time that
    /// directories can hold.
    pub fn ns(&self) -> i64 {
        self.time.min(LifeWord::LAST_NS)
    }

    /// The kind, if the number is known.
    pub fn kind(&self) -> Option<RecordKind> {
        RecordKind::from_u8(self.kind)
    }
}

/// A record and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded<'b> {
    /// Where the record begins.
    pub place: LogPosition,
    /// The record without its name.
    pub record: NameRecord,
    /// The name; empty in a record *went*.
    pub name: &'b [u8],
}

/// No sound record where one should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsoundRecord {
    /// The position.
    pub place: LogPosition,
    /// Where the next sound record begins; reading continues there.
    pub next: Option<LogPosition>,
}

/// Iterates over the records of a block, in order.
#[derive(Clone, Debug)]
pub struct Records<'b> {
    block: &'b [u8; BLOCK_BYTES as usize],
    owner: LogOwner,
    at: LogPosition,
    /// Where the records end; `None`: at a zero word.
    end: Option<u64>,
    is_sealed: bool,
    is_over: bool,
}

impl<'b> Records<'b> {
    /// The records of the block at metadata slot `slot` in the log of `owner`. `tail` is the log's
    /// tail, if it lies in this block.
    pub fn of(
        block: &'b [u8; BLOCK_BYTES as usize],
        slot: u64,
        owner: LogOwner,
        tail: Option<LogPosition>,
    ) -> Self {
        Self {
            block,
            owner,
            at: LogPosition::new(slot, NameRecord::FIRST),
            end: tail.map(LogPosition::byte),
            is_sealed: true,
            is_over: false,
        }
    }

    /// Starts at byte `byte` instead, where a record begins or the records end.
    pub fn from(mut self, byte: u64) -> Self {
        self.at = LogPosition::new(self.at.slot(), byte);
        self
    }

    /// Skips the verification of checksums.
    pub fn unsealed(mut self) -> Self {
        self.is_sealed = false;
        self
    }

    /// The position of the next sound record. Checksums cover the position, so a copy elsewhere
    /// does not match.
    fn sound_behind(&self, place: LogPosition) -> Option<LogPosition> {
        let end = self.end.unwrap_or(NameRecord::LIMIT);
        let places = (place.byte() + 8..end).step_by(8);
        let mut places = places.map(|byte| LogPosition::new(place.slot(), byte));
        places.find(|&place| {
            let bytes = self.block.get(place.byte() as usize..).unwrap_or_default();
            let found = NameRecord::decode(bytes, place, self.owner);
            found.is_some_and(|(_, name)| place.byte() + NameRecord::bytes_for(name.len()) <= end)
        })
    }

    fn is_at_end(&self) -> bool {
        let byte = self.at.byte();
        match self.end {
            Some(end) => byte == end,
            None => {
                let word = self.block.get(byte as usize..byte as usize + 8);
                byte == NameRecord::LIMIT || word == Some(&[0; 8])
            }
        }
    }
}

impl<'b> Iterator for Records<'b> {
    type Item = Result<Recorded<'b>, UnsoundRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over || self.is_at_end() {
            return None;
        }
        let place = self.at;
        let bytes = self.block.get(place.byte() as usize..).unwrap_or_default();
        let found = if self.is_sealed {
            NameRecord::decode(bytes, place, self.owner)
        } else {
            NameRecord::decode_unsealed(bytes, place)
        };
        let past = found.map(|(_, name)| place.byte() + NameRecord::bytes_for(name.len()));
        let inside = past.filter(|&past| self.end.is_none_or(|end| past <= end));
        let (Some((record, name)), Some(past)) = (found, inside) else {
            let next = self.sound_behind(place);
            self.is_over = next.is_none();
            self.at = next.unwrap_or(place);
            return Some(Err(UnsoundRecord { place, next }));
        };
        self.at = LogPosition::new(place.slot(), past);
        Some(Ok(Recorded {
            place,
            record,
            name,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileKind, TargetWord};

    const OWNER: LogOwner = LogOwner {
        slot: 9,
        generation: 4,
    };
    const SLOT: u64 = 96;

    fn record(kind: RecordKind, cookie: u64) -> NameRecord {
        NameRecord {
            kind: kind as u8,
            reserved: 0,
            name_len: 0,
            checksum: 0,
            target: TargetWord::new(7, FileKind::File).0,
            time: 5,
            cookie,
            generation: 2,
            name_hash: 77,
        }
    }

    /// A block that holds these records, and where they end.
    fn block(names: &[&[u8]]) -> ([u8; 4096], u64) {
        let mut block = [0xAB; 4096];
        let mut at = NameRecord::FIRST;
        for (i, name) in names.iter().enumerate() {
            let kind = if name.is_empty() {
                RecordKind::Went
            } else {
                RecordKind::Came
            };
            let mut buffer = [0; RECORD_MAX_BYTES];
            let place = LogPosition::new(SLOT, at);
            let bytes = record(kind, 3 + i as u64).encode(name, place, OWNER, &mut buffer);
            block[at as usize..at as usize + bytes].copy_from_slice(&buffer[..bytes]);
            at += bytes as u64;
        }
        (block, at)
    }

    fn cookies(records: Records<'_>) -> Vec<Result<u64, u64>> {
        records
            .map(|found| match found {
                Ok(found) => Ok(found.record.cookie),
                Err(unsound) => Err(unsound.place.byte()),
            })
            .collect()
    }

    #[test]
    fn records_are_read_up_to_the_tail_or_a_zero_word() {
        let (mut block, end) = block(&[b"first", b"", &[b'x'; 255], b"last"]);
        let tail = LogPosition::new(SLOT, end);
        let read = |block: &_, tail| cookies(Records::of(block, SLOT, OWNER, tail));
        assert_eq!(read(&block, Some(tail)), [Ok(3), Ok(4), Ok(5), Ok(6)]);
        assert_eq!(read(&block, None).last(), Some(&Err(end)), "no end");
        block[end as usize..end as usize + 8].fill(0);
        assert_eq!(read(&block, None), [Ok(3), Ok(4), Ok(5), Ok(6)]);
        let second = NameRecord::FIRST + NameRecord::bytes_for(5);
        let later = Records::of(&block, SLOT, OWNER, Some(tail)).from(second);
        assert_eq!(cookies(later), [Ok(4), Ok(5), Ok(6)]);
        // A tail inside a record.
        let inside = LogPosition::new(SLOT, second - 8);
        assert_eq!(read(&block, Some(inside)), [Err(NameRecord::FIRST)]);
        let none = LogPosition::new(SLOT, NameRecord::FIRST);
        assert_eq!(read(&block, Some(none)), []);
    }

    #[test]
    fn a_full_block_needs_no_zero_word() {
        let (long, rest) = ([b'n'; 255], [b'n'; 136]);
        let mut names = [&long[..]; 14];
        names[13] = &rest;
        let (block, end) = block(&names);
        assert_eq!(end, NameRecord::LIMIT);
        assert_eq!(cookies(Records::of(&block, SLOT, OWNER, None)).len(), 14);
    }

    #[test]
    fn reading_goes_on_behind_a_damaged_record() {
        let (mut block, end) = block(&[b"first", b"second", b"", b"last"]);
        let second = (NameRecord::FIRST + NameRecord::bytes_for(5)) as usize;
        let tail = LogPosition::new(SLOT, end);
        let read = |block: &_| cookies(Records::of(block, SLOT, OWNER, Some(tail)));
        for at in second..second + 40 + 6 {
            block[at] ^= 16;
            assert_eq!(read(&block), [Ok(3), Err(second as u64), Ok(5), Ok(6)]);
            block[at] ^= 16;
        }
        block[second..end as usize].fill(0xFF);
        assert_eq!(read(&block), [Ok(3), Err(second as u64)]);
    }

    #[test]
    fn every_flipped_bit_is_found_and_no_other_log_is_meant() {
        for name in [&b"some name"[..], b""] {
            let (sound, end) = block(&[name]);
            let read = |block: &[u8; 4096], slot, owner| {
                NameRecord::decode(
                    &block[64..],
                    LogPosition::new(slot, NameRecord::FIRST),
                    owner,
                )
                .is_some()
            };
            assert!(read(&sound, SLOT, OWNER));
            assert!(!read(&sound, SLOT + 32, OWNER));
            let other = |slot, generation| LogOwner { slot, generation };
            assert!(!read(&sound, SLOT, other(9, 5)));
            assert!(!read(&sound, SLOT, other(8, 4)));
            let used = 64 + 40 + name.len();
            for at in 64..used {
                let mut block = sound;
                block[at] ^= 4;
                assert!(!read(&block, SLOT, OWNER), "byte {at} of {end}");
            }
        }
    }

    #[test]
    fn places_give_back_what_was_packed() {
        let place = LogPosition::new(1 << 47, 4088);
        assert_eq!((place.slot(), place.byte()), (1 << 47, 4088));
        assert!(place.is_sound());
        for bad in [
            LogPosition::NONE,
            LogPosition::new(0, 64),
            LogPosition::new(33, 64),
            LogPosition::new(32, 56),
            LogPosition::new(32, 68),
            LogPosition(1 << 60 | LogPosition::new(32, 64).0),
        ] {
            assert!(!bad.is_sound(), "{bad:?}");
        }
    }
}
