//! Works on every processor: no cache instructions, words through relaxed atomics.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, compiler_fence};

use super::{LANES, Lanes, mix, place_among};

/// Bytes of a word.
const WORD: usize = 8;

/// Hashes [`LANES`] keys one after the other; their multiplications overlap in the pipeline.
pub(super) fn hash_lanes(seed: u64, first: u64, slots: u32) -> Lanes {
    let hashes: [u64; LANES] =
        std::array::from_fn(|lane| mix(seed ^ first.wrapping_add(lane as u64)));
    Lanes {
        hashes,
        places: hashes.map(|hash| place_among(hash, slots)),
    }
}

/// Keeps the compiler from moving stores past this point; the processor has nothing to do.
pub(super) fn fence() {
    compiler_fence(Ordering::SeqCst);
}

/// Copies `len` bytes out of shared memory, whole aligned words at once.
///
/// # Safety
/// `from` must be readable for `len` bytes through atomics, and so must the page that holds the
/// last of them; `to` must be writable for `len` bytes and the caller's own.
#[inline]
pub(super) unsafe fn copy_out(mut from: *const u8, mut to: *mut u8, mut len: usize) {
    // SAFETY: every pointer below is `from` or `to` advanced by less than the `len` bytes that the
    // caller guarantees. Words are read only at aligned addresses; the last one may not be whole,
    // but lies in the page of its first byte, which is mapped. `to` needs no alignment.
    unsafe {
        while len > 0 && !from.cast::<u64>().is_aligned() {
            *to = (*from.cast::<AtomicU8>()).load(Ordering::Relaxed);
            (from, to, len) = (from.add(1), to.add(1), len - 1);
        }
        while len >= WORD {
            let word = (*from.cast::<AtomicU64>()).load(Ordering::Relaxed);
            to.cast::<u64>().write_unaligned(word);
            (from, to, len) = (from.add(WORD), to.add(WORD), len - WORD);
        }
        if len > 0 {
            let word = (*from.cast::<AtomicU64>()).load(Ordering::Relaxed);
            put_short(word.to_le(), to, len);
        }
    }
}

/// Copies `len` bytes into shared memory, whole aligned words at once.
///
/// # Safety
/// `from` must be readable for `len` bytes and the caller's own, `to` writable through atomics.
#[inline]
pub(super) unsafe fn copy_in(mut from: *const u8, mut to: *mut u8, mut len: usize) {
    // SAFETY: every pointer is `from` or `to` advanced by less than `len`. Words are stored only
    // where they are aligned and whole; after them `to` is aligned to 8, so its halves and quarters
    // are.
    unsafe {
        while len > 0 && !to.cast::<u64>().is_aligned() {
            (*to.cast::<AtomicU8>()).store(*from, Ordering::Relaxed);
            (from, to, len) = (from.add(1), to.add(1), len - 1);
        }
        while len >= WORD {
            let word = from.cast::<u64>().read_unaligned();
            (*to.cast::<AtomicU64>()).store(word, Ordering::Relaxed);
            (from, to, len) = (from.add(WORD), to.add(WORD), len - WORD);
        }
        if len & 4 != 0 {
            let four = from.cast::<u32>().read_unaligned();
            (*to.cast::<AtomicU32>()).store(four, Ordering::Relaxed);
            (from, to) = (from.add(4), to.add(4));
        }
        if len & 2 != 0 {
            let two = from.cast::<u16>().read_unaligned();
            (*to.cast::<AtomicU16>()).store(two, Ordering::Relaxed);
            (from, to) = (from.add(2), to.add(2));
        }
        if len & 1 != 0 {
            (*to.cast::<AtomicU8>()).store(*from, Ordering::Relaxed);
        }
    }
}

