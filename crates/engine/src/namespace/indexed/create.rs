//! Creation (DirectFS III-E, Algorithm 1) and hard links.

use vellum_layout::{FileKind, InodeState, LifeWord, SLOT_BYTES, TargetWord};
use vellum_media::{Memories, Memory, Site, Transactions};

use super::index::{Index, Pair, ValueWord};
use super::{Entries, Name};
use crate::core::alloc::Take;
use crate::core::cachelet::{Cachelet, MAKING_ONE};
use crate::core::slots::{Op, pause};
use crate::error::{Error, Result};
use crate::namespace::NewInode;
use crate::namespace::common::inode::Making;
use crate::namespace::common::log::Claim;
use crate::sites;

/// An entry written to the pool whose name does not exist yet.
pub(crate) struct Draft {
    /// Its metadata slot.
    pub(crate) entry: u64,
    pub(crate) checksum: u32,
    /// Its life word.
    pub(crate) life: LifeWord,
    pub(crate) claim: Claim,
    pub(crate) slots: u64,
}

/// The slots and the log word of an entry that will be written.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    pub(crate) entry: u64,
    pub(crate) slots: u64,
    pub(crate) claim: Claim,
    /// The step that writes it.
    pub(crate) site: Site,
}

impl Spot {
    /// The draft of the entry that was written here and begins with these bytes.
    pub(crate) fn drafted(self, bytes: &[u8], life: LifeWord) -> Draft {
        let checksum = bytes[36..40].try_into().map_or(0, u32::from_le_bytes);
        Draft {
            entry: self.entry,
            checksum,
            life,
            claim: self.claim,
            slots: self.slots,
        }
    }
}

/// Byte ranges `(offset, len)` that an operation writes after its new entry. Empty ranges are
/// ignored.
pub(crate) type StoredNext = [(u64, u64); 3];

/// Proof that a name is absent from a fully indexed directory: the index token, and what the index
/// knows of the absence.
type Absent<S, M> = (u64, Option<<<S as Entries<M>>::Index as Index<M>>::Absence>);

