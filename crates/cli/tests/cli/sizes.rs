//! `vellum resize` and `vellum trim`, and sparse pools.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Bench, Mounted, done, has_fuse, skipped, vellum};

const MIB: u64 = 1 << 20;

fn resized(bench: &Bench, args: &[&str]) -> serde_json::Value {
    let did = bench.run(&[&["resize", "--json"], args].concat()).ok();
    serde_json::from_str(&did.out).expect("JSON")
}

/// Puts files of a MiB into the pool until it is full. Returns their number.
fn fill(bench: &Bench, from: u64) -> u64 {
    let bytes = vec![7; MIB as usize];
    std::fs::write(bench.join("mib"), bytes).expect("written");
    let put = |number: &u64| bench.run(&["put", "mib", &format!("p.img:/{number}")]);
    let is_full = |number: &u64| put(number).code != 0;
    (from..).find(is_full).expect("a pool gets full")
}

#[test]
fn a_pool_at_rest_grows() {
    for making in [
        &[][..],
        &["--medium", "memory"],
        &["--mapping", "radix"],
        &[
            "--mapping",
            "hashfs",
            "--durability",
            "none",
            "--medium",
            "disk",
        ],
    ] {
        let bench = Bench::empty();
        let make = ["mkfs", "p.img", "--quiet", "--size", "16M"];
        bench.run(&[&make[..], making].concat()).ok();
        let files = fill(&bench, 0);
        let now = resized(&bench, &["p.img", "24M"]);
        assert_eq!(
            (&now["before_bytes"], &now["pool_bytes"]),
            (&(16 * MIB).into(), &(24 * MIB).into())
        );
        let more = fill(&bench, files + 1);
        assert!(more > files + 6, "{files}, then {more}");
        let told = bench.run(&["resize", "p.img", "+8M"]).ok().out;
        assert!(told.contains("p.img: 32.0 MiB now, was 24.0 MiB"), "{told}");
        let file = File::options()
            .write(true)
            .open(bench.join("p.img"))
            .expect("opened");
        file.set_len(48 * MIB).expect("longer");
        drop(file);
        assert_eq!(resized(&bench, &["p.img", "max"])["pool_bytes"], 48 * MIB);
        bench.sound();
    }
}

#[test]
fn a_mounted_pool_grows_under_its_files() {
    if !has_fuse("a_mounted_pool_grows_under_its_files") {
        return;
    }
    for making in [&[][..], &["--mapping", "hashfs"]] {
        let bench = Bench::empty();
        let make = ["mkfs", "p.img", "--quiet", "--size", "16M"];
        bench.run(&[&make[..], making].concat()).ok();
        let mounted = Mounted::of(bench, &[]);
        let mut open = File::create(mounted.path("open")).expect("created");
        let bytes = vec![7; MIB as usize];
        let mut write = || std::io::Write::write_all(&mut open, &bytes);
        let before = (0..).take_while(|_| write().is_ok()).count();
        let dir = mounted.path("").display().to_string();
        for (named, size) in [("p.img", "24M"), (&*dir, "+8M")] {
            resized(&mounted.bench, &[named, size]);
        }
        let after = (0..).take_while(|_| write().is_ok()).count();
        assert!(after >= 14, "{before} MiB, then {after}");
        let told = mounted.bench.run(&["info", "--json", "p.img"]).ok().out;
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(told["pool"]["bytes"], 32 * MIB);
        mounted
            .bench
            .run(&["resize", "p.img", "8M"])
            .failed(1, &["never shrinks"]);
        drop(open);
        mounted.umount();
        mounted.bench.sound();
    }
}

#[test]
fn a_file_does_not_grow_beyond_the_limit_of_the_process() {
    let bench = Bench::with_pool("16M");
    let limited = |args: &[&str]| {
        let mut command = Command::new("bash");
        command.args(["-c", "ulimit -f 20480; exec \"$@\"", "bash"]);
        command.arg(vellum().get_program()).args(args);
        done(command.current_dir(bench.path()).output().expect("it runs"))
    };
    limited(&["resize", "p.img", "32M"]).failed(
        1,
        &["p.img cannot have 33554432 bytes", "a limit of the process"],
    );
    bench.sound();
    limited(&["resize", "p.img", "19M"]).ok();
    bench.sound();
    assert_eq!(resized(&bench, &["p.img", "32M"])["before_bytes"], 19 * MIB);
    limited(&["mkfs", "q.img", "--size", "32M"]).failed(
        1,
        &["q.img cannot have 33554432 bytes", "a limit of the process"],
    );
}

