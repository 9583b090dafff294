//! Pools as users meet them: made, opened, closed; with a thread for the background's work.

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
    DataFile, DataPart, MappedArena, MappedPool, MediaChoice, MediaError, MediaKind, OpenMode, Real,
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

/// The least time between two commits that nobody asks for.
const COMMIT_REST: Duration = Duration::from_millis(1);

/// The file system of production: on mapped memory.
pub type RealFs = Fs<Real>;

/// An open pool.
///
/// Dropping it closes it in order, whoever still has volumes and files of it; [`Pool::close`] also
/// says whether that went well.
///
/// A pool belongs to the process that opened it. A child of `fork` cannot use what its parent had
/// open, be it the pool, its volumes or its files: every call is refused with [`Error::Forked`]
/// (`EBUSY`), changes nothing and waits for nobody, closing and dropping included, and the parent
/// notices nothing of it. That holds where the parent has ended, too, as behind `daemon(3)`: open a
/// pool behind the fork. Pools that the child opens itself it may use, as soon as nobody else has
/// them.
#[derive(Debug)]
pub struct Pool {
    fs: Option<Arc<RealFs>>,
    opened: Opened,
    /// The process's file mode creation mask.
    umask: u16,
    workers: Vec<Worker>,
}

impl Pool {
    /// Makes a pool in a file, and opens it: one of 1 GiB, sparse, that keeps its order through a
    /// power cut. [`CreateOptions`] makes others.
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
    /// The path exists, or the medium failed.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::create_as(path.as_ref(), &CreateOptions::default())
    }

    fn create_as(path: &Path, options: &CreateOptions) -> Result<Self> {
        // A refusal leaves no external data device behind.
        if !options.overwrite && path.symlink_metadata().is_ok() {
            let path = path.to_owned();
            return Err(MediaError::Exists { path }.into());
        }
        let options = &options.settled(path);
        let make = if options.overwrite {
            MappedPool::overwrite
        } else {
            MappedPool::create
        };
        let make = |bytes| Ok(make(path, bytes, options.media)?);
        let (memory, _) = Self::make(path, options, make)?;
        Self::start_new(memory)
    }

    /// Makes a pool in the bytes that `take` gives, so many as it is told, and the medium of its
    /// data, if it is to have one; `path` is how the pool is called. The options are
    /// [settled](CreateOptions::settled).
    pub(crate) fn make(
        path: &Path,
        options: &CreateOptions,
        take: impl FnOnce(u64) -> Result<MappedPool>,
    ) -> Result<(MappedPool, Superblock)> {
        let format_options = Self::format_options(options)?;
        if let Some(data) = &options.data {
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

    /// Makes a pool and the medium of its data. The head of the medium comes behind all of the
    /// pool: what a crash leaves is refused.
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
            // Large pages of the data are large pages behind the pool, too.
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

    /// Makes a pool of `size_bytes` in anonymous memory: gone with the process.
    ///
    /// ```
    /// let pool = vellum::Pool::memory(16 << 20)?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// The size is impossible, no memory.
    pub fn memory(size_bytes: u64) -> Result<Self> {
        Self::memory_as(&CreateOptions::new(size_bytes))
    }

    fn memory_as(options: &CreateOptions) -> Result<Self> {
        let memory = MappedPool::anonymous(options.size_bytes)?;
        Self::format(&memory, &Self::format_options(options)?)?;
        Self::start_new(memory)
    }

    /// Opens a pool that was just made: nobody left anything in it.
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

    /// Opens the pool at `path`, or the dataset `NAME` of it by the path `POOL:NAME`, for
    /// reading and writing; recovers it if it was not closed in order. [`PoolOptions`] opens it in
    /// other ways.
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
    /// Not a pool, a later format, in use, damaged; no dataset of that name.
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

    /// Takes what a killed process left of a logged pool in memory into the pool's log, or forgets
    /// it, as of the last epoch, for a tool that works on the pool's bytes. Of metadata whose data
    /// lie elsewhere what is not committed is taken back, or counts as committed. Other pools stay
    /// as they are. Of the options those count that say what the medium is, where the data are, and
    /// whether it is to be forgotten.
    ///
    /// # Errors
    /// In use, not a pool, what was left cannot be used, the log or the versions are damaged, or
    /// the medium failed.
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

    /// Has the pool at `path`, or the part that it names, take its external data device as it is,
    /// although it was last used with it in another session, so that one of the two is an old copy:
    /// files have the bytes that the medium has of them, whenever they are from.
    ///
    /// # Errors
    /// In use, not a pool, one that has its data itself; the medium is missing, in use, cut short
    /// or something else's; what the pool said.
    pub fn force_data_device(path: impl AsRef<Path>, data: &[PathBuf]) -> Result<()> {
        external::accept(path.as_ref(), data)
    }

    /// Makes a pool at `path` of what an external data device carries, which was closed with
    /// [`Self::close_and_export`]. The pool that it was of knows the medium no more. What `tell` is
    /// told is how many blocks of metadata of how many are done.
    ///
    /// # Errors
    /// The path exists, or is an ordinary file; the medium is in use, is none, carries no copy of
    /// the metadata, or one that is stale or damaged; what either said. The medium is as it was
    /// then, unless the very last step failed.
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
            // Behind the opening, whose own order has them.
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

    /// The file system, by nodes and names: what adapters build on.
    pub fn fs(&self) -> Arc<RealFs> {
        match &self.fs {
            Some(fs) => Arc::clone(fs),
            None => unreachable!("the file system is taken only by close and drop"),
        }
    }

    /// The file system, by paths, as this process's user, with the file mode creation mask that the
    /// process had at the opening: like `std::fs`.
    pub fn volume(&self) -> Volume {
        Volume::new(self.fs(), self.umask)
    }

    /// How the pool was found when it was opened.
    pub fn opened(&self) -> Opened {
        self.opened
    }

    /// The superblock.
    pub fn superblock(&self) -> Superblock {
        self.fs().superblock().clone()
    }

    /// Closes in order. Operations that run are waited for; volumes and files that are still there
    /// can do nothing any more ([`Error::Closed`]), and the pool can be opened again at once, by
    /// this process or another.
    ///
    /// # Errors
    /// Views of files are there that lend bytes in place ([`Error::Lent`]): the pool is closed in
    /// order, and can be opened again when the last of them is dropped. Unlinked files are still
    /// open ([`Error::Busy`]), or the medium failed: the pool can be opened again, and the next
    /// opening then recovers, which loses nothing that was promised.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    /// Closes in order, and makes the copy of the metadata whole that the external data device
    /// carries: of what changed since it last was, or of `all`. The medium can then be taken
    /// elsewhere ([`Self::attach`]), or be used here again. What `tell` is told is how many blocks
    /// of how many are done.
    ///
    /// # Errors
    /// The medium carries none: the pool is closed. As for [`Self::close`]. The medium failed: the
    /// pool is closed, and the copy is stale.
    pub fn close_and_export(
        mut self,
        all: bool,
        tell: &dyn Fn(u64, u64),
    ) -> Result<ExportedReplica> {
        self.end_by(|fs| fs.close_and_export(all, tell))
            .unwrap_or(Err(Error::Closed))
    }

    /// Forgets the pool of another process, which this one was forked off; gives whether it is one.
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

    /// Has the file system closed, when nobody works for it any more and its commits have barriers,
    /// and ends its use, whatever came of that. `None`: that was done before.
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
        // In a child of the process whose it is nobody is told: whoever had a hand on the log at
        // the fork is not there.
        if self.disown() {
            return;
        }
        match self.shut() {
            // As it says.
            Ok(()) | Err(Error::Lent { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, "the pool could not be closed cleanly; the next opening \
                     recovers it");
            }
        }
    }
}

/// The seed of the hashes in pools for which none is named, where a test or the whole run of tests
/// says so: builds that are released draw one.
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

/// The process's file mode creation mask; what is usual where it cannot be known. To ask for it by
/// `umask(2)` is to set it, for all threads.
fn umask() -> u16 {
    const USUAL: u16 = 0o022;
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut told = text.lines().filter_map(|line| line.strip_prefix("Umask:"));
    let told = told.next().map(str::trim);
    told.and_then(|octal| u16::from_str_radix(octal, 8).ok())
        .unwrap_or(USUAL)
}

/// The kernel's identity of this boot; zero where it cannot be known.
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
