//! External data devices that move: export of a replica here, import elsewhere.

use crate::support::Bench;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn an_old_data_device_is_accepted_only_on_request() {
    let bench = Bench::empty();
    let run = |args: &[&str]| bench.run(args);
    run(&["mkfs", "p.img", "--data", "d.img", "--data-size", "16M"]).ok();
    let copy = |from: &str, to: &str| {
        std::fs::copy(bench.join(from), bench.join(to)).expect("copied");
    };
    copy("d.img", "backup");
    bench.run_with_input(&["put", "-", "p.img:/a"], b"a").ok();
    copy("backup", "d.img");
    let commands: [&[&str]; 4] = [
        &["cat", "p.img:/a"],
        &["info", "p.img"],
        &["repair", "--yes", "p.img"],
        &["check", "p.img"],
    ];
    let said = ["d.img", "old copy", "--force-data-device"];
    for command in &commands[..2] {
        run(command).failed(1, &said);
    }
    for command in &commands[2..] {
        run(command).failed(8, &said);
    }
    run(&["repair", "--force-data-device", "--dry-run", "p.img"]).failed(16, &["--dry-run"]);
    run(&["repair", "--force-data-device", "--yes", "p.img"]).ok();
    run(&["ls", "p.img:/"]).ok();
    bench.run(&["check", "--strict", "p.img"]).ok();
    run(&["mkfs", "whole.img", "--size", "8M"]).ok();
    run(&["repair", "--force-data-device", "--yes", "whole.img"])
        .failed(8, &["has its data itself"]);
}

#[test]
fn an_exported_data_device_is_imported_elsewhere() {
    let bench = Bench::empty();
    let memory = ["--medium", "memory"];
    let run = |args: &[&str]| bench.run(&[args, &memory].concat());
    let has_all = |pool: &str| {
        let info = json(&run(&["info", "--json", pool]).ok().out);
        info["media"]["data"]["has_all"].clone()
    };
    run(&["mkfs", "p.img", "--data", "d.img", "--data-size", "16M"]).ok();
    let put = ["put", "-", "p.img:/a", "--medium", "memory"];
    bench.run_with_input(&put, b"content").ok();
    let attach = ["replica", "import", "n.img", "--data", "d.img"];
    run(&attach).failed(1, &["d.img", "stale", "vellum replica export"]);
    assert_eq!(has_all("p.img"), false);
    assert!(
        run(&["replica", "export", "p.img"])
            .ok()
            .out
            .contains("vellum replica import")
    );
    assert_eq!(has_all("p.img"), true);
    let again = json(&run(&["replica", "export", "--json", "p.img"]).ok().out);
    let number = |field: &str| again[field].as_u64().expect("a number");
    assert_eq!(number("number"), 2);
    assert!(number("blocks_written") < 10 && number("blocks_changed") < number("metadata_blocks"));
    let all = json(
        &run(&["replica", "export", "--all", "--json", "p.img"])
            .ok()
            .out,
    );
    assert_eq!(all["blocks_changed"], all["metadata_blocks"]);
    run(&["replica", "import", "p.img", "--data", "d.img"]).failed(1, &["p.img", "--force"]);
    let attached = json(
        &run(&["replica", "import", "n.img", "--data", "d.img", "--json"])
            .ok()
            .out,
    );
    assert_eq!(
        attached["uuid"],
        json(&run(&["info", "--json", "n.img"]).ok().out)["pool"]["uuid"]
    );
    assert_eq!(run(&["cat", "n.img:/a"]).ok().out, "content");
    run(&["cat", "p.img:/a"]).failed(1, &["d.img", "of the same pool"]);
    bench.run(&["check", "--strict", "n.img"]).ok();
}

#[test]
fn pools_without_a_replica_export_nothing() {
    let bench = Bench::empty();
    let made = ["--data-size", "16M", "--medium"];
    for (pool, more) in [
        ("n", &["memory", "-O", "replica=off"][..]),
        ("l", &["disk"]),
    ] {
        let data = format!("{pool}.data");
        bench
            .run(&[&["mkfs", pool, "--data", &data], &made[..], more].concat())
            .ok();
        let medium = ["--medium", more[0]];
        bench
            .run(&[&["replica", "export", pool], &medium[..]].concat())
            .failed(1, &[pool, "no space for a replica"]);
        bench
            .run(&["replica", "import", "new", "--data", &data])
            .failed(1, &[&data, "only that pool"]);
        let info = json(
            &bench
                .run(&[&["info", "--json", pool], &medium[..]].concat())
                .ok()
                .out,
        );
        assert!(info["media"]["data"]["has_all"].is_null());
        assert_eq!(info["opened"]["was_clean"], true);
    }
    bench
        .run(&["mkfs", "p", "--size", "16M", "-O", "replica=off"])
        .failed(2, &["--data"]);
    assert!(!bench.join("new").exists());
}

/// A split pool whose last committed transaction is unknown.
#[test]
fn an_undo_log_with_an_empty_header_is_repaired() {
    use std::os::unix::fs::FileExt;
    let bench = Bench::empty();
    let memory = ["--medium", "memory"];
    let run = |args: &[&str]| bench.run(&[args, &memory].concat());
    run(&["mkfs", "p.img", "--data", "d.img", "--data-size", "16M"]).ok();
    let put = ["put", "-", "p.img:/a", "--medium", "memory"];
    bench.run_with_input(&put, b"content").ok();
    let file = std::fs::File::options();
    let file = file
        .clone()
        .read(true)
        .write(true)
        .open(bench.join("p.img"));
    let file = file.expect("opened");
    let mut word = [0; 8];
    // The offset of the undo log in the superblock.
    file.read_exact_at(&mut word, 208).expect("read");
    let at = u64::from_le_bytes(word);
    file.write_all_at(&[0xA5; 8], at).expect("written");
    let damaged = std::fs::read(bench.join("p.img")).expect("read");
    let checked = bench.run(&["check", "p.img"]);
    assert!(checked.code == 4 && checked.out.contains("unsound undo log"));
    run(&["put", "/dev/null", "p.img:/b"]).failed(1, &["pool header", "vellum repair"]);
    let convert = ["convert", "p.img", "--namespace", "tree"];
    run(&convert).failed(1, &["vellum repair"]);
    let would = run(&["repair", "--dry-run", "p.img"]);
    assert!(
        would.code == 1 && would.out.contains("counts as committed"),
        "{}",
        would.out
    );
    let did = run(&["repair", "--yes", "--undo", "undo", "--json", "p.img"]);
    assert_eq!(did.code, 1, "{}", did.err);
    let said = json(&did.out);
    assert_eq!(said["actions"][0]["class"], "undo-log");
    bench.run(&["check", "p.img"]).ok();
    run(&["repair", "--restore", "undo", "p.img"]);
    let put_back = std::fs::read(bench.join("p.img")).expect("read");
    assert_eq!(put_back[at as usize..][..8], damaged[at as usize..][..8]);
    assert_eq!(bench.run(&["check", "p.img"]).code, 4);
    run(&["repair", "--yes", "--no-undo", "p.img"]).failed(1, &[]);
    assert_eq!(run(&["cat", "p.img:/a"]).ok().out, "content");
    bench.run(&["check", "--strict", "p.img"]).ok();
}
