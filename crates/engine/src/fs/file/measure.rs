//! What both roads cost on this machine and this pool: a short measurement.
//!
//! Blocks are drawn at random from the data zone, whatever they hold: read once by looking a block up
//! and copying it from the pool, once through a window in which they lie side by side. The sample is
//! larger than the caches next to a core and than what their translations cover, because a file that
//! is read on and on is.

use std::hint::black_box;
use std::time::Instant;

use vellum_layout::{BLOCK_BYTES, ROOT_SLOT, RUN_BLOCKS};
use vellum_media::{Memories, Memory, Persistent, Window};

use super::Files;
use crate::mapping::Found;
use crate::reading::Costs;
use crate::reading::table::{CHUNK_BLOCKS, CHUNK_BYTES, Table};
use crate::slots::Op;

/// Blocks of the sample: 16 MiB.
const SAMPLE_BLOCKS: u64 = 8 * CHUNK_BLOCKS;
/// Pages of a long request.
const LONG_PAGES: u64 = 16;
/// Runs of a piece of the sample.
const CHUNK_RUNS: usize = (CHUNK_BLOCKS / RUN_BLOCKS) as usize;
/// Rounds, of which the median counts.
const ROUNDS: usize = 5;
/// Pages read in a round on either road with requests of one page, and with long ones.
const PAGES: u64 = 512;
/// A mapping id under which nothing is: a file's is its inode's number, and this is the root
/// directory's. Trees begin at the inode, so that it has to be one.
const NOBODY: u32 = ROOT_SLOT as u32;
/// The version that the sample's table has.
const VERSION: u64 = 0;

/// A sequence that visits everything and looks like chance.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Blocks of the pool, and the table in which they lie side by side.
struct Sample {
    blocks: u64,
    /// Pool offset of each run of [`RUN_BLOCKS`].
    runs: Vec<u64>,
    table: Table,
}

/// Measures; `None` if the pool is too small, or nothing can be laid.
pub(super) fn measure<M: Memories>(files: &Files<'_, M>, op: &Op<'_, M>) -> Option<Costs> {
    let sample = Sample::draw(files)?;
    let window = sample
        .table
        .reserve(|bytes| files.core.pool.window(bytes))?;
    let [run_ps, small_page_ps] = sample.lay(files, window)?;
    let look_up_ps = time_lookups(files, op);
    let [search, mmu] = sample.time_roads(files, op, window, 1);
    let [search_long, mmu_long] = sample.time_roads(files, op, window, LONG_PAGES);
    let large_page_ps = time_large_page(files, window)?;
    let page = |one: u64, long: u64| (long as i64 - one as i64) / (LONG_PAGES as i64 - 1);
    let (search_page_ps, mmu_page_ps) = (page(search, search_long), page(mmu, mmu_long));
    Some(Costs {
        search_request_ps: search as i64 - search_page_ps,
        search_page_ps,
        mmu_request_ps: mmu as i64 - mmu_page_ps,
        mmu_page_ps,
        look_up_ps,
        run_ps,
        small_page_ps,
        large_page_ps,
    })
}

fn picoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64 * 1000
}

