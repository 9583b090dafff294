//! File mapping: which data block belongs to a (mapping id, logical block), and which blocks are
//! free.
//!
//! One trait for all designs. A *global* mapping (HashFS, cuckoo, level hashing) keys its table by
//! mapping id. A *per-file* one (extent tree, radix tree) keeps a root for each id. Some mappings
//! allocate by themselves, others use a block allocator; `claim` hides the difference. Callers hold
//! the file's writer lock for everything but lookups, so a key has one inserter at a time.
//! Different files never wait for each other.
//!
//! Durability: `claim`, `set_state` and `release` flush what they store; the caller fences. They
//! commit by one 8-byte word for each block or range, so any subset may survive a crash. If a
//! mapping needs something durable before such a word (a new tree node, say), it fences that
//! itself.

mod bitmap;
mod blocks;
mod cuckoo;
mod extent;
mod first_writes;
#[cfg(test)]
pub(crate) mod harness;
pub(crate) mod hashfs;
mod keyed;
mod level;
mod limbo;
mod nodes;
mod radix;
mod saved_state;
mod space;
#[cfg(test)]
mod tests;
pub(crate) mod timed;

use std::ops::Range;

use vellum_layout::{Geometry, MapState, MappingKind, TablePlan};
use vellum_media::{Memories, Site};

use crate::core::Core;
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};

pub(crate) use crate::core::inodes::MapId;

/// A data block, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockNo(pub(crate) u32);

/// What a logical block maps to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing: reads as zeros.
    #[default]
    Hole,
    /// Reserved, reads as zeros.
    Unwritten(BlockNo),
    /// Holds bytes.
    Mapped(BlockNo),
}

impl Found {
    /// The block, if there is one.
    pub(crate) fn block(self) -> Option<BlockNo> {
        match self {
            Self::Hole => None,
            Self::Unwritten(block) | Self::Mapped(block) => Some(block),
        }
    }
}

/// Data blocks set aside for one operation. [`Mapping::unreserve`] returns the blocks that were not
/// claimed.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "return unclaimed blocks with unreserve"]
pub(crate) struct Reservation {
    pub(crate) blocks: u64,
}

/// Numbers of data blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockUsage {
    pub(crate) total: u64,
    /// Free or reclaimable, not reserved.
    pub(crate) free: u64,
}

/// Which way [`Mapping::seek`] looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seek {
    /// For a block that holds bytes.
    Data,
    /// For a hole or an unwritten block.
    Hole,
}

/// The decision of recovery about a table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    Free,
}

/// A change of a table entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// State after the change.
    pub(crate) to: MapState,
    /// How the change is flushed; `None` if a later change of the same entry flushes it.
    pub(crate) flush: Option<Flush>,
}

impl Step {
    /// The persistent step of this change, in mappings that keep nothing in the inode.
    pub(crate) fn site(&self) -> Option<Site> {
        self.flush.map(|flush| flush.site)
    }
}

/// Which stores of a change are flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    /// The persistent step of the flush.
    pub(crate) site: Site,
    /// Whether the inode's word with the root of the file's tree is flushed.
    pub(crate) top: bool,
}

impl Flush {
    /// Flushes everything.
    pub(crate) const fn all(site: Site) -> Self {
        Self { site, top: true }
    }

    /// Flushes everything but the inode's word with the root. Correct where the inode's line (root,
    /// size and times) is flushed afterwards, before the fence that commits the operation, or where
    /// the inode is durably dead: the next inode of this number is written whole.
    pub(crate) const fn below(site: Site) -> Self {
        Self { site, top: false }
    }
}

