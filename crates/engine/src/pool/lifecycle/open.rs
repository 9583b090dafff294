//! Opening a pool: superblock, state, live map or recovery, arena.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vellum_layout::{
    FileKind, Geometry, IdentityWord, Inode, InodeState, MapState, PoolPhase, PoolState, ROOT_SLOT,
    ReplicaPlan, StateWord, Superblock, checksum_words,
};
use vellum_media::{ImageKey, MappedPool, Memories, Memory, Persistent};
use zerocopy::IntoBytes;

use super::inherit::inherit_overwrites;
use crate::core::OwnBytes;
use crate::core::access_times::AccessTimes;
use crate::core::cachelet::{REF_ONE, check_inode};
use crate::core::inodes::{for_each_file, note_chunks};
use crate::core::lease::Leases;
use crate::core::slots::{GRACE, Tally};
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

/// How often a pool that commits does so, if nobody asks for it and nothing else is said.
pub(crate) const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// How to open a pool.
#[derive(Debug)]
pub struct MountOptions {
    /// Nothing is changed.
    pub read_only: bool,
    /// Names and files that the arena can hold at once.
    pub cache_entries: u64,
    /// Threads that recovery may use.
    pub recovery_threads: usize,
    /// Where the time comes from.
    pub clock: Clock,
    /// Identity of this boot, remembered in the pool; zero: unknown.
    pub boot_id: [u8; 16],
    /// Where the metadata of a logged pool are worked on.
    pub image: ImageLocation,
    /// Identity of this opening's image, drawn for it.
    pub attach: [u8; 16],
    /// Collects the time that is spent in the mapping.
    pub mapping_timer: Option<Arc<MappingTimer>>,
    /// Where names are kept in areas, a large directory becomes the root of one before it is
    /// renamed.
    pub roots_large: bool,
    /// When reading moves access times.
    pub access_times: AccessTimes,
    /// What is durable when an operation returns.
    pub durability: Durability,
    /// How often whoever has it open commits, if nobody asks for it: for those who ask what is lost
    /// otherwise.
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
            durability: Durability::default(),
            commit_every: COMMIT_INTERVAL,
        }
    }
}

/// How a pool was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// It had been closed in order.
    pub was_clean: bool,
    /// It was last open under another boot (a power cut or kernel crash, if it was not clean).
    pub other_boot: bool,
    /// Journal records that were applied.
    pub records_applied: u64,
    /// Files without names that were freed.
    pub orphans_freed: u64,
    /// What became of the metadata that the process before had in memory, if the pool is logged.
    pub image: FoundImage,
    /// Pieces of 128 bytes of metadata in persistent memory that were taken back, because what
    /// changed them had not been committed with its data.
    pub granules_rolled_back: u64,
}

/// Whether the last opener for writing was of another boot, so that nothing can be in the caches
/// only. Where one of the two boots is unknown, they may be the same. Nobody has opened a pool of
/// epoch 0 yet.
fn is_other_boot(last: [u8; 16], now: [u8; 16], epoch: u32) -> bool {
    let unknown = [0; 16];
    last != now && now != unknown && (last != unknown || epoch == 0)
}

/// The superblock of a pool that has all its bytes, those of its data too.
fn read_whole<P: Persistent>(pool: &P) -> Result<Superblock> {
    let found = read_superblock(pool)?;
    let geometry = found.geometry();
    let replica = ReplicaPlan::of(&geometry).map_or(0, |plan| plan.bytes());
    let data_end = geometry.data_at + geometry.data_bytes() + replica;
    if geometry.external.is_some() && data_end > pool.len() {
        return Err(MediumError::Unknown.into());
    }
    Ok(found)
}

