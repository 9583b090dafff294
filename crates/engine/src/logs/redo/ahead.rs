//! The first pass of a log over its area: bytes are written there ahead of the records.
//!
//! What the first write to a block costs is told in [`vellum_media::Disk::write_ahead`]; here each
//! sync of a record would pay it. Only bytes that no record has, which the next opening might read,
//! are written, and zeros are no record.

use std::sync::atomic::{AtomicU64, Ordering};

use vellum_layout::BLOCK_BYTES;
use vellum_media::Disk;

use super::layout::LogLayout;

/// Bytes that are written ahead at once, at most, and which part of the area.
const AHEAD_BYTES: u64 = 1 << 20;
const AHEAD_PART: u64 = 16;

/// Which bytes of the area were looked at last. Whoever leads a commit has it to himself.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    from: AtomicU64,
    to: AtomicU64,
}

impl Ahead {
    /// Before a record of `bytes` is written at `at` of the area, of which so many from `at` on are
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
