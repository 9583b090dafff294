//! Access to what the checker reads, for other programs: the inodes, the logs, and the holder of
//! each metadata slot. Nothing is judged here, and journals are not applied.

use std::ops::Range;

use vellum_layout::{
    ChunkKind, Geometry, JournalPair, PoolPhase, PoolState, StateWord, Superblock,
};

use crate::header;
use crate::image::{View, Window};
use crate::report::Sink;
use crate::{Image, journal, logs, moves, slots, tree, xattrs};

pub use crate::header::Chunks;
pub use crate::inodes::{Broken, Found, Node, Nodes};
pub use crate::journal::Record;
pub use crate::logged::RedoLog;
pub use crate::logs::{Extent, Issue, Logs, Name};
pub use crate::slots::Holder;
pub use crate::trees::{TreeBlock, TreeNode, Trees};
pub use crate::undo::UndoLog;
pub use crate::xattrs::XattrSet;

/// The current superblock, if the image has a usable one.
pub fn superblock(image: &dyn Image) -> Option<Superblock> {
    header::superblock(&View::new(image), &mut Sink::default()).map(|(found, _)| found)
}

/// As [`superblock`], even if the pool is incomplete: a pool with external data may be reduced to
/// its own bytes.
pub fn header(image: &dyn Image) -> Option<Superblock> {
    header::counting(&View::new(image)).ok()
}

/// The contents of a logged pool's redo log; `None` if neither of its anchors is sound.
pub fn redo_log(image: &dyn Image, superblock: &Superblock) -> Option<RedoLog> {
    RedoLog::read(&View::new(image), superblock)
}

/// Whether the state word says that the pool was closed cleanly, and its redo log, if it has one,
/// has nothing for the next opening.
pub fn is_closed_cleanly(image: &dyn Image, superblock: &Superblock) -> bool {
    let geometry = superblock.geometry();
    let word = StateWord(View::new(image).word(geometry.state_at + PoolState::WORD));
    let is_clean = matches!(word.get(), Some((PoolPhase::Clean, _)))
        && word.repair().is_none()
        && word.conversion().is_none();
    let is_empty = |log: RedoLog| log.lines.is_empty() && log.blocks.is_empty();
    is_clean && (!geometry.is_logged() || redo_log(image, superblock).is_some_and(is_empty))
}

/// The contents of a split pool's undo log; `None` if the pool has none.
pub fn versions(image: &dyn Image, superblock: &Superblock) -> Option<UndoLog> {
    UndoLog::read(&View::new(image), superblock)
}

/// The thread slots with journals that are not retired.
pub fn journals(image: &dyn Image, geometry: &Geometry) -> Vec<(u32, Record)> {
    let view = View::new(image);
    (0..geometry.thread_slots)
        .map(|slot| (slot, journal::read(&view, geometry, slot).1))
        .filter(|(_, record)| *record != Record::Retired)
        .collect()
}

/// Whether a committed record may contain this pair.
pub fn may_store(image: &dyn Image, geometry: &Geometry, pair: &JournalPair) -> bool {
    journal::may_store(&View::new(image), geometry, pair.at)
}

/// The remaining stores of an unfinished move of directories, by pool offset; none if there is no
/// list or it is unsound.
pub fn moves(image: &dyn Image, geometry: &Geometry) -> Vec<(u64, u64)> {
    let mut view = View::new(image);
    moves::evaluate(&mut view, geometry, true, &mut Sink::default());
    view.laid()
}

/// The trees of all files in use in the pool of `superblock`.
pub fn trees(image: &dyn Image, superblock: &Superblock) -> Trees {
    let (view, geometry) = (View::new(image), superblock.geometry());
    let chunks = Chunks::read(&view, &geometry, &mut Sink::default());
    let nodes = Nodes::read(&view, &geometry, &chunks, |_| {});
    Trees::read(&view, &geometry, &chunks, &nodes, superblock.hash_seed)
}

