//! The superblock: the fixed entry point of a pool (blocks 0 and 1, and a copy in the last block).
//!
//! mkfs writes it and only offline tools change it; the state block holds what changes while
//! mounted. The tables of metadata regions, segments and datasets have space to grow.

use thiserror::Error;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::added::{AddedSegment, AddedSegments, SEGMENTS_MAX};
use crate::checksum::checksum;
use crate::cuckoo::CuckooPlan;
use crate::geometry::{DataChunks, External, Geometry};
use crate::level::{LevelPlan, LevelRoot};
use crate::{AreaPlan, BLOCK_BYTES, Homes, ROOT_SLOT, SPAN_LINES_MAX};

/// First eight bytes of a pool.
pub const MAGIC: [u8; 8] = *b"VELLUMFS";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Metadata regions that a pool can grow to.
pub const REGION_MAX: usize = 8;
/// Datasets in a pool.
pub const FS_MAX: usize = 8;
/// Name of the first dataset of every pool.
pub const MAIN: &str = "main";
/// Segments in a pool.
pub const SEGMENT_MAX: usize = 32;
/// Most bytes of a label.
pub(crate) const LABEL_BYTES: usize = 64;
/// Most bytes of the options of mounts.
pub(crate) const MOUNT_OPTIONS_BYTES: usize = 128;

/// Feature bits. A pool with an unknown incompatible bit is refused; one with an unknown
/// read-only-compatible bit may only be read.
pub mod features {
    /// Compatible features known to this version.
    pub const COMPATIBLE: u64 = USER_UUID | MOUNT_OPTIONS;
    /// Read-only-compatible features known to this version.
    pub const READ_ONLY_COMPATIBLE: u64 = REPLICA | DATASETS | SPARSE;
    /// Compatible: users see another uuid than that of the structures.
    pub const USER_UUID: u64 = 1;
    /// Compatible: mounts take over options.
    pub const MOUNT_OPTIONS: u64 = 2;
    /// Read-only-compatible: the external data device holds a metadata replica, which every writer
    /// of the pool must mark stale.
    pub const REPLICA: u64 = 1;
    /// Read-only-compatible: further datasets lie behind the pool, as listed in the table of
    /// datasets.
    pub const DATASETS: u64 = 2;
    /// Read-only-compatible: free data blocks may lack space in the file system below, so every
    /// writer provides it before it stores to one.
    pub const SPARSE: u64 = 4;
    /// Incompatible: the metadata are changed in memory and made durable by a redo log.
    pub const LOGGED: u64 = 1;
    /// Incompatible: the home lines of consecutive runs of a file are neighbours.
    pub const SPANS: u64 = 2;
    /// Incompatible: the data of a segment lie on an external data device.
    pub const EXTERNAL_DATA: u64 = 4;
    /// Incompatible: the metadata lie in persistent memory, and an undo log keeps them consistent
    /// with data on an external data device.
    pub const UNDO: u64 = 8;
    /// Incompatible: there are segments on further external data devices.
    pub const SEGMENTS: u64 = 16;
    /// Incompatible: the pool has grown, by a segment of its own behind the first one.
    pub const GROWN: u64 = 32;
    /// Incompatible: free data space may become metadata chunks.
    pub const DATA_CHUNKS: u64 = 64;
    /// Incompatible features known to this version.
    pub const INCOMPATIBLE: u64 =
        LOGGED | SPANS | EXTERNAL_DATA | UNDO | SEGMENTS | GROWN | DATA_CHUNKS;
}

/// The namespace of a dataset. The numbers are on the media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum NamespaceKind {
    /// DirectFS: a log per directory, one global index.
    #[default]
    Direct = 1,
    /// ADAM's: names in areas, by their paths.
    Adaptive = 2,
    /// NOVA's: a log and a radix tree per directory, entry and inode coupled.
    Tree = 3,
}

impl NamespaceKind {
    /// All namespaces that this release knows.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Adaptive, Self::Tree];

    /// The namespace with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Its name for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Adaptive => "adaptive",
            Self::Tree => "tree",
        }
    }
}

