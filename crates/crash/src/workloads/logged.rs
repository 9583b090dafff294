//! Pools of which only what syncs makes anything durable: with a log, on a disk, or with their data
//! on another one; in persistent memory, with their data on a disk. Operations alone, each followed
//! by a sync; several before one; checkpoints, and a log that is full.

use vellum::{MappingKind, NamespaceKind};
use vellum_layout::{ANCHORS_BYTES, BLOCK_BYTES, Superblock};

use super::{FILE, single_operations, split};
use crate::session::blank_image;
use crate::workload::{Ground, Step, Workload};

/// A close and an opening between changes.
const CLOSED_AND_OPENED: [&str; 5] = [
    "append f 7 100",
    "close-pool",
    "open-pool",
    "chmod f 600",
    "sync",
];
/// Kills between changes.
const KILLED_TWICE: [&str; 6] = [
    "unlink f",
    "recover",
    "create g 644 -",
    "append g 7 5000",
    "recover",
    "chmod g 600",
];

/// Operations alone on such pools, with a sync behind them, and sequences that only matter there.
pub fn logged_workloads() -> Vec<Workload> {
    let all = Ground::ON_DISKS.map(on).into_iter().flatten();
    all.chain(grown()).collect()
}

/// Those on pools that lie on `ground`.
pub(super) fn on(ground: Ground) -> Vec<Workload> {
    let alone = single_operations().into_iter().filter(suits);
    let synced = alone.map(|mut workload| {
        if !workload.explored.iter().any(Step::syncs) {
            workload.explored.push(Step::parse("sync"));
        }
        workload.logged(ground)
    });
    let own = match ground {
        Ground::Split => split::sequences(),
        _ => sequences(ground),
    };
    synced.chain(of_any(ground)).chain(own).collect()
}

/// Pools with a zone that was added, and whose first one is full, or nearly: the blocks and their
/// words lie in the other one.
pub(super) fn grown() -> Vec<Workload> {
    let of = |name: &str, left: u64, setup: &[&str], explored: &[&str]| {
        let blocks = room(Ground::Grown).1 - left;
        let full = format!("fallocate p 0 0 {}", blocks * BLOCK_BYTES);
        let setup = [&["create p 644 -", &full, FILE], setup].concat();
        Workload::new(name, &setup, explored).logged(Ground::Grown)
    };
    let written = "append f 5 9000";
    vec![
        of("append", 0, &[], &[written, "sync"]),
        of("append-across", 2, &[], &["append f 5 20000", "sync"]),
        of("overwrite", 0, &[written], &["write f 4000 7 500", "sync"]),
        of(
            "overwrite-many",
            0,
            &["append f 5 60000"],
            &["write f 0 7 60000", "sync"],
        ),
        of("truncate", 0, &[written], &["truncate f 100", "sync"]),
        of(
            "used-again",
            0,
            &[written],
            &[
                "unlink f",
                "sync",
                "create g 644 -",
                "append g 7 9000",
                "sync",
            ],
        ),
        of("closed-and-opened", 0, &[written], &CLOSED_AND_OPENED),
        of("killed-twice", 0, &[written], &KILLED_TWICE),
    ]
}

/// Sequences that are the same whatever makes commits durable.
pub(super) fn of_any(ground: Ground) -> Vec<Workload> {
    let of = |name: &str, setup: &[&str], explored: &[&str]| {
        Workload::new(name, setup, explored).logged(ground)
    };
    let written = [FILE, "append f 5 9000"];
    let set_ids = [FILE, "append f 5 60000", "chmod f 6777"];
    vec![
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
        // The bytes may be durable without a commit, and so must not be before that the bits went:
        // neither do they ride, nor does a record of before bring others back.
        of(
            "set-ids-go-by-a-write",
            &set_ids,
            &["user: write f 4000 7 500", "sync"],
        ),
        of(
            "set-ids-go-by-a-punch",
            &set_ids,
            &["user: fallocate f 3 0 5000", "sync"],
        ),
        of(
            "set-ids-go-before-a-write",
            &set_ids,
            &["chmod f 777", "write f 4000 7 500", "sync"],
        ),
        // More blocks than ride in a record.
        of("append-many", &[FILE], &["append f 5 60000", "sync"]),
        // The same inside the size: nothing but the bytes tells whether they were synced.
        of(
            "overwrite-many",
            &[FILE, "append f 5 60000"],
            &["write f 0 7 60000", "sync"],
        ),
        of("closed-and-opened", &written, &CLOSED_AND_OPENED),
        of("killed-twice", &written, &KILLED_TWICE),
    ]
}

