//! Symlink targets: the bare text, in one metadata slot or one metadata block. The inode has its
//! length and its check, so that the longest path that fits a system call fits a block.

use crate::checksum::Summing;
use crate::{ChunkKind, SLOT_BYTES, SLOTS_PER_BLOCK};

/// Longest target that lies in a metadata slot, in bytes; longer ones lie in a metadata block.
pub const TEXT_SLOT_MAX: usize = SLOT_BYTES as usize;
/// Longest target, in bytes: `PATH_MAX` without the zero at its end.
pub const TEXT_MAX: usize = 4095;

/// What kind of chunk a target of `len` bytes lies in, and how many metadata slots it takes.
pub fn text_home(len: usize) -> (ChunkKind, u64) {
    if len <= TEXT_SLOT_MAX {
        (ChunkKind::Entries, 1)
    } else {
        (ChunkKind::Blocks, SLOTS_PER_BLOCK)
    }
}

/// What [`crate::Inode::detail`] must be in the symlink at inode slot `owner`, of `generation`, to
/// `text`: neither another inode's text nor that of an earlier life passes for its own.
pub fn text_check(owner: u64, generation: u32, text: &[u8]) -> u64 {
    let mut sum = Summing::default();
    sum.add_words(&[owner, u64::from(generation)]);
    sum.add(text);
    u64::from(sum.finish())
}
