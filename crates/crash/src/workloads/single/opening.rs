//! Opening, closing, reading and syncing.

use super::{Class, FILE};

pub(super) const OPEN: &[Class] = &[
    ("", &[FILE, "append f 5 9000"], "open 1 f 0"),
    (
        "for-writing",
        &[FILE, "append f 5 9000"],
        "open+wronly 1 f 0",
    ),
    (
        "for-appending",
        &[FILE, "append f 5 9000"],
        "open+rdwr+append 1 f 0",
    ),
    (
        "truncating",
        &[FILE, "append f 5 20000"],
        "open+wronly+trunc 1 f 0",
    ),
    ("truncating-empty", &[FILE], "open+rdwr+trunc 1 f 0"),
    (
        "truncating-preallocated",
        &[FILE, "fallocate f 1 0 9000"],
        "open+rdwr+trunc 1 f 0",
    ),
    ("creating", &[FILE], "open+rdwr+creat 1 g 640"),
    (
        "creating-exclusively",
        &[FILE],
        "open+wronly+creat+excl 1 g 640",
    ),
    (
        "creating-existing",
        &[FILE, "append f 5 100"],
        "open+rdwr+creat 1 f 640",
    ),
    (
        "creating-and-truncating",
        &[FILE],
        "open+rdwr+creat+trunc 1 g 640",
    ),
    (
        "creating-and-truncating-existing",
        &[FILE, "append f 5 9000"],
        "open+rdwr+creat+trunc 1 f 640",
    ),
    (
        "creating-through-symlink",
        &["symlink f s"],
        "open+rdwr+creat 1 s 640",
    ),
    (
        "truncating-through-symlink",
        &[FILE, "append f 5 9000", "symlink f s"],
        "open+rdwr+trunc 1 s 0",
    ),
    ("directory", &["mkdir d 755"], "open+directory 1 d 0"),
    (
        "instead-of-unlinked",
        &[
            FILE,
            "append f 5 9000",
            "open 1 f 0",
            "unlink f",
            "create g 644 -",
        ],
        "open 1 g 0",
    ),
    (
        "truncating-by-user",
        &[FILE, "append f 5 9000", "chmod f 6777"],
        "user: open+rdwr+trunc 1 f 0",
    ),
];

pub(super) const CLOSE: &[Class] = &[
    ("", &[FILE, "append f 5 5000", "open 1 f 0"], "close-slot 1"),
    (
        "unlinked",
        &[FILE, "append f 5 5000", "open 1 f 0", "unlink f"],
        "close-slot 1",
    ),
    (
        "unlinked-and-grown",
        &[FILE, "open+rdwr 1 f 0", "unlink f", "write-slot 1 0 5 9000"],
        "close-slot 1",
    ),
    (
        "unlinked-open-twice",
        &[
            FILE,
            "append f 5 5000",
            "open 1 f 0",
            "open 2 f 0",
            "unlink f",
        ],
        "close-slot 1",
    ),
    (
        "replaced",
        &[FILE, "create g 644 -", "open 1 g 0", "rename f g 0"],
        "close-slot 1",
    ),
    (
        "removed-directory",
        &["mkdir d 755", "open+directory 1 d 0", "rmdir d"],
        "close-slot 1",
    ),
];

pub(super) const READ: &[Class] = &[
    ("", &[FILE, "append f 5 9000"], "read f 100 5000"),
    ("all", &[FILE, "append f 5 50000"], "read f 0 50000"),
    ("hole", &[FILE, "truncate f 9000"], "read f 100 5000"),
    (
        "preallocated",
        &[FILE, "fallocate f 0 0 9000"],
        "read f 100 5000",
    ),
    ("at-the-end", &[FILE, "append f 5 9000"], "read f 9000 100"),
    (
        "open-file",
        &[FILE, "append f 5 9000", "open 1 f 0"],
        "read-slot 1 0 9000",
    ),
    (
        "leaving-access-time",
        &[FILE, "append f 5 9000", "open+noatime 1 f 0"],
        "read-slot 1 0 9000",
    ),
    (
        "unlinked",
        &[FILE, "append f 5 9000", "open 1 f 0", "unlink f"],
        "read-slot 1 0 9000",
    ),
    ("directory", &["mkdir d 755", "mkdir d/e 755"], "readdir d"),
    (
        "open-directory",
        &["mkdir d 755", "create d/f 644 -", "open+directory 1 d 0"],
        "readdir-slot 1",
    ),
    ("symlink", &["symlink nowhere s"], "readlink s"),
    (
        "data-position",
        &[FILE, "write f 9000 5 100"],
        "seek-data f 0",
    ),
    ("hole-position", &[FILE, "append f 5 9000"], "seek-hole f 0"),
    ("attributes", &[FILE, "append f 5 9000"], "stat f follow"),
    (
        "attributes-of-open-file",
        &[FILE, "open 1 f 0"],
        "stat-slot 1",
    ),
    ("times", &[FILE], "times f"),
    ("permissions", &[FILE], "access f 6"),
];

pub(super) const SYNC: &[Class] = &[
    (
        "",
        &[FILE, "append f 5 9000", "link f g", "read f 0 100"],
        "sync",
    ),
    ("file", &[FILE, "append f 5 9000"], "fsync f"),
    (
        "open-file",
        &[FILE, "open+rdwr 1 f 0", "write-slot 1 0 5 9000"],
        "fsync-slot 1",
    ),
];
