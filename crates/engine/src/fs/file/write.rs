//! Writing: one operation for each mebibyte.
//!
//! This is the order for bytes that may lie inside the size, fill holes and extend the file at once
//! (`docs/crash/operations.md`). Blocks are claimed: UNWRITTEN for holes inside the size, MAPPED
//! for those beyond it. Data goes past the cache; what new blocks keep of their last owner is
//! zeroed, and so is what lies between the old end and the new bytes; fence. Then UNWRITTEN becomes
//! MAPPED; fence. Then times, root and size are stored in this order in one line; fence. Only then
//! the arena shows the new size. A step with nothing to do is left out, with its fence.
//!
//! UNWRITTEN becomes MAPPED before any change that cannot be undone, because at this step a tree
//! may find no space for a node. Only afterwards bytes are written over old ones and times are
//! stored. A write that fails changes back what it has filled, durably, and leaves no trace.

use vellum_layout::{BLOCK_BYTES, Inode, MapState, Overwrite};
use vellum_media::{Memories, Persistent, Site};

use super::translation::Seen;
use super::{Files, PIECE_BLOCKS, PIECE_BYTES, Root, Stop, Translation};
use crate::core::cachelet::{Cachelet, field};
use crate::core::limits::SIZE_MAX_BYTES;
use crate::core::slots::Op;
use crate::devices::data;
use crate::error::{Error, Result};
use crate::mapping::{BlockNo, Flush, Found, MapId, Step};
use crate::sites;

/// The change of a hole inside the size. [`FILLED`] changes the same word. So a crash finds the
/// word as it was, or as this step left it, and both read the same.
const CLAIM_HOLE: Step = Step {
    to: MapState::Unwritten,
    flush: None,
};

/// The change of a hole beyond the size.
pub(super) const CLAIM_END: Step = Step {
    to: MapState::Mapped,
    flush: Some(Flush::below(sites::WRITE_CLAIM_END)),
};

/// The change of a preallocated block beyond the size.
const PREALLOCATED: Step = Step {
    to: MapState::Mapped,
    flush: Some(Flush::below(sites::WRITE_PREALLOCATED)),
};

/// The change of a block inside the size that has received its bytes.
const FILLED: Step = Step {
    to: MapState::Mapped,
    flush: Some(Flush::below(sites::WRITE_FILLED)),
};

/// Reverts [`FILLED`] if other blocks find no space. It needs none, because the nodes exist then.
const UNFILLED: Step = Step {
    to: MapState::Unwritten,
    flush: Some(Flush::below(sites::WRITE_UNFILLED)),
};

/// Sites of freeing blocks that were claimed in vain.
pub(super) const LIMBO: [Site; 2] = [sites::WRITE_LIMBO, sites::WRITE_LIMBO_DURABLE];

/// Limit of the blocks of a short write. Such writes keep a small stack frame.
const FEW_BLOCKS: usize = 9;

/// A write of `len` bytes at `offset` into a file of `size` bytes.
#[derive(Clone, Copy)]
struct Span {
    offset: u64,
    len: u64,
    size: u64,
    /// Number of blocks that are written.
    blocks: usize,
    /// Number of these that begin inside the size.
    inside: usize,
}

impl Span {
    fn new(offset: u64, len: u64, size: u64) -> Self {
        let first = offset / BLOCK_BYTES;
        let blocks = (offset + len).div_ceil(BLOCK_BYTES) - first;
        let inside = size.div_ceil(BLOCK_BYTES).saturating_sub(first);
        Self {
            offset,
            len,
            size,
            blocks: blocks as usize,
            inside: inside.min(blocks) as usize,
        }
    }

    fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The first logical block written.
    fn first(&self) -> u64 {
        self.offset / BLOCK_BYTES
    }

    fn grows(&self) -> bool {
        self.end() > self.size
    }

    /// Returns the block that the `at`th written block maps to (`found`), if it held bytes of the
    /// file before.
    fn old_block(&self, at: usize, found: Found) -> Option<BlockNo> {
        match found {
            Found::Mapped(block) if at < self.inside => Some(block),
            _ => None,
        }
    }
}

/// Whether blocks inside the size get bytes that held none.
fn fills(found: &[Found]) -> bool {
    let is_unwritten = |found: &Found| matches!(found, Found::Unwritten(_));
    found.iter().any(is_unwritten)
}

/// Halves the pieces of a write at `at` whose piece of `len` bytes exceeds a quota, so that the
/// blocks that are left get their bytes. Returns `false` if that was one block.
#[cold]
fn cuts(at: u64, len: usize, most: &mut usize) -> bool {
    let first = at / BLOCK_BYTES;
    let blocks = (at + len as u64).div_ceil(BLOCK_BYTES) - first;
    *most = ((first + blocks / 2) * BLOCK_BYTES).saturating_sub(at) as usize;
    *most > 0
}

