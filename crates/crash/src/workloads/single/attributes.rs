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

/// Several in one call: the size first, by itself, then all others by one record.
pub(super) const TOGETHER: &[Class] = &[
    (
        "all",
        &[FILE, "append f 5 9000"],
        "together: truncate f 5000; chown f 5 6 follow; chmod f 600; utimens f 1000 2000 follow",
    ),
    (
        "all-growing",
        &[FILE, "append f 5 5000"],
        "together: truncate f 9000; chown f 5 6 follow; chmod f 600; utimens f now now follow",
    ),
    (
        "all-but-size",
        &[FILE, "append f 5 100"],
        "together: chown f 5 6 follow; chmod f 600; utimens f 1000 2000 follow",
    ),
    (
        "owner-and-mode-of-set-id",
        &[FILE, "chmod f 6755"],
        "together: chown f 5 6 follow; chmod f 640",
    ),
    (
        "size-and-mode",
        &[FILE, "append f 5 20000"],
        "together: truncate f 0; chmod f 600",
    ),
    (
        "size-and-times",
        &[FILE, "append f 5 9000"],
        "together: truncate f 100; utimens f - 2000 follow",
    ),
    (
        "size-and-owner-of-preallocated",
        &[FILE, "fallocate f 1 0 20000"],
        "together: truncate f 5000; chown f - 6 follow",
    ),
    (
        "mode-and-times-of-directory",
        &["mkdir d 755", "create d/f 644 -", "unlink d/f"],
        "together: chmod d 1777; utimens d 1000 2000 follow",
    ),
    (
        "owner-and-times-of-symlink",
        &["symlink f s"],
        "together: chown s 5 6 -; utimens s 1000 2000 -",
    ),
];
