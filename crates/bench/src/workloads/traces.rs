//! Replays requests of block traces on files: five mixes of random requests, or a recorded trace.
//!
//! Each disk of a trace is a file; offsets beyond its size wrap around to its beginning. One thread
//! makes the requests one after the other, each as soon as the one before has returned.

use std::ffi::CString;
use std::path::PathBuf;

use indicatif::ProgressBar;
use vellum::experiments::page_table;

use super::file_tree::{FileTree, Opened, Purpose};
use super::msr;
use super::personality::Done;
use super::rows::{About, WorkloadRow};
use super::sides::{Peers, RunOptions, Side, Subject, Target, rows};
use super::zipf::Zipf;
use crate::Result;
use crate::error::{Error, expect};
use crate::interrupt::Interrupt;
use crate::order::Numbers;
use crate::stopwatch::Stopwatch;

/// The figure's name.
const NAME: &str = "traces";
/// Bytes per write while a file is filled.
const FILL_BYTES: usize = 1 << 20;
/// The granularity of random offsets, and of wrapping around: a block.
const PLACE_BYTES: u64 = 4096;
/// Popular regions of a file.
const REGIONS: u64 = 1024;
/// The number of requests out of a hundred that continue where the one before ended.
const GOES_ON: u64 = 40;
/// The number of requests between two checks for a signal.
const CHECK_EVERY: usize = 256;
/// The most disks of a trace.
const DISKS_MAX: usize = 64;

/// AFPT's claims.
pub(crate) const ABOUT: About = About {
    name: NAME,
    title: "Requests like those of enterprise traces, by reading rule",
    claim: "AFPT, Table III: NOVA gains 20.16 % (hm), 16.52 % (mds), 20.81 % (prn), 4.01 % (rsrch) \
            and 37.45 % (web) by page tables; PMFS 13.56, 13.80, 32.39, 3.89 and 44.93 %.",
    note: "Reads and writes are mixed as in AFPT's Table II. The paper gives neither sizes nor \
           locations of requests, so these are random (4 to 64 KiB; 40 of 100 requests continue \
           where the one before ended, the others begin in regions of Zipfian popularity). A \
           recorded trace has its own.",
};

/// Options of traces.
#[derive(Clone, Debug, clap::Args)]
pub struct TraceOptions {
    /// Replay a trace in the format of MSR Cambridge instead of random requests:
    /// timestamp,hostname,disk,type,offset,size,response
    #[arg(long, value_name = "FILE.csv")]
    pub trace: Option<PathBuf>,
    /// Requests of a round of `traces`; of a recorded trace, the first ones
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub requests: usize,
}

impl TraceOptions {
    pub(crate) fn check(&self) -> Result<()> {
        if self.requests == 0 {
            return Err(Error::Option("--requests must be at least 1".into()));
        }
        Ok(())
    }
}

impl TraceOptions {
    /// The options and their values, for reports.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let trace = match &self.trace {
            Some(path) => path.display().to_string(),
            None => "drawn".into(),
        };
        vec![
            ("Trace", trace),
            ("Requests of a trace", self.requests.to_string()),
        ]
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The file, by number.
    pub(super) file: usize,
    pub(super) is_write: bool,
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// A mix of random requests.
struct Mix {
    name: &'static str,
    reads: u64,
    writes: u64,
    /// Sizes of reads and of writes in KiB, from which one is drawn.
    read_kib: &'static [u64],
    write_kib: &'static [u64],
}

/// AFPT's Table II, with small writes in rsrch, as its Section IV-D says.
const MIXES: [Mix; 5] = [
    Mix {
        name: "hm",
        reads: 4,
        writes: 1,
        read_kib: &[4, 8, 16],
        write_kib: &[4, 8, 16],
    },
    Mix {
        name: "mds",
        reads: 1,
        writes: 4,
        read_kib: &[16, 32, 64],
        write_kib: &[4, 8, 16],
    },
    Mix {
        name: "prn",
        reads: 5,
        writes: 1,
        read_kib: &[8, 16, 64],
        write_kib: &[4, 8, 32],
    },
    Mix {
        name: "rsrch",
        reads: 1,
        writes: 6,
        read_kib: &[4, 8, 16],
        write_kib: &[4],
    },
    Mix {
        name: "web",
        reads: 8,
        writes: 1,
        read_kib: &[16, 32, 64],
        write_kib: &[4, 8],
    },
];

