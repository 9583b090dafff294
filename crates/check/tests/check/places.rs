//! Names of locations in a pool.

use crate::testimage::sample;
use vellum_check::Locator;

#[test]
fn structures_have_names() {
    let sample = sample();
    let geometry = sample.image.geometry;
    let locator = Locator::new(&sample.image.bytes);
    let (file, dir) = (sample.file, sample.dir);
    let entry = format!("entry of inode {file} in directory 1, line 1");
    let slot = |number: u64| geometry.slot_at(number);
    for (at, name) in [
        (70, "superblock, line 1".to_owned()),
        (geometry.state_at, "state block, line 0".to_owned()),
        (
            geometry.thread_slot_at(1) + 64,
            "journal of thread slot 1, line 1".to_owned(),
        ),
        (
            geometry.chunk_table_at + 64,
            "chunk table, words 8 to 15".to_owned(),
        ),
        (geometry.live_map_at, "saved live map, line 0".to_owned()),
        (slot(file), format!("inode {file}, line 0")),
        (slot(dir) + 64, format!("inode {dir}, line 1")),
        (slot(sample.file_entry) + 64, entry),
        (
            geometry.table_at + 128,
            "mapping table, words 16 to 23".to_owned(),
        ),
        (
            geometry.saved_state_at,
            "saved allocator state, line 0".to_owned(),
        ),
        (geometry.last_copy_at, "last superblock, line 0".to_owned()),
    ] {
        assert_eq!(locator.name(at), name, "{at:#x}");
    }
    let free = geometry.data_at + (geometry.segment_blocks - 1) * 4096 + 64;
    let name = format!("data block {}, line 1 (free)", geometry.segment_blocks - 1);
    assert_eq!(locator.name(free), name);
    let lines = (geometry.meta_at..geometry.table_at).step_by(64);
    let logs = lines
        .map(|at| locator.name(at))
        .filter(|name| name.starts_with("log of "));
    assert!(
        logs.filter(|name| name.starts_with(&format!("log of directory {dir}, ")))
            .count()
            > 2
    );
}

#[test]
fn every_location_has_a_name() {
    let sample = sample();
    let locator = Locator::new(&sample.image.bytes);
    for at in (0..sample.image.bytes.len() as u64).step_by(64) {
        assert!(!locator.name(at).is_empty());
    }
}

#[test]
fn bytes_without_a_pool_have_no_locations() {
    let zeros = vec![0; 1 << 20];
    assert_eq!(
        Locator::new(&zeros).name(64),
        "offset 0x40 outside any pool"
    );
}
