//! Which pieces of metadata were kept as they were before the running transaction first stored to them.
//!
//! A transaction begins when nobody stores. Whoever stores to a piece first keeps it; whoever else wants to store to it waits for that.

use crate::heap::zeroed_cells;
use crate::memory::Persistent;
use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a piece.
const PIECE_BYTES: u64 = 128;
/// Pieces that are kept with one fence, at most.
const BATCH: usize = 32;

/// Keeps what pieces of 128 bytes hold.
pub trait Originals: Send + Sync {
    /// Makes durable elsewhere in `pool` what these pieces hold, by their offsets, before `transaction` changes them. Nobody stores to them
    /// meanwhile.
    fn keep(&self, pool: &dyn Persistent, transaction: u64, pieces: &[u64]);

    /// Says in `pool` that bytes of a file did not reach their medium: whoever opens it next must not build on what leads to them.
    fn fail(&self, pool: &dyn Persistent);
}

/// The state of every piece.
pub(crate) struct Pieces {
    /// The transaction that runs.
    running: AtomicU64,
    /// The last transaction before whose store the piece was kept, << 1, and whether that is being done.
    states: Box<[AtomicU64]>,
    originals: Arc<dyn Originals>,
}

impl Pieces {
    /// For the first `bytes` of a pool. Nothing is kept before the first transaction begins.
    pub(crate) fn new(bytes: u64, originals: Arc<dyn Originals>) -> Self {
        Self {
            running: AtomicU64::new(0),
            states: zeroed_cells(bytes.div_ceil(PIECE_BYTES) as usize),
            originals,
        }
    }

    /// A transaction begins, with a higher number than all before. Nobody stores meanwhile.
    pub(crate) fn begin(&self, transaction: u64) {
        self.running.store(transaction, Ordering::SeqCst);
    }

    /// Before a store to `[at, at + len)` of `pool`; what lies outside the pieces is passed over.
    #[inline]
    pub(crate) fn save(&self, pool: &dyn Persistent, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let first = (at / PIECE_BYTES) as usize;
        let end = at.saturating_add(len).div_ceil(PIECE_BYTES) as usize;
        let Some(states) = self.states.get(first..end.min(self.states.len())) else {
            return;
        };
        let transaction = self.running.load(Ordering::Acquire);
        for (batch, number) in states.chunks(BATCH).zip((first..).step_by(BATCH)) {
            let is_kept = |state: &AtomicU64| state.load(Ordering::Acquire) == transaction << 1;
            if !batch.iter().all(is_kept) {
                self.save_batch(pool, transaction, (number as u64, batch));
            }
        }
    }

    /// Bytes of a file did not reach their medium.
    pub(crate) fn fail(&self, pool: &dyn Persistent) {
        self.originals.fail(pool);
    }

    #[cold]
    fn save_batch(
        &self,
        pool: &dyn Persistent,
        transaction: u64,
        (first, states): (u64, &[AtomicU64]),
    ) {
        let (kept, keeping) = (transaction << 1, transaction << 1 | 1);
        let mut pieces = [0; BATCH];
        let mut mine = 0;
        for (state, number) in states.iter().zip(first..) {
            if is_claimed(state, keeping) {
                pieces[mine] = number * PIECE_BYTES;
                mine += 1;
            }
        }
        if mine > 0 {
            self.originals.keep(pool, transaction, &pieces[..mine]);
        }
        for piece in &pieces[..mine] {
            let state = &states[(piece / PIECE_BYTES - first) as usize];
            // Nobody else changes it.
            let _ = state.compare_exchange(keeping, kept, Ordering::Release, Ordering::Relaxed);
        }
        // Nothing of ours is waited for by then.
        for state in states {
            while state.load(Ordering::Acquire) == keeping {
                hint::spin_loop();
            }
        }
    }
}

