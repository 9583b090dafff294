//! The layout of a pool of a given size.

mod plan;

use std::ops::Range;

use thiserror::Error;

use crate::saved_state::SavedStatePlan;
use crate::{
    AddedSegment, AddedSegments, AreaPlan, BLOCK_BYTES, ChunkKind, ChunkWord, FileKind, Homes,
    IMAGE_MAX_BYTES, LINE_ENTRIES, MappingKind, NamespaceKind, RUN_BLOCKS, ReplicaPlan, SLOT_BYTES,
    THREAD_SLOT_BYTES, changed_bytes_for, log_bytes_for, undo_bytes_for,
};

/// Smallest pool, in bytes.
pub const POOL_MIN_BYTES: u64 = 1 << 20;

/// The largest metadata region, in bytes: mapping ids have 30 bits and are metadata slot numbers.
pub const METADATA_MAX_BYTES: u64 = SLOT_BYTES << 30;

/// The requested properties of a new pool; `None` takes the default for the size.
#[derive(Clone, Copy, Debug, Default)]
pub struct GeometryRequest {
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Bytes of the metadata region.
    pub metadata_bytes: Option<u64>,
    /// Whether data space never becomes metadata.
    pub has_fixed_metadata: bool,
    /// Thread slots: how many operations can run at once.
    pub thread_slots: Option<u32>,
    /// How names are kept.
    pub namespace: NamespaceKind,
    /// File mapping of the first segment.
    pub mapping: MappingKind,
    /// Consecutive blocks of a file that HashFS places together: 8, the default, or 1.
    pub run_blocks: Option<u32>,
    /// Neighbouring lines that serve as home lines of consecutive runs: a power of two, by default
    /// [`crate::SPAN_LINES`].
    pub span_lines: Option<u16>,
    /// Deliberate fragmentation, per mille: see [`Geometry::fragmentation`].
    pub fragmentation: u16,
    /// Whether the metadata are changed in memory and made durable by a redo log.
    pub is_logged: bool,
    /// The external data device, if the data do not lie in the pool. Without a redo log, an undo
    /// log keeps the metadata consistent with the data. If `pool_bytes` is 0, the pool gets the
    /// size that it needs.
    pub external: Option<ExternalRequest>,
}

/// The external data device of a new pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalRequest {
    /// Its identity.
    pub id: [u8; 16],
    /// Offset on the device at which the data begin.
    pub at: u64,
    /// Bytes for data.
    pub data_bytes: u64,
    /// Whether the device also holds a metadata replica.
    pub has_replica: bool,
}

/// The external data device that holds the data of segment 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct External {
    /// Identity of the device.
    pub id: [u8; 16],
    /// Offset on the device at which the data begin.
    pub at: u64,
    /// Pool offset of the block that records where the devices were last found
    /// ([`crate::DevicePaths`]).
    pub places_at: u64,
}

/// Why a pool cannot be laid out.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GeometryError {
    /// The pool is below the minimum.
    #[error("a pool needs at least {POOL_MIN_BYTES} bytes (1 MiB), not {0}")]
    TooSmall(u64),
    /// Metadata would leave no space for data.
    #[error(
        "{metadata_bytes} bytes of metadata leave no room for data in a pool of {pool_bytes} bytes"
    )]
    NoRoomForData {
        /// Requested bytes of metadata.
        metadata_bytes: u64,
        /// Bytes of the pool.
        pool_bytes: u64,
    },
    /// More metadata than inode numbers can name.
    #[error("metadata is limited to {METADATA_MAX_BYTES} bytes (128 GiB), not {0}")]
    MetadataTooLarge(u64),
    /// The metadata, their redo or undo log, and the rest do not fit the pool, whose data lie on an
    /// external device.
    #[error(
        "a pool of {pool_bytes} bytes is too small for {metadata_bytes} bytes of metadata and \
         their log; it needs {needed_bytes}"
    )]
    NoRoomForMetadata {
        /// Bytes of metadata.
        metadata_bytes: u64,
        /// Bytes of the pool.
        pool_bytes: u64,
        /// Bytes that it needs.
        needed_bytes: u64,
    },
    /// The data would not fit one segment.
    #[error("a segment holds at most 2^30 blocks (4 TiB); a pool of {0} bytes needs more")]
    SegmentTooLarge(u64),
    /// Thread slots out of range.
    #[error("thread slots must be between 2 and 1024, not {0}")]
    ThreadSlots(u32),
    /// An invalid length of runs.
    #[error("blocks are placed by 1 or by 8 together, not by {0}")]
    RunBlocks(u32),
    /// An invalid length of spans.
    #[error(
        "runs of 8 blocks are placed on 1, 2, 4 and so on up to 256 lines side by side, runs of 1 \
         on one; not on {0}"
    )]
    SpanLines(u16),
    /// Runs or spans were requested for a mapping without them.
    #[error("only hashfs places blocks by runs, not {}", .0.name())]
    NoRuns(MappingKind),
    /// A share above 100 %.
    #[error("fragmentation is at most 1000 per mille, not {0}")]
    Fragmentation(u16),
}

