//! Waits for writes that a killed process left in flight.
//!
//! The kernel waits for the calls of a killed thread: the process, and its lock, only disappear
//! when its write has ended. It does not wait for a batch (`ring`): direct writes may still land
//! when the process is gone and the next opening may have read. The lock on the pool belongs to
//! another description of the file and does not help. So the description that carries such requests
//! has a lock of its own, a record lock. It is independent of the pool's lock (`flock`) and of the
//! locks on datasets in use (`crate::range_locks`). The kernel keeps a description and its locks as
//! long as a request of it is in flight. An opening that has the pool's lock waits until no process
//! holds such a lock: only the requests of a dead process can. Where these locks do not exist, as
//! on some network file systems, batches do not write.
//!
//! Reads need no wait: they land in memory of the process, which is gone.

use crate::MediaError;
use crate::backing::failed;
use crate::range_locks::Bytes;
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The first of the locked bytes.
const FIRST: i64 = 3 << 61;

/// How long an opening waits for a device.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(1);

/// The lock byte of a description that reaches bytes of the file from `at` on.
fn byte(at: u64, kind: libc::c_int) -> Option<Bytes> {
    let at = FIRST.checked_add_unsigned(at)?;
    Some(Bytes { at, len: 1, kind })
}

/// Makes the next opening wait until no request of this description is in flight; returns whether
/// that works. Descriptions of one file have different bytes.
pub(crate) fn hold_up(file: &impl AsFd, at: u64) -> bool {
    byte(at, libc::F_WRLCK).is_some_and(|own| own.lock(file) == Ok(true))
}

/// Ends that wait: nothing is in flight.
pub(crate) fn let_go(file: &impl AsFd, at: u64) {
    // Closing the description does the same, if there is no duplicate.
    let _ = byte(at, libc::F_UNLCK).map(|own| own.lock(file));
}

/// Waits for the requests of killed processes. The caller has the lock on the pool.
///
/// # Errors
/// Fails if it takes too long.
pub(crate) fn wait(file: &impl AsFd, path: &Path) -> Result<(), MediaError> {
    let begun = Instant::now();
    let all = Bytes {
        at: FIRST,
        len: 0,
        kind: libc::F_WRLCK,
    };
    // Where such locks do not exist, none is held.
    while all.are_locked(file) {
        if begun.elapsed() >= PATIENCE {
            return Err(failed("wait for what was written to", path, Errno::AGAIN));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn an_opening_waits_until_nothing_is_in_flight() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&path).unwrap()
        };
        let (asked, other, opening) = (open(), open(), open());
        assert!(hold_up(&asked, 4096) && hold_up(&other, 8192));
        // A duplicate stands for a request, which keeps the description that its process closed.
        let request = asked.try_clone().unwrap();
        drop(asked);
        let_go(&other, 8192);
        let has_waited = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait(&opening, &path).unwrap();
                has_waited.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(20 * LOOK);
            assert!(!has_waited.load(Ordering::SeqCst));
            drop(request);
        });
        // A process that waited makes no other wait.
        assert!(hold_up(&other, 4096));
        let read_only = File::open(&path).unwrap();
        assert!(!hold_up(&read_only, 0));
    }
}
