//! Opening a pool: superblock, state word, live map or recovery, arena.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use vellum_layout::{
    BLOCK_BYTES, BLOCKS_MAX, FileKind, Geometry, IdentityWord, Inode, InodeState, MapState,
    PoolPhase, PoolState, ROOT_SLOT, ReplicaPlan, StateWord, Summing, Superblock, checksum_words,
};
use vellum_media::{
    ImageKey, ImageMemory, MappedPool, Medium, Memories, Memory, Persistent, PoolMemory,
};
use zerocopy::IntoBytes;

use super::inherit::inherit_overwrites;
use crate::core::OwnBytes;
use crate::core::access_times::AccessTimes;
use crate::core::cachelet::{REF_ONE, check_inode};
use crate::core::inodes::{for_each_file, note_chunks};
use crate::core::lease::Leases;
use crate::core::slots::{GRACE, Tally};
use crate::core::sparse::Sparse;
use crate::core::{ArenaMap, Clock, Core, header};
use crate::devices::superblock::read_superblock;
use crate::durability::commit::Durability;
use crate::durability::journal;
use crate::error::MediumError;
use crate::error::{Error, Location, Result};
use crate::fs::Fs;
use crate::logs::Commits;
use crate::logs::changed::forget_replica;
use crate::logs::redo::{self, FoundImage, ImageLocation, Loading};
use crate::logs::undo;
use crate::mapping::timed::{MappingTimer, Timed};
use crate::mapping::{self, MapId, Mapping, Survey, Verdict};
use crate::namespace::{self, Namespace};
use crate::pool::boot_id;
use crate::pool::lifecycle::recover;
use crate::reading::Reading;
use crate::sites;

/// The default interval between commits that nobody asked for.
pub(crate) const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// Options of opening a pool.
#[derive(Debug)]
pub struct MountOptions {
    /// Changes nothing in the pool.
    pub read_only: bool,
    /// Names and files that the arena can hold at once.
    pub cache_entries: u64,
    /// Threads that recovery may use.
    pub recovery_threads: usize,
    /// The source of the time.
    pub clock: Clock,
    /// Identity of this boot, stored in the pool; zero means unknown.
    pub boot_id: [u8; 16],
    /// Where the image of a logged pool is kept.
    pub image: ImageLocation,
    /// Identity of this opening's image, drawn at random.
    pub attach: [u8; 16],
    /// Collects the time spent in the mapping.
    pub mapping_timer: Option<Arc<MappingTimer>>,
    /// In namespaces with areas: makes a large directory the root of an area before it is renamed.
    pub roots_large: bool,
    /// When reads update access times.
    pub access_times: AccessTimes,
    /// Whether the pool may [grow](Fs::grow) while it is open: more addresses are kept for it.
    pub may_grow: bool,
    /// What is durable when an operation returns.
    pub durability: Durability,
    /// The interval between commits that nobody asks for; the opener's threads make them. It is
    /// stored to report how much a power cut may lose.
    pub commit_every: Duration,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            cache_entries: 1 << 24,
            recovery_threads: 1,
            clock: Clock::System,
            boot_id: [0; 16],
            image: ImageLocation::Process,
            attach: [0; 16],
            mapping_timer: None,
            roots_large: false,
            access_times: AccessTimes::default(),
            may_grow: true,
            durability: Durability::default(),
            commit_every: COMMIT_INTERVAL,
        }
    }
}

/// The state in which a pool was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The pool had been closed cleanly.
    pub was_clean: bool,
    /// It was last open under another boot: a power cut or kernel crash, if it was not clean.
    pub other_boot: bool,
    /// Journal records that were applied.
    pub records_applied: u64,
    /// Inodes without names that were freed.
    pub orphans_freed: u64,
    /// What happened to the image of the last process, if the pool is logged.
    pub image: FoundImage,
    /// Undo granules (128 bytes of metadata in persistent memory) that were rolled back, because
    /// their changes had not been committed with their data.
    pub granules_rolled_back: u64,
}

