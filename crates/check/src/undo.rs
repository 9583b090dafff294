//! The undo log of a split pool: changes of uncommitted transactions are rolled back in the
//! overlay, as an opening would do.

use std::collections::BTreeMap;

use vellum_layout::{
    CommittedWord, LOG_LINE_BYTES, PoolHeader, Superblock, UNDO_RECORD_BYTES, UndoPlan, UndoRecord,
};

use crate::image::{View, Window};
use crate::report::{Class, Location, Sink};

/// The contents of a pool's undo log.
#[derive(Clone, Debug, Default)]
pub struct UndoLog {
    /// The last committed transaction; `None` if the pool header is unsound.
    pub committed: Option<u64>,
    /// The last transaction with an undo record.
    pub latest: u64,
    /// Pool offsets of undo records of invalid granules or transactions.
    pub impossible: Vec<u64>,
    /// The contents of granules before the first transaction behind the committed one that changed
    /// them, with the number of that transaction.
    old: BTreeMap<u64, (u64, [u8; 128])>,
    /// The last transaction that changed each granule.
    changed: BTreeMap<u64, u64>,
}

impl UndoLog {
    /// The undo log of a pool; `None` if it has none.
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
            // A record that a crash left half written does not count: its granule was not changed.
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

    /// Whether a crash explains the state of the log.
    pub fn is_sound(&self) -> bool {
        self.committed.is_some() && self.impossible.is_empty()
    }

    /// Whether an opening under another boot rolls anything back.
    pub fn is_ahead(&self) -> bool {
        self.committed.is_some() && !self.old.is_empty()
    }

    /// Whether one of the last two transactions changed a granule; only these may be uncommitted.
    pub fn is_recent(&self, granule: u64) -> bool {
        let last = self.changed.get(&granule);
        last.is_some_and(|&last| last + 1 >= self.latest)
    }
}

/// Overlays the image with old bytes, unless `boot` is the boot of the last opening and no data
/// were lost. If the pool header is unsound, the metadata are checked as they are.
pub(crate) fn lay_over(view: &mut View, superblock: &Superblock, boot: [u8; 16], sink: &mut Sink) {
    let found = UndoPlan::of(&superblock.geometry()).zip(UndoLog::read(view, superblock));
    let Some((plan, records)) = found else {
        return;
    };
    if records.committed.is_none() {
        let detail = "the pool header does not record the last committed transaction";
        sink.damage(Class::UndoLog, Location::Offset(plan.at), detail);
        return;
    }
    for &at in &records.impossible {
        let detail = "an undo record of no granule of metadata, or of no transaction";
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
