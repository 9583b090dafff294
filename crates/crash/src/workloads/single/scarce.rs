//! Operations where something runs out: data blocks (a pool has 176), home lines, metadata slots,
//! inodes of a chunk, room in the arena.

use super::{Class, FILE};

/// Takes all metadata blocks but few slots.
const BLOCKS: &str = "57* symlink %(74x4000) s#";
/// Takes the slots that [`BLOCKS`] leaves.
const SLOTS: &str = "5* create f# 644 -";
const OTHER: &str = "create g 644 -";
/// Takes every data block.
const DATA: &str = "append g 5 720896";
/// Takes all data blocks but one.
const MOST_DATA: &str = "append g 5 716800";
/// Takes so many data blocks that many of a further file are outside their home lines.
const MUCH_DATA: &str = "append g 5 600000";

pub(super) const CREATE: &[Class] = &[
    (
        "first-of-last-group",
        &["27* create f# 644 -"],
        "create last 644 -",
    ),
    (
        "second-of-last-group",
        &["28* create f# 644 -"],
        "create last 644 -",
    ),
    (
        "in-new-chunk",
        &["31* create f# 644 -"],
        "create last 644 -",
    ),
    (
        "last-slots",
        &[BLOCKS, "4* create f# 644 -"],
        "create last 644 -",
    ),
    ("enospc", &[BLOCKS, SLOTS], "full: create more 644 -"),
    (
        "making-room",
        &[BLOCKS, SLOTS, "unlink s1"],
        "create more 644 -",
    ),
    (
        "making-room-of-slots",
        &[BLOCKS, SLOTS, "unlink f1", "unlink f2"],
        "create more 644 -",
    ),
];

pub(super) const MKDIR: &[Class] = &[
    ("enospc", &[BLOCKS, SLOTS], "full: mkdir d 755"),
    ("making-room", &[BLOCKS, SLOTS, "unlink s1"], "mkdir d 755"),
];

pub(super) const MKNOD: &[Class] = &[
    (
        "enospc",
        &[BLOCKS, SLOTS],
        "full: mknod c char-device 600 259",
    ),
    (
        "making-room",
        &[BLOCKS, SLOTS, "unlink s1"],
        "mknod p fifo 644 0",
    ),
];

pub(super) const SYMLINK: &[Class] = &[
    (
        "last-block",
        &["56* symlink %(74x4000) s#"],
        "symlink %(74x4000) t",
    ),
    ("enospc", &[BLOCKS], "full: symlink %(74x4000) t"),
    ("enospc-short", &[BLOCKS, SLOTS], "full: symlink nowhere t"),
    (
        "making-room",
        &[BLOCKS, "unlink s1"],
        "symlink %(75x4000) t",
    ),
];

pub(super) const LINK: &[Class] = &[
    ("enospc", &[BLOCKS, "6* link s1 f#"], "full: link s1 more"),
    (
        "enospc-long-name",
        &[BLOCKS, "2* link s1 %(6ex220)#"],
        "full: link s1 %(6ex220)3",
    ),
    (
        "enospc-only-for-long-name",
        &[BLOCKS, "link s1 %(6ex220)", "link s1 f"],
        "full: link s1 %(6fx220)",
    ),
    (
        "enospc-in-directory",
        &["mkdir d 755", BLOCKS, "4* link s1 d/#"],
        "full: link s1 d/5",
    ),
    (
        "enospc-for-second-extent",
        &[
            "mkdir d 755",
            FILE,
            "12* link f d/#",
            "56* symlink %(74x4000) s#",
        ],
        "full: link f d/13",
    ),
    (
        "making-room",
        &[BLOCKS, "6* link s1 f#", "unlink s2"],
        "link s1 more",
    ),
];