fn median(times: impl Into<Vec<u64>>) -> u64 {
    let mut times = times.into();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

impl Sample {
    fn draw<M: Memories>(files: &Files<'_, M>) -> Option<Self> {
        let geometry = &files.core.geometry;
        let blocks = SAMPLE_BLOCKS.min(geometry.zone_blocks / CHUNK_BLOCKS * CHUNK_BLOCKS);
        let zone_runs = geometry.zone_blocks / RUN_BLOCKS;
        let mut draw = Draw(1);
        let runs = (0..blocks / RUN_BLOCKS)
            .map(|_| geometry.data_at + draw.below(zone_runs) * RUN_BLOCKS * BLOCK_BYTES);
        let runs: Vec<_> = runs.collect();
        let table = Table::for_size(blocks * BLOCK_BYTES / 2).filter(|_| blocks > 0)?;
        Some(Self {
            blocks,
            runs,
            table,
        })
    }

    /// Lays the sample; gives what a run and the translation of a page cost.
    fn lay<M: Memories>(&self, files: &Files<'_, M>, window: &Window) -> Option<[u64; 2]> {
        let pool = &files.core.pool;
        let run_bytes = RUN_BLOCKS * BLOCK_BYTES;
        let mut bytes = [0; (RUN_BLOCKS * BLOCK_BYTES) as usize];
        // The pool's own pages are there.
        self.runs.iter().for_each(|&at| pool.read(at, &mut bytes));
        if !window.take_areas(self.runs.len() as u64 + 1) {
            return None;
        }
        // First, because a table that is made new is empty.
        let mut filling = self.table.try_fill()?;
        self.table.renew(&mut filling, VERSION).then_some(())?;
        let (mut run_ps, mut small_page_ps) = (Vec::new(), Vec::new());
        for (number, runs) in (0..).zip(self.runs.chunks(CHUNK_RUNS)) {
            let at = number * CHUNK_BYTES;
            let start = Instant::now();
            for (i, &from) in (0..).zip(runs) {
                pool.lay(window, at + i * run_bytes, from, run_bytes).ok()?;
            }
            run_ps.push(picoseconds(start) / runs.len() as u64);
            let start = Instant::now();
            window.fill_in(at, CHUNK_BYTES);
            small_page_ps.push(picoseconds(start) / CHUNK_BLOCKS);
            self.table.chunk(number)?.add(0, CHUNK_BLOCKS);
        }
        let [run_ps, small_page_ps] = [run_ps, small_page_ps].map(median);
        Some([run_ps, small_page_ps])
    }

    /// What a request of `pages` costs by search and through the window.
    fn time_roads<M: Memories>(
        &self,
        files: &Files<'_, M>,
        op: &Op<'_, M>,
        window: &Window,
        pages: u64,
    ) -> [u64; 2] {
        let mut out = vec![0; (pages * BLOCK_BYTES) as usize];
        let requests = PAGES / pages;
        let (mut by_search, mut by_window) = ([0; ROUNDS], [0; ROUNDS]);
        for round in 0..ROUNDS {
            // Other places for each, so that neither finds in the caches what the other brought there.
            let places = |road: u64| {
                let mut draw = Draw((round as u64 * 2 + road) * LONG_PAGES + pages);
                let slots = self.blocks / pages;
                (0..requests).map(move |_| draw.below(slots) * pages)
            };
            let start = Instant::now();
            for first in places(0) {
                self.by_search(files, op, first, &mut out);
            }
            by_search[round] = picoseconds(start) / requests;
            let start = Instant::now();
            for first in places(1) {
                if black_box(&self.table).holds(VERSION, first * BLOCK_BYTES, out.len() as u64) {
                    files
                        .core
                        .pool
                        .read_window(window, first * BLOCK_BYTES, &mut out);
                }
            }
            by_window[round] = picoseconds(start) / requests;
        }
        let (search, mmu) = (median(by_search), median(by_window));
        // What is within the measurement's error saves nothing.
        [
            search,
            if mmu > search / 20 * 19 {
                mmu.max(search)
            } else {
                mmu
            },
        ]
    }

    fn by_search<M: Memories>(
        &self,
        files: &Files<'_, M>,
        op: &Op<'_, M>,
        first: u64,
        out: &mut [u8],
    ) {
        let pages = out.len() as u64 / BLOCK_BYTES;
        let mut found = [Found::Hole; LONG_PAGES as usize];
        let found = &mut found[..pages as usize];
        let answer = files.mapping.lookup(op, NOBODY, first as u32, found);
        let _ = black_box((answer, &found));
        let mut rest = out;
        let mut block = first;
        while !rest.is_empty() {
            let skip = block % RUN_BLOCKS * BLOCK_BYTES;
            let here = rest.len().min((RUN_BLOCKS * BLOCK_BYTES - skip) as usize);
            let (now, later) = rest.split_at_mut(here);
            let at = self.runs[(block / RUN_BLOCKS) as usize] + skip;
            files.core.pool.read(at, now);
            block += here as u64 / BLOCK_BYTES;
            rest = later;
        }
    }
}

/// What looking up a block costs while a whole piece is looked up.
fn time_lookups<M: Memories>(files: &Files<'_, M>, op: &Op<'_, M>) -> u64 {
    let mut found = [Found::Hole; CHUNK_BLOCKS as usize];
    let mut times = [0; ROUNDS];
    for (round, time) in times.iter_mut().enumerate() {
        let start = Instant::now();
        let first = round as u32 * CHUNK_BLOCKS as u32;
        let answer = files.mapping.lookup(op, NOBODY, first, &mut found);
        let _ = black_box((answer, &found));
        *time = picoseconds(start) / CHUNK_BLOCKS;
    }
    median(times)
}

/// What filling in a piece costs that is aligned to a large page in pool and window.
fn time_large_page<M: Memories>(files: &Files<'_, M>, window: &Window) -> Option<u64> {
    let from = files.core.geometry.data_at.next_multiple_of(CHUNK_BYTES);
    let mut times = [0; ROUNDS];
    for time in &mut times {
        files.core.pool.lay(window, 0, from, CHUNK_BYTES).ok()?;
        let start = Instant::now();
        window.fill_in(0, CHUNK_BYTES);
        *time = picoseconds(start);
    }
    Some(median(times))
}

#[cfg(test)]
mod tests {
    use vellum_layout::MappingKind;

    use super::*;
    use crate::fs::file::tests::files;
    use crate::mapping::harness::Harness;

    /// What is measured is what would be read.
    #[test]
    fn the_sample_lies_in_the_window_as_in_the_pool() {
        let h = Harness::new(8 << 20);
        let zone = h.core.geometry.zone_blocks * BLOCK_BYTES;
        let bytes: Vec<u8> = (0..zone).map(|i| (i / 64 % 251) as u8).collect();
        h.core.pool.write(h.core.geometry.data_at, &bytes);
        let files = files(&h);
        let sample = Sample::draw(&files).unwrap();
        let reserve = |bytes| h.core.pool.window(bytes);
        let window = sample.table.reserve(reserve).unwrap();
        sample.lay(&files, window).unwrap();
        assert!(
            sample
                .table
                .holds_all(VERSION, 0, sample.blocks * BLOCK_BYTES)
        );
        let op = h.core.op_begin();
        for first in (0..sample.blocks - LONG_PAGES).step_by(13) {
            let mut shown = [0; (LONG_PAGES * BLOCK_BYTES) as usize];
            let mut found = shown;
            h.core
                .pool
                .read_window(window, first * BLOCK_BYTES, &mut shown);
            sample.by_search(&files, &op, first, &mut found);
            assert!(shown == found, "from block {first}");
        }
        let costs = measure(&files, &op).unwrap();
        assert!(costs.run_ps > 0 && costs.search_ps(1) > 0 && costs.mmu_ps(1) > 0);
    }

    #[test]
    fn measuring_harms_no_mapping() {
        for mapping in MappingKind::ALL {
            let h = Harness::of(mapping, 8 << 20);
            let costs = measure(&files(&h), &h.core.op_begin());
            assert!(costs.is_some(), "{mapping:?}");
            let damaged = (h.core.pool.damaged(), h.core.arena.damaged());
            assert_eq!(damaged, (None, None), "{mapping:?}");
        }
    }
}
