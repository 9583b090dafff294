//! A tiny file system for scenarios, used by paths, with a complete check at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use vellum_layout::{FileKind, MappingKind, NamespaceKind};

use super::shuttle_memory::{ShuttleMemory, Shuttled, arm};
use crate::core::Clock;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::header;
use crate::core::slots::{self, Tally};
use crate::error::{Error, Result};
use crate::fs::{Cred, Fs, Handle, ListPosition, Node, OpenOptions, RenameFlags, SetAttr};
use crate::namespace;
use crate::pool::lifecycle::{FormatOptions, MountOptions, attach, format};
use vellum_check::{MemoryImage, Options};
use vellum_media::{Memories, Memory};

/// Runs these jobs concurrently and returns their results.
macro_rules! together {
    ($world:expr, $($job:expr),+ $(,)?) => {
        $world.together(vec![$(Box::new($job)),+])
    };
}

pub(super) use together;

pub(super) const POOL_BYTES: u64 = 1 << 20;
const SEED: u64 = 0x5EED_0F5C_4ED5;
/// Number of preemptions that the scheduler of probabilistic concurrency testing chooses.
const PCT_DEPTH: usize = 3;

/// A file system that any number of the model's threads use.
#[derive(Clone)]
pub(super) struct World {
    pub(super) fs: Arc<Fs<Shuttled>>,
}

/// What exists under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) ino: u64,
    pub(super) nlink: u32,
    pub(super) kind: FileKind,
}

/// Runs `scenario` under `count` schedules drawn at random, and as many chosen by probabilistic
/// concurrency testing.
pub(super) fn explore(count: usize, scenario: fn(World)) {
    let count = count * super::long_factor().unwrap_or(1);
    for namespace in NamespaceKind::ALL {
        // Other namespaces than the default get a third of the schedules.
        let usual = namespace == NamespaceKind::default();
        let count = if usual { count } else { count.div_ceil(3) };
        let random = RandomScheduler::new_from_seed(SEED, count);
        run(random, namespace, scenario);
        let chosen = PctScheduler::new_from_seed(SEED, PCT_DEPTH, count);
        run(chosen, namespace, scenario);
    }
}

fn run(scheduler: impl Scheduler + 'static, namespace: NamespaceKind, scenario: fn(World)) {
    let mut config = Config::new();
    config.failure_persistence = shuttle::FailurePersistence::Print;
    config.stack_size = 1 << 20;
    Runner::new(scheduler, config).run(move || {
        arm(false);
        slots::prefer_thread_slot(0);
        let world = World::new(namespace);
        scenario(world.clone());
        world.look_over();
    });
}

