//! Files without names (`O_TMPFILE`): they vanish, or appear whole. Whiteouts, which are made so.

use std::sync::Arc;

use vellum::media::Real;
use vellum::{
    CreateOptions, Cred, Error, FileKind, Fs, Handle, NamespaceKind, OpenOptions, Pool,
    RenameFlags, SetAttr,
};

fn options(namespace: NamespaceKind) -> CreateOptions {
    CreateOptions::new(16 << 20).namespace(namespace)
}

fn unnamed(fs: &Arc<Fs<Real>>, options: &OpenOptions) -> Handle<Real> {
    let made = fs.create_unnamed(&Cred::root(), &fs.root(), options);
    made.unwrap()
}

const WRITE: OpenOptions = OpenOptions::new().write(true).mode(0o640);

#[test]
fn a_file_without_a_name_is_gone_with_its_last_user() {
    for namespace in NamespaceKind::ALL {
        let pool = options(namespace).create_in_memory().unwrap();
        let fs = pool.fs();
        let before = fs.stat_fs();
        let file = unnamed(&fs, &WRITE);
        file.write_at(0, &[1; 1 << 20]).unwrap();
        let attr = file.attr().unwrap();
        assert_eq!((attr.nlink, attr.mode, attr.size), (0, 0o640, 1 << 20));
        assert_eq!(fs.children(&fs.root()).unwrap(), 0);
        assert!(fs.stat_fs().blocks_free < before.blocks_free);
        drop(file);
        assert_eq!(
            fs.stat_fs().blocks_free,
            before.blocks_free,
            "{namespace:?}"
        );
    }
}

#[test]
fn a_file_gets_its_first_name_and_loses_it_like_any_other() {
    for namespace in NamespaceKind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let pool = options(namespace).create(&path).unwrap();
        let (fs, root) = (pool.fs(), Cred::root());
        let file = unnamed(&fs, &WRITE);
        file.write_at(0, b"text").unwrap();
        fs.mkdir(&root, &fs.root(), b"taken", 0o755).unwrap();
        let taken = fs.link(&root, file.node(), &fs.root(), b"taken");
        assert!(matches!(taken, Err(Error::Exists)));
        fs.link(&root, file.node(), &fs.root(), b"a").unwrap();
        fs.link(&root, file.node(), &fs.root(), b"b").unwrap();
        assert_eq!(file.attr().unwrap().nlink, 2);
        drop(file);
        drop(fs);
        pool.close().unwrap();
        let pool = Pool::open(&path).unwrap();
        let volume = pool.volume();
        assert_eq!(volume.read("/a").unwrap(), b"text");
        assert_eq!(volume.metadata("/b").unwrap().nlink(), 2);
        let file = volume.create_unnamed("/").unwrap();
        volume.link_file(&file, "/c").unwrap();
        volume.remove_file("/c").unwrap();
        let again = volume.link_file(&file, "/c");
        assert!(matches!(again, Err(Error::NotFound)), "{namespace:?}");
    }
}

/// As `O_EXCL` says.
#[test]
fn a_file_may_be_made_to_stay_without_a_name() {
    let pool = options(NamespaceKind::Direct).create_in_memory().unwrap();
    let (fs, root) = (pool.fs(), Cred::root());
    let file = unnamed(&fs, &WRITE.create_new(true));
    let named = fs.link(&root, file.node(), &fs.root(), b"f");
    assert!(matches!(named, Err(Error::NotFound)));
    let read_only = OpenOptions::new().read(true);
    let refused = fs.create_unnamed(&root, &fs.root(), &read_only);
    assert_eq!(refused.unwrap_err().errno(), libc::EINVAL);
}

/// Both names exist at the end, whichever is the first.
#[test]
fn two_threads_name_a_file_at_once() {
    for namespace in NamespaceKind::ALL {
        let pool = options(namespace).create_in_memory().unwrap();
        let (fs, root) = (pool.fs(), Cred::root());
        for round in 0..50 {
            let file = unnamed(&fs, &WRITE);
            std::thread::scope(|scope| {
                for name in ["a", "b"] {
                    let (fs, file, root) = (&fs, &file, &root);
                    scope.spawn(move || {
                        let name = format!("{name}{round}");
                        fs.link(root, file.node(), &fs.root(), name.as_bytes())
                    });
                }
            });
            assert_eq!(file.attr().unwrap().nlink, 2, "{namespace:?}");
        }
        assert_eq!(fs.children(&fs.root()).unwrap(), 100);
    }
}