/// The file mapping of a segment. The numbers are on the media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum MappingKind {
    /// HashFS: a hash table that is also the block allocator.
    #[default]
    HashFs = 1,
    /// A radix tree for each file.
    Radix = 2,
    /// An extent tree for each file.
    Extent = 3,
    /// An extent tree for each file, read through a page cache.
    ExtentCached = 4,
    /// One cuckoo hash table for all files.
    Cuckoo = 5,
    /// One level hash table for all files.
    Level = 6,
}

impl MappingKind {
    /// All mappings that this release knows.
    pub const ALL: [Self; 6] = [
        Self::HashFs,
        Self::Radix,
        Self::Extent,
        Self::ExtentCached,
        Self::Cuckoo,
        Self::Level,
    ];

    /// The mapping with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Its name for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::HashFs => "hashfs",
            Self::Radix => "radix",
            Self::Extent => "extent",
            Self::ExtentCached => "extent-cached",
            Self::Cuckoo => "cuckoo",
            Self::Level => "level",
        }
    }

    /// Whether blocks have a home line, so that there are counters and chains of displaced blocks.
    pub fn has_home_lines(self) -> bool {
        matches!(self, Self::HashFs)
    }

    /// Whether pools with this mapping can get added segments. Other tables have a fixed number of
    /// blocks.
    pub fn takes_segments(self) -> bool {
        self.has_home_lines() || self.has_trees()
    }

    /// Whether each file has a tree, found by the tree word of its inode.
    pub fn has_trees(self) -> bool {
        matches!(self, Self::Radix | Self::Extent | Self::ExtentCached)
    }

    /// The first word of a new mapping table, if it is not zero. All other words are zero.
    pub fn table_root(self) -> Option<u64> {
        (self == Self::Level).then(|| LevelRoot::of_new().0)
    }

    /// Bytes of the mapping table of a segment of this many blocks.
    pub fn table_bytes(self, blocks: u64) -> u64 {
        match self {
            Self::HashFs => blocks * 8,
            Self::Radix | Self::Extent | Self::ExtentCached => 0,
            Self::Cuckoo => CuckooPlan::new(blocks).bytes(),
            Self::Level => LevelPlan::new(blocks).bytes(),
        }
    }
}

/// A dataset of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FsRecord {
    /// 1: in use.
    pub in_use: u32,
    /// [`NamespaceKind`].
    pub namespace: u32,
    /// Inode slot of the root directory. A further dataset has 0 here: its record holds only
    /// `in_use`, the name, and where it lies.
    pub root: u64,
    /// Name, zero-padded.
    pub name: [u8; 64],
    /// Namespace *adaptive*: metadata slot of the first block of the area table ([`AreaPlan`]);
    /// else 0.
    pub area_table: u64,
    /// Namespace *adaptive*: bytes of an extent of entries; else 0.
    pub area_bytes: u32,
    /// Namespace *adaptive*: slots above which an area is large; else 0.
    pub size_max: u32,
    /// Further dataset: its offset in the file or device, behind the pool; else 0.
    pub at: u64,
    /// Further dataset: its bytes.
    pub bytes: u64,
    /// Further dataset: the uuid of its own superblock.
    pub uuid: [u8; 16],
}

/// A run of metadata chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RegionRecord {
    /// Pool offset of the first chunk.
    pub at: u64,
    /// Chunks; 0: not in use.
    pub chunks: u64,
    /// Pool offset of the region's part of the chunk table.
    pub chunk_table_at: u64,
    /// Pool offset of the region's part of the live map.
    pub live_map_at: u64,
}

impl RegionRecord {
    /// The record of the chunks in data space.
    fn of_data_chunks(geometry: &Geometry) -> Self {
        let DataChunks { first, count } = geometry.data_chunks;
        let map_bytes = first.wrapping_mul(geometry.slots_per_chunk()) / 8;
        let from = first.wrapping_mul(geometry.chunk_bytes);
        Self {
            at: geometry.meta_at.wrapping_add(from),
            chunks: count,
            chunk_table_at: geometry.chunk_table_at.wrapping_add(first.wrapping_mul(8)),
            live_map_at: geometry.live_map_at.wrapping_add(map_bytes),
        }
    }
}

