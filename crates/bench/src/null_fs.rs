//! The null file system: a FUSE file system that does nothing. It shows what an operation costs
//! when the file system behind a mount costs nothing.
//!
//! It accepts every change and keeps only each file's kind and size, without which the kernel would
//! not read. Names live in the kernel's cache, which the mount permits, as Vellum's mount does.
//! Directories called [`LISTED`] have a fixed number of entries.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use vellum_transport::{
    Attr, Entry, FileSystem, Operation, REQUEST_MAX_BYTES, ROOT, Reply, Request,
};

use crate::order::LISTED;

const TTL: Duration = Duration::from_secs(86_400);
/// Inode numbers of directories have this bit.
const DIRECTORY: u64 = 1 << 40;
/// The number of files whose sizes are kept; further files replace old ones.
const SIZES: usize = 1 << 22;
/// The type and permission bits of directories.
const DIRECTORY_MODE: u32 = 0o040_755;
/// The type and permission bits of files.
const FILE_MODE: u32 = 0o100_644;

/// The null file system.
pub(crate) struct NullFs {
    entries: Vec<String>,
    next: AtomicU64,
    listed: OnceLock<u64>,
    sizes: Vec<AtomicU64>,
    zeros: Vec<u8>,
}

impl NullFs {
    /// Listings of [`LISTED`] have `entries` names.
    pub(crate) fn new(entries: usize) -> Self {
        Self {
            entries: (0..entries).map(|n| format!("file-{n:05}")).collect(),
            next: AtomicU64::new(2),
            listed: OnceLock::new(),
            sizes: (0..SIZES).map(|_| AtomicU64::new(0)).collect(),
            zeros: vec![0; REQUEST_MAX_BYTES as usize],
        }
    }

    fn size(&self, ino: u64) -> &AtomicU64 {
        &self.sizes[(ino % SIZES as u64) as usize]
    }

    /// A new file or directory.
    fn made(&self, mode: u32) -> Entry {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.size(number).store(0, Ordering::Relaxed);
        let is_dir = mode == DIRECTORY_MODE;
        self.entry(if is_dir { number | DIRECTORY } else { number })
    }

    fn entry(&self, ino: u64) -> Entry {
        Entry {
            node: ino,
            generation: 0,
            name_ttl: TTL,
            attr_ttl: TTL,
            attr: self.attr(ino),
        }
    }

    fn attr(&self, ino: u64) -> Attr {
        let is_dir = ino & DIRECTORY != 0 || ino == ROOT;
        let (mode, size) = if is_dir {
            (DIRECTORY_MODE, 4096)
        } else {
            (FILE_MODE, self.size(ino).load(Ordering::Relaxed))
        };
        Attr {
            ino,
            size,
            blocks: size.div_ceil(512),
            mode,
            nlink: 1,
            block_size: 4096,
            ..Attr::default()
        }
    }

    /// Entries of a directory from `offset` on.
    fn list(&self, ino: u64, offset: u64) -> impl Iterator<Item = (u64, &str)> {
        let is_listed = self.listed.get() == Some(&ino);
        let entries = if is_listed {
            self.entries.as_slice()
        } else {
            &[]
        };
        let numbered = entries.iter().enumerate().skip(offset as usize);
        numbered.map(|(number, name)| (number as u64 + 1, name.as_str()))
    }
}

impl FileSystem for NullFs {
    fn answer(&self, request: Request<'_>, reply: Reply) {
        let node = request.node;
        match request.operation {
            // A name that is not in the kernel's cache does not exist, and the kernel may cache
            // that.
            Operation::Lookup { .. } => reply.entry(&self.entry(0)),
            Operation::GetAttr => reply.attr(self.attr(node), TTL),
            Operation::GetXattr { .. } => reply.error(Errno::NODATA),
            Operation::SetAttr(set) => {
                if let Some(size) = set.size {
                    self.size(node).store(size, Ordering::Relaxed);
                }
                reply.attr(self.attr(node), TTL);
            }
            Operation::MkNod { .. } => reply.entry(&self.made(FILE_MODE)),
            Operation::MkDir { name, .. } => {
                let made = self.made(DIRECTORY_MODE);
                if name == LISTED.as_bytes() {
                    self.listed.get_or_init(|| made.node);
                }
                reply.entry(&made);
            }
            Operation::Read { size, .. } => {
                let size = (size as usize).min(self.zeros.len());
                reply.data(&self.zeros[..size]);
            }
            Operation::Write { offset, data, .. } => {
                let end = offset + data.len() as u64;
                self.size(node).fetch_max(end, Ordering::Relaxed);
                reply.written(data.len() as u32);
            }
            Operation::ReadDir { after, size } => reply.listing(size, |listing| {
                for (number, name) in self.list(node, after) {
                    if !listing.add(number + 1, number, FILE_MODE, name.as_bytes()) {
                        break;
                    }
                }
                Ok(())
            }),
            Operation::ReadDirPlus { after, size } => reply.listing(size, |listing| {
                for (number, name) in self.list(node, after) {
                    let entry = self.entry(number + 1);
                    if !listing.add_with_attr(&entry, number, name.as_bytes()) {
                        break;
                    }
                }
                Ok(())
            }),
            Operation::Unlink { .. }
            | Operation::RmDir { .. }
            | Operation::Rename { .. }
            | Operation::Release
            | Operation::Sync => reply.empty(),
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn may_wait(&self, _request: &Request<'_>) -> bool {
        false
    }

    fn forget(&self, _: u64, _: u64) {}
}
