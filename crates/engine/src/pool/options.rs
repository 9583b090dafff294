//! Options of new pools, and of opening pools.

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

/// The default interval between rounds of evolving.
const EVOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// Options of a new pool.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// use vellum::{CreateOptions, MediaChoice, NamespaceKind};
///
/// let options = CreateOptions::new(64 << 20).label("mail".to_owned());
/// let pool = options.namespace(NamespaceKind::Tree).media(MediaChoice::File).create(&path)?;
/// assert_eq!(pool.superblock().namespace(), NamespaceKind::Tree);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CreateOptions {
    /// Bytes of the pool.
    pub size_bytes: u64,
    /// Label, at most 64 bytes.
    pub label: String,
    /// Bytes of metadata; by default a sixteenth of the pool.
    pub metadata_bytes: Option<u64>,
    /// Operations that can run at once.
    pub thread_slots: Option<u32>,
    /// The namespace.
    pub namespace: NamespaceKind,
    /// The file mapping. By default a tree of extents where tables would take memory or undo
    /// records: on a logged pool and on one with an external data device. Elsewhere, and wherever
    /// [`run_blocks`](Self::run_blocks) or [`span_lines`](Self::span_lines) are set, it is HashFS.
    pub mapping: Option<MappingKind>,
    /// Consecutive blocks of a file that HashFS keeps together: 8, the default, or 1, as in its
    /// paper.
    pub run_blocks: Option<u32>,
    /// Adjacent home lines over which HashFS spreads consecutive runs of a file: 1, 2, 4 and so on.
    pub span_lines: Option<u16>,
    /// Deliberate fragmentation, per mille: 1000 minus the layout score that files get.
    pub fragmentation: u16,
    /// The medium. The default is one that keeps order through a power cut:
    /// a log, if the file or device is neither persistent memory nor tmpfs. [`MediaChoice::File`]
    /// makes a pool without a log there.
    pub media: MediaChoice,
    /// An external device for the bytes of files. The pool has to be a logged one or lie in
    /// persistent memory. If its size is 0, it gets the size that it needs.
    pub data: Option<DataOptions>,
    /// Reserves space on the external data device for a replica of metadata in memory, so that the
    /// device alone can become a pool elsewhere ([`Pool::close_and_export`]).
    pub has_replica: bool,
    /// Overwrites an existing file or device, whatever it holds.
    pub overwrite: bool,
    /// Gives a new file space for data blocks only as they are used. A full file system below is
    /// then `ENOSPC`. By default all the space is taken at once.
    pub sparse: bool,
    /// Keeps all data space for data. By default, in pools without a log that hold their own data,
    /// free data space becomes metadata when those are short, so the number of files has no limit
    /// of its own.
    pub fixed_metadata: bool,
    /// Owner of the root directory.
    pub owner: (u32, u32),
    /// Identity of the pool, drawn by default. Two pools must not have the same.
    pub uuid: Option<[u8; 16]>,
    /// Seed of the hashes in the pool, drawn by default, so that nobody can choose names that
    /// collide. A measurement names one: the number of probes of a lookup depends on the seed.
    pub hash_seed: Option<u64>,
}

/// The medium of a new pool in `pool`, a file or device that may not exist yet. If `asked` leaves
/// it open, it is the best that survives a power cut there. In an ordinary file that takes a log.
/// With an external data device it takes an order between the two, which a log keeps and persistent
/// memory does not need. Any other choice is returned as it is.
pub fn media_of_new_pool(pool: &Path, asked: MediaChoice, has_external_data: bool) -> MediaChoice {
    let kind = || kind_at(pool);
    match (asked, has_external_data) {
        (MediaChoice::Auto, false) if kind() == MediaKind::File => MediaChoice::Logged,
        (MediaChoice::Auto, true) if kind() == MediaKind::Dax => MediaChoice::Dax,
        (MediaChoice::Auto, true) => MediaChoice::Logged,
        (asked, _) => asked,
    }
}

