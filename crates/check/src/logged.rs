//! The log of a logged pool: what its records say lies over home, as an opening would lay it.

use vellum_layout::{ANCHORS_BYTES, Anchor, BLOCK_BYTES, Expected, Record, Superblock};

use crate::image::View;
use crate::report::{Class, Place, Sink};

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
        Anchor::unseal(&bytes, superblock.uuid)
            .filter(|anchor| anchor.tail > 0 && anchor.tail_at < area.bytes)
    });
    let Some(anchor) = anchors.into_iter().flatten().max_by_key(|a| a.number) else {
        sink.incomplete = true;
        let detail = "both anchors of the log are unsound";
        sink.damage(Class::NotAPool, Place::Offset(geometry.log_at), detail);
        return;
    };
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
        record
            .lines()
            .for_each(|line| view.lay_line(line.at, line.bytes));
        expected.epoch += 1;
        expected.previous = Some(record.head().check);
        at = (at + len) % area.bytes;
        read += len;
    }
}
