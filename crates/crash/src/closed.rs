//! What a close promised when it returned, and what it saved: the next opening needs no recovery.

use vellum_layout::{
    BLOCK_BYTES, Geometry, PoolPhase, PoolState, SLOT_BYTES, StateWord, Superblock,
};
use vellum_media::LINE_BYTES;

/// Whether a pool is not marked as closed.
pub(crate) fn is_left_open(image: &[u8]) -> bool {
    phase(image) != Some(PoolPhase::Clean)
}

fn phase(image: &[u8]) -> Option<PoolPhase> {
    let line = state_line(image)?;
    let at = PoolState::WORD as usize;
    let word = u64::from_ne_bytes(line[at..at + 8].try_into().ok()?);
    Some(StateWord(word).get()?.0)
}

/// The cache line of the state word.
pub(crate) fn state_line(image: &[u8]) -> Option<[u8; LINE_BYTES as usize]> {
    let at = geometry(image)?.state_at as usize;
    image.get(at..at + LINE_BYTES as usize)?.try_into().ok()
}

/// The bitmap of slots in use that the last close saved.
pub(crate) fn live_map(image: &[u8]) -> Option<Vec<u8>> {
    let geometry = geometry(image)?;
    let bytes = geometry.meta_chunks * geometry.chunk_bytes / SLOT_BYTES / 8;
    let at = geometry.live_map_at as usize;
    Some(image.get(at..at + bytes as usize)?.to_vec())
}

pub(crate) fn geometry(image: &[u8]) -> Option<Geometry> {
    let superblock = Superblock::unseal(image.get(..BLOCK_BYTES as usize)?).ok()?;
    Some(superblock.geometry())
}
