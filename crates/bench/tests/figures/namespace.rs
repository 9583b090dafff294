//! One command measures the figures of names and directories, here on small directories. Tests
//! their shape, and counts that do not depend on the machine.

use vellum::NamespaceKind;
use vellum_bench::figure::{CountsPerOp, Figure};
use vellum_bench::namespace::{self, NamespaceOptions, Report, main_namespace, measure};
use vellum_bench::report::Output;

use crate::small::options;
use crate::turn;

fn measured(options: &NamespaceOptions) -> Report {
    let _turn = turn();
    measure(options).expect("a report")
}

/// Every namespace, and the peer.
const SIDES: usize = NamespaceKind::ALL.len() + 1;

/// The only figure of a report, in which every namespace and the peer have a value at each of
/// `labels` labels.
fn complete(report: &Report, labels: usize) -> &Figure {
    let [figure] = &report.figures[..] else {
        panic!("{} figures", report.figures.len());
    };
    filled(report, figure, labels, SIDES)
}

fn filled<'f>(report: &Report, figure: &'f Figure, labels: usize, sides: usize) -> &'f Figure {
    assert_eq!(figure.labels().len(), labels, "{}", figure.name);
    assert_eq!(figure.series.len(), sides);
    for series in &figure.series {
        assert_eq!(series.points.len(), labels, "{}", series.name);
        assert!(series.points.iter().all(|point| point.value > 0.0));
        assert!(series.points.iter().all(|point| point.peer_over.is_some()));
    }
    assert!(!figure.claim.is_empty());
    assert!(figure.found.iter().any(|found| found.contains("direct")));
    assert!(report.to_string().contains(&figure.name));
    figure
}

fn counts(figure: &Figure, series: NamespaceKind, label: &str) -> CountsPerOp {
    let point = figure
        .series(series.name())
        .and_then(|series| series.at(label));
    point.and_then(|point| point.counts).expect("it is counted")
}

#[test]
fn making_and_removing() {
    let report = measured(&options(namespace::Figure::Ops));
    let figure = complete(&report, 4);
    for label in ["create", "unlink", "mkdir", "rmdir"] {
        for namespace in NamespaceKind::ALL {
            let found = counts(figure, namespace, label);
            assert!(found.fences >= 1.0, "{label}: {found:?}");
            assert!(
                (1.0..16.0).contains(&found.lines_flushed),
                "{label}: {found:?}"
            );
        }
    }
    // Name and inode are separate: removing a name changes one word.
    let unlink = |namespace| counts(figure, namespace, "unlink").lines_flushed;
    assert!(unlink(NamespaceKind::Direct) < unlink(NamespaceKind::Tree));
    assert!(unlink(NamespaceKind::Adaptive) < unlink(NamespaceKind::Tree));
    assert_eq!(report.targets.len(), 4);
}

#[test]
fn listing() {
    let report = measured(&options(namespace::Figure::Listdirs));
    let figure = complete(&report, 2);
    for namespace in NamespaceKind::ALL {
        assert_eq!(counts(figure, namespace, "1").fences, 0.0);
    }
}

/// The number of names in it does not matter, except where each entry has its path.
#[test]
fn renaming_a_directory() {
    let report = measured(&options(namespace::Figure::Rename));
    let figure = filled(&report, &report.figures[0], 4, SIDES + 1);
    for namespace in [NamespaceKind::Direct, NamespaceKind::Tree] {
        let [one, most] = ["1", "120"].map(|label| counts(figure, namespace, label));
        assert!(
            (one.lines_flushed - most.lines_flushed).abs() < 1.0,
            "{one:?} {most:?}"
        );
    }
    let [one, most] = ["1", "120"].map(|label| counts(figure, NamespaceKind::Adaptive, label));
    assert!(
        most.lines_flushed > one.lines_flushed + 2.0 * 119.0,
        "{one:?} {most:?}"
    );
    assert_eq!(report.targets.len(), NamespaceKind::ALL.len());
}

