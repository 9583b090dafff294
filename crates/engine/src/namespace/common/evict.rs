//! Evicting cachelets (DirectFS III-G). A hand passes all of them in turn (first in, first out,
//! with a second chance). It lets the namespace forget names that were not used lately, and evicts
//! the cachelets that nothing refers to. It does so only when names or cachelets become scarce. If
//! names hold no references, cachelets count as scarce when there are only few
//! ([`crate::namespace::Namespace::cachelets_kept`]).
//!
//! Runs under the background's lease, outside any operation. A cachelet is found through names that
//! hold a reference to it, through other references, or through its inode. Finding it through its
//! inode clears *evicting*. A name that only records where the cachelet was does not lead to one
//! that is marked. If the flag still stands after a grace period, nobody used the cachelet since,
//! and *evicted* makes that final in one compare-and-swap.

use std::sync::atomic::Ordering;

use vellum_layout::{FileKind, Inode};
use vellum_media::{Memories, Memory, Persistent};

use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::{Core, header};
use crate::error::Result;
use crate::sites;

/// Number of cachelets that the hand passes in one round.
const ROUND: u64 = 4096;

/// Flags of a cachelet that somebody still needs.
const KEEP: u64 = flag::UNLINKED | flag::QUEUED | flag::INDEXED | flag::BUILDING;

/// The names that a namespace keeps in the arena.
pub(crate) trait Remembered<M: Memories> {
    /// Whether space for names is scarce.
    fn is_scarce(&self, core: &Core<M>) -> bool;

    /// Forgets the names of those directories among `candidates` that were not searched lately,
    /// with `strict` also of others. Returns what is unreachable after a grace period.
    fn forget(&self, core: &Core<M>, candidates: &[Cachelet], strict: bool) -> Result<Vec<u64>>;

    /// Frees what [`Self::forget`] returned.
    fn free(&self, core: &Core<M>, forgotten: u64);
}

/// Evicts one round's worth if names or cachelets are scarce; if it is urgent, evicts more. Returns
/// how many cachelets were freed.
pub(crate) fn evict<M: Memories>(
    core: &Core<M>,
    names: &dyn Remembered<M>,
    urgent: bool,
) -> Result<u64> {
    if !urgent && (core.read_only || !is_scarce(core, names)) {
        return Ok(0);
    }
    let last = core.last_cachelet();
    if last == 0 {
        return Ok(0);
    }
    // If it is urgent, the hand goes round twice, the second time without second chances:
    // concurrent lookups could otherwise keep all cachelets.
    let once = last.div_ceil(ROUND);
    let rounds = if urgent { 2 * once } else { 1 };
    let mut given_back = 0;
    for round in 0..rounds {
        given_back += evict_round(core, names, last, round >= once)?;
        if urgent && !is_scarce(core, names) {
            break;
        }
    }
    if urgent && is_scarce(core, names) {
        // All of them are in use.
        core.double_cachelet_limit();
    }
    Ok(given_back)
}

fn is_scarce<M: Memories>(core: &Core<M>, names: &dyn Remembered<M>) -> bool {
    names.is_scarce(core) || core.cachelets_used() > core.cachelet_limit() / 8 * 7
}

fn evict_round<M: Memories>(
    core: &Core<M>,
    names: &dyn Remembered<M>,
    last: u64,
    strict: bool,
) -> Result<u64> {
    let hand = core.arena.load(header::EVICT_HAND, Ordering::Relaxed);
    let count = ROUND.min(last);
    let candidates: Vec<_> = (0..count)
        .map(|step| Cachelet(((hand + step) % last + 1) as u32))
        .collect();
    core.arena
        .store(header::EVICT_HAND, (hand + count) % last, Ordering::Relaxed);
    let forgotten = names.forget(core, &candidates, strict)?;
    let mut doomed: Vec<_> = candidates
        .into_iter()
        .filter(|&cachelet| begin_evicting(core, cachelet))
        .collect();
    if doomed.is_empty() && forgotten.is_empty() {
        return Ok(0);
    }
    core.wait_for_readers();
    forgotten
        .into_iter()
        .for_each(|forgotten| names.free(core, forgotten));
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

/// Whether a cachelet belongs to a directory whose names are known, and has no second chance left.
pub(crate) fn is_cold_directory<M: Memories>(core: &Core<M>, dir: Cachelet, strict: bool) -> bool {
    let warm = if strict { 0 } else { flag::TOUCHED };
    core.ino(dir) != 0
        && core.kind(dir) == FileKind::Directory
        && core.has_flag(dir, flag::INDEXED)
        && core.clear_flag(dir, flag::TOUCHED) & (warm | flag::UNLINKED) == 0
}

/// Marks a cachelet that nothing refers to. Returns whether it is marked.
fn begin_evicting<M: Memories>(core: &Core<M>, cachelet: Cachelet) -> bool {
    core.ino(cachelet) != 0
        && core.get(cachelet, field::REFS) == 0
        && core.get(cachelet, field::FLAGS) & KEEP == 0
        && core.raise_flag(cachelet, flag::EVICTING) & KEEP == 0
}

/// Makes an eviction final, if nobody used the cachelet since it began. Before that, writes back
/// what the cachelet knows and the pool does not.
fn finish_evicting<M: Memories>(core: &Core<M>, cachelet: Cachelet) -> Result<bool> {
    let flags = core.get(cachelet, field::FLAGS);
    if flags & flag::EVICTING == 0 {
        return Ok(false);
    }
    // A cachelet that was filled in vain (`load_cachelet`) has been freed already. One that an
    // operation reached while the eviction began may have got work to do.
    let is_free = core.ino(cachelet) == 0;
    // After damage nothing is written back, because the cachelet may rely on lost bytes.
    let is_stuck = flags & flag::DIRTY != 0 && core.is_damaged();
    if is_free || is_stuck || flags & KEEP != 0 || core.get(cachelet, field::REFS) != 0 {
        core.clear_flag(cachelet, flag::EVICTING);
        return Ok(false);
    }
    if flags & flag::DIRTY != 0 {
        let steps = [sites::EVICT_LINKS, sites::EVICT_TIMES];
        core.op_step().write_back(steps, cachelet);
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