/// An external device for the data of a new pool.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// use vellum::{CreateOptions, DataOptions};
///
/// let data = DataOptions::new(dir.path().join("data")).size_bytes(32 << 20);
/// let pool = CreateOptions::new(0).data(Some(data)).create(&path)?; // as large as it has to be
/// assert!(pool.superblock().pool_bytes < 32 << 20);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataOptions {
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes; 0 means all of a device.
    pub size_bytes: u64,
    /// Overwrites an existing file or device, whatever it holds.
    pub overwrite: bool,
}

impl DataOptions {
    /// Options for all of the device at `path`, which must hold nothing that is recognised.
    ///
    /// ```
    /// let data = vellum::DataOptions::new("/dev/sdb");
    /// assert_eq!((data.size_bytes, data.overwrite), (0, false)); // all of an empty device
    /// ```
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            size_bytes: 0,
            overwrite: false,
        }
    }
}

setters!(DataOptions:
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let data = dir.path().join("data");
    /// use vellum::{CreateOptions, DataOptions};
    ///
    /// let external = DataOptions::new(&data).size_bytes(32 << 20);
    /// CreateOptions::new(0).data(Some(external)).create(&path)?;
    /// assert_eq!(std::fs::metadata(&data)?.len(), 32 << 20);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    size_bytes: u64,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let data = dir.path().join("data");
    /// use vellum::{CreateOptions, DataOptions};
    ///
    /// std::fs::write(&data, "old")?;
    /// let external = DataOptions::new(&data).size_bytes(32 << 20);
    /// assert!(CreateOptions::new(0).data(Some(external.clone())).create(&path).is_err());
    /// CreateOptions::new(0).data(Some(external.overwrite(true))).create(&path)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    overwrite: bool,
);

impl CreateOptions {
    /// Returns the same options with the medium and the mapping that a new pool in the file or
    /// device `pool` gets.
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

    /// The default size of a pool, 1 GiB.
    pub const SIZE_BYTES: u64 = 1 << 30;

    /// The defaults for a pool of `size_bytes`, owned by the caller.
    ///
    /// ```
    /// let pool = vellum::CreateOptions::new(16 << 20).create_in_memory()?;
    /// assert_eq!(pool.superblock().pool_bytes, 16 << 20);
    /// # Ok::<(), vellum::Error>(())
    /// ```
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
            sparse: false,
            fixed_metadata: false,
            owner: (uid, gid),
            uuid: None,
            hash_seed: None,
        }
    }

    /// The same options with another [`mapping`](Self#structfield.mapping); `None`: the default of
    /// the pool's medium.
    ///
    /// ```
    /// use vellum::{CreateOptions, MappingKind};
    ///
    /// let pool = CreateOptions::new(16 << 20).mapping(MappingKind::Radix).create_in_memory()?;
    /// assert_eq!(pool.superblock().geometry().mapping, MappingKind::Radix);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    #[must_use]
    pub fn mapping(mut self, mapping: impl Into<Option<MappingKind>>) -> Self {
        self.mapping = mapping.into();
        self
    }

    /// Creates a pool in a file or on a device, and opens it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("notes.vellum");
    /// use vellum::{CreateOptions, MappingKind};
    ///
    /// let pool = CreateOptions::new(64 << 20).mapping(MappingKind::Extent).create(&path)?;
    /// assert_eq!(pool.superblock().geometry().mapping, MappingKind::Extent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the path exists, the size is impossible, or the medium fails.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Pool> {
        Pool::create_as(path.as_ref(), self)
    }

    /// Creates a pool in anonymous memory. It is gone when the process ends. Memory is allocated
    /// when it is first touched, so the pool can be larger than memory as long as its used part is
    /// not.
    ///
    /// ```
    /// use vellum::{CreateOptions, NamespaceKind};
    ///
    /// let pool = CreateOptions::new(16 << 20).namespace(NamespaceKind::Tree).create_in_memory()?;
    /// assert_eq!(pool.superblock().namespace(), NamespaceKind::Tree);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the size is impossible, or memory is short.
    pub fn create_in_memory(&self) -> Result<Pool> {
        Pool::memory_as(self)
    }
}

impl Default for CreateOptions {
    /// The defaults for a pool of [`CreateOptions::SIZE_BYTES`].
    fn default() -> Self {
        Self::new(Self::SIZE_BYTES)
    }
}

