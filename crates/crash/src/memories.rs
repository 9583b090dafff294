//! The memories under explored file systems: a simulated pool that outlives the file system, so
//! that thousands of crashed images can be tried in the same bytes.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use vellum_media::{
    Attach, Disk, Event, FileBytes, HeapMemory, ImageKey, ImageMemory, LeftImage, MediaError,
    MediaKind, Medium, Memories, Memory, Op, Persistent, PoolMemory, SharedImage, SimImages,
    SimLogged, SimPool, Site, Split, Transactions, UndoWriter, Written,
};
use xxhash_rust::xxh3::Xxh3;

/// A simulated pool and an arena on the heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Explored;

impl Memories for Explored {
    type Pool = ExploredPool;
    type Arena = Shared<HeapMemory>;
}

/// Memories on which the explorer can open a file system.
pub(crate) trait Backend: Memories {
    /// These memories' view of the pool. `images` keeps the image of a logged pool beyond its
    /// process.
    fn pool(pool: &Shared, images: Option<&Arc<SimImages>>) -> Self::Pool;

    /// An arena of `bytes` zero bytes.
    fn arena(bytes: u64) -> Self::Arena;
}

impl Backend for Explored {
    fn pool(pool: &Shared, images: Option<&Arc<SimImages>>) -> ExploredPool {
        ExploredPool {
            shared: pool.clone(),
            images: images.cloned(),
            logged: OnceLock::new(),
        }
    }

    fn arena(bytes: u64) -> Shared<HeapMemory> {
        Shared(Arc::new(HeapMemory::new(bytes)))
    }
}

/// A memory with several owners, by default a simulated pool.
pub(crate) struct Shared<M = SimPool>(pub(crate) Arc<M>);

impl<M> Clone for Shared<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Shared {
    /// A pool that holds `image`.
    pub(crate) fn of(image: Vec<u8>) -> Self {
        Self(Arc::new(SimPool::from_image(image)))
    }

    /// Reverts every store in `log`, newest first, without recording that.
    pub(crate) fn undo(&self, log: &[Event]) {
        for event in log.iter().rev() {
            if let Op::Store { at, before, .. } = event.op {
                self.0.store(at, before, Ordering::Relaxed);
            }
        }
    }
}

/// The bytes of `image` after the stores in `log`.
pub(crate) fn image_after(image: &[u8], log: &[Event]) -> Vec<u8> {
    let mut image = image.to_vec();
    for event in log {
        if let Op::Store { at, after, .. } = event.op {
            image[at as usize..at as usize + 8].copy_from_slice(&after.to_ne_bytes());
        }
    }
    image
}

impl Shared<HeapMemory> {
    /// A hash of the whole content.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = Xxh3::new();
        let mut buffer = [0; 4096];
        for at in (0..self.len()).step_by(buffer.len()) {
            let part = &mut buffer[..(self.len() - at).min(4096) as usize];
            self.0.read(at, part);
            hasher.update(part);
        }
        hasher.digest()
    }
}

impl<M: Memory> Memory for Shared<M> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn damaged(&self) -> Option<u64> {
        self.0.damaged()
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.0.load(at, order)
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        self.0.store(at, value, order);
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(at, current, new)
    }

    fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.0.fetch_add(at, value)
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.0.fetch_or(at, bits)
    }

    fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        self.0.fetch_and(at, bits)
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        self.0.read(at, out);
    }

    fn write(&self, at: u64, data: &[u8]) {
        self.0.write(at, data);
    }

    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        self.0.bytes_equal(at, expected)
    }

    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        self.0.match_line(at, mask, want)
    }

    fn load_line(&self, at: u64) -> [u64; 8] {
        self.0.load_line(at)
    }

    fn prefetch(&self, at: u64) {
        self.0.prefetch(at);
    }
}

impl<M: PoolMemory> Persistent for Shared<M> {
    fn behind(&self, site: Site, at: u64, cells: &[u64]) {
        self.0.behind(site, at, cells);
    }

    fn flush(&self, site: Site, at: u64, len: u64) {
        self.0.flush(site, at, len);
    }

    fn fence(&self, site: Site) {
        self.0.fence(site);
    }

    fn write_through(&self, site: Site, at: u64, data: &[u8]) {
        self.0.write_through(site, at, data);
    }

    fn zero_through(&self, site: Site, at: u64, len: u64) {
        self.0.zero_through(site, at, len);
    }
}

impl<M: PoolMemory> Medium for Shared<M> {
    fn sync(&self) -> std::io::Result<()> {
        self.0.sync()
    }

    fn kind(&self) -> MediaKind {
        self.0.kind()
    }
}

impl<M: PoolMemory> Transactions for Shared<M> {}

impl<M: PoolMemory> ImageMemory for Shared<M> {}

impl<M: PoolMemory> FileBytes for Shared<M> {}

