//! Access times under each policy: of read files, listed directories and read links.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use vellum::media::{MappedArena, MappedPool, Real};
use vellum::{
    AccessPolicy, AccessTimes, Clock, Cred, FormatOptions, Fs, ListPosition, MountOptions, Node,
    OpenOptions, SetAttr, SetTime, attach, format,
};

/// Whether a first and a second access moved the times of a file, a directory and a link.
type Moved = [[bool; 2]; 3];

fn made(access_times: AccessTimes) -> Arc<Fs<Real>> {
    let pool = MappedPool::anonymous(8 << 20).unwrap();
    format(&pool, &FormatOptions::default()).unwrap();
    let options = MountOptions {
        clock: Clock::Counter(AtomicI64::new(1000)),
        access_times,
        ..MountOptions::default()
    };
    let arena = |len| Ok(MappedArena::new(len)?);
    attach::<Real>(pool, arena, options).unwrap().0
}

fn read(fs: &Arc<Fs<Real>>, file: &Node<Real>) {
    let options = OpenOptions::new().read(true);
    let handle = fs.open_node(&Cred::root(), file, &options).unwrap();
    handle.read_at(0, &mut [0; 8]).unwrap();
}

fn list(fs: &Arc<Fs<Real>>, dir: &Node<Real>) {
    fs.list(dir, 0, &mut ListPosition::default(), &mut |_| true)
        .unwrap();
}

fn moved(access_times: AccessTimes) -> Moved {
    let (fs, cred) = (made(access_times), Cred::root());
    let root = fs.root();
    let file = fs.mknod(&cred, &root, b"file", vellum::FileKind::File, 0o644, 0);
    let dir = fs.mkdir(&cred, &root, b"dir", 0o755).unwrap();
    let link = fs.symlink(&cred, &root, b"link", b"file").unwrap();
    let nodes = [file.unwrap(), dir, link];
    let mut moved = [[false; 2]; 3];
    for (node, moved) in nodes.iter().zip(&mut moved) {
        for moved in moved {
            let before = fs.attr(node).unwrap().atime_ns;
            match node.kind() {
                vellum::FileKind::Directory => list(&fs, node),
                vellum::FileKind::Symlink => drop(fs.read_link(node).unwrap()),
                _ => read(&fs, node),
            }
            *moved = fs.attr(node).unwrap().atime_ns > before;
        }
    }
    moved
}

#[test]
fn access_times_move_as_the_policy_says() {
    let by = |policy| AccessTimes {
        policy,
        of_directories: true,
    };
    let cases = [
        (AccessPolicy::Relative, [[true, false]; 3]),
        (AccessPolicy::Strict, [[true, true]; 3]),
        (AccessPolicy::Never, [[false, false]; 3]),
    ];
    for (policy, expected) in cases {
        assert_eq!(moved(by(policy)), expected, "{policy:?}");
        let without = AccessTimes {
            of_directories: false,
            ..by(policy)
        };
        let expected = [expected[0], [false, false], expected[2]];
        assert_eq!(moved(without), expected, "{policy:?}, no directories");
    }
}

#[test]
fn a_listing_after_a_change_of_the_directory_moves_its_time() {
    let (fs, cred) = (made(AccessTimes::default()), Cred::root());
    let dir = fs.mkdir(&cred, &fs.root(), b"dir", 0o755).unwrap();
    let atime = || fs.attr(&dir).unwrap().atime_ns;
    for name in ["a", "b", "c"] {
        let kind = vellum::FileKind::File;
        fs.mknod(&cred, &dir, name.as_bytes(), kind, 0o644, 0)
            .unwrap();
        let before = atime();
        list(&fs, &dir);
        assert!(atime() > before, "after the creation of {name}");
        let before = atime();
        list(&fs, &dir);
        assert_eq!(atime(), before, "nothing has changed");
    }
    let old = SetAttr::new().atime(Some(SetTime::At(0)));
    fs.set_attr(&cred, &dir, &old).unwrap();
    list(&fs, &dir);
    assert!(atime() > 0, "after a change of its times");
}
