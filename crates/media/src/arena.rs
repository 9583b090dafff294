//! The arena in shared memory: volatile, sparse, mapped anywhere.

use crate::MediaError;
use crate::by_mapping::memory_of_mapping;
use crate::mapping::{Mapping, MappingError};
use crate::process::Owner;
use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Shared volatile memory. The system allocates pages at the first write.
pub struct MappedArena {
    mapping: Mapping,
    owner: Owner,
    /// The memory, if it is shared; `None` for memory of this process alone.
    memory: Option<Arc<OwnedFd>>,
}

impl MappedArena {
    /// An arena of `len` zero bytes.
    ///
    /// # Errors
    /// Fails if the system has no memory, descriptor or address range left.
    pub fn new(len: u64) -> Result<Self, MediaError> {
        Self::map(Arc::new(memory_file("vellum-arena", len)?), len)
    }

    /// An arena of `len` zero bytes for a single process. It cannot be mapped again, but lies on
    /// large pages if the kernel has them, which makes random accesses faster by a third.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn private(len: u64) -> Result<Self, MediaError> {
        Self::of(Mapping::private(len), None, len)
    }

    /// Maps the same bytes again at another address.
    ///
    /// # Errors
    /// As for [`new`](Self::new); fails for a [`private`](Self::private) arena.
    pub fn again(&self) -> Result<Self, MediaError> {
        let len_bytes = self.mapping.len();
        match &self.memory {
            Some(memory) => Self::map(Arc::clone(memory), len_bytes),
            None => {
                let source = std::io::ErrorKind::Unsupported.into();
                Err(MediaError::OutOfMemory { len_bytes, source })
            }
        }
    }

    /// Asks the kernel for large pages: random accesses get faster by a third, and memory is
    /// allocated 2 MiB at a time. The kernel may decline.
    pub fn prefer_large_pages(&self) {
        self.mapping.prefer_large_pages();
    }

    /// Allocates every page now, so that no later access waits for one. The kernel may decline;
    /// pages are then allocated at their first access.
    pub fn populate(&self) {
        let (base, bytes) = self.mapping.whole();
        // SAFETY: populating changes no byte; the range is our mapping.
        let _ = unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxPopulateWrite) };
    }

    fn map(memory: Arc<OwnedFd>, len: u64) -> Result<Self, MediaError> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let page = rustix::param::page_size();
        Self::of(
            Mapping::new(memory.as_fd(), len, flags, page),
            Some(memory),
            len,
        )
    }

    fn of(
        mapping: Result<Mapping, MappingError>,
        memory: Option<Arc<OwnedFd>>,
        len: u64,
    ) -> Result<Self, MediaError> {
        match mapping {
            Ok(mapping) => Ok(Self {
                mapping,
                owner: Owner::current(),
                memory,
            }),
            Err(MappingError::Full(full)) => Err(full),
            Err(MappingError::System(source)) => Err(MediaError::OutOfMemory {
                len_bytes: len,
                source,
            }),
        }
    }

    /// An arena's stores are not counted: they cost the medium nothing.
    #[inline(always)]
    fn wrote(&self, _bytes: u64) {}

    /// An arena has no file to read.
    #[inline(always)]
    fn read_by_call(&self, _at: u64, _out: &mut [u8]) -> bool {
        false
    }

    /// Dirty lines of an arena are not recorded.
    #[inline(always)]
    fn noting(&self, _at: u64, _len: u64) {}
}

memory_of_mapping!(MappedArena);

/// An anonymous file of `len` zero bytes.
pub(crate) fn memory_file(name: &str, len: u64) -> Result<OwnedFd, MediaError> {
    let failed = |errno: rustix::io::Errno| MediaError::OutOfMemory {
        len_bytes: len,
        source: errno.into(),
    };
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(failed)?;
    rustix::fs::ftruncate(&file, len).map_err(failed)?;
    Ok(file)
}
