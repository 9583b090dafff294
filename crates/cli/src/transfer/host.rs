//! The tree of this machine, and that of a mount.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, IFlags, Mode, OFlags, ResolveFlags, SeekFrom, Timespec, Timestamps,
    XattrFlags, ioctl_getflags, ioctl_setflags,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use vellum::media::{FSXATTR_BYTES, fsxattr, generation, set_fsxattr};
use vellum::{Error, FileFlags, FileKind};

use super::tree::{Done, Meta, Names, Reader, Tree, Trouble, Writer};
use crate::files::names_in;

pub(crate) struct Host {
    is_privileged: bool,
    /// The root of a mount. All paths are then paths in it, and no link or `..` leads out of it.
    root: Option<Root>,
}

/// The root of a mount.
struct Root {
    dir: OwnedFd,
    device: u64,
}

impl Host {
    pub(super) fn new() -> Self {
        Self {
            is_privileged: rustix::process::geteuid().is_root(),
            root: None,
        }
    }

    /// The tree of the mount with this root.
    pub(crate) fn mount(dir: OwnedFd) -> io::Result<Self> {
        let device = std::fs::metadata(link_to(&dir))?.dev();
        Ok(Self {
            root: Some(Root { dir, device }),
            ..Self::new()
        })
    }

    /// The path by which system calls reach a file.
    fn reach(&self, node: &HostNode) -> Done<Reached> {
        match (&self.root, node.path.parent(), node.path.file_name()) {
            (None, ..) => Ok(Reached::host(node.path.clone())),
            (Some(root), Some(above), Some(name)) => root.reach(above, name),
            (Some(root), ..) => root.reach(Path::new("/"), OsStr::new(".")),
        }
    }

    /// The path for system calls that follow links. In a mount, it leads to the file itself: if
    /// someone has replaced that by a link since it was found, nothing follows the link.
    pub(crate) fn reach_itself(&self, node: &HostNode) -> Done<Reached> {
        let Some(root) = &self.root else {
            return Ok(Reached::host(node.path.clone()));
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        Ok(Reached::opened(root.open(
            &node.path,
            flags,
            Mode::empty(),
        )?))
    }

    /// The path by which system calls reach a name in a directory.
    fn reach_in(&self, dir: &HostNode, name: &[u8]) -> Done<Reached> {
        let name = OsStr::from_bytes(name);
        match &self.root {
            None => Ok(Reached::host(dir.path.join(name))),
            Some(root) => root.reach(&dir.path, name),
        }
    }

    /// The path by which system calls reach the last name of a path, which may be missing.
    pub(crate) fn reach_name(&self, path: &Path) -> Done<Reached> {
        let name = match path.components().next_back() {
            Some(Component::Normal(name)) => name,
            Some(Component::ParentDir) => OsStr::new(".."),
            _ => return Err(Error::Busy.into()),
        };
        let above = path.parent().unwrap_or(Path::new("/"));
        match &self.root {
            None => Ok(Reached::host(path.to_owned())),
            Some(root) => root.reach(above, name),
        }
    }

    /// Opens a path.
    pub(crate) fn open_path(&self, path: &Path, flags: OFlags, mode: Mode) -> Done<OwnedFd> {
        match &self.root {
            Some(root) => root.open(path, flags, mode),
            None => Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, mode)?),
        }
    }

    /// The attributes of a file. A file of another file system that is mounted in a mount is none
    /// of the pool.
    fn metadata(&self, node: &HostNode) -> Done<Metadata> {
        let reached = self.reach(node)?;
        let found = match node.follows {
            true => std::fs::metadata(&reached.path),
            false => std::fs::symlink_metadata(&reached.path),
        }?;
        match &self.root {
            Some(root) if root.device != found.dev() => Err(OTHER_FILE_SYSTEM),
            _ => Ok(found),
        }
    }

    /// The generation of a file in a mount. `None`: it is unknown, because the file is special or
    /// the user may not read it.
    pub(crate) fn generation(&self, node: &HostNode) -> Done<Option<u32>> {
        let opened = match self.meta(node)?.kind {
            FileKind::File | FileKind::Directory => self.open_for_flags(node).ok(),
            _ => None,
        };
        Ok(opened.and_then(|file| generation(file).ok()))
    }

    fn open_for_flags(&self, node: &HostNode) -> Done<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let flags = match node.follows {
            true => flags,
            false => flags | OFlags::NOFOLLOW,
        };
        self.open_path(&node.path, flags, Mode::empty())
    }

    /// The bytes of all files of a mount, an upper bound for any tree in it.
    pub(crate) fn bytes_used(&self) -> u64 {
        let root = self.root.as_ref();
        let found = root.and_then(|root| rustix::fs::statvfs(link_to(&root.dir)).ok());
        found.map_or(0, |found| (found.f_blocks - found.f_bfree) * found.f_frsize)
    }

    /// Whether a directory is one of another tree of this machine, or below it.
    pub(super) fn is_below(&self, dir: &HostNode, other: &Self, above: &HostNode) -> Done<bool> {
        let identity = |found: &Metadata| (found.dev(), found.ino());
        let above = identity(&other.metadata(above)?);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(&self.reach(dir)?.path, flags, Mode::empty())?;
        let mut last = None;
        loop {
            let now = identity(&std::fs::metadata(link_to(&at))?);
            if now == above || last == Some(now) {
                return Ok(now == above);
            }
            last = Some(now);
            at = match rustix::fs::openat(&at, "..", flags, Mode::empty()) {
                // The user could not name what is above.
                Err(Errno::ACCESS) => return Ok(false),
                above => above?,
            };
        }
    }
}

