//! Pools whose data pass the page cache: with a log, with external data, and in memory with their
//! data on a disk. The directory for temporary files must lie on a file system with direct I/O.

use std::path::{Path, PathBuf};

use vellum::media::MediaChoice;
use vellum::reading::Rule;
use vellum::{
    Allocate, CreateOptions, DataOptions, Error, MappingKind, MediumError, OpenOptions, Pool,
    PoolOptions, ViewSource,
};
use vellum_check::{Options, check};

const DATA_BYTES: u64 = 16 << 20;

/// The locations of a pool's metadata and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Logged,
    External,
    Split,
}

const KINDS: [Kind; 3] = [Kind::Logged, Kind::External, Kind::Split];

/// Directories for a pool and for its data.
struct Dirs {
    pool: tempfile::TempDir,
    data: tempfile::TempDir,
}

impl Dirs {
    fn new(kind: Kind) -> Self {
        let data = tempfile::tempdir().unwrap();
        let pool = match kind {
            Kind::Split => tempfile::tempdir_in("/dev/shm").unwrap(),
            _ => tempfile::tempdir().unwrap(),
        };
        Self { pool, data }
    }

    fn path(&self) -> PathBuf {
        self.pool.path().join("pool")
    }

    fn make(&self, kind: Kind) {
        let data = DataOptions::new(self.data.path().join("data")).size_bytes(DATA_BYTES);
        let bytes = if kind == Kind::Logged { DATA_BYTES } else { 0 };
        let options = CreateOptions::new(bytes)
            .media(match kind {
                Kind::Split => MediaChoice::Memory,
                _ => MediaChoice::Logged,
            })
            .mapping(MappingKind::Extent)
            .fragmentation(if kind == Kind::External { 1000 } else { 0 })
            .data((kind != Kind::Logged).then_some(data));
        let pool = options.create(self.path()).unwrap();
        pool.close().unwrap();
    }

    fn open(&self, direct: bool) -> Pool {
        open(&self.path(), direct).unwrap()
    }
}

fn open(path: &Path, direct: bool) -> Result<Pool, Error> {
    let options = PoolOptions::new().direct(direct);
    options.open(path)
}

/// Changes a file's bytes at various offsets, in the pool and in memory.
fn change(pool: &Pool, name: &str, bytes: &mut Vec<u8>) {
    let options = OpenOptions::new().read(true).write(true);
    let file = pool.volume().open_with(name, &options).unwrap();
    let mut number = 1u64;
    for round in 0..60u64 {
        number = number.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(11);
        let at = (number >> 20) % 200_000;
        let len = (number >> 40) % [10, 5000, 300_000][(round % 3) as usize] + 1;
        let end = (at + len) as usize;
        match round % 6 {
            5 => {
                let end = end.min(bytes.len());
                let at = (at as usize).min(end.saturating_sub(1));
                file.handle()
                    .allocate(Allocate::PunchHole, at as u64, (end - at) as u64)
                    .unwrap();
                // A hole up to the end frees the last block whole: the rest is not the file's.
                bytes[at..end].fill(0);
            }
            4 => {
                file.set_len(end as u64).unwrap();
                bytes.resize(end, 0);
            }
            _ => {
                let data: Vec<u8> = (at..at + len).map(|at| (at * 7 + round) as u8).collect();
                file.write_at(&data, at).unwrap();
                bytes.resize(bytes.len().max(end), 0);
                bytes[at as usize..end].copy_from_slice(&data);
            }
        }
        let mut part = vec![0; 3000];
        let from = at.saturating_sub(1000) as usize;
        let read = file.read_at(&mut part, from as u64).unwrap();
        let expected = &bytes[from.min(bytes.len())..bytes.len().min(from + 3000)];
        assert!(part[..read] == *expected, "round {round}");
    }
}

#[test]
fn bytes_are_the_same_past_the_page_cache_and_through_it() {
    for kind in KINDS {
        let dirs = Dirs::new(kind);
        dirs.make(kind);
        let mut bytes = Vec::new();
        // Openings with and without direct I/O alternate, so that each must ignore what the other
        // left in the page cache.
        for round in 0..4 {
            let pool = dirs.open(round % 2 == 0);
            assert_eq!(pool.fs().is_direct(), round % 2 == 0, "{kind:?}");
            if round == 0 {
                pool.volume().write("/f", b"").unwrap();
            }
            assert!(pool.volume().read("/f").unwrap() == bytes, "{kind:?}");
            change(&pool, "/f", &mut bytes);
            assert!(pool.volume().read("/f").unwrap() == bytes, "{kind:?}");
            pool.close().unwrap();
        }
        if kind == Kind::Logged {
            let report = check(
                &std::fs::File::open(dirs.path()).unwrap(),
                Options::default(),
            );
            assert!(report.is_sound(), "{report}");
        }
    }
}

