//! Hash tables of areas, which find names, in the pool.
//!
//! Each area has a table of *levels* ([`levels`]), in metadata blocks that nothing on a closed pool
//! leads to. A name has one word. It holds the location of its entry, a tag of the name, and
//! whether the name is readable, being removed or being renamed. Everything else is decided by the
//! entry: there name and directory are compared, and the file is read. So names hold no references,
//! and a file that nobody uses needs no DRAM.
//!
//! A word also holds the cachelet that the file had when the word was written. That is a hint: the
//! cachelet, which is prefetched together with the entry, shows itself whether it still belongs to
//! the file ([`Core::is_cachelet_of`]). If so, the inode is not read, which would be two cache
//! misses one after the other.
//!
//! Words are derived data: directory logs are the truth, and a directory's names are inserted when
//! one of them is first missed, or changed. Words are stored in the cache and never flushed. Their
//! blocks are free to recovery, and to an opening after a close.
//!
//! Names for which no block can be allocated are in the index of `direct` ([`Buckets`]), in DRAM,
//! and so are names that are inserted while nothing of the pool may change. So no name is refused
//! because of its own word. But blocks of tables are not freed before their area goes or the pool
//! is closed, and in a full pool something else may lack them.
//!
//! A directory's cachelet records the area whose table holds the directory's names. Moves change
//! that area, and carry the words along.

mod levels;

use std::cell::Cell;
use std::sync::atomic::Ordering;

use vellum_layout::{AREA_LIMIT, Geometry, SLOTS_PER_BLOCK};
use vellum_media::{Memories, Memory};

use super::Adaptive;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::{Op, Tally, pause};
use crate::core::{Core, header};
use crate::error::{Error, Result};
use crate::namespace::indexed::buckets::Buckets;
use crate::namespace::indexed::index::{EntryWord, Index, Key, Pair, ValueWord};
use crate::namespace::indexed::{Entries, Name};

/// Locks of inserters, by name. Each holds its holder (bits 0..32), and how often it was taken
/// (32..64).
const LOCKS: u64 = 1024;
/// Of this number of unused files one keeps a cachelet, ...
const FILES_PER_CACHELET: u64 = 16;
/// ... but this many keep theirs in any case.
const CACHELETS_MIN: u64 = 1 << 16;
/// Flag in a pair's offset: it is an offset in the pool.
const IN_POOL: u64 = 1 << 63;

/// Limit of the number of areas of a pool, plus one.
fn areas(geometry: &Geometry) -> u64 {
    geometry.region_slots().min(AREA_LIMIT.into())
}

/// Size of the locks and of the locations of tables, in bytes of the arena.
pub(super) fn bytes(geometry: &Geometry) -> u64 {
    (LOCKS + areas(geometry)) * 8
}

/// A word of a table: slot of the entry (bits 0..32), readable, being removed, being renamed
/// (32..35), number of the file's cachelet, or 0 (35..51), tag (51..63), 1 (63). 0: free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const USED: u64 = 1 << 63;
    const FLAGS: u64 = 7 << 32;
    /// Position of a cachelet's number. Numbers above the limit are not recorded.
    const CACHELET_SHIFT: u32 = 35;
    const CACHELET_MAX: u64 = 0xFFFF;
    /// The tag: the upper half of the key's tag.
    const TAG: u64 = 0xFFF << 51;
    const TAG_SHIFT: u32 = 39;

    fn new(entry: EntryWord, value: ValueWord) -> Self {
        let tag = entry.tag() << Self::TAG_SHIFT & Self::TAG;
        let cachelet = value.target().map_or(0, |cachelet| u64::from(cachelet.0));
        let told = match cachelet {
            0..=Self::CACHELET_MAX => cachelet << Self::CACHELET_SHIFT,
            _ => 0,
        };
        Self(Self::USED | tag | told | Self::flags(value) | entry.entry())
    }

    /// The cachelet that the file had, if it is recorded.
    fn cachelet(self) -> Option<Cachelet> {
        let told = self.0 >> Self::CACHELET_SHIFT & Self::CACHELET_MAX;
        (told != 0).then_some(Cachelet(told as u32))
    }

    fn flags(value: ValueWord) -> u64 {
        (value.0 / ValueWord::READABLE % 8) << 32
    }

    /// Mask and value that the words of names with this key match.
    fn of(key: Key) -> (u64, u64) {
        let tag = key.tag() << Self::TAG_SHIFT & Self::TAG;
        (Self::USED | Self::TAG, Self::USED | tag)
    }

    /// Mask and value that free words match.
    fn none() -> (u64, u64) {
        (Self::USED, 0)
    }

    fn is_none(self) -> bool {
        self.0 & Self::USED == 0
    }

    fn is_of(self, key: Key) -> bool {
        let (mask, value) = Self::of(key);
        self.0 & mask == value
    }

    fn entry(self) -> EntryWord {
        let tag = (self.0 & Self::TAG) << (EntryWord::TAG_SHIFT - Self::TAG_SHIFT);
        EntryWord(tag | self.0 & 0xFFFF_FFFF)
    }

    /// The pair of a word at this pool offset.
    fn pair(self, at: u64) -> Pair {
        let flags = (self.0 & Self::FLAGS) >> 32 << ValueWord::READABLE.trailing_zeros();
        let value = self.cachelet().map_or(ValueWord(0), ValueWord::told);
        Pair {
            at: at | IN_POOL,
            entry: self.entry(),
            value: value.with(flags),
        }
    }
}