/// A segment: mapping table and data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SegmentRecord {
    /// Pool offset of the mapping table.
    pub table_at: u64,
    /// Offset of the data on its medium.
    pub data_at: u64,
    /// Data blocks; 0: not in use.
    pub blocks: u64,
    /// [`MappingKind`].
    pub mapping: u32,
    /// Device of the data: 0 is the pool itself, 1 an external data device.
    pub medium: u16,
    /// Dataset that it belongs to.
    pub fs: u16,
    /// Blocks that share a home line.
    pub run_blocks: u32,
    /// Deliberate fragmentation, per mille.
    pub fragmentation: u16,
    /// Lines of a span; 0: one.
    pub span_lines: u16,
    /// Pool offset of the saved allocator state ([`crate::SavedStatePlan`]).
    pub saved_state_at: u64,
    /// Identity of the external data device, if there is one; else 0.
    pub medium_id: [u8; 16],
}

impl SegmentRecord {
    /// Whether it holds only fields of an added segment, or some of them.
    pub(crate) fn may_be_torn(&self) -> bool {
        let rest = Self {
            data_at: 0,
            blocks: 0,
            mapping: 0,
            medium: 0,
            medium_id: [0; 16],
            ..*self
        };
        rest == Self::new_zeroed()
    }

    /// The added segment that it describes.
    fn as_added(&self) -> AddedSegment {
        AddedSegment {
            id: self.medium_id,
            at: self.data_at,
            blocks: self.blocks,
        }
    }

    /// The record of an added segment.
    fn added(segment: AddedSegment, mapping: u32) -> Self {
        Self {
            data_at: segment.at,
            blocks: segment.blocks,
            mapping,
            medium: (!segment.is_own()).into(),
            medium_id: segment.id,
            ..Self::new_zeroed()
        }
    }
}

/// The superblock.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// Bytes of a block, 4096.
    pub block_bytes: u32,
    /// Random, unique to the pool, and in structures that belong to it.
    pub uuid: [u8; 16],
    /// Compatible features.
    pub compatible: u64,
    /// Read-only-compatible features.
    pub read_only_compatible: u64,
    /// Incompatible features.
    pub incompatible: u64,
    /// Grows with every rewrite; the sound copy with the highest sequence is current.
    pub sequence: u64,
    /// When the pool was formatted, nanoseconds since 1970.
    pub created: i64,
    /// Seed of every hash on the media.
    pub hash_seed: u64,
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Bytes of a metadata chunk.
    pub chunk_bytes: u64,
    /// Thread slots.
    pub thread_slots: u32,
    /// Bytes of a thread slot, 1024.
    pub thread_slot_bytes: u32,
    /// Pool offset of the state block.
    pub state_at: u64,
    /// Pool offset of the thread slots.
    pub slots_at: u64,
    /// Pool offset of the last copy.
    pub last_copy_at: u64,
    /// Label, zero-padded UTF-8.
    pub label: [u8; LABEL_BYTES],
    /// Pool offset of the redo log ([`crate::Anchor`]); 0: none.
    pub log_at: u64,
    /// Bytes of the redo log: two blocks of anchors, then records.
    pub log_bytes: u64,
    /// Pool offset of the undo log's pool header ([`crate::PoolHeader`]); 0: none.
    pub undo_at: u64,
    /// Bytes of the undo log: a block with the pool header, then undo records.
    pub undo_bytes: u64,
    /// Pool offset of the block that records where devices were last found
    /// ([`crate::DevicePaths`]); 0: none.
    pub media_at: u64,
    /// Pool offset of the map of blocks that changed since they were copied to the metadata replica
    /// ([`crate::ChangedMap`]); 0: no replica.
    pub changed_at: u64,
    /// The uuid that users see, if it is not that of the structures; else zero.
    pub user_uuid: [u8; 16],
    /// Metadata regions.
    pub regions: [RegionRecord; REGION_MAX],
    /// Datasets.
    pub datasets: [FsRecord; FS_MAX],
    /// Segments.
    pub segments: [SegmentRecord; SEGMENT_MAX],
    /// Options of mounts, zero-padded UTF-8.
    pub mount_options: [u8; MOUNT_OPTIONS_BYTES],
    /// Reserved, zero.
    pub reserved_tail: [u64; 47],
    /// Reserved, zero.
    pub reserved_check: u32,
    /// CRC-32C of everything before.
    pub checksum: u32,
}

