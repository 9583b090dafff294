//! Pools with direct I/O for their blocks of files. The directory for temporary files must lie on a
//! file system that supports direct I/O.

use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use vellum_media::{
    BLOCK_BYTES, DataFile, DataPart, FileBytes, ImageMemory, MappedPool, MediaChoice, MediaError,
    Memory, OpenMode, Persistent, Site, Split, Written, faults,
};

const POOL_BYTES: u64 = 8 << 20;
/// Offset of the blocks of files.
const DATA_AT: u64 = 1 << 20;

/// A pool with an image in a new file.
fn made(path: &Path) -> MappedPool {
    let pool = MappedPool::create(path, POOL_BYTES, MediaChoice::Logged).unwrap();
    begun(pool.with_direct(DATA_AT).unwrap(), false)
}

fn begun(pool: MappedPool, is_external: bool) -> MappedPool {
    let split = Split {
        image_bytes: DATA_AT / 2,
        data_at: DATA_AT,
        is_external,
    };
    pool.begin_image(split, None).unwrap();
    pool
}

/// Whether the kernel caches a block of the file. Reading it would cache it, even with a read that
/// may not wait.
fn is_cached(path: &Path, at: u64) -> bool {
    let file = File::open(path).unwrap();
    let len = BLOCK_BYTES as usize;
    let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
    let mut is_resident = 0u8;
    // SAFETY: the mapping is new and no code reads it; it has one page, for which the result has a
    // byte; it is unmapped here.
    unsafe {
        let mapped = rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, &file, at).unwrap();
        assert_eq!(libc::mincore(mapped, len, &mut is_resident), 0);
        rustix::mm::munmap(mapped, len).unwrap();
    }
    is_resident & 1 != 0
}

fn read(pool: &MappedPool, at: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0x55; len];
    pool.read(at, &mut out);
    out
}

#[test]
fn blocks_of_files_pass_the_page_cache_and_metadata_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = made(&path);
    assert!(pool.is_direct());
    let disk = pool.disk().unwrap();
    disk.write(DATA_AT - BLOCK_BYTES, &[7; 100]).unwrap();
    disk.sync(Site::UNNAMED).unwrap();
    disk.forget(DATA_AT, POOL_BYTES - DATA_AT);
    let data: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    for at in [DATA_AT, DATA_AT + 13, POOL_BYTES - data.len() as u64] {
        pool.write_through(Site::UNNAMED, at, &data);
        assert!(read(&pool, at, data.len()) == data, "at {at}");
        assert_eq!(pool.cut(&mut |_| {}), few(at, data.len() as u64));
    }
    pool.zero_through(Site::UNNAMED, DATA_AT + 100, 5000);
    let mut zeroed = vec![0; 5000];
    zeroed.extend(&data[5087..6000]);
    assert!(read(&pool, DATA_AT + 100, 5913) == zeroed);
    disk.read(DATA_AT + 100, &mut zeroed).unwrap();
    assert!(zeroed == read(&pool, DATA_AT + 100, 5913));
    // A window would show a page of the cache.
    assert!(pool.window(BLOCK_BYTES).is_none());
    // SAFETY: no thread stores to it.
    assert!(unsafe { pool.in_place(DATA_AT, 8) }.is_none());
    assert!(is_cached(&path, DATA_AT - BLOCK_BYTES));
    // If the kernel cannot drop its copy of a block, it writes through the cache, but not every
    // time once it is told to drop the copy.
    let passes = || {
        disk.forget(DATA_AT, POOL_BYTES - DATA_AT);
        pool.write_through(Site::UNNAMED, DATA_AT, &data);
        let mut blocks = (DATA_AT..DATA_AT + data.len() as u64).step_by(BLOCK_BYTES as usize);
        blocks.all(|at| !is_cached(&path, at))
    };
    assert!((0..8).any(|_| passes()));
}

/// The blocks that `[at, at + len)` touches.
fn few(at: u64, len: u64) -> Written {
    let blocks = at / BLOCK_BYTES..(at + len).div_ceil(BLOCK_BYTES);
    Written::Few(blocks.map(|block| block * BLOCK_BYTES).collect())
}

