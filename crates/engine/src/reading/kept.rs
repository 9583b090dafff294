//! The costs of reading in the arena: measured once, and used by all processes that have the pool
//! open.
//!
//! The process that changes their state from unknown to being written writes the costs. They are
//! valid once the state is known. If two processes measure at the same time, the result of the
//! first to write is used. If it is killed while it writes (nine stores), each process uses what it
//! measures itself, until the arena is rebuilt.

use std::sync::atomic::Ordering;

use vellum_media::Memory;

use super::Costs;
use crate::core::header;

/// States of the costs.
const UNKNOWN: u64 = 0;
const BEING_WRITTEN: u64 = 1;
const KNOWN: u64 = 2;

/// An open file counts its pages in steps of this many, so that readers seldom share a line.
const STEP_PAGES: u64 = 64;
/// The count stops at this many pages.
pub(super) const COUNTED_PAGES_MAX: u64 = 1 << 16;

/// The costs of reading, if known.
pub(super) fn costs<A: Memory>(arena: &A) -> Option<Costs> {
    if arena.load(header::COSTS_STATE, Ordering::Acquire) != KNOWN {
        return None;
    }
    let word = |i| arena.load(header::COSTS + i as u64 * 8, Ordering::Relaxed);
    let words: [u64; 8] = std::array::from_fn(word);
    Some(zerocopy::transmute!(words))
}

/// Stores the costs of reading, unless another process did or does.
pub(super) fn keep<A: Memory>(arena: &A, costs: Costs) {
    let claim = arena.compare_exchange(header::COSTS_STATE, UNKNOWN, BEING_WRITTEN);
    if claim.is_err() {
        return;
    }
    let words: [u64; 8] = zerocopy::transmute!(costs);
    for (at, word) in (header::COSTS..).step_by(8).zip(words) {
        arena.store(at, word, Ordering::Relaxed);
    }
    arena.store(header::COSTS_STATE, KNOWN, Ordering::Release);
}

/// Number of pages of files that were read while the costs were unknown; approximate, and at most
/// about [`COUNTED_PAGES_MAX`].
pub(super) fn pages<A: Memory>(arena: &A) -> u64 {
    arena.load(header::PAGES_READ, Ordering::Relaxed)
}

/// Counts the pages of an opening that went from `before` to `now`.
pub(super) fn count<A: Memory>(arena: &A, before: u64, now: u64) {
    add(arena, (now / STEP_PAGES - before / STEP_PAGES) * STEP_PAGES);
}

/// Counts the remaining pages of an opening that touched `pages` and ends.
pub(super) fn count_rest<A: Memory>(arena: &A, pages: u64) {
    add(arena, pages % STEP_PAGES);
}

fn add<A: Memory>(arena: &A, more: u64) {
    if more > 0 && pages(arena) < COUNTED_PAGES_MAX {
        arena.fetch_add(header::PAGES_READ, more);
    }
}

/// Restarts the count at zero.
pub(super) fn restart_counts<A: Memory>(arena: &A) {
    arena.store(header::PAGES_READ, 0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;
    use vellum_media::HeapMemory;

    fn some_costs(search_page_ps: i64) -> Costs {
        Costs {
            search_request_ps: -7,
            search_page_ps,
            mmu_request_ps: 3,
            mmu_page_ps: 4,
            look_up_ps: 5,
            run_ps: 6,
            small_page_ps: 7,
            large_page_ps: 8,
        }
    }

    /// Each process has its own [`Reading`]; they share the arena.
    #[test]
    fn a_later_opening_finds_the_measured_costs() {
        let arena = HeapMemory::new(header::BYTES);
        let (first, second) = (Reading::default(), Reading::default());
        assert_eq!(first.costs(&arena), None);
        let costs = some_costs(1000);
        assert_eq!(first.learn(&arena, || Some(costs)), Some(costs));
        let again = second.learn(&arena, || panic!("the costs are known"));
        assert_eq!(again, Some(costs));
        assert_eq!(Reading::default().costs(&arena), Some(&costs));
    }

    #[test]
    fn of_two_concurrent_measurements_the_first_is_used() {
        let arena = HeapMemory::new(header::BYTES);
        let (first, second) = (Reading::default(), Reading::default());
        let held = second.learn(&arena, || {
            first.learn(&arena, || Some(some_costs(1)));
            Some(some_costs(2))
        });
        assert_eq!(held, Some(some_costs(1)));
        assert_eq!(first.costs(&arena), second.costs(&arena));
    }

    /// The process that claimed the words may have been killed before it wrote all of them.
    #[test]
    fn half_written_costs_are_not_used() {
        let arena = HeapMemory::new(header::BYTES);
        arena.store(header::COSTS_STATE, BEING_WRITTEN, Ordering::Relaxed);
        arena.store(header::COSTS, 5, Ordering::Relaxed);
        let reading = Reading::default();
        assert_eq!(reading.costs(&arena), None);
        // The process that measured them uses them.
        let own = reading.learn(&arena, || Some(some_costs(2)));
        assert_eq!(own, Some(some_costs(2)));
        assert_eq!(Reading::default().costs(&arena), None);
    }

    #[test]
    fn openings_count_together() {
        let arena = HeapMemory::new(header::BYTES);
        count(&arena, 0, STEP_PAGES - 1);
        assert_eq!(pages(&arena), 0);
        count(&arena, STEP_PAGES - 1, 2 * STEP_PAGES + 5);
        assert_eq!(pages(&arena), 2 * STEP_PAGES);
        count_rest(&arena, 2 * STEP_PAGES + 5);
        count_rest(&arena, 7);
        assert_eq!(pages(&arena), 2 * STEP_PAGES + 12);
        count(&arena, 0, COUNTED_PAGES_MAX);
        let enough = pages(&arena);
        count(&arena, 0, COUNTED_PAGES_MAX);
        assert_eq!(pages(&arena), enough);
        restart_counts(&arena);
        assert_eq!(pages(&arena), 0);
    }
}
