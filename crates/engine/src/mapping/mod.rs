//! File mapping: from (mapping id, logical block) to a data block, and who owns which block.
//!
//! One trait for all designs. A *global* mapping (HashFS, cuckoo, level hashing) keys by mapping
//! id; a *per-file* one (extent tree, radix tree) keeps its root where the id leads. A mapping that
//! allocates by itself and one that uses a block allocator look the same from here: `claim` gives a
//! block. Callers hold the file's writer lock for everything but lookups, so a key has one
//! inserter at a time; different files never wait for each other.
//!
//! Durability: `claim`, `set_state` and `release` flush what they store; the caller fences. What
//! they commit is one 8-byte word a block or range, so any subset may survive a crash. What a
//! mapping needs to be durable before such a word (a new tree node, say) it fences itself.

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

use vellum_layout::{Geometry, MapState, MappingKind, TablePlan};
use vellum_media::{Memories, Site};

use crate::core::Core;
use crate::core::slots::Op;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

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

/// Data blocks set aside for one operation; what is not claimed goes back with
/// [`Mapping::unreserve`].
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "give unclaimed blocks back with unreserve"]
pub(crate) struct Reservation {
    pub(crate) blocks: u64,
}

/// Data blocks, counted.
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

/// What recovery decides about a table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    Free,
}

/// A change of a table entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Its state afterwards.
    pub(crate) to: MapState,
    /// How it is flushed; `None`: a later change of the same entry is.
    pub(crate) flush: Option<Flush>,
}

impl Step {
    /// Which persistent step that is in mappings that keep nothing in the inode.
    pub(crate) fn site(&self) -> Option<Site> {
        self.flush.map(|flush| flush.site)
    }
}

/// What is flushed of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    /// Which persistent step that is.
    pub(crate) site: Site,
    /// Whether the word in the inode is flushed at which a file's tree begins.
    pub(crate) top: bool,
}

impl Flush {
    /// Everything.
    pub(crate) const fn all(site: Site) -> Self {
        Self { site, top: true }
    }

    /// Everything but the tree's top, where the inode's line with that, the size and the times is
    /// flushed afterwards, before the fence that commits the operation; or where the inode is
    /// durably dead, because the next one of its number is written whole.
    pub(crate) const fn below(site: Site) -> Self {
        Self { site, top: false }
    }
}

