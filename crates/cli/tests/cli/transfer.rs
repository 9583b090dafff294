//! Trees that are imported into a pool and exported again are unchanged.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::attributes::{self, Xattrs};
use crate::support::Bench;

/// The properties of a file that must be unchanged.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    nlink: u64,
    size: u64,
    device: u64,
    content: Option<Vec<u8>>,
    target: Option<std::path::PathBuf>,
    xattrs: Xattrs,
    /// The first path with the same inode.
    same_as: String,
}

pub(crate) fn look(root: &Path) -> BTreeMap<String, Seen> {
    let mut seen = BTreeMap::new();
    let mut first = BTreeMap::new();
    let mut paths = vec![root.to_owned()];
    let mut all = Vec::new();
    while let Some(path) = paths.pop() {
        let found = path.symlink_metadata().expect("attributes");
        if found.is_dir() {
            paths.extend(
                path.read_dir()
                    .expect("listed")
                    .map(|entry| entry.expect("read").path()),
            );
        }
        all.push((
            path.strip_prefix(root)
                .expect("below")
                .display()
                .to_string(),
            path,
            found,
        ));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, path, found) in all {
        let is_dir = found.is_dir();
        let same_as = first
            .entry(found.ino())
            .or_insert_with(|| name.clone())
            .clone();
        let told = Seen {
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            mtime: (found.mtime(), found.mtime_nsec()),
            nlink: if is_dir { 0 } else { found.nlink() },
            size: if is_dir { 0 } else { found.size() },
            device: if found.file_type().is_char_device() {
                found.rdev()
            } else {
                0
            },
            content: found.is_file().then(|| std::fs::read(&path).expect("read")),
            target: found
                .is_symlink()
                .then(|| path.read_link().expect("a target")),
            xattrs: attributes::of_host(&path),
            same_as,
        };
        seen.insert(name, told);
    }
    seen
}

pub(crate) fn make_tree(root: &Path) {
    std::fs::create_dir_all(root.join("deep/er/still")).expect("made");
    for index in 0..200 {
        let content: Vec<u8> = (0..index * 37).map(|i| (i % 251) as u8).collect();
        std::fs::write(root.join(format!("deep/file-{index}")), content).expect("written");
    }
    std::fs::write(root.join("deep/er/read-only"), "cannot be written").expect("written");
    std::fs::hard_link(root.join("deep/er/read-only"), root.join("second-name")).expect("linked");
    std::fs::hard_link(root.join("second-name"), root.join("deep/third-name")).expect("linked");
    std::os::unix::fs::symlink("../deep/file-1", root.join("deep/link")).expect("linked");
    std::os::unix::fs::symlink("x".repeat(3000), root.join("long-link")).expect("linked");
    std::fs::write(root.join("name with spaces and \u{fc}ml\u{e4}ut"), "").expect("written");
    let fifo = root.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("made");

    let sparse = File::create(root.join("sparse")).expect("made");
    sparse.set_len(9 << 20).expect("long");
    sparse
        .write_all_at(b"in the middle", (4 << 20) + 17)
        .expect("written");

    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(root.join("deep/file-3"), Some(1234), Some(4321)).expect("owned");
        std::os::unix::fs::lchown(root.join("deep/link"), Some(77), Some(78)).expect("owned");
        let null = rustix::fs::makedev(1, 3);
        let kind = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("null"),
            kind,
            rustix::fs::Mode::RUSR,
            null,
        )
        .expect("made");
    }
    attributes::add_to_tree(root);
    let mode = |name: &str, mode| {
        std::fs::set_permissions(root.join(name), Permissions::from_mode(mode)).expect("changed");
    };
    mode("deep/file-2", 0o4711);
    mode("deep/er/read-only", 0o400);
    mode("deep/er", 0o2750);
    mode("deep/er/still", 0o555);
    for (name, second) in [("deep/file-5", -5), ("deep", 1_000_000_000), ("sparse", 1)] {
        let time = rustix::fs::Timespec {
            tv_sec: second,
            tv_nsec: 123_456_789,
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(
            rustix::fs::CWD,
            root.join(name),
            &times,
            rustix::fs::AtFlags::empty(),
        )
        .expect("changed");
    }
}

