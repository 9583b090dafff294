//! Commands never act on something that merely is at the right path: another file system over the
//! mount, a second mount of the pool, or a new file in place of the pool's.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ChildStderr;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::Signal;
use vellum::media::lock_holders;

use crate::ends::can_mount;
use crate::mounting::{foreground, foreground_with_log, signal};
use crate::support::{Bench, Mounted, PATIENCE, is_mounted};

/// A tmpfs on a directory, until it is dropped.
struct Stranger(PathBuf);

impl Stranger {
    fn over(dir: &Path) -> Self {
        mount("t", dir, "tmpfs", MountFlags::empty(), None).expect("mounted");
        std::fs::write(dir.join("stranger"), "").expect("written");
        Self(dir.to_owned())
    }

    fn is_kept(&self) {
        assert!(self.0.join("stranger").exists());
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).expect("unmounted");
    }
}

/// A pool on a directory with a name that needs quoting.
fn mounted() -> Mounted {
    let bench = Bench::with_pool("4M");
    let dir = bench.join("m m");
    std::fs::create_dir(&dir).expect("made");
    let mounted = Mounted { bench, dir };
    mounted.bench.run(&["mount", "p.img", "m m"]).ok();
    mounted
}

/// The expected message about it, and the command that unmounts it.
fn named(dir: &Path) -> [String; 2] {
    let dir = dir.display();
    [
        format!("{dir} (tmpfs from t) is mounted over it"),
        format!("`umount '{dir}'`"),
    ]
}

#[test]
fn a_mount_over_a_pool_is_named_and_left_alone() {
    if !can_mount("a_mount_over_a_pool_is_named_and_left_alone") {
        return;
    }
    let mounted = mounted();
    std::fs::write(mounted.path("file"), "kept").expect("written");
    let over = Stranger::over(&mounted.dir);
    let [says, command] = named(&mounted.dir);
    for how in [
        &["sync", "m m"][..],
        &["sync", "p.img"],
        &["umount", "m m"],
        &["umount", "p.img"],
        &["umount", "--lazy", "m m"],
        &["umount", "--lazy", "p.img"],
        &["umount", "--force", "m m"],
        &["umount", "--force", "p.img"],
        &["info", "m m"],
        &["info", "p.img"],
        &["evolve", "p.img"],
        &["quota", "p.img"],
        &["quota", "on", "m m"],
    ] {
        let told = mounted.bench.run(how).failed(3, &[&says, &command]);
        assert!(!told.err.contains("another release"), "{}", told.err);
        over.is_kept();
    }
    let other = ["mkfs", "other.img", "--size", "4M", "--quiet"];
    mounted.bench.run(&other).ok();
    mounted
        .bench
        .run(&["mount", "other.img", "m m"])
        .failed(3, &["p.img is mounted on", &says, &command]);
    over.is_kept();
    drop(over);
    mounted.bench.run(&["sync", "m m"]).ok();
    mounted.bench.run(&["umount", "m m"]).ok();
    assert_eq!(mounted.bench.run(&["cat", "p.img:/file"]).ok().out, "kept");
}

#[test]
fn a_tmpfs_over_one_of_several_mounts_is_named() {
    if !can_mount("a_tmpfs_over_one_of_several_mounts_is_named") {
        return;
    }
    let bench = Bench::with_pool("16M");
    bench
        .run(&["dataset", "add", "p.img", "x", "--size", "4M"])
        .ok();
    std::fs::create_dir(bench.join("all")).expect("made");
    bench.run(&["mount", "--all", "p.img", "all"]).ok();
    let over = Stranger::over(&bench.join("all/x"));
    let says = "all/x (tmpfs from t) is mounted over it";
    bench.run(&["sync", "p.img:x"]).failed(3, &[says]);
    bench.run(&["sync", "p.img"]).failed(3, &[says]);
    bench.run(&["sync", "all/main"]).ok();
    bench.run(&["umount", "all"]).failed(3, &[says]);
    bench
        .run(&["mkfs", "q.img", "--size", "16M", "--quiet"])
        .ok();
    bench
        .run(&["dataset", "add", "q.img", "x", "--size", "4M"])
        .ok();
    bench
        .run(&["mount", "--all", "q.img", "all"])
        .failed(3, &["p.img:x is mounted on", says]);
    over.is_kept();
    drop(over);
    bench.run(&["umount", "p.img:x"]).ok();
}

