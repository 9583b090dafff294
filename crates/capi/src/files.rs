//! Open files: opening, closing, reading, writing, seeking, syncing.

use std::sync::Arc;

use libc::{c_int, iovec, ssize_t};
use vellum::media::Real;
use vellum::{Error, FileKind, Handle, OpenOptions};

use crate::borrowed::{CPath, In, InBytes, OutBytes};
use crate::failure::{Failure, Result, call};
use crate::objects::{At, Object, OpenFile};
use crate::{table, vellum_handle};

/// Flags that mean nothing here, as no process inherits handles and nothing is a terminal.
const IGNORED: i32 = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_LARGEFILE;

const KNOWN: i32 = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_TMPFILE
    | IGNORED;

fn options_of(flags: i32, mode: u32) -> Result<OpenOptions> {
    let has = |flag: i32| flags & flag == flag;
    if flags & !KNOWN != 0 {
        let text = "an open flag that the library lacks; O_DIRECT is an option of the pool";
        return Err(Failure::invalid(text));
    }
    if has(libc::O_CREAT) && has(libc::O_DIRECTORY) {
        return Err(Failure::invalid("a directory is not made by opening it"));
    }
    let access = flags & libc::O_ACCMODE;
    if access == libc::O_ACCMODE {
        return Err(Failure::invalid("O_WRONLY and O_RDWR exclude each other"));
    }
    Ok(OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .append(has(libc::O_APPEND) && access != libc::O_RDONLY)
        .truncate(has(libc::O_TRUNC))
        .create(has(libc::O_CREAT))
        .create_new(has(libc::O_CREAT) && has(libc::O_EXCL))
        .no_follow(has(libc::O_NOFOLLOW))
        .directory(has(libc::O_DIRECTORY))
        .no_atime(has(libc::O_NOATIME))
        .mode((mode & 0o7777) as u16))
}

fn open(at: At<'_>, path: &[u8], flags: i32, mode: u32) -> Result<Handle<Real>> {
    let fs = at.fs();
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        let options = options_of(flags & !(libc::O_CREAT | libc::O_TRUNC), mode)?;
        let options = options
            .directory(false)
            .create_new(flags & libc::O_EXCL != 0);
        let dir = at.find(path, true)?;
        return Ok(fs.create_unnamed(at.cred, &dir, &options)?);
    }
    Ok(fs.open(at.cred, at.start, path, &options_of(flags, mode)?)?)
}

/// Opens a file or directory, as `openat(2)`. `at` is a pool or volume, at whose root the path
/// begins, or an open directory; a path that begins with `/` begins at the root. `flags` are those
/// of `fcntl.h`: O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY,
/// O_NOFOLLOW, O_NOATIME, O_SYNC, O_DSYNC, O_TMPFILE; O_CLOEXEC, O_NOCTTY and O_NONBLOCK mean
/// nothing. `mode` has the permission bits of a new file. The volume's umask takes some of them.
/// Returns a handle for `vellum_close`, or -1 with the errors of `openat(2)`; ENXIO for pipes,
/// sockets and devices; EINVAL for other flags; EMFILE if 1048576 handles are open.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_open(
    at: vellum_handle,
    path: CPath,
    flags: c_int,
    mode: u32,
) -> vellum_handle {
    call("vellum_open", &[path], || {
        let held = table::get(at)?;
        let at = held.at()?;
        let handle = open(at, path.bytes()?, flags, mode)?;
        let syncs = flags & libc::O_DSYNC != 0;
        table::insert(Object::File(OpenFile::new(
            handle,
            Arc::clone(at.cred),
            syncs,
        )))
    })
}

/// Closes a file, directory or volume. A call on it that another thread is in ends as if nothing
/// had happened. Process locks on the file are released, as by `close(2)`. Returns 0, or -1 with
/// EBADF if the handle is not open, or is that of a pool (`vellum_pool_close`) or a view
/// (`vellum_view_release`), or EBUSY in a child of `fork`; the handle is gone then, too.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_close(handle: vellum_handle) -> c_int {
    call("vellum_close", &[], || {
        let held = table::get(handle)?;
        let used = match &*held {
            Object::File(file) => file.handle.check_use(),
            Object::Volume(volume) => volume.root.fs().check_use(),
            Object::Pool(_) | Object::View(_) => {
                let text = "pools are closed by vellum_pool_close, views by vellum_view_release";
                return Err(Failure::Own(libc::EBADF, text));
            }
        };
        // It leaves first: closing then finds no user, and needs no second fence.
        drop(held);
        table::close(handle)?;
        match used {
            Err(forked @ Error::Forked) => Err(forked.into()),
            _ => Ok(0),
        }
    })
}

/// The offset of a parameter.
#[inline]
pub(crate) fn offset_of(offset: i64) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Failure::invalid("a negative offset"))
}

