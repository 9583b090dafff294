//! Entries of the namespace *adaptive*: names with their paths from the root of their area.
//!
//! An entry takes one to nine slots of a group. Everything but the life word is written once,
//! before the state-map records the entry, and is under the checksum. The head is short, so that a
//! path of up to 16 bytes shares its cache line.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checksum::{Summing, long_name_hash};
use crate::entry::NAME_MAX;
use crate::{SLOT_BYTES, mix};

/// Longest path of a directory, in bytes, that the paths of its names continue: any name fits
/// behind it.
pub const DIR_PATH_MAX: usize = 848;
/// Longest path of an entry, in bytes.
pub const PATH_MAX: usize = DIR_PATH_MAX + 1 + NAME_MAX;
/// Most metadata slots of an entry with a path.
pub const PATH_ENTRY_MAX_SLOTS: u64 = 9;
/// Bytes of the longest entry with a path.
pub const PATH_ENTRY_MAX_BYTES: usize = (PATH_ENTRY_MAX_SLOTS * SLOT_BYTES) as usize;

const _: () = assert!(PATH_ENTRY_MAX_BYTES == PathEntryHead::PATH as usize + PATH_MAX);

/// An entry without its path.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct PathEntryHead {
    /// [`crate::LifeWord`]; not under the checksum because it changes by one 8-byte store.
    pub life: u64,
    /// [`crate::TargetWord`].
    pub target: u64,
    /// Cookie, never reused in the directory; at least 3. A moved copy of the entry keeps it.
    pub cookie: u64,
    /// Inode slot of the directory.
    pub parent: u64,
    /// Generation of the inode named.
    pub generation: u32,
    /// CRC-32C of three words ([`PathSeal`]: the area's generation, the entry's slot, the
    /// directory's generation), then bytes 8 to 36 and 40 to 48 of the entry, then the path.
    pub checksum: u32,
    /// Bytes of the path, 1 to 1104.
    pub path_len: u16,
    /// Offset in the path of its last component, the name.
    pub name_at: u16,
    /// Number of the area.
    pub area: u32,
}

const _: () = assert!(size_of::<PathEntryHead>() as u64 == PathEntryHead::PATH);

/// The area, slot and directory that an entry is sealed for, each in one life. It is sound for
/// nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSeal {
    /// Generation of the area.
    pub area: u32,
    /// Metadata slot of the entry.
    pub slot: u64,
    /// Generation of the directory's inode.
    pub directory: u32,
}

impl PathEntryHead {
    /// Offset of the life word.
    pub const LIFE: u64 = 0;
    /// Offset of the target word.
    pub const TARGET: u64 = 8;
    /// Offset of the cookie.
    pub const COOKIE: u64 = 16;
    /// Offset of the parent's inode slot.
    pub const PARENT: u64 = 24;
    /// Offset of generation (low half) and checksum (high half).
    pub const CHECK: u64 = 32;
    /// Offset of the path's length (16 bits), where the name begins (16 bits), and the area's
    /// number (high half).
    pub const PATH_WORD: u64 = 40;
    /// Offset of the path.
    pub const PATH: u64 = 48;

    /// Metadata slots that an entry with a path of `len` bytes takes.
    pub const fn slots_for(len: usize) -> u64 {
        (Self::PATH + len as u64).div_ceil(SLOT_BYTES)
    }

    /// The head with length, name offset and checksum for this path.
    pub fn sealed(&self, path: &[u8], seal: PathSeal) -> Self {
        let mut sealed = *self;
        sealed.path_len = path.len() as u16;
        sealed.name_at = name_at(path) as u16;
        sealed.checksum = sealed.expected_checksum(path, seal);
        sealed
    }

    /// Writes the bytes of the entry, sealed, into `buffer`; returns how many (whole cache lines,
    /// the last one padded with zeros).
    pub fn encode(
        &self,
        path: &[u8],
        seal: PathSeal,
        buffer: &mut [u8; PATH_ENTRY_MAX_BYTES],
    ) -> usize {
        buffer[size_of::<Self>()..][..path.len()].copy_from_slice(path);
        self.encode_around(path.len(), seal, buffer)
    }

    /// As [`Self::encode`], around a path of `len` bytes that is already in place in `buffer`.
    pub fn encode_around(
        &self,
        len: usize,
        seal: PathSeal,
        buffer: &mut [u8; PATH_ENTRY_MAX_BYTES],
    ) -> usize {
        let used = size_of::<Self>() + len;
        let total = used.next_multiple_of(64);
        let (head, path) = buffer.split_at_mut(size_of::<Self>());
        head.copy_from_slice(self.sealed(&path[..len], seal).as_bytes());
        buffer[used..total].fill(0);
        total
    }

