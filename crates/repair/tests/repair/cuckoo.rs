//! Damaged cuckoo tables are mended, and everything readable survives.

use crate::keyed;
use crate::support::{fill_blocks, read_tree, repaired};
use crate::testimage::{Sample, keyed_sample};
use vellum_check::{Class, Options, check};
use vellum_layout::{KeyedWord, MapState, MapWord, MappingKind};

/// Damages a closed pool with a cuckoo table and mends it; returns it before and after.
#[track_caller]
fn mended(class: Class, damage: impl Fn(&mut Sample)) -> (Vec<u8>, Vec<u8>) {
    keyed::mended(MappingKind::Cuckoo, class, damage)
}

#[track_caller]
fn mended_in_place(class: Class, damage: impl Fn(&mut Sample)) {
    keyed::mended_in_place(MappingKind::Cuckoo, class, damage);
}

fn entry(s: &mut Sample, word: MapWord, block: u32, home: usize) {
    s.image
        .enter(word, KeyedWord::new(word.0, block, 0, 0), home);
}

fn set_counts(s: &mut Sample, logical: u32, following: u32, preceding: u32) {
    let (at, word, place) = s.image.entry_of(3, logical);
    let place = KeyedWord::new(word.0, place.block(), following, preceding);
    s.image.set_word(at + 8, place.0);
}

#[test]
fn duplicate_entries() {
    mended_in_place(Class::MapCopy, |s| {
        let (_, word, place) = s.image.entry_of(3, 1);
        entry(s, word, place.block(), 1);
    });
    mended_in_place(Class::MapTwice, |s| {
        let (_, word, _) = s.image.entry_of(3, 1);
        entry(s, word, 100, 1);
    });
    mended_in_place(Class::MapTwice, |s| {
        let block = s.image.entry_of(3, 1).2.block();
        entry(s, MapWord::new(MapState::Unwritten, 3, 9), block, 0);
    });
}

#[test]
fn counts() {
    for (logical, following, preceding) in [(0, 3, 0), (0, 2, 0), (2, 1, 2)] {
        mended_in_place(Class::MapCounts, |s| {
            set_counts(s, logical, following, preceding);
        });
    }
}

#[test]
fn a_block_of_two_files_is_copied() {
    keyed::a_block_of_two_files_is_copied(MappingKind::Cuckoo);
}

#[test]
fn a_written_block_takes_precedence_over_a_reserved_one() {
    keyed::a_written_block_takes_precedence_over_a_reserved_one(MappingKind::Cuckoo);
}

#[test]
fn entries_without_an_owner() {
    mended_in_place(Class::MapNobody, |s| {
        entry(s, MapWord::new(MapState::Mapped, 1000, 3), 100, 0);
    });
    mended_in_place(Class::MapPastEnd, |s| {
        entry(s, MapWord::new(MapState::Mapped, 3, 3), 100, 0);
    });
    mended_in_place(Class::Limbo, |s| {
        s.image
            .enter(MapWord::new(MapState::Limbo, 3, 77), KeyedWord(12345), 0);
    });
    let (_, after) = mended(Class::MapWord, |s| {
        let (at, ..) = s.image.entry_of(3, 1);
        let place = s.image.word(at + 8);
        s.image.set_word(at + 8, place ^ 1 << 60);
    });
    assert!(read_tree(&after).contains_key(&b"/file"[..]));
}

#[test]
fn a_lost_root_is_found_by_the_entries() {
    let mut sample = keyed_sample(MappingKind::Cuckoo);
    sample.image.close();
    let geometry = sample.image.geometry;
    fill_blocks(&mut sample.image.bytes, &geometry);
    let sound = read_tree(&sample.image.bytes);
    sample.image.edit_inode(3, |inode| inode.root = 0);
    let report = check(&sample.image.bytes, Options::default());
    assert!(report.has(Class::MapNobody), "{report}");
    let (_, after) = repaired(&sample.image.bytes);
    assert_eq!(read_tree(&after), sound);
}
