//! Operations as data, and their outcomes.

use crate::{
    Acl, Attr, Cred, Errno, HeldLock, Kind, LockKind, LockOwner, QuotaKind, Range, Space, TimeSet,
    XattrMode,
};
use std::collections::{BTreeMap, BTreeSet};

/// An operation on paths relative to the root directory, or on a numbered slot that holds an open
/// handle.
///
/// Bytes to write are described by a seed and a length ([`pattern`]). `Display` and `FromStr` turn
/// an operation into one line of text and back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the system calls that the variants name"
)]
pub enum Op {
    /// Open for writing with `O_CREAT`, and `O_EXCL` if exclusive; close.
    Create {
        path: Vec<u8>,
        mode: u32,
        exclusive: bool,
    },
    /// `mkdir`.
    Mkdir { path: Vec<u8>, mode: u32 },
    /// `mknod`: creates a regular file, pipe, socket, or the device with this number.
    Mknod {
        path: Vec<u8>,
        kind: Kind,
        mode: u32,
        device: u64,
    },
    /// `symlink`: creates `path`, which points to `target`.
    Symlink { target: Vec<u8>, path: Vec<u8> },
    /// `link`: gives `from` the further name `to`, without following a symbolic link.
    Link { from: Vec<u8>, to: Vec<u8> },
    /// `unlink`.
    Unlink { path: Vec<u8> },
    /// `rmdir`.
    Rmdir { path: Vec<u8> },
    /// `renameat2`.
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
        flags: u32,
    },
    /// `readlink`.
    Readlink { path: Vec<u8> },
    /// Open for writing, `pwrite`, close.
    Write {
        path: Vec<u8>,
        offset: u64,
        seed: u64,
        len: u64,
    },
    /// Open for writing with `O_APPEND`, `write`, close.
    Append { path: Vec<u8>, seed: u64, len: u64 },
    /// Open for reading, `pread`, close.
    Read { path: Vec<u8>, range: Range },
    /// `truncate`.
    Truncate { path: Vec<u8>, size: u64 },
    /// Open for writing, `fallocate`, close.
    Fallocate {
        path: Vec<u8>,
        mode: i32,
        range: Range,
    },
    /// Open for reading, `lseek(SEEK_DATA)`, close; a directory is `EISDIR`.
    SeekData { path: Vec<u8>, offset: u64 },
    /// Open for reading, `lseek(SEEK_HOLE)`, close; a directory is `EISDIR`.
    SeekHole { path: Vec<u8>, offset: u64 },
    /// Open for reading, `fsync`, close.
    Fsync { path: Vec<u8> },
    /// `sync` of the whole file system.
    Sync,
    /// `chmod`.
    Chmod { path: Vec<u8>, mode: u32 },
    /// `chown`, or `lchown` without `follow`.
    Chown {
        path: Vec<u8>,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    },
    /// `utimensat`; `None` is `UTIME_OMIT`.
    Utimens {
        path: Vec<u8>,
        atime: Option<TimeSet>,
        mtime: Option<TimeSet>,
        follow: bool,
    },
    /// `setxattr`, or `lsetxattr` without `follow`.
    SetXattr {
        path: Vec<u8>,
        name: Vec<u8>,
        value: XattrValue,
        mode: XattrMode,
        follow: bool,
    },
    /// `removexattr`, or `lremovexattr` without `follow`.
    RemoveXattr {
        path: Vec<u8>,
        name: Vec<u8>,
        follow: bool,
    },
    /// `getxattr`, or `lgetxattr` without `follow`.
    GetXattr {
        path: Vec<u8>,
        name: Vec<u8>,
        follow: bool,
    },
    /// `listxattr`, or `llistxattr` without `follow`.
    ListXattr { path: Vec<u8>, follow: bool },
    /// Open for reading, `ioctl(FS_IOC_SETFLAGS)`, close.
    SetFlags { path: Vec<u8>, flags: u32 },
    /// Open for reading, `ioctl(FS_IOC_FSSETXATTR)` with another project id, close.
    SetProject { path: Vec<u8>, project: u32 },
    /// Open for reading, `ioctl(FS_IOC_FSGETXATTR)`, close.
    GetFlags { path: Vec<u8> },
    /// Turns quotas on or off.
    SetQuotas { is_on: bool },
    /// Sets the hard limits of a user, group or project, or gives them up.
    SetQuota {
        kind: QuotaKind,
        id: u32,
        limits: Option<Space>,
    },
    /// What a user, group or project uses, and its limits.
    GetQuota { kind: QuotaKind, id: u32 },
    /// `stat`, or `lstat` without `follow`; everything but times and inode number.
    Stat { path: Vec<u8>, follow: bool },
    /// `lstat`: the three times, to compare implementations with the same clock.
    Times { path: Vec<u8> },
    /// `faccessat2` with `AT_EACCESS`; the mask is of `R_OK`, `W_OK`, `X_OK`.
    Access { path: Vec<u8>, mask: u32 },
    /// Open with `O_DIRECTORY`, read all entries, close.
    Readdir { path: Vec<u8> },
    /// `open`, with flags of `O_*`; on success the slot's earlier handle, if any, is closed.
    Open {
        slot: u8,
        path: Vec<u8>,
        flags: i32,
        mode: u32,
    },
    /// `close`.
    CloseSlot { slot: u8 },
    /// `pread`.
    ReadSlot { slot: u8, range: Range },
    /// `pwrite`, which appends if the slot was opened with `O_APPEND`.
    WriteSlot {
        slot: u8,
        offset: u64,
        seed: u64,
        len: u64,
    },
    /// `ftruncate`.
    TruncateSlot { slot: u8, size: u64 },
    /// `fallocate`.
    FallocateSlot { slot: u8, mode: i32, range: Range },
    /// `fstat`.
    StatSlot { slot: u8 },
    /// Rewind and read all entries; `ENOTDIR` if the slot is a file.
    ReaddirSlot { slot: u8 },
    /// `fsync`.
    FsyncSlot { slot: u8 },
    /// `flock` with `LOCK_NB`; `None` unlocks.
    FlockSlot { slot: u8, kind: Option<LockKind> },
    /// `fcntl` with `F_SETLK` or `F_OFD_SETLK`; `None` unlocks. Offset and length are signed.
    LockSlot {
        slot: u8,
        owner: LockOwner,
        kind: Option<LockKind>,
        range: Range,
    },
    /// `fcntl` with `F_GETLK` or `F_OFD_GETLK`.
    GetLockSlot {
        slot: u8,
        owner: LockOwner,
        kind: LockKind,
        range: Range,
    },
}

