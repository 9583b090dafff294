//! Reads files of a pool by each path, and a file of a peer.
//!
//! All paths read the same file, and only one page table exists at a time: all windows of a process
//! share the areas that the kernel allows it, and a large file needs most of them.

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use indicatif::ProgressBar;
use tempfile::TempDir;
use vellum::experiments::page_table;
use vellum::media::{BLOCK_BYTES, FileBytes, MappedPool, MediaChoice, Memory, Window};
use vellum::reading::{Costs, Rule};
use vellum::{File, OpenOptions, Pool, PoolOptions};

use crate::library::make_pool;

use super::openings::{self, Opening};
use super::report::{Laid, Row, Side};
use super::{Figure, ReadingOptions};
use crate::Result;
use crate::error::{Error, doing, expect};
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::order::Numbers;
use crate::scratch::dir_in;
use crate::stopwatch::Stopwatch;
use crate::variant::Variant;

/// Bytes per write.
const FILL_BYTES: usize = 1 << 20;
/// The smallest file of `file-size`.
const SMALLEST_BYTES: u64 = 64 << 10;
/// Bytes of a request of `file-size`, and of requests before anything is timed, by which a rule
/// decides.
const REQUEST_BYTES: u64 = 64 << 10;
/// Bytes of a view.
const VIEW_BYTES: u64 = 32 << 10;
/// The smallest and the largest request of `block-size`.
const REQUESTS: [u64; 2] = [1 << 10, 2 << 20];
/// The most times that a file is read before anything is timed, so that its page table is built.
const READINGS_MAX: u32 = 24;
/// The most bytes read after an opening, as a multiple of the bytes read in a round.
const OPENING_PART: u64 = 32;
/// The size of the pool, as a multiple of the file's: in fuller pools files become more fragmented
/// than requested.
const POOL_PART: u64 = 3;
/// Small pages.
const SMALL_PAGE_BYTES: u64 = 4096;
/// The size of large pages. The size of the memory is a multiple of it.
const LARGE_BYTES: u64 = 2 << 20;
/// The name of the file in the pool and at the peer.
const FILE: &str = "file";

/// The rule of each pass; search takes part in all of them. Each pass begins with a file that was
/// just opened. The peer and memory take part in the pass of the default rule. The paper's rule
/// comes first, before a file is known to be read repeatedly.
pub(super) const PASSES: [Rule; 3] = [Rule::Threshold, Rule::Layout, Rule::Mmu];
const WITH_OTHERS: Rule = Rule::Layout;

/// A pool, a directory of the peer, and memory to copy from.
pub(super) struct Fixture<'a> {
    options: &'a ReadingOptions,
    variant: Variant,
    interrupt: &'a Interrupt,
    progress: &'a ProgressBar,
    pool: Pool,
    /// The bytes of `memory` in pages of 4 KiB, which page tables of scattered files have too.
    /// Field order: dropped before it.
    small_pages: Option<Window>,
    /// Contiguous memory of the pool's kind, on large pages as far as the pool is, and copied with
    /// the same instructions. So only the path to the bytes can make the pool slower.
    memory: MappedPool,
    peer: TempDir,
    // Field order: removed last.
    _pool_dir: TempDir,
}

/// The requests of a round.
struct Requests {
    bytes: u64,
    offsets: Vec<u64>,
}

impl Requests {
    /// Requests of `bytes` bytes, `total` bytes together, to a file of `file` bytes.
    fn new(bytes: u64, file: u64, total: u64, at_random: bool, salt: u64) -> Self {
        let places = (file / bytes).max(1);
        let mut numbers = Numbers::new(salt);
        let place = |i: u64| match at_random {
            true => numbers.below(places),
            false => i % places,
        };
        let offsets = (0..(total / bytes).max(1)).map(place);
        Self {
            bytes,
            offsets: offsets.map(|place| place * bytes).collect(),
        }
    }
}

/// A file of the pool, and a copy at the peer.
struct Subject {
    bytes: u64,
    /// The file, read by search alone.
    searched: File,
    peer: fs::File,
}

