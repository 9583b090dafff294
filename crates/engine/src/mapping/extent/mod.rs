//! An extent tree for each file (the file-mapping study, 3.1.1): a B-tree of nodes of 4 KiB, whose
//! leaves hold extents, runs of logical blocks on runs of data blocks. `docs/format/mapping.md` has
//! the bytes.
//!
//! * Each extent has a valid bit in its key, which is stored after the body: an extent is there as
//!   a whole or not at all. These changes are one store each, in place: inserting an extent after
//!   the others or where one was removed, lengthening or shortening one at either end, removing
//!   one, and changing the state of a whole one.
//! * A change that moves entries (inserting between others, a full node, cutting an extent in
//!   three) writes new nodes beside the old ones, durable before one word links them. The old nodes
//!   stay whole until the operation is durable and no operation can be in them: they are the undo
//!   log.
//! * A removed entry keeps its key, without the valid bit, and so its place in the order, until it
//!   is reused or its node is rewritten. Removing needs no space, except for the middle of one
//!   extent.
//! * A file of one extent from its first block on has no node: the word in its inode is the extent.
//!   Most files are like this, and their appends store to the line that also has the size.
//! * A full leaf at the end of the file stays full, and gets a neighbour.
//! * The cursor: each thread slot remembers the leaf that it used last.
//!
//! A block that two consecutive entries cover belongs to the second. Such a state occurs, and a
//! crash may leave it, while the border between two extents moves: first one grows over it, then
//! the other shrinks. The growing is durable before the shrinking unless both are in one line.
//!
//! Deviations from the study, and why: (1) new nodes instead of an undo log with entries moved in
//! place: readers take no lock, and would meet an entry twice or not at all while it moves; (2) no
//! rewriting for appends and for the border of an extent that is being filled, which are the common
//! cases; (3) checks in all words, so that damage is an error and never leads to another file's
//! block; (4) the cursor belongs to the thread and not to the file: remembering a leaf then writes
//! no line that others read.
//!
//! [`CachedExtents`] is the study's baseline: the same tree, read through a [page cache](cache) of
//! its nodes.

mod cache;
mod change;
mod fork;
mod node;
mod pages;
mod rebuild;
mod release;
#[cfg(test)]
mod tests;
mod walk;

use vellum_layout::{ExtentRoot, ExtentSeal, Geometry, Inode, MapState};
use vellum_media::{LINE_BYTES, Memories};

use self::cache::PageCache;
use self::pages::{Direct, Pages};
use super::blocks::Blocks;
use super::nodes::Nodes;
use super::{Allocator, BlockNo, Flush, Found, MapId, Mapping, Reservation, Seek, Step, Survey};
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};

/// Extent trees that are read directly from the pool.
pub(crate) type Extents = ExtentTrees<Direct>;
/// Extent trees that are read through a page cache.
pub(crate) type CachedExtents = ExtentTrees<PageCache>;

/// The mapping of segment 0.
#[derive(Debug)]
pub(crate) struct ExtentTrees<P> {
    blocks: Blocks,
    nodes: Nodes,
    /// Arena word: see [`Tree::changes`].
    changes_at: u64,
    pages: P,
}

impl<P: Pages> ExtentTrees<P> {
    /// The mapping of a pool. Its part of the arena, zero before [`Mapping::rebuild`], is at
    /// `arena_at`.
    pub(crate) fn new(arena_at: u64, geometry: &Geometry, most: u64) -> Self {
        let blocks = Blocks::new(arena_at, geometry, most);
        let nodes = Nodes::new(blocks.end(), geometry);
        let changes_at = nodes.end().next_multiple_of(LINE_BYTES);
        let pages = P::new(changes_at + LINE_BYTES, geometry);
        Self {
            blocks,
            nodes,
            changes_at,
            pages,
        }
    }

    /// Bytes of the arena that [`Self::new`] needs.
    pub(crate) fn arena_bytes(geometry: &Geometry, most: u64) -> u64 {
        Self::new(0, geometry, most).pages.end()
    }

