//! Split pools: the states after a kill and a power cut, and counts of syncs and undo records.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::fixture::{in_memory, made, open, options};
use vellum::media::{MediaChoice, MediaKind};
use vellum::{Durability, Error, MediumError, Pool, PoolOptions, SetAttr};
use vellum_layout::{ChunkKind, ChunkWord, CommittedWord, PoolHeader, Superblock, features};

/// Offset of the pool header.
fn header(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    Superblock::unseal(&bytes).unwrap().undo_at
}

fn put(path: &Path, at: u64, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// What a kill leaves, as a pool that can be opened.
fn killed(dir: &Path, name: &str) -> PathBuf {
    let copy = dir.join(name);
    std::fs::create_dir(&copy).unwrap();
    for file in ["pool", "data"] {
        std::fs::copy(dir.join(file), copy.join(file)).unwrap();
    }
    copy.join("pool")
}

/// What a power cut leaves if all stores became durable: the pool as another boot finds it.
fn cut(dir: &Path, name: &str) -> PathBuf {
    let path = killed(dir, name);
    // A copy of a logged pool always opens as of its last commit.
    if header(&path) != 0 {
        put(&path, header(&path) + PoolHeader::BOOT, &[7; 16]);
    }
    path
}

fn content(number: u8) -> Vec<u8> {
    vec![number + 1; 700 * usize::from(number) + 1]
}

/// Writes files and syncs all but the last changes.
fn filled(pool: &Pool) {
    let volume = pool.volume();
    for number in 0..40 {
        volume.write(format!("/{number}"), content(number)).unwrap();
        if number % 5 == 4 {
            volume.sync().unwrap();
        }
    }
    volume.rename("/3", "/moved").unwrap();
    volume.sync().unwrap();
    volume.create_dir("/d").unwrap();
    volume.write("/d/later", b"not synced").unwrap();
    volume.rename("/moved", "/d/3").unwrap();
    volume.remove_file("/4").unwrap();
    volume.write("/5", b"shorter").unwrap();
}

#[track_caller]
fn assert_all(pool: &Pool, is_cut: bool) {
    let volume = pool.volume();
    for number in 6..40 {
        let read = volume.read(format!("/{number}")).unwrap();
        assert_eq!(read, content(number));
    }
    let moved = if is_cut { "/moved" } else { "/d/3" };
    assert_eq!(volume.read(moved).unwrap(), content(3));
    let later = volume.read("/d/later");
    if is_cut {
        assert!(matches!(later, Err(Error::NotFound)));
        assert_eq!(volume.read("/4").unwrap(), content(4));
        assert_eq!(volume.read("/5").unwrap().len(), content(5).len());
    } else {
        assert_eq!(later.unwrap(), b"not synced");
        assert!(matches!(volume.read("/4"), Err(Error::NotFound)));
        assert_eq!(volume.read("/5").unwrap(), b"shorter");
    }
}

#[test]
fn a_power_cut_rolls_back_uncommitted_changes() {
    let dir = in_memory();
    let (_, pool) = made(dir.path());
    assert_eq!(pool.fs().media_kind(), MediaKind::Memory);
    assert_ne!(pool.superblock().incompatible & features::UNDO, 0);
    filled(&pool);
    let path = cut(dir.path(), "cut");
    let before = std::fs::read(&path).unwrap();
    let read_only = PoolOptions::new().read_only(true);
    let reader = read_only.open(&path).unwrap();
    assert!(reader.opened().granules_rolled_back > 0);
    assert_all(&reader, true);
    drop(reader);
    assert!(
        before == std::fs::read(&path).unwrap(),
        "the pool was written to"
    );
    let again = open(&path).unwrap();
    assert!(again.opened().granules_rolled_back > 0);
    assert_all(&again, true);
    // Now a kill of the pool that was just opened.
    let path = killed(&dir.path().join("cut"), "killed");
    let killed = open(&path).unwrap();
    assert_eq!(killed.opened().granules_rolled_back, 0);
    assert_all(&killed, true);
    killed.close().unwrap();
    let closed = open(&path).unwrap();
    assert!(closed.opened().was_clean);
    assert_all(&closed, true);
}

#[test]
fn a_kill_rolls_nothing_back() {
    let dir = in_memory();
    let (_, pool) = made(dir.path());
    filled(&pool);
    let path = killed(dir.path(), "killed");
    let killed = open(&path).unwrap();
    assert!(!killed.opened().was_clean);
    assert_eq!(killed.opened().granules_rolled_back, 0);
    assert_all(&killed, false);
    drop(killed);
    put(&path, header(&path) + PoolHeader::BOOT, &[7; 16]);
    let closed = open(&path).unwrap();
    assert_eq!(closed.opened().granules_rolled_back, 0);
    assert_all(&closed, false);
}

#[test]
fn metadata_ahead_of_lost_data_are_rolled_back_after_a_kill_too() {
    let dir = in_memory();
    let (_, pool) = made(dir.path());
    filled(&pool);
    let path = killed(dir.path(), "killed");
    put(&path, header(&path) + PoolHeader::POISONED, &[1]);
    let killed = open(&path).unwrap();
    assert!(killed.opened().granules_rolled_back > 0);
    assert_all(&killed, true);
    drop(killed);
    let closed = open(&path).unwrap();
    assert_all(&closed, true);
}

#[test]
fn a_commit_syncs_data_only_if_there_are_any() {
    let dir = in_memory();
    let (_, pool) = made(dir.path());
    let (fs, volume) = (pool.fs(), pool.volume());
    volume.sync().unwrap();
    let counts = || {
        let counts = fs.undo_counts().unwrap();
        (counts.commits, counts.data_syncs)
    };
    let (commits, syncs) = counts();
    for number in 0..100 {
        volume.create_dir(format!("/{number}")).unwrap();
    }
    volume.sync().unwrap();
    let (commits, syncs) = (commits + 1, syncs);
    assert_eq!(counts(), (commits, syncs));
    let before = fs.undo_counts().unwrap();
    volume.sync().unwrap();
    let after = fs.undo_counts().unwrap();
    assert_eq!(
        (after.commits, after.answered),
        (commits, before.answered + 1)
    );
    assert_eq!(after.records, before.records);
    volume.write("/f", [1; 10_000]).unwrap();
    volume.sync().unwrap();
    assert_eq!(counts(), (commits + 1, syncs + 1));
}

/// Number of free chunks of metadata that are zeros.
fn free_chunks(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    let geometry = Superblock::unseal(&bytes).unwrap().geometry();
    let at = |offset: u64, len: u64| &bytes[offset as usize..][..len as usize];
    let is_free = |&chunk: &u64| {
        let word = at(geometry.chunk_table_at + 8 * chunk, 8);
        let word = ChunkWord(u64::from_le_bytes(word.try_into().unwrap()));
        word.decode(chunk) == Some((ChunkKind::Free, 0))
    };
    let is_zero = |&chunk: &u64| {
        let chunk = at(
            geometry.meta_at + chunk * geometry.chunk_bytes,
            geometry.chunk_bytes,
        );
        chunk.iter().all(|&byte| byte == 0)
    };
    let free: Vec<u64> = (0..geometry.meta_chunks).filter(is_free).collect();
    assert!(free.iter().all(is_zero));
    free.len()
}

/// Creating a name takes one undo record for each 16 words of the directory's log. Its entry and
/// inode take none if their slots were free at the last commit. Storing to an inode again takes
/// one.
#[test]
fn entries_and_inodes_that_were_free_take_no_undo_records() {
    const NAMES: u64 = 300;
    let dir = in_memory();
    let (_, pool) = made(dir.path());
    let (fs, volume) = (pool.fs(), pool.volume());
    let make = |dir: &str| {
        let before = fs.undo_counts().unwrap().records;
        for number in 0..NAMES {
            volume.create(format!("{dir}/{number}")).unwrap();
        }
        fs.undo_counts().unwrap().records - before
    };
    volume.create_dir("/old").unwrap();
    // These names need chunks that were free. After a rollback they are free again, and zeros.
    assert!(make("/old") > NAMES);
    let path = cut(dir.path(), "grown");
    drop(open(&path).unwrap());
    assert!(free_chunks(&path) > free_chunks(&dir.path().join("pool")));
    for number in 0..NAMES {
        volume.remove_file(format!("/old/{number}")).unwrap();
    }
    volume.remove_dir("/old").unwrap();
    // The pool's own thread may be doing some of the background work.
    for _ in 0..100 {
        fs.maintain().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    volume.sync().unwrap();
    volume.create_dir("/new").unwrap();
    let versions = make("/new");
    assert!((1..NAMES / 4).contains(&versions), "{versions}");
    let before = fs.undo_counts().unwrap().records;
    for number in 0..NAMES {
        volume.write(format!("/new/{number}"), b"bytes").unwrap();
    }
    assert!(fs.undo_counts().unwrap().records - before >= NAMES);
    let path = cut(dir.path(), "cut");
    let again = open(&path).unwrap();
    assert!(matches!(
        again.volume().metadata("/new"),
        Err(Error::NotFound)
    ));
}

/// The block of 4 KiB with the most inodes.
fn inodes(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let geometry = Superblock::unseal(&bytes).unwrap().geometry();
    let is_of_inodes = |&chunk: &u64| {
        let at = (geometry.chunk_table_at + 8 * chunk) as usize;
        let word = ChunkWord(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
        matches!(word.decode(chunk), Some((ChunkKind::Inodes, _)))
    };
    let chunks = (0..geometry.meta_chunks).filter(is_of_inodes);
    let blocks = chunks.flat_map(|chunk| {
        let begin = geometry.meta_at + chunk * geometry.chunk_bytes;
        (begin..begin + geometry.chunk_bytes).step_by(4096)
    });
    let used = |&block: &u64| {
        let pieces = bytes[block as usize..][..4096].chunks(128);
        pieces
            .filter(|piece| piece.iter().any(|&byte| byte != 0))
            .count()
    };
    blocks.max_by_key(used).unwrap()
}

/// Once an unreadable page was met it reads as zeros. These must never become the old bytes of an
/// undo granule.
#[test]
fn a_rollback_does_not_turn_lost_bytes_into_zeros() {
    let dir = in_memory();
    let (path, pool) = made(dir.path());
    let volume = pool.volume();
    let names = (0..30).map(|number| format!("/{number}"));
    let names: Vec<String> = names.collect();
    let private = SetAttr::new().mode(Some(0o600));
    for name in &names {
        volume.create(name).unwrap();
    }
    volume.sync().unwrap();
    // Some granules of the page have undo records, so that the next change would record more of it.
    for name in &names[..6] {
        volume.set_attr(name, &private).unwrap();
    }
    let block = inodes(&path);
    pool.fs().take_away(block).unwrap();
    let lost = names[6..].iter();
    let failed = lost.filter(|name| volume.set_attr(name, &private).is_err());
    assert!(failed.count() > 0);
    let again = open(&cut(dir.path(), "cut")).unwrap();
    assert!(again.opened().granules_rolled_back > 0);
    for name in &names {
        let mode = again.volume().metadata(name).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "{name}");
    }
}

/// Changes that are durable when a call returns survive a power cut right after it, and others do
/// not; also on a pool with a log.
#[test]
fn names_or_everything_are_durable_when_a_call_returns_on_request() {
    for media in [MediaChoice::Memory, MediaChoice::Logged] {
        for durability in [Durability::Async, Durability::Dirsync, Durability::Sync] {
            let dir = in_memory();
            let path = dir.path().join("pool");
            let asked = options(dir.path().join("data")).media(media);
            asked.create(&path).unwrap().close().unwrap();
            let options = PoolOptions::new().durability(durability);
            let pool = options.open(&path).unwrap();
            let volume = pool.volume();
            volume.create_dir("/d").unwrap();
            let file = volume.create("/d/f").unwrap();
            let named = cut(dir.path(), "named");
            file.write_at(b"bytes", 0).unwrap();
            let written = cut(dir.path(), "written");
            let named = open(&named).unwrap();
            let has_names = named.volume().metadata("/d/f").is_ok();
            assert_eq!(has_names, durability >= Durability::Dirsync, "{media:?}");
            let written = open(&written).unwrap();
            let has_bytes = written
                .volume()
                .read("/d/f")
                .is_ok_and(|bytes| bytes == b"bytes");
            assert_eq!(has_bytes, durability == Durability::Sync, "{media:?}");
        }
    }
}

/// Everything changes again and again, over many transactions, so that the undo log wraps around.
#[test]
fn the_undo_log_wraps_around() {
    let dir = in_memory();
    let (_, pool) = made(dir.path());
    let superblock = pool.superblock();
    let room = superblock.undo_bytes / 192;
    let (fs, volume) = (pool.fs(), pool.volume());
    let mut round = 0u8;
    while fs.undo_counts().unwrap().records < 2 * room {
        for number in 0..200 {
            volume.write(format!("/{number}"), [round; 5000]).unwrap();
        }
        volume.sync().unwrap();
        round = round.wrapping_add(1);
    }
    volume.write("/0", [round; 9000]).unwrap();
    let path = cut(dir.path(), "cut");
    let pool = open(&path).unwrap();
    let volume = pool.volume();
    for number in 1..200 {
        let read = volume.read(format!("/{number}")).unwrap();
        assert_eq!(read, [round.wrapping_sub(1); 5000]);
    }
    assert_eq!(volume.read("/0").unwrap().len(), 5000);
}

#[test]
fn an_ordinary_file_keeps_no_order() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
    let asked = options(data.clone()).media(MediaChoice::File);
    let refused = asked.create(&path);
    assert!(matches!(
        refused,
        Err(Error::Medium(MediumError::Unordered { path: it })) if it == path
    ));
    assert!(!path.exists() && !data.exists());

    let memory = in_memory();
    made(memory.path()).1.close().unwrap();
    let moved = killed(memory.path(), "copy");
    let as_file = PoolOptions::new().media(MediaChoice::File);
    assert!(matches!(as_file.open(&moved), Err(Error::Unsupported(_))));
}

#[test]
fn a_pool_with_a_damaged_header_opens_read_only() {
    let dir = in_memory();
    let (path, pool) = made(dir.path());
    pool.volume().write("/f", b"bytes").unwrap();
    pool.close().unwrap();
    let at = header(&path) + PoolHeader::COMMITTED;
    put(&path, at, &(CommittedWord::new(9).0 ^ 1).to_le_bytes());
    assert!(matches!(open(&path), Err(Error::Refused { .. })));
    let read_only = PoolOptions::new().read_only(true);
    let reader = read_only.open(&path).unwrap();
    assert_eq!(reader.volume().read("/f").unwrap(), b"bytes");
}
