//! Extended attributes: sets of every size, replacement, errors, space, and what outlives what.

use std::collections::BTreeMap;

use vellum::{
    Allocate, CreateOptions, Cred, Error, FileKind, NamespaceKind, OpenOptions, Pool, SetAttr,
    Volume, XattrMode,
};

fn made(mib: u64, namespace: NamespaceKind) -> Pool {
    let options = CreateOptions::new(mib << 20).namespace(namespace);
    options.create_in_memory().unwrap()
}

fn all_of(volume: &Volume, path: &str) -> BTreeMap<String, Vec<u8>> {
    let names = volume.xattrs(path).unwrap();
    let value = |name: &str| volume.xattr(path, name).unwrap().unwrap();
    let names = names.into_iter().map(|name| name.into_string().unwrap());
    names.map(|name| (name.clone(), value(&name))).collect()
}

/// Sizes at which a set begins to take one more slot, a block, and further blocks.
#[test]
fn values_of_every_size_come_back() {
    for namespace in NamespaceKind::ALL {
        let pool = made(32, namespace);
        let volume = pool.volume();
        volume.write("/f", "text").unwrap();
        let mut expected = BTreeMap::new();
        for len in [0, 1, 80, 110, 240, 360, 400, 4070, 4080, 9000, 65_536] {
            for name in ["user.a", "security.b", "trusted.c"] {
                let value: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
                volume.set_xattr("/f", name, &value).unwrap();
                expected.insert(name.to_owned(), value);
                assert_eq!(all_of(&volume, "/f"), expected, "{namespace:?}, {len}");
            }
        }
        volume.rename("/f", "/g").unwrap();
        volume.hard_link("/g", "/h").unwrap();
        assert_eq!(all_of(&volume, "/h"), expected);
        for name in expected.keys() {
            volume.remove_xattr("/h", name).unwrap();
        }
        assert_eq!(volume.xattrs("/g").unwrap().len(), 0);
        assert_eq!(volume.read("/g").unwrap(), b"text");
    }
}

#[test]
fn an_opening_finds_attributes_however_the_pool_was_left() {
    for namespace in NamespaceKind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let options = CreateOptions::new(16 << 20).namespace(namespace);
        options.create(&path).unwrap().close().unwrap();
        let copy = dir.path().join("copy");
        let mut expected = BTreeMap::new();
        for round in 0..3 {
            let pool = Pool::open(&path).unwrap();
            let volume = pool.volume();
            assert_eq!(all_of(&volume, "/"), expected, "{namespace:?}, {round}");
            for len in [10, 300, 5000] {
                let (name, value) = (format!("user.{round}.{len}"), vec![round; len]);
                volume.set_xattr("/", &name, &value).unwrap();
                expected.insert(name, value);
            }
            volume.sync().unwrap();
            // What a power cut leaves now.
            std::fs::copy(&path, &copy).unwrap();
            drop(volume);
            pool.close().unwrap();
            let cut = Pool::open(&copy).unwrap();
            assert!(!cut.opened().was_clean);
            assert_eq!(
                all_of(&cut.volume(), "/"),
                expected,
                "{namespace:?}, {round}"
            );
        }
    }
}

#[test]
fn replaced_and_removed_sets_give_their_space_back() {
    for namespace in NamespaceKind::ALL {
        let pool = made(8, namespace);
        let volume = pool.volume();
        volume.write("/f", "").unwrap();
        let mut free = 0;
        for round in 0..200 {
            volume.set_xattr("/f", "user.a", vec![1; 60_000]).unwrap();
            volume.set_xattr("/f", "user.b", vec![2; round]).unwrap();
            volume.remove_xattr("/f", "user.a").unwrap();
            volume.remove_xattr("/f", "user.b").unwrap();
            match round {
                0 => free = volume.fs().stat_fs().files_free,
                _ => assert_eq!(volume.fs().stat_fs().files_free, free, "{namespace:?}"),
            }
        }
        // More than fits, if what a removed file had did not become free.
        for _ in 0..200 {
            volume.write("/g", "").unwrap();
            volume.set_xattr("/g", "user.a", vec![1; 60_000]).unwrap();
            volume.remove_file("/g").unwrap();
        }
    }
}

