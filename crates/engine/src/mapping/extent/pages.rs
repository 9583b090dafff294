//! The source from which readers read nodes: the pool itself, or copies.

use vellum_layout::Geometry;
use vellum_media::Memories;

use crate::core::Core;
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::nodes::Nodes;

/// A source of nodes for readers. Writers change the pool and then call `stored`.
pub(crate) trait Pages: Send + Sync {
    /// A node that can be read.
    type Page: Copy;

    /// Creates the source. Its part of the arena, zero at first, begins at `arena_at`.
    fn new(arena_at: u64, geometry: &Geometry) -> Self;

    /// First arena offset after it.
    fn end(&self) -> u64;

    /// Finds a node.
    ///
    /// # Errors
    /// Fails if the number is not that of a possible node, or if its bytes are lost.
    fn open<M: Memories>(&self, op: &Op<'_, M>, nodes: &Nodes, node: u32) -> Result<Self::Page>;

    /// The word at this offset of a node.
    fn word<M: Memories>(&self, core: &Core<M>, page: Self::Page, offset: u64) -> u64;

    /// Whether all words read so far belonged to the node.
    fn holds<M: Memories>(&self, core: &Core<M>, page: Self::Page) -> bool;

    /// Called after a word of a node was stored to the pool.
    fn stored<M: Memories>(&self, op: &Op<'_, M>, node: u32, offset: u64, value: u64);

    /// Discards any copy of a node, because a new node takes its place.
    fn forget<M: Memories>(&self, op: &Op<'_, M>, node: u32);

    /// Discards the copies of all nodes.
    fn forget_all<M: Memories>(&self, op: &Op<'_, M>);
}

/// Reads nodes directly from the pool.
#[derive(Debug)]
pub(crate) struct Direct {
    end: u64,
}

impl Pages for Direct {
    /// Pool offset of the node.
    type Page = u64;

    fn new(arena_at: u64, _: &Geometry) -> Self {
        Self { end: arena_at }
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn open<M: Memories>(&self, op: &Op<'_, M>, nodes: &Nodes, node: u32) -> Result<u64> {
        nodes.at(op.core, node)
    }

    #[inline]
    fn word<M: Memories>(&self, core: &Core<M>, page: u64, offset: u64) -> u64 {
        core.word(page + offset)
    }

    #[inline]
    fn holds<M: Memories>(&self, _: &Core<M>, _: u64) -> bool {
        true
    }

    fn stored<M: Memories>(&self, _: &Op<'_, M>, _: u32, _: u64, _: u64) {}

    fn forget<M: Memories>(&self, _: &Op<'_, M>, _: u32) {}

    fn forget_all<M: Memories>(&self, _: &Op<'_, M>) {}
}
