//! Making a pool: in a new file, over what is there, or in memory.

use super::{MappedPool, MediaChoice, copying, growth};
use crate::MediaError;
use crate::arena::memory_file;
use crate::backing::{Backing, Existing, Held, NewSpace, PoolFile};
use crate::barriers::Barriers;
use crate::mapping::MappingError;
use crate::memory::MediaKind;
use crate::process::Owner;
use rustix::mm::MapFlags;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;

impl MappedPool {
    /// Creates a pool file of `len` bytes, every block of it allocated. The bytes are zero.
    ///
    /// # Errors
    /// Fails if the file exists or space is short, or as for [`open`](Self::open). No file is left
    /// behind.
    pub fn create(path: &Path, len: u64, media: MediaChoice) -> Result<Self, MediaError> {
        Self::create_with(path, (len, NewSpace::Whole), media)
    }

    /// As [`create`](Self::create), with this much space at once.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_with(
        path: &Path,
        size: (u64, NewSpace),
        media: MediaChoice,
    ) -> Result<Self, MediaError> {
        let backing = Backing::create(path, size, Existing::Refused)?;
        let made = Self::of(backing, media, false);
        if made.is_err() {
            // The file is ours and useless; a failure to remove it changes nothing.
            let _ = rustix::fs::unlink(path);
        }
        made
    }

    /// Creates a pool over what may be there already: a file loses its bytes and gets `len` zero
    /// bytes; a device is used as it is ([`known_zero`](Self::known_zero) reports which). A `len`
    /// of 0 uses the whole device.
    ///
    /// # Errors
    /// As for [`create`](Self::create), except that the file may exist.
    pub fn overwrite(path: &Path, len: u64, media: MediaChoice) -> Result<Self, MediaError> {
        Self::overwrite_with(path, (len, NewSpace::Whole), media)
    }

    /// As [`overwrite`](Self::overwrite), with this much space at once.
    ///
    /// # Errors
    /// As for [`overwrite`](Self::overwrite).
    pub fn overwrite_with(
        path: &Path,
        size: (u64, NewSpace),
        media: MediaChoice,
    ) -> Result<Self, MediaError> {
        Self::of(
            Backing::create(path, size, Existing::Replaced)?,
            media,
            false,
        )
    }

    /// A pool of `len` zero bytes that no other process can open; it vanishes when it is dropped.
    ///
    /// # Errors
    /// Fails if the system has no memory, descriptor or address range left.
    pub fn anonymous(len: u64) -> Result<Self, MediaError> {
        let fd = memory_file("vellum-pool", len)?;
        let page = rustix::param::page_size();
        match growth::with_spare(fd.as_fd(), len, MapFlags::SHARED, page) {
            Ok(mapping) => {
                let pool = Self {
                    mapping,
                    owner: Owner::current(),
                    kind: MediaKind::Memory,
                    read_only: false,
                    known_zero: true,
                    fd: Held::new(PoolFile::new(fd)),
                    start: 0,
                    path: None,
                    data: Vec::new(),
                    direct: Vec::new(),
                    barriers: Barriers::default(),
                    logged: OnceLock::new(),
                    before: copying::Before::default(),
                };
                pool.mapping.prefer_large_pages();
                Ok(pool)
            }
            Err(MappingError::Full(full)) => Err(full),
            Err(MappingError::System(source)) => Err(MediaError::OutOfMemory {
                len_bytes: len,
                source,
            }),
        }
    }
}
