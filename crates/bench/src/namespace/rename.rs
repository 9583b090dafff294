//! Fig 6: renaming a directory, whatever its content.

use std::ffi::CString;

use super::subjects::{
    BASELINE, DEFAULT, PoolKind, Room, STILL, Setting, Work, names as names_of, timed,
};
use crate::Result;
use crate::figure::{Axis, Scale};
use crate::mapping::{Grid, Sample};
use crate::order::names;
use crate::report::Outcome;
use crate::side::Side;
use crate::target::Target;

/// Renames of a round, back and forth.
const RENAMES: usize = 200;
/// Renames of a directory with more than [`MANY`] names, which may all have to be written.
const RENAMES_OF_MANY: usize = 20;
const MANY: usize = 1000;
/// The target: the most that the largest directory may take over one with a single name.
const RATIO: f64 = 2.0;

struct Renames {
    children: Vec<usize>,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let most = setting.options.children;
    let powers = std::iter::successors(Some(1_usize), |count| Some(count * 10));
    let mut children: Vec<usize> = powers.take_while(|&count| count < most).collect();
    children.push(most);
    let room = Room::for_names(children.iter().sum());
    let kinds = [PoolKind::each(), vec![PoolKind::STILL]].concat();
    let subjects = setting.subjects(room, &kinds)?;
    let x = Axis::of("names in the directory", "", Scale::Log);
    let labels = children.iter().map(usize::to_string).collect();
    let mut grid = Grid::lines("rename", "Renaming a directory", x, labels)
        .named(names_of(&subjects), DEFAULT, BASELINE)
        .claim(
            "Fig 6: where names are full paths, a rename rewrites all of them; once a directory is \
             the root of an area it takes as long as with one name.",
        )
        .note(format!(
            "{RENAMES} renames in a round, {RENAMES_OF_MANY} with more than {MANY} names, back \
             and forth between two names; empty files. In the pool called \"{STILL}\" no \
             directory gets an area of its own."
        ));
    setting.measure(&mut grid, &subjects, &Renames { children })?;
    let targets = subjects.iter().filter_map(|subject| {
        let what = format!(
            "{}, rename with {most} names over one with one",
            subject.name
        );
        let is_ours = vellum::NamespaceKind::ALL
            .iter()
            .any(|kind| kind.name() == subject.name);
        let ratio = grid.last_over_first(&subject.name).filter(|_| is_ours)?;
        Some(Target::at_most(what, ratio, RATIO))
    });
    let targets = targets.collect();
    Ok(Outcome::new(vec![grid.figure()], targets))
}

fn dir_name(children: usize) -> String {
    format!("with-{children}")
}

impl Work for Renames {
    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        side.make_dir("renamed")?;
        for &children in &self.children {
            let path = format!("renamed/{}", dir_name(children));
            side.make_dir(&path)?;
            let dir = side.dir(&path)?;
            names("file-", children)
                .iter()
                .try_for_each(|name| side.create(&dir, name))?;
        }
        Ok(())
    }

    fn round<S: Side>(&self, side: &S) -> Result<Vec<Sample>> {
        let parent = side.dir("renamed")?;
        let each = self.children.iter().map(|&children| {
            let name = |text: String| CString::new(text).unwrap_or_default();
            let (here, there) = (name(dir_name(children)), name(format!("moved-{children}")));
            let renames = if children > MANY {
                RENAMES_OF_MANY
            } else {
                RENAMES
            };
            timed(side, renames, || {
                for _ in 0..renames / 2 {
                    side.rename(&parent, &here, &parent, &there)?;
                    side.rename(&parent, &there, &parent, &here)?;
                }
                Ok(())
            })
        });
        each.collect()
    }
}
