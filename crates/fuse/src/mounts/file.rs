//! Whose mounts are those of the pool in a file: a path may lead to another file by now than the
//! one that was mounted.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use vellum::PoolPath;
use vellum::media::{is_in_use, lock_holders};

use super::{Device, Mounted, served_by, server_of};

/// The file or device of a pool, and who has it open.
#[derive(Debug)]
pub struct PoolFile {
    path: PathBuf,
    /// The processes that have it locked, as far as they can be seen.
    holders: Vec<u32>,
    /// What they serve.
    devices: Vec<Device>,
}

impl PoolFile {
    /// The one at a path in full.
    pub fn at(path: &Path) -> Self {
        let holders = lock_holders(path);
        Self {
            path: path.to_owned(),
            devices: holders.iter().copied().flat_map(served_by).collect(),
            holders,
        }
    }

    /// Whether a mount is of the pool in this file, as far as that can be seen; if it cannot, by
    /// its path.
    pub fn is_of(&self, mounted: &Mounted) -> bool {
        let place = PoolPath::of(&mounted.pool);
        let is_held = self.devices.contains(&mounted.device);
        match place.pool == self.path {
            true => is_held || !self.is_of_another(mounted, &place),
            false => is_held && self.was_at(&place.pool, mounted.device),
        }
    }

    /// Whether the process behind a mount of this path has another file, which was there before.
    fn is_of_another(&self, mounted: &Mounted, place: &PoolPath) -> bool {
        let is_unused = || {
            let file = File::open(&self.path);
            file.is_ok_and(|file| is_in_use(&file, place.dataset()).is_ok_and(|used| !used))
        };
        // Without a process it is dead, or of a process that cannot be seen.
        server_of(mounted.device).is_some_and(|server| {
            !self.holders.contains(&server) && (!self.holders.is_empty() || is_unused())
        })
    }

    /// Whether the file is also at this path, or was before it got its name now: a process may
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
