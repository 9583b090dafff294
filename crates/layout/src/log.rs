//! The redo log of a pool whose metadata are worked on in memory: two anchors, then records, one
//! an epoch. The pool's bytes before the log are *home*: what the log's records are laid over.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::BLOCK_BYTES;

/// First eight bytes of an anchor.
pub const ANCHOR_MAGIC: [u8; 8] = *b"VELLOG01";
/// First eight bytes of a record.
pub const EPOCH_MAGIC: [u8; 8] = *b"VELEPOCH";
/// Bytes of the two anchors, a block each, before the area of records.
pub const ANCHORS_BYTES: u64 = 2 * BLOCK_BYTES;
/// Bytes of a line: the unit that records hold.
pub const LOG_LINE_BYTES: u64 = vellum_media::LINE_BYTES;
/// The most lines that numbers of 32 bits name: 256 GiB of metadata.
pub const IMAGE_MAX_BYTES: u64 = LOG_LINE_BYTES << 32;

/// Where the log begins: the anchor with the higher number counts, of those that are sound.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Anchor {
    /// [`ANCHOR_MAGIC`].
    pub magic: [u8; 8],
    /// That of the pool.
    pub uuid: [u8; 16],
    /// Grows by one with each anchor.
    pub number: u64,
    /// Drawn by mkfs: seed of the checks of records.
    pub salt: u64,
    /// Reserved, zero.
    pub reserved_image: [u64; 4],
    /// The first epoch that home does not have.
    pub tail: u64,
    /// Where its record begins, or will: an offset in the area of records.
    pub tail_at: u64,
    /// Reserved, zero.
    pub reserved_sums: [u64; 7],
    /// Bit 0: there is no sum of home. Always set.
    pub flags: u64,
    /// Reserved, zero.
    pub reserved: [u64; 44],
    /// XXH3-64 of the bytes before.
    pub check: u64,
}

/// Bytes of an anchor: one sector.
pub const ANCHOR_BYTES: usize = size_of::<Anchor>();

const _: () = assert!(ANCHOR_BYTES == 512);

impl Anchor {
    /// [`Anchor::flags`]: there is no sum of home.
    pub const NO_SUM: u64 = 1;

    /// An anchor of a log whose first record is that of epoch `tail`, at `tail_at`.
    pub fn new(uuid: [u8; 16], number: u64, salt: u64, tail: u64, tail_at: u64) -> Self {
        let mut new = Self {
            magic: ANCHOR_MAGIC,
            uuid,
            number,
            salt,
            tail,
            tail_at,
            flags: Self::NO_SUM,
            ..Self::new_zeroed()
        };
        new.check = new.expected_check();
        new
    }

    fn expected_check(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.as_bytes()[..ANCHOR_BYTES - 8])
    }

    /// Reads an anchor of the pool `uuid`; `None` if it is not sound.
    pub fn unseal(bytes: &[u8], uuid: [u8; 16]) -> Option<Self> {
        let (anchor, _) = Self::read_from_prefix(bytes).ok()?;
        let is_sound = anchor.magic == ANCHOR_MAGIC
            && anchor.uuid == uuid
            && anchor.check == anchor.expected_check();
        is_sound.then_some(anchor)
    }

    /// Which of the two blocks of anchors this one belongs to.
    pub fn block(&self) -> u64 {
        self.number % 2
    }
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RecordHead {
    /// [`EPOCH_MAGIC`].
    pub magic: [u8; 8],
    /// XXH3-64 of the record with zero in the place of this, seed `salt ^ epoch`.
    pub check: u64,
    /// One more than that of the record before.
    pub epoch: u64,
    /// The latest epoch known to be durable when this was written.
    pub known: u64,
    /// Reserved for blocks within records: the epoch itself.
    pub rides_from: u64,
    /// Bytes of the record, padding included: a multiple of 4096.
    pub bytes: u32,
    /// Lines in it.
    pub lines: u32,
    /// Reserved, zero.
    pub rides: u32,
    /// Reserved, zero.
    pub revokes: u32,
    /// The check of the record before; that of the first one of a log is 0.
    pub previous: u64,
}

/// Bytes of a record's head.
pub const RECORD_HEAD_BYTES: usize = size_of::<RecordHead>();

const _: () = assert!(RECORD_HEAD_BYTES == 64);