#[test]
fn without_space_nothing_changes() {
    for namespace in NamespaceKind::ALL {
        let pool = made(1, namespace);
        let volume = pool.volume();
        let mut files = 0;
        let error = loop {
            let path = format!("/{files}");
            match volume.write(&path, "") {
                Err(error) => break error,
                Ok(()) => files += 1,
            }
            if let Err(error) = volume.set_xattr(&path, "user.large", vec![3; 20_000]) {
                assert!(matches!(error, Error::NoSpace(_)), "{error}");
                assert_eq!(volume.xattrs(&path).unwrap().len(), 0, "{namespace:?}");
            }
        };
        assert!(matches!(error, Error::NoSpace(_)), "{error}");
        let had = all_of(&volume, "/0");
        assert!(
            volume
                .set_xattr("/0", "user.more", vec![4; 60_000])
                .is_err()
        );
        assert_eq!(all_of(&volume, "/0"), had, "{namespace:?}");
        volume.remove_xattr("/0", "user.large").unwrap();
    }
}

fn user() -> Cred {
    Cred::user(1000, 1000)
}

#[track_caller]
fn assert_errno<T: std::fmt::Debug>(result: Result<T, Error>, errno: i32) {
    assert_eq!(result.unwrap_err().errno(), errno);
}

#[test]
fn names_and_values_out_of_bounds_are_refused_as_on_ext4() {
    let pool = made(16, NamespaceKind::Direct);
    let volume = pool.volume();
    let long = format!("user.{}", "n".repeat(251));
    assert_errno(volume.set_xattr("/", "", ""), libc::ERANGE);
    assert_errno(volume.set_xattr("/", &long, ""), libc::ERANGE);
    volume.set_xattr("/", &long[..255], "").unwrap();
    assert_errno(volume.set_xattr("/", "user.", ""), libc::EINVAL);
    assert_errno(volume.set_xattr("/", "note", ""), libc::EOPNOTSUPP);
    assert_errno(volume.set_xattr("/", "system.note", ""), libc::EOPNOTSUPP);
    assert_errno(
        volume.set_xattr("/", "user.a", vec![0; 65_537]),
        libc::E2BIG,
    );
    assert_errno(volume.remove_xattr("/", "user.a"), libc::ENODATA);
    // As many as fit a list, which a program then reads at once.
    let full = (0..).find(|i| volume.set_xattr("/", format!("user.{i:0240}"), "").is_err());
    assert_eq!(full, Some((65_536 - 256) / 246));
    let one_more = format!("user.{:0240}", 1000);
    assert_errno(volume.set_xattr("/", one_more, ""), libc::ENOSPC);
}

