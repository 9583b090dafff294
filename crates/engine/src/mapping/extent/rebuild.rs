//! Finding out which blocks and nodes are in use, by reading every tree. Also tidies up after a
//! crash: blocks that do not belong to the file are removed, and an extent is cut off where the
//! next one begins.

use vellum_layout::{EXTENT_ENTRIES, ExtentKey, ExtentRoot};
use vellum_media::{Memories, Persistent};

use super::change::root_of;
use super::fork::Node;
use super::node::{Extent, key_at};
use super::pages::Pages;
use super::walk::LOGICAL_END;
use super::{ExtentTrees, Tree, damaged};
use crate::core::Core;
use crate::error::Result;
use crate::mapping::{BlockNo, Survey, Verdict};
use crate::sites;

/// Result of reading a tree.
#[derive(Default)]
struct Read {
    nodes: Vec<u32>,
    kept: Vec<Extent>,
    /// Words to be stored: pool offset and value.
    stores: Vec<(u64, u64)>,
}

impl<P: Pages> ExtentTrees<P> {
    /// See [`crate::mapping::Mapping::rebuild`].
    pub(super) fn rebuild_allocator_state<M: Memories>(
        &self,
        core: &Core<M>,
        survey: &dyn Survey,
    ) -> Result<()> {
        self.blocks.begin_rebuild(core);
        survey.for_each_file(&mut |id| match self.tree(core, id).rebuild(survey) {
            // A read-only opening does without the rest of a damaged tree.
            Err(_) if core.read_only => Ok(()),
            done => done,
        })?;
        self.blocks.end_rebuild(core);
        Ok(())
    }
}

impl<M: Memories, P: Pages> Tree<'_, M, P> {
    fn rebuild(&self, survey: &dyn Survey) -> Result<()> {
        let mut read = Read::default();
        match self.root()? {
            ExtentRoot::Empty => return Ok(()),
            ExtentRoot::Extent { block, len, state } => {
                let whole = Extent {
                    logical: 0,
                    len,
                    block,
                    state,
                };
                if let Some(kept) = self.judge(survey, whole) {
                    if kept != whole {
                        let word = root_of(kept).word(self.seal);
                        read.stores.push((self.root_at(), word));
                    }
                    read.kept.push(kept);
                }
            }
            ExtentRoot::Node { node, level } => {
                self.read_node(survey, node, level, 0, LOGICAL_END, &mut read)?;
            }
        }
        if read.kept.is_empty() {
            // No node is needed either. Clearing the root word removes everything below it.
            read.nodes.clear();
            read.stores = vec![(self.root_at(), ExtentRoot::Empty.word(self.seal))];
        }
        self.settle(survey, &read)
    }

    fn settle(&self, survey: &dyn Survey, read: &Read) -> Result<()> {
        for &(at, word) in &read.stores {
            self.core.set_word(at, word);
            self.core.pool.flush(sites::RECOVER_EXTENT, at, 8);
        }
        for extent in &read.kept {
            for block in (extent.block..).take(extent.len as usize) {
                self.map.blocks.note_used(self.core, BlockNo(block))?;
            }
        }
        if survey.marks_slots() {
            for &node in &read.nodes {
                self.map.nodes.note_used(self.core, node)?;
            }
        }
        Ok(())
    }

    /// Reads a node that covers blocks `[low, high)`.
    fn read_node(
        &self,
        survey: &dyn Survey,
        number: u32,
        level: u32,
        low: u32,
        high: u64,
        read: &mut Read,
    ) -> Result<()> {
        let node = self.open_first(number, level, low)?;
        read.nodes.push(number);
        let (mut least, mut ended) = (u64::from(low), false);
        for index in 0..EXTENT_ENTRIES {
            let (key, next) = (self.key(node, index), self.key(node, index + 1));
            if !key.is_used() {
                ended = true;
                continue;
            }
            let logical = u64::from(key.logical());
            let is_placed = !ended && (least..high).contains(&logical);
            let is_level = !key.is_empty() && (level == 0 || key.len() == level);
            if !key.is_sound(self.seal) || !is_placed || !is_level {
                return Err(damaged(self.id));
            }
            least = logical + 1;
            let until = if next.is_used() {
                high.min(next.logical().into())
            } else {
                high
            };
            if level == 0 {
                self.read_entry(survey, node, index, until, read)?;
            } else if let Some(child) = self.child(node, index, level)? {
                self.read_node(survey, child, level - 1, key.logical(), until, read)?;
            }
        }
        Ok(())
    }

    /// Reads an entry of a leaf, which covers blocks before `until`.
    fn read_entry(
        &self,
        survey: &dyn Survey,
        leaf: Node,
        index: usize,
        until: u64,
        read: &mut Read,
    ) -> Result<()> {
        let Some(extent) = self.extent_at(leaf, index, until)? else {
            return Ok(());
        };
        let key = self.key(leaf, index);
        let kept = self.judge(survey, extent);
        let word = match kept {
            Some(kept) => kept.key(self.seal),
            None => ExtentKey::new(self.seal, key.logical(), key.len(), false),
        };
        if word != key {
            read.stores.push((leaf.at + key_at(index), word.0));
        }
        read.kept.extend(kept);
        Ok(())
    }

    /// The part of an extent that recovery keeps. MAPPED blocks belong to a file up to its size,
    /// UNWRITTEN blocks everywhere.
    fn judge(&self, survey: &dyn Survey, extent: Extent) -> Option<Extent> {
        let stays =
            |&logical: &u64| survey.judge(self.id, logical as u32, extent.state) == Verdict::Keep;
        let kept = (extent.first()..extent.end()).take_while(stays).count();
        extent.part(0, extent.first() + kept as u64)
    }
}
