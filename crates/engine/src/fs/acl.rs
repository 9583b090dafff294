//! Access control lists: the value of `system.posix_acl_access`, which decides with the permission
//! bits, and of `system.posix_acl_default`, which new files in a directory get (POSIX.1e, draft 17,
//! section 23, as in Linux).

use vellum_layout::{FileKind, IdentityWord, XattrHead, XattrSpace, is_list, read_xattrs};
use vellum_media::Memories;

use crate::core::cachelet::Cachelet;
use crate::core::slots::Op;
use crate::core::xattrs::XattrSet;
use crate::error::{Error, Location, Result};
use crate::fs::change::SET_GID;
use crate::fs::{Access, Cred};

const MALFORMED: Error = Error::Invalid("an access control list");
const VERSION: u32 = 2;
/// The user or group of entries that name none.
const NO_ID: u32 = u32::MAX;
/// Longest value of a list that decides, in bytes: with its record it fits the first piece of a
/// set.
const ACCESS_MAX: usize = XattrHead::BLOCK_MAX - 4;

/// Whom an entry is about. The numbers are those of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Tag {
    Owner = 1,
    User = 2,
    OwningGroup = 4,
    Group = 8,
    Mask = 16,
    Others = 32,
}

impl Tag {
    fn from_u16(number: u16) -> Option<Self> {
        use Tag::{Group, Mask, Others, Owner, OwningGroup, User};
        let all = [Owner, User, OwningGroup, Group, Mask, Others];
        all.into_iter().find(|&tag| tag as u16 == number)
    }

    fn names_one(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    /// As three bits of a mode.
    permissions: u16,
    /// The user or group.
    id: u32,
}

/// A list. A valid one has owner, users, owning group, groups, the mask if users or groups are
/// named, others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// The list with this value, which [`Self::check`] has not seen; `None`: it has no entries,
    /// which removes a list.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    pub(crate) fn parse(value: &[u8]) -> Result<Option<Self>> {
        if value.is_empty() {
            return Ok(None);
        }
        let (version, rest) = value.split_first_chunk().ok_or(MALFORMED)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::Unsupported("this version of access control lists"));
        }
        let (entries, rest) = rest.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(MALFORMED);
        }
        let entry = |&[tag, tag_high, permissions, high, a, b, c, d]: &[u8; 8]| {
            let tag = Tag::from_u16(u16::from_le_bytes([tag, tag_high])).ok_or(MALFORMED)?;
            let id = u32::from_le_bytes([a, b, c, d]);
            let has_id = !tag.names_one() || id != NO_ID;
            has_id.then_some(()).ok_or(MALFORMED)?;
            Ok(Entry {
                tag,
                permissions: u16::from_le_bytes([permissions, high]),
                id: if tag.names_one() { id } else { NO_ID },
            })
        };
        let entries: Vec<_> = entries.iter().map(entry).collect::<Result<_>>()?;
        Ok((!entries.is_empty()).then_some(Self(entries)))
    }

    /// Checks that the list is valid. Linux does so after it has checked the caller's permissions.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    pub(crate) fn check(&self) -> Result<()> {
        is_list(&self.value()).then_some(()).ok_or(MALFORMED)
    }

    pub(crate) fn value(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            value.extend_from_slice(&entry.permissions.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    /// Whether permission bits say the same.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    fn of(&self, tag: Tag) -> Option<u16> {
        let entry = self.0.iter().find(|entry| entry.tag == tag)?;
        Some(entry.permissions)
    }

    fn set(&mut self, tag: Tag, permissions: u16) {
        for entry in self.0.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = permissions;
        }
    }

    /// The entry that the group bits of a mode are.
    fn group_tag(&self) -> Tag {
        match self.of(Tag::Mask) {
            Some(_) => Tag::Mask,
            None => Tag::OwningGroup,
        }
    }

    /// The permission bits.
    pub(crate) fn mode(&self) -> u16 {
        let tags = [Tag::Owner, self.group_tag(), Tag::Others];
        let bits = tags.map(|tag| self.of(tag).unwrap_or(0));
        bits[0] << 6 | bits[1] << 3 | bits[2]
    }

    /// The list after `chmod`.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        self.set(Tag::Owner, mode >> 6 & 7);
        self.set(self.group_tag(), mode >> 3 & 7);
        self.set(Tag::Others, mode & 7);
    }

    /// Whether `cred`, who does not own the file, may do what it wants with a file of `group`.
    fn permits(&self, cred: &Cred, group: u32, want: u16) -> bool {
        let mask = self.of(Tag::Mask).unwrap_or(7);
        let grants = |entry: &Entry| entry.permissions & want == want;
        let user = |entry: &&Entry| entry.tag == Tag::User && entry.id == cred.uid;
        if let Some(user) = self.0.iter().find(user) {
            return user.permissions & mask & want == want;
        }
        let is_in = |entry: &&Entry| match entry.tag {
            Tag::OwningGroup => cred.in_group(group),
            Tag::Group => cred.in_group(entry.id),
            _ => false,
        };
        let mut groups = self.0.iter().filter(is_in).peekable();
        match groups.peek() {
            Some(_) => groups.any(grants) && mask & want == want,
            None => self.of(Tag::Others).unwrap_or(0) & want == want,
        }
    }
}

