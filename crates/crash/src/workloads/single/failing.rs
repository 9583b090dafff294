//! Operations that fail: they change nothing, whenever the power goes. Their names say how they
//! fail.

use super::{Class, FILE};

pub(super) const CREATE: &[Class] = &[
    ("eexist", &[FILE], "create f 600 exclusive"),
    (
        "eexist-symlink",
        &["symlink nowhere s"],
        "create s 600 exclusive",
    ),
    ("eisdir", &["mkdir d 755"], "create d 600 -"),
    ("enoent", &[FILE], "create d/f 600 -"),
    ("enotdir", &[FILE], "create f/g 600 -"),
    ("eloop", &["symlink s s"], "create s 600 -"),
    ("enametoolong", &[FILE], "create %(6cx256) 600 -"),
    ("eacces", &["mkdir d 755"], "user: create d/f 600 -"),
];

pub(super) const MKDIR: &[Class] = &[
    ("eexist", &["mkdir d 755"], "mkdir d 700"),
    ("eexist-file", &[FILE], "mkdir f 700"),
    ("enoent", &[FILE], "mkdir d/e 700"),
    ("eacces", &["mkdir d 755"], "user: mkdir d/e 700"),
];

pub(super) const MKNOD: &[Class] = &[
    ("eexist", &[FILE], "mknod f fifo 644 0"),
    ("enoent", &[FILE], "mknod d/p fifo 644 0"),
    ("eacces", &["mkdir d 755"], "user: mknod d/p fifo 644 0"),
    (
        "eperm-device",
        &["chmod . 777"],
        "user: mknod c char-device 600 259",
    ),
];

pub(super) const SYMLINK: &[Class] = &[
    ("eexist", &[FILE], "symlink nowhere f"),
    ("enoent", &[FILE], "symlink %(74x3000) d/s"),
    ("enametoolong", &[FILE], "symlink %(74x4096) s"),
];

pub(super) const LINK: &[Class] = &[
    ("eexist", &[FILE, "create g 644 -"], "link f g"),
    ("enoent", &[FILE], "link g h"),
    ("eperm", &["mkdir d 755"], "link d e"),
];

pub(super) const UNLINK: &[Class] = &[
    ("enoent", &[FILE], "unlink g"),
    ("enoent-removed", &[FILE, "unlink f"], "unlink f"),
    ("eisdir", &["mkdir d 755"], "unlink d"),
    (
        "eperm-sticky",
        &["mkdir d 1777", "create d/f 644 -"],
        "user: unlink d/f",
    ),
];

pub(super) const RMDIR: &[Class] = &[
    ("enotempty", &["mkdir d 755", "create d/f 644 -"], "rmdir d"),
    ("enotdir", &[FILE], "rmdir f"),
    ("enoent", &[FILE], "rmdir d"),
    ("einval", &["mkdir d 755"], "rmdir d/."),
];

pub(super) const RENAME: &[Class] = &[
    ("enoent", &[FILE], "rename g f 0"),
    (
        "einval-into-itself",
        &["mkdir d 755", "mkdir d/e 755"],
        "rename d d/e/d 0",
    ),
    (
        "enotempty",
        &["mkdir d 755", "mkdir e 755", "create e/f 644 -"],
        "rename d e 0",
    ),
    (
        "enotempty-parent",
        &["mkdir d 755", "mkdir d/e 755"],
        "rename d/e d 0",
    ),
    (
        "enotempty-across",
        &[
            "mkdir d 755",
            "mkdir e 755",
            "mkdir e/g 755",
            "create e/g/f 644 -",
        ],
        "rename d e/g 0",
    ),
    ("eisdir", &[FILE, "mkdir d 755"], "rename f d 0"),
    ("enotdir", &[FILE, "mkdir d 755"], "rename d f 0"),
    ("eexist", &[FILE, "create g 644 -"], "rename f g 1"),
    (
        "eexist-across",
        &[FILE, "mkdir d 755", "link f d/g"],
        "rename f d/g 1",
    ),
    ("ebusy", &["mkdir d 755"], "rename d/. e 0"),
    (
        "eperm-sticky",
        &["mkdir d 1777", "create d/f 644 -"],
        "user: rename d/f d/g 0",
    ),
];

pub(super) const EXCHANGE: &[Class] = &[
    ("enoent", &[FILE], "rename f g 2"),
    (
        "einval-into-itself",
        &["mkdir d 755", "mkdir d/e 755"],
        "rename d d/e 2",
    ),
    ("einval-flags", &[FILE, "create g 644 -"], "rename f g 3"),
];

pub(super) const WRITE: &[Class] = &[
    ("enoent", &[FILE], "write g 0 7 100"),
    ("eisdir", &["mkdir d 755"], "write d 0 7 100"),
    (
        "efbig",
        &[FILE, "append f 5 100"],
        "write f 17592186044416 7 100",
    ),
    (
        "ebadf",
        &[FILE, "append f 5 100", "open 1 f 0"],
        "write-slot 1 0 7 100",
    ),
];

pub(super) const TRUNCATE: &[Class] = &[
    (
        "efbig",
        &[FILE, "append f 5 9000"],
        "truncate f 35184372088832",
    ),
    (
        "efbig-by-user",
        &[FILE, "append f 5 9000", "chmod f 6777"],
        "user: truncate f 35184372088832",
    ),
    ("eisdir", &["mkdir d 755"], "truncate d 0"),
    (
        "einval",
        &[FILE, "append f 5 9000", "open 1 f 0"],
        "truncate-slot 1 100",
    ),
];

pub(super) const FALLOCATE: &[Class] = &[
    ("einval", &[FILE, "append f 5 9000"], "fallocate f 0 100 0"),
    (
        "efbig",
        &[FILE, "append f 5 9000"],
        "fallocate f 0 35184372088832 4096",
    ),
    (
        "efbig-keeping-size",
        &[FILE, "append f 5 9000"],
        "fallocate f 1 35184372088832 4096",
    ),
];

pub(super) const ATTRIBUTES: &[Class] = &[
    ("chmod-enoent", &[FILE], "chmod g 600"),
    ("chmod-eperm", &[FILE], "user: chmod f 600"),
    (
        "chown-eperm",
        &[FILE, "chmod f 6755"],
        "user: chown f 1000 - follow",
    ),
    ("utimens-eperm", &[FILE], "user: utimens f 1000 2000 follow"),
];

pub(super) const TOGETHER: &[Class] = &[
    (
        "efbig",
        &[FILE, "append f 5 9000"],
        "together: truncate f 35184372088832; chmod f 600",
    ),
    (
        "eisdir",
        &["mkdir d 755"],
        "together: truncate d 0; chmod d 700",
    ),
];

pub(super) const OPEN: &[Class] = &[
    (
        "eloop",
        &[FILE, "symlink f s"],
        "open+rdwr+trunc+nofollow 1 s 0",
    ),
    ("enotdir", &[FILE, "append f 5 100"], "open+directory 1 f 0"),
    (
        "eexist",
        &[FILE, "append f 5 100"],
        "open+rdwr+creat+excl+trunc 1 f 600",
    ),
    ("eisdir", &["mkdir d 755"], "open+rdwr+trunc 1 d 0"),
    (
        "eacces",
        &[FILE, "append f 5 100"],
        "user: open+rdwr+trunc 1 f 0",
    ),
];
