//! Removal (DirectFS III-E): delete flag, one atomic persistent write, then invalid. The rest is
//! recycled in the background.

use vellum_layout::{Entry, FileKind, LifeWord};
use vellum_media::{Memories, Persistent};

use super::index::{Index, Pair, ValueWord};
use super::{Entries, Name};
use crate::core::cachelet::{Cachelet, flag};
use crate::core::slots::{Op, pause};
use crate::error::{Error, Result};
use crate::namespace::{ListHint, ListRange, Removal};
use crate::sites;

impl<M: Memories> Op<'_, M> {
    /// Removes `name` from `dir`.
    pub(crate) fn remove<S: Entries<M>>(
        &self,
        dir: Cachelet,
        name: Name<'_>,
        removal: Removal,
        allow: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<()> {
        let core = self.core;
        let mut tries = 0;
        if !core.has_flag(dir, flag::COUNTED) {
            // The index may hold names of a directory that is not counted: they were being created
            // when the others were evicted.
            self.ensure_counted::<S>(dir)?;
        }
        loop {
            let (pair, victim) = self.find_target::<S>(dir, name)?.ok_or(Error::NotFound)?;
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
                self.ensure_counted::<S>(victim)?;
            }
            if pair.value.has(ValueWord::DELETING | ValueWord::RENAMING) {
                continue;
            }
            let Some(flagged) = S::Index::update(core, pair, pair.value.with(ValueWord::DELETING))
            else {
                continue;
            };
            if is_dir && let Err(error) = self.begin_dying_indexed::<S>(victim) {
                S::Index::update(core, flagged, pair.value);
                return Err(error);
            }
            let _changing = core.change_paths(is_dir);
            self.bury::<S>(dir, flagged, victim);
            return Ok(());
        }
    }

    /// Marks an empty directory as dying, so that nothing more is created in it.
    ///
    /// # Errors
    /// [`Error::NotEmpty`].
    pub(crate) fn begin_dying_indexed<S: Entries<M>>(&self, dir: Cachelet) -> Result<()> {
        self.begin_dying(dir, &mut || {
            self.ensure_indexed::<S>(dir)?;
            self.shows_a_name::<S>(dir)
        })
    }

    /// Whether a lookup finds a name in `dir`.
    fn shows_a_name<S: Entries<M>>(&self, dir: Cachelet) -> Result<bool> {
        let core = self.core;
        let mut shown = false;
        let all = ListRange::behind(0);
        self.list::<S>(dir, all, &mut ListHint::default(), &mut |entry| {
            let found = Name::new(core, entry.name)
                .ok()
                .and_then(|name| S::Index::find::<S>(core, dir, name));
            shown = found.is_some_and(|pair| {
                pair.value.has(ValueWord::READABLE) && !pair.value.has(ValueWord::RENAMING)
            });
            !shown
        })?;
        Ok(shown)
    }

    /// Commits the removal of a flagged name, and invalidates the name.
    fn bury<S: Entries<M>>(&self, dir: Cachelet, pair: Pair, victim: Cachelet) {
        let core = self.core;
        let now = self.change_time(dir);
        let life = core.geometry.slot_at(pair.entry.entry()) + Entry::LIFE;
        // From the life word on some listings miss the name, so lookups wait until all of them do.
        S::Index::hold(core, pair);
        core.pool
            .store_through(sites::REMOVE_LIFE, life, LifeWord::dead(now).0);
        core.pool.fence(sites::REMOVE_LIFE_DURABLE);
        let left = self.lower_links(victim);
        let subdirectories = i64::from(core.kind(victim) == FileKind::Directory);
        self.entry_died(dir, now, -subdirectories);
        S::Index::remove(self, pair);
        self.name_gone(victim, left, now, S::Index::NAME_REFS);
    }
}
