//! A mapped pool whose metadata are worked on in memory, or taken back by transactions: what it
//! knows beside its mapping, and how its file is read and written.

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

/// What is done before a store to the metadata.
pub(crate) enum Before {
    /// Which lines of the image were stored to since the last cut.
    DirtyLines(DirtyLines),
    /// What the bytes were before the transaction is kept.
    Undo(Granules),
}

/// What changed since the last cut.
pub(crate) struct Logged {
    pub(crate) before: Before,
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
        let dirty_lines = match &shared {
            Some(image) => DirtyLines::in_cells(image.running(words)),
            None => DirtyLines::new(split.image_bytes),
        };
        Self::with(Before::DirtyLines(dirty_lines), split, shared)
    }

    /// The metadata are not worked on in memory: what they were before a transaction is kept.
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

    /// Before a store to `[at, at + len)` of `pool`.
    #[inline]
    pub(crate) fn before_store(&self, pool: &dyn Persistent, at: u64, len: u64) {
        match &self.before {
            Before::DirtyLines(dirty_lines) => dirty_lines.note(at, len),
            Before::Undo(granules) => granules.save(pool, at, len),
        }
    }

    /// What is kept of metadata that are not worked on in memory.
    #[inline]
    pub(crate) fn granules(&self) -> Option<&Granules> {
        match &self.before {
            Before::DirtyLines(_) => None,
            Before::Undo(granules) => Some(granules),
        }
    }

    /// The lines that were stored to, of metadata in memory; what is flushed counts as stored to.
    #[inline]
    pub(crate) fn dirty_lines(&self) -> Option<&DirtyLines> {
        match &self.before {
            Before::DirtyLines(dirty_lines) => Some(dirty_lines),
            Before::Undo(_) => None,
        }
    }

    /// See [`Persistent::begin_transaction`].
    pub(crate) fn begin_transaction(&self, number: u64) {
        if let Some(granules) = self.granules() {
            granules.begin(number);
        }
    }

    /// DirtyLines what became of writing bytes of a file to `[at, at + len)` of the pool. That they
    /// could not be written is told by the next sync, and by each after it.
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

    /// DirtyLines which blocks of files `[at, at + len)` touches, now that they are written.
    pub(crate) fn note_written(&self, at: u64, len: u64) {
        if at >= self.data_at {
            self.written.note(at, len);
        }
    }

    /// What was said to be done is not: no sync succeeds any more, of this process or of one that
    /// finds the image, or the transaction.
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

    /// See [`crate::Persistent::cut`].
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
    write_by(at, data, |rest, at| rustix::io::pwrite(file, rest, at))
}

/// Has `write` write all of `data` from `at` on, of which each call does as much as it says.
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

/// Has the kernel begin to write what is dirty of `[at, at + len)`; nobody waits, and a sync tells
/// whether it arrived.
pub(crate) fn begin_writing(file: BorrowedFd<'_>, at: u64, len: u64) {
    let _not_begun_is_fine = sync_file_range(file, at, len, libc::SYNC_FILE_RANGE_WRITE);
}

/// What the call of this name does with `[at, at + len)`, or from `at` on if `len` is 0.
///
/// # Errors
/// What the operating system said.
pub(crate) fn sync_file_range(
    file: BorrowedFd<'_>,
    at: u64,
    len: u64,
    flags: u32,
) -> io::Result<()> {
    let offset = |value: u64| i64::try_from(value).map_err(|_| io::Error::from(Errno::INVAL));
    let (at, len) = (offset(at)?, offset(len)?);
    // SAFETY: the call takes numbers alone, and the file is open as long as it is borrowed.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), at, len, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
