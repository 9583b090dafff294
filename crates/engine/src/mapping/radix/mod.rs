//! A radix tree for each file (the file-mapping study, 3.1): nodes of 512 words, nine bits of the
//! logical block for each level, as many levels as the file needs. The word in the inode leads to
//! the top node, or to the file's block if the file has only block 0.
//!
//! * Every word [carries its own check](vellum_layout::TreeWord): one atomic store inserts a block,
//!   changes its state or removes it, and no operation needs to trust a node.
//! * A new node is durable before a word points to it. A tree grows upwards: the old top becomes
//!   the first word of a new one.
//! * Readers follow words without locks; writers hold the file's lock. A node that was removed from
//!   a tree is freed after a grace period.
//! * The cursor: each thread slot remembers the leaf that it used last ([`Cursor`]).
//!
//! Deviations from the study, and why: (1) no undo log for growth, because a node is complete
//! before one word links it; (2) words carry a check, where the study's are bare block numbers: a
//! damaged word is recognised, and a reused leaf is not mistaken for the old one; (3) the cursor
//! belongs to the thread and not to the file: remembering a leaf then writes no line that others
//! read.

mod change;
mod cursor;
mod rebuild;
mod walk;

use vellum_layout::{Geometry, Inode, TreeTarget, TreeWord};
use vellum_media::Memories;

use super::blocks::Blocks;
use super::nodes::Nodes;
use super::{Allocator, BlockNo, Flush, Found, MapId, Mapping, Reservation, Seek, Step, Survey};
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};

/// The mapping of segment 0.
#[derive(Debug)]
pub(crate) struct Radix {
    blocks: Blocks,
    nodes: Nodes,
}

impl Radix {
    /// The mapping of a pool. Its part of the arena, zero before [`Mapping::rebuild`], is at
    /// `arena_at`.
    pub(crate) fn new(arena_at: u64, geometry: &Geometry, most: u64) -> Self {
        let blocks = Blocks::new(arena_at, geometry, most);
        let nodes = Nodes::new(blocks.end(), geometry);
        Self { blocks, nodes }
    }

    /// Bytes of the arena that [`Self::new`] needs.
    pub(crate) fn arena_bytes(geometry: &Geometry, most: u64) -> u64 {
        Self::new(0, geometry, most).nodes.end()
    }

    /// Pool offset of the root word of a file's tree.
    fn root_at<M: Memories>(core: &Core<M>, id: MapId) -> u64 {
        core.geometry.slot_at(id.into()) + Inode::DETAIL
    }

    /// The target of the tree word at `at`, which covers blocks from logical block `first` on.
    fn target<M: Memories>(
        core: &Core<M>,
        at: u64,
        id: MapId,
        first: u64,
    ) -> Result<Option<TreeTarget>> {
        TreeWord(core.word(at))
            .decode(id, first as u32)
            .map_err(|_| damaged(id))
    }
}

/// The error for damage in the tree of a file.
#[cold]
fn damaged(id: MapId) -> Error {
    Error::damaged("a tree word that is not sound", Location::Inode(id.into()))
}

impl<M: Memories> Mapping<M> for Radix {
    fn allocator(&self) -> &dyn Allocator<M> {
        &self.blocks
    }

    fn lookup(&self, op: &Op<'_, M>, id: MapId, first: u32, out: &mut [Found]) -> Result<()> {
        out.fill(Found::Hole);
        let start = u64::from(first);
        let mut at = start;
        let end = start + out.len() as u64;
        while at < end {
            let found = &mut out[(at - start) as usize..];
            at = self.look_up_leaf(op, id, at, found)?;
        }
        Ok(())
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
        self.claim_blocks(op, id, first.into(), step, from, out)
    }

    fn set_state(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        blocks: &[BlockNo],
        step: Step,
    ) -> Result<()> {
        self.put_words(op, id, first.into(), blocks, step)
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
        self.take_out(flush, op, id, first, end)
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
        match what {
            Seek::Data => self.seek_data(op.core, id, first, end),
            Seek::Hole => self.seek_hole(op.core, id, first, end),
        }
    }

    fn count(&self, op: &Op<'_, M>, id: MapId, end: u64) -> Result<u64> {
        let mut count = 0;
        self.for_each_block(op.core, id, 0, end, &mut |_, _| {
            count += 1;
            true
        })?;
        Ok(count)
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
