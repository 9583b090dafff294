//! Small runs through a mount, in processes of their own.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vellum_bench::mounted::Report;

/// The longest wait for a process, far beyond what it takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn has_fuse() -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    if device.is_err() {
        eprintln!("skipped: /dev/fuse is missing or not open to this user");
    }
    device.is_ok()
}

fn bench(more: &[&str], pools: &Path, mounts: &Path) -> Command {
    let mut command = measurement("ops", pools, mounts);
    command
        .args(["--files", "100", "--large-file-bytes", "1048576"])
        .args(more);
    command
}

fn measurement(name: &str, pools: &Path, mounts: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum-bench"));
    command
        .args([name, "--peer", "/dev/shm", "--json"])
        .args(["--pool-dir".as_ref(), pools.as_os_str()])
        .env("TMPDIR", mounts);
    command
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("directory").next().is_none()
}

/// The number of file systems that are mounted below a directory.
fn mounts_below(dir: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table");
    table.matches(&*dir.to_string_lossy()).count()
}

#[test]
fn a_mount_is_measured_beside_one_that_does_nothing() {
    if !has_fuse() {
        return;
    }
    let (pools, mounts) = (tempfile::tempdir(), tempfile::tempdir());
    let (pools, mounts) = (pools.expect("directory"), mounts.expect("directory"));
    let output = bench(&["--rounds", "1"], pools.path(), mounts.path())
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    let of = |path: &'static str| rows.iter().filter(move |row| row["path"] == path);
    assert_eq!(of("mount").count(), of("library").count());
    assert!(of("mount").all(|row| row["peer"] == "do-nothing"));
    let create = of("mount").find(|row| row["op"] == "create" && row["threads"] == 1);
    let fences = create.and_then(|row| row["fences"].as_f64());
    assert!(
        fences.is_some_and(|fences| fences >= 1.0),
        "the serving process counts: {fences:?}"
    );
    assert!(report["notes"].as_array().expect("notes").is_empty());
    assert!(is_empty(pools.path()) && is_empty(mounts.path()));
    assert_eq!(mounts_below(mounts.path()), 0);
}

/// If the peer has values, `git` is installed, and the pools have values too.
#[test]
fn git_works_in_mounted_pools() {
    if !has_fuse() {
        return;
    }
    let (pools, mounts) = (tempfile::tempdir(), tempfile::tempdir());
    let (pools, mounts) = (pools.expect("directory"), mounts.expect("directory"));
    let output = measurement("namespace", pools.path(), mounts.path())
        .args(["--figure", "git", "--files", "60", "--rounds", "1"])
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let series = report["figures"][0]["series"].as_array().expect("series");
    let values = |name: &str| {
        let of_name = series.iter().find(|series| series["name"] == name);
        let points = of_name.and_then(|series| series["points"].as_array());
        points.map_or(0, Vec::len)
    };
    let has_git = Command::new("git").arg("--version").output().is_ok();
    let expected = if has_git { 2 } else { 0 };
    for name in ["direct", "adaptive", "tree", "tmpfs"] {
        assert_eq!(values(name), expected, "{name}");
    }
    assert!(is_empty(pools.path()) && is_empty(mounts.path()));
    assert_eq!(mounts_below(mounts.path()), 0);
}

/// Programs that take seconds each are left out.
const QUICK: &str = "requests,transfers,tar,find,cp,rm,clone,checkout,status";

#[test]
fn a_mount_is_measured_with_programs_and_transfers() {
    if !has_fuse() {
        return;
    }
    let (pools, mounts) = (tempfile::tempdir_in("/dev/shm"), tempfile::tempdir());
    let (pools, mounts) = (pools.expect("directory"), mounts.expect("directory"));
    let output = measurement("mount", pools.path(), mounts.path())
        .args([
            "--only", QUICK, "--rounds", "1", "--files", "40", "--bytes", "4194304",
        ])
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Report = serde_json::from_slice(&output.stdout).expect("a report");
    assert!(report.doors.contains(&"/dev/fuse".to_owned()));
    for door in &report.doors {
        let ops = report.requests.iter().filter(|row| row.door == *door);
        assert!(ops.clone().any(|row| row.op == "rename_same"));
        assert!(
            ops.clone()
                .all(|row| row.vellum_ns > 0.0 && row.null_ns > 0.0 && row.ratio > 0.0)
        );
        let scaling = report.scaling.iter().filter(|row| row.door == *door);
        assert_eq!(
            scaling.count(),
            6,
            "three operations, in one directory and in two"
        );
        let of = |name: &str| {
            let mut all = report.programs.iter().chain(&report.transfers);
            all.find(|row| row.name == name && row.door.as_ref() == Some(door))
        };
        let requests = |name: &str, kind: &str| of(name)?.requests_by_kind.get(kind).copied();
        assert!(
            requests("tar", "mknod") >= Some(40),
            "a request for each file"
        );
        assert!(requests("rm", "unlink") >= Some(40));
        assert!(
            requests("write", "write") >= Some(4),
            "a request of 1 MiB at most"
        );
        for name in QUICK
            .split(',')
            .skip(2)
            .chain(["write", "read-cold", "read-warm"])
        {
            let is_there = of(name).is_some_and(|row| row.seconds > 0.0 && row.ratios.len() == 1);
            assert!(
                is_there || !report.notes.is_empty(),
                "{name}: {:?}",
                of(name)
            );
        }
    }
    let text = report.to_string();
    assert!(
        text.contains("rename_across") && text.contains("MiB/s"),
        "{text}"
    );
    assert!(is_empty(pools.path()) && is_empty(mounts.path()));
    assert_eq!(mounts_below(mounts.path()), 0);
}

#[test]
fn a_signal_leaves_nothing_behind() {
    // More rounds through the mounts than fit before the signal.
    let arguments = ["--only", "create", "--rounds", "30"];
    is_interrupted(|pools, mounts| bench(&arguments, pools, mounts));
    is_interrupted(|pools, mounts| {
        let mut command = measurement("mount", pools, mounts);
        command.args(["--only", "tar", "--rounds", "300", "--files", "1000"]);
        command
    });
}

/// Sends a signal when the measurement has its mounts.
fn is_interrupted(command: impl Fn(&Path, &Path) -> Command) {
    if !has_fuse() {
        return;
    }
    let (pools, mounts) = (tempfile::tempdir(), tempfile::tempdir());
    let (pools, mounts) = (pools.expect("directory"), mounts.expect("directory"));
    let mut child = command(pools.path(), mounts.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let began = Instant::now();
    while mounts_below(mounts.path()) < 2 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a signal");
    while child.try_wait().expect("a child").is_none() {
        assert!(began.elapsed() < PATIENCE, "it goes on after a signal");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!child.wait().expect("a child").success());
    assert!(is_empty(pools.path()) && is_empty(mounts.path()));
    assert_eq!(mounts_below(mounts.path()), 0);
}
