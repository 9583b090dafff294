//! The head of an external data device, by which the pool whose data it has knows it, and where the
//! pool says that media were last found.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::superblock::Superblock;
use crate::{AddedSegment, BLOCK_BYTES, ReplicaPlan};

/// First eight bytes of an external data device.
pub const MEDIUM_MAGIC: [u8; 8] = *b"VELDATA1";
/// Where on a new medium the data begin: what maps large pages maps them there.
pub const MEDIUM_DATA_AT: u64 = 2 << 20;
/// Most bytes of a path in [`DevicePaths`].
pub const MEDIUM_PATH_MAX: usize = 232;
/// Media that a pool can tell the places of.
const PLACES: usize = 15;

/// What an external data device begins with, and, in its last block, ends with.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MediumHead {
    /// [`MEDIUM_MAGIC`].
    pub magic: [u8; 8],
    /// Its identity, drawn when it was made.
    pub id: [u8; 16],
    /// The pool whose data it has.
    pub pool: [u8; 16],
    /// The segment of the pool.
    pub segment: u32,
    /// Reserved, zero.
    pub reserved_segment: u32,
    /// Where the data begin.
    pub data_at: u64,
    /// Blocks of data.
    pub blocks: u64,
    /// Bytes of the medium, up to the end of the head's copy.
    pub bytes: u64,
    /// Where a copy of the metadata lies ([`crate::ReplicaHead`]); 0: the medium carries none.
    pub replica_at: u64,
    /// Bytes of that copy.
    pub replica_bytes: u64,
    /// Drawn when the pool was last opened for writing; 0: it never was.
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
    /// The head of the medium that a sound superblock says has the data of segment 0; `None` if the
    /// pool has them itself.
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

    /// The heads of all media that a sound superblock says have its data, that of segment 0 first;
    /// none if the pool has them itself.
    pub fn all(superblock: &Superblock) -> Vec<Self> {
        let added = superblock.geometry().added;
        let of_added = added
            .iter()
            .map(|(number, segment)| Self::sealed(superblock, number, segment, 0));
        Self::of(superblock).into_iter().chain(of_added).collect()
    }

    /// The head of the medium of a segment, behind whose data a copy of the metadata of so many
    /// bytes follows.
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

    /// The same medium in this session.
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

    /// Where the copy lies.
    pub fn copy_at(&self) -> u64 {
        self.bytes.saturating_sub(BLOCK_BYTES)
    }

    fn expected_check(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.as_bytes()[..MEDIUM_HEAD_BYTES - 8])
    }
}

/// Where a medium was last found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DevicePath {
    /// Its identity; 0: this place is not in use.
    pub id: [u8; 16],
    /// 1: data.
    pub kind: u16,
    /// Bytes of the path.
    pub length: u16,
    /// Reserved, zero.
    pub reserved: u32,
    /// Its path, from the directory of the pool on if it does not begin with a slash; zeros behind
    /// it.
    pub path: [u8; MEDIUM_PATH_MAX],
}

/// The block of a pool that tells where its media were last found, which is tried first, and in
/// which session it was last open for writing.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DevicePaths {
    /// The places.
    pub places: [DevicePath; PLACES],
    /// XXH3-64 of the places.
    pub check: u64,
    /// The session of the external data device that is to be there ([`MediumHead::session`]).
    pub session: u64,
    /// The session that was drawn last: the medium may be of that one already.
    pub next: u64,
    /// Reserved, zero.
    pub reserved: [u64; 29],
}

const _: () = assert!(size_of::<DevicePaths>() as u64 == BLOCK_BYTES);

/// [`DevicePath::kind`] of an external data device.
const KIND_DATA: u16 = 1;

impl DevicePaths {
    /// Bytes of what tells places; sessions lie behind them, and change by themselves.
    pub const TOLD_BYTES: usize = std::mem::offset_of!(Self, session);
    /// Offset of `session`.
    pub const SESSION: u64 = Self::TOLD_BYTES as u64;
    /// Offset of `next`.
    pub const NEXT: u64 = std::mem::offset_of!(Self, next) as u64;

    /// One medium with data, at a path of at most [`MEDIUM_PATH_MAX`] bytes.
    pub fn of_data(id: [u8; 16], path: &[u8]) -> Self {
        let mut new = Self::new_zeroed();
        let path = &path[..path.len().min(MEDIUM_PATH_MAX)];
        let place = &mut new.places[0];
        (place.id, place.kind, place.length) = (id, KIND_DATA, path.len() as u16);
        place.path[..path.len()].copy_from_slice(path);
        new.seal();
        new
    }

    /// What these bytes of the block tell, and that the medium of this identity is at `path`, of at
    /// most [`MEDIUM_PATH_MAX`] bytes; of bytes that are not sound nothing is taken.
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

    /// Where the external data device of this identity was last found, by the bytes of the block;
    /// `None` if they do not say.
    pub fn find(bytes: &[u8], id: [u8; 16]) -> Option<Vec<u8>> {
        let places = Self::sound(bytes)?;
        let found = places.places.iter();
        let place = { found }.find(|place| place.kind == KIND_DATA && place.id == id)?;
        let path = place.path.get(..place.length.into())?;
        (!path.is_empty()).then(|| path.to_vec())
    }

    /// The sessions of which the medium may be, by the bytes of the block; `None` if they do not
    /// say.
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
    fn sessions_are_no_part_of_what_tells_places() {
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
    fn places_of_several_media_stand_beside_each_other() {
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
    fn a_segment_that_was_added_has_a_head_of_its_own() {
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
    fn places_are_found_by_identity() {
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
