//! Reading files of a pool by each road, and a file of a peer.

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use indicatif::ProgressBar;
use tempfile::TempDir;
use vellum::reading::{Costs, Rule};
use vellum::{File, OpenOptions, Pool, PoolOptions};

use super::report::{Row, Side};
use super::{Figure, ReadingOptions};
use crate::Result;
use crate::error::{Error, doing};
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::order::Numbers;
use crate::stopwatch::Stopwatch;
use crate::variant::Variant;

/// Bytes written at once.
const FILL_BYTES: usize = 1 << 20;
/// Smallest file of `file-size`.
const SMALLEST_BYTES: u64 = 64 << 10;
/// Bytes of a request of `file-size`.
const REQUEST_BYTES: u64 = 64 << 10;
/// Bytes of a view.
const VIEW_BYTES: u64 = 32 << 10;
/// Smallest and largest request of `block-size`.
const REQUESTS: [u64; 2] = [1 << 10, 2 << 20];

/// A pool, a directory of the peer, and memory to copy from.
pub(super) struct Bed<'a> {
    options: &'a ReadingOptions,
    variant: Variant,
    interrupt: &'a Interrupt,
    progress: &'a ProgressBar,
    pool: Pool,
    peer: TempDir,
    // Goes last.
    _pool_dir: TempDir,
}

/// What is read in a round.
struct Requests {
    bytes: u64,
    offsets: Vec<u64>,
}

impl Requests {
    /// `total` bytes in requests of `bytes`, of a file of `file` bytes.
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

/// The same bytes, as each side has them.
struct Subject {
    /// A file for each rule: who shares a file shares its page table.
    by_rule: Vec<(Rule, File)>,
    peer: fs::File,
    memory: Vec<u8>,
}

impl<'a> Bed<'a> {
    pub(super) fn make(
        options: &'a ReadingOptions,
        variant: Variant,
        interrupt: &'a Interrupt,
        progress: &'a ProgressBar,
    ) -> Result<Self> {
        let dir = |at| {
            let made = tempfile::Builder::new()
                .prefix("vellum-bench-")
                .tempdir_in(at);
            made.map_err(doing("making a directory"))
        };
        let (pool_dir, peer) = (dir(&options.pool_dir)?, dir(&options.peer)?);
        let path = pool_dir.path().join("pool");
        let bytes = (options.file_bytes * 6).next_multiple_of(64 << 20);
        Pool::create(&path, &variant.create(bytes))?.close()?;
        let opening = PoolOptions {
            populate: true,
            ..PoolOptions::default()
        };
        Ok(Self {
            options,
            variant,
            interrupt,
            progress,
            pool: Pool::open(&path, &opening)?,
            peer,
            _pool_dir: pool_dir,
        })
    }

    /// What reading costs here.
    pub(super) fn costs(&self) -> Option<Costs> {
        self.pool.fs().read_costs()
    }

    pub(super) fn describe(&self, machine: &mut Machine) {
        let fs = self.pool.fs();
        machine.pool_bytes = fs.superblock().pool_bytes;
        machine.media = fs.media_kind().name().into();
        machine.instructions = format!("{:?}", fs.isa());
    }

    /// A file of `bytes`, everywhere the same.
    fn subject(&self, bytes: u64) -> Result<Subject> {
        let memory: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        let volume = self.pool.volume();
        let path = self.peer.path().join("file");
        let peer = fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(doing("making the peer's file"))?;
        for (at, piece) in (0..).step_by(FILL_BYTES).zip(memory.chunks(FILL_BYTES)) {
            peer.write_all_at(piece, at)
                .map_err(doing("filling the peer's file"))?;
        }
        let reading = OpenOptions {
            read: true,
            no_atime: true,
            ..OpenOptions::default()
        };
        let open = |rule: Rule| {
            let path = format!("/{}", rule.name());
            volume.write(&path, &memory)?;
            Ok((rule, volume.open_with(&path, &reading)?))
        };
        let by_rule = Rule::ALL.into_iter().map(open).collect::<Result<_>>()?;
        Ok(Subject {
            by_rule,
            peer,
            memory,
        })
    }

    /// Sizes of requests that `block-size` measures, of a file of `file_bytes`.
    pub(super) fn request_sizes(file_bytes: u64) -> impl Iterator<Item = u64> {
        let [least, most] = REQUESTS;
        let sizes = std::iter::successors(Some(least), |bytes| Some(bytes * 2));
        sizes.take_while(move |&bytes| bytes <= most.min(file_bytes))
    }

