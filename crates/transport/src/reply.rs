//! Answers to requests.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::{IntoBytes, transmute};

use crate::abi::{
    Attr, AttrOut, DIRENT_ALIGN, Dirent, EntryOut, GetXattrOut, IoctlOut, OpenOut, OutHeader,
    SeekOut, StatFsOut, StatxOut, StatxTime, WriteOut,
};
use crate::init::REQUEST_MAX_BYTES;

/// Where an answer goes.
pub(crate) trait Sink: Send + Sync {
    /// Sends an answer whose body is in two parts.
    fn send(&self, header: OutHeader, body: [&[u8]; 2]) -> Result<(), Errno>;

    /// Fills the first `size` bytes of the door's own buffer, if it has one for this answer.
    fn fill(
        &self,
        _size: usize,
        _fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<Result<usize, Errno>> {
        None
    }

    /// Sends the first `len` bytes of that buffer.
    fn send_filled(&self, _header: OutHeader, _len: usize) {}
}

/// The answer to a request, on any thread. If it is dropped unsent, it is `EIO`.
pub struct Reply {
    unique: u64,
    /// `None`: sent.
    sink: Option<Arc<dyn Sink>>,
}

/// A name and its file, in an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// The node number; 0: there is no such name, which the kernel may cache too.
    pub node: u64,
    /// Distinguishes files that had the same number one after the other.
    pub generation: u64,
    /// How long the kernel may cache the name.
    pub name_ttl: Duration,
    /// How long the kernel may cache the attributes.
    pub attr_ttl: Duration,
    /// The attributes.
    pub attr: Attr,
}

/// How the kernel treats an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFlags {
    /// Its cached pages stay when it is opened again.
    KeepCache,
    /// The same for a directory, whose listing is cached too.
    CacheDirectory,
}

impl OpenFlags {
    fn out(self) -> OpenOut {
        const KEEP_CACHE: u32 = 1 << 1;
        const CACHE_DIR: u32 = 1 << 3;
        let flags = match self {
            Self::KeepCache => KEEP_CACHE,
            Self::CacheDirectory => KEEP_CACHE | CACHE_DIR,
        };
        OpenOut {
            handle: 0,
            flags,
            padding: 0,
        }
    }
}

/// Flags of a file, as `statx` numbers them. The kernel passes none of them on to programs (Linux
/// 6.18).
#[derive(Clone, Copy, Debug)]
pub struct StatxFlags {
    /// Those that are set.
    pub set: u64,
    /// Those that the file system knows.
    pub known: u64,
}

/// The size of a file system.
#[derive(Clone, Copy, Debug)]
pub struct FileSystemSize {
    /// Bytes in a block.
    pub block_bytes: u32,
    /// The blocks of data.
    pub blocks: u64,
    /// Those that are free.
    pub blocks_free: u64,
    /// The number of files that there can be.
    pub files: u64,
    /// How many more.
    pub files_free: u64,
    /// The length of the longest name.
    pub name_max: u32,
}

impl Entry {
    fn out(&self) -> EntryOut {
        EntryOut {
            node: self.node,
            generation: self.generation,
            entry_valid: self.name_ttl.as_secs(),
            attr_valid: self.attr_ttl.as_secs(),
            entry_valid_ns: self.name_ttl.subsec_nanos(),
            attr_valid_ns: self.attr_ttl.subsec_nanos(),
            attr: self.attr,
        }
    }
}

impl Reply {
    pub(crate) fn new(unique: u64, sink: Arc<dyn Sink>) -> Self {
        let sink = Some(sink);
        Self { unique, sink }
    }

    fn header(&self, error: i32, len: usize) -> OutHeader {
        OutHeader {
            len: (size_of::<OutHeader>() + len) as u32,
            error,
            unique: self.unique,
        }
    }

    fn send(&mut self, error: i32, body: [&[u8]; 2]) {
        let Some(sink) = self.sink.take() else {
            return;
        };
        let header = self.header(error, body[0].len() + body[1].len());
        match sink.send(header, body) {
            // Nobody waits for it any more, because of a signal or the end of the mount.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => tracing::error!(%error, "the kernel refused an answer"),
        }
    }

    /// The request failed.
    pub fn error(mut self, errno: Errno) {
        self.send(-errno.raw_os_error(), [&[], &[]]);
    }

    /// The request succeeded, and there is nothing to return.
    pub fn empty(self) {
        self.data(&[]);
    }

    /// Returns bytes.
    pub fn data(mut self, bytes: &[u8]) {
        self.send(0, [bytes, &[]]);
    }

    /// Returns the first bytes of a buffer of `size` bytes: as many as `fill` returns.
    pub fn fill(mut self, size: u32, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        let size = size.min(REQUEST_MAX_BYTES) as usize;
        let mut fill = Some(fill);
        let mut once = |buffer: &mut [u8]| fill.take().map_or(Err(Errno::IO), |fill| fill(buffer));
        let filled = self
            .sink
            .as_ref()
            .and_then(|sink| sink.fill(size, &mut once));
        match filled {
            Some(Ok(len)) => {
                let header = self.header(0, len);
                if let Some(sink) = self.sink.take() {
                    sink.send_filled(header, len);
                }
            }
            Some(Err(errno)) => self.error(errno),
            None => self.fill_and_copy(size, &mut once),
        }
    }

