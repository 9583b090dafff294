//! The journal of a thread slot: one redo record of 8-byte stores (`property_entry` and rename
//! journal of DirectFS III-F).
//!
//! Deviation: the paper logs attribute changes as `property_entry` in the file's log; here they are
//! a record in the slot's journal, because files have no log of their own and the record is applied
//! at once. Rename uses the same record.

use std::sync::atomic::Ordering;

use vellum_layout::{Entry, EntryHead, JOURNAL_MAX_PAIRS, JournalHead, JournalPair, NAME_MAX};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent};

use crate::core::Core;
use crate::error::{Error, Place, Result};
use crate::slots::{Op, field};

/// A redo record being put together.
pub(crate) struct Record {
    pairs: [JournalPair; JOURNAL_MAX_PAIRS],
    count: usize,
}

impl Record {
    /// A record without pairs.
    pub(crate) fn new() -> Self {
        Self {
            pairs: [JournalPair { at: 0, value: 0 }; JOURNAL_MAX_PAIRS],
            count: 0,
        }
    }

    /// Adds a store of `value` at pool offset `at`.
    pub(crate) fn store(&mut self, at: u64, value: u64) -> &mut Self {
        self.push(JournalPair::store(at, value))
    }

    /// Ties the entry at `entry_at`, written under the same fence, to this record.
    pub(crate) fn witness(&mut self, entry_at: u64, checksum: u32) -> &mut Self {
        self.push(JournalPair::witness(entry_at, checksum))
    }

    fn push(&mut self, pair: JournalPair) -> &mut Self {
        debug_assert!(self.count < JOURNAL_MAX_PAIRS);
        if let Some(place) = self.pairs.get_mut(self.count) {
            *place = pair;
            self.count += 1;
        }
        self
    }

    fn pairs(&self) -> &[JournalPair] {
        &self.pairs[..self.count]
    }
}

impl<M: Memories> Op<'_, M> {
    /// Makes `record` durable, together with everything flushed before: the operation will have
    /// happened.
    pub(crate) fn journal_commit(&self, record: &Record) {
        let core = self.core;
        let at = core.geometry.thread_slot_at(self.slot);
        let sequence = self.own(field::SEQUENCE).wrapping_add(1);
        self.set_own(field::SEQUENCE, sequence);
        let head = JournalHead::new(sequence as u32, record.count);
        for (pair, to) in record
            .pairs()
            .iter()
            .zip((at + JournalHead::PAIRS..).step_by(16))
        {
            core.set_word(to, pair.at);
            core.set_word(to + 8, pair.value);
        }
        core.set_word(
            at + JournalHead::CHECK,
            head.seal(u64::from(self.slot), record.pairs()),
        );
        core.set_word(at + JournalHead::AT, head.0);
        core.pool
            .flush(at, JournalHead::PAIRS + 16 * record.count as u64);
        core.pool.fence();
    }

    /// Stores what the committed record says, durably.
    pub(crate) fn journal_apply(&self, record: &Record) {
        self.journal_store(record);
        self.journal_settle(record);
    }

    /// The first half of [`Self::journal_apply`]: the stores.
    pub(crate) fn journal_store(&self, record: &Record) {
        store(self.core, record.pairs());
    }

    /// The second half of [`Self::journal_apply`]: makes them durable.
    pub(crate) fn journal_settle(&self, record: &Record) {
        flush(self.core, record.pairs());
        self.core.pool.fence();
    }

    /// Forgets the record, durably. Until then every word it names must stay protected.
    pub(crate) fn journal_retire(&self) {
        retire(self.core, self.slot);
    }
}

fn store<M: Memories>(core: &Core<M>, pairs: &[JournalPair]) {
    for pair in pairs.iter().filter(|pair| pair.witnessed().is_none()) {
        core.set_word(pair.at, pair.value);
    }
}

/// Flushes what was stored, each line once where its pairs adjoin.
fn flush<M: Memories>(core: &Core<M>, pairs: &[JournalPair]) {
    let mut dirty = u64::MAX;
    for pair in pairs.iter().filter(|pair| pair.witnessed().is_none()) {
        let line = pair.at / LINE_BYTES;
        if dirty != u64::MAX && dirty != line {
            core.pool.flush(dirty * LINE_BYTES, LINE_BYTES);
        }
        dirty = line;
    }
    if dirty != u64::MAX {
        core.pool.flush(dirty * LINE_BYTES, LINE_BYTES);
    }
}

fn retire<M: Memories>(core: &Core<M>, slot: u32) {
    let at = core.geometry.thread_slot_at(slot);
    core.set_word(at + JournalHead::AT, JournalHead::RETIRED.0);
    core.pool.flush(at, 8);
    core.pool.fence();
}

/// Recovers one thread slot, whether its thread died or the power went: applies a committed
/// record and retires whatever there is. Gives whether there was one.
pub(crate) fn recover_slot<M: Memories>(core: &Core<M>, slot: u32) -> Result<bool> {
    let at = core.geometry.thread_slot_at(slot);
    let head = JournalHead(core.pool.load(at + JournalHead::AT, Ordering::Acquire));
    if head == JournalHead::RETIRED {
        return Ok(false);
    }
    let committed = read_committed(core, slot, head);
    if let Some(pairs) = &committed {
        for pair in pairs.iter().filter(|pair| pair.witnessed().is_none()) {
            if !pair.at.is_multiple_of(8) || !in_metadata(core, pair.at) {
                return Err(Error::damaged(
                    "journal names an impossible place",
                    Place::Offset(at),
                ));
            }
        }
        store(core, pairs);
        flush(core, pairs);
        core.pool.fence();
    }
    retire(core, slot);
    Ok(committed.is_some())
}

fn in_metadata<M: Memories>(core: &Core<M>, at: u64) -> bool {
    (core.geometry.meta_at..core.geometry.table_at).contains(&at)
}

fn read_committed<M: Memories>(
    core: &Core<M>,
    slot: u32,
    head: JournalHead,
) -> Option<Vec<JournalPair>> {
    if head.count() > JOURNAL_MAX_PAIRS {
        return None;
    }
    let at = core.geometry.thread_slot_at(slot);
    let pairs: Vec<_> = (0..head.count() as u64)
        .map(|i| at + JournalHead::PAIRS + 16 * i)
        .map(|at| JournalPair {
            at: core.word(at),
            value: core.word(at + 8),
        })
        .collect();
    let sealed = core.word(at + JournalHead::CHECK) == head.seal(u64::from(slot), &pairs);
    let witnessed = |pair: &JournalPair| {
        pair.witnessed().is_none_or(|entry_at| {
            in_metadata(core, entry_at)
                && read_entry(core, entry_at)
                    .is_some_and(|head| u64::from(head.checksum) == pair.value)
        })
    };
    (sealed && pairs.iter().all(witnessed)).then_some(pairs)
}

/// The head of the entry at pool offset `entry_at`, if the entry is sound.
pub(crate) fn read_entry<M: Memories>(core: &Core<M>, entry_at: u64) -> Option<EntryHead> {
    let mut bytes = [0; Entry::NAME as usize + NAME_MAX];
    let first = Entry::NAME as usize + 16;
    core.pool.read(entry_at, &mut bytes[..first]);
    let head: EntryHead = zerocopy::FromBytes::read_from_prefix(&bytes).ok()?.0;
    let used = Entry::NAME as usize + usize::from(head.name_len).min(NAME_MAX);
    if used > first {
        core.pool
            .read(entry_at + first as u64, &mut bytes[first..used]);
    }
    Entry::is_sound(&bytes).then_some(head)
}
