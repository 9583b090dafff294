//! Cuckoo and level tables, which find the blocks of all files by their keys: checks that each
//! entry is where its key leads, and that the counted neighbours exist.

use vellum_layout::{Geometry, KeyedPlan, KeyedWord, LevelPlan, LevelRoot, MapState, MapWord};

use crate::image::{View, for_each_word};
use crate::report::{Class, Location, Sink};
use crate::trees::TreeBlock;

/// Words of a line.
const LINE_WORDS: u64 = 8;

/// A table.
pub(crate) struct Table {
    plan: KeyedPlan,
    seed: u64,
    /// Its entries that are not free.
    rows: Vec<Row>,
}

/// An entry that is not free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Its offset in the pool.
    at: u64,
    line: u64,
    word: MapWord,
    place: KeyedWord,
}

impl Row {
    fn is_live(&self) -> bool {
        matches!(self.word.state(), MapState::Unwritten | MapState::Mapped)
    }

    fn key(&self) -> u64 {
        self.word.0 & MapWord::KEY_MASK
    }

    fn block(&self) -> u64 {
        self.place.block().into()
    }

    fn is_sound(&self, geometry: &Geometry) -> bool {
        let last = self.block() + u64::from(self.place.following());
        self.place.is_of(self.word.0) && last < geometry.segment_blocks
    }
}

/// Reads the table of a pool that has one.
pub(crate) fn read(view: &View, geometry: &Geometry, seed: u64) -> Option<Table> {
    let word = |at| view.word(geometry.table_at + at);
    let plan = KeyedPlan::read(geometry.mapping, geometry.segment_blocks, seed, word)?;
    let mut rows = Vec::new();
    for lines in plan.parts() {
        read_lines(view, geometry, lines, &mut rows);
    }
    Some(Table { plan, seed, rows })
}

fn read_lines(view: &View, geometry: &Geometry, lines: std::ops::Range<u64>, rows: &mut Vec<Row>) {
    let first = geometry.table_at + lines.start * LINE_WORDS * 8;
    let words = (lines.end - lines.start) * LINE_WORDS;
    let mut key = 0;
    for_each_word(view, first, words, |index, word| {
        if index % 2 == 0 {
            key = word;
        } else if key != 0 {
            rows.push(Row {
                at: first + (index - 1) * 8,
                line: lines.start + index / LINE_WORDS,
                word: MapWord(key),
                place: KeyedWord(word),
            });
        }
    });
}

/// The blocks that sound entries name, one per key.
pub(crate) fn blocks(geometry: &Geometry, table: &Table) -> Vec<TreeBlock> {
    let sound = table
        .rows
        .iter()
        .filter(|row| row.is_live() && row.is_sound(geometry));
    let mut blocks: Vec<_> = sound
        .map(|row| TreeBlock {
            block: row.block(),
            word: row.word,
        })
        .collect();
    let key = |of: &TreeBlock| (of.word.0 & MapWord::KEY_MASK, of.block);
    blocks.sort_unstable_by_key(key);
    blocks.dedup_by_key(|of| key(of));
    blocks
}

