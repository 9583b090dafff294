//! Several datasets in one pool, from adding to removing them.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::support::{self, Bench, PATIENCE, has_fuse, kill_and_wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The output of `dataset list` for a pool.
fn listed(bench: &Bench, pool: &str) -> Vec<Value> {
    let said = json(&bench.run(&["dataset", "list", "--json", pool]).ok().out);
    said["datasets"].as_array().expect("a list").clone()
}

fn names(bench: &Bench, pool: &str) -> Vec<String> {
    let name = |fs: &Value| fs["name"].as_str().expect("a name").to_owned();
    listed(bench, pool).iter().map(name).collect()
}

/// The bytes of the datasets of a pool, in the order of the list, without the table's own
/// changes.
fn bytes(bench: &Bench, pool: &str) -> Vec<Vec<u8>> {
    let all = std::fs::read(bench.join(pool)).expect("read");
    let of = |fs: &Value| {
        let number = |field: &str| fs[field].as_u64().expect("a number") as usize;
        all[number("at")..][..number("bytes")].to_vec()
    };
    listed(bench, pool).iter().map(of).collect()
}

/// A pool with a log, and a dataset of each kind in it: with a log, without one, and with an
/// external data device.
fn pool_of_four() -> Bench {
    let bench = Bench::with_pool("8M");
    let add = |args: &[&str]| {
        bench
            .run(&[&["dataset", "add", "p.img"], args].concat())
            .ok()
    };
    add(&["builds", "--size", "6M", "--label", "one"]);
    let plain = [
        "--medium",
        "disk",
        "--durability",
        "none",
        "-O",
        "namespace=tree,mapping=radix",
    ];
    add(&[&["plain", "--size", "4M"], &plain[..]].concat());
    add(&["photos", "--data", "d.img", "--data-size", "8M", "--quiet"]);
    bench
}

#[test]
fn each_dataset_has_files_of_its_own() {
    let bench = pool_of_four();
    assert_eq!(
        names(&bench, "p.img"),
        ["main", "builds", "plain", "photos"]
    );
    let tree = bench.join("tree");
    std::fs::create_dir_all(tree.join("d/e")).expect("made");
    std::fs::write(tree.join("d/big"), vec![7; 300_000]).expect("written");
    for name in ["main", "builds", "plain", "photos"] {
        let place = match name {
            "main" => "p.img".to_owned(),
            name => format!("p.img:{name}"),
        };
        std::fs::write(tree.join("d/e/who"), name).expect("written");
        let into = format!("{place}:/tree");
        bench.run(&["import", "--quiet", "tree", &into]).ok();
    }
    for place in ["p.img:main", "p.img:builds", "p.img:plain", "p.img:photos"] {
        let name = &place["p.img:".len()..];
        let who = format!("{place}:/tree/d/e/who");
        assert_eq!(bench.run(&["cat", &who]).ok().out, name);
        let out = format!("out-{name}");
        bench
            .run(&["export", "--quiet", &format!("{place}:/tree"), &out])
            .ok();
        assert_eq!(
            std::fs::read(bench.join(&out).join("d/big")).expect("read"),
            vec![7; 300_000]
        );
        assert_eq!(bench.run(&["ls", &format!("{place}:/")]).ok().out, "tree\n");
        let said = bench.run(&["check", "--strict", place]).ok().out;
        assert!(said.contains("sound") && said.contains("closed cleanly"));
        bench.run(&["repair", "--yes", place]).ok();
    }
    let info = json(&bench.run(&["info", "--json", "p.img:plain"]).ok().out);
    assert_eq!(info["pool"]["namespace"], "tree");
    assert_eq!(info["pool"]["mapping"], "radix");
    let path = info["pool"]["path"].as_str().expect("a path");
    assert!(path.ends_with("/p.img:plain"), "{path}");
    let whole = bench.run(&["info", "p.img"]).ok().out;
    for name in ["builds", "plain", "photos"] {
        assert!(whole.contains(name), "{whole}");
    }
}

