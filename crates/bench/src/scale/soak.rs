//! Creations, writes, renames and removals for long, over a bounded set of files, in pools that are
//! 50, 80 and 95 % full.
//!
//! Everything that should stay as it is, is looked at in intervals: what lookups and reads cost,
//! and what the pool takes of DRAM, metadata and blocks. Each operation is timed by itself.

use std::ffi::CString;
use std::hint::black_box;
use std::time::Instant;

use vellum::{CreateOptions, NamespaceKind};

use super::{NO_CLAIM, Setting, pool_of, work};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Scale};
use crate::latencies::Latencies;
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::order::Numbers;
use crate::report::Outcome;
use crate::side::{BLOCK, Side};
use crate::stopwatch::Waits;
use crate::target::Target;
use crate::workloads::{FileTree, Opened, Purpose};

/// The blocks in use, in percent.
const FILLS: [u64; 3] = [50, 80, 95];
/// Intervals; everything is looked at after each.
const INTERVALS: usize = 10;
pub(super) const OPERATIONS_MIN: u64 = 10 * INTERVALS as u64;
/// Blocks of a file, on average; directories of all files.
const FILE_BLOCKS: u64 = 4;
const DIRS: u64 = 64;
/// One operation in so many creates, one removes, one renames, and the others write. Files are
/// created if there are fewer than this part less than the most, and removed at the most.
const MIX: u64 = 3 + FILE_BLOCKS;
const FEWER: usize = 16;
/// Bytes of metadata for each file, more than any namespace takes, and in addition.
const METADATA_OF_FILE: u64 = 1024;
const METADATA_LEAST: u64 = 16 << 20;
/// Lookups and reads of a round.
const LOOKUPS: usize = 2000;
/// The side that sentences are about.
const DEFAULT: &str = "direct, 95 % full";
/// The figures of what should stay as it is: a title, an axis, and the most that the last interval
/// may have over the first.
const FLAT: [(&str, &str, &str, &str, f64); 5] = [
    ("stat", "Looking up paths", "probes of a lookup", "", 1.1),
    (
        "read",
        "Reading a block, with its lookup",
        "probes of a read",
        "",
        1.1,
    ),
    ("dram", "DRAM of the pool", "DRAM", "MiB", 1.1),
    ("metadata", "Metadata in use", "metadata", "MiB", 1.1),
    (
        "used",
        "Blocks in use for each block of a file",
        "blocks in use",
        "",
        1.0,
    ),
];
const KINDS: [&str; 4] = ["create", "write", "rename", "remove"];
const PERCENTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("most", 1.0),
];
/// The percentile that has a target, and the most that it may be over the first.
const LATE: &str = "p99.9";
const LATE_RATIO: f64 = 3.0;

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let kinds = setting.options.namespaces().into_iter();
    let pools: Vec<(NamespaceKind, u64)> = kinds
        .flat_map(|namespace| FILLS.map(|fill| (namespace, fill)))
        .collect();
    let sides = pools
        .iter()
        .map(|(namespace, fill)| format!("{}, {fill} % full", namespace.name()));
    let mut figures = Figures::new(setting, sides.collect());
    for (side, &(namespace, fill)) in pools.iter().enumerate() {
        figures.measure(setting, side, (namespace, fill))?;
    }
    Ok(figures.outcome())
}

struct Figures {
    sides: Vec<String>,
    flat: Vec<Grid>,
    late: Vec<Grid>,
}

impl Figures {
    fn new(setting: &Setting<'_>, sides: Vec<String>) -> Self {
        let options = setting.options;
        let labels = (1..=INTERVALS as u64)
            .map(|at| (options.operations * at / INTERVALS as u64).to_string());
        let labels: Vec<String> = labels.collect();
        let note = format!(
            "Of {MIX} operations one creates a file, one removes one, one renames one into \
             another directory, and {FILE_BLOCKS} write a block: behind the end, or over another \
             block where the pool is as full as it should be. {FILE_BLOCKS} blocks a file on \
             average, {DIRS} directories, {} MiB of data.",
            options.pool_bytes >> 20
        );
        let named = |grid: Grid| grid.named(sides.clone(), DEFAULT, DEFAULT).claim(NO_CLAIM);
        let flat = FLAT.map(|(part, title, y, unit, _)| {
            let x = Axis::of("operations", "", Scale::Linear);
            let grid = Grid::lines(&format!("soak-{part}"), title, x, labels.clone());
            named(grid.of(Axis::of(y, unit, Scale::Linear))).note(note.clone())
        });
        let late = KINDS.map(|kind| {
            let title = format!("Latencies: {kind}");
            let names = PERCENTILES.map(|(name, _)| name);
            let grid = Grid::bars(&format!("soak-{kind}"), &title, "operations", &names);
            named(grid.of(Axis::of("time of an operation", "ns", Scale::Log))).note(
                "Of all operations, by a histogram whose steps are a 32nd; without waits for a \
                     processor.",
            )
        });
        Self {
            flat: flat.into(),
            late: late.into(),
            sides,
        }
    }

