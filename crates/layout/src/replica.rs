//! The metadata replica on an external data device, from which alone a pool can be created
//! elsewhere, and the map of the blocks that the replica lacks.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::{BLOCK_BYTES, Geometry, mix};

/// First eight bytes of a metadata replica.
pub const REPLICA_MAGIC: [u8; 8] = *b"VELCARR1";
/// Bytes of the checksum of a block.
pub const REPLICA_SUM_BYTES: u64 = 8;
/// Bytes in front of the bits of the map of changed blocks.
pub const CHANGED_HEAD_BYTES: u64 = 64;

/// Word offsets of the map of blocks that changed since they were copied. Its bits begin at
/// [`CHANGED_HEAD_BYTES`].
#[derive(Debug)]
pub struct ChangedMap;

impl ChangedMap {
    /// [`ReplicaHead::number`] of the replica that the bits refer to. For any other replica all
    /// blocks count as changed.
    pub const SINCE: u64 = 0;
}

/// The head of a metadata replica.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ReplicaHead {
    /// [`REPLICA_MAGIC`].
    pub magic: [u8; 8],
    /// The pool whose metadata it copies.
    pub pool: [u8; 16],
    /// 2: the replica is complete, and the pool has not been opened for writing since. 1:
    /// otherwise.
    pub state: u64,
    /// How often the replica was completed.
    pub number: u64,
    /// Blocks of metadata.
    pub blocks: u64,
    /// Checksum of the block checksums when the replica was last complete:
    /// [`ReplicaPlan::table_sum`].
    pub sum: u64,
    /// Reserved, zero.
    pub reserved: [u64; 56],
    /// XXH3-64 of the bytes before.
    pub check: u64,
}

/// Bytes of the head: one sector.
pub const REPLICA_HEAD_BYTES: usize = size_of::<ReplicaHead>();

const _: () = assert!(REPLICA_HEAD_BYTES == 512);

/// [`ReplicaHead::state`] of a replica that may lack changes of the pool.
const STATE_STALE: u64 = 1;
/// [`ReplicaHead::state`] of a complete replica.
const STATE_WHOLE: u64 = 2;
/// More blocks than any pool has in front of its undo log.
const BLOCKS_MAX: u64 = 1 << 48;

impl ReplicaHead {
    /// The head of a complete replica of this pool with this many blocks: its `number`th
    /// completion, with this [`ReplicaPlan::table_sum`].
    pub fn whole(pool: [u8; 16], number: u64, blocks: u64, sum: u64) -> Self {
        let mut new = Self {
            magic: REPLICA_MAGIC,
            pool,
            state: STATE_WHOLE,
            number,
            blocks,
            sum,
            ..Self::new_zeroed()
        };
        new.check = new.expected_check();
        new
    }

    /// The same head, marked stale: from now on the pool may be ahead of the replica.
    #[must_use]
    pub fn stale(mut self) -> Self {
        self.state = STATE_STALE;
        self.check = self.expected_check();
        self
    }

    /// Reads the head of a replica of this pool; `None` if it is not sound or belongs to another
    /// pool.
    pub fn unseal(bytes: &[u8], pool: [u8; 16]) -> Option<Self> {
        let (head, _) = Self::read_from_prefix(bytes).ok()?;
        let is_sound = head.magic == REPLICA_MAGIC && head.check == head.expected_check();
        (is_sound && head.pool == pool && head.blocks <= BLOCKS_MAX).then_some(head)
    }

    /// Whether the replica is complete.
    pub fn is_whole(&self) -> bool {
        self.state == STATE_WHOLE
    }

    fn expected_check(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.as_bytes()[..REPLICA_HEAD_BYTES - 8])
    }
}

/// The layout of a metadata replica: the head in a block, a checksum of each metadata block, the
/// blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaPlan {
    /// Offset of the replica, in the pool or on the device.
    pub at: u64,
    /// Metadata blocks that it copies, from the pool's first byte on.
    pub blocks: u64,
}

impl ReplicaPlan {
    /// The plan of a pool whose external data device holds a replica. It lies behind the data,
    /// which count as lying behind the pool.
    pub fn of(geometry: &Geometry) -> Option<Self> {
        (geometry.changed_at != 0).then(|| Self {
            at: geometry.data_at + geometry.segment_blocks * BLOCK_BYTES,
            blocks: geometry.image_end() / BLOCK_BYTES,
        })
    }

    /// Bytes of the whole replica.
    pub fn bytes(&self) -> u64 {
        BLOCK_BYTES + self.table_bytes() + self.blocks * BLOCK_BYTES
    }

    /// Offset of the checksums of blocks.
    pub fn table_at(&self) -> u64 {
        self.at + BLOCK_BYTES
    }

    /// Bytes of these checksums, in whole blocks.
    pub fn table_bytes(&self) -> u64 {
        (self.blocks * REPLICA_SUM_BYTES).next_multiple_of(BLOCK_BYTES)
    }

