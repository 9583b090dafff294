//! Chooses the path of a read, and builds page tables: joins `reading` with the mapping.

use std::ops::Range;
use std::sync::atomic::Ordering;

use vellum_layout::BLOCK_BYTES;
use vellum_media::{FileBytes, Memories, Memory};

use super::measure::Cold;
use super::translation::Seen;
use super::{Files, MapRoot};
use crate::core::cachelet::{Cachelet, field};
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::Found;
use crate::reading::table::{CHUNK_BLOCKS, CHUNK_BYTES, Chunk, Table, pieces};
use crate::reading::{Costs, Layout, Next, Pattern, ReadPath, Reading, Rule, State};

/// Bytes of a large page.
const LARGE_BYTES: u64 = CHUNK_BYTES;

/// The read paths of an open file.
#[derive(Clone, Copy)]
pub(crate) struct ReadPaths<'a> {
    pub(crate) reading: &'a Reading,
    pub(crate) path: &'a ReadPath,
    /// The rule that serves this request.
    pub(crate) rule: Rule,
}

/// The path that serves a request.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    /// By search.
    Search,
    /// Through the page table, where it has the blocks.
    Table(Choice<'a>),
}

/// A page table, and the inputs of the decision to map more blocks into it.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) table: &'a Table,
    rule: Rule,
    costs: &'a Costs,
    /// Pages of this request.
    request_pages: u64,
    /// How the file is used.
    pattern: Pattern,
}

/// Blocks of a piece that are contiguous in file and pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first block, counted in the piece.
    pub(super) first: u64,
    pub(super) blocks: u64,
    /// Its offset in the pool.
    pub(super) at: u64,
}

/// Divides the blocks of a piece that are not `present` into runs. `blocks` has the pool offset of
/// each block, or 0.
pub(super) fn runs_of(blocks: &[u64], present: impl Fn(u64) -> bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (block, &at) in (0..).zip(blocks) {
        if at == 0 || present(block) {
            continue;
        }
        match runs.last_mut() {
            Some(run)
                if run.first + run.blocks == block && run.at + run.blocks * BLOCK_BYTES == at =>
            {
                run.blocks += 1;
            }
            _ => runs.push(Run {
                first: block,
                blocks: 1,
                at,
            }),
        }
    }
    runs
}

/// The layout that determines the cost of mapping these runs.
fn layout_of(runs: &[Run]) -> Layout {
    let large = |run: &&Run| run.blocks == CHUNK_BLOCKS && run.at.is_multiple_of(LARGE_BYTES);
    let large_pages = runs.iter().filter(large).count() as u64;
    let blocks: u64 = runs.iter().map(|run| run.blocks).sum();
    Layout {
        looked_up: CHUNK_BLOCKS,
        runs: runs.len() as u64,
        small_pages: blocks - large_pages * CHUNK_BLOCKS,
        large_pages,
    }
}

