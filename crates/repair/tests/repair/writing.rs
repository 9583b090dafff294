//! Writing a plan and restoring what it overwrote, with power cuts in the middle of both.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::support::{
    self, assert_kept, fill_blocks, mode, plan_of, read_sets, read_tree, repaired, strictly,
};
use crate::testimage::{Sample, closed, sample};
use vellum_check::Class;
use vellum_layout::{IdentityWord, Inode, LogExtentHead, MapRoot, MapState, PoolState, StateWord};
use vellum_media::{Caller, CrashPoints, Event, Op, SimPool};
use vellum_repair::undo::{self, Undo, UndoError};
use vellum_repair::{Plan, Written, apply, apply_watched};

/// Damage of many classes at once: names, logs, inodes, blocks, saved state.
fn damage(sample: &mut Sample) {
    let geometry = sample.image.geometry;
    fill_blocks(&mut sample.image.bytes, &geometry);
    let first = sample.image.get_inode(sample.dir).root;
    let image = &mut sample.image;
    image.set_word(image.at(first) + LogExtentHead::NEXT, u64::MAX);
    image.kill(sample.dir_entry);
    image.map(MapState::Mapped, 3, 1);
    image.map(MapState::Mapped, 1000, 3);
    image.edit_inode(sample.other, |inode| inode.root = MapRoot::new(1, 3).0);
    image.set_word(image.at(sample.short) + Inode::BTIME, 99);
    image.link(1, b"file", sample.other);
    image.set_bytes(100, &[7]);
    // Of the attributes of `dir` the first is left, of `file` none, which had an access list.
    image.set_bytes(image.at(sample.large[1]) + 20, &[0]);
    image.set_bytes(image.at(sample.labels) + 20, &[0]);
    image.edit_inode(sample.file, |inode| {
        inode.identity = IdentityWord(inode.identity).with_mode(0o664).0;
    });
}

/// A closed and an open pool, damaged.
fn damaged() -> [Vec<u8>; 2] {
    [sample(), closed()].map(|mut sample| {
        damage(&mut sample);
        sample.image.bytes
    })
}

#[test]
fn an_undo_file_restores_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    for (number, before) in damaged().into_iter().enumerate() {
        let path = dir.path().join(number.to_string());
        let plan = plan_of(&before);
        assert!(
            plan.mends_all() && plan.classes().len() > 5,
            "{:?}",
            plan.classes()
        );
        undo::write(&path, &plan, &before).unwrap();
        let again = undo::write(&path, &plan, &before).unwrap_err();
        assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
        let pool = SimPool::from_image(before.clone());
        apply(&pool, &plan).unwrap();
        assert!(strictly(&pool.image()).is_sound());
        let undo = Undo::read(&path).unwrap();
        assert!(undo.bytes() > 0);
        undo.restore(&pool).unwrap();
        assert!(pool.image() == before);
        // A second restoration changes nothing.
        undo.restore(&pool).unwrap();
        assert!(pool.image() == before);
    }
}

