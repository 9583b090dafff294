//! Pools whose free data space becomes metadata when those are short, and data again.

use std::path::Path;

use vellum::media::MediaChoice;
use vellum::{CreateOptions, Error, MappingKind, NamespaceKind, Pool, PoolOptions};
use vellum_check::{Options, check};

use crate::fixture::in_memory;

const MIB: u64 = 1 << 20;
/// Names in a directory.
const NAMES: u64 = 500;

fn options(namespace: NamespaceKind, mapping: MappingKind) -> CreateOptions {
    CreateOptions::new(4 * MIB)
        .metadata_bytes(Some(128 << 10))
        .media(MediaChoice::Memory)
        .namespace(namespace)
        .mapping(mapping)
}

fn open(path: &Path) -> Pool {
    PoolOptions::new()
        .media(MediaChoice::Memory)
        .open(path)
        .unwrap()
}

#[track_caller]
fn checked(path: &Path) {
    let report = check(&std::fs::File::open(path).unwrap(), Options::default());
    assert!(report.is_sound() && report.residue == 0, "{report}");
}

fn path(number: u64) -> String {
    format!("/{}/{number}", number / NAMES)
}

/// Creates empty files, `from` being the number of the first, until there is no space or there are
/// `most`. Returns the number after the last.
fn create(pool: &Pool, from: u64, most: u64) -> u64 {
    let volume = pool.volume();
    let make = |number: u64| {
        if number.is_multiple_of(NAMES) {
            volume.create_dir(format!("/{}", number / NAMES))?;
        }
        volume.write(path(number), b"")
    };
    for number in from..most {
        match make(number) {
            Err(Error::NoSpace(_)) => return number,
            made => made.unwrap(),
        }
    }
    most
}

fn has(pool: &Pool, files: u64) {
    let volume = pool.volume();
    for number in 0..files {
        assert_eq!(volume.metadata(path(number)).unwrap().len(), 0, "{number}");
    }
}

fn remove(pool: &Pool, files: u64) {
    let volume = pool.volume();
    for number in 0..files {
        volume.remove_file(path(number)).unwrap();
    }
    for dir in 0..files.div_ceil(NAMES) {
        volume.remove_dir(format!("/{dir}")).unwrap();
    }
    while pool.fs().maintain().unwrap() > 0 {}
}

fn blocks_free(pool: &Pool) -> u64 {
    pool.fs().stat_fs().blocks_free
}

#[test]
fn files_go_on_when_the_metadata_region_is_full_and_give_the_space_back() {
    for namespace in NamespaceKind::ALL {
        for mapping in MappingKind::ALL {
            let dir = in_memory();
            let at = dir.path().join("pool");
            let pool = options(namespace, mapping).create(&at).unwrap();
            let empty = pool.fs().stat_fs();
            let what = format!("{namespace:?} {mapping:?}");
            // The region has 1024 slots, and each file takes two or more.
            assert_eq!(create(&pool, 0, 2000), 2000, "{what}");
            let full = pool.fs().stat_fs();
            assert!(full.blocks_free < empty.blocks_free, "{what}");
            assert_eq!(full.blocks, empty.blocks);
            pool.close().unwrap();
            checked(&at);
            let pool = open(&at);
            assert!(pool.opened().was_clean);
            assert!(blocks_free(&pool) >= full.blocks_free, "{what}");
            has(&pool, 2000);
            remove(&pool, 2000);
            pool.close().unwrap();
            checked(&at);
            let pool = open(&at);
            // The areas' own table may have grown.
            let back = blocks_free(&pool);
            assert!(
                back * 100 >= empty.blocks_free * 95,
                "{what}: {back} of {empty:?}"
            );
            assert_eq!(create(&pool, 0, 2000), 2000, "{what}");
        }
    }
}

/// As many files as `statfs` tells, within the space of a few chunks.
#[test]
fn what_statfs_tells_of_files_can_be_created() {
    for namespace in NamespaceKind::ALL {
        let pool = options(namespace, MappingKind::Extent);
        let pool = pool.create_in_memory().unwrap();
        let told = pool.fs().stat_fs().files_free;
        let made = create(&pool, 0, u64::MAX);
        let all = made + made.div_ceil(NAMES);
        assert!(all >= told * 99 / 100, "{namespace:?}: {all} of {told}");
        // `tree` counts names of the greatest length, `adaptive` tables in the worst case.
        assert!(told >= all / 3, "{namespace:?}: {all} of {told}");
        let left = pool.fs().stat_fs().files_free;
        assert!(
            left < told / 100,
            "{namespace:?}: {left} are left of {told}"
        );
        remove(&pool, made);
        assert!(
            create(&pool, 0, u64::MAX) * 100 >= made * 98,
            "{namespace:?}"
        );
    }
}

