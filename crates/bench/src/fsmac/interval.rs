//! Fig 12: appends, where every N-th is synced.

use super::meter::{Meter, Sheet};
use super::subjects::{Setting, Work};
use crate::Result;
use crate::figure::{Axis, Scale};
use crate::report::Outcome;
use crate::workloads::{FileTree, Opened, Purpose};

/// Appends from one `fsync` to the next.
const INTERVALS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The most that a synced append may cost over one in a series with few syncs.
const FLAT_ASKED: f64 = 1.2;
/// Bytes of an append.
const BYTES: usize = 8 << 10;
/// The least number of appends, so that the longest interval occurs often enough.
const LEAST: usize = 2 * INTERVALS[INTERVALS.len() - 1];

struct Intervals {
    appends: usize,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let work = Intervals {
        appends: setting.options.synced().max(LEAST),
    };
    let sheet = Sheet {
        name: "fsync-interval",
        title: "Appends of 8 KiB, some of them synced",
        claim: "FSMAC, Fig 12: ext4 slows down about in proportion to the number of syncs, FSMAC \
             less.",
        note: format!(
            "{} appends to one file, whatever the interval.",
            work.appends
        ),
        x: Some(Axis::of(
            "appends from one fsync to the next",
            "",
            Scale::Log,
        )),
        labels: INTERVALS.map(|interval| interval.to_string()).into(),
    };
    let grids = setting.measure(&sheet, &setting.usual()?, &work)?;
    let mut outcome = Outcome::new(grids.figures(), Vec::new());
    outcome.join(metadata_part(setting, sheet, &work)?);
    Ok(outcome)
}

/// The costs of syncs on a split pool whose data are in memory as well.
fn metadata_part(setting: &Setting<'_>, sheet: Sheet, work: &Intervals) -> Result<Outcome> {
    let sheet = Sheet {
        name: "fsync-interval-metadata",
        title: "The same on a split pool with its data in memory as well",
        ..sheet
    };
    let grids = setting.measure(&sheet, &setting.split_in_memory()?, work)?;
    let [each, seldom] = [&sheet.labels[0], &sheet.labels[INTERVALS.len() - 1]];
    let targets = grids.flat(each, seldom, FLAT_ASKED).into_iter().collect();
    Ok(Outcome::new(grids.figures(), targets))
}

impl Work for Intervals {
    fn round<P: FileTree>(&self, tree: &P, meter: &mut Meter<'_>) -> Result<()> {
        for (label, interval) in INTERVALS.into_iter().enumerate() {
            tree.open(c"appends", Purpose::Create)?;
            let file = tree.open(c"appends", Purpose::Append)?;
            meter.timed(tree, label, self.appends, || {
                (1..=self.appends).try_for_each(|done| {
                    file.append(&[0x5A; BYTES])?;
                    if done % interval == 0 {
                        file.sync()
                    } else {
                        Ok(())
                    }
                })
            })?;
            drop(file);
            tree.remove(c"appends")?;
        }
        Ok(())
    }
}
