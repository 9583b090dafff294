//! Crashes of adding a segment to a pool: the pool has one more or not, and is unchanged otherwise.

use std::sync::Arc;

use vellum::experiments::{set_table_aside, write_table};
use vellum::{MappingKind, NamespaceKind};
use vellum_check::{Class, Finding, Options, Severity, check};
use vellum_layout::{AddedSegment, BLOCK_BYTES};
use vellum_media::{CrashPoints, Event};

use crate::memories::{Explored, Shared};
use crate::session::{CLOCK_AFTER, Session, blank_image, mount};
use crate::tree::{Tree, read_tree};
use crate::workload::{PoolKind, Step};

const SEGMENT: AddedSegment = AddedSegment {
    id: [10; 16],
    at: BLOCK_BYTES,
    blocks: 64,
};

/// A pool with a file, and with space behind it.
fn pool(pool_kind: PoolKind) -> Shared {
    let image = blank_image(2, MappingKind::HashFs, NamespaceKind::Direct, pool_kind);
    let added = vec![0xAD; (SEGMENT.blocks * BLOCK_BYTES) as usize];
    let pool = Shared::of([image, added].concat());
    steps(
        &pool,
        &[
            "open-pool",
            "create f 644 -",
            "append f 5 9000",
            "close-pool",
        ],
    );
    pool
}

fn steps(pool: &Shared, lines: &[&str]) {
    let mut session: Session = Session::new(pool.clone(), 64);
    for line in lines {
        session.step(&Step::parse(line)).unwrap();
    }
}

/// Reserves chunks in a pool for the segment, and closes the pool.
fn set_aside(pool: &Shared) {
    let mut session: Session = Session::new(pool.clone(), 64);
    session.step(&Step::parse("open-pool")).unwrap();
    let fs = Arc::clone(session.fs().unwrap());
    assert!(set_table_aside(&fs, 1, 1).unwrap());
    drop(fs);
    session.step(&Step::parse("close-pool")).unwrap();
}

/// Whether a crash left the pool with the segment. Panics if anything else changed.
fn judge(image: &[u8], tree: &Tree, has_returned: bool) -> bool {
    let report = check(&image.to_vec(), Options::default());
    let counts = |of: &&Finding| {
        of.severity == Severity::Damage || (has_returned && of.class == Class::SuperblockCopy)
    };
    assert_eq!(report.findings.iter().find(counts), None);
    let fs = mount::<Explored>(&Shared::of(image.to_vec()), 64, CLOCK_AFTER).unwrap();
    assert_eq!(read_tree(&fs).unwrap().nodes, tree.nodes);
    !fs.superblock().geometry().added.is_empty()
}

/// The numbers of states after a crash of `log` that have the segment, and that have it not.
fn explore(base: &[u8], log: &[Event], tree: &Tree, stride: usize) -> (u32, u32) {
    let mut points = CrashPoints::new(base.to_vec(), log);
    let (mut with, mut without) = (0, 0);
    let mut count = |has_segment| match has_segment {
        true => with += 1,
        false => without += 1,
    };
    while let Some(point) = points.next_point() {
        let done = point.events_done();
        if done % stride == 0 {
            for state in point.states(4, done as u64) {
                count(judge(&point.image(&state), tree, false));
            }
        }
    }
    for state in points.here().states(8, 1) {
        count(judge(&points.here().image(&state), tree, true));
    }
    (with, without)
}

#[test]
fn a_power_cut_leaves_a_pool_with_the_segment_or_without() {
    for (pool_kind, stride) in [(PoolKind::External, 1), (PoolKind::Split, 61)] {
        let pool = pool(pool_kind);
        let before = mount::<Explored>(&Shared::of(pool.0.image()), 64, CLOCK_AFTER).unwrap();
        let tree = read_tree(&before).unwrap();
        let larger = before.superblock().with_segment(SEGMENT).unwrap();
        drop(before);
        // The reserved chunks change nothing that users see.
        let base = pool.0.image();
        pool.0.start_recording();
        set_aside(&pool);
        let (with, without) = explore(&base, &pool.0.take_log(), &tree, stride);
        assert!(with == 0 && without > 4, "{with} with, {without} without");
        let base = pool.0.image();
        let pool = Shared::of(base.clone());
        pool.0.start_recording();
        write_table(&*pool.0, &larger).unwrap();
        let (with, without) = explore(&base, &pool.0.take_log(), &tree, 1);
        assert!(with > 4 && without > 4, "{with} with, {without} without");
    }
}
