//! A file system under a workload; it executes the operations of the model.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use vellum::experiments::{MappingProbe, set_table_aside, settle, settle_cut, write_table};
use vellum::{
    Clock, Cred, Error, ExternalData, FormatOptions, Fs, ImageLocation, MappingKind, MountOptions,
    NamespaceKind, OpenOptions, attach, format, prefer_thread_slot,
};
use vellum_check::{MemoryImage, survey};
use vellum_driver::Driver;
use vellum_layout::{AddedSegment, BLOCK_BYTES, table_chunks};
use vellum_media::{SimImages, SimPool};
use vellum_model::Payload;

use crate::memories::{Backend, Explored, Shared};
use crate::workload::{BlocksAlone, PoolKind, Step, Workload};

/// The size of the pools that workloads run on, in bytes.
pub(crate) const POOL_BYTES: u64 = 1 << 20;
/// The data's part of a pool with an external data device.
pub(crate) const EXTERNAL_DATA: ExternalData = ExternalData {
    id: [9; 16],
    at: BLOCK_BYTES,
    data_bytes: POOL_BYTES,
    replica_bytes: 0,
};
/// The segment that is added to pools that grow.
const ADDED: AddedSegment = AddedSegment {
    id: [10; 16],
    at: BLOCK_BYTES,
    blocks: 64,
};
/// Bytes behind the pool for the metadata replica, where there is one.
const REPLICA_BYTES: u64 = POOL_BYTES / 2;
/// The start of the workload clock: 2026-01-01, in nanoseconds since 1970.
pub(crate) const CLOCK_START: i64 = 1_767_225_600_000_000_000;
/// The clock's advance between two openings, in nanoseconds.
const CLOCK_STEP: i64 = 1_000_000;
/// Openings within this many nanoseconds of the clock belong to one boot: nothing was lost between
/// them.
const CLOCK_BOOT: i64 = 1_000_000_000;
/// The most openings of a workload. The process after it is recognised by its times.
const OPENINGS_MAX: i64 = 500;
/// The start of the clock after a crash.
pub(crate) const CLOCK_AFTER: i64 = CLOCK_START + 1_000_000_000;

const NOT_OPEN: Error = Error::Invalid("the pool is not open");

/// The user and group of steps that are not executed as the superuser.
pub(crate) const USER: u32 = 1000;

/// The result of engine operations.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// A file system of the explorer.
pub(crate) type ExploredFs = Arc<Fs<Explored>>;

/// A file system that may be open, with the handles that the workload holds.
pub(crate) struct Session<M: Backend = Explored> {
    pool: Shared,
    driver: Option<Driver<M>>,
    /// What a kill leaves of a logged pool.
    images: Arc<SimImages>,
    cache_entries: u64,
    openings: i64,
}

impl PoolKind {
    /// The size of the pool when it is formatted, in bytes. With an external data device, the data
    /// take its last part.
    pub(crate) fn pool_bytes(self) -> u64 {
        match self {
            Self::Memory | Self::Narrow => POOL_BYTES,
            Self::Logged | Self::External | Self::Grown => 2 * POOL_BYTES,
            Self::Split => 5 * POOL_BYTES / 2,
        }
    }

    /// Bytes of metadata; the log takes as much again, and undo records three times as much.
    /// `None`: the default.
    pub(crate) fn metadata_bytes(self) -> Option<u64> {
        match self {
            Self::Memory => None,
            Self::Narrow => Some(0),
            _ => Some(POOL_BYTES / 4),
        }
    }
}

/// The pool that a workload begins with.
pub(crate) fn image_of(workload: &Workload) -> Vec<u8> {
    let replica_bytes = if workload.has_replica() {
        REPLICA_BYTES
    } else {
        0
    };
    let (mapping, namespace) = (workload.mapping, workload.namespace);
    let mut image = blank_image_with(replica_bytes, 2, (mapping, namespace), workload.pool_kind);
    // What the pool grows into.
    let most = image.len().max(workload.grows_to() as usize);
    image.resize(most, 0xAD);
    image
}

/// A formatted pool with this many thread slots, whose unused bytes are what earlier owners left.
pub(crate) fn blank_image(
    thread_slots: u32,
    mapping: MappingKind,
    namespace: NamespaceKind,
    pool_kind: PoolKind,
) -> Vec<u8> {
    blank_image_with(0, thread_slots, (mapping, namespace), pool_kind)
}