/// The allocator of a mapping's blocks.
pub(crate) trait Allocator<M: Memories> {
    /// See [`Mapping::reserve`].
    fn reserve(&self, op: &Op<'_, M>, blocks: u64) -> Result<Reservation>;

    /// See [`Mapping::unreserve`].
    fn unreserve(&self, op: &Op<'_, M>, rest: Reservation);

    /// See [`Mapping::reclaim`].
    fn reclaim(&self, core: &Core<M>) -> u64;

    /// See [`Mapping::data_at`].
    fn data_at(&self, block: BlockNo) -> u64;

    /// See [`Mapping::usage`].
    fn usage(&self, core: &Core<M>) -> BlockUsage;

    /// See [`Mapping::trim`].
    fn trim(&self, op: &Op<'_, M>, blocks: Range<u64>, least: u64) -> u64;

    /// See [`Mapping::free_blocks`].
    fn free_blocks(&self, core: &Core<M>, first: u64) -> u64 {
        let _ = (core, first);
        0
    }

    /// See [`Mapping::grow`].
    fn grow(&self, core: &Core<M>, to: &Geometry);

    /// Whether all these blocks are free.
    fn are_free(&self, core: &Core<M>, blocks: Range<u64>) -> bool;

    /// Allocates these blocks for metadata, if all of them are free. Flushed, not fenced. Returns
    /// whether they were.
    ///
    /// # Errors
    /// Fails with [`Error::NoSpace`] if the file system below has no space for them.
    fn take_for_metadata(&self, op: &Op<'_, M>, blocks: Range<u64>) -> Result<bool>;

    /// Marks blocks of metadata as allocated after a rebuild. Flushed, not fenced.
    ///
    /// # Errors
    /// Fails if one of them is a file's.
    fn keep_for_metadata(&self, core: &Core<M>, blocks: Range<u64>) -> Result<()>;

    /// Frees blocks that were metadata, and that no operation can see any more.
    fn return_from_metadata(&self, core: &Core<M>, blocks: Range<u64>);

    /// See [`Mapping::save`].
    fn save(&self, core: &Core<M>) -> Result<()>;

    /// See [`Mapping::restore`].
    fn restore(&self, core: &Core<M>) -> bool;
}

/// A design of file mapping.
pub(crate) trait Mapping<M: Memories>: Send + Sync {
    /// The allocator of the mapping's blocks. The methods of the same names call it.
    fn allocator(&self) -> &dyn Allocator<M>;

    /// Looks up `out.len()` logical blocks from `first`. Runs inside an operation: the blocks found
    /// stay allocated until the operation ends (blocks freed meanwhile are in limbo).
    ///
    /// # Errors
    /// Fails if it meets damage on the way to a block.
    fn lookup(&self, op: &Op<'_, M>, id: MapId, first: u32, out: &mut [Found]) -> Result<()>;

    /// Prefetches the bytes from `skip` on of the block that `logical` probably maps to, if the
    /// mapping can guess the block without a search.
    fn prefetch(&self, core: &Core<M>, id: MapId, logical: u32, skip: u64) {
        let _ = (core, id, logical, skip);
    }

    /// Prefetches what claiming a block for `logical` will read, if the mapping knows that before
    /// it reads anything. The cache misses then overlap.
    fn prefetch_claim(&self, core: &Core<M>, id: MapId, logical: u32) {
        let _ = (core, id, logical);
    }

    /// Sets blocks aside, so that claiming them cannot fail.
    ///
    /// # Errors
    /// Fails with [`Error::NoSpace`], without a search. Blocks in limbo may be waiting for the
    /// calling operation itself to end. If [`Self::usage`] counts enough free or reclaimable
    /// blocks, the caller ends the operation, waits for readers, reclaims and tries once more.
    fn reserve(&self, op: &Op<'_, M>, blocks: u64) -> Result<Reservation> {
        self.allocator().reserve(op, blocks)
    }

    /// Returns the blocks of a reservation that were not claimed.
    fn unreserve(&self, op: &Op<'_, M>, rest: Reservation) {
        self.allocator().unreserve(op, rest);
    }

    /// Allocates a block for each of `out.len()` consecutive logical blocks from `first`, all of
    /// them holes. Flushes as `step` says, and does not fence.
    ///
    /// # Errors
    /// Fails if it meets damage, or with [`Error::NoSpace`] if the mapping itself needs space. Some
    /// blocks may be claimed then; the caller releases them.
    fn claim(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        step: Step,
        from: &mut Reservation,
        out: &mut [BlockNo],
    ) -> Result<()>;

    /// Changes the state of consecutive logical blocks from `first` on (UNWRITTEN to MAPPED and
    /// back). Flushes as `step` says, but not the word in the inode, and does not fence.
    ///
    /// # Errors
    /// Fails as [`Self::claim`] does, and then nothing has changed. Undoing a change of the same
    /// operation does not fail for lack of space.
    fn set_state(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        blocks: &[BlockNo],
        step: Step,
    ) -> Result<()>;

    /// Puts every block of `[first, end)` into limbo and returns their number. `in_use` bounds the
    /// number of blocks that the file has, so that the search can stop early. Flushes as `flush`
    /// says and does not fence; the caller fences before unlocking. [`Self::reclaim`] frees the
    /// blocks after a grace period. Caches of translations must be void from before this call until
    /// after it: see `fs::file`.
    ///
    /// # Errors
    /// Fails if it meets damage. Fails with [`Error::NoSpace`], and then nothing has changed, if
    /// removing a range from the middle of a tree needs a node. That cannot happen if nothing
    /// follows the range, nor with blocks that the same operation claimed.
    fn release(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        in_use: u64,
    ) -> Result<u64>;

    /// Frees the limbo blocks whose grace period is over, and returns their number.
    fn reclaim(&self, core: &Core<M>) -> u64 {
        self.allocator().reclaim(core)
    }

    /// Finds the first logical block in `[first, end)` that holds data, or that is a hole.
    ///
    /// # Errors
    /// Fails if it meets damage on the way.
    fn seek(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        what: Seek,
    ) -> Result<Option<u64>>;

    /// Counts the blocks of a file in `[0, end)` that are not holes, for a cachelet without this
    /// count.
    ///
    /// # Errors
    /// Fails if it meets damage on the way.
    fn count(&self, op: &Op<'_, M>, id: MapId, end: u64) -> Result<u64>;

    /// Pool offset of a block's bytes.
    fn data_at(&self, block: BlockNo) -> u64 {
        self.allocator().data_at(block)
    }

    /// Drops the volatile copies of persistent structures, as if the pool had just been opened. For
    /// experiments.
    fn forget_copies(&self, op: &Op<'_, M>) {
        let _ = op;
    }

    /// Counts all blocks, and those that are free or reclaimable.
    fn usage(&self, core: &Core<M>) -> BlockUsage {
        self.allocator().usage(core)
    }

    /// Gives the space of the free ones among `blocks`, which begin with a word of the bitmap of
    /// free blocks, back to the file system or device below: runs of at least this many.
    /// Returns the number of blocks.
    fn trim(&self, op: &Op<'_, M>, blocks: Range<u64>, least: u64) -> u64 {
        self.allocator().trim(op, blocks, least)
    }

    /// Which of the 64 blocks from `first` on are free, a bit each; 0 if only the table on the pool
    /// tells that. Changes wait meanwhile.
    fn free_blocks(&self, core: &Core<M>, first: u64) -> u64 {
        self.allocator().free_blocks(core, first)
    }

    /// Adds the blocks of a pool that has grown to this geometry, within the most that it may come
    /// to have: see [`new`]. The pool has their words and bytes. The caller excludes other growth.
    fn grow(&self, core: &Core<M>, to: &Geometry) {
        self.allocator().grow(core, to);
    }

    /// Saves the allocator's volatile state where [`Self::restore`] finds it. No operation runs on
    /// the mapping. What is saved is durable at the next fence, before the pool is marked as
    /// closed.
    ///
    /// # Errors
    /// Fails with [`crate::error::Error::Busy`] if blocks are still in limbo: the saved state would
    /// count them as used for ever.
    fn save(&self, core: &Core<M>) -> Result<()> {
        self.allocator().save(core)
    }

    /// Loads the state that the last close saved. Returns `false`, with nothing changed, if there
    /// is none or if it is not sound.
    fn restore(&self, core: &Core<M>) -> bool {
        self.allocator().restore(core)
    }

    /// Builds the volatile state by reading the pool, in parallel where that pays. After a crash,
    /// `survey` decides whether a mapped block stays mapped. Words that free blocks are flushed,
    /// not fenced.
    ///
    /// # Errors
    /// Fails if a block has two owners, or a tree cannot be read.
    fn rebuild(&self, core: &Core<M>, survey: &dyn Survey) -> Result<()>;
}

/// Bytes of the arena that the mapping of a pool needs, which may come to have `most` blocks while
/// it is open.
pub(crate) fn arena_bytes(geometry: &Geometry, most: u64) -> u64 {
    match geometry.mapping {
        MappingKind::HashFs => hashfs::HashFs::arena_bytes(geometry, most),
        MappingKind::Radix => radix::Radix::arena_bytes(geometry, most),
        MappingKind::Extent => extent::Extents::arena_bytes(geometry, most),
        MappingKind::ExtentCached => extent::CachedExtents::arena_bytes(geometry, most),
        MappingKind::Cuckoo => cuckoo::Cuckoo::arena_bytes(geometry),
        MappingKind::Level => level::Level::arena_bytes(geometry),
    }
}

/// Creates the mapping of a pool. Its part of the arena is at `arena_at`, and is zero before
/// [`Mapping::rebuild`] or [`Mapping::restore`]. `seed` is the seed of the hashes on the media.
/// `table` locates the words of blocks, in a mapping that has them. The pool may come to have
/// `most` blocks while it is open.
pub(crate) fn new<M: Memories>(
    arena_at: u64,
    (geometry, most): (&Geometry, u64),
    seed: u64,
    table: TablePlan,
) -> Box<dyn Mapping<M>> {
    match geometry.mapping {
        MappingKind::HashFs => {
            let score = hashfs::WHOLE - geometry.fragmentation;
            let hashfs = hashfs::HashFs::new(arena_at, (geometry, most), seed, score);
            Box::new(hashfs.with_table(table))
        }
        MappingKind::Radix => Box::new(radix::Radix::new(arena_at, geometry, most)),
        MappingKind::Extent => Box::new(extent::Extents::new(arena_at, geometry, most)),
        MappingKind::ExtentCached => Box::new(extent::CachedExtents::new(arena_at, geometry, most)),
        MappingKind::Cuckoo => Box::new(cuckoo::Cuckoo::new(arena_at, geometry, seed)),
        MappingKind::Level => Box::new(level::Level::new(arena_at, geometry, seed)),
    }
}

/// The error for blocks of a metadata chunk that a file has, too.
fn of_file_and_metadata(blocks: &Range<u64>) -> Error {
    let place = Location::Block(blocks.start);
    Error::damaged("a block of a file and of metadata", place)
}

/// What an opening knows of the files when a mapping builds its volatile state.
pub(crate) trait Survey: Sync {
    /// Decides whether a mapped block stays mapped.
    fn judge(&self, id: MapId, logical: u32, state: MapState) -> Verdict;

    /// Calls `each` with the mapping id of every regular file, for mappings that keep a structure
    /// for each file.
    fn for_each_file(&self, each: &mut dyn FnMut(MapId) -> Result<()>) -> Result<()>;

    /// Whether the metadata slots that hold a mapping's structures have yet to be marked as used.
    fn marks_slots(&self) -> bool;
}