#[test]
fn changes_of_a_dataset_leave_the_others_unchanged() {
    let bench = pool_of_four();
    for (number, place) in ["p.img", "p.img:builds", "p.img:plain", "p.img:photos"]
        .into_iter()
        .enumerate()
    {
        let before = bytes(&bench, "p.img");
        bench
            .run_with_input(&["put", "-", &format!("{place}:/a")], &[9; 100_000])
            .ok();
        bench.run(&["convert", place, "--namespace", "direct"]).ok();
        bench.run(&["convert", place, "--namespace", "tree"]).ok();
        bench.run(&["rm", &format!("{place}:/a")]).ok();
        bench.run(&["repair", "--yes", place]).ok();
        let after = bytes(&bench, "p.img");
        for (other, (before, after)) in before.iter().zip(&after).enumerate() {
            assert_eq!(before == after, other != number, "{other} by {place}");
        }
    }
    assert_eq!(names(&bench, "p.img").len(), 4);
    // A change of the table changes no bytes of the datasets either, except the superblocks of the
    // first.
    let inner = |bytes: &[u8]| bytes[8192..bytes.len() - 4096].to_vec();
    let before = bytes(&bench, "p.img");
    bench
        .run(&["dataset", "add", "p.img", "more", "--size", "2M"])
        .ok();
    bench
        .run(&["dataset", "remove", "p.img", "plain", "--force"])
        .ok();
    let after = bytes(&bench, "p.img");
    assert_eq!(inner(&before[0]), inner(&after[0]));
    assert_eq!(names(&bench, "p.img"), ["main", "builds", "photos", "more"]);
    assert_eq!((&before[1], &before[3]), (&after[1], &after[2]));
}

#[test]
fn space_is_freed_and_reused() {
    let bench = pool_of_four();
    let len = || std::fs::metadata(bench.join("p.img")).expect("there").len();
    let before = len();
    let at = |name: &str| {
        let all = listed(&bench, "p.img");
        let fs = all.into_iter().find(|fs| fs["name"] == name);
        fs.expect("listed")["at"].as_u64().expect("a number")
    };
    let gap = at("builds");
    let said = bench
        .run(&["dataset", "remove", "p.img", "builds"])
        .ok()
        .out;
    assert_eq!(said, "removed p.img:builds\n");
    assert_eq!(len(), before);
    bench
        .run(&["dataset", "add", "p.img", "small", "--size", "2M"])
        .ok();
    bench
        .run(&["dataset", "add", "p.img", "large", "--size", "6M"])
        .ok();
    assert_eq!((at("small"), at("large")), (gap, before));
    bench.run(&["put", "/dev/null", "p.img:small:/a"]).ok();
    bench
        .run(&["dataset", "remove", "p.img", "small"])
        .failed(1, &["p.img:small", "has files", "--force"]);
    for name in ["large", "plain", "photos"] {
        bench.run(&["dataset", "remove", "p.img", name]).ok();
    }
    let removed = ["dataset", "remove", "--force", "--json", "p.img", "small"];
    let removed = json(&bench.run(&removed).ok().out);
    assert_eq!(
        (&removed["name"], &removed["data"]),
        (&"small".into(), &Value::Null)
    );
    assert_eq!(len(), 8 << 20);
    assert_eq!(names(&bench, "p.img"), ["main"]);
    assert!(bench.join("d.img").is_file());
    bench.sound();
}

#[test]
fn impossible_datasets_are_refused() {
    let bench = Bench::with_pool("4M");
    let add = |name: &str| bench.run(&["dataset", "add", "p.img", "--size", "2M", "--", name]);
    let before = std::fs::read(bench.join("p.img")).expect("read");
    let long = "x".repeat(64);
    for name in ["", "a/b", "a:b", "-a", "main", "..", &long] {
        add(name).failed(2, &[]);
    }
    bench
        .run(&["dataset", "add", "p.img", "a"])
        .failed(2, &["the size is missing"]);
    bench
        .run(&["dataset", "add", "missing", "a"])
        .failed(1, &["missing: No such file"]);
    bench
        .run(&["dataset", "add", "p.img", "a", "--size", "100T"])
        .failed(1, &[]);
    bench
        .run(&[
            "dataset",
            "add",
            "p.img",
            "a",
            "--size",
            "2M",
            "-O",
            "metadata=1G",
        ])
        .failed(1, &[]);
    assert!(before == std::fs::read(bench.join("p.img")).expect("read"));
    add("a").ok();
    add("a").failed(1, &["`a`", "already"]);
    bench
        .run(&["ls", "p.img:b:/"])
        .failed(1, &["p.img", "no dataset `b`", "main, a"]);
    bench.run(&["check", "p.img:b"]).failed(8, &["main, a"]);
    bench
        .run(&["dataset", "remove", "p.img", "b"])
        .failed(1, &["main, a"]);
    bench
        .run(&["dataset", "remove", "p.img", "main"])
        .failed(1, &["`main`", "the pool itself"]);
    for name in ["b", "c", "d", "e", "f", "g"] {
        add(name).ok();
    }
    add("h").failed(1, &["at most 8"]);
    let external = ["--data", "d.img", "--data-size", "8M"];
    let taken = [&["dataset", "add", "p.img", "a"][..], &external].concat();
    bench.run(&taken).failed(1, &["already"]);
    assert!(!bench.join("d.img").exists());
    assert_eq!(names(&bench, "p.img").len(), 8);
    let told = ["p.img is a pool already", "7 more datasets", "a, b, c"];
    bench
        .run(&["mkfs", "p.img", "--size", "4M"])
        .failed(1, &told);
}

