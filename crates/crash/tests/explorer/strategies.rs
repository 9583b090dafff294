//! How states are chosen, and what they reach.

use std::collections::BTreeSet;

use vellum::sites;
use vellum_crash::{Mode, Options, WorkloadReport, find, record, run_workloads, workloads};
use vellum_media::Site;

fn explored(name: &str, states_per_point: usize) -> WorkloadReport {
    let options = Options {
        modes: vec![Mode::X86],
        states_per_point,
        nested_recoveries: [0, 0],
        ..Options::default()
    };
    let mut report = run_workloads(&[find(name).expect("a workload")], &options);
    assert_eq!(report.totals().violations, 0, "{report}");
    report.workloads.remove(0)
}

/// Nothing reads the lines of data that no size covers yet, so few states stand for all.
#[test]
fn an_append_is_explored_by_what_is_read() {
    let counts = explored("append-first", 64).counts;
    assert!(counts.points_tracked > 100, "{counts:?}");
    assert!(counts.points_exhaustive > 0, "{counts:?}");
    let points = counts.points_exhaustive + counts.points_tracked + counts.points_sampled;
    assert_eq!(points, counts.points, "{counts:?}");
}

/// An overwrite may leave any mixture of words, which is too many to try all.
#[test]
fn an_overwrite_is_sampled() {
    let counts = explored("write-over-the-end", 64).counts;
    assert!(counts.points_sampled > 100, "{counts:?}");
}

#[test]
fn what_can_be_tried_whole_is() {
    let report = explored("create-second", 4096);
    assert!(report.exhaustive);
    assert_eq!(report.counts.points_exhaustive, report.counts.points);
}

/// Crashes of recovery nest to depth 2, and each level has crash points of its own.
#[test]
fn recoveries_of_crashed_recoveries_are_crashed() {
    let points = |nested_recoveries| {
        let options = Options {
            modes: vec![Mode::X86],
            states_per_point: 32,
            nested_recoveries,
            ..Options::default()
        };
        let report = run_workloads(&[find("rename-over-file").expect("a workload")], &options);
        assert_eq!(report.totals().violations, 0, "{report}");
        report.totals().points
    };
    let depths = [points([0, 0]), points([4, 0]), points([4, 4])];
    assert!(depths.is_sorted_by(|less, more| less < more), "{depths:?}");
}

/// All background work is in flight at some crash.
#[test]
fn every_background_worker_is_crashed() {
    let alone = workloads().into_iter();
    let reached: BTreeSet<Site> = alone
        .flat_map(|workload| {
            let recorded = record(&workload).expect("it runs");
            let log = recorded.explored_log().iter();
            log.map(|event| event.site).collect::<Vec<_>>()
        })
        .collect();
    for worker in ["free/", "recycle/", "compact/", "evict/", "open/", "close/"] {
        let of = sites::ALL
            .iter()
            .filter(|(_, name)| name.starts_with(worker));
        let missed = of.clone().filter(|(site, _)| !reached.contains(site));
        let missed: Vec<_> = missed.map(|(_, name)| name).collect();
        assert!(of.count() > 0 && missed.is_empty(), "{worker}: {missed:?}");
    }
}

/// Crashes of the first operation are explored with that operation alone.
#[test]
fn a_pair_has_fewer_crash_points_than_its_operations() {
    let points = |name: &str| {
        let workload = find(name).expect("a pair");
        let report = run_workloads(&[workload], &Options::default());
        assert_eq!(report.totals().violations, 0, "{report}");
        report.totals().points
    };
    let (first, pair) = (points("seq2/mkdir:d/e"), points("seq2/mkdir:d/e+sync"));
    assert!(0 < pair && pair < first, "{pair} {first}");
}
