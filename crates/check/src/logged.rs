//! The redo log of a logged pool: overlays home with its records, as an opening would, and checks
//! home's sum.

use std::collections::BTreeMap;

use vellum_layout::{
    ANCHORS_BYTES, Anchor, AnchorPoint, BLOCK_BYTES, ChunkKind, ChunkWord, Expected,
    LOG_LINE_BYTES, LogBounds, Record, Superblock, line_sum,
};

use crate::Line;
use crate::image::View;
use crate::report::{Class, Location, Sink};

/// Lines or blocks, by offset.
type Lines = BTreeMap<u64, Vec<u8>>;

/// The area of records.
struct Area {
    at: u64,
    bounds: LogBounds,
}

impl Area {
    /// Fills `out` from `at` on, wrapping around at the area's end.
    fn read(&self, view: &View, at: u64, out: &mut [u8]) {
        let first = (self.bounds.area_bytes - at).min(out.len() as u64) as usize;
        let (front, back) = out.split_at_mut(first);
        view.read(self.at + at, front);
        view.read(self.at, back);
    }

    /// The record at `at` and its length, if it is the expected one.
    fn record(&self, view: &View, at: u64, expected: Expected) -> Option<(Record, u64)> {
        let mut head = [0; BLOCK_BYTES as usize];
        self.read(view, at, &mut head);
        let len = Record::length(&head, expected, &self.bounds)?;
        let mut bytes = vec![0; len as usize];
        self.read(view, at, &mut bytes);
        Some((Record::unseal(bytes, expected, &self.bounds)?, len))
    }
}

/// The contents of the redo log of a pool.
#[derive(Clone, Debug)]
pub struct RedoLog {
    /// The current anchor.
    pub anchor: Anchor,
    /// The epoch behind the last record, and the offset of its record in the area.
    pub end: (u64, u64),
    /// The check of the last record, if there is one.
    pub previous: Option<u64>,
    /// The newest contents of every line in a record, by pool offset.
    pub lines: Lines,
    /// Journaled blocks that an opening may still have to write in place, by pool offset.
    pub blocks: Lines,
    /// Lines that a running checkpoint was writing home.
    moving: Lines,
}

impl RedoLog {
    /// Reads the log; `None` if neither anchor is sound.
    pub(crate) fn read(view: &View, superblock: &Superblock) -> Option<Self> {
        let geometry = superblock.geometry();
        let area = Area {
            at: geometry.log_at + ANCHORS_BYTES,
            bounds: LogBounds::of(&geometry),
        };
        let anchors = [0, BLOCK_BYTES].map(|block| {
            let bytes: [u8; BLOCK_BYTES as usize] = view.bytes(geometry.log_at + block);
            let anchor = Anchor::unseal(&bytes, superblock.uuid);
            anchor.filter(|anchor| anchor.is_possible(area.bounds.area_bytes))
        });
        let anchor = anchors.into_iter().flatten().max_by_key(|a| a.number)?;
        let mut new = Self {
            end: (anchor.tail, anchor.tail_at),
            anchor,
            previous: None,
            lines: Lines::new(),
            blocks: Lines::new(),
            moving: Lines::new(),
        };
        new.read_records(view, &area, geometry.data_at);
        Some(new)
    }

    fn read_records(&mut self, view: &View, area: &Area, data_at: u64) {
        let mut read = 0;
        // With the epochs of their records.
        let mut journaled = BTreeMap::new();
        while read < area.bounds.area_bytes {
            let (epoch, at) = self.end;
            let expected = Expected {
                salt: self.anchor.salt,
                epoch,
                previous: self.previous,
            };
            let Some((record, len)) = area.record(view, at, expected) else {
                break;
            };
            self.add(&record);
            // Blocks in earlier records are already written in place.
            journaled.retain(|_, (epoch, _)| *epoch >= record.head().journaled_from);
            let place = |(block, bytes): (u64, &[u8])| {
                (data_at + block * BLOCK_BYTES, (epoch, bytes.to_vec()))
            };
            journaled.extend(record.journaled().map(place));
            self.end = (epoch + 1, (at + len) % area.bounds.area_bytes);
            self.previous = Some(record.head().check);
            read += len;
        }
        let blocks = journaled.into_iter().map(|(at, (_, bytes))| (at, bytes));
        self.blocks = blocks.collect();
    }

