//! POSIX operations, one file per family. This module joins the namespace and the mapping, which do
//! not know each other.
//!
//! Every public operation is one bracket (`op_begin` to `op_end`). An operation that finds no space
//! ends, does the background's work in place, and is tried once more ([`Fs::with_room`]). So
//! `ENOSPC` means full. An operation that meets a move that keeps names from changing also waits
//! outside its bracket, until the move ends.

mod acl;
mod attr;
mod background;
mod change;
mod copy;
mod cred;
mod dir;
mod evolve;
pub(crate) mod file;
mod flags;
mod list;
pub(crate) mod locks;
mod metadata_space;
mod new_file;
mod node;
mod open;
mod path;
mod quotas;
mod trim;
mod xattr;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use vellum_media::{
    ImageMemory, Isa, Medium, Memories, Memory, Persistent, Real, SimPool, Simulated,
};

pub use attr::{Attr, SetAttr, SetTime, StatFs};
pub use copy::{Copied, CopyScope};
pub use cred::{Access, Cred};
pub use dir::RenameFlags;
pub use file::{Allocate, MappingProbe, View, ViewSource, gather_metadata, settle};
pub use flags::FileFlags;
pub use list::ListPosition;
pub use locks::{HeldLock, LockCancel, LockKind, LockOwner, LockRange, LockWait};
pub use node::Node;
pub use open::{Handle, OpenOptions};
pub use quotas::{Quota, QuotaDefaults, QuotaKind, QuotaLimits};
pub use xattr::XattrMode;

use crate::core::cachelet::Cachelet;
use crate::core::slots::{Op, Tally, pause};
use crate::core::{Core, header};
use crate::devices::replica;
use crate::durability::commit::Durability;
use crate::error::{Error, Result, Retry};
use crate::logs::redo::{Log, LogCounts};
use crate::logs::undo::UndoCounts;
use crate::mapping::Mapping;
use crate::namespace::Namespace;
use crate::reading::{Costs, Reading, Rule};

/// How often an operation frees arena memory and tries again before it fails.
const RECLAIMS_FOR_MEMORY: u32 = 8;

/// A mounted file system.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// use vellum::{Cred, OpenOptions};
///
/// let (fs, cred) = (pool.fs(), Cred::current());
/// let mail = fs.mkdir(&cred, &fs.root(), b"mail", 0o755)?;
/// let options = OpenOptions::new().read(true).write(true);
/// let handle = fs.create(&cred, &mail, b"1", &options)?;
/// handle.write_at(0, b"Hello")?;
/// assert_eq!(pool.volume().read("/mail/1")?, b"Hello");
/// # Ok::<(), vellum::Error>(())
/// ```
pub struct Fs<M: Memories> {
    pub(crate) core: Core<M>,
    pub(crate) namespace: Box<dyn Namespace<M>>,
    pub(crate) mapping: Box<dyn Mapping<M>>,
    /// It changes when the pool grows.
    pub(crate) superblock: RwLock<vellum_layout::Superblock>,
    /// Held while the pool grows.
    pub(crate) growth: Mutex<()>,
    /// The most data blocks that the pool can come to have until it is closed.
    pub(crate) most_blocks: u64,
    pub(crate) reading: Reading,
    /// Whether a rename first makes a large directory the root of an area, where there are areas.
    pub(crate) roots_large: bool,
    /// Which operations commit before they return.
    pub(crate) durability: Durability,
    /// The interval of automatic commits.
    pub(crate) commit_every: Duration,
    /// The root directory. The mount holds a reference of its own to it.
    pub(crate) root: Cachelet,
}

impl<M: Memories> std::fmt::Debug for Fs<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs")
            .field("uuid", &self.superblock().uuid_text())
            .finish_non_exhaustive()
    }
}

