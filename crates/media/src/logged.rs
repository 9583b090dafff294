//! A mapped pool whose metadata are worked on in memory: what it knows beside its mapping, and how its file is read and written.

use crate::disk::Split;
use crate::image::{ImageFile, SharedImage};
use crate::notes::{Notes, map_bytes};
use crate::written::{Written, WrittenBlocks};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What changed since the last cut.
pub(crate) struct Logged {
    pub(crate) notes: Notes,
    /// Where the blocks of files begin.
    pub(crate) data_at: u64,
    written: WrittenBlocks,
    /// Bytes of a file could not be written.
    has_failed: AtomicBool,
    /// Blocks of files were stored to in memory, of a pool that is only read: its file has others.
    pub(crate) is_overlaid: AtomicBool,
    /// Where the image outlives the process.
    pub(crate) shared: Option<Arc<ImageFile>>,
}

impl Logged {
    pub(crate) fn new(split: Split, shared: Option<Arc<ImageFile>>) -> Self {
        let words = (map_bytes(split.image_bytes) / 8) as usize;
        let notes = match &shared {
            Some(image) => Notes::in_cells(image.running(words)),
            None => Notes::new(split.image_bytes),
        };
        Self {
            notes,
            shared,
            data_at: split.data_at,
            written: WrittenBlocks::new(),
            has_failed: AtomicBool::new(false),
            is_overlaid: AtomicBool::new(false),
        }
    }

    /// Writes bytes of a file that lie at `at` of the pool: in this file, at this place of it. That they could not be written is told by the
    /// next sync, and by each after it.
    pub(crate) fn write_data(&self, (file, file_at): (BorrowedFd<'_>, u64), at: u64, data: &[u8]) {
        if write_all(file, file_at, data).is_err() {
            self.fail();
        }
        self.note_written(at, data.len() as u64);
    }

    /// Notes which blocks of files `[at, at + len)` touches, now that they are written.
    pub(crate) fn note_written(&self, at: u64, len: u64) {
        if at >= self.data_at {
            self.written.note(at, len);
        }
    }

    /// What was said to be done is not: no sync succeeds any more, of this process or of one that finds the image.
    fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
        if let Some(image) = &self.shared {
            image.poison();
        }
    }

    /// Whether bytes of a file could not be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// See [`crate::Persistent::cut`].
    pub(crate) fn cut(&self, each: &mut dyn FnMut(u64)) -> Written {
        match &self.shared {
            None => self.notes.take(|_, _| {}, each),
            Some(image) => {
                self.notes.take(|word, lines| image.take(word, lines), each);
                if image.is_damaged() {
                    self.fail();
                }
            }
        }
        self.written.take()
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
