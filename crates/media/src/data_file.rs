//! A file or block device with the data of a pool whose metadata lie elsewhere.

use crate::MediaError;
use crate::backing::{Backing, Existing, Node};
use crate::count;
use crate::disk::Disk;
use crate::logged::{read_exact, write_all};
use crate::mapped::fdatasync;
use crate::site::Site;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// An open, locked external data device.
pub struct DataFile {
    pub(crate) backing: Backing,
}

impl DataFile {
    /// Opens one that exists.
    ///
    /// # Errors
    /// There is none, somebody has it open, it is neither a file nor a block device, or what the
    /// operating system said.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, MediaError> {
        Self::of(Backing::open(path, read_only)?)
    }

    /// Makes one of `len` bytes, with every block of it allocated; 0 takes all of a device.
    /// Whatever is there already is refused, unless it is to be overwritten: a file loses its
    /// bytes, a device is taken as it is.
    ///
    /// # Errors
    /// The name is taken, space is short, or as for [`open`](Self::open).
    pub fn create(path: &Path, len: u64, overwrite: bool) -> Result<Self, MediaError> {
        let existing = if overwrite {
            Existing::Replaced
        } else {
            Existing::Refused
        };
        Self::of(Backing::create(path, len, existing)?)
    }

    fn of(backing: Backing) -> Result<Self, MediaError> {
        match backing.node {
            Node::File | Node::Block => Ok(Self { backing }),
            Node::Dax => Err(MediaError::NotAPool {
                path: backing.path,
                found: "device-DAX node",
            }),
        }
    }

    /// Where it was found.
    pub fn path(&self) -> &Path {
        &self.backing.path
    }

    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.backing.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// Outside, or what the operating system said.
    pub fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        read_exact(self.backing.fd.as_fd(), at, out)
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        write_all(self.backing.fd.as_fd(), at, data)
    }

    /// Makes what was written survive a power cut.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn sync(&self) -> io::Result<()> {
        fdatasync(&self.backing.fd)
    }
}

/// By offsets of the medium.
impl Disk for DataFile {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.write(at, data)
    }

    fn sync(&self, _site: Site) -> io::Result<()> {
        count::synced();
        self.sync()
    }
}

impl std::fmt::Debug for DataFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DataFile").field(&self.backing.path).finish()
    }
}
