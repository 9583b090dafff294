//! Tests of pools with metadata in persistent memory and data on a disk.

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

/// A kill at any point loses nothing, and no power cut reverts what the next process finds once it
/// has the pool open.
#[test]
fn a_kill_loses_nothing() {
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

/// Tests one of each family of operations, and all sequences; the explorer has all operations.
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

/// Each step of a transaction, except for those that are needed only after a kill, which have
/// workloads of their own.
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

/// Each step by which the replica becomes complete, or is marked stale. Two are left out: the fence
/// after which other threads may rely on a mark, and what only makes the next export smaller.
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

/// If a disk ignores syncs of data, a stale replica does not pass for a complete one.
#[test]
fn copies_survive_ignored_flushes() {
    for name in REPLICA {
        let report = explored_as(Mode::IgnoredFlushes, name, Change::None);
        let wrong = &report.violations;
        assert_eq!(report.counts.violations, 0, "{name}: {wrong:?}");
    }
}

/// A replica is updated only from the blocks listed as changed. Otherwise nothing above could fail.
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

/// The log without the undo records of granules that the step `site` stores to.
fn without_undo_records_of(log: &[Event], site: Site) -> Vec<Event> {
    let granule_of = |at: u64| at - at % GRANULE_BYTES;
    let stored = |event: &Event| match event.op {
        Op::Store { at, .. } if event.site == site => Some(granule_of(at)),
        _ => None,
    };
    let granules: BTreeSet<u64> = log.iter().filter_map(stored).collect();
    // The end of the current undo record, which begins with its granule.
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

/// Slots of entries and inodes that were free at the last commit need no undo record when they are
/// allocated. Slots that were freed since then do.
#[test]
fn reused_slots_get_undo_records_if_they_were_freed_since() {
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

/// Every site of undo records and replicas is reached by the workloads.
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

/// Freed blocks are reused only after that is committed. Otherwise a file that a crash restores
/// would show what their next owner wrote.
#[test]
fn blocks_are_held_until_their_freeing_is_committed() {
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
