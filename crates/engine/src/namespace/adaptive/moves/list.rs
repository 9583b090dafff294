//! Recovery of a move that was committed and not finished.

use vellum_layout::{
    BLOCK_BYTES, ChunkKind, DirLocation, EntryState, FileKind, Inode, LifeWord, LogWord,
    MoveListHead, MovedEntry, SLOTS_PER_BLOCK, TargetWord,
};
use vellum_media::{Memories, Memory, Persistent};

use crate::core::Core;
use crate::error::{Error, Location, Result};
use crate::namespace::adaptive::entry::PathBuffer;
use crate::sites;

/// Carries out the list of a move, if there is one, whatever part was done before, and clears it.
/// The caller fences before anything else is stored.
pub(in crate::namespace::adaptive) fn replay<M: Memories>(core: &Core<M>) -> Result<()> {
    let list = core.word(core.moving_at());
    if list == 0 {
        return Ok(());
    }
    let entries = read(core, list)?;
    let places = entries.iter().map(|entry| place_of(core, entry));
    let places: Vec<Option<u64>> = places.collect::<Result<_>>()?;
    for (entry, place) in entries.iter().zip(places) {
        let (from, to) = (u64::from(entry.from), u64::from(entry.to));
        store(
            core,
            core.states_at(to),
            core.states(to).with(to, EntryState::Cold).0,
        );
        store(core, entry.word_at, LogWord::new(to).0);
        if let Some(at) = place {
            let area = DirLocation(core.word(at)).area();
            store(core, at, DirLocation::new(to, area).0);
        }
        let without = core.states(from).with(from, EntryState::None);
        store(core, core.states_at(from), without.0);
    }
    core.pool.fence(sites::RECOVER_MOVED_DURABLE);
    core.pool
        .store_through(sites::RECOVER_MOVE_OVER, core.moving_at(), 0);
    Ok(())
}

fn store<M: Memories>(core: &Core<M>, at: u64, value: u64) {
    core.set_word(at, value);
    core.pool.flush(sites::RECOVER_MOVED, at, 8);
}

/// Reads the entries of a list.
fn read<M: Memories>(core: &Core<M>, first: u64) -> Result<Vec<MovedEntry>> {
    let (mut slot, mut all, mut blocks) = (first, Vec::new(), 0);
    while slot != 0 {
        let damaged = || Error::damaged("list of a move", Location::Slot(slot));
        let mut block = [0; BLOCK_BYTES as usize];
        if core.kind_of_slot(slot) != Some(ChunkKind::Blocks) {
            return Err(damaged());
        }
        core.pool.read(core.slot_at(slot)?, &mut block);
        let (next, entries) = MoveListHead::decode(slot, &block).ok_or_else(damaged)?;
        all.extend(entries);
        blocks += 1;
        if blocks > core.geometry.meta_slots() / SLOTS_PER_BLOCK {
            return Err(damaged());
        }
        slot = next;
    }
    Ok(all)
}

/// Pool offset of the location word of the directory that a copy names, if the name exists and is a
/// directory. Fails unless everything that the list demands for this copy can be done.
fn place_of<M: Memories>(core: &Core<M>, entry: &MovedEntry) -> Result<Option<u64>> {
    let to = u64::from(entry.to);
    let head = core.load_sealed(to, &mut PathBuffer::default())?;
    let metadata = core.geometry.meta_at..core.geometry.table_at;
    let is_word = metadata.contains(&entry.word_at) && entry.word_at.is_multiple_of(8);
    let is_entry = core.kind_of_slot(entry.from.into()) == Some(ChunkKind::Areas)
        && core.geometry.areas.has_room(entry.from.into(), 1);
    let target = TargetWord(head.target);
    let is_alive = LifeWord(head.life).is_alive();
    let is_dir = is_alive && target.kind() == Some(FileKind::Directory);
    if !is_word || !is_entry || is_dir && !core.is_inode_slot(target.ino()) {
        return Err(Error::damaged("list of a move", Location::Slot(to)));
    }
    Ok(is_dir.then(|| core.geometry.slot_at(target.ino()) + Inode::DETAIL))
}
