//! A simulated pool on a simulated disk: with an image in memory, or with metadata in simulated
//! persistent memory.
//!
//! The disk is a [`SimPool`] whose log records writes by calls as stores, and a sync as a flush of
//! every line written since the last one, and a fence. So a crash leaves any mixture of 64-byte
//! lines, each with any prefix of its words: more than on a disk that writes whole sectors of 512
//! bytes.
//!
//! An external data device is another disk, behind the first one in the same pool: a sync of either
//! flushes only its own lines.

use crate::MediaError;
use crate::dirty_lines::DirtyLines;
use crate::disk::{Disk, Split};
use crate::granules::{Granules, UndoWriter};
use crate::heap::HeapMemory;
use crate::image::{Attach, ImageKey, LeftImage, OLDER, SharedImage};
use crate::memory::{BLOCK_BYTES, LINE_BYTES, MediaKind, Memories, Memory, Persistent};
use crate::pool_memory::{FileBytes, ImageMemory, Medium, Transactions};
use crate::sim::SimPool;
use crate::site::Site;
use crate::written::{Written, WrittenBlocks};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The memories of tests of logged pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedLogged;

impl Memories for SimulatedLogged {
    type Pool = SimLogged;
    type Arena = HeapMemory;
}

/// A pool on a simulated disk. Once the image has begun, everything in front of the log is memory
/// and not recorded. Once transactions have begun, everything in front of the data is persistent
/// memory, and recorded as such.
pub struct SimLogged {
    disk: Arc<SimPool>,
    image: OnceLock<Arc<Image>>,
    /// Set in a pool with transactions.
    granules: OnceLock<(Granules, Split)>,
    images: Option<Arc<SimImages>>,
    /// Lines of the disk written since the last sync.
    dirty: Arc<Mutex<BTreeSet<u64>>>,
    written: WrittenBlocks,
    /// Whether bytes of a file could not be written.
    has_failed: AtomicBool,
}

/// Memory of one pool that outlives simulated processes, but no power cut: its image, if one is
/// named, and which lines of its disk are in caches only.
#[derive(Default)]
pub struct SimImages {
    named: Mutex<Option<Arc<Image>>>,
    dirty: Arc<Mutex<BTreeSet<u64>>>,
}

impl SimImages {
    /// No image; these lines of the disk are in caches only.
    pub fn unsynced(lines: BTreeSet<u64>) -> Self {
        Self {
            named: Mutex::default(),
            dirty: Arc::new(Mutex::new(lines)),
        }
    }

    fn named(&self) -> MutexGuard<'_, Option<Arc<Image>>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Image {
    memory: HeapMemory,
    /// Lines stored to since the last cut, and those of the last cut until they are durable.
    dirty_lines: DirtyLines,
    taken: DirtyLines,
    head: Mutex<Head>,
    split: Split,
}

/// The fields of an image for the next process.
#[derive(Clone, Copy, Default)]
struct Head {
    attach: Attach,
    durable: u64,
    is_poisoned: bool,
}

impl Image {
    fn new(split: Split) -> Self {
        Self {
            memory: HeapMemory::new(split.image_bytes),
            dirty_lines: DirtyLines::new(split.image_bytes),
            taken: DirtyLines::new(split.image_bytes),
            head: Mutex::default(),
            split,
        }
    }

    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The image that an opening with `attach` finds.
    fn left(&self, attach: Attach) -> LeftImage {
        let head = *self.head();
        if head.attach != attach {
            return LeftImage::Nothing;
        }
        if head.is_poisoned {
            return LeftImage::Poisoned;
        }
        let mut lines = Vec::new();
        DirtyLines::each_of(&[&self.dirty_lines, &self.taken], |at| {
            let mut line = [0; LINE_BYTES as usize];
            self.memory.read(at, &mut line);
            lines.push((at, line));
        });
        LeftImage::Alive {
            durable: head.durable,
            lines,
        }
    }
}

/// An image and its directory.
struct NamedImage {
    image: Arc<Image>,
    images: Arc<SimImages>,
}

