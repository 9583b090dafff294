//! Inserting extents and changing their states. The caller holds the file's lock.

use vellum_layout::{EXTENT_ENTRIES, ExtentRoot, MapState};
use vellum_media::{Memories, Persistent};

use super::fork::{Node, Path};
use super::node::{self, Extent, body_at, key_at, line_of};
use super::pages::Pages;
use super::{Tree, damaged};
use crate::core::slots::Op;
use crate::error::{Error, Result};
use crate::mapping::{BlockNo, Flush, Reservation, Step};
use crate::sites;

/// The offset in a node of one of an entry's words.
type Offset = fn(usize) -> u64;

impl<M: Memories, P: Pages> Tree<'_, M, P> {
    /// See [`crate::mapping::Mapping::claim`].
    pub(super) fn claim(
        &self,
        op: &Op<'_, M>,
        first: u64,
        step: Step,
        from: &mut Reservation,
        out: &mut [BlockNo],
    ) -> Result<()> {
        let mut goal = self.block_after(op, first)?;
        let mut done = 0;
        while done < out.len() {
            let (logical, want) = (first + done as u64, (out.len() - done) as u64);
            let (block, count) = self.map.blocks.take(op, from, logical, goal, want)?;
            let taken = &mut out[done..done + count as usize];
            for (out, block) in taken.iter_mut().zip(block.0..) {
                *out = BlockNo(block);
            }
            let new = Extent {
                logical: logical as u32,
                len: count as u32,
                block: block.0,
                state: step.to,
            };
            if let Err((error, left)) = self.insert(op, new, step.flush) {
                let (block, count) = (BlockNo(left.block), left.len.into());
                self.map.blocks.put_back(op, from, block, count);
                return Err(error);
            }
            goal = Some(BlockNo(block.0 + count as u32));
            done += count as usize;
        }
        Ok(())
    }

    /// The block after that of the logical block before `logical`.
    fn block_after(&self, op: &Op<'_, M>, logical: u64) -> Result<Option<BlockNo>> {
        let mut after = None;
        let before = logical.saturating_sub(1);
        self.each(op, before, logical, &mut |extent| {
            after = Some(BlockNo(extent.block + 1));
            true
        })?;
        Ok(after)
    }

    /// Inserts an extent into a hole. On an error, also returns the part of it that was not
    /// inserted.
    fn insert(
        &self,
        op: &Op<'_, M>,
        new: Extent,
        flush: Option<Flush>,
    ) -> std::result::Result<(), (Error, Extent)> {
        let mut rest = Some(new);
        while let Some(extent) = rest {
            let end = self
                .insert_part(op, extent, flush)
                .map_err(|error| (error, extent))?;
            rest = extent.part(end, u64::MAX);
        }
        Ok(())
    }

    /// Inserts as much of an extent as one leaf takes. Returns the end of this part.
    fn insert_part(&self, op: &Op<'_, M>, extent: Extent, flush: Option<Flush>) -> Result<u64> {
        let whole = match self.root()? {
            ExtentRoot::Node { node, level } => {
                let path = self.path(node, level, extent.first())?;
                let part = extent.part(0, path.high);
                let part = part.ok_or_else(|| damaged(self.id))?;
                self.insert_at(op, &path, part, flush)?;
                return Ok(part.end());
            }
            ExtentRoot::Empty => None,
            ExtentRoot::Extent { block, len, state } => Some(Extent {
                logical: 0,
                len,
                block,
                state,
            }),
        };
        // If a write claims blocks without a flush, their extent stays separate, so that one store
        // can make it MAPPED.
        let one = match whole {
            None => Some(extent).filter(|extent| extent.logical == 0),
            Some(whole) => whole.joined(&extent).filter(|_| flush.is_some()),
        };
        match one {
            // The caller flushes the line of this word.
            Some(one) => self.set_root(root_of(one)),
            None => {
                let mut extents: Vec<Extent> = whole.into_iter().collect();
                node::add(&mut extents, extent);
                self.build(op, &extents)?;
            }
        }
        Ok(extent.end())
    }

    fn insert_at(
        &self,
        op: &Op<'_, M>,
        path: &Path,
        extent: Extent,
        flush: Option<Flush>,
    ) -> Result<()> {
        let Some(leaf) = path.leaf else {
            return self.graft(op, path, extent);
        };
        let floor = self.floor(leaf, extent.first())?;
        if self.insert_in_place(op, path, leaf, floor, extent, flush)?
            || floor == Some(EXTENT_ENTRIES - 1) && self.append(op, path, extent)?
        {
            return Ok(());
        }
        self.rewrite(op, path, leaf, |extents| node::add(extents, extent))
    }

    /// Lengthens the preceding extent, or uses an entry that is not valid. Returns whether either
    /// was possible.
    fn insert_in_place(
        &self,
        op: &Op<'_, M>,
        path: &Path,
        leaf: Node,
        floor: Option<usize>,
        extent: Extent,
        flush: Option<Flush>,
    ) -> Result<bool> {
        if let Some(index) = floor
            && flush.is_some()
            && let Some(before) = self.extent_at(leaf, index, path.high)?
            && let Some(one) = before.joined(&extent)
            && self.reaches(leaf, index + 1, one.end())
        {
            self.put_key(op, leaf, index, one.key(self.seal));
            self.flush_entry(flush, leaf, index);
            return Ok(true);
        }
        let Some(spot) = self.spot(leaf, floor, extent) else {
            return Ok(false);
        };
        let old = self.key(leaf, spot);
        self.put_entry(op, leaf, spot, extent);
        let moves = old.is_used() && old.logical() != extent.logical;
        // A neighbour in the next line that is used later may get a key that is out of order with
        // the old key of this entry.
        match self.beyond_line(spot).filter(|_| moves) {
            Some(other) => self.order(leaf, spot, other, key_at),
            None => self.flush_entry(flush, leaf, spot),
        }
        Ok(true)
    }

    /// The neighbour of an entry that lies in another line.
    fn beyond_line(&self, index: usize) -> Option<usize> {
        let beside = [index.checked_sub(1), Some(index + 1)];
        let mut beside = beside.into_iter().flatten();
        beside.find(|&other| line_of(other) != line_of(index))
    }

    /// Whether no entry from `index` on begins before `end`.
    fn reaches(&self, leaf: Node, index: usize, end: u64) -> bool {
        let next = self.key(leaf, index);
        !next.is_used() || u64::from(next.logical()) >= end
    }

    /// Finds an entry that an extent with the floor `floor` can be stored in without moving others:
    /// the floor or the next entry, if that is not valid, and no other entry hides a part of the
    /// extent.
    pub(super) fn spot(&self, leaf: Node, floor: Option<usize>, extent: Extent) -> Option<usize> {
        let fits = |index: usize| {
            index < EXTENT_ENTRIES
                && !self.key(leaf, index).is_valid()
                && self.reaches(leaf, index + 1, extent.end())
        };
        match floor {
            Some(index) if fits(index) => Some(index),
            Some(index) if self.key(leaf, index).logical() == extent.logical => None,
            Some(index) => Some(index + 1).filter(|&next| fits(next)),
            None => Some(0).filter(|&first| fits(first)),
        }
    }

    /// Stores the body first: stores to one line persist in order.
    #[track_caller]
    pub(super) fn put_entry(&self, op: &Op<'_, M>, leaf: Node, index: usize, extent: Extent) {
        self.put_body(op, leaf, index, extent.body(self.seal));
        let [key, body] = [key_at(index), body_at(index)].map(|offset| leaf.at + offset);
        self.core
            .pool
            .behind(sites::EXTENT_KEY_BEHIND, key, &[body]);
        self.put_key(op, leaf, index, extent.key(self.seal));
    }

    /// Makes the stores to entry `earlier` persist before all later stores to entry `later`, of
    /// which the word at `next` is first. Within one line they do so by themselves.
    #[inline]
    #[track_caller]
    pub(super) fn order(&self, leaf: Node, earlier: usize, later: usize, next: Offset) {
        if line_of(earlier) != line_of(later) {
            self.flush_entry(Some(Flush::all(sites::EXTENT_BORDER)), leaf, earlier);
            self.core.pool.fence(sites::EXTENT_BORDER_DURABLE);
        }
        let (earlier, later) = (leaf.at + key_at(earlier), leaf.at + next(later));
        let site = sites::EXTENT_BORDER_BEHIND;
        self.core.pool.behind(site, later, &[earlier]);
    }

    /// See [`crate::mapping::Mapping::set_state`]. Begins with the extents that reach over the ends
    /// of the range, because only they need space; each can be changed back without any.
    pub(super) fn set_states(
        &self,
        op: &Op<'_, M>,
        first: u64,
        end: u64,
        step: Step,
    ) -> Result<()> {
        let mut parts = Vec::new();
        let mut blocks = 0;
        self.each(op, first, end, &mut |extent| {
            blocks += u64::from(extent.len);
            if extent.state != step.to {
                parts.push(extent);
            }
            true
        })?;
        if blocks != end - first {
            return Err(damaged(self.id));
        }
        let Some(last) = parts.pop() else {
            return Ok(());
        };
        self.set_state(op, last, step.to, step.flush)?;
        for &part in &parts {
            if let Err(error) = self.set_state(op, part, step.to, step.flush) {
                self.set_state(op, last, last.state, step.flush)?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Changes the state of `part`, which is an extent or a part of one.
    fn set_state(
        &self,
        op: &Op<'_, M>,
        part: Extent,
        state: MapState,
        flush: Option<Flush>,
    ) -> Result<()> {
        let path = match self.root()? {
            ExtentRoot::Node { node, level } => self.path(node, level, part.first())?,
            ExtentRoot::Extent {
                block,
                len,
                state: old,
            } => {
                let whole = Extent {
                    logical: 0,
                    len,
                    block,
                    state: old,
                };
                if part == whole {
                    // The caller flushes the line of this word, with times or size.
                    self.set_root(root_of(Extent { state, ..whole }));
                    return Ok(());
                }
                let mut extents = vec![whole];
                node::set_state(&mut extents, part.first(), part.end(), state);
                return self.build(op, &extents);
            }
            ExtentRoot::Empty => return Err(damaged(self.id)),
        };
        let leaf = path.leaf.ok_or_else(|| damaged(self.id))?;
        let index = self
            .floor(leaf, part.first())?
            .ok_or_else(|| damaged(self.id))?;
        let old = self.extent_at(leaf, index, path.high)?;
        let old = old.ok_or_else(|| damaged(self.id))?;
        let new = Extent { state, ..part };
        let is_done = if part == old {
            self.put_body(op, leaf, index, new.body(self.seal));
            self.join_last(op, leaf, index, new)?;
            self.flush_entry(flush, leaf, index);
            true
        } else if part.first() == old.first() {
            self.move_border_up(op, leaf, index, old, new, flush)?
                || self.split_front(op, leaf, index, old, new, flush)
        } else if part.end() == old.end() {
            self.move_border_down(op, &path, leaf, index, old, new, flush)?
                || self.split_back(op, leaf, index, old, new, flush)
        } else {
            false
        };
        if is_done {
            return Ok(());
        }
        self.rewrite(op, &path, leaf, |extents| {
            node::set_state(extents, part.first(), part.end(), state);
        })
    }

    /// Joins the last extent of a leaf, which became MAPPED, to the extent before it if both are in
    /// one line. The longer key persists before the last entry is removed.
    fn join_last(&self, op: &Op<'_, M>, leaf: Node, index: usize, last: Extent) -> Result<()> {
        let Some(front) = index.checked_sub(1) else {
            return Ok(());
        };
        if last.state == MapState::Mapped
            && line_of(front) == line_of(index)
            && !self.key(leaf, index + 1).is_used()
            && let Some(before) = self.extent_at(leaf, front, last.first())?
            && let Some(one) = before.joined(&last)
        {
            self.put_key(op, leaf, front, one.key(self.seal));
            let [front, last] = [front, index].map(|index| leaf.at + key_at(index));
            self.core
                .pool
                .behind(sites::EXTENT_JOIN_BEHIND, last, &[front]);
            self.put_key(op, leaf, index, vellum_layout::ExtentKey(0));
        }
        Ok(())
    }

    /// Moves the front of an extent to the extent before it.
    fn move_border_up(
        &self,
        op: &Op<'_, M>,
        leaf: Node,
        index: usize,
        old: Extent,
        front: Extent,
        flush: Option<Flush>,
    ) -> Result<bool> {
        let Some(before) = index.checked_sub(1) else {
            return Ok(false);
        };
        let grown = self
            .extent_at(leaf, before, old.first())?
            .and_then(|before| before.joined(&front));
        let (Some(grown), Some(rest)) = (grown, old.part(front.end(), u64::MAX)) else {
            return Ok(false);
        };
        self.put_key(op, leaf, before, grown.key(self.seal));
        self.order(leaf, before, index, key_at);
        self.put_key(op, leaf, index, rest.key(self.seal));
        self.flush_entry(flush, leaf, index);
        Ok(true)
    }

    /// Moves the back of an extent to the extent after it.
    #[expect(
        clippy::too_many_arguments,
        reason = "an entry of a leaf, and its change"
    )]
    fn move_border_down(
        &self,
        op: &Op<'_, M>,
        path: &Path,
        leaf: Node,
        index: usize,
        old: Extent,
        back: Extent,
        flush: Option<Flush>,
    ) -> Result<bool> {
        let behind = index + 1;
        if behind == EXTENT_ENTRIES {
            return Ok(false);
        }
        let grown = self
            .extent_at(leaf, behind, path.high)?
            .and_then(|behind| back.joined(&behind));
        let (Some(grown), Some(rest)) = (grown, old.part(0, back.first())) else {
            return Ok(false);
        };
        self.put_key(op, leaf, behind, grown.key(self.seal));
        self.order(leaf, behind, index, key_at);
        self.put_key(op, leaf, index, rest.key(self.seal));
        self.flush_entry(flush, leaf, index);
        Ok(true)
    }

    /// Changes the state of an extent's front. The rest gets an entry of its own after it.
    fn split_front(
        &self,
        op: &Op<'_, M>,
        leaf: Node,
        index: usize,
        old: Extent,
        front: Extent,
        flush: Option<Flush>,
    ) -> bool {
        let Some(rest) = old.part(front.end(), u64::MAX) else {
            return false;
        };
        let Some(spot) = self.spot(leaf, Some(index), rest) else {
            return false;
        };
        self.put_entry(op, leaf, spot, rest);
        self.order(leaf, spot, index, body_at);
        // The next entry already bounds this one.
        self.put_body(op, leaf, index, front.body(self.seal));
        self.put_key(op, leaf, index, front.key(self.seal));
        self.flush_entry(flush, leaf, index);
        true
    }

    /// Changes the state of an extent's back, which gets an entry of its own.
    fn split_back(
        &self,
        op: &Op<'_, M>,
        leaf: Node,
        index: usize,
        old: Extent,
        back: Extent,
        flush: Option<Flush>,
    ) -> bool {
        let Some(rest) = old.part(0, back.first()) else {
            return false;
        };
        let Some(spot) = self.spot(leaf, Some(index), back) else {
            return false;
        };
        self.put_entry(op, leaf, spot, back);
        self.order(leaf, spot, index, key_at);
        self.put_key(op, leaf, index, rest.key(self.seal));
        self.flush_entry(flush, leaf, index);
        true
    }
}

/// The root word of a file with a single extent, from its first block on.
pub(super) fn root_of(extent: Extent) -> ExtentRoot {
    let Extent {
        block, len, state, ..
    } = extent;
    ExtentRoot::Extent { block, len, state }
}
