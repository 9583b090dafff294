//! What names take in memory. A program of its own: what it measures is the process's, and other tests give memory back meanwhile.
#![allow(missing_docs)]

use vellum::NamespaceKind;
use vellum_bench::namespace::{Figure, NamespaceOptions, measure};
use vellum_bench::report::Output;

/// The namespaces alone: a kernel's caches are not the process's.
#[test]
fn memory_of_names() {
    let report = measure(&NamespaceOptions {
        figure: vec![Figure::Memory],
        output: Output::default(),
        peer: Vec::new(),
        rounds: 1,
        files: 300,
        children: 120,
        threads: 2,
        seconds: 1,
        tree: None,
        pool_dir: std::env::temp_dir(),
    });
    let report = report.expect("a report");
    let [figure] = &report.figures[..] else {
        panic!("{} figures", report.figures.len());
    };
    assert_eq!(figure.labels(), ["300"]);
    let value = |namespace: NamespaceKind| {
        let point = figure.series(namespace.name())?.at("300")?;
        Some(point.value)
    };
    assert!(NamespaceKind::ALL.iter().all(|one| value(*one) > Some(0.0)));
    assert_eq!(report.targets.len(), 1);
}
