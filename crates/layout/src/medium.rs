//! The head of an external data device, by which its pool recognises it, and the paths at which a
//! pool last found its devices.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::superblock::Superblock;
use crate::{AddedSegment, BLOCK_BYTES, ReplicaPlan};

/// First eight bytes of an external data device.
pub const MEDIUM_MAGIC: [u8; 8] = *b"VELDATA1";
/// Offset at which the data of a new device begin: large pages can be mapped there.
pub const MEDIUM_DATA_AT: u64 = 2 << 20;
/// Most bytes of a path in [`DevicePaths`].
pub const MEDIUM_PATH_MAX: usize = 232;
/// Devices whose paths a pool can store.
const PLACES: usize = 15;

/// The head of an external data device: its first sector, with a copy in its last block.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MediumHead {
    /// [`MEDIUM_MAGIC`].
    pub magic: [u8; 8],
    /// Identity of the device, drawn when it was formatted.
    pub id: [u8; 16],
    /// The pool whose data it holds.
    pub pool: [u8; 16],
    /// The segment of that pool.
    pub segment: u32,
    /// Reserved, zero.
    pub reserved_segment: u32,
    /// Offset of the data.
    pub data_at: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Bytes of the device, up to the end of the head's copy.
    pub bytes: u64,
    /// Offset of the metadata replica ([`crate::ReplicaHead`]); 0: none.
    pub replica_at: u64,
    /// Bytes of the metadata replica.
    pub replica_bytes: u64,
    /// Number drawn at the last opening of the pool for writing; 0: never opened.
    pub session: u64,
    /// Reserved, zero.
    pub reserved: [u64; 51],
    /// XXH3-64 of the bytes before.
    pub check: u64,
}

/// Bytes of a head: one sector.
pub const MEDIUM_HEAD_BYTES: usize = size_of::<MediumHead>();

const _: () = assert!(MEDIUM_HEAD_BYTES == 512);

impl MediumHead {
    /// The head of the device that holds the data of segment 0 according to a sound superblock;
    /// `None` if the pool itself holds them.
    pub fn of(superblock: &Superblock) -> Option<Self> {
        let geometry = superblock.geometry();
        let external = geometry.external?;
        let segment = AddedSegment {
            id: external.id,
            at: external.at,
            blocks: geometry.segment_blocks,
        };
        let replica = ReplicaPlan::of(&geometry);
        let replica_bytes = replica.map_or(0, |plan| plan.bytes());
        Some(Self::sealed(superblock, 0, &segment, replica_bytes))
    }

    /// The heads of all external data devices according to a sound superblock, that of segment 0
    /// first; empty if the pool itself holds the data.
    pub fn all(superblock: &Superblock) -> Vec<Self> {
        let added = superblock.geometry().added;
        let of_added = added
            .iter()
            .filter(|(_, segment)| !segment.is_own())
            .map(|(number, segment)| Self::sealed(superblock, number, segment, 0));
        Self::of(superblock).into_iter().chain(of_added).collect()
    }

    /// The head of the device of a segment, with a metadata replica of this many bytes behind the
    /// data.
    fn sealed(
        superblock: &Superblock,
        number: u32,
        segment: &AddedSegment,
        replica_bytes: u64,
    ) -> Self {
        let data_end = segment.at + segment.blocks * BLOCK_BYTES;
        let mut new = Self {
            magic: MEDIUM_MAGIC,
            id: segment.id,
            pool: superblock.uuid,
            segment: number,
            data_at: segment.at,
            blocks: segment.blocks,
            bytes: data_end
                .saturating_add(replica_bytes)
                .saturating_add(BLOCK_BYTES),
            replica_at: if replica_bytes > 0 { data_end } else { 0 },
            replica_bytes,
            ..Self::new_zeroed()
        };
        new.seal();
        new
    }

    /// The same head in another session.
    #[must_use]
    pub fn in_session(&self, session: u64) -> Self {
        let mut new = self.clone();
        new.session = session;
        new.seal();
        new
    }

    /// Computes the check.
    pub fn seal(&mut self) {
        self.check = self.expected_check();
    }

    /// Reads a head; `None` if it is not sound.
    pub fn unseal(bytes: &[u8]) -> Option<Self> {
        let (head, _) = Self::read_from_prefix(bytes).ok()?;
        let is_sound = head.magic == MEDIUM_MAGIC && head.check == head.expected_check();
        is_sound.then_some(head)
    }

    /// Offset of the copy of the head.
    pub fn copy_at(&self) -> u64 {
        self.bytes.saturating_sub(BLOCK_BYTES)
    }