const _: () = assert!(size_of::<Superblock>() as u64 == BLOCK_BYTES);
const _: () = assert!(size_of::<FsRecord>() == 128);
const _: () = assert!(std::mem::offset_of!(FsRecord, at) == 96);
const _: () = assert!(size_of::<SegmentRecord>() == 64);
const _: () = assert!(std::mem::offset_of!(Superblock, regions) == 256);
const _: () = assert!(std::mem::offset_of!(Superblock, datasets) == 512);
const _: () = assert!(std::mem::offset_of!(Superblock, segments) == 1536);

/// Why a superblock is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SuperblockError {
    /// The magic is missing.
    #[error("not a Vellum pool (no magic number at its start)")]
    NotVellum,
    /// No copy has a sound checksum.
    #[error("every copy of the superblock is damaged")]
    Damaged,
    /// A newer format.
    #[error("format version {0} is not known to this release (which knows {VERSION})")]
    Version(u32),
    /// Features this release does not know.
    #[error("incompatible features {0:#x} are not known to this release")]
    Features(u64),
    /// Unknown features that allow reading only.
    #[error(
        "features {0:#x} are not known to this release, which may read the pool but not change it"
    )]
    ReadOnlyFeatures(u64),
    /// A sound checksum over an impossible field.
    #[error("the superblock's {0} is impossible")]
    Field(&'static str),
    /// The file is shorter than the pool.
    #[error("the pool should have {expected} bytes but its file has {actual}: it was cut short")]
    Truncated {
        /// Bytes according to the superblock.
        expected: u64,
        /// Bytes of the file.
        actual: u64,
    },
}

impl Superblock {
    /// The superblock of a new pool with one dataset in one segment.
    pub fn new(
        geometry: &Geometry,
        uuid: [u8; 16],
        hash_seed: u64,
        created: i64,
        label: &str,
        namespace: NamespaceKind,
    ) -> Self {
        let mut new = Self::new_zeroed();
        new.magic = MAGIC;
        new.version = VERSION;
        new.block_bytes = BLOCK_BYTES as u32;
        new.uuid = uuid;
        new.created = created;
        new.hash_seed = hash_seed;
        new.pool_bytes = geometry.pool_bytes;
        new.chunk_bytes = geometry.chunk_bytes;
        new.thread_slots = geometry.thread_slots;
        new.thread_slot_bytes = crate::THREAD_SLOT_BYTES as u32;
        new.state_at = geometry.state_at;
        new.slots_at = geometry.slots_at;
        new.last_copy_at = geometry.last_copy_at;
        new.log_at = geometry.log_at;
        new.log_bytes = geometry.log_bytes;
        if geometry.is_logged() {
            new.incompatible |= features::LOGGED;
        }
        new.undo_at = geometry.undo_at;
        new.undo_bytes = geometry.undo_bytes;
        if geometry.has_undo() {
            new.incompatible |= features::UNDO;
        }
        let span_lines = match geometry.span_lines {
            1 => 0,
            span => span,
        };
        if span_lines > 0 {
            new.incompatible |= features::SPANS;
        }
        let len = label.len().min(new.label.len());
        new.label[..len].copy_from_slice(&label.as_bytes()[..len]);
        new.regions[0] = RegionRecord {
            at: geometry.meta_at,
            chunks: geometry.meta_chunks,
            chunk_table_at: geometry.chunk_table_at,
            live_map_at: geometry.live_map_at,
        };
        if geometry.data_chunks.count > 0 {
            new.regions[1] = RegionRecord::of_data_chunks(geometry);
            new.incompatible |= features::DATA_CHUNKS;
        }
        new.datasets[0].in_use = 1;
        new.datasets[0].namespace = namespace as u32;
        new.datasets[0].root = ROOT_SLOT;
        new.datasets[0].name[..MAIN.len()].copy_from_slice(MAIN.as_bytes());
        new.datasets[0].area_table = geometry.areas.table;
        new.datasets[0].area_bytes = geometry.areas.bytes;
        new.datasets[0].size_max = geometry.areas.size_max;
        if let Some(external) = geometry.external {
            new.incompatible |= features::EXTERNAL_DATA;
            new.media_at = external.places_at;
        }
        new.changed_at = geometry.changed_at;
        if geometry.changed_at != 0 {
            new.read_only_compatible |= features::REPLICA;
        }
        new.segments[0] = SegmentRecord {
            table_at: geometry.table_at,
            data_at: geometry
                .external
                .map_or(geometry.data_at, |external| external.at),
            blocks: geometry.segment_blocks,
            mapping: geometry.mapping as u32,
            medium: geometry.external.is_some().into(),
            fs: 0,
            run_blocks: geometry.run_blocks,
            fragmentation: geometry.fragmentation,
            span_lines,
            saved_state_at: geometry.saved_state_at,
            medium_id: geometry.external.map_or([0; 16], |external| external.id),
        };
        new.seal();
        new
    }

