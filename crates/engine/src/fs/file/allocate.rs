//! Preallocation and punching holes (`fallocate`).

use vellum_layout::{BLOCK_BYTES, Inode, MapState, Overwrite};
use vellum_media::{Memories, Persistent};

use super::write::next_holes;
use super::{BEYOND, Files, PIECE_BLOCKS, Root, Stop, check_cuttable, check_size};
use crate::core::cachelet::{Cachelet, field};
use crate::core::quotas::Space;
use crate::core::slots::Op;
use crate::devices::data;
use crate::error::{Error, Result};
use crate::fs::{Cred, Fs};
use crate::mapping::{BlockNo, Flush, Found, MapId, Step};
use crate::sites;

/// The change of a hole by preallocation.
const CLAIM: Step = Step {
    to: MapState::Unwritten,
    flush: Some(Flush::below(sites::ALLOCATE_BLOCKS)),
};

/// What [`Handle::allocate`](crate::Handle::allocate) does with its range.
///
/// [`Self::Collapse`] and [`Self::Insert`] move bytes by copying them, at most a mebibyte at once,
/// into a hole as long as the range, which so moves through the file. That takes free space for one
/// such piece. Other writers of these bytes, and new views, wait. Whoever reads meanwhile, a crash,
/// and an error in the middle may show the hole between bytes that have moved and others that have
/// not. Blocks beyond the end of the file are freed.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let file = pool.volume().create("/f")?;
/// # let handle = file.handle();
/// use vellum::Allocate;
///
/// handle.allocate(Allocate::Grow, 0, 1 << 20)?;
/// handle.allocate(Allocate::PunchHole, 0, 1 << 19)?;
/// let attr = handle.attr()?;
/// assert_eq!((attr.size, attr.blocks_512 * 512), (1 << 20, 1 << 19));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Gives every block space; the size grows to cover the range.
    Grow,
    /// Gives every block space; the size stays (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
    /// Frees whole blocks and zeroes the rest; the size stays (`FALLOC_FL_PUNCH_HOLE`).
    PunchHole,
    /// Makes every byte zero and gives every block space; the size grows to cover the range
    /// (`FALLOC_FL_ZERO_RANGE`).
    Zero,
    /// The same; the size stays.
    ZeroKeepSize,
    /// Removes whole blocks. What is behind them moves down, and the size shrinks
    /// (`FALLOC_FL_COLLAPSE_RANGE`).
    Collapse,
    /// Inserts a hole of whole blocks. What is behind it moves up, and the size grows
    /// (`FALLOC_FL_INSERT_RANGE`).
    Insert,
}

impl Allocate {
    fn zeroes(self) -> bool {
        matches!(self, Self::Zero | Self::ZeroKeepSize)
    }

    /// Whether no byte changes that is there.
    pub(crate) fn only_allocates(self) -> bool {
        matches!(self, Self::Grow | Self::KeepSize)
    }

    fn grows(self) -> bool {
        matches!(self, Self::Grow | Self::Zero)
    }
}

/// Checks that a range can be allocated or punched, and returns its end.
pub(crate) fn check_range(offset: u64, len: u64) -> Result<u64> {
    if len == 0 {
        return Err(Error::Invalid("an empty range"));
    }
    let end = offset.checked_add(len).ok_or(Error::TooLarge)?;
    check_size(end).map(|()| end)
}

impl<M: Memories> Fs<M> {
    /// Changes the range of a file as `mode` says.
    pub(crate) fn allocate(
        &self,
        cred: &Cred,
        file: Cachelet,
        mode: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        match mode {
            Allocate::Collapse => self.collapse(cred, file, offset, len),
            Allocate::Insert => self.insert(cred, file, offset, len),
            _ => self.change_file(cred, |files| files.allocate(file, mode, offset, len)),
        }
    }
}

