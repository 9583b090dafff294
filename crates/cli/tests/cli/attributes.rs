//! Extended attributes and access control lists, through copies and in listings.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use vellum::{Cred, FileFlags, Pool, PoolOptions};

use crate::support::{Bench, skipped};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const NOBODY: u32 = 65_534;
const VALUE_MAX: usize = 64 << 10;

/// The attributes of a file by their names.
pub(crate) type Xattrs = BTreeMap<String, Vec<u8>>;

/// The value of a list: tags, users or groups, and permissions.
fn list(entries: &[(u16, u32, u16)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

/// `u::rwx,u:500:rwx,g::---,m::rwx,o::---`.
fn named_list() -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    list(&[
        (1, NONE, 7),
        (2, 500, 7),
        (4, NONE, 0),
        (16, NONE, 7),
        (32, NONE, 0),
    ])
}

/// The capability `cap_net_raw=ep`.
fn capability() -> Vec<u8> {
    let mut value = 0x0200_0001_u32.to_le_bytes().to_vec();
    value.extend_from_slice(&(1_u32 << 13).to_le_bytes());
    value.resize(20, 0);
    value
}

/// Whether the file system of this machine took the attribute.
fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    lsetxattr(path, name, value, XattrFlags::empty()).is_ok()
}

/// Sets attributes of a tree, as far as the file system has them.
pub(crate) fn add_to_tree(root: &Path) {
    let names = ["deep/file-2", "deep/er/read-only", "deep/er/still", "deep"];
    let mut all = names
        .map(|name| (name, "user.vellum", b"mine".to_vec()))
        .to_vec();
    all.extend([
        ("deep/file-6", ACCESS, named_list()),
        ("deep/er", ACCESS, named_list()),
        ("deep/er", DEFAULT, named_list()),
        ("fifo", ACCESS, named_list()),
    ]);
    if rustix::process::geteuid().is_root() {
        all.extend([
            ("deep/file-2", "trusted.vellum", Vec::new()),
            ("deep/file-2", "security.vellum", vec![0; 1000]),
            ("deep/file-3", "security.capability", capability()),
            ("deep/link", "trusted.vellum", b"of a link".to_vec()),
        ]);
    }
    for (path, name, value) in all {
        if !set(&root.join(path), name, &value) {
            skipped("copies", &format!("this machine has no {name}"));
        }
    }
}

/// The attributes of a file of this machine that a test may have set.
pub(crate) fn of_host(path: &Path) -> Xattrs {
    let mut list = vec![0; VALUE_MAX];
    let len = llistxattr(path, &mut list[..]).unwrap_or(0);
    let names = list[..len].split(|byte| *byte == 0);
    let names = names.map(|name| String::from_utf8(name.to_vec()).expect("text"));
    let is_known = |name: &String| {
        name.contains("vellum") || name.ends_with(".capability") || name.contains("posix_acl")
    };
    let get = |name: String| {
        let mut value = vec![0; VALUE_MAX];
        let len = lgetxattr(path, &name, &mut value[..]).expect("a value");
        value.truncate(len);
        (name, value)
    };
    names.filter(is_known).map(get).collect()
}

fn open(bench: &Bench, pool: &str) -> Pool {
    PoolOptions::default()
        .open(bench.join(pool))
        .expect("opened")
}

/// The attributes of a file in a pool.
fn of_pool(bench: &Bench, pool: &str, path: &str) -> (u32, Xattrs) {
    let pool = open(bench, pool);
    let volume = pool.volume().with_cred(Cred::root());
    let mode = volume
        .metadata(path)
        .expect("attributes")
        .permissions()
        .mode();
    let names = volume.xattrs(path).expect("names").into_iter();
    let get = |name: std::ffi::OsString| {
        let value = volume.xattr(path, &name).expect("read").expect("a value");
        (name.into_string().expect("text"), value)
    };
    let found = (mode, names.map(get).collect());
    drop(volume);
    pool.close().expect("closed");
    found
}

