//! The figures of reading come out of one command, on small files.
#![allow(missing_docs)]

use vellum_bench::reading::{Figure, ReadingOptions, measure};

#[test]
fn every_figure_has_its_points() {
    let dir = tempfile::tempdir().unwrap();
    let options = ReadingOptions {
        figure: Vec::new(),
        peer: dir.path().to_owned(),
        json: false,
        rounds: 1,
        file_bytes: 4 << 20,
        round_bytes: 1 << 20,
        pool_dir: dir.path().to_owned(),
    };
    let report = measure(&options).unwrap();
    let count = |figure: Figure| {
        let rows = report.rows.iter();
        rows.filter(|row| row.figure == figure.name()).count()
    };
    assert_eq!(count(Figure::BlockSize), 2 * 12, "1 KiB to 2 MiB");
    assert_eq!(count(Figure::FileSize), 4, "64 KiB to 4 MiB");
    assert_eq!(count(Figure::View), 1);
    for row in &report.rows {
        assert!(row.ns_per_request.values().all(|&ns| ns > 0.0), "{row:?}");
    }
    let costs = report.costs.as_ref().unwrap();
    assert!(costs.search_page_ns > 0.0 && costs.run_ns > 0.0);
    let ours = report.competitive.iter().filter(|row| row.rule == "layout");
    assert!(ours.clone().count() >= 8);
    for row in ours {
        assert!(row.worst_avoidable_ratio <= 2.0, "{row:?}");
    }
    // The paper's threshold has no such bound.
    let theirs = report
        .competitive
        .iter()
        .filter(|row| row.rule == "threshold");
    assert!(theirs.map(|row| row.worst_ratio).fold(1.0, f64::max) > 2.0);
    assert!(report.to_string().contains("competitive"));
}
