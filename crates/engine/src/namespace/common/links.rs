//! Counts the names of a file (links), and handles the removal of the last one.

use vellum_layout::{FileKind, IdentityWord, Inode, InodeState, LinksWord, SLOT_BYTES};
use vellum_media::{Memories, Memory, Persistent, Site};

use crate::core::Core;
use crate::core::cachelet::{Cachelet, LINK_RESERVED, field, flag};
use crate::core::limits::LINK_MAX;
use crate::core::slots::{Op, pause};
use crate::error::{Error, Result};
use crate::sites;

/// The number of names in a `LINKS` word, including those that are not durable yet.
fn names_in(links: u64) -> u64 {
    links / LINK_RESERVED + links % LINK_RESERVED
}

/// A file without a name that is getting its first one. Without [`Self::keep`] it has none again.
pub(crate) struct FirstName<'a, M: Memories> {
    core: &'a Core<M>,
    file: Cachelet,
}

impl<M: Memories> FirstName<'_, M> {
    /// The name exists.
    pub(crate) fn keep(self) {
        self.core.clear_flag(self.file, flag::NAMING);
        std::mem::forget(self);
    }
}

impl<M: Memories> Drop for FirstName<'_, M> {
    fn drop(&mut self) {
        self.core
            .raise_flag(self.file, flag::UNLINKED | flag::LINKABLE);
        self.core.clear_flag(self.file, flag::NAMING);
    }
}

impl<M: Memories> Op<'_, M> {
    /// If the file was made without a name and has got none: claims it for its first one, which
    /// [`FirstName::keep`] confirms. Waits while another thread gives it one.
    pub(crate) fn claim_unnamed(&self, file: Cachelet) -> Option<FirstName<'_, M>> {
        const WAITING: u64 = flag::UNLINKED | flag::LINKABLE;
        let core = self.core;
        let at = core.cachelet_at(file, field::FLAGS);
        let mut tries = 0;
        loop {
            let flags = core.get(file, field::FLAGS);
            if flags & flag::NAMING != 0 {
                pause(&core.arena, &mut tries);
                continue;
            }
            if flags & WAITING != WAITING {
                return None;
            }
            let claimed = flags & !WAITING | flag::NAMING;
            if core.arena.compare_exchange(at, flags, claimed).is_ok() {
                return Some(FirstName { core, file });
            }
        }
    }

    /// Reserves one more name. Fails if the file has no name left or too many.
    pub(crate) fn reserve_link(&self, target: Cachelet) -> Result<()> {
        let core = self.core;
        let at = core.cachelet_at(target, field::LINKS);
        let mut links = core.get(target, field::LINKS);
        loop {
            match names_in(links) {
                0 if !core.has_flag(target, flag::NAMING) => return Err(Error::NotFound),
                LINK_MAX.. => return Err(Error::TooManyLinks),
                _ => {}
            }
            match core
                .arena
                .compare_exchange(at, links, links + LINK_RESERVED)
            {
                Ok(_) => return Ok(()),
                Err(now) => links = now,
            }
        }
    }

    /// Counts a reserved name, which from now on is durable.
    pub(crate) fn count_link(&self, target: Cachelet) {
        let counted = 1u64.wrapping_sub(LINK_RESERVED);
        let at = self.core.cachelet_at(target, field::LINKS);
        self.core.arena.fetch_add(at, counted);
    }

    /// Subtracts one name. Returns how many are left. A directory has only one, and loses its own
    /// `.` with it.
    pub(crate) fn lower_links(&self, target: Cachelet) -> u64 {
        let core = self.core;
        if core.kind(target) == FileKind::Directory {
            core.set(target, field::LINKS, 0);
            return 0;
        }
        let at = core.cachelet_at(target, field::LINKS);
        let before = core.arena.fetch_add(at, u64::MAX);
        if before.is_multiple_of(LINK_RESERVED) {
            // A damaged inode recorded fewer names than there are. The file stays for the others.
            core.arena.fetch_add(at, 1);
            return names_in(before).max(1);
        }
        names_in(before - 1)
    }

    /// Writes the link count and change time of a file to its inode. Flushed; the next fence makes
    /// them durable. Recovery recounts links anyway, but an opening after a close does not. This
    /// thread may reach no fence before another thread closes the pool. So the file is marked dirty
    /// for the close.
    pub(crate) fn store_links(&self, site: Site, target: Cachelet, now: i64) {
        let core = self.core;
        let change = self.begin_change(target);
        let at = core.inode_at(target);
        let ctime = now.max(change.before.ctime);
        core.set_word(at + Inode::CTIME, ctime as u64);
        // Names are counted before, and the count is loaded under the lock. So the last one to
        // store includes all others.
        let links = names_in(core.get(target, field::LINKS)) as u32;
        core.set_word(at + Inode::LINKS, LinksWord::new(links, 0).0);
        core.pool.flush(site, at, SLOT_BYTES);
        if !core.has_flag(target, flag::DIRTY) {
            core.raise_flag(target, flag::DIRTY);
        }
        change.show(None, ctime);
    }

    /// Accounts for the loss of a name of `victim` that held `name_refs` references. It was
    /// subtracted already, so that `left` names are left. At zero the rest is done by the
    /// background, after the last close.
    pub(crate) fn name_gone(&self, victim: Cachelet, left: u64, now: i64, name_refs: u64) {
        let core = self.core;
        if left > 0 {
            self.store_links(sites::GONE_LINKS, victim, now);
            // An operation that removed the last name may have seen this one still counted.
            if core.drop_refs(victim, name_refs) == 0 && core.has_flag(victim, flag::UNLINKED) {
                core.queue_work(victim);
            }
            return;
        }
        self.raise_ctime(victim, now);
        core.raise_flag(victim, flag::UNLINKED);
        if core.drop_refs(victim, name_refs) == 0 {
            core.queue_work(victim);
        } else {
            self.make_orphan(victim);
        }
    }

    /// Marks an open file without names as an orphan, for observers of the pool after a crash.
    /// Recovery does not need the mark, so it need not become durable.
    fn make_orphan(&self, victim: Cachelet) {
        let core = self.core;
        let at = core.inode_at(victim);
        let orphan = IdentityWord(core.word(at)).with_state(InodeState::Orphan);
        core.set_word(at, orphan.0);
    }
}