    /// The head and the path at the start of `bytes`, if they are an entry that is sound for
    /// `seal`.
    pub fn decode(bytes: &[u8], seal: PathSeal) -> Option<(Self, &[u8])> {
        let found = Self::decode_unsealed(bytes);
        found.filter(|(head, path)| head.checksum == head.expected_checksum(path, seal))
    }

    /// As [`Self::decode`], without checking the checksum: for entries that were verified before,
    /// or whose generations are not known yet. It still checks that the path ends in a name.
    #[inline]
    pub fn decode_unsealed(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = Self::read_from_prefix(bytes).ok()?;
        let path = rest.get(..usize::from(head.path_len))?;
        let at = usize::from(head.name_at);
        let fits = at <= DIR_PATH_MAX + 1
            && at == name_at(path)
            && (1..=NAME_MAX).contains(&(path.len() - at));
        fits.then_some((head, path))
    }

    /// The last component of the entry's path.
    pub fn name<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        &path[usize::from(self.name_at)..]
    }

    /// The path of the entry's directory.
    pub fn directory<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        &path[..usize::from(self.name_at).saturating_sub(1)]
    }

    fn expected_checksum(&self, path: &[u8], seal: PathSeal) -> u32 {
        let bytes = self.as_bytes();
        let words: [u64; 3] = [seal.area.into(), seal.slot, seal.directory.into()];
        // Three short updates of the checksum cost more than a single one.
        let mut first = [0; 60];
        first[..24].copy_from_slice(words.as_bytes());
        first[24..52].copy_from_slice(&bytes[8..36]);
        first[52..].copy_from_slice(&bytes[40..48]);
        let mut sum = Summing::default();
        sum.add(&first);
        sum.add(path);
        sum.finish()
    }
}

/// Offset of the last component of a path.
fn name_at(path: &[u8]) -> usize {
    let slash = path.iter().rposition(|&byte| byte == b'/');
    slash.map_or(0, |slash| slash + 1)
}

/// Whether an entry may have this path: names between single slashes.
pub fn is_path(path: &[u8]) -> bool {
    let is_name = |name: &[u8]| {
        (1..=NAME_MAX).contains(&name.len()) && !name.contains(&0) && name != b"." && name != b".."
    };
    path.len() <= PATH_MAX && path.split(|&byte| byte == b'/').all(is_name)
}

/// The path that the paths of names in this directory continue. It is empty if the directory's path
/// is too long: paths then begin again, as below a root.
pub fn path_below(directory: &[u8]) -> &[u8] {
    match directory.len() {
        0..=DIR_PATH_MAX => directory,
        _ => &[],
    }
}

/// The hash of a path. It is computed component by component, from the hash of the directory's path
/// and the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathHash(pub u64);

