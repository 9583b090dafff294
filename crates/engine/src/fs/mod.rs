//! POSIX operations: one file per family. This room joins the namespace and the mapping; neither
//! knows the other.
//!
//! Every public operation is one bracket (`op_begin` to `op_end`). Where the pool has no room, the
//! operation is ended, the background's work is done in place, and it is tried once more
//! ([`Fs::with_room`]), so that `ENOSPC` means full. In the same way it waits outside for the end
//! of a move that keeps names from changing.

mod attr;
mod background;
mod cred;
mod dir;
mod evolve;
pub(crate) mod file;
mod list;
mod node;
mod open;
mod path;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vellum_media::{Isa, Memories, Memory, Persistent, Real, SimPool, Simulated};

pub use attr::{Attr, SetAttr, SetTime, StatFs};
pub use cred::{Access, Cred};
pub use file::{Allocate, MappingProbe, View, ViewSource, gather_metadata, settle};
pub use list::ListPosition;
pub use node::Node;
pub use open::{Handle, OpenOptions, RenameFlags};

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

/// How often an operation has room made for it in the arena, before there is none.
const RECLAIMS_FOR_MEMORY: u32 = 8;

/// A mounted file system.
pub struct Fs<M: Memories> {
    pub(crate) core: Core<M>,
    pub(crate) namespace: Box<dyn Namespace<M>>,
    pub(crate) mapping: Box<dyn Mapping<M>>,
    pub(crate) superblock: vellum_layout::Superblock,
    pub(crate) reading: Reading,
    /// A large directory that is renamed becomes the root of an area first, where there are areas.
    pub(crate) roots_large: bool,
    /// What commits before it returns.
    pub(crate) durability: Durability,
    /// What commits by itself does so as often.
    pub(crate) commit_every: Duration,
    /// Held by a reference of its own for as long as the file system is mounted.
    pub(crate) root: Cachelet,
}

