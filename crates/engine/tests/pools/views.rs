//! Views of bytes in place: what they show, which changes they block, and which not.

use proptest::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vellum::reading::{Costs, Rule};
use vellum::{
    Allocate, CreateOptions, Error, File, MappingKind, Pool, ViewSource, prefer_thread_slot,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn pool(mapping: MappingKind) -> Pool {
    scattered(mapping, 0)
}

/// A pool in which this share of blocks, per mille, does not follow its predecessor.
fn scattered(mapping: MappingKind, fragmentation: u16) -> Pool {
    let options = CreateOptions::new(16 << 20)
        .mapping(mapping)
        .fragmentation(fragmentation);
    options.create_in_memory().unwrap()
}

/// A file of `len` bytes, none of them zero.
fn file(pool: &Pool, len: usize) -> (File, Vec<u8>) {
    let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
    let file = pool.volume().create("/file").unwrap();
    for (at, piece) in (0..).step_by(MIB).zip(bytes.chunks(MIB)) {
        file.write_at(piece, at).unwrap();
    }
    (file, bytes)
}

#[test]
fn contiguous_bytes_are_shown_in_place() {
    MappingKind::ALL.into_iter().for_each(shows_runs_in_place);
}

fn shows_runs_in_place(mapping: MappingKind) {
    // The location of a file depends on the thread slot, and so on the threads before. In some
    // slots three megabytes are not contiguous.
    prefer_thread_slot(0);
    let pool = pool(mapping);
    let (file, bytes) = file(&pool, 3 * MIB);
    let run = file.view(64 << 10..96 << 10).unwrap();
    assert_eq!(run.place(), ViewSource::Pool);
    assert_eq!(&*run, &bytes[64 * KIB..96 * KIB]);
    run.check().unwrap();
    let odd = file.view(65_537..65_640).unwrap();
    assert_eq!(
        (odd.place(), &*odd),
        (ViewSource::Pool, &bytes[65_537..65_640])
    );
    // HashFS keeps 32 KiB contiguous, but not three megabytes.
    let together = match mapping {
        MappingKind::HashFs => ViewSource::Copy,
        _ => ViewSource::Pool,
    };
    let all = file.view(0..u64::MAX).unwrap();
    assert_eq!((all.place(), all.len()), (together, 3 * MIB));
    assert!(*all == bytes[..]);
    let most = file.view(5..3 * MIB as u64 - 5).unwrap();
    assert_eq!(most.place(), together);
    assert!(*most == bytes[5..3 * MIB - 5]);
    let end = bytes.len() as u64;
    let past = file.view(end - 1..end + 10).unwrap();
    assert_eq!(&*past, &bytes[bytes.len() - 1..]);
    assert!(file.view(end..end + 1).unwrap().is_empty());
    assert!(file.view(9..9).unwrap().is_empty());
}

#[test]
fn holes_are_copies_of_zeros() {
    MappingKind::ALL.into_iter().for_each(copies_holes);
}

fn copies_holes(mapping: MappingKind) {
    let pool = pool(mapping);
    let (file, _) = file(&pool, 64 * KIB);
    file.handle()
        .allocate(Allocate::PunchHole, 8192, 4096)
        .unwrap();
    let hole = file.view(8000..9000).unwrap();
    assert_eq!(hole.place(), ViewSource::Copy);
    assert!(hole[192..].iter().all(|&byte| byte == 0));
    file.set_len(200 << 10).unwrap();
    let unwritten = file.view(100 << 10..101 << 10).unwrap();
    assert_eq!(
        (unwritten.place(), &*unwritten),
        (ViewSource::Copy, &[0; KIB][..])
    );
    // A view that is a copy blocks no writer.
    file.write_at(&[7; 100], 8192).unwrap();
}

#[test]
fn the_page_table_shows_scattered_blocks() {
    MappingKind::ALL.into_iter().for_each(shows_by_page_table);
}

fn shows_by_page_table(mapping: MappingKind) {
    let pool = scattered(mapping, 500);
    let fs = pool.fs();
    fs.set_read_costs(Costs::default());
    fs.set_read_rule(Rule::Mmu);
    let (file, bytes) = file(&pool, 3 * MIB);
    let view = file.view(5..3 * MIB as u64 - 5).unwrap();
    assert_eq!(view.place(), ViewSource::PageTable);
    assert!(*view == bytes[5..3 * MIB - 5]);
    // The mapping after the viewed range may change, and the view stays valid.
    file.set_len(3 * MIB as u64 - 5).unwrap();
    file.write_at(&[1; 100], 3 * MIB as u64 - 5).unwrap();
    let mut out = vec![0; 3 * MIB];
    file.read_at(&mut out, 0).unwrap();
    assert!(*view == bytes[5..3 * MIB - 5]);
    assert!(*view == out[5..3 * MIB - 5]);
    drop(view);
    // The table is rebuilt once no view uses it.
    let again = file.view(0..MIB as u64).unwrap();
    assert_eq!(again.place(), ViewSource::PageTable);
}

/// The decisions for all other reads stay as they are.
#[test]
fn a_page_table_is_used_by_the_opening_that_requests_it() {
    let pool = scattered(MappingKind::HashFs, 500);
    let fs = pool.fs();
    fs.set_read_rule(Rule::Search);
    let (file, bytes) = file(&pool, 3 * MIB);
    let (all, most) = (0..3 * MIB as u64, 3 * MIB as u64);
    assert_eq!(file.view(all.clone()).unwrap().place(), ViewSource::Copy);
    let asked = file.view_by(all.clone(), Rule::Mmu).unwrap();
    assert_eq!(asked.place(), ViewSource::PageTable);
    assert!(*asked == bytes[..]);
    assert!(fs.knows_read_costs());
    assert_eq!(fs.read_rule(), Rule::Search);
    // Other openings do not use the table that was built.
    assert_eq!(file.view(0..most).unwrap().place(), ViewSource::Copy);
    fs.set_read_rule(Rule::Mmu);
    assert_eq!(file.view(0..most).unwrap().place(), ViewSource::PageTable);
    let forbidden = file.view_by(all, Rule::Search).unwrap();
    assert_eq!(forbidden.place(), ViewSource::Copy);
}

/// A view of the longest possible file must not abort the process by allocating its copy.
#[test]
fn a_view_of_16_tib_does_not_abort() {
    let limit = getrlimit(Resource::As);
    let most = Rlimit {
        current: Some(1 << 40),
        ..limit
    };
    // Independent of the machine's overcommit: nothing else here takes a TiB.
    setrlimit(Resource::As, most).unwrap();
    let pool = pool(MappingKind::HashFs);
    let (file, _) = file(&pool, KIB);
    file.set_len(16 << 40).unwrap();
    let view = file.view(0..16 << 40).map(drop);
    setrlimit(Resource::As, limit).unwrap();
    assert!(matches!(view, Err(Error::OutOfMemory(_))), "{view:?}");
    assert_eq!(file.view(0..5000).unwrap().len(), 5000);
}

#[test]
fn another_thread_may_drop_a_view() {
    let pool = pool(MappingKind::HashFs);
    let (file, _) = file(&pool, 64 * KIB);
    let view = file.view(4096..8192).unwrap();
    assert_eq!(view.place(), ViewSource::Pool);
    let refused = file.write_at(&[1], 4096);
    assert!(matches!(refused, Err(Error::Deadlock)), "{refused:?}");
    std::thread::scope(|scope| {
        scope.spawn(|| drop(view));
    });
    file.write_at(&[1], 4096).unwrap();
    // A view that another thread took and this one drops.
    let view = std::thread::scope(|scope| {
        let taken = scope.spawn(|| file.view(0..4096).unwrap());
        taken.join().unwrap()
    });
    drop(view);
    file.write_at(&[1], 0).unwrap();
    pool.close().unwrap();
}

#[test]
fn a_thread_that_would_wait_for_itself_gets_an_error() {
    MappingKind::ALL
        .into_iter()
        .for_each(tells_who_would_wait_for_itself);
}

fn tells_who_would_wait_for_itself(mapping: MappingKind) {
    let pool = pool(mapping);
    let (file, _) = file(&pool, 64 * KIB);
    let view = file.view(4096..8192).unwrap();
    let refused = |result: vellum::Result<()>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Deadlock), "{error:?}");
        assert_eq!(error.errno(), 35);
    };
    refused(file.write_at(&[1], 8191).map(drop));
    refused(file.write_at(&[1; 4097], 0).map(drop));
    refused(file.set_len(8191));
    refused(file.set_len(0));
    refused(file.handle().allocate(Allocate::PunchHole, 0, 5000));
    // None of these changes was made, and changes of other bytes are.
    assert_eq!(file.metadata().unwrap().len(), 64 << 10);
    file.write_at(&[1; 4096], 0).unwrap();
    file.write_at(&[1], 8192).unwrap();
    file.set_len(8192).unwrap();
    file.set_len(100_000).unwrap();
    file.handle().append(&[5; 10]).unwrap();
    pool.volume().write("/other", [1; 100]).unwrap();
    drop(view);
    file.write_at(&[1; 4096], 4096).unwrap();
    file.set_len(0).unwrap();
}

