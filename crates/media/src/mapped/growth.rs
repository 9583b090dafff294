//! Pools whose file grows, or gets and loses space, while it is mapped.

use super::{MappedPool, not_mapped, sharing};
use crate::backing::{Backing, Node};
use crate::mapping::{Mapping, MappingError, Part};
use crate::part::{Room, punch};
use crate::{MediaError, MediaKind};
use rustix::mm::MapFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Maps the first `len` bytes of `fd`, with addresses behind them for those that the file gets
/// while it is mapped. Fewer addresses do, if there are not so many.
pub(super) fn with_spare(
    fd: BorrowedFd<'_>,
    len: u64,
    flags: MapFlags,
    page_bytes: usize,
) -> Result<Mapping, MappingError> {
    const LEAST: u64 = 64 << 30;
    const MOST: u64 = 4 << 40;
    let from = 0;
    let whole = [Part {
        fd,
        from,
        len,
        flags,
    }];
    let joined = |spare_bytes| Mapping::joined(&whole, page_bytes, spare_bytes);
    joined(len.saturating_mul(7).clamp(LEAST, MOST))
        .or_else(|_| joined(len))
        .or_else(|_| joined(0))
}

/// Maps a file, which may grow if it is not only read, or a device.
pub(super) fn map(
    backing: &Backing,
    read_only: bool,
    flags: MapFlags,
) -> Result<Mapping, MediaError> {
    let (fd, len, page_bytes) = (backing.fd.as_fd(), backing.len, backing.page_bytes);
    let mapped = match backing.node {
        Node::File if !read_only => with_spare(fd, len, flags, page_bytes),
        _ => Mapping::new(fd, len, flags, page_bytes),
    };
    mapped.map_err(|error| not_mapped(error, &backing.path))
}

impl MappedPool {
    /// See [`crate::Medium::spare_bytes`].
    pub(super) fn spare(&self) -> u64 {
        let page_bytes = self.mapping.page_bytes() as u64;
        let is_fixed = self.read_only || !self.data.is_empty();
        match is_fixed || !self.mapping.len().is_multiple_of(page_bytes) {
            true => 0,
            false => self.mapping.spare_bytes(),
        }
    }

    /// See [`crate::Medium::extend`].
    pub(super) fn take_more(&self, from: u64, end: u64, is_sparse: bool) -> Result<(), MediaError> {
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        let len = self.mapping.len();
        let more = end.saturating_sub(len);
        if from > end || more > self.spare() {
            return Err(MediaError::NoRoomBehind {
                path: path.to_owned(),
                len_bytes: end.saturating_sub(from),
                available_bytes: (len + self.spare()).saturating_sub(from),
            });
        }
        match Room::of(&self.fd, path)? {
            // Memory is taken as it is used.
            Some(room) if is_sparse || self.path.is_none() => room.reach(self.start + end)?,
            Some(room) => _ = room.take(self.start + from, end - from)?,
            None => {}
        }
        if more == 0 {
            return Ok(());
        }
        let part = Part {
            fd: self.fd.as_fd(),
            from: self.start + len,
            len: more,
            flags: sharing(false, self.kind == MediaKind::Dax),
        };
        let grown = self.mapping.grow(&part);
        grown.map_err(|source| MediaError::Io {
            action: "map more of",
            path: path.to_owned(),
            source,
        })?;
        if self.kind != MediaKind::File {
            self.mapping.prefer_large_pages();
        }
        self.read_singly();
        Ok(())
    }

    /// See [`crate::Medium::provide`].
    pub(super) fn provide_space(&self, at: u64, len: u64) -> Result<(), MediaError> {
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        self.in_files(at, len).try_for_each(|piece| {
            let (file, from) = self.file_at(piece.start);
            match Room::of(&file, path)? {
                Some(room) => room.provide(from, piece.end - piece.start),
                None => Ok(()),
            }
        })
    }

    /// See [`crate::Medium::give_back`].
    pub(super) fn give_space_back(&self, at: u64, len: u64) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.keep_for_copy(at, len);
        self.in_files(at, len).try_for_each(|piece| {
            let (file, from) = self.file_at(piece.start);
            // A file of data keeps its space, because writes rely on it.
            if self.data_at(piece.start).is_some() && !is_device(file) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            Ok(punch(file, from, piece.end - piece.start)?)
        })
    }

    /// See [`crate::Medium::is_on_device`].
    pub(super) fn has_device(&self) -> bool {
        let mut data = self.data.iter();
        match self.data.is_empty() {
            true => is_device(self.fd.as_fd()),
            false => data.any(|data| is_device(data.file.backing.fd.as_fd())),
        }
    }
}

fn is_device(file: BorrowedFd<'_>) -> bool {
    matches!(Room::of(&file, Path::new("")), Ok(None))
}
