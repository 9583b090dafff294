//! Metadata in persistent memory with data on a failing disk. Changes that lead to bytes that may
//! be lost are rolled back, even if the machine keeps running.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use vellum::media::{HeapMemory, SimLogged, SimPool, SimulatedLogged};
use vellum::{
    Clock, Cred, Error, ExternalData, FormatOptions, Fs, MappingKind, MountOptions, OpenOptions,
    Opened, Result, attach, format,
};

type SplitFs = Arc<Fs<SimulatedLogged>>;

/// All processes are of one boot.
const BOOT: [u8; 16] = [3; 16];

fn made() -> Arc<SimPool> {
    made_with(0)
}

/// A pool whose external data device has so much space for a metadata replica.
fn made_with(replica_bytes: u64) -> Arc<SimPool> {
    let disk = Arc::new(SimPool::new((5 << 19) + replica_bytes));
    let options = FormatOptions {
        thread_slots: Some(2),
        mapping: MappingKind::Extent,
        metadata_bytes: Some(1 << 18),
        external: Some(ExternalData {
            id: [9; 16],
            at: 4096,
            data_bytes: 1 << 20,
            replica_bytes,
        }),
        hash_seed: 5,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&*disk, &options).unwrap();
    disk
}

fn mount(disk: &Arc<SimPool>) -> Result<(SplitFs, Opened)> {
    let options = MountOptions {
        clock: Clock::Counter(AtomicI64::new(1)),
        boot_id: BOOT,
        ..MountOptions::default()
    };
    let pool = SimLogged::new(Arc::clone(disk), None);
    attach::<SimulatedLogged>(pool, |bytes| Ok(HeapMemory::new(bytes)), options)
}

fn write(fs: &SplitFs, name: &str) -> Result<usize> {
    let options = OpenOptions::new().write(true).create(true).mode(0o644);
    let file = fs.open(&Cred::root(), &fs.root(), name.as_bytes(), &options)?;
    file.write_at(0, &[7; 5000])
}

fn read(fs: &SplitFs, name: &str) -> Result<Vec<u8>> {
    let options = OpenOptions::new().read(true);
    let file = fs.open(&Cred::root(), &fs.root(), name.as_bytes(), &options)?;
    let mut bytes = vec![0; 9000];
    let len = file.read_at(0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Asserts that nothing is committed or changed any more, and that existing data can be read.
#[track_caller]
fn assert_stopped(fs: &SplitFs) {
    for _ in 0..2 {
        assert!(matches!(fs.sync(), Err(Error::Io(_))));
    }
    assert!(matches!(write(fs, "c"), Err(Error::ReadOnlyAfterDamage)));
    assert_eq!(read(fs, "a").unwrap(), [7; 5000]);
}

/// Asserts that the next process, although of the same boot, finds only what was committed, and can
/// continue.
#[track_caller]
fn assert_taken_back(disk: &Arc<SimPool>) {
    let (fs, opened) = mount(disk).unwrap();
    assert!(opened.granules_rolled_back > 0);
    assert_eq!(read(&fs, "a").unwrap(), [7; 5000]);
    assert!(matches!(read(&fs, "b"), Err(Error::NotFound)));
    write(&fs, "b").unwrap();
    fs.sync().unwrap();
    drop(fs);
    let (fs, opened) = mount(disk).unwrap();
    assert_eq!(opened.granules_rolled_back, 0);
    assert_eq!(read(&fs, "b").unwrap(), [7; 5000]);
}

#[test]
fn a_sync_that_fails_is_not_tried_again() {
    let disk = made();
    let (fs, _) = mount(&disk).unwrap();
    write(&fs, "a").unwrap();
    fs.sync().unwrap();
    write(&fs, "b").unwrap();
    disk.fail_syncs_after(0);
    assert!(matches!(fs.sync(), Err(Error::Io(_))));
    disk.fail_syncs_after(u32::MAX);
    assert_stopped(&fs);
    drop(fs);
    assert_taken_back(&disk);
}

#[test]
fn bytes_that_cannot_be_written_end_commits() {
    let disk = made();
    let (fs, _) = mount(&disk).unwrap();
    write(&fs, "a").unwrap();
    fs.sync().unwrap();
    disk.fail_writes_after(0);
    assert!(matches!(write(&fs, "b"), Err(Error::Io(_))));
    disk.fail_writes_after(u32::MAX);
    assert_stopped(&fs);
    drop(fs);
    assert_taken_back(&disk);
}

/// An opening has to sync the data of the last process before it can keep its changes. If that
/// fails, the opening fails, and the next one rolls back.
#[test]
fn an_opening_that_cannot_sync_fails_and_the_next_rolls_back() {
    // A device with a replica is synced when the replica is marked stale, and that sync reports the
    // error.
    for replica_bytes in [0, 1 << 20] {
        let disk = made_with(replica_bytes);
        let (fs, _) = mount(&disk).unwrap();
        write(&fs, "a").unwrap();
        fs.sync().unwrap();
        write(&fs, "b").unwrap();
        drop(fs);
        disk.fail_syncs_after(0);
        assert!(matches!(mount(&disk), Err(Error::Io(_))));
        disk.fail_syncs_after(u32::MAX);
        assert_taken_back(&disk);
    }
}
