//! Recycling dead entries, compacting logs (DirectFS III-G), and taking removed directories apart.
//!
//! Runs under the background lease, outside any operation, so it may wait for a grace period. An
//! entry whose life word says *dead* is out of the index once the operation that buried it has
//! ended, and nobody compares names with it one grace period later.

use vellum_layout::{Entry, EntryHead, LifeWord, LogExtentHead, LogExtentKind, LogWord};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent};

use super::build::{EntryBuffer, Logged, scan_log};
use super::log::Tail;
use crate::cachelet::{Cachelet, field};
use crate::core::Core;
use crate::error::{Error, Result};

/// Zero words from which a log is compacted: 4 KiB of it is dead.
const COMPACT_AT: u64 = 512;

/// Frees the dead entries of `dir`; compacts its log where 4 KiB of it is dead.
pub(super) fn recycle<M: Memories>(core: &Core<M>, dir: Cachelet) -> Result<()> {
    let op = core.op_begin();
    let mut dead = Vec::new();
    let mut words = Vec::new();
    let (mut live, mut latest) = (0, 0);
    let mut buffer = EntryBuffer::new();
    let (owner, root) = (core.ino(dir), core.get(dir, field::ROOT));
    scan_log(core, owner, root, &mut |logged| {
        let head = *buffer.read_unsealed(core, logged.word.entry(), owner)?;
        if LifeWord(head.life).is_alive() {
            live += 1;
        } else if !logged.word.is_pending() {
            dead.push((logged.word.entry(), slots_of(&head)));
            words.push(logged);
            latest = latest.max(LifeWord(head.life).ns());
        }
        Ok(())
    })?;
    // The times that the dead entries tell must be on the pool before nothing names them any more.
    // Those before the directory's last change were overtaken by it, or by times set on purpose.
    if latest > core.get(dir, field::CTIME) as i64 {
        op.note_change(dir, latest, 0);
    }
    core.write_back_times(dir);
    core.pool.fence();
    let mut clearing = Clearing::default();
    words
        .into_iter()
        .for_each(|logged| clearing.clear(core, logged));
    clearing.flush(core);
    core.pool.fence();
    lower_dead(core, dir, dead.len() as u64);
    drop(op);
    core.wait_for_readers();
    for (slot, slots) in dead {
        core.free_slots(slot, slots);
    }
    if wasted_words(core, dir, live)? >= COMPACT_AT.max(live / 2) {
        compact(core, dir)?;
    }
    Ok(())
}

/// Takes `count` from the dead words counted in the low half; the generation above stays.
fn lower_dead<M: Memories>(core: &Core<M>, dir: Cachelet, count: u64) {
    let at = core.cachelet_at(dir, field::DEAD);
    let mut word = core.get(dir, field::DEAD);
    loop {
        let less = word - count.min(word & 0xFFFF_FFFF);
        match core.arena.compare_exchange(at, word, less) {
            Ok(_) => return,
            Err(now) => word = now,
        }
    }
}

fn slots_of(head: &EntryHead) -> u64 {
    Entry::slots_for(usize::from(head.name_len))
}

/// Clears log words, flushing each line once.
#[derive(Default)]
struct Clearing {
    /// Line with cleared words that is not flushed yet.
    line: Option<u64>,
}

impl Clearing {
    fn clear<M: Memories>(&mut self, core: &Core<M>, logged: Logged) {
        let line = logged.at / LINE_BYTES;
        if self.line != Some(line) {
            self.flush(core);
        }
        core.set_word(logged.at, 0);
        self.line = Some(line);
    }

    fn flush<M: Memories>(&mut self, core: &Core<M>) {
        if let Some(line) = self.line.take() {
            core.pool.flush(line * LINE_BYTES, LINE_BYTES);
        }
    }
}

/// Log words before the tail that name nothing.
fn wasted_words<M: Memories>(core: &Core<M>, dir: Cachelet, live: u64) -> Result<u64> {
    let tail = Tail(core.get(dir, field::TAIL));
    let mut words = 0;
    for (slot, head) in extents(core, dir)? {
        words += if slot == tail.extent() {
            tail.index()
        } else {
            head.kind().words()
        };
    }
    Ok(words.saturating_sub(live))
}

/// The extents of a directory's log, in order.
fn extents<M: Memories>(core: &Core<M>, dir: Cachelet) -> Result<Vec<(u64, LogExtentHead)>> {
    log_extents(core, core.ino(dir), core.get(dir, field::ROOT))
}

