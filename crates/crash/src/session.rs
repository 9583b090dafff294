//! A file system under a workload: it does what the model's operations say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use vellum::experiments::{MappingAlone, set_table_aside, settle, write_table};
use vellum::{
    Access, Allocate, Clock, Cred, DataApart, Error, FileKind, FormatOptions, Fs, Handle,
    ImagePlace, ListPosition, MappingKind, MountOptions, NamespaceKind, Node, OpenOptions,
    RenameFlags, SetAttr, SetTime, attach, format, prefer_thread_slot,
};
use vellum_layout::{AddedZone, BLOCK_BYTES, table_chunks};
use vellum_media::{SimImages, SimPool};
use vellum_model::{Kind, Op, Range, TimeSet, pattern};

use crate::memories::{Explored, Kit, Shared};
use crate::workload::{BlocksAlone, Ground, Step, Workload};

/// Bytes of the pools that workloads run on.
pub(crate) const POOL_BYTES: u64 = 1 << 20;
/// The part of a pool that is the data's, where these have a disk of their own.
pub(crate) const DATA_APART: DataApart = DataApart {
    id: [9; 16],
    at: BLOCK_BYTES,
    data_bytes: POOL_BYTES,
    carried_bytes: 0,
};
/// The zone that is added to those that grow.
const ADDED: AddedZone = AddedZone {
    id: [10; 16],
    at: BLOCK_BYTES,
    blocks: 64,
};
/// Bytes behind them for a copy of the metadata, where there is one.
const CARRIED_BYTES: u64 = POOL_BYTES / 2;
/// Where the clock of workloads starts: 2026-01-01 in nanoseconds since 1970.
pub(crate) const CLOCK_START: i64 = 1_767_225_600_000_000_000;
/// How much later the clock starts at each opening.
const CLOCK_STEP: i64 = 1_000_000;
/// Openings within so many nanoseconds of the clock are under one boot: nothing was lost between
/// them.
const CLOCK_BOOT: i64 = 1_000_000_000;
/// Openings of a workload, at most: the process after it is told apart by its times.
const OPENINGS_MAX: i64 = 500;
/// Where the clock starts after a crash.
pub(crate) const CLOCK_AFTER: i64 = CLOCK_START + 1_000_000_000;

/// The user and group of steps that are not the superuser's.
pub(crate) const USER: u32 = 1000;

/// What engine operations give here.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// A file system of the explorer.
pub(crate) type ExploredFs = Arc<Fs<Explored>>;

/// A file system that may be open, with the handles that the workload holds.
pub(crate) struct Session<M: Kit = Explored> {
    pool: Shared,
    fs: Option<Arc<Fs<M>>>,
    /// What a kill leaves of a pool with a log.
    images: Arc<SimImages>,
    slots: BTreeMap<u8, Handle<M>>,
    cache_entries: u64,
    cred: Cred,
    openings: i64,
}

impl Ground {
    /// Bytes of the pool as it was made; where the data have a disk of their own, that is its last
    /// part.
    pub(crate) fn pool_bytes(self) -> u64 {
        match self {
            Self::Memory => POOL_BYTES,
            Self::Logged | Self::Apart | Self::Grown => 2 * POOL_BYTES,
            Self::Split => 5 * POOL_BYTES / 2,
        }
    }

    /// Bytes of metadata, beside which the log takes as much, and versions three times as much;
    /// `None`: what is usual.
    pub(crate) fn metadata_bytes(self) -> Option<u64> {
        match self {
            Self::Memory => None,
            _ => Some(POOL_BYTES / 4),
        }
    }
}

/// The pool that a workload begins with.
pub(crate) fn image_of(workload: &Workload) -> Vec<u8> {
    let carried_bytes = if workload.carries() { CARRIED_BYTES } else { 0 };
    let (mapping, namespace) = (workload.mapping, workload.namespace);
    blank_image_with(carried_bytes, 2, (mapping, namespace), workload.ground)
}

