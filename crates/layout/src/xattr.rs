//! Extended attributes: all of an inode's attributes are one string of records, the *set*, in a
//! chain of *pieces*. A set is never changed: a new one is written beside it, and one word of the
//! inode leads to either.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checksum::Summing;
use crate::{
    BLOCK_BYTES, ChunkKind, ENTRY_MAX_SLOTS, IdentityWord, QuotaRecord, SLOT_BYTES, SLOTS_PER_BLOCK,
};

/// Longest name of an attribute with its prefix, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// Longest value, in bytes.
pub const XATTR_VALUE_MAX: usize = 1 << 16;
/// Most bytes of all names of an inode as `listxattr(2)` returns them: with prefixes, and a zero
/// byte behind each.
pub const XATTR_LIST_MAX: usize = 1 << 16;
/// Most bytes of a set.
pub const XATTR_SET_MAX: usize = 1 << 20;

/// Bytes of [`XattrHead`].
const HEAD: usize = size_of::<XattrHead>();
/// Bytes of a record before its name.
const RECORD_HEAD: usize = 4;

/// Whose business an attribute is: the prefix of its name. The numbers are on the media; a set is
/// sorted by them, so what decides about permissions comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum XattrSpace {
    /// The access control list; the whole name.
    Access = 1,
    /// The access control list that new files in a directory get; the whole name.
    Default = 2,
    /// Of security modules.
    Security = 3,
    /// Of privileged programs.
    Trusted = 4,
    /// Of users.
    User = 5,
    /// Records of quotas ([`QuotaRecord`]), which programs do not see.
    Quota = 6,
}

impl XattrSpace {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Access,
        Self::Default,
        Self::Security,
        Self::Trusted,
        Self::User,
        Self::Quota,
    ];

    /// The prefix of names, or the whole name.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Access => "system.posix_acl_access",
            Self::Default => "system.posix_acl_default",
            Self::Security => "security.",
            Self::Trusted => "trusted.",
            Self::User => "user.",
            Self::Quota => "quota.",
        }
    }

    /// Whether the prefix is the whole name.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Access | Self::Default)
    }

    /// Whether programs read and write such attributes by name.
    pub fn is_named(self) -> bool {
        self != Self::Quota
    }

    /// The space with this number.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// An attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// The prefix of its name.
    pub space: XattrSpace,
    /// The name behind the prefix.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl Xattr<'_> {
    /// By what a set is sorted.
    pub fn key(&self) -> (XattrSpace, &[u8]) {
        (self.space, self.name)
    }

    /// Bytes that the name takes in a list, with prefix and final zero.
    pub fn list_bytes(&self) -> usize {
        match self.space.is_named() {
            true => self.space.prefix().len() + self.name.len() + 1,
            false => 0,
        }
    }

    /// Appends the record to a set.
    pub fn push_to(&self, set: &mut Vec<u8>) {
        let word = XattrRecord::new(self.space, self.name.len(), self.value.len());
        set.extend_from_slice(&word.0.to_le_bytes());
        set.extend_from_slice(self.name);
        set.extend_from_slice(self.value);
    }

    /// Whether it is a record of a quota.
    fn is_quota(&self) -> bool {
        QuotaRecord::parse_name(self.name).is_some() && QuotaRecord::parse(self.value).is_some()
    }

    fn is_sound(&self) -> bool {
        let most = XATTR_NAME_MAX - self.space.prefix().len();
        let names = if self.space.is_whole() {
            0..=0
        } else {
            1..=most
        };
        names.contains(&self.name.len())
            && self.value.len() <= XATTR_VALUE_MAX
            && !self.name.contains(&0)
            && (!self.space.is_whole() || is_list(self.value))
            && (self.space.is_named() || self.is_quota())
    }
}

/// Version of access control lists.
const LIST_VERSION: u32 = 2;
/// Whom an entry of a list is about, in the order of entries: owner, a user, the owning group, a
/// group, the mask, others.
const LIST_TAGS: [u16; 6] = [1, 2, 4, 8, 16, 32];
/// The id of entries that name no user and no group.
const LIST_NO_ID: u32 = u32::MAX;

