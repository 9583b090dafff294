//! Random operations by several users, through the functions of C and on the model: each has the
//! same outcome, with the same errno.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_int};
use std::mem::MaybeUninit;
use std::ptr::{from_ref, null_mut};

use libc::timespec;
use proptest::prelude::*;
use vellum_c::{vellum_handle, vellum_lock_range};
use vellum_model::strategy::{self, Xattrs};
use vellum_model::{
    Cred, Errno, HeldLock, Kind, LockKind, LockOwner, Model, Op, Outcome, Payload, Range, StatView,
    Step, TimeSet, XattrMode, apply, pattern,
};

use crate::functions::*;

const CLOCK_START: i64 = 1_767_225_600_000_000_000;
const STEPS: usize = 60;
const STAT_BYTES: usize = size_of::<vellum_c::vellum_stat>();

type Returned<T> = Result<T, Errno>;

/// What a call returned, or its errno.
fn returned(number: impl Into<i64>) -> Returned<i64> {
    match number.into() {
        number @ 0.. => Ok(number),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Errno(error.raw_os_error().expect("an errno")))
        }
    }
}

fn text(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("the model makes no zero bytes")
}

/// A pool, used through the functions of C.
struct Library {
    pool: vellum_handle,
    /// The volume of each user.
    volumes: Vec<(Cred, vellum_handle)>,
    slots: BTreeMap<u8, vellum_handle>,
}

/// `struct vellum_cred`.
#[repr(C)]
struct User {
    uid: u32,
    gid: u32,
    groups: *const u32,
    group_count: usize,
    umask: u32,
    reserved: u32,
}

impl Drop for Library {
    fn drop(&mut self) {
        let handles = self.slots.values();
        let handles = handles.chain(self.volumes.iter().map(|(_, volume)| volume));
        // SAFETY: takes no pointer.
        handles.for_each(|&handle| unsafe {
            vellum_close(handle);
        });
        // SAFETY: takes no pointer.
        unsafe { vellum_pool_close(self.pool) };
    }
}

impl Library {
    fn new() -> Self {
        let mut library = Self {
            // SAFETY: takes no pointer.
            pool: returned(unsafe { vellum_pool_memory(64 << 20) }).expect("made"),
            volumes: Vec::new(),
            slots: BTreeMap::new(),
        };
        let root = library.volume(&Cred::superuser());
        // SAFETY: a path.
        returned(unsafe { vellum_chown(root, c"/".as_ptr(), 0, 0) }).expect("given");
        library
    }

    fn volume(&mut self, cred: &Cred) -> vellum_handle {
        if let Some((_, volume)) = self.volumes.iter().find(|(known, _)| known == cred) {
            return *volume;
        }
        let user = User {
            uid: cred.uid,
            gid: cred.gid,
            groups: cred.groups.as_ptr(),
            group_count: cred.groups.len(),
            umask: 0,
            reserved: 0,
        };
        let (at, size) = (from_ref(&user).cast(), size_of::<User>());
        // SAFETY: `User` is `struct vellum_cred`, and its groups are there.
        let volume = returned(unsafe { vellum_volume_open(self.pool, at, size) });
        let volume = volume.expect("opened");
        self.volumes.push((cred.clone(), volume));
        volume
    }

    fn slot(&self, slot: u8) -> Returned<vellum_handle> {
        self.slots.get(&slot).copied().ok_or(Errno::EBADF)
    }

    fn outcome(&mut self, step: &Step) -> Outcome {
        match self.apply(&step.op, &step.cred) {
            Ok(payload) => Outcome::Ok(payload),
            Err(errno) => Outcome::Err(errno),
        }
    }

    fn apply(&mut self, op: &Op, cred: &Cred) -> Returned<Payload> {
        let at = self.volume(cred);
        if let Some(slot) = op.handle_slot() {
            return on_handle(self.slot(slot)?, op);
        }
        if let Some((path, flags)) = op.opens() {
            let file = open(at, path, flags, 0)?;
            let payload = on_handle(file, op);
            // SAFETY: takes no pointer.
            returned(unsafe { vellum_close(file) })?;
            return payload;
        }
        match op {
            Op::Open {
                slot,
                path,
                flags,
                mode,
            } => {
                let file = open(at, path, *flags, *mode)?;
                if let Some(before) = self.slots.insert(*slot, file) {
                    // SAFETY: takes no pointer.
                    returned(unsafe { vellum_close(before) })?;
                }
            }
            Op::CloseSlot { slot } => {
                let file = self.slots.remove(slot).ok_or(Errno::EBADF)?;
                // SAFETY: takes no pointer.
                returned(unsafe { vellum_close(file) })?;
            }
            _ => return on_path(at, op),
        }
        Ok(Payload::Done)
    }
}

