//! Cuckoo tables, with injected damage or as a crash leaves them.

use crate::testimage::{Sample, keyed_sample};
use vellum_check::{Class, Options, Severity, check};
use vellum_layout::{KeyedWord, MapState, MapWord, MappingKind};

const STRICT: Options = Options {
    strict_clean: true,
    progress: None,
};

fn closed() -> Sample {
    let mut sample = keyed_sample(MappingKind::Cuckoo);
    sample.image.close();
    sample
}

#[test]
fn a_sound_table_is_sound() {
    for sample in [keyed_sample(MappingKind::Cuckoo), closed()] {
        let report = check(&sample.image.bytes, STRICT);
        assert!(report.is_sound(), "{report}");
        assert_eq!(
            (
                report.summary.blocks_mapped,
                report.summary.blocks_unwritten
            ),
            (4, 1)
        );
    }
}

/// `class` is found in the pool, closed or not; in an open pool with this severity.
#[track_caller]
fn found(class: Class, severity: Severity, change: impl Fn(&mut Sample)) {
    for (mut sample, expected) in [
        (keyed_sample(MappingKind::Cuckoo), severity),
        (closed(), Severity::Damage),
    ] {
        change(&mut sample);
        let report = check(&sample.image.bytes, Options::default());
        let fits = |found: &&vellum_check::Finding| found.severity == expected;
        assert_eq!(report.of(class).filter(fits).count(), 1, "{report}");
        assert!(check(&sample.image.bytes, STRICT).damage > 0);
    }
}

/// Puts a second entry of block 1 of the file into its second line.
fn copy(s: &mut Sample, block: u32) {
    let (_, word, _) = s.image.entry_of(3, 1);
    s.image.enter(word, KeyedWord::new(word.0, block, 0, 0), 1);
}

fn set_counts(s: &mut Sample, logical: u32, following: u32, preceding: u32) {
    let (at, word, place) = s.image.entry_of(3, logical);
    let place = KeyedWord::new(word.0, place.block(), following, preceding);
    s.image.set_word(at + 8, place.0);
}

#[test]
fn what_a_crash_leaves() {
    found(Class::MapCopy, Severity::Residue, |s| {
        let block = s.image.entry_of(3, 1).2.block();
        copy(s, block);
    });
    found(Class::MapCounts, Severity::Residue, |s| {
        set_counts(s, 1, 0, 1);
        set_counts(s, 2, 0, 2);
        set_counts(s, 0, 3, 0);
    });
    found(Class::MapCounts, Severity::Residue, |s| {
        set_counts(s, 2, 1, 2)
    });
    // Block 1 does not know which entry counts it.
    found(Class::MapCounts, Severity::Residue, |s| {
        set_counts(s, 0, 2, 0)
    });
    found(Class::Limbo, Severity::Residue, |s| {
        let mark = MapWord::new(MapState::Limbo, 3, 77);
        s.image.enter(mark, KeyedWord(12345), 0);
    });
}

#[test]
fn damage_of_entries() {
    found(Class::MapTwice, Severity::Damage, |s| copy(s, 100));
    found(Class::MapWord, Severity::Damage, |s| {
        let (at, ..) = s.image.entry_of(3, 1);
        let place = s.image.word(at + 8);
        s.image.set_word(at + 8, place ^ 1 << 60);
    });
    found(Class::MapWord, Severity::Damage, |s| {
        let (at, word, _) = s.image.entry_of(3, 1);
        let place = KeyedWord::new(word.0, 0x3FFF_FFFF, 0, 0);
        s.image.set_word(at + 8, place.0);
    });
    // In a line in which it is not searched.
    found(Class::MapWord, Severity::Damage, |s| {
        let (at, word, place) = s.image.entry_of(3, 1);
        s.image.set_word(at, 0);
        s.image
            .enter(MapWord::new(MapState::Mapped, 3, 900), place, 0);
        let (at, ..) = s.image.entry_of(3, 900);
        s.image.set_word(at, word.0);
    });
    // Another file has the block too.
    found(Class::MapTwice, Severity::Damage, |s| {
        let block = s.image.entry_of(3, 1).2.block();
        let word = MapWord::new(MapState::Unwritten, 3, 9);
        s.image.enter(word, KeyedWord::new(word.0, block, 0, 0), 0);
    });
}
