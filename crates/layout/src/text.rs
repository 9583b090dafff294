//! Symlink targets: the bare text, in one metadata slot or one metadata block. The inode holds its
//! length and its check, so that the longest path of a system call fits a block.

use crate::checksum::Summing;
use crate::{ChunkKind, SLOT_BYTES, SLOTS_PER_BLOCK};

/// Longest target in a metadata slot, in bytes; longer ones take a metadata block.
pub const TEXT_SLOT_MAX: usize = SLOT_BYTES as usize;
/// Longest target, in bytes: `PATH_MAX` without the zero at its end.
pub const TEXT_MAX: usize = 4095;

/// The kind of chunk that a target of `len` bytes lies in, and its number of metadata slots.
pub fn text_home(len: usize) -> (ChunkKind, u64) {
    if len <= TEXT_SLOT_MAX {
        (ChunkKind::Entries, 1)
    } else {
        (ChunkKind::Blocks, SLOTS_PER_BLOCK)
    }
}

/// The value of [`crate::Inode::detail`] for the symlink at inode slot `owner` with `generation`
/// and target `text`. The text of another inode or of an earlier life of this one does not match.
pub fn text_check(owner: u64, generation: u32, text: &[u8]) -> u64 {
    let mut sum = Summing::default();
    sum.add_words(&[owner, u64::from(generation)]);
    sum.add(text);
    u64::from(sum.finish())
}
