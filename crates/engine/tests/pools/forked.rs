//! A child of `fork` with a pool that its parent has open: every call is refused with
//! `Error::Forked`, and the parent notices nothing.
//!
//! Each test has a process of its own, because it forks, and becomes the parent of its
//! grandchildren.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, getpid, waitpid};
use vellum::media::{MediaChoice, MediaError};
use vellum::{
    CreateOptions, Cred, Error, File, ListPosition, LockKind, LockOwner, LockRange, LockWait, Node,
    Pool, PoolOptions, ReadDir, SetAttr, Volume, media::Real,
};
use vellum_check::{Options, check};
use vellum_testing::in_own_process;

const POOL_BYTES: u64 = 16 << 20;
/// A child that waits longer than this is killed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes children print panics without locks that other threads may have held at the fork.
fn tell_of_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (parent, usual) = (std::process::id(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |info| {
            if std::process::id() == parent {
                return usual(info);
            }
            let text = format!("in a child: {info}\n");
            let _ = rustix::io::write(std::io::stderr(), text.as_bytes());
        }));
    });
}

/// Runs `run` in a child, which then exits without any other code of this process.
fn fork(run: impl FnOnce()) -> Pid {
    tell_of_children();
    let child = vellum::media::fork(PATIENCE, run).unwrap();
    Pid::from_raw(child).unwrap()
}

/// Checks that the child ended and no check in it failed.
#[track_caller]
fn assert_went_well(child: Pid) {
    let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
}

/// Runs `run` in a child, and waits for its end.
#[track_caller]
fn in_child(run: impl FnOnce()) {
    assert_went_well(fork(run));
}

#[track_caller]
fn assert_forked<T>(result: vellum::Result<T>) {
    match result {
        Err(error @ Error::Forked) => assert_eq!(error.errno(), libc::EBUSY),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the call succeeded"),
    }
}

#[track_caller]
fn assert_forked_io<T>(result: std::io::Result<T>) {
    match result {
        Err(error) => assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}"),
        Ok(_) => panic!("the call succeeded"),
    }
}

/// What a program has open.
struct Opened {
    pool: Pool,
    volume: Volume,
    file: File,
    dir: ReadDir,
    node: Node<Real>,
}

fn opened(pool: Pool) -> Opened {
    let volume = pool.volume();
    volume.write("/of-parent", [7; 5000]).unwrap();
    volume.create_dir("/d").unwrap();
    volume.write("/d/f", b"f").unwrap();
    let mut file = volume.create("/open").unwrap();
    file.write_all(&[1; 10_000]).unwrap();
    file.lock().unwrap();
    let (owner, all) = (LockOwner::this_process(), LockRange::ALL);
    file.lock_range(owner, LockKind::Exclusive, all, LockWait::NO)
        .unwrap();
    let fs = pool.fs();
    Opened {
        file,
        dir: volume.read_dir("/d").unwrap(),
        node: fs.lookup(&Cred::root(), &fs.root(), b"d").unwrap(),
        volume,
        pool,
    }
}

/// Makes every possible call, and drops everything but the pool.
fn assert_all_is_refused(opened: Opened) -> Pool {
    let Opened {
        pool,
        volume,
        mut file,
        mut dir,
        node,
    } = opened;
    assert_forked(volume.write("/of-child", b"x"));
    assert_forked(volume.read("/of-parent"));
    assert_forked(volume.metadata("/of-parent"));
    assert_forked(volume.set_attr("/of-parent", &SetAttr::default()));
    assert_forked(volume.create_dir_all("/a/b"));
    assert_forked(volume.remove_file("/of-parent"));
    assert_forked(volume.remove_dir("/d"));
    assert_forked(volume.rename("/of-parent", "/b"));
    assert_forked(volume.hard_link("/of-parent", "/b"));
    assert_forked(volume.symlink("/of-parent", "/b"));
    assert_forked(volume.read_link("/of-parent"));
    assert_forked(volume.read_dir("/"));
    assert_forked(volume.sync());
    assert_forked(dir.next().expect("a result"));
    assert_forked_io(file.read(&mut [0; 10]));
    assert_forked_io(file.write(b"x"));
    assert_forked_io(file.seek(SeekFrom::Start(0)));
    assert_forked(file.read_at(&mut [0; 10], 0));
    assert_forked(file.write_at(b"x", 0));
    assert_forked(file.view(0..10));
    assert_forked(file.set_len(1));
    assert_forked(file.sync_all());
    assert_forked(file.metadata());
    assert_forked(file.try_lock_shared());
    assert_forked(file.unlock());
    let (owner, all) = (LockOwner::this_process(), LockRange::ALL);
    assert_forked(file.lock_range(owner, LockKind::Shared, all, LockWait::FOREVER));
    assert_forked(file.find_lock(owner, LockKind::Shared, all));
    assert_forked(file.unlock_range(LockOwner::Handle, all));
    let handle = file.handle();
    assert_forked(handle.append(b"x"));
    assert_forked(handle.seek_data(0));
    assert_forked(handle.seek_hole(0));
    assert_forked(handle.allocate(vellum::Allocate::Grow, 0, 100));
    assert!(handle.read_costs().is_none());
    let fs = pool.fs();
    let list = fs.list(&node, 0, &mut ListPosition::default(), &mut |_| true);
    assert_forked(list);
    assert_forked(fs.node(node.ino(), node.generation()));
    assert_forked(fs.maintain());
    assert_forked(fs.checkpoint());
    assert_forked(fs.evolve());
    assert_forked(fs.split(&node));
    assert_forked(fs.keep_barriers());
    assert_forked(fs.close());
    assert!(fs.log_counts().is_none() && !fs.is_log_half_full());
    pool
}

