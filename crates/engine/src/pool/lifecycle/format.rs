//! Formatting a pool: superblock, empty tables, a root directory.

use vellum_layout::{
    Anchor, AnchorPoint, AreaLife, AreaLine, AreaPhase, AreaTableHead, BLOCK_BYTES, ChunkKind,
    ChunkWord, CommittedWord, DirLocation, ExternalRequest, FileKind, Formed, Geometry,
    GeometryRequest, IdentityWord, Inode, InodeState, LinksWord, MappingKind, NamespaceKind,
    OwnerWord, PoolHeader, PoolPhase, PoolState, ROOT_AREA, ROOT_SLOT, ReplicaPlan, SLOT_BYTES,
    StateWord, Superblock, mix,
};
use vellum_media::PoolMemory;
use zerocopy::IntoBytes;

use crate::devices::medium::ExternalData;
use crate::error::{Error, Result};
use crate::logs::redo::sum_of_home;
use crate::sites;

/// Generation of the root directory's inode.
const ROOT_GENERATION: u32 = 1;

/// Options of a new pool.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Bytes of metadata; by default a sixteenth of the pool.
    pub metadata_bytes: Option<u64>,
    /// Data space never becomes metadata.
    pub has_fixed_metadata: bool,
    /// Operations that can run at once.
    pub thread_slots: Option<u32>,
    /// The namespace.
    pub namespace: NamespaceKind,
    /// The file mapping.
    pub mapping: MappingKind,
    /// Consecutive blocks of a file that HashFS keeps together: 8, the default, or 1.
    pub run_blocks: Option<u32>,
    /// Adjacent home lines over which HashFS spreads consecutive runs of a file: 1, 2, 4 and so on.
    pub span_lines: Option<u16>,
    /// Deliberate fragmentation, per mille: 1000 minus the layout score that files get.
    pub fragmentation: u16,
    /// Label, at most 64 bytes.
    pub label: String,
    /// Identity of the pool.
    pub uuid: [u8; 16],
    /// Seed of the hashes on the media.
    pub hash_seed: u64,
    /// Time of creation, nanoseconds since 1970.
    pub now_ns: i64,
    /// Owner of the root directory.
    pub owner: (u32, u32),
    /// Metadata are changed in memory, and a log makes them durable.
    pub is_logged: bool,
    /// The last bytes of `pool` are those of an external data device. Without a log the metadata
    /// have to lie in persistent memory.
    pub external: Option<ExternalData>,
    /// The pool's file has no space yet, and gets it for data blocks as they are used.
    pub is_sparse: bool,
    /// The pool's bytes are known to be zero (a new file).
    pub known_zero: bool,
}

impl FormatOptions {
    /// Returns the request for a layout of `pool_bytes` own bytes; 0 means as many as needed.
    pub(crate) fn request(&self, pool_bytes: u64) -> GeometryRequest {
        GeometryRequest {
            pool_bytes,
            metadata_bytes: self.metadata_bytes,
            has_fixed_metadata: self.has_fixed_metadata,
            thread_slots: self.thread_slots,
            namespace: self.namespace,
            mapping: self.mapping,
            run_blocks: self.run_blocks,
            span_lines: self.span_lines,
            fragmentation: self.fragmentation,
            is_logged: self.is_logged,
            external: self.external.map(|external| ExternalRequest {
                id: external.id,
                at: external.at,
                data_bytes: external.data_bytes,
                has_replica: external.replica_bytes > 0,
            }),
        }
    }
}

/// Formats `pool`. Everything in it is lost.
///
/// # Errors
/// Fails if the size or the options are impossible, or the medium fails.
pub fn format<P: PoolMemory>(pool: &P, options: &FormatOptions) -> Result<Superblock> {
    if options.label.len() > 64 {
        return Err(Error::Invalid("a label has at most 64 bytes"));
    }
    let external_bytes =
        { options.external }.map_or(0, |external| external.data_bytes + external.replica_bytes);
    let own_bytes = pool.len().checked_sub(external_bytes);
    let own_bytes = own_bytes.ok_or(Error::Invalid(
        "the external data device is larger than the whole pool",
    ))?;
    let geometry = Geometry::plan(&options.request(own_bytes))?;
    let replica_bytes = options
        .external
        .map_or(0, |external| external.replica_bytes);
    if ReplicaPlan::of(&geometry).is_some_and(|plan| plan.bytes() > replica_bytes) {
        return Err(Error::Invalid(
            "the external data device has no space for the metadata replica",
        ));
    }
    if options.is_sparse {
        pool.provide(0, geometry.data_at)?;
        pool.provide(geometry.last_copy_at, BLOCK_BYTES)?;
    }
    // Otherwise an interrupted mkfs could leave the earlier pool half overwritten and still valid.
    pool.zero_through(sites::FORMAT_WIPE_FIRST, 0, 2 * BLOCK_BYTES);
    pool.zero_through(
        sites::FORMAT_WIPE_REPLICA,
        geometry.last_copy_at,
        BLOCK_BYTES,
    );
    pool.fence(sites::FORMAT_WIPE_DURABLE);
    pool.sync()?;
    if !options.known_zero {
        let bytes = geometry.data_at - geometry.state_at;
        pool.zero_through(sites::FORMAT_ZERO, geometry.state_at, bytes);
    }
    write_root(pool, &geometry, options);
    if geometry.namespace == NamespaceKind::Adaptive {
        write_area(pool, &geometry, options.now_ns);
    }
    if let Some(word) = geometry.mapping.table_root() {
        pool.store(
            geometry.table_at,
            word,
            std::sync::atomic::Ordering::Release,
        );
        pool.flush(sites::FORMAT_TABLE, geometry.table_at, 8);
    }
    pool.store(
        geometry.state_at + PoolState::WORD,
        StateWord::new(PoolPhase::Dirty, 0).0,
        std::sync::atomic::Ordering::Release,
    );
    pool.flush(sites::FORMAT_STATE, geometry.state_at, 64);
    if geometry.is_logged() {
        write_log(pool, &geometry, options)?;
    }
    if geometry.has_undo() {
        let at = geometry.undo_at + PoolHeader::COMMITTED;
        let word = CommittedWord::new(0).0;
        pool.store(at, word, std::sync::atomic::Ordering::Release);
        pool.flush(sites::FORMAT_VERSIONS, at, 8);
    }
    pool.fence(sites::FORMAT_STATE_DURABLE);
    pool.sync()?;
    let superblock = Superblock::new(
        &geometry,
        options.uuid,
        options.hash_seed,
        options.now_ns,
        &options.label,
        options.namespace,
    );
    let superblock = match options.is_sparse {
        true => superblock.sparse(),
        false => superblock,
    };
    for at in [geometry.last_copy_at, BLOCK_BYTES, 0] {
        pool.write_through(sites::FORMAT_SUPERBLOCK, at, superblock.as_bytes());
    }
    pool.fence(sites::FORMAT_SUPERBLOCK_DURABLE);
    pool.sync()?;
    Ok(superblock)
}

