//! The processor's instructions for moving lines, chosen once at run time.
//!
//! There is one file per instruction set, and all have the same results. A mapping keeps its
//! [`Isa`] in a plain field, so the choice costs a predicted branch. The environment can force a
//! choice, for tests and experiments: `VELLUM_FLUSH` (`clwb`, `clflushopt`, `clflush`, `generic`)
//! and `VELLUM_VECTOR` (`avx512`, `avx2`, `sse2`, `generic`). Unsupported and unknown names are
//! ignored.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod cache;
mod generic;
#[cfg(target_arch = "x86_64")]
mod sse2;
#[cfg(target_arch = "x86_64")]
mod string;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How lines are written back; the smallest value is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlushVariant {
    /// Written back and kept in the cache.
    Clwb,
    /// Written back and dropped, in any order.
    ClflushOpt,
    /// Written back and dropped, one after the other.
    Clflush,
    /// No instruction: for media that need none, and processors without one.
    Generic,
}

/// How lines are copied, zeroed and searched, and keys hashed; the smallest value is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VectorVariant {
    /// 64 bytes at once.
    Avx512,
    /// 32 bytes at once.
    Avx2,
    /// 16 bytes at once.
    Sse2,
    /// Words; streaming stores become stores and flushes.
    Generic,
}

impl FlushVariant {
    /// All variants, the best first.
    pub const ALL: [Self; 4] = [Self::Clwb, Self::ClflushOpt, Self::Clflush, Self::Generic];

    /// The name in `VELLUM_FLUSH`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clwb => "clwb",
            Self::ClflushOpt => "clflushopt",
            Self::Clflush => "clflush",
            Self::Generic => "generic",
        }
    }

    /// Whether this processor supports it.
    pub fn is_supported(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{__cpuid, __cpuid_count};
            // SDM volume 2, CPUID leaf 7: the bit of EBX for the feature.
            let leaf_7 = |bit: u32| __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx >> bit & 1 == 1;
            match self {
                Self::Clwb => leaf_7(24),
                Self::ClflushOpt => leaf_7(23),
                Self::Clflush | Self::Generic => true,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Generic
        }
    }
}

impl VectorVariant {
    /// All variants, the best first.
    pub const ALL: [Self; 4] = [Self::Avx512, Self::Avx2, Self::Sse2, Self::Generic];

    /// The name in `VELLUM_VECTOR`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Sse2 => "sse2",
            Self::Generic => "generic",
        }
    }

    /// Whether this processor supports it.
    pub fn is_supported(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            match self {
                Self::Avx512 => {
                    std::arch::is_x86_feature_detected!("avx512f")
                        && std::arch::is_x86_feature_detected!("avx512dq")
                }
                Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
                Self::Sse2 | Self::Generic => true,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Generic
        }
    }
}

/// Keys that are hashed together.
pub const LANES: usize = 8;

/// Hashes of [`LANES`] consecutive keys, see [`Isa::hash_lanes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// The result of [`mix`] for each key.
    pub hashes: [u64; LANES],
    /// The result of [`place_among`] for each hash.
    pub places: [u64; LANES],
}

/// An odd number with ones and zeros spread evenly.
const MIX_FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;

/// Mixes 64 bits so that every input bit reaches every output bit (two multiply-xorshift rounds).
#[inline]
pub fn mix(value: u64) -> u64 {
    let mut x = value;
    for _ in 0..2 {
        x ^= x >> 32;
        x = x.wrapping_mul(MIX_FACTOR);
    }
    x ^ (x >> 32)
}

/// Maps a hash to one of `slots` equal parts of all 64-bit numbers: the upper half of the product
/// of the two.
#[inline]
pub fn place_among(hash: u64, slots: u32) -> u64 {
    // Below 2^64: (2^32 - 1)^2 + 2^32 - 1. The dropped carry is below the point.
    let low = ((hash & 0xFFFF_FFFF) * u64::from(slots)) >> 32;
    ((hash >> 32) * u64::from(slots) + low) >> 32
}

/// A pair of variants that this processor supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa {
    // Private: the unsafe code relies on both being supported.
    flush: FlushVariant,
    vector: VectorVariant,
}

