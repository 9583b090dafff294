//! Measuring memory in use.

use crate::Result;
use crate::error::doing;

/// Large pages are off in this process while it lives.
pub(crate) struct SmallPages;

impl SmallPages {
    /// Turns them off.
    pub(crate) fn only() -> Result<Self> {
        rustix::thread::disable_transparent_huge_pages(true)
            .map_err(doing("turn large pages off"))?;
        Ok(Self)
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        // Turned off a moment ago, they can be turned on.
        let _ = rustix::thread::disable_transparent_huge_pages(false);
    }
}
