//! The ways to the files of a pool: the command opens the pool itself, or, while it is mounted,
//! uses the files of the mount by system calls, with the rights of its user.

mod mount;
mod pool;

use std::io;
use std::path::{Path, PathBuf};

use vellum::{FileFlags, FileKind, Pool, RenameFlags};
use vellum_fuse::mounts::{self, Mounted};
use vellum_terminal::{Failure, Outcome, quoted, status};

use crate::args::Opening;
use crate::location::{self, PathInPool};
use crate::transfer::host::Host;
use crate::transfer::pool::PoolTree;
use crate::transfer::tree::{Done, Meta, Reader, Tree, Writer};
use crate::way::mount::Through;
use crate::way::pool::AtRest;
use crate::{info, umount};

/// Operations on the files of a pool. Paths are absolute paths in it.
pub(crate) trait Files {
    fn find(&self, path: &Path, follow: bool) -> Done<Found>;
    fn marks(&self, path: &Path, follow: bool) -> Done<Marks>;
    /// The names in a directory, and whether they are directories.
    fn entries(&self, dir: &Path) -> Done<Vec<(Vec<u8>, bool)>>;
    fn open(&self, path: &Path) -> Done<Box<dyn Reader>>;
    /// Opens a file for writing. Creates it if it is missing, and else makes it empty.
    fn create(&self, path: &Path) -> Done<Box<dyn Writer>>;
    fn make_dir(&self, path: &Path) -> Done;
    /// Creates a directory and its missing parents.
    fn make_dirs(&self, path: &Path) -> Done;
    fn set_mode(&self, path: &Path, mode: u16) -> Done;
    fn remove_file(&self, path: &Path) -> Done;
    fn remove_dir(&self, path: &Path) -> Done;
    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Done;
    /// The space for files in a directory.
    fn space(&self, dir: &Path) -> Done<Space>;
}

/// Space for files, and how many there can be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) bytes: u64,
    pub(crate) bytes_free: u64,
    pub(crate) files: u64,
    pub(crate) files_free: u64,
}

/// A file.
pub(crate) struct Found {
    pub(crate) meta: Meta,
    pub(crate) target: Option<Vec<u8>>,
    /// The names of the extended attributes.
    pub(crate) xattrs: Vec<Vec<u8>>,
}

/// What is known of a file besides. In a mount, the file has to be opened for that.
#[derive(Default)]
pub(crate) struct Marks {
    /// `None`: unknown.
    pub(crate) generation: Option<u32>,
    pub(crate) flags: FileFlags,
    pub(crate) project: u32,
}

impl Marks {
    fn of<T: Tree>(tree: &T, node: &T::Node, generation: Option<u32>) -> Done<Self> {
        let (flags, project) = tree.flags(node)?;
        Ok(Self {
            generation,
            flags,
            project: project.unwrap_or(0),
        })
    }
}

impl Found {
    fn of<T: Tree>(tree: &T, node: &T::Node) -> Done<Self> {
        let meta = tree.meta(node)?;
        let target = match meta.kind {
            FileKind::Symlink => Some(tree.read_link(node)?),
            _ => None,
        };
        Ok(Self {
            meta,
            target,
            xattrs: tree.xattr_names(node)?,
        })
    }
}

/// The way to the files of one pool.
pub(crate) enum Way {
    /// The pool is open in this process.
    Opened {
        pool: Pool,
        named: PathBuf,
        files: AtRest,
    },
    /// It is mounted.
    Mounted(Through),
}

/// The tree that a way leads to.
#[derive(Clone, Copy)]
pub(crate) enum Side<'w> {
    Pool(&'w PoolTree),
    Host(&'w Host),
}

impl Way {
    /// The way to the pool of `place`.
    pub(crate) fn to(place: &PathInPool, opening: &Opening, read_only: bool) -> Outcome<Self> {
        place.refuse_bare()?;
        if let Some(host) = mount_of(&place.pool, read_only)? {
            return Ok(Self::Mounted(Through { tree: host }));
        }
        let pool = location::open(&place.pool, opening, read_only)?;
        Ok(Self::Opened {
            files: AtRest::new(&pool),
            pool,
            named: place.pool.clone(),
        })
    }

    pub(crate) fn files(&self) -> &dyn Files {
        match self {
            Self::Opened { files, .. } => files,
            Self::Mounted(files) => files,
        }
    }

    pub(crate) fn side(&self) -> Side<'_> {
        match self {
            Self::Opened { files, .. } => Side::Pool(&files.tree),
            Self::Mounted(files) => Side::Host(&files.tree),
        }
    }

    /// The bytes of all files of the pool, an upper bound for any tree in it.
    pub(crate) fn bytes_used(&self) -> u64 {
        match self.side() {
            Side::Pool(tree) => tree.bytes_used(),
            Side::Host(host) => host.bytes_used(),
        }
    }

    /// Closes the pool if this process opened it.
    pub(crate) fn close(self) -> Outcome {
        match self {
            Self::Opened { pool, named, files } => {
                drop(files);
                location::close(pool, &named)
            }
            Self::Mounted(_) => Ok(()),
        }
    }
}

/// The tree of the mount that serves a pool, if there is one in this mount namespace.
fn mount_of(pool: &Path, read_only: bool) -> Outcome<Option<Host>> {
    let Some(mounted) = info::live_mount_of(pool) else {
        return Ok(None);
    };
    let host = match mounted.reach().and_then(Host::mount) {
        Ok(host) => host,
        // It has ended since: the pool is being closed.
        Err(error) if mounts::has_ended(&error) || error.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(unusable(pool, &mounted, &error)),
    };
    if mounted.read_only && !read_only {
        let dir = quoted(&mounted.dir);
        return Err(Failure::new(format!(
            "{}: it is mounted on {} read-only",
            pool.display(),
            mounted.dir.display()
        ))
        .advise(format!("`vellum umount {dir}`, and mount it without -o ro")));
    }
    Ok(Some(host))
}

/// The failure for a mount whose files this process cannot use.
fn unusable(pool: &Path, mounted: &Mounted, error: &io::Error) -> Failure {
    let place = format_args!("{} is mounted on {}", pool.display(), mounted.dir.display());
    let failure = Failure::io(place, error).with_status(status::BUSY);
    match error.kind() {
        io::ErrorKind::PermissionDenied => failure
            .advise("only the user who mounted it may use it, unless `-o allow_other` is given"),
        _ => umount::in_the_way(failure, error),
    }
}
