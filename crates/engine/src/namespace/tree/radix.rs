//! The radix tree of a directory: from the hash of a name to the record that added the name.
//!
//! Nodes of 16 words lie in the arena. A word is empty, leads to a node, or is a leaf: the record's
//! position, some bits of the hash, and whether the name is being changed. A leaf lies as high as
//! no other name shares its path, so names take 0.4 nodes each. The hash is used up after eight
//! levels. The levels below use further hashes of the name, so that names with equal hashes
//! separate, too.
//!
//! Changes are made under the lock of the directory's names ([`super::log::Names`]); readers take
//! no lock. A change is the store of one word, before which everything behind it is complete. Nodes
//! that nothing leads to any more are reused after a grace period. So a reader finds every name
//! that exists throughout.

use std::sync::atomic::Ordering;

use vellum_layout::{LogPosition, NAME_MAX, NameRecord, name_hash};
use vellum_media::{Memories, Memory, count};

use super::Name;
use crate::core::cachelet::{Cachelet, field};
use crate::core::{Core, header};
use crate::error::{Error, Result};

/// Words of a node.
const WAYS: u64 = 16;
/// Bytes of a node.
pub(crate) const NODE_BYTES: u64 = 8 * WAYS;
/// Levels that one hash of 32 bits serves.
const LEVELS: u32 = 8;

/// A word that stands for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf(pub(super) u64);

impl Leaf {
    const LEAF: u64 = 1 << 63;
    const BUSY: u64 = 1 << 62;
    const PLACE: u64 = (1 << 42) - 1;
    /// Position of the upper half of the hash.
    const TAG_AT: u32 = 42;

    /// The leaf of a name with this hash, which the record at `place` added.
    pub(super) fn new(place: LogPosition, hash: u32) -> Self {
        Self(Self::LEAF | place.0 & Self::PLACE | u64::from(hash >> 16) << Self::TAG_AT)
    }

    fn of_word(word: u64) -> Option<Self> {
        (word & Self::LEAF != 0).then_some(Self(word))
    }

    /// The position of the record.
    pub(super) fn place(self) -> LogPosition {
        LogPosition(self.0 & Self::PLACE)
    }

    fn has_tag(self, hash: u32) -> bool {
        self.0 >> Self::TAG_AT & 0xFFFF == u64::from(hash >> 16)
    }

    /// Whether lookups have to wait.
    pub(super) fn is_busy(self) -> bool {
        self.0 & Self::BUSY != 0
    }

    /// The same leaf, for which lookups wait.
    pub(super) fn busy(self) -> Self {
        Self(self.0 | Self::BUSY)
    }

    /// The same leaf, for which lookups do not wait.
    pub(super) fn quiet(self) -> Self {
        Self(self.0 & !Self::BUSY)
    }
}

/// The end of a name's path through the nodes.
struct Reached {
    /// The last word on the path, and its level. `None`: there is no node.
    cell: Option<(u64, u32)>,
    /// The leaf in that word.
    leaf: Option<Leaf>,
}

/// An insertion of a name into a tree, which is one store.
#[must_use]
pub(super) struct Insertion {
    /// The word to store to. `None`: that of the topmost node.
    cell: Option<u64>,
    word: u64,
    /// Nodes that the store publishes.
    made: Vec<u64>,
}

impl<M: Memories> Core<M> {
    fn node_at(&self, node: u64) -> u64 {
        self.map.namespace + node * NODE_BYTES
    }

    fn cell(&self, at: u64) -> u64 {
        self.arena.load(at, Ordering::Acquire)
    }

    /// The directory's topmost node, or 0.
    pub(super) fn radix_top(&self, dir: Cachelet) -> u64 {
        self.get(dir, field::TOP_NODE)
    }

    /// The index of a name's word in a node on `level`.
    fn digit(&self, level: u32, name: Name<'_>) -> u64 {
        let hash = match level / LEVELS {
            0 => name.hash,
            round => name_hash(self.seed.wrapping_add(round.into()), name.bytes),
        };
        u64::from(hash >> (4 * (level % LEVELS))) % WAYS
    }

    #[inline(always)]
    fn radix_reach(&self, top: u64, name: Name<'_>) -> Reached {
        let (mut node, mut level, mut cell) = (top, 0, None);
        while node != 0 {
            count::probe();
            let at = self.node_at(node) + 8 * self.digit(level, name);
            let word = self.cell(at);
            cell = Some((at, level));
            if let Some(leaf) = Leaf::of_word(word) {
                let leaf = Some(leaf);
                return Reached { cell, leaf };
            }
            node = word;
            level += 1;
        }
        Reached { cell, leaf: None }
    }

    /// Finds the leaf of a name, busy or not, and its offset.
    #[inline]
    pub(super) fn radix_find(&self, dir: Cachelet, name: Name<'_>) -> Option<(u64, Leaf)> {
        self.radix_find_under(self.radix_top(dir), name)
    }

