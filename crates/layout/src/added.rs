//! Segments added to an existing pool: more data blocks. Either each of them lies on its own
//! external data device, or there is one, in the pool itself, directly behind segment 0: the pool
//! has grown.
//!
//! Blocks are numbered consecutively across segments. Those on devices count as lying behind the
//! pool's own bytes in that order: the number of a block alone determines its location. If the
//! mapping has a table of blocks (HashFS), the words of each added segment lie in their own
//! metadata chunks ([`crate::ChunkKind::Table`]), in the order of the segments.

use std::collections::BTreeMap;

use crate::{BLOCK_BYTES, ChunkWord, Geometry, LINE_ENTRIES, MappingKind};

/// Most segments of a pool in this version, including the first one.
pub const SEGMENTS_MAX: usize = 8;
/// Most blocks of all segments together: words of the format cannot name more.
pub const BLOCKS_MAX: u64 = 1 << 30;

/// A segment behind the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddedSegment {
    /// Identity of its device; zero: the data lie in the pool.
    pub id: [u8; 16],
    /// Offset on the device, or in the pool, at which the data begin.
    pub at: u64,
    /// Its data blocks, a multiple of [`LINE_ENTRIES`]; 0: no segment.
    pub blocks: u64,
}

impl AddedSegment {
    /// Whether the data lie in the pool itself.
    pub fn is_own(&self) -> bool {
        self.blocks != 0 && self.id == [0; 16]
    }
}

/// The segments behind the first one, from segment 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddedSegments(pub [AddedSegment; SEGMENTS_MAX - 1]);

impl AddedSegments {
    /// The existing segments, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &AddedSegment)> {
        let there = self.0.iter().take_while(|segment| segment.blocks != 0);
        (1..).zip(there)
    }

    /// Whether no segment was added.
    pub fn is_empty(&self) -> bool {
        self.0[0].blocks == 0
    }

    /// The segment in the pool itself, which is then the only one.
    pub fn own(&self) -> Option<&AddedSegment> {
        Some(&self.0[0]).filter(|segment| segment.is_own())
    }

    /// Blocks of all added segments.
    pub fn blocks(&self) -> u64 {
        self.iter().map(|(_, segment)| segment.blocks).sum()
    }

    /// Whether these segments are possible behind a first one of `first` blocks.
    pub(crate) fn is_sound(&self, first: u64) -> bool {
        let there = self.iter().count();
        let fits = |segment: &AddedSegment| {
            segment.blocks <= BLOCKS_MAX
                && segment.blocks.is_multiple_of(LINE_ENTRIES)
                && segment.at >= BLOCK_BYTES
                && segment.at.is_multiple_of(BLOCK_BYTES)
                && segment
                    .at
                    .checked_add((segment.blocks + 1) * BLOCK_BYTES)
                    .is_some()
        };
        self.0[there..]
            .iter()
            .all(|segment| *segment == AddedSegment::default())
            && self.iter().all(|(_, segment)| fits(segment))
            && self.0[1..].iter().all(|segment| !segment.is_own())
            && (self.own().is_none() || there == 1)
            && first + self.blocks() <= BLOCKS_MAX
    }
}

/// Chunks of `chunk_bytes` that the words of this many added blocks take.
pub fn table_chunks(mapping: MappingKind, blocks: u64, chunk_bytes: u64) -> u64 {
    match mapping {
        MappingKind::HashFs => (blocks * 8).div_ceil(chunk_bytes),
        _ => 0,
    }
}

/// A contiguous range of words of a table of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePiece {
    /// Block of the first word.
    pub first: u64,
    /// Number of words.
    pub blocks: u64,
    /// Pool offset of the first word.
    pub at: u64,
}

/// The part of an added segment's words that fits one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePart {
    /// The segment.
    pub segment: u32,
    /// Index of the part, from 0 on.
    pub part: u64,
    first: u64,
    blocks: u64,
}

impl TablePart {
    /// All parts of the added segments of a pool, in the order of their blocks.
    fn all(geometry: &Geometry) -> impl Iterator<Item = Self> {
        let words = geometry.chunk_bytes / 8;
        let mut first = geometry.segment_blocks;
        geometry.added.iter().flat_map(move |(segment, added)| {
            let begin = first;
            first += added.blocks;
            let parts = table_chunks(geometry.mapping, added.blocks, geometry.chunk_bytes);
            (0..parts).map(move |part| Self {
                segment,
                part,
                first: begin + part * words,
                blocks: words.min(added.blocks - part * words),
            })
        })
    }

