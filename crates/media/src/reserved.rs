//! Reserved ranges of addresses for later mappings.

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Addresses at which nothing else can be mapped, until dropped.
pub(crate) struct Reserved {
    /// The first address.
    pub(crate) base: *mut std::ffi::c_void,
    bytes: usize,
}

impl Reserved {
    /// Reserves `bytes` of addresses at a multiple of `align`, because the kernel only maps aligned
    /// ranges with large pages. Readable addresses hold zeros.
    pub(crate) fn new(bytes: usize, align: usize, may: ProtFlags) -> Result<Self, Errno> {
        let wide = bytes.checked_add(align).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses a free address range, so no existing memory is touched.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), wide, may, flags) }?;
        let head = (start as usize).next_multiple_of(align) - start as usize;
        let place = Self {
            base: start.wrapping_byte_add(head),
            bytes,
        };
        for (from, spare) in [
            (start, head),
            (place.base.wrapping_byte_add(bytes), align - head),
        ] {
            if spare > 0 {
                // SAFETY: a part of the range just reserved, outside the part that is kept. If it
                // cannot be unmapped, only addresses are lost.
                let _ = unsafe { rustix::mm::munmap(from, spare) };
            }
        }
        Ok(place)
    }

    /// The first address.
    pub(crate) fn start(&self) -> usize {
        self.base as usize
    }

    /// The addresses, now owned by the caller.
    pub(crate) fn into_base(self) -> *mut std::ffi::c_void {
        std::mem::ManuallyDrop::new(self).base
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: our own range; the mapping that was to replace it failed.
        let _ = unsafe { rustix::mm::munmap(self.base, self.bytes) };
    }
}
