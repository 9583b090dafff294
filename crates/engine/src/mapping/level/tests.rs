//! White-box tests of the level table: its levels, its moves, its stash, its recovery.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use vellum_layout::{
    GeometryRequest, KeyedPlan, LevelRoot, MapState, MappingKind, PAIRS_PER_LINE, STASH_LINES,
};
use vellum_media::{Memory, Persistent, Simulated, Site, count};

use super::*;
use crate::error::Error;
use crate::mapping::Verdict;
use crate::mapping::harness::{Bench, Judge};
use crate::mapping::keyed::lines::{Held, is_live};
use crate::mapping::tests::{self, find, try_claim};

type Leveled = Bench<Level>;

const MIB: u64 = 1 << 20;
const SEED: u64 = 0x5EED;
const STEP: Step = Step {
    to: MapState::Mapped,
    flush: Some(Flush::all(Site::UNNAMED)),
};
const KEEP: Judge<'static> = &|_, _, _| Verdict::Keep;

fn make(arena_at: u64, geometry: &Geometry, seed: u64) -> Box<Level> {
    Box::new(Level::new(arena_at, geometry, seed))
}

fn pool(bytes: u64) -> Leveled {
    let request = GeometryRequest {
        pool_bytes: bytes,
        mapping: MappingKind::Level,
        ..GeometryRequest::default()
    };
    Bench::made(request, SEED, Arc::new(make))
}

fn claim(h: &Leveled, id: MapId, first: u32, blocks: usize) {
    try_claim(h, id, first, blocks, STEP).unwrap();
}

fn release(h: &Leveled, id: MapId, first: u64, end: u64) -> u64 {
    tests::release(h, id, first, end, u64::MAX)
}

fn held(h: &Leveled, id: MapId, logical: u32) -> Held {
    let found = h.map.table.find_block(&h.core, id, logical);
    found.unwrap().unwrap()
}

fn levels(h: &Leveled) -> LevelRoot {
    h.map.table.levels(&h.core)
}

fn stashed(h: &Leveled) -> u64 {
    h.core.arena.load(h.map.table.stashed_at, Ordering::Relaxed)
}

/// Claims every other block of file 5, one at a time, until the table has used `top` levels.
fn fill_until(h: &Leveled, top: u32) -> u32 {
    let mut blocks = 0;
    while levels(h).top() < top {
        claim(h, 5, blocks * 2, 1);
        blocks += 1;
    }
    blocks
}

/// Checks that every entry is sound and in a line of its key, and no key is there twice; that
/// levels not in use are empty; and that the root on the pool agrees with the arena, or still names
/// an emptied level.
fn check_table(h: &Leveled) {
    let table = &h.map.table;
    let levels = levels(h);
    let plan = KeyedPlan::Level(table.plan, levels);
    let mut entries = HashMap::new();
    let mut in_stash = 0;
    let used: Vec<u64> = plan.parts().into_iter().flatten().collect();
    for line in 1..table.plan.all_lines() {
        let is_used = used.contains(&line);
        table
            .lines
            .each_in(&h.core, line, |held| {
                assert!(is_used, "an entry in a level that is not in use");
                assert!(is_live(held.word), "a mark remains");
                assert!(table.lines.is_sound(&held));
                let mut homes = plan.homes(SEED, held.word.0);
                assert!(plan.is_stash(line) || homes.any(|home| home == line));
                in_stash += u64::from(plan.is_stash(line));
                let key = held.word.0 & MapWord::KEY_MASK;
                assert!(entries.insert(key, held).is_none(), "a key is there twice");
                Ok(())
            })
            .unwrap();
    }
    assert_eq!(stashed(h), in_stash);
    assert!(table.moves.are_over(&h.core));
    assert_eq!(h.core.arena.load(table.grower_at, Ordering::Relaxed), 0);
    assert_eq!(table.read_root(&h.core).unwrap(), levels);
    assert_eq!(
        h.free() + entries.len() as u64,
        h.core.geometry.segment_blocks
    );
}

#[test]
fn a_failed_attempt_at_the_lock_of_a_table_changes_nothing() {
    let h = pool(4 * MIB);
    let op = h.core.op_begin().unwrap();
    let held = h.map.table.try_growth(&op);
    assert!(held.is_some());
    assert!(h.map.table.try_growth(&op).is_none());
    assert!(h.map.table.try_growth(&op).is_none());
    drop(held);
    assert!(h.map.table.try_growth(&op).is_some());
}

