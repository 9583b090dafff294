//! Extended attributes.

use libc::{c_int, ssize_t};
use vellum::media::Real;
use vellum::{Cred, Error, Node, XattrMode};

use crate::borrowed::{CPath, InBytes, OutBytes};
use crate::failure::{Failure, Result, call};
use crate::{table, vellum_handle};

/// A file whose attributes are asked for: by path, following a symbolic link or not, or open.
enum Of {
    Path(CPath, bool),
    Open,
}

/// Finds the file, and runs `body` with it and its user.
fn with<T>(
    at: vellum_handle,
    of: Of,
    body: impl FnOnce(&Node<Real>, &Cred) -> Result<T>,
) -> Result<T> {
    let held = table::get(at)?;
    match of {
        Of::Path(path, follow) => {
            let at = held.at()?;
            body(&at.find(path.bytes()?, follow)?, at.cred)
        }
        Of::Open => {
            let file = held.file()?;
            file.handle.check_use()?;
            body(file.handle.node(), &file.cred)
        }
    }
}

/// The longest name, and the longest value, in bytes.
const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 1 << 16;

/// The name of an attribute, which is checked before the file is looked for, as by the kernel.
fn name_of(name: &CPath) -> Result<&[u8]> {
    let bytes = name.bytes()?;
    match bytes.len() {
        1..=NAME_MAX => Ok(bytes),
        _ => Err(Error::AttributeName.into()),
    }
}

/// Copies what was found. Without a buffer, only its size is returned.
fn give(found: &[u8], mut buffer: OutBytes, size: usize) -> Result<ssize_t> {
    if size != 0 {
        let out = buffer.of(size)?.get_mut(..found.len());
        let small = Failure::Own(libc::ERANGE, "the buffer is too small for the attribute");
        out.ok_or(small)?.copy_from_slice(found);
    }
    Ok(found.len() as ssize_t)
}

fn get(at: vellum_handle, of: Of, name: CPath, to: (OutBytes, usize)) -> Result<ssize_t> {
    let name = name_of(&name)?;
    with(at, of, |node, cred| {
        let value = node.fs().xattr(cred, node, name)?;
        give(&value, to.0, to.1)
    })
}

fn list(at: vellum_handle, of: Of, to: (OutBytes, usize)) -> Result<ssize_t> {
    with(at, of, |node, cred| {
        give(&node.fs().xattrs(cred, node)?, to.0, to.1)
    })
}

fn set(
    at: vellum_handle,
    of: Of,
    name: CPath,
    (value, size): (InBytes, usize),
    flags: c_int,
) -> Result<c_int> {
    let mode = match flags {
        0 => XattrMode::Any,
        libc::XATTR_CREATE => XattrMode::Create,
        libc::XATTR_REPLACE => XattrMode::Replace,
        _ => return Err(Failure::invalid("an unknown flag of an attribute")),
    };
    let name = name_of(&name)?;
    if size > VALUE_MAX {
        return Err(Error::AttributeTooLong.into());
    }
    let value = value.of(size)?;
    with(at, of, |node, cred| {
        node.fs().set_xattr(cred, node, name, value, mode)?;
        Ok(0)
    })
}

fn remove(at: vellum_handle, of: Of, name: CPath) -> Result<c_int> {
    let name = name_of(&name)?;
    with(at, of, |node, cred| {
        node.fs().remove_xattr(cred, node, name)?;
        Ok(0)
    })
}

/// Reads an extended attribute, whose name has its prefix, as `user.`; follows symbolic links. With
/// a `size` of 0, only the size is returned. Returns the size of the value, in bytes, or -1 with
/// ENODATA (no such attribute), ERANGE (the buffer is too small), and the errors of `getxattr(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_getxattr(
    at: vellum_handle,
    path: CPath,
    name: CPath,
    value: OutBytes,
    size: usize,
) -> ssize_t {
    call("vellum_getxattr", &[path, name], || {
        get(at, Of::Path(path, true), name, (value, size))
    })
}

