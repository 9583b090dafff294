//! Lists a directory: reads its log in order, so that cookies ascend. Every entry that exists
//! throughout is returned exactly once, whatever else happens.

use vellum_layout::{LogExtentHead, LogWord};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent};

use super::log::Cookies;
use super::{Bodies, Body};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::{Op, pause};
use crate::error::{Error, Location, Result};
use crate::namespace::{ListEntry, ListHint, ListRange};
use crate::sites;

/// A line of a log, the unit of reading.
#[derive(Clone, Copy)]
struct Line {
    at: u64,
    words: [u64; 8],
    /// A bit for each word whose entry existed, durably, when the line was read.
    there: u8,
}

impl Line {
    /// Stands for no line.
    const NONE: Self = Self {
        at: u64::MAX,
        words: [0; 8],
        there: 0,
    };

    /// The word at pool offset `at`, if it is in this line.
    fn word(&self, at: u64) -> Option<LogWord> {
        let word = self.words[(at % LINE_BYTES / 8) as usize];
        (at - at % LINE_BYTES == self.at).then_some(LogWord(word))
    }

    /// Whether the entry existed that the word at `at`, which is in this line, names.
    fn is_there(&self, at: u64) -> bool {
        self.there >> (at % LINE_BYTES / 8) & 1 == 1
    }
}

/// An extent that is being read.
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

/// The point at which reading an extent ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// After its last word.
    OfExtent,
    /// Before an entry beyond the range.
    OfRange,
    /// Before an entry that the caller did not take.
    NotTaken,
}

/// A listing in flight.
struct Listing {
    dir: Cachelet,
    /// Whether entries are verified when they are read.
    verify: bool,
    line: Line,
    /// Cookie of the last entry returned.
    last: u64,
    range: ListRange,
    /// Cookie of the last entry read.
    last_cookie: u64,
    /// Extent and word right behind the last entry that was returned. It goes no further, because
    /// later words that name nothing now may do so when the listing continues.
    resume: (u64, u64),
    saw_dead: bool,
}

