//! How the files of a pool are synced: with the caches of their devices flushed, or without.

use crate::count;
use crate::logged::{sync_file_range, write_all, write_by};
use crate::mapped::fdatasync;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a sync has the devices flush their caches, which it does unless it is told otherwise.
///
/// Without, it waits until the devices have said that they have what was written. What they have in
/// their caches, and what the file system below has not committed of where a file's bytes are, a
/// power cut takes, whatever came before what.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    are_left_out: AtomicBool,
}

impl Barriers {
    /// Leaves them out from here on.
    pub(crate) fn leave_out(&self) {
        self.are_left_out.store(true, Ordering::Relaxed);
    }

    /// Leaves them out no longer; gives whether they were. What was written so far is flushed by
    /// whatever syncs next.
    pub(crate) fn keep(&self) -> bool {
        self.are_left_out.swap(false, Ordering::Relaxed)
    }

    /// Whether syncs have them.
    pub(crate) fn are_kept(&self) -> bool {
        !self.are_left_out.load(Ordering::Relaxed)
    }

    /// Syncs a file.
    ///
    /// # Errors
    /// What the operating system said, now or to a write before.
    pub(crate) fn sync(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        if self.are_kept() {
            count::synced();
            return fdatasync(file);
        }
        write_back(file, 0, 0)
    }

    /// Writes all of `data` from `at` on, so that a sync of these bytes alone has followed.
    ///
    /// # Errors
    /// What the operating system said.
    pub(crate) fn write_durably(
        &self,
        file: BorrowedFd<'_>,
        at: u64,
        data: &[u8],
    ) -> io::Result<()> {
        if !self.are_kept() {
            write_all(file, at, data)?;
            return write_back(file, at, data.len() as u64);
        }
        count::synced();
        let written = write_by(at, data, |rest, at| {
            rustix::io::pwritev2(file, &[IoSlice::new(rest)], at, ReadWriteFlags::DSYNC)
        });
        let why = written.as_ref().err().and_then(Errno::from_io_error);
        if let Some(Errno::OPNOTSUPP | Errno::NOSYS) = why {
            write_all(file, at, data)?;
            return fdatasync(file);
        }
        written
    }
}

/// Has the kernel write what is dirty of `[at, at + len)`, or from `at` on if `len` is 0, and waits
/// for it.
fn write_back(file: BorrowedFd<'_>, at: u64, len: u64) -> io::Result<()> {
    let whole = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    loop {
        match sync_file_range(file, at, len, whole) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