/// Neither a power cut nor a kill in the setup, and nothing that counts the blocks of another pool,
/// or holds an operation open.
fn suits(workload: &Workload) -> bool {
    let steps = || workload.setup.iter().chain(&workload.explored);
    let is_out = |step: &Step| matches!(step, Step::Recover | Step::Full(_) | Step::Blocks(_));
    workload.cut.is_none() && !workload.crowded && !steps().any(is_out)
}

/// Records of a block that the log of the explorer's pools has room for, and blocks of files in
/// them.
fn room(ground: Ground) -> (usize, u64) {
    let image = blank_image(2, MappingKind::HashFs, NamespaceKind::Direct, ground);
    let of = |superblock: Superblock| (superblock.log_bytes, superblock.geometry().zone_blocks);
    let (log_bytes, blocks) = Superblock::unseal(&image).map_or((0, 0), of);
    let records = log_bytes.saturating_sub(ANCHORS_BYTES) / BLOCK_BYTES;
    (records as usize, blocks)
}

fn sequences(ground: Ground) -> Vec<Workload> {
    let of = |name: &str, setup: &[&str], explored: &[&str]| {
        Workload::new(name, setup, explored).logged(ground)
    };
    let written = [FILE, "append f 5 9000"];
    let (records, blocks) = room(ground);
    let [others, most] =
        [3, 6].map(|left| format!("fallocate p 0 0 {}", (blocks - left) * BLOCK_BYTES));
    let mut all = vec![
        of(
            "blocks-used-again",
            // What rides an opening brings back: not behind a checkpoint.
            &[
                FILE,
                "append f 5 9000",
                "sync",
                "create p 644 -",
                &others,
                "sync",
                "checkpoint",
            ],
            &[
                "unlink f",
                "maintain",
                "create g 644 -",
                "append g 7 9000",
                "sync",
            ],
        ),
        // The first rides; the second is too long to ride, and the sync before its record voids
        // that.
        of(
            "overwritten-after-a-ride",
            &[FILE, "append f 5 20000"],
            &["write f 0 7 5000", "sync", "write f 100 9 19000", "sync"],
        ),
        of(
            "used-again-after-a-ride",
            &[FILE, "create p 644 -", &most],
            &[
                "append f 5 5000",
                "sync",
                "unlink f",
                "maintain",
                "create g 644 -",
                "append g 7 20000",
                "sync",
            ],
        ),
        of(
            "truncated-after-a-ride",
            &[FILE],
            &[
                "append f 5 5000",
                "sync",
                "truncate f 100",
                "sync",
                "truncate f 5000",
                "sync",
            ],
        ),
        of(
            "checkpoint-of-a-ride",
            &[FILE, "sync"],
            &["append f 5 5000", "sync", "checkpoint", "unlink f", "sync"],
        ),
    ];
    let turns = ["chmod f 600", "sync", "chmod f 640", "sync"];
    let mut full = vec![FILE];
    // Each makes a record of one block, the opening too; the third of those that are explored finds
    // no room.
    full.extend(turns.iter().cycle().take(2 * (records - 3)));
    all.push(of("log-full", &full, &turns.repeat(2)));
    let rides = ["write f 0 7 300", "sync", "write f 100 9 300", "sync"];
    all.push(of("log-full-of-rides", &full, &rides.repeat(2)));
    all.extend(killed(ground, &full));
    all.extend([
        of(
            "checkpoint",
            &[FILE, "sync", "mkdir d 755", "sync", "append f 5 300"],
            &["rename f d/g 0", "sync", "checkpoint"],
        ),
        of("checkpoint-alone", &[FILE, "sync"], &["checkpoint"]),
        of(
            "checkpoint-before-more",
            &[FILE, "sync", "chmod f 600"],
            &["checkpoint", "link f g", "sync", "unlink f", "checkpoint"],
        ),
        // The records of the second, too, lie where those of the first did not.
        of(
            "checkpoints-of-a-full-log",
            &full,
            &["checkpoint", "chmod f 700", "checkpoint", "sync"],
        ),
        of(
            "checkpoint-before-a-close",
            &[FILE, "sync", "append f 5 300"],
            &["checkpoint", "unlink f", "close-pool"],
        ),
        // Blocks of several records need not be where they belong.
        of(
            "rides-of-several-syncs",
            &written,
            &[
                "write f 0 7 300",
                "sync",
                "write f 5000 9 300",
                "sync",
                "write f 100 8 300",
                "sync",
            ],
        ),
        // The data are synced for the first checkpoint, and the second passes what rode behind it.
        of(
            "checkpoints-between-rides",
            &written,
            &[
                "write f 0 7 300",
                "sync",
                "checkpoint",
                "write f 100 9 300",
                "sync",
                "checkpoint",
                "chmod f 600",
                "sync",
            ],
        ),
    ]);
    all
}

