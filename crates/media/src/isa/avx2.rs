//! 32 bytes at once.

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_mul_epu32, _mm256_set1_epi64x, _mm256_setr_epi64x,
    _mm256_slli_epi64, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::{Lanes, MIX_FACTOR};

/// Hashes the lanes in two registers.
#[target_feature(enable = "avx2")]
pub(super) fn hash_lanes(seed: u64, first: u64, slots: u32) -> Lanes {
    let mut lanes = Lanes::default();
    for half in [0, 4] {
        let (hashes, places) = hash_half(seed, first.wrapping_add(half as u64), slots);
        // SAFETY: four words from word 0 or 4 on lie within eight, and need no alignment.
        unsafe {
            _mm256_storeu_si256(lanes.hashes.as_mut_ptr().add(half).cast(), hashes);
            _mm256_storeu_si256(lanes.places.as_mut_ptr().add(half).cast(), places);
        }
    }
    lanes
}

/// Hashes and slots of four keys.
#[target_feature(enable = "avx2")]
#[inline]
fn hash_half(seed: u64, first: u64, slots: u32) -> (__m256i, __m256i) {
    let each = |word: u64| _mm256_set1_epi64x(word as i64);
    let upper = |x: __m256i| _mm256_srli_epi64::<32>(x);
    let fold = |x: __m256i| _mm256_xor_si256(x, upper(x));
    // Modulo 2^64: both factors' upper halves count only with the other's lower half.
    let (factor, factor_upper) = (each(MIX_FACTOR), each(MIX_FACTOR >> 32));
    let times_factor = |x: __m256i| {
        let cross = _mm256_add_epi64(
            _mm256_mul_epu32(upper(x), factor),
            _mm256_mul_epu32(x, factor_upper),
        );
        _mm256_add_epi64(_mm256_mul_epu32(x, factor), _mm256_slli_epi64::<32>(cross))
    };
    let keys = _mm256_add_epi64(each(first), _mm256_setr_epi64x(0, 1, 2, 3));
    let mixed = times_factor(fold(_mm256_xor_si256(each(seed), keys)));
    let hashes = fold(times_factor(fold(mixed)));
    let slots = each(u64::from(slots));
    let low = upper(_mm256_mul_epu32(hashes, slots));
    let high = _mm256_mul_epu32(upper(hashes), slots);
    (hashes, upper(_mm256_add_epi64(high, low)))
}

/// Copies whole lines past the cache.
///
/// # Safety
/// The processor must have AVX. `to` must be 64-byte aligned and writable for `lines` lines, `from`
/// readable for as many bytes; they do not overlap.
pub(super) unsafe fn copy_through(from: *const u8, to: *mut u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: reads `lines * 64` bytes at `from` and writes as many at `to`, which the caller
    // guarantees to be valid; the changed registers are declared, and their upper halves end up
    // zero, as the surrounding code expects.
    unsafe {
        asm!(
            "2:",
            "vmovdqu ymm0, [{from}]",
            "vmovdqu ymm1, [{from} + 32]",
            "vmovntdq [{to}], ymm0",
            "vmovntdq [{to} + 32], ymm1",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            "vzeroupper",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack),
        );
    }
}

/// Zeroes whole lines past the cache.
///
/// # Safety
/// The processor must have AVX. `to` must be 64-byte aligned and writable for `lines` lines.
pub(super) unsafe fn zero_through(to: *mut u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: writes `lines * 64` bytes at `to`; registers as in `copy_through`.
    unsafe {
        asm!(
            "vpxor xmm0, xmm0, xmm0",
            "2:",
            "vmovntdq [{to}], ymm0",
            "vmovntdq [{to} + 32], ymm0",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            "vzeroupper",
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack),
        );
    }
}

/// Which of the eight words at `line` equal `want` under `mask`.
///
/// # Safety
/// The processor must have AVX2. `line` must be 64-byte aligned and readable for 64 bytes.
#[inline(always)]
pub(super) unsafe fn match_line(line: *const u8, mask: u64, want: u64) -> u8 {
    let (low, high): (u32, u32);
    // SAFETY: reads the 64 bytes at `line`, aligned, so each word whole; registers as in
    // `copy_through`.
    unsafe {
        asm!(
            "vmovq xmm0, {mask}",
            "vmovq xmm1, {want}",
            "vpbroadcastq ymm0, xmm0",
            "vpbroadcastq ymm1, xmm1",
            "vpand ymm2, ymm0, [{line}]",
            "vpand ymm3, ymm0, [{line} + 32]",
            "vpcmpeqq ymm2, ymm2, ymm1",
            "vpcmpeqq ymm3, ymm3, ymm1",
            "vmovmskpd {low:e}, ymm2",
            "vmovmskpd {high:e}, ymm3",
            "vzeroupper",
            mask = in(reg) mask,
            want = in(reg) want,
            line = in(reg) line,
            low = out(reg) low,
            high = out(reg) high,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    (low | high << 4) as u8
}