    /// As [`Self::radix_find`], under the topmost node `top`.
    #[inline]
    pub(super) fn radix_find_under(&self, top: u64, name: Name<'_>) -> Option<(u64, Leaf)> {
        let reached = self.radix_reach(top, name);
        let (at, _) = reached.cell?;
        let leaf = reached.leaf.filter(|leaf| leaf.has_tag(name.hash))?;
        self.record_is_of(leaf.place(), name).then_some((at, leaf))
    }

    /// Whether the record at `place` is of this name.
    #[inline(always)]
    fn record_is_of(&self, place: LogPosition, name: Name<'_>) -> bool {
        let at = self.record_at(place);
        self.word(at + NameRecord::NAME_WORD) >> 32 == u64::from(name.hash)
            && self.name_len_at(at) == name.bytes.len() as u64
            && self.pool.bytes_equal(at + NameRecord::NAME, name.bytes)
    }

    /// Length of the name of the record at pool offset `at`, in bytes.
    fn name_len_at(&self, at: u64) -> u64 {
        self.word(at + NameRecord::HEAD) >> 16 & 0xFFFF
    }

    /// Prepares a leaf of `name`, which is absent, in the tree under the node `top`.
    ///
    /// # Errors
    /// Fails if the arena has no space for nodes.
    pub(super) fn radix_prepare(&self, top: u64, name: Name<'_>, leaf: Leaf) -> Result<Insertion> {
        let reached = self.radix_reach(top, name);
        let mut insertion = Insertion {
            cell: reached.cell.map(|(at, _)| at),
            word: leaf.0,
            made: Vec::new(),
        };
        let part = match (reached.cell, reached.leaf) {
            (None, _) => self.radix_first(name, &mut insertion),
            (Some((_, level)), Some(other)) => {
                self.radix_part(level + 1, name, other, &mut insertion)
            }
            (Some(_), None) => Ok(()),
        };
        match part {
            Ok(()) => Ok(insertion),
            Err(error) => {
                self.radix_abandon(insertion);
                Err(error)
            }
        }
    }

    /// Puts the inserted word into a first node.
    fn radix_first(&self, name: Name<'_>, insertion: &mut Insertion) -> Result<()> {
        let node = self.take_node(insertion)?;
        let at = self.node_at(node) + 8 * self.digit(0, name);
        self.arena.store(at, insertion.word, Ordering::Relaxed);
        insertion.word = node;
        Ok(())
    }

    /// Puts the inserted leaf, and the leaf that has its word, into nodes from `level` on.
    fn radix_part(
        &self,
        mut level: u32,
        name: Name<'_>,
        other: Leaf,
        insertion: &mut Insertion,
    ) -> Result<()> {
        let mut buffer = [0; NAME_MAX];
        let other_name = self.name_of_leaf(other, &mut buffer);
        let (leaf, mut above) = (insertion.word, None);
        loop {
            let node = self.take_node(insertion)?;
            match above {
                None => insertion.word = node,
                Some(at) => self.arena.store(at, node, Ordering::Relaxed),
            }
            let digits = [name, other_name].map(|name| self.digit(level, name));
            let [at, other_at] = digits.map(|digit| self.node_at(node) + 8 * digit);
            if at != other_at {
                self.arena.store(at, leaf, Ordering::Relaxed);
                self.arena.store(other_at, other.0, Ordering::Relaxed);
                return Ok(());
            }
            above = Some(at);
            level += 1;
        }
    }

