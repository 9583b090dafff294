//! What a clean close saves, and what an opening after it need not read.

use std::sync::Arc;

use vellum::media::{CrashPoints, HeapMemory, SimPool, Simulated};
use vellum::{
    Clock, Cred, Error, FormatOptions, Fs, ListPosition, MountOptions, OpenOptions, attach, format,
};
use vellum_check::{Class, Options, check};
use vellum_layout::{ChunkKind, ChunkWord, Geometry, IdentityWord, InodeState, ROOT_SLOT};

fn try_open(image: Vec<u8>) -> vellum::Result<Arc<Fs<Simulated>>> {
    let pool = SimPool::from_image(image);
    let arena = |bytes| Ok(HeapMemory::new(bytes));
    attach::<Simulated>(pool, arena, MountOptions::default()).map(|(fs, _)| fs)
}

struct Opened {
    fs: Arc<Fs<Simulated>>,
    /// Offsets of the pool lines that were read.
    read: Vec<u64>,
}

fn open(image: Vec<u8>) -> Opened {
    let options = MountOptions {
        clock: Clock::Counter(1_000_000.into()),
        ..MountOptions::default()
    };
    let pool = SimPool::from_image(image);
    pool.track_reads(true);
    let arena = |bytes| Ok(HeapMemory::new(bytes));
    let (fs, _) = attach::<Simulated>(pool, arena, options).unwrap();
    fs.pool().track_reads(false);
    let read = fs.pool().lines_read();
    Opened { fs, read }
}

fn close(fs: &Fs<Simulated>) -> Vec<u8> {
    fs.close().unwrap();
    let image = fs.pool().image();
    let report = check(&image, Options::default());
    assert_eq!((report.damage, report.residue), (0, 0), "{report}");
    image
}

const FILES: u64 = 60;

fn name(file: u64) -> String {
    format!("d{}/f{file}", file % 3)
}

/// Files beyond the sample's are empty.
fn content(file: u64) -> Vec<u8> {
    let len = if file > FILES { 0 } else { file * 700 % 40_000 };
    (0..len).map(|at| (at * 31 + file) as u8).collect()
}

fn write(fs: &Arc<Fs<Simulated>>, file: u64) {
    let options = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644);
    let path = name(file);
    let handle = fs
        .open(&Cred::root(), &fs.root(), path.as_bytes(), &options)
        .unwrap();
    handle.write_at(0, &content(file)).unwrap();
}

fn remove(fs: &Arc<Fs<Simulated>>, file: u64) {
    let (root, path) = (Cred::root(), name(file));
    let (dir, name) = path.split_at(2);
    let dir = fs.lookup(&root, &fs.root(), dir.as_bytes()).unwrap();
    fs.unlink(&root, &dir, &name.as_bytes()[1..]).unwrap();
}

fn assert_files(fs: &Arc<Fs<Simulated>>, there: impl Fn(u64) -> bool) {
    let options = OpenOptions::new().read(true);
    for file in 1..=FILES {
        let path = name(file);
        let handle = fs.open(&Cred::root(), &fs.root(), path.as_bytes(), &options);
        assert_eq!(handle.is_ok(), there(file), "{path}");
        if let Ok(handle) = handle {
            let mut bytes = vec![0; 50_000];
            let len = handle.read_at(0, &mut bytes).unwrap();
            assert!(bytes[..len] == content(file), "{path}");
        }
    }
}

