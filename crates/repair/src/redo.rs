//! Repair of logged pools: it is an epoch, the only one in its log.
//!
//! First the records of the log go home, and the log is emptied. Before that, an anchor without a
//! sum of home is written: from then on an opening accepts home as it is, whichever lines of the
//! records have arrived, and applies the records again, which are still there. Another anchor,
//! after the lines, drops the records, with a new salt: nothing in the log's area passes for the
//! record of a future epoch. Then all repairs inside the pool are one record, so that a power cut
//! leaves all of them or none.

use std::collections::BTreeMap;

use vellum_check::survey::RedoLog;
use vellum_layout::{
    ANCHORS_BYTES, Anchor, AnchorPoint, BLOCK_BYTES, Expected, LOG_LINE_BYTES, LogBounds,
    Superblock, seal_record,
};
use zerocopy::IntoBytes;

use crate::draft::Overlay;
use crate::plan::{Stage, copy_of};

/// A line and its offset.
type Line = (u64, [u8; LOG_LINE_BYTES as usize]);

/// An anchor without a sum, whose number is higher than the current one by `later`.
fn anchor(log: &RedoLog, later: u64, salt: u64, (tail, tail_at): (u64, u64)) -> Anchor {
    let point = AnchorPoint {
        number: log.anchor.number + later,
        tail,
        tail_at,
        ..AnchorPoint::first(0)
    };
    Anchor::new(log.anchor.uuid, salt, point).without_sum()
}

/// The salt of records behind the present ones.
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

/// Overlays the pool with the contents of its log and an empty log; returns the stages that write
/// them.
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
            "the sum of home is void",
            anchor(log, 1, log.anchor.salt, tail),
        ),
        stage("the records of the log, written home", changed.into_iter()),
        anchored("the log is empty", anchor(log, 2, next_salt(log), log.end)),
    ]
}

/// Turns the changes of `made` inside of `home`, which includes the log's records, into one record,
/// if there are any; returns the changes elsewhere, and then the record.
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
    stage("all changes inside, one epoch", words.map(place))
}