#[test]
fn views_are_copies() {
    for kind in KINDS {
        let dirs = Dirs::new(kind);
        dirs.make(kind);
        let pool = dirs.open(true);
        let bytes = vec![7; 100_000];
        pool.volume().write("/f", &bytes).unwrap();
        let file = pool.volume().open("/f").unwrap();
        for rule in [Rule::Mmu, Rule::Search] {
            let view = file.view_by(0..100_000, rule).unwrap();
            assert_eq!(view.place(), ViewSource::Copy, "{kind:?}");
            assert!(*view == bytes[..]);
        }
        assert_eq!(pool.fs().read_costs(), None);
    }
}

/// A journaled block would have to be read back right after it was written.
#[test]
fn blocks_are_not_journaled() {
    for direct in [false, true] {
        let dirs = Dirs::new(Kind::External);
        dirs.make(Kind::External);
        let pool = dirs.open(direct);
        let volume = pool.volume();
        volume.write("/f", b"a few bytes").unwrap();
        volume.sync().unwrap();
        volume.create_dir("/d").unwrap();
        volume.sync().unwrap();
        let counts = pool.fs().log_counts().unwrap();
        assert_eq!((counts.blocks == 0, counts.commits >= 2), (direct, true));
    }
}

/// A copy of the files is what a kill leaves if all memory is lost with it. It contains everything
/// that was synced.
#[test]
fn what_was_synced_survives_a_kill() {
    for kind in [Kind::Logged, Kind::External] {
        let dirs = Dirs::new(kind);
        dirs.make(kind);
        let pool = dirs.open(true);
        let content = |number: u8| vec![number + 1; 700 * usize::from(number) + 1];
        for number in 0..30 {
            let name = format!("/{number}");
            pool.volume().write(name, content(number)).unwrap();
            if number % 5 == 4 {
                pool.volume().sync().unwrap();
            }
        }
        pool.volume().write("/later", b"lost").unwrap();
        let copy = tempfile::tempdir().unwrap();
        let to = |name: &str| copy.path().join(name);
        std::fs::copy(dirs.path(), to("pool")).unwrap();
        let mut options = PoolOptions::new().direct(true);
        if kind == Kind::External {
            std::fs::copy(dirs.data.path().join("data"), to("data")).unwrap();
            options.data = vec![to("data")];
        }
        for read_only in [true, false, false] {
            options.read_only = read_only;
            let reopened = options.open(to("pool")).unwrap();
            for number in 0..30 {
                let read = reopened.volume().read(format!("/{number}")).unwrap();
                assert!(read == content(number), "{kind:?} {number}");
            }
            let later = reopened.volume().read("/later");
            assert!(matches!(later, Err(Error::NotFound)), "{kind:?}");
        }
    }
}

/// Several threads write parts of the same blocks of one file, and files of their own.
#[test]
fn parts_of_a_block_that_several_write_are_all_there() {
    const WRITERS: u64 = 4;
    const PART: u64 = 100;
    let dirs = Dirs::new(Kind::Logged);
    dirs.make(Kind::Logged);
    let pool = dirs.open(true);
    let file = pool.volume().create("/shared").unwrap();
    file.set_len(40 * WRITERS * PART).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (file, volume) = (&file, pool.volume());
            scope.spawn(move || {
                for number in 0..40 {
                    let part = [writer as u8 + 1; PART as usize];
                    file.write_at(&part, (number * WRITERS + writer) * PART)
                        .unwrap();
                    let own = format!("/{writer}");
                    volume.write(&own, &part[..number as usize]).unwrap();
                    assert_eq!(volume.read(&own).unwrap(), part[..number as usize]);
                }
            });
        }
    });
    let bytes = pool.volume().read("/shared").unwrap();
    for (number, part) in bytes.chunks(PART as usize).enumerate() {
        let writer = number as u64 % WRITERS;
        assert_eq!(part, [writer as u8 + 1; PART as usize], "part {number}");
    }
}

#[test]
fn populating_leaves_the_data_alone() {
    for kind in KINDS {
        let dirs = Dirs::new(kind);
        dirs.make(kind);
        let options = PoolOptions::new().direct(true).populate(true);
        let pool = options.open(dirs.path()).unwrap();
        pool.volume().write("/f", b"bytes").unwrap();
        assert_eq!(pool.volume().read("/f").unwrap(), b"bytes");
    }
}

#[test]
fn pools_with_their_data_in_memory_have_no_page_cache_to_bypass() {
    let dir = tempfile::tempdir().unwrap();
    for media in [MediaChoice::File, MediaChoice::Memory] {
        let path = dir.path().join(format!("{media:?}"));
        let options = CreateOptions::new(4 << 20).media(media);
        options.create(&path).unwrap().close().unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = open(&path, true).unwrap_err();
        assert!(
            matches!(error, Error::Medium(MediumError::NoCalls { .. })),
            "{error}"
        );
        let told = error.to_string();
        assert!(told.contains(path.to_str().unwrap()) && told.contains("--direct"));
        assert!(std::fs::read(&path).unwrap() == before);
    }
}