/// Creates a file system on `pool`, which is all zeros.
pub(crate) fn small_fs<M: Memories>(
    pool: M::Pool,
    arena: impl FnOnce(u64) -> M::Arena,
    thread_slots: u32,
    (namespace, mapping): (NamespaceKind, MappingKind),
    run_blocks: Option<u32>,
) -> Arc<Fs<M>> {
    let options = FormatOptions {
        run_blocks,
        namespace,
        thread_slots: Some(thread_slots),
        mapping,
        uuid: [1; 16],
        hash_seed: 7,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    let options = MountOptions {
        cache_entries: 64,
        clock: Clock::Counter(AtomicI64::new(10)),
        ..MountOptions::default()
    };
    attach::<M>(pool, |len| Ok(arena(len)), options).unwrap().0
}

impl World {
    fn new(namespace: NamespaceKind) -> Self {
        let pool = ShuttleMemory::new(POOL_BYTES);
        let kinds = (namespace, MappingKind::HashFs);
        let fs = small_fs::<Shuttled>(pool, ShuttleMemory::new, 4, kinds, Some(8));
        Self { fs }
    }

    /// Runs jobs concurrently and returns their results.
    pub(super) fn together<T: Send + 'static>(
        &self,
        jobs: Vec<Box<dyn FnOnce(World) -> T + Send>>,
    ) -> Vec<T> {
        arm(true);
        let spawn = |job: Box<dyn FnOnce(World) -> T + Send>| {
            let world = self.clone();
            shuttle::thread::spawn(move || job(world))
        };
        let threads: Vec<_> = jobs.into_iter().map(spawn).collect();
        let given = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        arm(false);
        given
    }

    fn parent_and_name<'p>(&self, path: &'p str) -> Result<(Node<Shuttled>, &'p [u8])> {
        let (dir, name) = path.rsplit_once('/').unwrap();
        let dir = self.node(if dir.is_empty() { "/" } else { dir })?;
        Ok((dir, name.as_bytes()))
    }

    pub(super) fn node(&self, path: &str) -> Result<Node<Shuttled>> {
        self.fs
            .find(&Cred::root(), &self.fs.root(), path.as_bytes(), false)
    }

    pub(super) fn mkdir(&self, path: &str) -> Result<Node<Shuttled>> {
        let (dir, name) = self.parent_and_name(path)?;
        self.fs.mkdir(&Cred::root(), &dir, name, 0o755)
    }

    pub(super) fn file(&self, path: &str) -> Result<Node<Shuttled>> {
        let (dir, name) = self.parent_and_name(path)?;
        self.fs
            .mknod(&Cred::root(), &dir, name, FileKind::File, 0o644, 0)
    }

    /// Opens a file by its whole path, creating it if it does not exist. Returns its inode number.
    pub(super) fn make(&self, path: &str) -> Result<u64> {
        let options = OpenOptions {
            write: true,
            create: true,
            mode: 0o644,
            ..OpenOptions::default()
        };
        let root = self.fs.root();
        let opened = self
            .fs
            .open(&Cred::root(), &root, path.as_bytes(), &options)?;
        Ok(opened.node().ino())
    }

    pub(super) fn see(&self, path: &str) -> Option<Seen> {
        match self
            .fs
            .stat(&Cred::root(), &self.fs.root(), path.as_bytes(), false)
        {
            Ok(attr) => Some(Seen {
                ino: attr.ino,
                nlink: attr.nlink,
                kind: attr.kind,
            }),
            Err(Error::NotFound | Error::NotDirectory) => None,
            Err(error) => panic!("{path}: {error:?}"),
        }
    }

    /// Looks a path up and ignores the result.
    pub(super) fn glance(&self, path: &str) {
        self.see(path);
    }

    pub(super) fn unlink(&self, path: &str) -> Result<()> {
        let (dir, name) = self.parent_and_name(path)?;
        self.fs.unlink(&Cred::root(), &dir, name)
    }

    pub(super) fn rmdir(&self, path: &str) -> Result<()> {
        let (dir, name) = self.parent_and_name(path)?;
        self.fs.rmdir(&Cred::root(), &dir, name)
    }

    pub(super) fn link(&self, file: &Node<Shuttled>, path: &str) -> Result<()> {
        let (dir, name) = self.parent_and_name(path)?;
        self.fs.link(&Cred::root(), file, &dir, name)
    }

    pub(super) fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<()> {
        let (from_dir, from) = self.parent_and_name(from)?;
        let (to_dir, to) = self.parent_and_name(to)?;
        self.fs
            .rename(&Cred::root(), &from_dir, from, &to_dir, to, flags)
    }

    /// Opens a file for reading and writing.
    pub(super) fn open(&self, cred: &Cred, file: &Node<Shuttled>) -> Handle<Shuttled> {
        let options = OpenOptions {
            read: true,
            write: true,
            ..OpenOptions::default()
        };
        self.fs.open_node(cred, file, &options).unwrap()
    }

    pub(super) fn chmod(&self, file: &Node<Shuttled>, mode: u16) {
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        self.fs.set_attr(&Cred::root(), file, &set).unwrap();
    }

    /// A word of a file's inode.
    pub(super) fn inode_word(&self, file: &Node<Shuttled>, field: u64) -> u64 {
        let core = &self.fs.core;
        core.word(core.geometry.slot_at(file.ino()) + field)
    }

    pub(super) fn list(&self, path: &str) -> Result<Vec<(String, u64)>> {
        let mut names = Vec::new();
        let dir = self.node(path)?;
        self.fs
            .list(&dir, 0, &mut ListPosition::default(), &mut |entry| {
                names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino));
                true
            })?;
        Ok(names)
    }

    /// Makes a directory that belongs to another's area the root of its own area, in a namespace
    /// with areas.
    pub(super) fn split(&self, dir: &Node<Shuttled>) {
        Self::expect_areas(self.fs.split(dir));
    }

    /// The reverse of [`Self::split`].
    pub(super) fn merge(&self, dir: &Node<Shuttled>) {
        Self::expect_areas(self.fs.merge(dir));
    }

    /// Checks that a request for areas was met; other namespaces than `adaptive` have none.
    fn expect_areas(done: Result<bool>) {
        let is_expected = matches!(done, Ok(true) | Err(Error::Unsupported(_)));
        assert!(is_expected, "{done:?}");
    }

    /// Does the background work that is due.
    pub(super) fn maintain(&self) {
        self.fs.maintain().unwrap();
    }

    /// Does all background work, and evicts everything possible.
    pub(super) fn squeeze(&self) {
        self.fs.reclaim_now().unwrap();
    }

    /// Makes the next search of an open directory insert its names again, as if it were the first.
    pub(super) fn unindex(&self, dir: &Node<Shuttled>) {
        let core = &self.fs.core;
        core.clear_flag(dir.cachelet, flag::INDEXED);
        let flags = core.cachelet_at(dir.cachelet, field::FLAGS);
        core.arena.fetch_add(flags, flag::GENERATION);
    }

    /// Removes the names in a directory from the index.
    pub(super) fn forget(&self, path: &str) {
        if let Ok(dir) = self.node(path) {
            self.forget_in(&dir);
        }
    }

    /// Removes the names in an open directory from the index.
    pub(super) fn forget_in(&self, dir: &Node<Shuttled>) {
        namespace::forget_names(&self.fs.core, dir.cachelet);
    }

    /// Checks the whole tree and the arena, closes, and opens again.
    fn look_over(&self) {
        let mut names = BTreeMap::new();
        let inodes = self.walk("/", &mut names);
        for (ino, (count, nlink)) in names {
            assert_eq!(count, nlink, "names of inode {ino}");
        }
        self.squeeze();
        let core = &self.fs.core;
        assert_eq!(core.total(Tally::Inodes), inodes, "inodes in use");
        self.check_free_cachelets();
        self.fs.close().unwrap();
        let options = Options {
            strict_clean: true,
            progress: None,
        };
        let report = vellum_check::check(&MemoryImage(&core.pool), options);
        assert!(report.findings.is_empty() && report.complete, "{report}");
        let used = core.cachelets_used();
        assert!(used < core.map.cachelet_count);
    }

    /// Counts the inodes below `path`, and records files' names and link counts.
    fn walk(&self, path: &str, names: &mut BTreeMap<u64, (u32, u32)>) -> u64 {
        let mut inodes = 1;
        let listed = self.list(path).unwrap();
        let dir = self.node(path).unwrap();
        assert_eq!(
            self.fs.children(&dir).unwrap(),
            listed.len() as u64,
            "children of {path}"
        );
        let mut subdirectories = 0;
        for (name, ino) in listed {
            let child = format!("{}/{name}", path.trim_end_matches('/'));
            let seen = self
                .see(&child)
                .unwrap_or_else(|| panic!("{child} listed but not found"));
            assert_eq!(seen.ino, ino, "{child}");
            if seen.kind == FileKind::Directory {
                subdirectories += 1;
                inodes += self.walk(&child, names);
            } else {
                let entry = names.entry(ino).or_insert((0, seen.nlink));
                entry.0 += 1;
                inodes += u64::from(entry.0 == 1);
            }
        }
        assert_eq!(
            self.see(path).unwrap().nlink,
            2 + subdirectories,
            "links of {path}"
        );
        inodes
    }

    fn check_free_cachelets(&self) {
        let core = &self.fs.core;
        let word = |at| core.arena.load(at, Ordering::Relaxed);
        let mut next = word(header::CACHELET_FREE) & 0xFFFF_FFFF;
        let mut count = 0;
        while next != 0 {
            let cachelet = Cachelet(next as u32);
            assert_eq!(core.ino(cachelet), 0, "a free cachelet is in use");
            count += 1;
            assert!(
                count <= core.map.cachelet_count,
                "the list of free cachelets is circular"
            );
            next = core.get(cachelet, field::NEXT) & 0xFFFF_FFFF;
        }
        assert_eq!(
            word(header::CACHELETS_FREE),
            count,
            "free cachelets counted"
        );
    }
}