#[test]
fn a_table_grows_with_its_contents() {
    let h = pool(16 * MIB);
    let last = h.map.table.plan.last;
    let blocks = h.core.geometry.segment_blocks as u32;
    let mut at_growth = Vec::new();
    for logical in 0..blocks {
        let before = levels(&h).top();
        claim(&h, 5, logical * 2, 1);
        if levels(&h).top() > before {
            let lines: u64 = [before, before - 1]
                .map(|level| h.map.table.plan.first << level)
                .iter()
                .sum();
            at_growth.push(u64::from(logical) * 100 / (lines * PAIRS_PER_LINE));
        }
    }
    check_table(&h);
    assert_eq!(levels(&h), LevelRoot::new(last, false));
    assert_eq!(at_growth.len() as u32, last - 1);
    assert!(at_growth.iter().all(|&full| full >= 75), "{at_growth:?}");
    assert_eq!(stashed(&h), 0);
    for logical in 0..2 * blocks {
        assert_eq!(find(&h, 5, logical, 1)[0] == Found::Hole, logical % 2 == 1);
    }
}

/// Otherwise an entry could leave its line without a safe copy, or entries could enter a level that
/// no durable root names.
#[test]
fn no_entry_moves_in_an_operation_that_met_lost_bytes() {
    let h = pool(4 * MIB);
    let mut refused = 0;
    for logical in 0..h.core.geometry.segment_blocks as u32 {
        let places = || Vec::from_iter((0..logical).map(|logical| held(&h, 5, 2 * logical).at));
        let before = (places(), levels(&h), stashed(&h));
        let done = tests::claim_amid_loss(&h, 5, 2 * logical, STEP);
        let after = (places(), levels(&h), stashed(&h));
        assert_eq!(after, before);
        if let Err(error) = done {
            refused += 1;
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            claim(&h, 5, 2 * logical, 1);
            check_table(&h);
        }
    }
    assert!(refused > 0, "no claim needed a move");
}

#[test]
fn a_lookup_probes_four_lines_and_six_while_the_table_grows() {
    let h = pool(16 * MIB);
    let blocks = fill_until(&h, 4);
    let most = |expected: u64| {
        let mut most = 0;
        for logical in 0..2 * blocks {
            let before = count::of_this_thread();
            find(&h, 5, logical, 1);
            most = most.max((count::of_this_thread() - before).probes);
        }
        assert_eq!(most, expected);
    };
    assert!(levels(&h).moving().is_some());
    most(6);
    let mut more = blocks;
    while levels(&h).moving().is_some() {
        claim(&h, 6, more, 1);
        more += 1;
    }
    most(4);
    check_table(&h);
}

#[test]
fn no_insertion_waits_for_a_whole_growth() {
    let h = pool(64 * MIB);
    let mut most = 0;
    for logical in 0..h.core.geometry.segment_blocks as u32 {
        let before = count::of_this_thread();
        claim(&h, 5, logical, 1);
        most = most.max((count::of_this_thread() - before).fences);
    }
    // Four entries of a line that move, one more that makes room, a level that begins, the test's.
    assert!(most <= 2 * 4 + 2 + 1 + 1, "{most}");
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
            assert_eq!(stashed(&h), 0);
            for id in 5..8 {
                release(&h, id, 0, 1 << 32);
            }
            h.settle();
        }
        check_table(&h);
    }
}

#[test]
fn changes_made_while_the_table_grows_last() {
    let h = pool(MIB);
    let blocks = fill_until(&h, 2);
    assert!(levels(&h).moving().is_some());
    for logical in (0..blocks).step_by(3) {
        assert_eq!(
            release(&h, 5, u64::from(logical * 2), u64::from(logical * 2 + 1)),
            1
        );
    }
    for logical in (1..blocks).step_by(3) {
        let block = held(&h, 5, logical * 2).place.block();
        let op = h.core.op_begin().unwrap();
        let to = MapState::Unwritten;
        let step = Step { to, ..STEP };
        let block = [BlockNo(block)];
        h.map.set_state(&op, 5, logical * 2, &block, step).unwrap();
    }
    let check = |h: &Leveled| {
        for logical in 0..blocks {
            let found = find(h, 5, logical * 2, 1)[0];
            let fits = match logical % 3 {
                0 => found == Found::Hole,
                1 => matches!(found, Found::Unwritten(_)),
                _ => matches!(found, Found::Mapped(_)),
            };
            assert!(fits, "{logical}: {found:?}");
        }
    };
    check(&h);
    h.settle();
    let h = h.reattach();
    check(&h);
    let mut more = 0;
    while levels(&h).moving().is_some() {
        claim(&h, 6, more, 1);
        more += 1;
    }
    check(&h);
    check_table(&h);
}

