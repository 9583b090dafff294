//! Pools that take space as they use it, and give it back.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use vellum::media::MediaChoice;
use vellum::{CreateOptions, Error, MappingKind, Pool, PoolOptions};

use crate::fixture::bytes_of;

const MIB: u64 = 1 << 20;

fn media() -> [(tempfile::TempDir, MediaChoice); 3] {
    let on_disk = || tempfile::tempdir().unwrap();
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    [
        (on_disk(), MediaChoice::Logged),
        (on_disk(), MediaChoice::File),
        (in_memory, MediaChoice::Memory),
    ]
}

fn made(dir: &Path, media: MediaChoice, mapping: MappingKind) -> (PathBuf, Pool) {
    let path = dir.join("pool");
    let options = CreateOptions::new(256 * MIB).media(media).mapping(mapping);
    options.sparse(true).create(&path).unwrap().close().unwrap();
    let pool = reopened(&path, media);
    (path, pool)
}

fn reopened(path: &Path, media: MediaChoice) -> Pool {
    let media = match media {
        MediaChoice::Logged => MediaChoice::Auto,
        media => media,
    };
    PoolOptions::new().media(media).open(path).unwrap()
}

fn taken(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn space_comes_with_use_and_goes_with_a_trim() {
    for mapping in MappingKind::ALL {
        for (dir, media) in media() {
            let (path, pool) = made(dir.path(), media, mapping);
            let of = format!("{mapping:?} on {media:?}");
            let empty = taken(&path);
            assert!(empty < 64 * MIB, "{of}: {empty}");
            let volume = pool.volume();
            (0..8).for_each(|file| {
                volume
                    .write(format!("/{file}"), bytes_of(file, 4 * MIB))
                    .unwrap()
            });
            pool.fs().sync().unwrap();
            let full = taken(&path);
            assert!(
                (32 * MIB..64 * MIB).contains(&(full - empty)),
                "{of}: {empty} {full}"
            );
            (0..7).for_each(|file| volume.remove_file(format!("/{file}")).unwrap());
            let trimmed = pool.fs().trim(0, &|_, _| {}).unwrap();
            assert!(trimmed >= 28 * MIB, "{of}: {trimmed}");
            let left = taken(&path);
            assert!(left < empty + 8 * MIB, "{of}: {empty} {full} {left}");
            assert!(volume.read("/7").unwrap() == bytes_of(7, 4 * MIB), "{of}");
            volume.write("/again", bytes_of(9, 8 * MIB)).unwrap();
            drop(volume);
            pool.close().unwrap();
            let pool = reopened(&path, media);
            assert!(pool.opened().was_clean, "{of}");
            assert!(
                pool.volume().read("/again").unwrap() == bytes_of(9, 8 * MIB),
                "{of}"
            );
            assert!(
                pool.volume().read("/7").unwrap() == bytes_of(7, 4 * MIB),
                "{of}"
            );
        }
    }
}

#[test]
fn threads_write_while_the_pool_is_trimmed() {
    for mapping in [MappingKind::HashFs, MappingKind::Extent, MappingKind::Radix] {
        for (dir, media) in media() {
            let (_, pool) = made(dir.path(), media, mapping);
            let (pool, ends) = (&pool, &AtomicBool::new(false));
            std::thread::scope(|scope| {
                for thread in 0..3u64 {
                    scope.spawn(move || {
                        let (volume, mut number) = (pool.volume(), 0);
                        while !ends.load(Ordering::Relaxed) {
                            let name = format!("/{thread}-{}", number % 4);
                            let bytes = bytes_of(thread * 100 + number, MIB);
                            volume.write(&name, &bytes).unwrap();
                            assert!(volume.read(&name).unwrap() == bytes, "{mapping:?}");
                            number += 1;
                        }
                    });
                }
                (0..6).for_each(|_| _ = pool.fs().trim(0, &|_, _| {}).unwrap());
                ends.store(true, Ordering::Relaxed);
            });
        }
    }
}

#[test]
fn a_sparse_pool_grows_without_taking_space() {
    for (dir, media) in media() {
        let (path, pool) = made(dir.path(), media, MappingKind::Extent);
        let before = taken(&path);
        pool.grow(1 << 30).unwrap();
        assert!(taken(&path) <= before + MIB);
        pool.volume().write("/f", bytes_of(1, 4 * MIB)).unwrap();
        assert!(pool.volume().read("/f").unwrap() == bytes_of(1, 4 * MIB));
    }
}

#[test]
fn other_pools_are_not_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = CreateOptions::new(16 * MIB).create(&path).unwrap();
    let before = taken(&path);
    let refused = pool.fs().trim(0, &|_, _| {});
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    assert_eq!(taken(&path), before);
}