/// The chunks that free data space may become, when metadata are short. They are numbered as all
/// chunks are, by their distance from the first one; the numbers between do not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataChunks {
    /// The first one.
    pub first: u64,
    /// Their number; 0: none.
    pub count: u64,
}

/// Most fragmentation, per mille.
const FRAGMENTATION_MAX: u16 = 1000;

/// The layout of a pool. All offsets and sizes are in bytes unless the name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Bytes of a metadata chunk, a power of two.
    pub chunk_bytes: u64,
    /// Thread slots.
    pub thread_slots: u32,
    /// Offset of the state block.
    pub state_at: u64,
    /// Offset of the thread slots.
    pub slots_at: u64,
    /// Offset of the chunk table: one word per chunk.
    pub chunk_table_at: u64,
    /// Offset of the live map that a clean close saves: one bit per metadata slot.
    pub live_map_at: u64,
    /// Offset of the metadata region.
    pub meta_at: u64,
    /// Chunks in the metadata region.
    pub meta_chunks: u64,
    /// Further chunks, in the data of segment 0.
    pub data_chunks: DataChunks,
    /// Offset of the mapping table of segment 0.
    pub table_at: u64,
    /// Offset of the saved allocator state of segment 0; see [`SavedStatePlan`].
    pub saved_state_at: u64,
    /// Offset of the redo log of a logged pool, whose image is everything before it; 0: none.
    pub log_at: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Offset of the undo log of a split pool ([`crate::UndoPlan`]); 0: none.
    pub undo_at: u64,
    /// Bytes of the undo log.
    pub undo_bytes: u64,
    /// Offset of the data blocks of segment 0. Data on an external device are numbered as if they
    /// lay behind the pool.
    pub data_at: u64,
    /// Data blocks in segment 0, a multiple of [`LINE_ENTRIES`].
    pub segment_blocks: u64,
    /// The added segments. Their blocks are numbered behind those of segment 0, in the order of the
    /// segments.
    pub added: AddedSegments,
    /// Offset of the last copy of the superblock.
    pub last_copy_at: u64,
    /// How names are kept.
    pub namespace: NamespaceKind,
    /// Where areas are, if the namespace has areas.
    pub areas: AreaPlan,
    /// File mapping of segment 0.
    pub mapping: MappingKind,
    /// Consecutive blocks of a file that HashFS places together.
    pub run_blocks: u32,
    /// Neighbouring lines that serve as home lines of consecutive runs of a file in HashFS.
    pub span_lines: u16,
    /// How many new blocks, per mille, are kept from following their logical predecessor: 1000
    /// minus the layout score that files should have. 0: no deliberate fragmentation.
    pub fragmentation: u16,
    /// The external data device, if the pool has one.
    pub external: Option<External>,
    /// Offset of the map of metadata blocks that changed since they were copied to the metadata
    /// replica ([`crate::ReplicaPlan`]); 0: no replica.
    pub changed_at: u64,
}