    /// Computes the checksum.
    pub fn seal(&mut self) {
        let bytes = self.as_bytes();
        self.checksum = checksum(&bytes[..BLOCK_BYTES as usize - 4]);
    }

    /// Reads one copy of any format version: magic, version, identity, features, sequence and
    /// checksum have fixed offsets in all versions.
    ///
    /// # Errors
    /// Fails if the copy is not sealed.
    pub fn unseal(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let (new, _) = Self::read_from_prefix(bytes).map_err(|_| SuperblockError::NotVellum)?;
        if new.magic != MAGIC {
            return Err(SuperblockError::NotVellum);
        }
        if checksum(&bytes[..BLOCK_BYTES as usize - 4]) != new.checksum {
            return Err(SuperblockError::Damaged);
        }
        Ok(new)
    }

    /// Chooses the current copy among several that [`Self::unseal`] read: of the copies of the
    /// first sealed one's pool, that with the highest sequence, whether this release can use it or
    /// not. An older copy beside it is left by an interrupted rewrite and describes a state that is
    /// gone.
    ///
    /// # Errors
    /// Fails if no copy is sealed.
    pub fn choose(
        copies: impl IntoIterator<Item = Result<Self, SuperblockError>>,
    ) -> Result<Self, SuperblockError> {
        let mut failure = SuperblockError::NotVellum;
        let mut best: Option<Self> = None;
        for copy in copies {
            match (copy, &best) {
                (Ok(copy), None) => best = Some(copy),
                (Ok(copy), Some(first)) => {
                    if copy.uuid == first.uuid && copy.sequence > first.sequence {
                        best = Some(copy);
                    }
                }
                (Err(SuperblockError::NotVellum), _) => {}
                (Err(error), _) => failure = error,
            }
        }
        best.ok_or(failure)
    }

    /// Checks that this release can read the pool.
    ///
    /// # Errors
    /// Fails on another version, unknown incompatible features and impossible fields.
    pub fn check_readable(&self) -> Result<(), SuperblockError> {
        if self.version != VERSION {
            return Err(SuperblockError::Version(self.version));
        }
        let unknown = self.incompatible & !features::INCOMPATIBLE;
        if unknown != 0 {
            return Err(SuperblockError::Features(unknown));
        }
        self.check_fields()
    }

