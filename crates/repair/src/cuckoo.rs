//! The entries of a cuckoo table.

use std::collections::HashMap;

use vellum_check::Class;
use vellum_layout::{CuckooPlan, MapState, MapWord, PlaceWord};

use crate::blocks::{Owner, fault};
use crate::draft::Draft;

/// Bytes of an entry, and of a line.
const ENTRY_BYTES: u64 = 16;
const LINE_BYTES: u64 = 64;

/// An entry that is not free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Its offset in the pool.
    at: u64,
    line: u64,
    pub(crate) word: MapWord,
    place: PlaceWord,
}

impl Row {
    fn key(&self) -> u64 {
        self.word.0 & MapWord::KEY_MASK
    }

    pub(crate) fn block(&self) -> u64 {
        self.place.block().into()
    }

    /// Whether its words belong to each other and it lies where its key leads.
    fn is_placed(&self, draft: &Draft) -> bool {
        let plan = CuckooPlan::new(draft.geometry.zone_blocks);
        let last = self.block() + u64::from(self.place.following());
        let homes = plan.homes(draft.superblock.hash_seed, self.key());
        self.place.is_of(self.word.0)
            && last < draft.geometry.zone_blocks
            && (self.line >= plan.lines || homes.contains(&self.line))
    }
}

/// Every entry that is not free.
pub(crate) fn rows(draft: &Draft) -> Vec<Row> {
    let plan = CuckooPlan::new(draft.geometry.zone_blocks);
    let mut rows = Vec::new();
    for line in 0..plan.all_lines() {
        let line_at = draft.geometry.table_at + line * LINE_BYTES;
        let bytes: [u8; LINE_BYTES as usize] = draft.overlay.bytes(line_at);
        let pairs = bytes.as_chunks::<{ ENTRY_BYTES as usize }>().0.iter();
        for (pair, at) in pairs.zip((line_at..).step_by(ENTRY_BYTES as usize)) {
            let [word, place] = [0, 8].map(|i| {
                let bytes = pair[i..i + 8].try_into().unwrap_or_default();
                u64::from_le_bytes(bytes)
            });
            if word != 0 {
                rows.push(Row {
                    at,
                    line,
                    word: MapWord(word),
                    place: PlaceWord(place),
                });
            }
        }
    }
    rows
}

/// The entries that readers find.
pub(crate) fn sound_rows(draft: &Draft) -> impl Iterator<Item = Row> {
    rows(draft).into_iter().filter(|row| {
        matches!(row.word.state(), MapState::Mapped | MapState::Unwritten) && row.is_placed(draft)
    })
}

/// Frees entries that nobody has, and settles those that are there twice, or that name one block;
/// then makes counts right.
pub(crate) fn settle(draft: &mut Draft, owners: &HashMap<u32, Owner>) {
    for row in rows(draft) {
        let fault = fault(row.word, owners).or_else(|| {
            let what = "its words do not fit each other, or this place";
            (!row.is_placed(draft)).then_some((Class::MapWord, what))
        });
        if let Some((class, what)) = fault {
            free(draft, class, &row, what);
        }
    }
    let (plan, seed) = (
        CuckooPlan::new(draft.geometry.zone_blocks),
        draft.superblock.hash_seed,
    );
    let mut rows: Vec<Row> = sound_rows(draft).collect();
    // What readers find first comes first.
    rows.sort_by_key(|row| (row.key(), plan.homes(seed, row.key())[0] != row.line));
    rows.dedup_by(|copy, kept| {
        copy.key() == kept.key() && {
            let moved = copy.block() == kept.block() && copy.line < plan.lines;
            let class = if moved {
                Class::MapCopy
            } else {
                Class::MapTwice
            };
            free(draft, class, copy, "another entry comes before it");
            true
        }
    });
    let mut taken = HashMap::new();
    rows.retain(|row| match taken.insert(row.block(), row.word.id()) {
        None => true,
        Some(other) => {
            taken.insert(row.block(), other);
            free(draft, Class::MapTwice, row, "another file has the block");
            false
        }
    });
    for i in 0..rows.len() {
        mend_counts(draft, &mut rows, i);
    }
}

/// Frees an entry.
fn free(draft: &mut Draft, class: Class, row: &Row, what: &str) {
    let place = format!("offset {}", row.at);
    let (logical, id) = (row.word.logical(), row.word.id());
    let what = format!("freed: {what} (block {logical} of id {id})");
    let agreed = match class {
        Class::MapWord | Class::MapTwice => draft.give_up(class, place, what),
        _ => draft.mend(class, place, what),
    };
    if agreed {
        draft.set(row.at, 0);
    }
}

/// Makes entry `i` count what follows it at most, and the others know that it does. `rows` are in the
/// order of their keys.
fn mend_counts(draft: &mut Draft, rows: &mut [Row], i: usize) {
    let first = rows[i];
    let mut following = 0;
    for ahead in 1..=first.place.following() {
        let Some(next) = rows.get_mut(i + ahead as usize) else {
            break;
        };
        let follows = next.word.0 == first.word.0 + u64::from(ahead)
            && next.block() == first.block() + u64::from(ahead);
        if !follows {
            break;
        }
        following = ahead;
        if next.place.preceding() < ahead {
            set_counts(draft, next, next.place.following(), ahead);
        }
    }
    if following < first.place.following() {
        set_counts(draft, &mut rows[i], following, first.place.preceding());
    }
}

fn set_counts(draft: &mut Draft, row: &mut Row, following: u32, preceding: u32) {
    let place = format!("offset {}", row.at);
    let what = format_args!("set to {following} behind and {preceding} before");
    if draft.mend(Class::MapCounts, place, what) {
        row.place = PlaceWord::new(row.word.0, row.place.block(), following, preceding);
        draft.set(row.at + 8, row.place.0);
    }
}
