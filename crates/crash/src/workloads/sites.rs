//! Workloads without which a persistent step could be left out and nobody would notice: see
//! [`mutate`](crate::mutate).

use super::FILE;
use crate::workload::Workload;

pub(super) fn workloads() -> Vec<Workload> {
    let all = [
        recovering(),
        closing(),
        reusing(),
        scattered(),
        fencing(),
        crowded(),
    ];
    all.into_iter().flatten().collect()
}

/// Opening after a power cut, and what comes next: what recovery did has to be durable by then.
fn recovering() -> Vec<Workload> {
    let dir = ["mkdir d 755"];
    let written = [FILE, "append f 5 9000"];
    let of = |name: &str, setup: &[&str], explored: &[&str]| Workload::new(name, setup, explored);
    let closed = ["open-pool", "close-pool"];
    vec![
        of(
            "recover-chmod-truncate",
            &[FILE],
            &["open-pool", "truncate f 5000"],
        )
        .cut("chmod f 600", "journal/record-durable", true),
        of(
            "recover-rename-chmod",
            &[FILE],
            &["open-pool", "chmod g 600"],
        )
        .cut("rename f g 0", "journal/record-durable", true),
        of("recover-create-close", &[FILE], &closed).cut(
            "create g 644 -",
            "create/entry-durable",
            false,
        ),
        of("recover-link-close", &[FILE], &closed).cut("link f g", "link/log-word-durable", true),
        of("recover-create-in-directory-close", &dir, &closed).cut(
            "create d/f 644 -",
            "create/log-word-durable",
            true,
        ),
        of("recover-append-close", &written, &closed).cut(
            "append f 7 9000",
            "write/data-durable",
            false,
        ),
        of(
            "recover-append-append",
            &written,
            &["open-pool", "append f 9 9000"],
        )
        .cut("append f 7 9000", "write/data-durable", false),
        of(
            "recover-unlink-create-append",
            &written,
            &["open-pool", "create g 644 -", "append g 7 9000"],
        )
        .cut("unlink f", "remove/life-durable", true),
        of(
            "recover-bury-close",
            &[FILE, "append f 5 40000"],
            &["unlink f", "maintain", "recover", "close-pool"],
        ),
        of(
            "open-append-chmod",
            &[FILE, "chmod f 600", "create g 644 -", "close-pool"],
            &["open-pool", "append f 5 100", "chmod g 640"],
        ),
        of(
            "open-create",
            &[FILE, "close-pool"],
            &["open-pool", "create g 644 -"],
        ),
    ]
}

/// A close believes what was written back before it.
fn closing() -> Vec<Workload> {
    let of = |name: &str, setup: &[&str], explored: &[&str]| Workload::new(name, setup, explored);
    vec![
        of(
            "unlink-one-of-two-close",
            &[FILE, "link f g"],
            &["unlink g", "close-pool"],
        ),
        of("link-close", &[FILE], &["link f g", "close-pool"]),
        of(
            "rename-directory-close",
            &["mkdir d 755", "mkdir d/e 755"],
            &["rename d g 0", "close-pool"],
        ),
        of(
            "recycle-close",
            &[
                "mkdir d 755",
                "mkdir d/e 755",
                FILE,
                "110* link f d/#",
                "105* unlink d/#",
            ],
            &["maintain", "close-pool"],
        ),
        of(
            "unlink-open-close",
            &[FILE, "append f 5 5000", "open 1 f 0"],
            &["unlink f", "close-slot 1", "maintain", "close-pool"],
        ),
    ]
}

