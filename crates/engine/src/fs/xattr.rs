//! Extended attributes: `getxattr`, `listxattr`, `setxattr`, `removexattr`.

use vellum_layout::{
    FileKind, XATTR_NAME_MAX, XATTR_VALUE_MAX, Xattr, XattrSpace, read_xattrs, xattr_flags,
};
use vellum_media::Memories;

use crate::core::cachelet::Cachelet;
use crate::core::slots::Op;
use crate::durability::commit::Durability;
use crate::error::{Error, Result};
use crate::fs::acl::{self, Acl};
use crate::fs::cred::STICKY;
use crate::fs::file::check_cuttable;
use crate::fs::{Access, Cred, Fs, Node};

/// Whether an extended attribute that is set may exist, as `XATTR_CREATE` and `XATTR_REPLACE` say.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
/// use vellum::{Error, XattrMode};
///
/// fs.set_xattr(&cred, &root, b"user.note", b"1", XattrMode::Create)?;
/// let again = fs.set_xattr(&cred, &root, b"user.note", b"2", XattrMode::Create);
/// assert!(matches!(again, Err(Error::Exists)));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum XattrMode {
    /// It may exist or not.
    #[default]
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// A name of an extended attribute, taken apart.
#[derive(Clone, Copy)]
struct Key<'a> {
    /// `None`: no space has such names.
    space: Option<XattrSpace>,
    /// The name behind the prefix.
    name: &'a [u8],
}

impl<'a> Key<'a> {
    fn of(name: &'a [u8]) -> Result<Self> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Error::AttributeName);
        }
        if name.contains(&0) {
            return Err(Error::Invalid(
                "an attribute's name cannot contain a zero byte",
            ));
        }
        let behind = |space: &XattrSpace| {
            let name = name.strip_prefix(space.prefix().as_bytes())?;
            (name.is_empty() || !space.is_whole()).then_some((*space, name))
        };
        let mut named = XattrSpace::ALL.iter().filter(|space| space.is_named());
        Ok(match named.find_map(behind) {
            Some((space, name)) => Self {
                space: Some(space),
                name,
            },
            None => Self { space: None, name },
        })
    }

    /// The space, which attributes of this name can be in.
    fn space(&self) -> Result<XattrSpace> {
        match self.space {
            None => Err(Error::Unsupported("extended attributes of that name")),
            Some(space) if self.name.is_empty() && !space.is_whole() => Err(Error::Invalid(
                "an attribute's name is more than its prefix",
            )),
            Some(space) => Ok(space),
        }
    }

    /// Which access control list it is, if it is one.
    fn list(&self) -> Option<XattrSpace> {
        self.space.filter(|space| space.is_whole())
    }
}

impl<M: Memories> Fs<M> {
    /// The value of an extended attribute. `name` has its prefix, as `user.`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// fs.set_xattr(&cred, &root, b"user.note", b"mine", vellum::XattrMode::Any)?;
    /// assert_eq!(fs.xattr(&cred, &root, b"user.note")?, b"mine");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `getxattr(2)` does; [`Error::NoAttribute`] if the file has no such attribute.
    pub fn xattr(&self, cred: &Cred, node: &Node<M>, name: &[u8]) -> Result<Vec<u8>> {
        let key = Key::of(name)?;
        self.with_op(|op| {
            check_xattr(op, cred, node.cachelet, &key, Access::READ)?;
            let space = key.space()?;
            let identity = op.core.identity(node.cachelet);
            let (name, value) = (key.name, &[][..]);
            if !identity.has(xattr_flags(&[Xattr { space, name, value }])) {
                return Err(Error::NoAttribute);
            }
            let set = op.core.xattrs(op, node.cachelet)?;
            let xattrs = read_xattrs(&set.bytes).unwrap_or_default();
            let found = xattrs.iter().find(|xattr| xattr.key() == (space, name));
            let value = found.map(|xattr| xattr.value).ok_or(Error::NoAttribute)?;
            Ok(match space {
                XattrSpace::Access => acl::with_mode(value, identity.mode()),
                _ => value.to_vec(),
            })
        })
    }