/// Checks the progress that `work` reports: it begins at zero, advances, and ends with the total.
#[track_caller]
fn assert_told(work: impl FnOnce(Written<'_>)) {
    let told = RefCell::new(Vec::new());
    work(&|done, of| told.borrow_mut().push((done, of)));
    let told = told.into_inner();
    let of = told[0].1;
    assert!(of > 0 && told.iter().all(|known| known.1 == of), "{told:?}");
    assert!(told.is_sorted_by(|a, b| a.0 < b.0), "{told:?}");
    assert_eq!([told[0].0, told[told.len() - 1].0], [0, of], "{told:?}");
    assert!(told.len() as u64 >= of / 256, "{told:?}");
}

#[test]
fn writing_and_restoring_report_their_progress() {
    for before in damaged() {
        let plan = plan_of(&before);
        let undo = Undo::of(&plan, &before).unwrap();
        let pool = SimPool::from_image(before);
        assert_told(|written| apply_watched(&pool, &plan, written).unwrap());
        assert_told(|written| undo.restore_watched(&pool, written).unwrap());
    }
}

#[test]
fn an_undo_file_fits_its_repair_only() {
    let [before, other] = damaged();
    let plan = plan_of(&before);
    let undo = Undo::of(&plan, &before).unwrap();
    let changed = SimPool::from_image(before.clone());
    apply(&changed, &plan).unwrap();
    let mut used = changed.image();
    let (at, _) = plan.stages[1].words[0];
    used[at as usize] ^= 1;
    let used = SimPool::from_image(used);
    assert!(matches!(undo.restore(&used), Err(UndoError::Changed(found)) if found == at));
    let short = SimPool::from_image(other[..other.len() / 2].to_vec());
    assert!(matches!(undo.restore(&short), Err(UndoError::OtherPool)));
}

#[test]
fn an_undo_file_with_a_wrong_byte_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo");
    let [before, _] = damaged();
    undo::write(&path, &plan_of(&before), &before).unwrap();
    let sound = std::fs::read(&path).unwrap();
    for at in (0..sound.len()).step_by(37) {
        let mut bytes = sound.clone();
        bytes[at] ^= 8;
        std::fs::write(&path, bytes).unwrap();
        assert!(
            matches!(Undo::read(&path), Err(UndoError::Unsound(_))),
            "byte {at}"
        );
    }
    std::fs::write(&path, &sound[..sound.len() - 1]).unwrap();
    assert!(matches!(Undo::read(&path), Err(UndoError::Unsound(_))));
}

/// Crash outcomes that are checked at each point.
const OUTCOMES: usize = 4;

/// Calls `each` with images that a power cut may leave of `run` on `before` (at each point not
/// all).
fn cut(before: &[u8], run: impl FnOnce(&SimPool), mut each: impl FnMut(Vec<u8>)) -> u64 {
    let pool = SimPool::from_image(before.to_vec());
    pool.start_recording();
    run(&pool);
    let log = pool.take_log();
    let mut points = CrashPoints::new(before.to_vec(), &log);
    let mut cuts = 0;
    while let Some(point) = points.next_point() {
        for state in point.states(OUTCOMES, cuts) {
            each(point.image(&state));
            cuts += 1;
        }
    }
    cuts
}

#[test]
fn an_interrupted_repair_is_finished_by_another() {
    for before in damaged() {
        let plan = plan_of(&before);
        let sets = read_sets(&repaired(&before).1);
        assert!(sets.len() == 1 && sets.contains_key(&2));
        let cuts = cut(
            &before,
            |pool| apply(pool, &plan).unwrap(),
            |image| {
                let (again, after) = finished(&image);
                assert_kept(&before, &after, &again);
                assert!(read_sets(&after) == sets, "{again:?}");
                assert_eq!(mode(&after, 3), 0o604, "{again:?}");
            },
        );
        assert!(cuts > 100, "{cuts}");
    }
}

/// Repairs what a power cut left, if necessary.
#[track_caller]
fn finished(image: &[u8]) -> (Plan, Vec<u8>) {
    let plan = plan_of(image);
    if plan.is_empty() {
        assert!(plan.before.is_sound(), "{}", plan.before);
        return (plan, image.to_vec());
    }
    repaired(image)
}

#[test]
fn an_interrupted_repair_can_be_restored() {
    for before in damaged() {
        let plan = plan_of(&before);
        let undo = Undo::of(&plan, &before).unwrap();
        let run = |pool: &SimPool| apply(pool, &plan).unwrap();
        cut(&before, run, |image| {
            let pool = SimPool::from_image(image);
            undo.restore(&pool).unwrap();
            assert!(pool.image() == before);
        });
    }
}

#[test]
fn a_pool_under_repair_is_in_no_phase_until_all_is_written() {
    let [_, before] = damaged();
    let plan = plan_of(&before);
    let geometry = vellum_check::survey::superblock(&before)
        .unwrap()
        .geometry();
    let state_of =
        |image: &[u8]| StateWord(support::word(image, geometry.state_at + PoolState::WORD));
    let mut phases = Vec::new();
    let run = |pool: &SimPool| apply(pool, &plan).unwrap();
    cut(&before, run, |image| {
        let phase = state_of(&image).get();
        let touched = image.iter().zip(&before).any(|(new, old)| new != old);
        if phase.is_some() && touched {
            assert!(strictly(&image).is_sound(), "written before all else was");
        }
        phases.push(phase.is_none());
    });
    assert!(phases.contains(&true));
}

