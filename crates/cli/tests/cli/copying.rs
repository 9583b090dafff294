//! `vellum cp`: like cp(1), with pools as source, as target, or both.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::support::Bench;
use crate::transfer::{look, make_tree};

/// A bench with a pool, and files beside it.
fn bench() -> Bench {
    let bench = Bench::with_pool("64M");
    for (name, text) in [("a", "first"), ("b", "second")] {
        std::fs::write(bench.join(name), text).expect("written");
    }
    bench
}

fn cat(bench: &Bench, place: &str) -> String {
    bench.run(&["cat", place]).ok().out
}

#[test]
fn files_are_copied_into_a_directory_or_to_a_name() {
    let bench = bench();
    let cp = |args: &[&str]| bench.run(&[&["cp", "-q"], args].concat());
    cp(&["a", "p.img:/copy"]).ok();
    cp(&["a", "b", "p.img:/"]).ok();
    bench.run(&["mkdir", "p.img:/d"]).ok();
    cp(&["p.img:/copy", "p.img:/d"]).ok();
    assert_eq!(
        cat(&bench, "p.img:/d/copy") + &cat(&bench, "p.img:/b"),
        "firstsecond"
    );
    // An existing file is overwritten, and stays the same file.
    let inode = |bench: &Bench| bench.run(&["stat", "p.img:/copy"]).ok().out;
    let before = inode(&bench);
    cp(&["b", "p.img:/copy"]).ok();
    let kept = |text: &str| {
        text.lines()
            .find(|line| line.contains("inode"))
            .map(str::to_owned)
    };
    assert_eq!(kept(&before), kept(&inode(&bench)));
    cp(&["p.img:/copy", "p.img:/d/copy", "."]).ok();
    assert_eq!(
        std::fs::read_to_string(bench.join("copy")).expect("read"),
        "first"
    );
    cp(&["p.img:/b", "out"]).ok();
    assert_eq!(
        std::fs::read_to_string(bench.join("out")).expect("read"),
        "second"
    );
    bench.run(&["mkfs", "q.img", "--size", "16M", "-q"]).ok();
    cp(&["p.img:/b", "q.img:/b"]).ok();
    cp(&["q.img:/b", "a", "p.img:/d/"]).ok();
    assert_eq!(
        cat(&bench, "p.img:/d/b") + &cat(&bench, "p.img:/d/a"),
        "secondfirst"
    );
    bench.sound();
}

#[test]
fn an_archive_is_the_same_through_two_pools() {
    let bench = bench();
    bench.run(&["mkfs", "q.img", "--size", "64M", "-q"]).ok();
    let tree = bench.join("tree");
    make_tree(&tree);
    for (from, to) in [
        ("tree", "p.img:/"),
        ("p.img:/tree", "q.img:/in"),
        ("q.img:/in", "back"),
    ] {
        bench.run(&["cp", "-a", "-q", from, to]).ok();
    }
    let (before, after) = (look(&tree), look(&bench.join("back")));
    assert_eq!(before.len(), after.len());
    for ((name, before), after) in before.iter().zip(after.values()) {
        assert!(before == after, "{name}");
    }
    let sparse = bench.join("back/sparse").metadata().expect("attributes");
    assert!(sparse.blocks() * 512 < 1 << 20, "{}", sparse.blocks());
    bench.sound();
}

#[test]
fn attributes_are_kept_on_request() {
    let bench = bench();
    let path = bench.join("a");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4640)).expect("changed");
    let file = std::fs::File::options()
        .append(true)
        .open(&path)
        .expect("opened");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    file.set_modified(time).expect("changed");
    let copied = |options: &[&str]| {
        bench
            .run(&[&["cp", "-q"], options, &["a", "p.img:/x"]].concat())
            .ok();
        let told = bench.run(&["stat", "--json", "p.img:/x"]).ok().out;
        bench.run(&["rm", "p.img:/x"]).ok();
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        let is_old = told[0]["mtime_ns"] == 1_000_000_000_000_000_000_i64;
        (told[0]["mode"].as_str().expect("a mode").to_owned(), is_old)
    };
    assert_eq!(copied(&["-p"]), ("4640".into(), true));
    assert_eq!(copied(&["-a"]), ("4640".into(), true));
    let (mode, is_old) = copied(&[]);
    assert!(mode.starts_with("06") && !is_old, "{mode}");
}

