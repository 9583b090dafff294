//! The null file system: a FUSE file system that does nothing. It shows what an operation costs
//! when the file system behind a mount costs nothing.
//!
//! It accepts every change and keeps only each file's kind and size, without which the kernel would
//! not read. Names live in the kernel's cache, which the mount permits, as Vellum's mount does.
//! Directories called [`LISTED`] have a fixed number of entries.

use std::ffi::OsStr;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

use crate::order::LISTED;

const TTL: Duration = Duration::from_secs(86_400);
const REQUEST_MAX_BYTES: u32 = 1 << 20;
/// Inode numbers of directories have this bit.
const DIRECTORY: u64 = 1 << 40;
/// The number of files whose sizes are kept; further files replace old ones.
const SIZES: usize = 1 << 22;
/// The capabilities that Vellum's mount requests.
const WANTED: [InitFlags; 7] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
];

/// The null file system.
pub(crate) struct NullFs {
    entries: Vec<String>,
    next: AtomicU64,
    listed: OnceLock<u64>,
    sizes: Vec<AtomicU64>,
    zeros: Vec<u8>,
}

impl NullFs {
    /// Listings of [`LISTED`] have `entries` names.
    pub(crate) fn new(entries: usize) -> Self {
        Self {
            entries: (0..entries).map(|n| format!("file-{n:05}")).collect(),
            next: AtomicU64::new(2),
            listed: OnceLock::new(),
            sizes: (0..SIZES).map(|_| AtomicU64::new(0)).collect(),
            zeros: vec![0; REQUEST_MAX_BYTES as usize],
        }
    }

    fn size(&self, ino: u64) -> &AtomicU64 {
        &self.sizes[(ino % SIZES as u64) as usize]
    }

    /// The attributes of a new file or directory.
    fn made(&self, kind: FileType) -> FileAttr {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.size(number).store(0, Ordering::Relaxed);
        let is_dir = kind == FileType::Directory;
        self.attr(if is_dir { number | DIRECTORY } else { number })
    }

    fn attr(&self, ino: u64) -> FileAttr {
        let is_dir = ino & DIRECTORY != 0 || ino == INodeNo::ROOT.0;
        let (kind, perm, size) = if is_dir {
            (FileType::Directory, 0o755, 4096)
        } else {
            let size = self.size(ino).load(Ordering::Relaxed);
            (FileType::RegularFile, 0o644, size)
        };
        FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Entries of a directory from `offset` on.
    fn list(&self, ino: u64, offset: u64) -> impl Iterator<Item = (u64, &str)> {
        let is_listed = self.listed.get() == Some(&ino);
        let entries = if is_listed {
            self.entries.as_slice()
        } else {
            &[]
        };
        let numbered = entries.iter().enumerate().skip(offset as usize);
        numbered.map(|(number, name)| (number as u64 + 1, name.as_str()))
    }
}

impl fuser::Filesystem for NullFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            // A capability that this kernel lacks is missing for Vellum too.
            let _ = config.add_capabilities(flag);
        }
        if let Err(possible) = config.set_max_write(REQUEST_MAX_BYTES) {
            let _ = config.set_max_write(possible);
        }
        Ok(())
    }

    /// A name that is not in the kernel's cache does not exist, and the kernel may cache that.
    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.entry(&TTL, &self.attr(0), Generation(0));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino.0));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(size) = size {
            self.size(ino.0).store(size, Ordering::Relaxed);
        }
        reply.attr(&TTL, &self.attr(ino.0));
    }

    fn mknod(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.entry(&TTL, &self.made(FileType::RegularFile), Generation(0));
    }

    fn mkdir(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.made(FileType::Directory);
        if name == LISTED {
            self.listed.get_or_init(|| made.ino.0);
        }
        reply.entry(&TTL, &made, Generation(0));
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.ok();
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.ok();
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = (size as usize).min(self.zeros.len());
        reply.data(&self.zeros[..size]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let end = offset + data.len() as u64;
        self.size(ino.0).fetch_max(end, Ordering::Relaxed);
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
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
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for (number, name) in self.list(ino.0, offset) {
            if reply.add(INodeNo(number + 1), number, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        for (number, name) in self.list(ino.0, offset) {
            let attr = self.attr(number + 1);
            if reply.add(attr.ino, number, name, &TTL, &attr, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
}
