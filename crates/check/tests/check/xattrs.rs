//! Extended attributes: every form of damage is found.

use crate::damage::damaged_only;
use crate::testimage::found::{assert_found, checked};
use crate::testimage::xattrs::{LABELS, large};
use crate::testimage::{Sample, TestImage, closed, sample};
use vellum_check::{Class, Options, Severity, check};
use vellum_layout::{
    ChunkKind, FileKind, IdentityWord, Inode, SLOTS_PER_BLOCK, XATTR_SET_MAX, Xattr, XattrHead,
    XattrSpace, text_check,
};
use zerocopy::IntoBytes;

const NOTE: Xattr<'static> = Xattr {
    space: XattrSpace::User,
    name: b"note",
    value: b"text",
};

fn set_of(xattrs: &[Xattr<'_>]) -> Vec<u8> {
    let mut set = Vec::new();
    xattrs.iter().for_each(|xattr| xattr.push_to(&mut set));
    set
}

/// The set of `file` is unsound, and nothing else is.
#[track_caller]
fn unsound(damage: impl Fn(&mut Sample)) {
    damaged_only(Class::XattrUnsound, "inode 3", damage);
}

/// The set of `dir`, which lies in blocks, is unsound, and nothing else is.
#[track_caller]
fn unsound_in_blocks(damage: impl Fn(&mut Sample)) {
    damaged_only(Class::XattrUnsound, "inode 2", damage);
}

fn set_root(s: &mut Sample, ino: u64, root: u64) {
    s.image.edit_inode(ino, |inode| inode.xattr_root = root);
}

#[test]
fn every_byte_of_a_piece_counts() {
    let sound = sample();
    let pieces = [(3, sound.labels, 1)].into_iter();
    // Of a block's records one byte in 61 is changed.
    let pieces = pieces.chain(sound.large.iter().map(|&slot| (2, slot, 61)));
    for (ino, slot, step) in pieces {
        let head = size_of::<XattrHead>();
        let records = (head..head + usize::from(sound.image.xattr_head(slot).len)).step_by(step);
        for at in (0..head).chain(records) {
            let mut damaged = sample();
            let at = damaged.image.at(slot) as usize + at;
            damaged.image.bytes[at] ^= 1 << (at % 8);
            let report = checked(&damaged.image.bytes);
            let place = format!("inode {ino}");
            assert_found(&report, Class::XattrUnsound, &place, Severity::Damage);
            assert_eq!(report.damage, 1, "{report}");
        }
    }
}

#[test]
fn what_follows_the_set_means_nothing() {
    for mut sample in [sample(), closed()] {
        let end = 16 + set_of(&LABELS).len() as u64;
        let at = sample.image.at(sample.labels) + end;
        sample.image.set_bytes(at, &[0xFF; 28]);
        let report = checked(&sample.image.bytes);
        assert_eq!(report.findings, [], "{report}");
    }
}

#[test]
fn places() {
    let elsewhere = sample();
    let (text, block) = (
        elsewhere.image.get_inode(elsewhere.short).root,
        elsewhere.large[0],
    );
    let last = elsewhere.image.geometry.region_slots() - 1;
    // No slot, slots of other structures, a slot inside a block, the last slot, none.
    for root in [u64::MAX, 1 << 40, 2, text, block + 1, last, last + 1] {
        unsound(|s| set_root(s, 3, root));
        unsound_in_blocks(|s| set_root(s, 2, root));
    }
    // The set of another inode.
    unsound(|s| set_root(s, 3, block));
    unsound_in_blocks(|s| set_root(s, 2, s.labels));
    // The middle of the set.
    unsound_in_blocks(|s| set_root(s, 2, s.large[1]));
}

#[test]
fn heads() {
    for len in [0, 1, 369, 4080, 4081, u16::MAX] {
        unsound(|s| {
            // Without a checksum: it would reach out of the slots.
            let head = XattrHead {
                len,
                ..s.image.xattr_head(s.labels)
            };
            let at = s.image.at(s.labels);
            s.image.set_bytes(at, head.as_bytes());
        });
    }
    unsound(|s| s.image.edit_piece(3, s.labels, |head| head.reserved = 1));
    unsound(|s| s.image.edit_piece(3, s.labels, |head| head.next = 320));
    for number in 0..3 {
        unsound_in_blocks(|s| {
            s.image
                .edit_piece(2, s.large[number], |head| head.reserved = 1)
        });
        unsound_in_blocks(|s| s.image.edit_piece(2, s.large[number], |head| head.len -= 1));
    }
}

#[test]
fn chains() {
    // One that ends early, that comes back, that leads to slots, to another inode's, to none.
    let sound = sample();
    let (labels, text) = (sound.labels, sound.image.get_inode(sound.long).root);
    for next in [0, labels, text, 3, 1 << 40, u64::MAX] {
        unsound_in_blocks(|s| s.image.edit_piece(2, s.large[1], |head| head.next = next));
    }
    for next in [0, 1] {
        unsound_in_blocks(|s| {
            let next = s.large[next];
            s.image.edit_piece(2, s.large[1], |head| head.next = next);
        });
    }
    // The last block in a chunk of entries.
    unsound_in_blocks(|s| {
        let part = set_of(&large())[2 * XattrHead::BLOCK_MAX..].to_vec();
        let slot = s.image.take(ChunkKind::Entries, 2);
        s.image.put_piece(2, slot, 0, &part);
        s.image.edit_piece(2, s.large[1], |head| head.next = slot);
        (slot..slot + 2).for_each(|slot| s.image.forget(slot));
    });
}

#[test]
fn sets_that_are_sound_but_for_their_records() {
    let set = set_of(&[NOTE]);
    let cut = &set[..set.len() - 1];
    let twice = [&set[..], &set].concat();
    let mut list = set_of(&LABELS[..1]);
    // A permission that does not exist.
    list[10] = 8;
    for records in [cut, &twice, &[0; 4], &list] {
        unsound(|s| s.image.put_piece(3, s.labels, 0, records));
    }
}

/// As an earlier life of the inode left it.
#[test]
fn the_set_of_another_generation() {
    unsound(|s| {
        let piece = XattrHead::piece(3, 1, 0, &set_of(&LABELS));
        let at = s.image.at(s.labels);
        s.image.set_bytes(at, &piece);
    });
}

#[test]
fn a_set_that_is_too_short_for_its_place() {
    damaged_only(Class::XattrUnsound, "inode 7", |s| {
        let slot = s.image.take(ChunkKind::Blocks, SLOTS_PER_BLOCK);
        s.image.put_piece(7, slot, 0, &set_of(&[NOTE]));
        set_root(s, 7, slot);
    });
}

/// In the last slot of a chunk.
#[test]
fn a_piece_that_reaches_into_another_chunk() {
    let mut sample = sample();
    let last = sample.labels / sample.image.geometry.slots_per_chunk() + 1;
    let slot = last * sample.image.geometry.slots_per_chunk() - 1;
    for (xattrs, damage) in [(&[NOTE][..], 0), (&LABELS, 1)] {
        let generation = crate::testimage::GENERATION;
        let piece = XattrHead::piece(3, generation, 0, &set_of(xattrs));
        let at = sample.image.at(slot);
        sample.image.set_bytes(at, &piece[..64]);
        set_root(&mut sample, 3, slot);
        let report = checked(&sample.image.bytes);
        assert_eq!(report.of(Class::XattrUnsound).count(), damage, "{report}");
    }
}

#[test]
fn a_set_has_a_most_of_bytes() {
    let value = vec![7; 1 << 16];
    let names: Vec<String> = (0..17).map(|i| format!("{i:02}")).collect();
    let xattr = |name: &'static str| Xattr {
        name: name.as_bytes(),
        value: &value,
        ..NOTE
    };
    let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    for (count, damage) in [(15, 0), (17, 1)] {
        let mut image = TestImage::of_size(8 << 20, Some(4 << 20));
        let file = image.file(1, b"file", 0);
        let xattrs: Vec<Xattr<'_>> = names[..count].iter().map(|name| xattr(name)).collect();
        assert_eq!(set_of(&xattrs).len() > XATTR_SET_MAX, damage > 0);
        image.set_xattrs(file, &xattrs);
        image.close();
        let report = checked(&image.bytes);
        assert_eq!(report.of(Class::XattrUnsound).count(), damage, "{report}");
        assert_eq!(report.is_sound(), damage == 0, "{report}");
    }
}

