//! Snapshots: copies of pools at one instant, while the pools are in use.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vellum::media::MediaChoice;
use vellum::{
    Allocate, CopyError, CopyScope, CreateOptions, Error, MappingKind, NamespaceKind, Pool,
    PoolOptions,
};
use vellum_check::{Options, check};

use crate::fixture;

const MIB: u64 = 1 << 20;
const MEDIA: [MediaChoice; 3] = [MediaChoice::Logged, MediaChoice::File, MediaChoice::Memory];

fn dir_for(media: MediaChoice) -> tempfile::TempDir {
    match media {
        MediaChoice::Memory => fixture::in_memory(),
        _ => tempfile::tempdir().unwrap(),
    }
}

fn options(media: MediaChoice) -> CreateOptions {
    CreateOptions::new(32 * MIB).media(media)
}

fn copied(pool: &Pool, to: &Path) -> vellum::Copied {
    pool.fs()
        .snapshot(to, &|done, all| assert!(done <= all))
        .unwrap()
}

#[track_caller]
fn assert_sound(path: &Path) {
    let report = check(&File::open(path).unwrap(), Options::default());
    assert!(report.is_sound(), "{report}");
}

/// Opens a copy, which is sound before and afterwards.
fn opened(copy: &Path, media: MediaChoice) -> Pool {
    assert_sound(copy);
    let media = match media {
        MediaChoice::Logged => MediaChoice::Auto,
        media => media,
    };
    PoolOptions::new().media(media).open(copy).unwrap()
}

fn close(pool: Pool, path: &Path) {
    pool.close().unwrap();
    assert_sound(path);
}

#[test]
fn a_copy_has_what_was_done_before_and_nothing_that_was_done_later() {
    for media in MEDIA {
        for mapping in MappingKind::ALL {
            let dir = dir_for(media);
            let copy = dir.path().join("copy");
            let made = options(media)
                .mapping(mapping)
                .create(dir.path().join("pool"));
            let pool = made.unwrap();
            let volume = pool.volume();
            volume.create_dir_all("/d/e").unwrap();
            volume.write("/d/e/f", vec![7; 3 << 20]).unwrap();
            volume.write("/gone", vec![8; 5 << 20]).unwrap();
            volume.remove_file("/gone").unwrap();
            let copied = copied(&pool, &copy);
            volume.write("/d/e/f", vec![9; 3 << 20]).unwrap();
            volume.create_dir("/later").unwrap();
            assert!(
                copied.bytes < 11 * MIB,
                "{mapping:?} on {media:?}: {copied:?}"
            );
            let found = std::fs::metadata(&copy).unwrap();
            assert_eq!(found.len(), 32 * MIB);
            assert!(found.blocks() * 512 < 12 * MIB, "{mapping:?} on {media:?}");
            pool.close().unwrap();

            let pool = opened(&copy, media);
            let volume = pool.volume();
            assert_eq!(volume.read("/d/e/f").unwrap(), vec![7; 3 << 20]);
            assert!(matches!(volume.read("/gone"), Err(Error::NotFound)));
            assert!(matches!(volume.read("/later"), Err(Error::NotFound)));
            volume.write("/new", vec![1; 1 << 20]).unwrap();
            close(pool, &copy);
        }
    }
}

/// Every way to change a block that is still to be copied keeps its old bytes for the copy.
#[test]
fn a_block_that_changes_before_its_turn_is_copied_as_it_was() {
    for media in MEDIA {
        for mapping in MappingKind::ALL {
            let is_direct = media == MediaChoice::Logged && mapping == MappingKind::Extent;
            let dir = dir_for(media);
            let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
            let made = options(media).mapping(mapping).sparse(true).create(&path);
            made.unwrap().close().unwrap();
            let open = PoolOptions::new().media(match media {
                MediaChoice::Logged => MediaChoice::Auto,
                media => media,
            });
            let pool = open.direct(is_direct).open(&path).unwrap();
            let volume = pool.volume();
            let files = ["overwritten", "removed", "cut", "punched"];
            for file in files {
                volume.write(format!("/{file}"), vec![7; 2 << 20]).unwrap();
            }
            let is_first = AtomicBool::new(true);
            let made = pool.fs().snapshot(&copy, &|_, _| {
                if is_first.swap(false, Ordering::Relaxed) {
                    change_all(&pool);
                }
            });
            made.unwrap();
            assert!(!is_first.load(Ordering::Relaxed));
            close(pool, &path);
            let pool = opened(&copy, media);
            for file in files {
                let read = pool.volume().read(format!("/{file}")).unwrap();
                assert!(read == vec![7; 2 << 20], "{file}, {mapping:?} on {media:?}");
            }
            assert!(matches!(pool.volume().read("/new"), Err(Error::NotFound)));
            close(pool, &copy);
        }
    }
}

