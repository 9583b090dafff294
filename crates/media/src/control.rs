//! Ioctls of FUSE, and of files. They need calls that the compiler cannot prove, and this crate has
//! all of those.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};

/// Bytes of the request and of the reply; an ioctl number has 14 bits for the size.
pub const CONTROL_BYTES: usize = 8192;
/// The number of the ioctl: writes and reads [`CONTROL_BYTES`] bytes, group `v`, number 2.
pub const CONTROL_IOCTL: Opcode = opcode::read_write::<[u8; CONTROL_BYTES]>(b'v', 2);

/// Bytes of `struct fsxattr` (`linux/fs.h`).
pub const FSXATTR_BYTES: usize = 28;

/// File system number of FUSE, from `linux/magic.h`.
const FUSE_SUPER_MAGIC: u32 = 0x6573_5546;

/// Sends `bytes` to the FUSE file system that `file` is on, which replaces them by its reply.
///
/// # Errors
/// Fails if `file` is not on FUSE, or with the error of the file system: `ENOTTY` if it does not
/// know the request.
pub fn control(file: impl AsFd, bytes: &mut [u8; CONTROL_BYTES]) -> io::Result<()> {
    refuse_others(&file)?;
    // SAFETY: `file` is on FUSE, whose ioctls on files and directories are restricted: the kernel
    // itself copies the number of bytes in the ioctl number, which is the length of `bytes`. The
    // kernel gives no number of group `v` another meaning before FUSE sees it.
    unsafe { ioctl(&file, Updater::<CONTROL_IOCTL, _>::new(bytes))? };
    Ok(())
}

/// Fails if a file is not on FUSE.
fn refuse_others(file: impl AsFd) -> io::Result<()> {
    let on = rustix::fs::fstatfs(&file)?;
    match on.f_type as u32 {
        FUSE_SUPER_MAGIC => Ok(()),
        _ => Err(rustix::io::Errno::NOTTY.into()),
    }
}

/// The generation of a file on FUSE, by `FS_IOC_GETVERSION`.
///
/// # Errors
/// Fails if `file` is not on FUSE, or with the error of the file system.
pub fn generation(file: impl AsFd) -> io::Result<u32> {
    const GET: Opcode = opcode::read::<u64>(b'v', 1);
    refuse_others(&file)?;
    let mut generation = 0_u64;
    // SAFETY: `file` is on FUSE, so the kernel itself writes the number of bytes in the ioctl
    // number, which is the length of `generation`.
    unsafe { ioctl(&file, Updater::<GET, _>::new(&mut generation))? };
    Ok(generation as u32)
}

/// Reads the `struct fsxattr` of a file: flags, and the project id from byte 12.
///
/// # Errors
/// Fails with the error of the file system.
pub fn fsxattr(file: impl AsFd) -> io::Result<[u8; FSXATTR_BYTES]> {
    const GET: Opcode = opcode::read::<[u8; FSXATTR_BYTES]>(b'X', 31);
    let mut bytes = [0; FSXATTR_BYTES];
    // SAFETY: this ioctl has one meaning for all file systems: it writes a `struct fsxattr`, whose
    // length is that of `bytes`.
    unsafe { ioctl(&file, Updater::<GET, _>::new(&mut bytes))? };
    Ok(bytes)
}

/// Sets flags and project id of a file.
///
/// # Errors
/// Fails with the error of the file system.
pub fn set_fsxattr(file: impl AsFd, bytes: [u8; FSXATTR_BYTES]) -> io::Result<()> {
    const SET: Opcode = opcode::write::<[u8; FSXATTR_BYTES]>(b'X', 32);
    // SAFETY: this ioctl has one meaning for all file systems: it reads a `struct fsxattr`, whose
    // length is that of `bytes`.
    unsafe { ioctl(&file, Setter::<SET, _>::new(bytes))? };
    Ok(())
}

/// One more descriptor of a FUSE connection, with a queue of its own.
///
/// # Errors
/// Fails if `/dev/fuse` cannot be opened, or if `connection` is none.
pub fn clone_fuse(connection: impl AsFd) -> io::Result<OwnedFd> {
    const CLONE: Opcode = opcode::read::<u32>(229, 0);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let number = connection.as_fd().as_raw_fd() as u32;
    // SAFETY: the kernel reads a descriptor's number, which is a `u32`, from the argument, and
    // writes nothing there. `device` is new, so nothing else is done with it.
    unsafe { ioctl(&device, Setter::<CLONE, u32>::new(number))? };
    Ok(device)
}
