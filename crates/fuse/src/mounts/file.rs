//! Decides which mounts belong to the pool in a file: the path of a mount may lead to another file
//! by now than the mounted one.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use vellum::PoolPath;
use vellum::media::{is_in_use, lock_holders};

use super::{Device, Mounted, served_by, server_of};

/// The file or device of a pool, and the processes that have it open.
#[derive(Debug)]
pub struct PoolFile {
    path: PathBuf,
    /// The visible processes that have it locked.
    holders: Vec<u32>,
    /// The file systems that they serve.
    devices: Vec<Device>,
}

impl PoolFile {
    /// The file or device at an absolute path.
    pub fn at(path: &Path) -> Self {
        let holders = lock_holders(path);
        Self {
            path: path.to_owned(),
            devices: holders.iter().copied().flat_map(served_by).collect(),
            holders,
        }
    }

    /// Whether a mount belongs to the pool in this file. If its process is invisible, its path
    /// decides.
    pub fn is_of(&self, mounted: &Mounted) -> bool {
        let place = PoolPath::of(&mounted.pool);
        let is_held = self.devices.contains(&mounted.device);
        match place.pool == self.path {
            true => is_held || !self.is_of_another(mounted, &place),
            false => is_held && self.was_at(&place.pool, mounted.device),
        }
    }

    /// Whether the process of a mount with this path has another file open, which was at the path
    /// before.
    fn is_of_another(&self, mounted: &Mounted, place: &PoolPath) -> bool {
        let is_unused = || {
            let file = File::open(&self.path);
            file.is_ok_and(|file| is_in_use(&file, place.dataset()).is_ok_and(|used| !used))
        };
        // Without a server, the mount is dead or its process is invisible.
        server_of(mounted.device).is_some_and(|server| {
            !self.holders.contains(&server) && (!self.holders.is_empty() || is_unused())
        })
    }

    /// Whether the file is at this path too, or was there before it was renamed. A process may
    /// serve several pools.
    fn was_at(&self, path: &Path, device: Device) -> bool {
        let number = |path: &Path| {
            let found = path.metadata().ok()?;
            Some((found.dev(), found.ino()))
        };
        let is_served = |pid: u32| served_by(pid).contains(&device);
        number(path) == number(&self.path) || !lock_holders(path).into_iter().any(is_served)
    }
}
