//! The namespace of ADAM, as far as it is built. Entries carry their paths from the root of their
//! area, and state-maps show which entries exist. Any directory can be the root of an area of its
//! own: everything below it lies in this area, down to the next roots, and is not touched when the
//! root is renamed ([`table`], [`moves::set_root`]). The use of directories decides which of them
//! are roots ([`status`], [`evolve`]).
//!
//! All entries of a directory are of the area of the directory's names, including the entries of
//! removed names.
//!
//! Creation commits with a word of a state-map, removal with an entry's life word, rename with a
//! journal record (`docs/crash/operations.md`). An entry's log word is durable before its state is:
//! directory logs are the truth, as in `direct`. Names are found by a hash table of their area in
//! the pool ([`tables`]).
//!
//! A directory that is moved with everything below it gets copies of the entries below, with their
//! new paths ([`moves`]).
//!
//! In a directory whose path is longer than 848 bytes, the paths of names start again. So the
//! nesting of directories is not limited.

mod entry;
mod evolve;
mod moves;
mod prefixes;
mod states;
mod status;
mod table;
mod tables;

use vellum_layout::{
    ChunkKind, DirLocation, EntryState, FileKind, Formed, Geometry, Inode, LifeWord, LogWord,
    MergeReason, PathEntryHead, PathSeal, SLOTS_PER_BLOCK, TargetWord,
};
use vellum_media::{Memories, Persistent, Site};

use self::entry::{Above, PathBuffer};
use self::moves::Becomes;
pub(crate) use self::states::Held;
use self::tables::Tables;
use super::indexed::{Draft, Entries, Name, Spot};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::named::Named;
use crate::core::slots::Op;
use crate::durability::journal::Record;
use crate::error::{Error, Location, Result};
use crate::namespace::{Areas, Ask, Mender, PathIn, Rename, Walked};
use crate::sites;

/// Entries of ADAM.
#[derive(Debug)]
pub(crate) struct Adaptive;

/// Size of the namespace's own structures in an arena, in bytes.
pub(crate) fn arena_bytes(geometry: &Geometry) -> u64 {
    tables_at(geometry) + tables::bytes(geometry)
}

/// Offset, among these, of the locks of names and the locations of tables.
fn tables_at(geometry: &Geometry) -> u64 {
    status_at(geometry) + status::bytes(geometry)
}

/// Offset, among these, of the statuses of directories.
fn status_at(geometry: &Geometry) -> u64 {
    prefixes_at(geometry) + prefixes::bytes(geometry)
}

/// Offset, among these, of the table of prefixes. It follows the cells of state lines and the
/// locations of the area table's blocks.
fn prefixes_at(geometry: &Geometry) -> u64 {
    let states = states::cell_bytes(geometry);
    (states + table::blocks_max(geometry) * 8).next_multiple_of(prefixes::ROW_BYTES)
}

impl<M: Memories> Entries<M> for Adaptive {
    type Held<'a>
        = Held<'a, M>
    where
        M: 'a;

    type Index = Tables;

    type Above = Above;

    const KIND: ChunkKind = ChunkKind::Areas;
    const TELL_PATHS: bool = true;

    fn tell_where(core: &Core<M>, dir: Cachelet) -> bool {
        core.place_of_directory(core.ino(dir)).area() == 0
    }

    fn would_leave_dead(core: &Core<M>, dir: Cachelet, to: Cachelet) -> Result<bool> {
        let has_dead = core.get(dir, field::DEAD) as u32 > 0;
        Ok(has_dead && core.area_of(core.ino(dir))? != core.area_of(core.ino(to))?)
    }

    fn check_pool(core: &Core<M>, was_clean: bool) -> Result<()> {
        core.check_table(was_clean)
    }

    fn replay(core: &Core<M>) -> Result<()> {
        moves::replay(core)
    }

    fn tells(core: &Core<M>, entry: u64, path: &PathIn) -> Result<bool> {
        let mut buffer = PathBuffer::default();
        let head = core.load_sealed(entry, &mut buffer)?;
        Ok((head.area, buffer.path()) == (path.area, &path.path[..]))
    }

    fn move_whole(core: &Core<M>, rename: &Rename<'_>, ask: Ask<'_, M>) -> Result<()> {
        moves::move_whole(core, rename, ask)
    }

    fn walk(
        op: &Op<'_, M>,
        start: Cachelet,
        path: &[u8],
        enter: &mut dyn FnMut(Cachelet) -> Result<()>,
        lookup: impl Fn(Cachelet, &[u8]) -> Result<Cachelet>,
    ) -> Result<Walked> {
        prefixes::walk(op, start, path, enter, lookup)
    }

    fn set_root(core: &Core<M>, dir: Cachelet, is_root: bool) -> Result<bool> {
        let at = Formed::at(core.clock.now(), 0, 0);
        let becomes = if is_root {
            Becomes::Root(at)
        } else {
            Becomes::part(MergeReason::Asked, at, 0)
        };
        moves::set_root(core, dir, becomes, false)
    }

