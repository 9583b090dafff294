//! Pools to test on, behind one trait: mapped memory as in production, and simulated pools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use vellum::media::{
    HeapMemory, MappedArena, MappedPool, MediaChoice, Memories, Memory, Persistent, Real,
    SimLogged, SimPool, Simulated, SimulatedLogged, Site,
};
use vellum::{
    Clock, ExternalData, FormatOptions, Fs, MappingKind, MountOptions, NamespaceKind, Opened,
    Result, attach, format,
};
use vellum_check::{Image, Options, Severity};
use vellum_layout::Superblock;

/// The start of the tests' clock: 2026-01-01 in nanoseconds since 1970.
pub(crate) const CLOCK_START: i64 = 1_767_225_600_000_000_000;
/// The tests' clock stays below this: any time in this range comes from the clock.
pub(crate) const CLOCK_END: i64 = CLOCK_START + 1_000_000_000;

/// The shape of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) pool_bytes: u64,
    pub(crate) thread_slots: u32,
    /// Names and files that the arena can hold.
    pub(crate) cache_entries: u64,
    pub(crate) metadata_bytes: Option<u64>,
    /// Blocks of a file that HashFS places together.
    pub(crate) run_blocks: u32,
    /// Lines of a span; the default if `None`.
    pub(crate) span_lines: Option<u16>,
    pub(crate) mapping: MappingKind,
    pub(crate) namespace: NamespaceKind,
}

impl Shape {
    pub(crate) const fn new(pool_bytes: u64, thread_slots: u32, cache_entries: u64) -> Self {
        Self {
            pool_bytes,
            thread_slots,
            cache_entries,
            metadata_bytes: None,
            run_blocks: 8,
            span_lines: None,
            mapping: MappingKind::HashFs,
            namespace: NamespaceKind::Direct,
        }
    }

    /// The same shape with another namespace.
    pub(crate) const fn with(self, namespace: NamespaceKind) -> Self {
        Self { namespace, ..self }
    }

    fn format_options(&self, is_logged: bool, has_external: bool) -> FormatOptions {
        let has_lines = self.mapping.has_home_lines();
        FormatOptions {
            metadata_bytes: self.metadata_bytes,
            run_blocks: has_lines.then_some(self.run_blocks),
            span_lines: self.span_lines.filter(|_| has_lines),
            mapping: self.mapping,
            namespace: self.namespace,
            is_logged,
            external: has_external.then_some(ExternalData {
                id: [9; 16],
                at: 4096,
                data_bytes: self.pool_bytes,
                replica_bytes: 0,
            }),
            thread_slots: Some(self.thread_slots),
            label: "test".into(),
            uuid: [7; 16],
            hash_seed: 0x5EED,
            now_ns: CLOCK_START,
            known_zero: true,
            ..FormatOptions::default()
        }
    }

    fn mount_options(&self) -> MountOptions {
        MountOptions {
            cache_entries: self.cache_entries,
            clock: Clock::Counter(AtomicI64::new(CLOCK_START)),
            ..MountOptions::default()
        }
    }
}

/// Runs a test on every namespace with a share of `count` cases: all on the default one, a third on
/// each other.
pub(crate) fn on_each_namespace(count: u32, test: impl Fn(NamespaceKind, u32)) {
    for namespace in NamespaceKind::ALL {
        let usual = namespace == NamespaceKind::default();
        test(namespace, if usual { count } else { count.div_ceil(3) });
    }
}

/// Memories that tests can create pools on.
pub(crate) trait Backend: Memories + Sized {
    /// Whether a log makes the metadata durable.
    const IS_LOGGED: bool = false;
    /// Whether the data have a disk of their own.
    const HAS_EXTERNAL: bool = false;

    /// A pool of zeros.
    fn pool(len: u64) -> Self::Pool;

    /// An arena of zeros.
    fn arena(len: u64) -> Result<Self::Arena>;

    /// A new file system.
    fn make(shape: &Shape) -> Arc<Fs<Self>> {
        // A log takes as much space as the metadata, an undo log three times as much.
        let times = match (Self::IS_LOGGED, Self::HAS_EXTERNAL) {
            (false, false) => 1,
            (true, _) => 2,
            (false, true) => 3,
        };
        let bytes = shape.pool_bytes * times;
        let pool = Self::pool(bytes);
        let options = shape.format_options(Self::IS_LOGGED, Self::HAS_EXTERNAL);
        format(&pool, &options).expect("the shape is possible");
        let (fs, opened) = Self::mount(pool, shape).expect("a new pool opens");
        assert_eq!((opened.records_applied, opened.orphans_freed), (0, 0));
        fs
    }

    /// The image that a crash leaves if everything so far is durable.
    fn image(fs: &Fs<Self>) -> Vec<u8> {
        fs.sync().expect("the medium is whole");
        fs.image()
    }

