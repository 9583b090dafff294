//! Extended attributes: what is sound of them survives.

use crate::classes::full;
use crate::support::{mode, read_sets, read_tree, repaired_of, strictly};
use crate::testimage::xattrs::{LABELS, large};
use crate::testimage::{Sample, TestImage, closed, sample};
use vellum_check::Class;
use vellum_layout::{
    ChunkKind, FileKind, IdentityWord, NamespaceKind, QuotaRecord, SLOTS_PER_BLOCK, Xattr,
    XattrHead, XattrSpace, text_check, xattr_flags,
};
use vellum_media::SimPool;
use vellum_repair::{convert, plan_conversion};
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

fn set_mode(s: &mut Sample, ino: u64, mode: u16) {
    s.image.edit_inode(ino, |inode| {
        inode.identity = IdentityWord(inode.identity).with_mode(mode).0;
    });
}

/// Damages an open and a closed pool, and mends them: all paths and the other sets stay, and the
/// inode has these attributes. Returns the repaired pools.
#[track_caller]
fn keeps(
    class: Class,
    (ino, kept): (u64, &[Xattr<'_>]),
    damage: impl Fn(&mut Sample),
) -> [Vec<u8>; 2] {
    [sample(), closed()].map(|mut s| {
        let sound = s.image.bytes.clone();
        damage(&mut s);
        let (plan, after) = repaired_of(class, &s.image.bytes);
        assert_eq!(read_tree(&after), read_tree(&sound), "{plan:?}");
        let mut sets = read_sets(&sound);
        sets.remove(&ino);
        if !kept.is_empty() {
            sets.insert(ino, (set_of(kept), xattr_flags(kept)));
        }
        assert!(read_sets(&after) == sets, "{plan:?}");
        after
    })
}

/// As [`keeps`], for the attributes of `file`, which lie in slots.
#[track_caller]
fn keeps_labels(kept: &[Xattr<'_>], damage: impl Fn(&mut Sample)) -> [Vec<u8>; 2] {
    keeps(Class::XattrUnsound, (3, kept), damage)
}

/// As [`keeps`], for the attributes of `dir`, which lie in blocks.
#[track_caller]
fn keeps_large(kept: &[Xattr<'_>], damage: impl Fn(&mut Sample)) {
    keeps(Class::XattrUnsound, (2, kept), damage);
}

fn flip(s: &mut Sample, at: u64) {
    let word = s.image.word(at);
    s.image.set_word(at, word ^ 1);
}

#[test]
fn a_damaged_set_in_slots_is_lost() {
    keeps_labels(&[], |s| {
        let at = s.image.at(s.labels) + 80;
        flip(s, at);
    });
    for root in [1, 1 << 40, u64::MAX, sample().large[0]] {
        keeps_labels(&[], |s| {
            s.image.edit_inode(3, |inode| inode.xattr_root = root)
        });
    }
}

#[test]
fn attributes_in_front_of_an_unsound_record_stay() {
    for kept in 0..LABELS.len() {
        keeps_labels(&LABELS[..kept], |s| {
            let mut set = set_of(&LABELS);
            // An unknown space.
            set[set_of(&LABELS[..kept]).len()] |= 0xF;
            s.image.put_piece(3, s.labels, 0, &set);
        });
        keeps_labels(&LABELS[..kept], |s| {
            let set = set_of(&LABELS[..=kept]);
            s.image.put_piece(3, s.labels, 0, &set[..set.len() - 1]);
        });
    }
}

#[test]
fn an_unsound_record_of_a_quota_is_lost() {
    let record = QuotaRecord {
        flags: QuotaRecord::OWN,
        hard_bytes: 1 << 20,
        ..QuotaRecord::default()
    };
    let unsound = QuotaRecord {
        bytes_until: -1,
        ..record
    };
    let of = |name: &'static str, record| Xattr {
        space: XattrSpace::Quota,
        name: name.as_bytes(),
        value: IntoBytes::as_bytes(record),
    };
    for wrong in [of("u07", &record), of("u8", &unsound)] {
        let kept = [of("u7", &record)];
        keeps_labels(&kept, |s| {
            let set = set_of(&[kept[0], wrong]);
            s.image.put_piece(3, s.labels, 0, &set);
        });
    }
}

#[test]
fn attributes_in_front_of_an_unsound_block_stay() {
    for kept in 0..3 {
        // The first block has the whole first attribute, the second the rest of the second.
        keeps_large(&large()[..kept], |s| {
            let at = s.image.at(s.large[kept]) + 80;
            flip(s, at);
        });
    }
    for next in [0, 1 << 40, sample().large[0], sample().labels] {
        keeps_large(&large()[..1], |s| {
            s.image.edit_piece(2, s.large[0], |head| head.next = next);
        });
    }
}

#[test]
fn a_set_in_a_wrong_place_moves() {
    let [open, _] = keeps(Class::XattrUnsound, (7, &[NOTE]), |s| {
        let slot = s.image.take(ChunkKind::Blocks, SLOTS_PER_BLOCK);
        s.image.put_piece(7, slot, 0, &set_of(&[NOTE]));
        s.image.edit_inode(7, |inode| inode.xattr_root = slot);
    });
    assert!(strictly(&open).is_sound());
}

/// A symlink's text in the middle of a value.
#[test]
fn attributes_leave_the_slots_of_other_structures() {
    for mut s in [sample(), closed()] {
        let generation = IdentityWord(s.image.get_inode(s.short).identity).generation();
        s.image.edit_inode(s.short, |inode| {
            inode.root = s.labels + 1;
            inode.size = 9;
            inode.detail = text_check(s.short, generation, &[3; 9]);
        });
        let before = s.image.bytes.clone();
        let (plan, after) = repaired_of(Class::SlotShared, &before);
        assert_eq!(plan.actions.len(), 1, "{plan:?}");
        assert_eq!(read_tree(&after), read_tree(&before));
        assert!(read_sets(&after) == read_sets(&before), "{plan:?}");
    }
}

/// The group had no more than the list granted it, which nobody knows any more.
#[test]
fn a_lost_access_list_takes_the_permissions_of_the_group() {
    let lost = keeps_labels(&[], |s| {
        set_mode(s, 3, 0o4664);
        let at = s.image.at(s.labels) + 80;
        flip(s, at);
    });
    let forgotten = keeps(Class::XattrFlags, (3, &[]), |s| {
        set_mode(s, 3, 0o4664);
        s.image.edit_inode(3, |inode| inode.xattr_root = 0);
    });
    for image in lost.iter().chain(&forgotten) {
        assert_eq!(mode(image, 3), 0o4604);
    }
    let kept = keeps_labels(&LABELS[..1], |s| {
        set_mode(s, 3, 0o4664);
        let set = set_of(&LABELS[..1]);
        s.image
            .put_piece(3, s.labels, 0, &[&set[..], &[0]].concat());
    });
    let other = keeps(Class::XattrFlags, (2, &large()), |s| {
        set_mode(s, 2, 0o775);
        s.image
            .edit_inode(2, |inode| inode.identity ^= IdentityWord::DEFAULT_LIST);
    });
    assert_eq!(kept.map(|image| mode(&image, 3)), [0o4664; 2]);
    assert_eq!(other.map(|image| mode(&image, 2)), [0o775; 2]);
}

#[test]
fn flags_follow_from_the_attributes() {
    let flags = [
        IdentityWord::ACCESS_LIST,
        IdentityWord::DEFAULT_LIST,
        IdentityWord::CAPABILITY,
    ];
    for flag in flags {
        keeps(Class::XattrFlags, (3, &LABELS), |s| {
            s.image.edit_inode(3, |inode| inode.identity ^= flag);
        });
        keeps(Class::XattrFlags, (7, &[]), |s| {
            s.image.edit_inode(7, |inode| inode.identity ^= flag);
        });
    }
}

#[test]
fn a_chunk_word_is_derived_from_attributes() {
    let mut image = TestImage::empty();
    let file = image.file(1, b"file", 0);
    let block = image.set_xattrs(file, &large())[1];
    let mut slots = TestImage::empty();
    let other = slots.file(1, b"file", 0);
    // The chunk of the entries is full.
    slots.take(ChunkKind::Entries, slots.geometry.slots_per_chunk() - 3);
    let slot = slots.set_xattrs(other, &LABELS)[0];
    for (image, slot) in [(&mut image, block), (&mut slots, slot)] {
        let sound = image.bytes.clone();
        let chunk = slot / image.geometry.slots_per_chunk();
        image.set_word(image.geometry.chunk_table_at + 8 * chunk, 1 << 40);
        let (plan, after) = repaired_of(Class::ChunkWord, &image.bytes);
        assert_eq!(plan.actions.len(), 1, "{plan:?}");
        assert!(read_sets(&after) == read_sets(&sound), "{plan:?}");
    }
}

#[test]
fn a_file_in_lost_and_found_keeps_its_attributes() {
    let mut s = closed();
    let labels = read_sets(&s.image.bytes)[&3].clone();
    let ino = s.image.get_entry(s.entries[4]).0.target & 0xFFFF_FFFF;
    s.image.set_xattrs(ino, &[NOTE]);
    let at = s.image.at(s.entries[4]) + 50;
    flip(&mut s, at / 8 * 8);
    let (_, after) = repaired_of(Class::EntryUnsound, &s.image.bytes);
    let path = format!("/lost+found/#{ino}");
    assert!(read_tree(&after).contains_key(path.as_bytes()));
    let sets = read_sets(&after);
    assert_eq!((&sets[&ino].0, &sets[&3]), (&set_of(&[NOTE]), &labels));
}

/// Whatever a creation that did not commit left there.
#[test]
fn an_unnamed_inode_is_freed_without_a_word_about_its_attributes() {
    let mut s = sample();
    let ino = s.image.inode(FileKind::File, 0);
    s.image.edit_inode(ino, |inode| inode.xattr_root = 3);
    // Something to mend.
    s.image.edit_inode(s.other, |inode| inode.links |= 1 << 32);
    let (plan, _) = repaired_of(Class::Reserved, &s.image.bytes);
    assert!(
        !plan.classes().contains_key(&Class::XattrUnsound),
        "{plan:?}"
    );
}

#[test]
fn without_space_for_them_attributes_are_lost() {
    let mut s = full();
    let set = set_of(&LABELS);
    s.image.put_piece(3, s.labels, 0, &set[..set.len() - 1]);
    let (plan, after) = repaired_of(Class::XattrUnsound, &s.image.bytes);
    let removed = |what: &str| what.contains("no metadata slots are free");
    assert!(
        plan.actions.iter().any(|action| removed(&action.what)),
        "{plan:?}"
    );
    assert!(!read_sets(&after).contains_key(&3));
    assert!(read_sets(&after).contains_key(&2));
}

#[test]
fn a_conversion_keeps_attributes() {
    let before = closed().image.bytes;
    for to in [NamespaceKind::Tree, NamespaceKind::Adaptive] {
        let pool = SimPool::from_image(before.clone());
        let planned = plan_conversion(&before, to, None).unwrap();
        convert(&pool, &planned, &|_, _| {}).unwrap();
        assert!(read_sets(&pool.image()) == read_sets(&before), "{to:?}");
    }
}

/// The most bytes that a set can have in slots, and one more.
#[test]
fn a_moved_set_lies_where_its_length_needs() {
    for len in [XattrHead::SLOTS_MAX, XattrHead::SLOTS_MAX + 1] {
        let value = vec![7; len - 8];
        let kept = Xattr {
            value: &value,
            ..NOTE
        };
        assert_eq!(set_of(&[kept]).len(), len);
        keeps(Class::XattrUnsound, (7, &[kept]), |s| {
            let mut set = set_of(&[kept]);
            set.extend_from_slice(&[0; 4]);
            let slot = s.image.take(ChunkKind::Blocks, SLOTS_PER_BLOCK);
            s.image.put_piece(7, slot, 0, &set);
            s.image.edit_inode(7, |inode| inode.xattr_root = slot);
        });
    }
}
