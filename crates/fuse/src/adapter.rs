//! Translates requests for [`Server`], and its answers.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use vellum::{Attr, Cred, Durability, FileKind, MediaKind, RealFs, SetAttr, XattrMode};
use vellum_transport::{
    Entry, FileSystem, FileSystemSize, Notifier, OpenFlags, Operation, ROOT, Reply, Request,
    Through,
};

use crate::control::ControlChannel;
use crate::convert::{attr, kind_bits, kind_of_mode, set_time, statx_flags, time};
use crate::flags::{is_of_flags, sets_flags};
use crate::seek::Seeking;
use crate::server::{Answer, Seek, Server};
use crate::set_ids::Changer;
use crate::stale::{Stale, Written};
use crate::trim::FITRIM;

/// How long the kernel may cache names and attributes. Only this mount changes the pool, so nothing
/// changes behind the kernel's back, and the time can be long.
const TTL: Duration = Duration::from_secs(86_400);

/// Answers the requests of a mount.
pub(crate) struct Adapter {
    pub(crate) server: Arc<Server>,
    pub(crate) open_requests: bool,
    pub(crate) xattrs: bool,
    pub(crate) control: ControlChannel,
    pub(crate) stale: Stale,
    pub(crate) kernel: Notifier,
    pub(crate) waits: Waits,
    /// Whether the kernel gathers writes (`-o writeback`).
    pub(crate) gathers: bool,
}

/// What may wait for a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    pub(crate) reads: bool,
    writes: bool,
    /// Changes of names and attributes.
    changes: bool,
}

impl Waits {
    pub(crate) fn of(fs: &RealFs) -> Self {
        let in_memory = matches!(fs.media_kind(), MediaKind::Dax | MediaKind::Memory);
        Self {
            reads: !in_memory || fs.data_devices().next().is_some(),
            writes: fs.is_direct(),
            changes: fs.durability() != Durability::Async && fs.commits(),
        }
    }

    /// Whether a copy may wait that has this number of bytes.
    fn copy(self, bytes: u64) -> bool {
        self.reads || self.writes || self.changes || bytes > QUICK_BYTES as u64
    }
}

/// More bytes than this take so long to copy that other requests should not wait.
const QUICK_BYTES: usize = 128 << 10;

/// The user and group of a request, which own the files that it creates. The kernel checks
/// permissions.
fn caller(request: &Request<'_>) -> Cred {
    Cred {
        uid: request.uid,
        gid: request.gid,
        groups: Vec::new(),
        privileged: true,
        umask: 0,
    }
}

fn entry_of(found: &Attr) -> Entry {
    Entry {
        node: found.ino,
        generation: u64::from(found.generation),
        name_ttl: TTL,
        attr_ttl: TTL,
        attr: attr(found),
    }
}

/// Answers with the error, or passes the success to `give`.
pub(crate) fn reply_with<T>(reply: Reply, answer: Answer<T>, give: impl FnOnce(Reply, T)) {
    match answer {
        Ok(found) => give(reply, found),
        Err(errno) => reply.error(errno),
    }
}

fn reply_entry(reply: Reply, answer: Answer<Attr>) {
    reply_with(reply, answer, |reply, found| reply.entry(&entry_of(&found)));
}

fn reply_attr(reply: Reply, answer: Answer<Attr>) {
    reply_with(reply, answer, |reply, found| reply.attr(attr(&found), TTL));
}

fn reply_empty(reply: Reply, answer: Answer<()>) {
    reply_with(reply, answer, |reply, ()| reply.empty());
}

