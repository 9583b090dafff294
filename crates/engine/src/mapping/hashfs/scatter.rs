//! Fragmentation on purpose (H7): which entry of its line each block of a run prefers.
//!
//! A file's *layout score* is the share of its blocks that lie right behind their logical
//! predecessors. Runs of 8 lie apart, so 7/8 is the most a file has here. For less, a run is cut at
//! places that its hash chooses, and its fragments are laid into the line in reversed order, so that
//! none lies behind its predecessor. Lookups cost the same: the home line is one, in whatever order.
//!
//! Deviation from the paper, which scatters fragments over the whole device: here they stay within
//! 32 KiB, since it is runs that hashing scatters.

use vellum_layout::{RUN_BLOCKS, mix};

/// The layout score of a pool that nobody wants fragmented, per mille.
pub(crate) const WHOLE: u16 = 1000;

/// Bits of one draw.
const DRAW_BITS: u32 = 9;
/// Boundaries within a run.
const BOUNDARIES: u64 = RUN_BLOCKS - 1;
/// Makes draws independent of where a hash leads.
const SALT: u64 = 0x5CA7_7E4E_D000_0000;

/// How runs are fragmented.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scatter {
    /// How probable a cut is at each boundary within a run, in parts of `1 << DRAW_BITS`.
    cut: u64,
}

impl Scatter {
    /// Fragmentation that gives files the layout score of `per_mille`, or 7/8 if that is less.
    pub(super) fn new(per_mille: u16) -> Self {
        // Of 8 blocks, 7 may follow theirs; whole - cut = score * 8 / 7.
        let whole = BOUNDARIES * u64::from(WHOLE);
        let cut = whole.saturating_sub(RUN_BLOCKS * u64::from(per_mille));
        Self {
            cut: (cut << DRAW_BITS).div_ceil(whole),
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

    /// Bit `i`: a fragment begins at block `i` of the run, which is not its first.
    fn cuts(self, hash: u64) -> u8 {
        let draws = mix(hash ^ SALT);
        (0..BOUNDARIES as u32).fold(0, |cuts, boundary| {
            let draw = draws >> (boundary * DRAW_BITS) & ((1 << DRAW_BITS) - 1);
            cuts | u8::from(draw < self.cut) << (boundary + 1)
        })
    }
}

/// Where block `i` lies if the fragments of a run that begin at `cuts` (and at 0) are laid out with
/// the last one first.
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
    fn a_run_is_cut_exactly_where_it_is_to_be() {
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
    fn the_share_of_blocks_behind_their_predecessors_is_the_score() {
        for (per_mille, expected) in [(0, 0), (300, 300), (700, 700), (875, 875), (1000, 875)] {
            let scatter = Scatter::new(per_mille);
            let runs = 10_000u64;
            let follow: u64 = (0..runs)
                .map(|run| {
                    let entry = |i| scatter.entry(mix(run), i);
                    (1..8).filter(|&i| entry(i) == entry(i - 1) + 1).count() as u64
                })
                .sum();
            let score = follow * 1000 / (runs * 8);
            assert!(score.abs_diff(expected) <= 10, "{per_mille}: {score}");
        }
    }
}
