//! The bytes of a regular file: reading, writing, size, allocation, holes.
//!
//! Writers hold the file's lock, readers hold nothing: what a reader has found stays where it is
//! until its operation ends (limbo). Two things keep a reader from bytes that are not the file's:
//!
//! * Its *mapping version* is odd while blocks are given up and has another even value afterwards.
//!   Translations are used and kept only under an even version, so none outlives its block by more
//!   than the operation that used it.
//! * A reader that finds the version changed when it has copied reads again: the file may have been
//!   cut and have grown since it looked at the size, and a block that is being appended holds what
//!   its last owner left until the size covers it.
//!
//! Orders on the media are those of `docs/crash/operations.md`. A flag in the mapping root says
//! that blocks *may* lie beyond the end of file ([`BEYOND`]), and is durable before any do but
//! those that an append maps (recovery frees these). While it is clear, everything beyond the end
//! is a hole, and cutting a file or deleting it searches no further than its end.

mod ahead;
mod allocate;
#[cfg(test)]
mod crash;
mod measure;
mod probe;
mod read;
mod read_path;
mod seek;
#[cfg(test)]
mod tests;
mod translation;
mod truncate;
mod view;
mod write;

use crate::core::limits::SIZE_MAX_BYTES;
use std::ops::Range;

use vellum_layout::{BLOCK_BYTES, Inode, MapRoot};
use vellum_media::{Memories, Memory, Persistent, Site};

use crate::core::Core;
use crate::core::cachelet::{Cachelet, LockGuard, field};
use crate::core::lease;
use crate::core::slots::{Op, pause};
use crate::error::{Error, Result};
use crate::fs::{Cred, Fs};
use crate::mapping::{Flush, Found, MapId, Mapping};
use crate::sites;

pub use allocate::Allocate;
pub(crate) use allocate::check_range;
pub(crate) use measure::Cold;
pub use probe::{MappingProbe, gather_metadata, settle};
pub(crate) use read_path::ReadPaths;
pub(crate) use translation::Translation;
pub(crate) use truncate::check_size;
pub use view::{View, ViewSource};

/// Logical blocks of a file of that size.
const BLOCKS_MAX: u64 = SIZE_MAX_BYTES / BLOCK_BYTES;
/// Bytes of one operation of a long write: all of them are written, or none for lack of space.
const PIECE_BYTES: u64 = 1 << 20;
/// Blocks that a piece touches at most.
const PIECE_BLOCKS: usize = (PIECE_BYTES / BLOCK_BYTES) as usize + 1;

/// How often an operation waits for blocks in limbo before it says that there is no space. Others
/// may be faster each time, or sleep with blocks in hand that they are making free: so it gives way
/// in between.
const ROOM_TRIES: u32 = 1000;

/// Flag in a mapping root: blocks may lie beyond the end of file.
pub(crate) const BEYOND: u64 = MapRoot::BEYOND;
/// Flag in the cachelet's `BLOCKS`: the count is known.
const BLOCKS_KNOWN: u64 = 1 << 63;

/// The parts of a file system that a file's bytes need.
pub(crate) struct Files<'a, M: Memories> {
    pub(crate) core: &'a Core<M>,
    pub(crate) mapping: &'a dyn Mapping<M>,
    /// Who changes bytes, if that may drop set-id bits.
    user: Option<&'a Cred>,
}

impl<M: Memories> Clone for Files<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memories> Copy for Files<'_, M> {}

impl<M: Memories> Fs<M> {
    /// The operations on files' bytes.
    pub(crate) fn files(&self) -> Files<'_, M> {
        Files {
            core: &self.core,
            mapping: &*self.mapping,
            user: None,
        }
    }
}

impl<'a, M: Memories> Files<'a, M> {
    /// The same for somebody whose changes drop set-id bits.
    pub(crate) fn by(self, user: &'a Cred) -> Self {
        Self {
            user: Some(user),
            ..self
        }
    }

