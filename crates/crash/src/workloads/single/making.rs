//! Making names.

use super::{Class, FILE};

pub(super) const CREATE: &[Class] = &[
    ("first", &[], "create f 644 exclusive"),
    ("second", &[FILE], "create g 600 exclusive"),
    ("not-exclusive", &[FILE], "create g 600 -"),
    ("exists", &[FILE], "create f 600 -"),
    (
        "exists-with-bytes",
        &[FILE, "append f 5 100"],
        "create f 600 -",
    ),
    ("over-symlink", &[FILE, "symlink f s"], "create s 600 -"),
    (
        "over-dangling-symlink",
        &["mkdir d 755", "symlink d/f s"],
        "create s 600 -",
    ),
    (
        "in-directory",
        &["mkdir d 755", "create d/a 644 -"],
        "create d/f 644 -",
    ),
    ("first-in-directory", &["mkdir d 755"], "create d/f 644 -"),
    (
        "in-set-gid-directory",
        &["mkdir d 755", "chown d 5 6 follow", "chmod d 2775"],
        "create d/f 6755 -",
    ),
    ("by-user", &["chmod . 777", FILE], "user: create g 2755 -"),
    ("of-two-slots", &[FILE], "create %(6dx100) 644 exclusive"),
    ("long-name", &[FILE], "create %(6cx255) 644 exclusive"),
    (
        "longest-of-one-slot",
        &[FILE],
        "create %(6ex80) 644 exclusive",
    ),
    (
        "shortest-of-three-slots",
        &[FILE],
        "create %(6fx209) 644 exclusive",
    ),
    (
        "reusing-inode",
        &[
            FILE,
            "10* create g# 644 -",
            "append f 5 9000",
            "unlink f",
            "maintain",
        ],
        "create again 644 -",
    ),
    (
        "reusing-name",
        &[
            "mkdir d 755",
            "create d/f 644 -",
            "append d/f 5 100",
            "unlink d/f",
        ],
        "create d/f 600 exclusive",
    ),
    (
        "reusing-name-and-inode",
        &[
            "mkdir d 755",
            "create d/f 644 -",
            "append d/f 5 9000",
            "unlink d/f",
            "maintain",
        ],
        "create d/f 600 exclusive",
    ),
    (
        "in-second-life-of-directory",
        &[
            "mkdir d 755",
            "create d/f 644 -",
            "unlink d/f",
            "rmdir d",
            "maintain",
            "mkdir d 700",
        ],
        "create d/f 644 -",
    ),
    (
        "taking-inode-chunk",
        &["30* create f# 644 -"],
        "create last 644 -",
    ),
    (
        "in-last-slot-of-group",
        &["29* create f# 644 -"],
        "create last 644 -",
    ),
    (
        "in-recycled-slots",
        &[
            "mkdir d 755",
            FILE,
            "110* link f d/%(6ex40)#",
            "110* unlink d/%(6ex40)#",
            "maintain",
            "mkdir e 755",
        ],
        "create e/f 644 -",
    ),
    (
        "long-name-in-recycled-slots",
        &[
            "mkdir d 755",
            FILE,
            "60* link f d/%(6ex250)#",
            "60* unlink d/%(6ex250)#",
            "maintain",
            "mkdir e 755",
        ],
        "create e/%(6cx255) 644 -",
    ),
    (
        "after-recycling",
        &[
            "mkdir d 755",
            FILE,
            "110* link f d/#",
            "110* unlink d/#",
            "maintain",
        ],
        "create d/g 644 -",
    ),
    (
        "after-compaction",
        &[
            "mkdir d 755",
            FILE,
            "530* link f d/#",
            "520* unlink d/#",
            "maintain",
        ],
        "create d/g 644 -",
    ),
    (
        "into-second-extent",
        &["mkdir d 755", FILE, "12* link f d/#"],
        "create d/g 644 -",
    ),
    (
        "after-closing",
        &[FILE, "close-pool", "open-pool"],
        "create g 644 -",
    ),
    (
        "after-recovery",
        &[FILE, "link f g", "unlink f", "recover"],
        "create f 644 -",
    ),
];

