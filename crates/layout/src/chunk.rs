//! The chunk table: one word for each chunk of the metadata region records what its slots hold.

use crate::NamespaceKind;
use crate::checksum::checksum_words;

/// Lower bits of a generation that words do not have.
const GENERATION_BITS: u32 = 8;

/// The content of the slots of a metadata chunk.
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
    /// Mapping words of an added segment ([`crate::AddedSegments`]), and no slots.
    Table = 5,
}

impl ChunkKind {
    /// Whether a pool with this namespace can have such chunks.
    pub fn is_of(self, namespace: NamespaceKind) -> bool {
        self != Self::Areas || namespace == NamespaceKind::Adaptive
    }
}

/// One word of the chunk table: kind in bits 0..8, check in 32..64. With the kind
/// [`ChunkKind::Table`] also the segment in 8..16 and which part of the segment's words in 16..32.
/// Else the upper bits of a generation in 8..32. The word of a chunk that was always free is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkWord(pub u64);

impl ChunkWord {
    /// The word of chunk `index` if it holds `kind`. For a table, it is the first part of the words
    /// of added segment `segment`; otherwise that is 0. The word of a free chunk is zero.
    pub fn new(index: u64, kind: ChunkKind, segment: u8) -> Self {
        match kind {
            ChunkKind::Free => Self(0),
            _ => Self::sealed(index, kind as u64 | u64::from(segment) << 8),
        }
    }

    /// The word of chunk `index` if it holds part `part`, counted from 0, of the words of an added
    /// segment.
    pub fn of_table(index: u64, segment: u32, part: u64) -> Self {
        let low = ChunkKind::Table as u64 | u64::from(segment & 0xFF) << 8 | (part & 0xFFFF) << 16;
        Self::sealed(index, low)
    }

    /// The word of chunk `index` in data space, if it holds `kind`, but no table. Inodes that lie
    /// there later begin with `generation`, of which the lower eight bits do not count.
    pub fn in_data(index: u64, kind: ChunkKind, generation: u32) -> Self {
        match (kind, generation >> GENERATION_BITS) {
            (ChunkKind::Free, 0) => Self(0),
            (_, upper) => Self::sealed(index, kind as u64 | u64::from(upper) << 8),
        }
    }

    /// The generation with which inodes begin in chunk `index`, if the word is sound.
    pub fn generation(self, index: u64) -> u32 {
        let is_sound = Self::sealed(index, self.0 & u64::from(u32::MAX)) == self;
        match self.0 & 0xFF {
            kind if is_sound && kind != ChunkKind::Table as u64 => {
                (self.0 as u32 >> 8) << GENERATION_BITS
            }
            _ => 0,
        }
    }

    fn sealed(index: u64, low: u64) -> Self {
        Self(low | u64::from(checksum_words(&[index, low])) << 32)
    }

    /// The added segment and the part of its words that chunk `index` holds, if the word is sound
    /// and says so.
    pub fn table_part(self, index: u64) -> Option<(u32, u64)> {
        let (segment, part) = ((self.0 >> 8) as u8, self.0 >> 16 & 0xFFFF);
        let is_its = segment != 0 && Self::of_table(index, segment.into(), part) == self;
        is_its.then_some((segment.into(), part))
    }

    /// The kind and the added segment, if the word is sound for chunk `index`.
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
        match kind {
            ChunkKind::Table => self
                .table_part(index)
                .map(|(segment, _)| (kind, segment as u8)),
            kind => {
                let is_sound = Self::in_data(index, kind, self.generation(index)) == self;
                is_sound.then_some((kind, 0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_sound_only_for_its_chunk() {
        let word = ChunkWord::new(7, ChunkKind::Entries, 0);
        assert_eq!(word.decode(7), Some((ChunkKind::Entries, 0)));
        assert_eq!((word.decode(8), word.table_part(7)), (None, None));
        assert_eq!(ChunkWord(word.0 ^ 1).decode(7), None);
        assert_eq!(ChunkWord(0).decode(3), Some((ChunkKind::Free, 0)));
        let free = ChunkWord::in_data(7, ChunkKind::Free, 0x1234_5678);
        assert_eq!(free.decode(7), Some((ChunkKind::Free, 0)));
        assert_eq!((free.generation(7), free.generation(6)), (0x1234_5600, 0));
        assert_eq!(
            (free.decode(6), ChunkWord(free.0 ^ 256).decode(7)),
            (None, None)
        );
        assert_eq!(ChunkWord::in_data(7, ChunkKind::Free, 0xFF), ChunkWord(0));
        let part = ChunkWord::of_table(7, 2, 300);
        assert_eq!(part.decode(7), Some((ChunkKind::Table, 2)));
        assert_eq!(part.table_part(7), Some((2, 300)));
        assert_eq!(part.table_part(6), None);
        assert_eq!(ChunkWord::of_table(7, 0, 3).decode(7), None);
    }
}