fn open(at: vellum_handle, path: &[u8], flags: c_int, mode: u32) -> Returned<vellum_handle> {
    // SAFETY: a path.
    returned(unsafe { vellum_open(at, text(path).as_ptr(), flags, mode) })
}

fn done(number: impl Into<i64>) -> Returned<Payload> {
    returned(number).map(|_| Payload::Done)
}

fn kind_of(mode: u32) -> Kind {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => Kind::Dir,
        libc::S_IFLNK => Kind::Symlink,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFSOCK => Kind::Socket,
        libc::S_IFCHR => Kind::CharDevice,
        libc::S_IFBLK => Kind::BlockDevice,
        _ => Kind::File,
    }
}

fn type_of(kind: Kind) -> u32 {
    match kind {
        Kind::Dir => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::CharDevice => libc::S_IFCHR,
        Kind::BlockDevice => libc::S_IFBLK,
        Kind::File => libc::S_IFREG,
    }
}

/// Runs a call that writes attributes.
fn stat(call: impl FnOnce(*mut vellum_c::vellum_stat) -> c_int) -> Returned<vellum_c::vellum_stat> {
    let mut stat = MaybeUninit::uninit();
    returned(call(stat.as_mut_ptr()))?;
    // SAFETY: the call has succeeded, and written it.
    Ok(unsafe { stat.assume_init() })
}

fn view(stat: &vellum_c::vellum_stat) -> Payload {
    let view = StatView {
        kind: kind_of(stat.mode),
        mode: stat.mode & 0o7777,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size_bytes,
        blocks: stat.blocks_512,
    };
    Payload::Stat(view.comparable())
}

/// The time for `utimensat`.
fn time(time: Option<TimeSet>) -> timespec {
    const NS: i64 = 1_000_000_000;
    match time {
        None => timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        Some(TimeSet::Now) => timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_NOW,
        },
        Some(TimeSet::At(ns)) => timespec {
            tv_sec: ns.div_euclid(NS),
            tv_nsec: ns.rem_euclid(NS),
        },
    }
}

/// Runs a call that returns bytes: first for their number, then for the bytes.
fn bytes(call: impl Fn(*mut std::ffi::c_void, usize) -> libc::ssize_t) -> Returned<Vec<u8>> {
    let len = returned(call(null_mut(), 0) as i64)? as usize;
    let mut bytes = vec![0; len];
    let again = returned(call(bytes.as_mut_ptr().cast(), len) as i64)?;
    assert_eq!(again as usize, len);
    Ok(bytes)
}

// SAFETY of the calls below: paths and names end at zero bytes, buffers have their lengths, and
// structures are those of `vellum.h`.
fn on_path(at: vellum_handle, op: &Op) -> Returned<Payload> {
    match op {
        Op::Create {
            path,
            mode,
            exclusive,
        } => {
            let exclusive = if *exclusive { libc::O_EXCL } else { 0 };
            let flags = libc::O_CREAT | libc::O_WRONLY | exclusive;
            let file = open(at, path, flags, *mode)?;
            // SAFETY: takes no pointer.
            done(unsafe { vellum_close(file) })
        }
        // SAFETY: see above.
        Op::Mkdir { path, mode } => done(unsafe { vellum_mkdir(at, text(path).as_ptr(), *mode) }),
        Op::Mknod {
            path,
            kind,
            mode,
            device,
        } => {
            let mode = type_of(*kind) | mode;
            // SAFETY: see above.
            done(unsafe { vellum_mknod(at, text(path).as_ptr(), mode, *device) })
        }
        Op::Symlink { target, path } => {
            // SAFETY: see above.
            done(unsafe { vellum_symlink(text(target).as_ptr(), at, text(path).as_ptr()) })
        }
        Op::Link { from, to } => {
            // SAFETY: see above.
            done(unsafe { vellum_link(at, text(from).as_ptr(), at, text(to).as_ptr(), 0) })
        }
        // SAFETY: see above.
        Op::Unlink { path } => done(unsafe { vellum_unlink(at, text(path).as_ptr()) }),
        // SAFETY: see above.
        Op::Rmdir { path } => done(unsafe { vellum_rmdir(at, text(path).as_ptr()) }),
        Op::Rename { from, to, flags } => {
            // SAFETY: see above.
            done(unsafe { vellum_rename(at, text(from).as_ptr(), at, text(to).as_ptr(), *flags) })
        }
        // SAFETY: takes no pointer.
        Op::Sync => done(unsafe { vellum_sync(at) }),
        Op::Truncate { path, size } => {
            // SAFETY: see above.
            done(unsafe { vellum_truncate(at, text(path).as_ptr(), *size as i64) })
        }
        // SAFETY: see above.
        Op::Chmod { path, mode } => done(unsafe { vellum_chmod(at, text(path).as_ptr(), *mode) }),
        Op::Chown {
            path,
            uid,
            gid,
            follow,
        } => {
            let call = if *follow { vellum_chown } else { vellum_lchown };
            let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
            // SAFETY: see above.
            done(unsafe { call(at, text(path).as_ptr(), uid, gid) })
        }
        Op::Utimens {
            path,
            atime,
            mtime,
            follow,
        } => utimens(at, path, [*atime, *mtime], *follow),
        _ => look(at, op),
    }
}

