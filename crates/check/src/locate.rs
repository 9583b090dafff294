//! Names the structure at an offset of a pool, for people.

use vellum_layout::{BLOCK_BYTES, ChunkKind, Geometry, MapState, SLOT_BYTES, Superblock};

use crate::header::{self, Chunks};
use crate::image::{Image, View};
use crate::inodes::{Found, Nodes};
use crate::logs::Logs;
use crate::report::Sink;
use crate::trees::word_of;

/// Bytes of a cache line.
const LINE_BYTES: u64 = 64;
/// Bytes of a word of a table.
const WORD_BYTES: u64 = 8;

/// Names the structures of a pool.
pub struct Locator<'a> {
    view: View<'a>,
    found: Option<Structures>,
}

/// The structures of a readable pool.
struct Structures {
    geometry: Geometry,
    seed: u64,
    chunks: Chunks,
    nodes: Nodes,
    logs: Logs,
}

impl Structures {
    /// Whether a metadata slot lies at `at`.
    fn is_slot(&self, at: u64) -> bool {
        let g = &self.geometry;
        let chunk = at.checked_sub(g.meta_at).map(|from| from / g.chunk_bytes);
        chunk.is_some_and(|chunk| self.chunks.in_data(g).any(|found| found == chunk))
    }

    fn read(view: &View, superblock: &Superblock, sink: &mut Sink) -> Self {
        let geometry = superblock.geometry();
        let chunks = Chunks::read(view, &geometry, sink);
        let nodes = Nodes::read(view, &geometry, &chunks, |_| {});
        let seed = superblock.hash_seed;
        let logs = Logs::read(view, &geometry, &chunks, &nodes, seed, |_| {});
        Self {
            geometry,
            seed,
            chunks,
            nodes,
            logs,
        }
    }
}

impl<'a> Locator<'a> {
    /// Reads the structures of the image. Journals are not applied.
    pub fn new(image: &'a dyn Image) -> Self {
        let view = View::new(image);
        let mut sink = Sink::default();
        let superblock = header::superblock(&view, &mut sink);
        let found =
            superblock.map(|(superblock, _)| Structures::read(&view, &superblock, &mut sink));
        Self { view, found }
    }

    /// The structure at `at`, such as `inode 17, line 0` or `log of directory 1, line 1`.
    pub fn name(&self, at: u64) -> String {
        let Some(found) = &self.found else {
            return format!("offset {at:#x} outside any pool");
        };
        let g = &found.geometry;
        let line = |start: u64| (at - start) / LINE_BYTES;
        let words = |start: u64| {
            let first = (at - start) / LINE_BYTES * (LINE_BYTES / WORD_BYTES);
            format!("words {first} to {}", first + LINE_BYTES / WORD_BYTES - 1)
        };
        match at {
            _ if found.is_slot(at) => self.slot(found, (at - g.meta_at) / SLOT_BYTES, at),
            _ if g.is_of_file(at) => {
                let block = (at - g.data_at) / BLOCK_BYTES;
                format!(
                    "data block {block}, line {}{}",
                    line(g.data_at) % 64,
                    self.owner(found, block)
                )
            }
            _ if at >= g.last_copy_at => format!("last superblock, line {}", line(g.last_copy_at)),
            _ if g.external.is_some_and(|external| at >= external.places_at) => {
                format!("device paths, line {}", line(at - at % BLOCK_BYTES))
            }
            _ if g.changed_at != 0 && at >= g.changed_at => {
                format!("map of changed blocks, line {}", line(g.changed_at))
            }
            _ if at >= g.saved_state_at => {
                format!("saved allocator state, line {}", line(g.saved_state_at))
            }
            _ if at >= g.table_at => format!("mapping table, {}", words(g.table_at)),
            _ if at >= g.meta_at => self.slot(found, (at - g.meta_at) / SLOT_BYTES, at),
            _ if at >= g.live_map_at => format!("saved live map, line {}", line(g.live_map_at)),
            _ if at >= g.chunk_table_at => format!("chunk table, {}", words(g.chunk_table_at)),
            _ if at >= g.slots_at => {
                let bytes = g.thread_slot_at(1) - g.thread_slot_at(0);
                let slot = (at - g.slots_at) / bytes;
                let line = line(g.slots_at) % (bytes / LINE_BYTES);
                format!("journal of thread slot {slot}, line {line}")
            }
            _ if at >= g.state_at => format!("state block, line {}", line(g.state_at)),
            _ => format!("superblock, line {}", line(0)),
        }
    }

    /// The owner of a data block.
    fn owner(&self, found: &Structures, block: u64) -> String {
        let (geometry, chunks) = (&found.geometry, &found.chunks);
        let word = word_of(
            &self.view,
            geometry,
            chunks,
            &found.nodes,
            found.seed,
            block,
        );
        let state = match word.state() {
            MapState::Free => return " (free)".to_owned(),
            MapState::Unwritten => "unwritten",
            MapState::Mapped => "mapped",
            MapState::Limbo => "in limbo",
        };
        format!(" ({state}, of mapping {})", word.id())
    }

    fn slot(&self, found: &Structures, slot: u64, at: u64) -> String {
        let Structures {
            geometry,
            chunks,
            nodes,
            logs,
            ..
        } = found;
        let ino = |directory: u32| {
            nodes
                .list
                .get(directory as usize)
                .map_or(0, |node| node.slot)
        };
        let line = |first: u64| (at - geometry.slot_at(first)) / LINE_BYTES;
        if chunks.kind_of(slot) == Some(ChunkKind::Inodes) {
            let state = match nodes.find(slot) {
                Found::Node(_) => "",
                Found::Broken(_) => " (unsound)",
                _ => " (free)",
            };
            return format!("inode {slot}{state}, line {}", line(slot));
        }
        let inside = |first: u64, slots: u64| (first..first + slots).contains(&slot);
        let extent = logs.extents.iter().find(|of| inside(of.slot, of.slots));
        if let Some(of) = extent {
            return format!(
                "log of directory {}, line {}",
                ino(of.directory),
                line(of.slot)
            );
        }
        let name = logs
            .names
            .iter()
            .find(|of| inside(of.slot, of.slots.into()));
        if let Some(of) = name {
            let (directory, line) = (ino(of.directory), line(of.slot));
            return format!(
                "entry of inode {} in directory {directory}, line {line}",
                of.ino
            );
        }
        let kind = match chunks.kind_of(slot) {
            Some(ChunkKind::Entries) => "slot of entries",
            Some(ChunkKind::Blocks) => "slot of blocks",
            Some(ChunkKind::Areas) => "slot of areas",
            _ => "slot in no chunk",
        };
        format!("{kind} {slot} that nothing names, line {}", line(slot))
    }
}