setters!(CreateOptions:
    /// ```
    /// let options = vellum::CreateOptions::default().size_bytes(16 << 20);
    /// assert_eq!(options.create_in_memory()?.superblock().pool_bytes, 16 << 20);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    size_bytes: u64,
    /// ```
    /// let options = vellum::CreateOptions::new(16 << 20).label("mail".to_owned());
    /// assert_eq!(options.create_in_memory()?.superblock().label_text(), "mail");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    label: String,
    /// ```
    /// let options = vellum::CreateOptions::new(64 << 20).fixed_metadata(true);
    /// let files = options.create_in_memory()?.fs().stat_fs().files;
    /// let options = options.metadata_bytes(Some(16 << 20));
    /// assert!(options.create_in_memory()?.fs().stat_fs().files > files);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    metadata_bytes: Option<u64>,
    /// ```
    /// let options = vellum::CreateOptions::new(16 << 20).thread_slots(Some(128));
    /// assert_eq!(options.create_in_memory()?.superblock().thread_slots, 128);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    thread_slots: Option<u32>,
    /// ```
    /// use vellum::NamespaceKind;
    ///
    /// let options = vellum::CreateOptions::new(16 << 20).namespace(NamespaceKind::Tree);
    /// assert_eq!(options.create_in_memory()?.superblock().namespace(), NamespaceKind::Tree);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    namespace: NamespaceKind,
    /// ```
    /// let options = vellum::CreateOptions::new(16 << 20).run_blocks(Some(1));
    /// assert_eq!(options.create_in_memory()?.superblock().geometry().run_blocks, 1);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    run_blocks: Option<u32>,
    /// ```
    /// let options = vellum::CreateOptions::new(16 << 20).span_lines(Some(4));
    /// assert_eq!(options.create_in_memory()?.superblock().geometry().span_lines, 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    span_lines: Option<u16>,
    /// ```
    /// let options = vellum::CreateOptions::new(16 << 20).fragmentation(300);
    /// assert_eq!(options.create_in_memory()?.superblock().geometry().fragmentation, 300);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    fragmentation: u16,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// use vellum::{CreateOptions, MediaChoice, MediaKind};
    ///
    /// let pool = CreateOptions::new(64 << 20).media(MediaChoice::Logged).create(&path)?;
    /// assert_eq!(pool.fs().media_kind(), MediaKind::Logged);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    media: MediaChoice,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// use vellum::{CreateOptions, DataOptions};
    ///
    /// let data = DataOptions::new(dir.path().join("data")).size_bytes(32 << 20);
    /// let pool = CreateOptions::new(0).data(Some(data)).create(&path)?;
    /// assert_eq!(pool.fs().data_devices().count(), 1);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    data: Option<DataOptions>,
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
    /// # let data = vellum::DataOptions::new(data).size_bytes(32 << 20);
    /// # let options = vellum::CreateOptions::new(0).media(vellum::MediaChoice::Memory);
    /// let options = options.data(Some(data)).has_replica(false);
    /// assert_eq!(options.create(&path)?.fs().has_replica(), None);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    has_replica: bool,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20);
    /// std::fs::write(&path, "old")?;
    /// assert!(options.create(&path).is_err());
    /// options.overwrite(true).create(&path)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    overwrite: bool,
    /// ```
    /// # use std::os::unix::fs::MetadataExt;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// let pool = vellum::CreateOptions::new(1 << 30).sparse(true).create(&path)?;
    /// assert!(std::fs::metadata(&path)?.blocks() * 512 < 128 << 20);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    sparse: bool,
    /// ```
    /// let options = vellum::CreateOptions::new(64 << 20);
    /// let files = options.create_in_memory()?.fs().stat_fs().files;
    /// let options = options.fixed_metadata(true);
    /// assert!(options.create_in_memory()?.fs().stat_fs().files < files);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    fixed_metadata: bool,
    /// ```
    /// let pool = vellum::CreateOptions::new(16 << 20).owner((1000, 100)).create_in_memory()?;
    /// let root = pool.volume().metadata("/")?;
    /// assert_eq!((root.uid(), root.gid()), (1000, 100));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    owner: (u32, u32),
    /// ```
    /// let pool = vellum::CreateOptions::new(16 << 20).uuid(Some([7; 16])).create_in_memory()?;
    /// assert_eq!(pool.superblock().uuid, [7; 16]);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    uuid: Option<[u8; 16]>,
    /// ```
    /// let pool = vellum::CreateOptions::new(16 << 20).hash_seed(Some(42)).create_in_memory()?;
    /// assert_eq!(pool.superblock().hash_seed, 42);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    hash_seed: Option<u64>,
);