    fn tree<'a, M: Memories>(&'a self, core: &'a Core<M>, id: MapId) -> Tree<'a, M, P> {
        Tree {
            map: self,
            core,
            id,
            seal: ExtentSeal::new(id),
        }
    }
}

/// The tree of one file.
struct Tree<'a, M: Memories, P> {
    map: &'a ExtentTrees<P>,
    core: &'a Core<M>,
    id: MapId,
    seal: ExtentSeal,
}

impl<M: Memories, P: Pages> Tree<'_, M, P> {
    /// Pool offset of the tree's root word.
    fn root_at(&self) -> u64 {
        self.core.geometry.slot_at(self.id.into()) + Inode::DETAIL
    }

    fn root(&self) -> Result<ExtentRoot> {
        let word = self.core.word(self.root_at());
        ExtentRoot::from_word(self.seal, word).ok_or_else(|| damaged(self.id))
    }
}

/// The error for damage in the tree of a file.
#[cold]
fn damaged(id: MapId) -> Error {
    Error::damaged(
        "an extent tree that is not sound",
        Location::Inode(id.into()),
    )
}

impl<M: Memories, P: Pages> Mapping<M> for ExtentTrees<P> {
    fn allocator(&self) -> &dyn Allocator<M> {
        &self.blocks
    }

    fn lookup(&self, op: &Op<'_, M>, id: MapId, first: u32, out: &mut [Found]) -> Result<()> {
        out.fill(Found::Hole);
        let start = u64::from(first);
        let end = start + out.len() as u64;
        self.tree(op.core, id).each(op, start, end, &mut |extent| {
            let from = (extent.first() - start) as usize;
            let places = &mut out[from..from + extent.len as usize];
            for (found, block) in places.iter_mut().zip((extent.block..).map(BlockNo)) {
                *found = match extent.state {
                    MapState::Mapped => Found::Mapped(block),
                    _ => Found::Unwritten(block),
                };
            }
            true
        })
    }

    fn claim(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        step: Step,
        from: &mut Reservation,
        out: &mut [BlockNo],
    ) -> Result<()> {
        self.tree(op.core, id)
            .claim(op, first.into(), step, from, out)
    }

    fn set_state(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        blocks: &[BlockNo],
        step: Step,
    ) -> Result<()> {
        let first = u64::from(first);
        let end = first + blocks.len() as u64;
        self.tree(op.core, id).set_states(op, first, end, step)
    }

    fn release(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        _in_use: u64,
    ) -> Result<u64> {
        self.tree(op.core, id).release(flush, op, first, end)
    }

    fn reclaim(&self, core: &Core<M>) -> u64 {
        self.nodes.reclaim(core);
        self.blocks.reclaim(core)
    }

    fn seek(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        what: Seek,
    ) -> Result<Option<u64>> {
        let tree = self.tree(op.core, id);
        let mut at = first;
        while at < end {
            match tree.seek_once(op, at, end, what)? {
                Some(next) if next > at => at = next,
                found => return Ok(found),
            }
        }
        Ok(None)
    }

    fn count(&self, op: &Op<'_, M>, id: MapId, end: u64) -> Result<u64> {
        let mut blocks = 0;
        self.tree(op.core, id).each(op, 0, end, &mut |extent| {
            blocks += u64::from(extent.len);
            true
        })?;
        Ok(blocks)
    }

    fn forget_copies(&self, op: &Op<'_, M>) {
        self.pages.forget_all(op);
    }

    fn save(&self, core: &Core<M>) -> Result<()> {
        if !self.nodes.is_settled(core) {
            return Err(Error::Busy);
        }
        self.blocks.save(core)
    }

    fn rebuild(&self, core: &Core<M>, survey: &dyn Survey) -> Result<()> {
        self.rebuild_allocator_state(core, survey)
    }
}
