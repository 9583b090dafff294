//! Looks up whole paths of one to 64 components, and a path of eight by its components.

use std::ffi::CString;
use std::hint::black_box;

use super::subjects::{
    ADAM, BASELINE, DEFAULT, PoolKind, Room, Setting, Work, names as names_of, timed,
};
use crate::Result;
use crate::figure::{Axis, Scale};
use crate::mapping::{Grid, Sample};
use crate::report::Outcome;
use crate::side::Side;
use crate::target::Target;

const DEPTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Files at each depth, looked up in turn.
const FILES: usize = 32;
/// The depth at which a lookup may take at most [`RATIO`] times as long as at the first depth, ...
const DEEP: &str = "8";
const DEEP_COMPONENTS: usize = 8;
const RATIO: f64 = 1.3;
/// ... and must be this many times as fast by the whole path as by components.
const GAIN: f64 = 2.0;
const WAYS: [&str; 2] = ["whole path", "by components"];
/// A directory below which paths are not whole ones.
const BELOW: &str = "below";
/// Lookups of a round.
const LOOKUPS: usize = 10_000;

/// The paths at each depth.
struct Paths(Vec<Vec<CString>>);

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let most = DEPTHS[DEPTHS.len() - 1];
    let subjects = setting.subjects(
        Room::for_names(2 * most + FILES * (DEPTHS.len() + 2)),
        &PoolKind::each(),
    )?;
    let x = Axis::of("components of the path", "", Scale::Log);
    let labels = DEPTHS.iter().map(usize::to_string).collect();
    let mut grid = Grid::lines("depth", "Looking up whole paths", x, labels)
        .named(names_of(&subjects), DEFAULT, BASELINE)
        .claim(
            "Section 3: a name in an area is found by its full path with one probe, whatever its \
             depth.",
        )
        .note(format!(
            "stat of whole paths from the root, {FILES} files at each depth in turn; names of 8 \
             bytes."
        ));
    let paths = DEPTHS.map(|depth| {
        let files = (0..FILES).map(|file| {
            let path = format!("{}file-{file:03}", above(depth - 1));
            CString::new(path).unwrap_or_default()
        });
        files.collect()
    });
    setting.measure(&mut grid, &subjects, &Paths(paths.into()))?;
    let ratio = grid.over_first(ADAM, DEEP);
    let what = format!("{ADAM}, a path of {DEEP} components over one of one");
    let target = ratio.map(|ratio| Target::at_most(what, ratio, RATIO));
    let mut ways = Grid::bars("depth-ways", "Paths of eight components", "way", &WAYS)
        .named(names_of(&subjects), DEFAULT, BASELINE)
        .claim("Section 3: a full path needs no walk from directory to directory.")
        .note(format!(
            "stat, one call each: of a whole path from the root, and of a path from an open \
             directory below the root, where every namespace walks the components; {FILES} files \
             in turn."
        ));
    setting.measure(&mut ways, &subjects, &Ways::new())?;
    let gain = ways.over_first(ADAM, WAYS[1]);
    let what = format!("{ADAM}, a path of {DEEP} components, by components over whole");
    let gain = gain.map(|gain| Target::at_least(what, gain, GAIN));
    Ok(Outcome::new(
        vec![grid.figure(), ways.figure()],
        target.into_iter().chain(gain).collect(),
    ))
}

/// Paths that are looked up from the root, and from below it.
struct Ways(Vec<CString>);

impl Ways {
    fn new() -> Self {
        let files = (0..FILES).map(|file| {
            let path = format!("{}way-{file:04}", above(DEEP_COMPONENTS - 1));
            CString::new(path).unwrap_or_default()
        });
        Self(files.collect())
    }
}

impl Work for Ways {
    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        side.make_dir(BELOW)?;
        for depth in 1..DEEP_COMPONENTS {
            side.make_dir(&format!("{BELOW}/{}", above(depth)))?;
        }
        for start in ["", BELOW] {
            let start = side.dir(start)?;
            self.0
                .iter()
                .try_for_each(|path| side.create(&start, path))?;
        }
        Ok(())
    }

    fn round<S: Side>(&self, side: &S) -> Result<Vec<Sample>> {
        let each = ["", BELOW].into_iter().map(|start| {
            let start = side.dir(start)?;
            look_up(side, &start, &self.0)
        });
        each.collect()
    }
}

/// Looks files up in turn.
fn look_up<S: Side>(side: &S, start: &S::Dir, paths: &[CString]) -> Result<Sample> {
    timed(side, LOOKUPS, || {
        for path in paths.iter().cycle().take(LOOKUPS) {
            black_box(side.stat(start, path)?);
        }
        Ok(())
    })
}

/// This many directories, each followed by a slash.
fn above(depth: usize) -> String {
    (0..depth).map(|level| format!("dir-{level:04}/")).collect()
}

impl Work for Paths {
    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        let deepest = DEPTHS[DEPTHS.len() - 1];
        for depth in 1..deepest {
            side.make_dir(&above(depth))?;
        }
        let root = side.dir("")?;
        let paths = self.0.iter().flatten();
        paths
            .into_iter()
            .try_for_each(|path| side.create(&root, path))
    }

    fn round<S: Side>(&self, side: &S) -> Result<Vec<Sample>> {
        let root = side.dir("")?;
        let each = self.0.iter();
        each.map(|paths| look_up(side, &root, paths)).collect()
    }
}
