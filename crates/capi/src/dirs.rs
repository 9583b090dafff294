//! Listing directories.

use libc::{c_char, c_int};
use vellum::{ListPosition, Result};
use zerocopy::{Immutable, IntoBytes};

use crate::borrowed::{CPath, Out};
use crate::failure::call;
use crate::files::{offset_of, vellum_close, vellum_open};
use crate::objects::OpenFile;
use crate::{table, vellum_handle};

/// Entries that are read from a directory at once.
const BATCH: usize = 128;

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, IntoBytes, Immutable)]
pub struct vellum_dirent {
    /// Inode number.
    pub ino: u64,
    /// The position behind this entry, for `vellum_seekdir`.
    pub position: i64,
    /// The length of the name, in bytes, without its zero byte.
    pub name_bytes: u16,
    /// The kind of file: DT_REG, DT_DIR, DT_LNK, DT_FIFO, DT_SOCK, DT_CHR or DT_BLK.
    pub kind: u8,
    /// The name, and a zero byte.
    pub name: [c_char; 256],
    /// 0.
    pub reserved: [u8; 5],
}

/// The listing of an open directory.
#[derive(Default)]
pub(crate) struct Listing {
    hint: ListPosition,
    /// The position behind the entry that was returned last.
    position: u64,
    /// The position behind the batch.
    after: u64,
    /// Entries that were read and not returned, the next one last.
    batch: Vec<Entry>,
    /// The names of the batch.
    names: Vec<u8>,
    /// The batch is the last one.
    is_last: bool,
}

struct Entry {
    ino: u64,
    position: u64,
    kind: u8,
    name: std::ops::Range<usize>,
}

impl Listing {
    fn seek(&mut self, position: u64) {
        *self = Self {
            position,
            after: position,
            ..Self::default()
        };
    }

    fn next(&mut self, dir: &OpenFile) -> Result<Option<Entry>> {
        if self.batch.is_empty() && !self.is_last {
            self.read_on(dir)?;
        }
        let next = self.batch.pop();
        if let Some(entry) = &next {
            self.position = entry.position;
        }
        Ok(next)
    }

    /// Reads the next batch. The end of a damaged directory is an error, which comes after the last
    /// names.
    fn read_on(&mut self, dir: &OpenFile) -> Result<()> {
        let fs = dir.fs();
        let (batch, names) = (&mut self.batch, &mut self.names);
        names.clear();
        let node = dir.handle.node();
        let listed = fs.list(node, self.after, &mut self.hint, &mut |entry| {
            if batch.len() == BATCH {
                return false;
            }
            let at = names.len();
            names.extend_from_slice(entry.name);
            batch.push(Entry {
                ino: entry.ino,
                position: entry.cookie,
                kind: entry.kind as u8,
                name: at..names.len(),
            });
            true
        });
        self.after = batch.last().map_or(self.after, |last| last.position);
        self.is_last = batch.is_empty() || batch.len() < BATCH && !fs.is_damaged();
        batch.reverse();
        match listed {
            Err(error) if batch.is_empty() => {
                self.is_last = false;
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

/// Opens a directory for listing: `vellum_open` with O_RDONLY | O_DIRECTORY. The handle works
/// wherever that of an open directory does. Returns a handle for `vellum_closedir`, or -1 with the
/// errors of `vellum_open`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_opendir(at: vellum_handle, path: CPath) -> vellum_handle {
    vellum_open(at, path, libc::O_RDONLY | libc::O_DIRECTORY, 0)
}

/// Returns the next entry of an open directory in `*entry`; `size` is `sizeof *entry`. Entries that
/// exist throughout a listing are returned exactly once, those that were made since it began are
/// not. `.` and `..` are not returned. Threads that share a handle share its listing. Returns 1 for
/// an entry, 0 at the end, or -1 with EBADF, ENOTDIR, EFAULT, EINVAL (a size that no release has),
/// EIO or EUCLEAN (the medium is damaged).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_readdir(
    dir: vellum_handle,
    mut entry: Out<vellum_dirent>,
    size: usize,
) -> c_int {
    call("vellum_readdir", &[], || {
        entry.check_size(size, size_of::<vellum_dirent>())?;
        let held = table::get(dir)?;
        let dir = held.file()?;
        let mut listing = dir.listing()?;
        let Some(found) = listing.next(dir)? else {
            return Ok(0);
        };
        let bytes = &listing.names[found.name];
        let mut name = [0; 256];
        for (to, &byte) in name.iter_mut().zip(bytes) {
            *to = byte as c_char;
        }
        let out = vellum_dirent {
            ino: found.ino,
            position: found.position as i64,
            name_bytes: bytes.len() as u16,
            kind: found.kind,
            name,
            reserved: [0; 5],
        };
        entry.set_sized(size, size_of::<vellum_dirent>(), &out)?;
        Ok(1)
    })
}

/// Returns the position behind the entry that was returned last, or -1 with EBADF or ENOTDIR.
/// Positions stay valid, also in later listings.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_telldir(dir: vellum_handle) -> i64 {
    call("vellum_telldir", &[], || {
        let held = table::get(dir)?;
        Ok(held.file()?.listing()?.position as i64)
    })
}

/// Continues the listing at a position that `vellum_telldir` or `vellum_readdir` returned; 0 begins
/// it again. Returns 0, or -1 with EBADF, ENOTDIR, EINVAL.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_seekdir(dir: vellum_handle, position: i64) -> c_int {
    call("vellum_seekdir", &[], || {
        let position = offset_of(position)?;
        let held = table::get(dir)?;
        held.file()?.listing()?.seek(position);
        Ok(0)
    })
}

/// Closes a directory: `vellum_close`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_closedir(dir: vellum_handle) -> c_int {
    vellum_close(dir)
}
