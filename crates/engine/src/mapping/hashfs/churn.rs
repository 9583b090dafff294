//! The cost of searches in a table that was filled and emptied many times, in probes.

use vellum_layout::MapState;
use vellum_media::count;

use super::harness::{Harness, Placement};
use super::tests::{MIB, Numbers};
use crate::mapping::tests::{claim, find, release};

/// Blocks looked up together, from the first block of a file on.
const ASKED: usize = 8;
const PERCENT: u64 = 95;
const ROUNDS: u32 = 10;
/// Maximum number of probes to claim a block: its home line, the head of its run's chain, the links
/// of the blocks on the chain (of two runs), their entries and their lines, two lines of the
/// bitmap, one line nearby, and the bit.
const CLAIM_MAX: f64 = 6.0 + 2.0 * 8.0 * 3.0;
/// Maximum cost of searches for runs in an old table, relative to a fresh one. While the table
/// fills for the first time, a run without room in its home line finds a line for all of it; later
/// the room is in pieces. (Counting only lines of the table, without those of the overflow index,
/// the ratio is less than 1.3.)
const OF_RUNS: f64 = 1.5;
/// Added to the ids of files to get ids that no file has.
const NOBODY: u32 = 1 << 24;

/// Files in a table, and how many blocks each has.
struct Churned {
    h: Harness,
    numbers: Numbers,
    files: Vec<(u32, usize)>,
    next: u32,
    /// Blocks claimed together.
    piece: usize,
    /// The maximum number of probes that claiming a block took.
    dearest: f64,
}

impl Churned {
    fn new(placement: Placement, piece: usize) -> Self {
        Self {
            h: Harness::placed(64 * MIB, placement),
            numbers: Numbers(7),
            files: Vec::new(),
            next: 1,
            piece,
            dearest: 0.0,
        }
    }

    fn fill(&mut self) {
        let rest = self.h.core.blocks() * (100 - PERCENT) / 100;
        while self.h.free() > rest {
            let blocks = 1 + self
                .numbers
                .below(2 * ASKED as u64)
                .min(self.h.free() - rest - 1);
            for first in (0..blocks as usize).step_by(self.piece) {
                let piece = self.piece.min(blocks as usize - first);
                let before = count::of_this_thread();
                claim(&self.h, self.next, first as u32, piece, MapState::Mapped);
                let probes = (count::of_this_thread() - before).probes as f64;
                self.dearest = self.dearest.max(probes / piece as f64);
            }
            self.files.push((self.next, blocks as usize));
            self.next += 1;
        }
    }

    fn delete_half(&mut self) {
        for _ in 0..self.files.len() / 2 {
            let at = self.numbers.below(self.files.len() as u64) as usize;
            let (id, blocks) = self.files.swap_remove(at);
            let blocks = blocks as u64;
            assert_eq!(release(&self.h, id, 0, blocks, blocks), blocks);
        }
        self.h.settle();
    }

    /// The probes for finding every file, and for searching as many files that do not exist.
    fn costs(&self) -> [f64; 2] {
        let cost = |ids: &mut dyn Iterator<Item = (u32, usize)>| {
            let before = count::of_this_thread();
            ids.for_each(|(id, blocks)| drop(find(&self.h, id, 0, blocks)));
            (count::of_this_thread() - before).probes as f64
        };
        let files = self.files.iter().copied();
        let missing = files.clone().map(|(id, blocks)| (NOBODY + id, blocks));
        let blocks: usize = files.clone().map(|(_, blocks)| blocks).sum();
        [cost(&mut files.clone()), cost(&mut missing.clone())].map(|cost| cost / blocks as f64)
    }
}

/// Checks that searches in the old table cost at most `most` times what they cost in the fresh one.
fn stays_as_when_new(placement: Placement, piece: usize, most: f64) {
    let mut old = Churned::new(placement, piece);
    old.fill();
    let fresh = old.costs();
    for _ in 0..ROUNDS {
        old.delete_half();
        old.fill();
    }
    let churned = old.costs();
    assert!(
        old.dearest <= CLAIM_MAX,
        "{} probes for a claim",
        old.dearest
    );
    for (fresh, churned) in fresh.into_iter().zip(churned) {
        assert!(churned <= most * fresh, "{churned} after {fresh}");
    }
}

#[test]
fn ten_rounds_at_95_percent_leave_searches_nearly_as_short_with_runs() {
    for placement in [Placement::USUAL, Placement::APART] {
        stays_as_when_new(placement, usize::MAX, OF_RUNS);
    }
}

#[test]
fn ten_rounds_at_95_percent_leave_searches_nearly_as_short_with_runs_that_grew() {
    for placement in [Placement::USUAL, Placement::APART] {
        stays_as_when_new(placement, 1, OF_RUNS);
    }
}

#[test]
fn ten_rounds_at_95_percent_leave_searches_as_short_with_single_blocks() {
    stays_as_when_new(Placement::SINGLE, usize::MAX, 1.3);
}