impl<M: Memories> std::fmt::Debug for Fs<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs")
            .field("uuid", &self.superblock.uuid_text())
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

    /// Runs an operation in a bracket; if there is no room (reading needs some in the arena), does
    /// the background's work and tries once more; for room in the arena a few times, because others
    /// may take what was found.
    pub(crate) fn with_op<T>(&self, run: impl FnMut(&Op<'_, M>) -> Result<T>) -> Result<T> {
        self.with_room_made(run, true)
    }

    /// The same, but not repeated because bytes were lost meanwhile.
    pub(crate) fn with_op_once<T>(&self, run: impl FnMut(&Op<'_, M>) -> Result<T>) -> Result<T> {
        self.with_room_made(run, false)
    }

    fn with_room_made<T>(
        &self,
        mut run: impl FnMut(&Op<'_, M>) -> Result<T>,
        repeats: bool,
    ) -> Result<T> {
        let mut reclaims = 0;
        loop {
            let done = self.bracket(&mut run, repeats);
            let most = match &done {
                Err(Error::NoSpace(_)) => 1,
                Err(Error::OutOfMemory(_)) => RECLAIMS_FOR_MEMORY,
                Err(Error::Retry(Retry::Wait)) => {
                    self.wait_for_move();
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

    /// Ends a change that is durable when it returns from this durability on, outside any
    /// operation.
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
            // Whoever closed the pool has made it durable.
            Err(Error::Closed) if self.core.is_closed_cleanly() => Ok(()),
            synced => synced,
        }
    }

    /// Waits, outside any operation, until no directory is moved with what is below it.
    fn wait_for_move(&self) {
        let mut tries = 0;
        while self.core.arena.load(header::STILL, Ordering::Acquire) != 0 {
            pause(&self.core.arena, &mut tries);
        }
    }

    /// One operation; `repeats`: once more if bytes were lost meanwhile, because then it is known
    /// which.
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

    /// Looks whether this process may still use the file system, without a system call.
    ///
    /// # Errors
    /// It was forked off the one that has it open ([`Error::Forked`]), or the pool was closed
    /// ([`Error::Closed`]).
    pub fn check_use(&self) -> Result<()> {
        self.core.check_use()
    }

    /// The root directory.
    pub fn root(self: &Arc<Self>) -> Node<M> {
        Node::hold(self, self.root)
    }

    /// Makes everything that was done before survive what the medium can survive.
    ///
    /// # Errors
    /// What the medium said.
    pub fn sync(&self) -> Result<()> {
        self.core.check_use()?;
        // Access times and link counts are flushed but not waited for by the operations.
        self.core.pool.fence(crate::sites::SYNC_DURABLE);
        self.sync_files()
    }

    /// Makes what was done to files survive what the medium can survive. What operations promise
    /// was fenced when they returned.
    pub(crate) fn sync_files(&self) -> Result<()> {
        self.core.make_durable(None)
    }

    /// Takes what the oldest records of a log say home, a piece of 4 MiB at most but for a record
    /// that is longer, while operations and commits go on; gives how many records. Production calls
    /// it from a thread once half of the log is used; simulations call it where they want it.
    ///
    /// # Errors
    /// What the medium said. Nothing is committed any more, and changes are refused.
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

    /// The log, for whoever looks at it in the process that has the pool open: in a child of it
    /// nobody gives back what locks it.
    fn log_in_use(&self) -> Option<&Log> {
        self.core.log().filter(|_| self.core.check_use().is_ok())
    }

    /// From now on this thread, the first that says so, is unparked when more than half of the log
    /// has come to be used: it is to call [`checkpoint`](Self::checkpoint).
    pub fn wake_when_half_full(&self, background: std::thread::Thread) {
        if let Some(log) = self.log_in_use() {
            log.wake_when_half_full(background);
        }
    }

    /// Whether more than half of the log is used, and may be taken home.
    pub fn is_log_half_full(&self) -> bool {
        self.log_in_use().is_some_and(Log::is_half_full)
    }

    /// What was done with the log since the opening; `None` if the pool has none, or is open for
    /// reading only, or not open for this process.
    pub fn log_counts(&self) -> Option<LogCounts> {
        self.log_in_use().map(Log::counts)
    }

    /// What was done with versions since the opening; `None` if the pool has none, or is open for
    /// reading only.
    pub fn undo_counts(&self) -> Option<UndoCounts> {
        let commits = self.core.commits.as_ref()?;
        Some(commits.undo_log()?.counts())
    }

    /// Whether what is done becomes durable by commits, of which [`sync`](Self::sync) makes one,
    /// and not by itself.
    pub fn commits(&self) -> bool {
        self.core.commits.is_some()
    }

    /// How often a file system that commits does so by itself, if whoever has it open sees to it.
    pub fn commit_every(&self) -> Duration {
        self.commit_every
    }

    /// What is durable when an operation returns.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The directory in memory where a kill leaves the metadata of a logged pool, for the next
    /// process; `None` if it takes them along, or the medium has them.
    pub fn image_dir(&self) -> Option<std::path::PathBuf> {
        self.core.log().and_then(Log::image_dir)
    }

    /// Whether a kill was to leave them, and somebody else has taken them away.
    pub fn has_lost_image(&self) -> bool {
        self.core.log().is_some_and(Log::has_lost_image)
    }

    /// The superblock of the pool.
    pub fn superblock(&self) -> &vellum_layout::Superblock {
        &self.superblock
    }

    /// What the pool's bytes lie on.
    pub fn media_kind(&self) -> vellum_media::MediaKind {
        self.core.pool.kind()
    }

    /// Whether nothing may be changed.
    pub fn is_read_only(&self) -> bool {
        self.core.read_only
    }

    /// Whether damage was found since the opening: then nothing is written any more.
    pub fn is_damaged(&self) -> bool {
        self.core.is_damaged()
    }

    /// Every byte of the pool, as a crash with everything persisted leaves it: for inspection. Of a
    /// logged pool those that were written.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.core.pool.len() as usize];
        match self.core.pool.disk() {
            Some(disk) if disk.read(0, &mut image).is_ok() => {}
            _ => self.core.pool.read(0, &mut image),
        }
        image
    }

    /// By which rule reads choose between search and page table.
    pub fn read_rule(&self) -> Rule {
        self.reading.rule()
    }

    /// Lets another rule choose. Bytes are the same by any.
    pub fn set_read_rule(&self, rule: Rule) {
        self.reading.set_rule(rule);
    }

    /// What reading costs here: what is known ([`Self::knows_read_costs`]), else what is measured
    /// now, in 7 ms on an AMD EPYC, with searches that find nothing, because no file is at hand.
    /// `None` if the pool has no page tables, is too small to tell, or lies on a disk and memory
    /// has no room for 16 MiB of it.
    pub fn read_costs(&self) -> Option<Costs> {
        if let Some(known) = self.reading.costs(&self.core.arena) {
            return Some(*known);
        }
        let op = self.core.op_begin().ok()?;
        self.files().measure(&op, None, file::Cold::Read)
    }

    /// Whether it is known what reading costs, so that rules can choose: it was measured by a file
    /// that was read for long ([`Handle::read_costs`] measures at once), or said.
    pub fn knows_read_costs(&self) -> bool {
        self.reading.costs(&self.core.arena).is_some()
    }

    /// Says what reading costs instead of measuring it, unless that is known already; gives what
    /// holds.
    pub fn set_read_costs(&self, costs: Costs) -> Option<Costs> {
        self.core.check_use().ok()?;
        self.reading.learn(&self.core.arena, || Some(costs))
    }

    /// Bytes of DRAM that cached files take, and how many files are cached.
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

/// What only simulations tell. The pool is handed out because nothing of it is ever lent in place
/// ([`crate::File::view`] copies): whoever holds a mapped one could store into what others look at.
impl Fs<Simulated> {
    /// The pool's memory, which records, and can be made slow.
    pub fn pool(&self) -> &SimPool {
        &self.core.pool
    }
}

impl Fs<Real> {
    /// The instructions that flush and copy.
    pub fn isa(&self) -> Isa {
        self.core.pool.isa()
    }

    /// Where the data are, and the bytes of these files or devices, if they have media of their
    /// own: in the order of segments.
    pub fn data_devices(&self) -> impl Iterator<Item = (&std::path::Path, u64)> {
        let data = self.core.pool.data();
        data.map(|data| (data.path(), data.len()))
    }

    /// Whether the data pass the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        self.core.pool.is_direct()
    }

    /// Whether a commit has the caches of devices flushed.
    pub fn has_barriers(&self) -> bool {
        self.core.pool.has_barriers()
    }

    /// Has commits leave out from here on that the devices flush their caches.
    pub fn leave_out_barriers(&self) {
        self.core.pool.leave_out_barriers();
    }

    /// Has commits flush the caches of devices from here on, and of what was committed without.
    ///
    /// # Errors
    /// What the operating system said: nothing is committed any more.
    pub fn keep_barriers(&self) -> Result<()> {
        let core = &self.core;
        core.check_use()?;
        if !core.pool.keep_barriers() {
            return Ok(());
        }
        // Whoever commits without them now has done so when a commit behind it returns.
        let committed = self.sync();
        let flushed = core.pool.sync().map_err(Error::from);
        if let (Err(error), Some(commits)) = (&flushed, &core.commits) {
            // As behind a commit that failed: nobody is to take over what may not have arrived.
            commits.fail(&core.pool);
            core.record_damage(error);
        }
        committed.and(flushed)
    }

    /// Whether the copy of the metadata that the external data device carries is whole, so that the
    /// medium alone has everything; `None` if it carries none.
    pub fn has_replica(&self) -> Option<bool> {
        replica::is_whole(self.core.pool.data().next()?, &self.superblock)
    }

    /// Makes the page of `at` one that cannot be had, as a poisoned line does; the file keeps its
    /// bytes. For tests.
    ///
    /// # Errors
    /// `at` is outside, or what the operating system said.
    pub fn take_away(&self, at: u64) -> std::io::Result<()> {
        self.core.pool.take_away(at)
    }
}

/// What the arena holds of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// Files with a cachelet (128 bytes each).
    pub cachelets: u64,
    /// Names in the index.
    pub index_entries: u64,
    /// Buckets of the index (64 bytes each; a node of a radix tree is two).
    pub index_buckets: u64,
    /// Bytes of the arena; what was never touched costs no memory.
    pub arena_bytes: u64,
}
