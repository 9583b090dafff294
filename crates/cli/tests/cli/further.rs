//! `vellum crash` and `vellum bench` execute other programs.

use std::fs;
use std::path::Path;
use std::process::Command;

use vellum_testing::Did;

/// Runs a copy of vellum in `dir`, with nothing else on its PATH.
fn run_in(dir: &Path, args: &[&str]) -> Did {
    let mut command = Command::new(dir.join("vellum"));
    command.args(args).env("PATH", dir.join("path"));
    command.output().expect("it runs").into()
}

/// Copies a program, in another process: a test beside this one that forks while this process has
/// the copy open for writing would keep it from being executed.
fn install(from: &Path, to: &Path) {
    let mut command = Command::new("install");
    let installed = command.args(["-m", "755"]).args([from, to]).status();
    assert!(installed.expect("it runs").success());
}

fn script(path: &Path, text: &str) {
    let written = path.with_extension("text");
    fs::write(&written, format!("#!/bin/sh\n{text}\n")).expect("written");
    install(&written, path);
}

#[test]
fn external_commands_are_found_beside_vellum_or_on_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    install(Path::new(env!("CARGO_BIN_EXE_vellum")), &dir.join("vellum"));
    fs::create_dir(dir.join("path")).expect("made");
    for (command, program) in [("crash", "vellum-crash"), ("bench", "vellum-bench")] {
        let words = [program, "is not installed", "cargo build --release --bin"];
        run_in(dir, &[command, "run"]).failed(1, &words);

        script(&dir.join("path").join(program), "echo path \"$@\"");
        let out = run_in(dir, &[command, "run", "--all", "-q"]).ok().out;
        assert_eq!(out, "path run --all -q\n");

        script(&dir.join(program), "echo beside \"$@\"; exit 7");
        let did = run_in(dir, &[command, "--help", "--", "a b"]);
        assert_eq!((did.code, did.out.as_str()), (7, "beside --help -- a b\n"));
    }
    // The help of vellum itself mentions both.
    let help = run_in(dir, &["--help"]).ok().out;
    for said in ["crash ", "bench ", "vellum-crash", "vellum-bench"] {
        assert!(help.contains(said), "{said}: {help}");
    }
}
