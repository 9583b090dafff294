//! Extended attributes, and the two that hold access control lists.

use crate::acl::Acl;
use crate::tree::{Node, READ, SET_GID, STICKY, WRITE};
use crate::{Cred, Errno, Ino, Kind, Model, Result, XATTR_NAME_MAX, XATTR_VALUE_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The attribute that holds a file's access control list.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that holds the list that a directory gives to new files.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// The attribute that holds a program's capabilities.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Values by name, without the lists.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Arc<[u8]>>;

/// Whether [`Model::set_xattr`] may create an attribute, or replace its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum XattrMode {
    /// Both.
    #[default]
    Any,
    /// Only create (`XATTR_CREATE`).
    Create,
    /// Only replace (`XATTR_REPLACE`).
    Replace,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
    System,
    Unknown,
}

const PREFIXES: [(&[u8], Space); 4] = [
    (b"user.", Space::User),
    (b"trusted.", Space::Trusted),
    (b"security.", Space::Security),
    (b"system.", Space::System),
];

impl Space {
    fn of(name: &[u8]) -> Space {
        let found = PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix));
        found.map_or(Space::Unknown, |&(_, space)| space)
    }
}

/// A list, by the name of its attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Access,
    Default,
}

impl List {
    fn of(name: &[u8]) -> Option<List> {
        match name {
            ACL_ACCESS => Some(List::Access),
            ACL_DEFAULT => Some(List::Default),
            _ => None,
        }
    }

    fn get(self, node: &Node) -> Option<&Acl> {
        match self {
            List::Access => node.acl.as_ref(),
            List::Default => node.default_acl.as_ref(),
        }
    }
}

/// Checks an attribute's name by itself; the kernel does so before it resolves the path.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if (1..=XATTR_NAME_MAX).contains(&name.len()) {
        Ok(())
    } else {
        Err(Errno::ERANGE)
    }
}

/// Checks the length of a value; the kernel does so after the name and before it resolves the path.
pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() <= XATTR_VALUE_MAX {
        Ok(())
    } else {
        Err(Errno::E2BIG)
    }
}

