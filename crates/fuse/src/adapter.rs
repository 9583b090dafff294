//! The transport of requests and answers: `fuser`'s trait in front of [`Server`]. Everything that
//! depends on that crate's signatures is here and in `session`.
//!
//! A handler that panics answers EIO, because an answer that is dropped unsent does that, and the
//! mount goes on.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags,
    PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use vellum::{Attr, Cred, FileKind, SetAttr};

use crate::control::ControlChannel;
use crate::convert::{file_attr, file_type, kind_of_mode, no_file, set_time};
use crate::server::{Answer, Seek, Server, Through};
use crate::stale::{Stale, Written};

/// How long the kernel may cache names and attributes. Only this mount changes the pool, so nothing
/// changes behind the kernel's back, and the time can be long.
const TTL: Duration = Duration::from_secs(86_400);
/// The largest read or write request, in bytes.
pub(crate) const REQUEST_MAX_BYTES: u32 = 1 << 20;
/// The number of background requests (such as read-ahead) that the kernel may send at once.
const BACKGROUND: u16 = 64;
/// The features requested from the kernel, if it has them.
///
/// With `ASYNC_DIO` the kernel leaves stale pages behind, and [`Stale`] makes it drop them.
/// (Measured, with 32 direct writes of 4 KiB at once: 280 000 a second with it, 208 000 if pages
/// have to be dropped, 32 000 without it.)
///
/// Not requested: `ATOMIC_O_TRUNC` (truncation comes as a change of size, so opening needs no
/// request), `AUTO_INVAL_DATA` (only this mount writes, and the kernel does not drop those pages in
/// time), `HANDLE_KILLPRIV` (without it the kernel clears set-id bits by a change of mode, under
/// its own locks), and locks (the kernel keeps them itself). `WRITEBACK_CACHE` is not requested
/// either: a write would return before its bytes are in the pool and would be lost with this
/// process, which breaks the promise. (Measured: 4 KiB appended to an open file take 2 us instead
/// of 15, but a small file opened, written and closed takes 37 us instead of 20.)
const WANTED: [InitFlags; 7] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
];

/// The implementation of `fuser`'s trait.
pub(crate) struct Adapter {
    pub(crate) server: Arc<Server>,
    pub(crate) open_requests: bool,
    pub(crate) control: ControlChannel,
    pub(crate) stale: Stale,
}

/// The kernel names the owner of locks only for requests that pass its page cache.
fn through(owner: Option<LockOwner>) -> Through {
    match owner {
        Some(_) => Through::Direct,
        None => Through::Cache,
    }
}

/// Runs a handler, and reports a panic in it.
fn guard(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::error!("a request failed by a panic and was answered with EIO");
    }
}

/// The user and group of a request, which own the files that it creates. The kernel checks
/// permissions.
fn caller(request: &Request) -> Cred {
    Cred {
        uid: request.uid(),
        gid: request.gid(),
        groups: Vec::new(),
        privileged: true,
    }
}

fn reply_entry(reply: ReplyEntry, answer: Answer<Attr>) {
    match answer {
        Ok(attr) => {
            reply.entry(
                &TTL,
                &file_attr(&attr),
                Generation(u64::from(attr.generation)),
            );
        }
        Err(errno) => reply.error(errno),
    }
}

fn reply_attr(reply: ReplyAttr, answer: Answer<Attr>) {
    match answer {
        Ok(attr) => reply.attr(&TTL, &file_attr(&attr)),
        Err(errno) => reply.error(errno),
    }
}

