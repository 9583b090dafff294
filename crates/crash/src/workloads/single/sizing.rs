//! Cutting, extending, allocating ahead, punching holes, and blocks that come and go without bytes.

use super::{Class, FILE};

pub(super) const TRUNCATE: &[Class] = &[
    ("up", &[FILE, "append f 5 1001"], "truncate f 3000"),
    ("up-to-block", &[FILE, "append f 5 1001"], "truncate f 4096"),
    (
        "up-past-block",
        &[FILE, "append f 5 1001"],
        "truncate f 30000",
    ),
    ("up-aligned", &[FILE, "append f 5 4096"], "truncate f 8192"),
    ("up-far", &[FILE, "append f 5 1001"], "truncate f 300007"),
    ("up-from-nothing", &[FILE], "truncate f 5000"),
    (
        "up-over-old-tail",
        &[FILE, "append f 5 4000", "truncate f 100"],
        "truncate f 3000",
    ),
    (
        "up-over-cut-blocks",
        &[FILE, "append f 5 9000", "truncate f 100"],
        "truncate f 9000",
    ),
    (
        "up-over-preallocated",
        &[FILE, "append f 5 100", "fallocate f 1 0 20000"],
        "truncate f 9000",
    ),
    ("down", &[FILE, "append f 5 20000"], "truncate f 9001"),
    (
        "down-in-preallocated-hole",
        &[FILE, "truncate f 30000", "fallocate f 0 0 30000"],
        "truncate f 5000",
    ),
    (
        "down-by-byte",
        &[FILE, "append f 5 20000"],
        "truncate f 19999",
    ),
    (
        "down-in-block",
        &[FILE, "append f 5 20000"],
        "truncate f 19000",
    ),
    (
        "down-aligned",
        &[FILE, "append f 5 20000"],
        "truncate f 8192",
    ),
    (
        "down-from-aligned",
        &[FILE, "append f 5 8192"],
        "truncate f 4096",
    ),
    (
        "down-over-two-home-lines",
        &[FILE, "append f 5 50000"],
        "truncate f 20000",
    ),
    (
        "down-into-hole",
        &[FILE, "write f 40000 5 100"],
        "truncate f 20000",
    ),
    (
        "down-sparse",
        &[FILE, "append f 5 100", "write f 900000 5 9000"],
        "truncate f 902000",
    ),
    ("to-zero", &[FILE, "append f 5 20000"], "truncate f 0"),
    (
        "to-zero-from-hole",
        &[FILE, "truncate f 20000"],
        "truncate f 0",
    ),
    ("same", &[FILE, "append f 5 20000"], "truncate f 20000"),
    (
        "same-aligned",
        &[FILE, "append f 5 8192"],
        "truncate f 8192",
    ),
    ("same-empty", &[FILE], "truncate f 0"),
    (
        "preallocated",
        &[FILE, "fallocate f 1 0 30000"],
        "truncate f 0",
    ),
    (
        "same-with-preallocated",
        &[FILE, "append f 5 100", "fallocate f 1 0 30000"],
        "truncate f 100",
    ),
    (
        "open-file",
        &[FILE, "append f 5 20000", "open+rdwr 1 f 0"],
        "truncate-slot 1 9001",
    ),
    (
        "unlinked",
        &[FILE, "append f 5 20000", "open+rdwr 1 f 0", "unlink f"],
        "truncate-slot 1 9001",
    ),
    (
        "link",
        &[FILE, "append f 5 20000", "link f g"],
        "truncate g 9001",
    ),
    (
        "through-symlink",
        &[FILE, "append f 5 20000", "symlink f s"],
        "truncate s 9001",
    ),
    (
        "by-user-of-set-id",
        &[FILE, "append f 5 20000", "chmod f 6777"],
        "user: truncate f 9001",
    ),
];

