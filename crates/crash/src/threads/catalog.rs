//! Which threads run beside each other.

use vellum::{MappingKind, NamespaceKind};

use super::areas;
use super::workload::ThreadWorkload;

/// Makes the file that most workloads use.
pub(super) const FILE: &str = "create f 644 -";

/// Every workload of threads.
pub fn thread_workloads() -> Vec<ThreadWorkload> {
    [
        names(),
        following(),
        looking(),
        reopened(),
        bytes(),
        background(),
        three(),
        moving(),
        growing(),
        in_trees(),
        journals(),
        kept_otherwise(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(super) fn two(name: &str, setup: &[&str], one: &[&str], other: &[&str]) -> ThreadWorkload {
    ThreadWorkload::new(name, setup, &[one, other])
}

/// Calls on names that are kept otherwise than usual, and listings beside them.
fn kept_otherwise() -> Vec<ThreadWorkload> {
    let others = NamespaceKind::ALL.into_iter();
    let others = others.filter(|namespace| *namespace != NamespaceKind::default());
    let of = |namespace| {
        let listings = looking()
            .into_iter()
            .filter(|one| one.name.contains("list"));
        let all = names().into_iter().chain(listings);
        all.map(move |workload| workload.within(namespace))
    };
    others.flat_map(of).chain(areas::workloads()).collect()
}

/// Calls on names.
fn names() -> Vec<ThreadWorkload> {
    let dir = ["mkdir d 755"];
    let two_dirs = [
        "mkdir d 755",
        "mkdir e 755",
        "create d/f 644 -",
        "create e/g 600 -",
    ];
    vec![
        two(
            "create+create",
            &[],
            &["create f 644 exclusive"],
            &["create g 600 exclusive"],
        ),
        two(
            "create+create-same",
            &dir,
            &["create d/f 644 exclusive"],
            &["create d/f 600 exclusive"],
        ),
        two(
            "create+create-in-directory",
            &dir,
            &["create d/f 644 -"],
            &["create d/g 644 -"],
        ),
        two(
            "mknod+mknod-same",
            &dir,
            &["mknod d/c char-device 600 259"],
            &["mknod d/c fifo 644 0"],
        ),
        two("create+unlink", &[FILE], &["create g 644 -"], &["unlink f"]),
        two(
            "create+unlink-same",
            &[FILE],
            &["create f 600 exclusive"],
            &["unlink f"],
        ),
        two("create+rmdir", &dir, &["create d/f 644 -"], &["rmdir d"]),
        two("mkdir+rmdir", &dir, &["mkdir d/e 755"], &["rmdir d"]),
        two(
            "unlink+unlink",
            &[FILE, "link f g"],
            &["unlink f"],
            &["unlink g"],
        ),
        two(
            "unlink+rmdir",
            &["mkdir d 755", "create d/f 644 -"],
            &["unlink d/f"],
            &["rmdir d"],
        ),
        two("link+unlink", &[FILE], &["link f g"], &["unlink f"]),
        two("link+link", &[FILE], &["link f g"], &["link f h"]),
        two(
            "link+unlink-another-close",
            &[FILE, "link f g"],
            &["link f h"],
            &["unlink g"],
        )
        .closing(),
        two(
            "rename+rename-crossing",
            &two_dirs,
            &["rename d/f e/f 0"],
            &["rename e/g d/g 0"],
        ),
        two(
            "rename+rename-same",
            &two_dirs,
            &["rename d/f e/g 0"],
            &["rename e/g d/f 0"],
        ),
        two(
            "rename+rename-directories",
            &two_dirs,
            &["rename d e/d 0"],
            &["rename e d/e 0"],
        ),
        two(
            "rename+rename-away-close",
            &two_dirs,
            &["rename d/f d/h 0"],
            &["rename d/f e/h 0"],
        )
        .closing(),
        two(
            "rename+exchange",
            &two_dirs,
            &["rename d/f e/g 2"],
            &["rename d/f d/h 0"],
        ),
        two(
            "rename-over+unlink",
            &[FILE, "create g 600 -"],
            &["rename f g 0"],
            &["unlink g"],
        ),
        two(
            "rename-over+link",
            &[FILE, "create g 600 -", "link g h"],
            &["rename f g 0"],
            &["link h i"],
        ),
        two(
            "rename+create",
            &[FILE],
            &["rename f g 0"],
            &["create g 600 exclusive"],
        ),
        two(
            "rename+rmdir",
            &two_dirs,
            &["rename d/f e/f 0"],
            &["rmdir d"],
        ),
    ]
}

/// Calls on what the other thread is making: nothing of theirs may survive what it stands on.
fn following() -> Vec<ThreadWorkload> {
    let make = ["create g 644 -"];
    let rename = ["rename f g 0"];
    vec![
        two("create+link-it", &[], &make, &["link g h"]),
        two("create+append-it", &[], &make, &["append g 7 100"]),
        two("create+unlink-it", &[], &make, &["unlink g"]),
        two("create+rename-it", &[], &make, &["rename g h 0"]),
        two("mkdir+rmdir-it", &[], &["mkdir d 755"], &["rmdir d"]),
        two("mkdir+rename-it", &[], &["mkdir d 755"], &["rename d e 0"]),
        two(
            "mkdir+create-in-it",
            &[],
            &["mkdir d 755"],
            &["create d/f 644 -"],
        ),
        two("rename+unlink-it", &[FILE], &rename, &["unlink g"]),
        two("rename+append-it", &[FILE], &rename, &["append g 7 100"]),
        two(
            "rename+create-behind-it",
            &[FILE],
            &rename,
            &["create f 600 exclusive"],
        ),
        two(
            "link+unlink-both",
            &[FILE],
            &["link f g"],
            &["unlink f", "unlink g"],
        ),
        two(
            "unlink+create-again",
            &[FILE],
            &["unlink f"],
            &["create f 600 exclusive", "append f 7 10"],
        ),
        two(
            "unlink+rmdir-above",
            &["mkdir d 755", "create d/f 644 -"],
            &["unlink d/f"],
            &["rmdir d"],
        ),
        two(
            "rmdir+mkdir-again",
            &["mkdir d 755"],
            &["rmdir d"],
            &["mkdir d 700"],
        ),
    ]
}

/// Directories whose names are not in the index yet: it is made from a log that somebody writes.
fn reopened() -> Vec<ThreadWorkload> {
    let with = |more: &[&'static str]| {
        let first = ["mkdir d 755", "3* create d/f# 644 -"];
        [&first[..], more, &["close-pool", "open-pool"]].concat()
    };
    let (few, dead) = (with(&[]), with(&["unlink d/f2"]));
    vec![
        two(
            "create+stat-reopened",
            &few,
            &["create d/g 644 -"],
            &["stat d/g -", "stat d/f1 -"],
        ),
        two(
            "create+list-reopened",
            &few,
            &["create d/g 644 -"],
            &["readdir d"],
        ),
        two(
            "create+create-reopened",
            &few,
            &["create d/g 644 -"],
            &["create d/h 644 -"],
        ),
        two(
            "unlink+stat-reopened",
            &few,
            &["unlink d/f1"],
            &["stat d/f1 -"],
        ),
        two(
            "unlink+list-reopened",
            &dead,
            &["unlink d/f1"],
            &["readdir d"],
        ),
        two(
            "rename+stat-reopened",
            &few,
            &["rename d/f1 d/g 0"],
            &["stat d/g -", "stat d/f1 -"],
        ),
        two(
            "rmdir+create-reopened",
            &["mkdir d 755", "close-pool", "open-pool"],
            &["rmdir d"],
            &["create d/f 644 -"],
        ),
    ]
}

/// Readers beside writers: what they return with has to survive.
fn looking() -> Vec<ThreadWorkload> {
    let dir = ["mkdir d 755"];
    vec![
        two("create+list", &[FILE], &["create g 644 -"], &["readdir /"]),
        two(
            "create+list-first",
            &dir,
            &["create d/f 644 -"],
            &["readdir d"],
        ),
        // No line of the log is behind that with the word: nothing else makes the name durable for
        // the listing.
        two(
            "create+list-last-line",
            &["mkdir d 755", FILE, "4* link f d/#"],
            &["create d/g 644 -"],
            &["readdir d"],
        ),
        two("create+stat", &[FILE], &["create g 644 -"], &["stat g -"]),
        two(
            "create+stat-twice",
            &dir,
            &["create d/f 644 -"],
            &["stat d/f -", "stat d/f -"],
        ),
        two(
            "create+create-exists",
            &dir,
            &["create d/f 644 -"],
            &["create d/f 644 -"],
        ),
        two("unlink+list", &[FILE], &["unlink f"], &["readdir /"]),
        two("unlink+stat", &[FILE], &["unlink f"], &["stat f -"]),
        two(
            "unlink+create-again",
            &[FILE],
            &["unlink f"],
            &["stat f -", "create f 600 -"],
        ),
        two("rename+list", &[FILE], &["rename f g 0"], &["readdir /"]),
        two(
            "rename+stat",
            &[FILE],
            &["rename f g 0"],
            &["stat f -", "stat g -"],
        ),
        two("link+stat", &[FILE], &["link f g"], &["stat f -"]),
        two(
            "link+unlink-stat",
            &[FILE],
            &["link f g"],
            &["unlink f", "stat g -"],
        ),
        two(
            "rename-over+stat-victim",
            &[FILE, "create g 600 -", "link g h"],
            &["rename f g 0"],
            &["stat h -"],
        ),
        two(
            "unlink+stat-other",
            &[FILE, "link f g"],
            &["unlink f"],
            &["stat g -"],
        ),
        two("rmdir+stat", &["mkdir d 755"], &["rmdir d"], &["stat / -"]),
        two(
            "rename-directory-across+stat",
            &["mkdir d 755", "mkdir d/s 755", "mkdir e 755"],
            &["rename d/s e/s 0"],
            &["stat e -"],
        ),
        two(
            "exchange+stat",
            &[FILE, "create g 600 -"],
            &["rename f g 2"],
            &["stat f -", "stat g -"],
        ),
        two(
            "exchange+list",
            &[FILE, "mkdir d 755"],
            &["rename f d 2"],
            &["readdir /"],
        ),
        two("symlink+list", &[FILE], &["symlink f s"], &["readdir /"]),
        two("chmod+stat", &[FILE], &["chmod f 600"], &["stat f -"]),
        two("append+stat", &[FILE], &["append f 5 5000"], &["stat f -"]),
        two(
            "append+read",
            &[FILE],
            &["append f 5 5000"],
            &["read f 0 9000"],
        ),
        two(
            "truncate+stat",
            &[FILE, "append f 5 5000"],
            &["truncate f 100"],
            &["stat f -"],
        ),
        two("mkdir+stat", &[], &["mkdir d 755"], &["stat / -"]),
        two("mkdir+create", &[], &["mkdir d 755"], &["create d/f 644 -"]),
        two(
            "rename-directory+stat",
            &["mkdir d 755", "create d/f 644 -"],
            &["rename d e 0"],
            &["stat e/f -"],
        ),
    ]
}

/// Calls on the bytes of a file.
fn bytes() -> Vec<ThreadWorkload> {
    let with = |bytes: &'static str| [FILE, bytes];
    vec![
        two(
            "append+append",
            &[FILE],
            &["append f 5 3000"],
            &["append f 7 3000"],
        ),
        two(
            "append+truncate",
            &with("append f 5 5000"),
            &["append f 7 5000"],
            &["truncate f 100"],
        ),
        two(
            "append+unlink",
            &[FILE],
            &["append f 7 5000"],
            &["unlink f"],
        ),
        two(
            "write-in-hole+punch",
            &with("truncate f 12288"),
            &["write f 4096 7 4096"],
            &["fallocate f 3 0 12288"],
        ),
        two(
            "write+punch",
            &with("append f 5 12288"),
            &["write f 4096 7 100"],
            &["fallocate f 3 0 12288"],
        ),
        two(
            "write-in-hole+truncate",
            &with("truncate f 12288"),
            &["write f 4096 7 100"],
            &["truncate f 0"],
        ),
        two(
            "truncate+truncate",
            &with("append f 5 9000"),
            &["truncate f 100"],
            &["truncate f 20000"],
        ),
        two(
            "append+append-elsewhere",
            &[FILE, "create g 644 -"],
            &["append f 5 5000"],
            &["append g 7 5000"],
        ),
        two(
            "write+write",
            &with("append f 5 5000"),
            &["write f 0 7 100"],
            &["write f 50 9 100"],
        ),
        two(
            "write-in-hole+write-in-hole",
            &with("truncate f 12288"),
            &["write f 4096 7 100"],
            &["write f 4196 9 100"],
        ),
        two(
            "write+append",
            &with("append f 5 5000"),
            &["write f 4900 7 50"],
            &["append f 9 50"],
        ),
        two(
            "write+truncate",
            &with("append f 5 5000"),
            &["write f 0 7 5000"],
            &["truncate f 100"],
        ),
        two(
            "fallocate+append",
            &[FILE],
            &["fallocate f 1 0 12288"],
            &["append f 7 5000"],
        ),
        two(
            "punch+append",
            &with("append f 5 9000"),
            &["fallocate f 3 0 9000"],
            &["append f 7 100"],
        ),
        two(
            "chmod+append",
            &[FILE],
            &["chmod f 600"],
            &["append f 7 100"],
        ),
        two("chmod+chmod", &[FILE], &["chmod f 600"], &["chmod f 640"]),
        two(
            "chmod-directory+create-in-it",
            &["mkdir d 755"],
            &["chmod d 700"],
            &["create d/f 644 -"],
        ),
        two(
            "rename-directory+create-in-it",
            &["mkdir d 755"],
            &["rename d e 0"],
            &["create d/f 644 -"],
        ),
        two("chmod+rename", &[FILE], &["chmod f 600"], &["rename f g 0"]),
    ]
}

/// Work in the background beside calls.
fn background() -> Vec<ThreadWorkload> {
    let removed = [FILE, "append f 5 9000", "unlink f"];
    let dead = [
        "mkdir d 755",
        FILE,
        "110* link f d/%(6ex40)#",
        "109* unlink d/%(6ex40)#",
    ];
    let full = ["mkdir d 755", "12* create d/f# 644 -"];
    let many = ["mkdir d 755", "58* create f# 644 -"];
    vec![
        two(
            "unlink+maintain",
            &with_file("append f 5 9000"),
            &["unlink f"],
            &["maintain"],
        ),
        two(
            "create+maintain-removed",
            &removed,
            &["create g 644 -"],
            &["maintain"],
        ),
        two(
            "append+maintain-removed",
            &[&removed[..], &["create g 644 -"]].concat(),
            &["append g 7 5000"],
            &["maintain"],
        ),
        two(
            "append+maintain-full",
            &["create g 644 -", FILE, "fallocate f 0 0 720000", "unlink f"],
            &["append g 7 9000"],
            &["maintain"],
        ),
        two(
            "append+append-full",
            &[
                "create g 644 -",
                "create h 644 -",
                FILE,
                "fallocate f 0 0 720000",
                "unlink f",
            ],
            &["append g 7 5000"],
            &["append h 9 5000"],
        ),
        two(
            "unlink-create+maintain",
            &["20* create f# 644 -"],
            &["unlink f1", "create g 644 -"],
            &["maintain", "maintain"],
        ),
        two(
            "unlink+maintain+create",
            &["20* create f# 644 -", "append f1 5 9000"],
            &["unlink f1", "maintain", "create g 644 -", "append g 7 100"],
            &["create h 644 -", "append h 8 100"],
        ),
        two(
            "unlink-open+stat",
            &[FILE, "append f 5 5000", "open 1 f 0"],
            &["unlink f"],
            &["stat f -", "create f 600 -"],
        ),
        two(
            "unlink+maintain-directory",
            &dead,
            &["unlink d/%(6ex40)110"],
            &["maintain"],
        ),
        two(
            "create+maintain-directory",
            &dead,
            &["create d/f 644 -"],
            &["maintain"],
        ),
        two(
            "list+maintain-directory",
            &dead,
            &["readdir d"],
            &["maintain"],
        ),
        two(
            "create+create-growing",
            &full,
            &["create d/g 644 -"],
            &["create d/h 644 -"],
        ),
        two(
            "create+list-growing",
            &full,
            &["create d/f 644 -"],
            &["readdir d"],
        ),
        two(
            "create+maintain-crowded",
            &many,
            &["create d/f 644 -"],
            &["maintain"],
        )
        .crowded(),
        two(
            "stat+maintain-crowded",
            &many,
            &["stat f1 -", "unlink f1"],
            &["maintain"],
        )
        .crowded(),
        ThreadWorkload::new(
            "create+list+maintain-crowded",
            &many,
            &[&["create d/f 644 -"], &["readdir d"], &["maintain"]],
        )
        .crowded(),
    ]
}

fn with_file(line: &'static str) -> [&'static str; 2] {
    [FILE, line]
}

/// Three threads.
fn three() -> Vec<ThreadWorkload> {
    let three = |name: &str, setup: &[&str], threads: [&[&str]; 3]| {
        ThreadWorkload::new(name, setup, &threads)
    };
    vec![
        ThreadWorkload::new(
            "create+create+create",
            &[],
            &[
                &["create f 644 -"],
                &["create g 644 -"],
                &["create h 644 -"],
            ],
        ),
        ThreadWorkload::new(
            "create+unlink+rename",
            &[FILE],
            &[
                &["create g 644 exclusive"],
                &["unlink f"],
                &["rename f g 0"],
            ],
        ),
        ThreadWorkload::new(
            "mkdir+create+rmdir",
            &[],
            &[&["mkdir d 755"], &["create d/f 644 -"], &["rmdir d"]],
        ),
        three(
            "create+rename+list",
            &[],
            [&["create f 644 -"], &["rename f g 0"], &["readdir /"]],
        ),
        three(
            "unlink+create+list",
            &[FILE],
            [&["unlink f"], &["create f 600 exclusive"], &["readdir /"]],
        ),
        three(
            "link+unlink+stat",
            &[FILE],
            [&["link f g"], &["unlink f"], &["stat g -"]],
        ),
        three(
            "rename+rename+stat",
            &[FILE],
            [&["rename f g 0"], &["rename g h 0"], &["stat h -"]],
        ),
        three(
            "append+truncate+read",
            &[FILE],
            [&["append f 5 100"], &["truncate f 50"], &["read f 0 200"]],
        ),
    ]
}

/// Entries of a cuckoo table that make room for others, beside calls on the file whose entry moves:
/// the one of block 92 of `g`, for block 26 of `f`. Without a block before it, no other entry is
/// told when it goes, of which some are in the line that it leaves.
fn moving() -> Vec<ThreadWorkload> {
    let tight = [
        FILE,
        "create g 644 -",
        "append g 5 409600",
        "fallocate g 3 372736 4096",
    ];
    let with = |name: &str, other: &str| {
        two(name, &tight, &["fallocate f 0 106496 4096"], &[other]).on(MappingKind::Cuckoo)
    };
    vec![
        with("move+punch", "fallocate g 3 376832 4096"),
        with("move+truncate", "truncate g 376832"),
        with("move+write", "write g 376832 7 4096"),
        with("move+read", "read g 372736 8192"),
        with("move+truncate-closing", "truncate g 376832").closing(),
    ]
}

/// Calls on the bytes of one file whose blocks a tree finds: one tree and the other in turn.
fn in_trees() -> Vec<ThreadWorkload> {
    let trees = [MappingKind::Radix, MappingKind::Extent];
    let workloads = bytes().into_iter().zip(trees.into_iter().cycle());
    workloads.map(|(one, tree)| one.on(tree)).collect()
}

/// A record in the journal of every thread slot at once.
fn journals() -> Vec<ThreadWorkload> {
    vec![
        two(
            "chmod+rename-in-all-slots",
            &[FILE, "create g 644 -"],
            &["chmod f 600"],
            &["rename g h 0"],
        )
        .in_all_slots(),
        two(
            "rename+exchange-in-all-slots",
            &["mkdir d 755", "create d/f 644 -", FILE, "create g 600 -"],
            &["rename d/f d/g 0"],
            &["rename f g 2"],
        )
        .in_all_slots(),
    ]
}

/// A level table that grows, beside calls on the file whose entries move: a block of `f` moves
/// those of blocks 44, 60, 63 and 71 of `g`, or begins the growth.
fn growing() -> Vec<ThreadWorkload> {
    let with = |name: &str, fill: &'static str, other: &str| {
        let setup = [FILE, "create g 644 -", fill];
        two(name, &setup, &["fallocate f 0 0 4096"], &[other]).on(MappingKind::Level)
    };
    let (full, begun) = ("append g 5 294912", "append g 5 299008");
    vec![
        with("grow+punch", begun, "fallocate g 3 180224 4096"),
        with("grow+write", begun, "write g 180224 7 4096"),
        with("begin+append", full, "append g 7 4096"),
    ]
}

#[cfg(test)]
mod tests {
    use vellum_layout::JournalHead;

    use super::*;
    use crate::Budget;
    use crate::closed::geometry;
    use crate::explore::crash_points;
    use crate::id::Mode;
    use crate::run::Change;
    use crate::threads::ready::Ready;

    /// Thread slots whose journals hold a record.
    fn journals_in_use(image: &[u8]) -> usize {
        let geometry = geometry(image).expect("a pool");
        let heads = (0..geometry.thread_slots).map(|slot| {
            let at = (geometry.thread_slot_at(slot) + JournalHead::AT) as usize;
            u64::from_ne_bytes(image[at..at + 8].try_into().expect("a word"))
        });
        heads
            .filter(|&head| JournalHead(head) != JournalHead::RETIRED)
            .count()
    }

    #[test]
    fn every_journal_holds_a_record_at_once() {
        let bounds = Budget::Short.options().schedules;
        for workload in journals() {
            let name = workload.name.clone();
            let slots = workload.thread_slots as usize;
            assert_eq!(workload.threads.len(), slots, "{name}");
            let ready = Ready::new(workload).expect("the setup");
            let base = ready.subject(Mode::X86, Change::None).base;
            let mut most = 0;
            let mut look = |found: crate::threads::search::Found| {
                let log = ready.log(Mode::X86, &found.run);
                let mut points = crash_points(&base, &log, Mode::X86);
                while let Some(point) = points.next_point() {
                    most = most.max(journals_in_use(point.durable()));
                }
                most < slots
            };
            let searched = ready.search().all(&bounds, 1, &mut look);
            searched.expect("runs");
            assert_eq!(most, slots, "{name}");
        }
    }
}
