//! Namespaces: from names to inodes.
//!
//! One trait for designs that look up a component at a time (`direct`, `tree`) and for designs
//! that resolve a whole path in one or two probes (`adaptive`). The caller (`fs::path`) deals with
//! `.`, `..`, symlinks and limits; a namespace sees plain names. Permission is the caller's too:
//! it is asked through `enter` before a directory is searched, so that a full-path design may ask
//! once for a prefix that it knows to be unrestricted.

pub(crate) mod adaptive;
pub(crate) mod common;
pub(crate) mod direct;
mod evolving;
pub(crate) mod indexed;
pub(crate) mod tree;

use vellum_layout::{FileKind, Geometry, Inode, NamespaceKind, TargetWord};
use vellum_media::{Memories, Site};

pub(crate) use self::evolving::Areas;
pub use self::evolving::{Area, Decided, Evolution, Label, MergedArea, Outcome, RENAMED_ROUNDS};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};

/// Cookie of the first entry ever made in a directory (1 and 2 are `.` and `..`).
pub(crate) const FIRST_COOKIE: u64 = 3;
/// The highest cookie: the position of an entry in a listing may add 2^62 to it, and is signed.
pub(crate) const COOKIE_MAX: u64 = (1 << 62) - 1;

/// So many dead entries of a directory are worth reading its log to count what is free, if they
/// are a hundredth of its names, too.
const COUNTED_AT_LEAST: u64 = 100;

/// How far a walk came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    /// What was reached.
    pub(crate) at: Cachelet,
    /// The directory that holds it, or itself, if it is a directory that was not come by through
    /// that one.
    pub(crate) parent: Cachelet,
    /// Bytes of the path that were used, separators included.
    pub(crate) used: usize,
}

/// What to make.
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
}

/// What a removal is willing to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Anything but a directory.
    File,
    /// An empty directory.
    Directory,
}

/// A change of names.
pub(crate) struct Rename<'a> {
    pub(crate) from_dir: Cachelet,
    pub(crate) from_name: &'a [u8],
    pub(crate) to_dir: Cachelet,
    pub(crate) to_name: &'a [u8],
    /// Fail if the new name exists.
    pub(crate) no_replace: bool,
    /// Swap the two names' targets.
    pub(crate) exchange: bool,
    /// What was prepared for directories that are moved with what is below them.
    pub(crate) whole: Option<&'a Whole>,
}

/// Directories that are moved with what is below them, which is prepared for the places that they
/// will have.
pub(crate) struct Whole {
    /// The directories, and where their new names will be.
    pub(crate) dirs: Vec<(Cachelet, PathIn)>,
    /// Pool offset and value of a word that is to be stored along.
    pub(crate) store: Option<(u64, u64)>,
}

/// A path from the root of an area on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathIn {
    /// Number of the area.
    pub(crate) area: u32,
    pub(crate) path: Vec<u8>,
}

impl Whole {
    /// Where a directory's new name will be, if it is one of those that are moved.
    pub(crate) fn path_of(&self, dir: Cachelet) -> Option<&PathIn> {
        let (_, path) = self.dirs.iter().find(|(moved, _)| *moved == dir)?;
        Some(path)
    }
}

/// Of namespaces without areas.
pub(crate) const NO_AREAS: Error = Error::Unsupported("areas in this pool's namespace");

/// Asks whether files may be renamed, and replaced, in the operation that does so.
pub(crate) type Ask<'a, M> =
    &'a mut dyn FnMut(&Op<'_, M>, Cachelet, Option<Cachelet>) -> Result<()>;

/// An entry as a listing gives it; the name is borrowed from a buffer of the listing.
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

/// Which entries a listing is to give, by their cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListRange {
    /// Those above this one,
    pub(crate) after: u64,
    /// and not above this one.
    pub(crate) until: u64,
    /// What is added to the cookies of entries that are given.
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

/// Where a listing is, so that the next call need not search. Only a hint: the cookie rules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListHint {
    /// Log generation the hint is of.
    pub(crate) generation: u64,
    /// Log extent.
    pub(crate) extent: u64,
    /// Word within it.
    pub(crate) index: u64,
    /// Cookie after which the hint continues.
    pub(crate) cookie: u64,
    /// Every entry before it was verified on the way.
    pub(crate) verified: bool,
}

