//! Cuckoo and level tables, which find the blocks of all files by their keys.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use vellum_check::Class;
use vellum_check::survey::Survey;
use vellum_layout::{KeyedPlan, KeyedWord, LevelRoot, MapState, MapWord};

use crate::blocks::{Owner, Room, fault};
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
    place: KeyedWord,
}

impl Row {
    fn key(&self) -> u64 {
        self.word.0 & MapWord::KEY_MASK
    }

    pub(crate) fn block(&self) -> u64 {
        self.place.block().into()
    }

    /// Whether its words fit each other and it lies where its key leads.
    fn is_placed(&self, draft: &Draft, plan: &KeyedPlan) -> bool {
        let last = self.block() + u64::from(self.place.following());
        let mut homes = plan.homes(draft.superblock.hash_seed, self.key());
        self.place.is_of(self.word.0)
            && last < draft.geometry.segment_blocks
            && (plan.is_stash(self.line) || homes.any(|home| home == self.line))
    }

    /// Whether readers find it.
    fn is_sound(&self, draft: &Draft, plan: &KeyedPlan) -> bool {
        matches!(self.word.state(), MapState::Mapped | MapState::Unwritten)
            && self.is_placed(draft, plan)
    }
}

/// The layout of the pool's table, if it is a table of keys.
fn plan(draft: &Draft) -> Option<KeyedPlan> {
    let geometry = &draft.geometry;
    let word = |at| draft.word(geometry.table_at + at);
    let seed = draft.superblock.hash_seed;
    KeyedPlan::read(geometry.mapping, geometry.segment_blocks, seed, word)
}

/// Every used entry in these lines.
fn rows(draft: &Draft, lines: impl IntoIterator<Item = u64>) -> Vec<Row> {
    let mut rows = Vec::new();
    for line in lines {
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
                    place: KeyedWord(place),
                });
            }
        }
    }
    rows
}

/// The entries that readers find; none if the pool has no such table.
pub(crate) fn sound_rows(draft: &Draft) -> Vec<Row> {
    let Some(plan) = plan(draft) else {
        return Vec::new();
    };
    let mut rows = rows(draft, plan.parts().into_iter().flatten());
    rows.retain(|row| row.is_sound(draft, &plan));
    rows
}

/// Sets the root of a level table according to the entries, and frees entries in levels not yet in
/// use.
fn settle_levels(draft: &mut Draft, found: &KeyedPlan) {
    let KeyedPlan::Level(plan, root) = *found else {
        return;
    };
    let lines = root.moving().map(|level| plan.lines_of(level));
    let is_needed = lines.is_none_or(|lines| !rows(draft, lines).is_empty());
    let root = LevelRoot::new(root.top(), root.moving().is_some() && is_needed);
    let root_at = draft.geometry.table_at + LevelRoot::WORD;
    let what = format_args!("set to the levels from {} down", root.top());
    if draft.word(root_at) != root.0
        && draft.mend(Class::MapLevels, format_args!("offset {root_at}"), what)
    {
        draft.set(root_at, root.0);
    }
    for level in root.top() + 1..=plan.last {
        for row in rows(draft, plan.lines_of(level)) {
            let what = "the level is not in use yet";
            free(draft, Class::MapWord, &row, what);
        }
    }
}

