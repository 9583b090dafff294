//! Namespaces with an index of names over per-directory logs of entries in the pool: that of
//! DirectFS, and that of ADAM as far as it is built.
//!
//! No directory is ever locked. The state of a name is in its index pair: unreadable while it is
//! being created, *deleting* and *renaming* while that is being made durable. [`Entries`] defines
//! how entries lie on the pool, and which store makes a name exist; [`Index`] defines where pairs
//! are.
//!
//! Deviations from DirectFS, and why:
//! * Flags are in the index pair instead of the cachelet: hard links share a cachelet, but a flag
//!   belongs to one name.
//! * The log word is claimed before the entry is written, because the entry carries its cookie,
//!   which is its position in the log. A claim that is not used leaves a zero word, which readers
//!   of logs skip.
//! * The first log extent of a directory is one slot instead of 4 KiB: most directories are small.

pub(crate) mod buckets;
mod build;
mod create;
pub(crate) mod forget;
pub(crate) mod index;
mod recover;
mod recycle;
mod remove;
mod rename;

use vellum_layout::{ChunkKind, Entry, FileKind, TargetWord, long_name_hash};
use vellum_media::{Memories, Site};

pub(crate) use self::create::{Draft, Spot};
use super::common::{Bodies, check_name, compact, evict, walk};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, flag};
use crate::core::named::Named;
use crate::core::slots::{Op, pause};
use crate::durability::journal::Record;
use crate::error::{Error, Location, Result, Retry};
use crate::namespace::{
    Areas, Ask, ListHint, ListRange, Mender, Namespace, NewInode, PathIn, Removal, Rename,
    SurveyedNames, Walked,
};
use index::{Index, Pair, ValueWord};

