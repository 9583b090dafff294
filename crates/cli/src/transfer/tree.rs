//! Trees that files are copied from and to: that of this machine, and that of a pool.

use std::io;
use std::path::Path;

use vellum::{Error, FileKind};
use vellum_terminal::plain;

/// What went wrong with one file.
pub(super) enum Trouble {
    Host(io::Error),
    Pool(Error),
    /// What is not copied, and why.
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

/// The outcome of what is done with one file.
pub(super) type Done<T = ()> = Result<T, Trouble>;

/// What is copied of a file beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub(super) kind: FileKind,
    /// Permission bits, set-id bits and the sticky bit.
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) links: u64,
    /// What tells it from every other file: of its file system, and there.
    pub(super) identity: (u64, u64),
    pub(super) device: u64,
    pub(super) atime_ns: i64,
    pub(super) mtime_ns: i64,
}

impl Meta {
    pub(super) fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// A file that is read.
pub(super) trait Reader {
    /// The next range with data at or after an offset.
    fn next_data(&self, at: u64) -> Done<Option<(u64, u64)>>;
    /// Reads at an offset; 0: the file ends there.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Done<usize>;
}

/// A file that is written.
pub(super) trait Writer {
    fn write_at(&self, at: u64, data: &[u8]) -> Done;
    /// Gives the file its length; what was not written reads as zeros.
    fn set_len(&self, size: u64) -> Done;
}

/// The names of a directory, and why some could not be read.
pub(super) type Names = (Vec<Vec<u8>>, Option<Trouble>);

/// A tree of files.
pub(super) trait Tree {
    type Node: Clone;

    /// The file at a path.
    fn find(&self, path: &Path, follow: bool) -> Done<Self::Node>;
    /// The file of a name in a directory; a symbolic link is not followed.
    fn lookup(&self, dir: &Self::Node, name: &[u8]) -> Done<Option<Self::Node>>;
    fn meta(&self, node: &Self::Node) -> Done<Meta>;
    fn names(&self, dir: &Self::Node) -> Done<Names>;
    fn read_link(&self, node: &Self::Node) -> Done<Vec<u8>>;
    fn open(&self, node: &Self::Node) -> Done<Box<dyn Reader>>;
    /// What a file has that cannot be copied.
    fn extras(&self, node: &Self::Node) -> Done<Option<&'static str>>;

    /// Makes a directory that only its maker may use.
    fn make_dir(&self, dir: &Self::Node, name: &[u8]) -> Done<Self::Node>;
    /// Makes an empty file that only its maker may use.
    fn create(&self, dir: &Self::Node, name: &[u8]) -> Done<(Self::Node, Box<dyn Writer>)>;
    /// Opens a file to write it from the beginning.
    fn rewrite(&self, node: &Self::Node) -> Done<Box<dyn Writer>>;
    fn symlink(&self, dir: &Self::Node, name: &[u8], target: &[u8]) -> Done<Self::Node>;
    /// Makes a fifo, a socket or a device file.
    fn make_node(&self, dir: &Self::Node, name: &[u8], meta: &Meta) -> Done<Self::Node>;
    fn link(&self, node: &Self::Node, dir: &Self::Node, name: &[u8]) -> Done;
    /// Removes a file that is no directory; that there is none is no failure.
    fn remove(&self, dir: &Self::Node, name: &[u8]) -> Done;

    /// Gives a file its permission bits.
    fn set_mode(&self, node: &Self::Node, mode: u16) -> Done;
    /// Gives a file its owner where the user may, its permission bits and its times, in this
    /// order: a new owner would drop set-id bits.
    fn set_all(&self, node: &Self::Node, meta: &Meta) -> Done;
}