impl std::fmt::Debug for NamedImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedImage").finish_non_exhaustive()
    }
}

impl SharedImage for NamedImage {
    fn name(&self, attach: Attach, durable: u64) -> io::Result<()> {
        self.image.head().attach = attach;
        self.settle(durable);
        *self.images.named() = Some(Arc::clone(&self.image));
        Ok(())
    }

    fn settle(&self, durable: u64) {
        self.image.head().durable = durable;
        self.image.taken.take(|_, _| {}, &mut |_| {});
    }

    fn poison(&self) {
        self.image.head().is_poisoned = true;
    }

    fn end(&self) {
        *self.images.named() = None;
    }

    fn found_in(&self) -> Option<PathBuf> {
        None
    }

    fn dir(&self) -> &Path {
        Path::new("")
    }

    fn room_bytes(&self) -> Option<u64> {
        None
    }
}

impl SimLogged {
    /// A pool on this disk, which outlives the pool. If there are `images`, so does the image.
    pub fn new(disk: Arc<SimPool>, images: Option<Arc<SimImages>>) -> Self {
        Self {
            disk,
            dirty: images
                .as_ref()
                .map(|images| Arc::clone(&images.dirty))
                .unwrap_or_default(),
            images,
            image: OnceLock::new(),
            granules: OnceLock::new(),
            written: WrittenBlocks::new(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// The memory that holds `at`; accounts for a read.
    fn reading(&self, at: u64) -> &dyn Memory {
        match self.image.get() {
            Some(image) if at < image.memory.len() => &image.memory,
            _ => &*self.disk,
        }
    }

    /// The image, if it holds `at`; marks `[at, at + len)` as stored to.
    fn storing(&self, at: u64, len: u64) -> Option<&HeapMemory> {
        let image = self.image.get().filter(|image| at < image.memory.len())?;
        image.dirty_lines.note(at, len);
        Some(&image.memory)
    }

    /// Whether `at` lies in persistent memory; then saves the granules of `len` bytes there before
    /// the store.
    fn is_persistent(&self, at: u64, len: u64) -> bool {
        let Some((granules, split)) = self.granules.get() else {
            return false;
        };
        granules.save(&*self.disk, at, len);
        at < split.data_at
    }

    #[track_caller]
    fn put(&self, at: u64, data: &[u8]) {
        match self.storing(at, data.len() as u64) {
            Some(image) => image.write(at, data),
            // As on a mapped pool, the next sync reports it.
            None => {
                if self.write_disk(at, data).is_err() {
                    self.has_failed.store(true, Ordering::Release);
                    if let Some((granules, _)) = self.granules.get() {
                        granules.fail(&*self.disk);
                    }
                }
            }
        }
    }

    /// Blocks of files count as written whether the write succeeded or not.
    #[track_caller]
    fn write_disk(&self, at: u64, data: &[u8]) -> io::Result<()> {
        if self.split().is_some_and(|split| at >= split.data_at) {
            self.written.note(at, data.len() as u64);
        }
        self.write_unnoted(at, data)
    }

    #[track_caller]
    fn write_unnoted(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.disk.try_write()?;
        if !data.is_empty() {
            let first = at - at % LINE_BYTES;
            let lines = (first..at + data.len() as u64).step_by(LINE_BYTES as usize);
            let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
            dirty.extend(lines);
        }
        Memory::write(&*self.disk, at, data);
        Ok(())
    }
}

/// Stores to the cell at `at` of the memory that holds it, so that the caller's line stays known.
macro_rules! stored {
    ($self:ident, $at:ident, $it:ident => $store:expr) => {
        match $self.storing($at, 8) {
            Some($it) => $store,
            None => {
                $self.is_persistent($at, 8);
                let $it = &*$self.disk;
                $store
            }
        }
    };
}

impl Memory for SimLogged {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn damaged(&self) -> Option<u64> {
        let image = self.image.get().and_then(|image| image.memory.damaged());
        image.or_else(|| self.disk.damaged())
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.reading(at).load(at, order)
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        stored!(self, at, it => it.store(at, value, order));
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        stored!(self, at, it => it.compare_exchange(at, current, new))
    }

    fn fetch_add(&self, at: u64, value: u64) -> u64 {
        stored!(self, at, it => it.fetch_add(at, value))
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        stored!(self, at, it => it.fetch_or(at, bits))
    }

    fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        stored!(self, at, it => it.fetch_and(at, bits))
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        self.reading(at).read(at, out);
    }

    fn write(&self, at: u64, data: &[u8]) {
        if self.is_persistent(at, data.len() as u64) {
            Memory::write(&*self.disk, at, data);
        } else {
            self.put(at, data);
        }
    }

    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        self.reading(at).bytes_equal(at, expected)
    }

    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        self.reading(at).match_line(at, mask, want)
    }

