//! Creation (DirectFS III-E, Algorithm 1) and hard links.

use vellum_layout::{
    ChunkKind, Entry, EntryHead, FileKind, IdentityWord, Inode, InodeState, LifeWord, LinksWord,
    LogWord, OwnerWord, SLOT_BYTES, TargetWord, text_check, text_home,
};
use vellum_media::{Memories, Memory, Persistent, Site};
use zerocopy::IntoBytes;

use super::Name;
use super::index::{Pair, ValueWord};
use super::log::Claim;
use crate::cachelet::{CHILD_ONE, Cachelet, LINK_RESERVED, MAKING_ONE, NAME_ONE, field, flag};
use crate::error::{Error, Result};
use crate::namespace::NewInode;
use crate::sites;
use crate::slots::{Op, Tally, pause};
use crate::times::Times;

/// An entry written to the pool but not yet named by a log.
pub(crate) struct Draft {
    /// Its metadata slot.
    pub(crate) entry: u64,
    pub(crate) checksum: u32,
    /// Its life word.
    pub(crate) life: LifeWord,
    pub(crate) claim: Claim,
    slots: u64,
}

/// Where an entry will be.
#[derive(Clone, Copy)]
struct Place {
    entry: u64,
    slots: u64,
    claim: Claim,
    /// Which step writes it.
    site: Site,
}

/// The names in a `LINKS` word, with those that are not durable yet.
fn names_in(links: u64) -> u64 {
    links / LINK_RESERVED + links % LINK_RESERVED
}

/// Gives everything back if creation ends early. What was in the index was never readable there, so
/// that nobody went by it.
struct Undo<'o, 'a, M: Memories> {
    op: &'o Op<'a, M>,
    dir: Cachelet,
    inode: Option<u64>,
    text: Option<(u64, u64)>,
    entry: Option<(u64, u64)>,
    cachelet: Option<Cachelet>,
    /// The inode was written, and so made known by its number.
    written: Option<Cachelet>,
}

impl<'o, 'a, M: Memories> Undo<'o, 'a, M> {
    /// Counts a creation in `dir` in, with nothing taken for it yet.
    fn begin(op: &'o Op<'a, M>, dir: Cachelet) -> Result<Self> {
        op.enter_children(dir, CHILD_ONE + MAKING_ONE)?;
        Ok(Self {
            op,
            dir,
            inode: None,
            text: None,
            entry: None,
            cachelet: None,
            written: None,
        })
    }
}

impl<M: Memories> Drop for Undo<'_, '_, M> {
    fn drop(&mut self) {
        let core = self.op.core;
        if let Some(ino) = self.inode {
            // Nothing was written there: it still says that it is free.
            core.free_slots(ino, 1);
        }
        for (slot, count) in self.text.into_iter().chain(self.entry) {
            core.free_slots(slot, count);
        }
        if let Some(cachelet) = self.cachelet {
            core.free_cachelet(cachelet);
        }
        if let Some(cachelet) = self.written {
            // Somebody may have come by it: it goes the way of a file whose last name was removed.
            self.op.count(Tally::Inodes, 1);
            core.raise_flag(cachelet, flag::UNLINKED);
            if core.drop_refs(cachelet, NAME_ONE) == 0 {
                core.queue_work(cachelet);
            }
        }
        self.op.leave_children(self.dir, CHILD_ONE + MAKING_ONE);
    }
}

