//! Rebuilding the volatile state in the arena by reading the table, in parallel where that pays.

use std::num::NonZero;
use std::sync::atomic::Ordering;
use std::thread;

use vellum_layout::{LINE_ENTRIES, MapState, MapWord};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent};

use super::HashFs;
use crate::core::{Core, header};
use crate::error::{Error, Location, Result};
use crate::mapping::{MapId, Verdict};
use crate::sites;

/// One thread reads tables below this size, so that simulations are exactly repeatable.
const PARALLEL_MIN_BLOCKS: u64 = 64 << 10;
/// Maximum number of threads.
const WORKERS_MAX: u64 = 8;
/// Parts of the table are multiples of this, so that no two threads share a bitmap word.
const PART_BLOCKS: u64 = 4096;

/// The decision of recovery about entries.
pub(super) type Judge<'a> = &'a (dyn Fn(MapId, u32, MapState) -> Verdict + Sync);

/// Result of reading a part of the table.
#[derive(Default)]
struct Scan {
    free: u64,
    displaced: Vec<u32>,
    /// Lines with entries that were freed.
    stored: Vec<u64>,
}

/// Threads that scan a table of this many blocks.
fn workers_for(blocks: u64) -> u64 {
    if blocks < PARALLEL_MIN_BLOCKS {
        return 1;
    }
    let processors = thread::available_parallelism().map_or(1, NonZero::get) as u64;
    processors.clamp(1, WORKERS_MAX)
}

impl HashFs {
    /// See [`crate::mapping::Mapping::rebuild`].
    pub(super) fn rebuild_allocator_state<M: Memories>(
        &self,
        core: &Core<M>,
        judge: Judge<'_>,
    ) -> Result<()> {
        let blocks = core.blocks();
        let workers = workers_for(blocks);
        let part = blocks.div_ceil(workers).next_multiple_of(PART_BLOCKS);
        let scans = in_parallel(workers, |worker| {
            let start = (worker * part).min(blocks);
            self.scan_part(core, judge, start, (start + part).min(blocks))
        })?;
        // This thread does the flushes, because it also fences.
        for &line in scans.iter().flat_map(|scan| &scan.stored) {
            let at = self.line_at(line);
            core.pool.flush(sites::RECOVER_TABLE, at, LINE_BYTES);
        }
        // Displaced entries come second: each is searched for in its home line and on its chain,
        // where every entry has been judged by now.
        in_parallel(workers, |worker| {
            let displaced = scans
                .get(worker as usize)
                .map_or(&[][..], |scan| &scan.displaced);
            self.link_part(core, worker + 1, displaced)
        })?;
        self.bitmap.summarise(&core.arena, core.blocks());
        let free = scans.iter().map(|scan| scan.free).sum();
        self.space.set_free(core, free);
        self.note_loss(core)
    }

    /// A read-only opening does without the parts of the table that cannot be read.
    fn note_loss<M: Memories>(&self, core: &Core<M>) -> Result<()> {
        let read = core.check_media();
        if read.is_err() && core.read_only {
            core.arena.store(header::TABLE_LOST, 1, Ordering::Relaxed);
            return Ok(());
        }
        read
    }

    /// Judges the entries of `[start, end)` and fills their part of the bitmap.
    fn scan_part<M: Memories>(
        &self,
        core: &Core<M>,
        judge: Judge<'_>,
        start: u64,
        end: u64,
    ) -> Result<Scan> {
        let mut scan = Scan::default();
        let mut bits = 0;
        for line in start / LINE_ENTRIES..end / LINE_ENTRIES {
            let before = core.pool.load_line(self.line_at(line));
            let mut words = before.map(MapWord);
            for (block, word) in (line * LINE_ENTRIES..).zip(&mut words) {
                if *word != MapWord::FREE && is_to_free(judge, *word) {
                    *word = MapWord::FREE;
                    core.set_word(self.entry_at(block as u32), word.0);
                }
            }
            if before != words.map(|word| word.0) {
                scan.stored.push(line);
            }
            let free = self.sort_line(core, line, &words, &mut scan)?;
            let shift = line % 8 * LINE_ENTRIES;
            bits |= u64::from(free) << shift;
            if shift == 56 || (line + 1) * LINE_ENTRIES == end {
                self.bitmap.fill(&core.arena, line * LINE_ENTRIES, bits);
                bits = 0;
            }
        }
        Ok(scan)
    }

    /// Records a line's displaced entries. Returns the bits of its free entries.
    fn sort_line<M: Memories>(
        &self,
        core: &Core<M>,
        line: u64,
        words: &[MapWord; 8],
        scan: &mut Scan,
    ) -> Result<u8> {
        let mut free = 0u8;
        for (i, &word) in words.iter().enumerate() {
            let block = line * LINE_ENTRIES + i as u64;
            if word == MapWord::FREE {
                free |= 1 << i;
                continue;
            }
            let key = word.0 & MapWord::KEY_MASK;
            if words[..i]
                .iter()
                .any(|other| other.0 & MapWord::KEY_MASK == key)
            {
                twice(core, block as u32)?;
            }
            if self.run_of(word.id(), word.logical()).home != line {
                scan.displaced.push(block as u32);
            }
        }
        scan.free += u64::from(free.count_ones());
        Ok(free)
    }

    /// Links displaced blocks into the overflow index.
    fn link_part<M: Memories>(&self, core: &Core<M>, holder: u64, blocks: &[u32]) -> Result<()> {
        for &block in blocks {
            let word = self.entry(core, block);
            let run = self.run_of(word.id(), word.logical());
            let key = word.0 & MapWord::KEY_MASK;
            let home_at = self.line_at(run.home);
            let at_home = core.pool.match_line(home_at, MapWord::KEY_MASK, key) != 0;
            self.overflow.raise(&core.arena, run.home);
            self.overflow.link(&core.arena, holder, run.hash, block);
            // If two threads link the same key, the second sees the first's link.
            let same = self.overflow.chain(&core.arena, run.hash).filter(|&other| {
                other != block && self.entry(core, other).0 & MapWord::KEY_MASK == key
            });
            if at_home || same.count() > 0 {
                twice(core, block)?;
            }
        }
        Ok(())
    }
}

/// Whether recovery frees the entry. LIMBO remains from a close or a crash before the grace period
/// was over; no operation reads such a block now.
fn is_to_free(judge: Judge<'_>, word: MapWord) -> bool {
    let state = word.state();
    state == MapState::Limbo
        || state == MapState::Free
        || judge(word.id(), word.logical(), state) == Verdict::Free
}

/// Rejects a table in which `block` is the second entry for one block of a file. A read-only
/// opening accepts it and finds one of the two.
fn twice<M: Memories>(core: &Core<M>, block: u32) -> Result<()> {
    if core.read_only {
        return Ok(());
    }
    Err(Error::damaged(
        "two table entries of one block of a file",
        Location::Block(u64::from(block)),
    ))
}

/// Runs `work` for each of `workers`; a single worker runs on this thread.
fn in_parallel<T: Send>(workers: u64, work: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    if workers == 1 {
        return Ok(vec![work(0)?]);
    }
    thread::scope(|scope| {
        let work = &work;
        let spawned: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        let joined = spawned.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect()
    })
}