    /// The names of all extended attributes, a zero byte behind each, as `listxattr(2)` returns
    /// them. Those of `trusted.` are shown to the privileged only.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// fs.set_xattr(&cred, &root, b"user.b", b"", vellum::XattrMode::Any)?;
    /// fs.set_xattr(&cred, &root, b"user.a", b"", vellum::XattrMode::Any)?;
    /// assert_eq!(fs.xattrs(&cred, &root)?, b"user.a\0user.b\0");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Damaged media.
    pub fn xattrs(&self, cred: &Cred, node: &Node<M>) -> Result<Vec<u8>> {
        self.with_op(|op| {
            let set = op.core.xattrs(op, node.cachelet)?;
            let identity = op.core.identity(node.cachelet);
            let mut list = Vec::new();
            for xattr in read_xattrs(&set.bytes).unwrap_or_default() {
                // One that the inode does not announce is found by nobody.
                let is_announced = xattr.space.is_named() && identity.has(xattr_flags(&[xattr]));
                if is_announced && (cred.privileged || xattr.space != XattrSpace::Trusted) {
                    list.extend_from_slice(xattr.space.prefix().as_bytes());
                    list.extend_from_slice(xattr.name);
                    list.push(0);
                }
            }
            Ok(list)
        })
    }

    /// Sets an extended attribute. `name` has its prefix, as `user.`. After a crash the file has
    /// the old value or the new one.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// use vellum::{Error, XattrMode};
    ///
    /// let missing = fs.set_xattr(&cred, &root, b"user.note", b"1", XattrMode::Replace);
    /// assert!(matches!(missing, Err(Error::NoAttribute)));
    /// fs.set_xattr(&cred, &root, b"user.note", b"1", XattrMode::Any)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `setxattr(2)` does; [`Error::AttributesFull`] if all attributes of the file would
    /// take more than 1 MiB, or their names more than 64 KiB.
    pub fn set_xattr(
        &self,
        cred: &Cred,
        node: &Node<M>,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let key = Key::of(name)?;
        if value.len() > XATTR_VALUE_MAX {
            return Err(Error::AttributeTooLong);
        }
        if key.space == Some(XattrSpace::Security)
            && key.name == b"capability"
            && !is_capability(value)
        {
            return Err(Error::Invalid("the value is not a set of capabilities"));
        }
        if let Some(space) = key.list() {
            return self.set_list(cred, node.cachelet, space, Acl::parse(value)?.as_ref());
        }
        self.change_xattr(cred, node.cachelet, &key, |exists| match (mode, exists) {
            (XattrMode::Create, true) => Err(Error::Exists),
            (XattrMode::Replace, false) => Err(Error::NoAttribute),
            _ => Ok(Some(value)),
        })
    }

    /// Removes an extended attribute. `name` has its prefix, as `user.`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// fs.set_xattr(&cred, &root, b"user.note", b"1", vellum::XattrMode::Any)?;
    /// fs.remove_xattr(&cred, &root, b"user.note")?;
    /// assert!(fs.xattrs(&cred, &root)?.is_empty());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `removexattr(2)` does; [`Error::NoAttribute`] if the file has no such attribute.
    pub fn remove_xattr(&self, cred: &Cred, node: &Node<M>, name: &[u8]) -> Result<()> {
        let key = Key::of(name)?;
        if let Some(space) = key.list() {
            return self.set_list(cred, node.cachelet, space, None);
        }
        self.change_xattr(cred, node.cachelet, &key, |exists| match exists {
            true => Ok(None),
            false => Err(Error::NoAttribute),
        })
    }

