//! Saves the contents of lines before the first store to them, so that stores can be reverted.

use crate::heap::HeapMemory;
use crate::memory::LINE_BYTES;
use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Lines of a group: the reversal skips groups without saved lines.
const GROUP_LINES: u64 = 64;

/// No store to the line yet.
const UNTOUCHED: u8 = 0;
/// A thread is saving the line, before its store.
const SAVING: u8 = 1;
/// The line is in the copy.
const SAVED: u8 = 2;

/// Saved contents of the lines of a memory.
pub(crate) struct Undo {
    is_on: AtomicBool,
    /// One state per line.
    states: Box<[AtomicU8]>,
    /// One flag per group: lines of it may have been saved.
    groups: Box<[AtomicBool]>,
    /// Holds saved lines at the same offsets as the memory.
    copy: HeapMemory,
}

impl Undo {
    /// For a memory of `len` bytes.
    pub(crate) fn new(len: u64) -> Self {
        let lines = len.div_ceil(LINE_BYTES);
        Self {
            is_on: AtomicBool::new(false),
            states: (0..lines).map(|_| AtomicU8::new(UNTOUCHED)).collect(),
            groups: (0..lines.div_ceil(GROUP_LINES))
                .map(|_| AtomicBool::new(false))
                .collect(),
            copy: HeapMemory::new(len),
        }
    }

    /// Starts saving.
    pub(crate) fn start(&self) {
        self.is_on.store(true, Ordering::SeqCst);
    }

    /// Must be called before a store to `[at, at + len)`, which lies inside the memory.
    #[inline]
    pub(crate) fn save(&self, memory: &HeapMemory, at: u64, len: u64) {
        if self.is_on.load(Ordering::Relaxed) && len > 0 {
            (at / LINE_BYTES..=(at + len - 1) / LINE_BYTES)
                .for_each(|line| self.save_line(memory, line));
        }
    }

    #[inline]
    fn save_line(&self, memory: &HeapMemory, line: u64) {
        let state = &self.states[line as usize];
        if state.load(Ordering::Acquire) != SAVED {
            self.save_untouched(memory, line, state);
        }
    }

    /// Saves the line. Other threads that store to it for the first time wait here until it is
    /// saved.
    fn save_untouched(&self, memory: &HeapMemory, line: u64, state: &AtomicU8) {
        let mine = state.compare_exchange(UNTOUCHED, SAVING, Ordering::Acquire, Ordering::Acquire);
        if mine.is_ok() {
            self.groups[(line / GROUP_LINES) as usize].store(true, Ordering::Relaxed);
            copy_line(memory, &self.copy, line);
            state.store(SAVED, Ordering::Release);
        }
        while state.load(Ordering::Acquire) != SAVED {
            hint::spin_loop();
        }
    }

    /// Restores everything that was saved, and stops saving. Other threads must have finished.
    pub(crate) fn revert(&self, memory: &HeapMemory) {
        self.is_on.store(false, Ordering::SeqCst);
        for (group, is_touched) in (0..).zip(&self.groups) {
            if is_touched.load(Ordering::Relaxed) {
                is_touched.store(false, Ordering::Relaxed);
                self.revert_group(memory, group);
            }
        }
    }

    fn revert_group(&self, memory: &HeapMemory, group: u64) {
        let first = group * GROUP_LINES;
        let lines = (first..first + GROUP_LINES).zip(&self.states[first as usize..]);
        for (line, state) in lines {
            if state.load(Ordering::Acquire) == SAVED {
                copy_line(&self.copy, memory, line);
                state.store(UNTOUCHED, Ordering::Relaxed);
            }
        }
    }
}

/// Copies a line. The last line of a memory may be short.
fn copy_line(from: &HeapMemory, to: &HeapMemory, line: u64) {
    const CELLS: usize = (LINE_BYTES / 8) as usize;
    let first = line as usize * CELLS;
    let cells = from.cells()[first..].iter().zip(&to.cells()[first..]);
    for (from, to) in cells.take(CELLS) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
