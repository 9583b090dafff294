//! Namespaces map names to inodes.
//!
//! One trait for designs that look up a component at a time (`direct`, `tree`) and for designs that
//! resolve a whole path in one or two probes (`adaptive`). The caller (`fs::path`) handles `.`,
//! `..`, symlinks and limits; a namespace sees plain names. The caller also checks permissions: a
//! namespace calls `enter` before it searches a directory, so that a full-path design may call it
//! once for a prefix that it knows to be unrestricted.

pub(crate) mod adaptive;
pub(crate) mod common;
pub(crate) mod direct;
mod evolving;
pub(crate) mod indexed;
pub(crate) mod tree;

use vellum_layout::{FileKind, Geometry, Inode, NamespaceKind, OwnerWord, TargetWord};
use vellum_media::{Memories, Site};

pub(crate) use self::evolving::Areas;
pub use self::evolving::{Area, Decided, Evolution, Label, MergedArea, Outcome, RENAMED_ROUNDS};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::quotas::Owners;
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};

/// Cookie of the first entry created in a directory (1 and 2 are `.` and `..`).
pub(crate) const FIRST_COOKIE: u64 = 3;
/// The highest cookie. The position of an entry in a listing may add 2^62 to it, and is signed.
pub(crate) const COOKIE_MAX: u64 = (1 << 62) - 1;

/// With at least this number of dead entries, which are also a hundredth of its names, a
/// directory's log is worth reading before free space is counted.
const COUNTED_AT_LEAST: u64 = 100;

/// The result of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    /// The file that was reached.
    pub(crate) at: Cachelet,
    /// The directory that holds it. If `at` is a directory that was not reached through its parent,
    /// `at` itself.
    pub(crate) parent: Cachelet,
    /// Number of bytes of the path that were used, including separators.
    pub(crate) used: usize,
}

/// Attributes of an inode to create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewInode<'a> {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Device number.
    pub(crate) device: u64,
    /// Target of a symlink.
    pub(crate) target: &'a [u8],
    /// Records of the extended attributes.
    pub(crate) xattrs: &'a [u8],
    /// Flags of its identity word.
    pub(crate) flags: u64,
    /// Project id.
    pub(crate) project: u32,
}

impl NewInode<'_> {
    /// For whom it counts.
    pub(crate) fn owners(&self) -> Owners {
        Owners {
            owner: OwnerWord::new(self.uid, self.gid),
            project: self.project,
        }
    }
}

/// The kind of file that a removal may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Anything but a directory.
    File,
    /// An empty directory.
    Directory,
}

/// A rename.
pub(crate) struct Rename<'a> {
    pub(crate) from_dir: Cachelet,
    pub(crate) from_name: &'a [u8],
    pub(crate) to_dir: Cachelet,
    pub(crate) to_name: &'a [u8],
    /// Fail if the new name exists.
    pub(crate) no_replace: bool,
    /// Swap the two names' targets.
    pub(crate) exchange: bool,
    /// The file that gets the old name: durable, with one link and no name
    /// ([`flag::NAMING`] and [`flag::UNLINKED`], which the rename clears).
    pub(crate) whiteout: Option<Cachelet>,
    /// The preparation for directories that are moved with everything below them.
    pub(crate) whole: Option<&'a Whole>,
}

impl Rename<'_> {
    /// Whether the names are in two directories.
    pub(crate) fn is_across(&self) -> bool {
        self.from_dir != self.to_dir
    }
}

/// Directories that are moved with everything below them, which is prepared for its new paths.
pub(crate) struct Whole {
    /// The directories, and the paths of their new names.
    pub(crate) dirs: Vec<(Cachelet, PathIn)>,
    /// Pool offset and value of a word that the rename's record stores, too.
    pub(crate) store: Option<(u64, u64)>,
}

/// A path from the root of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathIn {
    /// Number of the area.
    pub(crate) area: u32,
    pub(crate) path: Vec<u8>,
}

impl Whole {
    /// The path of a directory's new name, if it is one of the moved directories.
    pub(crate) fn path_of(&self, dir: Cachelet) -> Option<&PathIn> {
        let (_, path) = self.dirs.iter().find(|(moved, _)| *moved == dir)?;
        Some(path)
    }
}

