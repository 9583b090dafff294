//! Damage to directory logs of records (the namespace *tree*), class by class: the checker names
//! it, repair mends it, the engine opens the result, and everything undamaged stays where it was.

use crate::support::{Content, assert_survived, read_tree, repaired, repaired_of};
use vellum_check::Class;
use vellum_fuzz::{Sample, Structure, StructureKind, judge, samples, seal};
use vellum_layout::{
    BLOCK_BYTES, FileKind, IdentityWord, Inode, LogExtentHead, LogOwner, LogPosition, NameRecord,
    NamespaceKind, RecordKind, SLOTS_PER_BLOCK, TargetWord,
};
use zerocopy::IntoBytes;

fn closed() -> Sample {
    let mut samples = samples().iter();
    let found = samples.find(|sample| sample.geometry.namespace == NamespaceKind::Tree);
    found.expect("a sample of each namespace").clone()
}

fn name_in(sample: &Sample, record: Structure) -> &[u8] {
    sample.bytes(
        record.at + NameRecord::NAME,
        record.bytes - NameRecord::NAME,
    )
}

/// The record that added `name`.
fn record_of(sample: &Sample, name: &[u8]) -> Structure {
    let came = |record: &&Structure| {
        let kind = sample.bytes(record.at, 1)[0];
        kind == RecordKind::Came as u8 && name_in(sample, **record) == name
    };
    *sample
        .structures(StructureKind::Entry)
        .iter()
        .find(came)
        .expect("a name")
}

/// The inode slot of `name`.
fn target_of(sample: &Sample, name: &[u8]) -> u64 {
    TargetWord(sample.word(record_of(sample, name).at + NameRecord::TARGET)).ino()
}

/// Repairs damage of a class. The pool can be used then, and nothing else is lost.
#[track_caller]
fn mended(class: Class, damaged: &Sample) -> Vec<u8> {
    let (plan, after) = repaired_of(class, &damaged.image);
    assert_survived(&closed().image, &damaged.image, &after, &plan);
    judge(damaged.image.clone(), false);
    judge(after.clone(), false);
    after
}

/// As [`mended`]; the file called `name` loses that name, and is in lost+found.
#[track_caller]
fn lost_its_name(class: Class, damaged: &Sample, name: &[u8]) {
    let file = target_of(&closed(), name);
    let after = read_tree(&mended(class, damaged));
    let old = [b"/wide/", name].concat();
    assert!(!after.contains_key(&old), "{}", old.escape_ascii());
    let new = format!("/lost+found/#{file}").into_bytes();
    assert!(after.contains_key(&new), "{:?}", after.keys());
}

/// Sets a word of the record that added "moved", the only name of its file, and seals the record.
fn set_in_moved(field: u64, value: u64) -> Sample {
    let mut sample = closed();
    let record = record_of(&sample, b"moved");
    sample.set_word(record.at + field, value);
    seal(&mut sample, StructureKind::Entry, record);
    sample
}

#[test]
fn a_record_that_does_not_fit_its_checksum() {
    let mut sample = closed();
    let record = record_of(&sample, b"moved");
    sample.bytes_mut(record.at + NameRecord::NAME, 1)[0] ^= 1;
    lost_its_name(Class::EntryUnsound, &sample, b"moved");
}

/// Repair marked the name as removed, which did not mend the damage.
#[test]
fn a_record_with_another_names_hash() {
    let mut sample = closed();
    let place = record_of(&sample, b"moved");
    let mut record: NameRecord = sample.read(place.at);
    record.name_hash ^= 1;
    let from = place.at - sample.geometry.meta_at;
    let at = LogPosition::new(from / BLOCK_BYTES * SLOTS_PER_BLOCK, from % BLOCK_BYTES);
    let owner = LogOwner {
        slot: place.number,
        generation: IdentityWord(sample.word(sample.geometry.slot_at(place.number))).generation(),
    };
    let sealed = record.sealed(b"moved", at, owner);
    let bytes = sample.bytes_mut(place.at, NameRecord::NAME);
    bytes.copy_from_slice(sealed.as_bytes());
    lost_its_name(Class::EntryUnsound, &sample, b"moved");
}

#[test]
fn a_record_of_a_file_of_no_kind() {
    let target = closed().word(record_of(&closed(), b"moved").at + NameRecord::TARGET);
    let sample = set_in_moved(NameRecord::TARGET, target | 0xFF << 56);
    lost_its_name(Class::EntryUnsound, &sample, b"moved");
}