pub(super) const RENAME: &[Class] = &[
    ("enospc", &[BLOCKS, "6* link s1 f#"], "full: rename f1 g 0"),
    (
        "over-file-enospc",
        &[BLOCKS, "6* link s1 f#"],
        "full: rename f1 s2 0",
    ),
    (
        "making-room",
        &[BLOCKS, "6* link s1 f#", "unlink s2"],
        "rename f1 g 0",
    ),
];

pub(super) const EXCHANGE: &[Class] = &[
    ("enospc", &[BLOCKS, "6* link s1 f#"], "full: rename s2 s3 2"),
    (
        "enospc-for-second",
        &[BLOCKS, "5* link s1 f#"],
        "full: rename s2 s3 2",
    ),
    (
        "making-room",
        &[BLOCKS, "6* link s1 f#", "unlink s4", "unlink s5"],
        "rename s2 s3 2",
    ),
];

pub(super) const WRITE: &[Class] = &[
    (
        "enospc-into-hole",
        &[FILE, "truncate f 20000", OTHER, DATA],
        "full: write f 5000 7 100",
    ),
    (
        "enospc-over-the-end",
        &[FILE, "append f 5 100", OTHER, MOST_DATA],
        "full: write f 50 7 5000",
    ),
    (
        "enospc-past-gap",
        &[FILE, OTHER, DATA],
        "full: write f 9000 7 100",
    ),
    (
        "enospc-into-hole-and-over-the-end",
        &[FILE, "truncate f 6000", OTHER, MOST_DATA],
        "full: write f 3000 7 9000",
    ),
    (
        "into-preallocated-of-full-pool",
        &[FILE, "fallocate f 1 0 9000", OTHER, "append g 5 708608"],
        "write f 100 7 9000",
    ),
    (
        "over-data-of-full-pool",
        &[FILE, "append f 5 4096", OTHER, MOST_DATA],
        "write f 50 7 500",
    ),
    (
        "into-last-block",
        &[FILE, "truncate f 20000", OTHER, MOST_DATA],
        "write f 5000 7 100",
    ),
    (
        "into-displaced-holes",
        &[FILE, "truncate f 60000", OTHER, MUCH_DATA],
        "write f 5000 7 50000",
    ),
    (
        "over-displaced",
        &[OTHER, MUCH_DATA, FILE, "append f 5 60000"],
        "write f 5000 7 50000",
    ),
    (
        "making-room-of-punched",
        &[
            FILE,
            "truncate f 20000",
            OTHER,
            DATA,
            "fallocate g 3 0 9000",
        ],
        "write f 5000 7 100",
    ),
];

pub(super) const APPEND: &[Class] = &[
    ("last-block", &[FILE, OTHER, MOST_DATA], "append f 7 100"),
    ("enospc", &[FILE, OTHER, DATA], "full: append f 7 100"),
    (
        "enospc-many-blocks",
        &[FILE, "append f 5 100", OTHER, MUCH_DATA],
        "full: append f 7 200000",
    ),
    (
        "within-block-of-full-pool",
        &[FILE, "append f 5 100", OTHER, MOST_DATA],
        "append f 7 100",
    ),
    ("displaced", &[OTHER, MUCH_DATA, FILE], "append f 7 60000"),
    (
        "making-room-of-removed",
        &[FILE, OTHER, DATA, "unlink g"],
        "append f 7 9000",
    ),
    (
        "making-room-of-cut",
        &[FILE, OTHER, DATA, "truncate g 5000"],
        "append f 7 9000",
    ),
    (
        "making-room-of-replaced",
        &[FILE, OTHER, DATA, "rename f g 0"],
        "append g 7 9000",
    ),
];

pub(super) const TRUNCATE: &[Class] = &[
    (
        "displaced",
        &[OTHER, MUCH_DATA, FILE, "append f 5 60000"],
        "truncate f 5000",
    ),
    (
        "up-in-full-pool",
        &[FILE, "append f 5 100", OTHER, MOST_DATA],
        "truncate f 9000",
    ),
];

