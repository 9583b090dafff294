//! Finding blocks: one run, many runs with their hashes computed together, or the whole table.
//!
//! Hashing (H2): eight runs are hashed at once, as arrays of eight in steps without branches. Where
//! the build targets AVX2 or AVX-512 the compiler makes vectors of them; on baseline x86-64 the
//! eight chains of multiplications overlap in the pipeline. The home lines of all eight are
//! prefetched before the first is compared; lanes that the request does not fill prefetch what
//! follows it.

use std::array;

use vellum_layout::{MapState, MapWord, RUN_BLOCKS, mix};
use vellum_media::{LINE_BYTES, Memories, Memory, count};

use super::HashFs;
use crate::core::Core;
use crate::mapping::{BlockNo, MapId};

/// Runs hashed together.
const LANES: usize = 8;
/// Reading a line of the table in order costs about this part of probing a line by hash.
const SCAN_GAIN: u64 = 4;

/// A run of [`RUN_BLOCKS`] logical blocks of a file, and which of them are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) hash: u64,
    /// Home line.
    pub(super) home: u64,
    /// Mapping id and first logical block, as in an entry.
    pub(super) key: u64,
    /// Bit `i`: the block `i` of the run.
    want: u8,
}

impl Run {
    /// The first logical block.
    fn first(&self) -> u64 {
        u64::from(MapWord(self.key).logical())
    }

    /// The logical blocks asked for, in order.
    pub(super) fn wanted(&self) -> impl Iterator<Item = u64> + use<> {
        let (first, want) = (self.first(), self.want);
        (0..RUN_BLOCKS)
            .filter(move |i| want >> i & 1 == 1)
            .map(move |i| first + i)
    }
}

/// A block that was found: logical block, block, state (UNWRITTEN or MAPPED).
pub(super) type Hit = (u64, BlockNo, MapState);

const NO_HIT: Hit = (0, BlockNo(0), MapState::Free);

impl HashFs {
    pub(super) fn hash(&self, id: MapId, run: u32) -> u64 {
        mix(self.seed ^ (u64::from(id) << 32 | u64::from(run)))
    }

    /// The home line of a hash, as [`vellum_layout::home_line`] gives it: the upper half of the
    /// product of hash and lines. Lines are below 2^27, so two 32-bit products make it exactly.
    pub(super) fn home(&self, hash: u64) -> u64 {
        let low = ((hash & 0xFFFF_FFFF) * self.lines) >> 32;
        ((hash >> 32) * self.lines + low) >> 32
    }

    /// Hashes and home lines of [`LANES`] runs from `run` on.
    #[inline]
    fn hash_lanes(&self, id: MapId, run: u32) -> ([u64; LANES], [u64; LANES]) {
        let hashes: [u64; LANES] = array::from_fn(|i| self.hash(id, run.wrapping_add(i as u32)));
        (hashes, hashes.map(|hash| self.home(hash)))
    }

    /// The run that a logical block is in, that block asked for.
    pub(super) fn run_of(&self, id: MapId, logical: u32) -> Run {
        let hash = self.hash(id, logical / RUN_BLOCKS as u32);
        let home = self.home(hash);
        let key = MapWord::key(id, logical) & MapWord::RUN_MASK;
        Run {
            hash,
            home,
            key,
            want: 1 << (logical % RUN_BLOCKS as u32),
        }
    }

