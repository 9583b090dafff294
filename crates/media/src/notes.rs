//! Which lines of an image were stored to since the last cut: a bit a line, and a bit for each word of these.
//!
//! A line is noted before it is stored to, by whoever stores; a cut comes when nobody does. Who finds a line's bit set knows
//! that whoever set it sets the bit above, too, before a cut can come.

use crate::heap::zeroed_cells;
use crate::memory::LINE_BYTES;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines that were stored to.
pub(crate) struct Notes {
    lines: Box<[AtomicU64]>,
    /// A bit for each word of `lines`.
    words: Box<[AtomicU64]>,
}

impl Notes {
    /// For an image of `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        let words = bytes.div_ceil(LINE_BYTES).div_ceil(64) as usize;
        Self {
            lines: zeroed_cells(words),
            words: zeroed_cells(words.div_ceil(64)),
        }
    }

    /// Notes the lines that `[at, at + len)` touches; those outside the image are passed over.
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
    }

    fn set(&self, number: u64, word: &AtomicU64, bits: u64) {
        word.fetch_or(bits, Ordering::Relaxed);
        self.words[(number / 64) as usize].fetch_or(1 << (number % 64), Ordering::Relaxed);
    }

    /// Calls `each` with the offset of every line that was noted, ascending, and forgets them. Nobody stores meanwhile.
    pub(crate) fn take(&self, each: &mut dyn FnMut(u64)) {
        for (number, word) in (0..).zip(&self.words) {
            for index in bits_of(word.swap(0, Ordering::AcqRel)) {
                let word = number * 64 + index;
                let lines = self.lines[word as usize].swap(0, Ordering::AcqRel);
                bits_of(lines).for_each(|bit| each((word * 64 + bit) * LINE_BYTES));
            }
        }
    }
}

/// The numbers of the bits that are set, ascending.
fn bits_of(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| u64::from(word.trailing_zeros()));
        word &= word.wrapping_sub(1);
        bit
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(notes: &Notes) -> Vec<u64> {
        let mut lines = Vec::new();
        notes.take(&mut |at| lines.push(at / LINE_BYTES));
        lines
    }

    #[test]
    fn what_was_noted_is_taken_once() {
        let notes = Notes::new(1 << 20);
        for (at, len) in [
            (0, 8),
            (60, 8),
            (127, 1),
            (64 * 200, 64 * 130),
            ((1 << 20) - 1, 1),
        ] {
            notes.note(at, len);
        }
        let mut expected = vec![0, 1];
        expected.extend(200..330);
        expected.push((1 << 14) - 1);
        assert_eq!(taken(&notes), expected);
        assert_eq!(taken(&notes), []);
        notes.note(64, 1);
        assert_eq!(taken(&notes), [1]);
    }

    #[test]
    fn what_lies_outside_is_passed_over() {
        let notes = Notes::new(4096);
        notes.note(4096, 64);
        notes.note(u64::MAX, 8);
        notes.note(4032, 4096);
        assert_eq!(taken(&notes), [63]);
    }
}
