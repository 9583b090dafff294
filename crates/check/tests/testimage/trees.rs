//! Trees of files, built by hand.

use std::collections::BTreeMap;

use vellum_layout::{
    BLOCK_BYTES, ChunkKind, ExtentBody, ExtentKey, ExtentKind, ExtentNodeHead, ExtentRoot,
    ExtentSeal, FileKind, Inode, MapRoot, MapState, MapWord, MappingKind, SLOTS_PER_BLOCK,
    TreeTarget, TreeWord,
};
use zerocopy::IntoBytes;

use super::{GENERATION, TestImage};

/// A file whose tree has nodes.
pub(crate) struct Tree {
    /// Its inode.
    pub(crate) ino: u64,
    /// The slots of its nodes; the root node is last.
    pub(crate) nodes: Vec<u64>,
    /// Pool offset of the word of each logical block; with extents, of the entry that begins there.
    pub(crate) words: BTreeMap<u32, u64>,
    /// The data block of each logical block.
    pub(crate) blocks: BTreeMap<u32, u32>,
}

/// A pool of some mapping with trees, not closed.
pub(crate) struct Forest {
    /// The pool.
    pub(crate) image: TestImage,
    /// Blocks 0, 1, 2 and 600; 2 is only reserved; the size ends in block 600.
    pub(crate) scattered: Tree,
    /// Blocks 0, 1 and 3.
    pub(crate) small: Tree,
    /// A file whose inode leads to its only block.
    pub(crate) single: u64,
}

/// A pool with trees of one and of several nodes.
pub(crate) fn forest(mapping: MappingKind) -> Forest {
    let mut image = TestImage::with_mapping(mapping);
    let scattered = image.tree(b"scattered", &[0, 1, 2, 600], &[2]);
    let small = image.tree(b"small", &[0, 1, 3], &[]);
    let single = image.file_of_one_block(b"single");
    Forest {
        image,
        scattered,
        small,
        single,
    }
}

impl TestImage {
    fn take_for_tree(&mut self, word: MapWord) -> u32 {
        let block = self.next_block;
        self.next_block += 1;
        self.data_blocks += 1;
        self.tree_blocks.insert(block, word);
        block as u32
    }

    fn tree_inode(&mut self, blocks: u64) -> u64 {
        let ino = self.inode(FileKind::File, 0o644);
        self.edit_inode(ino, |inode| {
            inode.size = blocks * BLOCK_BYTES - 5;
            inode.root = MapRoot::new(0, ino as u32).0;
        });
        ino
    }

    fn set_tree(&mut self, ino: u64, word: u64) {
        self.edit_inode(ino, |inode| inode.detail = word);
    }

    fn file_of_one_block(&mut self, name: &[u8]) -> u64 {
        let ino = self.tree_inode(1);
        let id = ino as u32;
        let block = self.take_for_tree(MapWord::new(MapState::Mapped, id, 0));
        let word = match self.geometry.mapping {
            MappingKind::Radix => TreeWord::new(TreeTarget::Mapped(block), id, 0).0,
            _ => {
                let (len, state) = (1, MapState::Mapped);
                ExtentRoot::Extent { block, len, state }.word(ExtentSeal::new(id))
            }
        };
        self.set_tree(ino, word);
        self.link(1, name, ino);
        ino
    }

    /// A file in the root with these blocks; those in `reserved` are only reserved.
    fn tree(&mut self, name: &[u8], logicals: &[u32], reserved: &[u32]) -> Tree {
        let last = logicals.last().unwrap();
        let ino = self.tree_inode(u64::from(*last) + 1);
        let mut tree = Tree {
            ino,
            nodes: Vec::new(),
            words: BTreeMap::new(),
            blocks: BTreeMap::new(),
        };
        let mut states = BTreeMap::new();
        for &logical in logicals {
            let state = match reserved.contains(&logical) {
                true => MapState::Unwritten,
                false => MapState::Mapped,
            };
            let block = self.take_for_tree(MapWord::new(state, ino as u32, logical));
            tree.blocks.insert(logical, block);
            states.insert(logical, state);
        }
        if self.geometry.mapping == MappingKind::Radix {
            self.lay_radix(&mut tree, &states);
        } else {
            self.lay_extents(&mut tree, &states);
        }
        self.link(1, name, ino);
        tree
    }

    fn take_node(&mut self, tree: &mut Tree) -> (u32, u64) {
        let slot = self.take(ChunkKind::Blocks, SLOTS_PER_BLOCK);
        tree.nodes.push(slot);
        ((slot / SLOTS_PER_BLOCK) as u32, self.geometry.slot_at(slot))
    }

    fn lay_radix(&mut self, tree: &mut Tree, states: &BTreeMap<u32, MapState>) {
        let id = tree.ino as u32;
        let mut leaves: BTreeMap<u32, u32> = BTreeMap::new();
        for (&logical, &state) in states {
            let block = tree.blocks[&logical];
            let target = match state {
                MapState::Mapped => TreeTarget::Mapped(block),
                _ => TreeTarget::Unwritten(block),
            };
            let first = logical / 512 * 512;
            let leaf = *leaves
                .entry(first)
                .or_insert_with(|| self.take_node(tree).0);
            let node_at = self.geometry.slot_at(u64::from(leaf) * SLOTS_PER_BLOCK);
            let at = node_at + u64::from(logical % 512) * 8;
            self.set_word(at, TreeWord::new(target, id, logical).0);
            tree.words.insert(logical, at);
        }
        let node = |block, level| TreeTarget::Node { block, level };
        let mut top = node(leaves[&0], 1);
        if leaves.len() > 1 {
            let (number, at) = self.take_node(tree);
            for (first, leaf) in leaves {
                let word = TreeWord::new(node(leaf, 1), id, first);
                self.set_word(at + u64::from(first / 512) * 8, word.0);
            }
            top = node(number, 2);
        }
        self.set_tree(tree.ino, TreeWord::new(top, id, 0).0);
    }

    fn lay_extents(&mut self, tree: &mut Tree, states: &BTreeMap<u32, MapState>) {
        let (id, seal) = (tree.ino as u32, ExtentSeal::new(tree.ino as u32));
        let (node, node_at) = self.take_node(tree);
        let head = ExtentNodeHead::new(node, id, 0, 0, GENERATION);
        self.set_bytes(node_at, head.as_bytes());
        let mut at = node_at + ExtentNodeHead::ENTRIES_AT;
        let parts: Vec<(u32, MapState)> = states.iter().map(|(&at, &state)| (at, state)).collect();
        for run in parts.chunk_by(|a, b| a.0 + 1 == b.0 && a.1 == b.1) {
            let (logical, state) = run[0];
            let place = tree.blocks[&logical].wrapping_sub(logical);
            let key = ExtentKey::new(seal, logical, run.len() as u32, true);
            let body = ExtentBody::new(seal, place, ExtentKind::of_state(state));
            self.set_word(at + ExtentKey::AT, key.0);
            self.set_word(at + ExtentBody::AT, body.0);
            tree.words.insert(logical, at);
            at += ExtentKey::ENTRY_BYTES;
        }
        let root = ExtentRoot::Node { node, level: 0 };
        self.set_tree(tree.ino, root.word(seal));
    }

    /// Pool offset of the word that leads to a file's tree.
    pub(crate) fn tree_word_at(&self, ino: u64) -> u64 {
        self.at(ino) + Inode::DETAIL
    }
}
