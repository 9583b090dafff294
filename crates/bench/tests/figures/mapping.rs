//! One command measures the figures of file mapping, here on small files. Tests their shape, and
//! counts that do not depend on the machine.

use vellum::MappingKind;
use vellum_bench::figure::{CountsPerOp, Figure};
use vellum_bench::mapping::{self, MappingOptions, Report, measure};
use vellum_bench::report::Output;
use vellum_bench::workloads::{WorkloadOptions, YcsbOptions};

use crate::MEMORY;

/// Probes of a lookup by HashFS: the home line; for a displaced block also its count, the head of
/// its chain, and link and line of one or two blocks.
const HASHED: std::ops::RangeInclusive<f64> = 1.0..=7.0;

/// The seed of the hashes of pools in `make test`, set in `.cargo/config.toml`.
const USUAL_SEED: &str = "20261121";

fn options(figure: mapping::Figure) -> MappingOptions {
    MappingOptions {
        figure: vec![figure],
        output: Output::default(),
        peer: vec![MEMORY.into()],
        workloads: WorkloadOptions {
            workload: match figure {
                mapping::Figure::Filebench => vec!["webproxy".into()],
                _ => Vec::new(),
            },
            threads: Some(2),
            loops: 2,
            files: Some(30),
        },
        ycsb: YcsbOptions {
            records: 300,
            operations: 40,
            record_bytes: 100,
            cache_bytes: 1 << 16,
            distribution: None,
        },
        rounds: 1,
        file_bytes: 4 << 20,
        cold_ops: 2,
        hot_ops: 400,
        layout_score: 0.85,
        pool_dir: MEMORY.into(),
    }
}

fn report(figure: mapping::Figure) -> Report {
    measure(&options(figure)).unwrap()
}

/// The figure of that name, in which every mapping has a value at each of `labels` labels.
fn complete<'r>(report: &'r Report, name: &str, labels: usize) -> &'r Figure {
    let mut figures = report.figures.iter();
    let figure = figures.find(|figure| figure.name == name);
    let figure = figure.unwrap_or_else(|| panic!("no figure {name}"));
    assert_eq!(figure.labels().len(), labels, "{name}");
    assert!(!figure.claim.is_empty(), "{name}");
    assert!(
        figure.found.iter().any(|found| found.contains("hashfs")),
        "{name}: {:?}",
        figure.found
    );
    for mapping in MappingKind::ALL {
        let series = figure.series(mapping.name()).unwrap();
        assert_eq!(series.points.len(), labels, "{mapping:?} in {name}");
        for point in &series.points {
            let is_sound = point.low <= point.value && point.value <= point.high;
            assert!(is_sound, "{mapping:?} in {name}: {point:?}");
        }
    }
    assert!(report.to_string().contains(name));
    figure
}

/// The counts of an operation of a mapping at a label.
fn counts(figure: &Figure, series: &str, label: &str) -> CountsPerOp {
    figure
        .series(series)
        .unwrap()
        .at(label)
        .unwrap()
        .counts
        .unwrap()
}

#[test]
fn locality_counts_what_an_access_costs() {
    let report = report(mapping::Figure::Locality);
    let lookups = complete(&report, "locality-lookup", 5);
    let inserts = complete(&report, "locality-insert", 5);
    let cold = counts(lookups, "hashfs", "cold random");
    assert!(HASHED.contains(&cold.probes), "{cold:?}");
    // The word in the inode, the inner node and the leaf.
    assert_eq!(counts(lookups, "radix", "cold random").probes, 3.0);
    for name in ["hashfs", "hashfs-1"] {
        let insert = counts(inserts, name, "hot random");
        // The word, and sometimes that of the inode, when an operation ends.
        let once = 1.0..1.1;
        assert!(once.contains(&insert.lines_flushed), "{name}: {insert:?}");
        assert_eq!(insert.lines_flushed, insert.fences, "{name}");
        assert_eq!(insert.pool_bytes_written, 8.0, "{name}");
        assert_eq!(insert.allocations, 1.0, "{name}");
        let lookup = counts(lookups, name, "hot random");
        assert_eq!((lookup.lines_flushed, lookup.fences), (0.0, 0.0), "{name}");
    }
    assert_eq!(report.targets.len(), 3);
}

