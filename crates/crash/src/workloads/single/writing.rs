//! Writing and appending.

use super::{Class, FILE};

/// Two home lines of the mapping table hold sixteen blocks: the border is at 32 KiB.
pub(super) const WRITE: &[Class] = &[
    ("nothing", &[FILE, "append f 5 10000"], "write f 4096 7 0"),
    ("over-word", &[FILE, "append f 5 10000"], "write f 4096 7 8"),
    ("over-byte", &[FILE, "append f 5 10000"], "write f 4099 7 1"),
    (
        "over-block",
        &[FILE, "append f 5 10000"],
        "write f 4096 7 4096",
    ),
    (
        "over-unaligned",
        &[FILE, "append f 5 10000"],
        "write f 4001 7 333",
    ),
    (
        "over-the-end",
        &[FILE, "append f 5 10000"],
        "write f 9000 7 5000",
    ),
    (
        "up-to-the-end",
        &[FILE, "append f 5 10000"],
        "write f 9000 7 1000",
    ),
    (
        "over-the-end-in-block",
        &[FILE, "append f 5 9000"],
        "write f 8900 7 500",
    ),
    (
        "over-many-blocks",
        &[FILE, "append f 5 45000"],
        "write f 100 7 40000",
    ),
    (
        "over-two-home-lines",
        &[FILE, "append f 5 45000"],
        "write f 30000 7 6000",
    ),
    (
        "over-zeros",
        &[FILE, "append f 0 10000"],
        "write f 100 7 5000",
    ),
    (
        "at-the-end",
        &[FILE, "append f 5 5000"],
        "write f 5000 7 5000",
    ),
    ("first", &[FILE], "write f 0 7 5000"),
    (
        "into-hole",
        &[FILE, "truncate f 20000"],
        "write f 5000 7 100",
    ),
    (
        "into-hole-whole-block",
        &[FILE, "truncate f 20000"],
        "write f 4096 7 4096",
    ),
    (
        "into-last-hole",
        &[FILE, "truncate f 20000"],
        "write f 16500 7 100",
    ),
    (
        "into-holes",
        &[FILE, "truncate f 50000"],
        "write f 5000 7 40000",
    ),
    (
        "into-holes-of-two-home-lines",
        &[FILE, "truncate f 50000"],
        "write f 30000 7 6000",
    ),
    (
        "into-hole-and-data",
        &[FILE, "append f 5 4096", "truncate f 20000"],
        "write f 4000 7 5000",
    ),
    (
        "into-data-and-hole",
        &[FILE, "truncate f 4096", "append f 5 8192"],
        "write f 4000 7 5000",
    ),
    (
        "into-hole-and-over-the-end",
        &[FILE, "truncate f 6000"],
        "write f 3000 7 9000",
    ),
    (
        "into-punched",
        &[FILE, "append f 5 20000", "fallocate f 3 4096 8192"],
        "write f 5000 7 100",
    ),
    (
        "past-gap",
        &[FILE, "append f 5 10000"],
        "write f 30000 7 100",
    ),
    (
        "past-gap-in-block",
        &[FILE, "append f 5 100"],
        "write f 300 7 100",
    ),
    (
        "past-gap-in-next-block",
        &[FILE, "append f 5 100"],
        "write f 5000 7 100",
    ),
    (
        "past-gap-to-block",
        &[FILE, "append f 5 100"],
        "write f 4096 7 4096",
    ),
    (
        "past-gap-in-next-home-line",
        &[FILE, "append f 5 100"],
        "write f 40000 7 100",
    ),
    (
        "past-gap-far",
        &[FILE, "append f 5 100"],
        "write f 300007 7 100",
    ),
    ("first-past-gap", &[FILE], "write f 9001 7 100"),
    (
        "over-old-tail",
        &[FILE, "append f 5 4000", "truncate f 100"],
        "write f 200 7 100",
    ),
    (
        "past-gap-over-old-tail",
        &[FILE, "append f 5 4000", "truncate f 100"],
        "write f 9000 7 100",
    ),
    (
        "into-preallocated",
        &[FILE, "fallocate f 0 0 20000"],
        "write f 4100 7 5000",
    ),
    (
        "past-gap-into-preallocated",
        &[FILE, "append f 5 100", "fallocate f 1 0 20000"],
        "write f 9000 7 100",
    ),
    (
        "over-the-end-into-preallocated",
        &[FILE, "append f 5 5000", "fallocate f 1 0 9000"],
        "write f 4000 7 9000",
    ),
    (
        "to-open-file",
        &[FILE, "open+rdwr 1 f 0"],
        "write-slot 1 0 7 5000",
    ),
    (
        "to-append-file",
        &[FILE, "append f 5 100", "open+wronly+append 1 f 0"],
        "write-slot 1 0 7 5000",
    ),
    (
        "to-unlinked",
        &[FILE, "append f 5 5000", "open+wronly 1 f 0", "unlink f"],
        "write-slot 1 5000 6 5000",
    ),
    (
        "to-renamed",
        &[
            "mkdir d 755",
            FILE,
            "append f 5 5000",
            "open+wronly 1 f 0",
            "rename f d/g 0",
        ],
        "write-slot 1 3000 6 5000",
    ),
    (
        "to-link",
        &[FILE, "append f 5 100", "link f g"],
        "write g 50 7 100",
    ),
    (
        "through-symlink",
        &[FILE, "append f 5 100", "symlink f s"],
        "write s 50 7 100",
    ),
    (
        "by-user-to-set-id",
        &[FILE, "append f 5 5000", "chmod f 6777"],
        "user: write f 4000 7 500",
    ),
    (
        "after-opening",
        &[FILE, "append f 5 9000", "close-pool", "open-pool"],
        "write f 5000 7 9000",
    ),
];

