//! Search and page table show the same bytes at all times, and a page table leaves nothing behind.

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use vellum::experiments::MappingProbe;
use vellum::reading::{Costs, Rule};
use vellum::{
    Allocate, Clock, CreateOptions, Cred, FormatOptions, Fs, Handle, MappingKind, MountOptions,
    OpenOptions, Pool, attach, format,
};
use vellum_media::{HeapMemory, Memories, SimPool, Simulated};

const MIB: usize = 1 << 20;
const POOL_BYTES: u64 = 32 << 20;
/// Files reach into the third piece of a page table.
const FILE_BYTES: usize = 5 * MIB;

fn options(mapping: MappingKind) -> CreateOptions {
    CreateOptions::new(POOL_BYTES).mapping(mapping)
}

/// A page table costs nothing and saves something, so it is bought at the first request that
/// counts.
fn bought_at_once() -> Costs {
    Costs {
        search_page_ps: 1000,
        ..Costs::default()
    }
}

fn simulated(mapping: MappingKind) -> Arc<Fs<Simulated>> {
    let pool = SimPool::new(POOL_BYTES);
    let options = FormatOptions {
        mapping,
        thread_slots: Some(4),
        uuid: [7; 16],
        hash_seed: 5,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    let mount = MountOptions {
        read_only: false,
        cache_entries: 1024,
        recovery_threads: 1,
        clock: Clock::Counter(AtomicI64::new(1)),
        boot_id: [1; 16],
        ..MountOptions::default()
    };
    let (fs, _) = attach::<Simulated>(pool, |bytes| Ok(HeapMemory::new(bytes)), mount).unwrap();
    fs
}

fn open<M: Memories>(fs: &Arc<Fs<M>>) -> Handle<M> {
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .mode(0o644);
    let user = Cred::root();
    fs.open(&user, &fs.root(), b"/file", &options).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Write { at: usize, len: usize },
    Truncate { size: usize },
    Punch { at: usize, len: usize },
    Preallocate { at: usize, len: usize },
    Read { at: usize, len: usize },
    Reopen,
    Unlink,
}

fn offset() -> impl Strategy<Value = usize> {
    let block = (0..FILE_BYTES / 4096).prop_map(|block| block * 4096);
    let near = (0..3_usize, 0..40_000_usize)
        .prop_map(|(piece, near)| (piece * 2 * MIB + near).saturating_sub(20_000));
    prop_oneof![0..FILE_BYTES, block, near]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![1..200_usize, 1..100_000_usize, 1..3 * MIB]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (offset(), length()).prop_map(|(at, len)| Step::Write { at, len }),
        2 => offset().prop_map(|size| Step::Truncate { size }),
        2 => (offset(), length()).prop_map(|(at, len)| Step::Punch { at, len }),
        1 => (offset(), length()).prop_map(|(at, len)| Step::Preallocate { at, len }),
        6 => (offset(), length()).prop_map(|(at, len)| Step::Read { at, len }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Unlink),
    ]
}

/// The bytes of a range, read by a rule.
fn by<M: Memories>(handle: &Handle<M>, rule: Rule, at: usize, len: usize) -> Vec<u8> {
    handle.node().fs().set_read_rule(rule);
    let mut out = vec![0x55; len];
    let got = handle.read_at(at as u64, &mut out).unwrap();
    out.truncate(got);
    out
}

/// Compares a range, read by each rule, with the expected bytes.
fn compare<M: Memories>(handle: &Handle<M>, bytes: &[u8], at: usize, len: usize) {
    let end = bytes.len().min(at + len);
    let expected = bytes.get(at..end).unwrap_or_default();
    for rule in Rule::ALL {
        let got = by(handle, rule, at, len);
        assert!(got == expected, "{} at {at}, {len} bytes", rule.name());
    }
}

