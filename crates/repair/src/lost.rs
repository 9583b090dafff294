//! Unreadable blocks: which ones, their contents, and the files that lose bytes.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};
use vellum_check::survey::{Name, Node, Survey, UndoLog, trees};
use vellum_check::{Class, Image, Report};
use vellum_layout::{
    BLOCK_BYTES, FileKind, Geometry, LINE_ENTRIES, MapRoot, MapState, ROOT_SLOT, SLOT_BYTES,
    TablePlan,
};

use crate::blocks::each_word;
use crate::draft::Draft;

/// Most lost ranges of files that are reported.
const TOLD_MAX: usize = 10_000;
/// Most blocks of one file that are examined.
const BLOCKS_MAX: u64 = 1 << 22;

/// Lost bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBytes {
    /// The file's inode.
    pub inode: u64,
    /// One of its paths.
    pub path: String,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Whether the bytes themselves are unreadable. Otherwise their locations are lost, if they
    /// existed: they read as zeros, like a hole.
    pub is_certain: bool,
}

impl fmt::Display for LostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            inode,
            path,
            offset,
            bytes,
            is_certain,
        } = self;
        let last = offset + bytes.saturating_sub(1);
        let what = if *is_certain {
            "cannot be read"
        } else {
            "read as zeros, because their locations are lost"
        };
        write!(f, "{path} (inode {inode}): bytes {offset} to {last} {what}")
    }
}

/// The unreadable blocks outside those of files.
pub(crate) fn blocks(image: &dyn Image, geometry: &Geometry) -> BTreeSet<u64> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    let data = geometry.data_at..geometry.data_at + geometry.data_bytes();
    let front = (0..data.start).step_by(BLOCK_BYTES as usize);
    let behind = (data.end..geometry.pool_bytes).step_by(BLOCK_BYTES as usize);
    let whole = front
        .chain(behind)
        .filter(|at| at + BLOCK_BYTES <= geometry.pool_bytes);
    whole
        .filter(|&at| image.read(at, &mut block).is_err())
        .collect()
}

/// Records what is lost with each unreadable block.
pub(crate) fn give_up(draft: &mut Draft, lost: &BTreeSet<u64>) {
    let table = draft.table_plan();
    for &at in lost {
        let what = held(&draft.geometry, &table, draft.superblock.last_copy_at, at);
        let what = format!("replaced by zeros: {what} cannot be read");
        // If this is declined, there is no plan.
        let _ = draft.give_up(Class::Unreadable, format_args!("offset {at:#x}"), what);
    }
}

/// The contents of the block at `at` of a pool with the superblock's last copy at `last_copy_at`.
fn held(geometry: &Geometry, table: &TablePlan, last_copy_at: u64, at: u64) -> String {
    let blocks: Vec<u64> = table.blocks_in(at, BLOCK_BYTES).collect();
    match at {
        _ if at == geometry.state_at / BLOCK_BYTES * BLOCK_BYTES => "the state block".to_owned(),
        _ if at < 2 * BLOCK_BYTES || at == last_copy_at => "a copy of the superblock".to_owned(),
        _ if (geometry.slots_at..geometry.chunk_table_at).contains(&at) => "a journal".to_owned(),
        _ if (geometry.chunk_table_at..geometry.live_map_at).contains(&at) => {
            "a part of the chunk table".to_owned()
        }
        _ if (geometry.table_at..geometry.table_at + geometry.table_bytes()).contains(&at)
            && blocks.is_empty() =>
        {
            "a part of the mapping table".to_owned()
        }
        _ if let [first, .., last] = blocks[..] => format!("whose blocks {first} to {last} are"),
        _ if at < geometry.table_at && geometry.is_of_metadata(at) => {
            let first = (at - geometry.meta_at) / SLOT_BYTES;
            format!("slots {first} to {}", first + BLOCK_BYTES / SLOT_BYTES - 1)
        }
        _ => "what a close saved".to_owned(),
    }
}

/// The lost bytes of files: those in unreadable blocks, and those whose locations were in lost
/// blocks of the mapping table. Nothing is read if all metadata were readable.
pub(crate) fn of_files(draft: &Draft, lost: &BTreeSet<u64>, before: &Report) -> Vec<LostBytes> {
    if lost.is_empty() && before.complete {
        return Vec::new();
    }
    let survey = Survey::of(draft.overlay, draft.superblock);
    let mut files = Files::of(&survey);
    files.read_blocks(draft);
    if draft.geometry.mapping.has_trees() {
        files.look_below_lost_nodes(draft, lost);
    }
    let lines = lost_lines(draft, lost);
    if !lines.is_empty() {
        files.look_for_holes(draft, &lines);
    }
    files.lost.truncate(TOLD_MAX);
    files.lost
}

/// Reports files whose bytes, written shortly before a crash, may not have arrived: transactions
/// that may be uncommitted changed their metadata.
pub(crate) fn doubtful_files(draft: &mut Draft, versions: &Option<UndoLog>) {
    let Some(versions) = versions else {
        return;
    };
    let survey = Survey::of(draft.overlay, draft.superblock);
    let files = Files::of(&survey);
    let nodes = survey.nodes.list.iter();
    let doubtful = nodes.filter(|node| {
        let has_bytes = node.kind == FileKind::File && node.size > 0 && node.root != 0;
        has_bytes && versions.is_recent(survey.geometry.slot_at(node.slot))
    });
    for node in doubtful.take(TOLD_MAX) {
        let what = format!(
            "{}: bytes that were written shortly before the crash may not be there; others may lie \
             in their place",
            files.path(node)
        );
        // It needs no store.
        let _ = draft.give_up(Class::UndoLog, format_args!("inode {}", node.slot), what);
    }
}