/// The metadata of a pool.
pub struct Survey<'a> {
    view: View<'a>,
    /// The layout.
    pub geometry: Geometry,
    /// The kinds of chunks.
    pub chunks: Chunks,
    /// The inodes, with the findings from the logs.
    pub nodes: Nodes,
    /// The directories' logs.
    pub logs: Logs,
    /// The trees of files, if the mapping has trees.
    pub trees: Trees,
    slots: slots::Slots,
}

impl<'a> Survey<'a> {
    /// Reads the metadata of the pool of `superblock`.
    pub fn of(image: &'a dyn Image, superblock: &Superblock) -> Self {
        let view = View::new(image);
        let geometry = superblock.geometry();
        let seed = superblock.hash_seed;
        let chunks = Chunks::read(&view, &geometry, &mut Sink::default());
        let mut nodes = crate::inodes::Nodes::read(&view, &geometry, &chunks, |_| {});
        let mut logs = Logs::read(&view, &geometry, &chunks, &nodes, seed, |_| {});
        logs::link(&mut logs, &mut nodes);
        let root = nodes.root();
        tree::reach(&mut nodes, &logs, root);
        let trees = Trees::read(&view, &geometry, &chunks, &nodes, seed);
        let slots = slots::Slots::claim(&view, &geometry, &chunks, &nodes, &logs, &trees);
        Self {
            view,
            geometry,
            chunks,
            nodes,
            logs,
            trees,
            slots,
        }
    }

    /// The name of an entry.
    pub fn text_of(&self, name: &Name) -> Vec<u8> {
        tree::name_at(&self.view, name)
    }

    /// The node that an entry names, if the entry is valid and fits it.
    pub fn target(&self, name: &Name) -> Option<u32> {
        tree::target(&self.nodes, name)
    }

    /// Pairs of valid entries (by number) of one name in one directory.
    pub fn duplicates(&self) -> Vec<(usize, usize)> {
        tree::duplicates(&self.view, &self.nodes, &self.logs)
    }

    /// Structures that hold slots of another structure.
    pub fn shared(&self) -> &[Holder] {
        &self.slots.shared
    }

    /// Symlinks (by number) with an unreadable text, and why.
    pub fn unsound_texts(&self) -> &[(usize, &'static str)] {
        &self.slots.unsound_texts
    }

    /// Inodes (by number) with an unsound set of extended attributes.
    pub fn unsound_xattrs(&self) -> impl Iterator<Item = usize> {
        self.slots.unsound_xattrs.iter().map(|found| found.0)
    }

    /// Inodes (by number) whose flags do not fit their sound set of extended attributes, and the
    /// flags that do.
    pub fn wrong_flags(&self) -> &[(usize, u64)] {
        &self.slots.wrong_flags
    }

    /// The data blocks that are metadata, ascending.
    pub fn blocks_in_data(&self) -> Vec<Range<u64>> {
        self.chunks.blocks_in_data(&self.geometry)
    }

    /// The free chunks of the metadata region.
    pub fn free_chunks(&self) -> impl Iterator<Item = u64> {
        let region = self.geometry.meta_chunks;
        let free = self.chunks.of(ChunkKind::Free);
        free.take_while(move |&chunk| chunk < region)
    }

    /// Whether metadata slot `slot` is in use.
    pub fn is_used(&self, slot: u64) -> bool {
        self.slots.is_used(slot)
    }

    /// The text of a symlink.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn link_text(&self, link: &Node) -> Result<Vec<u8>, &'static str> {
        slots::read_text(&mut self.window(), &self.geometry, &self.chunks, link)
    }

    /// The extended attributes of an inode.
    pub fn xattrs(&self, node: &Node) -> XattrSet {
        xattrs::read_set(&mut self.window(), &self.geometry, &self.chunks, node)
    }

    fn window(&self) -> Window<'_, 'a> {
        Window::of_slots(&self.view, &self.geometry)
    }
}

impl std::fmt::Debug for Survey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survey")
            .field("inodes", &self.nodes.list.len())
            .field("entries", &self.logs.names.len())
            .finish_non_exhaustive()
    }
}