impl FileSystem for Adapter {
    fn answer(&self, request: Request<'_>, reply: Reply) {
        let (server, node) = (&self.server, request.node);
        match request.operation {
            Operation::Lookup { name } => self.lookup(node, name, reply),
            Operation::GetAttr => reply_attr(reply, server.attr(node)),
            Operation::Statx => {
                reply_with(reply, server.statx(node), |reply, (found, born, flags)| {
                    reply.statx(&attr(&found), born.map(time), statx_flags(flags), TTL);
                });
            }
            Operation::SetAttr(sent) => {
                let set = SetAttr::new()
                    .mode(sent.mode.map(|mode| (mode & 0o7777) as u16))
                    .uid(sent.uid)
                    .gid(sent.gid)
                    .size(sent.size)
                    .atime(sent.atime.map(set_time))
                    .mtime(sent.mtime.map(set_time));
                // The time of writes that were gathered, which the engine dates itself.
                let is_of_writes = sent.has_change_time && set == SetAttr::new().mtime(set.mtime);
                if is_of_writes && server.is_guarded(node) {
                    return reply_attr(reply, server.attr(node));
                }
                let changer = Changer::of(&request);
                if set == SetAttr::default() {
                    return reply_attr(reply, server.chown_to_same(node, changer));
                }
                let drops_set_ids = sent.drops_set_ids || set.uid.is_some() || set.gid.is_some();
                let changer = drops_set_ids.then_some(changer);
                reply_attr(reply, server.set_attr(node, &set, request.uid, changer));
            }
            Operation::ReadLink => {
                let target = server.read_link(node);
                reply_with(reply, target, |reply, target| reply.data(&target));
            }
            Operation::Symlink { .. }
            | Operation::MkNod { .. }
            | Operation::MkDir { .. }
            | Operation::Create { .. }
            | Operation::CreateUnnamed { .. }
            | Operation::Link { .. } => self.make(&request, reply),
            Operation::Unlink { name } => {
                reply_empty(reply, server.unlink(&caller(&request), node, name));
            }
            Operation::RmDir { name } => {
                reply_empty(reply, server.rmdir(&caller(&request), node, name));
            }
            Operation::Rename {
                name,
                new_dir,
                new_name,
                flags,
            } => {
                let (from, to) = ((node, name), (new_dir, new_name));
                reply_empty(reply, server.rename(&caller(&request), from, to, flags));
            }
            Operation::Open { flags } if self.open_requests => {
                let checked = server.check_open(node, flags);
                reply_with(reply, checked, |reply, ()| {
                    reply.opened(OpenFlags::KeepCache)
                });
            }
            Operation::Open { .. } => self.open(reply, OpenFlags::KeepCache),
            Operation::OpenDir => self.open(reply, OpenFlags::CacheDirectory),
            Operation::Read {
                offset,
                size,
                flags,
                through,
            } => {
                let no_atime = flags as i32 & libc::O_NOATIME != 0;
                reply.fill(size, |out| {
                    server.read(node, offset, out, no_atime, through)
                });
            }
            Operation::Write { .. } => self.write(&request, reply),
            Operation::Release => reply.empty(),
            Operation::Sync => reply_empty(reply, server.sync()),
            Operation::ReadDir { after, size } => self.list(node, after, size, reply),
            Operation::ReadDirPlus { after, size } => self.list_plus(node, after, size, reply),
            Operation::SetXattr { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::RemoveXattr { .. }
                if self.xattrs =>
            {
                self.of_xattrs(&request, reply);
            }
            Operation::StatFs => self.stat_fs(node, reply),
            Operation::Ioctl { number, .. } if is_of_flags(number) => {
                self.of_flags(&request, reply);
            }
            Operation::Ioctl { number, sent, .. } if number == FITRIM && node == ROOT => {
                self.trim(&request, sent, reply);
            }
            Operation::Ioctl { number, sent, .. } => {
                if node != ROOT {
                    return reply.error(Errno::NOTTY);
                }
                let answer = self.control.answer(number, Changer::of(&request), sent);
                reply_with(reply, answer, |reply, bytes| reply.ioctl(&bytes));
            }
            Operation::Allocate { mode, offset, len } => {
                let dropped = self.drop_set_ids(node, &request, request.uid != 0);
                let done =
                    dropped.and_then(|()| server.allocate(node, mode, (offset, len), request.uid));
                reply_empty(reply, done);
            }
            Operation::Seek { offset, whence } => self.seek(node, offset, whence, reply),
            Operation::CopyRange {
                offset,
                to_node,
                to_offset,
                len,
            } => {
                let dropped = self.drop_set_ids(to_node, &request, request.uid != 0);
                let (from, to) = ((node, offset), (to_node, to_offset));
                let copied = dropped.and_then(|()| server.copy_range(from, to, len, request.uid));
                reply_with(reply, copied, Reply::written);
            }
            // The kernel need not send these again. A close has no effect (FLUSH), files are always
            // ready (POLL), the kernel checks permissions itself (ACCESS), and what is interrupted
            // (INTERRUPT) is finished all the same.
            Operation::SetXattr { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::RemoveXattr { .. }
            | Operation::Other { .. } => reply.error(Errno::NOSYS),
        }
    }

    fn may_wait(&self, request: &Request<'_>) -> bool {
        let Waits {
            reads,
            writes,
            changes,
        } = self.waits;
        match request.operation {
            Operation::Read { size, .. } => reads || size as usize > QUICK_BYTES,
            Operation::Write { data, .. } => writes || changes || data.len() > QUICK_BYTES,
            Operation::CopyRange { offset, len, .. } => {
                let left = self.server.bytes_from(request.node, offset);
                self.waits.copy(left.min(len))
            }
            // Others are refused at once, as when a program asks whether a file is a terminal.
            Operation::Ioctl { number, .. } if is_of_flags(number) => changes && sets_flags(number),
            Operation::Ioctl { .. } => request.node == ROOT,
            Operation::Sync | Operation::Allocate { .. } => true,
            Operation::Lookup { .. }
            | Operation::GetAttr
            | Operation::Statx
            | Operation::ReadLink
            | Operation::Open { .. }
            | Operation::Release
            | Operation::OpenDir
            | Operation::ReadDir { .. }
            | Operation::ReadDirPlus { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::StatFs
            | Operation::Seek { .. }
            | Operation::Other { .. } => false,
            Operation::SetAttr(_)
            | Operation::SetXattr { .. }
            | Operation::RemoveXattr { .. }
            | Operation::Symlink { .. }
            | Operation::MkNod { .. }
            | Operation::MkDir { .. }
            | Operation::Unlink { .. }
            | Operation::RmDir { .. }
            | Operation::Rename { .. }
            | Operation::Link { .. }
            | Operation::Create { .. }
            | Operation::CreateUnnamed { .. } => changes,
        }
    }

    fn forget(&self, node: u64, lookups: u64) {
        self.server.forget(node, lookups);
    }
}

impl Adapter {
    fn lookup(&self, dir: u64, name: &[u8], reply: Reply) {
        // The kernel caches that a name does not exist.
        let absent = Entry {
            name_ttl: TTL,
            ..Entry::default()
        };
        reply_with(reply, self.server.lookup(dir, name), |reply, found| {
            reply.entry(&found.as_ref().map_or(absent, entry_of));
        });
    }

    /// Answers the requests that make names.
    fn make(&self, request: &Request<'_>, reply: Reply) {
        let (server, dir) = (&self.server, request.node);
        let umask = match request.operation {
            Operation::MkNod { umask, .. }
            | Operation::MkDir { umask, .. }
            | Operation::Create { umask, .. }
            | Operation::CreateUnnamed { umask, .. } => umask as u16,
            _ => 0,
        };
        let cred = &Cred {
            umask,
            ..caller(request)
        };
        let made = match request.operation {
            Operation::MkNod {
                name, mode, device, ..
            } => {
                let kind = kind_of_mode(mode).ok_or(Errno::INVAL);
                kind.and_then(|kind| server.mknod(cred, dir, name, kind, mode, device))
            }
            Operation::MkDir { name, mode, .. } => server.mkdir(cred, dir, name, mode),
            Operation::Symlink { name, target } => server.symlink(cred, dir, name, target),
            Operation::Link { node, new_name } => server.link(cred, node, dir, new_name),
            Operation::CreateUnnamed { mode, .. } => {
                let made = server.create_unnamed(cred, dir, mode);
                return reply_with(reply, made, |reply, made| {
                    reply.created(&entry_of(&made), OpenFlags::KeepCache);
                });
            }
            Operation::Create { name, mode, .. } if self.open_requests => {
                match server.mknod(cred, dir, name, FileKind::File, mode, 0) {
                    Ok(made) => return reply.created(&entry_of(&made), OpenFlags::KeepCache),
                    Err(errno) => Err(errno),
                }
            }
            // From now on the kernel requests `mknod` and opens the file itself, under the
            // directory's lock and without checking the mode. This saves a request, as there is no
            // release either.
            _ => Err(Errno::NOSYS),
        };
        reply_entry(reply, made);
    }

    fn open(&self, reply: Reply, flags: OpenFlags) {
        if self.open_requests {
            reply.opened(flags);
        } else {
            // From now on the kernel opens without a request. It keeps the inode, and so our node,
            // as long as the file is open.
            reply.error(Errno::NOSYS);
        }
    }

    /// Drops the set-id bits that a change of the content drops, if `drops`: the kernel says so, or
    /// cannot. Then the kernel forgets the mode.
    fn drop_set_ids(&self, ino: u64, request: &Request<'_>, drops: bool) -> Answer<()> {
        if drops && self.server.drop_set_ids(ino, Changer::of(request))? {
            // It fails if the kernel does not know the file any more.
            let _ = self.kernel.drop_attributes(ino);
        }
        Ok(())
    }

    fn write(&self, request: &Request<'_>, reply: Reply) {
        let Operation::Write {
            offset,
            data,
            flags,
            through,
            drops_set_ids,
            writes_back,
        } = request.operation
        else {
            return reply.error(Errno::IO);
        };
        let ino = request.node;
        let dropped = self.drop_set_ids(ino, request, drops_set_ids);
        let mut answer = dropped.and_then(|()| match writes_back {
            true => self.server.write_back(ino, offset, data),
            false => self
                .server
                .write(ino, offset, data, (flags, through), request.uid),
        });
        // The kernel requests the fsync itself, but not after asynchronous direct writes.
        if through == Through::Direct && flags as i32 & libc::O_DSYNC != 0 {
            answer = answer.and_then(|len| self.server.sync().map(|()| len));
        }
        let written = Written {
            ino,
            offset,
            len: data.len() as u64,
            answer,
            reply,
        };
        if through == Through::Direct && self.server.may_be_cached(ino) {
            self.stale.drop_then_reply(written);
        } else {
            written.reply();
        }
    }

    /// Answers the requests on extended attributes. The kernel has checked permissions, except that
    /// it does not hide names from a list.
    fn of_xattrs(&self, request: &Request<'_>, reply: Reply) {
        let (server, node) = (&self.server, request.node);
        let give = |size| move |reply: Reply, bytes: Vec<u8>| reply.xattr(size, &bytes);
        match request.operation {
            Operation::GetXattr { name, size } => {
                reply_with(reply, server.xattr(node, name), give(size));
            }
            Operation::ListXattr { size } => {
                let cred = Cred::user(request.uid, request.gid);
                reply_with(reply, server.xattrs(&cred, node), give(size));
            }
            Operation::SetXattr {
                name,
                value,
                flags,
                drops_set_gid,
            } => {
                let mode = match flags as i32 {
                    0 => Ok(XattrMode::Any),
                    libc::XATTR_CREATE => Ok(XattrMode::Create),
                    libc::XATTR_REPLACE => Ok(XattrMode::Replace),
                    _ => Err(Errno::INVAL),
                };
                let set = mode
                    .and_then(|mode| server.set_xattr(node, (name, value), mode, drops_set_gid));
                reply_empty(reply, set);
            }
            Operation::RemoveXattr { name } => {
                reply_empty(reply, server.remove_xattr(node, name, request.pid));
            }
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn list(&self, dir: u64, after: u64, size: u32, reply: Reply) {
        reply.listing(size, |listing| {
            self.server.list(dir, after, &mut |entry| {
                listing.add(entry.ino, entry.cookie, kind_bits(entry.kind), entry.name)
            })
        });
    }

    fn list_plus(&self, dir: u64, after: u64, size: u32, reply: Reply) {
        reply.listing(size, |listing| {
            self.server.list_plus(dir, after, &mut |entry, told| {
                // Attributes that must not be cached are requested again at the first use.
                let ttl = if told.is_true { TTL } else { Duration::ZERO };
                let listed = Entry {
                    name_ttl: ttl,
                    attr_ttl: ttl,
                    ..entry_of(&told.attr)
                };
                listing.add_with_attr(&listed, entry.cookie, entry.name)
            })
        });
    }

    fn stat_fs(&self, node: u64, reply: Reply) {
        reply_with(reply, self.server.stat_fs(node), |reply, size| {
            reply.stat_fs(&FileSystemSize {
                block_bytes: 4096,
                blocks: size.blocks,
                blocks_free: size.blocks_free,
                files: size.files,
                files_free: size.files_free,
                name_max: 255,
            });
        });
    }

    fn seek(&self, ino: u64, offset: i64, whence: i32, reply: Reply) {
        let seek = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::INVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::NXIO);
        };
        let seeking = Seeking {
            server: Arc::clone(&self.server),
            stale: self.stale.clone(),
            gathers: self.gathers,
            ino,
            offset,
            seek,
            reply,
        };
        seeking.answer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_copy_inside_memory_does_not_wait() {
        let memory = Waits {
            reads: false,
            writes: false,
            changes: false,
        };
        let disk = Waits {
            reads: true,
            ..memory
        };
        assert!(!memory.copy(QUICK_BYTES as u64));
        assert!(memory.copy(QUICK_BYTES as u64 + 1));
        assert!(disk.copy(1));
    }
}
