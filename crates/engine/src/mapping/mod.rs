//! File mapping: from (mapping id, logical block) to a data block, and who owns which block.
//!
//! One trait for all designs. A *global* mapping (HashFS, cuckoo, level hashing) keys by mapping
//! id; a *per-file* one (extent tree, radix tree) keeps its root where the id leads. A mapping that
//! allocates by itself and one that uses a block allocator look the same from here: `claim` gives a
//! block. Callers hold the file's writer lock for everything but lookups, so a key has one
//! inserter at a time; different files never wait for each other.
//!
//! Durability: `claim`, `set_state` and `release` flush what they store; the caller fences. What
//! they commit is each one 8-byte word (or a journal record), so any subset may survive a crash.

pub(crate) mod hashfs;

use vellum_layout::MapState;
use vellum_media::{Memories, Site};

use crate::core::Core;
use crate::error::Result;
use crate::slots::Op;

/// A file's name in a mapping.
pub(crate) type MapId = u32;

/// A data block of the zone, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// Blocks of the zone, counted.
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
    /// Which persistent step that is; `None`: a later change of the same entry is flushed.
    pub(crate) flush: Option<Site>,
}

/// A design of file mapping.
pub(crate) trait Mapping<M: Memories>: Send + Sync {
    /// Looks up `out.len()` logical blocks from `first`. Runs inside an operation; what it finds
    /// stays allocated until the operation ends (blocks given up meanwhile are in limbo).
    fn lookup(&self, op: &Op<'_, M>, id: MapId, first: u32, out: &mut [Found]);

    /// Asks the processor for the bytes from `skip` on of the block that `logical` probably maps
    /// to, if the mapping has a guess before it has looked.
    fn prefetch(&self, core: &Core<M>, id: MapId, logical: u32, skip: u64) {
        let _ = (core, id, logical, skip);
    }

    /// Sets blocks aside, so that claiming them cannot fail.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], without a search. Blocks in limbo may be waiting for the calling
    /// operation itself to end: if [`Self::usage`] says that there are enough free or reclaimable
    /// ones, the caller ends the operation, waits for readers, reclaims and tries once more.
    fn reserve(&self, op: &Op<'_, M>, blocks: u64) -> Result<Reservation>;

    /// Gives back what was not claimed.
    fn unreserve(&self, op: &Op<'_, M>, rest: Reservation);

    /// Gives `logical`, which is a hole, a block. Flushed as `step` says, not fenced.
    fn claim(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        logical: u32,
        step: Step,
        from: &mut Reservation,
    ) -> Result<BlockNo>;

    /// Gives each of `out.len()` consecutive logical blocks from `first`, all holes, a
    /// block. Flushed as `step` says, not fenced. On an error some may be claimed; the caller releases them.
    fn claim_many(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        step: Step,
        from: &mut Reservation,
        out: &mut [BlockNo],
    ) -> Result<()> {
        for (logical, block) in (u64::from(first)..).zip(out) {
            *block = self.claim(op, id, logical as u32, step, from)?;
        }
        Ok(())
    }

    /// Changes the state of a block that `logical` maps to (UNWRITTEN to MAPPED and back).
    /// Flushed as `step` says, not fenced.
    fn set_state(&self, op: &Op<'_, M>, id: MapId, logical: u32, block: BlockNo, step: Step);

    /// Puts every block of `[first, end)` into limbo; gives how many. `in_use` bounds how many
    /// the file has, so that the search can stop. Flushed, not fenced; the caller fences before
    /// unlocking. They become free after a grace period, through [`Self::reclaim`]. A cache of
    /// translations must be void from before this call until after it: see `fs::file`.
    fn release(
        &self,
        site: Site,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        in_use: u64,
    ) -> u64;

    /// Makes limbo blocks free whose grace period is over; gives how many.
    fn reclaim(&self, core: &Core<M>) -> u64;

    /// First logical block in `[first, end)` that is data, or a hole.
    fn seek(&self, op: &Op<'_, M>, id: MapId, first: u64, end: u64, what: Seek) -> Option<u64>;

    /// Blocks of a file in `[0, end)` that are not holes, when the cachelet does not know.
    fn count(&self, op: &Op<'_, M>, id: MapId, end: u64) -> u64;

    /// Pool offset of a block's bytes.
    fn data_at(&self, block: BlockNo) -> u64;

    /// Counts.
    fn usage(&self, core: &Core<M>) -> BlockUsage;

    /// Saves the volatile aids where [`Self::restore`] finds them. Nothing is at work on the mapping;
    /// what is saved is durable at the next fence, before the pool is marked as closed.
    ///
    /// # Errors
    /// [`crate::Error::Busy`] if blocks are still in limbo: they would be nobody's.
    fn save(&self, core: &Core<M>) -> Result<()>;

    /// Takes back what the close that this opening follows saved; `false`, and nothing changed, if
    /// that is not there or not sound.
    fn restore(&self, core: &Core<M>) -> bool;

    /// Builds the volatile aids by reading the table (in parallel where that pays). After a crash,
    /// `judge` decides about each entry; freed ones are flushed, not fenced. `judge` must be safe to call from several threads.
    fn rebuild(
        &self,
        core: &Core<M>,
        judge: &(dyn Fn(MapId, u32, MapState, BlockNo) -> Verdict + Sync),
    ) -> Result<()>;
}