/// Proof that a name was absent.
#[derive(Clone, Copy)]
pub(crate) struct Absence {
    /// The area whose table was searched.
    area: u32,
    /// The count of the name's lock.
    count: u64,
    /// Free space for the name's word, if its lines had any.
    place: Option<u64>,
}

/// Pool offset of a pair's word, or `None` if it is in DRAM.
fn place(pair: Pair) -> Option<u64> {
    (pair.at & IN_POOL != 0).then_some(pair.at & !IN_POOL)
}

impl<M: Memories> Core<M> {
    fn locks_at(&self) -> u64 {
        self.map.namespace + super::tables_at(&self.geometry)
    }

    /// Arena offset of the lock for inserting a name.
    fn lock_of(&self, dir: Cachelet, name: Name<'_>) -> u64 {
        self.locks_at() + Key::new(self.ino(dir), name.hash).0 % LOCKS * 8
    }

    /// Takes a lock, and returns its count.
    fn take_lock(&self, lock: u64, holder: u64) -> u64 {
        let mut tries = 0;
        loop {
            let free = self.arena.load(lock, Ordering::Relaxed) >> 32 << 32;
            let taken = self.arena.compare_exchange(lock, free, free | holder);
            if taken.is_ok() {
                return free >> 32;
            }
            pause(&self.arena, &mut tries);
        }
    }

    /// Arena offset of the word with the location of an area's table.
    #[inline]
    fn table_cell_of(&self, area: u32) -> Option<u64> {
        let is_one = (1..areas(&self.geometry)).contains(&area.into());
        is_one.then(|| self.locks_at() + (LOCKS + u64::from(area)) * 8)
    }

    /// The area whose table holds the names of a directory, or 0 if that cannot be found out.
    fn area_of_names(&self, dir: Cachelet) -> u32 {
        let at = self.cachelet_at(dir, field::FLAGS);
        loop {
            let flags = self.get(dir, field::FLAGS);
            if let known @ 1.. = flag::area(flags) {
                return known;
            }
            let Some(area) = self.home_area(dir) else {
                return 0;
            };
            // Fails if a move has recorded another area meanwhile.
            let known = flag::with_area(flags, area);
            if self.arena.compare_exchange(at, flags, known).is_ok() {
                return area;
            }
        }
    }

    /// The area of a directory's names, according to the pool.
    fn home_area(&self, dir: Cachelet) -> Option<u32> {
        let area = self.area_of(self.ino(dir)).ok()?;
        (1..areas(&self.geometry))
            .contains(&area.into())
            .then_some(area)
    }

    /// Records that a directory's names are in the table of the area that they belong to now. None
    /// may be in the table of another area.
    pub(super) fn renew_area(&self, dir: Cachelet) {
        let at = self.cachelet_at(dir, field::FLAGS);
        let area = self.home_area(dir).unwrap_or(0);
        let mut flags = self.get(dir, field::FLAGS);
        while flag::area(flags) != area {
            let changed = flag::with_area(flags, area);
            match self.arena.compare_exchange(at, flags, changed) {
                Ok(_) => return,
                Err(now) => flags = now,
            }
        }
    }

