//! The string move: the processor chooses how to copy, word by word as far as anybody can see.

use std::arch::asm;

/// Copies `words` words of 8 bytes, in ascending order.
///
/// # Safety
/// `from` must be readable and `to` writable for `words * 8` bytes; they do not overlap.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, words: usize) {
    // SAFETY: touches what the caller vouches for; the direction flag is clear, as it is on entry
    // to every `asm!` block; the registers changed are declared.
    unsafe {
        asm!(
            "rep movsq",
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rcx") words => _,
            options(nostack, preserves_flags),
        );
    }
}
