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
    /// Words of the blocks of an added zone ([`crate::AddedZones`]), and no slots.
    Table = 5,
}

impl ChunkKind {
    /// Whether a pool with this namespace can have such chunks.
    pub fn is_of(self, namespace: NamespaceKind) -> bool {
        self != Self::Areas || namespace == NamespaceKind::Adaptive
    }
}

/// One word of the chunk table: kind in bits 0..8, zone, of the kind [`ChunkKind::Table`], in 8..16, check in 32..64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkWord(pub u64);

impl ChunkWord {
    /// The word of chunk `index` when it holds `kind`, of this zone or of no added one (0). Free chunks are zero.
    pub fn new(index: u64, kind: ChunkKind, zone: u8) -> Self {
        if kind == ChunkKind::Free {
            return Self(0);
        }
        let low = kind as u64 | u64::from(zone) << 8;
        Self(low | u64::from(checksum_words(&[index, low])) << 32)
    }

    /// The kind and the added zone, if the word is sound for chunk `index`.
    pub fn decode(self, index: u64) -> Option<(ChunkKind, u8)> {
        let kind = match self.0 & 0xFF {
            0 => ChunkKind::Free,
            1 => ChunkKind::Inodes,
            2 => ChunkKind::Entries,
            3 => ChunkKind::Blocks,
            4 => ChunkKind::Areas,
            5 => ChunkKind::Table,
            _ => return None,
        };
        let zone = (self.0 >> 8) as u8;
        let is_sound =
            Self::new(index, kind, zone) == self && (zone == 0) != (kind == ChunkKind::Table);
        is_sound.then_some((kind, zone))
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
        let of_zone = |kind, zone| ChunkWord::new(7, kind, zone).decode(7);
        assert_eq!(of_zone(ChunkKind::Table, 2), Some((ChunkKind::Table, 2)));
        assert_eq!(of_zone(ChunkKind::Table, 0), None);
        assert_eq!(of_zone(ChunkKind::Blocks, 2), None);
    }
}
