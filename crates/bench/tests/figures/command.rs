//! The commands of the benchmarks.

use std::path::Path;
use std::process::Command;

use vellum_testing::Did;

fn run(dir: &Path, args: &[&str]) -> Did {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum-bench"));
    command.args(args).current_dir(dir);
    command.output().expect("it runs").into()
}

#[test]
fn bench_mapping_prints_json() {
    let dir = tempfile::tempdir().expect("a directory");
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
        "mapping",
        "--figure",
        "locality",
        "--json",
        "--pool-dir",
        ".",
    ];
    let report = parsed(&run(dir.path(), &[&asked[..], &small].concat()).ok().out);
    assert_eq!(report["machine"]["rounds"], 1);
    assert_eq!(report["figures"][0]["name"], "locality-lookup");
    assert_eq!(report["figures"][1]["series"][0]["name"], "hashfs");
    let point = &report["figures"][1]["series"][0]["points"][1];
    assert_eq!(point["counts"]["fences"], 1.0);
    run(dir.path(), &["mapping", "--layout-score", "2"])
        .failed(1, &["--layout-score must be from 0 to 1"]);
    run(dir.path(), &["mapping", "--figure", "nothing"])
        .failed(2, &["fragmentation", "page-cache"]);
}

#[test]
fn bench_reading_replays_a_trace_writes_a_page_and_names_what_is_wrong() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(
        dir.path().join("t.csv"),
        "1,hm,0,Read,4096,512,1\n2,hm,0,Write,0,4096,1\n",
    )
    .expect("written");
    let asked = [
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
    let report = parsed(&run(dir.path(), &asked).ok().out);
    let rows = report["workloads"].as_array().expect("rows");
    assert_eq!(rows.len(), 5, "four rules and a peer");
    for row in rows {
        assert_eq!(row["workload"], "t");
        assert_eq!(row["operations"], 2);
        assert!(row["ops_per_second"].is_number() && row["over_peer"].is_number());
    }
    let page = std::fs::read_to_string(dir.path().join("page.html")).expect("a page");
    assert_eq!(page.matches("<svg").count(), 2);
    let plots = std::fs::read_dir(dir.path().join("plots")).expect("plots");
    assert_eq!(plots.count(), 2 * 2 + 2, "plots, tables, targets, machine");
    std::fs::write(
        dir.path().join("t.csv"),
        "1,hm,0,Read,4096,512,1\nrubbish\n",
    )
    .expect("written");
    run(dir.path(), &asked).failed(1, &["t.csv, line 2", "1 fields instead of 7"]);
    run(
        dir.path(),
        &[
            "reading",
            "--figure",
            "filebench",
            "--workload",
            "none.toml",
        ],
    )
    .failed(1, &["none.toml"]);
    run(dir.path(), &["reading", "--mapping", "b-tree"]).failed(2, &["extent-cached", "all"]);
}

#[test]
fn bench_mount_names_what_can_be_measured() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = run(dir.path(), &["mount", "--only", "tar,fly"]);
    refused.failed(
        1,
        &[
            "--only fly",
            "requests",
            "rename_across",
            "venv",
            "read-cold",
        ],
    );
    run(dir.path(), &["mount", "--bytes", "4096"]).failed(1, &["--bytes must be at least 1048576"]);
}

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("it is JSON")
}

#[test]
fn instructions_are_counted_in_every_namespace_and_are_the_same_again() {
    let _turn = crate::turn();
    let dir = tempfile::tempdir().expect("a directory");
    let asked = "ops --peer . --no-mount --rounds 1 --files 10 --large-file-bytes 65536 \
                 --only rmdir --instructions --json";
    let args: Vec<&str> = asked.split_whitespace().collect();
    let counted = || {
        let report = parsed(&run(dir.path(), &args).ok().out);
        let rows = report["instructions"].as_array().expect("rows").clone();
        let of = |row: &serde_json::Value| {
            assert_eq!(row["op"], "rmdir");
            let name = row["namespace"].as_str().expect("a name").to_owned();
            (name, row["instructions"].as_f64().expect("a number"))
        };
        rows.iter().map(of).collect::<Vec<_>>()
    };
    let (first, again) = (counted(), counted());
    let namespaces: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(namespaces, ["direct", "adaptive", "tree"]);
    for ((_, one), (_, other)) in first.iter().zip(&again) {
        // Hash seeds are drawn, so probes differ a little.
        assert!(
            *one > 500.0 && (one / other - 1.0).abs() < 0.1,
            "{first:?} {again:?}"
        );
    }
}