fn options(media: MediaChoice) -> CreateOptions {
    CreateOptions::new(POOL_BYTES)
        .media(media)
        .metadata_bytes(Some(2 << 20))
}

/// Continues where a child was, closes cleanly, and checks the pool.
fn assert_parent_goes_on(opened: Opened, path: &Path) {
    let Opened {
        pool,
        volume,
        mut file,
        dir,
        node,
    } = opened;
    drop((dir, node));
    assert!(!pool.fs().has_lost_image());
    // The children have closed their copies of the file: its locks are the parent's.
    let locked = file.find_lock(LockOwner::Handle, LockKind::Shared, LockRange::ALL);
    assert!(locked.unwrap().is_some());
    let busy = Pool::open(path);
    assert!(matches!(busy, Err(Error::Media(MediaError::Busy { .. }))));
    file.write_all(&[2; 10_000]).unwrap();
    for number in 0..100 {
        volume.write(format!("/d/{number}"), b"more").unwrap();
    }
    volume.remove_file("/of-parent").unwrap();
    volume.sync().unwrap();
    assert!(!pool.fs().is_damaged());
    drop((file, volume));
    pool.close().unwrap();
    let report = check(&std::fs::read(path).unwrap(), Options::default());
    assert_eq!((report.damage, report.residue), (0, 0), "{report}");
    let pool = Pool::open(path).unwrap();
    assert!(pool.opened().was_clean);
    let volume = pool.volume();
    assert_eq!(volume.read_dir("/d").unwrap().count(), 101);
    assert_eq!(volume.read("/open").unwrap()[10_000..], [2; 10_000]);
    assert!(matches!(volume.metadata("/of-child"), Err(Error::NotFound)));
}

#[track_caller]
fn assert_child_is_refused(media: MediaChoice) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let mut of_parent = Some(opened(options(media).create(&path).unwrap()));
    // Pools that are dropped, closed, or left open until the process ends.
    let ends: [fn(Pool); 3] = [
        |pool| drop(pool),
        |pool| assert_forked(pool.close()),
        |pool| {
            std::mem::forget(pool);
            std::process::exit(0)
        },
    ];
    for end in ends {
        // What the child takes is in its own memory.
        in_child(|| end(assert_all_is_refused(of_parent.take().expect("a copy"))));
    }
    assert_parent_goes_on(of_parent.expect("the parent's copy"), &path);
}

#[test]
fn a_child_is_refused_in_a_file() {
    in_own_process(a_child_is_refused_in_a_file, || {
        assert_child_is_refused(MediaChoice::File);
    });
}

#[test]
fn a_child_is_refused_in_memory() {
    in_own_process(a_child_is_refused_in_memory, || {
        assert_child_is_refused(MediaChoice::Memory);
    });
}

#[test]
fn a_child_is_refused_on_a_pool_with_a_log() {
    in_own_process(a_child_is_refused_on_a_pool_with_a_log, || {
        assert_child_is_refused(MediaChoice::Logged);
    });
}

#[test]
fn a_view_in_a_child_belongs_to_its_parent() {
    in_own_process(a_view_in_a_child_belongs_to_its_parent, || {
        let of_parent = opened(Pool::memory(POOL_BYTES).unwrap());
        let mut view = Some(of_parent.file.view(0..4096).unwrap());
        in_child(|| {
            let view = view.take().expect("a copy");
            assert_eq!(*view, [1; 4096]);
            drop(view);
        });
        // The parent's view still exists.
        assert!(matches!(
            of_parent.file.write_at(b"x", 0),
            Err(Error::Deadlock)
        ));
        drop(view);
        of_parent.file.write_at(b"x", 0).unwrap();
    });
}

