//! Directories in areas that no longer exist. Every call reports a name that is not found there as
//! damage, and so does the checker.

use std::sync::Arc;

use vellum::media::{HeapMemory, SimPool, Simulated};
use vellum::{
    Clock, Cred, Error, FileKind, FormatOptions, Fs, ListPosition, MountOptions, NamespaceKind,
    Node, OpenOptions, attach, format,
};
use vellum_check::{Options, check};
use vellum_layout::{AreaLife, AreaLine, AreaPhase, Superblock};
use zerocopy::{FromBytes, IntoBytes};

type Pool = Arc<Fs<Simulated>>;

/// The area of which the directory `own` is the root.
const OWN: u32 = 2;

fn mount(image: Vec<u8>) -> vellum::Result<Pool> {
    let options = MountOptions {
        clock: Clock::Counter(1_000_000.into()),
        ..MountOptions::default()
    };
    let pool = SimPool::from_image(image);
    let arena = |bytes| Ok(HeapMemory::new(bytes));
    Ok(attach::<Simulated>(pool, arena, options)?.0)
}

fn node(fs: &Pool, path: &str) -> vellum::Result<Node<Simulated>> {
    fs.find(&Cred::root(), &fs.root(), path.as_bytes(), false)
}

/// A pool with an area of the directory `own`, which contains a file, a directory with a file, and
/// an empty directory; and another directory beside it.
fn sample(is_closed: bool) -> Vec<u8> {
    let pool = SimPool::new(2 << 20);
    let options = FormatOptions {
        namespace: NamespaceKind::Adaptive,
        uuid: [3; 16],
        hash_seed: 5,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    let (fs, root) = (mount(pool.image()).unwrap(), Cred::root());
    for (above, name) in [
        ("/", "own"),
        ("/own", "dir"),
        ("/own", "empty"),
        ("/", "beside"),
    ] {
        let above = node(&fs, above).unwrap();
        fs.mkdir(&root, &above, name.as_bytes(), 0o755).unwrap();
    }
    for above in ["/own", "/own/dir", "/beside"] {
        let above = node(&fs, above).unwrap();
        let made = fs.create(&root, &above, b"file", &OpenOptions::default());
        made.unwrap();
    }
    assert!(fs.split(&node(&fs, "/own").unwrap()).unwrap());
    if is_closed {
        fs.close().unwrap();
    }
    fs.pool().image()
}

/// The pool after `change` of the line of the directory's area.
fn damaged(is_closed: bool, change: fn(&mut AreaLine)) -> Vec<u8> {
    let mut image = sample(is_closed);
    let geometry = Superblock::unseal(&image[..4096]).unwrap().geometry();
    let at = geometry.slot_at(geometry.areas.table) as usize + OWN as usize * size_of::<AreaLine>();
    let bytes = &mut image[at..][..size_of::<AreaLine>()];
    let mut line = AreaLine::read_from_bytes(bytes).unwrap();
    assert_eq!(line.phase(OWN), Some(AreaPhase::Live));
    change(&mut line);
    bytes.copy_from_slice(line.as_bytes());
    image
}

fn freed(line: &mut AreaLine) {
    line.word = 0;
}

fn lost(line: &mut AreaLine) {
    *line = AreaLine::default();
}

fn flipped(line: &mut AreaLine) {
    line.word ^= 1 << 20;
}

/// Names another directory as the root, in a sound line.
fn others(line: &mut AreaLine) {
    let area = AreaLife {
        number: OWN,
        generation: line.generation,
    };
    *line = AreaLine::new(area, AreaPhase::Live, line.root, line.root_generation + 1);
}

const CHANGES: [fn(&mut AreaLine); 3] = [freed, lost, flipped];

fn is_damage<T>(result: vellum::Result<T>) -> bool {
    matches!(result, Err(Error::Damaged { .. }))
}

fn list(fs: &Pool, path: &str) -> vellum::Result<()> {
    let mut each = |_: vellum::ListEntry<'_>| true;
    fs.list(&node(fs, path)?, 0, &mut ListPosition::default(), &mut each)
}

#[test]
fn a_missing_name_in_a_missing_area_is_damage() {
    for change in CHANGES {
        let image = damaged(true, change);
        assert!(!check(&image, Options::default()).is_sound());
        for path in ["/own", "/own/dir", "/own/empty"] {
            let fs = mount(image.clone()).unwrap();
            if let Ok(dir) = node(&fs, path) {
                // Twice, because the damage must not be forgotten.
                for _ in 0..2 {
                    let found = fs.lookup(&Cred::root(), &dir, b"none");
                    assert!(is_damage(found), "{path}");
                }
            } else {
                assert!(is_damage(node(&fs, path)), "{path}");
            }
            assert!(is_damage(node(&fs, &format!("{path}/none"))), "{path}");
            assert!(is_damage(node(&fs, &format!("{path}/none/none"))), "{path}");
            assert!(fs.is_damaged());
            // Names beside it are still readable.
            assert!(node(&fs, "/beside/file").is_ok());
            assert!(matches!(node(&fs, "/beside/none"), Err(Error::NotFound)));
        }
    }
}

/// A file whose entry can still be read is found.
#[test]
fn readable_names_in_a_missing_area_are_read() {
    for change in [freed, flipped] {
        let fs = mount(damaged(true, change)).unwrap();
        for path in ["/own/file", "/own/dir/file", "/own/empty"] {
            assert!(node(&fs, path).is_ok(), "{path}");
        }
        assert!(fs.is_damaged());
    }
}

#[test]
fn a_listing_in_a_missing_area_is_damage() {
    for change in CHANGES {
        let image = damaged(true, change);
        for path in ["/own", "/own/dir", "/own/empty"] {
            let fs = mount(image.clone()).unwrap();
            for _ in 0..2 {
                assert!(is_damage(list(&fs, path)), "{path}");
            }
            assert!(fs.is_damaged());
            assert!(list(&fs, "/beside").is_ok());
        }
    }
}

#[test]
fn nothing_is_created_in_a_missing_area() {
    for change in CHANGES {
        let image = damaged(true, change);
        for path in ["/own", "/own/dir", "/own/empty"] {
            let fs = mount(image.clone()).unwrap();
            let made = node(&fs, path)
                .and_then(|dir| fs.mknod(&Cred::root(), &dir, b"new", FileKind::File, 0o644, 0));
            // The damage may have been found on the way there. Then all changes are refused.
            let is_refused = path != "/own" && matches!(made, Err(Error::ReadOnlyAfterDamage));
            assert!(is_refused || is_damage(made), "{path}");
            assert!(fs.is_damaged());
        }
    }
}

/// An opening checks all lines that are in use by areas, and after a crash all entries.
#[test]
fn an_opening_finds_what_it_reads() {
    assert!(is_damage(mount(damaged(true, others))));
    for change in CHANGES {
        assert!(is_damage(mount(damaged(false, change))));
    }
    assert!(mount(sample(true)).is_ok() && mount(sample(false)).is_ok());
}
