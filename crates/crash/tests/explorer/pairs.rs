//! A sample of all pairs of operations under every crash model, with a budget that fits a test run.

use vellum_crash::{Ground, Mode, Options, find, pairs, run_workloads, sampled};

#[test]
fn no_crash_of_a_second_operation_loses_anything() {
    let options = Options {
        states_per_point: 32,
        lazy_states: 4,
        kills: 1,
        kill_states: 8,
        nested_recoveries: [1, 0],
        ..Options::default()
    };
    let report = run_workloads(&sampled(&pairs(), options.seed, 150), &options);
    assert_eq!(report.totals().violations, 0, "{report}");
    let modes = Mode::ALL.into_iter();
    let modes = modes.filter(|&mode| Ground::Memory.is_crashed_as(mode));
    assert_eq!(report.workloads.len(), 150 * modes.count());
    println!("{report}");
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