    /// Checks that this release can change the pool. The caller knows that it can read it.
    ///
    /// # Errors
    /// Fails on unknown read-only-compatible features.
    pub fn check_writable(&self) -> Result<(), SuperblockError> {
        match self.read_only_compatible & !features::READ_ONLY_COMPATIBLE {
            0 => Ok(()),
            unknown => Err(SuperblockError::ReadOnlyFeatures(unknown)),
        }
    }

    fn check_fields(&self) -> Result<(), SuperblockError> {
        let field = |sound, name| {
            if sound {
                Ok(())
            } else {
                Err(SuperblockError::Field(name))
            }
        };
        field(u64::from(self.block_bytes) == BLOCK_BYTES, "block size")?;
        field(
            u64::from(self.thread_slot_bytes) == crate::THREAD_SLOT_BYTES,
            "thread slot size",
        )?;
        field(self.has_sound_regions(), "region table")?;
        field(self.has_sound_segments(), "segment table")?;
        field(
            MappingKind::from_number(self.segments[0].mapping).is_some(),
            "mapping",
        )?;
        let is_external = self.incompatible & features::EXTERNAL_DATA != 0;
        field(
            self.segments[0].medium == is_external.into() && is_external == (self.media_at != 0),
            "medium of data",
        )?;
        field(self.segments[0].fs == 0, "dataset of segment 0")?;
        field(Homes::is_run(self.segments[0].run_blocks), "run length")?;
        let has_spans = self.incompatible & features::SPANS != 0;
        let span_lines = if has_spans { 2..=SPAN_LINES_MAX } else { 0..=0 };
        field(
            span_lines.contains(&self.segments[0].span_lines)
                && Homes::is_span(
                    self.segments[0].span_lines.max(1),
                    self.segments[0].run_blocks,
                ),
            "span length",
        )?;
        field(self.datasets[0].in_use == 1, "dataset table")?;
        field(
            NamespaceKind::from_number(self.datasets[0].namespace).is_some(),
            "namespace",
        )?;
        field(self.datasets[0].root == ROOT_SLOT, "root directory")?;
        field(self.has_sound_datasets(), "table of datasets")?;
        field(self.has_sound_settings(), "set of settings")?;
        let is_logged = self.incompatible & features::LOGGED != 0;
        field(is_logged == (self.log_bytes != 0), "log")?;
        let has_undo = self.incompatible & features::UNDO != 0;
        field(has_undo == (self.undo_bytes != 0), "undo log")?;
        field(!(self.is_sparse() && is_external), "sparseness")?;
        let has_replica = self.read_only_compatible & features::REPLICA != 0;
        field(has_replica == (self.changed_at != 0), "changed map")?;
        field(self.geometry().is_sound(), "geometry")
    }

    /// Whether free data blocks may lack space in the file system below.
    pub fn is_sparse(&self) -> bool {
        self.read_only_compatible & features::SPARSE != 0
    }

    /// The superblock of the same new pool, as a sparse one.
    #[must_use]
    pub fn sparse(mut self) -> Self {
        self.read_only_compatible |= features::SPARSE;
        self.seal();
        self
    }

    /// The namespace of a sound superblock.
    pub fn namespace(&self) -> NamespaceKind {
        NamespaceKind::from_number(self.datasets[0].namespace).unwrap_or_default()
    }

