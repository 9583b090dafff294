//! Listing a directory: its log in order, so that cookies ascend and every entry that exists
//! throughout is given exactly once, whatever else happens.

use vellum_layout::{Entry, LifeWord, LogExtentHead, LogWord, TargetWord};
use vellum_media::{Memories, Memory, Persistent};

use super::build::EntryBuffer;
use crate::cachelet::{Cachelet, field, flag};
use crate::core::Core;
use crate::error::{Error, Place, Result};
use crate::namespace::{DirEntry, ListHint};
use crate::slots::{Op, pause};

/// Log words between the entry being read and the one being prefetched.
const AHEAD: u64 = 6;

/// An extent being read.
struct Extent {
    slot: u64,
    head: LogExtentHead,
    words_at: u64,
}

impl Extent {
    fn load<M: Memories>(core: &Core<M>, slot: u64, owner: u64) -> Result<Self> {
        let head = core.log_head(slot, owner)?;
        Ok(Self {
            slot,
            head,
            words_at: core.geometry.slot_at(slot) + head.kind().words_at(),
        })
    }
}

impl<M: Memories> Op<'_, M> {
    /// Lists entries with cookies above `after`; stops before the entry that `each` does not take.
    pub(crate) fn list(
        &self,
        dir: Cachelet,
        after: u64,
        hint: &mut ListHint,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let core = self.core;
        let mut tries = 0;
        while core.get(dir, field::MOVING) != 0 {
            // A listing before this one may have seen a part of a rename.
            pause(&core.arena, &mut tries);
        }
        let owner = core.ino(dir);
        let verify = !core.has_flag(dir, flag::INDEXED);
        let generation = core.get(dir, field::DEAD) >> 32;
        let Some((mut extent, mut index)) = self.list_start(dir, after, hint, generation)? else {
            return Ok(());
        };
        let mut buffer = EntryBuffer::new();
        let (mut last, mut saw_dead) = (after, false);
        // Right behind the last entry that was given, and no further: words beyond that name
        // nothing now may do so when the listing goes on.
        let mut resume = (extent.slot, index);
        'log: loop {
            let words = extent.head.kind().words();
            while index < words {
                let at = extent.words_at + 8 * index;
                if index + AHEAD < words {
                    core.prefetch_entry(LogWord(core.word(at + 8 * AHEAD)));
                }
                let word = LogWord(core.word(at));
                if word.entry() == 0 || word.is_pending() {
                    index += 1;
                    continue;
                }
                let entry = word.entry();
                let head = if verify {
                    *buffer.read(core, entry, owner)?
                } else {
                    *buffer.read_unsealed(core, entry, owner)?
                };
                if !LifeWord(head.life).is_alive() {
                    core.pool
                        .flush(core.geometry.slot_at(entry) + Entry::LIFE, 8);
                    saw_dead = true;
                } else if head.cookie > last {
                    let target = TargetWord(head.target);
                    let kind = target
                        .kind()
                        .ok_or(Error::damaged("entry kind", Place::Slot(entry)))?;
                    let name = buffer.name();
                    let given = DirEntry {
                        ino: target.ino(),
                        cookie: head.cookie,
                        kind,
                        name,
                    };
                    if !each(given) {
                        break 'log;
                    }
                    last = head.cookie;
                    resume = (extent.slot, index + 1);
                }
                index += 1;
            }
            let next = core.word(core.geometry.slot_at(extent.slot) + LogExtentHead::NEXT);
            if next == 0 {
                break;
            }
            extent = Extent::load(core, next, owner)?;
            index = 0;
        }
        *hint = ListHint {
            generation,
            extent: resume.0,
            index: resume.1,
            cookie: last,
        };
        if saw_dead {
            // Absence was reported on the strength of these words.
            core.pool.fence();
        }
        Ok(())
    }

    /// Where the listing goes on: by the hint, or by the extents' base cookies.
    fn list_start(
        &self,
        dir: Cachelet,
        after: u64,
        hint: &ListHint,
        generation: u64,
    ) -> Result<Option<(Extent, u64)>> {
        let core = self.core;
        let owner = core.ino(dir);
        if hint.extent != 0 && hint.generation == generation && hint.cookie == after {
            return Ok(Some((Extent::load(core, hint.extent, owner)?, hint.index)));
        }
        let root = core.get(dir, field::ROOT);
        if root == 0 {
            return Ok(None);
        }
        let mut extent = Extent::load(core, root, owner)?;
        for _ in 0..core.geometry.meta_slots() {
            let next = extent.head.next;
            if next == 0 {
                return Ok(Some((extent, 0)));
            }
            let following = Extent::load(core, next, owner)?;
            if following.head.base_cookie > after {
                return Ok(Some((extent, 0)));
            }
            extent = following;
        }
        Err(Error::damaged(
            "directory log runs in a circle",
            Place::Inode(owner),
        ))
    }
}

impl<M: Memories> Core<M> {
    fn prefetch_entry(&self, word: LogWord) {
        let slot = word.entry();
        if slot != 0 && slot < self.geometry.meta_slots() {
            let at = self.geometry.slot_at(slot);
            self.pool.prefetch(at);
            self.pool.prefetch(at + 64);
        }
    }
}
