//! Finding blocks: from the inode's root word down.

use vellum_layout::{RADIX_WORDS, TreeTarget, radix_span};
use vellum_media::{Memories, count};

use super::{Radix, damaged};
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::{BlockNo, Found, MapId};

/// The end of a walk towards a logical block.
pub(super) enum End {
    /// Neither this block nor any other before `until` is mapped.
    Hole {
        /// The first logical block that the walk does not cover.
        until: u64,
    },
    /// The inode's word leads directly to block 0 of the file.
    First(TreeTarget),
    /// A leaf.
    Leaf(Leaf),
}

/// A node whose words point to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) node: u32,
    /// Pool offset.
    pub(super) at: u64,
    /// Logical block of its first word.
    pub(super) first: u64,
}

impl Leaf {
    pub(super) fn end(&self) -> u64 {
        self.first + RADIX_WORDS
    }

    /// Pool offset of the word of a logical block in this leaf.
    pub(super) fn word_at(&self, logical: u64) -> u64 {
        self.at + (logical - self.first) * 8
    }
}

/// The data that a tree word leads to.
fn found(target: TreeTarget) -> Option<Found> {
    match target {
        TreeTarget::Mapped(block) => Some(Found::Mapped(BlockNo(block))),
        TreeTarget::Unwritten(block) => Some(Found::Unwritten(BlockNo(block))),
        TreeTarget::Node { .. } => None,
    }
}

impl Radix {
    /// Walks to the leaf of a logical block.
    pub(super) fn descend<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        logical: u64,
    ) -> Result<End> {
        count::probe();
        let top = Self::target(core, Self::root_at(core, id), id, 0)?;
        let (mut node, mut level) = match top {
            Some(TreeTarget::Node { block, level }) => (block, level),
            Some(first) if logical == 0 => return Ok(End::First(first)),
            _ => return Ok(End::Hole { until: u64::MAX }),
        };
        if logical >= radix_span(level + 1) {
            return Ok(End::Hole { until: u64::MAX });
        }
        loop {
            count::probe();
            let at = self.nodes.at(core, node)?;
            let span = radix_span(level);
            if level == 1 {
                let first = logical / RADIX_WORDS * RADIX_WORDS;
                return Ok(End::Leaf(Leaf { node, at, first }));
            }
            let first = logical / span * span;
            let word_at = at + logical / span % RADIX_WORDS * 8;
            match Self::target(core, word_at, id, first)? {
                None => {
                    return Ok(End::Hole {
                        until: first + span,
                    });
                }
                Some(TreeTarget::Node { block, level: next }) if next + 1 == level => {
                    (node, level) = (block, next);
                }
                Some(_) => return Err(damaged(id)),
            }
        }
    }

    /// Looks up blocks from `logical` on as far as one leaf reaches. Returns the first block not
    /// looked up.
    pub(super) fn look_up_leaf<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        logical: u64,
        out: &mut [Found],
    ) -> Result<u64> {
        let leaf = match self.cursor(op, id, logical) {
            Some(leaf) => leaf,
            None => {
                let retired = self.nodes.retired(op.core);
                match self.descend(op.core, id, logical)? {
                    End::Hole { until } => return Ok(until),
                    End::First(target) => {
                        out[0] = found(target).ok_or_else(|| damaged(id))?;
                        return Ok(logical + 1);
                    }
                    End::Leaf(leaf) => {
                        self.remember(op, id, leaf, retired);
                        leaf
                    }
                }
            }
        };
        for (logical, out) in (logical..leaf.end()).zip(out) {
            if let Some(target) = Self::target(op.core, leaf.word_at(logical), id, logical)? {
                *out = found(target).ok_or_else(|| damaged(id))?;
            }
        }
        Ok(leaf.end())
    }

    /// Calls `each` with every block of `[first, end)` in order, until it returns false.
    pub(super) fn for_each_block<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
        each: &mut dyn FnMut(u64, Found) -> bool,
    ) -> Result<()> {
        let mut logical = first;
        while logical < end {
            let leaf = match self.descend(core, id, logical)? {
                End::Hole { until } => {
                    logical = until;
                    continue;
                }
                End::First(target) => {
                    if !each(0, found(target).ok_or_else(|| damaged(id))?) {
                        return Ok(());
                    }
                    logical = 1;
                    continue;
                }
                End::Leaf(leaf) => leaf,
            };
            for logical in logical..leaf.end().min(end) {
                if let Some(target) = Self::target(core, leaf.word_at(logical), id, logical)?
                    && !each(logical, found(target).ok_or_else(|| damaged(id))?)
                {
                    return Ok(());
                }
            }
            logical = leaf.end();
        }
        Ok(())
    }

    /// The first block of `[first, end)` that holds bytes.
    pub(super) fn seek_data<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Result<Option<u64>> {
        let mut data = None;
        self.for_each_block(core, id, first, end, &mut |logical, found| {
            if matches!(found, Found::Mapped(_)) {
                data = Some(logical);
            }
            data.is_none()
        })?;
        Ok(data)
    }

    /// The first block of `[first, end)` that holds no bytes.
    pub(super) fn seek_hole<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Result<Option<u64>> {
        let mut next = first;
        self.for_each_block(core, id, first, end, &mut |logical, found| {
            let goes_on = logical == next && matches!(found, Found::Mapped(_));
            next += u64::from(goes_on);
            goes_on
        })?;
        Ok((next < end).then_some(next))
    }
}
