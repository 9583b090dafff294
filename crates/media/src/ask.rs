//! An ioctl to a mounted file system: it needs one call that the compiler cannot prove, and those
//! live in this crate.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// Bytes of an answer at most; an ioctl number has 14 bits for the size.
pub const ASK_MOUNT_BYTES: usize = 8192;
/// The number of the ioctl: reads [`ASK_MOUNT_BYTES`] bytes, group `v`, number 1.
pub const ASK_MOUNT_NUMBER: Opcode = opcode::read::<[u8; ASK_MOUNT_BYTES]>(b'v', 1);

/// File system number of FUSE, from `linux/magic.h`.
const FUSE_SUPER_MAGIC: u32 = 0x6573_5546;

/// Asks the FUSE file system that `file` is on. The answer ends at its first zero byte.
///
/// # Errors
/// `file` is not on FUSE, or the file system does not know the question.
pub fn ask_mount(file: impl AsFd) -> io::Result<Vec<u8>> {
    let on = rustix::fs::fstatfs(&file)?;
    if on.f_type as u32 != FUSE_SUPER_MAGIC {
        return Err(io::Error::from(rustix::io::Errno::NOTTY));
    }
    let mut answer = [0; ASK_MOUNT_BYTES];
    // SAFETY: `file` is on FUSE, whose ioctls on files and directories are restricted: the kernel
    // itself copies at most as many bytes as the number says, and that is what `answer` has.
    // The kernel gives no number of group `v` another meaning before FUSE sees it.
    unsafe { ioctl(&file, Updater::<ASK_MOUNT_NUMBER, _>::new(&mut answer))? };
    let len = answer.iter().position(|&b| b == 0).unwrap_or(answer.len());
    Ok(answer[..len].to_vec())
}
