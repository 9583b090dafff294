//! The commands that work without a mount: effects, output and exit statuses.

use crate::support::{self, Bench, run};
use serde_json::Value;
use vellum::media::{MediaKind, kind_at};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_file_of_the_pool_measures_the_costs_of_reading() {
    let bench = Bench::empty();
    bench.run(&["mkfs", "p.img", "--size", "64M"]).ok();
    let dir = bench.join("tree/below");
    std::fs::create_dir_all(&dir).expect("directories");
    std::fs::write(bench.join("tree/short"), "short").expect("a file");
    std::fs::write(dir.join("long"), vec![7; 4 << 20]).expect("a file");
    let tree = bench.join("tree").display().to_string();
    bench.run(&["import", &tree, "p.img:/"]).ok();
    let info = json(&bench.run(&["info", "--json", "p.img"]).ok().out);
    let reading = &info["reading"];
    assert_eq!(reading["decides"], true, "{reading}");
    let by = reading["measured_by"].as_str().expect("a file");
    assert!(by.ends_with("below/long"), "{by}");
    let text = bench.run(&["info", "--verbose", "p.img"]).ok().out;
    assert!(text.contains(by), "{text}");
    bench.sound();
}

#[test]
fn mkfs_describes_the_new_pool() {
    let bench = Bench::empty();
    let did = bench
        .run(&["mkfs", "p.img", "--size", "16M", "--label", "first"])
        .ok();
    assert!(did.out.contains("16.0 MiB"), "{}", did.out);
    assert_eq!(
        std::fs::metadata(bench.join("p.img"))
            .expect("a pool")
            .len(),
        16 << 20
    );
    bench.sound();
    let info = json(&bench.run(&["info", "--json", "p.img"]).ok().out);
    assert_eq!(info["pool"]["label"], "first");
    assert_eq!(info["pool"]["bytes"], 16 << 20);
    assert_eq!(info["pool"]["namespace"], "direct");
    assert_eq!(info["opened"]["was_clean"], true);
    assert!(info["media"]["survives"]["power_cut"].is_string());
    assert!(info["mount"].is_null());
    // Nothing was read, so the costs are shown but decide nothing.
    let reading = &info["reading"];
    assert_eq!(reading["rule"], "layout", "{reading}");
    assert_eq!(reading["avoidable_bound"], 2.0, "{reading}");
    assert_eq!(reading["decides"], false, "{reading}");
    let text = bench.run(&["info", "--verbose", "p.img"]).ok().out;
    for said in [
        "decided by the rule layout",
        "at most 2 times",
        "the paper's rule: T",
    ] {
        assert!(text.contains(said), "{text}");
    }
}

/// With `radix`, each file larger than a block has a node of its own, which is most of its
/// metadata.
#[test]
fn mkfs_reports_the_number_of_larger_files_for_radix() {
    let bench = Bench::empty();
    let made = |mapping| {
        let name = format!("{mapping}.img");
        let made = bench.run(&[
            "mkfs",
            &name,
            "--size",
            "16M",
            "-O",
            &format!("mapping={mapping}"),
        ]);
        made.ok().out
    };
    let said = made("radix");
    let line = said.lines().find(|line| line.contains("metadata"));
    let numbers = line.expect("a line").split_whitespace();
    let numbers: Vec<u64> = numbers.filter_map(|word| word.parse().ok()).collect();
    let [files, larger] = numbers[..] else {
        panic!("{said}");
    };
    assert!(larger > 0 && 10 * larger < files, "{said}");
    assert!(!made("extent").contains("more than a block"));
}