/// A design of namespace.
pub(crate) trait Namespace<M: Memories>: Send + Sync {
    /// Looks up one name.
    fn lookup(&self, op: &Op<'_, M>, dir: Cachelet, name: &[u8]) -> Result<Cachelet>;

    /// Walks plain components of `path` (separated by `/`, possibly several) from `start` until
    /// its end, the first symlink (included), or a component `.` or `..` (excluded). `enter` is
    /// asked for every directory that is searched. Empty components are skipped.
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

    /// Makes an inode with a name.
    fn create(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Cachelet>;

    /// Gives an inode another name.
    fn link(&self, op: &Op<'_, M>, dir: Cachelet, name: &[u8], target: Cachelet) -> Result<()>;

    /// Removes a name; `allow` is asked about the inode first.
    fn remove(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        name: &[u8],
        removal: Removal,
        allow: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<()>;

    /// Renames or exchanges; `allow` is asked about the inode moved and the one replaced, and
    /// whether their kinds go together.
    fn rename(
        &self,
        op: &Op<'_, M>,
        rename: &Rename<'_>,
        allow: &mut dyn FnMut(Cachelet, Option<Cachelet>) -> Result<()>,
    ) -> Result<()>;

    /// The same of directories that are moved with what is below them, where [`Self::rename`] says
    /// that this takes more than an operation ([`crate::error::First::Move`]). Called by the holder
    /// of the background lease, outside any operation.
    fn move_whole(&self, core: &Core<M>, rename: &Rename<'_>, ask: Ask<'_, M>) -> Result<()> {
        let op = core.op_to_change()?;
        self.rename(&op, rename, &mut |source, target| ask(&op, source, target))
    }

    /// Makes a directory that has a name the root of an area of its own, or one that is no root any
    /// more; gives whether it was not so. Called by the holder of the background lease, outside any
    /// operation.
    ///
    /// # Errors
    /// There are no areas.
    fn set_root(&self, _core: &Core<M>, _dir: Cachelet, _is_root: bool) -> Result<bool> {
        Err(NO_AREAS)
    }

    /// What it does for the evolving of areas, if it has any.
    fn areas(&self) -> Option<&dyn Areas<M>> {
        None
    }

    /// The last cookie that was given in a directory; one below the first, if none was.
    ///
    /// # Errors
    /// Damage keeps it from being known.
    fn last_cookie(&self, op: &Op<'_, M>, dir: Cachelet) -> Result<u64>;

    /// Lists entries with cookies in `range`, ascending, until `each` returns false. Gives the
    /// cookie of the last entry of the range, that before it if there is none; `None`: `each` took
    /// no more.
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

    /// Recycles dead entries of `dir` and compacts its log where that is due or, if it is `urgent`,
    /// of any use. Called by the holder of the background lease, outside any operation.
    fn recycle(&self, core: &Core<M>, dir: Cachelet, urgent: bool) -> Result<()>;

    /// Queues the recycling of every directory that is known to have dead entries, or dead words in
    /// its log, however few; without `all`, of those with so many that counting is worth it. Same
    /// rules: under the lease a directory whose names are known keeps them, and its cachelet its
    /// own; one that is being removed meanwhile is buried as if the removal had queued it.
    fn queue_dead(&self, core: &Core<M>, all: bool) {
        for number in 1..=core.last_cachelet() {
            let dir = Cachelet(number as u32);
            let is_known = core.ino(dir) != 0 && core.has_flag(dir, flag::INDEXED);
            if !is_known {
                continue;
            }
            let dead = u64::from(core.get(dir, field::DEAD) as u32);
            // Of two blocks of words one may be in the last block, and does not come free.
            let (least, blocks) = match all {
                true => (1, 1),
                false => (COUNTED_AT_LEAST.max(core.children(dir) / 100), 2),
            };
            if dead >= least || self.wastes_blocks(core, dir, blocks) {
                core.queue_work(dir);
            }
        }
    }

    /// Whether words of so many blocks name nothing in the log of a directory with known names.
    fn wastes_blocks(&self, _core: &Core<M>, _dir: Cachelet, _blocks: u64) -> bool {
        false
    }

    /// Evicts names and cachelets that were not used lately, where they are many or it is urgent;
    /// gives how many cachelets. Same rules.
    fn evict(&self, core: &Core<M>, urgent: bool) -> Result<u64>;

    /// How many cachelets may be made before those that nobody uses are taken away.
    fn cachelets_kept(&self, core: &Core<M>) -> u64 {
        core.map.cachelet_count
    }

    /// Gives up what a removed directory has beside its inode and its names, when that inode dies.
    /// Flushed, not fenced. Same rules.
    fn give_up(&self, _core: &Core<M>, _dir: Cachelet) {}

    /// Frees everything a removed directory still holds (log, dead entries). Same rules.
    fn dissolve(&self, core: &Core<M>, dir: Cachelet) -> Result<()>;

    /// Calls `each` with the first slot of every metadata block that is in use, and of no use to
    /// whoever opens the pool after a close.
    fn scratch(&self, _core: &Core<M>, _each: &mut dyn FnMut(u64)) {}

    /// Checks, when a pool is opened that was closed in order or not, what all names build on.
    fn check_pool(&self, core: &Core<M>, was_clean: bool) -> Result<()>;

    /// Brings to an end, after a crash, what more than a journal record said; the caller fences
    /// before anything else is stored.
    fn replay(&self, _core: &Core<M>) -> Result<()> {
        Ok(())
    }

    /// The checksum of the entry at pool offset `entry_at`, if it is sound: journal records that
    /// name entries as their witnesses count only with these.
    fn witnessed(&self, core: &Core<M>, entry_at: u64) -> Option<u32>;

    /// Surveys the names of a pool that was not closed in order, with at most `threads` threads.
    /// Nothing is stored yet.
    fn survey<'a>(&self, core: &'a Core<M>, threads: usize) -> Result<Box<dyn SurveyedNames + 'a>>;
}

/// An entry as recovery finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SurveyedName {
    /// Where it lies.
    pub(crate) entry: Location,
    /// The inode that it names, and that one's generation; none: the name is gone.
    pub(crate) target: Option<(TargetWord, u32)>,
    /// When the name came or went, nanoseconds since 1970.
    pub(crate) changed_ns: i64,
}

/// Who puts in order what a crash left.
pub(crate) trait Mender {
    /// Notes that `count` metadata slots from `slot` on are in use.
    fn claim(&self, slot: u64, count: u64) -> Result<()>;

    /// Stores a word, and sees to its being flushed.
    fn store(&self, site: Site, at: u64, value: u64);
}

/// The names of a pool after a crash.
pub(crate) trait SurveyedNames: Sync {
    /// Calls `each` for every entry of the directory with this inode, whether the name is gone or
    /// not.
    fn read(
        &self,
        dir: u64,
        inode: &Inode,
        each: &mut dyn FnMut(SurveyedName) -> Result<()>,
    ) -> Result<()>;

    /// Whether a directory without a name holds any, as far as it can be read.
    fn holds_names(&self, dir: u64, inode: &Inode) -> bool;

    /// Whether everything is explicable, now that all names are read. Nothing has been stored yet.
    fn check(&self) -> Result<()>;

    /// Settles what a directory with a name holds.
    fn settle(&self, dir: u64, inode: &Inode, mender: &dyn Mender) -> Result<()>;

    /// Settles what no directory holds, once all are settled.
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

/// Takes what the arena knows of a directory's names away, for schedules in which that happens.
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

/// Bytes of a namespace's own structures in an arena for so many names and files.
pub(crate) fn arena_bytes(geometry: &Geometry, entries: u64) -> u64 {
    match geometry.namespace {
        NamespaceKind::Direct => 0,
        NamespaceKind::Adaptive => adaptive::arena_bytes(geometry),
        // A name takes 0.4 nodes, a directory with any at least one; half of all are names.
        NamespaceKind::Tree => (entries / 2 + 64) * tree::NODE_BYTES,
    }
}