    fn load_line(&self, at: u64) -> [u64; 8] {
        self.reading(at).load_line(at)
    }

    fn prefetch(&self, _at: u64) {}
}

impl Persistent for SimLogged {
    fn behind(&self, site: Site, at: u64, cells: &[u64]) {
        if self.granules.get().is_some() {
            self.disk.behind(site, at, cells);
        }
    }

    fn flush(&self, site: Site, at: u64, len: u64) {
        match self.granules.get() {
            Some((_, split)) if at < split.data_at => self.disk.flush(site, at, len),
            Some(_) => {}
            None => {
                self.storing(at, len);
            }
        }
    }

    fn fence(&self, site: Site) {
        if self.granules.get().is_some() {
            self.disk.fence(site);
        }
    }

    fn release(&self, site: Site, at: u64, len: u64) {
        self.disk.released(site, at, len);
    }

    fn write_through(&self, site: Site, at: u64, data: &[u8]) {
        if self.is_persistent(at, data.len() as u64) {
            self.disk.write_through(site, at, data);
        } else {
            self.put(at, data);
        }
    }

    fn write_fresh(&self, site: Site, at: u64, data: &[u8]) {
        let granules = self.granules.get().map(|(granules, _)| granules);
        if granules.is_some_and(|granules| granules.is_fresh(&*self.disk, at, data.len() as u64)) {
            self.disk.write_through(site, at, data);
        } else {
            self.write_through(site, at, data);
        }
    }

    fn zero_through(&self, site: Site, at: u64, len: u64) {
        if self.is_persistent(at, len) {
            self.disk.zero_through(site, at, len);
        } else {
            self.put(at, &vec![0; len as usize]);
        }
    }
}

impl Medium for SimLogged {
    fn give_back(&self, at: u64, len: u64) -> io::Result<()> {
        self.write_unnoted(at, &vec![0xDD; len as usize])
    }

    fn is_on_device(&self) -> bool {
        true
    }

    fn sync(&self) -> io::Result<()> {
        Disk::sync(self, Site::UNNAMED)
    }

    fn kind(&self) -> MediaKind {
        MediaKind::Sim
    }
}

impl Transactions for SimLogged {
    fn begin_transactions(
        &self,
        split: Split,
        undo: Arc<dyn UndoWriter>,
    ) -> Result<(), MediaError> {
        let granules = || Granules::new(split.image_bytes, undo);
        self.granules.get_or_init(|| (granules(), split));
        Ok(())
    }

    fn begin_transaction(&self, number: u64) {
        if let Some((granules, _)) = self.granules.get() {
            granules.begin(number);
        }
    }

    fn about_to_store(&self, places: &[(u64, u64)]) {
        if let Some((granules, _)) = self.granules.get() {
            granules.save_all(&*self.disk, places);
        }
    }

    fn transaction_committed(&self, number: u64) {
        if let Some((granules, _)) = self.granules.get() {
            granules.commit(number);
        }
    }

    fn freed(&self, at: u64, len: u64) {
        if let Some((granules, _)) = self.granules.get() {
            granules.freed(at, len);
        }
    }

    fn allocated(&self, at: u64, len: u64) {
        if let Some((granules, _)) = self.granules.get() {
            granules.allocated(&*self.disk, at, len);
        }
    }
}

