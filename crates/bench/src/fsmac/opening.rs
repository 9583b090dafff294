//! The time that opening a pool with a log takes after a clean close, after a kill, and after a
//! power cut.

use std::time::Duration;

use indicatif::ProgressBar;

use super::subjects::{LOGGED, Setting};
use crate::Result;
use crate::figure::{Axis, Scale};
use crate::left::{DIR_FILES, Left, State, disk_bytes, fill, forget, logged_pool, rename};
use crate::mapping::{Grid, Sample};
use crate::peer::{EXT4_LOOP, Ext4Loop, Mounting};
use crate::report::Outcome;
use crate::scratch::dir_in;
use crate::target::Target;
use crate::workloads::{FileTree, KernelDir};

/// The states in which the pool is opened.
const LABELS: [&str; 4] = ["power cut", "closed", "closed, not cached", "killed"];
/// The target for each state: the most milliseconds that an opening may take.
const ASKED: [f64; 4] = [1000.0, 2000.0, 2000.0, 2000.0];

/// The time of opening by state, for the states that a side can be left in.
type Times = [Option<Duration>; LABELS.len()];

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let files = options.tree_files;
    let dir = dir_in(&options.disk)?;
    let tools = (setting.interrupt, &ProgressBar::hidden());
    let pool = Left::make(dir.path().join("pool"), &logged_pool(files), files, tools)?;
    // A directory that already exists is mounted, and cannot be opened again.
    let peer = options.peer.is_none().then(|| Peer::make(setting, files));
    let mut peer = peer.transpose()?;
    let mut names = vec![LOGGED];
    names.extend(peer.as_ref().map(|_| EXT4_LOOP));
    let last = names[names.len() - 1];
    let names = names.into_iter().map(str::to_owned).collect();
    let mut grid = Grid::bars(
        "opening",
        "Opening a pool with a log",
        "as it was left",
        &LABELS,
    )
    .of(Axis::of("time until it can be used", "ms", Scale::Log))
    .named(names, LOGGED, last);
    let mut logged = 0;
    for round in 0..=options.rounds {
        setting.interrupt.check()?;
        logged = pool.leave(true)?;
        note(&mut grid, (round, 0), times(&pool)?);
        if let Some(peer) = &mut peer {
            note(&mut grid, (round, 1), peer.times()?);
        }
    }
    let asked = LABELS.iter().zip(ASKED).filter_map(|(label, asked)| {
        let what = format!("ms to open, {label}");
        Some(Target::at_most(what, grid.middle(LOGGED, label)?, asked))
    });
    let targets = asked.collect();
    let grid = grid
        .claim(
            "FSMAC, IV.B: after a crash, recovery examines the running and the committing \
             transaction, whose pointers are in the index; the paper gives no times.",
        )
        .note(format!(
            "{files} empty files in directories of {DIR_FILES}. After a power cut the log has \
             records of {} MiB; ext4 is mounted from a copy of its disk, which was made after a \
             sync of as many renames. Opening a pool reads all metadata in use, mounting ext4 \
             reads none.",
            logged >> 20
        ));
    Ok(Outcome::new(vec![grid.figure()], targets))
}

fn note(grid: &mut Grid, (round, side): (usize, usize), times: Times) {
    for (label, time) in times.into_iter().enumerate() {
        let Some(time) = time else { continue };
        let sample = Sample::of(time.as_secs_f64() * 1e3);
        grid.add(round, side, label, sample);
    }
}

/// The times of opening a pool whose log was left full of synced records.
fn times(pool: &Left) -> Result<Times> {
    pool.forget()?;
    let cut = pool.open(State::Cut)?;
    let closed = pool.open(State::Closed)?;
    pool.forget()?;
    let not_cached = pool.open(State::Closed)?;
    pool.leave(false)?;
    let killed = pool.open(State::Killed)?;
    Ok([cut, closed, not_cached, killed].map(|opening| Some(opening.time)))
}

/// The peer: an ext4 with the same number of files.
struct Peer {
    ext4: Ext4Loop,
    files: usize,
}

impl Peer {
    fn make(setting: &Setting<'_>, files: usize) -> Result<Self> {
        let how = Mounting {
            inodes: Some(2 * files),
            ..Mounting::default()
        };
        let ext4 = Ext4Loop::new(&setting.options.disk, disk_bytes(files), how)?;
        let tools = (setting.interrupt, &ProgressBar::hidden());
        fill(&KernelDir::open(ext4.dir())?, files, tools)?;
        Ok(Self { ext4, files })
    }

    /// The times of mounting. A kill leaves nothing behind.
    fn times(&mut self) -> Result<Times> {
        let tree = KernelDir::open(self.ext4.dir())?;
        rename(&tree, self.files)?;
        tree.sync()?;
        // The open tree would keep the file system mounted.
        drop(tree);
        let cut = self.ext4.mount_as_cut(forget)?;
        let closed = self.ext4.remount(|_| Ok(()))?;
        let not_cached = self.ext4.remount(forget)?;
        Ok([Some(cut), Some(closed), Some(not_cached), None])
    }
}
