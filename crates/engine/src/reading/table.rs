//! The page table of an open file: a window twice the file's size, filled piece by piece, and for
//! each piece the saving that was forgone by not filling it.
//!
//! Blocks in the window are *present*. They were mapped under one version of the file's mapping,
//! and are valid only under that version: a reader that finds the same version before and after its
//! copy has copied the file's contents. Holes are never present, so filling a hole needs no new
//! version. Pages are only ever added under one version. Under another version the window is
//! emptied first; a reader that still copies from it reads zeros and finds the version changed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use vellum_layout::BLOCK_BYTES;
use vellum_media::Window;

use super::PageTable;

/// Blocks of a piece: 2 MiB, a large page.
pub(crate) const CHUNK_BLOCKS: u64 = 512;
/// Bytes of a piece.
pub(crate) const CHUNK_BYTES: u64 = CHUNK_BLOCKS * BLOCK_BYTES;
/// Pieces of the largest table: 32 GiB, for a file of 16 GiB. Larger files are searched.
const CHUNKS_MAX: u64 = 1 << 14;
/// An odd version, which no readable file has.
const NO_VERSION: u64 = u64::MAX;

/// A file's page table.
#[derive(Debug)]
pub(crate) struct Table {
    chunks: Box<[Chunk]>,
    /// The mapping version under which the present blocks were mapped.
    version: AtomicU64,
    window: OnceLock<Option<Window>>,
    /// Held while the window changes.
    filling: Mutex<Filling>,
    /// Set once no more blocks are added: the process has no memory areas left, or the system
    /// refused.
    full: AtomicBool,
    /// The table that replaced this one when the file outgrew it.
    larger: OnceLock<Arc<Table>>,
}

/// A piece of the table.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// What its page table would have saved.
    pub(crate) forgone_ps: AtomicU64,
    /// Its price, if known.
    pub(crate) price_ps: AtomicU64,
    /// A bit for each block: whether it is in the window.
    present: [AtomicU64; (CHUNK_BLOCKS / 64) as usize],
}

/// State that changes with the window.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    /// Pool offset of each block, for pieces that were looked up and not bought; 0: none.
    pub(crate) surveys: HashMap<u64, Box<[u64]>>,
    /// Number of views of the window.
    pub(crate) views: u64,
}

impl Table {
    /// A table for a file of `size` bytes and for as many more. `None` if that is too large.
    pub(crate) fn for_size(size: u64) -> Option<Self> {
        let chunks = size.saturating_mul(2).div_ceil(CHUNK_BYTES).max(1);
        (chunks <= CHUNKS_MAX).then(|| Self {
            chunks: (0..chunks).map(|_| Chunk::default()).collect(),
            version: AtomicU64::new(NO_VERSION),
            window: OnceLock::new(),
            filling: Mutex::default(),
            full: AtomicBool::new(false),
            larger: OnceLock::new(),
        })
    }

    /// Number of bytes of the file that fit.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_BYTES
    }

    /// Whether a file of `size` bytes fits.
    pub(crate) fn covers(&self, size: u64) -> bool {
        size <= self.bytes()
    }

    /// The slot for the table that replaces this one.
    pub(super) fn larger(&self) -> &OnceLock<Arc<Self>> {
        &self.larger
    }

    /// The piece with this number.
    pub(crate) fn chunk(&self, number: u64) -> Option<&Chunk> {
        self.chunks.get(number as usize)
    }

    /// The state of the table, for users.
    pub(super) fn summary(&self) -> PageTable {
        let words = self.chunks.iter().flat_map(|chunk| &chunk.present);
        PageTable {
            blocks: words
                .map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()))
                .sum(),
            gave_up: self.full.load(Ordering::Relaxed),
        }
    }

    /// The window, if there is one.
    #[inline]
    pub(crate) fn window(&self) -> Option<&Window> {
        self.window.get()?.as_ref()
    }

    /// Whether bytes `[offset, offset + len)` of one piece are in the window under `version`.
    #[inline]
    pub(crate) fn holds(&self, version: u64, offset: u64, len: u64) -> bool {
        if self.version.load(Ordering::Acquire) != version || len == 0 {
            return false;
        }
        let Some(chunk) = self.chunk(offset / CHUNK_BYTES) else {
            return false;
        };
        let first = offset % CHUNK_BYTES / BLOCK_BYTES;
        let last = (offset % CHUNK_BYTES + len - 1) / BLOCK_BYTES;
        last < CHUNK_BLOCKS && chunk.has(first, last)
    }

    /// Whether bytes `[offset, offset + len)`, of any number of pieces, are in the window under
    /// `version`.
    pub(crate) fn holds_all(&self, version: u64, offset: u64, len: u64) -> bool {
        pieces(offset, len).all(|(at, len)| self.holds(version, at, len))
    }

    /// Keeps the window's contents in place if `holds` confirms that the wanted bytes are there.
    /// `None` if it does not, or while the window changes.
    pub(crate) fn pin(&self, holds: impl FnOnce() -> bool) -> Option<Pin<'_>> {
        let mut filling = match self.filling.try_lock() {
            Ok(filling) => filling,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        holds().then(|| {
            filling.views += 1;
            Pin(self)
        })
    }

    /// Locks the window for a change, if it is unlocked and can still be changed.
    pub(crate) fn try_fill(&self) -> Option<MutexGuard<'_, Filling>> {
        if self.full.load(Ordering::Relaxed) {
            return None;
        }
        match self.filling.try_lock() {
            Ok(filling) => Some(filling),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Empties the table if it belongs to an earlier version, and assigns it to this one. Returns
    /// `false` if it belongs to a later one already, or if views of the window forbid the change.
    ///
    /// A reader that copies from the window meanwhile reads zeros, and finds that the file's
    /// version has changed since its copy began. That protects only readers of the earlier version,
    /// so a late caller must not empty what belongs to the file's current version.
    pub(crate) fn renew(&self, filling: &mut Filling, version: u64) -> bool {
        let now = self.version.load(Ordering::Relaxed);
        if now == version {
            return true;
        }
        let is_late = now != NO_VERSION && version < now;
        if is_late || filling.views > 0 {
            return false;
        }
        self.version.store(NO_VERSION, Ordering::SeqCst);
        filling.surveys.clear();
        for chunk in &self.chunks {
            chunk.forgone_ps.store(0, Ordering::Relaxed);
            chunk.price_ps.store(0, Ordering::Relaxed);
            let words = chunk.present.iter();
            words.for_each(|word| word.store(0, Ordering::Relaxed));
        }
        if self.window().is_some_and(|window| window.clear().is_err()) {
            self.give_up();
            return false;
        }
        self.version.store(version, Ordering::Release);
        true
    }

    /// The window, reserved with `reserve` at its first use.
    pub(crate) fn reserve(&self, reserve: impl FnOnce(u64) -> Option<Window>) -> Option<&Window> {
        let window = self.window.get_or_init(|| reserve(self.bytes())).as_ref();
        if window.is_none() {
            self.give_up();
        }
        window
    }

    /// Stops adding blocks. Present blocks stay.
    pub(crate) fn give_up(&self) {
        self.full.store(true, Ordering::Relaxed);
    }
}

