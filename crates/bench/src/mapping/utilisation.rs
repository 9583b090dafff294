//! Fig 9, and more: pools that become full, and pools that were full often.
//!
//! A pool is filled to 95 % with blocks at random locations of its files. Then every second block
//! is removed again, and so on. Each operation concerns a single block, so no mapping profits from
//! runs.

use std::time::Instant;

use vellum::File;
use vellum::media::count::of_this_thread;

use super::grid::{Grid, at, told};
use super::sample::{Evict, Sample, Times, clock_ns};
use super::setting::{Design, HASHFS, Setting, Subject, probe};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Figure, Point, Scale, Series, Shape};
use crate::order::Numbers;
use crate::report::Outcome;
use crate::target::Target;

/// The pool's bytes, as a fraction of `--file-bytes`.
const POOL_PART: u64 = 4;
const POOL_MIN_BYTES: u64 = 4 << 20;
/// Files that share a pool.
const FILES: u64 = 8;
/// The utilisations, in percent of the pool's blocks.
const LOADS: [u64; 5] = [50, 80, 85, 90, 95];
/// Rounds of removing and filling again.
const CHURNS: usize = 10;
/// The target: the most probes after the last round over those in the fresh table.
const CHURNED_RATIO: f64 = 1.3;
/// Blocks removed together before as many are inserted and timed.
const BATCH: usize = 64;
/// The number of timed inserts, as a fraction of `--hot-ops`.
const INSERT_PART: usize = 5;
/// The reported percentiles of all inserts.
const PERCENTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("most", 1.0)];

/// Files with blocks at random locations.
struct Churned<'s> {
    subject: &'s Subject,
    files: Vec<File>,
    numbers: Numbers,
    /// The number of blocks that the files can have: more than there are in the pool.
    places: u64,
    /// The number of blocks in the pool.
    blocks: u64,
    present: Vec<u64>,
    is_present: Vec<bool>,
}

impl<'s> Churned<'s> {
    fn make(subject: &'s Subject) -> Result<Self> {
        let blocks = subject.blocks();
        let of_file = 2 * blocks / FILES;
        let files = (0..FILES).map(|number| subject.sparse(&number.to_string(), of_file));
        let places = of_file * FILES;
        Ok(Self {
            subject,
            files: files.collect::<Result<_>>()?,
            numbers: Numbers::new(0),
            places,
            blocks,
            present: Vec::new(),
            is_present: vec![false; places as usize],
        })
    }

    /// The file and the block in it that a location stands for.
    fn within(&self, place: u64) -> (&File, u64) {
        let of_file = self.places / FILES;
        (&self.files[(place / of_file) as usize], place % of_file)
    }

    /// A location without a block.
    fn absent(&mut self) -> u64 {
        loop {
            let place = self.numbers.below(self.places);
            if !self.is_present[place as usize] {
                return place;
            }
        }
    }

    fn note(&mut self, place: u64) {
        self.is_present[place as usize] = true;
        self.present.push(place);
    }

    /// Inserts blocks until this percentage is in use.
    fn fill(&mut self, percent: u64) -> Result<()> {
        while (self.present.len() as u64) < self.blocks * percent / 100 {
            let place = self.absent();
            let (file, at) = self.within(place);
            probe(file)?.insert(at, 1)?;
            self.note(place);
        }
        Ok(())
    }

    /// Removes blocks.
    fn take(&mut self, count: usize) -> Result<()> {
        for _ in 0..count.min(self.present.len()) {
            let chosen = self.numbers.below(self.present.len() as u64) as usize;
            let place = self.present.swap_remove(chosen);
            self.is_present[place as usize] = false;
            let (file, at) = self.within(place);
            expect("blocks taken away", probe(file)?.remove(at, at + 1)?, 1)?;
        }
        self.subject.settle();
        Ok(())
    }

    /// Executes `ops` searches for existing blocks, or for missing ones.
    fn search(&mut self, there: bool, ops: usize) -> Result<Sample> {
        let mut places: Vec<u64> = (0..ops)
            .map(|_| match there {
                true => {
                    let chosen = self.numbers.below(self.present.len() as u64);
                    self.present[chosen as usize]
                }
                false => self.absent(),
            })
            .collect();
        // Sorted by file, because each search runs in one file.
        places.sort_by_key(|place| place / (self.places / FILES));
        let mut times = Times::default();
        for of_file in places.chunk_by(|a, b| self.file_number(*a) == self.file_number(*b)) {
            let (file, _) = self.within(of_file[0]);
            let within: Vec<u64> = of_file.iter().map(|&place| self.within(place).1).collect();
            times.hot(probe(file)?, &within, |probe, at| {
                let found = probe.search(at, 1)?;
                expect("blocks found", found, usize::from(there))
            })?;
        }
        Ok(times.sample())
    }

