//! Fig 5: listing directories, by one to ten threads.

use std::sync::Mutex;
use std::time::Instant;

use super::subjects::{BASELINE, DEFAULT, PoolKind, Room, Setting, Work, names as names_of};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Scale};
use crate::mapping::{Grid, Sample};
use crate::order::names;
use crate::report::Outcome;
use crate::side::Side;

/// Directories that are listed.
const DIRS: usize = 100;
/// The number of times that each thread lists all of them in a round.
const PASSES: usize = 20;

struct Listing {
    files: usize,
    threads: Vec<usize>,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let files = (setting.options.files / DIRS).max(1);
    let threads: Vec<usize> = [1, 2, 4, 6, 8, 10]
        .into_iter()
        .filter(|&threads| threads <= setting.options.threads)
        .collect();
    let subjects = setting.subjects(Room::for_names(DIRS * files), &PoolKind::each())?;
    let x = Axis::of("threads", "", Scale::Linear);
    let labels = threads.iter().map(usize::to_string).collect();
    let mut grid = Grid::lines("listdirs", "Listing directories", x, labels)
        .of(Axis::of(
            "time of a listing, all threads together",
            "ns",
            Scale::Linear,
        ))
        .named(names_of(&subjects), DEFAULT, BASELINE)
        .claim(
            "Fig 5: ADAM lists directories faster than the others, and gains with threads up to \
             the processors.",
        )
        .note(format!(
            "{DIRS} directories of {files} files; each thread lists all of them {PASSES} times."
        ));
    let work = Listing { files, threads };
    setting.measure(&mut grid, &subjects, &work)?;
    Ok(Outcome::new(vec![grid.figure()], Vec::new()))
}

fn dir_name(number: usize) -> String {
    format!("list-{number}")
}

impl Work for Listing {
    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        let files = names("file-", self.files);
        for number in 0..DIRS {
            side.make_dir(&dir_name(number))?;
            let dir = side.dir(&dir_name(number))?;
            files.iter().try_for_each(|name| side.create(&dir, name))?;
        }
        Ok(())
    }

    fn round<S: Side>(&self, side: &S) -> Result<Vec<Sample>> {
        let rounds = self.threads.iter();
        rounds.map(|&threads| self.list(side, threads)).collect()
    }
}

impl Listing {
    fn list<S: Side>(&self, side: &S, threads: usize) -> Result<Sample> {
        let failed = Mutex::new(Ok(()));
        let ops = threads * PASSES * DIRS;
        let (before, start) = (side.counts(), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    if let Err(error) = self.list_all(side)
                        && let Ok(mut failed) = failed.lock()
                    {
                        *failed = Err(error);
                    }
                });
            }
        });
        let time = start.elapsed();
        failed.into_inner().unwrap_or(Ok(()))?;
        Ok(Sample {
            value: time.as_nanos() as f64 / ops as f64,
            ops: ops as u64,
            counts: side.counts() - before,
        })
    }

    fn list_all<S: Side>(&self, side: &S) -> Result<()> {
        for _ in 0..PASSES {
            for number in 0..DIRS {
                let dir = side.dir(&dir_name(number))?;
                expect("files listed", side.list(&dir)?, self.files as u64)?;
            }
        }
        Ok(())
    }
}
