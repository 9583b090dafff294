//! Directories with unreadable names. Whichever call meets them first loses none of the readable
//! names.

use std::sync::Arc;

use vellum::media::{HeapMemory, SimPool, Simulated};
use vellum::{
    Clock, Cred, Error, FileKind, FormatOptions, Fs, ListEntry, ListPosition, MountOptions, Node,
    OpenOptions, RenameFlags, attach, format,
};
use vellum_layout::Superblock;

type Pool = Arc<Fs<Simulated>>;

fn mount(image: Vec<u8>, read_only: bool) -> Pool {
    let options = MountOptions {
        read_only,
        clock: Clock::Counter(1_000_000.into()),
        ..MountOptions::default()
    };
    let pool = SimPool::from_image(image);
    let arena = |bytes| Ok(HeapMemory::new(bytes));
    attach::<Simulated>(pool, arena, options).unwrap().0
}

fn node(fs: &Pool, path: &str) -> vellum::Result<Node<Simulated>> {
    fs.find(&Cred::root(), &fs.root(), path.as_bytes(), false)
}

/// A cleanly closed pool, with a directory one of whose two names was damaged.
fn damaged() -> Vec<u8> {
    let pool = SimPool::new(1 << 20);
    let options = FormatOptions {
        uuid: [3; 16],
        hash_seed: 5,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    let (fs, root) = (mount(pool.image(), false), Cred::root());
    for dir in [&b"hurt"[..], b"empty"] {
        fs.mkdir(&root, &fs.root(), dir, 0o755).unwrap();
    }
    let dir = node(&fs, "hurt").unwrap();
    for (dir, name) in [
        (&dir, &b"readable"[..]),
        (&dir, b"unreadable"),
        (&fs.root(), b"file"),
    ] {
        fs.create(&root, dir, name, &OpenOptions::default())
            .unwrap();
    }
    fs.close().unwrap();
    let mut image = fs.pool().image();
    let geometry = Superblock::unseal(&image[..4096]).unwrap().geometry();
    let entry = (1..geometry.meta_slots())
        .map(|slot| geometry.slot_at(slot) as usize)
        .find(|&at| image[at + 48..].starts_with(b"unreadable"))
        .unwrap();
    image[entry + 50] ^= 1;
    image
}

/// Makes `call` the first access to the directory. It has to fail, and the other name has to exist
/// afterwards.
fn first_call(call: impl FnOnce(&Pool, &Node<Simulated>) -> vellum::Result<()>) {
    let fs = mount(damaged(), false);
    let dir = node(&fs, "hurt").unwrap();
    let error = call(&fs, &dir).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(fs.is_damaged());
    let fs = mount(fs.pool().image(), true);
    assert!(node(&fs, "hurt/readable").is_ok());
    assert!(node(&fs, "file").is_ok() && node(&fs, "empty").is_ok());
}

/// A creation once took the log, whose end was unknown, for empty, and began a new one.
#[test]
fn a_creation_in_a_directory_with_unreadable_names_keeps_its_log() {
    first_call(|fs, dir| {
        fs.mknod(&Cred::root(), dir, b"new", FileKind::File, 0o644, 0)
            .map(drop)
    });
}

#[test]
fn a_link_into_a_directory_with_unreadable_names_keeps_its_log() {
    first_call(|fs, dir| fs.link(&Cred::root(), &node(fs, "file")?, dir, b"new"));
}

#[test]
fn a_rename_onto_a_readable_name_beside_unreadable_ones_keeps_the_log() {
    first_call(|fs, dir| {
        let flags = RenameFlags::empty();
        fs.rename(&Cred::root(), &fs.root(), b"file", dir, b"readable", flags)
    });
}

/// A directory in which nothing could be counted was once taken for empty.
#[test]
fn a_directory_with_unreadable_names_is_not_removed() {
    first_call(|fs, _| fs.rmdir(&Cred::root(), &fs.root(), b"hurt"));
}

#[test]
fn a_directory_with_unreadable_names_is_not_replaced() {
    first_call(|fs, _| {
        let (root, flags) = (fs.root(), RenameFlags::empty());
        fs.rename(&Cred::root(), &root, b"empty", &root, b"hurt", flags)
    });
}

/// After the directory was indexed, a listing once used the log's entries unchecked, and returned
/// the damaged name.
#[test]
fn a_listing_after_a_lookup_returns_no_unreadable_name() {
    let fs = mount(damaged(), true);
    let dir = node(&fs, "hurt").unwrap();
    assert!(node(&fs, "hurt/readable").is_ok());
    for _ in 0..2 {
        let mut names = Vec::new();
        let mut each = |entry: ListEntry<'_>| {
            names.push(entry.name.to_vec());
            true
        };
        let listed = fs.list(&dir, 0, &mut ListPosition::default(), &mut each);
        assert!(matches!(listed, Err(Error::Damaged { .. })), "{listed:?}");
        assert_eq!(names, [b"readable"]);
    }
}