/// A formatted pool of so many thread slots, whose every other byte is what earlier owners left.
pub(crate) fn blank_image(
    thread_slots: u32,
    mapping: MappingKind,
    namespace: NamespaceKind,
    ground: Ground,
) -> Vec<u8> {
    blank_image_with(0, thread_slots, (mapping, namespace), ground)
}

/// The same with so many bytes for a copy of the metadata.
fn blank_image_with(
    carried_bytes: u64,
    thread_slots: u32,
    (mapping, namespace): (MappingKind, NamespaceKind),
    ground: Ground,
) -> Vec<u8> {
    let bytes = ground.pool_bytes() + carried_bytes;
    let stale: Vec<u8> = (0..bytes / 8)
        .flat_map(|word| (word | 0xDEAD_BEEF_0000_0000).to_le_bytes())
        .collect();
    let pool = SimPool::from_image(stale);
    let options = FormatOptions {
        thread_slots: Some(thread_slots),
        mapping,
        namespace,
        metadata_bytes: ground.metadata_bytes(),
        is_logged: ground.is_logged(),
        apart: ground.is_apart().then_some(DataApart {
            carried_bytes,
            ..DATA_APART
        }),
        uuid: [7; 16],
        hash_seed: 0x5EED,
        now_ns: CLOCK_START,
        known_zero: false,
        ..FormatOptions::default()
    };
    format(&pool, &options).expect("the smallest pool can be made");
    match ground {
        Ground::Grown => grown(&pool.image()).expect("a new pool has room for one more zone"),
        _ => pool.image(),
    }
}

/// The pool with one more zone, behind its bytes.
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
        .with_zone(ADDED)
        .expect("the second of eight");
    drop(fs);
    session.step(&Step::parse("close-pool"))?;
    let added = vec![0xAD; (ADDED.blocks * BLOCK_BYTES) as usize];
    let pool = SimPool::from_image([pool.0.image(), added].concat());
    write_table(&pool, &larger)?;
    Ok(pool.image())
}

/// Opens what `pool` holds, as another boot does. The same operations of this thread do the same
/// from here on.
pub(crate) fn mount<M: Kit>(pool: &Shared, cache_entries: u64, clock: i64) -> Result<Arc<Fs<M>>> {
    mount_with_arena(pool, None, (cache_entries, clock), M::arena)
}

/// The same, in the arena that `make_arena` makes of so many bytes, and with `images` that outlive
/// processes.
pub(crate) fn mount_with_arena<M: Kit>(
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
            Some(_) => ImagePlace::Shared,
            None => ImagePlace::Process,
        },
        attach: clock.to_le_bytes().repeat(2).try_into().unwrap_or_default(),
        ..MountOptions::default()
    };
    prefer_thread_slot(0);
    let make_arena = |bytes| Ok(make_arena(bytes));
    attach::<M>(M::pool(pool, images), make_arena, options).map(|(fs, _)| fs)
}

impl<M: Kit> Session<M> {
    /// A session on a pool that is closed.
    pub(crate) fn new(pool: Shared, cache_entries: u64) -> Self {
        Self {
            pool,
            fs: None,
            images: Arc::default(),
            slots: BTreeMap::new(),
            cache_entries,
            cred: Cred::root(),
            openings: 0,
        }
    }

    /// A session of the process that comes, under the same boot, after one that was killed and left
    /// so much in memory.
    pub(crate) fn after_kill(pool: Shared, cache_entries: u64, images: Arc<SimImages>) -> Self {
        Self {
            openings: OPENINGS_MAX,
            images,
            ..Self::new(pool, cache_entries)
        }
    }

