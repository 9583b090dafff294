//! Clearing words of directory logs, and compacting logs (DirectFS III-G). Runs under the
//! background's lease, outside any operation.

use std::iter;
use std::ops::Range;

use vellum_layout::{ChunkKind, LogExtentHead, LogExtentKind, LogWord, SLOTS_PER_BLOCK};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent};

use super::Bodies;
use super::log::{Logged, Tail, log_extents};
use crate::core::Core;
use crate::core::alloc::SPARE_BLOCKS;
use crate::core::cachelet::{Cachelet, field};
use crate::core::slots::Op;
use crate::error::Result;
use crate::sites;

/// Number of zero words from which on a log is compacted: 4 KiB of it is dead.
const COMPACT_AT: u64 = 512;

/// Words of a large extent.
const PER_BLOCK: u64 = LogExtentKind::Large.words();
/// Words of a small extent.
const PER_SLOT: u64 = LogExtentKind::Small.words();

/// Number of small extents that compaction has at a time: operations need slots meanwhile.
const SLOTS_AT_ONCE: usize = 32;

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
/// dead. If it is urgent, compacts it whenever that may free a block, or a slot of a log that grew
/// by small extents.
pub(crate) fn compact_where_due<M: Memories, B: Bodies<M>>(
    core: &Core<M>,
    dir: Cachelet,
    live: u64,
    urgent: bool,
) -> Result<()> {
    let extents = extents(core, dir)?;
    let mut further = extents.iter().skip(1);
    let has_small = further.any(|(_, head)| head.kind() == LogExtentKind::Small);
    let least = match (urgent, has_small) {
        (false, _) => COMPACT_AT.max(live / 2),
        (true, false) => PER_BLOCK,
        (true, true) => PER_SLOT,
    };
    if wasted_words(core, dir, &extents, live) >= least {
        while compact::<M, B>(core, dir, LogExtentKind::Large)? {}
        if has_small {
            while compact::<M, B>(core, dir, LogExtentKind::Small)? {}
        }
    }
    Ok(())
}

/// Whether compacting the log of `dir`, whose names are known, frees a block. The log needs dead
/// words for two blocks, because one of the two may be the last block, which stays. With `all`,
/// whether compacting may free a block or a small extent.
pub(crate) fn wastes_space<M: Memories>(core: &Core<M>, dir: Cachelet, all: bool) -> bool {
    let tail = Tail(core.get(dir, field::TAIL));
    if tail.0 == 0 || tail.extent() == core.get(dir, field::ROOT) {
        return false;
    }
    let least = match (all, tail.kind()) {
        (false, _) => 2 * PER_BLOCK,
        (true, LogExtentKind::Large) => PER_BLOCK,
        (true, LogExtentKind::Small) => PER_SLOT,
    };
    extents(core, dir)
        .is_ok_and(|extents| wasted_words(core, dir, &extents, core.children(dir)) >= least)
}

/// Number of log words before the tail that name nothing.
fn wasted_words<M: Memories>(
    core: &Core<M>,
    dir: Cachelet,
    extents: &[(u64, LogExtentHead)],
    live: u64,
) -> u64 {
    let tail = Tail(core.get(dir, field::TAIL));
    let words = extents.iter().map(|&(slot, head)| {
        if slot == tail.extent() {
            tail.index()
        } else {
            head.kind().words()
        }
    });
    words.sum::<u64>().saturating_sub(live)
}

/// The extents of a directory's log, in order.
pub(crate) fn extents<M: Memories>(
    core: &Core<M>,
    dir: Cachelet,
) -> Result<Vec<(u64, LogExtentHead)>> {
    log_extents(core, core.ino(dir), core.get(dir, field::ROOT))
}

