//! Open handles and file content.

use crate::attr::{SetAttr, Via};
use crate::content::Content;
use crate::flags::{APPEND_ONLY, IMMUTABLE};
use crate::tree::{Body, READ, WRITE};
use crate::{Attr, BLOCK_SIZE, Cred, DirEntry, Errno, FILE_SIZE_MAX, Ino, Kind, Model, Result};

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpenFile {
    pub(crate) ino: Ino,
    flags: i32,
}

impl OpenFile {
    pub(crate) fn reads(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    pub(crate) fn writes(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }
}

/// Offsets are signed 64-bit numbers in system calls; larger ones are negative there.
fn check_offset(offset: u64) -> Result<()> {
    if offset > i64::MAX as u64 {
        Err(Errno::EINVAL)
    } else {
        Ok(())
    }
}

impl Model {
    /// Opens an inode: `flags` are `O_RDONLY`, `O_WRONLY` or `O_RDWR`, with `O_TRUNC`, `O_APPEND`
    /// and `O_DIRECTORY`.
    pub fn open(&mut self, ino: Ino, flags: i32, cred: &Cred, now: i64) -> Result<Handle> {
        let file = OpenFile { ino, flags };
        let truncate = flags & libc::O_TRUNC != 0;
        let read = if file.reads() { READ } else { 0 };
        let write = if file.writes() || truncate { WRITE } else { 0 };
        match self.node(ino)?.kind() {
            Kind::Dir if write != 0 => return Err(Errno::EISDIR),
            Kind::Dir => self.access(ino, read | write, cred)?,
            _ if flags & libc::O_DIRECTORY != 0 => return Err(Errno::ENOTDIR),
            Kind::Symlink => return Err(Errno::ELOOP),
            Kind::File => {
                self.access(ino, read | write, cred)?;
                let appends = flags & libc::O_APPEND != 0 && !truncate;
                if write != 0 && !appends && self.node(ino)?.has(APPEND_ONLY) {
                    return Err(Errno::EPERM);
                }
            }
            // Sockets are not opened; pipes and devices are the kernel's to open.
            _ => {
                self.access(ino, read | write, cred)?;
                return Err(Errno::ENXIO);
            }
        }
        if truncate {
            self.change(
                ino,
                &SetAttr {
                    size: Some(0),
                    ..SetAttr::default()
                },
                Via::Handle,
                cred,
                now,
            )?;
        }
        self.open_unchecked(ino, flags)
    }

    /// Opens an inode that the caller has just created, whatever its mode.
    pub(crate) fn open_unchecked(&mut self, ino: Ino, flags: i32) -> Result<Handle> {
        self.node_mut(ino)?.opens += 1;
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        self.handles.insert(handle, OpenFile { ino, flags });
        Ok(handle)
    }

    /// Closes a handle: its locks end, and those of the process on its file. The inode is gone if
    /// it has no name and this was the last handle.
    pub fn close(&mut self, handle: Handle) -> Result<()> {
        let OpenFile { ino, .. } = self.handles.remove(&handle).ok_or(Errno::EBADF)?;
        self.end_locks(handle, ino);
        self.node_mut(ino)?.opens -= 1;
        self.reap(ino);
        Ok(())
    }

    /// Closes every handle and empties every slot, as the end of all processes does.
    pub fn close_all(&mut self) {
        self.slots.clear();
        let handles: Vec<Handle> = self.handles.keys().copied().collect();
        for handle in handles {
            self.close(handle).expect("the handle is in the table");
        }
    }

    pub(crate) fn opened(&self, handle: Handle) -> Result<OpenFile> {
        self.handles.get(&handle).copied().ok_or(Errno::EBADF)
    }

    /// The inode that a handle has open.
    pub fn handle_ino(&self, handle: Handle) -> Result<Ino> {
        self.opened(handle).map(|file| file.ino)
    }

    /// The attributes of an open inode (`fstat`).
    pub fn handle_attr(&self, handle: Handle) -> Result<Attr> {
        self.getattr(self.handle_ino(handle)?)
    }

    /// The handle in a slot of an [`Op`](crate::Op), if one is open there.
    pub fn handle_in(&self, slot: u8) -> Option<Handle> {
        self.slots.get(&slot).copied()
    }

    /// The names in an open directory.
    pub fn handle_readdir(&mut self, handle: Handle, now: i64) -> Result<Vec<DirEntry>> {
        self.readdir(self.handle_ino(handle)?, now)
    }