impl<M: Memories> Files<'_, M> {
    /// Chooses the path of a request of `pages`.
    pub(super) fn path<'r>(
        &self,
        op: &Op<'_, M>,
        paths: ReadPaths<'r>,
        cachelet: Cachelet,
        pages: u64,
    ) -> Path<'r> {
        let ReadPaths {
            reading,
            path,
            rule,
        } = paths;
        match path.next((reading, rule), self.core, cachelet, pages) {
            Next::Search => Path::Search,
            Next::Measure => {
                let bytes = (pages * BLOCK_BYTES) as usize;
                // Do not measure for a request that always uses search.
                if !self.core.pool.pays_by_call(bytes) {
                    let measure = || self.measure(op, Some(cachelet), Cold::Leave);
                    reading.learn(&self.core.arena, measure);
                }
                Path::Search
            }
            Next::Look(table, costs, pattern) => Path::Table(Choice {
                table,
                rule,
                costs,
                request_pages: pages,
                pattern,
            }),
        }
    }

    /// Copies bytes of a file, each piece by its best path.
    pub(super) fn copy_by(
        &self,
        op: &Op<'_, M>,
        file: Seen<'_>,
        path: Path<'_>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let Path::Table(choice) = path else {
            return self.copy_out(op, file, offset, out);
        };
        // If search is the better path for requests of this size, it is always used. Through page
        // tables, bytes that are not in memory are faulted in piece by piece; for calls the kernel
        // reads ahead.
        let saves_nothing = || choice.costs.saving_ps(choice.request_pages) == 0;
        let is_for_search = || self.core.pool.pays_by_call(out.len()) || saves_nothing();
        if choice.rule != Rule::Mmu && is_for_search() {
            return self.copy_out(op, file, offset, out);
        }
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let here = (CHUNK_BYTES - at % CHUNK_BYTES).min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(here as usize);
            let is_there = self.has_or_buys(op, file, choice, at, here);
            match choice.table.window().filter(|_| is_there) {
                Some(window) => self.core.pool.read_window(window, at, now),
                None => self.copy_out(op, file, at, now)?,
            }
            (at, rest) = (at + here, later);
        }
        Ok(())
    }

    /// Whether all bytes are present, or were bought now.
    pub(super) fn all_there(
        &self,
        op: &Op<'_, M>,
        file: Seen<'_>,
        choice: Choice<'_>,
        bytes: &Range<u64>,
    ) -> bool {
        pieces(bytes.start, bytes.end - bytes.start)
            .all(|(at, len)| self.has_or_buys(op, file, choice, at, len))
    }

    /// Whether a piece is present, or was bought now.
    fn has_or_buys(
        &self,
        op: &Op<'_, M>,
        file: Seen<'_>,
        choice: Choice<'_>,
        at: u64,
        len: u64,
    ) -> bool {
        let holds = || choice.table.holds(file.version, at, len);
        holds() || self.may_buy(op, file, choice, at, len) && holds()
    }

    /// Lets the rule decide about a piece that is not completely present. Returns whether anything
    /// was bought.
    fn may_buy(
        &self,
        op: &Op<'_, M>,
        file: Seen<'_>,
        choice: Choice<'_>,
        at: u64,
        len: u64,
    ) -> bool {
        let number = at / CHUNK_BYTES;
        let chunk = choice.table.chunk(number);
        let Some(chunk) = chunk.filter(|_| file.version & 1 == 0) else {
            return false;
        };
        let pages = crate::reading::pages_of(at, len);
        let saving = choice.costs.saving_ps(choice.request_pages);
        let known = chunk.price_ps.load(Ordering::Relaxed);
        let least = choice.costs.least_price_ps(CHUNK_BLOCKS);
        let state = State {
            pattern: choice.pattern,
            forgone_ps: chunk.forgone_ps.load(Ordering::Relaxed),
            saving_ps: saving * pages / choice.request_pages.max(1),
            price_ps: if known > 0 { known } else { least },
        };
        if choice.rule.buys(state) && self.buy(op, file, choice, number, state) {
            return true;
        }
        let forgone = state.forgone_ps.saturating_add(state.saving_ps);
        chunk.forgone_ps.store(forgone, Ordering::Relaxed);
        false
    }

    /// Looks a piece up, and maps its missing blocks if the rule accepts the price.
    fn buy(
        &self,
        op: &Op<'_, M>,
        file: Seen<'_>,
        choice: Choice<'_>,
        number: u64,
        state: State,
    ) -> bool {
        let table = choice.table;
        let (Some(chunk), Some(mut filling)) = (table.chunk(number), table.try_fill()) else {
            return false;
        };
        if !table.renew(&mut filling, file.version) {
            return false;
        }
        let blocks = match filling.surveys.remove(&number) {
            Some(known) => known,
            None => match self.survey(op, file.cachelet, number * CHUNK_BLOCKS) {
                Ok(found) => found,
                // The search that replaces it reports errors.
                Err(_) => return false,
            },
        };
        let runs = runs_of(&blocks, |block| chunk.has_block(block));
        if runs.is_empty() {
            chunk.settle();
            return false;
        }
        let price_ps = choice.costs.price_ps(layout_of(&runs));
        chunk.price_ps.store(price_ps, Ordering::Relaxed);
        let is_in_memory = |run: &Run| self.core.pool.is_in_memory(run.at);
        // The price does not include waiting for a disk.
        let has_price = || choice.rule == Rule::Mmu || runs.iter().all(is_in_memory);
        if !choice.rule.buys(State { price_ps, ..state }) || !has_price() {
            filling.surveys.insert(number, blocks);
            return false;
        }
        self.lay(file, table, (number, chunk), &runs)
    }

    /// Pool offsets of the blocks of a piece, 0 for those without bytes.
    pub(super) fn survey(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        first: u64,
    ) -> Result<Box<[u64]>> {
        let mut found = [Found::Hole; CHUNK_BLOCKS as usize];
        if let Some((_, id)) = MapRoot(self.core.get(cachelet, field::ROOT)).get() {
            self.mapping.lookup(op, id, first as u32, &mut found)?;
        }
        Ok(found
            .into_iter()
            .map(|found| self.place_of(found))
            .collect())
    }

    /// The pool offset of a block, or 0 if it has no bytes.
    pub(super) fn place_of(&self, found: Found) -> u64 {
        match found {
            Found::Mapped(block) => self.mapping.data_at(block),
            _ => 0,
        }
    }

    /// Maps runs of a piece into the window. Returns whether they are present now.
    fn lay(
        &self,
        file: Seen<'_>,
        table: &Table,
        (number, chunk): (u64, &Chunk),
        runs: &[Run],
    ) -> bool {
        let pool = &self.core.pool;
        let Some(window) = table.reserve(|bytes| pool.window(bytes)) else {
            return false;
        };
        let start = number * CHUNK_BYTES;
        let lay = |run: &Run| {
            let at = start + run.first * BLOCK_BYTES;
            pool.lay(window, at, run.at, run.blocks * BLOCK_BYTES)
        };
        // Each run is a memory area, and so is a gap before it.
        if !window.take_areas(runs.len() as u64 + gaps(runs))
            || runs.iter().try_for_each(lay).is_err()
        {
            table.give_up();
            return false;
        }
        window.fill_in(start, CHUNK_BYTES);
        self.core.arena.load_barrier();
        if self.core.get(file.cachelet, field::VERSION) != file.version {
            return false;
        }
        for run in runs {
            chunk.add(run.first, run.blocks);
        }
        chunk.settle();
        true
    }

    /// Measures both paths on this pool, with a file if one is given.
    pub(crate) fn measure(
        &self,
        op: &Op<'_, M>,
        file: Option<Cachelet>,
        cold: Cold,
    ) -> Option<Costs> {
        super::measure::measure(self, op, file, cold)
    }
}

