//! Several datasets in one pool, through the library.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use vellum::media::{MediaChoice, MediaError};
use vellum::{
    CreateOptions, DataOptions, DatasetError, Error, MappingKind, NamespaceKind, Pool, PoolOptions,
    PoolPath,
};
use vellum_check::{Left, Options, check, check_killed};
use vellum_layout::{BLOCK_BYTES, PoolState, StateWord};

const MEDIA: [MediaChoice; 3] = [MediaChoice::Logged, MediaChoice::File, MediaChoice::Memory];

fn options(bytes: u64, media: MediaChoice) -> CreateOptions {
    CreateOptions::new(bytes).media(media)
}

/// A pool in a directory of its own.
fn pool(media: MediaChoice) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let made = options(4 << 20, media).create(&path).unwrap();
    made.close().unwrap();
    (dir, path)
}

fn named(pool: &Path, name: &str) -> PathBuf {
    let place = PoolPath {
        pool: pool.to_owned(),
        name: Some(name.to_owned()),
    };
    place.path()
}

fn add(pool: &Path, name: &str, options: &CreateOptions) {
    let made = Pool::add_dataset(pool, name, options).unwrap();
    made.close().unwrap();
}

/// Opens all datasets of a pool.
fn open_all(pool: &Path, options: &PoolOptions) -> Vec<(PoolPath, Pool)> {
    let all = Pool::open_all(pool, options).unwrap();
    all.into_iter()
        .map(|(place, pool)| (place, pool.unwrap()))
        .collect()
}

