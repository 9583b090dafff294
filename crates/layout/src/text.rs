//! Symlink targets: a head of 16 bytes and the text, in one metadata slot or one metadata block.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checksum::checksum;
use crate::{BLOCK_BYTES, SLOT_BYTES};

/// Longest target that fits a metadata slot, in bytes.
pub const TEXT_SLOT_MAX: usize = SLOT_BYTES as usize - size_of::<TextHead>();
/// Longest target, in bytes.
pub const TEXT_BLOCK_MAX: usize = BLOCK_BYTES as usize - size_of::<TextHead>();

/// The head of a symlink target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TextHead {
    /// Inode slot of the symlink.
    pub owner: u64,
    /// Bytes of the target.
    pub len: u32,
    /// CRC-32C of the target.
    pub checksum: u32,
}

impl TextHead {
    /// The head of `text`, owned by inode slot `owner`.
    pub fn new(owner: u64, text: &[u8]) -> Self {
        Self {
            owner,
            len: text.len() as u32,
            checksum: checksum(text),
        }
    }

    /// Whether this is the head of `text`, owned by `owner`.
    pub fn is_sound(&self, owner: u64, text: &[u8]) -> bool {
        *self == Self::new(owner, text)
    }
}
