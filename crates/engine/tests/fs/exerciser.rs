//! Random changes of one file. What is read is compared with a copy of the bytes in memory.
//!
//! `VELLUM_CHANGES` and `VELLUM_SEED` set their number, for each mapping, and the random choices.

use std::collections::VecDeque;
use std::path::Path;

use vellum::media::{MediaChoice, Real};
use vellum::{
    Allocate, CreateOptions, Cred, Error, Handle, MappingKind, OpenOptions, Pool, PoolOptions,
};
use vellum_testing::Random;

const BLOCK: u64 = 4096;
const PATH: &str = "/file";
const OPTIONS: OpenOptions = OpenOptions::new().read(true).write(true).create(true);

/// How large the file and a change get.
#[derive(Clone, Copy)]
struct Bounds {
    file: u64,
    change: u64,
}

/// Most work is done, and around the bounds of blocks.
const BOUNDS: [Bounds; 2] = [
    Bounds {
        file: 1 << 20,
        change: 128 << 10,
    },
    Bounds {
        file: 40_000,
        change: 5000,
    },
];

#[derive(Clone, Copy, Debug)]
enum Step {
    Read { at: u64, len: u64 },
    View { at: u64, len: u64 },
    Holes,
    Write { at: u64, len: u64, with: u8 },
    Append { len: u64, with: u8 },
    Truncate { size: u64 },
    Allocate { mode: Allocate, at: u64, len: u64 },
    Move { from: u64, to: u64, len: u64 },
    Copy,
    Sync,
    Reopen,
}

fn asked(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect(variable))
}

/// What a write of `len` bytes writes.
fn pattern(len: u64, with: u8) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ with).collect()
}

/// The next step for a file of `size` bytes.
fn draw(random: &mut Random, size: u64, bounds: Bounds) -> Step {
    loop {
        let kind = random.below(1000);
        let at = random.below(bounds.file);
        let len = (1 + random.below(bounds.change)).min(bounds.file - at);
        let with = random.word() as u8;
        let (at_block, blocks) = (at / BLOCK * BLOCK, len.div_ceil(BLOCK) * BLOCK);
        let allocate = |mode| Step::Allocate { mode, at, len };
        return match kind {
            0..200 => Step::Read { at, len },
            200..250 => Step::View { at, len },
            250..300 => Step::Holes,
            300..500 => Step::Write { at, len, with },
            500..540 if size + len <= bounds.file => Step::Append { len, with },
            540..600 => Step::Truncate { size: at },
            600..650 => allocate(Allocate::Grow),
            650..680 => allocate(Allocate::KeepSize),
            680..750 => allocate(Allocate::PunchHole),
            750..790 => allocate(Allocate::Zero),
            790..820 => allocate(Allocate::ZeroKeepSize),
            820..870 if at_block + blocks < size => Step::Allocate {
                mode: Allocate::Collapse,
                at: at_block,
                len: blocks,
            },
            870..920 if at_block < size && size + blocks <= bounds.file => Step::Allocate {
                mode: Allocate::Insert,
                at: at_block,
                len: blocks,
            },
            920..990 if at < size => Step::Move {
                from: at,
                to: random.below(bounds.file - len + 1),
                len: len.min(size - at),
            },
            990..995 => Step::Copy,
            995..999 => Step::Sync,
            999 => Step::Reopen,
            _ => continue,
        };
    }
}

struct Exerciser<'a> {
    pool: Option<Pool>,
    file: Option<Handle<Real>>,
    /// For a pool in a file, how it is opened.
    place: Option<(&'a Path, PoolOptions)>,
    bytes: Vec<u8>,
}

