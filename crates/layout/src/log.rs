//! The redo log of a logged pool: two anchors, then one record per epoch. The pool's bytes before
//! the log are *home*; the records are applied on top of them.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::{BLOCK_BYTES, Geometry};

/// First eight bytes of an anchor.
pub const ANCHOR_MAGIC: [u8; 8] = *b"VELLOG01";
/// First eight bytes of a record.
pub const EPOCH_MAGIC: [u8; 8] = *b"VELEPOCH";
/// Bytes of the two anchors, one block each, before the area of records.
pub const ANCHORS_BYTES: u64 = 2 * BLOCK_BYTES;
/// Bytes of a line, the unit of records.
pub const LOG_LINE_BYTES: u64 = vellum_media::LINE_BYTES;
/// The largest image whose lines fit 32-bit numbers: 256 GiB of metadata.
pub const IMAGE_MAX_BYTES: u64 = LOG_LINE_BYTES << 32;

/// Where the log begins. Of the sound anchors, that with the higher number is current.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Anchor {
    /// [`ANCHOR_MAGIC`].
    pub magic: [u8; 8],
    /// The uuid of the pool.
    pub uuid: [u8; 16],
    /// Grows by one with each anchor.
    pub number: u64,
    /// Drawn by mkfs and incremented by each repair: the seed of the checks of records.
    pub salt: u64,
    /// Identity of the image in shared memory that belongs to this log, if there is one.
    pub attach: [u8; 16],
    /// Boot id under which the image was created.
    pub boot: [u8; 16],
    /// The first epoch that home lacks.
    pub tail: u64,
    /// Where its record begins, or will begin: an offset in the area of records.
    pub tail_at: u64,
    /// The sum of [`line_sum`] over all lines of home.
    pub sum: u64,
    /// Home may already contain lines of epochs below this.
    pub target: u64,
    /// The sum of home once it contains all of these epochs.
    pub target_sum: u64,
    /// Reserved, zero.
    pub reserved_middle: [u64; 4],
    /// Bit 0: the sum of home is unknown, and `target` is `tail`. Bit 1: there is an image in
    /// shared memory.
    pub flags: u64,
    /// The directory of the image, padded with zeros.
    pub image: [u8; IMAGE_DIR_BYTES],
    /// Reserved, zero.
    pub reserved: [u64; 12],
    /// XXH3-64 of the bytes before.
    pub check: u64,
}

/// Most bytes of the path of the image's directory.
const IMAGE_DIR_BYTES: usize = 256;

/// An image in memory that outlives the process that works on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageTag {
    /// [`Anchor::attach`].
    pub attach: [u8; 16],
    /// [`Anchor::boot`].
    pub boot: [u8; 16],
    /// Path of its directory: at most 255 bytes, none of them zero.
    pub dir: Vec<u8>,
}

impl ImageTag {
    /// Most bytes of the directory's path.
    pub const DIR_MAX_BYTES: usize = IMAGE_DIR_BYTES - 1;
}

/// Bytes of an anchor: one sector.
pub const ANCHOR_BYTES: usize = size_of::<Anchor>();

const _: () = assert!(ANCHOR_BYTES == 512);

/// The fields of an anchor about log and home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnchorPoint {
    /// [`Anchor::number`].
    pub number: u64,
    /// [`Anchor::tail`].
    pub tail: u64,
    /// [`Anchor::tail_at`].
    pub tail_at: u64,
    /// [`Anchor::sum`].
    pub sum: u64,
    /// [`Anchor::target`].
    pub target: u64,
    /// [`Anchor::target_sum`].
    pub target_sum: u64,
}

impl AnchorPoint {
    /// An empty log, whose first epoch is 1, over a home with this sum.
    pub fn first(sum: u64) -> Self {
        Self {
            number: 0,
            tail: 1,
            tail_at: 0,
            sum,
            target: 1,
            target_sum: sum,
        }
    }
}