/// Changes the bytes of all files, and of the blocks that they had.
fn change_all(pool: &Pool) {
    let volume = pool.volume();
    let file = volume.open_with("/overwritten", &overwriting()).unwrap();
    file.write_all_at(&vec![8; 1 << 20], 0).unwrap();
    (256..512).for_each(|block| file.write_all_at(&[9; 100], block * 4096 + 50).unwrap());
    volume.remove_file("/removed").unwrap();
    let file = volume.open_with("/cut", &overwriting()).unwrap();
    file.set_len(5000).unwrap();
    let file = volume.open_with("/punched", &overwriting()).unwrap();
    let punched = file.handle().allocate(Allocate::PunchHole, 100, 1 << 20);
    punched.unwrap();
    volume.sync().unwrap();
    pool.fs().trim(0, &|_, _| {}).unwrap();
    volume.write("/new", vec![10; 6 << 20]).unwrap();
}

/// Changes files so that each has the number of the round, the first ones first, and so that one
/// of two names exists.
fn change(pool: &Pool, of: u64, round: u64) {
    let volume = pool.volume();
    let bytes = |len: usize| round.to_le_bytes().repeat(len / 8);
    for part in ["first", "second"] {
        let file = volume
            .open_with(format!("/{of}/{part}"), &overwriting())
            .unwrap();
        file.write_all_at(&bytes(20_000), 0).unwrap();
    }
    volume.write(format!("/{of}/new"), bytes(8)).unwrap();
    volume
        .rename(format!("/{of}/new"), format!("/{of}/renamed"))
        .unwrap();
    volume.create_dir(format!("/{of}/{}", round + 1)).unwrap();
    volume.remove_dir(format!("/{of}/{round}")).unwrap();
}

fn overwriting() -> vellum::OpenOptions {
    vellum::OpenOptions::new().write(true).create(true)
}

fn number(bytes: &[u8]) -> u64 {
    let (numbers, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty() && numbers.iter().all(|number| number == &numbers[0]));
    u64::from_le_bytes(numbers[0])
}

/// Looks for what [`change`] leaves at one instant at or after `round`.
fn assert_at_an_instant(pool: &Pool, of: u64, round: u64) {
    let volume = pool.volume();
    let read = |name: &str| number(&volume.read(format!("/{of}/{name}")).unwrap());
    let [first, second, renamed] = ["first", "second", "renamed"].map(read);
    assert!(first >= round, "{first}, and {round} was done before");
    assert!(first == second || first == second + 1, "{first}, {second}");
    assert!(
        second == renamed || second == renamed + 1,
        "{second}, {renamed}"
    );
    let dirs = volume.read_dir(format!("/{of}")).unwrap();
    let dirs = dirs.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir());
    assert!((1..=2).contains(&dirs.count()));
}

fn copy_under_load(media: MediaChoice, namespace: NamespaceKind, mapping: MappingKind) {
    const WRITERS: u64 = 2;
    let dir = dir_for(media);
    let made = options(media).namespace(namespace).mapping(mapping);
    let pool = made.create(dir.path().join("pool")).unwrap();
    for of in 0..WRITERS {
        pool.volume().create_dir_all(format!("/{of}/0")).unwrap();
        change(&pool, of, 0);
    }
    let is_over = AtomicBool::new(false);
    let done = [const { AtomicU64::new(0) }; WRITERS as usize];
    let copies: Vec<(PathBuf, Vec<u64>)> = std::thread::scope(|scope| {
        for of in 0..WRITERS {
            let (pool, is_over, done) = (&pool, &is_over, &done[of as usize]);
            scope.spawn(move || {
                let mut round = 1;
                while !is_over.load(Ordering::Relaxed) {
                    change(pool, of, round);
                    done.store(round, Ordering::SeqCst);
                    round += 1;
                }
            });
        }
        let copies = (0..4).map(|number| {
            let before = done.each_ref().map(|round| round.load(Ordering::SeqCst));
            let copy = dir.path().join(format!("copy{number}"));
            copied(&pool, &copy);
            (copy, before.to_vec())
        });
        let copies = copies.collect();
        is_over.store(true, Ordering::Relaxed);
        copies
    });
    close(pool, &dir.path().join("pool"));
    for (copy, before) in copies {
        let pool = opened(&copy, media);
        for (of, round) in (0..WRITERS).zip(before) {
            assert_at_an_instant(&pool, of, round);
            pool.volume()
                .write(format!("/{of}/after"), [1; 9000])
                .unwrap();
        }
        close(pool, &copy);
    }
}

#[test]
fn a_copy_under_load_is_of_one_instant() {
    for media in MEDIA {
        copy_under_load(media, NamespaceKind::Direct, MappingKind::HashFs);
    }
    for mapping in MappingKind::ALL {
        copy_under_load(MediaChoice::Logged, NamespaceKind::Direct, mapping);
    }
    for namespace in [NamespaceKind::Adaptive, NamespaceKind::Tree] {
        copy_under_load(MediaChoice::Memory, namespace, MappingKind::Extent);
    }
}

