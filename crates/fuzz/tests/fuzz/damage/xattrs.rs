//! Damaged extended attributes of pools that the engine made: the engine and the checker agree on
//! what is sound.

use super::regressions::{CLOSED, OPEN, assert_refused, named, sample, set};
use crate::support::{plan_of, strictly, write};
use vellum::{Cred, Error};
use vellum_check::{Class, check};
use vellum_fuzz::{Sample, Structure, StructureKind, judge, mount, seal};
use vellum_layout::{IdentityWord, Inode, SLOT_BYTES, XattrHead, XattrRecord, XattrSpace};
use zerocopy::IntoBytes;

/// The pieces of a file's set.
fn pieces(sample: &Sample, name: &[u8]) -> Vec<Structure> {
    let (inode, _) = named(sample, name);
    let pieces = sample.structures(StructureKind::Xattrs).into_iter();
    pieces
        .filter(|piece| piece.number == inode.number)
        .collect()
}

fn slot_of(sample: &Sample, piece: Structure) -> u64 {
    (piece.at - sample.geometry.meta_at) / SLOT_BYTES
}

/// Bytes of a head.
const HEAD: usize = size_of::<XattrHead>();
/// Bytes of the records of `wide` in front of the large one: a list of permissions, and
/// `trusted.overlay.opaque`.
const FRONT: usize = 4 + 44 + 4 + b"overlay.opaque".len() + b"y".len();

/// Changes a piece's head, and makes its checksum fit.
fn set_head(sample: &mut Sample, piece: Structure, next: u64, len: usize) {
    let head = XattrHead {
        next,
        len: len as u16,
        ..XattrHead::default()
    };
    let at = piece.at;
    sample
        .bytes_mut(at, HEAD as u64)
        .copy_from_slice(head.as_bytes());
    seal(sample, StructureKind::Xattrs, piece);
}

/// Reading an attribute meets the damage, and an opening that reads everything is refused. The
/// checker finds it, and repair leaves a pool that is sound and has every other attribute.
#[track_caller]
fn met(name: &[u8], attribute: &[u8], damage: impl Fn(&mut Sample)) {
    let mut closed = sample(CLOSED);
    damage(&mut closed);
    let fs = mount(closed.image.clone(), false).expect("it opens").0;
    let (cred, top) = (Cred::root(), fs.root());
    let node = fs.find(&cred, &top, name, true).expect("a name");
    let found = fs.xattr(&cred, &node, attribute);
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    judge(closed.image.clone(), false);
    let mut open = sample(OPEN);
    damage(&mut open);
    assert_refused(&open);
    for mut image in [closed.image, open.image] {
        assert!(check(&image, Default::default()).has(Class::XattrUnsound));
        write(&plan_of(&image), &mut image);
        assert!(strictly(&image).is_sound());
        let fs = mount(image.clone(), false).expect("it opens").0;
        let deep = fs.lookup(&cred, &fs.root(), b"deep").expect("a name");
        let note = fs.xattr(&cred, &deep, b"user.note");
        assert_eq!(note.expect("another file's"), b"text");
        judge(image, false);
    }
}

#[test]
fn a_set_with_a_wrong_byte() {
    met(b"file", b"user.note", |s| {
        let piece = pieces(s, b"file")[0];
        s.bytes_mut(piece.at + 100, 1)[0] ^= 1;
    });
    for number in 0..3 {
        met(b"wide", b"user.large", |s| {
            let piece = pieces(s, b"wide")[number];
            s.bytes_mut(piece.at + 100, 1)[0] ^= 1;
        });
    }
}

#[test]
fn the_set_of_another_file() {
    met(b"file", b"user.note", |s| {
        let (file, _) = named(s, b"file");
        let other = slot_of(s, pieces(s, b"deep")[0]);
        set(s, StructureKind::Inode, file, Inode::XATTR_ROOT, other);
    });
}

/// Chains that end early, that come back, or that lead to no piece, with right checksums.
#[test]
fn chains_that_lead_elsewhere() {
    let sound = sample(CLOSED);
    let [first, second, _] = pieces(&sound, b"wide")[..] else {
        panic!("three blocks");
    };
    let text = sound.structures(StructureKind::Text)[0];
    let slots = [first, second, text].map(|structure| slot_of(&sound, structure));
    for next in slots.into_iter().chain([0, 1, u64::MAX]) {
        met(b"wide", b"user.large", |s| {
            set(s, StructureKind::Xattrs, second, 0, next);
        });
    }
}

/// The last block of a chain in a chunk of entries. The records are sound.
#[test]
fn a_chain_that_ends_in_slots() {
    const LAST: usize = 300;
    met(b"wide", b"user.large", |s| {
        let [first, second, last] = pieces(s, b"wide")[..] else {
            panic!("three blocks");
        };
        let value_len = 2 * XattrHead::BLOCK_MAX + LAST - FRONT - 4 - b"large".len();
        let record = XattrRecord::new(XattrSpace::User, b"large".len(), value_len);
        s.bytes_mut(first.at + (HEAD + FRONT) as u64, 4)
            .copy_from_slice(&record.0.to_le_bytes());
        seal(s, StructureKind::Xattrs, first);
        let labels = pieces(s, b"file")[0];
        let moved = Structure {
            at: labels.at,
            ..last
        };
        set_head(s, moved, 0, LAST);
        let slot = slot_of(s, labels);
        set(s, StructureKind::Xattrs, second, 0, slot);
    });
}

/// A short set in a block.
#[test]
fn a_set_that_should_lie_in_slots() {
    met(b"wide", b"trusted.overlay.opaque", |s| {
        let [first, ..] = pieces(s, b"wide")[..] else {
            panic!("three blocks");
        };
        set_head(s, first, 0, FRONT);
    });
}

#[test]
fn flags_that_do_not_follow_from_the_set() {
    let flags = [
        IdentityWord::ACCESS_LIST,
        IdentityWord::DEFAULT_LIST,
        IdentityWord::CAPABILITY,
    ];
    for (name, flag) in [&b"file"[..], b"deep", b"pipe"]
        .into_iter()
        .flat_map(|name| flags.map(|flag| (name, flag)))
    {
        let flipped = |which| {
            let mut sample = sample(which);
            let (inode, _) = named(&sample, name);
            let word = sample.word(inode.at) ^ flag;
            set(
                &mut sample,
                StructureKind::Inode,
                inode,
                Inode::IDENTITY,
                word,
            );
            sample
        };
        judge(flipped(CLOSED).image, false);
        assert_refused(&flipped(OPEN));
    }
}
