//! Fig 8: requests of one block and of many. Measures the cost of each block, and its share of a
//! read.

use vellum::reading::Rule;

use super::case::{Access, Caches, Case, Order};
use super::grid::{Grid, at};
use super::sample::{Probe, Sample, Sweep};
use super::setting::{BLOCK_BYTES, HASHFS, Setting, Subject};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Figure, Scale};
use crate::report::Outcome;
use crate::target::Target;

/// Blocks of a request. The paper has 1, 16 and 256.
const REQUESTS: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// The number of blocks in the requests of [`TOGETHER`].
const SIXTEEN: u64 = 16;
/// Ways to ask for sixteen blocks, with a pair of labels each: cold, hot.
const TOGETHER: [&str; 3] = ["one request", "16 requests of the mapping", "16 reads"];
/// The target: how many times cheaper a block in a request of 16 is than one requested by itself.
const TOGETHER_RATIO: f64 = 3.0;
/// The fraction of `--file-bytes` that is written and read, and its maximum.
const BYTES_PART: u64 = 16;
const BYTES_MAX: u64 = 32 << 20;

/// The paper's claim.
const CLAIM: &str = "Fig 8: mapping takes a smaller part of larger requests (3 % of reading 1 MB \
                     with a radix tree). HashFS is cheaper than cuckoo hashing for all sizes, and \
                     has the lowest insertion time.";

/// A figure for each state of the caches: the cost of sixteen blocks.
struct Sixteen {
    caches: Caches,
    grid: Grid,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let blocks = setting.file_blocks();
    let data_bytes = (setting.options.file_bytes / BYTES_PART).min(BYTES_MAX);
    let data_blocks = data_bytes / BLOCK_BYTES;
    let room = Case::blocks_with_room(blocks) * 3 / 2;
    let subjects = setting.subjects(room, setting.options.layout_score)?;
    let cases = Case::all(&subjects, blocks)?;
    let whole = setting.whole_subjects(data_bytes * 2, setting.options.layout_score)?;
    let written: Vec<Case<'_>> = whole
        .iter()
        .map(|subject| {
            subject.read_by(Rule::Search);
            let file = subject.written("bytes", data_bytes)?;
            Ok(Case::over(subject, file, data_blocks))
        })
        .collect::<Result<_>>()?;
    let sizes: Vec<u64> = REQUESTS
        .into_iter()
        .filter(|&size| size <= data_blocks / 2)
        .collect();
    let grid = |name: &str, title: &str| {
        let x = Axis::of("blocks of a request", "", Scale::Log);
        let labels = sizes.iter().map(u64::to_string).collect();
        Grid::lines(name, title, x, labels)
            .sides(&subjects)
            .claim(CLAIM)
    };
    let per_block = Axis::of("time of a block", "ns", Scale::Log);
    let mut cold =
        grid("io-size-cold", "I/O size and cold lookups at random").of(per_block.clone());
    let mut hot = grid("io-size-hot", "I/O size and hot lookups at random").of(per_block.clone());
    let mut inserts = grid("io-size-insert", "I/O size and hot appends").of(per_block);
    let mut share = grid(
        "io-size-share",
        "I/O size and the share of mapping in reading",
    )
    .of(Axis::of("part of a hot random read", "%", Scale::Linear));
    let mut sweep = Sweep::default();
    for round in setting.rounds() {
        for (label, &size) in sizes.iter().enumerate() {
            let access = |caches, order| {
                let access = Access::new(setting, caches, order, round).of_blocks(size);
                access.with_ops_at_most(setting.options.hot_ops / size as usize)
            };
            let lookup = |caches| access(caches, Order::Random);
            for (side, case) in cases.iter().enumerate() {
                setting.check()?;
                let in_cold = case.lookup(&lookup(Caches::Cold), &mut sweep)?;
                cold.add(round, side, label, in_cold.per(size));
                let in_hot = case.lookup(&lookup(Caches::Hot), &mut sweep)?;
                hot.add(round, side, label, in_hot.per(size));
                let append = access(Caches::Hot, Order::Sequential);
                let append = case.insert(&append, &mut sweep)?;
                inserts.add(round, side, label, append.per(size));
                let part = share_of_mapping(&written[side], &lookup(Caches::Hot))?;
                share.add(round, side, label, part);
            }
        }
    }
    let mut figures: Vec<Figure> = [share, cold, hot, inserts].map(Grid::figure).into();
    let sixteen = sixteen(setting, &subjects, &cases, &mut sweep)?;
    let targets = sixteen.iter().filter_map(together).collect();
    figures.extend(sixteen);
    Ok(Outcome::new(figures, targets))
}