/// Keys of one file with the same two lines in the largest table's top level, and so in every
/// level.
fn crowd(h: &Leveled, count: usize) -> Vec<u32> {
    let table = &h.map.table;
    let homes = |logical| table.homes(&table.key(5, logical), table.plan.last);
    let wanted = homes(0);
    (0..)
        .filter(|&logical| homes(logical) == wanted)
        .take(count)
        .collect()
}

#[test]
fn keys_without_room_go_to_the_stash_until_it_is_full() {
    let h = pool(MIB);
    let room = (4 + STASH_LINES) * PAIRS_PER_LINE;
    let keys = crowd(&h, room as usize + 1);
    let (last, fit) = keys.split_last().unwrap();
    fit.iter().for_each(|&logical| claim(&h, 5, logical, 1));
    check_table(&h);
    assert_eq!(stashed(&h), STASH_LINES * PAIRS_PER_LINE);
    assert_eq!(levels(&h).top(), h.map.table.plan.last);
    let free = h.free();
    let error = try_claim(&h, 5, *last, 1, STEP).unwrap_err();
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    assert_eq!(h.free(), free, "the block that got no entry is free again");
    let h = h.reattach();
    for &logical in fit {
        assert_ne!(find(&h, 5, logical, 1), [Found::Hole]);
    }
    assert_eq!(release(&h, 5, fit[3].into(), u64::from(fit[3]) + 1), 1);
    assert_eq!(release(&h, 5, fit[45].into(), u64::from(fit[45]) + 1), 1);
    h.settle();
    claim(&h, 5, *last, 1);
    check_table(&h);
    assert_eq!(release(&h, 5, 0, 1 << 32), room - 1);
}

/// Stores an entry at a chosen offset.
fn put(h: &Leveled, at: u64, word: u64, place: u64) {
    h.core.pool.store(at + 8, place, Ordering::Relaxed);
    h.core.pool.store(at, word, Ordering::Relaxed);
}

/// A free entry of a line.
fn free_entry(h: &Leveled, line: u64) -> u64 {
    let free = h.map.table.lines.free_in(&h.core, line);
    h.map.table.lines.line_at(line) + u64::from(free.trailing_zeros()) * 8
}

/// A free entry in another line of a key.
fn another(h: &Leveled, held: &Held) -> u64 {
    let table = &h.map.table;
    let plan = KeyedPlan::Level(table.plan, levels(h));
    let here = table.lines.line_of(held.at);
    let mut homes = plan.homes(SEED, held.word.0);
    free_entry(h, homes.find(|&line| line != here).unwrap())
}

#[test]
fn recovery_reduces_the_copies_of_a_broken_off_move_to_one() {
    let h = pool(MIB);
    claim(&h, 5, 0, 8);
    let kept = held(&h, 5, 3);
    put(&h, another(&h, &kept), kept.word.0, kept.place.0);
    let mark = MapWord::new(MapState::Limbo, 9, 9);
    let stash = h.map.table.plan.stash().start;
    put(&h, free_entry(&h, stash), mark.0, 77);
    let in_stash = held(&h, 5, 4);
    put(&h, free_entry(&h, stash), in_stash.word.0, in_stash.place.0);
    let free = h.free();
    let h = h.reattach();
    check_table(&h);
    assert_eq!(h.free(), free);
    let block = BlockNo(kept.place.block());
    assert_eq!(find(&h, 5, 3, 1), [Found::Mapped(block)]);
}

