//! A file or block device with the data of a pool whose metadata lie elsewhere.

use crate::MediaError;
use crate::backing::{Backing, Existing, NewSpace, Node};
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
    /// Opens an existing external data device.
    ///
    /// # Errors
    /// Fails if it does not exist, another process has it open, or it is neither a file nor a block
    /// device, or on an error of the operating system.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, MediaError> {
        Self::of(Backing::open(path, read_only)?)
    }

    /// Creates one of `len` bytes, with every block allocated; 0 uses the whole device. An existing
    /// one is refused unless it is to be overwritten: a file then loses its bytes, a device is used
    /// as it is.
    ///
    /// # Errors
    /// Fails if the file exists or space is short, or as for [`open`](Self::open).
    pub fn create(path: &Path, len: u64, overwrite: bool) -> Result<Self, MediaError> {
        let existing = if overwrite {
            Existing::Replaced
        } else {
            Existing::Refused
        };
        Self::of(Backing::create(path, (len, NewSpace::Whole), existing)?)
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

    /// The path at which it was opened.
    pub fn path(&self) -> &Path {
        &self.backing.path
    }

    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        self.backing.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// Fails outside the device, or on an error of the operating system.
    pub fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        read_exact(self.backing.fd.as_fd(), at, out)
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        write_all(self.backing.fd.as_fd(), at, data)
    }

    /// Makes what was written survive a power cut.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn sync(&self) -> io::Result<()> {
        fdatasync(&self.backing.fd)
    }
}

/// Offsets are those of the device.
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