pub(super) const FALLOCATE: &[Class] = &[
    (
        "last-block",
        &[FILE, OTHER, MOST_DATA],
        "fallocate f 0 0 4096",
    ),
    ("enospc", &[FILE, OTHER, DATA], "full: fallocate f 0 0 4096"),
    (
        "enospc-keeping-size",
        &[FILE, "append f 5 100", OTHER, MOST_DATA],
        "full: fallocate f 1 0 9000",
    ),
    (
        "enospc-long",
        &[FILE, OTHER, MUCH_DATA],
        "full: fallocate f 0 0 3000000",
    ),
    (
        "displaced",
        &[OTHER, MUCH_DATA, FILE],
        "fallocate f 0 0 60000",
    ),
    (
        "making-room",
        &[FILE, OTHER, DATA, "truncate g 5000"],
        "fallocate f 0 0 9000",
    ),
];

pub(super) const PUNCH: &[Class] = &[(
    "displaced",
    &[OTHER, MUCH_DATA, FILE, "append f 5 60000"],
    "fallocate f 3 5000 40000",
)];

pub(super) const MAINTAIN: &[Class] = &[
    (
        "bury-displaced",
        &[OTHER, MUCH_DATA, FILE, "append f 5 60000", "unlink f"],
        "maintain",
    ),
    ("bury-all-data", &[OTHER, DATA, "unlink g"], "maintain"),
    (
        "bury-in-full-metadata",
        &[BLOCKS, SLOTS, "unlink s1", "unlink f1"],
        "maintain",
    ),
];

pub(super) const CLOSING: &[Class] = &[
    ("full", &[OTHER, DATA], "close-pool"),
    ("with-full-metadata", &[BLOCKS, SLOTS], "close-pool"),
];

pub(super) const OPENING: &[Class] = &[
    ("full", &[OTHER, DATA, "close-pool"], "open-pool"),
    (
        "with-full-metadata",
        &[BLOCKS, SLOTS, "close-pool"],
        "open-pool",
    ),
];

pub(super) const RECOVERY: &[Class] = &[
    ("of-full-pool", &[OTHER, DATA], "recover"),
    (
        "of-full-pool-with-removed",
        &[FILE, OTHER, DATA, "unlink g"],
        "recover",
    ),
    ("of-full-metadata", &[BLOCKS, SLOTS, "unlink s1"], "recover"),
];

/// Makes a directory and files, all of which are given up for what follows.
const EVICTED: [&str; 5] = [
    "mkdir d 755",
    "create d/f 644 -",
    "append d/f 5 100",
    "mkdir d/e 755",
    "90* create g# 644 -",
];

/// In an arena that holds 64 files and names.
pub(super) const EVICTING: &[Class] = &[
    (
        "create-evicting-directory",
        &["mkdir d 755", "mkdir d/e 755", "60* create g# 644 -"],
        "create last 644 -",
    ),
    (
        "create-evicting-directories",
        &["64* mkdir d# 755"],
        "create last 644 -",
    ),
    (
        "create-evicting-files",
        &["64* create f# 644 -"],
        "create last 644 -",
    ),
    ("link-in-evicted", &EVICTED, "link d/f d/g"),
    ("create-in-evicted", &EVICTED, "create d/g 644 -"),
    ("unlink-evicted", &EVICTED, "unlink d/f"),
    ("rename-evicted", &EVICTED, "rename d/f g1 0"),
    ("rename-evicted-directory", &EVICTED, "rename d/e e 0"),
    ("rmdir-evicted", &EVICTED, "rmdir d/e"),
    ("append-to-evicted", &EVICTED, "append d/f 7 9000"),
    ("truncate-evicted", &EVICTED, "truncate d/f 50"),
    ("chmod-evicted", &EVICTED, "chmod d 700"),
    ("maintain-with-evicted", &EVICTED, "maintain"),
    ("closing-with-evicted", &EVICTED, "close-pool"),
    ("recovery-of-evicted", &EVICTED, "recover"),
];