pub(super) const MKDIR: &[Class] = &[
    ("first", &[], "mkdir d 755"),
    ("second", &["mkdir d 755"], "mkdir e 700"),
    ("in-directory", &["mkdir d 755"], "mkdir d/e 755"),
    (
        "in-set-gid-directory",
        &["mkdir d 755", "chown d 5 6 follow", "chmod d 2775"],
        "mkdir d/e 755",
    ),
    ("sticky", &[FILE], "mkdir d 1777"),
    ("long-name", &[FILE], "mkdir %(6cx255) 755"),
    (
        "reusing-inode-of-file",
        &[FILE, "append f 5 9000", "unlink f", "maintain"],
        "mkdir d 755",
    ),
    (
        "reusing-inode-of-directory",
        &[
            "mkdir d 755",
            FILE,
            "15* link f d/#",
            "15* unlink d/#",
            "rmdir d",
            "maintain",
        ],
        "mkdir e 755",
    ),
    (
        "into-second-extent",
        &["mkdir d 755", FILE, "12* link f d/#"],
        "mkdir d/e 755",
    ),
];

pub(super) const MKNOD: &[Class] = &[
    ("fifo", &[FILE], "mknod p fifo 644 0"),
    ("socket", &[FILE], "mknod s socket 4755 0"),
    ("char-device", &[FILE], "mknod c char-device 600 259"),
    (
        "block-device",
        &[FILE],
        "mknod b block-device 660 18446744073709551615",
    ),
    ("file", &[FILE], "mknod g file 644 0"),
    ("first", &[], "mknod p fifo 644 0"),
    (
        "in-set-gid-directory",
        &["mkdir d 755", "chown d 5 6 follow", "chmod d 2775"],
        "mknod d/c char-device 2666 259",
    ),
    (
        "by-user",
        &["chmod . 777", FILE],
        "user: mknod p fifo 640 0",
    ),
    ("long-name", &[FILE], "mknod %(6cx255) socket 644 0"),
    (
        "reusing-inode-of-file",
        &[FILE, "append f 5 9000", "unlink f", "maintain"],
        "mknod b block-device 600 2048",
    ),
    (
        "into-second-extent",
        &["mkdir d 755", FILE, "12* link f d/#"],
        "mknod d/c char-device 600 259",
    ),
];

pub(super) const SYMLINK: &[Class] = &[
    ("short", &[FILE], "symlink f s"),
    ("longest-in-slot", &[FILE], "symlink %(74x128) s"),
    ("shortest-in-block", &[FILE], "symlink %(74x129) s"),
    ("long", &[FILE], "symlink %(74x4095) s"),
    ("long-name", &[FILE], "symlink f %(6cx255)"),
    ("in-directory", &["mkdir d 755"], "symlink nowhere d/s"),
    (
        "reusing-inode",
        &[FILE, "append f 5 9000", "unlink f", "maintain"],
        "symlink %(74x128) s",
    ),
    (
        "reusing-block",
        &[FILE, "symlink %(75x4000) s", "unlink s", "maintain"],
        "symlink %(74x200) s",
    ),
    (
        "into-second-extent",
        &["mkdir d 755", FILE, "12* link f d/#"],
        "symlink f d/s",
    ),
];

pub(super) const LINK: &[Class] = &[
    ("", &[FILE], "link f g"),
    ("third", &[FILE, "link f g"], "link f h"),
    ("across", &[FILE, "mkdir d 755"], "link f d/g"),
    ("up", &["mkdir d 755", "create d/f 644 -"], "link d/f g"),
    ("symlink", &["symlink nowhere s"], "link s t"),
    ("device", &["mknod c char-device 600 259"], "link c d"),
    ("long-name", &[FILE], "link f %(6cx255)"),
    ("open-file", &[FILE, "open 1 f 0"], "link f g"),
    (
        "name-of-removed",
        &[FILE, "link f g", "unlink g"],
        "link f g",
    ),
    ("last-again", &[FILE, "link f g", "unlink f"], "link g f"),
    (
        "into-second-extent",
        &["mkdir d 755", FILE, "12* link f d/#"],
        "link f d/one-more",
    ),
    (
        "to-last-word-of-extent",
        &["mkdir d 755", FILE, "11* link f d/#"],
        "link f d/one-more",
    ),
    (
        "into-third-extent",
        &["mkdir d 755", FILE, "516* link f d/#"],
        "link f d/one-more",
    ),
    (
        "taking-entry-chunk",
        &["mkdir d 755", FILE, "30* link f d/#"],
        "link f d/one-more",
    ),
];
