//! Finding blocks: one run, many runs with their hashes computed together, or the whole table.
//!
//! Hashing (H2): where runs lie apart, eight are hashed at once, in vectors where the processor has
//! them ([`vellum_media::Isa::hash_lanes`]). The runs of a span share one hash. The home lines of
//! eight runs are prefetched before the first is compared; lanes beyond the request prefetch the
//! runs after it. A request within one run usually needs one lane only; see [`HashFs::goes_on`].

use vellum_layout::{LINE_ENTRIES, MapState, MapWord, RUN_BLOCKS, mix};
use vellum_media::{LANES, LINE_BYTES, Lanes, Memories, Memory, count, place_among};

use super::HashFs;
use crate::core::Core;
use crate::mapping::{BlockNo, MapId};

/// Reading a line of the table in order costs one part in this many of probing a line by hash.
const SCAN_GAIN: u64 = 4;

/// A run of logical blocks of a file, as long as the format says, and which of them are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) hash: u64,
    /// Home line.
    pub(super) home: u64,
    /// The entry of the home line that the hash itself points at.
    pub(super) entry: u32,
    /// Mapping id and first logical block, as in an entry.
    pub(super) key: u64,
    /// Bit `i`: block `i` of the run is wanted.
    want: u8,
}

impl Run {
    /// The first logical block.
    fn first(&self) -> u64 {
        u64::from(MapWord(self.key).logical())
    }

    /// The wanted logical blocks, in order.
    pub(super) fn wanted(&self) -> impl Iterator<Item = u64> + use<> {
        let (first, want) = (self.first(), self.want);
        (0..u64::from(u8::BITS))
            .filter(move |i| want >> i & 1 == 1)
            .map(move |i| first + i)
    }
}

/// A block that was found: logical block, block, state (UNWRITTEN or MAPPED).
pub(super) type Hit = (u64, BlockNo, MapState);

const NO_HIT: Hit = (0, BlockNo(0), MapState::Free);

/// The hash key of a span: mapping id and number. (With spans of one line, that of a run.)
fn span_key(id: MapId, number: u64) -> u64 {
    u64::from(id) << 32 | number
}

impl HashFs {
    /// The number of the run that contains a logical block.
    pub(super) fn run_number(&self, logical: u64) -> u64 {
        logical >> self.run_shift
    }

    /// The index of a logical block within its run.
    pub(super) fn within(&self, logical: u64) -> u64 {
        logical & ((1 << self.run_shift) - 1)
    }

    /// Run `number` of a file, with no block wanted. `place` is the entry that the hash points at.
    #[inline]
    fn run(&self, id: MapId, number: u64, hash: u64, place: u64) -> Run {
        Run {
            hash,
            home: place / LINE_ENTRIES,
            entry: (place % LINE_ENTRIES) as u32,
            key: MapWord::key(id, (number << self.run_shift) as u32),
            want: 0,
        }
    }

    /// The run that contains a logical block, with that block wanted.
    #[inline]
    pub(super) fn run_of(&self, id: MapId, logical: u32) -> Run {
        let logical = u64::from(logical);
        let run = self.hashed(id, self.run_number(logical));
        Run {
            want: 1 << self.within(logical),
            ..run
        }
    }

    fn hashed(&self, id: MapId, number: u64) -> Run {
        let hash = mix(self.seed ^ span_key(id, number >> self.span_shift));
        let place = place_among(hash, self.home_blocks as u32);
        let (hash, place) = self.in_span(number, hash, place);
        self.run(id, number, hash, place)
    }

    /// Hash and entry of a run, from those of its span. Home lines and chains of a span's runs
    /// follow each other, and continue at the beginning of the table after its end.
    #[inline]
    fn in_span(&self, number: u64, hash: u64, place: u64) -> (u64, u64) {
        let within = number & ((1 << self.span_shift) - 1);
        let place = place + within * LINE_ENTRIES;
        let place = if place < self.home_blocks {
            place
        } else {
            place % self.home_blocks
        };
        (hash.wrapping_add(within), place)
    }

