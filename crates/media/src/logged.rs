//! A mapped pool whose metadata are worked on in memory: what it knows beside its mapping, and how its file is read and written.

use crate::disk::Split;
use crate::notes::Notes;
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// What changed since the last cut.
pub(crate) struct Logged {
    pub(crate) notes: Notes,
    /// Where the blocks of files begin.
    pub(crate) data_at: u64,
    /// Blocks of files were written since the last cut. An earlier process may have written some before the first.
    is_written: AtomicBool,
    /// Bytes of a file could not be written.
    has_failed: AtomicBool,
}

impl Logged {
    pub(crate) fn new(split: Split) -> Self {
        Self {
            notes: Notes::new(split.image_bytes),
            data_at: split.data_at,
            is_written: AtomicBool::new(true),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Writes bytes of a file. That they could not be written is told by the next sync, and by each after it.
    pub(crate) fn write_data(&self, file: BorrowedFd<'_>, at: u64, data: &[u8]) {
        if write_all(file, at, data).is_err() {
            self.has_failed.store(true, Ordering::Release);
        }
        self.is_written.store(true, Ordering::Release);
    }

    /// Whether bytes of a file could not be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// See [`crate::Persistent::cut`].
    pub(crate) fn cut(&self, each: &mut dyn FnMut(u64)) -> bool {
        self.notes.take(each);
        self.is_written.swap(false, Ordering::AcqRel)
    }
}

/// Fills `out` from `at` on.
pub(crate) fn read_exact(file: BorrowedFd<'_>, at: u64, out: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < out.len() {
        match rustix::io::pread(file, &mut out[done..], at + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Writes all of `data` from `at` on.
pub(crate) fn write_all(file: BorrowedFd<'_>, at: u64, data: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(file, &data[done..], at + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