/// Writes an empty log, after the rest of the metadata. Old records there carry another pool's
/// identity, so they are not valid. The log's blocks are written even if they are known to be zero,
/// so that later writes allocate nothing in the file system below. The anchor is flushed, not
/// fenced.
fn write_log<P: PoolMemory>(pool: &P, geometry: &Geometry, options: &FormatOptions) -> Result<()> {
    const SALT: u64 = 0x10C5_A170_F00D_0001;
    let zeros = [0; BLOCK_BYTES as usize];
    for at in (0..geometry.log_bytes).step_by(zeros.len()) {
        pool.write(geometry.log_at + at, &zeros);
    }
    let sum = sum_of_home(pool, geometry, options.hash_seed)?;
    let salt = mix(options.hash_seed ^ SALT);
    let anchor = Anchor::new(options.uuid, salt, AnchorPoint::first(sum));
    pool.write_through(sites::FORMAT_LOG_ANCHOR, geometry.log_at, anchor.as_bytes());
    Ok(())
}

/// Writes the area table with the area of the root directory. Flushed, not fenced.
fn write_area<P: PoolMemory>(pool: &P, geometry: &Geometry, now_ns: i64) {
    let table = geometry.areas.table;
    let area = AreaLife {
        number: ROOT_AREA,
        generation: 1,
    };
    let line = AreaLine {
        formed: Formed::at(now_ns, 0, 0),
        ..AreaLine::new(area, AreaPhase::Live, ROOT_SLOT, ROOT_GENERATION)
    };
    let head = AreaTableHead::new(table, 0);
    let at = geometry.slot_at(table);
    pool.write(at, head.as_bytes());
    pool.write(at + u64::from(ROOT_AREA) * 64, line.as_bytes());
    pool.flush(sites::FORMAT_AREA, at, 128);
    let chunk = table / geometry.slots_per_chunk();
    write_chunk(pool, geometry, chunk, ChunkKind::Blocks);
}

/// Sets the kind of a chunk. Flushed, not fenced.
fn write_chunk<P: PoolMemory>(pool: &P, geometry: &Geometry, chunk: u64, kind: ChunkKind) {
    let at = geometry.chunk_word_at(chunk);
    let word = ChunkWord::new(chunk, kind, 0).0;
    pool.store(at, word, std::sync::atomic::Ordering::Release);
    pool.flush(sites::FORMAT_CHUNK, at, 8);
}

/// Writes the inode of the root directory. Flushed, not fenced.
fn write_root<P: PoolMemory>(pool: &P, geometry: &Geometry, options: &FormatOptions) {
    let mut root = Inode {
        identity: IdentityWord::new(
            InodeState::Live,
            FileKind::Directory,
            0o755,
            ROOT_GENERATION,
        )
        .0,
        owner: OwnerWord::new(options.owner.0, options.owner.1).0,
        links: LinksWord::new(2, 0).0,
        btime: options.now_ns,
        parent: ROOT_SLOT,
        mtime: options.now_ns,
        ctime: options.now_ns,
        atime: options.now_ns,
        detail: match geometry.namespace {
            NamespaceKind::Adaptive => DirLocation::new(0, ROOT_AREA).0,
            NamespaceKind::Direct | NamespaceKind::Tree => 0,
        },
        ..Inode::default()
    };
    root.checksum = root.expected_checksum(ROOT_SLOT);
    let at = geometry.slot_at(ROOT_SLOT);
    pool.write(at, root.as_bytes());
    pool.flush(sites::FORMAT_ROOT, at, SLOT_BYTES);
    write_chunk(pool, geometry, 0, ChunkKind::Inodes);
}