/// A pool that is two thirds full, open.
fn sample() -> Arc<Fs<Simulated>> {
    let pool = SimPool::new(2 << 20);
    let options = FormatOptions {
        uuid: [3; 16],
        hash_seed: 5,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    let fs = open(pool.image()).fs;
    for dir in [b"d0", b"d1", b"d2"] {
        fs.mkdir(&Cred::root(), &fs.root(), dir, 0o755).unwrap();
    }
    for file in 1..=FILES {
        write(&fs, file);
    }
    fs
}

fn geometry(fs: &Fs<Simulated>) -> Geometry {
    fs.superblock().geometry()
}

fn lines_in(read: &[u64], from: u64, to: u64) -> Vec<u64> {
    read.iter()
        .copied()
        .filter(|line| (from..to).contains(line))
        .collect()
}

#[test]
fn an_opening_after_a_close_reads_neither_table_nor_logs_nor_inodes() {
    let fs = sample();
    let geometry = geometry(&fs);
    let opened = open(close(&fs));
    let table = lines_in(&opened.read, geometry.table_at, geometry.saved_state_at);
    assert_eq!(table, [], "the mapping table");
    let root = geometry.slot_at(ROOT_SLOT);
    let metadata = lines_in(&opened.read, geometry.meta_at, geometry.table_at);
    assert_eq!(
        metadata,
        [root, root + 64],
        "the root's inode and nothing else"
    );
    assert_files(&opened.fs, |_| true);
    close(&opened.fs);
}

#[test]
fn an_opening_after_a_crash_reads_all_of_them() {
    let fs = sample();
    let geometry = geometry(&fs);
    let opened = open(fs.pool().image());
    let table = lines_in(&opened.read, geometry.table_at, geometry.saved_state_at);
    assert_eq!(table.len() as u64, geometry.table_lines());
    for chunk in 0..geometry.meta_chunks {
        let word = ChunkWord(vellum::media::Memory::load(
            fs.pool(),
            geometry.chunk_table_at + chunk * 8,
            std::sync::atomic::Ordering::Relaxed,
        ));
        let from = geometry.meta_at + chunk * geometry.chunk_bytes;
        let lines = lines_in(&opened.read, from, from + geometry.chunk_bytes).len();
        let inodes = word.decode(chunk) == Some((ChunkKind::Inodes, 0));
        assert!(
            !inodes || lines as u64 >= geometry.slots_per_chunk() - 1,
            "chunk {chunk}"
        );
    }
    assert_files(&opened.fs, |_| true);
}

/// Freed blocks are durably free after a close, although their freeing was not flushed at the time:
/// the saved bitmap marks them as free, and the table is not read again.
#[test]
fn blocks_freed_before_a_close_are_free_after_it() {
    let fs = sample();
    let before = fs.stat_fs().blocks_free;
    for file in (1..=FILES).filter(|file| file % 2 == 0) {
        remove(&fs, file);
    }
    let fs = open(close(&fs)).fs;
    assert_files(&fs, |file| file % 2 == 1);
    for file in (1..=FILES).filter(|file| file % 2 == 0) {
        write(&fs, file);
    }
    assert_eq!(fs.stat_fs().blocks_free, before);
    assert_files(&fs, |_| true);
    close(&fs);
}

#[test]
fn damaged_or_old_saved_state_is_ignored() {
    let fs = sample();
    let geometry = geometry(&fs);
    let first = close(&fs);
    let fs = open(first.clone()).fs;
    (1..10).for_each(|file| remove(&fs, file));
    (1..10).rev().for_each(|file| write(&fs, file));
    remove(&fs, 20);
    let second = close(&fs);
    let saved_state = geometry.saved_state_at as usize..geometry.data_at as usize;
    assert_ne!(first[saved_state.clone()], second[saved_state.clone()]);
    let mut old = second.clone();
    old[saved_state.clone()].copy_from_slice(&first[saved_state.clone()]);
    let mut damaged = second.clone();
    damaged[geometry.saved_state().free_at() as usize] ^= 1;
    let mut gone = second;
    gone[saved_state].fill(0);
    for image in [old, damaged, gone] {
        let opened = open(image);
        let table = lines_in(&opened.read, geometry.table_at, geometry.saved_state_at);
        assert_eq!(table.len() as u64, geometry.table_lines());
        assert_files(&opened.fs, |file| file != 20);
        write(&opened.fs, 20);
        close(&opened.fs);
    }
}

/// From the first store after an opening on, the state that the close saved is invalid.
#[test]
fn a_crash_after_an_opening_finds_the_saved_state_void() {
    let fs = sample();
    let geometry = geometry(&fs);
    let fs = open(close(&fs)).fs;
    remove(&fs, 3);
    write(&fs, 6);
    let opened = open(fs.pool().image());
    let table = lines_in(&opened.read, geometry.table_at, geometry.saved_state_at);
    assert_eq!(table.len() as u64, geometry.table_lines());
    assert_files(&opened.fs, |file| file != 3);
    close(&opened.fs);
}

/// The names behind a position, with their positions.
fn listed(fs: &Arc<Fs<Simulated>>, after: u64) -> Vec<(u64, Vec<u8>)> {
    let dir = fs.lookup(&Cred::root(), &fs.root(), b"d0").unwrap();
    let mut found = Vec::new();
    let mut each = |entry: vellum::ListEntry<'_>| {
        found.push((entry.cookie, entry.name.to_vec()));
        true
    };
    fs.list(&dir, after, &mut ListPosition::default(), &mut each)
        .unwrap();
    found
}

