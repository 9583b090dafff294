//! Files whose trees grow, shrink and are used again: on mappings that keep a tree for each file.

use super::{FILE, other_mappings};
use crate::workload::Workload;

pub(super) fn workloads() -> Vec<Workload> {
    other_mappings()
        .filter(|kind| kind.has_trees())
        .flat_map(|mapping| {
            growing()
                .into_iter()
                .chain(shrinking())
                .map(move |w| w.on(mapping))
        })
        .collect()
}

fn of(name: &str, setup: &[&str], explored: &[&str]) -> Workload {
    Workload::new(name, setup, explored)
}

/// Nodes that are made: below the inode, on top of others, in the middle.
fn growing() -> Vec<Workload> {
    let two_levels = [FILE, "append f 5 9000", "write f 2097152 3 100"];
    vec![
        of("tree-first-block", &[FILE], &["append f 5 3000"]),
        of(
            "tree-first-node",
            &[FILE, "append f 5 3000"],
            &["append f 7 4000"],
        ),
        of("tree-node-at-once", &[FILE], &["append f 5 9000"]),
        of(
            "tree-second-level",
            &[FILE, "append f 5 9000"],
            &["write f 2097152 3 100"],
        ),
        of("tree-far-first", &[FILE], &["write f 2097152 3 100"]),
        of(
            "tree-block-below",
            &[FILE, "write f 2097152 3 100"],
            &["write f 0 5 100"],
        ),
        of(
            "tree-fallocate",
            &two_levels,
            &["fallocate f 0 4190208 8192"],
        ),
        of(
            "tree-node-used-again",
            &[
                FILE,
                "append f 5 9000",
                "truncate f 0",
                "maintain",
                "maintain",
            ],
            &["append f 7 20000"],
        ),
        of(
            "tree-node-of-another-file",
            &[
                FILE,
                "create g 644 -",
                "append f 5 20000",
                "unlink f",
                "maintain",
                "maintain",
            ],
            &["append g 7 9000"],
        ),
        of(
            "tree-nodes-used-by-texts",
            &[
                FILE,
                "append f 5 9000",
                "8* symlink %(74x4000) s#",
                "8* unlink s#",
                "maintain",
                "maintain",
            ],
            &["write f 2097152 3 100"],
        ),
        of(
            "tree-grow-twice",
            &[FILE, "append f 5 3000"],
            &["append f 7 9000", "write f 2097152 3 100"],
        ),
        of(
            "tree-nodes-run-out",
            &["create g 644 -", "append g 5 700000", FILE],
            &["write f 2097152 3 9000", "unlink g"],
        ),
    ]
}

/// Nodes that go: with their file, with its end, with a hole.
fn shrinking() -> Vec<Workload> {
    let two_levels = [FILE, "append f 5 9000", "write f 2097152 3 9000"];
    vec![
        of("tree-unlink", &two_levels, &["unlink f", "maintain"]),
        // The append's node is left, without a block.
        of(
            "tree-unlink-after-cut-append",
            &[FILE, "write f 2093056 5 4096"],
            &["open-pool", "unlink f", "maintain", "close-pool"],
        )
        .cut("append f 7 4096", "write/data-durable", false),
        of("tree-truncate-all", &two_levels, &["truncate f 0"]),
        of("tree-truncate-level", &two_levels, &["truncate f 9000"]),
        of("tree-truncate-in-leaf", &two_levels, &["truncate f 5000"]),
        of(
            "tree-punch-leaf",
            &two_levels,
            &["fallocate f 3 2097152 12288"],
        ),
        of("tree-punch-in-leaf", &two_levels, &["fallocate f 3 0 4096"]),
        of(
            "tree-overwritten-then-symlink",
            &[
                FILE,
                "append f 5 9000",
                "write f 0 3 100",
                "unlink f",
                "close-pool",
                "open-pool",
            ],
            &["symlink x f"],
        ),
        of("tree-punch-all", &two_levels, &["fallocate f 3 0 2113536"]),
        of(
            "tree-truncate-append",
            &two_levels,
            &["truncate f 0", "append f 7 9000"],
        ),
        of(
            "tree-close-after-truncate",
            &two_levels,
            &["truncate f 4096", "close-pool", "open-pool"],
        ),
        of(
            "tree-recover-append",
            &two_levels,
            &["open-pool", "append f 9 9000"],
        )
        .cut("append f 7 9000", "write/data-durable", false),
        of(
            "tree-recover-extend",
            &two_levels,
            &["open-pool", "truncate f 2120000"],
        )
        .cut("append f 7 9000", "write/data-durable", false),
        of(
            "tree-recover-truncate",
            &two_levels,
            &["open-pool", "append f 9 9000"],
        )
        .cut("truncate f 0", "truncate/size-durable", true),
    ]
}