    /// Opens the pool in an image.
    fn open(image: &[u8], shape: &Shape) -> Result<(Arc<Fs<Self>>, Opened)> {
        let pool = Self::pool(image.len() as u64);
        pool.write(0, image);
        pool.flush(Site::UNNAMED, 0, image.len() as u64);
        pool.fence(Site::UNNAMED);
        Self::mount(pool, shape)
    }

    fn mount(pool: Self::Pool, shape: &Shape) -> Result<(Arc<Fs<Self>>, Opened)> {
        attach::<Self>(pool, Self::arena, shape.mount_options())
    }
}

impl Backend for Real {
    fn pool(len: u64) -> MappedPool {
        MappedPool::anonymous(len).expect("there is memory")
    }

    fn arena(len: u64) -> Result<MappedArena> {
        Ok(MappedArena::new(len)?)
    }
}

impl Backend for Simulated {
    fn pool(len: u64) -> SimPool {
        SimPool::new(len)
    }

    fn arena(len: u64) -> Result<HeapMemory> {
        Ok(HeapMemory::new(len))
    }
}

impl Backend for SimulatedLogged {
    const IS_LOGGED: bool = true;

    fn pool(len: u64) -> SimLogged {
        SimLogged::new(Arc::new(SimPool::new(len)), None)
    }

    fn arena(len: u64) -> Result<HeapMemory> {
        Ok(HeapMemory::new(len))
    }
}

/// A pool with its data on a simulated disk, and its metadata either with a log on another
/// simulated disk, or in simulated persistent memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedData<const IS_LOGGED: bool>;

/// With a log.
pub(crate) type SimulatedExternal = SimulatedData<true>;
/// With its metadata in persistent memory.
pub(crate) type SimulatedSplit = SimulatedData<false>;

impl<const IS_LOGGED: bool> Memories for SimulatedData<IS_LOGGED> {
    type Pool = SimLogged;
    type Arena = HeapMemory;
}

impl<const IS_LOGGED: bool> Backend for SimulatedData<IS_LOGGED> {
    const IS_LOGGED: bool = IS_LOGGED;
    const HAS_EXTERNAL: bool = true;

    fn pool(len: u64) -> SimLogged {
        SimulatedLogged::pool(len)
    }

    fn arena(len: u64) -> Result<HeapMemory> {
        SimulatedLogged::arena(len)
    }
}

/// A pool with a log, in a file whose data pass the page cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct;

impl Memories for Direct {
    type Pool = MappedPool;
    type Arena = MappedArena;
}

impl Backend for Direct {
    const IS_LOGGED: bool = true;

    fn pool(len: u64) -> MappedPool {
        let dir = tempfile::tempdir().expect("there is room");
        let pool = MappedPool::create(&dir.path().join("pool"), len, MediaChoice::Logged);
        pool.expect("there is room")
    }

    fn arena(len: u64) -> Result<MappedArena> {
        Real::arena(len)
    }

    /// Everything stored so far is in the page cache.
    fn mount(pool: MappedPool, shape: &Shape) -> Result<(Arc<Fs<Self>>, Opened)> {
        let mut block = [0; 4096];
        pool.read(0, &mut block);
        let superblock = Superblock::unseal(&block)?;
        let pool = pool.with_direct(superblock.geometry().data_at)?;
        attach::<Self>(pool, Self::arena, shape.mount_options())
    }
}

/// Runs `body` while another thread does `work`. The flag tells `work` to end when `body` ends,
/// even if it panics.
pub(crate) fn beside<T>(work: impl FnOnce(&AtomicBool) + Send, body: impl FnOnce() -> T) -> T {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| work(&stop));
        let _stop = Stop(&stop);
        body()
    })
}

/// How sound an image must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Soundness {
    /// In use: residue is allowed, damage is not.
    InUse,
    /// Just recovered: only the state word differs from that of a closed pool.
    Recovered,
    /// Closed cleanly.
    Closed,
}

/// Checks an image. Returns the problems, a line each.
pub(crate) fn check(
    image: &(impl Image + ?Sized),
    soundness: Soundness,
) -> std::result::Result<(), String> {
    let options = Options {
        strict_clean: soundness == Soundness::Recovered,
        ..Options::default()
    };
    let report = vellum_check::check(image, options);
    let fine = |severity| soundness == Soundness::InUse && severity == Severity::Residue;
    let bad: Vec<_> = report
        .findings
        .iter()
        .filter(|f| !fine(f.severity))
        .map(|f| format!("{f:?}"))
        .collect();
    if bad.is_empty() {
        Ok(())
    } else {
        Err(format!("{soundness:?}:\n{}", bad.join("\n")))
    }
}

/// Checks the pool of a file system that is open.
pub(crate) fn check_open<M: Backend>(
    fs: &Fs<M>,
    soundness: Soundness,
) -> std::result::Result<(), String> {
    check(&M::image(fs), soundness)
}