/// Where the lines of a record of so many begin, behind its head and their numbers.
fn lines_at(lines: u64) -> u64 {
    (RECORD_HEAD_BYTES as u64 + lines * 4).next_multiple_of(LOG_LINE_BYTES)
}

/// Bytes of a record of so many lines.
pub fn record_bytes(lines: u64) -> u64 {
    (lines_at(lines) + lines * LOG_LINE_BYTES).next_multiple_of(BLOCK_BYTES)
}

/// Bytes of a log that has room for all lines of an image in one epoch.
pub fn log_bytes_for(image_bytes: u64) -> u64 {
    ANCHORS_BYTES + record_bytes(image_bytes.div_ceil(LOG_LINE_BYTES))
}

/// What a record has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// That of the anchor.
    pub salt: u64,
    /// That of the record.
    pub epoch: u64,
    /// [`RecordHead::previous`], where it is known.
    pub previous: Option<u64>,
}

/// One line of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedLine<'a> {
    /// Where it lies in the image.
    pub at: u64,
    /// Its 64 bytes.
    pub bytes: &'a [u8],
}

fn check_of(record: &[u8], salt: u64, epoch: u64) -> u64 {
    use xxhash_rust::xxh3::Xxh3;
    let mut hash = Xxh3::with_seed(salt ^ epoch);
    hash.update(&record[..8]);
    hash.update(&[0; 8]);
    hash.update(&record[16..]);
    hash.digest()
}

/// Makes the record of an epoch of `lines`, as offsets in the image and bytes; gives it and its check.
pub fn seal_record(
    expected: Expected,
    known: u64,
    lines: &[(u64, [u8; LOG_LINE_BYTES as usize])],
) -> (Vec<u8>, u64) {
    let count = lines.len() as u64;
    let bytes = record_bytes(count);
    let head = RecordHead {
        magic: EPOCH_MAGIC,
        check: 0,
        epoch: expected.epoch,
        known,
        rides_from: expected.epoch,
        bytes: bytes as u32,
        lines: count as u32,
        rides: 0,
        revokes: 0,
        previous: expected.previous.unwrap_or(0),
    };
    let mut record = Vec::with_capacity(bytes as usize);
    record.extend_from_slice(head.as_bytes());
    for (at, _) in lines {
        record.extend_from_slice(&((at / LOG_LINE_BYTES) as u32).to_le_bytes());
    }
    record.resize(lines_at(count) as usize, 0);
    for (_, line) in lines {
        record.extend_from_slice(line);
    }
    record.resize(bytes as usize, 0);
    let check = check_of(&record, expected.salt, expected.epoch);
    record[8..16].copy_from_slice(&check.to_le_bytes());
    (record, check)
}

/// A record that is whole, and the one that was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    head: RecordHead,
    bytes: Vec<u8>,
}

impl Record {
    /// How long the record is whose head this is; `None` if it cannot be the one that is expected in a
    /// log of `image_bytes` whose area of records has `area_bytes`.
    pub fn length(
        head: &[u8],
        expected: Expected,
        image_bytes: u64,
        area_bytes: u64,
    ) -> Option<u64> {
        let (head, _) = RecordHead::read_from_prefix(head).ok()?;
        let is_next = head.magic == EPOCH_MAGIC
            && head.epoch == expected.epoch
            && expected
                .previous
                .is_none_or(|before| head.previous == before)
            && (head.rides, head.revokes) == (0, 0)
            && u64::from(head.lines) <= image_bytes / LOG_LINE_BYTES
            && u64::from(head.bytes) == record_bytes(head.lines.into())
            && u64::from(head.bytes) <= area_bytes;
        is_next.then_some(head.bytes.into())
    }

    /// Reads all bytes of a record; `None` if they are not those that were sealed, or name a line
    /// outside of an image of `image_bytes`.
    pub fn unseal(bytes: Vec<u8>, expected: Expected, image_bytes: u64) -> Option<Self> {
        let len = Self::length(&bytes, expected, image_bytes, bytes.len() as u64)?;
        let (head, _) = RecordHead::read_from_prefix(&bytes).ok()?;
        let is_whole = len == bytes.len() as u64
            && head.check == check_of(&bytes, expected.salt, expected.epoch);
        let record = Self { head, bytes };
        let last = image_bytes.checked_sub(LOG_LINE_BYTES)?;
        (is_whole && record.lines().all(|line| line.at <= last)).then_some(record)
    }