/// A mount over a parent directory hides the mount too.
#[test]
fn a_mount_over_a_parent_directory_is_named() {
    if !can_mount("a_mount_over_a_parent_directory_is_named") {
        return;
    }
    let bench = Bench::with_pool("4M");
    std::fs::create_dir_all(bench.join("above/mnt")).expect("made");
    bench.run(&["mount", "p.img", "above/mnt"]).ok();
    let over = Stranger::over(&bench.join("above"));
    let says = "above (tmpfs from t) is mounted over it";
    for how in [
        &["sync", "p.img"][..],
        &["umount", "p.img"],
        &["umount", "--force", "p.img"],
        &["info", "p.img"],
    ] {
        bench.run(how).failed(3, &[says]);
        over.is_kept();
    }
    drop(over);
    bench.run(&["umount", "p.img"]).ok();
    bench.sound();
}

#[test]
fn a_mount_over_a_dead_mount_is_named() {
    if !can_mount("a_mount_over_a_dead_mount_is_named") {
        return;
    }
    let mounted = Mounted::not_yet(Bench::with_pool("4M"));
    let mut child = foreground(&mounted);
    let over = Stranger::over(&mounted.dir);
    child.kill().expect("killed");
    child.wait().expect("it ends");
    let dir = mounted.dir.display();
    let [says, command] = [
        format!("{dir} (tmpfs from t) is mounted over it"),
        format!("`umount {dir}`"),
    ];
    for how in [
        &["sync", "mnt"][..],
        &["sync", "p.img"],
        &["umount", "mnt"],
        &["umount", "--lazy", "p.img"],
        &["umount", "--force", "p.img"],
        &["mount", "p.img", "mnt"],
    ] {
        let told = mounted.bench.run(how).failed(3, &[&says, &command]);
        assert!(!told.err.contains("unmount it first"), "{}", told.err);
        over.is_kept();
    }
    // No process has the pool open, so the command opens it.
    let told = mounted.bench.run(&["info", "p.img"]).ok();
    assert!(told.err.contains("has ended"), "{}", told.err);
    drop(over);
    let again = mounted.bench.run(&["mount", "p.img", "mnt"]).ok();
    assert!(again.err.contains("cleared"), "{}", again.err);
    mounted.umount();
}

#[test]
fn a_signal_waits_for_mounts_over_the_mount() {
    if !can_mount("a_signal_waits_for_mounts_over_the_mount") {
        return;
    }
    let mounted = Mounted::not_yet(Bench::with_pool("4M"));
    let line = |said: &mut BufReader<ChildStderr>| {
        let mut line = String::new();
        said.read_line(&mut line).expect("read");
        line
    };
    let says = "(tmpfs from t) is mounted over it";
    let (mut child, mut said) = foreground_with_log(&mounted);
    let over = Stranger::over(&mounted.dir);
    signal(&child, Signal::TERM);
    let told = line(&mut said);
    assert!(told.contains(says), "{told}");
    over.is_kept();
    let began = Instant::now();
    drop(over);
    assert!(child.wait().expect("it ends").success());
    // It ends earlier than after the time for users.
    assert!(began.elapsed() < Duration::from_secs(8));
    assert!(!is_mounted(&mounted.dir));
    mounted.bench.sound();

    // A second signal ends the waiting, and the log says what was left.
    let (mut child, mut said) = foreground_with_log(&mounted);
    let over = Stranger::over(&mounted.dir);
    signal(&child, Signal::TERM);
    assert!(line(&mut said).contains(says));
    signal(&child, Signal::INT);
    let told = line(&mut said);
    assert!(
        told.contains("left where it is") && told.contains(says) && !told.contains("in use"),
        "{told}"
    );
    assert!(child.wait().expect("it ends").success());
    drop(over);
    mounted.bench.run(&["umount", "mnt"]).ok();
    mounted.bench.sound();
}