const OTHER_FILE_SYSTEM: Trouble = Trouble::Refused("another file system is mounted there");

impl Root {
    /// Opens a path.
    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Done<OwnedFd> {
        /// A rename meanwhile makes the kernel give up.
        const TRIES: usize = 100;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::CLOEXEC;
        let open = || rustix::fs::openat2(&self.dir, path, flags, mode, resolve);
        let mut opened = open();
        for _ in 1..TRIES {
            if !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
            opened = open();
        }
        match opened {
            Err(Errno::XDEV) => Err(OTHER_FILE_SYSTEM),
            opened => opened.map_err(|errno| as_of_pool(errno.into())),
        }
    }

    fn reach(&self, dir: &Path, name: &OsStr) -> Done<Reached> {
        let dir = self.open(dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let mut reached = Reached::opened(dir);
        reached.path.push(name);
        Ok(reached)
    }

    /// The path in the mount of the file at a path, without links.
    fn canonical(&self, path: &Path, follow: bool) -> Done<PathBuf> {
        let flags = match follow {
            true => OFlags::PATH,
            false => OFlags::PATH | OFlags::NOFOLLOW,
        };
        let found = self.open(path, flags, Mode::empty())?;
        let path = std::fs::read_link(link_to(&found))?;
        let below = path.strip_prefix(std::fs::read_link(link_to(&self.dir))?);
        let below = below.map_err(|_| io::Error::from(Errno::STALE))?;
        Ok(Path::new("/").join(below))
    }
}

/// A path for system calls. It begins with an open file if the file is in a mount.
pub(crate) struct Reached {
    pub(crate) path: PathBuf,
    _opened: Option<OwnedFd>,
}

impl Reached {
    fn host(path: PathBuf) -> Self {
        Self {
            path,
            _opened: None,
        }
    }

