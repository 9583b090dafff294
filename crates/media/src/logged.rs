//! A mapped pool with an image or with transactions: its state beside the mapping, and how its file
//! is read and written.

use crate::dirty_lines::{DirtyLines, map_bytes};
use crate::disk::Split;
use crate::granules::Granules;
use crate::image::{ImageFile, SharedImage};
use crate::memory::Persistent;
use crate::written::{Written, WrittenBlocks};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What happens before a store to the metadata.
pub(crate) enum Before {
    /// The dirty lines of the image are recorded.
    DirtyLines(DirtyLines),
    /// The old bytes of undo granules are saved.
    Undo(Granules),
}

/// Changes since the last cut.
pub(crate) struct Logged {
    pub(crate) before: Before,
    /// Offset of the blocks of files.
    pub(crate) data_at: u64,
    written: WrittenBlocks,
    /// Whether bytes of a file could not be written.
    has_failed: AtomicBool,
    /// Whether blocks of files were stored to in memory of a read-only pool, so that they differ
    /// from its file.
    pub(crate) is_overlaid: AtomicBool,
    /// The image, if it outlives the process.
    pub(crate) shared: Option<Arc<ImageFile>>,
}

impl Logged {
    pub(crate) fn new(split: Split, shared: Option<Arc<ImageFile>>) -> Self {
        let words = (map_bytes(split.image_bytes) / 8) as usize;
        let dirty_lines = match &shared {
            Some(image) => DirtyLines::in_cells(image.running(words)),
            None => DirtyLines::new(split.image_bytes),
        };
        Self::with(Before::DirtyLines(dirty_lines), split, shared)
    }

    /// The state of a pool with transactions: undo records instead of an image.
    pub(crate) fn keeping(granules: Granules, split: Split) -> Self {
        Self::with(Before::Undo(granules), split, None)
    }

    fn with(before: Before, split: Split, shared: Option<Arc<ImageFile>>) -> Self {
        Self {
            before,
            shared,
            data_at: split.data_at,
            written: WrittenBlocks::new(),
            has_failed: AtomicBool::new(false),
            is_overlaid: AtomicBool::new(false),
        }
    }

    /// Must be called before a store to `[at, at + len)` of `pool`.
    #[inline]
    pub(crate) fn before_store(&self, pool: &dyn Persistent, at: u64, len: u64) {
        match &self.before {
            Before::DirtyLines(dirty_lines) => dirty_lines.note(at, len),
            Before::Undo(granules) => granules.save(pool, at, len),
        }
    }

    /// The undo granules, if there is no image.
    #[inline]
    pub(crate) fn granules(&self) -> Option<&Granules> {
        match &self.before {
            Before::DirtyLines(_) => None,
            Before::Undo(granules) => Some(granules),
        }
    }

    /// The dirty lines of the image. A flush counts as a store.
    #[inline]
    pub(crate) fn dirty_lines(&self) -> Option<&DirtyLines> {
        match &self.before {
            Before::DirtyLines(dirty_lines) => Some(dirty_lines),
            Before::Undo(_) => None,
        }
    }

    /// See [`Transactions::begin_transaction`](crate::Transactions::begin_transaction).
    pub(crate) fn begin_transaction(&self, number: u64) {
        if let Some(granules) = self.granules() {
            granules.begin(number);
        }
    }

    /// Records the outcome of writing bytes of a file to `[at, at + len)` of the pool. The next
    /// sync, and each after it, reports a failure.
    pub(crate) fn note_outcome(
        &self,
        pool: &dyn Persistent,
        written: &io::Result<()>,
        at: u64,
        len: u64,
    ) {
        if written.is_err() {
            self.fail(pool);
        }
        self.note_written(at, len);
    }

    /// Records which blocks of files `[at, at + len)` touches, once they are written.
    pub(crate) fn note_written(&self, at: u64, len: u64) {
        if at >= self.data_at {
            self.written.note(at, len);
        }
    }

    /// Makes every later sync fail, in this process and in one that finds the image or the
    /// transaction: completed writes did not happen.
    fn fail(&self, pool: &dyn Persistent) {
        self.has_failed.store(true, Ordering::Release);
        if let Before::Undo(granules) = &self.before {
            granules.fail(pool);
        }
        if let Some(image) = &self.shared {
            image.poison();
        }
    }

    /// Whether bytes of a file could not be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// See [`crate::ImageMemory::cut`].
    pub(crate) fn cut(&self, pool: &dyn Persistent, each: &mut dyn FnMut(u64)) -> Written {
        match (&self.before, &self.shared) {
            (Before::Undo(_), _) => {}
            (Before::DirtyLines(dirty_lines), None) => dirty_lines.take(|_, _| {}, each),
            (Before::DirtyLines(dirty_lines), Some(image)) => {
                dirty_lines.take(|word, lines| image.take(word, lines), each);
                if image.is_damaged() {
                    self.fail(pool);
                }
            }
        }
        self.written.take()
    }
}

/// Fills `out` from offset `at` on.
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

/// Writes all of `data` from offset `at` on.
pub(crate) fn write_all(file: BorrowedFd<'_>, at: u64, data: &[u8]) -> io::Result<()> {
    write_by(at, data, |rest, at| rustix::io::pwrite(file, rest, at))
}

/// Writes all of `data` from `at` on by `write`, which returns how much each call wrote.
pub(crate) fn write_by(
    at: u64,
    data: &[u8],
    write: impl Fn(&[u8], u64) -> rustix::io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match write(&data[done..], at + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Makes the kernel start writing the dirty pages of `[at, at + len)` without waiting; a sync
/// reports the outcome.
pub(crate) fn begin_writing(file: BorrowedFd<'_>, at: u64, len: u64) {
    let _not_begun_is_fine = sync_file_range(file, at, len, libc::SYNC_FILE_RANGE_WRITE);
}

/// Calls `sync_file_range` with `flags` for `[at, at + len)`, or from `at` on if `len` is 0.
///
/// # Errors
/// Returns the error of the operating system.
pub(crate) fn sync_file_range(
    file: BorrowedFd<'_>,
    at: u64,
    len: u64,
    flags: u32,
) -> io::Result<()> {
    let offset = |value: u64| i64::try_from(value).map_err(|_| io::Error::from(Errno::INVAL));
    let (at, len) = (offset(at)?, offset(len)?);
    // SAFETY: the call takes only numbers, and the file is open while it is borrowed.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), at, len, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
