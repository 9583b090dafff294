//! Nodes, credentials and permissions.

use crate::acl::Acl;
use crate::content::Content;
use crate::file::OpenFile;
use crate::flags::{IMMUTABLE, NO_ATIME};
use crate::locks::Locks;
use crate::quotas::Quotas;
use crate::xattr::Xattrs;
use crate::{BLOCK_SIZE, DIRECTORY_SIZE, Errno, Handle, NAME_MAX, Result};
use std::collections::BTreeMap;
use std::fmt;

/// An inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 7] = [
        Kind::File,
        Kind::Dir,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharDevice,
        Kind::BlockDevice,
    ];

    /// Whether its content is outside the file system: a pipe, a socket, a device.
    pub fn is_special(self) -> bool {
        !matches!(self, Kind::File | Kind::Dir | Kind::Symlink)
    }
}

/// The caller of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cred {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Whether the caller has the file-system capabilities (CAP_DAC_OVERRIDE, CAP_FOWNER,
    /// CAP_CHOWN, CAP_FSETID), and those for extended attributes and flags (CAP_SYS_ADMIN,
    /// CAP_SETFCAP, CAP_LINUX_IMMUTABLE).
    pub privileged: bool,
}

impl Cred {
    /// User and group 0.
    pub fn superuser() -> Cred {
        Cred {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            privileged: true,
        }
    }

    /// An ordinary user.
    pub fn user(uid: u32, gid: u32, groups: &[u32]) -> Cred {
        Cred {
            uid,
            gid,
            groups: groups.to_vec(),
            privileged: false,
        }
    }

    /// Whether permission checks are skipped.
    pub fn is_superuser(&self) -> bool {
        self.privileged || self.uid == 0
    }

    /// Whether the caller belongs to the group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    pub(crate) fn owns(&self, node: &Node) -> bool {
        self.is_superuser() || self.uid == node.uid
    }
}

/// When a read changes the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AtimePolicy {
    /// At every read.
    Strict,
    /// When the access time is not later than the modification or change time, or is a day old;
    /// Linux's default.
    #[default]
    Relative,
    /// Never.
    Never,
}

/// The kernel's `fs.protected_*` settings, which forbid more than POSIX does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hardening {
    /// `protected_hardlinks`: only the owner may link to a file, or a caller with read and write
    /// permission for a regular file that is neither set-user-id nor executable set-group-id.
    pub hardlinks: bool,
    /// `protected_symlinks`: in a sticky directory that anyone may write, the last component is
    /// followed only if the link belongs to the caller or to the directory's owner.
    pub symlinks: bool,
    /// `protected_regular`: in a sticky directory that anyone may write (2: or its group),
    /// `O_CREAT` opens an existing file only if it belongs to the caller or to the directory's
    /// owner.
    pub regular: u8,
}

/// Attributes of an inode. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Its kind.
    pub kind: Kind,
    /// Permission bits with set-user-id, set-group-id and sticky: the low 12 bits of `st_mode`.
    pub mode: u32,
    /// Link count; 0 if it only exists in open handles.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes; a symbolic link's is the length of its target.
    pub size: u64,
    /// Allocated 4 KiB blocks of a file, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: i64,
    /// Last change of content.
    pub mtime: i64,
    /// Last change of content or attributes.
    pub ctime: i64,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name; also `.` and `..`.
    pub name: Vec<u8>,
    /// The inode it names.
    pub ino: Ino,
    /// Its kind.
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    File(Content),
    Dir {
        entries: BTreeMap<Vec<u8>, Ino>,
        parent: Ino,
    },
    Symlink(Vec<u8>),
    /// A pipe, socket or device, and its device number.
    Special(Kind, u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) body: Body,
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: i64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    /// The access control list, if it says more than the mode.
    pub(crate) acl: Option<Acl>,
    /// The list that a directory gives to new files.
    pub(crate) default_acl: Option<Acl>,
    pub(crate) xattrs: Xattrs,
    /// Flags of `FS_IOC_SETFLAGS`.
    pub(crate) flags: u32,
    pub(crate) project: u32,
    /// Number of open handles; a node without links or handles is removed.
    pub(crate) opens: u32,
}

impl Body {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Body::File(_) => Kind::File,
            Body::Dir { .. } => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }
}

impl Node {
    pub(crate) fn kind(&self) -> Kind {
        self.body.kind()
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == Kind::Dir
    }

    /// Whether mode and access control list grant all of `mask` to an ordinary user.
    fn grants(&self, mask: u32, cred: &Cred) -> bool {
        let shift = match &self.acl {
            _ if cred.uid == self.uid => 6,
            // The kernel looks at the list only if the mode's group bits, the mask, are not empty.
            Some(list) if self.mode & GROUP_ALL != 0 => {
                return list.grants(mask, cred, self.gid);
            }
            _ if cred.in_group(self.gid) => 3,
            _ => 0,
        };
        mask & !(self.mode >> shift & 7) == 0
    }

    /// Records a change of content: mtime and ctime are now.
    pub(crate) fn modified(&mut self, now: i64) {
        self.mtime = now;
        self.ctime = now;
    }
}