#[test]
fn a_file_with_a_colon_takes_precedence() {
    let bench = Bench::with_pool("4M");
    let label = |place: &str| {
        let info = json(&bench.run(&["info", "--json", place]).ok().out);
        info["pool"]["label"].as_str().expect("text").to_owned()
    };
    let add = [
        "dataset", "add", "p.img", "x", "--size", "2M", "--label", "part",
    ];
    bench.run(&add).ok();
    assert_eq!(label("p.img:x"), "part");
    // A file of that name is not created by mistake.
    let mkfs = |pool| ["mkfs", pool, "--size", "2M", "--label", "file"];
    for (place, advice) in [
        ("p.img:x", "dataset list p.img"),
        ("p.img:y", "dataset add p.img y"),
        ("p.img:main", "dataset list p.img"),
    ] {
        bench.run(&mkfs(place)).failed(2, &[advice]);
        let attach = ["replica", "import", place, "--data", "p.img"];
        bench.run(&attach).failed(2, &[advice]);
    }
    bench.run(&mkfs("other.img")).ok();
    std::fs::rename(bench.join("other.img"), bench.join("p.img:x")).expect("renamed");
    assert_eq!(label("p.img:x"), "file");
    // The command examines the dataset `z`, not the file `p.img:z`.
    let add = ["dataset", "add", "p.img", "z", "--size", "2M"];
    bench.run(&add).ok();
    bench.run(&["put", "/dev/null", "p.img:z:/a"]).ok();
    std::fs::copy(bench.join("p.img:x"), bench.join("p.img:z")).expect("copied");
    bench
        .run(&["dataset", "remove", "p.img", "z"])
        .failed(1, &["p.img:z", "has files", "--force"]);
    std::fs::remove_file(bench.join("p.img:z")).expect("removed");
    bench.run(&["ls", "p.img:z:/a"]).ok();
    bench
        .run(&["dataset", "add", "p.img:x", "y", "--size", "2M"])
        .ok();
    assert_eq!(names(&bench, "p.img:x"), ["main", "y"]);
    assert_eq!(bench.run(&["ls", "p.img:x:y:/"]).ok().out, "");
}

#[test]
fn a_dataset_in_memory_is_exported_and_imported() {
    let bench = Bench::empty();
    let memory = ["--medium", "memory"];
    let run = |args: &[&str]| bench.run(&[args, &memory].concat());
    run(&["mkfs", "p.img", "--size", "4M"]).ok();
    run(&[
        "dataset",
        "add",
        "p.img",
        "x",
        "--data",
        "d.img",
        "--data-size",
        "16M",
    ])
    .ok();
    run(&["dataset", "add", "p.img", "y", "--size", "2M"]).ok();
    let put = ["put", "-", "p.img:x:/a", "--medium", "memory"];
    bench.run_with_input(&put, b"content").ok();
    run(&["replica", "export", "p.img:x"]).ok();
    run(&["replica", "import", "n.img", "--data", "d.img"]).ok();
    assert_eq!(run(&["cat", "n.img:/a"]).ok().out, "content");
    run(&["cat", "p.img:x:/a"]).failed(1, &["d.img", "of the same pool"]);
    bench.run(&["check", "p.img"]).ok();
    let said = run(&["dataset", "remove", "--force", "p.img", "x"])
        .ok()
        .out;
    assert!(said.contains("d.img"), "{said}");
}