impl<'a> Fixture<'a> {
    pub(super) fn make(
        options: &'a ReadingOptions,
        variant: Variant,
        interrupt: &'a Interrupt,
        progress: &'a ProgressBar,
    ) -> Result<Self> {
        let (pool_dir, peer) = (dir_in(&options.pool_dir)?, dir_in(&options.peer)?);
        let path = pool_dir.path().join("pool");
        let bytes = (options.file_bytes * POOL_PART).next_multiple_of(64 << 20);
        make_pool(&path, &variant.create(bytes))?.close()?;
        let opening = PoolOptions::new().populate(true);
        let bytes = options.file_bytes.next_multiple_of(LARGE_BYTES);
        let memory = MappedPool::create(&pool_dir.path().join("memory"), bytes, MediaChoice::Auto);
        let memory = memory.map_err(vellum::Error::from)?;
        memory.populate();
        for at in (0..bytes).step_by(FILL_BYTES) {
            memory.write(at, &pattern(at, FILL_BYTES));
        }
        Ok(Self {
            options,
            variant,
            interrupt,
            progress,
            pool: opening.open(&path)?,
            small_pages: small_pages(&memory),
            memory,
            peer,
            _pool_dir: pool_dir,
        })
    }

    /// The costs of reading here, measured with a file of the size that is read.
    pub(super) fn costs(&self) -> Result<Option<Costs>> {
        let volume = self.pool.volume();
        let path = "/measured";
        volume.write(path, vec![1; self.options.file_bytes as usize])?;
        let costs = volume.open(path)?.handle().read_costs();
        volume.remove_file(path)?;
        Ok(costs)
    }

    pub(super) fn describe(&self, machine: &mut Machine) {
        let fs = self.pool.fs();
        machine.pool_bytes = fs.superblock().pool_bytes;
        machine.media = fs.media_kind().name().into();
        machine.instructions = format!("{:?}", fs.isa());
    }

    /// The fraction of the copied memory on large pages.
    pub(super) fn gathered(&self) -> f64 {
        let bytes = self.memory.len();
        self.memory.gather_large_pages(bytes) as f64 / bytes as f64
    }

    /// A subject with a file of `bytes`.
    fn subject(&self, bytes: u64) -> Result<Subject> {
        let path = self.peer.path().join(FILE);
        let peer = fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(doing("making the peer's file"))?;
        let file = self.pool.volume().create(FILE)?;
        for at in (0..bytes).step_by(FILL_BYTES) {
            self.interrupt.check()?;
            let piece = pattern(at, (bytes - at).min(FILL_BYTES as u64) as usize);
            expect("bytes written", file.write_at(&piece, at)?, piece.len())?;
            peer.write_all_at(&piece, at)
                .map_err(doing("filling the peer's file"))?;
        }
        Ok(Subject {
            bytes,
            searched: self.open()?,
            peer,
        })
    }

    /// Opens the file again, with a new and empty page table.
    fn open(&self) -> Result<File> {
        let reading = OpenOptions::new().read(true).no_atime(true);
        Ok(self.pool.volume().open_with(FILE, &reading)?)
    }

    /// Reads a file by a rule until its page table is complete, or gives up; returns the number of
    /// readings.
    fn settle(&self, rule: Rule, file: &File, bytes: u64) -> Result<u32> {
        self.pool.fs().set_read_rule(rule);
        let mut out = vec![0; REQUEST_BYTES as usize];
        for reading in 1..=READINGS_MAX {
            self.interrupt.check()?;
            read_through(file, bytes, &mut out)?;
            let table = page_table(file.handle());
            if table.gave_up || table.blocks >= bytes.div_ceil(BLOCK_BYTES) {
                return Ok(reading);
            }
        }
        Ok(READINGS_MAX)
    }

    /// The request sizes of `block-size`, for a file of `file_bytes`.
    pub(super) fn request_sizes(file_bytes: u64) -> impl Iterator<Item = u64> {
        let [least, most] = REQUESTS;
        let sizes = std::iter::successors(Some(least), |bytes| Some(bytes * 2));
        sizes.take_while(move |&bytes| bytes <= most.min(file_bytes))
    }

