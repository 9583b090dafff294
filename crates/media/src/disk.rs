//! Access by calls to the file or device under a pool with an image in memory.

use crate::site::Site;
use std::io;

/// A file or device. Reads return what was written. After a power cut everything before the last
/// [`sync`](Self::sync) is there, and perhaps any part of the rest, by sectors of 512 bytes.
pub trait Disk: Send + Sync {
    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// Fails outside the disk, or on an error of the operating system.
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes bytes. Blocks of files count as written since the last cut. No other thread writes to
    /// the touched blocks meanwhile.
    ///
    /// # Errors
    /// Fails outside the disk or if it is open for reading only, or on an error of the operating
    /// system.
    #[track_caller]
    fn write(&self, at: u64, data: &[u8]) -> io::Result<()>;

    /// Makes everything that was written survive a power cut. After a failure it is unknown what
    /// survives.
    ///
    /// # Errors
    /// Returns the error of the operating system, from now or from an earlier write of data.
    #[track_caller]
    fn sync(&self, site: Site) -> io::Result<()>;

    /// Writes bytes outside the blocks of files, and makes them survive a power cut. Earlier writes
    /// need not survive.
    ///
    /// # Errors
    /// As [`write`](Self::write) and [`sync`](Self::sync).
    #[track_caller]
    fn write_durably(&self, site: Site, at: u64, data: &[u8]) -> io::Result<()> {
        self.write(at, data)?;
        self.sync(site)
    }

    /// Syncs only the external data devices, if there are any; [`sync`](Self::sync) then leaves
    /// them out.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    #[track_caller]
    fn sync_data(&self, site: Site) -> io::Result<()> {
        self.sync(site)
    }

    /// Writes zeros to free bytes, if some of them were never written and a later sync would
    /// therefore wait for more than its bytes: the file system below has to record first writes.
    /// Blocks of files among them do not count as written.
    ///
    /// # Errors
    /// As [`write`](Self::write); nothing depends on its success.
    #[track_caller]
    fn write_ahead(&self, at: u64, len: u64) -> io::Result<()> {
        let _ = (at, len);
        Ok(())
    }

    /// Whether every read of blocks of files reaches the medium, because the kernel keeps no copies
    /// of them.
    fn is_direct(&self) -> bool {
        false
    }

    /// Whether bytes of a file could not be written, so that no sync succeeds any more.
    fn has_failed(&self) -> bool {
        false
    }

    /// Drops copies in memory that are no newer than the medium, so that the next read reaches the
    /// medium.
    fn forget(&self, at: u64, len: u64) {
        let _ = (at, len);
    }
}

/// How a pool with an image or transactions is split into metadata and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Bytes of the image, from the first byte of the pool on.
    pub image_bytes: u64,
    /// Offset of the blocks of files, which are written by calls.
    pub data_at: u64,
    /// Whether these lie on an external data device.
    pub is_external: bool,
}
