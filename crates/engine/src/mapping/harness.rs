//! A core with a mapping and nothing else: an arena on the heap, a simulated pool, inodes that the
//! tests write.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use vellum_layout::{
    ChunkKind, ChunkWord, FileKind, Geometry, GeometryRequest, IdentityWord, Inode, InodeState,
    LinksWord, MapState, MappingKind,
};
use vellum_media::{HeapMemory, Memory, SimPool, Simulated};
use zerocopy::IntoBytes;

use crate::core::OwnBytes;
use crate::core::access_times::AccessTimes;
use crate::core::cachelet::{Cachelet, field};
use crate::core::inodes::{for_each_file, note_chunks};
use crate::core::lease::Leases;
use crate::core::{ArenaMap, Clock, Core};
use crate::error::Result;
use crate::mapping::{MapId, Mapping, Survey, Verdict};

const SEED: u64 = 0x5EED;

/// A test's verdicts on blocks, for a pool whose inodes the test wrote.
struct Judged<'a> {
    core: &'a Core<Simulated>,
    judge: Judge<'a>,
}

impl Survey for Judged<'_> {
    fn judge(&self, id: MapId, logical: u32, state: MapState) -> Verdict {
        (self.judge)(id, logical, state)
    }

    fn for_each_file(&self, each: &mut dyn FnMut(MapId) -> Result<()>) -> Result<()> {
        for_each_file(self.core, each)
    }

    fn marks_slots(&self) -> bool {
        true
    }
}

/// A test's decision about blocks after a crash.
pub(crate) type Judge<'a> = &'a (dyn Fn(MapId, u32, MapState) -> Verdict + Sync);

/// Creates a mapping, from its offset in the arena, the geometry and the seed.
pub(crate) type Make<T> = Arc<dyn Fn(u64, &Geometry, u64) -> Box<T> + Send + Sync>;

/// A core with a mapping of a type whose internals the test inspects.
pub(crate) struct Bench<T: ?Sized> {
    pub(crate) core: Core<Simulated>,
    pub(crate) map: Box<T>,
    make: Make<T>,
}

/// A core with a mapping of any kind.
pub(crate) type Harness = Bench<dyn Mapping<Simulated>>;

impl Harness {
    /// An empty pool.
    pub(crate) fn new(pool_bytes: u64) -> Self {
        Self::asked(GeometryRequest {
            pool_bytes,
            ..GeometryRequest::default()
        })
    }

    /// An empty pool with a mapping.
    pub(crate) fn of(mapping: MappingKind, pool_bytes: u64) -> Self {
        Self::asked(GeometryRequest {
            pool_bytes,
            mapping,
            ..GeometryRequest::default()
        })
    }

    /// An empty pool with runs of `run_blocks`.
    pub(crate) fn of_runs(pool_bytes: u64, run_blocks: u32) -> Self {
        Self::asked(GeometryRequest {
            pool_bytes,
            run_blocks: Some(run_blocks),
            ..GeometryRequest::default()
        })
    }

    /// An empty pool, laid out as `request` asks.
    pub(crate) fn asked(request: GeometryRequest) -> Self {
        let make = |at, geometry: &Geometry, seed| {
            crate::mapping::new::<Simulated>(
                at,
                (geometry, geometry.blocks()),
                seed,
                vellum_layout::TablePlan::default(),
            )
        };
        Self::made(request, SEED, Arc::new(make))
    }
}

impl<T: Mapping<Simulated> + ?Sized> Bench<T> {
    /// An empty pool with the mapping that `make` creates.
    pub(crate) fn made(request: GeometryRequest, seed: u64, make: Make<T>) -> Self {
        let geometry = Geometry::plan(&GeometryRequest {
            thread_slots: Some(4),
            ..request
        })
        .unwrap();
        let pool = SimPool::new(geometry.pool_bytes);
        let word = ChunkWord::new(0, ChunkKind::Inodes, 0).0;
        pool.write(geometry.chunk_table_at, &word.to_le_bytes());
        let root = geometry.mapping.table_root().unwrap_or(0);
        pool.write(geometry.table_at, &root.to_le_bytes());
        let new = Self::attach(pool, geometry, seed, 1, make);
        new.rebuild(&|_, _, _| Verdict::Keep).unwrap();
        new
    }