/// Whether the last opener for writing ran under another boot, so that caches hold nothing that the
/// medium lacks. If one of the boots is unknown, they may be the same. A pool of epoch 0 was never
/// open.
fn is_other_boot(last: [u8; 16], now: [u8; 16], epoch: u32) -> bool {
    let unknown = [0; 16];
    last != now && now != unknown && (last != unknown || epoch == 0)
}

/// Reads the superblock of a pool, and checks that the bytes of its data are mapped.
fn read_whole<P: PoolMemory>(pool: &P) -> Result<Superblock> {
    let found = read_superblock(pool)?;
    let geometry = found.geometry();
    let replica = ReplicaPlan::of(&geometry).map_or(0, |plan| plan.bytes());
    let data_end = geometry.data_at + geometry.data_bytes() + replica;
    if geometry.external.is_some() && data_end > pool.len() {
        return Err(MediumError::Unknown.into());
    }
    Ok(found)
}

/// Adopts the image that a killed process left of a logged pool into the pool's log, for tools that
/// read the pool's bytes next. With `given_up` it discards the image, and images in these
/// directories that are newer than the pool's file.
///
/// # Errors
/// Fails as [`attach`] does while it reads the log.
pub(crate) fn settle_image<P: PoolMemory>(
    pool: &P,
    boot: [u8; 16],
    given_up: Option<&[PathBuf]>,
) -> Result<FoundImage> {
    let superblock = read_whole(pool)?;
    superblock.check_writable()?;
    if superblock.geometry().has_undo() {
        let boot = if given_up.is_some() { [0; 16] } else { boot };
        let settled = undo::open(pool, &superblock, boot, false);
        forget_replica(pool, &superblock);
        return match settled {
            // Tools that look at the bytes next will report the damage or mend it.
            Ok(_) | Err(Error::Damaged { .. } | Error::Unreadable(_)) => Ok(FoundImage::None),
            Err(error) => Err(error),
        };
    }
    if !superblock.geometry().is_logged() {
        return Ok(FoundImage::None);
    }
    if let Some(strays) = given_up {
        redo::forget_image(pool, &superblock, boot, strays)?;
        return Ok(FoundImage::None);
    }
    let how = Loading {
        boot,
        ..Loading::alone()
    };
    Ok(redo::load(pool, &superblock, &how)?.1)
}

/// Discards the image of a logged pool as [`settle_image`] does. Also discards images of files that
/// are gone and of which this one is a copy.
///
/// # Errors
/// Fails as [`settle_image`].
pub(crate) fn give_up_image(pool: &MappedPool, place: &ImageLocation) -> Result<FoundImage> {
    let dirs = place.searched();
    let found = settle_image(pool, boot_id(), Some(&dirs))?;
    let superblock = read_superblock(pool)?;
    if superblock.geometry().is_logged() {
        for dir in &dirs {
            pool.forget_images_of_gone(&ImageKey {
                dir,
                uuid: superblock.uuid,
                boot: boot_id(),
            });
        }
    }
    Ok(found)
}

/// Checks that tools may rewrite the superblock of a pool, which is mapped for reading only, with
/// or without data on other devices. Returns its phase.
///
/// # Errors
/// Fails if a conversion or a repair is unfinished, or on damage.
pub(crate) fn check_at_rest<P: PoolMemory>(pool: &P) -> Result<Option<PoolPhase>> {
    let superblock = read_superblock(pool)?;
    superblock.check_writable()?;
    let geometry = superblock.geometry();
    if geometry.is_logged() {
        let how = Loading {
            read_only: true,
            metadata_only: true,
            ..Loading::alone()
        };
        redo::load(pool, &superblock, &how)?;
    }
    if geometry.has_undo() {
        undo::open(pool, &superblock, [0; 16], true)?;
    }
    let word = StateWord(pool.load(geometry.state_at + PoolState::WORD, Ordering::Acquire));
    if word.conversion().is_some() {
        return Err(Error::Converting);
    }
    match word.get() {
        Some((phase, _)) => Ok(Some(phase)),
        None => Err(Error::damaged(
            "state word",
            Location::Offset(geometry.state_at),
        )),
    }
}

