//! Children of this process, for tests.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Runs `run` in a child that is forked off this process, and ends the child: with status 0, or 1
/// if `run` panics. Nothing of the process's own end is run there; after `patience`, in whole
/// seconds, SIGALRM ends it. Gives the child's number. For tests: a child has the calling thread
/// alone, and what other threads have locked stays so.
///
/// # Errors
/// What the operating system said.
pub fn fork(patience: Duration, run: impl FnOnce()) -> io::Result<i32> {
    let seconds = u32::try_from(patience.as_secs()).unwrap_or(u32::MAX);
    // SAFETY: of our memory the child has a copy, and goes on in it as this thread does, which was
    // at no step that anybody else has to end: the C library keeps its allocator usable across a
    // fork. What locks other threads may have it waits for, which harms nobody.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: touches no memory.
            unsafe { libc::alarm(seconds) };
            let status = catch_unwind(AssertUnwindSafe(run)).is_err().into();
            // SAFETY: ends the process.
            unsafe { libc::_exit(status) }
        }
        child => Ok(child),
    }
}