fn set_in_pool(bench: &Bench, pool: &str, path: &str, xattrs: &[(&str, &[u8])]) {
    let pool = open(bench, pool);
    let volume = pool.volume().with_cred(Cred::root());
    for (name, value) in xattrs {
        volume.set_xattr(path, name, value).expect("set");
    }
    drop(volume);
    pool.close().expect("closed");
}

fn only(name: &str, value: &[u8]) -> Xattrs {
    [(name.to_owned(), value.to_vec())].into()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
}

#[test]
fn attributes_that_a_target_does_not_take_are_named() {
    let bench = Bench::with_pool("16M");
    bench.run(&["mkfs", "q.img", "--size", "16M", "-q"]).ok();
    bench
        .run_with_input(&["put", "-", "p.img:/a"], b"text")
        .ok();
    let large: Vec<u8> = (0..VALUE_MAX).map(|i| (i % 251) as u8).collect();
    let both: [(&str, &[u8]); 2] = [("user.large", &large), ("user.vellum", b"small")];
    set_in_pool(&bench, "p.img", "/a", &both);
    bench.run(&["cp", "-p", "p.img:/a", "q.img:/b"]).ok();
    let kept = both.map(|(name, value)| (name.to_owned(), value.to_vec()));
    assert_eq!(of_pool(&bench, "q.img", "/b").1, kept.into());

    let probe = bench.join("probe");
    std::fs::write(&probe, "").expect("written");
    let refused = both
        .iter()
        .filter(|(name, value)| !set(&probe, name, value));
    let refused: Vec<_> = refused.map(|(name, _)| *name).collect();
    let did = bench.run(&["export", "q.img:/", "out"]);
    match refused.len() {
        0 => drop(did.ok()),
        count => {
            let mut words = vec![format!("{count} things could not be copied")];
            words.extend(
                refused
                    .iter()
                    .map(|name| format!("q.img:/b: extended attribute {name}: ")),
            );
            did.failed(1, &words.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    let copy = bench.join("out/b");
    assert_eq!(std::fs::read_to_string(&copy).expect("read"), "text");
    assert_eq!(of_host(&copy), of_host(&probe));
    bench.sound();
}

#[test]
fn copies_keep_flags_and_projects() {
    let bench = Bench::with_pool("16M");
    bench.run(&["mkfs", "q.img", "--size", "16M", "-q"]).ok();
    let is_root = rustix::process::geteuid().is_root();
    let pool = open(&bench, "p.img");
    let volume = pool.volume();
    volume.create_dir("/d").expect("made");
    volume.write("/d/f", "text").expect("written");
    volume.hard_link("/d/f", "/g").expect("linked");
    let handed = FileFlags::NO_ATIME | FileFlags::PROJECT_INHERIT;
    volume.set_project("/d", 7).expect("set");
    volume.set_flags("/d", handed).expect("set");
    let volume = volume.with_cred(Cred::root());
    let fixed = FileFlags::IMMUTABLE | FileFlags::NO_DUMP;
    volume.set_flags("/g", fixed).expect("set");
    drop(volume);
    pool.close().expect("closed");
    bench.run(&["cp", "-a", "p.img:/.", "q.img:/"]).ok();
    let told = bench.run(&["stat", "q.img:/d"]).ok();
    let shown = "flags   no atime, project inherit\nproject 7\n";
    assert!(told.out.contains(shown), "{}", told.out);
    let pool = open(&bench, "q.img");
    let volume = pool.volume();
    let found = |path| {
        let project = volume.project(path).expect("read");
        (volume.flags(path).expect("read"), project)
    };
    assert_eq!(found("/d"), (handed, 7));
    // Only privileged users set the flags that forbid changes.
    let kept = match is_root {
        true => fixed,
        false => FileFlags::NO_DUMP,
    };
    assert_eq!(found("/g"), (kept, 0));
    assert_eq!(found("/d/f"), (kept, 0));
    drop(volume);
    pool.close().expect("closed");
    bench.sound();
}

#[test]
fn new_files_follow_the_umask_or_the_list_of_their_directory() {
    let bench = Bench::with_pool("16M");
    let run = |args: &[&str]| {
        let script = "umask 077 && exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_vellum")]);
        let done = command.args(args).current_dir(bench.path()).output();
        vellum_testing::Did::from(done.expect("it runs")).ok();
    };
    std::fs::create_dir(bench.join("tree")).expect("made");
    std::fs::write(bench.join("tree/file"), "text").expect("written");
    set(&bench.join("tree/file"), "user.vellum", b"not copied");
    set_mode(&bench.join("tree/file"), 0o444);
    set_mode(&bench.join("tree"), 0o575);
    run(&["mkdir", "p.img:/listed"]);
    set_in_pool(&bench, "p.img", "/listed", &[(DEFAULT, &named_list())]);
    for dir in ["p.img:/", "p.img:/listed/"] {
        run(&["cp", "-r", "-q", "tree", dir]);
        run(&["put", "tree/file", &format!("{dir}put")]);
    }
    run(&["import", "tree", "p.img:/listed/new/all", "-q"]);
    let found = |path| of_pool(&bench, "p.img", path);
    assert_eq!(found("/tree"), (0o500, Xattrs::new()));
    assert_eq!(found("/tree/file"), (0o400, Xattrs::new()));
    assert_eq!(found("/put"), (0o600, Xattrs::new()));
    let listed = |path, mode: u32| {
        let (found, xattrs) = found(path);
        assert_eq!(found, mode, "{path}");
        assert!(
            xattrs.contains_key(ACCESS) && !xattrs.contains_key("user.vellum"),
            "{path}"
        );
        xattrs
            .get(DEFAULT)
            .is_some_and(|list| *list == named_list())
    };
    assert!(listed("/listed/tree", 0o570));
    assert!(listed("/listed/new", 0o770));
    assert!(!listed("/listed/tree/file", 0o440));
    assert!(!listed("/listed/put", 0o660));
    // What keeps attributes keeps that there is no list.
    let (mode, xattrs) = found("/listed/new/all");
    assert_eq!((mode, xattrs), (0o575, Xattrs::new()));
    let (mode, xattrs) = found("/listed/new/all/file");
    assert!(
        mode == 0o444 && !xattrs.contains_key(ACCESS),
        "{mode:o} {xattrs:?}"
    );
    bench.sound();
}