impl<M: Memories> Fs<M> {
    /// Runs a modifying operation in a bracket.
    fn with_room<T>(&self, mut run: impl FnMut(&Op<'_, M>) -> Result<T>) -> Result<T> {
        self.with_op_once(|op| {
            op.core.check_changeable()?;
            run(op)
        })
    }

    /// Runs an operation in a bracket. If there is no space (reading needs some in the arena), does
    /// the background's work and tries once more. For space in the arena it tries a few times,
    /// because others may take what was freed.
    pub(crate) fn with_op<T>(&self, run: impl FnMut(&Op<'_, M>) -> Result<T>) -> Result<T> {
        self.with_room_made(run, true)
    }

    /// As [`Self::with_op`], but does not repeat the operation after bytes were lost.
    pub(crate) fn with_op_once<T>(&self, run: impl FnMut(&Op<'_, M>) -> Result<T>) -> Result<T> {
        self.with_room_made(run, false)
    }

    fn with_room_made<T>(
        &self,
        mut run: impl FnMut(&Op<'_, M>) -> Result<T>,
        repeats: bool,
    ) -> Result<T> {
        let mut reclaims = 0;
        let mut has_settled = false;
        loop {
            let done = self.bracket(&mut run, repeats);
            let most = match &done {
                Err(Error::NoSpace(what)) => {
                    if !self.make_room(what, reclaims > 0)? {
                        return done;
                    }
                    reclaims += 1;
                    continue;
                }
                Err(Error::OutOfMemory(_)) => RECLAIMS_FOR_MEMORY,
                Err(Error::Retry(Retry::Wait)) => {
                    self.wait_for_move();
                    continue;
                }
                Err(Error::QuotaExceeded) if !has_settled => {
                    // Files that were removed but are not freed yet still count.
                    has_settled = true;
                    self.free_removed()?;
                    continue;
                }
                Err(Error::Retry(Retry::Paused)) => {
                    self.core.wait_for_pause();
                    continue;
                }
                _ => return done,
            };
            if reclaims >= most {
                return done;
            }
            self.reclaim_now()?;
            reclaims += 1;
        }
    }

    /// Commits a change that `durability`, or a stricter mode, makes durable on return. Runs
    /// outside any operation.
    #[inline]
    pub(crate) fn commit_from<T>(&self, durability: Durability, done: Result<T>) -> Result<T> {
        if self.durability >= durability && done.is_ok() {
            self.commit_change()?;
        }
        done
    }

    #[inline(never)]
    fn commit_change(&self) -> Result<()> {
        match self.sync_files() {
            // A clean close has made the change durable.
            Err(Error::Closed) if self.core.is_closed_cleanly() => Ok(()),
            synced => synced,
        }
    }

    /// Waits, outside any operation, until no directory is being moved with everything below it.
    fn wait_for_move(&self) {
        let mut tries = 0;
        while self.core.arena.load(header::STILL, Ordering::Acquire) != 0 {
            pause(&self.core.arena, &mut tries);
        }
    }

    /// Runs one operation. With `repeats`, runs it again if bytes were lost meanwhile: then it is
    /// known which.
    fn bracket<T>(&self, run: &mut dyn FnMut(&Op<'_, M>) -> Result<T>, repeats: bool) -> Result<T> {
        loop {
            let op = self.core.op_begin()?;
            let result = run(&op);
            match op.check_media() {
                Ok(()) => return self.core.noting(result),
                Err(_) if repeats && op.is_unsure() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks whether this process may still use the file system, without a system call.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// fs.check_use()?;
    /// pool.close()?;
    /// assert!(matches!(fs.check_use(), Err(vellum::Error::Closed)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the process is a fork of the one that has the pool open ([`Error::Forked`]), or if
    /// the pool was closed ([`Error::Closed`]).
    pub fn check_use(&self) -> Result<()> {
        self.core.check_use()
    }

    /// The root directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// let fs = pool.fs();
    /// assert_eq!(fs.path_of(&fs.root())?, b"/");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn root(self: &Arc<Self>) -> Node<M> {
        Node::hold(self, self.root)
    }

    /// Makes every earlier change survive whatever the medium can survive.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// # let pool = vellum::Pool::open(&path)?;
    /// pool.volume().write("/f", "kept")?;
    /// pool.fs().sync()?;
    /// assert!(pool.fs().log_counts().is_some_and(|log| log.commits > 0));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the medium does.
    pub fn sync(&self) -> Result<()> {
        self.core.check_use()?;
        // Operations flush access times and link counts but do not wait for them.
        self.core.pool.fence(crate::sites::SYNC_DURABLE);
        self.sync_files()
    }

    /// Makes earlier changes to files survive whatever the medium can survive. What operations
    /// promise on return was fenced by them.
    pub(crate) fn sync_files(&self) -> Result<()> {
        self.core.make_durable(None)
    }

    /// Writes the oldest records of the log home, while operations and commits go on: at most 4
    /// MiB, or one record if it is longer. Returns the number of records. Production calls it from
    /// a thread once half of the log is used; simulations call it where they want it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// # let pool = vellum::Pool::open(&path)?;
    /// # let fs = pool.fs();
    /// pool.volume().write("/f", "text")?;
    /// fs.sync()?;
    /// while fs.checkpoint()? > 0 {}
    /// assert_eq!(fs.log_counts().map(|log| log.used_bytes), Some(0));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the medium does. Then nothing is committed any more, and changes are refused.
    pub fn checkpoint(&self) -> Result<u64> {
        let core = &self.core;
        core.check_use()?;
        match (core.log(), core.pool.disk()) {
            (Some(log), Some(disk)) if !log.is_over() => log
                .checkpoint(disk)
                .inspect_err(|error| core.record_damage(error)),
            _ => Ok(0),
        }
    }

    /// The log, if this process has the pool open. In a forked child nobody would release the log's
    /// locks.
    fn log_in_use(&self) -> Option<&Log> {
        self.core.log().filter(|_| self.core.check_use().is_ok())
    }

    /// Registers the thread that is unparked when more than half of the log is used, and that then
    /// calls [`checkpoint`](Self::checkpoint). Only the first call counts.
    pub fn wake_when_half_full(&self, background: std::thread::Thread) {
        if let Some(log) = self.log_in_use() {
            log.wake_when_half_full(background);
        }
    }

    /// Whether more than half of the log is used and may be checkpointed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::Pool::open(&path)?;
    /// assert!(!pool.fs().is_log_half_full()); // nothing was written yet
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn is_log_half_full(&self) -> bool {
        self.log_in_use().is_some_and(Log::is_half_full)
    }

    /// Counts of the log's work since the opening. `None` if the pool has no log, is open for
    /// reading only, or is not open for this process.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::Pool::open(&path)?;
    /// pool.volume().write("/f", "text")?;
    /// pool.fs().sync()?;
    /// assert!(pool.fs().log_counts().is_some_and(|log| log.bytes > 0));
    /// assert!(vellum::Pool::memory(16 << 20)?.fs().log_counts().is_none());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn log_counts(&self) -> Option<LogCounts> {
        self.log_in_use().map(Log::counts)
    }

    /// Counts of undo records since the opening. `None` if the pool has no undo log or is open for
    /// reading only.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
    /// # let external = vellum::DataOptions::new(&data).size_bytes(16 << 20);
    /// # let options = vellum::CreateOptions::new(0).media(vellum::MediaChoice::Memory);
    /// let pool = options.data(Some(external)).create(&path)?; // metadata in memory
    /// pool.volume().write("/f", "text")?;
    /// pool.fs().sync()?;
    /// assert!(pool.fs().undo_counts().is_some_and(|undo| undo.commits > 0));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn undo_counts(&self) -> Option<UndoCounts> {
        let commits = self.core.commits.as_ref()?;
        Some(commits.undo_log()?.counts())
    }

    /// Whether changes become durable by commits ([`sync`](Self::sync) makes one), not each by
    /// itself.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// assert!(vellum::Pool::open(&path)?.fs().commits()); // a logged pool
    /// assert!(!vellum::Pool::memory(16 << 20)?.fs().commits());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn commits(&self) -> bool {
        self.core.commits.is_some()
    }

    /// The interval at which the program that has the pool open should commit.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use std::time::Duration;
    ///
    /// let options = vellum::PoolOptions::new().commit_every(Duration::from_secs(1));
    /// assert_eq!(options.open(&path)?.fs().commit_every(), Duration::from_secs(1));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn commit_every(&self) -> Duration {
        self.commit_every
    }

    /// What is durable when an operation returns.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{Durability, PoolOptions};
    ///
    /// let pool = PoolOptions::new().durability(Durability::Sync).open(&path)?;
    /// assert_eq!(pool.fs().durability(), Durability::Sync);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The directory in memory in which the metadata of a logged pool survive a kill, for the next
    /// process. `None` if a kill destroys them, or the medium holds them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{ImageLocation, PoolOptions};
    ///
    /// let pool = PoolOptions::new().image(ImageLocation::Process).open(&path)?;
    /// assert_eq!(pool.fs().image_dir(), None); // a kill loses it
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn image_dir(&self) -> Option<std::path::PathBuf> {
        self.core.log().and_then(Log::image_dir)
    }

    /// Whether that image, which a kill should leave, was removed by somebody else.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::Pool::open(&path)?;
    /// assert!(!pool.fs().has_lost_image());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn has_lost_image(&self) -> bool {
        self.core.log().is_some_and(Log::has_lost_image)
    }

    /// The superblock of the pool.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// assert_eq!(pool.fs().superblock().pool_bytes, 16 << 20);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn superblock(&self) -> vellum_layout::Superblock {
        let superblock = self.superblock.read();
        superblock.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The identity of the pool for users.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        let superblock = self.superblock.read();
        let superblock = superblock.unwrap_or_else(PoisonError::into_inner);
        superblock.shown_uuid()
    }

    /// The kind of medium that the pool's bytes lie on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{MediaKind, Pool};
    ///
    /// assert_eq!(Pool::open(&path)?.fs().media_kind(), MediaKind::Logged);
    /// assert_eq!(Pool::memory(16 << 20)?.fs().media_kind(), MediaKind::Memory);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn media_kind(&self) -> vellum_media::MediaKind {
        self.core.pool.kind()
    }

