//! A core with a mapping and nothing else: an arena on the heap, a simulated pool, inodes made by
//! hand.

use std::sync::atomic::AtomicI64;

use vellum_layout::{
    FileKind, Geometry, GeometryRequest, IdentityWord, Inode, InodeState, LinksWord, MapState,
};
use vellum_media::{HeapMemory, Memory, SimPool, Simulated};
use zerocopy::IntoBytes;

use super::rebuild::Judge;
use super::{HashFs, WHOLE};
use crate::cachelet::{Cachelet, field};
use crate::core::{ArenaMap, Clock, Core};
use crate::error::Result;
use crate::mapping::{MapId, Mapping, Survey, Verdict};

const SEED: u64 = 0x5EED;

/// What a test says of blocks.
pub(crate) struct Judged<'a>(pub(crate) Judge<'a>);

impl Survey for Judged<'_> {
    fn judge(&self, id: MapId, logical: u32, state: MapState) -> Verdict {
        self.0(id, logical, state)
    }
}

/// How a harness's blocks are placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    pub(crate) seed: u64,
    pub(crate) run_blocks: u32,
    pub(crate) layout_score: u16,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            seed: SEED,
            run_blocks: 8,
            layout_score: WHOLE,
        }
    }
}

pub(crate) struct Harness {
    pub(crate) core: Core<Simulated>,
    pub(crate) map: HashFs,
    pub(crate) placement: Placement,
}

impl Harness {
    /// An empty pool.
    pub(crate) fn new(pool_bytes: u64) -> Self {
        Self::placed(pool_bytes, Placement::default())
    }

    /// An empty pool with runs of so many blocks.
    pub(crate) fn of_runs(pool_bytes: u64, run_blocks: u32) -> Self {
        let placement = Placement {
            run_blocks,
            ..Placement::default()
        };
        Self::placed(pool_bytes, placement)
    }

    /// An empty pool whose blocks are placed so.
    pub(crate) fn placed(pool_bytes: u64, placement: Placement) -> Self {
        let request = GeometryRequest {
            pool_bytes,
            thread_slots: Some(4),
            run_blocks: Some(placement.run_blocks),
            ..Default::default()
        };
        let geometry = Geometry::plan(&request).unwrap();
        let new = Self::attach(SimPool::new(pool_bytes), geometry, placement, 1);
        new.rebuild(&|_, _, _| Verdict::Keep).unwrap();
        new
    }

    /// This pool with other bytes, as after a crash.
    pub(crate) fn recovered(&self, image: Vec<u8>, judge: Judge<'_>) -> Self {
        let pool = SimPool::from_image(image);
        let new = Self::attach(pool, self.core.geometry, self.placement, 1);
        new.rebuild(judge).unwrap();
        new
    }

    /// This pool with other bytes at the opening that follows its close; nothing is known of its
    /// table yet.
    pub(crate) fn opened(&self, image: Vec<u8>) -> Self {
        let pool = SimPool::from_image(image);
        Self::attach(pool, self.core.geometry, self.placement, 2)
    }

    fn attach(pool: SimPool, geometry: Geometry, placement: Placement, pool_epoch: u32) -> Self {
        let map = ArenaMap::plan(&geometry, 4096, HashFs::arena_bytes(&geometry));
        let core = Core {
            pool,
            arena: HeapMemory::new(map.bytes),
            geometry,
            map,
            seed: placement.seed,
            pool_epoch,
            clock: Clock::Counter(AtomicI64::new(1)),
            read_only: false,
        };
        let (seed, score) = (placement.seed, placement.layout_score);
        let map = HashFs::new(map.mapping, &geometry, seed, score);
        Self {
            core,
            map,
            placement,
        }
    }

    /// Builds the mapping's aids, keeping the blocks that `judge` keeps.
    pub(crate) fn rebuild(&self, judge: Judge<'_>) -> Result<()> {
        self.map.rebuild(&self.core, &Judged(judge))
    }

    /// The same pool, attached again with an arena of zeros.
    pub(crate) fn reattach(self) -> Self {
        self.reattach_judged(&|_, _, _| Verdict::Keep)
    }

    /// The same, as after a crash.
    pub(crate) fn reattach_judged(self, judge: Judge<'_>) -> Self {
        self.recovered(self.core.pool.image(), judge)
    }

    /// Makes an empty file's inode in metadata slot `ino`.
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
        let made = self.core.take_cachelet(&self.core.op_begin()).unwrap();
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

    /// Blocks that could be reserved.
    pub(crate) fn free(&self) -> u64 {
        self.map.usage(&self.core).free
    }
}