impl ImageMemory for SimLogged {
    fn begin_image(&self, split: Split, shared: Option<&ImageKey<'_>>) -> Result<(), MediaError> {
        if shared.is_some() && self.images.is_none() {
            return Err(MediaError::NoImage);
        }
        self.image.get_or_init(|| Arc::new(Image::new(split)));
        Ok(())
    }

    fn shared_image(&self) -> Option<Arc<dyn SharedImage>> {
        let (image, images) = (self.image.get()?, self.images.as_ref()?);
        Some(Arc::new(NamedImage {
            image: Arc::clone(image),
            images: Arc::clone(images),
        }))
    }

    fn left_image(
        &self,
        key: &ImageKey<'_>,
        attach: Option<Attach>,
        last: u64,
    ) -> Result<LeftImage, MediaError> {
        let named = self
            .images
            .as_ref()
            .and_then(|images| images.named().clone());
        let Some(image) = named else {
            return Ok(LeftImage::Nothing);
        };
        let head = *image.head();
        if !head.is_poisoned && head.durable > last {
            return Err(MediaError::Image {
                path: key.dir.to_owned(),
                why: OLDER,
            });
        }
        Ok(attach.map_or(LeftImage::Nothing, |attach| image.left(attach)))
    }

    fn forget_image(&self, _key: &ImageKey<'_>) {
        if let Some(images) = &self.images {
            *images.named() = None;
        }
    }

    fn disk(&self) -> Option<&dyn Disk> {
        self.split().map(|_| self as &dyn Disk)
    }

    fn cut(&self, each: &mut dyn FnMut(u64)) -> Written {
        if let Some(image) = self.image.get() {
            image
                .dirty_lines
                .take(|word, lines| image.taken.add(word, lines), each);
        }
        self.written.take()
    }
}

impl FileBytes for SimLogged {}

impl Disk for SimLogged {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        Memory::read(&*self.disk, at, out);
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.write_disk(at, data)
    }

    fn sync(&self, site: Site) -> io::Result<()> {
        self.sync_range(site, 0..self.own_end())
    }

    fn write_durably(&self, site: Site, at: u64, data: &[u8]) -> io::Result<()> {
        self.write_unnoted(at, data)?;
        self.sync_range(site, at..at + data.len() as u64)
    }

    /// Writes one line of each block: enough for the owner of the block to notice.
    fn write_ahead(&self, at: u64, len: u64) -> io::Result<()> {
        let zeros = [0; LINE_BYTES as usize];
        let mut blocks = (at..at + len).step_by(BLOCK_BYTES as usize);
        blocks.try_for_each(|block| self.write_unnoted(block, &zeros))
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    fn sync_data(&self, site: Site) -> io::Result<()> {
        match self.own_end() {
            u64::MAX => Disk::sync(self, site),
            own_end => self.sync_range(site, own_end..u64::MAX),
        }
    }
}

impl SimLogged {
    /// How the pool is split, once the image or transactions have begun.
    fn split(&self) -> Option<Split> {
        let granules = self.granules.get().map(|&(_, split)| split);
        granules.or_else(|| self.image.get().map(|image| image.split))
    }

    /// Where the pool's own disk ends; `u64::MAX` if it is the only one.
    fn own_end(&self) -> u64 {
        let external = self.split().filter(|split| split.is_external);
        external.map_or(u64::MAX, |split| split.data_at)
    }

    /// Syncs the disk that has this range.
    #[track_caller]
    fn sync_range(&self, site: Site, range: Range<u64>) -> io::Result<()> {
        self.disk.sync()?;
        if self.has_failed.load(Ordering::Acquire) {
            return Err(io::Error::other("bytes of a file were not written"));
        }
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<u64> = dirty.range(range).copied().collect();
        for line in lines {
            dirty.remove(&line);
            self.disk.flush(Site::UNNAMED, line, LINE_BYTES);
        }
        drop(dirty);
        self.disk.fence(site);
        Ok(())
    }
}