/// Whether a list decides about a file with this identity, for others than its owner. As in Linux,
/// it does not where the permission bits give the group nothing.
pub(super) fn lists_decide(identity: IdentityWord) -> bool {
    identity.has(IdentityWord::ACCESS_LIST) && identity.mode() & 0o070 != 0
}

impl<M: Memories> Op<'_, M> {
    /// Whether the list of a file, which `cred` does not own, permits what it wants; `None` if no
    /// list decides.
    pub(crate) fn list_permits(
        &self,
        cred: &Cred,
        file: Cachelet,
        want: Access,
    ) -> Result<Option<bool>> {
        loop {
            let identity = self.core.identity(file);
            if !lists_decide(identity) {
                return Ok(None);
            }
            let group = self.core.owner(file).gid();
            let list = list_in(&self.core.xattrs(self, file)?, XattrSpace::Access);
            // Both are of one instant: what the bits mean depends on the list.
            if self.core.identity(file) == identity {
                let place = Location::Inode(self.core.ino(file));
                let missing = || Error::damaged("a missing access control list", place);
                let mut list = list.ok_or_else(missing)?;
                list.set_mode(identity.mode());
                return Ok(Some(list.permits(cred, group, want.bits().into())));
            }
        }
    }

    /// Mode and extended attributes of a file of `kind` that is made in `dir` with this mode, where
    /// the directory has a list for new files.
    pub(super) fn inherited_list(
        &self,
        dir: Cachelet,
        kind: FileKind,
        mode: u16,
    ) -> Result<Option<(u16, Vec<u8>)>> {
        let listed = list_in(&self.core.xattrs(self, dir)?, XattrSpace::Default);
        let Some(default) = listed else {
            // It has gone meanwhile.
            return Ok(None);
        };
        let mut list = default.clone();
        list.set_mode(default.mode() & mode);
        let mut set = XattrSet::default();
        if !list.is_minimal() {
            set.bytes = set.with((XattrSpace::Access, b""), Some(&list.value()))?;
        }
        if kind == FileKind::Directory {
            set.bytes = set.with((XattrSpace::Default, b""), Some(&default.value()))?;
        }
        Ok(Some((mode & !0o777 | list.mode(), set.bytes)))
    }

    /// The mode, and the value to store, of a file that gets this list.
    pub(crate) fn with_list(
        &self,
        cred: &Cred,
        file: Cachelet,
        list: &Acl,
    ) -> Result<(u16, Option<Vec<u8>>)> {
        let core = self.core;
        let outside = !cred.privileged && !cred.in_group(core.owner(file).gid());
        let kept = core.identity(file).mode() & !0o777;
        let kept = if outside { kept & !SET_GID } else { kept };
        let value = (!list.is_minimal()).then(|| list.value());
        if value.as_ref().is_some_and(|value| value.len() > ACCESS_MAX) {
            return Err(Error::AttributesFull);
        }
        Ok((kept | list.mode(), value))
    }
}

/// The value of a list that decides about a file, whose permission bits say what `chmod` made of
/// it since it was set.
pub(super) fn with_mode(value: &[u8], mode: u16) -> Vec<u8> {
    match Acl::parse(value) {
        Ok(Some(mut list)) => {
            list.set_mode(mode);
            list.value()
        }
        _ => value.to_vec(),
    }
}