impl Geometry {
    /// Whether every part lies inside the pool, in order and without overlap.
    pub fn is_sound(&self) -> bool {
        let meta_bytes = self.meta_chunks.checked_mul(self.chunk_bytes);
        let Some(chunks_end) = self.chunks_end_checked() else {
            return false;
        };
        let slot_bytes = chunks_end.checked_mul(self.chunk_bytes);
        let plannable = self.segment_blocks <= 1 << 30 && self.saved_state_at <= self.pool_bytes;
        let saved_state_bytes = plannable.then(|| self.saved_state().bytes());
        let own_blocks = match self.added.own() {
            Some(own) => self.segment_blocks.saturating_add(own.blocks),
            None => self.segment_blocks,
        };
        let data = (self.data_at, own_blocks.checked_mul(BLOCK_BYTES));
        let last = [(self.last_copy_at, Some(BLOCK_BYTES))];
        let changed = match self.changed_at {
            0 => None,
            at => Some((at, Some(changed_bytes_for(self.image_end())))),
        };
        let behind_log = match self.external {
            None => [data, last[0]],
            Some(external) => [(external.places_at, Some(BLOCK_BYTES)), last[0]],
        };
        let parts = [
            (0, Some(2 * BLOCK_BYTES)),
            (self.state_at, Some(BLOCK_BYTES)),
            (
                self.slots_at,
                u64::from(self.thread_slots).checked_mul(THREAD_SLOT_BYTES),
            ),
            (self.chunk_table_at, chunks_end.checked_mul(8)),
            (
                self.live_map_at,
                slot_bytes.map(|bytes| bytes / SLOT_BYTES / 8),
            ),
            (self.meta_at, meta_bytes),
            (self.table_at, plannable.then(|| self.table_bytes())),
            (self.saved_state_at, saved_state_bytes),
            (
                self.image_end(),
                self.log_bytes.checked_add(self.undo_bytes),
            ),
        ];
        let mut end = 0u64;
        for (at, bytes) in parts.into_iter().chain(changed).chain(behind_log) {
            let Some(next) = bytes.and_then(|bytes| at.checked_add(bytes)) else {
                return false;
            };
            if at < end || !at.is_multiple_of(BLOCK_BYTES) {
                return false;
            }
            end = next;
        }
        end <= self.pool_bytes
            && self.chunk_bytes.is_power_of_two()
            && self.chunk_bytes >= BLOCK_BYTES
            && (2..=1024).contains(&self.thread_slots)
            && (1..1 << 48).contains(&self.meta_slots())
            && self.segment_blocks.is_multiple_of(LINE_ENTRIES)
            && Homes::is_run(self.run_blocks)
            && Homes::is_span(self.span_lines, self.run_blocks)
            && self.fragmentation <= FRAGMENTATION_MAX
            && (1..=1 << 30).contains(&self.segment_blocks)
            && self.has_sound_log()
            && self.has_sound_undo()
            && self.has_sound_medium(data)
            && self.has_sound_areas()
            && self.has_sound_segments()
            && self.has_sound_data_chunks()
    }

    /// The end of the numbers of chunks, unless it is impossible.
    fn chunks_end_checked(&self) -> Option<u64> {
        let end = self.data_chunks.first.checked_add(self.data_chunks.count)?;
        Some(end.max(self.meta_chunks))
    }

    /// Whether the chunks in data space are whole blocks of segment 0, in the pool.
    fn has_sound_data_chunks(&self) -> bool {
        let DataChunks { first, count } = self.data_chunks;
        if count == 0 {
            return first == 0;
        }
        // There are fewer than 2^48 slots.
        let end = self.meta_at.checked_add((first + count) * self.chunk_bytes);
        let begins = self.meta_at.checked_add(first * self.chunk_bytes);
        let behind = begins.and_then(|begin| begin.checked_sub(self.data_at));
        self.external.is_none()
            && !self.is_logged()
            && (first + count) * self.chunk_bytes <= METADATA_MAX_BYTES
            && behind.is_some_and(|behind| behind.is_multiple_of(BLOCK_BYTES))
            && end.is_some_and(|end| end <= self.data_end_of_first())
    }

    /// Whether added segments lie where the data of segment 0 lie: on external data devices, and
    /// nothing follows the data on the first one, or in the pool, directly behind them.
    fn has_sound_segments(&self) -> bool {
        let lies_well = match self.added.own() {
            Some(own) => self.external.is_none() && own.at == self.data_end_of_first(),
            None => self.external.is_some() && self.changed_at == 0,
        };
        self.added.is_sound(self.segment_blocks)
            && self.data_at.checked_add(self.data_bytes()).is_some()
            && (self.added.is_empty() || self.mapping.takes_segments() && lies_well)
    }

    /// Pool offset of the end of segment 0's data.
    fn data_end_of_first(&self) -> u64 {
        self.data_at + self.segment_blocks * BLOCK_BYTES
    }

