//! The cursor: the leaf that a thread slot's operations used last, so that sequential reads need no
//! walk.
//!
//! It lies in the thread slot, which one operation has at a time. It is valid as long as no node
//! was retired since before the walk that found the leaf. A leaf that an operation finds through it
//! was in the tree when the operation began, or a running operation removed it; it stays for the
//! grace period.

use vellum_layout::RADIX_WORDS;
use vellum_media::Memories;

use super::Radix;
use super::walk::Leaf;
use crate::core::slots::{Op, field};
use crate::mapping::MapId;

impl Radix {
    /// The remembered leaf, if it is the leaf of this logical block.
    pub(super) fn cursor<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        logical: u64,
    ) -> Option<Leaf> {
        if op.own(field::CURSOR_KEY) != key(id, logical)
            || op.own(field::CURSOR_TAG) != self.nodes.retired(op.core)
        {
            return None;
        }
        let node = op.own(field::CURSOR_NODE) as u32;
        Some(Leaf {
            node,
            at: self.nodes.at(op.core, node).ok()?,
            first: logical / RADIX_WORDS * RADIX_WORDS,
        })
    }

    /// Remembers a leaf. `retired` is the count of retired nodes from before the search for it.
    pub(super) fn remember<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        leaf: Leaf,
        retired: u64,
    ) {
        op.set_own(field::CURSOR_KEY, key(id, leaf.first));
        op.set_own(field::CURSOR_NODE, leaf.node.into());
        op.set_own(field::CURSOR_TAG, retired);
    }
}

/// Identifies a leaf by the mapping id, which is never 0, and the number of the leaf.
fn key(id: MapId, logical: u64) -> u64 {
    let leaf = logical / RADIX_WORDS;
    u64::from(id) << 32 | leaf
}