    fn add(&mut self, record: &Record) {
        let point = self.anchor.point();
        let is_moving = point.is_some_and(|point| record.head().epoch < point.target);
        for line in record.lines() {
            self.lines.insert(line.at, line.bytes.to_vec());
            if is_moving {
                self.moving.insert(line.at, line.bytes.to_vec());
            }
        }
    }
}

/// Overlays the image with the records of the log, and with `newer` on top of them.
pub(crate) fn lay_over(view: &mut View, superblock: &Superblock, newer: &[Line], sink: &mut Sink) {
    let Some(log) = RedoLog::read(view, superblock) else {
        sink.incomplete = true;
        let detail = "both anchors of the log are unsound";
        sink.damage(Class::NotAPool, Location::Offset(superblock.log_at), detail);
        return;
    };
    for (&at, line) in &log.lines {
        view.lay_line(at, line);
    }
    if let Some(point) = log.anchor.point() {
        let found = sum_of_home(view, superblock, &log.moving);
        judge_sum(found, log.end.0 < point.target, point, sink);
    }
    let image = LogBounds::of(&superblock.geometry());
    for (at, line) in newer {
        if (image.image_at..image.image_bytes).contains(at) {
            view.lay_line(*at, line);
        }
    }
}

/// The sum of home overlaid by `moving`; `None` if some of it is unreadable, which is reported
/// elsewhere. Free chunks of metadata have nothing in the log.
fn sum_of_home(view: &View, superblock: &Superblock, moving: &Lines) -> Option<u64> {
    let geometry = superblock.geometry();
    let chunks_end = geometry.meta_at + geometry.meta_chunks * geometry.chunk_bytes;
    let is_used = |&chunk: &u64| {
        let word = ChunkWord(view.word(geometry.chunk_word_at(chunk)));
        word.decode(chunk) != Some((ChunkKind::Free, 0))
    };
    let chunks = (0..geometry.meta_chunks).filter(is_used).map(|chunk| {
        let at = geometry.chunk_at(chunk);
        at..at + geometry.chunk_bytes
    });
    let outside = [
        geometry.state_at..geometry.meta_at,
        chunks_end..geometry.log_at,
    ];
    let mut sum = 0u64;
    let mut block = [0; BLOCK_BYTES as usize];
    for range in outside.into_iter().chain(chunks) {
        for at in range.clone().step_by(block.len()) {
            let block = &mut block[..(range.end - at).min(BLOCK_BYTES) as usize];
            view.read_under(at, block).then_some(())?;
            let lines = block.chunks(LOG_LINE_BYTES as usize);
            for (line, at) in lines.zip((at..).step_by(LOG_LINE_BYTES as usize)) {
                let line = moving.get(&at).map_or(line, Vec::as_slice);
                sum = sum.wrapping_add(line_sum(superblock.hash_seed, at, line));
            }
        }
    }
    Some(sum)
}

/// Checks that home is in the state before the checkpoint of the anchor, or between that state and
/// its target.
fn judge_sum(found: Option<u64>, is_short: bool, point: AnchorPoint, sink: &mut Sink) {
    let place = Location::Offset(0);
    if is_short {
        let detail = "records that a checkpoint was taking home are missing";
        sink.damage(Class::HomeSum, place, detail);
    } else if let Some(found) = found.filter(|&found| found != point.target_sum) {
        let expected = point.target_sum;
        let detail = format!("{found:#018x}, and the anchor says {expected:#018x}");
        sink.damage(Class::HomeSum, place, detail);
    }
}