/// How the entries of a namespace lie on the pool, and what makes their names exist. Life word,
/// target, cookie, directory and generation have the same offsets in every namespace.
pub(crate) trait Entries<M: Memories>: Bodies<M> + Send + 'static {
    /// Keeps others from words that a record contains, if the flags of the names do not.
    type Held<'a>
    where
        M: 'a;

    /// The index that finds names.
    type Index: Index<M>;

    /// What entries in a directory inherit from it.
    type Above: Default;

    /// The kind of chunks that contain entries.
    const KIND: ChunkKind;
    /// Whether entries contain the location of their directory. If so, moving a directory that is
    /// not empty may take more than a record.
    const TELL_PATHS: bool;

    /// Whether the entries of names in `dir` contain its location.
    fn tell_where(core: &Core<M>, dir: Cachelet) -> bool;

    /// Whether moving `dir` into `to` would leave entries of removed names where they do not
    /// belong.
    ///
    /// # Errors
    /// Damaged media.
    fn would_leave_dead(core: &Core<M>, dir: Cachelet, to: Cachelet) -> Result<bool>;

    /// See [`Namespace::check_pool`].
    fn check_pool(core: &Core<M>, was_clean: bool) -> Result<()>;

    /// See [`Namespace::replay`].
    fn replay(core: &Core<M>) -> Result<()>;

    /// Whether the entry at metadata slot `entry` contains this path, or entries contain none.
    fn tells(core: &Core<M>, entry: u64, path: &PathIn) -> Result<bool>;

    /// See [`Namespace::move_whole`].
    fn move_whole(core: &Core<M>, rename: &Rename<'_>, ask: Ask<'_, M>) -> Result<()>;

    /// See [`Namespace::set_root`].
    fn set_root(core: &Core<M>, dir: Cachelet, is_root: bool) -> Result<bool>;

    /// See [`Namespace::areas`].
    fn areas() -> Option<&'static dyn Areas<M>> {
        None
    }

    /// Records that a directory was renamed.
    fn note_renamed(_core: &Core<M>, _dir: Cachelet) {}

    /// See [`Namespace::give_up`].
    fn give_up(core: &Core<M>, dir: Cachelet);

    /// Called after another name of a file is durable. If the file is a directory, no names are
    /// created in it before this returns.
    fn moved(_core: &Core<M>, _file: Cachelet) {}

    /// Frees the index's data of a removed directory that nobody uses any more.
    fn dissolved(_core: &Core<M>, _dir: Cachelet) {}

    /// See [`Namespace::scratch`].
    fn scratch(_core: &Core<M>, _each: &mut dyn FnMut(u64)) {}

    /// See [`Namespace::walk`].
    fn walk(
        op: &Op<'_, M>,
        start: Cachelet,
        path: &[u8],
        enter: &mut dyn FnMut(Cachelet) -> Result<()>,
        lookup: impl Fn(Cachelet, &[u8]) -> Result<Cachelet>,
    ) -> Result<Walked> {
        walk::walk(op, start, path, enter, lookup)
    }

    /// Whether the entry at metadata slot `entry` has the name `name` in `parent`.
    fn is_called(core: &Core<M>, entry: u64, parent: u64, name: Name<'_>) -> bool;

    /// Reads what entries in `dir` inherit from it, unless `above` is current. It stays valid for
    /// the operation once a child of the operation is counted in `dir`; until then an empty
    /// directory may be renamed.
    ///
    /// # Errors
    /// Damaged media.
    fn load_above(core: &Core<M>, dir: Cachelet, above: &mut Self::Above) -> Result<()>;

    /// Number of slots of an entry with the name `name`.
    fn slots_for(above: &Self::Above, name: Name<'_>) -> u64;

    /// Writes an entry of the file with this target word and generation. Past the cache, not
    /// fenced.
    fn write_entry(
        op: &Op<'_, M>,
        above: (Cachelet, &mut Self::Above),
        name: Name<'_>,
        spot: Spot,
        file: (TargetWord, u32),
        now: i64,
    ) -> Result<Draft>;

    /// Stores the log word of a written entry, if the name needs more than that to exist. Past the
    /// cache, not fenced. Returns whether it did.
    fn log_entry(_op: &Op<'_, M>, _word: Site, _draft: &Draft) -> bool {
        false
    }

    /// Makes the name of a written entry exist, durably. `steps`: the entry durable; its log word,
    /// unless `is_logged`; that durable.
    fn commit_entry(op: &Op<'_, M>, steps: [Site; 3], draft: &Draft, is_logged: bool);

    /// Adds to `record` the stores that give files the names of written entries, under the fence
    /// that commits it.
    fn record<'a>(
        op: &Op<'a, M>,
        record: &mut Record,
        drafts: &[(&Draft, Cachelet)],
    ) -> Self::Held<'a>;

    /// Removes the states of dead entries that no log names, so that their slots can be reused.
    fn clear(op: &Op<'_, M>, entries: &[(u64, u64)]);

    /// Checks, where nothing changes, the other contents of the entry that was read last.
    ///
    /// # Errors
    /// Fails if they contradict other structures.
    fn check(core: &Core<M>, named: &Named, buffer: &Self::Buffer) -> Result<()>;

    /// As [`Self::check`], for entries that no log names.
    fn check_others(core: &Core<M>, is_named: &dyn Fn(u64) -> bool) -> Result<()>;

    /// Settles what a crash left beside the entries that logs name, which are claimed already.
    fn settle_others(
        core: &Core<M>,
        is_named: &dyn Fn(u64) -> bool,
        mender: &dyn Mender,
    ) -> Result<()>;

    /// See [`Namespace::witnessed`].
    fn witnessed(core: &Core<M>, entry_at: u64) -> Option<u32>;
}

/// A namespace with an index. All of its state is in pool and arena.
pub(crate) struct Indexed<S>(std::marker::PhantomData<S>);

impl<S> Indexed<S> {
    pub(crate) const NEW: Self = Self(std::marker::PhantomData);
}

/// A name with its hash.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) bytes: &'a [u8],
    /// The low half of its [`long_name_hash`].
    pub(crate) hash: u32,
}

impl<'a> Name<'a> {
    pub(crate) fn new<M: Memories>(core: &Core<M>, bytes: &'a [u8]) -> Result<Self> {
        check_name(bytes)?;
        let hash = long_name_hash(core.seed, bytes) as u32;
        Ok(Self { bytes, hash })
    }
}

impl<M: Memories> Op<'_, M> {
    /// Fails if names in `dir` are frozen by a move. The mover waits for operations that passed
    /// this check.
    fn check_change<S: Entries<M>>(&self, dir: Cachelet) -> Result<()> {
        if S::TELL_PATHS && self.core.has_flag(dir, flag::STILL) {
            return Err(Error::Retry(Retry::Wait));
        }
        Ok(())
    }

    /// Finds a name that exists, after waiting for a rename of it. If the name is not found and
    /// might be on the pool, builds the directory's index first.
    pub(crate) fn find_pair<S: Entries<M>>(
        &self,
        dir: Cachelet,
        name: Name<'_>,
    ) -> Result<Option<Pair>> {
        let core = self.core;
        let mut tries = 0;
        loop {
            let token = self.index_token(dir);
            match S::Index::find::<S>(core, dir, name) {
                Some(pair) if pair.value.has(ValueWord::RENAMING) => pause(&core.arena, &mut tries),
                Some(pair) if pair.value.has(ValueWord::READABLE) => return Ok(Some(pair)),
                // A pair that is not readable counts as a miss. It may be a creation that will be
                // undone, because the name exists and only its pair was evicted.
                _ if token.is_some() && self.index_token(dir) == token => {
                    // An unreadable name may be this one.
                    self.check_media()?;
                    return self.check_names(dir).map(|()| None);
                }
                _ => self.ensure_indexed::<S>(dir)?,
            }
        }
    }

    /// The target of the entry at metadata slot `entry`.
    pub(crate) fn named(&self, entry: u64) -> Named {
        let at = self.core.geometry.slot_at(entry);
        let word = |field| self.core.word(at + field);
        Named {
            entry: Location::Slot(entry),
            dir: word(Entry::PARENT),
            target: TargetWord(word(Entry::TARGET)),
            generation: word(Entry::CHECK) as u32,
        }
    }

    /// See [`Namespace::lookup`].
    fn lookup<S: Entries<M>>(&self, dir: Cachelet, name: &[u8]) -> Result<Cachelet> {
        let name = Name::new(self.core, name)?;
        loop {
            let pair = self.find_pair::<S>(dir, name)?.ok_or(Error::NotFound)?;
            if let Some(cachelet) = S::Index::cachelet(self, pair)? {
                return Ok(cachelet);
            }
        }
    }

    /// Finds a name that exists, and its cachelet.
    pub(crate) fn find_target<S: Entries<M>>(
        &self,
        dir: Cachelet,
        name: Name<'_>,
    ) -> Result<Option<(Pair, Cachelet)>> {
        loop {
            let Some(pair) = self.find_pair::<S>(dir, name)? else {
                return Ok(None);
            };
            let Some(cachelet) = S::Index::cachelet(self, pair)? else {
                continue;
            };
            // Eviction may have removed the pair, and inserted it again without a cachelet.
            if let Some(pair) = S::Index::reload_of(self.core, pair, cachelet) {
                return Ok(Some((pair, cachelet)));
            }
        }
    }
}

