//! Files with more and more names.

use std::hint::black_box;

use super::{DEFAULT, NO_CLAIM, OPS, Setting, growth, pool_of, sizes, work};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Scale};
use crate::left::DIR_FILES;
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::order::{Numbers, shuffled};
use crate::report::Outcome;
use crate::side::Side;

/// Bytes of metadata for each name, more than any namespace takes, and in addition.
const METADATA_OF_NAME: u64 = 512;
const METADATA_LEAST: u64 = 16 << 20;
const DATA_BYTES: u64 = 16 << 20;
/// The figures.
const WORK: [(&str, &str); 3] = [
    ("link", "Linking a file"),
    ("stat", "Looking up a file by one of its names"),
    ("unlink", "Removing a name of a file"),
];

/// A file with names in directories of its own.
struct Linked {
    names: usize,
}

impl Linked {
    fn path(&self, name: &str, number: usize) -> String {
        let dir = number / DIR_FILES;
        format!("of-{}/{dir}/{name}-{number}", self.names)
    }

    fn first(&self) -> String {
        self.path("name", 0)
    }

    /// Creates the file with its names; returns the bytes of metadata that each took.
    fn fill(&self, library: &Library) -> Result<f64> {
        let volume = library.volume();
        let used = || vellum::experiments::metadata_bytes(library.fs());
        let above = format!("of-{}", self.names);
        library.make_dir(&above)?;
        // Those that are added in a round need directories, too.
        for dir in 0..=(self.names + OPS) / DIR_FILES {
            library.make_dir(&format!("{above}/{dir}"))?;
        }
        library.settle()?;
        let before = used();
        volume.create(self.first())?;
        let mut others = (1..self.names).map(|number| self.path("name", number));
        others.try_for_each(|name| volume.hard_link(self.first(), name))?;
        library.settle()?;
        Ok(used().saturating_sub(before) as f64 / self.names as f64)
    }

    /// Adds names to it, looks it up, and removes the names again.
    fn round(&self, library: &Library, round: usize) -> Result<[Sample; WORK.len()]> {
        let (volume, first) = (library.volume(), self.first());
        let mut numbers = Numbers::new(round as u64);
        let new: Vec<String> = (self.names..self.names + OPS)
            .map(|number| self.path("new", number))
            .collect();
        let old = (0..OPS).map(|_| numbers.below(self.names as u64) as usize);
        let old: Vec<String> = old.map(|number| self.path("name", number)).collect();
        let link = work(library, OPS, || {
            Ok(new
                .iter()
                .try_for_each(|name| volume.hard_link(&first, name))?)
        })?;
        let names = volume.metadata(&first)?.nlink();
        expect("names of a file", names, (self.names + OPS) as u64)?;
        let stat = work(library, OPS, || {
            let mut each = old.iter();
            Ok(each.try_for_each(|name| {
                volume.metadata(name).map(|found| {
                    black_box(found);
                })
            })?)
        })?;
        let order = shuffled(OPS, round as u64);
        let unlink = work(library, OPS, || {
            Ok(order
                .iter()
                .try_for_each(|&at| volume.remove_file(&new[at]))?)
        })?;
        Ok([link, stat, unlink])
    }
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let sizes = sizes(setting.options.links);
    let labels: Vec<String> = sizes.iter().map(usize::to_string).collect();
    let grid = |part: &str, title: &str| {
        let x = Axis::of("names of the file", "", Scale::Log);
        Grid::lines(&format!("links-{part}"), title, x, labels.clone())
            .named(setting.sides(), DEFAULT, DEFAULT)
            .claim(NO_CLAIM)
            .note(format!(
                "A file with so many names, {DIR_FILES} in a directory; {OPS} more are added and \
                 removed."
            ))
    };
    let mut grids = WORK.map(|(part, title)| grid(part, title));
    let mut space = grid("metadata", "Metadata of a name").of(Axis::of(
        "metadata of a name",
        "bytes",
        Scale::Linear,
    ));
    let names: usize = sizes.iter().map(|names| names + OPS).sum();
    let files: Vec<Linked> = sizes.into_iter().map(|names| Linked { names }).collect();
    for (side, namespace) in setting.options.namespaces().into_iter().enumerate() {
        let metadata = names as u64 * METADATA_OF_NAME + METADATA_LEAST;
        let pool = setting.pool(&pool_of(namespace, metadata, DATA_BYTES))?;
        for (label, file) in files.iter().enumerate() {
            setting.check()?;
            let value = file.fill(&pool.library)?;
            space.add(1, side, label, Sample::of(value));
        }
        for round in setting.rounds() {
            for (label, file) in files.iter().enumerate() {
                setting.check()?;
                let samples = file.round(&pool.library, round)?;
                for (grid, sample) in grids.iter_mut().zip(samples) {
                    grid.add(round, side, label, sample);
                }
            }
        }
    }
    let sides = setting.sides();
    let each = grids
        .iter()
        .zip(WORK)
        .flat_map(|(grid, (part, _))| growth(grid, &sides, &format!("links, {part}"), &labels[0]));
    let targets = each.collect();
    let figures = grids.into_iter().chain([space]).map(Grid::figure);
    Ok(Outcome::new(figures.collect(), targets))
}