    /// The same with a buffer of this thread.
    fn fill_and_copy(self, size: usize, fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>) {
        thread_local! {
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match fill(&mut buffer[..size]) {
                Ok(len) => self.data(&buffer[..len]),
                Err(errno) => self.error(errno),
            }
        });
    }

    /// Returns a listing of at most `size` bytes. An error after some entries returns when the
    /// kernel asks for the following ones.
    pub fn listing(self, size: u32, list: impl FnOnce(&mut Listing<'_>) -> Result<(), Errno>) {
        self.fill(size, |buffer| {
            let mut listing = Listing { buffer, len: 0 };
            match (list(&mut listing), listing.len) {
                (Err(errno), 0) => Err(errno),
                (_, len) => Ok(len),
            }
        });
    }

    /// Returns a name and its file.
    pub fn entry(self, entry: &Entry) {
        self.data(entry.out().as_bytes());
    }

    /// Returns attributes that the kernel may cache.
    pub fn attr(self, attr: Attr, ttl: Duration) {
        let out = AttrOut {
            valid: ttl.as_secs(),
            valid_ns: ttl.subsec_nanos(),
            padding: 0,
            attr,
        };
        self.data(out.as_bytes());
    }

    /// Returns attributes that the kernel may cache, and the time of birth if it is known: seconds
    /// since 1970, and the nanoseconds after that.
    pub fn statx(self, attr: &Attr, born: Option<(i64, u32)>, flags: StatxFlags, ttl: Duration) {
        const BASIC: u32 = 0x07FF;
        const BTIME: u32 = 0x0800;
        let time = |seconds, ns| StatxTime {
            seconds,
            ns,
            reserved: 0,
        };
        let (born_s, born_ns) = born.unwrap_or_default();
        let out = StatxOut {
            valid: ttl.as_secs(),
            valid_ns: ttl.subsec_nanos(),
            mask: BASIC | born.map_or(0, |_| BTIME),
            block_size: attr.block_size,
            attributes: flags.set,
            attributes_mask: flags.known,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode as u16,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime, attr.atime_ns),
            btime: time(born_s, born_ns),
            ctime: time(attr.ctime, attr.ctime_ns),
            mtime: time(attr.mtime, attr.mtime_ns),
            device_major: attr.device >> 8 & 0xFFF,
            device_minor: attr.device & 0xFF | attr.device >> 12 & 0xF_FF00,
            ..StatxOut::default()
        };
        self.data(out.as_bytes());
    }

    /// A file or directory is open.
    pub fn opened(self, flags: OpenFlags) {
        self.data(flags.out().as_bytes());
    }

    /// A file was made and is open.
    pub fn created(mut self, entry: &Entry, flags: OpenFlags) {
        self.send(0, [entry.out().as_bytes(), flags.out().as_bytes()]);
    }

    /// So many bytes were written.
    pub fn written(self, size: u32) {
        self.data(WriteOut { size, padding: 0 }.as_bytes());
    }

    /// Data or a hole was found at this offset.
    pub fn offset(self, offset: u64) {
        self.data(SeekOut { offset }.as_bytes());
    }

    /// Returns the bytes of an ioctl.
    pub fn ioctl(mut self, bytes: &[u8]) {
        self.send(0, [IoctlOut::default().as_bytes(), bytes]);
    }

    /// Returns a value or a list of extended attributes to a caller with room for `size` bytes, or
    /// with 0 its length.
    pub fn xattr(self, size: u32, bytes: &[u8]) {
        let len = bytes.len() as u32;
        match size {
            0 => self.data(
                GetXattrOut {
                    size: len,
                    padding: 0,
                }
                .as_bytes(),
            ),
            _ if len > size => self.error(Errno::RANGE),
            _ => self.data(bytes),
        }
    }

    /// Returns the size of the file system.
    pub fn stat_fs(self, size: &FileSystemSize) {
        let out = StatFsOut {
            blocks: size.blocks,
            blocks_free: size.blocks_free,
            blocks_available: size.blocks_free,
            files: size.files,
            files_free: size.files_free,
            block_size: size.block_bytes,
            name_max: size.name_max,
            fragment_size: size.block_bytes,
            ..StatFsOut::default()
        };
        self.data(out.as_bytes());
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.send(-Errno::IO.raw_os_error(), [&[], &[]]);
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("unique", &self.unique)
            .finish_non_exhaustive()
    }
}

/// Entries of a directory, in an answer.
#[derive(Debug)]
pub struct Listing<'l> {
    buffer: &'l mut [u8],
    len: usize,
}