/// Whether it is for the caller to keep a piece: nobody has done so in this transaction, or a later one.
fn is_claimed(state: &AtomicU64, keeping: u64) -> bool {
    let order = Ordering::AcqRel;
    let claim = |before: u64| (before | 1 < keeping).then_some(keeping);
    state.fetch_update(order, Ordering::Acquire, claim).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Split;
    use crate::memory::Memory;
    use crate::sim::SimPool;
    use crate::sim_logged::SimLogged;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    /// Remembers what was kept, with the first byte that was there.
    #[derive(Default)]
    struct Kept {
        pieces: Mutex<Vec<(u64, u64, u8)>>,
        /// Whether it takes a while.
        is_slow: bool,
        has_failed: AtomicBool,
    }

    impl Originals for Kept {
        fn keep(&self, pool: &dyn Persistent, transaction: u64, pieces: &[u64]) {
            if self.is_slow {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
            for &piece in pieces {
                let mut byte = [0];
                pool.read(piece, &mut byte);
                let mut all = self.pieces.lock().unwrap();
                all.push((transaction, piece, byte[0]));
            }
        }

        fn fail(&self, _pool: &dyn Persistent) {
            self.has_failed.store(true, Ordering::SeqCst);
        }
    }

    fn taken(kept: &Kept) -> Vec<(u64, u64, u8)> {
        std::mem::take(&mut kept.pieces.lock().unwrap())
    }

    #[test]
    fn each_piece_is_kept_once_a_transaction() {
        let pool = SimPool::new(1 << 16);
        let kept = Arc::new(Kept::default());
        let pieces = Pieces::new(8192, Arc::clone(&kept) as Arc<dyn Originals>);
        pieces.save(&pool, 0, 8192);
        assert_eq!(taken(&kept), [], "no transaction has begun");
        pieces.begin(5);
        pieces.save(&pool, 120, 16);
        pool.write(0, &[9; 256]);
        pieces.save(&pool, 0, 256);
        assert_eq!(taken(&kept), [(5, 0, 0), (5, 128, 0)]);
        pieces.begin(6);
        pieces.save(&pool, 128, 8);
        assert_eq!(taken(&kept), [(6, 128, 9)]);
        pieces.save(&pool, 0, 8192);
        let rest: Vec<u64> = taken(&kept)
            .iter()
            .map(|(_, piece, _)| piece / 128)
            .collect();
        let expected: Vec<u64> = (0..64).filter(|&piece| piece != 1).collect();
        assert_eq!(rest, expected);
    }

    #[test]
    fn what_lies_outside_is_passed_over() {
        let pool = SimPool::new(1 << 16);
        let kept = Arc::new(Kept::default());
        let pieces = Pieces::new(256, Arc::clone(&kept) as Arc<dyn Originals>);
        pieces.begin(1);
        pieces.save(&pool, 256, 64);
        pieces.save(&pool, u64::MAX, 8);
        pieces.save(&pool, 64, 0);
        assert_eq!(taken(&kept), []);
        pieces.save(&pool, 192, 4096);
        assert_eq!(taken(&kept), [(1, 128, 0)]);
    }

    /// Before what leads to them is stored: a kill in between leaves no word of it in the process.
    #[test]
    fn bytes_that_do_not_arrive_are_told_at_once() {
        let disk = Arc::new(SimPool::new(1 << 16));
        let pool = SimLogged::new(Arc::clone(&disk), None);
        let kept = Arc::new(Kept::default());
        let split = Split {
            image_bytes: 4096,
            data_at: 8192,
            is_apart: true,
        };
        let originals = Arc::clone(&kept) as Arc<dyn Originals>;
        pool.begin_transactions(split, originals).unwrap();
        pool.write(8192, &[1; 64]);
        assert!(!kept.has_failed.load(Ordering::SeqCst));
        disk.fail_writes_after(0);
        pool.write(8192, &[2; 64]);
        assert!(kept.has_failed.load(Ordering::SeqCst));
    }

    #[test]
    fn whoever_comes_second_waits_until_a_piece_is_kept() {
        let pool = SimPool::new(1 << 16);
        let kept = Arc::new(Kept {
            is_slow: true,
            ..Kept::default()
        });
        let pieces = Pieces::new(1 << 16, Arc::clone(&kept) as Arc<dyn Originals>);
        pieces.begin(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for piece in 0..512 {
                        pieces.save(&pool, piece * 128, 8);
                        pool.store(piece * 128, 1, Ordering::Relaxed);
                    }
                });
            }
        });
        let kept = taken(&kept);
        assert_eq!(kept.len(), 512);
        assert!(kept.iter().all(|&(_, _, byte)| byte == 0));
    }
}
