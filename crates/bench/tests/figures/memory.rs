//! What names take in memory. The test has a process of its own: other tests free memory
//! meanwhile.

use vellum::NamespaceKind;
use vellum_bench::namespace::{Figure, measure};
use vellum_testing::in_own_process;

/// Only the namespaces: the caches of the kernel do not belong to the process.
#[test]
fn memory_of_names() {
    in_own_process(memory_of_names, || {
        let report = measure(&crate::small::options(Figure::Memory)).expect("a report");
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
    });
}
