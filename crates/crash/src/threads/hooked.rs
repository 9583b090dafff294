//! Memories that announce each access to the scheduler before they execute it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vellum_media::{
    Disk, FileBytes, HeapMemory, ImageKey, ImageMemory, LINE_BYTES, MediaError, MediaKind, Medium,
    Memories, Memory, Persistent, PoolMemory, SharedImage, SimImages, Site, Split, Transactions,
    UndoWriter, Written,
};

use super::scheduler::{Target, What, announce, wait};
use crate::memories::{Backend, Explored, ExploredPool, Shared};

/// The pool and the arena of scheduled threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheduled;

/// A memory whose every access is a scheduling point in scheduled threads; in other threads it adds
/// nothing. Long accesses are split into lines, so that others may see half of them.
pub(crate) struct Hooked<M> {
    memory: M,
    place: Target,
}

impl Memories for Scheduled {
    type Pool = Hooked<ExploredPool>;
    type Arena = Hooked<HeapMemory>;
}

impl Backend for Scheduled {
    fn pool(pool: &Shared, images: Option<&Arc<SimImages>>) -> Hooked<ExploredPool> {
        Hooked {
            memory: Explored::pool(pool, images),
            place: Target::Pool,
        }
    }

    fn arena(bytes: u64) -> Hooked<HeapMemory> {
        Hooked {
            memory: HeapMemory::new(bytes),
            place: Target::Arena,
        }
    }
}

impl<M: Memory> Hooked<M> {
    fn at(&self, what: What, at: u64, len: u64) -> &M {
        announce(what, self.place, at, len);
        &self.memory
    }

    fn cell(&self, what: What, at: u64) -> &M {
        self.at(what, at, 8)
    }
}

/// Splits `[at, at + len)` at line boundaries: offsets and lengths.
fn by_lines(at: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let here = at.saturating_add(done);
        let piece = (LINE_BYTES - here % LINE_BYTES).min(len - done);
        done += piece;
        (piece > 0).then_some((here, piece))
    })
}

/// The part of bytes beginning at `start` that lies at `[at, at + len)`.
fn piece(start: u64, at: u64, len: u64) -> std::ops::Range<usize> {
    let first = (at - start) as usize;
    first..first + len as usize
}

impl<M: Memory> Memory for Hooked<M> {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn damaged(&self) -> Option<u64> {
        self.memory.damaged()
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.cell(What::Load, at).load(at, order)
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        self.cell(What::Store, at).store(at, value, order);
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        let memory = self.cell(What::Store, at);
        memory.compare_exchange(at, current, new)
    }

    fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.cell(What::Store, at).fetch_add(at, value)
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.cell(What::Store, at).fetch_or(at, bits)
    }

    fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        self.cell(What::Store, at).fetch_and(at, bits)
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        for (here, len) in by_lines(at, out.len() as u64) {
            let memory = self.at(What::Load, here, len);
            memory.read(here, &mut out[piece(at, here, len)]);
        }
    }

    fn write(&self, at: u64, data: &[u8]) {
        for (here, len) in by_lines(at, data.len() as u64) {
            let memory = self.at(What::Store, here, len);
            memory.write(here, &data[piece(at, here, len)]);
        }
    }

    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        let memory = self.at(What::Load, at, expected.len() as u64);
        memory.bytes_equal(at, expected)
    }

    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        let memory = self.at(What::Load, at, LINE_BYTES);
        memory.match_line(at, mask, want)
    }

    fn load_line(&self, at: u64) -> [u64; 8] {
        self.at(What::Load, at, LINE_BYTES).load_line(at)
    }

    fn prefetch(&self, _at: u64) {}

    fn relax(&self, tries: u32) {
        if !wait() {
            self.memory.relax(tries);
        }
    }
}

impl<M: PoolMemory> Persistent for Hooked<M> {
    fn behind(&self, site: Site, at: u64, cells: &[u64]) {
        self.memory.behind(site, at, cells);
    }

    fn flush(&self, site: Site, at: u64, len: u64) {
        self.at(What::Flush, at, len).flush(site, at, len);
    }

    fn fence(&self, site: Site) {
        self.at(What::Fence, 0, 0).fence(site);
    }

    fn store_through(&self, site: Site, at: u64, value: u64) {
        self.cell(What::Store, at).store_through(site, at, value);
    }

    fn write_through(&self, site: Site, at: u64, data: &[u8]) {
        for (here, len) in by_lines(at, data.len() as u64) {
            let memory = self.at(What::Store, here, len);
            memory.write_through(site, here, &data[piece(at, here, len)]);
        }
    }

    fn write_fresh(&self, site: Site, at: u64, data: &[u8]) {
        for (here, len) in by_lines(at, data.len() as u64) {
            let memory = self.at(What::Store, here, len);
            memory.write_fresh(site, here, &data[piece(at, here, len)]);
        }
    }

    fn zero_through(&self, site: Site, at: u64, len: u64) {
        for (here, len) in by_lines(at, len) {
            self.at(What::Store, here, len)
                .zero_through(site, here, len);
        }
    }

    fn release(&self, site: Site, at: u64, len: u64) {
        self.memory.release(site, at, len);
    }
}

impl<M: PoolMemory> Medium for Hooked<M> {
    fn sync(&self) -> io::Result<()> {
        Medium::sync(&self.memory)
    }

    fn kind(&self) -> MediaKind {
        self.memory.kind()
    }
}

impl<M: PoolMemory> Transactions for Hooked<M> {
    fn begin_transactions(
        &self,
        split: Split,
        undo: Arc<dyn UndoWriter>,
    ) -> Result<(), MediaError> {
        self.memory.begin_transactions(split, undo)
    }

    fn begin_transaction(&self, number: u64) {
        self.memory.begin_transaction(number);
    }

    fn about_to_store(&self, places: &[(u64, u64)]) {
        self.memory.about_to_store(places);
    }

    fn transaction_committed(&self, number: u64) {
        self.memory.transaction_committed(number);
    }

    fn freed(&self, at: u64, len: u64) {
        self.memory.freed(at, len);
    }

    fn allocated(&self, at: u64, len: u64) {
        self.memory.allocated(at, len);
    }
}

impl<M: PoolMemory> ImageMemory for Hooked<M> {
    fn begin_image(&self, split: Split, shared: Option<&ImageKey<'_>>) -> Result<(), MediaError> {
        self.memory.begin_image(split, shared)
    }

    fn shared_image(&self) -> Option<Arc<dyn SharedImage>> {
        self.memory.shared_image()
    }

    fn disk(&self) -> Option<&dyn Disk> {
        self.memory.disk().map(|_| self as &dyn Disk)
    }

    fn cut(&self, each: &mut dyn FnMut(u64)) -> Written {
        self.memory.cut(each)
    }
}

impl<M: PoolMemory> FileBytes for Hooked<M> {}

impl<M: PoolMemory> Hooked<M> {
    fn disk_at(&self, what: What, at: u64, len: usize) -> io::Result<&dyn Disk> {
        let disk = self.at(what, at, len as u64).disk();
        disk.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

/// Each call is one access: which part of a write a crash leaves is decided by the log.
impl<M: PoolMemory> Disk for Hooked<M> {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk_at(What::Load, at, out.len())?.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.disk_at(What::Store, at, data.len())?.write(at, data)
    }

    fn sync(&self, site: Site) -> io::Result<()> {
        self.disk_at(What::Fence, 0, 0)?.sync(site)
    }

    fn sync_data(&self, site: Site) -> io::Result<()> {
        self.disk_at(What::Fence, 0, 0)?.sync_data(site)
    }
}
