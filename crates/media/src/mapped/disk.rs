//! How the file of a mapped pool is read and written by calls, through the kernel's page cache or past it.

use super::{MappedPool, fdatasync};
use crate::direct::Direct;
use crate::disk::Disk;
use crate::logged::{self, Logged};
use crate::site::Site;
use crate::{MediaError, count};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

impl MappedPool {
    /// The same pool, whose blocks of files, which begin at `data_at`, are read and written past the kernel's page cache. They are written by
    /// calls, once the image or transactions have begun.
    ///
    /// # Errors
    /// Their file system or device has no direct I/O, they share pages with the log, or what the operating system said.
    pub fn with_direct(self, data_at: u64) -> Result<Self, MediaError> {
        let (file, path) = match &self.data {
            Some(data) if data_at >= data.at => (&data.file.backing.fd, Some(data.file.path())),
            _ => (&*self.fd, self.path.as_deref()),
        };
        let (_, file_at) = self.file_at(data_at);
        let path = path.unwrap_or(Path::new(""));
        let direct = Direct::open(file, path, data_at, file_at)?;
        // No page has bytes of the log, which go through the cache, and blocks of files; nor does what is read ahead of one.
        let _without = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
        Ok(Self {
            direct: Some(direct),
            ..self
        })
    }

    /// Whether blocks of files are read and written past the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// How `at` is reached, if that is past the page cache.
    #[inline(always)]
    pub(super) fn direct_at(&self, at: u64) -> Option<&Direct> {
        self.direct.as_ref().filter(|direct| direct.has(at))
    }

    /// Fills `out` by a call, if `at` is reached past the page cache; gives whether it is.
    #[inline(always)]
    pub(super) fn read_by_call(&self, at: u64, out: &mut [u8]) -> bool {
        match self.direct_at(at) {
            None => false,
            Some(direct) => self.read_direct(direct, at, out),
        }
    }

    /// Fills `out`, unless it is memory alone that has the bytes, or they are not all in the pool.
    fn read_direct(&self, direct: &Direct, at: u64, out: &mut [u8]) -> bool {
        let len = self.mapping.len();
        let is_inside = at <= len && out.len() as u64 <= len - at;
        if is_inside && !self.is_overlaid() {
            let cached = |at, out: &mut [u8]| {
                let (file, at) = self.file_at(at);
                logged::read_exact(file, at, out)
            };
            direct.read_or_lose(at, out, cached, |lost| self.mapping.lose(lost));
            return true;
        }
        false
    }

    /// Writes to the file in which `at` lies.
    pub(super) fn write_file(&self, at: u64, data: &[u8]) -> io::Result<()> {
        match self.direct_at(at) {
            Some(direct) => direct.write(at, data),
            None => {
                let (file, at) = self.file_at(at);
                logged::write_all(file, at, data)
            }
        }
    }

    /// The file in which `at` lies, and where.
    pub(super) fn file_at(&self, at: u64) -> (BorrowedFd<'_>, u64) {
        match &self.data {
            Some(data) if at >= data.at => (data.file.backing.fd.as_fd(), at - data.at + data.from),
            _ => (self.fd.as_fd(), at + self.start),
        }
    }
}

impl Disk for MappedPool {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        match self.direct_at(at) {
            Some(direct) => direct.read(at, out),
            None => {
                let (file, at) = self.file_at(at);
                logged::read_exact(file, at, out)
            }
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
        count::synced();
        match self.logged.get() {
            Some(logged) if logged.has_failed() => Err(Errno::IO.into()),
            _ => fdatasync(&self.fd),
        }
    }

    fn is_direct(&self) -> bool {
        self.is_direct()
    }

    fn has_failed(&self) -> bool {
        self.logged.get().is_some_and(Logged::has_failed)
    }

    fn sync_data(&self, site: Site) -> io::Result<()> {
        let Some(data) = &self.data else {
            return Disk::sync(self, site);
        };
        count::synced();
        match self.logged.get() {
            Some(logged) if logged.has_failed() => Err(Errno::IO.into()),
            _ => fdatasync(&data.file.backing.fd),
        }
    }

    fn forget(&self, at: u64, len: u64) {
        let advice = rustix::fs::Advice::DontNeed;
        let (file, at) = self.file_at(at);
        // What cannot be dropped is read from memory, as ever.
        let _ = rustix::fs::fadvise(file, at, std::num::NonZero::new(len), advice);
    }
}