/// Whether a value is an access control list, as sets have it.
pub fn is_list(value: &[u8]) -> bool {
    let Some((version, rest)) = value.split_first_chunk() else {
        return false;
    };
    let (entries, rest) = rest.as_chunks::<8>();
    let mut counts = [0; LIST_TAGS.len()];
    let mut last = 0;
    for &[a, b, permissions, zero, id @ ..] in entries {
        let tag = u16::from_le_bytes([a, b]);
        let Some(place) = LIST_TAGS.iter().position(|&known| known == tag) else {
            return false;
        };
        let has_id = u32::from_le_bytes(id) != LIST_NO_ID;
        let names_one = matches!(place, 1 | 3);
        if place < last || has_id != names_one || permissions > 7 || zero != 0 {
            return false;
        }
        counts[place] += 1;
        last = place;
    }
    let [owner, users, group, groups, masks, others] = counts;
    u32::from_le_bytes(*version) == LIST_VERSION
        && rest.is_empty()
        && [owner, group, others] == [1; 3]
        && (masks == 1 || masks == 0 && users + groups == 0)
}

/// Space (bits 0..4), bytes of the name behind the prefix (4..12), bytes of the value (12..32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrRecord(pub u32);

impl XattrRecord {
    /// Packs the word.
    pub fn new(space: XattrSpace, name_len: usize, value_len: usize) -> Self {
        Self(space as u32 | (name_len as u32 & 0xFF) << 4 | (value_len as u32) << 12)
    }

    /// The space, if the number is known.
    pub fn space(self) -> Option<XattrSpace> {
        XattrSpace::from_u8(self.0 as u8 & 0xF)
    }

    /// Bytes of the name.
    pub fn name_len(self) -> usize {
        (self.0 >> 4 & 0xFF) as usize
    }

    /// Bytes of the value.
    pub fn value_len(self) -> usize {
        (self.0 >> 12) as usize
    }
}

/// The attributes of a set, in its order. `None` if the set is unsound: a record is cut off, has an
/// unknown space or an impossible length, is no access control list though its name says so, or
/// does not follow the one before it; or the set is empty or too long.
pub fn read_xattrs(set: &[u8]) -> Option<Vec<Xattr<'_>>> {
    let mut found: Vec<Xattr<'_>> = Vec::new();
    let (mut rest, mut list) = (set, 0);
    while !rest.is_empty() {
        let (head, behind) = rest.split_first_chunk::<RECORD_HEAD>()?;
        let word = XattrRecord(u32::from_le_bytes(*head));
        let (name, behind) = behind.split_at_checked(word.name_len())?;
        let (value, behind) = behind.split_at_checked(word.value_len())?;
        let space = word.space()?;
        let xattr = Xattr { space, name, value };
        let ascends = found.last().is_none_or(|last| last.key() < xattr.key());
        if !(xattr.is_sound() && ascends) {
            return None;
        }
        list += xattr.list_bytes();
        found.push(xattr);
        rest = behind;
    }
    let fits = set.len() <= XATTR_SET_MAX && list <= XATTR_LIST_MAX;
    (fits && !found.is_empty()).then_some(found)
}

/// The flags of [`IdentityWord`] that the inode with these attributes has.
pub fn xattr_flags(xattrs: &[Xattr<'_>]) -> u64 {
    let flag = |xattr: &Xattr<'_>| match (xattr.space, xattr.name) {
        (XattrSpace::Access, _) => IdentityWord::ACCESS_LIST,
        (XattrSpace::Default, _) => IdentityWord::DEFAULT_LIST,
        (XattrSpace::Security, b"capability") => IdentityWord::CAPABILITY,
        _ => 0,
    };
    xattrs.iter().fold(0, |flags, xattr| flags | flag(xattr))
}

/// The first bytes of a piece. The records follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct XattrHead {
    /// Slot of the next piece, or 0.
    pub next: u64,
    /// [`Self::expected_checksum`].
    pub checksum: u32,
    /// Bytes of records in the piece.
    pub len: u16,
    /// 0.
    pub reserved: u16,
}

const _: () = assert!(HEAD == 16);

impl XattrHead {
    /// Most bytes of records in a piece that is a block.
    pub const BLOCK_MAX: usize = BLOCK_BYTES as usize - HEAD;
    /// Most bytes of a set that lies in slots.
    pub const SLOTS_MAX: usize = (ENTRY_MAX_SLOTS * SLOT_BYTES) as usize - HEAD;

    /// The checksum of a piece with this head and these records that belongs to the inode in slot
    /// `owner` with `generation`.
    pub fn expected_checksum(&self, owner: u64, generation: u32, records: &[u8]) -> u32 {
        let mut sum = Summing::default();
        let len = u64::from(self.len) | u64::from(self.reserved) << 16;
        sum.add_words(&[owner, u64::from(generation), self.next, len]);
        sum.add(records);
        sum.finish()
    }

