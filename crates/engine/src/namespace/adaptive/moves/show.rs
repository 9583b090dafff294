//! The steps after the commit: making everything lead to the copies, and freeing the originals.

use vellum_layout::{
    DirLocation, EntryState, FileKind, Inode, LifeWord, LogWord, PathEntryHead, SLOTS_PER_BLOCK,
    TargetWord,
};
use vellum_media::{LINE_BYTES, Memories, Persistent};

use super::{Copied, Move, PIECE};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, flag};
use crate::core::slots::{Op, pause};
use crate::error::Result;
use crate::namespace::adaptive::entry::PathBuffer;
use crate::namespace::adaptive::tables::Carried;
use crate::namespace::indexed::Name;
use crate::sites;

/// Keeps a directory's part of the index from being built, until dropped.
struct Unbuilt<'a, M: Memories> {
    core: &'a Core<M>,
    dir: Cachelet,
}

impl<'a, M: Memories> Unbuilt<'a, M> {
    fn hold(core: &'a Core<M>, dir: Cachelet) -> Self {
        let mut tries = 0;
        while core.raise_flag(dir, flag::BUILDING) & flag::BUILDING != 0 {
            pause(&core.arena, &mut tries);
        }
        Self { core, dir }
    }
}

impl<M: Memories> Drop for Unbuilt<'_, M> {
    fn drop(&mut self) {
        self.core.clear_flag(self.dir, flag::BUILDING);
    }
}

impl<M: Memories> Move<'_, M> {
    /// Carries out the list, clears it, and frees what nothing leads to any more.
    pub(super) fn finish(mut self) {
        let core = self.core;
        let copies = std::mem::take(&mut self.copies);
        for part in copies.chunks(PIECE) {
            let to = part.iter().map(|copy| copy.to.slot).collect();
            let op = core.op_step();
            op.give_states(sites::MOVE_STATES, to, EntryState::Cold);
        }
        for of_one in copies.chunk_by(|a, b| a.dir == b.dir) {
            show_directory(core, of_one);
        }
        // Operations that found the originals have ended afterwards.
        core.wait_for_readers();
        for part in copies.chunks(PIECE) {
            let from = part.iter().map(|copy| copy.from.slot).collect();
            let op = core.op_step();
            op.give_states(sites::MOVE_CLEARED, from, EntryState::None);
        }
        if core.is_damaged() {
            // The next opening finishes the move.
            return;
        }
        let op = core.op_step();
        core.pool.fence(sites::MOVE_DONE_DURABLE);
        core.pool
            .store_through(sites::MOVE_OVER, core.moving_at(), 0);
        core.pool.fence(sites::MOVE_OVER_DURABLE);
        for copy in copies {
            core.free_slots(copy.from.slot, copy.from.slots);
        }
        for &block in &self.list {
            core.free_slots(block, SLOTS_PER_BLOCK);
        }
        drop(op);
    }
}

/// Makes logs, locations and index lead to the copies of a directory's entries. The copies have
/// their states, and the directory's own entry leads to its copy already. Flushed, not fenced.
///
/// One operation, which begins first: lookups wait for the directory inside theirs, and may leave
/// no thread slot for another one.
fn show_directory<M: Memories>(core: &Core<M>, copies: &[Copied]) {
    let op = core.op_step();
    let _unbuilt = Unbuilt::hold(core, copies[0].dir);
    let carried = Carried::begin(core, copies[0].dir);
    show(&op, &carried, copies);
}

fn show<M: Memories>(op: &Op<'_, M>, carried: &Carried<'_, M>, copies: &[Copied]) {
    let core = op.core;
    for copy in copies {
        core.set_word(copy.word_at, LogWord::new(copy.to.slot).0);
        show_place(core, copy);
        // If that fails, something may still lead to the originals. So they stay, and so does the
        // list.
        let shown = show_name(op, carried, copy);
        shown.unwrap_or_else(|error| core.record_damage(&error));
    }
    for line in copies.chunk_by(|a, b| a.word_at / LINE_BYTES == b.word_at / LINE_BYTES) {
        let at = line[0].word_at / LINE_BYTES * LINE_BYTES;
        core.pool.flush(sites::MOVE_WORDS, at, LINE_BYTES);
    }
}

/// Makes the inode of a directory lead to the copy of its own entry.
fn show_place<M: Memories>(core: &Core<M>, copy: &Copied) {
    let entry = core.geometry.slot_at(copy.to.slot);
    let target = TargetWord(core.word(entry + PathEntryHead::TARGET));
    let is_alive = LifeWord(core.word(entry + PathEntryHead::LIFE)).is_alive();
    if is_alive && target.kind() == Some(FileKind::Directory) {
        let at = core.geometry.slot_at(target.ino()) + Inode::DETAIL;
        let area = core.place_of_directory(target.ino()).area();
        core.set_word(at, DirLocation::new(copy.to.slot, area).0);
        core.pool.flush(sites::MOVE_PLACE, at, 8);
    }
}

/// Makes the index pair of a name, if it has one, lead to the copy.
fn show_name<M: Memories>(op: &Op<'_, M>, carried: &Carried<'_, M>, copy: &Copied) -> Result<()> {
    let mut buffer = PathBuffer::default();
    op.core.load_sealed(copy.to.slot, &mut buffer)?;
    let name = buffer
        .decoded()
        .map_or(&[][..], |(head, path)| head.name(path));
    let name = Name::new(op.core, name)?;
    carried.carry(op, name, [copy.from.slot, copy.to.slot])
}