/// Checks the table.
pub(crate) fn judge(view: &View, geometry: &Geometry, table: &Table, sink: &mut Sink) {
    let Table { plan, seed, rows } = table;
    if let KeyedPlan::Level(plan, root) = plan {
        judge_levels(view, geometry, table, (plan, *root), sink);
    }
    let homes = |row: &Row| plan.homes(*seed, row.key());
    let mut sound = Vec::new();
    for row in rows {
        let place = Location::Offset(row.at);
        let (id, logical) = (row.word.id(), row.word.logical());
        if row.word.state() == MapState::Limbo {
            let detail =
                format_args!("an entry that is being moved, for block {logical} of id {id}");
            sink.residue(Class::Limbo, place, detail);
        } else if !row.is_live() || !row.is_sound(geometry) {
            let detail = format_args!("the entry of block {logical} of id {id} is not sound");
            sink.damage(Class::MapWord, place, detail);
        } else if !plan.is_stash(row.line) && homes(row).all(|home| home != row.line) {
            let detail = format_args!("block {logical} of id {id} is not looked for here");
            sink.damage(Class::MapWord, place, detail);
        } else {
            sound.push(*row);
        }
    }
    // Of two entries of a key, recovery keeps the one that is searched first.
    let rank = |row: &Row| homes(row).take_while(|&home| home != row.line).count();
    sound.sort_by_key(|row| (row.key(), rank(row)));
    for same in sound.chunk_by(|a, b| a.key() == b.key()) {
        for copy in &same[1..] {
            judge_copy(&same[0], copy, plan, sink);
        }
    }
    sound.dedup_by_key(|row| row.key());
    for i in 0..sound.len() {
        if plan.has_counts() {
            judge_counts(&sound[i..], sink);
        } else if sound[i].place.has_counts() {
            let (id, logical) = (sound[i].word.id(), sound[i].word.logical());
            let detail = format_args!(
                "block {logical} of id {id} has counts, which this table does not keep"
            );
            sink.damage(Class::MapCounts, Location::Offset(sound[i].at), detail);
        }
    }
}

/// Checks the root of a level table, and that levels not yet in use are empty.
fn judge_levels(
    view: &View,
    geometry: &Geometry,
    table: &Table,
    (plan, root): (&LevelPlan, LevelRoot),
    sink: &mut Sink,
) {
    let root_at = geometry.table_at + LevelRoot::WORD;
    if view.word(root_at) != root.0 {
        let detail = format_args!("the root is not sound");
        sink.damage(Class::MapLevels, Location::Offset(root_at), detail);
    } else if let Some(level) = root.moving() {
        let lines = plan.lines_of(level);
        if !table.rows.iter().any(|row| lines.contains(&row.line)) {
            let detail = format_args!("level {level} is being moved, but nothing is in it");
            sink.residue(Class::MapLevels, Location::Offset(root_at), detail);
        }
    }
    let mut early = Vec::new();
    for level in root.top() + 1..=plan.last {
        read_lines(view, geometry, plan.lines_of(level), &mut early);
    }
    for row in early {
        let detail = format_args!("an entry in a level that is not in use");
        sink.damage(Class::MapWord, Location::Offset(row.at), detail);
    }
}

/// Checks the second entry of a key.
fn judge_copy(kept: &Row, copy: &Row, plan: &KeyedPlan, sink: &mut Sink) {
    let (id, logical) = (copy.word.id(), copy.word.logical());
    let place = Location::Offset(copy.at);
    if kept.block() == copy.block() && plan.may_leave_copy(kept.line, copy.line) {
        let detail = format_args!("block {logical} of id {id} is at {:#x} too", kept.at);
        sink.residue(Class::MapCopy, place, detail);
    } else {
        let detail = format_args!(
            "block {logical} of id {id} is block {} and, at {:#x}, block {}",
            copy.block(),
            kept.at,
            kept.block()
        );
        sink.damage(Class::MapTwice, place, detail);
    }
}

/// Checks the counts of the first of `rows`, which are sorted by key.
fn judge_counts(rows: &[Row], sink: &mut Sink) {
    let first = &rows[0];
    let place = Location::Offset(first.at);
    let (id, logical) = (first.word.id(), first.word.logical());
    for ahead in 1..=first.place.following() {
        let next = rows.get(ahead as usize).filter(|next| {
            next.word.0 == first.word.0 + u64::from(ahead)
                && next.place.block() == first.place.block() + ahead
        });
        let Some(next) = next else {
            let detail = format_args!(
                "block {logical} of id {id} counts {} behind it, of which {} follow",
                first.place.following(),
                ahead - 1
            );
            return sink.residue(Class::MapCounts, place, detail);
        };
        if next.place.preceding() < ahead {
            let detail = format_args!(
                "block {} of id {id} does not know that block {logical} counts it",
                next.word.logical()
            );
            return sink.residue(Class::MapCounts, place, detail);
        }
    }
}
