//! Directory logs at run time: claiming words, growing (DirectFS III-F, Algorithm 1 lines 4 to 12).
//!
//! A log grows by a block, as DirectFS's does, or where none is free by a small extent. A directory
//! of a full pool needs words for each name that replaces a removed one, and a removed name seldom
//! frees a block: only compaction does, when a whole block of words is dead.

use std::sync::atomic::Ordering;

use vellum_layout::{ChunkKind, Inode, LogExtentHead, LogExtentKind, LogWord};
use vellum_media::{Memories, Memory, Persistent, Site};
use zerocopy::IntoBytes;

use super::Bodies;
use crate::core::Core;
use crate::core::alloc::SPARE_BLOCKS;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};
use crate::namespace::{COOKIE_MAX, FIRST_COOKIE};
use crate::sites;

/// The tail of a log, as the directory's cachelet holds it: extent slot in bits 16.., large in bit
/// 15, next word in bits 0..15. 0: the log has no extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail(pub(crate) u64);

impl Tail {
    pub(crate) fn new(extent: u64, kind: LogExtentKind, index: u64) -> Self {
        Self(extent << 16 | u64::from(kind == LogExtentKind::Large) << 15 | index)
    }

    pub(crate) fn extent(self) -> u64 {
        self.0 >> 16
    }

    pub(crate) fn kind(self) -> LogExtentKind {
        if self.0 >> 15 & 1 == 1 {
            LogExtentKind::Large
        } else {
            LogExtentKind::Small
        }
    }

    pub(crate) fn index(self) -> u64 {
        self.0 & 0x7FFF
    }

    fn is_full(self) -> bool {
        self.0 == 0 || self.index() >= self.kind().words()
    }
}

/// A word of a log that this operation may write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// Pool offset.
    pub(crate) at: u64,
    /// Cookie of the entry that the word will name.
    pub(crate) cookie: u64,
}

impl<M: Memories> Core<M> {
    /// Reads and checks the head of a log extent of directory `owner`.
    pub(crate) fn log_head(&self, extent: u64, owner: u64) -> Result<LogExtentHead> {
        let place = Location::Slot(extent);
        let at = self.slot_at(extent)?;
        let mut head = LogExtentHead::new(0, 0, 0, 0, LogExtentKind::Small, false);
        self.pool.read(at, head.as_mut_bytes());
        let generation = self.identity_on_pool(owner).generation();
        if !head.is_sound(extent, owner, generation) {
            return Err(Error::damaged("directory log extent unsound", place));
        }
        let room = COOKIE_MAX - head.kind().words();
        if !(FIRST_COOKIE..=room).contains(&head.base_cookie) {
            return Err(Error::damaged("cookies of a directory log extent", place));
        }
        let wanted = match head.kind() {
            LogExtentKind::Small => ChunkKind::Entries,
            LogExtentKind::Large => ChunkKind::Blocks,
        };
        if self.kind_of_slot(extent) != Some(wanted)
            || head.kind() == LogExtentKind::Large && !extent.is_multiple_of(32)
        {
            return Err(Error::damaged(
                "directory log extent in a wrong chunk",
                place,
            ));
        }
        Ok(head)
    }

    /// Writes the head of a log's first extent and zeroes its words. Past the cache, not fenced.
    fn write_first_extent(&self, extent: u64, owner: u64) {
        const KIND: LogExtentKind = LogExtentKind::Small;
        let at = self.geometry.slot_at(extent);
        let generation = self.identity_on_pool(owner).generation();
        let head = LogExtentHead::new(extent, owner, generation, FIRST_COOKIE, KIND, false);
        let mut bytes = [0; KIND.bytes() as usize];
        bytes[..32].copy_from_slice(head.as_bytes());
        self.pool.write_through(sites::GROW_FIRST, at, &bytes);
    }

    /// Writes the first line of a further extent, which the caller flushes: the head and, in a
    /// small extent, four words. Zeroes all words, those behind the line past the cache.
    pub(crate) fn write_extent(
        &self,
        words_site: Site,
        (extent, kind): (u64, LogExtentKind),
        owner: u64,
        base_cookie: u64,
        compacted: bool,
    ) {
        let at = self.geometry.slot_at(extent);
        let generation = self.identity_on_pool(owner).generation();
        let head = LogExtentHead::new(extent, owner, generation, base_cookie, kind, compacted);
        self.pool
            .zero_through(words_site, at + 64, kind.bytes() - 64);
        let mut line = [0; 64];
        line[..32].copy_from_slice(head.as_bytes());
        self.pool.write(at, &line);
    }
}

/// A nonzero word of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    /// Pool offset of the word.
    pub(crate) at: u64,
    pub(crate) word: LogWord,
    pub(crate) cookies: Cookies,
}

/// The cookies that the entry named by a log word may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cookies {
    least: u64,
    /// Whether only the least cookie fits.
    is_exact: bool,
}

impl Cookies {
    /// The cookies that fit word `index` of the extent with this sound head.
    pub(crate) fn of_word(head: &LogExtentHead, index: u64) -> Self {
        let is_exact = !head.is_compacted();
        let least = head.base_cookie + if is_exact { index } else { 0 };
        Self { least, is_exact }
    }

