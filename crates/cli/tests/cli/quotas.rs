//! `vellum quota`, of pools at rest and of mounts.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;
use vellum::{Cred, PoolOptions, QuotaKind, QuotaLimits};

use crate::support::{Bench, Did, Mounted, done, has_fuse, skipped, vellum};

const NOBODY: u32 = 65534;
/// The program's file may be out of reach of other users.
const UNREACHABLE: &str = "another user cannot run it";

fn json(did: Did) -> Value {
    serde_json::from_str(&did.ok().out).expect("JSON")
}

/// The words of the line of a table that begins with `name`.
fn line(table: &str, name: &str) -> Vec<String> {
    let found = table
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name));
    let found = found.unwrap_or_else(|| panic!("no {name} in:\n{table}"));
    found.split_whitespace().map(str::to_owned).collect()
}

/// The lines of a table without the widths of its columns, and as if no time had passed.
fn settled(table: &str) -> Vec<String> {
    let lines = table.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ").replace("6d23h", "7d")
    });
    lines.collect()
}

/// A mounted pool with quotas in which another user may write.
struct Shared(Mounted);

impl Shared {
    fn of(test: &str, options: &[&str]) -> Option<Self> {
        if !has_fuse(test) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            skipped(test, "not root");
            return None;
        }
        let bench = Bench::with_pool("64M");
        bench.run(&["quota", "on", "p.img"]).ok();
        let shared = Self(Mounted::of(bench, options));
        for dir in [shared.0.bench.path(), &shared.0.dir] {
            std::fs::set_permissions(dir, Permissions::from_mode(0o777)).expect("opened");
        }
        if as_nobody(vellum().arg("version")).output().is_err() {
            skipped(test, UNREACHABLE);
            return None;
        }
        Some(shared)
    }

    fn run(&self, args: &[&str]) -> Did {
        self.0.bench.run(args)
    }

    /// Runs the command as another user.
    fn run_as_nobody(&self, args: &[&str]) -> Did {
        let mut command = vellum();
        command.args(args).current_dir(self.0.bench.path());
        done(as_nobody(&mut command).output().expect("it runs"))
    }

    /// Runs a shell in the mount, as another user.
    fn shell(&self, script: &str) -> Did {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(&self.0.dir);
        done(
            as_nobody(&mut command)
                .env("LC_ALL", "C")
                .output()
                .expect("it runs"),
        )
    }
}

fn as_nobody(command: &mut Command) -> &mut Command {
    command.uid(NOBODY).gid(NOBODY)
}