/// Only the namespaces, since no peer's lines can be slowed; the counts do not include the cost of
/// a line.
#[test]
fn lines_that_take_longer() {
    let report = measured(&options(namespace::Figure::Latency));
    assert_eq!(report.figures.len(), 4);
    for figure in &report.figures {
        assert_eq!(figure.labels().len(), 6, "{}", figure.name);
        assert_eq!(figure.series.len(), NamespaceKind::ALL.len());
        for namespace in NamespaceKind::ALL {
            let [none, most] = ["0", "1000"].map(|label| counts(figure, namespace, label));
            assert!(none.lines_flushed >= 1.0, "{none:?}");
            assert!(
                (none.lines_flushed - most.lines_flushed).abs() < 0.5,
                "{none:?} {most:?}"
            );
        }
    }
    assert_eq!(report.targets.len(), 4 * 3);
}

#[test]
fn whole_paths() {
    let report = measured(&options(namespace::Figure::Depth));
    let [figure, ways] = &report.figures[..] else {
        panic!("{} figures", report.figures.len());
    };
    filled(&report, figure, 7, SIDES);
    let [flat, deep] = ["1", "64"].map(|label| counts(figure, NamespaceKind::Direct, label));
    assert!(
        flat.probes >= 1.0 && deep.probes > flat.probes,
        "{flat:?} {deep:?}"
    );
    filled(&report, ways, 2, SIDES);
    let labels = ["whole path", "by components"];
    let [whole, stepped] = labels.map(|label| counts(ways, NamespaceKind::Adaptive, label));
    assert!(stepped.probes > whole.probes, "{whole:?} {stepped:?}");
    assert_eq!(report.targets.len(), 2);
}

/// Directories become roots when they are renamed, and lookups continue. The evolving thread is
/// found.
#[test]
fn a_changing_set_of_directories() {
    let report = measured(&NamespaceOptions {
        files: 5000,
        ..options(namespace::Figure::Evolve)
    });
    let [time, late, share] = &report.figures[..] else {
        panic!("{} figures", report.figures.len());
    };
    filled(&report, time, 32, SIDES + 1);
    filled(&report, late, 4, SIDES + 1);
    assert!(
        time.series
            .iter()
            .flat_map(|series| &series.points)
            .all(|point| {
                let seconds: f64 = point.at.parse().expect("seconds");
                (0.0..1.0).contains(&seconds)
            })
    );
    let parts: Vec<f64> = share.series[0]
        .points
        .iter()
        .map(|point| point.value)
        .collect();
    assert_eq!(parts.len(), 2, "quiet and busy");
    assert!(
        parts.iter().all(|part| (0.0..1.0).contains(part)),
        "{parts:?}"
    );
    assert_eq!(report.targets.len(), 2);
}

#[test]
fn a_tree_of_sources() {
    let report = measured(&options(namespace::Figure::SourceTree));
    let figure = complete(&report, 6);
    assert!(
        figure
            .notes
            .iter()
            .any(|note| note.contains("300 files in 20 directories"))
    );
    let rename = counts(figure, NamespaceKind::Direct, "rename").lines_flushed;
    assert!((1.0..12.0).contains(&rename), "{rename}");
    let missing = std::env::temp_dir().join("no/such/tree");
    let wrong = NamespaceOptions {
        tree: Some(missing),
        ..options(namespace::Figure::SourceTree)
    };
    assert!(measure(&wrong).is_err());
}

#[test]
fn the_page_and_the_parts_are_written() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("a directory");
    let options = NamespaceOptions {
        output: Output {
            printing: Default::default(),
            report: Some(dir.path().join("page.html")),
            plots: Some(dir.path().join("plots")),
        },
        ..options(namespace::Figure::Rename)
    };
    main_namespace(&options).expect("a report");
    let page = std::fs::read_to_string(dir.path().join("page.html")).expect("the page");
    assert!(page.contains("<svg") && page.contains("Fig 6"), "{page}");
    for part in ["rename.svg", "rename.md", "targets.md", "machine.md"] {
        assert!(dir.path().join("plots").join(part).exists(), "{part}");
    }
    let wrong = NamespaceOptions {
        rounds: 0,
        ..options
    };
    assert!(measure(&wrong).is_err());
}