/// What the line of home at offset `at` adds to home's sum; 0 for a line of zeros.
pub fn line_sum(hash_seed: u64, at: u64, line: &[u8]) -> u64 {
    if line.iter().all(|&byte| byte == 0) {
        return 0;
    }
    xxhash_rust::xxh3::xxh3_64_with_seed(line, hash_seed ^ (at / LOG_LINE_BYTES))
}

impl Anchor {
    /// [`Anchor::flags`]: the sum of home is unknown.
    pub const NO_SUM: u64 = 1;
    /// [`Anchor::flags`]: there is an image in shared memory.
    pub const HAS_IMAGE: u64 = 2;
    /// Offset of [`Anchor::number`].
    pub const NUMBER: usize = std::mem::offset_of!(Self, number);

    /// An anchor of the pool `uuid`.
    pub fn new(uuid: [u8; 16], salt: u64, point: AnchorPoint) -> Self {
        let mut new = Self {
            magic: ANCHOR_MAGIC,
            uuid,
            number: point.number,
            salt,
            tail: point.tail,
            tail_at: point.tail_at,
            sum: point.sum,
            target: point.target,
            target_sum: point.target_sum,
            ..Self::new_zeroed()
        };
        new.check = new.expected_check();
        new
    }

    /// Stands in for an anchor when none is sound, to read the pool `uuid` without its log: it
    /// matches no record, and the sum of home is unknown.
    pub fn unknown(uuid: [u8; 16]) -> Self {
        let mut new = Self::new(uuid, 0, AnchorPoint::first(0));
        new.flags |= Self::NO_SUM;
        new.check = new.expected_check();
        new
    }

    /// The same anchor with an image in shared memory.
    #[must_use]
    pub fn with_image(mut self, tag: &ImageTag) -> Self {
        (self.attach, self.boot) = (tag.attach, tag.boot);
        let dir = &tag.dir[..tag.dir.len().min(ImageTag::DIR_MAX_BYTES)];
        self.image[..dir.len()].copy_from_slice(dir);
        self.flags |= Self::HAS_IMAGE;
        self.check = self.expected_check();
        self
    }

    /// The next anchor, equal except that there is no image.
    #[must_use]
    pub fn without_image(mut self) -> Self {
        self.number += 1;
        (self.attach, self.boot, self.image) = ([0; 16], [0; 16], [0; IMAGE_DIR_BYTES]);
        self.flags &= !Self::HAS_IMAGE;
        self.check = self.expected_check();
        self
    }

    /// The image in shared memory that belongs to the log, with the boot id under which it was
    /// created.
    pub fn image(&self) -> Option<ImageTag> {
        let len = self.image.iter().position(|&byte| byte == 0)?;
        (self.flags & Self::HAS_IMAGE != 0).then(|| ImageTag {
            attach: self.attach,
            boot: self.boot,
            dir: self.image[..len].to_vec(),
        })
    }

    /// The same anchor with the sum of home unknown.
    #[must_use]
    pub fn without_sum(mut self) -> Self {
        self.flags |= Self::NO_SUM;
        (self.sum, self.target, self.target_sum) = (0, self.tail, 0);
        self.check = self.expected_check();
        self
    }

    /// Its fields; `None` if the sum of home is unknown.
    pub fn point(&self) -> Option<AnchorPoint> {
        (self.flags & Self::NO_SUM == 0).then_some(AnchorPoint {
            number: self.number,
            tail: self.tail,
            tail_at: self.tail_at,
            sum: self.sum,
            target: self.target,
            target_sum: self.target_sum,
        })
    }

