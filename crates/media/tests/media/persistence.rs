//! The persistency model against cases computed by hand.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use vellum_media::{Caller, CrashPoint, CrashPoints, Event, Memory, Op, Persistent, SimPool, Site};

/// The first cells of lines 0 and 1, and the second cell of line 0.
const A: u64 = 0;
const B: u64 = 64;
const A2: u64 = 8;

/// The values of (A, A2, B) that a crash at this point may leave.
fn outcomes(point: &CrashPoint<'_>) -> BTreeSet<(u64, u64, u64)> {
    let cell = |image: &[u8], at: u64| {
        let at = at as usize;
        u64::from_ne_bytes(image[at..at + 8].try_into().expect("eight bytes"))
    };
    let states = point.states(1000, 0);
    assert_eq!(states.len() as u128, point.combinations());
    states
        .iter()
        .map(|state| point.image(state))
        .map(|image| (cell(&image, A), cell(&image, A2), cell(&image, B)))
        .collect()
}

/// The outcomes at every crash point of a run on a pool of zeros.
fn crashes(run: impl FnOnce(&SimPool)) -> Vec<BTreeSet<(u64, u64, u64)>> {
    let (base, log) = record(run);
    let mut points = CrashPoints::new(base, &log);
    let mut all = Vec::new();
    while let Some(point) = points.next_point() {
        all.push(outcomes(&point));
    }
    all
}

fn record(run: impl FnOnce(&SimPool)) -> (Vec<u8>, Vec<Event>) {
    let pool = SimPool::new(256);
    let base = pool.image();
    pool.start_recording();
    run(&pool);
    (base, pool.take_log())
}

#[test]
fn lines_arrive_independently_and_prefixes_in_order() {
    let found = crashes(|pool| {
        pool.store(A, 1, Relaxed);
        pool.store(A2, 2, Relaxed);
        pool.store(B, 3, Relaxed);
    });
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], [(0, 0, 0), (1, 0, 0)].into());
    // A2 never without A: they share a line.
    assert_eq!(found[1], [(0, 0, 0), (1, 0, 0), (1, 2, 0)].into());
    assert_eq!(
        found[2],
        [
            (0, 0, 0),
            (1, 0, 0),
            (1, 2, 0),
            (0, 0, 3),
            (1, 0, 3),
            (1, 2, 3)
        ]
        .into()
    );
}

#[test]
fn a_flush_without_a_fence_promises_nothing() {
    let found = crashes(|pool| {
        pool.store(A, 1, Relaxed);
        pool.flush(Site::UNNAMED, A, 8);
        pool.store(B, 3, Relaxed);
    });
    assert_eq!(
        found[1],
        [(0, 0, 0), (1, 0, 0), (0, 0, 3), (1, 0, 3)].into()
    );
}

#[test]
fn a_fence_without_a_flush_promises_nothing() {
    let found = crashes(|pool| {
        pool.store(A, 1, Relaxed);
        pool.fence(Site::UNNAMED);
        pool.store(B, 3, Relaxed);
    });
    assert_eq!(found.len(), 2, "the fence changed nothing");
    assert_eq!(
        found[1],
        [(0, 0, 0), (1, 0, 0), (0, 0, 3), (1, 0, 3)].into()
    );
}

#[test]
fn flush_and_fence_make_durable() {
    let found = crashes(|pool| {
        pool.store(A, 1, Relaxed);
        pool.flush(Site::UNNAMED, A, 8);
        pool.fence(Site::UNNAMED);
        pool.store(B, 3, Relaxed);
    });
    assert_eq!(found[1], [(1, 0, 0)].into());
    assert_eq!(found[2], [(1, 0, 0), (1, 0, 3)].into());
}

#[test]
fn a_store_after_the_flush_is_not_covered() {
    let found = crashes(|pool| {
        pool.store(A, 1, Relaxed);
        pool.flush(Site::UNNAMED, A, 8);
        pool.store(A2, 2, Relaxed);
        pool.fence(Site::UNNAMED);
    });
    assert_eq!(found[1], [(0, 0, 0), (1, 0, 0), (1, 2, 0)].into());
    assert_eq!(found[2], [(1, 0, 0), (1, 2, 0)].into());
}

#[test]
fn the_flush_covers_its_line_only() {
    let found = crashes(|pool| {
        pool.store(A, 1, Relaxed);
        pool.store(B, 3, Relaxed);
        pool.flush(Site::UNNAMED, B, 8);
        pool.fence(Site::UNNAMED);
    });
    assert_eq!(found[2], [(0, 0, 3), (1, 0, 3)].into());
}