/// A position that a reader kept over a mount (a handle of a network file system does) leads to the
/// same point as before, although the entries at the log's end are recycled and the log grows
/// again. No name created since has a cookie that was assigned before.
#[test]
fn positions_stay_valid_after_a_mount() {
    for closed in [true, false] {
        let mut fs = sample();
        for round in 0..3u64 {
            let first = 1000 * (round + 1);
            // More files, in one directory, than recycling waits for.
            let files = (first..first + 120).map(|file| file * 3);
            files.clone().for_each(|file| write(&fs, file));
            let given = listed(&fs, 0);
            assert!(given.len() >= 120);
            files.for_each(|file| remove(&fs, file));
            fs.maintain().unwrap();
            let left: Vec<_> = listed(&fs, 0).into_iter().map(|(_, name)| name).collect();
            let image = if closed {
                close(&fs)
            } else {
                fs.pool().image()
            };
            fs = open(image).fs;
            write(&fs, 3 * first);
            assert_eq!(listed(&fs, 0).len(), left.len() + 1);
            for (at, (position, _)) in given.iter().enumerate() {
                let behind = given[at + 1..]
                    .iter()
                    .filter(|entry| left.contains(&entry.1));
                let behind: Vec<_> = behind.cloned().collect();
                assert_eq!(listed(&fs, *position), behind, "round {round}, behind {at}");
            }
            remove(&fs, 3 * first);
        }
    }
}

/// No crash leaves one, because the entry is durably dead before the inode becomes an orphan.
#[test]
fn an_orphan_with_a_name_is_damage_for_recovery_and_checker_alike() {
    let fs = sample();
    let file = fs.lookup(&Cred::root(), &fs.root(), b"d0").unwrap();
    let file = fs.lookup(&Cred::root(), &file, b"f3").unwrap();
    for ino in [fs.attr(&file).unwrap().ino, ROOT_SLOT] {
        let mut image = fs.pool().image();
        let at = geometry(&fs).slot_at(ino) as usize;
        let word = u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
        let orphan = IdentityWord(word).with_state(InodeState::Orphan);
        image[at..at + 8].copy_from_slice(&orphan.0.to_le_bytes());
        let report = check(&image, Options::default());
        assert!(
            report.has(Class::NamedOrphan) || report.has(Class::Root),
            "{report}"
        );
        let refused = try_open(image);
        assert!(matches!(refused, Err(Error::Damaged { .. })));
    }
}

/// Open files of a closed pool can be read, but nothing of them can be changed, because the pool is
/// marked clean.
#[test]
fn nothing_changes_after_a_close() {
    let (fs, cred) = (sample(), Cred::root());
    let root = fs.root();
    let options = OpenOptions::new().read(true).write(true);
    let file = fs.open(&cred, &root, b"d0/f3", &options).unwrap();
    let image = close(&fs);
    let mode = vellum::SetAttr::new().mode(Some(0o600));
    let refused = [
        file.write_at(0, b"late").map(drop),
        file.append(b"late").map(drop),
        file.truncate(1),
        file.allocate(vellum::Allocate::PunchHole, 0, 4096),
        fs.mkdir(&cred, &root, b"late", 0o755).map(drop),
        fs.rmdir(&cred, &root, b"d1"),
        fs.set_attr(&cred, file.node(), &mode).map(drop),
    ];
    for result in refused {
        assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    }
    let mut bytes = vec![0; content(3).len()];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    assert_eq!(bytes, content(3));
    assert!(image == fs.pool().image(), "the closed pool changed");
}

#[test]
fn a_close_beside_creations_keeps_those_that_returned_and_no_others() {
    let fs = sample();
    let made = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    let image = std::thread::scope(|scope| {
        for thread in 0..2 {
            let (fs, made) = (&fs, &made);
            scope.spawn(move || {
                for i in 0.. {
                    let name = format!("{thread}-{i}");
                    match fs.mkdir(&Cred::root(), &fs.root(), name.as_bytes(), 0o755) {
                        Ok(_) => made.fetch_add(1, order),
                        Err(Error::Closed | Error::NoSpace(_)) => break,
                        Err(error) => panic!("{error}"),
                    };
                }
            });
        }
        while made.load(order) < 20 {
            std::thread::yield_now();
        }
        close(&fs)
    });
    let opened = open(image).fs;
    let mut found = 0;
    let mut count = |entry: vellum::ListEntry<'_>| {
        found += u64::from(entry.name.contains(&b'-'));
        true
    };
    let (root, mut start) = (opened.root(), ListPosition::default());
    opened.list(&root, 0, &mut start, &mut count).unwrap();
    assert_eq!(found, made.into_inner());
}

/// Tells readers to stop, even if a test fails.
struct Stop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

