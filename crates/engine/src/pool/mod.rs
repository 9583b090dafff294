//! Pools as users of the library meet them: how they are created, opened and closed, and the
//! threads that work in their background.

pub(crate) mod copies;
pub(crate) mod datasets;
pub(crate) mod external;
pub(crate) mod grow;
pub(crate) mod lifecycle;
pub(crate) mod options;
pub(crate) mod volume;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vellum_layout::{Geometry, MEDIUM_DATA_AT, NamespaceKind, Superblock};
use vellum_media::{
    DataFile, DataPart, MappedArena, MappedPool, MediaChoice, MediaError, MediaKind, NewSpace,
    OpenMode, Real,
};

use crate::core::Clock;
use crate::devices::medium;
use crate::devices::replica::{AttachOptions, ExportedReplica, attach_medium};
use crate::error::{Error, MediumError, Result};
use crate::fs::Fs;
use crate::logs::redo::FoundImage;
use external::open_bytes;
use lifecycle::{FormatOptions, MountOptions, Opened, attach, format, give_up_image, settle_image};
pub use options::{CreateOptions, DataOptions, PoolOptions, media_of_new_pool};
use volume::Volume;
use workers::{Worker, commit, evolve, keep};

/// The shortest interval between two commits of the background thread.
const COMMIT_REST: Duration = Duration::from_millis(1);

/// The file system on mapped memory, which a [`Pool`] opens.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// fn free_bytes(fs: &vellum::RealFs) -> u64 {
///     fs.stat_fs().blocks_free * 4096
/// }
/// assert!(free_bytes(&pool.fs()) < 16 << 20);
/// # Ok::<(), vellum::Error>(())
/// ```
pub type RealFs = Fs<Real>;

/// An open pool.
///
/// Dropping it closes it cleanly, even while volumes and files of it still exist. [`Pool::close`]
/// also reports errors.
///
/// A pool belongs to the process that opened it. A child of `fork` cannot use what its parent
/// opened: every call on the pool, its volumes and its files fails with [`Error::Forked`]
/// (`EBUSY`), changes nothing and does not block. This includes closing and dropping, and the
/// parent notices nothing. It holds even after the parent has ended, as with `daemon(3)`: open the
/// pool after the fork. A child can open pools itself, as soon as no other process has them open.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// use vellum::Pool;
///
/// Pool::create(&path)?.volume().write("/notes", "kept")?; // dropped, and so closed, here
/// let pool = Pool::open(&path)?;
/// assert_eq!(pool.volume().read_to_string("/notes")?, "kept");
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Debug)]
pub struct Pool {
    fs: Option<Arc<RealFs>>,
    opened: Opened,
    /// The process's file mode creation mask.
    umask: u16,
    workers: Vec<Worker>,
}