/// The extents of the log of directory `owner` that starts at `root`, in order.
pub(crate) fn log_extents<M: Memories>(
    core: &Core<M>,
    owner: u64,
    root: u64,
) -> Result<Vec<(u64, LogExtentHead)>> {
    let (mut slot, mut found) = (root, Vec::new());
    while slot != 0 {
        let head = core.log_head(slot, owner)?;
        found.push((slot, head));
        slot = head.next;
        if found.len() as u64 > core.geometry.meta_slots() {
            let place = crate::error::Place::Inode(owner);
            return Err(Error::damaged("directory log runs in a circle", place));
        }
    }
    Ok(found)
}

/// Replaces all extents but a fresh last one by as few as the live words need. New claims go to
/// the fresh extent; after a grace period nobody writes words of the old ones any more.
fn compact<M: Memories>(core: &Core<M>, dir: Cachelet) -> Result<()> {
    let fresh = core.op_begin().log_append_fresh(dir)?;
    core.wait_for_readers();
    let op = core.op_begin();
    let owner = core.ino(dir);
    let mut old = extents(core, dir)?;
    let Some(end) = old.iter().position(|&(slot, _)| slot == fresh) else {
        return Ok(());
    };
    old.truncate(end);
    let mut words = Vec::new();
    for &(slot, head) in &old {
        let at = core.geometry.slot_at(slot) + head.kind().words_at();
        let all = (0..head.kind().words()).map(|index| core.word(at + 8 * index) & !1);
        words.extend(all.filter(|&word| word != 0));
    }
    let per_extent = LogExtentKind::Large.words() as usize;
    let count = words.len().div_ceil(per_extent);
    let mut new = Vec::with_capacity(count);
    for _ in 0..count {
        match op.alloc_block() {
            Ok(slot) => new.push(slot),
            Err(_) => {
                // No room to compact now: the old log stays as it is.
                new.iter()
                    .for_each(|&slot| core.free_slots(slot, LogExtentKind::Large.slots()));
                return Ok(());
            }
        }
    }
    for (i, chunk) in words.chunks(per_extent).enumerate() {
        let cookie_at = core.slot_at(LogWord(chunk[0]).entry())? + Entry::COOKIE;
        let next = new.get(i + 1).copied().unwrap_or(fresh);
        write_compacted(core, owner, new[i], next, core.word(cookie_at), chunk);
    }
    core.pool.fence();
    op.log_set_root(dir, new.first().copied().unwrap_or(fresh));
    core.arena
        .fetch_add(core.cachelet_at(dir, field::DEAD), 1 << 32);
    drop(op);
    core.wait_for_readers();
    for (slot, head) in old {
        core.free_slots(slot, head.kind().slots());
    }
    Ok(())
}

fn write_compacted<M: Memories>(
    core: &Core<M>,
    owner: u64,
    slot: u64,
    next: u64,
    base_cookie: u64,
    words: &[u64],
) {
    core.write_extent(slot, owner, base_cookie, LogExtentKind::Large, true);
    let at = core.geometry.slot_at(slot);
    core.set_word(at + LogExtentHead::NEXT, next);
    for (word, to) in words
        .iter()
        .zip((at + LogExtentKind::Large.words_at()..).step_by(8))
    {
        core.set_word(to, *word);
    }
    core.pool
        .flush(at, LogExtentKind::Large.words_at() + 8 * words.len() as u64);
}

/// Frees all that a removed directory holds: its entries and its log. Its inode is durably free
/// and nobody has it open.
pub(super) fn dissolve<M: Memories>(core: &Core<M>, dir: Cachelet) -> Result<()> {
    let owner = core.ino(dir);
    let mut buffer = EntryBuffer::new();
    let mut entries = Vec::new();
    scan_log(core, owner, core.get(dir, field::ROOT), &mut |logged| {
        let head = *buffer.read_unsealed(core, logged.word.entry(), owner)?;
        entries.push((logged.word.entry(), slots_of(&head)));
        Ok(())
    })?;
    let extents = extents(core, dir)?;
    core.wait_for_readers();
    for (slot, slots) in entries {
        core.free_slots(slot, slots);
    }
    for (slot, head) in extents {
        core.free_slots(slot, head.kind().slots());
    }
    Ok(())
}
