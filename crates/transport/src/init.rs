//! Agrees with the kernel on the protocol.

use rustix::io::Errno;

use crate::abi::{InitIn, InitOut, MAJOR, MINOR, feature};

/// The largest read or write request, in bytes.
pub const REQUEST_MAX_BYTES: u32 = 1 << 20;
/// The number of background requests (such as read-ahead) that the kernel may send at once.
const BACKGROUND: u16 = 64;
/// The oldest minor version that is accepted: that of Linux 5.14, which has all that decides how
/// requests are laid out (`SETXATTR_EXT`).
const MINOR_MIN: u32 = 34;
/// The features that are used, if the kernel has them.
///
/// With `ASYNC_DIO` the kernel leaves stale pages behind, and a file system has to make it drop
/// them ([`crate::Notifier::drop_pages`]). (Measured, with 32 direct writes of 4 KiB at once:
/// 280 000 a second with it, 208 000 if pages have to be dropped, 32 000 without it.)
///
/// With `HANDLE_KILLPRIV_V2` the kernel asks for no attributes before a change of owner, and direct
/// writes drop set-id bits too. The file system then drops them where a request says so, and where
/// a change of attributes has none.
///
/// With `EXPORT_SUPPORT` the kernel looks up `.` in a file that it has forgotten, for
/// `open_by_handle_at` and NFS.
///
/// Not used: `ATOMIC_O_TRUNC` (truncation comes as a change of size, so opening needs no request),
/// `AUTO_INVAL_DATA` (only the mount writes, and the kernel does not drop those pages in time), and
/// locks (the kernel keeps them itself).
const WANTED: u32 = feature::ASYNC_READ
    | feature::EXPORT_SUPPORT
    | feature::BIG_WRITES
    | feature::DO_READDIRPLUS
    | feature::READDIRPLUS_AUTO
    | feature::ASYNC_DIO
    | feature::NO_OPEN_SUPPORT
    | feature::PARALLEL_DIROPS
    | feature::MAX_PAGES
    | feature::CACHE_SYMLINKS
    | feature::HANDLE_KILLPRIV_V2
    | feature::SETXATTR_EXT
    | feature::NO_OPENDIR_SUPPORT;

/// The features that access control lists need.
///
/// With `POSIX_ACL` the kernel asks for lists, and decides by them. The file system keeps modes and
/// lists in step. With `DONT_MASK` it applies the umask itself, since a directory's list for new
/// files takes the place of that.
const LISTS: u32 = feature::POSIX_ACL | feature::DONT_MASK;

/// What a mount asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Requests come by io_uring, if the kernel offers it.
    pub ring: bool,
    /// The kernel gathers writes in its page cache. It then decides size and modification time of
    /// files, and a write returns before the file system has its bytes. (Measured: 4 KiB appended
    /// to an open file take 2 us instead of 15, but a small file opened, written and closed takes
    /// 37 us instead of 20.)
    pub writeback: bool,
    /// The kernel asks for access control lists, and decides by them. It does so once for each file
    /// that somebody else than its owner uses.
    pub lists: bool,
}

/// How the first request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// With this.
    Agreed(InitOut),
    /// With the version, because the kernel speaks a newer one. It then asks again.
    AskAgain(InitOut),
    /// The kernel is too old. The answer is this error.
    TooOld(Errno),
}

/// `ring_max_write`: the most bytes of a read or write, if requests come by io_uring.
pub(crate) fn agree(asked: &InitIn, wanted: Wanted, ring_max_write: Option<u32>) -> Agreement {
    let version = InitOut {
        major: MAJOR,
        minor: MINOR,
        ..InitOut::default()
    };
    if asked.major > MAJOR {
        return Agreement::AskAgain(version);
    }
    if asked.major < MAJOR || asked.minor < MINOR_MIN {
        return Agreement::TooOld(Errno::PROTO);
    }
    let max_write = ring_max_write.unwrap_or(REQUEST_MAX_BYTES);
    let pages = (max_write as usize).div_ceil(rustix::param::page_size());
    let mut features = WANTED;
    if wanted.writeback {
        features |= feature::WRITEBACK_CACHE;
    }
    if wanted.lists {
        features |= LISTS;
    }
    let mut out = InitOut {
        max_readahead: asked.max_readahead.min(max_write),
        features: features & asked.features,
        max_background: BACKGROUND,
        congestion_threshold: BACKGROUND / 4 * 3,
        max_write,
        time_granularity_ns: 1,
        max_pages: u16::try_from(pages).unwrap_or(u16::MAX),
        ..version
    };
    if ring_max_write.is_some() {
        out.features |= feature::INIT_EXT;
        out.more_features = feature::OVER_IO_URING;
    }
    Agreement::Agreed(out)
}

