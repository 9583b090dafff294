//! The tree of this machine.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, IFlags, Mode, OFlags, SeekFrom, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use vellum::{Error, FileFlags, FileKind};

use super::tree::{Done, Meta, Names, Reader, Tree, Trouble, Writer};
use crate::files::names_in;

pub(super) struct Host {
    is_privileged: bool,
}

impl Host {
    pub(super) fn new() -> Self {
        Self {
            is_privileged: rustix::process::geteuid().is_root(),
        }
    }
}

/// A file of this machine, and whether a symbolic link as its last component is followed.
#[derive(Clone)]
pub(super) struct HostNode {
    pub(super) path: PathBuf,
    follows: bool,
}

impl HostNode {
    fn of(path: PathBuf) -> Self {
        Self {
            path,
            follows: false,
        }
    }

    fn child(&self, name: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(name))
    }

    fn metadata(&self) -> io::Result<std::fs::Metadata> {
        match self.follows {
            true => std::fs::metadata(&self.path),
            false => std::fs::symlink_metadata(&self.path),
        }
    }

    fn at_flags(&self) -> AtFlags {
        match self.follows {
            true => AtFlags::empty(),
            false => AtFlags::SYMLINK_NOFOLLOW,
        }
    }

    fn open_for_flags(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let flags = match self.follows {
            true => flags,
            false => flags | OFlags::NOFOLLOW,
        };
        rustix::fs::open(&self.path, flags, Mode::empty())
    }
}

impl Tree for Host {
    type Node = HostNode;

    fn find(&self, path: &Path, follow: bool) -> Done<HostNode> {
        let node = HostNode {
            path: path.to_owned(),
            follows: follow,
        };
        node.metadata()?;
        Ok(node)
    }

