//! One command measures the figures of size, here on few files. Tests their shape, and counts that
//! do not depend on the machine.

use std::process::Command;

use serde_json::Value;
use vellum::{MappingKind, NamespaceKind};
use vellum_bench::figure::{Figure, Point};
use vellum_bench::report::Output;
use vellum_bench::scale::{self, Report, ScaleOptions, main_scale, measure};

use crate::{MEMORY, turn};

fn options(figure: scale::Figure) -> ScaleOptions {
    ScaleOptions {
        figure: vec![figure],
        output: Output::default(),
        namespace: Vec::new(),
        rounds: 1,
        files: 2000,
        names: 1000,
        links: 200,
        sparse_bytes: 4 << 30,
        operations: 2000,
        pool_bytes: 16 << 20,
        pool_dir: MEMORY.into(),
        instructions: false,
        counted: Vec::new(),
        disk: std::env::temp_dir(),
    }
}

/// The report of a figure, in which every series has a value at each label.
fn measured(options: &ScaleOptions) -> Report {
    let _turn = turn();
    let report = measure(options).expect("a report");
    for figure in &report.figures {
        assert!(!figure.claim.is_empty(), "{}", figure.name);
        assert!(report.to_string().contains(&figure.name));
        for series in &figure.series {
            let labels = figure.labels().len();
            assert_eq!(
                series.points.len(),
                labels,
                "{}: {}",
                figure.name,
                series.name
            );
            assert!(series.points.iter().all(|point| point.value.is_finite()));
        }
    }
    report
}

fn figure<'r>(report: &'r Report, name: &str) -> &'r Figure {
    let mut figures = report.figures.iter();
    figures.find(|figure| figure.name == name).expect(name)
}

fn point<'f>(figure: &'f Figure, series: &str, label: &str) -> &'f Point {
    let series = figure.series(series).expect(series);
    series.at(label).expect(label)
}

fn probes(figure: &Figure, series: &str, label: &str) -> f64 {
    let counts = point(figure, series, label).counts;
    counts.expect("it is counted").probes
}

fn names() -> [&'static str; 3] {
    NamespaceKind::ALL.map(NamespaceKind::name)
}

#[test]
fn more_and_more_files() {
    let report = measured(&options(scale::Figure::Files));
    let create = figure(&report, "files-create");
    assert_eq!(create.labels(), ["2", "20", "200", "2000"]);
    let metadata = figure(&report, "files-metadata");
    for name in names() {
        assert!(probes(create, name, "2000") >= 2.0);
        let bytes = point(metadata, name, "2000").value;
        assert!((160.0..320.0).contains(&bytes), "{name}: {bytes}");
    }
    // An inode, an entry, and a word of the directory's log.
    let bytes = point(metadata, "direct", "2000").value;
    assert!((264.0..280.0).contains(&bytes), "{bytes}");
    assert_eq!(report.targets.len(), 5 * names().len());
}

/// The index of `direct` finds a name in any directory alike.
#[test]
fn larger_and_larger_directories() {
    let report = measured(&options(scale::Figure::Directory));
    let stat = figure(&report, "directory-stat");
    assert_eq!(stat.labels(), ["1", "10", "100", "1000"]);
    for label in stat.labels() {
        let probes = probes(stat, "direct", label);
        assert!((3.0..4.0).contains(&probes), "{label}: {probes}");
    }
    assert!(probes(figure(&report, "directory-list"), "direct", "1000") < 0.1);
}

/// A walk looks at each component.
#[test]
fn the_longest_paths() {
    let report = measured(&options(scale::Figure::Depth));
    let stat = figure(&report, "depth-stat");
    for (label, components) in [("8", 8.0), ("2047", 2047.0), ("16 of 255 bytes", 16.0)] {
        assert_eq!(probes(stat, "direct", label), components);
    }
    assert!(probes(stat, "adaptive", "64") < 16.0);
    let metadata = figure(&report, "depth-metadata");
    let [short, long] = ["2047", "16 of 255 bytes"].map(|at| point(metadata, "direct", at).value);
    assert!(short < long, "{short} {long}");
    assert_eq!(report.targets.len(), 3 * names().len());
}

#[test]
fn files_with_many_names() {
    let report = measured(&options(scale::Figure::Links));
    let link = figure(&report, "links-link");
    assert_eq!(link.labels(), ["2", "20", "200"]);
    for name in names() {
        let [few, most] = ["2", "200"].map(|label| probes(link, name, label));
        assert!((few - most).abs() < 1.0, "{name}: {few} {most}");
    }
    assert_eq!(report.targets.len(), 3 * names().len());
}