#[test]
fn directories_are_copied_completely_or_not_at_all() {
    let bench = bench();
    std::fs::create_dir_all(bench.join("d/e")).expect("made");
    std::fs::write(bench.join("d/e/f"), "below").expect("written");
    std::os::unix::fs::symlink("e/f", bench.join("d/link")).expect("linked");
    let cp = |args: &[&str]| bench.run(&[&["cp"], args].concat());
    cp(&["d", "a", "p.img:/"]).failed(1, &["d: a directory; -r or -a copies it", "1 things"]);
    assert_eq!(cat(&bench, "p.img:/a"), "first");
    // Into an existing directory under its own name, otherwise as the target itself.
    cp(&["-r", "d", "p.img:/n"]).ok();
    cp(&["-r", "d", "p.img:/n"]).ok();
    assert_eq!(
        cat(&bench, "p.img:/n/d/e/f") + &cat(&bench, "p.img:/n/e/f"),
        "belowbelow"
    );
    cp(&["-r", "p.img:/n", "p.img:/n/d"]).failed(1, &["not copied into itself"]);
    cp(&["-r", "p.img:/n/.", "whole"]).ok();
    assert_eq!(
        bench
            .join("whole/d/link")
            .read_link()
            .expect("a link")
            .to_str(),
        Some("e/f")
    );
    // A named link is followed if links are not copied.
    cp(&["d/link", "p.img:/followed"]).ok();
    assert_eq!(cat(&bench, "p.img:/followed"), "below");
    cp(&["-r", "d", "p.img:/a"]).failed(1, &["a directory does not replace an existing file"]);
    cp(&["a", "p.img:/n/.."]).ok();
    bench.run(&["mkdir", "p.img:/n/a"]).ok();
    cp(&["a", "p.img:/n"]).failed(1, &["a file does not replace a directory"]);
    bench.sound();
}

#[test]
fn files_that_cannot_be_copied_are_named() {
    let bench = bench();
    let cp = |args: &[&str]| bench.run(&[&["cp"], args].concat());
    cp(&["a", "b"]).failed(2, &["in a pool", "POOL:/path"]);
    cp(&["p.img:/"]).failed(2, &["TARGET"]);
    cp(&["none", "a", "p.img:/"]).failed(1, &["none: No such file", "1 things"]);
    assert_eq!(cat(&bench, "p.img:/a"), "first");
    cp(&["a", "p.img:/a"]).ok();
    cp(&["p.img:/a", "p.img:/a"]).failed(1, &["the same file"]);
    cp(&["p.img:/a", "p.img:/"]).failed(1, &["the same file"]);
    assert_eq!(cat(&bench, "p.img:/a"), "first");
    cp(&["a", "b", "p.img:/none"]).failed(1, &["p.img:/none: there is no such directory"]);
    cp(&["a", "p.img:/none/"]).failed(1, &["there is no such directory"]);
    cp(&["a", "p.img:/none/a"]).failed(1, &["p.img:/none/a", "no such file"]);
    cp(&["a", "q.img:/"]).failed(1, &["q.img"]);
    bench.run(&["mkfs", "q.img", "--size", "4M", "-q"]).ok();
    cp(&["--data", "d", "p.img:/a", "q.img:/"]).failed(2, &["--data needs a single pool"]);
    std::fs::write(bench.join("big"), vec![1; 8 << 20]).expect("written");
    cp(&["big", "q.img:/"]).failed(1, &["big: no space"]);
    let told = cp(&["--json", "a", "p.img:/json"]).ok().out;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["files"], &told["bytes"]), (&1.into(), &5.into()));
    assert!(
        cp(&["a", "p.img:/json"])
            .ok()
            .out
            .starts_with("copied 1 files, 5 B")
    );
    bench.sound();
}
