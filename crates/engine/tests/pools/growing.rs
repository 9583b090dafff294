//! Pools that grow while they are in use.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use vellum::media::MediaChoice;
use vellum::{
    CreateOptions, DataOptions, Error, MappingKind, NamespaceKind, Pool, PoolOptions, ResizeError,
};

use crate::fixture::{FILE_BYTES, bytes_of, fill, has_files};
use vellum_layout::ChunkWord;

const MIB: u64 = 1 << 20;

const GROWING: [MappingKind; 4] = [
    MappingKind::HashFs,
    MappingKind::Radix,
    MappingKind::Extent,
    MappingKind::ExtentCached,
];

fn media() -> [(tempfile::TempDir, MediaChoice); 3] {
    let on_disk = || tempfile::tempdir().unwrap();
    [
        (on_disk(), MediaChoice::Logged),
        (on_disk(), MediaChoice::File),
        (
            tempfile::tempdir_in("/dev/shm").unwrap(),
            MediaChoice::Memory,
        ),
    ]
}

fn made(dir: &Path, options: CreateOptions) -> PathBuf {
    let path = dir.join("pool");
    options.create(&path).unwrap().close().unwrap();
    path
}

fn options_of(media: MediaChoice) -> PoolOptions {
    PoolOptions::new().media(match media {
        MediaChoice::Logged => MediaChoice::Auto,
        media => media,
    })
}

#[track_caller]
fn refusal(grown: Result<u64, Error>) -> ResizeError {
    match grown {
        Err(Error::Resize(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_pool_has_room_again_while_its_files_are_open() {
    for mapping in GROWING {
        for (dir, media) in media() {
            let path = made(
                dir.path(),
                CreateOptions::new(16 * MIB).media(media).mapping(mapping),
            );
            let pool = options_of(media).open(&path).unwrap();
            let files = fill(&pool, 0);
            let file = pool.volume().open("/0").unwrap();
            let before = pool.fs().stat_fs();
            assert_eq!(pool.grow(28 * MIB).unwrap(), 28 * MIB);
            let after = pool.fs().stat_fs();
            let added = after.blocks - before.blocks;
            assert!(
                (12 * MIB / 4096..12 * MIB / 4096 + 8).contains(&added),
                "{added}"
            );
            assert_eq!(after.blocks_free - before.blocks_free, added);
            let more = fill(&pool, files);
            assert!(
                more >= files + 11,
                "{mapping:?} on {media:?}: {files}, then {more}"
            );
            assert_eq!(file.metadata().unwrap().len(), FILE_BYTES);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 28 * MIB);
            has_files(&pool, more);
            drop(file);
            pool.close().unwrap();
            let pool = options_of(media).open(&path).unwrap();
            assert!(pool.opened().was_clean);
            assert_eq!(pool.fs().stat_fs().blocks, after.blocks);
            has_files(&pool, more);
        }
    }
}

#[test]
fn a_pool_grows_again_and_again() {
    for mapping in GROWING {
        for (dir, media) in media() {
            let path = made(
                dir.path(),
                CreateOptions::new(8 * MIB).media(media).mapping(mapping),
            );
            let (mut files, mut bytes) = (0, 8 * MIB);
            // Odd sizes, and two growths in each opening.
            for step in 0..3 {
                let pool = options_of(media).open(&path).unwrap();
                for part in 0..2 {
                    files = fill(&pool, files);
                    bytes += MIB + (step * 2 + part) * 4096;
                    assert_eq!(pool.grow(bytes + 17).unwrap(), bytes);
                }
                pool.close().unwrap();
            }
            let pool = options_of(media).open(&path).unwrap();
            let files = fill(&pool, files);
            assert!(files >= 8 + 6 - 3, "{files}");
            has_files(&pool, files);
            assert_eq!(pool.superblock().pool_bytes, bytes);
        }
    }
}

#[test]
fn every_namespace_grows() {
    for namespace in NamespaceKind::ALL {
        for (dir, media) in media() {
            let options = CreateOptions::new(8 * MIB)
                .media(media)
                .namespace(namespace);
            let path = made(dir.path(), options);
            let pool = options_of(media).open(&path).unwrap();
            let files = fill(&pool, 0);
            pool.grow(12 * MIB).unwrap();
            assert!(fill(&pool, files) >= files + 3);
        }
    }
}

/// Small appends are journaled, so records name the new blocks.
#[test]
fn the_log_of_a_grown_pool_goes_round() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions::new(8 * MIB).media(MediaChoice::Logged);
    let pool = Pool::open(made(dir.path(), options)).unwrap();
    let files = fill(&pool, 0);
    pool.grow(16 * MIB).unwrap();
    let record_bytes = 4096 * 3;
    for number in 0..2 * pool.superblock().log_bytes / record_bytes {
        let file = pool
            .volume()
            .create(format!("/small{}", number % 8))
            .unwrap();
        file.write_all_at(&[number as u8; 4000], 0).unwrap();
        file.sync_all().unwrap();
    }
    has_files(&pool, files);
    pool.close().unwrap();
    assert!(
        Pool::open(dir.path().join("pool"))
            .unwrap()
            .opened()
            .was_clean
    );
}

#[test]
fn growth_survives_a_kill() {
    for (dir, media) in media() {
        let path = made(dir.path(), CreateOptions::new(8 * MIB).media(media));
        let pool = options_of(media).open(&path).unwrap();
        let files = fill(&pool, 0);
        pool.grow(16 * MIB).unwrap();
        let more = fill(&pool, files);
        pool.fs().sync().unwrap();
        // As a kill leaves it: never closed.
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        let found = options_of(media).open(&copy).unwrap();
        assert!(!found.opened().was_clean);
        has_files(&found, more);
        assert_eq!(found.superblock().pool_bytes, 16 * MIB);
    }
}

#[test]
fn threads_write_while_the_pool_grows() {
    for mapping in GROWING {
        let pool = CreateOptions::new(8 * MIB)
            .mapping(mapping)
            .create_in_memory()
            .unwrap();
        let (pool, ends) = (&pool, &AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                scope.spawn(move || {
                    let volume = pool.volume();
                    let mut number = 0;
                    while !ends.load(Ordering::Relaxed) {
                        let name = format!("/{thread}-{}", number % 4);
                        let of = thread * 100 + number;
                        match volume.write(&name, bytes_of(of, FILE_BYTES)) {
                            Ok(()) => {
                                assert!(volume.read(&name).unwrap() == bytes_of(of, FILE_BYTES))
                            }
                            Err(error) => assert!(matches!(error, Error::NoSpace(_)), "{error}"),
                        }
                        number += 1;
                    }
                });
            }
            (9..40).for_each(|mib| _ = pool.grow(mib * MIB).unwrap());
            ends.store(true, Ordering::Relaxed);
        });
        let usage = pool.fs().stat_fs();
        for name in pool.volume().read_dir("/").unwrap() {
            pool.volume().remove_file(name.unwrap().path()).unwrap();
        }
        assert!(usage.blocks >= 31 * MIB / 4096);
        let files = fill(pool, 0);
        assert!(files >= 34, "{files} of {mapping:?}");
    }
}

