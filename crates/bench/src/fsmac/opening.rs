//! The time that opening a pool with a log takes after a clean close, after a kill, and after a
//! power cut.
//!
//! The killed process is a separate one, which renames files and ends without closing anything. The
//! next opening uses what that process left in memory. An opening with the option to discard it
//! finds what a power cut would leave: the log.

use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use rustix::process::Signal;
use vellum::media::MediaChoice;
use vellum::{CreateOptions, FoundImage, MappingKind, Pool, PoolOptions};

use super::subjects::{LOGGED, Setting};
use crate::Result;
use crate::error::{Error, doing, expect};
use crate::figure::{Axis, Scale};
use crate::interrupt::Interrupt;
use crate::mapping::{Grid, Sample};
use crate::peer::{EXT4_LOOP, Ext4Loop, Mounting};
use crate::report::Outcome;
use crate::scratch::dir_in;
use crate::target::Target;
use crate::workloads::{FileTree, KernelDir, Purpose};

/// The states in which the pool is opened.
const LABELS: [&str; 4] = ["power cut", "closed", "closed, not cached", "killed"];
/// The target for each state: the most milliseconds that an opening may take.
const ASKED: [f64; 4] = [1000.0, 2000.0, 2000.0, 2000.0];
/// Files of a directory.
const DIR_FILES: usize = 1000;
/// Upper bounds for the metadata of a file, in bytes, and for those of directories and the smallest
/// pool.
const METADATA_OF_FILE: u64 = 320;
const METADATA_LEAST: u64 = 8 << 20;
/// Space for the log, and for a few bytes of files.
const REST_BYTES: u64 = 256 << 20;
/// The bytes of the log to fill, and about the bytes of it that a rename takes.
const LOG_BYTES: usize = 64 << 20;
const LOG_OF_RENAME: usize = 140;
/// An interval that is never reached, so that nothing is committed automatically.
const NEVER: Duration = Duration::from_secs(3600);

/// A pool that a process opens and leaves.
#[derive(Debug)]
struct Left {
    path: PathBuf,
    files: usize,
}

/// The time of opening by state, for the states that a side can be left in.
type Times = [Option<Duration>; LABELS.len()];

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let files = options.tree_files;
    let dir = dir_in(&options.disk)?;
    let pool = Left {
        path: dir.path().join("pool"),
        files,
    };
    pool.make(setting.interrupt)?;
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
        note(&mut grid, (round, 0), pool.times()?);
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
        let sample = Sample {
            value: time.as_secs_f64() * 1e3,
            ..Sample::default()
        };
        grid.add(round, side, label, sample);
    }
}

impl Left {
    /// Creates the pool and its files.
    fn make(&self, interrupt: &Interrupt) -> Result<()> {
        let (metadata, bytes) = bytes_of(self.files);
        let options = CreateOptions::new(bytes)
            .media(MediaChoice::Logged)
            .metadata_bytes(Some(metadata))
            .mapping(MappingKind::Extent);
        let pool = options.create(&self.path)?;
        fill(&pool.volume(), self.files, interrupt)?;
        Ok(pool.close()?)
    }

    /// Lets another process open the pool, rename files, and be killed; returns the bytes in the
    /// log at that time.
    fn leave(&self, is_synced: bool) -> Result<u64> {
        let program = std::env::current_exe().map_err(doing("find this program"))?;
        let words = std::env::args_os().skip(1);
        let mut child = Command::new(program)
            .args(words.take_while(|word| word != "fsmac"))
            .args(["fsmac", "--tree-files", &self.files.to_string()])
            .args(["--leave".as_ref(), self.path.as_os_str()])
            .args(is_synced.then_some("--synced"))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(doing("start a process that is to be killed"))?;
        let mut said = String::new();
        let output = child.stdout.take().map(BufReader::new);
        let read = output.map(|mut output| output.read_line(&mut said));
        child.wait().map_err(doing("wait for a process"))?;
        read.transpose()
            .map_err(doing("listen to a process that is to be killed"))?;
        let bytes = said.trim().parse();
        bytes.map_err(|_| Error::Wrong("a process was to leave a pool open, and did not".into()))
    }

