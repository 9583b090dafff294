//! Pools with a log, on a disk: operations alone, each followed by a sync; several before one; a log that is full.

use vellum::{MappingKind, NamespaceKind};
use vellum_layout::{ANCHORS_BYTES, BLOCK_BYTES, Superblock};

use super::{FILE, single_operations};
use crate::session::blank_image;
use crate::workload::{Step, Workload};

/// Operations alone on a pool with a log, with a sync behind them, and sequences that only matter there.
pub fn logged_workloads() -> Vec<Workload> {
    let alone = single_operations().into_iter().filter(suits);
    let synced = alone.map(|mut workload| {
        if !workload.explored.iter().any(Step::syncs) {
            workload.explored.push(Step::parse("sync"));
        }
        workload.logged()
    });
    synced.chain(sequences()).collect()
}

/// Neither a power cut nor a kill in the setup, and nothing that counts the blocks of another pool, or holds an operation open.
fn suits(workload: &Workload) -> bool {
    let steps = || workload.setup.iter().chain(&workload.explored);
    let is_out = |step: &Step| matches!(step, Step::Recover | Step::Full(_) | Step::Blocks(_));
    workload.cut.is_none() && !workload.crowded && !steps().any(is_out)
}

/// Records of a block that the log of the explorer's pools has room for.
fn records() -> usize {
    let image = blank_image(2, MappingKind::HashFs, NamespaceKind::Direct, true);
    let log_bytes = Superblock::unseal(&image).map_or(0, |superblock| superblock.log_bytes);
    (log_bytes.saturating_sub(ANCHORS_BYTES) / BLOCK_BYTES) as usize
}

fn sequences() -> Vec<Workload> {
    let of = |name: &str, setup: &[&str], explored: &[&str]| {
        Workload::new(name, setup, explored).logged()
    };
    let written = [FILE, "append f 5 9000"];
    let mut all = vec![
        of(
            "several-before-a-sync",
            &["mkdir d 755"],
            &[
                "create d/f 644 -",
                "append d/f 5 5000",
                "rename d/f g 0",
                "sync",
            ],
        ),
        of(
            "syncs-between",
            &written,
            &["append f 7 100", "sync", "link f g", "unlink f", "sync"],
        ),
        of(
            "blocks-used-again",
            &[
                FILE,
                "append f 5 9000",
                "create p 644 -",
                "fallocate p 0 0 1300000",
            ],
            &[
                "unlink f",
                "maintain",
                "create g 644 -",
                "append g 7 9000",
                "sync",
            ],
        ),
        of(
            "closed-and-opened",
            &written,
            &[
                "append f 7 100",
                "close-pool",
                "open-pool",
                "chmod f 600",
                "sync",
            ],
        ),
    ];
    let turns = ["chmod f 600", "sync", "chmod f 640", "sync"];
    let mut full = vec![FILE];
    // Each makes a record of one block, the opening too; the third of those that are explored finds no room.
    full.extend(turns.iter().cycle().take(2 * (records() - 3)));
    all.push(of("log-full", &full, &turns.repeat(2)));
    all
}

#[cfg(test)]
mod tests {
    use vellum::disk_sites;
    use vellum_media::{Event, Op, Site};

    use super::*;
    use crate::id::Mode;
    use crate::record::record;
    use crate::report::WorkloadReport;
    use crate::run::{Change, Options, Progress, explore_recorded};

    fn options() -> Options {
        Options {
            states_per_point: 12,
            nested_states: 6,
            nested_recoveries: [2, 1],
            ..Options::default()
        }
    }

    fn named(name: &str) -> Workload {
        let all = logged_workloads();
        let found = all.into_iter().find(|workload| workload.name == name);
        found.unwrap_or_else(|| panic!("no workload {name}"))
    }

    fn explored(name: &str, change: Change<'_>) -> WorkloadReport {
        let recorded = record(&named(name)).unwrap();
        let progress = Progress::default();
        explore_recorded(&recorded, Mode::X86, change, &options(), &progress)
    }

    #[test]
    fn all_of_them_run() {
        for workload in logged_workloads() {
            record(&workload).unwrap();
        }
    }

    /// One of each family of operations; all of them are in the long tests.
    #[test]
    fn what_was_synced_survives_a_power_cut_and_no_operation_is_half_there() {
        for name in [
            "logged-create-second",
            "logged-unlink-one-of-two",
            "logged-rename-over-file",
            "logged-append-aligned",
            "logged-write-into-hole",
            "logged-truncate-down",
            "logged-chmod",
            "logged-several-before-a-sync",
            "logged-syncs-between",
            "logged-blocks-used-again",
            "logged-closed-and-opened",
            "logged-log-full",
        ] {
            let report = explored(name, Change::None);
            assert_eq!(
                report.counts.violations, 0,
                "{name}: {:?}",
                report.violations
            );
            assert!(report.counts.distinct > 20, "{name}: {:?}", report.counts);
        }
    }

    /// What a run leaves in which the sync at `site` does nothing.
    fn without(site: Site) -> impl Fn(&[Event]) -> Vec<Event> + Sync {
        move |log| {
            let mut kept = Vec::with_capacity(log.len());
            for &event in log {
                if event.op == Op::Fence && event.site == site {
                    while let Some(Op::Flush { .. }) = kept.last().map(|event: &Event| event.op) {
                        kept.pop();
                    }
                } else {
                    kept.push(event);
                }
            }
            kept
        }
    }

    #[test]
    fn every_sync_of_a_commit_is_needed() {
        for (site, name) in [
            (disk_sites::LOG_DATA_DURABLE, "logged-append-aligned"),
            (disk_sites::LOG_RECORD_DURABLE, "logged-create-second"),
            (disk_sites::LOG_HOME_DURABLE, "logged-closed-and-opened"),
            (disk_sites::LOG_ANCHOR_DURABLE, "logged-log-full"),
        ] {
            let report = explored(name, Change::By(&without(site)));
            assert!(
                report.counts.violations > 0,
                "{name} without {}",
                disk_sites::name(site)
            );
        }
    }
}