/// Opens a pool: loads its log or undo log, recovers it if it was not closed cleanly, and builds
/// the arena in memory from `make_arena`.
///
/// # Errors
/// Fails if the bytes are no pool, of a later format or damaged, or if memory is short.
pub fn attach<M: Memories>(
    pool: M::Pool,
    make_arena: impl FnOnce(u64) -> Result<M::Arena>,
    options: MountOptions,
) -> Result<(Arc<Fs<M>>, Opened)> {
    let superblock = read_whole(&pool)?;
    if !options.read_only {
        superblock.check_writable()?;
    }
    let geometry = superblock.geometry();
    if superblock.is_sparse() && !options.read_only {
        // A snapshot has no space for the metadata that it does not use yet.
        pool.provide(0, geometry.data_at)?;
        pool.provide(geometry.last_copy_at, BLOCK_BYTES)?;
    }
    let namespace = namespace::new::<M>(geometry.namespace);
    let most = match options.read_only || !options.may_grow {
        true => geometry.blocks(),
        false => most_blocks(&pool, &geometry),
    };
    let logs = load_logs(&pool, (&superblock, most), &options)?;
    let last = LastUse::read(&pool, &geometry, options.read_only)?;
    let pool_epoch = last.epoch.wrapping_add(1) & 0xFF_FFFF;

    let map = plan_arena(&geometry, most, options.cache_entries);
    let arena = make_arena(map.bytes)?;
    let core: Core<M> = Core {
        pool,
        arena,
        geometry,
        map,
        seed: superblock.hash_seed,
        pool_epoch,
        clock: options.clock,
        read_only: options.read_only,
        access_times: options.access_times,
        commits: logs.commits.filter(|_| !options.read_only),
        leases: Leases::default(),
        sparse: (superblock.is_sparse() && !options.read_only).then(|| Sparse::new(map.provided)),
    };
    core.arena.store(header::EPOCH, GRACE, Ordering::Relaxed);
    note_chunks(&core)?;
    namespace.check_pool(&core, last.was_clean())?;
    let mapping = mapping::new::<M>(
        map.mapping,
        (&geometry, most),
        core.seed,
        core.table_plan()?,
    );
    let mapping = Timed::by(options.mapping_timer, mapping);

    let mut opened = Opened {
        was_clean: last.was_clean(),
        other_boot: is_other_boot(last.boot, options.boot_id, last.epoch),
        records_applied: 0,
        orphans_freed: 0,
        image: logs.image.unwrap_or_default(),
        granules_rolled_back: logs.granules_rolled_back.unwrap_or_default(),
    };
    let structures = (&*namespace, &*mapping);
    let (boot, threads) = (options.boot_id, options.recovery_threads);
    build_state(&core, structures, (boot, threads), &mut opened)?;
    core.raise_cachelet_limit(if core.read_only {
        core.map.cachelet_count
    } else {
        namespace.cachelets_kept(&core)
    });
    mark_open(&core, options.boot_id, pool_epoch)?;
    if !core.read_only {
        core.check_media()?;
    }
    core.reserve_ahead();
    if let (Some(log), Some(disk)) = (core.log(), core.pool.disk()) {
        log.name_image(disk)?;
    }
    let root = core.load_cachelet(&core.op_begin()?, ROOT_SLOT)?;
    core.add_refs(root, REF_ONE);
    let fs = Fs {
        reading: Reading::new(core.pool.kind()),
        roots_large: options.roots_large,
        durability: options.durability,
        commit_every: options.commit_every,
        core,
        namespace,
        mapping,
        superblock: RwLock::new(superblock),
        growth: Mutex::default(),
        most_blocks: most,
        root,
    };
    fs.load_quotas()?;
    Ok((Arc::new(fs), opened))
}

/// What the logs of a pool give an opening.
struct Logs {
    commits: Option<Commits>,
    /// The image that a killed process left, of a logged pool.
    image: Option<FoundImage>,
    /// Undo granules that were rolled back, of a split pool.
    granules_rolled_back: Option<u64>,
}

