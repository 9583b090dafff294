//! What the file system does by itself: background work, closing and opening pools.

use super::{Class, FILE};

pub(super) const MAINTAIN: &[Class] = &[
    ("nothing", &[FILE], "maintain"),
    (
        "bury-file",
        &[FILE, "append f 5 9000", "unlink f"],
        "maintain",
    ),
    ("bury-empty-file", &[FILE, "unlink f"], "maintain"),
    (
        "bury-sparse-file",
        &[FILE, "append f 5 100", "write f 900000 6 9000", "unlink f"],
        "maintain",
    ),
    (
        "bury-preallocated-file",
        &[FILE, "append f 5 100", "fallocate f 1 0 20000", "unlink f"],
        "maintain",
    ),
    (
        "bury-symlink",
        &["symlink %(74x3000) s", "unlink s"],
        "maintain",
    ),
    (
        "bury-short-symlink",
        &["symlink f s", "unlink s"],
        "maintain",
    ),
    (
        "bury-replaced-file",
        &[FILE, "create g 644 -", "append g 5 9000", "rename f g 0"],
        "maintain",
    ),
    (
        "bury-closed-file",
        &[
            FILE,
            "append f 5 9000",
            "open 1 f 0",
            "unlink f",
            "close-slot 1",
        ],
        "maintain",
    ),
    (
        "spare-open-file",
        &[FILE, "append f 5 9000", "open 1 f 0", "unlink f"],
        "maintain",
    ),
    (
        "bury-directory",
        &[
            "mkdir d 755",
            FILE,
            "15* link f d/#",
            "15* unlink d/#",
            "rmdir d",
        ],
        "maintain",
    ),
    (
        "bury-empty-directory",
        &["mkdir d 755", "rmdir d"],
        "maintain",
    ),
    (
        "bury-replaced-directory",
        &[
            "mkdir d 755",
            "mkdir e 755",
            "create d/f 644 -",
            "rename d e 0",
        ],
        "maintain",
    ),
    (
        "bury-several",
        &[
            FILE,
            "3* create g# 644 -",
            "append g1 5 9000",
            "append g2 6 5000",
            "3* unlink g#",
        ],
        "maintain",
    ),
    (
        "recycle",
        &["mkdir d 755", FILE, "110* link f d/#", "105* unlink d/#"],
        "maintain",
    ),
    (
        "recycle-long-names",
        &[
            "mkdir d 755",
            FILE,
            "70* link f d/%(6ex250)#",
            "65* unlink d/%(6ex250)#",
        ],
        "maintain",
    ),
    (
        "recycle-after-renames",
        &[
            "mkdir d 755",
            "60* create d/# 644 -",
            "55* rename d/# d/new# 0",
        ],
        "maintain",
    ),
    (
        "recycle-with-set-times",
        &[
            "mkdir d 755",
            FILE,
            "110* link f d/#",
            "110* unlink d/#",
            "utimens d 1000 2000 -",
        ],
        "maintain",
    ),
    (
        "compact",
        &[
            "mkdir d 755",
            FILE,
            "20* link f d/stays#",
            "525* link f d/#",
            "520* unlink d/#",
        ],
        "maintain",
    ),
    (
        "compact-behind-a-full-extent",
        &[
            "mkdir d 755",
            FILE,
            "516* link f d/stays#",
            "518* link f d/#",
            "512* unlink d/#",
        ],
        "maintain",
    ),
    (
        "compact-to-nothing",
        &["mkdir d 755", FILE, "520* link f d/#", "520* unlink d/#"],
        "maintain",
    ),
    (
        "reclaim-blocks",
        &[FILE, "append f 5 30000", "truncate f 100"],
        "maintain",
    ),
    (
        "reclaim-punched-blocks",
        &[FILE, "append f 5 30000", "fallocate f 3 0 20000"],
        "maintain",
    ),
];