    /// The file sizes of `file-size`, up to `file_bytes`.
    pub(super) fn file_lengths(file_bytes: u64) -> impl Iterator<Item = u64> {
        let sizes = std::iter::successors(Some(SMALLEST_BYTES), |bytes| Some(bytes * 4));
        sizes.take_while(move |&bytes| bytes <= file_bytes)
    }

    fn row(&self, figure: Figure, file_bytes: u64, request_bytes: u64, order: &'static str) -> Row {
        Row::new(figure, self.variant, file_bytes, request_bytes, order)
    }

    /// Fig 6.
    pub(super) fn block_sizes(&mut self) -> Result<Vec<Row>> {
        let bytes = self.options.file_bytes;
        let orders = |size| ["sequential", "random"].map(|order| (size, order));
        let rows = Self::request_sizes(bytes).flat_map(orders);
        let rows = rows.map(|(size, order)| self.row(Figure::BlockSize, bytes, size, order));
        self.read(&self.subject(bytes)?, rows.collect())
    }

    /// Fig 10, and the same files from their opening.
    pub(super) fn file_sizes(&mut self) -> Result<(Vec<Row>, Vec<Opening>)> {
        let (mut rows, mut openings) = (Vec::new(), Vec::new());
        for bytes in Self::file_lengths(self.options.file_bytes) {
            let row = self.row(Figure::FileSize, bytes, REQUEST_BYTES, "sequential");
            let subject = self.subject(bytes)?;
            if bytes >= openings::FILE_MIN_BYTES {
                openings.extend(self.openings(bytes)?);
            }
            rows.extend(self.read(&subject, vec![row])?);
        }
        Ok((rows, openings))
    }

    /// Opens the file by each rule and reads it repeatedly.
    fn openings(&self, bytes: u64) -> Result<Vec<Opening>> {
        let most_bytes = self.options.round_bytes * OPENING_PART;
        let mut openings = Opening::all(self.variant, bytes, most_bytes);
        let mut out = vec![0; REQUEST_BYTES as usize];
        for round in 0..=self.options.rounds as u64 {
            for rule in Rule::ALL {
                self.interrupt.check()?;
                self.pool.fs().set_read_rule(rule);
                let watch = Stopwatch::start();
                let file = self.open()?;
                let mut done = 0;
                for opening in &mut openings {
                    for _ in done..opening.readings {
                        read_through(&file, bytes, &mut out)?;
                    }
                    done = opening.readings;
                    opening.note(round, rule, watch.elapsed());
                }
            }
        }
        Ok(openings.into_iter().map(Opening::finished).collect())
    }

    /// Measures rows of one file, pass by pass.
    fn read(&self, subject: &Subject, mut rows: Vec<Row>) -> Result<Vec<Row>> {
        for (pass, rule) in PASSES.into_iter().enumerate() {
            let file = self.open()?;
            let readings = self.settle(rule, &file, subject.bytes)?;
            for row in &mut rows {
                for round in 0..=self.options.rounds as u64 {
                    self.interrupt.check()?;
                    self.progress.inc(1);
                    self.round(subject, (rule, &file), row, pass, round)?;
                }
                let table = page_table(file.handle());
                let laid = Laid {
                    readings,
                    part: table.blocks as f64 / subject.bytes.div_ceil(BLOCK_BYTES) as f64,
                    gave_up: table.gave_up,
                };
                row.page_tables.insert(rule.name(), laid);
            }
        }
        Ok(rows.into_iter().map(Row::finished).collect())
    }