/// The same with this many bytes for a metadata replica.
fn blank_image_with(
    replica_bytes: u64,
    thread_slots: u32,
    (mapping, namespace): (MappingKind, NamespaceKind),
    pool_kind: PoolKind,
) -> Vec<u8> {
    let bytes = pool_kind.pool_bytes() + replica_bytes;
    let stale: Vec<u8> = (0..bytes / 8)
        .flat_map(|word| (word | 0xDEAD_BEEF_0000_0000).to_le_bytes())
        .collect();
    let pool = SimPool::from_image(stale);
    let options = FormatOptions {
        thread_slots: Some(thread_slots),
        mapping,
        namespace,
        metadata_bytes: pool_kind.metadata_bytes(),
        has_fixed_metadata: pool_kind != PoolKind::Narrow,
        is_logged: pool_kind.is_logged(),
        external: pool_kind.is_external().then_some(ExternalData {
            replica_bytes,
            ..EXTERNAL_DATA
        }),
        uuid: [7; 16],
        hash_seed: 0x5EED,
        now_ns: CLOCK_START,
        known_zero: false,
        ..FormatOptions::default()
    };
    format(&pool, &options).expect("the smallest pool can be made");
    match pool_kind {
        PoolKind::Grown => grown(&pool.image()).expect("a new pool has room for one more segment"),
        _ => pool.image(),
    }
}

/// Adds one more segment behind the bytes of the pool.
fn grown(image: &[u8]) -> Result<Vec<u8>> {
    let pool = Shared::of(image.to_vec());
    let mut session: Session = Session::new(pool.clone(), 64);
    session.step(&Step::parse("open-pool"))?;
    let fs = Arc::clone(session.fs().expect("it was opened"));
    let geometry = fs.superblock().geometry();
    let chunks = table_chunks(geometry.mapping, ADDED.blocks, geometry.chunk_bytes);
    assert!(set_table_aside(&fs, 1, chunks)?, "room for {chunks} chunks");
    let larger = fs
        .superblock()
        .with_segment(ADDED)
        .expect("the second of eight");
    drop(fs);
    session.step(&Step::parse("close-pool"))?;
    let added = vec![0xAD; (ADDED.blocks * BLOCK_BYTES) as usize];
    let pool = SimPool::from_image([pool.0.image(), added].concat());
    write_table(&pool, &larger)?;
    Ok(pool.image())
}

/// Opens the pool as another boot would. The same operations of this thread have the same effect
/// from here on.
pub(crate) fn mount<M: Backend>(
    pool: &Shared,
    cache_entries: u64,
    clock: i64,
) -> Result<Arc<Fs<M>>> {
    mount_with_arena(pool, None, (cache_entries, clock), M::arena)
}

/// The same, in the arena that `make_arena` returns for a size in bytes, and with `images` that
/// outlive processes.
pub(crate) fn mount_with_arena<M: Backend>(
    pool: &Shared,
    images: Option<&Arc<SimImages>>,
    (cache_entries, clock): (u64, i64),
    make_arena: impl FnOnce(u64) -> M::Arena,
) -> Result<Arc<Fs<M>>> {
    let options = MountOptions {
        cache_entries,
        clock: Clock::Counter(AtomicI64::new(clock)),
        boot_id: (clock / CLOCK_BOOT)
            .to_le_bytes()
            .repeat(2)
            .try_into()
            .unwrap_or_default(),
        image: match images {
            Some(_) => ImageLocation::Shared,
            None => ImageLocation::Process,
        },
        attach: clock.to_le_bytes().repeat(2).try_into().unwrap_or_default(),
        ..MountOptions::default()
    };
    // As programs do before they open a pool.
    if let Some(superblock) = survey::superblock(&MemoryImage(&*pool.0)) {
        settle_cut(&*pool.0, &superblock)?;
    }
    prefer_thread_slot(0);
    let make_arena = |bytes| Ok(make_arena(bytes));
    attach::<M>(M::pool(pool, images), make_arena, options).map(|(fs, _)| fs)
}

impl<M: Backend> Session<M> {
    /// A session on a pool that is closed.
    pub(crate) fn new(pool: Shared, cache_entries: u64) -> Self {
        Self {
            pool,
            driver: None,
            images: Arc::default(),
            cache_entries,
            openings: 0,
        }
    }

    /// A session of the next process under the same boot, after a process was killed and left
    /// `images` in memory.
    pub(crate) fn after_kill(pool: Shared, cache_entries: u64, images: Arc<SimImages>) -> Self {
        Self {
            openings: OPENINGS_MAX,
            images,
            ..Self::new(pool, cache_entries)
        }
    }

