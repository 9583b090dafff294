//! Renaming and exchanging.

use super::{Class, FILE};

pub(super) const RENAME: &[Class] = &[
    (
        "device-over-fifo",
        &["mknod c block-device 600 2048", "mknod p fifo 644 0"],
        "rename c p 0",
    ),
    ("", &[FILE], "rename f g 0"),
    ("to-itself", &[FILE], "rename f f 0"),
    ("long-name", &[FILE], "rename f %(6cx255) 0"),
    (
        "from-long-name",
        &["create %(6cx255) 644 -"],
        "rename %(6cx255) f 0",
    ),
    ("no-replace", &[FILE], "rename f g 1"),
    (
        "no-replace-across",
        &["mkdir d 755", FILE],
        "rename f d/f 1",
    ),
    (
        "across",
        &["mkdir d 755", "mkdir e 755", "create d/f 644 -"],
        "rename d/f e/f 0",
    ),
    (
        "up",
        &["mkdir d 755", "create d/f 644 -", "append d/f 5 100"],
        "rename d/f f 0",
    ),
    (
        "down",
        &["mkdir d 755", FILE, "append f 5 100"],
        "rename f d/f 0",
    ),
    (
        "into-first-extent",
        &["mkdir d 755", "mkdir d/e 755", FILE],
        "rename f d/e/f 0",
    ),
    (
        "into-second-extent",
        &["mkdir d 755", FILE, "12* link f d/#"],
        "rename f d/f 0",
    ),
    (
        "within-full-extent",
        &["mkdir d 755", FILE, "12* link f d/#"],
        "rename d/1 d/f 0",
    ),
    (
        "over-file",
        &[FILE, "create g 600 -", "append g 5 9000"],
        "rename f g 0",
    ),
    (
        "over-empty-file",
        &[FILE, "append f 5 9000", "create g 600 -"],
        "rename f g 0",
    ),
    (
        "over-file-across",
        &[
            "mkdir d 755",
            "mkdir e 755",
            "create d/f 644 -",
            "create e/g 600 -",
            "append e/g 5 100",
        ],
        "rename d/f e/g 0",
    ),
    (
        "over-link",
        &[FILE, "create g 600 -", "link g h"],
        "rename f g 0",
    ),
    (
        "over-long-name",
        &[FILE, "create %(6cx255) 600 -"],
        "rename f %(6cx255) 0",
    ),
    ("over-symlink", &[FILE, "symlink nowhere s"], "rename f s 0"),
    (
        "over-open-file",
        &[FILE, "create g 600 -", "append g 5 5000", "open 1 g 0"],
        "rename f g 0",
    ),
    (
        "over-open-link",
        &[FILE, "create g 600 -", "link g h", "open 1 g 0"],
        "rename f g 0",
    ),
    (
        "open-file",
        &[FILE, "append f 5 5000", "open 1 f 0"],
        "rename f g 0",
    ),
    ("same-file", &[FILE, "link f g"], "rename f g 0"),
    (
        "same-file-across",
        &[FILE, "mkdir d 755", "link f d/g"],
        "rename f d/g 0",
    ),
    ("symlink", &["symlink f s"], "rename s t 0"),
    (
        "symlink-over-file",
        &[FILE, "append f 5 100", "symlink %(74x300) s"],
        "rename s f 0",
    ),
    (
        "symlink-across",
        &["symlink f s", "mkdir d 755"],
        "rename s d/s 0",
    ),
    (
        "name-of-removed",
        &[FILE, "create g 600 -", "unlink g"],
        "rename f g 0",
    ),
    (
        "back",
        &[FILE, "mkdir d 755", "rename f d/f 0"],
        "rename d/f f 0",
    ),
    (
        "directory",
        &["mkdir d 755", "create d/f 644 -"],
        "rename d g 0",
    ),
    (
        "directory-across",
        &["mkdir d 755", "mkdir e 755", "create d/f 644 -"],
        "rename d e/d 0",
    ),
    (
        "directory-up",
        &["mkdir d 755", "mkdir d/e 755", "create d/e/f 644 -"],
        "rename d/e e 0",
    ),
    (
        "directory-across-deep",
        &[
            "mkdir d 755",
            "mkdir d/e 755",
            "mkdir d/e/g 755",
            "mkdir h 700",
            "mkdir h/i 755",
        ],
        "rename d/e h/i/e 0",
    ),
    (
        "over-empty-directory",
        &["mkdir d 755", "mkdir e 700", "create d/f 644 -"],
        "rename d e 0",
    ),
    (
        "over-used-directory",
        &[
            "mkdir d 755",
            "mkdir e 700",
            "create e/f 644 -",
            "unlink e/f",
        ],
        "rename d e 0",
    ),
    (
        "over-empty-directory-across",
        &[
            "mkdir d 755",
            "mkdir e 755",
            "mkdir e/empty 700",
            "create d/f 644 -",
        ],
        "rename d e/empty 0",
    ),
    (
        "over-open-directory",
        &["mkdir d 755", "mkdir e 700", "open+directory 1 e 0"],
        "rename d e 0",
    ),
    (
        "over-sibling-directory-up",
        &[
            "mkdir d 755",
            "mkdir d/e 755",
            "mkdir e 700",
            "create d/e/f 644 -",
        ],
        "rename d/e e 0",
    ),
    (
        "after-opening",
        &["mkdir d 755", FILE, "close-pool", "open-pool"],
        "rename f d/f 0",
    ),
    // The new entry lies where a dead one of the same directory number, name and cookie lay: its
    // witness must tell the two apart, and the record must bring the life word.
    (
        "stale-witness",
        &[
            "create f 644 -",
            "mkdir d 755",
            "maintain",
            "close-pool",
            "open-pool",
            "rename f d/f 0",
            "rename d/f f 0",
            "rmdir d",
            "maintain",
            "close-pool",
            "open-pool",
            "mkdir %(6cx255) 755",
        ],
        "rename f %(6cx255)/f 0",
    ),
];