/// The share of finding bytes in reading them, in percent.
fn share_of_mapping(case: &Case<'_>, access: &Access) -> Result<Sample> {
    let bytes = (access.blocks * BLOCK_BYTES) as usize;
    let mut out = vec![0; bytes];
    let reading = case.read_each(access, |file, at| {
        let read = file.read_at(&mut out, at * BLOCK_BYTES)?;
        expect("bytes read", read, bytes)
    })?;
    let finding = case.lookup(access, &mut Sweep::default())?;
    Ok(Sample {
        value: finding.value / reading.value * 100.0,
        ..finding
    })
}

/// The cost of sixteen blocks, requested together and one by one.
fn sixteen(
    setting: &Setting<'_>,
    subjects: &[Subject],
    cases: &[Case<'_>],
    sweep: &mut Sweep,
) -> Result<Vec<Figure>> {
    let grid = |caches, name: &str, title: &str| Sixteen {
        caches,
        grid: Grid::bars(name, title, "16 blocks one after the other", &TOGETHER)
            .sides(subjects)
            .claim(CLAIM)
            .of(Axis::of("time of a block", "ns", Scale::Linear))
            .note(
                "Reads cache the translations of the run that they used last; the mapping itself \
                 caches only the leaf of a tree.",
            ),
    };
    let mut all = [
        grid(Caches::Cold, "io-size-16-cold", "Sixteen blocks, cold"),
        grid(Caches::Hot, "io-size-16-hot", "Sixteen blocks, hot"),
    ];
    for round in setting.rounds() {
        for Sixteen { caches, grid } in &mut all {
            let access = Access::new(setting, *caches, Order::Random, round).of_blocks(SIXTEEN);
            for (side, case) in cases.iter().enumerate() {
                setting.check()?;
                let ways: [Ask; TOGETHER.len()] = [
                    |probe, at| Ok(probe.search(at, SIXTEEN as usize)?),
                    |probe, at| one_by_one(at, |at| Ok(probe.search(at, 1)?)),
                    |probe, at| one_by_one(at, |at| Ok(probe.lookup(at, 1)?)),
                ];
                for (label, ask) in ways.into_iter().enumerate() {
                    let sample = case.ask_each(&access, sweep, |probe, at| {
                        expect("blocks looked up", ask(probe, at)?, SIXTEEN as usize)
                    })?;
                    grid.add(round, side, label, sample.per(SIXTEEN));
                }
            }
        }
    }
    Ok(all.map(|sixteen| sixteen.grid.figure()).into())
}

/// A way to ask for sixteen blocks; returns their number.
type Ask = fn(&mut Probe<'_>, u64) -> Result<usize>;

fn one_by_one(first: u64, mut ask: impl FnMut(u64) -> Result<usize>) -> Result<usize> {
    (first..first + SIXTEEN).try_fold(0, |sum, at| Ok(sum + ask(at)?))
}

fn together(figure: &Figure) -> Option<Target> {
    let [one, many, _] = TOGETHER;
    let ratio = at(figure, HASHFS, many)?.value / at(figure, HASHFS, one)?.value;
    let what = format!("HashFS, {} over {}: {}", many, one, figure.title);
    Some(Target::at_least(what, ratio, TOGETHER_RATIO))
}
