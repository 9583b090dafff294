//! `vellum crash`: its output and exit statuses.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use vellum_crash::{Counts, Options, Report};
use vellum_testing::Did;

fn run(args: &[&str]) -> Did {
    run_in(Path::new("."), args)
}

fn run_in(dir: &Path, args: &[&str]) -> Did {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum-crash"));
    command.args(args).current_dir(dir);
    command.output().expect("it runs").into()
}

fn json(args: &[&str]) -> Value {
    let out = run(args).ok().out;
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

const COUNTS: [&str; 8] = [
    "workloads",
    "points",
    "generated",
    "distinct",
    "meanings",
    "checked",
    "violations",
    "seconds",
];

#[test]
fn totals_are_the_sums_of_the_operations() {
    let report = json(&[
        "run",
        "create-second",
        "rename-over-file",
        "--states",
        "16",
        "--json",
    ]);
    let operations = report["operations"].as_array().expect("a list");
    let names: Vec<_> = operations
        .iter()
        .filter_map(|operation| operation["operation"].as_str())
        .collect();
    for name in ["create", "rename", "recovery"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    for count in COUNTS {
        let of = |part: &Value| {
            part[count]
                .as_f64()
                .unwrap_or_else(|| panic!("{count}: {part}"))
        };
        let sum: f64 = operations.iter().map(of).sum();
        let total = of(&report["totals"]);
        assert!((sum - total).abs() < 1e-6, "{count}: {sum}, in all {total}");
    }
    let listed = json(&["list", "--json"]);
    let name = |workload: &Value| workload["name"].as_str().expect("a name").to_owned();
    let names = listed.as_array().expect("a list").iter().map(name);
    let chosen =
        names.filter(|name| name.contains("create-second") || name.contains("rename-over-file"));
    // On disks flushes are ignored, and without a log processes are killed; in memory all other
    // models apply.
    let modes = |name: String| match name.split('-').next() {
        Some("logged" | "external") => 2,
        Some("split") => 3,
        _ => 4,
    };
    assert_eq!(report["runs"], chosen.map(modes).sum::<u64>());
    let total = |count: &str| report["totals"][count].as_u64().unwrap_or_default();
    assert_eq!(total("violations"), 0);
    assert!(total("distinct") > 100 && total("meanings") > 2, "{report}");
}

#[test]
fn two_runs_count_the_same() {
    let run = || {
        let mut report = json(&[
            "run",
            "append-first",
            "--mode",
            "x86",
            "--states",
            "16",
            "--json",
        ]);
        let totals = report["totals"].as_object_mut().expect("an object");
        totals.remove("seconds");
        report["totals"].clone()
    };
    assert_eq!(run(), run());
}

#[test]
fn parts_and_modes_add_up() {
    // Two workloads have this name in theirs.
    let args = ["run", "create-first", "--states", "16", "--json"];
    let distinct = |more: &[&str]| {
        let report = json(&[&args[..], more].concat());
        report["totals"]["distinct"].as_u64().expect("a number")
    };
    let [x86, eadr] = ["x86", "eadr"].map(|mode| distinct(&["--mode", mode]));
    assert_eq!(distinct(&["--mode", "x86", "--mode", "eadr"]), x86 + eadr);
    let parts = ["1/2", "2/2"].map(|part| distinct(&["--mode", "eadr", "--part", part]));
    assert_eq!(parts[0] + parts[1], eadr);
}

#[test]
fn reports_of_parts_add_up_to_that_of_the_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = [
        "run",
        "rename-over",
        "--states",
        "16",
        "--mode",
        "eadr",
        "--json",
        "--part",
    ];
    let report = |part| run_in(dir.path(), &[&args[..], &[part]].concat()).ok().out;
    for (file, part) in [("1.json", "1/2"), ("2.json", "2/2")] {
        std::fs::write(dir.path().join(file), report(part)).expect("a file is written");
    }
    let sum = run_in(dir.path(), &["sum", "1.json", "2.json", "--json"]);
    let told = |text: &str| -> (Vec<Value>, [Value; 2]) {
        let report: Value = serde_json::from_str(text).expect("it is JSON");
        let operations = report["operations"].as_array().expect("a list");
        let counts = operations.iter().chain([&report["totals"]]);
        let counts = counts.map(|of| {
            let mut of = of.as_object().expect("an object").clone();
            of.remove("seconds").expect("how long it took");
            of.into()
        });
        let others = ["runs", "grounds"].map(|name| report[name].clone());
        (counts.collect(), others)
    };
    let sum = told(&sum.ok().out);
    assert_eq!(sum, told(&report("1/1")));
    let images = sum.0.last().expect("totals")["distinct"].to_string();
    let least = |images: &str| run_in(dir.path(), &["sum", "1.json", "2.json", "--least", images]);
    least(&images).ok();
    least("1000000").failed(1, &[&images, "1000000"]);
    assert_eq!(sum.1[1]["memory"].to_string(), images);
    let on_disks = ["sum", "1.json", "--least", "0", "--least-on-disks", "1"];
    run_in(dir.path(), &on_disks).failed(1, &["0 different images on disks"]);
    std::fs::write(dir.path().join("3.json"), "{}}").expect("a file is written");
    let failed = run_in(dir.path(), &["sum", "1.json", "3.json"]);
    failed.failed(1, &["3.json"]);
}

#[test]
fn a_table_summarises_the_run() {
    let out = run(&["run", "chmod-root", "--mode", "x86"]).ok().out;
    for word in [
        "operation",
        "chmod",
        "recovery",
        "total",
        "different images a second",
    ] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let out = run(&["run", "chmod-root", "--mode", "x86", "--verbose"])
        .ok()
        .out;
    assert!(out.contains("x86 chmod-root: "), "{out}");
}

#[test]
fn workloads_are_listed() {
    let listed = json(&["list", "--json"]);
    let listed = listed.as_array().expect("a list");
    assert!(listed.len() > 1000);
    let second = listed
        .iter()
        .find(|workload| workload["name"] == "create-second");
    let second = second.expect("it is there");
    assert_eq!(second["operations"], serde_json::json!(["create"]));
    assert_eq!(
        second["threads"],
        serde_json::json!([["create g 600 exclusive"]])
    );
    let out = run(&["list"]).ok().out;
    assert!(out.contains("create-second: create g 600 exclusive\n"));
}

#[test]
fn a_crash_is_repeated_and_its_image_is_a_pool() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["replay", "x86:create-second@1:", "--image", "crashed.img"];
    let out = run_in(dir.path(), &args).ok().out;
    assert!(out.contains("nothing is wrong"), "{out}");
    let image = std::fs::read(dir.path().join("crashed.img")).expect("an image");
    let report = vellum_check::check(&image, vellum_check::Options::default());
    assert!(report.is_sound(), "{report}");
}