    fn at(&self, at: u64) -> TablePiece {
        TablePiece {
            first: self.first,
            blocks: self.blocks,
            at,
        }
    }
}

/// The chunks that claim to hold words of a segment, with segment and part. `load` loads words of
/// the chunk table by their pool offset.
pub fn table_parts(
    geometry: &Geometry,
    load: impl Fn(u64) -> u64,
) -> impl Iterator<Item = ((u32, u64), u64)> {
    geometry.chunks().filter_map(move |chunk| {
        let word = ChunkWord(load(geometry.chunk_word_at(chunk)));
        Some((word.table_part(chunk)?, chunk))
    })
}

/// Where the words of the table of blocks lie: those of segment 0 together, those of added segments
/// in chunks. Mappings without such a table have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablePlan {
    pieces: Vec<TablePiece>,
    missing: Vec<TablePart>,
}

impl TablePlan {
    /// The plan of a pool. `load` loads words of its chunk table by their pool offset.
    pub fn of(geometry: &Geometry, load: impl Fn(u64) -> u64) -> Self {
        if !geometry.mapping.has_home_lines() {
            return Self::default();
        }
        let mut plan = Self {
            pieces: vec![TablePiece {
                first: 0,
                blocks: geometry.segment_blocks,
                at: geometry.table_at,
            }],
            missing: Vec::new(),
        };
        if geometry.added.is_empty() {
            return plan;
        }
        let mut chunks: BTreeMap<(u32, u64), Vec<u64>> = BTreeMap::new();
        for (of, chunk) in table_parts(geometry, load) {
            chunks.entry(of).or_default().push(chunk);
        }
        for part in TablePart::all(geometry) {
            // If two chunks claim the same part, neither is trusted.
            match chunks.get(&(part.segment, part.part)).map(Vec::as_slice) {
                Some(&[chunk]) => {
                    plan.pieces.push(part.at(geometry.chunk_at(chunk)));
                }
                _ => plan.missing.push(part),
            }
        }
        plan
    }

    /// The ranges, in the order of their blocks.
    pub fn pieces(&self) -> &[TablePiece] {
        &self.pieces
    }

    /// The parts of the words of segments that no chunk holds, or several claim.
    pub fn missing(&self) -> &[TablePart] {
        &self.missing
    }

    /// The same plan, with the missing words mapped to a chunk of zeros at this pool offset: those
    /// blocks count as free.
    #[must_use]
    pub fn with_zeros_at(mut self, at: u64) -> Self {
        self.pieces
            .extend(self.missing.drain(..).map(|part| part.at(at)));
        self.pieces.sort_unstable_by_key(|piece| piece.first);
        self
    }

    /// Pool offset of the word of a block.
    #[inline]
    pub fn word_at(&self, block: u64) -> Option<u64> {
        let behind = self.pieces.partition_point(|piece| piece.first <= block);
        let piece = self.pieces.get(behind.checked_sub(1)?)?;
        let within = block - piece.first;
        (within < piece.blocks).then_some(piece.at + within * 8)
    }

