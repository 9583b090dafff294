//! Decodes the kernel's requests.
//!
//! A door delivers a request as its header, its fixed argument, and the rest (names, data). No
//! bytes make decoding panic.

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{
    self, BatchForgetIn, CopyFileRangeIn, CreateIn, FAllocateIn, FSyncIn, ForgetIn, ForgetOne,
    GetAttrIn, GetXattrIn, InHeader, InitIn, IoctlIn, LinkIn, MkDirIn, MkNodIn, OpenIn, ReadIn,
    ReleaseIn, Rename2In, RenameIn, SeekIn, SetAttrIn, SetXattrIn, StatxIn, WriteIn, feature,
    opcode, set,
};

/// A request that is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'r> {
    /// The file, or the directory of a name.
    pub node: u64,
    /// The user who asks.
    pub uid: u32,
    /// The group of the user.
    pub gid: u32,
    /// The thread that asks; 0: it is not visible here.
    pub pid: u32,
    /// What is asked for.
    pub operation: Operation<'r>,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the system calls"
)]
pub enum Operation<'r> {
    /// Finds a name.
    Lookup { name: &'r [u8] },
    /// Returns attributes.
    GetAttr,
    /// Returns attributes and the time of birth.
    Statx,
    /// Changes attributes.
    SetAttr(SetAttr),
    /// Returns the target of a symbolic link.
    ReadLink,
    /// Makes a symbolic link.
    Symlink { name: &'r [u8], target: &'r [u8] },
    /// Makes a file that is not a directory.
    MkNod {
        name: &'r [u8],
        mode: u32,
        umask: u32,
        device: u32,
    },
    /// Makes a directory.
    MkDir {
        name: &'r [u8],
        mode: u32,
        umask: u32,
    },
    /// Removes a name of a file.
    Unlink { name: &'r [u8] },
    /// Removes a directory.
    RmDir { name: &'r [u8] },
    /// Renames; the flags are those of `renameat2`.
    Rename {
        name: &'r [u8],
        new_dir: u64,
        new_name: &'r [u8],
        flags: u32,
    },
    /// Gives the file `node` one more name, in the directory of the request.
    Link { node: u64, new_name: &'r [u8] },
    /// Opens a file, with the flags of `open`.
    Open { flags: u32 },
    /// Makes a file and opens it.
    Create {
        name: &'r [u8],
        mode: u32,
        umask: u32,
    },
    /// Makes a file without a name and opens it.
    CreateUnnamed { mode: u32, umask: u32 },
    /// Reads; `flags` are those of the open file.
    Read {
        offset: u64,
        size: u32,
        flags: u32,
        through: Through,
    },
    /// Writes; `flags` are those of the open file.
    Write {
        offset: u64,
        data: &'r [u8],
        flags: u32,
        through: Through,
        /// The user may not keep the file's set-id bits.
        drops_set_ids: bool,
        /// The kernel writes back pages that somebody changed earlier.
        writes_back: bool,
    },
    /// Closes a file or directory.
    Release,
    /// Makes changes durable.
    Sync,
    /// Opens a directory.
    OpenDir,
    /// Lists a directory after a cookie, in at most `size` bytes.
    ReadDir { after: u64, size: u32 },
    /// The same with attributes.
    ReadDirPlus { after: u64, size: u32 },
    /// Sets an extended attribute; the flags are those of `setxattr`.
    SetXattr {
        name: &'r [u8],
        value: &'r [u8],
        flags: u32,
        /// The access control list drops the file's set-gid bit.
        drops_set_gid: bool,
    },
    /// Returns the value of an extended attribute, of at most `size` bytes; with 0 its length.
    GetXattr { name: &'r [u8], size: u32 },
    /// Returns the names of extended attributes, a zero byte behind each; `size` as for a value.
    ListXattr { size: u32 },
    /// Removes an extended attribute.
    RemoveXattr { name: &'r [u8] },
    /// Returns the size of the file system.
    StatFs,
    /// Sends bytes to a file, and expects at most so many.
    Ioctl {
        number: u32,
        sent: &'r [u8],
        expected: u32,
    },
    /// Allocates space, or frees it.
    Allocate { mode: i32, offset: u64, len: u64 },
    /// Finds data or a hole.
    Seek { offset: i64, whence: i32 },
    /// Copies bytes to another file.
    CopyRange {
        offset: u64,
        to_node: u64,
        to_offset: u64,
        len: u64,
    },
    /// A request that is not decoded. `ENOSYS` tells the kernel not to send it again.
    Other { opcode: u32 },
}

/// New attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size.
    pub size: Option<u64>,
    /// The access time.
    pub atime: Option<SetTime>,
    /// The modification time.
    pub mtime: Option<SetTime>,
    /// The change drops the file's set-id bits.
    pub drops_set_ids: bool,
    /// The kernel keeps the times of files by itself, and sends its change time, too.
    pub has_change_time: bool,
}

/// A new time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present time.
    Now,
    /// This time.
    At {
        /// Seconds since 1970.
        seconds: i64,
        /// The nanoseconds after that.
        ns: u32,
    },
}

/// How the kernel reads or writes the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// Through its page cache.
    Cache,
    /// Past it (`O_DIRECT`).
    Direct,
}

impl Through {
    /// The kernel names the owner of locks only for requests that pass its page cache.
    fn of(flags: u32) -> Self {
        if flags & abi::HAS_LOCK_OWNER == 0 {
            Self::Cache
        } else {
            Self::Direct
        }
    }
}

/// What the kernel sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message<'r> {
    /// Expects an answer of the file system.
    Request(Request<'r>),
    /// Lookups are over. There is no answer.
    Forget(Forgotten<'r>),
    /// The first message, and the second word of features.
    Init(InitIn, u32),
    /// The last one; the answer is empty.
    Destroy,
}

/// Files with the number of lookups to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgotten<'r> {
    One(ForgetOne),
    /// The bytes of [`ForgetOne`] structures.
    Many(&'r [u8]),
}

impl Forgotten<'_> {
    /// Calls `each` with a file and a number of lookups.
    pub(crate) fn each(self, mut each: impl FnMut(u64, u64)) {
        match self {
            Self::One(ForgetOne { node, lookups }) => each(node, lookups),
            Self::Many(bytes) => {
                for bytes in bytes.chunks_exact(size_of::<ForgetOne>()) {
                    let mut one = ForgetOne::default();
                    one.as_mut_bytes().copy_from_slice(bytes);
                    each(one.node, one.lookups);
                }
            }
        }
    }
}

/// The answer to a request that cannot be decoded.
const MALFORMED: Errno = Errno::IO;

/// The fixed argument of a request.
fn fixed<T: FromBytes>(bytes: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(bytes)
        .map(|(value, _)| value)
        .map_err(|_| MALFORMED)
}

/// A name that ends in a zero byte, and the bytes after it.
fn text(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(MALFORMED)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn name(bytes: &[u8]) -> Result<&[u8], Errno> {
    Ok(text(bytes)?.0)
}

/// The first `len` bytes.
fn prefix(bytes: &[u8], len: u32) -> Result<&[u8], Errno> {
    bytes.get(..len as usize).ok_or(MALFORMED)
}

/// The header of a request, and the bytes after it up to the end that the header names.
pub(crate) fn split(bytes: &[u8]) -> Option<(InHeader, &[u8])> {
    let (header, body) = InHeader::read_from_prefix(bytes).ok()?;
    let len = (header.len as usize).checked_sub(size_of::<InHeader>())?;
    Some((header, body.get(..len)?))
}

/// The length of the fixed argument of a request.
pub(crate) fn fixed_len(opcode: u32) -> usize {
    match opcode {
        opcode::FORGET => size_of::<ForgetIn>(),
        opcode::GETATTR => size_of::<GetAttrIn>(),
        opcode::STATX => size_of::<StatxIn>(),
        opcode::SETATTR => size_of::<SetAttrIn>(),
        opcode::MKNOD => size_of::<MkNodIn>(),
        opcode::MKDIR => size_of::<MkDirIn>(),
        opcode::RENAME => size_of::<RenameIn>(),
        opcode::RENAME2 => size_of::<Rename2In>(),
        opcode::LINK => size_of::<LinkIn>(),
        opcode::OPEN | opcode::OPENDIR => size_of::<OpenIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<ReadIn>(),
        opcode::WRITE => size_of::<WriteIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<ReleaseIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<FSyncIn>(),
        opcode::SETXATTR => size_of::<SetXattrIn>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<GetXattrIn>(),
        opcode::INIT => size_of::<InitIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<CreateIn>(),
        opcode::IOCTL => size_of::<IoctlIn>(),
        opcode::BATCH_FORGET => size_of::<BatchForgetIn>(),
        opcode::FALLOCATE => size_of::<FAllocateIn>(),
        opcode::LSEEK => size_of::<SeekIn>(),
        opcode::COPY_FILE_RANGE => size_of::<CopyFileRangeIn>(),
        _ => 0,
    }
}

/// Decodes a request. `argument` may be longer than the fixed argument.
///
/// # Errors
/// Returns the error that answers a malformed request.
pub(crate) fn message<'r>(
    header: &InHeader,
    argument: &[u8],
    rest: &'r [u8],
) -> Result<Message<'r>, Errno> {
    Ok(match header.opcode {
        opcode::FORGET => Message::Forget(Forgotten::One(ForgetOne {
            node: header.node,
            lookups: fixed::<ForgetIn>(argument)?.lookups,
        })),
        opcode::BATCH_FORGET => {
            let count = fixed::<BatchForgetIn>(argument)?.count as usize;
            let len = count.checked_mul(size_of::<ForgetOne>());
            let bytes = len.and_then(|len| rest.get(..len)).ok_or(MALFORMED)?;
            Message::Forget(Forgotten::Many(bytes))
        }
        opcode::INIT => {
            let asked: InitIn = fixed(argument)?;
            let more = match asked.features & feature::INIT_EXT {
                0 => 0,
                _ => fixed(rest)?,
            };
            Message::Init(asked, more)
        }
        opcode::DESTROY => Message::Destroy,
        _ => Message::Request(Request {
            node: header.node,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            operation: operation(header.opcode, argument, rest)?,
        }),
    })
}

fn operation<'r>(opcode: u32, argument: &[u8], rest: &'r [u8]) -> Result<Operation<'r>, Errno> {
    Ok(match opcode {
        opcode::LOOKUP => Operation::Lookup { name: name(rest)? },
        opcode::GETATTR => Operation::GetAttr,
        opcode::STATX => Operation::Statx,
        opcode::SETATTR => Operation::SetAttr(set_attr(&fixed(argument)?)),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::RENAME
        | opcode::RENAME2
        | opcode::LINK
        | opcode::CREATE => change_of_names(opcode, argument, rest)?,
        opcode::TMPFILE => {
            let CreateIn { mode, umask, .. } = fixed(argument)?;
            Operation::CreateUnnamed { mode, umask }
        }
        opcode::OPEN => {
            let OpenIn { flags, .. } = fixed(argument)?;
            Operation::Open { flags }
        }
        opcode::OPENDIR => Operation::OpenDir,
        opcode::RELEASE | opcode::RELEASEDIR => Operation::Release,
        opcode::FSYNC | opcode::FSYNCDIR => Operation::Sync,
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            of_xattrs(opcode, argument, rest)?
        }
        opcode::STATFS => Operation::StatFs,
        opcode::READ => {
            let read: ReadIn = fixed(argument)?;
            Operation::Read {
                offset: read.offset,
                size: read.size,
                flags: read.flags,
                through: Through::of(read.read_flags),
            }
        }
        opcode::READDIR | opcode::READDIRPLUS => {
            let ReadIn { offset, size, .. } = fixed(argument)?;
            match opcode {
                opcode::READDIR => Operation::ReadDir {
                    after: offset,
                    size,
                },
                _ => Operation::ReadDirPlus {
                    after: offset,
                    size,
                },
            }
        }
        opcode::WRITE => {
            let write: WriteIn = fixed(argument)?;
            Operation::Write {
                offset: write.offset,
                data: prefix(rest, write.size)?,
                flags: write.flags,
                through: Through::of(write.write_flags),
                drops_set_ids: write.write_flags & abi::WRITE_DROPS_SET_IDS != 0,
                writes_back: write.write_flags & abi::WRITE_BACK != 0,
            }
        }
        opcode::IOCTL => {
            let ioctl: IoctlIn = fixed(argument)?;
            match ioctl.flags & abi::IOCTL_UNRESTRICTED {
                0 => Operation::Ioctl {
                    number: ioctl.number,
                    sent: prefix(rest, ioctl.in_size)?,
                    expected: ioctl.out_size,
                },
                _ => Operation::Other { opcode },
            }
        }
        opcode::FALLOCATE => {
            let FAllocateIn {
                mode, offset, len, ..
            } = fixed(argument)?;
            let mode = mode as i32;
            Operation::Allocate { mode, offset, len }
        }
        opcode::LSEEK => {
            let SeekIn { offset, whence, .. } = fixed(argument)?;
            let whence = whence as i32;
            Operation::Seek { offset, whence }
        }
        opcode::COPY_FILE_RANGE => {
            let copy: CopyFileRangeIn = fixed(argument)?;
            Operation::CopyRange {
                offset: copy.offset,
                to_node: copy.to_node,
                to_offset: copy.to_offset,
                len: copy.len,
            }
        }
        opcode => Operation::Other { opcode },
    })
}

