//! Logged pools in files: the state after a kill, a close and an opening, and the effects of a
//! failing medium.

use std::path::{Path, PathBuf};

use vellum::media::{MediaChoice, MediaKind};
use vellum::reading::Rule;
use vellum::{CreateOptions, Error, MappingKind, Pool, PoolOptions};
use vellum_check::{Class, Options, check};

fn options() -> CreateOptions {
    CreateOptions::new(16 << 20)
        .media(MediaChoice::Logged)
        .mapping(MappingKind::Extent)
}

fn made(dir: &tempfile::TempDir) -> (PathBuf, Pool) {
    let path = dir.path().join("pool");
    let pool = options().create(&path).unwrap();
    (path, pool)
}

/// What a kill leaves: the file, without the process's memory.
fn copy_of(path: &Path, name: &str) -> PathBuf {
    let copy = path.with_file_name(name);
    std::fs::copy(path, &copy).unwrap();
    copy
}

/// Empties the log, and waits for any running checkpoint: a copy is not taken at one instant.
fn rest(pool: &Pool) {
    while pool.fs().checkpoint().unwrap() > 0 {}
}

fn open(path: &Path) -> Pool {
    Pool::open(path).unwrap()
}

#[track_caller]
fn assert_sound(path: &Path) {
    let report = check(&std::fs::File::open(path).unwrap(), Options::default());
    assert!(report.is_sound(), "{report}");
}

#[test]
fn what_was_synced_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pool) = made(&dir);
    assert_eq!(pool.fs().media_kind(), MediaKind::Logged);
    let volume = pool.volume();
    volume.create_dir("/d").unwrap();
    for number in 0..50 {
        volume
            .write(format!("/d/{number}"), vec![number; 5000])
            .unwrap();
    }
    volume.sync().unwrap();
    volume.write("/d/later", b"lost").unwrap();
    let copy = copy_of(&path, "copy");
    assert_sound(&copy);
    let reopened = open(&copy);
    assert!(!reopened.opened().was_clean);
    for number in 0..50 {
        let bytes = reopened.volume().read(format!("/d/{number}")).unwrap();
        assert_eq!(bytes, vec![number; 5000]);
    }
    let later = reopened.volume().read("/d/later");
    assert!(matches!(later, Err(Error::NotFound)), "this was not synced");
    reopened.close().unwrap();
    assert_sound(&copy);
}

#[test]
fn a_close_empties_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pool) = made(&dir);
    pool.volume().write("/f", vec![7; 100_000]).unwrap();
    pool.close().unwrap();
    assert_sound(&path);
    let pool = open(&path);
    assert!(pool.opened().was_clean);
    assert_eq!(pool.volume().read("/f").unwrap(), vec![7; 100_000]);
    drop(pool);
    let readonly = PoolOptions::new().read_only(true);
    let pool = readonly.open(&path).unwrap();
    assert_eq!(pool.volume().read("/f").unwrap(), vec![7; 100_000]);
}

#[test]
fn a_read_only_opening_overlays_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pool) = made(&dir);
    pool.volume().write("/f", vec![7; 100_000]).unwrap();
    pool.volume().sync().unwrap();
    let copy = copy_of(&path, "copy");
    let before = std::fs::read(&copy).unwrap();
    let readonly = PoolOptions::new().read_only(true);
    let read = readonly.open(&copy).unwrap();
    assert_eq!(read.volume().read("/f").unwrap(), vec![7; 100_000]);
    drop(read);
    assert!(
        before == std::fs::read(&copy).unwrap(),
        "the pool was written to"
    );
}

/// The log wraps around many times. Checkpoints make room in it, in the background, or in place
/// when an epoch finds no room.
#[test]
fn a_log_never_stays_full() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pool) = made(&dir);
    let log_bytes = pool.superblock().log_bytes;
    let volume = pool.volume();
    let mut written = 0;
    for round in 0u32.. {
        // At least 128 bytes each for inode and entry.
        for number in 0..40 {
            let name = format!("/{round}-{number}");
            volume.write(&name, b"x").unwrap();
            volume.remove_file(&name).unwrap();
        }
        volume.write("/last", round.to_le_bytes()).unwrap();
        volume.sync().unwrap();
        written += 40 * 256;
        if written > 3 * log_bytes {
            break;
        }
        if round % 50 == 0 {
            rest(&pool);
            let copy = copy_of(&path, "copy");
            assert_sound(&copy);
            let bytes = open(&copy).volume().read("/last").unwrap();
            assert_eq!(bytes, round.to_le_bytes());
        }
    }
    assert!(pool.fs().log_counts().unwrap().checkpoints > 2);
    pool.close().unwrap();
    assert_sound(&path);
}

