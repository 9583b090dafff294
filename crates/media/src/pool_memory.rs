//! The traits of the memory of a pool, beside its cells and lines: the medium, transactions, the
//! image of metadata, and the bytes of files.

use crate::MediaError;
use crate::disk::{Disk, Split};
use crate::granules::UndoWriter;
use crate::image::{Attach, ImageKey, LeftImage, SharedImage};
use crate::memory::{MediaKind, Persistent};
use crate::preserve::Preserver;
use crate::site::Site;
use crate::window::Window;
use crate::written::Written;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The file or device that a pool lies on.
pub trait Medium: Persistent {
    /// Makes everything fenced so far survive whatever the medium can survive at all (`fdatasync`
    /// of a file; nothing to do on persistent memory).
    ///
    /// # Errors
    /// Returns the error of the operating system.
    fn sync(&self) -> io::Result<()>;

    /// As [`sync`](Self::sync), and also empties the caches of devices, if other syncs leave them
    /// out.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    fn sync_caches(&self) -> io::Result<()> {
        self.sync()
    }

    /// Lets others open the file or device of this pool. The caller and all other users have [ended
    /// their use](crate::Memory::end).
    fn unlock(&self) {}

    /// Bytes of the pool itself. Bytes behind them, if there are any, lie on an external data
    /// device.
    fn own_bytes(&self) -> u64 {
        self.len()
    }

    /// Bytes by which [`extend`](Self::extend) can make the pool's own bytes more.
    fn spare_bytes(&self) -> u64 {
        0
    }

    /// Makes the pool's own bytes reach up to `end` at least, durably: a file grows if necessary.
    /// Unless the pool `is_sparse`, the space for those from `from` on is allocated. The bytes from
    /// `from` on are lost. The caller excludes other growth.
    ///
    /// # Errors
    /// Fails if there is no space on the device or in the file system of the file, or on another
    /// error of the operating system. Nothing has changed then, but that the file may be longer.
    fn extend(&self, from: u64, end: u64, is_sparse: bool) -> Result<(), MediaError> {
        let _ = is_sparse;
        match end.checked_sub(self.own_bytes()) {
            None | Some(0) => Ok(()),
            Some(_) => Err(MediaError::NoRoomBehind {
                path: PathBuf::new(),
                len_bytes: end.saturating_sub(from),
                available_bytes: self.own_bytes().saturating_sub(from),
            }),
        }
    }

    /// Allocates space in the file system below for `[at, at + len)`, whose bytes stay as they are.
    /// From then on stores there cannot fail for lack of it. Devices have all their space.
    ///
    /// # Errors
    /// Fails if there is none left, or if the file system cannot allocate ahead.
    fn provide(&self, at: u64, len: u64) -> Result<(), MediaError> {
        let _ = (at, len);
        Ok(())
    }

    /// Gives the space under `[at, at + len)` back to the file system or device below. The bytes
    /// are lost.
    ///
    /// # Errors
    /// Fails if that cannot take it. Then the bytes may be lost or not.
    fn give_back(&self, at: u64, len: u64) -> io::Result<()> {
        let _ = (at, len);
        Ok(())
    }

    /// Whether data lie on a device, where [space that was given back](Self::give_back) needs
    /// no providing.
    fn is_on_device(&self) -> bool {
        false
    }

    /// Durably replaces the unreadable block of 4 KiB at `at` by zeros, so that it can be used
    /// again; with larger pages, the whole page. Nothing else may use the memory meanwhile.
    ///
    /// # Errors
    /// Fails if the medium cannot do this, or on an error of the operating system. The block is
    /// then still lost.
    fn renew(&self, at: u64) -> io::Result<()> {
        let _ = at;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Begins a copy of the memory: from now on, before bytes change, `preserver` keeps the old
    /// ones if it needs them. No thread stores meanwhile. Returns false if another copy is running
    /// or this memory cannot be copied while it changes.
    fn preserve(&self, preserver: &Arc<Preserver>) -> bool {
        let _ = preserver;
        false
    }

    /// Ends the copy.
    fn end_preserving(&self) {}

    /// What the bytes lie on.
    fn kind(&self) -> MediaKind;
}

