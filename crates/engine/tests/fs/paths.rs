//! Whole paths, looked up repeatedly while the directories that they lead through change.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use vellum::media::{MappedArena, MappedPool, Real, count};
use vellum::{
    Clock, Cred, Error, FileKind, FormatOptions, Fs, MountOptions, NamespaceKind, Node,
    OpenOptions, RenameFlags, SetAttr, attach, format,
};

const PLAIN: RenameFlags = RenameFlags::empty();

fn made(namespace: NamespaceKind) -> Arc<Fs<Real>> {
    let pool = MappedPool::anonymous(16 << 20).unwrap();
    let options = FormatOptions {
        namespace,
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

/// A user who owns nothing.
fn stranger() -> Cred {
    Cred::user(1000, 1000)
}

fn node(fs: &Arc<Fs<Real>>, path: &str) -> Node<Real> {
    fs.find(&Cred::root(), &fs.root(), path.as_bytes(), false)
        .unwrap()
}

/// Directory and last component of a path.
fn split<'p>(fs: &Arc<Fs<Real>>, path: &'p str) -> (Node<Real>, &'p [u8]) {
    let (above, name) = path.rsplit_once('/').unwrap();
    let above = if above.is_empty() { "/" } else { above };
    (node(fs, above), name.as_bytes())
}

fn mkdir(fs: &Arc<Fs<Real>>, path: &str) {
    let (dir, name) = split(fs, path);
    fs.mkdir(&Cred::root(), &dir, name, 0o755).unwrap();
}

fn file(fs: &Arc<Fs<Real>>, path: &str) -> u64 {
    let (dir, name) = split(fs, path);
    fs.mknod(&Cred::root(), &dir, name, FileKind::File, 0o644, 0)
        .unwrap()
        .ino()
}

fn rename(fs: &Arc<Fs<Real>>, from: &str, to: &str, flags: RenameFlags) {
    let ((from_dir, from), (to_dir, to)) = (split(fs, from), split(fs, to));
    fs.rename(&Cred::root(), &from_dir, from, &to_dir, to, flags)
        .unwrap();
}

/// Opens a file by its whole path, and creates it if it does not exist (`O_CREAT`).
fn made_by(fs: &Arc<Fs<Real>>, cred: &Cred, path: &str) -> Result<u64, Error> {
    let options = OpenOptions::new().write(true).create(true).mode(0o666);
    let opened = fs.open(cred, &fs.root(), path.as_bytes(), &options)?;
    Ok(opened.node().ino())
}

fn make(fs: &Arc<Fs<Real>>, path: &str) -> u64 {
    made_by(fs, &Cred::root(), path).unwrap()
}

/// The target of a path, looked up twice: the second lookup uses what was cached by the first.
fn seen_by(fs: &Arc<Fs<Real>>, cred: &Cred, path: &str) -> Result<u64, Error> {
    let ask = || {
        fs.stat_from_root(cred, path.as_bytes(), false)
            .map(|attr| attr.ino)
    };
    let first = ask();
    let second = ask();
    assert_eq!(format!("{first:?}"), format!("{second:?}"), "{path}");
    second
}

fn see(fs: &Arc<Fs<Real>>, path: &str) -> Option<u64> {
    match seen_by(fs, &Cred::root(), path) {
        Ok(ino) => Some(ino),
        Err(Error::NotFound | Error::NotDirectory) => None,
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Runs a test in every namespace, in which `/a/b/c/f` exists and was looked up.
fn everywhere(test: fn(&Arc<Fs<Real>>, u64)) {
    for namespace in NamespaceKind::ALL {
        let fs = made(namespace);
        for dir in ["/a", "/a/b", "/a/b/c"] {
            mkdir(&fs, dir);
        }
        let ino = file(&fs, "/a/b/c/f");
        assert_eq!(see(&fs, "/a/b/c/f"), Some(ino));
        test(&fs, ino);
        let report = vellum_check::check(&fs.image(), vellum_check::Options::default());
        assert!(report.is_sound(), "{report}");
    }
}

#[test]
fn a_file_moves_with_the_directories_above_it() {
    everywhere(|fs, ino| {
        rename(fs, "/a/b", "/a/x", PLAIN);
        assert_eq!(see(fs, "/a/b/c/f"), None);
        assert_eq!(see(fs, "/a/x/c/f"), Some(ino));
        mkdir(fs, "/a/b");
        mkdir(fs, "/a/b/c");
        let other = file(fs, "/a/b/c/f");
        assert_eq!(see(fs, "/a/b/c/f"), Some(other));
        assert_eq!(see(fs, "/a/x/c/f"), Some(ino));
        rename(fs, "/a/b", "/a/x", RenameFlags::EXCHANGE);
        assert_eq!(see(fs, "/a/b/c/f"), Some(ino));
        assert_eq!(see(fs, "/a/x/c/f"), Some(other));
        rename(fs, "/a", "/y", PLAIN);
        assert_eq!(see(fs, "/a/b/c/f"), None);
        assert_eq!(see(fs, "/y/b/c/f"), Some(ino));
    });
}

/// Areas are split and merged; only renames of directories change paths.
#[test]
fn areas_along_a_path_change_nothing() {
    let fs = made(NamespaceKind::Adaptive);
    let dirs = ["/a", "/a/b", "/a/b/c", "/a/b/c/d"];
    for dir in dirs {
        mkdir(&fs, dir);
    }
    let ino = file(&fs, "/a/b/c/d/f");
    for (index, dir) in dirs.into_iter().enumerate() {
        assert_eq!(see(&fs, "/a/b/c/d/f"), Some(ino));
        assert!(fs.split(&node(&fs, dir)).unwrap());
        assert_eq!(probes(&fs, "/a/b/c/d/f"), 2, "{index}");
    }
    rename(&fs, "/a/b", "/x", PLAIN);
    assert_eq!(see(&fs, "/a/b/c/d/f"), None);
    assert_eq!(see(&fs, "/x/c/d/f"), Some(ino));
    for dir in ["/x/c/d", "/a", "/x", "/x/c"] {
        assert!(fs.merge(&node(&fs, dir)).unwrap());
        assert_eq!(see(&fs, "/x/c/d/f"), Some(ino));
    }
    mkdir(&fs, "/a/b");
    rename(&fs, "/x/c", "/a/b/c", PLAIN);
    assert_eq!(see(&fs, "/x/c/d/f"), None);
    assert_eq!(see(&fs, "/a/b/c/d/f"), Some(ino));
}

#[test]
fn a_directory_recreated_is_another_one() {
    everywhere(|fs, ino| {
        let (dir, name) = split(fs, "/a/b/c/f");
        fs.unlink(&Cred::root(), &dir, name).unwrap();
        assert_eq!(see(fs, "/a/b/c/f"), None);
        let (above, name) = split(fs, "/a/b/c");
        fs.rmdir(&Cred::root(), &above, name).unwrap();
        assert_eq!(see(fs, "/a/b/c/f"), None);
        mkdir(fs, "/a/b/c");
        let again = file(fs, "/a/b/c/f");
        assert_ne!((again, dir.ino()), (ino, above.ino()));
        assert_eq!(see(fs, "/a/b/c/f"), Some(again));
    });
}

#[test]
fn a_replaced_directory_is_not_found_any_more() {
    everywhere(|fs, ino| {
        rename(fs, "/a/b/c/f", "/a/f", PLAIN);
        mkdir(fs, "/a/d");
        let other = file(fs, "/a/d/f");
        assert_eq!(see(fs, "/a/b/c/f"), None);
        rename(fs, "/a/d", "/a/b/c", PLAIN);
        assert_eq!(see(fs, "/a/b/c/f"), Some(other));
        assert_eq!(see(fs, "/a/f"), Some(ino));
    });
}

#[test]
fn a_link_in_the_place_of_a_directory_is_followed() {
    everywhere(|fs, ino| {
        rename(fs, "/a/b", "/z", PLAIN);
        let (dir, name) = split(fs, "/a/b");
        fs.symlink(&Cred::root(), &dir, name, b"/z").unwrap();
        assert_eq!(see(fs, "/a/b/c/f"), Some(ino));
        fs.unlink(&Cred::root(), &dir, name).unwrap();
        assert_eq!(see(fs, "/a/b/c/f"), None);
    });
}

/// Each directory is checked, whoever looked the path up before.
#[test]
fn a_directory_that_may_not_be_searched_hides_what_is_below() {
    everywhere(|fs, ino| {
        let path = "/a/b/c/f";
        let chmod = |dir: &str, mode| {
            let set = SetAttr::new().mode(Some(mode));
            fs.set_attr(&Cred::root(), &node(fs, dir), &set).unwrap();
        };
        for dir in ["/", "/a", "/a/b", "/a/b/c"] {
            assert_eq!(seen_by(fs, &stranger(), path).unwrap(), ino);
            chmod(dir, 0o754);
            let seen = seen_by(fs, &stranger(), path);
            assert!(matches!(seen, Err(Error::Access)), "{dir}: {seen:?}");
            assert_eq!(see(fs, path), Some(ino));
            let seen = seen_by(fs, &stranger(), path);
            assert!(matches!(seen, Err(Error::Access)), "{dir}: {seen:?}");
            chmod(dir, 0o755);
        }
    });
}

#[test]
fn paths_that_are_written_otherwise_lead_to_the_same() {
    everywhere(|fs, ino| {
        for path in [
            "//a/b/c/f",
            "/a//b/c/f",
            "/a/b/../b/c/f",
            "/a/./b/c/f",
            "/a/b/c/./f",
        ] {
            assert_eq!(see(fs, path), Some(ino), "{path}");
        }
        for path in [
            "/a/b/c/f/",
            "/a/b/c/f/.",
            "/a/b/c/f/g",
            "/a/b/c/ff",
            "/b/c/f",
            "/a/b/f",
        ] {
            assert_eq!(see(fs, path), None, "{path}");
        }
        let long = format!("/a/b/c/{}", "n".repeat(256));
        let seen = seen_by(fs, &Cred::root(), &long);
        assert!(matches!(seen, Err(Error::NameTooLong)), "{seen:?}");
    });
}

#[test]
fn a_file_is_created_where_the_directories_of_its_path_are_then() {
    everywhere(|fs, ino| {
        assert_eq!(make(fs, "/a/b/c/f"), ino);
        let first = make(fs, "/a/b/c/1");
        assert_eq!(make(fs, "/a/b//c/1"), first);
        assert_eq!(make(fs, "/a/../a/b/./c//1"), first);
        assert_eq!(see(fs, "/a/b/c/1"), Some(first));
        rename(fs, "/a/b", "/x", PLAIN);
        let made = made_by(fs, &Cred::root(), "/a/b/c/2");
        assert!(matches!(made, Err(Error::NotFound)), "{made:?}");
        let second = make(fs, "/x/c/2");
        mkdir(fs, "/a/b");
        mkdir(fs, "/a/b/c");
        let other = make(fs, "/a/b/c/2");
        rename(fs, "/x", "/a/b", RenameFlags::EXCHANGE);
        assert_eq!(make(fs, "/a/b/c/2"), second);
        assert_eq!(make(fs, "/x/c/2"), other);
        // A link on the way, and one at the end.
        let (dir, name) = split(fs, "/a/l");
        let linked = fs.symlink(&Cred::root(), &dir, name, b"/a/b/c");
        linked.unwrap();
        let third = make(fs, "/a/l/3");
        assert_eq!(make(fs, "/a/b/c/3"), third);
        let (dir, name) = split(fs, "/a/b/c/to");
        let linked = fs.symlink(&Cred::root(), &dir, name, b"/x/c/4");
        linked.unwrap();
        let fourth = make(fs, "/a/b/c/to");
        assert_eq!(see(fs, "/x/c/4"), Some(fourth));
    });
}

#[test]
fn a_file_is_not_created_where_its_path_does_not_lead() {
    everywhere(|fs, _| {
        let asked = |cred: &Cred, path: &str| {
            let ask = || made_by(fs, cred, path).unwrap_err();
            let (first, second) = (ask(), ask());
            assert_eq!(format!("{first:?}"), format!("{second:?}"), "{path}");
            second
        };
        let root = Cred::root();
        make(fs, "/a/b/c/1");
        for path in ["/a/b/c/f/g", "/a/b/c/f/g/h", "/a/b/c/f/.", "/a/b/c/f/.."] {
            let error = asked(&root, path);
            assert!(matches!(error, Error::NotDirectory), "{path}: {error:?}");
        }
        for path in ["/a/b/d/g", "/a/d/c/g", "/b/c/g"] {
            let error = asked(&root, path);
            assert!(matches!(error, Error::NotFound), "{path}: {error:?}");
        }
        for path in ["/a/b/c", "/a/b/c/", "/a/b/c/new/", "/a/b/c/.."] {
            let error = asked(&root, path);
            assert!(matches!(error, Error::IsDirectory), "{path}: {error:?}");
        }
        let chmod = |dir: &str, mode| {
            let set = SetAttr::new().mode(Some(mode));
            fs.set_attr(&Cred::root(), &node(fs, dir), &set).unwrap();
        };
        // Permission to search is not permission to write.
        let error = asked(&stranger(), "/a/b/c/new");
        assert!(matches!(error, Error::Access), "{error:?}");
        chmod("/a/b/c", 0o777);
        made_by(fs, &stranger(), "/a/b/c/2").unwrap();
        for dir in ["/", "/a", "/a/b", "/a/b/c"] {
            chmod(dir, 0o776);
            for path in ["/a/b/c/2", "/a/b/c/3"] {
                let error = asked(&stranger(), path);
                assert!(matches!(error, Error::Access), "{dir}: {error:?}");
            }
            make(fs, "/a/b/c/2");
            let error = asked(&stranger(), "/a/b/c/2");
            assert!(matches!(error, Error::Access), "{dir}: {error:?}");
            chmod(dir, 0o777);
        }
        let (dir, name) = split(fs, "/a/b/c");
        rename(fs, "/a/b/c", "/a/d", PLAIN);
        let linked = fs.symlink(&root, &dir, name, b"c");
        linked.unwrap();
        let error = asked(&root, "/a/b/c/new");
        assert!(matches!(error, Error::Loop), "{error:?}");
    });
}

/// Probes of a lookup by path, after an earlier lookup of it.
fn probes(fs: &Arc<Fs<Real>>, path: &str) -> u64 {
    see(fs, path).unwrap();
    let before = count::of_this_thread().probes;
    fs.stat_from_root(&Cred::root(), path.as_bytes(), false)
        .unwrap();
    count::of_this_thread().probes - before
}

#[test]
fn a_path_in_an_area_takes_the_same_probes_at_any_depth() {
    let fs = made(NamespaceKind::Adaptive);
    let mut path = String::new();
    let mut taken = Vec::new();
    for depth in 1..=40 {
        let name = format!("/name-at-{depth}");
        let leaf = format!("{path}/leaf");
        file(&fs, &leaf);
        taken.push(probes(&fs, &leaf));
        path += &name;
        mkdir(&fs, &path);
    }
    // The prefix and the name; for a path of one component, only the name. For prefixes of more
    // than 104 bytes, the own entry, too.
    assert_eq!(taken[0], 1);
    assert!(taken[1..11].iter().all(|&probes| probes == 2), "{taken:?}");
    assert!(taken[11..].iter().all(|&probes| probes == 3), "{taken:?}");
}

/// Probes of an open that creates a file, after another one was created there, and of one that
/// finds it.
fn probes_to_make(fs: &Arc<Fs<Real>>, dir: &str) -> [u64; 2] {
    make(fs, &format!("{dir}/before"));
    let path = format!("{dir}/new");
    [(); 2].map(|()| {
        let before = count::of_this_thread().probes;
        make(fs, &path);
        count::of_this_thread().probes - before
    })
}

#[test]
fn creating_a_file_by_its_path_takes_the_same_probes_at_any_depth() {
    let fs = made(NamespaceKind::Adaptive);
    let mut path = String::new();
    let mut taken = Vec::new();
    for depth in 1..=40 {
        taken.push(probes_to_make(&fs, &path));
        path += &format!("/name-at-{depth}");
        mkdir(&fs, &path);
        if depth == 20 {
            assert!(fs.split(&node(&fs, &path)).unwrap());
        }
    }
    let [made, found] = taken[2];
    let is_short = |&probes: &[u64; 2]| probes == [made, found];
    assert!(taken[2..11].iter().all(is_short), "{taken:?}");
    // For prefixes of more than 104 bytes the own entry is probed, too.
    let is_long = |&probes: &[u64; 2]| probes == [made + 1, found + 1];
    assert!(taken[11..].iter().all(is_long), "{taken:?}");
    // The prefix and the name.
    assert_eq!(found, 2);
}