    /// Locks a file for a change by its user that shows no bytes without a commit.
    fn lock_to_change(&self, op: &Op<'a, M>, file: Cachelet) -> LockGuard<'a, M> {
        let lock = self.core.lock(op, file);
        let _ = self.drop_set_ids(op, file);
        lock
    }

    /// The set-id bits that a change by its user drops go first, durably and under the same lock:
    /// bytes that were written behind them are never found with them, and somebody who sets them
    /// meanwhile comes before all that is written from then on.
    ///
    /// Gives whether there were any.
    fn drop_set_ids(&self, op: &Op<'a, M>, file: Cachelet) -> bool {
        self.user.is_some_and(|user| op.drop_set_ids(user, file))
    }
}

/// Why an attempt ended.
enum Stop {
    /// That many blocks could not be reserved.
    Short(u64),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A file's mapping root while its writer works.
#[derive(Clone, Copy)]
struct Root {
    id: MapId,
    /// What the cachelet holds; 0: the file has no root yet.
    old: u64,
    /// What is to be stored with the next commit.
    new: u64,
}

impl Root {
    fn is_beyond(&self) -> bool {
        self.old & BEYOND != 0
    }
}

impl<'a, M: Memories> Files<'a, M> {
    /// Makes an attempt, which is one operation; while it lacks space that blocks in limbo could
    /// give, waits for their readers between operations and makes it again. Others may take what
    /// was reclaimed, so a few times.
    fn with_room<T>(&self, mut attempt: impl FnMut() -> std::result::Result<T, Stop>) -> Result<T> {
        let mut tries = 0;
        loop {
            match attempt() {
                Ok(done) => return self.core.check_written().map(|()| done),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Short(blocks)) => {
                    let hopeless = self.mapping.usage(self.core).free < blocks;
                    if hopeless || tries == ROOM_TRIES {
                        return Err(Error::NoSpace("data blocks"));
                    }
                    pause(&self.core.arena, &mut tries);
                    let freed = self.reclaim_unseen()?;
                    // What is held until a commit comes back by no waiting: who called makes one,
                    // and tries again.
                    if freed == 0 && self.core.lacks_commit() {
                        return Err(Error::NoSpace("data blocks"));
                    }
                }
            }
        }
    }

    /// Makes blocks free once nobody sees them any more; gives how many. The caller is in no
    /// operation.
    fn reclaim_unseen(&self) -> Result<u64> {
        self.core.wait_for_readers();
        // It stores to the pool: no epoch is cut meanwhile.
        let _op = self.core.op_begin()?;
        Ok(self.mapping.reclaim(self.core))
    }

    /// Begins a change of `bytes` of a file: an operation, and the file's lock, with no view of
    /// these bytes left, and no set-id bits that are not to be found with them. The lock is to be
    /// dropped first.
    fn change(
        &self,
        cachelet: Cachelet,
        bytes: Range<u64>,
    ) -> Result<(Op<'a, M>, LockGuard<'a, M>)> {
        loop {
            lease::wait(self.core, cachelet, &bytes)?;
            self.core.settle_set_ids()?;
            let op = self.core.op_to_change()?;
            let lock = self.core.lock(&op, cachelet);
            if lease::is_lent(self.core, cachelet, &bytes) {
                continue;
            }
            // That they went may still have to be made durable.
            if !(self.drop_set_ids(&op, cachelet) && self.core.commits.is_some()) {
                return Ok((op, lock));
            }
        }
    }

    fn size(&self, cachelet: Cachelet) -> u64 {
        self.core.get(cachelet, field::SIZE)
    }

    /// The mapping root, or the one that a first block will give the file. This release draws the
    /// mapping id from the inode's number. The caller holds the lock.
    fn root(&self, cachelet: Cachelet) -> Root {
        let old = self.core.get(cachelet, field::ROOT);
        let new = match MapRoot(old).get() {
            Some(_) => old,
            None => MapRoot::new(0, MapRoot::id_of(self.core.ino(cachelet))).0,
        };
        Root {
            id: new as u32 & 0x3FFF_FFFF,
            old,
            new,
        }
    }

    /// The first logical block from which on there is certainly none.
    fn blocks_end(root: u64, size: u64) -> u64 {
        if root & BEYOND != 0 {
            BLOCKS_MAX
        } else {
            size.div_ceil(BLOCK_BYTES)
        }
    }

    /// What a single logical block maps to.
    fn find_one(&self, op: &Op<'_, M>, id: MapId, logical: u64) -> Result<Found> {
        let mut found = [Found::Hole];
        self.mapping.lookup(op, id, logical as u32, &mut found)?;
        Ok(found[0])
    }

    /// Bytes `[size, to)` of the block that the end of file lies in become zero, if the block
    /// holds bytes; gives whether a fence is due before the size moves over them.
    fn zero_tail(
        &self,
        site: Site,
        op: &Op<'_, M>,
        root: Root,
        size: u64,
        to: u64,
    ) -> Result<bool> {
        let start = size % BLOCK_BYTES;
        if start == 0 || root.old == 0 {
            return Ok(false);
        }
        let Found::Mapped(block) = self.find_one(op, root.id, size / BLOCK_BYTES)? else {
            return Ok(false);
        };
        let end = (start + to - size).min(BLOCK_BYTES);
        crate::devices::data::zero(site, self.core, self.mapping, block, start, end);
        Ok(true)
    }

    /// Stores modification and change time into the inode, unflushed.
    fn store_times(&self, inode_at: u64, now: i64) {
        self.core.set_word(inode_at + Inode::MTIME, now as u64);
        self.core.set_word(inode_at + Inode::CTIME, now as u64);
    }