impl PathHash {
    /// The hash of an area's root.
    pub fn of_root(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The hash of a name in the directory with this hash.
    #[inline]
    pub fn step(self, seed: u64, name: &[u8]) -> Self {
        self.step_hashed(long_name_hash(seed, name))
    }

    /// As [`Self::step`], from the name's [`long_name_hash`].
    #[inline]
    pub fn step_hashed(self, name: u64) -> Self {
        Self(fold(self.0 ^ name))
    }
}

/// The hash of a path with the pool's seed.
pub fn path_hash(seed: u64, path: &[u8]) -> PathHash {
    let names = path.split(|&byte| byte == b'/');
    names.fold(PathHash::of_root(seed), |hash, name| hash.step(seed, name))
}

/// Both halves of the product, xored.
#[inline]
fn fold(x: u64) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let product = u128::from(x) * u128::from(FACTOR);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileKind, LifeWord, TargetWord};

    const SEAL: PathSeal = PathSeal {
        area: 3,
        slot: 77,
        directory: 6,
    };

    fn head() -> PathEntryHead {
        PathEntryHead {
            life: LifeWord::alive(5).0,
            target: TargetWord::new(9, FileKind::File).0,
            cookie: 3,
            parent: 1,
            generation: 2,
            area: 65,
            ..PathEntryHead::default()
        }
    }

    fn encoded(path: &[u8]) -> ([u8; PATH_ENTRY_MAX_BYTES], usize) {
        let mut buffer = [0xAA; PATH_ENTRY_MAX_BYTES];
        let total = head().encode(path, SEAL, &mut buffer);
        (buffer, total)
    }

    fn paths() -> Vec<Vec<u8>> {
        let name = vec![b'n'; NAME_MAX];
        let deep = [b"d".repeat(DIR_PATH_MAX), b"/".to_vec(), name.clone()].concat();
        let mut all = vec![b"a".to_vec(), b"dir/name".to_vec(), name, deep];
        all.extend([15, 16, 17, 80, 144, 208].map(|len| vec![b'x'; len]));
        all
    }

    #[test]
    fn every_path_seals_and_every_flipped_bit_is_found() {
        for path in paths() {
            let (mut buffer, total) = encoded(&path);
            let used = 48 + path.len();
            assert_eq!(total, used.next_multiple_of(64));
            assert!(PathEntryHead::slots_for(path.len()) <= PATH_ENTRY_MAX_SLOTS);
            let (found, read) = PathEntryHead::decode(&buffer, SEAL).unwrap();
            assert_eq!(read, path);
            assert_eq!(
                found.name(read),
                path.rsplit(|&b| b == b'/').next().unwrap()
            );
            let others = [
                PathSeal { area: 4, ..SEAL },
                PathSeal { slot: 78, ..SEAL },
                PathSeal {
                    directory: 7,
                    ..SEAL
                },
            ];
            for other in others {
                assert!(PathEntryHead::decode(&buffer, other).is_none(), "{other:?}");
            }
            for at in 0..used {
                buffer[at] ^= 4;
                let decoded = PathEntryHead::decode(&buffer, SEAL);
                assert_eq!(decoded.is_some(), at < 8, "byte {at} of {used}");
                buffer[at] ^= 4;
            }
        }
    }

    #[test]
    fn a_path_is_split_before_its_name() {
        let (buffer, _) = encoded(b"some/dir/name");
        let (head, path) = PathEntryHead::decode(&buffer, SEAL).unwrap();
        assert_eq!(head.directory(path), b"some/dir");
        assert_eq!(head.name(path), b"name");
        let (buffer, _) = encoded(b"name");
        let (head, path) = PathEntryHead::decode(&buffer, SEAL).unwrap();
        assert_eq!((head.directory(path), head.name(path)), (&b""[..], path));
    }

    #[test]
    fn entries_that_end_in_no_name_are_refused_whatever_their_checksum() {
        let long = vec![b'n'; NAME_MAX + 1];
        let deep = [b"d".repeat(DIR_PATH_MAX + 1), b"/n".to_vec()].concat();
        for path in [&b""[..], b"/", b"dir/", &long, &deep] {
            let (buffer, _) = encoded(path);
            assert_eq!(PathEntryHead::decode(&buffer, SEAL), None, "{}", path.len());
        }
        // A name offset elsewhere in the path, with a matching seal.
        for name_at in [0, 1, 5, 9] {
            let mut bad = head().sealed(b"dir/name", SEAL);
            bad.name_at = name_at;
            bad.checksum = bad.expected_checksum(b"dir/name", SEAL);
            let bytes = [bad.as_bytes(), b"dir/name"].concat();
            assert_eq!(PathEntryHead::decode(&bytes, SEAL), None, "{name_at}");
        }
        let (buffer, _) = encoded(b"name");
        assert_eq!(
            PathEntryHead::decode(&buffer[..51], SEAL),
            None,
            "cut short"
        );
        assert_eq!(
            PathEntryHead::decode(&buffer[..47], SEAL),
            None,
            "cut short"
        );
    }

    #[test]
    fn paths_are_names_between_single_slashes() {
        for good in paths() {
            assert!(is_path(&good) || good.len() > NAME_MAX, "{good:?}");
        }
        for bad in [
            &b""[..],
            b"/",
            b"/a",
            b"a/",
            b"a//b",
            b".",
            b"a/..",
            b"./a",
            b"a\0",
            &[b'n'; 256],
        ] {
            assert!(!is_path(bad), "{bad:?}");
        }
        let deep = b"d/".repeat(552);
        assert!(is_path(&deep[..1103]) && !is_path(&[&deep[..], b"dd"].concat()));
    }

    #[test]
    fn paths_begin_again_below_a_long_one() {
        let longest = vec![b'd'; DIR_PATH_MAX];
        assert_eq!(path_below(&longest), longest);
        assert_eq!(path_below(&[b'd'; DIR_PATH_MAX + 1]), b"");
    }

    #[test]
    fn hashes_go_on_from_those_of_directories() {
        let of = |path: &[u8]| path_hash(7, path);
        assert_eq!(of(b"a/b"), of(b"a").step(7, b"b"));
        assert_eq!(of(b"a"), PathHash::of_root(7).step(7, b"a"));
        let all = [&b"a"[..], b"b", b"a/b", b"b/a", b"ab", b"a/a", b"a/b/c"].map(of);
        for (i, hash) in all.iter().enumerate() {
            assert!(!all[..i].contains(hash));
        }
        assert_ne!(of(b"a"), path_hash(8, b"a"));
    }
}
