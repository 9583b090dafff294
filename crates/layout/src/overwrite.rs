//! What the owner of a thread slot changed last of the bytes that files have already.
//!
//! It is stored before the first of these bytes, and neither flushed nor taken back: if the process
//! is killed in the middle, the next one under the same boot finds it and makes durable what
//! readers can see. After a power cut it means nothing.

use crate::THREAD_SLOT_BYTES;

/// Blocks of a file some bytes of which change inside its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwrite {
    /// The file's mapping id.
    pub id: u32,
    /// Only the first and the last block, not those between.
    pub ends_only: bool,
    /// The first logical block.
    pub first: u32,
    /// The last logical block.
    pub last: u32,
}

impl Overwrite {
    /// Offset within the thread slot of the word that says which file.
    pub const FILE: u64 = 512;
    /// Offset of the word that says which blocks.
    pub const BLOCKS: u64 = 520;
    const ENDS_ONLY: u64 = 1 << 32;

    /// The words at [`Self::FILE`] and [`Self::BLOCKS`].
    pub fn words(self) -> [u64; 2] {
        let ends_only = if self.ends_only { Self::ENDS_ONLY } else { 0 };
        let blocks = u64::from(self.first) | u64::from(self.last) << 32;
        [u64::from(self.id) | ends_only, blocks]
    }

    /// What the words say. Mapping id 0 is no file's.
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
