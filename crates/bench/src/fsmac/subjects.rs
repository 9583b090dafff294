//! The file systems to measure: pools on the disk, and a peer, ext4 on a loop device over a file
//! there.

use std::path::Path;

use tempfile::TempDir;
use vellum::media::MediaChoice;
use vellum::{CreateOptions, DataOptions, Durability, Pool, PoolOptions, Volume};

use super::FsmacOptions;
use super::disk::Disk;
use super::meter::{Grids, Meter, Sheet};
use crate::Result;
use crate::interrupt::Interrupt;
use crate::peer::{Mounting, Peer, ext4_on};
use crate::scratch::dir_in;
use crate::workloads::{FileTree, KernelDir};

/// The pool with a log.
pub(super) const LOGGED: &str = "logged";
/// The same, but data bypass the cache of the disk's file system.
const DIRECT: &str = "logged, direct";
/// The same two, with files whose blocks are scattered one by one.
const SCATTERED: &str = "logged, scattered";
const SCATTERED_DIRECT: &str = "logged, direct, scattered";
/// A pool without a log, which promises nothing after a power cut.
const PLAIN: &str = "no log";
/// The pool with its metadata in memory and its data on the disk.
pub(super) const SPLIT: &str = "split";
/// The pool with everything in memory, which keeps no undo log.
const MEMORY: &str = "no undo log";

/// The options and tools of a run.
pub(super) struct Setting<'a> {
    pub(super) options: &'a FsmacOptions,
    pub(super) interrupt: &'a Interrupt,
    disk: Option<Disk>,
}

/// A file system to measure.
pub(super) struct Subject {
    name: &'static str,
    by: By,
}

enum By {
    Pool(Pooled),
    Peer(
        KernelDir,
        #[expect(dead_code, reason = "is undone when it is dropped")] Box<Peer>,
    ),
}

struct Pooled {
    volume: Volume,
    // Field order: the pool is closed before its directories are removed.
    _pool: Pool,
    _dirs: Vec<TempDir>,
}

impl Subject {
    fn pool(name: &'static str, pool: Pool, dirs: Vec<TempDir>) -> Self {
        let pooled = Pooled {
            volume: pool.volume(),
            _pool: pool,
            _dirs: dirs,
        };
        Self {
            name,
            by: By::Pool(pooled),
        }
    }
}

/// Creates a pool, and opens it.
fn create_as(path: &Path, options: &CreateOptions, opened: PoolOptions) -> Result<Pool> {
    let pool = options.create(path)?;
    pool.close()?;
    let opened = opened.media(options.media);
    Ok(opened.open(path)?)
}

/// Options for this durability of operations.
fn durable(durability: Durability) -> PoolOptions {
    PoolOptions::new().durability(durability)
}

/// Work that every side does.
pub(super) trait Work {
    /// Runs once, untimed.
    fn fill<P: FileTree>(&self, _place: &P) -> Result<()> {
        Ok(())
    }

    /// Runs a round.
    fn round<P: FileTree>(&self, tree: &P, meter: &mut Meter<'_>) -> Result<()>;
}

impl<'a> Setting<'a> {
    pub(super) fn new(options: &'a FsmacOptions, interrupt: &'a Interrupt) -> Result<Self> {
        Ok(Self {
            options,
            interrupt,
            disk: Disk::of(&options.disk)?,
        })
    }

    /// The disk's name, for reports.
    pub(super) fn disk_name(&self) -> String {
        let counted = self.disk.as_ref().map(Disk::name);
        counted.unwrap_or("one without counters").to_owned()
    }

    /// A pool with a log, and the peer.
    pub(super) fn usual(&self) -> Result<Vec<Subject>> {
        Ok(vec![self.pool(LOGGED, MediaChoice::Logged)?, self.peer()?])
    }

    /// Pools with and without a log.
    pub(super) fn with_and_without(&self) -> Result<Vec<Subject>> {
        Ok(vec![
            self.pool(LOGGED, MediaChoice::Logged)?,
            self.pool(PLAIN, MediaChoice::File)?,
        ])
    }

    /// A pool with its metadata in memory and an undo log, and one with everything in memory and
    /// none.
    pub(super) fn split_and_memory(&self) -> Result<Vec<Subject>> {
        let dirs = vec![dir_in(&self.options.metadata)?];
        let path = dirs[0].path().join("pool");
        let options = self.create_options(MediaChoice::Memory);
        let memory = Subject::pool(MEMORY, options.create(path)?, dirs);
        let disk = &self.options.disk;
        Ok(vec![self.split(disk, Durability::default())?, memory])
    }

    /// The split pool with its data in memory as well, so that syncing them costs only a call.
    pub(super) fn split_in_memory(&self) -> Result<Vec<Subject>> {
        let memory = &self.options.metadata;
        Ok(vec![self.split(memory, Durability::default())?])
    }

