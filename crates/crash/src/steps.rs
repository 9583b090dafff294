//! The persistent steps of an operation by the names of their sites, as recorded, and what recovery
//! finds in each gap between them.

use vellum::sites;
use vellum_media::{CrashPoints, Event, Op, Site};

use crate::closed::{live_map, state_line};
use crate::memories::{Explored, Shared, image_after};
use crate::mkfs::{MAKINGS, Making, makings};
use crate::record::{Recorded, record};
use crate::session::{CLOCK_AFTER, Result, mount};
use crate::tree::{Tree, read_tree};
use crate::workload::Step;

/// The effect of one step of a workload on its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The sites that it passed, in order; equal neighbours count once.
    pub sites: Vec<&'static str>,
    /// The index of the site that commits. If the power fails anywhere before it, and only durable
    /// stores arrive, recovery finds the step not done; from there on it finds the step done.
    /// `None`: recovery cannot tell before from after.
    pub commit: Option<usize>,
    /// Whether a crash may find a part of it done: bytes inside the old size, or background work.
    pub in_parts: bool,
    /// The step; `None` for mkfs.
    pub step: Option<Step>,
}

/// The effect of the first explored step of a workload; `name:3` asks for the third step. `None` if
/// there is no such workload, or it cannot be recorded, or recovery finds the step done and in a
/// later gap not done.
pub fn persistent_steps(name: &str) -> Option<Steps> {
    let (name, step) = match name.split_once(':') {
        Some((name, step)) => (name, step.parse().ok()?),
        None => (name, 1),
    };
    if MAKINGS.iter().any(|&(making, _)| making == name) {
        let mut makings = makings().ok()?.into_iter();
        return of_making(&makings.find(|making| making.name == name)?);
    }
    let recorded = record(&crate::find(name)?).ok()?;
    of_recorded(&recorded, step)
}

fn of_making(making: &Making) -> Option<Steps> {
    let gaps = gaps(&making.log, 0);
    let is_done =
        |events| making.leaves_new_pool(&durable_after(&making.base, &making.log[..events]));
    Some(Steps {
        commit: commit(&gaps, is_done)?,
        sites: gaps.into_iter().map(|gap| gap.site).collect(),
        in_parts: false,
        step: None,
    })
}

fn of_recorded(recorded: &Recorded, number: usize) -> Option<Steps> {
    let log = recorded.explored_log();
    let is_marker = |marker: usize| move |event: &Event| event.op == Op::Marker(marker as u64);
    let begin = log.iter().position(is_marker(number.checked_sub(1)?))? + 1;
    let end = begin + log[begin..].iter().position(is_marker(number))?;
    let base = recorded.image_before();
    let after = Aftermath::of(recorded, number, &image_after(&base, &log[..end]))?;
    let gaps = gaps(&log[begin..end], begin);
    let is_done = |events| after.is_found(recorded, &durable_after(&base, &log[..events]));
    let step = &recorded.workload.explored[number - 1];
    Some(Steps {
        commit: commit(&gaps, is_done)?,
        sites: gaps.into_iter().map(|gap| gap.site).collect(),
        in_parts: step.changes_bytes() || *step == Step::Maintain,
        step: Some(step.clone()),
    })
}

/// A site in a log, the number of events before it, and the number up to the gap behind it.
struct Gap {
    site: &'static str,
    before: usize,
    behind: usize,
}

/// The gaps of `log`, which begins after `done` events.
fn gaps(log: &[Event], done: usize) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = Vec::new();
    let is_step = |event: &Event| {
        event.site != Site::UNNAMED && !matches!(event.op, Op::Behind { .. } | Op::Release { .. })
    };
    let steps = log.iter().zip(done..);
    for (event, at) in steps.filter(|(event, _)| is_step(event)) {
        let site = sites::name(event.site);
        match gaps.last_mut() {
            Some(last) if last.site == site => last.behind = at + 1,
            _ => gaps.push(Gap {
                site,
                before: at,
                behind: at + 1,
            }),
        }
    }
    gaps
}

/// The first of `gaps` after which `is_done` holds, as it must from there on. `Some(None)` if it
/// holds before the first gap already, or never.
fn commit(gaps: &[Gap], is_done: impl Fn(usize) -> bool) -> Option<Option<usize>> {
    if gaps.first().is_none_or(|first| is_done(first.before)) {
        return Some(None);
    }
    let done: Vec<bool> = gaps.iter().map(|gap| is_done(gap.behind)).collect();
    done.is_sorted().then(|| done.iter().position(|&done| done))
}

/// The bytes that are certainly durable after `log`.
fn durable_after(base: &[u8], log: &[Event]) -> Vec<u8> {
    let mut points = CrashPoints::new(base.to_vec(), log);
    while points.next_point().is_some() {}
    points.here().durable().to_vec()
}

/// The visible effect by which a step counts as done.
enum Aftermath {
    /// The tree after this many explored steps.
    Tree(usize),
    /// The cache line of the state word.
    State([u8; 64]),
    /// The slots in use, as a close saves them; the close has no other visible effect.
    Slots(Vec<u8>),
}

impl Aftermath {
    /// The effect of an explored step, which left `image`.
    fn of(recorded: &Recorded, number: usize, image: &[u8]) -> Option<Self> {
        Some(match recorded.workload.explored.get(number - 1)? {
            Step::Open | Step::Close | Step::ExportReplica | Step::Recover => {
                Self::State(state_line(image)?)
            }
            Step::Maintain | Step::Split(_) | Step::Merge(_) | Step::Evolve(_) => {
                Self::Slots(slots_in_use(recorded, image)?)
            }
            _ => Self::Tree(number),
        })
    }

    /// Whether recovery finds the effect in `image`.
    fn is_found(&self, recorded: &Recorded, image: &[u8]) -> bool {
        match self {
            Self::State(line) => state_line(image).as_ref() == Some(line),
            Self::Slots(slots) => slots_in_use(recorded, image).as_ref() == Some(slots),
            Self::Tree(done) => recovered_tree(recorded, image)
                .is_ok_and(|tree| recorded.expected.is_shown_by(&tree, *done)),
        }
    }
}

/// The tree that recovery makes of `image`.
fn recovered_tree(recorded: &Recorded, image: &[u8]) -> Result<Tree> {
    let pool = Shared::of(image.to_vec());
    read_tree(&mount::<Explored>(
        &pool,
        recorded.cache_entries,
        CLOCK_AFTER,
    )?)
}

/// The live map that a close saves after recovery from `image`.
fn slots_in_use(recorded: &Recorded, image: &[u8]) -> Option<Vec<u8>> {
    let pool = Shared::of(image.to_vec());
    let fs = mount::<Explored>(&pool, recorded.cache_entries, CLOCK_AFTER).ok()?;
    fs.close().ok()?;
    live_map(&pool.0.image())
}
