//! Conversions between the engine's types and the kernel's.

use rustix::io::Errno;
use vellum::{FileFlags, FileKind};
use vellum_transport::{Attr, SetTime, StatxFlags};

const NANOS: i64 = 1_000_000_000;

/// A file's attributes.
pub(crate) fn attr(attr: &vellum::Attr) -> Attr {
    let (atime, atime_ns) = time(attr.atime_ns);
    let (mtime, mtime_ns) = time(attr.mtime_ns);
    let (ctime, ctime_ns) = time(attr.ctime_ns);
    Attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks_512,
        atime,
        mtime,
        ctime,
        atime_ns,
        mtime_ns,
        ctime_ns,
        mode: kind_bits(attr.kind) | u32::from(attr.mode),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // Both encodings put 12 bits of major and 20 of minor into the same 32 bits.
        device: attr.device as u32,
        block_size: 4096,
        flags: 0,
    }
}

/// A file's flags for `statx`.
pub(crate) fn statx_flags(flags: FileFlags) -> StatxFlags {
    // These have the same numbers there.
    let known = FileFlags::GUARDED | FileFlags::NO_DUMP;
    StatxFlags {
        set: (flags & known).bits().into(),
        known: known.bits().into(),
    }
}

/// The type bits of the mode of a file.
pub(crate) fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
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

/// Seconds since 1970, and the nanoseconds after them.
pub(crate) fn time(ns: i64) -> (i64, u32) {
    (ns.div_euclid(NANOS), ns.rem_euclid(NANOS) as u32)
}

/// A time that the kernel sets.
pub(crate) fn set_time(time: SetTime) -> vellum::SetTime {
    match time {
        SetTime::Now => vellum::SetTime::Now,
        SetTime::At { seconds, ns } => {
            vellum::SetTime::At(seconds.saturating_mul(NANOS).saturating_add(i64::from(ns)))
        }
    }
}

/// The errno of an error, for the kernel. The log gets the details of damage.
pub(crate) fn errno(error: &vellum::Error) -> Errno {
    if matches!(
        error,
        vellum::Error::Damaged { .. } | vellum::Error::Unreadable(_)
    ) {
        tracing::error!(%error, "a request failed");
    }
    Errno::from_raw_os_error(error.errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_are_converted() {
        for (seconds, ns, expected) in [
            (0, 0, 0),
            (0, 5, 5),
            (1_700_000_000, 999_999_999, 1_700_000_000_999_999_999),
            // One and a half seconds before 1970.
            (-2, 500_000_000, -1_500_000_000),
        ] {
            let at = SetTime::At { seconds, ns };
            assert_eq!(set_time(at), vellum::SetTime::At(expected));
            assert_eq!(time(expected), (seconds, ns));
        }
        assert_eq!(set_time(SetTime::Now), vellum::SetTime::Now);
    }

    #[test]
    fn modes_are_converted_to_kinds() {
        assert_eq!(kind_of_mode(0o100_644), Some(FileKind::File));
        assert_eq!(kind_of_mode(0o010_644), Some(FileKind::Fifo));
        assert_eq!(kind_of_mode(0o040_755), None);
    }
}