    /// Gives an attribute the value that `decide` returns for whether it exists; `None` removes it.
    fn change_xattr<'v>(
        &self,
        cred: &Cred,
        file: Cachelet,
        key: &Key<'_>,
        decide: impl Fn(bool) -> Result<Option<&'v [u8]>>,
    ) -> Result<()> {
        self.core.check_writable()?;
        let done = self.with_room(|op| {
            check_xattr(op, cred, file, key, Access::WRITE)?;
            let space = key.space()?;
            let change = op.begin_change(file);
            let old = op.core.xattrs_locked(file)?;
            let xattrs = read_xattrs(&old.bytes).unwrap_or_default();
            let before = xattrs.iter().find(|xattr| xattr.key() == (space, key.name));
            let value = decide(before.is_some())?;
            // As on ext4, not even the change time moves.
            if value == before.map(|xattr| xattr.value) {
                return Ok(());
            }
            let bytes = old.with((space, key.name), value)?;
            op.replace_xattrs(change, old, bytes, None)
        });
        self.commit_from(Durability::Sync, done)
    }

    /// Sets an access control list; `None` removes it. The permission bits follow one that decides.
    fn set_list(
        &self,
        cred: &Cred,
        file: Cachelet,
        space: XattrSpace,
        list: Option<&Acl>,
    ) -> Result<()> {
        self.core.check_writable()?;
        let done = self.with_room(|op| {
            let core = op.core;
            let is_dir = core.kind(file) == FileKind::Directory;
            check_cuttable(core.identity(file))?;
            match space {
                _ if core.kind(file) == FileKind::Symlink => return Err(NO_LISTS),
                XattrSpace::Default if !is_dir && list.is_some() => return Err(Error::Access),
                XattrSpace::Default if !is_dir => return Ok(()),
                _ if !core.owns(cred, file) => return Err(Error::NotPermitted),
                _ => list.map_or(Ok(()), Acl::check)?,
            }
            let _changing = core.change_paths(is_dir && space == XattrSpace::Access);
            let change = op.begin_change(file);
            let identity = core.identity(file);
            let (mode, value) = match list {
                Some(list) if space == XattrSpace::Access => op.with_list(cred, file, list)?,
                _ => (identity.mode(), list.map(Acl::value)),
            };
            let old = core.xattrs_locked(file)?;
            let bytes = old.with((space, b""), value.as_deref())?;
            if mode == identity.mode() && bytes == old.bytes {
                return Ok(());
            }
            op.replace_xattrs(change, old, bytes, Some(identity.with_mode(mode)))
        });
        self.commit_from(Durability::Sync, done)
    }
}

/// Whether a value has a version of capability sets that Linux takes, and its length.
fn is_capability(value: &[u8]) -> bool {
    const IS_EFFECTIVE: u32 = 1;
    let head = value.first_chunk().map(|head| u32::from_le_bytes(*head));
    let version = head.map(|head| head & !IS_EFFECTIVE);
    matches!(
        (version, value.len()),
        (Some(0x0200_0000), 20) | (Some(0x0300_0000), 24)
    )
}

const NO_LISTS: Error = Error::Unsupported("access control lists of symbolic links");

/// Checks whether `cred` may read or write an attribute of this name, whether or not there is one.
fn check_xattr<M: Memories>(
    op: &Op<'_, M>,
    cred: &Cred,
    file: Cachelet,
    key: &Key<'_>,
    want: Access,
) -> Result<()> {
    let core = op.core;
    let kind = core.kind(file);
    let refusal = match want == Access::WRITE {
        true => Error::NotPermitted,
        false => Error::NoAttribute,
    };
    if want == Access::WRITE {
        check_cuttable(core.identity(file))?;
    }
    let permitted = match key.space {
        Some(XattrSpace::Security) => cred.privileged || want == Access::READ,
        Some(XattrSpace::Trusted) => cred.privileged,
        Some(XattrSpace::User) if kind == FileKind::Directory => {
            let sticky = core.identity(file).mode() & STICKY != 0;
            !sticky || want == Access::READ || core.owns(cred, file)
        }
        Some(XattrSpace::User) => kind == FileKind::File,
        _ => true,
    };
    if !permitted {
        return Err(refusal);
    }
    let is_of_system = key.space.is_none() && key.name.starts_with(b"system.");
    match key.space {
        Some(space) if space.is_whole() && kind == FileKind::Symlink => Err(NO_LISTS),
        Some(XattrSpace::Security | XattrSpace::Access | XattrSpace::Default) => Ok(()),
        _ if is_of_system => Ok(()),
        _ => op.check_access(cred, file, want),
    }
}