#[test]
fn non_temporal_lines_need_only_a_fence() {
    let line = |value: u64| {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&value.to_ne_bytes());
        bytes
    };
    let found = crashes(|pool| {
        pool.write_through(Site::UNNAMED, B, &line(3));
        pool.store(A, 1, Relaxed);
        pool.fence(Site::UNNAMED);
    });
    assert_eq!(found[0], [(0, 0, 0), (0, 0, 3)].into());
    assert_eq!(
        found[1],
        [(0, 0, 0), (0, 0, 3), (1, 0, 0), (1, 0, 3)].into()
    );
    assert_eq!(found[2], [(0, 0, 3), (1, 0, 3)].into());
}

#[test]
fn the_ends_of_a_run_written_through_are_flushed() {
    let found = crashes(|pool| {
        pool.write_through(Site::UNNAMED, A2, &2_u64.to_ne_bytes());
        pool.fence(Site::UNNAMED);
    });
    assert_eq!(found, [[(0, 0, 0), (0, 2, 0)].into(), [(0, 2, 0)].into()]);
}

fn event(thread: u32, op: Op) -> Event {
    Event {
        thread,
        op,
        site: Site::UNNAMED,
        place: Caller::here(),
    }
}

#[test]
fn another_threads_fence_does_not_help() {
    let store = |thread, at, before, after| {
        let op = Op::Store {
            at,
            before,
            after,
            non_temporal: false,
        };
        event(thread, op)
    };
    let log = [
        store(1, A, 0, 1),
        event(1, Op::Flush { line: 0 }),
        event(2, Op::Fence),
        store(2, A2, 0, 2),
        // Thread 2's flush covers thread 1's store.
        event(2, Op::Flush { line: 0 }),
        event(2, Op::Fence),
        store(1, A, 1, 5),
        // Completes a flush that is older than the durable contents and does not cover the last
        // store.
        event(1, Op::Fence),
    ];
    let mut points = CrashPoints::new(vec![0; 256], &log);
    let mut found = Vec::new();
    while let Some(point) = points.next_point() {
        found.push((point.events_done(), outcomes(&point)));
    }
    let expected: [(usize, BTreeSet<_>); 4] = [
        (1, [(0, 0, 0), (1, 0, 0)].into()),
        (4, [(0, 0, 0), (1, 0, 0), (1, 2, 0)].into()),
        (6, [(1, 2, 0)].into()),
        (7, [(1, 2, 0), (5, 2, 0)].into()),
    ];
    assert_eq!(found, expected);
}

#[test]
fn surviving_caches_leave_program_order() {
    let (base, log) = record(|pool| {
        pool.store(A, 1, Relaxed);
        pool.store(B, 3, Relaxed);
        pool.fence(Site::UNNAMED);
        pool.store(A, 4, Relaxed);
    });
    let mut points = CrashPoints::new(base, &log).eadr();
    let mut found = Vec::new();
    while let Some(point) = points.next_point() {
        found.push(outcomes(&point));
    }
    assert_eq!(
        found,
        [[(1, 0, 0)].into(), [(1, 0, 3)].into(), [(4, 0, 3)].into()]
    );
}

#[test]
fn markers_are_points() {
    let (base, log) = record(|pool| {
        pool.store(A, 1, Relaxed);
        pool.marker(42);
    });
    let mut points = CrashPoints::new(base, &log);
    assert_eq!(points.here().combinations(), 1);
    assert_eq!(points.next_point().expect("store").marker(), None);
    let at_marker = points.next_point().expect("marker");
    assert_eq!(
        (at_marker.marker(), at_marker.combinations()),
        (Some(42), 2)
    );
    assert!(points.next_point().is_none());
}

