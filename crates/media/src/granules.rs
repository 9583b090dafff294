//! Undo granules: which ones were saved before the running transaction first stored to them.
//!
//! A transaction begins when no thread stores. The first thread that stores to a granule saves it;
//! others that want to store to it wait for that.
//!
//! A granule that was free at the last commit needs no undo record when it is allocated: the
//! references to it are rolled back with the transaction that allocated it. A granule that was
//! freed since the commit is still referred to after a rollback, and is saved as usual. Structures
//! that verify themselves can be written *fresh* once without being saved; later stores to them
//! need undo records.

use crate::heap::zeroed_cells;
use crate::memory::{BLOCK_BYTES, Persistent};
use std::hint;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a granule.
const GRANULE_BYTES: u64 = 128;
/// Granules of a block; if one is lost, all are.
const BLOCK_GRANULES: usize = (BLOCK_BYTES / GRANULE_BYTES) as usize;
/// Most granules that are saved with one fence.
const BATCH: usize = 32;

/// A granule that was saved before the transaction's first store to it, or need not be.
const KEPT: u64 = 0;
/// A granule that a thread is saving.
const KEEPING: u64 = 1;
/// A granule that was freed in the transaction, which has not stored to it.
const FREED: u64 = 2;

/// Writes undo records of granules of 128 bytes.
pub trait UndoWriter: Send + Sync {
    /// Makes the contents of these granules (their offsets in `pool`) durable elsewhere in `pool`,
    /// before `transaction` changes them. No thread stores to them meanwhile, except fresh writes,
    /// of which any part may be saved.
    fn keep(&self, pool: &dyn Persistent, transaction: u64, granules: &[u64]);

    /// Reports that `[at, at + len)` of `pool` was free, is not saved, and is about to change.
    fn allocated(&self, pool: &dyn Persistent, at: u64, len: u64) {
        let _ = (pool, at, len);
    }

    /// Records in `pool` that bytes of a file did not reach their medium: the next opening must not
    /// rely on the metadata that refer to them.
    fn fail(&self, pool: &dyn Persistent);
}

/// The state of every granule.
pub(crate) struct Granules {
    /// The running transaction.
    running: AtomicU64,
    /// The last transaction committed since this was created; 0: none.
    committed: AtomicU64,
    /// The last transaction that stored to the granule or freed it, << 2, and one of [`KEPT`],
    /// [`KEEPING`] and [`FREED`].
    states: Box<[AtomicU64]>,
    undo: Arc<dyn UndoWriter>,
}

impl Granules {
    /// For the first `bytes` of a pool. Nothing is saved before the first transaction begins.
    pub(crate) fn new(bytes: u64, undo: Arc<dyn UndoWriter>) -> Self {
        Self {
            running: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            states: zeroed_cells(bytes.div_ceil(GRANULE_BYTES) as usize),
            undo,
        }
    }

    /// Begins a transaction; its number is higher than all before. No thread stores meanwhile.
    pub(crate) fn begin(&self, transaction: u64) {
        self.running.store(transaction, Ordering::SeqCst);
    }

    /// Records that a transaction is committed: it is no longer rolled back.
    pub(crate) fn commit(&self, transaction: u64) {
        self.committed.store(transaction, Ordering::Release);
    }

    /// Records that nothing refers to the contents of `[at, at + len)` any more.
    pub(crate) fn freed(&self, at: u64, len: u64) {
        let running = self.running.load(Ordering::Acquire);
        let freed = |before: u64| (before >> 2 < running).then_some(running << 2 | FREED);
        self.update(at, len, freed);
    }

    /// Records that the free range `[at, at + len)` is about to be stored to.
    pub(crate) fn allocated(&self, pool: &dyn Persistent, at: u64, len: u64) {
        let running = self.running.load(Ordering::Acquire);
        let committed = self.committed.load(Ordering::Acquire);
        if committed > 0 {
            self.undo.allocated(pool, at, len);
            let was_free = |before: u64| before >> 2 <= committed;
            self.update(at, len, |before| {
                was_free(before).then_some(running << 2 | KEPT)
            });
        }
    }

