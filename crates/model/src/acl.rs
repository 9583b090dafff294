//! POSIX access control lists, in the form in which `system.posix_acl_access` and
//! `system.posix_acl_default` carry them.

use crate::{Cred, Errno, Result};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// The version at the head of a list's bytes.
const VERSION: u32 = 2;
/// The id of an entry that names nobody.
const NOBODY: u32 = u32::MAX;
/// Entries of a list that says no more than a mode.
const MINIMAL: usize = 3;

/// What an entry of a list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclTag {
    /// The owner.
    Owner,
    /// The user with this id.
    User(u32),
    /// The owning group.
    Group,
    /// The group with this id.
    NamedGroup(u32),
    /// The most that named users and all groups get.
    Mask,
    /// Everybody else.
    Other,
}

impl AclTag {
    /// The number in a list's bytes, and the id.
    fn words(self) -> (u16, u32) {
        match self {
            AclTag::Owner => (0x01, NOBODY),
            AclTag::User(id) => (0x02, id),
            AclTag::Group => (0x04, NOBODY),
            AclTag::NamedGroup(id) => (0x08, id),
            AclTag::Mask => (0x10, NOBODY),
            AclTag::Other => (0x20, NOBODY),
        }
    }

    fn from_words(tag: u16, id: u32) -> Option<AclTag> {
        match (tag, id) {
            (0x01, _) => Some(AclTag::Owner),
            (0x02 | 0x08, NOBODY) => None,
            (0x02, id) => Some(AclTag::User(id)),
            (0x04, _) => Some(AclTag::Group),
            (0x08, id) => Some(AclTag::NamedGroup(id)),
            (0x10, _) => Some(AclTag::Mask),
            (0x20, _) => Some(AclTag::Other),
            _ => None,
        }
    }

    /// Where it stands in a valid list.
    fn rank(self) -> u16 {
        self.words().0
    }
}

/// An entry of a list: who has which of the permissions read (4), write (2), execute (1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// Who.
    pub tag: AclTag,
    /// Which permissions. Other bits are invalid.
    pub permissions: u16,
}

/// A list, with its entries in the order in which they were given.
///
/// `Display` and `FromStr` use `u::6,u:7:4,g::4,m::4,o::0`: the letter of the tag, an id if it is
/// about one, and the permissions as a number in octal.
///
/// ```
/// let text = "u::6,u:7:4,g::4,m::4,o::0";
/// let list: vellum_model::Acl = text.parse().unwrap();
/// assert_eq!(list.to_string(), text);
/// assert_eq!(list.to_bytes().len(), 4 + 5 * 8);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acl(pub Vec<AclEntry>);