#[test]
fn lists_are_replaced_and_other_attributes_stay() {
    let bench = Bench::with_pool("16M");
    for name in ["with", "without"] {
        bench
            .run_with_input(&["put", "-", &format!("p.img:/{name}")], b"text")
            .ok();
    }
    set_in_pool(
        &bench,
        "p.img",
        "/with",
        &[(ACCESS, &named_list()), ("user.a", b"1")],
    );
    bench.run(&["cp", "-p", "p.img:/with", "p.img:/new"]).ok();
    let both = [
        (ACCESS.to_owned(), named_list()),
        ("user.a".to_owned(), b"1".to_vec()),
    ];
    assert_eq!(of_pool(&bench, "p.img", "/new"), (0o770, both.into()));
    bench
        .run(&["cp", "-p", "p.img:/without", "p.img:/new"])
        .ok();
    let mode = of_pool(&bench, "p.img", "/without").0;
    assert_eq!(
        of_pool(&bench, "p.img", "/new"),
        (mode, only("user.a", b"1"))
    );
    bench.sound();
}

/// Without privilege, a copy skips what only root may set, as it does owners.
#[test]
fn users_keep_their_attributes_and_lists() {
    let test = "users_keep_their_attributes_and_lists";
    let bench = Bench::empty();
    let run = |args: &[&str]| {
        let mut command = crate::support::vellum();
        command.args(args).current_dir(bench.path());
        command.uid(NOBODY).gid(NOBODY).output()
    };
    let tree = bench.join("tree");
    std::fs::create_dir_all(tree.join("closed")).expect("made");
    std::fs::write(tree.join("file"), "text").expect("written");
    for name in ["", "tree", "tree/closed", "tree/file"] {
        let owner = Some(NOBODY);
        if std::os::unix::fs::chown(bench.join(name), owner, owner).is_err() {
            return skipped(test, "not root");
        }
    }
    let (file, closed) = (tree.join("file"), tree.join("closed"));
    let is_set = [
        set(&file, "user.vellum", b"mine"),
        set(&closed, "user.vellum", b"mine"),
        set(&file, "trusted.vellum", b"root's"),
        set(&file, "security.vellum", b"root's"),
        set(&file, ACCESS, &named_list()),
    ];
    if is_set.contains(&false) || run(&["--version"]).is_err() {
        return skipped(test, "this machine lacks attributes, or another user");
    }
    set_mode(&closed, 0o555);
    set_mode(&file, 0o460);
    for args in [
        &["mkfs", "p.img", "--size", "16M", "-q"][..],
        &["import", "tree", "p.img:/in", "-q"],
        &["import", "tree", "p.img:/in", "-q", "--overwrite"],
    ] {
        vellum_testing::Did::from(run(args).expect("it runs")).ok();
    }
    let (mode, xattrs) = of_pool(&bench, "p.img", "/in/file");
    assert_eq!((mode, xattrs.len()), (0o460, 2), "{xattrs:?}");
    assert!(xattrs.contains_key("user.vellum") && xattrs.contains_key(ACCESS));
    let (mode, xattrs) = of_pool(&bench, "p.img", "/in/closed");
    assert_eq!((mode, xattrs), (0o555, only("user.vellum", b"mine")));
    // The same on the way out.
    set_in_pool(
        &bench,
        "p.img",
        "/in/file",
        &[("trusted.vellum", b"root's")],
    );
    let did = run(&["export", "p.img:/in", "out", "-q"]).expect("it runs");
    vellum_testing::Did::from(did).ok();
    let found = of_host(&bench.join("out/file"));
    assert_eq!(found.keys().collect::<Vec<_>>(), [ACCESS, "user.vellum"]);
    bench.sound();
}

