//! Directories that become roots of areas, are renamed as such, are none any more, and are removed.

use super::FILE;
use crate::workload::Workload;

/// What a tree holds before an area comes or goes: names that live and names that are gone, in
/// directories that are roots and that are none.
const TREE: [&str; 7] = [
    "mkdir d 755",
    "mkdir d/e 755",
    FILE,
    "link f d/g",
    "create d/e/h 644 -",
    "mkdir x 755",
    "create x/y 644 -",
];

/// Operations beside which areas come and go.
const OTHERS: [&str; 14] = [
    "create d/k 644 -",
    "mkdir d/e/k 755",
    "link f d/e/k",
    "unlink d/g",
    "rename d/g k 0",
    "rename f d/k 0",
    "rename d/e e 0",
    "rename x d/x 0",
    "rename d x/d 0",
    "rename d/e x 2",
    "split d/e",
    "split x",
    "maintain",
    "recover",
];

fn of(name: &str, setup: &[&str], explored: &[&str]) -> Workload {
    Workload::new(name, setup, explored)
}

pub(super) fn workloads() -> Vec<Workload> {
    [moves(), beside(), gone(), evolving(), recovered()].concat()
}

fn with(steps: &[&'static str]) -> Vec<&'static str> {
    [&TREE[..], steps].concat()
}

/// Each move by itself, and what it leaves to be used again.
fn moves() -> Vec<Workload> {
    let rooted = with(&["split d"]);
    let both = with(&["split d", "split x"]);
    let inner = with(&["split d/e"]);
    // Which names die, and which are made, tells whether an entry or its copy was meant.
    let dead = with(&["110* link f d/e/%(6ex38)#", "110* unlink d/e/%(6ex38)#"]);
    let dead_rooted = [&dead[..], &["split d"]].concat();
    let grown = [
        &["62* mkdir r# 755", "62* split r#", "mkdir d 755"][..],
        &[FILE],
    ]
    .concat();
    let emptied = with(&["split x", "mkdir a 755", "link f a/g", "unlink a/g"]);
    vec![
        of("split", &TREE, &["split d"]),
        of(
            "split-empty",
            &["mkdir d 755"],
            &["split d", "create d/f 644 -"],
        ),
        of("split-inner", &rooted, &["split d/e", "close-pool"]),
        of("split-outer", &inner, &["split d", "close-pool"]),
        of(
            "split-and-use-slots",
            &TREE,
            &["split d", "symlink %(74x4095) s", "link f d/k"],
        ),
        of(
            "split-with-dead",
            &dead,
            &["split d", "maintain", "create d/e/k 644 -", "close-pool"],
        ),
        of(
            "split-grows-the-table",
            &grown,
            &["split d", "create d/f 644 -", "close-pool"],
        ),
        of("merge", &rooted, &["merge d"]),
        of(
            "merge-empty",
            &["mkdir d 755", "split d"],
            &["merge d", "create d/f 644 -"],
        ),
        of(
            "merge-inner",
            &with(&["split d", "split d/e"]),
            &["merge d/e", "merge d"],
        ),
        of(
            "merge-outer",
            &with(&["split d", "split d/e"]),
            &["merge d", "close-pool"],
        ),
        of(
            "merge-with-dead",
            &dead_rooted,
            &["merge d", "split x", "maintain", "close-pool"],
        ),
        of(
            "merge-and-split",
            &rooted,
            &["merge d", "split x", "split d"],
        ),
        of(
            "root-renamed",
            &rooted,
            &["rename d n 0", "create n/k 644 -"],
        ),
        of(
            "root-renamed-across",
            &both,
            &["rename d x/d 0", "rename x n 0", "close-pool"],
        ),
        of(
            "root-replaces",
            &both,
            &["unlink x/y", "rename d x 0", "maintain", "close-pool"],
        ),
        of(
            "roots-change-places",
            &both,
            &["rename d x 2", "close-pool"],
        ),
        of(
            "root-changes-places",
            &rooted,
            &["rename d x 2", "unlink x/g"],
        ),
        of(
            "root-below-what-is-moved",
            &inner,
            &["rename d n 0", "create n/e/k 644 -"],
        ),
        of(
            "moved-into-root",
            &with(&["split x"]),
            &["rename d x/d 0", "unlink x/d/e/h"],
        ),
        of(
            "moved-out-of-root",
            &rooted,
            &["rename d/e e 0", "close-pool"],
        ),
        of(
            "moved-with-dead",
            &emptied,
            &["rename a x/a 0", "merge x", "close-pool"],
        ),
        of(
            "changes-places-with-dead",
            &emptied,
            &["rename a x/y 2", "close-pool"],
        ),
    ]
}

/// Each move, and any other operation behind it.
fn beside() -> Vec<Workload> {
    let of_each = |&other: &&'static str| {
        let name = other.replace([' ', '/'], "-");
        let split = of(&format!("split-and-{name}"), &TREE, &["split d", other]);
        let merge = with(&["split d"]);
        let merge = of(&format!("merge-and-{name}"), &merge, &["merge d", other]);
        [split, merge]
    };
    OTHERS.iter().flat_map(of_each).collect()
}

/// Roots that are removed: their lines are nobody's, and are used again.
fn gone() -> Vec<Workload> {
    let rooted = ["mkdir d 755", "split d", "mkdir n 755"];
    let used = [&rooted[..], &[FILE, "link f d/g", "unlink d/g"]].concat();
    let again = [
        "rmdir d",
        "maintain",
        "split n",
        "create n/f 644 -",
        "close-pool",
    ];
    let open = [
        &rooted[..],
        &[
            "mkdir d/e 755",
            FILE,
            "link f d/e/g",
            "unlink d/e/g",
            "open+directory 1 d/e 0",
        ],
    ]
    .concat();
    vec![
        of("root-removed", &rooted, &again),
        of("root-removed-with-dead", &used, &again),
        of("root-removed-and-closed", &used, &["rmdir d", "close-pool"]),
        of(
            "root-removed-and-recovered",
            &used,
            &["rmdir d", "recover", "split n", "close-pool"],
        ),
        of(
            "root-removed-with-open-directory",
            &open,
            &[
                "rmdir d/e",
                "rmdir d",
                "maintain",
                "split n",
                "close-slot 1",
                "maintain",
                "close-pool",
            ],
        ),
        of(
            "merge-with-open-directory",
            &open,
            &[
                "rmdir d/e",
                "merge d",
                "split n",
                "close-slot 1",
                "maintain",
                "close-pool",
            ],
        ),
    ]
}

/// Rounds of evolving, which split, merge or do both by what was done before.
fn evolving() -> Vec<Workload> {
    let large = ["mkdir d 755", "mkdir d/e 755", FILE, "12* link f d/e/g#"];
    let hot = [&large[..], &["rename d/e d/k 0"]].concat();
    let cold = with(&["split d", "split d/e", "evolve 63"]);
    let both = [
        &large[..],
        &[
            "2* mkdir r# 755",
            "2* split r#",
            "evolve 63",
            "rename d/e d/k 0",
        ],
    ]
    .concat();
    let heir = [
        &large[..],
        &["split d", "evolve 63", "128* stat d/e/g1 follow"],
    ]
    .concat();
    vec![
        of(
            "evolve-splits",
            &hot,
            &["evolve 1", "create d/k/h 644 -", "rename d/k n 0"],
        ),
        of("evolve-merge", &cold, &["evolve 1"]),
        of("evolve-merges", &cold, &["evolve 1", "create d/e/k 644 -"]),
        of("evolve-splits-and-merges", &both, &["evolve 1"]),
        of("evolve-inherits", &heir, &["evolve 1", "rename d/e n 0"]),
        of(
            "evolve-and-close",
            &hot,
            &["evolve 1", "close-pool", "open-pool", "create d/k/h 644 -"],
        ),
    ]
}

/// Recovery of what is between two steps of a move.
fn recovered() -> Vec<Workload> {
    let rooted = with(&["split d"]);
    let again = [
        "open-pool",
        "create d/e/k 644 -",
        "rename d n 0",
        "close-pool",
    ];
    let used = ["open-pool", "symlink %(74x4095) s", "link f d/k", "recover"];
    let removed = [
        "mkdir d 755",
        FILE,
        "link f d/g",
        "unlink d/g",
        "split d",
        "mkdir n 755",
    ];
    let after = ["open-pool", "split n", "create n/f 644 -", "close-pool"];
    vec![
        of("recover-split", &TREE, &again).cut("split d", "journal/record-durable", true),
        of("recover-split-applied", &TREE, &again).cut("split d", "move/done-durable", true),
        of("recover-split-undone", &TREE, &again).cut("split d", "move/copies-durable", false),
        of("recover-split-and-use-slots", &TREE, &used).cut(
            "split d",
            "journal/retire-durable",
            true,
        ),
        of("recover-merge", &rooted, &again).cut("merge d", "journal/record-durable", true),
        of("recover-merge-undone", &rooted, &again).cut("merge d", "move/copies-durable", false),
        of("recover-merge-and-use-slots", &rooted, &used).cut(
            "merge d",
            "journal/retire-durable",
            true,
        ),
        of(
            "recover-root-renamed",
            &rooted,
            &["open-pool", "create n/k 644 -", "close-pool"],
        )
        .cut("rename d n 0", "journal/record-durable", true),
        of("recover-root-removed", &removed, &after).cut("rmdir d", "remove/life-durable", true),
    ]
}
