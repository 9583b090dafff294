//! Access to the file of a mapped pool by calls, through the kernel's page cache or past it.

use super::{DataPart, MappedPool};
use crate::direct::Direct;
use crate::disk::Disk;
use crate::first_write;
use crate::logged::{self, Logged};
use crate::site::Site;
use crate::{MediaError, MediaKind};
use rustix::fs::Advice;
use rustix::io::Errno;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Reads of at least this many contiguous bytes of files use calls instead of the mapping. A writer
/// of this many bytes is assumed to continue.
const CALL_BYTES: usize = 64 << 10;
/// Bytes of the stretches of a pool whose writeback starts in the background once a sequential
/// writer has reached their end.
const BEHIND_BYTES: u64 = 4 << 20;

impl MappedPool {
    /// The same pool, with direct I/O for the blocks of files, which begin at `data_at`. They are
    /// written by calls, once the image or transactions have begun.
    ///
    /// # Errors
    /// Fails if their file system or device has no direct I/O, or they share pages with the log, or
    /// on an error of the operating system.
    pub fn with_direct(self, data_at: u64) -> Result<Self, MediaError> {
        let end = match self.data.is_empty() {
            // The file may grow.
            true => u64::MAX,
            false => self.mapping.len(),
        };
        let direct = self.in_files(data_at, end - data_at.min(end));
        let direct = direct.map(|piece| self.direct_way(piece));
        let direct = direct.collect::<Result<_, MediaError>>()?;
        Ok(Self { direct, ..self })
    }

    /// Opens these bytes, which lie in one file, for direct I/O.
    fn direct_way(&self, piece: Range<u64>) -> Result<Direct, MediaError> {
        let (file, path) = match self.data_at(piece.start) {
            Some(data) => (&data.file.backing.fd, Some(data.file.path())),
            None => (&**self.fd, self.path.as_deref()),
        };
        let (_, file_at) = self.file_at(piece.start);
        let path = path.unwrap_or(Path::new(""));
        let direct = Direct::open(file, path, piece, file_at)?;
        // No page contains both bytes of the log, which go through the cache, and blocks of files;
        // read-ahead must not mix them either.
        let _without = rustix::fs::fadvise(file, 0, None, Advice::Random);
        Ok(direct)
    }

