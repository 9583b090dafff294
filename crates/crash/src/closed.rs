//! What a close that returned has promised: the next opening need not recover anything.

use vellum_layout::{BLOCK_BYTES, PoolPhase, PoolState, StateWord, Superblock};

/// Whether a pool does not say that it is closed.
pub(crate) fn is_left_open(image: &[u8]) -> bool {
    phase(image) != Some(PoolPhase::Clean)
}

fn phase(image: &[u8]) -> Option<PoolPhase> {
    let superblock = Superblock::unseal(image.get(..BLOCK_BYTES as usize)?).ok()?;
    let at = (superblock.geometry().state_at + PoolState::WORD) as usize;
    let word = u64::from_ne_bytes(image.get(at..at + 8)?.try_into().ok()?);
    Some(StateWord(word).get()?.0)
}