/// Loads the redo log or the undo log of a pool, if it has one. The pool may come to have
/// `most_blocks` data blocks.
fn load_logs<P: PoolMemory>(
    pool: &P,
    (superblock, most_blocks): (&Superblock, u64),
    options: &MountOptions,
) -> Result<Logs> {
    let geometry = superblock.geometry();
    let loading = Loading {
        read_only: options.read_only,
        metadata_only: false,
        image: &options.image,
        boot: options.boot_id,
        attach: options.attach,
    };
    let loaded = geometry
        .is_logged()
        .then(|| redo::load(pool, superblock, &loading))
        .transpose()?;
    let (log, image) = loaded.unzip();
    let rolled_back = geometry
        .has_undo()
        .then(|| undo::open(pool, superblock, options.boot_id, options.read_only))
        .transpose()?;
    let (undo_log, granules_rolled_back) = rolled_back.unzip();
    Ok(Logs {
        commits: log
            .map(|log| Commits::Log(Box::new(log.naming(most_blocks))))
            .or_else(|| undo_log.map(Commits::UndoLog)),
        image,
        granules_rolled_back,
    })
}

/// How the last use of a pool left it.
struct LastUse {
    phase: PoolPhase,
    epoch: u32,
    /// The boot id of the last opener for writing.
    boot: [u8; 16],
}

impl LastUse {
    /// Reads the state block.
    ///
    /// # Errors
    /// Fails if a conversion is unfinished. Fails if a repair is unfinished or the state word is
    /// damaged, unless the pool is opened for reading: everything is then scanned, as after a
    /// crash.
    fn read<P: PoolMemory>(pool: &P, geometry: &Geometry, read_only: bool) -> Result<Self> {
        let word = StateWord(pool.load(geometry.state_at + PoolState::WORD, Ordering::Acquire));
        if word.conversion().is_some() {
            return Err(Error::Converting);
        }
        let unknown = read_only.then_some((PoolPhase::Dirty, 0));
        let what = match word.repair() {
            Some(_) => "state word: a repair was not finished,",
            None => "state word",
        };
        let (phase, epoch) = word
            .get()
            .or(unknown)
            .ok_or(Error::damaged(what, Location::Offset(geometry.state_at)))?;
        let mut boot = [0; 16];
        pool.read(geometry.state_at + PoolState::BOOT_ID, &mut boot);
        Ok(Self { phase, epoch, boot })
    }

    fn was_clean(&self) -> bool {
        self.phase == PoolPhase::Clean
    }
}

/// Builds the volatile state of the mapping and the namespace: from what the last close saved, or
/// by recovery.
fn build_state<M: Memories>(
    core: &Core<M>,
    structures: (&dyn Namespace<M>, &dyn Mapping<M>),
    (boot, threads): ([u8; 16], usize),
    opened: &mut Opened,
) -> Result<()> {
    // A pool opened for reading is mapped copy-on-write, so recovery may change these bytes.
    if opened.was_clean && load_live_map(core) {
        check_root(core)?;
        let (_, mapping) = structures;
        return match mapping.restore(core) {
            true => Ok(()),
            false => rebuild(core, mapping, &Everything(core)),
        };
    }
    if !core.read_only && opened.other_boot {
        // If this process is killed in recovery, the next one must not take what it stored for
        // durable. Not flushed: the boot id matters under this boot only.
        let at = core.geometry.state_at + PoolState::BOOT_ID;
        core.pool.write(at, &boot);
    }
    recover_all(core, structures, threads, opened)
}

