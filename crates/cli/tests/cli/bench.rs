//! The benchmarks as commands.

use crate::support::Bench;

#[test]
fn bench_mapping_prints_json() {
    let bench = Bench::empty();
    let small = [
        "--rounds",
        "1",
        "--file-bytes",
        "1048576",
        "--cold-ops",
        "1",
        "--hot-ops",
        "50",
    ];
    let asked = [
        "bench",
        "mapping",
        "--figure",
        "locality",
        "--json",
        "--pool-dir",
        ".",
    ];
    let report = parsed(&bench.run(&[&asked[..], &small].concat()).ok().out);
    assert_eq!(report["machine"]["rounds"], 1);
    assert_eq!(report["figures"][0]["name"], "locality-lookup");
    assert_eq!(report["figures"][1]["series"][0]["name"], "hashfs");
    let point = &report["figures"][1]["series"][0]["points"][1];
    assert_eq!(point["counts"]["fences"], 1.0);
    bench
        .run(&["bench", "mapping", "--layout-score", "2"])
        .failed(1, &["--layout-score must be from 0 to 1"]);
    bench
        .run(&["bench", "mapping", "--figure", "nothing"])
        .failed(2, &["fragmentation", "page-cache"]);
}

#[test]
fn bench_reading_replays_a_trace_writes_a_page_and_names_what_is_wrong() {
    let bench = Bench::empty();
    std::fs::write(
        bench.join("t.csv"),
        "1,hm,0,Read,4096,512,1\n2,hm,0,Write,0,4096,1\n",
    )
    .expect("written");
    let asked = [
        "bench",
        "reading",
        "--figure",
        "traces",
        "--trace",
        "t.csv",
        "--report",
        "page.html",
        "--plots",
        "plots",
        "--json",
        "--pool-dir",
        ".",
        "--peer",
        ".",
        "--rounds",
        "1",
        "--file-bytes",
        "4194304",
    ];
    let report = parsed(&bench.run(&asked).ok().out);
    let rows = report["workloads"].as_array().expect("rows");
    assert_eq!(rows.len(), 5, "four rules and a peer");
    for row in rows {
        assert_eq!(row["workload"], "t");
        assert_eq!(row["operations"], 2);
        assert!(row["ops_per_second"].is_number() && row["over_peer"].is_number());
    }
    let page = std::fs::read_to_string(bench.join("page.html")).expect("a page");
    assert_eq!(page.matches("<svg").count(), 2);
    let plots = std::fs::read_dir(bench.join("plots")).expect("plots");
    assert_eq!(plots.count(), 2 * 2 + 2, "plots, tables, targets, machine");
    std::fs::write(bench.join("t.csv"), "1,hm,0,Read,4096,512,1\nrubbish\n").expect("written");
    bench
        .run(&asked)
        .failed(1, &["t.csv, line 2", "1 fields instead of 7"]);
    bench
        .run(&[
            "bench",
            "reading",
            "--figure",
            "filebench",
            "--workload",
            "none.toml",
        ])
        .failed(1, &["none.toml"]);
    bench
        .run(&["bench", "reading", "--mapping", "b-tree"])
        .failed(2, &["extent-cached", "all"]);
}

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("it is JSON")
}