    /// The layout of the pool once it has `pool_bytes` bytes: the new ones belong to a segment of
    /// its own, directly behind segment 0. `None` if that is impossible: the pool does not get
    /// more blocks, has too many, its mapping takes no segments, or its data lie elsewhere.
    pub fn grown(&self, pool_bytes: u64) -> Option<Self> {
        let last_copy_at = pool_bytes.checked_sub(BLOCK_BYTES)? / BLOCK_BYTES * BLOCK_BYTES;
        let at = self.data_end_of_first();
        let blocks = last_copy_at.checked_sub(at)? / BLOCK_BYTES / LINE_ENTRIES * LINE_ENTRIES;
        let mut grown = *self;
        grown.added.0[0] = AddedSegment {
            id: [0; 16],
            at,
            blocks,
        };
        grown.pool_bytes = last_copy_at + BLOCK_BYTES;
        grown.last_copy_at = last_copy_at;
        let is_larger = grown.blocks() > self.blocks();
        (is_larger && grown.is_sound()).then_some(grown)
    }

    /// Whether the external data device is consistent with the rest: its data count as lying behind
    /// the pool.
    fn has_sound_medium(&self, (data_at, data_bytes): (u64, Option<u64>)) -> bool {
        let Some(external) = self.external else {
            return self.changed_at == 0;
        };
        let replica_bytes = match self.changed_at {
            0 => 0,
            _ if !self.has_undo() => return false,
            // Undo logs end below 2^60.
            _ => ReplicaPlan {
                at: 0,
                blocks: self.image_end() / BLOCK_BYTES,
            }
            .bytes(),
        };
        let bytes = data_bytes.and_then(|bytes| bytes.checked_add(replica_bytes));
        let ends = [data_at, external.at].map(|at| at.checked_add(bytes?));
        (self.is_logged() || self.has_undo())
            && data_at == self.pool_bytes
            && data_at.is_multiple_of(BLOCK_BYTES)
            && external.at.is_multiple_of(BLOCK_BYTES)
            && external.at >= BLOCK_BYTES
            && ends.iter().all(Option::is_some)
    }

    fn has_sound_areas(&self) -> bool {
        match self.namespace {
            // Words of area tables and directory locations have 32 bits for a slot.
            NamespaceKind::Adaptive => {
                self.meta_slots() <= 1 << 32
                    && self.areas.is_sound(self.meta_slots(), self.chunk_bytes)
            }
            NamespaceKind::Direct | NamespaceKind::Tree => self.areas == AreaPlan::default(),
        }
    }

    fn has_sound_log(&self) -> bool {
        match self.log_bytes {
            0 => self.log_at == 0,
            bytes => self.log_at <= IMAGE_MAX_BYTES && bytes >= log_bytes_for(self.log_at),
        }
    }

    fn has_sound_undo(&self) -> bool {
        match self.undo_bytes {
            0 => self.undo_at == 0,
            bytes => {
                self.external.is_some()
                    && !self.is_logged()
                    && self.undo_at <= 1 << 60
                    && bytes >= undo_bytes_for(self.undo_at)
            }
        }
    }

    /// Whether the metadata are changed in memory and made durable by a redo log.
    pub fn is_logged(&self) -> bool {
        self.log_bytes != 0
    }

    /// Whether the pool is split: metadata in persistent memory, data on an external device, and an
    /// undo log.
    pub fn has_undo(&self) -> bool {
        self.undo_bytes != 0
    }

    /// Where the metadata end. The redo log, the undo log or the data follow.
    pub fn image_end(&self) -> u64 {
        if self.is_logged() {
            self.log_at
        } else if self.has_undo() {
            self.undo_at
        } else {
            self.data_at
        }
    }

    /// Where the saved allocator state of segment 0 lies.
    pub fn saved_state(&self) -> SavedStatePlan {
        saved_state_plan(self.mapping, self.saved_state_at, self.segment_blocks)
    }

    /// How HashFS places the blocks of segment 0, with hashes of this seed.
    pub fn homes(&self, seed: u64) -> Homes {
        Homes {
            seed,
            blocks: self.segment_blocks,
            run_blocks: self.run_blocks,
            span_lines: self.span_lines,
        }
    }

    /// Slot numbers are below this. Those between the metadata region and the chunks in data space
    /// do not exist.
    pub fn meta_slots(&self) -> u64 {
        self.chunks_end() * self.slots_per_chunk()
    }

    /// Metadata slots of the metadata region, which are never data.
    pub fn region_slots(&self) -> u64 {
        self.meta_chunks * self.slots_per_chunk()
    }

