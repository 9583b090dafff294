//! Looking up whole paths of one component to 64.

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
/// The depth that may cost no more than [`RATIO`] times what the first one does.
const DEEP: &str = "8";
const RATIO: f64 = 1.3;
/// Lookups of a round.
const LOOKUPS: usize = 10_000;

/// The paths at each depth.
struct Paths(Vec<Vec<CString>>);

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let most = DEPTHS[DEPTHS.len() - 1];
    let subjects = setting.subjects(
        Room::for_names(most + FILES * DEPTHS.len()),
        &PoolKind::each(),
    )?;
    let x = Axis::of("components of the path", "", Scale::Log);
    let labels = DEPTHS.iter().map(usize::to_string).collect();
    let mut grid = Grid::lines("depth", "Looking up whole paths", x, labels)
        .named(names_of(&subjects), DEFAULT, BASELINE)
        .claim("Section 3: a name in an area is found by its full path with one probe, however deep it is.")
        .note(format!(
            "stat of a whole path from the root on, {FILES} files at each depth in turn; names of 8 bytes."
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
    Ok(Outcome::new(
        vec![grid.figure()],
        target.into_iter().collect(),
    ))
}

/// So many directories, each with a slash behind it.
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
        let each = self.0.iter().map(|paths| {
            timed(side, LOOKUPS, || {
                for path in paths.iter().cycle().take(LOOKUPS) {
                    black_box(side.stat(&root, path)?);
                }
                Ok(())
            })
        });
        each.collect()
    }
}
