//! Blocks of a pool that somebody copies while it changes: whoever is about to change one first
//! keeps its old bytes.
//!
//! A block's bit is cleared once its bytes are kept or copied, under a lock, and a writer stores
//! only after it has seen the bit clear. So each block is read once, as it was when the copy began.

use crate::fault::faults;
use crate::heap::zeroed_cells;
use crate::memory::{BLOCK_BYTES, Memory};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Blocks of a group, which has a word of the bitmap.
pub const GROUP_BLOCKS: u64 = 64;
/// Locks, each for every `LOCKS`th group.
const LOCKS: usize = 64;
/// From this many kept blocks on, writers wait until the copier has taken some.
const KEPT_MAX: usize = 8192;
/// A writer waits no longer than this. Then the copy is given up.
const STALL_MAX: Duration = Duration::from_secs(10);

type Block = [u8; BLOCK_BYTES as usize];

/// A block that a writer has kept.
pub struct KeptBlock {
    /// Its offset.
    pub at: u64,
    /// Its bytes when the copy began.
    pub bytes: Box<Block>,
    /// Whether they were all readable.
    pub is_whole: bool,
}

/// The blocks that a copy still needs.
pub struct Preserver {
    needed: Box<[AtomicU64]>,
    locks: [Mutex<()>; LOCKS],
    kept: Mutex<Vec<KeptBlock>>,
    /// Signalled when `kept` gets room.
    room: Condvar,
    given_up: AtomicBool,
    stall_max: Duration,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads bytes. Returns whether all of them were readable.
pub fn read_whole<M: Memory + ?Sized>(memory: &M, at: u64, out: &mut [u8]) -> bool {
    // Bytes lost during this read change the condition. Those lost before are counted for the
    // thread, once the memory is watched.
    memory.watch();
    let before = (memory.condition(), faults().count);
    memory.read(at, out);
    (memory.condition(), faults().count) == before
}

impl Preserver {
    /// For a memory of `bytes` bytes, of which no block is needed yet.
    pub fn new(bytes: u64) -> Self {
        Self {
            needed: zeroed_cells(bytes.div_ceil(GROUP_BLOCKS * BLOCK_BYTES) as usize),
            locks: std::array::from_fn(|_| Mutex::default()),
            kept: Mutex::default(),
            room: Condvar::new(),
            given_up: AtomicBool::new(false),
            stall_max: STALL_MAX,
        }
    }

    /// Calls `each` with the groups of these blocks and their bits.
    fn groups(&self, blocks: Range<u64>, mut each: impl FnMut(u64, &AtomicU64, u64)) {
        let mut block = blocks.start;
        while block < blocks.end {
            let first = block % GROUP_BLOCKS;
            let count = (GROUP_BLOCKS - first).min(blocks.end - block);
            let group = block / GROUP_BLOCKS;
            let Some(word) = self.needed.get(group as usize) else {
                return;
            };
            each(group, word, u64::MAX >> (64 - count) << first);
            block += count;
        }
    }

