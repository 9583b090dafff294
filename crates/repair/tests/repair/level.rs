//! Damaged level tables are mended, and everything readable survives.

use crate::keyed;
use crate::support::read_tree;
use crate::testimage::Sample;
use vellum_check::Class;
use vellum_layout::{KeyedWord, LevelPlan, LevelRoot, MapState, MapWord, MappingKind};

/// Damages a closed pool with a level table and mends it; returns it before and after.
#[track_caller]
fn mended(class: Class, damage: impl Fn(&mut Sample)) -> (Vec<u8>, Vec<u8>) {
    keyed::mended(MappingKind::Level, class, damage)
}

#[track_caller]
fn mended_in_place(class: Class, damage: impl Fn(&mut Sample)) {
    keyed::mended_in_place(MappingKind::Level, class, damage);
}

fn levels(s: &Sample) -> LevelPlan {
    LevelPlan::new(s.image.geometry.segment_blocks)
}

#[test]
fn roots() {
    mended_in_place(Class::MapLevels, |s| {
        s.image.set_word(s.image.geometry.table_at, 0);
    });
    // A level without entries is being moved.
    mended_in_place(Class::MapLevels, |s| {
        let root = LevelRoot::new(3, true);
        let entries = s.image.entries();
        s.image.set_word(s.image.geometry.table_at, root.0);
        for (at, word, place) in entries {
            s.image.set_word(at, 0);
            s.image.enter(word, place, 0);
        }
    });
}

#[test]
fn entries_in_levels_to_come() {
    let (before, after) = mended(Class::MapWord, |s| {
        let plan = levels(s);
        let word = MapWord::new(MapState::Mapped, 3, 0);
        let line = plan.homes(0x5EED, word.0, plan.last)[0];
        let place = KeyedWord::new(word.0, 100, 0, 0);
        s.image.enter_line(word, place, line);
    });
    assert_eq!(read_tree(&before), read_tree(&after));
}

#[test]
fn duplicate_entries() {
    mended_in_place(Class::MapCopy, |s| {
        let (_, word, place) = s.image.entry_of(3, 1);
        s.image.enter(word, place, 1);
    });
    mended_in_place(Class::MapCopy, |s| {
        let (_, word, place) = s.image.entry_of(3, 1);
        let stash = levels(s).stash().start;
        s.image.enter_line(word, place, stash);
    });
    mended_in_place(Class::MapTwice, |s| {
        let (_, word, _) = s.image.entry_of(3, 1);
        let place = KeyedWord::new(word.0, 100, 0, 0);
        s.image.enter(word, place, 1);
    });
    mended_in_place(Class::MapTwice, |s| {
        let (at, word, place) = s.image.entry_of(3, 1);
        let stash = levels(s).stash();
        s.image.set_word(at, 0);
        s.image.enter_line(word, place, stash.start);
        s.image.enter_line(word, place, stash.end - 1);
    });
}

#[test]
fn counts_in_a_table_without_counts() {
    for (following, preceding) in [(1, 0), (4, 0), (0, 1)] {
        mended_in_place(Class::MapCounts, |s| {
            let (at, word, place) = s.image.entry_of(3, 0);
            let place = KeyedWord::new(word.0, place.block(), following, preceding);
            s.image.set_word(at + 8, place.0);
        });
    }
}

#[test]
fn a_block_of_two_files_is_copied() {
    keyed::a_block_of_two_files_is_copied(MappingKind::Level);
}

#[test]
fn a_written_block_takes_precedence_over_a_reserved_one() {
    keyed::a_written_block_takes_precedence_over_a_reserved_one(MappingKind::Level);
}

#[test]
fn entries_without_an_owner() {
    mended_in_place(Class::MapNobody, |s| {
        let word = MapWord::new(MapState::Mapped, 1000, 3);
        s.image.enter(word, KeyedWord::new(word.0, 100, 0, 0), 0);
    });
    mended_in_place(Class::MapPastEnd, |s| {
        let word = MapWord::new(MapState::Mapped, 3, 3);
        s.image.enter(word, KeyedWord::new(word.0, 100, 0, 0), 0);
    });
    mended_in_place(Class::Limbo, |s| {
        let mark = MapWord::new(MapState::Limbo, 3, 77);
        s.image.enter(mark, KeyedWord(12345), 0);
    });
}