    fn lookup(&self, dir: &HostNode, name: &[u8]) -> Done<Option<HostNode>> {
        let node = HostNode::of(dir.child(name));
        match node.metadata() {
            Ok(_) => Ok(Some(node)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn meta(&self, node: &HostNode) -> Done<Meta> {
        let found = node.metadata()?;
        let ns = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
        Ok(Meta {
            kind: kind_of(&found).ok_or(Error::Unsupported("this kind of file"))?,
            mode: (found.mode() & 0o7777) as u16,
            uid: found.uid(),
            gid: found.gid(),
            size: found.len(),
            links: found.nlink(),
            identity: (found.dev(), found.ino()),
            device: found.rdev(),
            atime_ns: ns(found.atime(), found.atime_nsec()),
            mtime_ns: ns(found.mtime(), found.mtime_nsec()),
        })
    }

    fn names(&self, dir: &HostNode) -> Done<Names> {
        let (mut names, mut lost) = (Vec::new(), None);
        for entry in std::fs::read_dir(&dir.path)? {
            match entry {
                Ok(entry) => names.push(entry.file_name().as_bytes().to_vec()),
                Err(error) => lost = Some(error.into()),
            }
        }
        Ok((names, lost))
    }

    fn read_link(&self, node: &HostNode) -> Done<Vec<u8>> {
        let target = std::fs::read_link(&node.path)?;
        Ok(target.into_os_string().as_bytes().to_vec())
    }

    fn open(&self, node: &HostNode) -> Done<Box<dyn Reader>> {
        let file = File::open(&node.path)?;
        let size = file.metadata()?.len();
        Ok(Box::new(HostFile { file, size }))
    }

    fn xattr_names(&self, node: &HostNode) -> Done<Vec<Vec<u8>>> {
        let list = whole(|buffer| match node.follows {
            true => rustix::fs::listxattr(&node.path, buffer),
            false => rustix::fs::llistxattr(&node.path, buffer),
        });
        match list {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Vec::new()),
            list => Ok(names_in(&list?)),
        }
    }

    fn xattr(&self, node: &HostNode, name: &[u8]) -> Done<Option<Vec<u8>>> {
        let value = whole(|buffer| match node.follows {
            true => rustix::fs::getxattr(&node.path, name, buffer),
            false => rustix::fs::lgetxattr(&node.path, name, buffer),
        });
        match value {
            Err(Errno::NODATA) => Ok(None),
            value => Ok(Some(value?)),
        }
    }

    fn make_dir(&self, dir: &HostNode, name: &[u8], mode: u16) -> Done<HostNode> {
        let path = dir.child(name);
        DirBuilder::new().mode(mode.into()).create(&path)?;
        Ok(HostNode::of(path))
    }

    fn create(&self, dir: &HostNode, name: &[u8], mode: u16) -> Done<(HostNode, Box<dyn Writer>)> {
        let path = dir.child(name);
        let mut options = File::options();
        let file = options
            .write(true)
            .create_new(true)
            .mode(mode.into())
            .open(&path)?;
        let writer = HostFile { file, size: 0 };
        Ok((HostNode::of(path), Box::new(writer)))
    }

    fn rewrite(&self, node: &HostNode) -> Done<Box<dyn Writer>> {
        let file = File::options()
            .write(true)
            .truncate(true)
            .open(&node.path)?;
        Ok(Box::new(HostFile { file, size: 0 }))
    }

    fn symlink(&self, dir: &HostNode, name: &[u8], target: &[u8]) -> Done<HostNode> {
        let path = dir.child(name);
        std::os::unix::fs::symlink(OsStr::from_bytes(target), &path)?;
        Ok(HostNode::of(path))
    }

    fn make_node(&self, dir: &HostNode, name: &[u8], meta: &Meta, mode: u16) -> Done<HostNode> {
        let path = dir.child(name);
        let mode = Mode::from_raw_mode(mode.into());
        rustix::fs::mknodat(CWD, &path, file_type(meta.kind), mode, meta.device)?;
        Ok(HostNode::of(path))
    }

    fn link(&self, node: &HostNode, dir: &HostNode, name: &[u8]) -> Done {
        Ok(std::fs::hard_link(&node.path, dir.child(name))?)
    }

    fn remove(&self, dir: &HostNode, name: &[u8]) -> Done {
        match std::fs::remove_file(dir.child(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn set_mode(&self, node: &HostNode, mode: u16) -> Done {
        let permissions = Permissions::from_mode(u32::from(mode));
        Ok(std::fs::set_permissions(&node.path, permissions)?)
    }

    fn is_privileged(&self) -> bool {
        self.is_privileged
    }

    fn set_owner(&self, node: &HostNode, meta: &Meta) -> Done {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        let flags = node.at_flags();
        Ok(rustix::fs::chownat(
            CWD,
            &node.path,
            Some(uid),
            Some(gid),
            flags,
        )?)
    }

    fn set_mode_and_times(&self, node: &HostNode, meta: &Meta, mode: u16) -> Done {
        if meta.kind != FileKind::Symlink {
            self.set_mode(node, mode)?;
        }
        let times = Timestamps {
            last_access: timespec(meta.atime_ns),
            last_modification: timespec(meta.mtime_ns),
        };
        Ok(rustix::fs::utimensat(
            CWD,
            &node.path,
            &times,
            node.at_flags(),
        )?)
    }

    fn set_xattr(&self, node: &HostNode, name: &[u8], value: &[u8]) -> Done {
        let flags = XattrFlags::empty();
        let set = match node.follows {
            true => rustix::fs::setxattr(&node.path, name, value, flags),
            false => rustix::fs::lsetxattr(&node.path, name, value, flags),
        };
        Ok(set?)
    }

    fn remove_xattr(&self, node: &HostNode, name: &[u8]) -> Done {
        let removed = match node.follows {
            true => rustix::fs::removexattr(&node.path, name),
            false => rustix::fs::lremovexattr(&node.path, name),
        };
        Ok(removed?)
    }

    /// Project ids are those of this machine, and have no meaning elsewhere.
    fn flags(&self, node: &HostNode) -> Done<(FileFlags, Option<u32>)> {
        let flags = node
            .open_for_flags()
            .and_then(rustix::fs::ioctl_getflags)
            .map_or(0, |flags| flags.bits());
        Ok((FileFlags::from_bits_truncate(flags), None))
    }

    fn set_flags(&self, node: &HostNode, flags: FileFlags, _project: Option<u32>) -> Done {
        let file = node.open_for_flags()?;
        let others = rustix::fs::ioctl_getflags(&file)?.bits() & !FileFlags::all().bits();
        let flags = IFlags::from_bits_retain(others | flags.bits());
        Ok(rustix::fs::ioctl_setflags(&file, flags)?)
    }
}

/// Returns a value or a list of names that `read` reads into a buffer.
fn whole(read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    /// Linux has no longer ones, in bytes.
    const MAX: usize = 64 << 10;
    let mut buffer = vec![0; 256];
    let len = match read(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(MAX, 0);
            read(&mut buffer)?
        }
        len => len?,
    };
    buffer.truncate(len);
    Ok(buffer)
}

struct HostFile {
    file: File,
    size: u64,
}

impl Reader for HostFile {
    /// File systems without holes report one range.
    fn next_data(&self, at: u64) -> Done<Option<(u64, u64)>> {
        if at >= self.size {
            return Ok(None);
        }
        let from = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL) => return Ok(Some((at, self.size))),
            Err(errno) => return Err(errno.into()),
        };
        let to = rustix::fs::seek(&self.file, SeekFrom::Hole(from)).unwrap_or(self.size);
        Ok(Some((from, to)))
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Done<usize> {
        loop {
            match self.file.read_at(buffer, at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map_err(Trouble::Host),
            }
        }
    }
}

impl Writer for HostFile {
    fn write_at(&self, at: u64, data: &[u8]) -> Done {
        Ok(self.file.write_all_at(data, at)?)
    }

    fn set_len(&self, size: u64) -> Done {
        Ok(self.file.set_len(size)?)
    }
}

/// The bytes of the files at and below a path. Files that cannot be read count as empty.
pub(super) fn bytes_below(path: &Path) -> u64 {
    let mut stack = vec![path.to_owned()];
    let mut bytes = 0;
    while let Some(path) = stack.pop() {
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {
                let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
                stack.extend(entries.map(|entry| entry.path()));
            }
            Ok(found) if found.is_file() => bytes += found.len(),
            _ => {}
        }
    }
    bytes
}

fn timespec(ns: i64) -> Timespec {
    Timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000),
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

fn kind_of(found: &std::fs::Metadata) -> Option<FileKind> {
    let kind = found.file_type();
    Some(match () {
        () if kind.is_file() => FileKind::File,
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () if kind.is_char_device() => FileKind::CharDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () => return None,
    })
}
