//! What remains of a closed pool: no lock, and handles that only report the close.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use vellum::media::{MediaChoice, MediaError};
use vellum::{CreateOptions, Cred, Error, ListPosition, Pool, PoolOptions, Result};

const POOL_BYTES: u64 = 16 << 20;

fn made(dir: &tempfile::TempDir, media: MediaChoice) -> (PathBuf, Pool) {
    let path = dir.path().join(format!("{media:?}"));
    let options = CreateOptions::new(POOL_BYTES)
        .media(media)
        .metadata_bytes(Some(2 << 20));
    let pool = options.create(&path).unwrap();
    (path, pool)
}

fn open(path: &Path) -> Result<Pool> {
    Pool::open(path)
}

#[track_caller]
fn assert_closed<T>(result: Result<T>) {
    match result {
        Err(error @ Error::Closed) => assert_eq!(error.errno(), libc::EBADF),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the call succeeded"),
    }
}

#[track_caller]
fn assert_busy(result: Result<Pool>) {
    let error = result.expect_err("the pool is in use");
    assert!(
        matches!(error, Error::Media(MediaError::Busy { .. })),
        "{error}"
    );
}

#[test]
fn a_closed_pool_is_free_whatever_handles_remain() {
    let dir = tempfile::tempdir().unwrap();
    for media in [MediaChoice::File, MediaChoice::Memory, MediaChoice::Logged] {
        let (path, pool) = made(&dir, media);
        let (volume, fs) = (pool.volume(), pool.fs());
        volume.write("/f", b"before").unwrap();
        volume.create_dir("/d").unwrap();
        let file = volume.open("/f").unwrap();
        let mut names = volume.read_dir("/d").unwrap();
        let dir = fs.lookup(&Cred::root(), &fs.root(), b"d").unwrap();
        pool.close().unwrap();
        let again = open(&path).unwrap();
        assert!(again.opened().was_clean);
        again.volume().write("/f", b"behind").unwrap();
        assert_closed(volume.read("/f"));
        assert_closed(volume.write("/f", b"late"));
        assert_closed(volume.metadata("/f"));
        assert_closed(volume.sync());
        assert_closed(names.next().expect("a result"));
        assert_closed(file.read_at(&mut [0; 6], 0));
        assert_closed(file.view(0..6));
        assert_closed(file.sync_all());
        assert_closed(fs.list(&dir, 0, &mut ListPosition::default(), &mut |_| true));
        assert_closed(fs.maintain());
        assert_closed(fs.close());
        drop((file, names, dir, volume, fs));
        // Dropping the old handles releases no lock of the new opening.
        assert_busy(open(&path));
        assert_eq!(again.volume().read("/f").unwrap(), b"behind");
        again.close().unwrap();
        assert!(open(&path).unwrap().opened().was_clean);
    }
}

#[test]
fn a_pool_opened_read_only_or_dropped_is_free_too() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pool) = made(&dir, MediaChoice::Logged);
    let dropped = pool.volume();
    drop(pool);
    let read_only = PoolOptions::new().read_only(true);
    let pool = read_only.open(&path).unwrap();
    let read = pool.volume();
    pool.close().unwrap();
    open(&path).unwrap().close().unwrap();
    assert_closed(dropped.read_dir("/"));
    assert_closed(read.read_dir("/"));
}