    /// Fails unless the entry at metadata slot `entry` may have this cookie, after an entry with
    /// cookie `last`.
    pub(crate) fn check(self, entry: u64, cookie: u64, last: u64) -> Result<()> {
        let fits = cookie == self.least || cookie > self.least && !self.is_exact;
        if fits && cookie > last && cookie <= COOKIE_MAX {
            Ok(())
        } else {
            let place = Location::Slot(entry);
            Err(Error::damaged("directory cookies out of order", place))
        }
    }
}

/// Calls `each` for every nonzero word of a directory's log, in order. Returns the tail.
pub(crate) fn scan_log<M: Memories>(
    core: &Core<M>,
    owner: u64,
    root: u64,
    each: &mut dyn FnMut(Logged) -> Result<()>,
) -> Result<Tail> {
    let (mut extent, mut tail, mut seen) = (root, Tail(0), 0);
    while extent != 0 {
        let head = core.log_head(extent, owner)?;
        let at = core.geometry.slot_at(extent) + head.kind().words_at();
        let mut end = 0;
        for index in 0..head.kind().words() {
            let word = LogWord(core.word(at + 8 * index));
            if word.0 != 0 {
                if !word.is_sound() {
                    return Err(Error::damaged("log word", Location::Slot(extent)));
                }
                end = index + 1;
                each(Logged {
                    at: at + 8 * index,
                    word,
                    cookies: Cookies::of_word(&head, index),
                })?;
            }
        }
        if head.is_compacted() {
            end = head.kind().words();
        }
        tail = Tail::new(extent, head.kind(), end);
        extent = head.next;
        seen += 1;
        if seen > core.geometry.meta_slots() {
            return Err(Error::damaged(
                "directory log runs in a circle",
                Location::Inode(owner),
            ));
        }
    }
    Ok(tail)
}

/// The extents of the log of directory `owner` that starts at `root`, in order.
pub(crate) fn log_extents<M: Memories>(
    core: &Core<M>,
    owner: u64,
    root: u64,
) -> Result<Vec<(u64, LogExtentHead)>> {
    let (mut slot, mut found) = (root, Vec::new());
    while slot != 0 {
        let head = core.log_head(slot, owner)?;
        found.push((slot, head));
        slot = head.next;
        if found.len() as u64 > core.geometry.meta_slots() {
            let place = Location::Inode(owner);
            return Err(Error::damaged("directory log runs in a circle", place));
        }
    }
    Ok(found)
}