/// Replays journals, scans the pool, and rebuilds the mapping's allocator state. A damaged pool is
/// refused for writing. For reading it is opened as it is, and damaged structures return errors
/// when they are reached.
fn recover_all<M: Memories>(
    core: &Core<M>,
    (namespace, mapping): (&dyn Namespace<M>, &dyn Mapping<M>),
    threads: usize,
    opened: &mut Opened,
) -> Result<()> {
    // A log has brought everything back to the medium, and undo records have been rolled back or
    // flushed. So only pools without either have bytes in caches only.
    let inherits = !core.read_only && !opened.other_boot && core.commits.is_none();
    if inherits {
        inherit(core);
    }
    let witness = |entry_at| namespace.witnessed(core, entry_at).map(u64::from);
    let replayed = (0..core.geometry.thread_slots).try_for_each(|slot| {
        opened.records_applied += u64::from(journal::recover_slot(core, &witness, slot)?);
        Ok(())
    });
    let replayed = replayed.and_then(|()| namespace.replay(core));
    check_root(core)?;
    match replayed.and_then(|()| recover::recover(core, namespace, threads)) {
        Ok(recovery) => {
            opened.orphans_freed = recovery.freed();
            rebuild(core, mapping, &recovery)?;
            if inherits {
                inherit_overwrites(core, mapping)?;
            }
            Ok(())
        }
        Err(error @ Error::Damaged { .. }) if core.read_only => {
            tracing::warn!(%error, "the pool is damaged; what can be read of it is shown");
            rebuild(core, mapping, &Everything(core))
        }
        Err(error) => Err(error),
    }
}

/// Builds the mapping's volatile state, in which the blocks of metadata chunks are not free.
fn rebuild<M: Memories>(
    core: &Core<M>,
    mapping: &dyn Mapping<M>,
    survey: &dyn Survey,
) -> Result<()> {
    mapping.rebuild(core, survey)?;
    core.chunks_in_data().try_for_each(|chunk| {
        let blocks = core.geometry.blocks_of_chunk(chunk);
        match mapping.allocator().keep_for_metadata(core, blocks) {
            Err(Error::Damaged { .. }) if core.read_only => Ok(()),
            kept => kept,
        }
    })
}

/// Keeps everything: what a clean close left, or a damaged pool that is only read.
struct Everything<'a, M: Memories>(&'a Core<M>);

impl<M: Memories> Survey for Everything<'_, M> {
    fn judge(&self, _: MapId, _: u32, _: MapState) -> Verdict {
        Verdict::Keep
    }

    fn for_each_file(&self, each: &mut dyn FnMut(MapId) -> Result<()>) -> Result<()> {
        for_each_file(self.0, each)
    }

    fn marks_slots(&self) -> bool {
        false
    }
}

/// Data blocks that a pool may come to have while it is open.
fn most_blocks<P: PoolMemory>(pool: &P, geometry: &Geometry) -> u64 {
    let bytes = pool.own_bytes().saturating_add(pool.spare_bytes());
    let most = geometry.data_at + BLOCKS_MAX * BLOCK_BYTES;
    let grown = geometry.grown(bytes.min(most));
    grown.map_or(geometry.blocks(), |grown| grown.blocks())
}

/// Returns the layout of the arena of a pool, with space for `cache_entries` entries and inodes.
fn plan_arena(geometry: &Geometry, most_blocks: u64, cache_entries: u64) -> ArenaMap {
    let entries = ArenaMap::entries(geometry, cache_entries);
    let own = OwnBytes {
        locks: crate::fs::locks::arena_bytes(entries),
        namespace: namespace::arena_bytes(geometry, entries),
        provided: Sparse::arena_bytes(most_blocks),
        mapping: mapping::arena_bytes(geometry, most_blocks),
    };
    ArenaMap::plan(geometry, entries, own)
}

/// Flushes what a killed process left in the caches of a machine that kept running. Recovery and a
/// later clean close rely on it, so a power cut must not undo it.
fn inherit<M: Memories>(core: &Core<M>) {
    let geometry = &core.geometry;
    let slots = geometry.slots_per_chunk();
    let taken = geometry
        .chunks()
        .filter(|number| core.kind_of_slot((number * slots).max(1)).is_some())
        .map(|number| (geometry.chunk_at(number), geometry.chunk_bytes));
    let before = (geometry.slots_at, geometry.meta_at - geometry.slots_at);
    let table = (
        geometry.table_at,
        geometry.saved_state_at - geometry.table_at,
    );
    for (at, len) in taken.chain([before, table]) {
        core.pool.flush(sites::RECOVER_INHERITED, at, len);
    }
    core.pool.fence(sites::RECOVER_INHERITED_DURABLE);
}