#[test]
fn what_cannot_grow_says_why() {
    let bench = Bench::with_pool("16M");
    for size in ["16M", "1M", "+0"] {
        bench
            .run(&["resize", "p.img", size])
            .failed(1, &["p.img", "never shrinks"]);
    }
    bench
        .run(&["resize", "p.img", "much"])
        .failed(2, &["not a size"]);
    bench.run(&["resize", "p.img", "64P"]).failed(1, &["4 TiB"]);
    bench
        .run(&["resize", "no.img", "1G"])
        .failed(1, &["no.img"]);
    bench
        .run(&["dataset", "add", "p.img", "more", "--size", "16M"])
        .ok();
    bench
        .run(&["resize", "p.img", "32M"])
        .failed(1, &["dataset lies behind"]);
    bench
        .run(&["resize", "p.img:more", "32M"])
        .failed(2, &["dataset add"]);
    bench.sound();
    let make = "mkfs s.img --quiet --data data.img --data-size 16M";
    bench.run(&make.split(' ').collect::<Vec<_>>()).ok();
    bench
        .run(&["resize", "s.img", "1G"])
        .failed(1, &["vellum data add"]);
    let make = "mkfs c.img --quiet --size 16M --mapping cuckoo";
    bench.run(&make.split(' ').collect::<Vec<_>>()).ok();
    bench.run(&["resize", "c.img", "1G"]).failed(1, &["cuckoo"]);
}

/// A small file system in memory.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, if this user cannot mount one.
    pub(crate) fn new(bench: &Bench, test: &str) -> Option<Self> {
        let dir = bench.join("disk");
        std::fs::create_dir(&dir).expect("created");
        let mounts = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64m", "small"])
            .arg(&dir)
            .output();
        if mounts.is_ok_and(|did| did.status.success()) {
            return Some(Self(dir));
        }
        skipped(test, "no file system can be mounted");
        None
    }

    fn used(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.0).expect("a file system");
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The disk below is full long before the pool: the pool reports that, loses nothing, and goes on
/// when it has given space back.
#[test]
fn a_sparse_pool_on_a_full_disk_loses_nothing() {
    let test = "a_sparse_pool_on_a_full_disk_loses_nothing";
    for making in [
        &["--medium", "memory"][..],
        &["--medium", "disk"],
        &[
            "--medium",
            "disk",
            "--durability",
            "none",
            "--mapping",
            "radix",
        ],
    ] {
        let bench = Bench::empty();
        let Some(disk) = SmallDisk::new(&bench, test) else {
            return;
        };
        let make = [
            "mkfs",
            "disk/p.img",
            "--quiet",
            "--sparse",
            "--size",
            "512M",
        ];
        bench.run(&[&make[..], making].concat()).ok();
        let bytes: Vec<u8> = (0..2 * MIB).map(|at| (at / 4096 + 1) as u8).collect();
        std::fs::write(bench.join("file"), &bytes).expect("written");
        let put = |number: &u64| bench.run(&["put", "file", &format!("disk/p.img:/{number}")]);
        let files = (0..)
            .find(|number| put(number).code != 0)
            .expect("the disk gets full");
        put(&files).failed(1, &["o space"]);
        assert!((4..32).contains(&files), "{files}");
        bench.run(&["check", "disk/p.img"]).ok();
        for number in 0..files {
            let did = bench.run(&["get", &format!("disk/p.img:/{number}"), "got"]);
            did.ok();
            assert!(
                std::fs::read(bench.join("got")).expect("read") == bytes,
                "{number}"
            );
            std::fs::remove_file(bench.join("got")).expect("removed");
        }
        let full = disk.used();
        for number in 0..files / 2 {
            bench.run(&["rm", &format!("disk/p.img:/{number}")]).ok();
        }
        bench.run(&["trim", "disk/p.img"]).ok();
        assert!(
            disk.used() <= full - files / 2 * 2 * MIB + MIB,
            "{full}, then {}",
            disk.used()
        );
        put(&0).ok();
        bench.run(&["check", "--strict", "disk/p.img"]).ok();
    }
}

