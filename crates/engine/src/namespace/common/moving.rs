//! Steps that every rename has, in any namespace: those for the moved files and the directories
//! above them.

use std::sync::atomic::Ordering;

use vellum_layout::{FileKind, Inode};
use vellum_media::{Memories, Memory, Persistent};

use crate::core::cachelet::{Cachelet, flag};
use crate::core::slots::{Op, pause};
use crate::core::times::Change;
use crate::core::{Core, header};
use crate::durability::journal::Record;
use crate::error::{Error, Result};
use crate::namespace::Rename;
use crate::sites;

/// The changes of one or two moved files.
pub(crate) type Moved<'a, M> = (Change<'a, M>, Option<Change<'a, M>>);

pub(crate) type Allow<'a> = &'a mut dyn FnMut(Cachelet, Option<Cachelet>) -> Result<()>;

/// Holds the lock for moving directories between parents.
pub(crate) struct RenameLock<'a, M: Memories>(&'a Core<M>);

impl<M: Memories> Drop for RenameLock<'_, M> {
    fn drop(&mut self) {
        self.0
            .arena
            .store(header::RENAME_LOCK, 0, Ordering::Release);
    }
}

impl<M: Memories> Op<'_, M> {
    /// Checks everything POSIX demands. `false`: there is nothing to do.
    pub(crate) fn check_rename(
        &self,
        rename: &Rename<'_>,
        source: Cachelet,
        target: Option<Cachelet>,
        allow: Allow<'_>,
    ) -> Result<bool> {
        let core = self.core;
        let is_dir = |cachelet| core.kind(cachelet) == FileKind::Directory;
        // A removed directory has no parents: the former ones may have become something else.
        if core.has_flag(rename.to_dir, flag::UNLINKED) {
            return Err(Error::NotFound);
        }
        if rename.no_replace && target.is_some() {
            return Err(Error::Exists);
        }
        if rename.exchange && target.is_none() {
            return Err(Error::NotFound);
        }
        let across = rename.is_across();
        if across && is_dir(source) && self.is_within(rename.to_dir, source)? {
            return Err(Error::Invalid("a directory cannot move into itself"));
        }
        if let Some(target) = target {
            if across && is_dir(target) && self.is_within(rename.from_dir, target)? {
                return Err(if rename.exchange {
                    Error::Invalid("a directory cannot change places with its ancestor")
                } else {
                    Error::NotEmpty
                });
            }
            if target == source {
                return Ok(false);
            }
        }
        allow(source, target)?;
        if rename.whiteout.is_some() {
            self.note_replaced(rename.from_dir);
        }
        if target.is_some() {
            self.note_replaced(rename.to_dir);
            if rename.exchange {
                self.note_replaced(rename.from_dir);
            }
        }
        Ok(true)
    }

    /// Announces to listings of `dir`, before they can miss the old entry, that a name in it gets
    /// another entry.
    fn note_replaced(&self, dir: Cachelet) {
        if !self.core.has_flag(dir, flag::REPLACED) {
            self.core.raise_flag(dir, flag::REPLACED);
        }
    }

    pub(crate) fn lock_renames(&self) -> RenameLock<'_, M> {
        let core = self.core;
        let mut tries = 0;
        while core
            .arena
            .compare_exchange(header::RENAME_LOCK, 0, self.holder())
            .is_err()
        {
            pause(&core.arena, &mut tries);
        }
        RenameLock(core)
    }

    /// The time of a change in both directories. Reads the clock once, because that takes as long
    /// as a lookup.
    pub(crate) fn both_times(&self, rename: &Rename<'_>) -> i64 {
        let from = self.core.changed_at(rename.from_dir);
        let to = match rename.is_across() {
            true => self.core.changed_at(rename.to_dir),
            false => from,
        };
        self.time_after([from, to])
    }

    /// Begins the change of one or two moved files. Their locks are taken in ascending order, so
    /// that two renames cannot wait for each other; a holder waits for no name.
    pub(crate) fn begin_moving(&self, file: Cachelet, other: Option<Cachelet>) -> Moved<'_, M> {
        let (first, second) = match other {
            Some(other) if other.0 < file.0 => (other, Some(file)),
            _ => (file, other),
        };
        let first = self.begin_change(first);
        (first, second.map(|file| self.begin_change(file)))
    }

    /// Records the new parent of a directory that changes it. Returns the number of these: one or
    /// none.
    pub(crate) fn record_parent(
        &self,
        record: &mut Record,
        rename: &Rename<'_>,
        moved: Cachelet,
    ) -> i64 {
        let core = self.core;
        let changes = rename.is_across() && core.kind(moved) == FileKind::Directory;
        if changes {
            record.store(
                core.inode_at(moved) + Inode::PARENT,
                core.ino(rename.to_dir),
            );
        }
        i64::from(changes)
    }

    /// Stores the change time of a moved inode. The record's next fence makes it durable.
    pub(crate) fn store_change_time(&self, change: &Change<'_, M>, now: i64) {
        let core = self.core;
        let at = core.inode_at(change.file);
        let ctime = now.max(change.before.ctime) as u64;
        if core.kind(change.file) == FileKind::Directory {
            // The modification time goes first, in the same flush: recovery ignores entry times of
            // changes that this change time covers.
            core.set_word(at + Inode::MTIME, change.before.mtime as u64);
            core.set_word(at + Inode::CTIME, ctime);
            core.pool
                .flush(sites::RENAME_MOVED_TIMES, at + Inode::MTIME, 16);
        } else {
            core.pool
                .store_through(sites::RENAME_MOVED_CTIME, at + Inode::CTIME, ctime);
        }
    }
}
