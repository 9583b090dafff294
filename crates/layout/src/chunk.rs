//! The chunk table: one word for each chunk of the metadata region says what its slots hold.

use crate::NamespaceKind;
use crate::checksum::checksum_words;

/// What the slots of a metadata chunk hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChunkKind {
    /// Nothing yet.
    Free = 0,
    /// Inodes, one a slot.
    Inodes = 1,
    /// Directory entries, small log extents and short symlink targets: one to three slots each.
    Entries = 2,
    /// Metadata blocks of 4 KiB: large log extents, long symlink targets, attribute blocks.
    Blocks = 3,
    /// Extents of areas, with entries of the namespace *adaptive*.
    Areas = 4,
}

impl ChunkKind {
    /// Whether a pool with this namespace can have such chunks.
    pub fn is_of(self, namespace: NamespaceKind) -> bool {
        self != Self::Areas || namespace == NamespaceKind::Adaptive
    }
}

/// One word of the chunk table: kind in bits 0..8, file system in 8..16, check in 32..64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkWord(pub u64);

impl ChunkWord {
    /// The word of chunk `index` when it holds `kind` for file system `fs`. Free chunks are zero.
    pub fn new(index: u64, kind: ChunkKind, fs: u8) -> Self {
        if kind == ChunkKind::Free {
            return Self(0);
        }
        let low = kind as u64 | u64::from(fs) << 8;
        Self(low | u64::from(checksum_words(&[index, low])) << 32)
    }

    /// The kind and file system, if the word is sound for chunk `index`.
    pub fn decode(self, index: u64) -> Option<(ChunkKind, u8)> {
        let kind = match self.0 & 0xFF {
            0 => ChunkKind::Free,
            1 => ChunkKind::Inodes,
            2 => ChunkKind::Entries,
            3 => ChunkKind::Blocks,
            4 => ChunkKind::Areas,
            _ => return None,
        };
        let fs = (self.0 >> 8) as u8;
        (Self::new(index, kind, fs) == self).then_some((kind, fs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_sound_only_for_its_chunk() {
        let word = ChunkWord::new(7, ChunkKind::Entries, 0);
        assert_eq!(word.decode(7), Some((ChunkKind::Entries, 0)));
        assert_eq!(word.decode(8), None);
        assert_eq!(ChunkWord(word.0 ^ 1).decode(7), None);
        assert_eq!(ChunkWord(0).decode(3), Some((ChunkKind::Free, 0)));
    }
}