    fn expected_check(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.as_bytes()[..MEDIUM_HEAD_BYTES - 8])
    }
}

/// The path at which a device was last found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DevicePath {
    /// Identity of the device; 0: this record is not in use.
    pub id: [u8; 16],
    /// Kind of the device; 1: data.
    pub kind: u16,
    /// Bytes of the path.
    pub length: u16,
    /// Reserved, zero.
    pub reserved: u32,
    /// The path, zero-padded. If it does not begin with a slash, it is relative to the directory of
    /// the pool.
    pub path: [u8; MEDIUM_PATH_MAX],
}

/// The block of a pool with the paths at which its devices were last found, which are tried first,
/// and the session in which the pool was last open for writing.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DevicePaths {
    /// The paths.
    pub places: [DevicePath; PLACES],
    /// XXH3-64 of the paths.
    pub check: u64,
    /// The expected session of the external data device ([`MediumHead::session`]).
    pub session: u64,
    /// The session that was drawn last: the device may already be in it.
    pub next: u64,
    /// Reserved, zero.
    pub reserved: [u64; 29],
}

const _: () = assert!(size_of::<DevicePaths>() as u64 == BLOCK_BYTES);

/// [`DevicePath::kind`] of an external data device.
const KIND_DATA: u16 = 1;

impl DevicePaths {
    /// Bytes of the paths and their check. The sessions lie behind them and change independently.
    pub const TOLD_BYTES: usize = std::mem::offset_of!(Self, session);
    /// Offset of `session`.
    pub const SESSION: u64 = Self::TOLD_BYTES as u64;
    /// Offset of `next`.
    pub const NEXT: u64 = std::mem::offset_of!(Self, next) as u64;

    /// The block with one data device, at a path of at most [`MEDIUM_PATH_MAX`] bytes.
    pub fn of_data(id: [u8; 16], path: &[u8]) -> Self {
        let mut new = Self::new_zeroed();
        let path = &path[..path.len().min(MEDIUM_PATH_MAX)];
        let place = &mut new.places[0];
        (place.id, place.kind, place.length) = (id, KIND_DATA, path.len() as u16);
        place.path[..path.len()].copy_from_slice(path);
        new.seal();
        new
    }

    /// The paths in these bytes of the block, updated so that the device `id` is at `path` (at most
    /// [`MEDIUM_PATH_MAX`] bytes). Unsound bytes are dropped.
    pub fn with_data(bytes: &[u8], id: [u8; 16], path: &[u8]) -> Self {
        let new = Self::of_data(id, path);
        let Some(mut places) = Self::sound(bytes) else {
            return new;
        };
        let is_its = |place: &&mut DevicePath| place.kind == 0 || place.id == id;
        if let Some(place) = places.places.iter_mut().find(is_its) {
            *place = new.places[0];
        }
        places.seal();
        places
    }

    /// Computes the check.
    pub fn seal(&mut self) {
        self.check = self.expected_check();
    }

    /// The path at which the external data device `id` was last found, according to the bytes of
    /// the block; `None` if unknown.
    pub fn find(bytes: &[u8], id: [u8; 16]) -> Option<Vec<u8>> {
        let places = Self::sound(bytes)?;
        let found = places.places.iter();
        let place = { found }.find(|place| place.kind == KIND_DATA && place.id == id)?;
        let path = place.path.get(..place.length.into())?;
        (!path.is_empty()).then(|| path.to_vec())
    }

    /// The sessions that the device may be in, according to the bytes of the block; `None` if
    /// unknown.
    pub fn sessions(bytes: &[u8]) -> Option<[u64; 2]> {
        let places = Self::sound(bytes)?;
        Some([places.session, places.next])
    }

    fn sound(bytes: &[u8]) -> Option<Self> {
        let (places, _) = Self::read_from_prefix(bytes).ok()?;
        (places.check == places.expected_check()).then_some(places)
    }

