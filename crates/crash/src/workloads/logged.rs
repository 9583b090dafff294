//! Pools where only syncs make anything durable: with a log on a disk, possibly with their data on
//! another one; or in persistent memory, with their data on a disk. The workloads are single
//! operations, each followed by a sync; several operations before one sync; checkpoints; and a full
//! log.

use vellum::MappingKind;

use super::{files, single_operations};
use crate::workload::{PoolKind, Step, Workload};

/// Single operations on such pools, each followed by a sync, and sequences that only matter there.
pub fn logged_workloads() -> Vec<Workload> {
    let all = PoolKind::ON_DISKS.map(on).into_iter().flatten();
    all.chain(files::grown()).collect()
}

/// The workloads on this kind of pool.
pub(super) fn on(pool_kind: PoolKind) -> Vec<Workload> {
    let alone = single_operations().into_iter().filter(suits);
    let synced = alone.map(|mut workload| {
        if !workload.explored.iter().any(Step::syncs) {
            workload.explored.push(Step::parse("sync"));
        }
        workload.logged(pool_kind)
    });
    let own = match pool_kind {
        PoolKind::Split => files::split(),
        _ => of_medium(files::logged(pool_kind), pool_kind),
    };
    let growing = match pool_kind {
        PoolKind::Logged => of_medium(growing(pool_kind), pool_kind),
        _ => Vec::new(),
    };
    synced
        .chain(of_any(pool_kind))
        .chain(own)
        .chain(growing)
        .collect()
}

/// Sequences that are the same whatever makes commits durable.
pub(super) fn of_any(pool_kind: PoolKind) -> Vec<Workload> {
    of_medium(files::of_disks(), pool_kind)
}

/// Pools that grow, and are trimmed, with mappings of each kind that can. On disks all trees are
/// the same.
pub(super) fn growing(pool_kind: PoolKind) -> Vec<Workload> {
    let mappings: &[MappingKind] = match pool_kind {
        PoolKind::Memory => &[MappingKind::HashFs, MappingKind::Radix, MappingKind::Extent],
        _ => &[MappingKind::HashFs, MappingKind::Extent],
    };
    let each = mappings.iter();
    each.flat_map(|&mapping| files::growing(mapping, pool_kind))
        .collect()
}

fn of_medium(workloads: Vec<Workload>, pool_kind: PoolKind) -> Vec<Workload> {
    let logged = workloads.into_iter().map(|one| one.logged(pool_kind));
    logged.collect()
}