impl<M: Memories> Op<'_, M> {
    /// Creates an inode with the name `name` in `dir`.
    pub(crate) fn create<S: Entries<M>>(
        &self,
        dir: Cachelet,
        name: Name<'_>,
        new: &NewInode<'_>,
    ) -> Result<Cachelet> {
        let core = self.core;
        S::Index::prefetch(core, dir, name);
        let mut above = S::Above::default();
        S::load_above(core, dir, &mut above)?;
        let absent = self.wait_absent::<S>(dir, name)?;
        let mut making = Making::begin(self, dir, S::Index::NAME_REFS)?;
        S::load_above(core, dir, &mut above)?;
        let ino = making.take_inode(new)?;
        // Words are claimed before the first store to the pool: a locked instruction would wait for
        // that store.
        let slots = S::slots_for(&above, name);
        let place = self.place_entry::<S>(
            sites::CREATE_ENTRY,
            dir,
            slots,
            Take::Common,
            StoredNext::default(),
        )?;
        making.entry = Some((place.entry, place.slots));
        making.write_contents(new)?;
        let now = self.change_time(dir);
        let (cachelet, generation) = making.write_inode(new, now, InodeState::Live)?;
        let target = TargetWord::new(ino, new.kind);
        let file = (target, generation);
        let draft = S::write_entry(self, (dir, &mut above), name, place, file, now)?;
        // No name may lead to an inode that the medium did not take.
        self.check_media()?;

        let steps = [
            sites::CREATE_ENTRY_DURABLE,
            sites::CREATE_LOG_WORD,
            sites::CREATE_LOG_WORD_DURABLE,
        ];
        // The log word goes to the medium together with the entry, where that is allowed.
        let is_logged = S::log_entry(self, steps[1], &draft);
        if is_logged {
            // The log names the entry, so its slots must not be reused, whatever happens.
            making.entry = None;
        }
        let value = ValueWord::of_cachelet(cachelet, new.kind);
        let inserted = self.insert_new::<S>(dir, name, absent, draft.entry, value);
        let Ok(Some(pair)) = inserted else {
            if is_logged {
                self.discard_later::<S>(dir, &draft);
            }
            drop(making);
            return inserted.and_then(|_| self.create::<S>(dir, name, new));
        };
        making.keep();
        S::Index::hold(core, pair);
        self.commit_draft::<S>(steps, dir, &draft, is_logged);
        self.note_change(dir, now, i64::from(new.kind == FileKind::Directory));
        S::Index::release(core, pair, value.with(ValueWord::READABLE));
        Ok(cachelet)
    }

    /// Inserts an unreadable pair, if the name is still absent, and the directory's part of the
    /// index has been complete since the token of its absence.
    pub(crate) fn insert_new<S: Entries<M>>(
        &self,
        dir: Cachelet,
        name: Name<'_>,
        (token, absence): Absent<S, M>,
        entry: u64,
        value: ValueWord,
    ) -> Result<Option<Pair>> {
        let inserted = S::Index::insert::<S>(self, dir, name, absence, entry, value)?;
        let Ok(pair) = inserted else { return Ok(None) };
        if self.index_token(dir) == Some(token) {
            return Ok(Some(pair));
        }
        S::Index::remove(self, pair);
        Ok(None)
    }

    /// Waits until no creation or rename of `name` is in flight. Returns the proof of its absence.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name exists.
    fn wait_absent<S: Entries<M>>(&self, dir: Cachelet, name: Name<'_>) -> Result<Absent<S, M>> {
        let core = self.core;
        let mut tries = 0;
        loop {
            let token = match self.index_token(dir) {
                Some(token) => token,
                None => {
                    self.ensure_indexed::<S>(dir)?;
                    continue;
                }
            };
            match S::Index::look::<S>(core, dir, name) {
                Err(absence) if self.index_token(dir) == Some(token) => {
                    // An unreadable name may be this one.
                    self.check_media()?;
                    return self.check_names(dir).map(|()| (token, Some(absence)));
                }
                Err(_) => {}
                Ok(pair)
                    if pair.value.has(ValueWord::READABLE)
                        && !pair.value.has(ValueWord::RENAMING | ValueWord::DELETING) =>
                {
                    return Err(Error::Exists);
                }
                Ok(_) => pause(&core.arena, &mut tries),
            }
        }
    }

    /// Claims a log word in `dir` and writes an entry for it. Past the cache, not fenced: a locked
    /// instruction or a fence follows before others can find it. The operation writes to `next`
    /// afterwards.
    #[track_caller]
    pub(crate) fn draft_entry<S: Entries<M>>(
        &self,
        site: Site,
        (dir, name): (Cachelet, Name<'_>),
        file: (TargetWord, u32),
        now: i64,
        (take, next): (Take, StoredNext),
    ) -> Result<Draft> {
        let mut above = S::Above::default();
        S::load_above(self.core, dir, &mut above)?;
        let slots = S::slots_for(&above, name);
        let place = self.place_entry::<S>(site, dir, slots, take, next)?;
        let draft = S::write_entry(self, (dir, &mut above), name, place, file, now)
            .inspect_err(|_| self.core.free_slots(place.entry, place.slots))?;
        // Nothing may lead to an entry that the medium did not take.
        self.check_media().inspect_err(|_| self.discard(&draft))?;
        Ok(draft)
    }

    /// Allocates slots for an entry, and claims a log word in `dir`. Announces stores to these, and
    /// to `next`.
    fn place_entry<S: Entries<M>>(
        &self,
        site: Site,
        dir: Cachelet,
        slots: u64,
        take: Take,
        next: StoredNext,
    ) -> Result<Spot> {
        let core = self.core;
        let entry = self.alloc_of(S::KIND, slots, take)?;
        let claim = self
            .log_claim::<S>(dir)
            .inspect_err(|_| core.free_slots(entry, slots))?;
        let entry_place = (core.geometry.slot_at(entry), slots * SLOT_BYTES);
        let [first, second, third] = next;
        let places = [entry_place, (claim.at, 8), first, second, third];
        core.pool.about_to_store(&places);
        Ok(Spot {
            entry,
            slots,
            claim,
            site,
        })
    }

    /// Frees a draft that no log will name.
    pub(crate) fn discard(&self, draft: &Draft) {
        self.core.free_slots(draft.entry, draft.slots);
    }

    /// Makes the name of a written entry exist, durably. This is the commit point of creation.
    /// Listings may show the name before its pair is readable, so lookups of it wait already.
    fn commit_draft<S: Entries<M>>(
        &self,
        steps: [Site; 3],
        dir: Cachelet,
        draft: &Draft,
        is_logged: bool,
    ) {
        S::commit_entry(self, steps, draft, is_logged);
        // The entry is near for the next lookup of the name.
        let core = self.core;
        core.pool.prefetch(core.geometry.slot_at(draft.entry));
        self.leave_children(dir, MAKING_ONE);
    }

    /// Adds the name `name` in `dir` to `target`. The caller holds a reference.
    pub(crate) fn link<S: Entries<M>>(
        &self,
        dir: Cachelet,
        name: Name<'_>,
        target: Cachelet,
    ) -> Result<()> {
        let core = self.core;
        let absent = self.wait_absent::<S>(dir, name)?;
        let mut making = Making::begin(self, dir, S::Index::NAME_REFS)?;
        let identity = core.identity(target);
        let kind = core.kind(target);
        let now = self.change_time(dir);
        let word = TargetWord::new(core.ino(target), kind);
        let site = sites::LINK_ENTRY;
        let file = (word, identity.generation());
        let next = [(core.inode_at(target), SLOT_BYTES), (0, 0), (0, 0)];
        let next = (Take::Common, next);
        let draft = self.draft_entry::<S>(site, (dir, name), file, now, next)?;
        making.entry = Some((draft.entry, draft.slots));
        let value = ValueWord::of_cachelet(target, kind);
        let Some(pair) = self.insert_new::<S>(dir, name, absent, draft.entry, value)? else {
            drop(making);
            return self.link::<S>(dir, name, target);
        };
        // The name exists as soon as it is counted, which fails if all other names are gone.
        // Lookups of it wait from before that until it exists.
        S::Index::hold(core, pair);
        if let Err(error) = self.reserve_link(target) {
            S::Index::remove(self, pair);
            return Err(error);
        }
        making.keep();
        core.add_refs(target, S::Index::NAME_REFS);
        let steps = [
            sites::LINK_ENTRY_DURABLE,
            sites::LINK_LOG_WORD,
            sites::LINK_LOG_WORD_DURABLE,
        ];
        self.commit_draft::<S>(steps, dir, &draft, false);
        // The count includes the name only now, when the name is durable.
        self.count_link(target);
        self.note_change(dir, now, 0);
        self.store_links(sites::LINK_LINKS, target, now);
        S::Index::release(core, pair, value.with(ValueWord::READABLE));
        Ok(())
    }
}