    /// Reads at an offset (`pread`): up to `len` bytes, fewer at the end of file.
    pub fn read(&mut self, handle: Handle, offset: u64, len: u64, now: i64) -> Result<Vec<u8>> {
        let file = self.opened(handle)?;
        check_offset(offset)?;
        if !file.reads() {
            return Err(Errno::EBADF);
        }
        let bytes = self.content(file.ino)?.read(offset, len);
        if len > 0 {
            self.accessed(file.ino, now)?;
        }
        Ok(bytes)
    }

    /// Writes at an offset (`pwrite`), or at the end of a file that was opened with `O_APPEND`.
    /// Returns the number of bytes written, fewer than given only at the largest file size.
    pub fn write(
        &mut self,
        handle: Handle,
        offset: u64,
        bytes: &[u8],
        cred: &Cred,
        now: i64,
    ) -> Result<u64> {
        let file = self.opened(handle)?;
        check_offset(offset)?;
        if !file.writes() {
            return Err(Errno::EBADF);
        }
        self.check_mutable(file.ino)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        check_offset(offset + bytes.len() as u64)?;
        let append = file.flags & libc::O_APPEND != 0;
        let start = if append {
            self.content(file.ino)?.size()
        } else {
            offset
        };
        if start >= FILE_SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let len = (bytes.len() as u64).min(FILE_SIZE_MAX - start);
        let len = self.may_write(file.ino, Range { offset: start, len }, cred)?;
        self.change_content(file.ino, cred, now, |content| {
            content.write(start, &bytes[..len as usize])
        })?;
        Ok(len)
    }

    /// Writes at the end of the file, whatever the flags of the handle.
    pub fn append(&mut self, handle: Handle, bytes: &[u8], cred: &Cred, now: i64) -> Result<u64> {
        let file = self.opened(handle)?;
        if !file.writes() {
            return Err(Errno::EBADF);
        }
        self.write(handle, self.content(file.ino)?.size(), bytes, cred, now)
    }

    /// Sets the size (`ftruncate`).
    pub fn truncate(&mut self, handle: Handle, size: u64, cred: &Cred, now: i64) -> Result<()> {
        check_offset(size)?;
        let file = self.opened(handle)?;
        if !file.writes() {
            return Err(Errno::EINVAL);
        }
        self.change(
            file.ino,
            &SetAttr {
                size: Some(size),
                ..SetAttr::default()
            },
            Via::Handle,
            cred,
            now,
        )
    }

    /// Allocates (`mode` 0 or `FALLOC_FL_KEEP_SIZE`), frees (`FALLOC_FL_PUNCH_HOLE |
    /// FALLOC_FL_KEEP_SIZE`), zeroes, removes or inserts a range.
    pub fn fallocate(
        &mut self,
        handle: Handle,
        mode: i32,
        range: Range,
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEP: i32 = ZERO | KEEP;
        const COLLAPSE: i32 = libc::FALLOC_FL_COLLAPSE_RANGE;
        const INSERT: i32 = libc::FALLOC_FL_INSERT_RANGE;
        let Range { offset, len } = range;
        let file = self.opened(handle)?;
        check_offset(offset).and(check_offset(len))?;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let known = [0, KEEP, PUNCH, ZERO, ZERO_KEEP, COLLAPSE, INSERT];
        if !known.contains(&mode) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !file.writes() {
            return Err(Errno::EBADF);
        }
        if mode & !KEEP != 0 && self.node(file.ino)?.has(APPEND_ONLY) {
            return Err(Errno::EPERM);
        }
        self.check_mutable(file.ino)?;
        let end = offset + len;
        if end > FILE_SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let size = self.content(file.ino)?.size();
        match mode {
            COLLAPSE if !is_of_blocks(range) || end >= size => return Err(Errno::EINVAL),
            INSERT if !is_of_blocks(range) || offset >= size => return Err(Errno::EINVAL),
            INSERT if size + len > FILE_SIZE_MAX => return Err(Errno::EFBIG),
            PUNCH | COLLAPSE | INSERT => {}
            _ if self.may_write(file.ino, range, cred)? < len => return Err(Errno::EDQUOT),
            _ => {}
        }
        self.change_content(file.ino, cred, now, |content| match mode {
            PUNCH => content.punch(offset, len),
            COLLAPSE => content.collapse(offset, len),
            INSERT => content.insert(offset, len),
            _ => {
                if mode & ZERO != 0 {
                    content.punch(offset, len);
                }
                content.preallocate(offset, len);
                if mode & KEEP == 0 && end > content.size() {
                    content.set_size(end);
                }
            }
        })
    }

