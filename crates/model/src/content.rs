//! The bytes of a regular file: a sparse map of blocks.

use crate::BLOCK_SIZE;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An allocated block; a block that is not in the map is a hole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// Written at least once. Bytes past the end of file are zero.
    Data(Arc<[u8; BLOCK_SIZE]>),
    /// Allocated by `fallocate` and never written: reads as zeros and counts as a hole for
    /// `SEEK_HOLE`.
    Unwritten,
}

/// Size and blocks of a regular file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    size: u64,
    blocks: BTreeMap<u64, Block>,
}

/// The part of a byte range in one block: the block, and the range of bytes in it.
struct Piece {
    index: u64,
    from: usize,
    to: usize,
}

fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let unit = BLOCK_SIZE as u64;
    let end = offset + len;
    let blocks = if len == 0 {
        0..0
    } else {
        offset / unit..end.div_ceil(unit)
    };
    blocks.map(move |index| Piece {
        index,
        from: (offset.max(index * unit) - index * unit) as usize,
        to: (end.min((index + 1) * unit) - index * unit) as usize,
    })
}

impl Content {
    /// The file size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The allocated blocks by block number, including preallocation past the end of file.
    pub fn blocks(&self) -> &BTreeMap<u64, Block> {
        &self.blocks
    }

    /// The bytes from `offset`, at most `len` of them, ending at the end of file.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let len = len.min(self.size.saturating_sub(offset));
        let mut bytes = Vec::with_capacity(len as usize);
        for piece in pieces(offset, len) {
            match self.blocks.get(&piece.index) {
                Some(Block::Data(data)) => bytes.extend_from_slice(&data[piece.from..piece.to]),
                _ => bytes.resize(bytes.len() + (piece.to - piece.from), 0),
            }
        }
        bytes
    }

    /// Writes `bytes` at `offset`, allocating blocks and growing the file.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for piece in pieces(offset, bytes.len() as u64) {
            let (now, later) = rest.split_at(piece.to - piece.from);
            self.written(piece.index)[piece.from..piece.to].copy_from_slice(now);
            rest = later;
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    /// Sets the size. Whole blocks past the new end are freed, also when the size stays the same;
    /// growing allocates nothing.
    pub fn set_size(&mut self, size: u64) {
        if size <= self.size {
            self.blocks.split_off(&size.div_ceil(BLOCK_SIZE as u64));
            let tail = (size % BLOCK_SIZE as u64) as usize;
            if let Some(Block::Data(data)) = self.blocks.get_mut(&(size / BLOCK_SIZE as u64)) {
                Arc::make_mut(data)[tail..].fill(0);
            }
        }
        self.size = size;
    }

    /// Allocates the holes that the range touches as unwritten blocks; the size stays.
    pub fn preallocate(&mut self, offset: u64, len: u64) {
        for piece in pieces(offset, len) {
            self.blocks.entry(piece.index).or_insert(Block::Unwritten);
        }
    }

    /// Frees the whole blocks in the range and zeroes the rest of it; the size stays. As on ext4, a
    /// range that reaches the end of file takes its last block whole, and preallocation past that
    /// block is out of reach.
    pub fn punch(&mut self, offset: u64, len: u64) {
        if offset >= self.size {
            return;
        }
        let unit = BLOCK_SIZE as u64;
        let end = if offset + len < self.size {
            offset + len
        } else {
            self.size.next_multiple_of(unit)
        };
        let allocated: Vec<u64> = self
            .blocks
            .range(offset / unit..end.div_ceil(unit))
            .map(|(&index, _)| index)
            .collect();
        for index in allocated {
            let from = (offset.max(index * unit) - index * unit) as usize;
            let to = (end.min((index + 1) * unit) - index * unit) as usize;
            if to - from == BLOCK_SIZE {
                self.blocks.remove(&index);
            } else if let Some(Block::Data(data)) = self.blocks.get_mut(&index) {
                Arc::make_mut(data)[from..to].fill(0);
            }
        }
    }

    /// Removes a range of whole blocks inside the file; what is behind it moves down. Blocks past
    /// the end of file are freed.
    pub fn collapse(&mut self, offset: u64, len: u64) {
        let unit = BLOCK_SIZE as u64;
        self.set_size(self.size);
        let mut behind = self.blocks.split_off(&(offset / unit));
        let moved = behind.split_off(&((offset + len) / unit));
        let down = |(index, block)| (index - len / unit, block);
        self.blocks.extend(moved.into_iter().map(down));
        self.size -= len;
    }

    /// Inserts a hole of whole blocks inside the file; what is behind it moves up. Blocks past the
    /// end of file are freed.
    pub fn insert(&mut self, offset: u64, len: u64) {
        let unit = BLOCK_SIZE as u64;
        self.set_size(self.size);
        let moved = self.blocks.split_off(&(offset / unit));
        let up = |(index, block)| (index + len / unit, block);
        self.blocks.extend(moved.into_iter().map(up));
        self.size += len;
    }

    /// The first offset of data at or after `offset`, or `None` if there is none before the end of
    /// file.
    pub fn seek_data(&self, offset: u64) -> Option<u64> {
        let unit = BLOCK_SIZE as u64;
        self.blocks
            .range(offset / unit..)
            .find(|(_, block)| matches!(block, Block::Data(_)))
            .map(|(&index, _)| offset.max(index * unit))
            .filter(|&found| found < self.size)
    }

    /// The first offset of a hole at or after `offset`; the end of file is a hole. `None` at or
    /// past the end of file.
    pub fn seek_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let unit = BLOCK_SIZE as u64;
        let mut index = offset / unit;
        while let Some(Block::Data(_)) = self.blocks.get(&index) {
            index += 1;
        }
        Some(offset.max(index * unit).min(self.size))
    }

    fn written(&mut self, index: u64) -> &mut [u8; BLOCK_SIZE] {
        let block = self.blocks.entry(index).or_insert(Block::Unwritten);
        if *block == Block::Unwritten {
            *block = Block::Data(Arc::new([0; BLOCK_SIZE]));
        }
        match block {
            Block::Data(data) => Arc::make_mut(data),
            Block::Unwritten => unreachable!("replaced above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_past_the_end_stay_zero() {
        let mut file = Content::default();
        file.write(0, &[7; 6000]);
        file.set_size(5000);
        file.set_size(6000);
        assert_eq!(file.read(4990, 9999), [vec![7; 10], vec![0; 1000]].concat());
        assert_eq!(file.blocks().len(), 2);
    }

    #[test]
    fn preallocation_is_a_hole_that_has_blocks() {
        let mut file = Content::default();
        file.write(4096, b"x");
        file.preallocate(0, 20_000);
        assert_eq!((file.size(), file.blocks().len()), (4097, 5));
        assert_eq!(
            (file.seek_data(0), file.seek_hole(0)),
            (Some(4096), Some(0))
        );
        assert_eq!(
            (file.seek_data(4097), file.seek_hole(4096)),
            (None, Some(4097))
        );
        file.set_size(4097);
        assert_eq!(file.blocks().len(), 2);
    }

    #[test]
    fn ranges_are_removed_and_inserted() {
        let mut file = Content::default();
        file.write(0, &[1; 4096]);
        file.preallocate(4096, 4096);
        file.write(8192, &[3; 5000]);
        let whole = file.clone();
        file.preallocate(0, 40_000);
        file.insert(4096, 8192);
        assert_eq!((file.size(), file.blocks().len()), (8192 + 13_192, 4));
        assert_eq!(file.read(16_384, 5000), [3; 5000]);
        assert_eq!(file.seek_data(4096), Some(16_384));
        file.collapse(4096, 8192);
        assert_eq!(file, whole);
    }

    #[test]
    fn punching_frees_whole_blocks_and_zeroes_parts() {
        let mut file = Content::default();
        file.write(0, &[1; 16384]);
        file.punch(1000, 9000);
        assert_eq!(file.blocks().len(), 3);
        assert_eq!(
            file.read(0, 16384),
            [vec![1; 1000], vec![0; 9000], vec![1; 6384]].concat()
        );
        assert_eq!(
            (file.seek_hole(0), file.seek_data(4096)),
            (Some(4096), Some(8192))
        );
    }
}
