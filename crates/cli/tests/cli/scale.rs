//! Many entries and deep trees through a mount.
//!
//! `VELLUM_ENTRIES` and `VELLUM_DEPTH` set the numbers; the defaults take seconds.

use std::fs::File;
use std::os::fd::OwnedFd;

use crate::support::{Bench, Mounted, has_fuse};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use vellum::Pool;

fn asked(variable: &str, default: usize) -> usize {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect(variable))
}

fn name(number: usize) -> String {
    format!("entry-{number:07}")
}

/// The numbers below `count`, in a scattered order.
fn jumping(count: usize) -> impl Iterator<Item = usize> {
    // A prime above any count, so that every number occurs once.
    (0..count).map(move |i| i * 1_000_000_007 % count)
}

/// Asserts that every name is listed once, and nothing else.
fn list_all(mounted: &Mounted, count: usize) {
    let mut seen = vec![false; count];
    for entry in mounted.path("many").read_dir().expect("a listing") {
        let name = entry.expect("an entry").file_name();
        let text = name.to_str().expect("a name");
        let number: usize = text.trim_start_matches("entry-").parse().expect(text);
        assert!(!std::mem::replace(&mut seen[number], true), "{text} twice");
    }
    assert_eq!(seen.iter().filter(|&&seen| !seen).count(), 0, "not listed");
}

/// A pool with space for many entries. It has no log, so that more of its space is metadata.
fn mounted(count: usize) -> Mounted {
    let bytes = count * 8192 + (64 << 20);
    Mounted::of(Bench::with_plain_pool(&bytes.to_string()), &[])
}

#[test]
fn many_entries_are_created() {
    if !has_fuse("many_entries_are_created") {
        return;
    }
    let count = asked("VELLUM_ENTRIES", 10_000);
    let mounted = mounted(count);
    std::fs::create_dir(mounted.path("many")).expect("made");
    for number in 0..count {
        File::create_new(mounted.path("many").join(name(number))).expect("made");
    }
    println!("created {count}");
    list_all(&mounted, count);
    mounted.umount();
    mounted.mount(&[]);
    list_all(&mounted, count);
    mounted.umount();
    println!("mounted again and listed");
}

#[test]
fn many_entries_are_found_and_removed() {
    if !has_fuse("many_entries_are_found_and_removed") {
        return;
    }
    let count = asked("VELLUM_ENTRIES", 10_000);
    let mounted = mounted(count);
    mounted.umount();
    let pool = Pool::open(mounted.bench.join("p.img")).expect("opened");
    let volume = pool.volume();
    volume.create_dir("/many").expect("made");
    for number in 0..count {
        let path = format!("/many/{}", name(number));
        drop(volume.create(path).expect("made"));
    }
    drop(volume);
    pool.close().expect("closed");
    println!("created {count} through the library");
    mounted.mount(&[]);
    let path = |number| mounted.path("many").join(name(number));
    for number in jumping(count) {
        assert_eq!(path(number).metadata().expect("attributes").len(), 0);
    }
    assert!(path(count).metadata().is_err());
    println!("looked at");
    for number in jumping(count) {
        std::fs::remove_file(path(number)).expect("removed");
    }
    list_all(&mounted, 0);
    std::fs::remove_dir(mounted.path("many")).expect("removed");
    mounted.umount();
    println!("removed");
}

#[test]
fn a_deep_tree() {
    if !has_fuse("a_deep_tree") {
        return;
    }
    let depth = asked("VELLUM_DEPTH", 1000);
    let mounted = Mounted::new("64M", &[]);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |at: &OwnedFd, name| rustix::fs::openat(at, name, flags, Mode::empty());
    let down = |at: &OwnedFd| open(at, "d").expect("opened");
    let top = rustix::fs::openat(CWD, &mounted.dir, flags, Mode::empty()).expect("opened");
    let mut at = top.try_clone().expect("a descriptor");
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).expect("made");
        at = down(&at);
    }
    let path = mounted.dir.join("d/".repeat(depth.min(1000)));
    std::fs::write(path.join("file"), "deep").expect("written");
    drop((at, top));
    mounted.umount();
    mounted.mount(&[]);
    assert_eq!(
        std::fs::read(path.join("file")).expect("read"),
        b"deep",
        "by its path"
    );
    assert_eq!(path.canonicalize().expect("a path"), path);
    std::fs::remove_file(path.join("file")).expect("removed");
    // From the bottom up, by `..`.
    let mut at = rustix::fs::openat(CWD, &mounted.dir, flags, Mode::empty()).expect("opened");
    for _ in 0..depth {
        at = down(&at);
    }
    for _ in 0..depth {
        at = open(&at, "..").expect("above");
        rustix::fs::unlinkat(&at, "d", AtFlags::REMOVEDIR).expect("removed");
    }
    drop(at);
    assert!(mounted.dir.read_dir().expect("listed").next().is_none());
    mounted.umount();
}
