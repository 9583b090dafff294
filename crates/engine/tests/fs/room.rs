//! Full pools whose metadata do not grow: what was promised can be created, and deleting frees
//! space.

use vellum::{CreateOptions, Error, MappingKind, NamespaceKind, Pool, Volume};

/// Sizes of pools in MiB.
const SIZES: [u64; 4] = [1, 8, 32, 64];

fn made(mib: u64, namespace: NamespaceKind, mapping: MappingKind) -> Pool {
    let options = CreateOptions::new(mib << 20)
        .namespace(namespace)
        .mapping(mapping)
        .fixed_metadata(true);
    options.create_in_memory().unwrap()
}

fn files_free(volume: &Volume) -> u64 {
    volume.fs().stat_fs().files_free
}

/// Creates empty files until there is no space. Returns their number.
fn fill(volume: &Volume) -> u64 {
    fill_with(volume, "f")
}

/// As [`fill`], with names that begin with `prefix`.
fn fill_with(volume: &Volume, prefix: &str) -> u64 {
    let mut made = 0;
    loop {
        match volume.create(format!("/q/{prefix}{made}")) {
            Ok(_) => made += 1,
            Err(Error::NoSpace(_)) => return made,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Asserts that the files that `statfs` reports for an empty pool can be created, and that it
/// reports none for a full one.
#[track_caller]
fn assert_promise(mib: u64, namespace: NamespaceKind, mapping: MappingKind) {
    let what = format!("{mib} MiB, {namespace:?}, {mapping:?}");
    let pool = made(mib, namespace, mapping);
    let volume = pool.volume();
    let promised = files_free(&volume);
    volume.create_dir("/q").unwrap();
    // The directory is one of them, and its log and the root's begin with the space of one entry
    // each.
    let made = fill(&volume) + 3;
    assert!(made >= promised, "{what}: {made} created of {promised}");
    // `tree` counts names of the greatest length, and `adaptive` counts tables in the worst case.
    let least = match namespace {
        NamespaceKind::Direct => made - 4,
        NamespaceKind::Adaptive => made * 4 / 5,
        NamespaceKind::Tree => made / 3,
    };
    assert!(
        promised >= least,
        "{what}: {promised} promised, {made} created"
    );
    for _ in 0..3 {
        assert_eq!(files_free(&volume), 0, "{what}: none can be created");
        assert!(volume.create("/q/more").is_err(), "{what}");
    }
}

#[test]
fn promised_files_can_be_created() {
    for mib in SIZES {
        for namespace in NamespaceKind::ALL {
            assert_promise(mib, namespace, MappingKind::default());
        }
    }
    for mapping in MappingKind::ALL {
        assert_promise(8, NamespaceKind::Direct, mapping);
    }
}

/// Each `step`th file is removed, and nearly as many are created again: as many as `statfs`
/// reports, and not many more.
fn deleted_and_made_again(mib: u64, namespace: NamespaceKind, step: usize) {
    let what = format!("{mib} MiB, {namespace:?}, one file of {step}");
    let pool = made(mib, namespace, MappingKind::default());
    let volume = pool.volume();
    volume.create_dir("/q").unwrap();
    let files = fill(&volume);
    let mut gone = 0;
    for number in (5..files - 5).step_by(step).take(1000) {
        volume.remove_file(format!("/q/f{number}")).unwrap();
        gone += 1;
    }
    let free = files_free(&volume);
    assert!(free <= gone + 1, "{what}: {free} free of {gone} removed");
    let again = fill_with(&volume, "n");
    assert!(again >= gone * 9 / 10, "{what}: {again} created of {gone}");
    assert!(free <= again, "{what}: {free} free, {again} created");
    // In the smallest pools, logs of a few blocks have few more names than these.
    let is_small = mib < 8;
    let is_told = is_small || free * 10 >= again * 9;
    assert!(is_told, "{what}: {free} free, {again} created");
    // The smallest pools keep no space for a rename when they are full.
    volume.remove_file("/q/n1").unwrap();
    volume.rename("/q/n0", "/q/renamed").unwrap();
}

#[test]
fn deleting_frees_space_for_other_names() {
    for mib in SIZES {
        for namespace in NamespaceKind::ALL {
            for step in [1, 7] {
                deleted_and_made_again(mib, namespace, step);
            }
        }
    }
}

/// On a full pool names are renamed repeatedly, and the removal of a name frees space for a file.
fn renamed_in_full(mib: u64, namespace: NamespaceKind) {
    let what = |error| panic!("{mib} MiB, {namespace:?}: {error}");
    let pool = made(mib, namespace, MappingKind::default());
    let volume = pool.volume();
    volume.create_dir("/q").unwrap();
    fill(&volume);
    for number in 0..100 {
        let (from, to) = (format!("/q/f{number}"), format!("/q/r{number}"));
        volume.rename(from, to).unwrap_or_else(what);
    }
    // Logs of `tree` free whole blocks, and not with every removed name.
    let is_exact = namespace != NamespaceKind::Tree;
    let is_full = || volume.create("/q/more").is_err();
    assert!(!is_exact || is_full());
    for number in 100..200 {
        let (from, to) = (format!("/q/f{number}"), format!("/q/f{}", number + 100));
        volume.rename(from, to).unwrap_or_else(what);
        let again = volume.create(format!("/q/f{number}"));
        if is_exact {
            again.map_or_else(what, drop);
        }
    }
    assert!(!is_exact || is_full());
    volume.remove_file("/q/f300").unwrap();
    volume.hard_link("/q/f301", "/q/l").unwrap_or_else(what);
}

#[test]
fn files_of_a_full_pool_are_renamed() {
    // The smallest pools keep no space for that.
    for mib in &SIZES[1..] {
        for namespace in NamespaceKind::ALL {
            renamed_in_full(*mib, namespace);
        }
    }
}

/// Bytes of data in the tests of freed space.
const DATA: usize = 8 << 20;

fn blocks_free(volume: &Volume) -> u64 {
    volume.fs().stat_fs().blocks_free
}

#[test]
fn freed_space_is_reported_when_unlink_and_truncate_return() {
    for namespace in NamespaceKind::ALL {
        let pool = made(32, namespace, MappingKind::default());
        let volume = pool.volume();
        let before = blocks_free(&volume);
        let data = vec![1; DATA];
        volume.write("/f", &data).unwrap();
        assert!(blocks_free(&volume) + (DATA / 4096) as u64 <= before);
        volume.remove_file("/f").unwrap();
        assert_eq!(blocks_free(&volume), before, "{namespace:?}: removed");
        volume.write("/f", &data).unwrap();
        let file = volume.open("/f").unwrap();
        volume.remove_file("/f").unwrap();
        assert!(blocks_free(&volume) < before, "{namespace:?}: still open");
        drop(file);
        assert_eq!(blocks_free(&volume), before, "{namespace:?}: closed");
        volume.write("/f", &data).unwrap();
        volume.write("/f", b"").unwrap();
        assert_eq!(blocks_free(&volume), before, "{namespace:?}: cut");
        volume.write("/g", &data).unwrap();
        volume.rename("/f", "/g").unwrap();
        assert_eq!(blocks_free(&volume), before, "{namespace:?}: replaced");
    }
}

/// On a full pool with many directories, each takes names for as many removed ones, repeatedly.
fn names_replaced_in_each_directory(namespace: NamespaceKind) {
    const DIRECTORIES: u64 = 50;
    /// More names than a block of a log has are replaced in each directory.
    const ROUNDS: u64 = 40;
    const REPLACED: u64 = 20;
    let pool = made(8, namespace, MappingKind::default());
    let volume = pool.volume();
    for dir in 0..DIRECTORIES {
        volume.create_dir(format!("/d{dir}")).unwrap();
    }
    let path = |dir: u64, file: u64| format!("/d{dir}/f{file}");
    let mut per_directory = 0;
    while (0..DIRECTORIES).all(|dir| volume.create(path(dir, per_directory)).is_ok()) {
        per_directory += 1;
    }
    for round in 0..ROUNDS {
        let files = (0..REPLACED).map(|i| (round * REPLACED + i) % per_directory);
        for dir in 0..DIRECTORIES {
            for file in files.clone() {
                volume.remove_file(path(dir, file)).unwrap();
            }
        }
        for dir in 0..DIRECTORIES {
            for file in files.clone() {
                if let Err(error) = volume.create(path(dir, file)) {
                    panic!("{namespace:?}, round {round}, directory {dir}: {error}");
                }
            }
        }
    }
}

#[test]
fn each_directory_of_a_full_pool_takes_names_for_removed_ones() {
    // A log of `tree` grows by whole blocks only.
    for namespace in [NamespaceKind::Direct, NamespaceKind::Adaptive] {
        names_replaced_in_each_directory(namespace);
    }
}