#[test]
fn what_cannot_grow_says_why_and_stays() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = Pool::memory(8 * MIB).unwrap();
    for bytes in [0, 4 * MIB, 8 * MIB] {
        assert!(matches!(
            refusal(pool.grow(bytes)),
            ResizeError::Smaller { .. }
        ));
    }
    assert!(matches!(
        refusal(pool.grow(u64::MAX)),
        ResizeError::TooLarge
    ));
    let least = match refusal(pool.grow(8 * MIB + 1)) {
        ResizeError::TooLittle { least } => least,
        other => panic!("{other}"),
    };
    assert!(least <= 8 * MIB + 8 * 4096);
    assert!(matches!(
        refusal(pool.grow(least - 1)),
        ResizeError::TooLittle { .. }
    ));
    assert_eq!(pool.grow(least).unwrap(), least);
    let most = pool.fs().grows_to();
    match refusal(pool.grow(most + 64 * 4096)) {
        ResizeError::WhileOpen { most: told } => assert_eq!(told, most),
        other => panic!("{other}"),
    }
    for mapping in [MappingKind::Cuckoo, MappingKind::Level] {
        let pool = CreateOptions::new(8 * MIB)
            .mapping(mapping)
            .create_in_memory()
            .unwrap();
        assert!(matches!(
            refusal(pool.grow(16 * MIB)),
            ResizeError::Mapping(_)
        ));
    }
    let path = made(dir.path(), CreateOptions::new(8 * MIB));
    Pool::add_dataset(&path, "other", &CreateOptions::new(8 * MIB)).unwrap();
    let pool = Pool::open(&path).unwrap();
    assert!(matches!(
        refusal(pool.grow(16 * MIB)),
        ResizeError::Followed
    ));
    drop(pool);
    let data = DataOptions::new(dir.path().join("data")).size_bytes(16 * MIB);
    let split = CreateOptions::new(0)
        .data(Some(data))
        .create(dir.path().join("split"))
        .unwrap();
    assert!(matches!(
        refusal(split.grow(1 << 30)),
        ResizeError::ExternalData
    ));
    let read_only = PoolOptions::new().read_only(true).open(&path).unwrap();
    assert!(matches!(read_only.grow(16 * MIB), Err(Error::ReadOnly)));
}