impl Pool {
    /// Creates a pool in a file of 1 GiB and opens it. The pool is consistent after a power cut.
    /// [`CreateOptions`] creates others.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("notes.vellum");
    /// let pool = vellum::Pool::create(&path)?;
    /// pool.volume().write("/hello", "world")?;
    /// pool.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the path exists, or the medium fails.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::create_as(path.as_ref(), &CreateOptions::default())
    }

    fn create_as(path: &Path, options: &CreateOptions) -> Result<Self> {
        // Refused first, so that no external data device is created in vain.
        if !options.overwrite && path.symlink_metadata().is_ok() {
            let path = path.to_owned();
            return Err(MediaError::Exists { path }.into());
        }
        let options = &options.settled(path);
        let make = if options.overwrite {
            MappedPool::overwrite_with
        } else {
            MappedPool::create_with
        };
        let space = match options.sparse {
            true => NewSpace::Sparse,
            false => NewSpace::Whole,
        };
        let make = |bytes| Ok(make(path, (bytes, space), options.media)?);
        let (memory, _) = Self::make(path, options, make)?;
        Self::start_new(memory)
    }

    /// Formats a pool in the bytes that `take` returns for a size, and creates its external data
    /// device if the options ask for one. `path` is the pool's path. The options are
    /// [settled](CreateOptions::settled).
    pub(crate) fn make(
        path: &Path,
        options: &CreateOptions,
        take: impl FnOnce(u64) -> Result<MappedPool>,
    ) -> Result<(MappedPool, Superblock)> {
        let format_options = Self::format_options(options)?;
        if let Some(data) = &options.data {
            if options.sparse {
                return Err(Error::Invalid("a sparse pool holds its own data"));
            }
            if options.media == MediaChoice::File {
                let path = path.to_owned();
                return Err(MediumError::Unordered { path }.into());
            }
            return Self::make_external(path, (options, format_options), data, take);
        }
        let memory = take(options.size_bytes)?;
        let superblock = Self::format(&memory, &format_options)?;
        Ok((memory, superblock))
    }

    /// Formats a pool and its external data device. The device's head is written last, so a device
    /// that a crash leaves is refused.
    fn make_external(
        path: &Path,
        (options, mut format_options): (&CreateOptions, FormatOptions),
        data: &DataOptions,
        take: impl FnOnce(u64) -> Result<MappedPool>,
    ) -> Result<(MappedPool, Superblock)> {
        let file = DataFile::create(&data.path, data.size_bytes, data.overwrite)?;
        let name = medium::name(path, &data.path)?;
        let size_bytes = options.size_bytes;
        let mut id = [0; 16];
        fill_random(&mut id)?;
        let plan = |external| {
            let options = FormatOptions {
                external: Some(external),
                ..format_options.clone()
            };
            Ok(Geometry::plan(&options.request(size_bytes))?)
        };
        let external = if options.has_replica {
            medium::room_beside_copy(&file, id, plan)?
        } else {
            medium::room(file.path(), file.len(), id, 0)?
        };
        let planned = plan(external)?;
        format_options.external = Some(external);
        let own_bytes = match size_bytes {
            // Aligned, so that large pages of the device stay large pages behind the pool's own
            // bytes.
            0 => planned.pool_bytes.next_multiple_of(MEDIUM_DATA_AT),
            _ => planned.pool_bytes,
        };
        let memory = take(own_bytes)?;
        let memory = memory.with_data(vec![DataPart {
            file,
            at: own_bytes,
            from: external.at,
            len: external.data_bytes + external.replica_bytes,
        }])?;
        let superblock = Self::format(&memory, &format_options)?;
        medium::say_place(&memory, &superblock, &name)?;
        medium::mark(&memory, &superblock)?;
        Ok((memory, superblock))
    }

    /// Creates a pool of `size_bytes` in anonymous memory. It is gone when the process ends.
    ///
    /// ```
    /// let pool = vellum::Pool::memory(16 << 20)?;
    /// pool.volume().write("/f", "text")?;
    /// assert_eq!(pool.volume().read("/f")?, b"text");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the size is impossible, or memory is short.
    pub fn memory(size_bytes: u64) -> Result<Self> {
        Self::memory_as(&CreateOptions::new(size_bytes))
    }

    fn memory_as(options: &CreateOptions) -> Result<Self> {
        let memory = MappedPool::anonymous(options.size_bytes)?;
        Self::format(&memory, &Self::format_options(options)?)?;
        Self::start_new(memory)
    }

    /// Opens a pool that was just formatted, and reports it as cleanly closed.
    fn start_new(memory: MappedPool) -> Result<Self> {
        let mut pool = Self::start(memory, &PoolOptions::default())?;
        (pool.opened.was_clean, pool.opened.other_boot) = (true, false);
        Ok(pool)
    }

    fn format_options(options: &CreateOptions) -> Result<FormatOptions> {
        let (mut uuid, mut seed) = ([0; 16], [0; 8]);
        fill_random(&mut uuid)?;
        fill_random(&mut seed)?;
        let drawn = || seed_of_tests().unwrap_or(u64::from_le_bytes(seed));
        Ok(FormatOptions {
            metadata_bytes: options.metadata_bytes,
            thread_slots: options.thread_slots,
            namespace: options.namespace,
            mapping: options.mapping.unwrap_or_default(),
            has_fixed_metadata: options.fixed_metadata,
            run_blocks: options.run_blocks,
            span_lines: options.span_lines,
            fragmentation: options.fragmentation,
            label: options.label.clone(),
            uuid: options.uuid.unwrap_or(uuid),
            hash_seed: options.hash_seed.unwrap_or_else(drawn),
            now_ns: Clock::System.now(),
            owner: options.owner,
            is_logged: options.media == MediaChoice::Logged,
            external: None,
            is_sparse: options.sparse,
            known_zero: false,
        })
    }

    fn format(memory: &MappedPool, options: &FormatOptions) -> Result<Superblock> {
        let options = FormatOptions {
            known_zero: memory.known_zero(),
            ..options.clone()
        };
        format(memory, &options)
    }

    /// Opens the pool at `path`, or its dataset `NAME` if the path is `POOL:NAME`, for reading and
    /// writing. Recovers it if it was not closed cleanly. [`PoolOptions`] opens it in other ways.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("notes.vellum");
    /// # vellum::Pool::create(&path)?.close()?;
    /// let pool = vellum::Pool::open(&path)?;
    /// for entry in pool.volume().read_dir("/")? {
    ///     println!("{}", entry?.path().display());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file is no pool, has a later format, is in use or is damaged, or if it has no
    /// dataset of that name.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_as(path.as_ref(), &PoolOptions::default())
    }

    fn open_as(path: &Path, options: &PoolOptions) -> Result<Self> {
        let mode = OpenMode {
            read_only: options.read_only,
            media: options.media,
            populate: options.populates_all(),
        };
        let data = &options.data[..];
        if options.discard_image && !options.read_only {
            give_up_image(&open_bytes(path, mode, data)?, &options.image)?;
        }
        let memory = open_bytes(path, mode, data)?;
        let begun = match options.read_only {
            true => Ok(()),
            false => external::begin_session(&memory, path),
        };
        let started = begun.and_then(|()| Self::start(memory, options));
        started.map_err(|error| match error {
            Error::Damaged { .. } | Error::Unreadable(_) if !options.read_only => Error::Refused {
                path: path.to_owned(),
                first: error.to_string(),
            },
            other => other,
        })
    }

    /// Settles what a killed process left, for a tool that then works on the pool's bytes. The
    /// image of a logged pool is adopted into its log or, with `discard_image`, discarded, which
    /// leaves the last commit. On a split pool, changes that were not committed are committed or,
    /// after a power cut or with `discard_image`, undone. Other pools do not change. Of the options
    /// only `media`, `data`, `image` and `discard_image` matter.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{FoundImage, Pool, PoolOptions};
    ///
    /// let found = Pool::settle_image(&path, &PoolOptions::new())?;
    /// assert_eq!(found, FoundImage::None); // the pool was closed cleanly
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the pool is in use or no pool, if the image cannot be used, if the log or the undo
    /// log is damaged, or if the medium fails.
    pub fn settle_image(path: impl AsRef<Path>, options: &PoolOptions) -> Result<FoundImage> {
        let mode = OpenMode {
            media: options.media,
            ..OpenMode::default()
        };
        let memory = open_bytes(path.as_ref(), mode, &options.data)?;
        match options.discard_image {
            true => give_up_image(&memory, &options.image),
            false => settle_image(&memory, boot_id(), None),
        }
    }

    /// Makes the pool at `path`, or the dataset that it names, accept its external data device
    /// although the two were last used in different sessions, so that one of them is an old copy.
    /// Files then have the bytes that the device has, whatever their age.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// use vellum::{Pool, PoolOptions};
    /// # let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    /// # let external = vellum::DataOptions::new(&data).size_bytes(16 << 20);
    /// # vellum::CreateOptions::new(0).data(Some(external)).create(&path)?.close()?;
    /// # std::fs::copy(&data, &copy)?;
    /// # Pool::open(&path)?.close()?;
    ///
    /// let with_copy = PoolOptions::new().data(vec![copy.clone()]);
    /// assert!(with_copy.open(&path).is_err()); // the copy is of an earlier session
    /// Pool::force_data_device(&path, &[copy])?;
    /// with_copy.open(&path)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the pool is in use, is no pool or has no external data device; if the device is
    /// missing, in use, truncated or another pool's; or if the pool cannot be written.
    pub fn force_data_device(path: impl AsRef<Path>, data: &[PathBuf]) -> Result<()> {
        external::accept(path.as_ref(), data)
    }

    /// Creates a pool at `path` from the metadata replica on an external data device, which
    /// [`Self::close_and_export`] completed. The pool that exported it can no longer use the
    /// device. `tell` is called with the numbers of metadata blocks that are done, and of all.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
    /// use vellum::{AttachOptions, MediaChoice, Pool};
    /// # let external = vellum::DataOptions::new(&data).size_bytes(16 << 20);
    /// # let options = vellum::CreateOptions::new(0).media(MediaChoice::Memory);
    /// # let options = options.data(Some(external));
    /// # let pool = options.create(&path)?;
    /// # pool.volume().write("/f", "moved")?;
    /// # pool.close_and_export(false, &|_, _| {})?;
    /// # let other = dir.path().join("other");
    ///
    /// let options = AttachOptions { data, media: MediaChoice::Auto, overwrite: false };
    /// Pool::attach(&other, &options, &|done, all| println!("{done} of {all}"))?;
    /// assert_eq!(Pool::open(&other)?.volume().read("/f")?, b"moved");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the path exists or is an ordinary file; if the device is in use, is none, or has no
    /// replica, or one that is stale or damaged; or if either cannot be read or written. The device
    /// is unchanged then, unless the very last step failed.
    pub fn attach(
        path: impl AsRef<Path>,
        options: &AttachOptions,
        tell: &dyn Fn(u64, u64),
    ) -> Result<Superblock> {
        let mut id = [0; 16];
        fill_random(&mut id)?;
        attach_medium(path.as_ref(), options, id, tell)
    }

    pub(crate) fn start(mut memory: MappedPool, options: &PoolOptions) -> Result<Self> {
        if options.direct {
            memory = external::past_the_cache(memory)?;
            if options.populate {
                memory.populate();
            }
        }
        let mut attach_id = [0; 16];
        fill_random(&mut attach_id)?;
        let mount = MountOptions {
            read_only: options.read_only,
            cache_entries: options.cache_entries,
            recovery_threads: options.recovery_threads,
            clock: Clock::System,
            boot_id: boot_id(),
            image: options.image.clone(),
            attach: attach_id,
            mapping_timer: options.mapping_timer.clone(),
            roots_large: options.evolve_every.is_some(),
            access_times: options.access_times,
            // Populated memory is taken whole, which more than the pool needs now would waste.
            may_grow: !options.populate,
            durability: options.durability,
            commit_every: options.commit_every.max(COMMIT_REST),
        };
        let arena = |bytes| {
            let arena = MappedArena::private(bytes)?;
            if options.populate {
                arena.populate();
            }
            Ok(arena)
        };
        let (fs, opened) = attach::<Real>(memory, arena, mount)?;
        if options.media == MediaChoice::Logged && fs.media_kind() != MediaKind::Logged {
            return Err(Error::Unsupported("the pool has no log"));
        }
        if !options.barriers && fs.commits() {
            // After the opening, whose own writes need barriers.
            fs.leave_out_barriers();
        }
        let mut workers = Vec::new();
        if !options.read_only {
            let of = Arc::clone(&fs);
            workers.push(Worker::start("vellum-background", move |stop| {
                keep(&of, stop)
            }));
        }
        let has_areas = fs.superblock().geometry().namespace == NamespaceKind::Adaptive;
        let evolves = options.evolve_every.filter(|_| has_areas);
        if let Some(interval) = evolves.filter(|_| !options.read_only) {
            let of = Arc::clone(&fs);
            workers.push(Worker::start("vellum-evolver", move |stop| {
                evolve(&of, interval, stop);
            }));
        }
        if fs.commits() {
            let of = Arc::clone(&fs);
            workers.push(Worker::start("vellum-committer", move |stop| {
                commit(&of, stop)
            }));
        }
        Ok(Self {
            fs: Some(fs),
            opened,
            umask: umask(),
            workers,
        })
    }

    /// Returns the file system by inodes and names, for programs such as a mount.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// let fs = pool.fs();
    /// pool.volume().create_dir("/d")?;
    /// assert_eq!(fs.children(&fs.root())?, 1);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn fs(&self) -> Arc<RealFs> {
        match &self.fs {
            Some(fs) => Arc::clone(fs),
            None => unreachable!("the file system is taken only by close and drop"),
        }
    }

    /// Returns the file system by paths, like `std::fs`, as this process's user, with the file mode
    /// creation mask that the process had at the opening.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// pool.volume().write("/f", "text")?;
    /// assert!(pool.volume().exists("/f")); // another volume of the same pool
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn volume(&self) -> Volume {
        Volume::new(self.fs(), self.umask)
    }

    /// Returns the state in which the opening found the pool.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::Pool::open(&path)?;
    /// assert!(pool.opened().was_clean);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn opened(&self) -> Opened {
        self.opened
    }

    /// Returns the superblock.
    ///
    /// ```
    /// let options = vellum::CreateOptions::new(16 << 20).label("mail".to_owned());
    /// let superblock = options.create_in_memory()?.superblock();
    /// assert_eq!((superblock.pool_bytes, &*superblock.label_text()), (16 << 20, "mail"));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn superblock(&self) -> Superblock {
        self.fs().superblock()
    }

    /// Makes the pool larger while it is in use, see [`Fs::grow`]. Returns the new size, in bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// let pool = vellum::Pool::open(&path)?;
    /// pool.grow(128 << 20)?;
    /// assert_eq!(std::fs::metadata(&path)?.len(), 128 << 20);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Fs::grow`].
    pub fn grow(&self, pool_bytes: u64) -> Result<u64> {
        self.fs().grow(pool_bytes)
    }

    /// Closes the pool cleanly. Waits for running operations. Volumes and files that still exist
    /// return [`Error::Closed`] from then on. This process or another can open the pool again at
    /// once.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// pool.close()?;
    /// assert!(matches!(volume.read("/f"), Err(vellum::Error::Closed)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails with [`Error::Lent`] while views of files lend out bytes in place: the pool is closed
    /// cleanly, and can be opened again when the last of them is dropped. Fails with
    /// [`Error::Busy`] if unlinked files are still open, and if the medium fails: the pool can be
    /// opened again, and the next opening recovers it, which loses nothing that was promised.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    /// Closes the pool cleanly and completes the metadata replica on its external data device:
    /// copies the blocks of metadata that changed since the last export, or, with `all`, all of
    /// them. The device can then be moved elsewhere ([`Self::attach`]), or be used here again.
    /// `tell` is called with the numbers of blocks that are done, and of all.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
    /// # use vellum::MediaChoice;
    /// # let external = vellum::DataOptions::new(&data).size_bytes(16 << 20);
    /// # let options = vellum::CreateOptions::new(0).media(MediaChoice::Memory);
    /// # let options = options.data(Some(external));
    /// let pool = options.create(&path)?; // with an external data device
    /// let replica = pool.close_and_export(false, &|done, all| println!("{done} of {all}"))?;
    /// assert_eq!(replica.changed, replica.blocks); // the first export copies all of them
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the device has no replica: the pool is closed. Fails as [`Self::close`]. Fails if
    /// the device fails: the pool is closed, and the replica is stale.
    pub fn close_and_export(
        mut self,
        all: bool,
        tell: &dyn Fn(u64, u64),
    ) -> Result<ExportedReplica> {
        self.end_by(|fs| fs.close_and_export(all, tell))
            .unwrap_or(Err(Error::Closed))
    }

    /// Forgets the pool if it belongs to the process that this one was forked from. Returns whether
    /// it does.
    fn disown(&mut self) -> bool {
        let is_forked = matches!(
            self.fs.as_ref().map(|fs| fs.check_use()),
            Some(Err(Error::Forked))
        );
        if is_forked {
            self.workers.drain(..).for_each(Worker::forget);
            self.fs = None;
        }
        is_forked
    }

    fn shut(&mut self) -> Result<()> {
        self.end_by(|fs| fs.close()).unwrap_or(Ok(()))
    }

    /// Ends the background threads, restores the barriers of commits, runs `close`, and ends the
    /// use of the file system even if `close` fails. Returns `None` if this was done before.
    fn end_by<T>(&mut self, close: impl FnOnce(&RealFs) -> Result<T>) -> Option<Result<T>> {
        if self.disown() {
            return Some(Err(Error::Forked));
        }
        self.workers.clear();
        let fs = self.fs.take()?;
        let closed = fs.keep_barriers().and_then(|()| close(&fs));
        Some(match (closed, fs.end()) {
            (Ok(_), views @ 1..) => Err(Error::Lent { views }),
            (closed, _) => closed,
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A forked child logs nothing: a thread of the parent that held a lock of the logger at the
        // fork is not there to release it.
        if self.disown() {
            return;
        }
        match self.shut() {
            // The pool is closed cleanly in both cases.
            Ok(()) | Err(Error::Lent { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, "the pool could not be closed cleanly; the next opening \
                     recovers it");
            }
        }
    }
}

/// The seed of hashes for pools that name none, if the environment sets it for a repeatable run of
/// tests. Release builds ignore it and draw a seed.
fn seed_of_tests() -> Option<u64> {
    let named = || std::env::var("VELLUM_HASH_SEED").ok()?.parse().ok();
    cfg!(debug_assertions).then(named).flatten()
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty())
            .map_err(std::io::Error::from)?;
    }
    Ok(())
}

/// The process's file mode creation mask, or the usual one if it cannot be read. `umask(2)` would
/// set the mask, for all threads, to return it.
fn umask() -> u16 {
    const USUAL: u16 = 0o022;
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut told = text.lines().filter_map(|line| line.strip_prefix("Umask:"));
    let told = told.next().map(str::trim);
    told.and_then(|octal| u16::from_str_radix(octal, 8).ok())
        .unwrap_or(USUAL)
}

/// The kernel's identity of this boot; zero if it cannot be read.
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    id
}
