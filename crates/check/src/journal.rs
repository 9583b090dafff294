//! The thread slots' journals: finds committed records and overlays the image with their stores.

use vellum_layout::{
    ChunkKind, ChunkWord, Entry, EntryHead, Geometry, IdentityWord, Inode, JOURNAL_MAX_PAIRS,
    JournalHead, JournalPair, NamespaceKind, SLOT_BYTES,
};
use zerocopy::FromBytes;

use crate::image::View;
use crate::report::{Class, Location, Sink};
use crate::{areas, records};

/// The contents of a thread slot's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Nothing: retired, or never used.
    Retired,
    /// A head that is never written.
    Unsound,
    /// A record that never committed, with the reason.
    Torn(&'static str),
    /// A committed record.
    Committed(Vec<JournalPair>),
}

/// Reads the journal of thread slot `slot`.
pub(crate) fn read(view: &View, geometry: &Geometry, slot: u32) -> (JournalHead, Record) {
    let bytes: [u8; 16 + 16 * JOURNAL_MAX_PAIRS] = view.bytes(geometry.thread_slot_at(slot));
    let mut words = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    let mut next = || words.next().unwrap_or(0);
    let head = JournalHead(next());
    let check = next();
    if head == JournalHead::RETIRED {
        return (head, Record::Retired);
    }
    let count = head.count();
    if !(1..=JOURNAL_MAX_PAIRS).contains(&count) {
        return (head, Record::Unsound);
    }
    let pairs: Vec<_> = (0..count)
        .map(|_| JournalPair {
            at: next(),
            value: next(),
        })
        .collect();
    let record = if head.seal(u64::from(slot), &pairs) != check {
        Record::Torn("the checksum does not fit")
    } else if pairs
        .iter()
        .all(|pair| witness_holds(view, geometry, *pair))
    {
        Record::Committed(pairs)
    } else {
        Record::Torn("a witness does not hold")
    };
    (head, record)
}

/// Whether `pair` is a store, or a witness that holds.
fn witness_holds(view: &View, geometry: &Geometry, pair: JournalPair) -> bool {
    let Some(at) = pair.witnessed() else {
        return true;
    };
    if geometry.namespace == NamespaceKind::Tree {
        return records::checksum_at(view, geometry, at).map(u64::from) == Some(pair.value);
    }
    if geometry.namespace == NamespaceKind::Adaptive {
        return areas::checksum_at(view, geometry, at).map(u64::from) == Some(pair.value);
    }
    let end = geometry.slots_end();
    let aligned = at
        .checked_sub(geometry.meta_at)
        .is_some_and(|offset| offset.is_multiple_of(SLOT_BYTES));
    if !aligned || !lies_in_metadata(view, geometry, at) {
        return false;
    }
    let mut bytes = [0; 384];
    let len = (end - at).min(384) as usize;
    view.read(at, &mut bytes[..len]);
    let Ok((head, _)) = EntryHead::read_from_prefix(&bytes) else {
        return false;
    };
    let parent = generation_of(view, geometry, head.parent);
    Entry::is_sound(&bytes[..len], parent) && u64::from(head.checksum) == pair.value
}

/// The generation of the inode in slot `ino`; 0 if there is no such slot.
pub(crate) fn generation_of(view: &View, geometry: &Geometry, ino: u64) -> u32 {
    if !geometry.has_slot(ino) {
        return 0;
    }
    IdentityWord(view.word(geometry.slot_at(ino) + Inode::IDENTITY)).generation()
}

/// Whether a committed record may store at `at`: an aligned word of the metadata region, or of a
/// chunk in data space that is metadata.
pub(crate) fn may_store(view: &View, geometry: &Geometry, at: u64) -> bool {
    at.is_multiple_of(8) && lies_in_metadata(view, geometry, at)
}

fn lies_in_metadata(view: &View, geometry: &Geometry, at: u64) -> bool {
    let chunk = at.saturating_sub(geometry.meta_at) / geometry.chunk_bytes;
    let kind = || {
        let word = ChunkWord(view.word(geometry.chunk_word_at(chunk)));
        geometry.decode_chunk(chunk, word).map(|(kind, _)| kind)
    };
    geometry.is_of_metadata(at)
        && (chunk < geometry.meta_chunks || !matches!(kind(), None | Some(ChunkKind::Free)))
}

/// Checks every journal. If `apply` is set, overlays the view with the stores of committed records,
/// as recovery would. Returns how many were committed.
pub(crate) fn evaluate(view: &mut View, geometry: &Geometry, apply: bool, sink: &mut Sink) -> u64 {
    let mut committed = Vec::new();
    for slot in 0..geometry.thread_slots {
        let place = Location::ThreadSlot(slot);
        match read(view, geometry, slot) {
            (_, Record::Retired) => {}
            (head, Record::Unsound) => sink.damage(
                Class::JournalUnsound,
                place,
                format_args!("no record has {} pairs", head.count()),
            ),
            (head, Record::Torn(why)) => sink.residue(
                Class::JournalPending,
                place,
                format_args!("record {} never committed: {why}", head.sequence()),
            ),
            (head, Record::Committed(pairs)) => {
                sink.residue(
                    Class::JournalPending,
                    place,
                    format_args!("record {} is committed and not retired", head.sequence()),
                );
                committed.push((slot, pairs));
            }
        }
    }
    let count = committed.len() as u64;
    for (slot, pairs) in committed {
        let mut laid = Vec::new();
        for pair in pairs.iter().filter(|pair| pair.witnessed().is_none()) {
            if !may_store(view, geometry, pair.at) {
                sink.damage(
                    Class::JournalUnsound,
                    Location::ThreadSlot(slot),
                    format_args!("its record stores at {:#x}, outside the metadata", pair.at),
                );
            } else if apply {
                let before = view.lay(pair.at, pair.value);
                if before.is_some() && !laid.contains(&pair.at) {
                    sink.damage(
                        Class::JournalConflict,
                        Location::ThreadSlot(slot),
                        format_args!("its record and another store at {:#x}", pair.at),
                    );
                }
                laid.push(pair.at);
            }
        }
    }
    count
}
