//! The namespace of DirectFS: one global hash index in the arena over per-directory logs of
//! entries in the pool.
//!
//! No directory is ever locked. A name's state is in its pair of the index: unreadable while it is
//! being created, *deleting* and *renaming* while that is being made durable. Creation and removal
//! commit with one 8-byte store each, rename with a journal record (`docs/CRASH.md`).
//!
//! Deviations from the paper, and why:
//! * Flags are in the index pair instead of the cachelet: hard links share a cachelet, but a flag
//!   belongs to one name.
//! * The log word is claimed before the entry is written, because the entry carries its cookie,
//!   which is its position in the log. A claim that is not used leaves a zero word, which readers
//!   of logs skip anyway.
//! * The first log extent of a directory is one slot instead of 4 KiB: most directories are small.

mod build;
mod create;
pub(crate) mod evict;
pub(crate) mod index;
mod list;
pub(crate) mod log;
mod recycle;
mod remove;
mod rename;

use vellum_layout::{Entry, FileKind, Inode, NAME_MAX, ROOT_SLOT, TargetWord, name_hash};
use vellum_media::{Memories, Memory};

use crate::cachelet::{Cachelet, NAME_ONE, field, flag};
use crate::core::Core;
use crate::error::{Error, Place, Result};
use crate::namespace::{ListHint, Namespace, NewInode, Removal, Rename, Walked};
use crate::slots::{Op, pause};
use crate::times::LAST_NS;
pub(crate) use build::{EntryBuffer, scan_log};
use index::{Pair, ValueWord};
pub(crate) use recycle::log_extents;

/// The namespace of DirectFS. Its state is all in pool and arena.
#[derive(Debug)]
pub(crate) struct Direct;

/// A name with its hash.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) hash: u32,
}

impl<'a> Name<'a> {
    pub(crate) fn new<M: Memories>(core: &Core<M>, bytes: &'a [u8]) -> Result<Self> {
        match bytes.len() {
            0 => Err(Error::NotFound),
            1..=NAME_MAX => Ok(Self {
                bytes,
                hash: name_hash(core.seed, bytes),
            }),
            _ => Err(Error::NameTooLong),
        }
    }
}

