//! Which lines of an image were stored to since the last cut: a bit a line, and a bit for each word
//! of these.
//!
//! A line is noted before it is stored to, by whoever stores; a cut comes when nobody does. Who
//! finds a line's bit set knows that whoever set it sets the bit above, too, before a cut can come.
//! A kill can come before it does: what a killed process noted is read from the lines alone.

use crate::heap::zeroed_cells;
use crate::mapping::Mapping;
use crate::memory::LINE_BYTES;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// Cells on the heap, or in a mapping.
pub(crate) enum Cells {
    Heap(Box<[AtomicU64]>),
    Mapped {
        /// `count` cells, in a mapping.
        start: *const AtomicU64,
        count: usize,
        _kept: Arc<Mapping>,
    },
}

// SAFETY: what `start` leads to are atomics, which any thread may use as long as the mapping lives.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

impl Cells {
    /// Zeros, on the heap.
    pub(crate) fn new(count: usize) -> Self {
        Self::Heap(zeroed_cells(count))
    }

    /// Those from `at` of the mapping on; none, if they are not all in it.
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
                // SAFETY: the mapping gave these as a slice, and is kept as long as `self`.
                unsafe { std::slice::from_raw_parts(*start, *count) }
            }
        }
    }
}

/// Bytes of a map of the lines of so many bytes: whole words.
pub(crate) fn map_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(LINE_BYTES).div_ceil(64) * 8
}

/// Lines that were stored to.
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

    /// In such a map of lines, which is empty.
    pub(crate) fn in_cells(lines: Cells) -> Self {
        let words = Cells::new(lines.len().div_ceil(64));
        Self { lines, words }
    }

    /// DirtyLines the lines that `[at, at + len)` touches; those outside the image are passed over.
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
        // A kill leaves what was done so far: the store that follows must not be done before, by
        // the compiler. The processor stops between instructions.
        compiler_fence(Ordering::SeqCst);
    }

    /// DirtyLines lines as another map's word has them.
    pub(crate) fn add(&self, number: u64, lines: u64) {
        if let Some(word) = self.lines.get(number as usize) {
            self.set(number, word, lines);
        }
    }

    /// Calls `each` with the offset of every line that is in one of the maps, ascending: what a
    /// killed process noted.
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

    /// Calls `each` with the offset of every line that was noted, ascending, and forgets them;
    /// before it forgets any, `keep` gets the word of the map, and its number. Nobody stores
    /// meanwhile.
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

/// The numbers of the bits that are set, ascending.
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
    fn what_was_noted_is_taken_once() {
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
    fn what_lies_outside_is_passed_over() {
        let dirty_lines = DirtyLines::new(4096);
        dirty_lines.note(4096, 64);
        dirty_lines.note(u64::MAX, 8);
        dirty_lines.note(4032, 4096);
        assert_eq!(taken(&dirty_lines), [63]);
    }
}
