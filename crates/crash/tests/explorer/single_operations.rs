//! Single operations under every crash model, with a budget that fits a test run.

use vellum::NamespaceKind;
use vellum_crash::{Options, Step, run_workloads, sampled, single_operations, workloads};

fn of_a_test_run() -> Options {
    Options {
        states_per_point: 16,
        lazy_states: 4,
        points_in_order: 64,
        kills: 1,
        kill_states: 8,
        nested_states: 16,
        nested_recoveries: [1, 1],
        ..Options::default()
    }
}

fn explore(workloads: &[vellum_crash::Workload], options: &Options) {
    let report = run_workloads(workloads, options);
    assert_eq!(report.violations().count(), 0, "{report}");
    let totals = report.totals();
    assert!(
        totals.distinct > 0 && totals.checked >= totals.distinct,
        "{report}"
    );
    assert!(report.left_out.is_nothing());
    println!("{report}");
}

#[test]
fn no_crash_of_a_single_operation_loses_anything() {
    let options = of_a_test_run();
    explore(&sampled(&single_operations(), options.seed, 200), &options);
}

#[test]
fn no_crash_of_a_pair_of_operations_loses_anything() {
    let pairs: Vec<_> = workloads()
        .into_iter()
        .filter(|w| w.explored.len() == 2)
        .collect();
    let options = of_a_test_run();
    explore(&pairs, &options);
}

#[test]
fn no_crash_loses_names_that_are_kept_otherwise() {
    let others: Vec<_> = workloads()
        .into_iter()
        .filter(|workload| workload.namespace != NamespaceKind::default())
        .collect();
    let options = of_a_test_run();
    explore(&sampled(&others, options.seed, 100), &options);
}

/// Areas that come and go, alone and with any other operation, and what is done in them.
#[test]
fn no_crash_loses_what_areas_hold() {
    let changes_areas =
        |step: &Step| matches!(step, Step::Split(_) | Step::Merge(_) | Step::Evolve(_));
    let of_areas: Vec<_> = workloads()
        .into_iter()
        .filter(|workload| {
            workload
                .setup
                .iter()
                .chain(&workload.explored)
                .any(changes_areas)
        })
        .collect();
    assert!(of_areas.len() > 60);
    explore(&of_areas, &of_a_test_run());
}

#[test]
fn reports_survive_json() {
    let options = Options {
        only: vec!["create-first".into()],
        ..Options::default()
    };
    let report = vellum_crash::run(&options);
    let text = serde_json::to_string(&report).unwrap();
    let back: vellum_crash::Report = serde_json::from_str(&text).unwrap();
    assert_eq!(back.workloads.len(), report.workloads.len());
    // The last bit of a sum of seconds may differ.
    let counted = |report: &vellum_crash::Report| vellum_crash::Counts {
        seconds: 0.0,
        ..report.totals()
    };
    assert_eq!(counted(&back), counted(&report));
}
