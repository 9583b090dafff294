//! Fig 11: whether a page cache of the structure pays, and the speed of reads when everything is
//! hot.

use vellum::File;
use vellum::reading::Rule;

use super::case::{Access, Caches, Case, Order};
use super::grid::{Grid, at};
use super::sample::{Chill, Evict, Sample, Sweep, repeat};
use super::setting::{BLOCK_BYTES, HASHFS, Setting, Subject, probe};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Figure, Scale, bytes};
use crate::report::Outcome;
use crate::target::Target;

/// The number of operations since everything was cold, as fractions of `--hot-ops`.
const PARTS: [usize; 5] = [10_000, 1000, 100, 10, 1];
/// The files that are read, as fractions of `--file-bytes`: one fits into a core's caches, and one
/// does not.
const READ_PARTS: [u64; 2] = [256, 16];
/// The size of a pool whose files are read, as a multiple of these files.
const WHOLE_ROOM: u64 = 2;
/// The layout score of unfragmented files.
const WHOLE: f64 = 1.0;
/// The number of readings, and the size of requests, after which a file's page table is complete.
const SETTLE_READINGS: u32 = 24;
const SETTLE_BYTES: u64 = 64 << 10;
/// The least number of bytes read in a round.
const READ_BYTES: u64 = 16 << 20;

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let blocks = setting.file_blocks();
    let read_bytes = READ_PARTS.map(|part| setting.options.file_bytes / part);
    let room = Case::blocks_with_room(blocks) * 3 / 2;
    let subjects = setting.subjects(room, setting.options.layout_score)?;
    let mut figures = since_cold(setting, &subjects, blocks)?;
    drop(subjects);
    let mut targets = Vec::new();
    for reading in readings(setting.options.layout_score) {
        let room = read_bytes.iter().sum::<u64>() * WHOLE_ROOM;
        let subjects = setting.whole_subjects(room, reading.layout_score)?;
        let figure = hot_reads(setting, &reading, &subjects, &read_bytes)?;
        targets.extend(read_bytes.iter().filter_map(|&size| {
            let ratio = at(&figure, HASHFS, &bytes(size))?.peer_over?;
            let what = format!(
                "extent tree over HashFS, hot sequential 4 KiB reads of {}, {}",
                bytes(size),
                reading.said()
            );
            Some(Target::at_least(what, ratio, 1.0))
        }));
        figures.push(figure);
    }
    Ok(Outcome::new(figures, targets))
}

/// How files are read, and how they lie.
struct Reading {
    name: &'static str,
    rule: Rule,
    layout_score: f64,
}

impl Reading {
    fn said(&self) -> String {
        let rule = match self.rule {
            Rule::Search => "by search",
            _ => "by the default rule",
        };
        format!("layout score {}, {rule}", self.layout_score)
    }
}

/// The ways of reading: by search alone, where the mappings differ, of fragmented and of
/// unfragmented files; and by the default rule, which uses page tables once these pay.
fn readings(layout_score: f64) -> [Reading; 3] {
    let reading = |name, rule, layout_score| Reading {
        name,
        rule,
        layout_score,
    };
    [
        reading("page-cache-read", Rule::Search, layout_score),
        reading("page-cache-read-whole", Rule::Search, WHOLE),
        reading("page-cache-read-default", Rule::default(), WHOLE),
    ]
}

