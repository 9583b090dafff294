//! Whether the program was started with its standard output closed.
//!
//! Before `main`, Rust's runtime opens `/dev/null` in place of a closed standard stream. The
//! program would not notice, and its output would be lost silently. So this module looks earlier.
//!
//! It is called by the start code of the C library. It is here, and not in `vellum-media`, because
//! programs that link the library did not ask for it.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed.
pub(crate) fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

extern "C" fn look() {
    // SAFETY: the call only reads the flags of the descriptor, or fails if it is closed; it touches
    // no memory.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

// SAFETY: the section holds functions that the C library calls once, before `main`, with arguments
// that a function without parameters ignores in the C calling convention. This function needs
// nothing of Rust's runtime: it neither allocates nor panics.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
