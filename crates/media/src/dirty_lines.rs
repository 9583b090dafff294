//! The dirty lines of an image, stored to since the last cut: one bit per line, and one bit per
//! word of these.
//!
//! A thread marks a line before it stores to it; a cut comes when no thread stores. If a thread
//! finds a line's bit set, the thread that set it also sets the bit above before a cut can come. A
//! kill can come in between: the dirty lines of a killed process are read from the map of lines
//! only.

use crate::heap::zeroed_cells;
use crate::mapping::Mapping;
use crate::memory::LINE_BYTES;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// Cells on the heap or in a mapping.
pub(crate) enum Cells {
    Heap(Box<[AtomicU64]>),
    Mapped {
        /// `count` cells, in a mapping.
        start: *const AtomicU64,
        count: usize,
        _kept: Arc<Mapping>,
    },
}

// SAFETY: `start` points to atomics, which any thread may use while the mapping lives.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

impl Cells {
    /// Zeroed cells on the heap.
    pub(crate) fn new(count: usize) -> Self {
        Self::Heap(zeroed_cells(count))
    }

    /// The cells from `at` of the mapping on; none, if they are not all inside it.
    pub(crate) fn mapped(mapping: &Arc<Mapping>, at: u64, count: usize) -> Self {
        let cells = mapping.cells(at, count).unwrap_or(&[]);
        Self::Mapped {
            start: cells.as_ptr(),
            count: cells.len(),
            _kept: Arc::clone(mapping),
        }
    }
}

impl Deref for Cells {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        match self {
            Self::Heap(cells) => cells,
            Self::Mapped { start, count, .. } => {
                // SAFETY: the mapping returned these as a slice, and lives as long as `self`.
                unsafe { std::slice::from_raw_parts(*start, *count) }
            }
        }
    }
}

/// Bytes of a map of the lines of `bytes` bytes: whole words.
pub(crate) fn map_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(LINE_BYTES).div_ceil(64) * 8
}

/// The dirty lines.
pub(crate) struct DirtyLines {
    lines: Cells,
    /// A bit for each word of `lines`.
    words: Cells,
}

impl DirtyLines {
    /// For an image of `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self::in_cells(Cells::new((map_bytes(bytes) / 8) as usize))
    }

    /// Uses these cells, which are zero, as the map of lines.
    pub(crate) fn in_cells(lines: Cells) -> Self {
        let words = Cells::new(lines.len().div_ceil(64));
        Self { lines, words }
    }

    /// Marks the lines that `[at, at + len)` touches; those outside the image are ignored.
    #[inline]
    pub(crate) fn note(&self, at: u64, len: u64) {
        let (mut line, last) = (
            at / LINE_BYTES,
            at.saturating_add(len.max(1) - 1) / LINE_BYTES,
        );
        while let Some(word) = self.lines.get((line / 64) as usize)
            && line <= last
        {
            let first = line % 64;
            let count = (last - line + 1).min(64 - first);
            let bits = u64::MAX >> (64 - count) << first;
            if word.load(Ordering::Relaxed) & bits != bits {
                self.set(line / 64, word, bits);
            }
            line += count;
        }
        // A kill leaves what was done so far, so the compiler must not move the store that follows
        // before this. The processor stops between instructions.
        compiler_fence(Ordering::SeqCst);
    }

    /// Marks the lines of a word of another map.
    pub(crate) fn add(&self, number: u64, lines: u64) {
        if let Some(word) = self.lines.get(number as usize) {
            self.set(number, word, lines);
        }
    }

    /// Calls `each` with the offset of every line in one of the maps, ascending: the dirty lines of
    /// a killed process.
    pub(crate) fn each_of(maps: &[&Self; 2], mut each: impl FnMut(u64)) {
        let [first, second] = maps.map(|map| map.lines.iter());
        for ((a, b), word) in first.zip(second).zip(0..) {
            let lines = a.load(Ordering::Acquire) | b.load(Ordering::Acquire);
            bits_of(lines).for_each(|bit| each((word * 64 + bit) * LINE_BYTES));
        }
    }

    fn set(&self, number: u64, word: &AtomicU64, bits: u64) {
        word.fetch_or(bits, Ordering::Relaxed);
        self.words[(number / 64) as usize].fetch_or(1 << (number % 64), Ordering::Relaxed);
    }

    /// Calls `each` with the offset of every dirty line, ascending, and clears it; before any is
    /// cleared, `keep` gets the word of the map and its number. No thread stores meanwhile.
    pub(crate) fn take(&self, keep: impl Fn(u64, u64), each: &mut dyn FnMut(u64)) {
        for (number, word) in (0..).zip(&*self.words) {
            for index in bits_of(word.swap(0, Ordering::AcqRel)) {
                let word = number * 64 + index;
                let cell = &self.lines[word as usize];
                let lines = cell.load(Ordering::Acquire);
                keep(word, lines);
                cell.fetch_and(!lines, Ordering::AcqRel);
                bits_of(lines).for_each(|bit| each((word * 64 + bit) * LINE_BYTES));
            }
        }
    }
}

/// The numbers of the set bits, ascending.
pub(crate) fn bits_of(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| u64::from(word.trailing_zeros()));
        word &= word.wrapping_sub(1);
        bit
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(dirty_lines: &DirtyLines) -> Vec<u64> {
        let mut lines = Vec::new();
        dirty_lines.take(|_, _| {}, &mut |at| lines.push(at / LINE_BYTES));
        lines
    }

    #[test]
    fn dirty_lines_are_taken_once() {
        let dirty_lines = DirtyLines::new(1 << 20);
        for (at, len) in [
            (0, 8),
            (60, 8),
            (127, 1),
            (64 * 200, 64 * 130),
            ((1 << 20) - 1, 1),
        ] {
            dirty_lines.note(at, len);
        }
        let mut expected = vec![0, 1];
        expected.extend(200..330);
        expected.push((1 << 14) - 1);
        assert_eq!(taken(&dirty_lines), expected);
        assert_eq!(taken(&dirty_lines), []);
        dirty_lines.note(64, 1);
        assert_eq!(taken(&dirty_lines), [1]);
    }

    #[test]
    fn lines_outside_are_ignored() {
        let dirty_lines = DirtyLines::new(4096);
        dirty_lines.note(4096, 64);
        dirty_lines.note(u64::MAX, 8);
        dirty_lines.note(4032, 4096);
        assert_eq!(taken(&dirty_lines), [63]);
    }
}