impl Acl {
    /// The list in an attribute's value. `None` if it has no entries, which stands for no list.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for another version, `EINVAL` for a length or a tag that does not exist, and
    /// for a named entry without an id. Whether the entries fit together is checked later
    /// ([`Acl::check`]).
    pub fn from_bytes(bytes: &[u8]) -> Result<Option<Acl>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (version, entries) = bytes.split_first_chunk().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(Errno::EINVAL);
        }
        let entry = |&[t0, t1, p0, p1, i0, i1, i2, i3]: &[u8; 8]| {
            let id = u32::from_le_bytes([i0, i1, i2, i3]);
            let tag = AclTag::from_words(u16::from_le_bytes([t0, t1]), id).ok_or(Errno::EINVAL)?;
            let permissions = u16::from_le_bytes([p0, p1]);
            Ok(AclEntry { tag, permissions })
        };
        let entries = entries.iter().map(entry).collect::<Result<Vec<_>>>()?;
        Ok((!entries.is_empty()).then_some(Acl(entries)))
    }

    /// The bytes of an attribute's value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, id) = entry.tag.words();
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Checks that the entries make a list: one for the owner, the owning group and others, a mask
    /// if anybody is named, all in the order of the tags. Ids need no order and may repeat.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn check(&self) -> Result<()> {
        let count = |rank: u16| self.0.iter().filter(|e| e.tag.rank() == rank).count();
        let has_each = [AclTag::Owner, AclTag::Group, AclTag::Other]
            .iter()
            .all(|tag| count(tag.rank()) == 1);
        let names = |e: &AclEntry| matches!(e.tag, AclTag::User(_) | AclTag::NamedGroup(_));
        let masks = usize::from(self.0.iter().any(names))..=1;
        let is_sorted = self.0.is_sorted_by_key(|e| e.tag.rank());
        let is_known = self.0.iter().all(|e| e.permissions <= 7);
        if has_each && masks.contains(&count(AclTag::Mask.rank())) && is_sorted && is_known {
            Ok(())
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// Whether a mode cannot say the same.
    pub(crate) fn is_extended(&self) -> bool {
        self.0.len() > MINIMAL
    }

    fn find(&mut self, tag: AclTag) -> Option<&mut u16> {
        let found = self.0.iter_mut().find(|e| e.tag == tag);
        found.map(|e| &mut e.permissions)
    }

    fn get(&self, tag: AclTag) -> Option<u32> {
        let found = self.0.iter().find(|e| e.tag == tag);
        found.map(|e| u32::from(e.permissions))
    }

    /// The mask, or the owning group's permissions if there is none: what a mode has for the group.
    fn group_class(&self) -> AclTag {
        self.get(AclTag::Mask)
            .map_or(AclTag::Group, |_| AclTag::Mask)
    }

    /// The nine permission bits of the mode that goes with the list.
    pub(crate) fn permission_bits(&self) -> u32 {
        let bits = |tag| self.get(tag).unwrap_or(0);
        bits(AclTag::Owner) << 6 | bits(self.group_class()) << 3 | bits(AclTag::Other)
    }

    /// Takes over the permission bits of a new mode.
    pub(crate) fn set_permission_bits(&mut self, mode: u32) {
        let class = self.group_class();
        for (tag, shift) in [(AclTag::Owner, 6), (class, 3), (AclTag::Other, 0)] {
            if let Some(permissions) = self.find(tag) {
                *permissions = (mode >> shift & 7) as u16;
            }
        }
    }

    /// The list of a file that is created with this mode where `self` is the default list; its
    /// [`Acl::permission_bits`] are those of the file.
    pub(crate) fn inherited(&self, mode: u32) -> Acl {
        let mut list = self.clone();
        list.set_permission_bits(self.permission_bits() & mode);
        list
    }

    /// Whether it grants all of `wanted` to somebody who is not the owner; `gid` is the owning
    /// group.
    pub(crate) fn grants(&self, wanted: u32, cred: &Cred, gid: u32) -> bool {
        let most = self.get(AclTag::Mask).unwrap_or(7);
        let suffices = |permissions: u32| wanted & !permissions == 0;
        if let Some(permissions) = self.get(AclTag::User(cred.uid)) {
            return suffices(permissions & most);
        }
        let is_member = |e: &&AclEntry| match e.tag {
            AclTag::Group => cred.in_group(gid),
            AclTag::NamedGroup(id) => cred.in_group(id),
            _ => false,
        };
        let mut groups = self.0.iter().filter(is_member).peekable();
        match groups.peek() {
            Some(_) => groups.any(|e| suffices(u32::from(e.permissions) & most)),
            None => suffices(self.get(AclTag::Other).unwrap_or(0)),
        }
    }
}

impl Display for Acl {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, entry) in self.0.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "," })?;
            match entry.tag {
                AclTag::Owner => f.write_str("u:")?,
                AclTag::User(id) => write!(f, "u:{id}")?,
                AclTag::Group => f.write_str("g:")?,
                AclTag::NamedGroup(id) => write!(f, "g:{id}")?,
                AclTag::Mask => f.write_str("m:")?,
                AclTag::Other => f.write_str("o:")?,
            }
            write!(f, ":{:o}", entry.permissions)?;
        }
        Ok(())
    }
}