impl Exerciser<'_> {
    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("open")
    }

    fn file(&self) -> &Handle<Real> {
        self.file.as_ref().expect("open")
    }

    fn open_file(&mut self) {
        let fs = self.pool().fs();
        let opened = fs.open(&Cred::root(), &fs.root(), PATH.as_bytes(), &OPTIONS);
        self.file = Some(opened.unwrap());
    }

    fn reopen(&mut self) {
        self.file = None;
        if let Some((path, options)) = &self.place {
            self.pool.take().expect("open").close().unwrap();
            self.pool = Some(options.open(path).unwrap());
        }
        self.open_file();
    }

    /// The part of a range that the file has.
    fn part(&self, at: u64, len: u64) -> &[u8] {
        let end = (at + len).min(self.bytes.len() as u64);
        self.bytes.get(at as usize..end as usize).unwrap_or(&[])
    }

    fn read(&self, at: u64, len: u64) -> Vec<u8> {
        let mut out = vec![0xEE; len as usize];
        let got = self.file().read_at(at, &mut out).unwrap();
        out.truncate(got);
        out
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        assert_eq!(self.file().write_at(at, data).unwrap(), data.len());
        self.put(at, data);
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let (at, end) = (at as usize, at as usize + data.len());
        if !data.is_empty() && self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(data);
    }

    fn zero(&mut self, at: u64, len: u64) {
        let len = self.part(at, len).len();
        if len > 0 {
            self.put(at, &vec![0; len]);
        }
    }

    fn grow(&mut self, size: u64) {
        let size = self.bytes.len().max(size as usize);
        self.bytes.resize(size, 0);
    }

    fn allocated(&mut self, mode: Allocate, at: u64, len: u64) {
        let range = at as usize..(at + len) as usize;
        match mode {
            Allocate::Grow => self.grow(at + len),
            Allocate::KeepSize => {}
            Allocate::PunchHole | Allocate::ZeroKeepSize => self.zero(at, len),
            Allocate::Zero => {
                self.grow(at + len);
                self.zero(at, len);
            }
            Allocate::Collapse => drop(self.bytes.drain(range)),
            Allocate::Insert => {
                let hole = std::iter::repeat_n(0, len as usize);
                self.bytes.splice(range.start..range.start, hole);
            }
        }
    }

    /// Between data are zeros. Returns false if not.
    fn holes_are_zeros(&self) -> bool {
        let size = self.bytes.len() as u64;
        let mut at = 0;
        while at < size {
            let data = match self.file().seek_data(at) {
                Ok(data) => data,
                Err(Error::NoData) => size,
                Err(error) => panic!("{error}"),
            };
            if !self.part(at, data - at).iter().all(|&byte| byte == 0) {
                return false;
            }
            at = match data < size {
                true => self.file().seek_hole(data).unwrap(),
                false => size,
            };
            assert!(at > data || data == size);
        }
        true
    }

    /// Returns whether the file shows what it should.
    fn step(&mut self, step: Step) -> bool {
        let same = match step {
            Step::Read { at, len } => self.read(at, len) == self.part(at, len),
            Step::View { at, len } => {
                let end = (at + len).min(self.bytes.len() as u64);
                at >= end || self.file().view(at..end).unwrap()[..] == *self.part(at, len)
            }
            Step::Holes => self.holes_are_zeros(),
            Step::Write { at, len, with } => {
                self.write(at, &pattern(len, with));
                true
            }
            Step::Append { len, with } => {
                let (data, end) = (pattern(len, with), self.bytes.len() as u64);
                let appended = self.file().append(&data).unwrap();
                self.put(end, &data);
                appended == (end, data.len())
            }
            Step::Truncate { size } => {
                self.file().truncate(size).unwrap();
                self.bytes.resize(size as usize, 0);
                true
            }
            Step::Allocate { mode, at, len } => {
                self.file().allocate(mode, at, len).unwrap();
                self.allocated(mode, at, len);
                true
            }
            Step::Move { from, to, len } => {
                let data = self.read(from, len);
                let same = data == self.part(from, len);
                self.write(to, &data);
                same
            }
            Step::Copy => {
                let volume = self.pool().volume();
                volume.copy(PATH, "/copy").unwrap();
                volume.read("/copy").unwrap() == self.bytes
            }
            Step::Sync => {
                self.file().sync().unwrap();
                true
            }
            Step::Reopen => {
                self.reopen();
                self.read(0, self.bytes.len() as u64 + 1) == self.bytes
            }
        };
        same && self.file().attr().unwrap().size == self.bytes.len() as u64
    }
}

/// Exercises a file of each mapping. `open` makes a pool, and says how it is opened again.
fn exercise(place: Option<(&Path, PoolOptions)>) {
    let (changes, seed) = (asked("VELLUM_CHANGES", 2000), asked("VELLUM_SEED", 1));
    for mapping in MappingKind::ALL {
        let options = CreateOptions::new(32 << 20).mapping(mapping);
        let pool = match &place {
            None => options.create_in_memory().unwrap(),
            Some((path, how)) => {
                let options = options.media(MediaChoice::Logged).overwrite(true);
                options.create(path).unwrap().close().unwrap();
                how.open(path).unwrap()
            }
        };
        let mut exerciser = Exerciser {
            pool: Some(pool),
            file: None,
            place: place.clone(),
            bytes: Vec::new(),
        };
        exerciser.open_file();
        let mut random = Random::new(seed);
        let mut last = VecDeque::new();
        for number in 0..changes {
            let bounds = BOUNDS[(number / 1000 % 2) as usize];
            let size = exerciser.bytes.len() as u64;
            let step = match size > bounds.file {
                true => Step::Truncate { size: bounds.file },
                false => draw(&mut random, size, bounds),
            };
            last.push_back(step);
            if last.len() > 30 {
                last.pop_front();
            }
            let what =
                || format!("{mapping:?}, seed {seed}, step {number} is the last of {last:#?}");
            assert!(exerciser.step(step), "{}", what());
        }
        assert!(exerciser.step(Step::Reopen), "{mapping:?} at the end");
    }
}

#[test]
fn a_file_in_memory_keeps_its_bytes_through_any_changes() {
    exercise(None);
}

#[test]
fn a_file_of_a_logged_pool_keeps_its_bytes_through_any_changes() {
    let dir = tempfile::tempdir().unwrap();
    exercise(Some((&dir.path().join("pool"), PoolOptions::new())));
}

#[test]
fn a_file_past_the_page_cache_keeps_its_bytes_through_any_changes() {
    let dir = tempfile::tempdir().unwrap();
    let direct = PoolOptions::new().direct(true);
    exercise(Some((&dir.path().join("pool"), direct)));
}
