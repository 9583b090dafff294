//! The global hash index (DirectFS III-C): (parent inode, name) to (entry, cachelet or inode).
//!
//! One table for all directories, in the arena. A bucket is one cache line: three pairs of words,
//! a link to an overflow bucket, and a lock for inserters that names its holder. Readers take no
//! lock: they load the entry word, the value word, and the entry word again. An entry word is
//! unique while an epoch is pinned, because entries are recycled only after a grace period, so
//! an unchanged entry word means that the value belongs to it.
//!
//! The inode quick path (III-D): the value holds the cachelet (whose first words are what lookups
//! need) or, before the first access, the inode itself; an inode table is never searched.

use std::sync::atomic::Ordering;

use vellum_media::{Memories, Memory, count};

use super::index::{EntryWord, Index, Key, Pair, ValueWord};
use super::{Entries, Name};
use crate::core::cachelet::{Cachelet, NAME_ONE};
use crate::core::slots::{Op, Tally, pause};
use crate::core::{Core, header};
use crate::error::{Error, Result};

const PAIRS: u64 = 3;
const NEXT: u64 = 48;
const LOCK: u64 = 56;
const BUCKET_BYTES: u64 = 64;

/// The index of DirectFS.
#[derive(Debug)]
pub(crate) struct Buckets;

impl<M: Memories> Index<M> for Buckets {
    const NAME_REFS: u64 = NAME_ONE;

    type Absence = ();

    fn prefetch(core: &Core<M>, dir: Cachelet, name: Name<'_>) {
        core.index_prefetch(core.ino(dir), name.hash);
    }

    fn find<S: Entries<M>>(core: &Core<M>, dir: Cachelet, name: Name<'_>) -> Option<Pair> {
        core.index_find::<S>(core.ino(dir), name)
    }

    fn look<S: Entries<M>>(
        core: &Core<M>,
        dir: Cachelet,
        name: Name<'_>,
    ) -> std::result::Result<Pair, ()> {
        Self::find::<S>(core, dir, name).ok_or(())
    }

    fn insert<S: Entries<M>>(
        op: &Op<'_, M>,
        dir: Cachelet,
        name: Name<'_>,
        _absence: Option<()>,
        entry: u64,
        value: ValueWord,
    ) -> Result<std::result::Result<Pair, Pair>> {
        let parent = op.core.ino(dir);
        op.core.index_insert::<S>(op, parent, name, entry, value)
    }

    fn reload(core: &Core<M>, pair: Pair) -> Option<Pair> {
        core.index_reload(pair)
    }

    fn reload_of(core: &Core<M>, pair: Pair, cachelet: Cachelet) -> Option<Pair> {
        let pair = core.index_reload(pair);
        pair.filter(|pair| pair.value.target() == Ok(cachelet))
    }

    fn cachelet(op: &Op<'_, M>, pair: Pair) -> Result<Option<Cachelet>> {
        match pair.value.target() {
            Ok(cachelet) => Ok(Some(cachelet)),
            Err(_) => op.attach_cachelet(pair),
        }
    }

    fn update(core: &Core<M>, pair: Pair, value: ValueWord) -> Option<Pair> {
        core.index_update(pair, value)
    }

    fn hold(core: &Core<M>, pair: Pair) {
        core.index_hold(pair);
    }

    fn set(core: &Core<M>, pair: Pair, entry: u64, value: ValueWord) {
        core.index_set(pair, pair.entry.with_entry(entry), value);
    }

    fn release(core: &Core<M>, pair: Pair, value: ValueWord) {
        core.index_release(pair, value);
    }

    fn remove(op: &Op<'_, M>, pair: Pair) {
        op.index_remove(pair);
    }

    fn is_to_forget(_: &Core<M>) -> bool {
        true
    }

    fn is_forgotten(_: Pair) -> bool {
        true
    }
}

impl<M: Memories> Core<M> {
    fn home(&self, key: Key) -> u64 {
        self.map.buckets + (key.0 & (self.map.bucket_count - 1)) * BUCKET_BYTES
    }

    fn arena_word(&self, at: u64) -> u64 {
        self.arena.load(at, Ordering::Acquire)
    }

    /// Prefetches the bucket of a name.
    pub(crate) fn index_prefetch(&self, parent: u64, name_hash: u32) {
        self.arena.prefetch(self.home(Key::new(parent, name_hash)));
    }

    /// Finds the pair of a name, in any state.
    pub(crate) fn index_find<S: Entries<M>>(&self, parent: u64, name: Name<'_>) -> Option<Pair> {
        let key = Key::new(parent, name.hash);
        let mut bucket = self.home(key);
        loop {
            count::probe();
            for at in (bucket..bucket + PAIRS * 16).step_by(16) {
                if let Some(pair) = self.pair_of_tag(at, key.tag())
                    && S::is_called(self, pair.entry.entry(), parent, name)
                {
                    return Some(pair);
                }
            }
            bucket = self.arena_word(bucket + NEXT);
            if bucket == 0 {
                return None;
            }
        }
    }

