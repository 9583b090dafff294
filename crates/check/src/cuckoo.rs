//! The cuckoo table: its entries, whether each is where its key leads, and whether what each counts
//! beside it is there.

use vellum_layout::{CuckooPlan, Geometry, MapState, MapWord, PlaceWord};

use crate::image::{View, for_each_word};
use crate::report::{Class, Place, Sink};
use crate::trees::TreeBlock;

/// Words of a line.
const LINE_WORDS: u64 = 8;

/// An entry that is not free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Its offset in the pool.
    at: u64,
    line: u64,
    word: MapWord,
    place: PlaceWord,
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
        self.place.is_of(self.word.0) && last < geometry.zone_blocks
    }
}

/// Reads every entry that is not free.
pub(crate) fn read(view: &View, geometry: &Geometry) -> Vec<Row> {
    let words = CuckooPlan::new(geometry.zone_blocks).all_lines() * LINE_WORDS;
    let mut rows = Vec::new();
    let mut key = 0;
    for_each_word(view, geometry.table_at, words, |index, word| {
        if index % 2 == 0 {
            key = word;
        } else if key != 0 {
            rows.push(Row {
                at: geometry.table_at + (index - 1) * 8,
                line: index / LINE_WORDS,
                word: MapWord(key),
                place: PlaceWord(word),
            });
        }
    });
    rows
}

/// The blocks that sound entries name, each once for a key.
pub(crate) fn blocks(geometry: &Geometry, rows: &[Row]) -> Vec<TreeBlock> {
    let sound = rows
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

/// Judges the entries.
pub(crate) fn judge(geometry: &Geometry, seed: u64, rows: &[Row], sink: &mut Sink) {
    let plan = CuckooPlan::new(geometry.zone_blocks);
    let mut sound = Vec::new();
    for row in rows {
        let place = Place::Offset(row.at);
        let (id, logical) = (row.word.id(), row.word.logical());
        if row.word.state() == MapState::Limbo {
            let detail = format_args!("an entry on its way, for block {logical} of id {id}");
            sink.residue(Class::Limbo, place, detail);
        } else if !row.is_live() || !row.is_sound(geometry) {
            let detail = format_args!("the entry of block {logical} of id {id} is not sound");
            sink.damage(Class::MapWord, place, detail);
        } else if row.line < plan.lines && !plan.homes(seed, row.key()).contains(&row.line) {
            let detail = format_args!("block {logical} of id {id} is not looked for here");
            sink.damage(Class::MapWord, place, detail);
        } else {
            sound.push(*row);
        }
    }
    // Of two entries of a key recovery keeps the one in the first line.
    sound.sort_by_key(|row| (row.key(), plan.homes(seed, row.key())[0] != row.line));
    for same in sound.chunk_by(|a, b| a.key() == b.key()) {
        for copy in &same[1..] {
            judge_copy(&same[0], copy, plan.lines, sink);
        }
    }
    sound.dedup_by_key(|row| row.key());
    for i in 0..sound.len() {
        judge_counts(&sound[i..], sink);
    }
}

/// Judges the second entry of a key.
fn judge_copy(kept: &Row, copy: &Row, lines: u64, sink: &mut Sink) {
    let (id, logical) = (copy.word.id(), copy.word.logical());
    let place = Place::Offset(copy.at);
    let moved = kept.block() == copy.block() && kept.line < lines && copy.line < lines;
    if moved && kept.line != copy.line {
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

/// Judges what the first of `rows`, which are in the order of their keys, counts.
fn judge_counts(rows: &[Row], sink: &mut Sink) {
    let first = &rows[0];
    let place = Place::Offset(first.at);
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
            return sink.damage(Class::MapCounts, place, detail);
        }
    }
}
