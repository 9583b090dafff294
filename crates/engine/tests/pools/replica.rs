//! External data devices with a metadata replica: exported whole at a close, imported elsewhere,
//! and refused if it is not whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::fixture::{in_memory, made, open, options};
use vellum::media::{MediaChoice, MediaError, OpenMode};
use vellum::{
    AttachOptions, Error, ExportedReplica, FileKind, MappingKind, MediumError, NamespaceKind, Pool,
    PoolOptions, Volume, open_bytes,
};
use vellum_check::{MemoryImage, Options, check};
use vellum_layout::{ChangedMap, MediumHead, ReplicaHead, ReplicaPlan, Superblock};

fn export(pool: Pool) -> ExportedReplica {
    pool.close_and_export(false, &|_, _| {}).unwrap()
}

fn attach(path: &Path, data: &Path) -> Result<Superblock, Error> {
    let options = AttachOptions {
        data: data.to_owned(),
        media: MediaChoice::Auto,
        overwrite: false,
    };
    Pool::attach(path, &options, &|_, _| {})
}

fn fill(volume: &Volume) {
    volume.create_dir_all("/a/b/c/d/e/f/g").unwrap();
    for number in 0..60 {
        let dir = ["/", "/a/", "/a/b/c/d/e/f/g/"][number % 3];
        let content = vec![number as u8 + 1; 777 * number];
        volume.write(format!("{dir}{number}"), &content).unwrap();
    }
    volume.hard_link("/a/1", "/a/b/linked").unwrap();
    volume.symlink("../1", "/a/b/symbolic").unwrap();
    volume.symlink("x".repeat(900), "/long").unwrap();
    volume.remove_file("/3").unwrap();
    volume.rename("/6", "/a/moved").unwrap();
}

/// Everything readable in a tree except access times, which reading changes.
fn tree(volume: &Volume) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![PathBuf::from("/")];
    while let Some(dir) = dirs.pop() {
        for entry in volume.read_dir(&dir).unwrap() {
            let path = dir.join(entry.unwrap().name());
            let attr = volume.symlink_metadata(&path).unwrap();
            let content = match attr.file_type().kind() {
                FileKind::File => volume.read(&path).unwrap(),
                FileKind::Symlink => {
                    let target = volume.read_link(&path).unwrap();
                    target.into_os_string().into_encoded_bytes()
                }
                _ => {
                    dirs.push(path.clone());
                    Vec::new()
                }
            };
            let [_, mtime, ctime] = attr.times_ns();
            let owner = (attr.uid(), attr.gid());
            let kept = (
                attr.ino(),
                attr.generation(),
                attr.mode(),
                owner,
                attr.nlink(),
            );
            let size = (attr.len(), attr.blocks(), attr.rdev());
            found.insert(
                path,
                (format!("{kept:?} {size:?} {mtime} {ctime}"), content),
            );
        }
    }
    found
}

fn assert_clean(path: &Path) {
    let mode = OpenMode {
        read_only: true,
        ..OpenMode::default()
    };
    let bytes = open_bytes(path, mode, &[]).unwrap();
    let report = check(&MemoryImage(&bytes), Options::default());
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// The head of the data device, and that of its replica.
fn heads(data: &Path) -> (MediumHead, Option<ReplicaHead>) {
    let bytes = std::fs::read(data).unwrap();
    let medium = MediumHead::unseal(&bytes).unwrap();
    let replica = ReplicaHead::unseal(&bytes[medium.replica_at as usize..], medium.pool);
    (medium, replica)
}

fn is_whole(data: &Path) -> bool {
    heads(data).1.is_some_and(|head| head.is_whole())
}

fn is_stale<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Medium(MediumError::Stale { .. })))
}

fn is_damaged<T>(result: &Result<T, Error>) -> bool {
    matches!(
        result,
        Err(Error::Medium(MediumError::ReplicaDamaged { .. }))
    )
}

#[test]
fn a_data_device_with_a_replica_is_the_file_system() {
    for namespace in NamespaceKind::ALL {
        for mapping in [MappingKind::Extent, MappingKind::HashFs] {
            let dir = in_memory();
            let data = dir.path().join("data");
            let path = dir.path().join("pool");
            let options = options(data.clone()).namespace(namespace).mapping(mapping);
            let pool = options.create(&path).unwrap();
            assert!(!is_whole(&data));
            fill(&pool.volume());
            let before = tree(&pool.volume());
            let replica = export(pool);
            assert_eq!(
                replica.changed, replica.blocks,
                "the first export copies everything"
            );
            assert!(replica.written < replica.blocks / 2, "zeros were written");
            assert!(is_whole(&data));
            let new = dir.path().join("new");
            attach(&new, &data).unwrap();
            assert!(is_whole(&data), "nothing has changed yet");
            assert_clean(&new);
            let there = open(&new).unwrap();
            assert!(!is_whole(&data));
            assert!(there.opened().was_clean);
            assert!(tree(&there.volume()) == before, "{namespace:?} {mapping:?}");
            // The imported pool is used further, and imported back.
            there.volume().write("/more", [9; 9000]).unwrap();
            let before = tree(&there.volume());
            let again = export(there);
            assert!(again.changed < 60, "{again:?}");
            let back = dir.path().join("back");
            attach(&back, &data).unwrap();
            assert_clean(&back);
            assert!(tree(&open(&back).unwrap().volume()) == before);
        }
    }
}