/// Checks the root directory, the only inode in use without a name.
fn check_root<M: Memories>(core: &Core<M>) -> Result<()> {
    let mut root = Inode::default();
    core.pool
        .read(core.geometry.slot_at(ROOT_SLOT), root.as_mut_bytes());
    check_inode(ROOT_SLOT, &root, &core.geometry)?;
    let identity = IdentityWord(root.identity);
    if (identity.state(), identity.kind()) != (Some(InodeState::Live), Some(FileKind::Directory))
        || root.parent != ROOT_SLOT
    {
        let place = Location::Inode(ROOT_SLOT);
        return Err(Error::damaged("the root directory", place));
    }
    Ok(())
}

/// Marks the pool as open, durably, and voids what a close saved. On a medium that writes back at
/// any time, later changes must not arrive before this. What recovery stored becomes durable with
/// it; until then recovery would repeat it, whatever part of it arrived.
fn mark_open<M: Memories>(core: &Core<M>, boot_id: [u8; 16], epoch: u32) -> Result<()> {
    journal::forget_checksums(core);
    let at = core.geometry.state_at;
    core.pool.write(at + PoolState::BOOT_ID, &boot_id);
    core.set_word(at + PoolState::PID, u64::from(std::process::id()));
    core.set_word(at + PoolState::OPENED, core.clock.now() as u64);
    // Stored last of the words in its line.
    let word = StateWord::new(PoolPhase::Dirty, epoch);
    core.set_word(at + PoolState::WORD, word.0);
    core.pool.flush(sites::OPEN_STATE, at, 8);
    core.pool.fence(sites::OPEN_DURABLE);
    core.make_durable(None)
}

/// The check of the counters that a clean close saves beside the live map.
pub(crate) fn saved_check(epoch: u32, map_check: u64, inodes: u64, blocks: u64) -> u64 {
    let words = [u64::from(epoch), map_check, inodes, blocks];
    u64::from(checksum_words(&words))
}

/// CRC-32C of the words of the live map in the pool that are saved.
pub(crate) fn live_map_check<M: Memories>(core: &Core<M>) -> u64 {
    let mut sum = Summing::default();
    for range in core.live_words() {
        let mut words = vec![0u64; (range.end - range.start) as usize];
        let at = core.geometry.live_map_at + range.start * 8;
        core.pool.read(at, words.as_mut_bytes());
        sum.add_words(&words);
    }
    u64::from(sum.finish())
}

/// Loads the live map that a clean close saved. Returns `false` if it is not valid.
fn load_live_map<M: Memories>(core: &Core<M>) -> bool {
    let state_at = core.geometry.state_at;
    let word = |field| core.word(state_at + field);
    let (map_check, inodes, blocks) = (
        word(PoolState::LIVE_MAP_CHECK),
        word(PoolState::INODES),
        word(PoolState::BLOCKS),
    );
    // It was saved in the epoch before this opening's.
    let epoch = core.pool_epoch.wrapping_sub(1) & 0xFF_FFFF;
    if word(PoolState::SAVED_CHECK) != saved_check(epoch, map_check, inodes, blocks)
        || map_check != live_map_check(core)
    {
        return false;
    }
    for index in core.live_words().into_iter().flatten() {
        let saved = core.word(core.geometry.live_map_at + index * 8);
        let at = core.map.used + index * 8;
        let fresh = saved & !core.arena.fetch_or(at, saved);
        // If chunks are small, a word may span chunks of two kinds.
        for half in 0..2 {
            let count = u64::from(((fresh >> (32 * half)) as u32).count_ones());
            let slot = (index * 64 + 32 * half).max(1);
            if let (1.., Some(kind)) = (count, core.kind_of_slot(slot)) {
                let free_at = header::FREE_SLOTS + kind as u64 * 8;
                core.arena.fetch_add(free_at, count.wrapping_neg());
            }
        }
    }
    core.set_total(Tally::Inodes, inodes);
    true
}