    /// A session of another thread with the same file system, and with no handles.
    pub(crate) fn share(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            fs: self.fs.clone(),
            images: Arc::clone(&self.images),
            slots: BTreeMap::new(),
            cache_entries: self.cache_entries,
            cred: self.cred.clone(),
            openings: self.openings,
        }
    }

    /// The file system, if it is open.
    pub(crate) fn fs(&self) -> Option<&Arc<Fs<M>>> {
        self.fs.as_ref()
    }

    /// Does a step.
    pub(crate) fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Op(op) | Step::Full(op) => self.apply(op),
            Step::User(op) => {
                self.cred = Cred::user(USER, USER);
                let done = self.apply(op);
                self.cred = Cred::root();
                done
            }
            Step::Together(ops) => self.set(ops.iter()),
            Step::Blocks(blocks) => self.give_and_take(blocks),
            Step::Maintain => {
                let fs = self.open_fs()?;
                while fs.maintain()? > 0 {}
                Ok(())
            }
            Step::Split(dir) | Step::Merge(dir) => {
                let fs = self.open_fs()?;
                let dir = fs.find(&self.cred, &fs.root(), dir.as_bytes(), true)?;
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
            Step::Close => {
                self.slots.clear();
                self.fs.take().map_or(Ok(()), |fs| fs.close())
            }
            Step::Carry => {
                self.slots.clear();
                let fs = self.fs.take();
                fs.map_or(Ok(()), |fs| fs.close_and_carry(false, &|_, _| {}).map(drop))
            }
            Step::Open => self.open(),
            Step::Recover => {
                self.slots.clear();
                self.fs = None;
                self.open()
            }
        }
    }

    fn open(&mut self) -> Result<()> {
        self.openings += 1;
        let clock = CLOCK_START + self.openings * CLOCK_STEP;
        let (images, how) = (Some(&self.images), (self.cache_entries, clock));
        self.fs = Some(mount_with_arena(&self.pool, images, how, M::arena)?);
        Ok(())
    }

    /// The file system, which has to be open.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn open_fs(&self) -> Result<&Arc<Fs<M>>> {
        self.fs
            .as_ref()
            .ok_or(Error::Invalid("the pool is not open"))
    }

    fn slot(&self, slot: u8) -> Result<&Handle<M>> {
        self.slots.get(&slot).ok_or(Error::BadHandle)
    }

    /// Does what `op` says, as the superuser. What it only asks is not told.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<()> {
        let fs = Arc::clone(self.open_fs()?);
        let cred = self.cred.clone();
        let root = fs.root();
        match op {
            Op::Create {
                path,
                mode,
                exclusive,
            } => {
                let options = OpenOptions {
                    write: true,
                    create: true,
                    create_new: *exclusive,
                    mode: *mode as u16,
                    ..OpenOptions::default()
                };
                fs.open(&cred, &root, path, &options).map(drop)
            }
            Op::Mkdir { path, mode } => {
                let (dir, name) = self.parent(path)?;
                fs.mkdir(&cred, &dir, name, *mode as u16).map(drop)
            }
            Op::Mknod {
                path,
                kind,
                mode,
                device,
            } => {
                let (dir, name) = self.parent(path)?;
                let kind = file_kind(*kind);
                fs.mknod(&cred, &dir, name, kind, *mode as u16, *device)
                    .map(drop)
            }
            Op::Symlink { target, path } => {
                let (dir, name) = self.parent(path)?;
                fs.symlink(&cred, &dir, name, target).map(drop)
            }
            Op::Link { from, to } => {
                let file = fs.find(&cred, &root, from, false)?;
                let (dir, name) = self.parent(to)?;
                fs.link(&cred, &file, &dir, name)
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                fs.unlink(&cred, &dir, name)
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                fs.rmdir(&cred, &dir, name)
            }
            Op::Rename { from, to, flags } => {
                let (from_dir, from_name) = self.parent(from)?;
                let (to_dir, to_name) = self.parent(to)?;
                let flags = RenameFlags::from_bits_truncate(*flags);
                fs.rename(&cred, &from_dir, from_name, &to_dir, to_name, flags)
            }
            Op::Truncate { .. } | Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } => {
                self.set(std::iter::once(op))
            }
            Op::Open {
                slot,
                path,
                flags,
                mode,
            } => {
                let handle = fs.open(&cred, &root, path, &open_options(*flags, *mode))?;
                self.slots.insert(*slot, handle);
                Ok(())
            }
            Op::CloseSlot { slot } => self.slots.remove(slot).map(drop).ok_or(Error::BadHandle),
            Op::Write { path, .. } | Op::Append { path, .. } | Op::Fallocate { path, .. } => {
                let options = OpenOptions {
                    write: true,
                    append: matches!(op, Op::Append { .. }),
                    ..OpenOptions::default()
                };
                let handle = fs.open(&cred, &root, path, &options)?;
                on_handle(&handle, op)
            }
            Op::WriteSlot { slot, .. }
            | Op::TruncateSlot { slot, .. }
            | Op::FallocateSlot { slot, .. }
            | Op::FsyncSlot { slot }
            | Op::ReadSlot { slot, .. }
            | Op::StatSlot { slot }
            | Op::ReaddirSlot { slot } => on_handle(self.slot(*slot)?, op),
            Op::Sync => fs.sync(),
            Op::Read { path, .. }
            | Op::Fsync { path }
            | Op::SeekData { path, .. }
            | Op::SeekHole { path, .. }
            | Op::Readdir { path } => {
                let options = OpenOptions {
                    read: true,
                    directory: matches!(op, Op::Readdir { .. }),
                    ..OpenOptions::default()
                };
                on_handle(&fs.open(&cred, &root, path, &options)?, op)
            }
            Op::Readlink { path } => {
                let link = fs.find(&cred, &root, path, false)?;
                fs.read_link(&link).map(drop)
            }
            Op::Stat { path, follow } => fs.stat(&cred, &root, path, *follow).map(drop),
            Op::Times { path } => fs.stat(&cred, &root, path, false).map(drop),
            Op::Access { path, mask } => {
                let node = fs.find(&cred, &root, path, true)?;
                fs.access(&cred, &node, Access::from_bits_truncate(*mask as u8))
            }
        }
    }

    fn give_and_take(&self, blocks: &BlocksAlone) -> Result<()> {
        let fs = self.open_fs()?;
        let path = blocks.path.as_bytes();
        let handle = fs.open(&self.cred, &fs.root(), path, &open_options(libc::O_RDWR, 0))?;
        let (first, count) = (blocks.first, blocks.count);
        let mut alone = MappingAlone::new(&handle)?;
        alone.insert(first, count as usize)?;
        let mut alone = alone.renew()?;
        if alone.remove(first, first + count)? != count {
            return Err(Error::Invalid("blocks that did not come"));
        }
        drop(alone);
        settle(fs);
        Ok(())
    }

    fn parent<'p>(&self, path: &'p [u8]) -> Result<(Node<M>, &'p [u8])> {
        let fs = self.open_fs()?;
        match path.iter().rposition(|&byte| byte == b'/') {
            None | Some(0) => Ok((fs.root(), path.strip_prefix(b"/").unwrap_or(path))),
            Some(cut) => {
                let dir = fs.find(&self.cred, &fs.root(), &path[..cut], true)?;
                Ok((dir, &path[cut + 1..]))
            }
        }
    }

    /// Does what `ops` say of the attributes of one file in one call.
    fn set<'o>(&self, ops: impl Iterator<Item = &'o Op>) -> Result<()> {
        let mut set = SetAttr::default();
        let mut file = None;
        for op in ops {
            let found = attributes(op, &mut set);
            let found = found.ok_or(Error::Invalid("no operation on attributes"))?;
            if *file.get_or_insert(found) != found {
                return Err(Error::Invalid("one call changes one file"));
            }
        }
        let (path, follow) = file.ok_or(Error::Invalid("no operation"))?;
        let fs = self.open_fs()?;
        let node = fs.find(&self.cred, &fs.root(), path, follow)?;
        fs.set_attr(&self.cred, &node, &set).map(drop)
    }
}

