//! Pools with a log: a repair of one is an epoch, the only one in its log.
//!
//! First what the log says goes home, and the log is emptied. An anchor that knows no sum of home
//! comes before that: from then on an opening takes home as it is, whatever part of the records'
//! lines has arrived, and lays the records over it, which still are there. Another anchor, behind
//! the lines, gives the records up, with a salt that none had before: nothing that lies in the
//! log's area is taken for the record of an epoch to come. Then all that is mended inside the pool
//! is one record, so that it is mended, or not, whatever a power cut leaves of it.

use std::collections::BTreeMap;

use vellum_check::survey::RedoLog;
use vellum_layout::{
    ANCHORS_BYTES, Anchor, AnchorPoint, BLOCK_BYTES, Expected, LOG_LINE_BYTES, LogBounds,
    Superblock, seal_record,
};
use zerocopy::IntoBytes;

use crate::draft::Overlay;
use crate::plan::{Stage, copy_of};

/// A line, and where it lies.
type Line = (u64, [u8; LOG_LINE_BYTES as usize]);

/// An anchor that knows no sum, by so many numbers later than the one that counts.
fn anchor(log: &RedoLog, later: u64, salt: u64, (tail, tail_at): (u64, u64)) -> Anchor {
    let point = AnchorPoint {
        number: log.anchor.number + later,
        tail,
        tail_at,
        ..AnchorPoint::first(0)
    };
    Anchor::new(log.anchor.uuid, salt, point).without_sum()
}

/// The salt of what comes behind the records.
fn next_salt(log: &RedoLog) -> u64 {
    log.anchor.salt.wrapping_add(1)
}

fn words_at(at: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let words = bytes.as_chunks::<8>().0.iter();
    (at..)
        .step_by(8)
        .zip(words.map(|word| u64::from_le_bytes(*word)))
}

fn stage(name: &'static str, words: impl Iterator<Item = (u64, u64)>) -> Stage {
    Stage {
        words: words.collect(),
        ..Stage::named(name)
    }
}

/// Lays over the pool what its log says, and an empty log; gives the stages that write this.
pub(crate) fn take_home(overlay: &Overlay, log: &RedoLog, superblock: &Superblock) -> Vec<Stage> {
    for (&at, bytes) in log.lines.iter().chain(&log.blocks) {
        overlay.set_bytes(at, bytes);
    }
    let changed: Vec<(u64, u64)> = overlay.words().iter().map(|(&at, &to)| (at, to)).collect();
    let anchored = |name, anchor: Anchor| {
        let at = superblock.log_at + anchor.block() * BLOCK_BYTES;
        overlay.set_bytes(at, anchor.as_bytes());
        stage(name, words_at(at, anchor.as_bytes()))
    };
    let tail = (log.anchor.tail, log.anchor.tail_at);
    vec![
        anchored(
            "the sum of what the log lies over is void",
            anchor(log, 1, log.anchor.salt, tail),
        ),
        stage("what the log says, where it belongs", changed.into_iter()),
        anchored("the log is empty", anchor(log, 2, next_salt(log), log.end)),
    ]
}

/// Makes one record of what `made` changes inside of `home`, which has all that the log said, if
/// that is anything; gives what is changed elsewhere, and then that.
pub(crate) fn as_epoch(
    home: &Overlay,
    log: &RedoLog,
    superblock: &Superblock,
    mut made: Vec<Stage>,
) -> (Vec<Stage>, Option<Stage>) {
    let is_inside = |at| at < superblock.log_at && copy_of(superblock, at).is_none();
    let mut lines = BTreeMap::new();
    for &(at, value) in made.iter().flat_map(|stage| &stage.words) {
        if is_inside(at) {
            let inside = at % LOG_LINE_BYTES;
            let line: &mut [u8; LOG_LINE_BYTES as usize] = lines
                .entry(at - inside)
                .or_insert_with(|| home.bytes(at - inside));
            line[inside as usize..][..8].copy_from_slice(&value.to_le_bytes());
        }
    }
    for stage in &mut made {
        stage.words.retain(|&(at, _)| !is_inside(at));
    }
    made.retain(|stage| !stage.words.is_empty());
    let lines: Vec<Line> = lines.into_iter().collect();
    let is_any = !lines.is_empty();
    (made, is_any.then(|| record(log, superblock, &lines)))
}

/// The record of `lines`, the first of the emptied log.
fn record(log: &RedoLog, superblock: &Superblock, lines: &[Line]) -> Stage {
    let (epoch, at) = log.end;
    let expected = Expected {
        salt: next_salt(log),
        epoch,
        previous: None,
    };
    let (record, _) = seal_record(expected, (epoch - 1, epoch), lines, &[]);
    let area_at = superblock.log_at + ANCHORS_BYTES;
    let area_bytes = LogBounds::of(&superblock.geometry()).area_bytes;
    let words = words_at(at, &record);
    let place = |(at, value)| (area_at + at % area_bytes, value);
    stage("all that is changed inside, one epoch", words.map(place))
}