impl Mix {
    /// Draws requests to a file of `file_bytes`.
    fn draw(&self, count: usize, file_bytes: u64) -> Vec<Request> {
        let salt = self
            .name
            .bytes()
            .fold(0, |salt, byte| salt << 8 | u64::from(byte));
        let mut numbers = Numbers::new(salt);
        let zipf = Zipf::new(REGIONS);
        let region_bytes = (file_bytes / REGIONS).max(PLACE_BYTES);
        let mut next = 0;
        let mut request = || {
            let is_write = numbers.below(self.reads + self.writes) >= self.reads;
            let sizes = if is_write {
                self.write_kib
            } else {
                self.read_kib
            };
            let bytes = numbers
                .pick(sizes)
                .map_or(PLACE_BYTES, |(_, kib)| kib << 10);
            let at = match numbers.below(100) < GOES_ON {
                true => next,
                false => {
                    // Popular regions lie anywhere, not at the beginning.
                    let region = super::zipf::fnv(zipf.draw(&mut numbers)) % REGIONS;
                    let places = region_bytes / PLACE_BYTES;
                    region * region_bytes + numbers.below(places) * PLACE_BYTES
                }
            };
            next = at + bytes;
            Request {
                file: 0,
                is_write,
                at,
                bytes,
            }
        };
        (0..count).map(|_| request()).collect()
    }
}

/// Requests to replay.
struct Trace {
    name: String,
    files: usize,
    requests: Vec<Request>,
}

/// The traces of a run.
pub(crate) struct Plan<'a> {
    run: RunOptions<'a>,
    file_bytes: u64,
    traces: Vec<Trace>,
}

impl<'a> Plan<'a> {
    /// Parses or draws the requests, to files of `file_bytes`.
    ///
    /// # Errors
    /// The trace cannot be read, or has a line that is not a request.
    pub(crate) fn of(run: RunOptions<'a>, options: &TraceOptions, file_bytes: u64) -> Result<Self> {
        let traces = match &options.trace {
            Some(path) => {
                let (requests, files) = msr::read(path, options.requests)?;
                if files > DISKS_MAX {
                    return Err(Error::Option(format!(
                        "a trace of {files} disks: at most {DISKS_MAX}"
                    )));
                }
                let name = path.file_stem().unwrap_or_default();
                let name = name.to_string_lossy().into_owned();
                vec![Trace {
                    name,
                    files,
                    requests,
                }]
            }
            None => MIXES
                .iter()
                .map(|mix| Trace {
                    name: mix.name.into(),
                    files: 1,
                    requests: mix.draw(options.requests, file_bytes),
                })
                .collect(),
        };
        let mut plan = Self {
            run,
            file_bytes,
            traces,
        };
        plan.wrap();
        Ok(plan)
    }

    /// Moves every request into its file, at the same offset within a block as before.
    fn wrap(&mut self) {
        let whole = (self.file_bytes - self.file_bytes % PLACE_BYTES).max(PLACE_BYTES);
        for request in self.traces.iter_mut().flat_map(|trace| &mut trace.requests) {
            request.bytes = request.bytes.min(self.file_bytes);
            let room = self.file_bytes - request.bytes;
            request.at %= whole;
            if request.at > room {
                let beyond = (request.at - room).next_multiple_of(PLACE_BYTES);
                request.at = request.at.saturating_sub(beyond);
            }
        }
    }

    /// The number of steps of the progress bar.
    pub(crate) fn steps(&self, sides: usize) -> usize {
        self.traces.len() * sides * (self.run.rounds + 1)
    }

    /// Replays all traces on every side.
    ///
    /// # Errors
    /// There is not enough space, a signal came, or a request failed or was not complete.
    pub(crate) fn measure(
        &self,
        subjects: &[Subject],
        peers: Peers<'_>,
        interrupt: &Interrupt,
        progress: &ProgressBar,
    ) -> Result<Vec<WorkloadRow>> {
        let mut all = Vec::new();
        for trace in &self.traces {
            progress.set_message(trace.name.clone());
            let bytes = self.file_bytes * trace.files as u64 * 2 + (64 << 20);
            let bytes = bytes.next_multiple_of(2 << 20);
            let mut sides = Side::all(subjects, peers, bytes, self.run.pool_dir)?;
            let mut open = sides
                .iter()
                .map(|side| self.open(side, trace, interrupt))
                .collect::<Result<Vec<_>>>()?;
            for round in 0..=self.run.rounds {
                for (side, files) in sides.iter_mut().zip(&mut open) {
                    side.note(round > 0, 1, |_| files.replay(trace, interrupt))?;
                    progress.inc(1);
                }
            }
            let rows = rows(NAME, &trace.name, 1, &sides).into_iter().zip(&open);
            all.extend(rows.map(|(row, files)| WorkloadRow {
                page_table_gave_up: files.page_table_gave_up(),
                ..row
            }));
        }
        Ok(all)
    }

    fn open(&self, side: &Side, trace: &Trace, interrupt: &Interrupt) -> Result<Files> {
        Ok(match &side.target {
            Target::Pool(pool) => Files::Pool(self.fill(&pool.volume, trace.files, interrupt)?),
            Target::Peer(peer) => Files::Peer(self.fill(&peer.dir, trace.files, interrupt)?),
        })
    }

