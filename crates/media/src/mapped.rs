//! A pool that is mapped: a file, a device, or anonymous memory.

mod choice;
mod copying;
mod disk;
mod growth;
mod making;
mod populate;

pub use choice::{MediaChoice, OpenMode};

use crate::backing::{Backing, Held, PoolFile};
use crate::barriers::Barriers;
use crate::by_mapping::memory_of_mapping;
use crate::data_file::DataFile;
use crate::direct::Direct;
use crate::dirty_lines::DirtyLines;
use crate::disk::{Disk, Split};
use crate::granules::{Granules, UndoWriter};
use crate::image::{self, Attach, ImageFile, ImageKey, LeftImage, SharedImage};
use crate::isa::Isa;
use crate::kind_at::grants_sync;
use crate::logged::Logged;
use crate::mapping::{Mapping, MappingError, Part};
use crate::memory::{BLOCK_BYTES, MediaKind, Memory, Persistent};
use crate::part::Room;
use crate::pool_memory::{FileBytes, ImageMemory, Medium, Transactions};
use crate::preserve::Preserver;
use crate::process::Owner;
use crate::site::Site;
use crate::window::Window;
use crate::written::Written;
use crate::{MediaError, count};
use rustix::io::Errno;
use rustix::mm::MapFlags;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// A pool in mapped memory. While it lives, the file carries a kernel lock, so that no other
/// process opens it.
pub struct MappedPool {
    mapping: Mapping,
    owner: Owner,
    kind: MediaKind,
    read_only: bool,
    known_zero: bool,
    /// The file. Its lock is released with the last pool that is mapped from it.
    fd: Held,
    /// Offset of the pool in the file.
    start: u64,
    path: Option<PathBuf>,
    /// The external data devices, if there are any, one behind the other.
    data: Vec<DataPart>,
    /// Direct I/O, if the data bypass the page cache: one for each file with data.
    direct: Vec<Direct>,
    /// How all of these files are synced.
    barriers: Barriers,
    /// Set once an image or transactions have begun.
    logged: OnceLock<Logged>,
    /// What happens before changes.
    before: copying::Before,
}

/// An external data device of a pool. Its bytes count as lying behind the pool's own and behind
/// those of the devices before it.
#[derive(Debug)]
pub struct DataPart {
    /// The device.
    pub file: DataFile,
    /// Offset in the pool at which its data begin.
    pub at: u64,
    /// Offset on the device at which they begin.
    pub from: u64,
    /// Their bytes.
    pub len: u64,
}