fn change_of_names<'r>(
    opcode: u32,
    argument: &[u8],
    rest: &'r [u8],
) -> Result<Operation<'r>, Errno> {
    let (name, after) = text(rest)?;
    let rename = |new_dir, flags| {
        Ok(Operation::Rename {
            name,
            new_dir,
            new_name: self::name(after)?,
            flags,
        })
    };
    Ok(match opcode {
        opcode::SYMLINK => Operation::Symlink {
            name,
            target: self::name(after)?,
        },
        opcode::MKNOD => {
            let sent: MkNodIn = fixed(argument)?;
            Operation::MkNod {
                name,
                mode: sent.mode,
                umask: sent.umask,
                device: sent.device,
            }
        }
        opcode::MKDIR => {
            let MkDirIn { mode, umask } = fixed(argument)?;
            Operation::MkDir { name, mode, umask }
        }
        opcode::CREATE => {
            let CreateIn { mode, umask, .. } = fixed(argument)?;
            Operation::Create { name, mode, umask }
        }
        opcode::UNLINK => Operation::Unlink { name },
        opcode::RMDIR => Operation::RmDir { name },
        opcode::RENAME => rename(fixed::<RenameIn>(argument)?.new_dir, 0)?,
        opcode::RENAME2 => {
            let Rename2In { new_dir, flags, .. } = fixed(argument)?;
            rename(new_dir, flags)?
        }
        _ => Operation::Link {
            node: fixed::<LinkIn>(argument)?.node,
            new_name: name,
        },
    })
}

