//! Tree nodes: metadata blocks, allocated one by one, and freed when no operation can be in them.

use std::sync::atomic::Ordering;

use vellum_layout::{ChunkKind, Geometry, SLOTS_PER_BLOCK};
use vellum_media::{LINE_BYTES, Memories, Memory};

use super::limbo::{Batch, LIMBO_BYTES, Limbo, LinkWords};
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};

/// The metadata blocks of a mapping's trees.
#[derive(Debug)]
pub(super) struct Nodes {
    /// Arena word: nodes in limbo.
    in_limbo_at: u64,
    /// Arena word: nodes retired so far.
    retired_at: u64,
    limbo: Limbo,
    links: LinkWords,
    end: u64,
}

impl Nodes {
    /// The nodes of a pool, whose part of the arena (zero before a rebuild) is at `arena_at`.
    pub(super) fn new(arena_at: u64, geometry: &Geometry) -> Self {
        let limbo_at = arena_at + LINE_BYTES;
        let links_at = limbo_at + LIMBO_BYTES;
        Self {
            in_limbo_at: arena_at,
            retired_at: arena_at + 8,
            limbo: Limbo {
                at: limbo_at,
                is_held: false,
            },
            links: LinkWords { at: links_at },
            end: links_at + geometry.meta_slots() / SLOTS_PER_BLOCK * 8,
        }
    }

    /// First arena offset after the nodes.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Allocates a metadata block for a node.
    ///
    /// # Errors
    /// Fails with [`Error::NoSpace`] if no metadata block is free.
    pub(super) fn take<M: Memories>(&self, op: &Op<'_, M>) -> Result<u32> {
        let slot = match op.alloc_any_block() {
            Err(Error::NoSpace(_)) => {
                op.core.try_advance();
                self.reclaim(op.core);
                op.alloc_any_block()?
            }
            taken => taken?,
        };
        Ok((slot / SLOTS_PER_BLOCK) as u32)
    }

    /// Returns the pool offset of a node.
    ///
    /// # Errors
    /// Fails if the number is not that of a possible node.
    pub(super) fn at<M: Memories>(&self, core: &Core<M>, node: u32) -> Result<u64> {
        let slot = u64::from(node) * SLOTS_PER_BLOCK;
        if core.kind_of_slot(slot) != Some(ChunkKind::Blocks) {
            let place = Location::Slot(slot);
            return Err(Error::damaged("a tree's node where none can be", place));
        }
        Ok(core.geometry.slot_at(slot))
    }

    /// Marks a node as in use, when a pool is opened.
    ///
    /// # Errors
    /// Fails if the block is already in use.
    pub(super) fn note_used<M: Memories>(&self, core: &Core<M>, node: u32) -> Result<()> {
        let slot = u64::from(node) * SLOTS_PER_BLOCK;
        if core.note_used(slot, SLOTS_PER_BLOCK) {
            Ok(())
        } else {
            let place = Location::Slot(slot);
            Err(Error::damaged("metadata slot in use twice", place))
        }
    }

    /// Adds a node that no later operation can find to the nodes that an operation frees.
    pub(super) fn add<M: Memories>(&self, core: &Core<M>, to: &mut Batch, node: u32) {
        to.add(&core.arena, &self.links, node);
    }

    /// Puts nodes into limbo.
    pub(super) fn retire<M: Memories>(&self, core: &Core<M>, batch: &Batch) {
        if batch.blocks > 0 {
            core.arena.fetch_add(self.retired_at, batch.blocks);
            core.arena.fetch_add(self.in_limbo_at, batch.blocks);
            self.limbo.push(core, &self.links, batch);
        }
    }

    /// Number of nodes retired so far. While it does not change, a node that was found is still a
    /// node.
    pub(super) fn retired<M: Memories>(&self, core: &Core<M>) -> u64 {
        core.arena.load(self.retired_at, Ordering::Acquire)
    }

    /// Frees the nodes whose grace period is over.
    pub(super) fn reclaim<M: Memories>(&self, core: &Core<M>) {
        let mut freed = 0u64;
        self.limbo.take(core, &self.links, |node| {
            core.free_slots(u64::from(node) * SLOTS_PER_BLOCK, SLOTS_PER_BLOCK);
            freed += 1;
            true
        });
        if freed > 0 {
            core.arena
                .fetch_add(self.in_limbo_at, 0u64.wrapping_sub(freed));
        }
    }

    /// Whether no node is in limbo, so that the live map is exact.
    pub(super) fn is_settled<M: Memories>(&self, core: &Core<M>) -> bool {
        core.arena.load(self.in_limbo_at, Ordering::Acquire) == 0
    }
}