    /// Calls `visit` with each run of `[first, end)` in order until it says no.
    pub(super) fn each_run<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
        mut visit: impl FnMut(&Run) -> bool,
    ) {
        if first >= end {
            return;
        }
        let (mut run, last) = (first / RUN_BLOCKS, (end - 1) / RUN_BLOCKS);
        let make = |run: u64, hash: u64, home: u64| {
            let start = run * RUN_BLOCKS;
            let from = 0xFFu8 << first.saturating_sub(start);
            let to = 0xFFu8 >> (RUN_BLOCKS - (end - start).min(RUN_BLOCKS));
            Run {
                hash,
                home,
                key: MapWord::key(id, start as u32),
                want: from & to,
            }
        };
        if run == last {
            let hash = self.hash(id, run as u32);
            visit(&make(run, hash, self.home(hash)));
            return;
        }
        while run <= last {
            let (hashes, homes) = self.hash_lanes(id, run as u32);
            homes
                .iter()
                .for_each(|&home| core.pool.prefetch(self.line_at(home)));
            for (hash, home) in hashes.into_iter().zip(homes) {
                if run > last || !visit(&make(run, hash, home)) {
                    return;
                }
                run += 1;
            }
        }
    }

    /// Calls `each` with the blocks of a run that are asked for and are there.
    pub(super) fn find_run<M: Memories>(
        &self,
        core: &Core<M>,
        run: &Run,
        mut each: impl FnMut(u64, BlockNo, MapState),
    ) {
        let mut want = run.want;
        self.match_line(core, run, run.home, &mut want, &mut each);
        if want == 0 || self.overflow.displaced(&core.arena, run.home) == 0 {
            return;
        }
        let mut seen = run.home;
        for block in self.overflow.chain(&core.arena, run.hash) {
            let line = u64::from(block) / RUN_BLOCKS;
            if line != seen {
                self.match_line(core, run, line, &mut want, &mut each);
                if want == 0 {
                    return;
                }
                seen = line;
            }
        }
    }

    /// Finds the run's blocks in one line by one comparison of it.
    #[inline]
    fn match_line<M: Memories>(
        &self,
        core: &Core<M>,
        run: &Run,
        line: u64,
        want: &mut u8,
        each: &mut impl FnMut(u64, BlockNo, MapState),
    ) {
        count::probe();
        let line_at = self.line_at(line);
        let mut hits = core.pool.match_line(line_at, MapWord::RUN_MASK, run.key);
        while hits != 0 {
            let place = u64::from(hits.trailing_zeros());
            hits &= hits - 1;
            let word = MapWord(core.word(line_at + place * 8));
            let bit = 1 << (word.logical() % RUN_BLOCKS as u32);
            let live = matches!(word.state(), MapState::Unwritten | MapState::Mapped);
            // The entry may have changed since it was compared.
            if live && word.0 & MapWord::RUN_MASK == run.key && *want & bit != 0 {
                *want &= !bit;
                let block = BlockNo((line * RUN_BLOCKS + place) as u32);
                each(u64::from(word.logical()), block, word.state());
            }
        }
    }

    /// Runs after which reading the table in order is cheaper than further probing.
    fn probe_budget(&self) -> u64 {
        self.lines / SCAN_GAIN + 1
    }

    /// Calls `visit` with the blocks of `[first, end)`, by runs or parts of runs, until `in_use`
    /// blocks were found; gives how many. Costs at most twice the cheaper of probing the range and
    /// reading the table: a range too long to probe is probed first where the file probably ends
    /// soon (`in_use` is known and small), else not at all. `visit` may take the blocks away.
    pub(super) fn search<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
        in_use: u64,
        mut visit: impl FnMut(&Run, &[Hit]),
    ) -> u64 {
        let runs = end.saturating_sub(first).div_ceil(RUN_BLOCKS);
        let budget = self.probe_budget();
        let mut found = 0;
        let to_probe = if runs <= budget {
            end
        } else if in_use <= budget {
            first + in_use.next_multiple_of(RUN_BLOCKS).min(budget) * 2
        } else {
            first
        };
        if in_use > 0 {
            self.each_run(core, id, first, to_probe.min(end), |run| {
                let mut hits = [NO_HIT; RUN_BLOCKS as usize];
                let mut count = 0;
                self.find_run(core, run, |logical, block, state| {
                    hits[count] = (logical, block, state);
                    count += 1;
                });
                visit(run, &hits[..count]);
                found += count as u64;
                found < in_use
            });
        }
        if found < in_use && to_probe < end {
            found += self.scan(core, id, to_probe, end, in_use - found, |hits| {
                for run in hits.chunk_by(|a, b| a.0 / RUN_BLOCKS == b.0 / RUN_BLOCKS) {
                    visit(&self.run_of(id, run[0].0 as u32), run);
                }
            });
        }
        found
    }

    /// Reads the table in order and calls `visit` with the blocks of the file in `[first, end)`,
    /// those of a line together, until at least `most` were found; gives how many.
    fn scan<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
        most: u64,
        mut visit: impl FnMut(&[Hit]),
    ) -> u64 {
        let id_mask = MapWord::key(u32::MAX, 0);
        let key = MapWord::key(id, 0);
        let mut found = 0;
        for line in 0..self.lines {
            count::probe();
            let line_at = self.line_at(line);
            let mut matches = core.pool.match_line(line_at, id_mask, key);
            let mut hits = [NO_HIT; RUN_BLOCKS as usize];
            let mut count = 0;
            while matches != 0 {
                let place = u64::from(matches.trailing_zeros());
                matches &= matches - 1;
                let word = MapWord(core.word(line_at + place * 8));
                let logical = u64::from(word.logical());
                let live = matches!(word.state(), MapState::Unwritten | MapState::Mapped);
                if live && word.0 & id_mask == key && (first..end).contains(&logical) {
                    let block = BlockNo((line * RUN_BLOCKS + place) as u32);
                    hits[count] = (logical, block, word.state());
                    count += 1;
                }
            }
            if count > 0 {
                visit(&hits[..count]);
                found += count as u64;
                if found >= most {
                    break;
                }
            }
        }
        found
    }

    /// The first block of `[first, end)` that holds bytes.
    pub(super) fn seek_data<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Option<u64> {
        let to_probe = first
            .saturating_add(self.probe_budget() * RUN_BLOCKS)
            .min(end);
        let mut nearest = u64::MAX;
        self.each_run(core, id, first, to_probe, |run| {
            self.find_run(core, run, |logical, _, state| {
                if state == MapState::Mapped {
                    nearest = nearest.min(logical);
                }
            });
            nearest == u64::MAX
        });
        if nearest == u64::MAX && to_probe < end {
            self.scan(core, id, to_probe, end, u64::MAX, |hits| {
                for &(logical, _, state) in hits {
                    if state == MapState::Mapped {
                        nearest = nearest.min(logical);
                    }
                }
            });
        }
        (nearest != u64::MAX).then_some(nearest)
    }

    /// The first block of `[first, end)` that holds no bytes. Ends within the file's blocks.
    pub(super) fn seek_hole<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Option<u64> {
        let mut hole = None;
        self.each_run(core, id, first, end, |run| {
            let mut mapped = 0u8;
            self.find_run(core, run, |logical, _, state| {
                mapped |= u8::from(state == MapState::Mapped) << (logical % RUN_BLOCKS);
            });
            let missing = run.want & !mapped;
            if missing != 0 {
                hole = Some(run.first() + u64::from(missing.trailing_zeros()));
            }
            missing == 0
        });
        hole
    }
}

const _: () = assert!(LINE_BYTES == RUN_BLOCKS * 8, "a home line holds one run");

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_layout::{Geometry, GeometryRequest, home_line};

    #[test]
    fn homes_are_those_of_the_format() {
        for pool_bytes in [1 << 20, 77 << 20, 1 << 42] {
            let request = GeometryRequest {
                pool_bytes,
                ..Default::default()
            };
            let geometry = Geometry::plan(&request).unwrap();
            let map = HashFs::new(0, &geometry, 0x1234_5678_9ABC_DEF0);
            for id in [1, 77, 0x3FFF_FFFF] {
                for run in (0..1000).chain([u32::MAX / 8]) {
                    let expected = home_line(map.seed, id, run, geometry.table_lines());
                    assert_eq!(map.home(map.hash(id, run)), expected);
                }
            }
        }
    }
}