#[test]
fn quotas_of_a_pool_at_rest_are_turned_on_set_and_shown() {
    let bench = Bench::with_pool("16M");
    let run = |args: &[&str]| bench.run(&[&["quota"], args].concat());
    run(&["p.img"]).failed(1, &["p.img: quotas are off", "`vellum quota on p.img`"]);
    assert_eq!(run(&["on", "p.img"]).ok().out, "p.img: quotas are on\n");
    // The root directory counts.
    let owner = bench
        .join("p.img")
        .metadata()
        .expect("a pool")
        .uid()
        .to_string();
    let table = run(&["p.img", "-u", &owner]).ok().out;
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(table.ends_with("--  4.0 KiB     -     -      -      1     -     -      -\n"));
    let table = run(&["p.img"]).ok().out;
    for kind in ["user", "group", "project"] {
        assert_eq!(line(&table, kind)[1..3], ["bytes", "soft"], "{table}");
    }
    // A limit that is not given stays as it is.
    let limits = ["--soft", "1M", "--hard", "2M", "--hard-files", "5"];
    let said = run(&[&["set", "p.img", "--user", "4242"], &limits[..]].concat())
        .ok()
        .out;
    let told = "p.img: user 4242: bytes soft 1.0 MiB, hard 2.0 MiB; files soft none, hard 5\n";
    assert_eq!(said, told);
    run(&[
        "set",
        "p.img",
        "-u4242",
        "--soft",
        "none",
        "--soft-files",
        "3",
    ])
    .ok();
    run(&["set", "p.img", "--group", "4243", "--hard", "1G"]).ok();
    run(&["set", "p.img", "--project", "7", "--hard-files", "9"]).ok();
    let table = run(&["p.img"]).ok().out;
    let words = line(&table, "4242").join(" ");
    assert_eq!(words, "4242 -- 0 B - 2.0 MiB - 0 3 5 -");
    assert_eq!(
        line(&table, "4243").join(" "),
        "4243 -- 0 B - 1.0 GiB - 0 - - -"
    );
    assert_eq!(line(&table, "7").join(" "), "7 -- 0 B - - - 0 - 9 -");
    let told = json(run(&["p.img", "--user", "4242", "--json"]));
    assert_eq!(
        (&told["pool"], &told["is_on"]),
        (&"p.img".into(), &true.into())
    );
    let quota = &told["quotas"][0];
    assert_eq!(
        (&quota["kind"], &quota["id"]),
        (&"user".into(), &4242.into())
    );
    assert_eq!(
        (&quota["name"], &quota["own_limits"]),
        (&Value::Null, &true.into())
    );
    assert_eq!(
        (&quota["bytes"]["soft"], &quota["bytes"]["hard"]),
        (&Value::Null, &(2 << 20).into())
    );
    assert_eq!(
        (&quota["files"]["soft"], &quota["files"]["used"]),
        (&3.into(), &0.into())
    );
    let root = json(run(&["p.img", "--user", "root", "--json"]));
    assert_eq!(root["quotas"][0]["name"], "root");
    // Off, they are kept.
    run(&["off", "p.img", "--quiet"]).ok();
    run(&["p.img"]).failed(1, &["quotas are off"]);
    run(&["set", "p.img", "-u1", "--hard", "1"]).failed(1, &["quotas are off"]);
    run(&["on", "p.img", "--quiet"]).ok();
    assert_eq!(run(&["p.img"]).ok().out, table);
    // Given up, the defaults hold, and the ids are shown no more.
    for whose in ["-u4242", "-g4243", "-P7"] {
        run(&["set", "p.img", whose, "--default"]).ok();
    }
    let table = run(&["p.img"]).ok().out;
    assert!(!table.contains("424") && !table.contains("\n7 "), "{table}");
    bench.sound();
}

#[test]
fn defaults_hold_for_ids_without_limits_of_their_own() {
    let bench = Bench::with_pool("16M");
    let run = |args: &[&str]| bench.run(&[&["quota"], args].concat());
    run(&["default", "p.img"]).failed(1, &["quotas are off", "`vellum quota on p.img`"]);
    run(&["on", "p.img"]).ok();
    let none = "bytes soft none, hard none, grace 7d; files soft none, hard none, grace 7d\n";
    let all = ["users: ", "groups: ", "projects: "].map(|kind| kind.to_owned() + none);
    assert_eq!(run(&["default", "p.img"]).ok().out, all.concat());
    let given = [
        "--hard",
        "1G",
        "--soft-files",
        "100",
        "--grace",
        "3d",
        "--grace-files",
        "1h30m",
    ];
    let said = run(&[&["default", "p.img", "--user"], &given[..]].concat())
        .ok()
        .out;
    let users = "users: bytes soft none, hard 1.0 GiB, grace 3d; files soft 100, hard none, grace \
                 1h30m\n";
    assert_eq!(said, format!("p.img: {users}"));
    // Showing is what was asked for, and needs no summary.
    assert_eq!(run(&["default", "p.img", "--user", "-q"]).ok().out, users);
    assert_eq!(run(&["default", "p.img", "--group"]).ok().out, all[1]);
    let told = json(run(&["default", "p.img", "--json"]));
    assert_eq!(told["defaults"].as_array().map(Vec::len), Some(3));
    assert_eq!(told["defaults"][0]["bytes"]["hard"], 1 << 30);
    assert_eq!(told["defaults"][0]["files"]["grace_s"], 5400);
    let told = json(run(&["p.img", "--user", "4242", "--json"]));
    let quota = &told["quotas"][0];
    assert_eq!(
        (&quota["bytes"]["hard"], &quota["own_limits"]),
        (&(1 << 30).into(), &false.into())
    );
    let said = run(&["set", "p.img", "-u4242", "--default"]).ok().out;
    assert!(said.ends_with("(the defaults)\n"), "{said}");
    let root = json(run(&["p.img", "--user", "0", "--json"]));
    assert_eq!(root["quotas"][0]["bytes"]["hard"], Value::Null);
    bench.sound();
}

