//! `vellum tree`, `du` and `df`: what is in a pool, and the space that it takes.

use std::process::Command;

use serde_json::Value;

use crate::support::{ALONE, Bench, Mounted, has_fuse, namespaces, vellum};

/// A pool with the files that are made here, in a directory `src` beside it.
fn filled() -> Bench {
    let bench = Bench::with_pool("64M");
    let src = bench.join("src");
    std::fs::create_dir_all(src.join("a/deep/er")).expect("made");
    std::fs::create_dir(src.join("b")).expect("made");
    std::fs::write(src.join("a/file"), vec![1; 100_000]).expect("written");
    std::fs::hard_link(src.join("a/file"), src.join("a/link")).expect("linked");
    std::fs::hard_link(src.join("a/file"), src.join("b/link")).expect("linked");
    std::fs::write(src.join("a/deep/er/x"), "x").expect("written");
    std::fs::write(src.join(".dot"), "y").expect("written");
    std::os::unix::fs::symlink("/a/file", src.join("to")).expect("linked");
    let hole = std::fs::File::create(src.join("hole")).expect("made");
    hole.set_len(3 << 20).expect("extended");
    bench.run(&["import", "src", "p.img:/", "--quiet"]).ok();
    bench
}

#[test]
fn a_tree_is_drawn() {
    let bench = filled();
    let tree = |args: &[&str]| bench.run(&[&["tree"], args].concat()).ok().out;
    let bars = "│\u{a0}\u{a0} ";
    assert_eq!(
        tree(&["-a", "p.img:/"]),
        format!(
            "p.img:/\n├── .dot\n├── a\n{bars}├── deep\n{bars}{bars}└── er\n\
             {bars}{bars}    └── x\n{bars}├── file\n{bars}└── link\n├── b\n{bars}└── link\n\
             ├── hole\n└── to -> /a/file\n\n4 directories, 7 files\n"
        )
    );
    assert_eq!(
        tree(&["-d", "-L", "2", "p.img:/", "p.img:/b"]),
        format!("p.img:/\n├── a\n{bars}└── deep\n└── b\np.img:/b\n\n3 directories\n")
    );
    let told: Value = serde_json::from_str(&tree(&["--json", "p.img:/"])).expect("JSON");
    assert_eq!(
        (&told["directories"], &told["files"]),
        (&4.into(), &6.into())
    );
    let last = &told["entries"][10];
    assert_eq!((&last["path"], &last["depth"]), (&"/to".into(), &1.into()));
    assert_eq!(
        (&last["kind"], &last["target"]),
        (&"symlink".into(), &"/a/file".into())
    );
}

#[test]
fn files_with_several_names_count_once() {
    let bench = filled();
    let du = |args: &[&str]| bench.run(&[&["du"], args].concat()).ok().out;
    let bytes = |args: &[&str]| -> Vec<u64> {
        let out = du(args);
        let first = |line: &str| line.split('\t').next().and_then(|size| size.parse().ok());
        out.lines()
            .map(|line| first(line).expect("a number"))
            .collect()
    };
    // The file, in blocks of 4 KiB, and its directory.
    assert_eq!(bytes(&["-s", "p.img:/a"]), [100 + 3 * 4 + 4]);
    assert_eq!(bytes(&["-s", "p.img:/b"]), [100 + 4]);
    // What an earlier place has counts there only.
    assert_eq!(bytes(&["-s", "p.img:/a", "p.img:/b"]), [116, 4]);
    assert_eq!(bytes(&["-s", "p.img:/a/deep", "p.img:/a"]), [12, 104]);
    assert_eq!(du(&["-s", "p.img:/a", "p.img:/a/deep"]), "116\tp.img:/a\n");
    // Bytes in files, holes included.
    let apparent = ["-s", "--apparent-size", "p.img:/"];
    assert_eq!(
        bytes(&apparent),
        [(100_000 + 2 + 7_u64).div_ceil(1024) + 3072]
    );
    let human = du(&["-h", "-d", "1", "p.img:/"]);
    assert_eq!(human, "116K\tp.img:/a\n4.0K\tp.img:/b\n128K\tp.img:/\n");
    let told: Value = serde_json::from_str(&du(&["--json", "-s", "p.img:/b"])).expect("JSON");
    let expected = serde_json::json!([
        { "path": "/b", "allocated_bytes": 104 << 10, "apparent_bytes": 100_000 }
    ]);
    assert_eq!(told, expected);
}

