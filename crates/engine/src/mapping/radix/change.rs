//! Changing a tree: inserting blocks, changing their states, removing blocks. The caller holds the
//! file's lock.

use vellum_layout::{
    BLOCK_BYTES, MapState, RADIX_WORDS, SLOTS_PER_BLOCK, TreeTarget, TreeWord, radix_span,
};
use vellum_media::{LINE_BYTES, Memories, Persistent, Site};
use zerocopy::IntoBytes;

use super::walk::{End, Leaf};
use super::{Radix, damaged};
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::limbo::Batch;
use crate::mapping::{BlockNo, Flush, MapId, Reservation, Step};
use crate::sites;

/// The tree word's target for a block in a state.
fn target(block: BlockNo, state: MapState) -> TreeTarget {
    match state {
        MapState::Mapped => TreeTarget::Mapped(block.0),
        _ => TreeTarget::Unwritten(block.0),
    }
}

/// Flushes lines of words that are stored one after the other, each line once.
struct Lines<'a, M: Memories> {
    core: &'a Core<M>,
    site: Option<Site>,
    unflushed: Option<u64>,
}

impl<'a, M: Memories> Lines<'a, M> {
    fn new(core: &'a Core<M>, site: Option<Site>) -> Self {
        Self {
            core,
            site,
            unflushed: None,
        }
    }

    #[inline]
    #[track_caller]
    fn put_word(&mut self, at: u64, word: TreeWord) {
        self.core.set_word(at, word.0);
        let line = at / LINE_BYTES;
        if self.unflushed != Some(line) {
            self.flush_last();
            self.unflushed = Some(line);
        }
    }

    #[inline]
    #[track_caller]
    fn flush_last(&mut self) {
        if let (Some(line), Some(site)) = (self.unflushed.take(), self.site) {
            self.core.pool.flush(site, line * LINE_BYTES, LINE_BYTES);
        }
    }
}

/// What leaves a tree.
#[derive(Default)]
struct Gone {
    blocks: Batch,
    nodes: Batch,
}

/// The logical blocks to remove.
#[derive(Clone, Copy)]
struct Range {
    first: u64,
    end: u64,
}

impl Range {
    fn meets(&self, first: u64, span: u64) -> bool {
        self.first < first + span && first < self.end
    }
}

