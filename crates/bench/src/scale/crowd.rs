//! The same work in pools or directories of different sizes: creating, looking up, listing and
//! removing names in directories drawn at random.

use std::ffi::CString;
use std::hint::black_box;

use indicatif::ProgressBar;

use super::{DEFAULT, NO_CLAIM, OPS, Setting, growth, work};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Scale};
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::order::{Numbers, shuffled};
use crate::report::Outcome;
use crate::side::Side;
use crate::workloads::{FileTree, Purpose};

/// What a round does, and how a target calls it.
pub(super) const WORK: [(&str, &str); 5] = [
    ("create", "Creating files in directories drawn at random"),
    ("stat", "Looking up whole paths"),
    ("remove", "Removing files from directories drawn at random"),
    ("list", "Listing a directory drawn at random, for each name"),
    ("create-new", "Creating files in a new directory"),
];
/// What is known once a crowd is there: a title and an axis for each.
const SPACE: [(&str, &str); 2] = [
    ("dram", "DRAM of a file"),
    ("metadata", "Metadata of a file"),
];

/// Directories of equally many files below a directory of a pool.
pub(super) struct Crowd<'l> {
    pub(super) library: &'l Library,
    /// The directory above; nothing else is in it.
    pub(super) above: String,
    pub(super) dirs: usize,
    /// Files of each directory.
    pub(super) files: usize,
}

/// DRAM and metadata that filling a crowd took, for each file.
pub(super) type Space = [f64; SPACE.len()];

impl Crowd<'_> {
    fn size(&self) -> usize {
        self.dirs * self.files
    }

    fn dir(&self, number: usize) -> String {
        format!("{}/{number}", self.above)
    }

    fn path(&self, dir: usize, name: &str, number: usize) -> CString {
        CString::new(format!("{}/{name}-{number}", self.dir(dir))).unwrap_or_default()
    }

    /// Creates all files.
    pub(super) fn fill(&self, setting: &Setting<'_>, progress: &ProgressBar) -> Result<Space> {
        let look = || -> Result<[u64; 2]> {
            let metadata = vellum::experiments::metadata_bytes(self.library.fs());
            Ok([Library::resident_bytes()?, metadata])
        };
        let before = look()?;
        let tree = self.library.tree();
        self.library.make_dir(&self.above)?;
        for dir in 0..self.dirs {
            self.library.make_dir(&self.dir(dir))?;
            for file in 0..self.files {
                if file % OPS == 0 {
                    setting.check()?;
                    progress.inc(OPS.min(self.files - file) as u64);
                }
                tree.open(&self.path(dir, "file", file), Purpose::Create)?;
            }
        }
        self.library.settle()?;
        let after = look()?;
        Ok([0, 1].map(|at| after[at].saturating_sub(before[at]) as f64 / self.size() as f64))
    }

    /// Measures each of [`WORK`], and leaves everything as it was.
    pub(super) fn round(&self, round: usize) -> Result<[Sample; WORK.len()]> {
        let (library, tree) = (self.library, self.library.tree());
        let ops = OPS.min(self.size());
        let mut numbers = Numbers::new(round as u64);
        let mut draw = |below: usize| numbers.below(below as u64) as usize;
        let new: Vec<CString> = (0..ops)
            .map(|at| self.path(draw(self.dirs), "new", at))
            .collect();
        let old: Vec<CString> = (0..ops)
            .map(|_| self.path(draw(self.dirs), "file", draw(self.files)))
            .collect();
        let listed = draw(self.dirs);
        let create = work(library, ops, || {
            let mut each = new.iter();
            each.try_for_each(|path| tree.open(path, Purpose::Create).map(drop))
        })?;
        let stat = work(library, ops, || {
            let mut each = old.iter();
            each.try_for_each(|path| {
                tree.stat(path).map(|size| {
                    black_box(size);
                })
            })
        })?;
        let order = shuffled(ops, round as u64);
        let remove = work(library, ops, || {
            order.iter().try_for_each(|&at| tree.remove(&new[at]))
        })?;
        let list = work(library, self.files, || {
            let dir = library.dir(&self.dir(listed))?;
            expect("names listed", library.list(&dir)?, self.files as u64)
        })?;
        Ok([create, stat, remove, list, self.create_new(round, ops)?])
    }

    /// Creates files in a directory that is new, and removes all of it again.
    fn create_new(&self, round: usize, ops: usize) -> Result<Sample> {
        let (library, tree) = (self.library, self.library.tree());
        let text = |path: String| CString::new(path).unwrap_or_default();
        let new = format!("{}/new-{round}", self.above);
        let paths: Vec<CString> = (0..ops)
            .map(|at| text(format!("{new}/file-{at}")))
            .collect();
        let dir = text(new);
        tree.make_dir(&dir)?;
        let sample = work(library, ops, || {
            let mut each = paths.iter();
            each.try_for_each(|path| tree.open(path, Purpose::Create).map(drop))
        })?;
        paths.iter().try_for_each(|path| tree.remove(path))?;
        tree.remove_dir(&dir)?;
        self.library.settle()?;
        Ok(sample)
    }
}

/// Figures of crowds: one for each work, against their sizes.
pub(super) struct Crowds {
    name: &'static str,
    sides: Vec<String>,
    /// The first label.
    first: String,
    work: Vec<Grid>,
    space: Vec<Grid>,
}

impl Crowds {
    pub(super) fn new(
        setting: &Setting<'_>,
        (name, x): (&'static str, &str),
        sizes: &[usize],
        note: &str,
    ) -> Self {
        let labels: Vec<String> = sizes.iter().map(usize::to_string).collect();
        let grid = |part: &str, title: &str| {
            let x = Axis::of(x, "", Scale::Log);
            let name = format!("{name}-{part}");
            Grid::lines(&name, title, x, labels.clone())
                .named(setting.sides(), DEFAULT, DEFAULT)
                .claim(NO_CLAIM)
                .note(note)
        };
        let space = SPACE
            .map(|(part, title)| grid(part, title).of(Axis::of(title, "bytes", Scale::Linear)));
        Self {
            name,
            sides: setting.sides(),
            first: labels.first().cloned().unwrap_or_default(),
            work: WORK.map(|(part, title)| grid(part, title)).into(),
            space: space.into(),
        }
    }

    /// Measures crowds of each size of a side, round by round.
    pub(super) fn measure(
        &mut self,
        setting: &Setting<'_>,
        side: usize,
        crowds: &[(Crowd<'_>, Space)],
    ) -> Result<()> {
        for (label, (_, space)) in crowds.iter().enumerate() {
            for (grid, &value) in self.space.iter_mut().zip(space) {
                grid.add(1, side, label, Sample::of(value));
            }
        }
        for round in setting.rounds() {
            for (label, (crowd, _)) in crowds.iter().enumerate() {
                setting.check()?;
                for (grid, sample) in self.work.iter_mut().zip(crowd.round(round)?) {
                    grid.add(round, side, label, sample);
                }
            }
        }
        Ok(())
    }

    /// The figures, and a target for each work of each side.
    pub(super) fn outcome(self) -> Outcome {
        let each = self.work.iter().zip(WORK).flat_map(|(grid, (part, _))| {
            let what = format!("{}, {part}", self.name);
            growth(grid, &self.sides, &what, &self.first)
        });
        let targets = each.collect();
        let grids = self.work.into_iter().chain(self.space);
        Outcome::new(grids.map(Grid::figure).collect(), targets)
    }
}