/// Excludes power cuts and kills in the setup, the counting of blocks, which differs between pools,
/// and operations that stay open.
fn suits(workload: &Workload) -> bool {
    let steps = || workload.setup.iter().chain(&workload.explored);
    let is_out = |step: &Step| matches!(step, Step::Recover | Step::Full(_) | Step::Blocks(_));
    workload.cut.is_none() && !workload.crowded && !steps().any(is_out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use vellum::{NamespaceKind, disk_sites};
    use vellum_layout::Superblock;
    use vellum_media::{CrashPoints, Event, LINE_BYTES, Op, Site};
    use vellum_testing::{own_source, slice};

    use super::super::FILE;
    use super::super::files::room;
    use super::super::tried::{explored, explored_more, free_at_once, named, without};
    use super::*;
    use crate::memories::{Explored, Shared, image_after};
    use crate::record::record;
    use crate::report::Kind;
    use crate::run::Change;
    use crate::session::{CLOCK_AFTER, Session, blank_image, mount};
    use crate::tree::{Tree, read_tree};

    /// A short run records a quarter of them.
    #[test]
    fn all_of_them_run() {
        let source = own_source!();
        let key = |workload: &Workload| format!("{} {source}", workload.name);
        for workload in slice(4, logged_workloads(), key) {
            record(&workload).unwrap();
        }
    }

    /// Tests one of each family of operations; the explorer has all of them.
    #[test]
    fn what_was_synced_survives_a_power_cut_and_no_operation_is_half_there() {
        for name in NAMES {
            let report = explored(name, Change::None);
            assert_eq!(
                report.counts.violations, 0,
                "{name}: {:?}",
                report.violations
            );
            assert!(report.counts.distinct > 20, "{name}: {:?}", report.counts);
        }
    }

    #[test]
    fn the_same_with_data_on_another_disk() {
        for name in NAMES {
            let name = name.replace("logged-", "external-");
            let report = explored(&name, Change::None);
            assert_eq!(
                report.counts.violations, 0,
                "{name}: {:?}",
                report.violations
            );
            assert!(report.counts.distinct > 20, "{name}: {:?}", report.counts);
        }
    }

    const NAMES: [&str; 30] = [
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
        "logged-append-many",
        "logged-overwritten-after-a-ride",
        "logged-used-again-after-a-ride",
        "logged-truncated-after-a-ride",
        "logged-closed-and-opened",
        "logged-log-full",
        "logged-log-full-of-rides",
        "logged-checkpoint",
        "logged-checkpoint-of-a-ride",
        "logged-checkpoint-before-more",
        "logged-checkpoints-of-a-full-log",
        "logged-checkpoint-before-a-close",
        "logged-killed",
        "logged-killed-after-a-ride",
        "logged-killed-twice",
        "logged-killed-behind-a-checkpoint",
        "logged-killed-with-a-full-log",
        "logged-opened-and-checkpoint",
        "logged-rides-of-several-syncs",
        "logged-checkpoints-between-rides",
    ];

    #[test]
    fn every_sync_of_a_commit_and_of_a_checkpoint_is_needed() {
        for (site, name) in [
            (disk_sites::LOG_DATA_DURABLE, "logged-append-many"),
            (disk_sites::LOG_DATA_DURABLE, "external-append-many"),
            (disk_sites::LOG_DATA_DURABLE, "logged-overwrite-many"),
            (disk_sites::LOG_DATA_DURABLE, "external-overwrite-many"),
            (
                disk_sites::LOG_RIDES_DURABLE,
                "external-checkpoint-of-a-ride",
            ),
            (
                disk_sites::LOG_RIDES_DURABLE,
                "external-checkpoints-between-rides",
            ),
            (disk_sites::LOG_RIDES_DURABLE, "logged-checkpoint-of-a-ride"),
            (disk_sites::LOG_RECORD_DURABLE, "external-create-second"),
            (disk_sites::LOG_RECORD_DURABLE, "logged-create-second"),
            (disk_sites::LOG_TARGET_DURABLE, "logged-checkpoint"),
            (disk_sites::LOG_HOME_DURABLE, "logged-checkpoint"),
            (disk_sites::LOG_HOME_DURABLE, "logged-closed-and-opened"),
            (disk_sites::LOG_ANCHOR_DURABLE, "logged-log-full"),
            (disk_sites::LOG_IMAGE_NAMED, "logged-opened-and-checkpoint"),
            (disk_sites::LOG_IMAGE_OVER, "logged-killed-with-a-full-log"),
        ] {
            let report = explored_more(name, Change::By(&without(site)));
            assert!(
                report.counts.violations > 0,
                "{name} without {}",
                disk_sites::name(site)
            );
        }
    }

    /// Freed blocks are reused only after that is durable. Otherwise an epoch in which a file still
    /// has them would show what their next owner wrote.
    #[test]
    fn blocks_are_held_until_their_freeing_is_durable() {
        let name = "logged-blocks-used-again";
        let log = record(&named(name)).unwrap();
        let log = log.explored_log();
        let free_at_once = |log: &[Event]| {
            free_at_once(
                log,
                (disk_sites::LOG_BLOCK_FREE, disk_sites::LOG_RECORD_DURABLE),
            )
        };
        assert!(free_at_once(log) != log, "nothing is used again");
        let report = explored(name, Change::By(&free_at_once));
        assert!(report.counts.violations > 0);
        let wrong = &report.violations[0];
        assert_eq!(wrong.kind, Kind::Tree, "{wrong:?}");
    }

    /// The disk if the record of the last commit in `log` has arrived, but nothing else that was
    /// not synced before.
    fn with_record_alone(before: &[u8], log: &[Event]) -> Vec<u8> {
        let superblock = Superblock::unseal(before).unwrap();
        let area = superblock.log_at..superblock.log_at + superblock.log_bytes;
        let is_durable =
            |event: &Event| event.op == Op::Fence && event.site == disk_sites::LOG_RECORD_DURABLE;
        let synced = log.iter().rposition(is_durable).expect("a commit");
        let is_data =
            |event: &Event| event.op == Op::Fence && event.site == disk_sites::LOG_DATA_DURABLE;
        let data = log[..synced].iter().rposition(is_data).unwrap_or(0);
        let (arrived, rest) = log[..synced].split_at(data);
        let is_in_log =
            |event: &&Event| matches!(event.op, Op::Store { at, .. } if area.contains(&at));
        let arrived = arrived.iter().chain(rest.iter().filter(is_in_log));
        image_after(before, &arrived.copied().collect::<Vec<_>>())
    }

    /// Records contain the blocks of a small write. Each opening restores them, however many
    /// openings are cut off when nothing has arrived except their record and what they synced
    /// before it.
    #[test]
    fn journaled_data_survive_repeatedly_interrupted_openings() {
        let pool = Shared::of(blank_image(
            2,
            MappingKind::HashFs,
            NamespaceKind::Direct,
            PoolKind::Logged,
        ));
        let mut session: Session = Session::new(pool.clone(), 64);
        let mut step = |line: &str| session.step(&Step::parse(line)).unwrap();
        ["open-pool", FILE, "sync"].into_iter().for_each(&mut step);
        let before = pool.0.image();
        pool.0.start_recording();
        ["append f 5 5000", "sync"].into_iter().for_each(&mut step);
        let written = pool.0.take_log();
        let tree = tree_of(image_after(&before, &written)).unwrap();
        let mut image = with_record_alone(&before, &written);
        for opening in 0..3 {
            let pool = Shared::of(image.clone());
            pool.0.start_recording();
            let fs = mount::<Explored>(&pool, 64, CLOCK_AFTER).unwrap();
            assert!(read_tree(&fs).unwrap().nodes == tree.nodes, "{opening}");
            let next = with_record_alone(&image, &pool.0.take_log());
            assert!(next != image);
            image = next;
        }
    }

    fn tree_of(image: Vec<u8>) -> Result<Tree, String> {
        let fs = mount::<Explored>(&Shared::of(image), 64, CLOCK_AFTER);
        let tree = fs.and_then(|fs| read_tree(&fs));
        tree.map_err(|error| error.to_string())
    }

    /// A pool whose log has space for one more record, and the writing of that record, which is not
    /// synced. It comes from a rename between directories that no record in the log mentions.
    /// Returns the pool before the writing, and the writing.
    fn unsynced() -> (Vec<u8>, Vec<Event>) {
        let pool = Shared::of(blank_image(
            2,
            MappingKind::HashFs,
            NamespaceKind::Direct,
            PoolKind::Logged,
        ));
        let mut session: Session = Session::new(pool.clone(), 64);
        let mut step = |line: &str| session.step(&Step::parse(line)).unwrap();
        let tree = [
            "open-pool",
            FILE,
            "mkdir d 755",
            "mkdir e 755",
            "create d/g 644 -",
        ];
        tree.into_iter().for_each(&mut step);
        ["close-pool", "open-pool"].into_iter().for_each(&mut step);
        // The opening has made one record.
        let turns = ["chmod f 600", "sync", "chmod f 640", "sync"];
        turns
            .into_iter()
            .cycle()
            .take(2 * (room(PoolKind::Logged).0 - 2))
            .for_each(&mut step);
        let before = pool.0.image();
        pool.0.start_recording();
        step("rename d/g e/h 0");
        step("sync");
        let mut written = pool.0.take_log();
        let synced = written
            .iter()
            .position(|event| matches!(event.op, Op::Flush { .. }));
        written.truncate(synced.expect("a sync"));
        (before, written)
    }

    /// The events of a process that opens the pool after the writer was killed, and closes it,
    /// behind those of the writer. Its first sync, at `site`, covers what the writer wrote; without
    /// `syncs` it is left out.
    fn opened_after_kill(before: &[u8], written: &[Event], site: Site, syncs: bool) -> Vec<Event> {
        let pool = Shared::of(image_after(before, written));
        pool.0.start_recording();
        let fs = mount::<Explored>(&pool, 64, CLOCK_AFTER).unwrap();
        fs.close().unwrap();
        let opening = pool.0.take_log();
        let mut log = written.to_vec();
        for event in opening {
            if event.op == Op::Fence && event.site == site {
                if !syncs {
                    continue;
                }
                let lines = written.iter().filter_map(|event| match event.op {
                    Op::Store { at, .. } => Some(at - at % LINE_BYTES),
                    _ => None,
                });
                let lines: BTreeSet<u64> = lines.collect();
                log.extend(lines.into_iter().map(|line| Event {
                    op: Op::Flush { line },
                    ..event
                }));
            }
            log.push(event);
        }
        log
    }

    /// The close writes the content of all records to home, also that of a record which only the
    /// page cache had. Without a sync of that record, a power cut could leave a part of its content
    /// at home and no record.
    #[test]
    fn what_a_killed_process_wrote_to_the_log_is_synced_before_it_goes_home() {
        let (before, written) = unsynced();
        let trees =
            [before.clone(), image_after(&before, &written)].map(|image| tree_of(image).unwrap());
        assert!(trees[0].nodes != trees[1].nodes);
        let is_whole =
            |image| tree_of(image).is_ok_and(|tree| trees.iter().any(|of| of.nodes == tree.nodes));
        let torn = |syncs| {
            let log =
                opened_after_kill(&before, &written, disk_sites::LOG_INHERITED_DURABLE, syncs);
            let is_home = |event: &Event| event.site == disk_sites::LOG_HOME_DURABLE;
            assert!(log.iter().any(is_home), "the log has room");
            let (mut points, mut torn, mut seed) = (CrashPoints::new(before.clone(), &log), 0, 0);
            while let Some(point) = points.next_point() {
                seed += 1;
                let states = if seed % 8 == 0 {
                    point.states(8, seed)
                } else {
                    Vec::new()
                };
                torn += states
                    .iter()
                    .filter(|state| !is_whole(point.image(state)))
                    .count();
            }
            assert!(seed > 100, "{seed} points");
            torn
        };
        assert_eq!(torn(true), 0);
        assert!(torn(false) > 0);
    }

    /// The next process reads what a killed process wrote into a file, and guarantees it when it
    /// closes the pool. No sync of the log covers data on a medium of their own.
    #[test]
    fn what_a_killed_process_wrote_into_files_is_synced_before_it_is_read() {
        let pool = Shared::of(blank_image(
            2,
            MappingKind::HashFs,
            NamespaceKind::Direct,
            PoolKind::External,
        ));
        let mut session: Session = Session::new(pool.clone(), 64);
        let mut step = |line: &str| session.step(&Step::parse(line)).unwrap();
        let synced = ["open-pool", FILE, "append f 5 30000", "sync"];
        synced.into_iter().for_each(&mut step);
        let before = pool.0.image();
        pool.0.start_recording();
        step("write f 0 9 20000");
        let written = pool.0.take_log();
        let read = tree_of(image_after(&before, &written)).unwrap();
        let stays = |syncs| {
            let site = disk_sites::LOG_INHERITED_DATA;
            let log = opened_after_kill(&before, &written, site, syncs);
            let mut points = CrashPoints::new(before.clone(), &log);
            while points.next_point().is_some() {}
            let left = tree_of(points.here().durable().to_vec()).unwrap();
            left.nodes == read.nodes
        };
        assert!(stays(true) && !stays(false));
    }
}