/// Frees entries without an owner, resolves duplicate entries and entries that share a block, and
/// then corrects counts.
///
/// Copies of blocks avoid blocks freed here, too: files have them until the table is written, which
/// is after the copies.
pub(crate) fn settle(draft: &mut Draft, survey: &Survey, owners: &HashMap<u32, Owner>) {
    let Some(plan) = plan(draft) else {
        return;
    };
    let metadata = || survey.blocks_in_data().into_iter().flatten();
    let used = sound_rows(draft).into_iter().map(|row| row.block());
    let mut room = Room::beside(draft, used.chain(metadata()));
    settle_levels(draft, &plan);
    for row in rows(draft, plan.parts().into_iter().flatten()) {
        let fault = fault(row.word, owners).or_else(|| {
            let what = "its words do not fit each other, or its position";
            (!row.is_placed(draft, &plan)).then_some((Class::MapWord, what))
        });
        if let Some((class, what)) = fault {
            free(draft, class, &row, what);
        }
    }
    let seed = draft.superblock.hash_seed;
    let rank = |row: &Row| {
        let homes = plan.homes(seed, row.key());
        homes.take_while(|&home| home != row.line).count()
    };
    let mut rows = sound_rows(draft);
    // What readers find first comes first.
    rows.sort_by_key(|row| (row.key(), rank(row)));
    rows.dedup_by(|copy, kept| {
        copy.key() == kept.key() && {
            let is_copy = plan.may_leave_copy(kept.line, copy.line);
            let class = if copy.block() == kept.block() && is_copy {
                Class::MapCopy
            } else {
                Class::MapTwice
            };
            free(draft, class, copy, "another entry comes before it");
            true
        }
    });
    // Id 0 is no file's.
    let mut taken: HashMap<u64, u32> = metadata().map(|block| (block, 0)).collect();
    // A written block takes precedence over a reserved one.
    for state in [MapState::Mapped, MapState::Unwritten] {
        rows.retain_mut(|row| {
            row.word.state() != state || settle_block(draft, &mut room, &mut taken, row)
        });
    }
    for i in 0..rows.len() {
        if plan.has_counts() {
            mend_counts(draft, &mut rows, i);
        } else if rows[i].place.has_counts() {
            set_counts(draft, &mut rows[i], 0, 0);
        }
    }
}

/// Lets an entry keep its block, or gives it a copy if another id in `taken` has the block. Returns
/// whether the entry stays.
fn settle_block(
    draft: &mut Draft,
    room: &mut Room,
    taken: &mut HashMap<u64, u32>,
    row: &mut Row,
) -> bool {
    let (logical, id) = (row.word.logical(), row.word.id());
    let other = match taken.entry(row.block()) {
        Entry::Occupied(other) => *other.get(),
        Entry::Vacant(free) => {
            free.insert(id);
            return true;
        }
    };
    if !draft.wants(Class::MapTwice) {
        return true;
    }
    let is_written = row.word.state() == MapState::Mapped;
    let copy = is_written.then(|| room.copy(draft, row.block())).flatten();
    let Some(copy) = copy else {
        let what = if is_written {
            "another file has the block, and there is no space for a copy"
        } else {
            "another file has the block"
        };
        free(draft, Class::MapTwice, row, what);
        return false;
    };
    let place = format!("offset {}", row.at);
    let what = format_args!(
        "block {logical} of id {id} becomes a copy: id {other} has block {} too",
        row.block()
    );
    if draft.mend(Class::MapTwice, place, what) {
        // Nothing follows a copy; entries that count it are corrected with the other counts.
        row.place = KeyedWord::new(row.word.0, copy as u32, 0, row.place.preceding());
        draft.set(row.at + 8, row.place.0);
    }
    true
}

/// Frees an entry. A reserved block reads as zeros without it, too.
fn free(draft: &mut Draft, class: Class, row: &Row, what: &str) {
    let place = format!("offset {}", row.at);
    let (logical, id) = (row.word.logical(), row.word.id());
    let what = format!("freed: {what} (block {logical} of id {id})");
    let is_written = row.word.state() == MapState::Mapped;
    let agreed = match class {
        Class::MapWord => draft.give_up(class, place, what),
        Class::MapTwice if is_written => draft.give_up(class, place, what),
        _ => draft.mend(class, place, what),
    };
    if agreed {
        draft.set(row.at, 0);
    }
}

/// Limits the counts of entry `i` to what follows it, and corrects those of the others. `rows` are
/// ordered by key.
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
        row.place = KeyedWord::new(row.word.0, row.place.block(), following, preceding);
        draft.set(row.at + 8, row.place.0);
    }
}