    /// The split pool, the one with a log, and the peer, all with the same mount option.
    pub(super) fn with(&self, durability: Durability, option: &str) -> Result<Vec<Subject>> {
        Ok(vec![
            self.split(&self.options.disk, durability)?,
            self.opened(LOGGED, MediaChoice::Logged, durable(durability))?,
            self.peer_with(option)?,
        ])
    }

    /// Pools with a log, and the peer; none of them has bytes of files in memory twice.
    pub(super) fn cached_once(&self) -> Result<Vec<Subject>> {
        let whole = self.create_options(MediaChoice::Logged);
        let scattered = whole.clone().fragmentation(1000);
        let peer = Mounting {
            is_cached_once: true,
            ..Mounting::default()
        };
        let pool = |name, options, direct| {
            let opened = PoolOptions::new().direct(direct);
            self.made(name, options, opened)
        };
        Ok(vec![
            pool(LOGGED, &whole, false)?,
            pool(DIRECT, &whole, true)?,
            pool(SCATTERED, &scattered, false)?,
            pool(SCATTERED_DIRECT, &scattered, true)?,
            self.peer_as(peer)?,
        ])
    }

    fn pool(&self, name: &'static str, media: MediaChoice) -> Result<Subject> {
        self.opened(name, media, PoolOptions::default())
    }

    fn opened(
        &self,
        name: &'static str,
        media: MediaChoice,
        options: PoolOptions,
    ) -> Result<Subject> {
        self.made(name, &self.create_options(media), options)
    }

    fn made(
        &self,
        name: &'static str,
        options: &CreateOptions,
        opened: PoolOptions,
    ) -> Result<Subject> {
        let dirs = vec![dir_in(&self.options.disk)?];
        let path = dirs[0].path().join("pool");
        let pool = create_as(&path, options, opened)?;
        Ok(Subject::pool(name, pool, dirs))
    }

    /// Metadata in memory, data in a file in `data`.
    fn split(&self, data: &Path, durability: Durability) -> Result<Subject> {
        let dirs = vec![dir_in(&self.options.metadata)?, dir_in(data)?];
        let options = self
            .create_options(MediaChoice::Memory)
            .size_bytes(0)
            .data(Some(
                DataOptions::new(dirs[1].path().join("data")).size_bytes(self.options.pool_bytes),
            ));
        let pool = create_as(&dirs[0].path().join("pool"), &options, durable(durability))?;
        Ok(Subject::pool(SPLIT, pool, dirs))
    }

    fn create_options(&self, media: MediaChoice) -> CreateOptions {
        CreateOptions::new(self.options.pool_bytes)
            .media(media)
            .mapping(vellum::MappingKind::Extent)
    }

    /// The peer's name in the list of peers.
    pub(super) fn peer_name(&self) -> String {
        let named = self.options.peer.clone();
        named.unwrap_or_else(|| ext4_on(&self.options.disk))
    }

    fn peer(&self) -> Result<Subject> {
        self.peer_with("defaults")
    }

    fn peer_with(&self, option: &str) -> Result<Subject> {
        self.peer_as(Mounting {
            options: option,
            ..Mounting::default()
        })
    }

    fn peer_as(&self, how: Mounting<'_>) -> Result<Subject> {
        let peer = Peer::mounted(&self.peer_name(), self.options.pool_bytes, how)?;
        let dir = KernelDir::open(peer.dir())?;
        Ok(Subject {
            name: peer.kind,
            by: By::Peer(dir, Box::new(peer)),
        })
    }

    /// Lets every subject do `work`, round by round. Sentences are about the first subject, and
    /// ratios compare with the last one.
    pub(super) fn measure(
        &self,
        sheet: &Sheet,
        subjects: &[Subject],
        work: &impl Work,
    ) -> Result<Grids> {
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
        let disk = self.disk.as_ref();
        let mut grids = Grids::new(sheet, &names, names[names.len() - 1], disk);
        for subject in subjects {
            match &subject.by {
                By::Pool(pool) => work.fill(&pool.volume)?,
                By::Peer(dir, _) => work.fill(dir)?,
            }
        }
        for round in 0..=self.options.rounds {
            for (side, subject) in subjects.iter().enumerate() {
                self.interrupt.check()?;
                let grids = &mut grids;
                let mut meter = Meter {
                    grids,
                    disk,
                    round,
                    side,
                };
                match &subject.by {
                    By::Pool(pool) => work.round(&pool.volume, &mut meter)?,
                    By::Peer(dir, _) => work.round(dir, &mut meter)?,
                }
            }
        }
        Ok(grids)
    }
}
