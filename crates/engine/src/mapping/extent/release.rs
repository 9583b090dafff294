//! Removing blocks. The caller holds the file's lock.
//!
//! Nothing is written to a node that is removed as a whole: the word that links it is cleared.
//! Blocks and nodes are freed when no operation can find them any more.

use vellum_layout::{EXTENT_ENTRIES, ExtentKey, ExtentRoot};
use vellum_media::Memories;

use super::Tree;
use super::change::root_of;
use super::fork::Node;
use super::node::{self, Extent, key_at, line_of};
use super::pages::Pages;
use super::walk::LOGICAL_END;
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::limbo::Batch;
use crate::mapping::{BlockNo, Flush};

/// What can no longer be found.
#[derive(Default)]
struct Gone {
    extents: Vec<Extent>,
    nodes: Vec<u32>,
}

/// The logical blocks to remove.
#[derive(Clone, Copy)]
struct Range {
    first: u64,
    end: u64,
}

/// An extent of a leaf, of which all or a part is removed.
struct Hit {
    index: usize,
    old: Extent,
    part: Extent,
}

impl<M: Memories, P: Pages> Tree<'_, M, P> {
    /// See [`crate::mapping::Mapping::release`]. What cannot be read stays, and is reported at the
    /// end.
    pub(super) fn release(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        first: u64,
        end: u64,
    ) -> Result<u64> {
        let mut gone = Gone::default();
        let result = self.take_out(flush, op, Range { first, end }, &mut gone);
        if !gone.nodes.is_empty() {
            self.note_change();
            self.retire(&gone.nodes);
        }
        let mut batch = Batch::default();
        for extent in &gone.extents {
            for block in (extent.block..).take(extent.len as usize) {
                self.map.blocks.add(self.core, &mut batch, BlockNo(block));
            }
        }
        self.map.blocks.give_up(self.core, &batch);
        result.map(|()| batch.blocks)
    }

    fn take_out(&self, flush: Flush, op: &Op<'_, M>, range: Range, gone: &mut Gone) -> Result<()> {
        match self.root()? {
            ExtentRoot::Empty => Ok(()),
            ExtentRoot::Extent { block, len, state } => {
                let whole = Extent {
                    logical: 0,
                    len,
                    block,
                    state,
                };
                self.take_from_root(flush, op, whole, range, gone)
            }
            ExtentRoot::Node { node, level } => {
                if self.take_from_inside(flush, op, (node, level), range, gone)? {
                    return Ok(());
                }
                let is_empty = self.take_from(flush, op, node, level, LOGICAL_END, range, gone)?;
                if is_empty {
                    self.put_root(ExtentRoot::Empty, Some(flush));
                    gone.nodes.push(node);
                }
                Ok(())
            }
        }
    }

    /// Removes blocks from a file that has one extent.
    fn take_from_root(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        whole: Extent,
        range: Range,
        gone: &mut Gone,
    ) -> Result<()> {
        let Some(part) = whole.part(range.first, range.end) else {
            return Ok(());
        };
        if part == whole {
            self.put_root(ExtentRoot::Empty, Some(flush));
        } else if let Some(front) = whole.part(0, part.first())
            && part.end() == whole.end()
        {
            self.put_root(root_of(front), Some(flush));
        } else {
            let mut rest = vec![whole];
            node::cut(&mut rest, part.first(), part.end());
            self.build(op, &rest)?;
        }
        gone.extents.push(part);
        Ok(())
    }

    /// Removes blocks from the middle of one extent, if the range is there. The blocks after it
    /// need an entry of their own.
    fn take_from_inside(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        (top, level): (u32, u32),
        range: Range,
        gone: &mut Gone,
    ) -> Result<bool> {
        let path = self.path(top, level, range.first)?;
        let Some(leaf) = path.leaf else {
            return Ok(false);
        };
        let Some(index) = self.floor(leaf, range.first)? else {
            return Ok(false);
        };
        let Some(old) = self.extent_at(leaf, index, path.high)? else {
            return Ok(false);
        };
        let parts = (
            old.part(0, range.first),
            old.part(range.first, range.end),
            old.part(range.end, u64::MAX),
        );
        let (Some(front), Some(part), Some(back)) = parts else {
            return Ok(false);
        };
        match self.spot(leaf, Some(index), back) {
            Some(spot) => {
                self.put_entry(op, leaf, spot, back);
                self.order(leaf, spot, index, key_at);
                self.put_key(op, leaf, index, front.key(self.seal));
                self.flush_entry(Some(flush), leaf, index);
            }
            None => self.rewrite(op, &path, leaf, |extents| {
                node::cut(extents, part.first(), part.end());
            })?,
        }
        gone.extents.push(part);
        Ok(true)
    }

    /// Removes blocks from a node that covers blocks before `high`. Returns whether nothing would
    /// be left in it. Then nothing was stored there: the caller clears what links the node.
    #[expect(
        clippy::too_many_arguments,
        reason = "a walk down a tree, with what it collects"
    )]
    fn take_from(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        number: u32,
        level: u32,
        high: u64,
        range: Range,
        gone: &mut Gone,
    ) -> Result<bool> {
        let node = self.open(number, level)?;
        if level == 0 {
            return self.take_from_leaf(flush, op, node, high, range, gone);
        }
        let mut result = Ok(());
        let mut emptied = Vec::new();
        let mut is_empty = true;
        for index in 0..EXTENT_ENTRIES {
            let (key, next) = (self.key(node, index), self.key(node, index + 1));
            if !key.is_used() {
                break;
            }
            let low = u64::from(key.logical());
            let until = if next.is_used() {
                high.min(next.logical().into())
            } else {
                high
            };
            let is_met = low < range.end && range.first < until;
            let taken = match self.child(node, index, level) {
                Ok(None) => continue,
                Ok(Some(child)) if is_met => self
                    .take_from(flush, op, child, level - 1, until, range, gone)
                    .map(|goes| goes.then_some(child)),
                Ok(Some(_)) => Ok(None),
                Err(error) => Err(error),
            };
            match taken {
                Ok(Some(child)) => emptied.push((index, child)),
                Ok(None) => is_empty = false,
                // Entries removed so far are cleared. This child stays linked.
                Err(error) => {
                    is_empty = false;
                    result = Err(error);
                    break;
                }
            }
        }
        if !is_empty {
            let entries = emptied.iter().map(|&(index, _)| index);
            self.clear(flush, op, node, entries);
        }
        gone.nodes.extend(emptied.iter().map(|&(_, child)| child));
        result.map(|()| is_empty)
    }

    fn take_from_leaf(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        leaf: Node,
        high: u64,
        range: Range,
        gone: &mut Gone,
    ) -> Result<bool> {
        let mut hits = Vec::new();
        let mut is_empty = true;
        for index in 0..EXTENT_ENTRIES {
            if !self.key(leaf, index).is_used() {
                break;
            }
            let Some(old) = self.extent_at(leaf, index, high)? else {
                continue;
            };
            match old.part(range.first, range.end) {
                None => is_empty = false,
                Some(part) => {
                    is_empty &= part == old;
                    hits.push(Hit { index, old, part });
                }
            }
        }
        if !is_empty {
            for hit in &hits {
                self.cut_entry(op, leaf, hit);
            }
            self.flush_lines(flush, leaf, hits.iter().map(|hit| hit.index));
        }
        gone.extents.extend(hits.iter().map(|hit| hit.part));
        Ok(is_empty)
    }

    /// Removes the front, the back, or all of an extent.
    fn cut_entry(&self, op: &Op<'_, M>, leaf: Node, hit: &Hit) {
        let Hit { index, old, part } = *hit;
        let front = old.part(0, part.first());
        let back = old.part(part.end(), u64::MAX);
        let key = match front.or(back) {
            Some(rest) => rest.key(self.seal),
            None => self.without_valid(self.key(leaf, index)),
        };
        self.put_key(op, leaf, index, key);
    }

    /// A key that only keeps its place in the order.
    fn without_valid(&self, key: ExtentKey) -> ExtentKey {
        ExtentKey::new(self.seal, key.logical(), key.len(), false)
    }

    fn clear(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        node: Node,
        entries: impl Iterator<Item = usize> + Clone,
    ) {
        for index in entries.clone() {
            self.put_key(op, node, index, self.without_valid(self.key(node, index)));
        }
        self.flush_lines(flush, node, entries);
    }

    /// Flushes the lines of entries in order, each line once.
    #[track_caller]
    fn flush_lines(&self, flush: Flush, node: Node, entries: impl Iterator<Item = usize>) {
        let mut flushed = None;
        for index in entries {
            if flushed.replace(line_of(index)) != Some(line_of(index)) {
                self.flush_entry(Some(flush), node, index);
            }
        }
    }
}