    /// This pool with other bytes, as after a crash.
    pub(crate) fn recovered(&self, image: Vec<u8>, judge: Judge<'_>) -> Self {
        let new = self.again(image, 1);
        new.rebuild(judge).unwrap();
        new
    }

    /// This pool with other bytes, at the opening that follows its close. The mapping is neither
    /// restored nor rebuilt yet.
    pub(crate) fn opened(&self, image: Vec<u8>) -> Self {
        self.again(image, 2)
    }

    fn again(&self, image: Vec<u8>, pool_epoch: u32) -> Self {
        let (pool, make) = (SimPool::from_image(image), Arc::clone(&self.make));
        Self::attach(pool, self.core.geometry, self.core.seed, pool_epoch, make)
    }

    fn attach(
        pool: SimPool,
        geometry: Geometry,
        seed: u64,
        pool_epoch: u32,
        make: Make<T>,
    ) -> Self {
        let map = ArenaMap::plan(
            &geometry,
            ArenaMap::entries(&geometry, 4096),
            OwnBytes {
                locks: 0,
                namespace: 0,
                provided: 0,
                mapping: crate::mapping::arena_bytes(&geometry, geometry.blocks()),
            },
        );
        let core = Core {
            pool,
            arena: HeapMemory::new(map.bytes),
            geometry,
            map,
            seed,
            pool_epoch,
            clock: Clock::Counter(AtomicI64::new(1)),
            read_only: false,
            access_times: AccessTimes::default(),
            commits: None,
            leases: Leases::default(),
            sparse: None,
        };
        core.raise_cachelet_limit(core.map.cachelet_count);
        note_chunks(&core).unwrap();
        let map = make(map.mapping, &geometry, seed);
        Self { core, map, make }
    }

    /// Builds the mapping's volatile state, keeping the blocks that `judge` keeps.
    pub(crate) fn rebuild(&self, judge: Judge<'_>) -> Result<()> {
        let survey = Judged {
            core: &self.core,
            judge,
        };
        self.map.rebuild(&self.core, &survey)
    }

    /// The same pool, attached again with an arena of zeros.
    pub(crate) fn reattach(self) -> Self {
        self.reattach_judged(&|_, _, _| Verdict::Keep)
    }

    /// The same pool, attached again as after a crash.
    pub(crate) fn reattach_judged(self, judge: Judge<'_>) -> Self {
        self.recovered(self.core.pool.image(), judge)
    }

    /// Writes an empty file's inode into metadata slot `ino`.
    pub(crate) fn make_file(&self, ino: u64) -> Cachelet {
        let mut inode = Inode {
            identity: IdentityWord::new(InodeState::Live, FileKind::File, 0o644, 1).0,
            links: LinksWord::new(1, 0).0,
            ..Inode::default()
        };
        inode.checksum = inode.expected_checksum(ino);
        self.core
            .pool
            .write(self.core.geometry.slot_at(ino), inode.as_bytes());
        self.open_file(ino)
    }

    /// A cachelet filled from the inode in metadata slot `ino`.
    pub(crate) fn open_file(&self, ino: u64) -> Cachelet {
        let mut inode = Inode::default();
        self.core
            .pool
            .read(self.core.geometry.slot_at(ino), inode.as_mut_bytes());
        assert!(inode.is_sound(ino));
        let made = self
            .core
            .take_cachelet(&self.core.op_begin().unwrap())
            .unwrap();
        self.core.set(made, field::INO, ino);
        self.core.set(made, field::IDENTITY, inode.identity);
        self.core.set(made, field::SIZE, inode.size);
        self.core.set(made, field::MTIME, inode.mtime as u64);
        self.core.set(made, field::CTIME, inode.ctime as u64);
        self.core.set(made, field::ATIME, inode.atime as u64);
        self.core.set(made, field::ROOT, inode.root);
        made
    }

    /// Lets every grace period pass and reclaims.
    pub(crate) fn settle(&self) -> u64 {
        self.core.wait_for_readers();
        self.map.reclaim(&self.core)
    }

    /// Number of blocks that could be reserved.
    pub(crate) fn free(&self) -> u64 {
        self.map.usage(&self.core).free
    }
}