    /// Flushes the line with size, times and root.
    fn flush_hot_line(&self, site: Site, inode_at: u64) {
        self.core.pool.flush(site, inode_at + Inode::SIZE, 8);
    }

    /// The time of a change of a file: now, but no earlier than the last one. The caller holds the
    /// lock.
    fn change_time(&self, cachelet: Cachelet) -> i64 {
        let last = self.core.get(cachelet, field::CTIME) as i64;
        self.core.clock.now().max(last)
    }

    /// Shows the times of an operation that is durable. The caller holds the lock.
    fn publish_times(&self, cachelet: Cachelet, now: i64) {
        self.core.set(cachelet, field::MTIME, now as u64);
        self.core.set(cachelet, field::CTIME, now as u64);
    }

    /// Counts `blocks` more, before they are claimed. The caller holds the lock.
    fn raise_blocks(&self, cachelet: Cachelet, root: Root, blocks: u64) {
        let count = self.core.get(cachelet, field::BLOCKS);
        let count = if root.old == 0 { BLOCKS_KNOWN } else { count };
        if count & BLOCKS_KNOWN != 0 {
            self.core.set(cachelet, field::BLOCKS, count + blocks);
        }
    }

    /// Counts `blocks` fewer, after they went to limbo. The caller holds the lock.
    fn lower_blocks(&self, cachelet: Cachelet, blocks: u64) {
        let count = self.core.get(cachelet, field::BLOCKS);
        if count & BLOCKS_KNOWN != 0 {
            let left = (count & !BLOCKS_KNOWN).saturating_sub(blocks);
            self.core.set(cachelet, field::BLOCKS, left | BLOCKS_KNOWN);
        }
    }

    /// How many blocks the file has at most, for a search to stop.
    fn blocks_bound(&self, cachelet: Cachelet) -> u64 {
        match self.core.get(cachelet, field::BLOCKS) {
            count if count & BLOCKS_KNOWN != 0 => count & !BLOCKS_KNOWN,
            _ => u64::MAX,
        }
    }

    /// Data blocks of the file, if they were counted.
    pub(crate) fn blocks_if_known(&self, cachelet: Cachelet) -> Option<u64> {
        if self.core.get(cachelet, field::ROOT) == 0 {
            return Some(0);
        }
        Some(self.blocks_bound(cachelet)).filter(|&known| known != u64::MAX)
    }

    /// Data blocks of the file, those preallocated included. Counted when first asked for.
    pub(crate) fn blocks(&self, cachelet: Cachelet) -> Result<u64> {
        if self.core.get(cachelet, field::ROOT) == 0 {
            return Ok(0);
        }
        match self.blocks_bound(cachelet) {
            u64::MAX => {}
            known => return Ok(known),
        }
        let op = self.core.op_begin()?;
        let _lock = self.core.lock(&op, cachelet);
        let known = self.blocks_bound(cachelet);
        if known != u64::MAX {
            return Ok(known);
        }
        let root = self.root(cachelet);
        let end = Self::blocks_end(root.old, self.size(cachelet));
        let count = self.mapping.count(&op, root.id, end);
        let count = self.core.noting(count)?;
        op.check_media()?;
        self.core.set(cachelet, field::BLOCKS, count | BLOCKS_KNOWN);
        Ok(count)
    }

    /// Gives up blocks `[first, end)`. Flushed as `flush` says, not fenced. The caller holds the
    /// lock, and nobody keeps a translation from before or from within.
    fn give_up(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Result<()> {
        let version = self.core.get(cachelet, field::VERSION) | 1;
        self.core.set(cachelet, field::VERSION, version);
        // Before a reader can find a block in limbo, every later one sees the odd version.
        self.core.arena.barrier();
        let in_use = self.blocks_bound(cachelet);
        let gone = self.mapping.release(flush, op, id, first, end, in_use);
        self.lower_blocks(cachelet, *gone.as_ref().unwrap_or(&0));
        self.core.set(cachelet, field::VERSION, version + 1);
        gone.map(drop)
    }

    /// Gives up every block of a file that durably has no name. Flushed, not fenced: the caller
    /// fences before the inode's number can be used again. Of a tree it gives up what is behind the
    /// last block, too: a power cut in an append leaves nodes without blocks there.
    pub(crate) fn release_all(&self, op: &Op<'_, M>, cachelet: Cachelet) -> Result<()> {
        let root = self.root(cachelet);
        if root.old == 0 {
            return Ok(());
        }
        let end = match self.core.geometry.mapping.has_trees() {
            true => BLOCKS_MAX,
            false => Self::blocks_end(root.old, self.size(cachelet)),
        };
        self.give_up(
            Flush::below(sites::FREE_LIMBO),
            op,
            cachelet,
            root.id,
            0,
            end,
        )
    }
}
