//! Fig 4: creating and removing files and directories.

use std::ffi::CString;

use super::subjects::{
    ADAM, BASELINE, DEFAULT, PoolKind, Room, Setting, Work, names as names_of, timed,
};
use crate::Result;
use crate::mapping::{Grid, Sample};
use crate::order::{names, shuffled_names};
use crate::report::Outcome;
use crate::side::Side;
use crate::target::Target;

const LABELS: [&str; 4] = ["create", "unlink", "mkdir", "rmdir"];
/// The targets by Fig 4: how many times as fast as the baseline.
const RATIOS: [f64; 4] = [1.09, 1.76, 1.24, 1.37];
const DIR: &str = "changes";

struct Changes {
    ascending: Vec<CString>,
    shuffled: Vec<CString>,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let files = setting.options.files;
    let subjects = setting.subjects(Room::for_names(files), &PoolKind::each())?;
    let mut grid = Grid::bars(
        "ops",
        "Creating and removing files and directories",
        "operation",
        &LABELS,
    )
    .named(names_of(&subjects), DEFAULT, BASELINE)
    .claim(
        "Fig 4: ADAM creates files 9 % faster than NOVA and removes them 76 % faster; directories \
             24 % and 37 %.",
    )
    .note(format!(
        "{files} names in one directory, created in ascending order and removed in another; empty \
             files, created by opening and closing them."
    ));
    let work = Changes {
        ascending: names("name-", files),
        shuffled: shuffled_names("name-", files, 31),
    };
    setting.measure(&mut grid, &subjects, &work)?;
    let targets = LABELS.iter().zip(RATIOS).filter_map(|(label, asked)| {
        let what = format!("{BASELINE} over {ADAM}, {label}");
        let ratio = grid.over(BASELINE, ADAM, label)?;
        Some(Target::at_least(what, ratio, asked))
    });
    let targets = targets.collect();
    Ok(Outcome::new(vec![grid.figure()], targets))
}

impl Work for Changes {
    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        side.make_dir(DIR)
    }

    fn round<S: Side>(&self, side: &S) -> Result<Vec<Sample>> {
        let dir = side.dir(DIR)?;
        let (made, removed) = (&self.ascending, &self.shuffled);
        let count = made.len();
        let create = timed(side, count, || {
            made.iter().try_for_each(|name| side.create(&dir, name))
        })?;
        side.expect("files after creating", side.list(&dir)?, count as u64)?;
        let unlink = timed(side, count, || {
            removed.iter().try_for_each(|name| side.unlink(&dir, name))
        })?;
        side.settle()?;
        let mkdir = timed(side, count, || {
            made.iter().try_for_each(|name| side.mkdir(&dir, name))
        })?;
        side.expect("directories after making", side.list(&dir)?, count as u64)?;
        let rmdir = timed(side, count, || {
            removed.iter().try_for_each(|name| side.rmdir(&dir, name))
        })?;
        side.expect("names at the end", side.list(&dir)?, 0)?;
        Ok(vec![create, unlink, mkdir, rmdir])
    }
}
