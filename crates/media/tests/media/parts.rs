//! Several pools in one file: the location of their bytes, the lock, and their space.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use vellum_media::{
    FileBytes, MappedPool, MediaChoice, MediaError, MediaKind, Medium, Memory, OpenMode,
    Persistent, Site,
};

const UNIT: u64 = 2 << 20;

fn file() -> (tempfile::TempDir, PathBuf, MappedPool) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("pool");
    let whole = MappedPool::create(&path, 2 * UNIT, MediaChoice::File).expect("created");
    (dir, path, whole)
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).expect("there").len()
}

#[test]
fn a_dataset_has_only_its_own_bytes() {
    let (_dir, path, whole) = file();
    let name = path.with_extension("x");
    let part = whole.part((UNIT, UNIT), &name, false).expect("mapped");
    assert_eq!(
        (part.len(), part.own_bytes(), part.start()),
        (UNIT, UNIT, UNIT)
    );
    assert_eq!(part.path(), Some(name.as_path()));
    part.write_through(Site::UNNAMED, 4096, &[7; 4096]);
    part.store(UNIT - 8, 9, Relaxed);
    part.sync().expect("synced");
    assert_eq!(whole.load(UNIT + 4096, Relaxed), u64::from_le_bytes([7; 8]));
    let bytes = fs::read(&path).expect("read");
    let (first, own) = bytes.split_at(UNIT as usize);
    assert!(first.iter().all(|&byte| byte == 0));
    assert_eq!(own[4096..8192], [7; 4096]);
    assert_eq!(own[UNIT as usize - 8], 9);
    // A window maps the bytes of the file at the dataset's offset.
    let window = part.window(4096).expect("a window");
    part.lay(&window, 0, 4096, 4096).expect("laid");
    let mut shown = [0; 16];
    part.read_window(&window, 0, &mut shown);
    assert_eq!(shown, [7; 16]);
}

#[test]
fn a_dataset_opened_read_only_changes_nothing() {
    let (_dir, path, whole) = file();
    let view = whole.part((0, UNIT), &path, true).expect("mapped");
    assert!(view.is_read_only());
    view.store(64, 5, Relaxed);
    assert_eq!((view.load(64, Relaxed), whole.load(64, Relaxed)), (5, 0));
    drop(whole);
    let mode = OpenMode {
        read_only: true,
        ..OpenMode::default()
    };
    let reader = MappedPool::open(&path, mode);
    assert!(
        matches!(reader, Err(MediaError::Busy { .. })),
        "as locked as it was"
    );
    drop(view);
    let reader = MappedPool::open(&path, mode).expect("free");
    let part = reader.part((UNIT, UNIT), &path, false).expect("mapped");
    assert!(part.is_read_only());
}

#[test]
fn the_lock_is_released_with_the_last_of_them() {
    let (_dir, path, whole) = file();
    let open = || MappedPool::open(&path, OpenMode::default());
    let one = whole.part((0, UNIT), &path, false).expect("mapped");
    let two = whole.part((UNIT, UNIT), &path, false).expect("mapped");
    drop(whole);
    assert!(matches!(open(), Err(MediaError::Busy { .. })));
    drop(one);
    assert!(matches!(open(), Err(MediaError::Busy { .. })));
    drop(two);
    assert_eq!(open().expect("free").len(), 2 * UNIT);
}

#[test]
fn ranges_outside_the_file_are_refused() {
    let (_dir, path, whole) = file();
    for place in [
        (UNIT, 2 * UNIT),
        (100, UNIT),
        (0, 0),
        (u64::MAX - 4095, 8192),
    ] {
        assert!(whole.part(place, &path, false).is_err(), "{place:?}");
    }
}

#[test]
fn space_is_allocated_and_returned() {
    let (_dir, path, whole) = file();
    let part = whole.new_part(2 * UNIT, UNIT, &path).expect("made");
    assert!(part.known_zero());
    part.write_through(Site::UNNAMED, 0, &[3; 64]);
    let more = whole.new_part(3 * UNIT, UNIT, &path).expect("made");
    assert_eq!(len(&path), 4 * UNIT);
    let taken = fs::metadata(&path).expect("there").blocks();
    drop(part);
    // In the middle it becomes a hole, which reads as zero when it is used again.
    whole.free_part(2 * UNIT, UNIT, 4 * UNIT);
    assert_eq!(len(&path), 4 * UNIT);
    assert!(fs::metadata(&path).expect("there").blocks() < taken);
    let again = whole.new_part(2 * UNIT, UNIT, &path).expect("made");
    assert_eq!((again.known_zero(), again.load(0, Relaxed)), (true, 0));
    drop((again, more));
    whole.free_part(3 * UNIT, UNIT, 3 * UNIT);
    assert_eq!(len(&path), 3 * UNIT);
    whole.free_part(2 * UNIT, UNIT, 2 * UNIT);
    assert_eq!(len(&path), 2 * UNIT);
    let much = whole.new_part(2 * UNIT, 1 << 55, &path);
    assert!(much.is_err());
    assert_eq!(len(&path), 2 * UNIT);
}

#[test]
fn a_dataset_is_treated_as_the_requested_medium() {
    let (_dir, path, whole) = file();
    let kind = |media| {
        let part = whole.part((0, UNIT), &path, false).expect("mapped");
        part.taken_for(media).map(|part| part.kind())
    };
    assert_eq!(kind(MediaChoice::Auto).expect("a kind"), MediaKind::File);
    assert_eq!(kind(MediaChoice::Logged).expect("a kind"), MediaKind::File);
    assert_eq!(
        kind(MediaChoice::Memory).expect("a kind"),
        MediaKind::Memory
    );
    assert!(matches!(
        kind(MediaChoice::Dax),
        Err(MediaError::NotDax { .. })
    ));
}
