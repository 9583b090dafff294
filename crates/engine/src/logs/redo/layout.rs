//! The location of a log, and how its records are read and written around the end of its area.

use std::io;

use vellum_layout::{
    ANCHORS_BYTES, Anchor, AnchorPoint, BLOCK_BYTES, Expected, ImageTag, LOG_LINE_BYTES, LogBounds,
    Record, Superblock,
};
use vellum_media::{Disk, Site};
use zerocopy::IntoBytes;

use super::Line;

/// Most bytes of records in one step of a checkpoint, not counting its last record.
const PIECE_BYTES: u64 = 4 << 20;

/// The location of the log, and what distinguishes its records from other bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLayout {
    uuid: [u8; 16],
    salt: u64,
    /// Seed of the checksum of home.
    pub(super) seed: u64,
    log_at: u64,
    data_at: u64,
    bounds: LogBounds,
}

/// The new content of a line.
pub(super) type NewLine = [u8; LOG_LINE_BYTES as usize];

impl LogLayout {
    pub(super) fn new(superblock: &Superblock, salt: u64) -> Self {
        let geometry = superblock.geometry();
        Self {
            uuid: superblock.uuid,
            salt,
            seed: superblock.hash_seed,
            log_at: geometry.log_at,
            data_at: geometry.data_at,
            bounds: LogBounds::of(&geometry),
        }
    }

    /// The same for records that may name this many data blocks.
    pub(super) fn naming(mut self, blocks: u64) -> Self {
        self.bounds.blocks = blocks;
        self
    }

    /// Bytes of the area of records.
    pub(super) fn area_bytes(&self) -> u64 {
        self.bounds.area_bytes
    }

    /// Returns the number of the block at a pool offset.
    pub(super) fn block_at(&self, at: u64) -> u64 {
        (at - self.data_at) / BLOCK_BYTES
    }

    /// Returns the pool offset of a block.
    pub(super) fn at_of_block(&self, block: u64) -> u64 {
        self.data_at + block * BLOCK_BYTES
    }

    /// A step of a checkpoint takes no more records once they have this many bytes.
    pub(super) fn piece_bytes(&self) -> u64 {
        PIECE_BYTES.min(self.area_bytes() / 4)
    }

    /// Returns the pool offset of offset `at` in the area.
    pub(super) fn at_of_record(&self, at: u64) -> u64 {
        self.log_at + ANCHORS_BYTES + at
    }

    /// Returns the two parts of `len` bytes at `at` of the area, as pool offset and length: the
    /// area is a ring.
    fn parts(&self, at: u64, len: u64) -> [(u64, usize); 2] {
        let first = len.min(self.area_bytes() - at);
        let front = (self.at_of_record(at), first as usize);
        [front, (self.at_of_record(0), (len - first) as usize)]
    }

    fn read(&self, disk: &dyn Disk, at: u64, out: &mut [u8]) -> io::Result<()> {
        let [(first_at, first), (rest_at, _)] = self.parts(at, out.len() as u64);
        let (front, back) = out.split_at_mut(first);
        disk.read(first_at, front)?;
        if back.is_empty() {
            Ok(())
        } else {
            disk.read(rest_at, back)
        }
    }

    /// Writes a record, at `at` of the area, durably at `site`.
    pub(super) fn write(
        &self,
        disk: &dyn Disk,
        site: Site,
        at: u64,
        record: &[u8],
    ) -> io::Result<()> {
        let [(first_at, first), (rest_at, _)] = self.parts(at, record.len() as u64);
        let (front, back) = record.split_at(first);
        if back.is_empty() {
            return disk.write_durably(site, first_at, front);
        }
        disk.write(first_at, front)?;
        disk.write(rest_at, back)?;
        disk.sync(site)
    }

    /// Keeps the lines that the log can have; the copies of the superblock are not among them.
    pub(super) fn lines_of_image(&self, mut lines: Vec<Line>) -> Vec<Line> {
        let image = self.bounds.image_at..self.bounds.image_bytes;
        lines.retain(|(at, _)| image.contains(at));
        lines
    }

