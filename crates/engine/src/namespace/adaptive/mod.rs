//! The namespace of ADAM, as far as it is built: entries tell their paths from the root of their area on, and
//! state-maps say which there are. All names are in one area, that of the file system's root.
//!
//! Creation commits with a word of a state-map, removal with an entry's life word, rename with a journal
//! record (`docs/CRASH.md`). An entry's log word is durable before its state is: what finds entries is the
//! directory logs and the index over them, as with `direct`.
//!
//! Directories are moved with what is below them by copies with the paths that these have from then on ([`moves`]).
//!
//! Not built: areas below the first one, tables over paths. In a directory whose path has more than 832 bytes paths begin anew, so that they
//! may be as long as there are directories.

mod entry;
mod moves;
mod prefixes;
mod states;

use vellum_layout::{
    AREA_TABLE_LINES, AreaPhase, AreaTableHead, ChunkKind, DirPlace, EntryState, FileKind,
    Geometry, Inode, LifeWord, LogWord, PATH_ENTRY_MAX_BYTES, PathEntryHead, ROOT_AREA, ROOT_SLOT,
    SLOTS_PER_BLOCK, TargetWord,
};
use vellum_media::{Memories, Memory, Persistent, Site};
use zerocopy::IntoBytes;

use self::entry::PathBuffer;
pub(crate) use self::states::Held;
use super::common::inode::Named;
use super::indexed::{Draft, Entries, Name, Spot};
use crate::cachelet::Cachelet;
use crate::core::Core;
use crate::error::{Error, Place, Result};
use crate::journal::Record;
use crate::namespace::{Ask, Mender, Rename, Walked};
use crate::sites;
use crate::slots::Op;

/// Entries of ADAM.
#[derive(Debug)]
pub(crate) struct Adaptive;

/// Bytes of the namespace's own structures in an arena.
pub(crate) fn arena_bytes(geometry: &Geometry) -> u64 {
    prefixes::arena_bytes(geometry)
}

impl<M: Memories> Entries<M> for Adaptive {
    type Held<'a>
        = Held<'a, M>
    where
        M: 'a;

    const KIND: ChunkKind = ChunkKind::Areas;
    const TELL_PATHS: bool = true;

    fn check_pool(core: &Core<M>, was_clean: bool) -> Result<()> {
        let table = core.geometry.areas.table;
        let damaged = |what| Err(Error::damaged(what, Place::Slot(table)));
        if core.kind_of_slot(table) != Some(ChunkKind::Blocks) {
            return damaged("area table in a wrong chunk");
        }
        let mut head = AreaTableHead::default();
        core.pool
            .read(core.geometry.slot_at(table), head.as_mut_bytes());
        let line = core.area_line(ROOT_AREA);
        let root = core.identity_on_pool(ROOT_SLOT).generation();
        if !head.is_sound(table, 0)
            || line.phase(ROOT_AREA) != Some(AreaPhase::Live)
            || (line.root, line.root_generation) != (ROOT_SLOT, root)
            || core.place_of_directory(ROOT_SLOT) != DirPlace::new(0, ROOT_AREA)
        {
            return damaged("the root's area");
        }
        let is_taken = |number| {
            let phase = core.area_line(number).phase(number);
            phase.is_some_and(|phase| phase != AreaPhase::Free)
        };
        let mut others = ROOT_AREA + 1..AREA_TABLE_LINES as u32;
        if head.next != 0 || others.any(is_taken) {
            return Err(Error::Unsupported("areas below that of the root"));
        }
        if was_clean && head.moving != 0 {
            return damaged("area table of a closed pool, with a move that is not over,");
        }
        Ok(())
    }

    fn replay(core: &Core<M>) -> Result<()> {
        moves::replay(core)
    }

    fn tells(core: &Core<M>, entry: u64, path: &[u8]) -> Result<bool> {
        let mut buffer = PathBuffer::default();
        core.load_sealed(entry, &mut buffer)?;
        Ok(buffer.path() == path)
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

    fn is_called(core: &Core<M>, entry: u64, parent: u64, name: Name<'_>) -> bool {
        entry::is_called(core, entry, parent, name.bytes)
    }

    fn slots_for(core: &Core<M>, dir: Cachelet, name: Name<'_>) -> Result<u64> {
        let len = core.path_len(core.ino(dir), name.bytes.len())?;
        Ok(PathEntryHead::slots_for(len))
    }

    #[track_caller]
    fn write_entry(
        op: &Op<'_, M>,
        dir: Cachelet,
        name: Name<'_>,
        spot: Spot,
        (target, generation): (TargetWord, u32),
        now: i64,
    ) -> Result<Draft> {
        let core = op.core;
        let mut above = PathBuffer::default();
        let hash = core.load_path(core.ino(dir), &mut above)?;
        let life = LifeWord::alive(now);
        let head = PathEntryHead {
            life: life.0,
            target: target.0,
            cookie: spot.claim.cookie,
            parent: core.ino(dir),
            generation,
            path_hash: hash.step(core.seed, name.bytes).0,
            area: ROOT_AREA,
            ..PathEntryHead::default()
        };
        let mut buffer = [0; PATH_ENTRY_MAX_BYTES];
        let seal = core.seal(spot.entry, core.identity(dir).generation());
        let total = head.encode(&above.path_of(name.bytes), seal, &mut buffer);
        let at = core.geometry.slot_at(spot.entry);
        core.pool.write_through(spot.site, at, &buffer[..total]);
        Ok(spot.drafted(&buffer, life))
    }

    #[track_caller]
    fn commit_entry(op: &Op<'_, M>, [entry, word, durable]: [Site; 3], draft: &Draft) {
        let core = op.core;
        core.pool
            .store_through(word, draft.claim.at, LogWord::new(draft.entry).0);
        core.pool.fence(entry);
        let _held = op.hold_groups(&[draft.entry]);
        let states = core.states(draft.entry).with(draft.entry, EntryState::Cold);
        let at = core.states_at(draft.entry);
        core.pool.store_through(sites::NAME_STATE, at, states.0);
        core.pool.fence(durable);
    }

    fn record<'a>(
        op: &Op<'a, M>,
        record: &mut Record,
        drafts: &[(&Draft, Cachelet)],
    ) -> Held<'a, M> {
        let core = op.core;
        let entries: Vec<u64> = drafts.iter().map(|(draft, _)| draft.entry).collect();
        let held = op.hold_groups(&entries);
        for (draft, file) in drafts {
            let entry_at = core.geometry.slot_at(draft.entry);
            record.witness(entry_at, draft.checksum);
            record.restate(entry_at + PathEntryHead::LIFE, draft.life.0);
            record.store(draft.claim.at, LogWord::new(draft.entry).0);
            if core.kind(*file) == FileKind::Directory {
                let place = DirPlace::new(draft.entry, 0);
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
        for group in core.groups() {
            let first = group - group % SLOTS_PER_BLOCK;
            for slot in core.states(group).entries().map(|slot| first + slot) {
                let life = core.word(core.geometry.slot_at(slot) + PathEntryHead::LIFE);
                if !is_named(slot) && LifeWord(life).is_alive() {
                    let place = Place::Slot(slot);
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
        mender.claim(core.geometry.areas.table, SLOTS_PER_BLOCK)?;
        for group in core.groups() {
            let states = core.states(group);
            // Of slots that an entry has the first one has its state.
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