    /// Numbers of chunks are below this.
    pub fn chunks_end(&self) -> u64 {
        let DataChunks { first, count } = self.data_chunks;
        self.meta_chunks.max(first + count)
    }

    /// The numbers of all chunks: those of the metadata region, then those in data space.
    pub fn chunks(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.meta_chunks).chain(self.chunks_of_data())
    }

    /// The numbers of the chunks in data space.
    pub fn chunks_of_data(&self) -> Range<u64> {
        let DataChunks { first, count } = self.data_chunks;
        first..first + count
    }

    /// Whether a chunk of this number exists.
    pub fn has_chunk(&self, chunk: u64) -> bool {
        chunk < self.meta_chunks || self.chunks_of_data().contains(&chunk)
    }

    /// Pool offset of a chunk.
    pub fn chunk_at(&self, chunk: u64) -> u64 {
        self.meta_at + chunk * self.chunk_bytes
    }

    /// The slots of a chunk; chunk 0 counts slot 0, which holds nothing.
    pub fn slots_of_chunk(&self, chunk: u64) -> Range<u64> {
        let slots = self.slots_per_chunk();
        chunk * slots..(chunk + 1) * slots
    }

    /// Pool offset of a chunk's word in the chunk table.
    pub fn chunk_word_at(&self, chunk: u64) -> u64 {
        self.chunk_table_at + chunk * 8
    }

    /// The data blocks that a chunk in data space takes.
    pub fn blocks_of_chunk(&self, chunk: u64) -> Range<u64> {
        let first = (self.chunk_at(chunk) - self.data_at) / BLOCK_BYTES;
        first..first + self.chunk_bytes / BLOCK_BYTES
    }

    /// The words of the live map that a clean close saves: those of the metadata region, and those
    /// of these chunks in data space.
    pub fn live_words(&self, in_data: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
        let of_region = std::iter::once(0..self.region_slots());
        let slots = of_region.chain(in_data.map(|chunk| self.slots_of_chunk(chunk)));
        let mut all: Vec<Range<u64>> = Vec::new();
        for words in slots.map(|slots| slots.start / 64..slots.end.div_ceil(64)) {
            match all.last_mut() {
                Some(last) if words.start <= last.end => last.end = last.end.max(words.end),
                _ => all.push(words),
            }
        }
        all
    }

    /// Pool offset behind the last slot.
    pub fn slots_end(&self) -> u64 {
        self.meta_at + self.chunks_end() * self.chunk_bytes
    }

    /// Whether a metadata slot lies, or can lie, at this pool offset.
    pub fn is_of_metadata(&self, at: u64) -> bool {
        let chunk = at
            .checked_sub(self.meta_at)
            .map(|from| from / self.chunk_bytes);
        chunk.is_some_and(|chunk| self.has_chunk(chunk))
    }

    /// The kind of a chunk with this word, and the added segment of which it has words, if the word
    /// is sound.
    pub fn decode_chunk(&self, chunk: u64, word: ChunkWord) -> Option<(ChunkKind, u8)> {
        // Chunks of the region are never data, so they need no generation.
        let is_possible = chunk >= self.meta_chunks || word.generation(chunk) == 0;
        word.decode(chunk).filter(|_| is_possible)
    }

    /// Whether a metadata slot of this number exists. There is no slot 0.
    pub fn has_slot(&self, slot: u64) -> bool {
        let is_in_data = || self.has_chunk(slot / self.slots_per_chunk());
        slot != 0 && (slot < self.region_slots() || is_in_data())
    }

    /// Metadata slots in a chunk.
    pub fn slots_per_chunk(&self) -> u64 {
        self.chunk_bytes / SLOT_BYTES
    }

    /// Whether inodes of this kind use [`crate::Inode::detail`].
    pub fn has_detail(&self, kind: FileKind) -> bool {
        match kind {
            FileKind::Symlink => true,
            FileKind::File => self.mapping.has_trees(),
            FileKind::Directory => self.namespace != NamespaceKind::Direct,
            _ => false,
        }
    }

    /// Pool offset of a metadata slot. The caller has checked the number.
    pub fn slot_at(&self, slot: u64) -> u64 {
        self.meta_at + slot * SLOT_BYTES
    }

    /// Pool offset of a thread slot.
    pub fn thread_slot_at(&self, slot: u32) -> u64 {
        self.slots_at + u64::from(slot) * THREAD_SLOT_BYTES
    }

    /// Whether a data block lies, or can lie, at this pool offset.
    pub fn is_of_file(&self, at: u64) -> bool {
        (self.data_at..self.data_at + self.data_bytes()).contains(&at)
    }

    /// Data blocks of all segments.
    pub fn blocks(&self) -> u64 {
        self.segment_blocks + self.added.blocks()
    }

    /// Bytes of all data blocks.
    pub fn data_bytes(&self) -> u64 {
        self.blocks() * BLOCK_BYTES
    }

    /// Bytes of the mapping table of segment 0.
    pub fn table_bytes(&self) -> u64 {
        self.mapping.table_bytes(self.segment_blocks)
    }

    /// Cache lines in HashFS's mapping table, of all segments.
    pub fn table_lines(&self) -> u64 {
        self.blocks() / LINE_ENTRIES
    }
}