#[test]
fn a_record_with_a_name_that_no_file_may_have() {
    let mut sample = closed();
    let record = record_of(&sample, b"moved");
    sample
        .bytes_mut(record.at + NameRecord::NAME, 5)
        .copy_from_slice(b"mo/ed");
    seal(&mut sample, StructureKind::Entry, record);
    lost_its_name(Class::EntryName, &sample, b"moved");
}

#[test]
fn a_record_whose_cookie_does_not_ascend() {
    let sample = set_in_moved(NameRecord::COOKIE, 1);
    lost_its_name(Class::Cookies, &sample, b"moved");
}

#[test]
fn a_record_of_a_free_inode() {
    let mut sample = closed();
    let inodes = sample.structures(StructureKind::Inode);
    let file = target_of(&sample, b"pipe");
    let inode = *inodes
        .iter()
        .find(|inode| inode.number == file)
        .expect("its inode");
    sample.bytes_mut(inode.at, inode.bytes).fill(0);
    let after = read_tree(&mended(Class::EntryToFree, &sample));
    assert_eq!(
        after.get(&b"/pipe"[..]),
        Some(&Content::Special(FileKind::Fifo as u8))
    );
}

/// The target of a removed name may have been reused for anything. The engine refused such a pool,
/// which the checker calls sound.
#[test]
fn a_removed_name_may_lead_anywhere() {
    let mut sample = closed();
    let structures = sample.structures(StructureKind::Entry);
    let gone = structures
        .iter()
        .find(|record| name_in(&sample, **record) == b"gone");
    let record = *gone.expect("the record by which it came");
    let kind = TargetWord(sample.word(record.at + NameRecord::TARGET)).kind();
    let beyond = TargetWord::new(sample.geometry.meta_slots() - 1, kind.expect("a kind"));
    sample.set_word(record.at + NameRecord::TARGET, beyond.0);
    seal(&mut sample, StructureKind::Entry, record);
    assert!(repaired(&sample.image).0.is_empty());
    judge(sample.image, false);
}

#[test]
fn a_block_of_records_without_its_head() {
    let mut sample = closed();
    let wide = target_of(&sample, b"wide");
    let blocks = sample.structures(StructureKind::Extent).into_iter();
    let own = |block: &Structure| sample.read::<LogExtentHead>(block.at).owner == wide;
    let block = blocks.clone().find(own).expect("its block");
    sample.bytes_mut(block.at, block.bytes).fill(0xA5);
    let after = read_tree(&mended(Class::LogUnsound, &sample));
    let file = target_of(&closed(), b"moved");
    assert!(after.contains_key(format!("/lost+found/#{file}").as_bytes()));
}

#[test]
fn a_cyclic_log() {
    let mut sample = closed();
    let block = sample.structures(StructureKind::Extent)[0];
    sample.set_word(block.at + LogExtentHead::NEXT, block.number);
    let after = mended(Class::LogLoop, &sample);
    assert_eq!(read_tree(&after), read_tree(&closed().image));
}

/// When repair cleared a reserved field, it also cleared the log's tail, and with it every name.
#[test]
fn a_reserved_field_of_a_directory() {
    let mut sample = closed();
    let wide = target_of(&sample, b"wide");
    let inodes = sample.structures(StructureKind::Inode);
    let inode = *inodes
        .iter()
        .find(|inode| inode.number == wide)
        .expect("it");
    sample.set_word(inode.at + Inode::PATTERN, 1);
    seal(&mut sample, StructureKind::Inode, inode);
    let after = mended(Class::Reserved, &sample);
    assert_eq!(read_tree(&after), read_tree(&closed().image));
}

#[test]
fn a_tail_that_is_not_in_the_log() {
    let mut sample = closed();
    let wide = target_of(&sample, b"wide");
    let tails = sample.structures(StructureKind::LogWord);
    let tail = *tails.iter().find(|tail| tail.number == wide).expect("it");
    for lost in [u64::MAX, 1 << 12 | 64] {
        sample.set_word(tail.at, lost);
        let after = mended(Class::LogUnsound, &sample);
        assert_eq!(read_tree(&after), read_tree(&closed().image));
    }
}

/// Recovery used its time for the directory, where the maximum is earlier, so the pool was damaged
/// when it was closed.
#[test]
fn a_record_later_than_directory_times_reach() {
    let mut samples = samples().iter();
    let is_open = |sample: &&Sample| sample.geometry.namespace == NamespaceKind::Tree;
    let mut sample = samples
        .rfind(is_open)
        .expect("one that was left by a crash")
        .clone();
    let record = record_of(&sample, b"moved");
    sample.set_word(record.at + NameRecord::TIME, i64::MAX as u64);
    seal(&mut sample, StructureKind::Entry, record);
    judge(sample.image, false);
}
