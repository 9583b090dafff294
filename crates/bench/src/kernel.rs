//! A file system of the kernel, used through system calls that start at an open directory.

use std::ffi::{CStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom};
use vellum::media::count::Counts;

use crate::Result;
use crate::error::{Error, doing};
use crate::mount::Server;
use crate::side::{For, Side};

/// The buffer size for `getdents64`, the same as the C library's.
const LIST_BUFFER_BYTES: usize = 32 << 10;

/// A directory for the measurement on some mounted file system.
pub(crate) struct Kernel {
    root: PathBuf,
    server: Option<Arc<Server>>,
}

impl Kernel {
    /// Measures below `root`, an existing and empty directory.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, server: None }
    }

    /// Measures below `root`, the root of a mount that `server` serves.
    pub(crate) fn mounted(root: PathBuf, server: Arc<Server>) -> Self {
        Self {
            root,
            server: Some(server),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(Path::new(path))
    }

    /// Calls `each` with every name except `.` and `..`.
    fn for_each_name(dir: &OwnedFd, mut each: impl FnMut(&CStr)) -> Result<()> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); LIST_BUFFER_BYTES];
        rustix::fs::seek(dir, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                each(name);
            }
        }
        Ok(())
    }
}

fn create_flags() -> OFlags {
    OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC
}

fn file_mode() -> Mode {
    Mode::from_raw_mode(0o644)
}

impl Side for Kernel {
    type Dir = OwnedFd;
    type File = OwnedFd;

    fn dir(&self, path: &str) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = self.path(path);
        rustix::fs::open(&path, flags, Mode::empty())
            .map_err(doing(format!("open {}", path.display())))
    }

    fn make_dir(&self, path: &str) -> Result<()> {
        let path = self.path(path);
        std::fs::create_dir(&path).map_err(doing(format!("make {}", path.display())))
    }

    fn stat(&self, at: &OwnedFd, path: &CStr) -> Result<u64> {
        Ok(rustix::fs::statat(at, path, AtFlags::empty())?.st_ino)
    }

    fn size(&self, at: &OwnedFd, path: &CStr) -> Result<u64> {
        Ok(rustix::fs::statat(at, path, AtFlags::empty())?.st_size as u64)
    }

    fn open_close(&self, at: &OwnedFd, path: &CStr) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        drop(rustix::fs::openat(at, path, flags, Mode::empty())?);
        Ok(())
    }

    fn create(&self, at: &OwnedFd, name: &CStr) -> Result<()> {
        drop(rustix::fs::openat(at, name, create_flags(), file_mode())?);
        Ok(())
    }

    fn create_write_sync(&self, at: &OwnedFd, name: &CStr, data: &[u8]) -> Result<()> {
        let file = rustix::fs::openat(at, name, create_flags(), file_mode())?;
        let written = rustix::io::write(&file, data)?;
        rustix::fs::fsync(&file)?;
        if written == data.len() {
            Ok(())
        } else {
            Err(Error::Wrong(format!("{written} bytes written")))
        }
    }

    fn unlink(&self, at: &OwnedFd, name: &CStr) -> Result<()> {
        Ok(rustix::fs::unlinkat(at, name, AtFlags::empty())?)
    }

    fn mkdir(&self, at: &OwnedFd, name: &CStr) -> Result<()> {
        Ok(rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755))?)
    }

    fn rmdir(&self, at: &OwnedFd, name: &CStr) -> Result<()> {
        Ok(rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR)?)
    }

    fn rename(&self, from: &OwnedFd, old: &CStr, to: &OwnedFd, new: &CStr) -> Result<()> {
        Ok(rustix::fs::renameat(from, old, to, new)?)
    }

    fn list(&self, dir: &OwnedFd) -> Result<u64> {
        let mut entries = 0;
        Self::for_each_name(dir, |name| {
            entries += 1;
            std::hint::black_box(name);
        })?;
        Ok(entries)
    }

    fn list_owned(&self, dir: &OwnedFd) -> Result<u64> {
        let mut entries = 0;
        Self::for_each_name(dir, |name| {
            entries += 1;
            std::hint::black_box(OsString::from_vec(name.to_bytes().to_vec()));
        })?;
        Ok(entries)
    }

    fn open(&self, at: &OwnedFd, path: &CStr, purpose: For) -> Result<OwnedFd> {
        let flags = match purpose {
            For::Reading => OFlags::RDONLY,
            For::Appending => OFlags::WRONLY | OFlags::APPEND,
        };
        Ok(rustix::fs::openat(
            at,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }

    fn read_at(&self, file: &OwnedFd, offset: u64, out: &mut [u8]) -> Result<usize> {
        Ok(rustix::io::pread(file, out, offset)?)
    }

    fn append(&self, file: &OwnedFd, data: &[u8]) -> Result<usize> {
        Ok(rustix::io::write(file, data)?)
    }

    fn settle(&self) -> Result<()> {
        match &self.server {
            Some(server) => server.settle(),
            None => Ok(()),
        }
    }

    fn counts(&self) -> Counts {
        match &self.server {
            Some(server) => server.counts(),
            None => Counts::default(),
        }
    }

    fn is_null_fs(&self) -> bool {
        self.server
            .as_ref()
            .is_some_and(|server| server.is_null_fs())
    }
}
