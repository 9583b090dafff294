//! One command measures the figures of pools with a log, here on few files. Tests their shape.

use std::process::Command;

use serde_json::Value;
use vellum_bench::figure::Figure;
use vellum_bench::fsmac::{self, FsmacOptions, PersonalityOptions, Report, main_fsmac, measure};
use vellum_bench::report::Output;

use crate::turn;

fn options(figure: fsmac::Figure) -> FsmacOptions {
    FsmacOptions {
        figure: vec![figure],
        disk: std::env::temp_dir(),
        metadata: std::env::temp_dir(),
        peer: Some(std::env::temp_dir().display().to_string()),
        output: Output::default(),
        rounds: 1,
        files: 40,
        pool_bytes: 256 << 20,
        tree_files: 2000,
        leave: None,
        synced: false,
        personalities: PersonalityOptions {
            workload: vec!["varmail".into()],
            threads: Some(2),
            loops: 2,
            names: Some(40),
        },
    }
}

fn measured(figure: fsmac::Figure) -> Report {
    let _turn = turn();
    let report = measure(&options(figure)).expect("a report");
    for figure in &report.figures {
        assert!(!figure.claim.is_empty(), "{}", figure.name);
        assert!(report.to_string().contains(&figure.name));
    }
    report
}

/// The figure of times: two sides, each with a value at each of `labels` labels.
fn times(report: &Report, labels: usize) -> &Figure {
    let figure = &report.figures[0];
    assert_values(figure, 2, labels);
    figure
}

fn assert_values(figure: &Figure, sides: usize, labels: usize) {
    assert_eq!(figure.labels().len(), labels, "{}", figure.name);
    assert_eq!(figure.series.len(), sides, "{}", figure.name);
    for series in &figure.series {
        assert_eq!(series.points.len(), labels, "{}", series.name);
        assert!(series.points.iter().all(|point| point.value > 0.0));
    }
}

/// A figure by its name.
#[track_caller]
fn named<'r>(report: &'r Report, name: &str) -> &'r Figure {
    let mut figures = report.figures.iter();
    figures.find(|figure| figure.name == name).expect(name)
}

#[test]
fn names_that_are_not_synced() {
    let report = measured(fsmac::Figure::Operations);
    assert_eq!(times(&report, 4).series[0].name, "logged");
    assert_eq!(report.targets.len(), 3);
}

#[test]
fn files_that_are_synced() {
    let report = measured(fsmac::Figure::FsMark);
    times(&report, 5);
    assert_eq!(report.targets.len(), 3);
}

#[test]
fn appends_between_syncs() {
    let report = measured(fsmac::Figure::FsyncInterval);
    times(&report, 7);
    assert_values(named(&report, "fsync-interval-metadata"), 1, 7);
    assert_eq!(report.targets.len(), 1);
}

#[test]
fn names_as_options_of_mounts_have_them() {
    let report = measured(fsmac::Figure::MountModes);
    for mode in ["sync", "dirsync", "async"] {
        let figure = named(&report, &format!("mount-modes-{mode}"));
        assert_values(figure, 3, 5);
        assert_eq!(figure.series[0].name, "split");
    }
    assert_eq!(report.targets.len(), 8);
}

#[test]
fn many_small_files() {
    times(&measured(fsmac::Figure::Postmark), 3);
}

#[test]
fn files_of_many_sizes() {
    times(&measured(fsmac::Figure::Ffsb), 1);
}

#[test]
fn personalities() {
    let report = measured(fsmac::Figure::Personalities);
    let labels = report.figures[0].labels().len();
    times(&report, labels);
}

#[test]
fn with_a_log_and_without() {
    let report = measured(fsmac::Figure::Overhead);
    assert_eq!(times(&report, 4).series[1].name, "no log");
    let versions = named(&report, "overhead-versions");
    assert_values(versions, 2, 4);
    assert_eq!(versions.series[1].name, "no undo log");
    assert_eq!(report.targets.len(), 8);
}

/// The process that is killed while it has the pool open is this program, started again.
#[test]
fn a_pool_is_opened_however_it_was_left() {
    let _turn = turn();
    let done = Command::new(env!("CARGO_BIN_EXE_vellum-bench"))
        .args(["fsmac", "--figure", "opening", "--tree-files", "2000"])
        .args(["--rounds", "1", "--json", "--disk"])
        .arg(std::env::temp_dir())
        .output()
        .expect("a run");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let points = report["figures"][0]["series"][0]["points"].as_array();
    let points = points.expect("points");
    assert_eq!(points.len(), 4);
    assert!(
        points
            .iter()
            .all(|point| point["value"].as_f64() > Some(0.0))
    );
    assert_eq!(report["targets"].as_array().map(Vec::len), Some(4));
}

/// If the kernel counts requests, the synced data were written and flushed.
#[test]
fn the_disk_is_asked() {
    let report = measured(fsmac::Figure::FsMark);
    let named = |name: &str| report.figures.iter().find(|figure| figure.name == name);
    let Some(bytes) = named("fs-mark-bytes") else {
        return;
    };
    let logged = bytes.series("logged").expect("a series");
    let synced = logged.at("synced, 1 thread").expect("a value");
    assert!(synced.value >= 4.0, "{} KiB", synced.value);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong = |change: fn(&mut FsmacOptions)| {
        let mut options = options(fsmac::Figure::Operations);
        change(&mut options);
        main_fsmac(&options).expect_err("it is refused").to_string()
    };
    assert!(wrong(|options| options.rounds = 0).contains("--rounds"));
    assert!(wrong(|options| options.files = 1).contains("--files"));
    assert!(wrong(|options| options.tree_files = 1).contains("--tree-files"));
    assert!(wrong(|options| options.pool_bytes = 1 << 20).contains("--pool-bytes"));
    assert!(wrong(|options| options.personalities.workload = vec!["A".into()]).contains("A"));
}