impl<M: Memories> Op<'_, M> {
    /// Lists entries with cookies in `range`. Stops before the entry that `each` does not take.
    /// Returns the same as [`crate::namespace::Namespace::list`].
    pub(crate) fn list<B: Bodies<M>>(
        &self,
        dir: Cachelet,
        range: ListRange,
        hint: &mut ListHint,
        each: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<Option<u64>> {
        let core = self.core;
        let after = range.after;
        // An earlier listing may have seen a part of a rename.
        self.await_moves(dir);
        let owner = core.ino(dir);
        // Entries are verified once a mount, by the first complete listing or when the index is
        // built. If these met damage, each listing verifies.
        let flags = core.get(dir, field::FLAGS);
        if flags & flag::UNLINKED != 0 {
            // The directory was empty when it was removed, so its log leads only to dead entries.
            return self.check_names(dir).map(|()| Some(after));
        }
        let verify = flags & (flag::INDEXED | flag::VERIFIED) == 0 || flags & flag::UNSURE != 0;
        let verifies_all = verify && (after == 0 || hint.cookie == after && hint.verified);
        let generation = core.get(dir, field::DEAD) >> 32;
        if verify && let Err(error) = B::check_home(core, dir) {
            self.do_without_names(dir, &error);
        }
        let Some((mut extent, mut index)) = self.list_start(dir, after, hint, generation)? else {
            return self.check_names(dir).map(|()| Some(after));
        };
        let mut listing = Listing {
            dir,
            verify,
            line: Line::NONE,
            last: after,
            range,
            last_cookie: 0,
            resume: (extent.slot, index),
            saw_dead: false,
        };
        let mut extents = 0;
        let mut end = self.list_extent::<B>(&mut listing, &extent, index, each)?;
        while end == End::OfExtent
            && let Some(next) = self.readable_extent_after(dir, &extent, owner)
        {
            extents += 1;
            if extents > core.geometry.meta_slots() {
                return Err(runs_in_a_circle(owner));
            }
            (extent, index) = (next, 0);
            end = self.list_extent::<B>(&mut listing, &extent, index, each)?;
        }
        *hint = ListHint {
            generation,
            extent: listing.resume.0,
            index: listing.resume.1,
            cookie: listing.last,
            verified: verifies_all,
        };
        if let Err(error) = self.check_media()
            && !self.is_unsure()
        {
            // The lost bytes may have been words of the log.
            self.do_without_names(dir, &error);
        }
        if end != End::NotTaken {
            // Reports unreadable names after the names that can be read.
            self.check_names(dir)?;
        }
        if verifies_all && end == End::OfExtent {
            core.raise_flag(dir, flag::VERIFIED);
        }
        if listing.saw_dead {
            // Fence them, because this listing relied on these words to report names as absent.
            core.pool.fence(sites::LIST_DEAD_DURABLE);
        }
        Ok((end != End::NotTaken).then_some(listing.last))
    }

    /// The next extent of a log. If it cannot be read, marks the directory and returns `None`.
    fn readable_extent_after(&self, dir: Cachelet, extent: &Extent, owner: u64) -> Option<Extent> {
        self.extent_after(extent, owner).unwrap_or_else(|error| {
            self.do_without_names(dir, &error);
            None
        })
    }

    fn extent_after(&self, extent: &Extent, owner: u64) -> Result<Option<Extent>> {
        let at = self.core.geometry.slot_at(extent.slot) + LogExtentHead::NEXT;
        match self.core.word(at) {
            0 => Ok(None),
            next => Extent::load(self.core, next, owner).map(Some),
        }
    }

    /// Lists the entries that words of `extent` from `index` on name.
    fn list_extent<B: Bodies<M>>(
        &self,
        listing: &mut Listing,
        extent: &Extent,
        mut index: u64,
        each: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<End> {
        let core = self.core;
        let dir = listing.dir;
        let mut buffer = B::Buffer::default();
        while index < extent.head.kind().words() {
            let at = extent.words_at + 8 * index;
            let Some(word) = listing.line.word(at) else {
                listing.line = self.durable_line::<B>(dir, at, extent);
                continue;
            };
            let entry = word.entry();
            if entry == 0 {
                index += 1;
                continue;
            }
            if !listing.line.is_there(at) {
                // The entry is being created, or belongs to a rename that is only partly visible.
                self.await_moves(dir);
                if B::is_there(core, entry) {
                    listing.line = Line::NONE;
                } else {
                    index += 1;
                }
                continue;
            }
            let cookies = Cookies::of_word(&extent.head, index);
            let body = match self.read_listed::<B>(listing, &mut buffer, entry, cookies) {
                Ok(body) => body,
                Err(error) => {
                    self.do_without_names(dir, &error);
                    index += 1;
                    continue;
                }
            };
            if !body.life.is_alive() {
                if B::ARE_TRUTH {
                    let life = B::life_at(core, entry);
                    core.pool.flush(sites::LIST_DEAD, life, 8);
                    listing.saw_dead = true;
                }
                // The rename that killed this entry wrote a later word: either this file has that
                // name, or this name leads to another file. One of the two has to be returned.
                self.await_moves(dir);
                listing.line = Line::NONE;
            } else if body.cookie > listing.range.until {
                return Ok(End::OfRange);
            } else if body.cookie > listing.last {
                let kind = body
                    .target
                    .kind()
                    .ok_or_else(|| Error::damaged("entry kind", Location::Slot(entry)))?;
                let given = ListEntry {
                    ino: body.target.ino(),
                    cookie: listing.range.offset + body.cookie,
                    kind,
                    name: B::name(&buffer),
                };
                if !each(given) {
                    return Ok(End::NotTaken);
                }
                listing.last = body.cookie;
                listing.resume = (extent.slot, index + 1);
            }
            index += 1;
        }
        Ok(End::OfExtent)
    }

    /// Reads the entry that a word of the log names, and keeps its cookie.
    fn read_listed<B: Bodies<M>>(
        &self,
        listing: &mut Listing,
        buffer: &mut B::Buffer,
        entry: u64,
        cookies: Cookies,
    ) -> Result<Body> {
        let owner = self.core.ino(listing.dir);
        let body = if listing.verify {
            B::read(self.core, entry, owner, buffer)?
        } else {
            let body = B::read_unsealed(self.core, entry, owner, buffer)?;
            // The name, which lies behind the head, may have been lost.
            self.check_media()?;
            body
        };
        cookies.check(entry, body.cookie, listing.last_cookie)?;
        listing.last_cookie = body.cookie;
        Ok(body)
    }

    /// Waits until the stores of renames in `dir` are visible completely or not at all.
    fn await_moves(&self, dir: Cachelet) {
        let mut tries = 0;
        while self.core.get(dir, field::MOVING) != 0 {
            pause(&self.core.arena, &mut tries);
        }
    }

    /// Reads the line of the log with the word at `at`. Makes durable the entries that it names and
    /// that exist: a creation in flight may have stored the word that makes its name exist, but not
    /// made it durable yet.
    fn durable_line<B: Bodies<M>>(&self, dir: Cachelet, at: u64, extent: &Extent) -> Line {
        let core = self.core;
        let at = at - at % LINE_BYTES;
        let words = core.pool.load_line(at);
        let of_head = (extent.words_at.saturating_sub(at) / 8) as usize;
        let entry = |cell: usize| LogWord(words[cell]).entry();
        let is_there = |&cell: &usize| entry(cell) != 0 && B::is_there(core, entry(cell));
        let there = (of_head..8)
            .filter(is_there)
            .fold(0, |there, cell| there | 1 << cell);
        let line = Line { at, words, there };
        if B::ARE_TRUTH && core.is_being_made_in(dir) {
            core.pool.flush(sites::LIST_WORDS, at, LINE_BYTES);
            let flushed = (0..8).filter(|cell| there >> cell & 1 == 1);
            flushed.for_each(|cell| B::flush_there(core, entry(cell)));
            core.pool.fence(sites::LIST_WORDS_DURABLE);
        }
        let next = at + LINE_BYTES;
        if next < extent.words_at + 8 * extent.head.kind().words() {
            for word in core.pool.load_line(next) {
                core.prefetch_entry(LogWord(word));
            }
        }
        line
    }

    /// The point where the listing continues: by the hint, or by the base cookies of extents.
    fn list_start(
        &self,
        dir: Cachelet,
        after: u64,
        hint: &ListHint,
        generation: u64,
    ) -> Result<Option<(Extent, u64)>> {
        let core = self.core;
        let owner = core.ino(dir);
        // A position of another directory leads to an extent of that directory, which does not
        // load.
        if hint.extent != 0
            && hint.generation == generation
            && hint.cookie == after
            && let Ok(extent) = Extent::load(core, hint.extent, owner)
        {
            return Ok(Some((extent, hint.index)));
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
        Err(runs_in_a_circle(owner))
    }
}

impl<M: Memories> Core<M> {
    fn prefetch_entry(&self, word: LogWord) {
        let slot = word.entry();
        if slot != 0 && slot < self.geometry.meta_slots() {
            self.pool.prefetch(self.geometry.slot_at(slot));
        }
    }
}

fn runs_in_a_circle(owner: u64) -> Error {
    Error::damaged("directory log runs in a circle", Location::Inode(owner))
}