fn both_paths_agree<M: Memories>(fs: &Arc<Fs<M>>, steps: Vec<Step>) {
    fs.set_read_costs(bought_at_once());
    let mut handle = open(fs);
    let mut bytes: Vec<u8> = Vec::new();
    for (i, step) in steps.into_iter().enumerate() {
        match step {
            Step::Write { at, len } => {
                let data: Vec<u8> = (0..len).map(|j| ((i * 31 + j) % 251) as u8 + 1).collect();
                for (n, piece) in data.chunks(MIB).enumerate() {
                    handle.write_at((at + n * MIB) as u64, piece).unwrap();
                }
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].copy_from_slice(&data);
                compare(&handle, &bytes, at.saturating_sub(5000), len + 10_000);
            }
            Step::Truncate { size } => {
                handle.truncate(size as u64).unwrap();
                bytes.resize(size, 0);
                compare(&handle, &bytes, size.saturating_sub(5000), 10_000);
            }
            Step::Punch { at, len } => {
                let (from, to) = (at.min(bytes.len()), (at + len).min(bytes.len()));
                handle
                    .allocate(Allocate::PunchHole, at as u64, len as u64)
                    .unwrap();
                bytes[from..to].fill(0);
                compare(&handle, &bytes, at.saturating_sub(5000), len + 10_000);
            }
            Step::Preallocate { at, len } => {
                handle
                    .allocate(Allocate::Grow, at as u64, len as u64)
                    .unwrap();
                bytes.resize(bytes.len().max(at + len), 0);
            }
            Step::Read { at, len } => compare(&handle, &bytes, at, len),
            Step::Reopen => handle = open(fs),
            Step::Unlink => {
                fs.unlink(&Cred::root(), &fs.root(), b"file").unwrap();
                compare(&handle, &bytes, 0, bytes.len());
                handle = open(fs);
                bytes.clear();
            }
        }
    }
    compare(&handle, &bytes, 0, bytes.len() + 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn both_paths_agree_on_mapped_memory(
        steps in prop::collection::vec(step(), 1..25),
        mapping in prop::sample::select(&MappingKind::ALL),
    ) {
        let pool = options(mapping).create_in_memory().unwrap();
        both_paths_agree(&pool.fs(), steps);
    }

    #[test]
    fn both_paths_agree_on_simulated_memory(
        steps in prop::collection::vec(step(), 1..25),
        mapping in prop::sample::select(&MappingKind::ALL),
    ) {
        both_paths_agree(&simulated(mapping), steps);
    }
}

/// Number of memory areas of this process that map the file `name`.
fn areas(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // Page tables are the read-only areas. The pool itself lies in one or more writable ones.
    let is_table = |line: &&str| line.contains(name) && line.contains(" r--s ");
    maps.lines().filter(is_table).count()
}

#[test]
fn the_last_close_leaves_no_area_behind() {
    MappingKind::ALL.into_iter().for_each(leaves_no_area_behind);
}

fn leaves_no_area_behind(mapping: MappingKind) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no-area-left.vellum");
    let pool = options(mapping).create(&path).unwrap();
    let fs = pool.fs();
    fs.set_read_costs(bought_at_once());
    let before = areas("no-area-left");
    let data = vec![7; MIB];
    let handle = open(&fs);
    for at in 0..4 {
        handle.write_at(at * MIB as u64, &data).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(by(&handle, Rule::Mmu, 0, 4 * MIB), vec![7; 4 * MIB]);
        assert!(areas("no-area-left") > before, "the page table was built");
        // Another opening shares it.
        let shared = areas("no-area-left");
        let other = open(&fs);
        assert_eq!(by(&other, Rule::Mmu, 0, MIB), data);
        assert_eq!(areas("no-area-left"), shared);
        // Freed blocks are not shown, and the table is built again under the new version.
        handle.truncate(MIB as u64).unwrap();
        assert_eq!(by(&other, Rule::Mmu, 0, 4 * MIB), data);
        for at in 1..4 {
            handle.write_at(at * MIB as u64, &data).unwrap();
        }
    }
    // The file grows beyond twice its size.
    for at in 4..20 {
        handle.write_at(at * MIB as u64, &data).unwrap();
        assert_eq!(by(&handle, Rule::Mmu, at as usize * MIB, MIB), data);
    }
    drop(handle);
    assert_eq!(areas("no-area-left"), before);
    drop(fs);
    pool.close().unwrap();
}

/// Tables are found by cachelet. A file's table once still existed when the file released its
/// cachelet, which another file could then get, and the bytes with it.
#[test]
fn a_page_table_outlived_the_cachelet_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(MappingKind::HashFs).thread_slots(Some(2));
    let pool = options
        .create(dir.path().join("table-goes-first.vellum"))
        .unwrap();
    let is_there = || areas("table-goes-first") > 0;
    let fs = pool.fs();
    fs.set_read_costs(bought_at_once());
    let other = pool.volume().create("/other").unwrap();
    open(&fs).write_at(0, &vec![7; MIB]).unwrap();
    let read = || {
        let handle = open(&fs);
        assert_eq!(by(&handle, Rule::Mmu, 0, MIB), vec![7; MIB]);
        assert!(is_there());
        handle
    };
    // The file's use is known then, and not recorded again.
    drop(read());
    assert!(!is_there());
    let handle = read();
    // Begins an operation in each thread slot: releasing a cachelet needs another operation.
    let operations = [(); 2].map(|()| MappingProbe::new(other.handle()).unwrap());
    let closing = std::thread::spawn(move || drop(handle));
    let begun = Instant::now();
    while is_there() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    let goes_first = !is_there() && !closing.is_finished();
    drop(operations);
    closing.join().unwrap();
    assert!(goes_first);
}

#[test]
fn readers_meet_no_foreign_bytes_while_a_file_is_truncated_and_written() {
    MappingKind::ALL.into_iter().for_each(meet_no_foreign_bytes);
}

