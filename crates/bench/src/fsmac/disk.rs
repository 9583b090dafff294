//! Requests to a disk, as the kernel counts them for each block device.

use std::ops::{AddAssign, Sub};
use std::path::{Path, PathBuf};

use crate::Result;
use crate::error::doing;

/// Bytes of a sector in the counters, whatever the disk's own sector size is.
const SECTOR_BYTES: u64 = 512;
/// Positions in the line of a device's counters.
const READS: usize = 0;
const SECTORS_READ: usize = 2;
const WRITES: usize = 4;
const SECTORS_WRITTEN: usize = 6;
const FLUSHES: usize = 15;

/// A block device.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    counters: PathBuf,
    name: String,
}

/// Counters of a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// Reads and writes.
    pub(super) requests: u64,
    /// Bytes read and written.
    pub(super) bytes: u64,
    /// Flushes of its cache.
    pub(super) flushes: u64,
}

impl Disk {
    /// The device of the file system that contains `dir`; `None` if it has no device, or one
    /// without counters.
    pub(super) fn of(dir: &Path) -> Result<Option<Self>> {
        let stat = rustix::fs::stat(dir).map_err(doing(format!("look at {}", dir.display())))?;
        let (major, minor) = (
            rustix::fs::major(stat.st_dev),
            rustix::fs::minor(stat.st_dev),
        );
        let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let name = std::fs::canonicalize(&device).unwrap_or_default();
        let disk = Self {
            counters: device.join("stat"),
            name: name.file_name().unwrap_or_default().display().to_string(),
        };
        Ok(disk.requests().map(|_| disk))
    }

    /// The device's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The requests since the machine was started.
    pub(super) fn requests(&self) -> Option<Requests> {
        parse(&std::fs::read_to_string(&self.counters).ok()?)
    }
}

fn parse(line: &str) -> Option<Requests> {
    let fields: Option<Vec<u64>> = line.split_whitespace().map(|n| n.parse().ok()).collect();
    let fields = fields?;
    let field = |at: usize| fields.get(at).copied();
    Some(Requests {
        requests: field(READS)? + field(WRITES)?,
        bytes: (field(SECTORS_READ)? + field(SECTORS_WRITTEN)?) * SECTOR_BYTES,
        flushes: field(FLUSHES)?,
    })
}

impl Sub for Requests {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            flushes: self.flushes.saturating_sub(before.flushes),
        }
    }
}

impl AddAssign for Requests {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.bytes += more.bytes;
        self.flushes += more.flushes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_places() {
        let line = "  9 1 100 5 30 6 800 7 0 18 60 8 7 70 3 4 2\n";
        let all = parse(line).expect("counters");
        let expected = Requests {
            requests: 39,
            bytes: 900 * 512,
            flushes: 4,
        };
        assert_eq!(all, expected);
        // Kernels before 5.5 count no flushes.
        assert_eq!(parse("9 1 100 5 30 6 800 7 0 18 60"), None);
        assert_eq!(parse("x"), None);
    }
}
