//! Moves of directories with everything below them, where entries contain paths; and areas, whose
//! roots are moved alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use vellum::media::{MappedArena, MappedPool, Memory, Persistent, Real, Site};
use vellum::{
    Clock, Cred, Error, FileKind, FormatOptions, Fs, ListPosition, MountOptions, NamespaceKind,
    Node, RenameFlags, attach, format,
};
use vellum_check::survey::{Survey, superblock};
use vellum_check::{Options, check};

const PLAIN: RenameFlags = RenameFlags::empty();

fn attached(pool: MappedPool) -> Arc<Fs<Real>> {
    let options = MountOptions {
        clock: Clock::Counter(AtomicI64::new(1000)),
        ..MountOptions::default()
    };
    attach::<Real>(pool, |len| Ok(MappedArena::new(len)?), options)
        .unwrap()
        .0
}

fn made(bytes: u64) -> Arc<Fs<Real>> {
    made_in(NamespaceKind::Adaptive, bytes)
}

fn made_in(namespace: NamespaceKind, bytes: u64) -> Arc<Fs<Real>> {
    let pool = MappedPool::anonymous(bytes).unwrap();
    let options = FormatOptions {
        namespace,
        has_fixed_metadata: true,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    attached(pool)
}

/// The pool after a crash that loses nothing, opened again.
fn crashed(fs: &Fs<Real>) -> Arc<Fs<Real>> {
    let image = fs.image();
    let pool = MappedPool::anonymous(image.len() as u64).unwrap();
    pool.write(0, &image);
    pool.flush(Site::UNNAMED, 0, image.len() as u64);
    attached(pool)
}

fn file(fs: &Arc<Fs<Real>>, dir: &Node<Real>, name: &[u8]) -> Result<Node<Real>, Error> {
    fs.mknod(&Cred::root(), dir, name, FileKind::File, 0o644, 0)
}

fn mkdir(fs: &Arc<Fs<Real>>, dir: &Node<Real>, name: &[u8]) -> Node<Real> {
    fs.mkdir(&Cred::root(), dir, name, 0o755).unwrap()
}

fn names(fs: &Arc<Fs<Real>>, dir: &Node<Real>, after: u64, most: usize) -> Vec<(Vec<u8>, u64)> {
    let mut found = Vec::new();
    fs.list(dir, after, &mut ListPosition::default(), &mut |entry| {
        let is_wanted = found.len() < most;
        if is_wanted {
            found.push((entry.name.to_vec(), entry.cookie));
        }
        is_wanted
    })
    .unwrap();
    found
}

/// Every path with its inode, found by listing and by lookups.
fn tree(fs: &Arc<Fs<Real>>) -> BTreeMap<Vec<u8>, u64> {
    let (mut all, mut dirs) = (BTreeMap::new(), vec![(Vec::new(), fs.root())]);
    while let Some((path, dir)) = dirs.pop() {
        for (name, _) in names(fs, &dir, 0, usize::MAX) {
            let path = [&path[..], b"/", &name].concat();
            let node = fs.lookup(&Cred::root(), &dir, &name).unwrap();
            all.insert(path.clone(), node.ino());
            if node.kind() == FileKind::Directory {
                dirs.push((path, node));
            }
        }
    }
    all
}

/// Asserts that the tree is the same after a crash and after a close, and that both pools are
/// sound.
fn assert_whole(fs: &Arc<Fs<Real>>) {
    let before = tree(fs);
    assert!(check(&fs.image(), Options::default()).is_sound());
    let other = crashed(fs);
    assert_eq!(tree(&other), before, "after a crash");
    other.close().unwrap();
    let report = check(&other.image(), Options::default());
    assert!(report.findings.is_empty(), "{report}");
}

fn sum(tree: &BTreeMap<Vec<u8>, u64>, from: &[u8], to: &[u8]) -> BTreeMap<Vec<u8>, u64> {
    let renamed = |(path, ino): (&Vec<u8>, &u64)| {
        let rest = path.strip_prefix(from);
        let rest = rest.filter(|rest| rest.is_empty() || rest[0] == b'/');
        let path = rest.map_or(path.clone(), |rest| [to, rest].concat());
        (path, *ino)
    };
    tree.iter().map(renamed).collect()
}

/// Directories with files and directories, down to three levels.
fn grown(fs: &Arc<Fs<Real>>, top: &[u8], width: usize) -> Node<Real> {
    let dir = mkdir(fs, &fs.root(), top);
    for one in 0..width {
        let inner = mkdir(fs, &dir, format!("dir{one}").as_bytes());
        for two in 0..width {
            file(fs, &inner, format!("file{two}").as_bytes()).unwrap();
        }
        let innermost = mkdir(fs, &inner, b"in");
        file(fs, &innermost, b"innermost").unwrap();
    }
    dir
}

#[test]
fn everything_below_moves_along() {
    let fs = made(16 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    grown(&fs, b"a", 20);
    let mut expected = tree(&fs);
    let b = mkdir(&fs, &root, b"b");
    expected.insert(b"/b".to_vec(), b.ino());
    let mut step = |(path, from, name): (&[u8], &Node<Real>, &[u8]),
                    (after, to, new): (&[u8], &Node<Real>, &[u8])| {
        fs.rename(&cred, from, name, to, new, PLAIN).unwrap();
        expected = sum(&expected, path, after);
        assert_eq!(tree(&fs), expected, "{}", after.escape_ascii());
        assert_whole(&fs);
    };
    step((b"/a", &root, b"a"), (b"/renamed", &root, b"renamed"));
    step(
        (b"/renamed", &root, b"renamed"),
        (b"/b/below", &b, b"below"),
    );
    step((b"/b", &root, b"b"), (b"/c", &root, b"c"));
    step((b"/c/below", &b, b"below"), (b"/a", &root, b"a"));
    drop(b);
    let free = fs.stat_fs().files_free;
    for _ in 0..50 {
        fs.rename(&cred, &root, b"a", &root, b"d", PLAIN).unwrap();
        fs.rename(&cred, &root, b"d", &root, b"a", PLAIN).unwrap();
    }
    assert_eq!(tree(&fs), expected);
    while fs.maintain().unwrap() > 0 {}
    assert!(fs.stat_fs().files_free + 200 > free, "copies are freed");
    assert_whole(&fs);
}

#[test]
fn directories_replace_directories_and_are_exchanged() {
    let fs = made(16 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let a = grown(&fs, b"a", 5);
    let b = grown(&fs, b"b", 3);
    let before = tree(&fs);
    let refused = fs.rename(&cred, &root, b"a", &root, b"b", PLAIN);
    assert!(matches!(refused, Err(Error::NotEmpty)), "{refused:?}");
    let within = fs.rename(&cred, &root, b"a", &a, b"b", PLAIN);
    assert!(matches!(within, Err(Error::Invalid(_))), "{within:?}");
    assert_eq!(tree(&fs), before);

    let swap = RenameFlags::EXCHANGE;
    fs.rename(&cred, &root, b"a", &root, b"b", swap).unwrap();
    let turned = sum(
        &sum(&sum(&before, b"/a", b"/t"), b"/b", b"/a"),
        b"/t",
        b"/b",
    );
    assert_eq!(tree(&fs), turned);
    assert_whole(&fs);
    // Exchanges a directory with a file that lies elsewhere, and with an empty directory.
    fs.rename(&cred, &a, b"dir0", &b, b"dir1", swap).unwrap();
    let inner = fs.lookup(&cred, &a, b"dir1").unwrap();
    fs.rename(&cred, &a, b"dir0", &inner, b"file0", swap)
        .unwrap();
    mkdir(&fs, &root, b"empty");
    fs.rename(&cred, &root, b"empty", &a, b"dir1", swap)
        .unwrap();
    assert_whole(&fs);
    fs.rename(&cred, &root, b"empty", &a, b"dir1", PLAIN)
        .unwrap();
    assert_whole(&fs);
    assert_eq!(tree(&fs).len(), before.len());
}

/// Cookies stay, so that a listing continues where it was.
#[test]
fn a_listing_continues_after_a_move() {
    let fs = made(16 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let dir = mkdir(&fs, &root, b"dir");
    for number in 0..1000 {
        file(&fs, &dir, format!("{number}").as_bytes()).unwrap();
    }
    let all = names(&fs, &dir, 0, usize::MAX);
    let mut seen = names(&fs, &dir, 0, 500);
    fs.rename(&cred, &root, b"dir", &root, b"other", PLAIN)
        .unwrap();
    seen.extend(names(&fs, &dir, seen[499].1, usize::MAX));
    assert_eq!(seen, all);
    assert_eq!(names(&fs, &dir, 0, usize::MAX), all);
}

/// Paths of deep names start again, so nothing is too deep; a move changes where they start.
#[test]
fn paths_may_have_any_length() {
    let fs = made(16 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let long = [b'n'; 255];
    let top = mkdir(&fs, &root, b"top");
    let mut at = top.clone();
    for _ in 0..40 {
        at = mkdir(&fs, &at, &long);
        file(&fs, &at, b"file").unwrap();
    }
    let before = tree(&fs);
    assert_whole(&fs);
    let mut elsewhere = mkdir(&fs, &root, b"elsewhere");
    let mut path = b"/elsewhere".to_vec();
    for _ in 0..7 {
        elsewhere = mkdir(&fs, &elsewhere, &[b'e'; 130]);
        path.extend([&b"/"[..], &[b'e'; 130]].concat());
        let moved = [&path[..], b"/top"].concat();
        fs.rename(&cred, &root, b"top", &elsewhere, b"top", PLAIN)
            .unwrap();
        let mut expected = sum(&before, b"/top", &moved);
        expected.retain(|path, _| path.starts_with(&moved));
        let mut found = tree(&fs);
        found.retain(|path, _| path.starts_with(&moved));
        assert_eq!(found, expected);
        assert_whole(&fs);
        fs.rename(&cred, &elsewhere, b"top", &root, b"top", PLAIN)
            .unwrap();
        let mut found = tree(&fs);
        found.retain(|path, _| path.starts_with(b"/top"));
        assert_eq!(found, before);
        assert_whole(&fs);
    }
}

/// A move holds the names twice for a while. If there is no space for that, nothing changes.
#[test]
fn a_move_without_room_changes_nothing() {
    let fs = made(1 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let held = file(&fs, &root, b"held").unwrap();
    let [large, small] = [b"large", b"small"].map(|name| mkdir(&fs, &root, name));
    let name = |number: usize| format!("{number:0>60}").into_bytes();
    for number in 0..5 {
        fs.link(&cred, &held, &small, &name(number)).unwrap();
    }
    let mut made = 0;
    while fs.link(&cred, &held, &large, &name(made)).is_ok() {
        made += 1;
    }
    // For the copies in `small`, and the entry of each move.
    for number in 0..20 {
        fs.unlink(&cred, &large, &name(number)).unwrap();
    }
    let before = tree(&fs);
    let refused = fs.rename(&cred, &root, b"large", &root, b"larger", PLAIN);
    assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
    assert_eq!(tree(&fs), before);
    assert_whole(&fs);
    fs.rename(&cred, &root, b"small", &root, b"smaller", PLAIN)
        .unwrap();
    assert_whole(&fs);
    fs.unlink(&cred, &large, &name(20)).unwrap();
    assert_eq!(names(&fs, &large, 0, usize::MAX).len(), made - 21);
}

/// The number of areas.
fn areas(fs: &Fs<Real>) -> usize {
    let image = fs.image();
    let survey = Survey::of(&image, &superblock(&image).unwrap());
    survey.logs.areas.list.len()
}

#[test]
fn areas_come_and_go_and_nothing_else_changes() {
    let fs = made(16 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let a = grown(&fs, b"a", 6);
    let inner = fs.lookup(&cred, &a, b"dir3").unwrap();
    // The entries of removed names are of an area, too.
    for name in [&b"file0"[..], b"file2"] {
        fs.unlink(&cred, &inner, name).unwrap();
    }
    let before = tree(&fs);
    let changes: [(&Node<Real>, bool, usize); 8] = [
        (&a, true, 2),
        (&inner, true, 3),
        (&a, false, 2),
        (&a, true, 3),
        (&inner, false, 2),
        (&inner, true, 3),
        (&inner, false, 2),
        (&a, false, 1),
    ];
    for (dir, split, count) in changes {
        let change = || if split { fs.split(dir) } else { fs.merge(dir) };
        assert!(change().unwrap());
        assert!(!change().unwrap(), "nothing is left to change");
        assert_eq!((areas(&fs), tree(&fs)), (count, before.clone()));
        assert_whole(&fs);
        file(&fs, &inner, b"new").unwrap();
        fs.unlink(&cred, &inner, b"new").unwrap();
        while fs.maintain().unwrap() > 0 {}
        assert_whole(&fs);
    }
    assert!(!fs.split(&root).unwrap());
    assert!(matches!(fs.merge(&root), Err(Error::Invalid(_))));
    let leaf = fs.lookup(&cred, &inner, b"file1").unwrap();
    assert!(matches!(fs.split(&leaf), Err(Error::NotDirectory)));
}

#[test]
fn roots_are_moved_and_what_is_below_them_is_not() {
    let fs = made(16 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let a = grown(&fs, b"a", 4);
    let b = grown(&fs, b"b", 3);
    let inner = fs.lookup(&cred, &a, b"dir1").unwrap();
    for dir in [&a, &inner, &b] {
        assert!(fs.split(dir).unwrap());
    }
    let mut expected = tree(&fs);
    let mut step = |(from, name): (&Node<Real>, &[u8]),
                    (to, new): (&Node<Real>, &[u8]),
                    (path, after): (&[u8], &[u8])| {
        fs.rename(&cred, from, name, to, new, PLAIN).unwrap();
        expected = sum(&expected, path, after);
        assert_eq!(tree(&fs), expected, "{}", after.escape_ascii());
        assert_whole(&fs);
    };
    step((&root, b"a"), (&b, b"a"), (b"/a", b"/b/a"));
    step((&root, b"b"), (&root, b"c"), (b"/b", b"/c"));
    step((&a, b"dir1"), (&root, b"d"), (b"/c/a/dir1", b"/d"));
    // A member is moved from one area into another, and a directory with a root below it.
    step((&a, b"dir2"), (&inner, b"dir2"), (b"/c/a/dir2", b"/d/dir2"));
    step((&b, b"dir0"), (&root, b"e"), (b"/c/dir0", b"/e"));
    let e = fs.lookup(&cred, &root, b"e").unwrap();
    step((&root, b"d"), (&e, b"d"), (b"/d", b"/e/d"));
    step((&root, b"e"), (&root, b"f"), (b"/e", b"/f"));
    let swap = RenameFlags::EXCHANGE;
    fs.rename(&cred, &root, b"f", &b, b"a", swap).unwrap();
    expected = sum(
        &sum(&sum(&expected, b"/f", b"/t"), b"/c/a", b"/f"),
        b"/t",
        b"/c/a",
    );
    assert_eq!(tree(&fs), expected);
    assert_whole(&fs);
    assert_eq!(areas(&fs), 4);
}

/// A directory without names, moved into another area, leaves no entries where they do not belong,
/// not even those of removed names.
#[test]
fn entries_of_removed_names_move_along() {
    let fs = made(16 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let [a, b] = [b"a", b"b"].map(|name| mkdir(&fs, &root, name));
    assert!(fs.split(&a).unwrap());
    let emptied = mkdir(&fs, &root, b"emptied");
    for number in 0..150 {
        let name = format!("{number}").into_bytes();
        drop(file(&fs, &emptied, &name).unwrap());
        fs.unlink(&cred, &emptied, &name).unwrap();
    }
    fs.rename(&cred, &root, b"emptied", &a, b"emptied", PLAIN)
        .unwrap();
    assert_whole(&fs);
    assert!(fs.merge(&a).unwrap());
    assert!(fs.split(&b).unwrap(), "the number is reused");
    assert_whole(&fs);
    while fs.maintain().unwrap() > 0 {}
    let swap = RenameFlags::EXCHANGE;
    fs.rename(&cred, &a, b"emptied", &root, b"b", swap).unwrap();
    assert_whole(&fs);
}

/// The table grows, numbers are reused, and a removed directory takes its area along.
#[test]
fn many_areas_come_and_go() {
    let fs = made(64 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let held = file(&fs, &root, b"held").unwrap();
    let name = |number: usize| format!("dir{number}").into_bytes();
    for number in 0..200 {
        let dir = mkdir(&fs, &root, &name(number));
        fs.link(&cred, &held, &dir, b"one").unwrap();
        assert!(fs.split(&dir).unwrap());
    }
    assert_eq!(areas(&fs), 201);
    assert_whole(&fs);
    for number in (0..200).step_by(2) {
        let dir = fs.lookup(&cred, &root, &name(number)).unwrap();
        fs.unlink(&cred, &dir, b"one").unwrap();
        drop(dir);
        fs.rmdir(&cred, &root, &name(number)).unwrap();
    }
    assert_whole(&fs);
    while fs.maintain().unwrap() > 0 {}
    assert_eq!(areas(&fs), 101);
    for number in 200..300 {
        assert!(fs.split(&mkdir(&fs, &root, &name(number))).unwrap());
    }
    assert_eq!(areas(&fs), 201);
    assert_whole(&fs);
}

/// An open directory that was removed keeps no area, and neither do removed names.
#[test]
fn an_open_removed_directory_keeps_no_area() {
    for merges in [false, true] {
        let fs = made(16 << 20);
        let (cred, root) = (Cred::root(), fs.root());
        let dir = mkdir(&fs, &root, b"dir");
        let inner = mkdir(&fs, &dir, b"inner");
        assert!(fs.split(&dir).unwrap());
        for number in 1..20 {
            drop(file(&fs, &inner, &[number]).unwrap());
            fs.unlink(&cred, &inner, &[number]).unwrap();
        }
        fs.rmdir(&cred, &dir, b"inner").unwrap();
        if merges {
            assert!(fs.merge(&dir).unwrap());
        } else {
            drop(dir);
            fs.rmdir(&cred, &root, b"dir").unwrap();
            while fs.maintain().unwrap() > 0 {}
        }
        assert_eq!(areas(&fs), 1);
        assert!(check(&fs.image(), Options::default()).is_sound());
        let other = mkdir(&fs, &root, b"other");
        assert!(fs.split(&other).unwrap());
        file(&fs, &other, b"name").unwrap();
        assert!(matches!(fs.split(&inner), Err(Error::NotFound)));
        assert_whole(&fs);
        drop(inner);
        while fs.maintain().unwrap() > 0 {}
        assert_whole(&fs);
    }
}

#[test]
fn an_area_without_room_changes_nothing() {
    let fs = made(1 << 20);
    let (cred, root) = (Cred::root(), fs.root());
    let held = file(&fs, &root, b"held").unwrap();
    let dir = mkdir(&fs, &root, b"dir");
    let name = |number: usize| format!("{number:0>60}").into_bytes();
    let mut made = 0;
    while fs.link(&cred, &held, &dir, &name(made)).is_ok() {
        made += 1;
    }
    let before = tree(&fs);
    assert!(matches!(fs.split(&dir), Err(Error::NoSpace(_))));
    assert_eq!((tree(&fs), areas(&fs)), (before, 1));
    assert_whole(&fs);
    for number in 0..made * 2 / 3 {
        fs.unlink(&cred, &dir, &name(number)).unwrap();
    }
    assert!(fs.split(&dir).unwrap());
    assert_whole(&fs);
}

/// Long paths start again, with areas and without.
#[test]
fn areas_with_long_paths() {
    let fs = made(16 << 20);
    let root = fs.root();
    let long = [b'n'; 255];
    let (mut at, mut dirs) = (mkdir(&fs, &root, b"top"), Vec::new());
    for _ in 0..12 {
        dirs.push(at.clone());
        at = mkdir(&fs, &at, &long);
        file(&fs, &at, b"file").unwrap();
    }
    let before = tree(&fs);
    for (dir, split) in [
        (0, true),
        (3, true),
        (8, true),
        (3, false),
        (0, false),
        (8, false),
    ] {
        let dir = &dirs[dir];
        assert!(if split { fs.split(dir) } else { fs.merge(dir) }.unwrap());
        assert_eq!(tree(&fs), before);
        assert_whole(&fs);
    }
}

#[test]
fn other_namespaces_have_no_areas() {
    for namespace in [NamespaceKind::Direct, NamespaceKind::Tree] {
        let fs = made_in(namespace, 4 << 20);
        let dir = mkdir(&fs, &fs.root(), b"dir");
        assert!(matches!(fs.split(&dir), Err(Error::Unsupported(_))));
        assert!(matches!(fs.merge(&dir), Err(Error::Unsupported(_))));
    }
}