    fn areas() -> Option<&'static dyn Areas<M>> {
        Some(&Self)
    }

    fn note_renamed(core: &Core<M>, dir: Cachelet) {
        core.note_renamed(dir);
    }

    fn give_up(core: &Core<M>, dir: Cachelet) {
        core.give_up_area(dir);
    }

    fn moved(core: &Core<M>, dir: Cachelet) {
        // While names are frozen, the mover carries them along.
        if core.kind(dir) == FileKind::Directory && !core.has_flag(dir, flag::STILL) {
            core.renew_area(dir);
        }
    }

    fn dissolved(core: &Core<M>, dir: Cachelet) {
        let area = core.place_of_directory(core.ino(dir)).area();
        if core.is_area_gone(area) {
            core.free_table(area);
        }
    }

    fn scratch(core: &Core<M>, each: &mut dyn FnMut(u64)) {
        core.for_each_table_block(each);
    }

    fn is_called(core: &Core<M>, entry: u64, parent: u64, name: Name<'_>) -> bool {
        entry::is_called(core, entry, parent, name.bytes)
    }

    fn load_above(core: &Core<M>, dir: Cachelet, above: &mut Above) -> Result<()> {
        core.load_above(core.ino(dir), above)
    }

    fn slots_for(above: &Above, name: Name<'_>) -> u64 {
        PathEntryHead::slots_for(above.len_of(name.bytes))
    }

    #[track_caller]
    fn write_entry(
        op: &Op<'_, M>,
        (dir, above): (Cachelet, &mut Above),
        name: Name<'_>,
        spot: Spot,
        (target, generation): (TargetWord, u32),
        now: i64,
    ) -> Result<Draft> {
        let core = op.core;
        let area = above.area().ok_or(Error::Stale)?;
        let life = LifeWord::alive(now);
        let head = PathEntryHead {
            life: life.0,
            target: target.0,
            cookie: spot.claim.cookie,
            parent: core.ino(dir),
            generation,
            area: area.number,
            ..PathEntryHead::default()
        };
        let seal = PathSeal {
            area: area.generation,
            slot: spot.entry,
            directory: core.identity(dir).generation(),
        };
        let bytes = above.go_on(name.bytes, &head, seal);
        let at = core.geometry.slot_at(spot.entry);
        core.pool.write_through(spot.site, at, bytes);
        Ok(spot.drafted(bytes, life))
    }

    /// Readers of the log skip entries whose state says that they do not exist.
    #[track_caller]
    fn log_entry(op: &Op<'_, M>, word: Site, draft: &Draft) -> bool {
        let pool = &op.core.pool;
        pool.store_through(word, draft.claim.at, LogWord::new(draft.entry).0);
        true
    }

    #[track_caller]
    fn commit_entry(
        op: &Op<'_, M>,
        [entry, word, durable]: [Site; 3],
        draft: &Draft,
        is_logged: bool,
    ) {
        if !is_logged {
            Self::log_entry(op, word, draft);
        }
        op.core.pool.fence(entry);
        op.commit_state(durable, draft.entry);
    }

    fn record<'a>(
        op: &Op<'a, M>,
        record: &mut Record,
        drafts: &[(&Draft, Cachelet)],
    ) -> Held<'a, M> {
        let core = op.core;
        let entries: Vec<u64> = drafts.iter().map(|(draft, _)| draft.entry).collect();
        let held = op.hold_states(&entries);
        for (draft, file) in drafts {
            let entry_at = core.geometry.slot_at(draft.entry);
            record.witness(entry_at, draft.checksum);
            record.restate(entry_at + PathEntryHead::LIFE, draft.life.0);
            record.store(draft.claim.at, LogWord::new(draft.entry).0);
            if core.kind(*file) == FileKind::Directory {
                let place = core.place_of_directory(core.ino(*file));
                let place = DirLocation::new(draft.entry, place.area());
                record.store(core.inode_at(*file) + Inode::DETAIL, place.0);
            }
        }
        for &entry in &entries {
            let at = core.states_at(entry);
            let beside = entries.iter().filter(|&&other| core.states_at(other) == at);
            let there = |states: vellum_layout::StateMapWord, &entry: &u64| {
                states.with(entry, EntryState::Cold)
            };
            record.store(at, beside.fold(core.states(entry), there).0);
        }
        held
    }

    fn clear(op: &Op<'_, M>, entries: &[(u64, u64)]) {
        op.clear_states(entries);
    }

    fn check(core: &Core<M>, named: &Named, buffer: &PathBuffer) -> Result<()> {
        entry::check(core, named, buffer)
    }

    fn check_others(core: &Core<M>, is_named: &dyn Fn(u64) -> bool) -> Result<()> {
        core.check_recovered_lines()?;
        for group in core.groups() {
            let first = group - group % SLOTS_PER_BLOCK;
            for slot in core.states(group).entries().map(|slot| first + slot) {
                let life = core.word(core.geometry.slot_at(slot) + PathEntryHead::LIFE);
                if !is_named(slot) && LifeWord(life).is_alive() {
                    let place = Location::Slot(slot);
                    return Err(Error::damaged("path entry that no log names", place));
                }
            }
        }
        Ok(())
    }

    fn settle_others(
        core: &Core<M>,
        is_named: &dyn Fn(u64) -> bool,
        mender: &dyn Mender,
    ) -> Result<()> {
        core.settle_table(mender)?;
        for group in core.groups() {
            let states = core.states(group);
            // The first slot of an entry has the entry's state.
            let is_entry = |slot| is_named(slot) && core.is_used(slot);
            let left = states.entries().filter(|slot| !is_entry(group + slot));
            let mended = left.fold(states, |states, slot| states.with(slot, EntryState::None));
            if mended != states {
                mender.store(sites::RECOVER_STATES, core.states_at(group), mended.0);
            }
        }
        Ok(())
    }

    fn witnessed(core: &Core<M>, entry_at: u64) -> Option<u32> {
        entry::witnessed(core, entry_at)
    }
}
