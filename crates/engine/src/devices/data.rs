//! Moving the bytes of data blocks. In persistent memory a read is one copy, and a write goes past
//! the cache and is durable at the next fence. For data on a disk the media crate makes system
//! calls of both.
//!
//! Blocks with consecutive numbers are adjacent, so they move as one piece.

use smallvec::SmallVec;
use vellum_layout::BLOCK_BYTES;
use vellum_media::{FileBytes, LINE_BYTES, Memories, Memory, Persistent, Site};

use crate::core::Core;
use crate::mapping::{BlockNo, Found, Mapping};

/// Lines at the beginning of a piece that are prefetched before it is copied. A megabyte in pieces
/// of 32 KiB took a tenth less time with them; four times as many gained nothing.
const AHEAD_LINES: u64 = 16;
/// From this size on, a piece is read ahead if it is not in memory, before it is copied.
const ASKED_BYTES: usize = 16 << 10;

/// Pieces of one request whose list needs no allocation.
const PIECES: usize = 8;

/// A part of a range of a file whose bytes are adjacent on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The first block; `None` for a hole.
    block: Option<BlockNo>,
    /// First byte within the block.
    skip: u64,
    /// First byte within the range.
    from: usize,
    len: usize,
}

/// Splits a range of `len` bytes, which begins `skip` bytes into the first of `found`, into pieces.
fn pieces(
    found: &[Found],
    skip: u64,
    len: usize,
    block_of: impl Fn(usize, Found) -> Option<BlockNo>,
) -> impl Iterator<Item = Piece> {
    let (mut next, mut from, mut skip) = (0, 0, skip);
    std::iter::from_fn(move || {
        if from >= len {
            return None;
        }
        let first = block_of(next, *found.get(next)?);
        let start = next;
        next += 1;
        while let Some(&more) = found.get(next)
            && block_of(next, more) == first.map(|first| BlockNo(first.0 + (next - start) as u32))
        {
            next += 1;
        }
        let bytes = (next - start) as u64 * BLOCK_BYTES - skip;
        let piece = Piece {
            block: first,
            skip,
            from,
            len: (len - from).min(bytes as usize),
        };
        from += piece.len;
        skip = 0;
        Some(piece)
    })
}

/// Copies bytes of a file to `out`, beginning `skip` bytes into the first block. Holes and
/// unwritten blocks read as zeros.
pub(crate) fn read<M: Memories>(
    core: &Core<M>,
    mapping: &dyn Mapping<M>,
    found: &[Found],
    skip: u64,
    out: &mut [u8],
) {
    let mapped = |_, found| match found {
        Found::Mapped(block) => Some(block),
        _ => None,
    };
    let at = |piece: &Piece| Some(mapping.data_at(piece.block?) + piece.skip);
    let mut pieces = pieces(found, skip, out.len(), mapped).peekable();
    if core.pool.pays_by_call(out.len()) {
        return read_all(core, pieces.map(|piece| (at(&piece), piece.len)), out);
    }
    while let Some(piece) = pieces.next() {
        if let Some(next) = pieces.peek().and_then(at) {
            prefetch(core, next);
        }
        let out = &mut out[piece.from..piece.from + piece.len];
        match at(&piece) {
            Some(at) => {
                if out.len() >= ASKED_BYTES {
                    core.pool.will_need(at, out.len() as u64);
                }
                core.pool.read(at, out);
            }
            None => out.fill(0),
        }
    }
}

/// Fills `out` with consecutive pieces, each with its location, or `None` for zeros. All pieces on
/// a disk are read together.
fn read_all<M: Memories>(
    core: &Core<M>,
    pieces: impl Iterator<Item = (Option<u64>, usize)>,
    out: &mut [u8],
) {
    let mut rest = out;
    let mut wanted = SmallVec::<[(u64, &mut [u8]); PIECES]>::new();
    for (at, len) in pieces {
        let (now, later) = rest.split_at_mut(len);
        match at {
            Some(at) => wanted.push((at, now)),
            None => now.fill(0),
        }
        rest = later;
    }
    core.pool.read_all(&mut wanted);
}

/// Prefetches the beginning of a piece while the one before is copied: the processor's own
/// prefetching ends with a piece.
fn prefetch<M: Memories>(core: &Core<M>, at: u64) {
    for line in 0..AHEAD_LINES {
        core.pool.prefetch(at + line * LINE_BYTES);
    }
}

/// Copies bytes past the cache into the blocks of a range that `block_of` returns for the indices
/// of `found`, beginning `skip` bytes into the first. Durable at the next fence.
#[inline]
pub(crate) fn write<M: Memories>(
    site: Site,
    core: &Core<M>,
    mapping: &dyn Mapping<M>,
    found: &[Found],
    block_of: impl Fn(usize, Found) -> Option<BlockNo>,
    skip: u64,
    data: &[u8],
) {
    let pieces = pieces(found, skip, data.len(), block_of);
    let places = pieces.filter_map(|piece| {
        let at = mapping.data_at(piece.block?) + piece.skip;
        Some((at, &data[piece.from..piece.from + piece.len]))
    });
    if core.pool.pays_by_call(data.len()) {
        let all: SmallVec<[_; PIECES]> = places.collect();
        core.pool.write_all_through(site, &all);
    } else {
        places.for_each(|(at, data)| core.pool.write_through(site, at, data));
    }
}

/// Zeroes bytes `[from, to)` of a block past the cache. Durable at the next fence.
#[inline]
#[track_caller]
pub(crate) fn zero<M: Memories>(
    site: Site,
    core: &Core<M>,
    mapping: &dyn Mapping<M>,
    block: BlockNo,
    from: u64,
    to: u64,
) {
    if from < to {
        core.pool
            .zero_through(site, mapping.data_at(block) + from, to - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_make_one_piece() {
        let mapped = |n| Found::Mapped(BlockNo(n));
        let found = [
            mapped(7),
            mapped(8),
            Found::Hole,
            Found::Hole,
            mapped(3),
            mapped(9),
        ];
        let got: Vec<_> = pieces(&found, 100, 5 * 4096, |_, found| found.block())
            .map(|piece| {
                (
                    piece.block.map(|block| block.0),
                    piece.skip,
                    piece.from,
                    piece.len,
                )
            })
            .collect();
        assert_eq!(
            got,
            [
                (Some(7), 100, 0, 8092),
                (None, 0, 8092, 8192),
                (Some(3), 0, 16284, 4096),
                (Some(9), 0, 20380, 100),
            ]
        );
    }
}