fn of_xattrs<'r>(opcode: u32, argument: &[u8], rest: &'r [u8]) -> Result<Operation<'r>, Errno> {
    Ok(match opcode {
        opcode::SETXATTR => {
            let sent: SetXattrIn = fixed(argument)?;
            let (name, value) = text(rest)?;
            Operation::SetXattr {
                name,
                value: prefix(value, sent.size)?,
                flags: sent.flags,
                drops_set_gid: sent.set_xattr_flags & abi::SET_XATTR_DROPS_SET_GID != 0,
            }
        }
        opcode::GETXATTR => Operation::GetXattr {
            name: name(rest)?,
            size: fixed::<GetXattrIn>(argument)?.size,
        },
        opcode::LISTXATTR => Operation::ListXattr {
            size: fixed::<GetXattrIn>(argument)?.size,
        },
        _ => Operation::RemoveXattr { name: name(rest)? },
    })
}

fn set_attr(sent: &SetAttrIn) -> SetAttr {
    let has = |flag| sent.valid & flag != 0;
    let time = |flag, now, seconds, ns| {
        let at = match has(now) {
            true => SetTime::Now,
            false => SetTime::At { seconds, ns },
        };
        has(flag).then_some(at)
    };
    SetAttr {
        mode: has(set::MODE).then_some(sent.mode),
        uid: has(set::UID).then_some(sent.uid),
        gid: has(set::GID).then_some(sent.gid),
        size: has(set::SIZE).then_some(sent.size),
        atime: time(set::ATIME, set::ATIME_NOW, sent.atime, sent.atime_ns),
        mtime: time(set::MTIME, set::MTIME_NOW, sent.mtime, sent.mtime_ns),
        drops_set_ids: has(set::DROP_SET_IDS),
        has_change_time: has(set::CTIME),
    }
}

