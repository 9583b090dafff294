//! What a process that was killed had asked a device for.
//!
//! A killed thread that writes by a call is waited for by the kernel, and the process is not gone,
//! nor its lock, before the write has ended. A batch (`ring`) is not waited for: what the device
//! was asked for past the page cache lands when the process is gone and the next opening may have
//! read. The lock on the pool, which belongs to another description of the file, does not help. So
//! the description that such requests go by carries a lock of its own, a record lock, which has
//! nothing to do with that of the pool (`flock`), nor with those that tell which file systems are
//! in use ([`crate::uses`]). The kernel keeps a description, and what is locked by it, as long as a
//! request of it is under way. Whoever has opened a pool and has its lock waits until nobody has
//! one of these: only the requests of a dead process can. Where there are no such locks, as on some
//! network file systems, nothing is written by batches.
//!
//! Reading is another matter: what lands then is memory of the process, which is gone.

use crate::MediaError;
use crate::backing::failed;
use crate::range_locks::Bytes;
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The first of the bytes that are locked so.
const FIRST: i64 = 3 << 61;

/// How long an opening waits for a device, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(1);

/// The byte of a description that reaches bytes of the file from `at` on.
fn byte(at: u64, kind: libc::c_int) -> Option<Bytes> {
    let at = FIRST.checked_add_unsigned(at)?;
    Some(Bytes { at, len: 1, kind })
}

/// Has the next opening wait until nothing that was asked for by this description is under way;
/// gives whether it will. Descriptions of one file have different bytes.
pub(crate) fn hold_up(file: &impl AsFd, at: u64) -> bool {
    byte(at, libc::F_WRLCK).is_some_and(|own| own.lock(file) == Ok(true))
}

/// Has nobody wait any more: nothing is under way.
pub(crate) fn let_go(file: &impl AsFd, at: u64) {
    // Closing the description does the same, if nobody else has it.
    let _ = byte(at, libc::F_UNLCK).map(|own| own.lock(file));
}

/// Waits for what killed processes asked for. The caller has the lock on the pool.
///
/// # Errors
/// It takes too long.
pub(crate) fn wait(file: &impl AsFd, path: &Path) -> Result<(), MediaError> {
    let begun = Instant::now();
    let all = Bytes {
        at: FIRST,
        len: 0,
        kind: libc::F_WRLCK,
    };
    // Nobody has one where there are none.
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
    fn an_opening_waits_until_nothing_is_under_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&path).unwrap()
        };
        let (asked, other, opening) = (open(), open(), open());
        assert!(hold_up(&asked, 4096) && hold_up(&other, 8192));
        // A request keeps a description that its process closed.
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
        // Whoever waited holds up nobody.
        assert!(hold_up(&other, 4096));
        let read_only = File::open(&path).unwrap();
        assert!(!hold_up(&read_only, 0));
    }
}
