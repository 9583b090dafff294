//! Removal (DirectFS III-E): delete flag, one atomic persistent write, then invalid; the rest is
//! recycled in the background.

use vellum_layout::{Entry, FileKind, IdentityWord, InodeState, LifeWord};
use vellum_media::{Memories, Memory, Persistent};

use super::Name;
use super::index::{Pair, ValueWord};
use crate::cachelet::{CHILD_ONE, Cachelet, NAME_ONE, field, flag};
use crate::error::{Error, Result};
use crate::namespace::{ListHint, Removal};
use crate::sites;
use crate::slots::{Op, pause};

/// Dead log words of a directory from which recycling starts (DirectFS III-G).
const RECYCLE_AT_LEAST: u64 = 100;

impl<M: Memories> Op<'_, M> {
    /// Removes `name` from `dir`.
    pub(crate) fn remove(
        &self,
        dir: Cachelet,
        name: Name<'_>,
        removal: Removal,
        allow: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<()> {
        let core = self.core;
        let mut tries = 0;
        if !core.has_flag(dir, flag::COUNTED) {
            // Names may be in the index whose directory is not counted: they were being made when
            // the others were evicted.
            self.ensure_counted(dir)?;
        }
        loop {
            let (pair, victim) = self.find_target(dir, name)?.ok_or(Error::NotFound)?;
            if pair.value.has(ValueWord::DELETING) {
                pause(&core.arena, &mut tries);
                continue;
            }
            let is_dir = core.kind(victim) == FileKind::Directory;
            allow(victim)?;
            match removal {
                Removal::File if is_dir => return Err(Error::IsDirectory),
                Removal::Directory if !is_dir => return Err(Error::NotDirectory),
                _ => {}
            }
            if is_dir {
                self.ensure_counted(victim)?;
            }
            if pair.value.has(ValueWord::DELETING | ValueWord::RENAMING) {
                continue;
            }
            let Some(flagged) = core.index_update(pair, pair.value.with(ValueWord::DELETING))
            else {
                continue;
            };
            if is_dir && let Err(error) = self.begin_dying(victim) {
                core.index_update(flagged, pair.value);
                return Err(error);
            }
            self.bury(dir, flagged, victim);
            return Ok(());
        }
    }

    /// Marks an empty directory as dying, so that nothing more is created in it.
    ///
    /// A child that is counted and shows no name is being made or was removed. Its end is waited for,
    /// because after *not empty* nobody may find the directory empty, unless a name went meanwhile.
    /// Operations on children wait for none outside their directory, so all of these waits end.
    ///
    /// # Errors
    /// [`Error::NotEmpty`].
    pub(crate) fn begin_dying(&self, dir: Cachelet) -> Result<()> {
        let core = self.core;
        let at = core.cachelet_at(dir, field::CHILDREN);
        let mut tries = 0;
        while core.arena.compare_exchange(at, 0, 1).is_err() {
            self.ensure_indexed(dir)?;
            if self.shows_a_name(dir)? {
                return Err(Error::NotEmpty);
            }
            // Names that cannot be read are not waited for.
            self.check_media()?;
            pause(&core.arena, &mut tries);
        }
        Ok(())
    }

    /// Whether a lookup finds a name in `dir`.
    fn shows_a_name(&self, dir: Cachelet) -> Result<bool> {
        let core = self.core;
        let parent = core.ino(dir);
        let mut shown = false;
        self.list(dir, 0, &mut ListHint::default(), &mut |entry| {
            let found = Name::new(core, entry.name)
                .ok()
                .and_then(|name| core.index_find(parent, name.bytes, name.hash));
            shown = found.is_some_and(|pair| {
                pair.value.has(ValueWord::READABLE) && !pair.value.has(ValueWord::RENAMING)
            });
            !shown
        })?;
        Ok(shown)
    }

    /// Commits the removal of a flagged name, and invalidates it.
    fn bury(&self, dir: Cachelet, pair: Pair, victim: Cachelet) {
        let core = self.core;
        let now = self.change_time(dir);
        let life = core.geometry.slot_at(pair.entry.entry()) + Entry::LIFE;
        // From the life word on listings miss the name: lookups wait until all do.
        core.index_hold(pair);
        core.pool
            .store_through(sites::REMOVE_LIFE, life, LifeWord::dead(now).0);
        core.pool.fence(sites::REMOVE_LIFE_DURABLE);
        let left = self.lower_links(victim);
        let subdirectories = i64::from(core.kind(victim) == FileKind::Directory);
        self.entry_died(dir, now, -subdirectories);
        self.index_remove(pair);
        self.name_gone(victim, left, now);
    }

    /// Accounts for an entry of `dir` that was durably removed, with which `subdirectories` came.
    pub(crate) fn entry_died(&self, dir: Cachelet, now: i64, subdirectories: i64) {
        let core = self.core;
        self.note_change(dir, now, subdirectories);
        self.leave_children(dir, CHILD_ONE);
        let dead = core.arena.fetch_add(core.cachelet_at(dir, field::DEAD), 1) as u32 + 1;
        if u64::from(dead) >= RECYCLE_AT_LEAST.max(core.children(dir) / 4) {
            core.queue_work(dir);
        }
    }

    /// A name of `victim` is gone, and counted out, so that `left` are left: at zero the rest is
    /// left to the background (or, while it is open, to the last close).
    pub(crate) fn name_gone(&self, victim: Cachelet, left: u64, now: i64) {
        let core = self.core;
        if left > 0 {
            self.store_links(sites::GONE_LINKS, victim, now);
            // Whoever took the last name away may have seen this one still counted.
            if core.drop_refs(victim, NAME_ONE) == 0 && core.has_flag(victim, flag::UNLINKED) {
                core.queue_work(victim);
            }
            return;
        }
        self.raise_ctime(victim, now);
        core.raise_flag(victim, flag::UNLINKED);
        if core.drop_refs(victim, NAME_ONE) == 0 {
            core.queue_work(victim);
        } else {
            self.make_orphan(victim);
        }
    }

    /// Notes that an open file has no name left, for whoever looks at the pool after a crash. Recovery
    /// finds out by itself, so this need not arrive.
    fn make_orphan(&self, victim: Cachelet) {
        let core = self.core;
        let at = core.inode_at(victim);
        let orphan = IdentityWord(core.word(at)).with_state(InodeState::Orphan);
        core.set_word(at, orphan.0);
    }
}