/// Without --medium, an ordinary file becomes a pool with a log, and a file in memory a pool in
/// memory.
#[test]
fn mkfs_picks_a_medium_and_shows_its_promise() {
    let bench = Bench::empty();
    let mkfs = |more: &[&str]| {
        let make = ["mkfs", "p.img", "--size", "16M", "--force"];
        bench.run(&[&make, more].concat())
    };
    let told = |more: &[&str]| json(&mkfs(&[more, &["--json"]].concat()).ok().out);
    let (logged, file) = (
        told(&["--medium", "disk"]),
        told(&["--medium", "disk", "--durability", "none"]),
    );
    assert_eq!(logged["media"]["kind"], "logged");
    assert_eq!(logged["pool"]["mapping"], "extent");
    assert_eq!(file["media"]["kind"], "file");
    assert_eq!(file["pool"]["mapping"], "hashfs");
    let picked = match kind_at(&bench.join("p.img")) {
        MediaKind::File => (logged, "with a log (--durability none: without)"),
        // The temporary directory may be in memory.
        MediaKind::Dax => (told(&["--medium", "pmem"]), ""),
        _ => (told(&["--medium", "memory"]), ""),
    };
    let (expected, why) = picked;
    let told = told(&[]);
    for what in ["kind", "survives"] {
        assert_eq!(told["media"][what], expected["media"][what]);
    }
    assert_eq!(told["pool"]["mapping"], expected["pool"]["mapping"]);
    let said = mkfs(&[]).ok().out;
    let kind = told["media"]["kind"].as_str().expect("a kind");
    let cut = told["media"]["survives"]["power_cut"].as_str();
    for words in [
        format!("medium    {kind}"),
        why.into(),
        format!("survives  a power cut: {}", cut.expect("words")),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
    assert_eq!(mkfs(&["--quiet"]).ok().out, "");
    assert_eq!(
        json(&mkfs(&["--quiet", "--json"]).ok().out)["media"],
        told["media"]
    );
}

#[test]
fn pools_have_different_uuids() {
    let bench = Bench::empty();
    let uuid = |pool| {
        bench.run(&["mkfs", pool, "--size", "4M"]).ok();
        json(&bench.run(&["info", "--json", pool]).ok().out)["pool"]["uuid"].clone()
    };
    assert_ne!(uuid("a.img"), uuid("b.img"));
}

#[test]
fn external_data_are_found_checked_and_named() {
    let bench = Bench::empty();
    let mkfs = |more: &[&str]| {
        let args = [&["mkfs", "p.img", "--data", "d.img"], more].concat();
        bench.run(&args)
    };
    mkfs(&[]).failed(2, &["d.img", "the size is missing", "--data-size"]);
    let unlogged = [
        "--data-size",
        "16M",
        "--medium",
        "disk",
        "--durability",
        "none",
    ];
    mkfs(&unlogged).failed(2, &["a pool without a log cannot"]);
    bench
        .run(&["mkfs", "p.img", "--data", "p.img", "--data-size", "16M"])
        .failed(2, &["is the pool itself"]);
    assert!(!bench.join("p.img").exists() && !bench.join("d.img").exists());
    assert!(mkfs(&["--data-size", "16M"]).ok().out.contains("d.img"));
    bench.run(&["mkfs", "q.img", "--data", "d.img"]).failed(
        1,
        &["is the external data device of a pool already", "--force"],
    );
    bench.run_with_input(&["put", "-", "p.img:/a"], b"a").ok();
    let info = json(&bench.run(&["info", "--json", "p.img"]).ok().out);
    assert_eq!(info["media"]["kind"], "logged");
    assert_eq!(info["media"]["data"]["bytes"], 16 << 20);
    let path = info["media"]["data"]["path"].as_str().expect("a path");
    assert!(path.ends_with("d.img"), "{path}");
    std::fs::rename(bench.join("d.img"), bench.join("e.img")).expect("moved");
    let commands: [&[&str]; 4] = [
        &["cat", "p.img:/a"],
        &["check", "p.img"],
        &["info", "p.img"],
        &["repair", "--yes", "p.img"],
    ];
    for command in commands {
        let did = bench.run(command);
        assert!(
            did.err.contains("d.img: the data of the pool"),
            "{}",
            did.err
        );
        assert!(did.err.contains("--data"), "{}", did.err);
        let named = [command, &["--data", "e.img"]].concat();
        bench.run(&named).ok();
    }
    bench.run(&["cat", "p.img:/a"]).failed(1, &["d.img"]);
    bench
        .run_with_input(&["put", "-", "p.img:/b", "--data", "e.img"], b"b")
        .ok();
    assert_eq!(bench.run(&["cat", "p.img:/a"]).ok().out, "a");
    bench.sound();
}

#[test]
fn mkfs_overwrites_only_with_force() {
    let bench = Bench::with_pool("4M");
    bench
        .run(&["mkfs", "p.img", "--size", "4M"])
        .failed(1, &["is a pool already", "--force"]);
    bench.run_with_input(&["put", "-", "p.img:/a"], b"a").ok();
    bench.run(&["mkfs", "p.img", "--force"]).ok();
    bench
        .run(&["cat", "p.img:/a"])
        .failed(1, &["p.img:/a", "no such file"]);
    std::fs::write(bench.join("text"), "something").expect("written");
    bench
        .run(&["mkfs", "text", "--size", "4M"])
        .failed(1, &["not empty", "--force"]);
    std::fs::write(bench.join("none"), "").expect("written");
    bench.run(&["mkfs", "none", "--size", "4M"]).ok();
    bench
        .run(&["mkfs", ".", "--size", "4M"])
        .failed(2, &["is a directory"]);
}

#[test]
fn mkfs_that_fails_leaves_nothing() {
    let bench = Bench::empty();
    bench
        .run(&["mkfs", "p.img"])
        .failed(2, &["the size is missing", "--size 4G"]);
    bench
        .run(&["mkfs", "p.img", "--size", "100K"])
        .failed(1, &["p.img", "1 MiB"]);
    bench
        .run(&["mkfs", "p.img", "--size", "4M", "-O", "thread-slots=1"])
        .failed(1, &["slots"]);
    bench
        .run(&["mkfs", "p.img", "--size", "4M", "-O", "run-blocks=3"])
        .failed(1, &["by 1 or by 8"]);
    bench
        .run(&["mkfs", "p.img", "--size", "4X"])
        .failed(2, &["4X"]);
    bench
        .run(&["mkfs", "no/p.img", "--size", "4M"])
        .failed(1, &["there is no directory no"]);
    assert!(!bench.join("p.img").exists());
}

#[test]
fn files_go_in_and_come_out() {
    let bench = Bench::with_pool("16M");
    let content: Vec<u8> = (0..300_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    std::fs::write(bench.join("in"), &content).expect("written");
    bench.run(&["put", "in", "p.img:/file"]).ok();
    bench.run(&["get", "p.img:/file", "out"]).ok();
    assert_eq!(std::fs::read(bench.join("out")).expect("read"), content);
    bench
        .run_with_input(&["put", "-", "p.img:/file"], b"shorter\n")
        .ok();
    assert_eq!(bench.run(&["cat", "p.img:/file"]).ok().out, "shorter\n");
    assert_eq!(
        bench.run(&["get", "p.img:/file", "-"]).ok().out,
        "shorter\n"
    );

    bench.run(&["mkdir", "-p", "p.img:/a/b/c"]).ok();
    bench.run(&["mkdir", "-p", "p.img:/a/b/c"]).ok();
    bench.run(&["put", "in", "p.img:/a"]).ok();
    bench.run(&["mv", "p.img:/a/in", "p.img:/a/b/"]).ok();
    bench.run(&["mv", "p.img:/a/b/in", "p.img:/a/b/moved"]).ok();
    assert_eq!(bench.run(&["ls", "p.img:/a/b"]).ok().out, "c\nmoved\n");
    assert_eq!(
        bench.run(&["cat", "p.img:/file", "p.img:/file"]).ok().out,
        "shorter\nshorter\n"
    );
    bench
        .run(&["mv", "-n", "p.img:/file", "p.img:/a/b/moved"])
        .failed(1, &["exists"]);

    bench.run(&["rm", "p.img:/file"]).ok();
    bench
        .run(&["rm", "p.img:/file"])
        .failed(1, &["p.img:/file", "no such file"]);
    bench.run(&["rm", "-f", "p.img:/file"]).ok();
    bench
        .run(&["rm", "p.img:/a"])
        .failed(1, &["is a directory", "rm -r"]);
    bench.run(&["rm", "-r", "p.img:/a"]).ok();
    assert_eq!(bench.run(&["ls", "-a", "p.img:/"]).ok().out, "");
    bench.sound();
}

#[test]
fn listings_and_attributes() {
    let bench = Bench::with_pool("16M");
    bench.run(&["mkdir", "-m", "1750", "p.img:/dir"]).ok();
    bench
        .run_with_input(&["put", "-", "p.img:/dir/file"], b"12345")
        .ok();
    bench
        .run_with_input(&["put", "-", "p.img:/dir/.hidden"], b"")
        .ok();
    assert_eq!(bench.run(&["ls", "p.img:/dir"]).ok().out, "file\n");
    assert_eq!(
        bench.run(&["ls", "-a", "p.img:/dir"]).ok().out,
        ".hidden\nfile\n"
    );
    let long = bench.run(&["ls", "-l", "p.img:"]).ok().out;
    assert!(long.starts_with("drwxr-x--T"), "{long}");
    let listed = json(&bench.run(&["ls", "--json", "p.img:/dir"]).ok().out);
    assert_eq!(listed[0]["name"], "file");
    assert_eq!(listed[0]["kind"], "file");
    assert_eq!(listed[0]["size_bytes"], 5);
    let told = json(&bench.run(&["stat", "--json", "p.img:/dir"]).ok().out);
    assert_eq!(told[0]["mode"], "1750");
    assert_eq!(told[0]["nlink"], 2);
    let text = bench.run(&["stat", "p.img:/dir/file"]).ok().out;
    assert!(text.contains("5 bytes"), "{text}");
}

#[test]
fn wrong_paths_are_named_in_messages() {
    let bench = Bench::with_pool("4M");
    bench.run(&["ls", "p.img"]).failed(2, &["POOL:/path"]);
    bench
        .run(&["ls", "none.img:/"])
        .failed(1, &["none.img", "No such file", "vellum mkfs"]);
    bench
        .run(&["mv", "p.img:/a", "q.img:/a"])
        .failed(2, &["different pools"]);
    bench.run(&["cat", "p.img:/"]).failed(1, &["directory"]);
    bench
        .run(&["get", "p.img:/", "x"])
        .failed(1, &["directory", "vellum export"]);
    bench
        .run(&["put", ".", "p.img:/x"])
        .failed(1, &["directory"]);
    std::fs::write(bench.join("junk"), vec![7; 1 << 20]).expect("written");
    bench
        .run(&["ls", "junk:/"])
        .failed(1, &["not a Vellum pool"]);
    bench
        .run(&["info", "junk"])
        .failed(1, &["not a Vellum pool"]);
    run(["frobnicate"]).failed(2, &["frobnicate"]);
}

#[test]
fn check_exits_as_fsck_does() {
    let bench = Bench::with_pool("4M");
    bench.sound();
    let report = json(&bench.run(&["check", "--json", "p.img"]).ok().out);
    assert_eq!(report["damage"], 0);
    assert_eq!(report["summary"]["directories"], 1);
    bench.run(&["check"]).failed(16, &[]);
    bench
        .run(&["check", "none.img"])
        .failed(8, &["none.img", "No such file"]);
    bench.run(&["check", "."]).failed(8, &["directory"]);
    std::fs::write(bench.join("junk"), vec![7; 1 << 20]).expect("written");
    let code = bench.run(&["check", "junk"]).code;
    assert_eq!(code & 8, 8, "{code}");
}

#[test]
fn check_finds_damage() {
    use std::os::unix::fs::FileExt;
    let bench = Bench::with_plain_pool("4M");
    bench
        .run_with_input(&["put", "-", "p.img:/victim"], b"content")
        .ok();
    let mut image = std::fs::read(bench.join("p.img")).expect("read");
    let at = image
        .windows(6)
        .position(|bytes| bytes == b"victim")
        .expect("the name is there");
    image[at] ^= 1;
    let file = std::fs::File::options()
        .write(true)
        .open(bench.join("p.img"))
        .expect("opened");
    file.write_all_at(&image[at..=at], at as u64)
        .expect("written");
    let did = bench.run(&["check", "p.img"]);
    assert_eq!(did.code, 4, "{}", did.out);
    assert!(did.out.contains("damage"), "{}", did.out);
}

#[test]
fn a_pool_in_use_is_busy() {
    let bench = Bench::with_pool("4M");
    let pool = vellum::PoolOptions::default().open(bench.join("p.img"));
    let pool = pool.expect("opened");
    let me = std::process::id().to_string();
    for args in [
        &["ls", "p.img:/"][..],
        &["put", "p.img", "p.img:/x"],
        &["mkfs", "p.img", "--force"],
        &["info", "p.img"],
        &["quota", "p.img"],
        &["quota", "on", "p.img"],
        &["mount", "p.img", "."],
    ] {
        bench.run(args).failed(3, &["p.img", "in use", &me]);
    }
    bench.run(&["check", "p.img"]).failed(8, &["in use", &me]);
    pool.close().expect("closed");
    bench.run(&["ls", "p.img:/"]).ok();
}

#[test]
fn help_has_examples_and_pages_are_written() {
    for command in [
        "mkfs",
        "mount",
        "umount",
        "replica export",
        "replica import",
        "info",
        "check",
        "ls",
        "import",
        "evolve",
        "quota",
        "quota on",
        "quota set",
        "quota default",
        "inspect",
        "map",
    ] {
        let words = command.split(' ').chain(["--help"]);
        let help = run(words).ok().out;
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
    assert!(run(["--help"]).ok().out.contains("Exit status"));
    assert!(run(["version"]).ok().out.starts_with("vellum "));
    assert!(run(["man"]).ok().out.contains(".TH"));
    let bench = Bench::empty();
    bench.run(&["man", "--dir", "pages"]).ok();
    for page in [
        "vellum.1",
        "vellum-mkfs.1",
        "vellum-mount.1",
        "vellum-check.1",
        "vellum-quota.1",
        "vellum-quota-set.1",
    ] {
        assert!(bench.join("pages").join(page).exists(), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(["completions", shell]).ok().out.contains("vellum"));
    }
}

#[test]
fn areas_are_split_merged_and_shown() {
    let bench = Bench::empty();
    let make = ["mkfs", "p.img", "--size", "64M", "-O", "namespace=adaptive"];
    bench.run(&make).ok();
    let dir = bench.join("tree/large");
    std::fs::create_dir_all(&dir).expect("directories");
    for number in 0..257 {
        std::fs::write(dir.join(number.to_string()), "").expect("a file");
    }
    bench.run(&["import", "tree", "p.img:/"]).ok();
    let areas = || json(&bench.run(&["inspect", "--json", "areas", "p.img"]).ok().out);
    assert_eq!(areas()["areas"].as_array().map(Vec::len), Some(1));
    // A directory of this size gets an area of its own when it is renamed.
    bench.run(&["mv", "p.img:/large", "p.img:/a&b"]).ok();
    let shown = &areas()["areas"][1];
    assert_eq!(shown["path"], "/a&b", "{shown}");
    assert_eq!(shown["names"], 257);
    assert_eq!(shown["bytes"], 257 * 128);
    assert_eq!((&shown["above"], &shown["number"]), (&1.into(), &2.into()));
    // The counts at the time of the rename.
    assert_eq!(shown["formed_bytes"], 257 * 128);
    assert!(shown["formed"].as_u64() > Some(1_700_000_000), "{shown}");
    let text = bench.run(&["inspect", "areas", "p.img"]).ok().out;
    let rows: Vec<&str> = text.lines().collect();
    assert!(
        rows[0].ends_with("root") && rows[2].ends_with("/a&b"),
        "{text}"
    );
    bench.run(&["map", "p.img", "--out", "map.svg"]).ok();
    let map = std::fs::read_to_string(bench.join("map.svg")).expect("a map");
    assert!(map.contains("/a&amp;b: area 2, cold, 257 names"), "{map}");
    // It is too large to be merged; without its first name it is small enough.
    let evolve = || json(&bench.run(&["evolve", "--json", "p.img"]).ok().out);
    let evolved = evolve();
    assert_eq!(evolved["decisions"].as_array().map(Vec::len), Some(0));
    assert_eq!(evolved["areas"], 2);
    bench.run(&["rm", "p.img:/a&b/0"]).ok();
    let few = ["evolve", "p.img", "--rounds", "63"];
    let said = bench.run(&few).ok().out;
    assert!(
        said.contains("0 merged") && said.contains("areas now: 2"),
        "{said}"
    );
    let said = bench.run(&["evolve", "p.img"]).ok().out;
    assert!(said.contains("merge /a&b (area 2; 32"), "{said}");
    assert!(
        said.contains("1 merged") && said.contains("areas now: 1"),
        "{said}"
    );
    assert_eq!(evolve()["areas"], 1);
    let shown = areas();
    let gone = &shown["merged"][0];
    assert_eq!(
        (&gone["number"], &gone["into"], &gone["reason"]),
        (&2.into(), &1.into(), &"small".into()),
        "{shown}"
    );
    assert_eq!(
        (&gone["path"], &gone["bytes"]),
        (&"/a&b".into(), &(256 * 128).into())
    );
    assert!(gone["merged"].as_u64() > Some(1_700_000_000), "{shown}");
    let text = bench.run(&["inspect", "areas", "p.img"]).ok().out;
    assert!(text.contains("small: 32.0 KiB, read "), "{text}");
    bench.run(&["map", "p.img", "--out", "map.svg"]).ok();
    let map = std::fs::read_to_string(bench.join("map.svg")).expect("a map");
    assert!(map.contains("; /a&amp;b was merged into it "), "{map}");
    bench.sound();
}

#[test]
fn other_namespaces_have_no_areas_to_show() {
    let bench = Bench::with_pool("16M");
    for args in [
        &["evolve", "p.img"][..],
        &["inspect", "areas", "p.img"],
        &["map", "p.img", "--out", "map.svg"],
    ] {
        bench
            .run(args)
            .failed(1, &["direct", "vellum convert p.img --namespace adaptive"]);
    }
    assert!(!bench.join("map.svg").exists());
    bench
        .run(&["inspect", "else", "p.img"])
        .failed(2, &["areas"]);
    bench.sound();
}

#[test]
fn a_reader_that_goes_away_is_not_a_failure() {
    let bench = Bench::with_pool("16M");
    std::fs::write(bench.join("big"), vec![b'x'; 4 << 20]).expect("written");
    bench.run(&["put", "big", "p.img:/big"]).ok();
    let mut child = support::vellum()
        .args(["cat", "p.img:/big"])
        .current_dir(bench.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
}

/// Changes a byte of the pool.
fn damage(bench: &Bench, at: usize) {
    let mut bytes = std::fs::read(bench.join("p.img")).expect("a pool");
    bytes[at] ^= 0x55;
    std::fs::write(bench.join("p.img"), bytes).expect("written");
}

#[test]
fn convert_goes_there_and_back() {
    goes_there_and_back(&Bench::with_plain_pool("4M"));
}

#[test]
fn convert_goes_there_and_back_on_a_log() {
    let bench = Bench::empty();
    bench
        .run(&["mkfs", "p.img", "--size", "4M", "--medium", "disk"])
        .ok();
    goes_there_and_back(&bench);
}

/// Metadata in memory, data on an external data device; also as a dataset, and after another boot.
#[test]
fn convert_goes_there_and_back_with_external_data() {
    let bench = Bench::empty();
    let made = ["mkfs", "p.img", "--data", "d.img", "--data-size", "16M"];
    bench
        .run(&[&made[..], &["--medium", "memory"]].concat())
        .ok();
    let said = bench.run(&["convert", "p.img", "--namespace", "tree"]);
    said.failed(1, &["ordinary file", "--medium memory"]);
    bench
        .run(&["mkdir", "p.img:/e"])
        .failed(1, &["ordinary file", "--medium memory"]);
    goes_there_and_back_as(&bench, &["--medium", "memory"]);
    let before = bench
        .run(&["replica", "export", "p.img", "--medium", "memory", "--json"])
        .ok();
    let before = json(&before.out);
    assert_eq!(before["blocks_changed"], before["metadata_blocks"]);
    bench
        .run(&[
            "replica", "import", "n.img", "--data", "d.img", "--medium", "memory",
        ])
        .ok();
    let read = bench.run(&["cat", "n.img:/d/a", "--medium", "memory"]);
    assert_eq!(read.ok().out, "bytes");
}

fn goes_there_and_back(bench: &Bench) {
    goes_there_and_back_as(bench, &[]);
}

/// The same for a pool that is opened with these options.
fn goes_there_and_back_as(bench: &Bench, opening: &[&str]) {
    let run = |args: &[&str]| bench.run(&[args, opening].concat());
    run(&["mkdir", "p.img:/d"]).ok();
    let put = [&["put", "-", "p.img:/d/a"][..], opening].concat();
    bench.run_with_input(&put, b"bytes").ok();
    let same = run(&["convert", "p.img", "--namespace", "direct"]);
    assert_eq!(same.code, 0, "{}", same.err);
    assert!(same.out.contains("nothing was changed"), "{}", same.out);
    let would = run(&["convert", "-n", "p.img", "--namespace", "tree"]);
    assert!(
        would
            .out
            .contains("would be converted from direct to tree: 2 names in 2 directories")
    );
    let ways = [
        ("direct", "tree"),
        ("tree", "adaptive"),
        ("adaptive", "direct"),
        ("direct", "adaptive"),
        ("adaptive", "tree"),
        ("tree", "direct"),
    ];
    for (from, to) in ways {
        let did = run(&["convert", "--json", "p.img", "--namespace", to]);
        assert_eq!(did.code, 0, "{}", did.err);
        let said: serde_json::Value = serde_json::from_str(&did.out).expect("JSON");
        assert_eq!((&said["from"], &said["to"]), (&from.into(), &to.into()));
        assert_eq!(
            (&said["names"], &said["changed"]),
            (&2.into(), &true.into())
        );
        assert_eq!(bench.run(&["check", "--strict", "p.img"]).code, 0);
        assert_eq!(run(&["cat", "p.img:/d/a"]).out, "bytes");
    }
    bench
        .run(&["convert", "none", "--namespace", "tree"])
        .failed(1, &["none"]);
    bench
        .run(&["convert", "p.img", "--namespace", "heap"])
        .failed(2, &["direct, adaptive, tree"]);
    bench.run(&["convert", "p.img"]).failed(2, &["--namespace"]);
}

#[test]
fn repair_and_restore() {
    let bench = Bench::with_plain_pool("4M");
    bench.run_with_input(&["put", "-", "p.img:/a"], b"a").ok();
    bench.run(&["repair", "p.img"]).ok();
    damage(&bench, 100);
    // The state word, which is in the third block.
    damage(&bench, 8192);
    let damaged = std::fs::read(bench.join("p.img")).expect("a pool");
    assert_eq!(bench.run(&["check", "p.img"]).code, 4);
    bench
        .run(&["put", "/dev/null", "p.img:/b"])
        .failed(1, &["vellum repair"]);
    bench
        .run(&["repair", "p.img"])
        .failed(16, &["--yes", "--dry-run"]);
    let would = bench.run(&["repair", "--dry-run", "p.img"]);
    assert_eq!(would.code, 1, "{}", would.err);
    assert!(would.out.contains("unsound state word"), "{}", would.out);
    assert_eq!(std::fs::read(bench.join("p.img")).expect("a pool"), damaged);
    let did = bench.run(&["repair", "--yes", "--json", "--undo", "undo", "p.img"]);
    assert_eq!(did.code, 1, "{}", did.err);
    let answer = json(&did.out);
    assert_eq!(answer["changed"], true);
    assert_eq!(answer["undo"], "undo");
    assert_eq!(answer["actions"].as_array().map(Vec::len), Some(2));
    assert_eq!(answer["after"]["damage"], 0);
    bench.run(&["check", "--strict", "p.img"]).ok();
    bench.run(&["repair", "p.img", "--restore", "undo"]).ok();
    assert_eq!(std::fs::read(bench.join("p.img")).expect("a pool"), damaged);
    let did = bench.run(&["repair", "-y", "p.img"]);
    assert_eq!(did.code, 1);
    assert!(did.out.contains("p.img.undo-2"), "{}", did.out);
    assert_eq!(bench.run(&["cat", "p.img:/a"]).ok().out, "a");
    bench.run_with_input(&["put", "-", "p.img:/b"], b"b").ok();
    bench
        .run(&["repair", "p.img", "--restore", "undo"])
        .failed(8, &["changed"]);
}

#[test]
fn repair_and_restore_with_a_log() {
    let bench = Bench::empty();
    bench
        .run(&["mkfs", "p.img", "--size", "4M", "--medium", "disk"])
        .ok();
    bench.run_with_input(&["put", "-", "p.img:/a"], b"a").ok();
    damage(&bench, 8192);
    let damaged = std::fs::read(bench.join("p.img")).expect("a pool");
    assert_eq!(bench.run(&["check", "p.img"]).code, 4);
    for refused in [
        &["put", "/dev/null", "p.img:/b"][..],
        &["convert", "p.img", "--namespace", "tree"],
    ] {
        bench.run(refused).failed(1, &["vellum repair"]);
    }
    assert_eq!(bench.run(&["repair", "--dry-run", "p.img"]).code, 1);
    assert_eq!(std::fs::read(bench.join("p.img")).expect("a pool"), damaged);
    let repair = ["repair", "--yes", "--undo", "undo", "p.img"];
    assert_eq!(bench.run(&repair).code, 1);
    bench.run(&["repair", "p.img", "--restore", "undo"]).ok();
    assert_eq!(std::fs::read(bench.join("p.img")).expect("a pool"), damaged);
    assert_eq!(bench.run(&["repair", "--yes", "p.img"]).code, 1);
    bench.run_with_input(&["put", "-", "p.img:/b"], b"b").ok();
    assert_eq!(bench.run(&["cat", "p.img:/a", "p.img:/b"]).ok().out, "ab");
    bench.sound();
}

/// In a log of records, a damaged record loses its name, but no later one.
#[test]
fn a_damaged_record_costs_its_name() {
    let bench = Bench::empty();
    let make = [
        "mkfs",
        "p.img",
        "--size",
        "4M",
        "--medium",
        "disk",
        "--durability",
        "none",
    ];
    bench
        .run(&[&make[..], &["-O", "namespace=tree"]].concat())
        .ok();
    assert_eq!(
        json(&bench.run(&["info", "--json", "p.img"]).ok().out)["pool"]["namespace"],
        "tree"
    );
    for name in ["first", "second", "third"] {
        let to = format!("p.img:/{name}");
        bench
            .run_with_input(&["put", "-", &to], name.as_bytes())
            .ok();
    }
    bench.run(&["check", "--strict", "p.img"]).ok();
    let bytes = std::fs::read(bench.join("p.img")).expect("a pool");
    // The metadata come before the data, which contain the same bytes.
    let places = bytes.windows(6).enumerate();
    let mut places = places.filter(|(_, window)| *window == b"second");
    damage(&bench, places.next().expect("the name").0);
    assert_eq!(bench.run(&["check", "p.img"]).code, 4);
    assert_eq!(bench.run(&["repair", "--yes", "p.img"]).code, 1);
    bench.run(&["check", "--strict", "p.img"]).ok();
    for name in ["first", "third"] {
        let from = format!("p.img:/{name}");
        assert_eq!(bench.run(&["cat", &from]).ok().out, name);
    }
    let lost = bench.run(&["ls", "p.img:/lost+found"]).ok().out;
    let found = lost.split_whitespace().last().expect("a file");
    let from = format!("p.img:/lost+found/{found}");
    assert_eq!(bench.run(&["cat", &from]).ok().out, "second");
    bench
        .run_with_input(&["put", "-", "p.img:/fourth"], b"4")
        .ok();
    bench.run(&["check", "--strict", "p.img"]).ok();
}

#[test]
fn repair_refuses_busy_pools_and_other_files() {
    let bench = Bench::with_pool("4M");
    let pool = std::fs::File::open(bench.join("p.img")).expect("a pool");
    rustix::fs::flock(&pool, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    bench
        .run(&["repair", "-y", "p.img"])
        .failed(8, &["in use", "EBUSY"]);
    bench.run(&["repair", "-n", "p.img"]).failed(8, &["in use"]);
    std::fs::write(bench.join("text"), vec![1; 1 << 20]).expect("written");
    bench
        .run(&["repair", "-y", "text"])
        .failed(12, &["cannot be repaired"]);
    bench.run(&["repair", "-y", "none"]).failed(8, &["none"]);
    bench
        .run(&["repair", "-y", "-n", "p.img"])
        .failed(16, &["cannot be used with"]);
}
