//! Clearing words of directory logs, and compacting logs (DirectFS III-G). Runs under the
//! background's lease, outside any operation.

use std::ops::Range;

use vellum_layout::{LogExtentHead, LogExtentKind, LogWord};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent};

use super::Bodies;
use super::log::{Logged, Tail, log_extents};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field};
use crate::error::Result;
use crate::sites;

/// Number of zero words from which on a log is compacted: 4 KiB of it is dead.
const COMPACT_AT: u64 = 512;

/// Words of an extent that compaction writes.
const PER_EXTENT: usize = LogExtentKind::Large.words() as usize;

/// Clears log words, flushing each line once.
#[derive(Default)]
pub(crate) struct Clearing {
    /// A line with cleared words that is not flushed yet.
    line: Option<u64>,
}

impl Clearing {
    pub(crate) fn clear<M: Memories>(&mut self, core: &Core<M>, logged: Logged) {
        let line = logged.at / LINE_BYTES;
        if self.line != Some(line) {
            self.flush_last(core);
        }
        core.set_word(logged.at, 0);
        self.line = Some(line);
    }

    #[track_caller]
    pub(crate) fn flush_last<M: Memories>(&mut self, core: &Core<M>) {
        if let Some(line) = self.line.take() {
            let at = line * LINE_BYTES;
            core.pool.flush(sites::RECYCLE_WORDS, at, LINE_BYTES);
        }
    }
}

/// Compacts the log of `dir`, in which `live` words name entries, if 4 KiB and a third of it are
/// dead. If it is urgent, compacts it whenever that frees a block.
pub(crate) fn compact_where_due<M: Memories, B: Bodies<M>>(
    core: &Core<M>,
    dir: Cachelet,
    live: u64,
    urgent: bool,
) -> Result<()> {
    let least = if urgent {
        PER_EXTENT as u64
    } else {
        COMPACT_AT.max(live / 2)
    };
    if wasted_words(core, dir, live)? >= least {
        while compact::<M, B>(core, dir)? {}
    }
    Ok(())
}

/// Whether at least `blocks` blocks of words in the log of `dir`, whose names are known, name
/// nothing.
pub(crate) fn wastes_blocks<M: Memories>(core: &Core<M>, dir: Cachelet, blocks: u64) -> bool {
    let least = blocks * PER_EXTENT as u64;
    let tail = Tail(core.get(dir, field::TAIL));
    tail.0 != 0
        && tail.kind() == LogExtentKind::Large
        && wasted_words(core, dir, core.children(dir)).is_ok_and(|words| words >= least)
}

/// Number of log words before the tail that name nothing.
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
pub(crate) fn extents<M: Memories>(
    core: &Core<M>,
    dir: Cachelet,
) -> Result<Vec<(u64, LogExtentHead)>> {
    log_extents(core, core.ino(dir), core.get(dir, field::ROOT))
}

/// Replaces a run of extents by as few as its live words need: all extents but the last, or the run
/// that gains most with the available blocks. Returns whether another call may gain more.
fn compact<M: Memories, B: Bodies<M>>(core: &Core<M>, dir: Cachelet) -> Result<bool> {
    let mut old = extents(core, dir)?;
    // Claims take words of the last extent. A word that was claimed in an earlier one is written
    // when the operations that run now have ended.
    let Some((last, _)) = old.pop() else {
        return Ok(false);
    };
    core.wait_for_readers();
    let op = core.op_step();
    let owner = core.ino(dir);
    let live: Vec<Vec<u64>> = old.iter().map(|extent| live_words(core, extent)).collect();
    let lens: Vec<usize> = live.iter().map(Vec::len).collect();
    let needed = lens.iter().sum::<usize>().div_ceil(PER_EXTENT);
    let mut new = Vec::with_capacity(needed);
    while new.len() < needed
        && let Ok(slot) = op.alloc_any_block()
    {
        new.push(slot);
    }
    let is_short = new.len() < needed;
    let run = best_run(&lens, new.len());
    let words = live[run.clone()].concat();
    let free = |slot| core.free_slots(slot, LogExtentKind::Large.slots());
    new.drain(words.len().div_ceil(PER_EXTENT)..).for_each(free);
    if run.is_empty() {
        return Ok(false);
    }
    let next = old.get(run.end).map_or(last, |&(slot, _)| slot);
    for (i, chunk) in words.chunks(PER_EXTENT).enumerate() {
        let cookie = B::cookie(core, LogWord(chunk[0]).entry())?;
        let next = new.get(i + 1).copied().unwrap_or(next);
        write_compacted(core, owner, new[i], next, cookie, chunk);
    }
    core.pool.fence(sites::COMPACT_EXTENT_DURABLE);
    // The old extents stay if the medium did not take the new ones.
    op.check_media()
        .inspect_err(|_| new.iter().copied().for_each(free))?;
    let first = new.first().copied().unwrap_or(next);
    match run.start.checked_sub(1).map(|before| old[before].0) {
        Some(before) => {
            let steps = [sites::COMPACT_NEXT, sites::COMPACT_NEXT_DURABLE];
            op.log_set_next(steps, before, first);
        }
        None => {
            let steps = [sites::COMPACT_ROOT, sites::COMPACT_ROOT_DURABLE];
            op.log_set_root(steps, dir, first);
        }
    }
    core.arena
        .fetch_add(core.cachelet_at(dir, field::DEAD), 1 << 32);
    drop(op);
    core.wait_for_readers();
    for &(slot, head) in &old[run] {
        core.free_slots(slot, head.kind().slots());
    }
    Ok(is_short)
}