#[test]
fn a_view_outlives_the_names_of_its_file() {
    MappingKind::ALL.into_iter().for_each(outlives_names);
}

fn outlives_names(mapping: MappingKind) {
    let pool = pool(mapping);
    let (file, bytes) = file(&pool, 32 * KIB);
    let view = file.view(0..32 << 10).unwrap();
    pool.volume().remove_file("/file").unwrap();
    pool.fs().maintain().unwrap();
    for i in 0..200 {
        pool.volume()
            .write(format!("/{i}"), [200; 32 * KIB])
            .unwrap();
    }
    assert!(*view == bytes[..]);
    drop(view);
}

/// A writer waits until the last view of its bytes is dropped, and no longer.
fn waits(mapping: MappingKind, change: impl Fn(&File) + Sync) {
    let pool = pool(mapping);
    let (file, bytes) = file(&pool, 64 * KIB);
    let (first, second) = (file.view(0..4096).unwrap(), file.view(2000..6000).unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            change(&file);
            done.store(true, Ordering::SeqCst);
        });
        // Others are not blocked: the writer waits outside operations.
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(5));
            pool.fs().maintain().unwrap();
            file.read_at(&mut [0; 100], 0).unwrap();
        }
        assert!(!done.load(Ordering::SeqCst));
        assert!(*first == bytes[..4096]);
        drop(first);
        std::thread::sleep(Duration::from_millis(10));
        assert!(!done.load(Ordering::SeqCst));
        assert!(*second == bytes[2000..6000]);
        drop(second);
    });
    assert!(done.load(Ordering::SeqCst));
}

