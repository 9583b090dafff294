//! The table itself: where a key's lines are, finding it without a lock, changing it under one.
//!
//! An entry moves from one of its lines to the other when a third key needs its place, and a reader
//! of both lines may then miss it in either. So a key's *stripe*, a word of the arena, counts how
//! often a key of the stripe began or ended a move: odd while one is on its way. A reader who found
//! nothing believes it only if the count was even and is the same afterwards. One who found the key
//! compares too, so that what it read of the place belongs to the key that it saw.
//!
//! The stripe is also the lock of those who change entries of its keys; its lower bits name the
//! thread slot that holds it. Keys of one file have one writer, so the lock is against moves only.

use std::sync::atomic::Ordering;

use vellum_layout::{
    CUCKOO_LINE_ENTRIES, CUCKOO_STASH_LINES, CuckooPlan, Geometry, MapState, MapWord, PlaceWord,
};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site, count};

use crate::core::Core;
use crate::error::{Error, Place, Result};
use crate::mapping::MapId;
use crate::slots::{Op, pause};

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: u64 = 16;
/// Stripes, a power of two.
const STRIPES: u64 = 1024;
/// The slot that holds a stripe; above it the count of moves.
const HOLDER_MASK: u64 = 0xFFFF;
/// One more beginning or end of a move.
const MOVE: u64 = HOLDER_MASK + 1;
/// The words of a line that are keys, as bits of an answer of `match_line`.
const KEYS: u8 = 0b0101_0101;

/// A table and its part of the arena.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) at: u64,
    pub(super) plan: CuckooPlan,
    blocks: u64,
    seed: u64,
    /// Arena word: entries in the stash.
    pub(super) stashed_at: u64,
    /// Arena word: see `gate`.
    pub(super) gate_at: u64,
    stripes_at: u64,
}

/// A key, and where it may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Mapping id and logical block.
    pub(super) word: u64,
    pub(super) homes: [u64; 2],
}

impl Key {
    /// What an entry holds whose key is on its way into it: nobody's, for readers and recovery.
    pub(super) fn mark(&self) -> u64 {
        (MapState::Limbo as u64) << 62 | self.word
    }
}

/// An entry as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Its offset in the pool.
    pub(super) at: u64,
    pub(super) word: MapWord,
    pub(super) place: PlaceWord,
}

impl Held {
    /// Whether `next` is the file's next block in the same state, and the next on the medium.
    pub(super) fn is_before(&self, next: &Self) -> bool {
        self.word.0 + 1 == next.word.0 && self.place.block() + 1 == next.place.block()
    }
}

/// Whether an entry's first word says that its key is in the table.
pub(super) fn is_live(word: MapWord) -> bool {
    matches!(word.state(), MapState::Unwritten | MapState::Mapped)
}

impl Table {
    /// The table of a pool, whose part of the arena (zero at first) is at `arena_at`.
    pub(super) fn new(arena_at: u64, geometry: &Geometry, seed: u64) -> Self {
        Self {
            at: geometry.table_at,
            plan: CuckooPlan::new(geometry.zone_blocks),
            blocks: geometry.zone_blocks,
            seed,
            stashed_at: arena_at,
            gate_at: arena_at + LINE_BYTES,
            stripes_at: arena_at + 2 * LINE_BYTES,
        }
    }

    /// First byte of the arena behind the table's part.
    pub(super) fn arena_end(&self) -> u64 {
        self.stripes_at + STRIPES * 8
    }

    pub(super) fn key(&self, id: MapId, logical: u32) -> Key {
        self.key_of(MapWord(MapWord::key(id, logical)))
    }

    /// The key of an entry.
    pub(super) fn key_of(&self, word: MapWord) -> Key {
        let word = word.0 & MapWord::KEY_MASK;
        Key {
            word,
            homes: self.plan.homes(self.seed, word),
        }
    }

