//! The benchmarks as commands.
#![allow(missing_docs)]

mod support;

use support::Bench;

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

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("it is JSON")
}