/// The error of namespaces without areas.
pub(crate) const NO_AREAS: Error = Error::Unsupported("areas in this pool's namespace");

/// Checks, in the operation that renames, whether a file may be renamed and another replaced.
pub(crate) type Ask<'a, M> =
    &'a mut dyn FnMut(&Op<'_, M>, Cachelet, Option<Cachelet>) -> Result<()>;

/// An entry that a listing returns. The name is borrowed from a buffer of the listing.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
/// fs.mkdir(&cred, &root, b"d", 0o755)?;
/// fs.list(&root, 0, &mut Default::default(), &mut |entry: vellum::ListEntry<'_>| {
///     assert_eq!((entry.name, entry.kind), (&b"d"[..], vellum::FileKind::Directory));
///     true
/// })?;
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListEntry<'a> {
    /// Inode number.
    pub ino: u64,
    /// Position: a listing from here starts with the next entry.
    pub cookie: u64,
    /// The kind of file.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
}

/// The cookies of the entries that a listing returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListRange {
    /// Above this one,
    pub(crate) after: u64,
    /// and up to this one.
    pub(crate) until: u64,
    /// Added to the cookies of returned entries.
    pub(crate) offset: u64,
}

impl ListRange {
    /// All entries behind a cookie.
    pub(crate) fn behind(after: u64) -> Self {
        Self {
            after,
            until: u64::MAX,
            offset: 0,
        }
    }
}

/// The point that a listing has reached, so that the next call need not search. It is only a hint:
/// the cookie decides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListHint {
    /// Generation of the log.
    pub(crate) generation: u64,
    /// Extent of the log.
    pub(crate) extent: u64,
    /// Word within it.
    pub(crate) index: u64,
    /// Cookie after which the hint continues.
    pub(crate) cookie: u64,
    /// Whether every entry before it was verified.
    pub(crate) verified: bool,
}