fn meet_no_foreign_bytes(mapping: MappingKind) {
    let pool = options(mapping).create_in_memory().unwrap();
    let fs = pool.fs();
    fs.set_read_costs(bought_at_once());
    fs.set_read_rule(Rule::Mmu);
    let volume = pool.volume();
    let handle = open(&fs);
    handle.write_at(0, &vec![1; MIB]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut out = vec![0; 256 << 10];
            let mut i = 0_u64;
            while !done.load(Ordering::Relaxed) || i < 20 {
                i += 1;
                let got = handle.read_at(i * 4096 % MIB as u64, &mut out).unwrap();
                // Zeros of a hole, or bytes that this file's writer wrote.
                assert!(out[..got].iter().all(|&byte| byte <= 1));
            }
        });
        let writer = open(&fs);
        for round in (0..100_u64).step_by(5) {
            writer.truncate(round * 8192 % MIB as u64).unwrap();
            volume.write("/other", [200; 300_000]).unwrap();
            writer.write_at(0, &vec![1; MIB]).unwrap();
            let hole = round * 4096 % MIB as u64;
            writer.allocate(Allocate::PunchHole, hole, 50_000).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

/// T is 10 pages.
fn ten_pages() -> Costs {
    Costs {
        run_ps: 10_000,
        ..bought_at_once()
    }
}

/// Each opening ends before it has read much.
#[test]
fn both_paths_are_measured_when_the_file_system_has_read_enough() {
    let pool = Pool::memory(POOL_BYTES).unwrap();
    let fs = pool.fs();
    let volume = pool.volume();
    volume.write("/file", vec![1; 4 * MIB]).unwrap();
    let mut out = vec![0; 100 * 4096];
    let mut openings = 0;
    while !fs.knows_read_costs() {
        assert!(openings * 100 < 2 * 8192, "never measured");
        let file = volume.open("/file").unwrap();
        for at in (0..out.len()).step_by(4096) {
            file.read_at(&mut out[..4096], at as u64).unwrap();
        }
        openings += 1;
    }
    assert!(openings * 100 >= 8192, "after {openings}");
    let costs = fs.read_costs();
    assert!(costs.is_some_and(|costs| costs.search_ps(1) > 0));
    // Nobody measures again, or sets other costs.
    assert_eq!(fs.set_read_costs(bought_at_once()), costs);
    let file = volume.open("/file").unwrap();
    assert_eq!(file.handle().read_costs(), costs);
}

/// Without a file only searches that find nothing can be measured, and such a measurement decides
/// nothing.
#[test]
fn costs_measured_without_a_file_are_returned_but_not_kept() {
    let pool = Pool::memory(POOL_BYTES).unwrap();
    let fs = pool.fs();
    assert!(fs.read_costs().is_some());
    assert!(!fs.knows_read_costs());
    let volume = pool.volume();
    volume.write("/small", b"small").unwrap();
    let measured_by = |path| volume.open(path).unwrap().handle().read_costs();
    assert_eq!(measured_by("/small"), None);
    assert!(!fs.knows_read_costs());
    volume.write("/large", vec![1; MIB]).unwrap();
    let costs = measured_by("/large");
    assert!(costs.is_some() && fs.knows_read_costs());
    assert_eq!(fs.read_costs(), costs);
}

#[test]
fn how_a_file_was_used_is_remembered() {
    MappingKind::ALL.into_iter().for_each(is_remembered);
}

fn is_remembered(mapping: MappingKind) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = options(mapping).create(&path).unwrap();
    let fs = pool.fs();
    // Whether or not the cost of reading is known.
    assert!(!fs.knows_read_costs());
    open(&fs).write_at(0, &vec![3; MIB]).unwrap();
    drop(fs);
    pool.close().unwrap();

    let pool = Pool::open(&path).unwrap();
    let fs = pool.fs();
    fs.set_read_costs(ten_pages());
    let before = areas(path.to_str().unwrap());
    let handle = open(&fs);
    by(&handle, Rule::Threshold, 0, 4096);
    assert!(
        areas(path.to_str().unwrap()) > before,
        "built for the first page"
    );
    drop(handle);
    // One page was read: a single shot. The paper's rule searches for T pages and no more.
    let handle = open(&fs);
    for page in 0..10 {
        by(&handle, Rule::Threshold, page * 4096, 4096);
        assert_eq!(areas(path.to_str().unwrap()), before, "page {page}");
    }
    by(&handle, Rule::Threshold, 0, 4096);
    assert!(
        areas(path.to_str().unwrap()) > before,
        "built for the page after T"
    );
    drop((handle, fs));
    pool.close().unwrap();
    let image = std::fs::read(&path).unwrap();
    let report = vellum_check::check(&image, vellum_check::Options::default());
    assert!(report.is_sound(), "{report:?}");
}
