//! Pools with external data: where the bytes go, what a kill leaves, and how a wrong device is
//! reported.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use vellum::media::{MediaChoice, MediaError};
use vellum::reading::Rule;
use vellum::{CreateOptions, DataOptions, Error, MappingKind, MediumError, Pool, PoolOptions};
use vellum_layout::{GeometryError, MediumHead, features};

const DATA_BYTES: u64 = 16 << 20;

fn options(data: PathBuf) -> CreateOptions {
    CreateOptions::new(0)
        .media(MediaChoice::Logged)
        .mapping(MappingKind::Extent)
        .data(Some(DataOptions::new(data).size_bytes(DATA_BYTES)))
}

/// A pool in a directory, and its data in another file there.
fn made(dir: &Path) -> (PathBuf, PathBuf, Pool) {
    let (path, data) = (dir.join("pool"), dir.join("data"));
    let pool = options(data.clone()).create(&path).unwrap();
    (path, data, pool)
}

fn open(path: &Path) -> Result<Pool, Error> {
    Pool::open(path)
}

/// What a kill leaves if all memory is lost with it: a copy of both files.
fn killed(dir: &Path, name: &str) -> PathBuf {
    let copy = dir.join(name);
    std::fs::create_dir(&copy).unwrap();
    for file in ["pool", "data"] {
        std::fs::copy(dir.join(file), copy.join(file)).unwrap();
    }
    copy.join("pool")
}

fn has(path: &Path, pattern: &[u8]) -> bool {
    let bytes = std::fs::read(path).unwrap();
    bytes.windows(pattern.len()).any(|part| part == pattern)
}

#[test]
fn bytes_of_files_are_on_the_data_device_only() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data, pool) = made(dir.path());
    let superblock = pool.superblock();
    assert_ne!(superblock.incompatible & features::EXTERNAL_DATA, 0);
    let pattern = b"bytes of a file, and of nothing else";
    let content = pattern.repeat(20_000);
    let volume = pool.volume();
    volume.write("/f", &content).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.read("/f").unwrap(), content);
    assert!(has(&data, pattern) && !has(&path, pattern));
    // A page table also leads to the data device.
    let file = volume.open("/f").unwrap();
    let view = file.view_by(0..content.len() as u64, Rule::Mmu).unwrap();
    assert!(&view[..] == content.as_slice());
    drop(view);
    drop((file, volume));
    pool.close().unwrap();
    let own = std::fs::metadata(&path).unwrap().len();
    assert_eq!(own, superblock.pool_bytes);
    let reopened = open(&path).unwrap();
    assert!(reopened.opened().was_clean);
    assert_eq!(reopened.volume().read("/f").unwrap(), content);
    assert_eq!(reopened.fs().data_devices().next().unwrap().1, DATA_BYTES);
}

#[test]
fn what_was_synced_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, pool) = made(dir.path());
    let volume = pool.volume();
    let synced = |number: u8| vec![number + 1; 700 * usize::from(number) + 1];
    for number in 0..50 {
        volume.write(format!("/{number}"), synced(number)).unwrap();
        if number % 5 == 4 {
            volume.sync().unwrap();
        }
    }
    volume.write("/later", b"lost").unwrap();
    let read_only = PoolOptions::new().read_only(true);
    let copy = killed(dir.path(), "copy");
    for options in [read_only, PoolOptions::default(), PoolOptions::default()] {
        let reopened = options.open(&copy).unwrap();
        let volume = reopened.volume();
        for number in 0..50 {
            assert_eq!(volume.read(format!("/{number}")).unwrap(), synced(number));
        }
        assert!(matches!(volume.read("/later"), Err(Error::NotFound)));
    }
}

/// The error of opening the pool, which must change neither file.
#[track_caller]
fn refused(path: &Path) -> MediumError {
    let before = std::fs::read(path).unwrap();
    let found = match open(path) {
        Err(Error::Medium(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(
        before == std::fs::read(path).unwrap(),
        "the pool was written to"
    );
    found
}

#[test]
fn another_medium_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data, pool) = made(dir.path());
    let needed = MediumHead::of(&pool.superblock()).unwrap().bytes;
    pool.volume().write("/f", [7; 100_000]).unwrap();
    pool.close().unwrap();
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    made(&other).2.close().unwrap();
    let kept = dir.path().join("kept");
    std::fs::rename(&data, &kept).unwrap();

    assert!(matches!(refused(&path), MediumError::Missing { path, .. } if path == data));
    std::fs::write(&data, []).unwrap();
    assert!(matches!(refused(&path), MediumError::Missing { .. }));
    std::fs::write(&data, vec![0x5A; DATA_BYTES as usize]).unwrap();
    assert!(
        matches!(refused(&path), MediumError::Foreign { found, .. } if found.contains("no data"))
    );
    std::fs::copy(other.join("data"), &data).unwrap();
    let swapped = refused(&path);
    assert!(
        matches!(&swapped, MediumError::Foreign { found, .. } if found.contains("data of pool"))
    );
    assert!(swapped.to_string().contains(data.to_str().unwrap()));
    std::fs::copy(&kept, &data).unwrap();
    let short = std::fs::File::options().write(true).open(&data).unwrap();
    short.set_len(needed - 4096).unwrap();
    assert!(matches!(
        refused(&path),
        MediumError::Short { expected, actual, .. } if expected == needed && actual == needed - 4096
    ));

    std::fs::remove_file(&data).unwrap();
    let options = PoolOptions::new().data(vec![kept.clone()]);
    let pool = options.open(&path).unwrap();
    assert_eq!(pool.volume().read("/f").unwrap(), [7; 100_000]);
    pool.close().unwrap();
    // The pool records where the device was found.
    let pool = open(&path).unwrap();
    assert_eq!(pool.fs().data_devices().next().unwrap().0, kept);
    // Another pool with these data: first they are in use, then they belong to another pool.
    let their = PoolOptions::new().data(vec![kept]);
    let in_use = their.open(other.join("pool"));
    assert!(matches!(in_use, Err(Error::Media(MediaError::Busy { .. }))));
    drop(pool);
    let foreign = their.open(other.join("pool"));
    assert!(matches!(
        foreign,
        Err(Error::Medium(MediumError::Foreign { .. }))
    ));
}

#[test]
fn a_device_with_a_damaged_head_is_recognised_by_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data, pool) = made(dir.path());
    let copy_at = MediumHead::of(&pool.superblock()).unwrap().copy_at();
    pool.close().unwrap();
    let file = std::fs::File::options().write(true).open(&data).unwrap();
    let damage = |at| file.write_all_at(&[0xFF; 512], at).unwrap();
    for head in [0, copy_at] {
        damage(head);
        // An opening repairs both.
        open(&path).unwrap().close().unwrap();
    }
    damage(0);
    damage(copy_at);
    assert!(matches!(refused(&path), MediumError::Foreign { .. }));
}