    /// Loads the pair at `at` consistently, if it has the tag.
    fn pair_of_tag(&self, at: u64, tag: u64) -> Option<Pair> {
        loop {
            let entry = EntryWord(self.arena_word(at));
            if entry.0 == 0 || entry.tag() != tag {
                return None;
            }
            let value = ValueWord(self.arena_word(at + 8));
            if self.arena_word(at) == entry.0 {
                return Some(Pair { at, entry, value });
            }
        }
    }

    /// Loads a pair again. `None` if it belongs to another name now.
    pub(crate) fn index_reload(&self, pair: Pair) -> Option<Pair> {
        let value = ValueWord(self.arena_word(pair.at + 8));
        (self.arena_word(pair.at) == pair.entry.0).then_some(Pair { value, ..pair })
    }

    /// Inserts a pair for a name that does not exist yet.
    ///
    /// # Errors
    /// `Ok(Err(pair))`: the name exists already.
    pub(crate) fn index_insert<S: Entries<M>>(
        &self,
        op: &Op<'_, M>,
        parent: u64,
        name: Name<'_>,
        entry: u64,
        value: ValueWord,
    ) -> Result<std::result::Result<Pair, Pair>> {
        let key = Key::new(parent, name.hash);
        let home = self.home(key);
        self.lock_bucket(op, home);
        let entry = EntryWord::new(key, entry);
        let result = self.insert_locked::<S>(home, (parent, name), entry, value);
        self.arena.store(home + LOCK, 0, Ordering::Release);
        if let Ok(Ok(_)) = result {
            op.count(Tally::Names, 1);
        }
        result
    }

