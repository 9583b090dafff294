//! The state of a directory's names: their number, the time of their last change, whether all can
//! be read.

use vellum_layout::{Inode, ROOT_SLOT};
use vellum_media::{Memories, Memory};

use crate::core::Core;
use crate::core::cachelet::{CHILD_ONE, Cachelet, field, flag};
use crate::core::slots::{Op, pause};
use crate::core::times::LAST_NS;
use crate::error::{Error, Location, Result};

/// Number of dead names of a directory from which on they are recycled (DirectFS III-G).
const RECYCLE_AT_LEAST: u64 = 100;

impl<M: Memories> Op<'_, M> {
    /// The generation of the arena's knowledge of a directory's names, if that is complete. A miss
    /// between two equal tokens means that the name does not exist.
    #[inline]
    pub(crate) fn index_token(&self, dir: Cachelet) -> Option<u64> {
        let flags = self.core.get(dir, field::FLAGS);
        if flags & flag::TOUCHED == 0 {
            self.core.raise_flag(dir, flag::TOUCHED);
        }
        (flags & flag::INDEXED != 0).then_some(flags / flag::GENERATION)
    }

    /// Fails if names of `dir` cannot be read.
    pub(crate) fn check_names(&self, dir: Cachelet) -> Result<()> {
        if self.core.has_flag(dir, flag::UNSURE) {
            let place = Location::Inode(self.core.ino(dir));
            return Err(Error::damaged("directory with unreadable names", place));
        }
        Ok(())
    }

    /// Continues without those names of `dir` that cannot be read.
    pub(crate) fn do_without_names(&self, dir: Cachelet, error: &Error) {
        self.core.record_damage(error);
        self.core.raise_flag(dir, flag::UNSURE);
        self.forgive_faults();
    }

    /// Adds `count` ([`CHILD_ONE`], and [`MAKING_ONE`] while it is being created) to the children
    /// of `dir`. If the directory is being removed, waits instead until its name is gone, because
    /// after *no such directory* nobody may find it, or until the directory stays. The caller has
    /// flagged no name.
    pub(crate) fn enter_children(&self, dir: Cachelet, count: u64) -> Result<()> {
        let core = self.core;
        let at = core.cachelet_at(dir, field::CHILDREN);
        let mut tries = 0;
        while core.arena.fetch_add(at, count) & 1 != 0 {
            self.leave_children(dir, count);
            while core.get(dir, field::CHILDREN) & 1 != 0 {
                if core.has_flag(dir, flag::UNLINKED) {
                    return Err(Error::NotFound);
                }
                pause(&core.arena, &mut tries);
            }
        }
        Ok(())
    }

    /// Subtracts `count` from the children of `dir`.
    pub(crate) fn leave_children(&self, dir: Cachelet, count: u64) {
        let at = self.core.cachelet_at(dir, field::CHILDREN);
        self.core.arena.fetch_add(at, count.wrapping_neg());
    }

    /// The time of a change in `dir`: the present, but later than any earlier change of the
    /// directory.
    pub(crate) fn change_time(&self, dir: Cachelet) -> i64 {
        self.time_after([self.core.changed_at(dir)])
    }

    /// The present, but later than each of these earlier changes.
    pub(crate) fn time_after<const N: usize>(&self, earlier: [i64; N]) -> i64 {
        let later = earlier.map(|ns| ns.saturating_add(1));
        let now = later.into_iter().fold(self.core.clock.now(), i64::max);
        now.min(LAST_NS)
    }

    /// Records a change of `dir` at `ns`: its times, and the change in the number of its
    /// subdirectories.
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

    /// Accounts for an entry of `dir` that was durably removed, and for the change in the number of
    /// subdirectories.
    pub(crate) fn entry_died(&self, dir: Cachelet, now: i64, subdirectories: i64) {
        let core = self.core;
        self.note_change(dir, now, subdirectories);
        self.leave_children(dir, CHILD_ONE);
        if self.count_dead(dir) {
            core.queue_work(dir);
        }
    }

    /// Counts another dead entry in `dir`. Returns whether there are enough of them to be recycled.
    pub(crate) fn count_dead(&self, dir: Cachelet) -> bool {
        let core = self.core;
        let dead = core.arena.fetch_add(core.cachelet_at(dir, field::DEAD), 1) as u32 + 1;
        u64::from(dead) >= RECYCLE_AT_LEAST.max(core.children(dir) / 4)
    }

    /// Accounts for an entry of `dir` that replaced another one of the same name, and for the
    /// change in the number of subdirectories.
    pub(crate) fn entry_changed(&self, dir: Cachelet, now: i64, subdirectories: i64) {
        let core = self.core;
        core.arena
            .fetch_add(core.cachelet_at(dir, field::CHILDREN), CHILD_ONE);
        self.entry_died(dir, now, subdirectories);
    }

    /// Marks an empty directory as dying, so that nothing more is created in it.
    ///
    /// A child that is counted and shows no name is being created or was removed. The directory
    /// waits for it to finish, because after *not empty* nobody may find the directory empty,
    /// unless a name went meanwhile. Operations on children wait for none outside their directory,
    /// so all of these waits end.
    ///
    /// # Errors
    /// [`Error::NotEmpty`].
    pub(crate) fn begin_dying(
        &self,
        dir: Cachelet,
        shows_a_name: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<()> {
        let core = self.core;
        let at = core.cachelet_at(dir, field::CHILDREN);
        let mut tries = 0;
        while core.arena.compare_exchange(at, 0, 1).is_err() {
            if shows_a_name()? {
                return Err(Error::NotEmpty);
            }
            // Does not wait for names that cannot be read.
            self.check_media()?;
            pause(&core.arena, &mut tries);
        }
        Ok(())
    }

    /// Ends the dying of a directory that stays.
    pub(crate) fn end_dying(&self, dir: Cachelet) {
        self.leave_children(dir, 1);
    }

    /// Whether `dir` is `ancestor` or lies below it.
    pub(crate) fn is_within(&self, dir: Cachelet, ancestor: Cachelet) -> Result<bool> {
        let core = self.core;
        let wanted = core.ino(ancestor);
        let mut ino = core.ino(dir);
        for _ in 0..core.geometry.meta_slots() {
            if ino == wanted {
                return Ok(true);
            }
            if ino == ROOT_SLOT {
                return Ok(false);
            }
            ino = core.word(core.slot_at(ino)? + Inode::PARENT);
        }
        Err(Error::damaged(
            "directories form a circle",
            Location::Inode(wanted),
        ))
    }
}

impl<M: Memories> Core<M> {
    /// Subtracts `count` from the dead words counted in the low half. The generation above stays.
    pub(crate) fn lower_dead(&self, dir: Cachelet, count: u64) {
        let at = self.cachelet_at(dir, field::DEAD);
        let mut word = self.get(dir, field::DEAD);
        loop {
            let less = word - count.min(word & 0xFFFF_FFFF);
            match self.arena.compare_exchange(at, word, less) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}