/// A namespace design.
pub(crate) trait Namespace<M: Memories>: Send + Sync {
    /// Looks up one name.
    fn lookup(&self, op: &Op<'_, M>, dir: Cachelet, name: &[u8]) -> Result<Cachelet>;

    /// Walks plain components of `path` (separated by `/`, possibly several) from `start` until its
    /// end, the first symlink (included), or a component `.` or `..` (excluded). Before it searches
    /// something it calls `enter`, which fails if that is no directory. Skips empty components.
    fn walk(
        &self,
        op: &Op<'_, M>,
        start: Cachelet,
        path: &[u8],
        enter: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<Walked> {
        common::walk::walk(op, start, path, enter, |dir, name| {
            self.lookup(op, dir, name)
        })
    }

    /// Creates an inode with a name.
    fn create(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Cachelet>;

    /// Adds a name to an inode.
    fn link(&self, op: &Op<'_, M>, dir: Cachelet, name: &[u8], target: Cachelet) -> Result<()>;

    /// Removes a name. Calls `allow` with the inode first.
    fn remove(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        name: &[u8],
        removal: Removal,
        allow: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<()>;

    /// Renames or exchanges. Calls `allow` with the moved inode and the replaced one; it also
    /// checks that their kinds are compatible.
    fn rename(
        &self,
        op: &Op<'_, M>,
        rename: &Rename<'_>,
        allow: &mut dyn FnMut(Cachelet, Option<Cachelet>) -> Result<()>,
    ) -> Result<()>;

    /// As [`Self::rename`], for directories that are moved with everything below them, if
    /// [`Self::rename`] returns that this takes more than an operation
    /// ([`crate::error::Retry::Move`]). Called by the holder of the background's lease, outside any
    /// operation.
    fn move_whole(&self, core: &Core<M>, rename: &Rename<'_>, ask: Ask<'_, M>) -> Result<()> {
        let op = core.op_to_change()?;
        self.rename(&op, rename, &mut |source, target| ask(&op, source, target))
    }

    /// Makes a directory with a name the root of an area, or no longer a root. Returns whether that
    /// was a change. Called by the holder of the background's lease, outside any operation.
    ///
    /// # Errors
    /// Fails if the namespace has no areas.
    fn set_root(&self, _core: &Core<M>, _dir: Cachelet, _is_root: bool) -> Result<bool> {
        Err(NO_AREAS)
    }

    /// The namespace's part in the evolving of areas, if it has areas.
    fn areas(&self) -> Option<&dyn Areas<M>> {
        None
    }

    /// The last cookie that was assigned in a directory, or the one below the first.
    ///
    /// # Errors
    /// Fails if damage hides it.
    fn last_cookie(&self, op: &Op<'_, M>, dir: Cachelet) -> Result<u64>;

    /// Lists entries with cookies in `range`, ascending, until `each` returns false. Returns the
    /// cookie of the last entry of the range, or `range.after` if there is none; `None` if `each`
    /// returned false.
    fn list(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        range: ListRange,
        hint: &mut ListHint,
        each: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<Option<u64>>;

    /// The name of `child` in `dir` (for `getcwd`).
    fn name_of(&self, op: &Op<'_, M>, dir: Cachelet, child: Cachelet) -> Result<Vec<u8>> {
        let child = op.core.ino(child);
        let mut found = None;
        let all = ListRange::behind(0);
        self.list(op, dir, all, &mut ListHint::default(), &mut |entry| {
            if entry.ino == child {
                found = Some(entry.name.to_vec());
            }
            found.is_none()
        })?;
        found.ok_or(Error::NotFound)
    }

    /// Makes sure that link count and times of a directory are known.
    fn settle(&self, op: &Op<'_, M>, dir: Cachelet) -> Result<()>;

    /// Recycles dead entries of `dir`, and compacts its log if that is due or, when `urgent`, of
    /// any use. Called by the holder of the background's lease, outside any operation.
    fn recycle(&self, core: &Core<M>, dir: Cachelet, urgent: bool) -> Result<()>;

    /// Queues the recycling of every directory that is known to have dead entries, or dead words in
    /// its log. Without `all`, only of those with so many that counting is worth it. Called as
    /// [`Self::recycle`]: under the lease a directory with known names keeps them, and its
    /// cachelet. One that is being removed meanwhile is freed as if the removal had queued it.
    fn queue_dead(&self, core: &Core<M>, all: bool) {
        for number in 1..=core.last_cachelet() {
            let dir = Cachelet(number as u32);
            let is_known = core.ino(dir) != 0 && core.has_flag(dir, flag::INDEXED);
            if !is_known {
                continue;
            }
            let dead = u64::from(core.get(dir, field::DEAD) as u32);
            let least = match all {
                true => 1,
                false => COUNTED_AT_LEAST.max(core.children(dir) / 100),
            };
            if dead >= least || self.wastes_space(core, dir, all) {
                core.queue_work(dir);
            }
        }
    }

    /// Whether compacting the log of a directory with known names frees a block or, with `all`, may
    /// free any space.
    fn wastes_space(&self, _core: &Core<M>, _dir: Cachelet, _all: bool) -> bool {
        false
    }

    /// Evicts names and cachelets that were not used lately, if they are many or it is urgent.
    /// Returns the number of evicted cachelets. Called as [`Self::recycle`].
    fn evict(&self, core: &Core<M>, urgent: bool) -> Result<u64>;

    /// Number of cachelets that may exist before unused ones are evicted.
    fn cachelets_kept(&self, core: &Core<M>) -> u64 {
        core.map.cachelet_count
    }

    /// Frees what a removed directory has beside its inode and its names, when that inode dies.
    /// Flushed, not fenced. Called as [`Self::recycle`].
    fn give_up(&self, _core: &Core<M>, _dir: Cachelet) {}

    /// Frees everything that a removed directory still holds (log, dead entries). Called as
    /// [`Self::recycle`].
    fn dissolve(&self, core: &Core<M>, dir: Cachelet) -> Result<()>;

    /// Calls `each` with the first slot of every metadata block that is in use, but of no use to an
    /// opening after a close.
    fn scratch(&self, _core: &Core<M>, _each: &mut dyn FnMut(u64)) {}

    /// Checks the structures on which all names rely, when a pool is opened, whether or not it was
    /// closed cleanly.
    fn check_pool(&self, core: &Core<M>, was_clean: bool) -> Result<()>;

    /// Finishes, after a crash, changes that exceed a journal record. The caller fences before
    /// anything else is stored.
    fn replay(&self, _core: &Core<M>) -> Result<()> {
        Ok(())
    }

    /// The checksum of the entry at pool offset `entry_at`, if it is sound. Journal records that
    /// name entries as their witnesses count only with these.
    fn witnessed(&self, core: &Core<M>, entry_at: u64) -> Option<u32>;

    /// Surveys the names of a pool that was not closed cleanly, with at most `threads` threads.
    /// Nothing is stored yet.
    fn survey<'a>(&self, core: &'a Core<M>, threads: usize) -> Result<Box<dyn SurveyedNames + 'a>>;
}

/// An entry as recovery finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SurveyedName {
    /// Its location.
    pub(crate) entry: Location,
    /// The inode that it names, with the inode's generation. `None`: the name was removed.
    pub(crate) target: Option<(TargetWord, u32)>,
    /// When the name was added or removed, in nanoseconds since 1970.
    pub(crate) changed_ns: i64,
}

/// The part of recovery that stores what mends the residue of a crash.
pub(crate) trait Mender {
    /// Marks `count` metadata slots from `slot` on as in use.
    fn claim(&self, slot: u64, count: u64) -> Result<()>;

    /// Stores a word, and makes sure that it is flushed.
    fn store(&self, site: Site, at: u64, value: u64);
}

/// The names of a pool after a crash.
pub(crate) trait SurveyedNames: Sync {
    /// Calls `each` for every entry of the directory with this inode, including entries of removed
    /// names.
    fn read(
        &self,
        dir: u64,
        inode: &Inode,
        each: &mut dyn FnMut(SurveyedName) -> Result<()>,
    ) -> Result<()>;

    /// Whether a directory without a name holds names, as far as it can be read.
    fn holds_names(&self, dir: u64, inode: &Inode) -> bool;

    /// Checks that everything can be explained, after all names were read. Nothing has been stored
    /// yet.
    fn check(&self) -> Result<()>;

    /// Settles the contents of a directory with a name.
    fn settle(&self, dir: u64, inode: &Inode, mender: &dyn Mender) -> Result<()>;

    /// Settles what no directory holds, after all directories.
    fn finish(&self, mender: &dyn Mender) -> Result<()>;
}

/// The namespace of a pool.
pub(crate) fn new<M: Memories>(kind: NamespaceKind) -> Box<dyn Namespace<M>> {
    match kind {
        NamespaceKind::Direct => Box::new(indexed::Indexed::<direct::Direct>::NEW),
        NamespaceKind::Tree => Box::new(tree::Tree),
        NamespaceKind::Adaptive => Box::new(indexed::Indexed::<adaptive::Adaptive>::NEW),
    }
}

/// Makes the arena forget a directory's names, for schedules that include this.
#[cfg(test)]
pub(crate) fn forget_names<M: Memories>(core: &Core<M>, dir: Cachelet) {
    match core.geometry.namespace {
        NamespaceKind::Direct => indexed::forget::forget_names::<M, direct::Direct>(core, dir),
        NamespaceKind::Tree => tree::forget_names(core, dir),
        NamespaceKind::Adaptive => {
            indexed::forget::forget_names::<M, adaptive::Adaptive>(core, dir);
        }
    }
}

/// Size of a namespace's own structures in an arena for so many names and files, in bytes.
pub(crate) fn arena_bytes(geometry: &Geometry, entries: u64) -> u64 {
    match geometry.namespace {
        NamespaceKind::Direct => 0,
        NamespaceKind::Adaptive => adaptive::arena_bytes(geometry),
        // A name takes 0.4 nodes, and a directory with names at least one. Half of `entries` are
        // names.
        NamespaceKind::Tree => (entries / 2 + 64) * tree::NODE_BYTES,
    }
}
