//! Eviction (DirectFS III-G): names and cachelets that were not used lately leave the arena.
//!
//! A hand goes round all cachelets (first in, first out with a second chance): a directory that was
//! searched since the hand last came by is passed over once, any other loses its part of the
//! index; a cachelet that nothing refers to is given back. Runs under the background lease,
//! outside any operation, and only when names or cachelets become scarce.
//!
//! Why no operation is misled:
//! * A directory stops being *indexed*, and its generation grows, before its first pair goes. A
//!   miss counts only between two equal tokens, and a creation's pair is taken back if the token
//!   changed (`index_token`, `insert_new`).
//! * Pairs that an operation has flagged, and those not readable yet, stay.
//! * A cachelet is found through pairs (gone), through references (none) or through its inode:
//!   finding it that way clears *evicting*. If the flag still stands after a grace period, nobody
//!   used the cachelet since, and *evicted* makes that final in one compare-and-swap.

use std::sync::atomic::Ordering;

use vellum_layout::{EntryHead, FileKind, Inode, LifeWord};
use vellum_media::{Memories, Memory, Persistent};

use super::build::{EntryBuffer, scan_log};
use super::index::ValueWord;
use crate::cachelet::{Cachelet, NAME_ONE, field, flag};
use crate::core::{Core, header};
use crate::error::Result;
use crate::sites;
use crate::slots::{Op, Tally};

/// Cachelets that the hand passes in one round.
const ROUND: u64 = 4096;

/// Flags of a cachelet that somebody still needs.
const KEEP: u64 = flag::UNLINKED | flag::QUEUED | flag::INDEXED | flag::BUILDING;

/// Evicts one round's worth if names or cachelets are scarce, or if it is urgent; gives how many
/// cachelets were given back.
pub(super) fn evict<M: Memories>(core: &Core<M>, urgent: bool) -> Result<u64> {
    if !urgent && (core.read_only || !is_scarce(core)) {
        return Ok(0);
    }
    let last = core.last_cachelet();
    if last == 0 {
        return Ok(0);
    }
    // In a hurry the hand goes round twice, and the second time there are no second chances: lookups
    // beside it could go on giving them.
    let once = last.div_ceil(ROUND);
    let rounds = if urgent { 2 * once } else { 1 };
    let mut given_back = 0;
    for round in 0..rounds {
        given_back += evict_round(core, last, round >= once)?;
        if urgent && !is_scarce(core) {
            break;
        }
    }
    Ok(given_back)
}

fn is_scarce<M: Memories>(core: &Core<M>) -> bool {
    let word = |at| core.arena.load(at, Ordering::Relaxed);
    core.total(Tally::Names) > core.map.index_limit
        || core.cachelets_used() > core.map.cachelet_count / 8 * 7
        || word(header::OVERFLOW_USED) > core.map.overflow_count / 8 * 7
}

fn evict_round<M: Memories>(core: &Core<M>, last: u64, strict: bool) -> Result<u64> {
    let hand = core.arena.load(header::EVICT_HAND, Ordering::Relaxed);
    let count = ROUND.min(last);
    let candidates: Vec<_> = (0..count)
        .map(|step| Cachelet(((hand + step) % last + 1) as u32))
        .collect();
    core.arena
        .store(header::EVICT_HAND, (hand + count) % last, Ordering::Relaxed);
    for &dir in &candidates {
        if is_cold_directory(core, dir, strict) {
            unindex(&core.op_begin(), dir)?;
        }
    }
    let trimmed = core.index_trim(&core.op_begin());
    let mut doomed: Vec<_> = candidates
        .into_iter()
        .filter(|&cachelet| begin_evicting(core, cachelet))
        .collect();
    if doomed.is_empty() && trimmed.is_empty() {
        return Ok(0);
    }
    core.wait_for_readers();
    trimmed
        .into_iter()
        .for_each(|bucket| core.free_bucket(bucket));
    let mut read = Ok(());
    doomed.retain(|&cachelet| {
        finish_evicting(core, cachelet).unwrap_or_else(|error| {
            read = Err(error);
            false
        })
    });
    core.pool.fence(sites::EVICT_DURABLE);
    core.wait_for_readers();
    doomed
        .iter()
        .for_each(|&cachelet| core.free_cachelet(cachelet));
    read.map(|()| doomed.len() as u64)
}