/// Zeroes `len` bytes of shared memory, whole aligned words at once.
///
/// # Safety
/// `to` must be writable for `len` bytes through atomics.
pub(super) unsafe fn zero(mut to: *mut u8, mut len: usize) {
    // SAFETY: every pointer is `to` advanced by less than `len`; words are stored aligned and
    // whole.
    unsafe {
        while len > 0 {
            if len >= WORD && to.cast::<u64>().is_aligned() {
                (*to.cast::<AtomicU64>()).store(0, Ordering::Relaxed);
                (to, len) = (to.add(WORD), len - WORD);
            } else {
                (*to.cast::<AtomicU8>()).store(0, Ordering::Relaxed);
                (to, len) = (to.add(1), len - 1);
            }
        }
    }
}

/// Which of the eight words at `line` equal `want` under `mask`.
///
/// # Safety
/// `line` must be 64-byte aligned and readable for 64 bytes through atomics.
#[inline]
pub(super) unsafe fn match_line(line: *const u8, mask: u64, want: u64) -> u8 {
    let words = line.cast::<AtomicU64>();
    (0..8).fold(0, |bits, i| {
        // SAFETY: `i` is below 8, within the line.
        let word = unsafe { (*words.add(i)).load(Ordering::Acquire) };
        bits | (u8::from(word & mask == want) << i)
    })
}

/// Whether `len` bytes of shared memory equal the caller's.
///
/// # Safety
/// `shared` must be readable through atomics for `len` bytes, and so must the page that holds the
/// last of them; `own` must be readable for `len` bytes.
#[inline]
pub(super) unsafe fn bytes_equal(
    mut shared: *const u8,
    mut own: *const u8,
    mut len: usize,
) -> bool {
    // SAFETY: every pointer is one of the two advanced by less than `len`. The masked last word is
    // aligned, so it lies in the page of its first byte, which is mapped.
    unsafe {
        while len > 0 && !shared.cast::<u64>().is_aligned() {
            if (*shared.cast::<AtomicU8>()).load(Ordering::Relaxed) != *own {
                return false;
            }
            (shared, own, len) = (shared.add(1), own.add(1), len - 1);
        }
        while len >= WORD {
            let word = (*shared.cast::<AtomicU64>()).load(Ordering::Relaxed);
            if word != own.cast::<u64>().read_unaligned() {
                return false;
            }
            (shared, own, len) = (shared.add(WORD), own.add(WORD), len - WORD);
        }
        if len == 0 {
            return true;
        }
        let word = (*shared.cast::<AtomicU64>())
            .load(Ordering::Relaxed)
            .to_le();
        word & ((1 << (8 * len)) - 1) == short_word(own, len)
    }
}

/// Stores the lowest 1 to 7 bytes of `word` at `own`.
///
/// # Safety
/// `own` must be writable for `len` bytes.
#[inline]
unsafe fn put_short(mut word: u64, mut own: *mut u8, len: usize) {
    // SAFETY: `own` advances by the bytes written, within `len`; the bits of `len` say how many are
    // left.
    unsafe {
        if len & 4 != 0 {
            own.cast::<u32>().write_unaligned((word as u32).to_le());
            (own, word) = (own.add(4), word >> 32);
        }
        if len & 2 != 0 {
            own.cast::<u16>().write_unaligned((word as u16).to_le());
            (own, word) = (own.add(2), word >> 16);
        }
        if len & 1 != 0 {
            *own = word as u8;
        }
    }
}

/// The 1 to 7 bytes at `own`, little-endian.
///
/// # Safety
/// `own` must be readable for `len` bytes.
#[inline]
unsafe fn short_word(own: *const u8, len: usize) -> u64 {
    // SAFETY: `at` grows by the bytes read and stays within `len`; the bits of `len` say how many
    // are left.
    unsafe {
        let (mut word, mut at) = (0, 0);
        if len & 4 != 0 {
            word = u64::from(own.cast::<u32>().read_unaligned().to_le());
            at = 4;
        }
        if len & 2 != 0 {
            let two = own.add(at).cast::<u16>().read_unaligned().to_le();
            word |= u64::from(two) << (8 * at);
            at += 2;
        }
        if len & 1 != 0 {
            word |= u64::from(*own.add(at)) << (8 * at);
        }
        word
    }
}
