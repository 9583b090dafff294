//! What the checker reads, for those who do more with it than judge: the inodes, the logs and who
//! holds which metadata slot. Nothing is judged here, and journals are not laid over.

use vellum_layout::{Geometry, JournalPair, Superblock};

use crate::header;
use crate::image::{View, Window};
use crate::report::Sink;
use crate::{Image, journal, logs, moves, slots, tree};

pub use crate::header::Chunks;
pub use crate::inodes::{Broken, Found, Node, Nodes};
pub use crate::journal::Record;
pub use crate::logged::RedoLog;
pub use crate::logs::{Extent, Issue, Logs, Name};
pub use crate::slots::Holder;
pub use crate::trees::{TreeBlock, TreeNode, Trees};
pub use crate::undo::UndoLog;

/// The superblock that counts, if the image has one that can be used.
pub fn superblock(image: &dyn Image) -> Option<Superblock> {
    header::superblock(&View::new(image), &mut Sink::default()).map(|(found, _)| found)
}

/// The same, whether all of the pool is there or not: of a pool whose data lie elsewhere there may
/// be its own bytes alone.
pub fn header(image: &dyn Image) -> Option<Superblock> {
    header::counting(&View::new(image)).ok()
}

/// What the log of a pool with a log says; `None` if neither of its anchors is sound.
pub fn redo_log(image: &dyn Image, superblock: &Superblock) -> Option<RedoLog> {
    RedoLog::read(&View::new(image), superblock)
}

/// What the versions of metadata say whose data lie elsewhere; `None`: the pool has none.
pub fn versions(image: &dyn Image, superblock: &Superblock) -> Option<UndoLog> {
    UndoLog::read(&View::new(image), superblock)
}

/// The thread slots whose journals are not retired.
pub fn journals(image: &dyn Image, geometry: &Geometry) -> Vec<(u32, Record)> {
    let view = View::new(image);
    (0..geometry.thread_slots)
        .map(|slot| (slot, journal::read(&view, geometry, slot).1))
        .filter(|(_, record)| *record != Record::Retired)
        .collect()
}

/// Whether a committed record may make this store.
pub fn may_store(geometry: &Geometry, pair: &JournalPair) -> bool {
    journal::may_store(geometry, pair.at)
}

/// The stores that are left to be made of a move of directories, by pool offset; none where there
/// is no list, or one that is unsound.
pub fn moves(image: &dyn Image, geometry: &Geometry) -> Vec<(u64, u64)> {
    let mut view = View::new(image);
    moves::evaluate(&mut view, geometry, true, &mut Sink::default());
    view.laid()
}

/// The trees of all files in use, of the pool that `superblock` describes.
pub fn trees(image: &dyn Image, superblock: &Superblock) -> Trees {
    let (view, geometry) = (View::new(image), superblock.geometry());
    let chunks = Chunks::read(&view, &geometry, &mut Sink::default());
    let nodes = Nodes::read(&view, &geometry, &chunks, |_| {});
    Trees::read(&view, &geometry, &chunks, &nodes, superblock.hash_seed)
}

/// What a pool's metadata holds.
pub struct Survey<'a> {
    view: View<'a>,
    /// Where everything lies.
    pub geometry: Geometry,
    /// What the chunks hold.
    pub chunks: Chunks,
    /// The inodes, with what the logs tell of them.
    pub nodes: Nodes,
    /// The directories' logs.
    pub logs: Logs,
    /// The trees of files, where the mapping keeps any.
    pub trees: Trees,
    slots: slots::Slots,
}

impl<'a> Survey<'a> {
    /// Reads the metadata of the pool that `superblock` describes.
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

    /// Who holds slots that somebody else holds already.
    pub fn shared(&self) -> &[Holder] {
        &self.slots.shared
    }

    /// Symlinks (by number) whose text cannot be read, and why.
    pub fn unsound_texts(&self) -> &[(usize, &'static str)] {
        &self.slots.unsound_texts
    }

    /// Whether somebody holds metadata slot `slot`.
    pub fn is_used(&self, slot: u64) -> bool {
        self.slots.is_used(slot)
    }

    /// The text of a symlink.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn link_text(&self, link: &Node) -> Result<Vec<u8>, &'static str> {
        let mut window = Window::new(&self.view, self.geometry.meta_at, self.geometry.table_at);
        slots::read_text(&mut window, &self.geometry, &self.chunks, link)
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