/// Permission to read, as in `access(2)`.
pub(crate) const READ: u32 = 4;
/// Permission to write.
pub(crate) const WRITE: u32 = 2;
/// Permission to search a directory or execute a file.
pub(crate) const EXEC: u32 = 1;

pub(crate) const SET_UID: u32 = 0o4000;
pub(crate) const SET_GID: u32 = 0o2000;
pub(crate) const STICKY: u32 = 0o1000;
pub(crate) const GROUP_EXEC: u32 = 0o010;
const GROUP_ALL: u32 = 0o070;
const GROUP_WRITE: u32 = 0o020;
const OTHER_WRITE: u32 = 0o002;

/// How long a relative access time may be out of date, in nanoseconds.
const DAY: i64 = 86_400_000_000_000;

/// The file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    pub(crate) nodes: BTreeMap<Ino, Node>,
    pub(crate) next_ino: u64,
    pub(crate) handles: BTreeMap<Handle, OpenFile>,
    pub(crate) next_handle: u64,
    pub(crate) locks: Locks,
    pub(crate) quotas: Quotas,
    /// Handles by the slot numbers of [`crate::Op`]s.
    pub(crate) slots: BTreeMap<u8, Handle>,
    /// When a read changes access times.
    pub atime_policy: AtimePolicy,
    /// The kernel's settings of `fs.protected_*`; all off in a new model.
    pub hardening: Hardening,
}

impl Model {
    /// An empty tree: a root directory of user 0 with mode 0755.
    pub fn new(now: i64) -> Model {
        let mut model = Model {
            nodes: BTreeMap::new(),
            next_ino: Ino::ROOT.0,
            handles: BTreeMap::new(),
            next_handle: 1,
            locks: Locks::default(),
            quotas: Quotas::default(),
            slots: BTreeMap::new(),
            atime_policy: AtimePolicy::default(),
            hardening: Hardening::default(),
        };
        let body = Body::Dir {
            entries: BTreeMap::new(),
            parent: Ino::ROOT,
        };
        model.insert(Node {
            body,
            mode: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            atime: now,
            mtime: now,
            ctime: now,
            acl: None,
            default_acl: None,
            xattrs: Xattrs::new(),
            flags: 0,
            project: 0,
            opens: 0,
        });
        model
    }

    pub(crate) fn insert(&mut self, node: Node) -> Ino {
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        self.nodes.insert(ino, node);
        ino
    }