    /// Hashes and entries of as many runs from `number` on as a vector has lanes.
    #[inline]
    fn lanes(&self, id: MapId, number: u64) -> Lanes {
        if self.span_shift == 0 {
            let key = span_key(id, number);
            return self.isa.hash_lanes(self.seed, key, self.home_blocks as u32);
        }
        let mut lanes = Lanes {
            hashes: [0; LANES],
            places: [0; LANES],
        };
        let mut of_span = (0, 0);
        for (i, number) in (number..).take(LANES).enumerate() {
            if i == 0 || number & ((1 << self.span_shift) - 1) == 0 {
                let hash = mix(self.seed ^ span_key(id, number >> self.span_shift));
                of_span = (hash, place_among(hash, self.home_blocks as u32));
            }
            (lanes.hashes[i], lanes.places[i]) = self.in_span(number, of_span.0, of_span.1);
        }
        lanes
    }

    /// The blocks of `[first, end)` in run `number`, which has some of them, as one bit each.
    #[inline]
    fn asked_for(&self, number: u64, first: u64, end: u64) -> u8 {
        let (start, blocks) = (number << self.run_shift, 1u64 << self.run_shift);
        let from = 0xFFu8 << first.saturating_sub(start);
        let to = 0xFFu8 >> (u64::from(u8::BITS) - (end - start).min(blocks));
        from & to
    }

    /// Whether a request for the blocks `want` of one run justifies hashing the following runs too.
    /// A sequential reader or writer asks for all blocks of a run. The first run of a file proves
    /// no such pattern; the next check is due when the runs hashed now are used up.
    fn goes_on(&self, number: u64, want: u8) -> bool {
        want == u8::MAX && number % LANES as u64 == 1
    }

