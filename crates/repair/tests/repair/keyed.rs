//! Shared by the tests of cuckoo and level tables.

use vellum_check::Class;
use vellum_layout::{KeyedWord, MappingKind};

use crate::support::{assert_kept, fill_blocks, read_tree, repaired_of};
use crate::testimage::{Sample, keyed_sample};

/// Damages a closed pool with such a table and mends it; returns it before and after.
#[track_caller]
pub(crate) fn mended(
    mapping: MappingKind,
    class: Class,
    damage: impl Fn(&mut Sample),
) -> (Vec<u8>, Vec<u8>) {
    let mut sample = keyed_sample(mapping);
    sample.image.close();
    let geometry = sample.image.geometry;
    fill_blocks(&mut sample.image.bytes, &geometry);
    damage(&mut sample);
    let before = sample.image.bytes;
    let (plan, after) = repaired_of(class, &before);
    assert_kept(&before, &after, &plan);
    (before, after)
}

#[track_caller]
pub(crate) fn mended_in_place(mapping: MappingKind, class: Class, damage: impl Fn(&mut Sample)) {
    let (before, after) = mended(mapping, class, damage);
    assert_eq!(read_tree(&before), read_tree(&after));
}

/// Two entries name a block: both files keep their bytes, and no entry counts the copy as
/// following.
#[track_caller]
pub(crate) fn a_block_of_two_files_is_copied(mapping: MappingKind) {
    mended_in_place(mapping, Class::MapTwice, |s| {
        let (at, word, _) = s.image.entry_of(s.other as u32, 0);
        let block = s.image.entry_of(3, 1).2.block();
        s.image
            .set_word(at + 8, KeyedWord::new(word.0, block, 1, 1).0);
    });
    mended_in_place(mapping, Class::MapTwice, |s| {
        let (first_at, first, place) = s.image.entry_of(3, 0);
        let block = place.block();
        let counting = KeyedWord::new(first.0, block, 2, 0);
        s.image.set_word(first_at + 8, counting.0);
        let (at, word, _) = s.image.entry_of(3, 2);
        s.image
            .set_word(at + 8, KeyedWord::new(word.0, block, 0, 2).0);
    });
}

/// The file with the written block keeps the bytes.
#[track_caller]
pub(crate) fn a_written_block_takes_precedence_over_a_reserved_one(mapping: MappingKind) {
    mended_in_place(mapping, Class::MapTwice, |s| {
        let block = s.image.entry_of(s.other as u32, 0).2.block();
        let (at, word, _) = s.image.entry_of(3, 7);
        s.image
            .set_word(at + 8, KeyedWord::new(word.0, block, 0, 0).0);
    });
}
