//! Pools with metadata in persistent memory and data on a disk: what only matters there.

use std::collections::BTreeSet;

use vellum::{disk_sites, sites};
use vellum_layout::{GRANULE_BYTES, UNDO_RECORD_BYTES};
use vellum_media::{Event, Op, Site};

use super::logged::of_any;
use super::tried::{explored, explored_as, explored_nested, free_at_once, named, without};
use super::*;
use crate::id::Mode;
use crate::mutant::Mutant;
use crate::record::record;
use crate::report::Kind;
use crate::run::Change;

const ALONE: [&str; 8] = [
    "split-create-second",
    "split-unlink-one-of-two",
    "split-rename-over-file",
    "split-append-aligned",
    "split-write-into-hole",
    "split-truncate-down",
    "split-chmod",
    "split-create-first-in-directory",
];

const KILLED: [&str; 4] = [
    "split-rename-behind-a-commit",
    "split-unlink-one-of-two",
    "split-append-aligned",
    "split-several-before-a-sync",
];

/// A process that is killed anywhere loses nothing, and what the next one finds no power cut
/// takes back once the pool is open.
#[test]
fn a_kill_takes_nothing() {
    for name in KILLED {
        let report = explored_as(Mode::Kill, name, Change::None);
        assert_eq!(
            report.counts.violations, 0,
            "{name}: {:?}",
            report.violations
        );
        assert!(report.counts.distinct > 20, "{name}: {:?}", report.counts);
    }
}

fn names() -> impl Iterator<Item = String> {
    let alone = ALONE.map(str::to_owned).into_iter();
    let sequences = of_any(PoolKind::Split)
        .into_iter()
        .chain(super::files::split());
    alone.chain(sequences.map(|workload| workload.name))
}

/// One of each family of operations, and all sequences; the explorer has all operations.
#[test]
fn a_power_cut_leaves_a_tree_of_an_instant_behind_the_last_sync() {
    for name in names() {
        let report = explored(&name, Change::None);
        assert_eq!(
            report.counts.violations, 0,
            "{name}: {:?}",
            report.violations
        );
        assert!(report.counts.distinct > 20, "{name}: {:?}", report.counts);
    }
}

/// Each step of transactions, but for those that only a kill in front of the crash makes
/// needed, and what shows that it is.
#[test]
fn every_step_of_a_transaction_is_needed() {
    let of_names = ["split-two-removed", "split-rename-behind-a-commit"];
    let of_commits = ["split-create-second", "split-syncs-between"];
    for (site, names) in [
        (disk_sites::VERSIONS_ORIGINAL, of_names),
        (disk_sites::VERSIONS_ORIGINAL_DURABLE, of_names),
        (disk_sites::VERSIONS_COMMITTED, of_commits),
        (disk_sites::VERSIONS_COMMITTED_DURABLE, of_commits),
        (disk_sites::VERSIONS_TAKEN_BACK, of_names),
        (disk_sites::VERSIONS_TAKEN_BACK_DURABLE, of_names),
    ] {
        let omitted = Mutant::Omit(site.into());
        let is_caught = |name: &str| {
            let report = explored_nested(name, Change::Mutant(&omitted));
            report.counts.violations > 0
        };
        let site = disk_sites::name(site);
        assert!(names.into_iter().any(is_caught), "{names:?} without {site}");
    }
    let is_caught = |name: &str| {
        let omitted = Mutant::Omit(disk_sites::VERSIONS_INHERITED.into());
        let report = explored_as(Mode::Kill, name, Change::Mutant(&omitted));
        report.counts.violations > 0
    };
    assert!(KILLED.into_iter().any(is_caught), "without inheriting");
    for (site, name) in [
        (disk_sites::VERSIONS_DATA_DURABLE, "split-append-many"),
        (disk_sites::VERSIONS_DATA_DURABLE, "split-overwrite-many"),
        (disk_sites::VERSIONS_DATA_DURABLE, "split-killed-and-closed"),
    ] {
        let report = explored(name, Change::By(&without(site)));
        let site = disk_sites::name(site);
        assert!(report.counts.violations > 0, "{name} without {site}");
    }
}

const REPLICA: [&str; 3] = [
    "split-replica",
    "split-replica-with-new-names",
    "split-replica-after-a-kill",
];

/// Each step by which the medium alone has everything, or says that it has not; but for the
/// fence behind which other threads may rely on a mark, and what the next copy is the smaller
/// for.
#[test]
fn every_step_of_a_replica_is_needed() {
    for site in [
        disk_sites::CARRIED_STALE_DURABLE,
        disk_sites::CARRIED_BLOCKS_DURABLE,
        disk_sites::CARRIED_WHOLE_DURABLE,
    ] {
        let report = explored(REPLICA[0], Change::By(&without(site)));
        let site = disk_sites::name(site);
        assert!(report.counts.violations > 0, "without {site}");
        let wrong = &report.violations[0];
        let is_of_copy = matches!(wrong.kind, Kind::Replica | Kind::Unclean);
        assert!(is_of_copy, "without {site}: {wrong:?}");
    }
    let omitted = Mutant::Omit(disk_sites::CARRIED_CHANGED.into());
    let is_caught = |name: &str| {
        let report = explored(name, Change::Mutant(&omitted));
        let mut kinds = report.violations.iter().map(|wrong| wrong.kind);
        kinds.any(|kind| kind == Kind::Replica)
    };
    assert!(REPLICA.into_iter().any(is_caught), "without marks");
}