#[test]
fn users_meet_the_rules_of_each_namespace() {
    let pool = made(16, NamespaceKind::Direct);
    let volume = pool.volume();
    volume.write("/f", "").unwrap();
    volume.symlink("f", "/s").unwrap();
    let fs = volume.fs();
    let (root, guest) = (Cred::root(), user());
    let at = |name: &[u8]| fs.lookup(&root, &fs.root(), name);
    let (file, link) = (at(b"f").unwrap(), at(b"s").unwrap());
    let set = |cred: &Cred, node: &_, name: &str| {
        fs.set_xattr(cred, node, name.as_bytes(), b"v", XattrMode::Any)
    };
    for name in ["user.a", "security.a", "trusted.a"] {
        set(&root, &file, name).unwrap();
    }
    assert_errno(set(&guest, &file, "user.a"), libc::EACCES);
    assert_errno(set(&guest, &file, "security.a"), libc::EPERM);
    assert_errno(set(&guest, &file, "trusted.a"), libc::EPERM);
    assert_errno(set(&root, &link, "user.a"), libc::EPERM);
    set(&root, &link, "trusted.a").unwrap();
    assert_errno(fs.xattr(&root, &link, b"user.a"), libc::ENODATA);
    assert_errno(fs.xattr(&guest, &file, b"trusted.a"), libc::ENODATA);
    assert_eq!(fs.xattr(&guest, &file, b"security.a").unwrap(), b"v");
    assert_eq!(fs.xattr(&guest, &file, b"user.a").unwrap(), b"v");
    let list = fs.xattrs(&guest, &file).unwrap();
    assert_eq!(list, b"security.a\0user.a\0", "trusted names are hidden");
    let made = |name: &str, mode| fs.set_xattr(&root, &file, name.as_bytes(), b"w", mode);
    assert_errno(made("user.a", XattrMode::Create), libc::EEXIST);
    assert_errno(made("user.b", XattrMode::Replace), libc::ENODATA);
    made("user.b", XattrMode::Create).unwrap();
    made("user.b", XattrMode::Replace).unwrap();
    // Whatever the permissions of the file, the kernel's own names are not these.
    assert_errno(set(&guest, &fs.root(), "system.a"), libc::EOPNOTSUPP);
    assert_errno(set(&guest, &fs.root(), "none.a"), libc::EACCES);
    assert_errno(set(&root, &fs.root(), "security.capability"), libc::EINVAL);
    // In a sticky directory only its owner sets attributes of it.
    let tmp = fs.mkdir(&root, &fs.root(), b"tmp", 0o1777).unwrap();
    assert_errno(set(&guest, &tmp, "user.a"), libc::EPERM);
    set(&root, &tmp, "user.a").unwrap();
}

/// Version 2, and no capability.
const CAPABILITY: [u8; 20] = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// `tree` reserves nothing.
#[test]
fn a_full_pool_gives_attributes_up() {
    for namespace in [NamespaceKind::Direct, NamespaceKind::Adaptive] {
        let pool = made(8, namespace);
        let volume = pool.volume();
        volume.write("/f", "old").unwrap();
        let set = |name, value: &[u8]| volume.set_xattr("/f", name, value).unwrap();
        set("security.capability", &CAPABILITY);
        set("user.large", &[7; 9000]);
        set("user.note", b"kept");
        set("user.other", b"removed");
        let is_room = |number| volume.create(format!("/{number}")).is_ok();
        (0..).find(|&number| !is_room(number)).unwrap();
        let more = volume.set_xattr("/f", "user.more", [0; 300]);
        assert!(matches!(more, Err(Error::NoSpace(_))), "{more:?}");
        volume.remove_xattr("/f", "user.other").unwrap();
        let options = OpenOptions::new().write(true);
        let file = volume.open_with("/f", &options).unwrap();
        file.write_at(b"new", 0).unwrap();
        volume.remove_xattr("/f", "user.large").unwrap();
        let left = BTreeMap::from([("user.note".to_owned(), b"kept".to_vec())]);
        assert_eq!(all_of(&volume, "/f"), left, "{namespace:?}");
        assert_eq!(volume.read("/f").unwrap(), b"new");
    }
}

