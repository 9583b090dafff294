//! The command as a helper of mount(8), fstab and libfuse.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Bench, Did, Mounted, PATIENCE, done, has_fuse, kill};

const PROGRAM: &str = env!("CARGO_BIN_EXE_vellum");
/// The names of this program as a helper.
const HELPERS: [&str; 7] = [
    "mount.vellum",
    "mount.fuse.vellum",
    "umount.vellum",
    "umount.fuse.vellum",
    "mkfs.vellum",
    "fsck.vellum",
    "fsck.fuse.vellum",
];
/// The path of libfuse's helper.
const OF_LIBFUSE: &str = "/sbin/mount.fuse3";

/// A pool that is not mounted, and links to the program.
fn unmounted() -> Mounted {
    let mounted = Mounted::not_yet(Bench::with_pool("4M"));
    for name in ["vellum"].iter().chain(&HELPERS) {
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

/// Unmounts by the system call, as umount(8) does. A mount may be busy for a moment after it began.
fn by_the_kernel(dir: &Path) {
    let began = Instant::now();
    while let Err(errno) = unmount(dir, UnmountFlags::empty()) {
        assert_eq!(errno, Errno::BUSY);
        assert!(began.elapsed() < PATIENCE, "it is busy still");
        std::thread::sleep(Duration::from_millis(5));
    }
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
        run(&mounted, name, &["no.img", "mnt", "-o", "rw,nofail"]).ok();
        assert_eq!(options(&mounted.dir), None);
        run(&mounted, name, &["p.img"]).failed(1, &["DIR"]);
    }
}

#[test]
fn umount_returns_when_the_pool_is_closed() {
    if !has_fuse("umount_returns_when_the_pool_is_closed") {
        return;
    }
    let mounted = unmounted();
    for name in ["./umount.vellum", "./umount.fuse.vellum"] {
        mounted.mount(&[]);
        run(&mounted, name, &["mnt", "-n", "-t", "fuse.vellum"]).ok();
        mounted.bench.sound();
        run(&mounted, name, &["mnt"]).failed(32, &["mnt"]);
        run(&mounted, name, &["-x", "mnt"]).failed(1, &["-x"]);
        mounted.mount(&[]);
        let open = File::create(mounted.path("file")).expect("created");
        run(&mounted, name, &["mnt"]).failed(32, &["in use"]);
        run(&mounted, name, &["mnt", "-l"]).ok();
        assert_eq!(options(&mounted.dir), None);
        drop(open);
        mounted.bench.sound();
    }
}

#[test]
fn a_pool_opens_although_its_mount_has_just_ended() {
    if !has_fuse("a_pool_opens_although_its_mount_has_just_ended")
        || !rustix::process::geteuid().is_root()
    {
        return;
    }
    let mounted = unmounted();
    for _ in 0..5 {
        mounted.mount(&[]);
        by_the_kernel(&mounted.dir);
        mounted.mount(&[]);
        by_the_kernel(&mounted.dir);
        mounted.bench.sound();
        mounted.mount(&[]);
        by_the_kernel(&mounted.dir);
        mounted.bench.run(&["info", "p.img"]).ok();
    }
}

#[test]
fn remount_changes_the_flags_of_a_mount() {
    if !has_fuse("remount_changes_the_flags_of_a_mount") || !rustix::process::geteuid().is_root() {
        return;
    }
    let mounted = unmounted();
    let remount = |options: &str| {
        let options = format!("remount,{options},user_id=0,group_id=0");
        let words = ["p.img", "mnt", "-o", &options, "-t", "fuse.vellum"];
        run(&mounted, "./mount.fuse.vellum", &words)
    };
    remount("ro").failed(32, &["mnt"]);
    mounted.mount(&[]);
    std::fs::write(mounted.path("file"), "kept").expect("written");
    remount("ro,noexec").ok();
    has(&mounted.dir, &["ro", "noexec", "!nosuid"]);
    let refused = std::fs::write(mounted.path("file"), "lost").expect_err("read-only");
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::ROFS));
    let told = mounted.bench.run(&["info", "--json", "mnt"]).ok().out;
    assert!(told.contains("\"read_only\": true"), "{told}");
    remount("rw,nosuid").ok();
    has(&mounted.dir, &["rw", "!noexec", "nosuid"]);
    let open = File::create(mounted.path("open")).expect("created");
    remount("ro").failed(32, &["open for writing"]);
    drop(open);
    mounted.umount();
    mounted.mount(&["-o", "ro"]);
    remount("rw").failed(32, &["for reading only", "vellum umount"]);
    has(&mounted.dir, &["ro"]);
    mounted.umount();
}

#[test]
fn fsck_has_the_options_that_are_given_at_boot() {
    let bench = unmounted();
    for name in ["./fsck.vellum", "./fsck.fuse.vellum"] {
        let fsck = |args: &[&str]| run(&bench, name, args);
        let did = fsck(&["-a", "-T", "-C0", "p.img"]).ok();
        assert!(did.out.contains("closed cleanly, not checked"), "{did:?}");
        let did = fsck(&["-p", "-f", "p.img"]).ok();
        assert!(did.out.contains("sound"), "{did:?}");
        fsck(&["-fy", "-C", "0", "p.img"]).ok();
        fsck(&["-n", "p.img"]).ok();
        fsck(&["-V"]).ok();
        fsck(&["-a", "-n", "p.img"]).failed(16, &["--dry-run"]);
        fsck(&["-z", "p.img"]).failed(16, &["-z"]);
        fsck(&["-a"]).failed(16, &["POOL"]);
        fsck(&["-a", "no.img"]).failed(8, &["no.img"]);
    }
    if has_fuse("fsck_has_the_options_that_are_given_at_boot") {
        bench.mount(&[]);
        run(&bench, "./fsck.vellum", &["-a", "p.img"]).failed(8, &["in use"]);
        kill(&bench);
        let did = run(&bench, "./fsck.vellum", &["-a", "p.img"]).ok();
        assert!(!did.out.contains("not checked"), "{did:?}");
    }
    let pool = OpenOptions::new()
        .write(true)
        .open(bench.bench.join("p.img"));
    let damage = pool.and_then(|pool| pool.write_all_at(&[0xA5; 4096], 4096));
    damage.expect("written");
    run(&bench, "./fsck.vellum", &["-f", "-n", "p.img"]).failed(4, &[]);
    run(&bench, "./fsck.vellum", &["-af", "p.img"]).failed(1, &[]);
    run(&bench, "./fsck.vellum", &["-af", "p.img"]).ok();
}

#[test]
fn mkfs_takes_the_size_behind_the_pool() {
    let bench = unmounted();
    run(&bench, "./mkfs.vellum", &["-q", "-L", "x", "a.img", "4M"]).ok();
    run(&bench, "./mkfs.vellum", &["-q", "b.img", "4096"]).ok();
    for made in ["a.img", "b.img"] {
        let len = std::fs::metadata(bench.bench.join(made))
            .expect("made")
            .len();
        assert_eq!(len, 4 << 20);
    }
    run(&bench, "./mkfs.vellum", &["c.img", "4X"]).failed(2, &["4X"]);
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