/// As `vellum_getxattr`, but of a symbolic link itself.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_lgetxattr(
    at: vellum_handle,
    path: CPath,
    name: CPath,
    value: OutBytes,
    size: usize,
) -> ssize_t {
    call("vellum_lgetxattr", &[path, name], || {
        get(at, Of::Path(path, false), name, (value, size))
    })
}

/// As `vellum_getxattr`, of an open file or directory.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_fgetxattr(
    file: vellum_handle,
    name: CPath,
    value: OutBytes,
    size: usize,
) -> ssize_t {
    call("vellum_fgetxattr", &[name], || {
        get(file, Of::Open, name, (value, size))
    })
}

/// Sets an extended attribute, whose name has its prefix, as `user.`; follows symbolic links.
/// `flags` are 0, XATTR_CREATE or XATTR_REPLACE. Returns 0, or -1 with EEXIST, ENODATA, E2BIG (a
/// value of more than 64 KiB), ENOSPC, and the errors of `setxattr(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_setxattr(
    at: vellum_handle,
    path: CPath,
    name: CPath,
    value: InBytes,
    size: usize,
    flags: c_int,
) -> c_int {
    call("vellum_setxattr", &[path, name], || {
        set(at, Of::Path(path, true), name, (value, size), flags)
    })
}

/// As `vellum_setxattr`, but of a symbolic link itself.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_lsetxattr(
    at: vellum_handle,
    path: CPath,
    name: CPath,
    value: InBytes,
    size: usize,
    flags: c_int,
) -> c_int {
    call("vellum_lsetxattr", &[path, name], || {
        set(at, Of::Path(path, false), name, (value, size), flags)
    })
}

/// As `vellum_setxattr`, of an open file or directory, as the user who opened it.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_fsetxattr(
    file: vellum_handle,
    name: CPath,
    value: InBytes,
    size: usize,
    flags: c_int,
) -> c_int {
    call("vellum_fsetxattr", &[name], || {
        set(file, Of::Open, name, (value, size), flags)
    })
}

/// Lists the names of all extended attributes, a zero byte behind each; follows symbolic links.
/// With a `size` of 0, only the size is returned. Returns the size of the list, in bytes, or -1
/// with ERANGE (the buffer is too small), and the errors of `listxattr(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_listxattr(
    at: vellum_handle,
    path: CPath,
    list_of_names: OutBytes,
    size: usize,
) -> ssize_t {
    call("vellum_listxattr", &[path], || {
        list(at, Of::Path(path, true), (list_of_names, size))
    })
}

/// As `vellum_listxattr`, but of a symbolic link itself.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_llistxattr(
    at: vellum_handle,
    path: CPath,
    list_of_names: OutBytes,
    size: usize,
) -> ssize_t {
    call("vellum_llistxattr", &[path], || {
        list(at, Of::Path(path, false), (list_of_names, size))
    })
}

/// As `vellum_listxattr`, of an open file or directory.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_flistxattr(
    file: vellum_handle,
    list_of_names: OutBytes,
    size: usize,
) -> ssize_t {
    call("vellum_flistxattr", &[], || {
        list(file, Of::Open, (list_of_names, size))
    })
}

/// Removes an extended attribute; follows symbolic links. Returns 0, or -1 with ENODATA (no such
/// attribute), and the errors of `removexattr(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_removexattr(at: vellum_handle, path: CPath, name: CPath) -> c_int {
    call("vellum_removexattr", &[path, name], || {
        remove(at, Of::Path(path, true), name)
    })
}

/// As `vellum_removexattr`, but of a symbolic link itself.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_lremovexattr(at: vellum_handle, path: CPath, name: CPath) -> c_int {
    call("vellum_lremovexattr", &[path, name], || {
        remove(at, Of::Path(path, false), name)
    })
}

/// As `vellum_removexattr`, of an open file or directory, as the user who opened it.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_fremovexattr(file: vellum_handle, name: CPath) -> c_int {
    call("vellum_fremovexattr", &[name], || {
        remove(file, Of::Open, name)
    })
}
