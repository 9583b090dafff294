//! The state that every wing of the engine works on: the two memories, the geometry, the clock, and
//! the layout of the arena.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use vellum_layout::{BLOCK_BYTES, Geometry, NamespaceKind, SLOT_BYTES};
use vellum_media::{Disk, ImageMemory, Memories, Memory};

use crate::core::access_times::AccessTimes;
use crate::core::lease::Leases;
use crate::core::sparse::Sparse;
use crate::error::{Error, Location, Result, Retry};
use crate::logs::Commits;
use crate::logs::redo::Log;

/// The offsets of the arena's structures, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArenaMap {
    /// One line per thread slot and purpose; see `slots`.
    pub(crate) slots: u64,
    /// One bit for each metadata slot, set if it is in use or held by a thread slot; see `alloc`.
    pub(crate) used: u64,
    /// One word for each metadata chunk: its kind; see `alloc`.
    pub(crate) chunks: u64,
    /// Home buckets of the global index; see `namespace::indexed::buckets`.
    pub(crate) buckets: u64,
    /// Home buckets, a power of two.
    pub(crate) bucket_count: u64,
    /// Overflow buckets.
    pub(crate) overflow_buckets: u64,
    /// Number of overflow buckets.
    pub(crate) overflow_count: u64,
    /// Cachelets, 128 bytes each; number 0 is never used.
    pub(crate) cachelets: u64,
    /// Number of cachelets.
    pub(crate) cachelet_count: u64,
    /// Number of names from which on eviction starts.
    pub(crate) index_limit: u64,
    /// The table of locks on files; see `fs::locks`.
    pub(crate) locks: u64,
    /// Bytes of that table.
    pub(crate) lock_bytes: u64,
    /// The table of usage and limits; see `quotas`.
    pub(crate) quotas: u64,
    /// The namespace's own structures, besides the index.
    pub(crate) namespace: u64,
    /// Bytes of the namespace's structures.
    pub(crate) namespace_bytes: u64,
    /// Which groups of blocks of a sparse pool have their space; see [`super::sparse`].
    pub(crate) provided: u64,
    /// The mapping's own structures.
    pub(crate) mapping: u64,
    /// Bytes of the arena.
    pub(crate) bytes: u64,
}

/// Bytes of the arena for structures that other wings lay out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnBytes {
    pub(crate) locks: u64,
    pub(crate) namespace: u64,
    pub(crate) provided: u64,
    pub(crate) mapping: u64,
}

