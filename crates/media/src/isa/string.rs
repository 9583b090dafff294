//! The string move: the processor chooses how to copy; to other threads it looks word by word.

use std::arch::asm;

/// Copies `words` words of 8 bytes, in ascending order.
///
/// # Safety
/// `from` must be readable and `to` writable for `words * 8` bytes; they do not overlap.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, words: usize) {
    // SAFETY: touches only what the caller guarantees; the direction flag is clear, as on entry to
    // every `asm!` block; the changed registers are declared.
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
