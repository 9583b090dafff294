//! The interface of every measured side: the same operations through the library and through system
//! calls.

use std::ffi::CStr;

use vellum::media::count::Counts;

use crate::Result;
use crate::error::expect;

/// Bytes of a block, of a read and of an append.
pub(crate) const BLOCK: usize = 4096;

/// The purpose of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    /// Every write goes to the end.
    Appending,
}

/// One file system, accessed in one way. Names and paths start at a directory that was opened
/// before, so that every side walks the same number of components.
pub(crate) trait Side: Sync {
    /// An open directory.
    type Dir: Send + Sync;
    /// An open file.
    type File;

    /// Opens a directory by its path below the root of the measurement; an empty path is that root.
    fn dir(&self, path: &str) -> Result<Self::Dir>;

    /// Creates a directory by its path below the root of the measurement.
    fn make_dir(&self, path: &str) -> Result<()>;

    /// Calls `stat`; returns the inode number.
    fn stat(&self, at: &Self::Dir, path: &CStr) -> Result<u64>;

    /// Calls `stat`; returns the size in bytes.
    fn size(&self, at: &Self::Dir, path: &CStr) -> Result<u64>;

    /// Opens an existing file for reading and closes it.
    fn open_close(&self, at: &Self::Dir, path: &CStr) -> Result<()>;

    /// Creates a file that must not exist, and closes it.
    fn create(&self, at: &Self::Dir, name: &CStr) -> Result<()>;

    /// Creates a file that must not exist, writes to it, syncs it, and closes it.
    fn create_write_sync(&self, at: &Self::Dir, name: &CStr, data: &[u8]) -> Result<()>;

    /// Removes a file's name.
    fn unlink(&self, at: &Self::Dir, name: &CStr) -> Result<()>;

    /// Creates a directory.
    fn mkdir(&self, at: &Self::Dir, name: &CStr) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, at: &Self::Dir, name: &CStr) -> Result<()>;

    /// Renames a file.
    fn rename(&self, from: &Self::Dir, old: &CStr, to: &Self::Dir, new: &CStr) -> Result<()>;

    /// Lists a whole directory with names borrowed from the listing's buffer; returns the number of
    /// entries without `.` and `..`.
    fn list(&self, dir: &Self::Dir) -> Result<u64>;

    /// Lists a whole directory, with a copy of each name.
    fn list_owned(&self, dir: &Self::Dir) -> Result<u64>;

    /// Opens a file.
    fn open(&self, at: &Self::Dir, path: &CStr, purpose: For) -> Result<Self::File>;

    /// Reads at an offset; returns the number of bytes.
    fn read_at(&self, file: &Self::File, offset: u64, out: &mut [u8]) -> Result<usize>;

    /// Writes to the end; returns the number of bytes.
    fn append(&self, file: &Self::File, data: &[u8]) -> Result<usize>;

    /// Waits until no work is left from operations that returned.
    fn settle(&self) -> Result<()>;

    /// The counts so far; zero where nothing is counted.
    fn counts(&self) -> Counts;

    /// Whether it is the null file system, whose results cannot be checked.
    fn is_null_fs(&self) -> bool {
        false
    }

    /// Fails unless `found` is `expected`.
    fn expect<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        found: T,
        expected: T,
    ) -> Result<()> {
        if self.is_null_fs() {
            Ok(())
        } else {
            expect(what, found, expected)
        }
    }
}