#[test]
fn writers_wait_for_views() {
    for mapping in MappingKind::ALL {
        waits(mapping, |file| {
            assert_eq!(file.write_at(&[9; 2000], 3000).unwrap(), 2000);
        });
        waits(mapping, |file| file.set_len(2500).unwrap());
        waits(mapping, |file| {
            let handle = file.handle();
            handle.allocate(Allocate::PunchHole, 0, 10_000).unwrap();
        });
    }
}

/// Views and writers of the same bytes, in either order: no view ever changes while it exists.
#[test]
fn no_view_changes() {
    MappingKind::ALL.into_iter().for_each(changes_no_view);
}

fn changes_no_view(mapping: MappingKind) {
    let pool = pool(mapping);
    let volume = pool.volume();
    volume.write("/file", [1; 32 * KIB]).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..2_u8 {
            let volume = &volume;
            scope.spawn(move || {
                let file = volume
                    .open_with("/file", &vellum::OpenOptions::new().write(true))
                    .unwrap();
                for i in (0..300_u32).step_by(5) {
                    let at = u64::from(i) * 4096 % (28 << 10);
                    file.write_at(&[(i % 250) as u8 + writer; 4096], at)
                        .unwrap();
                    if i % 50 == 0 {
                        file.set_len(u64::from(i) * 64).unwrap();
                        file.set_len(32 << 10).unwrap();
                    }
                }
            });
        }
        for _ in 0..2 {
            let volume = &volume;
            scope.spawn(move || {
                let file = volume.open("/file").unwrap();
                for i in 0..400_u64 {
                    let at = i * 4096 % (28 << 10);
                    let view = file.view(at..at + 4096).unwrap();
                    let before = view.to_vec();
                    std::thread::yield_now();
                    assert!(*view == before[..]);
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn views_show_what_reads_return(
        writes in prop::collection::vec((0..600_000_u64, 1..60_000_usize), 1..12),
        views in prop::collection::vec((0..700_000_u64, 0..200_000_u64), 1..12),
        by_table in any::<bool>(),
        mapping in prop::sample::select(&MappingKind::ALL),
    ) {
        let pool = pool(mapping);
        let fs = pool.fs();
        fs.set_read_costs(Costs::default());
        fs.set_read_rule(if by_table { Rule::Mmu } else { Rule::Search });
        let file = pool.volume().create("/file").unwrap();
        for (i, (at, len)) in writes.into_iter().enumerate() {
            file.write_at(&vec![i as u8 + 1; len], at).unwrap();
        }
        for (at, len) in views {
            let view = file.view(at..at + len).unwrap();
            let mut out = vec![0; len as usize];
            let got = file.read_at(&mut out, at).unwrap();
            prop_assert!(*view == out[..got]);
        }
    }
}
