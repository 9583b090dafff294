//! `vellum check --online` and `vellum snapshot`.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::sizes::SmallDisk;
use crate::support::{Bench, Mounted, PATIENCE, has_fuse, vellum};

/// The media of pools that are copied.
const MAKINGS: [&[&str]; 4] = [
    &[],
    &["--medium", "disk", "--durability", "none"],
    &["--medium", "memory", "--mapping", "extent"],
    &["--namespace", "adaptive"],
];

fn bench(making: &[&str]) -> Bench {
    let bench = Bench::empty();
    let make = ["mkfs", "p.img", "--quiet", "--size", "64M"];
    bench.run(&[&make[..], making].concat()).ok();
    bench
}

/// Creates, renames, overwrites and removes files below `dir`, and keeps two files equal, the
/// first one ahead.
fn change(dir: &Path, round: u64) -> std::io::Result<()> {
    let text = format!("{round:>20}");
    for name in ["first", "second"] {
        let path = dir.join(name);
        match path.exists() {
            true => std::os::unix::fs::FileExt::write_all_at(
                &std::fs::File::options().write(true).open(&path)?,
                text.as_bytes(),
                0,
            )?,
            false => std::fs::write(&path, &text)?,
        }
    }
    let below = dir.join(format!("{}", round % 7));
    std::fs::create_dir(&below)?;
    for file in 0..8 {
        std::fs::write(below.join("new"), vec![round as u8; 5000 * file])?;
        std::fs::rename(below.join("new"), below.join(format!("{file}")))?;
    }
    std::fs::remove_dir_all(below)
}

