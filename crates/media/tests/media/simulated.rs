//! The simulated pool: what it records and counts, and its latency.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use vellum_media::count::{Counts, of_this_thread};
use vellum_media::{Event, LatencyModel, MappedPool, Memory, Op, Persistent, SimPool, Site};

fn ops(log: &[Event]) -> Vec<Op> {
    log.iter().map(|event| event.op).collect()
}

#[test]
fn records_only_after_the_start() {
    let pool = SimPool::new(4096);
    pool.store(0, 1, Relaxed);
    pool.start_recording();
    pool.store(0, 2, Relaxed);
    pool.flush(Site::UNNAMED, 0, 65);
    pool.fence(Site::UNNAMED);
    pool.marker(9);
    let log = pool.take_log();
    pool.store(0, 3, Relaxed);
    assert_eq!(
        ops(&log),
        [
            Op::Store {
                at: 0,
                before: 1,
                after: 2,
                non_temporal: false
            },
            Op::Flush { line: 0 },
            Op::Flush { line: 64 },
            Op::Fence,
            Op::Marker(9),
        ]
    );
    assert!(pool.take_log().is_empty());
}

#[test]
fn long_writes_are_one_store_a_cell() {
    let pool = SimPool::new(4096);
    pool.start_recording();
    pool.write(6, &[0xff; 12]);
    let whole = u64::MAX;
    let store = |at, after| Op::Store {
        at,
        before: 0,
        after,
        non_temporal: false,
    };
    assert_eq!(
        ops(&pool.take_log()),
        [store(0, 0xffff << 48), store(8, whole), store(16, 0xffff)]
    );
}

#[test]
fn writes_through_are_non_temporal_but_for_their_ends() {
    let pool = SimPool::new(1 << 16);
    for zero in [false, true] {
        pool.start_recording();
        if zero {
            pool.zero_through(Site::UNNAMED, 56, 8 + 8192 + 8);
        } else {
            pool.write_through(Site::UNNAMED, 56, &[1; 8 + 8192 + 8]);
        }
        let log = ops(&pool.take_log());
        assert_eq!(log.len(), 2 + 1024 + 2);
        let is_nt = |op: &&Op| {
            matches!(
                op,
                Op::Store {
                    non_temporal: true,
                    ..
                }
            )
        };
        assert_eq!(log.iter().filter(is_nt).count(), 1024);
        assert!(matches!(
            log[0],
            Op::Store {
                at: 56,
                non_temporal: false,
                ..
            }
        ));
        assert_eq!(log[1], Op::Flush { line: 0 });
        assert_eq!(log[1027], Op::Flush { line: 64 + 8192 });
    }
}

#[test]
fn threads_have_numbers() {
    let pool = SimPool::new(4096);
    pool.start_recording();
    pool.fence(Site::UNNAMED);
    std::thread::scope(|scope| {
        scope.spawn(|| pool.fence(Site::UNNAMED));
    });
    pool.fence(Site::UNNAMED);
    let log = pool.take_log();
    assert_eq!(log[0].thread, log[2].thread);
    assert_ne!(log[0].thread, log[1].thread);
}

#[test]
fn the_log_replays_to_the_image_whatever_the_threads_did() {
    let pool = SimPool::new(4096);
    let mut replayed = pool.image();
    pool.start_recording();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let pool = &pool;
            scope.spawn(move || {
                for i in 0..500 {
                    pool.fetch_add(0, 1);
                    pool.store(8 + i % 8 * 8, thread, Relaxed);
                    pool.write(100 + thread * 3, &[i as u8; 3]);
                    let _ = pool.compare_exchange(8, thread, i);
                }
            });
        }
    });
    for event in pool.take_log() {
        let Op::Store {
            at, before, after, ..
        } = event.op
        else {
            panic!("{event:?}")
        };
        let cell = &mut replayed[at as usize..at as usize + 8];
        assert_eq!(cell, before.to_ne_bytes());
        cell.copy_from_slice(&after.to_ne_bytes());
    }
    assert_eq!(replayed, pool.image());
    assert_eq!(pool.load(0, Relaxed), 2000);
}

#[test]
fn images_go_in_and_out() {
    let image: Vec<u8> = (0..1003_u32).map(|i| i as u8).collect();
    let pool = SimPool::from_image(image.clone());
    assert_eq!(pool.len(), 1003);
    assert_eq!(pool.image(), image);
    assert!(pool.bytes_equal(0, &image));
}

#[test]
fn read_lines_are_collected() {
    let pool = SimPool::new(4096);
    pool.load(0, Relaxed);
    pool.track_reads(true);
    pool.load(640, Relaxed);
    pool.read(126, &mut [0; 4]);
    pool.match_line(256, 0, 1);
    pool.load_line(640);
    pool.store(1024, 1, Relaxed);
    pool.track_reads(false);
    pool.load(2048, Relaxed);
    assert_eq!(pool.lines_read(), [64, 128, 256, 640]);
    pool.track_reads(true);
    assert!(pool.lines_read().is_empty());
}

