//! The output of commands: without a reader, and without a terminal.

use std::os::unix::fs::FileExt;
use std::process::Stdio;

use crate::asking::AtTerminal;
use crate::support::{Bench, done, vellum};
use serde_json::Value;
use vellum_check::survey;

#[test]
fn failures_are_json_for_those_who_ask_for_it() {
    let bench = Bench::with_plain_pool("4M");
    std::fs::write(bench.join("junk"), vec![1; 1 << 20]).expect("written");
    for (args, code) in [
        (&["info", "--json", "missing"][..], 1),
        (&["info", "junk", "--json"], 1),
        (&["info", "--json"], 2),
        (&["info", "--json", "--nonsense"], 2),
        (&["cat", "--json", "p.img:/a"], 2),
        (&["quota", "--json", "p.img"], 1),
        (&["tree", "--json", "p.img:/none"], 1),
        (&["du", "--json", "p.img:/none"], 1),
        (&["df", "--json", "missing"], 1),
    ] {
        let did = bench.run(args);
        let told: Value = serde_json::from_str(&did.out).expect("JSON");
        assert_eq!(told["error"]["status"], code, "{args:?}");
        let message = told["error"]["message"].as_str().expect("a text");
        assert!(did.err.contains(message), "{args:?}: {}", did.err);
        did.failed(code, &[]);
    }
    // A command that fails after its output prints nothing behind it.
    let told = bench.run(&["check", "--json", "junk"]).out;
    assert!(serde_json::from_str::<Value>(&told).is_ok(), "{told}");
}

/// `--verbose` adds lines, and takes none away.
#[test]
fn info_is_brief_unless_everything_is_asked_for() {
    let bench = Bench::with_plain_pool("4M");
    let brief = bench.run(&["info", "p.img"]).ok().out;
    let whole = bench.run(&["info", "-v", "p.img"]).ok().out;
    assert!(brief.lines().count() <= 6, "{brief}");
    for word in ["4.0 MiB", "free", "space for", "a power cut: "] {
        assert!(brief.contains(word) && whole.contains(word), "{brief}");
    }
    for word in ["uuid", "mapping", "a killed process"] {
        assert!(!brief.contains(word) && whole.contains(word), "{whole}");
    }
}

/// A command that panics without a reader would exit with 101.
#[test]
fn commands_work_without_a_reader() {
    let bench = Bench::with_plain_pool("4M");
    bench.run_with_input(&["put", "-", "p.img:/a"], b"a").ok();
    let mut bytes = std::fs::read(bench.join("p.img")).expect("a pool");
    bytes[100] ^= 1;
    std::fs::write(bench.join("damaged.img"), &bytes).expect("written");
    for args in [
        &["completions", "bash"][..],
        &["man"],
        &["version"],
        &["--help"],
        &["nonsense"],
        &["info", "p.img"],
        &["info", "missing"],
        &["info", "--images"],
        &["ls", "-l", "p.img:/"],
        &["tree", "p.img:/"],
        &["du", "p.img:/"],
        &["df", "p.img"],
        &["stat", "p.img:/a"],
        &["cat", "p.img:/a"],
        &["get", "p.img:/a", "-"],
        &["dataset", "list", "p.img"],
        &["inspect", "superblock", "p.img"],
        &["check", "p.img"],
        &["check", "damaged.img"],
        &["check", "--json", "damaged.img"],
        &["repair", "--dry-run", "damaged.img"],
        &["repair", "--dry-run", "missing"],
        &["export", "p.img:/", "out"],
        &["mkfs", "new.img", "--size", "1M"],
    ] {
        let start = |nobody: bool| {
            let stream = || match nobody {
                true => {
                    let (reader, writer) = std::io::pipe().expect("a pipe");
                    drop(reader);
                    Stdio::from(writer)
                }
                false => Stdio::null(),
            };
            let _ = std::fs::remove_file(bench.join("new.img"));
            let _ = std::fs::remove_dir_all(bench.join("out"));
            let mut command = vellum();
            command.args(args).current_dir(bench.path());
            let status = command.stdout(stream()).stderr(stream()).status();
            status.expect("vellum runs").code()
        };
        assert_eq!(start(true), start(false), "{args:?}");
    }
}