    pub(crate) fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino).ok_or(Errno::ESTALE)
    }

    pub(crate) fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Errno::ESTALE)
    }

    /// Removes the node if neither a name nor a handle is left.
    pub(crate) fn reap(&mut self, ino: Ino) {
        if self
            .nodes
            .get(&ino)
            .is_some_and(|node| node.nlink == 0 && node.opens == 0)
        {
            self.nodes.remove(&ino);
        }
    }

    pub(crate) fn entries(&self, dir: Ino) -> Result<&BTreeMap<Vec<u8>, Ino>> {
        match &self.node(dir)?.body {
            Body::Dir { entries, .. } => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn parent(&self, dir: Ino) -> Result<Ino> {
        match &self.node(dir)?.body {
            Body::Dir { parent, .. } => Ok(*parent),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Whether `inner` is `outer` or lies below it.
    pub(crate) fn is_within(&self, inner: Ino, outer: Ino) -> Result<bool> {
        let mut dir = inner;
        while dir != outer {
            if dir == Ino::ROOT {
                return Ok(false);
            }
            dir = self.parent(dir)?;
        }
        Ok(true)
    }

    /// Checks that the caller has all permissions in `mask` (read 4, write 2, search or execute 1).
    pub fn access(&self, ino: Ino, mask: u32, cred: &Cred) -> Result<()> {
        let node = self.node(ino)?;
        if mask & WRITE != 0 && node.has(IMMUTABLE) {
            return Err(Errno::EPERM);
        }
        let is_executable = node.is_dir() || node.mode & 0o111 != 0;
        let granted = match () {
            () if cred.is_superuser() => is_executable || mask & EXEC == 0,
            () => node.grants(mask, cred),
        };
        if granted { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Checks that `dir` is a directory that the caller may search.
    pub(crate) fn search(&self, dir: Ino, cred: &Cred) -> Result<()> {
        self.entries(dir)?;
        self.access(dir, EXEC, cred)
    }

    /// The inode of `name` in `dir`, without following it.
    pub fn lookup(&self, dir: Ino, name: &[u8], cred: &Cred) -> Result<Ino> {
        self.search(dir, cred)?;
        self.find(dir, name)?.ok_or(Errno::ENOENT)
    }

    /// The entry, or `None`, without permission checks.
    pub(crate) fn find(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>> {
        match name {
            b"" => Err(Errno::ENOENT),
            b"." => Ok(Some(dir)),
            b".." => self.parent(dir).map(Some),
            _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::EINVAL),
            _ if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
            _ => Ok(self.entries(dir)?.get(name).copied()),
        }
    }

    /// Whether another user may have put `ino` into the sticky directory `dir` to trap the caller.
    fn is_protected(&self, dir: Ino, ino: Ino, writable: u32, cred: &Cred) -> Result<bool> {
        let (parent, node) = (self.node(dir)?, self.node(ino)?);
        let exposed = parent.mode & STICKY != 0 && parent.mode & writable != 0;
        Ok(exposed && node.uid != parent.uid && node.uid != cred.uid)
    }

    /// Checks `fs.protected_symlinks` for a link that is the last component of a path.
    pub(crate) fn may_follow(&self, dir: Ino, link: Ino, cred: &Cred) -> Result<()> {
        let refused = self.hardening.symlinks && self.is_protected(dir, link, OTHER_WRITE, cred)?;
        if refused { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// Does the kernel's checks before `O_CREAT` opens an existing file. A symbolic link, which
    /// gets here only with `O_NOFOLLOW`, is checked whatever the settings.
    pub(crate) fn may_open_existing(&self, dir: Ino, ino: Ino, cred: &Cred) -> Result<()> {
        let writable = match (self.node(ino)?.kind(), self.hardening.regular) {
            (Kind::File, 0) => return Ok(()),
            (Kind::File, 2..) => OTHER_WRITE | GROUP_WRITE,
            _ => OTHER_WRITE,
        };
        if self.is_protected(dir, ino, writable, cred)? {
            Err(Errno::EACCES)
        } else {
            Ok(())
        }
    }

    /// The attributes of an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        let node = self.node(ino)?;
        let (size, blocks) = match &node.body {
            Body::File(content) => (
                content.size(),
                content.blocks().len() as u64 * (BLOCK_SIZE as u64 / 512),
            ),
            Body::Dir { .. } => (DIRECTORY_SIZE, DIRECTORY_SIZE / 512),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Special(..) => (0, 0),
        };
        Ok(Attr {
            ino,
            kind: node.kind(),
            mode: node.mode,
            nlink: node.nlink,
            uid: node.uid,
            gid: node.gid,
            size,
            blocks,
            atime: node.atime,
            mtime: node.mtime,
            ctime: node.ctime,
        })
    }

    /// The content of a regular file.
    pub fn content(&self, ino: Ino) -> Result<&Content> {
        match &self.node(ino)?.body {
            Body::File(content) => Ok(content),
            Body::Dir { .. } => Err(Errno::EISDIR),
            Body::Symlink(_) | Body::Special(..) => Err(Errno::EINVAL),
        }
    }

    /// The names in a directory, sorted, with `.` and `..`. Permission to read is checked when a
    /// directory is opened.
    pub fn readdir(&mut self, dir: Ino, now: i64) -> Result<Vec<DirEntry>> {
        let entries = self.entries(dir)?;
        if self.node(dir)?.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        let mut list = vec![
            DirEntry {
                name: b".".to_vec(),
                ino: dir,
                kind: Kind::Dir,
            },
            DirEntry {
                name: b"..".to_vec(),
                ino: self.parent(dir)?,
                kind: Kind::Dir,
            },
        ];
        for (name, &ino) in entries {
            list.push(DirEntry {
                name: name.clone(),
                ino,
                kind: self.node(ino)?.kind(),
            });
        }
        self.accessed(dir, now)?;
        list.sort();
        Ok(list)
    }

    /// Records a read: updates the access time according to the policy.
    pub(crate) fn accessed(&mut self, ino: Ino, now: i64) -> Result<()> {
        let policy = self.atime_policy;
        let node = self.node_mut(ino)?;
        let stale = match policy {
            _ if node.has(NO_ATIME) => false,
            AtimePolicy::Strict => true,
            AtimePolicy::Relative => {
                node.atime <= node.mtime
                    || node.atime <= node.ctime
                    || now.saturating_sub(node.atime) >= DAY
            }
            AtimePolicy::Never => false,
        };
        if stale {
            node.atime = now;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superuser_executes_only_what_is_executable() {
        let mut model = Model::new(0);
        let root = Cred::superuser();
        let file = model
            .create(Ino::ROOT, b"f", 0o000, true, &root, 1)
            .unwrap();
        assert_eq!(model.access(file, READ | WRITE, &root), Ok(()));
        assert_eq!(model.access(file, EXEC, &root), Err(Errno::EACCES));
        model.node_mut(file).unwrap().mode = 0o001;
        assert_eq!(model.access(file, EXEC, &root), Ok(()));
    }

    #[test]
    fn the_owner_class_hides_the_others() {
        let mut model = Model::new(0);
        let owner = Cred::user(1, 2, &[]);
        let file = model
            .create(Ino::ROOT, b"f", 0o077, true, &Cred::superuser(), 1)
            .unwrap();
        let node = model.node_mut(file).unwrap();
        (node.uid, node.gid) = (1, 2);
        assert_eq!(model.access(file, READ, &owner), Err(Errno::EACCES));
        assert_eq!(model.access(file, READ, &Cred::user(3, 9, &[2])), Ok(()));
    }
}
