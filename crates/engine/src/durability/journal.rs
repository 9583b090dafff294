//! The journal of a thread slot: one redo record of 8-byte stores (`property_entry` and rename
//! journal of DirectFS III-F).
//!
//! Deviation: the paper logs attribute changes as `property_entry` in the file's log. Here they are
//! a record in the slot's journal, because files have no log of their own and the record is applied
//! at once. Rename uses the same record.

use std::sync::atomic::Ordering;

use vellum_layout::{JOURNAL_MAX_PAIRS, JournalHead, JournalPair, SLOT_BYTES};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site, Transactions};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::core::slots::{Op, field};
use crate::error::{Error, Location, Result};
use crate::sites;

/// Words of the longest record, rounded up to lines.
const RECORD_WORDS: usize = (2 + 2 * JOURNAL_MAX_PAIRS).next_multiple_of(8);

/// A redo record being put together.
pub(crate) struct Record {
    pairs: [JournalPair; JOURNAL_MAX_PAIRS],
    count: usize,
    /// Pairs (by bit) that only recovery has to store.
    for_recovery: u32,
}

impl Record {
    /// A record without pairs.
    pub(crate) fn new() -> Self {
        Self {
            pairs: [JournalPair { at: 0, value: 0 }; JOURNAL_MAX_PAIRS],
            count: 0,
            for_recovery: 0,
        }
    }

    /// Adds a store of `value` at pool offset `at`.
    pub(crate) fn store(&mut self, at: u64, value: u64) -> &mut Self {
        self.push(JournalPair::store(at, value))
    }

    /// Adds a store of the value that `at` already holds, which becomes durable by the record's
    /// fence.
    pub(crate) fn restate(&mut self, at: u64, value: u64) -> &mut Self {
        self.for_recovery |= 1 << self.count;
        self.store(at, value)
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
    /// Makes `record` durable, together with everything flushed before. This commits the operation.
    pub(crate) fn journal_commit(&self, record: &Record) {
        let core = self.core;
        let at = core.geometry.thread_slot_at(self.slot);
        let sequence = self.own(field::SEQUENCE).wrapping_add(1);
        self.set_own(field::SEQUENCE, sequence);
        let head = JournalHead::new(sequence as u32, record.count);
        let mut words = [0; RECORD_WORDS];
        words[0] = head.0;
        words[1] = head.seal(u64::from(self.slot), record.pairs());
        for (to, pair) in words[2..].chunks_exact_mut(2).zip(record.pairs()) {
            to[0] = pair.at;
            to[1] = pair.value;
        }
        let bytes = JournalHead::PAIRS as usize + 16 * record.count;
        let lines = bytes.next_multiple_of(LINE_BYTES as usize);
        let bytes = &words.as_bytes()[..lines];
        if core.geometry.has_undo() {
            let mut places = [(at, lines as u64); 1 + JOURNAL_MAX_PAIRS];
            for (place, pair) in places[1..].iter_mut().zip(record.pairs()) {
                *place = (pair.at, 8);
            }
            core.pool.about_to_store(&places[..=record.count]);
        }
        core.pool.write_through(sites::JOURNAL_RECORD, at, bytes);
        core.pool.fence(sites::JOURNAL_RECORD_DURABLE);
    }

    /// Makes the stores of the committed record, durably.
    pub(crate) fn journal_apply(&self, record: &Record) {
        self.journal_store(record);
        self.journal_settle();
    }

    /// The first half of [`Self::journal_apply`]: the stores. Others see them after the next locked
    /// instruction at the latest.
    pub(crate) fn journal_store(&self, record: &Record) {
        store(
            self.core,
            sites::JOURNAL_WORDS,
            record.pairs(),
            record.for_recovery,
        );
    }

    /// The second half of [`Self::journal_apply`]: makes them durable.
    pub(crate) fn journal_settle(&self) {
        self.core.pool.fence(sites::JOURNAL_WORDS_DURABLE);
    }

    /// Retires the record, durably. Until then every word that it names must stay protected.
    pub(crate) fn journal_retire(&self) {
        retire(self.core, sites::JOURNAL_RETIRE, self.slot);
        self.core.pool.fence(sites::JOURNAL_RETIRE_DURABLE);
    }
}

/// Makes the stores of the pairs, past the cache, except those whose bit is set in `not`.
fn store<M: Memories>(core: &Core<M>, site: Site, pairs: &[JournalPair], not: u32) {
    for (i, pair) in pairs.iter().enumerate() {
        if pair.witnessed().is_none() && not >> i & 1 == 0 {
            core.pool.store_through(site, pair.at, pair.value);
        }
    }
}

fn retire<M: Memories>(core: &Core<M>, site: Site, slot: u32) {
    let at = core.geometry.thread_slot_at(slot);
    core.pool
        .store_through(site, at + JournalHead::AT, JournalHead::RETIRED.0);
}

/// Clears the checksums of earlier openings' records. Each opening numbers its records from the
/// start. If a power cut left only the head of a new record, it could revive an old record of the
/// same number behind it. Not flushed: the head lies in the same line and is stored later, so it
/// cannot arrive without this.
pub(crate) fn forget_checksums<M: Memories>(core: &Core<M>) {
    for slot in 0..core.geometry.thread_slots {
        let at = core.geometry.thread_slot_at(slot) + JournalHead::CHECK;
        if core.word(at) != 0 {
            core.set_word(at, 0);
        }
    }
}

/// Returns the value that the entry at a pool offset witnesses, if there is such an entry. The
/// namespace provides this function.
pub(crate) type Witness<'a> = &'a dyn Fn(u64) -> Option<u64>;

/// Recovers one thread slot, whether its thread was killed or the power was cut: applies a
/// committed record, and retires any record. The caller fences before the slot is used. Returns
/// whether a record was applied.
pub(crate) fn recover_slot<M: Memories>(
    core: &Core<M>,
    witness: Witness<'_>,
    slot: u32,
) -> Result<bool> {
    let at = core.geometry.thread_slot_at(slot);
    let head = JournalHead(core.pool.load(at + JournalHead::AT, Ordering::Acquire));
    if head == JournalHead::RETIRED {
        return Ok(false);
    }
    let committed = read_committed(core, witness, slot, head);
    if let Some(pairs) = &committed {
        for pair in pairs.iter().filter(|pair| pair.witnessed().is_none()) {
            if !pair.at.is_multiple_of(8) || !in_metadata(core, pair.at) {
                return Err(Error::damaged(
                    "journal record with an impossible offset",
                    Location::Offset(at),
                ));
            }
        }
        store(core, sites::RECOVER_JOURNAL_WORDS, pairs, 0);
        core.pool.fence(sites::RECOVER_JOURNAL_WORDS_DURABLE);
    }
    retire(core, sites::RECOVER_JOURNAL_RETIRE, slot);
    Ok(committed.is_some())
}

fn in_metadata<M: Memories>(core: &Core<M>, at: u64) -> bool {
    let geometry = &core.geometry;
    let is_in_region = (geometry.meta_at..geometry.table_at).contains(&at);
    let slot = || at.saturating_sub(geometry.meta_at) / SLOT_BYTES;
    is_in_region || core.kind_of_slot(slot()).is_some()
}

fn read_committed<M: Memories>(
    core: &Core<M>,
    witness: Witness<'_>,
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
            in_metadata(core, entry_at) && witness(entry_at) == Some(pair.value)
        })
    };
    (sealed && pairs.iter().all(witnessed)).then_some(pairs)
}