#[test]
fn a_child_opens_its_own_pools_and_its_parents_pool_after_the_close() {
    in_own_process(
        a_child_opens_its_own_pools_and_its_parents_pool_after_the_close,
        || {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("pool");
            let parent = std::process::id();
            let of_parent = opened(options(MediaChoice::Logged).create(&path).unwrap());
            let (mut told, mut tells) = std::io::pipe().unwrap();
            let (mut hears, mut says) = std::io::pipe().unwrap();
            let child = fork(|| {
                let own = options(MediaChoice::Logged)
                    .create(dir.path().join("own"))
                    .unwrap();
                own.volume().write("/f", b"own").unwrap();
                own.volume().sync().unwrap();
                own.close().unwrap();
                match Pool::open(&path) {
                    Err(Error::Media(MediaError::Busy { owner_pid, .. })) => {
                        assert_eq!(owner_pid, Some(parent));
                    }
                    other => panic!("{other:?}"),
                }
                says.write_all(&[0]).unwrap();
                told.read_exact(&mut [0]).unwrap();
                let pool = Pool::open(&path).unwrap();
                assert!(pool.opened().was_clean);
                pool.volume().write("/of-child", b"x").unwrap();
                pool.close().unwrap();
            });
            let Opened {
                pool,
                volume,
                file,
                dir,
                node,
            } = of_parent;
            drop((volume, file, dir, node));
            hears.read_exact(&mut [0]).unwrap();
            pool.close().unwrap();
            tells.write_all(&[0]).unwrap();
            assert_went_well(child);
            let pool = Pool::open(&path).unwrap();
            assert_eq!(pool.volume().read("/of-child").unwrap(), b"x");
        },
    );
}

/// A daemon as `daemon(3)` makes it: the process that opened the pool ends, and its child should
/// continue.
#[test]
fn a_daemon_that_opened_its_pool_before_it_forked_is_refused() {
    in_own_process(
        a_daemon_that_opened_its_pool_before_it_forked_is_refused,
        || {
            // A process whose parent ends becomes a child of this one.
            rustix::process::set_child_subreaper(Some(getpid())).unwrap();
            let dir = tempfile::tempdir().unwrap();
            for media in [MediaChoice::Logged, MediaChoice::Memory] {
                let path = dir.path().join(format!("{media:?}"));
                options(media).create(&path).unwrap().close().unwrap();
                let (mut told, mut tells) = std::io::pipe().unwrap();
                let opener = fork(|| {
                    let mut of_opener = Some(opened(Pool::open(&path).unwrap()));
                    let daemon =
                        fork(|| drop(assert_all_is_refused(of_opener.take().expect("a copy"))));
                    tells
                        .write_all(&daemon.as_raw_nonzero().get().to_ne_bytes())
                        .unwrap();
                    std::mem::forget(of_opener);
                });
                let mut daemon = [0; 4];
                told.read_exact(&mut daemon).unwrap();
                assert_went_well(opener);
                assert_went_well(Pid::from_raw(i32::from_ne_bytes(daemon)).unwrap());
                let pool = Pool::open(&path).unwrap();
                assert!(!pool.opened().was_clean, "as after a killed process");
                assert_eq!(pool.volume().read("/open").unwrap(), [1; 10_000]);
                pool.close().unwrap();
                let report = check(&std::fs::read(&path).unwrap(), Options::default());
                assert_eq!((report.damage, report.residue), (0, 0), "{report}");
            }
        },
    );
}

/// Makes threads stop when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The child of a fork waits for no other thread of its parent, whatever that was doing at the
/// fork.
#[test]
fn a_child_waits_for_no_thread_of_its_parent() {
    in_own_process(a_child_waits_for_no_thread_of_its_parent, || {
        const CHILDREN: u32 = 60;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        // Opened for reading, it has no threads. A child would inherit the lock that Rust's
        // standard library takes while a thread begins, and its own threads would wait for it.
        let other = dir.path().join("other");
        Pool::create(&other)
            .unwrap()
            .volume()
            .write("/f", b"f")
            .unwrap();
        let mut of_parent = Some(opened(options(MediaChoice::Logged).create(&path).unwrap()));
        let shared = Arc::new(
            of_parent
                .as_ref()
                .unwrap()
                .volume
                .create("/shared")
                .unwrap(),
        );
        shared.write_at(&[3; 4096], 0).unwrap();
        let (stop, volume) = (
            AtomicBool::new(false),
            of_parent.as_ref().unwrap().volume.clone(),
        );
        let goes_on = || !stop.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            // Also if a child failed.
            let _stops = Stops(&stop);
            scope.spawn(|| {
                while goes_on() {
                    let mut file = &*shared;
                    file.seek(SeekFrom::Start(0)).unwrap();
                    file.write_all(&[3; 4096]).unwrap();
                    let of_nobody = PoolOptions::new().read_only(true).open(&other).unwrap();
                    assert_eq!(of_nobody.volume().read("/f").unwrap(), b"f");
                }
            });
            scope.spawn(|| {
                while goes_on() {
                    let view = shared.view(0..4096).unwrap();
                    assert_eq!(*view, [3; 4096]);
                    drop(view);
                    volume.write("/of-child-not", b"g").unwrap();
                    volume.sync().unwrap();
                }
            });
            for _ in 0..CHILDREN {
                in_child(|| {
                    assert_forked_io((&*shared).write(b"x"));
                    assert_forked(shared.view(0..10));
                    assert_forked(shared.write_at(b"x", 0));
                    drop(assert_all_is_refused(of_parent.take().expect("a copy")));
                    let own = Pool::memory(2 << 20).unwrap();
                    let file = own.volume().create("/f").unwrap();
                    (&file).write_all(b"own").unwrap();
                    assert_eq!(*file.view(0..3).unwrap(), *b"own");
                });
            }
        });
        drop((shared, volume));
        assert_parent_goes_on(of_parent.expect("the parent's copy"), &path);
    });
}
