//! Measures the costs of both read paths on this machine and this pool.
//!
//! Blocks of a file are read at random: once by search, as every read finds them, and once through
//! a window in which they lie as in the file's page table. If the file is large enough, the sample
//! is larger than the caches next to a core and than what their translations cover, because a file
//! that is read for long mostly is. The costs of runs and pages of a table are measured with runs
//! drawn from the sample. Without a file, the sample is blocks of the data segment, whatever they
//! hold, beside searches that find nothing. Data on a disk are measured while they are in memory,
//! or not at all. Otherwise the measurement would time the disk, in a reader that waits for it.

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::Instant;

use vellum_layout::{BLOCK_BYTES, MapRoot, ROOT_SLOT, RUN_BLOCKS};
use vellum_media::{FileBytes, Memories, Memory, Window};

use super::read_path::{gaps, runs_of};
use super::translation::Seen;
use super::{Files, Translation};
use crate::core::cachelet::{Cachelet, field};
use crate::core::slots::Op;
use crate::mapping::{Found, MapId};
use crate::reading::table::{CHUNK_BLOCKS, CHUNK_BYTES, Table};
use crate::reading::{Costs, MEASURED_BLOCKS_MIN};

/// Pieces of the sample: 16 MiB.
const SAMPLE_PIECES: u64 = 8;
/// Pieces by which the cost of building a page table is measured.
const PRICED_PIECES: u64 = 3;
/// Pages of a long request.
const LONG_PAGES: u64 = MEASURED_BLOCKS_MIN;
/// Number of rounds. The median counts.
const ROUNDS: usize = 5;
/// Pages read in a round on either path, with requests of one page and with long ones.
const PAGES: u64 = 512;
/// A mapping id without blocks, for measurements without a file. The mapping id of a file is its
/// inode number; this one is the root directory's. Trees begin at the inode, so the inode has to
/// exist.
const NOBODY: MapId = ROOT_SLOT as MapId;
/// The version of the table while prices are measured.
const PRICED: u64 = 0;
/// Its version while it shows the sample.
const SHOWN: u64 = 2;

/// A pseudorandom sequence that visits everything.
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

/// The file that is measured.
struct Subject {
    cachelet: Cachelet,
    id: MapId,
    /// The mapping version when the sample was drawn.
    version: u64,
    translation: Translation,
}

/// 2 MiB of a file, or of arbitrary blocks.
struct Piece {
    /// Its number in the file.
    number: u64,
    /// Pool offset of each block. 0: the block is not read.
    blocks: Box<[u64]>,
}

/// The pieces that are read. The window shows them one behind the other.
struct Sample {
    /// The file of the pieces.
    file: Option<Subject>,
    pieces: Vec<Piece>,
    /// The first blocks, in the window, of stretches of [`LONG_PAGES`] that can be read as a whole.
    stretches: Vec<u64>,
}

/// How to treat a sample that lies on a disk and is not in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cold {
    /// Measure nothing.
    Leave,
    /// Read it.
    Read,
}