/// Every write that returned is there, and later calls report that the pool is closed.
#[test]
fn running_operations_end_before_the_pool_is_closed() {
    const THREADS: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    for media in [MediaChoice::File, MediaChoice::Logged] {
        let (path, pool) = made(&dir, media);
        let volume = pool.volume();
        let done = [const { AtomicU64::new(0) }; THREADS];
        std::thread::scope(|scope| {
            for (thread, done) in done.iter().enumerate() {
                let volume = &volume;
                scope.spawn(move || {
                    loop {
                        let number = done.load(Ordering::Relaxed);
                        match volume.write(format!("/{thread}-{}", number % 200), [9; 3000]) {
                            Ok(()) => done.store(number + 1, Ordering::Relaxed),
                            Err(Error::Closed) => break,
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
            while done.iter().any(|done| done.load(Ordering::Relaxed) < 20) {
                std::thread::yield_now();
            }
            pool.close().unwrap();
            // While the other threads still notice the close.
            let again = open(&path).unwrap();
            assert!(again.opened().was_clean);
            again.close().unwrap();
        });
        let pool = open(&path).unwrap();
        for (thread, done) in done.iter().enumerate() {
            for number in 0..done.load(Ordering::Relaxed).min(200) {
                let attr = pool
                    .volume()
                    .metadata(format!("/{thread}-{number}"))
                    .unwrap();
                // The last write may have truncated the file without writing it.
                let is_last = number == done.load(Ordering::Relaxed) % 200;
                assert!(attr.len() == 3000 || is_last, "{thread}-{number}: {attr:?}");
            }
        }
    }
}

/// A new pool has no traces of its creation.
#[test]
fn a_new_pool_was_closed_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    for media in [MediaChoice::Memory, MediaChoice::Logged, MediaChoice::File] {
        let options = CreateOptions::new(8 << 20).media(media);
        let path = dir.path().join(format!("{media:?}"));
        let opened = options.create(&path).unwrap().opened();
        assert!(opened.was_clean && !opened.other_boot, "{opened:?}");
    }
    let opened = Pool::memory(8 << 20).unwrap().opened();
    assert!(opened.was_clean && !opened.other_boot, "{opened:?}");
}

#[test]
fn a_view_keeps_the_lock_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pool) = made(&dir, MediaChoice::Memory);
    let volume = pool.volume();
    volume.write("/f", [5; 8192]).unwrap();
    let file = volume.open("/f").unwrap();
    let one = file.view(0..4096).unwrap();
    let other = file.view(4096..8192).unwrap();
    match pool.close() {
        Err(error @ Error::Lent { views: 2 }) => assert_eq!(error.errno(), libc::EBUSY),
        other => panic!("{other:?}"),
    }
    assert_closed(file.view(0..10));
    let said = |views| Error::Lent { views }.to_string();
    assert!(said(1).contains("1 view of its files is still there") && !said(1).contains("they"));
    assert!(said(2).contains("2 views of its files are still there"));
    drop(one);
    assert_busy(open(&path));
    assert_eq!(*other, [5; 4096]);
    drop(other);
    let again = open(&path).unwrap();
    assert!(again.opened().was_clean);
    drop((file, volume));
    assert_busy(open(&path));
}

#[test]
fn an_open_file_without_a_name_is_left_to_the_next_opening() {
    let dir = tempfile::tempdir().unwrap();
    for media in [MediaChoice::File, MediaChoice::Logged] {
        let (path, pool) = made(&dir, media);
        let volume = pool.volume();
        volume.write("/kept", b"kept").unwrap();
        let file = volume.create("/f").unwrap();
        volume.remove_file("/f").unwrap();
        assert!(matches!(pool.close(), Err(Error::Busy)));
        let again = open(&path).unwrap();
        assert_eq!(again.opened().orphans_freed, 1);
        assert_closed(file.write_at(b"late", 0));
        assert_closed(volume.sync());
        drop((file, volume));
        assert_eq!(again.volume().read("/kept").unwrap(), b"kept");
        again.close().unwrap();
    }
}

#[test]
fn the_lock_on_a_pool_is_released_with_its_last_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pool) = made(&dir, MediaChoice::Memory);
    pool.close().unwrap();
    let options = CreateOptions::new(4 << 20).media(MediaChoice::Memory);
    let added = Pool::add_dataset(&path, "more", &options).unwrap();
    added.close().unwrap();
    let all = Pool::open_all(&path, &PoolOptions::default()).unwrap();
    let mut pools = all.into_iter().map(|(_, pool)| pool.unwrap());
    let (main, more) = (pools.next().unwrap(), pools.next().unwrap());
    let of_both = (main.volume(), more.volume());
    main.close().unwrap();
    assert_busy(open(&path));
    more.volume().write("/f", b"f").unwrap();
    more.close().unwrap();
    let again = Pool::open_all(&path, &PoolOptions::default()).unwrap();
    assert!(again.iter().all(|(_, pool)| pool.is_ok()));
    drop(of_both);
    assert_busy(open(&path));
}