#[test]
fn force_ends_all_bind_mounts_of_a_mount() {
    if !can_mount("force_ends_all_bind_mounts_of_a_mount") {
        return;
    }
    let mounted = Mounted::of(Bench::with_pool("4M"), &[]);
    let copy = mounted.bench.join("copy");
    std::fs::create_dir(&copy).expect("made");
    for named in ["p.img", "mnt", "copy"] {
        if !is_mounted(&mounted.dir) {
            mounted.mount(&[]);
        }
        mount_bind(&mounted.dir, &copy).expect("mounted");
        mounted.bench.run(&["umount", "--force", named]).ok();
        assert!(!is_mounted(&mounted.dir) && !is_mounted(&copy), "{named}");
        mounted.bench.sound();
    }
}

/// The mounted file was deleted. The file that is now at its path is unrelated.
#[test]
fn a_new_pool_at_the_path_of_a_mounted_one_is_distinguished() {
    if !can_mount("a_new_pool_at_the_path_of_a_mounted_one_is_distinguished") {
        return;
    }
    let mounted = Mounted::of(Bench::with_pool("4M"), &[]);
    let run = |args: &[&str]| mounted.bench.run(args);
    std::fs::write(mounted.path("file"), "old").expect("written");
    std::fs::remove_file(mounted.bench.join("p.img")).expect("removed");
    run(&["mkfs", "p.img", "--size", "8M", "--quiet"]).ok();
    let told = run(&["info", "p.img"]).ok().out;
    assert!(!told.contains("mnt by"), "{told}");
    let nothing = &["no Vellum pool is mounted"];
    for how in [
        &["sync", "p.img"][..],
        &["umount", "p.img"],
        &["umount", "--lazy", "p.img"],
        &["umount", "--force", "p.img"],
    ] {
        run(how).failed(1, nothing);
    }
    assert!(mounted.path("file").exists());
    // Both pools are mounted.
    let new = mounted.bench.join("new");
    std::fs::create_dir(&new).expect("made");
    run(&["mount", "p.img", "new"]).ok();
    let told = run(&["info", "p.img"]).ok().out;
    assert!(told.contains("/new by"), "{told}");
    run(&["umount", "--force", "p.img"]).ok();
    assert!(!is_mounted(&new) && mounted.path("file").exists());
    run(&["info", "mnt"]).ok();
    run(&["sync", "mnt"]).ok();
    run(&["umount", "mnt"]).ok();
    mounted.bench.sound();
}

/// A pool is found by its file, even if the file had another name when it was mounted.
#[test]
fn a_renamed_pool_is_found_by_its_new_name() {
    if !can_mount("a_renamed_pool_is_found_by_its_new_name") {
        return;
    }
    let began = Instant::now();
    let mounted = Mounted::of(Bench::with_pool("4M"), &[]);
    let run = |args: &[&str]| mounted.bench.run(args);
    let (old, new) = (mounted.bench.join("p.img"), mounted.bench.join("q.img"));
    std::fs::rename(&old, &new).expect("renamed");
    let told = run(&["info", "q.img"]).ok().out;
    assert!(told.contains("mnt by"), "{told}");
    run(&["sync", "q.img"]).ok();
    run(&["mount", "q.img", "mnt"]).failed(3, &["is in use"]);
    run(&["umount", "q.img"]).ok();
    assert!(!is_mounted(&mounted.dir));
    // `umount` waits by the name that the mount knows, which is another one, so the test waits
    // itself.
    while !lock_holders(&new).is_empty() {
        assert!(began.elapsed() < PATIENCE);
    }
    run(&["check", "--strict", "q.img"]).ok();
}
