//! The command as a helper of mount(8), fstab and libfuse.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Bench, Did, Mounted, done, has_fuse};

const PROGRAM: &str = env!("CARGO_BIN_EXE_vellum");
/// The path of libfuse's helper.
const OF_LIBFUSE: &str = "/sbin/mount.fuse3";

/// A pool that is not mounted, and links to the program.
fn unmounted() -> Mounted {
    let mounted = Mounted::not_yet(Bench::with_pool("4M"));
    for name in ["mount.vellum", "mount.fuse.vellum", "vellum"] {
        symlink(PROGRAM, mounted.bench.join(name)).expect("linked");
    }
    mounted
}

/// Runs a program in the bench, which finds this program by its name.
fn run(mounted: &Mounted, program: &str, args: &[&str]) -> Did {
    let mut command = Command::new(program);
    let path = format!("{}:/usr/bin:/bin", mounted.bench.path().display());
    command.args(args).env("PATH", path);
    done(
        command
            .current_dir(mounted.bench.path())
            .output()
            .expect("it runs"),
    )
}

/// The kernel's options of a mount, if it exists.
fn options(dir: &Path) -> Option<Vec<String>> {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("read");
    let line = table
        .lines()
        .find(|line| line.contains(&format!(" {} ", dir.display())))?;
    let options = line.split(' ').nth(3).expect("options");
    Some(options.split(',').map(str::to_owned).collect())
}

/// Asserts that a mount has these options, and does not have those that begin with `!`.
#[track_caller]
fn has(dir: &Path, wanted: &[&str]) {
    let found = options(dir).expect("it is mounted");
    for wanted in wanted {
        let (name, is_wanted) = wanted
            .strip_prefix('!')
            .map_or((*wanted, true), |name| (name, false));
        assert_eq!(
            found.iter().any(|option| option == name),
            is_wanted,
            "{name}: {found:?}"
        );
    }
}

#[test]
fn mount_and_fstab_call_the_helper() {
    if !has_fuse("mount_and_fstab_call_the_helper") {
        return;
    }
    let mounted = unmounted();
    let is_root = rustix::process::geteuid().is_root();
    for name in ["./mount.vellum", "./mount.fuse.vellum"] {
        let fstab =
            "rw,noexec,nofail,_netdev,x-systemd.automount,fsname=a,subtype=b,nonempty,silent";
        run(
            &mounted,
            name,
            &["p.img", "mnt", "-n", "-o", fstab, "-t", "fuse.vellum"],
        )
        .ok();
        has(&mounted.dir, &["rw", "noexec"]);
        if is_root {
            has(&mounted.dir, &["!nosuid", "!nodev"]);
        }
        mounted.umount();
        run(&mounted, name, &["-r", "p.img", "mnt", "-o", "user,exec"]).ok();
        has(&mounted.dir, &["ro", "nosuid", "nodev", "!noexec"]);
        mounted.umount();
        run(&mounted, name, &["p.img", "mnt", "-o", "odd"]).failed(1, &["odd"]);
        run(&mounted, name, &["-f", "p.img", "mnt"]).ok();
        assert_eq!(options(&mounted.dir), None);
        run(&mounted, name, &["-sv", "p.img", "mnt", "-o", "odd"]).ok();
        mounted.umount();
        run(&mounted, name, &["p.img", "none"]).failed(32, &["none"]);
        run(&mounted, name, &["no.img", "mnt"]).failed(32, &["no.img"]);
        run(&mounted, name, &["p.img"]).failed(1, &["DIR"]);
    }
}

#[test]
fn libfuse_passes_a_pool_in_place_of_a_command() {
    if !has_fuse("libfuse_passes_a_pool_in_place_of_a_command") {
        return;
    }
    let mounted = unmounted();
    run(
        &mounted,
        "./vellum",
        &["p.img", "mnt", "-o", "rw,nodev,users"],
    )
    .ok();
    has(&mounted.dir, &["nosuid", "nodev", "noexec"]);
    mounted.umount();
    run(&mounted, "./vellum", &["none.img", "mnt"]).failed(2, &["none.img"]);
    match Command::new(OF_LIBFUSE).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        _ => {}
    }
    run(
        &mounted,
        OF_LIBFUSE,
        &["p.img", "mnt", "-t", "fuse.vellum", "-o", "ro,noexec"],
    )
    .ok();
    has(&mounted.dir, &["ro", "noexec"]);
    mounted.umount();
}

#[test]
fn nosymfollow_keeps_symbolic_links_from_being_followed() {
    if !has_fuse("nosymfollow_keeps_symbolic_links_from_being_followed")
        || !rustix::process::geteuid().is_root()
    {
        return;
    }
    let mounted = unmounted();
    mounted.mount(&["-o", "nosymfollow"]);
    std::fs::write(mounted.path("file"), "").expect("made");
    symlink("file", mounted.path("link")).expect("linked");
    let refused = std::fs::read(mounted.path("link")).expect_err("refused");
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::LOOP));
    mounted.umount();
}

#[test]
fn auto_unmount_removes_a_killed_mount() {
    if !has_fuse("auto_unmount_removes_a_killed_mount") {
        return;
    }
    let mounted = unmounted();
    mounted.mount(&["-o", "auto_unmount"]);
    std::fs::write(mounted.path("file"), "kept").expect("written");
    let told = mounted.bench.run(&["info", "--json", "p.img"]).ok().out;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let pid = told["mount"]["pid"].as_i64().expect("a number");
    let process = Pid::from_raw(pid as i32).expect("a process");
    kill_process(process, Signal::KILL).expect("it is there");
    let began = Instant::now();
    while options(&mounted.dir).is_some() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "it is mounted still"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    mounted.mount(&["-o", "auto_unmount"]);
    assert_eq!(std::fs::read(mounted.path("file")).expect("read"), b"kept");
    mounted.umount();
}