fn refused<T: std::fmt::Debug>(result: vellum::Result<T>) -> DatasetError {
    match result.unwrap_err() {
        Error::Dataset(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn paths_mean_files_first_and_datasets_second() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["p", "a:b", "p:file"] {
        std::fs::write(at(name), "").unwrap();
    }
    for (text, pool, name) in [
        ("p", "p", None),
        ("p:x", "p", Some("x")),
        ("p:main", "p", None),
        ("p:", "p", Some("")),
        ("a:b", "a:b", None),
        ("a:b:c", "a:b", Some("c")),
        ("p:file", "p:file", None),
        ("p:file:x", "p:file", Some("x")),
        ("no", "no", None),
        ("no:x", "no:x", None),
        ("p:x:y", "p:x:y", None),
    ] {
        let meant = PoolPath::of(&at(text));
        assert_eq!(
            (meant.pool, meant.name.as_deref()),
            (at(pool), name),
            "{text}"
        );
    }
    let meant = PoolPath::of(&at("p:x"));
    assert_eq!((meant.dataset(), meant.path()), ("x", at("p:x")));
    assert_eq!(PoolPath::of(&at("p:main")).dataset(), "main");
}

/// Each pair of media for the first dataset and the other one.
#[test]
fn datasets_are_used_side_by_side() {
    for media in MEDIA {
        let (_dir, path) = pool(media);
        for (number, media) in MEDIA.into_iter().enumerate() {
            let mut like = options(2 << 20, media);
            like.namespace = NamespaceKind::ALL[number];
            like.mapping = Some(MappingKind::ALL[number]);
            add(&path, &number.to_string(), &like);
        }
        let all = open_all(&path, &PoolOptions::default());
        let names: Vec<_> = all.iter().map(|(place, _)| place.dataset()).collect();
        assert_eq!(names, ["main", "0", "1", "2"]);
        for round in 0..50 {
            for (place, pool) in &all {
                let text = format!("{round} of {}", place.dataset());
                let name = format!("/{round}");
                pool.volume().write(&name, text.as_bytes()).unwrap();
                pool.fs().sync().unwrap();
            }
        }
        let again = Pool::open(named(&path, "1"));
        let busy = matches!(again, Err(Error::Media(MediaError::Busy { .. })));
        assert!(busy, "one process has the lock on all");
        let mut all = all.into_iter();
        let (_, main) = all.next().unwrap();
        main.close().unwrap();
        // The lock stays as long as any dataset is open.
        assert!(Pool::open(&path).is_err());
        all.for_each(|(_, pool)| pool.close().unwrap());
        for name in ["main", "0", "1", "2"] {
            let pool = Pool::open(named(&path, name)).unwrap();
            assert!(pool.opened().was_clean, "{name}");
            let found = pool.volume().read("/49").unwrap();
            assert_eq!(found, format!("49 of {name}").into_bytes());
        }
    }
}

#[test]
fn each_has_a_data_device_of_its_own() {
    for media in [MediaChoice::Logged, MediaChoice::Memory] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let external = |name: &str| {
            CreateOptions::new(0)
                .data(Some(
                    DataOptions::new(dir.path().join(name)).size_bytes(8 << 20),
                ))
                .media(media)
        };
        let opening = PoolOptions::new().media(match media {
            MediaChoice::Logged => MediaChoice::Auto,
            media => media,
        });
        external("main.data")
            .create(&path)
            .unwrap()
            .close()
            .unwrap();
        add(&path, "x", &external("x.data"));
        let all = open_all(&path, &opening);
        for (place, pool) in &all {
            let text = vec![place.dataset().as_bytes()[0]; 100_000];
            pool.volume().write("/f", &text).unwrap();
            assert_eq!(pool.volume().read("/f").unwrap(), text);
        }
        all.into_iter().for_each(|(_, pool)| pool.close().unwrap());
        let found = Pool::datasets(&path).unwrap();
        let data: Vec<_> = found.into_iter().map(|fs| fs.data.unwrap()).collect();
        assert_eq!(
            data,
            [dir.path().join("main.data"), dir.path().join("x.data")]
        );
        Pool::remove_dataset(&path, "x").unwrap();
        let main = opening.open(&path).unwrap();
        assert_eq!(main.volume().read("/f").unwrap(), vec![b'm'; 100_000]);
    }
}

/// The table is in the superblock, so changing it does not need the location of the data.
#[test]
fn a_table_is_changed_without_the_data_of_main() {
    for media in [MediaChoice::Logged, MediaChoice::Memory] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let data = dir.path().join("main.data");
        let external = CreateOptions::new(0)
            .data(Some(DataOptions::new(data.clone()).size_bytes(8 << 20)))
            .media(media);
        let opening = PoolOptions::new().media(match media {
            MediaChoice::Logged => MediaChoice::Auto,
            media => media,
        });
        let main = external.create(&path).unwrap();
        main.volume().write("/f", [5; 100_000]).unwrap();
        main.fs().sync().unwrap();
        main.close().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        std::fs::rename(&data, &elsewhere).unwrap();
        add(&path, "x", &options(2 << 20, MediaChoice::Logged));
        add(&path, "y", &options(2 << 20, MediaChoice::Logged));
        Pool::remove_empty_dataset(&path, "x", &PoolOptions::default()).unwrap();
        assert!(opening.open(&path).is_err());
        std::fs::rename(&elsewhere, &data).unwrap();
        let main = opening.open(&path).unwrap();
        assert_eq!(main.volume().read("/f").unwrap(), vec![5; 100_000]);
        assert_eq!(main.superblock().datasets().count(), 1);
    }
}

/// The external data device of any dataset is recognised, by its head or by the head's copy. One
/// that no longer belongs to any dataset of the pool may be overwritten.
#[test]
fn no_data_device_of_the_same_pool_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let external = |name: &str, overwrite| {
        CreateOptions::new(0)
            .data(Some(
                DataOptions::new(dir.path().join(name))
                    .size_bytes(8 << 20)
                    .overwrite(overwrite),
            ))
            .media(MediaChoice::Logged)
    };
    let made = external("main.data", false).create(&path).unwrap();
    made.close().unwrap();
    add(&path, "x", &external("x.data", false));
    for is_damaged in [false, true] {
        for (medium, owner) in [("main.data", "main"), ("x.data", "x")] {
            let medium_path = dir.path().join(medium);
            let file = OpenOptions::new().write(true).open(&medium_path).unwrap();
            if is_damaged {
                file.write_all_at(&[0; 512], 0).unwrap();
            }
            let before = std::fs::read(&medium_path).unwrap();
            match refused(Pool::add_dataset(&path, "y", &external(medium, true))) {
                DatasetError::DataTaken { path, name } => {
                    assert_eq!((path, name.as_str()), (medium_path.clone(), owner));
                }
                other => panic!("{other}"),
            }
            assert!(before == std::fs::read(&medium_path).unwrap());
        }
    }
    Pool::remove_dataset(&path, "x").unwrap();
    add(&path, "y", &external("x.data", true));
}

