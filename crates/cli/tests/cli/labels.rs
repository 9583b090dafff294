//! `vellum set`, and what other programs learn of a pool's name.

use crate::support::{Bench, Mounted, has_fuse, kill};

const UUIDS: [&str; 2] = [
    "5b6f3c1e-0d1f-4c57-9a2e-6a1d6f0c2b11",
    "00000000-0000-0000-0000-00000000000a",
];

/// The report of `vellum info` about a pool.
fn told(bench: &Bench, pool: &str, key: &str) -> String {
    let told = bench.run(&["info", "--json", pool]).ok().out;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    told["pool"][key].as_str().unwrap_or("none").to_owned()
}

fn label(bench: &Bench, pool: &str) -> String {
    told(bench, pool, "label")
}

fn set_and_check(bench: &Bench, pool: &str, file: &str) {
    bench.run(&["mkdir", &format!("{pool}:/kept")]).ok();
    for wanted in ["first", "a longer label, with words", "", "Größe"] {
        bench.run(&["set", pool, "--label", wanted]).ok();
        assert_eq!(label(bench, pool), wanted);
        let did = bench.run(&["check", "--strict", file]).ok();
        assert!(did.out.contains("closed cleanly"), "{}", did.out);
    }
    let first = told(bench, pool, "uuid");
    assert_eq!(told(bench, pool, "structure_uuid"), "none");
    for wanted in UUIDS {
        bench
            .run(&["set", pool, "--uuid", wanted, "-o", "noatime"])
            .ok();
        assert_eq!(told(bench, pool, "uuid"), wanted);
        assert_eq!(told(bench, pool, "structure_uuid"), first);
        bench
            .run(&["mkdir", &format!("{pool}:/kept/{wanted}")])
            .ok();
        bench.run(&["check", "--strict", file]).ok();
    }
    bench.run(&["set", pool, "--uuid", "random", "-o", ""]).ok();
    let drawn = told(bench, pool, "uuid");
    assert!(!UUIDS.contains(&drawn.as_str()) && drawn != first);
    bench.run(&["set", pool, "--uuid", &first]).ok();
    assert_eq!(told(bench, pool, "structure_uuid"), "none");
    assert_eq!(label(bench, pool), "Größe");
    let listed = bench.run(&["ls", &format!("{pool}:/kept")]).ok().out;
    assert!(UUIDS.iter().all(|made| listed.contains(made)), "{listed}");
}