    /// Whether the free range `[at, at + len)` was also free at the last commit and so may be
    /// overwritten without an undo record; the caller then does so. Its state still says that this
    /// transaction has not stored to it: the next store saves what is written now, or any part of
    /// it if another thread saves a neighbour first.
    pub(crate) fn is_fresh(&self, pool: &dyn Persistent, at: u64, len: u64) -> bool {
        let committed = self.committed.load(Ordering::Acquire);
        let was_free = |number| self.state(number) >> 2 <= committed;
        let is_fresh = committed > 0 && self.numbers(at, len).all(was_free);
        if is_fresh {
            self.undo.allocated(pool, at, len);
        }
        is_fresh
    }

    /// Changes the states of the granules that `[at, at + len)` touches.
    fn update(&self, at: u64, len: u64, new: impl Fn(u64) -> Option<u64>) {
        for number in self.numbers(at, len) {
            let order = Ordering::AcqRel;
            // A thread that is saving one continues.
            let _ = self.states[number].fetch_update(order, Ordering::Acquire, &new);
        }
    }

    /// Must be called before a store to `[at, at + len)` of `pool`; parts outside the granules are
    /// ignored.
    #[inline]
    pub(crate) fn save(&self, pool: &dyn Persistent, at: u64, len: u64) {
        let kept = self.running.load(Ordering::Acquire) << 2 | KEPT;
        let Some(first) = self.states.get((at / GRANULE_BYTES) as usize) else {
            return;
        };
        // Most stores are to one granule, which was saved before the first of them.
        let is_one = at % GRANULE_BYTES + len <= GRANULE_BYTES;
        if !(is_one && first.load(Ordering::Acquire) == kept) {
            self.save_all(pool, &[(at, len)]);
        }
    }

    /// Must be called before stores to several ranges: they are saved with one fence.
    pub(crate) fn save_all(&self, pool: &dyn Persistent, places: &[(u64, u64)]) {
        let transaction = self.running.load(Ordering::Acquire);
        let numbers = || places.iter().flat_map(|&(at, len)| self.numbers(at, len));
        let is_kept = |number: usize| self.state(number) == transaction << 2 | KEPT;
        if numbers().all(is_kept) {
            return;
        }
        let mut batch = Batch::new(transaction);
        for number in numbers().filter(|&number| !is_kept(number)) {
            if batch.count == BATCH {
                self.keep(pool, &mut batch);
            }
            batch.claim(&self.states[number], number);
        }
        for asked in 0..batch.count {
            self.claim_more(&mut batch, asked);
        }
        self.keep(pool, &mut batch);
        // By then none of our own is left to wait for.
        for number in numbers() {
            while self.state(number) == batch.keeping() {
                hint::spin_loop();
            }
        }
    }

    fn state(&self, number: usize) -> u64 {
        self.states[number].load(Ordering::Acquire)
    }

    /// The granules that `[at, at + len)` touches.
    fn numbers(&self, at: u64, len: u64) -> Range<usize> {
        let first = (at / GRANULE_BYTES) as usize;
        let end = match len {
            0 => first,
            _ => at.saturating_add(len).div_ceil(GRANULE_BYTES) as usize,
        };
        first..end.min(self.states.len())
    }

    /// Claims more granules of the block of a claimed one: twice as many as were already saved of
    /// the block in this transaction. A thread that stores to some slots of a block mostly stores
    /// to others of it too, and finds them saved: the fence is the main cost of saving. A lost
    /// granule is found here before any caller needs it, as by any other read.
    fn claim_more(&self, batch: &mut Batch, claimed: usize) {
        let number = (batch.granules[claimed] / GRANULE_BYTES) as usize;
        let first = number - number % BLOCK_GRANULES;
        let block = first..(first + BLOCK_GRANULES).min(self.states.len());
        let is_kept = |&number: &usize| self.state(number) == batch.kept();
        let mut more = 2 * block.clone().filter(is_kept).count();
        // Slots are allocated in ascending order.
        for number in (number..block.end).chain(first..number) {
            if more == 0 || batch.count == BATCH {
                break;
            }
            more -= usize::from(batch.claim(&self.states[number], number));
        }
    }