    fn file_number(&self, place: u64) -> u64 {
        place / (self.places / FILES)
    }

    /// Looks up existing blocks, each with cold caches.
    fn cold(&mut self, ops: usize) -> Result<Sample> {
        let mut times = Times::default();
        for _ in 0..ops {
            let chosen = self.numbers.below(self.present.len() as u64) as usize;
            let (file, at) = self.within(self.present[chosen]);
            times.cold(probe(file)?, &mut Evict, &[at], |probe, at| {
                expect("blocks found", probe.lookup(at, 1)?, 1)
            })?;
        }
        Ok(times.sample())
    }

    /// Inserts a block; returns nanoseconds and probes.
    fn timed_insert(&mut self) -> Result<[f64; 2]> {
        let place = self.absent();
        let (file, at) = self.within(place);
        let mut probe = probe(file)?;
        let before = of_this_thread();
        let start = Instant::now();
        probe.insert(at, 1)?;
        let ns = start.elapsed().as_nanos() as f64;
        let probes = (of_this_thread() - before).probes;
        drop(probe);
        self.note(place);
        Ok([ns, probes as f64])
    }

    /// Inserts into a full pool, from which as many blocks are removed before. Returns all times
    /// and all probes, sorted.
    fn inserts(&mut self, ops: usize) -> Result<[Vec<f64>; 2]> {
        let (mut times, mut probes) = (Vec::new(), Vec::new());
        while times.len() < ops {
            self.take(BATCH)?;
            for _ in 0..BATCH {
                let [ns, probed] = self.timed_insert()?;
                times.push(ns);
                probes.push(probed);
            }
        }
        let clock = clock_ns();
        times.iter_mut().for_each(|ns| *ns = (*ns - clock).max(0.0));
        times.sort_by(f64::total_cmp);
        probes.sort_by(f64::total_cmp);
        Ok([times, probes])
    }
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let bytes = (setting.options.file_bytes / POOL_PART).max(POOL_MIN_BYTES);
    let subjects = setting.subjects_with_much_metadata(bytes)?;
    let mut churned: Vec<Churned<'_>> =
        subjects.iter().map(Churned::make).collect::<Result<_>>()?;
    let mut figures = vec![filling(setting, &subjects, &mut churned)?];
    let churning = churning(setting, &subjects, &mut churned)?;
    let targets = targets(&subjects, &churning);
    figures.extend(churning);
    figures.extend(full_inserts(setting, &mut churned)?);
    Ok(Outcome::new(figures, targets))
}

