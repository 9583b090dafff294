//! The mapping against a model: a map from (id, logical) to state.

use proptest::prelude::*;
use std::sync::atomic::Ordering;

use vellum_layout::{MapState, MapWord, SPAN_LINES, SavedStateHead};
use vellum_media::{FlushVariant, Isa, Memory, Persistent, Site, VectorVariant, count};
use zerocopy::{FromBytes, IntoBytes};

use super::harness::{Harness, Placement};
use super::*;
use crate::core::slots::field;
use crate::error::Error;
use crate::mapping::tests::{claim, find, release};
use crate::mapping::{self, Found, Mapping, Seek, Verdict};

pub(super) const MIB: u64 = 1 << 20;

/// Blocks of a span.
const SPAN_BLOCKS: u32 = SPAN_LINES as u32 * 8;

/// A small random number generator, for repeatable churn.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % end
    }
}

fn table(h: &Harness) -> Vec<MapWord> {
    (0..h.core.blocks() as u32)
        .map(|block| h.map.entry(&h.core, block))
        .collect()
}

/// Checks that the volatile state agrees with the table while no operation runs.
fn check_saved_state(h: &Harness) {
    let words = table(h);
    let arena = &h.core.arena;
    let mut free = 0;
    let mut displaced = vec![0u64; (h.core.blocks() / LINE_ENTRIES) as usize];
    for (block, word) in words.iter().enumerate() {
        let bit = h.map.bitmap.word(arena, block as u64) >> (block % 64) & 1 == 1;
        match word.state() {
            MapState::Free => {
                assert!(bit, "block {block} is free and its bit is not set");
                free += 1;
            }
            MapState::Limbo => {}
            MapState::Unwritten | MapState::Mapped => {
                let run = h.map.run_of(word.id(), word.logical());
                let linked = h
                    .map
                    .overflow
                    .chain(arena, run.hash)
                    .any(|on| on as usize == block);
                let away = run.home != block as u64 / LINE_ENTRIES;
                assert_eq!(linked, away, "block {block}");
                displaced[run.home as usize] += u64::from(away);
            }
        }
    }
    assert_eq!(h.map.space.free(&h.core), free);
    for (line, &count) in displaced.iter().enumerate() {
        let shown = h.map.overflow.displaced(arena, line as u64);
        assert!(
            shown == count || shown == 255,
            "line {line}: {shown} for {count}"
        );
    }
}