fn utimens(
    at: vellum_handle,
    path: &[u8],
    set: [Option<TimeSet>; 2],
    follow: bool,
) -> Returned<Payload> {
    let times = set.map(time);
    let call = if follow {
        vellum_utimens
    } else {
        vellum_lutimens
    };
    // SAFETY: two times.
    returned(unsafe { call(at, text(path).as_ptr(), times.as_ptr()) })?;
    if set == [None, None] {
        return Ok(Payload::Done);
    }
    let call = if follow { vellum_stat } else { vellum_lstat };
    // SAFETY: the structure and its size.
    let found = stat(|out| unsafe { call(at, text(path).as_ptr(), out, STAT_BYTES) })?;
    let explicit = |set, ns| matches!(set, Some(TimeSet::At(_))).then_some(ns);
    let times = [
        explicit(set[0], found.atime_ns),
        explicit(set[1], found.mtime_ns),
        None,
    ];
    Ok(Payload::Times(times))
}

fn look(at: vellum_handle, op: &Op) -> Returned<Payload> {
    match op {
        Op::Readlink { path } => {
            let mut target = vec![0; 5000];
            let (out, size) = (target.as_mut_ptr().cast(), target.len());
            // SAFETY: a path, and a buffer with its length.
            let len = unsafe { vellum_readlink(at, text(path).as_ptr(), out, size) };
            target.truncate(returned(len as i64)? as usize);
            Ok(Payload::Bytes(target))
        }
        Op::Stat { path, follow } => {
            let call = if *follow { vellum_stat } else { vellum_lstat };
            // SAFETY: the structure and its size.
            let found = stat(|out| unsafe { call(at, text(path).as_ptr(), out, STAT_BYTES) })?;
            Ok(view(&found))
        }
        Op::Access { path, mask } => {
            // SAFETY: a path.
            done(unsafe { vellum_access(at, text(path).as_ptr(), *mask as c_int) })
        }
        Op::GetXattr { path, name, follow } => {
            let call = if *follow {
                vellum_getxattr
            } else {
                vellum_lgetxattr
            };
            let (path, name) = (text(path), text(name));
            // SAFETY: a path, a name, and a buffer with its length.
            let get = |out, size| unsafe { call(at, path.as_ptr(), name.as_ptr(), out, size) };
            bytes(get).map(Payload::Bytes)
        }
        Op::ListXattr { path, follow } => {
            let call = if *follow {
                vellum_listxattr
            } else {
                vellum_llistxattr
            };
            let path = text(path);
            // SAFETY: a path, and a buffer with its length.
            let list = bytes(|out, size| unsafe { call(at, path.as_ptr(), out, size) })?;
            let names = list.split(|&b| b == 0).filter(|name| !name.is_empty());
            Ok(Payload::Xattrs(
                names.map(<[u8]>::to_vec).collect::<BTreeSet<_>>(),
            ))
        }
        Op::SetXattr {
            path,
            name,
            value,
            mode,
            follow,
        } => {
            let call = if *follow {
                vellum_setxattr
            } else {
                vellum_lsetxattr
            };
            let flags = match mode {
                XattrMode::Any => 0,
                XattrMode::Create => libc::XATTR_CREATE,
                XattrMode::Replace => libc::XATTR_REPLACE,
            };
            let (path, name, value) = (text(path), text(name), value.bytes());
            let (value, size) = (value.as_ptr().cast(), value.len());
            // SAFETY: a path, a name, and a value with its length.
            done(unsafe { call(at, path.as_ptr(), name.as_ptr(), value, size, flags) })
        }
        Op::RemoveXattr { path, name, follow } => {
            let call = if *follow {
                vellum_removexattr
            } else {
                vellum_lremovexattr
            };
            // SAFETY: a path and a name.
            done(unsafe { call(at, text(path).as_ptr(), text(name).as_ptr()) })
        }
        _ => unreachable!("the strategy makes no such operation: {op}"),
    }
}