#[test]
fn a_link_to_the_target_directory_is_followed() {
    let bench = Bench::with_pool("16M");
    std::fs::create_dir(bench.join("real")).expect("made");
    std::os::unix::fs::symlink("real", bench.join("link")).expect("linked");
    bench.run(&["mkdir", "-m", "750", "p.img:/dir"]).ok();
    set_in_pool(&bench, "p.img", "/dir", &[("user.vellum", b"mine")]);
    if !set(&bench.join("real"), "user.vellum", b"") {
        return skipped(
            "a_link_to_the_target_directory_is_followed",
            "no attributes",
        );
    }
    bench.run(&["export", "p.img:/dir", "link", "-q"]).ok();
    assert_eq!(of_host(&bench.join("real")), only("user.vellum", b"mine"));
    bench.run(&["import", "link", "p.img:/back", "-q"]).ok();
    let (mode, xattrs) = of_pool(&bench, "p.img", "/back");
    assert_eq!((mode, xattrs), (0o750, only("user.vellum", b"mine")));
    bench.sound();
}

#[test]
fn listings_mark_files_with_lists() {
    let bench = Bench::with_pool("16M");
    bench.run(&["mkdir", "p.img:/dir"]).ok();
    bench.run(&["mkdir", "p.img:/other"]).ok();
    set_in_pool(
        &bench,
        "p.img",
        "/dir",
        &[(DEFAULT, &named_list()), ("user.a", b"1")],
    );
    set_in_pool(&bench, "p.img", "/other", &[("user.a", b"1")]);
    let long = bench.run(&["ls", "-l", "p.img:/"]).ok().out;
    let marks: Vec<_> = long.lines().map(|line| line.as_bytes()[10]).collect();
    assert_eq!(marks, b"+ ", "{long}");
    let told = bench.run(&["stat", "p.img:/dir"]).ok().out;
    assert!(
        told.lines()
            .any(|line| line.starts_with("mode") && line.ends_with('+')),
        "{told}"
    );
    let told = bench.run(&["stat", "--json", "p.img:/dir"]).ok().out;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told[0]["xattrs"], serde_json::json!([DEFAULT, "user.a"]));
}
