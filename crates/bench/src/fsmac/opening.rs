//! How long a pool with a log takes to be opened: as closing leaves it, as a kill does, and as a
//! power cut does.
//!
//! What is killed is a process of its own, which renames files and ends without closing anything.
//! Of what it leaves in memory the next opening makes use; one that is told to give that up finds
//! what a power cut leaves, the log.

use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use rustix::process::Signal;
use vellum::media::MediaChoice;
use vellum::{CreateOptions, FoundImage, MappingKind, Pool, PoolOptions};

use super::subjects::{LOGGED, Setting, dir_in};
use crate::Result;
use crate::error::{Error, doing, expect};
use crate::figure::{Axis, Scale};
use crate::interrupt::Interrupt;
use crate::mapping::{Grid, Sample};
use crate::peer::{EXT4_LOOP, Ext4Loop, Mounting};
use crate::report::Outcome;
use crate::target::Target;
use crate::workloads::{FileTree, KernelDir, Purpose};

/// What is opened.
const LABELS: [&str; 4] = ["power cut", "closed", "closed, not cached", "killed"];
/// Milliseconds that opening may take, at most, of each.
const ASKED: [f64; 4] = [1000.0, 2000.0, 2000.0, 2000.0];
/// Files of a directory.
const DIR_FILES: usize = 1000;
/// Bytes of metadata that a file takes at most, and those for directories and in the least pool.
const METADATA_OF_FILE: u64 = 320;
const METADATA_LEAST: u64 = 8 << 20;
/// Room for the log, and for a few bytes of files.
const REST_BYTES: u64 = 256 << 20;
/// Bytes of the log that are to be full, and those that a rename takes of it, about.
const LOG_BYTES: usize = 64 << 20;
const LOG_OF_RENAME: usize = 140;
/// Rather than this nobody commits by himself.
const NEVER: Duration = Duration::from_secs(3600);

/// A pool whose process is to leave it.
#[derive(Debug)]
struct Left {
    path: PathBuf,
    files: usize,
}

/// What opening took, by what was opened, as far as a side can leave it so.
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
    // A directory of somebody's file system cannot be opened anew.
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
            "FSMAC, IV.B: behind a crash the running and the committing transaction are looked \
             at, whose pointers are in the index; no times are given.",
        )
        .note(format!(
            "{files} empty files in directories of {DIR_FILES}. Behind a power cut the log has \
             records of {} MiB; ext4 is mounted from a copy of its disk that was made behind a \
             sync of as many renames. Opening a pool reads all metadata in use, mounting ext4 \
             none.",
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
    /// Makes the pool and its files.
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

    /// Has another process open the pool, rename files, and be killed; gives the bytes in the log
    /// then.
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

    /// What opening takes; the pool was left with what is synced in its log.
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

    /// Opens the pool, which was closed, or left so that this comes of it, looks whether all is
    /// there, and closes it; gives the time that opening took.
    fn open(&self, left: Option<FoundImage>) -> Result<Duration> {
        let options = PoolOptions::new().discard_image(left == Some(FoundImage::None));
        let begin = Instant::now();
        let pool = options.open(&self.path)?;
        let time = begin.elapsed();
        let opened = pool.opened();
        expect("closed in order", opened.was_clean, left.is_none())?;
        expect("what was left", opened.image, left.unwrap_or_default())?;
        pool.volume().stat(&name("old", self.files - 1))?;
        pool.close()?;
        Ok(time)
    }
}

/// The peer: an ext4 with as many files.
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

    /// What mounting takes; there is nothing that a kill could leave.
    fn times(&mut self) -> Result<Times> {
        let tree = KernelDir::open(self.ext4.dir())?;
        rename(&tree, self.files)?;
        tree.sync()?;
        // It would keep the file system mounted.
        drop(tree);
        let cut = self.ext4.mount_as_cut(forget)?;
        let closed = self.ext4.remount(|_| Ok(()))?;
        let not_cached = self.ext4.remount(forget)?;
        Ok([Some(cut), Some(closed), Some(not_cached), None])
    }
}

/// Has the kernel drop what it has cached of a file.
fn forget(path: &Path) -> Result<()> {
    let drop = |file: std::fs::File| {
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(())
    };
    let opened = std::fs::File::open(path);
    opened.and_then(drop).map_err(doing("drop a file's pages"))
}

/// Bytes of metadata for so many files, and of a pool with them.
fn bytes_of(files: usize) -> (u64, u64) {
    let metadata = files as u64 * METADATA_OF_FILE + METADATA_LEAST;
    (metadata, 2 * metadata + REST_BYTES)
}

/// Makes the files.
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

/// Renames as many files as fill a log, of no more than half of them, or gives them their names
/// back.
fn rename(tree: &impl FileTree, files: usize) -> Result<()> {
    let [from, to] = match tree.stat(&name("old", 0)) {
        Ok(_) => ["old", "new"],
        Err(_) => ["new", "old"],
    };
    let mut renames = 0..(LOG_BYTES / LOG_OF_RENAME).min(files / 2);
    renames.try_for_each(|file| tree.rename(&name(from, file), &name(to, file)))
}

/// What a killed process left in memory goes with the pool.
impl Drop for Left {
    fn drop(&mut self) {
        let options = PoolOptions::new().discard_image(true);
        // A pool that was closed, or never made, has left nothing.
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

/// What the process does that is to be killed: opens the pool, renames as many files as fill the
/// log, says how many bytes are in it, and is gone.
///
/// # Errors
/// The pool is not one that [`Left::make`] made, or the medium failed.
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