/// Every change of content or owner takes the capability away, and nothing else does.
#[test]
fn a_capability_ends_with_the_content_it_was_given_for() {
    let pool = made(16, NamespaceKind::Direct);
    let volume = pool.volume();
    let has = || volume.xattr("/f", "security.capability").unwrap().is_some();
    let give = || {
        volume.write("/f", "program").unwrap();
        volume.set_xattr("/f", "user.note", vec![1; 200]).unwrap();
        volume
            .set_xattr("/f", "security.capability", CAPABILITY)
            .unwrap();
        assert!(has());
    };
    let changes: [(&str, &dyn Fn()); 5] = [
        ("write", &|| volume.write("/f", "virus").unwrap()),
        ("truncate", &|| {
            let set = SetAttr::new().size(Some(2));
            volume.set_attr("/f", &set).unwrap();
        }),
        ("chown", &|| {
            let set = SetAttr::new().uid(Some(5));
            volume.set_attr("/f", &set).unwrap();
        }),
        ("chown without owner and group", &|| {
            volume.set_attr("/f", &SetAttr::new().chown(true)).unwrap();
        }),
        ("fallocate", &|| {
            let fs = volume.fs();
            let options = OpenOptions::new().write(true);
            let file = fs.open(&Cred::root(), &fs.root(), b"/f", &options).unwrap();
            file.allocate(Allocate::Grow, 0, 100_000).unwrap();
        }),
    ];
    volume.create_dir("/d").unwrap();
    volume
        .set_xattr("/d", "security.capability", CAPABILITY)
        .unwrap();
    let owned = SetAttr::new().uid(Some(5));
    volume.set_attr("/d", &owned).unwrap();
    assert_eq!(volume.xattrs("/d").unwrap().len(), 1, "a directory");
    for (what, change) in changes {
        give();
        let set = SetAttr::new().mode(Some(0o700));
        volume.set_attr("/f", &set).unwrap();
        volume.rename("/f", "/g").unwrap();
        volume.rename("/g", "/f").unwrap();
        assert!(has(), "before {what}");
        change();
        assert!(!has(), "after {what}");
        assert!(volume.xattr("/f", "user.note").unwrap().is_some());
    }
}

/// Pages that the kernel writes back were written before the capability was set.
#[test]
fn a_capability_outlives_bytes_that_were_written_before_it() {
    let pool = made(16, NamespaceKind::Direct);
    let volume = pool.volume();
    volume.write("/f", "program").unwrap();
    let file = volume
        .open_with("/f", &OpenOptions::new().write(true))
        .unwrap();
    let has = || volume.xattr("/f", "security.capability").unwrap().is_some();
    volume
        .set_xattr("/f", "security.capability", CAPABILITY)
        .unwrap();
    file.handle().write_back_at(0, b"late").unwrap();
    assert!(has());
    file.handle().write_at(0, b"new").unwrap();
    assert!(!has());
}

#[test]
fn attributes_change_the_change_time_alone() {
    let pool = made(16, NamespaceKind::Direct);
    let volume = pool.volume();
    volume.write("/f", "").unwrap();
    for path in ["/f", "/"] {
        let times = || volume.metadata(path).unwrap().times_ns();
        let [atime, mtime, ctime] = times();
        volume.set_xattr(path, "user.a", "1").unwrap();
        let [atime_set, mtime_set, ctime_set] = times();
        assert_eq!((atime_set, mtime_set), (atime, mtime));
        assert!(ctime_set > ctime);
        volume.set_xattr(path, "user.a", "1").unwrap();
        assert_eq!(times(), [atime_set, mtime_set, ctime_set], "the same value");
        volume.remove_xattr(path, "user.a").unwrap();
        assert_eq!(times()[1], mtime);
        assert!(times()[2] > ctime_set);
    }
}

#[test]
fn every_kind_of_file_has_attributes() {
    for namespace in NamespaceKind::ALL {
        let pool = made(16, namespace);
        let fs = pool.fs();
        let (cred, root) = (Cred::root(), fs.root());
        let kinds = [
            FileKind::File,
            FileKind::Fifo,
            FileKind::Socket,
            FileKind::CharDevice,
        ];
        for kind in kinds {
            let name = format!("{kind:?}");
            let node = fs
                .mknod(&cred, &root, name.as_bytes(), kind, 0o600, 0)
                .unwrap();
            fs.set_xattr(&cred, &node, b"trusted.a", b"1", XattrMode::Any)
                .unwrap();
            assert_eq!(fs.xattr(&cred, &node, b"trusted.a").unwrap(), b"1");
            fs.unlink(&cred, &root, name.as_bytes()).unwrap();
            assert_eq!(fs.xattr(&cred, &node, b"trusted.a").unwrap(), b"1", "open");
        }
    }
}
