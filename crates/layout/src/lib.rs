//! Every structure on a Vellum pool: sizes, offsets, packed words, checksums. No I/O.
//!
//! `docs/format` specifies every byte and has a map of a pool. A test compares its tables with this
//! crate.
//!
//! Structures that change while mounted are described by *word offsets* and packed 8-byte words,
//! because the engine commits with single 8-byte stores; structures that are written once are
//! `zerocopy` structs.
#![forbid(unsafe_code)]

#[cfg(not(target_endian = "little"))]
compile_error!("Vellum's media format is little-endian and read in place");

mod added;
mod area;
mod checksum;
mod chunk;
mod cuckoo;
mod datasets;
mod dirlog;
mod entry;
mod extent;
mod geometry;
mod inode;
mod journal;
mod keyed;
mod last_copy;
mod level;
mod log;
mod medium;
mod merged;
mod move_list;
mod overwrite;
mod path_entry;
mod path_table;
mod pending;
mod quota;
mod replica;
mod saved_state;
mod segment;
mod settings;
mod state;
mod superblock;
mod text;
mod tree;
mod tree_log;
mod undo;
mod xattr;

pub use added::{
    AddedSegment, AddedSegments, BLOCKS_MAX, SEGMENTS_MAX, TablePart, TablePiece, TablePlan,
    table_chunks, table_parts,
};
pub use area::{
    AREA_LIMIT, AREA_TABLE_LINES, AreaCounts, AreaExtentHead, AreaLife, AreaLine, AreaPhase,
    AreaPlan, AreaTableHead, AreaWord, DirLocation, EntryState, Formed, ROOT_AREA, StateMapWord,
};
pub use checksum::{Summing, checksum, checksum_words, long_name_hash, name_hash};
pub use chunk::{ChunkKind, ChunkWord};
pub use cuckoo::CuckooPlan;
pub use datasets::{DATASET_ALIGN, FS_NAME_MAX, FsNameError, check_fs_name};
pub use dirlog::{LogExtentHead, LogExtentKind, LogWord};
pub use entry::{ENTRY_MAX_SLOTS, Entry, EntryHead, LifeWord, NAME_MAX, TargetWord};
pub use extent::{
    EXTENT_ENTRIES, EXTENT_MAX_BLOCKS, EXTENT_MAX_LEVEL, ExtentBody, ExtentKey, ExtentKind,
    ExtentNodeHead, ExtentRoot, ExtentSeal,
};
pub use geometry::{
    DataChunks, External, ExternalRequest, Geometry, GeometryError, GeometryRequest,
    METADATA_MAX_BYTES, POOL_MIN_BYTES,
};
pub use inode::{FileKind, IdentityWord, Inode, InodeState, LinksWord, MapRoot, OwnerWord};
pub use journal::{JOURNAL_MAX_PAIRS, JournalHead, JournalPair};
pub use keyed::{KeyedPlan, KeyedWord, PAIRS_PER_LINE, RUN_COUNT_MAX, STASH_LINES};
pub use last_copy::last_copy_before_datasets;
pub use level::{LevelPlan, LevelRoot};
pub use log::{
    ANCHOR_BYTES, ANCHOR_MAGIC, ANCHORS_BYTES, Anchor, AnchorPoint, EPOCH_MAGIC, Expected,
    IMAGE_MAX_BYTES, ImageTag, JournaledBlock, LOG_LINE_BYTES, LogBounds, LoggedLine,
    RECORD_HEAD_BYTES, Record, RecordHead, line_sum, log_bytes_for, record_bytes, seal_record,
};
pub use medium::{
    DevicePath, DevicePaths, MEDIUM_DATA_AT, MEDIUM_HEAD_BYTES, MEDIUM_MAGIC, MEDIUM_PATH_MAX,
    MediumHead,
};
pub use merged::{MergeReason, Merged, MergedWord};
pub use move_list::{MOVE_LIST_ENTRIES, MoveListHead, MovedEntry};
pub use overwrite::Overwrite;
pub use path_entry::{
    DIR_PATH_MAX, PATH_ENTRY_MAX_BYTES, PATH_ENTRY_MAX_SLOTS, PATH_MAX, PathEntryHead, PathHash,
    PathSeal, is_path, path_below, path_hash,
};
pub use path_table::{
    TABLE_BLOCK_LINES, TABLE_LEVEL_MAX, TABLE_LINE_WORDS, TableHead, TableRoot, TableWord, path_tag,
};
pub use pending::{PENDING_MAX, PendingBlock, PendingStore};
pub use quota::{QuotaKind, QuotaRecord};
pub use replica::{
    CHANGED_HEAD_BYTES, ChangedMap, REPLICA_HEAD_BYTES, REPLICA_MAGIC, REPLICA_SUM_BYTES,
    ReplicaHead, ReplicaPlan, changed_bytes_for,
};
pub use saved_state::{ChainLink, SavedStateHead, SavedStatePlan};
pub use segment::{
    Homes, LINE_ENTRIES, MapState, MapWord, RUN_BLOCKS, SPAN_LINES, SPAN_LINES_MAX, chain,
    home_line,
};
pub use settings::{Settings, SettingsError};
pub use state::{PoolPhase, PoolState, StateWord};
pub use superblock::{
    FS_MAX, FsRecord, MAGIC, MAIN, MappingKind, NamespaceKind, REGION_MAX, RegionRecord,
    SEGMENT_MAX, SegmentRecord, Superblock, SuperblockError, VERSION, features, uuid_text,
};
pub use text::{TEXT_MAX, TEXT_SLOT_MAX, text_check, text_home};
pub use tree::{RADIX_LEVELS_MAX, RADIX_WORDS, TreeTarget, TreeWord, Unsound, radix_span};
pub use tree_log::{
    LogOwner, LogPosition, NameRecord, RECORD_MAX_BYTES, RecordKind, Recorded, Records,
    UnsoundRecord,
};
pub use undo::{
    CommittedWord, GRANULE_BYTES, POOL_HEADER_BYTES, PoolHeader, UNDO_RECORD_BYTES, UndoPlan,
    UndoRecord, undo_bytes_for,
};
pub use vellum_media::mix;
pub use xattr::{
    XATTR_LIST_MAX, XATTR_NAME_MAX, XATTR_SET_MAX, XATTR_VALUE_MAX, Xattr, XattrHead, XattrRecord,
    XattrSpace, is_list, read_xattrs, xattr_flags, xattr_home,
};

/// Bytes of a metadata slot, the unit in which inodes and entries are placed and numbered.
pub const SLOT_BYTES: u64 = 128;
/// Bytes of a metadata or data block.
pub const BLOCK_BYTES: u64 = vellum_media::BLOCK_BYTES;
/// Metadata slots in a block.
pub const SLOTS_PER_BLOCK: u64 = BLOCK_BYTES / SLOT_BYTES;
/// Bytes of one thread slot in the pool (journal, last overwrite, and reserved bytes).
pub const THREAD_SLOT_BYTES: u64 = 1024;
/// The metadata slot of the root directory's inode.
pub const ROOT_SLOT: u64 = 1;
