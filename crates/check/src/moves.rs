//! The unfinished part of a move of directories and their contents in the namespace *adaptive*,
//! overlaid on the image.

use vellum_layout::{
    AreaTableHead, BLOCK_BYTES, ChunkKind, DirLocation, EntryState, FileKind, Geometry, Inode,
    LifeWord, LogWord, MoveListHead, MovedEntry, NamespaceKind, PathEntryHead, SLOTS_PER_BLOCK,
    StateMapWord, TargetWord,
};

use crate::areas;
use crate::header::Chunks;
use crate::image::View;
use crate::journal::may_store;
use crate::report::{Class, Location, Sink};

/// Checks the list of a move. If `apply` is set, overlays the view with its stores, as recovery
/// would.
pub(crate) fn evaluate(view: &mut View, geometry: &Geometry, apply: bool, sink: &mut Sink) {
    if geometry.namespace != NamespaceKind::Adaptive {
        return;
    }
    let at = geometry.slot_at(geometry.areas.table) + AreaTableHead::MOVING;
    let list = view.word(at);
    if list == 0 {
        return;
    }
    // Errors in chunks are reported by the next reader of the chunk table.
    let chunks = Chunks::read(view, geometry, &mut Sink::default());
    let entries = match read(view, geometry, &chunks, list) {
        Ok(entries) => entries,
        Err(slot) => {
            let detail = "is not a block of the list of a move";
            sink.damage(Class::MoveUnsound, Location::Slot(slot), detail);
            return;
        }
    };
    let detail = format_args!("the list of a move of {} entries", entries.len());
    sink.residue(Class::MoveUnfinished, Location::Slot(list), detail);
    for entry in &entries {
        if !can_be_done(view, geometry, &chunks, entry) {
            let detail = "the list of a move is impossible";
            sink.damage(Class::MoveUnsound, Location::Slot(entry.to.into()), detail);
        } else if apply {
            lay(view, geometry, entry);
        }
    }
    if apply {
        view.lay(at, 0);
    }
}

/// The entries of a list, or the slot that is not a block of it.
fn read(
    view: &View,
    geometry: &Geometry,
    chunks: &Chunks,
    first: u64,
) -> Result<Vec<MovedEntry>, u64> {
    let (mut slot, mut all, mut blocks) = (first, Vec::new(), 0);
    while slot != 0 {
        let is_placed = slot.is_multiple_of(SLOTS_PER_BLOCK)
            && chunks.kind_of(slot) == Some(ChunkKind::Blocks)
            && blocks < geometry.meta_slots() / SLOTS_PER_BLOCK;
        let block: [u8; BLOCK_BYTES as usize] = match is_placed {
            true => view.bytes(geometry.slot_at(slot)),
            false => return Err(slot),
        };
        let (next, entries) = MoveListHead::decode(slot, &block).ok_or(slot)?;
        all.extend(entries);
        blocks += 1;
        slot = next;
    }
    Ok(all)
}

fn can_be_done(view: &View, geometry: &Geometry, chunks: &Chunks, entry: &MovedEntry) -> bool {
    let (from, to) = (u64::from(entry.from), u64::from(entry.to));
    let is_of_areas = |slot| chunks.kind_of(slot) == Some(ChunkKind::Areas);
    let is_moved = may_store(view, geometry, entry.word_at)
        && is_of_areas(from)
        && geometry.areas.has_room(from, 1)
        && is_of_areas(to)
        && areas::checksum_at(view, geometry, geometry.slot_at(to)).is_some();
    let is_inode = |ino| chunks.kind_of(ino) == Some(ChunkKind::Inodes);
    is_moved && directory_at(view, geometry, to).is_none_or(is_inode)
}

/// Slot of the directory that the entry at slot `to` names, if it names one.
fn directory_at(view: &View, geometry: &Geometry, to: u64) -> Option<u64> {
    let at = geometry.slot_at(to);
    let target = TargetWord(view.word(at + PathEntryHead::TARGET));
    let is_alive = LifeWord(view.word(at + PathEntryHead::LIFE)).is_alive();
    (is_alive && target.kind() == Some(FileKind::Directory)).then(|| target.ino())
}

fn lay(view: &mut View, geometry: &Geometry, entry: &MovedEntry) {
    let (from, to) = (u64::from(entry.from), u64::from(entry.to));
    for (slot, state) in [(to, EntryState::Cold), (from, EntryState::None)] {
        let at = geometry.meta_at + geometry.areas.states_at(slot);
        let states = StateMapWord(view.word(at)).with(slot, state);
        view.lay(at, states.0);
    }
    view.lay(entry.word_at, LogWord::new(to).0);
    if let Some(directory) = directory_at(view, geometry, to) {
        let at = geometry.slot_at(directory) + Inode::DETAIL;
        let place = DirLocation::new(to, DirLocation(view.word(at)).area());
        view.lay(at, place.0);
    }
}
