//! Directories that were removed while open: nothing can be created in them, and their former
//! parents' inode numbers may belong to something else.

use std::sync::Arc;

use vellum::media::Simulated;
use vellum::{Cred, Error, FileKind, Fs, Node, RenameFlags};

use super::fixture::{Backend, Shape, on_each_namespace};

/// A removed directory, and the new owner of the inode number that its removed parent had.
fn removed(fs: &Arc<Fs<Simulated>>, kind: FileKind) -> (Node<Simulated>, Node<Simulated>) {
    let (root, cred) = (fs.root(), Cred::root());
    let above = fs.mkdir(&cred, &root, b"p", 0o755).expect("there is room");
    let dir = fs.mkdir(&cred, &above, b"q", 0o755).expect("there is room");
    let ino = above.ino();
    fs.rmdir(&cred, &above, b"q").expect("it is empty");
    fs.rmdir(&cred, &root, b"p").expect("it is empty");
    drop(above);
    while fs.maintain().expect("nothing is damaged") > 0 {}
    for _ in 0..4000 {
        let is_dir = kind == FileKind::Directory;
        let made = if is_dir {
            fs.mkdir(&cred, &root, b"again", 0o755)
        } else {
            fs.mknod(&cred, &root, b"again", kind, 0o644, 0)
        };
        let made = made.expect("there is room");
        if made.ino() == ino {
            return (dir, made);
        }
        drop(made);
        let remove = if is_dir { Fs::rmdir } else { Fs::unlink };
        remove(fs, &cred, &root, b"again").expect("it is there");
        fs.maintain().expect("nothing is damaged");
    }
    panic!("no inode number was reused");
}

#[test]
fn nothing_is_above_a_removed_directory() {
    on_each_namespace(1, |namespace, _| {
        for kind in [FileKind::File, FileKind::Directory] {
            let fs = <Simulated as Backend>::make(&Shape::new(1 << 20, 2, 1 << 20).with(namespace));
            let (dir, _other) = removed(&fs, kind);
            let above = fs.lookup(&Cred::root(), &dir, b"..");
            assert!(matches!(above, Err(Error::NotFound)), "{kind:?}: {above:?}");
            let path = fs.path_of(&dir);
            assert!(matches!(path, Err(Error::NotFound)), "{kind:?}: {path:?}");
        }
    });
}

#[test]
fn nothing_moves_into_a_removed_directory() {
    on_each_namespace(1, |namespace, _| {
        for kind in [FileKind::File, FileKind::Directory] {
            let fs = <Simulated as Backend>::make(&Shape::new(1 << 20, 2, 1 << 20).with(namespace));
            let (root, cred) = (fs.root(), Cred::root());
            let (dir, other) = removed(&fs, kind);
            fs.mkdir(&cred, &root, b"s", 0o755).expect("there is room");
            for flags in [RenameFlags::empty(), RenameFlags::NO_REPLACE] {
                let moved = fs.rename(&cred, &root, b"s", &dir, b"t", flags);
                assert!(matches!(moved, Err(Error::NotFound)), "{kind:?}: {moved:?}");
            }
            let linked = fs.link(&cred, &other, &dir, b"t");
            assert!(
                matches!(linked, Err(Error::NotFound)),
                "{kind:?}: {linked:?}"
            );
        }
    });
}

#[test]
fn a_removed_directory_is_reported_before_missing_permissions() {
    on_each_namespace(1, |namespace, _| {
        let fs = <Simulated as Backend>::make(&Shape::new(1 << 20, 2, 1 << 20).with(namespace));
        let (dir, _other) = removed(&fs, FileKind::File);
        let stranger = Cred {
            uid: 7,
            gid: 7,
            groups: Vec::new(),
            privileged: false,
            umask: 0,
        };
        let made = fs.mknod(&stranger, &dir, b"f", FileKind::File, 0o644, 0);
        assert!(matches!(made, Err(Error::NotFound)), "{made:?}");
    });
}
