//! Room for further pools in the file of a pool: taken, given back.

use rustix::fs::{FallocateFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::MediaError;
use crate::backing::{Node, allocate, failed, no_room, node_of};

/// A file in which there may be room.
pub(crate) struct Room<'f> {
    fd: BorrowedFd<'f>,
    path: &'f Path,
    stat: Stat,
}

impl<'f> Room<'f> {
    /// `None`: it is no file, but a device, which has the bytes that it has.
    pub(crate) fn of(file: &'f impl AsFd, path: &'f Path) -> Result<Option<Self>, MediaError> {
        let fd = file.as_fd();
        let stat = rustix::fs::fstat(fd).map_err(|errno| failed("examine", path, errno))?;
        let is_file = node_of(&stat, path)? == Node::File;
        Ok(is_file.then_some(Self { fd, path, stat }))
    }

    fn len(&self) -> u64 {
        self.stat.st_size as u64
    }

    /// Gives `len` bytes from `start` on all their blocks, durably: the file grows if it has to.
    /// Gives whether they are known to be zero.
    pub(crate) fn take(&self, start: u64, len: u64) -> Result<bool, MediaError> {
        let there = self.len().saturating_sub(start).min(len);
        let is_zero = there == 0 || self.punch(start, there).is_ok();
        let taken = allocate(self.fd, start, len)
            .and_then(|()| rustix::fs::fsync(self.fd))
            .map_err(|errno| no_room(self.path, len, errno));
        if taken.is_err() && start.saturating_add(len) > self.len() {
            // What the file has grown by is of use to nobody; whether it goes cannot change the
            // answer.
            let _ = rustix::fs::ftruncate(self.fd, self.len());
        }
        taken.map(|()| is_zero)
    }

    /// Gives back `len` bytes from `start` on, as far as the file system under the file can, where
    /// nothing but free bytes lies behind `end`. That they stay taken harms nobody.
    pub(crate) fn give_back(&self, start: u64, len: u64, end: u64) {
        let _refusal_is_fine = if end < self.len() {
            rustix::fs::ftruncate(self.fd, end)
        } else {
            Ok(())
        };
        if start < end {
            let _refusal_is_fine = self.punch(start, len);
        }
    }

    /// Makes a hole of bytes inside.
    fn punch(&self, start: u64, len: u64) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(self.fd, flags, start, len)
    }
}
