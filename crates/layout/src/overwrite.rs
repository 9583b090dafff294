//! The latest overwrite of a thread slot: existing bytes of a file that its owner is changing.
//!
//! It is stored before the first of these bytes, and is neither flushed nor cleared. If the process
//! is killed in the middle, the next process under the same boot reads it and makes durable
//! whatever readers can already see. After a power cut it has no meaning.

use crate::THREAD_SLOT_BYTES;

/// Blocks of a file in which bytes below the file size change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwrite {
    /// The file's mapping id.
    pub id: u32,
    /// Only the first and the last block change, not those between.
    pub ends_only: bool,
    /// The first logical block.
    pub first: u32,
    /// The last logical block.
    pub last: u32,
}

impl Overwrite {
    /// Offset within the thread slot of the word with the file.
    pub const FILE: u64 = 512;
    /// Offset of the word with the blocks.
    pub const BLOCKS: u64 = 520;
    const ENDS_ONLY: u64 = 1 << 32;

    /// The words at [`Self::FILE`] and [`Self::BLOCKS`].
    pub fn words(self) -> [u64; 2] {
        let ends_only = if self.ends_only { Self::ENDS_ONLY } else { 0 };
        let blocks = u64::from(self.first) | u64::from(self.last) << 32;
        [u64::from(self.id) | ends_only, blocks]
    }

    /// Decodes the words. Mapping id 0 belongs to no file.
    pub fn from_words([file, blocks]: [u64; 2]) -> Self {
        Self {
            id: file as u32,
            ends_only: file & Self::ENDS_ONLY != 0,
            first: blocks as u32,
            last: (blocks >> 32) as u32,
        }
    }
}

const _: () = assert!(Overwrite::BLOCKS + 8 <= THREAD_SLOT_BYTES);