#[test]
fn impossible_datasets_are_refused_and_change_nothing() {
    let (_dir, path) = pool(MediaChoice::Logged);
    let small = options(2 << 20, MediaChoice::Logged);
    add(&path, "x", &small);
    let before = std::fs::read(&path).unwrap();
    let add = |name: &str, options: &CreateOptions| Pool::add_dataset(&path, name, options);
    assert!(matches!(refused(add("a:b", &small)), DatasetError::Name(_)));
    assert!(matches!(
        refused(add("x", &small)),
        DatasetError::Taken { .. }
    ));
    let much = small.clone().metadata_bytes(Some(1 << 30));
    assert!(matches!(add("y", &much), Err(Error::Geometry(_))));
    let huge = options(1 << 60, MediaChoice::File);
    assert!(matches!(add("y", &huge), Err(Error::Media(_))));
    let dax = options(2 << 20, MediaChoice::Dax);
    let not_dax = matches!(add("y", &dax), Err(Error::Media(MediaError::NotDax { .. })));
    assert!(not_dax);
    let unknown = Pool::open(named(&path, "y"));
    match refused(unknown) {
        DatasetError::Unknown { names, name, .. } => {
            assert_eq!(
                (name.as_str(), names),
                ("y", vec!["main".into(), "x".into()])
            );
        }
        other => panic!("{other}"),
    }
    let remove = |name: &str| Pool::remove_dataset(&path, name);
    assert!(matches!(refused(remove("y")), DatasetError::Unknown { .. }));
    assert!(matches!(refused(remove("main")), DatasetError::Main { .. }));
    let open = Pool::open(&path).unwrap();
    let busy =
        |result: Result<(), Error>| matches!(result, Err(Error::Media(MediaError::Busy { .. })));
    assert!(busy(remove("x")) && busy(add("y", &small).map(drop)));
    open.close().unwrap();
    let after = std::fs::read(&path).unwrap();
    assert_eq!(before.len(), after.len());
    // The last opening changed only the first dataset.
    assert!(before[4 << 20..] == after[4 << 20..]);
}

/// A decided conversion will store words of the superblock, with the table as it was before.
#[test]
fn a_table_is_not_changed_during_a_conversion() {
    let (_dir, path) = pool(MediaChoice::File);
    let small = options(2 << 20, MediaChoice::File);
    add(&path, "x", &small);
    let superblock = Pool::datasets(&path).unwrap().remove(0).superblock.unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let at = superblock.geometry().state_at + PoolState::WORD;
    for word in [StateWord::converting(5), StateWord::repairing(false, 5)] {
        file.write_all_at(&word.0.to_le_bytes(), at).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(Pool::add_dataset(&path, "y", &small).is_err());
        assert!(Pool::remove_dataset(&path, "x").is_err());
        assert!(before == std::fs::read(&path).unwrap());
    }
}

/// Both front copies of the superblock are lost, and the last one in the file is another dataset's.
/// The pool's own last copy is found before that, and no other is mistaken for it.
#[test]
fn another_dataset_is_never_mistaken_for_the_pool() {
    let (_dir, path) = pool(MediaChoice::File);
    for name in ["x", "y"] {
        add(&path, name, &options(2 << 20, MediaChoice::File));
    }
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for lost in [1, 2] {
        file.write_all_at(&vec![0; lost * BLOCK_BYTES as usize], 0)
            .unwrap();
        let pool = Pool::open(&path).unwrap();
        assert_eq!(pool.superblock().pool_bytes, 4 << 20);
        pool.close().unwrap();
        for name in ["x", "y"] {
            let part = Pool::open(named(&path, name)).unwrap();
            part.close().unwrap();
        }
        let image = std::fs::read(&path).unwrap();
        let found = vellum_check::survey::superblock(&image).unwrap();
        assert_eq!(found.datasets().count(), 2);
        assert_eq!(check(&image, Options::default()).damage, lost as u64);
    }
    let last = (4 << 20) - BLOCK_BYTES;
    file.write_all_at(&[0; BLOCK_BYTES as usize], last).unwrap();
    let opened = Pool::open(&path);
    assert!(matches!(opened, Err(Error::Superblock(_))), "{opened:?}");
    let image = std::fs::read(&path).unwrap();
    assert!(vellum_check::survey::superblock(&image).is_none());
}

