//! White-box tests of the cuckoo table: its counts, its moves, its stash, its recovery.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use vellum_layout::{
    GeometryRequest, KeyedWord, MapWord, MappingKind, PAIRS_PER_LINE, STASH_LINES,
};
use vellum_media::{CrashPoints, Memory, Site, count};

use super::*;
use crate::error::Error;
use crate::mapping::Verdict;
use crate::mapping::harness::{Bench, Judge};
use crate::mapping::keyed::lines::{Held, is_live};
use crate::mapping::tests::{self, find, try_claim};

type Cuckooed = Bench<Cuckoo>;

const MIB: u64 = 1 << 20;
const SEED: u64 = 0x5EED;
const STEP: Step = Step {
    to: MapState::Mapped,
    flush: Some(Flush::all(Site::UNNAMED)),
};

fn make(arena_at: u64, geometry: &Geometry, seed: u64) -> Box<Cuckoo> {
    Box::new(Cuckoo::new(arena_at, geometry, seed))
}

fn pool(bytes: u64) -> Cuckooed {
    let request = GeometryRequest {
        pool_bytes: bytes,
        mapping: MappingKind::Cuckoo,
        ..GeometryRequest::default()
    };
    Bench::made(request, SEED, Arc::new(make))
}

fn claim(h: &Cuckooed, id: MapId, first: u32, blocks: usize) {
    try_claim(h, id, first, blocks, STEP).unwrap();
}

fn release(h: &Cuckooed, id: MapId, first: u64, end: u64) -> u64 {
    tests::release(h, id, first, end, u64::MAX)
}

fn held(h: &Cuckooed, id: MapId, logical: u32) -> Held {
    let table = &h.map.table;
    table
        .find(&h.core, &table.key(id, logical))
        .unwrap()
        .unwrap()
}

fn counts(h: &Cuckooed, id: MapId, logical: u32) -> (u32, u32) {
    let place = held(h, id, logical).place;
    (place.following(), place.preceding())
}

/// Checks that every entry is sound and in a line of its key, that no key is there twice, and that
/// no count claims too much.
fn check_table(h: &Cuckooed) {
    let table = &h.map.table;
    let mut entries = HashMap::new();
    let mut stashed = 0;
    for line in 0..table.plan.all_lines() {
        table
            .lines
            .each_in(&h.core, line, |held| {
                assert!(is_live(held.word), "a mark remains");
                assert!(table.lines.is_sound(&held));
                let homes = table.key_of(held.word).homes;
                assert!(line >= table.plan.lines || homes.contains(&line));
                stashed += u64::from(line >= table.plan.lines);
                let key = held.word.0 & MapWord::KEY_MASK;
                assert!(entries.insert(key, held).is_none(), "a key is there twice");
                Ok(())
            })
            .unwrap();
    }
    assert_eq!(
        h.core.arena.load(table.stashed_at, Ordering::Relaxed),
        stashed
    );
    assert!(table.moves.are_over(&h.core));
    for (&key, before) in &entries {
        let mut last = *before;
        for ahead in 1..=before.place.following() {
            let next = entries.get(&(key + u64::from(ahead)));
            let next = *next.expect("a counted block is not there");
            assert!(last.is_before(&next), "a counted block does not follow");
            assert!(
                next.place.preceding() >= ahead,
                "a count that a change would not find"
            );
            last = next;
        }
    }
}

#[test]
fn a_contiguous_range_is_one_probe() {
    let h = pool(16 * MIB);
    claim(&h, 5, 0, 256);
    assert_eq!(counts(&h, 5, 0), (255, 0));
    assert_eq!(counts(&h, 5, 255), (0, 255));
    let before = count::of_this_thread();
    let found = find(&h, 5, 0, 256);
    let probes = (count::of_this_thread() - before).probes;
    assert!(probes <= 2, "{probes}");
    let block = found[0].block().unwrap().0;
    assert!(
        (block..)
            .zip(found)
            .all(|(block, found)| found == Found::Mapped(BlockNo(block)))
    );
    check_table(&h);
}

#[test]
fn a_lookup_probes_two_lines_at_most() {
    let h = pool(4 * MIB);
    let blocks = h.core.geometry.segment_blocks as u32;
    // Every other block, so that there is no range.
    (0..blocks).for_each(|i| claim(&h, 5, i * 2, 1));
    check_table(&h);
    let mut first = 0;
    for logical in 0..2 * blocks {
        let before = count::of_this_thread();
        assert_eq!(find(&h, 5, logical, 1)[0] == Found::Hole, logical % 2 == 1);
        let probes = (count::of_this_thread() - before).probes;
        assert!(probes <= 2, "{probes}");
        first += u64::from(probes == 1);
    }
    assert!(
        first > u64::from(blocks / 2),
        "only {first} of {blocks} in their first line"
    );
}

