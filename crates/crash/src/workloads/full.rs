//! Pools that are exactly full, with mappings other than the usual one, whose own are among the
//! operations alone: data blocks, and metadata blocks for the nodes of trees.
//!
//! What takes or needs blocks is `fallocate` where that is as good as a write: every word that is
//! written is a point to crash at.

use vellum::MappingKind;

use super::FILE;
use crate::workload::Workload;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Data blocks of the explorer's pools, if their mapping has trees.
const BLOCKS_BESIDE_TREES: u64 = 184;
/// Data blocks, if it has a table.
const BLOCKS_BESIDE_TABLE: u64 = 176;
/// Long symlinks that fit beside [`OTHERS`]. They leave the two metadata blocks that only logs and
/// trees may take.
const TEXTS: u64 = 56;
/// Files without a node, but `g`, which has one.
const OTHERS: [&str; 7] = [
    "create e 644 -",
    "fallocate e 0 0 4096",
    "create g 644 -",
    "fallocate g 0 0 4096",
    "fallocate g 0 16384 4096",
    "create h 644 -",
    "fallocate h 0 0 4096",
];
/// Three extents: what comes between them makes a new node.
const SEPARATE: [&str; 4] = [
    FILE,
    "append f 1 100",
    "write f 8192 2 100",
    "write f 16384 3 100",
];
/// Each takes a node.
const TAKING: [&str; 2] = ["fallocate h 0 16384 4096", "fallocate e 0 16384 4096"];

pub(super) fn workloads() -> Vec<Workload> {
    let others = MappingKind::ALL
        .into_iter()
        .filter(|kind| *kind != MappingKind::default());
    let all = others.flat_map(|mapping| {
        let all = data(mapping).into_iter().chain(nodes(mapping));
        all.map(move |workload| workload.on(mapping))
    });
    all.collect()
}

fn of(name: &str, setup: &[String], explored: &[&str]) -> Workload {
    let setup: Vec<&str> = setup.iter().map(String::as_str).collect();
    Workload::new(name, &setup, explored)
}

/// `f`, made by `first`, and `g`, of as many data blocks that so many are `left`.
fn data_but(mapping: MappingKind, left: u64, first: &[&str]) -> Vec<String> {
    let blocks = if mapping.has_trees() {
        BLOCKS_BESIDE_TREES
    } else {
        BLOCKS_BESIDE_TABLE
    };
    let mut setup: Vec<String> = first.iter().map(|&line| line.to_owned()).collect();
    setup.push("create g 644 -".to_owned());
    setup.push(format!("fallocate g 0 0 {}", (blocks - left) * BLOCK));
    setup
}

/// The last data block, one too few, and what was given up used again.
fn data(mapping: MappingKind) -> Vec<Workload> {
    let but = |left, first: &[&str]| data_but(mapping, left, first);
    let holes = [FILE, "truncate f 20000"];
    vec![
        of(
            "full-one-short",
            &but(1, &[FILE]),
            &["full: append f 7 5000", "append f 9 4096"],
        ),
        of(
            "full-one-short-for-holes",
            &but(1, &holes),
            &["full: write f 5000 7 9000", "fallocate f 0 8192 4096"],
        ),
        of(
            "full-cut-and-appended",
            &but(0, &[FILE]),
            &["truncate g 700000", "append f 7 100"],
        ),
        of(
            "full-punched-and-allocated",
            &but(0, &holes),
            &["fallocate g 3 8192 4096", "fallocate f 0 4096 4096"],
        ),
        of(
            "full-recover",
            &but(1, &[FILE]),
            &["open-pool", "append f 9 100"],
        )
        .cut("append f 7 100", "write/data-durable", false),
    ]
}

/// `f`, made by `first`, with so many nodes of its `own`, and others, so that so many are `left`.
fn nodes_but(left: usize, own: u64, first: &[&str]) -> Vec<String> {
    let texts = format!("{}* symlink %(74x4000) s#", TEXTS - own);
    let first = [first, &OTHERS, &[&texts], &TAKING[left..]].concat();
    first.into_iter().map(str::to_owned).collect()
}

/// A node too few, before anything is claimed and after that, and one that was given up used again.
fn nodes(mapping: MappingKind) -> Vec<Workload> {
    let used_again = of(
        "full-of-nodes-used-again",
        &nodes_but(0, 0, &[FILE, "fallocate f 0 0 4096"]),
        &[
            "full: write f 8192 7 100",
            "truncate g 0",
            "fallocate f 0 8192 4096",
        ],
    );
    match mapping {
        MappingKind::Radix => vec![used_again, node_above_node(), node_above_node_extended()],
        MappingKind::Extent => vec![
            used_again,
            extent_between(),
            extents_between(),
            extent_in_place(),
            preallocated_with_more(),
            preallocated_and_beyond(),
            behind_filled(),
        ],
        MappingKind::ExtentCached => vec![used_again],
        MappingKind::HashFs | MappingKind::Cuckoo | MappingKind::Level => Vec::new(),
    }
}

