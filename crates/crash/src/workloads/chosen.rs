//! Sequences chosen by hand, whose operations share something: what the first left is there when
//! the second crashes.

use super::FILE;
use crate::workload::Workload;

/// Removals, and then times of the directory set on purpose.
const SET_TIMES: [&str; 5] = [
    "mkdir d 755",
    FILE,
    "110* link f d/#",
    "110* unlink d/#",
    "utimens d 1000 2000 -",
];
/// Removals between times of the directory set on purpose.
const SET_TIMES_TWICE: [&str; 6] = [
    "mkdir d 755",
    FILE,
    "110* link f d/#",
    "utimens d 1000 2000 -",
    "110* unlink d/#",
    "utimens d 3000 4000 -",
];

pub(super) fn pairs() -> Vec<Workload> {
    let two =
        |name: &str, setup: &[&str], explored: [&str; 2]| Workload::new(name, setup, &explored);
    let tree = ["mkdir d 755", "mkdir e 755", FILE, "append f 5 5000"];
    let full = ["create g 644 -", "append g 5 700000", FILE];
    vec![
        two("create-create", &[], ["create f 644 -", "create g 644 -"]),
        two("create-unlink", &[], ["create f 644 -", "unlink f"]),
        two("create-append", &[], ["create f 644 -", "append f 7 5000"]),
        two("mkdir-create", &[], ["mkdir d 755", "create d/f 644 -"]),
        two(
            "unlink-create",
            &[FILE, "append f 5 5000"],
            ["unlink f", "create f 600 -"],
        ),
        two(
            "maintain-create",
            &[FILE, "append f 5 5000", "unlink f"],
            ["maintain", "create g 600 -"],
        ),
        two("rmdir-mkdir", &["mkdir d 755"], ["rmdir d", "mkdir d 700"]),
        two(
            "append-append",
            &[FILE],
            ["append f 5 3000", "append f 7 3000"],
        ),
        two(
            "append-truncate",
            &[FILE],
            ["append f 5 5000", "truncate f 100"],
        ),
        two(
            "truncate-truncate",
            &[FILE, "append f 5 5000"],
            ["truncate f 100", "truncate f 9000"],
        ),
        two(
            "truncate-append",
            &[FILE, "append f 5 9000"],
            ["truncate f 100", "append f 7 5000"],
        ),
        two(
            "truncate-write-past-gap",
            &[FILE, "append f 5 9000"],
            ["truncate f 100", "write f 6000 7 50"],
        ),
        two(
            "unlink-append-other",
            &full,
            ["unlink g", "append f 7 80000"],
        ),
        two(
            "punch-write",
            &[FILE, "append f 5 9000"],
            ["fallocate f 3 0 9000", "write f 4096 7 100"],
        ),
        two(
            "fallocate-append",
            &[FILE],
            ["fallocate f 1 0 20000", "append f 7 5000"],
        ),
        two(
            "rename-rename",
            &tree,
            ["rename f d/f 0", "rename d/f e/f 0"],
        ),
        two("rename-create", &tree, ["rename f g 0", "create f 644 -"]),
        two("rename-unlink", &tree, ["rename f g 0", "unlink g"]),
        two("rename-rmdir", &tree, ["rename d e/d 0", "rmdir e/d"]),
        two(
            "exchange-exchange",
            &[FILE, "mkdir d 755"],
            ["rename f d 2", "rename f d 2"],
        ),
        two("link-unlink", &[FILE], ["link f g", "unlink f"]),
        two("link-chmod", &[FILE], ["link f g", "chmod g 600"]),
        two("chmod-append", &[FILE], ["chmod f 600", "append f 7 100"]),
        two(
            "chmod-truncate",
            &[FILE],
            ["chmod f 600", "truncate f 5000"],
        ),
        two("chmod-chmod", &[FILE], ["chmod f 600", "chmod f 640"]),
        two(
            "utimens-create",
            &["mkdir d 755"],
            ["utimens d 1000 2000 -", "create d/f 644 -"],
        ),
        two(
            "create-utimens",
            &["mkdir d 755"],
            ["create d/f 644 -", "utimens d 1000 2000 -"],
        ),
        two(
            "unlink-closing",
            &[FILE, "append f 5 9000"],
            ["unlink f", "close-pool"],
        ),
        two(
            "truncate-closing",
            &[FILE, "append f 5 100000"],
            ["truncate f 5000", "close-pool"],
        ),
        two(
            "closing-opening",
            &[FILE, "append f 5 9000"],
            ["close-pool", "open-pool"],
        ),
        two(
            "closing-opening-with-displaced",
            &[FILE, "append f 5 300000"],
            ["close-pool", "open-pool"],
        ),
        Workload::new(
            "maintain-closing-opening-with-set-times",
            &SET_TIMES,
            &["maintain", "close-pool", "open-pool"],
        ),
        two(
            "maintain-unlink-with-times-set-twice",
            &SET_TIMES_TWICE,
            ["maintain", "unlink f"],
        ),
    ]
}