impl Op {
    /// The range that the operation removes from a file (`FALLOC_FL_COLLAPSE_RANGE`) or inserts
    /// (`FALLOC_FL_INSERT_RANGE`).
    pub fn shifted(&self) -> Option<Range> {
        const SHIFTS: i32 = libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE;
        match self {
            Self::Fallocate { mode, range, .. } | Self::FallocateSlot { mode, range, .. } => {
                (mode & SHIFTS != 0).then_some(*range)
            }
            _ => None,
        }
    }

    /// The slot whose handle it uses; `None` if it uses none, or opens or closes one.
    pub fn handle_slot(&self) -> Option<u8> {
        match self {
            Self::ReadSlot { slot, .. }
            | Self::WriteSlot { slot, .. }
            | Self::TruncateSlot { slot, .. }
            | Self::FallocateSlot { slot, .. }
            | Self::StatSlot { slot }
            | Self::ReaddirSlot { slot }
            | Self::FsyncSlot { slot }
            | Self::FlockSlot { slot, .. }
            | Self::LockSlot { slot, .. }
            | Self::GetLockSlot { slot, .. } => Some(*slot),
            _ => None,
        }
    }

    /// The path and the `O_*` flags with which it opens a file, if it opens one, uses the handle,
    /// and closes it.
    pub fn opens(&self) -> Option<(&[u8], i32)> {
        let (path, flags) = match self {
            Self::Write { path, .. } | Self::Fallocate { path, .. } => (path, libc::O_WRONLY),
            Self::Append { path, .. } => (path, libc::O_WRONLY | libc::O_APPEND),
            Self::Readdir { path } => (path, libc::O_RDONLY | libc::O_DIRECTORY),
            Self::Read { path, .. }
            | Self::SeekData { path, .. }
            | Self::SeekHole { path, .. }
            | Self::SetFlags { path, .. }
            | Self::SetProject { path, .. }
            | Self::GetFlags { path }
            | Self::Fsync { path } => (path, libc::O_RDONLY),
            _ => return None,
        };
        Some((path, flags))
    }
}

