//! Whether the program was started with its standard output closed.
//!
//! Rust's runtime opens `/dev/null` in the place of a standard stream that is closed, before `main`
//! is called: a program sees nothing of it then, and what it is asked for goes nowhere without a
//! word. So this looks before that.
//!
//! The other side is the start of the C library. It is here, and not in `vellum-media`, because no
//! program that links the library has asked for it.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether it was.
pub(crate) fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

extern "C" fn look() {
    // SAFETY: whatever is behind the number, or nothing, this reads its flags; it touches no
    // memory.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

// SAFETY: the section holds functions, which the C library calls once, before `main`, with
// arguments that a function without parameters passes over in the C calling convention. This one
// needs nothing of Rust's runtime: it neither allocates nor panics.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