/// Datasets without a replica do not keep the others from being exported.
#[test]
fn all_replicas_are_exported_when_all_are_unmounted() {
    if !has_fuse("all_that_carry_a_copy_are_flushed_when_all_are_unmounted") {
        return;
    }
    let bench = Bench::empty();
    let run = |args: &[&str]| bench.run(&[args, &["--medium", "memory"]].concat());
    run(&["mkfs", "p.img", "--size", "4M"]).ok();
    let external = ["--data", "d.img", "--data-size", "16M"];
    run(&[&["dataset", "add", "p.img", "x"], &external[..]].concat()).ok();
    std::fs::create_dir(bench.join("mnt")).expect("made");
    let _below = Below(&bench);
    run(&["mount", "--all", "p.img", "mnt"]).ok();
    write(&bench.join("mnt/x/a"), "content");
    let told = run(&["umount", "--export-replica", "mnt"]).ok();
    assert!(told.err.contains("p.img: nothing exported"), "{}", told.err);
    assert!(
        told.out.contains("p.img:x: its external data device"),
        "{}",
        told.out
    );
    run(&["replica", "import", "n.img", "--data", "d.img"]).ok();
    assert_eq!(run(&["cat", "n.img:/a"]).ok().out, "content");
    // The only one is not skipped.
    run(&["mount", "p.img", "mnt"]).ok();
    run(&["umount", "--export-replica", "mnt"]).failed(1, &["no space for a replica"]);
}

/// The replica of the first dataset contains its superblock with the table, but not the other
/// datasets.
#[test]
fn a_replica_has_no_other_datasets() {
    let bench = Bench::empty();
    let memory = ["--medium", "memory"];
    let run = |args: &[&str]| bench.run(&[args, &memory].concat());
    run(&["mkfs", "p.img", "--data", "d.img", "--data-size", "16M"]).ok();
    run(&["dataset", "add", "p.img", "x", "--size", "2M"]).ok();
    run(&["replica", "export", "--all", "p.img"]).ok();
    run(&["replica", "import", "n.img", "--data", "d.img"]).ok();
    assert_eq!(names(&bench, "n.img"), ["main"]);
    bench.run(&["check", "--strict", "n.img"]).ok();
}

#[test]
fn damage_is_reported_for_its_dataset() {
    let bench = pool_of_four();
    let file = OpenOptions::new().write(true).open(bench.join("p.img"));
    let file = file.expect("opened");
    let all = listed(&bench, "p.img");
    let at = |number: usize| all[number]["at"].as_u64().expect("a number");
    file.write_all_at(&[0x55; 64], at(1) + 40).expect("written");
    bench.run(&["check", "p.img"]).ok();
    let said = bench.run(&["check", "p.img:builds"]);
    assert_eq!(said.code, 4, "{}", said.out);
    bench
        .run(&["repair", "--yes", "p.img:builds"])
        .failed(1, &[]);
    bench.run(&["check", "p.img:builds"]).ok();
    // A table with an invalid offset.
    file.set_len(at(3)).expect("cut");
    let said = bench.run(&["check", "p.img"]);
    assert_eq!(said.code, 4, "{}", said.out);
    assert!(said.out.contains("photos"), "{}", said.out);
    assert!(said.err.contains("vellum dataset remove"), "{}", said.err);
    assert!(!said.err.contains("vellum repair"), "{}", said.err);
    bench
        .run(&["ls", "p.img:photos:/"])
        .failed(1, &["p.img:photos", "ends before"]);
    bench.run(&["ls", "p.img:plain:/"]).ok();
    file.set_len(at(3) + (1 << 20)).expect("longer");
    let cut = bench.run(&["check", "p.img:photos"]);
    assert_ne!(cut.code, 0, "{}", cut.out);
    let told = bench.run(&["ls", "p.img:photos:/"]);
    assert!(!told.err.contains("mkfs"), "{}", told.err);
    bench
        .run(&["dataset", "remove", "p.img", "photos"])
        .failed(1, &["--force"]);
    bench
        .run(&["dataset", "remove", "p.img", "photos", "--force"])
        .ok();
    bench.run(&["check", "p.img"]).ok();
}