#[test]
fn every_block_of_a_segment_gets_an_entry_and_the_stash_stays_empty() {
    for bytes in [MIB, 3 * MIB, 16 * MIB] {
        let h = pool(bytes);
        let blocks = h.core.geometry.segment_blocks as u32;
        for round in 0..4 {
            (0..blocks).for_each(|i| claim(&h, 5 + i % 3, round + i * 2, 1));
            assert_eq!(h.free(), 0);
            check_table(&h);
            assert_eq!(
                h.core.arena.load(h.map.table.stashed_at, Ordering::Relaxed),
                0
            );
            for id in 5..8 {
                release(&h, id, 0, 1 << 32);
            }
            h.settle();
        }
        assert_eq!(h.free(), u64::from(blocks));
        check_table(&h);
    }
}

/// Otherwise an entry could leave its line without a safe copy.
#[test]
fn no_entry_moves_in_an_operation_that_met_lost_bytes() {
    let h = pool(MIB);
    let mut refused = 0;
    for logical in 0..h.core.geometry.segment_blocks as u32 {
        let places = || Vec::from_iter((0..logical).map(|logical| held(&h, 5, 2 * logical).at));
        let before = places();
        let done = tests::claim_amid_loss(&h, 5, 2 * logical, STEP);
        assert_eq!(places(), before);
        if let Err(error) = done {
            refused += 1;
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            check_table(&h);
            claim(&h, 5, 2 * logical, 1);
        }
    }
    assert!(refused > 0, "no claim needed a move");
    check_table(&h);
}

#[test]
fn appending_block_by_block_updates_the_first_entry_of_the_run() {
    let h = pool(16 * MIB);
    (0..600).for_each(|logical| claim(&h, 5, logical, 1));
    check_table(&h);
    assert_eq!(counts(&h, 5, 0), (255, 0));
    assert_eq!(counts(&h, 5, 100), (0, 100));
    let before = count::of_this_thread();
    find(&h, 5, 0, 256);
    assert!((count::of_this_thread() - before).probes <= 2);
}

#[test]
fn counts_of_a_block_are_cut_before_it_is_removed() {
    let h = pool(16 * MIB);
    claim(&h, 5, 0, 40);
    assert_eq!(release(&h, 5, 20, 30), 10);
    check_table(&h);
    assert_eq!(counts(&h, 5, 0).0, 19);
    assert_eq!(counts(&h, 5, 19).0, 0);
    assert_eq!(counts(&h, 5, 30).0, 9);
    let found = find(&h, 5, 0, 40);
    assert!((0..40).all(|i| (found[i] == Found::Hole) == (20..30).contains(&i)));
}

#[test]
fn a_state_changed_in_the_middle_splits_a_range() {
    let h = pool(16 * MIB);
    let unwritten = Step {
        to: MapState::Unwritten,
        ..STEP
    };
    try_claim(&h, 5, 0, 40, unwritten).unwrap();
    for logical in [7, 9, 8, 0, 1] {
        let block = held(&h, 5, logical).place.block();
        let op = h.core.op_begin().unwrap();
        h.map
            .set_state(&op, 5, logical, &[BlockNo(block)], STEP)
            .unwrap();
        drop(op);
        check_table(&h);
    }
    let found = find(&h, 5, 0, 40);
    for (logical, found) in found.into_iter().enumerate() {
        let mapped = [0, 1, 7, 8, 9].contains(&logical);
        assert_eq!(matches!(found, Found::Mapped(_)), mapped, "{logical}");
    }
    assert_eq!(counts(&h, 5, 0).0, 1, "the second joined the first");
}

/// Keys of one file with the same two lines, which hold eight.
fn crowd(h: &Cuckooed, count: usize) -> Vec<u32> {
    let table = &h.map.table;
    let homes = |logical| {
        let mut homes = table.key(5, logical).homes;
        homes.sort_unstable();
        homes
    };
    let wanted = homes(0);
    (0..)
        .filter(|&logical| homes(logical) == wanted)
        .take(count)
        .collect()
}

