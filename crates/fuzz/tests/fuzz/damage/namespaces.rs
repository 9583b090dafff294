//! Regressions that the targets found in pools with other namespaces than the default.

use std::mem::offset_of;

use vellum::{Error, NamespaceKind};
use vellum_fuzz::{Sample, Structure, StructureKind, judge, mount, samples, seal};
use vellum_layout::{
    AreaLine, AreaPhase, AreaTableHead, DirLocation, EntryState, Inode, LifeWord, LogExtentHead,
    PathEntryHead, SLOTS_PER_BLOCK, StateMapWord,
};

/// Changes a word of a structure and makes its checksum fit.
fn set(sample: &mut Sample, part: StructureKind, place: Structure, field: u64, value: u64) {
    sample.set_word(place.at + field, value);
    seal(sample, part, place);
}

/// The opening must report damage.
fn assert_refused(sample: &Sample) {
    let error = mount(sample.image.clone(), false).expect_err("it is damaged");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    judge(sample.image.clone(), false);
}

/// The two samples with this namespace: closed cleanly, and left by a crash.
fn samples_of(namespace: NamespaceKind) -> Vec<Sample> {
    let of = |sample: &&Sample| sample.geometry.namespace == namespace;
    samples().iter().filter(of).cloned().collect()
}

/// Recovery accepted a block of records whose head begins with a later cookie than the records in
/// it.
#[test]
fn records_have_no_cookies_below_those_of_their_block() {
    for mut sample in samples_of(NamespaceKind::Tree) {
        let block = sample.structures(StructureKind::Extent)[0];
        let at = offset_of!(LogExtentHead, base_cookie) as u64;
        set(&mut sample, StructureKind::Extent, block, at, 1000);
        judge(sample.image, false);
    }
}

/// A state in the middle of an entry was never removed.
#[test]
fn recovery_takes_states_of_slots_that_begin_no_entry() {
    let mut sample = samples_of(NamespaceKind::Adaptive).remove(1);
    let entries = sample.structures(StructureKind::Entry).into_iter();
    let long = entries.max_by_key(|entry| entry.bytes).expect("an entry");
    // The bytes there look like a dead entry.
    assert_eq!(sample.word(long.at + 128) >> 63, 0);
    let at = sample.geometry.meta_at + sample.geometry.areas.states_at(long.number);
    let word = StateMapWord(sample.word(at)).with(long.number + 1, EntryState::Cold);
    sample.set_word(at, word.0);
    judge(sample.image, false);
}

/// Bits of a directory's location beyond those of the entry were never checked, and neither was the
/// root's location.
#[test]
fn places_of_directories_are_checked() {
    let mut sample = samples_of(NamespaceKind::Adaptive).remove(1);
    for (inode, bit) in [(0, 32), (0, 4), (1, 32), (1, 60)] {
        let mut sample = sample.clone();
        let inode = sample.structures(StructureKind::Inode)[inode];
        let word = sample.word(inode.at + Inode::DETAIL);
        let bits = word ^ 1 << bit;
        set(
            &mut sample,
            StructureKind::Inode,
            inode,
            Inode::DETAIL,
            bits,
        );
        assert_refused(&sample);
    }
    // Counts in the location, where no counts are kept.
    let inode = sample.structures(StructureKind::Inode)[1];
    set(
        &mut sample,
        StructureKind::Inode,
        inode,
        Inode::PATTERN,
        1 << 32,
    );
    assert_refused(&sample);
}

/// Areas besides that of the root were never checked, and stayed as they were.
#[test]
fn further_areas_have_roots_that_say_so() {
    for mut sample in samples_of(NamespaceKind::Adaptive) {
        let [first, other] = [1, 3].map(|number| sample.structures(StructureKind::Area)[number]);
        let root = sample.structures(StructureKind::Inode)[4].number;
        sample.set_word(other.at + AreaLine::WORD, AreaPhase::Live as u64);
        set(
            &mut sample,
            StructureKind::Area,
            other,
            AreaLine::ROOT,
            root,
        );
        let error = mount(sample.image.clone(), false).expect_err("it is refused");
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        judge(sample.image.clone(), false);
        // An unsound area belongs to no directory.
        sample.set_word(other.at + AreaLine::ROOT, first.number);
        mount(sample.image.clone(), false).expect("it opens");
        judge(sample.image, false);
    }
}

/// The checker's arithmetic overflowed for a block beyond all blocks, and it accepted blocks of any
/// chunk as a list.
#[test]
fn lists_of_moves_lie_in_blocks() {
    let sample = samples()
        .iter()
        .rfind(|sample| !sample.structures(StructureKind::MoveList).is_empty());
    let sample = sample.expect("a pool in the middle of a move");
    let list = sample.structures(StructureKind::MoveList)[0];
    let moving = sample.structures(StructureKind::Area)[0].at + AreaTableHead::MOVING;
    let extent = sample.structures(StructureKind::AreaExtent)[0].number;
    for slot in [u64::MAX / SLOTS_PER_BLOCK * SLOTS_PER_BLOCK, extent] {
        let mut elsewhere = sample.clone();
        elsewhere.set_word(moving, slot);
        assert_refused(&elsewhere);
        let mut beyond = sample.clone();
        set(&mut beyond, StructureKind::MoveList, list, 0, slot);
        assert_refused(&beyond);
    }
}

/// The checker ignored a log word, and an entry without one, in a pool that was not closed.
#[test]
fn words_of_logs_lead_to_all_names_in_areas() {
    for sample in samples_of(NamespaceKind::Adaptive) {
        let words = sample.structures(StructureKind::LogWord).into_iter();
        for word in words.filter(|word| sample.word(word.at) != 0).take(3) {
            for value in [0, 1, 1 << 40] {
                let mut sample = sample.clone();
                sample.set_word(word.at, value);
                judge(sample.image, false);
            }
        }
    }
}

/// The checker took an unsound entry for residue of a crash if its directory had no name.
#[test]
fn entries_of_directories_without_names_are_dead() {
    let mut sample = samples_of(NamespaceKind::Adaptive).remove(1);
    let (deep, own) = {
        let is_deep = |inode: &Structure| {
            let entry = DirLocation(sample.word(inode.at + Inode::DETAIL)).entry();
            let at = sample.geometry.slot_at(entry) + PathEntryHead::PATH;
            entry != 0 && sample.bytes(at, 5) == b"deep\0"
        };
        let inodes = sample.structures(StructureKind::Inode).into_iter();
        let deep = inodes.into_iter().find(is_deep).expect("a directory");
        (
            deep.number,
            DirLocation(sample.word(deep.at + Inode::DETAIL)).entry(),
        )
    };
    // All names are gone except an unsound one.
    let mut left = None;
    for entry in sample.structures(StructureKind::Entry) {
        if sample.word(entry.at + PathEntryHead::PARENT) == deep {
            left = Some(entry);
        }
        if entry.number == own || left == Some(entry) {
            let at = sample.geometry.meta_at + sample.geometry.areas.states_at(entry.number);
            let word = StateMapWord(sample.word(at)).with(entry.number, EntryState::None);
            sample.set_word(at, word.0);
        }
    }
    let left = left.expect("an entry");
    let at = sample.geometry.meta_at + sample.geometry.areas.states_at(left.number);
    let word = StateMapWord(sample.word(at)).with(left.number, EntryState::Cold);
    sample.set_word(at, word.0);
    sample.set_word(left.at + PathEntryHead::LIFE, LifeWord::alive(5).0);
    sample.set_word(left.at + PathEntryHead::COOKIE, 99);
    assert_refused(&sample);
}