#[test]
fn fragmentation_lengthens_no_search_but_in_extent_trees() {
    let report = report(mapping::Figure::Fragmentation);
    let figure = complete(&report, "fragmentation-hot", 6);
    complete(&report, "fragmentation-cold", 6);
    complete(&report, "fragmentation-insert", 6);
    let probes = |series, score| counts(figure, series, score).probes;
    // The share of displaced blocks among a few hundred differs from pool to pool.
    for (name, most) in [("hashfs", 2.0), ("radix", 1.1)] {
        assert!(probes(name, "0") <= probes(name, "1") * most, "{name}");
    }
    assert!(probes("extent", "0") > probes("extent", "1") * 1.1);
}

#[test]
fn file_size_changes_no_probe_of_hash_tables() {
    let report = report(mapping::Figure::FileSize);
    let figure = complete(&report, "file-size-cold", 4);
    for name in ["file-size-hot", "file-size-sequential", "file-size-insert"] {
        complete(&report, name, 4);
    }
    let probes = |series, bytes: u64| counts(figure, series, &bytes.to_string()).probes;
    for bytes in [4096, 65_536, 1 << 20, 4 << 20] {
        assert!(HASHED.contains(&probes("hashfs", bytes)), "{bytes}");
    }
    assert_eq!(probes("radix", 65_536), 2.0);
    assert_eq!(probes("radix", 4 << 20), 3.0);
}

#[test]
fn a_request_of_many_blocks_probes_once_for_a_run() {
    let report = report(mapping::Figure::IoSize);
    let figure = complete(&report, "io-size-hot", 6);
    for name in ["io-size-cold", "io-size-insert", "io-size-share"] {
        complete(&report, name, 6);
    }
    let probes = |series, blocks| counts(figure, series, blocks).probes;
    assert!(probes("hashfs", "1") >= 1.0);
    // An eighth, except for displaced runs, whose share among a few differs from pool to pool.
    assert!(probes("hashfs", "32") < 0.6);
    assert!(probes("hashfs-1", "32") >= 1.0);
    for name in ["io-size-16-cold", "io-size-16-hot"] {
        let figure = complete(&report, name, 3);
        let probes = |way| counts(figure, "hashfs", way).probes;
        assert!(probes("one request") < 0.6);
        assert!(probes("16 requests of the mapping") >= 1.0);
    }
}

#[test]
fn churn_does_not_lengthen_searches() {
    let report = report(mapping::Figure::Utilisation);
    complete(&report, "utilisation-cold", 5);
    complete(&report, "utilisation-time", 11);
    complete(&report, "utilisation-insert", 4);
    complete(&report, "utilisation-insert-probes", 4);
    for name in ["utilisation-hits", "utilisation-misses"] {
        complete(&report, name, 11);
    }
    // Probes depend only on the operations and on the seed of the hashes. Over 80 seeds `hashfs-1`
    // had the largest ratios: 1.14 on average, with a standard deviation of 0.07, so one in a
    // hundred exceeds the target. An excess of seven deviations practically never occurs.
    let is_drawn = std::env::var("VELLUM_HASH_SEED").is_ok_and(|seed| seed != USUAL_SEED);
    let targets = report.targets.iter();
    for target in targets.filter(|target| target.what.starts_with("hashfs")) {
        println!("{target}");
        assert!(target.met || is_drawn && target.value < 1.63, "{target}");
    }
}

#[test]
fn threads_work_on_one_file_and_on_their_own() {
    let report = report(mapping::Figure::Concurrency);
    for work in ["lookup", "insert", "both"] {
        for whose in ["private", "shared"] {
            complete(&report, &format!("concurrency-{work}-{whose}"), 2);
        }
    }
}