    /// Adds blocks to those that are needed. No other thread uses this, or changes any of them,
    /// meanwhile.
    pub fn need(&self, blocks: Range<u64>) {
        self.groups(blocks, |_, word, bits| {
            word.store(word.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
        });
    }

    /// A block is not needed after all.
    pub fn spare(&self, block: u64) {
        self.groups(block..block + 1, |_, word, bits| {
            word.fetch_and(!bits, Ordering::Relaxed);
        });
    }

    /// The number of groups.
    pub fn group_count(&self) -> u64 {
        self.needed.len() as u64
    }

    /// Must be called before the bytes `[at, at + len)` of `memory` change.
    #[cold]
    pub(crate) fn before_change<M: Memory + ?Sized>(&self, memory: &M, at: u64, len: u64) {
        let end = at.saturating_add(len).div_ceil(BLOCK_BYTES);
        let mut has_kept = false;
        self.groups(at / BLOCK_BYTES..end, |group, word, bits| {
            if word.load(Ordering::Acquire) & bits != 0 {
                self.keep(memory, group, bits);
                has_kept = true;
            }
        });
        if has_kept {
            self.wait_for_room();
        }
    }

    fn keep<M: Memory + ?Sized>(&self, memory: &M, group: u64, bits: u64) {
        let _locked = locked(&self.locks[group as usize % LOCKS]);
        let word = &self.needed[group as usize];
        for bit in crate::dirty_lines::bits_of(word.load(Ordering::Acquire) & bits) {
            let at = (group * GROUP_BLOCKS + bit) * BLOCK_BYTES;
            let mut bytes = Box::new([0; BLOCK_BYTES as usize]);
            let is_whole = read_whole(memory, at, &mut bytes[..]);
            locked(&self.kept).push(KeptBlock {
                at,
                bytes,
                is_whole,
            });
            word.fetch_and(!(1 << bit), Ordering::Release);
        }
    }

    /// Waits, holding nothing that the copier needs, as long as too many blocks are kept.
    fn wait_for_room(&self) {
        let began = Instant::now();
        let mut kept = locked(&self.kept);
        while kept.len() > KEPT_MAX && !self.is_given_up() {
            let left = self.stall_max.saturating_sub(began.elapsed());
            if left.is_zero() {
                drop(kept);
                return self.give_up();
            }
            let waited = self.room.wait_timeout(kept, left);
            kept = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Calls `read` with each run of needed blocks of a group; once it returns, they are no longer
    /// needed. Writers to these blocks wait.
    pub fn take_group(&self, group: u64, mut read: impl FnMut(Range<u64>)) {
        let word = &self.needed[group as usize];
        if word.load(Ordering::Acquire) == 0 {
            return;
        }
        let _locked = locked(&self.locks[group as usize % LOCKS]);
        let bits = word.load(Ordering::Acquire);
        let mut block = 0;
        while block < GROUP_BLOCKS && bits >> block != 0 {
            block += u64::from((bits >> block).trailing_zeros());
            let run = u64::from((bits >> block).trailing_ones());
            let first = group * GROUP_BLOCKS + block;
            read(first..first + run);
            block += run;
        }
        word.fetch_and(!bits, Ordering::Release);
    }

    /// The blocks that writers have kept since the last call.
    pub fn take_kept(&self) -> Vec<KeptBlock> {
        let kept = std::mem::take(&mut *locked(&self.kept));
        self.room.notify_all();
        kept
    }

    /// Nothing is needed any more, and nobody waits.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        let none = |word: &AtomicU64| word.store(0, Ordering::Release);
        self.needed.iter().for_each(none);
        drop(self.take_kept());
    }

    /// Whether the copy was given up, because the copier took too long.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::HeapMemory;
    use std::sync::Arc;

    const BLOCKS: u64 = 200;

    fn memory() -> HeapMemory {
        let memory = HeapMemory::new(BLOCKS * BLOCK_BYTES);
        (0..BLOCKS).for_each(|block| memory.write(block * BLOCK_BYTES, &[block as u8; 4096]));
        memory
    }

    fn change(preserver: &Preserver, memory: &HeapMemory, at: u64, len: usize) {
        preserver.before_change(memory, at, len as u64);
        memory.write(at, &vec![0xFF; len]);
    }

    #[test]
    fn each_needed_block_is_read_once_as_it_was() {
        let (memory, preserver) = (memory(), Preserver::new(BLOCKS * BLOCK_BYTES));
        preserver.need(3..150);
        preserver.spare(70);
        change(&preserver, &memory, 5 * BLOCK_BYTES - 1, 2);
        change(&preserver, &memory, 5 * BLOCK_BYTES, 8);
        // Neither needed.
        change(&preserver, &memory, 0, 8);
        change(&preserver, &memory, 70 * BLOCK_BYTES, 8);
        change(&preserver, &memory, 62 * BLOCK_BYTES, 3 * 4096);
        let mut found: Vec<u64> = Vec::new();
        for kept in preserver.take_kept() {
            assert!(kept.is_whole);
            assert!(
                kept.bytes
                    .iter()
                    .all(|&byte| u64::from(byte) == kept.at / BLOCK_BYTES)
            );
            found.push(kept.at / BLOCK_BYTES);
        }
        assert_eq!(found, [4, 5, 62, 63, 64]);
        (0..preserver.group_count()).for_each(|group| {
            preserver.take_group(group, |run| found.extend(run));
        });
        found.sort_unstable();
        let expected: Vec<u64> = (3..150).filter(|block| *block != 70).collect();
        assert_eq!(found, expected);
        change(&preserver, &memory, 100 * BLOCK_BYTES, 8);
        assert!(preserver.take_kept().is_empty());
    }

    #[test]
    fn a_writer_waits_for_a_copier_but_not_for_ever() {
        let bytes = (KEPT_MAX as u64 + 2) * BLOCK_BYTES;
        let memory = HeapMemory::new(bytes);
        let mut preserver = Preserver::new(bytes);
        preserver.stall_max = Duration::from_millis(20);
        preserver.need(0..KEPT_MAX as u64 + 2);
        change(&preserver, &memory, 0, KEPT_MAX * 4096);
        assert!(!preserver.is_given_up());
        change(&preserver, &memory, KEPT_MAX as u64 * BLOCK_BYTES, 8);
        assert!(preserver.is_given_up() && preserver.take_kept().is_empty());
        change(&preserver, &memory, (KEPT_MAX as u64 + 1) * BLOCK_BYTES, 8);
        assert!(preserver.take_kept().is_empty());
    }

    #[test]
    fn writers_and_a_copier_share_the_blocks() {
        let memory = Arc::new(memory());
        let preserver = Arc::new(Preserver::new(BLOCKS * BLOCK_BYTES));
        preserver.need(0..BLOCKS);
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (memory, preserver) = (Arc::clone(&memory), Arc::clone(&preserver));
                let write = move || {
                    (0..BLOCKS).for_each(|block| {
                        let at = (block * (7 + writer) % BLOCKS) * BLOCK_BYTES;
                        change(&preserver, &memory, at, 4096);
                    });
                };
                std::thread::spawn(write)
            })
            .collect();
        let mut found = Vec::new();
        for group in 0..preserver.group_count() {
            preserver.take_group(group, |run| {
                for block in run {
                    let mut bytes = [0; 4096];
                    memory.read(block * BLOCK_BYTES, &mut bytes);
                    assert!(bytes.iter().all(|&byte| u64::from(byte) == block));
                    found.push(block);
                }
            });
        }
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        for kept in preserver.take_kept() {
            let block = kept.at / BLOCK_BYTES;
            assert!(kept.bytes.iter().all(|&byte| u64::from(byte) == block));
            found.push(block);
        }
        found.sort_unstable();
        assert_eq!(found, (0..BLOCKS).collect::<Vec<_>>());
    }
}