/// The table stays intact when the first dataset is damaged, converted and repaired.
#[test]
fn repair_and_conversion_keep_the_table() {
    let bench = pool_of_four();
    let file = OpenOptions::new().write(true).open(bench.join("p.img"));
    file.expect("opened")
        .write_all_at(&[0; 4096], 0)
        .expect("written");
    assert_eq!(names(&bench, "p.img").len(), 4);
    bench.run(&["repair", "--yes", "p.img"]).failed(1, &[]);
    // Both superblocks at the beginning.
    let file = OpenOptions::new().write(true).open(bench.join("p.img"));
    file.expect("opened")
        .write_all_at(&[0; 8192], 0)
        .expect("written");
    assert_eq!(names(&bench, "p.img").len(), 4);
    bench.run(&["ls", "p.img:photos:/"]).ok();
    assert_eq!(bench.run(&["check", "p.img"]).code, 4);
    bench
        .run(&["repair", "--yes", "--no-undo", "p.img"])
        .failed(1, &[]);
    bench.run(&["check", "p.img"]).ok();
    bench
        .run(&["convert", "p.img", "--namespace", "adaptive"])
        .ok();
    assert_eq!(names(&bench, "p.img").len(), 4);
    bench.sound();
    bench.run(&["ls", "p.img:photos:/"]).ok();
}

/// The pool with four datasets, and a directory for mounts. `None` if mounts are impossible here.
fn pool_to_mount(test: &str) -> Option<Bench> {
    has_fuse(test).then(|| {
        let bench = pool_of_four();
        std::fs::create_dir(bench.join("mnt")).expect("made");
        bench
    })
}

/// Unmounts all remaining mounts below a directory.
struct Below<'a>(&'a Bench);

impl Drop for Below<'_> {
    fn drop(&mut self) {
        let _ = self.0.run(&["umount", "--lazy", "mnt"]);
    }
}

#[test]
fn a_dataset_is_mounted_by_name_and_its_pool_is_in_use() {
    let Some(bench) = pool_to_mount("a_dataset_is_mounted_by_name_and_its_pool_is_in_use") else {
        return;
    };
    let _below = Below(&bench);
    bench.run(&["mount", "p.img:photos", "mnt"]).ok();
    std::fs::write(bench.join("mnt/a"), "content").expect("written");
    assert_eq!(bench.run(&["ls", "p.img:photos:/"]).ok().out, "a\n");
    for other in ["p.img:", "p.img:builds:"] {
        bench
            .run(&["mkdir", &format!("{other}/d")])
            .failed(3, &["in use", "p.img:photos of the same pool", "--all"]);
    }
    for change in [
        &["dataset", "remove", "p.img", "builds"][..],
        &["dataset", "add", "p.img", "more", "--size", "2M"],
        &["mkfs", "--force", "p.img", "--size", "4M"],
    ] {
        bench.run(change).failed(3, &["in use"]);
    }
    assert_eq!(names(&bench, "p.img").len(), 4);
    let info = json(&bench.run(&["info", "--json", "p.img:photos"]).ok().out);
    assert_eq!(
        info["mount"]["dir"],
        bench.join("mnt").to_str().expect("text")
    );
    bench.run(&["umount", "p.img:photos"]).ok();
    assert_eq!(bench.run(&["cat", "p.img:photos:/a"]).ok().out, "content");
}

/// A dataset that is not open can be read while others of the pool are written to. An open one
/// cannot.
#[test]
fn closed_datasets_are_checked_while_others_are_mounted() {
    let test = "closed_datasets_are_checked_while_others_are_mounted";
    let Some(bench) = pool_to_mount(test) else {
        return;
    };
    let _below = Below(&bench);
    let all = ["main", "builds", "plain", "photos"];
    for name in all {
        let place = format!("p.img:{name}:/who");
        bench
            .run_with_input(&["put", "-", &place], name.as_bytes())
            .ok();
    }
    for mounted in all {
        bench
            .run(&["mount", &format!("p.img:{mounted}"), "mnt"])
            .ok();
        write(&bench.join("mnt/new"), "written meanwhile");
        for name in all {
            let place = format!("p.img:{name}");
            let look: [&[&str]; 5] = [
                &["check", "--strict", &place],
                &["check", "--json", &place],
                &["repair", "--dry-run", &place],
                &["cat", &format!("{place}:/who")],
                &["inspect", "areas", &place],
            ];
            let codes = look.map(|args| bench.run(args).code);
            let expected = match name == mounted {
                // None of them has areas, as a mount reports too.
                true => [8, 8, 8, 0, 1],
                false => [0, 0, 0, 0, 1],
            };
            assert_eq!(codes, expected, "{name} beside {mounted}");
            let info = json(&bench.run(&["info", "--json", &place]).ok().out);
            assert_eq!(info["mount"].is_null(), name != mounted, "{name}");
        }
        bench
            .run(&["check", &format!("p.img:{mounted}")])
            .failed(8, &["in use", "mnt", "unmount it"]);
        bench.run(&["umount", "mnt"]).ok();
    }
    // Several at once. One is closed while the process goes on.
    bench.run(&["mount", "p.img", "--all", "mnt"]).ok();
    bench.run(&["check", "p.img:plain"]).failed(8, &["in use"]);
    bench.run(&["umount", "mnt/plain"]).ok();
    let said = bench.run(&["check", "--strict", "p.img:plain"]).ok().out;
    assert!(said.contains("closed cleanly"), "{said}");
    bench.run(&["check", "p.img"]).failed(8, &["in use"]);
    bench.run(&["umount", "mnt"]).ok();
    bench.sound();
}