    fn opened(file: OwnedFd) -> Self {
        Self {
            path: link_to(&file).into(),
            _opened: Some(file),
        }
    }
}

fn link_to(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A file of this machine, and whether a symbolic link as its last component is followed. In a
/// mount, its path there without links.
#[derive(Clone)]
pub(crate) struct HostNode {
    path: PathBuf,
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

    fn at_flags(&self) -> AtFlags {
        match self.follows {
            true => AtFlags::empty(),
            false => AtFlags::SYMLINK_NOFOLLOW,
        }
    }
}

impl Tree for Host {
    type Node = HostNode;

    fn find(&self, path: &Path, follow: bool) -> Done<HostNode> {
        let node = match &self.root {
            Some(root) => HostNode::of(root.canonical(path, follow)?),
            None => HostNode {
                path: path.to_owned(),
                follows: follow,
            },
        };
        self.metadata(&node)?;
        Ok(node)
    }

    fn lookup(&self, dir: &HostNode, name: &[u8]) -> Done<Option<HostNode>> {
        let node = HostNode::of(dir.child(name));
        match self.metadata(&node) {
            Ok(_) => Ok(Some(node)),
            Err(Trouble::Host(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(Trouble::Pool(Error::NotFound)) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    fn meta(&self, node: &HostNode) -> Done<Meta> {
        let found = self.metadata(node)?;
        Ok(Meta {
            kind: kind_of(&found).ok_or(Error::Unsupported("this kind of file"))?,
            mode: (found.mode() & 0o7777) as u16,
            uid: found.uid(),
            gid: found.gid(),
            size: found.len(),
            links: found.nlink(),
            identity: (found.dev(), found.ino()),
            device: found.rdev(),
            atime_ns: nanoseconds(found.atime(), found.atime_nsec()),
            mtime_ns: nanoseconds(found.mtime(), found.mtime_nsec()),
            ctime_ns: nanoseconds(found.ctime(), found.ctime_nsec()),
            allocated_bytes: found.blocks() * 512,
        })
    }

    fn names(&self, dir: &HostNode) -> Done<Names> {
        let (mut names, mut lost) = (Vec::new(), None);
        for entry in std::fs::read_dir(&self.reach_itself(dir)?.path)? {
            match entry {
                Ok(entry) => names.push(entry.file_name().as_bytes().to_vec()),
                Err(error) => lost = Some(error.into()),
            }
        }
        Ok((names, lost))
    }

    fn read_link(&self, node: &HostNode) -> Done<Vec<u8>> {
        let target = std::fs::read_link(&self.reach(node)?.path)?;
        Ok(target.into_os_string().as_bytes().to_vec())
    }

    fn open(&self, node: &HostNode) -> Done<Box<dyn Reader>> {
        let file = File::open(&self.reach_itself(node)?.path)?;
        let size = file.metadata()?.len();
        Ok(Box::new(HostFile { file, size }))
    }

    fn xattr_names(&self, node: &HostNode) -> Done<Vec<Vec<u8>>> {
        let path = &self.reach(node)?.path;
        let list = whole(|buffer| match node.follows {
            true => rustix::fs::listxattr(path, buffer),
            false => rustix::fs::llistxattr(path, buffer),
        });
        match list {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Vec::new()),
            list => Ok(names_in(&list?)),
        }
    }

    fn xattr(&self, node: &HostNode, name: &[u8]) -> Done<Option<Vec<u8>>> {
        let path = &self.reach(node)?.path;
        let value = whole(|buffer| match node.follows {
            true => rustix::fs::getxattr(path, name, buffer),
            false => rustix::fs::lgetxattr(path, name, buffer),
        });
        match value {
            Err(Errno::NODATA) => Ok(None),
            value => Ok(Some(value?)),
        }
    }

    fn make_dir(&self, dir: &HostNode, name: &[u8], mode: u16) -> Done<HostNode> {
        let reached = self.reach_in(dir, name)?;
        DirBuilder::new().mode(mode.into()).create(&reached.path)?;
        Ok(HostNode::of(dir.child(name)))
    }

    fn create(&self, dir: &HostNode, name: &[u8], mode: u16) -> Done<(HostNode, Box<dyn Writer>)> {
        let reached = self.reach_in(dir, name)?;
        let mut options = File::options();
        let file = options
            .write(true)
            .create_new(true)
            .mode(mode.into())
            .open(&reached.path)?;
        let writer = HostFile { file, size: 0 };
        Ok((HostNode::of(dir.child(name)), Box::new(writer)))
    }

    fn rewrite(&self, node: &HostNode) -> Done<Box<dyn Writer>> {
        let file = File::options()
            .write(true)
            .truncate(true)
            .open(&self.reach_itself(node)?.path)?;
        Ok(Box::new(HostFile { file, size: 0 }))
    }

    fn symlink(&self, dir: &HostNode, name: &[u8], target: &[u8]) -> Done<HostNode> {
        let reached = self.reach_in(dir, name)?;
        std::os::unix::fs::symlink(OsStr::from_bytes(target), &reached.path)?;
        Ok(HostNode::of(dir.child(name)))
    }

    fn make_node(&self, dir: &HostNode, name: &[u8], meta: &Meta, mode: u16) -> Done<HostNode> {
        let reached = self.reach_in(dir, name)?;
        let mode = Mode::from_raw_mode(mode.into());
        rustix::fs::mknodat(CWD, &reached.path, file_type(meta.kind), mode, meta.device)?;
        Ok(HostNode::of(dir.child(name)))
    }

    fn link(&self, node: &HostNode, dir: &HostNode, name: &[u8]) -> Done {
        let (from, to) = (self.reach(node)?, self.reach_in(dir, name)?);
        Ok(std::fs::hard_link(&from.path, &to.path)?)
    }

    fn remove(&self, dir: &HostNode, name: &[u8]) -> Done {
        match std::fs::remove_file(&self.reach_in(dir, name)?.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn set_mode(&self, node: &HostNode, mode: u16) -> Done {
        let permissions = Permissions::from_mode(u32::from(mode));
        Ok(std::fs::set_permissions(
            &self.reach_itself(node)?.path,
            permissions,
        )?)
    }

    fn is_privileged(&self) -> bool {
        self.is_privileged
    }

    fn set_owner(&self, node: &HostNode, meta: &Meta) -> Done {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        let flags = node.at_flags();
        Ok(rustix::fs::chownat(
            CWD,
            &self.reach(node)?.path,
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
            &self.reach(node)?.path,
            &times,
            node.at_flags(),
        )?)
    }

    fn set_xattr(&self, node: &HostNode, name: &[u8], value: &[u8]) -> Done {
        let flags = XattrFlags::empty();
        let path = &self.reach(node)?.path;
        let set = match node.follows {
            true => rustix::fs::setxattr(path, name, value, flags),
            false => rustix::fs::lsetxattr(path, name, value, flags),
        };
        Ok(set?)
    }

    fn remove_xattr(&self, node: &HostNode, name: &[u8]) -> Done {
        let path = &self.reach(node)?.path;
        let removed = match node.follows {
            true => rustix::fs::removexattr(path, name),
            false => rustix::fs::lremovexattr(path, name),
        };
        Ok(removed?)
    }

    /// Project ids are those of a mount's pool. Elsewhere they are those of this machine, and have
    /// no meaning in a pool.
    fn flags(&self, node: &HostNode) -> Done<(FileFlags, Option<u32>)> {
        let opened = match self.meta(node)?.kind {
            FileKind::File | FileKind::Directory => self.open_for_flags(node),
            _ => return Ok((FileFlags::empty(), None)),
        };
        let flags = opened
            .as_ref()
            .ok()
            .and_then(|file| ioctl_getflags(file).ok());
        let flags = FileFlags::from_bits_truncate(flags.map_or(0, |flags| flags.bits()));
        let project = match &self.root {
            Some(_) => opened.ok().and_then(|file| fsxattr(file).ok()),
            None => None,
        };
        Ok((flags, project.map(|found| project_in(&found))))
    }

    fn set_flags(&self, node: &HostNode, flags: FileFlags, project: Option<u32>) -> Done {
        let file = self.open_for_flags(node)?;
        // Before flags that forbid it.
        if let Some(project) = project {
            let mut found = fsxattr(&file)?;
            if project_in(&found) != project {
                found[PROJECT_AT..PROJECT_AT + 4].copy_from_slice(&project.to_ne_bytes());
                set_fsxattr(&file, found)?;
            }
        }
        let others = ioctl_getflags(&file)?.bits() & !FileFlags::all().bits();
        let flags = IFlags::from_bits_retain(others | flags.bits());
        Ok(ioctl_setflags(&file, flags)?)
    }
}

/// The place of the project id in a `struct fsxattr`.
const PROJECT_AT: usize = 12;

fn project_in(found: &[u8; FSXATTR_BYTES]) -> u32 {
    let bytes = found[PROJECT_AT..].first_chunk();
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    let seconds = seconds.saturating_mul(1_000_000_000);
    seconds.saturating_add(nanoseconds)
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

/// An open file, and its size when it was opened.
pub(crate) struct HostFile {
    pub(crate) file: File,
    pub(crate) size: u64,
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

fn kind_of(found: &Metadata) -> Option<FileKind> {
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

/// An error of the operating system in a mount, as the pool reports it.
pub(crate) fn as_of_pool(trouble: Trouble) -> Trouble {
    let Trouble::Host(error) = trouble else {
        return trouble;
    };
    match of_pool(&error) {
        Some(error) => error.into(),
        None => error.into(),
    }
}

fn of_pool(error: &io::Error) -> Option<Error> {
    Some(match Errno::from_io_error(error)? {
        Errno::NOENT => Error::NotFound,
        Errno::EXIST => Error::Exists,
        Errno::NOTDIR => Error::NotDirectory,
        Errno::ISDIR => Error::IsDirectory,
        Errno::NOTEMPTY => Error::NotEmpty,
        Errno::ACCESS => Error::Access,
        Errno::PERM => Error::NotPermitted,
        Errno::NAMETOOLONG => Error::NameTooLong,
        Errno::LOOP => Error::Loop,
        Errno::DQUOT => Error::QuotaExceeded,
        Errno::NXIO => Error::SpecialFile,
        Errno::FBIG => Error::TooLarge,
        Errno::MLINK => Error::TooManyLinks,
        Errno::STALE => Error::Stale,
        Errno::ROFS => Error::ReadOnly,
        Errno::BUSY => Error::Busy,
        _ => return None,
    })
}
