//! The x86-64 instructions that move lines from the cache to memory.

use crate::memory::LINE_BYTES;
use std::arch::asm;
use std::sync::atomic::AtomicU64;

const LINE: usize = LINE_BYTES as usize;

/// Calls an instruction for each of the lines.
macro_rules! each_line {
    ($name:ident, $instruction:literal, $says:literal) => {
        #[doc = $says]
        ///
        /// # Safety
        /// All `lines` lines from `first` must be mapped, and the processor must know the
        /// instruction.
        #[inline(always)]
        pub(super) unsafe fn $name(mut first: *const u8, lines: usize) {
            for _ in 0..lines {
                // SAFETY: the caller guarantees that the line is mapped and the instruction exists.
                // It changes no memory and no flags. Without `nomem` it stays after the stores
                // before it.
                unsafe { asm!($instruction, in(reg) first, options(nostack, preserves_flags)) };
                first = first.wrapping_add(LINE);
            }
        }
    };
}

each_line!(
    clwb,
    "clwb byte ptr [{}]",
    "Writes lines back and keeps them in the cache."
);
each_line!(
    clflushopt,
    "clflushopt byte ptr [{}]",
    "Writes lines back and drops them."
);
each_line!(
    clflush,
    "clflush byte ptr [{}]",
    "Writes lines back, one after the other."
);

/// Stores a word past the cache, whole; later loads of this thread see it.
#[inline(always)]
pub(super) fn movnti(cell: &AtomicU64, value: u64) {
    // SAFETY: an aligned store of 8 bytes into a cell that may be written through `&`, by an
    // instruction that every x86-64 has and that changes no flags.
    unsafe {
        asm!("movnti qword ptr [{}], {}", in(reg) cell.as_ptr(), in(reg) value,
            options(nostack, preserves_flags));
    }
}

/// Waits for earlier stores, streaming stores and write-backs of this thread.
#[inline(always)]
pub(super) fn sfence() {
    // SAFETY: orders memory accesses and does nothing else; every x86-64 has it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}