fn on_handle(file: vellum_handle, op: &Op) -> Returned<Payload> {
    match op {
        Op::Write {
            offset, seed, len, ..
        }
        | Op::WriteSlot {
            offset, seed, len, ..
        } => {
            let data = pattern(*seed, *len);
            let (at, len) = (data.as_ptr().cast(), data.len());
            // SAFETY: bytes with their length.
            let written = unsafe { vellum_pwrite(file, at, len, *offset as i64) };
            returned(written as i64).map(|count| Payload::Count(count as u64))
        }
        Op::Append { seed, len, .. } => {
            let data = pattern(*seed, *len);
            // SAFETY: bytes with their length.
            let written = unsafe { vellum_write(file, data.as_ptr().cast(), data.len()) };
            returned(written as i64).map(|count| Payload::Count(count as u64))
        }
        Op::Read { range, .. } | Op::ReadSlot { range, .. } => {
            let mut data = vec![0xA5; range.len as usize];
            let (out, len) = (data.as_mut_ptr().cast(), data.len());
            // SAFETY: a buffer with its length.
            let read = unsafe { vellum_pread(file, out, len, range.offset as i64) };
            data.truncate(returned(read as i64)? as usize);
            Ok(Payload::Bytes(data))
        }
        Op::Fallocate { mode, range, .. } | Op::FallocateSlot { mode, range, .. } => {
            let (offset, len) = (range.offset as i64, range.len as i64);
            // SAFETY: takes no pointer.
            done(unsafe { vellum_fallocate(file, *mode, offset, len) })
        }
        // SAFETY: takes no pointer.
        Op::TruncateSlot { size, .. } => done(unsafe { vellum_ftruncate(file, *size as i64) }),
        Op::SeekData { offset, .. } => seek(file, *offset, libc::SEEK_DATA),
        Op::SeekHole { offset, .. } => seek(file, *offset, libc::SEEK_HOLE),
        Op::StatSlot { .. } => {
            // SAFETY: the structure and its size.
            let found = stat(|out| unsafe { vellum_fstat(file, out, STAT_BYTES) })?;
            Ok(view(&found))
        }
        Op::Readdir { .. } | Op::ReaddirSlot { .. } => list(file),
        // SAFETY: takes no pointer.
        Op::Fsync { .. } | Op::FsyncSlot { .. } => done(unsafe { vellum_fsync(file) }),
        _ => on_locks(file, op),
    }
}

fn seek(file: vellum_handle, offset: u64, whence: c_int) -> Returned<Payload> {
    // SAFETY: takes no pointer.
    let found = returned(unsafe { vellum_lseek(file, offset as i64, whence) });
    found.map(|offset| Payload::Offset(offset as u64))
}

fn list(dir: vellum_handle) -> Returned<Payload> {
    // SAFETY: takes no pointer.
    returned(unsafe { vellum_seekdir(dir, 0) })?;
    let mut names = BTreeMap::new();
    let mut entry = MaybeUninit::<vellum_c::vellum_dirent>::uninit();
    // SAFETY: the structure and its size.
    while returned(unsafe { vellum_readdir(dir, entry.as_mut_ptr(), size_of_val(&entry)) })? == 1 {
        // SAFETY: the call has succeeded, and written it.
        let entry = unsafe { entry.assume_init_ref() };
        let name = &entry.name[..usize::from(entry.name_bytes)];
        let name: Vec<u8> = name.iter().map(|&byte| byte as u8).collect();
        let before = names.insert(name, kind_of(u32::from(entry.kind) << 12));
        assert_eq!(before, None, "a name was listed twice");
    }
    // SAFETY: the structure and its size.
    let found = stat(|out| unsafe { vellum_fstat(dir, out, STAT_BYTES) })?;
    // The kernel lists no removed directory.
    if names.is_empty() && found.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    names.extend([b".", &b".."[..]].map(|name| (name.to_vec(), Kind::Dir)));
    Ok(Payload::Names(names))
}

