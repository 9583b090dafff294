//! Recreates directory logs of words.

use vellum_layout::{ChunkKind, LogExtentHead, LogExtentKind, LogOwner, LogWord};
use zerocopy::IntoBytes;

use crate::room::COOKIE_MAX;

/// A log.
pub(crate) struct Log {
    /// Slot of its first extent; 0: none.
    pub(crate) first: u64,
    /// Slot and bytes of each extent.
    pub(crate) extents: Vec<(u64, Vec<u8>)>,
}

/// A log that names `entries`, given by cookie and slot, in order of cookies. `take` allocates
/// slots.
///
/// # Errors
/// As `take`.
pub(crate) fn log_of<E>(
    owner: LogOwner,
    entries: &[(u64, u64)],
    mut take: impl FnMut(ChunkKind, u64) -> Result<u64, E>,
) -> Result<Log, E> {
    let small = LogExtentKind::Small;
    let (kind, chunk) = if entries.len() as u64 <= small.words() {
        (small, ChunkKind::Entries)
    } else {
        (LogExtentKind::Large, ChunkKind::Blocks)
    };
    let mut extents: Vec<(u64, Vec<u8>)> = Vec::new();
    for part in entries.chunks(kind.words() as usize) {
        let slot = take(chunk, kind.slots())?;
        let base = part[0].0.min(COOKIE_MAX - kind.words());
        let head = LogExtentHead::new(slot, owner.slot, owner.generation, base, kind, true);
        let mut extent = vec![0; kind.bytes() as usize];
        extent[..size_of::<LogExtentHead>()].copy_from_slice(head.as_bytes());
        for ((_, entry), at) in part.iter().zip((kind.words_at() as usize..).step_by(8)) {
            extent[at..at + 8].copy_from_slice(&LogWord::new(*entry).0.to_le_bytes());
        }
        if let Some((_, last)) = extents.last_mut() {
            let next = LogExtentHead::NEXT as usize;
            last[next..next + 8].copy_from_slice(&slot.to_le_bytes());
        }
        extents.push((slot, extent));
    }
    Ok(Log {
        first: extents.first().map_or(0, |extent| extent.0),
        extents,
    })
}