    /// Saves the claimed granules.
    fn keep(&self, pool: &dyn Persistent, batch: &mut Batch) {
        let granules = &batch.granules[..batch.count];
        if granules.is_empty() {
            return;
        }
        self.undo.keep(pool, batch.transaction, granules);
        for granule in granules {
            let state = &self.states[(granule / GRANULE_BYTES) as usize];
            // No other thread changes it. (A swap would wait for the bytes written past the cache.)
            state.store(batch.kept(), Ordering::Release);
        }
        batch.count = 0;
    }

    /// Reports that bytes of a file did not reach their medium.
    pub(crate) fn fail(&self, pool: &dyn Persistent) {
        self.undo.fail(pool);
    }
}

/// Granules that a thread has claimed and must save.
struct Batch {
    transaction: u64,
    granules: [u64; BATCH],
    count: usize,
}

impl Batch {
    fn new(transaction: u64) -> Self {
        Self {
            transaction,
            granules: [0; BATCH],
            count: 0,
        }
    }

    /// The state of a saved granule.
    fn kept(&self) -> u64 {
        self.transaction << 2 | KEPT
    }

    /// The state of a granule that is being saved.
    fn keeping(&self) -> u64 {
        self.transaction << 2 | KEEPING
    }

    /// Whether the caller must save a granule, which is then added to this batch: no thread has
    /// saved it in this transaction or a later one.
    fn claim(&mut self, state: &AtomicU64, number: usize) -> bool {
        let order = Ordering::AcqRel;
        let (running, keeping) = (self.transaction, self.keeping());
        let freed = running << 2 | FREED;
        let is_free = |before: u64| before >> 2 < running || before == freed;
        let claim = |before: u64| is_free(before).then_some(keeping);
        let is_claimed = state.fetch_update(order, Ordering::Acquire, claim).is_ok();
        if is_claimed {
            self.granules[self.count] = number as u64 * GRANULE_BYTES;
            self.count += 1;
        }
        is_claimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Split;
    use crate::memory::Memory;
    use crate::pool_memory::Transactions;
    use crate::sim::SimPool;
    use crate::sim_logged::SimLogged;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    /// Remembers the saved granules, with their first byte.
    #[derive(Default)]
    struct Kept {
        granules: Mutex<Vec<(u64, u64, u8)>>,
        /// Whether saving is slow.
        is_slow: bool,
        has_failed: AtomicBool,
        /// How often granules were saved.
        calls: AtomicU64,
    }

    impl UndoWriter for Kept {
        fn keep(&self, pool: &dyn Persistent, transaction: u64, granules: &[u64]) {
            self.calls.fetch_add(1, Ordering::SeqCst);
            if self.is_slow {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
            for &granule in granules {
                let mut byte = [0];
                pool.read(granule, &mut byte);
                let mut all = self.granules.lock().unwrap();
                all.push((transaction, granule, byte[0]));
            }
        }

        fn fail(&self, _pool: &dyn Persistent) {
            self.has_failed.store(true, Ordering::SeqCst);
        }
    }

    fn taken(kept: &Kept) -> Vec<(u64, u64, u8)> {
        std::mem::take(&mut kept.granules.lock().unwrap())
    }

    #[test]
    fn each_granule_is_saved_once_per_transaction() {
        let pool = SimPool::new(1 << 16);
        let kept = Arc::new(Kept::default());
        let granules = Granules::new(8192, Arc::clone(&kept) as Arc<dyn UndoWriter>);
        granules.save(&pool, 0, 8192);
        assert_eq!(taken(&kept), [], "no transaction has begun");
        granules.begin(5);
        granules.save(&pool, 120, 16);
        pool.write(0, &[9; 256]);
        granules.save(&pool, 0, 256);
        assert_eq!(taken(&kept), [(5, 0, 0), (5, 128, 0)]);
        granules.begin(6);
        granules.save(&pool, 128, 8);
        assert_eq!(taken(&kept), [(6, 128, 9)]);
        granules.save(&pool, 0, 8192);
        let rest: Vec<u64> = taken(&kept)
            .iter()
            .map(|(_, granule, _)| granule / 128)
            .collect();
        let expected: Vec<u64> = (0..64).filter(|&granule| granule != 1).collect();
        assert_eq!(rest, expected);
    }

    /// Storing to one slot after the other of a block waits four times, in whatever order; storing
    /// to one slot saves no more.
    #[test]
    fn twice_as_many_granules_of_a_block_are_saved_ahead() {
        let pool = SimPool::new(1 << 16);
        let batches = |order: &[u64]| {
            let kept = Arc::new(Kept::default());
            let granules = Granules::new(1 << 16, Arc::clone(&kept) as Arc<dyn UndoWriter>);
            granules.begin(1);
            let batch = |&granule: &u64| {
                granules.save(&pool, (32 + granule) * 128, 8);
                let taken = taken(&kept);
                taken.iter().map(|&(_, at, _)| at / 128 - 32).collect()
            };
            let batches: Vec<Vec<u64>> = order.iter().map(batch).collect();
            assert!(batches.iter().flatten().all(|&granule| granule < 32));
            batches
        };
        let up: Vec<u64> = (0..32).collect();
        let sizes = |order| {
            let batches = batches(order).into_iter();
            let sizes = batches.map(|batch| batch.len());
            sizes.filter(|&len| len > 0).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&up), [1, 3, 9, 19]);
        let mixed: Vec<u64> = up.iter().map(|granule| granule * 13 % 32).collect();
        assert_eq!(sizes(&mixed), [1, 3, 9, 19]);
        assert_eq!(
            batches(&[3, 9, 31, 10]),
            [
                vec![3],
                vec![9, 10, 11],
                vec![31, 0, 1, 2, 4, 5, 6, 7, 8],
                vec![]
            ]
        );
    }

    #[test]
    fn several_ranges_are_saved_together() {
        let pool = SimPool::new(1 << 20);
        let kept = Arc::new(Kept::default());
        let granules = Granules::new(1 << 20, Arc::clone(&kept) as Arc<dyn UndoWriter>);
        granules.begin(1);
        let asked = [(8192, 256), (128, 8), (4096 + 120, 16), (8200, 8)];
        granules.save_all(&pool, &asked);
        assert_eq!(kept.calls.load(Ordering::SeqCst), 1);
        let places = |kept: &Kept| -> Vec<u64> {
            let taken = taken(kept);
            taken.iter().map(|&(_, at, _)| at).collect()
        };
        assert_eq!(places(&kept), [8192, 8320, 128, 4096, 4224]);
        granules.save_all(&pool, &asked);
        granules.save_all(&pool, &[]);
        // Behind the granules.
        granules.save_all(&pool, &[(2 << 20, 8), ((1 << 20) + 128, 256)]);
        assert_eq!(kept.calls.load(Ordering::SeqCst), 1);
        // More than fit one fence: each is saved once.
        granules.save_all(&pool, &[(128, 8), (16384, 16384)]);
        assert_eq!(kept.calls.load(Ordering::SeqCst), 5);
        let expected: Vec<u64> = (0..128).map(|granule| 16384 + granule * 128).collect();
        assert_eq!(places(&kept), expected);
    }

    #[test]
    fn what_was_free_at_the_last_commit_is_not_saved() {
        let pool = SimPool::new(1 << 16);
        let kept = Arc::new(Kept::default());
        let granules = Granules::new(1 << 16, Arc::clone(&kept) as Arc<dyn UndoWriter>);
        let stored = |at| {
            granules.save(&pool, at, 8);
            taken(&kept).len()
        };
        let taken_and_stored = |at| {
            granules.allocated(&pool, at, 128);
            stored(at)
        };
        granules.begin(5);
        assert_eq!(taken_and_stored(0), 1, "nothing was committed yet");
        granules.begin(6);
        granules.commit(5);
        // Never in use before, and reused in the same transaction.
        assert_eq!(taken_and_stored(4096), 0);
        granules.freed(4096, 128);
        assert_eq!(taken_and_stored(4096), 0);
        // In use at the commit, freed since: saved the first time, and no more.
        granules.freed(0, 128);
        assert_eq!(taken_and_stored(0), 1);
        granules.freed(0, 128);
        assert_eq!(taken_and_stored(0), 0);
        granules.freed(8192, 128);
        assert_eq!(stored(8192), 1);
        // The transaction before is being committed: what it freed is still referred to.
        granules.freed(12288, 128);
        granules.begin(7);
        assert_eq!(taken_and_stored(12288), 1);
        assert_eq!(stored(4096), 1, "it is in use");
        granules.freed(12288, 128);
        granules.begin(8);
        granules.commit(7);
        assert_eq!(taken_and_stored(12288), 0);
    }

    /// Once, until it is stored to or freed: then it is saved as it is at that time.
    #[test]
    fn what_was_free_at_the_last_commit_is_written_fresh() {
        let pool = SimPool::new(1 << 16);
        let kept = Arc::new(Kept::default());
        let granules = Granules::new(1 << 16, Arc::clone(&kept) as Arc<dyn UndoWriter>);
        granules.begin(5);
        assert!(
            !granules.is_fresh(&pool, 0, 128),
            "nothing was committed yet"
        );
        granules.begin(6);
        granules.commit(5);
        assert!(granules.is_fresh(&pool, 0, 128));
        pool.write(0, &[7; 128]);
        assert_eq!(taken(&kept), []);
        granules.save(&pool, 8, 8);
        assert_eq!(taken(&kept), [(6, 0, 7)]);
        assert!(!granules.is_fresh(&pool, 0, 128), "it was stored to");
        granules.freed(4096, 128);
        assert!(
            !granules.is_fresh(&pool, 4096, 128),
            "it is still referred to"
        );
        // The transaction before is being committed.
        granules.begin(7);
        assert!(!granules.is_fresh(&pool, 0, 128) && !granules.is_fresh(&pool, 4096, 128));
        granules.commit(6);
        assert!(granules.is_fresh(&pool, 0, 128) && granules.is_fresh(&pool, 4096, 128));
    }

    #[test]
    fn granules_outside_are_ignored() {
        let pool = SimPool::new(1 << 16);
        let kept = Arc::new(Kept::default());
        let granules = Granules::new(256, Arc::clone(&kept) as Arc<dyn UndoWriter>);
        granules.begin(1);
        granules.save(&pool, 256, 64);
        granules.save(&pool, u64::MAX, 8);
        granules.save(&pool, 64, 0);
        assert_eq!(taken(&kept), []);
        granules.save(&pool, 192, 4096);
        assert_eq!(taken(&kept), [(1, 128, 0)]);
    }

    /// Before references to them are stored: a kill in between leaves no trace in the process.
    #[test]
    fn failed_data_writes_are_reported_at_once() {
        let disk = Arc::new(SimPool::new(1 << 16));
        let pool = SimLogged::new(Arc::clone(&disk), None);
        let kept = Arc::new(Kept::default());
        let split = Split {
            image_bytes: 4096,
            data_at: 8192,
            is_external: true,
        };
        let undo = Arc::clone(&kept) as Arc<dyn UndoWriter>;
        pool.begin_transactions(split, undo).unwrap();
        pool.write(8192, &[1; 64]);
        assert!(!kept.has_failed.load(Ordering::SeqCst));
        disk.fail_writes_after(0);
        pool.write(8192, &[2; 64]);
        assert!(kept.has_failed.load(Ordering::SeqCst));
    }

    #[test]
    fn a_second_thread_waits_until_a_granule_is_saved() {
        let pool = SimPool::new(1 << 16);
        let kept = Arc::new(Kept {
            is_slow: true,
            ..Kept::default()
        });
        let granules = Granules::new(1 << 16, Arc::clone(&kept) as Arc<dyn UndoWriter>);
        granules.begin(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for granule in 0..512 {
                        granules.save(&pool, granule * 128, 8);
                        pool.store(granule * 128, 1, Ordering::Relaxed);
                    }
                });
            }
        });
        let kept = taken(&kept);
        assert_eq!(kept.len(), 512);
        assert!(kept.iter().all(|&(_, _, byte)| byte == 0));
    }
}
