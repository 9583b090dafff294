//! For tests: explores pools where only syncs make anything durable, as recorded and with changes.

use vellum_media::{Event, Op, Site};

use super::logged_workloads;
use crate::id::Mode;
use crate::record::record;
use crate::report::WorkloadReport;
use crate::run::{Change, Options, Progress, explore_recorded};
use crate::workload::Workload;

fn options() -> Options {
    Options {
        states_per_point: 12,
        nested_states: 6,
        nested_recoveries: [2, 1],
        ..Options::default()
    }
}

pub(super) fn named(name: &str) -> Workload {
    let all = logged_workloads();
    let found = all.into_iter().find(|workload| workload.name == name);
    found.unwrap_or_else(|| panic!("no workload {name}"))
}

pub(super) fn explored(name: &str, change: Change<'_>) -> WorkloadReport {
    explored_as(Mode::X86, name, change)
}

/// The same with more states at each point: stores that are written ahead are in flight too, and
/// differences in them show nothing.
pub(super) fn explored_more(name: &str, change: Change<'_>) -> WorkloadReport {
    let options = Options {
        states_per_point: 24,
        ..options()
    };
    explored_with(&options, Mode::X86, name, change)
}

/// The same with more crashes of recoveries.
pub(super) fn explored_nested(name: &str, change: Change<'_>) -> WorkloadReport {
    let options = Options {
        nested_states: 32,
        nested_recoveries: [24, 1],
        wrong_states: 1,
        ..options()
    };
    explored_with(&options, Mode::X86, name, change)
}

pub(super) fn explored_as(mode: Mode, name: &str, change: Change<'_>) -> WorkloadReport {
    explored_with(&options(), mode, name, change)
}

fn explored_with(options: &Options, mode: Mode, name: &str, change: Change<'_>) -> WorkloadReport {
    let recorded = record(&named(name)).unwrap();
    explore_recorded(&recorded, mode, change, options, &Progress::default())
}

/// A change of the log: the sync at `site` does nothing.
pub(super) fn without(site: Site) -> impl Fn(&[Event]) -> Vec<Event> + Sync {
    move |log| {
        let mut kept = Vec::with_capacity(log.len());
        for &event in log {
            if event.op == Op::Fence && event.site == site {
                let is_of_it = |event: &Event| {
                    matches!(event.op, Op::Flush { .. }) && event.site == Site::UNNAMED
                };
                while kept.last().is_some_and(is_of_it) {
                    kept.pop();
                }
            } else {
                kept.push(event);
            }
        }
        kept
    }
}

/// A change of the log: blocks become free at once. `free` is the site that orders the reuse after
/// the fence `durable`, which makes the freeing durable. What the same step then writes over the
/// blocks moves in front of that fence.
pub(super) fn free_at_once(log: &[Event], (free, durable): (Site, Site)) -> Vec<Event> {
    let mut order: Vec<usize> = (0..log.len()).collect();
    for (at, event) in log.iter().enumerate() {
        let Op::Release { at: begin, len } = event.op else {
            continue;
        };
        assert_eq!(event.site, free);
        let is_marker = |event: &Event| matches!(event.op, Op::Marker(_));
        let is_record = |event: &Event| event.op == Op::Fence && event.site == durable;
        let step = log[..at].iter().rposition(is_marker).unwrap_or(0);
        let Some(before) = log[step..at].iter().rposition(is_record) else {
            continue;
        };
        let is_flush = |event: &Event| matches!(event.op, Op::Flush { .. });
        let before = log[..step + before].iter().rposition(|e| !is_flush(e));
        let end = log[at..].iter().position(is_marker);
        let end = end.map_or(log.len(), |end| at + end);
        let bytes = begin..begin + len;
        let overwrites =
            |index: &usize| matches!(log[*index].op, Op::Store { at, .. } if bytes.contains(&at));
        let moved: Vec<usize> = (at..end).filter(overwrites).collect();
        order.retain(|index| !moved.contains(index));
        let place = order.iter().position(|&index| Some(index) == before);
        let place = place.map_or(0, |place| place + 1);
        order.splice(place..place, moved);
    }
    order.into_iter().map(|index| log[index]).collect()
}