/// Checks that there can be an attribute of this name.
fn check_exists(name: &[u8]) -> Result<()> {
    match Space::of(name) {
        Space::Unknown | Space::System => Err(Errno::EOPNOTSUPP),
        _ if PREFIXES.iter().any(|&(prefix, _)| prefix == name) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// Whether a value is a set of capabilities: version 2, or version 3, which has a user id too.
fn is_capability(value: &[u8]) -> bool {
    const IS_EFFECTIVE: u32 = 1;
    let Some((head, _)) = value.split_first_chunk() else {
        return false;
    };
    let version = u32::from_le_bytes(*head) & !IS_EFFECTIVE;
    matches!(
        (version, value.len()),
        (0x0200_0000, 20) | (0x0300_0000, 24)
    )
}

impl Node {
    /// Every attribute by its name, with the lists.
    pub(crate) fn all_xattrs(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let plain = self.xattrs.iter();
        let plain = plain.map(|(name, value)| (name.clone(), value.to_vec()));
        let lists = [(ACL_ACCESS, &self.acl), (ACL_DEFAULT, &self.default_acl)];
        let lists = lists.into_iter().filter_map(|(name, list)| {
            let list = list.as_ref()?;
            Some((name.to_vec(), list.to_bytes()))
        });
        plain.chain(lists).collect()
    }
}

impl Model {
    /// The value of an attribute (`getxattr(2)`).
    pub fn xattr(&self, ino: Ino, name: &[u8], cred: &Cred) -> Result<Vec<u8>> {
        check_name(name)?;
        let node = self.node(ino)?;
        if let Some(list) = List::of(name) {
            if node.kind() == Kind::Symlink {
                return Err(Errno::EOPNOTSUPP);
            }
            return list.get(node).map(Acl::to_bytes).ok_or(Errno::ENODATA);
        }
        self.may_use(ino, name, READ, cred)?;
        check_exists(name)?;
        let value = node.xattrs.get(name).ok_or(Errno::ENODATA)?;
        Ok(value.to_vec())
    }

    /// The names of the attributes (`listxattr(2)`). Only the superuser sees those that begin with
    /// `trusted.`.
    pub fn xattr_names(&self, ino: Ino, cred: &Cred) -> Result<BTreeSet<Vec<u8>>> {
        let names = self.node(ino)?.all_xattrs().into_keys();
        let is_shown = |name: &Vec<u8>| cred.is_superuser() || Space::of(name) != Space::Trusted;
        Ok(names.filter(is_shown).collect())
    }

    /// Sets an attribute (`setxattr(2)`). The change time moves unless the attribute had this
    /// value. For access control lists `mode` has no meaning.
    pub fn set_xattr(
        &mut self,
        ino: Ino,
        (name, value, mode): (&[u8], &[u8], XattrMode),
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        check_name(name)?;
        check_value(value)?;
        if let Some(list) = List::of(name) {
            return self.set_acl(ino, list, Acl::from_bytes(value)?, cred, now);
        }
        if name == CAPABILITY && !is_capability(value) {
            return Err(Errno::EINVAL);
        }
        self.may_change(ino, name, cred)?;
        let node = self.node_mut(ino)?;
        match (node.xattrs.get(name), mode) {
            (None, XattrMode::Replace) => return Err(Errno::ENODATA),
            (Some(_), XattrMode::Create) => return Err(Errno::EEXIST),
            (Some(old), _) if old[..] == *value => return Ok(()),
            _ => {}
        }
        node.xattrs.insert(name.to_vec(), value.into());
        node.ctime = now;
        Ok(())
    }

    /// Removes an attribute (`removexattr(2)`). To remove a list that is not there succeeds.
    pub fn remove_xattr(&mut self, ino: Ino, name: &[u8], cred: &Cred, now: i64) -> Result<()> {
        check_name(name)?;
        if let Some(list) = List::of(name) {
            return self.set_acl(ino, list, None, cred, now);
        }
        self.may_change(ino, name, cred)?;
        let node = self.node_mut(ino)?;
        node.xattrs.remove(name).ok_or(Errno::ENODATA)?;
        node.ctime = now;
        Ok(())
    }

    /// Checks in the kernel's order that the caller may set or remove an attribute.
    fn may_change(&self, ino: Ino, name: &[u8], cred: &Cred) -> Result<()> {
        self.may_use(ino, name, WRITE, cred)?;
        if Space::of(name) == Space::Security && !cred.is_superuser() {
            return Err(Errno::EPERM);
        }
        check_exists(name)
    }

    /// Checks the rules of the name's prefix; `wanted` is to read or to write.
    fn may_use(&self, ino: Ino, name: &[u8], wanted: u32, cred: &Cred) -> Result<()> {
        let node = self.node(ino)?;
        if wanted == WRITE && node.is_guarded() {
            return Err(Errno::EPERM);
        }
        let refused = if wanted == WRITE {
            Errno::EPERM
        } else {
            Errno::ENODATA
        };
        let has_any = matches!(node.kind(), Kind::File | Kind::Dir);
        let is_sticky = node.is_dir() && node.mode & STICKY != 0;
        match Space::of(name) {
            Space::Security | Space::System => Ok(()),
            Space::Trusted if cred.is_superuser() => Ok(()),
            Space::Trusted => Err(refused),
            Space::User if !has_any => Err(refused),
            Space::User if wanted == WRITE && is_sticky && !cred.owns(node) => Err(Errno::EPERM),
            Space::User | Space::Unknown => self.access(ino, wanted, cred),
        }
    }

    fn set_acl(
        &mut self,
        ino: Ino,
        which: List,
        list: Option<Acl>,
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        let node = self.node_mut(ino)?;
        if node.is_guarded() {
            return Err(Errno::EPERM);
        }
        match (node.kind(), which) {
            (Kind::Symlink, _) => return Err(Errno::EOPNOTSUPP),
            (Kind::Dir, _) | (_, List::Access) => {}
            (_, List::Default) if list.is_some() => return Err(Errno::EACCES),
            (_, List::Default) => return Ok(()),
        }
        if !cred.owns(node) {
            return Err(Errno::EPERM);
        }
        list.as_ref().map_or(Ok(()), Acl::check)?;
        if which == List::Default {
            if node.default_acl != list {
                node.default_acl = list;
                node.ctime = now;
            }
            return Ok(());
        }
        let mut mode = node.mode;
        if let Some(list) = &list {
            mode = mode & !0o777 | list.permission_bits();
            if !cred.is_superuser() && !cred.in_group(node.gid) {
                mode &= !SET_GID;
            }
        }
        let list = list.filter(Acl::is_extended);
        if (mode, &list) != (node.mode, &node.acl) {
            (node.mode, node.acl, node.ctime) = (mode, list, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::apply::run_lines;

    #[test]
    fn an_attribute_is_created_replaced_and_removed() {
        run_lines(&[
            ("0:0 create f 644 -", "done"),
            ("0:0 setxattr f user.a one replace follow", "ENODATA"),
            ("0:0 setxattr f user.a one create follow", "done"),
            ("0:0 setxattr f user.a two create follow", "EEXIST"),
            ("0:0 setxattr f user.a two any follow", "done"),
            ("0:0 setxattr f user.a two any follow", "done"),
            ("0:0 times f", "times 1 1 5"),
            ("0:0 getxattr f user.a follow", "bytes 3 two"),
            ("0:0 listxattr f follow", "xattrs user.a"),
            ("0:0 removexattr f user.a follow", "done"),
            ("0:0 removexattr f user.a follow", "ENODATA"),
            ("0:0 times f", "times 1 1 10"),
        ]);
    }

    #[test]
    fn each_prefix_has_its_rules() {
        run_lines(&[
            ("0:0 create f 664 -", "done"),
            ("0:0 mknod p fifo 666 0", "done"),
            ("0:0 mkdir d 1777", "done"),
            ("0:0 symlink none l", "done"),
            ("5:5 setxattr f user.a x any follow", "EACCES"),
            ("5:5 setxattr f foo.a x any follow", "EACCES"),
            ("0:0 setxattr f foo.a x any follow", "EOPNOTSUPP"),
            ("5:5 setxattr d user.a x any follow", "EPERM"),
            ("0:0 setxattr p user.a x any follow", "EPERM"),
            ("0:0 getxattr p user.a follow", "ENODATA"),
            ("0:0 setxattr f user. x any follow", "EINVAL"),
            ("0:0 setxattr l trusted.a x any -", "done"),
            ("0:0 setxattr l trusted.a x any follow", "ENOENT"),
            ("5:5 getxattr l trusted.a -", "ENODATA"),
            ("5:5 listxattr l -", "xattrs"),
            ("5:5 removexattr l trusted.a -", "EPERM"),
            ("5:5 setxattr f security.a x any follow", "EPERM"),
            ("0:0 setxattr f security.a x any follow", "done"),
            ("5:5 getxattr f security.a follow", "bytes 1 x"),
            ("5:5 setxattr f security.capability x any follow", "EINVAL"),
            ("0:0 setxattr none % @1:65537 any follow", "ERANGE"),
            ("0:0 setxattr none user.a @1:65537 any follow", "E2BIG"),
        ]);
    }

    #[test]
    fn a_change_of_content_or_owner_removes_capabilities() {
        let set = "0:0 setxattr f security.capability %00%00%00%02%(00x16) create follow";
        let gone = ("0:0 listxattr f follow", "xattrs");
        run_lines(&[
            ("0:0 create f 644 -", "done"),
            (set, "done"),
            ("0:0 chmod f 755", "done"),
            ("0:0 write f 0 1 0", "count 0"),
            ("0:0 listxattr f follow", "xattrs security.capability"),
            ("0:0 write f 0 1 1", "count 1"),
            gone,
            (set, "done"),
            ("0:0 truncate f 1", "done"),
            gone,
            (set, "done"),
            ("0:0 fallocate f 0 0 9", "done"),
            gone,
            (set, "done"),
            ("0:0 chown f - - follow", "done"),
            gone,
        ]);
    }

    #[test]
    fn a_list_and_the_mode_go_together() {
        run_lines(&[
            ("0:0 create f 644 -", "done"),
            (
                "5:5 setxattr f system.posix_acl_access =u::6,g::4,o::4 any follow",
                "EPERM",
            ),
            (
                "0:0 setxattr f system.posix_acl_access =u::7,g::5,o::0 any follow",
                "done",
            ),
            ("0:0 listxattr f follow", "xattrs"),
            (
                "0:0 setxattr f system.posix_acl_access =u::6,u:5:7,g::4,m::5,o::0 any follow",
                "done",
            ),
            ("0:0 stat f follow", "stat file 650 1 0:0 0 0"),
            ("5:5 access f 5", "done"),
            ("5:5 access f 2", "EACCES"),
            ("0:0 chmod f 620", "done"),
            ("5:5 access f 2", "done"),
            ("5:5 access f 4", "EACCES"),
            (
                "0:0 setxattr f system.posix_acl_default =u::6,g::4,o::4 any follow",
                "EACCES",
            ),
            ("0:0 removexattr f system.posix_acl_default follow", "done"),
            ("0:0 removexattr f system.posix_acl_access follow", "done"),
            ("0:0 stat f follow", "stat file 620 1 0:0 0 0"),
            ("5:5 access f 2", "EACCES"),
        ]);
    }

    /// The kernel looks at a list only if the mode's group bits, the mask, are not empty.
    #[test]
    fn an_empty_mask_hides_the_list() {
        run_lines(&[
            ("0:0 create f 644 -", "done"),
            (
                "0:0 setxattr f system.posix_acl_access =u::6,u:5:0,g::4,m::0,o::7 any follow",
                "done",
            ),
            ("5:5 access f 7", "done"),
            ("0:0 chmod f 617", "done"),
            ("5:5 access f 4", "EACCES"),
        ]);
    }

    #[test]
    fn one_entry_grants_all_that_is_wanted_at_once() {
        let set = "0:0 setxattr d system.posix_acl_access =u::7,g::2,g:6:1,m::7,o::0 any follow";
        run_lines(&[
            ("0:0 mkdir d 755", "done"),
            ("0:0 chown d - 5 follow", "done"),
            (set, "done"),
            ("7:5+6 access d 2", "done"),
            ("7:5+6 access d 1", "done"),
            ("7:5+6 access d 3", "EACCES"),
            ("7:5+6 create d/f 644 -", "EACCES"),
        ]);
    }

    #[test]
    fn new_files_inherit_the_default_list() {
        run_lines(&[
            ("0:0 mkdir d 755", "done"),
            (
                "0:0 setxattr d system.posix_acl_default =u::7,u:5:7,g::4,m::5,o::3 any follow",
                "done",
            ),
            ("0:0 create d/f 666 -", "done"),
            ("0:0 stat d/f follow", "stat file 642 1 0:0 0 0"),
            ("0:0 listxattr d/f follow", "xattrs system.posix_acl_access"),
            ("5:5 access d/f 4", "done"),
            ("5:5 access d/f 2", "EACCES"),
            ("0:0 mkdir d/d 777", "done"),
            (
                "0:0 listxattr d/d follow",
                "xattrs system.posix_acl_access system.posix_acl_default",
            ),
            ("0:0 symlink x d/l", "done"),
            ("0:0 listxattr d/l -", "xattrs"),
            ("0:0 removexattr d system.posix_acl_default follow", "done"),
            ("0:0 create d/g 666 -", "done"),
            ("0:0 listxattr d/g follow", "xattrs"),
        ]);
    }
}
