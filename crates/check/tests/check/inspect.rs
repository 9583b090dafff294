//! The text shown for single structures.

use crate::testimage::{closed, sample};
use vellum_check::inspect::{self, InspectError};
use vellum_layout::JournalPair;

#[track_caller]
fn assert_shows(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn structures_are_shown() {
    let s = closed();
    let bytes = &s.image.bytes;
    assert_shows(
        &inspect::superblock(bytes).unwrap(),
        &["09090909-0909-", "\"test\"", "closed cleanly", "1048576"],
    );
    assert_shows(
        &inspect::inode(bytes, s.file).unwrap(),
        &["live", "File", "0600", "segment 0, id 3", "fits"],
    );
    assert_shows(
        &inspect::inode(bytes, s.short).unwrap(),
        &["Symlink", "dir/file 3"],
    );
    assert_shows(
        &inspect::inode(bytes, s.file).unwrap(),
        &[
            "access list, capability\n",
            &format!("slots {} to {}\n", s.labels, s.labels + 2),
            "system.posix_acl_access, 44 bytes\n",
            "user.note, 250 bytes\n",
        ],
    );
    let text = inspect::inode(bytes, s.dir).unwrap();
    assert_eq!(text.matches("\nattributes ").count(), 3, "{text}");
    assert_shows(
        &inspect::directory(bytes, s.dir).unwrap(),
        &["Small", "Large", "\"file 19\"", "\"hard link\""],
    );
    assert_shows(
        &inspect::directory(bytes, 1).unwrap(),
        &["\"gone\" cookie 7, dead"],
    );
    assert_shows(
        &inspect::entry(bytes, s.file_entry).unwrap(),
        &["\"file\"", "alive"],
    );
    assert_shows(
        &inspect::block(bytes, 2).unwrap(),
        &["mapped", "logical block", "home line"],
    );
    assert_shows(&inspect::block(bytes, 100).unwrap(), &["free"]);
    assert_eq!(
        inspect::journals(bytes).unwrap(),
        "every journal is retired\n"
    );
}

#[test]
fn unsound_attributes_are_shown_as_far_as_they_are_sound() {
    let mut s = sample();
    let at = s.image.at(s.large[1]) as usize;
    s.image.bytes[at + 20] ^= 1;
    let what = format!("what lies at slot {} does not fit", s.large[1]);
    let text = inspect::inode(&s.image.bytes, s.dir).unwrap();
    assert_shows(&text, &["default list\n", &what]);
    assert!(!text.contains("user.large"), "{text}");
}

#[test]
fn journals_are_shown() {
    let mut s = sample();
    let at = s.image.at(s.file);
    s.image.journal(1, &[JournalPair::store(at, 5)]);
    assert_shows(
        &inspect::journals(&s.image.bytes).unwrap(),
        &["thread slot 1", "committed", "store"],
    );
}

#[test]
fn missing_structures_are_reported() {
    let s = closed();
    let bytes = &s.image.bytes;
    assert!(matches!(
        inspect::inode(bytes, 1 << 40),
        Err(InspectError::NoSuch { .. })
    ));
    assert!(matches!(
        inspect::block(bytes, 1 << 40),
        Err(InspectError::NoSuch { .. })
    ));
    assert_eq!(
        inspect::directory(bytes, s.file),
        Err(InspectError::NoDirectory(s.file))
    );
    assert!(matches!(
        inspect::superblock(&vec![0; 5000]),
        Err(InspectError::NotAPool(_))
    ));
}