/// Number of gaps of a piece between and around runs. Each is a memory area of its own.
pub(super) fn gaps(runs: &[Run]) -> u64 {
    let mut end = 0;
    let mut gaps = 0;
    for run in runs {
        gaps += u64::from(run.first > end);
        end = run.first + run.blocks;
    }
    gaps + u64::from(end < CHUNK_BLOCKS)
}

#[cfg(test)]
mod tests {
    use vellum_layout::MappingKind;

    use super::super::Translation;
    use super::*;
    use crate::fs::Allocate;
    use crate::fs::file::tests::{MIB, files};
    use crate::mapping::harness::Harness;

    fn blocks(at: &[u64]) -> Vec<u64> {
        at.iter().map(|n| n * BLOCK_BYTES).collect()
    }

    #[test]
    fn neighbours_in_file_and_pool_make_one_run() {
        let runs = runs_of(&blocks(&[7, 8, 0, 9, 10, 12, 13]), |block| block == 6);
        let run = |first, blocks, n| Run {
            first,
            blocks,
            at: n * BLOCK_BYTES,
        };
        assert_eq!(runs, [run(0, 2, 7), run(3, 2, 9), run(5, 1, 12)]);
        assert_eq!(gaps(&runs), 2);
        let layout = layout_of(&runs);
        assert_eq!(
            (layout.runs, layout.small_pages, layout.large_pages),
            (3, 5, 0)
        );
    }

    #[test]
    fn a_whole_aligned_piece_is_one_large_page() {
        let all: Vec<_> = (CHUNK_BLOCKS..2 * CHUNK_BLOCKS).collect();
        let runs = runs_of(&blocks(&all), |_| false);
        let layout = layout_of(&runs);
        assert_eq!(
            (layout.runs, layout.small_pages, layout.large_pages),
            (1, 0, 1)
        );
        assert_eq!(gaps(&runs), 0);
        let all: Vec<_> = (1..=CHUNK_BLOCKS).collect();
        let layout = layout_of(&runs_of(&blocks(&all), |_| false));
        assert_eq!(
            (layout.runs, layout.small_pages, layout.large_pages),
            (1, CHUNK_BLOCKS, 0)
        );
    }

    #[test]
    fn the_pieces_of_a_large_file_are_large_pages() {
        let mappings = MappingKind::ALL.into_iter();
        for mapping in mappings.filter(|mapping| !mapping.has_home_lines()) {
            let h = Harness::of(mapping, 32 * MIB);
            let (f, t) = (files(&h), Translation::new(true));
            let (written, ahead) = (h.make_file(5), h.make_file(6));
            let data = vec![7; MIB as usize];
            f.allocate(ahead, Allocate::Grow, 0, 8 * MIB).unwrap();
            for mib in 0..8 {
                f.write_at(written, &t, mib * MIB, &data).unwrap();
                f.write_at(ahead, &t, (7 - mib) * MIB, &data).unwrap();
            }
            let op = h.core.op_begin().unwrap();
            for (file, piece) in (0..8).map(|i| ([written, ahead][i / 4], i as u64 % 4)) {
                let blocks = f.survey(&op, file, piece * CHUNK_BLOCKS).unwrap();
                let layout = layout_of(&runs_of(&blocks, |_| false));
                let found = (layout.runs, layout.large_pages, layout.small_pages);
                assert_eq!(found, (1, 1, 0), "{mapping:?}, piece {piece}");
            }
        }
    }
}