/// The words of an extent that name entries. No operation is writing any.
fn live_words<M: Memories>(core: &Core<M>, &(slot, head): &(u64, LogExtentHead)) -> Vec<u64> {
    let at = core.geometry.slot_at(slot) + head.kind().words_at();
    let all = (0..head.kind().words()).map(|index| core.word(at + 8 * index));
    all.filter(|&word| word != 0).collect()
}

/// The shortest run of extents with the largest gain, if `blocks` new ones can hold its words.
/// `live` holds the number of live words of each extent. Empty if no run gains an extent.
fn best_run(live: &[usize], blocks: usize) -> Range<usize> {
    let gain = |run: &Range<usize>| {
        let words: usize = live[run.clone()].iter().sum();
        run.len() - words.div_ceil(PER_EXTENT)
    };
    let (mut best, mut most) = (0..0, 0);
    let (mut run, mut words) = (0..0, 0);
    for &more in live {
        run.end += 1;
        words += more;
        while words > blocks * PER_EXTENT {
            words -= live[run.start];
            run.start += 1;
        }
        let gained = run.len() - words.div_ceil(PER_EXTENT);
        if gained > most {
            (best, most) = (run.clone(), gained);
        }
    }
    while most > 0 && gain(&(best.start + 1..best.end)) == most {
        best.start += 1;
    }
    best
}

fn write_compacted<M: Memories>(
    core: &Core<M>,
    owner: u64,
    slot: u64,
    next: u64,
    base_cookie: u64,
    words: &[u64],
) {
    core.write_extent(sites::COMPACT_WORDS_ZERO, slot, owner, base_cookie, true);
    let at = core.geometry.slot_at(slot);
    core.set_word(at + LogExtentHead::NEXT, next);
    for (word, to) in words
        .iter()
        .zip((at + LogExtentKind::Large.words_at()..).step_by(8))
    {
        core.set_word(to, *word);
    }
    let bytes = LogExtentKind::Large.words_at() + 8 * words.len() as u64;
    core.pool.flush(sites::COMPACT_WORDS, at, bytes);
}

#[cfg(test)]
mod tests {
    use super::{PER_EXTENT, best_run};

    #[test]
    fn the_run_that_gains_most_with_the_blocks_there_are() {
        let full = PER_EXTENT;
        assert_eq!(best_run(&[], 4), 0..0);
        assert_eq!(best_run(&[full, full], 4), 0..0);
        assert_eq!(best_run(&[1, 1, 1], 1), 0..3);
        assert_eq!(best_run(&[1, 1, 1], 0), 0..0, "no free block");
        assert_eq!(best_run(&[1, 0, 1, 0, 0, 1], 0), 3..5, "nothing to move");
        assert_eq!(best_run(&[full, full, 3, 4, full], 9), 2..4);
        assert_eq!(best_run(&[full - 1, 2, full, 1, full - 1], 1), 3..5);
        let third = 2 * full / 3;
        assert_eq!(best_run(&[third, third], 9), 0..0);
        assert_eq!(best_run(&[third, third, third], 1), 0..0);
        assert_eq!(best_run(&[third, third, third], 2), 0..3);
    }
}
