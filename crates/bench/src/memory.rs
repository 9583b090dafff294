//! Measures memory in use.

use crate::Result;
use crate::error::doing;

/// Disables large pages in this process while it lives.
pub(crate) struct SmallPages;

impl SmallPages {
    /// Disables them.
    pub(crate) fn only() -> Result<Self> {
        rustix::thread::disable_transparent_huge_pages(true)
            .map_err(doing("turn large pages off"))?;
        Ok(Self)
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        // They were disabled a moment ago, so they can be enabled again.
        let _ = rustix::thread::disable_transparent_huge_pages(false);
    }
}
