//! Versions of metadata whose data lie elsewhere: what transactions that were not committed have
//! changed is looked at as it was before, as an opening would take it back.

use std::collections::BTreeMap;

use vellum_layout::{
    CommittedWord, Entrance, LOG_LINE_BYTES, Superblock, VERSION_BYTES, Version, VersionsPlan,
};

use crate::image::{View, Window};
use crate::report::{Class, Place, Sink};

/// What the versions of a pool say.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// The last transaction that was committed; none: the entrance is unsound.
    pub committed: Option<u64>,
    /// The last transaction that is told of.
    pub latest: u64,
    /// Pool offsets of versions of what is no piece of metadata, or of no transaction.
    pub impossible: Vec<u64>,
    /// What pieces held before the first transaction behind the committed one that changed them,
    /// with its number.
    originals: BTreeMap<u64, (u64, [u8; 128])>,
    /// The last transaction that changed each piece.
    changed: BTreeMap<u64, u64>,
}

impl Versions {
    /// Those of a pool that has any.
    pub(crate) fn read(view: &View, superblock: &Superblock) -> Option<Self> {
        let plan = VersionsPlan::of(&superblock.geometry())?;
        let committed = CommittedWord(view.word(plan.at + Entrance::COMMITTED)).get();
        let mut new = Self {
            committed,
            latest: committed.unwrap_or(0),
            ..Self::default()
        };
        let behind = new.latest;
        let end = plan.version_at(plan.count - 1) + VERSION_BYTES;
        let mut window = Window::new(view, plan.version_at(0), end);
        for number in 0..plan.count {
            let at = plan.version_at(number);
            let transaction = window.get(at + Version::TRANSACTION, 8);
            let transaction = transaction.and_then(|bytes| bytes.first_chunk());
            if transaction.is_none_or(|bytes| u64::from_le_bytes(*bytes) <= behind) {
                continue;
            }
            let version = window.get(at, VERSION_BYTES as usize);
            // One that a crash cut short is none: its piece was not changed.
            if let Some(version) =
                version.and_then(|bytes| Version::unseal(superblock.hash_seed, bytes))
            {
                new.add(&plan, at, &version);
            }
        }
        Some(new)
    }

    fn add(&mut self, plan: &VersionsPlan, at: u64, version: &Version) {
        let Version {
            piece, transaction, ..
        } = *version;
        if !plan.is_piece(piece) || transaction >= CommittedWord::MAX {
            self.impossible.push(at);
            return;
        }
        self.latest = self.latest.max(transaction);
        let new = (transaction, version.original);
        let first = self.originals.entry(piece).or_insert(new);
        *first = (*first).min(new);
        let last = self.changed.entry(piece).or_default();
        *last = (*last).max(transaction);
    }

    /// Whether everything is as a crash may leave it.
    pub fn is_sound(&self) -> bool {
        self.committed.is_some() && self.impossible.is_empty()
    }

    /// Whether an opening under another boot takes anything back.
    pub fn is_ahead(&self) -> bool {
        self.committed.is_some() && !self.originals.is_empty()
    }

    /// Whether a piece was changed by one of the last two transactions, the only ones that may not
    /// have been committed.
    pub fn is_recent(&self, piece: u64) -> bool {
        let last = self.changed.get(&piece);
        last.is_some_and(|&last| last + 1 >= self.latest)
    }
}

/// Lays originals over the image, unless `boot` is that of the last opener and no data were lost.
/// Where the entrance does not say what was committed, the metadata are looked at as they are.
pub(crate) fn lay_over(view: &mut View, superblock: &Superblock, boot: [u8; 16], sink: &mut Sink) {
    let found = VersionsPlan::of(&superblock.geometry()).zip(Versions::read(view, superblock));
    let Some((plan, versions)) = found else {
        return;
    };
    if versions.committed.is_none() {
        let detail = "the entrance does not say what was committed with its data";
        sink.damage(Class::Versions, Place::Offset(plan.at), detail);
        return;
    }
    for &at in &versions.impossible {
        let detail = "a version of what is no piece of metadata, or of no transaction";
        sink.damage(Class::Versions, Place::Offset(at), detail);
    }
    let last: [u8; 16] = view.bytes(plan.at + Entrance::BOOT);
    let is_poisoned = view.word(plan.at + Entrance::POISONED) != 0;
    if boot != [0; 16] && last == boot && !is_poisoned {
        return;
    }
    for (&piece, (_, original)) in &versions.originals {
        let lines = original.chunks(LOG_LINE_BYTES as usize);
        for (line, at) in lines.zip((piece..).step_by(LOG_LINE_BYTES as usize)) {
            view.lay_line(at, line);
        }
    }
}