    /// The blocks whose words lie in `[at, at + bytes)` of the pool.
    pub fn blocks_in(&self, at: u64, bytes: u64) -> impl Iterator<Item = u64> {
        self.pieces.iter().flat_map(move |piece| {
            let end = piece.at + piece.blocks * 8;
            let words = at.max(piece.at)..(at + bytes).min(end);
            let blocks = words.start.saturating_sub(piece.at) / 8
                ..words.end.saturating_sub(piece.at).div_ceil(8);
            let blocks = if words.is_empty() { 0..0 } else { blocks };
            blocks.map(move |block| piece.first + block)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExternalRequest, GeometryRequest};

    fn segments(of: &[AddedSegment]) -> AddedSegments {
        let mut segments = AddedSegments::default();
        segments.0[..of.len()].copy_from_slice(of);
        segments
    }

    const SEGMENT: AddedSegment = AddedSegment {
        id: [7; 16],
        at: 1 << 20,
        blocks: 64,
    };

    #[test]
    fn segments_follow_each_other_without_gaps() {
        assert!(segments(&[]).is_sound(64) && segments(&[]).is_empty());
        let two = segments(&[
            SEGMENT,
            AddedSegment {
                blocks: 8,
                ..SEGMENT
            },
        ]);
        assert!(two.is_sound(64));
        assert_eq!(two.blocks(), 72);
        let numbers: Vec<u32> = two.iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [1, 2]);
        assert!(!segments(&[AddedSegment::default(), SEGMENT]).is_sound(64));
    }

    #[test]
    fn impossible_segments_are_refused() {
        for bad in [
            AddedSegment {
                blocks: 7,
                ..SEGMENT
            },
            AddedSegment { at: 0, ..SEGMENT },
            AddedSegment {
                at: 4097,
                ..SEGMENT
            },
            AddedSegment {
                at: u64::MAX - 4095,
                ..SEGMENT
            },
            AddedSegment {
                blocks: BLOCKS_MAX + 8,
                ..SEGMENT
            },
        ] {
            assert!(!segments(&[bad]).is_sound(64), "{bad:?}");
        }
        let half = AddedSegment {
            blocks: BLOCKS_MAX / 2,
            ..SEGMENT
        };
        assert!(segments(&[half]).is_sound(BLOCKS_MAX / 2));
        assert!(!segments(&[half, half]).is_sound(8));
    }

    #[test]
    fn words_lie_in_the_chunks_of_their_segment() {
        let request = GeometryRequest {
            is_logged: true,
            external: Some(ExternalRequest {
                id: [9; 16],
                at: 1 << 20,
                data_bytes: 8 << 20,
                has_replica: false,
            }),
            ..Default::default()
        };
        let mut geometry = Geometry::plan(&request).unwrap();
        let words = geometry.chunk_bytes / 8;
        let segment = AddedSegment {
            blocks: words + 8,
            ..SEGMENT
        };
        geometry.added = segments(&[
            segment,
            AddedSegment {
                blocks: 8,
                ..SEGMENT
            },
        ]);
        let kinds = |of: &[(u64, u32, u64)]| {
            let of = of.to_vec();
            let table_at = geometry.chunk_table_at;
            move |at: u64| {
                let chunk = (at - table_at) / 8;
                let part = of.iter().find(|(number, ..)| *number == chunk);
                part.map_or(0, |&(_, segment, part)| {
                    ChunkWord::of_table(chunk, segment, part).0
                })
            }
        };
        let plan = TablePlan::of(
            &geometry,
            kinds(&[(6, 1, 0), (5, 2, 0), (3, 1, 1), (7, 1, 2)]),
        );
        assert!(plan.missing().is_empty());
        let chunk_at = |chunk| geometry.meta_at + chunk * geometry.chunk_bytes;
        let first = geometry.segment_blocks;
        for (block, at) in [
            (0, geometry.table_at),
            (first - 1, geometry.table_at + (first - 1) * 8),
            (first, chunk_at(6)),
            (first + words, chunk_at(3)),
            (first + words + 8, chunk_at(5)),
            (first + words + 15, chunk_at(5) + 56),
        ] {
            assert_eq!(plan.word_at(block), Some(at), "{block}");
            assert_eq!(plan.blocks_in(at, 8).collect::<Vec<_>>(), [block]);
        }
        assert_eq!(plan.word_at(first + words + 16), None);
        assert_eq!(plan.blocks_in(chunk_at(5) + 64, 64).count(), 0);
        let cut = TablePlan::of(&geometry, kinds(&[(3, 1, 0), (5, 2, 0)]));
        assert!(!cut.missing().is_empty());
        assert_eq!(cut.word_at(first + words), None);
        assert_eq!(cut.word_at(first + words + 8), Some(chunk_at(5)));
        let twice = TablePlan::of(
            &geometry,
            kinds(&[(3, 1, 0), (4, 1, 0), (6, 1, 1), (5, 2, 0)]),
        );
        assert_eq!(twice.word_at(first), None);
        assert_eq!(twice.word_at(first + words), Some(chunk_at(6)));
        let missing = twice.missing().iter().map(|part| (part.segment, part.part));
        assert_eq!(missing.collect::<Vec<_>>(), [(1, 0)]);
    }

    #[test]
    fn words_of_blocks_take_whole_chunks() {
        assert_eq!(table_chunks(MappingKind::HashFs, 512, 4096), 1);
        assert_eq!(table_chunks(MappingKind::HashFs, 520, 4096), 2);
        assert_eq!(table_chunks(MappingKind::Extent, 520, 4096), 0);
        let can: Vec<&str> = MappingKind::ALL
            .into_iter()
            .filter(|kind| kind.takes_segments())
            .map(MappingKind::name)
            .collect();
        assert_eq!(can, ["hashfs", "radix", "extent", "extent-cached"]);
    }
}