#[test]
fn damage_is_distinguished_from_what_a_crash_leaves() {
    type Spoil = fn(&Leveled, Held);
    let spoils: [(&str, Spoil); 9] = [
        ("another check", |h, held| {
            put(h, held.at, held.word.0, held.place.0 ^ 1 << 50)
        }),
        ("no such block", |h, held| {
            let place = KeyedWord::new(held.word.0, 0x3FFF_FFFF, 0, 0);
            put(h, held.at, held.word.0, place.0);
        }),
        ("a foreign line", |h, held| {
            let table = &h.map.table;
            let homes = table.homes(&table.key_of(held.word), 1);
            let mut lines = table.plan.lines_of(1);
            let line = lines.find(|line| !homes.contains(line)).unwrap();
            put(h, held.at, 0, 0);
            put(h, free_entry(h, line), held.word.0, held.place.0);
        }),
        ("one key, two blocks", |h, held| {
            let place = KeyedWord::new(held.word.0, held.place.block() + 60, 0, 0);
            put(h, another(h, &held), held.word.0, place.0);
        }),
        ("one key, twice in a line", |h, held| {
            let line = h.map.table.lines.line_of(held.at);
            let place = KeyedWord::new(held.word.0, held.place.block() + 60, 0, 0);
            put(h, free_entry(h, line), held.word.0, place.0);
        }),
        ("one key, twice in the stash", |h, held| {
            let mut stash = h.map.table.plan.stash();
            put(h, held.at, 0, 0);
            for block in [held.place.block(), held.place.block() + 60] {
                let place = KeyedWord::new(held.word.0, block, 0, 0);
                let line = stash.next().unwrap();
                put(h, free_entry(h, line), held.word.0, place.0);
            }
        }),
        ("a level to come", |h, held| {
            let table = &h.map.table;
            let line = table.homes(&table.key_of(held.word), table.plan.last)[0];
            put(h, free_entry(h, line), held.word.0, held.place.0);
        }),
        ("one block, two keys", |h, held| {
            let table = &h.map.table;
            let key = table.key(6, 0);
            let place = KeyedWord::new(key.word, held.place.block(), 0, 0);
            let word = MapWord::new(MapState::Mapped, 6, 0);
            put(h, free_entry(h, table.homes(&key, 1)[0]), word.0, place.0);
        }),
        ("no root", |h, _| {
            h.core
                .pool
                .store(h.map.table.root_at(), 0, Ordering::Relaxed);
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

#[test]
fn a_close_drops_an_empty_level_and_keeps_any_other() {
    for keep in [0, 1] {
        let h = pool(MIB);
        let blocks = fill_until(&h, 2);
        let moving = levels(&h);
        let dying = h.map.table.plan.lines_of(moving.moving().unwrap());
        let at = |logical| h.map.table.lines.line_of(held(&h, 5, logical).at);
        let (inside, _): (Vec<u32>, _) = (0..blocks)
            .map(|block| block * 2)
            .partition(|&logical| dying.contains(&at(logical)));
        for &logical in &inside[keep..] {
            release(&h, 5, logical.into(), u64::from(logical) + 1);
        }
        h.settle();
        Mapping::<Simulated>::save(&*h.map, &h.core).unwrap();
        h.core.pool.fence(Site::UNNAMED);
        let opened = h.opened(h.core.pool.image());
        assert!(Mapping::<Simulated>::restore(&*opened.map, &opened.core));
        let expected = LevelRoot::new(2, keep == 1);
        assert_eq!(levels(&opened), expected);
        check_table(&opened);
        if keep == 1 {
            assert_ne!(find(&opened, 5, inside[0], 1), [Found::Hole]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn places_stay_sound(
        steps in prop::collection::vec((5..7u32, 0..200u32, 1..60usize, 0..6u8), 1..60),
    ) {
        let mut h = pool(MIB);
        for (id, first, blocks, kind) in steps {
            h.settle();
            match kind {
                0 | 1 => {
                    let to = [MapState::Mapped, MapState::Unwritten][usize::from(kind)];
                    let found = find(&h, id, first, blocks);
                    let holes = found.iter().take_while(|found| **found == Found::Hole).count();
                    if holes > 0 && h.free() >= holes as u64 {
                        try_claim(&h, id, first, holes, Step { to, ..STEP }).unwrap();
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
                4 => { h = h.reattach(); }
                _ => { release(&h, id, 0, 1 << 32); }
            }
            h.settle();
            check_table(&h);
        }
    }
}