#[test]
fn a_tree_is_unchanged_after_import_and_export() {
    let bench = Bench::with_pool("64M");
    let tree = bench.join("tree");
    make_tree(&tree);
    bench
        .run(&["import", "tree", "p.img:/in/here", "--quiet"])
        .ok();
    bench.sound();
    bench
        .run(&["export", "p.img:/in/here", "back", "--quiet"])
        .ok();
    let (before, after) = (look(&tree), look(&bench.join("back")));
    assert_eq!(before.len(), after.len());
    for ((name, before), after) in before.iter().zip(after.values()) {
        assert!(
            before == after,
            "{name}:\n{:?}\n{:?}",
            short(before),
            short(after)
        );
    }
    let sparse = bench.join("back/sparse").metadata().expect("attributes");
    assert!(
        sparse.blocks() * 512 < 1 << 20,
        "the holes were filled: {}",
        sparse.blocks()
    );
}

fn short(seen: &Seen) -> String {
    let mut text = format!("{seen:?}");
    text.truncate(400);
    text
}

#[test]
fn an_import_overwrites_only_on_request() {
    let bench = Bench::with_pool("16M");
    std::fs::create_dir(bench.join("tree")).expect("made");
    std::fs::write(bench.join("tree/a"), "old").expect("written");
    let did = bench.run(&["import", "tree", "p.img:/"]).ok();
    assert!(did.out.contains("imported 1 files"), "{}", did.out);
    std::fs::write(bench.join("tree/a"), "new").expect("written");
    std::fs::write(bench.join("tree/b"), "more").expect("written");
    bench
        .run(&["import", "tree", "p.img:/", "--quiet"])
        .failed(1, &["a", "exists", "1 things"]);
    assert_eq!(
        bench.run(&["cat", "p.img:/a", "p.img:/b"]).ok().out,
        "oldmore"
    );
    bench
        .run(&["import", "tree", "p.img:/", "--quiet", "--overwrite"])
        .ok();
    assert_eq!(bench.run(&["cat", "p.img:/a"]).ok().out, "new");
    bench
        .run(&["export", "p.img:/", "tree", "--quiet"])
        .failed(1, &["exists"]);
    bench
        .run(&["export", "p.img:/", "tree", "--quiet", "--overwrite"])
        .ok();
    bench.sound();
}

#[test]
fn a_full_pool_is_reported() {
    let bench = Bench::with_pool("4M");
    std::fs::create_dir(bench.join("tree")).expect("made");
    std::fs::write(bench.join("tree/big"), vec![1; 8 << 20]).expect("written");
    bench
        .run(&["import", "tree", "p.img:/", "--quiet"])
        .failed(1, &["big", "no space"]);
    bench.sound();
    bench
        .run(&["put", "tree/big", "p.img:/other"])
        .failed(1, &["no space", "larger pool"]);
    bench.sound();
}

#[test]
fn wrong_sources_and_targets_are_named() {
    let bench = Bench::with_pool("4M");
    std::fs::write(bench.join("file"), "").expect("written");
    bench
        .run(&["import", "none", "p.img:/"])
        .failed(1, &["none", "No such file"]);
    bench
        .run(&["import", "file", "p.img:/"])
        .failed(2, &["not a directory", "vellum put"]);
    bench
        .run(&["export", "p.img:/none", "x"])
        .failed(1, &["p.img:/none", "no such file"]);
    bench.run(&["put", "file", "p.img:/file"]).ok();
    bench
        .run(&["export", "p.img:/file", "x"])
        .failed(1, &["directory", "vellum get"]);
}
