//! Finding out which blocks and nodes are in use, by reading every tree.

use vellum_layout::{MapState, RADIX_WORDS, TreeTarget, radix_span};
use vellum_media::{Memories, Persistent};

use super::{Radix, damaged};
use crate::core::Core;
use crate::error::Result;
use crate::mapping::{BlockNo, MapId, Survey, Verdict};
use crate::sites;

/// Result of reading a tree.
#[derive(Default)]
struct Tree {
    nodes: Vec<u32>,
    kept: Vec<BlockNo>,
    /// Offsets of the words of blocks to be freed.
    freed: Vec<u64>,
}

impl Radix {
    /// See [`crate::mapping::Mapping::rebuild`].
    pub(super) fn rebuild_allocator_state<M: Memories>(
        &self,
        core: &Core<M>,
        survey: &dyn Survey,
    ) -> Result<()> {
        self.blocks.begin_rebuild(core);
        survey.for_each_file(&mut |id| match self.rebuild_file(core, survey, id) {
            // A read-only opening does without the rest of a damaged tree.
            Err(_) if core.read_only => Ok(()),
            done => done,
        })?;
        self.blocks.end_rebuild(core);
        Ok(())
    }

    fn rebuild_file<M: Memories>(
        &self,
        core: &Core<M>,
        survey: &dyn Survey,
        id: MapId,
    ) -> Result<()> {
        let mut tree = Tree::default();
        let root_at = Self::root_at(core, id);
        match Self::target(core, root_at, id, 0)? {
            None => return Ok(()),
            Some(TreeTarget::Node { block, level }) => {
                self.read_node(core, survey, id, block, level, 0, &mut tree)?;
            }
            Some(first) => tree.judge(survey, id, 0, root_at, first)?,
        }
        if tree.kept.is_empty() {
            // No node is needed either. Clearing the root word removes everything below it.
            tree.nodes.clear();
            tree.freed = vec![root_at];
        }
        for &at in &tree.freed {
            core.set_word(at, 0);
            core.pool.flush(sites::RECOVER_TREE, at, 8);
        }
        for block in tree.kept {
            self.blocks.note_used(core, block)?;
        }
        if survey.marks_slots() {
            for node in tree.nodes {
                self.nodes.note_used(core, node)?;
            }
        }
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a walk down a tree, with what it collects"
    )]
    fn read_node<M: Memories>(
        &self,
        core: &Core<M>,
        survey: &dyn Survey,
        id: MapId,
        node: u32,
        level: u32,
        first: u64,
        tree: &mut Tree,
    ) -> Result<()> {
        let at = self.nodes.at(core, node)?;
        tree.nodes.push(node);
        let span = radix_span(level);
        for (index, start) in (0..RADIX_WORDS).zip((first..).step_by(span as usize)) {
            let word_at = at + index * 8;
            if core.word(word_at) == 0 {
                continue;
            }
            match Self::target(core, word_at, id, start)? {
                Some(TreeTarget::Node { block, level: next }) if next + 1 == level => {
                    self.read_node(core, survey, id, block, next, start, tree)?;
                }
                Some(target) if level == 1 => tree.judge(survey, id, start, word_at, target)?,
                _ => return Err(damaged(id)),
            }
        }
        Ok(())
    }
}

impl Tree {
    fn judge(
        &mut self,
        survey: &dyn Survey,
        id: MapId,
        logical: u64,
        word_at: u64,
        target: TreeTarget,
    ) -> Result<()> {
        let (block, state) = match target {
            TreeTarget::Mapped(block) => (block, MapState::Mapped),
            TreeTarget::Unwritten(block) => (block, MapState::Unwritten),
            TreeTarget::Node { .. } => return Err(damaged(id)),
        };
        match survey.judge(id, logical as u32, state) {
            Verdict::Keep => self.kept.push(BlockNo(block)),
            Verdict::Free => self.freed.push(word_at),
        }
        Ok(())
    }
}
