//! Writing to the log ahead of its records, on the first pass over its area.
//!
//! The first write to a block of a file can cost a sync much more
//! ([`vellum_media::Disk::write_ahead`]). Without this, each sync of a record would pay that. Only
//! bytes that belong to no record are written, and the next opening does not take zeros for a
//! record.

use std::sync::atomic::{AtomicU64, Ordering};

use vellum_layout::BLOCK_BYTES;
use vellum_media::Disk;

use super::layout::LogLayout;

/// Most bytes that are written ahead at once, and the part of the area that they are.
const AHEAD_BYTES: u64 = 1 << 20;
const AHEAD_PART: u64 = 16;

/// The bytes of the area that were looked at last. Only the leader of a commit uses it.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    from: AtomicU64,
    to: AtomicU64,
}

impl Ahead {
    /// Called before a record of `bytes` is written at `at` of the area, where `free` bytes are
    /// free.
    pub(super) fn before(
        &self,
        disk: &dyn Disk,
        layout: &LogLayout,
        (at, bytes): (u64, u64),
        free: u64,
    ) {
        let known = self.from.load(Ordering::Relaxed)..self.to.load(Ordering::Relaxed);
        if known.contains(&at) && at + bytes <= known.end {
            return;
        }
        let most = (layout.area_bytes() / AHEAD_PART).clamp(BLOCK_BYTES, AHEAD_BYTES);
        let end = layout.area_bytes().min(at + most.max(bytes).min(free));
        if let Err(error) = disk.write_ahead(layout.at_of_record(at), end - at) {
            tracing::debug!(%error, "the log could not be written ahead");
        }
        self.from.store(at, Ordering::Relaxed);
        self.to.store(end, Ordering::Relaxed);
    }
}
