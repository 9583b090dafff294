//! Transactions of metadata in persistent memory whose data lie on another medium.
//!
//! Stores go to the pool in place, and are flushed as on persistent memory, which it is. What a
//! granule held before a transaction first stores to it goes into a *record* first, durably. A
//! commit makes the data durable and raises one number; a power cut takes back what later
//! transactions changed, and so leaves what a power cut at the last committed cut could have left,
//! with all the data that it leads to. A kill takes nothing back: all that was stored is there, in
//! the pool and in the kernel's copies of the data.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vellum_layout::{
    CommittedWord, GRANULE_BYTES, PoolHeader, PoolPhase, PoolState, ReplicaPlan, StateWord,
    Superblock, UndoPlan, UndoRecord,
};
use vellum_media::{Disk, MediaKind, Persistent, Split, UndoWriter, Written, faults};
use zerocopy::IntoBytes;

use super::changed::{ChangedBlocks, call_stale};
use crate::disk_sites;
use crate::error::{Error, Location, Result};
use crate::logs::redo::{chunks_in_use, outside_chunks};

/// What the undo log did since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UndoCounts {
    /// Transactions that were committed because something was stored or written.
    pub commits: u64,
    /// Calls that wanted a commit and were answered by one, or found that nothing had to be done.
    pub answered: u64,
    /// Undo records that were written.
    pub records: u64,
    /// Commits that had to sync the data.
    pub data_syncs: u64,
}

/// Where records go: round and round. There is room for those of two transactions that change
/// everything, and there are never more: the next one begins when the one before the last is
/// committed.
struct Ring {
    plan: UndoPlan,
    seed: u64,
    /// What the external data device's copy of the metadata lacks, if it carries one.
    changed: Option<ChangedBlocks>,
    /// How many were written.
    written: AtomicU64,
}

