//! Pool files: creating, opening and locking them, and what happens when they are not as expected.

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd};
use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use vellum_media::{
    MappedPool, MediaChoice, MediaError, MediaKind, Medium, Memory, OpenMode, Persistent, Site,
    count, faults,
};

const LEN: u64 = 1 << 20;

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("temporary directory"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn create(path: &Path) -> MappedPool {
    MappedPool::create(path, LEN, MediaChoice::Auto).expect("create")
}

fn open(path: &Path) -> Result<MappedPool, MediaError> {
    MappedPool::open(path, OpenMode::default())
}

fn open_read_only(path: &Path) -> Result<MappedPool, MediaError> {
    MappedPool::open(
        path,
        OpenMode {
            read_only: true,
            ..OpenMode::default()
        },
    )
}

/// The error, which must contain the path.
fn error(path: &Path, result: Result<MappedPool, MediaError>) -> MediaError {
    let error = result.err().expect("an error");
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    error
}

#[test]
fn bytes_survive_closing() {
    let dir = Dir::new();
    let path = dir.file("pool");
    let pool = create(&path);
    assert!(pool.known_zero() && !pool.is_read_only());
    assert_eq!(pool.path(), Some(path.as_path()));
    assert_eq!(pool.len(), LEN);
    pool.store(LEN - 8, 7, Relaxed);
    pool.write_through(Site::UNNAMED, 100, b"through");
    pool.flush(Site::UNNAMED, LEN - 8, 8);
    pool.fence(Site::UNNAMED);
    pool.sync().expect("sync");
    drop(pool);
    let pool = open(&path).expect("open");
    assert!(!pool.known_zero());
    assert_eq!(pool.load(LEN - 8, Relaxed), 7);
    assert!(pool.bytes_equal(100, b"through"));
    assert_eq!(pool.damaged(), None);
}

#[test]
fn every_block_is_allocated_and_others_may_not_read() {
    let dir = Dir::new();
    let path = dir.file("pool");
    let _pool = create(&path);
    let stat = fs::metadata(&path).expect("stat");
    assert_eq!(stat.len(), LEN);
    assert!(stat.blocks() * 512 >= LEN, "{} blocks", stat.blocks());
    assert_eq!(stat.mode() & 0o077, 0);
}

#[test]
fn an_existing_file_is_refused_unless_overwritten() {
    let dir = Dir::new();
    let path = dir.file("pool");
    fs::write(&path, vec![0xff; 3 << 20]).expect("write");
    let exists = error(&path, MappedPool::create(&path, LEN, MediaChoice::Auto));
    assert!(matches!(exists, MediaError::Exists { .. }), "{exists}");
    assert_eq!(exists.to_errno(), libc::EEXIST);
    assert_eq!(fs::metadata(&path).expect("stat").len(), 3 << 20);
    let pool = MappedPool::overwrite(&path, LEN, MediaChoice::Auto).expect("overwrite");
    assert!(pool.known_zero());
    assert_eq!(
        (
            pool.len(),
            pool.load(0, Relaxed),
            pool.load(LEN - 8, Relaxed)
        ),
        (LEN, 0, 0)
    );
    assert_eq!(fs::metadata(&path).expect("stat").len(), LEN);
}

#[test]
fn no_file_is_left_when_creating_fails() {
    let dir = Dir::new();
    let path = dir.file("pool");
    for (len, errnos) in [
        (1 << 60, [libc::ENOSPC, libc::EFBIG].as_slice()),
        (0, &[libc::EINVAL]),
    ] {
        let why = error(&path, MappedPool::create(&path, len, MediaChoice::Auto));
        assert!(errnos.contains(&why.to_errno()), "{why:?}");
        assert!(!path.exists());
    }
    let no_dax = error(&path, MappedPool::create(&path, LEN, MediaChoice::Dax));
    assert!(matches!(no_dax, MediaError::NotDax { .. }), "{no_dax}");
    assert!(!path.exists());
}

#[test]
fn a_pool_that_is_open_is_busy() {
    let dir = Dir::new();
    let path = dir.file("pool");
    let pool = create(&path);
    for attempt in [
        open(&path),
        open_read_only(&path),
        MappedPool::overwrite(&path, LEN, MediaChoice::Auto),
    ] {
        let busy = error(&path, attempt);
        let MediaError::Busy { owner_pid, .. } = busy else {
            panic!("{busy:?}")
        };
        // Unknown if /proc/locks shows another device than stat, or nothing.
        assert!(
            owner_pid.is_none_or(|pid| pid == std::process::id()),
            "{owner_pid:?}"
        );
        assert_eq!(busy.to_errno(), libc::EBUSY);
    }
    assert_eq!(pool.len(), LEN);
    drop(pool);
    open(&path).expect("free again");
}

/// A duplicate as a child has it between its fork and the execution of its program.
fn duplicate_of(path: &Path) -> OwnedFd {
    let me = rustix::process::pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
    let open = fs::read_dir("/proc/self/fd").expect("descriptors");
    let number = open
        .map(|entry| entry.expect("a descriptor").path())
        .find(|entry| fs::read_link(entry).is_ok_and(|target| target == path))
        .and_then(|entry| entry.file_name()?.to_str()?.parse().ok());
    let number = number.expect("the pool is open");
    pidfd_getfd(me, number, PidfdGetfdFlags::empty()).expect("a duplicate")
}

#[test]
fn a_closed_pool_is_free_although_a_child_has_its_descriptor() {
    let dir = Dir::new();
    let path = dir.file("pool");
    let pool = create(&path);
    let _duplicate = duplicate_of(&path);
    assert!(matches!(error(&path, open(&path)), MediaError::Busy { .. }));
    drop(pool);
    open(&path).expect("free again");
}

#[test]
fn readers_share_and_change_nothing() {
    let dir = Dir::new();
    let path = dir.file("pool");
    create(&path).store(0, 1, Relaxed);
    let before = fs::read(&path).expect("read");
    let mode = OpenMode {
        read_only: true,
        populate: true,
        media: MediaChoice::Auto,
    };
    let one = MappedPool::open(&path, mode).expect("first reader");
    let other = open_read_only(&path).expect("second reader");
    assert!(one.is_read_only());
    one.store(0, 2, Relaxed);
    one.write_through(Site::UNNAMED, 4096, &[9; 4096]);
    one.fence(Site::UNNAMED);
    one.sync().expect("sync");
    assert_eq!((one.load(0, Relaxed), other.load(0, Relaxed)), (2, 1));
    assert!(matches!(error(&path, open(&path)), MediaError::Busy { .. }));
    drop((one, other));
    assert_eq!(fs::read(&path).expect("read"), before);
}

#[test]
fn files_that_cannot_be_pools_are_refused() {
    let dir = Dir::new();
    let missing = dir.file("missing");
    assert_eq!(error(&missing, open(&missing)).to_errno(), libc::ENOENT);
    let empty = dir.file("empty");
    File::create(&empty).expect("create");
    assert!(matches!(
        error(&empty, open(&empty)),
        MediaError::Empty { .. }
    ));
    let directory = dir.0.path();
    let refused = error(directory, open_read_only(directory));
    assert!(
        matches!(
            refused,
            MediaError::NotAPool {
                found: "directory",
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(refused.to_errno(), libc::EISDIR);
    let null = Path::new("/dev/null");
    let refused = error(null, open(null));
    assert!(
        matches!(
            refused,
            MediaError::NotAPool {
                found: "character device",
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn kinds() {
    let anonymous = MappedPool::anonymous(LEN).expect("anonymous");
    assert_eq!(
        (anonymous.kind(), anonymous.path()),
        (MediaKind::Memory, None)
    );
    assert!(anonymous.known_zero());
    let dir = Dir::new();
    let path = dir.file("pool");
    let file = MappedPool::create(&path, LEN, MediaChoice::File).expect("create");
    assert_eq!(file.kind(), MediaKind::File);
    let before = count::of_this_thread();
    file.sync().expect("sync");
    assert_eq!((count::of_this_thread() - before).syncs, 1);
    drop(file);
    let mode = OpenMode {
        media: MediaChoice::Memory,
        ..OpenMode::default()
    };
    let memory = MappedPool::open(&path, mode).expect("open");
    assert_eq!(memory.kind(), MediaKind::Memory);
    memory.sync().expect("sync");
    assert_eq!((count::of_this_thread() - before).syncs, 1);
    let shm = tempfile::tempdir_in("/dev/shm");
    match shm.map(Dir) {
        Ok(dir) => assert_eq!(create(&dir.file("pool")).kind(), MediaKind::Memory),
        Err(why) => eprintln!("skipped: no /dev/shm ({why})"),
    }
}

#[test]
fn populating_faults_in_every_page() {
    let dir = Dir::new();
    let path = dir.file("pool");
    drop(create(&path));
    let pool = MappedPool::open(
        &path,
        OpenMode {
            populate: true,
            ..OpenMode::default()
        },
    );
    let pool = pool.expect("open");
    assert_eq!(pool.load(LEN - 8, Relaxed), 0);
    let anonymous = MappedPool::anonymous(LEN).expect("anonymous");
    anonymous.populate();
    assert_eq!((anonymous.load(0, Relaxed), anonymous.damaged()), (0, None));
}

#[test]
fn odd_sizes_end_at_their_last_byte() {
    let dir = Dir::new();
    let path = dir.file("pool");
    let pool = MappedPool::create(&path, 4096 + 13, MediaChoice::Auto).expect("create");
    pool.write(4096 + 8, &[1; 5]);
    pool.store(4096, 2, Relaxed);
    assert_eq!(pool.damaged(), None);
    pool.store(4096 + 8, 3, Relaxed);
    assert_eq!(pool.damaged(), Some(4096 + 8), "the last cell is not whole");
    assert!(pool.bytes_equal(4096 + 8, &[1; 5]));
}

/// Truncates the file under its mapping.
fn truncate(path: &Path, len: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("open");
    file.set_len(len).expect("truncate");
}

#[test]
fn a_page_that_vanishes_reads_as_zeros() {
    let dir = Dir::new();
    for read_only in [false, true] {
        let path = dir.file(if read_only { "reader" } else { "writer" });
        create(&path).write(0, &vec![0xaa; LEN as usize]);
        let mode = OpenMode {
            read_only,
            ..OpenMode::default()
        };
        let pool = MappedPool::open(&path, mode).expect("open");
        truncate(&path, 8192);
        assert_eq!(pool.damaged(), None);
        assert_eq!(pool.load(8184, Relaxed), 0xaaaa_aaaa_aaaa_aaaa);
        assert_eq!(pool.load(8192 + 24, Relaxed), 0);
        assert_eq!(pool.damaged(), Some(8192 + 24));
        let mut bytes = vec![1; LEN as usize];
        pool.read(0, &mut bytes);
        assert!(bytes[..8192].iter().all(|&byte| byte == 0xaa));
        assert!(bytes[8192..].iter().all(|&byte| byte == 0));
        pool.store(LEN - 8, 1, Relaxed);
        pool.write_through(Site::UNNAMED, LEN / 2, &[1; 9000]);
        pool.flush(Site::UNNAMED, 0, LEN);
        pool.fence(Site::UNNAMED);
        assert_eq!(pool.damaged(), Some(8192 + 24), "the first failure stays");
    }
}

/// How many accesses of this thread fail while `body` runs.
fn failing(body: impl FnOnce()) -> u64 {
    let before = faults().count;
    body();
    faults().count - before
}

#[test]
fn only_accesses_to_lost_pages_fail_once_the_pool_is_watched() {
    let dir = Dir::new();
    let path = dir.file("pool");
    let pool = create(&path);
    pool.write(0, &vec![0xaa; LEN as usize]);
    truncate(&path, LEN - 8192);
    assert_eq!(pool.condition(), 0);
    assert_eq!(pool.load(LEN - 4096, Relaxed), 0);
    let once = pool.condition();
    assert_eq!((once >> 1, pool.last_lost()), (1, LEN - 4096));
    pool.watch();
    // The page that is already lost, by every width of access.
    assert_eq!(failing(|| assert_eq!(pool.load(LEN - 8, Relaxed), 0)), 1);
    assert_eq!(faults().last, LEN - 8);
    assert_eq!(failing(|| assert_eq!(pool.load_line(LEN - 64), [0; 8])), 1);
    assert_eq!(failing(|| pool.store(LEN - 16, 1, Relaxed)), 1);
    assert_eq!(failing(|| pool.flush(Site::UNNAMED, LEN - 64, 64)), 1);
    assert_eq!(failing(|| pool.read(LEN - 12_300, &mut [0; 4200])), 0);
    assert_eq!(pool.condition() >> 1, 2, "the page before it was lost now");
    assert_eq!(failing(|| pool.read(LEN - 12_300, &mut [0; 8])), 0);
    assert_eq!(failing(|| pool.read(LEN - 12_300, &mut [0; 8192])), 1);
    assert_eq!(faults().last, LEN - 8192, "where the lost bytes begin");
    // The other pages are unchanged.
    let value = 0xaaaa_aaaa_aaaa_aaaa;
    assert_eq!(failing(|| assert_eq!(pool.load(64, Relaxed), value)), 0);
    assert_eq!(failing(|| assert_eq!(pool.load_line(64), [value; 8])), 0);
    assert_eq!(failing(|| pool.store(64, 1, Relaxed)), 0);
    assert_eq!(failing(|| assert_eq!(pool.load(LEN, Relaxed), 0)).min(1), 1);
    assert_eq!(pool.condition() >> 1, 2, "outside is not lost");
}

#[test]
fn pages_may_vanish_under_every_kind_of_access() {
    type Access = fn(&MappedPool, u64);
    let accesses: [Access; 9] = [
        |pool, at| pool.store(at, 1, Relaxed),
        |pool, at| assert_eq!(pool.fetch_add(at, 1), 0),
        |pool, at| assert_eq!(pool.compare_exchange(at, 0, 1), Ok(0)),
        |pool, at| pool.read(at, &mut [0; 4096]),
        |pool, at| pool.write(at, &[1; 4096]),
        |pool, at| assert!(!pool.bytes_equal(at, b"something")),
        |pool, at| assert_eq!(pool.match_line(at, u64::MAX, 0), 0xff),
        |pool, at| pool.write_through(Site::UNNAMED, at, &[1; 4096]),
        |pool, at| pool.zero_through(Site::UNNAMED, at, 4096),
    ];
    let dir = Dir::new();
    for (i, access) in accesses.iter().enumerate() {
        let path = dir.file(&i.to_string());
        let pool = create(&path);
        truncate(&path, 0);
        access(&pool, 64 << 10);
        assert_eq!(pool.damaged(), Some(64 << 10), "access {i}");
    }
}

#[test]
fn threads_meet_vanished_pages_together() {
    let dir = Dir::new();
    let path = dir.file("pool");
    let pool = create(&path);
    truncate(&path, 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for at in (0..LEN).step_by(512) {
                    assert_eq!(pool.load(at, Relaxed), 0);
                }
            });
        }
    });
    assert!(pool.damaged().is_some());
}

#[test]
fn a_lost_page_is_renewed_with_zeros_and_kept() {
    let dir = Dir::new();
    let path = dir.file("pool");
    let pool = create(&path);
    for at in [4096, 8192, 12_288] {
        pool.write(at, &[7; 4096]);
    }
    pool.sync().unwrap();
    pool.take_away(8192).unwrap();
    let refused = pool.renew(8192).unwrap_err();
    assert_eq!(
        refused.kind(),
        std::io::ErrorKind::InvalidInput,
        "not lost so far"
    );
    pool.watch();
    assert_eq!(pool.load(8200, Relaxed), 0);
    let before = faults().count;
    pool.renew(8200).unwrap();
    pool.store(8192, 9, Relaxed);
    assert_eq!(pool.load(8192, Relaxed), 9);
    assert_eq!(faults().count, before, "it is whole again");
    pool.sync().unwrap();
    drop(pool);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes[4096..8192], [7; 4096]);
    assert_eq!(bytes[8192..8200], 9u64.to_le_bytes());
    assert!(bytes[8200..12_288].iter().all(|&byte| byte == 0));
    assert_eq!(bytes[12_288..16_384], [7; 4096]);
}

/// A SIGBUS of the system itself, from a truncated file.
#[test]
fn a_truncated_page_is_renewed() {
    let dir = Dir::new();
    let path = dir.file("pool");
    let pool = create(&path);
    pool.write(0, &[7; 4096]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(LEN / 2).unwrap();
    assert_eq!(pool.load(LEN - 8, Relaxed), 0);
    pool.renew(LEN - 4096).unwrap();
    pool.store(LEN - 8, 5, Relaxed);
    pool.sync().unwrap();
    drop(pool);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, LEN);
    assert_eq!(bytes[LEN as usize - 8..], 5u64.to_le_bytes());
}