/// Processes that are killed and leave their images, which the next ones take into the log: nothing
/// that had returned is lost, and from the end of the opening on no power cut takes it either.
fn killed(ground: Ground, full: &[&str]) -> Vec<Workload> {
    let of = |name: &str, setup: &[&str], explored: &[&str]| {
        Workload::new(name, setup, explored).logged(ground)
    };
    let written = [FILE, "append f 5 9000", "sync"];
    vec![
        of(
            "killed",
            &written,
            &["append f 7 100", "mkdir d 755", "rename f d/g 0", "recover"],
        ),
        // What rides in the last record is older than what the killed process wrote over it.
        of(
            "killed-after-a-ride",
            &written,
            &["write f 0 7 300", "sync", "write f 0 9 300", "recover"],
        ),
        of(
            "killed-behind-a-checkpoint",
            &written,
            &[
                "chmod f 600",
                "sync",
                "checkpoint",
                "chmod f 640",
                "recover",
            ],
        ),
        // The adopter's record is the last that has room.
        of(
            "killed-with-a-full-log",
            full,
            &["chmod f 600", "sync", "chmod f 640", "recover"],
        ),
        // Nothing was synced since the opening named its image.
        of(
            "opened-and-checkpoint",
            &[FILE, "close-pool"],
            &["open-pool", "checkpoint", "chmod f 600", "sync"],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use vellum::disk_sites;
    use vellum_media::{CrashPoints, Event, LINE_BYTES, Op, Site};

    use super::super::tried::{explored, explored_more, free_at_once, named, without};
    use super::*;
    use crate::memories::{Explored, Shared, image_after};
    use crate::record::record;
    use crate::report::Kind;
    use crate::run::Change;
    use crate::session::{CLOCK_AFTER, Session, mount};
    use crate::tree::{Tree, read_tree};

    #[test]
    fn all_of_them_run() {
        for workload in logged_workloads() {
            record(&workload).unwrap();
        }
    }

    /// One of each family of operations; the explorer has all of them.
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
            let name = name.replace("logged-", "apart-");
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
            (disk_sites::LOG_DATA_DURABLE, "apart-append-many"),
            (disk_sites::LOG_DATA_DURABLE, "logged-overwrite-many"),
            (disk_sites::LOG_DATA_DURABLE, "apart-overwrite-many"),
            (disk_sites::LOG_RIDES_DURABLE, "apart-checkpoint-of-a-ride"),
            (
                disk_sites::LOG_RIDES_DURABLE,
                "apart-checkpoints-between-rides",
            ),
            (disk_sites::LOG_RIDES_DURABLE, "logged-checkpoint-of-a-ride"),
            (disk_sites::LOG_RECORD_DURABLE, "apart-create-second"),
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

    /// Blocks that were given up are used again once that is durable: otherwise an epoch in which a
    /// file still has them shows what their next owner wrote.
    #[test]
    fn blocks_are_held_until_it_is_durable_that_they_were_given_up() {
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

    /// What is on the disk if nothing has arrived of the last commit in `log`, and of what came
    /// before and was not synced, but its record.
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

    /// Records have what is to be in the blocks of a small write, and each opening makes sure of
    /// it, however many of them are cut off when nothing but their record has arrived, and what
    /// they synced before it.
    #[test]
    fn what_rides_stays_however_often_an_opening_is_cut_off() {
        let pool = Shared::of(blank_image(
            2,
            MappingKind::HashFs,
            NamespaceKind::Direct,
            Ground::Logged,
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

    /// A pool whose log has room for one more record, made by a rename between directories that no
    /// record there tells of; the record is written, and not synced. Gives the pool before that,
    /// and the writing.
    fn unsynced() -> (Vec<u8>, Vec<Event>) {
        let pool = Shared::of(blank_image(
            2,
            MappingKind::HashFs,
            NamespaceKind::Direct,
            Ground::Logged,
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
        // The opening has made one.
        let turns = ["chmod f 600", "sync", "chmod f 640", "sync"];
        turns
            .into_iter()
            .cycle()
            .take(2 * (room(Ground::Logged).0 - 2))
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

    /// What a process does that opens the pool after the one that wrote this and was killed, and
    /// closes it: the sync with which it begins is of what that one wrote. `syncs`: it does so, at
    /// `site`.
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

    /// At the close all that records say goes home, also of that one which only the page cache had:
    /// without the sync of it, a power cut leaves a part of that at home, and no record.
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

    /// What a killed process wrote into a file is what the next one reads, and vouches for when it
    /// closes the pool: on a medium of their own, data are synced by no sync of the log.
    #[test]
    fn what_a_killed_process_wrote_into_files_is_synced_before_it_is_read() {
        let pool = Shared::of(blank_image(
            2,
            MappingKind::HashFs,
            NamespaceKind::Direct,
            Ground::Apart,
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
