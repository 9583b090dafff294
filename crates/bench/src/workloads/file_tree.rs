//! Where workloads run: the library in this process, or a directory of a file system of the kernel.
//! Both use the same names, relative to a root, and return the same results.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use vellum::{OpenOptions, Volume};

use crate::Result;
use crate::error::doing;

/// Mode of new files and directories.
const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

/// The purpose of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    /// Reading and writing, from its beginning.
    ReadWrite,
    /// Every write goes to the end.
    Append,
    /// Creating the file, which must not exist.
    Create,
}

/// A file system, below a root.
pub(crate) trait FileTree: Sync {
    type File: Opened + Send + Sync;

    fn make_dir(&self, name: &CStr) -> Result<()>;
    fn open(&self, name: &CStr, purpose: Purpose) -> Result<Self::File>;
    fn stat(&self, name: &CStr) -> Result<u64>;
    fn remove(&self, name: &CStr) -> Result<()>;
    fn remove_dir(&self, name: &CStr) -> Result<()>;
    fn rename(&self, old: &CStr, new: &CStr) -> Result<()>;
    /// Makes all changes durable.
    fn sync(&self) -> Result<()>;
    /// Makes all changes durable, and leaves no background work.
    fn settle(&self) -> Result<()> {
        self.sync()
    }
}

/// An open file.
pub(crate) trait Opened {
    /// Reads; returns fewer bytes than requested only at the end.
    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<usize>;
    /// Writes all of `data`.
    fn write_at(&self, at: u64, data: &[u8]) -> Result<()>;
    /// Writes all of `data` to the end, if the file was opened for appending.
    fn append(&self, data: &[u8]) -> Result<()>;
    fn sync(&self) -> Result<()>;
    fn set_len(&self, bytes: u64) -> Result<()>;
    fn len(&self) -> Result<u64>;
}

impl FileTree for Volume {
    type File = vellum::File;

    fn make_dir(&self, name: &CStr) -> Result<()> {
        Ok(self.create_dir(path(name))?)
    }

    fn open(&self, name: &CStr, purpose: Purpose) -> Result<vellum::File> {
        let options = OpenOptions::new()
            .read(matches!(purpose, Purpose::Read | Purpose::ReadWrite))
            .write(purpose != Purpose::Read)
            .append(purpose == Purpose::Append)
            .create_new(purpose == Purpose::Create)
            .mode(FILE_MODE as u16);
        Ok(self.open_with(path(name), &options)?)
    }

    fn stat(&self, name: &CStr) -> Result<u64> {
        Ok(self.metadata(path(name))?.len())
    }

    fn remove(&self, name: &CStr) -> Result<()> {
        Ok(self.remove_file(path(name))?)
    }

    fn remove_dir(&self, name: &CStr) -> Result<()> {
        Ok(Volume::remove_dir(self, path(name))?)
    }

    fn rename(&self, old: &CStr, new: &CStr) -> Result<()> {
        Ok(Volume::rename(self, path(old), path(new))?)
    }

    fn sync(&self) -> Result<()> {
        Ok(Volume::sync(self)?)
    }

    fn settle(&self) -> Result<()> {
        FileTree::sync(self)?;
        while self.fs().checkpoint()? > 0 {}
        Ok(())
    }
}

fn path(name: &CStr) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

impl Opened for vellum::File {
    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<usize> {
        Ok(vellum::File::read_at(self, out, at)?)
    }

    fn write_at(&self, at: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            done += vellum::File::write_at(self, &data[done..], at + done as u64)?;
        }
        Ok(())
    }

    fn append(&self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            data = &data[self.handle().append(data)?.1..];
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        Ok(vellum::File::set_len(self, bytes)?)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }
}

/// A directory of a file system of the kernel.
#[derive(Debug)]
pub(crate) struct KernelDir(OwnedFd);

impl KernelDir {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(dir, flags, Mode::empty());
        let what = format!("open {}", dir.display());
        Ok(Self(opened.map_err(doing(what))?))
    }
}

impl FileTree for KernelDir {
    type File = File;

    fn make_dir(&self, name: &CStr) -> Result<()> {
        Ok(rustix::fs::mkdirat(&self.0, name, Mode::from(DIR_MODE))?)
    }

    fn open(&self, name: &CStr, purpose: Purpose) -> Result<File> {
        let flags = match purpose {
            Purpose::Read => OFlags::RDONLY,
            Purpose::ReadWrite => OFlags::RDWR,
            Purpose::Append => OFlags::WRONLY | OFlags::APPEND,
            Purpose::Create => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        };
        let flags = flags | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, Mode::from(FILE_MODE))?.into())
    }

    fn stat(&self, name: &CStr) -> Result<u64> {
        Ok(rustix::fs::statat(&self.0, name, AtFlags::empty())?.st_size as u64)
    }

    fn remove(&self, name: &CStr) -> Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    fn remove_dir(&self, name: &CStr) -> Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    fn rename(&self, old: &CStr, new: &CStr) -> Result<()> {
        Ok(rustix::fs::renameat(&self.0, old, &self.0, new)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(&self.0)?)
    }
}

impl Opened for File {
    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < out.len() {
            let read = FileExt::read_at(self, &mut out[done..], at + done as u64);
            match read.map_err(doing("read on the peer"))? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    fn write_at(&self, at: u64, data: &[u8]) -> Result<()> {
        self.write_all_at(data, at)
            .map_err(doing("write on the peer"))
    }

    fn append(&self, data: &[u8]) -> Result<()> {
        let mut to: &File = self;
        std::io::Write::write_all(&mut to, data).map_err(doing("append on the peer"))
    }

    fn sync(&self) -> Result<()> {
        self.sync_all().map_err(doing("fsync on the peer"))
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        File::set_len(self, bytes).map_err(doing("truncate on the peer"))
    }

    fn len(&self) -> Result<u64> {
        let metadata = self.metadata().map_err(doing("stat on the peer"))?;
        Ok(metadata.len())
    }
}