/// The average cost of an operation, after different numbers of operations since everything was
/// cold.
fn since_cold(setting: &Setting<'_>, subjects: &[Subject], blocks: u64) -> Result<Vec<Figure>> {
    let cases = Case::all(subjects, blocks)?;
    let mut counts: Vec<usize> = PARTS
        .iter()
        .map(|part| (setting.options.hot_ops / part).max(1))
        .collect();
    counts.dedup();
    let grid = |name: &str, title: &str| {
        let x = Axis::of("operations since everything was cold", "", Scale::Log);
        let labels = counts.iter().map(usize::to_string).collect();
        Grid::lines(name, title, x, labels).sides(subjects).claim(
            "Fig 11: even after 1 000 000 operations on a file of 1 GB, faster lookups do not pay \
             for copying nodes into a page cache, and inserts are slower too.",
        )
    };
    let mut lookups = grid("page-cache-lookup", "Lookups at random from a cold start");
    let mut inserts = grid("page-cache-insert", "Appends from a cold start");
    for round in setting.rounds() {
        for (label, &ops) in counts.iter().enumerate() {
            let access = |order| Access::new(setting, Caches::Hot, order, round).with_ops(ops);
            for (side, case) in cases.iter().enumerate() {
                setting.check()?;
                let mut sweep = Sweep::default();
                case.chill()?;
                let sample = case.lookup(&access(Order::Random), &mut sweep)?;
                lookups.add(round, side, label, sample);
                case.chill()?;
                let sample = case.insert(&access(Order::Sequential), &mut sweep)?;
                inserts.add(round, side, label, sample);
            }
        }
    }
    Ok(vec![lookups.figure(), inserts.figure()])
}

/// Reads files repeatedly by blocks, sequentially.
fn hot_reads(
    setting: &Setting<'_>,
    reading: &Reading,
    subjects: &[Subject],
    sizes: &[u64],
) -> Result<Figure> {
    let labels: Vec<String> = sizes.iter().map(|&size| bytes(size)).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let title = format!("Hot sequential reads of 4 KiB, {}", reading.said());
    let mut grid = Grid::bars(reading.name, &title, "file", &labels)
    .sides(subjects)
    .claim(
        "The published artifact loses here: 805 cycles through HashFS, 607 through extent trees.",
    );
    let files: Vec<Vec<File>> = subjects
        .iter()
        .map(|subject| {
            let write = |&size: &u64| {
                let file = subject.written(&size.to_string(), size)?;
                if reading.rule != Rule::Search {
                    // The costs are measured with this file at once; then it is read until its page
                    // table is complete.
                    let _ = file.handle().read_costs();
                    (0..SETTLE_READINGS).try_for_each(|_| settle(&file, size))?;
                }
                Ok(file)
            };
            subject.read_by(reading.rule);
            sizes.iter().map(write).collect()
        })
        .collect::<Result<_>>()?;
    for round in setting.rounds() {
        for (label, &size) in sizes.iter().enumerate() {
            for (side, files) in files.iter().enumerate() {
                setting.check()?;
                grid.add(round, side, label, read_through(&files[label], size)?);
            }
        }
    }
    Ok(grid.figure())
}

/// Reads a file by requests for which a page table pays.
fn settle(file: &File, size: u64) -> Result<()> {
    let mut out = vec![0; SETTLE_BYTES as usize];
    (0..size).step_by(SETTLE_BYTES as usize).try_for_each(|at| {
        let most = SETTLE_BYTES.min(size - at) as usize;
        expect("bytes read", file.read_at(&mut out, at)?, most)
    })
}

/// Reads a file by blocks, once to warm up, and then for the measured time.
fn read_through(file: &File, size: u64) -> Result<Sample> {
    let offsets: Vec<u64> = (0..size).step_by(BLOCK_BYTES as usize).collect();
    let times = (READ_BYTES / size).max(1) as usize;
    let again: Vec<u64> = offsets.repeat(times);
    let mut out = [0; BLOCK_BYTES as usize];
    let mut read = |at: u64| {
        expect(
            "bytes read",
            file.read_at(&mut out, at)?,
            BLOCK_BYTES as usize,
        )
    };
    repeat(&offsets, &mut read)?;
    repeat(&again, &mut read)
}

impl Case<'_> {
    /// Makes everything cold.
    fn chill(&self) -> Result<()> {
        for file in self.files() {
            Evict.chill(&mut probe(file)?);
        }
        Ok(())
    }
}
