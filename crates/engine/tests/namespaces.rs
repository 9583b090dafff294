//! What ways of keeping names cost, and what they do in tight places.
#![allow(missing_docs)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use vellum::media::{MappedArena, MappedPool, Memory, Real, count};
use vellum::{
    Clock, Cred, Error, FileKind, FormatOptions, Fs, ListPosition, MountOptions, NamespaceKind,
    Node, RenameFlags, attach, format,
};
use vellum_layout::{AreaPlan, name_hash};
use zerocopy::IntoBytes;

const SEED: u64 = 0x5EED;
/// Operations over which costs are averaged.
const MANY: u64 = 2000;

fn made(namespace: NamespaceKind, bytes: u64) -> Arc<Fs<Real>> {
    let pool = MappedPool::anonymous(bytes).unwrap();
    let options = FormatOptions {
        namespace,
        hash_seed: SEED,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    let options = MountOptions {
        clock: Clock::Counter(AtomicI64::new(1000)),
        ..MountOptions::default()
    };
    attach::<Real>(pool, |len| Ok(MappedArena::new(len)?), options)
        .unwrap()
        .0
}

fn file(fs: &Arc<Fs<Real>>, dir: &Node<Real>, name: &[u8]) -> Result<Node<Real>, Error> {
    fs.mknod(&Cred::root(), dir, name, FileKind::File, 0o644, 0)
}

fn assert_sound(fs: &Fs<Real>) {
    let report = vellum_check::check(&fs.image(), vellum_check::Options::default());
    assert!(report.is_sound(), "{report}");
}

#[test]
fn a_pool_with_areas_is_neither_made_nor_opened() {
    let pool = MappedPool::anonymous(4 << 20).unwrap();
    let options = FormatOptions {
        known_zero: true,
        ..FormatOptions::default()
    };
    let asked = FormatOptions {
        namespace: NamespaceKind::Adaptive,
        ..options.clone()
    };
    assert!(matches!(format(&pool, &asked), Err(Error::Invalid(_))));
    let mut superblock = format(&pool, &options).unwrap();
    let areas = AreaPlan::usual(superblock.chunk_bytes);
    let record = &mut superblock.file_systems[0];
    record.namespace = NamespaceKind::Adaptive as u32;
    (record.area_table, record.area_bytes, record.size_max) =
        (areas.table, areas.bytes, areas.size_max);
    superblock.sequence += 1;
    superblock.seal();
    assert_eq!(superblock.check_readable(), Ok(()));
    pool.write(0, superblock.as_bytes());
    let opened = attach::<Real>(
        pool,
        |len| Ok(MappedArena::new(len)?),
        MountOptions::default(),
    );
    assert!(matches!(opened, Err(Error::Invalid(_))));
}

/// Lines flushed and fences of each of many calls, on average.
fn cost(mut call: impl FnMut(&[u8])) -> (f64, f64) {
    let before = count::of_this_thread();
    for number in 0..MANY {
        call(format!("name{number:04}").as_bytes());
    }
    let after = count::of_this_thread();
    let each = |after: u64, before: u64| (after - before) as f64 / MANY as f64;
    (
        each(after.lines_flushed, before.lines_flushed),
        each(after.fences, before.fences),
    )
}

/// The baseline is no straw man: these are the lines and fences that coupling name and inode needs, and three
/// fences of 80 operations more for the log to grow.
#[test]
fn operations_of_the_baseline_keep_to_their_budgets() {
    let fs = made(NamespaceKind::Tree, 64 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let [d, e] = [b"d", b"e"].map(|name| fs.mkdir(&cred, &root, name, 0o755).unwrap());
    let plain = RenameFlags::empty();
    let rename = |from: &Node<Real>, name: &[u8], to: &Node<Real>, new: &[u8]| {
        fs.rename(&cred, from, name, to, new, plain).unwrap();
    };
    let held = file(&fs, &root, b"held").unwrap();
    let moved = |name: &[u8]| [b"m", &name[1..]].concat();
    let costs = [
        (
            "create",
            cost(|name| drop(file(&fs, &d, name).unwrap())),
            7.5,
            4.0,
        ),
        (
            "link",
            cost(|name| fs.link(&cred, &held, &e, name).unwrap()),
            6.5,
            3.0,
        ),
        (
            "unlink, further names",
            cost(|name| fs.unlink(&cred, &e, name).unwrap()),
            6.5,
            3.0,
        ),
        (
            "rename",
            cost(|name| rename(&d, name, &d, &moved(name))),
            7.2,
            3.0,
        ),
        (
            "rename across",
            cost(|name| rename(&d, &moved(name), &e, name)),
            9.0,
            3.0,
        ),
        (
            "unlink",
            cost(|name| fs.unlink(&cred, &e, name).unwrap()),
            5.5,
            3.0,
        ),
        (
            "mkdir",
            cost(|name| drop(fs.mkdir(&cred, &d, name, 0o755).unwrap())),
            7.5,
            4.0,
        ),
        (
            "rmdir",
            cost(|name| fs.rmdir(&cred, &d, name).unwrap()),
            5.5,
            3.0,
        ),
    ];
    for (what, (lines, fences), most_lines, most_fences) in costs {
        println!("{what}: {lines:.2} lines, {fences:.2} fences");
        assert!(lines <= most_lines + 0.15, "{what}: {lines} lines");
        assert!(fences <= most_fences + 0.1, "{what}: {fences} fences");
    }
}

/// Two names with one hash.
fn colliding() -> [String; 2] {
    let mut seen = HashMap::new();
    (0u64..)
        .find_map(|number| {
            let name = format!("n{number}");
            let other = seen.insert(name_hash(SEED, name.as_bytes()), name.clone());
            other.map(|other| [other, name])
        })
        .unwrap()
}

#[test]
fn names_whose_hashes_are_equal_are_two_names() {
    let names = colliding();
    let [one, other] = names.each_ref().map(String::as_bytes);
    for namespace in NamespaceKind::ALL {
        let fs = made(namespace, 8 << 20);
        let (cred, root) = (Cred::root(), fs.root());
        let first = file(&fs, &root, one).unwrap();
        let absent = fs.lookup(&cred, &root, other);
        assert!(matches!(absent, Err(Error::NotFound)), "{namespace:?}");
        let second = file(&fs, &root, other).unwrap();
        for (name, node) in [(one, &first), (other, &second)] {
            assert_eq!(fs.lookup(&cred, &root, name).unwrap().ino(), node.ino());
        }
        fs.unlink(&cred, &root, one).unwrap();
        let gone = fs.lookup(&cred, &root, one);
        assert!(matches!(gone, Err(Error::NotFound)), "{namespace:?}");
        assert_eq!(fs.lookup(&cred, &root, other).unwrap().ino(), second.ino());
    }
}

/// A log with a record for each removal could not be emptied where there was no room for one.
#[test]
fn a_full_pool_lets_names_go() {
    for namespace in NamespaceKind::ALL {
        let fs = made(namespace, 1 << 20);
        let (cred, root) = (Cred::root(), fs.root());
        let dirs: Vec<_> = (0..5)
            .map(|number| fs.mkdir(&cred, &root, &[b'a' + number], 0o755).unwrap())
            .collect();
        let held = file(&fs, &root, b"held").unwrap();
        let name = |number: usize| format!("{number:0>60}").into_bytes();
        let mut made = 0;
        while fs.link(&cred, &held, &dirs[made % 5], &name(made)).is_ok() {
            made += 1;
        }
        assert!(made > 100, "{namespace:?}: {made}");
        for number in 0..made {
            fs.unlink(&cred, &dirs[number % 5], &name(number)).unwrap();
        }
        for (number, dir) in dirs.into_iter().enumerate() {
            let mut names = 0;
            let mut position = ListPosition::default();
            let mut count = |_: vellum::DirEntry<'_>| {
                names += 1;
                true
            };
            fs.list(&dir, 0, &mut position, &mut count).unwrap();
            assert_eq!(names, 0, "{namespace:?}");
            drop(dir);
            fs.rmdir(&cred, &root, &[b'a' + number as u8]).unwrap();
        }
        assert_eq!(fs.attr(&held).unwrap().nlink, 1);
        drop((held, root));
        fs.close().unwrap();
        assert_sound(&fs);
    }
}