impl OpenFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let written = self.handle.write_at(offset, bytes)?;
        self.sync_if_asked()?;
        Ok(written)
    }

    pub(crate) fn sync_if_asked(&self) -> Result<()> {
        if self.syncs {
            self.handle.sync()?;
        }
        Ok(())
    }

    /// Writes at the position, or at the end of a file that is open for appending, and moves the
    /// position behind it.
    fn write_on(&self, position: &mut u64, bytes: &[u8]) -> Result<usize> {
        let (at, written) = match self.handle.options().append {
            true => self.handle.append(bytes)?,
            false => (*position, self.handle.write_at(*position, bytes)?),
        };
        *position = at + written as u64;
        self.sync_if_asked()?;
        Ok(written)
    }
}

/// Reads up to `len` bytes at the file's position, and moves it. Threads that share a handle take
/// turns. Returns the number of bytes, less than `len` only at the end of the file, or -1
/// with EBADF (not open for reading), EISDIR, EFAULT, EINVAL, EIO or EUCLEAN (the medium is
/// damaged).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_read(file: vellum_handle, mut buffer: OutBytes, len: usize) -> ssize_t {
    call("vellum_read", &[], || {
        let held = table::get(file)?;
        let file = held.file()?;
        let mut position = file.turn()?;
        let read = file.handle.read_at(*position, buffer.of(len)?)?;
        *position += read as u64;
        Ok(read as ssize_t)
    })
}

/// Reads up to `len` bytes at `offset`, and leaves the position alone. Returns the number
/// of bytes, less than `len` only at the end of the file, or -1 with the errors of `vellum_read`;
/// EINVAL for a negative offset.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_pread(
    file: vellum_handle,
    mut buffer: OutBytes,
    len: usize,
    offset: i64,
) -> ssize_t {
    call("vellum_pread", &[], || {
        let held = table::get(file)?;
        let file = held.file()?;
        let read = file.handle.read_at(offset_of(offset)?, buffer.of(len)?)?;
        Ok(read as ssize_t)
    })
}

/// Writes `len` bytes at the file's position, or with O_APPEND at its end, and moves the position
/// behind them. Returns the number of bytes, or -1 with EBADF (not open for writing), EFBIG,
/// ENOSPC, EDQUOT, EROFS, EPERM (the file's flags forbid it), EDEADLK (this thread has a view of
/// these bytes), EFAULT, EINVAL, EIO or EUCLEAN.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_write(file: vellum_handle, bytes: InBytes, len: usize) -> ssize_t {
    call("vellum_write", &[], || {
        let held = table::get(file)?;
        let file = held.file()?;
        let mut position = file.turn()?;
        let written = file.write_on(&mut position, bytes.of(len)?)?;
        Ok(written as ssize_t)
    })
}

/// Writes `len` bytes at `offset`, and leaves the position alone. With O_APPEND it writes
/// at the end, as Linux does. Returns the number of bytes, or -1 with the errors of `vellum_write`;
/// EINVAL for a negative offset.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_pwrite(
    file: vellum_handle,
    bytes: InBytes,
    len: usize,
    offset: i64,
) -> ssize_t {
    call("vellum_pwrite", &[], || {
        let held = table::get(file)?;
        let file = held.file()?;
        let written = file.write_at(offset_of(offset)?, bytes.of(len)?)?;
        Ok(written as ssize_t)
    })
}

/// The most segments of one call.
const SEGMENTS_MAX: c_int = 1024;
/// Writes of more than this are several anyway.
const GATHERED_MAX: usize = 1 << 20;

/// The segments of a call, and how many bytes they have.
fn segments_of(segments: &In<iovec>, count: c_int) -> Result<(&[iovec], usize)> {
    if !(0..=SEGMENTS_MAX).contains(&count) {
        return Err(Failure::invalid(
            "a number of segments that is not 0 to 1024",
        ));
    }
    let segments = segments.array(count as usize)?;
    let sum = segments
        .iter()
        .try_fold(0usize, |sum, segment| sum.checked_add(segment.iov_len));
    let sum = sum.filter(|&sum| sum <= isize::MAX as usize);
    let sum = sum.ok_or(Failure::invalid("segments of more than 2^63 - 1 bytes"))?;
    Ok((segments, sum))
}

/// As `vellum_pread`, into up to 1024 buffers, one after the other.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_preadv(
    file: vellum_handle,
    segments: In<iovec>,
    count: c_int,
    offset: i64,
) -> ssize_t {
    call("vellum_preadv", &[], || {
        let held = table::get(file)?;
        let file = held.file()?;
        let (segments, _) = segments_of(&segments, count)?;
        let (begin, mut done) = (offset_of(offset)?, 0);
        // Without segments, the handle is checked all the same.
        file.handle.read_at(begin, &mut [])?;
        for segment in segments {
            let read = OutBytes::of_segment(segment)
                .of(segment.iov_len)
                .and_then(|out| Ok(file.handle.read_at(begin + done as u64, out)?));
            match read {
                Ok(read) => done += read,
                // What was read is returned. The next call meets the error again.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if read.is_ok_and(|read| read < segment.iov_len) {
                break;
            }
        }
        Ok(done as ssize_t)
    })
}