    /// A whole piece, padded to lines of 64 bytes with zeros. `records` are at most
    /// [`Self::BLOCK_MAX`] bytes.
    pub fn piece(owner: u64, generation: u32, next: u64, records: &[u8]) -> Vec<u8> {
        let mut head = Self {
            next,
            len: records.len() as u16,
            ..Self::default()
        };
        head.checksum = head.expected_checksum(owner, generation, records);
        let mut piece = head.as_bytes().to_vec();
        piece.extend_from_slice(records);
        piece.resize(piece.len().next_multiple_of(64), 0);
        piece
    }

    /// Whether a piece with this head may lie in `kind`: without a successor in slots, and full
    /// with a successor.
    pub fn fits(&self, kind: ChunkKind) -> bool {
        let len = usize::from(self.len);
        self.reserved == 0
            && match kind {
                ChunkKind::Entries => self.next == 0 && (1..=Self::SLOTS_MAX).contains(&len),
                ChunkKind::Blocks if self.next != 0 => len == Self::BLOCK_MAX,
                ChunkKind::Blocks => (1..=Self::BLOCK_MAX).contains(&len),
                _ => false,
            }
    }
}

/// The kind of chunk that a set of `len` bytes lies in, and the number of metadata slots of each of
/// its pieces. In slots a set is one piece.
pub fn xattr_home(len: usize) -> (ChunkKind, u64) {
    if len <= XattrHead::SLOTS_MAX {
        (
            ChunkKind::Entries,
            ((HEAD + len) as u64).div_ceil(SLOT_BYTES),
        )
    } else {
        (ChunkKind::Blocks, SLOTS_PER_BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_of(xattrs: &[Xattr<'_>]) -> Vec<u8> {
        let mut set = Vec::new();
        xattrs.iter().for_each(|xattr| xattr.push_to(&mut set));
        set
    }

    const LABEL: Xattr<'_> = Xattr {
        space: XattrSpace::Security,
        name: b"label",
        value: b"secret",
    };
    const NOTE: Xattr<'_> = Xattr {
        space: XattrSpace::User,
        name: b"note",
        value: b"",
    };

    #[test]
    fn a_set_gives_back_what_was_put_in() {
        let largest = vec![7; XATTR_VALUE_MAX];
        let large = Xattr {
            value: &largest,
            ..NOTE
        };
        for xattrs in [&[LABEL][..], &[LABEL, NOTE], &[LABEL, large]] {
            assert_eq!(read_xattrs(&set_of(xattrs)).unwrap(), xattrs);
        }
    }

    #[test]
    fn unsound_sets_are_refused() {
        let whole = set_of(&[LABEL, NOTE]);
        assert!(read_xattrs(b"").is_none(), "an empty set");
        assert!(read_xattrs(&whole[..whole.len() - 1]).is_none(), "cut off");
        assert!(read_xattrs(&set_of(&[NOTE, LABEL])).is_none(), "not sorted");
        assert!(read_xattrs(&set_of(&[NOTE, NOTE])).is_none(), "twice");
        let name = [b'n'; XATTR_NAME_MAX];
        let unsound = [
            Xattr { name: b"", ..NOTE },
            Xattr {
                name: b"a\0",
                ..NOTE
            },
            Xattr {
                name: &name,
                ..NOTE
            },
            Xattr {
                space: XattrSpace::Access,
                ..NOTE
            },
        ];
        for xattr in unsound {
            assert!(read_xattrs(&set_of(&[xattr])).is_none(), "{xattr:?}");
        }
        let mut unknown = set_of(&[NOTE]);
        unknown[0] |= 0xF;
        assert!(read_xattrs(&unknown).is_none(), "unknown space");
    }

    #[test]
    fn no_set_exceeds_what_can_be_listed_or_written() {
        let names: Vec<_> = (0..9000).map(|i| format!("{i:04}")).collect();
        let named = |name| Xattr { name, ..NOTE };
        let all: Vec<_> = names.iter().map(|name| named(name.as_bytes())).collect();
        let fitting = XATTR_LIST_MAX / all[0].list_bytes();
        assert!(read_xattrs(&set_of(&all[..fitting])).is_some());
        assert!(read_xattrs(&set_of(&all[..=fitting])).is_none());
        let value = vec![1; XATTR_VALUE_MAX];
        let large: Vec<_> = all[..16]
            .iter()
            .map(|xattr| Xattr {
                value: &value,
                ..*xattr
            })
            .collect();
        assert!(read_xattrs(&set_of(&large[..15])).is_some());
        assert!(read_xattrs(&set_of(&large)).is_none());
    }

    #[test]
    fn lists_have_one_form() {
        let list = |version: u32, entries: &[(u16, u16, u32)]| {
            let mut value = version.to_le_bytes().to_vec();
            for (tag, permissions, id) in entries {
                value.extend_from_slice(&tag.to_le_bytes());
                value.extend_from_slice(&permissions.to_le_bytes());
                value.extend_from_slice(&id.to_le_bytes());
            }
            value
        };
        const NO_ID: u32 = LIST_NO_ID;
        let plain = [(1, 6, NO_ID), (4, 4, NO_ID), (32, 0, NO_ID)];
        let mut named = plain.to_vec();
        named.splice(2..2, [(8, 7, 50), (8, 7, 51), (16, 5, NO_ID)]);
        named.insert(1, (2, 7, 1000));
        for entries in [&plain[..], &named] {
            let value = list(2, entries);
            let xattr = |space| Xattr {
                space,
                name: b"",
                value: &value,
            };
            let both = [XattrSpace::Access, XattrSpace::Default].map(xattr);
            assert!(read_xattrs(&set_of(&both)).is_some());
            assert!(!is_list(&list(1, entries)));
            assert!(!is_list(&value[..value.len() - 1]));
            // Without one of the entries that have to be there, in another order, and twice.
            for place in [0, entries.len() - 1] {
                let mut fewer = entries.to_vec();
                let entry = fewer.remove(place);
                assert!(!is_list(&list(2, &fewer)));
                fewer.insert(1, entry);
                assert!(!is_list(&list(2, &fewer)));
                fewer.insert(0, entries[0]);
                assert!(!is_list(&list(2, &fewer)));
            }
        }
        let unsound = [
            (1, 8, NO_ID),
            (1, 256, NO_ID),
            (1, 6, 0),
            (0, 6, NO_ID),
            (3, 6, NO_ID),
        ];
        for entry in unsound {
            let mut entries = plain;
            entries[0] = entry;
            assert!(!is_list(&list(2, &entries)), "{entry:?}");
        }
        named.retain(|&(tag, ..)| tag != 16);
        assert!(!is_list(&list(2, &named)), "names, but no mask");
        for value in [&b""[..], &[2, 0, 0, 0]] {
            assert!(!is_list(value));
        }
    }

    /// A list that lets one more user and one more group in, or a label, takes one line.
    #[test]
    fn a_short_attribute_takes_one_line() {
        let list = Xattr {
            space: XattrSpace::Access,
            name: b"",
            value: &[1; 44],
        };
        assert_eq!(XattrHead::piece(5, 7, 0, &set_of(&[list])).len(), 64);
        assert_eq!(XattrHead::piece(5, 7, 0, &set_of(&[LABEL])).len(), 64);
    }

    #[test]
    fn a_piece_belongs_to_one_inode_and_place() {
        let records = set_of(&[LABEL]);
        let piece = XattrHead::piece(5, 7, 0, &records);
        let (head, _) = XattrHead::read_from_prefix(&piece).unwrap();
        assert!(head.fits(ChunkKind::Entries) && head.fits(ChunkKind::Blocks));
        assert_eq!(head.checksum, head.expected_checksum(5, 7, &records));
        assert_ne!(head.checksum, head.expected_checksum(6, 7, &records));
        assert_ne!(head.checksum, head.expected_checksum(5, 8, &records));
        let followed = XattrHead { next: 9, ..head };
        assert!(!followed.fits(ChunkKind::Blocks) && !followed.fits(ChunkKind::Entries));
        assert_ne!(head.checksum, followed.expected_checksum(5, 7, &records));
    }

    #[test]
    fn homes_grow_with_the_set() {
        assert_eq!(xattr_home(1), (ChunkKind::Entries, 1));
        assert_eq!(xattr_home(112), (ChunkKind::Entries, 1));
        assert_eq!(xattr_home(113), (ChunkKind::Entries, 2));
        assert_eq!(xattr_home(368), (ChunkKind::Entries, 3));
        assert_eq!(xattr_home(369), (ChunkKind::Blocks, SLOTS_PER_BLOCK));
    }
}
