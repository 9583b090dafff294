//! The trees of files, if the mapping keeps one per file: their words, and the metadata blocks of
//! their nodes.

use vellum_layout::{
    BLOCK_BYTES, ChunkKind, FileKind, Geometry, MapState, MapWord, MappingKind, RADIX_LEVELS_MAX,
    RADIX_WORDS, SLOTS_PER_BLOCK, TablePlan, TreeTarget, TreeWord, radix_span,
};

use crate::extents;
use crate::header::Chunks;
use crate::image::View;
use crate::inodes::{Node, Nodes};
use crate::keyed::{self, Table};
use crate::report::{Class, Location, Sink};

/// A data block that a tree leads to.
#[derive(Clone, Copy, Debug)]
pub struct TreeBlock {
    /// The block.
    pub block: u64,
    /// State, mapping id and logical block.
    pub word: MapWord,
}

/// A node that a tree leads to.
#[derive(Clone, Copy, Debug)]
pub struct TreeNode {
    /// Its first metadata slot.
    pub slot: u64,
    /// The inode whose tree it belongs to.
    pub inode: u64,
    /// The first logical block of its range.
    pub first: u64,
    /// The first logical block behind its range.
    pub end: u64,
}

/// The trees of the files in use.
#[derive(Default)]
pub struct Trees {
    /// Every node, once per path to it.
    pub nodes: Vec<TreeNode>,
    /// Every data block, once per path to it.
    pub blocks: Vec<TreeBlock>,
    /// The table of a mapping by keys, from which `blocks` was read.
    pub(crate) table: Option<Table>,
    /// Inodes with unsound words, and which ones.
    pub unsound: Vec<(u64, String)>,
}

/// The file and the state of a data block, according to the table or the trees of all files.
pub(crate) fn word_of(
    view: &View,
    geometry: &Geometry,
    chunks: &Chunks,
    nodes: &Nodes,
    seed: u64,
    block: u64,
) -> MapWord {
    if geometry.mapping.has_home_lines() {
        let plan = TablePlan::of(geometry, |at| view.word(at));
        return MapWord(plan.word_at(block).map_or(0, |at| view.word(at)));
    }
    let trees = Trees::read(view, geometry, chunks, nodes, seed);
    let found = trees.blocks.iter().find(|found| found.block == block);
    found.map_or(MapWord::FREE, |found| found.word)
}

struct Reader<'a> {
    view: &'a View<'a>,
    geometry: &'a Geometry,
    chunks: &'a Chunks,
    /// One bit per metadata block: a node that was read. On a second path to it, only sound words
    /// are reported.
    seen: Vec<u64>,
    /// Whether the present node was read before.
    again: bool,
    trees: Trees,
}

impl Trees {
    pub(crate) fn read(
        view: &View,
        geometry: &Geometry,
        chunks: &Chunks,
        nodes: &Nodes,
        seed: u64,
    ) -> Self {
        let groups = geometry.meta_slots() / SLOTS_PER_BLOCK;
        let mut reader = Reader {
            view,
            geometry,
            chunks,
            seen: vec![0; groups.div_ceil(64) as usize],
            again: false,
            trees: Self::default(),
        };
        let is_file = |node: &&Node| node.kept && node.kind == FileKind::File;
        let files = nodes.list.iter().filter(is_file);
        match geometry.mapping {
            MappingKind::HashFs => {}
            MappingKind::Radix => {
                files.for_each(|node| reader.word(node.slot, TreeWord(node.detail), 0, None));
            }
            MappingKind::Extent | MappingKind::ExtentCached => {
                let mut reader = extents::Reader::new(view, geometry, chunks, &mut reader.trees);
                files.for_each(|node| reader.read(node));
            }
            MappingKind::Cuckoo | MappingKind::Level => {
                reader.trees.table = keyed::read(view, geometry, seed);
                let table = reader.trees.table.iter();
                reader.trees.blocks = table.flat_map(|of| keyed::blocks(geometry, of)).collect();
            }
        }
        reader.trees
    }

    /// Reports unsound words.
    pub(crate) fn judge(&self, sink: &mut Sink) {
        for (inode, detail) in &self.unsound {
            sink.damage(Class::MapWord, Location::Inode(*inode), detail);
        }
    }
}

impl Reader<'_> {
    /// Reads the target of a word. `above` is the level of the node with the word; `None` for the
    /// inode.
    fn word(&mut self, inode: u64, word: TreeWord, first: u64, above: Option<u32>) {
        let id = inode as u32;
        let (block, state) = match word.decode(id, first as u32) {
            Ok(None) => return,
            Ok(Some(TreeTarget::Mapped(block))) => (block, MapState::Mapped),
            Ok(Some(TreeTarget::Unwritten(block))) => (block, MapState::Unwritten),
            Ok(Some(TreeTarget::Node { block, level })) => {
                return self.node(inode, block, level, first, above);
            }
            Err(_) => {
                let detail = format!("word {:#x} for block {first} is not sound", word.0);
                return self.say(inode, detail);
            }
        };
        let is_placed = above.is_none_or(|level| level == 1);
        if !is_placed || u64::from(block) >= self.geometry.blocks() {
            let detail = format!("word {:#x} for block {first} names no data block", word.0);
            return self.say(inode, detail);
        }
        self.trees.blocks.push(TreeBlock {
            block: block.into(),
            word: MapWord::new(state, id, first as u32),
        });
    }

    fn node(&mut self, inode: u64, node: u32, level: u32, first: u64, above: Option<u32>) {
        let slot = u64::from(node) * SLOTS_PER_BLOCK;
        let is_placed = above.is_none_or(|above| level + 1 == above)
            && level <= RADIX_LEVELS_MAX
            && slot != 0
            && self.chunks.holds(slot, SLOTS_PER_BLOCK, ChunkKind::Blocks);
        if !is_placed {
            let detail = format!("slot {slot} for blocks from {first} on is not a node");
            return self.say(inode, detail);
        }
        let (words, span) = (RADIX_WORDS, radix_span(level));
        self.trees.nodes.push(TreeNode {
            slot,
            inode,
            first,
            end: first + words * span,
        });
        let (seen, bit) = (&mut self.seen[node as usize / 64], 1 << (node % 64));
        // Words are sound for one file and position, so this ends: each is followed once.
        let before = std::mem::replace(&mut self.again, *seen & bit != 0);
        *seen |= bit;
        let mut bytes = [0; BLOCK_BYTES as usize];
        self.view.read(self.geometry.slot_at(slot), &mut bytes);
        for (index, word) in (0..words).zip(bytes.as_chunks::<8>().0) {
            let start = first + index * span;
            match u64::from_le_bytes(*word) {
                0 => {}
                word if start <= u64::from(u32::MAX) => {
                    self.word(inode, TreeWord(word), start, Some(level));
                }
                word => {
                    self.say(inode, format!("word {word:#x} is beyond any file"));
                }
            }
        }
        self.again = before;
    }

    fn say(&mut self, inode: u64, detail: String) {
        if !self.again {
            self.trees.unsound.push((inode, detail));
        }
    }
}
