//! The arena in shared memory: volatile, sparse, mapped anywhere.

use crate::MediaError;
use crate::by_mapping::memory_of_mapping;
use crate::mapping::{Mapping, MappingError};
use crate::process::Owner;
use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Shared volatile memory. Pages are taken from the system when they are first written.
pub struct MappedArena {
    mapping: Mapping,
    owner: Owner,
    /// `None`: memory of this process alone.
    memory: Option<Arc<OwnedFd>>,
}

impl MappedArena {
    /// An arena of `len` zero bytes.
    ///
    /// # Errors
    /// If the system has no memory, descriptor or address range left for it.
    pub fn new(len: u64) -> Result<Self, MediaError> {
        Self::map(Arc::new(memory_file("vellum-arena", len)?), len)
    }

    /// An arena of `len` zero bytes for a single process: it cannot be mapped again, but lies on
    /// large pages where the kernel has them, which makes random accesses faster by a third.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn private(len: u64) -> Result<Self, MediaError> {
        Self::of(Mapping::private(len), None, len)
    }

    /// The same bytes, mapped once more at another address.
    ///
    /// # Errors
    /// As for [`new`](Self::new); a [`private`](Self::private) arena refuses.
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

    /// Asks the kernel for large pages: random accesses get faster by a third, and memory is taken
    /// 2 MiB at a time. The kernel may decline.
    pub fn prefer_large_pages(&self) {
        self.mapping.prefer_large_pages();
    }

    /// Takes every page from the system now, so that no later access waits for one. The kernel may
    /// decline; pages then come at their first access.
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

    /// The arena's stores are not counted: they cost the medium nothing.
    #[inline(always)]
    fn wrote(&self, _bytes: u64) {}

    /// An arena is memory alone.
    #[inline(always)]
    fn read_by_call(&self, _at: u64, _out: &mut [u8]) -> bool {
        false
    }

    /// Nobody wants to know which lines of an arena were stored to.
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
