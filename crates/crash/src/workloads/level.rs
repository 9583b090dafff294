//! What only a level table does: entries that move to make room for others, and growth, which
//! empties the old bottom level line by line.
//!
//! The table of the explorer's pools begins with 18 lines, and with 72 entries it is full. The old
//! bottom level of the first growth has six lines, that of the second twelve.

use vellum::MappingKind;

use super::FILE;
use crate::workload::Workload;

pub(super) fn workloads() -> Vec<Workload> {
    let all = moving().into_iter().chain(growing()).chain(recovering());
    all.map(|workload| workload.on(MappingKind::Level))
        .collect()
}

/// With as many blocks in use, the first block of `f` makes the one after the fourth of `g` move.
const TIGHT: &str = "append g 5 278528";
/// Full: the next block begins a growth.
const FULL: &str = "append g 5 294912";
/// The growth has begun: the next block empties a line, of blocks 44, 60, 63 and 71 of `g`.
const BEGUN: &str = "append g 5 299008";
/// The next block empties the last line.
const NEARLY: &str = "append g 5 319488";
/// Both levels are full, for the second time.
const FULL_AGAIN: &str = "append g 5 589824";

const NEXT: &str = "append f 7 4096";
const MORE: &str = "append f 9 8192";

fn of(name: &str, fill: &str, explored: &[&str]) -> Workload {
    Workload::new(name, &[FILE, "create g 644 -", fill], explored)
}

/// One entry that moves.
fn moving() -> Vec<Workload> {
    vec![
        of("move", TIGHT, &[NEXT]),
        of("move-allocate", TIGHT, &["fallocate f 0 0 4096"]),
        of("move-punch", TIGHT, &[NEXT, "fallocate g 3 16384 4096"]),
        of("move-unlink", TIGHT, &[NEXT, "unlink g", "maintain"]),
        of("move-close", TIGHT, &[NEXT, "close-pool", "open-pool"]),
    ]
}

/// Growth that begins, goes on and ends; what changes meanwhile; and closes in the middle.
fn growing() -> Vec<Workload> {
    let punch = "fallocate g 3 0 294912";
    let reopened = ["close-pool", "open-pool"];
    let with = |steps: &[&'static str]| [steps, &reopened].concat();
    vec![
        of("grow-begin", FULL, &[NEXT]),
        of("grow-begin-allocate", FULL, &["fallocate f 0 0 8192"]),
        of("grow-begin-more", FULL, &[NEXT, MORE]),
        of("grow-on", BEGUN, &[NEXT]),
        of("grow-on-punch", BEGUN, &[NEXT, punch]),
        of("grow-on-truncate", BEGUN, &["truncate g 180224", NEXT]),
        of("grow-on-unlink", BEGUN, &[NEXT, "unlink g", "maintain"]),
        of("grow-on-overwrite", BEGUN, &[NEXT, "write g 180224 9 8192"]),
        of("grow-on-close", BEGUN, &with(&[NEXT])),
        of(
            "grow-on-reopened",
            BEGUN,
            &[&reopened[..], &[NEXT]].concat(),
        ),
        of("grow-end", NEARLY, &[NEXT]),
        of("grow-end-close", NEARLY, &with(&[NEXT])),
        of("grow-end-empty", BEGUN, &with(&["unlink g", "maintain"])),
        of("grow-whole", FULL, &["append f 7 28672"]),
        of("grow-again", FULL_AGAIN, &[NEXT]),
    ]
}

/// Recoveries in the middle of a growth, and what comes next.
fn recovering() -> Vec<Workload> {
    let cut = |name: &str, fill: &str, after: &'static str, next: &[&'static str]| {
        let explored = [&["open-pool"], next].concat();
        of(name, fill, &explored).cut(NEXT, after, false)
    };
    let punch = "fallocate g 3 180224 114688";
    vec![
        cut("recover-begun", FULL, "level/begin-durable", &[MORE]),
        cut("recover-moving", BEGUN, "level/copy-durable", &[punch]),
        cut(
            "recover-moved",
            BEGUN,
            "level/leave-durable",
            &["close-pool"],
        ),
        cut("recover-move", TIGHT, "level/copy-durable", &["unlink g"]),
        cut(
            "recover-extend",
            BEGUN,
            "write/data-durable",
            &["truncate f 9000"],
        ),
        cut(
            "recover-ended",
            NEARLY,
            "write/data-durable",
            &["close-pool"],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use vellum::sites;

    use super::*;
    use crate::record::record;

    /// How often the steps after the setup reach a site.
    fn times(fill: &str, site: &str) -> usize {
        let workload = of("fills", fill, &[NEXT]).on(MappingKind::Level);
        let recorded = record(&workload).unwrap();
        let after = recorded.log[recorded.begin..].iter();
        after
            .filter(|event| sites::name(event.site) == site)
            .count()
    }

    #[test]
    fn fills_are_what_they_say() {
        assert_eq!(times(TIGHT, "level/copy"), 1);
        assert_eq!(times(FULL, "level/begin"), 1);
        assert_eq!(times(BEGUN, "level/copy"), 4);
        assert_eq!(times(NEARLY, "level/end"), 1);
        assert_eq!(times(FULL_AGAIN, "level/begin"), 1);
    }
}