/// Metadata that a power cut rolls back to the last committed transaction, by undo records.
pub trait Transactions: Persistent {
    /// Begins transactions. From now on blocks of files are written by calls, and
    /// [`ImageMemory::disk`] reaches them. Once a transaction has begun, `undo` saves the old bytes
    /// of a granule of the metadata before the transaction first stores to it. Nothing else uses
    /// the pool meanwhile.
    ///
    /// # Errors
    /// Fails if the pool cannot be split this way.
    fn begin_transactions(
        &self,
        split: Split,
        undo: Arc<dyn UndoWriter>,
    ) -> Result<(), MediaError> {
        let _ = (split, undo);
        Err(MediaError::NoTransactions)
    }

    /// Begins a transaction; `number` is higher than all before. No thread stores meanwhile.
    fn begin_transaction(&self, number: u64) {
        let _ = number;
    }

    /// States that this thread is about to store to these ranges, `(offset, len)` each. If undo
    /// records are needed, they are written for all ranges with one fence.
    fn about_to_store(&self, places: &[(u64, u64)]) {
        let _ = places;
    }

    /// States that this transaction and all before are durable: power cuts no longer roll them
    /// back.
    fn transaction_committed(&self, number: u64) {
        let _ = number;
    }

    /// States that `[at, at + len)` is free: nothing refers to it any more.
    fn freed(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// States that the free range `[at, at + len)` is about to be stored to, and that only later
    /// stores of the same transaction refer to it. If it was free at the last commit, it needs no
    /// undo record.
    fn allocated(&self, at: u64, len: u64) {
        let _ = (at, len);
    }
}

/// Metadata in an image: separate memory over a file or device that a redo log keeps.
pub trait ImageMemory: Persistent {
    /// Begins an image: metadata in separate memory, zero at first, with their dirty lines
    /// recorded. From now on blocks of files are written by calls, and [`disk`](Self::disk) reaches
    /// the underlying file. Nothing else uses the pool meanwhile. With a key the memory outlives
    /// this process, and [`shared_image`](Self::shared_image) names it; the image of a read-only
    /// pool never does.
    ///
    /// # Errors
    /// Fails if the pool cannot be split this way, the memory is not available, or on an error of
    /// the operating system. Nothing has changed then.
    fn begin_image(&self, split: Split, shared: Option<&ImageKey<'_>>) -> Result<(), MediaError> {
        let _ = (split, shared);
        Err(MediaError::NoImage)
    }

    /// Allocates memory for the whole blocks `[at, at + len)` of the image, so that stores there
    /// cannot fail for lack of it.
    ///
    /// # Errors
    /// Fails if no memory is left.
    fn prepare(&self, at: u64, len: u64) -> io::Result<()> {
        let _ = (at, len);
        Ok(())
    }

    /// The image, if it outlives this process.
    fn shared_image(&self) -> Option<Arc<dyn SharedImage>> {
        None
    }

    /// Looks for the image that an earlier process left, see [`left_image`](crate::left_image).
    ///
    /// # Errors
    /// As [`left_image`](crate::left_image).
    fn left_image(
        &self,
        key: &ImageKey<'_>,
        attach: Option<Attach>,
        last: u64,
    ) -> Result<LeftImage, MediaError> {
        let _ = (key, attach, last);
        Ok(LeftImage::Nothing)
    }

    /// Unlinks an image that no log names any more.
    fn forget_image(&self, key: &ImageKey<'_>) {
        let _ = key;
    }

    /// The file or device under the image, once the image has begun: home, log and blocks of files,
    /// at their offsets in the pool. Under transactions, blocks of files only.
    fn disk(&self) -> Option<&dyn Disk> {
        None
    }

