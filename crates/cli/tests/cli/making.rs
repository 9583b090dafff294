//! Options of `vellum mkfs`: medium, UUID, label and settings for experts.

use crate::support::{Bench, Did};
use serde_json::Value;

fn mkfs(bench: &Bench, more: &[&str]) -> Did {
    let make = ["mkfs", "p.img", "--size", "4M", "--force", "--json"];
    bench.run(&[&make, more].concat())
}

fn made(bench: &Bench, more: &[&str]) -> Value {
    json(&mkfs(bench, more).ok())
}

fn json(did: &Did) -> Value {
    serde_json::from_str(&did.out).expect("JSON")
}

#[test]
fn keys_set_expert_options() {
    let bench = Bench::empty();
    let keys = "mapping=hashfs,run-blocks=1,span_lines=1,namespace=tree,thread-slots=4";
    let pool = &made(&bench, &["-O", keys, "-O", "layout-score=0.5"])["pool"];
    for (field, value) in [
        ("mapping", Value::from("hashfs")),
        ("mapping_run_blocks", 1.into()),
        ("mapping_span_lines", 1.into()),
        ("namespace", "tree".into()),
        ("thread_slots", 4.into()),
        ("layout_score", 0.5.into()),
    ] {
        assert_eq!(pool[field], value, "{field}");
    }
    bench.sound();
    for (keys, why) in [
        ("sizes=1", "vellum mkfs -O help"),
        ("run-blocks=x", "run-blocks=1|8"),
    ] {
        mkfs(&bench, &["-O", keys]).failed(2, &[why]);
    }
    mkfs(&bench, &["-O", "replica=off"]).failed(2, &["--data"]);
}

/// `dataset add` takes the same keys.
#[test]
fn the_keys_are_listed() {
    let bench = Bench::with_pool("4M");
    let listed = bench.run(&["mkfs", "-O", "help"]).ok().out;
    for said in [
        "  span-lines=N\n",
        "  namespace=direct|adaptive|tree\n",
        "[default: on]",
    ] {
        assert!(listed.contains(said), "{said}: {listed}");
    }
    assert_eq!(
        bench
            .run(&["dataset", "add", "p.img", "more", "-O", "help"])
            .ok()
            .out,
        listed
    );
    bench
        .run(&["mkfs", "-O", "mapping=radix"])
        .failed(2, &["name the pool"]);
    bench.run(&["mkfs"]).failed(2, &["POOL"]);
}

#[test]
fn mkfs_sets_label_and_uuid() {
    let bench = Bench::empty();
    let uuid = "5b6f3c1e-0d1f-4c57-9a2e-6a1d6f0c2b11";
    let pool = &made(&bench, &["-L", "builds", "-U", uuid])["pool"];
    assert_eq!(
        (&pool["label"], &pool["uuid"]),
        (&"builds".into(), &uuid.into())
    );
    bench.sound();
    let text = bench.run(&["info", "--verbose", "p.img"]).ok().out;
    assert!(
        text.contains(uuid) && text.contains("label       builds\n"),
        "{text}"
    );
    assert_ne!(made(&bench, &["-U", "random"])["pool"]["uuid"], uuid);
    mkfs(&bench, &["-U", "builds"]).failed(2, &["not a UUID", "random"]);
}

#[test]
fn medium_and_durability_are_independent() {
    let bench = Bench::empty();
    let kind = |more: &[&str]| made(&bench, more)["media"]["kind"].clone();
    assert_eq!(kind(&["--medium", "disk"]), "logged");
    assert_eq!(kind(&["--medium", "disk", "--durability", "log"]), "logged");
    assert_eq!(kind(&["--durability", "log"]), "logged");
    assert_eq!(kind(&["--medium", "disk", "--durability", "none"]), "file");
    assert_eq!(kind(&["--durability", "none"]), "file");
    bench.run(&["ls", "--medium", "disk", "p.img:/"]).ok();
    assert_eq!(kind(&["--medium", "memory"]), "memory");
    let both = mkfs(&bench, &["--medium", "memory", "--durability", "log"]);
    both.failed(2, &["--durability is for pools on a disk"]);
    mkfs(&bench, &["--medium", "pmem"]).failed(1, &["p.img"]);
    // A pool with a log keeps its log, whatever --medium says.
    kind(&["--medium", "disk"]);
    bench.run(&["ls", "--medium", "disk", "p.img:/"]).ok();
}

/// If metadata and log leave no space for data, the message names the log. The smallest pools have
/// space for one.
#[test]
fn a_log_takes_space() {
    let bench = Bench::empty();
    let make = ["mkfs", "p.img", "--medium", "disk", "--size"];
    bench
        .run(&[&make[..], &["16M", "-O", "metadata=9M"]].concat())
        .failed(1, &["no room for data", "their log", "--durability none"]);
    assert!(!bench.join("p.img").exists());
    bench.run(&[&make[..], &["1M"]].concat()).ok();
    std::fs::write(bench.join("bytes"), vec![7; 500_000]).expect("a file");
    for round in 0..8 {
        bench.run(&["put", "bytes", "p.img:/bytes"]).ok();
        bench.run(&["rm", "p.img:/bytes"]).ok();
        bench
            .run(&["put", "/dev/null", &format!("p.img:/{round}")])
            .ok();
    }
    assert_eq!(bench.run(&["ls", "p.img:/"]).ok().out.lines().count(), 8);
    bench.sound();
}

#[test]
fn blocks_are_placed_according_to_mkfs() {
    let bench = Bench::empty();
    for (more, run_blocks, span_lines) in [
        (&["-O", "mapping=hashfs"][..], 8, 16),
        (&["-O", "run-blocks=1"], 1, 1),
        (&["-O", "span-lines=1"], 8, 1),
        (&["-O", "span-lines=64"], 8, 64),
    ] {
        let make = ["mkfs", "p.img", "--size", "4M", "--force"];
        bench.run(&[&make, more].concat()).ok();
        std::fs::write(bench.join("bytes"), vec![7; 300_000]).expect("a file");
        bench.run(&["put", "bytes", "p.img:/bytes"]).ok();
        bench.sound();
        let info = json(&bench.run(&["info", "--json", "p.img"]).ok());
        assert_eq!(info["pool"]["mapping_run_blocks"], run_blocks);
        assert_eq!(info["pool"]["mapping_span_lines"], span_lines);
    }
    for wrong in [["-O", "span-lines=3"], ["-O", "span-lines=512"]] {
        let make = ["mkfs", "q.img", "--size", "4M"];
        let made = bench.run(&[&make[..], &wrong].concat());
        made.failed(1, &["lines side by side"]);
    }
}
