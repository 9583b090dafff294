//! Recycling dead entries, compacting logs (DirectFS III-G), and dissolving removed directories.
//!
//! Runs under the background's lease, outside any operation, so it may wait for a grace period. An
//! entry whose life word says *dead* leaves the index before the operation that removed it ends,
//! and one grace period later no lookup compares names with it.

use vellum_media::{Memories, Persistent};

use super::Entries;
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field};
use crate::error::Result;
use crate::namespace::common::compact::{Clearing, compact_where_due, extents};
use crate::namespace::common::log::{Logged, scan_log};
use crate::sites;

/// Frees the dead entries of `dir`. Compacts its log if that is due, or if it is urgent and frees a
/// block.
pub(super) fn recycle<M: Memories, S: Entries<M>>(
    core: &Core<M>,
    dir: Cachelet,
    urgent: bool,
) -> Result<()> {
    let op = core.op_step();
    let mut dead = Vec::new();
    let mut words = Vec::new();
    let (mut live, mut latest, mut last) = (0, 0, 0);
    let mut buffer = S::Buffer::default();
    let (owner, root) = (core.ino(dir), core.get(dir, field::ROOT));
    scan_log(core, owner, root, &mut |logged| {
        last = logged.at;
        if !S::is_there(core, logged.word.entry()) {
            live += 1;
            return Ok(());
        }
        let body = S::read_unsealed(core, logged.word.entry(), owner, &mut buffer)?;
        if body.life.is_alive() {
            live += 1;
        } else {
            dead.push((logged.word.entry(), body.slots));
            words.push(logged);
            latest = latest.max(body.life.ns());
        }
        Ok(())
    })?;
    // The last word stays, dead or not: the next mount finds the tail behind it, so that no cookie
    // is assigned twice.
    if words
        .last()
        .is_some_and(|logged: &Logged| logged.at == last)
    {
        words.pop();
        dead.pop();
    }
    // The times in the dead entries must be on the pool before nothing names these entries any
    // more. Times before the directory's last change were superseded by it, or by times that were
    // set explicitly.
    if latest > core.changed_at(dir) {
        op.note_change(dir, latest, 0);
    }
    op.write_back([sites::RECYCLE_LINKS, sites::RECYCLE_TIMES], dir);
    core.pool.fence(sites::RECYCLE_TIMES_DURABLE);
    let mut clearing = Clearing::default();
    words
        .into_iter()
        .for_each(|logged| clearing.clear(core, logged));
    clearing.flush_last(core);
    core.pool.fence(sites::RECYCLE_WORDS_DURABLE);
    S::clear(&op, &dead);
    core.lower_dead(dir, dead.len() as u64);
    drop(op);
    core.wait_for_readers();
    for (slot, slots) in dead {
        core.free_slots(slot, slots);
    }
    compact_where_due::<M, S>(core, dir, live, urgent)
}

/// Frees everything that a removed directory holds: its entries and its log. Its inode is durably
/// free and nobody has it open.
pub(super) fn dissolve<M: Memories, S: Entries<M>>(core: &Core<M>, dir: Cachelet) -> Result<()> {
    let owner = core.ino(dir);
    let mut buffer = S::Buffer::default();
    let mut entries = Vec::new();
    scan_log(core, owner, core.get(dir, field::ROOT), &mut |logged| {
        let body = S::read_unsealed(core, logged.word.entry(), owner, &mut buffer)?;
        entries.push((logged.word.entry(), body.slots));
        Ok(())
    })?;
    let extents = extents(core, dir)?;
    S::clear(&core.op_step(), &entries);
    core.wait_for_readers();
    S::dissolved(core, dir);
    for (slot, slots) in entries {
        core.free_slots(slot, slots);
    }
    for (slot, head) in extents {
        core.free_slots(slot, head.kind().slots());
    }
    Ok(())
}
