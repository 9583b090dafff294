//! Fig 11: names made durable as by mount's options `async`, `dirsync` and `sync`.

use vellum::Durability;

use super::meter::{Meter, Sheet};
use super::operations::Names;
use super::subjects::{Setting, Work};
use crate::Result;
use crate::report::Outcome;
use crate::side::BLOCK;
use crate::workloads::{FileTree, Opened, Purpose};

const LABELS: [&str; 5] = ["create", "rename", "unlink", "mkdir", "create, write 4 KiB"];
/// The number of labels that change only names.
const NAMES: usize = 4;
/// The target, for names only: this many times as fast as ext4 with the same option.
const ASKED: f64 = 50.0;

/// A figure: its name, what is durable when an operation returns, the option, and the target.
struct Mode {
    name: &'static str,
    title: &'static str,
    durability: Durability,
    option: &'static str,
    asked: Option<f64>,
}

const MODES: [Mode; 3] = [
    Mode {
        name: "mount-modes-sync",
        title: "Names and small files, all durable when a call returns",
        durability: Durability::Sync,
        option: "sync",
        asked: Some(ASKED),
    },
    Mode {
        name: "mount-modes-dirsync",
        title: "Names and small files, names durable when a call returns",
        durability: Durability::Dirsync,
        option: "dirsync",
        asked: Some(ASKED),
    },
    Mode {
        name: "mount-modes-async",
        title: "Names and small files, durable some time later",
        durability: Durability::Async,
        option: "async",
        asked: None,
    },
];

/// The names, and files of one block each.
struct Files(Names);

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let mut all = Outcome::default();
    for mode in &MODES {
        all.join(mode.measure(setting)?);
    }
    Ok(all)
}

impl Mode {
    fn measure(&self, setting: &Setting<'_>) -> Result<Outcome> {
        let files = setting.options.synced();
        let sheet = Sheet {
            name: self.name,
            title: self.title,
            claim: "FSMAC, Fig 11: 49.2 times as fast as ext4 with sync, 17.6 times with dirsync, \
                 1.55 times with neither.",
            note: format!(
                "{files} empty files in one directory: created, renamed there, and removed in \
                 another order; as many directories; as many files of 4 KiB. All sides with -o \
                 {}. `split` has its metadata in memory and its data on the disk.",
                self.option
            ),
            x: None,
            labels: LABELS.map(String::from).into(),
        };
        let work = Files(Names::new(files));
        let subjects = setting.with(self.durability, self.option)?;
        let grids = setting.measure(&sheet, &subjects, &work)?;
        let labels = LABELS[..NAMES].iter();
        let targets = self.asked.map(|asked| {
            let each = labels.filter_map(|label| grids.faster(label, asked));
            each.collect()
        });
        Ok(Outcome::new(grids.figures(), targets.unwrap_or_default()))
    }
}

impl Work for Files {
    fn fill<P: FileTree>(&self, tree: &P) -> Result<()> {
        self.0.fill(tree)
    }

    fn round<P: FileTree>(&self, tree: &P, meter: &mut Meter<'_>) -> Result<()> {
        self.0.round(tree, meter)?;
        let made = self.0.made();
        meter.timed(tree, NAMES, made.len(), || {
            made.iter().try_for_each(|name| {
                let file = tree.open(name, Purpose::Create)?;
                file.append(&[0x5A; BLOCK])
            })
        })?;
        made.iter().try_for_each(|name| tree.remove(name))
    }
}
