//! File handles: they identify a file for as long as its file system lives, whatever happens to its
//! name.

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Most bytes of a handle, by the kernel's header.
const HANDLE_MAX_BYTES: usize = 128;
/// Bytes of the result of [`FileHandle::to_bytes`].
pub(crate) const BYTES: usize = 16 + HANDLE_MAX_BYTES;
/// File systems whose `f_fsid` comes from their uuid and whose handles have a generation: ext2 to
/// ext4, and btrfs. On others, a handle that leads nowhere proves nothing, because another file
/// system may have got the device's number.
const KNOWN_BY_ID: [u64; 2] = [0xEF53, 0x9123_683E];

/// The kernel's structure.
#[repr(C)]
#[derive(Clone)]
struct Raw {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_MAX_BYTES],
}

/// A handle and the file system that it belongs to.
#[derive(Clone)]
pub(crate) struct FileHandle {
    raw: Raw,
    fs_id: u64,
}

/// The result of following a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Led {
    /// A file; its name, if known.
    Here(Option<PathBuf>),
    /// The file is deleted, but a process still has it open.
    Unlinked,
    /// The file system is here, but no longer has the file.
    Nowhere,
    /// Unknown, with the reason.
    Unknown(&'static str),
}

impl FileHandle {
    /// The handle of an open file, if its file system supports handles.
    pub(crate) fn of(file: BorrowedFd<'_>) -> Option<Self> {
        let fs_id = rustix::fs::fstatvfs(file).ok()?.f_fsid;
        let mut raw = Raw {
            bytes: HANDLE_MAX_BYTES as u32,
            kind: 0,
            data: [0; HANDLE_MAX_BYTES],
        };
        let mut mount = 0;
        // SAFETY: the path is an empty string that ends with a zero; the kernel writes at most
        // `bytes` bytes behind the two numbers of the handle, which is as large as it says, and the
        // number of the mount, which lives.
        let done = unsafe {
            libc::name_to_handle_at(
                file.as_raw_fd(),
                c"".as_ptr(),
                (&raw mut raw).cast(),
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        (done == 0).then_some(Self { raw, fs_id })
    }

    pub(crate) fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.fs_id.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.raw.bytes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.raw.kind.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.raw.data);
        bytes
    }

    /// Decodes a handle; `None` if there is none.
    pub(crate) fn from_bytes(bytes: &[u8; BYTES]) -> Option<Self> {
        let mut numbers = bytes[..16].chunks_exact(4).map(|number| {
            let number = number.try_into().unwrap_or_default();
            u32::from_ne_bytes(number)
        });
        let mut data = [0; HANDLE_MAX_BYTES];
        data.copy_from_slice(&bytes[16..]);
        let mut fs_id = [0; 8];
        fs_id.copy_from_slice(&bytes[..8]);
        let (len, kind) = (numbers.nth(2)?, numbers.next()?);
        let raw = Raw {
            bytes: len,
            kind: kind.cast_signed(),
            data,
        };
        let fs_id = u64::from_ne_bytes(fs_id);
        (1..=HANDLE_MAX_BYTES as u32)
            .contains(&len)
            .then_some(Self { raw, fs_id })
    }

    /// Follows the handle on the device with this number.
    pub(crate) fn follow(&self, device: u64) -> Led {
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let mut answer = Led::Unknown("the file system of its pool is not mounted here");
        for dir in mount_points(&mounts, device) {
            match self.follow_from(&dir, device) {
                Some(Led::Unknown(why)) => answer = Led::Unknown(why),
                Some(known) => return known,
                None => {}
            }
        }
        answer
    }

