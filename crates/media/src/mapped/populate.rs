//! Faults in the pages of a pool before they are used.

use super::MappedPool;
use crate::memory::MediaKind;
use rustix::mm::Advice;
use std::sync::atomic::Ordering;

impl MappedPool {
    /// Moves the first `len` bytes of a pool in memory to large pages, as far as the kernel has
    /// them; returns how many bytes are on large pages.
    pub fn gather_large_pages(&self, len: u64) -> u64 {
        if self.kind != MediaKind::Memory || self.read_only {
            return 0;
        }
        let page_bytes = rustix::param::page_size();
        self.mapping.gather_large_pages(page_bytes, len)
    }

    /// Faults in every page, so that no later access waits for one; pages of memory become large
    /// ones if the kernel has them. Failures are not reported: an unreadable page is found at its
    /// first access. Data that bypass the page cache are left out.
    pub fn populate(&self) {
        let end = self.direct.first().map_or(u64::MAX, |direct| direct.from);
        let end = end.min(self.mapping.len());
        self.gather_large_pages(end);
        let (base, bytes) = self.mapping.whole();
        let bytes = bytes.min(usize::try_from(end).unwrap_or(usize::MAX));
        // Writing would copy every page of a private mapping.
        let advice = if self.read_only {
            Advice::LinuxPopulateRead
        } else {
            Advice::LinuxPopulateWrite
        };
        let of_file = self.kind != MediaKind::Memory;
        let advise = |advice| {
            // SAFETY: advice and populating change no byte; the range is our mapping.
            unsafe { rustix::mm::madvise(base, bytes, advice) }
        };
        // The kernel then reads nothing ahead, and so caches the file in single pages. A later
        // write to a part of a large page would make it examine all blocks of that page.
        let _is_advice = of_file.then(|| advise(Advice::Random));
        if advise(advice).is_err() {
            self.touch_every_page(end);
        }
        let _is_advice = of_file.then(|| advise(Advice::Normal));
        self.read_singly();
    }

    fn touch_every_page(&self, end: u64) {
        for at in (0..end & !7).step_by(rustix::param::page_size()) {
            if self.read_only {
                self.mapping.load(at, Ordering::Relaxed);
            } else {
                self.mapping.fetch_or(at, 0);
            }
        }
    }
}
