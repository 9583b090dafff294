//! The writer's path through a tree, and new nodes that replace old ones. The caller holds the
//! file's lock.
//!
//! New nodes are written past the cache and fenced; then one word links them. This module flushes
//! that word, whatever the caller flushes, because later flushes of the caller may lie in the new
//! nodes.

use smallvec::SmallVec;
use vellum_layout::{
    EXTENT_ENTRIES, EXTENT_MAX_LEVEL, ExtentBody, ExtentKey, ExtentKind, ExtentNodeHead,
    ExtentRoot, SLOTS_PER_BLOCK,
};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent};
use zerocopy::IntoBytes;

use super::node::{self, Entry, Extent, body_at, key_at, line_of};
use super::pages::Pages;
use super::walk::LOGICAL_END;
use super::{Tree, damaged};
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::Flush;
use crate::mapping::limbo::Batch;
use crate::sites;

/// A node that a writer works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) number: u32,
    /// Pool offset.
    pub(super) at: u64,
}

/// An inner node, and the entry through which a path continues.
#[derive(Clone, Copy, Debug)]
struct Fork {
    node: Node,
    index: usize,
}

/// The path from the top of a tree to the leaf of a logical block.
pub(super) struct Path {
    /// From the top down.
    forks: SmallVec<[Fork; 4]>,
    /// `None` if the last entry of the path is not valid.
    pub(super) leaf: Option<Node>,
    /// Level of the top node.
    level: u32,
    /// The first logical block of the leaf.
    low: u32,
    /// The first logical block after the leaf.
    pub(super) high: u64,
}

/// A node to be linked, and its first logical block.
type Child = (u32, u32);

/// The nodes that one change creates and replaces.
#[derive(Default)]
struct Draft {
    made: SmallVec<[u32; 4]>,
    replaced: SmallVec<[u32; 4]>,
}

/// A place to link a new last leaf.
#[derive(Clone, Copy)]
enum Room {
    /// An entry of a node of this level.
    Entry(Node, usize, u32),
    /// A new top node.
    Top,
}

/// The word or entry that links new nodes to the tree.
enum Link {
    Root(Child, u32),
    /// The body of this entry, which gets another node.
    Body(Fork, u32),
    /// An entry that was not valid.
    Entry(Node, usize, u32, Child),
}