/// A process that is killed leaves chunks in data space, and perhaps free ones.
#[test]
fn a_killed_pool_has_its_files_and_all_other_space() {
    for mapping in [MappingKind::HashFs, MappingKind::Radix, MappingKind::Level] {
        let dir = in_memory();
        let at = dir.path().join("pool");
        let pool = options(NamespaceKind::Direct, mapping).create(&at).unwrap();
        assert_eq!(create(&pool, 0, 1500), 1500);
        let free = blocks_free(&pool);
        let killed = dir.path().join("killed");
        std::fs::copy(&at, &killed).unwrap();
        let report = check(&std::fs::File::open(&killed).unwrap(), Options::default());
        assert!(report.is_sound(), "{report}");
        let reader = PoolOptions::new().read_only(true);
        has(
            &reader.media(MediaChoice::Memory).open(&killed).unwrap(),
            1500,
        );
        let pool = open(&killed);
        assert!(!pool.opened().was_clean);
        // Chunks that were free are data again.
        assert!(blocks_free(&pool) >= free, "{mapping:?}");
        has(&pool, 1500);
        remove(&pool, 1500);
        pool.close().unwrap();
        checked(&killed);
    }
}

/// A file in a chunk that was data meanwhile is not taken for one that lay there before.
#[test]
fn handles_of_files_in_chunks_that_came_back_are_stale() {
    let pool = options(NamespaceKind::Direct, MappingKind::Extent);
    let pool = pool.create_in_memory().unwrap();
    let fs = pool.fs();
    let mut seen = std::collections::HashSet::new();
    for round in 0..3 {
        assert_eq!(create(&pool, 0, 2000), 2000);
        for number in 0..2000 {
            let found = pool.volume().metadata(path(number)).unwrap();
            let handle = (found.ino(), found.generation());
            assert!(seen.insert(handle), "round {round}: {handle:?} again");
        }
        let old = seen.iter().next().copied();
        remove(&pool, 2000);
        let (ino, generation) = old.unwrap();
        assert!(matches!(fs.node(ino, generation), Err(Error::Stale)));
    }
}

/// Data and names compete for the same space, and whoever removes theirs makes room for the others.
#[test]
fn data_and_files_make_room_for_each_other() {
    for mapping in [MappingKind::HashFs, MappingKind::Extent] {
        let pool = options(NamespaceKind::Direct, mapping);
        let pool = pool.create_in_memory().unwrap();
        let (volume, free) = (pool.volume(), blocks_free(&pool));
        let bytes = vec![7; (free * 4096) as usize];
        volume.write("/data", &bytes).unwrap();
        // Only the region is left for names.
        let few = create(&pool, 0, u64::MAX);
        assert!((300..600).contains(&few), "{mapping:?}: {few}");
        assert!(volume.read("/data").unwrap() == bytes);
        volume.remove_file("/data").unwrap();
        let many = create(&pool, few, 4000);
        assert_eq!(many, 4000, "{mapping:?}");
        assert!(matches!(
            volume.write("/data", &bytes),
            Err(Error::NoSpace(_))
        ));
        volume.remove_file("/data").unwrap();
        has(&pool, many);
        remove(&pool, many);
        volume
            .write("/data", &bytes[..bytes.len() * 95 / 100])
            .unwrap();
    }
}

/// A copy of a pool at work has the metadata that lie in data space.
#[test]
fn a_snapshot_has_all_chunks() {
    for mapping in [MappingKind::HashFs, MappingKind::Radix] {
        let dir = in_memory();
        let pool = options(NamespaceKind::Direct, mapping);
        let pool = pool.create(dir.path().join("pool")).unwrap();
        assert_eq!(create(&pool, 0, 2000), 2000);
        let copy = dir.path().join("copy");
        pool.fs().snapshot(&copy, &|_, _| {}).unwrap();
        let copy = open(&copy);
        has(&copy, 2000);
        remove(&copy, 2000);
        copy.close().unwrap();
    }
}

/// Threads take and return chunks beside each other, and beside writers of data.
#[test]
fn threads_share_the_space() {
    const ROUNDS: u64 = 6;
    for (namespace, mapping) in [
        (NamespaceKind::Direct, MappingKind::HashFs),
        (NamespaceKind::Adaptive, MappingKind::Extent),
        (NamespaceKind::Tree, MappingKind::Cuckoo),
    ] {
        let dir = in_memory();
        let at = dir.path().join("pool");
        let pool = options(namespace, mapping).create(&at).unwrap();
        let use_space = &|thread: u64| {
            let volume = pool.volume();
            volume.create_dir(format!("/t{thread}")).unwrap();
            let path = |number: u64| format!("/t{thread}/{number}");
            for round in 0..ROUNDS {
                let bytes = vec![thread as u8 + 1; 4096 * (round as usize + 1)];
                let is_there = |&number: &u64| {
                    let content = match number % 50 {
                        0 => &bytes[..],
                        _ => &[],
                    };
                    match volume.write(path(number), content) {
                        Ok(()) => true,
                        Err(Error::NoSpace(_)) => {
                            // The file may exist, without its bytes.
                            let _ = volume.remove_file(path(number));
                            false
                        }
                        Err(error) => panic!("{error}"),
                    }
                };
                let made: Vec<u64> = (0..1500).filter(is_there).collect();
                for number in made {
                    let bytes_are = match number % 50 {
                        0 => &bytes[..],
                        _ => &[],
                    };
                    assert!(volume.read(path(number)).unwrap() == bytes_are);
                    volume.remove_file(path(number)).unwrap();
                }
            }
            volume.remove_dir(format!("/t{thread}")).unwrap();
        };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || use_space(thread));
            }
        });
        pool.close().unwrap();
        checked(&at);
        let pool = open(&at);
        assert!(pool.opened().was_clean);
        assert_eq!(create(&pool, 0, 1500), 1500, "{namespace:?} {mapping:?}");
    }
}
