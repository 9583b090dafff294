//! Trees as sources and targets of copies: the files of this machine, and those of a pool.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use vellum::{Error, FileFlags, FileKind};
use vellum_terminal::{Failure, plain};

/// Why one file could not be copied.
pub(crate) enum Trouble {
    Host(io::Error),
    Pool(Error),
    /// The file is not copied, for this reason.
    Refused(&'static str),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

impl From<rustix::io::Errno> for Trouble {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Host(errno.into())
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Pool(error)
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(error) => f.write_str(&plain(error)),
            Self::Pool(error) => error.fmt(f),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl Trouble {
    /// The failure of a command at `place`.
    pub(crate) fn at(&self, place: impl std::fmt::Display) -> Failure {
        match self {
            Self::Host(error) => Failure::io(place, error),
            Self::Pool(error) => Failure::at(place, error),
            Self::Refused(why) => Failure::new(format!("{place}: {why}")),
        }
    }
}

/// The outcome of an operation on one file.
pub(crate) type Done<T = ()> = Result<T, Trouble>;

/// The attributes of a file. Of these, all but the last two are copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) kind: FileKind,
    /// Permission bits, set-id bits and the sticky bit.
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) links: u64,
    /// The numbers of its file system and of the file in it, which no other file has together.
    pub(crate) identity: (u64, u64),
    pub(crate) device: u64,
    pub(crate) atime_ns: i64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) allocated_bytes: u64,
}

impl Meta {
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// A file open for reading.
pub(crate) trait Reader {
    /// The next range with data at or after an offset.
    fn next_data(&self, at: u64) -> Done<Option<(u64, u64)>>;
    /// Reads at an offset; 0: the file ends there.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Done<usize>;
}

/// A file open for writing.
pub(crate) trait Writer {
    fn write_at(&self, at: u64, data: &[u8]) -> Done;
    /// Sets the length of the file. Bytes that were not written read as zeros.
    fn set_len(&self, size: u64) -> Done;
}

/// The names of a directory, and the reason if some could not be read.
pub(crate) type Names = (Vec<Vec<u8>>, Option<Trouble>);

/// A tree of files.
pub(crate) trait Tree {
    type Node: Clone;

    /// The file at a path.
    fn find(&self, path: &Path, follow: bool) -> Done<Self::Node>;
    /// The file with a name in a directory. A symbolic link is not followed.
    fn lookup(&self, dir: &Self::Node, name: &[u8]) -> Done<Option<Self::Node>>;
    fn meta(&self, node: &Self::Node) -> Done<Meta>;
    fn names(&self, dir: &Self::Node) -> Done<Names>;
    fn read_link(&self, node: &Self::Node) -> Done<Vec<u8>>;
    fn open(&self, node: &Self::Node) -> Done<Box<dyn Reader>>;
    /// The names of the extended attributes of a file, access control lists included.
    fn xattr_names(&self, node: &Self::Node) -> Done<Vec<Vec<u8>>>;
    /// The value of an extended attribute; `None`: the file has none of that name.
    fn xattr(&self, node: &Self::Node, name: &[u8]) -> Done<Option<Vec<u8>>>;

    // The umask, or a list of the directory for new files, may remove bits of `mode`.

    /// Creates a directory.
    fn make_dir(&self, dir: &Self::Node, name: &[u8], mode: u16) -> Done<Self::Node>;
    /// Creates an empty file.
    fn create(
        &self,
        dir: &Self::Node,
        name: &[u8],
        mode: u16,
    ) -> Done<(Self::Node, Box<dyn Writer>)>;
    /// Truncates a file and opens it for writing.
    fn rewrite(&self, node: &Self::Node) -> Done<Box<dyn Writer>>;
    fn symlink(&self, dir: &Self::Node, name: &[u8], target: &[u8]) -> Done<Self::Node>;
    /// Creates a fifo, a socket or a device file of the kind and device in `meta`.
    fn make_node(&self, dir: &Self::Node, name: &[u8], meta: &Meta, mode: u16) -> Done<Self::Node>;
    fn link(&self, node: &Self::Node, dir: &Self::Node, name: &[u8]) -> Done;
    /// Removes a file that is not a directory. A missing file is not an error.
    fn remove(&self, dir: &Self::Node, name: &[u8]) -> Done;

    /// Whether the user may set owners, and all kinds of extended attributes.
    fn is_privileged(&self) -> bool;
    fn set_owner(&self, node: &Self::Node, meta: &Meta) -> Done;
    /// Sets the permission bits of a file.
    fn set_mode(&self, node: &Self::Node, mode: u16) -> Done;
    /// Sets the times of a file, and its permission bits unless it is a symbolic link.
    fn set_mode_and_times(&self, node: &Self::Node, meta: &Meta, mode: u16) -> Done;
    fn set_xattr(&self, node: &Self::Node, name: &[u8], value: &[u8]) -> Done;
    fn remove_xattr(&self, node: &Self::Node, name: &[u8]) -> Done;

    /// The flags of a file, and its project id if the tree has such.
    fn flags(&self, node: &Self::Node) -> Done<(FileFlags, Option<u32>)>;
    /// Sets the flags of a file or directory, and the project id if the tree has such.
    fn set_flags(&self, node: &Self::Node, flags: FileFlags, project: Option<u32>) -> Done;
}

/// Returns the directory at a path. Creates it and its missing parents.
pub(crate) fn make_all<T: Tree>(tree: &T, path: &Path) -> Done<T::Node> {
    let mut at = tree.find(Path::new("/"), true)?;
    for part in path.components() {
        let Component::Normal(name) = part else {
            continue;
        };
        at = match tree.lookup(&at, name.as_bytes())? {
            Some(found) => found,
            None => tree.make_dir(&at, name.as_bytes(), 0o777)?,
        };
    }
    match tree.meta(&at)?.is_dir() {
        true => Ok(at),
        false => Err(Error::NotDirectory.into()),
    }
}