    /// Whether blocks of files are read and written past the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        !self.direct.is_empty()
    }

    /// Disables device cache flushes in later syncs, until they are [enabled
    /// again](Self::keep_barriers). Syncs then only promise writeback, and a power cut may lose any
    /// of it.
    pub fn leave_out_barriers(&self) {
        self.barriers.leave_out();
    }

    /// Whether syncs flush the caches of devices.
    pub fn has_barriers(&self) -> bool {
        self.barriers.are_kept()
    }

    /// Enables device cache flushes in later syncs; returns whether they were disabled. Data synced
    /// without them may still be in the caches until [everything is synced](crate::Medium::sync).
    pub fn keep_barriers(&self) -> bool {
        self.barriers.keep()
    }

    /// Syncs the pool's file, and empties the caches of its device.
    pub(super) fn sync_past_barriers(&self) -> io::Result<()> {
        match self.read_only || self.kind != MediaKind::File {
            true => Ok(()),
            false => super::fdatasync(self.fd.as_fd()),
        }
    }

    /// Syncs each external data device.
    pub(super) fn sync_media(&self) -> io::Result<()> {
        self.data()
            .try_for_each(|file| self.barriers.sync(file.backing.fd.as_fd()))
    }

    /// The direct I/O of the file with `at`, if it has one.
    #[inline(always)]
    pub(super) fn direct_at(&self, at: u64) -> Option<&Direct> {
        self.direct.iter().find(|direct| direct.has(at))
    }

    /// The direct I/O of the single file with all of these bytes, if it has one.
    fn direct_to_all(&self, mut pieces: impl Iterator<Item = (u64, usize)>) -> Option<&Direct> {
        let (at, len) = pieces.next()?;
        let direct = self.direct_at(at)?;
        let has_all = |(at, len)| direct.has_all(at, len);
        (has_all((at, len)) && pieces.all(has_all)).then_some(direct)
    }

    /// Whether this many bytes of a file are better read by a call: the kernel reads ahead for
    /// calls, but little for faults in a mapping.
    pub(super) fn pays_by_call(&self, bytes: usize) -> bool {
        bytes >= CALL_BYTES && self.logged.get().is_some()
    }

    /// Fills `out` by a call, if `at` is reached past the page cache or `out` is long enough for a
    /// call; returns whether it is filled.
    #[inline(always)]
    pub(super) fn read_by_call(&self, at: u64, out: &mut [u8]) -> bool {
        if self.is_direct() {
            return self.read_all_direct(&mut [(at, out)]);
        }
        out.len() >= CALL_BYTES && self.read_cached(at, out)
    }

    /// Fills `out` through the page cache, if these are blocks of files on a disk. What cannot be
    /// read is left to the mapping, which reports what is lost.
    #[cold]
    fn read_cached(&self, at: u64, out: &mut [u8]) -> bool {
        let has_files = |logged: &Logged| at >= logged.data_at;
        let is_on_disk = self.logged.get().is_some_and(has_files);
        if !is_on_disk || !self.has_in_file(at, out.len()) {
            return false;
        }
        self.read_files(at, out).is_ok()
    }

    /// Fills `out` through the page cache, from each file that has some of it.
    fn read_files(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.in_files(at, out.len() as u64).try_for_each(|piece| {
            let (file, from) = self.file_at(piece.start);
            logged::read_exact(file, from, &mut out[within(at, &piece)])
        })
    }

    /// Writes through the page cache, to each file that has some of the range.
    fn write_files(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.in_files(at, data.len() as u64).try_for_each(|piece| {
            let (file, from) = self.file_at(piece.start);
            logged::write_all(file, from, &data[within(at, &piece)])
        })
    }

    /// Starts the writeback of sequentially written stretches, if `[at, at + len)`, just written,
    /// completes one, so that a sync does not wait for all of it.
    pub(super) fn write_behind(&self, logged: &Logged, at: u64, len: usize) {
        if let Some(full) = filled(at, len).filter(|_| !self.is_direct()) {
            let start = full.start.max(logged.data_at);
            for piece in self.in_files(start, full.end - start) {
                let (file, from) = self.file_at(piece.start);
                logged::begin_writing(file, from, piece.end - piece.start);
            }
        }
    }

    /// Requests all of these from the disk at once, if the first of them is not in memory: the
    /// others are then assumed to be missing too, and each would have to be waited for.
    pub(super) fn ask_for_all(&self, pieces: &[(u64, &mut [u8])]) {
        if pieces.len() < 2 || self.is_overlaid() || self.is_in_memory(pieces[0].0) {
            return;
        }
        for (at, out) in pieces {
            self.ask_for(*at, out.len() as u64);
        }
    }

    fn ask_for(&self, at: u64, len: u64) {
        for piece in self.in_files(at, len) {
            let (file, from) = self.file_at(piece.start);
            let len = NonZero::new(piece.end - piece.start);
            let _advice_alone = rustix::fs::fadvise(file, from, len, Advice::WillNeed);
        }
    }

    /// Makes the kernel read single pages of blocks of files, if they lie on a disk.
    pub(super) fn read_singly(&self) {
        if let Some(logged) = self.logged.get().filter(|_| self.reads_singly()) {
            self.mapping.read_singly(logged.data_at);
        }
    }

    /// Whether the kernel reads single pages of blocks of files.
    #[inline(always)]
    pub(super) fn reads_singly(&self) -> bool {
        self.logged.get().is_some() && !self.is_direct()
    }

    /// Requests these bytes from the disk, if the first of them is not in memory.
    pub(super) fn will_need(&self, at: u64, len: u64) {
        if !self.is_in_memory(at) {
            self.ask_for(at, len);
        }
    }

    /// Whether the page of a byte of the pool lies in memory only or is in the kernel's cache; also
    /// true if the kernel does not report it.
    pub(super) fn is_in_memory(&self, at: u64) -> bool {
        let is_on_disk = self.kind == MediaKind::File || self.logged.get().is_some();
        if !is_on_disk {
            return true;
        }
        let (base, len) = self.mapping.whole();
        let page = rustix::param::page_size();
        let first = at as usize / page * page;
        if first + page > len {
            return true;
        }
        let mut has = 1u8;
        // SAFETY: the page lies in our mapping, and the result is one byte for it.
        let said = unsafe { libc::mincore(base.wrapping_byte_add(first), page, &mut has) };
        said != 0 || has & 1 != 0
    }

    /// Fills all of these, if each is reached past the page cache; returns whether they are filled.
    /// Ranges in the same file are requested at once.
    pub(super) fn read_all_direct(&self, pieces: &mut [(u64, &mut [u8])]) -> bool {
        if let Some(direct) = self.direct_to_all(pieces.iter().map(|(at, out)| (*at, out.len()))) {
            return self.read_direct(direct, pieces);
        }
        if !pieces.iter().all(|(at, _)| self.direct_at(*at).is_some()) {
            return false;
        }
        pieces.iter_mut().all(|(at, out)| {
            let mut cut = self.in_files(*at, out.len() as u64);
            cut.all(|piece| {
                let part = &mut out[within(*at, &piece)];
                let direct = self.direct_at(piece.start);
                direct.is_some_and(|direct| self.read_direct(direct, &mut [(piece.start, part)]))
            })
        })
    }

    /// Fills these, unless their bytes are in memory only or not all in the pool.
    fn read_direct(&self, direct: &Direct, pieces: &mut [(u64, &mut [u8])]) -> bool {
        if !pieces
            .iter()
            .all(|(at, out)| self.has_in_file(*at, out.len()))
        {
            return false;
        }
        let cached = |at, out: &mut [u8]| {
            let (file, at) = self.file_at(at);
            logged::read_exact(file, at, out)
        };
        direct.read_all(pieces, |at, out| {
            direct.read_or_lose(at, out, cached, |lost| self.mapping.lose(lost));
        });
        true
    }

    /// Whether all of these bytes are in the pool, and none of them in memory only.
    fn has_in_file(&self, at: u64, len: usize) -> bool {
        let end = self.mapping.len();
        at <= end && len as u64 <= end - at && !self.is_overlaid()
    }

    /// Writes to the file in which `at` lies.
    pub(super) fn write_file(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.keep_for_copy(at, data.len() as u64);
        match self.direct_at(at) {
            Some(direct) if direct.has_all(at, data.len()) => direct.write_all(&[(at, data)]),
            Some(_) => self.write_cut_direct(at, data),
            None => self.write_files(at, data),
        }
    }

    /// Writes past the page cache to each file that has some of the range.
    #[cold]
    fn write_cut_direct(&self, at: u64, data: &[u8]) -> io::Result<()> {
        let mut pieces = self.in_files(at, data.len() as u64);
        pieces.try_for_each(|piece| match self.direct_at(piece.start) {
            Some(direct) => direct.write_all(&[(piece.start, &data[within(at, &piece)])]),
            None => Err(io::ErrorKind::InvalidInput.into()),
        })
    }

    /// Writes blocks of files by direct I/O, all at once; returns whether that was possible.
    pub(super) fn write_all_direct(&self, pieces: &[(u64, &[u8])]) -> bool {
        let direct = self.direct_to_all(pieces.iter().map(|(at, data)| (*at, data.len())));
        let (Some(logged), Some(direct)) = (self.logged.get(), direct) else {
            return false;
        };
        if self.read_only {
            return false;
        }
        for (at, data) in pieces {
            self.keep_for_copy(*at, data.len() as u64);
        }
        let written = direct.write_all(pieces);
        for (at, data) in pieces {
            logged.note_outcome(self, &written, *at, data.len() as u64);
        }
        true
    }

    /// The external data device on which `at` lies, if it is one.
    pub(super) fn data_at(&self, at: u64) -> Option<&DataPart> {
        self.data.iter().rev().find(|data| at >= data.at)
    }

    /// The file in which `at` lies, and its offset there.
    pub(super) fn file_at(&self, at: u64) -> (BorrowedFd<'_>, u64) {
        match self.data_at(at) {
            Some(data) => (data.file.backing.fd.as_fd(), at - data.at + data.from),
            None => (self.fd.as_fd(), at + self.start),
        }
    }

    /// `[at, at + len)`, split where one file ends and another begins.
    pub(super) fn in_files(&self, at: u64, len: u64) -> impl Iterator<Item = Range<u64>> {
        let mut rest = at..at + len;
        std::iter::from_fn(move || {
            let start = rest.start;
            let mut ends = self.data.iter().map(|data| data.at);
            let end = ends.find(|end| *end > start).unwrap_or(u64::MAX);
            rest.start = end.min(rest.end);
            (start < rest.end).then_some(start..rest.start)
        })
    }
}