#[test]
fn a_crash_leaves_nothing_of_a_file_without_a_name() {
    for namespace in NamespaceKind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
        let pool = options(namespace).create(&path).unwrap();
        let fs = pool.fs();
        let kept = unnamed(&fs, &WRITE);
        kept.write_at(0, b"kept").unwrap();
        fs.link(&Cred::root(), kept.node(), &fs.root(), b"kept")
            .unwrap();
        let file = unnamed(&fs, &WRITE);
        file.write_at(0, &[1; 100_000]).unwrap();
        fs.sync().unwrap();
        std::fs::copy(&path, &copy).unwrap();
        let cut = Pool::open(&copy).unwrap();
        assert_eq!(cut.volume().read("/kept").unwrap(), b"kept");
        let stats = cut.fs().stat_fs();
        assert_eq!(stats.files - stats.files_free, 2, "{namespace:?}");
    }
}

/// A rename that leaves a whiteout: onto a new name, onto an old one, across directories, of a
/// directory with names, and one that changes nothing.
#[test]
fn a_rename_leaves_a_whiteout() {
    for namespace in NamespaceKind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let pool = options(namespace).create(&path).unwrap();
        let (fs, volume, user) = (pool.fs(), pool.volume(), Cred::user(1000, 1000));
        let (root, shared) = (fs.root(), SetAttr::new().mode(Some(0o777)));
        fs.set_attr(&Cred::root(), &root, &shared).unwrap();
        let below = fs.mkdir(&user, &root, b"below", 0o755).unwrap();
        fs.mkdir(&user, &below, b"d", 0o755).unwrap();
        for name in [&b"a"[..], b"b", b"c"] {
            fs.mknod(&user, &root, name, FileKind::File, 0o600, 0)
                .unwrap();
        }
        let hide = |from: &[u8], dir, to: &[u8]| {
            fs.rename(&user, &root, from, dir, to, RenameFlags::WHITEOUT)
        };
        hide(b"a", &root, b"new").unwrap();
        hide(b"b", &below, b"moved").unwrap();
        hide(b"c", &root, b"new").unwrap();
        fs.link(
            &user,
            &fs.lookup(&user, &root, b"new").unwrap(),
            &root,
            b"same",
        )
        .unwrap();
        hide(b"new", &root, b"same").unwrap();
        hide(b"below", &root, b"away").unwrap();
        let absent = hide(b"absent", &root, b"x");
        assert!(matches!(absent, Err(Error::NotFound)), "{namespace:?}");
        let check = |fs: &Arc<Fs<Real>>| {
            let root = fs.root();
            let attr = |name: &[u8]| fs.stat_from_root(&Cred::root(), name, false).unwrap();
            for name in [&b"/a"[..], b"/b", b"/c", b"/below"] {
                let attr = attr(name);
                let found = (attr.kind, attr.device, attr.nlink, attr.mode, attr.uid);
                assert_eq!(
                    found,
                    (FileKind::CharDevice, 0, 1, 0, 1000),
                    "{namespace:?}"
                );
            }
            assert_eq!(attr(b"/new").nlink, 2);
            assert_eq!(attr(b"/away/moved").kind, FileKind::File);
            assert_eq!(attr(b"/away").nlink, 3);
            assert_eq!(fs.children(&root).unwrap(), 7);
            assert_eq!(attr(b"/").nlink, 3);
            let stats = fs.stat_fs();
            assert_eq!(stats.files - stats.files_free, 9, "{namespace:?}");
        };
        check(&fs);
        let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
        let refused = fs.rename(&user, &root, b"a", &root, b"b", both);
        assert_eq!(refused.unwrap_err().errno(), libc::EINVAL);
        volume.sync().unwrap();
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        drop((volume, fs, root, below));
        pool.close().unwrap();
        for path in [path, copy] {
            check(&Pool::open(path).unwrap().fs());
        }
    }
}

#[test]
fn users_make_whiteouts_and_no_other_devices() {
    let pool = options(NamespaceKind::Direct).create_in_memory().unwrap();
    let (fs, user) = (pool.fs(), Cred::user(1000, 1000));
    let root = fs.root();
    let shared = SetAttr::new().mode(Some(0o777));
    fs.set_attr(&Cred::root(), &root, &shared).unwrap();
    let make = |name: &[u8], kind, device| fs.mknod(&user, &root, name, kind, 0, device);
    make(b"w", FileKind::CharDevice, 0).unwrap();
    assert!(make(b"x", FileKind::CharDevice, 1).is_err());
    assert!(make(b"y", FileKind::BlockDevice, 0).is_err());
}