/// Small writes are journaled in the record: if their own blocks did not reach the disk, every
/// opening gets them from the log.
#[test]
fn small_writes_are_journaled() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pool) = made(&dir);
    let geometry = pool.superblock().geometry();
    let before = pool.fs().log_counts().unwrap();
    pool.volume().write("/f", [0xA7; 9000]).unwrap();
    pool.volume().sync().unwrap();
    let after = pool.fs().log_counts().unwrap();
    assert_eq!(after.blocks - before.blocks, 3);
    let many = made(&tempfile::tempdir().unwrap()).1;
    many.volume().write("/f", [0xA7; 33 * 4096]).unwrap();
    many.volume().sync().unwrap();
    assert_eq!(many.fs().log_counts().unwrap().blocks, before.blocks);

    let copy = copy_of(&path, "copy");
    let mut bytes = std::fs::read(&copy).unwrap();
    // Excludes the last copy of the superblock, whose identity may have such bytes.
    let data = geometry.data_at as usize..geometry.last_copy_at as usize;
    let of_file = bytes[data].iter_mut().filter(|byte| **byte == 0xA7);
    assert_eq!(of_file.map(|byte| *byte = 0x11).count(), 9000);
    std::fs::write(&copy, &bytes).unwrap();
    let readonly = PoolOptions::new().read_only(true);
    let pool = readonly.open(&copy).unwrap();
    assert_eq!(pool.volume().read("/f").unwrap(), [0xA7; 9000]);
    let file = pool.volume().open("/f").unwrap();
    let view = file.view_by(0..9000, Rule::Mmu).unwrap();
    assert!(view.iter().all(|&byte| byte == 0xA7));
    drop(view);
    drop((file, pool));
    assert!(
        std::fs::read(&copy).unwrap() == bytes,
        "the pool was written to"
    );
    for _ in 0..2 {
        let pool = open(&copy);
        assert_eq!(pool.volume().read("/f").unwrap(), [0xA7; 9000]);
        pool.close().unwrap();
        assert_sound(&copy);
    }
}

/// Home must match its checksum. A pool whose home does not is reported, and refused for writing.
#[test]
fn a_home_that_changed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pool) = made(&dir);
    let geometry = pool.superblock().geometry();
    pool.volume().write("/f", b"whole").unwrap();
    pool.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // A free slot of a chunk in use: only the checksum covers it.
    let free = (geometry.meta_at as usize..).step_by(64);
    let free = free
        .into_iter()
        .find(|&at| bytes[at..at + 128].iter().all(|&b| b == 0));
    bytes[free.unwrap() + 70] ^= 1;
    std::fs::write(&path, &bytes).unwrap();

    let report = check(&bytes, Options::default());
    let classes: Vec<_> = report.findings.iter().map(|found| found.class).collect();
    assert_eq!(classes, [Class::HomeSum], "{report}");
    let opened = Pool::open(&path);
    assert!(matches!(opened, Err(Error::Refused { .. })), "{opened:?}");
    let read_only = PoolOptions::new().read_only(true);
    let pool = read_only.open(&path).unwrap();
    assert_eq!(pool.volume().read("/f").unwrap(), b"whole");
}

/// Freed blocks are held until that is durable, and yet a full pool has space once it is emptied.
#[test]
fn held_blocks_become_free_when_they_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    let (_path, pool) = made(&dir);
    let volume = pool.volume();
    let free = pool.fs().stat_fs().blocks_free;
    let most = vec![1; free as usize * 4096 * 9 / 10];
    for _ in 0..5 {
        volume.write("/f", &most).unwrap();
        volume.remove_file("/f").unwrap();
    }
    volume.write("/f", &most).unwrap();
    assert!(volume.read("/f").unwrap() == most);
}

#[test]
fn threads_commit_concurrently() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pool) = made(&dir);
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let volume = pool.volume();
            scope.spawn(move || {
                for number in 0..60 {
                    let name = format!("/{thread}-{number}");
                    volume.write(&name, vec![thread; 3000]).unwrap();
                    if number % 3 == 0 {
                        volume.remove_file(&name).unwrap();
                    }
                    volume.sync().unwrap();
                }
            });
        }
    });
    let counts = pool.fs().log_counts().unwrap();
    assert!(counts.answered >= 3 * 60, "{counts:?}");
    rest(&pool);
    let copy = copy_of(&path, "copy");
    assert_sound(&copy);
    let names = open(&copy).volume().read_dir("/").unwrap().count();
    assert_eq!(names, 3 * 40);
}

/// A sequential reader of a file that is not in memory must not wait for a sample of it. The
/// directory for temporary files must lie on a disk.
#[test]
fn reading_costs_are_not_measured_on_a_disk() {
    const BYTES: usize = 40 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let options = CreateOptions::new(64 << 20).media(MediaChoice::Logged);
    let pool = options.create(&path).unwrap();
    pool.volume().write("/f", vec![7; BYTES]).unwrap();
    pool.close().unwrap();
    let file = std::fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let pool = open(&path);
    let file = pool.volume().open("/f").unwrap();
    let mut page = [0; 4096];
    let mut read_much = || {
        for _ in 0..10_000 {
            file.read_at(&mut page, 0).unwrap();
        }
    };
    read_much();
    assert!(!pool.fs().knows_read_costs(), "most of it was read");
    assert!(pool.volume().read("/f").unwrap() == vec![7; BYTES]);
    let is_known = || {
        read_much();
        pool.fs().knows_read_costs()
    };
    // The kernel may have evicted a page of a sample.
    assert!(std::iter::repeat_with(is_known).take(10).any(|known| known));
}
