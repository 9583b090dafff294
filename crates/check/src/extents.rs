//! The extent trees of files: every entry of every node.

use vellum_layout::{
    BLOCK_BYTES, ChunkKind, EXTENT_ENTRIES, EXTENT_MAX_LEVEL, ExtentBody, ExtentKey, ExtentKind,
    ExtentNodeHead, ExtentRoot, ExtentSeal, Geometry, MapState, MapWord, SLOTS_PER_BLOCK,
};
use zerocopy::FromBytes;

use crate::header::Chunks;
use crate::image::View;
use crate::inodes::Node;
use crate::trees::{TreeBlock, TreeNode, Trees};

/// One more than the highest logical block.
const LOGICAL_END: u64 = 1 << 32;

/// Reads the trees of files, one after the other.
pub(crate) struct Reader<'a> {
    view: &'a View<'a>,
    geometry: &'a Geometry,
    chunks: &'a Chunks,
    /// One bit per metadata block: a node that was read. A second path to it is reported but not
    /// followed.
    seen: Vec<u64>,
    trees: &'a mut Trees,
}

/// The file whose tree is being read.
#[derive(Clone, Copy)]
struct File {
    inode: u64,
    generation: u32,
    seal: ExtentSeal,
}

/// A run of a file's blocks, according to an entry or the inode.
struct Run {
    logical: u64,
    /// The first logical block of the next entry.
    until: u64,
    block: u32,
    state: MapState,
}

/// The fields that a node must have according to the entry above.
#[derive(Clone, Copy)]
struct Expected {
    number: u32,
    level: u32,
    low: u32,
    /// The first logical block behind the node's range.
    high: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        view: &'a View<'a>,
        geometry: &'a Geometry,
        chunks: &'a Chunks,
        trees: &'a mut Trees,
    ) -> Self {
        let groups = geometry.meta_slots() / SLOTS_PER_BLOCK;
        Self {
            view,
            geometry,
            chunks,
            seen: vec![0; groups.div_ceil(64) as usize],
            trees,
        }
    }

    fn say(&mut self, file: File, detail: String) {
        self.trees.unsound.push((file.inode, detail));
    }

    /// Reads the tree of a regular file.
    pub(crate) fn read(&mut self, node: &Node) {
        let file = File {
            inode: node.slot,
            generation: node.identity.generation(),
            seal: ExtentSeal::new(node.slot as u32),
        };
        match ExtentRoot::from_word(file.seal, node.detail) {
            Some(ExtentRoot::Empty) => {}
            Some(ExtentRoot::Extent { block, len, state }) => {
                let run = Run {
                    logical: 0,
                    until: len.into(),
                    block,
                    state,
                };
                self.run(file, run);
            }
            Some(ExtentRoot::Node { node, level }) => {
                let top = Expected {
                    number: node,
                    level,
                    low: 0,
                    high: LOGICAL_END,
                };
                self.node(file, top);
            }
            None => self.say(file, format!("word {:#x} is not sound", node.detail)),
        }
    }

    fn run(&mut self, file: File, run: Run) {
        let last = u64::from(run.block) + (run.until - run.logical);
        if run.until > LOGICAL_END || last > self.geometry.blocks() {
            let detail = format!(
                "the extent from block {} of the file on lies outside the segment",
                run.logical
            );
            return self.say(file, detail);
        }
        let id = file.inode as u32;
        let blocks = (run.logical..run.until).zip(run.block..);
        self.trees
            .blocks
            .extend(blocks.map(|(logical, block)| TreeBlock {
                block: block.into(),
                word: MapWord::new(run.state, id, logical as u32),
            }));
    }

    fn node(&mut self, file: File, expected: Expected) {
        let Expected {
            number, level, low, ..
        } = expected;
        let slot = u64::from(number) * SLOTS_PER_BLOCK;
        let is_placed = level <= EXTENT_MAX_LEVEL
            && slot != 0
            && self.chunks.holds(slot, SLOTS_PER_BLOCK, ChunkKind::Blocks);
        if !is_placed {
            let detail = format!("slot {slot} for blocks from {low} on is not a node");
            return self.say(file, detail);
        }
        self.trees.nodes.push(TreeNode {
            slot,
            inode: file.inode,
            first: low.into(),
            end: expected.high,
        });
        let mut bytes = [0; BLOCK_BYTES as usize];
        self.view.read(self.geometry.slot_at(slot), &mut bytes);
        let head = ExtentNodeHead::read_from_prefix(&bytes).ok();
        let fits = |head: &ExtentNodeHead| {
            head.is_sound(number)
                && u64::from(head.owner) == file.inode
                && (head.level, head.first) == (level, low)
                && head.generation == file.generation
        };
        if !head.is_some_and(|(head, _)| fits(&head)) {
            let detail = format!("the node in slot {slot} is not that of blocks from {low} on");
            return self.say(file, detail);
        }
        // A node belongs to one file and one position in its tree.
        let (seen, bit) = (&mut self.seen[number as usize / 64], 1 << (number % 64));
        if *seen & bit == 0 {
            *seen |= bit;
            self.entries(file, expected, &bytes);
        }
    }

    fn entries(&mut self, file: File, node: Expected, bytes: &[u8; BLOCK_BYTES as usize]) {
        let words = bytes[ExtentNodeHead::ENTRIES_AT as usize..]
            .as_chunks::<8>()
            .0;
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
        let mut least = u64::from(node.low);
        let mut ended = false;
        for index in 0..EXTENT_ENTRIES {
            let key = ExtentKey(word(2 * index));
            if !key.is_used() {
                ended = true;
                continue;
            }
            let logical = u64::from(key.logical());
            let is_level = node.level == 0 || key.len() == node.level;
            let is_placed = !ended && (least..node.high).contains(&logical);
            if !key.is_sound(file.seal) || !is_level || !is_placed || key.is_empty() {
                let detail = format!(
                    "entry {index} of the node for blocks from {} on is not sound",
                    node.low
                );
                self.say(file, detail);
                continue;
            }
            least = logical + 1;
            let next = ExtentKey(word(2 * index + 2));
            // An unsound or misplaced entry does not end the range.
            let until =
                if next.is_sound(file.seal) && next.is_used() && next.logical() > key.logical() {
                    node.high.min(next.logical().into())
                } else {
                    node.high
                };
            if key.is_valid() {
                self.entry(file, node, key, ExtentBody(word(2 * index + 1)), until);
            }
        }
    }

    fn entry(&mut self, file: File, node: Expected, key: ExtentKey, body: ExtentBody, until: u64) {
        let kind = body.kind().filter(|_| body.is_sound(file.seal));
        let logical = u64::from(key.logical());
        match kind {
            Some(ExtentKind::Node) if node.level > 0 => {
                let child = Expected {
                    number: body.place(),
                    level: node.level - 1,
                    low: key.logical(),
                    high: until,
                };
                self.node(file, child);
            }
            Some(kind) if node.level == 0 && kind.state().is_some() => {
                let run = Run {
                    logical,
                    until: until.min(logical + u64::from(key.len())),
                    block: body.place().wrapping_add(key.logical()),
                    state: kind.state().unwrap_or(MapState::Free),
                };
                self.run(file, run);
            }
            _ => self.say(file, format!("the entry for block {logical} leads nowhere")),
        }
    }
}
