//! Changing the size.

use vellum_layout::{BLOCK_BYTES, Inode};
use vellum_media::{Memories, Persistent, Site};

use super::{BEYOND, Files, Root, check_cuttable};
use crate::core::cachelet::{Cachelet, field};
use crate::core::limits::SIZE_MAX_BYTES;
use crate::core::slots::Op;
use crate::error::{Error, Result};
use crate::mapping::{Flush, MapId};
use crate::sites;

/// Checks that a file may have this size.
pub(crate) fn check_size(bytes: u64) -> Result<()> {
    if bytes > SIZE_MAX_BYTES {
        return Err(Error::TooLarge);
    }
    Ok(())
}

impl<M: Memories> Files<'_, M> {
    /// Truncates or extends a file to `new_size` bytes. New bytes read as zeros. Blocks beyond the
    /// new size are freed, including preallocated ones.
    pub(crate) fn truncate(&self, cachelet: Cachelet, new_size: u64) -> Result<()> {
        check_size(new_size)?;
        let (op, _lock) = self.change(cachelet, new_size..u64::MAX)?;
        check_cuttable(self.core.identity(cachelet))?;
        let size = self.size(cachelet);
        let root = self.root(cachelet);
        let changed = if new_size > size {
            self.extend(&op, cachelet, root, size, new_size)
        } else {
            self.cut(&op, cachelet, root, size, new_size)
        };
        self.core.noting(changed)?;
        op.check_media()?;
        self.core.check_written()
    }

    /// Moves the size up. The caller holds the lock.
    pub(super) fn extend(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        root: Root,
        size: u64,
        new_size: u64,
    ) -> Result<()> {
        if self.zero_tail(sites::EXTEND_TAIL, op, root, size, new_size)? {
            self.core.pool.fence(sites::EXTEND_TAIL_DURABLE);
        }
        let order = (sites::EXTEND_SIZE_BEHIND, &[Inode::MTIME, Inode::CTIME][..]);
        let steps = [sites::EXTEND_SIZE, sites::EXTEND_SIZE_DURABLE];
        self.commit_size(order, steps, cachelet, root.old, new_size);
        Ok(())
    }

    /// Stores times, root and size, which share a line, durably. Then publishes them. The size is
    /// stored behind the fields that `order` names. The caller holds the lock.
    fn commit_size(
        &self,
        (behind, fields): (Site, &[u64]),
        [line, durable]: [Site; 2],
        cachelet: Cachelet,
        root: u64,
        size: u64,
    ) {
        let core = self.core;
        let now = self.change_time(cachelet);
        let inode_at = core.inode_at(cachelet);
        self.store_times(inode_at, now);
        core.set_word(inode_at + Inode::ROOT, root);
        for field in fields {
            let size_at = inode_at + Inode::SIZE;
            core.pool.behind(behind, size_at, &[inode_at + field]);
        }
        core.set_word(inode_at + Inode::SIZE, size);
        self.flush_hot_line(line, inode_at);
        core.pool.fence(durable);
        self.publish_times(cachelet, now);
        core.set(cachelet, field::ROOT, root);
        core.set(cachelet, field::SIZE, size);
    }

    /// Reduces the size, or leaves it, and frees the blocks beyond it.
    ///
    /// A crash in between leaves blocks beyond the end, and recovery frees the MAPPED ones among
    /// them. So the root carries the flag from the moment of the new size until all of them are
    /// durably in limbo.
    fn cut(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        root: Root,
        size: u64,
        new_size: u64,
    ) -> Result<()> {
        let core = self.core;
        let first = new_size.div_ceil(BLOCK_BYTES);
        let end = Self::blocks_end(root.old, size);
        let beyond = root.old != 0 && first < end;
        let flag = if beyond { BEYOND } else { 0 };
        let order = (
            sites::TRUNCATE_SIZE_BEHIND,
            &[Inode::MTIME, Inode::CTIME, Inode::ROOT][..],
        );
        let steps = [sites::TRUNCATE_SIZE, sites::TRUNCATE_SIZE_DURABLE];
        self.commit_size(order, steps, cachelet, root.old | flag, new_size);
        if !beyond {
            self.forget_translations(cachelet);
            return Ok(());
        }
        let steps = [sites::TRUNCATE_LIMBO, sites::TRUNCATE_LIMBO_DURABLE];
        self.give_up_durably(steps, op, cachelet, root.id, first, end)?;
        // Not flushed: if the clear flag is lost, the next truncation only searches further than it
        // must.
        let clear = root.old & !BEYOND;
        core.set_word(core.inode_at(cachelet) + Inode::ROOT, clear);
        core.set(cachelet, field::ROOT, clear);
        Ok(())
    }

    /// Frees blocks `[first, end)`, durably before the file is unlocked, so that the file can grow
    /// over them. The caller holds the lock.
    pub(super) fn give_up_durably(
        &self,
        [limbo, durable]: [Site; 2],
        op: &Op<'_, M>,
        cachelet: Cachelet,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Result<()> {
        let gone = self.give_up(Flush::all(limbo), op, cachelet, id, first, end);
        self.core.pool.fence(durable);
        gone
    }

    /// Makes readers that saw the old size look again.
    fn forget_translations(&self, cachelet: Cachelet) {
        let version = self.core.get(cachelet, field::VERSION) | 1;
        self.core.set(cachelet, field::VERSION, version + 1);
    }
}