/// Words of the arena's first page, in its order.
pub(crate) mod header {
    /// Declares a constant for each word, or row of words; they must not overlap.
    macro_rules! words {
        ($($(#[$doc:meta])+ $word:ident: [$count:literal] at $at:literal),+ $(,)?) => {
            $($(#[$doc])+ pub(crate) const $word: u64 = $at;)+

            const _: () = {
                let mut end = 0;
                $(
                    assert!($at >= end, "words of the arena's first page overlap");
                    end = $at + 8 * $count;
                )+
                assert!(end <= BYTES);
            };
        };
    }

    words! {
        /// Global reclamation epoch.
        EPOCH: [1] at 0,
        /// No thread slot from this number on was ever entered. It is in the line that entering a
        /// slot reads anyway.
        SLOTS_USED: [1] at 8,
        /// 1: quotas are on. In the same line.
        QUOTAS: [1] at 16,
        /// Data blocks that the pool got while it was open.
        GROWN_BLOCKS: [1] at 24,
        /// Head of the stack of cachelets with background work.
        WORK: [1] at 64,
        /// Rename lock for moving directories between parents.
        RENAME_LOCK: [1] at 128,
        /// Lease of background work.
        LEASE: [1] at 136,
        /// How many threads wait for the lease.
        LEASE_WANTED: [1] at 144,
        /// The last cachelet that may have been used.
        CACHELET_FRESH: [1] at 192,
        /// Head of the list of free cachelets (tagged).
        CACHELET_FREE: [1] at 200,
        /// Cachelets in the list of free ones.
        CACHELETS_FREE: [1] at 208,
        /// Number of cachelets from which on unused ones are evicted.
        CACHELET_LIMIT: [1] at 216,
        /// First overflow bucket that was never used.
        OVERFLOW_FRESH: [1] at 256,
        /// Names in the index, besides those counted in thread slots.
        NAMES: [1] at 264,
        /// Head of the list of free overflow buckets (tagged).
        OVERFLOW_FREE: [1] at 272,
        /// Overflow buckets in use.
        OVERFLOW_USED: [1] at 280,
        /// Search position for each kind of metadata chunk (6 words).
        GROUP_CURSOR: [6] at 320,
        /// Free metadata slots for each kind of chunk (6 words; word 0: free chunks).
        FREE_SLOTS: [6] at 384,
        /// Inodes in use, besides those counted in thread slots.
        INODES: [1] at 448,
        /// The cachelet that eviction looks at next.
        EVICT_HAND: [1] at 512,
        /// Radix tree nodes that were ever used.
        NODE_FRESH: [1] at 520,
        /// Head of the list of free radix tree nodes (tagged).
        NODE_FREE: [1] at 528,
        /// Radix tree nodes in use.
        NODES_USED: [1] at 536,
        /// 1: damage was found, nothing more is written.
        DAMAGED: [1] at 576,
        /// 1: a part of the mapping table could not be read at the opening, so a hole may have a
        /// block.
        TABLE_LOST: [1] at 584,
        /// Whether the file system is closed, or is being closed, or changes have to wait.
        CLOSED: [1] at 592,
        /// 1: deadlines of quotas are newer than on the media.
        QUOTA_DEADLINES: [1] at 600,
        /// Pages read before the costs of reading are known; see `reading::kept`.
        PAGES_READ: [1] at 640,
        /// Whether the costs are known.
        COSTS_STATE: [1] at 704,
        /// The costs of reading.
        COSTS: [8] at 712,
        /// 1: no operation begins, because a commit cuts; see `commit`.
        GATE: [1] at 832,
        /// The last reclamation epoch of which everything is durable, on pools with commits.
        SETTLED: [1] at 840,
        /// The last reclamation epoch in which a file lost set-id bits, on pools where only commits
        /// make that durable.
        SET_IDS_TAKEN: [1] at 848,
        /// Odd while a thread leads a commit; grows by one when that begins, and when it ends.
        LEADER: [1] at 896,
        /// Threads that sleep until the leader ends.
        SLEEPERS: [1] at 904,
        /// How many threads asked for the last commit.
        COMPANY: [1] at 912,
        /// 1: names in some directories must not change ([`super::cachelet::flag::STILL`]), because
        /// a directory is being moved with everything below it.
        STILL: [1] at 920,
        /// 1: the namespace *adaptive* has names in the index in DRAM, besides those in tables of
        /// areas.
        NAMES_ELSEWHERE: [1] at 928,
        /// The area whose table the names of a directory are leaving now, or 0.
        LEAVING: [1] at 936,
        /// The time that a recent commit took [ns], from its cut on.
        COMMIT_TOOK: [1] at 944,
        /// How many threads have asked for a commit since the last cut.
        COMERS: [1] at 952,
        /// The version of paths; see `namespace::common::changing`.
        PATHS: [1] at 960,
        /// All metadata chunks below this number have the memory of their image; see
        /// [`crate::core::image_memory`].
        RESERVED: [1] at 1024,
        /// 1: memory for the next chunk was refused at the last attempt.
        REFUSED: [1] at 1032,
        /// Metadata chunks in data space.
        CHUNKS_IN_DATA: [1] at 1040,
    }

    /// Bytes of the first page.
    pub(crate) const BYTES: u64 = 4096;
}

impl ArenaMap {
    /// The number of entries and inodes that an arena has space for: all that the pool can have, up
    /// to `cache_entries`.
    pub(crate) fn entries(geometry: &Geometry, cache_entries: u64) -> u64 {
        geometry.meta_slots().min(cache_entries).max(64)
    }

    /// Returns the layout of an arena for a pool whose index and cachelets hold `entries`
    /// ([`ArenaMap::entries`]). Untouched parts cost no memory.
    pub(crate) fn plan(geometry: &Geometry, entries: u64, own: OwnBytes) -> Self {
        let page = |at: u64| at.next_multiple_of(4096);
        // A file takes an inode and an entry, so there are half as many names as slots; a bucket
        // holds three.
        let slots = header::BYTES;
        let used =
            page(slots + u64::from(geometry.thread_slots) * crate::core::slots::ARENA_SLOT_BYTES);
        let chunks = page(used + geometry.meta_slots().div_ceil(64) * 8);
        let buckets = page(chunks + geometry.chunks_end() * 8);
        let indexed = match geometry.namespace {
            NamespaceKind::Direct | NamespaceKind::Adaptive => entries,
            NamespaceKind::Tree => 0,
        };
        // Files beside the metadata region are rare, and a smaller row of buckets is faster.
        let homes = indexed.min(geometry.region_slots()) / 6;
        let bucket_count = homes.next_power_of_two().max(16);
        let overflow_buckets = buckets + bucket_count * 64;
        let overflow_count = (indexed / 2).max(16);
        let cachelets = page(overflow_buckets + overflow_count * 64);
        let cachelet_count = entries + 2;
        let locks = page(cachelets + cachelet_count * 128);
        let quotas = page(locks + own.locks);
        let own_at = page(quotas + crate::core::quotas::arena_bytes(geometry));
        let provided = page(own_at + own.namespace);
        let mapping = page(provided + own.provided);
        Self {
            slots,
            used,
            chunks,
            buckets,
            bucket_count,
            overflow_buckets,
            overflow_count,
            cachelets,
            cachelet_count,
            index_limit: entries / 8 * 7,
            locks,
            lock_bytes: own.locks,
            quotas,
            namespace: own_at,
            namespace_bytes: own.namespace,
            provided,
            mapping,
            bytes: page(mapping + own.mapping),
        }
    }
}

/// The source of the time.
#[derive(Debug)]
pub enum Clock {
    /// The system's real-time clock.
    System,
    /// A counter that grows by one each time it is read, for simulations that must repeat exactly.
    Counter(AtomicI64),
}

impl Clock {
    /// Nanoseconds since 1970.
    pub fn now(&self) -> i64 {
        match self {
            Self::System => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
                now.tv_sec * 1_000_000_000 + now.tv_nsec
            }
            Self::Counter(counter) => counter.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The time of the last tick, a few milliseconds ago at most, which is cheaper to read.
    pub(crate) fn now_coarse(&self) -> i64 {
        match self {
            Self::System => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
                now.tv_sec * 1_000_000_000 + now.tv_nsec
            }
            Self::Counter(_) => self.now(),
        }
    }
}

/// Bits of [`header::CLOSED`]: nothing may change; nothing has to be made durable any more; changes
/// wait.
const REFUSING: u64 = 1;
const CLOSED_CLEANLY: u64 = 2;
const PAUSED: u64 = 4;

/// Who waits for a pause looks after this time whether it has ended.
const PAUSE_WAIT_MAX: Duration = Duration::from_millis(10);

/// Keeps changes waiting, until dropped.
pub(crate) struct Pause<'a, M: Memories>(&'a Core<M>);

impl<M: Memories> Drop for Pause<'_, M> {
    fn drop(&mut self) {
        self.0.arena.fetch_and(header::CLOSED, !PAUSED);
        self.0.arena.wake(header::CLOSED);
    }
}

/// The state that every wing works on.
pub(crate) struct Core<M: Memories> {
    pub(crate) pool: M::Pool,
    pub(crate) arena: M::Arena,
    pub(crate) geometry: Geometry,
    pub(crate) map: ArenaMap,
    /// Seed of the hashes on the media.
    pub(crate) seed: u64,
    /// The pool's epoch (24 bits): tags `nv_pointer`s.
    pub(crate) pool_epoch: u32,
    pub(crate) clock: Clock,
    pub(crate) read_only: bool,
    pub(crate) access_times: AccessTimes,
    /// Present if the pool is open for writing and its operations do not become durable by
    /// themselves.
    pub(crate) commits: Option<Commits>,
    /// Bytes of files that views show in place.
    pub(crate) leases: Leases,
    /// Present if the pool is sparse and open for writing.
    pub(crate) sparse: Option<Sparse>,
}

impl<M: Memories> Core<M> {
    /// The log of a logged pool that is open for writing.
    pub(crate) fn log(&self) -> Option<&Log> {
        self.commits.as_ref().and_then(Commits::log)
    }

    /// Pool offset of metadata slot `slot`, if there is such a slot.
    pub(crate) fn slot_at(&self, slot: u64) -> Result<u64> {
        if !self.geometry.has_slot(slot) {
            return Err(Error::damaged(
                "metadata slot out of range",
                Location::Slot(slot),
            ));
        }
        Ok(self.geometry.meta_at + slot * SLOT_BYTES)
    }

    /// Fails if any access since the opening failed: for opening and closing, which must not lose
    /// anything.
    pub(crate) fn check_media(&self) -> Result<()> {
        match self.pool.damaged() {
            None => Ok(()),
            Some(at) => Err(self.unreadable(at)),
        }
    }

    /// Data blocks of all segments, now: the pool may have grown since the opening.
    #[inline]
    pub(crate) fn blocks(&self) -> u64 {
        self.geometry.blocks() + self.arena.load(header::GROWN_BLOCKS, Ordering::Acquire)
    }

    /// Makes the blocks of the grown pool known. They are not free yet.
    pub(crate) fn note_growth(&self, grown: &Geometry) {
        let more = grown.blocks() - self.geometry.blocks();
        self.arena
            .store(header::GROWN_BLOCKS, more, Ordering::Release);
    }

    /// Whether a block lies, or can lie, at this pool offset.
    fn is_of_file(&self, at: u64) -> bool {
        let from = self.geometry.data_at;
        (from..from + self.blocks() * BLOCK_BYTES).contains(&at)
    }

    /// Fails if a system call could not write bytes of a file. Then nothing is committed any more.
    /// Other media report failures when bytes are loaded.
    pub(crate) fn check_written(&self) -> Result<()> {
        let Some(commits) = &self.commits else {
            return Ok(());
        };
        if self.pool.disk().is_some_and(Disk::has_failed) {
            commits.fail(&self.pool);
        }
        commits
            .check()
            .inspect_err(|error| self.record_damage(error))
    }

    /// The error of a failed access at `at`. Nothing more is written from now on.
    #[cold]
    pub(crate) fn unreadable(&self, at: u64) -> Error {
        if let Some(log) = self.log().filter(|_| at < self.geometry.log_at) {
            // The next process must not adopt an image with zeros in the place of lost bytes.
            log.fail();
        }
        let error = if at < self.pool.len() {
            Error::Unreadable(self.place_of(at))
        } else {
            Error::damaged("impossible address", Location::Offset(at))
        };
        self.record_damage(&error);
        error
    }

    /// The location of a pool offset.
    pub(crate) fn place_of(&self, at: u64) -> Location {
        let geometry = &self.geometry;
        let slot = at.saturating_sub(geometry.meta_at) / SLOT_BYTES;
        let part = match at {
            _ if self.kind_of_slot(slot).is_some() => return Location::Slot(slot),
            _ if self.is_of_file(at) => {
                return Location::Block((at - geometry.data_at) / BLOCK_BYTES);
            }
            _ if at >= geometry.last_copy_at || at < geometry.state_at => "superblock",
            _ if geometry.is_logged() && at >= geometry.log_at => "log",
            _ if geometry.has_undo() && at >= geometry.undo_at => "undo log",
            _ if at >= geometry.saved_state_at => "saved allocator state",
            _ if at >= geometry.table_at => "mapping table",
            _ if at >= geometry.meta_at => {
                return Location::Slot((at - geometry.meta_at) / SLOT_BYTES);
            }
            _ if at >= geometry.live_map_at => "live map",
            _ if at >= geometry.chunk_table_at => "chunk table",
            _ if at >= geometry.slots_at => "thread slots",
            _ => "state block",
        };
        Location::Region(part, at)
    }

    /// Ends writing because of damage, and logs that once.
    #[cold]
    pub(crate) fn record_damage(&self, error: &Error) {
        if self.arena.fetch_or(header::DAMAGED, 1) == 0 && !self.read_only {
            tracing::error!(%error, "damage: nothing more is written to this pool");
        }
    }

    /// Returns `result`. If it is damage, nothing more is written. The operation that met the
    /// damage still runs: a close waits for it, and then sees the damage.
    pub(crate) fn noting<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.note_damage(error))
    }