#[test]
fn wrong_requests_are_refused_with_the_reason() {
    let bench = Bench::with_pool("16M");
    let run = |args: &[&str]| bench.run(&[&["quota"], args].concat());
    run(&["on", "p.img"]).ok();
    run(&["set", "p.img", "-u1", "--hard", "2M"]).ok();
    run(&["set", "p.img", "-u1", "--soft", "3M"])
        .failed(1, &["p.img: a soft limit above the hard one", "give both"]);
    run(&["set", "p.img", "-u1", "--soft", "3M", "--hard", "4M"]).ok();
    for (args, words) in [
        (
            &["p.img", "--user", "no-such-user"][..],
            "there is no user `no-such-user`",
        ),
        (
            &["set", "p.img", "-g", "no-such-group", "--hard", "1"],
            "no group `no-such-group`",
        ),
        (
            &["p.img", "--user", "4294967295"],
            "there is no user `4294967295`",
        ),
        (&["missing.img"], "missing.img"),
        (&["on", "missing.img"], "missing.img"),
    ] {
        run(args).failed(1, &[words]);
    }
    for (args, words) in [
        (&[][..], "<POOL>"),
        (&["on"], "<POOL>"),
        (&["p.img", "--project", "work"], "`work` is not a project"),
        (
            &["p.img", "--user", "1", "--group", "1"],
            "cannot be used with",
        ),
        (&["set", "p.img", "--hard", "1"], "--user <NAME|ID>"),
        (&["set", "p.img", "-u1"], "--hard <SIZE>"),
        (
            &["set", "p.img", "-u1", "--default", "--hard", "1"],
            "cannot be used with",
        ),
        (
            &["set", "p.img", "-u1", "--hard", "much"],
            "`much` is not a size",
        ),
        (
            &["set", "p.img", "-u1", "--hard-files", "1K"],
            "`1K` is not a number of files",
        ),
        (&["default", "p.img", "--grace", "3d"], "say for whom"),
        (
            &["default", "p.img", "--user", "--grace", "soon"],
            "`soon` is not a duration",
        ),
    ] {
        run(args).failed(2, &[words]);
    }
    bench.sound();
}

#[test]
fn a_pool_is_made_with_quotas() {
    let bench = Bench::empty();
    bench
        .run(&["mkfs", "p.img", "--size", "16M", "--quota", "-q"])
        .ok();
    bench
        .run(&["dataset", "add", "p.img", "a", "--size", "8M", "--quota"])
        .ok();
    bench
        .run(&["dataset", "add", "p.img", "b", "--size", "8M"])
        .ok();
    for (pool, state) in [("p.img", "on"), ("p.img:a", "on"), ("p.img:b", "off")] {
        let told = bench.run(&["info", "--verbose", pool]).ok().out;
        assert_eq!(line(&told, "quotas")[1], state, "{pool}");
        let told = json(bench.run(&["info", "--json", pool]));
        assert_eq!(told["quotas"], state == "on", "{pool}");
    }
    bench.run(&["quota", "p.img:a"]).ok();
    bench
        .run(&["quota", "p.img:b"])
        .failed(1, &["`vellum quota on p.img:b`"]);
}