#[test]
fn a_replica_is_refused_after_further_use_or_without_a_close() {
    let dir = in_memory();
    let (path, pool) = made(dir.path());
    let (data, new) = (dir.path().join("data"), dir.path().join("new"));
    fill(&pool.volume());
    pool.close().unwrap();
    assert!(is_stale(attach(&new, &data)), "never exported");
    export(open(&path).unwrap());
    // One crash before the first change, and one after some.
    let pool = open(&path).unwrap();
    let copy = dir.path().join("copy");
    std::fs::copy(&data, &copy).unwrap();
    assert!(is_stale(attach(&new, &copy)));
    assert!(
        matches!(
            attach(&new, &data),
            Err(Error::Media(MediaError::Busy { .. }))
        ),
        "in use"
    );
    pool.volume().write("/more", b"more").unwrap();
    pool.volume().sync().unwrap();
    std::fs::copy(&data, &copy).unwrap();
    assert!(is_stale(attach(&new, &copy)));
    pool.close().unwrap();
    assert!(is_stale(attach(&new, &data)));
    assert!(!new.exists());
    export(open(&path).unwrap());
    // A read-only opening changes nothing.
    let read_only = PoolOptions::new().read_only(true);
    drop(read_only.open(&path).unwrap());
    attach(&new, &data).unwrap();
    assert_eq!(open(&new).unwrap().volume().read("/more").unwrap(), b"more");
}

#[test]
fn the_old_pool_rejects_the_device() {
    let dir = in_memory();
    let (path, pool) = made(dir.path());
    let (data, new) = (dir.path().join("data"), dir.path().join("new"));
    fill(&pool.volume());
    export(pool);
    let before = heads(&data).0;
    attach(&new, &data).unwrap();
    let after = heads(&data).0;
    assert_ne!(before.id, after.id);
    let read_only = PoolOptions::new().read_only(true);
    for options in [PoolOptions::default(), read_only] {
        let old = options.open(&path).map(drop);
        let foreign = matches!(old, Err(Error::Medium(MediumError::Foreign { .. })));
        assert!(foreign, "{old:?}");
    }
    // By the copy of the head, too.
    let file = File::options().write(true).open(&data).unwrap();
    file.write_all_at(&[0; 512], 0).unwrap();
    assert!(open(&path).is_err());
    drop(open(&new).unwrap());
    assert_eq!(heads(&data).0.id, after.id);
    // An existing pool is not overwritten by accident, and a target other than persistent memory
    // never.
    export(open(&new).unwrap());
    let exists = attach(&path, &data);
    assert!(matches!(
        exists,
        Err(Error::Media(MediaError::Exists { .. }))
    ));
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let refused = attach(&on_disk.path().join("pool"), &data);
    let is_unordered = matches!(refused, Err(Error::Medium(MediumError::Unordered { .. })));
    assert!(is_unordered, "{refused:?}");
    assert!(!on_disk.path().join("pool").exists());
    assert!(is_whole(&data));
}

#[test]
fn a_small_change_is_a_few_blocks() {
    let dir = in_memory();
    let (path, pool) = made(dir.path());
    let volume = pool.volume();
    for number in 0..2000 {
        volume.write(format!("/{number}"), b"some").unwrap();
    }
    drop(volume);
    let first = export(pool);
    assert!(first.written > 100, "{first:?}");
    let nothing = export(open(&path).unwrap());
    let pool = open(&path).unwrap();
    pool.volume().write("/7", b"another").unwrap();
    pool.volume().create_dir("/dir").unwrap();
    let few = export(pool);
    assert!(few.changed <= nothing.changed + 6, "{nothing:?} {few:?}");
    assert!(nothing.changed <= 10, "{nothing:?}");
    assert_eq!((few.number, few.sums_written), (3, 1));
    // Unless a full copy is requested.
    let pool = open(&path).unwrap();
    let all = pool.close_and_export(true, &|_, _| {}).unwrap();
    assert_eq!(all.changed, all.blocks);
    assert!(all.written >= first.written);
}

/// Pools whose map of changes belongs to another replica: everything is copied.
#[test]
fn a_map_of_another_replica_is_ignored() {
    let dir = in_memory();
    let (path, pool) = made(dir.path());
    let data = dir.path().join("data");
    let plan = ReplicaPlan::of(&pool.superblock().geometry()).unwrap();
    let changed_at = pool.superblock().changed_at;
    fill(&pool.volume());
    export(pool);
    let medium = heads(&data).0;
    let put = |path: &Path, at, bytes: &[u8]| {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(bytes, at).unwrap();
    };
    let table_at = medium.replica_at + 4096;
    for round in 0..4 {
        let pool = open(&path).unwrap();
        pool.volume().write(format!("/r{round}"), b"round").unwrap();
        let before = tree(&pool.volume());
        pool.close().unwrap();
        match round {
            0 => put(&path, changed_at + ChangedMap::SINCE, &[77]),
            1 => put(&data, medium.replica_at, &[0xFF; 512]),
            2 => put(&data, table_at, &[0xFF; 8]),
            _ => drop(Pool::settle_image(&path, &PoolOptions::default()).unwrap()),
        }
        let replica = export(open(&path).unwrap());
        assert_eq!(replica.changed, plan.blocks, "round {round}");
        let (copy, new) = (dir.path().join("copy"), dir.path().join("new"));
        std::fs::copy(&data, &copy).unwrap();
        attach(&new, &copy).unwrap();
        assert!(tree(&open(&new).unwrap().volume()) == before);
        std::fs::remove_file(&new).unwrap();
    }
}