    /// Whether a log with an area of `area_bytes` can begin where the anchor says.
    pub fn is_possible(&self, area_bytes: u64) -> bool {
        let is_before = self.point().is_some_and(|point| point.target < self.tail);
        // None of these counters can have grown this far.
        let is_grown = [self.number, self.tail, self.target]
            .iter()
            .any(|number| number >> 63 != 0);
        self.tail > 0
            && !is_grown
            && !is_before
            && self.tail_at < area_bytes
            && self.tail_at.is_multiple_of(BLOCK_BYTES)
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

    /// Which of the two anchor blocks this anchor belongs in.
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
    /// XXH3-64 of the record with this field as zero, seed `salt ^ epoch`.
    pub check: u64,
    /// One more than the epoch of the record before.
    pub epoch: u64,
    /// The latest epoch known to be durable when this was written.
    pub known: u64,
    /// Journaled blocks in records of earlier epochs are written in place, so those records' copies
    /// are void.
    pub journaled_from: u64,
    /// Bytes of the record, padding included: a multiple of 4096.
    pub bytes: u32,
    /// Lines in it.
    pub lines: u32,
    /// Blocks of files in it.
    pub journaled: u32,
    /// Reserved, zero.
    pub revokes: u32,
    /// The check of the record before; 0 in the first record of a log.
    pub previous: u64,
}

/// Bytes of a record's head.
pub const RECORD_HEAD_BYTES: usize = size_of::<RecordHead>();

const _: () = assert!(RECORD_HEAD_BYTES == 64);

/// Offset of the lines in a record, behind its head, the numbers of the lines and the numbers of
/// the journaled blocks.
fn lines_at(lines: u64, journaled: u64) -> u64 {
    (RECORD_HEAD_BYTES as u64 + lines * 4 + journaled * 8).next_multiple_of(LOG_LINE_BYTES)
}

/// Offset of the journaled blocks in a record.
fn journaled_at(lines: u64, journaled: u64) -> u64 {
    (lines_at(lines, journaled) + lines * LOG_LINE_BYTES).next_multiple_of(BLOCK_BYTES)
}

/// Bytes of a record of this many lines and journaled blocks.
pub fn record_bytes(lines: u64, journaled: u64) -> u64 {
    journaled_at(lines, journaled) + journaled * BLOCK_BYTES
}

/// Bytes of a log that can hold all lines of an image in one epoch.
pub fn log_bytes_for(image_bytes: u64) -> u64 {
    ANCHORS_BYTES + record_bytes(image_bytes.div_ceil(LOG_LINE_BYTES), 0)
}

/// The fields that a record must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The salt of the anchor.
    pub salt: u64,
    /// The epoch of the record.
    pub epoch: u64,
    /// [`RecordHead::previous`], where it is known.
    pub previous: Option<u64>,
}

/// The bounds of everything that a record names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Where the image begins, behind the copies of the superblock, which are in no record.
    pub image_at: u64,
    /// Where the image ends.
    pub image_bytes: u64,
    /// Bytes of the area of records.
    pub area_bytes: u64,
    /// Data blocks of the pool.
    pub blocks: u64,
}

impl LogBounds {
    /// The bounds in a logged pool.
    pub fn of(geometry: &Geometry) -> Self {
        let area_bytes = geometry.log_bytes.saturating_sub(ANCHORS_BYTES);
        Self {
            image_at: geometry.state_at,
            image_bytes: geometry.log_at,
            area_bytes: area_bytes / BLOCK_BYTES * BLOCK_BYTES,
            blocks: geometry.blocks(),
        }
    }

    /// Whether every line and every block of the record lies within the bounds.
    fn have(&self, record: &Record) -> bool {
        let image = self.image_at..self.image_bytes;
        record.lines().all(|line| image.contains(&line.at))
            && record.journaled().all(|(block, _)| block < self.blocks)
    }
}

/// One line of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedLine<'a> {
    /// Its offset in the image.
    pub at: u64,
    /// Its 64 bytes.
    pub bytes: &'a [u8],
}

/// A journaled block of a file: its number and its bytes.
pub type JournaledBlock<'a> = (u64, &'a [u8]);

fn check_of(record: &[u8], salt: u64, epoch: u64) -> u64 {
    use xxhash_rust::xxh3::Xxh3;
    let mut hash = Xxh3::with_seed(salt ^ epoch);
    hash.update(&record[..8]);
    hash.update(&[0; 8]);
    hash.update(&record[16..]);
    hash.digest()
}

