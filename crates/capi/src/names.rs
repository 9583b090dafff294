//! Names: directories, special files, links; removing and renaming.

use std::sync::Arc;

use libc::c_int;
use vellum::{Error, FileKind, RenameFlags};

use crate::borrowed::{CPath, OutBytes};
use crate::failure::{Failure, Result, call};
use crate::objects::At;
use crate::{table, vellum_handle};

/// Makes a directory, with the permission bits of `mode` that the volume's umask leaves. Returns 0,
/// or -1 with the errors of `mkdirat(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_mkdir(at: vellum_handle, path: CPath, mode: u32) -> c_int {
    call("vellum_mkdir", &[path], || {
        let held = table::get(at)?;
        let at = held.at()?;
        let new = at.new_dir(path.bytes()?)?;
        let mode = (mode & 0o7777) as u16;
        at.fs().mkdir(at.cred, &new.dir, new.name, mode)?;
        Ok(0)
    })
}

/// Makes a file, pipe, socket or device: `mode` has S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR or S_IFBLK
/// and permission bits, `device` the number of a device. The library does not open the last four.
/// Returns 0, or -1 with the errors of `mknodat(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_mknod(at: vellum_handle, path: CPath, mode: u32, device: u64) -> c_int {
    call("vellum_mknod", &[path], || {
        let kind = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => FileKind::File,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            libc::S_IFDIR => return Err(Error::NotPermitted.into()),
            _ => return Err(Failure::invalid("a kind of file that mknod does not make")),
        };
        let held = table::get(at)?;
        let at = held.at()?;
        let new = at.new_name(path.bytes()?)?;
        let (name, mode) = (new.name, (mode & 0o7777) as u16);
        at.fs().mknod(at.cred, &new.dir, name, kind, mode, device)?;
        Ok(0)
    })
}

/// Removes an empty directory. Returns 0, or -1 with the errors of `rmdir(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_rmdir(at: vellum_handle, path: CPath) -> c_int {
    call("vellum_rmdir", &[path], || {
        table::get(at)?.at()?.rmdir(path.bytes()?)?;
        Ok(0)
    })
}

/// Removes a name that is not a directory's. The file is freed with its last name and its last open
/// handle. Returns 0, or -1 with the errors of `unlinkat(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_unlink(at: vellum_handle, path: CPath) -> c_int {
    call("vellum_unlink", &[path], || {
        table::get(at)?.at()?.unlink(path.bytes()?)?;
        Ok(0)
    })
}

/// Where the second path of a call begins, for the user of the first.
fn beside<'a>(at: At<'a>, other: At<'a>) -> Result<At<'a>> {
    match Arc::ptr_eq(at.fs(), other.fs()) {
        true => Ok(At {
            start: other.start,
            ..at
        }),
        false => Err(Failure::Own(
            libc::EXDEV,
            "the two paths are in different pools",
        )),
    }
}

/// Renames a file or directory, and replaces what has the new name. `flags` are 0, or those of
/// `renameat2(2)`: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT. The user is that of
/// `from_at`. Returns 0, or -1 with the errors of `renameat2(2)`; EXDEV if the paths are in
/// different pools.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_rename(
    from_at: vellum_handle,
    from: CPath,
    to_at: vellum_handle,
    to: CPath,
    flags: u32,
) -> c_int {
    call("vellum_rename", &[from, to], || {
        let flags = RenameFlags::from_bits(flags);
        let flags = flags.ok_or(Failure::invalid("an unknown flag of a rename"))?;
        let (source, target) = (table::get(from_at)?, table::get(to_at)?);
        let at = source.at()?;
        let target = beside(at, target.at()?)?;
        at.rename(from.bytes()?, target, to.bytes()?, flags)?;
        Ok(0)
    })
}

/// Makes `to` another name of the file `from`. `flags` are 0, or AT_SYMLINK_FOLLOW: then a symbolic
/// link at the end of `from` is followed. The user is that of `from_at`. Returns 0, or -1 with the
/// errors of `linkat(2)`; EXDEV if the paths are in different pools.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_link(
    from_at: vellum_handle,
    from: CPath,
    to_at: vellum_handle,
    to: CPath,
    flags: c_int,
) -> c_int {
    call("vellum_link", &[from, to], || {
        if flags & !libc::AT_SYMLINK_FOLLOW != 0 {
            return Err(Failure::invalid("an unknown flag of a link"));
        }
        let (source, target) = (table::get(from_at)?, table::get(to_at)?);
        let at = source.at()?;
        let target = beside(at, target.at()?)?;
        let node = at.find(from.bytes()?, flags != 0)?;
        let new = target.new_name(to.bytes()?)?;
        at.fs().link(at.cred, &node, &new.dir, new.name)?;
        Ok(0)
    })
}

/// Makes a path a name of an open file, which may have none so far: one that was opened with
/// O_TMPFILE, but without O_EXCL. A file that appears this way is complete from the first moment.
/// The user is that of `at`. Returns 0, or -1 with the errors of `linkat(2)`; ENOENT if all names
/// of the file were removed; EXDEV if the file is in another pool.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_flink(file: vellum_handle, at: vellum_handle, path: CPath) -> c_int {
    call("vellum_flink", &[path], || {
        let (file, target) = (table::get(file)?, table::get(at)?);
        let node = file.file()?.handle.node();
        let at = beside(target.at()?, file.at()?).and(target.at())?;
        let new = at.new_name(path.bytes()?)?;
        at.fs().link(at.cred, node, &new.dir, new.name)?;
        Ok(0)
    })
}

/// Makes a symbolic link to `target`, a text of 1 to 4095 bytes. Returns 0, or -1 with the errors
/// of `symlinkat(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_symlink(target: CPath, at: vellum_handle, path: CPath) -> c_int {
    call("vellum_symlink", &[path], || {
        let target = target.bytes()?;
        crate::paths::check(target)?;
        let held = table::get(at)?;
        let at = held.at()?;
        let new = at.new_name(path.bytes()?)?;
        at.fs().symlink(at.cred, &new.dir, new.name, target)?;
        Ok(0)
    })
}

/// Reads the target of a symbolic link: at most `size` bytes, without a zero byte behind
/// them. Returns their number, or -1 with the errors of `readlinkat(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_readlink(
    at: vellum_handle,
    path: CPath,
    mut buffer: OutBytes,
    size: usize,
) -> libc::ssize_t {
    call("vellum_readlink", &[path], || {
        if size == 0 {
            return Err(Failure::invalid("a buffer of no bytes"));
        }
        let held = table::get(at)?;
        let at = held.at()?;
        let node = at.find(path.bytes()?, false)?;
        let target = at.fs().read_link(&node)?;
        let out = buffer.of(size)?;
        let len = target.len().min(out.len());
        out[..len].copy_from_slice(&target[..len]);
        Ok(len as libc::ssize_t)
    })
}