    /// See [`Self::noting`].
    pub(crate) fn note_damage(&self, error: &Error) {
        if let Error::Damaged { .. } = error {
            self.record_damage(error);
        }
    }

    /// Whether damage was found.
    #[inline]
    pub(crate) fn is_damaged(&self) -> bool {
        self.pool.condition() != 0 || self.arena.load(header::DAMAGED, Ordering::Relaxed) != 0
    }

    /// Fails if this process may not use the pool, or the pool was closed. Costs no system call.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::Closed`].
    #[inline(always)]
    pub(crate) fn check_use(&self) -> Result<()> {
        match self.arena.is_at_work() {
            true => Ok(()),
            false => Err(self.refusal()),
        }
    }

    /// The reason why this process may not use the pool.
    #[cold]
    fn refusal(&self) -> Error {
        match self.arena.is_of_parent() {
            true => Error::Forked,
            false => Error::Closed,
        }
    }

    /// Fails if nothing may be changed. Inside an operation the result holds until the operation
    /// ends, because a close waits for it.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        loop {
            self.check_use()?;
            if self.is_changeable() {
                return Ok(());
            }
            self.wait_to_change()?;
        }
    }

    /// The same inside an operation, which runs only if the pool may be used.
    #[inline]
    pub(crate) fn check_changeable(&self) -> Result<()> {
        match self.is_changeable() {
            true => Ok(()),
            false => Err(self.refusal_to_write()),
        }
    }

    /// Whether anything may be changed.
    #[inline]
    pub(crate) fn is_changeable(&self) -> bool {
        let is_open = || self.arena.load(header::CLOSED, Ordering::Acquire) == 0;
        !self.read_only && !self.is_damaged() && is_open()
    }

    /// The reason why nothing may be changed.
    #[cold]
    fn refusal_to_write(&self) -> Error {
        if self.read_only {
            Error::ReadOnly
        } else if self.is_damaged() {
            Error::ReadOnlyAfterDamage
        } else if self.arena.load(header::CLOSED, Ordering::Acquire) & !PAUSED == 0 {
            Error::Retry(Retry::Paused)
        } else {
            Error::Closed
        }
    }

    /// Makes changes wait, outside their operations, until the pause is dropped. No change runs
    /// when this returns. The caller is in no operation, and holds the lease.
    pub(crate) fn pause_changes(&self) -> Pause<'_, M> {
        self.arena.fetch_or(header::CLOSED, PAUSED);
        let pause = Pause(self);
        self.wait_for_readers();
        pause
    }

    /// Waits until a pause has ended that kept the caller from changing something. The caller is in
    /// no operation.
    ///
    /// # Errors
    /// Fails if it was no pause.
    #[cold]
    pub(crate) fn wait_to_change(&self) -> Result<()> {
        match self.refusal_to_write() {
            Error::Retry(Retry::Paused) => self.wait_for_pause(),
            error => return Err(error),
        }
        Ok(())
    }

    /// Waits until a pause has ended. The caller is in no operation.
    #[cold]
    pub(crate) fn wait_for_pause(&self) {
        loop {
            let seen = self.arena.load(header::CLOSED, Ordering::Acquire);
            if seen & PAUSED == 0 {
                return;
            }
            self.arena.wait(header::CLOSED, seen, PAUSE_WAIT_MAX);
        }
    }

    /// Ends changes, once running operations have ended.
    pub(crate) fn refuse_changes(&self) {
        // Operations that still read must not have to evict.
        self.raise_cachelet_limit(self.map.cachelet_count);
        self.arena.fetch_or(header::CLOSED, REFUSING);
        self.wait_for_readers();
    }

    /// Records that everything is durable, and that the pool is marked as closed.
    pub(crate) fn closed_cleanly(&self) {
        self.arena.fetch_or(header::CLOSED, CLOSED_CLEANLY);
    }

    /// Whether a close has made everything durable.
    pub(crate) fn is_closed_cleanly(&self) -> bool {
        self.arena.load(header::CLOSED, Ordering::SeqCst) & CLOSED_CLEANLY != 0
    }

    /// Allows changes again.
    pub(crate) fn allow_changes(&self) {
        self.arena.fetch_and(header::CLOSED, PAUSED);
    }

    /// Loads a word of the pool.
    pub(crate) fn word(&self, at: u64) -> u64 {
        self.pool.load(at, Ordering::Acquire)
    }

    /// Stores a word of the pool.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn set_word(&self, at: u64, value: u64) {
        self.pool.store(at, value, Ordering::Release);
    }
}