fn on_locks(file: vellum_handle, op: &Op) -> Returned<Payload> {
    let whole = |kind: &Option<LockKind>| match kind {
        Some(LockKind::Shared) => libc::LOCK_SH,
        Some(LockKind::Exclusive) => libc::LOCK_EX,
        None => libc::LOCK_UN,
    };
    let part = |kind: Option<LockKind>, range: &Range| vellum_lock_range {
        kind: match kind {
            Some(LockKind::Shared) => libc::F_RDLCK as i16,
            Some(LockKind::Exclusive) => libc::F_WRLCK as i16,
            None => libc::F_UNLCK as i16,
        },
        whence: libc::SEEK_SET as i16,
        pid: 0,
        start: range.offset as i64,
        length: range.len as i64,
    };
    match op {
        Op::FlockSlot { kind, .. } => {
            // SAFETY: takes no pointer.
            done(unsafe { vellum_flock(file, whole(kind) | libc::LOCK_NB) })
        }
        Op::LockSlot {
            owner, kind, range, ..
        } => {
            let command = match owner {
                LockOwner::Handle => libc::F_OFD_SETLK,
                LockOwner::Process => libc::F_SETLK,
            };
            let mut asked = part(*kind, range);
            // SAFETY: the structure.
            done(unsafe { vellum_lock(file, command, &raw mut asked) })
        }
        Op::GetLockSlot {
            owner, kind, range, ..
        } => {
            let command = match owner {
                LockOwner::Handle => libc::F_OFD_GETLK,
                LockOwner::Process => libc::F_GETLK,
            };
            let mut found = part(Some(*kind), range);
            // SAFETY: the structure.
            returned(unsafe { vellum_lock(file, command, &raw mut found) })?;
            let kind = match c_int::from(found.kind) {
                libc::F_RDLCK => LockKind::Shared,
                libc::F_WRLCK => LockKind::Exclusive,
                _ => return Ok(Payload::Lock(None)),
            };
            Ok(Payload::Lock(Some(HeldLock {
                kind,
                owner: match found.pid {
                    -1 => LockOwner::Handle,
                    _ => LockOwner::Process,
                },
                range: Range {
                    offset: found.start as u64,
                    len: found.length as u64,
                },
            })))
        }
        _ => unreachable!("the strategy makes no such operation: {op}"),
    }
}

/// Whether the functions have the operation, and its outcome is not one of the clock.
fn is_there(op: &Op) -> bool {
    !matches!(
        op,
        Op::Times { .. } | Op::SetFlags { .. } | Op::SetProject { .. } | Op::GetFlags { .. }
    )
}

fn agrees(steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut model, mut library) = (Model::new(CLOCK_START), Library::new());
    let mut openers = BTreeMap::new();
    for (number, step) in steps
        .iter()
        .enumerate()
        .filter(|(_, step)| is_there(&step.op))
    {
        let found = library.outcome(step);
        if found == Outcome::Err(Errno::ENOSPC) {
            break; // The model's disk is larger.
        }
        let opener = step.op.handle_slot().and_then(|slot| openers.get(&slot));
        let cred = opener.unwrap_or(&step.cred).clone();
        let now = CLOCK_START + number as i64 + 1;
        let expected = apply(&mut model, &step.op, &cred, now);
        if let (Op::Open { slot, .. }, Outcome::Ok(_)) = (&step.op, &expected) {
            openers.insert(*slot, cred);
        }
        prop_assert_eq!(expected, found, "model and library, {}", step);
    }
    Ok(())
}

/// The number of random sequences: `VELLUM_CASES`, or 200.
fn cases() -> u32 {
    let cases = std::env::var("VELLUM_CASES");
    cases
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_outcome_is_the_models(steps in strategy::steps(STEPS, Xattrs::WithLists)) {
        agrees(&steps)?;
    }
}