/// Adds to `set` what `op` changes; tells of which file, and whether a symbolic link there is
/// followed.
fn attributes<'o>(op: &'o Op, set: &mut SetAttr) -> Option<(&'o [u8], bool)> {
    match op {
        Op::Truncate { path, size } => {
            set.size = Some(*size);
            Some((path, true))
        }
        Op::Chmod { path, mode } => {
            set.mode = Some(*mode as u16);
            Some((path, true))
        }
        Op::Chown {
            path,
            uid,
            gid,
            follow,
        } => {
            (set.uid, set.gid) = (*uid, *gid);
            Some((path, *follow))
        }
        Op::Utimens {
            path,
            atime,
            mtime,
            follow,
        } => {
            (set.atime, set.mtime) = (atime.map(time), mtime.map(time));
            Some((path, *follow))
        }
        _ => None,
    }
}

fn file_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::File,
        Kind::Dir => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
        Kind::CharDevice => FileKind::CharDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
    }
}

/// What the model calls a kind of file.
pub(crate) fn model_kind(kind: FileKind) -> Kind {
    let same = |of: &Kind| file_kind(*of) == kind;
    Kind::ALL.into_iter().find(same).unwrap_or(Kind::File)
}

fn time(time: TimeSet) -> SetTime {
    match time {
        TimeSet::Now => SetTime::Now,
        TimeSet::At(ns) => SetTime::At(ns),
    }
}

