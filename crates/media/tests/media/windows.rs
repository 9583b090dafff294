//! Windows show a pool's blocks side by side, on mapped and on simulated pools alike.

use std::sync::atomic::{AtomicBool, Ordering};
use vellum_media::{BLOCK_BYTES, FileBytes, MappedPool, Memory, PoolMemory, SimPool, Site, Window};

const B: u64 = BLOCK_BYTES;
const POOL_BYTES: u64 = 8 << 20;

/// Fills block `n` of the pool.
fn mark(n: u64) -> u8 {
    n as u8 | 1
}

fn fill(pool: &impl PoolMemory) {
    for n in 0..POOL_BYTES / B {
        pool.write(n * B, &[mark(n); B as usize]);
    }
}

fn shown(pool: &impl PoolMemory, window: &Window, at: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0x55; len];
    pool.read_window(window, at, &mut out);
    out
}

fn shows_what_the_pool_holds(pool: &impl PoolMemory) {
    fill(pool);
    let window = pool.window(64 * B).expect("a window");
    assert!(window.len() >= 64 * B);
    assert_eq!(
        shown(pool, &window, 0, 3 * B as usize),
        vec![0; 3 * B as usize]
    );
    pool.lay(&window, 0, 700 * B, B).unwrap();
    pool.lay(&window, B, 5 * B, 2 * B).unwrap();
    window.fill_in(0, 4 * B);
    let across = shown(pool, &window, B - 2, 4);
    assert_eq!(across, [mark(700), mark(700), mark(5), mark(5)]);
    let end = shown(pool, &window, 3 * B - 1, 2);
    assert_eq!(end, [mark(6), 0], "nothing is mapped behind");
    // Both read paths see the same bytes.
    pool.write(6 * B + 8, &[99; 8]);
    pool.write_through(Site::UNNAMED, 5 * B + 64, &[98; 64]);
    pool.fence(Site::UNNAMED);
    assert_eq!(shown(pool, &window, 2 * B + 8, 8), [99; 8]);
    assert_eq!(shown(pool, &window, B + 64, 64), [98; 64]);
    // Mapped blocks can be replaced, and all of them unmapped.
    pool.lay(&window, B, 9 * B, B).unwrap();
    assert_eq!(shown(pool, &window, B + 64, 1), [mark(9)]);
    window.clear().unwrap();
    assert_eq!(
        shown(pool, &window, 0, 3 * B as usize),
        vec![0; 3 * B as usize]
    );
    let inside = [
        (1, 0, B),
        (0, 1, B),
        (0, 0, 1),
        (window.len(), 0, B),
        (0, POOL_BYTES, B),
    ];
    for (at, from, len) in inside {
        assert!(
            pool.lay(&window, at, from, len).is_err(),
            "{at} {from} {len}"
        );
    }
    assert_eq!(shown(pool, &window, window.len() - 1, 1), [0]);
    assert_eq!(pool.condition(), 0);
}

#[test]
fn a_simulated_window_shows_what_the_pool_holds() {
    shows_what_the_pool_holds(&SimPool::new(POOL_BYTES));
}

#[test]
fn a_mapped_window_shows_what_the_pool_holds() {
    shows_what_the_pool_holds(&MappedPool::anonymous(POOL_BYTES).unwrap());
}

/// Lines of `/proc/self/maps` that map our pool.
fn areas(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(name)).count()
}

#[test]
fn a_dropped_window_leaves_no_area_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("areas-left-behind");
    let pool = MappedPool::create(&path, POOL_BYTES, Default::default()).unwrap();
    let before = areas("areas-left-behind");
    for _ in 0..50 {
        let window = pool.window(256 * B).unwrap();
        assert!(window.take_areas(100));
        for n in 0..100 {
            pool.lay(&window, 2 * n * B, (n * 7 + 3) * B, B).unwrap();
        }
        assert!(areas("areas-left-behind") >= before + 100);
    }
    assert_eq!(areas("areas-left-behind"), before);
    // The areas were returned: the limit allows some 50 windows of a hundred otherwise, but not
    // this many.
    for _ in 0..2000 {
        assert!(pool.window(B).unwrap().take_areas(1000));
    }
}

#[test]
fn no_more_areas_are_taken_than_the_kernel_allows() {
    let pool = MappedPool::anonymous(POOL_BYTES).unwrap();
    let window = pool.window(B).unwrap();
    assert!(!window.take_areas(u64::MAX / 2));
    assert!(window.take_areas(1));
}

#[test]
fn a_page_lost_in_a_window_changes_the_condition_of_its_pool() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = MappedPool::create(&path, POOL_BYTES, Default::default()).unwrap();
    fill(&pool);
    let window = pool.window(16 * B).unwrap();
    pool.lay(&window, 0, POOL_BYTES - 4 * B, 4 * B).unwrap();
    assert_eq!(shown(&pool, &window, 0, 1), [mark(POOL_BYTES / B - 4)]);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(POOL_BYTES - 2 * B).unwrap();
    assert_eq!(pool.condition(), 0);
    let out = shown(&pool, &window, 2 * B, B as usize);
    assert_eq!(out, vec![0; B as usize]);
    let condition = pool.condition();
    assert_ne!(condition >> 1, 0, "a loss was counted");
    // Reading the pool itself shows which bytes are lost.
    assert_eq!(pool.damaged(), None);
    pool.read(POOL_BYTES - 2 * B, &mut [0; 8]);
    assert_eq!(pool.damaged(), Some(POOL_BYTES - 2 * B));
}

#[test]
fn readers_see_old_or_new_blocks_while_others_are_mapped() {
    let pool = MappedPool::anonymous(POOL_BYTES).unwrap();
    fill(&pool);
    let window = pool.window(16 * B).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let out = shown(&pool, &window, B, B as usize);
                let known = [0, mark(20), mark(40)];
                assert!(out.iter().all(|byte| known.contains(byte)));
            }
        });
        for _ in 0..2000 {
            pool.lay(&window, B, 20 * B, B).unwrap();
            pool.lay(&window, B, 40 * B, B).unwrap();
            window.clear().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