/// A list in a set, which has valid ones only.
fn list_in(set: &XattrSet, space: XattrSpace) -> Option<Acl> {
    let xattrs = read_xattrs(&set.bytes).unwrap_or_default();
    let found = xattrs.iter().find(|xattr| xattr.space == space)?;
    Acl::parse(found.value).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(Tag, u16, u32)]) -> Vec<u8> {
        let entry = |&(tag, permissions, id): &(Tag, u16, u32)| Entry {
            tag,
            permissions,
            id,
        };
        Acl(entries.iter().map(entry).collect()).value()
    }

    fn parsed(entries: &[(Tag, u16, u32)]) -> Option<Acl> {
        let parsed = Acl::parse(&list(entries)).ok().flatten();
        parsed.filter(|list| list.check().is_ok())
    }

    const OWNER: (Tag, u16, u32) = (Tag::Owner, 6, NO_ID);
    const GROUP: (Tag, u16, u32) = (Tag::OwningGroup, 4, NO_ID);
    const OTHERS: (Tag, u16, u32) = (Tag::Others, 0, NO_ID);
    const USER: (Tag, u16, u32) = (Tag::User, 7, 1000);
    const MASK: (Tag, u16, u32) = (Tag::Mask, 5, NO_ID);

    #[test]
    fn lists_are_taken_that_linux_takes() {
        let minimal = parsed(&[OWNER, GROUP, OTHERS]).unwrap();
        assert!(minimal.is_minimal());
        assert_eq!(minimal.mode(), 0o640);
        let named = parsed(&[OWNER, USER, GROUP, MASK, OTHERS]).unwrap();
        assert_eq!(named.mode(), 0o650);
        assert_eq!(Acl::parse(&named.value()).unwrap(), Some(named));
        let refused: [&[_]; 6] = [
            &[OWNER, USER, GROUP, OTHERS],
            &[OWNER, GROUP],
            &[GROUP, OWNER, OTHERS],
            &[OWNER, OWNER, GROUP, OTHERS],
            &[OWNER, GROUP, (Tag::Others, 8, NO_ID)],
            &[OWNER, (Tag::User, 7, NO_ID), GROUP, MASK, OTHERS],
        ];
        for entries in refused {
            assert_eq!(parsed(entries), None, "{entries:?}");
        }
        assert_eq!(Acl::parse(&[]).unwrap(), None);
        assert_eq!(Acl::parse(&list(&[])).unwrap(), None);
        assert_eq!(
            Acl::parse(&[1, 0, 0, 0]).unwrap_err().errno(),
            libc::EOPNOTSUPP
        );
        assert_eq!(
            Acl::parse(&[2, 0, 0, 0, 1]).unwrap_err().errno(),
            libc::EINVAL
        );
    }

    #[test]
    fn the_first_entry_that_fits_the_caller_decides() {
        let group = (Tag::Group, 7, 50);
        let named = parsed(&[OWNER, USER, GROUP, group, MASK, OTHERS]).unwrap();
        let permits = |uid, groups: &[u32], want| {
            let cred = Cred {
                groups: groups.to_vec(),
                ..Cred::user(uid, 1)
            };
            named.permits(&cred, 20, want)
        };
        assert!(permits(1000, &[], 5) && !permits(1000, &[], 2), "masked");
        assert!(permits(5, &[20], 4) && !permits(5, &[20], 1));
        assert!(permits(5, &[20, 50], 5), "one of several groups suffices");
        assert!(!permits(5, &[50], 2), "masked");
        assert!(!permits(5, &[], 4), "others");
    }

    #[test]
    fn chmod_changes_the_mask_where_there_is_one() {
        let mut named = parsed(&[OWNER, USER, GROUP, MASK, OTHERS]).unwrap();
        named.set_mode(0o724);
        assert_eq!(named.mode(), 0o724);
        assert_eq!(named.of(Tag::OwningGroup), Some(4));
        let mut minimal = parsed(&[OWNER, GROUP, OTHERS]).unwrap();
        minimal.set_mode(0o724);
        assert_eq!(minimal.of(Tag::OwningGroup), Some(2));
    }
}