    /// The layout of the pool.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            pool_bytes: self.pool_bytes,
            chunk_bytes: self.chunk_bytes,
            thread_slots: self.thread_slots,
            state_at: self.state_at,
            slots_at: self.slots_at,
            chunk_table_at: self.regions[0].chunk_table_at,
            live_map_at: self.regions[0].live_map_at,
            meta_at: self.regions[0].at,
            meta_chunks: self.regions[0].chunks,
            data_chunks: self.data_chunks(),
            table_at: self.segments[0].table_at,
            saved_state_at: self.segments[0].saved_state_at,
            log_at: self.log_at,
            log_bytes: self.log_bytes,
            undo_at: self.undo_at,
            undo_bytes: self.undo_bytes,
            data_at: match self.segments[0].medium {
                0 => self.segments[0].data_at,
                _ => self.pool_bytes,
            },
            segment_blocks: self.segments[0].blocks,
            added: self.added(),
            last_copy_at: self.last_copy_at,
            namespace: self.namespace(),
            areas: AreaPlan {
                table: self.datasets[0].area_table,
                bytes: self.datasets[0].area_bytes,
                size_max: self.datasets[0].size_max,
            },
            mapping: MappingKind::from_number(self.segments[0].mapping).unwrap_or_default(),
            run_blocks: self.segments[0].run_blocks,
            span_lines: self.segments[0].span_lines.max(1),
            fragmentation: self.segments[0].fragmentation,
            external: (self.segments[0].medium != 0).then(|| External {
                id: self.segments[0].medium_id,
                at: self.segments[0].data_at,
                places_at: self.media_at,
            }),
            changed_at: self.changed_at,
        }
    }

    /// The chunks in data space.
    fn data_chunks(&self) -> DataChunks {
        let [first, data, ..] = &self.regions;
        let behind = data.at.checked_sub(first.at);
        match behind.and_then(|behind| behind.checked_div(self.chunk_bytes)) {
            Some(first) if data.chunks > 0 => DataChunks {
                first,
                count: data.chunks,
            },
            _ => DataChunks::default(),
        }
    }

    /// Whether the records of regions are possible in this version.
    fn has_sound_regions(&self) -> bool {
        let has_data_chunks = self.incompatible & features::DATA_CHUNKS != 0;
        let data = match has_data_chunks {
            true => RegionRecord::of_data_chunks(&self.geometry()),
            false => RegionRecord::new_zeroed(),
        };
        has_data_chunks == (self.regions[1].chunks != 0)
            && self.regions[1] == data
            && self.regions[2..].iter().all(|region| region.chunks == 0)
    }

    /// The added segments.
    fn added(&self) -> AddedSegments {
        let mut added = AddedSegments::default();
        for (segment, record) in added.0.iter_mut().zip(&self.segments[1..]) {
            *segment = record.as_added();
        }
        added
    }

    /// Whether the records of added segments are possible in this version.
    fn has_sound_segments(&self) -> bool {
        let can_be = |record: &SegmentRecord| {
            *record == SegmentRecord::added(record.as_added(), self.segments[0].mapping)
        };
        let there = self.added().iter().count();
        let is_none = |record: &SegmentRecord| *record == SegmentRecord::new_zeroed();
        let has = |feature| self.incompatible & feature != 0;
        let has_own = self.added().own().is_some();
        has(features::SEGMENTS) == (there > 0 && !has_own)
            && has(features::GROWN) == has_own
            && self.segments[1..=there].iter().all(can_be)
            && self.segments[1 + there..].iter().all(is_none)
    }

    /// The superblock of the same pool with one more segment, as its next rewrite; `None` if the
    /// table is full.
    pub fn with_segment(&self, segment: AddedSegment) -> Option<Self> {
        let mut new = self.clone();
        let number = 1 + self.added().iter().count();
        (number < SEGMENTS_MAX).then_some(())?;
        new.segments[number] = SegmentRecord::added(segment, self.segments[0].mapping);
        new.incompatible |= features::SEGMENTS;
        Some(new.rewritten())
    }

    /// The superblock of the same pool with `pool_bytes` bytes, as its next rewrite; `None` if it
    /// cannot [grow](Geometry::grown) to that size.
    pub fn grown(&self, pool_bytes: u64) -> Option<Self> {
        let geometry = self.geometry().grown(pool_bytes)?;
        let mut new = self.clone();
        new.pool_bytes = geometry.pool_bytes;
        new.last_copy_at = geometry.last_copy_at;
        new.segments[1] = SegmentRecord::added(geometry.added.0[0], self.segments[0].mapping);
        new.incompatible |= features::GROWN;
        let new = new.rewritten();
        let has_room = self.datasets().all(|part| part.at >= new.pool_bytes);
        (has_room && new.check_readable().is_ok()).then_some(new)
    }
}

/// An identity in the usual hexadecimal form.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests;
