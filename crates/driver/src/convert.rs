//! Conversions between the model's types and the engine's.

use vellum::{
    Allocate, Attr, Cred, Error, FileKind, HeldLock, LockKind, LockOwner, LockRange, OpenOptions,
    Result, SetAttr, SetTime,
};
use vellum_model::{Kind, Op, Payload, Range, StatView, TimeSet};

/// Converts a user of the model to the engine's type.
pub fn cred_of(cred: &vellum_model::Cred) -> Cred {
    Cred {
        uid: cred.uid,
        gid: cred.gid,
        groups: cred.groups.clone(),
        privileged: cred.is_superuser(),
        umask: 0,
    }
}

/// Converts a kind of file to the model's type.
pub fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Directory => Kind::Dir,
        FileKind::Symlink => Kind::Symlink,
        FileKind::File => Kind::File,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharDevice,
        FileKind::BlockDevice => Kind::BlockDevice,
    }
}

pub(crate) fn file_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::Dir => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::File => FileKind::File,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
        Kind::CharDevice => FileKind::CharDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
    }
}

pub(crate) fn view(attr: &Attr) -> Payload {
    let view = StatView {
        kind: kind_of(attr.kind),
        mode: attr.mode.into(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        blocks: attr.blocks_512,
    };
    Payload::Stat(view.comparable())
}

pub(crate) fn set_time(time: TimeSet) -> SetTime {
    match time {
        TimeSet::Now => SetTime::Now,
        TimeSet::At(ns) => SetTime::At(ns),
    }
}

pub(crate) fn open_options(flags: i32, mode: u32) -> OpenOptions {
    let has = |flag: i32| flags & flag != 0;
    let access = flags & libc::O_ACCMODE;
    OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .append(has(libc::O_APPEND) && access != libc::O_RDONLY)
        .truncate(has(libc::O_TRUNC))
        .create(has(libc::O_CREAT))
        .create_new(has(libc::O_CREAT) && has(libc::O_EXCL))
        .no_follow(has(libc::O_NOFOLLOW))
        .directory(has(libc::O_DIRECTORY))
        .no_atime(has(libc::O_NOATIME))
        .mode(mode as u16)
}

/// Converts a mode of `fallocate` that the engine supports.
pub(crate) fn allocate_mode(mode: i32) -> Result<Allocate> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = ZERO | KEEP;
    match mode {
        0 => Ok(Allocate::Grow),
        KEEP => Ok(Allocate::KeepSize),
        PUNCH => Ok(Allocate::PunchHole),
        ZERO => Ok(Allocate::Zero),
        ZERO_KEEP => Ok(Allocate::ZeroKeepSize),
        libc::FALLOC_FL_COLLAPSE_RANGE => Ok(Allocate::Collapse),
        libc::FALLOC_FL_INSERT_RANGE => Ok(Allocate::Insert),
        _ => Err(Error::Unsupported("this mode of fallocate")),
    }
}

pub(crate) fn lock_kind(kind: vellum_model::LockKind) -> LockKind {
    match kind {
        vellum_model::LockKind::Shared => LockKind::Shared,
        vellum_model::LockKind::Exclusive => LockKind::Exclusive,
    }
}

pub(crate) fn lock_owner(owner: vellum_model::LockOwner) -> LockOwner {
    match owner {
        vellum_model::LockOwner::Handle => LockOwner::Handle,
        vellum_model::LockOwner::Process => LockOwner::this_process(),
    }
}

/// The range of a lock whose offset and length are those of `fcntl`.
pub(crate) fn lock_range(range: Range) -> Result<LockRange> {
    LockRange::of_fcntl(range.offset as i64, range.len as i64)
}

pub(crate) fn held_lock(lock: HeldLock) -> vellum_model::HeldLock {
    let (offset, end) = (lock.range.start(), lock.range.end());
    vellum_model::HeldLock {
        kind: match lock.kind {
            LockKind::Shared => vellum_model::LockKind::Shared,
            LockKind::Exclusive => vellum_model::LockKind::Exclusive,
        },
        owner: match lock.owner {
            LockOwner::Handle => vellum_model::LockOwner::Handle,
            LockOwner::Process(_) => vellum_model::LockOwner::Process,
        },
        range: Range {
            offset,
            len: end.map_or(0, |end| end - offset),
        },
    }
}

/// Adds the changes of `op` to `set`. Returns the path of the file, and whether a symbolic link
/// there is followed; `None` if `op` changes no attributes.
pub(crate) fn attributes<'o>(op: &'o Op, set: &mut SetAttr) -> Option<(&'o [u8], bool)> {
    match op {
        Op::Truncate { path, size } => {
            set.size = Some(*size);
            Some((path, true))
        }
        Op::Chmod { path, mode } => {
            set.mode = Some(*mode as u16);
            Some((path, true))
        }
        Op::Chown {
            path,
            uid,
            gid,
            follow,
        } => {
            (set.uid, set.gid, set.chown) = (*uid, *gid, true);
            Some((path, *follow))
        }
        Op::Utimens {
            path,
            atime,
            mtime,
            follow,
        } => {
            (set.atime, set.mtime) = (atime.map(set_time), mtime.map(set_time));
            Some((path, *follow))
        }
        _ => None,
    }
}