impl<M: Memories> Files<'_, M> {
    /// Writes at `offset`. Returns the number of bytes. Writes of up to 1 MiB are complete or fail,
    /// unless a quota ends them. A longer one may be short if space runs out or the file reaches
    /// its largest size.
    pub(crate) fn write_at(
        &self,
        cachelet: Cachelet,
        translation: &Translation,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let mut done = 0;
        let mut most = PIECE_BYTES as usize;
        while done < data.len() {
            let at = offset.checked_add(done as u64).ok_or(Error::TooLarge)?;
            let piece = &data[done..data.len().min(done + most)];
            let written = self.with_room(|| {
                let bytes = at..at.saturating_add(piece.len() as u64);
                let (op, _lock) = self.change(cachelet, bytes)?;
                self.put(&op, cachelet, translation, at, piece)
            });
            match written {
                Ok(bytes) => done += bytes,
                Err(Error::QuotaExceeded)
                    if (self.cuts || done > 0) && cuts(at, piece.len(), &mut most) => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes at the end of file. Returns the offset and the number of bytes. As
    /// [`Self::write_at`]; a write longer than 1 MiB is also short if another append comes in
    /// between.
    pub(crate) fn append(
        &self,
        cachelet: Cachelet,
        translation: &Translation,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        let mut start = None;
        let mut done = 0;
        let mut most = PIECE_BYTES as usize;
        while done < data.len() {
            let piece = &data[done..data.len().min(done + most)];
            let mut begin = 0;
            let written = self.with_room(|| {
                let (op, _lock) = self.change_end(cachelet)?;
                let at = self.size(cachelet);
                begin = at;
                if at != *start.get_or_insert(at) + done as u64 {
                    return Ok(0);
                }
                let written = self.put(&op, cachelet, translation, at, piece);
                if written.is_err() && done == 0 {
                    start = None;
                }
                written
            });
            match written {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(Error::QuotaExceeded)
                    if (self.cuts || done > 0) && cuts(begin, piece.len(), &mut most) => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok((start.unwrap_or_else(|| self.size(cachelet)), done))
    }

    /// Writes one piece. The caller holds the lock.
    fn put(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        translation: &Translation,
        offset: u64,
        data: &[u8],
    ) -> std::result::Result<usize, Stop> {
        let room = SIZE_MAX_BYTES.saturating_sub(offset);
        if room == 0 {
            return Err(Error::TooLarge.into());
        }
        let len = room.min(data.len() as u64);
        let span = Span::new(offset, len, self.size(cachelet));
        let data = &data[..len as usize];
        let put = if span.blocks <= FEW_BLOCKS {
            let found = &mut [Found::Hole; FEW_BLOCKS][..span.blocks];
            self.put_span(op, cachelet, translation, span, data, found)
        } else {
            let found = &mut [Found::Hole; PIECE_BLOCKS][..span.blocks];
            self.put_span(op, cachelet, translation, span, data, found)
        };
        match put {
            Ok(()) => Ok(data.len()),
            Err(Stop::Failed(error)) => Ok(self.core.noting(Err(error))?),
            Err(short) => Err(short),
        }
    }

    fn put_span(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        translation: &Translation,
        span: Span,
        data: &[u8],
        found: &mut [Found],
    ) -> std::result::Result<(), Stop> {
        let root = self.root(cachelet);
        let known = if root.is_beyond() {
            found.len()
        } else {
            span.inside
        };
        if known > 0 && root.old != 0 {
            let file = Seen {
                cachelet,
                translation,
                version: self.core.get(cachelet, field::VERSION),
            };
            self.find(op, root.id, file, span.first(), &mut found[..known])?;
            // Lost bytes may hide blocks, so check before claiming.
            op.check_media()?;
        }
        let head_is_new = !matches!(found[0], Found::Mapped(_));
        let tail_is_new = !matches!(found[found.len() - 1], Found::Mapped(_));
        self.claim_holes(op, cachelet, root, span, found)?;
        let written = self
            .map_beyond(op, root.id, span, found)
            .and_then(|()| self.zero_edges(op, root, span, found, head_is_new, tail_is_new))
            .and_then(|()| {
                self.write_data(op, root, span, found, data);
                self.commit(op, cachelet, root, span, found, data)
            });
        if let Err(error) = written {
            // No block may stay MAPPED where the size can move past it.
            let (beyond, end) = (span.first() + span.inside as u64, span.blocks as u64);
            self.give_up_durably(LIMBO, op, cachelet, root.id, beyond, span.first() + end)?;
            return Err(error.into());
        }
        Ok(op.check_media()?)
    }

    /// Writes the bytes. If blocks are to be filled, those that overwrite old bytes are left for
    /// later.
    fn write_data(&self, op: &Op<'_, M>, root: Root, span: Span, found: &[Found], data: &[u8]) {
        if span.offset < span.size {
            op.note_overwrite(Overwrite {
                id: root.id,
                ends_only: false,
                first: span.first() as u32,
                last: (span.first() + span.inside as u64 - 1) as u32,
            });
        }
        let fills = fills(found);
        let new_block = |at, found: Found| match span.old_block(at, found) {
            Some(_) if fills => None,
            _ => found.block(),
        };
        let (site, skip) = (sites::WRITE_DATA, span.offset % BLOCK_BYTES);
        data::write(site, self.core, self.mapping, found, new_block, skip, data);
    }

    /// Gives every hole a block: MAPPED beyond the size, where the size will make it the file's,
    /// and UNWRITTEN inside.
    fn claim_holes(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        root: Root,
        span: Span,
        found: &mut [Found],
    ) -> std::result::Result<(), Stop> {
        let holes = found.iter().filter(|found| **found == Found::Hole).count() as u64;
        if holes == 0 {
            return Ok(());
        }
        self.mapping
            .prefetch_claim(self.core, root.id, span.first() as u32);
        let mut room = self.reserve(op, cachelet, holes)?;
        self.raise_blocks(cachelet, root, holes);
        let mut failed = None;
        let mut claimed = [0u64; PIECE_BLOCKS.div_ceil(64)];
        let (inside, beyond) = found.split_at_mut(span.inside);
        let parts = [(0, inside, CLAIM_HOLE), (span.inside, beyond, CLAIM_END)];
        'parts: for (base, part, step) in parts {
            let mut next = 0;
            while let Some((start, len)) = next_holes(part, next) {
                next = start + len;
                let mut blocks = [BlockNo(0); PIECE_BLOCKS];
                let blocks = &mut blocks[..len];
                (base + start..base + next).for_each(|i| claimed[i / 64] |= 1 << (i % 64));
                let logical = span.first() as u32 + (base + start) as u32;
                failed = self
                    .mapping
                    .claim(op, root.id, logical, step, &mut room, blocks)
                    .err();
                if failed.is_some() {
                    break 'parts;
                }
                for (found, &mut block) in part[start..next].iter_mut().zip(blocks) {
                    *found = match step.to {
                        MapState::Mapped => Found::Mapped(block),
                        _ => Found::Unwritten(block),
                    };
                }
            }
        }
        // Blocks that were counted but not claimed. The others are subtracted when they are freed.
        self.lower_blocks(cachelet, room.blocks);
        self.mapping.unreserve(op, room);
        let Some(error) = failed else {
            return Ok(());
        };
        // From the end, so that each block is the last of those claimed, which needs no space to
        // remove.
        let is_claimed = |i: &usize| claimed[i / 64] >> (i % 64) & 1 == 1;
        for i in (0..found.len()).rev().filter(is_claimed) {
            let logical = span.first() + i as u64;
            self.give_up_durably(LIMBO, op, cachelet, root.id, logical, logical + 1)?;
        }
        Err(error.into())
    }

    /// Makes preallocated blocks beyond the size MAPPED, before the size covers them.
    fn map_beyond(&self, op: &Op<'_, M>, id: MapId, span: Span, found: &mut [Found]) -> Result<()> {
        let (first, beyond) = (span.first(), span.inside);
        self.map_unwritten(op, id, first, beyond, found, PREALLOCATED)?;
        for found in &mut found[beyond..] {
            if let Found::Unwritten(block) = *found {
                *found = Found::Mapped(block);
            }
        }
        Ok(())
    }

    /// Changes the state of every UNWRITTEN block of `found` from index `from` on. `found` begins
    /// at logical block `first`.
    fn map_unwritten(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        from: usize,
        found: &[Found],
        step: Step,
    ) -> Result<()> {
        let mut next = from;
        while let Some((start, len)) =
            next_run(found, next, |found| matches!(found, Found::Unwritten(_)))
        {
            next = start + len;
            let mut blocks = [BlockNo(0); PIECE_BLOCKS];
            for (block, found) in blocks.iter_mut().zip(&found[start..next]) {
                *block = found.block().unwrap_or_default();
            }
            let logical = (first + start as u64) as u32;
            self.mapping
                .set_state(op, id, logical, &blocks[..len], step)?;
        }
        Ok(())
    }

    /// Zeroes what new blocks hold around the data, and what lies between the old end of file and
    /// the data in the old last block.
    fn zero_edges(
        &self,
        op: &Op<'_, M>,
        root: Root,
        span: Span,
        found: &[Found],
        head_is_new: bool,
        tail_is_new: bool,
    ) -> Result<()> {
        if let Some(block) = found[0].block().filter(|_| head_is_new) {
            let (site, end) = (sites::WRITE_BEFORE_DATA, span.offset % BLOCK_BYTES);
            data::zero(site, self.core, self.mapping, block, 0, end);
        }
        let end = span.end() % BLOCK_BYTES;
        if let Some(block) = found[found.len() - 1]
            .block()
            .filter(|_| tail_is_new && end != 0)
        {
            let site = sites::WRITE_AFTER_DATA;
            data::zero(site, self.core, self.mapping, block, end, BLOCK_BYTES);
        }
        let gap_in_head = span.size / BLOCK_BYTES == span.first();
        if span.offset > span.size && !(gap_in_head && head_is_new) {
            self.zero_tail(sites::WRITE_GAP, op, root, span.size, span.offset)?;
        }
        Ok(())
    }

    /// Stores times and root for a write that does not change the size.
    #[track_caller]
    fn put_times(&self, inode_at: u64, root: Root, now: i64) {
        self.store_times(inode_at, now);
        self.core.set_word(inode_at + Inode::ROOT, root.new);
        let at = inode_at + Inode::SIZE;
        self.core.pool.flush(sites::WRITE_TIMES, at, 8);
    }

    /// Makes blocks whose bytes are durable MAPPED: all of them or none.
    fn fill(&self, op: &Op<'_, M>, id: MapId, first: u64, found: &[Found]) -> Result<()> {
        let filled = self.map_unwritten(op, id, first, 0, found, FILLED);
        if filled.is_err() {
            // This needs no space: changed blocks are changed back, and the others stay as they
            // are.
            self.map_unwritten(op, id, first, 0, found, UNFILLED)?;
        }
        filled
    }

    /// Makes the data durable, then makes them part of the file.
    fn commit(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        root: Root,
        span: Span,
        found: &[Found],
        data: &[u8],
    ) -> Result<()> {
        let core = self.core;
        let inode_at = core.inode_at(cachelet);
        let now = self.change_time(cachelet);
        let fills = fills(found);
        if !fills && !span.grows() {
            self.put_times(inode_at, root, now);
        }
        core.pool.fence(sites::WRITE_DATA_DURABLE);
        // A block that could not be written must not become part of the file with its former bytes.
        op.check_media()?;
        if fills {
            self.fill(op, root.id, span.first(), found)?;
            let (site, skip) = (sites::WRITE_OVER, span.offset % BLOCK_BYTES);
            let old_block = |at, found| span.old_block(at, found);
            data::write(site, core, self.mapping, found, old_block, skip, data);
            // Without its root, which may be the first, a filled block belongs to no file, as
            // before.
            if !span.grows() {
                self.put_times(inode_at, root, now);
            }
            // The old last block may be among them. The size must not cover it while it holds
            // zeros.
            core.pool.fence(sites::WRITE_FILLED_DURABLE);
            op.check_media()?;
        }
        if span.grows() {
            // All are in one line, so they become durable in this order. The size commits them.
            self.store_times(inode_at, now);
            core.set_word(inode_at + Inode::ROOT, root.new);
            // A tree's first word may be in this line, too.
            let before = [Inode::MTIME, Inode::CTIME, Inode::ROOT, Inode::DETAIL];
            let before = before.map(|field| inode_at + field);
            let size_at = inode_at + Inode::SIZE;
            core.pool.behind(sites::WRITE_SIZE_BEHIND, size_at, &before);
            core.set_word(size_at, span.end());
            self.flush_hot_line(sites::WRITE_SIZE, inode_at);
            core.pool.fence(sites::WRITE_SIZE_DURABLE);
        }
        self.publish_times(cachelet, now);
        if root.new != root.old {
            core.set(cachelet, field::ROOT, root.new);
        }
        if span.grows() {
            core.set(cachelet, field::SIZE, span.end());
        }
        Ok(())
    }
}

/// The next run of holes at or after `from`: index and length.
pub(super) fn next_holes(found: &[Found], from: usize) -> Option<(usize, usize)> {
    next_run(found, from, |found| *found == Found::Hole)
}

/// The next run of blocks at or after `from` that satisfy `is`: index and length.
fn next_run(found: &[Found], from: usize, is: impl Fn(&Found) -> bool) -> Option<(usize, usize)> {
    let start = from + found.get(from..)?.iter().position(&is)?;
    let len = found[start..].iter().take_while(|found| is(found)).count();
    Some((start, len))
}