/// Why a mount is refused whose kernel speaks this version.
pub(crate) fn too_old(asked: &InitIn) -> String {
    let InitIn { major, minor, .. } = asked;
    format!(
        "the kernel speaks version {major}.{minor} of the FUSE protocol, and a mount needs \
         {MAJOR}.{MINOR_MIN} (Linux 5.14)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Message, fixed_len, message, split};

    /// The first request of Linux 6.18: version 7.45, 128 KiB of read-ahead.
    const RECORDED: &str = "\
        680000001a0000000200000000000000000000000000000000000000000000000100000000000000\
        070000002d00000000000200fbffff73fd0500000000000000000000000000000000000000000000\
        000000000000000000000000000000000000000000000000";

    fn recorded() -> Vec<u8> {
        let digits = RECORDED.as_bytes().chunks_exact(2);
        let byte = |pair| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16);
        digits.map(|pair| byte(pair).expect("a byte")).collect()
    }

    fn asked() -> InitIn {
        let bytes = recorded();
        let (header, body) = split(&bytes).expect("a header");
        let (argument, rest) = body.split_at(fixed_len(header.opcode));
        match message(&header, argument, rest) {
            Ok(Message::Init(asked, _)) => asked,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_request_of_a_kernel_is_answered() {
        let asked = asked();
        assert_eq!((asked.major, asked.minor), (7, 45));
        let Agreement::Agreed(agreed) = agree(&asked, Wanted::default(), None) else {
            panic!("not agreed");
        };
        assert_eq!(agreed.features, WANTED);
        assert_eq!((agreed.max_write, agreed.max_pages), (1 << 20, 256));
        assert_eq!(
            (agreed.max_background, agreed.congestion_threshold),
            (64, 48)
        );
        assert_eq!((agreed.time_granularity_ns, agreed.more_features), (1, 0));
    }

    #[test]
    fn a_ring_bounds_the_size_of_requests() {
        let Agreement::Agreed(agreed) = agree(&asked(), Wanted::default(), Some(128 << 10)) else {
            panic!("not agreed");
        };
        assert_eq!((agreed.max_write, agreed.max_pages), (128 << 10, 32));
        assert_eq!(agreed.features, WANTED | feature::INIT_EXT);
        assert_eq!(agreed.more_features, feature::OVER_IO_URING);
    }

    #[test]
    fn the_kernel_gathers_writes_if_that_is_wanted() {
        let wanted = Wanted {
            writeback: true,
            ..Wanted::default()
        };
        let Agreement::Agreed(agreed) = agree(&asked(), wanted, None) else {
            panic!("not agreed");
        };
        assert_eq!(agreed.features, WANTED | feature::WRITEBACK_CACHE);
    }

    #[test]
    fn the_kernel_decides_by_lists_if_that_is_wanted() {
        let wanted = Wanted {
            lists: true,
            ..Wanted::default()
        };
        let Agreement::Agreed(agreed) = agree(&asked(), wanted, None) else {
            panic!("not agreed");
        };
        assert_eq!(agreed.features, WANTED | LISTS);
    }

    #[test]
    fn features_that_the_kernel_lacks_are_not_used() {
        let lacks = InitIn {
            features: feature::ASYNC_DIO | 1 << 31,
            ..asked()
        };
        let Agreement::Agreed(agreed) = agree(&lacks, Wanted::default(), None) else {
            panic!("not agreed");
        };
        assert_eq!(agreed.features, feature::ASYNC_DIO);
    }

    #[test]
    fn other_versions_are_refused_or_asked_again() {
        let of = |major, minor| {
            let asked = InitIn {
                major,
                minor,
                ..asked()
            };
            (agree(&asked, Wanted::default(), None), too_old(&asked))
        };
        assert!(matches!(of(7, 34).0, Agreement::Agreed(..)));
        for (major, minor) in [(7, 33), (6, 99)] {
            let (agreement, said) = of(major, minor);
            assert_eq!(agreement, Agreement::TooOld(Errno::PROTO));
            assert!(said.contains("7.34"), "{said}");
        }
        let Agreement::AskAgain(version) = of(8, 0).0 else {
            panic!("not asked again");
        };
        assert_eq!((version.major, version.max_write), (MAJOR, 0));
    }
}
