//! The log of a logged pool: what its records say lies over home, as an opening would lay it, and home is what its sum says.

use std::collections::BTreeMap;

use vellum_layout::{
    ANCHORS_BYTES, Anchor, AnchorPoint, BLOCK_BYTES, ChunkKind, ChunkWord, Expected, Geometry,
    LOG_LINE_BYTES, Record, Superblock, line_sum,
};

use crate::image::View;
use crate::report::{Class, Place, Sink};

/// Lines, by their offset.
type Lines = BTreeMap<u64, Vec<u8>>;

/// The area of records.
struct Area {
    at: u64,
    bytes: u64,
}

impl Area {
    /// Fills `out` from `at` on, round the area's end.
    fn read(&self, view: &View, at: u64, out: &mut [u8]) {
        let first = (self.bytes - at).min(out.len() as u64) as usize;
        let (front, back) = out.split_at_mut(first);
        view.read(self.at + at, front);
        view.read(self.at, back);
    }
}

/// Lays the records of the log over the image.
pub(crate) fn lay_over(view: &mut View, superblock: &Superblock, sink: &mut Sink) {
    let geometry = superblock.geometry();
    let area = Area {
        at: geometry.log_at + ANCHORS_BYTES,
        bytes: (geometry.log_bytes - ANCHORS_BYTES) / BLOCK_BYTES * BLOCK_BYTES,
    };
    let anchors = [0, BLOCK_BYTES].map(|block| {
        let bytes: [u8; BLOCK_BYTES as usize] = view.bytes(geometry.log_at + block);
        Anchor::unseal(&bytes, superblock.uuid).filter(|anchor| anchor.is_possible(area.bytes))
    });
    let Some(anchor) = anchors.into_iter().flatten().max_by_key(|a| a.number) else {
        sink.incomplete = true;
        let detail = "both anchors of the log are unsound";
        sink.damage(Class::NotAPool, Place::Offset(geometry.log_at), detail);
        return;
    };
    let point = anchor.point();
    // Lines that a checkpoint was taking home.
    let mut moving = Lines::new();
    let reached = replay(view, (&geometry, &area), &anchor, |epoch, view, record| {
        for line in record.lines() {
            view.lay_line(line.at, line.bytes);
            if point.is_some_and(|point| epoch < point.target) {
                moving.insert(line.at, line.bytes.to_vec());
            }
        }
    });
    if let Some(point) = point {
        let found = sum_of_home(view, superblock, &moving);
        let is_short = reached < point.target;
        judge_sum(found, is_short, point, sink);
    }
}

/// Calls `each` with the records from the tail on, and their epochs; gives the epoch behind them.
fn replay<'a>(
    view: &mut View<'a>,
    (geometry, area): (&Geometry, &Area),
    anchor: &Anchor,
    mut each: impl FnMut(u64, &mut View<'a>, &Record),
) -> u64 {
    let (mut expected, mut at, mut read) = (
        Expected {
            salt: anchor.salt,
            epoch: anchor.tail,
            previous: None,
        },
        anchor.tail_at,
        0,
    );
    while read < area.bytes {
        let mut head = [0; BLOCK_BYTES as usize];
        area.read(view, at, &mut head);
        let Some(len) = Record::length(&head, expected, geometry.log_at, area.bytes) else {
            break;
        };
        let mut bytes = vec![0; len as usize];
        area.read(view, at, &mut bytes);
        let Some(record) = Record::unseal(bytes, expected, geometry.log_at) else {
            break;
        };
        each(expected.epoch, view, &record);
        expected.epoch += 1;
        expected.previous = Some(record.head().check);
        at = (at + len) % area.bytes;
        read += len;
    }
    expected.epoch
}

/// The sum of home with `moving` laid over it; `None` if some of it cannot be read, which is told elsewhere. Chunks of metadata that the log
/// leaves free have nothing in them.
fn sum_of_home(view: &View, superblock: &Superblock, moving: &Lines) -> Option<u64> {
    let geometry = superblock.geometry();
    let chunks_end = geometry.meta_at + geometry.meta_chunks * geometry.chunk_bytes;
    let is_used = |&chunk: &u64| {
        let word = ChunkWord(view.word(geometry.chunk_table_at + chunk * 8));
        word.decode(chunk) != Some((ChunkKind::Free, 0))
    };
    let chunks = (0..geometry.meta_chunks).filter(is_used).map(|chunk| {
        let at = geometry.meta_at + chunk * geometry.chunk_bytes;
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

/// Home is as it was before the checkpoint that the anchor tells of, or on the way to what it is to be.
fn judge_sum(found: Option<u64>, is_short: bool, point: AnchorPoint, sink: &mut Sink) {
    let place = Place::Offset(0);
    if is_short {
        let detail = "records that a checkpoint was taking home are missing";
        sink.damage(Class::HomeSum, place, detail);
    } else if let Some(found) = found.filter(|&found| found != point.target_sum) {
        let expected = point.target_sum;
        let detail = format!("{found:#018x}, and the anchor says {expected:#018x}");
        sink.damage(Class::HomeSum, place, detail);
    }
}
