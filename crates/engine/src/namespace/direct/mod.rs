//! The namespace of DirectFS: entries hold their names, and the words of directory logs make them
//! exist.
//!
//! Creation and removal commit with one 8-byte store each, rename with a journal record
//! (`docs/crash/operations.md`).

mod entry;

use vellum_layout::{ChunkKind, Entry, EntryHead, LifeWord, LogWord, TargetWord};
use vellum_media::{Memories, Memory, Persistent, Site};

use std::sync::atomic::Ordering;

use self::entry::EntryBuffer;
use super::indexed::buckets::Buckets;
use super::indexed::{Draft, Entries, Name, Spot};
use crate::core::Core;
use crate::core::cachelet::Cachelet;
use crate::core::named::Named;
use crate::core::slots::Op;
use crate::durability::journal::Record;
use crate::error::Result;
use crate::namespace::{Ask, Mender, NO_AREAS, PathIn, Rename};

/// Entries of DirectFS.
#[derive(Debug)]
pub(crate) struct Direct;

impl<M: Memories> Entries<M> for Direct {
    /// An entry and its log word belong to the operation alone.
    type Held<'a>
        = ()
    where
        M: 'a;

    type Index = Buckets;

    type Above = ();

    const KIND: ChunkKind = ChunkKind::Entries;
    const TELL_PATHS: bool = false;

    fn tell_where(_: &Core<M>, _: Cachelet) -> bool {
        false
    }

    fn would_leave_dead(_: &Core<M>, _: Cachelet, _: Cachelet) -> Result<bool> {
        Ok(false)
    }

    fn check_pool(_: &Core<M>, _: bool) -> Result<()> {
        Ok(())
    }

    fn replay(_: &Core<M>) -> Result<()> {
        Ok(())
    }

    fn tells(_: &Core<M>, _: u64, _: &PathIn) -> Result<bool> {
        Ok(true)
    }

    /// Entries below a directory do not depend on its location.
    fn move_whole(core: &Core<M>, rename: &Rename<'_>, ask: Ask<'_, M>) -> Result<()> {
        let op = core.op_to_change()?;
        op.rename::<Self>(rename, &mut |source, target| ask(&op, source, target))
    }

    fn set_root(_: &Core<M>, _: Cachelet, _: bool) -> Result<bool> {
        Err(NO_AREAS)
    }

    fn give_up(_: &Core<M>, _: Cachelet) {}

    fn is_called(core: &Core<M>, entry: u64, parent: u64, name: Name<'_>) -> bool {
        let at = core.geometry.slot_at(entry);
        let word = core.pool.load(at + Entry::NAME_WORD, Ordering::Relaxed);
        word & 0xFFFF_FFFF_FFFF == u64::from(name.hash) | (name.bytes.len() as u64) << 32
            && core.pool.load(at + Entry::PARENT, Ordering::Relaxed) == parent
            && core.pool.bytes_equal(at + Entry::NAME, name.bytes)
    }

    fn load_above(_: &Core<M>, _: Cachelet, (): &mut ()) -> Result<()> {
        Ok(())
    }

    fn slots_for((): &(), name: Name<'_>) -> u64 {
        Entry::slots_for(name.bytes.len())
    }

    #[track_caller]
    fn write_entry(
        op: &Op<'_, M>,
        (dir, ()): (Cachelet, &mut ()),
        name: Name<'_>,
        spot: Spot,
        (target, generation): (TargetWord, u32),
        now: i64,
    ) -> Result<Draft> {
        let core = op.core;
        let life = LifeWord::alive(now);
        let head = EntryHead {
            life: life.0,
            target: target.0,
            cookie: spot.claim.cookie,
            parent: core.ino(dir),
            generation,
            checksum: 0,
            name_hash: name.hash,
            name_len: name.bytes.len() as u16,
            flags: 0,
        };
        let mut buffer = [0; 384];
        let parent = core.identity(dir).generation();
        let total = Entry::encode(&head, name.bytes, parent, &mut buffer);
        let at = core.geometry.slot_at(spot.entry);
        core.pool.write_through(spot.site, at, &buffer[..total]);
        Ok(spot.drafted(&buffer, life))
    }

    #[track_caller]
    fn commit_entry(
        op: &Op<'_, M>,
        [entry, word, durable]: [Site; 3],
        draft: &Draft,
        _is_logged: bool,
    ) {
        let core = op.core;
        core.pool.fence(entry);
        core.pool
            .store_through(word, draft.claim.at, LogWord::new(draft.entry).0);
        core.pool.fence(durable);
    }

    /// The life word is not covered by the entry's checksum, so the record stores it, too: the slot
    /// may still hold a dead entry that is otherwise the same.
    fn record<'a>(op: &Op<'a, M>, record: &mut Record, drafts: &[(&Draft, Cachelet)]) {
        for (draft, _) in drafts {
            let entry_at = op.core.geometry.slot_at(draft.entry);
            record.witness(entry_at, draft.checksum);
            record.restate(entry_at + Entry::LIFE, draft.life.0);
            record.store(draft.claim.at, LogWord::new(draft.entry).0);
        }
    }

    /// An entry that no log names does not exist.
    fn clear(_: &Op<'_, M>, _: &[(u64, u64)]) {}

    fn check(_: &Core<M>, _: &Named, _: &EntryBuffer) -> Result<()> {
        Ok(())
    }

    fn check_others(_: &Core<M>, _: &dyn Fn(u64) -> bool) -> Result<()> {
        Ok(())
    }

    fn settle_others(_: &Core<M>, _: &dyn Fn(u64) -> bool, _: &dyn Mender) -> Result<()> {
        Ok(())
    }

    fn witnessed(core: &Core<M>, entry_at: u64) -> Option<u32> {
        entry::witnessed(core, entry_at)
    }
}
