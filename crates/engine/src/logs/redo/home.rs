//! Home, and how what records say gets there: by checkpoints, beside whatever else is going on.
//!
//! A checkpoint takes a *piece*: the oldest records, all of them durable. First an anchor says what
//! home's sum will be when it has all of their lines, then these are written, then another anchor
//! says that it has, and the records' space is free. A crash in between leaves home with any
//! mixture of old and new lines of the piece, over which its records, still there, give the sum
//! that the first anchor names.

use std::collections::BTreeMap;
use std::io;

use vellum_layout::{AnchorPoint, BLOCK_BYTES, ImageTag, LOG_LINE_BYTES, line_sum};
use vellum_media::{Disk, Site};

use super::layout::{LogLayout, NewLine, Replay};
use crate::disk_sites;

/// Most bytes that are written home at once.
const RUN_MAX_BYTES: usize = 1 << 20;

/// How far home is.
#[derive(Debug)]
pub(super) struct Home {
    /// Number of the anchor that counts.
    pub(super) anchor: u64,
    /// The first epoch that home does not have, and where its record begins.
    pub(super) tail: (u64, u64),
    /// The sum of home.
    pub(super) sum: u64,
    /// The image that anchors name, from the next one on.
    pub(super) image: Option<ImageTag>,
}

/// What records say, and where those behind them begin.
pub(super) struct Piece {
    /// The newest content of each of their lines.
    lines: BTreeMap<u64, NewLine>,
    /// The epoch behind the last of them, and where its record begins.
    end: (u64, u64),
    /// Bytes of the records.
    pub(super) bytes: u64,
    /// How many they are.
    pub(super) records: u64,
    /// The last of their epochs with blocks of files; 0: none.
    pub(super) journaled_to: u64,
}

impl Piece {
    /// Reads records from `replay`'s layout on: those before epoch `until`, and no further ones
    /// once they have `bytes`.
    ///
    /// # Errors
    /// What the disk said, or one of the records is not there.
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

    /// What becomes of home's `sum` when it gets these lines.
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

    /// Writes the lines home, those of a block, and of neighbours, at once: what lies between two
    /// lines of a block is written as it is there. (A call for each line costs more than the medium
    /// does.)
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
    /// What the next anchor says, if home is as it is now.
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

    /// Takes a piece home that begins at the tail.
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

    /// The rest of it, once an anchor says what is to come.
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

    /// Writes an anchor that says how things are.
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