/// Cold lookups while a pool becomes full.
fn filling(
    setting: &Setting<'_>,
    subjects: &[Subject],
    churned: &mut [Churned<'_>],
) -> Result<Figure> {
    let x = Axis::of("blocks in use", "%", Scale::Linear);
    let labels = LOADS.map(|load| load.to_string());
    let mut grid = Grid::lines(
        "utilisation-cold",
        "Utilisation and cold lookups",
        x,
        labels.into(),
    )
    .sides(subjects)
    .claim(
        "Fig 9: trees do not slow down as the file system becomes full. HashFS is as fast as \
         cuckoo hashing at 80 %, and 12 to 14 % slower for reads at 95 %; both stay faster than \
         trees.",
    );
    for (label, &load) in LOADS.iter().enumerate() {
        for churned in &mut *churned {
            setting.check()?;
            churned.fill(load)?;
        }
        for round in setting.rounds() {
            for (side, churned) in churned.iter_mut().enumerate() {
                setting.check()?;
                let sample = churned.cold(setting.options.cold_ops)?;
                grid.add(round, side, label, sample);
            }
        }
    }
    Ok(grid.figure())
}

/// Searches in pools that were filled and emptied repeatedly: times, and probes for existing and
/// for missing blocks.
fn churning(
    setting: &Setting<'_>,
    subjects: &[Subject],
    churned: &mut [Churned<'_>],
) -> Result<Vec<Figure>> {
    let grid = |name: &str, title: &str| {
        let x = Axis::of(
            "times that half was removed and filled again",
            "",
            Scale::Linear,
        );
        let labels = (0..=CHURNS).map(|churn| churn.to_string()).collect();
        Grid::lines(name, title, x, labels)
            .sides(subjects)
            .claim(
                "The published artifact keeps tombstones forever, so searches for missing blocks \
                 lengthen with churn, and do not end in a table without an empty entry.",
            )
            .note("At 95 %. Every block was claimed by itself, at a random location of its file.")
    };
    let probes = || Axis::of("probes of a search", "", Scale::Linear);
    let mut hits = grid("utilisation-hits", "Churn and probes for what is there").of(probes());
    let mut misses = grid("utilisation-misses", "Churn and probes for what is not").of(probes());
    let mut times = grid("utilisation-time", "Churn and hot searches");
    for churn in 0..=CHURNS {
        for churned in churned.iter_mut().filter(|_| churn > 0) {
            setting.check()?;
            churned.take(churned.present.len() / 2)?;
            churned.fill(LOADS[LOADS.len() - 1])?;
        }
        for round in setting.rounds() {
            for (side, churned) in churned.iter_mut().enumerate() {
                setting.check()?;
                let found = churned.search(true, setting.options.hot_ops)?;
                let missed = churned.search(false, setting.options.hot_ops)?;
                hits.add(round, side, churn, found.by_probes());
                misses.add(round, side, churn, missed.by_probes());
                times.add(round, side, churn, found);
            }
        }
    }
    Ok([hits, misses, times].map(Grid::figure).into())
}

fn targets(subjects: &[Subject], churning: &[Figure]) -> Vec<Target> {
    let mut targets = Vec::new();
    let designs = subjects.iter().map(|subject| &subject.design);
    for name in designs
        .filter(|design| design.is_global())
        .map(Design::name)
    {
        for (figure, what) in churning.iter().zip(["hits", "misses"]) {
            let (fresh, last) = (at(figure, name, "0"), at(figure, name, &CHURNS.to_string()));
            if let (Some(fresh), Some(last)) = (fresh, last) {
                let what =
                    format!("{name}, probes for {what} after {CHURNS} churns over a fresh table's");
                let ratio = last.value / fresh.value;
                targets.push(Target::at_most(what, ratio, CHURNED_RATIO));
            }
        }
    }
    targets
}

/// Inserts into full pools: percentiles of times and of probes.
fn full_inserts(setting: &Setting<'_>, churned: &mut [Churned<'_>]) -> Result<[Figure; 2]> {
    let figure = |name: &str, title: &str, y: Axis| Figure {
        name: name.into(),
        title: title.into(),
        claim: "At 95 % HashFS inserts as fast as cuckoo hashing (4.5).".into(),
        found: Vec::new(),
        x: Axis::labels("part of all inserts"),
        y,
        shape: Shape::Bars,
        series: Vec::new(),
        marks: Vec::new(),
        notes: vec![
            "Single inserts in elapsed time: the maxima include time in which other programs used \
             the processor."
                .into(),
        ],
    };
    let mut times = figure(
        "utilisation-insert",
        "Inserts at 95 %",
        Axis::of("time", "ns", Scale::Log),
    );
    let mut probes = figure(
        "utilisation-insert-probes",
        "Inserts at 95 %, in probes",
        Axis::of("probes", "", Scale::Linear),
    );
    let ops = (setting.options.hot_ops / INSERT_PART).max(1);
    for churned in churned {
        setting.check()?;
        let all = churned.inserts(ops)?;
        for (figure, sorted) in [&mut times, &mut probes].into_iter().zip(all) {
            figure.series.push(Series {
                name: churned.subject.design.name().to_owned(),
                points: percentiles(&sorted),
            });
        }
    }
    Ok([times, probes].map(|mut figure| {
        figure.found = told(&figure, HASHFS, |series, label| {
            Some(at(&figure, series, label)?.value / at(&figure, HASHFS, label)?.value)
        });
        figure
    }))
}

fn percentiles(sorted: &[f64]) -> Vec<Point> {
    let last = sorted.len().saturating_sub(1);
    PERCENTILES
        .iter()
        .map(|&(label, part)| Point::exact(label, sorted[(last as f64 * part) as usize]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let sorted: Vec<f64> = (0..=1000).map(f64::from).collect();
        let values: Vec<f64> = percentiles(&sorted)
            .iter()
            .map(|point| point.value)
            .collect();
        assert_eq!(values, [500.0, 990.0, 999.0, 1000.0]);
    }
}
