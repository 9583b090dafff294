//! Pools with several data segments: those from the formatting, and others that were added.

use std::path::{Path, PathBuf};

use vellum::media::MediaChoice;
use vellum::reading::Rule;
use vellum::{
    CreateOptions, DataOptions, Error, MappingKind, MediumError, Pool, PoolOptions, SegmentError,
};

use crate::fixture::{FILE_BYTES, bytes_of, fill, has_files};

const FIRST_BYTES: u64 = 8 << 20;
const MORE_BYTES: u64 = 12 << 20;

const GROWING: [MappingKind; 4] = [
    MappingKind::HashFs,
    MappingKind::Radix,
    MappingKind::Extent,
    MappingKind::ExtentCached,
];

fn medium(path: PathBuf, size_bytes: u64) -> DataOptions {
    DataOptions::new(path).size_bytes(size_bytes)
}

fn options(dir: &Path, mapping: MappingKind, media: MediaChoice) -> CreateOptions {
    CreateOptions::new(0)
        .media(media)
        .mapping(mapping)
        .metadata_bytes(Some(4 << 20))
        .data(Some(medium(dir.join("data"), FIRST_BYTES)))
        .has_replica(false)
}

fn made(dir: &Path, mapping: MappingKind, media: MediaChoice) -> PathBuf {
    let path = dir.join("pool");
    let pool = options(dir, mapping, media).create(&path).unwrap();
    pool.close().unwrap();
    path
}

fn add(path: &Path, name: &str) -> Result<u64, Error> {
    let data = medium(path.with_file_name(name), MORE_BYTES);
    let added = Pool::add_data(path, &data, &PoolOptions::default());
    added.map(|segment| segment.blocks * 4096)
}

fn open(path: &Path) -> Pool {
    Pool::open(path).unwrap()
}

fn media() -> [(tempfile::TempDir, MediaChoice); 2] {
    [
        (tempfile::tempdir().unwrap(), MediaChoice::Logged),
        (
            tempfile::tempdir_in("/dev/shm").unwrap(),
            MediaChoice::Memory,
        ),
    ]
}

#[test]
fn a_full_pool_has_room_again() {
    for mapping in GROWING {
        for (dir, media) in media() {
            let path = made(dir.path(), mapping, media);
            let files = fill(&open(&path), 0);
            let before = open(&path).fs().stat_fs();
            let added = add(&path, "second").unwrap();
            let pool = open(&path);
            let after = pool.fs().stat_fs();
            assert_eq!((after.blocks - before.blocks) * 4096, added);
            assert_eq!((after.blocks_free - before.blocks_free) * 4096, added);
            has_files(&pool, files);
            let more = fill(&pool, files);
            assert!(more >= files + added / FILE_BYTES - 1, "{mapping:?}");
            has_files(&pool, more);
            // Whole files of one segment, and parts of files in another, become free.
            let volume = pool.volume();
            volume.remove_file("/0").unwrap();
            volume.remove_file(format!("/{}", more - 1)).unwrap();
            volume.write("/0", bytes_of(0, FILE_BYTES)).unwrap();
            drop(volume);
            pool.close().unwrap();
            let pool = open(&path);
            assert!(pool.opened().was_clean);
            has_files(&pool, more - 1);
            assert_eq!(pool.fs().data_devices().count(), 2);
        }
    }
}

/// A file in two segments is read, written and viewed as any other.
#[test]
fn a_file_continues_in_the_next_segment() {
    for mapping in GROWING {
        for direct in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = made(dir.path(), mapping, MediaChoice::Logged);
            add(&path, "second").unwrap();
            add(&path, "third").unwrap();
            let options = PoolOptions::new().direct(direct);
            let pool = options.open(&path).unwrap();
            let volume = pool.volume();
            let size = (FIRST_BYTES + 2 * MORE_BYTES) / 4 * 3;
            let bytes: Vec<u8> = (0..size).map(|at| (at / 4099 + at % 251) as u8).collect();
            volume.write("/large", &bytes).unwrap();
            volume.sync().unwrap();
            assert!(
                volume.read("/large").unwrap() == bytes,
                "{mapping:?} {direct}"
            );
            let file = volume.open("/large").unwrap();
            let view = file.view_by(0..size, Rule::Mmu).unwrap();
            assert!(view[..] == bytes[..], "{mapping:?} {direct}");
            drop(view);
            drop((file, volume));
            pool.close().unwrap();
            let pool = options.open(&path).unwrap();
            assert!(pool.volume().read("/large").unwrap() == bytes);
        }
    }
}

