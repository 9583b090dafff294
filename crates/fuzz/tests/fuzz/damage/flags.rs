//! Flags of inodes of pools that the engine made: the engine and the checker agree on what is
//! sound, and repair clears what is not.

use super::regressions::{CLOSED, OPEN, assert_met, assert_refused, named, sample, set};
use crate::support::{plan_of, strictly, write};
use vellum_check::{Class, check};
use vellum_fuzz::{Sample, StructureKind, judge};
use vellum_layout::{IdentityWord, Inode};

/// Gives the inode of a name flags and a project id.
fn flag(sample: &mut Sample, name: &[u8], flags: u64, project: u32) {
    let (inode, _) = named(sample, name);
    let identity = IdentityWord(sample.word(inode.at + Inode::IDENTITY));
    let flagged = identity.with_flags(flags).0;
    let word = Inode::project_word(sample.word(inode.at + Inode::PROJECT), project);
    sample.set_word(inode.at + Inode::PROJECT, word);
    set(
        sample,
        StructureKind::Inode,
        inode,
        Inode::IDENTITY,
        flagged,
    );
}

#[test]
fn flags_and_projects_that_users_set_are_sound() {
    for which in [CLOSED, OPEN] {
        for flags in [0x10, 0x20, 0x40, 0x80, 0xF0] {
            let mut sample = sample(which);
            flag(&mut sample, b"file", flags, u32::MAX);
            assert!(check(&sample.image, Default::default()).is_sound());
            judge(sample.image, false);
        }
    }
}

#[test]
fn flags_that_a_kind_cannot_have_are_damage() {
    let mut closed = sample(CLOSED);
    flag(&mut closed, b"file", IdentityWord::PROJECT_INHERIT, 7);
    assert_met(&closed, b"/", b"file");
    let mut open = sample(OPEN);
    flag(&mut open, b"file", IdentityWord::PROJECT_INHERIT, 7);
    assert_refused(&open);
    for mut image in [closed.image, open.image] {
        assert!(check(&image, Default::default()).has(Class::Reserved));
        write(&plan_of(&image), &mut image);
        assert!(strictly(&image).is_sound());
        judge(image, false);
    }
}
