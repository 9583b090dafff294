//! `vellum set`, and what other programs learn of a pool's name.

use crate::support::{Bench, Mounted, has_fuse, kill};

fn label(bench: &Bench, pool: &str) -> String {
    let told = bench.run(&["info", "--json", pool]).ok().out;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    told["pool"]["label"].as_str().expect("a text").to_owned()
}

fn set_and_check(bench: &Bench, pool: &str, file: &str) {
    bench.run(&["mkdir", &format!("{pool}:/kept")]).ok();
    for wanted in ["first", "a longer label, with words", "", "Größe"] {
        bench.run(&["set", pool, "--label", wanted]).ok();
        assert_eq!(label(bench, pool), wanted);
        let did = bench.run(&["check", "--strict", file]).ok();
        assert!(did.out.contains("closed cleanly"), "{}", did.out);
    }
    let listed = bench.run(&["ls", &format!("{pool}:/")]).ok().out;
    assert!(listed.contains("kept"), "{listed}");
}

#[test]
fn a_label_changes_on_every_kind_of_pool() {
    for making in [
        &[][..],
        &["--durability", "none", "--medium", "disk"],
        &["--medium", "memory"],
        &["--data", "data.img", "--data-size", "16M"],
    ] {
        let bench = Bench::empty();
        let mut make = vec!["mkfs", "p.img", "--quiet", "-L", "old"];
        if !making.contains(&"--data") {
            make.extend(["--size", "16M"]);
        }
        bench.run(&[&make, making].concat()).ok();
        set_and_check(&bench, "p.img", "p.img");
    }
}

#[test]
fn a_dataset_has_a_label_of_its_own() {
    let bench = Bench::with_pool("16M");
    bench.run(&["set", "p.img", "-L", "main"]).ok();
    bench
        .run(&["dataset", "add", "p.img", "more", "--size", "16M"])
        .ok();
    set_and_check(&bench, "p.img:more", "p.img:more");
    assert_eq!(label(&bench, "p.img"), "main");
    bench.run(&["check", "--strict", "p.img"]).ok();
    bench.run(&["set", "p.img", "-L", "again"]).ok();
    assert_eq!(label(&bench, "p.img:more"), "Größe");
}

#[test]
fn a_label_that_cannot_be_set_changes_nothing() {
    let bench = Bench::with_pool("4M");
    let long = "x".repeat(65);
    bench
        .run(&["set", "p.img", "-L", &long])
        .failed(2, &["64 bytes"]);
    bench.run(&["set", "p.img"]).failed(2, &["--label"]);
    bench
        .run(&["set", "no.img", "-L", "x"])
        .failed(1, &["no.img"]);
    assert_eq!(label(&bench, "p.img"), "");
    bench.sound();
    if has_fuse("a_label_that_cannot_be_set_changes_nothing") {
        let mounted = Mounted::of(bench, &[]);
        let set = |label: &str| mounted.bench.run(&["set", "p.img", "-L", label]);
        set("x").failed(3, &["in use"]);
        std::fs::write(mounted.path("file"), "kept").expect("written");
        kill(&mounted);
        set("after a kill").ok();
        assert_eq!(label(&mounted.bench, "p.img"), "after a kill");
        let kept = mounted.bench.run(&["cat", "p.img:/file"]).ok();
        assert_eq!(kept.out, "kept");
    }
}

#[test]
fn udev_learns_type_uuid_and_label() {
    let bench = Bench::empty();
    let make = "mkfs p.img --quiet --data data.img --data-size 16M -L";
    let make: Vec<&str> = make.split(' ').chain(["my pool"]).collect();
    let uuid = ["-U", "5b6f3c1e-0d1f-4c57-9a2e-6a1d6f0c2b11"];
    bench.run(&[&make[..], &uuid].concat()).ok();
    let told = bench.run(&["info", "--udev", "p.img"]).ok().out;
    let wanted = "\
ID_FS_USAGE=filesystem
ID_FS_TYPE=vellum
ID_FS_VERSION=1
ID_FS_UUID=5b6f3c1e-0d1f-4c57-9a2e-6a1d6f0c2b11
ID_FS_UUID_ENC=5b6f3c1e-0d1f-4c57-9a2e-6a1d6f0c2b11
ID_FS_LABEL=my_pool
ID_FS_LABEL_ENC=my\\x20pool
";
    assert_eq!(told, wanted);
    let told = bench.run(&["info", "--udev", "data.img"]).ok().out;
    let wanted = "\
ID_FS_USAGE=other
ID_FS_TYPE=vellum_data
VELLUM_POOL=5b6f3c1e-0d1f-4c57-9a2e-6a1d6f0c2b11
";
    assert_eq!(told, wanted);
    std::fs::write(bench.join("other"), [7; 9000]).expect("written");
    bench
        .run(&["info", "--udev", "other"])
        .failed(1, &["there is no pool"]);
    // The first copy of the superblock is lost.
    let mut pool = std::fs::read(bench.join("p.img")).expect("read");
    pool[..4096].fill(0);
    std::fs::write(bench.join("p.img"), pool).expect("written");
    let told = bench.run(&["info", "--udev", "p.img"]).ok().out;
    assert!(told.contains("my_pool"), "{told}");
}
