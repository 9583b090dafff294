//! Flags and project ids: what outlives what, handles that were open before, inheritance.

use vellum::{
    AccessPolicy, AccessTimes, Allocate, CreateOptions, Cred, Error, FileFlags, FileKind,
    NamespaceKind, OpenOptions, Pool, PoolOptions, RenameFlags, SetAttr, SetTime,
};

const BOTH: OpenOptions = OpenOptions::new().read(true).write(true);

fn refused<T>(done: vellum::Result<T>) -> bool {
    matches!(done, Err(Error::NotPermitted))
}

#[test]
fn an_opening_finds_flags_however_the_pool_was_left() {
    for namespace in NamespaceKind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
        let options = CreateOptions::new(16 << 20).namespace(namespace);
        options.create(&path).unwrap().close().unwrap();
        let pool = Pool::open(&path).unwrap();
        let volume = pool.volume().with_cred(Cred::root());
        volume.create_dir("/d").unwrap();
        volume.set_project("/d", 7).unwrap();
        let handed = FileFlags::NO_DUMP | FileFlags::PROJECT_INHERIT;
        volume.set_flags("/d", handed).unwrap();
        volume.write("/d/f", "text").unwrap();
        volume.write("/g", "text").unwrap();
        volume.set_project("/g", u32::MAX - 1).unwrap();
        volume.set_flags("/g", FileFlags::IMMUTABLE).unwrap();
        pool.fs().sync().unwrap();
        std::fs::copy(&path, &copy).unwrap();
        pool.close().unwrap();
        for path in [path, copy] {
            let pool = Pool::open(&path).unwrap();
            let volume = pool.volume().with_cred(Cred::root());
            let found = |path| (volume.flags(path).unwrap(), volume.project(path).unwrap());
            assert_eq!(found("/d"), (handed, 7), "{namespace:?}");
            assert_eq!(found("/d/f"), (FileFlags::NO_DUMP, 7), "{namespace:?}");
            assert_eq!(found("/g"), (FileFlags::IMMUTABLE, u32::MAX - 1));
            assert!(refused(volume.write("/g", "other")), "{namespace:?}");
            volume.create_dir("/d/e").unwrap();
            assert_eq!(found("/d/e"), (handed, 7), "{namespace:?}");
            pool.close().unwrap();
        }
    }
}

#[test]
fn flags_stay_whatever_else_changes() {
    for namespace in NamespaceKind::ALL {
        let options = CreateOptions::new(16 << 20).namespace(namespace);
        let pool = options.create_in_memory().unwrap();
        let volume = pool.volume().with_cred(Cred::root());
        let flags = FileFlags::NO_DUMP | FileFlags::NO_ATIME;
        volume.write("/f", "text").unwrap();
        volume.set_project("/f", 9).unwrap();
        volume.set_flags("/f", flags).unwrap();
        let set = SetAttr::new()
            .mode(Some(0o4711))
            .uid(Some(5))
            .atime(Some(SetTime::At(1)));
        volume.set_attr("/f", &set).unwrap();
        volume.set_xattr("/f", "user.a", "one").unwrap();
        volume.hard_link("/f", "/g").unwrap();
        volume.rename("/f", "/h").unwrap();
        volume.remove_file("/g").unwrap();
        volume.write("/h", vec![1; 9000]).unwrap();
        pool.fs().maintain().unwrap();
        assert_eq!(volume.flags("/h").unwrap(), flags, "{namespace:?}");
        assert_eq!(volume.project("/h").unwrap(), 9, "{namespace:?}");
    }
}