/// How to open a pool.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// use std::time::Duration;
/// use vellum::PoolOptions;
///
/// let options = PoolOptions::new().commit_every(Duration::from_secs(1)).evolve_every(None);
/// let pool = options.open(&path)?;
/// assert_eq!(pool.fs().commit_every(), Duration::from_secs(1));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolOptions {
    /// Changes nothing in the pool.
    pub read_only: bool,
    /// The pool's medium.
    pub media: MediaChoice,
    /// Touches every page of pool and arena first, so that no operation pays for page faults.
    pub populate: bool,
    /// Threads that recovery may use.
    pub recovery_threads: usize,
    /// Names and files that the caches can hold at once.
    pub cache_entries: u64,
    /// Where the image of a logged pool is kept: its metadata, while it is open.
    pub image: ImageLocation,
    /// The paths of the external data devices, in any order; by default where they were last found.
    pub data: Vec<PathBuf>,
    /// Discards what a killed process left in memory: the pool is as of its last commit.
    pub discard_image: bool,
    /// Collects the time spent in the mapping.
    pub mapping_timer: Option<Arc<MappingTimer>>,
    /// The interval between rounds of evolving in the namespace `adaptive`: five seconds by
    /// default; `None` turns evolving off.
    pub evolve_every: Option<Duration>,
    /// When reads update access times: by default as *relatime* does.
    pub access_times: AccessTimes,
    /// What is durable when an operation returns.
    pub durability: Durability,
    /// The interval between commits by the background thread, on pools whose operations do not
    /// commit by themselves: five seconds by default. A power cut may lose that much of what was
    /// not synced.
    pub commit_every: Duration,
    /// Commits flush the caches of the devices, so they survive a power cut. Without barriers
    /// commits are faster where such a flush is slow, but a power cut may lose anything written
    /// since the opening, in any order, until [`Pool::close`] returns or, after a kill, the next
    /// opening. The pool is then as of an earlier commit, or is refused as damaged, and files may
    /// have bytes that were never written to them.
    pub barriers: bool,
    /// File data that system calls read and write pass the kernel's page cache: those of logged
    /// pools and those on external data devices. No memory caches them, and every read waits for
    /// the device.
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
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::PoolOptions::new().read_only(true).open(&path)?;
    /// assert!(matches!(pool.volume().write("/f", ""), Err(vellum::Error::ReadOnly)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    read_only: bool,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// use vellum::{MediaChoice, MediaKind};
    /// # let options = vellum::CreateOptions::new(64 << 20).media(MediaChoice::File);
    /// # options.create(&path)?.close()?;
    ///
    /// let pool = vellum::PoolOptions::new().media(MediaChoice::Memory).open(&path)?;
    /// assert_eq!(pool.fs().media_kind(), MediaKind::Memory); // `sync` does nothing
    /// # Ok::<(), vellum::Error>(())
    /// ```
    media: MediaChoice,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::PoolOptions::new().populate(true).open(&path)?;
    /// pool.volume().write("/f", "without a page fault")?;
    /// assert!(pool.volume().exists("/f"));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    populate: bool,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::PoolOptions::new().recovery_threads(1).open(&path)?;
    /// assert!(pool.opened().was_clean); // there was nothing to recover
    /// # Ok::<(), vellum::Error>(())
    /// ```
    recovery_threads: usize,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// # use vellum::PoolOptions;
    /// let usual = PoolOptions::new().open(&path)?.fs().cache_usage().arena_bytes;
    /// let small = PoolOptions::new().cache_entries(1 << 10).open(&path)?;
    /// assert!(small.fs().cache_usage().arena_bytes < usual);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    cache_entries: u64,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{ImageLocation, PoolOptions};
    ///
    /// let pool = PoolOptions::new().image(ImageLocation::Process).open(&path)?;
    /// assert_eq!(pool.fs().image_dir(), None); // a kill loses it
    /// # Ok::<(), vellum::Error>(())
    /// ```
    image: ImageLocation,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let (data, moved) = (dir.path().join("data"), dir.path().join("moved"));
    /// # let external = vellum::DataOptions::new(&data).size_bytes(16 << 20);
    /// # vellum::CreateOptions::new(0).data(Some(external)).create(&path)?.close()?;
    /// std::fs::rename(&data, &moved)?;
    /// assert!(vellum::Pool::open(&path).is_err());
    /// vellum::PoolOptions::new().data(vec![moved]).open(&path)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    data: Vec<PathBuf>,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::PoolOptions::new().discard_image(true).open(&path)?;
    /// assert_eq!(pool.opened().image, vellum::FoundImage::None);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    discard_image: bool,
    mapping_timer: Option<Arc<MappingTimer>>,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20);
    /// # options.namespace(vellum::NamespaceKind::Adaptive).create(&path)?.close()?;
    /// let pool = vellum::PoolOptions::new().evolve_every(None).open(&path)?;
    /// assert!(pool.fs().evolve()?.is_empty()); // no thread makes such rounds
    /// # Ok::<(), vellum::Error>(())
    /// ```
    evolve_every: Option<Duration>,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{AccessPolicy, AccessTimes};
    ///
    /// let strict = AccessTimes { policy: AccessPolicy::Strict, ..AccessTimes::default() };
    /// let pool = vellum::PoolOptions::new().access_times(strict).open(&path)?;
    /// # let volume = pool.volume();
    /// # volume.write("/f", "text")?;
    /// let before = volume.metadata("/f")?.accessed()?;
    /// volume.read("/f")?;
    /// assert!(volume.metadata("/f")?.accessed()? > before);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    access_times: AccessTimes,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{Durability, PoolOptions};
    ///
    /// let pool = PoolOptions::new().durability(Durability::Sync).open(&path)?;
    /// pool.volume().write("/f", "kept")?; // survives a power cut from here on
    /// assert!(pool.fs().log_counts().is_some_and(|log| log.commits > 0));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    durability: Durability,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// # use std::time::Duration;
    /// let options = vellum::PoolOptions::new().commit_every(Duration::from_millis(100));
    /// assert_eq!(options.open(&path)?.fs().commit_every(), Duration::from_millis(100));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    commit_every: Duration,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::PoolOptions::new().barriers(false).open(&path)?;
    /// assert!(!pool.fs().has_barriers());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    barriers: bool,
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// // Some file systems have no direct I/O.
    /// if let Ok(pool) = vellum::PoolOptions::new().direct(true).open(&path) {
    ///     assert!(pool.fs().is_direct());
    /// }
    /// # Ok::<(), vellum::Error>(())
    /// ```
    direct: bool,
);

impl PoolOptions {
    /// The defaults.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::PoolOptions::new().open(&path)?; // as `Pool::open`
    /// assert!(!pool.fs().is_read_only());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the pool at `path`, or its dataset `NAME` if the path is `POOL:NAME`
    /// ([`PoolPath`](crate::pool::datasets::PoolPath)). Recovers it if it was not closed cleanly.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("notes.vellum");
    /// use vellum::{Pool, PoolOptions};
    ///
    /// Pool::create(&path)?.close()?;
    /// let pool = PoolOptions::new().read_only(true).open(&path)?;
    /// assert!(pool.volume().write("/f", "").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file is no pool, has a later format, is in use or is damaged, or if it has no
    /// dataset of that name.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        Pool::open_as(path.as_ref(), self)
    }

    /// Whether all pages are touched at once. With `direct` they are touched later, when it is
    /// known which of them pass the page cache.
    pub(crate) fn populates_all(&self) -> bool {
        self.populate && !self.direct
    }
}
