//! The figures of file mapping come out of one command, on small files.
#![allow(missing_docs)]

use vellum::MappingKind;
use vellum_bench::figure::{Chart, Figure, Point};
use vellum_bench::mapping::{self, MappingOptions, measure};

fn options(figure: mapping::Figure) -> MappingOptions {
    MappingOptions {
        figure: vec![figure],
        json: false,
        rounds: 1,
        file_bytes: 4 << 20,
        cold_ops: 2,
        hot_ops: 400,
        layout_score: 0.85,
        pool_dir: std::env::temp_dir(),
    }
}

fn figure(figure: mapping::Figure) -> Figure {
    let mut report = measure(&options(figure)).unwrap();
    assert_eq!(report.figures.len(), 1);
    let json = serde_json::to_string(&report).unwrap();
    let read: mapping::Report = serde_json::from_str(&json).unwrap();
    assert_eq!(read.machine, report.machine);
    assert_eq!(read.figures[0].charts.len(), report.figures[0].charts.len());
    assert!(report.to_string().contains(figure.name()));
    report.figures.remove(0)
}

/// Every mapping that there is has so many points in a chart, with a value each.
fn is_complete(chart: &Chart, points: usize) {
    for mapping in MappingKind::ALL {
        let series = chart.series.iter();
        let series = series.filter(|series| series.name == mapping.name());
        let points_of: Vec<&Point> = series.flat_map(|series| &series.points).collect();
        assert_eq!(points_of.len(), points, "{mapping:?} in {}", chart.title);
        for point in points_of {
            let is_sound = point.low <= point.y && point.y <= point.high && point.rounds == 1;
            assert!(is_sound, "{mapping:?} in {}: {point:?}", chart.title);
        }
    }
}

/// What a mapping did at a place of a chart.
fn counts(chart: &Chart, series: &str, label: &str) -> vellum_bench::figure::CountsPerOp {
    let series = chart.series.iter().find(|one| one.name == series).unwrap();
    let points = &mut series.points.iter();
    let point = points.find(|point| point.label.as_deref() == Some(label));
    point.unwrap().counts.unwrap()
}

#[test]
fn locality_counts_what_an_access_costs() {
    let figure = figure(mapping::Figure::Locality);
    assert_eq!(figure.charts.len(), 2);
    for chart in &figure.charts {
        is_complete(chart, 5);
    }
    let [lookups, inserts] = &figure.charts[..] else {
        panic!("two charts");
    };
    // A line for each of the eight blocks, of which one was asked for: the run is what is remembered.
    let cold = counts(lookups, "hashfs", "cold random");
    assert!((1.0..2.0).contains(&cold.probes), "{cold:?}");
    // The root, inner nodes and the leaf.
    let radix = counts(lookups, "radix", "cold random");
    assert!((2.0..=3.0).contains(&radix.probes), "{radix:?}");
    for (name, lines) in [("hashfs", 1.0), ("hashfs-1", 1.0), ("radix", 1.0)] {
        let hot = counts(inserts, name, "hot random");
        assert!(
            hot.lines_flushed >= lines && hot.fences >= 1.0,
            "{name}: {hot:?}"
        );
        let lookup = counts(lookups, name, "hot random");
        assert_eq!((lookup.lines_flushed, lookup.fences), (0.0, 0.0), "{name}");
    }
    let hashfs = counts(inserts, "hashfs-1", "cold random");
    assert_eq!((hashfs.lines_flushed, hashfs.fences), (1.0, 1.0));
}