/// Keeps the contents of a window in place until it is dropped.
#[derive(Debug)]
pub(crate) struct Pin<'a>(&'a Table);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let filling = self.0.filling.lock();
        filling.unwrap_or_else(PoisonError::into_inner).views -= 1;
    }
}

/// Splits a range at the borders of pieces.
pub(crate) fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        let here = (CHUNK_BYTES - at % CHUNK_BYTES).min(end - at);
        let piece = (at, here);
        at += here;
        (here > 0).then_some(piece)
    })
}

impl Chunk {
    /// Whether blocks `first` to `last` are present.
    #[inline]
    fn has(&self, first: u64, last: u64) -> bool {
        let (low, high) = ((first / 64) as usize, (last / 64) as usize);
        (low..=high).all(|i| {
            let mut want = u64::MAX;
            if i == low {
                want &= u64::MAX << (first % 64);
            }
            if i == high {
                want &= u64::MAX >> (63 - last % 64);
            }
            self.present[i].load(Ordering::Acquire) & want == want
        })
    }

    /// Whether one block is present.
    pub(crate) fn has_block(&self, block: u64) -> bool {
        self.has(block, block)
    }

    /// Marks blocks `[first, first + len)` as present.
    pub(crate) fn add(&self, first: u64, len: u64) {
        for block in first..first + len {
            self.present[(block / 64) as usize].fetch_or(1 << (block % 64), Ordering::Release);
        }
    }

    /// Resets the forgone saving: the piece was bought, or there is nothing to buy.
    pub(crate) fn settle(&self) {
        self.forgone_ps.store(0, Ordering::Relaxed);
        self.price_ps.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_room_for_twice_the_file() {
        let table = Table::for_size(3 << 20).unwrap();
        assert!(table.covers(6 << 20));
        assert!(!table.covers((6 << 20) + 1));
        assert!(Table::for_size(16 << 30).is_some());
        assert!(Table::for_size((16 << 30) + 1).is_none());
        assert!(Table::for_size(u64::MAX).is_none());
    }

    #[test]
    fn present_blocks_are_valid_only_under_their_version() {
        let table = Table::for_size(4 << 20).unwrap();
        let mut filling = table.try_fill().unwrap();
        assert!(table.try_fill().is_none(), "one at a time");
        assert!(table.renew(&mut filling, 4));
        let chunk = table.chunk(1).unwrap();
        chunk.add(60, 70);
        let at = |block| CHUNK_BYTES + block * BLOCK_BYTES;
        assert!(table.holds(4, at(60), 70 * BLOCK_BYTES));
        assert!(table.holds(4, at(129) + 4095, 1));
        assert!(!table.holds(4, at(129) + 4095, 2));
        assert!(!table.holds(4, at(59) + 4095, 2));
        assert!(!table.holds(4, at(60) - CHUNK_BYTES, 1), "another piece");
        assert!(!table.holds(6, at(60), 1), "another version");
        chunk.forgone_ps.store(7, Ordering::Relaxed);
        filling.views = 1;
        assert!(!table.renew(&mut filling, 6), "a view uses the window");
        filling.views = 0;
        assert!(table.renew(&mut filling, 6));
        assert!(!table.holds(6, at(60), 1));
        assert_eq!(chunk.forgone_ps.load(Ordering::Relaxed), 0);
    }

    /// Readers of the file's current version are copying from the window.
    #[test]
    fn a_late_reader_empties_nothing() {
        let table = Table::for_size(4 << 20).unwrap();
        let mut filling = table.try_fill().unwrap();
        assert!(table.renew(&mut filling, 6));
        table.chunk(0).unwrap().add(3, 2);
        assert!(!table.renew(&mut filling, 4));
        assert!(table.holds(6, 3 * BLOCK_BYTES, 2 * BLOCK_BYTES));
    }
}