    /// Creates the files of a trace and fills them.
    fn fill<P: FileTree>(
        &self,
        place: &P,
        files: usize,
        interrupt: &Interrupt,
    ) -> Result<Vec<P::File>> {
        let data: Vec<u8> = (0..FILL_BYTES).map(|i| (i % 251) as u8).collect();
        let make = |number: usize| {
            let name = CString::new(format!("disk{number}")).unwrap_or_default();
            drop(place.open(&name, Purpose::Create)?);
            let file = place.open(&name, Purpose::ReadWrite)?;
            let mut at = 0;
            while at < self.file_bytes {
                interrupt.check()?;
                let len = (self.file_bytes - at).min(FILL_BYTES as u64);
                file.write_at(at, &data[..len as usize])?;
                at += len;
            }
            Ok(file)
        };
        (0..files).map(make).collect()
    }
}

/// The open files of a side.
enum Files {
    Pool(Vec<vellum::File>),
    Peer(Vec<std::fs::File>),
}

impl Files {
    fn page_table_gave_up(&self) -> bool {
        match self {
            Self::Pool(files) => files.iter().any(|file| page_table(file.handle()).gave_up),
            Self::Peer(_) => false,
        }
    }

    fn replay(&mut self, trace: &Trace, interrupt: &Interrupt) -> Result<Done> {
        match self {
            Self::Pool(files) => replay(files, trace, interrupt),
            Self::Peer(files) => replay(files, trace, interrupt),
        }
    }
}

fn replay<F: Opened>(files: &[F], trace: &Trace, interrupt: &Interrupt) -> Result<Done> {
    let longest = trace.requests.iter().map(|request| request.bytes).max();
    let mut buffer = vec![0x5A; longest.unwrap_or(0) as usize];
    let watch = Stopwatch::start();
    for requests in trace.requests.chunks(CHECK_EVERY) {
        interrupt.check()?;
        for request in requests {
            let buffer = &mut buffer[..request.bytes as usize];
            let file = &files[request.file];
            if request.is_write {
                file.write_at(request.at, buffer)?;
            } else {
                expect(
                    "bytes read",
                    file.read_at(request.at, buffer)?,
                    buffer.len(),
                )?;
            }
        }
    }
    Ok(Done {
        ops: trace.requests.len() as u64,
        time: watch.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_are_mixed_as_the_paper_has_them() {
        for mix in &MIXES {
            let requests = mix.draw(20_000, 64 << 20);
            let writes = requests.iter().filter(|request| request.is_write).count();
            let ratio = (requests.len() - writes) as f64 / writes as f64;
            let expected = mix.reads as f64 / mix.writes as f64;
            assert!(
                (ratio / expected - 1.0).abs() < 0.1,
                "{}: {ratio}",
                mix.name
            );
            let on = requests
                .windows(2)
                .filter(|two| two[0].at + two[0].bytes == two[1].at);
            let on = on.count() * 100 / requests.len();
            assert!(
                (GOES_ON as usize - 3..GOES_ON as usize + 3).contains(&on),
                "{on}"
            );
        }
        let parts: Vec<(&str, u64, u64)> = MIXES
            .iter()
            .map(|mix| (mix.name, mix.reads, mix.writes))
            .collect();
        assert_eq!(
            parts,
            [
                ("hm", 4, 1),
                ("mds", 1, 4),
                ("prn", 5, 1),
                ("rsrch", 1, 6),
                ("web", 8, 1)
            ]
        );
    }

    fn wrapped(file_bytes: u64, requests: &[(u64, u64)]) -> Vec<Request> {
        let run = RunOptions {
            rounds: 1,
            threads: 1,
            pool_dir: std::path::Path::new("/"),
        };
        let requests = requests.iter().map(|&(at, bytes)| Request {
            file: 0,
            is_write: false,
            at,
            bytes,
        });
        let mut plan = Plan {
            run,
            file_bytes,
            traces: vec![Trace {
                name: String::new(),
                files: 1,
                requests: requests.collect(),
            }],
        };
        plan.wrap();
        plan.traces.remove(0).requests
    }

    #[test]
    fn every_request_lies_in_its_file() {
        for request in wrapped(10_000, &[(0, 10_000), (1 << 40, 4096), (9999, 1 << 20)]) {
            assert!(request.at + request.bytes <= 10_000, "{request:?}");
        }
    }

    /// A disk's requests begin at sectors, most of them at blocks. That determines how many blocks
    /// each request touches.
    #[test]
    fn what_wraps_around_keeps_its_place_in_a_block() {
        const FILE_BYTES: u64 = 4 << 20;
        let places = [0, 4096, 512, 383_496_192, 99_999_996_928, FILE_BYTES - 512];
        let sizes = [512, 4096, 5120, 32_768, 65_536];
        let requests = places.map(|at| sizes.map(|bytes| (at, bytes)));
        let requests = requests.concat();
        for (request, (at, bytes)) in wrapped(FILE_BYTES, &requests).iter().zip(&requests) {
            assert_eq!(request.bytes, *bytes);
            assert_eq!(request.at % 4096, at % 4096, "{at}, {bytes} bytes");
            assert!(request.at + request.bytes <= FILE_BYTES, "{request:?}");
            let is_inside = at + bytes <= FILE_BYTES;
            assert!(!is_inside || request.at == *at, "{request:?}");
        }
    }
}