    /// Follows the handle from a mount point; `None` if something else is mounted there.
    fn follow_from(&self, dir: &OsStr, device: u64) -> Option<Led> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let top = rustix::fs::open(dir, flags, Mode::empty()).ok()?;
        let is_there = rustix::fs::fstat(&top).is_ok_and(|stat| stat.st_dev == device);
        let is_same = rustix::fs::fstatvfs(&top).is_ok_and(|found| found.f_fsid == self.fs_id);
        if !is_there || !is_same {
            return None;
        }
        Some(match self.open(top.as_fd()) {
            Ok(file) => match rustix::fs::fstat(&file) {
                Ok(stat) if stat.st_nlink == 0 => Led::Unlinked,
                Ok(stat) => Led::Here(name_of(&file, &stat)),
                Err(_) => Led::Unknown("its pool cannot be examined"),
            },
            Err(Errno::STALE) if is_known_by_id(top.as_fd()) => Led::Nowhere,
            Err(Errno::STALE) => {
                Led::Unknown("its pool is not found, on a file system that has no lasting identity")
            }
            Err(Errno::PERM) => Led::Unknown(
                "its pool is not where it was, and only root can tell whether it has another name",
            ),
            Err(_) => Led::Unknown("its pool cannot be looked for on its file system"),
        })
    }

    fn open(&self, mount: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        let mut raw = self.raw.clone();
        // SAFETY: the kernel reads two numbers and `bytes` bytes behind them, of which 128 exist;
        // `bytes` is at most that.
        let fd = unsafe {
            libc::open_by_handle_at(
                mount.as_raw_fd(),
                (&raw mut raw).cast(),
                libc::O_PATH | libc::O_CLOEXEC,
            )
        };
        if fd < 0 {
            let errno = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&errno).unwrap_or(Errno::IO));
        }
        // SAFETY: the kernel just returned it, and no other code has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn is_known_by_id(top: BorrowedFd<'_>) -> bool {
    crate::backing::fs_type(top).is_some_and(|kind| KNOWN_BY_ID.contains(&kind))
}

/// The present name of an open file, if the kernel knows one that leads to it.
fn name_of(file: &OwnedFd, stat: &Stat) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = std::fs::read_link(link).ok()?;
    let named = rustix::fs::statat(rustix::fs::CWD, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    ((named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino)).then_some(path)
}

/// The mount points of the device with this number, from the text of `mountinfo`.
fn mount_points(mounts: &[u8], device: u64) -> Vec<OsString> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let number = format!("{major}:{minor}");
    let lines = mounts.split(|&byte| byte == b'\n');
    let of_device = lines.filter_map(|line| {
        let mut words = line.split(|&byte| byte == b' ').skip(2);
        let is_of = words.next()? == number.as_bytes();
        let dir = words.nth(1)?;
        is_of.then(|| OsString::from_vec(unescaped(dir)))
    });
    of_device.collect()
}

/// A path of `mountinfo`, in which blanks and backslashes are three octal digits behind a
/// backslash.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| first == b'\\');
        let value = octal
            .and_then(|digits| OsStr::from_bytes(digits).to_str())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(byte) => {
                out.push(byte);
                rest = &behind[3..];
            }
            None => {
                out.push(first);
                rest = behind;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read() {
        let text = b"22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
            30 22 0:25 / /dev/shm rw - tmpfs none rw\n\
            31 22 254:0 /a /with\\040blank\\134x rw - ext4 /dev/vda rw\n\n";
        let device = rustix::fs::makedev(254, 0);
        assert_eq!(mount_points(text, device), ["/", "/with blank\\x"]);
        assert!(mount_points(text, rustix::fs::makedev(8, 1)).is_empty());
    }

    #[test]
    fn handles_are_kept_as_bytes() {
        let raw = Raw {
            bytes: 8,
            kind: 1,
            data: [7; HANDLE_MAX_BYTES],
        };
        let handle = FileHandle { raw, fs_id: 99 };
        let bytes = handle.to_bytes();
        let again = FileHandle::from_bytes(&bytes).map(|handle| handle.to_bytes());
        assert_eq!(again, Some(bytes));
        assert!(FileHandle::from_bytes(&[0; BYTES]).is_none());
        assert!(FileHandle::from_bytes(&[0xFF; BYTES]).is_none());
    }

    /// Applies if this file system supports handles and this user may follow them.
    #[test]
    fn a_handle_leads_to_its_file_by_any_name_and_nowhere_once_it_is_deleted() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        let file = std::fs::File::create(&path).expect("made");
        let device = rustix::fs::fstat(&file).expect("examined").st_dev;
        let Some(handle) = FileHandle::of(file.as_fd()) else {
            return;
        };
        let led = handle.follow(device);
        if matches!(led, Led::Unknown(_)) {
            return;
        }
        let moved = dir.path().join("b");
        std::fs::rename(&path, &moved).expect("renamed");
        assert_eq!(handle.follow(device), Led::Here(Some(moved.clone())));
        std::fs::remove_file(&moved).expect("removed");
        assert_eq!(handle.follow(device), Led::Unlinked);
        drop(file);
        let nowhere = handle.follow(device);
        assert!(
            !matches!(nowhere, Led::Here(_) | Led::Unlinked),
            "{nowhere:?}"
        );
    }
}
