//! Fig 14: the cost of surviving a power cut.

use super::operations::{self, Names};
use super::subjects::{Setting, Subject};
use crate::Result;
use crate::report::Outcome;

/// The most that a pool with a log, or with an undo log, may take over one without.
const ASKED: f64 = 1.1;

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let mut outcome = of(setting, "overhead", &setting.with_and_without()?)?;
    outcome.join(of(
        setting,
        "overhead-versions",
        &setting.split_and_memory()?,
    )?);
    Ok(outcome)
}

fn of(setting: &Setting<'_>, name: &'static str, subjects: &[Subject]) -> Result<Outcome> {
    let sheet = operations::sheet(
        name,
        "FSMAC, Fig 14: versions (undo records) make operations less than 10 % slower, while a \
         journal takes up to half of ext4's speed.",
        setting,
    );
    let work = Names::new(setting.options.files);
    let grids = setting.measure(&sheet, subjects, &work)?;
    let asked = sheet.labels.iter();
    let targets = asked.filter_map(|label| grids.no_slower(label, ASKED));
    let targets = targets.collect();
    Ok(Outcome::new(grids.figures(), targets))
}
