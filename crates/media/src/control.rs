//! Ioctls of FUSE. They need calls that the compiler cannot prove, and this crate has all of those.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};

/// Bytes of the request and of the reply; an ioctl number has 14 bits for the size.
pub const CONTROL_BYTES: usize = 8192;
/// The number of the ioctl: writes and reads [`CONTROL_BYTES`] bytes, group `v`, number 2.
pub const CONTROL_IOCTL: Opcode = opcode::read_write::<[u8; CONTROL_BYTES]>(b'v', 2);

/// File system number of FUSE, from `linux/magic.h`.
const FUSE_SUPER_MAGIC: u32 = 0x6573_5546;

/// Sends `bytes` to the FUSE file system that `file` is on, which replaces them by its reply.
///
/// # Errors
/// Fails if `file` is not on FUSE, or with the error of the file system: `ENOTTY` if it does not
/// know the request.
pub fn control(file: impl AsFd, bytes: &mut [u8; CONTROL_BYTES]) -> io::Result<()> {
    let on = rustix::fs::fstatfs(&file)?;
    if on.f_type as u32 != FUSE_SUPER_MAGIC {
        return Err(io::Error::from(rustix::io::Errno::NOTTY));
    }
    // SAFETY: `file` is on FUSE, whose ioctls on files and directories are restricted: the kernel
    // itself copies the number of bytes in the ioctl number, which is the length of `bytes`. The
    // kernel gives no number of group `v` another meaning before FUSE sees it.
    unsafe { ioctl(&file, Updater::<CONTROL_IOCTL, _>::new(bytes))? };
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
