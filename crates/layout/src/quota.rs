//! Quotas: what an id may use. Each id with limits of its own has a record, and so has each kind of
//! ids. Records are values of the root directory's extended attributes in the space
//! [`XattrSpace::Quota`](crate::XattrSpace::Quota).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Whose files a quota counts. The first letter of a record's name is on the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum QuotaKind {
    /// Those of a user.
    User = 0,
    /// Those of a group.
    Group = 1,
    /// Those with a project id.
    Project = 2,
}

impl QuotaKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// The first letter of names of records.
    pub fn letter(self) -> char {
        match self {
            Self::User => 'u',
            Self::Group => 'g',
            Self::Project => 'p',
        }
    }
}

/// The limits of an id, or those of all ids of a kind that have none of their own. Zero means no
/// limit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct QuotaRecord {
    /// [`Self::OWN`] or 0.
    pub flags: u64,
    /// Bytes of data blocks and directories that are never exceeded.
    pub hard_bytes: u64,
    /// Bytes that may be exceeded for a while.
    pub soft_bytes: u64,
    /// Inodes that are never exceeded.
    pub hard_inodes: u64,
    /// Inodes that may be exceeded for a while.
    pub soft_inodes: u64,
    /// Of an id: when exceeding `soft_bytes` ends, in nanoseconds since 1970; 0 if it is not
    /// exceeded. Of a kind: how long it may be exceeded, in nanoseconds.
    pub bytes_until: i64,
    /// The same for `soft_inodes`.
    pub inodes_until: i64,
}

const _: () = assert!(size_of::<QuotaRecord>() == 56);

impl QuotaRecord {
    /// Flag. Of an id: the limits are its own; without it those of its kind hold. Of a kind: quotas
    /// are on.
    pub const OWN: u64 = 1;

    /// The name of the record of an id, or of all ids of a kind.
    pub fn name(kind: QuotaKind, id: Option<u32>) -> String {
        let letter = kind.letter();
        id.map_or(String::from(letter), |id| format!("{letter}{id}"))
    }

    /// Whose record has this name: of an id, or of all ids of a kind.
    pub fn parse_name(name: &[u8]) -> Option<(QuotaKind, Option<u32>)> {
        let (letter, digits) = name.split_first()?;
        let mut kinds = QuotaKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.letter() == char::from(*letter))?;
        let id = match digits {
            [] => None,
            _ => Some(std::str::from_utf8(digits).ok()?.parse().ok()?),
        };
        // One name for each id: no sign, no zeros in front.
        (Self::name(kind, id).as_bytes() == name).then_some((kind, id))
    }

    /// The record with these bytes, if it is sound.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let record = Self::read_from_bytes(value).ok()?;
        let is_sound =
            record.flags & !Self::OWN == 0 && record.bytes_until >= 0 && record.inodes_until >= 0;
        is_sound.then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_one_name() {
        for kind in QuotaKind::ALL {
            for id in [None, Some(0), Some(7), Some(u32::MAX)] {
                let name = QuotaRecord::name(kind, id);
                assert_eq!(QuotaRecord::parse_name(name.as_bytes()), Some((kind, id)));
            }
        }
        for name in ["", "x", "u07", "u+7", "u-1", "u4294967296", "u7 ", "uu7"] {
            assert_eq!(QuotaRecord::parse_name(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn records_give_back_what_was_put_in() {
        let record = QuotaRecord {
            flags: QuotaRecord::OWN,
            hard_bytes: 1,
            soft_bytes: 2,
            hard_inodes: 3,
            soft_inodes: 4,
            bytes_until: 5,
            inodes_until: i64::MAX,
        };
        assert_eq!(QuotaRecord::parse(record.as_bytes()), Some(record));
        assert_eq!(QuotaRecord::parse(&record.as_bytes()[1..]), None);
        for unsound in [
            QuotaRecord { flags: 2, ..record },
            QuotaRecord {
                bytes_until: -1,
                ..record
            },
            QuotaRecord {
                inodes_until: -1,
                ..record
            },
        ] {
            assert_eq!(QuotaRecord::parse(unsound.as_bytes()), None);
        }
    }
}