/// What a reader's thread slot held was once marked as used for ever.
#[test]
fn a_close_beside_reads_marks_no_unused_slot_as_used() {
    let fs = sample();
    let options = OpenOptions::new().read(true).no_atime(true);
    let file = fs.open(&Cred::root(), &fs.root(), b"d0/f57", &options);
    let (file, done) = (file.unwrap(), std::sync::atomic::AtomicBool::new(false));
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Uses the thread slot that created everything.
                vellum::prefer_thread_slot(0);
                while !done.load(order) {
                    file.read_at(0, &mut [0; 50_000]).unwrap();
                }
            });
        }
        let _stop = Stop(&done);
        vellum::prefer_thread_slot(0);
        for _ in 0..20 {
            close(&fs);
        }
    });
}

/// A link count that one thread had flushed but not fenced could once be lost after a close by
/// another thread: on a closed pool nobody recounts.
#[test]
fn a_close_by_another_thread_keeps_link_counts() {
    for removes in [false, true] {
        let fs = sample();
        let (root, cred) = (fs.root(), Cred::root());
        let file = fs.find(&cred, &root, b"d0/f3", false).unwrap();
        fs.link(&cred, &file, &root, b"second").unwrap();
        fs.sync().unwrap();
        let base = fs.pool().image();
        fs.pool().start_recording();
        std::thread::scope(|scope| {
            let change = || match removes {
                true => fs.unlink(&cred, &root, b"second"),
                false => fs.link(&cred, &file, &root, b"third"),
            };
            scope.spawn(change).join().unwrap().unwrap();
        });
        let links = fs.attr(&file).unwrap().nlink;
        drop(file);
        close(&fs);
        let log = fs.pool().take_log();
        let mut points = CrashPoints::new(base, &log);
        while points.next_point().is_some() {}
        for state in points.here().states(64, 1) {
            let image = points.here().image(&state);
            let report = check(&image, Options::default());
            assert_eq!((report.damage, report.residue), (0, 0), "{report}");
            let fs = open(image).fs;
            let file = fs.find(&cred, &fs.root(), b"d0/f3", false).unwrap();
            assert_eq!(fs.attr(&file).unwrap().nlink, links);
        }
    }
}

/// A pool that was marked clean once went on changing if the medium failed at that moment.
#[test]
fn nothing_changes_after_a_close_whose_last_sync_failed() {
    for good in 0..3 {
        let fs = sample();
        fs.pool().fail_syncs_after(good);
        assert_eq!(fs.close().is_ok(), good == 2);
        fs.pool().fail_syncs_after(u32::MAX);
        let (root, cred) = (fs.root(), Cred::root());
        let made = fs.mkdir(&cred, &root, b"late", 0o755);
        let image = fs.pool().image();
        let says_clean = vellum_layout::StateWord(u64::from_le_bytes(
            image[geometry(&fs).state_at as usize..][..8]
                .try_into()
                .unwrap(),
        ));
        let says_clean = says_clean.get().unwrap().0 == vellum_layout::PoolPhase::Clean;
        assert_eq!(made.is_ok(), good == 0, "{good}");
        assert_eq!(says_clean, good > 0, "{good}");
        let report = check(&image, Options::default());
        assert_eq!(report.damage, 0, "{report}");
    }
}

/// What a killed process left in the caches is made durable, unless it was certainly of another
/// boot.
#[test]
fn an_opening_inherits_the_caches_of_a_boot_that_may_be_its_own() {
    const UNKNOWN: [u8; 16] = [0; 16];
    let open_as = |image: Vec<u8>, boot_id: [u8; 16]| {
        let pool = SimPool::from_image(image);
        pool.start_recording();
        let options = MountOptions {
            boot_id,
            ..MountOptions::default()
        };
        let arena = |bytes| Ok(HeapMemory::new(bytes));
        let (fs, _) = attach::<Simulated>(pool, arena, options).unwrap();
        let log = fs.pool().take_log();
        let inherited = vellum::sites::RECOVER_INHERITED;
        (fs, log.iter().any(|event| event.site == inherited))
    };
    for (before, now, inherits) in [
        ([1; 16], [1; 16], true),
        ([1; 16], [2; 16], false),
        ([1; 16], UNKNOWN, true),
        (UNKNOWN, [1; 16], true),
        (UNKNOWN, UNKNOWN, true),
    ] {
        let (fs, _) = open_as(close(&sample()), before);
        let image = fs.pool().image();
        assert_eq!(open_as(image, now).1, inherits, "{before:?}, then {now:?}");
    }
}
