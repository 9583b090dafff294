//! Fig 10: files created, written and synced, by one thread and by several.

use std::ffi::CString;

use super::meter::{Meter, Sheet};
use super::subjects::{Setting, Work};
use crate::Result;
use crate::commits::together;
use crate::order::names;
use crate::report::Outcome;
use crate::side::BLOCK;
use crate::workloads::{FileTree, Opened, Purpose};

/// The numbers of threads of the labels that have some.
const THREADS: [usize; 3] = [1, 2, 4];
const LABELS: [&str; 5] = [
    "not synced",
    "synced, 1 thread",
    "synced, 2 threads",
    "synced, 4 threads",
    "append, synced",
];
/// Positions of the labels with threads, and of the last one.
const BY_THREADS: usize = 1;
const APPEND: usize = 4;
/// Files that are synced, for each file that other figures sync. There are more here, so that the
/// work that syncs leave to the background is done during the measurement.
const SYNCED: usize = 4;
/// The targets: how many times as fast as ext4, and how many times as fast two threads are as one.
const FILES_ASKED: f64 = 3.0;
const APPENDS_ASKED: f64 = 2.5;
const TWO_ASKED: f64 = 1.5;

struct FsMark {
    unsynced: Vec<CString>,
    synced: Vec<CString>,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let sheet = Sheet {
        name: "fs-mark",
        title: "Files created, written and synced",
        claim: "FSMAC, Fig 10: creation and fsync are faster than in ext4, up to 34 times if each \
                file is synced; writing takes the same time.",
        note: format!(
            "Files of 4 KiB: {} without a sync, and {} synced before they are closed, by all \
             threads together; as many appends of 4 KiB to one file, each synced.",
            options.files,
            SYNCED * options.synced()
        ),
        x: None,
        labels: LABELS.map(String::from).into(),
    };
    let work = FsMark {
        unsynced: names("marks/unsynced-", options.files),
        synced: names("marks/synced-", SYNCED * options.synced()),
    };
    let grids = setting.measure(&sheet, &setting.usual()?, &work)?;
    let [one, two] = [LABELS[BY_THREADS], LABELS[BY_THREADS + 1]];
    let targets = [
        grids.faster(one, FILES_ASKED),
        grids.faster(LABELS[APPEND], APPENDS_ASKED),
        grids.falls(one, two, TWO_ASKED),
    ];
    let targets = targets.into_iter().flatten().collect();
    Ok(Outcome::new(grids.figures(), targets))
}

impl FsMark {
    fn make<P: FileTree>(tree: &P, name: &CString, is_synced: bool) -> Result<()> {
        let file = tree.open(name, Purpose::Create)?;
        file.write_at(0, &[0xC3; BLOCK])?;
        if is_synced { file.sync() } else { Ok(()) }
    }
}

impl Work for FsMark {
    fn fill<P: FileTree>(&self, tree: &P) -> Result<()> {
        tree.make_dir(c"marks")
    }

    fn round<P: FileTree>(&self, tree: &P, meter: &mut Meter<'_>) -> Result<()> {
        meter.timed(tree, 0, self.unsynced.len(), || {
            let mut all = self.unsynced.iter();
            all.try_for_each(|name| Self::make(tree, name, false))
        })?;
        self.unsynced
            .iter()
            .try_for_each(|name| tree.remove(name))?;
        for (at, threads) in THREADS.into_iter().enumerate() {
            meter.timed(tree, BY_THREADS + at, self.synced.len(), || {
                together(threads, |thread| {
                    let mut own = self.synced.iter().skip(thread).step_by(threads);
                    own.try_for_each(|name| Self::make(tree, name, true))
                })
                .map(drop)
            })?;
            self.synced.iter().try_for_each(|name| tree.remove(name))?;
        }
        tree.open(c"marks/log", Purpose::Create)?;
        let log = tree.open(c"marks/log", Purpose::Append)?;
        meter.timed(tree, APPEND, self.synced.len(), || {
            let mut all = self.synced.iter();
            all.try_for_each(|_| log.append(&[0xC3; BLOCK]).and_then(|()| log.sync()))
        })?;
        drop(log);
        tree.remove(c"marks/log")
    }
}
