//! Creating, renaming and removing names, without any sync.

use std::ffi::CString;

use super::meter::{Meter, Sheet};
use super::subjects::{Setting, Work};
use crate::Result;
use crate::order::{names, shuffled_names};
use crate::report::Outcome;
use crate::workloads::{FileTree, Purpose};

const LABELS: [&str; 4] = ["create", "rename", "unlink", "mkdir"];
/// The target: this many times as fast as ext4. There is none for mkdir.
const ASKED: f64 = 8.0;

/// Names in one directory: created as files, renamed, removed in another order, and created as
/// directories.
pub(super) struct Names {
    made: Vec<CString>,
    renamed: Vec<CString>,
    removed: Vec<CString>,
}

impl Names {
    pub(super) fn new(count: usize) -> Self {
        Self {
            made: names("names/made-", count),
            renamed: names("names/renamed-", count),
            removed: shuffled_names("names/renamed-", count, 41),
        }
    }

    /// The names that can be created again after a round.
    pub(super) fn made(&self) -> &[CString] {
        &self.made
    }
}

/// The name of the figure, and a description of the work.
pub(super) fn sheet(name: &'static str, claim: &'static str, setting: &Setting<'_>) -> Sheet {
    let files = setting.options.files;
    Sheet {
        name,
        title: "Creating, renaming and removing names",
        claim,
        note: format!(
            "{files} empty files in one directory: created, renamed there, and removed in another \
             order; as many directories. Nothing is synced before the end."
        ),
        x: None,
        labels: LABELS.map(String::from).into(),
    }
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let sheet = sheet(
        "operations",
        "FSMAC, Fig 11: 1.55 times as fast as ext4 without syncs.",
        setting,
    );
    let work = Names::new(setting.options.files);
    let grids = setting.measure(&sheet, &setting.usual()?, &work)?;
    let asked = LABELS[..3].iter();
    let targets = asked.filter_map(|label| grids.faster(label, ASKED));
    let targets = targets.collect();
    Ok(Outcome::new(grids.figures(), targets))
}

impl Work for Names {
    fn fill<P: FileTree>(&self, tree: &P) -> Result<()> {
        tree.make_dir(c"names")
    }

    fn round<P: FileTree>(&self, tree: &P, meter: &mut Meter<'_>) -> Result<()> {
        let count = self.made.len();
        meter.timed(tree, 0, count, || {
            let mut made = self.made.iter();
            made.try_for_each(|name| tree.open(name, Purpose::Create).map(drop))
        })?;
        meter.timed(tree, 1, count, || {
            let mut both = self.made.iter().zip(&self.renamed);
            both.try_for_each(|(old, new)| tree.rename(old, new))
        })?;
        meter.timed(tree, 2, count, || {
            self.removed.iter().try_for_each(|name| tree.remove(name))
        })?;
        meter.timed(tree, 3, count, || {
            self.made.iter().try_for_each(|name| tree.make_dir(name))
        })?;
        self.made.iter().try_for_each(|name| tree.remove_dir(name))
    }
}