/// The lost lines of the mapping table. In a lost line of an added segment, a block of any home
/// line may have been.
fn lost_lines(draft: &Draft, lost: &BTreeSet<u64>) -> BTreeSet<u64> {
    let (geometry, plan) = (&draft.geometry, draft.table_plan());
    let blocks = lost.iter().flat_map(|&at| plan.blocks_in(at, BLOCK_BYTES));
    let lines: BTreeSet<u64> = blocks.map(|block| block / LINE_ENTRIES).collect();
    let homes = geometry.segment_blocks / LINE_ENTRIES;
    match lines.last() {
        Some(last) if *last >= homes => (0..homes).collect(),
        _ => lines,
    }
}

struct Files<'s, 'a> {
    survey: &'s Survey<'a>,
    by_id: HashMap<u32, &'s Node>,
    /// A name of each inode.
    names: HashMap<u64, &'s Name>,
    /// Blocks of each mapping id.
    has: HashMap<u32, BTreeSet<u32>>,
    lost: Vec<LostBytes>,
}

impl<'s, 'a> Files<'s, 'a> {
    fn of(survey: &'s Survey<'a>) -> Self {
        let files = survey.nodes.list.iter();
        let files = files.filter(|node| node.kind == FileKind::File);
        let by_id = files.filter_map(|node| Some((MapRoot(node.root).get()?.1, node)));
        let names = survey.logs.names.iter().filter(|name| name.alive);
        Self {
            survey,
            by_id: by_id.collect(),
            names: names.map(|name| (name.ino, name)).collect(),
            has: HashMap::new(),
            lost: Vec::new(),
        }
    }

    /// Reads every block with bytes.
    fn read_blocks(&mut self, draft: &Draft) {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        let mut bad = BTreeSet::new();
        each_word(draft, |block, word| {
            if !matches!(word.state(), MapState::Mapped | MapState::Unwritten) {
                return;
            }
            self.has
                .entry(word.id())
                .or_default()
                .insert(word.logical());
            let at = draft.geometry.data_at + block * BLOCK_BYTES;
            if word.state() == MapState::Mapped && draft.overlay.read(at, &mut bytes).is_err() {
                bad.insert((word.id(), word.logical()));
            }
        });
        for (id, logical) in bad {
            self.tell(id, logical.into(), true);
        }
    }

    /// Finds missing blocks of files whose home line is lost.
    fn look_for_holes(&mut self, draft: &Draft, lines: &BTreeSet<u64>) {
        let homes = draft.geometry.homes(draft.superblock.hash_seed);
        let files = self.by_id.iter();
        let mut files: Vec<(u32, u64)> = files.map(|(&id, node)| (id, node.size)).collect();
        files.sort_unstable();
        for (id, size) in files {
            for block in 0..size.div_ceil(BLOCK_BYTES).min(BLOCKS_MAX) {
                let has = self.has.get(&id);
                let is_there = has.is_some_and(|has| has.contains(&(block as u32)));
                if !is_there && lines.contains(&homes.line(id, block as u32)) {
                    self.tell(id, block, false);
                }
            }
        }
    }

    /// Finds missing blocks of files to which a lost node of their tree may have led.
    fn look_below_lost_nodes(&mut self, draft: &Draft, lost: &BTreeSet<u64>) {
        let before = draft.overlay.without_words();
        for node in trees(&before, draft.superblock).nodes {
            if !lost.contains(&draft.geometry.slot_at(node.slot)) {
                continue;
            }
            let id = node.inode as u32;
            let size = self.by_id.get(&id).map_or(0, |node| node.size);
            let end = node.end.min(size.div_ceil(BLOCK_BYTES));
            for block in node.first..end.min(node.first + BLOCKS_MAX) {
                let has = self.has.get(&id);
                if !has.is_some_and(|has| has.contains(&(block as u32))) {
                    self.tell(id, block, false);
                }
            }
        }
    }

    /// Records a lost block of a file, joined with the blocks before it.
    fn tell(&mut self, id: u32, block: u64, is_certain: bool) {
        let Some(node) = self.by_id.get(&id) else {
            return;
        };
        let (offset, end) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
        let Some(bytes) = end
            .min(node.size)
            .checked_sub(offset)
            .filter(|&bytes| bytes > 0)
        else {
            return;
        };
        if let Some(last) = self.lost.last_mut()
            && (last.inode, last.is_certain) == (node.slot, is_certain)
            && last.offset + last.bytes == offset
        {
            last.bytes += bytes;
        } else if self.lost.len() < TOLD_MAX {
            let path = self.path(node);
            self.lost.push(LostBytes {
                inode: node.slot,
                path,
                offset,
                bytes,
                is_certain,
            });
        }
    }

    /// One of the paths of a file.
    fn path(&self, node: &Node) -> String {
        let nodes = &self.survey.nodes.list;
        let (mut ino, mut parts) = (node.slot, Vec::new());
        while ino != ROOT_SLOT && parts.len() < nodes.len() {
            let Some(name) = self.names.get(&ino) else {
                break;
            };
            parts.push(self.survey.text_of(name).escape_ascii().to_string());
            ino = nodes[name.directory as usize].slot;
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }
}
