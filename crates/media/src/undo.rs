//! What lines held before they were first stored to, so that stores can be taken back.

use crate::heap::HeapMemory;
use crate::memory::{LINE_BYTES, Memory};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Lines of a memory, as they were.
pub(crate) struct Undo {
    is_on: AtomicBool,
    /// A bit a line: it was saved.
    is_saved: Box<[AtomicU64]>,
    lines: Mutex<Vec<(u64, [u8; LINE_BYTES as usize])>>,
}

impl Undo {
    /// For a memory of `len` bytes.
    pub(crate) fn new(len: u64) -> Self {
        let words = len.div_ceil(LINE_BYTES).div_ceil(64);
        Self {
            is_on: AtomicBool::new(false),
            is_saved: (0..words).map(|_| AtomicU64::new(0)).collect(),
            lines: Mutex::default(),
        }
    }

    /// Saves from now on.
    pub(crate) fn start(&self) {
        self.is_on.store(true, Ordering::SeqCst);
    }

    /// Before a store to `[at, at + len)`, which lies inside the memory.
    #[inline]
    pub(crate) fn save(&self, memory: &HeapMemory, at: u64, len: u64) {
        if self.is_on.load(Ordering::Relaxed) && len > 0 {
            (at / LINE_BYTES..=(at + len - 1) / LINE_BYTES)
                .for_each(|line| self.save_line(memory, line));
        }
    }

    fn save_line(&self, memory: &HeapMemory, line: u64) {
        let (word, bit) = (&self.is_saved[(line / 64) as usize], 1 << (line % 64));
        if word.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever else stores to the line for the first time waits here until it is saved.
        if word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let mut bytes = [0; LINE_BYTES as usize];
            let there = (memory.len() - line * LINE_BYTES).min(LINE_BYTES) as usize;
            memory.read(line * LINE_BYTES, &mut bytes[..there]);
            lines.push((line, bytes));
        }
    }

    /// Puts everything back that was saved, and saves no more.
    pub(crate) fn revert(&self, memory: &HeapMemory) {
        self.is_on.store(false, Ordering::SeqCst);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        for (line, bytes) in lines.drain(..) {
            let there = (memory.len() - line * LINE_BYTES).min(LINE_BYTES) as usize;
            memory.write(line * LINE_BYTES, &bytes[..there]);
            self.is_saved[(line / 64) as usize].store(0, Ordering::Relaxed);
        }
    }
}