    /// Describes the record of `epoch`, which follows one with the check `previous`.
    pub(super) fn expected(&self, epoch: u64, previous: Option<u64>) -> Expected {
        Expected {
            salt: self.salt,
            epoch,
            previous,
        }
    }

    /// Reads the record at `at`, if it is the expected one.
    fn record(&self, disk: &dyn Disk, at: u64, expected: Expected) -> io::Result<Option<Record>> {
        let mut head = [0; BLOCK_BYTES as usize];
        self.read(disk, at, &mut head)?;
        let Some(len) = Record::length(&head, expected, &self.bounds) else {
            return Ok(None);
        };
        let mut bytes = vec![0; len as usize];
        self.read(disk, at, &mut bytes)?;
        Ok(Record::unseal(bytes, expected, &self.bounds))
    }

    /// Reads records from that of `epoch` on, which is at `at`.
    pub(super) fn replay<'a>(&'a self, disk: &'a dyn Disk, (epoch, at): (u64, u64)) -> Replay<'a> {
        Replay {
            layout: self,
            disk,
            epoch,
            at,
            previous: None,
            used: 0,
        }
    }

    /// Writes an anchor with the beginning of the log, durably at `site`.
    pub(super) fn write_anchor(
        &self,
        disk: &dyn Disk,
        site: Site,
        point: AnchorPoint,
        image: Option<&ImageTag>,
    ) -> io::Result<()> {
        let anchor = Anchor::new(self.uuid, self.salt, point);
        let anchor = match image {
            Some(tag) => anchor.with_image(tag),
            None => anchor,
        };
        self.put_anchor(disk, site, &anchor)
    }

    /// Writes an anchor, durably at `site`. It does not overwrite the one before it.
    pub(super) fn put_anchor(
        &self,
        disk: &dyn Disk,
        site: Site,
        anchor: &Anchor,
    ) -> io::Result<()> {
        let at = self.log_at + anchor.block() * BLOCK_BYTES;
        disk.write(at, anchor.as_bytes())?;
        disk.sync(site)
    }

    /// Returns the valid anchor; `None` if neither is sound.
    pub(super) fn read_anchor(
        disk: &dyn Disk,
        superblock: &Superblock,
    ) -> io::Result<Option<Anchor>> {
        let layout = Self::new(superblock, 0);
        let mut found: Option<Anchor> = None;
        for block in 0..ANCHORS_BYTES / BLOCK_BYTES {
            let mut bytes = [0; BLOCK_BYTES as usize];
            disk.read(superblock.log_at + block * BLOCK_BYTES, &mut bytes)?;
            let anchor = Anchor::unseal(&bytes, superblock.uuid)
                .filter(|anchor| anchor.is_possible(layout.area_bytes()));
            found = found.into_iter().chain(anchor).max_by_key(|a| a.number);
        }
        Ok(found)
    }
}

/// Reads records one after the other, and knows where the next one goes.
pub(super) struct Replay<'a> {
    layout: &'a LogLayout,
    disk: &'a dyn Disk,
    /// Number of the next epoch.
    pub(super) epoch: u64,
    /// Offset in the area of its record.
    pub(super) at: u64,
    /// The check of the previous record, if there was one.
    pub(super) previous: Option<u64>,
    /// Bytes of the records so far.
    pub(super) used: u64,
}

impl Replay<'_> {
    /// Returns the next record; `None` if there is no further one.
    pub(super) fn next(&mut self) -> io::Result<Option<Record>> {
        if self.used >= self.layout.area_bytes() {
            return Ok(None);
        }
        let expected = self.layout.expected(self.epoch, self.previous);
        let record = self.layout.record(self.disk, self.at, expected)?;
        if let Some(record) = &record {
            let bytes = u64::from(record.head().bytes);
            self.epoch += 1;
            self.at = (self.at + bytes) % self.layout.area_bytes();
            self.previous = Some(record.head().check);
            self.used += bytes;
        }
        Ok(record)
    }
}