    /// A session of another thread on the same file system, without handles.
    pub(crate) fn share(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            driver: self.fs().cloned().map(Driver::new),
            images: Arc::clone(&self.images),
            cache_entries: self.cache_entries,
            openings: self.openings,
        }
    }

    /// The file system, if it is open.
    pub(crate) fn fs(&self) -> Option<&Arc<Fs<M>>> {
        self.driver.as_ref().map(Driver::fs)
    }

    /// Executes a step.
    pub(crate) fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Op(_) | Step::Full(_) | Step::User(_) => self.answer(step).map(drop),
            Step::Together(ops) => self.driver()?.set(ops, &Cred::root()).map(drop),
            Step::Unnamed(path) => self.driver()?.name_when_written(&Step::named_at_once(path)),
            Step::Blocks(blocks) => self.give_and_take(blocks),
            Step::Maintain => {
                let fs = self.open_fs()?;
                while fs.maintain()? > 0 {}
                Ok(())
            }
            Step::Split(dir) | Step::Merge(dir) => {
                let fs = self.open_fs()?;
                let dir = fs.find(&Cred::root(), &fs.root(), dir.as_bytes(), true)?;
                match step {
                    Step::Split(_) => fs.split(&dir),
                    _ => fs.merge(&dir),
                }
                .map(drop)
            }
            Step::Evolve(rounds) => {
                let fs = self.open_fs()?;
                (0..*rounds).try_for_each(|_| fs.evolve().map(drop))
            }
            Step::Checkpoint => self.open_fs()?.checkpoint().map(drop),
            Step::Grow(bytes) => self.open_fs()?.grow(*bytes).map(drop),
            Step::Trim => self.open_fs()?.trim(0, &|_, _| {}).map(drop),
            Step::Close => self.take_fs().map_or(Ok(()), |fs| fs.close()),
            Step::ExportReplica => {
                let close = |fs: Arc<Fs<M>>| fs.close_and_export(false, &|_, _| {}).map(drop);
                self.take_fs().map_or(Ok(()), close)
            }
            Step::Open => self.open(),
            Step::Recover => {
                self.driver = None;
                self.open()
            }
        }
    }

    /// Executes a step, and returns the operation's result if it has one.
    pub(crate) fn answer(&mut self, step: &Step) -> Result<Payload> {
        let (op, cred) = match step {
            Step::Op(op) | Step::Full(op) => (op, Cred::root()),
            Step::User(op) => (op, Cred::user(USER, USER)),
            _ => return self.step(step).map(|()| Payload::Done),
        };
        let driver = self.driver.as_mut().ok_or(NOT_OPEN)?;
        driver.apply(op, &cred)
    }

    /// Closes the handles; returns the file system, if it is open.
    fn take_fs(&mut self) -> Option<Arc<Fs<M>>> {
        self.driver.take().map(|driver| Arc::clone(driver.fs()))
    }

    fn driver(&self) -> Result<&Driver<M>> {
        self.driver.as_ref().ok_or(NOT_OPEN)
    }

    fn open(&mut self) -> Result<()> {
        self.openings += 1;
        let clock = CLOCK_START + self.openings * CLOCK_STEP;
        let (images, how) = (Some(&self.images), (self.cache_entries, clock));
        let fs = mount_with_arena(&self.pool, images, how, M::arena)?;
        self.driver = Some(Driver::new(fs));
        Ok(())
    }

    /// The file system, which has to be open.
    ///
    /// # Errors
    /// The file system is not open.
    pub(crate) fn open_fs(&self) -> Result<&Arc<Fs<M>>> {
        self.driver().map(Driver::fs)
    }

    fn give_and_take(&self, blocks: &BlocksAlone) -> Result<()> {
        let fs = self.open_fs()?;
        let path = blocks.path.as_bytes();
        let options = OpenOptions::new().read(true).write(true);
        let handle = fs.open(&Cred::root(), &fs.root(), path, &options)?;
        let (first, count) = (blocks.first, blocks.count);
        let mut alone = MappingProbe::new(&handle)?;
        alone.insert(first, count as usize)?;
        let mut alone = alone.renew()?;
        if alone.remove(first, first + count)? != count {
            return Err(Error::Invalid("the blocks were not allocated"));
        }
        drop(alone);
        settle(fs);
        Ok(())
    }
}
