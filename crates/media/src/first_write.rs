//! The first write to a block of a file.
//!
//! Some file systems give a file blocks without writing them, mark these as unwritten, and clear
//! the mark in their journal once bytes are there. Whoever syncs then waits for the journal, too.
//! Where nobody has written yet is where a search for holes ends.

use crate::backing::fs_type;
use rustix::fs::SeekFrom;
use std::os::fd::BorrowedFd;

/// ext2, ext3 and ext4.
const EXT_MAGIC: u64 = 0xef53;
const XFS_MAGIC: u64 = 0x5846_5342;

/// Whether somebody's first write to some of `[at, at + len)` is still to come, in a file system
/// that notes it. Others write what is overwritten to another place each time.
pub(crate) fn is_to_come(file: BorrowedFd<'_>, at: u64, len: u64) -> bool {
    let is_noted = matches!(fs_type(file), Some(EXT_MAGIC | XFS_MAGIC));
    is_noted && has_hole(file, at, len)
}

fn has_hole(file: BorrowedFd<'_>, at: u64, len: u64) -> bool {
    // Nobody uses the place in the file that this moves.
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
        assert!(!has_hole(file.as_fd(), 0, 16 << 12), "its end is none");
    }
}
