//! `vellum resize`.

use std::fs::File;

use crate::support::{Bench, Mounted, has_fuse};

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