/// Whether a cachelet is that of an indexed directory without a second chance left.
fn is_cold_directory<M: Memories>(core: &Core<M>, dir: Cachelet, strict: bool) -> bool {
    let warm = if strict { 0 } else { flag::TOUCHED };
    core.ino(dir) != 0
        && core.kind(dir) == FileKind::Directory
        && core.has_flag(dir, flag::INDEXED)
        && core.clear_flag(dir, flag::TOUCHED) & (warm | flag::UNLINKED) == 0
}

/// Takes a directory's pairs out of the index.
fn unindex<M: Memories>(op: &Op<'_, M>, dir: Cachelet) -> Result<()> {
    let core = op.core;
    if core.raise_flag(dir, flag::BUILDING) & flag::BUILDING != 0 {
        return Ok(());
    }
    core.clear_flag(dir, flag::INDEXED);
    core.arena
        .fetch_add(core.cachelet_at(dir, field::FLAGS), flag::GENERATION);
    let mut buffer = EntryBuffer::new();
    let owner = core.ino(dir);
    let scanned = scan_log(core, owner, core.get(dir, field::ROOT), &mut |logged| {
        let head = *buffer.read_unsealed(core, logged.word.entry(), owner)?;
        if LifeWord(head.life).is_alive() {
            drop_pair(op, owner, buffer.name(), &head);
        }
        Ok(())
    });
    core.clear_flag(dir, flag::BUILDING);
    scanned.map(drop)
}

/// Takes a directory's pairs out of the index, for schedules in which that happens.
#[cfg(test)]
pub(crate) fn forget_names<M: Memories>(core: &Core<M>, dir: Cachelet) {
    unindex(&core.op_begin(), dir).unwrap();
}

/// Removes one pair, unless an operation is at work on the name.
fn drop_pair<M: Memories>(op: &Op<'_, M>, parent: u64, name: &[u8], head: &EntryHead) {
    let core = op.core;
    let Some(pair) = core.index_find(parent, name, head.name_hash) else {
        return;
    };
    let busy = ValueWord::DELETING | ValueWord::RENAMING;
    if !pair.value.has(ValueWord::READABLE) || pair.value.has(busy) {
        return;
    }
    // Not as one being deleted: lookups may give such a one a cachelet.
    let Some(flagged) = core.index_update(pair, pair.value.with(ValueWord::RENAMING)) else {
        return;
    };
    op.index_remove(flagged);
    if let Ok(cachelet) = pair.value.target() {
        core.drop_refs(cachelet, NAME_ONE);
    }
}

/// Marks a cachelet that nothing refers to.
fn begin_evicting<M: Memories>(core: &Core<M>, cachelet: Cachelet) -> bool {
    core.ino(cachelet) != 0
        && core.get(cachelet, field::REFS) == 0
        && core.get(cachelet, field::FLAGS) & KEEP == 0
        && core.raise_flag(cachelet, flag::EVICTING) & KEEP == 0
}

/// Makes an eviction final, if nobody used the cachelet since it began; what it knew better than
/// the pool is written back before.
fn finish_evicting<M: Memories>(core: &Core<M>, cachelet: Cachelet) -> Result<bool> {
    let flags = core.get(cachelet, field::FLAGS);
    if flags & flag::EVICTING == 0 {
        return Ok(false);
    }
    // One that was filled in vain (`load_cachelet`) has been given back already; one that an
    // operation came to while the eviction began may have got work to do.
    let is_free = core.ino(cachelet) == 0;
    // Nothing is written back where what it knows may stand on what is lost.
    let is_stuck = flags & flag::DIRTY != 0 && core.is_harmed();
    if is_free || is_stuck || flags & KEEP != 0 || core.get(cachelet, field::REFS) != 0 {
        core.clear_flag(cachelet, flag::EVICTING);
        return Ok(false);
    }
    if flags & flag::DIRTY != 0 {
        let steps = [sites::EVICT_LINKS, sites::EVICT_TIMES];
        core.op_begin().write_back(steps, cachelet);
    }
    let at = core.cachelet_at(cachelet, field::FLAGS);
    let quiet = flags & !flag::DIRTY;
    if core
        .arena
        .compare_exchange(at, quiet, quiet & !flag::EVICTING | flag::EVICTED)
        .is_err()
    {
        core.clear_flag(cachelet, flag::EVICTING);
        return Ok(false);
    }
    let pointer = core.inode_at(cachelet) + Inode::CACHELET;
    let _ = core
        .pool
        .compare_exchange(pointer, core.nv_pointer_to(cachelet), 0);
    Ok(true)
}