    fn measure(
        &mut self,
        setting: &Setting<'_>,
        side: usize,
        (namespace, fill): (NamespaceKind, u64),
    ) -> Result<()> {
        let options = setting.options;
        let progress = setting.progress(namespace.name(), INTERVALS);
        let before = Library::resident_bytes()?;
        let pool = setting.pool(&pool_options(namespace, options.pool_bytes))?;
        let mut load = Load::new(&pool.library, fill)?;
        load.fill(setting)?;
        for interval in 0..INTERVALS {
            load.run(setting, options.operations / INTERVALS as u64)?;
            // Nothing here is timed, so no round warms up.
            for round in 1..=options.rounds {
                let [stat, read] = load.look(round)?.map(Sample::by_probes);
                let [dram, metadata, used] = load.space(before)?.map(Sample::of);
                for (grid, sample) in self.flat.iter_mut().zip([stat, read, dram, metadata, used]) {
                    grid.add(round, side, interval, sample);
                }
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        for (grid, latencies) in self.late.iter_mut().zip(&load.latencies) {
            for (label, (_, part)) in PERCENTILES.iter().enumerate() {
                let value = latencies.at(*part).value;
                grid.add(1, side, label, Sample::of(value));
            }
        }
        Ok(())
    }

    /// The figures, with the targets of each side.
    fn outcome(self) -> Outcome {
        let mut targets = Vec::new();
        for side in &self.sides {
            for (grid, (part, _, _, _, bound)) in self.flat.iter().zip(FLAT) {
                let what = format!("{side}, soak, {part}, last interval over first");
                let ratio = grid.last_over_first(side);
                targets.extend(ratio.map(|ratio| Target::at_most(what, ratio, bound)));
            }
            let late = self.late.iter().zip(KINDS);
            let late = late.filter_map(|(grid, kind)| Some((grid.over_first(side, LATE)?, kind)));
            let worst = late.max_by(|one, other| one.0.total_cmp(&other.0));
            targets.extend(worst.map(|(ratio, kind)| {
                let what = format!("{side}, soak, {LATE} over p50, worst: {kind}");
                Target::at_most(what, ratio, LATE_RATIO)
            }));
        }
        let grids = self.flat.into_iter().chain(self.late);
        Outcome::new(grids.map(Grid::figure).collect(), targets)
    }
}

/// A pool with so many bytes of data.
fn pool_options(namespace: NamespaceKind, data_bytes: u64) -> CreateOptions {
    let files = data_bytes / BLOCK as u64 / FILE_BLOCKS;
    let metadata = files * METADATA_OF_FILE + METADATA_LEAST;
    pool_of(namespace, metadata, data_bytes)
}

/// A file of the set.
#[derive(Clone, Copy)]
struct Member {
    number: u64,
    dir: u64,
    blocks: u64,
}

impl Member {
    fn path(self) -> CString {
        CString::new(format!("{}/file-{}", self.dir, self.number)).unwrap_or_default()
    }
}

/// The set of files, and what is done with it.
struct Load<'l> {
    library: &'l Library,
    files: Vec<Member>,
    most_files: usize,
    /// Blocks that files have, and that they should have.
    blocks: u64,
    wanted_blocks: u64,
    /// Files that were created so far.
    created: u64,
    numbers: Numbers,
    latencies: [Latencies; KINDS.len()],
    waits: Waits,
}

impl<'l> Load<'l> {
    fn new(library: &'l Library, fill: u64) -> Result<Self> {
        (0..DIRS).try_for_each(|dir| library.make_dir(&dir.to_string()))?;
        let wanted_blocks = library.fs().stat_fs().blocks * fill / 100;
        Ok(Self {
            library,
            files: Vec::new(),
            most_files: (wanted_blocks / FILE_BLOCKS) as usize,
            blocks: 0,
            wanted_blocks,
            created: 0,
            numbers: Numbers::new(fill),
            latencies: Default::default(),
            waits: Waits::new(),
        })
    }

    fn below(&mut self, bound: usize) -> usize {
        self.numbers.below(bound as u64) as usize
    }