    /// Its head.
    pub fn head(&self) -> &RecordHead {
        &self.head
    }

    /// Its lines, in its order.
    pub fn lines(&self) -> impl Iterator<Item = LoggedLine<'_>> {
        let count = self.head.lines as usize;
        let numbers = &self.bytes[RECORD_HEAD_BYTES..][..count * 4];
        let lines = &self.bytes[lines_at(count as u64) as usize..][..count * 64];
        let (numbers, _) = numbers.as_chunks::<4>();
        let pairs = numbers.iter().zip(lines.chunks_exact(64));
        pairs.map(|(number, bytes)| LoggedLine {
            at: u64::from(u32::from_le_bytes(*number)) * LOG_LINE_BYTES,
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: u64 = 1 << 20;
    const EXPECTED: Expected = Expected {
        salt: 77,
        epoch: 9,
        previous: Some(5),
    };

    fn sample(lines: u64) -> (Vec<u8>, u64) {
        let lines: Vec<_> = (0..lines).map(|n| (n * 128, [n as u8 + 1; 64])).collect();
        seal_record(EXPECTED, 8, &lines)
    }

    #[test]
    fn what_was_sealed_is_read() {
        for count in [0, 1, 12, 13, 61, 200] {
            let (bytes, check) = sample(count);
            assert_eq!(bytes.len() as u64, record_bytes(count));
            let len = Record::length(&bytes[..64], EXPECTED, IMAGE, 1 << 20);
            assert_eq!(len, Some(bytes.len() as u64));
            let record = Record::unseal(bytes, EXPECTED, IMAGE).unwrap();
            assert_eq!((record.head().check, record.head().known), (check, 8));
            let lines: Vec<_> = record
                .lines()
                .map(|line| (line.at, line.bytes[0]))
                .collect();
            let expected: Vec<_> = (0..count).map(|n| (n * 128, n as u8 + 1)).collect();
            assert_eq!(lines, expected);
        }
    }

    #[test]
    fn every_flipped_byte_is_refused() {
        let (mut bytes, _) = sample(61);
        for at in 0..bytes.len() {
            bytes[at] ^= 0x10;
            assert_eq!(Record::unseal(bytes.clone(), EXPECTED, IMAGE), None, "{at}");
            bytes[at] ^= 0x10;
        }
    }

    #[test]
    fn a_torn_tail_is_refused() {
        let (bytes, _) = sample(200);
        for whole in (0..bytes.len())
            .step_by(512)
            .filter(|&whole| whole < 64 * 214)
        {
            let mut torn = bytes[..whole].to_vec();
            torn.resize(bytes.len(), 0);
            assert_eq!(Record::unseal(torn, EXPECTED, IMAGE), None, "{whole}");
        }
    }

    #[test]
    fn another_record_is_refused() {
        let (bytes, _) = sample(3);
        for other in [
            Expected {
                salt: 78,
                ..EXPECTED
            },
            Expected {
                epoch: 10,
                ..EXPECTED
            },
            Expected {
                previous: Some(6),
                ..EXPECTED
            },
        ] {
            assert_eq!(Record::unseal(bytes.clone(), other, IMAGE), None);
        }
        let outside = seal_record(EXPECTED, 8, &[(IMAGE, [1; 64])]).0;
        assert_eq!(Record::unseal(outside, EXPECTED, IMAGE), None);
    }

    #[test]
    fn anchors_are_sealed() {
        let anchor = Anchor::new([7; 16], 3, 5, 11, 8192);
        let mut bytes = anchor.as_bytes().to_vec();
        assert_eq!(Anchor::unseal(&bytes, [7; 16]), Some(anchor.clone()));
        assert_eq!(anchor.block(), 1);
        assert_eq!(Anchor::unseal(&bytes, [8; 16]), None);
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(Anchor::unseal(&bytes, [7; 16]), None, "byte {at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn a_log_holds_all_of_an_image() {
        for image_bytes in [1 << 18, 1 << 20, (1 << 24) + 4096] {
            let room = log_bytes_for(image_bytes) - ANCHORS_BYTES;
            assert!(room >= record_bytes(image_bytes / 64));
        }
    }
}
