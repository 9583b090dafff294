//! 16 bytes at once; every x86-64 processor has these instructions.

use std::arch::asm;

/// Copies whole lines past the cache.
///
/// # Safety
/// `to` must be 64-byte aligned and writable for `lines` lines, `from` readable for as many bytes;
/// they do not overlap.
pub(super) unsafe fn copy_through(from: *const u8, to: *mut u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: reads `lines * 64` bytes at `from` and writes as many at `to`, which the caller
    // guarantees to be valid; the changed registers are declared.
    unsafe {
        asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movntdq [{to}], {a}",
            "movntdq [{to} + 16], {b}",
            "movntdq [{to} + 32], {c}",
            "movntdq [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Zeroes whole lines past the cache.
///
/// # Safety
/// `to` must be 64-byte aligned and writable for `lines` lines.
pub(super) unsafe fn zero_through(to: *mut u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: writes `lines * 64` bytes at `to`; the registers changed are declared.
    unsafe {
        asm!(
            "pxor {z}, {z}",
            "2:",
            "movntdq [{to}], {z}",
            "movntdq [{to} + 16], {z}",
            "movntdq [{to} + 32], {z}",
            "movntdq [{to} + 48], {z}",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            z = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Copies `lines` times 64 bytes with ordinary 16-byte moves. Aligned words move whole if `from`
/// (copying out) or `to` (copying in) is 8-byte aligned.
///
/// # Safety
/// `from` must be readable and `to` writable for `lines * 64` bytes; they do not overlap.
#[inline(always)]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: as in `copy_through`, without its requirement of alignment.
    unsafe {
        asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}
