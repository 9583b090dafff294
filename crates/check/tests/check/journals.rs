//! Journals: committed records are evaluated as recovery would leave them.

use crate::testimage::{Sample, closed, sample};
use vellum_check::{Class, Options, Severity, check};
use vellum_layout::{Entry, JournalHead, JournalPair, LifeWord, LogWord};

/// The record of a rename of `file` in the root to `new name` in `dir`, whose new entry is written.
fn rename(sample: &mut Sample) -> Vec<JournalPair> {
    let (word, cookie) = sample.image.next_word(sample.dir);
    let (entry, checksum) = sample
        .image
        .unlogged(sample.dir, b"new name", sample.file, cookie);
    let old = sample.image.at(sample.file_entry) + Entry::LIFE;
    let life = LifeWord(sample.image.word(old)).ns();
    vec![
        JournalPair::witness(sample.image.at(entry), checksum),
        JournalPair::store(word, LogWord::new(entry).0),
        JournalPair::store(old, LifeWord::dead(life + 1).0),
    ]
}

#[test]
fn a_committed_record_counts() {
    let mut sample = sample();
    let pairs = rename(&mut sample);
    sample.image.journal(2, &pairs);
    let before = sample.image.bytes.clone();
    let report = check(&sample.image.bytes, Options::default());
    assert_eq!((report.damage, report.residue), (0, 1), "{report}");
    assert!(report.has(Class::JournalPending));
    assert_eq!(report.summary.journal_records, 1);
    assert_eq!(report.summary.entries, 28);
    assert_eq!(report.summary.entries_dead, 2);
    assert_eq!(before, sample.image.bytes);

    // A half-applied record has the same result, and so has one that makes a directory lose its
    // name.
    sample.image.set_word(pairs[1].at, pairs[1].value);
    let report = check(&sample.image.bytes, Options::default());
    assert_eq!((report.damage, report.residue), (0, 1), "{report}");
}

#[test]
fn a_record_whose_witness_fails_never_happened() {
    let mut sample = sample();
    let pairs = rename(&mut sample);
    let entry = pairs[0].witnessed().unwrap();
    sample.image.bytes[entry as usize + 50] ^= 1;
    sample.image.journal(0, &pairs);
    let report = check(&sample.image.bytes, Options::default());
    assert_eq!((report.damage, report.residue), (0, 1), "{report}");
    assert_eq!(report.summary.entries_dead, 1);
}

#[test]
fn a_torn_record_never_happened() {
    let mut sample = sample();
    let pairs = rename(&mut sample);
    sample.image.journal(0, &pairs);
    let at = sample.image.geometry.thread_slot_at(0) + JournalHead::PAIRS + 24;
    sample.image.set_word(at, 0);
    let report = check(&sample.image.bytes, Options::default());
    assert_eq!((report.damage, report.residue), (0, 1), "{report}");
    assert_eq!(report.summary.journal_records, 0);
}

#[test]
fn a_journal_on_a_closed_pool_is_damage() {
    let mut sample = closed();
    let life = sample.image.at(sample.file_entry);
    let value = sample.image.word(life);
    sample.image.journal(3, &[JournalPair::store(life, value)]);
    let report = check(&sample.image.bytes, Options::default());
    let found: Vec<_> = report.of(Class::JournalPending).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].severity, Severity::Damage);
    assert_eq!(found[0].place, "thread slot 3");
}

#[test]
fn records_that_are_never_written() {
    for at in [0, 8, 4097, 1 << 19, u64::MAX - 7] {
        let mut sample = sample();
        let at = at & !1;
        if sample.image.metadata().contains(&at) && at % 8 == 0 {
            continue;
        }
        sample.image.journal(1, &[JournalPair::store(at, 5)]);
        let report = check(&sample.image.bytes, Options::default());
        assert!(report.has(Class::JournalUnsound), "{at}: {report}");
    }
    let mut sample = sample();
    let at = sample.image.geometry.thread_slot_at(0);
    sample.image.set_word(at, 32);
    let report = check(&sample.image.bytes, Options::default());
    assert!(report.has(Class::JournalUnsound), "{report}");
}

#[test]
fn two_records_over_one_word() {
    let mut sample = sample();
    let life = sample.image.at(sample.file_entry);
    let value = sample.image.word(life);
    for slot in [0, 1] {
        sample
            .image
            .journal(slot, &[JournalPair::store(life, value)]);
    }
    let report = check(&sample.image.bytes, Options::default());
    assert!(report.has(Class::JournalConflict), "{report}");
    assert_eq!(
        report.of(Class::JournalConflict).next().unwrap().place,
        "thread slot 1"
    );
}
