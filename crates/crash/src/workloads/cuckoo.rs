//! What only a cuckoo table does: entries that move to make room for others, and counts that are
//! cut.

use vellum::MappingKind;

use super::FILE;
use crate::workload::Workload;

pub(super) fn workloads() -> Vec<Workload> {
    let all = moving().into_iter().chain(counting()).chain(recovering());
    all.map(|workload| workload.on(MappingKind::Cuckoo))
        .collect()
}

fn of(name: &str, setup: &[&str], explored: &[&str]) -> Workload {
    Workload::new(name, setup, explored)
}

/// Block 26 of `f` finds both of its lines full; the entry of block 92 of `g` moves.
fn moving() -> Vec<Workload> {
    let tight = [FILE, "create g 644 -", "append g 5 409600"];
    let more = "fallocate f 0 106496 4096";
    vec![
        of("move", &tight, &[more]),
        of("move-append", &tight, &["write f 106496 7 4096"]),
        of(
            "move-fill",
            &[&tight[..], &["truncate f 200000"]].concat(),
            &["write f 106496 7 4096"],
        ),
        of("move-close", &tight, &[more, "close-pool", "open-pool"]),
        of("move-punch", &tight, &[more, "fallocate g 3 376832 4096"]),
        of("move-unlink", &tight, &[more, "unlink g", "maintain"]),
        of(
            "move-recover",
            &tight,
            &["open-pool", "fallocate g 3 376832 4096"],
        )
        .cut(more, "cuckoo/leave-durable", false),
        of("move-many", &tight, &["fallocate f 0 0 286720"]),
    ]
}

/// Ranges that are cut at their ends and in the middle.
fn counting() -> Vec<Workload> {
    let range = [FILE, "append f 5 40000"];
    let ahead = [FILE, "fallocate f 0 0 40000"];
    let closed = ["close-pool", "open-pool"];
    let with = |first: &'static str| [&[first][..], &closed].concat();
    vec![
        of("punch-close", &range, &with("fallocate f 3 12288 8192")),
        of("truncate-close", &range, &with("truncate f 20000")),
        of("append-close", &range, &with("append f 7 9000")),
        of("fill-close", &ahead, &with("write f 16384 7 4096")),
        of(
            "punch-fill",
            &range,
            &["fallocate f 3 12288 8192", "write f 12288 7 8192"],
        ),
    ]
}

/// Entries that recovery frees, and what comes next.
fn recovering() -> Vec<Workload> {
    let written = [FILE, "append f 5 9000"];
    let cut = ("append f 7 9000", "write/data-durable");
    let after =
        |name: &str, next: &str| of(name, &written, &["open-pool", next]).cut(cut.0, cut.1, false);
    vec![
        after("recover-extend", "truncate f 30000"),
        after("recover-append", "append f 9 9000"),
        after("recover-close", "close-pool"),
    ]
}