impl<M: Memories, S: Entries<M>> Namespace<M> for Indexed<S> {
    fn lookup(&self, op: &Op<'_, M>, dir: Cachelet, name: &[u8]) -> Result<Cachelet> {
        if S::TELL_PATHS {
            op.note_read(dir);
        }
        op.lookup::<S>(dir, name)
    }

    fn walk(
        &self,
        op: &Op<'_, M>,
        start: Cachelet,
        path: &[u8],
        enter: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<Walked> {
        let walked = S::walk(op, start, path, enter, |dir, name| {
            op.lookup::<S>(dir, name)
        })?;
        // A directory that was found by its whole path has not been searched yet.
        if S::TELL_PATHS && walked.at != walked.parent {
            op.note_read(walked.parent);
        }
        Ok(walked)
    }

    fn create(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Cachelet> {
        op.check_change::<S>(dir)?;
        op.create::<S>(dir, Name::new(op.core, name)?, new)
    }

    fn link(&self, op: &Op<'_, M>, dir: Cachelet, name: &[u8], target: Cachelet) -> Result<()> {
        op.check_change::<S>(dir)?;
        op.link::<S>(dir, Name::new(op.core, name)?, target)
    }

    fn remove(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        name: &[u8],
        removal: Removal,
        allow: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<()> {
        op.check_change::<S>(dir)?;
        op.remove::<S>(dir, Name::new(op.core, name)?, removal, allow)
    }

    fn rename(
        &self,
        op: &Op<'_, M>,
        rename: &Rename<'_>,
        allow: &mut dyn FnMut(Cachelet, Option<Cachelet>) -> Result<()>,
    ) -> Result<()> {
        op.check_change::<S>(rename.from_dir)?;
        op.check_change::<S>(rename.to_dir)?;
        op.rename::<S>(rename, allow)
    }

    fn move_whole(&self, core: &Core<M>, rename: &Rename<'_>, ask: Ask<'_, M>) -> Result<()> {
        S::move_whole(core, rename, ask)
    }

    fn set_root(&self, core: &Core<M>, dir: Cachelet, is_root: bool) -> Result<bool> {
        S::set_root(core, dir, is_root)
    }

    fn areas(&self) -> Option<&dyn Areas<M>> {
        S::areas()
    }

    fn last_cookie(&self, op: &Op<'_, M>, dir: Cachelet) -> Result<u64> {
        op.last_cookie::<S>(dir)
    }

    fn list(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        range: ListRange,
        hint: &mut ListHint,
        each: &mut dyn FnMut(crate::namespace::ListEntry<'_>) -> bool,
    ) -> Result<Option<u64>> {
        if S::TELL_PATHS {
            op.note_read(dir);
        }
        op.list::<S>(dir, range, hint, each)
    }

    fn settle(&self, op: &Op<'_, M>, dir: Cachelet) -> Result<()> {
        op.ensure_indexed::<S>(dir)
    }

    fn recycle(&self, core: &Core<M>, dir: Cachelet, urgent: bool) -> Result<()> {
        recycle::recycle::<M, S>(core, dir, urgent)
    }

    fn wastes_space(&self, core: &Core<M>, dir: Cachelet, all: bool) -> bool {
        core.kind(dir) == FileKind::Directory && compact::wastes_space(core, dir, all)
    }

    fn evict(&self, core: &Core<M>, urgent: bool) -> Result<u64> {
        core.raise_cachelet_limit(self.cachelets_kept(core));
        evict::evict(core, self, urgent)
    }

    fn cachelets_kept(&self, core: &Core<M>) -> u64 {
        S::Index::cachelets_kept(core)
    }

    fn give_up(&self, core: &Core<M>, dir: Cachelet) {
        S::give_up(core, dir);
    }

    fn dissolve(&self, core: &Core<M>, dir: Cachelet) -> Result<()> {
        recycle::dissolve::<M, S>(core, dir)
    }

    fn scratch(&self, core: &Core<M>, each: &mut dyn FnMut(u64)) {
        S::scratch(core, each);
    }

    fn check_pool(&self, core: &Core<M>, was_clean: bool) -> Result<()> {
        S::check_pool(core, was_clean)
    }

    fn replay(&self, core: &Core<M>) -> Result<()> {
        S::replay(core)
    }

    fn witnessed(&self, core: &Core<M>, entry_at: u64) -> Option<u32> {
        S::witnessed(core, entry_at)
    }

    fn survey<'a>(
        &self,
        core: &'a Core<M>,
        _threads: usize,
    ) -> Result<Box<dyn SurveyedNames + 'a>> {
        Ok(Box::new(recover::Logs::<M, S>::new(core)))
    }
}
