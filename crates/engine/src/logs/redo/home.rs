//! Home, and checkpoints, which write the lines of records there while everything else goes on.
//!
//! A step of a checkpoint takes a *piece*: the oldest records, all of them durable. First an anchor
//! names the checksum that home will have with all of their lines. Then these are written. Then
//! another anchor says so, and the records' space is free. A crash in between leaves home with any
//! mixture of old and new lines of the piece. Its records are still there, and laid over home they
//! give the checksum in the first anchor.

use std::collections::BTreeMap;
use std::io;

use vellum_layout::{AnchorPoint, BLOCK_BYTES, ImageTag, LOG_LINE_BYTES, line_sum};
use vellum_media::{Disk, Site};

use super::layout::{LogLayout, NewLine, Replay};
use crate::disk_sites;

/// Most bytes that are written home at once.
const RUN_MAX_BYTES: usize = 1 << 20;

/// The state of home.
#[derive(Debug)]
pub(super) struct Home {
    /// Number of the valid anchor.
    pub(super) anchor: u64,
    /// The first epoch that home lacks, and the location of its record.
    pub(super) tail: (u64, u64),
    /// The checksum of home.
    pub(super) sum: u64,
    /// The image that the next anchors name.
    pub(super) image: Option<ImageTag>,
}

/// The contents of some records, and where the next one begins.
pub(super) struct Piece {
    /// The newest content of each line in the records.
    lines: BTreeMap<u64, NewLine>,
    /// The epoch after the last record, and the location of its record.
    end: (u64, u64),
    /// Bytes of the records.
    pub(super) bytes: u64,
    /// How many records.
    pub(super) records: u64,
    /// The last of their epochs with journaled data; 0: none.
    pub(super) journaled_to: u64,
}

impl Piece {
    /// Reads records from the beginning of `replay` on: those before epoch `until`, but no more
    /// once they have `bytes`.
    ///
    /// # Errors
    /// Fails if the disk fails, or one of the records is not there.
    pub(super) fn read(mut replay: Replay<'_>, until: u64, bytes: u64) -> io::Result<Self> {
        let first = replay.epoch;
        let (mut lines, mut journaled_to) = (BTreeMap::new(), 0);
        while replay.epoch < until && replay.used < bytes {
            let record = replay.next()?;
            let record =
                record.ok_or_else(|| io::Error::other("the log is not what was written"))?;
            if record.head().journaled > 0 {
                journaled_to = record.head().epoch;
            }
            for line in record.lines() {
                let mut bytes = [0; LOG_LINE_BYTES as usize];
                bytes.copy_from_slice(line.bytes);
                lines.insert(line.at, bytes);
            }
        }
        Ok(Self {
            lines,
            end: (replay.epoch, replay.at),
            bytes: replay.used,
            records: replay.epoch - first,
            journaled_to,
        })
    }

    /// Returns home's checksum, now `sum`, as it will be with these lines.
    pub(super) fn sum_with(
        &self,
        disk: &dyn Disk,
        layout: &LogLayout,
        mut sum: u64,
    ) -> io::Result<u64> {
        let mut block = [0; BLOCK_BYTES as usize];
        let mut block_at = None;
        for (&at, line) in &self.lines {
            let inside = at % BLOCK_BYTES;
            if block_at != Some(at - inside) {
                disk.read(at - inside, &mut block)?;
                block_at = Some(at - inside);
            }
            let old = &block[inside as usize..][..line.len()];
            sum = sum
                .wrapping_sub(line_sum(layout.seed, at, old))
                .wrapping_add(line_sum(layout.seed, at, line));
        }
        Ok(sum)
    }

    /// Writes the lines home. Lines of one block, and of adjacent blocks, are written together,
    /// with the bytes between the lines of a block as they are there. (A call for each line costs
    /// more than the medium does.)
    fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut run = Vec::new();
        let mut run_at = 0;
        let mut lines = self.lines.iter().peekable();
        while let Some(&(&first, _)) = lines.peek() {
            let block_at = first - first % BLOCK_BYTES;
            let mut block = [0; BLOCK_BYTES as usize];
            disk.read(block_at, &mut block)?;
            let mut end = first;
            while let Some((at, line)) = lines.next_if(|(at, _)| **at < block_at + BLOCK_BYTES) {
                block[(at - block_at) as usize..][..line.len()].copy_from_slice(line);
                end = at + LOG_LINE_BYTES;
            }
            if first != run_at + run.len() as u64 || run.len() >= RUN_MAX_BYTES {
                disk.write(run_at, &run)?;
                run.clear();
                run_at = first;
            }
            run.extend_from_slice(&block[(first - block_at) as usize..(end - block_at) as usize]);
        }
        disk.write(run_at, &run)
    }
}

impl Home {
    /// Returns the next anchor's contents, for home as it is now.
    fn next_point(&mut self) -> AnchorPoint {
        self.anchor += 1;
        AnchorPoint {
            number: self.anchor,
            tail: self.tail.0,
            tail_at: self.tail.1,
            sum: self.sum,
            target: self.tail.0,
            target_sum: self.sum,
        }
    }

    /// Writes a piece home that begins at the tail.
    pub(super) fn take(
        &mut self,
        disk: &dyn Disk,
        layout: &LogLayout,
        piece: &Piece,
    ) -> io::Result<()> {
        let target_sum = piece.sum_with(disk, layout, self.sum)?;
        let point = AnchorPoint {
            target: piece.end.0,
            target_sum,
            ..self.next_point()
        };
        let image = self.image.as_ref();
        layout.write_anchor(disk, disk_sites::LOG_TARGET_DURABLE, point, image)?;
        self.finish(disk, layout, piece, target_sum)
    }

    /// Finishes writing a piece home, once an anchor names its target.
    pub(super) fn finish(
        &mut self,
        disk: &dyn Disk,
        layout: &LogLayout,
        piece: &Piece,
        target_sum: u64,
    ) -> io::Result<()> {
        piece.write(disk)?;
        disk.sync(disk_sites::LOG_HOME_DURABLE)?;
        (self.tail, self.sum) = (piece.end, target_sum);
        self.say(disk, layout, disk_sites::LOG_ANCHOR_DURABLE)
    }

    /// Writes an anchor with the present state.
    pub(super) fn say(
        &mut self,
        disk: &dyn Disk,
        layout: &LogLayout,
        site: Site,
    ) -> io::Result<()> {
        let point = self.next_point();
        layout.write_anchor(disk, site, point, self.image.as_ref())
    }
}