/// A reader of a dataset keeps later commands from changing it, but not from changing the others.
#[test]
fn a_dataset_is_not_changed_while_it_is_read() {
    let test = "a_dataset_is_not_changed_while_it_is_read";
    let Some(bench) = pool_to_mount(test) else {
        return;
    };
    let _below = Below(&bench);
    std::fs::create_dir(bench.join("looks")).expect("made");
    bench.run(&["mount", "p.img:photos", "mnt"]).ok();
    bench
        .run(&["mount", "-o", "ro", "p.img:builds", "looks"])
        .ok();
    bench.run(&["umount", "mnt"]).ok();
    // The first mount has ended, and with it the lock on the pool.
    bench
        .run(&["mkdir", "p.img:builds:/d"])
        .failed(1, &["looks", "read-only"]);
    for change in [
        &["dataset", "remove", "p.img", "plain"][..],
        &["mkfs", "--force", "p.img", "--size", "4M"],
        &["mount", "p.img", "--all", "mnt"],
    ] {
        bench.run(change).failed(3, &["in use"]);
    }
    bench.run(&["mkdir", "p.img:photos:/d"]).ok();
    bench.run(&["check", "p.img:builds"]).ok();
    bench.run(&["umount", "looks"]).ok();
    bench.run(&["mkdir", "p.img:builds:/d"]).ok();
    bench.sound();
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
}