impl Listing<'_> {
    /// Adds an entry; `mode` is that of its file. Returns false if there is no space for it.
    pub fn add(&mut self, ino: u64, cookie: u64, mode: u32, name: &[u8]) -> bool {
        self.push(&[], ino, cookie, mode, name)
    }

    /// Adds an entry with its attributes. Returns false if there is no space for it.
    pub fn add_with_attr(&mut self, entry: &Entry, cookie: u64, name: &[u8]) -> bool {
        let Attr { ino, mode, .. } = entry.attr;
        self.push(entry.out().as_bytes(), ino, cookie, mode, name)
    }

    fn push(&mut self, before: &[u8], ino: u64, cookie: u64, mode: u32, name: &[u8]) -> bool {
        let dirent: [u8; size_of::<Dirent>()] = transmute!(Dirent {
            ino,
            cookie,
            name_len: name.len() as u32,
            kind: mode >> 12,
        });
        let len = before.len() + dirent.len() + name.len();
        let padded = len.next_multiple_of(DIRENT_ALIGN);
        let Some(mut out) = self.buffer.get_mut(self.len..self.len + padded) else {
            return false;
        };
        for part in [before, &dirent[..], name] {
            let (here, after) = out.split_at_mut(part.len());
            here.copy_from_slice(part);
            out = after;
        }
        out.fill(0);
        self.len += padded;
        true
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use zerocopy::FromBytes;

    use super::*;

    /// Keeps the answers.
    pub(crate) struct Kept(Mutex<std::sync::mpsc::Sender<Vec<u8>>>);

    impl Sink for Kept {
        fn send(&self, header: OutHeader, body: [&[u8]; 2]) -> Result<(), Errno> {
            let bytes = [header.as_bytes(), body[0], body[1]].concat();
            let sender = self.0.lock().expect("no panic");
            sender.send(bytes).map_err(|_| Errno::NODEV)
        }
    }

    pub(crate) fn kept() -> (Arc<dyn Sink>, Receiver<Vec<u8>>) {
        let (sender, answers) = channel();
        (Arc::new(Kept(Mutex::new(sender))), answers)
    }

    fn answer(give: impl FnOnce(Reply)) -> (OutHeader, Vec<u8>) {
        let (sink, answers) = kept();
        give(Reply::new(5, sink));
        let sent: Vec<_> = answers.iter().collect();
        let [bytes] = &sent[..] else {
            panic!("answered {} times", sent.len());
        };
        let (header, body) = OutHeader::read_from_prefix(bytes).expect("a header");
        assert_eq!((header.len as usize, header.unique), (bytes.len(), 5));
        (header, body.to_vec())
    }

    #[test]
    fn an_answer_is_sent_once() {
        assert_eq!(answer(|reply| reply.data(b"abc")).1, b"abc");
        assert_eq!(answer(Reply::empty).0.error, 0);
        assert_eq!(answer(|reply| reply.error(Errno::PERM)).0.error, -1);
        assert_eq!(answer(drop).0.error, -5);
        let panics = |reply: Reply| {
            let run = || reply.fill(8, |_| panic!("on purpose"));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        };
        assert_eq!(answer(panics).0.error, -5);
        // The buffer can be used again.
        let fill = |reply: Reply| {
            reply.fill(8, |buffer| {
                buffer.fill(b'x');
                Ok(3)
            });
        };
        assert_eq!(answer(fill).1, b"xxx");
    }

    #[test]
    fn an_extended_attribute_is_returned_to_who_has_room() {
        let of = |size| answer(|reply| reply.xattr(size, b"value"));
        assert_eq!(of(0).1, [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of(5).1, b"value");
        assert_eq!(of(4).0.error, -Errno::RANGE.raw_os_error());
    }

    #[test]
    fn a_listing_ends_where_it_is_full() {
        let list = |reply: Reply| {
            reply.listing(72, |listing| {
                assert!(listing.add(3, 1, 0o100_644, b"four"));
                assert!(!listing.add(4, 2, 0o040_755, b"a name that is too long....."));
                assert!(listing.add(4, 2, 0o040_755, b"eight..."));
                assert!(!listing.add(5, 3, 0o100_644, b""));
                Err(Errno::IO)
            });
        };
        let (header, body) = answer(list);
        assert_eq!((header.error, body.len()), (0, 64));
        let (first, after) = Dirent::read_from_prefix(&body).expect("an entry");
        let expected = Dirent {
            ino: 3,
            cookie: 1,
            name_len: 4,
            kind: 8,
        };
        assert_eq!((first, &after[..8]), (expected, &b"four\0\0\0\0"[..]));
        assert_eq!(&body[56..], b"eight...");
        let fail = |reply: Reply| reply.listing(72, |_| Err(Errno::IO));
        assert_eq!(answer(fail).0.error, -5);
    }

    #[test]
    fn an_entry_with_attributes_is_followed_by_its_name() {
        let entry = Entry {
            node: 9,
            attr: Attr {
                ino: 9,
                mode: 0o100_600,
                ..Attr::default()
            },
            ..Entry::default()
        };
        let list = |reply: Reply| {
            reply.listing(1 << 12, |listing| {
                assert!(listing.add_with_attr(&entry, 1, b"x"));
                Ok(())
            });
        };
        let (_, body) = answer(list);
        assert_eq!(body.len(), size_of::<EntryOut>() + size_of::<Dirent>() + 8);
        assert_eq!(
            EntryOut::read_from_prefix(&body).expect("it").0,
            entry.out()
        );
    }
}
