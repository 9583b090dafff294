//! Files without names (`O_TMPFILE`): they vanish, or appear whole.

use std::sync::Arc;

use vellum::media::Real;
use vellum::{CreateOptions, Cred, Error, Fs, Handle, NamespaceKind, OpenOptions, Pool};

const NAMESPACES: [NamespaceKind; 3] = [
    NamespaceKind::Direct,
    NamespaceKind::Adaptive,
    NamespaceKind::Tree,
];

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
    for namespace in NAMESPACES {
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
    for namespace in NAMESPACES {
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
    for namespace in NAMESPACES {
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
    for namespace in NAMESPACES {
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
