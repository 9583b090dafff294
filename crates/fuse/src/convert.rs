//! Conversions between the engine's types and the kernel's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use vellum::{Attr, FileKind, SetTime};

const NANOS: i64 = 1_000_000_000;

/// A file's attributes.
pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks_512,
        atime: system_time(attr.atime_ns),
        mtime: system_time(attr.mtime_ns),
        ctime: system_time(attr.ctime_ns),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // Both encodings put 12 bits of major and 20 of minor into the same 32 bits.
        rdev: attr.device as u32,
        blksize: 4096,
        flags: 0,
    }
}

/// The attributes that tell the kernel to cache that a name does not exist.
pub(crate) fn no_file() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// The file kind of the type bits of a mode.
pub(crate) fn kind_of_mode(mode: u32) -> Option<FileKind> {
    Some(match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => FileKind::File,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::CharDevice,
        libc::S_IFBLK => FileKind::BlockDevice,
        _ => return None,
    })
}

fn system_time(ns: i64) -> SystemTime {
    if ns >= 0 {
        UNIX_EPOCH + Duration::from_nanos(ns as u64)
    } else {
        UNIX_EPOCH - Duration::from_nanos(ns.unsigned_abs())
    }
}

/// A time that the kernel sets. Of times before 1970, `fuser` subtracts both seconds and
/// nanoseconds, although the nanoseconds count forward; this corrects them.
pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    let at = match time {
        TimeOrNow::Now => return SetTime::Now,
        TimeOrNow::SpecificTime(at) => at,
    };
    SetTime::At(match at.duration_since(UNIX_EPOCH) {
        Ok(after) => nanos(after.as_secs(), after.subsec_nanos(), 1),
        Err(before) => {
            let before = before.duration();
            nanos(before.as_secs(), before.subsec_nanos(), -1)
        }
    })
}

fn nanos(seconds: u64, forward_ns: u32, sign: i64) -> i64 {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    seconds
        .saturating_mul(NANOS * sign)
        .saturating_add(i64::from(forward_ns))
}

/// The errno of an error, for the kernel. The log gets the details of damage.
pub(crate) fn errno(error: &vellum::Error) -> Errno {
    if matches!(
        error,
        vellum::Error::Damaged { .. } | vellum::Error::Unreadable(_)
    ) {
        tracing::error!(%error, "a request failed");
    }
    Errno::from_i32(error.errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_are_converted() {
        for (seconds, ns) in [(0, 0), (0, 5), (1_700_000_000, 999_999_999)] {
            let at = UNIX_EPOCH + Duration::new(seconds, ns);
            let expected = seconds as i64 * NANOS + i64::from(ns);
            assert_eq!(set_time(TimeOrNow::SpecificTime(at)), SetTime::At(expected));
            assert_eq!(system_time(expected), at);
        }
        // One and a half seconds before 1970 is -2 s and 500 000 000 ns to the kernel.
        let given = UNIX_EPOCH - Duration::new(2, 500_000_000);
        assert_eq!(
            set_time(TimeOrNow::SpecificTime(given)),
            SetTime::At(-1_500_000_000)
        );
        assert_eq!(set_time(TimeOrNow::Now), SetTime::Now);
    }

    #[test]
    fn modes_are_converted_to_kinds() {
        assert_eq!(kind_of_mode(0o100_644), Some(FileKind::File));
        assert_eq!(kind_of_mode(0o010_644), Some(FileKind::Fifo));
        assert_eq!(kind_of_mode(0o040_755), None);
    }
}