    /// Lets every side of a pass read the same requests.
    fn round(
        &self,
        subject: &Subject,
        (rule, file): (Rule, &File),
        row: &mut Row,
        pass: usize,
        round: u64,
    ) -> Result<()> {
        let total = self.options.round_bytes.max(row.request_bytes);
        let at_random = row.order == "random";
        let requests = Requests::new(row.request_bytes, row.file_bytes, total, at_random, round);
        let count = requests.offsets.len();
        let mut out = vec![0; row.request_bytes as usize];
        for (rule, file) in [(Rule::Search, &subject.searched), (rule, file)] {
            self.pool.fs().set_read_rule(rule);
            let time = time(&requests, |at| Ok(file.read_at(&mut out, at)?))?;
            row.note((pass, round), Side::Rule(rule), time, count);
        }
        if rule == WITH_OTHERS {
            let peer = |at| {
                let read = subject.peer.read_at(&mut out, at);
                read.map_err(doing("reading the peer's file"))
            };
            row.note((pass, round), Side::Peer, time(&requests, peer)?, count);
            let copy = |at| {
                self.memory.read(at, &mut out);
                Ok(black_box(&mut out).len())
            };
            row.note((pass, round), Side::Memcpy, time(&requests, copy)?, count);
            if let Some(window) = &self.small_pages {
                let copy = |at| {
                    self.memory
                        .read_window(window, SMALL_PAGE_BYTES + at, &mut out);
                    Ok(black_box(&mut out).len())
                };
                let taken = time(&requests, copy)?;
                row.note((pass, round), Side::MemcpySmall, taken, count);
            }
        }
        Ok(())
    }

    /// Views of 32 KiB, and copies of the same bytes.
    pub(super) fn views(&mut self) -> Result<Vec<Row>> {
        let bytes = self.options.file_bytes;
        let subject = self.subject(bytes)?;
        let mut row = self.row(Figure::View, bytes, VIEW_BYTES, "random");
        let mut out = vec![0; VIEW_BYTES as usize];
        let file = &subject.searched;
        self.pool.fs().set_read_rule(Rule::Search);
        for round in 0..=self.options.rounds as u64 {
            self.interrupt.check()?;
            self.progress.inc(1);
            let total = self.options.round_bytes;
            let requests = Requests::new(VIEW_BYTES, bytes, total, true, round);
            let count = requests.offsets.len();
            let view = |at| Ok(black_box(file.view(at..at + VIEW_BYTES)?).len());
            row.note((0, round), Side::View, time(&requests, view)?, count);
            let same = Requests {
                offsets: vec![0; count],
                ..requests
            };
            row.note((0, round), Side::ViewAgain, time(&same, view)?, count);
            let copy = |at| Ok(file.read_at(&mut out, at)?);
            row.note(
                (0, round),
                Side::Rule(Rule::Search),
                time(&requests_of(&same, bytes, round), copy)?,
                count,
            );
        }
        Ok(vec![row.finished()])
    }
}

/// Maps all of a memory into a window that is shifted by one small page, so that no large page
/// fits; `None` if the kernel refuses.
fn small_pages(memory: &MappedPool) -> Option<Window> {
    let bytes = memory.len();
    let window = memory.window(bytes + SMALL_PAGE_BYTES)?;
    memory.lay(&window, SMALL_PAGE_BYTES, 0, bytes).ok()?;
    window.fill_in(SMALL_PAGE_BYTES, bytes);
    Some(window)
}

/// Reads a file sequentially, with requests as long as `out`.
fn read_through(file: &File, bytes: u64, out: &mut [u8]) -> Result<()> {
    for at in (0..bytes).step_by(out.len()) {
        let most = (bytes - at).min(out.len() as u64) as usize;
        expect("bytes read", file.read_at(out, at)?, most)?;
    }
    Ok(())
}

/// The bytes of files and memory from offset `at`.
fn pattern(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|i| (i % 251) as u8).collect()
}

/// The same number of random requests as `like` has.
fn requests_of(like: &Requests, file: u64, salt: u64) -> Requests {
    let total = like.bytes * like.offsets.len() as u64;
    Requests::new(like.bytes, file, total, true, salt)
}

/// The time of all requests; each must return all its bytes. They run once before, untimed, so that
/// every side finds the caches as it leaves them itself.
fn time(requests: &Requests, mut read: impl FnMut(u64) -> Result<usize>) -> Result<Duration> {
    let mut all = || -> Result<Duration> {
        let watch = Stopwatch::start();
        for &at in &requests.offsets {
            if read(at)? as u64 != requests.bytes {
                return Err(Error::Wrong(format!("a read at {at} was short")));
            }
        }
        Ok(watch.elapsed())
    };
    all()?;
    all()
}
