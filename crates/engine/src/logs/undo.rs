//! Transactions of split pools: metadata in persistent memory, data on another device.
//!
//! Stores go to the pool in place, and are flushed as on any persistent memory. Before a
//! transaction first stores to a granule, its old bytes go into an *undo record*, durably. A commit
//! makes the data durable and raises one number. A power cut undoes what later transactions
//! changed, so it leaves what a power cut at the last committed cut could have left, with all the
//! data that this refers to. A kill undoes nothing: all stores are there, in the pool and in the
//! kernel's copies of the data.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vellum_layout::{
    CommittedWord, GRANULE_BYTES, PoolHeader, PoolPhase, PoolState, ReplicaPlan, StateWord,
    Superblock, UndoPlan, UndoRecord,
};
use vellum_media::{Disk, MediaKind, Persistent, PoolMemory, Split, UndoWriter, Written, faults};
use zerocopy::IntoBytes;

use super::changed::{ChangedBlocks, call_stale};
use crate::disk_sites;
use crate::error::{Error, Location, Result};
use crate::logs::redo::{chunks_in_use, outside_chunks};

/// What the undo log did since the pool was opened.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
/// # let external = vellum::DataOptions::new(&data).size_bytes(16 << 20);
/// # let options = vellum::CreateOptions::new(0).media(vellum::MediaChoice::Memory);
/// let pool = options.data(Some(external)).create(&path)?; // metadata in memory
/// pool.volume().write("/f", "text")?;
/// pool.volume().sync()?;
/// assert!(pool.fs().undo_counts().is_some_and(|undo| undo.data_syncs > 0));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UndoCounts {
    /// Transactions that were committed because something was stored or written.
    pub commits: u64,
    /// Calls that asked for a commit and were answered by one, or found nothing to do.
    pub answered: u64,
    /// Undo records that were written.
    pub records: u64,
    /// Commits that had to sync the data.
    pub data_syncs: u64,
}

/// The ring of undo records. It has space for two transactions that change everything, and there
/// are never more: a transaction begins only when the one before the last is committed.
struct Ring {
    plan: UndoPlan,
    seed: u64,
    /// The blocks that the metadata replica on the external data device lacks, if there is one.
    changed: Option<ChangedBlocks>,
    /// Records that were written.
    written: AtomicU64,
}

impl Ring {
    /// Fills a record with the bytes of its granule. Returns `false` if these are lost: undoing
    /// must not replace them by zeros while the medium may still have them.
    fn seal(&self, pool: &dyn Persistent, record: &mut UndoRecord) -> bool {
        loop {
            let condition = pool.condition();
            if condition != 0 {
                // Bytes that were lost before read as zeros. Watching reports only whether one is
                // met.
                pool.watch();
            }
            let met = faults().count;
            pool.read(record.granule, &mut record.old);
            if faults().count != met {
                return false;
            }
            if pool.condition() == condition {
                record.seal(self.seed);
                return true;
            }
        }
    }
}

impl UndoWriter for Ring {
    fn keep(&self, pool: &dyn Persistent, transaction: u64, granules: &[u64]) {
        let first = self
            .written
            .fetch_add(granules.len() as u64, Ordering::Relaxed);
        let mut record = UndoRecord::default();
        for (&granule, at) in granules.iter().zip(self.plan.records_from(first)) {
            if let Some(changed) = &self.changed {
                changed.mark(pool, granule, GRANULE_BYTES);
            }
            (record.granule, record.transaction) = (granule, transaction);
            if self.seal(pool, &mut record) {
                pool.write_through(disk_sites::VERSIONS_ORIGINAL, at, record.as_bytes());
            }
        }
        pool.fence(disk_sites::VERSIONS_ORIGINAL_DURABLE);
    }

    fn allocated(&self, pool: &dyn Persistent, at: u64, len: u64) {
        let marked = |changed: &ChangedBlocks| changed.mark(pool, at, len);
        if self.changed.as_ref().is_some_and(marked) {
            pool.fence(disk_sites::CARRIED_CHANGED_DURABLE);
        }
    }

    /// Under another boot everything uncommitted is undone anyway. Only a process after a kill
    /// reads this word, so it need not be durable.
    fn fail(&self, pool: &dyn Persistent) {
        pool.store(self.plan.at + PoolHeader::POISONED, 1, Ordering::SeqCst);
    }
}