/// The range of `piece` in a buffer for everything from `at` on.
fn within(at: u64, piece: &Range<u64>) -> Range<usize> {
    (piece.start - at) as usize..(piece.end - at) as usize
}

/// The stretches of a pool that writing `[at, at + len)` completed, if it is so long that the
/// writer is assumed to continue.
fn filled(at: u64, len: usize) -> Option<Range<u64>> {
    let end = at + len as u64;
    let full = at - at % BEHIND_BYTES..end - end % BEHIND_BYTES;
    (len >= CALL_BYTES && !full.is_empty()).then_some(full)
}

impl Disk for MappedPool {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        match self.direct_at(at) {
            Some(direct) if direct.has_all(at, out.len()) => direct.read(at, out),
            _ => self.read_files(at, out),
        }
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.write_file(at, data)?;
        if let Some(logged) = self.logged.get() {
            logged.note_written(at, data.len() as u64);
        }
        Ok(())
    }

    fn sync(&self, _site: Site) -> io::Result<()> {
        match self.logged.get() {
            Some(logged) if logged.has_failed() => Err(Errno::IO.into()),
            _ => self.barriers.sync(self.fd.as_fd()),
        }
    }

    fn write_durably(&self, _site: Site, at: u64, data: &[u8]) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        if self.has_failed() {
            return Err(Errno::IO.into());
        }
        let (file, at) = self.file_at(at);
        self.barriers.write_durably(file, at, data)
    }

    fn write_ahead(&self, at: u64, len: u64) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.in_files(at, len).try_for_each(|piece| {
            let (file, from) = self.file_at(piece.start);
            let len = piece.end - piece.start;
            if !first_write::is_to_come(file, from, len) {
                return Ok(());
            }
            self.write_file(piece.start, &vec![0; len as usize])
        })
    }

    fn is_direct(&self) -> bool {
        self.is_direct()
    }

    fn has_failed(&self) -> bool {
        self.logged.get().is_some_and(Logged::has_failed)
    }

    fn sync_data(&self, site: Site) -> io::Result<()> {
        if self.data.is_empty() {
            return Disk::sync(self, site);
        }
        if self.has_failed() {
            return Err(Errno::IO.into());
        }
        self.sync_media()
    }

    fn forget(&self, at: u64, len: u64) {
        if !self.read_only {
            // The kernel does not drop mapped pages.
            self.mapping.unload(at, len);
        }
        for piece in self.in_files(at, len) {
            let (file, from) = self.file_at(piece.start);
            let len = NonZero::new(piece.end - piece.start);
            // Pages that cannot be dropped are read from memory, as usual.
            let _ = rustix::fs::fadvise(file, from, len, Advice::DontNeed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Split;
    use crate::memory::BLOCK_BYTES;
    use crate::pool_memory::{FileBytes, ImageMemory};
    use crate::{MappedPool, MediaChoice};
    use std::time::{Duration, Instant};

    /// The second of two ranges that are not in memory gets there by a request, without being read.
    /// The directory for temporary files must lie on a disk.
    #[test]
    fn all_that_is_cold_is_asked_for_at_once() {
        const DATA_AT: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let pool = MappedPool::create(&path, 8 << 20, MediaChoice::Logged).unwrap();
        let split = Split {
            image_bytes: DATA_AT / 2,
            data_at: DATA_AT,
            is_external: false,
        };
        pool.begin_image(split, None).unwrap();
        let disk = pool.disk().unwrap();
        let places = [DATA_AT, 6 << 20];
        for at in places {
            disk.write(at, &[7; 2 * BLOCK_BYTES as usize]).unwrap();
        }
        disk.sync(Site::UNNAMED).unwrap();
        disk.forget(DATA_AT, 7 << 20);
        assert!(places.iter().all(|&at| !pool.is_in_memory(at)));
        let mut out = [[0; 5000]; 2];
        let [first, second] = &mut out;
        let mut pieces = [(places[0], &mut first[..]), (places[1], &mut second[..])];
        pool.ask_for_all(&pieces);
        let begin = Instant::now();
        while !places.iter().all(|&at| pool.is_in_memory(at)) {
            assert!(begin.elapsed() < Duration::from_secs(30), "they never came");
            std::thread::yield_now();
        }
        pool.read_all(&mut pieces);
        assert_eq!(out, [[7; 5000]; 2]);
    }

    #[test]
    fn stretches_are_completed_by_sequential_writers() {
        let (piece, large) = (BEHIND_BYTES, CALL_BYTES as u64);
        let begun = |at, len: u64| filled(at, len as usize);
        assert_eq!(begun(piece - large, large), Some(0..piece));
        assert_eq!(begun(3 * piece - 1, large), Some(2 * piece..3 * piece));
        assert_eq!(begun(5, 2 * piece), Some(0..2 * piece));
        // The end is not reached, it was reached before, or the write is short.
        assert_eq!(begun(piece - large - 1, large), None);
        assert_eq!(begun(piece, large), None);
        assert_eq!(begun(piece - large + 1, large - 1), None);
    }
}