impl<M: Memories> Op<'_, M> {
    /// Makes an inode called `name` in `dir`.
    pub(crate) fn create(
        &self,
        dir: Cachelet,
        name: Name<'_>,
        new: &NewInode<'_>,
    ) -> Result<Cachelet> {
        let core = self.core;
        let token = self.wait_absent(dir, name)?;
        let mut undo = Undo::begin(self, dir)?;
        let cachelet = core.take_cachelet(self)?;
        undo.cachelet = Some(cachelet);
        let ino = self.alloc(ChunkKind::Inodes, 1)?;
        if core.identity_on_pool(ino).state() != Some(InodeState::Free) {
            // A wrong live map, which passed its check: the slot stays in use.
            let place = crate::error::Place::Inode(ino);
            return Err(Error::damaged("a free inode that is in use", place));
        }
        undo.inode = Some(ino);
        // Claims come before the first store to the pool: a locked instruction would wait for it.
        let place = self.place_entry(sites::CREATE_ENTRY, dir, name)?;
        undo.entry = Some((place.entry, place.slots));
        let text = self.write_text(new)?;
        undo.text = text;
        let now = self.change_time(dir);
        let generation = self.write_inode(ino, dir, new, now, cachelet, text);
        (undo.inode, undo.text, undo.cachelet) = (None, None, None);
        undo.written = Some(cachelet);
        let target = TargetWord::new(ino, new.kind);
        let draft = self.write_entry(dir, name, place, target, generation, now);

        let value = ValueWord::of_cachelet(cachelet, new.kind);
        let Some(pair) = self.insert_new(dir, name, token, draft.entry, value)? else {
            drop(undo);
            return self.create(dir, name, new);
        };
        std::mem::forget(undo);
        core.index_hold(pair);
        core.pool.fence(sites::CREATE_ENTRY_DURABLE);
        let steps = [sites::CREATE_LOG_WORD, sites::CREATE_LOG_WORD_DURABLE];
        self.log_write(steps, dir, &draft);
        self.note_change(dir, now, i64::from(new.kind == FileKind::Directory));
        core.index_release(pair, value.with(ValueWord::READABLE));
        Ok(cachelet)
    }

    /// Inserts an unreadable pair, if the name is still absent and the directory's part of the
    /// index was complete all the time since `token`.
    pub(crate) fn insert_new(
        &self,
        dir: Cachelet,
        name: Name<'_>,
        token: u64,
        entry: u64,
        value: ValueWord,
    ) -> Result<Option<Pair>> {
        let core = self.core;
        let inserted =
            core.index_insert(self, core.ino(dir), name.bytes, name.hash, entry, value)?;
        let Ok(pair) = inserted else { return Ok(None) };
        if self.index_token(dir) == Some(token) {
            return Ok(Some(pair));
        }
        self.index_remove(pair);
        Ok(None)
    }

    /// Waits until no creation or rename of `name` is under way; gives the token of its absence.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name exists.
    fn wait_absent(&self, dir: Cachelet, name: Name<'_>) -> Result<u64> {
        let core = self.core;
        let mut tries = 0;
        loop {
            let token = match self.index_token(dir) {
                Some(token) => token,
                None => {
                    self.ensure_indexed(dir)?;
                    continue;
                }
            };
            match core.index_find(core.ino(dir), name.bytes, name.hash) {
                None if self.index_token(dir) == Some(token) => {
                    // A name that cannot be read may be this one.
                    self.check_media()?;
                    return self.check_names(dir).map(|()| token);
                }
                None => {}
                Some(pair)
                    if pair.value.has(ValueWord::READABLE)
                        && !pair.value.has(ValueWord::RENAMING | ValueWord::DELETING) =>
                {
                    return Err(Error::Exists);
                }
                Some(_) => pause(&core.arena, &mut tries),
            }
        }
    }

    /// Writes the text of a symlink. Flushed, not fenced.
    fn write_text(&self, new: &NewInode<'_>) -> Result<Option<(u64, u64)>> {
        if new.kind != FileKind::Symlink {
            return Ok(None);
        }
        let core = self.core;
        let (home, count) = text_home(new.target.len());
        let slot = match home {
            ChunkKind::Blocks => self.alloc_block(super::log::SPARE_BLOCKS)?,
            _ => self.alloc(home, count)?,
        };
        let at = core.geometry.slot_at(slot);
        core.pool.write(at, new.target);
        let bytes = new.target.len() as u64;
        core.pool.flush(sites::CREATE_TEXT, at, bytes);
        Ok(Some((slot, count)))
    }

    /// Writes the inode and fills its cachelet; gives the generation. Past the cache, not fenced.
    fn write_inode(
        &self,
        ino: u64,
        dir: Cachelet,
        new: &NewInode<'_>,
        now: i64,
        cachelet: Cachelet,
        text: Option<(u64, u64)>,
    ) -> u32 {
        let core = self.core;
        let at = core.geometry.slot_at(ino);
        let is_dir = new.kind == FileKind::Directory;
        let generation = IdentityWord(core.word(at)).generation().wrapping_add(1);
        let mut inode = Inode {
            identity: IdentityWord::new(InodeState::Live, new.kind, new.mode, generation).0,
            owner: OwnerWord::new(new.uid, new.gid).0,
            links: LinksWord::new(if is_dir { 2 } else { 1 }, 0).0,
            btime: now,
            parent: if is_dir { core.ino(dir) } else { new.device },
            size: new.target.len() as u64,
            mtime: now,
            ctime: now,
            atime: now,
            root: text.map_or(0, |(slot, _)| slot),
            detail: text.map_or(0, |_| text_check(ino, generation, new.target)),
            cachelet: core.nv_pointer_to(cachelet),
            ..Inode::default()
        };
        inode.checksum = inode.expected_checksum(ino);
        // The cachelet is whole before the inode names it: whoever comes by the inode's number finds
        // this one and makes no other.
        core.set(cachelet, field::IDENTITY, inode.identity);
        core.set(cachelet, field::OWNER, inode.owner);
        core.set(cachelet, field::LINKS, if is_dir { 2 } else { 1 });
        core.set(cachelet, field::SIZE, inode.size);
        core.set(cachelet, field::ATIME, now as u64);
        let times = Times {
            mtime: now,
            ctime: now,
        };
        core.begin_times(cachelet, new.kind, times);
        core.set(cachelet, field::ROOT, inode.root);
        core.set(cachelet, field::REFS, NAME_ONE);
        let known = flag::INDEXED | flag::COUNTED;
        core.set(cachelet, field::FLAGS, if is_dir { known } else { 0 });
        core.set(cachelet, field::INO, ino);
        core.pool
            .write_through(sites::CREATE_INODE, at, inode.as_bytes());
        generation
    }

    /// Claims a log word in `dir` and writes an entry for it. Past the cache, not fenced: a locked
    /// instruction or a fence comes before others can find it.
    pub(crate) fn draft_entry(
        &self,
        site: Site,
        dir: Cachelet,
        name: Name<'_>,
        target: TargetWord,
        generation: u32,
        now: i64,
    ) -> Result<Draft> {
        let place = self.place_entry(site, dir, name)?;
        Ok(self.write_entry(dir, name, place, target, generation, now))
    }

    /// Takes slots for an entry called `name`, and a log word in `dir`.
    fn place_entry(&self, site: Site, dir: Cachelet, name: Name<'_>) -> Result<Place> {
        let slots = Entry::slots_for(name.bytes.len());
        let entry = self.alloc(ChunkKind::Entries, slots)?;
        let claim = self
            .log_claim(dir)
            .inspect_err(|_| self.core.free_slots(entry, slots))?;
        Ok(Place {
            entry,
            slots,
            claim,
            site,
        })
    }

    /// Writes the entry for which there is `place`. Past the cache, not fenced.
    fn write_entry(
        &self,
        dir: Cachelet,
        name: Name<'_>,
        place: Place,
        target: TargetWord,
        generation: u32,
        now: i64,
    ) -> Draft {
        let core = self.core;
        let Place {
            entry,
            slots,
            claim,
            site,
        } = place;
        let life = LifeWord::alive(now);
        let head = EntryHead {
            life: life.0,
            target: target.0,
            cookie: claim.cookie,
            parent: core.ino(dir),
            generation,
            checksum: 0,
            name_hash: name.hash,
            name_len: name.bytes.len() as u16,
            flags: 0,
        };
        let mut buffer = [0; 384];
        let parent = core.identity(dir).generation();
        let total = Entry::encode(&head, name.bytes, parent, &mut buffer);
        let at = core.geometry.slot_at(entry);
        core.pool.write_through(site, at, &buffer[..total]);
        let check = buffer[36..40]
            .try_into()
            .map(u32::from_le_bytes)
            .unwrap_or(0);
        Draft {
            entry,
            checksum: check,
            life,
            claim,
            slots,
        }
    }

    /// Frees a draft that no log will name.
    pub(crate) fn discard(&self, draft: &Draft) {
        self.core.free_slots(draft.entry, draft.slots);
    }

    /// Names a durable entry in the log, durably: the commit point of creation. Listings may show
    /// the name before its pair is readable, so lookups of it wait already.
    fn log_write(&self, [word, durable]: [Site; 2], dir: Cachelet, draft: &Draft) {
        let core = self.core;
        core.pool
            .store_through(word, draft.claim.at, LogWord::new(draft.entry).0);
        core.pool.fence(durable);
        // Whoever looks for the name next finds it near.
        core.pool.prefetch(core.geometry.slot_at(draft.entry));
        self.leave_children(dir, MAKING_ONE);
    }

    /// Gives `target` the further name `name` in `dir`. The caller holds a reference.
    pub(crate) fn link(&self, dir: Cachelet, name: Name<'_>, target: Cachelet) -> Result<()> {
        let core = self.core;
        let token = self.wait_absent(dir, name)?;
        let mut undo = Undo::begin(self, dir)?;
        let identity = core.identity(target);
        let kind = core.kind(target);
        let now = self.change_time(dir);
        let word = TargetWord::new(core.ino(target), kind);
        let site = sites::LINK_ENTRY;
        let draft = self.draft_entry(site, dir, name, word, identity.generation(), now)?;
        undo.entry = Some((draft.entry, draft.slots));
        let value = ValueWord::of_cachelet(target, kind);
        let Some(pair) = self.insert_new(dir, name, token, draft.entry, value)? else {
            drop(undo);
            return self.link(dir, name, target);
        };
        // The name exists as soon as it is counted, which fails if all others are gone. Lookups of
        // it wait from before that until it is there.
        core.index_hold(pair);
        if let Err(error) = self.reserve_link(target) {
            self.index_remove(pair);
            return Err(error);
        }
        std::mem::forget(undo);
        core.add_refs(target, NAME_ONE);
        core.pool.fence(sites::LINK_ENTRY_DURABLE);
        let steps = [sites::LINK_LOG_WORD, sites::LINK_LOG_WORD_DURABLE];
        self.log_write(steps, dir, &draft);
        // Only now it is seen in the count: the name that it counts survives.
        let counted = 1u64.wrapping_sub(LINK_RESERVED);
        core.arena
            .fetch_add(core.cachelet_at(target, field::LINKS), counted);
        self.note_change(dir, now, 0);
        self.store_links(sites::LINK_LINKS, target, now);
        core.index_release(pair, value.with(ValueWord::READABLE));
        Ok(())
    }

    /// Reserves one more name, unless there is none any more or there are too many.
    fn reserve_link(&self, target: Cachelet) -> Result<()> {
        let core = self.core;
        let at = core.cachelet_at(target, field::LINKS);
        let mut links = core.get(target, field::LINKS);
        loop {
            match names_in(links) {
                0 => return Err(Error::NotFound),
                crate::LINK_MAX.. => return Err(Error::TooManyLinks),
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

    /// One name fewer; gives how many are left. A directory has one, and loses its own `.` with it.
    pub(crate) fn lower_links(&self, target: Cachelet) -> u64 {
        let core = self.core;
        if core.kind(target) == FileKind::Directory {
            core.set(target, field::LINKS, 0);
            return 0;
        }
        let at = core.cachelet_at(target, field::LINKS);
        names_in(core.arena.fetch_add(at, u64::MAX).wrapping_sub(1))
    }

    /// Writes the link count and change time of a file to its inode. Flushed; the next fence makes
    /// them durable, and recovery recounts links anyway. An opening after a close does not: but this thread
    /// may come to no fence before another one closes the pool, which so has to know of the file.
    pub(crate) fn store_links(&self, site: Site, target: Cachelet, now: i64) {
        let core = self.core;
        let change = self.begin_change(target);
        let at = core.inode_at(target);
        let ctime = now.max(change.before.ctime);
        core.set_word(at + Inode::CTIME, ctime as u64);
        // Counted before, looked at under the lock: whoever stores last knows of all others.
        let links = names_in(core.get(target, field::LINKS)) as u32;
        core.set_word(at + Inode::LINKS, LinksWord::new(links, 0).0);
        core.pool.flush(site, at, SLOT_BYTES);
        if !core.has_flag(target, flag::DIRTY) {
            core.raise_flag(target, flag::DIRTY);
        }
        change.show(None, ctime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checking::kernels::{Job, explore};
    use crate::checking::loom_memory::Swaps;
    use crate::fs::Cred;

    const FILE: NewInode<'_> = NewInode {
        kind: FileKind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        device: 0,
        target: b"",
    };

    /// Half of an inode that was being written was taken for a damaged one.
    #[test]
    fn a_number_that_is_given_to_another_file_is_stale_all_the_time() {
        explore(2, Swaps::Plain, |stage| {
            let (fs, cred) = (stage.fs(), Cred::root());
            let made = fs.mknod(&cred, &fs.root(), b"f", FILE.kind, FILE.mode, 0);
            let file = made.unwrap();
            let (ino, generation) = (file.ino(), file.generation());
            drop(file);
            fs.unlink(&cred, &fs.root(), b"f").unwrap();
            fs.reclaim_now().unwrap();
            fs.core.return_all_held();
            let jobs: Vec<Job> = vec![
                Box::new(move |stage| {
                    let found = stage.fs().node(ino, generation);
                    assert!(matches!(found, Err(Error::Stale)), "{found:?}");
                }),
                Box::new(move |stage| {
                    let op = stage.core().op_begin();
                    let again = op.alloc(ChunkKind::Inodes, 1).unwrap();
                    assert_eq!(again, ino);
                    let cachelet = op.core.take_cachelet(&op).unwrap();
                    op.write_inode(ino, stage.fs().root, &FILE, 1000, cachelet, None);
                }),
            ];
            stage.together(jobs);
            assert!(!fs.is_damaged());
        });
    }
}