/// Measures the costs, with a file if one is given. Returns `None` if the pool or the file is too
/// small, its bytes are not all in memory, the sample cannot be mapped into the window, or the file
/// is truncated meanwhile.
pub(super) fn measure<M: Memories>(
    files: &Files<'_, M>,
    op: &Op<'_, M>,
    file: Option<Cachelet>,
    cold: Cold,
) -> Option<Costs> {
    op.is_whole().then_some(())?;
    let sample = match file {
        Some(file) => Sample::of_file(files, op, file),
        None => Sample::of_segment(files, SAMPLE_PIECES),
    }?;
    let scattered = sample.shuffled(PRICED_PIECES)?;
    let table = Table::for_size(SAMPLE_PIECES * CHUNK_BYTES / 2)?;
    let window = table.reserve(|bytes| files.core.pool.window(bytes))?;
    if cold == Cold::Read {
        sample.touch(files);
    }
    sample.is_in_memory(files).then_some(())?;
    let [run_ps, small_page_ps] = scattered.lay(files, &table, window, PRICED)?;
    let large_page_ps = time_large_page(files, window, small_page_ps)?;
    sample.lay(files, &table, window, SHOWN)?;
    let look_up_ps = sample.time_lookups(files, op);
    let [search, mmu] = sample.time_paths(files, op, &table, window, 1)?;
    let [search_long, mmu_long] = sample.time_paths(files, op, &table, window, LONG_PAGES)?;
    let page = |one: u64, long: u64| (long as i64 - one as i64) / (LONG_PAGES as i64 - 1);
    let (search_page_ps, mmu_page_ps) = (page(search, search_long), page(mmu, mmu_long));
    sample.is_current(files).then_some(Costs {
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
    /// Samples pieces from all parts of a file.
    fn of_file<M: Memories>(
        files: &Files<'_, M>,
        op: &Op<'_, M>,
        cachelet: Cachelet,
    ) -> Option<Self> {
        let core = files.core;
        let version = core.get(cachelet, field::VERSION);
        let (_, id) = MapRoot(core.get(cachelet, field::ROOT)).get()?;
        // Bytes behind the last whole block are not read.
        let end = files.size(cachelet) / BLOCK_BYTES;
        let all = end.div_ceil(CHUNK_BLOCKS);
        let taken = all.min(SAMPLE_PIECES);
        let mut draw = Draw(1);
        let pieces = (0..taken).map(|i| {
            let (from, to) = (i * all / taken, (i + 1) * all / taken);
            let number = from + draw.below(to - from);
            let first = number * CHUNK_BLOCKS;
            let mut blocks = files.survey(op, cachelet, first).ok()?;
            blocks[(end - first).min(CHUNK_BLOCKS) as usize..].fill(0);
            Some(Piece { number, blocks })
        });
        let pieces = pieces.collect::<Option<_>>()?;
        let subject = Subject {
            cachelet,
            id,
            version,
            translation: Translation::new(true),
        };
        Self::of(Some(subject), pieces).filter(|_| version & 1 == 0)
    }

    /// Samples runs of blocks of the data segment, whatever they hold.
    fn of_segment<M: Memories>(files: &Files<'_, M>, pieces: u64) -> Option<Self> {
        let geometry = &files.core.geometry;
        let segment_runs = geometry.segment_blocks / RUN_BLOCKS;
        let mut draw = Draw(1);
        let mut run = || {
            let at = geometry.data_at + draw.below(segment_runs) * RUN_BLOCKS * BLOCK_BYTES;
            (0..RUN_BLOCKS).map(move |i| at + i * BLOCK_BYTES)
        };
        let pieces = (0..pieces.min(geometry.segment_blocks / CHUNK_BLOCKS)).map(|number| {
            let blocks = (0..CHUNK_BLOCKS / RUN_BLOCKS).flat_map(|_| run()).collect();
            Piece { number, blocks }
        });
        Self::of(None, pieces.collect())
    }

    /// A sample of these pieces, if there are enough blocks to read.
    fn of(file: Option<Subject>, pieces: Vec<Piece>) -> Option<Self> {
        let blocks = pieces.iter().flat_map(|piece| piece.blocks.iter());
        let blocks: Vec<_> = blocks.copied().collect();
        let stretches = (0..)
            .step_by(LONG_PAGES as usize)
            .zip(blocks.chunks(LONG_PAGES as usize))
            .filter(|(_, blocks)| !blocks.contains(&0))
            .map(|(first, _)| first);
        let stretches: Vec<_> = stretches.collect();
        (!stretches.is_empty()).then_some(Self {
            file,
            pieces,
            stretches,
        })
    }

    /// As many pieces, made of runs of this sample in pseudorandom order.
    fn shuffled(&self, pieces: u64) -> Option<Self> {
        let all = self
            .pieces
            .iter()
            .flat_map(|piece| piece.blocks.chunks(RUN_BLOCKS as usize));
        let runs: Vec<&[u64]> = all.filter(|run| !run.contains(&0)).collect();
        let mut draw = Draw(1);
        let mut run = || runs[draw.below(runs.len() as u64) as usize];
        let pieces = (0..pieces).map(|number| {
            let blocks = (0..CHUNK_BLOCKS / RUN_BLOCKS).flat_map(|_| run());
            let blocks = blocks.copied().collect();
            Piece { number, blocks }
        });
        Self::of(None, pieces.collect())
    }

    /// Pool offsets of the blocks that are read.
    fn places(&self) -> impl Iterator<Item = u64> {
        let blocks = self.pieces.iter().flat_map(|piece| piece.blocks.iter());
        blocks.copied().filter(|&at| at != 0)
    }

    /// Reads the sample into memory.
    fn touch<M: Memories>(&self, files: &Files<'_, M>) {
        for at in self.places() {
            black_box(files.core.pool.load(at, Ordering::Relaxed));
        }
    }

    /// Whether the whole sample is in memory, so that no reader waits for a disk.
    fn is_in_memory<M: Memories>(&self, files: &Files<'_, M>) -> bool {
        self.places().all(|at| files.core.pool.is_in_memory(at))
    }

    /// Whether the file's mapping has not changed since the sample was drawn.
    fn is_current<M: Memories>(&self, files: &Files<'_, M>) -> bool {
        files.core.arena.load_barrier();
        let version = |file: &Subject| files.core.get(file.cachelet, field::VERSION);
        (self.file.as_ref()).is_none_or(|file| version(file) == file.version)
    }

    /// Maps the sample into the window. Returns the costs of mapping a run and of filling in a
    /// page.
    fn lay<M: Memories>(
        &self,
        files: &Files<'_, M>,
        table: &Table,
        window: &Window,
        version: u64,
    ) -> Option<[u64; 2]> {
        let pool = &files.core.pool;
        // This comes first, because a recreated table is empty.
        let mut filling = table.try_fill()?;
        table.renew(&mut filling, version).then_some(())?;
        let (mut run_ps, mut small_page_ps) = (Vec::new(), Vec::new());
        for (number, piece) in (0..).zip(&self.pieces) {
            // Make the pool's own pages present.
            for &at in piece.blocks.iter().filter(|&&at| at != 0) {
                black_box(pool.load(at, Ordering::Relaxed));
            }
            let runs = runs_of(&piece.blocks, |_| false);
            if !window.take_areas(runs.len() as u64 + gaps(&runs)) {
                return None;
            }
            let at = number * CHUNK_BYTES;
            let start = Instant::now();
            for run in &runs {
                let to = at + run.first * BLOCK_BYTES;
                let bytes = run.blocks * BLOCK_BYTES;
                pool.lay(window, to, run.at, bytes).ok()?;
            }
            run_ps.push(picoseconds(start) / (runs.len() as u64).max(1));
            let start = Instant::now();
            window.fill_in(at, CHUNK_BYTES);
            small_page_ps.push(picoseconds(start) / CHUNK_BLOCKS);
            let chunk = table.chunk(number)?;
            runs.iter().for_each(|run| chunk.add(run.first, run.blocks));
        }
        Some([run_ps, small_page_ps].map(median))
    }

    /// The first blocks of requests of `pages`, in the window. They differ for each `salt`.
    fn requests(&self, salt: u64, pages: u64) -> impl Iterator<Item = u64> {
        let mut draw = Draw(salt * LONG_PAGES + pages);
        (0..PAGES / pages).map(move |_| {
            let stretch = self.stretches[draw.below(self.stretches.len() as u64) as usize];
            stretch + draw.below(LONG_PAGES / pages) * pages
        })
    }

    /// The costs of a request of `pages` by search and through the window.
    fn time_paths<M: Memories>(
        &self,
        files: &Files<'_, M>,
        op: &Op<'_, M>,
        table: &Table,
        window: &Window,
        pages: u64,
    ) -> Option<[u64; 2]> {
        let mut out = vec![0; (pages * BLOCK_BYTES) as usize];
        let asked = PAGES / pages;
        let (mut by_search, mut by_window) = ([0; ROUNDS], [0; ROUNDS]);
        for round in 0..ROUNDS {
            // The two paths read different blocks, so that neither finds in the caches what the
            // other loaded.
            let salt = round as u64 * 2;
            let start = Instant::now();
            for first in self.requests(salt, pages) {
                self.by_search(files, op, first, &mut out)?;
            }
            by_search[round] = picoseconds(start) / asked;
            let start = Instant::now();
            for first in self.requests(salt + 1, pages) {
                let at = first * BLOCK_BYTES;
                if black_box(table).holds(SHOWN, at, out.len() as u64) {
                    files.core.pool.read_window(window, at, &mut out);
                }
            }
            by_window[round] = picoseconds(start) / asked;
        }
        let (search, mmu) = (median(by_search), median(by_window));
        // A difference within the measurement's error saves nothing.
        let is_better = mmu <= search / 20 * 19;
        Some([search, if is_better { mmu } else { mmu.max(search) }])
    }

    /// Reads by search what the window shows from block `first` on. `None`: it cannot be read.
    fn by_search<M: Memories>(
        &self,
        files: &Files<'_, M>,
        op: &Op<'_, M>,
        first: u64,
        out: &mut [u8],
    ) -> Option<()> {
        let piece = &self.pieces[(first / CHUNK_BLOCKS) as usize];
        let place = first % CHUNK_BLOCKS;
        let Some(file) = &self.file else {
            search_in_vain(files, op, first, &piece.blocks[place as usize..], out);
            return Some(());
        };
        let offset = (piece.number * CHUNK_BLOCKS + place) * BLOCK_BYTES;
        let of = Seen {
            cachelet: file.cachelet,
            translation: &file.translation,
            version: file.version,
        };
        files.copy_out(op, of, offset, out).ok()
    }

    /// The cost of looking up a block when a whole piece is looked up.
    fn time_lookups<M: Memories>(&self, files: &Files<'_, M>, op: &Op<'_, M>) -> u64 {
        let id = self.file.as_ref().map_or(NOBODY, |file| file.id);
        let mut found = [Found::Hole; CHUNK_BLOCKS as usize];
        let mut times = [0; ROUNDS];
        for (time, piece) in times.iter_mut().zip(self.pieces.iter().cycle()) {
            let start = Instant::now();
            let first = (piece.number * CHUNK_BLOCKS) as u32;
            let answer = files.mapping.lookup(op, id, first, &mut found);
            let _ = black_box((answer, &found));
            *time = picoseconds(start) / CHUNK_BLOCKS;
        }
        median(times)
    }
}

/// Searches for blocks from `first` on that do not exist, and copies the runs at `blocks`.
fn search_in_vain<M: Memories>(
    files: &Files<'_, M>,
    op: &Op<'_, M>,
    first: u64,
    blocks: &[u64],
    out: &mut [u8],
) {
    let mut found = [Found::Hole; LONG_PAGES as usize];
    let found = &mut found[..out.len() / BLOCK_BYTES as usize];
    files.mapping.prefetch(files.core, NOBODY, first as u32, 0);
    let answer = files.mapping.lookup(op, NOBODY, first as u32, found);
    let _ = black_box((answer, &found));
    let run_bytes = |block: u64| (RUN_BLOCKS - block % RUN_BLOCKS) * BLOCK_BYTES;
    let (mut done, mut rest) = (0, out);
    while !rest.is_empty() {
        let here = rest.len().min(run_bytes(first + done) as usize);
        let (now, later) = rest.split_at_mut(here);
        files.core.pool.read(blocks[done as usize], now);
        (done, rest) = (done + here as u64 / BLOCK_BYTES, later);
    }
}

/// The cost of filling in a piece that is aligned to a large page in pool and window. If the piece
/// is not in memory, the cost of its small pages.
fn time_large_page<M: Memories>(
    files: &Files<'_, M>,
    window: &Window,
    small_page_ps: u64,
) -> Option<u64> {
    let from = files.core.geometry.data_at.next_multiple_of(CHUNK_BYTES);
    let mut pages = (from..from + CHUNK_BYTES).step_by(BLOCK_BYTES as usize);
    if !pages.all(|at| files.core.pool.is_in_memory(at)) {
        return Some(small_page_ps * CHUNK_BLOCKS);
    }
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
    use vellum_layout::{GeometryRequest, MappingKind};
    use vellum_media::{Simulated, count};

    use super::*;
    use crate::fs::file::Allocate;
    use crate::fs::file::tests::files;
    use crate::mapping::harness::Harness;

    const MIB: u64 = 1 << 20;

    /// A pool with a file in which hardly two blocks are contiguous.
    fn fragmented(mapping: MappingKind, bytes: u64) -> (Harness, Cachelet) {
        let h = Harness::asked(GeometryRequest {
            pool_bytes: 32 * MIB,
            mapping,
            fragmentation: 1000,
            ..GeometryRequest::default()
        });
        let (file, translation) = (h.make_file(9), Translation::new(true));
        let data: Vec<u8> = (0..bytes).map(|i| (i / 64 % 251) as u8).collect();
        files(&h).write_at(file, &translation, 0, &data).unwrap();
        (h, file)
    }

    /// Checks that the window shows the same bytes of each stretch as search. Returns the number of
    /// stretches.
    fn compare(files: &Files<'_, Simulated>, op: &Op<'_, Simulated>, sample: &Sample) -> usize {
        let table = Table::for_size(SAMPLE_PIECES * CHUNK_BYTES / 2).unwrap();
        let reserve = |bytes| files.core.pool.window(bytes);
        let window = table.reserve(reserve).unwrap();
        sample.lay(files, &table, window, SHOWN).unwrap();
        for &first in &sample.stretches {
            let mut shown = [0; (LONG_PAGES * BLOCK_BYTES) as usize];
            let mut found = [1; (LONG_PAGES * BLOCK_BYTES) as usize];
            let at = first * BLOCK_BYTES;
            assert!(table.holds(SHOWN, at, shown.len() as u64));
            files.core.pool.read_window(window, at, &mut shown);
            sample.by_search(files, op, first, &mut found).unwrap();
            assert!(shown == found, "from block {first}");
        }
        for pages in [1, LONG_PAGES] {
            for first in sample.requests(0, pages) {
                assert!(table.holds(SHOWN, first * BLOCK_BYTES, pages * BLOCK_BYTES));
            }
        }
        sample.stretches.len()
    }

    /// The measurement reads the same bytes as reads would.
    #[test]
    fn the_sample_lies_in_the_window_as_in_the_pool() {
        let h = Harness::new(8 * MIB);
        let segment = h.core.geometry.segment_blocks * BLOCK_BYTES;
        let bytes: Vec<u8> = (0..segment).map(|i| (i / 64 % 251) as u8).collect();
        h.core.pool.write(h.core.geometry.data_at, &bytes);
        let (files, op) = (files(&h), h.core.op_begin().unwrap());
        let sample = Sample::of_segment(&files, SAMPLE_PIECES).unwrap();
        assert!(compare(&files, &op, &sample) > 32);
        let costs = measure(&files, &op, None, Cold::Leave).unwrap();
        assert!(costs.run_ps > 0 && costs.search_ps(1) > 0 && costs.mmu_ps(1) > 0);
    }

    #[test]
    fn a_file_is_sampled_from_first_to_last_without_its_holes() {
        let (h, file) = fragmented(MappingKind::Extent, 5 * MIB);
        let f = files(&h);
        // A hole in the middle of a stretch, and a partial last block.
        let hole = 20 * BLOCK_BYTES;
        f.allocate(file, Allocate::PunchHole, hole, BLOCK_BYTES)
            .unwrap();
        f.truncate(file, 5 * MIB - 1).unwrap();
        let op = h.core.op_begin().unwrap();
        let sample = Sample::of_file(&f, &op, file).unwrap();
        assert_eq!(sample.pieces.len(), 3);
        let stretches = 5 * MIB / BLOCK_BYTES / LONG_PAGES;
        assert_eq!(compare(&f, &op, &sample) as u64, stretches - 2);
        assert!(measure(&f, &op, Some(file), Cold::Leave).is_some());
    }

    #[test]
    fn nothing_is_measured_by_files_without_bytes() {
        let h = Harness::new(8 * MIB);
        let (file, t) = (h.make_file(9), Translation::new(true));
        let f = files(&h);
        let measured =
            || measure(&f, &h.core.op_begin().unwrap(), Some(file), Cold::Leave).is_some();
        assert!(!measured(), "empty");
        f.truncate(file, MIB).unwrap();
        assert!(!measured(), "a hole");
        let blocks = |n: u64| vec![1; (n * BLOCK_BYTES) as usize];
        f.write_at(file, &t, 0, &blocks(LONG_PAGES - 1)).unwrap();
        assert!(!measured(), "no stretch");
        f.write_at(file, &t, 0, &blocks(LONG_PAGES)).unwrap();
        assert!(measured());
    }

    /// In an empty tree every search ends at the root. The measured cost is that of a search in the
    /// file's tree.
    #[test]
    fn the_measured_search_walks_the_files_tree() {
        for mapping in [
            MappingKind::Extent,
            MappingKind::ExtentCached,
            MappingKind::Radix,
        ] {
            let (h, file) = fragmented(mapping, 6 * MIB);
            let (files, op) = (files(&h), h.core.op_begin().unwrap());
            let probes = |sample: &Sample| {
                let mut out = [0; BLOCK_BYTES as usize];
                let before = count::of_this_thread();
                for first in sample.requests(0, 1) {
                    sample.by_search(&files, &op, first, &mut out).unwrap();
                }
                (count::of_this_thread() - before).probes
            };
            let nobodys = probes(&Sample::of_segment(&files, SAMPLE_PIECES).unwrap());
            let own = probes(&Sample::of_file(&files, &op, file).unwrap());
            assert_eq!(nobodys, PAGES, "{mapping:?}: one step to an empty root");
            assert!(own > nobodys, "{mapping:?}: {own} probes");
        }
    }

    #[test]
    fn measuring_harms_no_mapping() {
        for mapping in MappingKind::ALL {
            let h = Harness::of(mapping, 8 * MIB);
            let (file, t) = (h.make_file(9), Translation::new(true));
            let data = vec![1; 3 * MIB as usize];
            files(&h).write_at(file, &t, 0, &data).unwrap();
            for of in [None, Some(file)] {
                let costs = measure(&files(&h), &h.core.op_begin().unwrap(), of, Cold::Leave);
                assert!(costs.is_some(), "{mapping:?}");
                let damaged = (h.core.pool.damaged(), h.core.arena.damaged());
                assert_eq!(damaged, (None, None), "{mapping:?}");
            }
        }
    }
}