impl Isa {
    /// These variants, if the processor supports both.
    pub fn new(flush: FlushVariant, vector: VectorVariant) -> Option<Self> {
        (flush.is_supported() && vector.is_supported()).then_some(Self { flush, vector })
    }

    /// The variants that every processor supports.
    pub fn generic() -> Self {
        Self {
            flush: FlushVariant::Generic,
            vector: VectorVariant::Generic,
        }
    }

    /// The best variants of this processor, unless the environment asks for others. Concurrent
    /// first callers all find them out instead of waiting for another thread, which a child of
    /// `fork` may not have.
    pub fn chosen() -> Self {
        static CHOSEN: [AtomicU8; 2] = [const { AtomicU8::new(0) }; 2];
        let chosen = CHOSEN
            .each_ref()
            .map(|number| usize::from(number.load(Ordering::Relaxed)).checked_sub(1));
        if let [Some(flush), Some(vector)] = chosen {
            return Self {
                flush: FlushVariant::ALL[flush],
                vector: VectorVariant::ALL[vector],
            };
        }
        let asked = |name| std::env::var(name).unwrap_or_default();
        let isa = Self::choose(&asked("VELLUM_FLUSH"), &asked("VELLUM_VECTOR"));
        for (cell, number) in CHOSEN.iter().zip([isa.flush as u8, isa.vector as u8]) {
            cell.store(number + 1, Ordering::Relaxed);
        }
        isa
    }

    /// The variants of these names, or the best ones where the processor lacks them.
    fn choose(flush: &str, vector: &str) -> Self {
        let flushes = FlushVariant::ALL
            .into_iter()
            .filter(|variant| variant.is_supported());
        let vectors = VectorVariant::ALL
            .into_iter()
            .filter(|variant| variant.is_supported());
        let mut named_flush = flushes.clone().filter(|variant| variant.name() == flush);
        let mut named_vector = vectors.clone().filter(|variant| variant.name() == vector);
        Self {
            flush: named_flush
                .next()
                .or(flushes.min())
                .unwrap_or(FlushVariant::Generic),
            vector: named_vector
                .next()
                .or(vectors.min())
                .unwrap_or(VectorVariant::Generic),
        }
    }

    /// How lines are written back.
    pub fn flush_variant(self) -> FlushVariant {
        self.flush
    }

    /// How lines are copied, zeroed and searched, and keys hashed.
    pub fn vector_variant(self) -> VectorVariant {
        self.vector
    }

    /// Hashes the [`LANES`] keys from `first` on (modulo 2^64), each xored with `seed` and mixed,
    /// and maps each hash to one of `slots`. Every variant has the same result.
    #[inline]
    pub fn hash_lanes(self, seed: u64, first: u64, slots: u32) -> Lanes {
        match self.vector {
            // SAFETY: `self` holds supported variants only.
            #[cfg(target_arch = "x86_64")]
            VectorVariant::Avx512 => unsafe { avx512::hash_lanes(seed, first, slots) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            VectorVariant::Avx2 => unsafe { avx2::hash_lanes(seed, first, slots) },
            _ => generic::hash_lanes(seed, first, slots),
        }
    }
}

impl Default for Isa {
    fn default() -> Self {
        Self::chosen()
    }
}

/// Copies shorter than this go word by word, without a look at the chosen variant.
#[cfg(target_arch = "x86_64")]
const SHORT_BYTES: usize = 64;

/// Copies of at least this many lines use the processor's string move: from here on it was faster
/// than vectors by a tenth to a quarter, below it slower.
#[cfg(target_arch = "x86_64")]
const LONG_LINES: usize = (32 << 10) / 64;

#[cfg(target_arch = "x86_64")]
impl Isa {
    /// Starts writing back `lines` lines from `first`.
    ///
    /// # Safety
    /// The lines must be mapped.
    #[inline(always)]
    pub(crate) unsafe fn flush_lines(self, first: *const u8, lines: usize) {
        // SAFETY: the caller guarantees that the lines are mapped; `self` holds supported variants
        // only.
        unsafe {
            match self.flush {
                FlushVariant::Clwb => cache::clwb(first, lines),
                FlushVariant::ClflushOpt => cache::clflushopt(first, lines),
                FlushVariant::Clflush => cache::clflush(first, lines),
                FlushVariant::Generic => generic::fence(),
            }
        }
    }

