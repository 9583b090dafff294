//! A directory where programs work: in a mounted pool, or of a peer.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;
use tempfile::TempDir;
use vellum_transport::Door;

use crate::Result;
use crate::error::doing;
use crate::kernel::Kernel;
use crate::mount::Mount;
use crate::peer::Peer;
use crate::serve::Requests;

/// Such a directory. It is removed with its file system's content.
pub(crate) enum Place {
    Pool {
        mount: Mount,
        pool: PathBuf,
        // Field order: the pool is unmounted before its directory is removed.
        _dir: TempDir,
    },
    Peer(Box<Peer>),
}

impl Place {
    /// Mounts `pool`, which lies in `dir`, by `door` or as the kernel offers it.
    pub(crate) fn pool(dir: TempDir, pool: PathBuf, door: Option<Door>) -> Result<Self> {
        let mount = Mount::of_pool(&pool, door)?;
        let _dir = dir;
        Ok(Self::Pool { mount, pool, _dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        match self {
            Self::Pool { mount, .. } => mount.dir(),
            Self::Peer(peer) => peer.dir(),
        }
    }

    /// The same, through system calls.
    pub(crate) fn kernel(&self) -> &Kernel {
        match self {
            Self::Pool { mount, .. } => &mount.kernel,
            Self::Peer(peer) => &peer.kernel,
        }
    }

    /// The counts of the kernel's requests so far; none for a peer.
    pub(crate) fn requests(&self) -> Result<Requests> {
        match self {
            Self::Pool { mount, .. } => mount.requests(),
            Self::Peer(_) => Ok(Requests::new()),
        }
    }

    /// Drops a file from the kernel's cache, and the pool's file below a mount.
    pub(crate) fn drop_cached(&self, file: &Path) -> Result<()> {
        let pool = match self {
            Self::Pool { pool, .. } => Some(pool.as_path()),
            Self::Peer(_) => None,
        };
        for path in std::iter::once(file).chain(pool) {
            let what = || format!("drop {} from the cache", path.display());
            let file = File::open(path).map_err(doing(what()))?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(doing(what()))?;
        }
        Ok(())
    }
}