    fn expected_check(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(self.places.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AddedSegment, ExternalRequest, Geometry, GeometryRequest, NamespaceKind, SEGMENTS_MAX,
        features,
    };

    fn sample_superblock() -> Superblock {
        let request = GeometryRequest {
            is_logged: true,
            external: Some(ExternalRequest {
                id: [9; 16],
                at: MEDIUM_DATA_AT,
                data_bytes: 8 << 20,
                has_replica: false,
            }),
            ..Default::default()
        };
        let geometry = Geometry::plan(&request).unwrap();
        Superblock::new(&geometry, [7; 16], 1, 2, "", NamespaceKind::Direct)
    }

    fn sample() -> MediumHead {
        MediumHead::of(&sample_superblock()).unwrap()
    }

    #[test]
    fn heads_are_sealed() {
        let head = sample();
        assert_eq!((head.id, head.pool, head.blocks), ([9; 16], [7; 16], 2048));
        assert_eq!(head.copy_at(), MEDIUM_DATA_AT + (8 << 20));
        let mut bytes = head.as_bytes().to_vec();
        assert_eq!(MediumHead::unseal(&bytes), Some(head));
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(MediumHead::unseal(&bytes), None, "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(MediumHead::unseal(&bytes[..511]), None);
    }

    #[test]
    fn sessions_are_outside_the_check_of_paths() {
        let head = sample().in_session(5);
        assert_eq!(MediumHead::unseal(head.as_bytes()), Some(head.clone()));
        assert_eq!(head.in_session(0), sample());
        let mut places = DevicePaths::of_data([9; 16], b"d.img");
        (places.session, places.next) = (7, 8);
        let bytes = places.as_bytes();
        assert_eq!(
            DevicePaths::find(bytes, [9; 16]).as_deref(),
            Some(&b"d.img"[..])
        );
        assert_eq!(DevicePaths::sessions(bytes), Some([7, 8]));
        let word = |at: u64| u64::from_le_bytes(*bytes[at as usize..].first_chunk().unwrap());
        assert_eq!(word(DevicePaths::SESSION), 7);
        assert_eq!(word(DevicePaths::NEXT), 8);
        assert_eq!(DevicePaths::sessions(&bytes[1..]), None);
    }

    #[test]
    fn paths_of_several_devices_are_kept() {
        let first = DevicePaths::of_data([9; 16], b"first");
        let both = DevicePaths::with_data(first.as_bytes(), [8; 16], b"second");
        let moved = DevicePaths::with_data(both.as_bytes(), [9; 16], b"moved");
        let find = |id| DevicePaths::find(moved.as_bytes(), id);
        assert_eq!(find([9; 16]).as_deref(), Some(&b"moved"[..]));
        assert_eq!(find([8; 16]).as_deref(), Some(&b"second"[..]));
        let alone = DevicePaths::with_data(&[7; 4096], [8; 16], b"second");
        assert_eq!(alone, DevicePaths::of_data([8; 16], b"second"));
    }

    #[test]
    fn an_added_segment_has_a_head_of_its_own() {
        let superblock = sample_superblock();
        let segment = AddedSegment {
            id: [8; 16],
            at: MEDIUM_DATA_AT,
            blocks: 64,
        };
        let larger = superblock.with_segment(segment).unwrap();
        larger.check_readable().unwrap();
        assert_eq!(
            larger.geometry().blocks(),
            superblock.geometry().blocks() + 64
        );
        let heads = MediumHead::all(&larger);
        assert_eq!(heads[..1], MediumHead::all(&superblock));
        assert_eq!((heads[1].id, heads[1].segment), ([8; 16], 1));
        assert_eq!(heads[1].copy_at(), MEDIUM_DATA_AT + 64 * BLOCK_BYTES);
        let mut full = superblock;
        while let Some(more) = full.with_segment(segment) {
            full = more;
        }
        assert_eq!(MediumHead::all(&full).len(), SEGMENTS_MAX);
        for change in [
            |bad: &mut Superblock| bad.incompatible ^= features::SEGMENTS,
            |bad: &mut Superblock| bad.segments[1].saved_state_at = 4096,
            |bad: &mut Superblock| bad.segments[1].blocks = 7,
            |bad: &mut Superblock| bad.segments[3].table_at = 1,
        ] {
            let mut bad = larger.clone();
            change(&mut bad);
            assert!(bad.check_readable().is_err());
        }
    }

    #[test]
    fn paths_are_found_by_identity() {
        let long = vec![b'p'; MEDIUM_PATH_MAX];
        for path in [&b"d.img"[..], &long] {
            let mut places = DevicePaths::of_data([9; 16], path);
            let find = |places: &DevicePaths| DevicePaths::find(places.as_bytes(), [9; 16]);
            assert_eq!(find(&places).as_deref(), Some(path));
            assert_eq!(DevicePaths::find(places.as_bytes(), [0; 16]), None);
            places.places[0].length = u16::MAX;
            assert_eq!(find(&places), None);
            places.seal();
            assert_eq!(find(&places), None);
        }
        let none = DevicePaths::of_data([9; 16], b"");
        assert_eq!(DevicePaths::find(none.as_bytes(), [9; 16]), None);
    }
}