impl<M: Memories> Op<'_, M> {
    /// Finds a name that exists, waiting out a rename of it; builds the directory's index first if
    /// the name is not there and might be on the pool.
    pub(crate) fn find_pair(&self, dir: Cachelet, name: Name<'_>) -> Result<Option<Pair>> {
        let core = self.core;
        let parent = core.ino(dir);
        let mut tries = 0;
        loop {
            let token = self.index_token(dir);
            match core.index_find(parent, name.bytes, name.hash) {
                Some(pair) if pair.value.has(ValueWord::RENAMING) => pause(&core.arena, &mut tries),
                Some(pair) if pair.value.has(ValueWord::READABLE) => return Ok(Some(pair)),
                // One that is not readable stands for a miss: it may be a creation that will be taken
                // back, because the name exists and only its pair was evicted.
                _ if token.is_some() && self.index_token(dir) == token => {
                    // A name that cannot be read may be this one.
                    self.check_media()?;
                    return self.check_names(dir).map(|()| None);
                }
                _ => self.ensure_indexed(dir)?,
            }
        }
    }

    /// The generation of a directory's part of the index, if that part is complete. A miss between
    /// two equal tokens means that there is no such name.
    pub(crate) fn index_token(&self, dir: Cachelet) -> Option<u64> {
        let flags = self.core.get(dir, field::FLAGS);
        if flags & flag::TOUCHED == 0 {
            self.core.raise_flag(dir, flag::TOUCHED);
        }
        (flags & flag::INDEXED != 0).then_some(flags / flag::GENERATION)
    }

    /// The cachelet of a pair; loads it at the first access. `None`: the pair changed, look again.
    pub(crate) fn cachelet_of(&self, pair: Pair) -> Result<Option<Cachelet>> {
        match pair.value.target() {
            Ok(cachelet) => Ok(Some(cachelet)),
            Err(ino) => self.attach_cachelet(pair, ino),
        }
    }

    #[cold]
    fn attach_cachelet(&self, pair: Pair, ino: u64) -> Result<Option<Cachelet>> {
        let core = self.core;
        // While the flag stands nobody else changes the pair or takes it away, so the reference is
        // counted exactly once.
        let flagged = core.index_update(pair, pair.value.with(ValueWord::RENAMING));
        let Some(flagged) = flagged else {
            return Ok(None);
        };
        let loaded = self.load_named(pair.entry.entry(), ino);
        if let Ok(cachelet) = loaded {
            core.add_refs(cachelet, NAME_ONE);
        }
        let value = loaded.as_ref().map_or(pair.value, |&cachelet| {
            let flags = pair.value.0 & ValueWord::FLAGS;
            ValueWord::of_cachelet(cachelet, core.kind(cachelet)).with(flags)
        });
        core.index_release(flagged, value);
        loaded.map(Some)
    }

    /// The cachelet of the inode that the entry at metadata slot `entry` names. The name is flagged, so
    /// entry and inode do not change. A directory is where its parent says, so no path comes back
    /// to where it was.
    fn load_named(&self, entry: u64, ino: u64) -> Result<Cachelet> {
        let core = self.core;
        let damaged = |what| Error::damaged(what, Place::Slot(entry));
        let word = |at, field| core.word(core.geometry.slot_at(at) + field);
        let loaded = match core.load_cachelet(self, ino) {
            Err(Error::Stale) => return Err(damaged("entry names a free inode")),
            loaded => loaded?,
        };
        let identity = core.identity(loaded);
        if identity.generation() != word(entry, Entry::CHECK) as u32
            || identity.kind() != TargetWord(word(entry, Entry::TARGET)).kind()
        {
            return Err(damaged("entry names another inode than there is"));
        }
        if identity.kind() == Some(FileKind::Directory)
            && (ino == ROOT_SLOT || word(ino, Inode::PARENT) != word(entry, Entry::PARENT))
        {
            return Err(damaged("directory names another parent"));
        }
        Ok(loaded)
    }

    /// Fails if names of `dir` cannot be read.
    pub(crate) fn check_names(&self, dir: Cachelet) -> Result<()> {
        if self.core.has_flag(dir, flag::UNSURE) {
            let place = Place::Inode(self.core.ino(dir));
            return Err(Error::damaged("directory with unreadable names", place));
        }
        Ok(())
    }

    /// Goes on without names of `dir` that cannot be read.
    pub(crate) fn do_without_names(&self, dir: Cachelet, error: &Error) {
        self.core.note_harm(error);
        self.core.raise_flag(dir, flag::UNSURE);
        self.forgive_faults();
    }

    /// Finds a name that exists, and its cachelet.
    pub(crate) fn find_target(
        &self,
        dir: Cachelet,
        name: Name<'_>,
    ) -> Result<Option<(Pair, Cachelet)>> {
        loop {
            let Some(pair) = self.find_pair(dir, name)? else {
                return Ok(None);
            };
            let Some(cachelet) = self.cachelet_of(pair)? else {
                continue;
            };
            // Eviction may have taken the pair away, and put it back without a cachelet.
            match self.core.index_reload(pair) {
                Some(pair) if pair.value.target() == Ok(cachelet) => {
                    return Ok(Some((pair, cachelet)));
                }
                _ => {}
            }
        }
    }

    /// Adds `count` ([`CHILD_ONE`], with [`MAKING_ONE`] while it is being made) to the children of
    /// `dir`, unless the directory is being removed: then waits until its name is gone, because after
    /// *no such directory* nobody may find it. The caller has flagged no name.
    pub(crate) fn enter_children(&self, dir: Cachelet, count: u64) -> Result<()> {
        let core = self.core;
        let at = core.cachelet_at(dir, field::CHILDREN);
        if core.arena.fetch_add(at, count) & 1 == 0 {
            return Ok(());
        }
        self.leave_children(dir, count);
        let mut tries = 0;
        while !core.has_flag(dir, flag::UNLINKED) {
            pause(&core.arena, &mut tries);
        }
        Err(Error::NotFound)
    }

    /// Takes `count` from the children of `dir`.
    pub(crate) fn leave_children(&self, dir: Cachelet, count: u64) {
        let at = self.core.cachelet_at(dir, field::CHILDREN);
        self.core.arena.fetch_add(at, count.wrapping_neg());
    }

    /// The time of a change in `dir`: now, but later than any earlier change of the directory.
    pub(crate) fn change_time(&self, dir: Cachelet) -> i64 {
        self.time_after([self.core.changed_at(dir)])
    }

    /// Now, but later than each of some earlier changes.
    fn time_after<const N: usize>(&self, earlier: [i64; N]) -> i64 {
        let later = earlier.map(|ns| ns.saturating_add(1));
        let now = later.into_iter().fold(self.core.clock.now(), i64::max);
        now.min(LAST_NS)
    }

    /// Notes a change of `dir` at `ns`: its times, and `subdirectories` more or fewer.
    pub(crate) fn note_change(&self, dir: Cachelet, ns: i64, subdirectories: i64) {
        let core = self.core;
        self.note_names(dir, ns);
        if subdirectories != 0 {
            core.arena
                .fetch_add(core.cachelet_at(dir, field::LINKS), subdirectories as u64);
        }
        if !core.has_flag(dir, flag::DIRTY) {
            core.raise_flag(dir, flag::DIRTY);
        }
    }
}