/// Makes tests of functions that take a placement.
macro_rules! for_each_placement {
    ($($test:ident),+ $(,)?) => {
        mod spans {
            $(#[test] fn $test() { super::$test(super::Placement::USUAL); })+
        }
        mod runs_apart {
            $(#[test] fn $test() { super::$test(super::Placement::APART); })+
        }
        mod single_blocks {
            $(#[test] fn $test() { super::$test(super::Placement::SINGLE); })+
        }
    };
}

for_each_placement! {
    a_block_that_finds_room_at_home_after_all_is_not_displaced,
    a_full_segment_is_not_searched_word_by_word,
    an_entry_in_limbo_is_not_found,
    every_block_can_be_used_and_comes_back,
    limbo_waits_for_operations_that_may_read,
    long_ranges_are_scanned_not_probed,
    readers_find_what_stays_during_churn,
    rebuild_finds_the_same_and_frees_what_recovery_rejects,
    saved_state_is_accepted_only_whole_and_after_its_own_close,
    saved_state_is_loaded_without_reading_the_table,
    two_entries_of_one_block_are_damage,
    two_threads_claim_and_release_without_loss,
}

#[test]
fn a_run_is_one_line_and_one_probe() {
    let h = Harness::new(16 * MIB);
    let blocks = claim(&h, 5, 16, 8, MapState::Mapped);
    let first = blocks[0].0;
    assert_eq!(blocks, (first..first + 8).map(BlockNo).collect::<Vec<_>>());
    assert!(first.is_multiple_of(8));
    let before = count::of_this_thread();
    let found = find(&h, 5, 16, 8);
    assert_eq!((count::of_this_thread() - before).probes, 1);
    assert_eq!(
        found,
        blocks.iter().map(|&b| Found::Mapped(b)).collect::<Vec<_>>()
    );
    let before = count::of_this_thread();
    assert_eq!(find(&h, 5, 24, 8), [Found::Hole; 8]);
    assert_eq!(
        (count::of_this_thread() - before).probes,
        2,
        "a miss ends at the home line and its count of displaced blocks"
    );
}

/// The runs of a span lie on lines that follow each other, wrapping around at the end of the table.
/// Finding a whole span costs one probe a run.
#[test]
fn the_runs_of_a_span_follow_each_other() {
    let blocks = SPAN_BLOCKS as usize;
    for id in 1..200 {
        let h = Harness::new(2 * MIB);
        let claimed = claim(&h, id, SPAN_BLOCKS, blocks, MapState::Mapped);
        let first = u64::from(claimed[0].0);
        let follow = (first..).map(|block| BlockNo((block % h.core.blocks()) as u32));
        assert!(claimed.iter().copied().eq(follow.take(blocks)), "{id}");
        let before = count::of_this_thread();
        find(&h, id, SPAN_BLOCKS, blocks);
        let probes = (count::of_this_thread() - before).probes;
        assert_eq!(probes, u64::from(SPAN_LINES), "{id}");
    }
}

#[test]
fn a_single_block_lies_where_its_hash_points() {
    let h = Harness::placed(16 * MIB, Placement::SINGLE);
    let mut taken = std::collections::HashSet::new();
    for logical in 0..40 {
        let run = h.map.run_of(5, logical);
        let block = claim(&h, 5, logical, 1, MapState::Mapped)[0];
        let expected = run.home * LINE_ENTRIES + u64::from(run.entry);
        assert!(u64::from(block.0) == expected || taken.contains(&expected));
        taken.insert(u64::from(block.0));
    }
    let before = count::of_this_thread();
    find(&h, 5, 0, 40);
    assert_eq!((count::of_this_thread() - before).probes, 40);
}

#[test]
fn every_variant_places_and_finds_alike() {
    let isas = VectorVariant::ALL.map(|vector| Isa::new(FlushVariant::Generic, vector));
    for placement in [Placement::SINGLE, Placement::APART, Placement::USUAL] {
        let placed = isas.into_iter().flatten().map(|isa| {
            let mut h = Harness::placed(4 * MIB, placement);
            h.map.isa = isa;
            let blocks = claim(&h, 3, 5, 100, MapState::Mapped);
            let found: Vec<_> = blocks.iter().map(|&block| Found::Mapped(block)).collect();
            assert_eq!(find(&h, 3, 5, 100), found, "{isa:?}");
            blocks
        });
        let placed: Vec<_> = placed.collect();
        assert!(placed.iter().all(|blocks| *blocks == placed[0]));
    }
}

/// The share of a file's blocks that follow their predecessors is as requested, and finding them
/// costs the same as without fragmentation.
#[test]
fn a_layout_score_fragments_files_but_not_searches() {
    let mut whole = None;
    for (layout_score, expected) in [(1000, 992), (850, 850), (300, 300), (0, 0)] {
        let placement = Placement {
            layout_score,
            ..Placement::USUAL
        };
        let h = Harness::placed(64 * MIB, placement);
        let blocks = claim(&h, 5, 0, 4096, MapState::Mapped);
        let follow = blocks.windows(2).filter(|two| two[1].0 == two[0].0 + 1);
        let score = follow.count() as i64 * 1000 / 4096;
        assert!((score - expected).abs() < 40, "{layout_score}: {score}");
        let before = count::of_this_thread();
        find(&h, 5, 0, 4096);
        let probes = (count::of_this_thread() - before).probes;
        assert_eq!(*whole.get_or_insert(probes), probes, "{layout_score}");
    }
}

#[test]
fn a_run_costs_one_flush() {
    let h = Harness::new(16 * MIB);
    let before = count::of_this_thread();
    claim(&h, 5, 0, 64, MapState::Mapped);
    assert_eq!((count::of_this_thread() - before).lines_flushed, 8);
    let before = count::of_this_thread();
    release(&h, 5, 0, 64, 64);
    assert_eq!((count::of_this_thread() - before).lines_flushed, 8);
}

#[test]
fn freeing_many_blocks_costs_a_flush_a_line_and_short_walks() {
    let h = Harness::new(64 * MIB);
    let blocks = h.core.blocks() / 2 / 8 * 8;
    let mine = claim(&h, 5, 0, blocks as usize, MapState::Mapped);
    let lines: std::collections::HashSet<u32> = mine.iter().map(|block| block.0 / 8).collect();
    let before = count::of_this_thread();
    assert_eq!(release(&h, 5, 0, blocks, blocks), blocks);
    let cost = count::of_this_thread() - before;
    assert_eq!(cost.lines_flushed, lines.len() as u64);
    assert!(
        cost.probes < 2 * (h.core.blocks() / LINE_ENTRIES),
        "{}",
        cost.probes
    );
    check_saved_state(&h);
}

fn every_block_can_be_used_and_comes_back(placement: Placement) {
    for pool in [MIB, 24 * MIB] {
        let h = Harness::placed(pool, placement);
        let total = h.core.blocks();
        assert_eq!(h.free(), total);
        let mut taken = std::collections::HashSet::new();
        for id in 1..=total {
            taken.extend(claim(&h, id as u32, 0, 1, MapState::Mapped));
        }
        assert_eq!(taken.len() as u64, total);
        let op = h.core.op_begin().unwrap();
        assert!(matches!(h.map.reserve(&op, 1), Err(Error::NoSpace(_))));
        drop(op);
        for id in 1..=total {
            assert!(
                matches!(find(&h, id as u32, 0, 1)[0], Found::Mapped(_)),
                "{id}"
            );
            assert_eq!(release(&h, id as u32, 0, 1, 1), 1);
        }
        h.settle();
        assert_eq!(h.free(), total);
        assert!(table(&h).iter().all(|&word| word == MapWord::FREE));
        check_saved_state(&h);
        for line in 0..(h.core.blocks() / LINE_ENTRIES) {
            assert_eq!(h.map.overflow.displaced(&h.core.arena, line), 0);
        }
        assert_eq!(h.core.arena.damaged(), None);
    }
}

/// The block's home line was full at the first attempt; then another file freed a block there.
fn a_block_that_finds_room_at_home_after_all_is_not_displaced(placement: Placement) {
    let h = Harness::placed(MIB, placement);
    let total = h.core.blocks() as u32;
    let owners: Vec<_> = (1..=total)
        .map(|id| (id, claim(&h, id, 0, 1, MapState::Mapped)[0]))
        .collect();
    let id = total + 1;
    let home = h.map.run_of(id, 0).home;
    for (owner, block) in owners {
        if u64::from(block.0) / LINE_ENTRIES == home {
            release(&h, owner, 0, 1, 1);
        }
    }
    h.settle();
    let op = h.core.op_begin().unwrap();
    let mut from = h.map.reserve(&op, 1).unwrap();
    let word = MapWord::new(MapState::Mapped, id, 0);
    let run = h.map.run_of(id, 0);
    let block = h.map.claim_away(&op, &run, 1, word).unwrap();
    crate::mapping::space::claimed(&op, &mut from, 1);
    drop(op);
    assert_eq!(u64::from(block) / LINE_ENTRIES, home);
    check_saved_state(&h);
    assert_eq!(release(&h, id, 0, 1, 1), 1);
    h.settle();
    check_saved_state(&h);
}

#[test]
fn reservations_never_exceed_what_is_free() {
    let h = Harness::new(MIB);
    let total = h.core.blocks();
    let op = h.core.op_begin().unwrap();
    let most = h.map.reserve(&op, total - 1).unwrap();
    assert!(h.map.reserve(&op, 2).is_err());
    let last = h.map.reserve(&op, 1).unwrap();
    assert_eq!(h.map.usage(&h.core).free, 0);
    h.map.unreserve(&op, most);
    h.map.unreserve(&op, last);
    assert_eq!(h.map.usage(&h.core).free, total);
    assert_eq!(op.own(field::RESERVED), 0);
}

fn limbo_waits_for_operations_that_may_read(placement: Placement) {
    let h = Harness::placed(MIB, placement);
    let total = h.core.blocks();
    claim(&h, 1, 0, total as usize, MapState::Mapped);
    std::thread::scope(|scope| {
        let reader = h.core.op_begin().unwrap();
        let block = {
            let mut found = [Found::Hole];
            h.map.lookup(&reader, 1, 3, &mut found).unwrap();
            found[0].block().unwrap()
        };
        let other = scope.spawn(|| {
            assert_eq!(release(&h, 1, 0, total, total), total);
            for _ in 0..10 {
                h.core.try_advance();
                assert_eq!(h.map.reclaim(&h.core), 0);
            }
            let op = h.core.op_begin().unwrap();
            assert!(h.map.reserve(&op, 1).is_err());
            assert_eq!(
                h.map.usage(&h.core).free,
                total,
                "but it could be reclaimed"
            );
        });
        other.join().unwrap();
        assert_eq!(h.map.entry(&h.core, block.0).state(), MapState::Limbo);
        drop(reader);
    });
    assert_eq!(h.settle(), total);
    check_saved_state(&h);
}

#[test]
fn reserve_reclaims_blocks_after_their_grace_period() {
    let h = Harness::new(MIB);
    let total = h.core.blocks();
    claim(&h, 1, 0, total as usize, MapState::Mapped);
    release(&h, 1, 0, total, total);
    h.core.try_advance();
    let op = h.core.op_begin().unwrap();
    let room = h.map.reserve(&op, total).unwrap();
    assert_eq!(room.blocks, total);
    h.map.unreserve(&op, room);
}

fn an_entry_in_limbo_is_not_found(placement: Placement) {
    let h = Harness::placed(MIB, placement);
    claim(&h, 1, 0, 8, MapState::Unwritten);
    release(&h, 1, 2, 3, u64::MAX);
    let found = find(&h, 1, 0, 8);
    assert_eq!(found.iter().filter(|f| **f == Found::Hole).count(), 1);
    assert_eq!(found[2], Found::Hole);
    assert!(matches!(found[3], Found::Unwritten(_)));
    let op = h.core.op_begin().unwrap();
    assert_eq!(h.map.count(&op, 1, 1 << 32).unwrap(), 7);
}

/// Fills to 95 %, churns, and checks the cost of searches.
#[test]
fn churn_at_95_percent_does_not_lengthen_searches() {
    let h = Harness::new(64 * MIB);
    let files = h.core.blocks() * 95 / 100 / 8;
    let mut numbers = Numbers(7);
    let mut live: Vec<u32> = (1..=files as u32).collect();
    for &id in &live {
        claim(&h, id, 0, 8, MapState::Mapped);
    }
    let cost = |h: &Harness, ids: &mut dyn Iterator<Item = u32>| {
        let before = count::of_this_thread();
        let mut n = 0;
        for id in ids {
            find(h, id, 0, 8);
            n += 1;
        }
        (count::of_this_thread() - before).probes as f64 / f64::from(n)
    };
    let young = (
        cost(&h, &mut live.iter().copied()),
        cost(&h, &mut (1 << 20..(1 << 20) + 4000)),
    );
    let first = files as u32 + 1;
    for next in first..first + 10 * files as u32 {
        let at = numbers.below(files) as usize;
        assert_eq!(release(&h, live[at], 0, 8, 8), 8);
        h.settle();
        live[at] = next;
        claim(&h, next, 0, 8, MapState::Mapped);
    }
    let old = (
        cost(&h, &mut live.iter().copied()),
        cost(&h, &mut (1 << 20..(1 << 20) + 4000)),
    );
    // A displaced run costs the count, the chain's head, and two lines for each place that holds
    // some of it.
    assert!(
        old.0 < 5.2 && old.1 < 3.0,
        "hits and misses: {young:?}, then {old:?}"
    );
    check_saved_state(&h);
    for id in live {
        release(&h, id, 0, 8, 8);
    }
    h.settle();
    for line in 0..(h.core.blocks() / LINE_ENTRIES) {
        assert_eq!(h.map.overflow.displaced(&h.core.arena, line), 0);
    }
}

fn a_full_segment_is_not_searched_word_by_word(placement: Placement) {
    let h = Harness::placed(64 * MIB, placement);
    let total = h.core.blocks();
    claim(&h, 1, 0, total as usize, MapState::Mapped);
    release(&h, 1, 77, 78, u64::MAX);
    h.settle();
    let before = count::of_this_thread();
    claim(&h, 2, 0, 1, MapState::Mapped);
    assert!((count::of_this_thread() - before).probes < 20);
}

fn two_threads_claim_and_release_without_loss(placement: Placement) {
    let h = Harness::placed(2 * MIB, placement);
    let total = h.core.blocks();
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let h = &h;
            scope.spawn(move || {
                let mut numbers = Numbers(u64::from(thread));
                for round in 0..300 {
                    let id = 1 + thread + 2 * (round % 3);
                    // Both threads may see and take the half that is free below.
                    let blocks = 1 + numbers.below(total / 4 - 16);
                    let mine = claim(h, id, 0, blocks as usize, MapState::Mapped);
                    for (found, block) in find(h, id, 0, blocks as usize).iter().zip(&mine) {
                        assert_eq!(*found, Found::Mapped(*block));
                    }
                    assert_eq!(release(h, id, 0, blocks, blocks), blocks);
                    while h.free() < total / 2 || h.map.space.free(&h.core) < total / 2 {
                        h.settle();
                    }
                }
            });
        }
    });
    h.settle();
    assert_eq!(h.free(), total);
    check_saved_state(&h);
}