#[test]
fn keys_without_a_path_go_to_the_stash_until_it_is_full() {
    let h = pool(MIB);
    let room = (2 + STASH_LINES) * PAIRS_PER_LINE;
    let keys = crowd(&h, room as usize + 1);
    let (last, fit) = keys.split_last().unwrap();
    fit.iter().for_each(|&logical| claim(&h, 5, logical, 1));
    check_table(&h);
    let free = h.free();
    let error = try_claim(&h, 5, *last, 1, STEP).unwrap_err();
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    assert_eq!(h.free(), free, "the block that got no entry is free again");
    let h = h.reattach();
    for &logical in fit {
        assert_ne!(find(&h, 5, logical, 1), [Found::Hole]);
    }
    assert_eq!(release(&h, 5, fit[3].into(), u64::from(fit[3]) + 1), 1);
    assert_eq!(release(&h, 5, fit[20].into(), u64::from(fit[20]) + 1), 1);
    claim(&h, 5, *last, 1);
    check_table(&h);
    assert_eq!(release(&h, 5, 0, 1 << 32), room - 1);
    check_table(&h);
}

/// Stores an entry at a chosen offset.
fn put(h: &Cuckooed, at: u64, word: u64, place: u64) {
    h.core.pool.store(at + 8, place, Ordering::Relaxed);
    h.core.pool.store(at, word, Ordering::Relaxed);
}

/// A free entry of a line.
fn free_entry(h: &Cuckooed, line: u64) -> u64 {
    let free = h.map.table.lines.free_in(&h.core, line);
    h.map.table.lines.line_at(line) + u64::from(free.trailing_zeros()) * 8
}

const KEEP: Judge<'static> = &|_, _, _| Verdict::Keep;

#[test]
fn recovery_reduces_the_copies_of_a_broken_off_move_to_one() {
    let h = pool(MIB);
    claim(&h, 5, 0, 8);
    let kept = held(&h, 5, 3);
    let homes = h.map.table.key_of(kept.word).homes;
    let line = (kept.at - h.map.table.lines.at) / 64;
    let other = if homes[0] == line { homes[1] } else { homes[0] };
    // Counts and state may be from different moments.
    let stale = KeyedWord::new(kept.word.0, kept.place.block(), 0, 0);
    put(&h, free_entry(&h, other), kept.word.0, stale.0);
    let mark = MapWord::new(MapState::Limbo, 9, 9);
    put(&h, free_entry(&h, 0), mark.0, 77);
    let free = h.free();
    let h = h.reattach();
    check_table(&h);
    assert_eq!(h.free(), free);
    assert_eq!(
        find(&h, 5, 3, 1),
        [Found::Mapped(BlockNo(kept.place.block()))]
    );
}

#[test]
fn recovery_cuts_counts_of_missing_blocks() {
    let h = pool(MIB);
    claim(&h, 5, 0, 40);
    let gone = held(&h, 5, 25);
    put(&h, gone.at, 0, 0);
    let unwritten = held(&h, 5, 30);
    let state = unwritten.word.with_state(MapState::Unwritten);
    put(&h, unwritten.at, state.0, unwritten.place.0);
    let h = h.reattach_judged(&|_, logical, _| {
        if logical >= 35 {
            Verdict::Free
        } else {
            Verdict::Keep
        }
    });
    check_table(&h);
    let found = find(&h, 5, 0, 40);
    let holes: Vec<_> = (0..40).filter(|&i| found[i] == Found::Hole).collect();
    assert_eq!(holes, [25, 35, 36, 37, 38, 39]);
    assert!(matches!(found[30], Found::Unwritten(_)));
    assert_eq!(counts(&h, 5, 26).0, 3);
}

/// Two neighbours that did not count each other change their state together. After a crash the line
/// of the first may have the new count but the old state, and the line of the second may be
/// entirely old. Then an entry counts the second, which does not record that, and removing the
/// second would not cut this count.
#[test]
fn a_count_that_arrived_before_its_state_is_cut() {
    let h = pool(6 * MIB);
    let to = MapState::Unwritten;
    (0..600).for_each(|logical| drop(try_claim(&h, 5, logical, 1, Step { to, ..STEP }).unwrap()));
    // The first entry of a run counts the maximum; the next run begins after the last of these.
    let pair_at = |logical| [logical, logical + 1].map(|logical| held(&h, 5, logical));
    let is_uncounted = |logical: &u32| {
        let pair = pair_at(*logical);
        let counts = (counts(&h, 5, *logical).0, counts(&h, 5, logical + 1).1);
        pair[0].is_before(&pair[1]) && counts == (0, 0)
    };
    let last = (0..599).find(is_uncounted).unwrap();
    let pair = pair_at(last);
    let base = h.core.pool.image();
    h.core.pool.start_recording();
    let blocks = pair.map(|held| BlockNo(held.place.block()));
    let op = h.core.op_begin().unwrap();
    h.map.set_state(&op, 5, last, &blocks, STEP).unwrap();
    drop(op);
    let log = h.core.pool.take_log();
    let mut points = CrashPoints::new(base, &log);
    while let Some(point) = points.next_point() {
        for state in point.states(64, 0) {
            let h = h.recovered(point.image(&state), KEEP);
            assert_eq!(release(&h, 5, u64::from(last) + 1, u64::from(last) + 2), 1);
            assert_eq!(find(&h, 5, last, 2)[1], Found::Hole);
            check_table(&h);
        }
    }
}