    /// Whether the file system is open for reading only.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::PoolOptions::new().read_only(true).open(&path)?;
    /// assert!(pool.fs().is_read_only());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn is_read_only(&self) -> bool {
        self.core.read_only
    }

    /// Whether damage was found since the opening. Then nothing is written any more.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// assert!(!pool.fs().is_damaged());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn is_damaged(&self) -> bool {
        self.core.is_damaged()
    }

    /// Every byte of the pool, as a crash leaves it after everything was persisted: for inspection.
    /// For a logged pool, the bytes that were written.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// assert_eq!(pool.fs().image().len(), 16 << 20);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.core.pool.len() as usize];
        match self.core.pool.disk() {
            Some(disk) if disk.read(0, &mut image).is_ok() => {}
            _ => self.core.pool.read(0, &mut image),
        }
        image
    }

    /// The rule by which reads choose between search and page table.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// use vellum::reading::Rule;
    ///
    /// assert_eq!(pool.fs().read_rule(), Rule::Layout);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn read_rule(&self) -> Rule {
        self.reading.rule()
    }

    /// Sets that rule. Every rule returns the same bytes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// use vellum::reading::Rule;
    ///
    /// pool.fs().set_read_rule(Rule::Search);
    /// assert_eq!(pool.fs().read_rule(), Rule::Search);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn set_read_rule(&self, rule: Rule) {
        self.reading.set_rule(rule);
    }

    /// The cost of reading here: the known one ([`Self::knows_read_costs`]), else one measured now.
    /// That takes 7 ms on an AMD EPYC, with searches that find nothing, because there is no file to
    /// search. `None` if the pool has no page tables, is too small to measure, or lies on a disk
    /// and memory cannot hold 16 MiB of it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// if let Some(costs) = pool.fs().read_costs() {
    ///     println!("{costs}; a page table pays: {}", costs.may_pay());
    /// }
    /// assert!(!pool.fs().knows_read_costs()); // it was only measured
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn read_costs(&self) -> Option<Costs> {
        if let Some(known) = self.reading.costs(&self.core.arena) {
            return Some(*known);
        }
        let op = self.core.op_begin().ok()?;
        self.files().measure(&op, None, file::Cold::Read)
    }

    /// Whether the cost of reading is known, so that rules can choose. It was measured by a file
    /// that was read for long ([`Handle::read_costs`] measures at once), or set.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// assert!(!pool.fs().knows_read_costs()); // no file was read yet
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn knows_read_costs(&self) -> bool {
        self.reading.costs(&self.core.arena).is_some()
    }

    /// Sets the cost of reading instead of measuring it, unless it is known already. Returns the
    /// cost that is in force.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// let costs = vellum::reading::Costs { search_page_ps: 1_800_000, ..Default::default() };
    /// assert_eq!(pool.fs().set_read_costs(costs), Some(costs));
    /// assert!(pool.fs().knows_read_costs());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn set_read_costs(&self, costs: Costs) -> Option<Costs> {
        self.core.check_use().ok()?;
        self.reading.learn(&self.core.arena, || Some(costs))
    }

    /// The DRAM that cached files take, and the number of cached files.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// let before = pool.fs().cache_usage().index_entries;
    /// pool.volume().write("/f", "text")?;
    /// assert_eq!(pool.fs().cache_usage().index_entries, before + 1);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn cache_usage(&self) -> CacheUsage {
        let word = |at| self.core.arena.load(at, Ordering::Relaxed);
        CacheUsage {
            cachelets: self.core.cachelets_used(),
            index_entries: self.core.total(Tally::Names),
            index_buckets: self.core.map.bucket_count
                + word(header::OVERFLOW_USED)
                + 2 * word(header::NODES_USED),
            arena_bytes: self.core.map.bytes,
        }
    }
}