impl<M: Memories> Op<'_, M> {
    /// Claims the next word of a directory's log, by compare-and-swap on its tail.
    pub(crate) fn log_claim<B: Bodies<M>>(&self, dir: Cachelet) -> Result<Claim> {
        let core = self.core;
        let cell = core.cachelet_at(dir, field::TAIL);
        loop {
            let tail = Tail(core.arena.load(cell, Ordering::Acquire));
            if tail.is_full() {
                self.log_grow::<B>(dir, tail)?;
                continue;
            }
            if core
                .arena
                .compare_exchange(cell, tail.0, tail.0 + 1)
                .is_ok()
            {
                let at = core.geometry.slot_at(tail.extent());
                let base = core.word(at + std::mem::offset_of!(LogExtentHead, base_cookie) as u64);
                return Ok(Claim {
                    at: at + tail.kind().words_at() + 8 * tail.index(),
                    cookie: base + tail.index(),
                });
            }
        }
    }

    /// Adds an extent behind `full`, under the directory's growth lock.
    fn log_grow<B: Bodies<M>>(&self, dir: Cachelet, full: Tail) -> Result<()> {
        let core = self.core;
        let _lock = core.lock(self, dir);
        if core.get(dir, field::TAIL) != full.0 {
            return Ok(());
        }
        let owner = core.ino(dir);
        if full.0 == 0 {
            let extent = self.alloc_for_log(LogExtentKind::Small)?;
            core.write_first_extent(extent, owner);
            core.pool.fence(sites::GROW_FIRST_DURABLE);
            self.check_media()
                .inspect_err(|_| core.free_slots(extent, 1))?;
            self.log_set_root([sites::GROW_ROOT, sites::GROW_ROOT_DURABLE], dir, extent);
            core.set(
                dir,
                field::TAIL,
                Tail::new(extent, LogExtentKind::Small, 0).0,
            );
            return Ok(());
        }
        self.log_append::<B>(dir, full)
    }

    /// Adds an extent behind `full`. The caller holds the growth lock.
    fn log_append<B: Bodies<M>>(&self, dir: Cachelet, full: Tail) -> Result<()> {
        let core = self.core;
        let owner = core.ino(dir);
        let base = self.log_next_base::<B>(dir, full)?;
        let (extent, kind) = self.alloc_extent(self.log_spare(dir, full)?)?;
        core.write_extent(sites::GROW_WORDS, (extent, kind), owner, base, false);
        let at = core.geometry.slot_at(extent);
        core.pool.flush(sites::GROW_HEAD, at, 64);
        core.pool.fence(sites::GROW_EXTENT_DURABLE);
        // A log leads to no extent that the medium did not take.
        self.check_media()
            .inspect_err(|_| core.free_slots(extent, kind.slots()))?;
        let steps = [sites::GROW_NEXT, sites::GROW_NEXT_DURABLE];
        self.log_set_next(steps, full.extent(), extent);
        core.set(dir, field::TAIL, Tail::new(extent, kind, 0).0);
        Ok(())
    }

    /// Allocates a further extent: a large one if `spare` more blocks stay free, else a small one.
    fn alloc_extent(&self, spare: u64) -> Result<(u64, LogExtentKind)> {
        match self.alloc_block(spare) {
            Err(Error::NoSpace(_)) => {
                let small = LogExtentKind::Small;
                Ok((self.alloc_for_log(small)?, small))
            }
            block => Ok((block?, LogExtentKind::Large)),
        }
    }

    /// Allocates an extent of a log, even the last block.
    pub(crate) fn alloc_for_log(&self, kind: LogExtentKind) -> Result<u64> {
        match kind {
            LogExtentKind::Small => self.alloc(ChunkKind::Entries, 1),
            LogExtentKind::Large => self.alloc_any_block(),
        }
    }

    /// Number of blocks that stay free when a log grows. Compaction keeps the last extent, and
    /// replaces all others with the help of one free block. So a log of three blocks can always
    /// grow again if one block is free: compaction uses it and frees the two others, and growth
    /// takes one of these. Before the log has three, one more block must be free for it to get that
    /// far.
    fn log_spare(&self, dir: Cachelet, full: Tail) -> Result<u64> {
        let core = self.core;
        let mut extent = core.get(dir, field::ROOT);
        while extent != full.extent() {
            let head = core.log_head(extent, core.ino(dir))?;
            if head.kind() == LogExtentKind::Large {
                return Ok(SPARE_BLOCKS - 1);
            }
            extent = head.next;
        }
        Ok(SPARE_BLOCKS)
    }

    /// Links `next` behind `extent` in a log, durably.
    pub(crate) fn log_set_next(&self, [word, durable]: [Site; 2], extent: u64, next: u64) {
        let core = self.core;
        let link = core.geometry.slot_at(extent) + LogExtentHead::NEXT;
        core.set_word(link, next);
        core.pool.flush(word, link, 8);
        core.pool.fence(durable);
    }

    /// The first cookie of the extent after `full`.
    fn log_next_base<B: Bodies<M>>(&self, dir: Cachelet, full: Tail) -> Result<u64> {
        let core = self.core;
        let head = core.log_head(full.extent(), core.ino(dir))?;
        if !head.is_compacted() {
            return Ok(head.base_cookie + full.kind().words());
        }
        // Compaction leaves no free words at the end of an extent.
        Ok(self.last_of_extent::<B>(full.extent(), &head)? + 1)
    }

    /// The cookie of the last entry that an extent's words name. If they name none, the base cookie
    /// of a compacted extent, or else the one before it.
    fn last_of_extent<B: Bodies<M>>(&self, extent: u64, head: &LogExtentHead) -> Result<u64> {
        let core = self.core;
        let at = core.geometry.slot_at(extent) + head.kind().words_at();
        let words = (0..head.kind().words()).rev();
        let mut named = words.map(|index| (index, LogWord(core.word(at + 8 * index)).entry()));
        match named.find(|(_, entry)| *entry != 0) {
            // The words are in the order of cookies.
            Some((_, entry)) if head.is_compacted() => B::cookie(core, entry),
            Some((index, _)) => Ok(head.base_cookie + index),
            None if head.is_compacted() => Ok(head.base_cookie),
            None => Ok(head.base_cookie - 1),
        }
    }

    /// The last cookie that was assigned in a directory. See
    /// [`crate::namespace::Namespace::last_cookie`].
    pub(crate) fn last_cookie<B: Bodies<M>>(&self, dir: Cachelet) -> Result<u64> {
        let core = self.core;
        let tail = Tail(core.get(dir, field::TAIL));
        if core.has_flag(dir, flag::COUNTED) && tail.0 != 0 {
            if tail.is_full() {
                return Ok(self.log_next_base::<B>(dir, tail)? - 1);
            }
            let head = core.log_head(tail.extent(), core.ino(dir))?;
            return Ok(head.base_cookie + tail.index() - 1);
        }
        match log_extents(core, core.ino(dir), core.get(dir, field::ROOT))?.last() {
            Some((extent, head)) => self.last_of_extent::<B>(*extent, head),
            None => Ok(FIRST_COOKIE - 1),
        }
    }

    /// Makes `extent` the first of the directory's log, durably.
    pub(crate) fn log_set_root(&self, [word, durable]: [Site; 2], dir: Cachelet, extent: u64) {
        let core = self.core;
        let at = core.inode_at(dir) + Inode::ROOT;
        core.set_word(at, extent);
        core.pool.flush(word, at, 8);
        core.pool.fence(durable);
        core.set(dir, field::ROOT, extent);
    }
}
