//! Children of this process, for tests.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Runs `run` in a forked child of this process, and ends the child with status 0, or 1 if `run`
/// panics. The child skips the process's exit handlers. After `patience`, in whole seconds, SIGALRM
/// ends it. Returns the child's process id. For tests: the child has only the calling thread, and
/// locks held by other threads stay locked.
///
/// # Errors
/// Returns the error of the operating system.
pub fn fork(patience: Duration, run: impl FnOnce()) -> io::Result<i32> {
    let seconds = u32::try_from(patience.as_secs()).unwrap_or(u32::MAX);
    // SAFETY: the child has a copy of our memory and continues in it as this thread, which was at
    // no step that another thread must finish: the C library keeps its allocator usable across a
    // fork. If the child waits for locks of other threads, it harms no other process.
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