fn readers_find_what_stays_during_churn(placement: Placement) {
    let h = Harness::placed(MIB, placement);
    let total = h.core.blocks() as u32;
    let stay = claim(&h, 1, 0, total as usize / 4, MapState::Mapped);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..400 {
                claim(
                    &h,
                    2 + round % 2,
                    round * 8,
                    total as usize / 2,
                    MapState::Mapped,
                );
                release(&h, 2 + round % 2, 0, 1 << 32, u64::MAX);
                h.settle();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            for (found, block) in find(&h, 1, 0, stay.len()).iter().zip(&stay) {
                assert_eq!(*found, Found::Mapped(*block));
            }
        }
    });
}

fn rebuild_finds_the_same_and_frees_what_recovery_rejects(placement: Placement) {
    for pool in [4 * MIB, 400 * MIB] {
        let h = Harness::placed(pool, placement);
        let blocks = h.core.blocks() * 9 / 10 / 4;
        for id in 1..=4 {
            claim(&h, id, 0, blocks as usize, MapState::Mapped);
        }
        release(&h, 2, 10, 20, u64::MAX);
        let before: Vec<_> = (1..=4).map(|id| find(&h, id, 0, blocks as usize)).collect();
        let h = h.reattach();
        check_saved_state(&h);
        for (id, before) in (1..).zip(&before) {
            assert_eq!(&find(&h, id, 0, blocks as usize), before);
        }
        assert_eq!(h.free(), h.core.blocks() - 4 * blocks + 10, "limbo is free");

        let judge = |id, _, _| {
            if id == 3 {
                Verdict::Free
            } else {
                Verdict::Keep
            }
        };
        let h = h.reattach_judged(&judge);
        check_saved_state(&h);
        assert_eq!(
            find(&h, 3, 0, blocks as usize),
            vec![Found::Hole; blocks as usize]
        );
        assert_eq!(find(&h, 4, 0, blocks as usize), before[3]);
    }
}