#[test]
fn an_interrupted_restoration_is_finished_by_another() {
    let [_, before] = damaged();
    let plan = plan_of(&before);
    let undo = Undo::of(&plan, &before).unwrap();
    let pool = SimPool::from_image(before.clone());
    apply(&pool, &plan).unwrap();
    let after = pool.image();
    cut(
        &after,
        |pool| undo.restore(pool).unwrap(),
        |image| {
            let pool = SimPool::from_image(image);
            undo.restore(&pool).unwrap();
            assert!(pool.image() == before);
        },
    );
}

/// Whether a run that wrote `log` and returned keeps its promise: whatever a power cut leaves, a
/// pool that equals neither `before` nor `after` is marked as under repair, and after the return it
/// equals `after`.
fn keeps_its_promises(before: &[u8], after: &[u8], log: &[Event]) -> bool {
    let geometry = vellum_check::survey::superblock(&before)
        .unwrap()
        .geometry();
    let is_marked = |image: &[u8]| {
        let word = support::word(image, geometry.state_at + PoolState::WORD);
        StateWord(word).get().is_none()
    };
    let mut points = CrashPoints::new(before.to_vec(), log);
    let mut seed = 0;
    while let Some(point) = points.next_point() {
        for state in point.states(OUTCOMES, seed) {
            seed += 1;
            let image = point.image(&state);
            if image != before && image != after && !is_marked(&image) {
                return false;
            }
        }
    }
    points.here().durable() == after
}

/// Leaves out, one at a time, each source line at which a repair or a restoration flushes or
/// fences.
#[test]
fn every_flush_and_fence_of_a_repair_is_needed() {
    let [_, before] = damaged();
    let plan = plan_of(&before);
    let undo = Undo::of(&plan, &before).unwrap();
    let pool = SimPool::from_image(before.clone());
    let record = |run: &dyn Fn()| {
        pool.start_recording();
        run();
        (pool.take_log(), pool.image())
    };
    let (repair, after) = record(&|| apply(&pool, &plan).unwrap());
    let (back, restored) = record(&|| undo.restore(&pool).unwrap());
    assert!(restored == before);
    let mut places = BTreeSet::new();
    for (from, to, log) in [(&before, &after, &repair), (&after, &before, &back)] {
        assert!(keeps_its_promises(from, to, log));
        let steps = log.iter().filter(|event| is_step(event));
        let of: BTreeSet<Caller> = steps.map(|event| event.place).collect();
        for &place in &of {
            let mut less = log.clone();
            less.retain(|event| !is_step(event) || event.place != place);
            assert!(!keeps_its_promises(from, to, &less), "{place}");
        }
        places.extend(of);
    }
    assert_eq!(places.len(), 4, "{places:?}");
}

fn is_step(event: &Event) -> bool {
    matches!(event.op, Op::Flush { .. } | Op::Fence)
}

#[test]
fn declined_damage_stays_and_keeps_the_pool_from_being_written() {
    let [_, before] = damaged();
    let declined = [Class::MapTwice].into();
    let options = vellum_repair::Options {
        declined: Some(&declined),
        now_ns: support::LATER,
        progress: None,
    };
    let plan = vellum_repair::plan(&before, options);
    assert_eq!(plan.exit_code(), 5);
    assert!(!plan.classes().contains_key(&Class::MapTwice));
    let mut image = before.clone();
    support::write(&plan, &mut image);
    let report = strictly(&image);
    assert!(
        report.has(Class::MapTwice) && report.has(Class::StateWord),
        "{report}"
    );
    let (again, after) = finished(&image);
    assert_kept(&before, &after, &again);
    assert!(read_tree(&after).len() > 20);
}