/// Seals the record of an epoch with `lines` (offsets in the image, and bytes) and journaled
/// blocks; returns it and its check. Journaled blocks in records before `journaled_from` are void.
pub fn seal_record(
    expected: Expected,
    (known, journaled_from): (u64, u64),
    lines: &[(u64, [u8; LOG_LINE_BYTES as usize])],
    journaled: &[JournaledBlock<'_>],
) -> (Vec<u8>, u64) {
    let (count, journaled_count) = (lines.len() as u64, journaled.len() as u64);
    let bytes = record_bytes(count, journaled_count);
    let head = RecordHead {
        magic: EPOCH_MAGIC,
        check: 0,
        epoch: expected.epoch,
        known,
        journaled_from,
        bytes: bytes as u32,
        lines: count as u32,
        journaled: journaled_count as u32,
        revokes: 0,
        previous: expected.previous.unwrap_or(0),
    };
    let mut record = Vec::with_capacity(bytes as usize);
    record.extend_from_slice(head.as_bytes());
    for (at, _) in lines {
        record.extend_from_slice(&((at / LOG_LINE_BYTES) as u32).to_le_bytes());
    }
    for (block, _) in journaled {
        record.extend_from_slice(&block.to_le_bytes());
    }
    record.resize(lines_at(count, journaled_count) as usize, 0);
    for (_, line) in lines {
        record.extend_from_slice(line);
    }
    record.resize(journaled_at(count, journaled_count) as usize, 0);
    for (_, block) in journaled {
        record.extend_from_slice(block);
    }
    let check = check_of(&record, expected.salt, expected.epoch);
    record[8..16].copy_from_slice(&check.to_le_bytes());
    (record, check)
}

/// A sound record that is the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    head: RecordHead,
    bytes: Vec<u8>,
}

impl Record {
    /// The length of the record with this head; `None` if it cannot be the expected one.
    pub fn length(head: &[u8], expected: Expected, bounds: &LogBounds) -> Option<u64> {
        let (head, _) = RecordHead::read_from_prefix(head).ok()?;
        let is_next = head.magic == EPOCH_MAGIC
            && head.epoch == expected.epoch
            && expected
                .previous
                .is_none_or(|before| head.previous == before)
            && head.revokes == 0
            && head.journaled_from <= head.epoch
            && u64::from(head.lines) <= bounds.image_bytes / LOG_LINE_BYTES
            && u64::from(head.bytes) == record_bytes(head.lines.into(), head.journaled.into())
            && u64::from(head.bytes) <= bounds.area_bytes;
        is_next.then_some(head.bytes.into())
    }

    /// Reads all bytes of a record; `None` if the check does not fit or a line or block lies out of
    /// bounds.
    pub fn unseal(bytes: Vec<u8>, expected: Expected, bounds: &LogBounds) -> Option<Self> {
        let len = Self::length(&bytes, expected, bounds)?;
        let (head, _) = RecordHead::read_from_prefix(&bytes).ok()?;
        let is_whole = len == bytes.len() as u64
            && head.check == check_of(&bytes, expected.salt, expected.epoch);
        let record = Self { head, bytes };
        (is_whole && bounds.have(&record)).then_some(record)
    }

    /// Its head.
    pub fn head(&self) -> &RecordHead {
        &self.head
    }

