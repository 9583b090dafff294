//! Level tables, with injected damage or as a crash leaves them.

use crate::testimage::{Sample, keyed_sample};
use vellum_check::{Class, Options, Severity, check};
use vellum_layout::{KeyedPlan, KeyedWord, LevelPlan, LevelRoot, MapState, MapWord, MappingKind};

const STRICT: Options = Options {
    strict_clean: true,
    progress: None,
};

/// A pool whose table has grown, with two entries left in the old bottom level.
fn open() -> Sample {
    let mut sample = keyed_sample(MappingKind::Level);
    let image = &mut sample.image;
    image.set_word(image.geometry.table_at, LevelRoot::new(2, true).0);
    let plan = LevelPlan::new(image.geometry.segment_blocks);
    for (at, word, place) in image.entries().into_iter().take(2) {
        let below = plan.homes(0x5EED, word.0, 0)[0];
        image.set_word(at, 0);
        image.enter_line(word, place, below);
    }
    sample
}

fn closed() -> Sample {
    let mut sample = open();
    sample.image.close();
    sample
}

fn levels(s: &Sample) -> LevelPlan {
    LevelPlan::new(s.image.geometry.segment_blocks)
}

#[test]
fn a_sound_table_is_sound() {
    for sample in [open(), closed(), keyed_sample(MappingKind::Level)] {
        let report = check(&sample.image.bytes, STRICT);
        assert!(report.is_sound(), "{report}");
        let summary = &report.summary;
        assert_eq!((summary.blocks_mapped, summary.blocks_unwritten), (4, 1));
    }
}

/// `class` is found in the pool, closed or not; in an open pool with this severity.
#[track_caller]
fn found(class: Class, severity: Severity, change: impl Fn(&mut Sample)) {
    for (mut sample, expected) in [(open(), severity), (closed(), Severity::Damage)] {
        change(&mut sample);
        let report = check(&sample.image.bytes, Options::default());
        let fits = |found: &&vellum_check::Finding| found.severity == expected;
        assert_eq!(report.of(class).filter(fits).count(), 1, "{report}");
        assert!(check(&sample.image.bytes, STRICT).damage > 0);
    }
}

/// The line of block 1 of the file, and the other lines that it could be in.
fn lines(s: &Sample) -> (u64, Vec<u64>) {
    let (at, word, _) = s.image.entry_of(3, 1);
    let line = (at - s.image.geometry.table_at) / 64;
    let homes = s.image.plan().unwrap().homes(0x5EED, word.0);
    (line, homes.collect())
}

/// Puts a second entry of block 1 of the file into another line in which it is searched.
fn copy(s: &mut Sample, block: u32) {
    let (_, word, _) = s.image.entry_of(3, 1);
    s.image.enter(word, KeyedWord::new(word.0, block, 0, 0), 1);
}

#[test]
fn what_a_crash_leaves() {
    found(Class::MapCopy, Severity::Residue, |s| {
        let block = s.image.entry_of(3, 1).2.block();
        copy(s, block);
    });
    found(Class::MapCopy, Severity::Residue, |s| {
        let (_, word, place) = s.image.entry_of(3, 1);
        let stash = levels(s).stash().start;
        s.image.enter_line(word, place, stash);
    });
    found(Class::Limbo, Severity::Residue, |s| {
        let mark = MapWord::new(MapState::Limbo, 3, 77);
        s.image.enter(mark, KeyedWord(12345), 0);
    });
    // The level two below the third is empty.
    found(Class::MapLevels, Severity::Residue, |s| {
        let table_at = s.image.geometry.table_at;
        let plan = levels(s);
        let dying = plan.lines_of(0);
        for (at, word, place) in s.image.entries() {
            if dying.contains(&((at - table_at) / 64)) {
                s.image.set_word(at, 0);
                s.image.enter(word, place, 0);
            }
        }
    });
}

#[test]
fn damage_of_levels() {
    found(Class::MapLevels, Severity::Damage, |s| {
        s.image.set_word(s.image.geometry.table_at, 0);
    });
    found(Class::MapWord, Severity::Damage, |s| {
        let plan = levels(s);
        let word = MapWord::new(MapState::Mapped, 3, 0);
        let line = plan.homes(0x5EED, word.0, plan.last)[0];
        let place = KeyedWord::new(word.0, 100, 0, 0);
        s.image.enter_line(word, place, line);
    });
}

#[test]
fn damage_of_entries() {
    found(Class::MapTwice, Severity::Damage, |s| copy(s, 100));
    // Entries do not move within a line, or out of the stash.
    found(Class::MapTwice, Severity::Damage, |s| {
        let (_, word, place) = s.image.entry_of(3, 1);
        let (line, _) = lines(s);
        s.image.enter_line(word, place, line);
    });
    found(Class::MapTwice, Severity::Damage, |s| {
        let (at, word, place) = s.image.entry_of(3, 1);
        let stash = levels(s).stash();
        s.image.set_word(at, 0);
        s.image.enter_line(word, place, stash.start);
        s.image.enter_line(word, place, stash.end - 1);
    });
    found(Class::MapWord, Severity::Damage, |s| {
        let (at, ..) = s.image.entry_of(3, 1);
        let place = s.image.word(at + 8);
        s.image.set_word(at + 8, place ^ 1 << 60);
    });
    // In a line in which it is not searched.
    found(Class::MapWord, Severity::Damage, |s| {
        let (line, homes) = lines(s);
        let (at, word, place) = s.image.entry_of(3, 1);
        let mut others = levels(s).lines_of(1);
        let other = others.find(|other| !homes.contains(other)).unwrap();
        assert_ne!(line, other);
        s.image.set_word(at, 0);
        s.image.enter_line(word, place, other);
    });
    // Another file has the block too.
    found(Class::MapTwice, Severity::Damage, |s| {
        let block = s.image.entry_of(3, 1).2.block();
        let word = MapWord::new(MapState::Unwritten, 3, 9);
        s.image.enter(word, KeyedWord::new(word.0, block, 0, 0), 0);
    });
}

#[test]
fn without_a_root_the_entries_determine_the_levels() {
    let mut sample = open();
    sample.image.set_word(sample.image.geometry.table_at, 0);
    // No entry has reached the new level yet.
    let expected = KeyedPlan::Level(levels(&sample), LevelRoot::of_new());
    assert_eq!(sample.image.plan(), Some(expected));
    let word = MapWord::new(MapState::Mapped, 3, 2);
    let line = levels(&sample).homes(0x5EED, word.0, 2)[0];
    let place = KeyedWord::new(word.0, 100, 0, 0);
    sample.image.enter_line(word, place, line);
    let Some(KeyedPlan::Level(_, root)) = sample.image.plan() else {
        panic!("it is a level table");
    };
    assert_eq!(root.top(), 2);
}