impl Ring {
    /// Makes a record of what its granule holds; not if that is lost: it is not to become zeros by
    /// being taken back, where the medium may have the bytes.
    fn seal(&self, pool: &dyn Persistent, record: &mut UndoRecord) -> bool {
        loop {
            let condition = pool.condition();
            if condition != 0 {
                // What was lost before is zeros by now: only that it is met is told.
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

    /// Under another boot what was not committed is taken back anyway: only kills read this, so
    /// that it need not be durable.
    fn fail(&self, pool: &dyn Persistent) {
        pool.store(self.plan.at + PoolHeader::POISONED, 1, Ordering::SeqCst);
    }
}

/// The transactions of an open pool.
pub(crate) struct UndoLog {
    ring: Arc<Ring>,
    /// The transaction that runs.
    running: AtomicU64,
    /// Undo records that were written when it began.
    written_before: AtomicU64,
    /// Bytes of files did not reach their medium: nothing more is committed.
    has_failed: AtomicBool,
    /// The pool was closed.
    is_over: AtomicBool,
    commits: AtomicU64,
    answered: AtomicU64,
    data_syncs: AtomicU64,
}

/// What a cut leaves to a commit.
#[derive(Debug)]
pub(crate) struct Transaction {
    number: u64,
    /// Something was stored.
    has_undo: bool,
    written: Written,
}

impl UndoLog {
    /// Whether nothing is committed any more because the pool was closed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// The pool was closed, and its last transaction is committed.
    pub(crate) fn finish(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Fails if a commit failed: what is in the pool then is ahead of its data.
    pub(crate) fn check(&self) -> Result<()> {
        if self.has_failed.load(Ordering::SeqCst) {
            Err(Error::Io(io::Error::from_raw_os_error(libc::EIO)))
        } else {
            Ok(())
        }
    }

    /// Nothing is committed any more, and the next opening takes back what was not, under the same
    /// boot, too.
    pub(crate) fn fail<P: Persistent>(&self, pool: &P) {
        self.has_failed.store(true, Ordering::SeqCst);
        self.ring.fail(pool);
    }

    /// Counts a call that has what it wanted.
    pub(crate) fn note_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> UndoCounts {
        UndoCounts {
            commits: self.commits.load(Ordering::Relaxed),
            answered: self.answered.load(Ordering::Relaxed),
            records: self.ring.written.load(Ordering::Relaxed),
            data_syncs: self.data_syncs.load(Ordering::Relaxed),
        }
    }

    /// Begins the next transaction, at an instant at which nobody stores; gives the one before.
    pub(crate) fn cut<P: Persistent>(&self, pool: &P) -> Transaction {
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

    /// Makes a transaction durable, with the data that it leads to; whoever calls leads the commit.
    ///
    /// # Errors
    /// What the disk said; nothing is committed any more.
    pub(crate) fn commit<P: Persistent>(&self, pool: &P, transaction: &Transaction) -> Result<()> {
        let done = self.try_commit(pool, transaction);
        Ok(done.inspect_err(|_| self.fail(pool))?)
    }

    fn try_commit<P: Persistent>(&self, pool: &P, transaction: &Transaction) -> io::Result<()> {
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
            // Somebody's bytes did not arrive: what leads to them is not committed.
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

/// Lets all transactions up to this one count as committed: their records are void.
fn say_committed<P: Persistent>(pool: &P, plan: &UndoPlan, transaction: u64) {
    let at = plan.at + PoolHeader::COMMITTED;
    let word = CommittedWord::new(transaction).0;
    pool.store_through(disk_sites::VERSIONS_COMMITTED, at, word);
    pool.fence(disk_sites::VERSIONS_COMMITTED_DURABLE);
}

fn disk_of<P: Persistent>(pool: &P) -> io::Result<&dyn Disk> {
    let none = || io::Error::other("a pool with versions without a disk");
    pool.disk().ok_or_else(none)
}

/// What was changed since the last transaction that was committed.
struct Later {
    /// Of each granule, the first transaction that changed it, and where what it held before lies.
    granules: BTreeMap<u64, (u64, u64)>,
    /// The last transaction.
    latest: u64,
}

impl Later {
    /// Looks through the records from the header on.
    fn find<P: Persistent>(pool: &P, plan: &UndoPlan, seed: u64) -> Result<Self> {
        let word = CommittedWord(pool.load(plan.at + PoolHeader::COMMITTED, Ordering::Acquire));
        let damaged = || Error::damaged("entrance to the versions", Location::Offset(plan.at));
        Self::read(pool, plan, seed, word.get().ok_or_else(damaged)?)
    }

    /// Reads the records of transactions behind `committed`. What a crash cut short is none: its
    /// granule was not changed.
    fn read<P: Persistent>(pool: &P, plan: &UndoPlan, seed: u64, committed: u64) -> Result<Self> {
        let mut later = Self {
            granules: BTreeMap::new(),
            latest: committed,
        };
        for number in 0..plan.count {
            let at = plan.undo_record_at(number);
            // Most are of transactions that were committed, or of none.
            if pool.load(at + UndoRecord::TRANSACTION, Ordering::Acquire) <= committed {
                continue;
            }
            let Some(record) = read_version(pool, seed, at) else {
                continue;
            };
            if !plan.is_granule(record.granule) || record.transaction >= CommittedWord::MAX {
                let place = Location::Offset(at);
                return Err(Error::damaged("version of an impossible piece", place));
            }
            later.latest = later.latest.max(record.transaction);
            let new = (record.transaction, at);
            let first = later.granules.entry(record.granule).or_insert(new);
            *first = (*first).min(new);
        }
        // A record that cannot be read looks like none, and half of a transaction is not to be
        // taken back.
        match pool.damaged() {
            Some(at) => Err(Error::Unreadable(Location::Offset(at))),
            None => Ok(later),
        }
    }

    /// Stores back what the granules held. Durable when this returns, but for who only reads, in
    /// whose memory it is.
    fn take_back<P: Persistent>(&self, pool: &P, seed: u64) {
        for (&granule, &(_, at)) in &self.granules {
            if let Some(record) = read_version(pool, seed, at) {
                pool.write_through(disk_sites::VERSIONS_TAKEN_BACK, granule, &record.old);
            }
        }
        pool.fence(disk_sites::VERSIONS_TAKEN_BACK_DURABLE);
    }
}

fn read_version<P: Persistent>(pool: &P, seed: u64, at: u64) -> Option<UndoRecord> {
    let mut bytes = [0; size_of::<UndoRecord>()];
    pool.read(at, &mut bytes);
    UndoRecord::unseal(seed, &bytes)
}

/// Whether the pool was closed in order.
fn was_closed<P: Persistent>(pool: &P, state_at: u64) -> bool {
    let word = StateWord(pool.load(state_at + PoolState::WORD, Ordering::Acquire));
    word.get()
        .is_some_and(|(phase, _)| phase == PoolPhase::Clean)
}

/// Makes the metadata of a pool what the last transaction left that was committed, or, under the
/// boot under which it was last open, leaves them as they are; gives the transactions, to go on
/// with, and how many granules were taken back.
///
/// # Errors
/// The header or a record is damaged, or what the disk said.
pub(crate) fn open<P: Persistent>(
    pool: &P,
    superblock: &Superblock,
    boot: [u8; 16],
    read_only: bool,
) -> Result<(UndoLog, u64)> {
    let geometry = superblock.geometry();
    let plan = UndoPlan::of(&geometry).ok_or(Error::Unsupported("a pool without versions"))?;
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
            // Copies in memory may be newer than what a sync that failed has left on the medium.
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

/// Makes the external data device one that is written to: the copy of the metadata that it carries
/// is stale from here on. Where it is written past the page cache, nothing that an earlier session
/// left there may be newer.
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

    /// Those of no pool, in which nothing is stored: for checks of what surrounds them.
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

/// Whether nothing that was stored can be missing: the last opener for writing was of this boot,
/// and bytes of files reached their medium, or can. Where a boot is not known nothing is: to be
/// taken back to a cut is always right.
fn is_of_this_boot<P: Persistent>(pool: &P, plan: &UndoPlan, boot: [u8; 16]) -> bool {
    let mut last = [0; 16];
    pool.read(plan.at + PoolHeader::BOOT, &mut last);
    let is_poisoned = pool.load(plan.at + PoolHeader::POISONED, Ordering::Acquire) != 0;
    boot != [0; 16] && last == boot && !is_poisoned
}

/// Makes durable what a process that was killed left in caches, of the kernel and, with the next
/// fence, of the processor: what follows builds upon it. A power cut before that fence leaves what
/// it could have left at the kill, whether it counts as committed by then or not.
fn inherit<P: Persistent>(pool: &P, superblock: &Superblock) -> Result<()> {
    sync_data(disk_of(pool)?)?;
    let geometry = superblock.geometry();
    let [_, behind] = outside_chunks(&geometry);
    let before = (geometry.state_at, geometry.meta_at - geometry.state_at);
    for (at, len) in chunks_in_use(pool, &geometry).chain([before, behind]) {
        pool.flush(disk_sites::VERSIONS_INHERITED, at, len);
    }
    Ok(())
}

/// Lets all transactions up to `latest` count as committed, and this boot as the last one. If this
/// process is killed in between, the boot is still another: what was taken back is taken back
/// again. Only after kills do boot and poison mean anything, so that they need not be durable.
fn settle<P: Persistent>(pool: &P, plan: &UndoPlan, latest: u64, boot: [u8; 16]) {
    say_committed(pool, plan, latest);
    pool.store(plan.at + PoolHeader::POISONED, 0, Ordering::Release);
    pool.write(plan.at + PoolHeader::BOOT, &boot);
}