fn saved_state_plan(mapping: MappingKind, at: u64, blocks: u64) -> SavedStatePlan {
    let has_lines = mapping.has_home_lines();
    SavedStatePlan {
        at,
        blocks,
        lines: if has_lines { blocks / RUN_BLOCKS } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(pool_bytes: u64) -> Geometry {
        Geometry::plan(&GeometryRequest {
            pool_bytes,
            ..Default::default()
        })
        .unwrap()
    }

    #[test]
    fn a_one_mebibyte_pool_works() {
        let small = plan(1 << 20);
        assert!(small.is_sound());
        assert_eq!(small.chunk_bytes, 4096);
        assert!(small.segment_blocks >= 128, "{small:?}");
        assert!(small.meta_slots() >= 1024);
    }

    #[test]
    fn large_pools_align_data_to_large_pages() {
        let large = plan(4 << 30);
        assert_eq!(large.chunk_bytes, 2 << 20);
        assert!(large.data_at.is_multiple_of(2 << 20));
        assert!(large.meta_slots() >= 2_000_000);
    }

    #[test]
    fn impossible_requests_say_why() {
        let ask = |pool_bytes, metadata_bytes| {
            Geometry::plan(&GeometryRequest {
                pool_bytes,
                metadata_bytes,
                thread_slots: None,
                ..Default::default()
            })
        };
        let endless = ask(1 << 30, Some(u64::MAX));
        assert_eq!(endless, Err(GeometryError::MetadataTooLarge(u64::MAX)));
        assert_eq!(ask(1000, None), Err(GeometryError::TooSmall(1000)));
        assert!(matches!(
            ask(1 << 20, Some(1 << 20)),
            Err(GeometryError::NoRoomForData { .. })
        ));
        assert!(matches!(
            ask(1 << 43, Some(1 << 30)),
            Err(GeometryError::SegmentTooLarge(_))
        ));
    }

    proptest! {
        #[test]
        fn every_size_is_sound(pool_bytes in POOL_MIN_BYTES..(1u64 << 42)) {
            let geometry = plan(pool_bytes);
            prop_assert!(geometry.is_sound(), "{:?}", geometry);
        }

        #[test]
        fn every_split_size_is_sound(
            data_bytes in 3 * POOL_MIN_BYTES..(1u64 << 42), has_replica: bool,
        ) {
            for mapping in MappingKind::ALL {
                let external =
                    Some(ExternalRequest { id: [1; 16], at: BLOCK_BYTES, data_bytes, has_replica });
                let request = GeometryRequest { mapping, external, ..Default::default() };
                let geometry = Geometry::plan(&request).unwrap();
                prop_assert!(geometry.is_sound(), "{:?}", geometry);
                prop_assert!(geometry.has_undo() && geometry.undo_at < geometry.data_at);
                prop_assert_eq!(geometry.image_end(), geometry.undo_at);
                prop_assert_eq!(geometry.changed_at != 0, has_replica);
            }
        }

        #[test]
        fn every_logged_size_is_sound(pool_bytes in 2 * POOL_MIN_BYTES..(1u64 << 42)) {
            for mapping in MappingKind::ALL {
                let request =
                    GeometryRequest { pool_bytes, mapping, is_logged: true, ..Default::default() };
                let geometry = Geometry::plan(&request).unwrap();
                prop_assert!(geometry.is_sound(), "{:?}", geometry);
                prop_assert!(geometry.is_logged() && geometry.log_at < geometry.data_at);
            }
        }
    }
}