#[test]
fn a_mount_holds_users_to_their_limits() {
    let Some(shared) = Shared::of("a_mount_holds_users_to_their_limits", &[]) else {
        return;
    };
    let whose = ["quota", "set", "p.img", "--user", "65534"];
    let limits = ["--soft", "1M", "--hard", "2M", "--hard-files", "4"];
    shared.run(&[&whose[..], &limits].concat()).ok();
    let refused = shared.shell("dd if=/dev/zero of=f bs=1M count=3");
    refused.failed(1, &["Disk quota exceeded"]);
    shared
        .shell("fallocate -l 1M g")
        .failed(1, &["Disk quota exceeded"]);
    shared
        .shell("touch a b c")
        .failed(1, &["'c'", "Disk quota exceeded"]);
    // Root is free, in another's file, too.
    std::fs::write(shared.0.path("root"), vec![1; 4 << 20]).expect("written");
    let found = shared.0.path("f").metadata().expect("attributes");
    assert_eq!(found.blocks() * 512, 2 << 20);
    for place in ["mnt", "p.img"] {
        let told = json(shared.run(&["quota", place, "--user", "65534", "--json"]));
        let quota = &told["quotas"][0];
        assert_eq!(
            (&quota["bytes"]["used"], &quota["files"]["used"]),
            (&(2 << 20).into(), &4.into())
        );
        assert_eq!(
            (&quota["bytes_exceeded"], &quota["files_exceeded"]),
            (&true.into(), &false.into())
        );
        let left = quota["bytes_grace_left_s"].as_u64().expect("seconds");
        assert!((604_000..=604_800).contains(&left), "{left}");
        let table = shared.run(&["quota", place, "-u65534"]).ok().out;
        let words = table.lines().nth(1).expect("a line").split_whitespace();
        let words: Vec<_> = words.skip(1).collect();
        assert_eq!(
            words[..7],
            ["+-", "2.0", "MiB", "1.0", "MiB", "2.0", "MiB"],
            "{table}"
        );
        assert!(["7d", "6d23h"].contains(&words[7]), "{table}");
        let table = shared.run(&["quota", place]).ok().out;
        assert!(
            table.contains("\ngroup") && table.contains("\nproject"),
            "{table}"
        );
    }
    assert!(
        shared
            .run(&["info", "mnt"])
            .ok()
            .out
            .contains("\nquotas      on\n")
    );
    // They can be changed meanwhile.
    shared
        .run(&["quota", "set", "mnt", "-u65534", "--hard", "4M"])
        .ok();
    shared.shell("dd if=/dev/zero of=f bs=1M count=3").ok();
    shared.run(&["quota", "off", "mnt"]).ok();
    shared
        .run(&["quota", "mnt"])
        .failed(1, &["mnt: quotas are off", "`vellum quota on mnt`"]);
    shared
        .shell("dd if=/dev/zero of=f bs=1M count=5; touch c")
        .ok();
    shared.run(&["quota", "on", "mnt"]).ok();
    shared.shell("touch d").failed(1, &["Disk quota exceeded"]);
    let table = |place| settled(&shared.run(&["quota", place]).ok().out);
    let before = table("mnt");
    shared.0.umount();
    assert_eq!(table("p.img"), before);
    shared.0.mount(&["-o", "ro"]);
    assert_eq!(table("mnt"), before);
    for args in [&["off", "mnt"][..], &["set", "mnt", "-u1", "--hard", "1"]] {
        let refused = shared.run(&[&["quota"], args].concat());
        refused.failed(1, &["mnt: it is open for reading only", "without -o ro"]);
    }
    shared.0.umount();
}

/// Whoever gives a file to another group or project must fit into its limits, but root.
#[test]
fn a_mount_holds_changes_of_owners_to_limits() {
    let Some(shared) = Shared::of("a_mount_holds_changes_of_owners_to_limits", &[]) else {
        return;
    };
    for whose in ["-g4243", "-P7"] {
        shared
            .run(&["quota", "set", "mnt", whose, "--hard", "1M"])
            .ok();
    }
    shared.shell("dd if=/dev/zero of=f bs=1M count=2").ok();
    let group = |uid: u32| {
        let mut command = Command::new("setpriv");
        let reuid = format!("--reuid={uid}");
        command.args([
            &reuid,
            "--regid=65534",
            "--groups=4243",
            "chgrp",
            "4243",
            "f",
        ]);
        command.current_dir(&shared.0.dir).env("LC_ALL", "C");
        done(command.output().expect("setpriv runs"))
    };
    group(NOBODY).failed(1, &["Disk quota exceeded"]);
    group(0).ok();
    if Command::new("chattr").arg("-V").output().is_ok() {
        shared
            .shell("chattr -p 7 f")
            .failed(1, &["Disk quota exceeded"]);
    }
    let table = shared.run(&["quota", "mnt"]).ok().out;
    assert_eq!(line(&table, "4243")[1], "+-", "{table}");
    assert_eq!(line(&table, "7")[1], "--", "{table}");
    shared.0.umount();
}

/// A grace period of nothing ends when it begins.
#[test]
fn a_mount_ends_grace_periods() {
    let Some(shared) = Shared::of("a_mount_ends_grace_periods", &[]) else {
        return;
    };
    let limits = ["--soft-files", "2", "--grace-files", "0"];
    shared
        .run(&[&["quota", "default", "mnt", "--user"], &limits[..]].concat())
        .ok();
    shared.shell("touch a b").ok();
    shared
        .shell("touch c; touch d")
        .failed(1, &["Disk quota exceeded"]);
    let table = shared.run(&["quota", "mnt", "-u65534"]).ok().out;
    assert!(table.contains(" -+ ") && table.contains("ended"), "{table}");
    shared.shell("rm a b c d 2>/dev/null; touch e").ok();
    shared.0.umount();
}

