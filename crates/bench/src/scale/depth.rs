//! Paths of up to 4095 bytes: two thousand short names, or sixteen of the longest.

use std::ffi::CString;
use std::hint::black_box;

use vellum::Cred;

use super::{DEFAULT, GROWTH, NO_CLAIM, Setting, pool_of, work};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Scale};
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::report::Outcome;
use crate::side::Side;
use crate::target::Target;
use crate::workloads::{FileTree, Purpose};

/// Components of a path whose directories have names of one byte; the last one has [`LEAF_BYTES`].
const DEPTHS: [usize; 5] = [1, 8, 64, 512, 2047];
/// Components of a path whose names have 255 bytes, but for the last one.
const LONG_DEPTH: usize = 16;
const LONG_BYTES: usize = 255;
/// The longest path: with its zero byte it has 4096.
const PATH_BYTES: usize = 4095;
const LEAF_BYTES: usize = 3;
/// The label of the longest path of short names, and of the one that each of its components is
/// compared with.
const DEEPEST: usize = DEPTHS.len() - 1;
const COMPARED: usize = 2;
/// Files at each depth, and how often each is looked up in a round.
const FILES: usize = 32;
const LOOKUPS: usize = 8;
const DIR_MODE: u16 = 0o755;
const METADATA_BYTES: u64 = 32 << 20;
const DATA_BYTES: u64 = 16 << 20;
/// The figures.
const WORK: [(&str, &str); 3] = [
    ("stat", "Looking up whole paths"),
    ("create", "Creating files by whole paths"),
    ("remove", "Removing files by whole paths"),
];

/// The directories above files: this many, with this name.
struct Above {
    depth: usize,
    name: String,
}

impl Above {
    fn all() -> Vec<Self> {
        let short = DEPTHS.map(|depth| Self {
            depth: depth - 1,
            name: "d".into(),
        });
        let long = Self {
            depth: LONG_DEPTH - 1,
            name: "n".repeat(LONG_BYTES),
        };
        short.into_iter().chain([long]).collect()
    }

    fn label(&self) -> String {
        match self.name.len() {
            1 => (self.depth + 1).to_string(),
            bytes => format!("{} of {bytes} bytes", self.depth + 1),
        }
    }

    /// The paths of files, whose names begin with `first`. The last names fill the longest path.
    fn paths(&self, first: char) -> Vec<CString> {
        let dirs = format!("{}/", self.name).repeat(self.depth);
        let bytes = match self.name.len() {
            1 => LEAF_BYTES,
            _ => PATH_BYTES - dirs.len(),
        };
        let files = (0..FILES).map(|file| {
            let name = format!("{first}{file:0>width$}", width = bytes - 1);
            CString::new(dirs.clone() + &name).unwrap_or_default()
        });
        files.collect()
    }

    /// Creates the directories, of which some may be there.
    fn make(&self, library: &Library) -> Result<()> {
        let (fs, cred) = (library.fs(), Cred::current());
        let name = self.name.as_bytes();
        let mut dir = fs.root();
        for _ in 0..self.depth {
            dir = match fs.lookup(&cred, &dir, name) {
                Err(vellum::Error::NotFound) => fs.mkdir(&cred, &dir, name, DIR_MODE)?,
                found => found?,
            };
        }
        Ok(())
    }
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let all = Above::all();
    let labels: Vec<String> = all.iter().map(Above::label).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let grid = |part: &str, title: &str| {
        Grid::bars(
            &format!("depth-{part}"),
            title,
            "components of the path",
            &labels,
        )
        .named(setting.sides(), DEFAULT, DEFAULT)
        .claim(NO_CLAIM)
        .note(format!(
            "{FILES} files at each depth in turn. Names of directories have one byte where \
                 nothing else is said; the paths of {} and of {LONG_DEPTH} components have \
                 {PATH_BYTES} bytes.",
            DEPTHS[DEEPEST]
        ))
    };
    let mut grids = WORK.map(|(part, title)| {
        grid(part, title).of(Axis::of("time of an operation", "ns", Scale::Log))
    });
    let mut space = grid("metadata", "Metadata of a file").of(Axis::of(
        "metadata of a file",
        "bytes",
        Scale::Linear,
    ));
    for (side, namespace) in setting.options.namespaces().into_iter().enumerate() {
        let pool = setting.pool(&pool_of(namespace, METADATA_BYTES, DATA_BYTES))?;
        let library = &pool.library;
        for (label, above) in all.iter().enumerate() {
            setting.check()?;
            above.make(library)?;
            let value = fill(library, &above.paths('f'))?;
            space.add(1, side, label, Sample::of(value));
        }
        for round in setting.rounds() {
            for (label, above) in all.iter().enumerate() {
                setting.check()?;
                let samples = look(library, [&above.paths('f'), &above.paths('n')])?;
                for (grid, sample) in grids.iter_mut().zip(samples) {
                    grid.add(round, side, label, sample);
                }
            }
        }
    }
    let targets = targets(setting, &grids, [labels[DEEPEST], labels[COMPARED]]);
    let figures = grids.into_iter().chain([space]).map(Grid::figure);
    Ok(Outcome::new(figures.collect(), targets))
}

/// What a component of the longest path may cost over one of a shorter path.
fn targets(setting: &Setting<'_>, grids: &[Grid], [deepest, compared]: [&str; 2]) -> Vec<Target> {
    let more = DEPTHS[DEEPEST] as f64 / DEPTHS[COMPARED] as f64;
    let mut targets = Vec::new();
    for (grid, (part, _)) in grids.iter().zip(WORK) {
        for side in setting.sides() {
            if let Some(ratio) = grid.over_labels(&side, deepest, compared) {
                let what = format!(
                    "{side}, depth, {part}, a component of {deepest} over one of {compared}"
                );
                targets.push(Target::at_most(what, ratio / more, GROWTH));
            }
        }
    }
    targets
}

/// Creates the files; returns the bytes of metadata that each took.
fn fill(library: &Library, paths: &[CString]) -> Result<f64> {
    let used = || {
        library.settle()?;
        Ok::<_, crate::Error>(vellum::experiments::metadata_bytes(library.fs()))
    };
    let before = used()?;
    let tree = library.tree();
    for path in paths {
        tree.open(path, Purpose::Create)?;
    }
    Ok(used()?.saturating_sub(before) as f64 / paths.len() as f64)
}

/// Looks old files up, then creates and removes new ones.
fn look(library: &Library, [old, new]: [&[CString]; 2]) -> Result<[Sample; WORK.len()]> {
    let tree = library.tree();
    let stat = work(library, FILES * LOOKUPS, || {
        for path in old.iter().cycle().take(FILES * LOOKUPS) {
            expect("bytes of a file", black_box(tree.stat(path)?), 0)?;
        }
        Ok(())
    })?;
    let create = work(library, FILES, || {
        let mut each = new.iter();
        each.try_for_each(|path| tree.open(path, Purpose::Create).map(drop))
    })?;
    let remove = work(library, FILES, || {
        new.iter().try_for_each(|path| tree.remove(path))
    })?;
    Ok([stat, create, remove])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_paths_are_as_long_as_paths_may_be() {
        let longest = |above: &Above| above.paths('f')[0].as_bytes().len();
        let bytes: Vec<usize> = Above::all().iter().map(longest).collect();
        assert_eq!(bytes, [3, 17, 129, 1025, PATH_BYTES, PATH_BYTES]);
    }
}