impl<M: Memories> Files<'_, M> {
    /// Allocates, punches or zeroes the range. If there is not enough space, allocates nothing,
    /// unless others take the space meanwhile, or a tree finds no space for its nodes. What was
    /// allocated by then stays, as with ext4.
    pub(super) fn allocate(
        &self,
        cachelet: Cachelet,
        mode: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let end = check_range(offset, len)?;
        if mode.zeroes() {
            // Holes need space. What the range has is punched, and free for it again.
            self.check_room(cachelet, offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES))?;
        }
        if mode.zeroes() || mode == Allocate::PunchHole {
            self.punch(cachelet, offset, end)?;
        }
        match mode {
            Allocate::PunchHole => Ok(()),
            _ => self.preallocate(cachelet, mode, offset, end),
        }
    }

    fn preallocate(&self, cachelet: Cachelet, mode: Allocate, offset: u64, end: u64) -> Result<()> {
        let (first, last) = (offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let piece = PIECE_BLOCKS as u64;
        if last - first > piece {
            // As for shorter ranges, set-id bits are dropped before it is known whether there is
            // space.
            drop(self.lock_to_change(&self.core.op_to_change()?, cachelet)?);
            self.check_room(cachelet, first, last)?;
        }
        for start in (first..last).step_by(PIECE_BLOCKS) {
            self.with_room(|| self.allocate_piece(cachelet, start, (start + piece).min(last)))?;
        }
        let (op, _lock) = self.change_end(cachelet)?;
        let size = self.size(cachelet);
        if mode.grows() && end > size {
            let root = self.root(cachelet);
            let extended = self.extend(&op, cachelet, root, size, end);
            self.core.noting(extended)?;
        } else {
            let now = match mode.zeroes() {
                // That of the punch, as of one change.
                true => self.core.times(cachelet).ctime,
                false => self.change_time(cachelet),
            };
            let inode_at = self.core.inode_at(cachelet);
            self.store_times(inode_at, now);
            self.flush_hot_line(sites::ALLOCATE_TIMES, inode_at);
            self.core.pool.fence(sites::ALLOCATE_TIMES_DURABLE);
            self.publish_times(cachelet, now);
        }
        op.check_media()
    }

    /// Fails if a long range has more holes than there is free space. The cost for a long range of
    /// holes is bounded by the size of the segment.
    fn check_room(&self, cachelet: Cachelet, first: u64, last: u64) -> Result<()> {
        let usage = self.mapping.usage(self.core);
        if last - first > usage.total {
            return Err(Error::NoSpace(Error::DATA_BLOCKS));
        }
        let mut holes = 0;
        for start in (first..last).step_by(PIECE_BLOCKS) {
            let op = self.core.op_begin()?;
            let mut found = [Found::Hole; PIECE_BLOCKS];
            let found = &mut found[..(last - start).min(PIECE_BLOCKS as u64) as usize];
            self.look_up(&op, cachelet, start, found)?;
            holes += found.iter().filter(|found| **found == Found::Hole).count() as u64;
        }
        self.check_quota(cachelet, holes)?;
        if holes > usage.free {
            Err(Error::NoSpace(Error::DATA_BLOCKS))
        } else {
            Ok(())
        }
    }

    /// Fails if quotas do not allow the file so many more blocks now.
    fn check_quota(&self, cachelet: Cachelet, blocks: u64) -> Result<()> {
        let core = self.core;
        if !core.has_quotas() {
            return Ok(());
        }
        let op = core.op_to_change()?;
        let _lock = core.lock(&op, cachelet);
        let (owners, space) = (core.owners(cachelet), Space { blocks, inodes: 0 });
        core.charge(owners, space, self.is_bound())?;
        core.discharge(owners, space);
        Ok(())
    }

    /// Allocates UNWRITTEN blocks for the holes of `[first, last)`, durably.
    pub(super) fn allocate_piece(
        &self,
        cachelet: Cachelet,
        first: u64,
        last: u64,
    ) -> std::result::Result<(), Stop> {
        let core = self.core;
        let op = core.op_to_change()?;
        let _lock = self.lock_to_change(&op, cachelet)?;
        let mut found = [Found::Hole; PIECE_BLOCKS];
        let found = &mut found[..(last - first) as usize];
        let root = self.root(cachelet);
        if root.old != 0 {
            let looked = self.mapping.lookup(&op, root.id, first as u32, found);
            core.noting(looked)?;
            // Lost bytes may hide blocks, so check before claiming.
            op.check_media()?;
        }
        let holes = found.iter().filter(|found| **found == Found::Hole).count() as u64;
        if holes == 0 {
            return Ok(());
        }
        let mut room = self.reserve(&op, cachelet, holes)?;
        self.announce(cachelet, root, last);
        self.raise_blocks(cachelet, root, holes);
        let mut result = Ok(());
        let mut next = 0;
        while let Some((start, len)) = next_holes(found, next).filter(|_| result.is_ok()) {
            next = start + len;
            let mut blocks = [BlockNo(0); PIECE_BLOCKS];
            let (logical, step) = (first as u32 + start as u32, CLAIM);
            let blocks = &mut blocks[..len];
            result = self
                .mapping
                .claim(&op, root.id, logical, step, &mut room, blocks);
        }
        // Blocks that were counted but not claimed.
        self.lower_blocks(cachelet, room.blocks);
        self.mapping.unreserve(&op, room);
        self.fence_claimed();
        core.noting(result)?;
        Ok(op.check_media()?)
    }

    /// Waits until claims are durable.
    pub(super) fn fence_claimed(&self) {
        self.core.pool.fence(sites::ALLOCATE_BLOCKS_DURABLE);
    }

    /// Makes a first root durable, and the flag that blocks may lie beyond the end, before such
    /// blocks are claimed.
    pub(super) fn announce(&self, cachelet: Cachelet, root: Root, last: u64) {
        let core = self.core;
        let beyond = last > self.size(cachelet).div_ceil(BLOCK_BYTES);
        let new = root.new | if beyond { BEYOND } else { 0 };
        if new != root.old {
            let inode_at = core.inode_at(cachelet);
            core.set_word(inode_at + Inode::ROOT, new);
            self.make_root_durable(cachelet);
            if root.old == 0 {
                self.raise_blocks(cachelet, root, 0);
            }
            core.set(cachelet, field::ROOT, new);
        }
    }

    /// Makes the line that holds the root durable.
    pub(super) fn make_root_durable(&self, cachelet: Cachelet) {
        self.flush_hot_line(sites::ALLOCATE_ROOT, self.core.inode_at(cachelet));
        self.core.pool.fence(sites::ALLOCATE_ROOT_DURABLE);
    }

    /// Frees the range.
    pub(super) fn punch(&self, cachelet: Cachelet, offset: u64, end: u64) -> Result<()> {
        let core = self.core;
        let (op, _lock) = self.change(cachelet, offset..end)?;
        check_cuttable(core.identity(cachelet))?;
        let root = self.root(cachelet);
        let size = self.size(cachelet);
        // As on ext4, a range that reaches the end of file frees the last block as a whole, and
        // blocks allocated beyond that block are out of reach.
        let end = if end >= size {
            size.next_multiple_of(BLOCK_BYTES)
        } else {
            end
        };
        if root.old != 0 && offset < size {
            let punched = self.punch_range(&op, cachelet, root.id, offset, end);
            core.noting(punched)?;
        }
        let now = self.change_time(cachelet);
        let inode_at = core.inode_at(cachelet);
        self.store_times(inode_at, now);
        self.flush_hot_line(sites::PUNCH_TIMES, inode_at);
        core.pool.fence(sites::PUNCH_DURABLE);
        self.publish_times(cachelet, now);
        op.check_media()?;
        core.check_written()
    }

    /// Frees whole blocks. Flushed except for the top of a tree, not fenced. Otherwise as
    /// [`Self::give_up`].
    pub(super) fn punch_blocks(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Result<()> {
        self.give_up(
            Flush::below(sites::PUNCH_LIMBO),
            op,
            cachelet,
            id,
            first,
            end,
        )
    }

    /// Frees the whole blocks in `[offset, end)`, then zeroes the partial blocks at its ends. The
    /// order matters: a tree may find no space for nodes that it needs, and then nothing may have
    /// changed. The caller holds the lock.
    fn punch_range(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        id: MapId,
        offset: u64,
        end: u64,
    ) -> Result<()> {
        let (first, last) = (offset.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES);
        op.note_overwrite(Overwrite {
            id,
            ends_only: true,
            first: (offset / BLOCK_BYTES) as u32,
            // The block of the last byte: a block behind the end of the longest file has no number.
            last: ((end - 1) / BLOCK_BYTES) as u32,
        });
        if first < last {
            self.punch_blocks(op, cachelet, id, first, last)?;
        }
        if offset / BLOCK_BYTES == end / BLOCK_BYTES {
            return self.zero_part(op, id, offset, end);
        }
        self.zero_part(op, id, offset, first * BLOCK_BYTES)?;
        self.zero_part(op, id, last * BLOCK_BYTES, end)
    }

    /// Zeroes bytes `[offset, end)` of one block, if it holds bytes.
    #[track_caller]
    fn zero_part(&self, op: &Op<'_, M>, id: MapId, offset: u64, end: u64) -> Result<()> {
        if offset < end
            && let Found::Mapped(block) = self.find_one(op, id, offset / BLOCK_BYTES)?
        {
            let from = offset % BLOCK_BYTES;
            let (core, to) = (self.core, from + end - offset);
            data::zero(sites::PUNCH_EDGES, core, self.mapping, block, from, to);
        }
        Ok(())
    }
}
