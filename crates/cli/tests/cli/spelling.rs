//! Former spellings of commands and options: they work, and print a note with the new spelling.

use crate::support::Bench;

/// Runs a command line in its former spelling. Asserts that standard error has one note with the
/// new spelling and nothing else. Returns standard output.
#[track_caller]
fn formerly(bench: &Bench, args: &[&str], new: &str) -> String {
    let did = bench.run(args).ok();
    let said = did.err.trim_end();
    assert!(
        said.lines().count() == 1 && said.ends_with(&format!("is spelled `{new}` now")),
        "{args:?}: {said}"
    );
    did.out
}

#[test]
fn former_spellings_work() {
    let bench = Bench::with_pool("16M");
    bench
        .run(&["convert", "p.img", "--namespace", "adaptive", "-q"])
        .ok();
    let areas = bench.run(&["inspect", "areas", "p.img"]).ok().out;
    let formerly_areas = formerly(
        &bench,
        &["inspect", "p.img", "areas"],
        "vellum inspect areas POOL",
    );
    assert_eq!(areas, formerly_areas);
    let said = formerly(
        &bench,
        &["repair", "p.img", "--last-epoch"],
        "--discard-image",
    );
    assert!(said.contains("in the state of its last commit"), "{said}");
    bench.sound();
}

/// Help shows only the current spellings.
#[test]
fn help_has_no_former_spelling() {
    let bench = Bench::empty();
    for (command, old, new) in [
        ("repair", "--last-epoch", "--discard-image"),
        ("repair", "--accept-data", "--force-data-device"),
        ("mount", "--last-epoch", "--discard-image"),
        ("mkfs", "--run-blocks", "-O <KEY=VALUE>"),
        ("mkfs", "--media ", "--medium <MEDIUM>"),
        ("info", "--media ", "--medium <MEDIUM>"),
        ("umount", "--flush", "--export-replica"),
        ("inspect", "<POOL> <WHAT>", "<WHAT> <POOL>"),
    ] {
        let help = bench.run(&[command, "--help"]).ok().out;
        assert!(help.contains(new) && !help.contains(old), "{help}");
    }
}

#[test]
fn info_shows_the_last_close() {
    let bench = Bench::with_pool("16M");
    let info = bench.run(&["info", "--verbose", "p.img"]).ok().out;
    assert!(info.contains("last close  closed cleanly\n"), "{info}");
}

#[test]
fn mkfs_accepts_former_spellings() {
    let bench = Bench::empty();
    let mkfs = ["mkfs", "p.img", "--size", "4M", "--force", "--quiet"];
    for (old, new, shown) in [
        (
            &["--media", "file"][..],
            "--medium disk --durability none",
            "\"kind\": \"file\"",
        ),
        (&["--media=logged"], "--medium disk", "\"kind\": \"logged\""),
        (
            &["--thread-slots", "4"],
            "-O thread-slots=4",
            "\"thread_slots\": 4",
        ),
        (
            &["--layout-score=0.5"],
            "-O layout-score=0.5",
            "\"layout_score\": 0.5",
        ),
    ] {
        formerly(&bench, &[&mkfs, old].concat(), new);
        let info = bench.run(&["info", "--json", "p.img"]).ok().out;
        assert!(info.contains(shown), "{info}");
    }
}

#[test]
fn replica_accepts_former_spellings() {
    let bench = Bench::empty();
    let memory = ["--medium", "memory"];
    let make = [
        "mkfs",
        "p.img",
        "--data",
        "d.img",
        "--data-size",
        "16M",
        "-q",
    ];
    bench.run(&[&make, &memory[..]].concat()).ok();
    let flush = [&["flush", "p.img"], &memory[..]].concat();
    let said = formerly(&bench, &flush, "vellum replica export");
    assert!(said.contains("vellum replica import"), "{said}");
    let attach = [&["attach", "n.img", "--data", "d.img"], &memory[..]].concat();
    let said = formerly(&bench, &attach, "vellum replica import");
    assert!(said.contains("from the replica on d.img"), "{said}");
    let help = bench.run(&["--help"]).ok().out;
    assert!(
        help.contains("\n  replica ") && !help.contains("\n  flush "),
        "{help}"
    );
    bench.run(&["replica", "--help"]).ok();
}