#[test]
fn flags() {
    let flags = [
        IdentityWord::ACCESS_LIST,
        IdentityWord::DEFAULT_LIST,
        IdentityWord::CAPABILITY,
    ];
    for flag in flags {
        // With a set in slots, one in blocks, and without a set.
        for (ino, place) in [(3, "inode 3"), (2, "inode 2"), (1, "inode 1")] {
            damaged_only(Class::XattrFlags, place, |s| {
                s.image.edit_inode(ino, |inode| inode.identity ^= flag);
            });
        }
    }
    damaged_only(Class::XattrFlags, "inode 3", |s| set_root(s, 3, 0));
    damaged_only(Class::Reserved, "inode 3", |s| {
        s.image.edit_inode(3, |inode| inode.acl_root = s.labels);
    });
}

/// The text of a symlink in the middle of a value.
#[test]
fn a_slot_of_a_text_and_of_attributes() {
    let sound = sample();
    let place = format!("slot {}", sound.labels);
    damaged_only(Class::SlotShared, &place, |s| {
        let generation = IdentityWord(s.image.get_inode(s.short).identity).generation();
        s.image.edit_inode(s.short, |inode| {
            inode.root = s.labels + 1;
            inode.size = 9;
            inode.detail = text_check(s.short, generation, &[3; 9]);
        });
    });
}

#[test]
fn the_live_map_includes_every_piece() {
    let sound = sample();
    for slot in [vec![sound.labels + 2], sound.large].concat() {
        let mut sample = sample();
        sample.image.forget(slot);
        sample.image.close();
        let report = checked(&sample.image.bytes);
        assert_found(&report, Class::LiveMap, "live map", Severity::Damage);
    }
}

/// A creation that did not commit may have written any part of its inode, or none of its set.
#[test]
fn an_unnamed_inode_may_have_any_root_of_attributes() {
    for root in [1, 3, sample().labels, u64::MAX] {
        let mut sample = sample();
        let ino = sample.image.inode(FileKind::File, 0);
        sample.image.edit_inode(ino, |inode: &mut Inode| {
            inode.xattr_root = root;
            inode.identity |= IdentityWord::ACCESS_LIST;
        });
        let report = checked(&sample.image.bytes);
        assert_eq!((report.damage, report.residue), (0, 1), "{report}");
        let strict = Options {
            strict_clean: true,
            progress: None,
        };
        let report = check(&sample.image.bytes, strict);
        assert!(report.has(Class::XattrUnsound), "{report}");
    }
}