/// The undo log of an open pool.
pub(crate) struct UndoLog {
    ring: Arc<Ring>,
    /// The running transaction.
    running: AtomicU64,
    /// Undo records that had been written when it began.
    written_before: AtomicU64,
    /// Bytes of files did not reach their device: nothing more is committed.
    has_failed: AtomicBool,
    /// The pool was closed.
    is_over: AtomicBool,
    commits: AtomicU64,
    answered: AtomicU64,
    data_syncs: AtomicU64,
}

/// A transaction that a cut has ended, to be committed.
#[derive(Debug)]
pub(crate) struct Transaction {
    number: u64,
    /// Whether anything was stored.
    has_undo: bool,
    written: Written,
}

impl UndoLog {
    /// Whether the pool was closed, so nothing is committed any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Ends committing: the pool was closed, and its last transaction is committed.
    pub(crate) fn finish(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Fails if a commit failed: the pool is then ahead of its data.
    pub(crate) fn check(&self) -> Result<()> {
        if self.has_failed.load(Ordering::SeqCst) {
            Err(Error::Io(io::Error::from_raw_os_error(libc::EIO)))
        } else {
            Ok(())
        }
    }

    /// Ends committing. The next opening undoes what was not committed, even under the same boot.
    pub(crate) fn fail<P: PoolMemory>(&self, pool: &P) {
        self.has_failed.store(true, Ordering::SeqCst);
        self.ring.fail(pool);
    }

    /// Counts a call that was answered.
    pub(crate) fn note_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> UndoCounts {
        UndoCounts {
            commits: self.commits.load(Ordering::Relaxed),
            answered: self.answered.load(Ordering::Relaxed),
            records: self.ring.written.load(Ordering::Relaxed),
            data_syncs: self.data_syncs.load(Ordering::Relaxed),
        }
    }

    /// Begins the next transaction, while no operation stores. Returns the one before.
    pub(crate) fn cut<P: PoolMemory>(&self, pool: &P) -> Transaction {
        let written = pool.cut(&mut |_| {});
        let number = self.running.fetch_add(1, Ordering::SeqCst);
        pool.begin_transaction(number + 1);
        let records = self.ring.written.load(Ordering::SeqCst);
        let before = self.written_before.swap(records, Ordering::SeqCst);
        Transaction {
            number,
            has_undo: records != before,
            written,
        }
    }

    /// Makes a transaction durable, with the data that it refers to. The caller leads the commit.
    ///
    /// # Errors
    /// Fails if the disk fails. Nothing more is committed then.
    pub(crate) fn commit<P: PoolMemory>(&self, pool: &P, transaction: &Transaction) -> Result<()> {
        let done = self.try_commit(pool, transaction);
        Ok(done.inspect_err(|_| self.fail(pool))?)
    }

    fn try_commit<P: PoolMemory>(&self, pool: &P, transaction: &Transaction) -> io::Result<()> {
        let disk = disk_of(pool)?;
        let has_written = transaction.written != Written::Few(Vec::new());
        if !has_written && !transaction.has_undo {
            return Ok(());
        }
        if has_written {
            self.data_syncs.fetch_add(1, Ordering::Relaxed);
            sync_data(disk)?;
        }
        if disk.has_failed() {
            // Some bytes of files did not arrive: no transaction that refers to them is committed.
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        say_committed(pool, &self.ring.plan, transaction.number);
        pool.transaction_committed(transaction.number);
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn sync_data(disk: &dyn Disk) -> io::Result<()> {
    disk.sync_data(disk_sites::VERSIONS_DATA_DURABLE)
}

/// Marks all transactions up to this one as committed, which voids their undo records.
fn say_committed<P: PoolMemory>(pool: &P, plan: &UndoPlan, transaction: u64) {
    let at = plan.at + PoolHeader::COMMITTED;
    let word = CommittedWord::new(transaction).0;
    pool.store_through(disk_sites::VERSIONS_COMMITTED, at, word);
    pool.fence(disk_sites::VERSIONS_COMMITTED_DURABLE);
}

fn disk_of<P: PoolMemory>(pool: &P) -> io::Result<&dyn Disk> {
    let none = || io::Error::other("a pool with an undo log without a disk");
    pool.disk().ok_or_else(none)
}

/// The changes after the last committed transaction.
struct Later {
    /// For each granule, the first transaction that changed it, and the location of the record with
    /// its old bytes.
    granules: BTreeMap<u64, (u64, u64)>,
    /// The last transaction.
    latest: u64,
}

impl Later {
    /// Reads the records, starting from the pool header.
    fn find<P: PoolMemory>(pool: &P, plan: &UndoPlan, seed: u64) -> Result<Self> {
        let word = CommittedWord(pool.load(plan.at + PoolHeader::COMMITTED, Ordering::Acquire));
        let damaged = || Error::damaged("pool header of the undo log", Location::Offset(plan.at));
        Self::read(pool, plan, seed, word.get().ok_or_else(damaged)?)
    }

    /// Reads the records of transactions after `committed`. A record that a crash cut short is
    /// ignored: its granule was not changed.
    fn read<P: PoolMemory>(pool: &P, plan: &UndoPlan, seed: u64, committed: u64) -> Result<Self> {
        let mut later = Self {
            granules: BTreeMap::new(),
            latest: committed,
        };
        for number in 0..plan.count {
            let at = plan.undo_record_at(number);
            // Most records are of committed transactions, or were never written.
            if pool.load(at + UndoRecord::TRANSACTION, Ordering::Acquire) <= committed {
                continue;
            }
            let Some(record) = read_version(pool, seed, at) else {
                continue;
            };
            if !plan.is_granule(record.granule) || record.transaction >= CommittedWord::MAX {
                let place = Location::Offset(at);
                return Err(Error::damaged(
                    "undo record of an impossible granule",
                    place,
                ));
            }
            later.latest = later.latest.max(record.transaction);
            let new = (record.transaction, at);
            let first = later.granules.entry(record.granule).or_insert(new);
            *first = (*first).min(new);
        }
        // A record that cannot be read looks like one that was never written, and a transaction
        // must not be undone in part.
        match pool.damaged() {
            Some(at) => Err(Error::Unreadable(Location::Offset(at))),
            None => Ok(later),
        }
    }

    /// Stores the old bytes of the granules back, durably; for a reader, in its own memory.
    fn take_back<P: PoolMemory>(&self, pool: &P, seed: u64) {
        for (&granule, &(_, at)) in &self.granules {
            if let Some(record) = read_version(pool, seed, at) {
                pool.write_through(disk_sites::VERSIONS_TAKEN_BACK, granule, &record.old);
            }
        }
        pool.fence(disk_sites::VERSIONS_TAKEN_BACK_DURABLE);
    }
}

fn read_version<P: PoolMemory>(pool: &P, seed: u64, at: u64) -> Option<UndoRecord> {
    let mut bytes = [0; size_of::<UndoRecord>()];
    pool.read(at, &mut bytes);
    UndoRecord::unseal(seed, &bytes)
}

/// Whether the pool was closed cleanly.
fn was_closed<P: PoolMemory>(pool: &P, state_at: u64) -> bool {
    let word = StateWord(pool.load(state_at + PoolState::WORD, Ordering::Acquire));
    word.get()
        .is_some_and(|(phase, _)| phase == PoolPhase::Clean)
}

/// Undoes what the last committed transaction did not contain, or, under the boot under which the
/// pool was last open, leaves the metadata as they are. Returns the undo log to go on with, and how
/// many granules were rolled back.
///
/// # Errors
/// Fails if the header or a record is damaged, or the disk fails.
pub(crate) fn open<P: PoolMemory>(
    pool: &P,
    superblock: &Superblock,
    boot: [u8; 16],
    read_only: bool,
) -> Result<(UndoLog, u64)> {
    let geometry = superblock.geometry();
    let plan = UndoPlan::of(&geometry).ok_or(Error::Unsupported("a pool without an undo log"))?;
    let changed = ReplicaPlan::of(&geometry)
        .map(|replica| ChangedBlocks::new(geometry.changed_at, replica.blocks));
    let records = UndoLog::new(plan, superblock.hash_seed, changed);
    if !read_only {
        if pool.kind() == MediaKind::File {
            return Err(Error::Unsupported(
                "changes to metadata in an ordinary file whose data lie elsewhere",
            ));
        }
        let split = Split {
            image_bytes: plan.end,
            data_at: geometry.data_at,
            is_external: true,
        };
        pool.begin_transactions(split, Arc::clone(&records.ring) as Arc<dyn UndoWriter>)?;
        begin_data(disk_of(pool)?, superblock).inspect_err(|_| records.fail(pool))?;
    }
    let later = match Later::find(pool, &plan, superblock.hash_seed) {
        Err(error) if read_only => {
            tracing::warn!(%error, "what can be read is shown");
            return Ok((records, 0));
        }
        found => found?,
    };
    let mut taken_back = 0;
    if is_of_this_boot(pool, &plan, boot) {
        let is_whole = later.granules.is_empty() && was_closed(pool, geometry.state_at);
        if !read_only && !is_whole {
            inherit(pool, superblock).inspect_err(|_| records.fail(pool))?;
        }
    } else {
        later.take_back(pool, superblock.hash_seed);
        taken_back = later.granules.len() as u64;
        if !read_only && !was_closed(pool, geometry.state_at) {
            // After a failed sync the kernel's copies may be newer than the medium.
            let len = geometry.data_bytes();
            disk_of(pool)?.forget(geometry.data_at, len);
        }
    }
    if !read_only {
        settle(pool, &plan, later.latest, boot);
        records.running.store(later.latest + 1, Ordering::SeqCst);
        pool.begin_transaction(later.latest + 1);
    }
    Ok((records, taken_back))
}

/// Prepares the external data device for writing: marks its metadata replica as stale. If data pass
/// the page cache, also syncs and drops what an earlier session left there.
fn begin_data(disk: &dyn Disk, superblock: &Superblock) -> Result<()> {
    if disk.is_direct() {
        sync_data(disk)?;
        let geometry = superblock.geometry();
        disk.forget(geometry.data_at, geometry.data_bytes());
    }
    call_stale(disk, superblock)
}

impl UndoLog {
    fn new(plan: UndoPlan, seed: u64, changed: Option<ChangedBlocks>) -> Self {
        Self {
            ring: Arc::new(Ring {
                plan,
                seed,
                changed,
                written: AtomicU64::new(0),
            }),
            running: AtomicU64::new(0),
            written_before: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            data_syncs: AtomicU64::new(0),
        }
    }

    /// An undo log of no pool, in which nothing is stored, for tests of the code around it.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> Self {
        let plan = UndoPlan {
            at: 0,
            count: 0,
            first: 0,
            end: 0,
        };
        Self::new(plan, 0, None)
    }
}

/// Whether no store can be missing: the last opener for writing ran under this boot, and all bytes
/// of files reached their device, or still can. If a boot is unknown the answer is no: undoing to a
/// cut is always right.
fn is_of_this_boot<P: PoolMemory>(pool: &P, plan: &UndoPlan, boot: [u8; 16]) -> bool {
    let mut last = [0; 16];
    pool.read(plan.at + PoolHeader::BOOT, &mut last);
    let is_poisoned = pool.load(plan.at + PoolHeader::POISONED, Ordering::Acquire) != 0;
    boot != [0; 16] && last == boot && !is_poisoned
}

/// Makes durable what a killed process left in the caches: in the kernel's, and with the next fence
/// in the processor's. Later steps rely on it. A power cut before that fence leaves what it could
/// have left at the kill, whether or not it counts as committed by then.
fn inherit<P: PoolMemory>(pool: &P, superblock: &Superblock) -> Result<()> {
    sync_data(disk_of(pool)?)?;
    let geometry = superblock.geometry();
    let [_, behind] = outside_chunks(&geometry);
    let before = (geometry.state_at, geometry.meta_at - geometry.state_at);
    for (at, len) in chunks_in_use(pool, &geometry).chain([before, behind]) {
        pool.flush(disk_sites::VERSIONS_INHERITED, at, len);
    }
    Ok(())
}

/// Marks all transactions up to `latest` as committed, and this boot as the last one. After a kill
/// in between, the pool still has the earlier boot, and everything is undone again. Boot and poison
/// matter only after kills, so they need not be durable.
fn settle<P: PoolMemory>(pool: &P, plan: &UndoPlan, latest: u64, boot: [u8; 16]) {
    say_committed(pool, plan, latest);
    pool.store(plan.at + PoolHeader::POISONED, 0, Ordering::Release);
    pool.write(plan.at + PoolHeader::BOOT, &boot);
}