/// Requested output on a closed standard output is a failure.
#[test]
fn a_closed_standard_output_is_a_failure() {
    let bench = Bench::with_plain_pool("4M");
    bench.run_with_input(&["put", "-", "p.img:/a"], b"a").ok();
    let run = |closed: bool, args: &str| {
        let script = match closed {
            true => format!("exec \"$VELLUM\" {args} >&-"),
            false => format!("exec \"$VELLUM\" {args} >/dev/null"),
        };
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).current_dir(bench.path());
        shell.env("VELLUM", vellum().get_program());
        done(shell.output().expect("it runs"))
    };
    for args in [
        "info p.img",
        "info --json p.img",
        "ls p.img:/",
        "cat p.img:/a",
    ] {
        run(true, args).failed(1, &["standard output is closed"]);
        run(false, args).ok();
    }
    // Commands without requested output do their work.
    run(true, "mkdir p.img:/d").ok();
    bench.run(&["mkdir", "p.img:/d"]).failed(1, &["exists"]);
}

/// A count of one has a singular noun.
#[test]
fn a_count_of_one_is_singular() {
    let bench = Bench::with_plain_pool("4M");
    let mut bytes = std::fs::read(bench.join("p.img")).expect("a pool");
    bytes[100] ^= 1;
    std::fs::write(bench.join("p.img"), &bytes).expect("written");
    let checked = bench.run(&["check", "p.img"]).out;
    assert!(checked.contains("damaged in 1 place"), "{checked}");
    let planned = bench.run(&["repair", "--dry-run", "p.img"]).out;
    assert!(planned.contains(": 1 repair would be made"), "{planned}");
    let mended = bench.run(&["repair", "--yes", "--no-undo", "p.img"]).out;
    assert!(mended.contains(": 1 repair made"), "{mended}");
    for said in [checked, planned, mended] {
        assert!(
            !said.contains("1 places") && !said.contains("1 repairs"),
            "{said}"
        );
    }
}

/// Paragraphs of help are filled to the width: no line ends early because the line in the source
/// does.
#[test]
fn paragraphs_of_help_are_filled() {
    const WIDTH: usize = 100;
    for command in [
        "mount",
        "prune",
        "sync",
        "check",
        "repair",
        "convert",
        "evolve",
        "map",
        "import",
        "put",
        "info",
        "mkfs",
        "umount",
        "quota",
        "quota on",
        "quota set",
        "quota default",
        "replica export",
        "replica import",
    ] {
        let words = command.split(' ').chain(["--help"]);
        let output = vellum().args(words).output();
        let help = done(output.expect("vellum runs")).ok();
        let lines: Vec<&str> = help.out.lines().collect();
        let is_text = |line: &str| line.starts_with(|first: char| first.is_ascii_alphanumeric());
        for pair in lines.windows(2) {
            // A line that ends a sentence or introduces a list may end a paragraph.
            let [line, next] = pair else { continue };
            if !is_text(line) || !is_text(next) || line.ends_with([':', '.']) {
                continue;
            }
            let word = next.split(' ').next().unwrap_or_default();
            assert!(
                line.len() + 1 + word.len() > WIDTH,
                "{command}: {line}\n{next}"
            );
        }
    }
}

/// --quiet prints nothing, even if there is no shared memory for the image.
#[test]
fn a_quiet_mkfs_prints_no_warnings() {
    let bench = Bench::empty();
    let script = "mount -t tmpfs -o size=64k none /dev/shm || exit 77
        \"$VELLUM\" mkfs --medium disk --size 64M p.img $OPTION";
    let run = |option: &str| {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", script]);
        unshare.env("VELLUM", vellum().get_program());
        unshare.env_remove("VELLUM_LOG").env("OPTION", option);
        let _ = std::fs::remove_file(bench.join("p.img"));
        unshare.current_dir(bench.path()).output().map(done).ok()
    };
    let Some(loud) = run("").filter(|did| did.code == 0) else {
        crate::support::skipped(
            "a_quiet_mkfs_prints_no_warnings",
            "no mount namespace of its own",
        );
        return;
    };
    assert!(loud.err.contains("WARN"), "{}", loud.err);
    let quiet = run("--quiet").expect("it runs").ok();
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
}

/// A pool whose reading logs a warning.
fn warned_of() -> Bench {
    let bench = Bench::with_pool("16M");
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(bench.join("p.img"))
        .expect("opened");
    let log_at = survey::header(&file).expect("a superblock").log_at;
    file.write_all_at(&[0; 8192], log_at).expect("written");
    bench
}

#[test]
fn colours_are_for_terminals() {
    const COLOUR: char = '\x1b';
    let bench = warned_of();
    let args = ["ls", "p.img:/"];
    let did = bench.run(&args).ok();
    assert!(
        did.err.contains("WARN") && !did.err.contains(COLOUR),
        "{}",
        did.err
    );
    for (value, has_some) in [("", true), ("1", false)] {
        let (_, said) = AtTerminal::start_in(&bench, &args, &[("NO_COLOR", value)]).end();
        assert!(said.contains("WARN"), "{said}");
        assert_eq!(said.contains(COLOUR), has_some, "{said}");
    }
}