/// Trees take nodes for scattered blocks, tables take nothing.
#[test]
fn files_with_holes() {
    let report = measured(&options(scale::Figure::Sparse));
    let metadata = figure(&report, "sparse-metadata");
    assert_eq!(metadata.labels(), ["4 MiB", "128 MiB", "4 GiB"]);
    let bytes = |mapping: MappingKind| point(metadata, mapping.name(), "4 GiB").value;
    assert_eq!(bytes(MappingKind::HashFs), 0.0);
    assert!(bytes(MappingKind::Radix) > 1000.0);
    let write = figure(&report, "sparse-write");
    for mapping in MappingKind::ALL {
        let counts = point(write, mapping.name(), "4 GiB").counts;
        assert!(counts.expect("counts").lines_flushed >= 65.0);
    }
    assert_eq!(report.targets.len(), 4 * MappingKind::ALL.len());
}

/// The process that is killed while it has the pool open is this program, started again.
#[test]
fn pools_are_opened_however_they_were_left() {
    let _turn = turn();
    let asked = "scale --figure opening --files 2000 --rounds 1 --namespace direct --json";
    let done = Command::new(env!("CARGO_BIN_EXE_vellum-bench"))
        .args(asked.split(' '))
        .arg("--disk")
        .arg(std::env::temp_dir())
        .output()
        .expect("a run");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    for (figure, name) in ["opening", "opening-dram"].into_iter().enumerate() {
        let figure = &report["figures"][figure];
        assert_eq!(figure["name"], name);
        for (series, states) in [2, 4].into_iter().enumerate() {
            let points = figure["series"][series]["points"].as_array();
            let values = points.expect("points").iter().map(|point| &point["value"]);
            assert!(values.clone().all(|value| value.as_f64() > Some(0.0)));
            assert_eq!(values.count(), states);
        }
    }
    assert_eq!(report["targets"].as_array().map(Vec::len), Some(2));
}

/// Files have as many blocks at the end as in the beginning, and nothing else does.
#[test]
fn full_pools_that_are_used_for_long() {
    let report = measured(&ScaleOptions {
        namespace: vec![NamespaceKind::Direct],
        ..options(scale::Figure::Soak)
    });
    let used = figure(&report, "soak-used");
    assert_eq!(used.labels().len(), 10);
    for series in &used.series {
        assert!(
            series.points.iter().all(|point| point.value == 1.0),
            "{}",
            series.name
        );
    }
    for kind in ["create", "write", "rename", "remove"] {
        let late = figure(&report, &format!("soak-{kind}"));
        for series in &late.series {
            let values: Vec<f64> = series.points.iter().map(|point| point.value).collect();
            assert!(values.is_sorted() && values[0] > 0.0, "{kind}: {values:?}");
        }
    }
    assert_eq!(report.targets.len(), 6 * 3);
}

#[test]
fn instructions_of_few_and_many_files() {
    let report = {
        let _turn = turn();
        let asked = "scale --figure files --files 100 --rounds 1 --namespace direct --json \
                     --instructions";
        let done = Command::new(env!("CARGO_BIN_EXE_vellum-bench"))
            .args(asked.split_whitespace())
            .output()
            .expect("a run");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        serde_json::from_slice::<Value>(&done.stdout).expect("JSON")
    };
    let figures = report["figures"].as_array().expect("figures");
    let counted = figures.last().expect("a figure");
    assert_eq!(counted["name"], "files-instructions");
    for series in counted["series"].as_array().expect("series") {
        let points = series["points"].as_array().expect("points");
        assert_eq!(points.len(), 5);
        assert!(
            points
                .iter()
                .all(|point| point["value"].as_f64() > Some(10.0))
        );
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong = |change: fn(&mut ScaleOptions)| {
        let mut options = options(scale::Figure::Files);
        change(&mut options);
        main_scale(&options).expect_err("it is refused").to_string()
    };
    assert!(wrong(|options| options.rounds = 0).contains("--rounds"));
    assert!(wrong(|options| options.files = 1).contains("--files"));
    assert!(wrong(|options| options.names = 1).contains("--names"));
    assert!(wrong(|options| options.links = 65_000).contains("--links"));
    assert!(wrong(|options| options.sparse_bytes = 1 << 20).contains("--sparse-bytes"));
    assert!(wrong(|options| options.operations = 1).contains("--operations"));
    assert!(wrong(|options| options.pool_bytes = 1 << 20).contains("--pool-bytes"));
}