    /// Offset of the copy of a block.
    pub fn block_at(&self, number: u64) -> u64 {
        self.table_at() + self.table_bytes() + number * BLOCK_BYTES
    }

    /// Bytes of the map of changed blocks.
    pub fn map_bytes(&self) -> u64 {
        changed_bytes_for(self.blocks * BLOCK_BYTES)
    }

    /// The checksum of a block of a pool; 0: the block is all zeros and not copied.
    pub fn block_sum(pool: &[u8; 16], number: u64, block: &[u8]) -> u64 {
        if block.iter().all(|&byte| byte == 0) {
            return 0;
        }
        let seed = mix(seed_of(pool) ^ number);
        xxhash_rust::xxh3::xxh3_64_with_seed(block, seed).max(1)
    }

    /// The checksum of all block checksums.
    pub fn table_sum(pool: &[u8; 16], table: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(table, seed_of(pool))
    }
}

/// The first half of an identity. It makes replicas of different pools distinguishable.
fn seed_of(pool: &[u8; 16]) -> u64 {
    let (first, _) = u64::read_from_prefix(pool).unwrap_or_default();
    first
}

/// Bytes of the map of changed blocks for metadata that end at `end`.
pub fn changed_bytes_for(end: u64) -> u64 {
    let blocks = end / BLOCK_BYTES;
    (CHANGED_HEAD_BYTES + blocks.div_ceil(64) * 8).next_multiple_of(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExternalRequest, GeometryRequest, MediumHead, NamespaceKind, Superblock};

    fn geometry(has_replica: bool) -> Geometry {
        let request = GeometryRequest {
            external: Some(ExternalRequest {
                id: [9; 16],
                at: 2 << 20,
                data_bytes: 8 << 20,
                has_replica,
            }),
            ..Default::default()
        };
        Geometry::plan(&request).unwrap()
    }

    #[test]
    fn heads_are_sealed_and_of_their_pool() {
        let head = ReplicaHead::whole([7; 16], 3, 100, 5);
        let mut bytes = head.as_bytes().to_vec();
        let stale = head.clone().stale();
        assert!(head.is_whole() && !stale.is_whole());
        assert_eq!((stale.number, stale.sum), (3, 5));
        let again = ReplicaHead::unseal(stale.as_bytes(), [7; 16]);
        assert_eq!(again, Some(stale));
        assert_eq!(ReplicaHead::unseal(&bytes, [7; 16]), Some(head));
        assert_eq!(ReplicaHead::unseal(&bytes, [8; 16]), None);
        assert_eq!(ReplicaHead::unseal(&bytes[..511], [7; 16]), None);
        let huge = ReplicaHead::whole([7; 16], 3, u64::MAX, 5);
        assert_eq!(ReplicaHead::unseal(huge.as_bytes(), [7; 16]), None);
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            let found = ReplicaHead::unseal(&bytes, [7; 16]);
            assert_eq!(found, None, "byte {at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn sums_differ_between_blocks_numbers_and_pools() {
        let sum = |pool, number, byte| {
            ReplicaPlan::block_sum(&[pool; 16], number, &[byte; BLOCK_BYTES as usize])
        };
        assert_eq!(sum(1, 2, 0), 0);
        let sums = [sum(1, 2, 3), sum(2, 2, 3), sum(1, 3, 3), sum(1, 2, 4)];
        for (index, one) in sums.iter().enumerate() {
            assert!(*one != 0 && !sums[index + 1..].contains(one));
        }
    }

    #[test]
    fn a_replica_lies_behind_the_data_and_its_map_behind_the_undo_log() {
        assert_eq!(ReplicaPlan::of(&geometry(false)), None);
        let geometry = geometry(true);
        assert!(geometry.is_sound());
        let plan = ReplicaPlan::of(&geometry).unwrap();
        assert_eq!(plan.at, geometry.pool_bytes + (8 << 20));
        assert_eq!(plan.blocks * BLOCK_BYTES, geometry.undo_at);
        assert_eq!(plan.block_at(plan.blocks), plan.at + plan.bytes());
        assert!(CHANGED_HEAD_BYTES + plan.blocks.div_ceil(8) <= plan.map_bytes());
        let map_end = geometry.changed_at + plan.map_bytes();
        assert!(geometry.changed_at >= geometry.undo_at + geometry.undo_bytes);
        assert!(map_end <= geometry.external.unwrap().places_at);
        let superblock = Superblock::new(&geometry, [7; 16], 1, 2, "", NamespaceKind::Direct);
        assert!(superblock.check_readable().is_ok() && superblock.check_writable().is_ok());
        assert_eq!(superblock.geometry(), geometry);
        let head = MediumHead::of(&superblock).unwrap();
        assert_eq!(head.replica_at, (2 << 20) + (8 << 20));
        assert_eq!(head.replica_bytes, plan.bytes());
        assert_eq!(head.copy_at(), head.replica_at + head.replica_bytes);
    }
}