    /// Sizes of files that `file-size` measures, the largest of `file_bytes`.
    pub(super) fn file_lengths(file_bytes: u64) -> impl Iterator<Item = u64> {
        let sizes = std::iter::successors(Some(SMALLEST_BYTES), |bytes| Some(bytes * 4));
        sizes.take_while(move |&bytes| bytes <= file_bytes)
    }

    fn row(&self, figure: Figure, file_bytes: u64, request_bytes: u64, order: &'static str) -> Row {
        Row::new(figure, self.variant, file_bytes, request_bytes, order)
    }

    /// Fig 6.
    pub(super) fn block_sizes(&mut self) -> Result<Vec<Row>> {
        let subject = self.subject(self.options.file_bytes)?;
        let mut rows = Vec::new();
        for bytes in Self::request_sizes(self.options.file_bytes) {
            for at_random in [false, true] {
                let order = if at_random { "random" } else { "sequential" };
                let row = self.row(Figure::BlockSize, self.options.file_bytes, bytes, order);
                rows.push(self.rounds(&subject, row, at_random)?);
            }
        }
        Ok(rows)
    }

    /// Fig 10.
    pub(super) fn file_sizes(&mut self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for bytes in Self::file_lengths(self.options.file_bytes) {
            let subject = self.subject(bytes)?;
            let row = self.row(Figure::FileSize, bytes, REQUEST_BYTES, "sequential");
            rows.push(self.rounds(&subject, row, false)?);
        }
        Ok(rows)
    }

    /// Lets every side read the same, round by round.
    fn rounds(&self, subject: &Subject, mut row: Row, at_random: bool) -> Result<Row> {
        let mut out = vec![0; row.request_bytes as usize];
        for round in 0..=self.options.rounds as u64 {
            self.interrupt.check()?;
            self.progress.inc(1);
            let total = self.options.round_bytes.max(row.request_bytes);
            let requests =
                Requests::new(row.request_bytes, row.file_bytes, total, at_random, round);
            for (rule, file) in &subject.by_rule {
                self.pool.fs().set_read_rule(*rule);
                let time = time(&requests, |at| Ok(file.read_at(at, &mut out)?))?;
                row.note(round, Side::Rule(*rule), time, requests.offsets.len());
            }
            let peer = |at| {
                let read = subject.peer.read_at(&mut out, at);
                read.map_err(doing("reading the peer's file"))
            };
            let time_of_peer = time(&requests, peer)?;
            row.note(round, Side::Peer, time_of_peer, requests.offsets.len());
            let copy = |at: u64| {
                out.copy_from_slice(&subject.memory[at as usize..][..requests.bytes as usize]);
                Ok(black_box(&mut out).len())
            };
            row.note(
                round,
                Side::Memcpy,
                time(&requests, copy)?,
                requests.offsets.len(),
            );
        }
        Ok(row.finished())
    }

    /// Views of 32 KiB beside copies of them.
    pub(super) fn views(&mut self) -> Result<Vec<Row>> {
        let subject = self.subject(self.options.file_bytes)?;
        let bytes = self.options.file_bytes;
        let mut row = self.row(Figure::View, bytes, VIEW_BYTES, "random");
        let mut out = vec![0; VIEW_BYTES as usize];
        let Some((_, file)) = subject.by_rule.first() else {
            return Ok(Vec::new());
        };
        self.pool.fs().set_read_rule(Rule::Search);
        for round in 0..=self.options.rounds as u64 {
            self.interrupt.check()?;
            self.progress.inc(1);
            let total = self.options.round_bytes;
            let requests = Requests::new(VIEW_BYTES, bytes, total, true, round);
            let count = requests.offsets.len();
            let view = |at| Ok(black_box(file.view(at..at + VIEW_BYTES)?).len());
            row.note(round, Side::View, time(&requests, view)?, count);
            let same = Requests {
                offsets: vec![0; count],
                ..requests
            };
            row.note(round, Side::ViewAgain, time(&same, view)?, count);
            let copy = |at| Ok(file.read_at(at, &mut out)?);
            row.note(
                round,
                Side::Rule(Rule::Search),
                time(&requests_of(&same, bytes, round), copy)?,
                count,
            );
        }
        Ok(vec![row.finished()])
    }
}

/// As many requests as `like` has, at random.
fn requests_of(like: &Requests, file: u64, salt: u64) -> Requests {
    let total = like.bytes * like.offsets.len() as u64;
    Requests::new(like.bytes, file, total, true, salt)
}

/// How long all requests take; each must give all its bytes. They are made once before, so that every
/// side finds the caches as it leaves them, not as the side before did.
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
