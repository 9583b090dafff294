//! Where readers read nodes: in the pool itself, or in copies.

use vellum_layout::Geometry;
use vellum_media::Memories;

use crate::core::Core;
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::nodes::Nodes;

/// A way to read nodes. Writers change the pool, and then tell.
pub(crate) trait Pages: Send + Sync {
    /// A node that can be read now.
    type Page: Copy;

    /// What lies in the arena from `arena_at` on (zero at first).
    fn new(arena_at: u64, geometry: &Geometry) -> Self;

    /// First byte of the arena behind it.
    fn end(&self) -> u64;

    /// Finds a node.
    ///
    /// # Errors
    /// Damage: no node can be there, or its bytes are lost.
    fn open<M: Memories>(&self, op: &Op<'_, M>, nodes: &Nodes, node: u32) -> Result<Self::Page>;

    /// The word of a node at this offset in it.
    fn word<M: Memories>(&self, core: &Core<M>, page: Self::Page, offset: u64) -> u64;

    /// Whether all words so far were the node's.
    fn holds<M: Memories>(&self, core: &Core<M>, page: Self::Page) -> bool;

    /// A word of a node was stored into the pool.
    fn stored<M: Memories>(&self, op: &Op<'_, M>, node: u32, offset: u64, value: u64);

    /// What was known of a node is void: there will be another.
    fn forget<M: Memories>(&self, op: &Op<'_, M>, node: u32);

    /// What was known of any node is void.
    fn forget_all<M: Memories>(&self, op: &Op<'_, M>);
}

/// Nodes are read where they lie.
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
