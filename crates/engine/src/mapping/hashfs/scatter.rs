//! Deliberate fragmentation (H7): which entry of its line each block of a run prefers.
//!
//! A file's *layout score* is the share of its blocks that lie directly after their logical
//! predecessors. Spans lie apart, so `1 - 1 / (8 * lines of a span)` is the maximum here. For a
//! lower score, a run is cut at places that its hash chooses, and its fragments are laid into the
//! line in reversed order, so that none follows its predecessor. Lookups cost the same, because the
//! order within the home line does not matter.
//!
//! Deviation from the paper, which scatters fragments over the whole device: here they stay within
//! 32 KiB, because hashing already scatters spans.

use vellum_layout::{RUN_BLOCKS, mix};

/// The layout score of a pool without deliberate fragmentation, per mille.
pub(crate) const WHOLE: u16 = 1000;

/// Bits of one draw.
const DRAW_BITS: u32 = 9;
/// Boundaries within a run.
const BOUNDARIES: u64 = RUN_BLOCKS - 1;
/// The value that cuts everywhere.
const MOST_CUT: u64 = 1 << DRAW_BITS;
/// Makes draws independent of the position that the hash gives.
const SALT: u64 = 0x5CA7_7E4E_D000_0000;

/// How runs are fragmented.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scatter {
    /// The probability of a cut at each boundary within a run, in parts of [`MOST_CUT`].
    cut: u64,
}

impl Scatter {
    /// Fragmentation for files with the layout score `per_mille`, or with the maximum for spans of
    /// this many lines if that is lower.
    pub(super) fn new(per_mille: u16, span_lines: u64) -> Self {
        let asked = f64::from(per_mille) / f64::from(WHOLE);
        let fits = |cut: &u64| layout_score(*cut, span_lines) <= asked;
        Self {
            cut: (0..MOST_CUT).find(fits).unwrap_or(MOST_CUT),
        }
    }

    /// The entry of a line that block `i` of a run prefers.
    #[inline]
    pub(super) fn entry(self, hash: u64, i: u32) -> u32 {
        if self.cut == 0 {
            return i;
        }
        in_reverse(self.cuts(hash), i)
    }

    /// Bit `i`: a fragment begins at block `i` of the run, which is not its first block.
    fn cuts(self, hash: u64) -> u8 {
        let draws = mix(hash ^ SALT);
        (0..BOUNDARIES as u32).fold(0, |cuts, boundary| {
            let draw = draws >> (boundary * DRAW_BITS) & (MOST_CUT - 1);
            cuts | u8::from(draw < self.cut) << (boundary + 1)
        })
    }
}

/// The layout score of files whose runs are cut with the probability of `cut` parts at each
/// boundary. Within a run, blocks follow each other where it is not cut. A run follows the previous
/// run if neither is cut and both belong to one span.
fn layout_score(cut: u64, span_lines: u64) -> f64 {
    let stays = 1.0 - cut as f64 / MOST_CUT as f64;
    let both_whole = stays.powi(2 * BOUNDARIES as i32);
    let inner = (span_lines - 1) as f64 / span_lines as f64;
    (BOUNDARIES as f64 * stays + both_whole * inner) / RUN_BLOCKS as f64
}

/// The position of block `i` if the fragments of a run, which begin at 0 and at `cuts`, are laid
/// out in reversed order.
fn in_reverse(cuts: u8, i: u32) -> u32 {
    let begins = u32::from(cuts) | 1;
    let start = (begins & ((2 << i) - 1)).ilog2();
    let end = i + 1 + (begins >> (i + 1) | 1 << (RUN_BLOCKS as u32 - 1 - i)).trailing_zeros();
    RUN_BLOCKS as u32 - end + i - start
}

const _: () = assert!(
    BOUNDARIES * DRAW_BITS as u64 <= 64,
    "one hash serves all draws"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_cut_exactly_where_its_hash_says() {
        for cuts in (0..=u8::MAX).step_by(2) {
            let entries: [u32; 8] = std::array::from_fn(|i| in_reverse(cuts, i as u32));
            let mut sorted = entries;
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6, 7], "{cuts:#b}: {entries:?}");
            for i in 1..8 {
                let follows = entries[i] == entries[i - 1] + 1;
                assert_eq!(follows, cuts >> i & 1 == 0, "{cuts:#b}: {entries:?}");
            }
        }
    }

    #[test]
    fn the_share_of_blocks_after_their_predecessors_is_the_score() {
        for (span_lines, most) in [(1, 875), (2, 937), (16, 992)] {
            for per_mille in [0, 300, 700, 850, 875, 1000] {
                let scatter = Scatter::new(per_mille, span_lines);
                let runs = 10_000u64;
                let place = |block: u64| {
                    let (run, i) = (block / 8, (block % 8) as u32);
                    let line = run + run / span_lines;
                    line * 8 + u64::from(scatter.entry(mix(run), i))
                };
                let follows = |block: &u64| place(*block) == place(block - 1) + 1;
                let score = (1..runs * 8).filter(follows).count() as u64 * 1000 / (runs * 8);
                let expected = u64::from(per_mille).min(most);
                assert!(
                    score.abs_diff(expected) <= 10,
                    "{span_lines}, {per_mille}: {score}"
                );
            }
        }
    }
}