fn two_entries_of_one_block_are_damage(placement: Placement) {
    for (first, second) in [(0, 1), (0, 100), (8, 100)] {
        let h = Harness::placed(4 * MIB, placement);
        let word = MapWord::new(MapState::Mapped, 7, 3).0;
        h.core.set_word(h.map.entry_at(first), word);
        h.core.set_word(h.map.entry_at(second), word);
        let (arena, geometry) = (h.core.map.mapping, &h.core.geometry);
        let map = HashFs::new(arena, (geometry, geometry.blocks()), h.core.seed, WHOLE);
        let result = map.rebuild_allocator_state(&h.core, &|_, _, _| Verdict::Keep);
        assert!(matches!(result, Err(Error::Damaged { .. })), "{result:?}");
    }
}

fn long_ranges_are_scanned_not_probed(placement: Placement) {
    let h = Harness::placed(16 * MIB, placement);
    for logical in [0, 5_000_000, u32::MAX] {
        claim(&h, 3, logical, 1, MapState::Mapped);
    }
    claim(&h, 4, 9, 1, MapState::Mapped);
    let op = h.core.op_begin().unwrap();
    let before = count::of_this_thread();
    assert_eq!(h.map.count(&op, 3, 1 << 32).unwrap(), 3);
    assert_eq!(
        h.map.seek(&op, 3, 1, 1 << 32, Seek::Data).unwrap(),
        Some(5_000_000)
    );
    assert_eq!(
        h.map.seek(&op, 3, 5_000_001, 1 << 32, Seek::Data).unwrap(),
        Some(u64::from(u32::MAX))
    );
    assert_eq!(h.map.seek(&op, 3, 0, 1 << 32, Seek::Hole).unwrap(), Some(1));
    drop(op);
    assert_eq!(release(&h, 3, 0, 1 << 32, u64::MAX), 3);
    assert!((count::of_this_thread() - before).probes < 6 * (h.core.blocks() / LINE_ENTRIES));
    h.settle();
    assert_eq!(h.free(), h.core.blocks() - 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn behaves_as_a_map_however_blocks_are_placed(
        steps in prop::collection::vec(mapping::tests::step(), 1..60),
        seed in any::<u64>(),
        placement in prop::sample::select(vec![
            Placement::SINGLE,
            Placement::APART,
            Placement::USUAL,
            Placement { span_lines: 256, ..Placement::USUAL },
        ]),
        layout_score in 0..=1000u16,
    ) {
        let h = Harness::placed(MIB, Placement { seed, layout_score, ..placement });
        mapping::tests::behave(&h, steps)?;
        check_saved_state(&h);
        check_saved_state(&h.reattach());
    }
}

/// A nearly full table with holes and displaced blocks, and its saved state.
fn saved(placement: Placement) -> Harness {
    let h = Harness::placed(4 * MIB, placement);
    let mut numbers = Numbers(7);
    let mut id = 0;
    while h.free() > 20 {
        id += 1;
        let blocks = 1 + numbers.below(19);
        claim(&h, id, 3, blocks as usize, MapState::Mapped);
        if id % 4 == 0 {
            release(&h, id - 1, 5, 12, u64::MAX);
            h.settle();
        }
    }
    check_saved_state(&h);
    h.map.save(&h.core).unwrap();
    h.core.pool.fence(Site::UNNAMED);
    h
}

#[test]
fn nothing_is_saved_while_blocks_are_in_limbo() {
    let h = Harness::new(MIB);
    claim(&h, 1, 0, 8, MapState::Mapped);
    release(&h, 1, 2, 3, u64::MAX);
    assert!(matches!(h.map.save(&h.core), Err(Error::Busy)));
    h.settle();
    h.map.save(&h.core).unwrap();
}

fn saved_state_is_loaded_without_reading_the_table(placement: Placement) {
    let before = saved(placement);
    let geometry = before.core.geometry;
    let displaced = (0..before.core.blocks() / LINE_ENTRIES)
        .map(|line| before.map.overflow.displaced(&before.core.arena, line))
        .sum::<u64>();
    assert!(displaced > 50, "only {displaced} displaced");
    let h = before.opened(before.core.pool.image());
    h.core.pool.track_reads(true);
    assert!(h.map.restore(&h.core));
    h.core.pool.track_reads(false);
    let in_table = |line: &u64| (geometry.table_at..geometry.saved_state_at).contains(line);
    assert_eq!(h.core.pool.lines_read().into_iter().find(in_table), None);
    assert_eq!(h.free(), before.free());
    check_saved_state(&h);
    // Every free block can be allocated, and no other.
    let free = h.free() as usize;
    claim(&h, 5000, 0, free, MapState::Mapped);
    check_saved_state(&h);
    assert_eq!(h.free(), 0);
    assert!(h.map.reserve(&h.core.op_begin().unwrap(), 1).is_err());
}

fn saved_state_is_accepted_only_whole_and_after_its_own_close(placement: Placement) {
    let before = saved(placement);
    let geometry = before.core.geometry;
    let plan = geometry.saved_state();
    let image = before.core.pool.image();
    let head = SavedStateHead::read_from_bytes(&image[plan.at as usize..][..64]).unwrap();
    let end = plan.free_at() + plan.body_words(head.displaced) * 8;
    for at in (plan.at..end)
        .step_by(8)
        .filter(|at| !(32..64).contains(&(at - plan.at)))
    {
        let mut damaged = image.clone();
        damaged[at as usize + 1] ^= 4;
        let h = before.opened(damaged);
        assert!(!h.map.restore(&h.core), "offset {at}");
        h.map
            .rebuild_allocator_state(&h.core, &|_, _, _| Verdict::Keep)
            .unwrap();
        check_saved_state(&h);
    }
    let later = before.recovered(image, &|_, _, _| Verdict::Keep);
    assert!(!later.map.restore(&later.core), "of another epoch");
}

/// Even if chains contain anything under a correct checksum, nothing is read or linked out of
/// bounds, no chain is circular, and unsound chains are rejected.
#[test]
fn chains_are_checked_beyond_their_checksum() {
    let before = saved(Placement::USUAL);
    let geometry = before.core.geometry;
    let plan = geometry.saved_state();
    let image = before.core.pool.image();
    let head = SavedStateHead::read_from_bytes(&image[plan.at as usize..][..64]).unwrap();
    let refused = |change: &dyn Fn(&mut [u8], &mut SavedStateHead)| {
        let (mut image, mut head) = (image.clone(), head);
        change(&mut image, &mut head);
        let bytes = plan.body_words(head.displaced) as usize * 8;
        let check = vellum_layout::checksum(&image[plan.free_at() as usize..][..bytes]);
        let sealed = SavedStateHead::new(1, head.used, head.displaced, check);
        image[plan.at as usize..][..64].copy_from_slice(sealed.as_bytes());
        let h = before.opened(image);
        !h.map.restore(&h.core)
    };
    assert!(!refused(&|_, _| {}));
    let links = plan.links_at() as usize;
    let first = u32::from_le_bytes(image[links..links + 4].try_into().unwrap());
    for (link, place) in [(first, 1), (0x3FFF_FFFF, 0), (first ^ 1 << 31, 0)] {
        let changed = refused(&|image, _| {
            image[links + 4 * place..][..4].copy_from_slice(&link.to_le_bytes());
        });
        assert!(changed, "{link:#x} at {place}");
    }
    assert!(refused(&|image, _| image[plan.map_at() as usize] ^= 1));
    assert!(refused(&|_, head| head.displaced -= 1));
    assert!(refused(&|_, head| head.displaced = head.used + 1));
    assert!(refused(&|_, head| head.used = u64::MAX));
    assert!(refused(
        &|image, _| image[plan.free_at() as usize..][..64].fill(0)
    ));
}

#[test]
fn data_is_what_lookups_find() {
    let h = Harness::new(4 * MIB);
    // A damaged table may contain this; no lookup finds it.
    let logical = 5_000_000;
    let word = MapWord::new(MapState::Mapped, 7, logical);
    let home = h.map.run_of(7, logical).home;
    let elsewhere = ((home + 9) % (h.core.blocks() / LINE_ENTRIES) * 8) as u32;
    h.core.set_word(h.map.entry_at(elsewhere), word.0);
    assert_eq!(find(&h, 7, logical, 1), [Found::Hole]);
    let op = h.core.op_begin().unwrap();
    let data = h.map.seek(&op, 7, 0, 1 << 32, Seek::Data);
    assert_eq!(data.unwrap(), None);
}
