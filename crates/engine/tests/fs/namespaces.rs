//! Costs of namespaces, and their behaviour in full pools and with equal hashes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use vellum::media::{MappedArena, MappedPool, Real, count};
use vellum::{
    Clock, Cred, Error, FileKind, FormatOptions, Fs, ListPosition, MountOptions, NamespaceKind,
    Node, RenameFlags, attach, format,
};
use vellum_layout::name_hash;

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

/// Average number of flushed lines and of fences per call, over many calls.
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

/// Costs of operations on names of equal length: lines and fences.
fn costs(namespace: NamespaceKind) -> [(&'static str, (f64, f64)); 8] {
    let fs = made(namespace, 64 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let [d, e] = [b"d", b"e"].map(|name| fs.mkdir(&cred, &root, name, 0o755).unwrap());
    let plain = RenameFlags::empty();
    let rename = |from: &Node<Real>, name: &[u8], to: &Node<Real>, new: &[u8]| {
        fs.rename(&cred, from, name, to, new, plain).unwrap();
    };
    let held = file(&fs, &root, b"held").unwrap();
    let moved = |name: &[u8]| [b"m", &name[1..]].concat();
    let create = cost(|name| drop(file(&fs, &d, name).unwrap()));
    let link = cost(|name| fs.link(&cred, &held, &e, name).unwrap());
    let unlink_one = cost(|name| fs.unlink(&cred, &e, name).unwrap());
    let rename_within = cost(|name| rename(&d, name, &d, &moved(name)));
    let rename_across = cost(|name| rename(&d, &moved(name), &e, name));
    let unlink = cost(|name| fs.unlink(&cred, &e, name).unwrap());
    let mkdir = cost(|name| drop(fs.mkdir(&cred, &d, name, 0o755).unwrap()));
    let rmdir = cost(|name| fs.rmdir(&cred, &d, name).unwrap());
    [
        ("create", create),
        ("link", link),
        ("unlink, further names", unlink_one),
        ("rename", rename_within),
        ("rename across", rename_across),
        ("unlink", unlink),
        ("mkdir", mkdir),
        ("rmdir", rmdir),
    ]
}

fn assert_within(namespace: NamespaceKind, budgets: [(f64, f64); 8]) {
    for ((what, (lines, fences)), (most_lines, most_fences)) in
        costs(namespace).into_iter().zip(budgets)
    {
        println!("{what}: {lines:.2} lines, {fences:.2} fences");
        assert!(lines <= most_lines + 0.15, "{what}: {lines} lines");
        assert!(fences <= most_fences + 0.1, "{what}: {fences} fences");
    }
}

/// The baseline is a fair one: these are the lines and fences that coupling name and inode needs,
/// and three fences in 80 operations for the log to grow.
#[test]
fn operations_of_the_baseline_keep_to_their_budgets() {
    let budgets = [
        (7.5, 4.0),
        (6.5, 3.0),
        (6.5, 3.0),
        (7.2, 3.0),
        (9.0, 3.0),
        (5.5, 3.0),
        (7.5, 4.0),
        (5.5, 3.0),
    ];
    assert_within(NamespaceKind::Tree, budgets);
}

#[test]
fn operations_on_names_in_areas_keep_to_their_budgets() {
    let budgets = [
        (6.0, 2.0),
        (6.0, 2.0),
        (3.0, 1.0),
        (9.0, 3.0),
        (9.0, 3.0),
        (1.0, 1.0),
        (6.0, 2.0),
        (1.0, 1.0),
    ];
    assert_within(NamespaceKind::Adaptive, budgets);
}

/// Copies of two lines each, and what leads to them. The number of fences does not depend on the
/// number of copies.
#[test]
fn a_directory_in_an_area_is_moved_for_three_lines_a_name() {
    let fs = made(NamespaceKind::Adaptive, 64 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let held = file(&fs, &root, b"held").unwrap();
    let d = fs.mkdir(&cred, &root, b"d", 0o755).unwrap();
    let moved = |from: &[u8], to: &[u8]| {
        let before = count::of_this_thread();
        let plain = RenameFlags::empty();
        fs.rename(&cred, &root, from, &root, to, plain).unwrap();
        let after = count::of_this_thread();
        let lines = after.lines_flushed - before.lines_flushed;
        (lines, after.fences - before.fences)
    };
    for number in 0..MANY {
        let name = format!("name{number:04}");
        fs.link(&cred, &held, &d, name.as_bytes()).unwrap();
    }
    // The first move allocates the chunks that contain the copies.
    let costs = [(&b"d"[..], &b"e"[..]), (b"e", b"d")].map(|(from, to)| moved(from, to));
    let (lines, fences) = costs[1];
    let each = lines as f64 / MANY as f64;
    println!("{each:.2} lines a name, {fences} fences");
    assert!(each < 3.0 && fences == 6, "{each} lines, {fences} fences");
}

/// A root is moved like a file, even into another area: nothing below it is written.
#[test]
fn renaming_a_root_costs_the_same_whatever_is_below() {
    let costs = [1, 1000, 10_000].map(|count| {
        let fs = made(NamespaceKind::Adaptive, 64 << 20);
        let (cred, root) = (Cred::root(), fs.root());
        let [d, to] = [b"d", b"t"].map(|name| fs.mkdir(&cred, &root, name, 0o755).unwrap());
        let held = file(&fs, &root, b"held").unwrap();
        // A directory's first name allocates a log.
        fs.link(&cred, &held, &to, b"first").unwrap();
        for number in 0..count {
            let name = format!("name{number:05}");
            fs.link(&cred, &held, &d, name.as_bytes()).unwrap();
        }
        assert!(fs.split(&d).unwrap() && fs.split(&to).unwrap());
        let renames = [
            (&root, &b"d"[..], &root, &b"e"[..]),
            (&root, b"e", &to, b"d"),
        ];
        renames.map(|(from, name, into, new)| {
            let before = count::of_this_thread();
            let plain = RenameFlags::empty();
            fs.rename(&cred, from, name, into, new, plain).unwrap();
            let after = count::of_this_thread();
            let lines = after.lines_flushed - before.lines_flushed;
            (lines, after.fences - before.fences)
        })
    });
    println!("{costs:?}");
    assert!(costs.iter().all(|cost| *cost == costs[0]), "{costs:?}");
    assert!(
        costs[0]
            .iter()
            .all(|&(lines, fences)| lines <= 11 && fences == 3),
        "{costs:?}"
    );
}

/// Two names with the same hash.
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

/// A log with a record for each removal could once not be emptied without space for one more
/// record.
#[test]
fn a_full_pool_can_remove_names() {
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
            let mut count = |_: vellum::ListEntry<'_>| {
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