    /// Calls `visit` with each run of `[first, end)` in order until it returns false.
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
        let (mut number, last) = (self.run_number(first), self.run_number(end - 1));
        let want = self.asked_for(number, first, end);
        if number == last && !self.goes_on(number, want) {
            let run = self.hashed(id, number);
            visit(&Run { want, ..run });
            return;
        }
        while number <= last {
            let lanes = self.lanes(id, number);
            for place in lanes.places {
                core.pool.prefetch(self.line_at(place / LINE_ENTRIES));
            }
            for (hash, place) in lanes.hashes.into_iter().zip(lanes.places) {
                if number > last {
                    return;
                }
                let want = self.asked_for(number, first, end);
                let run = self.run(id, number, hash, place);
                if !visit(&Run { want, ..run }) {
                    return;
                }
                number += 1;
            }
        }
    }

    /// Calls `each` with the wanted blocks of a run that exist.
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
            let line = u64::from(block) / LINE_ENTRIES;
            if line != seen {
                self.match_line(core, run, line, &mut want, &mut each);
                if want == 0 {
                    return;
                }
                seen = line;
            }
        }
    }

    /// Finds the run's blocks in one line, with one comparison of the line.
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
        // A request for one block matches only this block of the run.
        let (mask, key) = match want.is_power_of_two() {
            true => (
                MapWord::KEY_MASK,
                run.key | u64::from(want.trailing_zeros()),
            ),
            false => (self.run_mask(), run.key),
        };
        let mut hits = core.pool.match_line(line_at, mask, key);
        while hits != 0 {
            let place = u64::from(hits.trailing_zeros());
            hits &= hits - 1;
            let word = MapWord(core.word(line_at + place * 8));
            let bit = 1 << self.within(u64::from(word.logical()));
            let live = matches!(word.state(), MapState::Unwritten | MapState::Mapped);
            // The entry may have changed since the comparison.
            if live && word.0 & self.run_mask() == run.key && *want & bit != 0 {
                *want &= !bit;
                let block = BlockNo((line * LINE_ENTRIES + place) as u32);
                each(u64::from(word.logical()), block, word.state());
            }
        }
    }

    /// The number of runs from which reading the table in order is cheaper than further probing.
    fn probe_budget<M: Memories>(&self, core: &Core<M>) -> u64 {
        self.lines(core) / SCAN_GAIN + 1
    }

    /// Calls `visit` with the blocks of `[first, end)`, by runs or parts of runs, until `in_use`
    /// blocks were found. Returns their number. Costs at most twice the cheaper of probing the
    /// range and reading the table: a range too long to probe is probed first if the file probably
    /// ends soon (`in_use` is known and small), else not at all. `visit` may release the blocks.
    pub(super) fn search<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
        in_use: u64,
        mut visit: impl FnMut(&Run, &[Hit]),
    ) -> u64 {
        let run_blocks = 1 << self.run_shift;
        let runs = end.saturating_sub(first).div_ceil(run_blocks);
        let budget = self.probe_budget(core);
        let mut found = 0;
        let to_probe = if runs <= budget {
            end
        } else if in_use <= budget {
            first + in_use.next_multiple_of(run_blocks).min(budget) * 2
        } else {
            first
        };
        if in_use > 0 {
            self.each_run(core, id, first, to_probe.min(end), |run| {
                let mut hits = [NO_HIT; LINE_ENTRIES as usize];
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
                for run in hits.chunk_by(|a, b| self.run_number(a.0) == self.run_number(b.0)) {
                    visit(&self.run_of(id, run[0].0 as u32), run);
                }
            });
        }
        found
    }

    /// Reads the table in order and calls `visit` with the blocks of the file in `[first, end)`,
    /// all blocks of a line together, until at least `most` were found. Returns their number.
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
        for line in 0..self.lines(core) {
            count::probe();
            let line_at = self.line_at(line);
            let mut matches = core.pool.match_line(line_at, id_mask, key);
            let mut hits = [NO_HIT; LINE_ENTRIES as usize];
            let mut count = 0;
            while matches != 0 {
                let place = u64::from(matches.trailing_zeros());
                matches &= matches - 1;
                let word = MapWord(core.word(line_at + place * 8));
                let logical = u64::from(word.logical());
                let live = matches!(word.state(), MapState::Unwritten | MapState::Mapped);
                if live && word.0 & id_mask == key && (first..end).contains(&logical) {
                    let block = BlockNo((line * LINE_ENTRIES + place) as u32);
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
        let mut from = first;
        loop {
            let nearest = self.seek_mapped(core, id, from, end)?;
            // A damaged table, which read-only openings accept, may have a block twice: reading the
            // table finds both entries, and a lookup finds one of the two.
            if self.seek_hole(core, id, nearest, nearest + 1).is_none() {
                return Some(nearest);
            }
            from = nearest + 1;
        }
    }

    /// The first block of `[first, end)` that any entry says holds bytes.
    fn seek_mapped<M: Memories>(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Option<u64> {
        let to_probe = first
            .saturating_add(self.probe_budget(core) << self.run_shift)
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
                mapped |= u8::from(state == MapState::Mapped) << self.within(logical);
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

const _: () = assert!(LINE_BYTES == LINE_ENTRIES * 8);
const _: () = assert!(
    LINE_ENTRIES >= RUN_BLOCKS && RUN_BLOCKS == u8::BITS as u64,
    "a home line holds a run, and a byte has a bit for each of its blocks"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::hashfs::WHOLE;
    use vellum_layout::{Geometry, GeometryRequest};

    #[test]
    fn homes_and_chains_are_those_of_the_format() {
        for (pool_bytes, run_blocks, span_lines) in [
            (1 << 20, 8, 1),
            (1 << 20, 8, 256),
            (77 << 20, 1, 1),
            (77 << 20, 8, 16),
            (1 << 42, 1, 1),
            (1 << 42, 8, 16),
        ] {
            let request = GeometryRequest {
                pool_bytes,
                run_blocks: Some(run_blocks),
                span_lines: Some(span_lines),
                ..Default::default()
            };
            let geometry = Geometry::plan(&request).unwrap();
            let homes = geometry.homes(0x1234_5678_9ABC_DEF0);
            let map = HashFs::new(0, (&geometry, geometry.blocks()), homes.seed, WHOLE);
            for id in [1, 77, 0x3FFF_FFFF] {
                for logical in (0..1000).chain([u32::MAX]) {
                    let run = map.run_of(id, logical);
                    assert_eq!(run.home, homes.line(id, logical));
                    let chains = geometry.saved_state().chains();
                    assert_eq!(run.hash & (chains - 1), homes.chain(id, logical));
                }
            }
        }
    }
}