/// Decodes any bytes as what `/dev/fuse` delivers, for tests. `None`: no request with an answer.
pub fn decode_any(bytes: &[u8]) -> Option<Operation<'_>> {
    let (header, body) = split(bytes)?;
    let (argument, rest) = body.split_at_checked(fixed_len(header.opcode))?;
    match message(&header, argument, rest).ok()? {
        Message::Request(request) => Some(request.operation),
        Message::Forget(forgotten) => {
            forgotten.each(|_, _| ());
            None
        }
        Message::Init(..) | Message::Destroy => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(opcode: u32, argument: &[u8], rest: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: (size_of::<InHeader>() + argument.len() + rest.len()) as u32,
            opcode,
            node: 7,
            ..InHeader::default()
        };
        [header.as_bytes(), argument, rest].concat()
    }

    /// A request of every kind that has an argument or names.
    fn samples() -> Vec<(Vec<u8>, Operation<'static>)> {
        let write = WriteIn {
            offset: 9,
            size: 3,
            write_flags: abi::HAS_LOCK_OWNER | abi::WRITE_DROPS_SET_IDS,
            ..WriteIn::default()
        };
        let rename = Rename2In {
            new_dir: 5,
            flags: 2,
            padding: 0,
        };
        let link = LinkIn { node: 4 };
        let copy = CopyFileRangeIn {
            offset: 1,
            to_node: 2,
            to_offset: 3,
            len: 4,
            ..CopyFileRangeIn::default()
        };
        let xattr = SetXattrIn {
            size: 3,
            flags: 1,
            set_xattr_flags: abi::SET_XATTR_DROPS_SET_GID,
            padding: 0,
        };
        let sample = |opcode, argument: &[u8], rest: &[u8], operation| {
            (bytes(opcode, argument, rest), operation)
        };
        vec![
            sample(
                opcode::LOOKUP,
                &[],
                b"name\0",
                Operation::Lookup { name: b"name" },
            ),
            sample(
                opcode::WRITE,
                write.as_bytes(),
                b"abc",
                Operation::Write {
                    offset: 9,
                    data: b"abc",
                    flags: 0,
                    through: Through::Direct,
                    drops_set_ids: true,
                    writes_back: false,
                },
            ),
            sample(
                opcode::RENAME2,
                rename.as_bytes(),
                b"a\0b\0",
                Operation::Rename {
                    name: b"a",
                    new_dir: 5,
                    new_name: b"b",
                    flags: 2,
                },
            ),
            sample(
                opcode::LINK,
                link.as_bytes(),
                b"new\0",
                Operation::Link {
                    node: 4,
                    new_name: b"new",
                },
            ),
            sample(
                opcode::SYMLINK,
                &[],
                b"a\0to/b\0",
                Operation::Symlink {
                    name: b"a",
                    target: b"to/b",
                },
            ),
            sample(
                opcode::SETXATTR,
                xattr.as_bytes(),
                b"user.a\0abc",
                Operation::SetXattr {
                    name: b"user.a",
                    value: b"abc",
                    flags: 1,
                    drops_set_gid: true,
                },
            ),
            sample(
                opcode::COPY_FILE_RANGE,
                copy.as_bytes(),
                &[],
                Operation::CopyRange {
                    offset: 1,
                    to_node: 2,
                    to_offset: 3,
                    len: 4,
                },
            ),
        ]
    }

    #[test]
    fn requests_are_decoded_and_cut_ones_are_refused() {
        for (bytes, operation) in samples() {
            assert_eq!(decode_any(&bytes), Some(operation));
            for len in 0..bytes.len() {
                assert_eq!(decode_any(&bytes[..len]), None);
                // A header that ends with the bytes.
                let mut short = bytes[..len].to_vec();
                if let Some(written) = short.get_mut(..4) {
                    written.copy_from_slice(&(len as u32).to_ne_bytes());
                }
                assert_eq!(decode_any(&short), None, "{operation:?} cut to {len}");
            }
        }
    }

    #[test]
    fn an_unknown_request_has_its_number() {
        let other = Operation::Other { opcode: 4711 };
        assert_eq!(decode_any(&bytes(4711, &[], &[1, 2, 3])), Some(other));
    }

    #[test]
    fn times_are_set_as_they_are_sent() {
        let mut sent = SetAttrIn {
            valid: set::ATIME | set::MTIME | set::MTIME_NOW | set::UID | set::DROP_SET_IDS,
            atime: -2,
            atime_ns: 500_000_000,
            uid: 3,
            ..SetAttrIn::default()
        };
        let expected = SetAttr {
            uid: Some(3),
            atime: Some(SetTime::At {
                seconds: -2,
                ns: 500_000_000,
            }),
            mtime: Some(SetTime::Now),
            drops_set_ids: true,
            ..SetAttr::default()
        };
        assert_eq!(set_attr(&sent), expected);
        sent.valid = 0;
        assert_eq!(set_attr(&sent), SetAttr::default());
    }

    #[test]
    fn forgotten_lookups_are_counted_for_each_file() {
        let count = BatchForgetIn {
            count: 2,
            padding: 0,
        };
        let ones = [(3, 1), (4, 9)].map(|(node, lookups)| ForgetOne { node, lookups });
        let header = InHeader {
            opcode: opcode::BATCH_FORGET,
            ..InHeader::default()
        };
        let decode = |rest| message(&header, count.as_bytes(), rest);
        let Ok(Message::Forget(forgotten)) = decode(ones.as_bytes()) else {
            panic!("not decoded");
        };
        let mut seen = Vec::new();
        forgotten.each(|node, lookups| seen.push((node, lookups)));
        assert_eq!(seen, [(3, 1), (4, 9)]);
        assert_eq!(decode(&ones.as_bytes()[1..]), Err(MALFORMED));
    }
}
