//! The inode of a new file, and what it inherits from its directory: the group, an access control
//! list, flags, the project id. Most directories hand nothing down.

use vellum_layout::{FileKind, IdentityWord};
use vellum_media::Memories;

use crate::core::cachelet::Cachelet;
use crate::core::slots::Op;
use crate::error::Result;
use crate::fs::Cred;
use crate::fs::change::SET_GID;
use crate::fs::flags::INHERITED;
use crate::namespace::NewInode;

/// Attributes of a new file.
#[derive(Clone, Copy)]
pub(crate) struct NewFile<'a> {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    /// Device number.
    pub(crate) device: u64,
    /// Target of a symlink.
    pub(crate) target: &'a [u8],
}

impl<'a> NewFile<'a> {
    /// A file of `kind` that needs no other attributes.
    pub(crate) fn plain(kind: FileKind, mode: u16) -> Self {
        Self {
            kind,
            mode,
            device: 0,
            target: b"",
        }
    }

    /// Its inode, if it inherits nothing.
    fn inode(&self, cred: &Cred) -> NewInode<'a> {
        let mode = match self.kind {
            FileKind::Symlink => 0o777,
            _ => self.mode & 0o7777 & !(cred.umask & 0o777),
        };
        NewInode {
            kind: self.kind,
            mode,
            uid: cred.uid,
            gid: cred.gid,
            device: self.device,
            target: self.target,
            xattrs: &[],
            flags: 0,
            project: 0,
        }
    }
}

/// Whether files in a directory with this identity inherit something.
fn hands_down(dir: IdentityWord) -> bool {
    dir.has_any(INHERITED | IdentityWord::DEFAULT_LIST) || dir.mode() & SET_GID != 0
}

impl<M: Memories> Op<'_, M> {
    /// Passes the inode of a new file in `dir`, whose identity is `above`, to `create`.
    pub(super) fn with_new_inode<T>(
        &self,
        cred: &Cred,
        (dir, above): (Cachelet, IdentityWord),
        new: NewFile<'_>,
        create: impl Fn(&NewInode<'_>) -> Result<T>,
    ) -> Result<T> {
        match hands_down(above) {
            true => self.with_inherited(cred, (dir, above), new, create),
            false => create(&new.inode(cred)),
        }
    }

    #[cold]
    fn with_inherited<T>(
        &self,
        cred: &Cred,
        (dir, above): (Cachelet, IdentityWord),
        new: NewFile<'_>,
        create: impl Fn(&NewInode<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut inode = new.inode(cred);
        let list = match above.has(IdentityWord::DEFAULT_LIST) && new.kind != FileKind::Symlink {
            true => self.inherited_list(dir, new.kind, new.mode)?,
            false => None,
        };
        // The list takes the place of the umask.
        let xattrs = list.map(|(mode, xattrs)| {
            inode.mode = mode & 0o7777;
            xattrs
        });
        inode.xattrs = xattrs.as_deref().unwrap_or_default();
        if above.mode() & SET_GID != 0 {
            inode.gid = self.core.owner(dir).gid();
            inode.mode = mode_in_group(cred, &inode);
        }
        (inode.flags, inode.project) = self.core.inherited_flags((dir, above), new.kind);
        create(&inode)
    }
}

/// The mode of a file that is made in a set-gid directory, with that directory's group.
fn mode_in_group(cred: &Cred, inode: &NewInode<'_>) -> u16 {
    let mode = inode.mode;
    // A user cannot create a file that is set-gid to a group that the user is not in.
    let is_foreign = !cred.privileged && !cred.in_group(inode.gid);
    match inode.kind {
        FileKind::Directory => mode | SET_GID,
        FileKind::File if is_foreign && mode & 0o2010 == 0o2010 => mode & !SET_GID,
        _ => mode,
    }
}
