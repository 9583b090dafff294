//! Space and bytes of files: `fallocate`, `copy_file_range`.

use libc::c_int;
use libc::ssize_t;
use vellum::Allocate;

use crate::borrowed::Out;
use crate::failure::{Failure, Result, call};
use crate::files::offset_of;
use crate::objects::OpenFile;
use crate::{table, vellum_handle};

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

fn mode_of(mode: c_int) -> Result<Allocate> {
    const KEEP: c_int = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: c_int = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: c_int = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: c_int = ZERO | KEEP;
    Ok(match mode {
        0 => Allocate::Grow,
        KEEP => Allocate::KeepSize,
        PUNCH => Allocate::PunchHole,
        ZERO => Allocate::Zero,
        ZERO_KEEP => Allocate::ZeroKeepSize,
        libc::FALLOC_FL_COLLAPSE_RANGE => Allocate::Collapse,
        libc::FALLOC_FL_INSERT_RANGE => Allocate::Insert,
        _ => return Err(vellum::Error::Unsupported("this mode of fallocate").into()),
    })
}

/// Allocates, frees, zeroes, removes or inserts a range of a file. `mode` is 0 or has the
/// flags of `fallocate(2)`: FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE (with KEEP_SIZE),
/// FALLOC_FL_ZERO_RANGE, FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE. Returns 0, or -1 with
/// the errors of `fallocate(2)`; EOPNOTSUPP for other modes.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_fallocate(
    file: vellum_handle,
    mode: c_int,
    offset: i64,
    length: i64,
) -> c_int {
    call("vellum_fallocate", &[], || {
        let held = table::get(file)?;
        let handle = &held.file()?.handle;
        let (offset, length) = (offset_of(offset)?, offset_of(length)?);
        // Checked before the mode, as by the kernel.
        if length == 0 {
            return Err(Failure::invalid("a range of no bytes"));
        }
        handle.allocate(mode_of(mode)?, offset, length)?;
        Ok(0)
    })
}

/// Where a copy reads or writes: at an offset of the caller, or at the file's position.
struct End<'a> {
    file: &'a OpenFile,
    given: Option<u64>,
}

impl<'a> End<'a> {
    fn new(file: &'a OpenFile, offset: &Out<i64>) -> Result<Self> {
        let given = offset.get().map(offset_of).transpose()?;
        Ok(Self { file, given })
    }

    fn offset(&self) -> Result<u64> {
        match self.given {
            Some(offset) => Ok(offset),
            None => Ok(*self.file.turn()?),
        }
    }

    fn move_by(&self, mut offset: Out<i64>, copied: u64) -> Result<()> {
        match self.given {
            Some(given) => offset.set((given + copied) as i64),
            None => *self.file.turn()? += copied,
        }
        Ok(())
    }
}

/// Copies up to `length` bytes from one open file to another, of the same or another pool,
/// or within one. An offset that is NULL stands for the file's position; what is used is moved
/// behind the bytes that were copied. `flags` is 0. Returns the number of bytes, 0 at the end of
/// the source, or -1 with the errors of `copy_file_range(2)`: EINVAL if the ranges overlap or a
/// file is no regular one, EBADF if the target is open for appending.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_copy_file_range(
    from: vellum_handle,
    from_offset: Out<i64>,
    to: vellum_handle,
    to_offset: Out<i64>,
    length: usize,
    flags: u32,
) -> ssize_t {
    call("vellum_copy_file_range", &[], || {
        if flags != 0 {
            return Err(Failure::invalid("an unknown flag of a copy"));
        }
        let (source, target) = (table::get(from)?, table::get(to)?);
        let source = End::new(source.file()?, &from_offset)?;
        let target = End::new(target.file()?, &to_offset)?;
        if target.file.handle.options().append {
            return Err(vellum::Error::BadHandle.into());
        }
        let copied = copy(&source, &target, length.min(isize::MAX as usize))?;
        source.move_by(from_offset, copied as u64)?;
        target.move_by(to_offset, copied as u64)?;
        Ok(copied as ssize_t)
    })
}

fn copy(source: &End<'_>, target: &End<'_>, length: usize) -> Result<usize> {
    let (from, to) = (source.offset()?, target.offset()?);
    let (reader, writer) = (&source.file.handle, &target.file.handle);
    let is_one_file = std::sync::Arc::ptr_eq(source.file.fs(), target.file.fs())
        && reader.node().ino() == writer.node().ino();
    if is_one_file && from.abs_diff(to) < length as u64 {
        return Err(Failure::invalid("the ranges of a copy overlap"));
    }
    // Both are checked before anything is allocated or copied.
    reader.read_at(from, &mut [])?;
    writer.write_at(to, &[])?;
    let mut buffer = vec![0; PIECE_BYTES.min(length)];
    let mut done = 0;
    while done < length {
        let piece = &mut buffer[..PIECE_BYTES.min(length - done)];
        let step = reader.read_at(from + done as u64, piece).and_then(|read| {
            let written = writer.write_at(to + done as u64, &piece[..read])?;
            Ok((written, written == piece.len()))
        });
        match step {
            Ok((written, goes_on)) => {
                done += written;
                if !goes_on {
                    break;
                }
            }
            // What was copied is returned. The next call meets the error again.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    if done > 0 {
        target.file.sync_if_asked()?;
    }
    Ok(done)
}