impl Radix {
    /// See [`crate::mapping::Mapping::claim`].
    pub(super) fn claim_blocks<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        step: Step,
        from: &mut Reservation,
        out: &mut [BlockNo],
    ) -> Result<()> {
        let mut goal = self.block_after(op.core, id, first)?;
        let mut done = 0;
        while done < out.len() {
            let (logical, want) = (first + done as u64, (out.len() - done) as u64);
            let (block, count) = self.blocks.take(op, from, logical, goal, want)?;
            let taken = &mut out[done..done + count as usize];
            for (out, block) in taken.iter_mut().zip(block.0..) {
                *out = BlockNo(block);
            }
            if let Err((error, stored)) = self.insert(op, id, logical, taken, step) {
                let left = BlockNo(block.0 + stored as u32);
                self.blocks.put_back(op, from, left, count - stored);
                return Err(error);
            }
            goal = Some(BlockNo(block.0 + count as u32));
            done += count as usize;
        }
        Ok(())
    }

    /// The block after that of the logical block before `logical`.
    fn block_after<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        logical: u64,
    ) -> Result<Option<BlockNo>> {
        let mut after = None;
        if logical > 0 {
            self.for_each_block(core, id, logical - 1, logical, &mut |_, found| {
                after = found.block().map(|block| BlockNo(block.0 + 1));
                true
            })?;
        }
        Ok(after)
    }

    /// Inserts blocks. On an error, also returns how many were inserted.
    fn insert<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        blocks: &[BlockNo],
        step: Step,
    ) -> std::result::Result<(), (crate::error::Error, u64)> {
        let mut done = 0;
        while done < blocks.len() {
            let logical = first + done as u64;
            let leaf = self
                .make_leaf(op, id, logical)
                .map_err(|error| (error, done as u64))?;
            let here = leaf.map_or(1, |leaf| (leaf.end() - logical) as usize);
            let part = &blocks[done..blocks.len().min(done + here)];
            self.store_part(op.core, id, leaf, logical, part, step);
            done += part.len();
        }
        Ok(())
    }

    /// Stores the words of blocks that one leaf holds, or the inode's word.
    fn store_part<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        leaf: Option<Leaf>,
        first: u64,
        blocks: &[BlockNo],
        step: Step,
    ) {
        let flush = step.flush.filter(|flush| flush.top || leaf.is_some());
        let mut lines = Lines::new(core, flush.map(|flush| flush.site));
        for (logical, &block) in (first..).zip(blocks) {
            let at = leaf.map_or(Self::root_at(core, id), |leaf| leaf.word_at(logical));
            let word = TreeWord::new(target(block, step.to), id, logical as u32);
            lines.put_word(at, word);
        }
        lines.flush_last();
    }

    /// See [`crate::mapping::Mapping::set_state`].
    pub(super) fn put_words<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        blocks: &[BlockNo],
        step: Step,
    ) -> Result<()> {
        let mut done = 0;
        while done < blocks.len() {
            let logical = first + done as u64;
            let leaf = match self.descend(op.core, id, logical)? {
                End::Leaf(leaf) => Some(leaf),
                End::First(_) => None,
                End::Hole { .. } => return Err(damaged(id)),
            };
            let here = leaf.map_or(1, |leaf| (leaf.end() - logical) as usize);
            let part = &blocks[done..blocks.len().min(done + here)];
            self.store_part(op.core, id, leaf, logical, part, step);
            done += part.len();
        }
        Ok(())
    }

    /// The leaf of a logical block, created if there is none. `None` for block 0 of a file without
    /// other blocks, whose word is in the inode.
    fn make_leaf<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        logical: u64,
    ) -> Result<Option<Leaf>> {
        let core = op.core;
        let root_at = Self::root_at(core, id);
        let (mut node, mut level) = loop {
            match Self::target(core, root_at, id, 0)? {
                Some(TreeTarget::Node { block, level }) if logical < radix_span(level + 1) => {
                    break (block, level);
                }
                None if logical == 0 => return Ok(None),
                top => self.grow(op, id, top, logical)?,
            }
        };
        loop {
            let at = self.nodes.at(core, node)?;
            if level == 1 {
                let first = logical / RADIX_WORDS * RADIX_WORDS;
                return Ok(Some(Leaf { node, at, first }));
            }
            let span = radix_span(level);
            let first = logical / span * span;
            let word_at = at + logical / span % RADIX_WORDS * 8;
            (node, level) = match Self::target(core, word_at, id, first)? {
                Some(TreeTarget::Node { block, level: next }) if next + 1 == level => (block, next),
                Some(_) => return Err(damaged(id)),
                None => {
                    let new = self.write_node(op, TreeWord::NONE)?;
                    self.point(core, word_at, id, first, new, level - 1);
                    core.pool.flush(sites::RADIX_POINTER, word_at, 8);
                    (new, level - 1)
                }
            };
        }
    }

    /// Puts a node on top of a tree. An empty tree gets the height that `logical` needs at once.
    fn grow<M: Memories>(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        top: Option<TreeTarget>,
        logical: u64,
    ) -> Result<()> {
        let level = match top {
            Some(TreeTarget::Node { level, .. }) => level + 1,
            Some(_) => 1,
            None => (1..)
                .find(|&level| logical < radix_span(level + 1))
                .unwrap_or(1),
        };
        let root_at = Self::root_at(op.core, id);
        // The word means the same in the inode and as the first word of a node.
        let old = TreeWord(op.core.word(root_at));
        let node = self.write_node(op, old)?;
        // The caller flushes the line of this word.
        self.point(op.core, root_at, id, 0, node, level);
        Ok(())
    }

    /// Writes a node with only a first word, durably.
    #[track_caller]
    fn write_node<M: Memories>(&self, op: &Op<'_, M>, first: TreeWord) -> Result<u32> {
        let node = self.nodes.take(op)?;
        let at = self.nodes.at(op.core, node)?;
        let mut words = [0u64; RADIX_WORDS as usize];
        words[0] = first.0;
        let pool = &op.core.pool;
        pool.write_through(sites::RADIX_NODE, at, words.as_bytes());
        pool.fence(sites::RADIX_NODE_DURABLE);
        // Nothing may link a node that the medium did not accept.
        op.check_media().inspect_err(|_| {
            let slot = u64::from(node) * SLOTS_PER_BLOCK;
            op.core.free_slots(slot, SLOTS_PER_BLOCK);
        })?;
        Ok(node)
    }

    /// Stores a word that links a node.
    #[track_caller]
    fn point<M: Memories>(
        &self,
        core: &Core<M>,
        at: u64,
        id: MapId,
        first: u64,
        node: u32,
        level: u32,
    ) {
        let target = TreeTarget::Node { block: node, level };
        core.set_word(at, TreeWord::new(target, id, first as u32).0);
    }

    /// See [`crate::mapping::Mapping::release`]. What cannot be read stays, and is reported at the
    /// end.
    pub(super) fn take_out<M: Memories>(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Result<u64> {
        let core = op.core;
        let root_at = Self::root_at(core, id);
        let mut gone = Gone::default();
        let mut lines = Lines::new(core, Some(flush.site));
        let range = Range { first, end };
        let result = match Self::target(core, root_at, id, 0)? {
            None => Ok(false),
            Some(TreeTarget::Node { block, level }) => {
                self.cut(&mut lines, id, block, level, 0, range, &mut gone)
            }
            Some(_) => Ok(first == 0 && end > 0),
        };
        if let Ok(true) = result {
            let top = Self::target(core, root_at, id, 0)?;
            core.set_word(root_at, TreeWord::NONE.0);
            if flush.top {
                core.pool.flush(flush.site, root_at, 8);
            }
            self.add_target(core, top, &mut gone);
        }
        lines.flush_last();
        self.nodes.retire(core, &gone.nodes);
        self.blocks.give_up(core, &gone.blocks);
        result.map(|_| gone.blocks.blocks)
    }

    fn add_target<M: Memories>(&self, core: &Core<M>, target: Option<TreeTarget>, to: &mut Gone) {
        match target {
            Some(TreeTarget::Node { block, .. }) => self.nodes.add(core, &mut to.nodes, block),
            Some(TreeTarget::Mapped(block) | TreeTarget::Unwritten(block)) => {
                self.blocks.add(core, &mut to.blocks, BlockNo(block));
            }
            None => {}
        }
    }

    /// Removes `range` from a node that begins at logical block `first`. Returns whether nothing
    /// would be left in it. Then nothing was stored there: the caller clears the word that links
    /// it.
    #[expect(
        clippy::too_many_arguments,
        reason = "a walk down a tree, with what it collects"
    )]
    fn cut<M: Memories>(
        &self,
        lines: &mut Lines<'_, M>,
        id: MapId,
        node: u32,
        level: u32,
        first: u64,
        range: Range,
        gone: &mut Gone,
    ) -> Result<bool> {
        let core = lines.core;
        if level == 1 {
            return self.cut_leaf(lines, id, node, first, range, gone);
        }
        let at = self.nodes.at(core, node)?;
        let span = radix_span(level);
        let (mut is_empty, mut result) = (true, Ok(()));
        let mut emptied = Vec::new();
        for (index, start) in (0..RADIX_WORDS).zip((first..).step_by(span as usize)) {
            let word_at = at + index * 8;
            if core.word(word_at) == 0 {
                continue;
            }
            if !range.meets(start, span) {
                is_empty = false;
                continue;
            }
            match self.cut_child(lines, id, (word_at, level, start), range, gone) {
                Ok(None) => is_empty = false,
                Ok(target) => emptied.push((word_at, target)),
                // Blocks removed so far are cleared. This child stays linked.
                Err(error) => {
                    is_empty = false;
                    result = Err(error);
                    break;
                }
            }
        }
        for (word_at, target) in emptied {
            if !is_empty {
                lines.put_word(word_at, TreeWord::NONE);
            }
            self.add_target(core, target, gone);
        }
        result.map(|()| is_empty)
    }

    /// Removes `range` from the target of a word in a node of `level`. Returns the target if
    /// nothing is left in it.
    fn cut_child<M: Memories>(
        &self,
        lines: &mut Lines<'_, M>,
        id: MapId,
        (word_at, level, first): (u64, u32, u64),
        range: Range,
        gone: &mut Gone,
    ) -> Result<Option<TreeTarget>> {
        let target = Self::target(lines.core, word_at, id, first)?;
        match target {
            Some(TreeTarget::Node { block, level: next }) if next + 1 == level => {
                let goes = self.cut(lines, id, block, next, first, range, gone)?;
                Ok(target.filter(|_| goes))
            }
            _ => Err(damaged(id)),
        }
    }

    /// Removes `range` from a leaf. Reads all of it before it frees anything.
    fn cut_leaf<M: Memories>(
        &self,
        lines: &mut Lines<'_, M>,
        id: MapId,
        node: u32,
        first: u64,
        range: Range,
        gone: &mut Gone,
    ) -> Result<bool> {
        let core = lines.core;
        let at = self.nodes.at(core, node)?;
        let mut targets = [None; RADIX_WORDS as usize];
        let mut is_empty = true;
        for (index, logical) in (0..RADIX_WORDS).zip(first..) {
            if range.meets(logical, 1) {
                targets[index as usize] = Self::target(core, at + index * 8, id, logical)?;
            } else {
                is_empty &= core.word(at + index * 8) == 0;
            }
        }
        for (index, target) in (0..).zip(targets) {
            if target.is_some() {
                if !is_empty {
                    lines.put_word(at + index * 8, TreeWord::NONE);
                }
                self.add_target(core, target, gone);
            }
        }
        Ok(is_empty)
    }
}

const _: () = assert!(RADIX_WORDS * 8 == BLOCK_BYTES);