impl MappedPool {
    /// Opens an existing pool.
    ///
    /// # Errors
    /// Fails if the pool does not exist, another process has it open, it is not on the required
    /// medium, or it cannot be mapped.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, MediaError> {
        Self::opened(Backing::open(path, mode.read_only)?, mode)
    }

    /// Opens the file of a pool to read the dataset of this name, whatever `mode` says about
    /// writing. Other processes may change other datasets of the file if they
    /// [declare](Self::tell_uses) which ones. So only bytes of this dataset may be read, and of the
    /// superblock of the file only its location.
    ///
    /// # Errors
    /// As for [`open`](Self::open), or if this dataset is in use.
    pub fn open_to_read(path: &Path, name: &str, mode: OpenMode) -> Result<Self, MediaError> {
        let read_only = true;
        Self::opened(
            Backing::open_to_read(path, name)?,
            OpenMode { read_only, ..mode },
        )
    }

    fn opened(backing: Backing, mode: OpenMode) -> Result<Self, MediaError> {
        let pool = Self::of(backing, mode.media, mode.read_only)?;
        if mode.populate {
            pool.populate();
        }
        Ok(pool)
    }

    /// The same pool with the data of these external data devices (at least one). The first one
    /// begins where the pool's own bytes end, each other one behind the one before. Their data are
    /// only changed by calls.
    ///
    /// # Errors
    /// Fails if the pages of the pool have another size, or on an error of the operating system.
    pub fn with_data(self, data: Vec<DataPart>) -> Result<Self, MediaError> {
        let own = Part {
            fd: self.fd.as_fd(),
            from: self.start,
            len: data.first().map_or(self.mapping.len(), |first| first.at),
            flags: sharing(self.read_only, self.kind == MediaKind::Dax),
        };
        let external = data.iter().map(|data| Part {
            fd: data.file.backing.fd.as_fd(),
            from: data.from,
            len: data.len,
            flags: sharing(self.read_only, false),
        });
        let parts: Vec<Part<'_>> = [own].into_iter().chain(external).collect();
        let path = data.first().map_or(Path::new(""), |data| data.file.path());
        let mapping = Mapping::joined(&parts, self.mapping.page_bytes(), 0)
            .map_err(|error| not_mapped(error, path))?;
        Ok(Self {
            mapping,
            data,
            ..self
        })
    }

    /// The size of the pages of the mapping, in bytes.
    pub fn page_bytes(&self) -> usize {
        self.mapping.page_bytes()
    }

    /// The external data devices, in the order of their blocks; empty if the pool itself holds the
    /// data.
    pub fn data(&self) -> impl Iterator<Item = &DataFile> {
        self.data.iter().map(|data| &data.file)
    }

    /// Maps `len` bytes of this pool's file from `start` on as a pool of its own, named `path`.
    /// This pool is mapped whole and has no external data device. The lock on the file is held
    /// until both pools are dropped. With `read_only` the new pool is mapped read-only, whatever
    /// the mode of this one.
    ///
    /// # Errors
    /// Fails if the bytes are not all inside the file or do not begin at a page, or on an error of
    /// the operating system.
    pub fn part(
        &self,
        (start, len): (u64, u64),
        path: &Path,
        read_only: bool,
    ) -> Result<Self, MediaError> {
        let page_bytes = self.mapping.page_bytes();
        let system = |action, source| MediaError::Io {
            action,
            path: path.to_owned(),
            source,
        };
        let file_bytes = self.file_bytes().max(self.mapping.len());
        let is_inside = start <= file_bytes && len <= file_bytes - start;
        if !is_inside || len == 0 || !start.is_multiple_of(page_bytes as u64) {
            return Err(system("map", io::ErrorKind::InvalidInput.into()));
        }
        let fd = self.fd.again().map_err(|e| system("open", e.into()))?;
        let read_only = read_only || self.read_only;
        let part = Part {
            fd: fd.as_fd(),
            from: start,
            len,
            flags: sharing(read_only, self.kind == MediaKind::Dax),
        };
        let mapping = Mapping::joined(&[part], page_bytes, 0).map_err(|e| not_mapped(e, path))?;
        Ok(Self {
            mapping,
            owner: Owner::current(),
            kind: self.kind,
            read_only,
            known_zero: false,
            fd: Held::new(fd),
            start,
            path: Some(path.to_owned()),
            data: Vec::new(),
            direct: Vec::new(),
            barriers: Barriers::default(),
            logged: OnceLock::new(),
            before: copying::Before::default(),
        }
        .settled())
    }

    /// Maps the first `len` bytes of this pool again, read-only: stores go to private memory.
    ///
    /// # Errors
    /// As for [`part`](Self::part).
    pub fn to_read(&self, len: u64) -> Result<Self, MediaError> {
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        self.part((self.start, len), path, true)
    }

    /// Allocates space for a pool of `len` bytes from `start` on, like [`part`](Self::part). A file
    /// grows if necessary. Present bytes in the range are lost.
    ///
    /// # Errors
    /// Fails if there is no space on the device or in the file system of the file, or on another
    /// error of the operating system.
    pub fn new_part(&self, start: u64, len: u64, path: &Path) -> Result<Self, MediaError> {
        let own = self.path.as_deref().unwrap_or(path);
        let known_zero = match Room::of(&self.fd, own)? {
            Some(room) => room.take(start, len)?,
            None if start.saturating_add(len) > self.mapping.len() => {
                return Err(MediaError::NoRoomBehind {
                    path: own.to_owned(),
                    len_bytes: len,
                    available_bytes: self.mapping.len().saturating_sub(start),
                });
            }
            None => false,
        };
        Ok(Self {
            known_zero,
            ..self.part((start, len), path, false)?
        })
    }

    /// Returns the space of a removed dataset; `end` is the end of the remaining ones in the file.
    /// Nothing touches the range any more.
    pub fn free_part(&self, start: u64, len: u64, end: u64) {
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        if let Ok(Some(room)) = Room::of(&self.fd, path) {
            room.give_back(start, len, end);
        }
    }

    /// Offset of the pool in its file or device.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The open file.
    pub(crate) fn file(&self) -> &PoolFile {
        &self.fd
    }

    fn file_bytes(&self) -> u64 {
        rustix::fs::fstat(&self.fd).map_or(0, |stat| stat.st_size as u64)
    }

    /// The same pool, treated as being on the given medium instead of its file's own.
    ///
    /// # Errors
    /// Fails if persistent memory is requested and the file is not on it.
    pub fn taken_for(self, media: MediaChoice) -> Result<Self, MediaError> {
        let kind = match media {
            MediaChoice::Auto => self.kind,
            MediaChoice::Dax if self.kind == MediaKind::Dax => self.kind,
            MediaChoice::Dax => {
                let path = self.path.unwrap_or_default();
                return Err(MediaError::NotDax { path });
            }
            MediaChoice::File | MediaChoice::Logged => MediaKind::File,
            MediaChoice::Memory => MediaKind::Memory,
        };
        Ok(Self { kind, ..self })
    }

    /// Final settings once the pool is mapped.
    fn settled(self) -> Self {
        if self.kind != MediaKind::File {
            self.mapping.prefer_large_pages();
        }
        self
    }

    /// The same pool with other instructions, for tests and experiments.
    #[must_use]
    pub fn with_isa(mut self, isa: Isa) -> Self {
        self.mapping.isa = isa;
        self
    }

    /// The instructions in use.
    pub fn isa(&self) -> Isa {
        self.mapping.isa
    }

    /// The file, unless the pool is anonymous.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether stores are discarded when the pool is dropped.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether the pool was just created and all its bytes are known to be zero.
    pub fn known_zero(&self) -> bool {
        self.known_zero
    }

    /// Makes the page of `at` unreadable, like a poisoned line; the file keeps its bytes. For
    /// tests.
    ///
    /// # Errors
    /// Fails if `at` is outside, or on an error of the operating system.
    pub fn take_away(&self, at: u64) -> io::Result<()> {
        self.mapping.take_away(at)
    }

    /// Maps an opened file.
    fn of(backing: Backing, media: MediaChoice, read_only: bool) -> Result<Self, MediaError> {
        let may_be_dax = matches!(media, MediaChoice::Auto | MediaChoice::Dax);
        let is_dax = may_be_dax && grants_sync(&backing.fd, backing.page_bytes);
        let kind = match media {
            _ if is_dax => MediaKind::Dax,
            MediaChoice::Auto => backing.plain_kind(),
            MediaChoice::Dax => return Err(MediaError::NotDax { path: backing.path }),
            MediaChoice::File | MediaChoice::Logged => MediaKind::File,
            MediaChoice::Memory => MediaKind::Memory,
        };
        let mapping = growth::map(&backing, read_only, sharing(read_only, is_dax))?;
        Ok(Self {
            mapping,
            owner: Owner::current(),
            kind,
            read_only,
            known_zero: backing.known_zero,
            fd: Held::new(backing.fd),
            start: 0,
            path: Some(backing.path),
            data: Vec::new(),
            direct: Vec::new(),
            barriers: Barriers::default(),
            logged: OnceLock::new(),
            before: copying::Before::default(),
        }
        .settled())
    }

    /// Writes bytes of the pool itself, durably, before an image or transactions have begun. Its
    /// external data device is not synced: its errors belong to the process that takes over the
    /// writes of a killed one.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn write_own(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.mapping.write_through(at, data);
        self.mapping.fence();
        if self.kind == MediaKind::File {
            count::synced();
            fdatasync(&self.fd)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn wrote(&self, bytes: u64) {
        count::wrote(bytes);
    }

    /// Must be called before a store to `[at, at + len)`.
    #[inline(always)]
    fn noting(&self, at: u64, len: u64) {
        if self.before.is_any() {
            self.note(at, len);
        }
    }

    #[inline]
    fn note(&self, at: u64, len: u64) {
        self.keep_for_copy(at, len);
        if let Some(logged) = self.logged.get() {
            logged.before_store(self, at, len);
            if at >= logged.data_at {
                logged.is_overlaid.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The dirty lines of an image.
    #[inline(always)]
    fn dirty_lines(&self) -> Option<&DirtyLines> {
        self.logged.get().and_then(Logged::dirty_lines)
    }

    /// The undo granules of metadata in persistent memory.
    #[inline(always)]
    fn granules(&self) -> Option<&Granules> {
        self.logged.get().and_then(Logged::granules)
    }

    /// Whether some blocks of files exist in memory only.
    fn is_overlaid(&self) -> bool {
        let logged = self.logged.get();
        logged.is_some_and(|logged| logged.is_overlaid.load(Ordering::Relaxed))
    }

    /// Writes into an image with ordinary stores, into other metadata past the cache, and into
    /// blocks of files by a call.
    fn write_logged(&self, logged: &Logged, at: u64, data: &[u8]) {
        if self.read_only || at < logged.data_at {
            self.noting(at, data.len() as u64);
            match logged.dirty_lines() {
                Some(_) => self.mapping.write(at, data),
                None => self.mapping.write_through(at, data),
            }
        } else {
            let written = self.write_file(at, data);
            logged.note_outcome(self, &written, at, data.len() as u64);
            self.write_behind(logged, at, data.len());
        }
    }
}

memory_of_mapping!(MappedPool);

impl Persistent for MappedPool {
    #[inline(always)]
    fn flush(&self, _site: Site, at: u64, len: u64) {
        match self.dirty_lines() {
            None => self.mapping.flush(at, len),
            Some(dirty_lines) => dirty_lines.note(at, len),
        }
    }

    #[inline(always)]
    fn fence(&self, _site: Site) {
        if self.dirty_lines().is_none() {
            self.mapping.fence();
        }
    }

    #[inline(always)]
    fn store_through(&self, _site: Site, at: u64, value: u64) {
        self.noting(at, 8);
        match self.dirty_lines() {
            None => self.mapping.store_through(at, value),
            Some(_) => self.mapping.store(at, value, Ordering::Release),
        }
    }

    #[inline]
    fn write_through(&self, _site: Site, at: u64, data: &[u8]) {
        match self.logged.get() {
            None => {
                self.noting(at, data.len() as u64);
                self.mapping.write_through(at, data);
            }
            Some(logged) => self.write_logged(logged, at, data),
        }
    }

    #[inline]
    fn write_fresh(&self, site: Site, at: u64, data: &[u8]) {
        let is_fresh = |granules: &Granules| granules.is_fresh(self, at, data.len() as u64);
        if self.granules().is_some_and(is_fresh) {
            self.keep_for_copy(at, data.len() as u64);
            self.mapping.write_through(at, data);
        } else {
            self.write_through(site, at, data);
        }
    }

    #[inline]
    fn zero_through(&self, _site: Site, at: u64, len: u64) {
        const ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
        let Some(logged) = self.logged.get() else {
            self.noting(at, len);
            return self.mapping.zero_through(at, len);
        };
        for done in (0..len).step_by(ZEROS.len()) {
            let bytes = (len - done).min(BLOCK_BYTES) as usize;
            self.write_logged(logged, at + done, &ZEROS[..bytes]);
        }
    }
}

impl Medium for MappedPool {
    fn unlock(&self) {
        self.direct.iter().for_each(Direct::let_go);
        for data in &self.data {
            data.file.backing.fd.release();
        }
        self.fd.release();
    }

    fn sync(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        if self.kind == MediaKind::File {
            self.barriers.sync(self.fd.as_fd())?;
        }
        self.sync_media()
    }

    fn sync_caches(&self) -> io::Result<()> {
        self.sync_past_barriers()
    }

    fn own_bytes(&self) -> u64 {
        let data = self.data.first();
        data.map_or(self.mapping.len(), |data| data.at)
    }

    fn spare_bytes(&self) -> u64 {
        self.spare()
    }

    fn extend(&self, from: u64, end: u64, is_sparse: bool) -> Result<(), MediaError> {
        self.take_more(from, end, is_sparse)
    }

    fn provide(&self, at: u64, len: u64) -> Result<(), MediaError> {
        self.provide_space(at, len)
    }

    fn give_back(&self, at: u64, len: u64) -> io::Result<()> {
        self.give_space_back(at, len)
    }

    fn is_on_device(&self) -> bool {
        self.has_device()
    }

    fn renew(&self, at: u64) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let is_data = self.data_at(at).is_some();
        let flags = sharing(false, self.kind == MediaKind::Dax && !is_data);
        self.mapping.renew(self.file_at(at), flags, at)
    }

    fn preserve(&self, preserver: &Arc<Preserver>) -> bool {
        self.begin_copy(preserver)
    }

    fn end_preserving(&self) {
        self.end_copy();
    }

    fn kind(&self) -> MediaKind {
        match self.dirty_lines() {
            Some(_) => MediaKind::Logged,
            None => self.kind,
        }
    }
}

impl Transactions for MappedPool {
    fn begin_transactions(
        &self,
        split: Split,
        undo: Arc<dyn UndoWriter>,
    ) -> Result<(), MediaError> {
        let granules = || Granules::new(split.image_bytes, undo);
        self.logged
            .get_or_init(|| Logged::keeping(granules(), split));
        self.before.begin();
        self.read_singly();
        Ok(())
    }

    fn begin_transaction(&self, number: u64) {
        if let Some(logged) = self.logged.get() {
            logged.begin_transaction(number);
        }
    }

    #[inline]
    fn about_to_store(&self, places: &[(u64, u64)]) {
        if let Some(granules) = self.granules() {
            granules.save_all(self, places);
        }
    }

    fn transaction_committed(&self, number: u64) {
        if let Some(granules) = self.granules() {
            granules.commit(number);
        }
    }

    fn freed(&self, at: u64, len: u64) {
        if let Some(granules) = self.granules() {
            granules.freed(at, len);
        }
    }

    fn allocated(&self, at: u64, len: u64) {
        if let Some(granules) = self.granules() {
            granules.allocated(self, at, len);
        }
    }
}

impl ImageMemory for MappedPool {
    fn begin_image(&self, split: Split, shared: Option<&ImageKey<'_>>) -> Result<(), MediaError> {
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        let shared = shared.filter(|_| !self.read_only);
        let create = |key| ImageFile::create(self.fd.as_fd(), path, key, split.image_bytes);
        let shared = shared.map(create).transpose()?.map(Arc::new);
        let file = shared.as_ref().map(|image| image.image());
        self.mapping
            .replace(split.image_bytes, file)
            .map_err(|source| MediaError::Io {
                action: "map an image of",
                path: path.to_owned(),
                source,
            })?;
        self.logged.get_or_init(|| Logged::new(split, shared));
        self.before.begin();
        self.read_singly();
        Ok(())
    }

    fn prepare(&self, at: u64, len: u64) -> io::Result<()> {
        let shared = self.logged.get().and_then(|logged| logged.shared.as_ref());
        shared.map_or(Ok(()), |image| image.prepare(at, len))
    }

    fn shared_image(&self) -> Option<Arc<dyn SharedImage>> {
        let shared = self.logged.get()?.shared.as_ref()?;
        Some(Arc::clone(shared) as Arc<dyn SharedImage>)
    }

    fn left_image(
        &self,
        key: &ImageKey<'_>,
        attach: Option<Attach>,
        last: u64,
    ) -> Result<LeftImage, MediaError> {
        image::left_image(self.fd.as_fd(), key, attach, last)
    }

    fn forget_image(&self, key: &ImageKey<'_>) {
        image::forget_image(self.fd.as_fd(), key);
    }

    fn disk(&self) -> Option<&dyn Disk> {
        self.logged.get().map(|_| self as &dyn Disk)
    }

    fn cut(&self, each: &mut dyn FnMut(u64)) -> Written {
        let logged = self.logged.get();
        logged.map_or(Written::Few(Vec::new()), |logged| logged.cut(self, each))
    }
}

impl FileBytes for MappedPool {
    fn pays_by_call(&self, bytes: usize) -> bool {
        self.pays_by_call(bytes)
    }

    fn is_in_memory(&self, at: u64) -> bool {
        self.is_in_memory(at)
    }

    #[inline]
    fn reads_singly(&self) -> bool {
        self.reads_singly()
    }

    fn will_need(&self, at: u64, len: u64) {
        if self.reads_singly() {
            self.will_need(at, len);
        }
    }

    fn read_all(&self, pieces: &mut [(u64, &mut [u8])]) {
        if !self.read_all_direct(pieces) {
            self.ask_for_all(pieces);
            for (at, out) in pieces {
                Memory::read(self, *at, out);
            }
        }
    }

    fn write_all_through(&self, site: Site, pieces: &[(u64, &[u8])]) {
        if !self.write_all_direct(pieces) {
            for (at, data) in pieces {
                self.write_through(site, *at, data);
            }
        }
    }

    fn window(&self, bytes: u64) -> Option<Window> {
        // Mappings with larger pages cannot be mapped block by block. A page of a file is one of
        // the page cache.
        let by_blocks = self.mapping.page_bytes() as u64 == BLOCK_BYTES
            && !self.is_overlaid()
            && !self.is_direct();
        let slot = self.mapping.slot();
        by_blocks.then(|| Window::mapped(bytes, self.mapping.isa, slot))?
    }

    fn lay(&self, window: &Window, at: u64, from: u64, len: u64) -> io::Result<()> {
        let inside = from <= self.mapping.len() && len <= self.mapping.len() - from;
        if !inside || !from.is_multiple_of(BLOCK_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.in_files(from, len).try_for_each(|piece| {
            let (file, in_file) = self.file_at(piece.start);
            let bytes = piece.end - piece.start;
            window.lay_file(file, at + (piece.start - from), in_file, bytes)
        })
    }

    #[inline]
    fn read_window(&self, window: &Window, at: u64, out: &mut [u8]) {
        if !window.read(at, out) {
            out.fill(0);
        }
    }

    #[inline]
    unsafe fn in_place(&self, at: u64, len: u64) -> Option<&[u8]> {
        if self.direct_at(at).is_some() {
            return None;
        }
        // SAFETY: the caller makes the promise that this function requires.
        unsafe { self.mapping.in_place(at, len) }
    }

    unsafe fn in_window<'w>(&self, window: &'w Window, at: u64, len: u64) -> Option<&'w [u8]> {
        let (start, _) = window.run(at, len)?;
        // SAFETY: readable while the window lives; the caller guarantees that it does not change.
        Some(unsafe { std::slice::from_raw_parts(start, len as usize) })
    }
}

/// How a file is mapped: copy-on-write if it is only read; persistent memory so that a flushed line
/// is a durable line.
fn sharing(read_only: bool, is_dax: bool) -> MapFlags {
    match (read_only, is_dax) {
        (true, _) => MapFlags::PRIVATE | MapFlags::NORESERVE,
        (false, true) => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
        (false, false) => MapFlags::SHARED,
    }
}

/// The error for a failed mapping of `path`.
fn not_mapped(error: MappingError, path: &Path) -> MediaError {
    match error {
        MappingError::Full(full) => full,
        MappingError::System(source) => MediaError::Io {
            action: "map",
            path: path.to_owned(),
            source,
        },
    }
}

pub(crate) fn fdatasync(fd: impl AsFd) -> io::Result<()> {
    loop {
        match rustix::fs::fdatasync(&fd) {
            Err(Errno::INTR) => {}
            done => return done.map_err(Into::into),
        }
    }
}