    fn insert_locked<S: Entries<M>>(
        &self,
        home: u64,
        (parent, name): (u64, Name<'_>),
        entry: EntryWord,
        value: ValueWord,
    ) -> Result<std::result::Result<Pair, Pair>> {
        let (mut bucket, mut free) = (home, None);
        loop {
            for at in (bucket..bucket + PAIRS * 16).step_by(16) {
                if self.arena_word(at) == 0 {
                    free = free.or(Some(at));
                } else if let Some(pair) = self.pair_of_tag(at, entry.tag())
                    && S::is_called(self, pair.entry.entry(), parent, name)
                {
                    return Ok(Err(pair));
                }
            }
            match self.arena_word(bucket + NEXT) {
                0 => break,
                next => bucket = next,
            }
        }
        let at = match free {
            Some(at) => at,
            None => self.append_bucket(bucket)?,
        };
        let pair = Pair { at, entry, value };
        self.arena.store(at + 8, value.0, Ordering::Release);
        self.arena.store(at, pair.entry.0, Ordering::Release);
        Ok(Ok(pair))
    }

    /// Chains an overflow bucket behind `last`. Returns the offset of its first pair.
    fn append_bucket(&self, last: u64) -> Result<u64> {
        let bucket = self
            .pop_free_bucket()
            .or_else(|| self.fresh_bucket())
            .ok_or(Error::OutOfMemory("the index"))?;
        self.arena.fetch_add(header::OVERFLOW_USED, 1);
        self.arena.store(bucket + NEXT, 0, Ordering::Relaxed);
        self.arena.store(last + NEXT, bucket, Ordering::Release);
        Ok(bucket)
    }

    fn fresh_bucket(&self) -> Option<u64> {
        let number = self.arena.fetch_add(header::OVERFLOW_FRESH, 1);
        if number >= self.map.overflow_count {
            self.arena.fetch_add(header::OVERFLOW_FRESH, u64::MAX);
            return None;
        }
        Some(self.map.overflow_buckets + number * BUCKET_BYTES)
    }

    /// Pops the free list, whose head is a bucket's number plus one under a tag against ABA.
    fn pop_free_bucket(&self) -> Option<u64> {
        let mut head = self.arena_word(header::OVERFLOW_FREE);
        loop {
            let number = (head & 0xFFFF_FFFF).checked_sub(1)?;
            let bucket = self.map.overflow_buckets + number * BUCKET_BYTES;
            let next = self.arena_word(bucket + NEXT) & 0xFFFF_FFFF;
            let new = (head >> 32).wrapping_add(1) << 32 | next;
            match self
                .arena
                .compare_exchange(header::OVERFLOW_FREE, head, new)
            {
                Ok(_) => return Some(bucket),
                Err(now) => head = now,
            }
        }
    }

    /// Frees an overflow bucket that no chain and no reader can reach.
    pub(crate) fn free_bucket(&self, bucket: u64) {
        let number = (bucket - self.map.overflow_buckets) / BUCKET_BYTES + 1;
        self.arena.fetch_add(header::OVERFLOW_USED, u64::MAX);
        let mut head = self.arena_word(header::OVERFLOW_FREE);
        loop {
            self.arena
                .store(bucket + NEXT, head & 0xFFFF_FFFF, Ordering::Release);
            let new = (head >> 32).wrapping_add(1) << 32 | number;
            match self
                .arena
                .compare_exchange(header::OVERFLOW_FREE, head, new)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Unlinks empty overflow buckets from all chains. They may be freed after a grace period.
    pub(crate) fn index_trim(&self, op: &Op<'_, M>) -> Vec<u64> {
        let mut trimmed = Vec::new();
        for number in 0..self.map.bucket_count {
            let home = self.map.buckets + number * BUCKET_BYTES;
            if self.arena_word(home + NEXT) == 0 {
                continue;
            }
            self.lock_bucket(op, home);
            let mut before = home;
            while let bucket @ 1.. = self.arena_word(before + NEXT) {
                let empty = (0..PAIRS).all(|i| self.arena_word(bucket + 16 * i) == 0);
                if empty {
                    let next = self.arena_word(bucket + NEXT);
                    self.arena.store(before + NEXT, next, Ordering::Release);
                    trimmed.push(bucket);
                } else {
                    before = bucket;
                }
            }
            self.arena.store(home + LOCK, 0, Ordering::Release);
        }
        trimmed
    }

    fn lock_bucket(&self, op: &Op<'_, M>, home: u64) {
        let mut tries = 0;
        while self
            .arena
            .compare_exchange(home + LOCK, 0, op.holder())
            .is_err()
        {
            pause(&self.arena, &mut tries);
        }
    }

    /// Replaces the value of a pair, if neither of its words has changed since it was found.
    pub(crate) fn index_update(&self, pair: Pair, value: ValueWord) -> Option<Pair> {
        let swapped = self
            .arena
            .compare_exchange(pair.at + 8, pair.value.0, value.0)
            .is_ok();
        if !swapped {
            return None;
        }
        if self.arena_word(pair.at) == pair.entry.0 {
            return Some(Pair { value, ..pair });
        }
        // The pair was removed and reused for another name whose value had the same bits: undo.
        let _ = self
            .arena
            .compare_exchange(pair.at + 8, value.0, pair.value.0);
        None
    }

    /// Makes lookups wait for a pair, before any later store of this thread is visible. The pair is
    /// protected by the caller's flag, or because it is new and not readable.
    pub(crate) fn index_hold(&self, pair: Pair) {
        self.arena.fetch_or(pair.at + 8, ValueWord::RENAMING);
    }

    /// Stores another entry in a pair that the caller's flag protects. `value` still has the flag,
    /// because without it the pair could be reused before the entry is stored.
    pub(crate) fn index_set(&self, pair: Pair, entry: EntryWord, value: ValueWord) {
        debug_assert!(value.has(ValueWord::RENAMING));
        self.arena.store(pair.at + 8, value.0, Ordering::Release);
        self.arena.store(pair.at, entry.0, Ordering::Release);
    }

    /// Stores another value in a pair that the caller's flag protects, by a single store, which
    /// ends the protection.
    pub(crate) fn index_release(&self, pair: Pair, value: ValueWord) {
        self.arena.store(pair.at + 8, value.0, Ordering::Release);
    }
}

impl<M: Memories> Op<'_, M> {
    /// Removes a pair that the caller's flag protects.
    pub(crate) fn index_remove(&self, pair: Pair) {
        self.core.arena.store(pair.at, 0, Ordering::Release);
        self.count(Tally::Names, -1);
    }

    #[cold]
    fn attach_cachelet(&self, pair: Pair) -> Result<Option<Cachelet>> {
        let core = self.core;
        // While the flag is set nobody else changes or removes the pair, so the reference is
        // counted exactly once.
        let flagged = core.index_update(pair, pair.value.with(ValueWord::RENAMING));
        let Some(flagged) = flagged else {
            return Ok(None);
        };
        let loaded = self.load_named(&self.named(pair.entry.entry()));
        if let Ok(cachelet) = loaded {
            core.add_refs(cachelet, NAME_ONE);
        }
        let value = loaded.as_ref().map_or(pair.value, |&cachelet| {
            let flags = pair.value.0 & ValueWord::FLAGS;
            ValueWord::of_cachelet(cachelet, core.kind(cachelet)).with(flags)
        });
        core.index_release(flagged, value);
        loaded.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use crate::checking::kernels::explore;
    use crate::checking::loom_memory::Swaps;
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_free_overflow_bucket_is_allocated_once() {
        explore(4, Swaps::Plain, |stage| {
            let core = stage.core();
            for _ in 0..3 {
                core.free_bucket(core.fresh_bucket().unwrap());
            }
            let taken = Arc::new(Mutex::new(BTreeSet::new()));
            let keep = |taken: &Mutex<BTreeSet<u64>>, bucket: u64| {
                assert!(taken.lock().unwrap().insert(bucket), "allocated twice");
            };
            let (one, other) = (Arc::clone(&taken), Arc::clone(&taken));
            stage.together(vec![
                Box::new(move |stage| keep(&one, stage.core().pop_free_bucket().unwrap())),
                Box::new(move |stage| {
                    let first = stage.core().pop_free_bucket().unwrap();
                    keep(&other, stage.core().pop_free_bucket().unwrap());
                    stage.core().free_bucket(first);
                }),
            ]);
            let left = std::iter::from_fn(|| core.pop_free_bucket());
            left.for_each(|bucket| keep(&taken, bucket));
        });
    }
}