#[test]
fn an_old_copy_of_either_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data, pool) = made(dir.path());
    pool.volume().write("/f", b"old").unwrap();
    pool.close().unwrap();
    let old = killed(dir.path(), "old");
    let old_data = old.with_file_name("data");
    let pool = open(&path).unwrap();
    pool.volume().write("/g", [8; 200_000]).unwrap();
    pool.close().unwrap();

    let with = |data: &Path, read_only| {
        PoolOptions::new()
            .data(vec![data.to_owned()])
            .read_only(read_only)
    };
    let read = |path: &Path| [path, &data, &old_data].map(|file| std::fs::read(file).unwrap());
    for (pool, medium) in [(&path, &old_data), (&old, &data)] {
        let before = read(pool);
        for read_only in [true, false] {
            let mixed = with(medium, read_only).open(pool);
            assert!(matches!(
                mixed,
                Err(Error::Medium(MediumError::OtherSession { path })) if path == *medium
            ));
        }
        assert!(before == read(pool), "nothing may be written");
    }
    // Files that belong together still do, also after they were opened.
    for (pool, medium) in [(&path, &data), (&old, &old_data)] {
        for read_only in [true, false, true] {
            let pool = with(medium, read_only).open(pool).unwrap();
            assert_eq!(pool.volume().read("/f").unwrap(), b"old");
        }
    }

    Pool::force_data_device(&path, std::slice::from_ref(&old_data)).unwrap();
    let pool = with(&old_data, false).open(&path).unwrap();
    // The bytes are those of the copy, the tree is that of the pool.
    assert_eq!(pool.volume().read("/f").unwrap(), b"old");
    assert_eq!(pool.volume().read("/g").unwrap().len(), 200_000);
    pool.close().unwrap();
    let left = with(&data, false).open(&path);
    assert!(matches!(
        left,
        Err(Error::Medium(MediumError::OtherSession { .. }))
    ));
}

#[test]
fn a_pool_without_the_path_of_its_data_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data, pool) = made(dir.path());
    let places_at = pool.superblock().media_at;
    pool.close().unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xFF; 100], places_at).unwrap();
    assert!(matches!(refused(&path), MediumError::Unknown));
    let named = PoolOptions::new().data(vec![data]);
    named.open(&path).unwrap().close().unwrap();
    open(&path).unwrap().close().unwrap();
}

#[test]
fn a_pool_with_its_own_data_takes_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("whole");
    CreateOptions::new(8 << 20).create(&path).unwrap();
    let named = PoolOptions::new().data(vec![path.clone()]);
    let refused = named.open(&path);
    assert!(matches!(
        refused,
        Err(Error::Medium(MediumError::NoExternalData))
    ));
}

#[test]
fn impossible_pools_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
    let mut asked = options(data);
    let make = |asked: &CreateOptions| {
        let made = asked.create(&path);
        if let Some(data) = &asked.data {
            let _ = std::fs::remove_file(&data.path);
        }
        made.map(drop)
    };
    asked.media = MediaChoice::File;
    let unlogged = make(&asked);
    assert!(matches!(
        unlogged,
        Err(Error::Medium(MediumError::Unordered { .. }))
    ));
    asked.media = MediaChoice::Logged;
    asked.size_bytes = 1 << 20;
    let small = make(&asked);
    assert!(matches!(
        small,
        Err(Error::Geometry(GeometryError::NoRoomForMetadata { .. }))
    ));
    asked.size_bytes = 0;
    asked.data.as_mut().unwrap().size_bytes = 3 << 20;
    assert!(matches!(
        make(&asked),
        Err(Error::Medium(MediumError::TooSmall { .. }))
    ));
    assert!(!path.exists());
}

#[test]
fn an_existing_pool_is_refused_before_its_data_device_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data, pool) = made(dir.path());
    pool.close().unwrap();
    let other = dir.path().join("other");
    let refused = options(other.clone()).create(&path);
    assert!(matches!(
        refused,
        Err(Error::Media(MediaError::Exists { path: it })) if it == path
    ));
    assert!(!other.exists());
    let refused = options(data.clone()).create(other);
    assert!(matches!(
        refused,
        Err(Error::Media(MediaError::Exists { path: it })) if it == data
    ));
    open(&path).unwrap().close().unwrap();
}