fn reply_empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            if config.add_capabilities(flag).is_err() {
                tracing::debug!(?flag, "this kernel lacks a requested feature");
            }
        }
        // A refusal returns the nearest possible value.
        if let Err(possible) = config.set_max_write(REQUEST_MAX_BYTES) {
            let _ = config.set_max_write(possible);
        }
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        guard(|| match self.server.lookup(parent.0, name.as_bytes()) {
            Ok(None) => reply.entry(&TTL, &no_file(), Generation(0)),
            Ok(Some(attr)) => reply_entry(reply, Ok(attr)),
            Err(errno) => reply.error(errno),
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        guard(|| self.server.forget(ino.0, lookups));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        guard(|| reply_attr(reply, self.server.attr(ino.0)));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        guard(|| {
            let set = SetAttr::new()
                .mode(mode.map(|mode| (mode & 0o7777) as u16))
                .uid(uid)
                .gid(gid)
                .size(size)
                .atime(atime.map(set_time))
                .mtime(mtime.map(set_time));
            reply_attr(reply, self.server.set_attr(ino.0, &set));
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        guard(|| match self.server.read_link(ino.0) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        guard(|| {
            let made = kind_of_mode(mode).ok_or(Errno::EINVAL).and_then(|kind| {
                self.server.mknod(
                    &caller(request),
                    parent.0,
                    name.as_bytes(),
                    kind,
                    mode,
                    rdev,
                )
            });
            reply_entry(reply, made);
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        guard(|| {
            let made = self
                .server
                .mkdir(&caller(request), parent.0, name.as_bytes(), mode);
            reply_entry(reply, made);
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guard(|| {
            reply_empty(
                reply,
                self.server
                    .unlink(&caller(request), parent.0, name.as_bytes()),
            );
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guard(|| {
            reply_empty(
                reply,
                self.server
                    .rmdir(&caller(request), parent.0, name.as_bytes()),
            );
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        guard(|| {
            let target = target.as_os_str().as_bytes();
            let cred = caller(request);
            reply_entry(
                reply,
                self.server
                    .symlink(&cred, parent.0, name.as_bytes(), target),
            );
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        guard(|| {
            let (from, to) = (
                (parent.0, name.as_bytes()),
                (new_parent.0, new_name.as_bytes()),
            );
            reply_empty(
                reply,
                self.server.rename(&caller(request), from, to, flags.bits()),
            );
        });
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        guard(|| {
            let made = self
                .server
                .link(&caller(request), ino.0, parent.0, name.as_bytes());
            reply_entry(reply, made);
        });
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.open_requests {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        } else {
            // From now on the kernel opens files without a request. It keeps the inode, and so our
            // node, as long as a file is open.
            reply.error(Errno::ENOSYS);
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        if !self.open_requests {
            // From now on the kernel requests `mknod` and opens the file itself, under the
            // directory's lock and without checking the mode. This saves a request, as there is no
            // release either.
            return reply.error(Errno::ENOSYS);
        }
        guard(|| {
            let (cred, name) = (caller(request), name.as_bytes());
            match self
                .server
                .mknod(&cred, parent.0, name, FileKind::File, mode, 0)
            {
                Ok(attr) => reply.created(
                    &TTL,
                    &file_attr(&attr),
                    Generation(u64::from(attr.generation)),
                    FileHandle(0),
                    FopenFlags::FOPEN_KEEP_CACHE,
                ),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        guard(|| {
            let no_atime = flags.0 & libc::O_NOATIME != 0;
            let reply = |read: Answer<&[u8]>| match read {
                Ok(bytes) => reply.data(bytes),
                Err(errno) => reply.error(errno),
            };
            self.server
                .read(ino.0, offset, size, no_atime, through(owner), reply);
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        guard(|| {
            let through = through(owner);
            let mut answer = self.server.write(ino.0, offset, data, through);
            // The kernel requests the fsync itself, but not after asynchronous direct writes.
            if through == Through::Direct && flags.0 & libc::O_DSYNC != 0 {
                answer = answer.and_then(|len| self.server.sync().map(|()| len));
            }
            let written = Written {
                ino,
                offset,
                len: data.len(),
                answer,
                reply,
            };
            if through == Through::Direct && self.server.may_be_cached(ino.0) {
                self.stale.drop_then_reply(written);
            } else {
                written.reply();
            }
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A close has no effect here, so the kernel need not send this request again.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        guard(|| reply_empty(reply, self.server.sync()));
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.open_requests {
            reply.opened(
                FileHandle(0),
                FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
            );
        } else {
            reply.error(Errno::ENOSYS);
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        guard(|| {
            let mut some = false;
            let done = self.server.list(ino.0, offset, &mut |entry| {
                let name = OsStr::from_bytes(entry.name);
                let kind = file_type(entry.kind);
                let is_full = reply.add(INodeNo(entry.ino), entry.cookie, kind, name);
                some |= !is_full;
                !is_full
            });
            match done {
                Ok(()) => reply.ok(),
                // The error returns when the kernel requests the following entries.
                Err(_) if some => reply.ok(),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        guard(|| {
            let mut some = false;
            let done = self.server.list_plus(ino.0, offset, &mut |entry, told| {
                let name = OsStr::from_bytes(entry.name);
                let generation = Generation(u64::from(told.attr.generation));
                let (ino, attr) = (INodeNo(entry.ino), file_attr(&told.attr));
                // Attributes that must not be cached are requested again at the first use.
                let ttl = if told.is_true { TTL } else { Duration::ZERO };
                let is_full = reply.add(ino, entry.cookie, name, &ttl, &attr, generation);
                some |= !is_full;
                !is_full
            });
            match done {
                Ok(()) => reply.ok(),
                Err(_) if some => reply.ok(),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        guard(|| reply_empty(reply, self.server.sync()));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        guard(|| match self.server.stat_fs() {
            Ok(s) => {
                let (blocks, free) = (s.blocks, s.blocks_free);
                reply.statfs(blocks, free, free, s.files, s.files_free, 4096, 255, 4096);
            }
            Err(errno) => reply.error(errno),
        });
    }

    // There are no extended attributes. This answer stops these requests, which the kernel would
    // otherwise send before every write.
    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself (`default_permissions`), so it need not send this
        // request.
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        number: u32,
        sent: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        guard(|| {
            if ino != INodeNo::ROOT {
                return reply.error(Errno::ENOTTY);
            }
            match self.control.answer(number, request.uid(), sent) {
                Ok(bytes) => reply.ioctl(0, &bytes),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        // Files are always ready, so the kernel need not send this request again.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        guard(|| reply_empty(reply, self.server.allocate(ino.0, mode, offset, len)));
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        guard(|| {
            let seek = match whence {
                libc::SEEK_DATA => Seek::Data,
                libc::SEEK_HOLE => Seek::Hole,
                _ => return reply.error(Errno::EINVAL),
            };
            let Ok(offset) = u64::try_from(offset) else {
                return reply.error(Errno::ENXIO);
            };
            match self.server.seek(ino.0, offset, seek) {
                Ok(found) => reply.offset(found as i64),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn copy_file_range(
        &self,
        _: &Request,
        ino_in: INodeNo,
        _: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _: FileHandle,
        offset_out: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        guard(|| {
            let (from, to) = ((ino_in.0, offset_in), (ino_out.0, offset_out));
            match self.server.copy_range(from, to, len) {
                Ok(copied) => reply.written(copied),
                Err(errno) => reply.error(errno),
            }
        });
    }
}