#[test]
fn mkfs_is_crashed() {
    let report = json(&["run", "mkfs/in-zeros", "--states", "16", "--json"]);
    let operations = report["operations"].as_array().expect("a list");
    assert_eq!(operations.len(), 1, "{report}");
    assert_eq!(operations[0]["operation"], "mkfs");
    assert_eq!(report["totals"]["violations"], 0);
    assert_eq!(report["totals"]["meanings"], 4, "no pool or a pool, twice");
    let listed = json(&["list", "--json"]);
    let listed = listed.as_array().expect("a list");
    let names = listed.iter().filter_map(|of| of["name"].as_str());
    assert_eq!(names.filter(|name| name.starts_with("mkfs/")).count(), 7);
    let out = run(&["replay", "x86:mkfs/over-noise@9:"]).ok().out;
    assert!(out.contains("the pool was being formatted"), "{out}");
}

#[test]
fn mutants_are_counted() {
    let only = ["mutate", "unlink-device", "--site", "remove/life"];
    let caught = json(&[&only[..], &["--json"]].concat());
    assert_eq!(caught["sites"], vellum::sites::ALL.len());
    let mutants = caught["mutants"].as_u64().expect("a number");
    assert!((2..6).contains(&mutants), "{caught}");
    assert_eq!(caught["caught"], mutants);
    assert_eq!(caught["missed"], serde_json::json!([]));
    let by = caught["caught_by"].as_array().expect("a list");
    assert_eq!(by.len() as u64, mutants);
    for id in by
        .iter()
        .map(|of| of["id"].as_str().expect("an identifier"))
    {
        run(&["replay", id]).failed(1, &[]);
    }
}

