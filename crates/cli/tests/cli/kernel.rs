//! A mount through system calls.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use crate::support::{Bench, Mounted, has_fuse};

const FILES: usize = 100;

/// Runs `for entry in scandir(dir): rename(entry, "x" + entry)`. Returns the number of renames.
fn rename_each(dir: &Path) -> usize {
    let mut renamed = 0;
    for entry in dir.read_dir().expect("opened") {
        let entry = entry.expect("listed");
        let name = entry.file_name().into_string().expect("UTF-8");
        std::fs::rename(entry.path(), dir.join(format!("x{name}"))).expect("renamed");
        renamed += 1;
    }
    renamed
}

#[test]
fn renaming_each_name_of_a_listing_ends() {
    if !has_fuse("renaming_each_name_of_a_listing_ends") {
        return;
    }
    for namespace in ["direct", "adaptive", "tree"] {
        let bench = Bench::empty();
        let namespace = format!("namespace={namespace}");
        let made = ["mkfs", "p.img", "--size", "32M", "-O", &namespace];
        bench.run(&made).ok();
        let mounted = Mounted::of(bench, &[]);
        let dir = mounted.path("d");
        std::fs::create_dir(&dir).expect("made");
        for number in 0..FILES {
            std::fs::write(dir.join(number.to_string()), "").expect("written");
        }
        assert_eq!(rename_each(&dir), FILES, "{namespace}");
        mounted.umount();
    }
}

fn set_atime(path: &Path, seconds: i64) {
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps {
        last_access: time(seconds),
        last_modification: time(1_000_000),
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).expect("times set");
}

/// Whether a listing, and a read that no cache answers, update access times that are older than all
/// other times.
fn moves_times(options: &str) -> [bool; 2] {
    let mounted = Mounted::new("64M", &["-o", options]);
    let (dir, file) = (mounted.path("dir"), mounted.path("dir/file"));
    std::fs::create_dir(&dir).expect("made");
    std::fs::write(&file, "content").expect("written");
    for path in [&dir, &file] {
        set_atime(path, 1000);
    }
    let _ = dir.read_dir().expect("opened").count();
    // A direct read: the mount gets no request for a read from the kernel's pages.
    let direct = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let opened = rustix::fs::open(&file, direct, rustix::fs::Mode::empty()).expect("opened");
    rustix::io::pread(&opened, &mut [0; 4096], 0).expect("read");
    drop(opened);
    let moved = [&dir, &file].map(|path| path.metadata().expect("attributes").atime() != 1000);
    mounted.umount();
    moved
}

#[test]
fn access_times_follow_the_options() {
    if !has_fuse("access_times_follow_the_options") {
        return;
    }
    let cases = [
        ("relatime", [true, true]),
        ("strictatime,lazytime", [true, true]),
        ("nodiratime", [false, true]),
        ("noatime", [false, false]),
    ];
    for (options, expected) in cases {
        assert_eq!(moves_times(options), expected, "{options}");
    }
}

#[test]
fn a_chown_without_changes_updates_the_change_time() {
    if !has_fuse("a_chown_without_changes_updates_the_change_time") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    let file = mounted.path("file");
    std::fs::write(&file, "").expect("written");
    let ctime = || {
        let attributes = file.metadata().expect("attributes");
        (attributes.ctime(), attributes.ctime_nsec())
    };
    let before = ctime();
    rustix::fs::chown(&file, None, None).expect("changed");
    assert!(ctime() > before, "as with chown(path, -1, -1) elsewhere");
    mounted.umount();
}