impl ValueWord {
    const FLAGS: u64 = Self::READABLE | Self::DELETING | Self::RENAMING;
}

/// The next plain component of `path` from `at`: its range, or `None` at the end.
fn component(path: &[u8], mut at: usize) -> Option<std::ops::Range<usize>> {
    while path.get(at) == Some(&b'/') {
        at += 1;
    }
    let len = path[at..]
        .iter()
        .position(|&b| b == b'/')
        .unwrap_or(path.len() - at);
    (len > 0).then_some(at..at + len)
}

impl<M: Memories> Namespace<M> for Direct {
    fn lookup(&self, op: &Op<'_, M>, dir: Cachelet, name: &[u8]) -> Result<Cachelet> {
        let name = Name::new(op.core, name)?;
        loop {
            let pair = op.find_pair(dir, name)?.ok_or(Error::NotFound)?;
            if let Some(cachelet) = op.cachelet_of(pair)? {
                return Ok(cachelet);
            }
        }
    }

    fn walk(
        &self,
        op: &Op<'_, M>,
        start: Cachelet,
        path: &[u8],
        enter: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<Walked> {
        let mut walked = Walked {
            at: start,
            parent: start,
            used: 0,
        };
        while let Some(range) = component(path, walked.used) {
            let name = &path[range.clone()];
            if name == b"." || name == b".." {
                walked.used = range.start;
                return Ok(walked);
            }
            if op.core.kind(walked.at) != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            enter(walked.at)?;
            let found = self.lookup(op, walked.at, name)?;
            walked = Walked {
                at: found,
                parent: walked.at,
                used: range.end,
            };
            if op.core.kind(found) == FileKind::Symlink {
                return Ok(walked);
            }
        }
        walked.used = path.len();
        Ok(walked)
    }

    fn create(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Cachelet> {
        op.create(dir, Name::new(op.core, name)?, new)
    }

    fn link(&self, op: &Op<'_, M>, dir: Cachelet, name: &[u8], target: Cachelet) -> Result<()> {
        op.link(dir, Name::new(op.core, name)?, target)
    }

    fn remove(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        name: &[u8],
        removal: Removal,
        allow: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<()> {
        op.remove(dir, Name::new(op.core, name)?, removal, allow)
    }

    fn rename(
        &self,
        op: &Op<'_, M>,
        rename: &Rename<'_>,
        allow: &mut dyn FnMut(Cachelet, Option<Cachelet>) -> Result<()>,
    ) -> Result<()> {
        op.rename(rename, allow)
    }

    fn list(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        after: u64,
        hint: &mut ListHint,
        each: &mut dyn FnMut(crate::namespace::DirEntry<'_>) -> bool,
    ) -> Result<()> {
        op.list(dir, after, hint, each)
    }

    fn name_of(&self, op: &Op<'_, M>, dir: Cachelet, child: u64) -> Result<Vec<u8>> {
        let mut found = None;
        op.list(dir, 0, &mut ListHint::default(), &mut |entry| {
            if entry.ino == child {
                found = Some(entry.name.to_vec());
            }
            found.is_none()
        })?;
        found.ok_or(Error::NotFound)
    }

    fn settle(&self, op: &Op<'_, M>, dir: Cachelet) -> Result<()> {
        op.ensure_indexed(dir)
    }

    fn recycle(&self, core: &Core<M>, dir: Cachelet) -> Result<()> {
        recycle::recycle(core, dir)
    }

    fn queue_dead(&self, core: &Core<M>) {
        recycle::queue_dead(core);
    }

    fn evict(&self, core: &Core<M>, urgent: bool) -> Result<u64> {
        evict::evict(core, urgent)
    }

    fn dissolve(&self, core: &Core<M>, dir: Cachelet) -> Result<()> {
        recycle::dissolve(core, dir)
    }
}

#[cfg(test)]
mod tests {
    use super::component;

    #[test]
    fn components_skip_separators() {
        let path = b"//ab/c///";
        let first = component(path, 0).unwrap();
        assert_eq!(&path[first.clone()], b"ab");
        let second = component(path, first.end).unwrap();
        assert_eq!(&path[second.clone()], b"c");
        assert_eq!(component(path, second.end), None);
    }
}
