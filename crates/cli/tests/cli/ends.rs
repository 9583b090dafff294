//! How mounts end, and what stays untouched: other mounts, mounts in other mount namespaces, dead
//! mounts, descriptors.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_move,
};
use rustix::process::Signal;

use crate::mounting::{foreground, foreground_with_log, signal};
use crate::support::{ALONE, Bench, Mounted, done, has_fuse, is_mounted, namespaces, vellum};

/// Whether this user can also mount by the system call. If not, reports the test as skipped.
pub(crate) fn can_mount(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped {test}: not root");
    }
    is_root && has_fuse(test)
}

/// A bench with a pool, and a directory to mount on.
fn unmounted() -> Mounted {
    Mounted::not_yet(Bench::with_pool("4M"))
}

fn detach(dir: &Path) {
    rustix::mount::unmount(dir, UnmountFlags::DETACH).expect("unmounted");
}

#[test]
fn a_signal_ends_no_other_mount() {
    if !can_mount("a_signal_ends_no_other_mount") {
        return;
    }
    let mounted = unmounted();
    let run = |args: &[&str]| drop(mounted.bench.run(args).ok());
    run(&["mkfs", "other.img", "--size", "4M"]);
    let mut child = foreground(&mounted);
    let open = File::create(mounted.path("open")).expect("made");
    detach(&mounted.dir);
    run(&["mount", "other.img", "mnt"]);
    std::fs::write(mounted.path("others"), "kept").expect("written");
    // A second signal, because of the open file. It is another signal, because two equal ones may
    // be merged.
    signal(&child, Signal::TERM);
    signal(&child, Signal::INT);
    assert!(child.wait().expect("it ends").success());
    drop(open);
    let kept = std::fs::read(mounted.path("others")).expect("it is mounted still");
    assert_eq!(kept, b"kept");
    run(&["umount", "mnt"]);
    mounted.bench.sound();
}

#[test]
fn a_signal_ends_a_mount_where_it_was_moved() {
    if !can_mount("a_signal_ends_a_mount_where_it_was_moved") {
        return;
    }
    let mounted = unmounted();
    let bench = mounted.bench.path();
    // The kernel moves no mount below a mount that is shared with other namespaces.
    mount_bind(bench, bench).expect("mounted");
    mount_change(bench, MountPropagationFlags::PRIVATE).expect("private");
    let moved = mounted.bench.join("moved");
    std::fs::create_dir(&moved).expect("made");
    let mut child = foreground(&mounted);
    mount_move(&mounted.dir, &moved).expect("moved");
    let told = mounted.bench.run(&["info", "p.img"]).ok().out;
    assert!(
        told.contains(&format!("on {} by", moved.display())),
        "{told}"
    );
    signal(&child, Signal::TERM);
    assert!(child.wait().expect("it ends").success());
    assert!(!is_mounted(&moved));
    mounted.bench.sound();
    detach(bench);
}

/// A process that serves a mount in the foreground and reports events, with another file system
/// mounted on `below` in it.
struct Under {
    mounted: Mounted,
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    below: PathBuf,
}

impl Under {
    fn new() -> Self {
        let mounted = unmounted();
        let (child, said) = foreground_with_log(&mounted);
        let below = mounted.path("below");
        std::fs::create_dir(&below).expect("made");
        mount("none", &below, "tmpfs", MountFlags::empty(), None).expect("mounted");
        std::fs::write(below.join("data"), "precious").expect("written");
        Self {
            mounted,
            child,
            said,
            below,
        }
    }

    fn is_kept(&self) {
        let kept = std::fs::read(self.below.join("data")).expect("it is mounted still");
        assert_eq!(kept, b"precious");
        assert!(is_mounted(&self.mounted.dir));
    }

    /// Checks that its next line names the mount below.
    fn is_named(&mut self) {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("read");
        assert!(line.contains("/below (tmpfs) is mounted below"), "{line}");
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        // These are left if a test fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = rustix::mount::unmount(&self.below, UnmountFlags::DETACH);
        let _ = rustix::mount::unmount(&self.mounted.dir, UnmountFlags::DETACH);
    }
}