    /// The name of a leaf.
    pub(super) fn name_of_leaf<'b>(&self, leaf: Leaf, buffer: &'b mut [u8; NAME_MAX]) -> Name<'b> {
        let at = self.record_at(leaf.place());
        let len = (self.name_len_at(at) as usize).min(buffer.len());
        self.pool.read(at + NameRecord::NAME, &mut buffer[..len]);
        Name {
            bytes: &buffer[..len],
            hash: (self.word(at + NameRecord::NAME_WORD) >> 32) as u32,
        }
    }

    /// Inserts a name into the tree of a directory.
    pub(super) fn radix_publish(&self, dir: Cachelet, insertion: Insertion) {
        let top = self.cachelet_at(dir, field::TOP_NODE);
        let at = insertion.cell.unwrap_or(top);
        self.arena.store(at, insertion.word, Ordering::Release);
    }

    /// Inserts a name into an unpublished tree with the topmost node `top`.
    pub(super) fn radix_publish_unseen(&self, top: &mut u64, insertion: Insertion) {
        match insertion.cell {
            Some(at) => self.arena.store(at, insertion.word, Ordering::Relaxed),
            None => *top = insertion.word,
        }
    }

    /// Frees a prepared insertion.
    pub(super) fn radix_abandon(&self, insertion: Insertion) {
        insertion
            .made
            .into_iter()
            .for_each(|node| self.free_node(node));
    }

    /// Replaces the leaf at `at`.
    pub(super) fn radix_set(&self, at: u64, leaf: Leaf) {
        self.arena.store(at, leaf.0, Ordering::Release);
    }

    /// Removes the leaf at `at`.
    pub(super) fn radix_remove(&self, at: u64) {
        self.arena.store(at, 0, Ordering::Release);
    }

    /// All nodes under `top`, including `top`.
    pub(super) fn radix_nodes(&self, top: u64) -> Vec<u64> {
        let mut nodes: Vec<u64> = Some(top).filter(|&top| top != 0).into_iter().collect();
        let mut done = 0;
        while let Some(&node) = nodes.get(done) {
            let below = self.words_of(node);
            nodes.extend(below.filter(|&word| word != 0 && Leaf::of_word(word).is_none()));
            done += 1;
        }
        nodes
    }

    /// The number of names in these nodes.
    pub(super) fn radix_names(&self, nodes: &[u64]) -> i64 {
        let words = nodes.iter().flat_map(|&node| self.words_of(node));
        words.filter(|&word| Leaf::of_word(word).is_some()).count() as i64
    }

    /// The number of nodes that fit into the arena.
    pub(super) fn node_count(&self) -> u64 {
        self.map.namespace_bytes / NODE_BYTES
    }

    fn words_of(&self, node: u64) -> impl Iterator<Item = u64> {
        let at = self.node_at(node);
        (0..WAYS).map(move |way| self.cell(at + 8 * way))
    }

    /// Removes nodes with at most one name from a directory's tree. Returns these nodes, which may
    /// be reused after a grace period.
    pub(super) fn radix_prune(&self, dir: Cachelet) -> Vec<u64> {
        let top = self.radix_top(dir);
        let mut pruned = Vec::new();
        // From below, so that a node is removed together with all nodes below it.
        for node in self.radix_nodes(top).into_iter().rev() {
            let at = self.node_at(node);
            for at in (at..at + NODE_BYTES).step_by(8) {
                let word = self.cell(at);
                if word == 0 || Leaf::of_word(word).is_some() {
                    continue;
                }
                let mut below = self.words_of(word).filter(|&word| word != 0);
                let (first, second) = (below.next().unwrap_or(0), below.next());
                let is_leaf = first == 0 || Leaf::of_word(first).is_some();
                if second.is_none() && is_leaf {
                    self.arena.store(at, first, Ordering::Release);
                    pruned.push(word);
                }
            }
        }
        if top != 0 && self.words_of(top).all(|word| word == 0) {
            self.set(dir, field::TOP_NODE, 0);
            pruned.push(top);
        }
        pruned
    }

    /// Allocates a node of zeros.
    fn take_node(&self, insertion: &mut Insertion) -> Result<u64> {
        let node = self.pop_free_node().or_else(|| self.fresh_node());
        let node = node.ok_or(Error::OutOfMemory("radix trees of directories"))?;
        self.arena.fetch_add(header::NODES_USED, 1);
        let at = self.node_at(node);
        for at in (at..at + NODE_BYTES).step_by(8) {
            self.arena.store(at, 0, Ordering::Relaxed);
        }
        insertion.made.push(node);
        Ok(node)
    }

    fn fresh_node(&self) -> Option<u64> {
        let number = self.arena.fetch_add(header::NODE_FRESH, 1) + 1;
        if number >= self.node_count() {
            self.arena.fetch_add(header::NODE_FRESH, u64::MAX);
            return None;
        }
        Some(number)
    }

    /// Pops the free list, whose head is a node's number under a tag against ABA.
    fn pop_free_node(&self) -> Option<u64> {
        let mut head = self.cell(header::NODE_FREE);
        loop {
            let node = Some(head & 0xFFFF_FFFF).filter(|&node| node != 0)?;
            let next = self.cell(self.node_at(node)) & 0xFFFF_FFFF;
            let new = (head >> 32).wrapping_add(1) << 32 | next;
            match self.arena.compare_exchange(header::NODE_FREE, head, new) {
                Ok(_) => return Some(node),
                Err(now) => head = now,
            }
        }
    }

    /// Frees a node that no reader can reach.
    pub(super) fn free_node(&self, node: u64) {
        self.arena.fetch_add(header::NODES_USED, u64::MAX);
        let mut head = self.cell(header::NODE_FREE);
        loop {
            self.arena
                .store(self.node_at(node), head & 0xFFFF_FFFF, Ordering::Release);
            let new = (head >> 32).wrapping_add(1) << 32 | node;
            match self.arena.compare_exchange(header::NODE_FREE, head, new) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}