    /// Its lines, in the order of the record.
    pub fn lines(&self) -> impl Iterator<Item = LoggedLine<'_>> {
        let count = self.head.lines as usize;
        let numbers = &self.bytes[RECORD_HEAD_BYTES..][..count * 4];
        let lines_at = lines_at(count as u64, self.head.journaled.into()) as usize;
        let lines = &self.bytes[lines_at..][..count * 64];
        let (numbers, _) = numbers.as_chunks::<4>();
        let pairs = numbers.iter().zip(lines.chunks_exact(64));
        pairs.map(|(number, bytes)| LoggedLine {
            at: u64::from(u32::from_le_bytes(*number)) * LOG_LINE_BYTES,
            bytes,
        })
    }

    /// Its journaled blocks, in the order of the record.
    pub fn journaled(&self) -> impl Iterator<Item = JournaledBlock<'_>> {
        let (lines, journaled) = (u64::from(self.head.lines), u64::from(self.head.journaled));
        let numbers =
            &self.bytes[RECORD_HEAD_BYTES + lines as usize * 4..][..journaled as usize * 8];
        let (numbers, _) = numbers.as_chunks::<8>();
        let blocks = &self.bytes[journaled_at(lines, journaled) as usize..];
        let numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        numbers.zip(blocks.chunks_exact(BLOCK_BYTES as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: LogBounds = LogBounds {
        image_at: 8192,
        image_bytes: 1 << 20,
        area_bytes: 1 << 20,
        blocks: 100,
    };
    const EXPECTED: Expected = Expected {
        salt: 77,
        epoch: 9,
        previous: Some(5),
    };

    fn sample(lines: u64, journaled: u64) -> (Vec<u8>, u64) {
        let lines: Vec<_> = (64..64 + lines).map(|n| (n * 128, [n as u8; 64])).collect();
        let blocks: Vec<_> = (0..journaled).map(|n| vec![n as u8 + 101; 4096]).collect();
        let blocks: Vec<JournaledBlock<'_>> =
            (70..).zip(blocks.iter().map(Vec::as_slice)).collect();
        seal_record(EXPECTED, (8, 9), &lines, &blocks)
    }

    #[test]
    fn what_was_sealed_is_read() {
        for (count, journaled) in [(0, 0), (1, 1), (12, 0), (13, 3), (0, 2), (61, 16), (200, 0)] {
            let (bytes, check) = sample(count, journaled);
            assert_eq!(bytes.len() as u64, record_bytes(count, journaled));
            let len = Record::length(&bytes[..64], EXPECTED, &BOUNDS);
            assert_eq!(len, Some(bytes.len() as u64));
            let record = Record::unseal(bytes, EXPECTED, &BOUNDS).unwrap();
            assert_eq!((record.head().check, record.head().known), (check, 8));
            let lines: Vec<_> = record
                .lines()
                .map(|line| (line.at, line.bytes[0]))
                .collect();
            let expected: Vec<_> = (64..64 + count).map(|n| (n * 128, n as u8)).collect();
            assert_eq!(lines, expected);
            let found: Vec<_> = record
                .journaled()
                .map(|(block, of)| (block, of[7]))
                .collect();
            let expected: Vec<_> = (0..journaled).map(|n| (70 + n, n as u8 + 101)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn every_flipped_byte_is_refused() {
        let (mut bytes, _) = sample(61, 1);
        for at in 0..bytes.len() {
            bytes[at] ^= 0x10;
            let changed = Record::unseal(bytes.clone(), EXPECTED, &BOUNDS);
            assert_eq!(changed, None, "{at}");
            bytes[at] ^= 0x10;
        }
    }

    #[test]
    fn a_torn_tail_is_refused() {
        let (bytes, _) = sample(200, 1);
        for whole in (0..bytes.len())
            .step_by(512)
            .filter(|&whole| whole < 64 * 214)
        {
            let mut torn = bytes[..whole].to_vec();
            torn.resize(bytes.len(), 0);
            assert_eq!(Record::unseal(torn, EXPECTED, &BOUNDS), None, "{whole}");
        }
    }

    #[test]
    fn another_record_is_refused() {
        let (bytes, _) = sample(3, 0);
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
            assert_eq!(Record::unseal(bytes.clone(), other, &BOUNDS), None);
        }
    }

    #[test]
    fn a_record_of_what_there_is_not_is_refused() {
        let found = |at, number| {
            let record = seal_record(EXPECTED, (8, 9), &[(at, [1; 64])], &[(number, &[2; 4096])]).0;
            Record::unseal(record, EXPECTED, &BOUNDS).is_some()
        };
        let (image, blocks) = (BOUNDS.image_at..BOUNDS.image_bytes, BOUNDS.blocks);
        assert!(found(image.end - 64, blocks - 1) && found(image.start, 0));
        assert!(!found(image.end, 0) && !found(image.start - 64, 0));
        assert!(!found(image.start, blocks));
    }

    /// A record may keep journaled blocks of earlier records in force, but cannot void its own, and
    /// revokes nothing.
    #[test]
    fn a_record_that_voids_its_own_blocks_is_refused() {
        let (mut bytes, _) = sample(3, 1);
        for (field, value, is_whole) in [(32, 8, true), (32, 10, false), (52, 1, false)] {
            assert!(Record::length(&bytes, EXPECTED, &BOUNDS).is_some());
            let before = std::mem::replace(&mut bytes[field], value);
            let length = Record::length(&bytes, EXPECTED, &BOUNDS);
            assert_eq!(length.is_some(), is_whole);
            bytes[field] = before;
        }
    }

    #[test]
    fn anchors_are_sealed() {
        let point = AnchorPoint {
            number: 3,
            tail: 11,
            tail_at: 8192,
            sum: 77,
            target: 12,
            target_sum: 78,
        };
        let anchor = Anchor::new([7; 16], 5, point);
        assert_eq!(anchor.point(), Some(point));
        let mut bytes = anchor.as_bytes().to_vec();
        assert_eq!(Anchor::unseal(&bytes, [7; 16]), Some(anchor.clone()));
        assert_eq!(anchor.block(), 1);
        assert_eq!(Anchor::unseal(&bytes, [8; 16]), None);
        assert_eq!(anchor.image(), None);
        let tag = ImageTag {
            attach: [1; 16],
            boot: [2; 16],
            dir: vec![b'd'; ImageTag::DIR_MAX_BYTES],
        };
        let tagged = anchor.clone().with_image(&tag);
        let found = Anchor::unseal(tagged.as_bytes(), [7; 16]).unwrap();
        assert_eq!((found.point(), found.image()), (Some(point), Some(tag)));
        let next = found.without_image();
        assert_eq!((next.number, next.tail, next.image()), (4, 11, None));
        assert!(Anchor::unseal(next.as_bytes(), [7; 16]).is_some());
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(Anchor::unseal(&bytes, [7; 16]), None, "byte {at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn anchors_say_what_can_be() {
        let of = |tail, tail_at, target| {
            let point = AnchorPoint {
                tail,
                tail_at,
                target,
                ..AnchorPoint::first(0)
            };
            Anchor::new([7; 16], 5, point)
        };
        let possible = |tail, tail_at, target| of(tail, tail_at, target).is_possible(1 << 16);
        assert!(possible(1, 0, 1) && possible(4, 8192, 9));
        assert!(!possible(0, 0, 0) && !possible(4, 1 << 16, 4));
        assert!(!possible(4, 100, 4) && !possible(4, 8192, 3));
        assert!(!possible(1 << 63, 0, 1 << 63));
        let unknown = of(4, 8192, 9).without_sum();
        assert!(unknown.is_possible(1 << 16) && unknown.point().is_none());
        assert!(Anchor::unseal(unknown.as_bytes(), [7; 16]).is_some());
    }

    #[test]
    fn lines_of_zeros_add_nothing_and_others_by_their_place() {
        let (zeros, ones) = ([0; 64], [1; 64]);
        assert_eq!(line_sum(9, 640, &zeros), 0);
        assert_ne!(line_sum(9, 640, &ones), 0);
        assert_ne!(line_sum(9, 640, &ones), line_sum(9, 704, &ones));
        assert_ne!(line_sum(9, 640, &ones), line_sum(8, 640, &ones));
    }

    #[test]
    fn a_log_holds_all_of_an_image() {
        for image_bytes in [1 << 18, 1 << 20, (1 << 24) + 4096] {
            let room = log_bytes_for(image_bytes) - ANCHORS_BYTES;
            assert!(room >= record_bytes(image_bytes / 64, 0));
        }
    }
}