/// Takes what a killed process left of a logged pool in memory into its log, for whoever looks at
/// the pool's bytes next; or, where it is `given_up`, forgets it, and what lies in these
/// directories of a later time than the pool's file.
///
/// # Errors
/// As for [`attach`], as far as the log goes.
pub(crate) fn settle_image<P: Persistent>(
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
            // Who looks at the bytes next finds the damage, and whoever may mend it does.
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

/// Forgets what a killed process left of a logged pool in memory, as [`settle_image`] does; also
/// what is of a file that this one is a copy of, and that is gone.
///
/// # Errors
/// As there.
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

/// Whether tools may rewrite the superblock of a pool, which is mapped for reading only, with or
/// without data that lie elsewhere; gives its phase, if it is not one of a repair.
///
/// # Errors
/// What decides on its bytes has not been finished, or damage.
pub(crate) fn check_at_rest<P: Persistent>(pool: &P) -> Result<Option<PoolPhase>> {
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

/// Opens a pool: replays what was under way, recovers if it was not closed in order, and builds
/// the arena that `make_arena` provides.
///
/// # Errors
/// Not a pool, a later format, damage, no memory.
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
    let namespace = namespace::new::<M>(geometry.namespace);
    let loading = Loading {
        read_only: options.read_only,
        metadata_only: false,
        image: &options.image,
        boot: options.boot_id,
        attach: options.attach,
    };
    let loaded = geometry
        .is_logged()
        .then(|| redo::load(&pool, &superblock, &loading))
        .transpose()?;
    let (log, image) = loaded.unzip();
    let taken_back = geometry
        .has_undo()
        .then(|| undo::open(&pool, &superblock, options.boot_id, options.read_only))
        .transpose()?;
    let (versions, granules_rolled_back) = taken_back.unzip();
    let commits = log
        .map(|log| Commits::Log(Box::new(log)))
        .or_else(|| versions.map(Commits::UndoLog));
    let state_word = StateWord(pool.load(geometry.state_at + PoolState::WORD, Ordering::Acquire));
    if state_word.conversion().is_some() {
        return Err(Error::Converting);
    }
    // Whoever only reads can do without the word: everything is scanned, as after a crash.
    let unknown = options.read_only.then_some((PoolPhase::Dirty, 0));
    let what = match state_word.repair() {
        Some(_) => "state word: a repair was not finished,",
        None => "state word",
    };
    let (phase, epoch) = state_word
        .get()
        .or(unknown)
        .ok_or(Error::damaged(what, Location::Offset(geometry.state_at)))?;
    let mut last_boot = [0; 16];
    pool.read(geometry.state_at + PoolState::BOOT_ID, &mut last_boot);
    let pool_epoch = epoch.wrapping_add(1) & 0xFF_FFFF;

    let map = plan_arena(&geometry, options.cache_entries);
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
        commits: commits.filter(|_| !options.read_only),
        leases: Leases::default(),
    };
    core.arena.store(header::EPOCH, GRACE, Ordering::Relaxed);
    note_chunks(&core)?;
    namespace.check_pool(&core, phase == PoolPhase::Clean)?;
    let mapping = mapping::new::<M>(map.mapping, &geometry, core.seed, core.table_plan()?);
    let mapping = Timed::by(options.mapping_timer, mapping);

    let mut opened = Opened {
        was_clean: phase == PoolPhase::Clean,
        other_boot: is_other_boot(last_boot, options.boot_id, epoch),
        records_applied: 0,
        orphans_freed: 0,
        image: image.unwrap_or_default(),
        granules_rolled_back: granules_rolled_back.unwrap_or_default(),
    };
    // A pool that is only read is mapped copy-on-write, so recovery may work on it all the same.
    let saved = opened.was_clean && load_live_map(&core);
    if saved {
        check_root(&core)?;
        if !mapping.restore(&core) {
            mapping.rebuild(&core, &Everything(&core))?;
        }
    } else {
        if !core.read_only && opened.other_boot {
            // If this process is killed while it recovers, the next one must not take what it
            // stored for durable. Not flushed: it says something under this boot only.
            let at = core.geometry.state_at + PoolState::BOOT_ID;
            core.pool.write(at, &options.boot_id);
        }
        let rooms = (&*namespace, &*mapping);
        recover_all(&core, rooms, options.recovery_threads, &mut opened)?;
    }
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
        superblock,
        root,
    };
    Ok((Arc::new(fs), opened))
}