/// The second block is below another node than the first, for which the tree needs one more on top.
fn node_above_node() -> Workload {
    of(
        "full-of-nodes-half-way",
        &nodes_but(1, 1, &[FILE, "append f 5 9000"]),
        &["full: write f 2093056 7 8192", "append f 9 100"],
    )
}

/// What was claimed for the write that found no node is not there when the size moves over its
/// place.
fn node_above_node_extended() -> Workload {
    of(
        "full-of-nodes-half-way-extended",
        &nodes_but(1, 1, &[FILE, "append f 5 9000"]),
        &["full: write f 2093056 7 8192", "truncate f 2097152"],
    )
}

/// The first hole's extent takes the place of one that was punched; the second's needs a node.
fn extent_in_place() -> Workload {
    let punched = [
        &SEPARATE[..],
        &["write f 24576 4 100", "fallocate f 3 8192 4096"],
    ];
    of(
        "full-of-nodes-behind-hole",
        &nodes_but(0, 1, &punched.concat()),
        &["full: write f 4096 7 20480", "append f 9 100"],
    )
}

/// What lies behind the preallocated blocks takes the last node; the state of those would need
/// another. All are given up, and claimed anew.
fn preallocated_with_more() -> Workload {
    // The blocks behind the preallocated ones on the medium are another's.
    let first = [
        FILE,
        "fallocate f 1 0 40960",
        "create k 644 -",
        "fallocate k 0 0 688128",
        "fallocate k 3 409600 8192",
        "maintain",
        "maintain",
    ];
    of(
        "full-of-nodes-in-preallocated",
        &nodes_but(1, 1, &first),
        &["write f 32768 7 16384"],
    )
}

/// The block beyond the end needs no node, the preallocated one in front of it does.
fn preallocated_and_beyond() -> Workload {
    let first = [FILE, "fallocate f 0 0 16384", "write f 0 1 100"];
    of(
        "full-of-nodes-in-preallocated-and-beyond",
        &nodes_but(0, 1, &first),
        &["full: write f 12288 7 8192", "truncate f 24576"],
    )
}

/// The first preallocated blocks are an extent as a whole, and become the file's; the next ones, on
/// the medium elsewhere than the block in between, are the front of one.
fn behind_filled() -> Workload {
    let first = [
        FILE,
        "fallocate f 0 12288 16384",
        "fallocate f 0 0 8192",
        "write f 8192 3 100",
        "write f 28672 4 100",
    ];
    of(
        "full-of-nodes-behind-filled",
        &nodes_but(0, 1, &first),
        &["full: write f 0 7 16384", "append f 9 100"],
    )
}

fn extent_between() -> Workload {
    of(
        "full-of-nodes-for-hole",
        &nodes_but(0, 1, &SEPARATE),
        &["full: write f 12288 7 100", "append f 9 100"],
    )
}

/// The first hole's takes the last node, and is given up when there is none for the second. The old
/// nodes are free then, and there is room after all.
fn extents_between() -> Workload {
    of(
        "full-of-nodes-half-way",
        &nodes_but(1, 1, &SEPARATE),
        &["write f 4096 7 12288"],
    )
}

#[cfg(test)]
mod tests {
    use vellum::sites;

    use super::*;
    use crate::record::record;
    use crate::workload::Step;

    /// Something is claimed, and given up again when there is no node for the rest.
    #[test]
    fn nodes_run_out_half_way() {
        for workload in workloads() {
            if workload.name.ends_with("full-of-nodes-half-way") {
                let recorded = record(&workload).unwrap();
                let given_up = recorded.log[recorded.begin..]
                    .iter()
                    .any(|event| sites::name(event.site) == "write/limbo-durable");
                assert!(given_up, "{}", workload.name);
            }
        }
    }

    /// Where a step finds the pool full, it is: with one data block fewer taken, it is not.
    #[test]
    fn one_block_more_would_be_enough() {
        let one_short = |workload: &Workload| workload.name.ends_with("full-one-short");
        for mut workload in workloads().into_iter().filter(one_short) {
            record(&workload).unwrap();
            let filled = workload.setup.last_mut().unwrap();
            let blocks = if workload.mapping.has_trees() {
                182
            } else {
                174
            };
            *filled = Step::parse(&format!("fallocate g 0 0 {}", blocks * BLOCK));
            assert!(record(&workload).is_err(), "{}", workload.name);
        }
    }
}
