//! Versions of metadata whose data lie elsewhere: what transactions that were not committed have changed is looked at as it was before, as an
//! opening would take it back.

use std::collections::BTreeMap;

use vellum_layout::{
    CommittedWord, Entrance, LOG_LINE_BYTES, Superblock, VERSION_BYTES, Version, VersionsPlan,
};

use crate::image::{View, Window};
use crate::report::{Class, Place, Sink};

/// Lays originals over the image, unless `boot` is that of the last opener and no data were lost.
pub(crate) fn lay_over(view: &mut View, superblock: &Superblock, boot: [u8; 16], sink: &mut Sink) {
    let Some(plan) = VersionsPlan::of(&superblock.geometry()) else {
        return;
    };
    let Some(committed) = CommittedWord(view.word(plan.at + Entrance::COMMITTED)).get() else {
        sink.incomplete = true;
        let detail = "the entrance to the versions is unsound";
        sink.damage(Class::NotAPool, Place::Offset(plan.at), detail);
        return;
    };
    let last: [u8; 16] = view.bytes(plan.at + Entrance::BOOT);
    let is_poisoned = view.word(plan.at + Entrance::POISONED) != 0;
    if boot != [0; 16] && last == boot && !is_poisoned {
        return;
    }
    for (piece, (_, original)) in originals(view, superblock.hash_seed, (&plan, committed), sink) {
        let lines = original.chunks(LOG_LINE_BYTES as usize);
        for (line, at) in lines.zip((piece..).step_by(LOG_LINE_BYTES as usize)) {
            view.lay_line(at, line);
        }
    }
}

/// Whether an opening under another boot takes anything back.
pub(crate) fn has_later(view: &View, superblock: &Superblock) -> bool {
    VersionsPlan::of(&superblock.geometry()).is_some_and(|plan| {
        let word = CommittedWord(view.word(plan.at + Entrance::COMMITTED));
        word.get().is_some_and(|committed| {
            let seed = superblock.hash_seed;
            !originals(view, seed, (&plan, committed), &mut Sink::default()).is_empty()
        })
    })
}

/// What pieces held before the first transaction behind the committed one that changed them, with its number.
fn originals(
    view: &View,
    seed: u64,
    (plan, committed): (&VersionsPlan, u64),
    sink: &mut Sink,
) -> BTreeMap<u64, (u64, [u8; 128])> {
    let mut found = BTreeMap::new();
    let end = plan.version_at(plan.count - 1) + VERSION_BYTES;
    let mut window = Window::new(view, plan.version_at(0), end);
    for number in 0..plan.count {
        let at = plan.version_at(number);
        let transaction = window.get(at + Version::TRANSACTION, 8);
        let transaction = transaction.and_then(|bytes| bytes.first_chunk());
        if transaction.is_none_or(|bytes| u64::from_le_bytes(*bytes) <= committed) {
            continue;
        }
        let version = window.get(at, VERSION_BYTES as usize);
        let Some(version) = version.and_then(|bytes| Version::unseal(seed, bytes)) else {
            // A crash cut it short: its piece was not changed.
            continue;
        };
        if !plan.is_piece(version.piece) || version.transaction >= CommittedWord::MAX {
            let detail = "a version of what is no piece of metadata, or of no transaction";
            sink.damage(Class::NotAPool, Place::Offset(at), detail);
            continue;
        }
        let new = (version.transaction, version.original);
        let first = found.entry(version.piece).or_insert(new);
        *first = (*first).min(new);
    }
    found
}
