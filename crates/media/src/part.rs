//! Space for further pools in the file of a pool: allocated and returned.

use rustix::fs::{FallocateFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::MediaError;
use crate::backing::{Node, allocate, failed, no_room, node_of};

/// A file that may have space.
pub(crate) struct Room<'f> {
    fd: BorrowedFd<'f>,
    path: &'f Path,
    stat: Stat,
}

impl<'f> Room<'f> {
    /// `None` for a device, which has a fixed size.
    pub(crate) fn of(file: &'f impl AsFd, path: &'f Path) -> Result<Option<Self>, MediaError> {
        let fd = file.as_fd();
        let stat = rustix::fs::fstat(fd).map_err(|errno| failed("examine", path, errno))?;
        let is_file = node_of(&stat, path)? == Node::File;
        Ok(is_file.then_some(Self { fd, path, stat }))
    }

    fn len(&self) -> u64 {
        self.stat.st_size as u64
    }

    /// Allocates all blocks of `len` bytes from `start` on, durably: the file grows if necessary.
    /// Returns whether the bytes are known to be zero.
    pub(crate) fn take(&self, start: u64, len: u64) -> Result<bool, MediaError> {
        let there = self.len().saturating_sub(start).min(len);
        let is_zero = there == 0 || punch(self.fd, start, there).is_ok();
        let taken = allocate(self.fd, start, len)
            .and_then(|()| rustix::fs::fsync(self.fd))
            .map_err(|errno| match errno {
                Errno::FBIG => no_room(self.path, start.saturating_add(len), errno),
                _ => no_room(self.path, len, errno),
            });
        if taken.is_err() && start.saturating_add(len) > self.len() {
            // The bytes that the file has grown by are useless; a failure to remove them changes
            // nothing.
            let _ = rustix::fs::ftruncate(self.fd, self.len());
        }
        taken.map(|()| is_zero)
    }

    /// Makes the file reach up to `end` at least, durably, without allocating blocks.
    pub(crate) fn reach(&self, end: u64) -> Result<(), MediaError> {
        let longer = match end > self.len() {
            true => rustix::fs::ftruncate(self.fd, end),
            false => Ok(()),
        };
        let done = longer.and_then(|()| rustix::fs::fsync(self.fd));
        done.map_err(|errno| no_room(self.path, end, errno))
    }

    /// Allocates blocks for `len` bytes from `start` on, which stay as they are.
    pub(crate) fn provide(&self, start: u64, len: u64) -> Result<(), MediaError> {
        loop {
            match rustix::fs::fallocate(self.fd, FallocateFlags::KEEP_SIZE, start, len) {
                Err(Errno::INTR) => {}
                done => return done.map_err(|errno| no_room(self.path, len, errno)),
            }
        }
    }

    /// Returns `len` bytes from `start` on to the file system under the file, as far as it can;
    /// only free bytes lie behind `end`. If they stay allocated, no harm is done.
    pub(crate) fn give_back(&self, start: u64, len: u64, end: u64) {
        let _refusal_is_fine = if end < self.len() {
            rustix::fs::ftruncate(self.fd, end)
        } else {
            Ok(())
        };
        if start < end {
            let _refusal_is_fine = punch(self.fd, start, len);
        }
    }
}

/// Makes a hole inside a file, or discards bytes of a device.
pub(crate) fn punch(fd: BorrowedFd<'_>, start: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    loop {
        match rustix::fs::fallocate(fd, flags, start, len) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