/// A design of file mapping.
pub(crate) trait Mapping<M: Memories>: Send + Sync {
    /// Looks up `out.len()` logical blocks from `first`. Runs inside an operation; what it finds
    /// stays allocated until the operation ends (blocks given up meanwhile are in limbo).
    ///
    /// # Errors
    /// Damage on the way to a block.
    fn lookup(&self, op: &Op<'_, M>, id: MapId, first: u32, out: &mut [Found]) -> Result<()>;

    /// Asks the processor for the bytes from `skip` on of the block that `logical` probably maps
    /// to, if the mapping has a guess before it has looked.
    fn prefetch(&self, core: &Core<M>, id: MapId, logical: u32, skip: u64) {
        let _ = (core, id, logical, skip);
    }

    /// Asks the processor for what claiming a block for `logical` will look at, if that is known
    /// before anything was looked at: the misses then overlap.
    fn prefetch_claim(&self, core: &Core<M>, id: MapId, logical: u32) {
        let _ = (core, id, logical);
    }

    /// Sets blocks aside, so that claiming them cannot fail.
    ///
    /// # Errors
    /// [`Error::NoSpace`], without a search. Blocks in limbo may be waiting for the calling
    /// operation itself to end: if [`Self::usage`] says that there are enough free or reclaimable
    /// ones, the caller ends the operation, waits for readers, reclaims and tries once more.
    fn reserve(&self, op: &Op<'_, M>, blocks: u64) -> Result<Reservation>;

    /// Gives back what was not claimed.
    fn unreserve(&self, op: &Op<'_, M>, rest: Reservation);

    /// Gives each of `out.len()` consecutive logical blocks from `first`, all holes, a
    /// block. Flushed as `step` says, not fenced.
    ///
    /// # Errors
    /// Damage; [`Error::NoSpace`] where the mapping itself needs space. Some blocks may be
    /// claimed then; the caller releases them.
    fn claim(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        step: Step,
        from: &mut Reservation,
        out: &mut [BlockNo],
    ) -> Result<()>;

    /// Changes the state of what consecutive logical blocks from `first` map to (UNWRITTEN to
    /// MAPPED and back). Flushed as `step` says, but for the word in the inode, not fenced.
    ///
    /// # Errors
    /// As [`Self::claim`], and nothing has changed then. Taking back what the same operation
    /// changed does not fail for lack of space.
    fn set_state(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        blocks: &[BlockNo],
        step: Step,
    ) -> Result<()>;

    /// Puts every block of `[first, end)` into limbo; gives how many. `in_use` bounds how many the
    /// file has, so that the search can stop. Flushed as `flush` says, not fenced; the caller
    /// fences before unlocking. They become free after a grace period, through [`Self::reclaim`]. A
    /// cache of translations must be void from before this call until after it: see `fs::file`.
    ///
    /// # Errors
    /// Damage. [`Error::NoSpace`], and nothing has changed, where a range in the middle is
    /// taken out of a tree; never where nothing follows the range, nor for what the same operation
    /// claimed.
    fn release(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        in_use: u64,
    ) -> Result<u64>;

    /// Makes limbo blocks free whose grace period is over; gives how many.
    fn reclaim(&self, core: &Core<M>) -> u64;

    /// First logical block in `[first, end)` that is data, or a hole.
    ///
    /// # Errors
    /// Damage on the way.
    fn seek(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        what: Seek,
    ) -> Result<Option<u64>>;

    /// Blocks of a file in `[0, end)` that are not holes, when the cachelet does not know.
    ///
    /// # Errors
    /// Damage on the way.
    fn count(&self, op: &Op<'_, M>, id: MapId, end: u64) -> Result<u64>;

    /// Pool offset of a block's bytes.
    fn data_at(&self, block: BlockNo) -> u64;

    /// Forgets copies of the structure that are kept beside it, as if the pool had just been
    /// opened: for experiments.
    fn forget_copies(&self, op: &Op<'_, M>) {
        let _ = op;
    }

    /// Counts.
    fn usage(&self, core: &Core<M>) -> BlockUsage;

    /// Saves the volatile aids where [`Self::restore`] finds them. Nothing is at work on the
    /// mapping; what is saved is durable at the next fence, before the pool is marked as closed.
    ///
    /// # Errors
    /// [`crate::error::Error::Busy`] if blocks are still in limbo: they would be nobody's.
    fn save(&self, core: &Core<M>) -> Result<()>;

    /// Takes back what the close that this opening follows saved; `false`, and nothing changed, if
    /// that is not there or not sound.
    fn restore(&self, core: &Core<M>) -> bool;

    /// Builds the volatile aids by reading the pool (in parallel where that pays). After a crash,
    /// `survey` decides about each block that something maps; what is freed is flushed, not fenced.
    ///
    /// # Errors
    /// Damage: a block with two owners, a tree that cannot be read.
    fn rebuild(&self, core: &Core<M>, survey: &dyn Survey) -> Result<()>;
}

/// Bytes of the arena that the mapping of a pool needs.
pub(crate) fn arena_bytes(geometry: &Geometry) -> u64 {
    match geometry.mapping {
        MappingKind::HashFs => hashfs::HashFs::arena_bytes(geometry),
        MappingKind::Radix => radix::Radix::arena_bytes(geometry),
        MappingKind::Extent => extent::Extents::arena_bytes(geometry),
        MappingKind::ExtentCached => extent::CachedExtents::arena_bytes(geometry),
        MappingKind::Cuckoo => cuckoo::Cuckoo::arena_bytes(geometry),
        MappingKind::Level => level::Level::arena_bytes(geometry),
    }
}

/// The mapping of a pool, whose part of the arena (zero before [`Mapping::rebuild`] or
/// [`Mapping::restore`]) is at `arena_at`. `seed` is the seed of the hashes on the media, and
/// `table` tells where words of blocks are, if the mapping has some.
pub(crate) fn new<M: Memories>(
    arena_at: u64,
    geometry: &Geometry,
    seed: u64,
    table: TablePlan,
) -> Box<dyn Mapping<M>> {
    match geometry.mapping {
        MappingKind::HashFs => {
            let score = hashfs::WHOLE - geometry.fragmentation;
            let hashfs = hashfs::HashFs::new(arena_at, geometry, seed, score);
            Box::new(hashfs.with_table(table))
        }
        MappingKind::Radix => Box::new(radix::Radix::new(arena_at, geometry)),
        MappingKind::Extent => Box::new(extent::Extents::new(arena_at, geometry)),
        MappingKind::ExtentCached => Box::new(extent::CachedExtents::new(arena_at, geometry)),
        MappingKind::Cuckoo => Box::new(cuckoo::Cuckoo::new(arena_at, geometry, seed)),
        MappingKind::Level => Box::new(level::Level::new(arena_at, geometry, seed)),
    }
}

/// What an opening knows of the files, for a mapping that builds its aids.
pub(crate) trait Survey: Sync {
    /// Whether a block that something maps stays.
    fn judge(&self, id: MapId, logical: u32, state: MapState) -> Verdict;

    /// Calls `each` with the mapping id of every regular file in use, for mappings that keep a
    /// structure for each.
    fn for_each_file(&self, each: &mut dyn FnMut(MapId) -> Result<()>) -> Result<()>;

    /// Whether metadata slots that a mapping's structures lie in are still to be marked as used.
    fn marks_slots(&self) -> bool;
}