/// A growth that is refused or fails leaves the file as it was.
#[test]
fn a_refused_growth_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions::new(16 * MIB).mapping(MappingKind::HashFs);
    let path = made(dir.path(), options.media(MediaChoice::File));
    let pool = options_of(MediaChoice::File).open(&path).unwrap();
    assert!(matches!(
        refusal(pool.grow(3 << 30)),
        ResizeError::NoRoom { .. }
    ));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 16 * MIB);
}

/// Two chunks claim the same words, as damage may leave them in a pool without added segments.
#[test]
fn a_growth_over_damage_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions::new(16 * MIB).mapping(MappingKind::HashFs);
    let path = made(dir.path(), options.media(MediaChoice::File));
    let geometry = options_of(MediaChoice::File)
        .open(&path)
        .unwrap()
        .superblock()
        .geometry();
    let mut bytes = std::fs::read(&path).unwrap();
    for chunk in [geometry.meta_chunks - 1, geometry.meta_chunks - 2] {
        let at = (geometry.chunk_table_at + chunk * 8) as usize;
        let word = ChunkWord::of_table(chunk, 1, 0).0;
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    let pool = options_of(MediaChoice::File).open(&path).unwrap();
    assert!(matches!(pool.grow(24 * MIB), Err(Error::Damaged { .. })));
    assert_eq!(pool.superblock().pool_bytes, 16 * MIB);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 16 * MIB);
}

/// A power cut came between the last copy of the superblock and the second.
#[test]
fn a_larger_superblock_at_the_end_of_the_file_is_wiped() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(
        dir.path(),
        CreateOptions::new(8 * MIB).media(MediaChoice::File),
    );
    let small = std::fs::read(&path).unwrap();
    options_of(MediaChoice::File)
        .open(&path)
        .unwrap()
        .grow(12 * MIB)
        .unwrap();
    let mut cut = std::fs::read(&path).unwrap();
    cut[..small.len()].copy_from_slice(&small);
    std::fs::write(&path, &cut).unwrap();
    let pool = options_of(MediaChoice::File).open(&path).unwrap();
    assert_eq!(pool.superblock().pool_bytes, 8 * MIB);
    pool.close().unwrap();
    let mended = std::fs::read(&path).unwrap();
    assert!(mended[mended.len() - 4096..].iter().all(|&byte| byte == 0));
}

/// Closing waits for a growth, and the counts that it saves fit the pool.
#[test]
fn a_close_beside_growth_leaves_a_clean_pool() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for round in 0..20 {
        let path = dir.path().join(format!("pool{round}"));
        CreateOptions::new(8 * MIB)
            .create(&path)
            .unwrap()
            .close()
            .unwrap();
        let pool = Pool::open(&path).unwrap();
        let fs = pool.fs();
        std::thread::scope(|scope| {
            scope.spawn(|| (9..20).try_for_each(|mib| fs.grow(mib * MIB).map(drop)));
            scope.spawn(|| fs.close().unwrap());
        });
        drop(pool);
        let image = std::fs::File::open(&path).unwrap();
        let report = vellum_check::check(&image, vellum_check::Options::default());
        assert_eq!(report.exit_code(), 0, "{report}");
    }
}

#[test]
fn a_pool_without_free_metadata_says_so() {
    let pool = CreateOptions::new(8 * MIB)
        .metadata_bytes(Some(64 << 10))
        .create_in_memory();
    let pool = pool.unwrap();
    let volume = pool.volume();
    (0..)
        .map(|file| volume.write(format!("/{file}"), ""))
        .find(Result::is_err);
    match refusal(pool.grow(64 * MIB)) {
        ResizeError::NoRoom { chunks, .. } => assert!(chunks > 0),
        other => panic!("{other}"),
    }
    assert_eq!(pool.superblock().pool_bytes, 8 * MIB);
}
