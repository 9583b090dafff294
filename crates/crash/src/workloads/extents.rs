//! Files of several extents: entries between others, borders that move, extents that are split and
//! joined.

use vellum::MappingKind;

use super::FILE;
use crate::workload::Workload;

/// A block, another behind a hole, and preallocated ones behind that: three entries, the last in
/// the second line of the leaf.
const THREE: [&str; 4] = [
    FILE,
    "append f 1 100",
    "write f 8192 2 100",
    "fallocate f 0 12288 20480",
];

pub(super) fn workloads() -> Vec<Workload> {
    let all = changes()
        .into_iter()
        .chain(in_large_trees())
        .chain(recoveries());
    all.map(|workload| workload.on(MappingKind::Extent))
        .collect()
}

fn changes() -> Vec<Workload> {
    let of = |name: &str, explored: &[&str]| Workload::new(name, &THREE, explored);
    // The third entry is the first of its line.
    let four = [
        FILE,
        "append f 1 100",
        "write f 8192 2 100",
        "write f 16384 3 100",
    ];
    // The second entry is the last of its line.
    let two = [FILE, "append f 1 100", "fallocate f 0 8192 24576"];
    vec![
        of("entry-between", &["write f 4096 3 100"]),
        of("border-up", &["write f 12288 3 4096"]),
        of(
            "border-up-twice",
            &["write f 12288 3 4096", "write f 16384 4 4096"],
        ),
        of("split-back", &["write f 28672 3 4096"]),
        of(
            "border-down",
            &["write f 28672 3 4096", "write f 24576 4 4096"],
        ),
        of("split-in-three", &["write f 20480 3 4096"]),
        of("punch-inside", &["fallocate f 3 20480 4096"]),
        of("punch-front", &["fallocate f 3 12288 4096"]),
        of("punch-back", &["fallocate f 3 28672 4096"]),
        of(
            "punch-entry-and-fill",
            &["fallocate f 3 8192 4096", "write f 8192 5 100"],
        ),
        of(
            "truncate-then-append",
            &["truncate f 8192", "append f 5 9000"],
        ),
        of("punch-several", &["fallocate f 3 8192 12288"]),
        of("allocate-behind", &["fallocate f 0 40960 8192"]),
        Workload::new(
            "border-up-in-line",
            &[&four[..], &["fallocate f 0 20480 20480"]].concat(),
            &["write f 20480 3 4096"],
        ),
        Workload::new(
            "join-preallocated",
            &[&four[..], &["fallocate f 0 20480 4096"]].concat(),
            &["write f 20480 3 4096"],
        ),
        Workload::new(
            "split-front-in-line",
            &[&four[..3], &["fallocate f 0 16384 20480"]].concat(),
            &["write f 16384 3 4096"],
        ),
        Workload::new("split-front-across-lines", &two, &["write f 8192 3 4096"]),
        Workload::new("split-back-across-lines", &two, &["write f 28672 3 4096"]),
        Workload::new(
            "border-down-across-lines",
            &two,
            &["write f 28672 3 4096", "write f 24576 4 4096"],
        ),
        Workload::new(
            "punch-inside-across-lines",
            &[FILE, "append f 1 100", "write f 8192 5 24576"],
            &["fallocate f 3 16384 4096"],
        ),
        Workload::new(
            "join-last",
            &[FILE, "truncate f 20000", "write f 0 3 4096"],
            &["write f 4096 4 4096", "write f 8192 5 4096"],
        ),
        Workload::new(
            "punch-only-extent",
            &[FILE, "append f 5 30000"],
            &["fallocate f 3 8192 4096"],
        ),
        Workload::new(
            "fill-only-extent",
            &[FILE, "fallocate f 0 0 4096"],
            &["write f 0 7 4096"],
        ),
        Workload::new(
            "write-in-only-extent",
            &[FILE, "fallocate f 0 0 30000"],
            &["write f 8192 5 4096"],
        ),
    ]
}

/// Uses every entry of a leaf, beginning with that one of the file: every other block is written,
/// and most are punched again, which keeps their places.
fn fill_leaf(first: u64) -> Vec<String> {
    let write = |entry: u64| format!("write f {} 7 100", entry * 8192);
    let mut steps: Vec<String> = (first..first + 150).map(write).collect();
    let (from, len) = (first * 8192, 149 * 8192);
    steps.push(format!("fallocate f 3 {from} {len}"));
    steps.extend(["maintain".to_owned(), "maintain".to_owned()]);
    steps.extend((first + 150..first + 254).map(write));
    steps
}

/// A file of one leaf, all of whose entries are used.
fn full_leaf() -> Vec<String> {
    [vec![FILE.to_owned()], fill_leaf(0)].concat()
}

fn in_large_trees() -> Vec<Workload> {
    let of = |name: &str, setup: &[String], explored: &[&str]| {
        let setup: Vec<&str> = setup.iter().map(String::as_str).collect();
        Workload::new(name, &setup, explored)
    };
    let full = full_leaf();
    let neighbour = format!("write f {} 9 100", 254 * 8192);
    let mut two_leaves = full.clone();
    two_leaves.push(neighbour.clone());
    let mut one_left = two_leaves.clone();
    one_left.push(format!("truncate f {}", 253 * 8192 + 100));
    let sparse = [
        format!("fallocate f 3 0 {}", 253 * 8192),
        "maintain".to_owned(),
        "maintain".to_owned(),
    ];
    let two_full = [&full[..], &sparse, &fill_leaf(254)].concat();
    let third = format!("write f {} 9 100", 508 * 8192);
    let between = format!("write f {} 9 100", 200 * 8192 + 4096);
    let behind = format!("write f {} 3 100", 255 * 8192);
    vec![
        of("leaf-full", &full, &[&neighbour]),
        of("leaf-rewritten-below", &two_leaves, &[&between]),
        of("leaf-linked", &two_full, &[&third]),
        of("leaf-gone", &two_leaves, &[&one_left[one_left.len() - 1]]),
        of(
            "leaf-gone-extended",
            &two_leaves,
            &[&one_left[one_left.len() - 1], "truncate f 2097152"],
        ),
        of("leaf-grafted", &one_left, &[&behind]),
        of("leaf-used-again", &full, &["write f 8192 9 100"]),
    ]
}

fn recoveries() -> Vec<Workload> {
    let of = |name: &str| Workload::new(name, &THREE, &["open-pool", "append f 9 9000"]);
    vec![
        of("recover-border").cut("write f 12288 3 4096", "extent/border-durable", false),
        of("recover-rewrite").cut("write f 20480 3 4096", "extent/node-durable", false),
        of("recover-append").cut("append f 7 9000", "write/data-durable", false),
    ]
}