/// An interrupted change of the table is no damage. The next opening for writing, of any dataset,
/// completes or undoes it.
#[test]
fn an_opening_settles_an_interrupted_change() {
    for media in [MediaChoice::Logged, MediaChoice::File] {
        let (_dir, path) = pool(media);
        let block = |at| read_block(&path, at);
        let old = block(0);
        add(&path, "x", &options(2 << 20, media));
        let new = block(0);
        let last = (4 << 20) - BLOCK_BYTES;
        let torn = [&new[..650], &old[650..]].concat();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let opened = |path: &Path, read_only| {
            let options = PoolOptions::new().read_only(read_only);
            options.open(path).unwrap().close().unwrap();
        };
        for (copies, counts) in [
            ([&torn, &new, &new], &new),
            ([&old, &new, &torn], &new),
            ([&old, &torn, &new], &new),
            ([&old, &torn, &torn], &old),
        ] {
            for place in [path.clone(), named(&path, "x")] {
                for (at, copy) in [0, BLOCK_BYTES, last].into_iter().zip(copies) {
                    file.write_all_at(copy, at).unwrap();
                }
                let bytes = std::fs::read(&path).unwrap();
                let report = check(&bytes, Options::default());
                assert!(report.is_sound() && report.residue > 0, "{report}");
                let strict = Options {
                    strict_clean: true,
                    ..Options::default()
                };
                assert!(!check(&bytes, strict).is_sound());
                let place = if counts == &new { place } else { path.clone() };
                opened(&place, true);
                assert_eq!(block(last), *copies[2]);
                opened(&place, false);
                assert!(
                    [0, BLOCK_BYTES, last]
                        .iter()
                        .all(|&at| block(at) == *counts)
                );
            }
        }
    }
}

fn read_block(path: &Path, at: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    let file = std::fs::File::open(path).unwrap();
    file.read_exact_at(&mut block, at).unwrap();
    block
}

#[test]
fn a_table_with_a_wrong_address_is_reported() {
    let (_dir, path) = pool(MediaChoice::File);
    add(&path, "x", &options(2 << 20, MediaChoice::File));
    add(&path, "y", &options(2 << 20, MediaChoice::File));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut other = vec![0; 2 << 20];
    file.read_exact_at(&mut other, 6 << 20).unwrap();
    file.write_all_at(&other, 4 << 20).unwrap();
    let opened = Pool::open(named(&path, "x"));
    assert!(matches!(refused(opened), DatasetError::NotThere { .. }));
    let found = Pool::datasets(&path).unwrap();
    assert!(found[1].superblock.is_err() && found[2].superblock.is_ok());
    Pool::open(named(&path, "y")).unwrap().close().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let left = Left {
        file: Some(&bytes),
        ..Left::default()
    };
    let own = bytes[..4 << 20].to_vec();
    assert_eq!(check_killed(&own, left, Options::default()).damage, 1);
}

#[test]
fn damage_of_one_dataset_does_not_affect_the_others() {
    let (_dir, path) = pool(MediaChoice::File);
    for name in ["a", "b"] {
        add(&path, name, &options(2 << 20, MediaChoice::File));
    }
    let all = Pool::datasets(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0; all[1].bytes as usize], all[1].at)
        .unwrap();
    let all = Pool::open_all(&path, &PoolOptions::default()).unwrap();
    let opened: Vec<_> = all
        .iter()
        .map(|(place, pool)| (place.dataset(), pool.is_ok()))
        .collect();
    assert_eq!(opened, [("main", true), ("a", false), ("b", true)]);
}