#[test]
fn reports_survive_json() {
    let options = Options {
        only: vec!["create-first".into()],
        ..Options::default()
    };
    let report = vellum_crash::run(&options);
    let text = serde_json::to_string(&report).unwrap();
    let back: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(back.workloads.len(), report.workloads.len());
    // The last bit of a sum of seconds may differ.
    let counted = |report: &Report| Counts {
        seconds: 0.0,
        ..report.totals()
    };
    assert_eq!(counted(&back), counted(&report));
}

/// If there is no time, everything is left out and named.
#[test]
fn what_is_left_out_is_named() {
    let args = ["run", "rename", "exchange", "--budget", "0"];
    let report = json(&[&args[..], &["--json"]].concat());
    let left_out = &report["left_out"];
    assert!(left_out["workloads"].as_u64() > Some(10), "{left_out}");
    let unexplored = left_out["unexplored"].as_array().expect("a list");
    for operation in ["rename", "exchange"] {
        assert!(left_out["operations"][operation].as_u64() > Some(1));
        assert!(unexplored.contains(&operation.into()), "{left_out}");
    }
    let out = run(&args).ok().out;
    for words in ["the time was up", "rename", "exchange"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("cut.json"), report.to_string()).expect("written");
    let sum = run_in(dir.path(), &["sum", "cut.json", "--least", "0"]);
    sum.failed(1, &["left out"]);
}

/// A mutant that there was no time to catch counts as missed.
#[test]
fn a_mutant_that_is_missed_is_a_failure() {
    let args = ["mutate", "--site", "remove/life-durable"];
    let out = run(&[&args[..], &["--budget", "0"]].concat());
    let out = out.failed(1, &[]).out;
    assert!(out.contains("missed omit:remove/life-durable"), "{out}");
    let args = ["mutate", "--site", "no/such-site", "--budget", "0"];
    run(&args).failed(2, &["reaches a site of such a name", "vellum crash list"]);
}

#[test]
fn misuse_is_reported() {
    run(&["run"]).failed(2, &["--all"]);
    run(&["run", "no-such-thing"]).failed(2, &["no workload", "vellum crash list"]);
    run(&["run", "--all", "--part", "3/2"]).failed(2, &["`3/2` is not a part"]);
    run(&["run", "--all", "--budget", "huge"]).failed(2, &["`huge` is not a budget"]);
    run(&["run", "--all", "--mode", "arm"]).failed(2, &["x86", "lazy", "eadr", "kill", "lies"]);
    run(&["replay", "nonsense"]).failed(2, &["does not name a crash"]);
    run(&["replay", "x86:rename@999999:"]).failed(2, &["no such crash"]);
    for command in ["run", "sum", "replay", "list", "mutate"] {
        let help = run(&[command, "--help"]).ok().out;
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
}

/// If the reader closes the pipe early, output stops, and that is no failure.
#[test]
fn a_reader_may_stop_early() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let mut listing = Command::new(env!("CARGO_BIN_EXE_vellum-crash"))
        .args(["list", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut reader = BufReader::new(listing.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    drop(reader);
    let out = listing.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.is_empty(), "{said}");
}

#[test]
fn a_file_of_workloads_is_explored_instead() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = "let FILE = create f 644 -\n\
        workload mine\n  setup FILE\n  crash rename f g 0\n\
        workload beside\n  setup FILE\n  thread chmod f 600\n  thread rename f g 0\n";
    std::fs::write(dir.path().join("mine.txt"), text).expect("it is written");
    let args = ["run", "--workloads", "mine.txt", "--verbose", "--quiet"];
    let out = run_in(dir.path(), &args).ok().out;
    let has = |name: &str| out.contains(name);
    assert!(
        has("mine") && has("threads/beside") && !has("mkfs"),
        "{out}"
    );
    let replay = ["replay", "--workloads", "mine.txt", "x86:mine@9:"];
    run_in(dir.path(), &replay).failed(2, &["no such crash at 9"]);
    let none = run_in(dir.path(), &["run", "--workloads", "mine.txt", "yours"]);
    none.failed(2, &["no workload has such a name", "see the file"]);
    std::fs::write(dir.path().join("wrong.txt"), "workload mine\n  crash fly\n").expect("it is");
    let wrong = run_in(dir.path(), &["run", "--workloads", "wrong.txt"]);
    wrong.failed(2, &["wrong.txt:2: ", "cannot read"]);
}