pub(super) const EXCHANGE: &[Class] = &[
    (
        "",
        &[FILE, "create g 600 -", "append g 5 100"],
        "rename f g 2",
    ),
    ("with-itself", &[FILE], "rename f f 2"),
    ("same-file", &[FILE, "link f g"], "rename f g 2"),
    (
        "long-name",
        &[FILE, "create %(6cx255) 600 -"],
        "rename f %(6cx255) 2",
    ),
    (
        "across",
        &[
            "mkdir d 755",
            "mkdir e 755",
            "create d/f 644 -",
            "append d/f 5 9",
            "create e/g 600 -",
        ],
        "rename d/f e/g 2",
    ),
    (
        "up",
        &["mkdir d 755", "create d/f 600 -", FILE, "append f 5 9"],
        "rename d/f f 2",
    ),
    (
        "file-and-symlink",
        &[FILE, "symlink %(74x200) s"],
        "rename f s 2",
    ),
    (
        "file-and-symlink-across",
        &[FILE, "mkdir d 755", "symlink f d/s"],
        "rename f d/s 2",
    ),
    (
        "symlinks",
        &["symlink f s", "symlink %(74x200) t"],
        "rename s t 2",
    ),
    (
        "file-and-directory",
        &[FILE, "mkdir d 755", "create d/g 644 -"],
        "rename f d 2",
    ),
    (
        "symlink-and-directory",
        &["symlink f s", "mkdir d 755"],
        "rename s d 2",
    ),
    (
        "symlink-and-directory-across",
        &[
            "symlink f s",
            "mkdir d 755",
            "mkdir d/e 755",
            "create d/e/f 644 -",
        ],
        "rename d/e s 2",
    ),
    (
        "directories",
        &["mkdir d 755", "mkdir e 700", "create d/f 644 -"],
        "rename d e 2",
    ),
    (
        "directory-and-file-across",
        &[
            "mkdir d 755",
            "create d/f 644 -",
            "mkdir e 755",
            "mkdir e/sub 755",
            "create e/sub/x 644 -",
        ],
        "rename d/f e/sub 2",
    ),
    (
        "directories-across",
        &[
            "mkdir d 755",
            "mkdir e 755",
            "mkdir d/one 755",
            "mkdir e/two 700",
            "create e/two/x 644 -",
        ],
        "rename d/one e/two 2",
    ),
    (
        "directories-up",
        &[
            "mkdir d 755",
            "mkdir d/one 755",
            "mkdir e 700",
            "create e/x 644 -",
        ],
        "rename d/one e 2",
    ),
    (
        "open-files",
        &[FILE, "create g 600 -", "open 1 f 0", "open 2 g 0"],
        "rename f g 2",
    ),
    (
        "into-second-extents",
        &[
            "mkdir d 755",
            "mkdir e 755",
            FILE,
            "12* link f d/#",
            "12* link f e/#",
            "create d/g 600 -",
        ],
        "rename d/g e/1 2",
    ),
];
