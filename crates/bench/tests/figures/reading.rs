//! One command measures the figures of reading, here on small files.

use std::path::Path;

use vellum::MappingKind;
use vellum_bench::reading::{Figure, ReadingOptions, main_reading, measure, publish};
use vellum_bench::report::Output;
use vellum_bench::workloads::{TraceOptions, WorkloadOptions};
use vellum_bench::{Choice, Variants};

use crate::MEMORY;

fn options(dir: &Path) -> ReadingOptions {
    ReadingOptions {
        figure: Vec::new(),
        peer: dir.to_owned(),
        output: Output::default(),
        variants: Variants {
            mapping: Vec::new(),
            layout_score: vec![1000],
        },
        workloads: WorkloadOptions {
            workload: Vec::new(),
            threads: Some(2),
            loops: 2,
            files: Some(30),
        },
        traces: TraceOptions {
            trace: None,
            requests: 50,
        },
        rounds: 1,
        file_bytes: 4 << 20,
        round_bytes: 1 << 20,
        pool_dir: dir.to_owned(),
    }
}

#[test]
fn every_figure_has_its_points() {
    let dir = tempfile::tempdir_in(MEMORY).unwrap();
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
        let sides: Vec<&str> = row.ns_per_request.keys().copied().collect();
        if row.figure == Figure::View.name() {
            assert_eq!(sides, ["search", "view", "view-again"]);
            continue;
        }
        assert_eq!(
            sides,
            [
                "layout",
                "memcpy",
                "memcpy-small",
                "mmu",
                "peer",
                "search",
                "threshold"
            ]
        );
        assert!(row.over_memcpy["layout"] > 0.0 && row.over_memcpy["memcpy"] == 1.0);
        // The page table that is built at once contains the whole file.
        let laid = &row.page_tables["mmu"];
        assert_eq!((laid.part, laid.gave_up), (1.0, false), "{row:?}");
        assert_eq!(row.page_tables.len(), 3, "search has none");
    }
    // 1 MiB and 4 MiB; at most 32 MiB are read after an opening.
    let readings = report
        .openings
        .iter()
        .map(|it| (it.file_bytes, it.readings));
    let readings: Vec<(u64, u64)> = readings.collect();
    let of = |file: u64, readings: &[u64]| readings.iter().map(|&n| (file, n)).collect::<Vec<_>>();
    let expected = [
        of(1 << 20, &[1, 2, 4, 8, 16, 32]),
        of(4 << 20, &[1, 2, 4, 8]),
    ];
    assert_eq!(readings, expected.concat());
    for opening in &report.openings {
        assert_eq!(opening.over_best.len(), 4, "{opening:?}");
        let best = opening.over_best["search"].min(opening.over_best["mmu"]);
        assert_eq!(best, 1.0, "one round: {opening:?}");
    }
    let asked = |what: &str| {
        let targets = report.targets.iter();
        targets.filter(|target| target.what.contains(what)).count()
    };
    assert_eq!(asked("over memcpy"), 2, "64 KiB and 1 MiB");
    assert_eq!(asked("view of 32 KiB"), 1);
    assert_eq!(asked("better of both paths"), 2, "files and workloads");
    assert_eq!(asked("from the opening on"), 1);
    assert!(report.to_string().contains("asked at most 1.15"));
    let setting = |name: &str| report.settings.iter().any(|(known, _)| *known == name);
    assert!(setting("Loops of each thread in a round") && setting("Requests of a trace"));
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
fn personalities_run_by_every_rule_beside_the_peer() {
    let dir = tempfile::tempdir_in(MEMORY).unwrap();
    let path = dir.path().join("report.html");
    let options = ReadingOptions {
        figure: vec![Figure::Filebench],
        output: Output {
            report: Some(path.clone()),
            ..Output::default()
        },
        ..options(dir.path())
    };
    let report = measure(&options).unwrap();
    // 3 and 3 variants, 2 and 2; four rules and a peer.
    assert_eq!(report.workloads.len(), 10 * 5);
    for row in &report.workloads {
        assert!(
            row.ops_per_second > 0.0 && row.over_peer.unwrap() > 0.0,
            "{row:?}"
        );
        assert_eq!(row.mapping_share().is_some(), row.pool.is_some(), "{row:?}");
        let loops = 2 * 2;
        let steps = match row.workload.split(' ').next().unwrap() {
            "fileserver" | "varmail" => 5,
            "webproxy" => 9,
            _ => 11,
        };
        assert_eq!(row.operations, loops * steps, "{row:?}");
    }
    assert!(report.rows.is_empty() && report.competitive.is_empty());
    publish(&options, &report).unwrap();
    let html = std::fs::read_to_string(&path).unwrap();
    assert!(html.contains("AFPT, Fig 7") && html.contains("id=\"filebench-share\""));
}

