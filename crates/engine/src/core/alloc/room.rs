//! The number of files that the metadata have space for, and the blocks that names leave to the
//! logs of directories.

use std::sync::atomic::Ordering;

use vellum_layout::{
    BLOCK_BYTES, ChunkKind, FileKind, LogExtentKind, NAME_MAX, NameRecord, NamespaceKind,
    SLOTS_PER_BLOCK,
};
use vellum_media::{Memories, Memory};

use super::SPARE_BLOCKS;
use crate::core::Core;
use crate::core::cachelet::{self, Cachelet, flag};
use crate::core::slots::{Tally, field};

/// Bytes of hash tables for each name of *adaptive*, all levels of a table together: eight in each
/// of a few levels that the hash fills, as measured in full pools.
const TABLE_BYTES: u64 = 72;

/// The metadata that a name of a namespace takes, besides the inode of its file. An entry takes one
/// slot for up to 80 bytes of name or path.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameCost {
    /// The kind of chunks with entries; `None` if names are in blocks only.
    pub(super) entries_in: Option<ChunkKind>,
    /// Entries of one slot in such a chunk.
    pub(super) per_chunk: u64,
    /// Bytes of blocks for each name: words or records of logs, and tables.
    block_bytes: u64,
    /// Blocks that stay free for compacting logs, however many names there are.
    spare_blocks: u64,
}

impl NameCost {
    /// Blocks that logs of directories may need for this many more names. Half as many words may
    /// name nothing before a log is compacted, and compacting takes some more blocks.
    pub(super) fn log_blocks_for(self, names: u64) -> u64 {
        match self.entries_in {
            Some(_) => {
                let words = names + names / 2;
                words.div_ceil(LogExtentKind::Large.words()) + self.spare_blocks
            }
            None => self.spare_blocks,
        }
    }
}

/// The free metadata.
struct Free {
    chunks: u64,
    inodes: u64,
    entries: u64,
    /// Entries that are reserved for renames over existing names.
    kept_entries: u64,
    block_slots: u64,
}

impl Free {
    /// Free blocks, not counting `spare` ones.
    fn blocks_beside(&self, spare: u64) -> u64 {
        (self.block_slots / SLOTS_PER_BLOCK).saturating_sub(spare)
    }

    /// Whether this is enough for a number of files, which may take more chunks.
    fn suffices(&self, files: u64, cost: NameCost, slots_per_chunk: u64) -> bool {
        let for_inodes = files.saturating_sub(self.inodes).div_ceil(slots_per_chunk);
        let (for_entries, further_names) = match cost.entries_in {
            Some(_) => {
                let entries = files + self.kept_entries;
                let chunks = entries
                    .saturating_sub(self.entries)
                    .div_ceil(cost.per_chunk);
                (chunks, if chunks > 0 { cost.per_chunk } else { 0 })
            }
            None => (0, 0),
        };
        let Some(chunks) = self.chunks.checked_sub(for_inodes + for_entries) else {
            return false;
        };
        let blocks =
            (files * cost.block_bytes).div_ceil(BLOCK_BYTES) + cost.log_blocks_for(further_names);
        blocks * SLOTS_PER_BLOCK <= self.block_slots + chunks * slots_per_chunk
    }
}

impl<M: Memories> Core<M> {
    pub(super) fn name_cost(&self) -> NameCost {
        let slots = self.geometry.slots_per_chunk();
        let spare_blocks = SPARE_BLOCKS + 2;
        match self.geometry.namespace {
            NamespaceKind::Direct => NameCost {
                entries_in: Some(ChunkKind::Entries),
                per_chunk: slots,
                block_bytes: 8,
                spare_blocks,
            },
            NamespaceKind::Adaptive => {
                let areas = self.geometry.areas;
                NameCost {
                    entries_in: Some(ChunkKind::Areas),
                    per_chunk: slots - slots / areas.slots() * areas.first(),
                    block_bytes: 8 + TABLE_BYTES,
                    spare_blocks,
                }
            }
            NamespaceKind::Tree => {
                let longest = NameRecord::bytes_for(NAME_MAX);
                let names = (NameRecord::LIMIT - NameRecord::FIRST) / longest;
                NameCost {
                    entries_in: None,
                    per_chunk: 0,
                    block_bytes: BLOCK_BYTES.div_ceil(names),
                    // A log whose names were removed at random is copied a few blocks at a time.
                    // That frees one block only if there are as many.
                    spare_blocks: SPARE_BLOCKS + self.slots_there() / SLOTS_PER_BLOCK / 16,
                }
            }
        }
    }

    /// Free slots for entries.
    pub(super) fn free_entries(&self, cost: NameCost) -> u64 {
        cost.entries_in.map_or(0, |kind| self.free_slots_of(kind))
    }