#[test]
fn a_mounted_pool_is_trimmed_by_both_commands() {
    if !has_fuse("a_mounted_pool_is_trimmed_by_both_commands") {
        return;
    }
    let bench = Bench::empty();
    let make = "mkfs p.img --quiet --sparse --size 256M";
    bench.run(&make.split(' ').collect::<Vec<_>>()).ok();
    let pool = bench.join("p.img");
    let taken = || std::fs::metadata(&pool).expect("the pool").blocks() * 512;
    let mounted = Mounted::of(bench, &[]);
    let empty = taken();
    let fstrim = Command::new("fstrim")
        .arg("-v")
        .arg(mounted.path(""))
        .output();
    let fstrim = fstrim.expect("fstrim");
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(fstrim.status.success(), is_root, "{fstrim:?}");
    for round in 0..2 {
        let file = mounted.path("file");
        std::fs::write(&file, vec![7; 16 << 20]).expect("written");
        File::open(mounted.path(""))
            .and_then(|root| root.sync_all())
            .expect("synced");
        assert!(taken() >= empty + 16 * MIB);
        std::fs::remove_file(&file).expect("removed");
        let dir = mounted.path("").display().to_string();
        let by = [&dir[..], "p.img"][round];
        let told = mounted.bench.run(&["trim", "--json", by]).ok().out;
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        assert!(told["trimmed_bytes"].as_u64() >= Some(16 * MIB), "{told}");
        assert!(taken() < empty + 4 * MIB, "{empty}, then {}", taken());
    }
    mounted.umount();
    mounted.bench.sound();
}

/// A loop device on a file, if this user can create one.
struct Loop(String);

impl Loop {
    fn on(bench: &Bench, file: &str, bytes: u64) -> Option<Self> {
        let made = File::create(bench.join(file)).and_then(|file| file.set_len(bytes));
        made.expect("a file");
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", file]);
        let found = losetup.current_dir(bench.path()).output().ok()?;
        let device = String::from_utf8(found.stdout).expect("text");
        found.status.success().then(|| Self(device.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["-d", &self.0]).status();
        assert!(detached.expect("losetup runs").success());
    }
}

/// Data devices are discarded, and files with data keep their space.
#[test]
fn only_devices_with_data_are_trimmed() {
    for device_comes_first in [true, false] {
        let bench = Bench::empty();
        let Some(device) = Loop::on(&bench, "below.img", 32 * MIB) else {
            return skipped("only_devices_with_data_are_trimmed", "no loop device");
        };
        let (file, size) = (&["data.img", "--size", "32M"][..], "32M");
        if device_comes_first {
            bench
                .run(&["mkfs", "p.img", "-q", "--data", &device.0])
                .ok();
            bench.run(&[&["data", "add", "p.img"], file].concat()).ok();
        } else {
            let make = [
                "mkfs",
                "p.img",
                "-q",
                "--data",
                "data.img",
                "--data-size",
                size,
            ];
            bench.run(&make).ok();
            bench.run(&["trim", "p.img"]).failed(1, &["sparse"]);
            bench.run(&["data", "add", "p.img", &device.0]).ok();
        }
        let taken = |name: &str| bench.join(name).metadata().expect("attributes").blocks() * 512;
        std::fs::write(bench.join("mib"), vec![7; MIB as usize]).expect("written");
        let name = |number: u64| format!("p.img:/{number}");
        (0..48).for_each(|number| drop(bench.run(&["put", "mib", &name(number)]).ok()));
        (1..48).for_each(|number| drop(bench.run(&["rm", &name(number)]).ok()));
        let [below, data] = ["below.img", "data.img"].map(taken);
        bench.run(&["trim", "p.img"]).ok();
        assert!(taken("below.img") + 8 * MIB < below, "{below}");
        assert_eq!(taken("data.img"), data);
        let kept = bench.run(&["get", "p.img:/0", "got"]).ok();
        assert_eq!(kept.err, "");
        let got = std::fs::read(bench.join("got")).expect("read");
        assert!(got.len() as u64 == MIB && got.iter().all(|&byte| byte == 7));
        bench.sound();
    }
}

#[test]
fn only_sparse_pools_and_devices_are_trimmed() {
    let bench = Bench::with_pool("16M");
    bench.run(&["trim", "p.img"]).failed(1, &["sparse"]);
    let make = "mkfs s.img --quiet --sparse --data data.img --data-size 16M";
    bench
        .run(&make.split(' ').collect::<Vec<_>>())
        .failed(2, &["--sparse", "--data"]);
}
