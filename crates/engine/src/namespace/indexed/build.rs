//! Building a directory's part of the index at its first access, by reading its log
//! (DirectFS III-C: rebuilt lazily, a million entries in tens of milliseconds).

use vellum_layout::{Entry, LifeWord};
use vellum_media::Memories;

use super::index::{Index, ValueWord};
use super::{Entries, Name};
use crate::core::cachelet::{CHILD_ONE, Cachelet, field, flag};
use crate::core::slots::{Op, pause};
use crate::error::{Error, Location, Result};
use crate::namespace::common::log::{Logged, scan_log};

/// Counts of a directory that building its index collects.
#[derive(Default)]
struct Counts {
    children: u64,
    subdirectories: u64,
    dead: u64,
    last_cookie: u64,
}

impl<M: Memories> Op<'_, M> {
    /// Makes sure that every entry of `dir` is in the index. One operation builds it, others wait.
    pub(crate) fn ensure_indexed<S: Entries<M>>(&self, dir: Cachelet) -> Result<()> {
        let core = self.core;
        let mut tries = 0;
        while !core.has_flag(dir, flag::INDEXED) {
            if core.raise_flag(dir, flag::BUILDING) & flag::BUILDING != 0 {
                pause(&core.arena, &mut tries);
                continue;
            }
            if core.has_flag(dir, flag::INDEXED) {
                core.clear_flag(dir, flag::BUILDING);
                return Ok(());
            }
            let built = self.build_index::<S>(dir);
            if built.is_ok() {
                core.raise_flag(dir, flag::INDEXED);
            }
            core.clear_flag(dir, flag::BUILDING);
            built?;
        }
        Ok(())
    }

    /// As [`Self::ensure_indexed`], for a change of `dir`: makes sure that the end of the log and
    /// the number of names are known, too.
    ///
    /// # Errors
    /// Fails if names cannot be read, because then neither can be found out.
    pub(crate) fn ensure_counted<S: Entries<M>>(&self, dir: Cachelet) -> Result<()> {
        self.ensure_indexed::<S>(dir)?;
        if self.core.has_flag(dir, flag::COUNTED) {
            return Ok(());
        }
        self.check_names(dir)
    }

    fn is_alive(&self, entry: u64) -> bool {
        let at = self.core.geometry.slot_at(entry) + Entry::LIFE;
        LifeWord(self.core.word(at)).is_alive()
    }

    /// Inserts every readable name of `dir` into the index.
    fn build_index<S: Entries<M>>(&self, dir: Cachelet) -> Result<()> {
        let core = self.core;
        if core.has_flag(dir, flag::UNLINKED) {
            // The directory was empty when it was removed. Its log leads only to dead entries,
            // which may be of an area that no longer exists.
            return Ok(());
        }
        let again = core.has_flag(dir, flag::COUNTED);
        let mut counts = Counts::default();
        let mut buffer = S::Buffer::default();
        self.unless_damaged(dir, S::check_home(core, dir))?;
        let root = core.get(dir, field::ROOT);
        let scanned = scan_log(core, core.ino(dir), root, &mut |logged| {
            let indexed = self.index_logged::<S>(dir, logged, &mut buffer, &mut counts, again);
            self.unless_damaged(dir, indexed)
        });
        // If bytes were lost in the middle, nothing is known until the next attempt.
        let read = self.check_media();
        if self.is_unsure() {
            return read;
        }
        let tail = self.unless_damaged(dir, scanned.map(Some))?;
        self.unless_damaged(dir, read)?;
        let Some(tail) = tail.filter(|_| !again && self.check_names(dir).is_ok()) else {
            return Ok(());
        };
        core.set(dir, field::TAIL, tail.0);
        let generation = core.get(dir, field::DEAD) >> 32 << 32;
        core.set(dir, field::DEAD, generation | counts.dead);
        core.set(dir, field::LINKS, 2 + counts.subdirectories);
        core.set(dir, field::CHILDREN, counts.children * CHILD_ONE);
        core.raise_flag(dir, flag::COUNTED);
        Ok(())
    }

    /// Turns damage in `dir` into success: records it, and continues without what is damaged.
    fn unless_damaged<T: Default>(&self, dir: Cachelet, result: Result<T>) -> Result<T> {
        match result {
            Err(error @ (Error::Damaged { .. } | Error::Unreadable(_))) => {
                self.do_without_names(dir, &error);
                Ok(T::default())
            }
            other => other,
        }
    }

    /// Inserts the name of a log word's entry into the index, if the entry is alive.
    fn index_logged<S: Entries<M>>(
        &self,
        dir: Cachelet,
        logged: Logged,
        buffer: &mut S::Buffer,
        counts: &mut Counts,
        again: bool,
    ) -> Result<()> {
        let core = self.core;
        let (owner, entry) = (core.ino(dir), logged.word.entry());
        if !S::is_there(core, entry) {
            // The entry is being created. Its pair is in the index already or will be, and will be
            // removed again because the index was incomplete.
            return Ok(());
        }
        let body = S::read(core, entry, owner, buffer)?;
        logged
            .cookies
            .check(entry, body.cookie, counts.last_cookie)?;
        counts.last_cookie = body.cookie;
        if !body.life.is_alive() {
            counts.dead += 1;
            return Ok(());
        }
        counts.children += 1;
        let target = body.target;
        let kind = target
            .kind()
            .ok_or(Error::damaged("entry kind", Location::Slot(entry)))?;
        if !core.is_inode_slot(target.ino()) {
            return Err(Error::damaged(
                "entry names no inode",
                Location::Slot(entry),
            ));
        }
        counts.subdirectories += u64::from(kind == vellum_layout::FileKind::Directory);
        let value = ValueWord::of_inode(target.ino(), kind);
        let name = Name::new(core, S::name(buffer))?;
        self.index_entry::<S>(dir, name, entry, value, again)
    }

    /// Inserts the name of a live entry into the index. `again`: the directory was indexed before,
    /// so operations that began then may still be working on its names.
    fn index_entry<S: Entries<M>>(
        &self,
        dir: Cachelet,
        name: Name<'_>,
        entry: u64,
        value: ValueWord,
        again: bool,
    ) -> Result<()> {
        let core = self.core;
        // A removal that found the name before its eviction may just have ended. Lookups wait until
        // it is known that none has.
        let first = if again {
            value.with(ValueWord::RENAMING)
        } else {
            value
        };
        let mut tries = 0;
        loop {
            match S::Index::insert::<S>(self, dir, name, None, entry, first)? {
                Ok(new) if again && !self.is_alive(entry) => {
                    S::Index::remove(self, new);
                    return Ok(());
                }
                Ok(new) if again => {
                    S::Index::release(core, new, value);
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                Err(there) if there.entry.entry() == entry => return Ok(()),
                // The name was replaced, or removed and created again.
                Err(_) if again && !self.is_alive(entry) => return Ok(()),
                Err(there) if again && !there.value.is_settled() => {
                    // A creation that will be undone, because the index was incomplete.
                    pause(&core.arena, &mut tries);
                }
                Err(_) => {
                    return Err(Error::damaged(
                        "two entries of one name",
                        Location::Slot(entry),
                    ));
                }
            }
        }
    }
}