/// Two repairs in the same second keep separate undo files.
#[test]
fn two_repairs_in_a_second_keep_two_undo_files() {
    let bench = Bench::with_plain_pool("4M");
    let mut bytes = std::fs::read(bench.join("p.img")).expect("a pool");
    bytes[100] ^= 1;
    for _ in 0..3 {
        std::fs::write(bench.join("p.img"), &bytes).expect("written");
        bench.run(&["repair", "--yes", "p.img"]).failed(1, &[]);
    }
    let names = std::fs::read_dir(bench.path()).expect("listed");
    let is_undo = |name: &std::ffi::OsString| name.to_string_lossy().contains(".undo-");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    assert_eq!(names.filter(is_undo).count(), 3);
}

/// Runs only if this user can create a loop device.
#[test]
fn a_loop_device_is_a_block_device() {
    let bench = Bench::empty();
    let file = std::fs::File::create(bench.join("device.img"));
    file.and_then(|file| file.set_len(16 << 20)).expect("made");
    let mut losetup = std::process::Command::new("losetup");
    losetup.args(["--find", "--show", "device.img"]);
    let found = losetup.current_dir(bench.path()).output();
    let found = found.ok().filter(|output| output.status.success());
    let Some(found) = found.map(done) else {
        crate::support::skipped("a_loop_device_is_a_block_device", "no loop device");
        return;
    };
    let device = found.out.trim();
    let did = bench.run(&["mkfs", device]);
    let detached = std::process::Command::new("losetup")
        .args(["-d", device])
        .status();
    assert!(detached.expect("losetup runs").success());
    assert!(did.ok().out.contains("logged: a block device, with a log"));
    let did = bench.run(&["mkfs", "file.img", "--size", "16M"]).ok();
    assert!(did.out.contains("logged: an ordinary file, with a log"));
}

/// The options mean the same in all commands: one JSON value, or only the requested output.
#[test]
fn json_and_quiet_mean_the_same_in_every_command() {
    let bench = Bench::empty();
    std::fs::create_dir(bench.join("tree")).expect("made");
    std::fs::write(bench.join("tree/a"), "a").expect("written");
    bench.run(&["mkfs", "p.img", "--size", "16M", "-q"]).ok();
    // Each command with its quiet output for people, which is not empty if output was requested.
    for (args, is_asked_for) in [
        (&["mkfs", "new.img", "--size", "4M", "--force"][..], false),
        (&["dataset", "list", "p.img"], true),
        (&["info", "p.img"], true),
        (&["prune", "--dry-run", "--image", "tree"], false),
        (&["import", "tree", "p.img:/tree", "--overwrite"], false),
        (&["export", "p.img:/tree", "out", "--overwrite"], false),
        (&["ls", "p.img:/"], true),
        (&["stat", "p.img:/tree"], true),
        (&["check", "p.img"], false),
        (&["repair", "--yes", "p.img"], false),
        (&["convert", "--namespace", "adaptive", "p.img"], false),
        (&["evolve", "--rounds", "1", "p.img"], false),
        (&["inspect", "areas", "p.img"], true),
        (&["quota", "on", "p.img"], false),
        (&["quota", "p.img"], true),
        (&["quota", "set", "p.img", "-u1", "--hard", "1G"], false),
        (&["quota", "default", "p.img", "-u", "--hard", "1G"], false),
        (&["quota", "default", "p.img"], true),
        (&["quota", "off", "p.img"], false),
    ] {
        for more in [&["--json"][..], &["--json", "--quiet"]] {
            let did = bench.run(&[args, more].concat()).ok();
            let value: Result<serde_json::Value, _> = serde_json::from_str(&did.out);
            assert!(value.is_ok() && did.err.is_empty(), "{args:?}: {did:?}");
        }
        let did = bench.run(&[args, &["-q"]].concat()).ok();
        assert_eq!(did.out.is_empty(), !is_asked_for, "{args:?}: {did:?}");
        assert_eq!(did.err, "", "{args:?}");
    }
}

#[test]
fn commands_without_output_refuse_json_and_quiet() {
    let bench = Bench::with_pool("4M");
    for args in [
        &["mkdir", "p.img:/d"][..],
        &["cat", "p.img:/d"],
        &["rm", "p.img:/d"],
        &["sync", "p.img"],
        &["mount", "p.img", "mnt"],
        &["version"],
    ] {
        let json = bench.run(&[args, &["--json"]].concat());
        json.failed(2, &["--json: this command has no output as JSON"]);
        let quiet = bench.run(&[args, &["--quiet"]].concat());
        quiet.failed(
            2,
            &["--quiet: this command prints nothing that could be left out"],
        );
    }
    bench.run(&["ls", "p.img:/d"]).failed(1, &["no such file"]);
}