/// What the kernel writes back later counts for the owner of the file.
#[test]
fn gathered_writes_are_held_to_the_owners_limits() {
    let test = "gathered_writes_are_held_to_the_owners_limits";
    let Some(shared) = Shared::of(test, &["-o", "writeback"]) else {
        return;
    };
    shared
        .run(&["quota", "set", "mnt", "-u65534", "--hard", "1M"])
        .ok();
    let refused = shared.shell("dd if=/dev/zero of=f bs=64k count=32 conv=fsync");
    refused.failed(1, &["Disk quota exceeded"]);
    let told = json(shared.run(&["quota", "mnt", "-u65534", "--json"]));
    let used = told["quotas"][0]["bytes"]["used"]
        .as_u64()
        .expect("a number");
    assert!(used <= 1 << 20, "{used}");
    shared.shell("rm f").ok();
    shared.0.umount();
}

#[test]
fn users_of_a_mount_see_their_own_quotas_and_change_none() {
    let test = "users_of_a_mount_see_their_own_quotas_and_change_none";
    let Some(shared) = Shared::of(test, &[]) else {
        return;
    };
    shared
        .run(&["quota", "set", "mnt", "--user", "4242", "--hard", "1M"])
        .ok();
    shared.shell("echo text >f").ok();
    for place in ["mnt", "p.img"] {
        let told = json(shared.run_as_nobody(&["quota", place, "--json"]));
        let shown: Vec<_> = told["quotas"].as_array().expect("a list").iter().collect();
        let whose = |quota: &&Value| (quota["kind"].to_string(), quota["id"].as_u64());
        let own = ["\"user\"", "\"group\""].map(|kind| (kind.to_owned(), Some(NOBODY.into())));
        assert_eq!(shown.iter().map(whose).collect::<Vec<_>>(), own);
        assert_eq!(shown[0]["bytes"]["used"], 4096);
        shared
            .run_as_nobody(&["quota", place, "--user", "65534"])
            .ok();
        shared.run_as_nobody(&["quota", "default", place]).ok();
        for other in ["-u0", "-g0", "-P0", "-u4242"] {
            let refused = shared.run_as_nobody(&["quota", place, other]);
            refused.failed(1, &["their own quota", "run this as root"]);
        }
        for change in [
            &["off", place][..],
            &["set", place, "-u65534", "--hard", "none"],
            &["set", place, "-u65534", "--default"],
            &["default", place, "--user", "--hard", "1M"],
        ] {
            let refused = shared.run_as_nobody(&[&["quota"], change].concat());
            refused.failed(1, &["not permitted", "run this as root"]);
        }
    }
    shared.0.umount();
    // The pool itself is not theirs.
    let pool = shared.0.bench.join("p.img");
    std::fs::set_permissions(pool, Permissions::from_mode(0o600)).expect("closed");
    for args in [&["quota", "p.img"][..], &["quota", "on", "p.img"]] {
        shared
            .run_as_nobody(args)
            .failed(1, &["cannot open p.img: Permission denied"]);
    }
}

/// The report takes several exchanges with the mount.
#[test]
fn a_mount_reports_many_ids() {
    if !has_fuse("a_mount_reports_many_ids") {
        return;
    }
    const IDS: u32 = 300;
    let bench = Bench::with_plain_pool("16M");
    let pool = PoolOptions::new()
        .open(bench.join("p.img"))
        .expect("opened");
    let (fs, cred) = (pool.fs(), Cred::root());
    fs.set_quotas(&cred, true).expect("on");
    for id in 0..IDS {
        let limits = QuotaLimits {
            hard_inodes: u64::from(id) + 1,
            ..QuotaLimits::default()
        };
        fs.set_quota(&cred, QuotaKind::Project, 1000 + id, Some(&limits))
            .expect("set");
    }
    drop(fs);
    pool.close().expect("closed");
    let at_rest = bench.run(&["quota", "p.img"]).ok().out;
    let mounted = Mounted::of(bench, &[]);
    assert_eq!(mounted.bench.run(&["quota", "mnt"]).ok().out, at_rest);
    let last = (1000 + IDS - 1).to_string();
    assert_eq!(line(&at_rest, &last)[9], IDS.to_string());
    mounted.umount();
}
