//! Pools of many empty files that were closed, or that another process left open when it was
//! killed.
//!
//! The killed process is a separate one, which renames files and ends without closing anything. The
//! next opening uses what that process left in memory. Of a pool with a log, an opening with the
//! option to discard it finds what a power cut would leave: the log.

use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rustix::fs::Advice;
use rustix::process::Signal;
use vellum::media::MediaChoice;
use vellum::{CreateOptions, FoundImage, MappingKind, Pool, PoolOptions};

use crate::Result;
use crate::error::{Error, doing, expect};
use crate::interrupt::Interrupt;
use crate::library::{Library, make_pool};
use crate::workloads::{FileTree, Purpose};

/// Files of a directory.
pub(crate) const DIR_FILES: usize = 1000;
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
/// The commands that run measurements of openings.
const COMMANDS: [&str; 2] = ["fsmac", "scale"];

/// How a pool was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Closed,
    /// By a process that was killed.
    Killed,
    /// The same, and of a pool with a log nothing is used but the log.
    Cut,
}

/// What an opening took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) time: Duration,
    /// Bytes of private memory and of the arena.
    pub(crate) dram_bytes: u64,
}

/// A pool that a process opens and leaves.
#[derive(Debug)]
pub(crate) struct Left {
    path: PathBuf,
    files: usize,
}

impl Left {
    /// Creates the pool with its files, and closes it.
    pub(crate) fn make(
        path: PathBuf,
        options: &CreateOptions,
        files: usize,
        (interrupt, progress): (&Interrupt, &ProgressBar),
    ) -> Result<Self> {
        let pool = make_pool(&path, options)?;
        let left = Self { path, files };
        fill(&pool.volume(), files, (interrupt, progress))?;
        pool.close()?;
        Ok(left)
    }

    /// Lets another process open the pool, rename files, and be killed; returns the bytes in the
    /// log at that time.
    pub(crate) fn leave(&self, is_synced: bool) -> Result<u64> {
        let program = std::env::current_exe().map_err(doing("find this program"))?;
        let words = std::env::args_os().skip(1);
        let mut child = Command::new(program)
            .args(words.take_while(|word| COMMANDS.iter().all(|command| word != command)))
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

    /// Opens the pool, which is in this state, checks that everything is there, and closes it.
    pub(crate) fn open(&self, state: State) -> Result<Opening> {
        let options = PoolOptions::new().discard_image(state == State::Cut);
        let before = Library::resident_bytes()?;
        let begin = Instant::now();
        let pool = options.open(&self.path)?;
        let time = begin.elapsed();
        let dram_bytes = Library::resident_bytes()?.saturating_sub(before);
        let opened = pool.opened();
        expect("closed cleanly", opened.was_clean, state == State::Closed)?;
        let image = match (state, pool.fs().log_counts()) {
            (State::Killed, Some(_)) => FoundImage::Adopted,
            _ => FoundImage::None,
        };
        expect("what was left", opened.image, image)?;
        pool.volume().stat(&name("old", self.files - 1))?;
        pool.close()?;
        Ok(Opening { time, dram_bytes })
    }

    /// Drops the kernel's cached pages of the pool.
    pub(crate) fn forget(&self) -> Result<()> {
        forget(&self.path)
    }
}

/// The memory that a killed process left is removed together with the pool.
impl Drop for Left {
    fn drop(&mut self) {
        let options = PoolOptions::new().discard_image(true);
        // A pool that was closed or never created has left nothing.
        let _ = Pool::settle_image(&self.path, &options);
    }
}

/// Drops the kernel's cached pages of a file.
pub(crate) fn forget(path: &Path) -> Result<()> {
    let drop = |file: std::fs::File| {
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(())
    };
    let opened = std::fs::File::open(path);
    opened.and_then(drop).map_err(doing("drop a file's pages"))
}

/// The bytes of metadata for this many files.
pub(crate) fn metadata_bytes(files: usize) -> u64 {
    files as u64 * METADATA_OF_FILE + METADATA_LEAST
}

/// The options of a pool with a log, and with space for this many files.
pub(crate) fn logged_pool(files: usize) -> CreateOptions {
    CreateOptions::new(disk_bytes(files))
        .media(MediaChoice::Logged)
        .metadata_bytes(Some(metadata_bytes(files)))
        .mapping(MappingKind::Extent)
}

/// The size of a pool with a log, and of an ext4, with space for this many files.
pub(crate) fn disk_bytes(files: usize) -> u64 {
    2 * metadata_bytes(files) + REST_BYTES
}

/// Creates the files, in directories of [`DIR_FILES`].
pub(crate) fn fill(
    tree: &impl FileTree,
    files: usize,
    (interrupt, progress): (&Interrupt, &ProgressBar),
) -> Result<()> {
    for file in 0..files {
        if file % DIR_FILES == 0 {
            interrupt.check()?;
            progress.inc(DIR_FILES.min(files - file) as u64);
            tree.make_dir(&text(dir_of(file)))?;
        }
        tree.open(&name("old", file), Purpose::Create)?;
    }
    Ok(())
}

/// Renames the number of files that fills a log, at most half of all files, or gives them their old
/// names back.
pub(crate) fn rename(tree: &impl FileTree, files: usize) -> Result<()> {
    let [from, to] = match tree.stat(&name("old", 0)) {
        Ok(_) => ["old", "new"],
        Err(_) => ["new", "old"],
    };
    let mut renames = 0..(LOG_BYTES / LOG_OF_RENAME).min(files / 2);
    renames.try_for_each(|file| tree.rename(&name(from, file), &name(to, file)))
}

fn dir_of(file: usize) -> String {
    (file / DIR_FILES).to_string()
}

/// The path of a file that [`fill`] created, which is called `old`.
pub(crate) fn name(kind: &str, file: usize) -> CString {
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
pub(crate) fn leave(path: &Path, files: usize, is_synced: bool) -> Result<()> {
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