impl<M: Memories, P: Pages> Tree<'_, M, P> {
    pub(super) fn key(&self, node: Node, index: usize) -> ExtentKey {
        if index >= EXTENT_ENTRIES {
            return ExtentKey(0);
        }
        ExtentKey(self.core.word(node.at + key_at(index)))
    }

    pub(super) fn body(&self, node: Node, index: usize) -> ExtentBody {
        ExtentBody(self.core.word(node.at + body_at(index)))
    }

    /// The last used entry of a node whose key is not above `at`.
    pub(super) fn floor(&self, node: Node, at: u64) -> Result<Option<usize>> {
        let floor = node::floor(|offset| self.core.word(node.at + offset), at);
        // If a damaged key misleads the search, it is one of the two keys between which the search
        // ends.
        let next = floor.map_or(0, |floor| floor + 1);
        for index in [floor.unwrap_or(0), next] {
            let key = self.key(node, index);
            if key.is_used() && !key.is_sound(self.seal) {
                return Err(damaged(self.id));
            }
        }
        Ok(floor)
    }

    /// The extent of a leaf's entry up to where the next entry begins, or up to the leaf's end
    /// `high`. `None` if the entry is not valid.
    pub(super) fn extent_at(&self, leaf: Node, index: usize, high: u64) -> Result<Option<Extent>> {
        let key = self.key(leaf, index);
        if key.is_used() && !key.is_sound(self.seal) {
            return Err(damaged(self.id));
        }
        if !key.is_valid() {
            return Ok(None);
        }
        let body = self.body(leaf, index);
        let extent = Extent::of(key, body).filter(|_| body.is_sound(self.seal));
        let next = self.key(leaf, index + 1);
        let until = if next.is_used() {
            high.min(next.logical().into())
        } else {
            high
        };
        extent
            .ok_or_else(|| damaged(self.id))
            .map(|extent| extent.part(0, until))
    }

    #[inline]
    #[track_caller]
    pub(super) fn put_key(&self, op: &Op<'_, M>, node: Node, index: usize, key: ExtentKey) {
        self.put(op, node, key_at(index), key.0);
    }

    #[inline]
    #[track_caller]
    pub(super) fn put_body(&self, op: &Op<'_, M>, node: Node, index: usize, body: ExtentBody) {
        self.put(op, node, body_at(index), body.0);
    }

    #[inline]
    #[track_caller]
    fn put(&self, op: &Op<'_, M>, node: Node, offset: u64, value: u64) {
        self.core.set_word(node.at + offset, value);
        self.map.pages.stored(op, node.number, offset, value);
    }

    /// Flushes the line of an entry, if the caller wants that.
    #[inline]
    #[track_caller]
    pub(super) fn flush_entry(&self, flush: Option<Flush>, node: Node, index: usize) {
        if let Some(Flush { site, .. }) = flush {
            let at = node.at + line_of(index);
            self.core.pool.flush(site, at, LINE_BYTES);
        }
    }

    /// Stores the root word of the tree.
    #[inline]
    #[track_caller]
    pub(super) fn set_root(&self, root: ExtentRoot) {
        self.core.set_word(self.root_at(), root.word(self.seal));
    }

    /// Stores the root word, and flushes it if `flush` includes the top. Does not fence.
    #[inline]
    #[track_caller]
    pub(super) fn put_root(&self, root: ExtentRoot, flush: Option<Flush>) {
        self.set_root(root);
        if let Some(Flush { site, top: true }) = flush {
            self.core.pool.flush(site, self.root_at(), 8);
        }
    }

    /// Opens a node of a level, if its head is sound.
    pub(super) fn open(&self, number: u32, level: u32) -> Result<Node> {
        let at = self.map.nodes.at(self.core, number)?;
        let mut head = ExtentNodeHead::default();
        self.core.pool.read(at, head.as_mut_bytes());
        if head.is_sound(number) && head.owner == self.id && head.level == level {
            Ok(Node { number, at })
        } else {
            Err(damaged(self.id))
        }
    }

    /// Opens a node that must belong to this generation of the file and begin with logical block
    /// `first`.
    pub(super) fn open_first(&self, number: u32, level: u32, first: u32) -> Result<Node> {
        let node = self.open(number, level)?;
        let mut head = ExtentNodeHead::default();
        self.core.pool.read(node.at, head.as_mut_bytes());
        let generation = self.core.identity_on_pool(self.id.into()).generation();
        if (head.first, head.generation) == (first, generation) {
            Ok(node)
        } else {
            Err(damaged(self.id))
        }
    }

    /// The node that an entry of an inner node links. `None` if the entry is not valid.
    pub(super) fn child(&self, node: Node, index: usize, level: u32) -> Result<Option<u32>> {
        let key = self.key(node, index);
        if !key.is_sound(self.seal) || key.len() != level {
            return Err(damaged(self.id));
        }
        if !key.is_valid() {
            return Ok(None);
        }
        let body = self.body(node, index);
        if body.is_sound(self.seal) && body.kind() == Some(ExtentKind::Node) {
            Ok(Some(body.place()))
        } else {
            Err(damaged(self.id))
        }
    }

    /// The path from the node `top` to the leaf of `at`.
    pub(super) fn path(&self, top: u32, level: u32, at: u64) -> Result<Path> {
        let mut path = Path {
            forks: SmallVec::new(),
            leaf: None,
            level,
            low: 0,
            high: LOGICAL_END,
        };
        let mut number = top;
        for level in (1..=level).rev() {
            let node = self.open(number, level)?;
            let index = self.floor(node, at)?.ok_or_else(|| damaged(self.id))?;
            let child = self.child(node, index, level)?;
            path.forks.push(Fork { node, index });
            path.low = self.key(node, index).logical();
            let next = self.key(node, index + 1);
            if next.is_used() {
                path.high = path.high.min(next.logical().into());
            }
            match child {
                Some(child) => number = child,
                None => return Ok(path),
            }
        }
        path.leaf = Some(self.open(number, 0)?);
        Ok(path)
    }

    /// The entry for a new child after entry `index` of an inner node, if it can be stored in
    /// place.
    fn spot_for_child(&self, node: Node, index: usize) -> Option<usize> {
        let next = index + 1;
        (next < EXTENT_ENTRIES && !self.key(node, next).is_valid()).then_some(next)
    }

    fn make(
        &self,
        op: &Op<'_, M>,
        draft: &mut Draft,
        level: u32,
        first: u32,
        entries: &[Entry],
    ) -> Result<Child> {
        if level > EXTENT_MAX_LEVEL {
            return Err(damaged(self.id));
        }
        let number = self.map.nodes.take(op)?;
        draft.made.push(number);
        let at = self.map.nodes.at(self.core, number)?;
        let generation = self.core.identity_on_pool(self.id.into()).generation();
        let head = ExtentNodeHead::new(number, self.id, level, first, generation);
        // After the last reader of the node that was here before, and before the new node can be
        // found.
        self.map.pages.forget(op, number);
        let bytes = node::encode(&head, entries);
        self.core.pool.write_through(sites::EXTENT_NODE, at, &bytes);
        Ok((first, number))
    }

    fn make_leaf(
        &self,
        op: &Op<'_, M>,
        draft: &mut Draft,
        first: u32,
        extents: &[Extent],
    ) -> Result<Child> {
        let entries: Vec<Entry> = extents
            .iter()
            .map(|extent| (extent.key(self.seal), extent.body(self.seal)))
            .collect();
        self.make(op, draft, 0, first, &entries)
    }

    /// Creates a leaf with extents in order, or two leaves with half of them each.
    fn make_leaves(
        &self,
        op: &Op<'_, M>,
        draft: &mut Draft,
        first: u32,
        extents: &[Extent],
    ) -> Result<SmallVec<[Child; 2]>> {
        let mut made = SmallVec::new();
        let middle = if extents.len() > EXTENT_ENTRIES {
            extents.len() / 2
        } else {
            extents.len()
        };
        let (left, right) = extents.split_at(middle);
        made.push(self.make_leaf(op, draft, first, left)?);
        if let Some(start) = right.first() {
            made.push(self.make_leaf(op, draft, start.logical, right)?);
        }
        Ok(made)
    }

    fn entry_of(&self, level: u32, (first, number): Child) -> Entry {
        let key = ExtentKey::new(self.seal, first, level, true);
        let body = ExtentBody::new(self.seal, number, ExtentKind::Node);
        (key, body)
    }

    /// Creates an inner node with entries in order, or two nodes with half of them each.
    fn make_inner(
        &self,
        op: &Op<'_, M>,
        draft: &mut Draft,
        level: u32,
        entries: &[Entry],
    ) -> Result<SmallVec<[Child; 2]>> {
        let half = if entries.len() > EXTENT_ENTRIES {
            entries.len().div_ceil(2)
        } else {
            EXTENT_ENTRIES
        };
        entries
            .chunks(half)
            .map(|part| {
                let first = part.first().map_or(0, |(key, _)| key.logical());
                self.make(op, draft, level, first, part)
            })
            .collect()
    }

    /// The valid entries of an inner node, and always its first, which holds the node's first key.
    fn entries(&self, node: Node) -> Vec<Entry> {
        (0..EXTENT_ENTRIES)
            .map(|index| (self.key(node, index), self.body(node, index)))
            .enumerate()
            .filter(|(index, (key, _))| key.is_valid() || *index == 0)
            .map(|(_, entry)| entry)
            .collect()
    }

    /// Replaces the leaf of a path, or the missing leaf, by new nodes.
    fn replace(
        &self,
        op: &Op<'_, M>,
        draft: &mut Draft,
        path: &Path,
        leaves: SmallVec<[Child; 2]>,
    ) -> Result<Link> {
        let mut children = leaves;
        for (level, &fork) in (1..).zip(path.forks.iter().rev()) {
            if let [(_, child)] = children[..] {
                return Ok(Link::Body(fork, child));
            }
            let old = self.key(fork.node, fork.index);
            let mut entries = self.entries(fork.node);
            let place = entries.partition_point(|(key, _)| key.logical() < old.logical());
            let new = children.iter().map(|&child| self.entry_of(level, child));
            entries.splice(place..=place, new);
            draft.replaced.push(fork.node.number);
            children = self.make_inner(op, draft, level, &entries)?;
        }
        self.link_top(op, draft, path.level, &children)
    }

    /// The link to one or two nodes at the top, of `level`. Two nodes get a parent.
    fn link_top(
        &self,
        op: &Op<'_, M>,
        draft: &mut Draft,
        level: u32,
        children: &[Child],
    ) -> Result<Link> {
        if let [only] = children {
            return Ok(Link::Root(*only, level));
        }
        let level = level + 1;
        let entries: SmallVec<[Entry; 2]> = children
            .iter()
            .map(|&child| self.entry_of(level, child))
            .collect();
        let top = self.make(op, draft, level, 0, &entries)?;
        Ok(Link::Root(top, level))
    }

    /// Makes new nodes durable and links them, or frees them after an error.
    #[track_caller]
    fn publish(&self, op: &Op<'_, M>, draft: &Draft, link: Result<Link>) -> Result<()> {
        let link = self.take_in(op, draft, link)?;
        let at = self.store_link(op, &link);
        self.core.pool.flush(sites::EXTENT_LINK, at, 8);
        self.note_change();
        self.retire(&draft.replaced);
        Ok(())
    }

    /// Makes new nodes durable, or frees them after an error.
    #[track_caller]
    fn take_in(&self, op: &Op<'_, M>, draft: &Draft, link: Result<Link>) -> Result<Link> {
        // Nothing may link a node that the medium did not accept. A closure here would lose the
        // caller's source location.
        let settled = match link {
            Ok(link) => {
                self.core.pool.fence(sites::EXTENT_NODE_DURABLE);
                op.check_media().map(|()| link)
            }
            Err(error) => Err(error),
        };
        settled.inspect_err(|_| {
            for &made in &draft.made {
                let slot = u64::from(made) * SLOTS_PER_BLOCK;
                self.core.free_slots(slot, SLOTS_PER_BLOCK);
            }
        })
    }

    fn store_link(&self, op: &Op<'_, M>, link: &Link) -> u64 {
        match *link {
            Link::Root((_, node), level) => {
                self.set_root(ExtentRoot::Node { node, level });
                self.root_at()
            }
            Link::Body(fork, child) => {
                let body = ExtentBody::new(self.seal, child, ExtentKind::Node);
                self.put_body(op, fork.node, fork.index, body);
                fork.node.at + body_at(fork.index)
            }
            Link::Entry(node, index, level, child) => {
                let (key, body) = self.entry_of(level, child);
                self.put_body(op, node, index, body);
                self.put_key(op, node, index, key);
                node.at + key_at(index)
            }
        }
    }

    /// Frees nodes that cannot be found any more, after a grace period. A tree whose nodes are
    /// often rewritten would soon have the whole region in limbo, so some nodes become free here.
    pub(super) fn retire(&self, nodes: &[u32]) {
        let mut batch = Batch::default();
        for &node in nodes {
            self.map.nodes.add(self.core, &mut batch, node);
        }
        self.map.nodes.retire(self.core, &batch);
        if !nodes.is_empty() {
            self.core.try_advance();
            self.map.nodes.reclaim(self.core);
        }
    }

    /// Builds a tree of extents in order, for a file that had only its root word.
    pub(super) fn build(&self, op: &Op<'_, M>, extents: &[Extent]) -> Result<()> {
        let mut draft = Draft::default();
        let leaf = self.make_leaf(op, &mut draft, 0, extents);
        let link = leaf.map(|leaf| Link::Root(leaf, 0));
        let link = self.take_in(op, &draft, link)?;
        // The caller flushes the line of this word, with times or size.
        self.store_link(op, &link);
        self.note_change();
        Ok(())
    }

    /// Rewrites a leaf after `edit` changed its extents, which are in order.
    pub(super) fn rewrite(
        &self,
        op: &Op<'_, M>,
        path: &Path,
        leaf: Node,
        edit: impl FnOnce(&mut Vec<Extent>),
    ) -> Result<()> {
        let mut extents = Vec::with_capacity(EXTENT_ENTRIES + 2);
        for index in 0..EXTENT_ENTRIES {
            extents.extend(self.extent_at(leaf, index, path.high)?);
        }
        edit(&mut extents);
        node::join(&mut extents);
        let mut draft = Draft::default();
        draft.replaced.push(leaf.number);
        let link = self
            .make_leaves(op, &mut draft, path.low, &extents)
            .and_then(|leaves| self.replace(op, &mut draft, path, leaves));
        self.publish(op, &draft, link)
    }

    /// Inserts an extent into a new leaf, where the path's last entry is not valid.
    pub(super) fn graft(&self, op: &Op<'_, M>, path: &Path, extent: Extent) -> Result<()> {
        let mut draft = Draft::default();
        let link = self.make_branch(op, &mut draft, path, extent);
        self.publish(op, &draft, link)
    }

    fn make_branch(
        &self,
        op: &Op<'_, M>,
        draft: &mut Draft,
        path: &Path,
        extent: Extent,
    ) -> Result<Link> {
        let &Fork { node, index } = path.forks.last().ok_or_else(|| damaged(self.id))?;
        let level = path.level + 1 - path.forks.len() as u32;
        let mut child = self.make_leaf(op, draft, path.low, &[extent])?;
        for level in 1..level {
            let entry = self.entry_of(level, child);
            child = self.make(op, draft, level, path.low, &[entry])?;
        }
        Ok(Link::Entry(node, index, level, child))
    }

    /// Inserts an extent after all those of a full leaf, into a new leaf, if no node has to be
    /// rewritten for that. Returns whether it did.
    pub(super) fn append(&self, op: &Op<'_, M>, path: &Path, extent: Extent) -> Result<bool> {
        let Some(room) = self.room_behind(path) else {
            return Ok(false);
        };
        let mut draft = Draft::default();
        let link = self.make_neighbour(op, &mut draft, path, room, extent);
        self.publish(op, &draft, link).map(|()| true)
    }

    /// The place where a new leaf after the path's leaf can be linked without rewriting a node.
    fn room_behind(&self, path: &Path) -> Option<Room> {
        for (level, fork) in (1..).zip(path.forks.iter().rev()) {
            if let Some(spot) = self.spot_for_child(fork.node, fork.index) {
                return Some(Room::Entry(fork.node, spot, level));
            }
            if fork.index + 1 < EXTENT_ENTRIES {
                return None;
            }
        }
        Some(Room::Top)
    }

    fn make_neighbour(
        &self,
        op: &Op<'_, M>,
        draft: &mut Draft,
        path: &Path,
        room: Room,
        extent: Extent,
    ) -> Result<Link> {
        let first = extent.logical;
        let levels = match room {
            Room::Entry(_, _, level) => 1..level,
            Room::Top => 1..path.level + 1,
        };
        let mut child = self.make_leaf(op, draft, first, &[extent])?;
        for level in levels {
            let entry = self.entry_of(level, child);
            child = self.make(op, draft, level, first, &[entry])?;
        }
        if let Room::Entry(node, spot, level) = room {
            return Ok(Link::Entry(node, spot, level, child));
        }
        let top = path.forks.first().map(|fork| fork.node).or(path.leaf);
        let top = top.ok_or_else(|| damaged(self.id))?;
        self.link_top(op, draft, path.level, &[(0, top.number), child])
    }
}
