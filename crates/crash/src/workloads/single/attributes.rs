//! Changing attributes.

use super::{Class, FILE};

pub(super) const CHMOD: &[Class] = &[
    ("", &[FILE], "chmod f 600"),
    ("same", &[FILE], "chmod f 644"),
    ("set-id", &[FILE], "chmod f 6755"),
    (
        "beside-record-of-earlier-opening",
        &[
            FILE,
            "chmod f 600",
            "create g 644 -",
            "close-pool",
            "open-pool",
            "append f 5 100",
        ],
        "chmod g 640",
    ),
    ("directory", &["mkdir d 755"], "chmod d 1777"),
    (
        "used-directory",
        &["mkdir d 755", "create d/f 644 -", "unlink d/f"],
        "chmod d 2711",
    ),
    ("root", &[FILE], "chmod . 711"),
    ("through-symlink", &[FILE, "symlink f s"], "chmod s 600"),
    ("link", &[FILE, "link f g"], "chmod g 600"),
    ("after-link", &[FILE, "link f g"], "chmod f 600"),
    (
        "by-user",
        &["mkdir d 777", "user: create d/f 644 -"],
        "user: chmod d/f 600",
    ),
];

pub(super) const CHOWN: &[Class] = &[
    ("", &[FILE], "chown f 5 6 follow"),
    ("user-only", &[FILE], "chown f 5 - follow"),
    ("group-only", &[FILE], "chown f - 6 follow"),
    ("nothing", &[FILE], "chown f - - follow"),
    ("same", &[FILE], "chown f 0 0 follow"),
    ("set-id", &[FILE, "chmod f 6755"], "chown f 5 - follow"),
    (
        "set-gid-without-execute",
        &[FILE, "chmod f 2644"],
        "chown f 5 6 follow",
    ),
    (
        "directory",
        &["mkdir d 755", "chmod d 6755"],
        "chown d 5 6 follow",
    ),
    ("root", &[FILE], "chown . 5 6 follow"),
    ("symlink", &["symlink f s"], "chown s 5 6 -"),
    (
        "through-symlink",
        &[FILE, "symlink f s"],
        "chown s 5 6 follow",
    ),
];

pub(super) const UTIMENS: &[Class] = &[
    ("", &[FILE], "utimens f 1000 2000 follow"),
    ("now", &[FILE], "utimens f now now follow"),
    ("before-1970", &[FILE], "utimens f -1000 -2000 follow"),
    ("nothing", &[FILE], "utimens f - - follow"),
    ("access-only", &[FILE], "utimens f 1000 - follow"),
    ("modification-only", &[FILE], "utimens f - 2000 follow"),
    ("access-now", &[FILE], "utimens f now 2000 follow"),
    (
        "directory",
        &["mkdir d 755", "create d/f 644 -"],
        "utimens d 1000 2000 -",
    ),
    (
        "directory-with-removals",
        &["mkdir d 755", "create d/f 644 -", "unlink d/f"],
        "utimens d 1000 2000 -",
    ),
    ("root", &[FILE], "utimens . 1000 2000 -"),
    ("symlink", &["symlink f s"], "utimens s 1000 2000 -"),
    (
        "through-symlink",
        &[FILE, "symlink f s"],
        "utimens s 1000 2000 follow",
    ),
    (
        "by-user",
        &["mkdir d 777", "user: create d/f 666 -"],
        "user: utimens d/f now now follow",
    ),
];