/// Runs `work` while the files of the mount change.
fn under_load(mounted: &Mounted, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for of in ["a", "b"] {
            let dir = mounted.path(of);
            std::fs::create_dir(&dir).expect("made");
            change(&dir, 0).expect("changed");
            let is_over = &is_over;
            scope.spawn(move || {
                let rounds = (1..).take_while(|_| !is_over.load(Ordering::Relaxed));
                rounds.for_each(|round| change(&dir, round).expect("changed"));
            });
        }
        work();
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_sound_pool_in_use_has_no_finding() {
    if !has_fuse("a_sound_pool_in_use_has_no_finding") {
        return;
    }
    let split: &[&str] = &[
        "--medium",
        "memory",
        "--data",
        "data.img",
        "--data-size",
        "64M",
    ];
    for making in MAKINGS.into_iter().chain([split]) {
        let bench = Bench::empty();
        let make = ["mkfs", "p.img", "--quiet"];
        let size: &[&str] = if making == split {
            &[]
        } else {
            &["--size", "64M"]
        };
        bench.run(&[&make[..], size, making].concat()).ok();
        let medium: &[&str] = if making == split {
            &["--medium", "memory"]
        } else {
            &[]
        };
        let mounted = Mounted::of(bench, medium);
        under_load(&mounted, || {
            for named in ["p.img", "mnt"].into_iter().cycle().take(8) {
                let did = mounted.bench.run(&["check", "--online", named]).ok();
                for text in ["is sound", "changes waited", "not checked:"] {
                    assert!(did.out.contains(text), "{}", did.out);
                }
                assert!(!did.out.contains("damage:"), "{}", did.out);
            }
        });
        let did = mounted
            .bench
            .run(&["check", "--online", "--json", "mnt"])
            .ok();
        let told: Value = serde_json::from_str(&did.out).expect("JSON");
        assert_eq!((&told["damage"], &told["residue"]), (&0.into(), &0.into()));
        assert_eq!(
            told["online"]["not_checked"].as_array().map(Vec::len),
            Some(3)
        );
        mounted.umount();
        mounted
            .bench
            .run(&["check", "--online", "p.img"])
            .failed(8, &["not mounted"]);
    }
}

/// Every check of a mounted pool finds the damage that a check at rest finds.
#[test]
fn damage_of_a_pool_in_use_is_found() {
    if !has_fuse("damage_of_a_pool_in_use_is_found") {
        return;
    }
    let bench = Bench::with_plain_pool("64M");
    std::fs::write(bench.join("file"), "text").expect("written");
    bench.run(&["mkdir", "p.img:/hurt"]).ok();
    bench.run(&["put", "file", "p.img:/hurt/needle-in-it"]).ok();
    let pool = bench.join("p.img");
    let mut bytes = std::fs::read(&pool).expect("read");
    let is_name = |window: &[u8]| window == b"needle-in-it";
    let at = bytes.windows(12).position(is_name).expect("an entry");
    bytes[at] ^= 1;
    std::fs::write(&pool, bytes).expect("written");
    let damage_of = |told: &str| -> Vec<Value> {
        let told: Value = serde_json::from_str(told).expect("JSON");
        let all = told["findings"].as_array().expect("findings").clone();
        let is_damage = |found: &Value| found["severity"] == "damage";
        all.into_iter().filter(is_damage).collect()
    };
    let at_rest = bench.run(&["check", "--json", "p.img"]);
    assert_eq!(at_rest.code, 4, "{}", at_rest.out);
    let expected = damage_of(&at_rest.out);
    assert!(!expected.is_empty());
    let mounted = Mounted::of(bench, &[]);
    under_load(&mounted, || {
        for _ in 0..3 {
            let did = mounted.bench.run(&["check", "--online", "--json", "mnt"]);
            assert_eq!(did.code, 4, "{}{}", did.out, did.err);
            let found = damage_of(&did.out);
            assert!(
                expected.iter().any(|one| found.contains(one)),
                "{found:?}, not {expected:?}"
            );
        }
    });
    let did = mounted.bench.run(&["check", "--online", "mnt"]);
    assert!(did.err.contains("unmounted"), "{}", did.err);
    mounted.bench.run(&["umount", "mnt"]).ok();
}

/// The number in a file that [`change`] writes.
fn number(bench: &Bench, path: &str) -> u64 {
    let did = bench.run(&["cat", path]).ok();
    did.out.trim().parse().expect("a number")
}

#[test]
fn a_snapshot_of_a_pool_in_use_is_of_one_instant() {
    if !has_fuse("a_snapshot_of_a_pool_in_use_is_of_one_instant") {
        return;
    }
    for making in MAKINGS {
        let mounted = Mounted::of(bench(making), &[]);
        let bench = &mounted.bench;
        under_load(&mounted, || {
            for copy in ["1.img", "2.img"] {
                let did = bench.run(&["snapshot", "mnt", copy, "--quiet"]).ok();
                assert_eq!(did.out, "");
            }
        });
        for copy in ["1.img", "2.img"] {
            bench.run(&["check", copy]).ok();
            for of in ["a", "b"] {
                let [first, second] =
                    ["first", "second"].map(|name| number(bench, &format!("{copy}:/{of}/{name}")));
                assert!(first == second || first == second + 1, "{first}, {second}");
            }
            bench
                .run(&["put", "p.img", &format!("{copy}:/more")])
                .failed(1, &["o space"]);
            bench.run(&["rm", "-f", &format!("{copy}:/more")]).ok();
            bench.run(&["check", "--strict", copy]).ok();
        }
        mounted.umount();
    }
}

#[test]
fn a_snapshot_at_rest_has_the_same_files() {
    for making in MAKINGS {
        let bench = bench(making);
        std::fs::write(bench.join("file"), vec![7; 3 << 20]).expect("written");
        bench.run(&["put", "file", "p.img:/f"]).ok();
        let told = bench
            .run(&["snapshot", "--json", "p.img", "copy.img"])
            .ok()
            .out;
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(told["pool_bytes"], 64 << 20);
        assert!(told["copied_bytes"].as_u64() < Some(6 << 20), "{told}");
        bench.run(&["get", "copy.img:/f", "back"]).ok();
        let back = std::fs::read(bench.join("back")).expect("read");
        assert!(back == vec![7; 3 << 20]);
        bench.run(&["set", "copy.img", "--uuid", "random"]).ok();
        bench.run(&["check", "--strict", "copy.img"]).ok();
        let again = bench.run(&["snapshot", "p.img", "copy.img"]);
        again.failed(1, &["copy.img", "exists"]);
        bench.sound();
    }
    let bench = Bench::empty();
    let make = "mkfs p.img --quiet --data data.img --data-size 16M";
    bench.run(&make.split(' ').collect::<Vec<_>>()).ok();
    bench
        .run(&["snapshot", "p.img", "copy.img"])
        .failed(1, &["another device", "vellum export"]);
    assert!(!bench.join("copy.img").exists());
}

#[test]
fn a_snapshot_that_fails_leaves_nothing_and_the_mount_goes_on() {
    let test = "a_snapshot_that_fails_leaves_nothing_and_the_mount_goes_on";
    if !has_fuse(test) {
        return;
    }
    let mounted = Mounted::new("256M", &[]);
    let bench = &mounted.bench;
    std::fs::write(mounted.path("large"), vec![7; 100 << 20]).expect("written");
    bench
        .run(&["snapshot", "mnt", "mnt/copy.img"])
        .failed(1, &["in the pool itself"]);
    bench
        .run(&["snapshot", "mnt", "no/copy.img"])
        .failed(1, &["no/copy.img"]);
    let Some(disk) = SmallDisk::new(bench, test) else {
        return;
    };
    let did = bench.run(&["snapshot", "mnt", "disk/copy.img"]);
    did.failed(1, &["cannot write the copy", "o space"]);
    assert_eq!(
        std::fs::read_dir(bench.join("disk")).expect("read").count(),
        0
    );
    drop(disk);
    assert_eq!(std::fs::read_dir(&mounted.dir).expect("read").count(), 1);
    bench.run(&["snapshot", "mnt", "copy.img"]).ok();
    bench.run(&["check", "copy.img"]).ok();
    mounted.umount();
}

#[test]
fn a_snapshot_that_is_killed_leaves_nothing() {
    if !has_fuse("a_snapshot_that_is_killed_leaves_nothing") {
        return;
    }
    let mounted = Mounted::new("512M", &[]);
    let bench = &mounted.bench;
    std::fs::write(mounted.path("large"), vec![7; 300 << 20]).expect("written");
    let mut child = vellum()
        .args(["snapshot", "mnt", "copy.img", "--quiet"])
        .current_dir(bench.path())
        .stderr(Stdio::null())
        .spawn()
        .expect("vellum runs");
    std::thread::sleep(Duration::from_millis(100));
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    let _ = kill_process(pid, Signal::KILL);
    if child.wait().expect("it ends").success() {
        return mounted.umount();
    }
    assert!(!bench.join("copy.img").exists());
    let began = Instant::now();
    // The mount's process notices the end after the next blocks.
    while bench.run(&["snapshot", "mnt", "copy.img"]).code != 0 {
        assert!(began.elapsed() < PATIENCE, "the killed one goes on");
    }
    mounted.umount();
}