/// Replays journals, scans, rebuilds the mapping's aids. Damage refuses the pool for writing; for
/// reading it is taken as it is, and whatever is damaged says so when it is reached.
fn recover_all<M: Memories>(
    core: &Core<M>,
    (namespace, mapping): (&dyn Namespace<M>, &dyn Mapping<M>),
    threads: usize,
    opened: &mut Opened,
) -> Result<()> {
    // What a log brought back is in no cache only, and what versions did not take back is not any
    // more.
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
            mapping.rebuild(core, &recovery)?;
            if inherits {
                inherit_overwrites(core, mapping)?;
            }
            Ok(())
        }
        Err(error @ Error::Damaged { .. }) if core.read_only => {
            tracing::warn!(%error, "the pool is damaged; what can be read of it is shown");
            mapping.rebuild(core, &Everything(core))
        }
        Err(error) => Err(error),
    }
}

/// Everything is as it should be: what a clean close left, or what has to be taken as it is.
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

/// Lays out the arena of a pool, which holds up to `cache_entries` entries and inodes.
fn plan_arena(geometry: &Geometry, cache_entries: u64) -> ArenaMap {
    let entries = ArenaMap::entries(geometry, cache_entries);
    let own = OwnBytes {
        namespace: namespace::arena_bytes(geometry, entries),
        mapping: mapping::arena_bytes(geometry),
    };
    ArenaMap::plan(geometry, entries, own)
}

/// Makes durable what a process that was killed left in the caches of a machine that ran on.
/// Recovery sees it and builds upon it, a clean close too, so that a later power cut must not take
/// it back.
fn inherit<M: Memories>(core: &Core<M>) {
    let geometry = &core.geometry;
    let (chunk, slots) = (geometry.chunk_bytes, geometry.slots_per_chunk());
    let taken = (0..geometry.meta_chunks)
        .filter(|number| core.kind_of_slot((number * slots).max(1)).is_some())
        .map(|number| (geometry.meta_at + number * chunk, chunk));
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

/// The root directory is the one inode that is in use without being named.
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

/// Says durably that the pool is open, by whom, and that what a close saved is void: on a medium
/// that writes back when it likes, what changes from now on must not reach it before this. What
/// recovery did becomes durable with it; until then recovery would do the same again, whatever part
/// of it arrived.
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

/// The check of what a clean close saved beside the live map.
pub(crate) fn saved_check(epoch: u32, map_check: u64, inodes: u64, blocks: u64) -> u64 {
    let words = [u64::from(epoch), map_check, inodes, blocks];
    u64::from(checksum_words(&words))
}

/// CRC-32C of the live map in the pool.
pub(crate) fn live_map_check<M: Memories>(core: &Core<M>) -> u64 {
    let geometry: &Geometry = &core.geometry;
    let mut words = vec![0u64; geometry.meta_slots().div_ceil(64) as usize];
    core.pool.read(geometry.live_map_at, words.as_mut_bytes());
    u64::from(checksum_words(&words))
}

/// Takes the live map that a clean close saved; `false` if it is not sound.
fn load_live_map<M: Memories>(core: &Core<M>) -> bool {
    let state_at = core.geometry.state_at;
    let word = |field| core.word(state_at + field);
    let (map_check, inodes, blocks) = (
        word(PoolState::LIVE_MAP_CHECK),
        word(PoolState::INODES),
        word(PoolState::BLOCKS),
    );
    // It was saved under the epoch before this opening's.
    let epoch = core.pool_epoch.wrapping_sub(1) & 0xFF_FFFF;
    if word(PoolState::SAVED_CHECK) != saved_check(epoch, map_check, inodes, blocks)
        || map_check != live_map_check(core)
    {
        return false;
    }
    for index in 0..core.geometry.meta_slots().div_ceil(64) {
        let saved = core.word(core.geometry.live_map_at + index * 8);
        let at = core.map.used + index * 8;
        let fresh = saved & !core.arena.fetch_or(at, saved);
        // A word may span chunks of two kinds where chunks are small.
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
