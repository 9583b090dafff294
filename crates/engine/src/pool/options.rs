//! What a pool is to be like, and how it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vellum_layout::{MappingKind, NamespaceKind};
use vellum_media::{MediaChoice, MediaKind, kind_at};

use super::Pool;
use super::lifecycle::COMMIT_INTERVAL;
use crate::core::access_times::AccessTimes;
use crate::core::setters::setters;
use crate::durability::commit::Durability;
use crate::error::Result;
use crate::logs::redo::ImageLocation;
use crate::mapping::timed::MappingTimer;

/// How often areas evolve, unless it is said otherwise.
const EVOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// What a new pool is to be like.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CreateOptions {
    /// Bytes of the pool.
    pub size_bytes: u64,
    /// Label, at most 64 bytes.
    pub label: String,
    /// Bytes of metadata; by default a sixteenth of the pool.
    pub metadata_bytes: Option<u64>,
    /// Operations that can be under way at once.
    pub thread_slots: Option<u32>,
    /// How names are kept.
    pub namespace: NamespaceKind,
    /// File mapping. By default a tree of extents where tables would take memory or undo records,
    /// on a logged pool and on one with an external data device; HashFS elsewhere, and wherever
    /// [`run_blocks`](Self::run_blocks) or [`span_lines`](Self::span_lines) are set.
    pub mapping: Option<MappingKind>,
    /// Consecutive blocks of a file that HashFS places together: 8, the default, or 1, as its paper
    /// has it.
    pub run_blocks: Option<u32>,
    /// Lines side by side that are the homes of consecutive runs of a file in HashFS: 1, 2, 4 and
    /// so on.
    pub span_lines: Option<u16>,
    /// Fragmentation on purpose, per mille: 1000 less the layout score that files are to have.
    pub fragmentation: u16,
    /// What the pool lies on. By default what keeps order through a power cut there
    /// ([`media_of_new_pool`]): a log in a file or device that is neither persistent memory nor
    /// tmpfs. One without a log is made there by [`MediaChoice::File`].
    pub media: MediaChoice,
    /// The data are to lie on another file or device. The pool, which has to be a logged one or to
    /// lie in persistent memory, is then as large as it has to be, if its size is 0.
    pub data: Option<DataOptions>,
    /// The external data device is to have room for a copy of metadata in memory, so that it alone
    /// can be made a pool of elsewhere ([`Pool::close_and_export`]).
    pub has_replica: bool,
    /// Use a file or device that exists, whatever it holds.
    pub overwrite: bool,
    /// Owner of the root directory.
    pub owner: (u32, u32),
    /// Identity of the pool; by default one is drawn. No two pools may have the same.
    pub uuid: Option<[u8; 16]>,
    /// Seed of the hashes in the pool; by default one is drawn, so that nobody can choose names
    /// that meet. Whoever counts what a pool does names one: how many probes a lookup takes differs
    /// from seed to seed.
    pub hash_seed: Option<u64>,
}

/// What a new pool in `pool`, a file or device that may not be there yet, is taken to lie on if
/// nothing else is asked for: the best that survives a power cut there. An ordinary file does so
/// with a log only; and data on a medium of their own need an order between the two, which a log
/// keeps, or persistent memory, which needs none. What is asked for stays as it is.
pub fn media_of_new_pool(pool: &Path, asked: MediaChoice, has_external_data: bool) -> MediaChoice {
    let kind = || kind_at(pool);
    match (asked, has_external_data) {
        (MediaChoice::Auto, false) if kind() == MediaKind::File => MediaChoice::Logged,
        (MediaChoice::Auto, true) if kind() == MediaKind::Dax => MediaChoice::Dax,
        (MediaChoice::Auto, true) => MediaChoice::Logged,
        (asked, _) => asked,
    }
}

/// A file or device for the data of a new pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataOptions {
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes; 0: all of a device.
    pub size_bytes: u64,
    /// Use one that exists, whatever it holds.
    pub overwrite: bool,
}

impl DataOptions {
    /// All of the device at `path`, which holds nothing that is known.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            size_bytes: 0,
            overwrite: false,
        }
    }
}

setters!(DataOptions: size_bytes: u64, overwrite: bool);

impl CreateOptions {
    /// The same options, with the medium and the mapping that a new pool in the file or device
    /// `pool` gets.
    pub(crate) fn settled(&self, pool: &Path) -> Self {
        let media = media_of_new_pool(pool, self.media, self.data.is_some());
        let has_tree = self.data.is_some() || media == MediaChoice::Logged;
        let mapping = match (self.run_blocks, self.span_lines) {
            (None, None) if has_tree => MappingKind::Extent,
            _ => MappingKind::default(),
        };
        Self {
            media,
            mapping: self.mapping.or(Some(mapping)),
            ..self.clone()
        }
    }

    /// Bytes of a pool for which no size is given: 1 GiB. A file is sparse, and takes what is used
    /// of that.
    pub const SIZE_BYTES: u64 = 1 << 30;