#[test]
fn a_pool_that_is_read_only_is_copied_as_it_is() {
    for media in MEDIA {
        let dir = dir_for(media);
        let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
        let pool = options(media).create(&path).unwrap();
        pool.volume().write("/f", b"text").unwrap();
        pool.close().unwrap();
        let read_only = PoolOptions::new().read_only(true).open(&path).unwrap();
        copied(&read_only, &copy);
        drop(read_only);
        let pool = opened(&copy, media);
        assert_eq!(pool.volume().read("/f").unwrap(), b"text");
        close(pool, &copy);
    }
}

#[test]
fn a_pool_grows_while_it_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let pool = options(MediaChoice::Logged)
        .create(dir.path().join("pool"))
        .unwrap();
    pool.fs().grow(40 * MIB).unwrap();
    pool.volume().write("/f", vec![7; 30 << 20]).unwrap();
    let has_grown = AtomicBool::new(false);
    let copy_and_grow = pool.fs().snapshot(&copy, &|_, _| {
        if !has_grown.swap(true, Ordering::Relaxed) {
            pool.fs().grow(64 * MIB).unwrap();
            pool.volume().write("/g", vec![8; 20 << 20]).unwrap();
        }
    });
    assert_eq!(copy_and_grow.unwrap().pool_bytes, 40 * MIB);
    let pool = opened(&copy, MediaChoice::Logged);
    assert_eq!(pool.volume().read("/f").unwrap(), vec![7; 30 << 20]);
    assert!(pool.volume().read("/g").is_err());
    close(pool, &copy);
}

#[test]
fn a_copy_of_one_dataset_is_a_pool_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    options(MediaChoice::Logged)
        .create(&path)
        .unwrap()
        .close()
        .unwrap();
    let named = dir.path().join("pool:other");
    Pool::add_dataset(&path, "other", &options(MediaChoice::Logged)).unwrap();
    for (place, text) in [(&path, "main"), (&named, "other")] {
        let pool = Pool::open(place).unwrap();
        pool.volume().write("/f", text).unwrap();
        let copy = dir.path().join(text);
        copied(&pool, &copy);
        pool.close().unwrap();
        assert_eq!(Pool::datasets(&copy).unwrap().len(), 1);
        let pool = opened(&copy, MediaChoice::Logged);
        assert_eq!(pool.volume().read_to_string("/f").unwrap(), text);
        close(pool, &copy);
    }
}

#[test]
fn one_copy_is_made_at_a_time_and_ends_when_nobody_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::memory(32 * MIB).unwrap();
    let fs = pool.fs();
    let file = || tempfile::tempfile().unwrap();
    let stopped = fs.copy_into(CopyScope::Whole, &file(), &|_, _| {
        let second = fs.snapshot(dir.path().join("second"), &|_, _| {});
        assert!(matches!(second, Err(Error::Copy(CopyError::Running))));
        false
    });
    assert!(matches!(stopped, Err(Error::Copy(CopyError::Stopped))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    copied(&pool, &dir.path().join("third"));
}

#[test]
fn a_copy_that_a_close_overtakes_fails() {
    let mut pool = Some(Pool::memory(32 * MIB).unwrap());
    let fs = pool.as_ref().unwrap().fs();
    let pool = std::sync::Mutex::new(pool.take());
    let copy = fs.copy_into(CopyScope::Whole, &tempfile::tempfile().unwrap(), &|_, _| {
        drop(pool.lock().unwrap().take());
        true
    });
    assert!(matches!(copy, Err(Error::Closed)), "{copy:?}");
}

#[test]
fn a_pool_with_data_elsewhere_is_refused_but_its_metadata_are_copied() {
    let dir = fixture::in_memory();
    let (_, pool) = fixture::made(dir.path());
    let copy = dir.path().join("copy");
    let refused = pool.fs().snapshot(&copy, &|_, _| {});
    assert!(matches!(refused, Err(Error::Copy(CopyError::ExternalData))));
    assert!(!copy.exists());
    pool.volume().write("/f", vec![7; 100_000]).unwrap();
    let file = File::create_new(&copy).unwrap();
    pool.fs()
        .copy_into(CopyScope::Metadata, &file, &|_, _| true)
        .unwrap();
    assert_sound(&copy);
}

#[test]
fn bytes_that_are_lost_are_never_copied_as_zeros() {
    for media in MEDIA {
        let dir = dir_for(media);
        let copy = dir.path().join("copy");
        let pool = options(media).create(dir.path().join("pool")).unwrap();
        pool.volume().write("/f", vec![7; 1 << 20]).unwrap();
        let fs = pool.fs();
        let at = fs.superblock().geometry().live_map_at;
        fs.take_away(at).unwrap();
        let refused = fs.snapshot(&copy, &|_, _| {}).map(|copied| copied.bytes);
        assert!(matches!(refused, Err(Error::Unreadable(_))), "{refused:?}");
        assert!(!copy.exists());
        let file = tempfile::tempfile().unwrap();
        let copied = fs.copy_into(CopyScope::Metadata, &file, &|_, _| true);
        assert_eq!(copied.unwrap().unreadable, [at], "{media:?}");
    }
}