    /// Creates the files, with the blocks that they should have.
    fn fill(&mut self, setting: &Setting<'_>) -> Result<()> {
        while self.files.len() < self.most_files {
            self.create()?;
        }
        while self.blocks < self.wanted_blocks {
            if self.blocks.is_multiple_of(1024) {
                setting.check()?;
            }
            self.write()?;
        }
        self.latencies = Default::default();
        Ok(())
    }

    fn run(&mut self, setting: &Setting<'_>, operations: u64) -> Result<()> {
        self.waits = Waits::new();
        for operation in 0..operations {
            if operation % 4096 == 0 {
                setting.check()?;
            }
            let (files, most) = (self.files.len(), self.most_files);
            match self.numbers.below(MIX) {
                0 if files < most => self.create()?,
                1 if files <= most - most / FEWER => self.create()?,
                0 | 1 => self.remove()?,
                2 => self.rename()?,
                _ => self.write()?,
            }
        }
        Ok(())
    }

    /// Times an operation of this kind.
    fn timed<T>(&mut self, kind: usize, run: impl FnOnce(&Library) -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        let done = run(self.library)?;
        let time = self.waits.taken_out(begin.elapsed());
        self.latencies[kind].add(time);
        Ok(done)
    }

    fn create(&mut self) -> Result<()> {
        let file = Member {
            number: self.created,
            dir: self.numbers.below(DIRS),
            blocks: 0,
        };
        let path = file.path();
        self.timed(0, |library| {
            library.tree().open(&path, Purpose::Create).map(drop)
        })?;
        self.files.push(file);
        self.created += 1;
        Ok(())
    }

    /// Writes a block behind the end of a file, or over one of its blocks.
    fn write(&mut self) -> Result<()> {
        let chosen = self.below(self.files.len());
        let file = self.files[chosen];
        let appends = file.blocks == 0 || self.blocks < self.wanted_blocks;
        let block = match appends {
            true => file.blocks,
            false => self.numbers.below(file.blocks),
        };
        let (path, data) = (file.path(), [block as u8; BLOCK]);
        self.timed(1, |library| {
            let file = library.tree().open(&path, Purpose::ReadWrite)?;
            Opened::write_at(&file, block * BLOCK as u64, &data)
        })?;
        self.files[chosen].blocks += u64::from(appends);
        self.blocks += u64::from(appends);
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        let chosen = self.below(self.files.len());
        let old = self.files[chosen];
        let new = Member {
            dir: (old.dir + 1 + self.numbers.below(DIRS - 1)) % DIRS,
            ..old
        };
        let [from, to] = [old, new].map(Member::path);
        self.timed(2, |library| library.tree().rename(&from, &to))?;
        self.files[chosen] = new;
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let chosen = self.below(self.files.len());
        let file = self.files.swap_remove(chosen);
        let path = file.path();
        self.timed(3, |library| library.tree().remove(&path))?;
        self.blocks -= file.blocks;
        Ok(())
    }

    /// Looks files up, and reads a block of each.
    fn look(&self, round: usize) -> Result<[Sample; 2]> {
        let mut numbers = Numbers::new(round as u64);
        let chosen = (0..LOOKUPS).map(|_| {
            let file = self.files[numbers.below(self.files.len() as u64) as usize];
            (file.path(), file.blocks, numbers.below(file.blocks.max(1)))
        });
        let chosen: Vec<(CString, u64, u64)> = chosen.collect();
        let tree = self.library.tree();
        let stat = work(self.library, LOOKUPS, || {
            let mut each = chosen.iter();
            each.try_for_each(|(path, _, _)| {
                tree.stat(path).map(|size| {
                    black_box(size);
                })
            })
        })?;
        let read = work(self.library, LOOKUPS, || {
            let mut out = [0; BLOCK];
            for (path, blocks, block) in &chosen {
                let file = tree.open(path, Purpose::Read)?;
                let found = Opened::read_at(&file, block * BLOCK as u64, &mut out)?;
                expect("bytes read", found, BLOCK * usize::from(*blocks > 0))?;
                if found > 0 {
                    expect("a byte read", out[0], *block as u8)?;
                }
            }
            Ok(())
        })?;
        Ok([stat, read])
    }

    /// MiB of DRAM more than `before`, MiB of metadata in use, and the blocks in use for each block
    /// that a file has.
    fn space(&self, before: u64) -> Result<[f64; 3]> {
        self.library.settle()?;
        let fs = self.library.fs();
        let found = fs.stat_fs();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        Ok([
            mib(Library::resident_bytes()?.saturating_sub(before)),
            mib(vellum::experiments::metadata_bytes(fs)),
            (found.blocks - found.blocks_free) as f64 / self.blocks as f64,
        ])
    }
}