#[test]
fn one_process_mounts_all_datasets() {
    let Some(bench) = pool_to_mount("one_process_mounts_all_datasets") else {
        return;
    };
    let _below = Below(&bench);
    bench
        .run(&["mount", "--all", "p.img:builds", "mnt"])
        .failed(2, &["--all"]);
    let all = ["main", "builds", "plain", "photos"];
    let path = |name: &str| bench.join("mnt").join(name).join("who");
    bench.run(&["mount", "p.img", "--all", "mnt"]).ok();
    all.iter().for_each(|name| write(&path(name), name));
    // One mount ends, and the others go on.
    bench.run(&["umount", "mnt/plain"]).ok();
    assert!(!path("plain").exists());
    write(&path("main"), "main again");
    bench.run(&["umount", "mnt"]).ok();
    for name in all {
        let said = bench.run(&["cat", &format!("p.img:{name}:/who")]).ok().out;
        assert!(said.starts_with(name), "{said}");
        bench
            .run(&["check", "--strict", &format!("p.img:{name}")])
            .ok();
    }
    // The changes of a killed process to each dataset are adopted.
    bench.run(&["mount", "p.img", "--all", "mnt"]).ok();
    all.iter().for_each(|name| write(&path(name), "killed"));
    let info = json(&bench.run(&["info", "--json", "p.img"]).ok().out);
    let pid = info["mount"]["pid"].as_i64().expect("a number") as i32;
    kill_and_wait(Pid::from_raw(pid).expect("a process"));
    for name in all {
        // The mounts of a killed process still exist.
        let _ = bench.run(&["umount", "--lazy", &format!("mnt/{name}")]);
    }
    for name in ["main", "builds", "photos"] {
        let said = bench.run(&["cat", &format!("p.img:{name}:/who")]).ok().out;
        assert_eq!(said, "killed", "{name}");
    }
    // A signal ends all mounts.
    bench.run(&["mount", "p.img", "--all", "mnt"]).ok();
    let info = json(&bench.run(&["info", "--json", "mnt/photos"]).ok().out);
    let pid = info["mount"]["pid"].as_i64().expect("a number") as i32;
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::TERM).expect("asked");
    let began = std::time::Instant::now();
    while bench.run(&["ls", "p.img:/"]).code != 0 {
        assert!(began.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    bench.sound();
}

/// The process goes on with the other datasets and keeps the pool's lock, so the lock says nothing
/// about one dataset.
#[test]
fn unmounting_a_dataset_waits_until_it_is_closed() {
    let Some(bench) = pool_to_mount("unmounting_a_dataset_waits_until_it_is_closed") else {
        return;
    };
    let _below = Below(&bench);
    bench.run(&["mount", "p.img", "--all", "mnt"]).ok();
    for name in ["builds", "plain"] {
        write(&bench.join("mnt").join(name).join("a"), name);
    }
    let info = json(&bench.run(&["info", "--json", "p.img"]).ok().out);
    let pid = info["mount"]["pid"].as_i64().expect("a number") as i32;
    let pid = Pid::from_raw(pid).expect("a process");
    // A stopped process closes nothing.
    kill_process(pid, Signal::STOP).expect("stopped");
    let umount = ["umount", "--timeout", "1", "p.img:builds"];
    let waited = bench.run(&umount);
    kill_process(pid, Signal::CONT).expect("continued");
    waited.failed(3, &["p.img:builds is still in use 1 s"]);
    bench.run(&["umount", "mnt/plain"]).ok();
    // The next opening finds the present bytes of the file.
    let plain = listed(&bench, "p.img")[2].clone();
    let [at, bytes] = ["at", "bytes"].map(|key| plain[key].as_u64().expect("a number") as usize);
    let all = std::fs::read(bench.join("p.img")).expect("read");
    std::fs::write(bench.join("copy.img"), &all[at..][..bytes]).expect("written");
    let said = bench.run(&["check", "--strict", "copy.img"]).ok().out;
    assert!(said.contains("closed cleanly"), "{said}");
    bench.run(&["umount", "mnt"]).ok();
    bench.sound();
}

#[test]
fn a_failed_mount_of_all_leaves_nothing_and_names_the_dataset() {
    let Some(bench) = pool_to_mount("a_failed_mount_of_all_leaves_nothing_and_names_the_dataset")
    else {
        return;
    };
    std::fs::create_dir(bench.join("mnt/main")).expect("made");
    let _below = Below(&bench);
    // A file is in the way of the second mount.
    write(&bench.join("mnt/builds"), "a file");
    bench
        .run(&["mount", "p.img", "--all", "mnt"])
        .failed(1, &["mnt/builds"]);
    assert!(bench.join("mnt/main").exists(), "it was there before");
    let left = std::fs::read_dir(bench.join("mnt")).expect("read").count();
    assert_eq!(left, 2);
    bench.sound();
    let second = listed(&bench, "p.img")[1].clone();
    let name = second["name"].as_str().expect("text");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(bench.join("p.img"))
        .expect("opened");
    let [at, bytes] = ["at", "bytes"].map(|key| second[key].as_u64().expect("a number"));
    file.write_all_at(&vec![0; bytes as usize], at)
        .expect("written");
    bench
        .run(&["mount", "p.img", "--all", "mnt"])
        .failed(1, &[&format!("p.img:{name}")]);
}

#[test]
fn an_unnamed_mount_stays() {
    let Some(bench) = pool_to_mount("an_unnamed_mount_stays") else {
        return;
    };
    bench.run(&["mkfs", "q.img", "--size", "4M"]).ok();
    std::fs::create_dir(bench.join("mnt/main")).expect("made");
    bench.run(&["mount", "q.img", "mnt/main"]).ok();
    bench
        .run(&["umount", "mnt"])
        .failed(1, &["no Vellum pool is mounted"]);
    bench.run(&["umount", "mnt/main"]).ok();
}

/// The file has grown, but cannot be mapped, because the address space is too small.
#[test]
fn unusable_space_is_freed() {
    let bench = Bench::with_pool("4M");
    let before = std::fs::read(bench.join("p.img")).expect("read");
    let add = "ulimit -v 300000; exec \"$0\" dataset add p.img x --size 512M";
    let limited = Command::new("sh")
        .args(["-c", add, env!("CARGO_BIN_EXE_vellum")])
        .current_dir(bench.path())
        .output();
    support::done(limited.expect("a shell")).failed(1, &["map"]);
    assert!(before == std::fs::read(bench.join("p.img")).expect("read"));
}