/// A disk that ignores syncs of data does not let a stale copy pass for a whole one.
#[test]
fn copies_survive_ignored_flushes() {
    for name in REPLICA {
        let report = explored_as(Mode::IgnoredFlushes, name, Change::None);
        let wrong = &report.violations;
        assert_eq!(report.counts.violations, 0, "{name}: {wrong:?}");
    }
}

/// A copy is made of what is listed: otherwise nothing above would be found.
#[test]
fn copies_are_made_of_what_changed() {
    let log = record(&named(REPLICA[0])).unwrap();
    let stores = |of: &[Event]| {
        let is_copied = |event: &&Event| {
            let end = PoolKind::Split.pool_bytes();
            matches!(event.op, Op::Store { at, .. } if at >= end)
        };
        of.iter().filter(is_copied).count()
    };
    let [all, some] = [&log.log[..log.begin], log.explored_log()].map(stores);
    assert!(some > 0 && some < all / 2, "{some} of {all}");
}

/// What a run leaves that keeps nothing of granules which the step `site` stores to.
fn without_undo_records_of(log: &[Event], site: Site) -> Vec<Event> {
    let granule_of = |at: u64| at - at % GRANULE_BYTES;
    let stored = |event: &Event| match event.op {
        Op::Store { at, .. } if event.site == site => Some(granule_of(at)),
        _ => None,
    };
    let granules: BTreeSet<u64> = log.iter().filter_map(stored).collect();
    // Of a version, which begins with its piece.
    let (mut end, mut is_out) = (0, false);
    let is_kept = |event: &&Event| match event.op {
        Op::Store { at, after, .. } if event.site == disk_sites::VERSIONS_ORIGINAL => {
            if at >= end || at + UNDO_RECORD_BYTES < end {
                (end, is_out) = (at + UNDO_RECORD_BYTES, granules.contains(&after));
            }
            !is_out
        }
        _ => true,
    };
    log.iter().filter(is_kept).copied().collect()
}

/// Slots of entries and inodes that were free at the last commit need no original when they are
/// taken; those that were given up since do.
#[test]
fn what_is_still_led_to_is_kept() {
    let keeps = |name: &str, site| {
        let log = record(&named(name)).unwrap();
        let log = log.explored_log();
        without_undo_records_of(log, site) != log
    };
    for (site, name) in [
        (sites::CREATE_ENTRY, "split-entries-used-again"),
        (sites::CREATE_INODE, "split-slots-used-again"),
    ] {
        assert!(!keeps("split-create-second", site));
        assert!(keeps(name, site), "{name}: nothing is used again");
        let without = |log: &[Event]| without_undo_records_of(log, site);
        let report = explored(name, Change::By(&without));
        assert!(report.counts.violations > 0, "{name}");
    }
}

/// Every site of versions and copies is one that the workloads reach.
#[test]
fn every_step_is_taken() {
    let mut reached = BTreeSet::new();
    for name in names() {
        let seen = std::sync::Mutex::new(BTreeSet::new());
        let watch = |log: &[Event]| {
            let of = log.iter().map(|event| disk_sites::name(event.site));
            seen.lock().unwrap().extend(of);
            log.to_vec()
        };
        explored(&name, Change::By(&watch));
        reached.extend(seen.into_inner().unwrap());
    }
    let all = disk_sites::ALL.iter().map(|&(_, name)| name);
    let missing: Vec<_> = all
        .filter(|name| name.starts_with("versions/") || name.starts_with("carried/"))
        .filter(|name| !reached.contains(name))
        .collect();
    assert_eq!(missing, [""; 0]);
}

/// Blocks that were given up are used again once that is committed: otherwise a file that is
/// brought back shows what their next owner wrote.
#[test]
fn blocks_are_held_until_it_is_committed_that_they_were_given_up() {
    let name = "split-blocks-used-again";
    let log = record(&named(name)).unwrap();
    let log = log.explored_log();
    let free_at_once = |log: &[Event]| {
        free_at_once(
            log,
            (
                disk_sites::VERSIONS_BLOCK_FREE,
                disk_sites::VERSIONS_COMMITTED_DURABLE,
            ),
        )
    };
    assert!(free_at_once(log) != log, "nothing is used again");
    let report = explored(name, Change::By(&free_at_once));
    assert!(report.counts.violations > 0);
    let wrong = &report.violations[0];
    assert_eq!(wrong.kind, Kind::Tree, "{wrong:?}");
}