/// The lines of a program's output in a mount.
fn lines(mounted: &Mounted, program: &str, args: &[&str]) -> Vec<String> {
    let mut command = Command::new(program);
    let output = command.args(args).current_dir(&mounted.dir).output();
    let text = String::from_utf8(output.expect("it runs").stdout).expect("text");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn du_and_df_agree_with_those_of_the_system() {
    if !has_fuse("du_and_df_agree_with_those_of_the_system") {
        return;
    }
    let bench = filled();
    let columns = |text: &str| -> Vec<String> {
        let words = text.lines().nth(1).expect("a line").split_whitespace();
        words.map(str::to_owned).collect()
    };
    let df = |bench: &Bench, args: &[&str]| columns(&bench.run(&[&["df"], args].concat()).ok().out);
    let at_rest = [&["p.img"][..], &["-i", "p.img:/a"]].map(|args| df(&bench, args));
    assert!(
        at_rest.iter().all(|columns| columns[5] == "-"),
        "{at_rest:?}"
    );
    // No file has names in several directories, whose order would matter.
    bench.run(&["rm", "p.img:/b/link"]).ok();
    let mounted = Mounted::of(bench, &["-o", "noatime"]);
    let run = |args: &[&str]| mounted.bench.run(args).ok().out;

    for options in [&[][..], &["-h"], &["-s"], &["-d", "1"]] {
        let there = lines(&mounted, "du", options);
        let told = run(&[&["du", "p.img:/"], options].concat());
        let path = |line: &str| {
            let here = line.replace("p.img:/", "./");
            here.strip_suffix('/')
                .map_or_else(|| here.clone(), str::to_owned)
        };
        let mut told: Vec<String> = told.lines().map(path).collect();
        told.sort();
        assert_eq!(told, there, "{options:?}");
    }

    let dir = mounted.dir.to_str().expect("text");
    let pool = mounted.bench.join("p.img");
    for (options, at_rest) in [(&[][..], &at_rest[0]), (&["-i"], &at_rest[1])] {
        let columns_of = |named: &str| df(&mounted.bench, &[options, &[named]].concat());
        let told = columns_of("p.img");
        assert_eq!(told[1..5], at_rest[1..5], "{options:?}");
        assert_eq!(
            (&told[0], &told[5]),
            (&pool.display().to_string(), &dir.to_owned())
        );
        for named in [dir, "mnt/a/deep", "p.img:/a", "mnt:/"] {
            assert_eq!(columns_of(named), told, "{named}");
        }
        let list = match options {
            [] => "--output=size,used,avail,pcent",
            _ => "--output=itotal,iused,iavail,ipcent",
        };
        let there = lines(&mounted, "df", &["-k", list, "."]).concat();
        for word in &told[1..5] {
            assert!(there.contains(word), "{word} is not in {there}");
        }
    }
    mounted.umount();
}

#[test]
fn df_without_a_pool_shows_all_mounts() {
    let test = "df_without_a_pool_shows_all_mounts";
    if !has_fuse(test) || !rustix::process::geteuid().is_root() {
        return;
    }
    let _alone = namespaces();
    let mounted = Mounted::new("64M", &[]);
    let script = format!("{ALONE} exec \"$2\" df --json");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &script, "sh"])
        .arg(&mounted.dir);
    let told = command
        .arg(vellum().get_program())
        .output()
        .expect("it runs");
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let all = told.as_array().expect("a list");
    assert_eq!(all.len(), 1, "{told}");
    assert_eq!(all[0]["mounted_on"], mounted.dir.to_str().expect("text"));
    let of = |key: &str| all[0][key].as_u64().expect("a number");
    assert_eq!(of("bytes"), of("used_bytes") + of("available_bytes"));
    mounted.umount();
}
