//! Directories that become roots of areas, or are roots no more, beside calls on them and on what
//! is below.

use vellum::NamespaceKind;

use super::catalog::{FILE, two};
use super::workload::ThreadWorkload;

/// The workloads.
pub(super) fn workloads() -> Vec<ThreadWorkload> {
    let member = ["mkdir d 755", "create d/f 644 -", "mkdir d/e 755", FILE];
    let root = [&member[..], &["split d"]].concat();
    let empty = ["mkdir d 755", "split d", "mkdir e 755"];
    let all = [
        two("split+create", &member, &["split d"], &["create d/g 644 -"]),
        two(
            "split+rename",
            &member,
            &["split d"],
            &["rename d e 0", "unlink e/f"],
        ),
        two(
            "split+unlink-rmdir",
            &member[..2],
            &["split d"],
            &["unlink d/f", "rmdir d"],
        ),
        two("split+list", &member, &["split d"], &["readdir d"]),
        two("merge+create", &root, &["merge d"], &["link f d/g"]),
        two(
            "merge+rename",
            &root,
            &["merge d"],
            &["rename d e 0", "unlink e/f"],
        ),
        two(
            "merge+rename-away",
            &root,
            &["merge d"],
            &["rename d/e e 0", "unlink d/f"],
        ),
        two("merge+rmdir", &empty, &["merge d"], &["rmdir d"]),
        two(
            "rename+rename-root",
            &root,
            &["rename d e 0"],
            &["rename d/f g 0"],
        ),
    ];
    let within = |workload: ThreadWorkload| workload.within(NamespaceKind::Adaptive);
    all.into_iter().map(within).collect()
}