    /// How many files could be created now, each with one name in an existing directory. Data space
    /// gives `more_chunks`. Where names have entries, the names have up to 80 bytes.
    pub(crate) fn files_possible(&self, more_chunks: u64) -> u64 {
        let cost = self.name_cost();
        // One is reserved for texts of symbolic links; see `is_last_kept`.
        let kept = cost.entries_in != Some(ChunkKind::Entries) && !self.has_entries_chunk();
        let held_entries = match cost.entries_in {
            Some(ChunkKind::Areas) => field::PATHS,
            _ => field::ENTRIES,
        };
        let free = Free {
            chunks: (self.chunks_to_be_had() + more_chunks).saturating_sub(kept.into()),
            inodes: self.free_slots_of(ChunkKind::Inodes) + self.held(field::INODES),
            entries: cost
                .entries_in
                .map_or(0, |kind| self.free_slots_of(kind) + self.held(held_entries)),
            kept_entries: self.kept_entries(),
            block_slots: self.free_slots_of(ChunkKind::Blocks),
        };
        let slots = self.geometry.slots_per_chunk();
        if self.is_short_of_chunks() && more_chunks == 0 {
            // A call that finds no space frees the entries of removed names.
            let entries = free.entries + self.dead_entries(cost);
            let free = Free { entries, ..free };
            let without_chunks = self.possible_without_chunks(&free, cost);
            return without_chunks.max(Self::possible_with_chunks(&free, cost, slots));
        }
        Self::possible_with_chunks(&free, cost, slots)
    }

    /// How many files fit if each takes the most that a file may take, and chunks are allocated.
    fn possible_with_chunks(free: &Free, cost: NameCost, slots: u64) -> u64 {
        let (mut possible, mut too_many) = (0, free.inodes + free.chunks * slots + 1);
        while possible + 1 < too_many {
            let files = possible + (too_many - possible) / 2;
            if free.suffices(files, cost, slots) {
                possible = files;
            } else {
                too_many = files;
            }
        }
        possible
    }

    /// How many files fit if no chunk is allocated. Tables of areas need nothing then, and names of
    /// `tree` are as long as the existing ones. Logs grow by whole blocks, then by small extents,
    /// which take slots of entries. Space in the last extent of a log is not counted: it belongs to
    /// one directory.
    fn possible_without_chunks(&self, free: &Free, cost: NameCost) -> u64 {
        let small = LogExtentKind::Small.words();
        let words = free.blocks_beside(SPARE_BLOCKS) * LogExtentKind::Large.words();
        let entries = free.entries.saturating_sub(free.kept_entries);
        let beyond = entries.saturating_sub(words);
        let names = match cost.entries_in {
            Some(ChunkKind::Entries) => entries - beyond.div_ceil(small + 1),
            Some(_) => {
                let slots = self.free_slots_of(ChunkKind::Entries) + self.held(field::ENTRIES);
                entries - beyond.saturating_sub(slots * small)
            }
            None => free.blocks_beside(cost.spare_blocks) * self.names_per_block(cost),
        };
        names.min(free.inodes)
    }

    /// How many names a block of a log of `tree` has, estimated from the ones in use.
    fn names_per_block(&self, cost: NameCost) -> u64 {
        let slots =
            self.chunks_of(ChunkKind::Blocks).count() as u64 * self.geometry.slots_per_chunk();
        let used = slots.saturating_sub(self.free_slots_of(ChunkKind::Blocks)) / SLOTS_PER_BLOCK;
        let least = BLOCK_BYTES / cost.block_bytes;
        let most = (NameRecord::LIMIT - NameRecord::FIRST) / NameRecord::bytes_for(1);
        (self.total(Tally::Inodes) / used.max(1)).clamp(least, most)
    }

    /// Directories whose names are all known, so their dead entries can be found.
    fn known_directories(&self) -> impl Iterator<Item = Cachelet> {
        let dirs = (1..=self.last_cachelet()).map(|number| Cachelet(number as u32));
        dirs.filter(|&dir| {
            self.has_flag(dir, flag::INDEXED) && self.kind(dir) == FileKind::Directory
        })
    }

    /// Entries of removed names in the logs of known directories. The last one of a log may have to
    /// stay.
    fn dead_entries(&self, cost: NameCost) -> u64 {
        if cost.entries_in.is_none() {
            return 0;
        }
        let dead = |dir| self.get(dir, cachelet::field::DEAD) as u32;
        let freed = self
            .known_directories()
            .map(|dir| u64::from(dead(dir).saturating_sub(1)));
        freed.sum()
    }

    /// Slots of a kind that thread slots hold and have not used.
    fn held(&self, cache: u64) -> u64 {
        let word = |slot| {
            self.arena
                .load(self.slot_word(slot, cache), Ordering::Relaxed)
        };
        let held = self
            .slots_used()
            .map(|slot| u64::from((word(slot) as u32).count_ones()));
        held.sum()
    }
}