/// Copies of other readers, by calls or by a mapping, are dropped.
#[test]
fn what_was_read_through_the_cache_before_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
    let file = DataFile::create(&data, POOL_BYTES, false).unwrap();
    let pool = MappedPool::create(&path, DATA_AT, MediaChoice::Logged).unwrap();
    let pool = pool
        .with_data(vec![DataPart {
            file,
            at: DATA_AT,
            from: 2 * BLOCK_BYTES,
            len: POOL_BYTES / 2,
        }])
        .unwrap();
    let pool = begun(pool.with_direct(DATA_AT).unwrap(), true);
    let (at, file_at) = (DATA_AT + 3 * BLOCK_BYTES, 5 * BLOCK_BYTES as usize);
    for round in 1..20u8 {
        assert_eq!(
            pool.load(at, std::sync::atomic::Ordering::Relaxed) as u8,
            round - 1
        );
        assert_eq!(std::fs::read(&data).unwrap()[file_at], round - 1);
        pool.write_through(Site::UNNAMED, at, &[round; 10]);
    }
    pool.disk().unwrap().sync_data(Site::UNNAMED).unwrap();
}

/// A range across two devices is read and written as a whole, past the cache and through it.
#[test]
fn data_of_two_media_follow_each_other() {
    const FIRST: u64 = 4 * BLOCK_BYTES;
    for is_direct in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let medium = |name| DataFile::create(&dir.path().join(name), POOL_BYTES, false).unwrap();
        let parts = [
            ("one", DATA_AT, FIRST),
            ("two", DATA_AT + FIRST, POOL_BYTES / 2),
        ];
        let data = parts.map(|(name, at, len)| DataPart {
            file: medium(name),
            at,
            from: 2 * BLOCK_BYTES,
            len,
        });
        let path = dir.path().join("pool");
        let pool = MappedPool::create(&path, DATA_AT, MediaChoice::Logged).unwrap();
        let pool = pool.with_data(data.into()).unwrap();
        let pool = match is_direct {
            true => pool.with_direct(DATA_AT).unwrap(),
            false => pool,
        };
        let pool = begun(pool, true);
        let bytes: Vec<u8> = (0..40 * BLOCK_BYTES).map(|at| (at % 251) as u8).collect();
        let at = DATA_AT + BLOCK_BYTES + 10;
        pool.write_through(Site::UNNAMED, at, &bytes);
        let mut read = vec![0; bytes.len()];
        pool.read(at, &mut read);
        assert!(read == bytes, "{is_direct}");
        let (first, second) = read.split_at(100_000);
        let mut again = [vec![0; first.len()], vec![0; second.len()]];
        let [a, b] = &mut again;
        pool.read_all(&mut [(at, &mut a[..]), (at + 100_000, &mut b[..])]);
        assert!(again.concat() == bytes, "{is_direct}");
        pool.disk().unwrap().sync_data(Site::UNNAMED).unwrap();
        let in_first = (FIRST - BLOCK_BYTES - 10) as usize;
        let on = |name| std::fs::read(dir.path().join(name)).unwrap();
        let from = 3 * BLOCK_BYTES as usize + 10;
        assert!(
            on("one")[from..][..in_first] == bytes[..in_first],
            "{is_direct}"
        );
        let rest = &bytes[in_first..];
        assert!(
            on("two")[2 * BLOCK_BYTES as usize..][..rest.len()] == *rest,
            "{is_direct}"
        );
    }
}

#[test]
fn the_lock_stays_with_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = made(&path);
    let open = || MappedPool::open(&path, OpenMode::default());
    assert!(matches!(open(), Err(MediaError::Busy { .. })));
    drop(pool);
    open().unwrap();
}

#[test]
fn only_an_unreadable_block_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = made(&path);
    pool.write_through(Site::UNNAMED, DATA_AT, &[3; 3 * BLOCK_BYTES as usize]);
    assert_eq!((pool.condition(), pool.damaged()), (0, None));
    let lost = DATA_AT + BLOCK_BYTES;
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(lost)
        .unwrap();
    let mut expected = vec![3; BLOCK_BYTES as usize - 100];
    expected.resize(BLOCK_BYTES as usize, 0);
    let before = faults().count;
    for round in 1..3 {
        assert!(read(&pool, DATA_AT + 100, BLOCK_BYTES as usize) == expected);
        assert_eq!(faults().count, before + round);
    }
    let condition = pool.condition();
    assert_eq!((pool.damaged(), pool.last_lost()), (Some(lost), lost));
    read(&pool, lost, 10);
    assert_eq!(pool.condition(), condition, "it was known");
    assert!(!pool.disk().unwrap().has_failed());
    pool.write_through(Site::UNNAMED, lost + 1, &[1]);
    assert!(pool.disk().unwrap().has_failed());
}

#[test]
fn where_there_is_no_direct_io_it_is_refused() {
    let pool = MappedPool::anonymous(POOL_BYTES).unwrap();
    match pool.with_direct(DATA_AT) {
        // Newer kernels support it in memory, too.
        Ok(pool) => assert!(pool.is_direct()),
        Err(error) => {
            assert!(matches!(error, MediaError::NotDirect { .. }));
            assert!(error.to_string().contains("without --direct"), "{error}");
        }
    }
}