    /// Evicts `lines` lines from `first` on from all caches, and waits until they are gone.
    ///
    /// # Safety
    /// The lines must be mapped.
    pub(crate) unsafe fn evict_lines(self, first: *const u8, lines: usize) {
        // SAFETY: the caller guarantees that the lines are mapped; every x86-64 has the
        // instruction.
        unsafe { cache::clflush(first, lines) };
        // Unlike a store fence, this also waits for `clflush`.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Waits for this thread's write-backs and streaming stores.
    #[inline(always)]
    pub(crate) fn fence(self) {
        cache::sfence();
    }

    /// Stores a word and starts writing it back, past the cache if the variant can.
    ///
    /// # Safety
    /// The cell's line must be mapped.
    #[inline(always)]
    pub(crate) unsafe fn store_through(self, cell: &AtomicU64, value: u64) {
        if self.vector == VectorVariant::Generic {
            cell.store(value, Ordering::Release);
            // SAFETY: the caller guarantees that the line is mapped.
            unsafe { self.flush_lines(cell.as_ptr().cast(), 1) };
        } else {
            cache::movnti(cell, value);
        }
    }

    /// Copies lines into memory, past the cache if the variant can.
    ///
    /// # Safety
    /// `to` must be 64-byte aligned and writable for `lines` lines, `from` readable for as many
    /// bytes; they do not overlap.
    #[inline]
    pub(crate) unsafe fn copy_through(self, from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: the caller fulfils each variant's requirements; `self` holds supported variants
        // only.
        unsafe {
            match self.vector {
                VectorVariant::Avx512 => avx512::copy_through(from, to, lines),
                VectorVariant::Avx2 => avx2::copy_through(from, to, lines),
                VectorVariant::Sse2 => sse2::copy_through(from, to, lines),
                VectorVariant::Generic => {
                    generic::copy_in(from, to, lines * 64);
                    self.flush_lines(to, lines);
                }
            }
        }
    }

    /// Zeroes lines, past the cache if the variant can.
    ///
    /// # Safety
    /// `to` must be 64-byte aligned and writable for `lines` lines.
    #[inline]
    pub(crate) unsafe fn zero_through(self, to: *mut u8, lines: usize) {
        // SAFETY: the caller fulfils each variant's requirements; `self` holds supported variants
        // only.
        unsafe {
            match self.vector {
                VectorVariant::Avx512 => avx512::zero_through(to, lines),
                VectorVariant::Avx2 => avx2::zero_through(to, lines),
                VectorVariant::Sse2 => sse2::zero_through(to, lines),
                VectorVariant::Generic => {
                    generic::zero(to, lines * 64);
                    self.flush_lines(to, lines);
                }
            }
        }
    }

    /// Copies out of memory that other threads may change meanwhile; aligned words are read whole.
    ///
    /// # Safety
    /// `from` must be mapped for `len` bytes; `to` must be the caller's own for as many.
    #[inline]
    pub(crate) unsafe fn copy_out(self, mut from: *const u8, mut to: *mut u8, mut len: usize) {
        // SAFETY: `head` and `whole` are at most `len`, so every part lies within what the caller
        // guarantees; `self` holds supported variants only.
        unsafe {
            if len >= SHORT_BYTES && self.vector != VectorVariant::Generic {
                let head = from.align_offset(8);
                generic::copy_out(from, to, head);
                (from, to, len) = (from.add(head), to.add(head), len - head);
                let lines = len / 64;
                self.copy_lines(from, to, lines);
                let whole = lines * 64;
                (from, to, len) = (from.add(whole), to.add(whole), len - whole);
            }
            generic::copy_out(from, to, len);
        }
    }

    /// Copies into memory that other threads may read meanwhile; aligned words are stored whole.
    ///
    /// # Safety
    /// `to` must be mapped and writable for `len` bytes; `from` must be readable for as many.
    #[inline]
    pub(crate) unsafe fn copy_in(self, mut from: *const u8, mut to: *mut u8, mut len: usize) {
        // SAFETY: as in `copy_out`, with the sides exchanged.
        unsafe {
            if len >= SHORT_BYTES && self.vector != VectorVariant::Generic {
                let head = to.align_offset(8);
                generic::copy_in(from, to, head);
                (from, to, len) = (from.add(head), to.add(head), len - head);
                let lines = len / 64;
                self.copy_lines(from, to, lines);
                let whole = lines * 64;
                (from, to, len) = (from.add(whole), to.add(whole), len - whole);
            }
            generic::copy_in(from, to, len);
        }
    }

    /// Copies whole lines' worth of bytes.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable for `lines * 64` bytes; they do not overlap.
    #[inline(always)]
    unsafe fn copy_lines(self, from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: the caller fulfils each variant's requirements; `self` holds supported variants
        // only.
        unsafe {
            match self.vector {
                _ if lines >= LONG_LINES => string::copy(from, to, lines * 8),
                VectorVariant::Avx512 => avx512::copy(from, to, lines),
                // 32 bytes at once gained nothing. Never called for the generic variant.
                _ => sse2::copy(from, to, lines),
            }
        }
    }

    /// Which of the eight words at `line` equal `want` under `mask`.
    ///
    /// # Safety
    /// `line` must be 64-byte aligned and mapped.
    #[inline(always)]
    pub(crate) unsafe fn match_line(self, line: *const u8, mask: u64, want: u64) -> u8 {
        // SAFETY: the caller fulfils each variant's requirements; `self` holds supported variants
        // only.
        unsafe {
            match self.vector {
                VectorVariant::Avx512 => avx512::match_line(line, mask, want),
                VectorVariant::Avx2 => avx2::match_line(line, mask, want),
                VectorVariant::Sse2 | VectorVariant::Generic => {
                    generic::match_line(line, mask, want)
                }
            }
        }
    }

    /// Prefetches the line at `address`. Any address is valid.
    #[inline(always)]
    pub(crate) fn prefetch(self, address: *const u8) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Isa {
    pub(crate) unsafe fn flush_lines(self, _first: *const u8, _lines: usize) {
        generic::fence();
    }

    pub(crate) unsafe fn evict_lines(self, _first: *const u8, _lines: usize) {}

    pub(crate) fn fence(self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    pub(crate) unsafe fn store_through(self, cell: &AtomicU64, value: u64) {
        cell.store(value, Ordering::Release);
    }

    pub(crate) unsafe fn copy_through(self, from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: the caller guarantees whole lines on both sides.
        unsafe { generic::copy_in(from, to, lines * 64) };
    }

    pub(crate) unsafe fn zero_through(self, to: *mut u8, lines: usize) {
        // SAFETY: the caller guarantees the lines.
        unsafe { generic::zero(to, lines * 64) };
    }

    pub(crate) unsafe fn copy_out(self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller makes the required promise.
        unsafe { generic::copy_out(from, to, len) };
    }

    pub(crate) unsafe fn copy_in(self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller makes the required promise.
        unsafe { generic::copy_in(from, to, len) };
    }

    pub(crate) unsafe fn match_line(self, line: *const u8, mask: u64, want: u64) -> u8 {
        // SAFETY: the caller makes the required promise.
        unsafe { generic::match_line(line, mask, want) }
    }

    pub(crate) fn prefetch(self, _address: *const u8) {}
}

/// Whether the bytes at `run` equal `expected`; aligned words are compared whole.
///
/// # Safety
/// `run` must be mapped for the length of `expected`.
#[inline]
pub(crate) unsafe fn bytes_equal(run: *const u8, expected: &[u8]) -> bool {
    // SAFETY: the caller guarantees the run.
    unsafe { generic::bytes_equal(run, expected.as_ptr(), expected.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_what_the_processor_has() {
        let best = Isa::choose("", "");
        assert_eq!(Isa::choose("generic", "generic"), Isa::generic());
        assert_eq!(Isa::choose("no such", "thing"), best);
        for flush in FlushVariant::ALL {
            let got = Isa::choose(flush.name(), "").flush_variant();
            assert_eq!(
                got,
                if flush.is_supported() {
                    flush
                } else {
                    best.flush_variant()
                }
            );
        }
        for vector in VectorVariant::ALL {
            let got = Isa::choose("", vector.name()).vector_variant();
            assert_eq!(
                got,
                if vector.is_supported() {
                    vector
                } else {
                    best.vector_variant()
                }
            );
        }
        eprintln!("this processor: {best:?}");
    }
}