pub(super) const FALLOCATE: &[Class] = &[
    ("first", &[FILE], "fallocate f 0 0 9000"),
    ("first-past-gap", &[FILE], "fallocate f 0 9000 9000"),
    (
        "growing",
        &[FILE, "append f 5 1001"],
        "fallocate f 0 500 9000",
    ),
    (
        "growing-in-block",
        &[FILE, "append f 5 1001"],
        "fallocate f 0 500 1000",
    ),
    (
        "growing-past-gap",
        &[FILE, "append f 5 1001"],
        "fallocate f 0 9000 5000",
    ),
    (
        "growing-over-old-tail",
        &[FILE, "append f 5 4000", "truncate f 100"],
        "fallocate f 0 0 3000",
    ),
    (
        "inside",
        &[FILE, "truncate f 20000"],
        "fallocate f 0 0 9000",
    ),
    (
        "inside-data",
        &[FILE, "append f 5 20000"],
        "fallocate f 0 100 9000",
    ),
    (
        "inside-data-and-hole",
        &[FILE, "append f 5 9000", "truncate f 30000"],
        "fallocate f 0 4096 16384",
    ),
    (
        "punched",
        &[FILE, "append f 5 20000", "fallocate f 3 4096 8192"],
        "fallocate f 0 0 20000",
    ),
    (
        "keeping-size",
        &[FILE, "append f 5 1001"],
        "fallocate f 1 0 20000",
    ),
    (
        "keeping-size-inside",
        &[FILE, "truncate f 20000"],
        "fallocate f 1 4096 4096",
    ),
    (
        "keeping-size-beyond",
        &[FILE, "append f 5 1001"],
        "fallocate f 1 40960 8192",
    ),
    ("keeping-size-first", &[FILE], "fallocate f 1 4096 8192"),
    (
        "keeping-size-again",
        &[FILE, "append f 5 1001", "fallocate f 1 0 20000"],
        "fallocate f 1 0 30000",
    ),
    (
        "growing-over-preallocated",
        &[FILE, "append f 5 1001", "fallocate f 1 0 20000"],
        "fallocate f 0 0 30000",
    ),
    ("many-blocks", &[FILE], "fallocate f 0 0 100000"),
    (
        "over-two-home-lines",
        &[FILE, "append f 5 100"],
        "fallocate f 0 30000 6000",
    ),
    (
        "open-file",
        &[FILE, "open+rdwr 1 f 0"],
        "fallocate-slot 1 0 0 9000",
    ),
    (
        "unlinked",
        &[FILE, "append f 5 1001", "open+rdwr 1 f 0", "unlink f"],
        "fallocate-slot 1 1 0 9000",
    ),
    (
        "by-user-of-set-id",
        &[FILE, "append f 5 100", "chmod f 6777"],
        "user: fallocate f 0 0 9000",
    ),
];

pub(super) const PUNCH: &[Class] = &[
    (
        "blocks",
        &[FILE, "append f 5 20000"],
        "fallocate f 3 4096 8192",
    ),
    (
        "unaligned",
        &[FILE, "append f 5 20000"],
        "fallocate f 3 3000 9001",
    ),
    (
        "in-block",
        &[FILE, "append f 5 20000"],
        "fallocate f 3 4100 99",
    ),
    (
        "first-block",
        &[FILE, "append f 5 20000"],
        "fallocate f 3 0 4096",
    ),
    (
        "last-block",
        &[FILE, "append f 5 20000"],
        "fallocate f 3 16384 4096",
    ),
    (
        "last-block-to-the-end",
        &[FILE, "append f 5 20000"],
        "fallocate f 3 16384 3616",
    ),
    (
        "to-the-end",
        &[FILE, "append f 5 20000"],
        "fallocate f 3 9000 90000",
    ),
    ("all", &[FILE, "append f 5 20000"], "fallocate f 3 0 20000"),
    (
        "over-two-home-lines",
        &[FILE, "append f 5 50000"],
        "fallocate f 3 20000 20000",
    ),
    (
        "hole",
        &[FILE, "truncate f 20000"],
        "fallocate f 3 4096 8192",
    ),
    (
        "data-and-hole",
        &[FILE, "append f 5 9000", "truncate f 30000"],
        "fallocate f 3 4000 20000",
    ),
    ("empty", &[FILE], "fallocate f 3 0 4096"),
    (
        "beyond-the-end",
        &[FILE, "append f 5 1001"],
        "fallocate f 3 8192 8192",
    ),
    (
        "preallocated",
        &[FILE, "fallocate f 0 0 20000"],
        "fallocate f 3 4000 9000",
    ),
    (
        "preallocated-beyond-the-end",
        &[FILE, "append f 5 1001", "fallocate f 1 0 20000"],
        "fallocate f 3 500 15000",
    ),
    (
        "open-file",
        &[FILE, "append f 5 20000", "open+rdwr 1 f 0"],
        "fallocate-slot 1 3 100 9000",
    ),
    (
        "by-user-of-set-id",
        &[FILE, "append f 5 9000", "chmod f 6777"],
        "user: fallocate f 3 0 5000",
    ),
];

pub(super) const BLOCKS: &[Class] = &[
    ("first", &[FILE, "truncate f 40000"], "blocks f 1 3"),
    (
        "behind-data",
        &[FILE, "append f 5 9000", "truncate f 90000"],
        "blocks f 10 9",
    ),
    (
        "right-behind-data",
        &[FILE, "append f 5 9000", "truncate f 90000"],
        "blocks f 3 2",
    ),
    (
        "in-place-of-cut",
        &[FILE, "append f 5 9000", "truncate f 0", "truncate f 90000"],
        "blocks f 3 2",
    ),
    (
        "between-data",
        &[FILE, "append f 5 5000", "write f 50000 6 100"],
        "blocks f 4 3",
    ),
    (
        "in-place-of-punched",
        &[FILE, "append f 5 50000", "fallocate f 3 8192 16384"],
        "blocks f 2 4",
    ),
    (
        "far-from-data",
        &[FILE, "append f 5 100", "truncate f 9000000"],
        "blocks f 2000 1",
    ),
];