#[test]
fn damage_is_distinguished_from_what_a_crash_leaves() {
    type Spoil = fn(&Cuckooed, Held);
    let spoils: [(&str, Spoil); 7] = [
        ("another check", |h, held| {
            put(h, held.at, held.word.0, held.place.0 ^ 1 << 50)
        }),
        ("no such block", |h, held| {
            let place = KeyedWord::new(held.word.0, 0x3FFF_FFFF, 0, 0);
            put(h, held.at, held.word.0, place.0);
        }),
        ("a foreign line", |h, held| {
            let homes = h.map.table.key_of(held.word).homes;
            let line = (0..).find(|line| !homes.contains(line)).unwrap();
            put(h, held.at, 0, 0);
            put(h, free_entry(h, line), held.word.0, held.place.0);
        }),
        ("one key, two blocks", |h, held| {
            let homes = h.map.table.key_of(held.word).homes;
            let line = (held.at - h.map.table.lines.at) / 64;
            let other = if homes[0] == line { homes[1] } else { homes[0] };
            let place = KeyedWord::new(held.word.0, held.place.block() + 60, 0, 0);
            put(h, free_entry(h, other), held.word.0, place.0);
        }),
        ("one key, twice in a line", |h, held| {
            let line = h.map.table.lines.line_of(held.at);
            let place = KeyedWord::new(held.word.0, held.place.block() + 60, 0, 0);
            put(h, free_entry(h, line), held.word.0, place.0);
        }),
        ("one key, twice in the stash", |h, held| {
            let mut stash = h.map.table.stash();
            put(h, held.at, 0, 0);
            for block in [held.place.block(), held.place.block() + 60] {
                let place = KeyedWord::new(held.word.0, block, 0, 0);
                let line = stash.next().unwrap();
                put(h, free_entry(h, line), held.word.0, place.0);
            }
        }),
        ("one block, two keys", |h, held| {
            let table = &h.map.table;
            let key = table.key(6, 0);
            let place = KeyedWord::new(key.word, held.place.block(), 0, 0);
            let word = MapWord::new(MapState::Mapped, 6, 0);
            put(h, free_entry(h, key.homes[0]), word.0, place.0);
        }),
    ];
    for (what, spoil) in spoils {
        let h = pool(MIB);
        claim(&h, 5, 0, 8);
        spoil(&h, held(&h, 5, 3));
        let error = h.rebuild(KEEP).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{what}: {error}");
    }
}

#[test]
fn a_lookup_reports_an_unsound_entry() {
    let h = pool(MIB);
    claim(&h, 5, 0, 8);
    let spoilt = held(&h, 5, 3);
    put(&h, spoilt.at, spoilt.word.0, spoilt.place.0 ^ 1);
    let op = h.core.op_begin().unwrap();
    let error = h.map.lookup(&op, 5, 3, &mut [Found::Hole]).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn counts_and_places_stay_sound(
        steps in prop::collection::vec((5..7u32, 0..60u32, 1..30usize, 0..5u8), 1..60),
    ) {
        let h = pool(MIB);
        for (id, first, blocks, kind) in steps {
            h.settle();
            match kind {
                0 | 1 => {
                    let to = [MapState::Mapped, MapState::Unwritten][usize::from(kind)];
                    let step = Step { to, ..STEP };
                    let found = find(&h, id, first, blocks);
                    let holes = found.iter().take_while(|found| **found == Found::Hole).count();
                    if holes > 0 && h.free() >= holes as u64 {
                        try_claim(&h, id, first, holes, step).unwrap();
                    }
                }
                2 => { release(&h, id, first.into(), u64::from(first) + blocks as u64); }
                3 => {
                    let found = find(&h, id, first, blocks);
                    let blocks: Vec<_> = found.iter().map_while(|found| found.block()).collect();
                    if !blocks.is_empty() {
                        let op = h.core.op_begin().unwrap();
                        h.map.set_state(&op, id, first, &blocks, STEP).unwrap();
                    }
                }
                _ => { release(&h, id, 0, 1 << 32); }
            }
            check_table(&h);
        }
    }
}
