//! The figures of reading come out of one command, on small files.
#![allow(missing_docs)]

use std::path::Path;

use vellum_bench::reading::{Figure, ReadingOptions, main_reading, measure};
use vellum_bench::{Choice, Variants};

fn options(dir: &Path) -> ReadingOptions {
    ReadingOptions {
        figure: Vec::new(),
        peer: dir.to_owned(),
        json: false,
        report: None,
        variants: Variants {
            mapping: Vec::new(),
            layout_score: vec![1000],
        },
        rounds: 1,
        file_bytes: 4 << 20,
        round_bytes: 1 << 20,
        pool_dir: dir.to_owned(),
    }
}

#[test]
fn every_figure_has_its_points() {
    let dir = tempfile::tempdir().unwrap();
    let report = measure(&options(dir.path())).unwrap();
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
    let costs = report.pools[0].costs.as_ref().unwrap();
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

#[test]
fn every_kind_of_pool_has_its_figures_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.html");
    let options = ReadingOptions {
        figure: vec![Figure::FileSize, Figure::View],
        report: Some(path.clone()),
        variants: Variants {
            mapping: vec![Choice::All],
            layout_score: vec![1000, 500],
        },
        ..options(dir.path())
    };
    main_reading(&options).unwrap();
    let html = std::fs::read_to_string(&path).unwrap();
    let pools = options.variants.list(&[]);
    assert_eq!(pools.len(), 2 * vellum::MappingKind::ALL.len());
    for pool in &pools {
        let label = pool.label().replace(' ', "-");
        for figure in ["file-size", "view"] {
            assert!(
                html.contains(&format!("id=\"{figure}-{label}\"")),
                "{figure}, {label}"
            );
        }
    }
    assert_eq!(html.matches("<svg").count(), 2 * pools.len());
    assert!(html.contains("AFPT, Fig 10"));
    // Whoever asked for no figure of them gets none.
    assert!(!html.contains("competitive") && !html.contains("block-size"));
}