fn open_options(flags: i32, mode: u32) -> OpenOptions {
    let has = |flag| flags & flag != 0;
    let access = flags & libc::O_ACCMODE;
    OpenOptions {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        append: has(libc::O_APPEND),
        truncate: has(libc::O_TRUNC),
        create: has(libc::O_CREAT),
        create_new: has(libc::O_CREAT) && has(libc::O_EXCL),
        no_follow: has(libc::O_NOFOLLOW),
        directory: has(libc::O_DIRECTORY),
        no_atime: has(libc::O_NOATIME),
        mode: mode as u16,
    }
}

fn on_handle<M: Kit>(handle: &Handle<M>, op: &Op) -> Result<()> {
    match op {
        Op::Write {
            offset, seed, len, ..
        }
        | Op::WriteSlot {
            offset, seed, len, ..
        } => handle.write_at(*offset, &pattern(*seed, *len)).map(drop),
        Op::Append { seed, len, .. } => handle.append(&pattern(*seed, *len)).map(drop),
        Op::TruncateSlot { size, .. } => handle.truncate(*size),
        Op::Fallocate { mode, range, .. } | Op::FallocateSlot { mode, range, .. } => {
            let Range { offset, len } = *range;
            handle.allocate(allocate_mode(*mode)?, offset, len)
        }
        Op::Read { range, .. } | Op::ReadSlot { range, .. } => {
            let mut bytes = vec![0; range.len as usize];
            handle.read_at(range.offset, &mut bytes).map(drop)
        }
        Op::SeekData { offset, .. } => handle.seek_data(*offset).map(drop),
        Op::SeekHole { offset, .. } => handle.seek_hole(*offset).map(drop),
        Op::StatSlot { .. } => handle.attr().map(drop),
        Op::Readdir { .. } | Op::ReaddirSlot { .. } => {
            let node = handle.node();
            let position = &mut ListPosition::default();
            node.fs().list(node, 0, position, &mut |_| true)
        }
        _ => handle.sync(),
    }
}

fn allocate_mode(mode: i32) -> Result<Allocate> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    match mode {
        0 => Ok(Allocate::Grow),
        KEEP => Ok(Allocate::KeepSize),
        PUNCH => Ok(Allocate::PunchHole),
        _ => Err(Error::Unsupported("this mode of fallocate")),
    }
}
