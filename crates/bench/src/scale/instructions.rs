//! Instructions of an operation in the smallest and the largest pool of files.

use std::ffi::OsString;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vellum::PoolOptions;

use super::crowd::{Crowd, WORK};
use super::{DEFAULT, GROWTH, NO_CLAIM, Pooled, Setting};
use crate::Result;
use crate::callgrind::{Profiles, newest_call};
use crate::error::Error;
use crate::figure::{Axis, Scale};
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::report::Outcome;
use crate::target::Target;

/// The directory of the files.
pub(super) const ABOVE: &str = "crowd";

/// What a counted process prints.
#[derive(Serialize, Deserialize)]
struct Counted {
    /// The profile of the first work; each has the next one.
    first_call: u64,
    /// Operations of each work.
    ops: [u64; WORK.len()],
}

/// The figure: the work against namespaces and sizes.
pub(super) struct Instructions {
    grid: Grid,
    /// Sides of each namespace: the smallest and the largest pool.
    sides: Vec<[String; 2]>,
}

impl Instructions {
    pub(super) fn new(setting: &Setting<'_>, ends: [usize; 2]) -> Self {
        let each = setting.sides().into_iter();
        let sides: Vec<[String; 2]> = each
            .map(|side| ends.map(|files| format!("{side}, {files} files")))
            .collect();
        let works = WORK.map(|(part, _)| part);
        let title = "Instructions in the smallest and in the largest pool";
        let grid = Grid::bars("files-instructions", title, "operations", &works)
            .of(Axis::of("instructions of an operation", "", Scale::Linear))
            .named(sides.concat(), DEFAULT, DEFAULT)
            .claim(NO_CLAIM)
            .note("Counted by callgrind, without those of background work.");
        Self { grid, sides }
    }

    /// Counts in a pool, whose file is gone afterwards. `end` is 0 for the smallest pool of a
    /// namespace, 1 for the largest.
    pub(super) fn count(
        &mut self,
        (side, end): (usize, usize),
        pool: &mut Pooled,
        [dirs, files]: [usize; 2],
    ) -> Result<()> {
        pool.library.close()?;
        let dir = pool.dir.path();
        let mut arguments: Vec<OsString> = vec!["scale".into(), "--counted".into()];
        arguments.push(pool.path().into());
        arguments.extend([dirs, files].map(|number| number.to_string().into()));
        let (counted, profiles): (Counted, _) = Profiles::of(dir, arguments)?;
        for (at, ops) in counted.ops.into_iter().enumerate() {
            let total = profiles.total(counted.first_call + at as u64)?;
            let each = Sample::of(total as f64 / ops as f64);
            self.grid.add(1, 2 * side + end, at, each);
        }
        Ok(())
    }

    /// The figure, with a target for each namespace.
    pub(super) fn outcome(self) -> Outcome {
        let each = self.sides.iter().filter_map(|[smallest, largest]| {
            let ratios = WORK
                .iter()
                .filter_map(|(part, _)| Some((self.grid.over(largest, smallest, part)?, part)));
            let (ratio, part) = ratios.max_by(|one, other| one.0.total_cmp(&other.0))?;
            let what = format!("{largest}, instructions over {smallest}, worst: {part}");
            Some(Target::at_most(what, ratio, GROWTH))
        });
        let targets = each.collect();
        Outcome::new(vec![self.grid.figure()], targets)
    }
}

/// The counted process: does the work twice in the pool of another one, and prints what it takes to
/// find the profiles of the second time.
pub(super) fn run_counted(pool: &str, dirs: &str, files: &str) -> Result<()> {
    let number = |text: &str| {
        let wrong = || Error::Option(format!("--counted: {text} is no number"));
        text.parse::<usize>().map_err(|_| wrong())
    };
    let mut library = Library::open(Path::new(pool).into(), PoolOptions::new())?;
    let crowd = Crowd {
        library: &library,
        above: ABOVE.into(),
        dirs: number(dirs)?,
        files: number(files)?,
    };
    // The same work again, so that the second time finds every directory in the index.
    crowd.round(1)?;
    let first_call = newest_call() + 1;
    let samples = crowd.round(1)?;
    let ops = samples.map(|sample| sample.ops);
    library.close()?;
    crate::report::print(true, &Counted { first_call, ops }, String::new())
}