/// The pool of an explored file system: the recorded pool itself, or, for a logged pool whose image
/// exists, unrecorded memory in front of a recorded disk.
pub(crate) struct ExploredPool {
    shared: Shared,
    images: Option<Arc<SimImages>>,
    logged: OnceLock<SimLogged>,
}

/// Calls a method of the active variant, and keeps the caller's location visible.
macro_rules! either {
    ($self:ident, $it:ident => $call:expr) => {
        match $self.logged.get() {
            None => {
                let $it = &$self.shared;
                $call
            }
            Some($it) => $call,
        }
    };
}

impl Memory for ExploredPool {
    fn len(&self) -> u64 {
        self.shared.len()
    }

    fn damaged(&self) -> Option<u64> {
        either!(self, it => it.damaged())
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        either!(self, it => it.load(at, order))
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        either!(self, it => it.store(at, value, order));
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        either!(self, it => it.compare_exchange(at, current, new))
    }

    fn fetch_add(&self, at: u64, value: u64) -> u64 {
        either!(self, it => it.fetch_add(at, value))
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        either!(self, it => it.fetch_or(at, bits))
    }

    fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        either!(self, it => it.fetch_and(at, bits))
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        either!(self, it => Memory::read(it, at, out));
    }

    fn write(&self, at: u64, data: &[u8]) {
        either!(self, it => Memory::write(it, at, data));
    }

    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        either!(self, it => it.bytes_equal(at, expected))
    }

    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        either!(self, it => it.match_line(at, mask, want))
    }

    fn load_line(&self, at: u64) -> [u64; 8] {
        either!(self, it => it.load_line(at))
    }

    fn prefetch(&self, at: u64) {
        either!(self, it => it.prefetch(at));
    }
}

impl Persistent for ExploredPool {
    fn behind(&self, site: Site, at: u64, cells: &[u64]) {
        either!(self, it => it.behind(site, at, cells));
    }

    fn flush(&self, site: Site, at: u64, len: u64) {
        either!(self, it => it.flush(site, at, len));
    }

    fn fence(&self, site: Site) {
        either!(self, it => it.fence(site));
    }

    fn release(&self, site: Site, at: u64, len: u64) {
        either!(self, it => it.release(site, at, len));
    }

    fn write_through(&self, site: Site, at: u64, data: &[u8]) {
        either!(self, it => it.write_through(site, at, data));
    }

    fn write_fresh(&self, site: Site, at: u64, data: &[u8]) {
        either!(self, it => it.write_fresh(site, at, data));
    }

    fn zero_through(&self, site: Site, at: u64, len: u64) {
        either!(self, it => it.zero_through(site, at, len));
    }
}

impl Medium for ExploredPool {
    fn sync(&self) -> io::Result<()> {
        either!(self, it => Medium::sync(it))
    }

    fn give_back(&self, at: u64, len: u64) -> io::Result<()> {
        either!(self, it => it.give_back(at, len))
    }

    fn is_on_device(&self) -> bool {
        true
    }

    fn kind(&self) -> MediaKind {
        MediaKind::Sim
    }
}

impl Transactions for ExploredPool {
    fn begin_transactions(
        &self,
        split: Split,
        undo: Arc<dyn UndoWriter>,
    ) -> Result<(), MediaError> {
        let new = || SimLogged::new(Arc::clone(&self.shared.0), self.images.clone());
        self.logged.get_or_init(new).begin_transactions(split, undo)
    }

    fn begin_transaction(&self, number: u64) {
        either!(self, it => it.begin_transaction(number));
    }

    fn about_to_store(&self, places: &[(u64, u64)]) {
        either!(self, it => it.about_to_store(places));
    }

    fn transaction_committed(&self, number: u64) {
        either!(self, it => it.transaction_committed(number));
    }

    fn freed(&self, at: u64, len: u64) {
        either!(self, it => it.freed(at, len));
    }

    fn allocated(&self, at: u64, len: u64) {
        either!(self, it => it.allocated(at, len));
    }
}

impl ImageMemory for ExploredPool {
    fn begin_image(&self, split: Split, shared: Option<&ImageKey<'_>>) -> Result<(), MediaError> {
        let new = || SimLogged::new(Arc::clone(&self.shared.0), self.images.clone());
        self.logged.get_or_init(new).begin_image(split, shared)
    }

    fn shared_image(&self) -> Option<Arc<dyn SharedImage>> {
        self.logged.get().and_then(ImageMemory::shared_image)
    }

    fn left_image(
        &self,
        key: &ImageKey<'_>,
        attach: Option<Attach>,
        last: u64,
    ) -> Result<LeftImage, MediaError> {
        either!(self, it => it.left_image(key, attach, last))
    }

    fn forget_image(&self, key: &ImageKey<'_>) {
        either!(self, it => it.forget_image(key));
    }

    fn disk(&self) -> Option<&dyn Disk> {
        self.logged.get().and_then(ImageMemory::disk)
    }

    fn cut(&self, each: &mut dyn FnMut(u64)) -> Written {
        either!(self, it => it.cut(each))
    }
}

impl FileBytes for ExploredPool {}