    /// The times of opening the pool. Its log was left full of synced records.
    fn times(&self) -> Result<Times> {
        forget(&self.path)?;
        let cut = self.open(Some(FoundImage::None))?;
        let closed = self.open(None)?;
        forget(&self.path)?;
        let not_cached = self.open(None)?;
        self.leave(false)?;
        let killed = self.open(Some(FoundImage::Adopted))?;
        Ok([cut, closed, not_cached, killed].map(Some))
    }

    /// Opens the pool in the state that `left` says (`None` after a close), checks that everything
    /// is there, and closes it. Returns the time of the opening.
    fn open(&self, left: Option<FoundImage>) -> Result<Duration> {
        let options = PoolOptions::new().discard_image(left == Some(FoundImage::None));
        let begin = Instant::now();
        let pool = options.open(&self.path)?;
        let time = begin.elapsed();
        let opened = pool.opened();
        expect("closed cleanly", opened.was_clean, left.is_none())?;
        expect("what was left", opened.image, left.unwrap_or_default())?;
        pool.volume().stat(&name("old", self.files - 1))?;
        pool.close()?;
        Ok(time)
    }
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
        let ext4 = Ext4Loop::new(&setting.options.disk, bytes_of(files).1, how)?;
        fill(&KernelDir::open(ext4.dir())?, files, setting.interrupt)?;
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

/// Drops the kernel's cached pages of a file.
fn forget(path: &Path) -> Result<()> {
    let drop = |file: std::fs::File| {
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(())
    };
    let opened = std::fs::File::open(path);
    opened.and_then(drop).map_err(doing("drop a file's pages"))
}

/// The bytes of metadata for this many files, and of a pool with them.
fn bytes_of(files: usize) -> (u64, u64) {
    let metadata = files as u64 * METADATA_OF_FILE + METADATA_LEAST;
    (metadata, 2 * metadata + REST_BYTES)
}

/// Creates the files.
fn fill(tree: &impl FileTree, files: usize, interrupt: &Interrupt) -> Result<()> {
    for file in 0..files {
        if file % DIR_FILES == 0 {
            interrupt.check()?;
            tree.make_dir(&text(dir_of(file)))?;
        }
        tree.open(&name("old", file), Purpose::Create)?;
    }
    Ok(())
}

/// Renames the number of files that fills a log, at most half of all files, or gives them their old
/// names back.
fn rename(tree: &impl FileTree, files: usize) -> Result<()> {
    let [from, to] = match tree.stat(&name("old", 0)) {
        Ok(_) => ["old", "new"],
        Err(_) => ["new", "old"],
    };
    let mut renames = 0..(LOG_BYTES / LOG_OF_RENAME).min(files / 2);
    renames.try_for_each(|file| tree.rename(&name(from, file), &name(to, file)))
}

/// The memory that a killed process left is removed together with the pool.
impl Drop for Left {
    fn drop(&mut self) {
        let options = PoolOptions::new().discard_image(true);
        // A pool that was closed or never created has left nothing.
        let _ = Pool::settle_image(&self.path, &options);
    }
}

fn dir_of(file: usize) -> String {
    (file / DIR_FILES).to_string()
}

fn name(kind: &str, file: usize) -> CString {
    text(format!("{}/{kind}-{file}", dir_of(file)))
}

fn text(name: String) -> CString {
    CString::new(name).unwrap_or_default()
}

/// The process that is killed: opens the pool, renames the number of files that fills the log,
/// prints the bytes in the log, and ends.
///
/// # Errors
/// The pool was not created by [`Left::make`], or the medium failed.
pub(super) fn leave(path: &Path, files: usize, is_synced: bool) -> Result<()> {
    let options = PoolOptions::new().commit_every(NEVER);
    let pool = options.open(path)?;
    let volume = pool.volume();
    rename(&volume, files)?;
    if is_synced {
        volume.sync()?;
    }
    let logged = pool.fs().log_counts().map_or(0, |counts| counts.used_bytes);
    println!("{logged}");
    std::io::stdout().flush().map_err(doing("say it"))?;
    let killed = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    killed.map_err(doing("end this process"))
}