#[test]
fn latencies_are_simulated() {
    let pool = SimPool::new(4096);
    let timed = |run: &dyn Fn()| {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    pool.set_latency(LatencyModel {
        flush_ns: 1_000_000,
        fence_ns: 2_000_000,
        read_ns_per_line: 500_000,
    });
    assert!(timed(&|| pool.flush(Site::UNNAMED, 0, 128)) >= Duration::from_millis(2));
    assert!(timed(&|| pool.fence(Site::UNNAMED)) >= Duration::from_millis(2));
    assert!(timed(&|| pool.write_through(Site::UNNAMED, 0, &[0; 256])) >= Duration::from_millis(4));
    assert!(timed(&|| pool.read(0, &mut [0; 256])) >= Duration::from_millis(2));
    pool.set_latency(LatencyModel::default());
    let is_quick = |_| timed(&|| pool.flush(Site::UNNAMED, 0, 128)) < Duration::from_millis(1);
    assert!((0..50).any(is_quick), "no latency is left");
}

#[test]
fn every_pool_counts_the_same() {
    fn work(pool: &dyn Persistent) -> Counts {
        let before = of_this_thread();
        pool.store(0, 1, Relaxed);
        pool.fetch_add(8, 1);
        let _ = pool.compare_exchange(16, 0, 1);
        let _ = pool.compare_exchange(16, 0, 1);
        pool.write(24, &[1; 10]);
        pool.flush(Site::UNNAMED, 0, 34);
        pool.flush(Site::UNNAMED, 60, 8);
        pool.write_through(Site::UNNAMED, 100, &[1; 100]);
        pool.zero_through(Site::UNNAMED, 4096, 4096);
        pool.fence(Site::UNNAMED);
        of_this_thread() - before
    }
    let expected = Counts {
        lines_flushed: 1 + 2 + 3 + 64,
        fences: 1,
        pool_bytes_written: 8 + 8 + 8 + 10 + 100 + 4096,
        ..Counts::default()
    };
    assert_eq!(work(&SimPool::new(8192)), expected);
    assert_eq!(work(&MappedPool::anonymous(8192).expect("pool")), expected);
}

/// Every step past the cache names its site; plain stores have none.
#[test]
fn the_log_names_sites() {
    let [a, b, c] = [1, 2, 3].map(Site::numbered);
    let pool = SimPool::new(4096);
    pool.start_recording();
    pool.store(0, 1, Relaxed);
    pool.flush(a, 0, 8);
    pool.write_through(b, 64, &[1; 72]);
    pool.store_through(c, 256, 1);
    pool.fence(a);
    pool.marker(0);
    let log = pool.take_log();
    let sites = |wanted: fn(&Op) -> bool| -> Vec<Site> {
        let events = log.iter().filter(|event| wanted(&event.op));
        events.map(|event| event.site).collect()
    };
    let stores = sites(|op| matches!(op, Op::Store { .. }));
    assert_eq!(stores[0], Site::UNNAMED);
    // A whole line and a word past the cache, and a word that is stored and flushed.
    assert_eq!(stores[1..], [[b; 9].as_slice(), &[Site::UNNAMED]].concat());
    assert_eq!(sites(|op| matches!(op, Op::Flush { .. })), [a, b, c]);
    assert_eq!(sites(|op| matches!(op, Op::Fence)), [a]);
    assert_eq!(sites(|op| matches!(op, Op::Marker(_))), [Site::UNNAMED]);
}

#[test]
fn stores_are_reverted() {
    let pool = SimPool::from_image((0..=255).cycle().take(4096 + 24).collect());
    let before = pool.image();
    pool.store(0, 1, Relaxed);
    let changed = pool.image();
    pool.remember();
    pool.store(8, 2, Relaxed);
    pool.write(60, &[7; 200]);
    pool.write_through(Site::UNNAMED, 1001, &[8; 300]);
    pool.fetch_add(8, 5);
    assert!(pool.compare_exchange(512, 0, 1).is_err());
    pool.write(4096, &[9; 24]);
    assert_ne!(pool.image(), changed);
    pool.revert();
    assert_eq!(pool.image(), changed);
    pool.store(
        0,
        u64::from_ne_bytes(before[..8].try_into().unwrap()),
        Relaxed,
    );
    pool.revert();
    assert_eq!(pool.image(), before, "nothing is saved any more");
}

#[test]
fn reverted_stores_can_be_recorded_too() {
    let pool = SimPool::new(4096);
    pool.remember();
    pool.start_recording();
    pool.write(8, &[1; 16]);
    let log = pool.take_log();
    pool.revert();
    assert_eq!(log.len(), 2);
    assert_eq!(pool.image(), [0; 4096]);
}