    /// Calls `each` with the offset of every line of the image that was stored to since the last
    /// cut, ascending; returns the blocks of files that were written since. No thread stores
    /// meanwhile.
    fn cut(&self, each: &mut dyn FnMut(u64)) -> Written {
        let _ = each;
        Written::Few(Vec::new())
    }
}

/// The bytes of files, beside the cells and words of metadata: read and written by calls, mapped
/// into windows, lent in place.
pub trait FileBytes: Persistent {
    /// Whether this many contiguous bytes of a file are better read by one call than through a
    /// [`Window`], as from a disk: the kernel then reads ahead.
    fn pays_by_call(&self, bytes: usize) -> bool {
        let _ = bytes;
        false
    }

    /// Whether the page of `at` is in memory, as far as the kernel reports it. If not, reading it
    /// waits for a disk.
    fn is_in_memory(&self, at: u64) -> bool {
        let _ = at;
        true
    }

    /// Whether blocks of files are read from a disk one by one as they are touched, because blocks
    /// of other files surround them. A caller that is going to read more announces it by
    /// [`will_need`](Self::will_need).
    fn reads_singly(&self) -> bool {
        false
    }

    /// Starts reading these bytes of files from the disk, if blocks are read one by one and the
    /// first of these is not in memory.
    fn will_need(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Copies bytes of files from several ranges of the pool, `(from, to)` each. If [calls are
    /// better](Self::pays_by_call), all ranges are requested from the disk at once.
    fn read_all(&self, pieces: &mut [(u64, &mut [u8])]) {
        for (at, out) in pieces {
            self.read(*at, out);
        }
    }

    /// As [`write_through`](Persistent::write_through), for several ranges of files, `(to, from)`
    /// each, no two of which touch the same block. The order is unspecified.
    #[track_caller]
    fn write_all_through(&self, site: Site, pieces: &[(u64, &[u8])]) {
        for (at, data) in pieces {
            self.write_through(site, *at, data);
        }
    }

    /// Reserves at least `bytes` of addresses in which blocks of this memory can be mapped side by
    /// side; `None` if none are left. A window is dropped before its memory.
    fn window(&self, bytes: u64) -> Option<Window> {
        let _ = bytes;
        None
    }

    /// Maps the whole blocks `[from, from + len)` of this memory at `at` of a window, in place of
    /// what was there. A window of a read-only pool shows the bytes of its file, not what was
    /// stored since.
    ///
    /// # Errors
    /// Fails outside the window or the memory, or on an error of the operating system. The window
    /// is then unusable.
    fn lay(&self, window: &Window, at: u64, from: u64, len: u64) -> io::Result<()> {
        let _ = (window, at, from, len);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Copies out bytes of a window of this memory; zeros where nothing was mapped.
    fn read_window(&self, window: &Window, at: u64, out: &mut [u8]) {
        let _ = (window, at);
        out.fill(0);
    }

    /// The bytes `[at, at + len)` in place; `None` if this memory cannot lend them, now or ever.
    /// Bytes that are lost meanwhile become zeros, which [`crate::Memory::condition`] reports.
    ///
    /// # Safety
    /// No thread stores to these bytes while the slice lives; only their loss may change them.
    unsafe fn in_place(&self, at: u64, len: u64) -> Option<&[u8]> {
        let _ = (at, len);
        None
    }

    /// As [`Self::in_place`], for bytes of a window.
    ///
    /// # Safety
    /// As for [`Self::in_place`], and nothing else is mapped there.
    unsafe fn in_window<'w>(&self, window: &'w Window, at: u64, len: u64) -> Option<&'w [u8]> {
        let _ = (window, at, len);
        None
    }
}

/// The memory of a pool.
pub trait PoolMemory: Medium + Transactions + ImageMemory + FileBytes {}

impl<P: Medium + Transactions + ImageMemory + FileBytes> PoolMemory for P {}
