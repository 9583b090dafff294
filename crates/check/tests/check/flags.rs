//! Flags and project ids of inodes: those that there can be are sound, others are found.

use crate::damage::damaged_only;
use crate::testimage::found::checked;
use crate::testimage::{Sample, closed, sample};
use vellum_check::{Class, inspect};
use vellum_layout::IdentityWord;

fn set(s: &mut Sample, ino: u64, flags: u64, project: u32) {
    s.image.edit_inode(ino, |inode| {
        inode.identity = IdentityWord(inode.identity).with_flags(flags).0;
        inode.project = project;
    });
}

#[test]
fn every_flag_of_the_kind_and_every_project_is_sound() {
    const OF_FILE: u64 = IdentityWord::FLAGS & !IdentityWord::PROJECT_INHERIT;
    const OF_LINK: u64 = IdentityWord::NO_DUMP | IdentityWord::NO_ATIME;
    for mut s in [sample(), closed()] {
        let (dir, file, link) = (s.dir, s.file, s.short);
        set(&mut s, dir, IdentityWord::FLAGS, u32::MAX);
        set(&mut s, file, OF_FILE, 1);
        set(&mut s, link, OF_LINK, 7);
        let report = checked(&s.image.bytes);
        assert_eq!(report.findings, [], "{report}");
        let text = inspect::inode(&s.image.bytes, dir).unwrap();
        let all = "immutable, append only, no dump, no atime, project inherit";
        assert!(text.contains(all), "{text}");
        assert!(text.contains("4294967295"), "{text}");
    }
}

#[test]
fn flags_of_other_kinds_are_found() {
    damaged_only(Class::Reserved, "inode 3", |s| {
        set(s, 3, IdentityWord::PROJECT_INHERIT, 0);
    });
    let link = sample().short;
    for flag in [IdentityWord::IMMUTABLE, IdentityWord::APPEND_ONLY] {
        damaged_only(Class::Reserved, &format!("inode {link}"), |s| {
            set(s, link, flag, 0);
        });
    }
}
