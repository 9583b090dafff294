//! A whole line at once. Assembly uses registers 16 to 31 only: they leave no dirty upper halves
//! behind, so nothing has to be cleared or saved.

use std::arch::asm;
use std::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_mul_epu32, _mm512_mullo_epi64, _mm512_set1_epi64,
    _mm512_setr_epi64, _mm512_srli_epi64, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::{Lanes, MIX_FACTOR};

/// Hashes all lanes in one register.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn hash_lanes(seed: u64, first: u64, slots: u32) -> Lanes {
    let each = |word: u64| _mm512_set1_epi64(word as i64);
    let fold = |x: __m512i| _mm512_xor_si512(x, _mm512_srli_epi64::<32>(x));
    let keys = _mm512_add_epi64(each(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    let mut x = _mm512_xor_si512(each(seed), keys);
    for _ in 0..2 {
        x = _mm512_mullo_epi64(fold(x), each(MIX_FACTOR));
    }
    let hashes = fold(x);
    // The upper half of a product of 64 and 32 bits, from two products of 32 bits.
    let slots = each(u64::from(slots));
    let low = _mm512_srli_epi64::<32>(_mm512_mul_epu32(hashes, slots));
    let high = _mm512_mul_epu32(_mm512_srli_epi64::<32>(hashes), slots);
    let places = _mm512_srli_epi64::<32>(_mm512_add_epi64(high, low));
    let mut lanes = Lanes::default();
    // SAFETY: both arrays have the 64 bytes that are stored, and need no alignment.
    unsafe {
        _mm512_storeu_si512(lanes.hashes.as_mut_ptr().cast(), hashes);
        _mm512_storeu_si512(lanes.places.as_mut_ptr().cast(), places);
    }
    lanes
}

/// Copies whole lines past the cache.
///
/// # Safety
/// The processor must have AVX-512F. `to` must be 64-byte aligned and writable for `lines` lines,
/// `from` readable for as many bytes; they do not overlap.
pub(super) unsafe fn copy_through(from: *const u8, to: *mut u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: reads `lines * 64` bytes at `from` and writes as many at `to`, which the caller
    // guarantees to be valid; the changed registers are declared.
    unsafe {
        asm!(
            "2:",
            "vmovdqu64 zmm16, [{from}]",
            "vmovntdq [{to}], zmm16",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            out("zmm16") _,
            options(nostack),
        );
    }
}

/// Zeroes whole lines past the cache.
///
/// # Safety
/// The processor must have AVX-512F. `to` must be 64-byte aligned and writable for `lines` lines.
pub(super) unsafe fn zero_through(to: *mut u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: writes `lines * 64` bytes at `to`; the registers changed are declared.
    unsafe {
        asm!(
            "vpxorq zmm16, zmm16, zmm16",
            "2:",
            "vmovntdq [{to}], zmm16",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            out("zmm16") _,
            options(nostack),
        );
    }
}

/// Copies `lines` times 64 bytes with ordinary moves.
///
/// # Safety
/// The processor must have AVX-512F. `from` must be readable and `to` writable for `lines * 64`
/// bytes; they do not overlap.
#[inline(always)]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: as in `copy_through`, without its requirement of alignment.
    unsafe {
        asm!(
            "2:",
            "vmovdqu64 zmm16, [{from}]",
            "vmovdqu64 [{to}], zmm16",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            out("zmm16") _,
            options(nostack),
        );
    }
}

/// Which of the eight words at `line` equal `want` under `mask`.
///
/// # Safety
/// The processor must have AVX-512F. `line` must be 64-byte aligned and readable for 64 bytes.
#[inline(always)]
pub(super) unsafe fn match_line(line: *const u8, mask: u64, want: u64) -> u8 {
    let found: u32;
    // SAFETY: reads the 64 bytes at `line`, aligned, so each word whole; the registers changed are
    // declared.
    unsafe {
        asm!(
            "vpbroadcastq zmm16, {mask}",
            "vpbroadcastq zmm17, {want}",
            "vpandq zmm16, zmm16, [{line}]",
            "vpcmpeqq k1, zmm16, zmm17",
            "kmovw {found:e}, k1",
            mask = in(reg) mask,
            want = in(reg) want,
            line = in(reg) line,
            found = out(reg) found,
            out("zmm16") _,
            out("zmm17") _,
            out("k1") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    found as u8
}