/// Access for simulations only. It is safe to hand out a simulated pool because views of it are
/// copies ([`crate::File::view`]). The holder of a mapped pool could store to bytes that others
/// view in place.
impl Fs<Simulated> {
    /// The pool's memory, which records, and can be slowed down.
    pub fn pool(&self) -> &SimPool {
        &self.core.pool
    }
}

impl Fs<Real> {
    /// The instructions that flush and copy.
    pub fn isa(&self) -> Isa {
        self.core.pool.isa()
    }

    /// The paths and sizes of the external data devices, in the order of segments.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let data = dir.path().join("data");
    /// # let external = vellum::DataOptions::new(&data).size_bytes(16 << 20);
    /// let pool = vellum::CreateOptions::new(0).data(Some(external)).create(&path)?;
    /// assert_eq!(pool.fs().data_devices().next(), Some((&*data, 16 << 20)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn data_devices(&self) -> impl Iterator<Item = (&std::path::Path, u64)> {
        let data = self.core.pool.data();
        data.map(|data| (data.path(), data.len()))
    }

    /// Whether data bypass the kernel's page cache.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// assert!(!pool.fs().is_direct()); // see `PoolOptions::direct`
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn is_direct(&self) -> bool {
        self.core.pool.is_direct()
    }

    /// Whether commits flush the caches of devices.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::PoolOptions::new().barriers(false).open(&path)?;
    /// assert!(!pool.fs().has_barriers());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn has_barriers(&self) -> bool {
        self.core.pool.has_barriers()
    }

    /// Disables device cache flushes in later commits.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// # let pool = vellum::Pool::open(&path)?;
    /// pool.fs().leave_out_barriers();
    /// pool.volume().write("/import", "much at once")?;
    /// pool.fs().keep_barriers()?;
    /// assert!(pool.fs().has_barriers());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn leave_out_barriers(&self) {
        self.core.pool.leave_out_barriers();
    }

    /// Enables device cache flushes in later commits, and flushes what was committed without them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::PoolOptions::new().barriers(false).open(&path)?;
    /// pool.volume().write("/f", "text")?;
    /// pool.fs().keep_barriers()?; // the file survives a power cut from here on
    /// assert!(pool.fs().has_barriers());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the operating system does. Then nothing is committed any more.
    pub fn keep_barriers(&self) -> Result<()> {
        let core = &self.core;
        core.check_use()?;
        if !core.pool.keep_barriers() {
            return Ok(());
        }
        // A commit that runs without flushes now has ended when the next one returns.
        let committed = self.sync();
        let flushed = core.pool.sync().map_err(Error::from);
        if let (Err(error), Some(commits)) = (&flushed, &core.commits) {
            // As after a failed commit: no later process may adopt what may not have arrived.
            commits.fail(&core.pool);
            core.record_damage(error);
        }
        committed.and(flushed)
    }

    /// Whether the metadata replica on the external data device is complete, so that the device
    /// alone holds everything. `None` if it has no replica.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
    /// # let external = vellum::DataOptions::new(&data).size_bytes(16 << 20);
    /// # let options = vellum::CreateOptions::new(0).media(vellum::MediaChoice::Memory);
    /// let pool = options.data(Some(external)).create(&path)?;
    /// assert_eq!(pool.fs().has_replica(), Some(false)); // until it is exported
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn has_replica(&self) -> Option<bool> {
        replica::is_whole(self.core.pool.data().next()?, &self.superblock())
    }

    /// Makes the page at offset `at` unreadable, as a poisoned line does. The file keeps its bytes.
    /// For tests.
    ///
    /// # Errors
    /// Fails if `at` is outside the pool, or if the operating system fails.
    pub fn take_away(&self, at: u64) -> std::io::Result<()> {
        self.core.pool.take_away(at)
    }
}

/// Use of the arena by a file system.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// # volume.create_dir("/d")?;
/// let usage = pool.fs().cache_usage();
/// println!("{} names in an arena of {} bytes", usage.index_entries, usage.arena_bytes);
/// assert!(usage.cachelets >= 2); // `/` and `/d`
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// Cachelets in use (128 bytes each): those of files, and some that threads hold ready.
    pub cachelets: u64,
    /// Names in the index.
    pub index_entries: u64,
    /// Buckets of the index (64 bytes each; a node of a radix tree is two).
    pub index_buckets: u64,
    /// Bytes of the arena. Pages that were never touched cost no memory.
    pub arena_bytes: u64,
}