#[test]
fn moved_devices_are_named_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), MappingKind::Extent, MediaChoice::Logged);
    add(&path, "second").unwrap();
    let files = fill(&open(&path), 0);
    let moved = ["data", "second"].map(|name| {
        let to = dir.path().join(format!("{name}-elsewhere"));
        std::fs::rename(dir.path().join(name), &to).unwrap();
        to
    });
    let named = |data: &[PathBuf]| {
        let options = PoolOptions::new().data(data.to_vec());
        options.open(&path)
    };
    let error = named(&moved[..1]).unwrap_err();
    assert!(
        matches!(error, Error::Medium(MediumError::Missing { .. })),
        "{error}"
    );
    let [first, second] = moved;
    has_files(&named(&[second.clone(), first.clone()]).unwrap(), files);
    // The pool records the new paths.
    has_files(&open(&path), files);
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    made(&other, MappingKind::Extent, MediaChoice::Logged);
    let error = named(&[first, other.join("data")]).unwrap_err();
    assert!(
        matches!(error, Error::Medium(MediumError::Foreign { .. })),
        "{error}"
    );
}

#[test]
fn an_old_copy_of_any_device_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), MappingKind::Extent, MediaChoice::Logged);
    add(&path, "second").unwrap();
    let second = dir.path().join("second");
    let old = std::fs::read(&second).unwrap();
    let files = fill(&open(&path), 0);
    let new = std::fs::read(&second).unwrap();
    std::fs::write(&second, old).unwrap();
    let error = Pool::open(&path).unwrap_err();
    assert!(
        matches!(error, Error::Medium(MediumError::OtherSession { .. })),
        "{error}"
    );
    std::fs::write(&second, new).unwrap();
    Pool::force_data_device(&path, &[]).unwrap();
    has_files(&open(&path), files);
}

/// A dataset other than the first has segments of its own.
#[test]
fn one_of_several_datasets_grows() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), MappingKind::Extent, MediaChoice::Logged);
    let of_part = options(dir.path(), MappingKind::HashFs, MediaChoice::Logged)
        .data(Some(medium(dir.path().join("data-of-more"), FIRST_BYTES)));
    Pool::add_dataset(&path, "more", &of_part)
        .unwrap()
        .close()
        .unwrap();
    let part = dir.path().join("pool:more");
    let files = fill(&open(&part), 0);
    add(&part, "second").unwrap();
    let more = fill(&open(&part), files);
    assert!(more > files);
    has_files(&open(&part), more);
    assert_eq!(open(&part).fs().data_devices().count(), 2);
    assert_eq!(open(&path).fs().data_devices().count(), 1);
    let of_main = medium(dir.path().join("data"), MORE_BYTES).overwrite(true);
    let error = Pool::add_data(&part, &of_main, &PoolOptions::default()).unwrap_err();
    assert!(
        matches!(error, Error::Segment(SegmentError::Taken { .. })),
        "{error}"
    );
    assert!(Pool::open(&path).is_ok());
}

#[test]
fn pools_that_cannot_grow_report_that() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), MappingKind::Cuckoo, MediaChoice::Logged);
    let refused = |path: &Path| {
        let error = add(path, "second").unwrap_err();
        assert!(!path.with_file_name("second").exists(), "{error}");
        match error {
            Error::Segment(error) => error,
            other => panic!("{other}"),
        }
    };
    assert!(matches!(refused(&path), SegmentError::Mapping { .. }));
    let alone = dir.path().join("alone");
    let made_alone = CreateOptions::new(8 << 20).create(&alone);
    made_alone.unwrap().close().unwrap();
    assert!(matches!(
        refused(&alone),
        SegmentError::NoExternalData { .. }
    ));
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let carrying = in_memory.path().join("pool");
    let options =
        options(in_memory.path(), MappingKind::Extent, MediaChoice::Memory).has_replica(true);
    let pool = options.create(&carrying).unwrap();
    let error = add(&carrying, "second").unwrap_err();
    assert!(matches!(error, Error::Media(_)), "in use: {error}");
    pool.close().unwrap();
    assert!(matches!(
        refused(&carrying),
        SegmentError::HasReplica { .. }
    ));
}

/// If the metadata have no space for the words of the new blocks, nothing changes.
#[test]
fn a_pool_without_space_for_the_table_is_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), MappingKind::HashFs, MediaChoice::Logged);
    let data = medium(dir.path().join("second"), 4 << 30);
    let refused = Pool::add_data(&path, &data, &PoolOptions::default()).unwrap_err();
    assert!(
        matches!(refused, Error::Segment(SegmentError::NoRoom { .. })),
        "{refused}"
    );
    assert!(!data.path.exists());
    let pool = open(&path);
    let volume = pool.volume();
    volume.create_dir("/d").unwrap();
    for number in 0..5000 {
        volume.create_dir(format!("/d/{number}")).unwrap();
    }
    drop(volume);
    drop(pool);
    add(&path, "second").unwrap();
    fill(&open(&path), 0);
}

/// Adds as many segments as possible; then no more.
#[test]
fn there_are_eight_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), MappingKind::HashFs, MediaChoice::Logged);
    for number in 1..8 {
        add(&path, &format!("more-{number}")).unwrap();
    }
    let error = add(&path, "more-8").unwrap_err();
    assert!(
        matches!(error, Error::Segment(SegmentError::Full { .. })),
        "{error}"
    );
    let pool = open(&path);
    assert_eq!(pool.fs().data_devices().count(), 8);
    let files = fill(&pool, 0);
    has_files(&pool, files);
}