/// What was given up is used again, by something else. Long texts of symlinks take the same blocks
/// as extents of logs.
fn reusing() -> Vec<Workload> {
    let texts =
        ["a", "b", "c", "d", "e", "g", "h", "i"].map(|name| format!("symlink %(74x4095) {name}"));
    let texts = texts.each_ref().map(String::as_str);
    let of = |name: &str, setup: &[&str], explored: &[&str]| Workload::new(name, setup, explored);
    vec![
        of(
            "bury-create-truncate",
            &[
                "6* create f# 644 -",
                "append f1 5 40000",
                "24* create g# 644 -",
                "6* unlink f#",
            ],
            &[
                "maintain",
                "create h 644 -",
                "append h 7 100",
                "truncate h 40000",
            ],
        ),
        of(
            "recycle-create",
            &[
                "mkdir d 755",
                FILE,
                "110* link f d/%(6ex40)#",
                "110* unlink d/%(6ex40)#",
            ],
            &["maintain", "mkdir e 755", "create e/f 644 -"],
        ),
        of(
            "log-grows-into-used-block",
            &[
                "mkdir d 755",
                "6* symlink %(74x4095) s#",
                "6* unlink s#",
                "maintain",
                "12* create d/f# 644 -",
                "symlink %(74x4095) t",
            ],
            &["create d/g 644 -"],
        ),
        of(
            "compact-into-used-block",
            &[
                "mkdir d 755",
                FILE,
                "8* symlink %(74x4095) s#",
                "8* unlink s#",
                "maintain",
                "symlink %(74x4095) t",
                "20* link f d/stays#",
                "525* link f d/#",
                "520* unlink d/#",
            ],
            &["maintain"],
        ),
        of(
            "compact-to-nothing-symlink",
            &["mkdir d 755", FILE, "520* link f d/#", "520* unlink d/#"],
            &["maintain", texts[0], texts[1], texts[2], texts[3]],
        ),
        of(
            "compact-symlink",
            &[
                "mkdir d 755",
                FILE,
                "8* symlink %(74x4095) s#",
                "8* unlink s#",
                "maintain",
                "516* link f d/stays#",
                "518* link f d/#",
                "512* unlink d/#",
            ],
            &[&["maintain"], &texts[..]].concat(),
        ),
    ]
}

/// The blocks of one run in several lines of the table, each flushed: in a pool that is full but
/// for blocks far apart.
fn scattered() -> Vec<Workload> {
    let punched = [8, 24, 40, 56, 72].map(|block| format!("fallocate g 3 {} 4096", block * 4096));
    let mut setup = vec![FILE, "create g 644 -", "fallocate g 0 0 716800"];
    setup.extend(punched.iter().map(String::as_str));
    setup.extend(["maintain", "maintain"]);
    let of = |name: &str, explored: &[&str]| Workload::new(name, &setup, explored);
    vec![
        of("scattered-fallocate", &["fallocate f 0 0 20480"]),
        of("scattered-append", &["append f 7 20000"]),
        of(
            "scattered-punch",
            &["append f 7 20480", "fallocate f 3 0 20480"],
        ),
        of(
            "scattered-truncate",
            &["append f 7 20000", "truncate f 0", "truncate f 20000"],
        ),
    ]
}

/// What was flushed without a fence is durable by the next one.
fn fencing() -> Vec<Workload> {
    let read = [FILE, "append f 5 100"];
    let of = |name: &str, setup: &[&str], explored: &[&str]| Workload::new(name, setup, explored);
    vec![
        of("read-create", &read, &["read f 0 100", "create g 644 -"]),
        of("read-sync", &read, &["read f 0 100", "sync"]),
        of("read-close", &read, &["read f 0 100", "close-pool"]),
        of("link-sync", &[FILE], &["link f g", "sync"]),
        of(
            "unlink-one-of-two-sync",
            &[FILE, "link f g"],
            &["unlink g", "sync"],
        ),
    ]
}

/// More names than the arena holds.
fn crowded() -> Vec<Workload> {
    let of = |name: &str, setup: &[&str], explored: &[&str]| {
        Workload::new(name, setup, explored).crowded()
    };
    let many = [
        "mkdir d 755",
        "mkdir d/e 755",
        "create d/f 644 -",
        "50* create f# 644 -",
    ];
    vec![of(
        "evict-close",
        &many,
        &["maintain", "create x 644 -", "maintain", "close-pool"],
    )]
}