    /// Defaults for a pool of `size_bytes`, owned by the caller.
    pub fn new(size_bytes: u64) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        Self {
            size_bytes,
            label: String::new(),
            metadata_bytes: None,
            thread_slots: None,
            namespace: NamespaceKind::default(),
            mapping: None,
            run_blocks: None,
            span_lines: None,
            fragmentation: 0,
            media: MediaChoice::Auto,
            data: None,
            has_replica: true,
            overwrite: false,
            owner: (uid, gid),
            uuid: None,
            hash_seed: None,
        }
    }

    /// The same options with another [`mapping`](Self#structfield.mapping); `None`: the default of
    /// the pool's medium.
    #[must_use]
    pub fn mapping(mut self, mapping: impl Into<Option<MappingKind>>) -> Self {
        self.mapping = mapping.into();
        self
    }

    /// Makes a pool in a file or on a device, and opens it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("notes.vellum");
    /// use vellum::{CreateOptions, MappingKind};
    ///
    /// let pool = CreateOptions::new(64 << 20).mapping(MappingKind::Extent).create(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The path exists, the size is impossible, the medium failed.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Pool> {
        Pool::create_as(path.as_ref(), self)
    }

    /// Makes a pool in anonymous memory: gone with the process. Memory is taken as it is first
    /// touched, so that the data of a pool may be larger than memory as long as it is not.
    ///
    /// ```
    /// use vellum::{CreateOptions, NamespaceKind};
    ///
    /// let pool = CreateOptions::new(16 << 20).namespace(NamespaceKind::Tree).create_in_memory()?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// The size is impossible, no memory.
    pub fn create_in_memory(&self) -> Result<Pool> {
        Pool::memory_as(self)
    }
}

impl Default for CreateOptions {
    /// Those of a pool of [`CreateOptions::SIZE_BYTES`].
    fn default() -> Self {
        Self::new(Self::SIZE_BYTES)
    }
}

setters!(CreateOptions:
    size_bytes: u64,
    label: String,
    metadata_bytes: Option<u64>,
    thread_slots: Option<u32>,
    namespace: NamespaceKind,
    run_blocks: Option<u32>,
    span_lines: Option<u16>,
    fragmentation: u16,
    media: MediaChoice,
    data: Option<DataOptions>,
    has_replica: bool,
    overwrite: bool,
    owner: (u32, u32),
    uuid: Option<[u8; 16]>,
    hash_seed: Option<u64>,
);

/// How to open a pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolOptions {
    /// Nothing is changed.
    pub read_only: bool,
    /// What the pool lies on.
    pub media: MediaChoice,
    /// Touch every page of pool and arena first, so that no operation pays for it.
    pub populate: bool,
    /// Threads that recovery may use.
    pub recovery_threads: usize,
    /// Names and files that the caches can hold at once.
    pub cache_entries: u64,
    /// Where the metadata of a logged pool are worked on.
    pub image: ImageLocation,
    /// Where the data of the pool are that has them on other media, in any order; by default where
    /// they were last.
    pub data: Vec<PathBuf>,
    /// What a killed process left of a logged pool in memory is given up: the pool is as of its
    /// last commit.
    pub discard_image: bool,
    /// Collects the time that is spent in the mapping.
    pub mapping_timer: Option<Arc<MappingTimer>>,
    /// How often areas evolve, where names are kept in areas: every five seconds by default; none:
    /// never.
    pub evolve_every: Option<Duration>,
    /// When reading moves access times: by default as *relatime* has it.
    pub access_times: AccessTimes,
    /// What is durable when an operation returns.
    pub durability: Durability,
    /// How often a pool is committed, where operations do not commit by themselves, when nobody
    /// asks for it: every five seconds by default. So much a power cut may take, of what was not
    /// synced.
    pub commit_every: Duration,
    /// A commit has the caches of the devices flushed, so that it survives a power cut. Without,
    /// which is faster where that is slow, a power cut may take anything that was written since the
    /// pool was opened, in any order, until [`Pool::close`] returns, or the next opening, if the
    /// process is killed. The pool is then as of an earlier commit, or is refused as damaged; files
    /// may have other bytes than were written to them.
    pub barriers: bool,
    /// Data that calls read and write, those of pools with a log and those on a medium of their
    /// own, pass the page cache of the kernel that the pool lies under: nothing of them is kept in
    /// memory, and every read of them waits for the medium.
    pub direct: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            media: MediaChoice::Auto,
            populate: false,
            recovery_threads: std::thread::available_parallelism().map_or(1, usize::from),
            cache_entries: 1 << 24,
            image: ImageLocation::default(),
            data: Vec::new(),
            discard_image: false,
            mapping_timer: None,
            evolve_every: Some(EVOLVE_INTERVAL),
            access_times: AccessTimes::default(),
            durability: Durability::default(),
            commit_every: COMMIT_INTERVAL,
            barriers: true,
            direct: false,
        }
    }
}

setters!(PoolOptions:
    read_only: bool,
    media: MediaChoice,
    populate: bool,
    recovery_threads: usize,
    cache_entries: u64,
    image: ImageLocation,
    data: Vec<PathBuf>,
    discard_image: bool,
    mapping_timer: Option<Arc<MappingTimer>>,
    evolve_every: Option<Duration>,
    access_times: AccessTimes,
    durability: Durability,
    commit_every: Duration,
    barriers: bool,
    direct: bool,
);

impl PoolOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the pool at `path`, or the dataset `NAME` of it by the path `POOL:NAME`
    /// ([`PoolPath`](crate::pool::datasets::PoolPath)); recovers it if it was not closed in order.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("notes.vellum");
    /// use vellum::{Pool, PoolOptions};
    ///
    /// Pool::create(&path)?.close()?;
    /// let pool = PoolOptions::new().read_only(true).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Not a pool, a later format, in use, damaged; no dataset of that name.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        Pool::open_as(path.as_ref(), self)
    }

    /// Whether every page of a pool is touched before it is known which pass the page cache.
    pub(crate) fn populates_all(&self) -> bool {
        self.populate && !self.direct
    }
}