    /// The next data at or after `offset` (`SEEK_DATA`); `ENXIO` if there is none.
    pub fn seek_data(&self, handle: Handle, offset: u64) -> Result<u64> {
        self.content(self.handle_ino(handle)?)?
            .seek_data(offset)
            .ok_or(Errno::ENXIO)
    }

    /// The next hole at or after `offset` (`SEEK_HOLE`); the end of file is one, and `ENXIO` at or
    /// past it.
    pub fn seek_hole(&self, handle: Handle, offset: u64) -> Result<u64> {
        self.content(self.handle_ino(handle)?)?
            .seek_hole(offset)
            .ok_or(Errno::ENXIO)
    }

    fn check_mutable(&self, ino: Ino) -> Result<()> {
        match self.node(ino)?.has(IMMUTABLE) {
            true => Err(Errno::EPERM),
            false => Ok(()),
        }
    }

    fn change_content(
        &mut self,
        ino: Ino,
        cred: &Cred,
        now: i64,
        change: impl FnOnce(&mut Content),
    ) -> Result<()> {
        self.drop_privileges(ino, cred)?;
        let node = self.node_mut(ino)?;
        if let Body::File(content) = &mut node.body {
            change(content);
            node.modified(now);
        }
        Ok(())
    }
}

fn is_of_blocks(range: Range) -> bool {
    let unit = BLOCK_SIZE as u64;
    range.offset.is_multiple_of(unit) && range.len.is_multiple_of(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlinked_file_lives_until_its_last_close() {
        let mut model = Model::new(0);
        let root = Cred::superuser();
        let file = model
            .create(Ino::ROOT, b"f", 0o600, true, &root, 1)
            .unwrap();
        let handle = model.open(file, libc::O_RDWR, &root, 1).unwrap();
        model.unlink(Ino::ROOT, b"f", &root, 2).unwrap();
        assert_eq!(model.write(handle, 0, b"still here", &root, 3), Ok(10));
        assert_eq!(model.handle_attr(handle).unwrap().nlink, 0);
        assert_eq!(
            model.link(file, Ino::ROOT, b"g", &root, 3),
            Err(Errno::ENOENT)
        );
        assert_eq!(model.close(handle), Ok(()));
        assert_eq!(model.getattr(file), Err(Errno::ESTALE));
        assert_eq!(model.close(handle), Err(Errno::EBADF));
    }

    #[test]
    fn ranges_are_removed_and_inserted_inside_a_file() {
        let mut model = Model::new(0);
        let root = Cred::superuser();
        let file = model
            .create(Ino::ROOT, b"f", 0o600, true, &root, 1)
            .unwrap();
        let handle = model.open(file, libc::O_RDWR, &root, 1).unwrap();
        model.truncate(handle, 10_000, &root, 2).unwrap();
        let mut shift = |mode, offset, len| {
            let range = Range { offset, len };
            model.fallocate(handle, mode, range, &root, 3)
        };
        let (collapse, insert) = (libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE);
        assert_eq!(shift(collapse, 4096, 4097), Err(Errno::EINVAL));
        assert_eq!(shift(collapse, 4096, 8192), Err(Errno::EINVAL));
        assert_eq!(shift(insert, 12_288, 4096), Err(Errno::EINVAL));
        assert_eq!(shift(insert, 100, 4096), Err(Errno::EINVAL));
        assert_eq!(shift(insert, 0, FILE_SIZE_MAX - 8192), Err(Errno::EFBIG));
        assert_eq!(shift(collapse | insert, 0, 4096), Err(Errno::EOPNOTSUPP));
        assert_eq!(shift(collapse, 4096, 4096), Ok(()));
        assert_eq!(model.handle_attr(handle).unwrap().size, 10_000 - 4096);
    }

    #[test]
    fn files_end_at_the_limit() {
        let mut model = Model::new(0);
        let root = Cred::superuser();
        let file = model
            .create(Ino::ROOT, b"f", 0o600, true, &root, 1)
            .unwrap();
        let handle = model.open(file, libc::O_RDWR, &root, 1).unwrap();
        assert_eq!(
            model.write(handle, FILE_SIZE_MAX - 2, b"four", &root, 1),
            Ok(2)
        );
        assert_eq!(
            model.write(handle, FILE_SIZE_MAX, b"four", &root, 1),
            Err(Errno::EFBIG)
        );
        assert_eq!(
            model.truncate(handle, FILE_SIZE_MAX + 1, &root, 1),
            Err(Errno::EFBIG)
        );
        assert_eq!(model.content(file).unwrap().blocks().len(), 1);
    }
}
