//! Logged pools: the log's records go home, and the repair is an epoch.

use std::collections::BTreeMap;

use crate::support::{Content, plan_of, read_tree, repaired, repaired_of};
use crate::testimage::TestImage;
use vellum_check::survey::{redo_log, superblock};
use vellum_check::{Class, Options as CheckOptions, check};
use vellum_layout::{BLOCK_BYTES, Inode, NamespaceKind, ROOT_SLOT};
use vellum_media::{CrashPoints, SimPool};
use vellum_repair::undo::Undo;
use vellum_repair::{Options, Plan, apply, convert, finish_conversion, plan_conversion};

/// The contents that an opening sees: home and the log's records.
fn laid_over(image: &[u8]) -> Vec<u8> {
    let mut all = image.to_vec();
    let found = superblock(&all).expect("a superblock");
    let log = redo_log(&all, &found).expect("a log");
    for (at, bytes) in log.lines.iter().chain(&log.blocks) {
        all[*at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    all
}

fn tree_of(image: &[u8]) -> BTreeMap<Vec<u8>, Content> {
    read_tree(&laid_over(image))
}

/// A pool with one file in home and another, with journaled blocks, in the log. A time of the first
/// file has a wrong checksum, so that the file is unreadable.
fn damaged() -> Vec<u8> {
    let mut image = TestImage::logged();
    let old = image.file(ROOT_SLOT, b"old", 1);
    image.begin_log();
    let home = image.bytes.clone();
    image.file(ROOT_SLOT, b"new", 2);
    let blocks = image.geometry.data_at;
    image.set_bytes(blocks, &[7; 3 * BLOCK_BYTES as usize]);
    image.set_word(image.at(old) + Inode::BTIME, 99);
    image.end_epoch(home);
    image.bytes
}

#[test]
fn the_records_of_the_log_are_kept_and_mended() {
    let before = damaged();
    let (plan, after) = repaired(&before);
    assert!(!plan.classes().contains_key(&Class::HomeSum));
    let (old, mut new) = (tree_of(&before), tree_of(&after));
    assert!(old.contains_key(&b"/new"[..]));
    assert!(new.remove(&b"/old"[..]).is_some() && old == new);
    // Journaled blocks are written in place.
    let of_files = superblock(&after).unwrap().geometry().data_at as usize;
    assert!(
        after[of_files..][..3 * BLOCK_BYTES as usize]
            .iter()
            .all(|&byte| byte == 7)
    );
    let log = redo_log(&after, &superblock(&after).unwrap()).unwrap();
    assert!(log.blocks.is_empty() && !log.lines.is_empty());
}

#[test]
fn home_with_a_wrong_sum_is_accepted() {
    let mut image = TestImage::logged();
    image.file(ROOT_SLOT, b"f", 1);
    image.begin_log();
    let at = image.geometry.meta_at + image.geometry.chunk_bytes - 8;
    image.set_word(at, 1);
    let (plan, after) = repaired_of(Class::HomeSum, &image.bytes);
    assert!(plan.actions.iter().all(|action| action.loses));
    assert!(tree_of(&image.bytes) == tree_of(&after));

    let declined = [Class::HomeSum].into();
    let options = Options {
        declined: Some(&declined),
        ..Options::default()
    };
    let plan = vellum_repair::plan(&image.bytes, options);
    assert!(plan.is_empty() && plan.refused.is_some(), "{plan:?}");
}

/// Copies of the superblock are in no record: nothing else is written.
#[test]
fn damage_outside_the_image_is_mended_alone() {
    let mut image = TestImage::logged();
    image.file(ROOT_SLOT, b"f", 1);
    image.begin_log();
    image.set_bytes(100, &[7]);
    let (plan, after) = repaired_of(Class::SuperblockCopy, &image.bytes);
    let words = plan.stages.iter().flat_map(|stage| &stage.words);
    assert!(words.clone().count() > 0);
    assert!(words.clone().all(|&(at, _)| at < BLOCK_BYTES), "{plan:?}");
    assert!(tree_of(&image.bytes) == tree_of(&after));
}

#[test]
fn a_pool_without_a_sound_anchor_is_refused() {
    let mut before = damaged();
    let log_at = superblock(&before).unwrap().log_at as usize;
    before[log_at] ^= 1;
    let plan = plan_of(&before);
    assert!(plan.is_empty());
    let why = plan.refused.expect("a reason");
    assert!(why.contains("anchors"), "{why}");
}

/// Crash outcomes that are checked at each point.
const OUTCOMES: usize = 3;

/// Calls `each` with images that a power cut may leave of `run` on `before` (at some points not
/// all).
fn cut(before: &[u8], run: impl FnOnce(&SimPool), each: impl FnMut(Vec<u8>)) {
    let cuts = cut_at(5, before, run, each);
    assert!(cuts > 100, "{cuts}");
}

/// As [`cut`] at each `step`th point; returns the number of images.
fn cut_at(
    step: u64,
    before: &[u8],
    run: impl FnOnce(&SimPool),
    mut each: impl FnMut(Vec<u8>),
) -> u64 {
    let pool = SimPool::from_image(before.to_vec());
    pool.start_recording();
    run(&pool);
    let log = pool.take_log();
    let mut points = CrashPoints::new(before.to_vec(), &log);
    let (mut number, mut cuts) = (0, 0);
    while let Some(point) = points.next_point() {
        number += 1;
        if number % step != 0 {
            continue;
        }
        for state in point.states(OUTCOMES, number) {
            each(point.image(&state));
            cuts += 1;
        }
    }
    cuts
}

/// Checks that an opening sees the pool as before or as after a repair; returns which.
#[track_caller]
fn assert_whole(image: &[u8], plan: &Plan) -> bool {
    let report = check(image, CheckOptions::default());
    let is_mended = report.is_sound();
    assert!(is_mended || report == plan.before, "{report}");
    is_mended
}

/// Nothing is half mended, and no record of the log is lost.
#[test]
fn an_interrupted_repair_is_done_or_not_begun() {
    let before = damaged();
    let (plan, after) = repaired(&before);
    let trees = [&before, &after].map(|image| tree_of(image));
    let mut mended = 0;
    cut(
        &before,
        |pool| apply(pool, &plan).unwrap(),
        |image| {
            let is_mended = assert_whole(&image, &plan);
            assert!(tree_of(&image) == trees[usize::from(is_mended)]);
            mended += usize::from(is_mended);
            if !is_mended {
                assert!(tree_of(&repaired(&image).1) == trees[1]);
            }
        },
    );
    assert!(mended > 0);
}

/// The parts are restored in reverse order of writing.
#[test]
fn an_interrupted_restoration_leaves_a_whole_pool_and_can_be_repeated() {
    let before = damaged();
    let (plan, after) = repaired(&before);
    let trees = [&before, &after].map(|image| tree_of(image));
    let undo = Undo::of(&plan, &before).unwrap();
    cut(
        &after,
        |pool| undo.restore(pool).unwrap(),
        |image| {
            assert!(trees.contains(&tree_of(&image)));
            let pool = SimPool::from_image(image);
            undo.restore(&pool).unwrap();
            assert!(pool.image() == before);
        },
    );
}

/// A conversion has many points.
const STEP_CONVERTING: u64 = 10;

/// A cleanly closed pool with one file in home, and another one and a directory in the log.
fn closed() -> Vec<u8> {
    let mut image = TestImage::logged();
    image.file(ROOT_SLOT, b"old", 1);
    image.begin_log();
    let home = image.bytes.clone();
    let dir = image.directory(ROOT_SLOT, b"dir");
    image.file(dir, b"new", 2);
    let blocks = image.geometry.data_at;
    image.set_bytes(blocks, &[7; 3 * BLOCK_BYTES as usize]);
    image.close();
    image.end_epoch(home);
    image.bytes
}

fn namespace_of(image: &[u8]) -> NamespaceKind {
    superblock(&image.to_vec())
        .expect("a superblock")
        .namespace()
}

/// A power cut leaves the old pool, or a conversion that a second run finishes, even if that is
/// interrupted again; nothing else touches the pool.
#[test]
fn an_interrupted_conversion_is_finished_or_not_begun() {
    let before = closed();
    let tree = tree_of(&before);
    for to in [NamespaceKind::Tree, NamespaceKind::Adaptive] {
        let planned = plan_conversion(&before, to, None).expect("it can be converted");
        let finish = |pool: &SimPool| finish_conversion(pool, &|_, _| {}).expect("it is finished");
        let is_whole = |image: &[u8], namespace| {
            let report = check(&image.to_vec(), CheckOptions::default());
            assert!(report.is_sound(), "{report}");
            assert!(tree_of(image) == tree && namespace_of(image) == namespace);
        };
        let (mut decided, mut undecided, mut again) = (0, 0, 0);
        cut_at(
            STEP_CONVERTING,
            &before,
            |pool| convert(pool, &planned, &|_, _| {}).expect("it is converted"),
            |image| {
                let pool = SimPool::from_image(image.clone());
                if !finish(&pool) {
                    undecided += 1;
                    assert!(pool.image() == image);
                    let namespace = namespace_of(&image);
                    assert!(namespace == NamespaceKind::Direct || decided > 0);
                    return is_whole(&image, namespace);
                }
                is_whole(&pool.image(), to);
                decided += 1;
                if decided % 10 == 1 {
                    let why = plan_of(&image).refused.expect("a reason");
                    assert!(why.contains("vellum convert"), "{why}");
                    let run = |pool: &SimPool| assert!(finish(pool));
                    again += cut_at(STEP_CONVERTING, &image, run, |image| {
                        let pool = SimPool::from_image(image);
                        finish(&pool);
                        is_whole(&pool.image(), to);
                    });
                }
            },
        );
        let seen = [decided, undecided, again];
        assert!(seen.iter().all(|&count| count > 25), "{seen:?}");
    }
}

/// Damage in the records of the log counts, and so does a wrong sum of home.
#[test]
fn a_damaged_pool_is_not_converted() {
    let mut before = closed();
    let geometry = superblock(&before).unwrap().geometry();
    let refused = |image: &Vec<u8>| match plan_conversion(image, NamespaceKind::Tree, None) {
        Err(why) => why.to_string(),
        Ok(_) => "nothing".to_owned(),
    };
    before[(geometry.meta_at + geometry.chunk_bytes - 8) as usize] ^= 1;
    let why = refused(&before);
    assert!(why.contains("is damaged") && why.contains("sum"), "{why}");
    before[geometry.log_at as usize] ^= 1;
    let why = refused(&before);
    assert!(why.contains("anchors"), "{why}");
}
