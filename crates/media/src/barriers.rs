//! How the files of a pool are synced: with or without flushes of the devices' caches.

use crate::count;
use crate::logged::{sync_file_range, write_all, write_by};
use crate::mapped::fdatasync;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a sync flushes the caches of the devices, which is the default.
///
/// Without these flushes, a sync waits until the devices have accepted the written data. A power
/// cut may then lose, in any order, what the devices hold in their caches, and what the file system
/// below has not committed about the locations of a file's bytes.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    are_left_out: AtomicBool,
}

impl Barriers {
    /// Disables the flushes from here on.
    pub(crate) fn leave_out(&self) {
        self.are_left_out.store(true, Ordering::Relaxed);
    }

    /// Enables the flushes again; returns whether they were disabled. The next sync flushes what
    /// was written so far.
    pub(crate) fn keep(&self) -> bool {
        self.are_left_out.swap(false, Ordering::Relaxed)
    }

    /// Whether syncs flush the caches of devices.
    pub(crate) fn are_kept(&self) -> bool {
        !self.are_left_out.load(Ordering::Relaxed)
    }

    /// Syncs a file.
    ///
    /// # Errors
    /// Returns the error of the operating system, from now or from an earlier write.
    pub(crate) fn sync(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        if self.are_kept() {
            count::synced();
            return fdatasync(file);
        }
        write_back(file, 0, 0)
    }

    /// Writes all of `data` from `at` on, as if only these bytes were then synced.
    ///
    /// # Errors
    /// Returns the error of the operating system.
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

/// Makes the kernel write the dirty pages of `[at, at + len)`, or from `at` on if `len` is 0, and
/// waits for it.
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