#[test]
fn a_mount_stays_where_something_else_is_mounted_below_it() {
    if !can_mount("a_mount_stays_where_something_else_is_mounted_below_it") {
        return;
    }
    let mut under = Under::new();
    let umount = format!("`umount {}`", under.below.display());
    for how in [&[][..], &["--lazy"], &["--force"]] {
        let told = under.mounted.bench.run(&[&["umount", "mnt"], how].concat());
        let told = told.failed(3, &["/below (tmpfs) is mounted below it", &umount]);
        assert!(!told.err.contains("fuser"), "{}", told.err);
        under.is_kept();
    }
    signal(&under.child, Signal::TERM);
    under.is_named();
    under.is_kept();
    // The mount waits for that.
    rustix::mount::unmount(&under.below, UnmountFlags::empty()).expect("unmounted");
    assert!(under.child.wait().expect("it ends").success());
    assert!(!is_mounted(&under.mounted.dir));
    under.mounted.bench.sound();
}

#[test]
fn a_dead_mount_stays_where_something_else_is_mounted_below_it() {
    if !can_mount("a_dead_mount_stays_where_something_else_is_mounted_below_it") {
        return;
    }
    let mut under = Under::new();
    // Different signals, because two equal ones may be merged. The second one ends the waiting.
    signal(&under.child, Signal::TERM);
    signal(&under.child, Signal::INT);
    assert!(under.child.wait().expect("it ends").success());
    under.is_named();
    under.is_named();
    let umount = format!("`umount {}`", under.below.display());
    let names = ["/below (tmpfs) is mounted below it", &umount];
    for how in [
        &["mount", "p.img", "mnt"][..],
        &["umount", "mnt"],
        &["umount", "--lazy", "mnt"],
        &["umount", "--force", "mnt"],
    ] {
        under.mounted.bench.run(how).failed(3, &names);
        under.is_kept();
    }
    under.mounted.bench.sound();
    rustix::mount::unmount(&under.below, UnmountFlags::empty()).expect("unmounted");
    let again = under.mounted.bench.run(&["mount", "p.img", "mnt"]).ok();
    assert!(again.err.contains("cleared"), "{}", again.err);
    under.mounted.umount();
}

