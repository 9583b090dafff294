//! Evicting names (DirectFS III-G): the names of directories that were not searched lately leave
//! the index.
//!
//! A directory that was searched since the hand of eviction last passed is spared once. Any other
//! loses its part of the index, so that nothing refers to the cachelets of its files.
//!
//! This misleads no operation:
//! * A directory stops being *indexed*, and its generation grows, before its first pair is removed.
//!   A miss counts only between two equal tokens, and a creation's pair is removed again if the
//!   token changed (`index_token`, `insert_new`).
//! * Pairs that an operation has flagged, and pairs that are not readable yet, stay.

use std::sync::atomic::Ordering;

use vellum_media::{Memories, Memory};

use super::index::{Index, ValueWord};
use super::{Entries, Indexed, Name};
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::{Op, Tally};
use crate::core::{Core, header};
use crate::error::Result;
use crate::namespace::common::evict::{Remembered, is_cold_directory};
use crate::namespace::common::log::scan_log;

impl<M: Memories, S: Entries<M>> Remembered<M> for Indexed<S> {
    fn is_scarce(&self, core: &Core<M>) -> bool {
        let word = |at| core.arena.load(at, Ordering::Relaxed);
        core.total(Tally::Names) > core.map.index_limit
            || word(header::OVERFLOW_USED) > core.map.overflow_count / 8 * 7
    }

    fn forget(&self, core: &Core<M>, dirs: &[Cachelet], strict: bool) -> Result<Vec<u64>> {
        for &dir in dirs {
            if is_cold_directory(core, dir, strict) {
                unindex::<M, S>(&core.op_step(), dir)?;
            }
        }
        if !S::Index::is_to_forget(core) {
            return Ok(Vec::new());
        }
        Ok(core.index_trim(&core.op_step()))
    }

    fn free(&self, core: &Core<M>, forgotten: u64) {
        core.free_bucket(forgotten);
    }
}

/// Removes a directory's pairs from the index.
fn unindex<M: Memories, S: Entries<M>>(op: &Op<'_, M>, dir: Cachelet) -> Result<()> {
    let core = op.core;
    if !S::Index::is_to_forget(core) && core.get(dir, field::REFS) != 0 {
        // Its cachelet cannot be evicted, and its names use no space here.
        return Ok(());
    }
    if core.raise_flag(dir, flag::BUILDING) & flag::BUILDING != 0 {
        return Ok(());
    }
    core.clear_flag(dir, flag::INDEXED);
    core.arena
        .fetch_add(core.cachelet_at(dir, field::FLAGS), flag::GENERATION);
    if !S::Index::is_to_forget(core) {
        core.clear_flag(dir, flag::BUILDING);
        return Ok(());
    }
    let mut buffer = S::Buffer::default();
    let owner = core.ino(dir);
    let scanned = scan_log(core, owner, core.get(dir, field::ROOT), &mut |logged| {
        let entry = logged.word.entry();
        if !S::is_there(core, entry) {
            return Ok(());
        }
        let body = S::read_unsealed(core, entry, owner, &mut buffer)?;
        if body.life.is_alive() {
            drop_pair::<M, S>(op, dir, Name::new(core, S::name(&buffer))?);
        }
        Ok(())
    });
    core.clear_flag(dir, flag::BUILDING);
    scanned.map(drop)
}

/// Removes a directory's pairs from the index, for schedules that include this.
#[cfg(test)]
pub(crate) fn forget_names<M: Memories, S: Entries<M>>(core: &Core<M>, dir: Cachelet) {
    unindex::<M, S>(&core.op_begin().unwrap(), dir).unwrap();
}

/// Removes one pair, unless an operation is working on the name.
fn drop_pair<M: Memories, S: Entries<M>>(op: &Op<'_, M>, dir: Cachelet, name: Name<'_>) {
    let core = op.core;
    let found = S::Index::find::<S>(core, dir, name);
    let Some(pair) = found.filter(|&pair| S::Index::is_forgotten(pair)) else {
        return;
    };
    let busy = ValueWord::DELETING | ValueWord::RENAMING;
    if !pair.value.has(ValueWord::READABLE) || pair.value.has(busy) {
        return;
    }
    // Do not mark it as being deleted: lookups may attach a cachelet to such a pair.
    let Some(flagged) = S::Index::update(core, pair, pair.value.with(ValueWord::RENAMING)) else {
        return;
    };
    S::Index::remove(op, flagged);
    if let Ok(cachelet) = pair.value.target() {
        core.drop_refs(cachelet, S::Index::NAME_REFS);
    }
}
