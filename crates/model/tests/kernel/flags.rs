//! Flags of the kernel's files.

use rustix::fs::{self, CWD, FileType, IFlags, Mode, OFlags};
use rustix::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use vellum_model::{APPEND_ONLY, IMMUTABLE, NO_ATIME, NO_DUMP, PROJECT_INHERIT};

/// The flags that the model knows.
const KNOWN: u32 = IMMUTABLE | APPEND_ONLY | NO_ATIME | NO_DUMP | PROJECT_INHERIT;

/// The flags that the model knows.
pub fn get(fd: BorrowedFd<'_>) -> io::Result<u32> {
    fs::ioctl_getflags(fd).map(|flags| flags.bits() & KNOWN)
}

/// Sets these flags, and leaves those that the model does not know.
pub fn set(fd: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let kept = fs::ioctl_getflags(fd)?.bits() & !KNOWN;
    fs::ioctl_setflags(fd, IFlags::from_bits_retain(kept | flags))
}

/// The flags of the file at a path; none for those that have no such calls.
pub fn flags_of(path: &[u8], mode: u32) -> u32 {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile | FileType::Directory => {
            let fd = fs::openat(CWD, path, OFlags::CLOEXEC, Mode::empty());
            get(fd.expect("the superuser opens everything").as_fd()).unwrap_or_default()
        }
        _ => 0,
    }
}

/// Clears the flags of everything below a directory, so that it can be removed.
pub fn clear_below(dir: &Path) {
    let clear = |path: &Path| {
        if let Ok(fd) = fs::open(path, OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
            let _ = set(fd.as_fd(), 0);
        }
    };
    clear(dir);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => clear_below(&entry.path()),
            Ok(kind) if kind.is_file() => clear(&entry.path()),
            _ => {}
        }
    }
}