    /// Records which area's table holds a directory's names, before a move changes the area that
    /// they belong to.
    pub(super) fn keep_area(&self, dir: Cachelet) {
        self.area_of_names(dir);
    }

    /// Whether names may be in the index in DRAM.
    fn has_names_elsewhere(&self) -> bool {
        self.arena.load(header::NAMES_ELSEWHERE, Ordering::Acquire) != 0
    }

    /// Finds the pair of a name in the table of `area`.
    ///
    /// # Errors
    /// If there is none, the offset of free space for one, if there is any.
    fn find_in_table(
        &self,
        area: u32,
        dir: u64,
        name: Name<'_>,
    ) -> std::result::Result<Pair, Option<u64>> {
        let key = Key::new(dir, name.hash);
        let found = self.find_word(area, key, |word| {
            if !word.is_of(key) {
                return false;
            }
            if let Some(cachelet) = word.cachelet() {
                self.prefetch_cachelet(cachelet);
            }
            Adaptive::is_called(self, word.entry().entry(), dir, name)
        });
        found.map(|(at, word)| word.pair(at))
    }

    /// Finds the pair of a name of `dir`, whose names are in the table of `area`, or wherever else
    /// it is.
    ///
    /// # Errors
    /// If there is none, the offset of free space for one in that table, if there is any.
    fn find_name(
        &self,
        area: u32,
        dir: Cachelet,
        name: Name<'_>,
    ) -> std::result::Result<Pair, Option<u64>> {
        let ino = self.ino(dir);
        let place = match self.find_in_table(area, ino, name) {
            Err(place) => place,
            found => return found,
        };
        let leaving = || {
            let is_moved = self.has_flag(dir, flag::BUILDING | flag::STILL);
            let area = self.arena.load(header::LEAVING, Ordering::Acquire) as u32;
            let is_from = is_moved && area != 0;
            is_from.then(|| self.find_in_table(area, ino, name).ok())?
        };
        let elsewhere = || {
            let there = self.has_names_elsewhere();
            there.then(|| self.index_find::<Adaptive>(ino, name))?
        };
        leaving().or_else(elsewhere).ok_or(place)
    }