#[test]
fn settings_change_on_every_kind_of_pool() {
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
fn a_dataset_has_settings_of_its_own() {
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
fn what_cannot_be_set_changes_nothing() {
    let bench = Bench::with_pool("4M");
    let long = "x".repeat(65);
    bench
        .run(&["set", "p.img", "-L", &long])
        .failed(2, &["64 bytes"]);
    bench.run(&["set", "p.img"]).failed(2, &["--label"]);
    for (option, value, why) in [
        ("--uuid", "1", "is not a UUID"),
        ("--option", "noatime,allow_other", "`allow_other`"),
        ("--option", "commit=soon", "`commit=soon`"),
        ("--option", "uring=on", "`uring=on`"),
        ("--option", "log=/etc/passwd", "`log=/etc/passwd`"),
    ] {
        bench
            .run(&["set", "p.img", option, value, "-L", "x"])
            .failed(2, &[why]);
    }
    let many = ["nostrictatime"; 10].join(",");
    bench
        .run(&["set", "p.img", "-o", &many])
        .failed(2, &["128 bytes"]);
    bench
        .run(&["set", "no.img", "-L", "x"])
        .failed(1, &["no.img"]);
    assert_eq!(label(&bench, "p.img"), "");
    bench.sound();
    if has_fuse("what_cannot_be_set_changes_nothing") {
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
fn mounts_take_over_the_options_of_the_pool() {
    if !has_fuse("mounts_take_over_the_options_of_the_pool") {
        return;
    }
    let bench = Bench::with_pool("16M");
    let set = ["set", "p.img", "--option", "commit=30,sync,noatime,direct"];
    bench.run(&set).ok();
    let mounted = Mounted::not_yet(bench);
    let information = |options: &[&str]| {
        mounted.mount(options);
        let told = mounted.bench.run(&["info", "--json", "mnt"]).ok().out;
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(
            told["pool"]["mount_options"],
            "commit=30,sync,noatime,direct"
        );
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        let dir = mounted.dir.to_str().expect("text");
        let line = mounts
            .lines()
            .find(|line| line.contains(dir))
            .expect("a line");
        let media = &told["media"];
        let found = (
            media["commit_every_s"].as_f64().expect("a number"),
            media["durability"].as_str().expect("a text").to_owned(),
            media["direct"] == true,
            line.contains("noatime"),
        );
        mounted.umount();
        found
    };
    assert_eq!(information(&[]), (30.0, "sync".into(), true, true));
    let others = ["-o", "commit=7,async,relatime,nodirect"];
    assert_eq!(information(&others), (7.0, "async".into(), false, false));
    let others = ["--commit-every", "5", "--durability", "dirsync"];
    assert_eq!(information(&others), (5.0, "dirsync".into(), true, true));
    let wrong = [
        "mount",
        "p.img",
        "mnt",
        "--durability",
        "async",
        "-o",
        "nonsense",
    ];
    mounted.bench.run(&wrong).failed(2, &["nonsense"]);
}

/// An option that this release does not keep, or that no pool may keep, decides nothing.
#[test]
fn other_options_of_a_pool_are_ignored() {
    if !has_fuse("other_options_of_a_pool_are_ignored") {
        return;
    }
    let mounted = Mounted::not_yet(Bench::with_plain_pool("16M"));
    let pool = mounted.bench.join("p.img");
    {
        use vellum::experiments::write_table;
        let mode = vellum::media::OpenMode::default();
        let bytes = vellum::open_bytes(&pool, mode, &[]).expect("opened");
        let image = vellum_check::MemoryImage(&bytes);
        let superblock = vellum_check::survey::superblock(&image).expect("a superblock");
        let mut settings = superblock.settings();
        settings.mount_options = "ro,log=stolen,newer\n,noatime".into();
        let set = superblock.with_settings(&settings).expect("it has room");
        write_table(&bytes, &set).expect("written");
    }
    let told = mounted.bench.run(&["mount", "p.img", "mnt"]).ok();
    for option in ["`ro`", "`log=stolen`", r"`newer\n`"] {
        assert_eq!(told.err.matches(option).count(), 1, "{}", told.err);
    }
    assert!(!told.err.contains("noatime"), "{}", told.err);
    std::fs::write(mounted.path("file"), "written").expect("written");
    mounted.umount();
    assert!(!mounted.bench.join("stolen").exists());
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
    // The data know the pool by its first UUID.
    let set = ["set", "p.img", "-U", UUIDS[1]];
    bench.run(&set).ok();
    let told = bench.run(&["info", "--udev", "p.img"]).ok().out;
    let uuid = format!("ID_FS_UUID={}\n", UUIDS[1]);
    assert!(told.contains(&uuid), "{told}");
    let told = bench.run(&["info", "--udev", "data.img"]).ok().out;
    assert_eq!(told, wanted);
    let shown = bench.run(&["info", "--verbose", "p.img"]).ok().out;
    let both = format!("{} ({} until it was set)", UUIDS[1], UUIDS[0]);
    assert!(shown.contains(&both), "{shown}");
    bench.run(&["check", "--strict", "p.img"]).ok();
    // The first copy of the superblock is lost.
    let mut pool = std::fs::read(bench.join("p.img")).expect("read");
    pool[..4096].fill(0);
    std::fs::write(bench.join("p.img"), pool).expect("written");
    let told = bench.run(&["info", "--udev", "p.img"]).ok().out;
    assert!(told.contains("my_pool"), "{told}");
}
