//! The kernel's file system behind the same operations as the model.

#![expect(unreachable_pub, reason = "a module of a test has no outside")]

pub mod agreement;
pub mod flags;

use nix::fcntl::{FallocateFlags, FcntlArg, fallocate, fcntl};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{self, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::fs::{SeekFrom, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};
use rustix::{io, thread};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use vellum_model::{
    Cred, Errno, HeldLock, Kind, LockKind, LockOwner, NodeSnapshot, Op, Outcome, Payload, Range,
    Snapshot, SnapshotBody, StatView, TimeSet, Times, XATTR_VALUE_MAX, XattrMode, pattern,
};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The kernel's tree below a directory, which is the root directory of the calling thread.
pub struct Kernel {
    slots: BTreeMap<u8, OwnedFd>,
}

type Answer = io::Result<Payload>;

fn done(_: ()) -> Payload {
    Payload::Done
}

fn mode_bits(mode: u32) -> Mode {
    Mode::from_bits_retain(mode)
}

fn kind(file_type: FileType) -> Kind {
    match file_type {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        _ => Kind::File,
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::File => FileType::RegularFile,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

fn nofollow(follow: bool) -> AtFlags {
    if follow {
        AtFlags::empty()
    } else {
        AtFlags::SYMLINK_NOFOLLOW
    }
}

fn nanos(seconds: i64, nanos: u64) -> i64 {
    seconds * NANOS_PER_SECOND + nanos as i64
}

fn times(stat: &Stat) -> Times {
    Times {
        atime: nanos(stat.st_atime, stat.st_atime_nsec),
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
        ctime: nanos(stat.st_ctime, stat.st_ctime_nsec),
    }
}

fn timespec(time: Option<TimeSet>) -> Timespec {
    let special = |nsec| Timespec {
        tv_sec: 0,
        tv_nsec: nsec,
    };
    match time {
        None => special(UTIME_OMIT),
        Some(TimeSet::Now) => special(UTIME_NOW),
        Some(TimeSet::At(time)) => Timespec {
            tv_sec: time.div_euclid(NANOS_PER_SECOND),
            tv_nsec: time.rem_euclid(NANOS_PER_SECOND),
        },
    }
}

fn view(stat: &Stat) -> Payload {
    let view = StatView {
        kind: kind(FileType::from_raw_mode(stat.st_mode)),
        mode: stat.st_mode & 0o7777,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
    };
    Payload::Stat(view.comparable())
}

impl Kernel {
    /// Makes `root` the root directory of the calling thread only.
    pub fn enter(root: &Path) -> io::Result<Kernel> {
        unshare(CloneFlags::CLONE_FS).map_err(errno)?;
        rustix::process::umask(Mode::empty());
        rustix::process::chroot(root)?;
        rustix::process::chdir("/")?;
        fs::chmodat(CWD, ".", mode_bits(0o755), AtFlags::empty())?;
        Ok(Kernel {
            slots: BTreeMap::new(),
        })
    }

    /// Applies one operation as the user.
    pub fn apply(&mut self, op: &Op, cred: &Cred) -> Outcome {
        become_user(cred).expect("the superuser becomes anyone");
        let answer = self.run(op);
        become_user(&Cred::superuser()).expect("the saved user is the superuser");
        match answer {
            Ok(payload) => Outcome::Ok(payload),
            Err(errno) => Outcome::Err(Errno(errno.raw_os_error())),
        }
    }

    fn run(&mut self, op: &Op) -> Answer {
        if let Some(slot) = op.handle_slot() {
            return with_fd(self.slots.get(&slot).ok_or(io::Errno::BADF)?, op);
        }
        if let Some((path, flags)) = op.opens() {
            let flags = OFlags::from_bits_retain(flags as u32);
            return with_fd(&open(path, flags, 0)?, op);
        }
        match op {
            Op::Create {
                path,
                mode,
                exclusive,
            } => {
                let exclusive = if *exclusive {
                    OFlags::EXCL
                } else {
                    OFlags::empty()
                };
                open(path, OFlags::CREATE | OFlags::WRONLY | exclusive, *mode)
                    .map(|_| Payload::Done)
            }
            Op::Mkdir { path, mode } => fs::mkdirat(CWD, &path[..], mode_bits(*mode)).map(done),
            Op::Mknod {
                path,
                kind,
                mode,
                device,
            } => {
                let kind = file_type(*kind);
                fs::mknodat(CWD, &path[..], kind, mode_bits(*mode), *device).map(done)
            }
            Op::Symlink { target, path } => fs::symlinkat(&target[..], CWD, &path[..]).map(done),
            Op::Link { from, to } => {
                fs::linkat(CWD, &from[..], CWD, &to[..], AtFlags::empty()).map(done)
            }
            Op::Unlink { path } => fs::unlinkat(CWD, &path[..], AtFlags::empty()).map(done),
            Op::Rmdir { path } => fs::unlinkat(CWD, &path[..], AtFlags::REMOVEDIR).map(done),
            Op::Rename { from, to, flags } => {
                let flags = RenameFlags::from_bits_retain(*flags);
                fs::renameat_with(CWD, &from[..], CWD, &to[..], flags).map(done)
            }
            Op::Readlink { path } => fs::readlinkat(CWD, &path[..], Vec::new())
                .map(|target| Payload::Bytes(target.into_bytes())),
            Op::Truncate { path, size } => truncate(path, *size).map(done),
            Op::Sync => Ok(Payload::Done),
            Op::Chmod { path, mode } => {
                fs::chmodat(CWD, &path[..], mode_bits(*mode), AtFlags::empty()).map(done)
            }
            Op::Chown {
                path,
                uid,
                gid,
                follow,
            } => {
                let (uid, gid) = (uid.map(fs::Uid::from_raw), gid.map(fs::Gid::from_raw));
                fs::chownat(CWD, &path[..], uid, gid, nofollow(*follow)).map(done)
            }
            Op::Utimens {
                path,
                atime,
                mtime,
                follow,
            } => set_times(path, *atime, *mtime, *follow),
            Op::SetXattr { .. } | Op::RemoveXattr { .. } => change_xattr(op).map(done),
            Op::GetXattr { path, name, follow } => {
                get_xattr(path, name, *follow).map(Payload::Bytes)
            }
            Op::ListXattr { path, follow } => list_xattr(path, *follow).map(Payload::Xattrs),
            Op::Stat { path, follow } => {
                fs::statat(CWD, &path[..], nofollow(*follow)).map(|stat| view(&stat))
            }
            Op::Times { path } => {
                let stat = fs::statat(CWD, &path[..], AtFlags::SYMLINK_NOFOLLOW)?;
                let Times {
                    atime,
                    mtime,
                    ctime,
                } = times(&stat);
                Ok(Payload::Times([Some(atime), Some(mtime), Some(ctime)]))
            }
            Op::Access { path, mask } => {
                let access = fs::Access::from_bits_retain(*mask);
                fs::accessat(CWD, &path[..], access, AtFlags::empty()).map(done)
            }
            Op::Open {
                slot,
                path,
                flags,
                mode,
            } => {
                let fd = open(path, OFlags::from_bits_retain(*flags as u32), *mode)?;
                self.slots.insert(*slot, fd);
                Ok(Payload::Done)
            }
            Op::CloseSlot { slot } => self
                .slots
                .remove(slot)
                .map(|_| Payload::Done)
                .ok_or(io::Errno::BADF),
            _ => unreachable!("operations with a path to open or a handle are handled above"),
        }
    }

    /// The whole tree, as the superuser sees it.
    pub fn snapshot(&self) -> Snapshot {
        let mut found = BTreeMap::new();
        let root = fs::statat(CWD, "/", AtFlags::empty()).expect("the root has attributes");
        found.insert(b"/".to_vec(), root);
        find_below(b"", &mut found).expect("the superuser reads everything");
        let mut identities = BTreeMap::new();
        for (path, stat) in &found {
            identities
                .entry(stat.st_ino)
                .or_insert_with(|| path.clone());
        }
        let node = |path: &[u8], stat: &Stat| NodeSnapshot {
            body: body(path, stat).expect("the superuser reads everything"),
            mode: stat.st_mode & 0o7777,
            nlink: stat.st_nlink as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            identity: identities[&stat.st_ino].clone(),
            xattrs: xattrs(path).expect("the superuser reads everything"),
            flags: flags::flags_of(path, stat.st_mode),
            project: 0,
            times: None,
        };
        found
            .iter()
            .map(|(path, stat)| (path.clone(), node(path, stat)))
            .collect()
    }

    /// Inode number and times of a path, without following it.
    pub fn times_of(&self, path: &[u8]) -> io::Result<(u64, Times)> {
        let stat = fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((stat.st_ino, times(&stat)))
    }
}

/// Sets the real and effective user and group, and the supplementary groups, of the calling thread;
/// the superuser stays the saved user.
fn become_user(cred: &Cred) -> io::Result<()> {
    let root = fs::Uid::ROOT;
    thread::set_thread_res_uid(root, root, root)?;
    let groups: Vec<fs::Gid> = cred
        .groups
        .iter()
        .map(|&gid| fs::Gid::from_raw(gid))
        .collect();
    thread::set_thread_groups(&groups)?;
    let gid = fs::Gid::from_raw(cred.gid);
    thread::set_thread_res_gid(gid, gid, fs::Gid::ROOT)?;
    let uid = fs::Uid::from_raw(cred.uid);
    thread::set_thread_res_uid(uid, uid, root)
}

fn open(path: &[u8], flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    fs::openat(CWD, path, flags | OFlags::CLOEXEC, mode_bits(mode))
}

fn truncate(path: &[u8], size: u64) -> io::Result<()> {
    nix::unistd::truncate(path, size as i64).map_err(errno)
}

fn errno(error: nix::Error) -> io::Errno {
    io::Errno::from_raw_os_error(error as i32)
}

fn set_times(path: &[u8], atime: Option<TimeSet>, mtime: Option<TimeSet>, follow: bool) -> Answer {
    let both = Timestamps {
        last_access: timespec(atime),
        last_modification: timespec(mtime),
    };
    // To look the file up after the change would read links on the way, perhaps the file itself.
    let nofollow_last = match follow {
        true => OFlags::empty(),
        false => OFlags::NOFOLLOW,
    };
    let file = match (atime, mtime) {
        (None, None) => None,
        _ => Some(open(path, OFlags::PATH | nofollow_last, 0)?),
    };
    fs::utimensat(CWD, path, &both, nofollow(follow))?;
    let Some(file) = file else {
        return Ok(Payload::Done);
    };
    let after = times(&fs::fstat(&file)?);
    let explicit =
        |set: Option<TimeSet>, value| matches!(set, Some(TimeSet::At(_))).then_some(value);
    Ok(Payload::Times([
        explicit(atime, after.atime),
        explicit(mtime, after.mtime),
        None,
    ]))
}

fn change_xattr(op: &Op) -> io::Result<()> {
    match op {
        Op::SetXattr {
            path,
            name,
            value,
            mode,
            follow,
        } => {
            let flags = match mode {
                XattrMode::Any => XattrFlags::empty(),
                XattrMode::Create => XattrFlags::CREATE,
                XattrMode::Replace => XattrFlags::REPLACE,
            };
            let (path, name, value) = (&path[..], &name[..], &value.bytes()[..]);
            match follow {
                true => fs::setxattr(path, name, value, flags),
                false => fs::lsetxattr(path, name, value, flags),
            }
        }
        Op::RemoveXattr { path, name, follow } => match follow {
            true => fs::removexattr(&path[..], &name[..]),
            false => fs::lremovexattr(&path[..], &name[..]),
        },
        _ => unreachable!("the caller sends only changes of extended attributes"),
    }
}

fn get_xattr(path: &[u8], name: &[u8], follow: bool) -> io::Result<Vec<u8>> {
    let mut value = vec![0; XATTR_VALUE_MAX];
    let len = match follow {
        true => fs::getxattr(path, name, &mut value[..])?,
        false => fs::lgetxattr(path, name, &mut value[..])?,
    };
    value.truncate(len);
    Ok(value)
}

fn list_xattr(path: &[u8], follow: bool) -> io::Result<BTreeSet<Vec<u8>>> {
    let mut list = vec![0; XATTR_VALUE_MAX];
    let len = match follow {
        true => fs::listxattr(path, &mut list[..])?,
        false => fs::llistxattr(path, &mut list[..])?,
    };
    let names = list[..len].split(|&byte| byte == 0);
    Ok(names
        .filter(|name| !name.is_empty())
        .map(Vec::from)
        .collect())
}

fn xattrs(path: &[u8]) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let names = match list_xattr(path, false) {
        Err(io::Errno::OPNOTSUPP) => BTreeSet::new(),
        names => names?,
    };
    let value = |name: Vec<u8>| Ok((name.clone(), get_xattr(path, &name, false)?));
    names.into_iter().map(value).collect()
}

fn with_fd(fd: &OwnedFd, op: &Op) -> Answer {
    let fd = fd.as_fd();
    match op {
        Op::Write {
            offset, seed, len, ..
        }
        | Op::WriteSlot {
            offset, seed, len, ..
        } => {
            io::pwrite(fd, &pattern(*seed, *len), *offset).map(|count| Payload::Count(count as u64))
        }
        Op::Append { seed, len, .. } => {
            io::write(fd, &pattern(*seed, *len)).map(|count| Payload::Count(count as u64))
        }
        Op::Read { range, .. } | Op::ReadSlot { range, .. } => {
            pread(fd, *range).map(Payload::Bytes)
        }
        Op::Fallocate { mode, range, .. } | Op::FallocateSlot { mode, range, .. } => {
            let mode = FallocateFlags::from_bits_retain(*mode);
            let (offset, len) = (range.offset as i64, range.len as i64);
            fallocate(fd, mode, offset, len).map(done).map_err(errno)
        }
        Op::TruncateSlot { size, .. } => fs::ftruncate(fd, *size).map(done),
        Op::SeekData { offset, .. } => seek(fd, SeekFrom::Data(*offset)),
        Op::SeekHole { offset, .. } => seek(fd, SeekFrom::Hole(*offset)),
        Op::StatSlot { .. } => fs::fstat(fd).map(|stat| view(&stat)),
        Op::Readdir { .. } | Op::ReaddirSlot { .. } => names(fd).map(Payload::Names),
        Op::Fsync { .. } | Op::FsyncSlot { .. } => fs::fsync(fd).map(done),
        Op::FlockSlot { kind, .. } => fs::flock(fd, flock_operation(*kind)).map(done),
        Op::LockSlot {
            owner, kind, range, ..
        } => {
            let lock = lock_request(*kind, *range);
            let request = match owner {
                LockOwner::Handle => FcntlArg::F_OFD_SETLK(&lock),
                LockOwner::Process => FcntlArg::F_SETLK(&lock),
            };
            fcntl(fd, request).map(|_| Payload::Done).map_err(errno)
        }
        Op::GetLockSlot {
            owner, kind, range, ..
        } => get_lock(fd, *owner, *kind, *range),
        Op::SetFlags { flags, .. } => flags::set(fd, *flags).map(done),
        Op::GetFlags { .. } => flags::get(fd).map(|flags| Payload::Flags(flags, 0)),
        _ => unreachable!("the caller sends only operations on handles"),
    }
}

fn flock_operation(kind: Option<LockKind>) -> FlockOperation {
    match kind {
        Some(LockKind::Shared) => FlockOperation::NonBlockingLockShared,
        Some(LockKind::Exclusive) => FlockOperation::NonBlockingLockExclusive,
        None => FlockOperation::NonBlockingUnlock,
    }
}

fn lock_request(kind: Option<LockKind>, range: Range) -> libc::flock {
    let kind = match kind {
        Some(LockKind::Shared) => libc::F_RDLCK,
        Some(LockKind::Exclusive) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    };
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: range.offset as i64,
        l_len: range.len as i64,
        l_pid: 0,
    }
}

fn get_lock(fd: BorrowedFd<'_>, owner: LockOwner, kind: LockKind, range: Range) -> Answer {
    let mut lock = lock_request(Some(kind), range);
    let request = match owner {
        LockOwner::Handle => FcntlArg::F_OFD_GETLK(&mut lock),
        LockOwner::Process => FcntlArg::F_GETLK(&mut lock),
    };
    fcntl(fd, request).map_err(errno)?;
    let held = HeldLock {
        kind: match i32::from(lock.l_type) {
            libc::F_UNLCK => return Ok(Payload::Lock(None)),
            libc::F_RDLCK => LockKind::Shared,
            _ => LockKind::Exclusive,
        },
        owner: match lock.l_pid {
            -1 => LockOwner::Handle,
            _ => LockOwner::Process,
        },
        range: Range {
            offset: lock.l_start as u64,
            len: lock.l_len as u64,
        },
    };
    Ok(Payload::Lock(Some(held)))
}

fn pread(fd: BorrowedFd<'_>, range: Range) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; range.len as usize];
    let count = io::pread(fd, &mut bytes[..], range.offset)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn seek(fd: BorrowedFd<'_>, to: SeekFrom) -> Answer {
    if FileType::from_raw_mode(fs::fstat(fd)?.st_mode) == FileType::Directory {
        return Err(io::Errno::ISDIR);
    }
    fs::seek(fd, to).map(Payload::Offset)
}

fn names(fd: BorrowedFd<'_>) -> io::Result<BTreeMap<Vec<u8>, Kind>> {
    if FileType::from_raw_mode(fs::fstat(fd)?.st_mode) == FileType::Directory {
        fs::seek(fd, SeekFrom::Start(0))?;
    }
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = fs::RawDir::new(fd, &mut buffer);
    let mut names = BTreeMap::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        names.insert(
            entry.file_name().to_bytes().to_vec(),
            kind(entry.file_type()),
        );
    }
    Ok(names)
}

fn find_below(prefix: &[u8], found: &mut BTreeMap<Vec<u8>, Stat>) -> io::Result<()> {
    let path = |name: &[u8]| [prefix, b"/", name].concat();
    let fd = open(&path(b""), OFlags::DIRECTORY, 0)?;
    for name in names(fd.as_fd())?
        .into_keys()
        .filter(|name| !matches!(&name[..], b"." | b".."))
    {
        let path = path(&name);
        let stat = fs::statat(CWD, &path[..], AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            find_below(&path, found)?;
        }
        found.insert(path, stat);
    }
    Ok(())
}

fn body(path: &[u8], stat: &Stat) -> io::Result<SnapshotBody> {
    match kind(FileType::from_raw_mode(stat.st_mode)) {
        Kind::Dir => Ok(SnapshotBody::Dir),
        Kind::Symlink => Ok(SnapshotBody::Symlink(
            fs::readlinkat(CWD, path, Vec::new())?.into_bytes(),
        )),
        kind if kind.is_special() => Ok(SnapshotBody::Special {
            kind,
            device: stat.st_rdev,
        }),
        _ => {
            let fd = open(path, OFlags::empty(), 0)?;
            let size = stat.st_size as u64;
            let mut extents = Vec::new();
            let mut offset = 0;
            while let Ok(start) = fs::seek(&fd, SeekFrom::Data(offset)) {
                offset = fs::seek(&fd, SeekFrom::Hole(start))?;
                extents.push((
                    start,
                    pread(
                        fd.as_fd(),
                        Range {
                            offset: start,
                            len: offset - start,
                        },
                    )?,
                ));
            }
            Ok(SnapshotBody::from_extents(
                size,
                extents.iter().map(|(start, bytes)| (*start, &bytes[..])),
            ))
        }
    }
}