/// As `vellum_pwrite`, from up to 1024 buffers, one after the other. Up to 1 MiB is one write,
/// which other writes, and with O_APPEND other appends, do not divide.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_pwritev(
    file: vellum_handle,
    segments: In<iovec>,
    count: c_int,
    offset: i64,
) -> ssize_t {
    call("vellum_pwritev", &[], || {
        let held = table::get(file)?;
        let file = held.file()?;
        let (segments, sum) = segments_of(&segments, count)?;
        let offset = offset_of(offset)?;
        let written = match segments {
            [] => file.handle.write_at(offset, &[])?,
            [one] => file
                .handle
                .write_at(offset, InBytes::of_segment(one).of(one.iov_len)?)?,
            _ => file.write_gathered(segments, sum.min(GATHERED_MAX), offset)?,
        };
        file.sync_if_asked()?;
        Ok(written as ssize_t)
    })
}

impl OpenFile {
    /// Writes the segments, `piece` bytes at a time.
    fn write_gathered(&self, segments: &[iovec], piece: usize, offset: u64) -> Result<usize> {
        let (mut gathered, mut done) = (Vec::with_capacity(piece), 0);
        let mut write = |bytes: &mut Vec<u8>| -> Result<bool> {
            match self.handle.write_at(offset + done as u64, bytes) {
                Ok(written) => {
                    done += written;
                    let is_whole = written == bytes.len();
                    bytes.clear();
                    Ok(is_whole)
                }
                // What was written is returned. The next call meets the error again.
                Err(_) if done > 0 => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        for segment in segments {
            let given = InBytes::of_segment(segment);
            let mut rest = given.of(segment.iov_len)?;
            while !rest.is_empty() {
                let room = piece - gathered.len();
                let (first, other) = rest.split_at(room.min(rest.len()));
                gathered.extend_from_slice(first);
                rest = other;
                if gathered.len() == piece && !write(&mut gathered)? {
                    return Ok(done);
                }
            }
        }
        if !gathered.is_empty() {
            write(&mut gathered)?;
        }
        Ok(done)
    }
}

/// Moves the file's position by `offset` bytes from `whence`: SEEK_SET, SEEK_CUR or SEEK_END; or to
/// the first data (SEEK_DATA) or hole (SEEK_HOLE) at or after `offset`. Returns the new position;
/// or -1 with EBADF, EINVAL (a position before the file, or beyond 2^63 - 1), ENXIO (no data, or no
/// hole, before the end), EISDIR (use `vellum_seekdir`).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_lseek(file: vellum_handle, offset: i64, whence: c_int) -> i64 {
    call("vellum_lseek", &[], || {
        let held = table::get(file)?;
        let file = held.file()?;
        let handle = &file.handle;
        let mut position = file.turn()?;
        if handle.node().kind() == FileKind::Directory {
            return Err(Error::IsDirectory.into());
        }
        let beyond = || u64::try_from(offset).map_err(|_| Error::NoData);
        let base = match whence {
            libc::SEEK_DATA => Ok(handle.seek_data(beyond()?)?),
            libc::SEEK_HOLE => Ok(handle.seek_hole(beyond()?)?),
            libc::SEEK_SET => Err(0),
            libc::SEEK_CUR => Err(*position),
            libc::SEEK_END => Err(handle.attr()?.size),
            _ => return Err(Failure::invalid("an unknown start of a seek")),
        };
        let found = base.or_else(|base| {
            let found = base.checked_add_signed(offset);
            let found = found.filter(|&found| i64::try_from(found).is_ok());
            found.ok_or(Failure::invalid(
                "a position before the file, or beyond 2^63 - 1",
            ))
        })?;
        *position = found;
        Ok(found as i64)
    })
}

/// Makes everything that was done before in the file system durable, as far as the medium can: this
/// file, and all others. Returns 0, or -1 with EBADF, EIO (the medium failed).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_fsync(file: vellum_handle) -> c_int {
    call("vellum_fsync", &[], || {
        table::get(file)?.file()?.handle.sync()?;
        Ok(0)
    })
}

/// The same as `vellum_fsync`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_fdatasync(file: vellum_handle) -> c_int {
    call("vellum_fdatasync", &[], || {
        table::get(file)?.file()?.handle.sync()?;
        Ok(0)
    })
}

/// Makes everything that was done before in the file system of a pool, volume, open file or
/// directory durable, as far as the medium can. Returns 0, or -1 with EBADF, EIO (the medium
/// failed).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_sync(at: vellum_handle) -> c_int {
    call("vellum_sync", &[], || {
        table::get(at)?.at()?.fs().sync()?;
        Ok(0)
    })
}