/// The value of an extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum XattrValue {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The bytes of [`pattern`].
    Pattern {
        /// The seed.
        seed: u64,
        /// Their number.
        len: u64,
    },
    /// An access control list, which may be invalid.
    Acl(Acl),
}

impl XattrValue {
    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            XattrValue::Bytes(bytes) => bytes.clone(),
            XattrValue::Pattern { seed, len } => pattern(*seed, *len),
            XattrValue::Acl(list) => list.to_bytes(),
        }
    }
}

/// An operation and its caller: a line of a test case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The caller.
    pub cred: Cred,
    /// The operation.
    pub op: Op,
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Ok(Payload),
    /// It failed and changed nothing.
    Err(Errno),
}

/// The part of a result that every implementation must agree on.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// Success without data.
    Done,
    /// Bytes written.
    Count(u64),
    /// Bytes read, the target of a symbolic link, or the value of an extended attribute.
    Bytes(Vec<u8>),
    /// A file offset.
    Offset(u64),
    /// Attributes.
    Stat(StatView),
    /// Access, modification and change time; after `Utimens`, only those that were set explicitly.
    Times([Option<i64>; 3]),
    /// The flags of `FS_IOC_SETFLAGS` and the project id.
    Flags(u32, u32),
    /// What is used, and its limits.
    Quota([Space; 2]),
    /// The names of extended attributes.
    Xattrs(BTreeSet<Vec<u8>>),
    /// The names in a directory, with `.` and `..`.
    Names(BTreeMap<Vec<u8>, Kind>),
    /// The lock that is in the way, if one is.
    Lock(Option<HeldLock>),
}

/// Attributes without those that an implementation may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatView {
    /// Its kind.
    pub kind: Kind,
    /// The low 12 bits of `st_mode`.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes; 0 for a directory.
    pub size: u64,
    /// Allocated blocks of a file in units of 512 bytes; 0 for anything else.
    pub blocks: u64,
}

impl StatView {
    /// The same attributes without those that an implementation may choose: the size of a
    /// directory, and the blocks of anything but a file.
    #[must_use]
    pub fn comparable(mut self) -> StatView {
        if self.kind == Kind::Dir {
            self.size = 0;
        }
        if self.kind != Kind::File {
            self.blocks = 0;
        }
        self
    }
}

impl From<Attr> for StatView {
    fn from(attr: Attr) -> StatView {
        let view = StatView {
            kind: attr.kind,
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks: attr.blocks,
        };
        view.comparable()
    }
}

/// The bytes for a seed (splitmix64, little-endian); seed 0 stands for zeros.
pub fn pattern(seed: u64, len: u64) -> Vec<u8> {
    if seed == 0 {
        return vec![0; len as usize];
    }
    let words = len.div_ceil(8);
    let mut bytes: Vec<u8> = (1..=words)
        .flat_map(|index| {
            let mut word = seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (word ^ (word >> 31)).to_le_bytes()
        })
        .collect();
    bytes.truncate(len as usize);
    bytes
}