#[test]
fn a_damaged_replica_is_refused() {
    let dir = in_memory();
    let (path, pool) = made(dir.path());
    let (data, new) = (dir.path().join("data"), dir.path().join("new"));
    fill(&pool.volume());
    export(pool);
    let medium = heads(&data).0;
    let sound = std::fs::read(&data).unwrap();
    let plan = ReplicaPlan {
        at: medium.replica_at,
        blocks: heads(&data).1.unwrap().blocks,
    };
    let sum_at = |number: u64| (plan.table_at() + number * 8) as usize;
    let has_block = |&number: &u64| sound[sum_at(number)..][..8] != [0; 8];
    let numbers: Vec<u64> = (0..plan.blocks).filter(has_block).collect();
    let blocks = numbers
        .iter()
        .map(|&number| plan.block_at(number) + number % 4096);
    let sums = (0..plan.table_bytes())
        .step_by(511)
        .map(|at| plan.table_at() + at);
    let file = File::options().write(true).open(&data).unwrap();
    for at in blocks.step_by(3).chain(sums) {
        file.write_all_at(&[sound[at as usize] ^ 1], at).unwrap();
        let refused = attach(&new, &data);
        assert!(is_damaged(&refused), "{at}: {refused:?}");
        assert!(!new.exists());
        file.write_all_at(&sound[at as usize..][..1], at).unwrap();
    }
    for at in plan.at..plan.at + 512 {
        file.write_all_at(&[sound[at as usize] ^ 1], at).unwrap();
        assert!(is_stale(attach(&new, &data)), "{at}");
        file.write_all_at(&sound[at as usize..][..1], at).unwrap();
    }
    // A file that ends too early, and files that are no data devices.
    let short = dir.path().join("short");
    std::fs::write(&short, &sound[..plan.block_at(3) as usize]).unwrap();
    assert!(is_damaged(&attach(&new, &short)));
    std::fs::write(&short, b"something else").unwrap();
    for other in [&short, &path] {
        let refused = attach(&new, other);
        assert!(matches!(
            refused,
            Err(Error::Medium(MediumError::NoMedium { .. }))
        ));
    }
    // None of this has changed anything.
    attach(&new, &data).unwrap();
}

#[test]
fn pools_without_space_for_a_replica_report_that() {
    let dir = in_memory();
    let data = dir.path().join("data");
    let none = options(data.clone()).has_replica(false);
    let logged = options(dir.path().join("logged-data")).media(MediaChoice::Logged);
    let pools = [
        none.create(dir.path().join("none")).unwrap(),
        logged.create(dir.path().join("logged")).unwrap(),
        Pool::memory(8 << 20).unwrap(),
    ];
    for pool in pools {
        assert_eq!(pool.superblock().changed_at, 0);
        let refused = pool.close_and_export(false, &|_, _| {});
        assert!(matches!(
            refused,
            Err(Error::Medium(MediumError::NoReplica))
        ));
    }
    assert!(open(&dir.path().join("none")).unwrap().opened().was_clean);
    let refused = attach(&dir.path().join("new"), &data);
    assert!(matches!(
        refused,
        Err(Error::Medium(MediumError::NotAReplica { .. }))
    ));
}

/// Target files whose pages already contain something.
#[test]
fn an_overwritten_target_keeps_nothing() {
    let dir = in_memory();
    let (_, pool) = made(dir.path());
    let (data, new) = (dir.path().join("data"), dir.path().join("new"));
    fill(&pool.volume());
    let before = tree(&pool.volume());
    export(pool);
    std::fs::write(&new, vec![0xEE; 1 << 20]).unwrap();
    let options = AttachOptions {
        data,
        media: MediaChoice::Memory,
        overwrite: true,
    };
    Pool::attach(&new, &options, &|_, _| {}).unwrap();
    assert_clean(&new);
    assert!(tree(&open(&new).unwrap().volume()) == before);
}

/// A pool that cannot be closed cleanly has no replica either.
#[test]
fn a_pool_that_cannot_be_closed_exports_nothing() {
    let dir = in_memory();
    let (_, pool) = made(dir.path());
    let volume = pool.volume();
    let file = volume.create("/open").unwrap();
    volume.remove_file("/open").unwrap();
    let refused = pool.close_and_export(false, &|_, _| {});
    assert!(matches!(refused, Err(Error::Busy)));
    drop(file);
    assert!(!is_whole(&dir.path().join("data")));
}