#[test]
fn a_workload_of_the_users_own_runs_and_a_wrong_one_says_where() {
    let dir = tempfile::tempdir_in(MEMORY).unwrap();
    let file = dir.path().join("mine.toml");
    let text = "name = \"mine\"\n[files]\ncount = 20\na_directory = 5\n[[steps]]\ndo = \
                \"read\"\ntimes = 3\n[[variants]]\nname = \"tiny\"\nfile = 5000\nread = \
                4096\nwrite = 4096\nappend = 1\n";
    std::fs::write(&file, text).unwrap();
    let mut options = options(dir.path());
    options.figure = vec![Figure::Filebench];
    options.workloads.workload = vec![file.display().to_string()];
    options.workloads.files = None;
    let report = measure(&options).unwrap();
    assert_eq!(report.workloads.len(), 5);
    assert!(
        report
            .workloads
            .iter()
            .all(|row| row.workload == "mine tiny")
    );
    assert!(
        report
            .workloads
            .iter()
            .all(|row| row.operations == 2 * 2 * 3)
    );

    std::fs::write(&file, text.replace("read = 4096", "read = \"4 pages\"")).unwrap();
    let said = measure(&options).unwrap_err().to_string();
    assert!(
        said.contains("mine.toml") && said.contains("line 11"),
        "{said}"
    );
    std::fs::remove_file(&file).unwrap();
    assert!(
        measure(&options)
            .unwrap_err()
            .to_string()
            .contains("mine.toml")
    );
}

#[test]
fn every_kind_of_pool_has_its_figures_on_the_page() {
    let dir = tempfile::tempdir_in(MEMORY).unwrap();
    let path = dir.path().join("report.html");
    let options = ReadingOptions {
        figure: vec![Figure::FileSize, Figure::View],
        output: Output {
            report: Some(path.clone()),
            ..Output::default()
        },
        variants: Variants {
            mapping: vec![
                Choice::One(MappingKind::HashFs),
                Choice::One(MappingKind::Radix),
            ],
            layout_score: vec![1000, 500],
        },
        ..options(dir.path())
    };
    main_reading(&options).unwrap();
    let html = std::fs::read_to_string(&path).unwrap();
    let pools = options.variants.list(&[]);
    assert_eq!(pools.len(), 4);
    for pool in &pools {
        let label = pool.label().replace(' ', "-");
        for figure in ["file-size", "openings", "view"] {
            assert!(
                html.contains(&format!("id=\"{figure}-{label}\"")),
                "{figure}, {label}"
            );
        }
    }
    assert_eq!(html.matches("<svg").count(), 3 * pools.len());
    assert!(html.contains("AFPT, Fig 10"));
    // Figures that were not requested are missing.
    assert!(!html.contains("competitive") && !html.contains("block-size"));
}

#[test]
fn drawn_and_recorded_traces_are_replayed_by_every_rule() {
    let dir = tempfile::tempdir_in(MEMORY).unwrap();
    let mut options = options(dir.path());
    options.figure = vec![Figure::Traces];
    let report = measure(&options).unwrap();
    let names: Vec<&str> = report.workloads.iter().map(|row| &*row.workload).collect();
    assert_eq!(names.len(), 5 * 5, "four rules and a peer");
    for name in ["hm", "mds", "prn", "rsrch", "web"] {
        assert_eq!(names.iter().filter(|found| **found == name).count(), 5);
    }
    assert!(report.workloads.iter().all(|row| row.operations == 50));

    let file = dir.path().join("usr_1.csv");
    let lines = "128166372003061629,usr,1,Read,99999999999,32768,413\n\
                 128166372016382155,usr,1,Write,2822144,4096,1\n";
    std::fs::write(&file, lines).unwrap();
    options.traces.trace = Some(file.clone());
    let report = measure(&options).unwrap();
    assert_eq!(report.workloads.len(), 5);
    assert!(
        report
            .workloads
            .iter()
            .all(|row| row.workload == "usr_1" && row.operations == 2)
    );

    std::fs::write(&file, lines.replace("Write", "Trim")).unwrap();
    let said = measure(&options).unwrap_err().to_string();
    assert!(
        said.contains("usr_1.csv, line 2") && said.contains("Trim"),
        "{said}"
    );
}
