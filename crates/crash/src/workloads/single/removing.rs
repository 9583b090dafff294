//! Removing names.

use super::{Class, FILE};

pub(super) const UNLINK: &[Class] = &[
    ("device", &[FILE, "mknod c char-device 600 259"], "unlink c"),
    ("empty", &[FILE], "unlink f"),
    ("last", &[FILE, "append f 5 9000"], "unlink f"),
    ("sparse", &[FILE, "write f 900000 5 9000"], "unlink f"),
    ("preallocated", &[FILE, "fallocate f 1 0 20000"], "unlink f"),
    (
        "one-of-two",
        &[FILE, "link f g", "append f 5 100"],
        "unlink f",
    ),
    (
        "one-of-three-across",
        &[FILE, "mkdir d 755", "link f d/f", "link f g"],
        "unlink d/f",
    ),
    (
        "from-directory",
        &["mkdir d 755", "create d/f 644 -", "create d/g 644 -"],
        "unlink d/f",
    ),
    ("two-slots", &["create %(6dx100) 644 -"], "unlink %(6dx100)"),
    ("long-name", &["create %(6cx255) 644 -"], "unlink %(6cx255)"),
    ("symlink", &["symlink f s"], "unlink s"),
    ("long-symlink", &["symlink %(74x3000) s"], "unlink s"),
    ("open", &[FILE, "append f 5 5000", "open 1 f 0"], "unlink f"),
    (
        "open-twice",
        &[FILE, "append f 5 5000", "open 1 f 0", "open+rdwr 2 f 0"],
        "unlink f",
    ),
    (
        "open-one-of-two",
        &[FILE, "link f g", "open 1 f 0"],
        "unlink f",
    ),
    (
        "in-third-extent",
        &["mkdir d 755", FILE, "518* link f d/#"],
        "unlink d/518",
    ),
    (
        "in-earlier-extent",
        &["mkdir d 755", FILE, "518* link f d/#"],
        "unlink d/300",
    ),
    (
        "by-user",
        &["mkdir d 777", "user: create d/f 644 -"],
        "user: unlink d/f",
    ),
    (
        "after-opening",
        &[FILE, "append f 5 9000", "close-pool", "open-pool"],
        "unlink f",
    ),
];

pub(super) const RMDIR: &[Class] = &[
    ("", &["mkdir d 755"], "rmdir d"),
    (
        "used",
        &["mkdir d 755", "create d/f 644 -", "unlink d/f"],
        "rmdir d",
    ),
    (
        "used-and-recycled",
        &["mkdir d 755", "create d/f 644 -", "unlink d/f", "maintain"],
        "rmdir d",
    ),
    (
        "in-directory",
        &["mkdir d 755", "mkdir d/e 755"],
        "rmdir d/e",
    ),
    ("long-name", &["mkdir %(6cx255) 755"], "rmdir %(6cx255)"),
    ("open", &["mkdir d 755", "open+directory 1 d 0"], "rmdir d"),
    (
        "of-many-extents",
        &["mkdir d 755", FILE, "520* link f d/#", "520* unlink d/#"],
        "rmdir d",
    ),
];