    /// Puts the pair of an absent name into the table of `area`, at `place` if that is still free.
    /// If that is not possible, puts it into DRAM.
    fn put(
        &self,
        op: &Op<'_, M>,
        (area, place): (u32, Option<u64>),
        (dir, name): (u64, Name<'_>),
        entry: u64,
        value: ValueWord,
    ) -> Result<std::result::Result<Pair, Pair>> {
        let key = Key::new(dir, name.hash);
        let word = Word::new(EntryWord::new(key, entry), value);
        let is_closed = self.arena.load(header::CLOSED, Ordering::Acquire) != 0;
        let may_change = !self.read_only && !is_closed && !self.is_damaged();
        if may_change {
            match op.insert_word(area, key, word, place) {
                Ok(at) => return Ok(Ok(word.pair(at))),
                Err(Error::NoSpace(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.arena
            .store(header::NAMES_ELSEWHERE, 1, Ordering::SeqCst);
        self.index_insert::<Adaptive>(op, dir, name, entry, value)
    }
}

/// Tables in the pool.
#[derive(Debug)]
pub(crate) struct Tables;

impl<M: Memories> Index<M> for Tables {
    const NAME_REFS: u64 = 0;

    type Absence = Absence;

    fn prefetch(core: &Core<M>, dir: Cachelet, name: Name<'_>) {
        let key = Key::new(core.ino(dir), name.hash);
        core.prefetch_word(core.area_of_names(dir), key);
    }

    fn find<S: Entries<M>>(core: &Core<M>, dir: Cachelet, name: Name<'_>) -> Option<Pair> {
        core.find_name(core.area_of_names(dir), dir, name).ok()
    }

    #[inline]
    fn look<S: Entries<M>>(
        core: &Core<M>,
        dir: Cachelet,
        name: Name<'_>,
    ) -> std::result::Result<Pair, Absence> {
        let lock = core.arena.load(core.lock_of(dir, name), Ordering::Acquire);
        let area = core.area_of_names(dir);
        let absent = |place| Absence {
            area,
            count: lock >> 32,
            place,
        };
        core.find_name(area, dir, name).map_err(absent)
    }

    fn insert<S: Entries<M>>(
        op: &Op<'_, M>,
        dir: Cachelet,
        name: Name<'_>,
        absence: Option<Absence>,
        entry: u64,
        value: ValueWord,
    ) -> Result<std::result::Result<Pair, Pair>> {
        let core = op.core;
        let lock = core.lock_of(dir, name);
        let count = core.take_lock(lock, op.holder());
        let area = core.area_of_names(dir);
        // A lock has one inserter at a time. So an absent name is still absent if nobody took the
        // lock since.
        let known = absence.filter(|absence| (absence.area, absence.count) == (area, count));
        let found = match known {
            Some(absence) => Err(absence.place),
            None => core.find_name(area, dir, name),
        };
        let result = match found {
            Ok(there) => Ok(Err(there)),
            Err(place) => {
                let names = (core.ino(dir), name);
                core.put(op, (area, place), names, entry, value)
            }
        };
        let counted = (count + 1) << 32;
        core.arena.store(lock, counted, Ordering::Release);
        result
    }

    fn reload(core: &Core<M>, pair: Pair) -> Option<Pair> {
        let Some(at) = place(pair) else {
            return core.index_reload(pair);
        };
        let now = Word(core.word(at));
        let is_same = !now.is_none() && now.entry() == pair.entry;
        is_same.then(|| now.pair(at))
    }

    fn reload_of(core: &Core<M>, pair: Pair, _: Cachelet) -> Option<Pair> {
        Self::reload(core, pair)
    }

    fn cachelet(op: &Op<'_, M>, pair: Pair) -> Result<Option<Cachelet>> {
        let named = op.named(pair.entry.entry());
        if let Ok(told) = pair.value.target()
            && op.core.is_cachelet_of(told, &named)
        {
            return Ok(Some(told));
        }
        match op.load_named(&named) {
            Ok(cachelet) => Ok(Some(cachelet)),
            // A name leaves this table before its file goes, and is flagged before a directory gets
            // another parent.
            Err(_) if Self::reload(op.core, pair) != Some(pair) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn update(core: &Core<M>, pair: Pair, value: ValueWord) -> Option<Pair> {
        let Some(at) = place(pair) else {
            return core.index_update(pair, value);
        };
        let [old, new] = [pair.value, value].map(|value| Word::new(pair.entry, value));
        let swapped = core.pool.compare_exchange(at, old.0, new.0);
        swapped.is_ok().then(|| new.pair(at))
    }

    fn hold(core: &Core<M>, pair: Pair) {
        match place(pair) {
            Some(at) => {
                let flag = Word::flags(ValueWord(ValueWord::RENAMING));
                core.pool.fetch_or(at, flag);
            }
            None => core.index_hold(pair),
        }
    }

    fn set(core: &Core<M>, pair: Pair, entry: u64, value: ValueWord) {
        let entry = pair.entry.with_entry(entry);
        match place(pair) {
            Some(at) => core.set_word(at, Word::new(entry, value).0),
            None => core.index_set(pair, entry, value),
        }
    }

    fn release(core: &Core<M>, pair: Pair, value: ValueWord) {
        match place(pair) {
            Some(at) => {
                let rest = core.word(at) & !Word::FLAGS;
                core.set_word(at, rest | Word::flags(value));
            }
            None => core.index_release(pair, value),
        }
    }

    fn remove(op: &Op<'_, M>, pair: Pair) {
        match place(pair) {
            Some(at) => op.core.set_word(at, 0),
            None => op.index_remove(pair),
        }
    }

    fn cachelets_kept(core: &Core<M>) -> u64 {
        (core.total(Tally::Inodes) / FILES_PER_CACHELET).max(CACHELETS_MIN)
    }

    fn is_to_forget(core: &Core<M>) -> bool {
        core.has_names_elsewhere()
    }

    fn is_forgotten(pair: Pair) -> bool {
        place(pair).is_none()
    }
}

/// A directory's names while they move from one area's table into another's, until dropped. A
/// lookup that misses one meanwhile waits.
pub(super) struct Carried<'a, M: Memories> {
    core: &'a Core<M>,
    dir: Cachelet,
    from: u32,
    to: u32,
    was_indexed: bool,
    /// A name was not carried. The directory's names will be inserted again, from its log.
    is_incomplete: Cell<bool>,
}

impl<'a, M: Memories> Carried<'a, M> {
    /// Begins carrying. The caller keeps the directory's part of the index from being built, and
    /// its names from being changed.
    pub(super) fn begin(core: &'a Core<M>, dir: Cachelet) -> Self {
        let from = core.area_of_names(dir);
        let to = core.home_area(dir).unwrap_or(0);
        let mut was_indexed = false;
        if from != to {
            was_indexed = core.clear_flag(dir, flag::INDEXED) & flag::INDEXED != 0;
            let at = core.cachelet_at(dir, field::FLAGS);
            core.arena.fetch_add(at, flag::GENERATION);
            core.arena
                .store(header::LEAVING, from.into(), Ordering::SeqCst);
            core.renew_area(dir);
        }
        Self {
            core,
            dir,
            from,
            to,
            was_indexed,
            is_incomplete: Cell::new(false),
        }
    }

    /// Makes a name's pair, if it has one, lead to the copy. Only lookups of this name wait.
    pub(super) fn carry(
        &self,
        op: &Op<'_, M>,
        name: Name<'_>,
        [before, copy]: [u64; 2],
    ) -> Result<()> {
        let core = self.core;
        let owner = core.ino(self.dir);
        let find = || {
            let found = core.find_in_table(self.from, owner, name).ok();
            let elsewhere = || {
                let there = core.has_names_elsewhere();
                there.then(|| Buckets::find::<Adaptive>(core, self.dir, name))?
            };
            found.or_else(elsewhere)
        };
        let mut tries = 0;
        while let Some(pair) = find()
            && pair.entry.entry() == before
        {
            let flagged = || Tables::update(core, pair, pair.value.with(ValueWord::RENAMING));
            let Some(flagged) = pair.value.is_settled().then(flagged).flatten() else {
                pause(&core.arena, &mut tries);
                continue;
            };
            if self.from == self.to || place(flagged).is_none() {
                Tables::set(core, flagged, copy, flagged.value);
                Tables::release(core, flagged, pair.value);
                continue;
            }
            let put = core.put(op, (self.to, None), (owner, name), copy, pair.value);
            let put = put.inspect_err(|_| {
                self.is_incomplete.set(true);
                Tables::release(core, flagged, pair.value);
            })?;
            debug_assert!(put.is_ok(), "names are frozen");
            Tables::remove(op, flagged);
        }
        Ok(())
    }
}

impl<M: Memories> Drop for Carried<'_, M> {
    fn drop(&mut self) {
        let core = self.core;
        if self.from != self.to {
            core.arena.store(header::LEAVING, 0, Ordering::Release);
        }
        if self.was_indexed && !self.is_incomplete.get() {
            core.raise_flag(self.dir, flag::INDEXED);
        }
    }
}

impl<M: Memories> Core<M> {
    /// Frees the table of an area that no directory has names in, after operations that use it have
    /// ended. Runs outside operations.
    pub(super) fn free_table(&self, area: u32) {
        let Some(cell) = self.table_cell_of(area) else {
            return;
        };
        let table = self.arena.load(cell, Ordering::Acquire);
        if table == 0 {
            return;
        }
        self.arena.store(cell, 0, Ordering::Release);
        // Removed directories that are still open may have used it.
        self.wait_for_readers();
        self.for_each_of_table(table, &mut |slot| self.free_slots(slot, SLOTS_PER_BLOCK));
    }

    /// Calls `each` with every block of every table.
    pub(super) fn for_each_table_block(&self, each: &mut dyn FnMut(u64)) {
        for (area, _) in self.live_areas() {
            if let Some(cell) = self.table_cell_of(area) {
                self.for_each_of_table(self.arena.load(cell, Ordering::Acquire), each);
            }
        }
    }
}