/// The error is the entry that cannot be read.
impl FromStr for Acl {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Acl, String> {
        let entry = |text: &str| {
            let mut fields = text.split(':');
            let tag = match (fields.next()?, fields.next()?) {
                ("u", "") => AclTag::Owner,
                ("u", id) => AclTag::User(id.parse().ok()?),
                ("g", "") => AclTag::Group,
                ("g", id) => AclTag::NamedGroup(id.parse().ok()?),
                ("m", "") => AclTag::Mask,
                ("o", "") => AclTag::Other,
                _ => return None,
            };
            let permissions = u16::from_str_radix(fields.next()?, 8).ok()?;
            fields
                .next()
                .is_none()
                .then_some(AclEntry { tag, permissions })
        };
        let entries = text.split(',').filter(|text| !text.is_empty());
        let entries = entries.map(|text| entry(text).ok_or_else(|| text.to_owned()));
        entries.collect::<std::result::Result<_, _>>().map(Acl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(text: &str) -> Acl {
        text.parse().unwrap()
    }

    #[test]
    fn bytes_are_read_back_and_wrong_ones_are_refused() {
        let list = acl("u::6,u:7:4,g::4,g:8:1,m::4,o::0");
        let bytes = list.to_bytes();
        assert_eq!(Acl::from_bytes(&bytes), Ok(Some(list)));
        assert_eq!(Acl::from_bytes(b""), Ok(None));
        assert_eq!(Acl::from_bytes(&bytes[..4]), Ok(None));
        assert_eq!(Acl::from_bytes(&bytes[..3]), Err(Errno::EINVAL));
        assert_eq!(Acl::from_bytes(&bytes[..13]), Err(Errno::EINVAL));
        assert_eq!(Acl::from_bytes(&[1, 0, 0, 0, 9]), Err(Errno::EOPNOTSUPP));
        let of_nobody = [&bytes[..4], &[2, 0, 4, 0, 255, 255, 255, 255]].concat();
        assert_eq!(Acl::from_bytes(&of_nobody), Err(Errno::EINVAL));
        assert!("u::6,x::1".parse::<Acl>().is_err());
    }

    #[test]
    fn valid_lists_are_sorted_and_whole() {
        for text in [
            "u::6,g::4,o::0",
            "u::6,g::4,m::0,o::0",
            "u::6,u:9:1,u:7:1,u:7:2,g::4,g:1:1,m::7,o::0",
        ] {
            assert_eq!(acl(text).check(), Ok(()), "{text}");
        }
        for text in [
            "",
            "u::6,g::4",
            "u::6,u::6,g::4,o::0",
            "u::6,u:7:4,g::4,o::0",
            "u::6,g::4,u:7:4,m::7,o::0",
            "u::6,g::4,m::7,m::7,o::0",
            "u::6,g::4,o::10",
            "g::4,u::6,o::0",
        ] {
            assert_eq!(acl(text).check(), Err(Errno::EINVAL), "{text}");
        }
    }

    #[test]
    fn the_mask_limits_everybody_but_owner_and_others() {
        let list = acl("u::7,u:5:7,g::4,g:30:6,m::5,o::1");
        let may = |uid, gid, groups: &[u32], wanted| {
            list.grants(wanted, &Cred::user(uid, gid, groups), 10)
        };
        assert!(may(5, 1, &[], 5) && !may(5, 1, &[], 2));
        assert!(may(6, 10, &[], 4) && !may(6, 10, &[], 1));
        assert!(may(6, 1, &[30], 4) && !may(6, 1, &[30], 6));
        assert!(may(6, 1, &[], 1) && !may(6, 1, &[], 4));
        assert_eq!(list.permission_bits(), 0o751);
    }

    #[test]
    fn a_new_file_has_what_both_list_and_mode_allow() {
        let list = acl("u::7,u:5:7,g::4,m::5,o::3");
        let of_file = list.inherited(0o666);
        assert_eq!(of_file, acl("u::6,u:5:7,g::4,m::4,o::2"));
        assert_eq!(of_file.permission_bits(), 0o642);
        assert_eq!(
            acl("u::7,g::5,o::1").inherited(0o640),
            acl("u::6,g::4,o::0")
        );
    }
}