/// Many blocks of a file of 300000 bytes are outside their home lines, and the aids tell of them.
pub(super) const CLOSING: &[Class] = &[
    ("unused", &[], "close-pool"),
    (
        "",
        &["mkdir d 755", FILE, "append f 5 9000", "link f d/g"],
        "close-pool",
    ),
    (
        "with-work",
        &[
            "mkdir d 755",
            FILE,
            "append f 5 9000",
            "link f d/g",
            "unlink d/g",
            "unlink f",
        ],
        "close-pool",
    ),
    (
        "with-unlinked",
        &[FILE, "append f 5 9000", "open 1 f 0", "unlink f"],
        "close-pool",
    ),
    (
        "with-removed-directory",
        &["mkdir d 755", "create d/f 644 -", "unlink d/f", "rmdir d"],
        "close-pool",
    ),
    (
        "with-limbo",
        &[FILE, "append f 5 30000", "truncate f 100"],
        "close-pool",
    ),
    ("with-displaced", &[FILE, "append f 5 300000"], "close-pool"),
    (
        "with-set-times",
        &[
            "mkdir d 755",
            "create d/f 644 -",
            "utimens d 1000 2000 -",
            "unlink d/f",
        ],
        "close-pool",
    ),
    (
        "again",
        &[FILE, "append f 5 9000", "close-pool", "open-pool"],
        "close-pool",
    ),
    (
        "again-with-changes",
        &[
            FILE,
            "append f 5 9000",
            "close-pool",
            "open-pool",
            "append f 6 50000",
            "link f g",
        ],
        "close-pool",
    ),
    (
        "after-recovery",
        &[
            FILE,
            "append f 5 9000",
            "unlink f",
            "recover",
            "create g 644 -",
        ],
        "close-pool",
    ),
];

pub(super) const OPENING: &[Class] = &[
    ("unused", &["close-pool"], "open-pool"),
    (
        "",
        &["mkdir d 755", FILE, "append f 5 9000", "close-pool"],
        "open-pool",
    ),
    (
        "with-displaced",
        &[FILE, "append f 5 300000", "close-pool"],
        "open-pool",
    ),
    (
        "again",
        &[FILE, "close-pool", "open-pool", "unlink f", "close-pool"],
        "open-pool",
    ),
];

pub(super) const RECOVERY: &[Class] = &[
    ("unused", &[], "recover"),
    (
        "of-files",
        &["mkdir d 755", FILE, "append f 5 9000", "link f d/g"],
        "recover",
    ),
    (
        "of-removed-file",
        &[FILE, "append f 5 9000", "unlink f"],
        "recover",
    ),
    (
        "of-unlinked-file",
        &[FILE, "append f 5 9000", "open 1 f 0", "unlink f"],
        "recover",
    ),
    (
        "of-unlinked-files",
        &[
            "9* create f# 644 -",
            "9* append f# 5 5000",
            "9* open # f# 0",
            "9* unlink f#",
        ],
        "recover",
    ),
    (
        "of-unlinked-directory",
        &[
            "mkdir d 755",
            "create d/f 644 -",
            "unlink d/f",
            "open+directory 1 d 0",
            "rmdir d",
        ],
        "recover",
    ),
    (
        "of-removed-symlink",
        &["symlink %(74x3000) s", "unlink s"],
        "recover",
    ),
    (
        "of-link-counts",
        &[FILE, "5* link f g#", "unlink g1"],
        "recover",
    ),
    (
        "of-renames",
        &[
            "mkdir d 755",
            FILE,
            "rename f d/f 0",
            "mkdir e 755",
            "rename d e/d 0",
        ],
        "recover",
    ),
    (
        "of-replaced-file",
        &[FILE, "create g 644 -", "append g 5 9000", "rename f g 0"],
        "recover",
    ),
    (
        "of-limbo",
        &[FILE, "append f 5 30000", "truncate f 100"],
        "recover",
    ),
    (
        "of-preallocated",
        &[FILE, "append f 5 9000", "fallocate f 1 0 30000"],
        "recover",
    ),
    ("of-displaced", &[FILE, "append f 5 300000"], "recover"),
    (
        "of-recycled-log",
        &[
            "mkdir d 755",
            FILE,
            "110* link f d/#",
            "105* unlink d/#",
            "maintain",
        ],
        "recover",
    ),
    (
        "of-dead-entries",
        &["mkdir d 755", FILE, "110* link f d/#", "105* unlink d/#"],
        "recover",
    ),
    (
        "of-set-times",
        &[
            "mkdir d 755",
            "create d/f 644 -",
            "utimens d 1000 2000 -",
            "unlink d/f",
        ],
        "recover",
    ),
    (
        "again",
        &[
            FILE,
            "append f 5 9000",
            "unlink f",
            "recover",
            "create g 644 -",
            "unlink g",
        ],
        "recover",
    ),
];
