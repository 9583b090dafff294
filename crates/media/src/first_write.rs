//! Detects whether a write is the first one to blocks of a file.
//!
//! Some file systems allocate blocks of a file without writing them, mark them as unwritten, and
//! clear the mark in their journal once they are written. A sync after such a first write also
//! waits for the journal. A search for holes stops at unwritten blocks.

use crate::backing::fs_type;
use rustix::fs::SeekFrom;
use std::os::fd::BorrowedFd;

/// ext2, ext3 and ext4.
const EXT_MAGIC: u64 = 0xef53;
const XFS_MAGIC: u64 = 0x5846_5342;

/// Whether some bytes of `[at, at + len)` were never written, in a file system that marks unwritten
/// blocks. Other file systems write overwritten bytes to a new location every time.
pub(crate) fn is_to_come(file: BorrowedFd<'_>, at: u64, len: u64) -> bool {
    let is_noted = matches!(fs_type(file), Some(EXT_MAGIC | XFS_MAGIC));
    is_noted && has_hole(file, at, len)
}

fn has_hole(file: BorrowedFd<'_>, at: u64, len: u64) -> bool {
    // No code uses the file position that this changes.
    rustix::fs::seek(file, SeekFrom::Hole(at)).is_ok_and(|hole| hole < at + len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::allocate;
    use crate::logged::write_all;
    use std::os::fd::AsFd;

    #[test]
    fn what_was_allocated_and_never_written_is_a_hole() {
        let file = tempfile::tempfile().unwrap();
        allocate(file.as_fd(), 0, 16 << 12).unwrap();
        assert!(has_hole(file.as_fd(), 4 << 12, 1 << 12));
        write_all(file.as_fd(), 4 << 12, &[0; 2 << 12]).unwrap();
        assert!(!has_hole(file.as_fd(), 4 << 12, 2 << 12));
        assert!(has_hole(file.as_fd(), 4 << 12, 3 << 12));
        write_all(file.as_fd(), 0, &[0; 16 << 12]).unwrap();
        assert!(
            !has_hole(file.as_fd(), 0, 16 << 12),
            "its end is not a hole"
        );
    }
}
