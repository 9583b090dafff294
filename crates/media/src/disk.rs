//! What is read and written by calls: the file or device under a pool whose metadata are worked on
//! in memory.

use crate::site::Site;
use std::io;

/// A file or device. Reads see what was written; what survives a power cut is what a
/// [`sync`](Self::sync) has followed, and perhaps any part of the rest, by sectors of 512 bytes.
pub trait Disk: Send + Sync {
    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// Outside, or what the operating system said.
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes bytes. Blocks of files count as written since the last cut. Nobody else writes to the
    /// blocks that these bytes touch meanwhile.
    ///
    /// # Errors
    /// Outside, opened for reading only, or what the operating system said.
    #[track_caller]
    fn write(&self, at: u64, data: &[u8]) -> io::Result<()>;

    /// Makes everything that was written survive a power cut. Once it has failed nobody knows what
    /// did.
    ///
    /// # Errors
    /// What the operating system said, now or to a write of data before.
    #[track_caller]
    fn sync(&self, site: Site) -> io::Result<()>;

    /// Writes bytes that are in no block of a file, and makes them survive a power cut; of what was
    /// written before, others need not.
    ///
    /// # Errors
    /// Those of [`write`](Self::write) and of [`sync`](Self::sync).
    #[track_caller]
    fn write_durably(&self, site: Site, at: u64, data: &[u8]) -> io::Result<()> {
        self.write(at, data)?;
        self.sync(site)
    }

    /// A [`sync`](Self::sync) of the medium of the blocks of files alone, where they have one of
    /// their own; that one leaves them out then.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    #[track_caller]
    fn sync_data(&self, site: Site) -> io::Result<()> {
        self.sync(site)
    }

    /// Writes zeros to bytes that are nobody's, if the first write to some of them is still to
    /// come, and a sync that follows that would wait for more than its bytes: whatever is below has
    /// to note that they are written. Blocks of files among them do not count as written.
    ///
    /// # Errors
    /// Those of [`write`](Self::write); nothing hangs on it.
    #[track_caller]
    fn write_ahead(&self, at: u64, len: u64) -> io::Result<()> {
        let _ = (at, len);
        Ok(())
    }

    /// Whether blocks of files are read from the medium itself whenever they are read, because the
    /// kernel keeps no copies of them.
    fn is_direct(&self) -> bool {
        false
    }

    /// Whether bytes of a file could not be written, so that no sync succeeds any more.
    fn has_failed(&self) -> bool {
        false
    }

    /// Forgets copies in memory that are no newer than what lies on the medium, so that it is the
    /// medium that is read.
    fn forget(&self, at: u64, len: u64) {
        let _ = (at, len);
    }
}

/// How a pool is split whose metadata are worked on in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Bytes of the image: from the first byte of the pool on.
    pub image_bytes: u64,
    /// Where the blocks of files begin, which are written by calls.
    pub data_at: u64,
    /// Whether these lie on a medium of their own.
    pub is_external: bool,
}