#[test]
fn a_page_cache_is_filled_from_cold() {
    let report = report(mapping::Figure::PageCache);
    // 1, 4, 40 and 400 operations.
    complete(&report, "page-cache-lookup", 4);
    complete(&report, "page-cache-insert", 4);
    for name in [
        "page-cache-read",
        "page-cache-read-whole",
        "page-cache-read-default",
    ] {
        complete(&report, name, 2);
    }
    assert_eq!(report.targets.len(), 6, "two sizes of each");
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["figures"][0]["series"][0]["points"][0]["counts"]["probes"].is_number());
    assert!(json["targets"][0]["met"].is_boolean());
}

#[test]
fn personalities_run_on_every_mapping_beside_the_peer() {
    let report = report(mapping::Figure::Filebench);
    let speeds = complete(&report, "filebench", 3);
    assert_eq!(speeds.series.len(), MappingKind::ALL.len() + 1);
    let first = &speeds.series[0].name;
    assert_eq!(first, "extent-cached", "the baseline");
    let shares = complete(&report, "filebench-share", 3);
    assert_eq!(shares.series.len(), MappingKind::ALL.len());
    assert!(shares.found.last().unwrap().contains("cost nothing"));
}

#[test]
fn all_of_ycsb_runs_on_every_mapping_and_is_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.html");
    let options = MappingOptions {
        output: Output {
            report: Some(path.clone()),
            ..Output::default()
        },
        ..options(mapping::Figure::Ycsb)
    };
    let report = measure(&options).unwrap();
    report.publish(&options.output).unwrap();
    let html = std::fs::read_to_string(&path).unwrap();
    assert!(html.contains("HashFS, Figs 13 and 14") && html.contains("id=\"ycsb-share\""));
    assert_eq!(html.matches("<svg").count(), 2);
    let speeds = complete(&report, "ycsb", 6);
    assert_eq!(speeds.labels(), ["A", "B", "C", "D", "E", "F"]);
    assert_eq!(speeds.series.len(), MappingKind::ALL.len() + 1);
    let gains = report.targets.iter().map(|target| &target.what[..6]);
    let names = ["ycsb A", "ycsb B", "ycsb C", "ycsb D", "ycsb E", "ycsb F"];
    assert_eq!(gains.collect::<Vec<_>>(), names);
    for name in [
        "Operations of YCSB in a round",
        "Cache of the key-value store",
    ] {
        assert!(html.contains(name), "{name}");
    }
}

#[test]
fn a_mix_of_the_users_own_runs_and_what_no_figure_runs_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let text = "name = \"mine\"\ndistribution = \"uniform\"\n\
                [[operations]]\ndo = \"scan\"\npercent = 40\nmost = 3\n\
                [[operations]]\ndo = \"modify\"\npercent = 60\n";
    std::fs::write(&path, text).unwrap();
    let mut options = options(mapping::Figure::Ycsb);
    options.workloads.workload = vec![path.display().to_string(), "C".into()];
    let report = measure(&options).unwrap();
    assert_eq!(complete(&report, "ycsb", 2).labels(), ["C", "mine"]);
    let refused = |options: &MappingOptions| measure(options).unwrap_err().to_string();
    std::fs::write(&path, text.replace("60", "70")).unwrap();
    let said = refused(&options);
    assert!(
        said.contains("mine.toml") && said.contains("a hundred"),
        "{said}"
    );
    options.workloads.workload = vec!["webproxy".into()];
    let said = refused(&options);
    assert!(said.contains("webproxy"), "{said}");
}

#[test]
fn every_instruction_set_of_this_processor_takes_every_step() {
    let report = report(mapping::Figure::Vectors);
    let figure = &report.figures[0];
    assert_eq!(figure.labels().len(), 3);
    assert_eq!(figure.found.len(), 3, "{:?}", figure.found);
    let names: Vec<&str> = figure.series.iter().map(|series| &*series.name).collect();
    assert_eq!(names.last(), Some(&"generic"));
    assert!(figure.series.iter().all(|series| series.points.len() == 3));
}