/// Runs `vellum` with a lock that is held by an inherited descriptor. The shell's own descriptor is
/// closed when this returns.
fn with_a_lock(bench: &Bench, args: &str) -> Command {
    let script = format!(
        "exec 9>lock && flock 9 && exec {} {args}",
        env!("CARGO_BIN_EXE_vellum")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(bench.path());
    command
}

#[test]
fn a_mount_closes_inherited_descriptors() {
    if !has_fuse("a_mount_closes_inherited_descriptors") {
        return;
    }
    let mounted = unmounted();
    let is_free = || {
        let lock = File::open(mounted.bench.join("lock")).expect("a file");
        flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    let status = with_a_lock(&mounted.bench, "mount p.img mnt").status();
    assert!(status.expect("it runs").success());
    assert!(is_free());
    mounted.umount();
    let mut command = with_a_lock(&mounted.bench, "mount --foreground --ready-fd 1 p.img mnt");
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut said = String::new();
    let output = child.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut said).expect("read");
    assert_eq!(said, "ready\n");
    assert!(is_free());
    mounted.umount();
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_dead_mount_is_cleared_and_its_pool_opens() {
    if !has_fuse("a_dead_mount_is_cleared_and_its_pool_opens") {
        return;
    }
    let mounted = unmounted();
    let run = |args: &[&str]| mounted.bench.run(args);
    let kill = |mut child: Child| {
        child.kill().expect("killed");
        child.wait().expect("it ends");
    };
    let child = foreground(&mounted);
    std::fs::write(mounted.path("file"), "kept").expect("written");
    kill(child);
    for asked in ["p.img", "mnt"] {
        let told = run(&["info", asked]).ok();
        assert!(told.out.contains("p.img"), "{}", told.out);
        assert!(told.err.contains("has ended"), "{}", told.err);
        run(&["evolve", asked]).failed(1, &["has ended", "has no areas"]);
    }
    run(&["sync", "mnt"]).failed(1, &["has ended", "mount"]);
    assert_eq!(run(&["cat", "p.img:/file"]).ok().out, "kept");
    let again = run(&["mount", "p.img", "mnt"]).ok();
    assert!(again.err.contains("cleared"), "{}", again.err);
    assert!(
        !again.err.contains('\x1b'),
        "colours for no terminal: {}",
        again.err
    );
    assert_eq!(std::fs::read(mounted.path("file")).expect("read"), b"kept");
    mounted.umount();
    kill(foreground(&mounted));
    run(&["umount", "mnt"]).ok();
    assert!(!is_mounted(&mounted.dir));
    kill(foreground(&mounted));
    run(&["umount", "--force", "mnt"]).ok();
    assert!(!is_mounted(&mounted.dir));
}

/// When a mount has ended, another may get the number of its device.
#[test]
fn the_watcher_of_an_unmounted_mount_removes_no_other() {
    if !has_fuse("the_watcher_of_an_unmounted_mount_removes_no_other") {
        return;
    }
    let mounted = unmounted();
    let mut child = foreground(&mounted);
    let device = rustix::fs::stat(&mounted.dir).expect("mounted").st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    child.kill().expect("killed");
    child.wait().expect("it ends");
    for (said, stays) in [("unmounted", true), ("", false)] {
        let mut watcher = vellum()
            .args(["mount", "--foreground", "--watch"])
            .args([&format!("{major}:{minor}"), "-", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("vellum runs");
        let mut input = watcher.stdin.take().expect("a pipe");
        input.write_all(said.as_bytes()).expect("it listens");
        drop(input);
        assert!(watcher.wait().expect("it ends").success());
        assert_eq!(is_mounted(&mounted.dir), stays);
    }
}

/// A killed process needs a moment to end.
#[test]
fn all_commands_wait_for_a_killed_process() {
    if !has_fuse("all_commands_wait_for_a_killed_process") {
        return;
    }
    let mounted = Mounted::not_yet(Bench::with_pool("256M"));
    let run = |args: &[&str]| mounted.bench.run(args);
    for command in [
        &["check", "p.img"][..],
        &["cat", "p.img:/file"],
        &["repair", "--yes", "p.img"],
        &["ls", "p.img:/"],
        &["mkdir", "p.img:/d"],
    ] {
        let mut child = foreground(&mounted);
        std::fs::write(mounted.path("file"), vec![1; 32 << 20]).expect("written");
        child.kill().expect("killed");
        let did = run(command);
        assert!(!did.err.contains("in use"), "{command:?}: {}", did.err);
        child.wait().expect("it ends");
        run(&["umount", "mnt"]).ok();
    }
}

/// A process that holds something until this is dropped.
struct Process(Child);

impl Process {
    /// Waits until it prints `there`.
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        let mut said = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut said).expect("read");
        assert_eq!(said, "there\n");
        Self(child)
    }

    /// Runs a script in a mount namespace of its own, in which `$1` is the only Vellum mount.
    fn elsewhere(dir: &Path, script: &str, more: &[&str]) -> Self {
        let script = format!("{ALONE} {script} echo there && exec sleep 600");
        let mut command = Command::new("unshare");
        let command = command.args(["--mount", "sh", "-c", &script, "sh"]);
        Self::start(command.arg(dir).args(more))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn users_in_other_namespaces_are_named_and_cut_off() {
    if !can_mount("users_in_other_namespaces_are_named_and_cut_off") {
        return;
    }
    let _alone = namespaces();
    let mounted = Mounted::of(Bench::with_pool("4M"), &[]);
    std::fs::write(mounted.path("file"), "kept").expect("written");
    let other = Process::elsewhere(&mounted.dir, "", &[]);
    let pid = other.0.id().to_string();
    let run = |args: &[&str]| mounted.bench.run(args);
    run(&["umount", "mnt"]).failed(
        3,
        &["unmounted here", &pid, "another mount namespace", "--force"],
    );
    let there = format!("/proc/{pid}/root{}", mounted.dir.display());
    File::create(format!("{there}/more")).expect("made");
    run(&["umount", "--force", "p.img"]).ok();
    let cut_off = File::create(format!("{there}/none")).expect_err("cut off");
    // The other error belongs to requests in flight while the process ends.
    let ended = [ErrorKind::NotConnected, ErrorKind::ConnectionAborted];
    assert!(ended.contains(&cut_off.kind()), "{cut_off}");
    mounted.bench.sound();
    assert_eq!(run(&["cat", "p.img:/file"]).ok().out, "kept");
    run(&["umount", "--force", "p.img"]).failed(1, &["no Vellum pool is mounted"]);
}

#[test]
fn force_cuts_off_users_of_a_mount() {
    if !has_fuse("force_cuts_off_users_of_a_mount") {
        return;
    }
    let mounted = Mounted::of(Bench::with_pool("4M"), &[]);
    let run = |args: &[&str]| mounted.bench.run(args);
    let mut file = File::create(mounted.path("file")).expect("made");
    file.write_all(b"kept").expect("written");
    run(&["umount", "mnt"]).failed(3, &["--lazy", "--force"]);
    run(&["umount", "--force", "mnt"]).ok();
    assert!(file.write_all(b"lost").is_err());
    assert!(!is_mounted(&mounted.dir));
    mounted.bench.sound();
    assert_eq!(run(&["cat", "p.img:/file"]).ok().out, "kept");
}

/// Two pools on one directory, each in a mount namespace of its own, and neither here.
#[test]
fn force_by_directory_ends_none_of_several_pools_elsewhere() {
    if !can_mount("force_by_directory_ends_none_of_several_pools_elsewhere") {
        return;
    }
    let _alone = namespaces();
    let bench = Bench::empty();
    std::fs::create_dir(bench.join("mnt")).expect("made");
    let run = |args: &[&str]| bench.run(args);
    let elsewhere: Vec<Process> = ["a.img", "b.img"]
        .into_iter()
        .map(|pool| {
            run(&["mkfs", pool, "--size", "4M", "--quiet"]).ok();
            let script = r#"cd "$1/.." && "$2" mount "$3" mnt &&"#;
            let vellum = env!("CARGO_BIN_EXE_vellum");
            Process::elsewhere(&bench.join("mnt"), script, &[vellum, pool])
        })
        .collect();
    let is_served = |of: &Process| {
        let table = std::fs::read_to_string(format!("/proc/{}/mounts", of.0.id()));
        let at = format!(" {} fuse.vellum ", bench.join("mnt").display());
        table.is_ok_and(|table| table.contains(&at))
    };
    let [pid, other] = [0, 1].map(|one: usize| elsewhere[one].0.id().to_string());
    run(&["umount", "--force", "mnt"]).failed(3, &["a.img", "b.img", &pid, &other]);
    assert!(elsewhere.iter().all(is_served));
    // The pool's path selects one of them.
    run(&["umount", "--force", "a.img"]).ok();
    assert!(!is_served(&elsewhere[0]) && is_served(&elsewhere[1]));
    // Now only one pool is mounted on the directory.
    run(&["umount", "--force", "mnt"]).ok();
    assert!(!is_served(&elsewhere[1]));
    for pool in ["a.img", "b.img"] {
        run(&["check", "--strict", pool]).ok();
    }
}

#[test]
fn a_served_but_unmounted_pool_is_explained_and_ended_by_force() {
    if !can_mount("a_served_but_unmounted_pool_is_explained_and_ended_by_force") {
        return;
    }
    let _alone = namespaces();
    let mounted = Mounted::of(Bench::with_pool("4M"), &[]);
    let run = |args: &[&str]| mounted.bench.run(args);
    let all_say = |words: &[&str]| {
        for how in [
            &["umount", "p.img"][..],
            &["info", "p.img"],
            &["mount", "p.img", "mnt"],
            &["mount", "-o", "ro", "p.img", "mnt"],
        ] {
            let told = run(how).failed(3, words);
            assert!(!told.err.contains("close it there"), "{}", told.err);
        }
        // Its exit status is that of fsck(8).
        run(&["check", "p.img"]).failed(8, words);
    };
    let force = format!(
        "`vellum umount --force {}`",
        mounted.bench.join("p.img").display()
    );
    // It is mounted in another mount namespace.
    std::fs::write(mounted.path("file"), "kept").expect("written");
    let other = Process::elsewhere(&mounted.dir, "", &[]);
    let pid = format!("process {} (sleep) has it mounted on", other.0.id());
    run(&["umount", "mnt"]).failed(3, &["unmounted here", &pid]);
    let by_dir = format!("process {} (sleep) has ", other.0.id());
    run(&["umount", "mnt"]).failed(1, &["no Vellum pool is mounted", &by_dir, &force]);
    all_say(&["(vellum) serves a mount of it", &pid, &force]);
    run(&["umount", "--force", "p.img"]).ok();
    drop(other);
    // A file is open, and mapped, after a lazy end.
    mounted.mount(&[]);
    let script = r#"exec 3>>"$1" && echo more >&3 && echo there && exec sleep 600"#;
    let mut command = Command::new("sh");
    let command = command.args(["-c", script, "sh"]).arg(mounted.path("file"));
    let user = Process::start(command);
    run(&["umount", "--lazy", "mnt"]).ok();
    let pid = format!("process {} (sleep) has files of it open", user.0.id());
    all_say(&["(vellum) serves a mount of it", &pid, &force]);
    run(&["umount", "--force", "p.img"]).ok();
    mounted.bench.sound();
    assert_eq!(run(&["cat", "p.img:/file"]).ok().out, "keptmore\n");
    run(&["umount", "--force", "p.img"]).failed(1, &["no Vellum pool is mounted"]);
}

#[test]
fn a_descriptor_in_another_namespace_is_named_and_cut_off() {
    if !can_mount("a_descriptor_in_another_namespace_is_named_and_cut_off") {
        return;
    }
    let _alone = namespaces();
    let mounted = Mounted::of(Bench::with_pool("4M"), &[]);
    let script = r#"exec 3<"$1" && umount -l "$1" &&"#;
    let user = Process::elsewhere(&mounted.dir, script, &[]);
    let pid = format!("process {} (sleep) has files of it open", user.0.id());
    let run = |args: &[&str]| mounted.bench.run(args);
    run(&["umount", "--timeout", "1", "mnt"]).failed(3, &["unmounted here", &pid, "--force"]);
    run(&["umount", "p.img"]).failed(3, &["(vellum) serves a mount of it", &pid, "--force"]);
    run(&["umount", "--force", "p.img"]).ok();
    mounted.bench.sound();
}

#[test]
fn sync_accepts_a_path_in_a_mount() {
    if !has_fuse("sync_accepts_a_path_in_a_mount") {
        return;
    }
    let mounted = Mounted::of(Bench::with_pool("4M"), &[]);
    std::fs::create_dir(mounted.path("sub")).expect("made");
    std::fs::write(mounted.path("sub/file"), "x").expect("written");
    for path in ["mnt", "mnt/sub", "mnt/sub/file"] {
        mounted.bench.run(&["sync", path]).ok();
    }
    let mut within = vellum();
    within.args(["sync", "."]).current_dir(mounted.path("sub"));
    done(within.output().expect("vellum runs")).ok();
    mounted
        .bench
        .run(&["sync", "."])
        .failed(1, &["no Vellum pool"]);
    mounted
        .bench
        .run(&["umount", "mnt/sub"])
        .failed(1, &["no Vellum pool"]);
    mounted.umount();
}

#[test]
fn the_heir_of_a_lock_is_named() {
    let bench = Bench::with_pool("4M");
    // The process that takes the lock ends.
    let script = r#"exec 9<>"$1" && flock 9 && echo there && exec sleep 600"#;
    let mut command = Command::new("sh");
    let holder = Process::start(command.args(["-c", script, "sh"]).arg(bench.join("p.img")));
    let named = format!("in use (EBUSY) by process {} (sleep)", holder.0.id());
    bench.run(&["info", "p.img"]).failed(3, &[&named]);
    bench
        .run(&["umount", "p.img"])
        .failed(1, &["no Vellum pool"]);
}