/// Replaces a run of extents by as few of this kind as its live words need: all extents but the
/// last, or the run that gains most with the available ones. Returns whether another call may gain
/// more.
fn compact<M: Memories, B: Bodies<M>>(
    core: &Core<M>,
    dir: Cachelet,
    kind: LogExtentKind,
) -> Result<bool> {
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
    let kinds = old.iter().map(|(_, head)| head.kind());
    let lens: Vec<_> = kinds.zip(live.iter().map(Vec::len)).collect();
    let per_extent = kind.words() as usize;
    let words: usize = live.iter().map(Vec::len).sum();
    let needed = words.div_ceil(per_extent);
    let (mut new, extra) = alloc_extents(&op, kind, needed);
    let is_short = new.len() < needed;
    let run = best_run(&lens, kind, new.len(), extra);
    let words = live[run.clone()].concat();
    let free = |slot| core.free_slots(slot, kind.slots());
    new.drain(words.len().div_ceil(per_extent)..).for_each(free);
    if run.is_empty() {
        return Ok(false);
    }
    let next = old.get(run.end).map_or(last, |&(slot, _)| slot);
    for (i, chunk) in words.chunks(per_extent).enumerate() {
        let cookie = B::cookie(core, LogWord(chunk[0]).entry())?;
        let next = new.get(i + 1).copied().unwrap_or(next);
        write_compacted(core, owner, (new[i], kind), next, cookie, chunk);
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

/// Allocates up to `needed` extents. Returns them, and how many of them a log may take without
/// freeing as many. That is none where they are scarce: other logs need the last blocks for their
/// compaction, and names the slots of small extents.
fn alloc_extents<M: Memories>(
    op: &Op<'_, M>,
    kind: LogExtentKind,
    needed: usize,
) -> (Vec<u64>, usize) {
    let limit = match kind {
        LogExtentKind::Small => SLOTS_AT_ONCE,
        LogExtentKind::Large => needed,
    };
    let available = iter::from_fn(|| op.alloc_for_log(kind).ok());
    let new: Vec<u64> = available.take(needed.min(limit)).collect();
    let left = op.core.free_slots_of(ChunkKind::Blocks) / SLOTS_PER_BLOCK;
    let extra = match kind {
        LogExtentKind::Small => 0,
        LogExtentKind::Large => (new.len() + left as usize).saturating_sub(SPARE_BLOCKS as usize),
    };
    (new, extra)
}

/// The run of extents with the largest gain in slots, if `available` new extents of this kind can
/// hold its words and it takes at most `extra` more of these than it frees. `live` holds the kind
/// of each extent and the number of its live words. Empty if no run gains a slot.
fn best_run(
    live: &[(LogExtentKind, usize)],
    kind: LogExtentKind,
    available: usize,
    extra: usize,
) -> Range<usize> {
    // Words, slots, and extents of the new kind before each extent.
    let mut sums = vec![[0; 3]];
    sums.extend(live.iter().scan([0; 3], |sum, &(of, words)| {
        let more = [words, of.slots() as usize, usize::from(of == kind)];
        *sum = std::array::from_fn(|i| sum[i] + more[i]);
        Some(*sum)
    }));
    let in_run = |run: &Range<usize>, i: usize| sums[run.end][i] - sums[run.start][i];
    let needed = |run: &Range<usize>| in_run(run, 0).div_ceil(kind.words() as usize);
    let gain = |run: &Range<usize>| match needed(run) {
        taken if taken > in_run(run, 2) + extra => 0,
        taken => in_run(run, 1).saturating_sub(taken * kind.slots() as usize),
    };
    let mut best = 0..0;
    // Of the runs that fit into the same number of new extents, the longest gains most.
    let limits = iter::successors(Some(available), |&limit| (limit > 0).then_some(limit / 2));
    for limit in limits {
        let mut run = 0..0;
        while run.end < live.len() {
            run.end += 1;
            while needed(&run) > limit {
                run.start += 1;
            }
            if gain(&run) > gain(&best) {
                best = run.clone();
            }
        }
    }
    while gain(&best) > 0 && gain(&(best.start + 1..best.end)) >= gain(&best) {
        best.start += 1;
    }
    best
}

fn write_compacted<M: Memories>(
    core: &Core<M>,
    owner: u64,
    (slot, kind): (u64, LogExtentKind),
    next: u64,
    base_cookie: u64,
    words: &[u64],
) {
    let site = sites::COMPACT_WORDS_ZERO;
    core.write_extent(site, (slot, kind), owner, base_cookie, true);
    let at = core.geometry.slot_at(slot);
    core.set_word(at + LogExtentHead::NEXT, next);
    for (word, to) in words.iter().zip((at + kind.words_at()..).step_by(8)) {
        core.set_word(to, *word);
    }
    let bytes = kind.words_at() + 8 * words.len() as u64;
    core.pool.flush(sites::COMPACT_WORDS, at, bytes);
}

#[cfg(test)]
mod tests {
    use vellum_layout::LogExtentKind::{Large, Small};

    use super::{PER_BLOCK, PER_SLOT, best_run};

    #[test]
    fn the_run_that_gains_most_with_the_blocks_there_are() {
        let full = PER_BLOCK as usize;
        let best_run = |live: &[usize], blocks| {
            let live: Vec<_> = live.iter().map(|&words| (Large, words)).collect();
            best_run(&live, Large, blocks, 0)
        };
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

    #[test]
    fn small_extents_go_into_a_block_of_their_run() {
        let full = (Small, PER_SLOT as usize);
        let log = [full, (Large, 400), full, full, (Large, 504), full];
        assert_eq!(best_run(&log, Large, 1, 0), 0..4);
        assert_eq!(best_run(&log, Large, 2, 0), 0..6);
        assert_eq!(best_run(&log, Large, 0, 0), 0..0, "no free block");
        assert_eq!(best_run(&[full; 60], Large, 2, 0), 0..0, "no block to free");
        assert_eq!(best_run(&[full; 60], Large, 2, 2), 0..42);
        assert_eq!(best_run(&[full; 30], Large, 2, 2), 0..0, "fewer slots");
    }

    #[test]
    fn a_run_takes_no_more_small_extents_than_it_frees() {
        let half = (Small, 6);
        let log = [half, half, (Large, 504), half, (Small, 7), (Small, 5)];
        assert_eq!(best_run(&log, Small, 0, 0), 0..0, "no free slot");
        assert_eq!(best_run(&log, Small, 1, 0), 0..2);
        assert_eq!(best_run(&log, Small, 2, 0), 0..2);
        assert_eq!(best_run(&[half, (Large, 6), half], Small, 1, 0), 0..2);
        assert_eq!(best_run(&[half, (Large, 30), half], Small, 4, 0), 0..0);
    }
}