/// Stores over the blocks of a read-only pool stay in memory.
#[test]
fn a_reader_sees_what_was_stored_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = made(&path);
    pool.write_through(Site::UNNAMED, DATA_AT, &[1; 200]);
    drop(pool);
    let mode = OpenMode {
        read_only: true,
        media: MediaChoice::Logged,
        populate: false,
    };
    let pool = MappedPool::open(&path, mode).unwrap();
    let pool = begun(pool.with_direct(DATA_AT).unwrap(), false);
    assert_eq!(read(&pool, DATA_AT, 2), [1, 1]);
    assert!(pool.disk().unwrap().write(DATA_AT, &[2]).is_err());
    pool.write(DATA_AT, &[2]);
    assert_eq!(read(&pool, DATA_AT, 2), [2, 1]);
    assert_eq!(std::fs::read(&path).unwrap()[DATA_AT as usize], 1);
}

/// The path of the pool for a process that will be killed.
const KILLED: &str = "VELLUM_TEST_KILLED";

/// No request of a killed process lands once another process has opened the pool. This test is both
/// processes.
#[test]
fn what_a_killed_process_wrote_has_landed_when_the_pool_is_opened() {
    if let Some(path) = std::env::var_os(KILLED) {
        write_scattered(Path::new(&path));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    drop(made(&path));
    for round in 0..15 {
        let name = "direct::what_a_killed_process_wrote_has_landed_when_the_pool_is_opened";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(KILLED, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines
                .map_while(Result::ok)
                .any(|line| line.contains("writing"))
        );
        std::thread::sleep(Duration::from_micros(2000 + 577 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let _pool = MappedPool::open(&path, OpenMode::default()).unwrap();
        let found = std::fs::read(&path).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(std::fs::read(&path).unwrap() == found, "round {round}");
    }
}

/// Writes batches until it is killed.
fn write_scattered(path: &Path) -> ! {
    let mode = OpenMode {
        media: MediaChoice::Logged,
        ..OpenMode::default()
    };
    let pool = MappedPool::open(path, mode).unwrap();
    let pool = begun(pool.with_direct(DATA_AT).unwrap(), false);
    println!("writing");
    for round in 0u64.. {
        let data = vec![round as u8 + 1; 16 * BLOCK_BYTES as usize];
        let places = (0..50).map(|number| DATA_AT + (number * 7 % 50) * 32 * BLOCK_BYTES);
        let pieces: Vec<(u64, &[u8])> = places.map(|at| (at, &data[..])).collect();
        pool.write_all_through(Site::UNNAMED, &pieces);
    }
    unreachable!("the process was not killed in time")
}

/// Several ranges at once give the same results as one after the other, for reads, cuts and losses.
#[test]
fn several_ranges_are_written_and_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = made(&path);
    let data: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    let places = [
        (DATA_AT + (1 << 20), 4096),
        (DATA_AT + 100, 50_000),
        (DATA_AT + (3 << 20), 65_536),
    ];
    let pieces = places.map(|(at, len)| (at, &data[..len]));
    pool.write_all_through(Site::UNNAMED, &pieces);
    let mut written = std::collections::BTreeSet::new();
    for (at, len) in places {
        let blocks = at / BLOCK_BYTES..(at + len as u64).div_ceil(BLOCK_BYTES);
        written.extend(blocks.map(|block| block * BLOCK_BYTES));
    }
    assert_eq!(
        pool.cut(&mut |_| {}),
        Written::Few(written.into_iter().collect())
    );
    let read_all = |places: [(u64, usize); 3]| {
        let mut outs = places.map(|(_, len)| vec![0x55; len]);
        let mut at = places.iter();
        let mut pieces = outs
            .each_mut()
            .map(|out| (at.next().unwrap().0, &mut out[..]));
        pool.read_all(&mut pieces);
        outs
    };
    assert!(read_all(places) == places.map(|(_, len)| data[..len].to_vec()));
    // The end of one of them is lost.
    let lost = DATA_AT + (3 << 20) + 4 * BLOCK_BYTES;
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(lost)
        .unwrap();
    let before = faults().count;
    let [first, second, third] = read_all(places);
    assert!(first == data[..4096] && second == data[..50_000]);
    assert!(
        third[..4 * 4096] == data[..4 * 4096] && third[4 * 4096..].iter().all(|&byte| byte == 0)
    );
    assert_eq!(
        (pool.last_lost() / BLOCK_BYTES, faults().count - before),
        (lost / BLOCK_BYTES + 11, 12)
    );
    assert!(!pool.disk().unwrap().has_failed());
}