#[test]
fn atomics_are_stores_and_equal_values_change_nothing() {
    let (_, log) = record(|pool| {
        pool.compare_exchange(A, 9, 1).expect_err("A holds 0");
        pool.compare_exchange(A, 0, 1).expect("A holds 0");
        pool.fetch_add(A, 2);
        pool.fetch_or(A, 4);
        pool.fetch_and(A, 6);
        pool.write(A2 + 2, &[0xff]);
        pool.store(A, 6, Relaxed);
    });
    let values: Vec<_> = log
        .iter()
        .map(|event| match event.op {
            Op::Store {
                before,
                after,
                non_temporal: false,
                ..
            } => (before, after),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        values,
        [(0, 1), (1, 3), (3, 7), (7, 6), (0, 0xff_0000), (6, 6)]
    );
    let mut points = CrashPoints::new(vec![0; 256], &log);
    assert_eq!(
        std::iter::from_fn(|| points.next_point().map(|_| ())).count(),
        5
    );
}

#[test]
fn too_many_combinations_are_sampled() {
    let (base, log) = record(|pool| {
        for at in (0..256).step_by(8) {
            pool.store(at, 1 + at, Relaxed);
        }
    });
    let mut points = CrashPoints::new(base, &log);
    while points.next_point().is_some() {}
    let last = points.here();
    assert_eq!(last.combinations(), 9 * 9 * 9 * 9);
    assert_eq!(last.states(9 * 9 * 9 * 9, 0).len(), 9 * 9 * 9 * 9);
    let some = last.states(100, 7);
    assert_eq!(some.len(), 100);
    assert_eq!(some, last.states(100, 7), "the seed decides");
    assert_ne!(some, last.states(100, 8));
    let images: BTreeSet<_> = some.iter().map(|state| last.image(state)).collect();
    assert_eq!(images.len(), 100);
    assert_eq!(last.image(&some[0]), last.durable());
    assert!(last.image(&some[1]).chunks(8).all(|cell| cell != [0; 8]));
    assert_eq!(last.arrived(&some[2]).count(), 1);
}

#[test]
#[should_panic(expected = "does not continue the base image")]
fn the_base_must_be_the_right_one() {
    let (_, log) = record(|pool| pool.store(A, 1, Relaxed));
    CrashPoints::new(vec![1; 256], &log).next_point();
}

/// The possible contents of a line after `done` events, straight from the definition: any prefix of
/// its stores that is at least as long as what a flush saw whose thread has fenced since.
fn by_definition(log: &[Event], done: usize, line: u64) -> BTreeSet<(u64, u64)> {
    let is_here = |at: u64| at - at % 64 == line;
    let mut held = vec![(0, 0)];
    let mut least = 0;
    for (i, event) in log[..done].iter().enumerate() {
        let fenced = || {
            let later = &log[i + 1..done];
            later
                .iter()
                .any(|other| other.thread == event.thread && other.op == Op::Fence)
        };
        let flushed = match event.op {
            Op::Store {
                at,
                after,
                non_temporal,
                ..
            } if is_here(at) => {
                let mut cells = held[held.len() - 1];
                *(if at % 64 == 0 {
                    &mut cells.0
                } else {
                    &mut cells.1
                }) = after;
                held.push(cells);
                non_temporal
            }
            Op::Flush { line: flushed } => flushed == line,
            _ => false,
        };
        if flushed && fenced() {
            least = held.len() - 1;
        }
    }
    held[least..].iter().copied().collect()
}

proptest! {
    #[test]
    fn the_walk_agrees_with_the_definition(
        steps in prop::collection::vec((0..3_u32, 0..8_u8, 0..4_usize, 0..3_u64), 0..40),
    ) {
        let mut cells = [0; 4];
        let places = [A, A2, B, B + 8];
        let log: Vec<_> = steps
            .into_iter()
            .map(|(thread, what, cell, after)| {
                let op = match what {
                    0..4 => {
                        let before = std::mem::replace(&mut cells[cell], after);
                        Op::Store { at: places[cell], before, after, non_temporal: what == 3 }
                    }
                    4 | 5 => Op::Flush { line: places[cell] - places[cell] % 64 },
                    6 => Op::Fence,
                    _ => Op::Marker(after),
                };
                event(thread, op)
            })
            .collect();
        let mut points = CrashPoints::new(vec![0; 256], &log);
        let mut stopped = vec![0];
        loop {
            let point = points.here();
            for line in [A, B] {
                let pair = |bytes: &[u8]| {
                    let cell = |at: usize| bytes[at..at + 8].try_into().expect("eight bytes");
                    (u64::from_ne_bytes(cell(0)), u64::from_ne_bytes(cell(8)))
                };
                let state = point.in_flight().iter().find(|state| state.line == line);
                let found = match state {
                    Some(state) => state.contents.iter().map(|bytes| pair(bytes)).collect(),
                    None => BTreeSet::from([pair(&point.durable()[line as usize..])]),
                };
                prop_assert_eq!(found, by_definition(&log, point.events_done(), line));
            }
            match points.next_point() {
                Some(point) => stopped.push(point.events_done()),
                None => break,
            }
        }
        // Nothing changed between two points.
        for done in 0..=log.len() {
            let last = stopped.iter().rev().find(|&&stop| stop <= done).expect("0 is a stop");
            for line in [A, B] {
                prop_assert_eq!(by_definition(&log, *last, line), by_definition(&log, done, line));
            }
        }
    }
}