    pub(super) fn line_at(&self, line: u64) -> u64 {
        self.at + line * LINE_BYTES
    }

    /// The lines of the stash.
    pub(super) fn stash(&self) -> impl Iterator<Item = u64> + use<> {
        self.plan.lines..self.plan.lines + CUCKOO_STASH_LINES
    }

    /// Whether an entry may say that: the check fits, and there is such a block.
    pub(super) fn is_sound(&self, word: MapWord, place: PlaceWord) -> bool {
        place.is_of(word.0) && u64::from(place.block()) < self.blocks
    }

    pub(super) fn unsound(at: u64) -> Error {
        Error::damaged("mapping entry", Place::Part("mapping table", at))
    }

    fn stripe_at(&self, key: &Key) -> u64 {
        self.stripes_at + key.homes[0] % STRIPES * 8
    }

    /// Asks for the line that a key is looked for in first.
    pub(super) fn prefetch<M: Memories>(&self, core: &Core<M>, key: &Key) {
        core.pool.prefetch(self.line_at(key.homes[0]));
    }

    /// Finds a key, without a lock.
    pub(super) fn find<M: Memories>(&self, core: &Core<M>, key: &Key) -> Result<Option<Held>> {
        let stripe_at = self.stripe_at(key);
        let mut tries = 0;
        let mut doubtful = None;
        loop {
            let before = core.arena.load(stripe_at, Ordering::Acquire) / MOVE;
            let found = self.look(core, key);
            let after = core.arena.load(stripe_at, Ordering::Acquire) / MOVE;
            match found {
                _ if before != after => {}
                Some(held) if self.is_sound(held.word, held.place) => return Ok(found),
                // The file's writer may have taken the key out and put it back meanwhile, between
                // the two looks at the first word. It is damage if it is so again.
                Some(held) if doubtful == found => return Err(Self::unsound(held.at)),
                Some(_) => doubtful = found,
                None if before.is_multiple_of(2) => return Ok(None),
                None => {}
            }
            pause(&core.arena, &mut tries);
        }
    }

    /// Looks for a key in its lines, and in the stash if there is anything.
    fn look<M: Memories>(&self, core: &Core<M>, key: &Key) -> Option<Held> {
        let found = key
            .homes
            .iter()
            .find_map(|&line| self.look_in(core, key, line));
        if found.is_none() && core.arena.load(self.stashed_at, Ordering::Acquire) != 0 {
            return self.stash().find_map(|line| self.look_in(core, key, line));
        }
        found
    }

    pub(super) fn look_in<M: Memories>(
        &self,
        core: &Core<M>,
        key: &Key,
        line: u64,
    ) -> Option<Held> {
        count::probe();
        let line_at = self.line_at(line);
        let mut hits = core.pool.match_line(line_at, MapWord::KEY_MASK, key.word) & KEYS;
        while hits != 0 {
            let at = line_at + u64::from(hits.trailing_zeros()) * 8;
            hits &= hits - 1;
            let word = MapWord(core.word(at));
            let place = PlaceWord(core.word(at + 8));
            let again = MapWord(core.word(at));
            if is_live(word) && word.0 & MapWord::KEY_MASK == key.word && again == word {
                return Some(Held { at, word, place });
            }
        }
        None
    }

    /// Calls `change` with the entry of a key, which does not move meanwhile. The caller is the
    /// file's writer.
    pub(super) fn change<M: Memories, T>(
        &self,
        op: &Op<'_, M>,
        key: &Key,
        change: impl FnOnce(&Held) -> T,
    ) -> Result<Option<T>> {
        let lock = self.lock(op, key);
        let Some(held) = self.look(op.core, key) else {
            return Ok(None);
        };
        if !self.is_sound(held.word, held.place) {
            return Err(Self::unsound(held.at));
        }
        let done = change(&held);
        drop(lock);
        Ok(Some(done))
    }