pub(super) const APPEND: &[Class] = &[
    ("nothing", &[FILE, "append f 5 100"], "append f 7 0"),
    ("first", &[FILE], "append f 7 100"),
    ("first-block", &[FILE], "append f 7 4096"),
    ("byte", &[FILE, "append f 5 7"], "append f 7 1"),
    ("unaligned", &[FILE, "append f 5 1001"], "append f 7 777"),
    ("filling-block", &[FILE, "append f 5 4000"], "append f 7 96"),
    (
        "to-next-block",
        &[FILE, "append f 5 4000"],
        "append f 7 500",
    ),
    ("aligned", &[FILE, "append f 5 8192"], "append f 7 4096"),
    (
        "many-blocks",
        &[FILE, "append f 5 10000"],
        "append f 7 41000",
    ),
    (
        "over-two-home-lines",
        &[FILE, "append f 5 30000"],
        "append f 7 6000",
    ),
    ("zeros", &[FILE, "append f 5 1001"], "append f 0 777"),
    ("behind-hole", &[FILE, "truncate f 20001"], "append f 7 777"),
    (
        "over-old-tail",
        &[FILE, "append f 5 4000", "truncate f 100"],
        "append f 7 777",
    ),
    (
        "behind-cut-blocks",
        &[FILE, "append f 5 9000", "truncate f 100"],
        "append f 7 9000",
    ),
    (
        "into-preallocated",
        &[FILE, "append f 5 100", "fallocate f 1 0 20000"],
        "append f 7 9000",
    ),
    (
        "over-preallocated",
        &[FILE, "append f 5 100", "fallocate f 1 0 5000"],
        "append f 7 15000",
    ),
    (
        "into-freed-blocks",
        &[
            FILE,
            "create g 644 -",
            "append g 5 600000",
            "unlink g",
            "maintain",
        ],
        "append f 7 9000",
    ),
    (
        "by-user-to-set-id",
        &[FILE, "append f 5 50", "chmod f 6777"],
        "user: append f 7 500",
    ),
    (
        "after-opening",
        &[FILE, "append f 5 9000", "close-pool", "open-pool"],
        "append f 7 777",
    ),
    (
        "after-recovery",
        &[FILE, "append f 5 9000", "fallocate f 1 0 20000", "recover"],
        "append f 7 9000",
    ),
];
