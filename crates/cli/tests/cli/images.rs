//! Metadata of pools in memory that killed processes left: listed, kept for their pools, removed once these are gone.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{ALONE, Bench, Mounted, has_fuse, kill_and_wait, namespaces, vellum};
use rustix::process::Pid;
use serde_json::Value;

/// The line of the listing that is about this pool.
fn listed(bench: &Bench, pool: &Path) -> Option<Value> {
    let out = bench.run(&["info", "--images", "--json"]).ok().out;
    let all: Value = serde_json::from_str(&out).expect("JSON");
    let lines = all["images"].as_array().expect("a list").clone();
    lines
        .into_iter()
        .find(|line| line["pool"] == pool.to_str().expect("text"))
}

fn state(line: &Option<Value>) -> &str {
    line.as_ref()
        .map_or("none", |line| line["state"].as_str().expect("text"))
}

/// The file of a line.
fn image(line: &Option<Value>) -> PathBuf {
    let line = line.as_ref().expect("a line");
    line["image"].as_str().expect("a path").into()
}

/// Kills the process behind the mount, and takes the mount away.
fn kill(mounted: &Mounted) {
    let said = mounted.bench.run(&["info", "--json", "mnt"]).ok().out;
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let pid = said["mount"]["pid"].as_i64().expect("a process");
    let pid = Pid::from_raw(pid as i32).expect("a process");
    kill_and_wait(pid);
    let done = Command::new("umount").arg("-l").arg(&mounted.dir).status();
    assert!(done.expect("umount runs").success());
}

#[test]
fn what_a_killed_mount_left_is_listed_and_kept_for_its_pool() {
    if !has_fuse("what_a_killed_mount_left_is_listed_and_kept_for_its_pool") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    let bench = &mounted.bench;
    let pool = bench.join("p.img");
    let line = listed(bench, &pool);
    assert_eq!(state(&line), "in use");
    let by_name = image(&line);
    let by_name = by_name.to_str().expect("text");
    bench.run(&["prune", by_name]).failed(3, &["works on it"]);
    std::fs::write(mounted.path("a"), "not synced").expect("written");
    kill(&mounted);

    let line = listed(bench, &pool);
    assert_eq!(state(&line), "can be adopted");
    assert!(
        line.as_ref()
            .is_some_and(|line| line["memory_bytes"].as_u64() > Some(1 << 20))
    );
    bench.run(&["prune"]).ok();
    bench
        .run(&["prune", by_name])
        .failed(1, &["takes it in", "repair --last-epoch"]);
    let moved = bench.join("q.img");
    std::fs::rename(&pool, &moved).expect("renamed");
    // Only root can tell by which name.
    let line = listed(bench, &moved).or_else(|| listed(bench, &pool));
    assert!(
        ["can be adopted", "unknown"].contains(&state(&line)),
        "{line:?}"
    );
    bench.run(&["prune"]).ok();
    assert_eq!(bench.run(&["cat", "q.img:/a"]).ok().out, "not synced");
    bench.run(&["mkdir", "q.img:/d"]).ok();
    assert!(listed(bench, &moved).is_none() && listed(bench, &pool).is_none());
}

#[test]
fn what_is_left_of_a_pool_that_is_gone_is_removed() {
    if !has_fuse("what_is_left_of_a_pool_that_is_gone_is_removed") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    let bench = &mounted.bench;
    let pool = bench.join("p.img");
    kill(&mounted);
    // Another pool in the same file.
    let remade = ["mkfs", "p.img", "--force", "--quiet"];
    let left = image(&listed(bench, &pool));
    bench.run(&remade).ok();
    assert!(!left.exists());

    mounted.mount(&[]);
    kill(&mounted);
    std::fs::remove_file(&pool).expect("removed");
    let line = listed(bench, &pool);
    let left = image(&line);
    if state(&line) == "unknown" {
        // Not everybody may ask, and not every file system answers.
        bench.run(&["prune", left.to_str().expect("text")]).ok();
        assert!(!left.exists());
        return;
    }
    assert_eq!(state(&line), "pool gone");
    let told = bench.run(&["info", "--images"]).ok().out;
    assert!(told.contains("`vellum prune` removes it"), "{told}");
    let said = bench.run(&["prune", "--dry-run"]).ok().out;
    assert!(said.contains("would remove") && left.exists(), "{said}");
    let said = bench.run(&["prune"]).ok().out;
    assert!(said.contains(left.to_str().expect("text")), "{said}");
    assert!(!left.exists());
}

/// A pool whose file system is not mounted here may be again.
#[test]
fn what_is_left_of_a_pool_that_cannot_be_reached_stays() {
    let test = "what_is_left_of_a_pool_that_cannot_be_reached_stays";
    if !has_fuse(test) {
        return;
    }
    let bench = Bench::empty();
    std::fs::create_dir(bench.join("fs")).expect("made");
    std::fs::create_dir(bench.join("mnt")).expect("made");
    // The process behind the mount holds the file system until it is killed.
    let script = "mount -t tmpfs none fs || exit 77
        set -e
        \"$VELLUM\" mkfs fs/p.img --size 64M --media logged --quiet
        \"$VELLUM\" mount fs/p.img mnt
        pid=$(\"$VELLUM\" info --json mnt | sed -n 's/^ *\"pid\": \\([0-9]*\\).*/\\1/p' | tail -n 1)
        kill -9 \"$pid\"
        while kill -0 \"$pid\" 2>/dev/null; do sleep 0.01; done";
    let alone = namespaces();
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-c", &format!("{ALONE}{script}")])
        .env("VELLUM", vellum().get_program())
        .current_dir(bench.path())
        .output();
    drop(alone);
    match output.map(|output| output.status.code()) {
        Ok(Some(0)) => {}
        refused => {
            crate::support::skipped(
                test,
                &format!("no mount namespace of its own ({refused:?})"),
            );
            return;
        }
    }
    let pool = bench.join("fs/p.img");
    let line = listed(&bench, &pool);
    assert_eq!(state(&line), "unknown", "{line:?}");
    let left = image(&line);
    bench.run(&["prune"]).ok();
    assert!(left.exists());
    let name = left.file_name().and_then(|name| name.to_str());
    bench.run(&["prune", name.expect("a name")]).ok();
    assert!(!left.exists());
}