    /// Waits for the stripe of a key.
    pub(super) fn lock<'a, M: Memories>(
        &self,
        op: &'a Op<'_, M>,
        key: &Key,
    ) -> StripeLock<'a, M::Arena> {
        let arena = &op.core.arena;
        let at = self.stripe_at(key);
        let mut tries = 0;
        loop {
            let seen = arena.load(at, Ordering::Relaxed);
            let free = seen & HOLDER_MASK == 0;
            let locked = seen | op.holder();
            if free && arena.compare_exchange(at, seen, locked).is_ok() {
                let word = locked;
                return StripeLock { arena, at, word };
            }
            pause(arena, &mut tries);
        }
    }

    /// Takes a free entry of a line for a key, which its mark says; gives where.
    pub(super) fn claim_in<M: Memories>(
        &self,
        core: &Core<M>,
        line: u64,
        key: &Key,
    ) -> Option<u64> {
        count::probe();
        let line_at = self.line_at(line);
        let mut free = self.free_in(core, line);
        while free != 0 {
            let at = line_at + u64::from(free.trailing_zeros()) * 8;
            free &= free - 1;
            let swapped = core.pool.compare_exchange(at, MapWord::FREE.0, key.mark());
            if swapped.is_ok() {
                return Some(at);
            }
        }
        None
    }

    /// The free entries of a line: a bit for each of its words that is the first of one.
    pub(super) fn free_in<M: Memories>(&self, core: &Core<M>, line: u64) -> u8 {
        let line_at = self.line_at(line);
        core.pool.match_line(line_at, u64::MAX, MapWord::FREE.0) & KEYS
    }

    /// Fills an entry that was claimed for a key. The place first: who sees the key sees it, and so
    /// does the medium, for they are in one line.
    pub(super) fn fill<M: Memories>(
        &self,
        core: &Core<M>,
        at: u64,
        word: MapWord,
        place: PlaceWord,
        flush: Option<Site>,
    ) {
        core.set_word(at + 8, place.0);
        core.set_word(at, word.0);
        if let Some(site) = flush {
            core.pool.flush(site, at, ENTRY_BYTES);
        }
    }

    /// Takes a key out. Flushed, not fenced. Under the key's lock.
    pub(super) fn clear<M: Memories>(&self, site: Site, core: &Core<M>, held: &Held) {
        core.set_word(held.at, MapWord::FREE.0);
        core.pool.flush(site, held.at, 8);
        if held.at >= self.line_at(self.plan.lines) {
            core.arena.fetch_add(self.stashed_at, u64::MAX);
        }
    }

    /// Calls `each` with the entries of a line that are in use.
    pub(super) fn each_in<M: Memories>(
        &self,
        core: &Core<M>,
        line: u64,
        mut each: impl FnMut(Held) -> Result<()>,
    ) -> Result<()> {
        let words = core.pool.load_line(self.line_at(line));
        for (i, pair) in (0..CUCKOO_LINE_ENTRIES).zip(words.chunks_exact(2)) {
            let held = Held {
                at: self.line_at(line) + i * ENTRY_BYTES,
                word: MapWord(pair[0]),
                place: PlaceWord(pair[1]),
            };
            if held.word != MapWord::FREE {
                each(held)?;
            }
        }
        Ok(())
    }
}

/// A stripe that an operation holds.
pub(super) struct StripeLock<'a, A: Memory> {
    arena: &'a A,
    at: u64,
    word: u64,
}

impl<A: Memory> StripeLock<'_, A> {
    /// A key of the stripe begins or ends a move.
    pub(super) fn count_move(&mut self) {
        self.word = self.word.wrapping_add(MOVE);
        self.arena.store(self.at, self.word, Ordering::Release);
    }
}

impl<A: Memory> Drop for StripeLock<'_, A> {
    fn drop(&mut self) {
        let free = self.word & !HOLDER_MASK;
        self.arena.store(self.at, free, Ordering::Release);
    }
}