#[test]
fn what_was_open_before_writes_nothing_after() {
    let pool = Pool::memory(16 << 20).unwrap();
    let (fs, cred, root) = (pool.fs(), Cred::root(), pool.fs().root());
    let file = fs.create(&cred, &root, b"f", &BOTH).unwrap();
    file.write_at(0, b"text").unwrap();
    let before = file.attr().unwrap();
    fs.set_flags(&cred, file.node(), FileFlags::IMMUTABLE)
        .unwrap();
    let ctime_ns = file.attr().unwrap().ctime_ns;
    assert!(ctime_ns > before.ctime_ns);
    assert!(refused(file.write_at(0, b"other")));
    assert!(refused(file.write_back_at(0, b"other")));
    assert!(refused(file.append(b"more")));
    assert!(refused(file.truncate(0)));
    assert!(refused(file.allocate(Allocate::KeepSize, 0, 9000)));
    assert!(refused(file.allocate(Allocate::PunchHole, 0, 4)));
    let touch = SetAttr::new()
        .atime(Some(SetTime::Now))
        .mtime(Some(SetTime::Now));
    assert!(refused(file.set_attr(&touch)));
    let mut out = [0; 8];
    assert_eq!(file.read_at(0, &mut out).unwrap(), 4);
    let after = file.attr().unwrap();
    assert_eq!((after.size, after.ctime_ns), (4, ctime_ns));
    fs.set_flags(&cred, file.node(), FileFlags::empty())
        .unwrap();
    file.write_at(0, b"other").unwrap();
}

#[test]
fn a_file_without_a_name_inherits_and_gets_none_while_it_is_guarded() {
    let pool = Pool::memory(16 << 20).unwrap();
    let (fs, cred, root) = (pool.fs(), Cred::root(), pool.fs().root());
    let dir = fs.mkdir(&cred, &root, b"d", 0o755).unwrap();
    let handed = FileFlags::NO_ATIME | FileFlags::PROJECT_INHERIT;
    fs.set_flags_and_project(&cred, &dir, handed, 7).unwrap();
    let file = fs.create_unnamed(&cred, &dir, &BOTH).unwrap();
    let node = file.node();
    assert_eq!(node.flags(), FileFlags::NO_ATIME);
    assert_eq!(fs.project(node).unwrap(), 7);
    let immutable = FileFlags::NO_ATIME | FileFlags::IMMUTABLE;
    fs.set_flags(&cred, node, immutable).unwrap();
    assert!(refused(fs.link(&cred, node, &dir, b"f")));
    fs.set_flags(&cred, node, FileFlags::empty()).unwrap();
    fs.set_project(&cred, node, 8).unwrap();
    let linked = fs.link(&cred, node, &dir, b"f");
    assert_eq!(linked.unwrap_err().errno(), libc::EXDEV);
    fs.link(&cred, node, &root, b"f").unwrap();
    // A whiteout belongs to the directory that it is left in.
    let whiteout = RenameFlags::WHITEOUT;
    fs.mknod(&cred, &dir, b"g", FileKind::Fifo, 0o644, 0)
        .unwrap();
    fs.rename(&cred, &dir, b"g", &root, b"h", whiteout).unwrap();
    let left = fs.lookup(&cred, &dir, b"g").unwrap();
    assert_eq!(left.flags(), FileFlags::NO_ATIME);
    assert_eq!(fs.project(&left).unwrap(), 7);
    assert!(matches!(
        fs.set_flags(&cred, &left, FileFlags::empty()),
        Err(Error::Unsupported(_))
    ));
}

#[test]
fn reads_leave_the_access_time_of_a_file_that_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let options = CreateOptions::new(16 << 20);
    options.create(&path).unwrap().close().unwrap();
    let access_times = AccessTimes {
        policy: AccessPolicy::Strict,
        ..AccessTimes::default()
    };
    let options = PoolOptions::new().access_times(access_times);
    let pool = options.open(&path).unwrap();
    let volume = pool.volume();
    let atime = |path| volume.symlink_metadata(path).unwrap().times_ns()[0];
    volume.create_dir("/d").unwrap();
    volume.write("/d/f", "text").unwrap();
    for (flags, moves) in [(FileFlags::NO_ATIME, false), (FileFlags::empty(), true)] {
        for path in ["/d", "/d/f"] {
            volume.set_flags(path, flags).unwrap();
            let before = atime(path);
            match path {
                "/d" => assert_eq!(volume.read_dir(path).unwrap().count(), 1),
                _ => assert_eq!(volume.read(path).unwrap(), b"text"),
            }
            assert_eq!(atime(path) != before, moves, "{path}");
        }
    }
}
