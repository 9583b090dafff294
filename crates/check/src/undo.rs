//! UndoLog of metadata whose data lie elsewhere: what transactions that were not committed have
//! changed is looked at as it was before, as an opening would take it back.

use std::collections::BTreeMap;

use vellum_layout::{
    CommittedWord, LOG_LINE_BYTES, PoolHeader, Superblock, UNDO_RECORD_BYTES, UndoPlan, UndoRecord,
};

use crate::image::{View, Window};
use crate::report::{Class, Location, Sink};

/// What the records of a pool say.
#[derive(Clone, Debug, Default)]
pub struct UndoLog {
    /// The last transaction that was committed; none: the header is unsound.
    pub committed: Option<u64>,
    /// The last transaction that is told of.
    pub latest: u64,
    /// Pool offsets of records of what is no granule of metadata, or of no transaction.
    pub impossible: Vec<u64>,
    /// What granules held before the first transaction behind the committed one that changed them,
    /// with its number.
    old: BTreeMap<u64, (u64, [u8; 128])>,
    /// The last transaction that changed each granule.
    changed: BTreeMap<u64, u64>,
}

impl UndoLog {
    /// Those of a pool that has any.
    pub(crate) fn read(view: &View, superblock: &Superblock) -> Option<Self> {
        let plan = UndoPlan::of(&superblock.geometry())?;
        let committed = CommittedWord(view.word(plan.at + PoolHeader::COMMITTED)).get();
        let mut new = Self {
            committed,
            latest: committed.unwrap_or(0),
            ..Self::default()
        };
        let behind = new.latest;
        let end = plan.undo_record_at(plan.count - 1) + UNDO_RECORD_BYTES;
        let mut window = Window::new(view, plan.undo_record_at(0), end);
        for number in 0..plan.count {
            let at = plan.undo_record_at(number);
            let transaction = window.get(at + UndoRecord::TRANSACTION, 8);
            let transaction = transaction.and_then(|bytes| bytes.first_chunk());
            if transaction.is_none_or(|bytes| u64::from_le_bytes(*bytes) <= behind) {
                continue;
            }
            let record = window.get(at, UNDO_RECORD_BYTES as usize);
            // One that a crash cut short is none: its granule was not changed.
            if let Some(record) =
                record.and_then(|bytes| UndoRecord::unseal(superblock.hash_seed, bytes))
            {
                new.add(&plan, at, &record);
            }
        }
        Some(new)
    }

    fn add(&mut self, plan: &UndoPlan, at: u64, record: &UndoRecord) {
        let UndoRecord {
            granule,
            transaction,
            ..
        } = *record;
        if !plan.is_granule(granule) || transaction >= CommittedWord::MAX {
            self.impossible.push(at);
            return;
        }
        self.latest = self.latest.max(transaction);
        let new = (transaction, record.old);
        let first = self.old.entry(granule).or_insert(new);
        *first = (*first).min(new);
        let last = self.changed.entry(granule).or_default();
        *last = (*last).max(transaction);
    }

    /// Whether everything is as a crash may leave it.
    pub fn is_sound(&self) -> bool {
        self.committed.is_some() && self.impossible.is_empty()
    }

    /// Whether an opening under another boot takes anything back.
    pub fn is_ahead(&self) -> bool {
        self.committed.is_some() && !self.old.is_empty()
    }

    /// Whether a granule was changed by one of the last two transactions, the only ones that may
    /// not have been committed.
    pub fn is_recent(&self, granule: u64) -> bool {
        let last = self.changed.get(&granule);
        last.is_some_and(|&last| last + 1 >= self.latest)
    }
}

/// Lays old bytes over the image, unless `boot` is that of the last opener and no data were lost.
/// Where the header does not say what was committed, the metadata are looked at as they are.
pub(crate) fn lay_over(view: &mut View, superblock: &Superblock, boot: [u8; 16], sink: &mut Sink) {
    let found = UndoPlan::of(&superblock.geometry()).zip(UndoLog::read(view, superblock));
    let Some((plan, records)) = found else {
        return;
    };
    if records.committed.is_none() {
        let detail = "the entrance does not say what was committed with its data";
        sink.damage(Class::UndoLog, Location::Offset(plan.at), detail);
        return;
    }
    for &at in &records.impossible {
        let detail = "a version of what is no piece of metadata, or of no transaction";
        sink.damage(Class::UndoLog, Location::Offset(at), detail);
    }
    let last: [u8; 16] = view.bytes(plan.at + PoolHeader::BOOT);
    let is_poisoned = view.word(plan.at + PoolHeader::POISONED) != 0;
    if boot != [0; 16] && last == boot && !is_poisoned {
        return;
    }
    for (&granule, (_, old)) in &records.old {
        let lines = old.chunks(LOG_LINE_BYTES as usize);
        for (line, at) in lines.zip((granule..).step_by(LOG_LINE_BYTES as usize)) {
            view.lay_line(at, line);
        }
    }
}
